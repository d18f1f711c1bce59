/**
 * From what the house knows to the messages callers get. Messages are written as literals with every field present:
 * building them with `create` costs ten times as much, and Reserve answers one a call.
 */
import type { LeaseView, PoolView } from '../core/command.ts'
import {
  type AddressRecord,
  type ClosedEvent,
  type HoldCause,
  type LedgerEvent,
  leaseId,
  type Quarantine,
  type QuarantineReason,
} from '../core/event.ts'
import type { NetworkState } from '../core/image.ts'
import type { Labels, Owner } from '../core/owner.ts'
import { eraOf, POLICY, type ReapPolicy, reapPolicy } from '../core/policy.ts'
import type { Liveness, PoolOptions, PoolSettings } from '../core/pool.ts'
import type * as auditPb from '../gen/ipledger/v1/audit_pb.ts'
import * as networkPb from '../gen/ipledger/v1/network_pb.ts'
import * as poolPb from '../gen/ipledger/v1/pool_pb.ts'
import * as pb from '../gen/ipledger/v1/types_pb.ts'
import {
  type EventShown,
  type HeldState,
  type HistoryEntry,
  type Holder,
  holdsOf,
  type NetworkAt,
  type PoolUsage,
  type Recovery,
  type Step,
  type Usage,
} from '../ledger/reads-types.ts'
import { durationMessage, optionalTime, timestampMessage } from './times.ts'

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
}

export const HOLD_CAUSES: Readonly<Record<HoldCause, networkPb.HoldCause>> = {
  CLOCK: networkPb.HoldCause.CLOCK,
  TOO_MANY_REAPS: networkPb.HoldCause.TOO_MANY_REAPS,
  SOURCE_AHEAD: networkPb.HoldCause.SOURCE_AHEAD,
}

const LIVENESS: Readonly<Record<Liveness, poolPb.PoolLiveness>> = {
  AVAILABLE: poolPb.PoolLiveness.AVAILABLE,
  STRICT: poolPb.PoolLiveness.STRICT,
}

export function leaseMessage(view: LeaseView): pb.Lease {
  return leaseFields(view, optionsMessage(view.options))
}

type LeaseFields = Omit<LeaseView, 'options' | 'poolId'>

/** The pool's options are not repeated where a lease is shown as it was. */
function leaseFields(view: LeaseFields, options: pb.PoolOptions | undefined): pb.Lease {
  const { owner, quarantine } = view
  return {
    $typeName: 'ipledger.v1.Lease',
    leaseId: view.leaseId,
    network: view.network,
    pool: view.pool,
    address: view.address,
    prefixLength: view.prefixLength,
    subnet: view.subnet,
    gateway: view.gateway,
    options,
    state: LEASE_STATES[view.state],
    version: BigInt(view.version),
    fencingToken: BigInt(view.fencingToken),
    owner: owner === null ? undefined : ownerMessage(owner, view.node, view.labels),
    reservedAt: timestampMessage(view.reservedAt),
    confirmBy: optionalTime(view.confirmBy),
    confirmedAt: optionalTime(view.confirmedAt),
    quarantine: quarantine === null ? undefined : quarantineMessage(quarantine),
    endedAt: optionalTime(view.endedAt),
    availableAt: optionalTime(view.availableAt),
    reused: view.reused,
  }
}

export function pastLeaseMessage(view: LeaseView): pb.Lease {
  return leaseFields(view, undefined)
}

function recordMessage(network: string, record: AddressRecord, face: EventShown['face']): pb.Lease {
  const isHeld = record.state !== 'FREE'
  return leaseFields(
    {
      ...face,
      leaseId: leaseId(network, record.token),
      network,
      address: record.address,
      prefixLength: record.prefixLength,
      state: record.state === 'FREE' ? record.ended! : record.state,
      quarantine: record.quarantine,
      version: record.seq,
      fencingToken: record.token,
      owner: record.owner,
      node: record.node,
      labels: record.labels,
      reservedAt: record.reservedAt,
      confirmedAt: record.confirmedAt,
      confirmBy: record.confirmBy,
      endedAt: isHeld ? null : record.at,
      availableAt: record.availableAt,
      reused: false,
    },
    undefined,
  )
}

