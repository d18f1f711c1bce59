/**
 * An event as the cells of its row, and as the one text from which its digest is made and images are loaded: the columns in
 * order, joined by U+001F, null as U+001E, times in milliseconds since 1970, json verbatim. `ipledger.event_text` says the
 * same in SQL; a property test holds the two together.
 */
import { hash } from 'node:crypto'
import type { AddressRecord, EventType, LedgerEvent, QuarantineReason } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'
import { UnknownFormat } from './log.ts'

/** What this process writes, and the greatest it can read. A rolling upgrade that adds meaning counts it up. */
const FORMAT = 1

export const SEPARATOR = '\u001f'
const NULL = '\u001e'

/** The columns in order, with their types; `ms` is a time in milliseconds. */
export const COLUMNS = [
  ['network_id', 'text'],
  ['seq', 'bigint'],
  ['format', 'smallint'],
  ['type', 'text'],
  ['at', 'ms'],
  ['actor', 'text'],
  ['cause', 'text'],
  ['request_id', 'text'],
  ['trace_id', 'text'],
  ['pool_id', 'bigint'],
  ['address', 'inet'],
  ['previous', 'bigint'],
  ['prefix_length', 'smallint'],
  ['token', 'bigint'],
  ['state', 'text'],
  ['ended', 'text'],
  ['owner_kind', 'text'],
  ['owner_name', 'text'],
  ['owner_uid', 'text'],
  ['owner_incarnation', 'text'],
  ['owner_interface', 'text'],
  ['node', 'text'],
  ['labels', 'json'],
  ['reserved_at', 'ms'],
  ['confirmed_at', 'ms'],
  ['confirm_by', 'ms'],
  ['available_at', 'ms'],
  ['quarantine_reason', 'text'],
  ['quarantined_at', 'ms'],
  ['quarantined_by', 'text'],
  ['quarantine_why', 'text'],
  ['details', 'json'],
] as const

export type Cell = string | number | null

const NO_OWNER: readonly Cell[] = [null, null, null, null, null]
const NO_LEASE: readonly Cell[] = [null, null, null, null, null, null, null, null, null]

export function cellsOf(network: string, event: LedgerEvent): readonly Cell[] {
  const { seq, type, at, actor, cause, requestId, traceId } = event
  const cells: Cell[] = [network, seq, FORMAT, type, at, actor, cause, requestId, traceId]
  if ('record' in event) {
    const { record, previous, details } = event
    const { owner, quarantine } = record
    cells.push(
      record.poolId,
      record.address,
      previous,
      record.prefixLength,
      record.token,
      record.state,
      record.ended,
    )
    if (owner === null) cells.push(null, null, null, null, null)
    else cells.push(owner.kind, owner.name, owner.uid, owner.incarnation, owner.interface)
    cells.push(record.node, labelsText(record.labels))
    cells.push(record.reservedAt, record.confirmedAt, record.confirmBy, record.availableAt)
    if (quarantine === null) cells.push(null, null, null, null)
    else cells.push(quarantine.reason, quarantine.at, quarantine.by, quarantine.why)
    cells.push(details === null ? null : JSON.stringify(details))
    return cells
  }
  cells.push('poolId' in event ? event.poolId : null, null, null, null, null, null, null)
  if ('owner' in event) {
    const { kind, name, uid, incarnation, interface: on } = event.owner
    cells.push(kind, name, uid, incarnation, on)
  } else cells.push(...NO_OWNER)
  cells.push(null, ...NO_LEASE, 'details' in event ? JSON.stringify(event.details) : null)
  return cells
}

function labelsText(labels: AddressRecord['labels']): string {
  for (const _ in labels) return JSON.stringify(labels)
  return '{}'
}

export function textOf(cells: readonly Cell[]): string {
  let text = String(cells[0])
  for (let i = 1; i < cells.length; i++) text += SEPARATOR + (cells[i] === null ? NULL : cells[i])
  return text
}

