/**
 * What sources report, on its way to the ledger. A list is read and compared with the image by turns with everything else, a
 * thousand entries a turn; only what is news goes to the ledger, in slices that are commands of their own. A list that is
 * unchanged writes no event: one conditional update of the row of its source.
 *
 * Anything between reading and writing may be overtaken by another report: the last slice names the report that it was
 * compared with, and counts for nothing if that is not the last one any more.
 *
 * Who may report for which source is the API's business: it hands over `mayReport`, which is asked with the declaration of
 * the source before anything else is told of it.
 */
import type pg from 'pg'
import { z } from 'zod'
import { isMalformed, parseAddress } from '../core/address.ts'
import type { Actor, Command, Freshness } from '../core/command.ts'
import { freshnessAfter, isNews, isSpaced } from '../core/decide-report.ts'
import type { Entry, SourceDeclaration } from '../core/event.ts'
import { isSame, ownerOf } from '../core/evolve.ts'
import type { Image, SourceState } from '../core/image.ts'
import { entryOf } from '../core/judge.ts'
import type { Owner } from '../core/owner.ts'
import { eraOf, POLICY } from '../core/policy.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { Unavailable } from '../ledger/ledger.ts'
import { freshnessOf, sourceOf } from '../ledger/tables.ts'
import { createLogLimit } from '../log-limit.ts'
import { ask } from '../postgres/on-connection.ts'
import { countReport } from '../telemetry.ts'
import { digestingList, inSlices, inTurns, readingEntries } from './entries.ts'
import { isProof, proofOf } from './proof.ts'
import type { GivenEntry } from './source.ts'

/** Questions handed to a source with the answer to its report. */
const MOST_QUESTIONS = 64
/** Sources whose standing is remembered; at the bound all are forgotten. */
const MOST_REMEMBERED = 50_000

export type Reporting = {
  readonly network: string
  readonly source: string
  readonly traceId: string | null
  /** `performance.now()` after which nobody waits for the answer. */
  readonly deadline: number
  /** Who calls. */
  readonly actor: Actor
  readonly mayReport: (source: Pick<SourceDeclaration, 'id' | 'node'>) => Refusal | null
}

/** What a report is begun at. */
type Begin = {
  readonly sequence: number
  readonly head: number
  /** Milliseconds since 1970, by the ledger's clock. */
  readonly begunAt: number
  /** That `head` was answered to this source. */
  readonly proof: Uint8Array
}

export type ReportGiven = Reporting &
  Begin & {
    readonly epoch: string
    readonly complete: boolean
    /** The entries as they were sent, or the digest of an earlier answer that they still have. */
    readonly content: { readonly entries: readonly GivenEntry[] } | { readonly unchanged: string }
  }

/** A look-up that a source is asked for with the answer to its report. `leaseId`: empty where there is none now. */
export type Verification = {
  /** Quoted back with the verdict. */
  readonly id: string
  readonly owner: Owner
  readonly node: string
  readonly address: string
  readonly leaseId: string
}

type Reported = {
  readonly complete: boolean
  readonly counted: boolean
  readonly because: readonly string[]
  /** `unchanged` is not the digest of what is listed: the entries are wanted, and nothing else was done. */
  readonly resend: boolean
  /** To be sent as `unchanged` while the list stays as it is; empty: it cannot. */
  readonly digest: string
  readonly unreadable: number
  readonly verifications: readonly Verification[]
  /** For the next report, if its source begins to look after this answer. */
  readonly next: Begin
}

export type Verdict = {
  readonly id: string
  readonly answer: 'live' | 'terminal' | 'gone' | 'unknown' | 'error'
  /** Of terminal: since when. */
  readonly terminalSince: number | null
  readonly detail: string
}

/** Of a report of which nothing was taken. */
const NOTHING_TAKEN = {
  complete: false,
  counted: false,
  because: [],
  resend: false,
  digest: '',
  unreadable: 0,
}

type Changes = Pick<Command<'report'>, 'entries' | 'vanished' | 'last'>

type Standing = {
  readonly source: SourceState
  readonly fresh: Freshness | null
  readonly head: number
  readonly era: number
  readonly isRecovering: boolean
  readonly secret: Buffer
  readonly questions: readonly Verification[]
}

