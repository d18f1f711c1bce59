/**
 * The log in PostgreSQL. A transaction is two round trips on one connection: lock and catch up, write and commit. The lock is
 * on a row that is never updated; statements after it in the same round trip see all that was committed before.
 */
import type pg from 'pg'
import { type Freshness, type Known, type LookUp, type Remembered, requestName } from '../core/command.ts'
import type { AddressRecord } from '../core/event.ts'
import { attachmentKey } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { sqlState } from '../postgres/connection-lost.ts'
import { setLimits } from '../postgres/limits.ts'
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
import { eventOf, NO_DIGEST, recordOfText } from './event-text.ts'
import {
  type CatchUp,
  type Caught,
  type Chained,
  type Committed,
  type Loaded,
  type Log,
  NeedsRebuild,
  type Transaction,
} from './log.ts'
import type { Node, Nodes } from './nodes.ts'
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
/** After the server's own limit on a transaction: without an answer by then the server is gone. */
const SILENT_MS = 12_000
const SILENT_LOAD_MS = 60_000
/** Far more than the largest network takes. */
const LOAD_WITHIN_MS = 600_000

const MAKE_LOCK = `insert into ipledger.network_lock (network_id) values ($1) on conflict do nothing`
const MS = (time: string): string => `(extract(epoch from ${time}) * 1000)::bigint`
// Of the server that has the network: with Citus a worker, and the clock is that of the server that is asked. The identity takes
// 40 µs, since the server reads it from a file. It is that of another life only where one of these differs.
const LOCK = `select pg_postmaster_start_time()::text || '/' || to_regclass('ipledger.event')::oid
    || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) as life
    from ipledger.network_lock where network_id = $1 for no key update`
// With Citus: place of the coordinator, then the identity of the worker that has the network.
const IDENTITY = `select ipledger.identity() as identity from ipledger.network_lock where network_id = $1`
const COORDINATOR = `select substring(ipledger.identity() from '^[0-9]+:[^/]+/') as place`
const CLOCK: Statement = { name: 'clock', text: `select ${MS('clock_timestamp()')} as clock`, values: [] }
// From the image's head on: the digest there shows whether the image was made of this log. All statements here have an order, so
// that their plans take the index that has it, also plans made while the table was empty.
const TAIL = `select e.seq, case when e.seq > $2 then ipledger.event_text(row(e.*)::ipledger.event) end as text, encode(e.digest, 'hex') as digest
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
      select ipledger.event_text(row(x.*)::ipledger.event) as text from ipledger.event x
       where x.network_id = $1 and x.address = m.address and x.previous >= k.token and x.token = k.token and x.state = 'FREE'
       order by x.previous limit 1) e
   where m.token = k.token`
const OWNER_FIELDS = ['kind', 'name', 'uid', 'incarnation', 'interface'] as const
// The last events of a name are enough: a Release is repeated soon, or is a new one.
const ENDED_BY_OWNER = `select e.text from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
      as k (kind, name, uid, incarnation, interface)
    cross join lateral (
      select ipledger.event_text(row(x.*)::ipledger.event) as text from
        (select * from ipledger.event y where y.network_id = $1 and y.owner_name >= k.name and y.owner_name <= k.name
          order by y.owner_name desc, y.seq desc limit 100) x
       where x.state = 'FREE' and x.owner_kind = k.kind and x.owner_uid = k.uid
         and x.owner_incarnation = k.incarnation and x.owner_interface = k.interface) e`

export function createPgLog(nodes: Nodes): Log {
  const pool = nodes.coordinator
  return {
    begin: (network, catchUp) => begin(nodes, network, catchUp),
    tail: (network, after) =>
      onConnection(pool, async (client) => {
        const { answered } = await run(client, [{ name: 'tail', text: TAIL, values: [network, after, PAGE] }])
        return pageOf(answered[0]!, after)
      }),
    load: (network, build) => onConnection(pool, (client) => load(client, network, build), LOAD_WITHIN_MS),
    clock: () =>
      onConnection(pool, async (client) => {
        const { answered } = await run(client, [CLOCK])
        return answered[0]!.rows[0]!.clock as number
      }),
  }
}

/** A connection that goes silent, as when a packet is cut, would hold the network's lock for ever. */
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

