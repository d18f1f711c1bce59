/**
 * The log in PostgreSQL. A transaction is two round trips on one connection: lock and catch up, write and commit. The lock is
 * on a row that nobody updates; what follows it in the same round trip sees all that was committed before.
 */
import type pg from 'pg'
import { type Freshness, type Known, type LookUp, type Remembered, requestName } from '../core/command.ts'
import type { AddressRecord } from '../core/event.ts'
import { attachmentKey } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { IDENTITY_SQL } from '../postgres/connect.ts'
import { sqlState } from '../postgres/connection-lost.ts'
import { discard, onConnection } from '../postgres/on-connection.ts'
import {
  type Answered,
  BEGIN,
  COMMIT,
  type Pipelined,
  ROLLBACK,
  runPipeline,
  type Statement,
  sever,
} from '../postgres/pipeline.ts'
import { afterRunning } from '../time-limit.ts'
import { eventOf, recordOfText } from './event-text.ts'
import {
  type CatchUp,
  type Chained,
  type Committed,
  type Loaded,
  type Log,
  NeedsRebuild,
  type Transaction,
} from './log.ts'
import type { Prefetch } from './prefetch.ts'
import { lastEvent } from './sql/head.ts'
import { LOOK_UPS } from './sql/look-ups.ts'
import { REPORTS_OF } from './sql/sources.ts'
import {
  freshnessOf,
  lookUpOf,
  NETWORK_ROWS,
  networkOf,
  poolOf,
  type Row,
  sightingOf,
  sourceOf,
  writeStatements,
} from './tables.ts'

/** Events a page of the tail, and records a page of a load. */
const PAGE = 2_000
const RECORDS = 5_000
/** Whoever has not answered by then is not there: the server's own limit on a transaction has passed. */
const SILENT_MS = 12_000
const SILENT_LOAD_MS = 60_000
/** Far more than the largest network takes. */
const LOAD_WITHIN_MS = 600_000

const MAKE_LOCK = `insert into ipledger.network_lock (network_id) values ($1) on conflict do nothing`
const LOCK = `select from ipledger.network_lock where network_id = $1 for no key update`
const MS = (time: string): string => `(extract(epoch from ${time}) * 1000)::bigint`
// The identity takes 40 µs, since the server reads it from a file. It is that of another life only where one of these differs.
const LIFE = `pg_postmaster_start_time()::text || '/' || (select oid from pg_database where datname = current_database())
    || '/' || 'ipledger.event'::regclass::oid || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)`
const IDENTITY: Statement = { name: 'identity', text: `select ${IDENTITY_SQL} as identity`, values: [] }
const STATE = `select ${MS('clock_timestamp()')} as clock, ${LIFE} as life,
    coalesce((${lastEvent('$1')}), 0) as head`
// From the image's head on, whose digest says whether the log is the one it knows. In order, as all that follows here: the
// order is what makes the plan take the index that has it, also one made while the table was empty.
const TAIL = `select e.seq, case when e.seq > $2 then ipledger.event_text(e) end as text, encode(e.digest, 'hex') as digest
    from ipledger.event e where e.network_id = $1 and e.seq >= $2 order by e.seq limit $3`
const EXPECTED = `select e.seq, encode(e.digest, 'hex') as digest from ipledger.event e
    where e.network_id = $1 and e.seq >= $2 order by e.seq limit 1`
const REQUESTS = `select k.node, k.request_id, r.* from unnest($2::text[], $3::text[]) as k (node, request_id)
    cross join lateral (
      select x.fingerprint, x.method, x.answer from ipledger.request x
       where x.network_id = $1 and x.node = k.node and x.request_id = k.request_id
         and x.at > now() - interval '${POLICY.requestMemoryMs} ms' limit 1) r`
// From the event that made the lease along the chain of its address to the one that ended it.
const ENDED = `select k.token, e.text from unnest($2::bigint[]) as k (token)
    cross join lateral (
      select m.token, m.address from ipledger.event m
       where m.network_id = $1 and m.seq >= k.token order by m.seq limit 1) m
    cross join lateral (
      select ipledger.event_text(x) as text from ipledger.event x
       where x.network_id = $1 and x.address = m.address and x.previous >= k.token and x.token = k.token and x.state = 'FREE'
       order by x.previous limit 1) e
   where m.token = k.token`
// The last events of a name are enough: a Release is repeated soon, or is a new one.
const ENDED_BY_OWNER = `select k.place, e.text from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
      with ordinality as k (kind, name, uid, incarnation, interface, place)
    cross join lateral (
      select ipledger.event_text(x) as text from
        (select * from ipledger.event y where y.network_id = $1 and y.owner_name >= k.name and y.owner_name <= k.name
          order by y.owner_name desc, y.seq desc limit 100) x
       where x.state = 'FREE' and x.owner_kind = k.kind and x.owner_uid = k.uid
         and x.owner_incarnation = k.incarnation and x.owner_interface = k.interface) e`

