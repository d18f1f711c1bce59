/**
 * Sources: each lists what it sees, as the intake has it taken: compared with the image, in slices, said to be unchanged where
 * it is. Beside them the jobs, as the worker runs them: expiry, judging suspects with look-ups, looking again at what is
 * listed.
 */
import { coverageOf, suspensionsOf } from '../../src/core/attention.ts'
import type { Command, LookUp } from '../../src/core/command.ts'
import type { Entry } from '../../src/core/event.ts'
import type { Image } from '../../src/core/image.ts'
import { judge, type Question } from '../../src/core/judge.ts'
import { isOverdue } from '../../src/jobs/expire.ts'
import { suspectOf } from '../../src/jobs/judge.ts'
import { isToBeLookedAt } from '../../src/jobs/recheck.ts'
import { freshnessIfUnchanged, slicingChanges } from '../../src/sources/compare-report.ts'
import type { Agents } from './agents.ts'
import type { Checks } from './check.ts'
import type { Database, Tables } from './memory-log.ts'
import type { Process, Processes } from './processes.ts'
import {
  done,
  MINUTE,
  NETWORK,
  type Reporter,
  read,
  SECOND,
  type Source,
  toldBy,
  type World,
} from './world.ts'

/** What a report is begun at; `isTaken`: it was acknowledged. */
type Begun = Pick<Command<'report'>, 'head' | 'begunAt' | 'sequence' | 'epoch'> &
  Pick<Reporter, 'stops'> & { isTaken: boolean }

/** Changes of a report that one command carries. */
const SLICE = 8

export class Reporters {
  readonly #world: World
  readonly #database: Database
  readonly #processes: Processes
  readonly #checks: Checks
  readonly #agents: Agents
  #made = 0

  constructor(world: World, database: Database, processes: Processes, checks: Checks, agents: Agents) {
    this.#world = world
    this.#database = database
    this.#processes = processes
    this.#checks = checks
    this.#agents = agents
  }

