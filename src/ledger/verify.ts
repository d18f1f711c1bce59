/**
 * `verify`: whether the log is whole and the tables follow from it. It reads in slices of less than a second. Each slice is one
 * statement with its own snapshot, so it runs beside the service, and concurrent writes are no differences.
 *
 * First the log in order: numbers without a gap in each era, digests that follow from one another, chains of addresses
 * without a break, legal transitions. Then the tables: leases by address, pools and the network, sources with what they
 * list. It also checks that the constraint is valid that refuses a second successor: so a chain cannot fork.
 *
 * Table `verification` has the progress. A run with a budget goes on where the one before stopped, and reads nothing before
 * that again.
 *
 * A log without its tail is still whole. The last verified event shows it, and so does `against`: a number and a digest that
 * were kept elsewhere.
 */
import type pg from 'pg'
import { LEGAL_CHANGES } from '../core/lifecycle.ts'
import { KEYS } from '../gen/tables.ts'
import { setLimits } from '../postgres/limits.ts'
import { NO_DIGEST } from './event-text.ts'
import { FOLDS, type FoldedTable, LEASE_OF_ADDRESS, SOURCES_OF_LOG } from './fold.ts'
import { lastEvent } from './sql/head.ts'
import type { RowOf } from './tables.ts'

type FindingCode =
  | 'EVENT_MISSING'
  | 'EVENT_ALTERED'
  | 'EVENT_ILLEGAL'
  | 'CHAIN_BROKEN'
  | 'LOG_SHORTER'
  | `${Uppercase<FoldedTable>}_DIFFERS`

export type Finding = {
  readonly what: FindingCode
  /** A sentence for people. */
  readonly message: string
  /** Null: it is about none. */
  readonly seq: number | null
  readonly address: string | null
  /** By the log, and in the table; null: no such row. */
  readonly expected: string | null
  readonly found: string | null
}

/** An event by its number, and its digest in hexadecimal. */
export type Anchor = { readonly seq: number; readonly digest: string }

export type VerifyOptions = {
  /** Begin after this event, which counts as right; 0: at the first. Default: where the last run stopped, if it is unfinished. */
  readonly from?: number
  /** What the log must contain. */
  readonly against?: Anchor
  /** Stop after so many milliseconds, at the end of a slice. */
  readonly budgetMs?: number
  readonly onProgress?: (progress: VerifyProgress) => void
}

/** `done`: of the log the number it was read up to; of a table the key up to which it was compared. */
type VerifyProgress = { readonly part: string; readonly done: string; readonly head: number }

export type Verified = {
  /** The run reached its end. */
  readonly complete: boolean
  readonly fromSeq: number
  readonly verifiedSeq: number
  readonly head: number
  /** Of the event `verifiedSeq`: an anchor to be kept elsewhere. */
  readonly digest: string
  readonly findings: readonly Finding[]
  /** Findings beyond the first `MOST_FINDINGS`. */
  readonly omitted: number
}

const MOST_FINDINGS = 100
/** The goal for a slice: a slower one halves the rows of the next, a fast one doubles them. */
const SLICE_MS = 400
const MOST_ROWS = 200_000

const DIFFERENCE = `json_agg(json_build_object('what', v.what, 'seq', v.seq, 'address', host(v.address), 'message', v.message,
  'expected', v.expected, 'found', v.found) order by v.seq, v.address) filter (where v.what is not null)`

/**
 * The event $2, if there is one, and $3 numbers from the next on. The events before them on their addresses are read in order of
 * number, 1.3 µs each where one at a time takes 3, and joined by a full join, which is never nested loops: planned for the few
 * rows that are expected at the log's end, those took a minute a slice. Of 7.6 µs an event takes, its text is 3.5.
 */