type IntakeOptions = {
  readonly ledger: Ledger
  readonly database: pg.Pool
  readonly log?: { warn(fields: object, message: string): void }
}

export type Intake = ReturnType<typeof createIntake>

export function createIntake({ ledger, database, log }: IntakeOptions) {
  /** As an unchanged report left it: if it still stands so, the next one is a single statement. */
  const remembered = new Map<string, Standing>()
  const logLimit = createLogLimit()

  async function standingAt(asked: Reporting): Promise<Standing | Refusal> {
    const standing = await standingOf(database, asked)
    const isUnknown = 'reason' in standing && standing.reason === 'SOURCE_NOT_FOUND'
    return (isUnknown ? await noteUnknown(asked) : null) ?? standing
  }

  /** Whether the network recovers is known under the lock only: after a restore this call may be the first of all. */
  async function noteUnknown(asked: Reporting): Promise<Refusal | null> {
    const { network, source, actor, traceId, deadline, mayReport } = asked
    if (mayReport({ id: source, node: actor.node ?? '' }) !== null) return null
    const rest = { cause: 'UNKNOWN_SOURCE', requestId: null, fingerprint: null, traceId }
    const outcome = await ledger.submit(
      { type: 'unknownSource', network, source, actor, ...rest },
      { deadline },
    )
    return outcome.ok ? null : outcome.refusal
  }

  async function begin(asked: Reporting) {
    const standing = await standingAt(asked)
    if ('reason' in standing) return standing
    const { source, era, fresh, head } = standing
    const sequence = (fresh?.sequence ?? 0) + 1
    const { intervalMs } = source.declaration
    const proof = proofAt(asked, standing, head)
    return { sequence, head, begunAt: ledger.now(), proof, era, intervalMs }
  }

  async function report(told: ReportGiven): Promise<Reported | Refusal> {
    const begun = performance.now()
    // From the future, its misses would count faster than looks.
    const given = { ...told, begunAt: Math.min(told.begunAt, ledger.now()) }
    try {
      const taken = (await asBefore(given)) ?? (await take(given))
      if (!('reason' in taken)) countReport(given.network, taken.complete, performance.now() - begun)
      return taken
    } catch (error) {
      if (error instanceof Unavailable) return error.refusal
      throw error
    }
  }

  function answered(given: ReportGiven, standing: Standing, step: Partial<Reported>): Reported {
    const { questions, head, fresh } = standing
    const sequence = step.resend ? given.sequence : Math.max(given.sequence, fresh?.sequence ?? 0) + 1
    const next = { sequence, head, begunAt: ledger.now(), proof: proofAt(given, standing, head) }
    return { ...NOTHING_TAKEN, ...step, verifications: questions, next }
  }

  async function asBefore(given: ReportGiven): Promise<Reported | null> {
    const known = remembered.get(keyOf(given))
    if (known === undefined || given.mayReport(known.source.declaration) !== null) return null
    return 'unchanged' in given.content ? renewed(given, given.content.unchanged, known) : null
  }

  /** Null: not so, or not any more. */
  async function renewed(given: ReportGiven, digest: string, before: Standing): Promise<Reported | null> {
    const after = freshnessIfSame(given, digest, before, ledger.now())
    const renewal = after === null ? null : await renew(database, given.network, before, after)
    if (after === null || renewal === null) return null
    const standing = { ...before, ...renewal, fresh: after }
    if (remembered.size >= MOST_REMEMBERED) remembered.clear()
    remembered.set(keyOf(given), standing)
    const counted = after.countedTotal > before.fresh!.countedTotal
    const because = counted ? [] : ['TOO_SOON']
    return answered(given, standing, { complete: true, counted, because, digest })
  }

  async function take(given: ReportGiven): Promise<Reported | Refusal> {
    const standing = await standingAt(given)
    if ('reason' in standing) return standing
    const { content } = given
    if ('entries' in content) return inFull(given, content.entries, standing)
    const digest = content.unchanged
    const same = await renewed(given, digest, standing)
    if (same !== null) return same
    const { fresh } = standing
    const isResent = !given.complete || !isStored(given, digest, standing) || isOrdinary(given, standing)
    if (isResent) return answered(given, standing, { resend: true })
    const last = { entries: fresh!.entries, digest, after: fresh!.sequence }
    const taken = await submit(given, standing, {
      because: [],
      complete: true,
      entries: [],
      vanished: [],
      last,
    })
    return 'reason' in taken ? taken : answered(given, standing, taken)
  }

  async function inFull(
    given: ReportGiven,
    sent: Iterable<GivenEntry>,
    standing: Standing,
  ): Promise<Reported | Refusal> {
    const { network, source: id } = given
    const { source, fresh } = standing
    const scope = { network, node: source.declaration.node }
    const { entries, unreadable, unreadableCount } = await inTurns(readingEntries(sent, scope))
    if (unreadableCount > 0)
      logLimit(`${network}/${id}`, (more) =>
        log?.warn({ network, source: id, unreadable, ...more }, 'a report has entries that cannot be read'),
      )
    const complete = given.complete && unreadableCount === 0
    const because = [
      ...(given.complete ? [] : ['DECLARED']),
      ...(unreadableCount > 0 ? ['UNREADABLE_ENTRY'] : []),
    ]
    const digest = complete ? await inTurns(digestingList(entries)) : ''
    const last = { entries: entries.length, digest, after: fresh?.sequence ?? 0 }
    const same = await renewed(given, digest, standing)
    if (same !== null) return same
    const image = await ledger.image(network, { deadline: given.deadline })
    if (image === null) return networkNotFound(network)
    let taken: Partial<Reported> | Refusal = {}
    for (const slice of await inTurns(slicingChanges(image, id, entries, complete, last))) {
      taken = await submit(given, standing, { because, complete, ...slice })
      if ('reason' in taken) return taken
    }
    return answered(given, standing, { ...taken, unreadable: unreadableCount })
  }

  async function submit(
    given: ReportGiven,
    { secret }: Standing,
    changes: Changes & Pick<Command<'report'>, 'because' | 'complete'>,
  ): Promise<Partial<Reported> | Refusal> {
    const { deadline, content: _, mayReport: __, proof, ...report } = given
    const { network, source, head } = report
    const actor = { name: source, node: null }
    const rest = { cause: 'REPORT', requestId: null, fingerprint: null }
    const proven = isProof(proof, secret, network, source, head)
    const outcome = await ledger.submit(
      { ...report, ...changes, proven, type: 'report', actor, ...rest },
      { deadline },
    )
    if (!outcome.ok) return outcome.refusal
    const { complete, counted, because } = outcome.answer.report!
    const { last } = changes
    const isStored = last !== null && (counted || because.join() === 'TOO_SOON')
    return { complete, counted, because, digest: isStored ? last.digest : '' }
  }

  async function verdicts(
    given: Reporting & { readonly epoch: string; readonly verdicts: readonly Verdict[] },
  ) {
    const standing = await standingAt(given)
    if ('reason' in standing) return standing
    const total = given.verdicts.length
    // Who answers from another life knows nothing of what was asked in this one (5.1).
    if (standing.source.epoch?.name !== given.epoch) return { accepted: 0, ignored: total }
    const answers = given.verdicts.flatMap(({ id, ...verdict }) => {
      const asked = readId(id)
      return asked === null ? [] : [{ ...asked, ...verdict }]
    })
    const accepted = await ask(database, ANSWER, [given.network, given.source, JSON.stringify(answers)])
    return { accepted: accepted.length, ignored: total - accepted.length }
  }

  return { begin, report, verdicts }
}

