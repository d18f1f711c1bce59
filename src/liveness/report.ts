/**
 * The intake of snapshots: BeginSnapshot, ReportSnapshot, ReportVerdicts, and the same for sources that are asked.
 *
 * Each reads the head of the ledger first. A report is one short transaction under the lock of its source's row, on a
 * connection of the service and never under the network's lock: what it writes are observations, and the ledger is
 * asked about them afterwards (`process-snapshot`). A set that did not change touches that one row.
 *
 * Whatever is wrong with a report makes it partial instead of refusing it: what it lists is in use all the same. Only
 * who is not known, or retired, is refused.
 */
import type pg from 'pg'
import { attachmentKey, type Owner } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { invalid, type Refusal, refusal } from '../core/refusal.ts'
import { OF_NETWORK } from '../ledger/append.ts'
import { MOST_OF_ONE, readAddress, readOwner } from '../ledger/rows.ts'
import { type Answered, BEGIN, COMMIT, ROLLBACK, type Statement, sever, trip } from '../postgres/trip.ts'
import {
  addDigests,
  digestOf,
  digestOfGiven,
  type Entry,
  type EntrySet,
  joinEntries,
  type Packed,
  pack,
  readManyEntries,
  type Scope,
  unpack,
} from './entries.ts'
import { type At, compareAll, compareNew, type Difference, writeDifference } from './sightings.ts'
import { type Begun, newSigningKey, readToken, signToken, tokenLifeMs } from './snapshot-token.ts'
import type { GivenEntry, LookUpReply } from './source.ts'
import {
  readSource,
  SOURCE_COLUMNS,
  type Source,
  type SourceRow,
  standingCells,
  UPDATE_STANDING,
} from './source-rows.ts'
import { type Assessment, advance, assess, type PartialReason, type ReportFacts } from './standing.ts'

export type Intake = {
  /** Connections of the service's role. */
  readonly database: pg.Pool
  readonly log: { readonly warn: (fields: object, message: string) => void }
}

/** Chunks of one snapshot, and entries of all of them; each chunk is a request and has its own limit. */
export const MOST_CHUNKS = 200
export const MOST_ENTRIES = 200_000
/** Questions handed over with one answer. */
const MOST_ASKS = 64
export const MOST_VERDICTS = 1_000

/** Numbers of the ledger that somebody quotes or has signed, and that it has not reached. */
export type Beyond = { readonly era: number; readonly head: number }

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
  /** What it lists and did not list before, ended ones too. */
  readonly news: readonly Entry[]
  /** By which the next report can say "unchanged"; empty: it cannot. */
  readonly digest: string
  readonly asks: readonly Ask[]
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
         (select min((p.settings ->> 'cooldownMs')::bigint) from ipledger.pool p where p.network_id = $1) as smallest_cooldown_ms
    from ipledger.network n where n.network_id = $1`
const KEY = 'select k.secret from ipledger.signing_key k where k.network_id = $1'
const MAKE_KEY = `
  insert into ipledger.signing_key (network_id, secret, made_at) values ($1, $2, clock_timestamp()) on conflict do nothing`
const SOURCE = `
  select ${SOURCE_COLUMNS.join(', ')} from ipledger.source where network_id = $1 and source_id = $2`
const LOCK_SOURCE = `${SOURCE} for no key update`
const EPOCH = `
  select e.closed_at from ipledger.source_epoch e where e.network_id = $1 and e.source_id = $2 and e.epoch = $3`
const OPEN_EPOCH = `
  insert into ipledger.source_epoch (network_id, source_id, epoch, begun_at, begun_sequence, begun_head)
  values ($1, $2, $3, to_timestamp($4::float8 / 1000), $5, $6)`
const CLOSE_EPOCH = `
  update ipledger.source_epoch set closed_at = to_timestamp($4::float8 / 1000), closed_by = $5
   where network_id = $1 and source_id = $2 and epoch = $3 and closed_at is null`
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
    (network_id, source_id, begun_at, part, received_at, epoch, entries, given, digest, unreadable, ignored)
  values ($1, $2, to_timestamp($3::float8 / 1000), $4, clock_timestamp(), $5, $6, $7, $8, $9, $10)
  on conflict (network_id, source_id, begun_at, part) do update
    set received_at = excluded.received_at, epoch = excluded.epoch, entries = excluded.entries, given = excluded.given,
        digest = excluded.digest, unreadable = excluded.unreadable, ignored = excluded.ignored`
