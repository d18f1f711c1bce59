/**
 * A past for a network, written straight into its log because ten million calls would take an hour: the events that the
 * service would have written, with their digests, and the tables by `rebuild`. `verify` finds nothing.
 *
 * `reserves` leases are made one after the other on `addresses` addresses that are taken in turn; of the latest `held` are
 * held, the ones before were released.
 */
import { formatValue } from '../src/core/address.ts'
import { type AddressRecord, BLANK, type LedgerEvent } from '../src/core/event.ts'
import { buildPool, parsePoolSettings } from '../src/core/pool.ts'
import { digestOf, textOf } from '../src/ledger/event-text.ts'
import { rebuildNetwork } from '../src/ledger/rebuild.ts'
import { insertEvents } from '../src/ledger/tables.ts'
import { withClient } from '../src/postgres/connect.ts'

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
/** Events of one INSERT. */
const BATCH = 1_000

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
      `select ipledger.identity() as identity, (extract(epoch from now()) * 1000)::bigint as now`,
    )
    const { identity, now } = rows[0]!
    await client.query('insert into ipledger.network_lock (network_id) values ($1)', [history.network])
    let digest = '0'.repeat(64)
    let batch: Parameters<typeof insertEvents>[1][number][] = []
    const flush = async () => {
      for (const { text, values } of insertEvents(history.network, batch))
        await client.query(text, [...values])
      batch = []
    }
    for (const event of events(history, identity, now)) {
      const text = textOf(history.network, event)
      digest = digestOf(digest, text)
      batch.push({ event, text, digest })
      if (batch.length === BATCH) await flush()
    }
    await flush()
    await client.query('vacuum (analyze) ipledger.event')
    await rebuildNetwork(client, history.network)
    await client.query('vacuum (analyze) ipledger.lease')
    await client.query('checkpoint')
  })
}

function* events(
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
    details: { description: '', labels: {}, closed: false, identity },
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
      ...BLANK,
      address: before?.address ?? formatValue(family, first + BigInt(k % addresses)),
      prefixLength,
      poolId: 2,
      state: isActive ? 'ACTIVE' : 'RESERVED',
      seq,
      at: made.at,
      token: seq,
      ...holderOf(k),
      reservedAt: made.at,
      confirmedAt: isActive ? made.at : null,
    }
    ring[k % addresses] = record
    yield { ...made, type: 'lease.reserved', record, previous: before?.seq ?? 0, details: null }
    if (k < held) continue
    const index = (k - held) % addresses
    const old = ring[index]!
    const released = header(++seq, 'Release')
    const { at } = released
    const free: AddressRecord = { ...old, state: 'FREE', seq, at, availableAt: at, ended: 'RELEASED' }
    ring[index] = free
    const details = { removalConfirmed: true }
    yield { ...released, type: 'lease.released', record: free, previous: old.seq, details }
  }
}
