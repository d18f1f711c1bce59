/**
 * The intake of snapshots: BeginSnapshot, ReportSnapshot, ReportVerdicts, and the same for sources that are asked.
 *
 * Each reads the head of the ledger first. A report is one short transaction under the lock of its source's row, on a
 * connection of the service and never under the network's lock: what it writes are observations, and the ledger is
 * asked about them afterwards (`process-snapshot`). A set that did not change touches that one row; of reports that say
 * so many are taken in one transaction, if they come together (gather.ts).
 *
 * Whatever is wrong with a report makes it partial instead of refusing it: what it lists is in use all the same. Only
 * who is not known, or retired, is refused.
 */
import type pg from 'pg'
import { attachmentKey, type Owner } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { invalid, type Refusal, refusal } from '../core/refusal.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import { lostAfter } from '../ledger/eras.ts'
import { MOST_OF_ONE, readAddress, readOwner } from '../ledger/rows.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { type Answered, BEGIN, COMMIT, ROLLBACK, type Statement, trip } from '../postgres/trip.ts'
import { countLookup, countReport } from '../telemetry.ts'
import {
  addDigests,
  digestOf,
  digestOfGiven,
  type Entry,
  type EntrySet,
  type Listed,
  listedOf,
  type Packed,
  pack,
  readManyEntries,
  type Scope,
  splitKeys,
  unpack,
} from './entries.ts'
import { notAwaited } from './gather.ts'
import { type At, compareAll, compareNew, type Difference, writeDifference } from './sightings.ts'
import {
  type Begun,
  newSigningKey,
  readToken,
  SMALLEST_COOLDOWN,
  signToken,
  tokenLifeMs,
} from './snapshot-token.ts'
import type { GivenEntry, LookUpReply } from './source.ts'
import {
  readSource,
  SOURCE_COLUMNS,
  type Source,
  type SourceRow,
  standingCells,
  standingColumns,
  UPDATE_STANDING,
  UPDATE_STANDINGS,
} from './source-rows.ts'
import {
  type Assessment,
  advance,
  assess,
  type PartialReason,
  type ReportFacts,
  type Standing,
} from './standing.ts'

export type Intake = {
  /** Connections of the service's role. */
  readonly database: pg.Pool
  readonly log: { readonly warn: (fields: object, message: string) => void }
}

/** Chunks of one snapshot, and entries of all of them; each chunk is a request and has its own limit. */
export const MOST_CHUNKS = 200
export const MOST_ENTRIES = 200_000
/** Entries that are new and are handed back, to be looked at, at once; the rest is the job's. */
export const MOST_NEWS = 10_000
/** Questions handed over with one answer. */
const MOST_ASKS = 64
export const MOST_VERDICTS = 1_000

/** Numbers of the ledger that somebody quotes or has signed, and that it has not reached. */
export type Beyond = {
  readonly era: number
  readonly head: number
  /** Where the era of `head` ended, if that is over: beyond it, and not beyond the ledger's head. */
  readonly endedAt?: number
}

/** Where the ledger stands. */
export type Ground = {
  readonly networkState: string
  readonly era: number
  readonly head: number
  /** By the database's clock. */
  readonly now: number
  readonly smallestCooldownMs: number | null
  /**
   * Of a report that was taken: numbers of a token that is ours, so the database is older than itself and a new era is
   * due. Of anything else: numbers the caller quotes, and whoever knows the caller says what they are worth.
   */
  readonly beyond: Beyond | null
}

/** What the caller last saw; 0 for nothing. */
export type Quoted = { readonly era: number; readonly head: number }

/** Which source, asked for by whom. */
type Naming = {
  readonly network: string
  readonly source: string
  readonly quoted: Quoted
  /** The caller speaks only for sources of this node, and is told of no other. Absent: for any. */
  readonly boundTo?: string
}

export type Beginning = {
  readonly begun: Begun
  readonly token: string
  readonly expiresAt: number
  readonly source: Source
  readonly ground: Ground
}

/** A look-up that a source is asked for with the answer to its report. */
export type Ask = {
  /** Quoted back with the verdict. */
  readonly id: string
  readonly fencingToken: number
  readonly version: number
  readonly address: string
  readonly owner: Owner
  readonly node: string
}

export type Chunk = {
  /** From 0. */
  readonly number: number
  /** With the last one: how many entries all chunks have, and `digestOfGiven` of all of them. */
  readonly last: { readonly entries: number; readonly digest: string } | null
}

export type SnapshotReport = Naming & {
  /** Empty: none. */
  readonly token: string
  readonly epoch: string
  /** As the source declares it. */
  readonly complete: boolean
  readonly content: { readonly entries: readonly GivenEntry[] } | { readonly unchanged: string }
  readonly chunk: Chunk | null
}

/** A snapshot of a source that is asked, read already. */
export type TakenSnapshot = {
  readonly begun: Begun
  readonly epoch: string
  readonly complete: boolean
  readonly set: EntrySet
}

export type Reported = {
  readonly is: 'taken'
  readonly source: Source
  /** Of the snapshot; of one that proves no number, that of the one before. */
  readonly sequence: number
  readonly assessment: Assessment
  /** The epoch this one closed; empty: none. */
  readonly closedEpoch: string
  /** Entries kept, each once; of the last complete snapshot before, as many. */
  readonly size: number
  readonly sizeBefore: number
  readonly unreadable: number
  readonly ignored: number
  readonly appeared: number
  readonly vanished: number
  /** What it lists and did not list before, ended ones too; no more than is looked at, at once. */
  readonly news: readonly Entry[]
  /** By which the next report can say "unchanged"; empty: it cannot. */
  readonly digest: string
  readonly asks: readonly Ask[]
  /** For the next report, begun with this one; null: it begins by itself. */
  readonly next: { readonly token: string; readonly expiresAt: number } | null
  /** When somebody vouched that the boot it comes from is over; null: nobody did, before it was begun. */
  readonly fencedAt: number | null
  readonly ground: Ground
}

/**
 * A chunk that is not the last is kept; a digest that is not that of the set wants the entries; a caller that quotes
 * numbers beyond the ledger's is heard once it is clear what they are worth. None of these says a thing yet.
 */
export type Awaiting = { readonly is: 'staged' | 'resend' | 'beyond'; readonly ground: Ground }

export type Verdict = { readonly id: string; readonly answer: LookUpReply }

