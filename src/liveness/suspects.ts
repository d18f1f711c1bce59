/**
 * From evidence to commands: leases nobody lists any more, leases of fenced boots, and what is set aside are judged
 * slice by slice, and the ledger is asked to do what the judge proves, with the version that was judged.
 *
 * - What must be asked first is written down as a question (`lookup`). A source that reports gets it with the answer to
 *   its next report; a source that is asked is asked here and now, a few at a time, and every exception is `error`,
 *   which means alive (M-08). Nothing grows while a look-up keeps failing: one row a lease, owner and source, a counter
 *   that is capped, and a wait that doubles and ends with a clear answer.
 * - A hold ends the reaping for its source in this run, or for its network: whatever was proven is proven again later.
 * - The ledger looks a second time under its lock. What it refuses is judged anew by the next run; when it cannot be
 *   asked at all, this run is over for the network.
 *
 * Nothing is remembered between runs but where a bounded walk stopped. Twice at once does everything once: the second
 * command meets another version.
 */
import type pg from 'pg'
import type { Command } from '../core/command.ts'
import { type Question as Ask, judgeHeld, type Proof, type Verdict } from '../core/judge.ts'
import { type Lease, leaseId } from '../core/lease.ts'
import { attachmentKey, describeOwner } from '../core/owner.ts'
import { judgePolicy, POLICY } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'
import type { Refusal } from '../core/refusal.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import type { Ledger } from '../ledger/ledger.ts'
import {
  LEASE_COLUMNS,
  type LeaseRow,
  POOL_COLUMNS,
  type PoolRow,
  readLease,
  readPool,
} from '../ledger/rows.ts'
import { ask as askFor } from '../postgres/on-connection.ts'
import { countLookup, type Logger } from '../telemetry.ts'
import { type Asked, type EvidenceRead, MOST_LEASES, takeEvidence, unansweredAfterMs } from './evidence.ts'
import { HIGHEST, isBusy, LOWEST, readGround } from './sighted.ts'
import { type LookUpReply, printable, type Question } from './source.ts'
import type { Source } from './source-rows.ts'

export type Judging = {
  readonly database: pg.Pool
  readonly ledger: Ledger
  readonly log: Pick<Logger, 'info' | 'warn'>
  readonly signal: AbortSignal
  /** The job, as events name it. */
  readonly actor: string
  /** Asks a source of a kind that is asked. */
  readonly lookUp: (source: Source, question: Question, signal: AbortSignal) => Promise<LookUpReply>
  /** How long sources are asked about one slice of leases; 0: each of as many as are asked at once. */
  readonly askForMs?: number | undefined
}

/** What a run did in a network, and what stops it from doing more. */
export type Run = {
  judged: number
  reaped: number
  restored: number
  /** Questions that wait for a source that reports. */
  waiting: number
  asked: number
  held: number
  refused: number
  /** The ledger cannot be asked now. */
  busy: boolean
  /** Sources, or '' for the network, that are on hold. */
  readonly holds: Set<string>
  /** Look-ups that failed one after the other, by source. */
  readonly failures: Map<string, number>
}

export function newRun(): Run {
  return {
    judged: 0,
    reaped: 0,
    restored: 0,
    waiting: 0,
    asked: 0,
    held: 0,
    refused: 0,
    busy: false,
    holds: new Set(),
    failures: new Map(),
  }
}

/** Leases judged in one run of one network; the next run goes on behind them. */
const MOST_OF_A_RUN = 20_000
/**
 * Of a slice: what is answered is used while it is fresh, and what was not asked is asked by the next run. With all of it
 * asked first, the answers of a source that takes seconds for each were too old when the last had come, run after run.
 */
const ASK_FOR_MS = POLICY.proofAgeMs / 3
/** Of a network, in one run: other networks, and the next run, wait no longer for a source that is slow. Not measured. */
const WALK_FOR_MS = 20_000
/** Leases walked by one statement to find those that nobody lists: some 30 ms of the database (not measured). */
const WALKED = 10_000
/** Commands on their way at once, so that a hold is met before the rest is sent. */
const COMMANDS_AT_ONCE = 25
/** A source that fails as often in a row is left alone for the rest of the run: each failure may take its whole time-out. */
const MOST_FAILURES = 16
const LONGEST_DETAIL = 1_000

