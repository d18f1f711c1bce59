/**
 * From what the house knows to the messages callers get. Messages are written as literals with every field present:
 * building them with `create` costs ten times as much, and Reserve answers one a call.
 */
import type { LeaseView } from '../core/command.ts'
import type { ClosedEvent, Json, LedgerEvent } from '../core/event.ts'
import { leaseId, type Quarantine, type QuarantineReason } from '../core/lease.ts'
import type { NetworkState } from '../core/network.ts'
import type { Labels, Owner, Placement } from '../core/owner.ts'
import { eraOf, judgePolicy, POLICY, type ReapPolicy } from '../core/policy.ts'
import type { Liveness, Pool, PoolOptions, PoolSettings } from '../core/pool.ts'
import type * as auditPb from '../gen/ipledger/v1/audit_pb.ts'
import * as networkPb from '../gen/ipledger/v1/network_pb.ts'
import * as poolPb from '../gen/ipledger/v1/pool_pb.ts'
import * as pb from '../gen/ipledger/v1/types_pb.ts'
import type { HeldState } from '../ledger/holders.ts'
import type { Entry, HolderShown, LeasesAsOf, Step } from '../ledger/read-audit.ts'
import type { EventShown } from '../ledger/read-events.ts'
import type { NetworkAt, PoolUsage, Usage } from '../ledger/read-pools.ts'
import type { Recovery } from '../ledger/read-recovery.ts'
import { durationMessage, timestampMessage } from './times.ts'

const LEASE_STATES: Readonly<Record<LeaseView['state'], pb.LeaseState>> = {
  RESERVED: pb.LeaseState.RESERVED,
  ACTIVE: pb.LeaseState.ACTIVE,
  QUARANTINED: pb.LeaseState.QUARANTINED,
  RELEASED: pb.LeaseState.ENDED,
  REAPED: pb.LeaseState.ENDED,
}

export const QUARANTINE_REASONS: Readonly<Record<QuarantineReason, pb.QuarantineReason>> = {
  SUPERSEDED: pb.QuarantineReason.SUPERSEDED,
  REMOVAL_UNCONFIRMED: pb.QuarantineReason.REMOVAL_UNCONFIRMED,
  CONFLICT: pb.QuarantineReason.CONFLICT,
  OPERATOR: pb.QuarantineReason.OPERATOR,
  RELEASED_BUT_LIVE: pb.QuarantineReason.RELEASED_BUT_LIVE,
  FOREIGN: pb.QuarantineReason.FOREIGN,
  SECOND_ADDRESS: pb.QuarantineReason.SECOND_ADDRESS,
  SEEN_BY_CALLER: pb.QuarantineReason.SEEN_BY_CALLER,
}

const NETWORK_STATES: Readonly<Record<NetworkState, networkPb.NetworkState>> = {
  READY: networkPb.NetworkState.READY,
  REBUILDING: networkPb.NetworkState.REBUILDING,
  RECOVERING: networkPb.NetworkState.RECOVERING,
}

const LIVENESS: Readonly<Record<Liveness, poolPb.PoolLiveness>> = {
  AVAILABLE: poolPb.PoolLiveness.AVAILABLE,
  STRICT: poolPb.PoolLiveness.STRICT,
}

export function leaseMessage(view: LeaseView): pb.Lease {
  const message = leaseFields(view)
  message.options = optionsMessage(view.options)
  return message
}

/** Everything but the pool's options, which events do not repeat. */
function leaseFields(view: Omit<LeaseView, 'options'>): pb.Lease {
  const { owner, quarantine, confirmBy, confirmedAt, endedAt, availableAt } = view
  const message: pb.Lease = {
    $typeName: 'ipledger.v1.Lease',
    leaseId: view.leaseId,
    network: view.network,
    pool: view.pool,
    address: view.address,
    prefixLength: view.prefixLength,
    subnet: view.subnet,
    gateway: view.gateway,
    state: LEASE_STATES[view.state],
    version: BigInt(view.version),
    fencingToken: BigInt(view.fencingToken),
    reservedAt: timestampMessage(view.reservedAt),
    witnesses: view.witness === '' ? [] : [view.witness],
    reused: view.reused,
  }
  if (owner !== null) message.owner = ownerMessage(owner, view.placement)
  if (confirmBy !== null) message.confirmBy = timestampMessage(confirmBy)
  if (confirmedAt !== null) message.confirmedAt = timestampMessage(confirmedAt)
  if (quarantine !== null) message.quarantine = quarantineMessage(quarantine)
  if (endedAt !== null) message.endedAt = timestampMessage(endedAt)
  if (availableAt !== null) message.availableAt = timestampMessage(availableAt)
  return message
}

export function ownerMessage(owner: Owner, placement: Placement): pb.Owner {
  return {
    $typeName: 'ipledger.v1.Owner',
    kind: owner.kind,
    name: owner.name,
    uid: owner.uid,
    incarnation: owner.incarnation,
    interface: owner.interface,
    node: placement.node,
    boot: placement.boot,
    labels: mapOf(placement.labels),
  }
}