/** Where `ground.beyond` is set nothing was taken. */
export type VerdictsTaken = {
  readonly accepted: number
  /** Not asked, answered before, about an older version, or from another epoch than the source's. */
  readonly ignored: number
  readonly ground: Ground
}

const GROUND = `
  select n.state, n.era, clock_timestamp() as now,
         coalesce((select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1), 0) as head,
         ${SMALLEST_COOLDOWN} as smallest_cooldown_ms
    from ipledger.network n where n.network_id = $1`
const KEY = 'select k.secret from ipledger.signing_key k where k.network_id = $1'
const MAKE_KEY = `
  insert into ipledger.signing_key (network_id, secret, made_at) values ($1, $2, clock_timestamp()) on conflict do nothing`
const SOURCE = `
  select ${SOURCE_COLUMNS.join(', ')} from ipledger.source where network_id = $1 and source_id = $2`
const LOCK_SOURCE = `${SOURCE} for no key update`
// Whatever is locked is passed over: no transaction waits for another here, nor for a report of megabytes, so that one
// source holds up no other. One look-up each: PostgreSQL 15 would walk all sources for a list of them in order.
const LOCK_SOURCES = `
  select ${SOURCE_COLUMNS.join(', ')} from unnest($2::text[]) as k (wanted)
    cross join lateral (
      select ${SOURCE_COLUMNS.join(', ')} from ipledger.source
       where network_id = $1 and source_id >= k.wanted and source_id <= k.wanted
       order by source_id limit 1 for no key update skip locked) s`
const EPOCH = `
  select e.closed_at from ipledger.source_epoch e where e.network_id = $1 and e.source_id = $2 and e.epoch = $3`
// Of several reports: since when the boot of each is fenced. A set that stays is of the epoch that is open (`isListed`).
const MARKS = `
  select k.source_id, (
           select f.fenced_at from ipledger.fence f
            where f.network_id = $1 and f.node = s.node and f.boot = k.epoch and s.node <> '') as fenced_at
    from unnest($2::text[], $3::text[]) as k (source_id, epoch)
    cross join lateral (
      select x.node from ipledger.source x where x.network_id = $1 and x.source_id = k.source_id limit 1) s`
const OPEN_EPOCH = `
  insert into ipledger.source_epoch (network_id, source_id, epoch, begun_at, begun_sequence, begun_head)
  values ($1, $2, $3, to_timestamp($4::float8 / 1000), $5, $6)`
const CLOSE_EPOCH = `
  update ipledger.source_epoch set closed_at = to_timestamp($4::float8 / 1000), closed_by = $5
   where network_id = $1 and source_id = $2 and epoch = $3 and closed_at is null`
// Of the boot that its source is in, the source's row tells; of one that it leaves, or that reports beside it, this does.
const HEAR_BOOT = `
  insert into ipledger.boot_report as r (network_id, node, boot, source_id, reported_at)
  values ($1, $2, $3, $4, to_timestamp($5::float8 / 1000))
  on conflict (network_id, node, boot, source_id) do update
    set reported_at = greatest(r.reported_at, excluded.reported_at)`
const KEEP_SNAPSHOT = `
  insert into ipledger.snapshot
    (network_id, source_id, sequence, reported_at, epoch, era, head, begun_at, complete, counted, partial_because,
     entries, unreadable, ignored, appeared, vanished, digest)
  values ($1, $2, $3, to_timestamp($4::float8 / 1000), $5, $6, $7, to_timestamp($8::float8 / 1000), $9, $10, $11,
     $12, $13, $14, $15, $16, $17)
  on conflict do nothing`
// A chunk that is sent again replaces itself: its answer was lost.
const KEEP_PART = `
  insert into ipledger.snapshot_part
    (network_id, source_id, begun_at, part, received_at, epoch, entries, keys, given, digest, unreadable, ignored)
  values ($1, $2, to_timestamp($3::float8 / 1000), $4, clock_timestamp(), $5, $6, $7, $8, $9, $10, $11)
  on conflict (network_id, source_id, begun_at, part) do update
    set received_at = excluded.received_at, epoch = excluded.epoch, entries = excluded.entries, keys = excluded.keys,
        given = excluded.given, digest = excluded.digest, unreadable = excluded.unreadable, ignored = excluded.ignored`
const partOf = (columns: string) => `
  select p.epoch, ${columns} from ipledger.snapshot_part p
   where p.network_id = $1 and p.source_id >= $2 and p.source_id <= $2 and p.begun_at = to_timestamp($3::float8 / 1000)
     and p.part = $4
   order by p.source_id, p.begun_at, p.part limit 1`
const PART_KEYS = partOf('p.keys, p.given, p.digest, p.unreadable, p.ignored')
const PART_ENTRIES = partOf('p.entries')
const DROP_OLDER_PARTS = `
  delete from ipledger.snapshot_part
   where ${OF_NETWORK} and ctid = any(array(
     select ctid from ipledger.snapshot_part
      where network_id = $1 and source_id >= $2 and source_id <= $2 and begun_at < to_timestamp($3::float8 / 1000)
      order by source_id, begun_at))`
const DROP_PARTS = `
  delete from ipledger.snapshot_part
   where ${OF_NETWORK} and ctid = any(array(
     select ctid from ipledger.snapshot_part
      where network_id = $1 and source_id >= $2 and source_id <= $2 and begun_at <= to_timestamp($3::float8 / 1000)
      order by source_id, begun_at))`
const FENCE = `
  select f.fenced_at from ipledger.source s
    cross join lateral (
      select x.fenced_at from ipledger.fence x
       where x.network_id = $1 and x.node = s.node and x.boot = $3 order by x.node, x.boot limit 1) f
   where s.network_id = $1 and s.source_id = $2 and s.node <> ''`
const WAITING = `
  select l.fencing_token, l.version, l.address, l.owner_kind, l.owner_name, l.owner_uid, l.owner_uid_named,
         l.owner_incarnation, l.owner_interface, l.node, l.asked_at
    from ipledger.lookup l
   where l.network_id = $1 and l.source_id = $2 and l.answer is null
   order by l.wanted_at limit ${MOST_ASKS}`
const ALL_WAITING = `
  select w.* from unnest($2::text[]) as k (source_id)
    cross join lateral (
      select l.source_id, l.fencing_token, l.version, l.address, l.owner_kind, l.owner_name, l.owner_uid, l.owner_uid_named,
             l.owner_incarnation, l.owner_interface, l.node, l.asked_at
        from ipledger.lookup l
       where l.network_id = $1 and l.source_id >= k.source_id and l.source_id <= k.source_id and l.answer is null
       order by l.source_id, l.wanted_at limit ${MOST_ASKS}) w`