function proofAt({ network, source }: Reporting, { secret }: Standing, head: number): Buffer {
  return proofOf(secret, network, source, head)
}

// Comparing with the list before.

type Listed = Pick<ReportGiven, 'epoch' | 'sequence' | 'head' | 'begunAt' | 'complete'>
type Stands = Omit<Standing, 'questions' | 'secret'>

/** How a source stands after a list that is the one before; null: it is not, or more than that is news. */
export function freshnessIfSame(
  given: Listed,
  digest: string,
  standing: Stands,
  now: number,
): Freshness | null {
  const { source, fresh } = standing
  if (!given.complete || !isStored(given, digest, standing) || !isOrdinary(given, standing)) return null
  const last = { entries: fresh!.entries, digest, after: fresh!.sequence }
  // Only the list of a source that is believed has a digest.
  const how = { now, flaws: [], trusts: true, counted: isSpaced(source, fresh!, given.begunAt) }
  return freshnessAfter(fresh!, { ...given, last }, how)
}

/** Its entries are those of the last complete list of the same life. */
function isStored({ epoch }: Listed, digest: string, { source, fresh, era }: Stands): boolean {
  return (
    digest !== '' &&
    fresh?.digest === digest &&
    fresh.epoch === epoch &&
    source.epoch?.name === epoch &&
    fresh.era === era
  )
}

