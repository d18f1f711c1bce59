/**
 * What waits for a person, or for an answer that does not come, written down once a minute for people and dashboards that
 * read the database (view `ipledger_audit.stuck`). What is stuck is said in one place, `liveness/stuck.ts`; here it is only
 * kept. Of two runs at once the later one's rows stay, and each removes only what was found before it began.
 */
import { hash } from 'node:crypto'
import type pg from 'pg'
import { transact } from '../ledger/transaction.ts'
import { isRefusal } from '../liveness/report.ts'
import { listStuck, type StuckItem } from '../liveness/stuck.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { type Done, inEachNetwork, type Job, type JobContext } from './job.ts'

const PAGE = 500
/** Items of a network that are kept: with more, the first ones say what is wrong. Not measured. */
const MOST_ITEMS = 2_000
/** Pages of a run, which may be empty: leases that wait for nothing but time are walked too. Not measured. */
const MOST_PAGES = 200

const KEEP = `
  insert into ipledger.stuck_item as s
    (network_id, code, source_id, item_key, fencing_token, address, prefix_length, pool, since, what, observed_at)
  select $1, v.code, v.source_id, v.item_key, v.fencing_token, v.address, v.prefix_length, v.pool,
         to_timestamp(v.since / 1000), v.what, to_timestamp($2::float8 / 1000)
    from unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::inet[], $8::smallint[], $9::text[], $10::float8[],
                $11::text[])
         as v (code, source_id, item_key, fencing_token, address, prefix_length, pool, since, what)
  on conflict (network_id, code, source_id, item_key) do update
    set fencing_token = excluded.fencing_token, address = excluded.address, prefix_length = excluded.prefix_length,
        pool = excluded.pool, since = excluded.since, what = excluded.what, observed_at = excluded.observed_at
  where s.observed_at <= excluded.observed_at`

const FORGET = `
  delete from ipledger.stuck_item where network_id = $1 and observed_at < to_timestamp($2::float8 / 1000)`

/** For the test of their plans. */
export const OBSERVE_STUCK_STATEMENTS = { stuckKeep: KEEP, stuckForget: FORGET } as const

export const observeStuck: Job = (context) =>
  inEachNetwork(context, (network) => observeNetwork(context, network))

async function observeNetwork({ database, signal }: JobContext, network: string): Promise<Done> {
  const { rows } = await database.query<{ now: number }>('select clock_timestamp() as now')
  const observedAt = rows[0]!.now
  const found = await findStuck(database, network, signal)
  if (found === null) return {}
  await onConnection(database, (client) =>
    transact(client, 'begin', async () => {
      await client.query(KEEP, [network, observedAt, ...columnsOf(found)])
      await client.query(FORGET, [network, observedAt])
    }),
  )
  return { stuck: found.length }
}

/** Null: the worker stops, or there is no such network any more. */
async function findStuck(
  database: pg.Pool,
  network: string,
  signal: AbortSignal,
): Promise<readonly StuckItem[] | null> {
  const found = new Map<string, StuckItem>()
  let after: string | null = null
  for (let pages = 0; pages < MOST_PAGES && found.size < MOST_ITEMS; pages += 1) {
    if (signal.aborted) return null
    const page = await listStuck(database, { network, codes: [], after, limit: PAGE })
    if (isRefusal(page)) return null
    for (const item of page.stuck) found.set(`${item.code} ${item.source} ${keyOf(item)}`, item)
    if (page.next === null) break
    after = page.next
  }
  return [...found.values()].slice(0, MOST_ITEMS)
}

/** With code and source it tells items apart: of a lease there is one of each, of others what is said differs. */
function keyOf({ lease, text }: StuckItem): string {
  return lease === null ? hash('md5', text, 'hex') : String(lease.fencingToken)
}

function columnsOf(items: readonly StuckItem[]): readonly (readonly unknown[])[] {
  return [
    items.map(({ code }) => code),
    items.map(({ source }) => source),
    items.map(keyOf),
    items.map(({ lease }) => lease?.fencingToken ?? null),
    items.map(({ lease }) => lease?.address ?? null),
    items.map(({ lease }) => lease?.prefixLength ?? null),
    items.map(({ pool }) => pool?.name ?? null),
    items.map(({ since }) => since),
    items.map(({ text }) => text),
  ]
}