// The first time it is handed over is what counts: the answer is not older than that.
const ASKED = `
  update ipledger.lookup set asked_at = to_timestamp($4::float8 / 1000)
   where ${OF_NETWORK} and asked_at is null and ctid = any(array(
     select w.row_id from unnest($3::bigint[]) as k (token)
     cross join lateral (
       select ctid as row_id from ipledger.lookup
        where network_id = $1 and source_id = $2 and fencing_token >= k.token and fencing_token <= k.token
        order by fencing_token limit ${MOST_OF_ONE}) w))`
const ANSWERED = `
  update ipledger.lookup l
     set answered_at = now(), answer = v.answer, detail = v.detail, epoch = $3,
         terminal_since = case when v.answer = 'terminal' then least(to_timestamp(v.since / 1000), now()) end
    from unnest($4::bigint[], $5::text[], $6::bigint[], $7::float8[], $8::text[], $9::float8[], $10::text[])
           as v (fencing_token, attachment_key, version, asked, answer, since, detail)
    cross join lateral (
      select ctid as row_id from ipledger.lookup
       where network_id = $1 and source_id = $2 and fencing_token >= v.fencing_token
         and fencing_token <= v.fencing_token and attachment_key = v.attachment_key
       order by fencing_token limit 1) w
   where l.ctid = w.row_id and ${OF_NETWORK} and l.answered_at is null and l.version = v.version
     and l.asked_at = to_timestamp(v.asked / 1000)`

/** For the test of their plans. */
export const REPORT_STATEMENTS = {
  ground: GROUND,
  key: KEY,
  makeKey: MAKE_KEY,
  source: SOURCE,
  lockSource: LOCK_SOURCE,
  lockSources: LOCK_SOURCES,
  marks: MARKS,
  epoch: EPOCH,
  fence: FENCE,
  openEpoch: OPEN_EPOCH,
  closeEpoch: CLOSE_EPOCH,
  hearBoot: HEAR_BOOT,
  updateStanding: UPDATE_STANDING,
  updateStandings: UPDATE_STANDINGS,
  keepSnapshot: KEEP_SNAPSHOT,
  keepPart: KEEP_PART,
  partKeys: PART_KEYS,
  partEntries: PART_ENTRIES,
  dropOlderParts: DROP_OLDER_PARTS,
  dropParts: DROP_PARTS,
  waiting: WAITING,
  allWaiting: ALL_WAITING,
  asked: ASKED,
  answered: ANSWERED,
} as const

type StatementName = keyof typeof REPORT_STATEMENTS

function run(name: StatementName, ...values: readonly unknown[]): Statement {
  return { name: `report_${name}`, text: REPORT_STATEMENTS[name], values }
}

export function isRefusal<T extends object>(result: T | Refusal): result is Refusal {
  return 'reason' in result
}

// BeginSnapshot.

/** What a source takes with it when it begins to look: signed, and remembered nowhere. */
export async function beginSnapshot(
  { database }: Pick<Intake, 'database'>,
  request: Naming,
): Promise<Beginning | Refusal> {
  return onConnection(database, async (client) => {
    const known = await readGround(client, request)
    if (isRefusal(known)) return known
    const { ground, source } = known
    const begun: Begun = {
      network: request.network,
      source: request.source,
      era: ground.era,
      head: ground.head,
      begunAt: ground.now,
      sequence: source.standing.lastSequence + 1,
    }
    const key = known.key ?? (await makeKey(client, request.network))
    return { begun, token: signToken(begun, key), expiresAt: ground.now + lifeMs(ground), source, ground }
  })
}

async function makeKey(client: pg.Client, network: string): Promise<string> {
  // Somebody else may have made it meanwhile: the one that is there signs.
  const [, found] = await trip(client, [run('makeKey', network, newSigningKey()), run('key', network)])
  return found!.rows[0]!.secret as string
}

type Known = {
  readonly ground: Ground
  readonly source: Source
  /** Null: this network never signed anything. */
  readonly key: string | null
}

async function readGround(client: pg.Client, asked: Naming): Promise<Known | Refusal> {
  const { network, source } = asked
  const answers = await trip(client, [
    run('source', network, source),
    run('ground', network),
    run('key', network),
  ])
  return withLost(client, asked, knownFrom(answers, asked))
}

/** What the caller quotes of an era that is over may be what a failover lost; that is asked for only then. */
async function withLost(
  client: pg.Client,
  { network, quoted }: Naming,
  known: Known | Refusal,
): Promise<Known | Refusal> {
  if (isRefusal(known) || known.ground.beyond !== null) return known
  const endedAt = await lostAfter(client, network, quoted.head, known.ground.era)
  return endedAt === null ? known : { ...known, ground: { ...known.ground, beyond: { ...quoted, endedAt } } }
}

function knownFrom([source, ground, key]: readonly Answered[], asked: Naming): Known | Refusal {
  const row = ground!.rows[0]
  if (row === undefined) {
    return refusal('NETWORK_NOT_FOUND', `network ${asked.network} does not exist`, { network: asked.network })
  }
  const sourceRow = source!.rows[0]
  if (asked.boundTo !== undefined && sourceRow?.node !== asked.boundTo) {
    // The same for one that is not there: what there is elsewhere is not its business.
    const why = `${asked.source} is no source of node ${asked.boundTo}, and a token that is bound to a node speaks for no other; if it is new here, an admin registers and enables it`
    return refusal('SOURCE_MISMATCH', why, { source: asked.source, node: asked.boundTo })
  }
  if (sourceRow === undefined) {
    const waits = row.state === 'RECOVERING' ? ': the network recovers, and waits for that' : ''
    const why = `network ${asked.network} has no source ${asked.source}; register and enable it first${waits}`
    return refusal('SOURCE_NOT_FOUND', why, { source: asked.source })
  }
  const found = readSource(sourceRow as SourceRow)
  if (found.state === 'RETIRED') {
    return refusal('ILLEGAL_STATE', `source ${asked.source} is retired and reports no more`, {
      source: asked.source,
      state: found.state,
    })
  }
  const era = row.era as number
  const head = row.head as number
  return {
    ground: {
      networkState: row.state as string,
      era,
      head,
      now: row.now as number,
      smallestCooldownMs: row.smallest_cooldown_ms as number | null,
      beyond: isBeyond(asked.quoted, { era, head }) ? asked.quoted : null,
    },
    source: found,
    key: (key!.rows[0]?.secret as string | undefined) ?? null,
  }
}