const LEASE = LEASE_COLUMNS.map((column) => `l.${column}`).join(', ')
/** The last address of a lease. */
const LAST_OF_LEASE = `case l.prefix_length when masklen(l.address) then l.address
             else set_masklen(broadcast(set_masklen(l.address, l.prefix_length)), masklen(l.address)) end`
const SEEN_LIVE = `(
           select s.address from ipledger.sighting s
            where s.network_id = $1 and s.live and s.address >= l.address and s.address <= ${LAST_OF_LEASE}
            order by s.address limit 1)`

const WALK = `
  select l.address from ipledger.lease l
   where l.network_id = $1 and l.address > $2::inet and l.address <= $3::inet order by l.address offset $4 limit 1`

const UNSEEN = `
  select ${LEASE} from ipledger.lease l
   where l.network_id = $1 and l.address > $2::inet and l.address <= $3::inet and l.state in ('RESERVED', 'ACTIVE')
     and ${SEEN_LIVE} is null
   order by l.address limit $4`

// They are few, and have an index: all of them are read for each page, and no other lease is.
const SET_ASIDE = `
  select ${LEASE} from (
      select q.* from ipledger.lease q
       where q.network_id = $1 and q.state = 'QUARANTINED' and q.quarantined_by >= ''
       order by q.quarantined_by, q.quarantine_reason offset 0) l
   where l.address > $2::inet and l.address <= $3::inet and l.quarantine_reason <> 'OPERATOR'
   order by l.address limit $4`

// What waits, for a person or for an answer: all that is set aside, and what nobody lists.
const WAITING = `
  select ${LEASE} from ipledger.lease l
   where l.network_id = $1 and l.address > $2::inet and l.address <= $3::inet
     and (l.state = 'QUARANTINED' or ${SEEN_LIVE} is null)
   order by l.address limit $4`

const ALL = `
  select ${LEASE} from ipledger.lease l
   where l.network_id = $1 and l.address > $2::inet and l.address <= $3::inet order by l.address limit $4`

// What a fenced boot listed last stays listed for ever: its leases are found by their node. Those that are set aside too:
// without a source nobody else looks at them.
const FENCES = `
  select f.node, f.boot, coalesce(f.fenced_head, f.fenced_seq) as fenced_head from ipledger.fence f
   where f.network_id = $1 and (f.node, f.boot) > ($2, $3)
     and (select l.address from ipledger.lease l
           where l.network_id = $1 and l.node >= f.node and l.node <= f.node and l.node <> ''
             and l.boot = f.boot and l.fencing_token <= coalesce(f.fenced_head, f.fenced_seq)
             and l.quarantine_reason is distinct from 'OPERATOR'
           order by l.node, l.address limit 1) is not null
   order by f.node, f.boot limit 100`

const FENCED = `
  select ${LEASE} from ipledger.lease l
   where l.network_id = $1 and l.node >= $2 and l.node <= $2 and l.node <> '' and l.address > $5::inet
     and l.boot = $3 and l.fencing_token <= $4 and l.quarantine_reason is distinct from 'OPERATOR'
   order by l.node, l.address limit $6`

const ANSWERED = `
  select l.fencing_token, l.answered_at from ipledger.lookup l
   where l.network_id = $1
     and l.answered_at > greatest(to_timestamp($2::float8 / 1000), now() - interval '${POLICY.proofAgeMs} milliseconds')
   order by l.answered_at limit $3`

const BY_TOKEN = `
  select h.* from unnest($2::bigint[]) as k (token)
    cross join lateral (
      select ${LEASE} from ipledger.lease l
       where l.network_id = $1 and l.fencing_token >= k.token and l.fencing_token <= k.token
       order by l.fencing_token limit 1) h`

const POOLS = `
  select ${POOL_COLUMNS.join(', ')} from ipledger.pool where network_id = $1 and pool_id = any($2::bigint[])`

