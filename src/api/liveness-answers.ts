/** What is known of sources, as the JSON of the messages of LivenessService. */
import type { SourceKind } from '../core/event.ts'
import type * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import type { Attention, SightingShown, SourceShown } from '../ledger/reads-types.ts'
import type { Reported } from '../sources/intake-types.ts'
import { leaseJson, ownerJson, type Told } from './answers.ts'
import type { Found } from './reconcile.ts'
import { durationText, optionalTime, timeText } from './times.ts'

export function sourceJson(network: string, { source, freshness }: SourceShown): Told<pb.SourceJson> {
  const { declaration, epoch } = source
  const { id, kind, node, ownerKinds, families, intervalMs, settings } = declaration
  return {
    network,
    id,
    kind: kind.toUpperCase() as Uppercase<SourceKind>,
    sight: { node, ownerKinds, families, interval: durationText(intervalMs) },
    settings: kind === 'push' ? undefined : settings,
    state: source.state,
    registeredAt: timeText(source.registeredAt),
    registeredBy: source.registeredBy,
    enabledAt: optionalTime(source.enabledAt),
    enabledBy: source.enabledBy ?? '',
    enabledSeq: String(source.enabledSeq ?? 0),
    retiredAt: optionalTime(source.retiredAt),
    epoch: epoch?.name ?? '',
    epochBegunAt: optionalTime(epoch?.at ?? null),
    warm: freshness?.warm ?? false,
    reportedAt: optionalTime(freshness?.reportedAt ?? null),
    lastSequence: String(freshness?.sequence ?? 0),
    completeAt: optionalTime(freshness?.completeAt ?? null),
    completeHead: String(freshness?.completeHead ?? 0),
    size: Math.max(0, freshness?.entries ?? 0),
    counted: String(freshness?.countedTotal ?? 0),
    partialSince: optionalTime(freshness?.partialSince ?? null),
    partialBecause: freshness?.partialBecause ?? [],
  }
}

export function sightingJson(sighting: SightingShown): Told<pb.SightingJson> {
  const { source, address, owner, node, state, vanishedSeq } = sighting
  return {
    source,
    address,
    owner: owner === null ? undefined : ownerJson(owner, node),
    state,
    listed: vanishedSeq === null,
    appearedSeq: String(sighting.appearedSeq),
    appearedAt: timeText(sighting.appearedAt),
    vanishedSeq: String(vanishedSeq ?? 0),
    vanishedAt: optionalTime(sighting.vanishedAt),
    terminalAt: optionalTime(sighting.terminalAt),
  }
}

export function reportedJson(reported: Reported): Told<pb.ReportSnapshotResponseJson> {
  const { complete, counted, because, resend, digest, unreadable, verifications, next } = reported
  return {
    complete,
    counted,
    because,
    resend,
    digest,
    unreadable,
    verifications: verifications.map(({ id, owner, node, address, leaseId }) => ({
      id,
      owner: ownerJson(owner, node),
      address,
      leaseId,
    })),
    nextSequence: String(next.sequence),
    nextHead: String(next.head),
    nextBegunAt: timeText(next.begunAt),
  }
}

export function findingJson({ lease, verdict, because, evidence }: Found): Told<pb.FindingJson> {
  return { address: lease.address, lease: leaseJson(lease), verdict, because, evidence }
}

export function attentionJson({ since, ...item }: Attention): Told<pb.AttentionJson> {
  return { ...item, since: timeText(since) }
}