const PART = `
  select p.epoch, p.entries, p.given, p.digest, p.unreadable, p.ignored from ipledger.snapshot_part p
   where p.network_id = $1 and p.source_id >= $2 and p.source_id <= $2 and p.begun_at = to_timestamp($3::float8 / 1000)
     and p.part = $4
   order by p.source_id, p.begun_at, p.part limit 1`
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
  epoch: EPOCH,
  fence: FENCE,
  openEpoch: OPEN_EPOCH,
  closeEpoch: CLOSE_EPOCH,
  updateStanding: UPDATE_STANDING,
  keepSnapshot: KEEP_SNAPSHOT,
  keepPart: KEEP_PART,
  part: PART,
  dropOlderParts: DROP_OLDER_PARTS,
  dropParts: DROP_PARTS,
  waiting: WAITING,
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
  return knownFrom(answers, asked)
}

function knownFrom([source, ground, key]: readonly Answered[], asked: Naming): Known | Refusal {
  const row = ground!.rows[0]
  if (row === undefined) {
    return refusal('NETWORK_NOT_FOUND', `network ${asked.network} does not exist`, { network: asked.network })
  }
  const sourceRow = source!.rows[0]
  if (asked.boundTo !== undefined && sourceRow?.node !== asked.boundTo) {
    // The same for one that is not there: what there is elsewhere is not its business.
    const why = `${asked.source} is no source of node ${asked.boundTo}, and a token that is bound to a node speaks for no other`
    return refusal('SOURCE_MISMATCH', why, { source: asked.source, node: asked.boundTo })
  }
  if (sourceRow === undefined) {
    const why = `network ${asked.network} has no source ${asked.source}; register it first`
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

/** Without a pool nothing cools, and nothing can be handed on. */
function lifeMs({ smallestCooldownMs }: Ground): number {
  return tokenLifeMs(smallestCooldownMs ?? Number.POSITIVE_INFINITY)
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
    return take(intake, report, { unchanged: content.unchanged })
  }
  if (chunk === null) {
    return take(intake, report, { read: (scope) => readManyEntries(content.entries, scope) })
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
  return take(intake, { network, source, epoch, complete, begun, quoted }, { read: () => set })
}

type ToTake = Naming & {
  readonly epoch: string
  readonly complete: boolean
} & ({ readonly token: string } | { readonly begun: Begun })

/** Of one that came in chunks: what putting it together found, and whether what cannot be read was told of. */
type Chunks = { readonly problems: readonly PartialReason[]; readonly told: boolean }

type Content =
  | { readonly unchanged: string }
  | { readonly read: (scope: Scope) => EntrySet | Promise<EntrySet> }

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
    const known = knownFrom(answers, report)
    if (isRefusal(known)) return leave(client, known)
    const { source } = known
    const [, , , epochs, waiting, fence] = answers
    if ('token' in report && source.kind !== 'push') return leave(client, isAsked(source))
    const epochClosed = (epochs!.rows[0]?.closed_at ?? null) !== null
    const fencedAt = (fence!.rows[0]?.fenced_at ?? null) as number | null
    const beginning = readBeginning(report, known)
    if (isOnlyQuoted(beginning, known)) return leave(client, { is: 'beyond' as const, ground: known.ground })
    const ground = { ...known.ground, beyond: beginning.beyond }
    const { standing } = source
    if ('unchanged' in content && !isListed(content.unchanged, report.epoch, source)) {
      return leave(client, { is: 'resend' as const, ground })
    }
    const set =
      'unchanged' in content ? null : await content.read({ network, node: source.node, epoch: report.epoch })
    const problems: PartialReason[] = [...beginning.problems, ...(chunks?.problems ?? [])]
    if (!report.complete) problems.push('DECLARED')
    if (set !== null && set.unreadableCount > 0) problems.push('UNREADABLE_ENTRY')
    const facts: ReportFacts = {
      begun: beginning.begun,
      reportedAt: ground.now,
      era: ground.era,
      epoch: report.epoch,
      epochClosed,
      intervalMs: source.intervalMs,
      size: set === null ? standing.size : set.entries.size,
      digest: set === null ? standing.digest : digestOf(set),
      problems,
    }
    const assessment = assess(standing, facts)
    const found = set === null ? NO_DIFFERENCE : await compare(client, source, assessment, set)
    const difference = assessment.ends ? found : { ...found, vanished: [] }
    const after = advance(standing, facts, assessment, {
      added: difference.appeared.length,
      kept: found.vanished.length - difference.vanished.length,
    })
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
    const asks = after.epoch === report.epoch ? asksOf(waiting!, ground.now) : []
    const toAsk = asks.filter(({ asked }) => !asked).map(({ ask }) => ask.fencingToken)
    for (const write of writeDifference(difference, at)) await trip(client, [write])
    expectCommitted(
      await trip(client, [
        ...(assessment.opensEpoch ? turnEpochs(at, standing.epoch, ground.now) : []),
        run('updateStanding', network, id, ...standingCells(after)),
        ...(isWorthKeeping(source, assessment, difference)
          ? [keepSnapshot({ at, ground, proven, assessment, facts, set, difference })]
          : []),
        ...(toAsk.length > 0 ? [run('asked', network, id, toAsk, ground.now)] : []),
        ...(chunks !== null && beginning.begun !== null
          ? [run('dropParts', network, id, beginning.begun.begunAt)]
          : []),
        COMMIT,
      ]),
    )
    if (set !== null && chunks?.told !== true) logUnreadable(intake, at, set)
    if (assessment.complete) logMuchShorter(intake, at, standing.size, facts.size)
    return {
      is: 'taken' as const,
      source: { ...source, standing: after },
      sequence: at.sequence,
      assessment,
      closedEpoch: assessment.opensEpoch ? standing.epoch : '',
      size: facts.size,
      sizeBefore: standing.size,
      unreadable: set?.unreadableCount ?? 0,
      ignored: set?.ignored ?? 0,
      appeared: difference.appeared.length,
      vanished: difference.vanished.length,
      news: difference.appeared,
      digest: after.epoch === report.epoch ? after.digest : '',
      asks: asks.map(({ ask }) => ask),
      fencedAt: fencedAt !== null && fencedAt < at.begunAt ? fencedAt : null,
      ground,
    }
  })
}