const LOG = `
  with slice as materialized (
    select n.seq + $3 as upto from ipledger.event n where n.network_id = $1 and n.seq > $2 order by n.seq limit 1
  ),
  before as materialized (
    select b.seq, b.address, b.state, b.token from ipledger.event b
     where b.network_id = $1 and b.seq = any (array(
       select e.previous from ipledger.event e where e.network_id = $1 and e.seq >= $2 and e.seq < (select upto from slice)))
  )
  select max(v.seq) as last, count(*) as rows, ${DIFFERENCE} as findings
    from (
      select w.seq, w.address, f.what, null as expected, null as found,
             case f.what
               when 'EVENT_MISSING' then format('numbers %s to %s are missing', w.before_seq + 1, coalesce(w.after, w.seq - 1))
               when 'EVENT_ALTERED' then format('event %s (%s) does not have the digest that follows from event %s: it was altered or inserted, or event %s was', w.seq, w.type, w.before_seq, w.before_seq)
               when 'CHAIN_BROKEN' then format('event %s (%s) names %s as the event before it on %s, which is %s', w.seq, w.type, w.previous, host(w.address), coalesce('about ' || host(p.address), 'about no address, or missing'))
               when 'EVENT_ILLEGAL' then format('event %s (%s, %s) can''t follow event %s (%s)', w.seq, w.type, w.state, coalesce(p.seq, w.before_seq), coalesce(p.state, 'FREE'))
               when 'LEASE_DIFFERS' then format('%s has events and no row in the table of leases', host(w.address))
             end as message
        from (
          select s.*, lag(s.digest, 1, decode('${NO_DIGEST}', 'hex')) over by_number as before_digest,
                 lag(s.seq, 1, 0::bigint) over by_number as before_seq, lag(s.at) over by_number as before_at
            from (
              select e.seq, e.type, e.at, e.address, e.previous, e.state, e.token, e.ended, e.available_at, e.digest,
                     convert_to(ipledger.event_text(row(e.*)::ipledger.event), 'UTF8') as text,
                     case when e.type = 'era.begun' and e.seq = (e.details ->> 'era')::bigint << 40 then (e.details ->> 'after')::bigint end as after
                from ipledger.event e
               where e.network_id = $1 and e.seq >= $2 and e.seq < (select upto from slice)) s
          window by_number as (order by s.seq)) w
        full join before p on p.seq = w.previous
       cross join lateral (
         select case
           when w.seq <> w.before_seq + 1 and (w.after <= w.before_seq) is not true then 'EVENT_MISSING'
           when w.digest <> sha256(w.before_digest || w.text) then 'EVENT_ALTERED'
           when w.at < w.before_at then 'EVENT_ILLEGAL'
           when w.address is null then null
           when w.previous > 0 and p.address is distinct from w.address then 'CHAIN_BROKEN'
           when coalesce(p.state, 'FREE') || ' ' || w.type || ' ' || w.state <> all ('{${[...LEGAL_CHANGES].join(',')}}')
             or w.token <> case when coalesce(p.state, 'FREE') = 'FREE' then w.seq else p.token end
             or (w.state = 'FREE') <> (w.ended is not null and w.available_at is not null) then 'EVENT_ILLEGAL'
           when w.previous = 0 and not exists (
             select from ipledger.lease l where l.network_id = $1 and l.address = w.address) then 'LEASE_DIFFERS'
         end as what) f
       where coalesce(w.seq, 0) > $2) v`

/** $3 leases behind the address $2. */
const LEASES = `
  select host(max(v.address)) as last, count(*) as rows, ${DIFFERENCE} as findings
    from (
      select t.address, t.seq, to_json(e)::text as expected, to_json(t)::text as found,
             case when e is distinct from t then 'LEASE_DIFFERS' end as what,
             format('the row of %s is not what its last event says, which is %s', host(t.address), coalesce(e.seq::text, 'missing')) as message
        from (select l.* from ipledger.lease l where l.network_id = $1 and l.address > $2::inet order by l.address limit $3) t
        left join lateral (${LEASE_OF_ADDRESS}) e on true) v`

function comparison(table: FoldedTable): string {
  const fold = FOLDS[table]
  const keys = KEYS[table].map((key) => `x.${key}`).join(', ')
  return `
    select '${table.toUpperCase()}_DIFFERS' as what, null::bigint as seq, coalesce(f.row, t.row) ->> 'address' as address,
           f.row::text as expected, t.row::text as found,
           concat('the row ', coalesce(f.row, t.row) ->> '${KEYS[table].at(-1)}', ' of table ${table} is not what the log says') as message
      from (select ${keys}, to_jsonb(x) as row from (${fold}) x) f
      full join (
        select ${keys}, to_jsonb(x) as row from ipledger.${table} x
         where x.network_id = $1 ${fold.includes('$2') ? 'and x.source_id = any($2::text[])' : ''}) t using (${KEYS[table].join(', ')})
     where f.row is distinct from t.row
     limit 1000`
}

/** The constraints that keep the log whole; then the row that every writer locks. */
const SCHEMA = `
  select 'CHAIN_BROKEN' as what, null as seq, null as address, null as expected, null as found,
         format('table event lacks the valid constraint %s, so two events may have one predecessor or one number', c.name) as message
    from unnest('{number_is_given_once,history_of_an_address_never_forks}'::text[]) as c (name)
   where not exists (
     select from pg_constraint k join pg_index i on i.indexrelid = k.conindid
      where k.conrelid = 'ipledger.event'::regclass and k.conname = c.name and i.indisvalid)`