export function createPgLog(pool: pg.Pool): Log {
  return {
    async begin(network, catchUp) {
      const client = await pool.connect()
      try {
        return await begin(client, network, catchUp)
      } catch (error) {
        await endTransaction(client, true)
        throw error
      }
    },
    tail: (network, after) =>
      onConnection(pool, async (client) => {
        const { answered } = await run(client, [tailStatement(network, after)])
        return pageOf(answered[0]!, after)
      }),
    load: (network, build) => onConnection(pool, (client) => load(client, network, build), LOAD_WITHIN_MS),
    clock: () =>
      onConnection(pool, async (client) => {
        const { answered } = await run(client, [
          { name: 'clock', text: `select ${MS('clock_timestamp()')} as clock`, values: [] },
        ])
        return answered[0]!.rows[0]!.clock as number
      }),
  }
}

/** A connection that goes silent, as when a packet is cut, would keep the network for ever. */
async function within<T>(ms: number, client: pg.PoolClient, answer: Promise<T>): Promise<T> {
  const inTime = afterRunning(ms, () => sever(client))
  try {
    return await answer
  } finally {
    inTime()
  }
}

function run(client: pg.PoolClient, statements: readonly Statement[]): Promise<Pipelined> {
  return within(SILENT_MS, client, runPipeline(client, statements))
}

// A transaction.

async function begin(client: pg.PoolClient, network: string, catchUp: CatchUp): Promise<Transaction> {
  const { after, prefetch, creates, expectedSeq } = catchUp
  const asked = question(network, prefetch)
  const statements: Statement[] = [
    BEGIN,
    ...(creates ? [{ name: 'make_lock', text: MAKE_LOCK, values: [network] }] : []),
    { name: 'lock', text: LOCK, values: [network] },
    { name: 'state', text: STATE, values: [network] },
    tailStatement(network, after),
    ...(expectedSeq === null ? [] : [{ name: 'expected', text: EXPECTED, values: [network, expectedSeq] }]),
    ...asked.statements,
  ]
  const { answered } = await run(client, statements)
  const [lock, state, tail, ...rest] = answered.slice(creates ? 2 : 1)
  const [there, found] = expectedSeq === null ? [null, rest] : [rest[0]!, rest.slice(1)]
  const { clock, life, head } = state!.rows[0]!
  if (lock!.rowCount === 0 && tail!.rows.length > 0) {
    // Another process created the network after the first of these statements: it is seen, and not locked.
    await run(client, [ROLLBACK])
    return begin(client, network, { ...catchUp, creates: true })
  }
  const identity = await identityOf(client, life as string)
  let isOver = false
  let mustDiscard = false
  return {
    caught: {
      clock: clock as number,
      identity,
      head: head as number,
      digest: after === 0 ? NO_DIGEST : digestAt(tail!, after),
      expectedDigest: there === null ? null : digestAt(there, expectedSeq!),
      ...pageOf(tail!, after),
      known: asked.known(identity, found),
    },
    async know(missing) {
      const more = question(network, missing)
      try {
        return more.known(identity, (await run(client, more.statements)).answered)
      } catch (error) {
        mustDiscard = true
        throw error
      }
    },
    async commit(write) {
      const statements = [...writeStatements(network, write), COMMIT]
      isOver = true
      return commit(client, statements)
    },
    async abandon() {
      if (isOver) return
      isOver = true
      await endTransaction(client, mustDiscard)
    },
  }
}

const identities = new WeakMap<pg.PoolClient, { readonly life: string; readonly identity: string }>()

async function identityOf(client: pg.PoolClient, life: string): Promise<string> {
  const known = identities.get(client)
  if (known?.life === life) return known.identity
  const { answered } = await run(client, [IDENTITY])
  const identity = answered[0]!.rows[0]!.identity as string
  identities.set(client, { life, identity })
  return identity
}

/** `mustDiscard`: a read failed, which may be for a statement prepared before a migration; it would fail again. */
async function endTransaction(client: pg.PoolClient, mustDiscard: boolean): Promise<void> {
  try {
    await run(client, [ROLLBACK])
  } catch {
    return discard(client)
  }
  if (mustDiscard) discard(client)
  else client.release()
}

