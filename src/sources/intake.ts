/**
 * What sources report, on its way to the ledger. A list is read and compared with the image by turns with everything else, a
 * thousand entries a turn; only what is news goes to the ledger, in slices that are commands of their own. A list that is
 * unchanged writes no event: one conditional update of the row of its source.
 *
 * Anything between reading and writing may be overtaken by another report: the last slice names the report that it was
 * compared with, and counts for nothing if that is not the last one any more.
 */
import type pg from 'pg'
import { isMalformed, parseAddress } from '../core/address.ts'
import type { Command, Freshness } from '../core/command.ts'
import { freshnessAfter, isNews, isSpaced } from '../core/decide-report.ts'
import type { Entry } from '../core/event.ts'
import { isSame, ownerOf } from '../core/evolve.ts'
import type { Image, SourceState } from '../core/image.ts'
import { entryOf } from '../core/judge.ts'
import { eraOf, POLICY } from '../core/policy.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { Unavailable } from '../ledger/loop.ts'
import { freshnessOf, sourceOf } from '../ledger/tables.ts'
import { ask } from '../postgres/on-connection.ts'
import { countReport } from '../telemetry.ts'
import { digestingList, inTurns, readingEntries } from './entries.ts'
import type {
  Begun,
  Intake,
  Reported,
  ReportGiven,
  Reporting,
  VerdictsGiven,
  VerdictsTaken,
  Verification,
} from './intake-types.ts'
import type { GivenEntry } from './source.ts'

/** Questions handed to a source with the answer to its report. */
const MOST_QUESTIONS = 64

type Standing = {
  readonly source: SourceState
  readonly fresh: Freshness | null
  readonly head: number
  readonly era: number
  readonly isRecovering: boolean
  readonly questions: readonly Verification[]
}

export type IntakeOptions = {
  readonly ledger: Ledger
  readonly database: pg.Pool
  readonly log?: { warn(fields: object, message: string): void }
}