function quarantineMessage({ reason, at, by, why }: Quarantine): pb.Quarantine {
  return {
    $typeName: 'ipledger.v1.Quarantine',
    reason: QUARANTINE_REASONS[reason],
    since: timestampMessage(at),
    by,
    why,
  }
}

function optionsMessage(options: PoolOptions): pb.PoolOptions {
  return {
    $typeName: 'ipledger.v1.PoolOptions',
    routes: options.routes.map(({ destination, gateway }) => ({
      $typeName: 'ipledger.v1.Route',
      destination,
      gateway,
    })),
    dns: [...options.dns],
    mtu: options.mtu,
  }
}

export function networkMessage({ network, head }: NetworkAt): networkPb.Network {
  return {
    $typeName: 'ipledger.v1.Network',
    name: network.network,
    description: network.description,
    labels: mapOf(network.labels),
    state: NETWORK_STATES[network.state],
    era: network.era,
    head: BigInt(head),
    createdAt: timestampMessage(network.createdAt),
    updatedAt: timestampMessage(network.updatedAt),
    version: BigInt(network.version),
  }
}

export function recoveryMessage({ since, why, sources, unreported, unknown }: Recovery): networkPb.Recovery {
  return {
    $typeName: 'ipledger.v1.Recovery',
    since: timestampMessage(since),
    why,
    sources,
    unreported: [...unreported],
    unknown: [...unknown],
  }
}

export function poolMessage({ pool, usage }: PoolUsage): poolPb.Pool {
  return { ...barePoolMessage(pool), usage: usageMessage(usage) }
}

/** Of a pool that is gone, or another by now: how full it is says nothing. */
export function barePoolMessage(pool: Pool): poolPb.Pool {
  return {
    ...settingsFields(pool),
    network: pool.network,
    id: BigInt(pool.poolId),
    version: BigInt(pool.version),
    createdAt: timestampMessage(pool.createdAt),
    updatedAt: timestampMessage(pool.updatedAt),
  }
}

function settingsFields(settings: PoolSettings): poolPb.Pool {
  const message: poolPb.Pool = {
    $typeName: 'ipledger.v1.Pool',
    network: '',
    name: settings.name,
    id: 0n,
    cidr: settings.cidr,
    subnet: settings.subnet,
    prefixLength: settings.prefixLength,
    gateway: settings.gateway,
    exclude: [...settings.exclude],
    cooldown: durationMessage(settings.cooldownMs),
    liveness: LIVENESS[settings.liveness],
    ownerLimit: settings.ownerLimit,
    isDefault: settings.isDefault,
    draining: settings.draining,
    options: optionsMessage(settings.options),
    labels: mapOf(settings.labels),
    version: 0n,
    reapPolicy: reapPolicyMessage(judgePolicy(settings.reapPolicy)),
  }
  if (settings.confirmWithinMs !== null) message.confirmWithin = durationMessage(settings.confirmWithinMs)
  return message
}

function reapPolicyMessage(policy: ReapPolicy): poolPb.ReapPolicy {
  return {
    $typeName: 'ipledger.v1.ReapPolicy',
    misses: policy.misses,
    minimumAge: durationMessage(policy.minimumAgeMs),
    unwitnessedAge: durationMessage(policy.unwitnessedAgeMs),
    terminalGrace: durationMessage(policy.terminalGraceMs),
    confirmGrace: durationMessage(policy.confirmGraceMs),
  }
}

function usageMessage(usage: Usage): poolPb.PoolUsage {
  return {
    $typeName: 'ipledger.v1.PoolUsage',
    size: usage.size.toString(),
    allocatable: usage.allocatable.toString(),
    free: usage.free.toString(),
    cooling: usage.cooling.toString(),
    reserved: usage.reserved.toString(),
    active: usage.active.toString(),
    quarantined: usage.quarantined.toString(),
    excluded: (usage.size - usage.allocatable).toString(),
  }
}

export function eventMessage({ event, face }: EventShown): auditPb.Event {
  const message: auditPb.Event = {
    $typeName: 'ipledger.v1.Event',
    network: event.network,
    seq: BigInt(event.seq),
    type: event.type,
    time: timestampMessage(event.at),
    actor: event.actor,
    cause: event.cause,
    requestId: event.requestId ?? '',
    traceId: event.traceId ?? '',
  }
  if (event.evidence !== null) message.evidence = jsonObject(event.evidence)
  describeEvent(message, event, face)
  return message
}