/** Nothing but its sequence and its time is news. */
function isOrdinary(given: Listed, { fresh, head, era, isRecovering }: Stands): boolean {
  const isNext = given.sequence > (fresh?.sequence ?? 0)
  return isNext && given.head <= head && eraOf(given.head) === era && !isRecovering
}

// Comparing with the image.

/** What a report changes, as commands carry it: what is news, then what has vanished; the last one ends the report. */
export function* slicingChanges(
  image: Image,
  source: string,
  entries: readonly Entry[],
  isComplete: boolean,
  last: Command<'report'>['last'],
  most: number = POLICY.reportSlice,
): Generator<void, readonly Changes[]> {
  const listed = new Map<string, Entry[]>()
  const news: Entry[] = []
  yield* inSlices(entries, (entry) => {
    if (isNews(image, source, entry)) news.push(entry)
    const there = listed.get(entry.address)
    if (there === undefined) listed.set(entry.address, [entry])
    else there.push(entry)
  })
  const vanished: Entry[] = []
  yield* inSlices(isComplete ? (image.listedBy.get(source) ?? []) : [], (sighting) => {
    if (!listed.get(sighting.address)?.some((entry) => isSame(sighting, source, ownerOf(entry))))
      vanished.push(entryOf(sighting))
  })
  const count = news.length + vanished.length
  return Array.from({ length: Math.max(1, Math.ceil(count / most)) }, (_, index) => {
    const [from, to] = [index * most, (index + 1) * most]
    return {
      entries: news.slice(from, to),
      vanished: vanished.slice(Math.max(0, from - news.length), Math.max(0, to - news.length)),
      last: to >= count ? last : null,
    }
  })
}

// The database.

const HEAD = `(select seq from ipledger.event where network_id = $1 order by seq desc limit 1) as head`
/** Those that wait for an answer, as a source is asked them; without a lease nobody knows where, and which. */
const QUESTIONS = `(select json_agg(x) from (
    select host(q.address) as address, q.head, coalesce(e.node, '') as node, coalesce(q.network_id || '/' || e.token, '') as "leaseId",
           json_build_object('kind', q.owner_kind, 'name', q.owner_name, 'uid', q.owner_uid, 'incarnation', '', 'interface', '') as owner
      from ipledger.lookup q
      left join ipledger.lease l on l.network_id = q.network_id and l.address = q.address
      left join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
     where q.network_id = $1 and q.source_id = $2 and q.answer = 'wanted' order by q.asked_at limit ${MOST_QUESTIONS}) x) as questions`
const STANDING = `select s.*, n.era as network_era, n.recovering is not null as is_recovering, k.secret, ${HEAD}, ${QUESTIONS},
    r.epoch as report_epoch, r.era, r.warm, r.sequence, r.digest, r.entries, r.counted, r.counted_total, r.reported_at,
    r.complete_at, r.complete_head, r.partial_since, r.partial_because
  from ipledger.network n
  join ipledger.network_lock k on k.network_id = n.network_id
  left join ipledger.source s on s.network_id = n.network_id and s.source_id = $2
  left join ipledger.source_report r on r.network_id = n.network_id and r.source_id = $2
 where n.network_id = $1`

type Question = Omit<Verification, 'id'> & { readonly head: number }

