/** Commands that change a network: its settings, eras, recovery and holds. */
import { isDeepStrictEqual } from 'node:util'
import { recoveryEnd } from './attention.ts'
import { type Batch, emit } from './batch.ts'
import type { Answer, Command } from './command.ts'
import { expiresAt } from './decide-lease.ts'
import type { HoldCause } from './event.ts'
import type { Image } from './image.ts'
import { eraOf, firstSeqOfEra, LAST_ERA } from './policy.ts'
import { atVersion, existsOtherwise, type Refusal, refusal } from './refusal.ts'

export function decideCreateNetwork(batch: Batch, command: Command<'createNetwork'>): Answer | Refusal {
  const { image, known } = batch
  if (image.network !== null) {
    const { description, labels } = image.network
    return (
      existsOtherwise(`network ${image.name}`, { description, labels }, command.settings) ??
      networkAnswer(image)
    )
  }
  const details = { ...command.settings, closed: false, identity: known.identity }
  emit(batch, command, { type: 'network.created', details })
  return networkAnswer(image)
}

export function decideUpdateNetwork(batch: Batch, command: Command<'updateNetwork'>): Answer | Refusal {
  const { image } = batch
  const { version, description, labels, closed, identity } = image.network!
  const bad = atVersion(`network ${image.name}`, version, command.version, { network: image.name })
  if (bad !== null) return bad
  const before = { description, labels, closed, identity }
  const details = {
    description: command.description ?? description,
    labels: command.labels ?? labels,
    closed: command.closed ?? closed,
    identity: command.identity ?? identity,
  }
  if (!isDeepStrictEqual(details, before)) emit(batch, command, { type: 'network.updated', details })
  return networkAnswer(image)
}

export function decideEndRecovery(batch: Batch, command: Command<'endRecovery'>): Answer {
  if (batch.image.network!.recovering !== null)
    emit(batch, command, { type: 'recovery.ended', details: { why: command.why } })
  return networkAnswer(batch.image)
}

/**
 * The log is an older copy of itself, or its end is missing: all later numbers are above any that was known.
 * Several processes may find out at the same time: the era that has begun is begun.
 */
export function decideBeginEra(batch: Batch, command: Command<'beginEra'>): Answer | Refusal {
  const { image, known } = batch
  const { above, recovering, why } = command
  const { era: before, holds } = image.network!
  // A leaked secret of proofs can prove any number. One of the last era must not end the network.
  const proven = eraOf(holds.SOURCE_AHEAD?.details.number ?? 0)
  const era = Math.max(before, eraOf(above), proven < LAST_ERA ? proven : 0) + 1
  if (era > LAST_ERA) {
    const message = `era ${era} would be beyond ${LAST_ERA}, the last one that numbers can hold`
    return refusal('ILLEGAL_STATE', message)
  }
  const details = { era, recovering, identity: known.identity, after: image.head, why }
  emit(batch, command, { type: 'era.begun', details }, firstSeqOfEra(era))
  return decideResumeHold(batch, { ...command, type: 'resumeHold', hold: 'SOURCE_AHEAD' })
}

export function decideHold(batch: Batch, command: Command<'hold'>): Answer {
  const { image, now } = batch
  const { hold, why, stepMs } = command
  const before = image.network!.holds[hold]?.details.before ?? now - (stepMs ?? 0)
  const details =
    stepMs === undefined
      ? { hold, why }
      : { hold, why, before, until: now + Math.max(stepMs, longestWait(batch, before)) }
  emit(batch, command, { type: 'reconcile.held', details })
  return networkAnswer(image)
}

/** A wait that is longer than the step was cut short by the step: the hold lasts until the longest is over by the true time. */
function longestWait(batch: Batch, since: number): number {
  let end = Math.max(since, recoveryEnd(batch.image))
  for (const record of batch.image.records.values())
    end = Math.max(end, record.availableAt ?? expiresAt(batch, record) ?? since)
  for (const sightings of batch.image.sightings.values())
    for (const { restsUntil } of sightings) end = Math.max(end, restsUntil ?? since)
  return end - since
}

export function decideResumeHold(batch: Batch, command: Command<'resumeHold'>): Answer {
  const { image } = batch
  const holds = (Object.keys(image.network!.holds) as HoldCause[]).filter(
    (hold) => command.hold === null || command.hold === hold,
  )
  if (holds.length > 0)
    emit(batch, command, { type: 'reconcile.resumed', details: { holds, why: command.why } })
  return networkAnswer(image)
}

function networkAnswer({ name, network, head }: Image): Answer {
  return { leases: [], network: { name, network: network!, head } }
}