/** One that reports beside it would close its epochs. */
function isAsked({ id, kind, state }: Source): Refusal {
  return refusal('ILLEGAL_STATE', `source ${id} is of kind ${kind}: it is asked, and does not report`, {
    source: id,
    state,
  })
}

function isBeyond(numbers: Beyond, { era, head }: Beyond): boolean {
  return numbers.era > era || numbers.head > head
}

function lifeMs({ smallestCooldownMs }: Ground): number {
  return tokenLifeMs(smallestCooldownMs)
}

// ReportSnapshot.

/** A source that reports: its token is read, its entries are, and its chunks are put together. */
export async function reportSnapshot(
  intake: Intake,
  report: SnapshotReport,
): Promise<Reported | Awaiting | Refusal> {
  const { chunk, content } = report
  if (report.epoch === '') return invalid('epoch', 'required')
  if ('unchanged' in content) {
    if (chunk !== null) return invalid('chunk', 'a set that did not change has no chunks')
    return takeAlone(intake, { ...report, unchanged: content.unchanged })
  }
  if (chunk === null) {
    return take(intake, report, {
      read: async (scope) => listedOf(await readManyEntries(content.entries, scope)),
    })
  }
  if (chunk.number >= MOST_CHUNKS) return invalid('chunk.number', `must be below ${MOST_CHUNKS}`)
  if (chunk.last !== null && chunk.last.entries > MOST_ENTRIES) {
    return invalid('chunk.total.entries', `must be at most ${MOST_ENTRIES}`)
  }
  return takeChunk(intake, report, content.entries, chunk)
}

/** A source that is asked: begun and read here, so nothing of it is signed. */
export function takeSnapshot(
  intake: Intake,
  { begun, epoch, complete, set }: TakenSnapshot,
): Promise<Reported | Awaiting | Refusal> {
  const { network, source } = begun
  const quoted = { era: 0, head: 0 }
  return take(intake, { network, source, epoch, complete, begun, quoted }, { read: () => listedOf(set) })
}

type ToTake = Naming & {
  readonly epoch: string
  readonly complete: boolean
} & ({ readonly token: string } | { readonly begun: Begun })

/** Of one that came in chunks: what putting it together found, and whether what cannot be read was told of. */
type Chunks = { readonly problems: readonly PartialReason[]; readonly told: boolean }

type Content = {
  readonly read: (scope: Scope, client: pg.Client) => Listed | Promise<Listed>
}

async function take(
  intake: Intake,
  report: ToTake,
  content: Content,
  chunks: Chunks | null = null,
): Promise<Reported | Awaiting | Refusal> {
  const { network, source: id } = report
  return onConnection(intake.database, async (client) => {
    const [, ...answers] = await trip(client, [
      BEGIN,
      // First, so that what is read next is what it waited for.
      run('lockSource', network, id),
      run('ground', network),
      run('key', network),
      run('epoch', network, id, report.epoch),
      run('waiting', network, id),
      run('fence', network, id, report.epoch),
    ])
    const known = await withLost(client, report, knownFrom(answers, report))
    if (isRefusal(known)) return leave(client, known)
    const { source } = known
    const [, , , epochs, waiting, fence] = answers
    if ('token' in report && source.kind !== 'push') return leave(client, isAsked(source))
    const marks = {
      epochClosed: (epochs!.rows[0]?.closed_at ?? null) !== null,
      fencedAt: (fence!.rows[0]?.fenced_at ?? null) as number | null,
    }
    const beginning = await readBeginning(client, report, known, marks)
    if (isOnlyQuoted(beginning, known)) return leave(client, { is: 'beyond' as const, ground: known.ground })
    const arrived: Arrived = {
      report,
      source,
      ground: { ...known.ground, beyond: beginning.beyond },
      key: known.key,
      beginning,
      ...marks,
      waiting: waiting!.rows,
    }
    const set = await content.read({ network, node: source.node, epoch: report.epoch }, client)
    const facts = factsOf(arrived, set, chunks)
    const assessment = assess(source.standing, facts)
    const found = await compare(client, source, assessment, set)
    const concluded = conclude(arrived, { set, facts, assessment, found })
    const { at, after, difference } = concluded
    const news = await writeDifference(client, difference, { at, listed: set, most: MOST_NEWS })
    expectCommitted(
      await trip(client, [
        run('updateStanding', network, id, ...standingCells(after)),
        ...concluded.besides,
        ...(chunks !== null && beginning.begun !== null
          ? [run('dropParts', network, id, beginning.begun.begunAt)]
          : []),
        COMMIT,
      ]),
    )
    countReport(network, assessment.complete)
    if (chunks?.told !== true) logUnreadable(intake, at, set)
    if (assessment.complete) logMuchShorter(intake, at, source.standing.size, facts.size)
    return { ...concluded.reported, news }
  })
}

/** A report, and what was read for it under the lock of its source. */
type Arrived = Marks & {
  readonly report: ToTake
  readonly source: Source
  readonly ground: Ground
  readonly key: Known['key']
  readonly beginning: BeginningFound
  readonly waiting: Answered['rows']
}

type Marks = { readonly epochClosed: boolean; readonly fencedAt: number | null }

/** `set`: null, if it is said to be the one that is listed. */
function factsOf(
  { report, source: { standing, intervalMs }, ground, beginning, epochClosed }: Arrived,
  set: Listed | null,
  chunks: Chunks | null,
): ReportFacts {
  const problems: PartialReason[] = [...beginning.problems, ...(chunks?.problems ?? [])]
  if (!report.complete && !problems.includes('DECLARED')) problems.push('DECLARED')
  if (set !== null && set.unreadableCount > 0) problems.push('UNREADABLE_ENTRY')
  return {
    begun: beginning.begun,
    reportedAt: ground.now,
    era: ground.era,
    epoch: report.epoch,
    epochClosed,
    intervalMs,
    size: set === null ? standing.size : set.keys.size,
    digest: set === null ? standing.digest : digestOf(set.keys),
    problems,
  }
}

type Concluded = {
  readonly at: At
  readonly after: Standing
  /** To be written with what is vanished by it and with the standing. */
  readonly difference: Difference
  readonly besides: readonly Statement[]
  readonly reported: Reported
}

