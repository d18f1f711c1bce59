/**
 * Sources: each lists what it sees, as the intake has it taken: compared with the image, in slices, said to be unchanged where
 * it is. Beside them the jobs, as the worker runs them: expiry, judging suspects with look-ups, looking again at what is
 * listed.
 */
import type { Command, Freshness, Known, LookUp, Report } from '../../../src/next/core/command.ts'
import { expiresAt } from '../../../src/next/core/decide-lease.ts'
import { believedHead, freshnessAfter, isNews, isSpaced } from '../../../src/next/core/decide-report.ts'
import type { Entry } from '../../../src/next/core/event.ts'
import { isSame, ownerOf } from '../../../src/next/core/evolve.ts'
import { type Image, isHeld, type Sighting } from '../../../src/next/core/image.ts'
import { coverageOf, entryOf, isSuspect, judge, type Question } from '../../../src/next/core/judge.ts'
import { isListedAs } from '../../../src/next/core/owner.ts'
import { eraOf } from '../../../src/next/core/policy.ts'
import type { Checks } from './check.ts'
import type { Database } from './memory-log.ts'
import type { Process, Processes } from './processes.ts'
import {
  has,
  listOf,
  lookUpOf,
  MINUTE,
  NETWORK,
  SECOND,
  type SourceWorld,
  toldBy,
  type World,
} from './world.ts'

export type Reporters = { start(source: SourceWorld): void; work(): void }

/** Changes of a report that one command carries. */
const SLICE = 8