async function begin(
  nodes: Nodes,
  network: string,
  { after, prefetch, creates, expectedSeq }: CatchUp,
): Promise<Transaction> {
  const { client, node } = await nodes.connect(network)
  try {
    const wanted = question(network, prefetch)
    const { answered } = await run(client, [
      BEGIN,
      ...(creates ? [{ name: 'make_lock', text: MAKE_LOCK, values: [network] }] : []),
      { name: 'lock', text: LOCK, values: [network] },
      CLOCK,
      { name: 'tail', text: TAIL, values: [network, after, PAGE] },
      ...(expectedSeq === null ? [] : [{ name: 'expected', text: EXPECTED, values: [network, expectedSeq] }]),
      ...wanted.statements,
    ])
    const found = answered.slice(creates ? 2 : 1)
    const [lock, time, tail, expected] = found.splice(0, expectedSeq === null ? 3 : 4)
    const life = lock!.rows[0]?.life as string | undefined
    // It is seen, and not locked. If another process created it after the first of these statements, the next attempt locks it.
    if (life === undefined && tail!.rows.length > 0)
      throw new Error(
        `network ${network} was just created, or its lock is lost: if this stays, run ipledger rebuild --network ${network}`,
      )
    const identity =
      identities.get(client)?.get(life!) ??
      (life === undefined ? '' : await readIdentity(client, network, life, node))
    if (node !== null && !identity.startsWith(`${node.coordinator}${node.group}:`)) nodes.forget(network)
    return transactionOn(client, network, life !== undefined, {
      clock: node === null ? (time!.rows[0]!.clock as number) : null,
      identity,
      expectedDigest: expected?.rows[0]?.seq === expectedSeq ? (expected!.rows[0]!.digest as string) : null,
      ...pageOf(tail!, after),
      known: wanted.read(identity, found),
    })
  } catch (error) {
    // Perhaps it has moved, and this node may not log in at the other.
    nodes.forget(network)
    await endTransaction(client, true)
    throw error
  }
}

function transactionOn(
  client: pg.PoolClient,
  network: string,
  isLocked: boolean,
  caught: Caught,
): Transaction {
  let isOver = false
  let mustDiscard = false
  return {
    caught,
    async know(missing) {
      const { statements, read } = question(network, missing)
      try {
        return read(caught.identity, (await run(client, statements)).answered)
      } catch (error) {
        mustDiscard = true
        throw error
      }
    },
    async commit(write) {
      if (!isLocked && write.events.length > 0)
        throw new Error(`network ${network} has no row in network_lock, so nothing is written to it`)
      const statements = [...writeStatements(network, write), COMMIT]
      isOver = true
      try {
        const { answered, warnings } = await run(client, statements)
        if (answered.at(-1)!.command !== 'COMMIT') throw new Error('the transaction was rolled back')
        client.release()
        return { kind: 'committed', isWarned: warnings.length > 0 }
      } catch (error) {
        return rolledBack(client, error)
      }
    },
    async abandon() {
      if (isOver) return
      isOver = true
      await endTransaction(client, mustDiscard)
    },
  }
}

/** By life. */
const identities = new WeakMap<pg.PoolClient, Map<string, string>>()