export function createIntake({ ledger, database, log }: IntakeOptions): Intake {
  async function begin(asked: Reporting): Promise<Begun | Refusal> {
    const standing = await standingOf(database, asked)
    if ('reason' in standing) return standing
    const { source, era, fresh, head } = standing
    const sequence = (fresh?.sequence ?? 0) + 1
    return { sequence, head, begunAt: ledger.now(), era, intervalMs: source.declaration.intervalMs }
  }

  async function report(told: ReportGiven): Promise<Reported | Refusal> {
    const begun = performance.now()
    // From the future, its misses would count faster than looks.
    const given = { ...told, begunAt: Math.min(told.begunAt, ledger.now()) }
    const standing = await standingOf(database, given)
    if ('reason' in standing) return standing
    try {
      const taken =
        'unchanged' in given.content
          ? await unchanged(given, given.content.unchanged, standing)
          : await inFull(given, given.content.entries, standing)
      if ('reason' in taken) return taken
      countReport(given.network, taken.complete, performance.now() - begun)
      const { questions, head } = standing
      const sequence = taken.resend
        ? given.sequence
        : Math.max(given.sequence, standing.fresh?.sequence ?? 0) + 1
      return { ...taken, verifications: questions, next: { sequence, head, begunAt: ledger.now() } }
    } catch (error) {
      if (error instanceof Unavailable) return error.refusal
      throw error
    }
  }

  type Step = Omit<Reported, 'verifications' | 'next'>

  async function unchanged(given: ReportGiven, digest: string, standing: Standing): Promise<Step | Refusal> {
    const { source, fresh } = standing
    const resend = {
      complete: false,
      counted: false,
      because: [],
      resend: true,
      digest: '',
      unreadable: 0,
    }
    if (fresh === null || !given.complete || !isStored(given, digest, standing)) return resend
    const last = { entries: fresh.entries, digest, after: fresh.sequence }
    if (!isOrdinary(given, standing)) return submit(given, { because: [], last })
    const isTrusted = source.state === 'ENABLED' && fresh.warm
    const counted = isTrusted && isSpaced(source, fresh, given.begunAt)
    const after = freshnessAfter(
      fresh,
      { ...given, last },
      { now: ledger.now(), flaws: [], trusts: isTrusted, counted },
    )
    if (!(await renew(database, given.network, fresh, after))) return resend
    return {
      complete: true,
      counted,
      because: counted
        ? []
        : [isTrusted ? 'TOO_SOON' : source.state === 'ENABLED' ? 'WARM_UP' : 'NOT_ENABLED'],
      resend: false,
      digest,
      unreadable: 0,
    }
  }

  async function inFull(
    given: ReportGiven,
    sent: Iterable<GivenEntry>,
    standing: Standing,
  ): Promise<Step | Refusal> {
    const { network, source: id } = given
    const { source, fresh } = standing
    const scope = { network, node: source.declaration.node }
    const { entries, unreadable, unreadableCount } = await inTurns(readingEntries(sent, scope))
    if (unreadableCount > 0)
      log?.warn({ network, source: id, unreadable }, 'a report has entries that cannot be read')
    const isComplete = given.complete && unreadableCount === 0
    const because = [
      ...(given.complete ? [] : ['DECLARED']),
      ...(unreadableCount > 0 ? ['UNREADABLE_ENTRY'] : []),
    ]
    const digest = isComplete ? await inTurns(digestingList(entries)) : ''
    const last = { entries: entries.length, digest, after: fresh?.sequence ?? 0 }
    if (isStored(given, digest, standing) && isOrdinary(given, standing)) {
      const same = await unchanged(given, digest, standing)
      if ('reason' in same || !same.resend) return same
    }
    const image = await ledger.image(network, { deadline: given.deadline })
    if (image === null) return networkNotFound(network)
    const news = await inTurns(findingNews(image, id, entries))
    for (const slice of slices(news)) {
      const taken = await submit(given, { because, entries: slice, isComplete })
      if ('reason' in taken) return taken
    }
    if (isComplete) {
      const vanished = await inTurns(findingVanished(image, id, entries))
      for (const slice of slices(vanished)) {
        const taken = await submit(given, { because, vanished: slice, isComplete })
        if ('reason' in taken) return taken
      }
    }
    const done = await submit(given, { because, last, isComplete })
    return 'reason' in done ? done : { ...done, unreadable: unreadableCount }
  }

  /** Its entries are those of the last complete list of the same life. */
  function isStored({ epoch }: ReportGiven, digest: string, { source, fresh, era }: Standing): boolean {
    return (
      digest !== '' &&
      fresh?.digest === digest &&
      fresh.epoch === epoch &&
      source.epoch?.name === epoch &&
      fresh.era === era
    )
  }

  /** Nothing but its sequence and its time is news. */
  function isOrdinary(given: ReportGiven, { fresh, head, era, isRecovering }: Standing): boolean {
    const isNext = given.sequence > (fresh?.sequence ?? 0)
    return isNext && given.head <= head && eraOf(given.head) === era && !isRecovering
  }

  type Slice = {
    readonly because: readonly string[]
    readonly isComplete?: boolean
    readonly entries?: readonly Entry[]
    readonly vanished?: readonly Entry[]
    readonly last?: Command<'report'>['last']
  }

  async function submit(
    given: ReportGiven,
    { because, isComplete = true, entries = [], vanished = [], last = null }: Slice,
  ): Promise<Step | Refusal> {
    const { network, source, epoch, sequence, head, begunAt, deadline, traceId } = given
    const outcome = await ledger.submit(
      {
        type: 'report',
        network,
        actor: { name: source, node: null },
        cause: 'REPORT',
        requestId: null,
        fingerprint: null,
        traceId,
        source,
        epoch,
        sequence,
        head,
        begunAt,
        complete: isComplete,
        because,
        entries,
        vanished,
        last,
      },
      { deadline },
    )
    if (!outcome.ok) return outcome.refusal
    const taken = outcome.answer.report!
    return {
      complete: taken.complete,
      counted: taken.counted,
      because: taken.because,
      resend: false,
      digest: last !== null && (taken.counted || taken.because.join() === 'TOO_SOON') ? last.digest : '',
      unreadable: 0,
    }
  }

  async function verdicts(given: VerdictsGiven): Promise<VerdictsTaken | Refusal> {
    const standing = await standingOf(database, given)
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

// Comparing with the image.

export function* findingNews(
  image: Image,
  source: string,
  entries: readonly Entry[],
): Generator<void, readonly Entry[]> {
  const news: Entry[] = []
  for (const [index, entry] of entries.entries()) {
    if (isNews(image, source, entry)) news.push(entry)
    if (index % POLICY.reportSlice === POLICY.reportSlice - 1) yield
  }
  return news
}

export function* findingVanished(
  image: Image,
  source: string,
  entries: readonly Entry[],
): Generator<void, readonly Entry[]> {
  const listed = new Map<string, Entry[]>()
  for (const [index, entry] of entries.entries()) {
    const there = listed.get(entry.address)
    if (there === undefined) listed.set(entry.address, [entry])
    else there.push(entry)
    if (index % POLICY.reportSlice === POLICY.reportSlice - 1) yield
  }
  const vanished: Entry[] = []
  let index = 0
  for (const sighting of image.listedBy.get(source) ?? []) {
    if (!listed.get(sighting.address)?.some((entry) => isSame(sighting, source, ownerOf(entry))))
      vanished.push(entryOf(sighting))
    index += 1
    if (index % POLICY.reportSlice === 0) yield
  }
  return vanished
}

function* slices(entries: readonly Entry[]): Generator<readonly Entry[]> {
  for (let from = 0; from < entries.length; from += POLICY.reportSlice)
    yield entries.slice(from, from + POLICY.reportSlice)
}

// The database.

const STANDING = `select s.*, q.questions, n.era as network_era, n.recovering is not null as is_recovering,
    (select seq from ipledger.event where network_id = $1 order by seq desc limit 1) as head, 
    r.epoch as report_epoch, r.era, r.warm, r.sequence, r.digest, r.entries, r.counted, r.counted_total, r.reported_at,
    r.complete_at, r.complete_head, r.partial_since, r.partial_because
  from ipledger.network n
  left join ipledger.source s on s.network_id = n.network_id and s.source_id = $2
  left join ipledger.source_report r on r.network_id = n.network_id and r.source_id = $2
  left join lateral (
    select json_agg(x) as questions from (
      select host(q.address) as address, q.owner_kind as kind, q.owner_name as name, q.owner_uid as uid, q.head, e.node, e.token
        from ipledger.lookup q
        left join ipledger.lease l on l.network_id = q.network_id and l.address = q.address
        left join ipledger.event e on e.network_id = l.network_id and e.seq = l.seq
       where q.network_id = $1 and q.source_id = $2 and q.answer = 'wanted' order by q.asked_at limit ${MOST_QUESTIONS}) x) q on true
 where n.network_id = $1`

type Question = {
  readonly address: string
  readonly kind: string
  readonly name: string
  readonly uid: string
  readonly head: number
  readonly node: string | null
  readonly token: number | null
}

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
    questions: ((row.questions as readonly Question[] | null) ?? []).map(
      ({ address, kind, name, uid, head, node, token }) => ({
        id: idOf(address, { kind, uid, head }),
        owner: { kind, name, uid, incarnation: '', interface: '' },
        node: node ?? '',
        address,
        leaseId: token === null ? '' : `${network}/${token}`,
      }),
    ),
  }
}