export function createReporters(
  world: World,
  database: Database,
  processes: Processes,
  checks: Checks,
): Reporters {
  const { random } = world
  let made = 0

  const envelope = (name: string, cause: string) => ({
    network: NETWORK,
    actor: { name, node: null },
    cause,
    requestId: null,
    fingerprint: null,
    traceId: `j${++made}`,
  })

  const freshnessOf = (id: string) => database.tables.get(NETWORK)?.freshness.get(id)

  // Reports.

  function start(source: SourceWorld): void {
    const { intervalMs } = source.declaration
    const next = (): void => {
      if (!source.isRetired) begin(source)
      world.at(intervalMs * (0.9 + 0.2 * random.next()), next)
    }
    world.at(random.below(intervalMs), next)
  }

  /** Begins a snapshot, gathers, and reports: to whichever processes run just then. */
  function begin(source: SourceWorld): void {
    const { node, declaration } = source
    if (node !== null && (node.isPartitioned || !node.isUp)) return
    const process = processes.any()
    if (process === null) return
    // What it is begun at is read beside the loop.
    const tables = database.tables.get(NETWORK)
    if (tables === undefined || world.now < processes.databaseAwayUntil) return
    const sequence = (freshnessOf(declaration.id)?.sequence ?? 0) + 1
    const head = tables.events.at(-1)?.event.seq ?? 0
    const begun = { head, begunAt: processes.now(process), sequence, epoch: source.epoch, isTaken: false }
    // A source that lags reports what it knew a while ago as if it were of now.
    const isLagging = has(world, 'listsLag') && random.chance(0.2)
    const entries = listOf(world, source)
    const gathers = isLagging ? random.below(2 * MINUTE) : random.chance(0.1) ? random.below(5 * SECOND) : 0
    if (gathers === 0) report(source, process, begun, entries)
    else
      world.at(gathers, () => {
        const later = processes.any()
        if (later !== null && source.epoch === begun.epoch)
          report(source, later, begun, isLagging ? entries : listOf(world, source))
      })
    if (has(world, 'listsRepeat') && random.chance(0.1))
      world.at(random.below(3 * MINUTE), () => {
        const later = processes.any()
        if (later !== null && !source.isRetired && begun.isTaken) report(source, later, begun, entries)
      })
  }

  type Begun = Pick<Report, 'head' | 'begunAt' | 'sequence' | 'epoch'> & { isTaken: boolean }

  function report(source: SourceWorld, process: Process, begun: Begun, entries: readonly Entry[]): void {
    const { id } = source.declaration
    const complete = !(has(world, 'listsArePartial') && random.chance(0.3))
    const list = complete ? entries : entries.filter(() => random.chance(0.5))
    const digest = complete
      ? list
          .map((entry) => JSON.stringify(entry))
          .sort()
          .join()
      : ''
    const told = toldBy(list)
    const { isTaken: isLate, ...begunAt } = begun
    const isTaken = (): void => {
      begun.isTaken = true
      for (const [address, one] of told) source.told.set(address, one)
    }
    // What it lists no more is not told from here on; what it lists is told once that is acknowledged.
    const isEnabled = checks.shadow.sources.get(id)?.state === 'ENABLED'
    if (complete && isEnabled && source.filled === null && !isLate)
      for (const address of source.told.keys()) if (!told.has(address)) source.told.delete(address)
    const fresh = freshnessOf(id)
    if (complete && fresh !== undefined && fresh.digest === digest && digest !== '') {
      if (isUnchanged(process, source, begun, fresh, digest)) {
        isTaken()
        return
      }
    }
    processes.image(process, (image) => {
      if (!image.sources.has(id)) return
      const after = freshnessOf(id)?.sequence ?? 0
      const news = list.filter((entry) => isNews(image, id, entry))
      const isStill = (one: Parameters<typeof isSame>[0]) =>
        list.some((entry) => entry.address === one.address && isSame(one, id, ownerOf(entry)))
      const vanished = !complete
        ? []
        : [...(image.listedBy.get(id) ?? [])]
            .flatMap((address) => image.sightings.get(address) ?? [])
            .filter((one) => one.source === id && one.vanishedSeq === null && !isStill(one))
            .map(entryOf)
      const slices: Pick<Report, 'entries' | 'vanished' | 'last'>[] = []
      for (let i = 0; i < news.length; i += SLICE)
        slices.push({ entries: news.slice(i, i + SLICE), vanished: [], last: null })
      for (let i = 0; i < vanished.length; i += SLICE)
        slices.push({ entries: [], vanished: vanished.slice(i, i + SLICE), last: null })
      slices.push({ entries: [], vanished: [], last: { entries: list.length, digest, after } })
      const sendNext = (): void => {
        const slice = slices.shift()
        if (slice === undefined) {
          isTaken()
          return
        }
        const command: Report = {
          ...envelope(id, 'REPORT'),
          type: 'report',
          source: id,
          ...begunAt,
          complete,
          because: complete ? [] : ['DECLARED'],
          ...slice,
        }
        processes.call(process, command, (outcome) => {
          if (outcome.ok && !outcome.answer.report!.because.includes('BEYOND_HEAD')) sendNext()
        })
      }
      world.tell(
        () =>
          `${id} ${begun.epoch} reports ${complete ? '' : 'part of '}${list.map(({ address }) => address).join(' ')}`,
      )
      sendNext()
    })
  }

  /** One conditional update of the source's row; false: the list is wanted in full. */
  function isUnchanged(
    process: Process,
    source: SourceWorld,
    begun: Begun,
    fresh: Freshness,
    digest: string,
  ): boolean {
    const tables = database.tables.get(NETWORK)!
    const stored = tables.sources.get(source.declaration.id)
    const { era, recovering } = tables.network.row!
    const head = tables.events.at(-1)!.event.seq
    const isOrdinary = begun.sequence > fresh.sequence && begun.head <= head && eraOf(begun.head) === era
    if (stored?.epoch?.name !== begun.epoch || fresh.epoch !== begun.epoch || fresh.era !== era) return false
    if (recovering !== null || !isOrdinary) return false
    const trusts = stored.state === 'ENABLED' && fresh.warm
    const counted = trusts && isSpaced(stored, fresh, begun.begunAt)
    const last = { entries: fresh.entries, digest, after: fresh.sequence }
    const after = freshnessAfter(
      fresh,
      { ...begun, last },
      { now: processes.now(process), flaws: [], trusts, counted },
    )
    return database.writeFreshness(NETWORK, fresh, after)
  }

  // Jobs.

  function work(): void {
    const process = processes.any()
    if (process !== null)
      processes.image(process, (image) => {
        const { network } = image
        if (network === null) return
        const { recovering, holds } = network
        if (!world.without.has('LISTED_IS_LOOKED_AT_AGAIN')) recheck(process, image)
        if (recovering !== null || holds.CLOCK !== undefined || holds.SOURCE_AHEAD !== undefined) return
        expire(process, image)
        if (holds.TOO_MANY_REAPS === undefined) judgeSuspects(process, image)
      })
    world.at(random.between(30 * SECOND, 2 * MINUTE), work)
  }

  function submit(process: Process, command: Command): void {
    // A job finds, and asks a while later: what it found may have changed.
    const isSlow = has(world, 'processesPause') && random.chance(0.2)
    if (!isSlow) processes.call(process, command, () => {})
    else
      world.at(random.below(10 * SECOND), () => {
        if (!process.isDead) processes.call(process, command, () => {})
      })
  }

  function expire(process: Process, image: Image): void {
    const now = processes.now(process)
    for (const record of image.records.values()) {
      const due = isHeld(record) ? expiresAt({ image, without: world.without }, record) : null
      if (due !== null && due < now)
        submit(process, {
          ...envelope('job:expire', 'NEVER_CONFIRMED'),
          type: 'expire',
          token: record.token,
          version: record.seq,
        })
    }
  }

  function recheck(process: Process, image: Image): void {
    const addresses: string[] = []
    const { freshness } = database.tables.get(NETWORK)!
    const known = { freshness } as unknown as Known
    const evidence = { image, known, freshness: new Map() }
    for (const [address, sightings] of image.sightings) {
      // Blocks are few; of single addresses what is as it should be is passed over.
      const record = image.records.get(address)
      if (record?.state === 'QUARANTINED') continue
      const isOdd = (one: Sighting) =>
        (record?.state !== 'ACTIVE' || (one.owner !== null && !isListedAs(record.owner!, one.owner))) &&
        (believedHead(evidence, one) ?? -1) >= (record?.token ?? 0)
      if (sightings.some(isOdd)) addresses.push(address)
    }
    if (addresses.length > 0)
      submit(process, { ...envelope('job:recheck', 'RECHECK'), type: 'recheck', addresses })
  }

  function judgeSuspects(process: Process, image: Image): void {
    const tables = database.tables.get(NETWORK)!
    const coverage = coverageOf(image)
    const now = processes.now(process)
    for (const record of image.records.values()) {
      if (!isHeld(record) || (!isSuspect(image, record) && !world.without.has('DOUBT_IS_LIFE'))) continue
      const { verdict, questions } = judge(
        {
          image,
          now,
          freshness: (id) => tables.freshness.get(id),
          lookUps: tables.lookUps.get(record.address) ?? [],
          without: world.without,
        },
        record,
        coverage,
      )
      if (verdict === 'reap')
        submit(process, {
          ...envelope('job:judge', 'PROVEN_ABSENT'),
          type: 'reapProven',
          token: record.token,
          version: record.seq,
        })
      if (verdict === 'ask') ask(questions, image.head, now)
    }
  }

  /** An answer is of the time when it is given, and known to be no older than the question. */
  function ask(questions: readonly Question[], head: number, askedAt: number): void {
    const takes = random.chance(0.2) ? random.below(5 * SECOND) : 0
    const answer = (): void => {
      const answers = questions.flatMap(({ source: id, address, owner }): LookUp[] => {
        const source = world.sources.get(id)
        if (source === undefined) return []
        const found = lookUpOf(world, source, owner)
        world.tell(() => `${id} is asked for ${owner.kind} ${owner.uid}: ${found.answer}`)
        return [{ source: id, address, owner, ...found, detail: '', head, askedAt, attempts: 1 }]
      })
      database.writeLookUps(NETWORK, answers)
    }
    if (takes === 0) answer()
    else world.at(takes, answer)
  }

  return { start, work }
}