/** Of the event of this text, after an event of that digest; both in hexadecimal. */
export function digestOf(previous: string, text: string): string {
  return hash('sha256', Buffer.concat([Buffer.from(previous, 'hex'), Buffer.from(text)]), 'hex')
}

/** @throws UnknownFormat */
export function eventOf(text: string): LedgerEvent {
  const cells = text.split(SEPARATOR)
  checkFormat(cells)
  const [, seq, , type, at, actor, cause, requestId, traceId, poolId] = cells as string[]
  const header = {
    seq: Number(seq),
    type: type as EventType,
    at: Number(at),
    actor: actor!,
    cause: cause!,
    requestId: orNull(requestId!),
    traceId: orNull(traceId!),
  }
  const details = cells[31] === NULL ? null : JSON.parse(cells[31]!)
  if (cells[10] !== NULL) {
    return { ...header, record: recordOf(cells), previous: Number(cells[11]), details } as LedgerEvent
  }
  if (type === 'attachment.closed') return { ...header, owner: readOwner(cells)! } as LedgerEvent
  if (poolId !== NULL) return { ...header, poolId: Number(poolId), details } as LedgerEvent
  return { ...header, details } as LedgerEvent
}

/** The record that an event about an address leaves. */
export function recordOfText(text: string): AddressRecord {
  const cells = text.split(SEPARATOR)
  checkFormat(cells)
  return recordOf(cells)
}

function checkFormat(cells: readonly string[]): void {
  if (Number(cells[2]) <= FORMAT && cells.length === COLUMNS.length) return
  throw new UnknownFormat(
    `event ${cells[0]}/${cells[1]} has format ${cells[2]}, this process knows ${FORMAT}: a newer ipledger writes this network; upgrade this one`,
  )
}

function recordOf(cells: readonly string[]): AddressRecord {
  const ended = cells[15]
  return {
    address: own(cells[10]!),
    prefixLength: Number(cells[12]),
    poolId: Number(cells[9]),
    state: word(cells[14]!) as AddressRecord['state'],
    seq: Number(cells[1]),
    at: Number(cells[4]),
    token: Number(cells[13]),
    owner: readOwner(cells),
    node: word(cells[21]!),
    labels: cells[22] === '{}' ? NO_LABELS : JSON.parse(cells[22]!),
    reservedAt: Number(cells[23]),
    confirmedAt: numberOrNull(cells[24]!),
    confirmBy: numberOrNull(cells[25]!),
    quarantine:
      cells[27] === NULL
        ? null
        : {
            reason: cells[27] as QuarantineReason,
            at: Number(cells[28]),
            by: cells[29]!,
            why: cells[30]!,
          },
    availableAt: numberOrNull(cells[26]!),
    ended: ended === NULL ? null : (ended as AddressRecord['ended']),
  }
}

const NO_LABELS = {}

function readOwner(cells: readonly string[]): Owner | null {
  if (cells[16] === NULL) return null
  const name = own(cells[17]!)
  return {
    kind: word(cells[16]!),
    name,
    uid: cells[18] === name ? name : own(cells[18]!),
    incarnation: own(cells[19]!),
    interface: word(cells[20]!),
  }
}

const bytes = Buffer.allocUnsafe(4_096)
/** Shorter ones are copied when a text is split. */
const SLICED = 13

/** A piece of a long text keeps all of it in memory: of a million records 250 MB. */
function own(cell: string): string {
  if (cell.length < SLICED || cell.length * 3 > bytes.length) return cell
  return bytes.toString('utf8', 0, bytes.write(cell))
}

const words = new Map<string, string>()

/** One copy of what is said again and again: of a million records 100 MB. */
function word(cell: string): string {
  const known = words.get(cell)
  if (known !== undefined) return known
  if (words.size >= 10_000) words.clear()
  const kept = own(cell)
  words.set(kept, kept)
  return kept
}

function orNull(cell: string): string | null {
  return cell === NULL ? null : cell
}

function numberOrNull(cell: string): number | null {
  return cell === NULL ? null : Number(cell)
}
