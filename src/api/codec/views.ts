/** Views: what the ledger has, under the names of the messages' fields; `encode-response.ts` writes them as JSON. */
import { type Recovery, sourceStatus } from '../../core/attention.ts'
import { viewOf } from '../../core/batch.ts'
import type { LeaseView, PoolView } from '../../core/command.ts'
import { type AddressRecord, type LedgerEvent, leaseId } from '../../core/event.ts'
import type { NetworkState } from '../../core/image.ts'
import type { Labels, Owner } from '../../core/owner.ts'
import { eraOf, POLICY, reapPolicy } from '../../core/policy.ts'
import type * as auditPb from '../../gen/ipledger/v1/audit_pb.ts'
import type * as livenessPb from '../../gen/ipledger/v1/liveness_pb.ts'
import type * as networkPb from '../../gen/ipledger/v1/network_pb.ts'
import type * as poolPb from '../../gen/ipledger/v1/pool_pb.ts'
import type * as pb from '../../gen/ipledger/v1/types_pb.ts'
import type { EventRead, Holder, PoolInfo } from '../../ledger/read-log.ts'
import type { NetworkAt, Usage } from '../../ledger/read-pools.ts'
import type { SightingRead, SourceRead } from '../../ledger/read-sources.ts'
import type { Verification } from '../../sources/report.ts'
import type { View } from './encode-response.ts'

type LeaseMessage = View<pb.Lease>

export function leaseView(view: LeaseView): LeaseMessage {
  const { owner, node, labels, quarantine, state } = view
  return {
    ...view,
    state: state === 'RELEASED' || state === 'REAPED' ? 'ENDED' : state,
    owner: owner && { ...owner, node, labels },
    quarantine: quarantine && { ...quarantine, since: quarantine.at },
  }
}

/** Of a lease as it was: without the options of its pool, which are of now. */
export function pastLeaseView(view: LeaseView): LeaseMessage {
  return { ...leaseView(view), options: null }
}

function ownerView(owner: Owner, node = '', labels: Labels = {}): View<pb.Owner> {
  return { ...owner, node, labels }
}

/** Sources that a recovery waits for. */
const MOST_NAMED = 20

/** `digest`: where it was read with the head. */
export function networkView(
  { name, network, head, digest }: Omit<NetworkAt, 'digest'> & { readonly digest?: string },
  recovery: Recovery | null = null,
): View<networkPb.Network> {
  const { recovering } = network
  return {
    ...network,
    name,
    head,
    digest,
    state: recovering === null ? 'READY' : 'RECOVERING',
    holds: holdsView(network),
    recovery: recovering &&
      recovery && {
        ...recovery,
        unreported: recovery.unreported.toSorted().slice(0, MOST_NAMED),
        unknown: recovery.unknown.toSorted(),
        since: recovering.at,
        why: recovering.why,
      },
  }
}

export function holdsView(network: NetworkState): readonly View<networkPb.Hold>[] {
  return Object.entries(network.holds)
    .map(([cause, { at, details }]) => ({ cause, since: at, why: details.why }))
    .sort((a, b) => a.since - b.since)
}

export function usageView(usage: Usage): View<poolPb.PoolUsage> {
  return { ...usage, excluded: usage.size - usage.allocatable }
}

/** `usage` is null of a pool that is gone, or has changed since. */
export function poolView(
  network: string,
  view: Omit<PoolView, 'createdAt'> & { readonly createdAt: number | null },
  usage: Usage | null,
): View<poolPb.Pool> {
  const { settings } = view
  return {
    ...view,
    ...settings,
    nodeLimit: settings.nodeLimit ?? 0,
    network,
    id: view.poolId,
    usage: usage && usageView(usage),
    reapPolicy: reapPolicy(settings.reapPolicy),
  }
}