async function compare(
  client: pg.Client,
  { network, id }: Source,
  { complete, unchanged }: Assessment,
  { entries }: EntrySet,
): Promise<Difference> {
  if (unchanged) return NO_DIFFERENCE
  return (complete ? compareAll : compareNew)(client, { network, source: id }, entries)
}

/** Of another epoch the same entries may be another set: on a node, they have another boot. */
function isListed(digest: string, epoch: string, { standing }: Source): boolean {
  return digest !== '' && digest === standing.digest && epoch === standing.epoch
}

const NO_DIFFERENCE: Difference = { appeared: [], vanished: [] }

function isUnproven(reason: PartialReason): boolean {
  return reason === 'OUT_OF_SEQUENCE' || reason === 'CLOSED_EPOCH'
}

type BeginningFound = {
  /** Null: nothing proves when it was begun. */
  readonly begun: Begun | null
  readonly problems: readonly PartialReason[]
  readonly beyond: Beyond | null
}

function readBeginning(report: ToTake, { ground, key }: Known): BeginningFound {
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
  if (begun.era < ground.era) return unproven('OTHER_ERA')
  if (ground.now > begun.begunAt + lifeMs(ground)) return unproven('TOKEN_EXPIRED')
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

/** One that changed nothing, and says of its source what the one before said, leaves no row: nothing grows. */
function isWorthKeeping({ standing }: Source, assessment: Assessment, difference: Difference): boolean {
  return (
    assessment.opensEpoch ||
    difference.appeared.length + difference.vanished.length > 0 ||
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
  readonly set: EntrySet | null
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
    difference.appeared.length,
    difference.vanished.length,
    facts.digest,
  )
}

function logUnreadable(
  { log }: Intake,
  at: Pick<At, 'network' | 'source' | 'sequence'>,
  set: EntrySet,
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
    const beginning = readBeginning(report, known)
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
          given.length,
          digest,
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
    return take(intake, report, { read: () => set }, { problems: ['CHUNK_MISSING'], told: false })
  }
  return take(intake, report, { read: () => whole.set }, { problems: whole.problems, told: true })
}

