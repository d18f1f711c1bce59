/** What is known of sources, as the messages of LivenessService. */
import type * as pb from '../gen/ipledger/v1/liveness_pb.ts'
import type { Attention, SightingShown, SourceShown } from '../ledger/reads-types.ts'
import type { Begun, Reported, Verification } from '../sources/intake-types.ts'
import { jsonObject, leaseMessage, ownerMessage } from './answers.ts'
import { KINDS, STATES } from './liveness-requests.ts'
import type { Found } from './reconcile.ts'
import { durationMessage, optionalTime, timestampMessage } from './times.ts'

export function sourceMessage(network: string, { source, freshness }: SourceShown): pb.Source {
  const { declaration, epoch } = source
  return {
    $typeName: 'ipledger.v1.Source',
    network,
    id: declaration.id,
    kind: KINDS[declaration.kind],
    sight: {
      $typeName: 'ipledger.v1.SourceSight',
      node: declaration.node,
      ownerKinds: [...declaration.ownerKinds],
      families: [...declaration.families],
      interval: durationMessage(declaration.intervalMs),
    },
    settings: declaration.kind === 'push' ? undefined : jsonObject(declaration.settings),
    state: STATES[source.state],
    registeredAt: timestampMessage(source.registeredAt),
    registeredBy: source.registeredBy,
    enabledAt: optionalTime(source.enabledAt),
    enabledBy: source.enabledBy ?? '',
    enabledSeq: BigInt(source.enabledSeq ?? 0),
    retiredAt: optionalTime(source.retiredAt),
    epoch: epoch?.name ?? '',
    epochBegunAt: optionalTime(epoch?.at ?? null),
    warm: freshness?.warm ?? false,
    reportedAt: optionalTime(freshness?.reportedAt ?? null),
    lastSequence: BigInt(freshness?.sequence ?? 0),
    completeAt: optionalTime(freshness?.completeAt ?? null),
    completeHead: BigInt(freshness?.completeHead ?? 0),
    size: Math.max(0, freshness?.entries ?? 0),
    counted: BigInt(freshness?.countedTotal ?? 0),
    partialSince: optionalTime(freshness?.partialSince ?? null),
    partialBecause: [...(freshness?.partialBecause ?? [])],
  }
}

export function sightingMessage(sighting: SightingShown): pb.Sighting {
  const { owner, vanishedSeq } = sighting
  return {
    $typeName: 'ipledger.v1.Sighting',
    source: sighting.source,
    address: sighting.address,
    owner: owner === null ? undefined : ownerMessage(owner, sighting.node),
    state: sighting.state,
    listed: vanishedSeq === null,
    appearedSeq: BigInt(sighting.appearedSeq),
    appearedAt: timestampMessage(sighting.appearedAt),
    vanishedSeq: BigInt(vanishedSeq ?? 0),
    vanishedAt: optionalTime(sighting.vanishedAt),
    terminalAt: optionalTime(sighting.terminalAt),
  }
}

export function begunMessage(begun: Begun): pb.BeginSnapshotResponse {
  return {
    $typeName: 'ipledger.v1.BeginSnapshotResponse',
    sequence: BigInt(begun.sequence),
    head: BigInt(begun.head),
    begunAt: timestampMessage(begun.begunAt),
    era: begun.era,
    interval: durationMessage(begun.intervalMs),
  }
}

export function reportedMessage(reported: Reported): pb.ReportSnapshotResponse {
  const { next } = reported
  return {
    $typeName: 'ipledger.v1.ReportSnapshotResponse',
    complete: reported.complete,
    counted: reported.counted,
    because: [...reported.because],
    resend: reported.resend,
    digest: reported.digest,
    unreadable: reported.unreadable,
    verifications: reported.verifications.map(verificationMessage),
    nextSequence: BigInt(next.sequence),
    nextHead: BigInt(next.head),
    nextBegunAt: timestampMessage(next.begunAt),
  }
}

function verificationMessage(asked: Verification): pb.Verification {
  const { id, owner, node, address, leaseId } = asked
  return {
    $typeName: 'ipledger.v1.Verification',
    id,
    owner: ownerMessage(owner, node),
    address,
    leaseId,
  }
}

export function findingMessage({ lease, verdict, because, evidence }: Found): pb.Finding {
  return {
    $typeName: 'ipledger.v1.Finding',
    address: lease.address,
    lease: leaseMessage(lease),
    verdict,
    because: because.map((reason) => ({ $typeName: 'ipledger.v1.FindingReason', ...reason })),
    evidence: jsonObject(evidence),
  }
}

export function attentionMessage(item: Attention): pb.Attention {
  const { code, source, address, leaseId, text } = item
  return {
    $typeName: 'ipledger.v1.Attention',
    code,
    since: timestampMessage(item.since),
    source,
    address,
    leaseId,
    text,
  }
}