const LOCKED = `
  select 'NETWORK_DIFFERS' as what, null as seq, null as address, null as expected, null as found,
         'the network has events and no row in table network_lock' as message
   where exists (select from ipledger.event e where e.network_id = $1)
     and not exists (select from ipledger.network_lock l where l.network_id = $1)`

const NEXT_SOURCES = `
  select s.id from (
    select x.source_id as id from ipledger.source x where x.network_id = $1
    union select distinct x.source_id from ipledger.sighting x where x.network_id = $1
    union ${SOURCES_OF_LOG}) s
   where s.id collate "C" > $2 order by s.id collate "C" limit $3`

const HEAD = `
  select coalesce((${lastEvent('$1')}), 0) as head,
         (select encode(a.digest, 'hex') from ipledger.event a where a.network_id = $1 and a.seq = $2) as digest`

const READ = `
  select clock_timestamp() as now, v.verified_seq, encode(v.digest, 'hex') as digest, v.part, v.started_at, v.finished_at, v.findings
    from (select) as always left join ipledger.verification v on v.network_id = $1`

const SAVE = `
  insert into ipledger.verification as v (network_id, verified_seq, digest, part, started_at, finished_at, findings)
  values ($1, $2, decode($7, 'hex'), $3,
          to_timestamp($4::float8 / 1000), case when $5::bool then clock_timestamp() end, $6)
  on conflict (network_id) do update
    set verified_seq = excluded.verified_seq, digest = excluded.digest, part = excluded.part, started_at = excluded.started_at,
        finished_at = coalesce(excluded.finished_at, v.finished_at), findings = excluded.findings`

type Part = 'log' | 'lease' | 'shape' | 'source'
/** `size`: the rows of the next slice. */
type Cursor = { readonly seq: number; readonly part: Part; readonly after: string; readonly size: number }
type Slice = {
  readonly rows: number
  readonly last: string | null
  readonly findings: readonly Finding[] | null
}
type Kept = Finding & { readonly foundAt: number; readonly seenAt: number }
/** Null: nothing is verified yet. */
type Stored = Pick<RowOf<'verification'>, 'digest' | 'part' | 'started_at' | 'finished_at'> & {
  now: number
  verified_seq: number | null
  findings: readonly Kept[] | null
}

/** In the order in which they are gone through: where each begins, and the rows of its first slice. */
const PARTS: Readonly<
  Record<Part, { readonly begin: string; readonly size: number; readonly next: Part | null }>
> = {
  log: { begin: '', size: 2_000, next: 'lease' },
  lease: { begin: '0.0.0.0/0', size: 2_000, next: 'shape' },
  shape: { begin: '', size: 1, next: 'source' },
  source: { begin: '', size: 10, next: null },
}

/** With any login that may read the log and its tables and write the table `verification`. */
export async function verifyNetwork(
  client: pg.Client,
  network: string,
  options: VerifyOptions = {},
): Promise<Verified> {
  const { from, against, budgetMs = Number.POSITIVE_INFINITY, onProgress } = options
  const before = (await client.query<Stored>(READ, [network])).rows[0]!
  const isUnfinished = before.verified_seq !== null && (before.finished_at ?? 0) < before.started_at
  const isResumed = from === undefined && isUnfinished
  const startedAt = isResumed ? before.started_at : before.now
  const found = new Map<string, Finding>()
  const note = (findings: readonly Finding[] | null): void => {
    for (const finding of findings ?? []) found.set(keyOf(finding), finding)
  }

  let cursor: Cursor | null = cursorAt('log', from ?? 0)
  if (before.verified_seq !== null && before.digest !== null) {
    const missing = await compareAnchor(client, network, { seq: before.verified_seq, digest: before.digest })
    note(missing)
    if (isResumed && missing.length === 0) cursor = cursorOf(before.verified_seq, before.part)
  }
  if (against !== undefined) note(await compareAnchor(client, network, against))

  const fromSeq = cursor.seq
  let { seq } = cursor
  const end = performance.now() + budgetMs
  let head: number
  let digest: string | null
  // One slice at least, so that the shortest budget comes to an end.
  do {
    const at: Cursor = cursor
    const begun = performance.now()
    const slice = await inTransaction(client, () => readSlice(client, network, at))
    cursor = cursorAfter(at, slice, performance.now() - begun)
    seq = cursor?.seq ?? seq
    note(slice.findings)
    ;({ head, digest } = await readHead(client, network, seq))
    if (!from) {
      const part = cursor === null || cursor.part === 'log' ? null : `${cursor.part} ${cursor.after}`
      const kept = keep(before, found, cursor === null ? startedAt : 0)
      const isEnd = cursor === null
      await client.query(SAVE, [network, seq, part, startedAt, isEnd, JSON.stringify(kept), digest])
    }
    const { part, after } = cursor ?? { part: 'end', after: '' }
    onProgress?.({ part, done: part === 'log' ? String(seq) : after, head })
  } while (cursor !== null && performance.now() < end)
  return {
    complete: cursor === null,
    fromSeq,
    verifiedSeq: seq,
    head,
    digest: digest ?? NO_DIGEST,
    findings: [...found.values()].slice(0, MOST_FINDINGS),
    omitted: Math.max(0, found.size - MOST_FINDINGS),
  }
}