export function ownerMessage(owner: Owner, node = '', labels: Labels = {}): pb.Owner {
  return {
    $typeName: 'ipledger.v1.Owner',
    kind: owner.kind,
    name: owner.name,
    uid: owner.uid,
    incarnation: owner.incarnation,
    interface: owner.interface,
    node,
    labels,
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

/** `digest` is told where it was read with the head. */
export function networkMessage(
  at: Omit<NetworkAt, 'digest'> & { readonly digest?: string },
  recovery: Recovery | null = null,
): networkPb.Network {
  const { network } = at
  const { recovering } = network
  return {
    $typeName: 'ipledger.v1.Network',
    name: at.name,
    description: network.description,
    labels: network.labels,
    state: recovering === null ? networkPb.NetworkState.READY : networkPb.NetworkState.RECOVERING,
    era: network.era,
    head: BigInt(at.head),
    digest: at.digest ?? '',
    createdAt: timestampMessage(network.createdAt),
    updatedAt: timestampMessage(network.updatedAt),
    version: BigInt(network.version),
    holds: holdMessages(network),
    recovery:
      recovering === null || recovery === null
        ? undefined
        : {
            $typeName: 'ipledger.v1.Recovery',
            since: timestampMessage(recovering.at),
            why: recovering.why,
            sources: recovery.sources,
            unreported: [...recovery.unreported],
          },
  }
}

export function holdMessages(network: NetworkState): networkPb.Hold[] {
  return holdsOf(network).map(({ cause, at, details }) => ({
    $typeName: 'ipledger.v1.Hold',
    cause: HOLD_CAUSES[cause],
    since: timestampMessage(at),
    why: details.why,
  }))
}

/** How full it is says nothing of a pool that is gone, or another by now. */
export function poolMessage(network: string, view: PoolView, usage: Usage | null): poolPb.Pool {
  return {
    ...settingsFields(view.settings),
    network,
    id: BigInt(view.poolId),
    version: BigInt(view.version),
    createdAt: timestampMessage(view.createdAt),
    updatedAt: timestampMessage(view.updatedAt),
    usage: usage === null ? undefined : usageMessage(usage),
  }
}

export function poolUsageMessage(network: string, { pool, usage }: PoolUsage): poolPb.Pool {
  return poolMessage(network, pool, usage)
}

function settingsFields(settings: PoolSettings): poolPb.Pool {
  const { confirmWithinMs } = settings
  return {
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
    confirmWithin: confirmWithinMs === null ? undefined : durationMessage(confirmWithinMs),
    liveness: LIVENESS[settings.liveness],
    ownerLimit: settings.ownerLimit,
    isDefault: settings.isDefault,
    draining: settings.draining,
    options: optionsMessage(settings.options),
    labels: settings.labels,
    version: 0n,
    reapPolicy: reapPolicyMessage(reapPolicy(settings.reapPolicy)),
  }
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

export function eventMessage(network: string, { event, face }: EventShown): auditPb.Event {
  return {
    $typeName: 'ipledger.v1.Event',
    network,
    seq: BigInt(event.seq),
    type: event.type,
    time: timestampMessage(event.at),
    actor: event.actor,
    cause: event.cause,
    requestId: event.requestId ?? '',
    traceId: event.traceId ?? '',
    ...subjectOf(network, event, face),
  }
}

type Subject = Pick<auditPb.Event, 'lease' | 'pool' | 'networkSettings' | 'closed' | 'evidence'>

/** What it is about, in the field of its kind; what it was decided on, as evidence. */
function subjectOf(network: string, event: LedgerEvent, face: EventShown['face']): Subject {
  switch (event.type) {
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted': {
      const settings = settingsFields(event.details)
      const at = timestampMessage(event.at)
      return {
        pool: {
          ...settings,
          network,
          id: BigInt(event.poolId),
          version: BigInt(event.seq),
          createdAt: event.type === 'pool.created' ? at : undefined,
          updatedAt: at,
        },
      }
    }
    case 'network.created':
    case 'network.updated': {
      const { description, labels } = event.details
      const state =
        event.type === 'network.created'
          ? networkPb.NetworkState.READY
          : networkPb.NetworkState.NETWORK_STATE_UNSPECIFIED
      return { networkSettings: { ...bareNetwork(network, event), description, labels, state } }
    }
    case 'era.begun':
    case 'recovery.ended': {
      const isRecovering = event.type === 'era.begun' && event.details.recovering
      const state = isRecovering ? networkPb.NetworkState.RECOVERING : networkPb.NetworkState.READY
      return {
        networkSettings: { ...bareNetwork(network, event), state },
        evidence: jsonObject(event.details),
      }
    }
    case 'attachment.closed':
      return { closed: closedMessage(event) }
    case 'source.registered':
    case 'source.enabled':
    case 'source.retired':
    case 'source.reported':
    case 'reconcile.held':
    case 'reconcile.resumed':
      return { evidence: jsonObject(event.details) }
    default:
      return {
        lease: recordMessage(network, event.record, face),
        ...(event.details !== null && { evidence: jsonObject(event.details) }),
      }
  }
}

/** What an event says of its network besides the settings. */
function bareNetwork(name: string, { seq, at }: LedgerEvent): networkPb.Network {
  return {
    $typeName: 'ipledger.v1.Network',
    name,
    description: '',
    labels: {},
    state: networkPb.NetworkState.NETWORK_STATE_UNSPECIFIED,
    era: eraOf(seq),
    head: BigInt(seq),
    digest: '',
    updatedAt: timestampMessage(at),
    version: BigInt(seq),
    holds: [],
  }
}

function closedMessage({ owner, at }: ClosedEvent): auditPb.ClosedAttachment {
  return {
    $typeName: 'ipledger.v1.ClosedAttachment',
    owner: ownerMessage(owner),
    until: timestampMessage(at + POLICY.retryHorizonMs),
  }
}

export function entryMessage(network: string, { what, ...shown }: HistoryEntry): auditPb.HistoryEntry {
  return { $typeName: 'ipledger.v1.HistoryEntry', event: eventMessage(network, shown), what }
}

export function holderMessage(holder: Holder): auditPb.Holder {
  const { owner, from, until } = holder
  return {
    $typeName: 'ipledger.v1.Holder',
    leaseId: holder.leaseId,
    address: holder.address,
    prefixLength: holder.prefixLength,
    pool: holder.face.pool,
    owner: owner === null ? undefined : ownerMessage(owner, holder.node, holder.labels),
    fromSeq: BigInt(from.seq),
    fromTime: timestampMessage(from.at),
    beganAs: from.as,
    givenBy: from.actor,
    untilSeq: BigInt(until?.seq ?? 0),
    untilTime: optionalTime(until?.at ?? null),
    endedAs: until?.as ?? '',
    availableAt: optionalTime(holder.availableAt),
    states: holder.states.map(heldStateMessage),
  }
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

export function stepMessage({ seq, at, what, evidence }: Step): auditPb.ExplainStep {
  return {
    $typeName: 'ipledger.v1.ExplainStep',
    seq: BigInt(seq),
    time: timestampMessage(at),
    what,
    evidence: evidence === null ? undefined : jsonObject(evidence),
  }
}

/** Evidence is plain JSON, as google.protobuf.Struct is; only its arrays and maps are not read-only there. */
export function jsonObject(evidence: object): NonNullable<auditPb.Event['evidence']> {
  return evidence as NonNullable<auditPb.Event['evidence']>
}