async function standingOf(
  database: pg.Pool,
  { network, source: id, mayReport }: Reporting,
): Promise<Standing | Refusal> {
  const [row] = await ask<Record<string, unknown>>(database, STANDING, [network, id])
  if (row === undefined) return networkNotFound(network)
  if (row.source_id === null)
    return refusal('SOURCE_NOT_FOUND', `there is no source ${id} in network ${network}; register it first`, {
      source: id,
    })
  const source = sourceOf(row)
  const bad = mayReport(source.declaration)
  if (bad !== null) return bad
  if (source.state === 'RETIRED')
    return refusal('ILLEGAL_STATE', `source ${id} is RETIRED, for good; register another id`, {
      source: id,
      state: 'RETIRED',
    })
  return {
    source,
    fresh: row.report_epoch === null ? null : freshnessOf({ ...row, epoch: row.report_epoch, source_id: id }),
    head: row.head as number,
    era: row.network_era as number,
    isRecovering: row.is_recovering as boolean,
    secret: row.secret as Buffer,
    questions: questionsOf(row.questions),
  }
}

/** An id names the head that it was asked at: a late answer must not be taken for one to a later question. */
function questionsOf(found: unknown): readonly Verification[] {
  return ((found as readonly Question[] | null) ?? []).map(({ head, ...question }) => {
    const { kind, uid } = question.owner
    const text = JSON.stringify([question.address, kind, uid, head])
    return { ...question, id: Buffer.from(text).toString('base64url') }
  })
}

/**
 * Prepared, since planning takes longer than running it; nobody waits for the disk, since a crash only forgets a look at what
 * was alive. 2,000 agents an interval of 30 s: 0.18 cores with neither, 0.08 prepared, 0.06 with both.
 */
const RENEW = {
  name: 'renew',
  text: `update ipledger.source_report set sequence = $4, warm = $5, counted = $6, counted_total = $7,
    reported_at = to_timestamp($8::float8 / 1000), complete_at = to_timestamp($9::float8 / 1000), complete_head = $10,
    partial_since = null, partial_because = null
  where network_id = $1 and source_id = $2 and sequence = $3 and digest = $11 and epoch = $12 and era = $13
    and exists (select from ipledger.source where network_id = $1 and source_id = $2 and version = $14 and epoch = $12)
    and exists (select from ipledger.network where network_id = $1 and era = $13)
  returning set_config('synchronous_commit', 'off', true), ${HEAD}, ${QUESTIONS}`,
}

/** Null: another report was taken meanwhile, or its source or network changed. */
async function renew(
  database: pg.Pool,
  network: string,
  { source, fresh }: Standing,
  after: Freshness,
): Promise<Pick<Standing, 'head' | 'questions'> | null> {
  const before = fresh!
  const counted = JSON.stringify(after.counted.map(({ sequence, head, at }) => [sequence, head, at]))
  const [row] = await ask<Record<string, unknown>>(database, RENEW, [
    network,
    before.source,
    before.sequence,
    after.sequence,
    after.warm,
    counted,
    after.countedTotal,
    after.reportedAt,
    after.completeAt,
    after.completeHead,
    before.digest,
    before.epoch,
    before.era,
    source.version,
  ])
  if (row === undefined) return null
  return { head: row.head as number, questions: questionsOf(row.questions) }
}

const ANSWER = `update ipledger.lookup q
     set answer = a.answer, terminal_since = to_timestamp(a."terminalSince" / 1000), detail = a.detail
    from json_to_recordset($3::json)
      as a (address inet, kind text, uid text, answer text, "terminalSince" float8, detail text, head bigint)
   where q.network_id = $1 and q.source_id = $2 and q.address = a.address and q.owner_kind = a.kind and q.owner_uid = a.uid
     and q.answer = 'wanted' and q.head = a.head returning 1`

const isAddress = (text: string): boolean => !isMalformed(parseAddress(text))
const asked = z.tuple([z.string().refine(isAddress), z.string(), z.string(), z.int()])

function readId(id: string) {
  try {
    const [address, kind, uid, head] = asked.parse(JSON.parse(Buffer.from(id, 'base64url').toString()))
    return { address, kind, uid, head }
  } catch {
    return null
  }
}

function networkNotFound(network: string): Refusal {
  return refusal('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network })
}

function keyOf({ network, source }: Reporting): string {
  return JSON.stringify([network, source])
}