async function readIdentity(
  client: pg.PoolClient,
  network: string,
  life: string,
  node: Node | null,
): Promise<string> {
  const { answered } = await run(client, [
    { name: 'identity', text: IDENTITY, values: [network] },
    { name: 'coordinator', text: COORDINATOR, values: [] },
  ])
  const coordinator = node === null ? (answered[1]!.rows[0]!.place ?? '') : node.coordinator
  const identity = `${coordinator}${answered[0]!.rows[0]!.identity}`
  const known = identities.get(client) ?? new Map()
  identities.set(client, known.set(life, identity))
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

async function rolledBack(client: pg.PoolClient, error: unknown): Promise<Committed> {
  const code = sqlState(error)
  const isRolledBack = await run(client, [ROLLBACK]).then(
    () => true,
    () => false,
  )
  // Without a code the server answered, and not with an error: what was committed is not known.
  if (!isRolledBack || code === undefined) {
    discard(client)
    return { kind: 'unknown', error }
  }
  client.release()
  // Integrity, data that a column cannot hold, a limit of the program: it would fail in the same way again.
  return { kind: /^(?:23|22|54)/.test(code) ? 'vetoed' : 'rolledBack', error }
}

/** A page of the tail. It begins with the event `after`, so that its digest is seen. */
function pageOf({ rows }: Pick<Answered, 'rows'>, after: number) {
  const tail: Chained[] = []
  let head = after === 0 ? NO_DIGEST : null
  for (const { seq, text, digest } of rows as readonly { seq: number; text: string; digest: string }[])
    if (seq === after) head = digest
    else tail.push({ event: eventOf(text), digest })
  return { digest: head, tail, isCut: rows.length === PAGE }
}

// What the image lacks.

/** Statements that ask for it, and what their answers come to. */
function question(network: string, { requests, tokens, owners, sources, lookUps }: Prefetch) {
  const known = {
    requests: new Map<string, Remembered>(),
    endedByToken: new Map<number, AddressRecord | null>(Array.from(tokens, (token) => [token, null])),
    endedByOwner: new Map<string, AddressRecord[]>(Array.from(owners.keys(), (key) => [key, []])),
    freshness: new Map<string, Freshness | null>(Array.from(sources, (id) => [id, null])),
    lookUps: new Map<string, LookUp[]>(Array.from(lookUps, (address) => [address, []])),
  } satisfies Omit<Known, 'identity'>
  const statements: Statement[] = []
  const reads: ((row: Row) => void)[] = []
  function ask(name: string, text: string, values: readonly unknown[][], read: (row: Row) => void) {
    if (values[0]!.length === 0) return
    statements.push({ name, text, values: [network, ...values] })
    reads.push(read)
  }
  const [nodes, ids]: [string[], string[]] = [[], []]
  for (const { node, requestId } of requests.values()) {
    nodes.push(node)
    ids.push(requestId)
  }
  ask('requests', REQUESTS, [nodes, ids], ({ node, request_id: id, ...row }) => {
    known.requests.set(requestName(node as string, id as string).key, row as Remembered)
  })
  ask('ended', ENDED, [[...tokens]], ({ token, text }) => {
    known.endedByToken.set(token as number, recordOfText(text as string))
  })
  const ofOwners: string[][] = []
  for (const field of OWNER_FIELDS) ofOwners.push(Array.from(owners.values(), (owner) => owner[field]))
  ask('ended_by_owner', ENDED_BY_OWNER, ofOwners, ({ text }) => {
    const record = recordOfText(text as string)
    known.endedByOwner.get(attachmentKey(record.owner!))!.push(record)
  })
  ask('freshness', REPORTS_OF, [[...sources]], (row) => {
    known.freshness.set(row.source_id as string, freshnessOf(row))
  })
  ask('lookups', LOOK_UPS, [[...lookUps]], (row) => {
    known.lookUps.get(row.address as string)?.push(lookUpOf(row))
  })
  function read(identity: string, answered: readonly Answered[]): Known {
    for (const [index, one] of reads.entries()) answered[index]!.rows.forEach(one)
    return { identity, ...known }
  }
  return { statements, read }
}

// Loading.

const HEAD = lastEvent('$1', `e.seq as head, ${MS('e.at')} as at, encode(e.digest, 'hex') as digest`)
// One string a page, which is split here: 25 columns of 100,000 rows are read cell by cell in seconds. Each event is looked up by
// its number: of tables without statistics, new or restored, a join compares each lease with each event (5,000 leases: 4.7 s).
const RECORDS_PAGE = `select string_agg(text, E'\\u001d' order by address) as page, host(max(address)) as last, count(*)::int as rows
    from (select l.address, e.text
            from ipledger.lease l
           cross join lateral (
             select ipledger.event_text(row(x.*)::ipledger.event) as text from ipledger.event x
              where x.network_id = l.network_id and x.seq = l.seq limit 1) e
           where l.network_id = $1 and l.address > $2::inet order by l.address limit $3) page`
const LAST_OF_ADDRESSES = `select seq from ipledger.event
    where network_id = $1 and address is not null order by seq desc limit 1`
const BEFORE_RECENT = `select ipledger_audit.position_at($1, clock_timestamp() - interval '${POLICY.holdWindowMs} ms') as seq`
const RECENT = `select e.seq, ipledger.event_text(row(e.*)::ipledger.event) as text, encode(e.digest, 'hex') as digest from ipledger.event e
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
  await within(SILENT_LOAD_MS, client, setLimits(client, '0'))
  try {
    const rows = async (text: string, ...values: readonly unknown[]): Promise<readonly Row[]> =>
      (await query(text, [network, ...values])).rows
    const [head] = await rows(HEAD)
    const [stored] = await rows(`${NETWORK_ROWS} where n.network_id = $1`)
    if ((head === undefined) !== (stored === undefined)) throw new NeedsRebuild(network)
    const loaded: Loaded = {
      ...((head ?? { head: 0, at: 0, digest: NO_DIGEST }) as Pick<Loaded, 'head' | 'at' | 'digest'>),
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

/** The next page is made while the one before is read. */
async function* recordPages(network: string, rows: Ask): AsyncGenerator<readonly AddressRecord[]> {
  let last = 0
  // Before every address: the addresses of a table are hosts.
  let next = rows(RECORDS_PAGE, '0.0.0.0/0', RECORDS)
  for (let isMore = true; isMore; ) {
    const [page] = await next
    isMore = page!.rows === RECORDS
    if (isMore) next = rows(RECORDS_PAGE, page!.last, RECORDS)
    // The reader may fail before it is awaited.
    next.catch(() => {})
    if (page!.page === null) break
    const records = (page!.page as string).split('\u001d').map(recordOfText)
    for (const { seq } of records) last = Math.max(last, seq)
    yield records
  }
  const [event] = await rows(LAST_OF_ADDRESSES)
  if (last !== ((event?.seq as number | undefined) ?? 0)) throw new NeedsRebuild(network)
}

async function* recentPages(rows: Ask): AsyncGenerator<readonly Chained[]> {
  const [before] = await rows(BEFORE_RECENT)
  let after = before!.seq as number
  for (let isCut = true; isCut; ) {
    const page = pageOf({ rows: await rows(RECENT, after, PAGE) }, after)
    yield page.tail
    ;({ isCut } = page)
    after = page.tail.at(-1)?.event.seq ?? after
  }
}