// A question that was handed over since the evidence was read stays: its answer quotes when it was asked.
const WRITE_LOOKUPS = `
  insert into ipledger.lookup as l
    (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
     owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, asked_at, answered_at, answer, terminal_since,
     epoch, detail, attempts, next_at)
  select $1, v.source_id, v.fencing_token, v.attachment_key, v.version, v.address, v.owner_kind, v.owner_name, v.owner_uid,
         v.owner_uid_named, v.owner_incarnation, v.owner_interface, v.node, to_timestamp(v.wanted_at / 1000),
         to_timestamp(v.asked_at / 1000), case when v.answer is not null then now() end, v.answer,
         case when v.answer = 'terminal' then least(to_timestamp(v.terminal_since / 1000), now()) end, v.epoch, v.detail, v.attempts, to_timestamp(v.next_at / 1000)
    from unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::inet[], $7::text[], $8::text[], $9::text[],
           $10::boolean[], $11::text[], $12::text[], $13::text[], $14::float8[], $15::float8[], $16::text[], $17::float8[],
           $18::text[], $19::text[], $20::int[], $21::float8[])
         as v (source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
           owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, asked_at, answer, terminal_since,
           epoch, detail, attempts, next_at)
  on conflict (network_id, source_id, fencing_token, attachment_key) do update
    set version = excluded.version, address = excluded.address, owner_kind = excluded.owner_kind,
        owner_name = excluded.owner_name, owner_uid = excluded.owner_uid, owner_uid_named = excluded.owner_uid_named,
        owner_incarnation = excluded.owner_incarnation, owner_interface = excluded.owner_interface, node = excluded.node,
        wanted_at = excluded.wanted_at, asked_at = excluded.asked_at, answered_at = excluded.answered_at,
        answer = excluded.answer, terminal_since = excluded.terminal_since, epoch = excluded.epoch,
        detail = excluded.detail, attempts = excluded.attempts, next_at = excluded.next_at
  where l.version <= excluded.version and (l.asked_at is null or l.asked_at <= excluded.wanted_at)`

const LOOKUPS_BOUND = `
  select l.source_id, l.fencing_token, l.attachment_key from ipledger.lookup l
   where l.network_id = $1 and (l.source_id, l.fencing_token, l.attachment_key) > ($2, $3, $4)
   order by l.source_id, l.fencing_token, l.attachment_key offset $5 limit 1`

// Of leases that ended, changed, or are seen again: when they are suspected anew they are asked after anew.
const DROP_LOOKUPS = `
  delete from ipledger.lookup
   where ${OF_NETWORK} and ctid = any(array(
     select k.row_id from (
       select q.ctid as row_id, q.fencing_token, q.version from ipledger.lookup q
        where q.network_id = $1 and (q.source_id, q.fencing_token, q.attachment_key) > ($2, $3, $4)
        order by q.source_id, q.fencing_token, q.attachment_key limit $5) k
     left join lateral (
       select x.version, x.seen from (
         select l.version, ${SEEN_LIVE} is not null and l.state <> 'QUARANTINED' as seen from ipledger.lease l
          where l.network_id = $1 and l.fencing_token >= k.fencing_token and l.fencing_token <= k.fencing_token
          order by l.fencing_token limit 1) x) h on true
     where h.version is null or h.version <> k.version or h.seen))`

const HAS_FENCES = `
  select (select f.fenced_seq from ipledger.fence f where f.network_id = $1 order by f.node, f.boot limit 1) is not null as has_fences`

/** For the test of their plans. */
export const SUSPECT_STATEMENTS = {
  suspectWalk: WALK,
  suspectUnseen: UNSEEN,
  suspectSetAside: SET_ASIDE,
  suspectWaiting: WAITING,
  suspectAll: ALL,
  suspectFences: FENCES,
  suspectFenced: FENCED,
  suspectAnswered: ANSWERED,
  suspectByToken: BY_TOKEN,
  suspectPools: POOLS,
  suspectWriteLookups: WRITE_LOOKUPS,
  suspectLookupsBound: LOOKUPS_BOUND,
  suspectDropLookups: DROP_LOOKUPS,
  suspectHasFences: HAS_FENCES,
} as const

// Walks.

/** Which leases are looked at, and by what statement they are found. */
const SUSPECTS = { unseen: UNSEEN, setAside: SET_ASIDE, waiting: WAITING, all: ALL } as const
export type Suspects = keyof typeof SUSPECTS

/**
 * One walk through the leases of a network that may be taken back, or given back. A network that nobody reports to
 * costs one small query.
 */