function conclude(
  { report, source, ground, key, beginning, fencedAt, waiting }: Arrived,
  {
    set,
    facts,
    assessment,
    found,
  }: {
    readonly set: Listed | null
    readonly facts: ReportFacts
    readonly assessment: Assessment
    readonly found: Difference
  },
): Concluded {
  const { network, source: id } = report
  const { standing } = source
  const difference = assessment.ends ? found : { ...found, vanished: [] }
  const advanced = advance(standing, facts, assessment, {
    added: difference.appeared.size,
    kept: found.vanished.length - difference.vanished.length,
  })
  // Of the boot that the node's source is in, a report from another says nothing: of that one it is kept (6.3).
  const ofOther = source.node !== '' && advanced.epoch !== report.epoch
  const after = ofOther ? { ...advanced, lastBegunAt: standing.lastBegunAt } : advanced
  // What came out of order, or from a life that is over, protects and decides nothing: it has no head.
  const proven = assessment.because.some(isUnproven) ? null : beginning.begun
  const at: At = {
    network,
    source: id,
    epoch: report.epoch,
    sequence: after.lastSequence,
    head: proven?.head ?? 0,
    begunAt: proven?.begunAt ?? ground.now,
    lastSeenAt: standing.lastBegunAt ?? 0,
    bootBegunAt: source.node === '' ? null : standing.epochBegunAt,
  }
  const asks = after.epoch === report.epoch ? asksOf(waiting, ground.now) : []
  const toAsk = asks.filter(({ asked }) => !asked).map(({ ask }) => ask.fencingToken)
  const besides = [
    ...(assessment.opensEpoch ? turnEpochs(at, standing.epoch, ground.now) : []),
    ...heardFrom(source, after, report.epoch, at.begunAt),
    ...(isWorthKeeping(source, assessment, difference)
      ? [keepSnapshot({ at, ground, proven, assessment, facts, set, difference })]
      : []),
    ...(toAsk.length > 0 ? [run('asked', network, id, toAsk, ground.now)] : []),
  ]
  const reported: Reported = {
    is: 'taken',
    source: { ...source, standing: after },
    sequence: at.sequence,
    assessment,
    closedEpoch: assessment.opensEpoch ? standing.epoch : '',
    size: facts.size,
    sizeBefore: standing.size,
    unreadable: set?.unreadableCount ?? 0,
    ignored: set?.ignored ?? 0,
    appeared: difference.appeared.size,
    vanished: difference.vanished.length,
    news: [],
    digest: after.epoch === report.epoch ? after.digest : '',
    asks: asks.map(({ ask }) => ask),
    next: nextOf(source, after, ground, key),
    fencedAt: fencedAt !== null && fencedAt < at.begunAt ? fencedAt : null,
    ground,
  }
  return { at, after, difference, besides, reported }
}

/** Of an interval, so that a token lasts to the end of the next look. Not measured. */
const LASTS_INTERVALS = 1.5

/**
 * One call an interval is enough for who has nothing new to say. It is begun here, before its source looks again, so it
 * is evidence of less than one that is begun then, and of nothing else.
 */
function nextOf(
  { network, id, kind, intervalMs }: Source,
  { lastSequence }: Standing,
  ground: Ground,
  key: Known['key'],
): Reported['next'] {
  const { era, head, now, beyond } = ground
  const tooShort = lifeMs(ground) < LASTS_INTERVALS * intervalMs
  if (kind !== 'push' || key === null || beyond !== null || tooShort) return null
  const begun = { network, source: id, era, head, begunAt: now, sequence: lastSequence + 1 }
  return { token: signToken(begun, key), expiresAt: now + lifeMs(ground) }
}

// Sets that stay.

/** A report that says so: no entries, and no chunks. */
export type UnchangedReport = Omit<SnapshotReport, 'content' | 'chunk'> & { readonly unchanged: string }

/** Where it may have to wait for others. */
export type UnchangedCall = UnchangedReport & {
  /** False: nobody waits for the answer any more. */
  readonly isAwaited: () => boolean
}

type Outcome = Reported | Awaiting | Refusal

/** Half of the intake's connections: each of these may wait as long as the role waits for a lock. Not measured. */
export const MOST_ALONE = 4

/**
 * Reports of different sources of one network whose sets stay as they are, in one transaction: of 2,000 agents that
 * have nothing new to say each takes a row of it and no trip of its own. One whose source somebody else is writing to is
 * taken by itself, and waits for that alone; so is each of them, if the database refuses what one would write. Of these
 * no more than `MOST_ALONE` are taken at once, whatever group they came with, and nobody else's answer waits for them.
 */
export function createUnchangedIntake(
  intake: Pick<Intake, 'database'>,
): (calls: readonly UnchangedCall[]) => readonly Promise<Outcome>[] {
  const inTurn = createTurns(MOST_ALONE)

  return function take(calls) {
    if (calls.length === 1) return calls.map((call) => takeAlone(intake, call))
    const together = onConnection(intake.database, (client) => takeUnchanged(client, calls)).catch(
      (error: unknown) => {
        if (!isAboutRows(error)) throw error
        return []
      },
    )
    return calls.map(async (call, place) => {
      const outcome = (await together)[place] ?? null
      return outcome ?? inTurn(async () => (call.isAwaited() ? await takeAlone(intake, call) : notAwaited()))
    })
  }
}

async function takeAlone({ database }: Pick<Intake, 'database'>, report: UnchangedReport): Promise<Outcome> {
  const [outcome] = await onConnection(database, (client) => takeUnchanged(client, [report]))
  return outcome!
}

/** So many at once; the others in the order in which they came. */
function createTurns(most: number) {
  const queue: (() => void)[] = []
  let free = most

  return async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (free > 0) free -= 1
    else await new Promise<void>((resolve) => queue.push(resolve))
    try {
      return await work()
    } finally {
      const next = queue.shift()
      if (next === undefined) free += 1
      else next()
    }
  }
}

/** SQLSTATE classes 22 and 23: nothing of the transaction is there, and each may be tried by itself. */
function isAboutRows(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^2[23]/.test(String(error.code))
}