  get #tables(): Tables {
    return this.#database.tables.get(NETWORK)!
  }

  #envelope(name: string, cause: string) {
    this.#made += 1
    const actor = { name, node: null }
    return { network: NETWORK, actor, cause, requestId: null, fingerprint: null, traceId: `j${this.#made}` }
  }

  // Reports.

  start(source: Source, process: Reporter): void {
    const { intervalMs } = source.declaration
    const next = (): void => {
      if (!source.processes.includes(process)) return
      this.#begin(source, process)
      this.#world.at(intervalMs * (0.9 + 0.2 * this.#world.random()), next)
    }
    this.#world.at(this.#world.between(0, intervalMs), next)
  }

  /** Begins a snapshot, gathers, and reports: to whichever processes run just then. */
  #begin(source: Source, reporter: Reporter): void {
    const world = this.#world
    const { node, declaration } = source
    const { epoch } = reporter
    const process = this.#processes.any()
    const isAway = process === undefined || world.now < this.#processes.databaseAwayUntil
    if (isAway || source.isRetired || node?.isPartitioned || node?.isUp === false) return
    if (reporter.stoppedUntil > world.now) return
    if (!this.#tables.sources.has(declaration.id)) {
      this.#callInVain(source, process)
      return
    }
    this.#agents.compare(source, reporter)
    const begun: Begun = {
      head: this.#tables.events.at(-1)!.event.seq,
      begunAt: this.#processes.now(process),
      sequence: (this.#tables.freshness.get(declaration.id)?.sequence ?? 0) + 1,
      epoch,
      stops: reporter.stops,
      isTaken: false,
    }
    // One that lags reports what it knew a while ago as if it were of now.
    const isLagging = world.has('listsLag') && world.chance(0.2)
    const entries = world.listOf(source, reporter)
    const later = (ms: number, is: () => boolean, list: () => readonly Entry[]) =>
      world.at(world.between(0, ms), () => {
        const other = this.#processes.any()
        if (other !== undefined && is()) this.#report(source, reporter, other, begun, list())
      })
    const isPresent = () => reporter.epoch === epoch
    if (isLagging) later(2 * MINUTE, isPresent, () => entries)
    else if (world.chance(0.1)) later(5 * SECOND, isPresent, () => world.listOf(source, reporter))
    else this.#report(source, reporter, process, begun, entries)
    if (world.has('listsRepeat') && world.chance(0.1))
      later(
        3 * MINUTE,
        () => begun.isTaken && !source.isRetired,
        () => entries,
      )
  }

  /** Registered after the dump that was restored: as the intake tells the ledger. */
  #callInVain({ declaration: { id } }: Source, process: Process): void {
    const actor = { name: id, node: null }
    const { losses } = this.#checks
    const command: Command = {
      ...this.#envelope(id, 'UNKNOWN_SOURCE'),
      type: 'unknownSource',
      source: id,
      actor,
    }
    this.#processes.call(process, command, (outcome) => {
      if (outcome.ok && losses === this.#checks.losses) this.#checks.calledInVain(id)
    })
  }

  #report(
    source: Source,
    reporter: Reporter,
    process: Process,
    begun: Begun,
    entries: readonly Entry[],
  ): void {
    const world = this.#world
    const { id } = source.declaration
    const { isTaken: isLate, stops, ...at } = begun
    const complete = !(world.has('listsArePartial') && world.chance(0.3))
    const list = read(source, complete ? entries : entries.filter(() => world.chance(0.5)))
    const texts = complete ? list.map((entry) => JSON.stringify(entry)).sort() : []
    const told = toldBy(list)
    if (complete) source.completeAt = Math.max(source.completeAt, begun.begunAt)
    // What it lists no more is not told from here on; what it lists is told once that is acknowledged.
    if (
      complete &&
      reporter.filled === null &&
      !isLate &&
      this.#checks.shadow.sources.get(id)?.state === 'ENABLED'
    )
      for (const address of source.told.keys()) if (!told.has(address)) source.told.delete(address)
    source.reports += 1
    const order = source.reports
    const taken = (): void => {
      begun.isTaken = true
      if (complete) source.taken += 1
      if (reporter.epoch === begun.epoch) {
        reporter.reportedAt = stops
        this.#agents.fill(source, reporter)
      }
      source.takenAt = Math.max(source.takenAt, begun.begunAt)
      // Of two that are under way at once nobody knows which is taken last.
      if (source.reports === order) for (const [address, one] of told) source.told.set(address, one)
    }
    if (this.#isUnchanged(process, source, begun, texts.join())) {
      taken()
      return
    }
    this.#processes.image(process, (image) => {
      if (!image.sources.has(id)) return
      const after = this.#tables.freshness.get(id)?.sequence ?? 0
      const last = { entries: list.length, digest: texts.join(), after }
      const slices = [...done(slicingChanges(image, id, list, complete, last, SLICE))]
      const because = complete ? [] : ['DECLARED']
      const sendNext = (): void => {
        const slice = slices.shift()
        if (slice === undefined) {
          taken()
          return
        }
        const envelope = this.#envelope(id, 'REPORT')
        const command: Command<'report'> = {
          ...envelope,
          type: 'report',
          source: id,
          ...at,
          proven: true,
          complete,
          because,
          ...slice,
        }
        this.#processes.call(process, command, (outcome) => {
          if (outcome.ok && !outcome.answer.report!.because.includes('BEYOND_HEAD')) sendNext()
        })
      }
      world.tell(
        () =>
          `${id} reports ${complete ? '' : 'part of '}${list.map(({ address, state, uid }) => `${address}=${uid ?? ''}${state === 'terminal' ? '(ended)' : ''}`).join(' ')}`,
      )
      sendNext()
    })
  }

  /** One conditional update of the source's row; false: the list is wanted in full. */
  #isUnchanged(process: Process, { declaration: { id } }: Source, begun: Begun, digest: string): boolean {
    const { network, sources, freshness, events } = this.#tables
    const [source, fresh] = [sources.get(id), freshness.get(id)]
    if (source === undefined || fresh === undefined) return false
    const { era, recovering } = network.row!
    const head = events.at(-1)!.event.seq
    const stored = { source, fresh, head, era, isRecovering: recovering !== null }
    const now = this.#processes.now(process)
    const after = freshnessIfUnchanged({ ...begun, complete: true }, digest, stored, now)
    return after !== null && this.#database.writeFreshness(NETWORK, fresh, after)
  }

  // Jobs.

  keepWorking(): void {
    const process = this.#processes.any()
    if (process !== undefined)
      this.#processes.image(process, (image) => {
        if (this.#world.checks.guards.LISTED_IS_LOOKED_AT_AGAIN) this.#recheck(process, image)
        this.#expire(process, image)
        if (suspensionsOf(image, this.#processes.now(process), 'REAP_ABSENT').length === 0)
          this.#judge(process, image)
      })
    this.#world.at(this.#world.between(30 * SECOND, 2 * MINUTE), () => this.keepWorking())
  }

  /** A job finds, and asks a while later: what it found may have changed. */
  #submit(process: Process, command: Command): void {
    const world = this.#world
    world.at(world.has('processesPause') && world.chance(0.2) ? world.between(0, 10 * SECOND) : 0, () => {
      if (!process.isDead) this.#processes.call(process, command, () => {})
    })
  }

  #expire(process: Process, image: Image): void {
    const now = this.#processes.now(process)
    for (const record of image.records.values()) {
      const { token, seq: version } = record
      if (isOverdue(image, record, now, this.#world.checks.guards))
        this.#submit(process, {
          ...this.#envelope('job:expire', 'NEVER_CONFIRMED'),
          type: 'expire',
          token,
          version,
        })
    }
  }

  #recheck(process: Process, image: Image): void {
    const addresses = [...image.sightings.keys()].filter((address) => isToBeLookedAt(image, address))
    if (addresses.length > 0)
      this.#submit(process, { ...this.#envelope('job:recheck', 'RECHECK'), type: 'recheck', addresses })
  }

  #judge(process: Process, image: Image): void {
    const { freshness, lookUps } = this.#tables
    const { guards } = this.#world.checks
    const coverage = coverageOf(image)
    const now = this.#processes.now(process)
    for (const found of image.records.values()) {
      const record = suspectOf(now, image, coverage, found, guards)?.record
      if (record === undefined) continue
      const answers = lookUps.get(record.address) ?? []
      const evidence = { image, now, freshness: (id: string) => freshness.get(id), lookUps: answers, guards }
      const { verdict, questions } = judge(evidence, record, coverage)
      const { token, seq: version } = record
      if (verdict === 'reap')
        this.#submit(process, {
          ...this.#envelope('job:judge', 'PROVEN_ABSENT'),
          type: 'reapProven',
          token,
          version,
        })
      if (verdict === 'ask') this.#ask(questions, image.head, now)
    }
  }

  /** An answer is of the time when it is given, and known to be no older than the question. */
  #ask(questions: readonly Question[], head: number, askedAt: number): void {
    const world = this.#world
    world.at(world.chance(0.2) ? world.between(0, 5 * SECOND) : 0, () => {
      const answers = questions.flatMap(({ source: id, address, owner }): LookUp[] => {
        const source = world.sources.get(id)
        if (source === undefined) return []
        const found = world.lookUp(source, owner, address)
        world.tell(() => `${id} is asked for ${owner.kind} ${owner.uid}: ${found.answer}`)
        return [{ source: id, address, owner, ...found, detail: '', head, askedAt, attempts: 1 }]
      })
      this.#database.writeLookUps(NETWORK, answers)
    })
  }
}