export async function judgeNetwork(
  judging: Judging,
  network: string,
  suspects: 'unseen' | 'setAside',
  from: string | null,
): Promise<{ readonly run: Run; readonly after: string | null }> {
  const { database, signal } = judging
  const run = newRun()
  const ground = await readGround(database, network)
  if (ground === null || ground.state !== 'READY') return { run, after: null }
  if (suspects === 'unseen' && (await hasFences(database, network))) await judgeFenced(judging, network, run)
  if (!ground.hasSources) return { run, after: null }
  if (suspects === 'unseen') await dropQuestions(database, network, signal)
  const end = performance.now() + WALK_FOR_MS
  for (let after = from ?? LOWEST; !signal.aborted; ) {
    const page = await readSuspects(database, network, suspects, { after, upTo: HIGHEST })
    await judgeSlice(judging, network, page.leases, run)
    if (page.next === null || run.busy) return { run, after: null }
    after = page.next
    if (run.judged >= MOST_OF_A_RUN || performance.now() > end) return { run, after }
  }
  return { run, after: null }
}

/** Leases of the kind after an address, at most a slice, and where the walk goes on; null: this was the end. */
export async function readSuspects(
  database: pg.Pool,
  network: string,
  suspects: Suspects,
  { after, upTo }: { readonly after: string; readonly upTo: string },
): Promise<{ readonly leases: readonly Lease[]; readonly next: string | null }> {
  const walked =
    suspects === 'setAside'
      ? []
      : await askFor<{ address: string }>(database, WALK, [network, after, upTo, WALKED - 1])
  const bound = walked[0]?.address
  const end = bound ?? upTo
  const rows = await askFor<LeaseRow>(database, SUSPECTS[suspects], [network, after, end, MOST_LEASES])
  const leases = rows.map(readLease)
  if (rows.length === MOST_LEASES) return { leases, next: leases.at(-1)!.address }
  return { leases, next: bound ?? null }
}

async function hasFences(database: pg.Pool, network: string): Promise<boolean> {
  const { rows } = await database.query<{ has_fences: boolean }>(HAS_FENCES, [network])
  return rows[0]!.has_fences
}

type FenceRow = { readonly node: string; readonly boot: string; readonly fenced_head: number }

async function judgeFenced(judging: Judging, network: string, run: Run): Promise<void> {
  const { database, signal } = judging
  for (let last: Pick<FenceRow, 'node' | 'boot'> = { node: '', boot: '' }; !signal.aborted; ) {
    const { rows } = await database.query<FenceRow>(FENCES, [network, last.node, last.boot])
    for (const { node, boot, fenced_head } of rows) {
      for (let after = LOWEST; !signal.aborted && !run.busy && run.judged < MOST_OF_A_RUN; ) {
        const found = await database.query<LeaseRow>(FENCED, [
          network,
          node,
          boot,
          fenced_head,
          after,
          MOST_LEASES,
        ])
        const leases = found.rows.map(readLease)
        await judgeSlice(judging, network, leases, run)
        if (leases.length < MOST_LEASES) break
        after = leases.at(-1)!.address
      }
    }
    const end = rows.at(-1)
    if (end === undefined || run.busy || run.judged >= MOST_OF_A_RUN) return
    last = end
  }
}

/** Leases about which a source has answered since, so that the answer is used while it is fresh. */
export async function judgeAnswered(
  judging: Judging,
  network: string,
  since: number,
): Promise<{ readonly run: Run; readonly upTo: number }> {
  const run = newRun()
  const { rows } = await judging.database.query<{ fencing_token: number; answered_at: number }>(ANSWERED, [
    network,
    since,
    MOST_LEASES,
  ])
  if (rows.length === 0) return { run, upTo: since }
  const tokens = [...new Set(rows.map((row) => row.fencing_token))]
  const leases = await judging.database.query<LeaseRow>(BY_TOKEN, [network, tokens])
  await judgeSlice(judging, network, leases.rows.map(readLease), run)
  return { run, upTo: Math.max(...rows.map((row) => row.answered_at)) }
}

