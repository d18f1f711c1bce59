/** What the liveness room knows, as the messages of LivenessService. */
import type { Hold } from '../core/books.ts'
import type { Json } from '../core/event.ts'
import { type Lease, leaseId } from '../core/lease.ts'
import type { Pool } from '../core/pool.ts'
import * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import { showLease } from '../ledger/read-leases.ts'
import type { SightingKept, SnapshotKept, SourceListed } from '../liveness/lists.ts'
import type { PlannedFinding } from '../liveness/plan.ts'
import type { Ask, Awaiting, Beginning, Reported, VerdictsTaken } from '../liveness/report.ts'
import type { SourceKind, SourceState } from '../liveness/source.ts'
import type { StuckItem } from '../liveness/stuck.ts'
import { jsonObject, leaseMessage, ownerMessage } from './answers.ts'
import { durationMessage, timestampMessage } from './times.ts'

const KINDS: Readonly<Record<SourceKind, pb.SourceKind>> = {
  push: pb.SourceKind.PUSH,
  docker: pb.SourceKind.DOCKER,
  kubernetes: pb.SourceKind.KUBERNETES,
  http: pb.SourceKind.HTTP,
}

const STATES: Readonly<Record<SourceState, pb.SourceState>> = {
  REGISTERED: pb.SourceState.REGISTERED,
  ENABLED: pb.SourceState.ENABLED,
  RETIRED: pb.SourceState.RETIRED,
}

export function sourceMessage(source: SourceListed): pb.Source {
  const { standing, settings, enabledAt, retiredAt } = source
  const { epochBegunAt, reportedAt, complete, partialSince } = standing
  const message: pb.Source = {
    $typeName: 'ipledger.v1.Source',
    network: source.network,
    id: source.id,
    kind: KINDS[source.kind],
    sight: {
      $typeName: 'ipledger.v1.SourceSight',
      node: source.node,
      ownerKinds: [...source.ownerKinds],
      families: [...source.families],
      seesStopped: source.seesStopped,
      bootEndsAll: source.bootEndsAll,
      interval: durationMessage(source.intervalMs),
    },
    state: STATES[source.state],
    registeredAt: timestampMessage(source.registeredAt),
    registeredBy: source.registeredBy,
    enabledBy: source.enabledBy ?? '',
    enabledHead: BigInt(source.enabledHead ?? 0),
    epoch: standing.epoch,
    warm: standing.warm,
    lastSequence: BigInt(standing.lastSequence),
    completeHead: BigInt(complete?.head ?? 0),
    size: standing.size,
    counted: BigInt(standing.counted),
    streak: BigInt(standing.counted - standing.streakFrom),
    partialBecause: [...standing.partialBecause],
    held: source.held,
  }
  if (source.kind !== 'push') message.settings = jsonObject(settings as { readonly [key: string]: Json })
  if (enabledAt !== null) message.enabledAt = timestampMessage(enabledAt)
  if (epochBegunAt !== null) message.epochBegunAt = timestampMessage(epochBegunAt)
  if (reportedAt !== null) message.reportedAt = timestampMessage(reportedAt)
  if (complete !== null) message.completeAt = timestampMessage(complete.begunAt)
  if (partialSince !== null) message.partialSince = timestampMessage(partialSince)
  if (retiredAt !== null) message.retiredAt = timestampMessage(retiredAt)
  return message
}

export function snapshotMessage(snapshot: SnapshotKept): pb.Snapshot {
  const { begunAt } = snapshot
  const message: pb.Snapshot = {
    $typeName: 'ipledger.v1.Snapshot',
    source: snapshot.source,
    sequence: BigInt(snapshot.sequence),
    epoch: snapshot.epoch,
    era: snapshot.era,
    head: BigInt(snapshot.head),
    reportedAt: timestampMessage(snapshot.reportedAt),
    complete: snapshot.complete,
    counted: snapshot.counted,
    because: [...snapshot.because],
    entries: snapshot.entries,
    unreadable: snapshot.unreadable,
    ignored: snapshot.ignored,
    appeared: snapshot.appeared,
    vanished: snapshot.vanished,
  }
  if (begunAt !== null) message.begunAt = timestampMessage(begunAt)
  return message
}

export function sightingMessage(sighting: SightingKept): pb.Sighting {
  const { owner, node, boot, vanished } = sighting
  const message: pb.Sighting = {
    $typeName: 'ipledger.v1.Sighting',
    source: sighting.source,
    address: sighting.address,
    state: sighting.state,
    listed: vanished === null,
    appearedSequence: BigInt(sighting.appearedSequence),
    appearedAt: timestampMessage(sighting.appearedAt),
    vanishedSequence: BigInt(vanished?.sequence ?? 0),
  }
  if (owner !== null) message.owner = ownerMessage(owner, { node, boot, labels: {} })
  if (vanished !== null) message.vanishedAt = timestampMessage(vanished.at)
  return message
}