type Whole = { readonly set: EntrySet; readonly problems: readonly PartialReason[] }
type Staged = {
  readonly set: EntrySet
  readonly ground: Ground
  readonly whole: Whole | 'later' | 'beyond' | null
}

/** The last chunk and all before it. One at a time: the whole in one answer would be megabytes. */
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
  const sets: EntrySet[] = [last.set]
  const digests = [last.digest]
  let given = last.given.length
  for (let part = 0; part < last.chunk.number; part += 1) {
    const [answered] = await trip(client, [run('part', network, source, begun.begunAt, part)])
    const row = answered!.rows[0] as PartRow | undefined
    // The count will tell.
    if (row === undefined || row.epoch !== epoch) continue
    sets.push({
      entries: new Map(row.entries.map((packed) => [packed[0], unpack(packed)])),
      // Told of when it arrived.
      unreadable: [],
      unreadableCount: row.unreadable,
      ignored: row.ignored,
    })
    digests.push(row.digest)
    given += row.given
  }
  return { set: joinEntries(sets), problems: compareTotal(last.chunk.last!, given, addDigests(digests)) }
}

function compareTotal(
  total: NonNullable<Chunk['last']>,
  given: number,
  digest: string,
): readonly PartialReason[] {
  if (given !== total.entries) return ['CHUNK_MISSING']
  return digest === total.digest ? [] : ['DIGEST_DIFFERS']
}

type PartRow = {
  readonly epoch: string
  readonly entries: readonly Packed[]
  readonly given: number
  readonly digest: string
  readonly unreadable: number
  readonly ignored: number
}

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

function asksOf({ rows }: Answered, now: number): readonly { readonly ask: Ask; readonly asked: boolean }[] {
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

/**
 * Each statement has a time-out of its own, but of a database that went silent nobody hears. Far more than the largest
 * report takes; not measured.
 */
const ANSWER_WITHIN_MS = 60_000

async function onConnection<T>(database: pg.Pool, work: (client: pg.Client) => Promise<T>): Promise<T> {
  // A pool's client is one of the driver's own.
  const client = (await database.connect()) as unknown as pg.Client & pg.PoolClient
  const patience = setTimeout(() => sever(client), ANSWER_WITHIN_MS)
  let failed = true
  try {
    const result = await work(client)
    failed = false
    return result
  } finally {
    clearTimeout(patience)
    // Whatever it was in the middle of ends with it.
    client.release(failed)
  }
}

async function leave<T>(client: pg.Client, result: T): Promise<T> {
  await trip(client, [ROLLBACK])
  return result
}

function expectCommitted(answered: readonly Answered[]): void {
  const { command } = answered.at(-1)!
  if (command !== 'COMMIT') throw new Error(`the report's transaction ended with ${command}`)
}