/** Questions about leases that are over, changed, or seen again. */
export async function dropQuestions(
  database: pg.Pool,
  network: string,
  signal: AbortSignal,
): Promise<number> {
  const page = 1_000
  let dropped = 0
  type Key = { readonly source_id: string; readonly fencing_token: number; readonly attachment_key: string }
  for (let last: Key = { source_id: '', fencing_token: 0, attachment_key: '' }; !signal.aborted; ) {
    const from = [network, last.source_id, last.fencing_token, last.attachment_key]
    const bound = await database.query<Key>(LOOKUPS_BOUND, [...from, page - 1])
    const { rowCount } = await database.query(DROP_LOOKUPS, [...from, page])
    dropped += rowCount ?? 0
    const end = bound.rows[0]
    if (end === undefined) break
    last = end
  }
  return dropped
}

// A slice.

type Judged = { readonly lease: Lease; readonly verdict: Verdict }
type Proven = Extract<Verdict, { proof: Proof }>

/** At most `MOST_LEASES`: judged, what is proven is asked for, what must be asked first is asked or written down. */
export async function judgeSlice(
  judging: Judging,
  network: string,
  leases: readonly Lease[],
  run: Run,
): Promise<void> {
  if (leases.length === 0 || run.busy) return
  const pools = await readPoolsOf(judging.database, network, leases)
  const first = await judgeLeases(judging, network, leases, pools)
  if (first === null) return
  run.judged += leases.length
  await act(judging, network, first.judged, run)
  const wanted = first.judged.flatMap(({ lease, verdict }) =>
    'ask' in verdict ? verdict.ask.map((ask) => ({ lease, ask })) : [],
  )
  const due = different(wanted.flatMap((one) => dueQuestion(one, first.read)))
  const reporting = due.filter(({ source }) => source.kind === 'push')
  await writeLookups(judging.database, network, reporting.map(unanswered))
  run.waiting += wanted.filter(({ ask }) => first.read.sources.get(ask.source)?.kind === 'push').length
  const answered = await askNow(
    judging,
    network,
    due.filter(({ source }) => source.kind !== 'push'),
    run,
  )
  if (answered.size === 0) return
  // Judged with what was answered; whoever is still to be asked is asked by the next run.
  const second = await judgeLeases(
    judging,
    network,
    leases.filter(({ fencingToken }) => answered.has(fencingToken)),
    pools,
  )
  if (second !== null) await act(judging, network, second.judged, run)
}

async function judgeLeases(
  { database, log }: Judging,
  network: string,
  leases: readonly Lease[],
  pools: ReadonlyMap<number, Pool>,
): Promise<{ readonly read: EvidenceRead; readonly judged: readonly Judged[] } | null> {
  const read = await takeEvidence(database, network, leases)
  if (read === null) return null
  for (const { address } of read.unread) {
    log.warn({ network, address }, 'more is seen at this lease than is looked at; it is kept')
  }
  const judged = read.evidence.flatMap((evidence) => {
    const { lease } = evidence
    const pool = pools.get(lease.poolId)
    if (pool === undefined) return []
    return [{ lease, verdict: judgeHeld(evidence, judgePolicy(pool.reapPolicy)) }]
  })
  return { read, judged }
}

export async function readPoolsOf(
  database: pg.Pool,
  network: string,
  leases: readonly Pick<Lease, 'poolId'>[],
): Promise<ReadonlyMap<number, Pool>> {
  const ids = [...new Set(leases.map(({ poolId }) => poolId))]
  const rows = await askFor<PoolRow>(database, POOLS, [network, ids])
  return new Map(rows.map((row) => [row.pool_id, readPool(row)]))
}

// Commands.

async function act(judging: Judging, network: string, judged: readonly Judged[], run: Run): Promise<void> {
  const proven = judged.flatMap(({ lease, verdict }) => ('proof' in verdict ? [{ lease, verdict }] : []))
  for (let from = 0; from < proven.length && !run.busy && !judging.signal.aborted; from += COMMANDS_AT_ONCE) {
    await Promise.all(
      proven
        .slice(from, from + COMMANDS_AT_ONCE)
        .filter(({ verdict }) => !isHeldBack(verdict, run))
        .map(({ lease, verdict }) => ask(judging, network, lease, verdict, run)),
    )
  }
}

function isHeldBack({ verdict, because }: Proven, { holds }: Run): boolean {
  return verdict === 'reap' && (holds.has('') || because.some(({ source }) => holds.has(source ?? '')))
}