function describeEvent(message: auditPb.Event, event: LedgerEvent, face: EventShown['face']): void {
  switch (event.type) {
    case 'lease.reserved':
    case 'lease.confirmed':
    case 'lease.quarantined':
    case 'lease.adopted':
    case 'lease.updated': {
      const { lease } = event
      const id = leaseId(lease.network, lease.fencingToken)
      message.lease = leaseFields({
        ...lease,
        ...face,
        leaseId: id,
        endedAt: null,
        availableAt: null,
        reused: false,
      })
      return
    }
    case 'lease.released':
    case 'lease.reaped': {
      const { lease, endedAt, availableAt } = event.ended
      const id = leaseId(lease.network, lease.fencingToken)
      const state = event.type === 'lease.released' ? 'RELEASED' : 'REAPED'
      message.lease = leaseFields({
        ...lease,
        ...face,
        leaseId: id,
        state,
        endedAt,
        availableAt,
        reused: false,
      })
      return
    }
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted': {
      const pool = settingsFields(event.pool)
      pool.network = event.network
      pool.id = BigInt(event.poolId)
      pool.version = BigInt(event.seq)
      pool.updatedAt = timestampMessage(event.at)
      if (event.type === 'pool.created') pool.createdAt = timestampMessage(event.at)
      message.pool = pool
      return
    }
    case 'network.created':
    case 'network.updated':
      message.networkSettings = {
        ...networkOf(event),
        description: event.settings.description,
        labels: mapOf(event.settings.labels),
        ...(event.type === 'network.created' || event.recoveryEnded
          ? { state: networkPb.NetworkState.READY }
          : {}),
      }
      return
    case 'era.begun':
      message.networkSettings = {
        ...networkOf(event),
        era: event.era,
        state: event.recovering ? networkPb.NetworkState.RECOVERING : networkPb.NetworkState.READY,
      }
      return
    case 'attachment.closed':
      message.closed = closedMessage(event, face.pool)
      return
    case 'node.fenced':
    case 'reconcile.held':
    case 'reconcile.resumed':
      return
  }
}

/** What an event says of its network besides the settings. */
function networkOf(event: LedgerEvent): networkPb.Network {
  return {
    $typeName: 'ipledger.v1.Network',
    name: event.network,
    description: '',
    labels: {},
    state: networkPb.NetworkState.NETWORK_STATE_UNSPECIFIED,
    era: eraOf(event.seq),
    head: BigInt(event.seq),
    updatedAt: timestampMessage(event.at),
    version: BigInt(event.seq),
  }
}

function closedMessage(event: ClosedEvent, pool: string): auditPb.ClosedAttachment {
  return {
    $typeName: 'ipledger.v1.ClosedAttachment',
    owner: ownerMessage(event.owner, { node: '', boot: '', labels: {} }),
    pool: event.poolId === null ? '' : pool,
    until: timestampMessage(event.at + POLICY.retryHorizonMs),
  }
}

export function entryMessage({ what, ...shown }: Entry): auditPb.HistoryEntry {
  return { $typeName: 'ipledger.v1.HistoryEntry', event: eventMessage(shown), what }
}

export function holderMessage({ holder, face }: HolderShown): auditPb.Holder {
  const { owner, placement, from, until, availableAt } = holder
  const message: auditPb.Holder = {
    $typeName: 'ipledger.v1.Holder',
    leaseId: holder.leaseId,
    address: holder.address,
    prefixLength: holder.prefixLength,
    pool: face.pool,
    fromSeq: BigInt(from.seq),
    fromTime: timestampMessage(from.at),
    beganAs: from.as,
    givenBy: from.actor,
    untilSeq: BigInt(until?.seq ?? 0),
    endedAs: until?.as ?? '',
    states: holder.states.map(heldStateMessage),
  }
  if (owner !== null) message.owner = ownerMessage(owner, placement)
  if (until !== null) message.untilTime = timestampMessage(until.at)
  if (availableAt !== null) message.availableAt = timestampMessage(availableAt)
  return message
}

function heldStateMessage({ state, reason, seq, at }: HeldState): auditPb.HeldState {
  return {
    $typeName: 'ipledger.v1.HeldState',
    state: LEASE_STATES[state],
    quarantineReason:
      reason === null ? pb.QuarantineReason.QUARANTINE_REASON_UNSPECIFIED : QUARANTINE_REASONS[reason],
    seq: BigInt(seq),
    time: timestampMessage(at),
  }
}

/** A lease as it was; what its pool is called and offers now. */
export function pastLeaseMessage({ lease, face }: LeasesAsOf['leases'][number]): pb.Lease {
  return leaseFields({
    ...lease,
    ...face,
    leaseId: leaseId(lease.network, lease.fencingToken),
    endedAt: null,
    availableAt: null,
    reused: false,
  })
}

export function stepMessage({ seq, at, what, evidence }: Step): auditPb.ExplainStep {
  const message: auditPb.ExplainStep = {
    $typeName: 'ipledger.v1.ExplainStep',
    seq: BigInt(seq),
    time: timestampMessage(at),
    what,
  }
  if (evidence !== null) message.evidence = jsonObject(evidence)
  return message
}

function mapOf(labels: Labels): { [key: string]: string } {
  return { ...labels }
}

/** Evidence is plain JSON, as google.protobuf.Struct is; only its arrays and maps are not read-only there. */
export function jsonObject(evidence: {
  readonly [key: string]: Json
}): NonNullable<auditPb.Event['evidence']> {
  return evidence as NonNullable<auditPb.Event['evidence']>
}