/** Null: its source was not found, or is locked. Never of one alone. */
async function takeUnchanged(
  client: pg.Client,
  reports: readonly UnchangedReport[],
): Promise<readonly (Outcome | null)[]> {
  const { network } = reports[0]!
  const ids = reports.map(({ source }) => source)
  const alone = reports.length === 1
  const [, sources, ground, key, marks, waiting] = await trip(client, [
    BEGIN,
    // First, so that what is read next is what it waited for.
    alone ? run('lockSource', network, ids[0]) : run('lockSources', network, ids),
    run('ground', network),
    run('key', network),
    run(
      'marks',
      network,
      ids,
      reports.map(({ epoch }) => epoch),
    ),
    run('allWaiting', network, ids),
  ])
  const rows = new Map(sources!.rows.map((row) => [row.source_id, row]))
  const marksOf = new Map(marks!.rows.map((row) => [row.source_id, row]))
  const waitingFor = Map.groupBy(waiting!.rows, (row) => row.source_id)

  async function weigh(report: UnchangedReport): Promise<Concluded | Awaiting | Refusal | null> {
    const row = rows.get(report.source)
    if (row === undefined && !alone) return null
    const own = { ...sources!, rows: row === undefined ? [] : [row] }
    const known = await withLost(client, report, knownFrom([own, ground!, key!], report))
    if (isRefusal(known)) return known
    const { source } = known
    if (source.kind !== 'push') return isAsked(source)
    const fencedAt = (marksOf.get(report.source)?.fenced_at ?? null) as number | null
    const read = { epochClosed: false, fencedAt }
    const beginning = await readBeginning(client, report, known, read)
    if (isOnlyQuoted(beginning, known)) return { is: 'beyond', ground: known.ground }
    const arrived: Arrived = {
      report,
      source,
      ground: { ...known.ground, beyond: beginning.beyond },
      key: known.key,
      beginning,
      ...read,
      waiting: waitingFor.get(report.source) ?? [],
    }
    if (!isListed(report.unchanged, report.epoch, source)) return { is: 'resend', ground: arrived.ground }
    const facts = factsOf(arrived, null, null)
    const assessment = assess(source.standing, facts)
    return conclude(arrived, { set: null, facts, assessment, found: NO_DIFFERENCE })
  }

  const weighed: Awaited<ReturnType<typeof weigh>>[] = []
  for (const report of reports) weighed.push(await weigh(report))
  const taken = weighed.filter((one) => one !== null && 'reported' in one)
  if (taken.length === 0) await trip(client, [ROLLBACK])
  else {
    expectCommitted(
      await trip(client, [
        run('updateStandings', network, ...standingColumns(taken.map(({ at, after }) => [at.source, after]))),
        ...taken.flatMap(({ besides }) => besides),
        COMMIT,
      ]),
    )
    for (const { reported } of taken) countReport(network, reported.assessment.complete)
  }
  return weighed.map((one) => (one !== null && 'reported' in one ? one.reported : one))
}

async function compare(
  client: pg.Client,
  { network, id }: Source,
  { complete, unchanged }: Assessment,
  { keys }: Listed,
): Promise<Difference> {
  if (unchanged) return NO_DIFFERENCE
  return (complete ? compareAll : compareNew)(client, { network, source: id }, keys)
}

/** Of another epoch the same entries may be another set: on a node, they have another boot. */
function isListed(digest: string, epoch: string, { standing }: Source): boolean {
  return digest !== '' && digest === standing.digest && epoch === standing.epoch
}

const NO_DIFFERENCE: Difference = { appeared: new Set(), vanished: [] }

function isUnproven(reason: PartialReason): boolean {
  return reason === 'OUT_OF_SEQUENCE' || reason === 'CLOSED_EPOCH'
}

type BeginningFound = {
  /** Null: nothing proves when it was begun. */
  readonly begun: Begun | null
  readonly problems: readonly PartialReason[]
  readonly beyond: Beyond | null
}

async function readBeginning(
  client: pg.Client,
  report: ToTake,
  { ground, key }: Known,
  { fencedAt }: Pick<Marks, 'fencedAt'>,
): Promise<BeginningFound> {
  const unproven = (why: PartialReason, beyond: Beyond | null = null): BeginningFound => ({
    begun: null,
    problems: [why],
    beyond,
  })
  if ('token' in report && report.token === '') return unproven('NO_TOKEN')
  const begun = 'begun' in report ? report.begun : key === null ? null : readToken(report.token, key)
  if (begun === null) return unproven('TOKEN_INVALID')
  if (begun.network !== report.network || begun.source !== report.source) {
    return unproven('TOKEN_OF_ANOTHER_SOURCE')
  }
  if (isBeyond(begun, ground)) return unproven('BEYOND_HEAD', { era: begun.era, head: begun.head })
  if (begun.era < ground.era) {
    const { era, head } = begun
    const endedAt = await lostAfter(client, report.network, head, ground.era)
    return endedAt === null ? unproven('OTHER_ERA') : unproven('BEYOND_HEAD', { era, head, endedAt })
  }
  if (ground.now > begun.begunAt + lifeMs(ground)) return unproven('TOKEN_EXPIRED')
  // Whether its source looked before somebody vouched for the end of its boot, or after, the token does not tell: it was
  // heard when it arrived (6.3).
  if (fencedAt !== null && begun.begunAt <= fencedAt) return unproven('TOKEN_EXPIRED')
  return { begun, problems: [], beyond: null }
}

/** Numbers that the caller says it saw, and nothing of ours proves. */
function isOnlyQuoted({ beyond }: BeginningFound, { ground }: Known): boolean {
  return beyond === null && ground.beyond !== null
}

function turnEpochs(at: At, before: string, now: number): readonly Statement[] {
  const { network, source, epoch, sequence, head } = at
  const open = run('openEpoch', network, source, epoch, now, sequence, head)
  return before === '' ? [open] : [run('closeEpoch', network, source, before, now, epoch), open]
}

/** When the boots of a node were last heard of, but for the one that its source is in. */
function heardFrom(
  { network, id, node, standing }: Source,
  { epoch }: Standing,
  of: string,
  begunAt: number,
): readonly Statement[] {
  if (node === '') return []
  const { epoch: before, lastBegunAt } = standing
  const hasLeft = before !== '' && before !== epoch && lastBegunAt !== null
  return [
    ...(hasLeft ? [run('hearBoot', network, node, before, id, lastBegunAt)] : []),
    ...(of !== epoch && of !== '' ? [run('hearBoot', network, node, of, id, begunAt)] : []),
  ]
}

