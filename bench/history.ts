/**
 * A past for a network, written straight into its log because ten million calls would take an hour: the events that the
 * service would have written, with their digests, and the tables by `rebuild`. `verify` finds nothing.
 *
 * `reserves` leases are made one after the other on `addresses` addresses that are taken in turn; of the latest `held` are
 * held, the ones before were released.
 */
import { once } from 'node:events'
import type { Writable } from 'node:stream'
import type pg from 'pg'
import { formatValue } from '../src/core/address.ts'
import type { AddressRecord, LedgerEvent } from '../src/core/event.ts'
import { buildPool, parsePoolSettings } from '../src/core/pool.ts'
import { type Cell, COLUMNS, cellsOf, digestOf, textOf } from '../src/ledger/event-text.ts'
import { rebuildNetwork } from '../src/ledger/rebuild.ts'
import { IDENTITY_SQL, withClient } from '../src/postgres/connect.ts'

export type History = {
  readonly network: string
  readonly cidr: string
  readonly addresses: number
  readonly held: number
  readonly reserves: number
  /** Confirmed at once, as what is listed by sources is. */
  readonly isActive?: boolean
}

export const POOL = 'pool'
/** The last event is so long ago: nothing is closed, or cools, any more. */
const AGO_MS = 7_200_000
/** Between two events. */
const STEP_MS = 50

/** Who holds the `k`-th lease. */
export function holderOf(k: number) {
  const owner = {
    kind: 'pod',
    name: `bench/held-${k}`,
    uid: `00000000-0000-4000-8000-${String(k).padStart(12, '0')}`,
    incarnation: '1',
    interface: 'eth0',
  }
  return { owner, node: `node-${k % 2_000}` }
}

export async function writeHistory(adminUrl: string, history: History): Promise<void> {
  await withClient({ url: adminUrl, applicationName: 'bench' }, async (client) => {
    const { rows } = await client.query<{ identity: string; now: number }>(
      `select ${IDENTITY_SQL} as identity, (extract(epoch from now()) * 1000)::bigint as now`,
    )
    const { identity, now } = rows[0]!
    await copyIn(client, `copy ipledger.event (${NAMES}) from stdin`, lines(history, identity, now))
    await client.query('vacuum (analyze) ipledger.event')
    await rebuildNetwork(client, history.network)
    await client.query('vacuum (analyze) ipledger.lease')
    await client.query('checkpoint')
  })
}

const NAMES = [...COLUMNS.map(([name]) => name), 'digest'].join(', ')

function* lines(history: History, identity: string, now: number): Generator<string> {
  let digest = '0'.repeat(64)
  for (const event of events(history, identity, now)) {
    const cells = cellsOf(history.network, event)
    digest = digestOf(digest, textOf(cells))
    let line = ''
    for (const [index, cell] of cells.entries()) line += `${copyCell(cell, COLUMNS[index]![1])}\t`
    yield `${line}\\\\x${digest}\n`
  }
}

function copyCell(cell: Cell, type: string): string | number {
  if (cell === null) return '\\N'
  if (type === 'ms') return new Date(cell as number).toISOString()
  return typeof cell === 'string' && cell.includes('\\') ? cell.replaceAll('\\', '\\\\') : cell
}

export function* events(
  { cidr, addresses, held, reserves, isActive = false }: History,
  identity: string,
  now: number,
): Generator<LedgerEvent> {
  const settings = parsePoolSettings({ name: POOL, cidr, cooldownMs: 0 })
  if ('reason' in settings) throw new Error(settings.message)
  const total = 2 + 2 * reserves - held
  const header = (seq: number, cause: string) => {
    const at = now - AGO_MS - (total - seq) * STEP_MS
    return { seq, at, actor: 'bench', cause, requestId: null, traceId: null }
  }
  yield {
    ...header(1, 'CreateNetwork'),
    type: 'network.created',
    details: { description: '', labels: {}, identity },
  }
  yield { ...header(2, 'CreatePool'), type: 'pool.created', poolId: 2, details: settings }
  const { family, allocatable, prefixLength } = buildPool(settings, {
    poolId: 2,
    version: 2,
    createdAt: 0,
    updatedAt: 0,
  })
  const { first } = allocatable[0]!
  const ring: (AddressRecord | undefined)[] = Array.from({ length: addresses })
  let seq = 2
  for (let k = 0; k < reserves; k += 1) {
    const before = ring[k % addresses]
    const made = header(++seq, 'Reserve')
    const record: AddressRecord = {
      address: before?.address ?? formatValue(family, first + BigInt(k % addresses)),
      prefixLength,
      poolId: 2,
      state: isActive ? 'ACTIVE' : 'RESERVED',
      seq,
      at: made.at,
      token: seq,
      ...holderOf(k),
      labels: {},
      reservedAt: made.at,
      confirmedAt: isActive ? made.at : null,
      confirmBy: null,
      quarantine: null,
      availableAt: null,
      ended: null,
    }
    ring[k % addresses] = record
    yield { ...made, type: 'lease.reserved', record, previous: before?.seq ?? 0, details: null }
    if (k < held) continue
    const at = (k - held) % addresses
    const old = ring[at]!
    const ended = header(++seq, 'Release')
    const free: AddressRecord = {
      ...old,
      state: 'FREE',
      seq,
      at: ended.at,
      availableAt: ended.at,
      ended: 'RELEASED',
    }
    ring[at] = free
    yield {
      ...ended,
      type: 'lease.released',
      record: free,
      previous: old.seq,
      details: { removalConfirmed: true },
    }
  }
}

const CHUNK = 1 << 18

/** The driver knows no `copy … from stdin`; it lets a query of the caller's own answer the server. */
function copyIn(client: pg.Client, text: string, rows: Iterable<string>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  type Wire = {
    query(text: string): void
    sendCopyFromChunk(chunk: Buffer): void
    endCopyFrom(): void
    readonly stream: Writable
  }
  async function send(wire: Wire): Promise<void> {
    let chunk = ''
    const flush = async () => {
      wire.sendCopyFromChunk(Buffer.from(chunk))
      chunk = ''
      if (wire.stream.writableNeedDrain) await once(wire.stream, 'drain')
      else await new Promise(setImmediate)
    }
    for (const row of rows) {
      chunk += row
      if (chunk.length >= CHUNK) await flush()
    }
    await flush()
    wire.endCopyFrom()
  }
  client.query({
    submit: (wire: Wire) => wire.query(text),
    handleCopyInResponse: (wire: Wire) => void send(wire).catch(reject),
    handleCommandComplete() {},
    handleReadyForQuery: () => resolve(),
    handleError: reject,
  } as unknown as pg.Submittable)
  return promise
}
