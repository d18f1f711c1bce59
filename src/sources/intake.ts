/**
 * Takes the reports of sources. A list is read and compared with the image in steps of a thousand entries, and the process does
 * other things between them. Only changes go to the ledger, in slices that are commands of their own. An unchanged list writes no
 * event: it is one conditional update of its source's row.
 *
 * Another report may be taken between reading and writing. So the last slice names the report that it was compared with, and does
 * not count if a later one was taken.
 *
 * The API decides which source a caller may report for: its `mayReport` sees the declaration before the answer says anything about
 * the source.
 */
import { timingSafeEqual } from 'node:crypto'
import type pg from 'pg'
import type { Command } from '../core/command.ts'
import { networkNotFound, type Refusal } from '../core/refusal.ts'
import { cooperatively } from '../in-slices.ts'
import { type Ledger, Unavailable } from '../ledger/ledger.ts'
import { createLogLimit } from '../log-limit.ts'
import { countReport } from '../telemetry.ts'
import {
  type Changes,
  freshnessIfUnchanged,
  isInSequence,
  isStored,
  slicingChanges,
} from './compare-report.ts'
import { digestingList, readingEntries } from './entries.ts'
import { proofOf } from './proof.ts'
import type { Begin, Report, Reported, Reporting, Verdict } from './report.ts'
import type { GivenEntry } from './source.ts'
import { keepVerdicts, readStoredSource, type StoredSource, touch } from './stored-source.ts'

/** Sources that are remembered; at the bound all are forgotten. */
const MOST_REMEMBERED = 50_000

/** The answer to a report that was not taken. */
const NOTHING = { complete: false, counted: false, because: [], resend: false, digest: '', unreadable: 0 }

type IntakeOptions = {
  readonly ledger: Ledger
  readonly database: pg.Pool
  readonly log?: { warn(fields: object, message: string): void }
}

export class Intake {
  readonly #options: IntakeOptions
  readonly #logLimit = createLogLimit()
  /** As an unchanged report left them. While nothing changes, the next one is a single statement. */
  readonly #remembered = new Map<string, StoredSource>()

  constructor(options: IntakeOptions) {
    this.#options = options
  }

  async begin(reporting: Reporting) {
    const stored = await this.#read(reporting)
    if ('reason' in stored) return stored
    const { source, era, fresh } = stored
    const next = this.#next(reporting, stored, (fresh?.sequence ?? 0) + 1)
    return { ...next, era, intervalMs: source.declaration.intervalMs }
  }