async function commit(client: pg.PoolClient, statements: readonly Statement[]): Promise<Committed> {
  try {
    const { answered, warnings } = await run(client, statements)
    if (answered.at(-1)!.command !== 'COMMIT') throw new Error('the transaction was rolled back')
    client.release()
    return { kind: 'committed', isWarned: warnings.length > 0 }
  } catch (error) {
    try {
      await run(client, [ROLLBACK])
    } catch {
      discard(client)
      return { kind: 'unknown', error }
    }
    const code = sqlState(error)
    if (code === undefined) {
      // The server answered, and not with an error: what was committed is not known.
      discard(client)
      return { kind: 'unknown', error }
    }
    client.release()
    return { kind: isVeto(code) ? 'vetoed' : 'rolledBack', error }
  }
}

/** Integrity, data that a column cannot hold, a limit of the program: it would fail in the same way again. */
function isVeto(code: string): boolean {
  return code.startsWith('23') || code.startsWith('22') || code.startsWith('54')
}

function tailStatement(network: string, after: number): Statement {
  return { name: 'tail', text: TAIL, values: [network, after, PAGE] }
}

const NO_DIGEST = '0'.repeat(64)

function digestAt({ rows }: Answered, seq: number): string | null {
  return rows[0]?.seq === seq ? (rows[0].digest as string) : null
}

function pageOf(
  { rows }: Answered,
  after: number,
): { readonly tail: readonly Chained[]; readonly isCut: boolean } {
  const tail = rows
    .slice(rows[0]?.seq === after ? 1 : 0)
    .map(({ text, digest }) => ({ event: eventOf(text as string), digest: digest as string }))
  return { tail, isCut: rows.length === PAGE }
}

// What the image lacks.

/** What is asked for, and what it comes to by the answers. */
function question(network: string, { requests, tokens, owners, sources, lookUps }: Prefetch) {
  const known = {
    requests: new Map<string, Remembered>(),
    endedByToken: new Map<number, AddressRecord | null>(tokens.map((token) => [token, null])),
    endedByOwner: new Map<string, AddressRecord[]>(owners.map((owner) => [attachmentKey(owner), []])),
    freshness: new Map<string, Freshness | null>(sources.map((id) => [id, null])),
    lookUps: new Map<string, LookUp[]>(lookUps.map((address) => [address, []])),
  } satisfies Omit<Known, 'identity'>
  const asked: { readonly statement: Statement; readonly read: (row: Row) => void }[] = []
  function ask(
    name: string,
    text: string,
    values: readonly (readonly unknown[])[],
    read: (row: Row) => void,
  ) {
    if (values[0]!.length > 0) asked.push({ statement: { name, text, values: [network, ...values] }, read })
  }
  const ofRequests = [requests.map(({ node }) => node), requests.map(({ requestId }) => requestId)]
  ask('requests', REQUESTS, ofRequests, ({ node, request_id: id, ...row }) => {
    known.requests.set(requestName(node as string, id as string).key, row as Remembered)
  })
  ask('ended', ENDED, [tokens], ({ token, text }) => {
    known.endedByToken.set(token as number, recordOfText(text as string))
  })
  const fields = ['kind', 'name', 'uid', 'incarnation', 'interface'] as const
  const ofOwners = fields.map((field) => owners.map((owner) => owner[field]))
  ask('ended_by_owner', ENDED_BY_OWNER, ofOwners, ({ place, text }) => {
    const owner = owners[(place as number) - 1]!
    known.endedByOwner.get(attachmentKey(owner))!.push(recordOfText(text as string))
  })
  ask('freshness', REPORTS_OF, [sources], (row) => {
    known.freshness.set(row.source_id as string, freshnessOf(row))
  })
  ask('lookups', LOOK_UPS, [lookUps], (row) => {
    known.lookUps.get(row.address as string)?.push(lookUpOf(row))
  })
  return {
    statements: asked.map(({ statement }) => statement),
    known(identity: string, answers: readonly Answered[]): Known {
      for (const [index, { read }] of asked.entries()) answers[index]!.rows.forEach(read)
      return { identity, ...known }
    },
  }
}

// Loading.

const HEAD = lastEvent('$1', `e.seq as head, ${MS('e.at')} as at, encode(e.digest, 'hex') as digest`)
// One string a page, which is split here: 25 columns of 100,000 rows are read cell by cell in seconds. Each event is looked up by
// its number: of tables without statistics, new or restored, a join compares each lease with each event (5,000 leases: 4.7 s).
const RECORDS_PAGE = `select string_agg(text, E'\\u001d' order by address) as page, host(max(address)) as last, count(*)::int as rows
    from (select l.address, e.text
            from ipledger.lease l
           cross join lateral (
             select ipledger.event_text(x) as text from ipledger.event x
              where x.network_id = l.network_id and x.seq = l.seq limit 1) e
           where l.network_id = $1 and l.address > $2::inet order by l.address limit $3) page`