export function sourceView(
  network: string,
  { source, freshness, failure, failingSince, era }: Omit<SourceRead, 'era'> & { readonly era?: number },
  now: number,
): View<livenessPb.Source> {
  const { declaration, epoch } = source
  return {
    ...declaration,
    ...source,
    network,
    kind: declaration.kind.toUpperCase(),
    sight: declaration,
    settings: declaration.kind === 'push' ? null : declaration.settings,
    epoch: epoch?.name,
    epochBegunAt: epoch?.at,
    status: era === undefined ? undefined : sourceStatus(source, freshness ?? undefined, { era, now }),
    reportedAt: freshness?.reportedAt,
    lastSequence: freshness?.sequence,
    completeAt: freshness?.completeAt,
    completeHead: freshness?.completeHead,
    size: Math.max(0, freshness?.entries ?? 0),
    counted: freshness?.countedTotal,
    partialSince: freshness?.partialSince,
    partialBecause: freshness?.partialBecause,
    failingSince,
    failure,
  }
}

export function sightingView(sighting: SightingRead): View<livenessPb.Sighting> {
  const { owner, node, vanishedSeq } = sighting
  return { ...sighting, owner: owner && ownerView(owner, node), listed: vanishedSeq === null }
}

export function verificationView({ owner, node, ...question }: Verification): View<livenessPb.Verification> {
  return { ...question, owner: ownerView(owner, node) }
}

export function eventView(network: string, { event, poolInfo }: EventRead): View<auditPb.Event> {
  return { ...NO_SUBJECT, ...event, network, time: event.at, ...subjectOf(network, event, poolInfo) }
}

const NO_SUBJECT = { lease: null, pool: null, networkSettings: null, closed: null, evidence: null }
type Subject = Partial<Pick<View<auditPb.Event>, keyof typeof NO_SUBJECT>>

function subjectOf(network: string, event: LedgerEvent, pool: PoolInfo): Subject {
  const { seq, at } = event
  if ('record' in event) return { lease: recordView(network, event.record, pool), evidence: event.details }
  switch (event.type) {
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted': {
      const { type, poolId, details: settings } = event
      const createdAt = type === 'pool.created' ? at : null
      return { pool: poolView(network, { poolId, version: seq, createdAt, updatedAt: at, settings }, null) }
    }
    case 'network.created':
    case 'network.updated': {
      const state = event.type === 'network.created' ? 'READY' : null
      return { networkSettings: { ...bareNetwork(network, event, state), ...event.details } }
    }
    case 'era.begun':
    case 'recovery.extended':
    case 'recovery.ended': {
      const isRecovering =
        event.type === 'recovery.extended' || (event.type === 'era.begun' && event.details.recovering)
      return {
        networkSettings: bareNetwork(network, event, isRecovering ? 'RECOVERING' : 'READY'),
        evidence: event.details,
      }
    }
    case 'attachment.closed':
      return { closed: { owner: ownerView(event.owner), until: at + POLICY.retryHorizonMs } }
    default:
      return { evidence: event.details }
  }
}

export function recordView(name: string, record: AddressRecord, poolInfo: PoolInfo): LeaseMessage {
  return pastLeaseView({ ...viewOf({ name, pools: new Map() }, record), ...poolInfo })
}

/** A network without its settings. */
function bareNetwork(name: string, { seq, at }: LedgerEvent, state: string | null) {
  return { name, state, era: eraOf(seq), head: seq, updatedAt: at, version: seq } as View<networkPb.Network>
}

export function holderView(network: string, { first, last, pool }: Holder): View<auditPb.Holder> {
  const { address, prefixLength, token, owner, node, labels } = first.record
  const isOver = last.record.state === 'FREE'
  return {
    leaseId: leaseId(network, token),
    address,
    prefixLength,
    pool,
    owner: owner && ownerView(owner, node, labels),
    fromSeq: first.seq,
    fromTime: first.at,
    beganAs: `${first.type}/${first.cause}`,
    givenBy: first.actor,
    untilSeq: isOver ? last.seq : undefined,
    untilTime: isOver ? last.at : undefined,
    endedAs: isOver ? `${last.type}/${last.cause}` : undefined,
    availableAt: last.record.availableAt,
  }
}