/** A source with a long history may take more than the role's limits on a statement. In a transaction of the caller's, if there is one. */
async function inTransaction<T>(client: pg.Client, work: () => Promise<T>): Promise<T> {
  const isOurs = client.getTransactionStatus() !== 'T'
  if (isOurs) await client.query('begin')
  try {
    await setLimits(client, '60s')
    return await work()
  } finally {
    if (isOurs) await client.query('rollback')
  }
}

function cursorAt(part: Part, seq: number, after = PARTS[part].begin): Cursor {
  return { seq, part, after, size: PARTS[part].size }
}

function cursorAfter({ seq, part, size }: Cursor, { rows, last }: Slice, took: number): Cursor | null {
  const { next } = PARTS[part]
  if (last === null) return next === null ? null : cursorAt(next, seq)
  const isFull = rows >= size
  if (took > SLICE_MS) size = Math.max(1, size >> 1)
  else if (took < SLICE_MS / 2 && isFull) size = Math.min(MOST_ROWS, size * 2)
  return { seq: part === 'log' ? Number(last) : seq, part, after: last, size }
}

async function readSlice(client: pg.Client, network: string, cursor: Cursor): Promise<Slice> {
  const { seq, part, after, size } = cursor
  const read = async <R extends object>(text: string, ...values: readonly unknown[]) =>
    (await client.query<R>(text, [network, ...values])).rows
  switch (part) {
    case 'log':
      return (await read<Slice>(LOG, seq, size))[0]!
    case 'lease':
      return (await read<Slice>(LEASES, after, size))[0]!
    case 'shape': {
      const findings = (await client.query<Finding>(SCHEMA)).rows
      for (const text of [LOCKED, comparison('network'), comparison('pool')])
        findings.push(...(await read<Finding>(text)))
      return { rows: 1, last: null, findings }
    }
    case 'source': {
      const ids = (await read<{ id: string }>(NEXT_SOURCES, after, size)).map(({ id }) => id)
      const findings: Finding[] = []
      for (const table of ids.length > 0 ? (['source', 'sighting'] as const) : [])
        findings.push(...(await read<Finding>(comparison(table), ids)))
      return { rows: ids.length, last: ids.at(-1) ?? null, findings }
    }
  }
}

async function compareAnchor(client: pg.Client, network: string, { seq, digest: expected }: Anchor) {
  const { head, digest } = await readHead(client, network, seq)
  if (seq === 0 || digest === expected.toLowerCase()) return []
  const [what, message]: [FindingCode, string] =
    seq > head
      ? ['LOG_SHORTER', `the log ends with event ${head}; it once went on to event ${seq}`]
      : digest === null
        ? ['EVENT_MISSING', `event ${seq} is missing`]
        : ['EVENT_ALTERED', `event ${seq} had another digest once: it, or an event before it, was altered`]
  return [{ what, message, seq, address: null, expected, found: digest }]
}

async function readHead(client: pg.Client, network: string, seq: number) {
  return (await client.query<{ head: number; digest: string | null }>(HEAD, [network, seq])).rows[0]!
}

/** Earlier findings stay until a whole run no longer has them: `since` its begin, else 0. */
function keep({ now, findings }: Stored, found: ReadonlyMap<string, Finding>, since: number) {
  const kept = new Map((findings ?? []).map((finding) => [keyOf(finding), finding]))
  for (const [key, finding] of found)
    kept.set(key, { ...finding, foundAt: kept.get(key)?.foundAt ?? now, seenAt: now })
  return [...kept.values()].filter(({ seenAt }) => seenAt >= since).slice(0, MOST_FINDINGS)
}

function keyOf({ what, seq, address, message }: Finding): string {
  return `${what} ${seq ?? ''} ${address ?? message}`
}

function cursorOf(seq: number, stored: string | null): Cursor {
  if (stored === null) return cursorAt('log', seq)
  const space = stored.indexOf(' ')
  return cursorAt(stored.slice(0, space) as Part, seq, stored.slice(space + 1))
}