async function ask(
  { ledger, log, actor }: Judging,
  network: string,
  lease: Lease,
  { verdict, proof, because }: Proven,
  run: Run,
): Promise<void> {
  const envelope = {
    network,
    actor: { name: actor, node: null },
    cause: proof.cause,
    requestId: null,
    fingerprint: null,
    traceId: null,
  }
  const of = { token: lease.fencingToken, version: lease.version, proof }
  const command: Command =
    verdict === 'reap' ? { type: 'reapProven', ...envelope, ...of } : { type: 'restore', ...envelope, ...of }
  const outcome = await ledger.submit(command, { lane: 'reconciler' })
  const named = {
    network,
    address: lease.address,
    lease: leaseId(network, lease.fencingToken),
    owner: lease.owner === null ? null : describeOwner(lease.owner),
    cause: proof.cause,
  }
  if (outcome.ok) {
    if (verdict === 'reap') run.reaped += 1
    else run.restored += 1
    const told = because.map(({ text }) => text)
    log.info({ ...named, because: told }, verdict === 'reap' ? 'a lease was reaped' : 'a lease was restored')
    return
  }
  refused(outcome.refusal, { log, named, network }, run)
}

function refused(
  { reason, message, metadata }: Refusal,
  { log, named, network }: { log: Judging['log']; named: object; network: string },
  run: Run,
): void {
  run.refused += 1
  if (isBusy({ reason, message, metadata })) {
    if (!run.busy) log.warn({ network, reason }, 'judging is left to the next run')
    run.busy = true
    return
  }
  const { held } = metadata
  if (held === undefined) return
  // A source that is named like its network holds all: the next run knows better.
  const source = held === network ? '' : held
  if (run.holds.has(source)) return
  run.holds.add(source)
  run.held += 1
  log.warn({ ...named, source, why: message }, 'reaping is on hold until an operator resumes it')
}

// Questions.

type Wanted = { readonly lease: Lease; readonly ask: Ask }
type Due = Wanted & {
  readonly source: Source
  readonly now: number
  readonly attempts: number
  /** When it was asked before; null: never. */
  readonly before: number | null
}

/** What is to be asked now; nothing where the question is on its way, or its time has not come. */
function dueQuestion({ lease, ask: wanted }: Wanted, read: EvidenceRead): readonly Due[] {
  const source = read.sources.get(wanted.source)
  if (source === undefined) return []
  const { now } = read.ground
  const before = read.asked(source.id, lease.fencingToken, wanted.owner)
  const attempts = attemptsNow(before, lease, source, now)
  if (attempts === null) return []
  return [{ lease, ask: wanted, source, now, attempts, before: before?.askedAt ?? null }]
}

/** Which attempt this is; null: not now. */
function attemptsNow(before: Asked | undefined, lease: Lease, source: Source, now: number): number | null {
  if (before === undefined || before.version !== lease.version) return 1
  const { answer, askedAt, nextAt, attempts } = before
  const again = Math.min(attempts + 1, POLICY.lookUpAttempts)
  const isDue = nextAt === null || nextAt <= now
  if (answer === null) {
    // Not handed over yet, or the answer may still come.
    const isLost = askedAt !== null && now - askedAt > unansweredAfterMs(source)
    return isLost && isDue ? again : null
  }
  if (before.epoch !== source.standing.epoch) return 1
  // A clear answer that has grown old is asked for again at once.
  if (answer === 'gone' || answer === 'terminal') return attempts
  return isDue ? again : null
}

/** One an owner: two spellings of an attachment are one row. */
function different(due: readonly Due[]): readonly Due[] {
  const key = ({ source, lease, ask: { owner } }: Due) =>
    `${source.id} ${lease.fencingToken} ${attachmentKey(owner)}`
  return [...new Map(due.map((one) => [key(one), one])).values()]
}

function waitMs(attempts: number): number {
  return Math.min(POLICY.lookUpRetryMs * 2 ** (attempts - 1), POLICY.longestLookUpRetryMs)
}

type LookupCells = {
  readonly due: Due
  readonly askedAt: number | null
  readonly reply: LookUpReply | null
}

function unanswered(due: Due): LookupCells {
  return { due, askedAt: null, reply: null }
}

