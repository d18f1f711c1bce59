/**
 * From what the house knows to what callers get: the JSON of the messages, every field mentioned, `undefined` where it is
 * absent. Most callers get it as it is, so that no message is made for them.
 */
import type { LeaseView, PoolView } from '../core/command.ts'
import { type AddressRecord, type Details, type LedgerEvent, leaseId } from '../core/event.ts'
import type { NetworkState } from '../core/image.ts'
import type { Labels, Owner } from '../core/owner.ts'
import { eraOf, POLICY, type ReapPolicy, reapPolicy } from '../core/policy.ts'
import type { PoolSettings } from '../core/pool.ts'
import type * as auditPb from '../gen/ipledger/v1/audit_pb.ts'
import type * as networkPb from '../gen/ipledger/v1/network_pb.ts'
import type * as poolPb from '../gen/ipledger/v1/pool_pb.ts'
import type * as pb from '../gen/ipledger/v1/types_pb.ts'
import {
  type EventShown,
  type HistoryEntry,
  type Holder,
  holdsOf,
  type NetworkAt,
  type PoolUsage,
  type Recovery,
  type Usage,
} from '../ledger/reads-types.ts'
import { durationText, optionalTime, timeText } from './times.ts'

/** The JSON of a message, with every field mentioned. */
export type Told<T> = T extends readonly (infer I)[]
  ? readonly Told<I>[]
  : T extends object
    ? { readonly [K in keyof T]-?: Told<T[K]> | undefined }
    : T

export type ToldLease = Told<pb.LeaseJson>

export function leaseJson(view: LeaseView): ToldLease {
  return leaseFields(view, view.options)
}

/** The pool's options are not repeated where a lease is shown as it was. */
export function pastLeaseJson(view: LeaseView): ToldLease {
  return leaseFields(view, undefined)
}

function leaseFields(
  view: Omit<LeaseView, 'options' | 'poolId'>,
  options: LeaseView['options'] | undefined,
): ToldLease {
  const { owner, quarantine, state } = view
  return {
    leaseId: view.leaseId,
    network: view.network,
    pool: view.pool,
    address: view.address,
    prefixLength: view.prefixLength,
    subnet: view.subnet,
    gateway: view.gateway,
    options,
    state: state === 'RELEASED' || state === 'REAPED' ? 'ENDED' : state,
    version: String(view.version),
    fencingToken: String(view.fencingToken),
    owner: owner === null ? undefined : ownerJson(owner, view.node, view.labels),
    reservedAt: timeText(view.reservedAt),
    confirmBy: optionalTime(view.confirmBy),
    confirmedAt: optionalTime(view.confirmedAt),
    quarantine:
      quarantine === null
        ? undefined
        : {
            reason: quarantine.reason,
            since: timeText(quarantine.at),
            by: quarantine.by,
            why: quarantine.why,
          },
    endedAt: optionalTime(view.endedAt),
    availableAt: optionalTime(view.availableAt),
    reused: view.reused,
  }
}

export function ownerJson(owner: Owner, node = '', labels: Labels = {}): Told<pb.OwnerJson> {
  const { kind, name, uid, incarnation } = owner
  return { kind, name, uid, incarnation, interface: owner.interface, node, labels }
}

/** `digest` is told where it was read with the head. */
export function networkJson(
  { name, network, head, digest = '' }: Omit<NetworkAt, 'digest'> & { readonly digest?: string },
  recovery: Recovery | null = null,
): Told<networkPb.NetworkJson> {
  const { recovering } = network
  return {
    name,
    description: network.description,
    labels: network.labels,
    state: recovering === null ? 'READY' : 'RECOVERING',
    era: network.era,
    head: String(head),
    digest,
    createdAt: timeText(network.createdAt),
    updatedAt: timeText(network.updatedAt),
    version: String(network.version),
    holds: holdsJson(network),
    recovery:
      recovering === null || recovery === null
        ? undefined
        : { since: timeText(recovering.at), why: recovering.why, ...recovery },
  }
}

export function holdsJson(network: NetworkState): readonly Told<networkPb.HoldJson>[] {
  return holdsOf(network).map(({ cause, at, details }) => ({
    cause,
    since: timeText(at),
    why: details.why,
  }))
}

export function poolUsageJson(network: string, { pool, usage }: PoolUsage): Told<poolPb.PoolJson> {
  return poolJson(network, pool, usage)
}

/** How full it is says nothing of a pool that is gone, or another by now. */
export function poolJson(
  network: string,
  view: Omit<PoolView, 'createdAt'> & { readonly createdAt: number | null },
  usage: Usage | null,
): Told<poolPb.PoolJson> {
  const { settings } = view
  const { confirmWithinMs } = settings
  return {
    network,
    name: settings.name,
    id: String(view.poolId),
    cidr: settings.cidr,
    subnet: settings.subnet,
    prefixLength: settings.prefixLength,
    gateway: settings.gateway,
    exclude: settings.exclude,
    cooldown: durationText(settings.cooldownMs),
    confirmWithin: confirmWithinMs === null ? undefined : durationText(confirmWithinMs),
    liveness: settings.liveness,
    ownerLimit: settings.ownerLimit,
    default: settings.isDefault,
    draining: settings.draining,
    options: settings.options,
    labels: settings.labels,
    version: String(view.version),
    createdAt: optionalTime(view.createdAt),
    updatedAt: timeText(view.updatedAt),
    usage: usage === null ? undefined : usageJson(usage),
    reapPolicy: reapPolicyJson(reapPolicy(settings.reapPolicy)),
  }
}