const RENEW = `update ipledger.source_report set sequence = $4, warm = $5, counted = $6, counted_total = $7,
    reported_at = to_timestamp($8::float8 / 1000), complete_at = to_timestamp($9::float8 / 1000), complete_head = $10,
    partial_since = null, partial_because = null
  where network_id = $1 and source_id = $2 and sequence = $3 and digest = $11 and epoch = $12 and era = $13 returning 1`

/** False: another report was taken meanwhile. */
async function renew(
  database: pg.Pool,
  network: string,
  before: Freshness,
  after: Freshness,
): Promise<boolean> {
  const counted = JSON.stringify(after.counted.map(({ sequence, head, at }) => [sequence, head, at]))
  const rows = await ask(database, RENEW, [
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
  ])
  return rows.length === 1
}

const ANSWER = `update ipledger.lookup q
     set answer = a.answer, terminal_since = to_timestamp(a."terminalSince" / 1000), detail = a.detail
    from json_to_recordset($3::json)
      as a (address inet, kind text, uid text, answer text, "terminalSince" float8, detail text, head bigint)
   where q.network_id = $1 and q.source_id = $2 and q.address = a.address and q.owner_kind = a.kind and q.owner_uid = a.uid
     and q.answer = 'wanted' and q.head = a.head returning 1`

type Asked = { readonly kind: string; readonly uid: string; readonly head: number }

/** Names the head that it was asked at: a late answer must not be taken for one to a later question. */
function idOf(address: string, { kind, uid, head }: Asked): string {
  return Buffer.from(JSON.stringify([address, kind, uid, head])).toString('base64url')
}

function readId(id: string): (Asked & { readonly address: string }) | null {
  try {
    const read: unknown = JSON.parse(Buffer.from(id, 'base64url').toString())
    if (!Array.isArray(read) || read.length !== 4) return null
    const [address, kind, uid, head] = read as unknown[]
    if (typeof address !== 'string' || isMalformed(parseAddress(address))) return null
    if (typeof kind !== 'string' || typeof uid !== 'string' || !Number.isSafeInteger(head)) return null
    return { address, kind, uid, head: head as number }
  } catch {
    return null
  }
}

function networkNotFound(network: string): Refusal {
  return refusal('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network })
}