const LAST_OF_ADDRESSES = `select seq from ipledger.event
    where network_id = $1 and address is not null order by seq desc limit 1`
// Times never go back along the numbers, so halving finds the event at which the last hour begins.
const BEFORE_RECENT = `with recursive search (low, high) as (
    select 0::bigint, (${lastEvent('$1')})
    union all
    select case when e.is_recent then s.low else e.seq end, case when e.is_recent then m.middle - 1 else s.high end
      from search s
     cross join lateral (select s.low + (s.high - s.low + 1) / 2 as middle) m
     cross join lateral (
       select e.seq, e.at > clock_timestamp() - interval '${POLICY.holdWindowMs} ms' as is_recent
         from ipledger.event e where e.network_id = $1 and e.seq >= m.middle order by e.seq limit 1) e
     where s.low < s.high)
  select max(low) as seq from search`
const RECENT = `select ipledger.event_text(e) as text, encode(e.digest, 'hex') as digest from ipledger.event e
    where e.network_id = $1 and e.seq > $2
      and (e.type in ('lease.reaped', 'reconcile.resumed')
           or e.type in ('lease.released', 'lease.quarantined', 'attachment.closed')
              and e.at > clock_timestamp() - interval '${POLICY.retryHorizonMs} ms')
    order by e.seq limit $3`

async function load<T>(
  client: pg.PoolClient,
  network: string,
  build: (loaded: Loaded) => Promise<T>,
): Promise<T> {
  const query = (text: string, values: readonly unknown[] = []) =>
    within(SILENT_LOAD_MS, client, client.query<Record<string, unknown>>(text, [...values]))
  await query('begin isolation level repeatable read read only')
  await query(
    `select set_config(name, '0', true) from pg_settings
      where name in ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')`,
  )
  try {
    const rows = async (text: string, ...values: readonly unknown[]): Promise<readonly Row[]> =>
      (await query(text, [network, ...values])).rows
    const [head] = await rows(HEAD)
    const [stored] = await rows(`${NETWORK_ROWS} where n.network_id = $1`)
    if ((head === undefined) !== (stored === undefined)) throw needsRebuild(network)
    const loaded: Loaded = {
      head: (head?.head as number | undefined) ?? 0,
      at: (head?.at as number | undefined) ?? 0,
      digest: (head?.digest as string | undefined) ?? NO_DIGEST,
      network: stored === undefined ? null : networkOf(stored),
      pools: (await rows('select * from ipledger.pool where network_id = $1')).map(poolOf),
      sources: (await rows('select * from ipledger.source where network_id = $1')).map(sourceOf),
      sightings: (await rows('select * from ipledger.sighting where network_id = $1')).map(sightingOf),
      records: recordPages(network, rows),
      recent: recentPages(rows),
    }
    const built = await build(loaded)
    await query('commit')
    return built
  } catch (error) {
    await query('rollback').catch(() => sever(client))
    throw error
  }
}

type Ask = (text: string, ...values: readonly unknown[]) => Promise<readonly Row[]>

function needsRebuild(network: string): NeedsRebuild {
  return new NeedsRebuild(
    `the projections of network ${network} are not the fold of its log: run ipledger rebuild --network ${network}`,
  )
}

/** The next page is made while the one before is read. */
async function* recordPages(network: string, rows: Ask): AsyncGenerator<readonly AddressRecord[]> {
  let last = 0
  // Before every address: the addresses of a table are hosts.
  let next = rows(RECORDS_PAGE, '0.0.0.0/0', RECORDS)
  for (let isMore = true; isMore; ) {
    const [page] = await next
    isMore = page!.rows === RECORDS
    if (isMore) next = rows(RECORDS_PAGE, page!.last, RECORDS)
    // Whoever reads may fail before it is looked at.
    next.catch(() => {})
    if (page!.page === null) break
    const records = (page!.page as string).split('\u001d').map(recordOfText)
    for (const { seq } of records) if (seq > last) last = seq
    yield records
  }
  const [event] = await rows(LAST_OF_ADDRESSES)
  if (last !== ((event?.seq as number | undefined) ?? 0)) throw needsRebuild(network)
}

async function* recentPages(rows: Ask): AsyncGenerator<readonly Chained[]> {
  const [before] = await rows(BEFORE_RECENT)
  for (let after = before!.seq as number | null; after !== null; ) {
    const page = await rows(RECENT, after, PAGE)
    const chained = page.map(({ text, digest }) => ({
      event: eventOf(text as string),
      digest: digest as string,
    }))
    yield chained
    after = chained.length < PAGE ? null : chained.at(-1)!.event.seq
  }
}