function reapPolicyJson(policy: ReapPolicy): Told<poolPb.ReapPolicyJson> {
  return {
    misses: policy.misses,
    minimumAge: durationText(policy.minimumAgeMs),
    unwitnessedAge: durationText(policy.unwitnessedAgeMs),
    terminalGrace: durationText(policy.terminalGraceMs),
    confirmGrace: durationText(policy.confirmGraceMs),
  }
}

function usageJson(usage: Usage): Told<poolPb.PoolUsageJson> {
  return {
    size: String(usage.size),
    allocatable: String(usage.allocatable),
    free: String(usage.free),
    cooling: String(usage.cooling),
    reserved: String(usage.reserved),
    active: String(usage.active),
    quarantined: String(usage.quarantined),
    excluded: String(usage.size - usage.allocatable),
  }
}

// What happened.

export function eventJson(network: string, { event, face }: EventShown): Told<auditPb.EventJson> {
  return {
    network,
    seq: String(event.seq),
    type: event.type,
    time: timeText(event.at),
    actor: event.actor,
    cause: event.cause,
    requestId: event.requestId ?? '',
    traceId: event.traceId ?? '',
    ...NO_SUBJECT,
    ...subjectOf(network, event, face),
  }
}

const NO_SUBJECT = {
  lease: undefined,
  pool: undefined,
  networkSettings: undefined,
  closed: undefined,
  evidence: undefined,
}
type Subject = Partial<Pick<Told<auditPb.EventJson>, keyof typeof NO_SUBJECT>>

/** What it is about, in the field of its kind; what it was decided on, as evidence. */
function subjectOf(network: string, event: LedgerEvent, face: EventShown['face']): Subject {
  const { seq, at } = event
  switch (event.type) {
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted': {
      const createdAt = event.type === 'pool.created' ? at : null
      const settings: PoolSettings = event.details
      return {
        pool: poolJson(
          network,
          { poolId: event.poolId, version: seq, createdAt, updatedAt: at, settings },
          null,
        ),
      }
    }
    case 'network.created':
      return { networkSettings: bareNetwork(network, event, 'READY', event.details) }
    case 'network.updated':
      return {
        networkSettings: bareNetwork(network, event, 'NETWORK_STATE_UNSPECIFIED', event.details),
      }
    case 'era.begun':
    case 'recovery.ended': {
      const isRecovering = event.type === 'era.begun' && event.details.recovering
      return {
        networkSettings: bareNetwork(network, event, isRecovering ? 'RECOVERING' : 'READY'),
        evidence: event.details,
      }
    }
    case 'attachment.closed':
      return { closed: { owner: ownerJson(event.owner), until: timeText(at + POLICY.retryHorizonMs) } }
    case 'source.registered':
    case 'source.enabled':
    case 'source.retired':
    case 'source.reported':
    case 'reconcile.held':
    case 'reconcile.resumed':
      return { evidence: event.details as unknown as Details }
    default:
      return { lease: recordJson(network, event.record, face), evidence: event.details ?? undefined }
  }
}

function recordJson(network: string, record: AddressRecord, face: EventShown['face']): ToldLease {
  return leaseFields(
    {
      ...record,
      ...face,
      leaseId: leaseId(network, record.token),
      network,
      state: record.state === 'FREE' ? record.ended! : record.state,
      version: record.seq,
      fencingToken: record.token,
      endedAt: record.state === 'FREE' ? record.at : null,
      reused: false,
    },
    undefined,
  )
}

/** What an event says of its network besides the settings. */
function bareNetwork(
  name: string,
  { seq, at }: LedgerEvent,
  state: networkPb.NetworkStateJson,
  { description, labels }: { description: string; labels: Labels } = { description: '', labels: {} },
): Told<networkPb.NetworkJson> {
  return {
    name,
    description,
    labels,
    state,
    era: eraOf(seq),
    head: String(seq),
    digest: '',
    createdAt: undefined,
    updatedAt: timeText(at),
    version: String(seq),
    holds: [],
    recovery: undefined,
  }
}

export function entryJson(network: string, { what, ...shown }: HistoryEntry): Told<auditPb.HistoryEntryJson> {
  return { event: eventJson(network, shown), what }
}

export function holderJson(holder: Holder): Told<auditPb.HolderJson> {
  const { owner, from, until } = holder
  return {
    leaseId: holder.leaseId,
    address: holder.address,
    prefixLength: holder.prefixLength,
    pool: holder.face.pool,
    owner: owner === null ? undefined : ownerJson(owner, holder.node, holder.labels),
    fromSeq: String(from.seq),
    fromTime: timeText(from.at),
    beganAs: from.as,
    givenBy: from.actor,
    untilSeq: String(until?.seq ?? 0),
    untilTime: optionalTime(until?.at ?? null),
    endedAs: until?.as ?? '',
    availableAt: optionalTime(holder.availableAt),
    states: holder.states.map(({ state, reason, seq, at }) => ({
      state,
      quarantineReason: reason ?? 'QUARANTINE_REASON_UNSPECIFIED',
      seq: String(seq),
      time: timeText(at),
    })),
  }
}