/** One that changed nothing, and says of its source what the one before said, leaves no row: nothing grows. */
function isWorthKeeping({ standing }: Source, assessment: Assessment, difference: Difference): boolean {
  return (
    assessment.opensEpoch ||
    difference.appeared.size + difference.vanished.length > 0 ||
    standing.reportedAt === null ||
    assessment.because.join() !== standing.partialBecause.join()
  )
}

function keepSnapshot({
  at,
  ground,
  proven,
  assessment,
  facts,
  set,
  difference,
}: {
  readonly at: At
  readonly ground: Ground
  readonly proven: Begun | null
  readonly assessment: Assessment
  readonly facts: ReportFacts
  readonly set: Listed | null
  readonly difference: Difference
}): Statement {
  return run(
    'keepSnapshot',
    at.network,
    at.source,
    at.sequence,
    ground.now,
    at.epoch,
    ground.era,
    at.head,
    proven?.begunAt ?? null,
    assessment.complete,
    assessment.counted,
    assessment.because,
    facts.size,
    set?.unreadableCount ?? 0,
    set?.ignored ?? 0,
    difference.appeared.size,
    difference.vanished.length,
    facts.digest,
  )
}

function logUnreadable(
  { log }: Intake,
  at: Pick<At, 'network' | 'source' | 'sequence'>,
  set: Pick<Listed, 'unreadable' | 'unreadableCount'>,
): void {
  const { network, source, sequence } = at
  for (const { text, why } of set.unreadable) {
    log.warn({ network, source, sequence, text, why }, 'an entry of a snapshot cannot be read')
  }
  const more = set.unreadableCount - set.unreadable.length
  if (more > 0) {
    log.warn({ network, source, sequence, more }, 'more entries of this snapshot cannot be read')
  }
}

/** Shorter by more than may be reaped in an hour: that tells of the source, and hardly of the world (cilium#9888). */
function logMuchShorter(
  { log }: Intake,
  { network, source, sequence }: Pick<At, 'network' | 'source' | 'sequence'>,
  before: number,
  size: number,
): void {
  const lost = before - size
  if (lost <= POLICY.heldAboveReaps || lost <= POLICY.heldAboveShare * before) return
  log.warn({ network, source, sequence, before, size }, 'a complete list is much shorter than the one before')
}

// Chunks.

async function takeChunk(
  intake: Intake,
  report: SnapshotReport,
  given: readonly GivenEntry[],
  chunk: Chunk,
): Promise<Reported | Awaiting | Refusal> {
  const { network, source: id, epoch } = report
  const staged = await onConnection(intake.database, async (client): Promise<Staged | Refusal> => {
    const known = await readGround(client, report)
    if (isRefusal(known)) return known
    const { ground, source } = known
    if (source.kind !== 'push') return isAsked(source)
    // The last chunk is read once more, with what marks its epoch.
    const beginning = await readBeginning(client, report, known, { fencedAt: null })
    const { begun } = beginning
    const set = await readManyEntries(given, { network, node: source.node, epoch })
    if (isOnlyQuoted(beginning, known)) return { set, ground, whole: 'beyond' }
    if (begun === null) return { set, ground, whole: null }
    const digest = digestOfGiven(given)
    logUnreadable(intake, { network, source: id, sequence: begun.sequence }, set)
    if (chunk.last === null) {
      await trip(client, [
        run('dropOlderParts', network, id, begun.begunAt),
        run(
          'keepPart',
          network,
          id,
          begun.begunAt,
          chunk.number,
          epoch,
          JSON.stringify([...set.entries.values()].map(pack)),
          [...set.entries.keys()].join(''),
          given.length,
          report.complete ? digest : NOT_COMPLETE,
          set.unreadableCount,
          set.ignored,
        ),
      ])
      return { set, ground, whole: 'later' }
    }
    return { set, ground, whole: await putTogether(client, report, begun, { set, given, digest, chunk }) }
  })
  if (isRefusal(staged)) return staged
  const { set, ground, whole } = staged
  if (whole === 'later') return { is: 'staged', ground }
  if (whole === 'beyond') return { is: 'beyond', ground }
  // Nothing proves which snapshot it is a part of: what it lists protects.
  if (whole === null) {
    return takeRest(false)
  }
  try {
    const content: Content = { read: (_, client) => whole.listed(client) }
    return await take(intake, report, content, { problems: whole.problems, told: true })
  } catch (error) {
    if (!(error instanceof PartGone)) throw error
    return takeRest(true)
  }

  function takeRest(told: boolean): Promise<Reported | Awaiting | Refusal> {
    return take(intake, report, { read: () => listedOf(set) }, { problems: ['CHUNK_MISSING'], told })
  }
}

/** Kept as the digest of a part whose source says that not all is in it: neither is it in the whole then (INV-6). */
const NOT_COMPLETE = ''

type Whole = {
  readonly listed: (client: pg.Client) => Listed
  readonly problems: readonly PartialReason[]
}
type Staged = {
  readonly set: EntrySet
  readonly ground: Ground
  readonly whole: Whole | 'later' | 'beyond' | null
}

/**
 * The last chunk and all before it, one at a time: the whole in one answer would be megabytes, and all of its entries in
 * the process a hundred. Only their keys are read, and held; the entries of those that are new are asked for then.
 */
async function putTogether(
  client: pg.Client,
  { network, source, epoch }: SnapshotReport,
  begun: Begun,
  last: {
    readonly set: EntrySet
    readonly given: readonly GivenEntry[]
    readonly digest: string
    readonly chunk: Chunk
  },
): Promise<Whole> {
  const keys = new Set<string>(last.set.entries.keys())
  /** Which of them each part is the only one to have, or the first. */
  const parts: { readonly part: number; readonly keys: ReadonlySet<string> }[] = []
  const digests = [last.digest]
  let given = last.given.length
  let { unreadableCount, ignored } = last.set
  for (let part = 0; part < last.chunk.number; part += 1) {
    const row = await readPart<PartKeys>(client, 'partKeys', { network, source, epoch, begun, part })
    // The count will tell.
    if (row === undefined || row.keys === null) continue
    const own = new Set<string>()
    for (const key of splitKeys(row.keys)) {
      if (!keys.has(key)) own.add(key)
      keys.add(key)
    }
    parts.push({ part, keys: own })
    unreadableCount += row.unreadable
    ignored += row.ignored
    digests.push(row.digest)
    given += row.given
  }

  async function* pages(reading: pg.Client, wanted: ReadonlySet<string>): AsyncGenerator<readonly Entry[]> {
    yield [...last.set.entries.values()].filter(({ key }) => wanted.has(key))
    for (const { part, keys: own } of parts) {
      if (own.isDisjointFrom(wanted)) continue
      const row = await readPart<PartEntries>(reading, 'partEntries', { network, source, epoch, begun, part })
      const entries = row?.entries.filter(([key]) => own.has(key) && wanted.has(key)) ?? []
      if (entries.length < own.intersection(wanted).size) throw new PartGone()
      yield entries.map(unpack)
    }
  }

  return {
    listed: (reading) => ({
      keys,
      // Of other parts it was told when they arrived.
      unreadable: last.set.unreadable,
      unreadableCount,
      ignored,
      pages: (wanted) => pages(reading, wanted),
    }),
    problems: digests.includes(NOT_COMPLETE)
      ? ['DECLARED']
      : compareTotal(last.chunk.last!, given, addDigests(digests)),
  }
}