async function writeLookups(
  database: pg.Pool,
  network: string,
  cells: readonly LookupCells[],
): Promise<void> {
  if (cells.length === 0) return
  const column = <T>(cell: (one: LookupCells) => T) => cells.map(cell)
  const of = column(({ due }) => due.ask.owner)
  await database.query(WRITE_LOOKUPS, [
    network,
    column(({ due }) => due.source.id),
    column(({ due }) => due.lease.fencingToken),
    of.map(attachmentKey),
    column(({ due }) => due.lease.version),
    column(({ due }) => due.lease.address),
    of.map(({ kind }) => kind),
    of.map(({ name }) => name),
    of.map(({ uid }) => uid),
    of.map(({ uidNamed }) => uidNamed),
    of.map(({ incarnation }) => incarnation),
    of.map((owner) => owner.interface),
    column(({ due }) => due.lease.placement.node),
    column(({ due }) => due.now),
    column(({ askedAt }) => askedAt),
    column(({ reply }) => reply?.answer ?? null),
    column(({ reply }) => (reply?.answer === 'terminal' ? reply.since : null)),
    column(({ due, reply }) => (reply === null ? '' : due.source.standing.epoch)),
    column(({ reply }) => printable((reply?.detail ?? '').slice(0, LONGEST_DETAIL))),
    column(({ due }) => due.attempts),
    column(({ due }) => due.now + waitMs(due.attempts)),
  ])
}

/** Asks sources that are asked, and writes down what they say. The tokens of the leases something was said about. */
async function askNow(
  judging: Judging,
  network: string,
  due: readonly Due[],
  run: Run,
): Promise<ReadonlySet<number>> {
  const bySource = Map.groupBy(due, ({ source }) => source.id)
  const answered = await Promise.all(
    [...bySource.values()].map((questions) => askSource(judging, questions, run)),
  )
  const cells = answered.flat()
  await writeLookups(judging.database, network, cells)
  run.asked += cells.length
  return new Set(cells.map(({ due: { lease } }) => lease.fencingToken))
}

async function askSource(
  judging: Judging,
  questions: readonly Due[],
  run: Run,
): Promise<readonly LookupCells[]> {
  const cells: LookupCells[] = []
  const { failures } = run
  const { askForMs = ASK_FOR_MS } = judging
  // Never asked, or long ago: what this run does not get to is first in the next.
  const inTurn = questions.toSorted((a, b) => (a.before ?? 0) - (b.before ?? 0))
  const end = performance.now() + askForMs
  let next = 0
  const isInTime = (): boolean => next < POLICY.lookUpsAtOnce || performance.now() < end
  const askNext = async (): Promise<void> => {
    while (next < inTurn.length && isInTime() && !judging.signal.aborted) {
      const due = inTurn[next]!
      next += 1
      const { id } = due.source
      if ((failures.get(id) ?? 0) >= MOST_FAILURES) return
      const reply = await replyTo(judging, due)
      // That we stop is no answer.
      if (judging.signal.aborted) return
      countLookup(due.source.kind, reply.answer)
      failures.set(id, reply.answer === 'error' ? (failures.get(id) ?? 0) + 1 : 0)
      // Asked after the evidence was read, so no later than that is claimed.
      cells.push({ due, askedAt: due.now, reply })
    }
  }
  await Promise.all(Array.from({ length: POLICY.lookUpsAtOnce }, askNext))
  return cells
}

/** Whatever is not an answer is an error, and an error means alive (M-08). */
async function replyTo(
  { lookUp, signal }: Judging,
  { source, lease, ask: { owner } }: Due,
): Promise<LookUpReply> {
  const timeout = AbortSignal.timeout(POLICY.lookUpTimeoutMs)
  const ended = AbortSignal.any([signal, timeout])
  const { promise: cut, reject } = Promise.withResolvers<never>()
  const onAbort = () => reject(ended.reason)
  ended.addEventListener('abort', onAbort, { once: true })
  if (ended.aborted) onAbort()
  try {
    const { epoch } = source.standing
    const question = { owner, address: lease.address, node: lease.placement.node, epoch }
    return await Promise.race([lookUp(source, question, ended), cut])
  } catch (error) {
    const detail = timeout.aborted
      ? `no answer within ${POLICY.lookUpTimeoutMs} ms`
      : error instanceof Error
        ? error.message
        : String(error)
    return { answer: 'error', detail }
  } finally {
    ended.removeEventListener('abort', onAbort)
  }
}
