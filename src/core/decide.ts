/**
 * What a command does to a network: the events that it leaves, and its answer or why it is refused. Deterministic: its input is
 * the image, what the loop read for it (`Known`), and the ledger's clock. Events are applied as they are made, so the next
 * command of the batch sees them; a refused command is rolled back and leaves only the quarantine of what its caller sees
 * live.
 */
import type { Batch } from './batch.ts'
import { type Answer, type Command, requestName } from './command.ts'
import * as lease from './decide-lease.ts'
import * as network from './decide-network.ts'
import * as pool from './decide-pool.ts'
import * as report from './decide-report.ts'
import { decideReserve, quarantineSeen } from './decide-reserve.ts'
import { isPlacedFor } from './guards.ts'
import { type Image, isHeld, rollback } from './image.ts'
import { networkNotFound, type Refusal, refusal } from './refusal.ts'

export type Outcome =
  | { readonly ok: true; readonly answer: Answer; readonly replayed: boolean }
  | { readonly ok: false; readonly refusal: Refusal }

export function decide(batch: Batch, command: Command): Outcome {
  const { image } = batch
  if (image.network === null && command.type !== 'createNetwork')
    return refuse(networkNotFound(command.network))
  const replay = replayed(batch, command)
  if (replay !== null) return replay
  const marks = { journal: image.journal!.length, events: batch.events.length }
  const undo = () => {
    rollback(image, marks.journal)
    batch.events.length = marks.events
  }
  const result = decideOne(batch, command)
  if ('reason' in result) {
    const undone = batch.events.slice(marks.events)
    undo()
    if (command.type === 'reserve') quarantineSeen(batch, command, undone)
    return refuse(result)
  }
  if (command.type === 'dryRun') {
    undo()
    return { ok: true, answer: withoutNumbers(image, result), replayed: false }
  }
  if (command.requestId !== null) {
    const { requestId, actor, fingerprint, cause } = command
    const name = requestName(actor.node ?? '', requestId)
    const seq = image.head
    const made = { ...name, fingerprint: fingerprint ?? '', method: cause, answer: result, seq }
    batch.remembered.set(name.key, made)
    image.journal!.push(() => batch.remembered.delete(name.key))
  }
  return { ok: true, answer: result, replayed: false }
}

type Decider<T extends Command['type']> = (batch: Batch, command: Command<T>) => Answer | Refusal

const DECIDERS: { readonly [T in Command['type']]: Decider<T> } = {
  reserve: decideReserve,
  confirm: lease.decideConfirm,
  release: lease.decideRelease,
  allOrNothing: decideAll,
  dryRun: decideDryRun,
  quarantine: lease.decideQuarantine,
  reap: lease.decideReap,
  reapNode: lease.decideReapNode,
  updateLabels: lease.decideUpdateLabels,
  expire: lease.decideExpire,
  reapProven: report.decideReapProven,
  report: report.decideReport,
  recheck: report.decideRecheck,
  registerSource: report.decideRegisterSource,
  enableSource: report.decideEnableSource,
  retireSource: report.decideRetireSource,
  unknownSource: report.decideUnknownSource,
  createNetwork: network.decideCreateNetwork,
  updateNetwork: network.decideUpdateNetwork,
  endRecovery: network.decideEndRecovery,
  beginEra: network.decideBeginEra,
  hold: network.decideHold,
  resumeHold: network.decideResumeHold,
  createPool: pool.decideCreatePool,
  updatePool: pool.decideUpdatePool,
  deletePool: pool.decideDeletePool,
}

function decideOne(batch: Batch, command: Command): Answer | Refusal {
  return (DECIDERS[command.type] as Decider<typeof command.type>)(batch, command as never)
}

function decideAll(batch: Batch, { items }: Command<'allOrNothing'>): Answer | Refusal {
  const answers: Answer[] = []
  for (const [index, item] of items.entries()) {
    const answer = decideOne(batch, item)
    if ('reason' in answer) {
      return {
        ...answer,
        message: `item ${index}: ${answer.message}`,
        metadata: { ...answer.metadata, item: String(index) },
      }
    }
    answers.push(answer)
  }
  return { leases: [], items: answers }
}

function decideDryRun(batch: Batch, { items }: Command<'dryRun'>): Answer {
  const outcomes = items.map((item) => {
    const outcome = decide(batch, item)
    if (!outcome.ok) return outcome.refusal
    if (item.type !== 'enableSource') return outcome.answer
    return { ...outcome.answer, foreseen: report.foresee(batch, item) }
  })
  return { leases: [], outcomes }
}

/** A request that was committed before is answered as it was then, unless what it promised is no more. */
function replayed(batch: Batch, command: Command): Outcome | null {
  const { requestId, actor, fingerprint } = command
  if (requestId === null || !batch.guards.REQUEST_IS_REMEMBERED) return null
  const { key } = requestName(actor.node ?? '', requestId)
  const found = batch.remembered.get(key) ?? batch.known.requests.get(key)
  if (found === undefined) return null
  if (found.fingerprint !== fingerprint) {
    const message = `request ${requestId} was made before with other content; give each request its own id`
    return refuse(refusal('REQUEST_ID_REUSED', message, { requestId }))
  }
  const { leases, items = [] } = found.answer
  const promises = [...leases, ...items.flatMap((item) => item.leases)]
    .filter(({ state }) => state === 'RESERVED' || state === 'ACTIVE')
    .map((view) => ({ view, record: batch.image.byToken.get(view.fencingToken) }))
  const gone = promises.find(({ record }) => !isHeld(record) || record.state === 'QUARANTINED')
  if (gone !== undefined) {
    const { leaseId, address } = gone.view
    const message = `lease ${leaseId}, which request ${requestId} was answered, has ended or is quarantined`
    return refuse(refusal('LEASE_LOST', message, { leaseId, address }))
  }
  for (const { view } of promises) {
    // Read again: two promises of one lease renew it once.
    const record = batch.image.byToken.get(view.fencingToken)
    if (isHeld(record) && isPlacedFor(batch.guards, actor, record)) lease.renew(batch, command, record)
  }
  return { ok: true, answer: found.answer, replayed: true }
}

/** A dry run promises nothing that could be quoted later: only what is held has numbers, those of now. */
function withoutNumbers(image: Image, answer: Answer): Answer {
  const { leases, items, outcomes } = answer
  return {
    ...answer,
    leases: leases.map((view) => {
      const record = image.byToken.get(view.fencingToken)
      return record === undefined
        ? { ...view, leaseId: '', version: 0, fencingToken: 0 }
        : { ...view, version: record.seq }
    }),
    ...(items && { items: items.map((item) => withoutNumbers(image, item)) }),
    ...(outcomes && {
      outcomes: outcomes.map((one) => ('reason' in one ? one : withoutNumbers(image, one))),
    }),
  }
}

function refuse(reason: Refusal): Outcome {
  return { ok: false, refusal: reason }
}