async function readPart<T extends { readonly epoch: string }>(
  client: pg.Client,
  name: 'partKeys' | 'partEntries',
  {
    network,
    source,
    epoch,
    begun,
    part,
  }: Pick<SnapshotReport, 'network' | 'source' | 'epoch'> & { readonly begun: Begun; readonly part: number },
): Promise<T | undefined> {
  const [answered] = await trip(client, [run(name, network, source, begun.begunAt, part)])
  const row = answered!.rows[0] as T | undefined
  return row?.epoch === epoch ? row : undefined
}

function compareTotal(
  total: NonNullable<Chunk['last']>,
  given: number,
  digest: string,
): readonly PartialReason[] {
  if (given !== total.entries) return ['CHUNK_MISSING']
  return digest === total.digest ? [] : ['DIGEST_DIFFERS']
}

/** Its source began another snapshot meanwhile, whose parts are kept instead, or sent this one again as something else. */
class PartGone extends Error {}

type PartKeys = {
  readonly epoch: string
  readonly keys: string | null
  readonly given: number
  readonly digest: string
  readonly unreadable: number
  readonly ignored: number
}

type PartEntries = { readonly epoch: string; readonly entries: readonly Packed[] }

// ReportVerdicts.

/**
 * Answers to the look-ups a source was asked for. Only what was asked, of the epoch the source is in, counts; the rest
 * changes nothing, since a look-up without an answer means alive.
 */
export async function reportVerdicts(
  { database }: Pick<Intake, 'database'>,
  request: Naming & { readonly epoch: string; readonly verdicts: readonly Verdict[] },
): Promise<VerdictsTaken | Refusal> {
  const { network, source: id, epoch, verdicts } = request
  if (verdicts.length > MOST_VERDICTS) return invalid('verdicts', `has more than ${MOST_VERDICTS} entries`)
  return onConnection(database, async (client) => {
    const known = await readGround(client, request)
    if (isRefusal(known)) return known
    const { ground, source } = known
    if (source.kind !== 'push') return isAsked(source)
    const rows = epoch === source.standing.epoch && ground.beyond === null ? verdictRows(verdicts) : []
    if (rows.length === 0) return { accepted: 0, ignored: verdicts.length, ground }
    const [answered] = await trip(client, [
      run(
        'answered',
        network,
        id,
        epoch,
        rows.map((row) => row.token),
        rows.map((row) => row.about),
        rows.map((row) => row.version),
        rows.map((row) => row.asked),
        rows.map((row) => row.answer),
        rows.map((row) => row.since),
        rows.map((row) => row.detail),
      ),
    ])
    for (const { answer } of rows) countLookup(source.kind, answer)
    return { accepted: answered!.rowCount, ignored: verdicts.length - answered!.rowCount, ground }
  })
}

type VerdictRow = {
  readonly token: number
  readonly about: string
  readonly version: number
  readonly asked: number
  readonly answer: LookUpReply['answer']
  readonly since: number | null
  readonly detail: string
}

/** One an ask: two answers that differ are no clear answer. */
function verdictRows(verdicts: readonly Verdict[]): readonly VerdictRow[] {
  const rows = new Map<string, VerdictRow>()
  for (const { id, answer } of verdicts) {
    const ask = readAskId(id)
    if (ask === null) continue
    const key = `${ask.token} ${ask.about}`
    const before = rows.get(key)
    const since = answer.answer === 'terminal' ? answer.since : null
    rows.set(
      key,
      before === undefined || before.answer === answer.answer
        ? { ...ask, answer: answer.answer, since, detail: answer.detail }
        : { ...ask, answer: 'unknown', since: null, detail: 'was answered twice, and differently' },
    )
  }
  return [...rows.values()]
}

type AskNamed = Pick<VerdictRow, 'token' | 'about' | 'version' | 'asked'>

function askId({ token, version, asked, about }: AskNamed): string {
  return Buffer.from(`${token}.${version}.${asked}.${about}`).toString('base64url')
}

/** Forged, it names a question that nobody asked, or one that its source was asked anyway. */
function readAskId(id: string): AskNamed | null {
  const found = /^([0-9]{1,16})\.([0-9]{1,16})\.([0-9]{1,16})\.(.*)$/su.exec(
    Buffer.from(id, 'base64url').toString(),
  )
  if (found === null || found[4]!.includes('\0')) return null
  const [token, version, asked] = found.slice(1, 4).map(Number) as [number, number, number]
  const numbers = [token, version, asked]
  return numbers.every(Number.isSafeInteger) ? { token, version, asked, about: found[4]! } : null
}

function asksOf(
  rows: Answered['rows'],
  now: number,
): readonly { readonly ask: Ask; readonly asked: boolean }[] {
  return rows.map((row) => {
    const token = row.fencing_token as number
    const version = row.version as number
    const askedAt = row.asked_at as number | null
    const owner = readOwner(row as Parameters<typeof readOwner>[0])!
    return {
      asked: askedAt !== null,
      ask: {
        id: askId({ token, version, asked: askedAt ?? now, about: attachmentKey(owner) }),
        fencingToken: token,
        version,
        address: readAddress(row.address as string),
        owner,
        node: row.node as string,
      },
    }
  })
}

// Connections.

async function leave<T>(client: pg.Client, result: T): Promise<T> {
  await trip(client, [ROLLBACK])
  return result
}

function expectCommitted(answered: readonly Answered[]): void {
  const { command } = answered.at(-1)!
  if (command !== 'COMMIT') throw new Error(`the report's transaction ended with ${command}`)
}
