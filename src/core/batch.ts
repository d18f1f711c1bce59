/**
 * What deciding a batch of commands works on: the image, which each event changes at once, so that the next command sees
 * it; the ledger's clock; what the image lacks; and what the batch has made so far. A refused command is rolled back to
 * where it began.
 */
import type { Present } from './attention.ts'
import type { Command, Freshness, Known, LeaseView, Remembered, RequestName } from './command.ts'
import {
  type AddressRecord,
  BLANK,
  type Details,
  type EventHeader,
  type LedgerEvent,
  leaseId,
  type Quarantine,
} from './event.ts'
import { evolve } from './evolve.ts'
import type { Guards } from './guards.ts'
import { assign, type Image, type PoolState } from './image.ts'
import { conditionOf, type Doubt, type Finding, LIFECYCLE, mayFollow } from './lifecycle.ts'
import { NO_OPTIONS, type PoolSettings } from './pool.ts'

export type Batch = {
  readonly image: Image
  /** The ledger's clock, never before the last event. */
  readonly now: number
  readonly known: Known
  readonly events: LedgerEvent[]
  /** Rows of `source_report` that this batch changes. */
  readonly freshness: Map<string, Freshness>
  /** Answers of this batch by the key of their request. */
  readonly remembered: Map<string, Remembered & RequestName & { readonly seq: number }>
  readonly guards: Guards
}

export type By = Pick<Command, 'actor' | 'cause' | 'requestId' | 'traceId'>

type Body<E> = E extends LedgerEvent ? Omit<E, keyof EventHeader> : never

/** Numbers an event, applies it, and adds it to the batch. */
export function emit(batch: Batch, by: By, body: Body<LedgerEvent>, seq = batch.image.head + 1): void {
  const { image, now } = batch
  const { actor, cause, requestId, traceId } = by
  const event = { seq, at: now, actor: actor.name, cause, requestId, traceId, ...body } as LedgerEvent
  evolve(image, event)
  assign(image, { head: seq, at: now, digest: '' })
  batch.events.push(event)
}

/** The event of a row of the lifecycle: the row says the state, `fields` what else is laid over what was. */
export function change(
  batch: Batch,
  by: By,
  finding: Finding,
  before: AddressRecord,
  fields: Partial<Omit<AddressRecord, 'state' | 'ended'>> = {},
  details: Details | null = null,
): AddressRecord {
  const { image, now } = batch
  const row = LIFECYCLE[finding]
  const last = image.records.get(before.address)
  if (!mayFollow(finding, last))
    throw new Error(`${finding}: no row for ${before.address}, which is ${conditionOf(last)}`)
  const state = row.state ?? before.state
  const ended = row.to === 'RELEASED' || row.to === 'REAPED' ? row.to : null
  const record = { ...before, state, ended, ...fields, seq: image.head + 1, at: now }
  emit(batch, by, { type: row.event, record, previous: last?.seq ?? 0, details })
  return record
}

export function quarantine(
  batch: Batch,
  by: By,
  finding: Doubt,
  before: AddressRecord,
  why: Omit<Quarantine, 'at' | 'reason'>,
  details: Details | null = null,
): AddressRecord {
  const quarantine = { reason: LIFECYCLE[finding].to, ...why, at: batch.now }
  return change(batch, by, finding, before, { confirmBy: null, quarantine }, details)
}

export function freshnessOf(
  batch: Pick<Batch, 'freshness' | 'known'>,
  source: string,
): Freshness | undefined {
  return batch.freshness.get(source) ?? batch.known.freshness.get(source) ?? undefined
}

export function presentOf(batch: Batch): Present & Pick<Batch, 'guards'> {
  const { image, now, guards } = batch
  return { image, now, guards, freshness: (source) => freshnessOf(batch, source) }
}

/** What a view needs of an image. */
type Pools = Pick<Image, 'name'> & {
  readonly pools: { get(id: number): { readonly pool: Partial<PoolSettings> } | undefined }
}

export function viewOf(image: Pools, record: AddressRecord, reused = false): LeaseView {
  const { seq, token, at, ended, ...rest } = record
  const pool = image.pools.get(record.poolId)?.pool
  const { name = '', subnet = '', gateway = '', options = NO_OPTIONS } = pool ?? {}
  return {
    ...rest,
    leaseId: leaseId(image.name, token),
    network: image.name,
    pool: name,
    subnet,
    gateway,
    options,
    state: rest.state === 'FREE' ? ended! : rest.state,
    version: seq,
    fencingToken: token,
    endedAt: ended === null ? null : at,
    reused,
  }
}

/** A new lease of an address, without an owner yet. */
export function blank({ image, now }: Batch, { pool }: PoolState, address: string): AddressRecord {
  const { prefixLength, poolId } = pool
  return { ...BLANK, address, prefixLength, poolId, at: now, token: image.head + 1, reservedAt: now }
}