export function begunMessage({ begun, token, expiresAt, source }: Beginning): pb.BeginSnapshotResponse {
  return {
    $typeName: 'ipledger.v1.BeginSnapshotResponse',
    token,
    expiresAt: timestampMessage(expiresAt),
    sequence: BigInt(begun.sequence),
    era: begun.era,
    head: BigInt(begun.head),
    interval: durationMessage(source.intervalMs),
  }
}

export function reportedMessage(reported: Reported): pb.ReportSnapshotResponse {
  const { source, assessment, ground, asks, next } = reported
  const message: pb.ReportSnapshotResponse = {
    $typeName: 'ipledger.v1.ReportSnapshotResponse',
    sequence: BigInt(reported.sequence),
    complete: assessment.complete,
    counted: assessment.counted,
    because: assessment.uncounted === null ? [...assessment.because] : [assessment.uncounted],
    staged: false,
    resend: false,
    digest: reported.digest,
    unreadable: reported.unreadable,
    verifications: asks.map((ask) => verificationMessage(ask, source.network)),
    era: ground.era,
    head: BigInt(ground.head),
    nextToken: next?.token ?? '',
  }
  if (next !== null) message.nextExpiresAt = timestampMessage(next.expiresAt)
  return message
}

function verificationMessage(ask: Ask, network: string): pb.Verification {
  const { id, owner, address, node, fencingToken } = ask
  return {
    $typeName: 'ipledger.v1.Verification',
    id,
    owner: ownerMessage(owner, { node, boot: '', labels: {} }),
    address,
    leaseId: leaseId(network, fencingToken),
  }
}

/** Nothing of it was taken yet. */
export function awaitingMessage({ is, ground }: Awaiting): pb.ReportSnapshotResponse {
  return {
    $typeName: 'ipledger.v1.ReportSnapshotResponse',
    sequence: 0n,
    complete: false,
    counted: false,
    because: [],
    staged: is === 'staged',
    resend: is === 'resend',
    digest: '',
    unreadable: 0,
    verifications: [],
    era: ground.era,
    head: BigInt(ground.head),
    nextToken: '',
  }
}

export function verdictsMessage({ accepted, ignored, ground }: VerdictsTaken): pb.ReportVerdictsResponse {
  return {
    $typeName: 'ipledger.v1.ReportVerdictsResponse',
    accepted,
    ignored,
    era: ground.era,
    head: BigInt(ground.head),
  }
}

export function findingMessage(finding: PlannedFinding): pb.Finding {
  const { address, lease, pool, verdict, because, evidence } = finding
  const message: pb.Finding = {
    $typeName: 'ipledger.v1.Finding',
    address,
    verdict,
    because: because.map(({ code, source = '', text }) => ({
      $typeName: 'ipledger.v1.FindingReason',
      code,
      source,
      text,
    })),
  }
  if (lease !== null) message.lease = heldMessage(lease, pool)
  if (isObject(evidence)) message.evidence = jsonObject(evidence)
  return message
}

function isObject(evidence: Json): evidence is { readonly [key: string]: Json } {
  return typeof evidence === 'object' && evidence !== null && !Array.isArray(evidence)
}

export function holdMessage(network: string, hold: Hold): pb.Hold {
  return {
    $typeName: 'ipledger.v1.Hold',
    network,
    source: hold.source,
    seq: BigInt(hold.seq),
    since: timestampMessage(hold.at),
    why: hold.why,
    reaps: hold.reaps,
    leases: BigInt(hold.leases),
  }
}

export function stuckMessage({ code, since, source, lease, pool, text }: StuckItem): pb.Stuck {
  const message: pb.Stuck = {
    $typeName: 'ipledger.v1.Stuck',
    code,
    since: timestampMessage(since),
    source,
    text,
  }
  if (lease !== null) message.lease = heldMessage(lease, pool)
  return message
}

const NO_POOL = { pool: '', subnet: '', gateway: '', options: { routes: [], dns: [], mtu: 0 } }

function heldMessage(lease: Lease, pool: Pool | null): NonNullable<pb.Stuck['lease']> {
  if (pool === null) return leaseMessage(showLease(lease, NO_POOL))
  const { name, subnet, gateway, options } = pool
  return leaseMessage(showLease(lease, { pool: name, subnet, gateway, options }))
}