  async report(input: Report): Promise<Reported | Refusal> {
    const begun = performance.now()
    // With a time from the future its misses would count too fast.
    const report = { ...input, begunAt: Math.min(input.begunAt, this.#options.ledger.now()) }
    try {
      const reported = await this.#take(report)
      if (!('reason' in reported)) countReport(report.network, reported.complete, performance.now() - begun)
      return reported
    } catch (error) {
      if (error instanceof Unavailable) return error.refusal
      throw error
    }
  }

  async verdicts(
    input: Reporting & { readonly epoch: string; readonly verdicts: readonly Verdict[] },
  ): Promise<{ readonly accepted: number; readonly ignored: number } | Refusal> {
    const stored = await this.#read(input)
    if ('reason' in stored) return stored
    const { network, source, epoch, verdicts } = input
    // Another life of a source was not asked.
    const isCurrent = stored.source.epoch?.name === epoch
    const accepted = isCurrent ? await keepVerdicts(this.#options.database, network, source, verdicts) : 0
    return { accepted, ignored: verdicts.length - accepted }
  }

  async #read(reporting: Reporting): Promise<StoredSource | Refusal> {
    const stored = await readStoredSource(this.#options.database, reporting)
    const isUnknown = 'reason' in stored && stored.reason === 'SOURCE_NOT_FOUND'
    return (isUnknown ? await this.#noteUnknown(reporting) : null) ?? stored
  }

  /** Only the lock shows whether the network recovers: after a restore this call may be the first of all. */
  async #noteUnknown(reporting: Reporting): Promise<Refusal | null> {
    const { network, source, actor, traceId, deadline, mayReport } = reporting
    if (mayReport({ id: source, node: actor.node ?? '' }) !== null) return null
    const rest = { cause: 'UNKNOWN_SOURCE', requestId: null, fingerprint: null, traceId }
    const outcome = await this.#options.ledger.submit(
      { type: 'unknownSource', network, source, actor, ...rest },
      { deadline },
    )
    return outcome.ok ? null : outcome.refusal
  }

  #next({ network, source }: Reporting, { secret, head }: StoredSource, sequence: number): Begin {
    const proof = proofOf(secret, network, source, head)
    return { sequence, head, begunAt: this.#options.ledger.now(), proof }
  }

  #answer(report: Report, stored: StoredSource, taken: Partial<Reported>): Reported {
    const { questions, fresh } = stored
    const sequence = taken.resend ? report.sequence : Math.max(report.sequence, fresh?.sequence ?? 0) + 1
    const next = this.#next(report, stored, sequence)
    return { ...NOTHING, ...taken, verifications: questions, next }
  }

  /** Null: the list is not the stored one, or what is stored has changed. */
  async #tryUnchanged(report: Report, digest: string, before: StoredSource): Promise<Reported | null> {
    const fresh = freshnessIfUnchanged(report, digest, before, this.#options.ledger.now())
    const touched = fresh === null ? null : await touch(this.#options.database, report.network, before, fresh)
    if (fresh === null || touched === null) return null
    const stored = { ...before, ...touched, fresh }
    if (this.#remembered.size >= MOST_REMEMBERED) this.#remembered.clear()
    this.#remembered.set(JSON.stringify([report.network, report.source]), stored)
    const counted = fresh.countedTotal > before.fresh!.countedTotal
    const because = counted ? [] : ['TOO_SOON']
    return this.#answer(report, stored, { complete: true, counted, because, digest })
  }

  async #take(report: Report): Promise<Reported | Refusal> {
    const { content, network, source, mayReport } = report
    const known = this.#remembered.get(JSON.stringify([network, source]))
    if ('unchanged' in content && known !== undefined && mayReport(known.source.declaration) === null) {
      const unchanged = await this.#tryUnchanged(report, content.unchanged, known)
      if (unchanged !== null) return unchanged
    }
    const stored = await this.#read(report)
    if ('reason' in stored) return stored
    return 'entries' in content
      ? this.#takeEntries(report, content.entries, stored)
      : this.#takeUnchanged(report, content.unchanged, stored)
  }

  async #takeUnchanged(report: Report, digest: string, stored: StoredSource): Promise<Reported | Refusal> {
    const unchanged = await this.#tryUnchanged(report, digest, stored)
    if (unchanged !== null) return unchanged
    const mustResend = !report.complete || !isStored(report, digest, stored) || isInSequence(report, stored)
    if (mustResend) return this.#answer(report, stored, { resend: true })
    const { entries, sequence: after } = stored.fresh!
    const last = { entries, digest, after }
    const changes = { because: [], complete: true, entries: [], vanished: [], last }
    const taken = await this.#submit(report, stored, changes)
    return 'reason' in taken ? taken : this.#answer(report, stored, taken)
  }

  async #takeEntries(
    report: Report,
    sent: Iterable<GivenEntry>,
    stored: StoredSource,
  ): Promise<Reported | Refusal> {
    const { network, source: id, deadline } = report
    const scope = { network, node: stored.source.declaration.node }
    const { entries, unreadable, unreadableCount } = await cooperatively(readingEntries(sent, scope))
    const because = report.complete ? [] : ['DECLARED']
    if (unreadableCount > 0) {
      because.push('UNREADABLE_ENTRY')
      this.#logLimit(`${network}/${id}`, (more) => {
        const about = { network, source: id, unreadable, ...more }
        this.#options.log?.warn(about, 'a report has entries that cannot be read')
      })
    }
    const complete = because.length === 0
    const digest = complete ? await cooperatively(digestingList(entries)) : ''
    const unchanged = await this.#tryUnchanged(report, digest, stored)
    if (unchanged !== null) return unchanged
    const image = await this.#options.ledger.image(network, { deadline })
    if (image === null) return networkNotFound(network)
    const last = { entries: entries.length, digest, after: stored.fresh?.sequence ?? 0 }
    let taken: Partial<Reported> | Refusal = {}
    for (const slice of await cooperatively(slicingChanges(image, id, entries, complete, last))) {
      taken = await this.#submit(report, stored, { because, complete, ...slice })
      if ('reason' in taken) return taken
    }
    return this.#answer(report, stored, { ...taken, unreadable: unreadableCount })
  }

  async #submit(
    report: Report,
    { secret }: StoredSource,
    changes: Changes & Pick<Command<'report'>, 'because' | 'complete'>,
  ): Promise<Partial<Reported> | Refusal> {
    const { network, source, traceId, epoch, sequence, head, begunAt, proof, deadline } = report
    const right = proofOf(secret, network, source, head)
    const proven = proof.length === right.length && timingSafeEqual(proof, right)
    const begun = { epoch, sequence, head, begunAt, proven }
    const actor = { name: source, node: null }
    const rest = { cause: 'REPORT', requestId: null, fingerprint: null, traceId }
    const outcome = await this.#options.ledger.submit(
      { type: 'report', network, source, actor, ...begun, ...changes, ...rest },
      { deadline },
    )
    if (!outcome.ok) return outcome.refusal
    const { complete, counted, because } = outcome.answer.report!
    const { last } = changes
    const isKept = last !== null && (counted || because.join() === 'TOO_SOON')
    return { complete, counted, because, digest: isKept ? last.digest : '' }
  }
}
