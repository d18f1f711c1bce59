/**
 * One seed: a world, the faults that the seed draws, production's decide, evolve, judge and loop over a log in memory, and the
 * checks after every step. After `events` steps the faults stop: what runs is then known, everybody ends, and within a bound
 * all addresses are free again.
 */

import { believedHead } from '../../../src/next/core/decide-report.ts'
import { isHeld, isLive, sightingsOf, unitAt } from '../../../src/next/core/image.ts'
import { coverageOf, judge } from '../../../src/next/core/judge.ts'
import { isListedAs } from '../../../src/next/core/owner.ts'
import type { RuleName } from '../../../src/next/core/rules.ts'
import { createCallers } from './callers.ts'
import { type Checks, createChecks, Violation } from './check.ts'
import { createDatabase, type Database } from './memory-log.ts'
import { createOperators } from './operators.ts'
import { createProcesses } from './processes.ts'
import { createReporters } from './reporters.ts'
import {
  createWorld,
  FAULTS,
  type Fault,
  MINUTE,
  NETWORK,
  START,
  seeded,
  timeOf,
  type World,
} from './world.ts'

export type Result = {
  readonly seed: number
  /** Steps of the world, and commands that processes decided. */
  readonly events: number
  /** Events of the log. */
  readonly logged: number
  readonly failure: string | null
  /** Both stories, where they were asked for. */
  readonly story: readonly string[]
}

/** Between comparisons of all images with the log. */
const FULL_CHECK = 2_500
/** After the faults: sources warm up, holds are resumed, recoveries end. */
const SETTLE_MS = 15 * MINUTE
/** After the last life: unwitnessed leases are 20 min old, then look-ups, reaps by threes with an operator between, cooling. */
const FREE_MS = 75 * MINUTE
/** About what it takes from then on, of the events that were asked for. */
const LAST = 2_000
const STORY = 400

export async function simulate(
  seed: number,
  events: number,
  without: ReadonlySet<RuleName> = new Set(),
  tells = false,
): Promise<Result> {
  const random = seeded(seed)
  const faults = new Set<Fault>(FAULTS.filter(() => random.chance(0.3)))
  // Who is lied to in lists and in answers has nothing to go by.
  if (faults.has('listsMiss') || faults.has('listsLag')) faults.delete('lookUpsLie')
  const world = createWorld(random, faults, without, tells)
  const clock = () => START + world.now + world.clockOffset
  const database = createDatabase(clock, 50)
  const checks = createChecks(world, database)
  database.onCommit = (_network, write) => checks.guarded(() => checks.committed(write))
  const processes = createProcesses(world, database, checks, clock)
  const reporters = createReporters(world, database, processes, checks)
  const callers = createCallers(world, processes)
  const operators = createOperators(world, database, processes, checks, reporters)
  let steps = 0

  async function go(until: () => boolean): Promise<void> {
    for (;;) {
      await drained()
      world.finish()
      if (steps % FULL_CHECK === 0) await compareAll()
      if (checks.violation !== null) throw checks.violation
      if (until()) return
      steps += 1
      if (!world.step()) throw new Violation('nothing is left to do')
    }
  }

  /** Every process that catches up has the image that the log makes. */
  async function compareAll(): Promise<void> {
    checks.space()
    for (const process of processes.all) {
      if (process.isDead || process.stopped !== null) continue
      processes.image(process, (image) => {
        if (image.head === checks.shadow.head) checks.same(image, process.name, clock())
      })
      await drained()
    }
  }

  try {
    operators.setUp()
    await go(() => checks.shadow.sources.size > 0 && checks.shadow.poolsByName.size === 2)
    callers.start()
    reporters.work()
    operators.keepBreaking()
    await go(() => steps + checks.count.calls >= events - LAST)
    operators.calm()
    const calm = world.now
    await go(() => world.now > calm + SETTLE_MS)
    checkCalm(world, checks, database)
    callers.endAll()
    const end = world.now
    await go(() => world.now > end + FREE_MS)
    checkFree(checks, database)
    operators.tidy()
    const tidied = world.now
    await go(() => world.now > tidied + 5 * MINUTE)
    await compareAll()
    if (checks.violation !== null) throw checks.violation
    for (const place of checks.shadow.pools.values())
      if (place.reserved + place.active + place.quarantined > 0)
        checks.fail(`pool ${place.pool.name} is not free`)
  } catch (error) {
    checks.guarded(() => {
      throw error
    })
  }
  const { violation } = checks
  const failure =
    violation === null
      ? null
      : violation instanceof Violation
        ? violation.message
        : String((violation as Error).stack)
  return {
    seed,
    events: steps + checks.count.calls,
    logged: checks.count.events,
    failure,
    story:
      failure === null || !tells
        ? []
        : [
            `faults: ${[...faults].join(' ')}`,
            `sources: ${[...world.sources.keys()].join(' ')}; ${processes.all.length} processes; ${START + world.now} is ${timeOf(world.now)}`,
            '--- the world',
            ...world.story!.slice(-STORY),
            '--- the log',
            ...checks.log(STORY / 4),
          ],
  }
}

/** What is listed is held by whom it is listed for, or is in quarantine. */
function checkCalm({ now }: World, { shadow, fail }: Checks, database: Database): void {
  const { freshness } = database.tables.get(NETWORK)!
  const known = { freshness } as unknown as Parameters<typeof believedHead>[0]['known']
  for (const address of shadow.sightings.keys()) {
    const unit = unitAt(shadow, address)
    if (unit === null) continue
    const record = shadow.records.get(unit.address)
    for (const one of sightingsOf(shadow, unit.place, unit.address)) {
      const head = isLive(one) ? believedHead({ image: shadow, known, freshness: new Map() }, one) : null
      if (head === null || head < (record?.seq ?? 0)) continue
      const isSpent = (shadow.quarantinedBy.get(one.source) ?? 0) >= 64
      if (!isHeld(record) && !isSpent)
        fail(`${address} is free, and ${one.source} lists it; at ${timeOf(now)}`)
      if (
        !isHeld(record) ||
        record.state === 'QUARANTINED' ||
        one.owner === null ||
        unit.place.pool.prefixLength === 124
      )
        continue
      if (!isListedAs(record.owner!, one.owner))
        fail(
          `${address} is ${record.state} for ${record.owner!.name}, and ${one.source} lists it for ${one.owner.name}`,
        )
    }
  }
}

/** Everything has ended: what a witness could speak for is free. */
function checkFree({ shadow, fail }: Checks, database: Database): void {
  const coverage = coverageOf(shadow)
  for (const record of shadow.records.values()) {
    if (!isHeld(record) || record.owner?.kind === 'infrastructure') continue
    if (record.state === 'QUARANTINED' && record.quarantine!.reason === 'OPERATOR') continue
    const { place } = unitAt(shadow, record.address)!
    const witnesses = [
      ...coverage(record, place.pool.family),
      ...sightingsOf(shadow, place, record.address).map(({ source }) => shadow.sources.get(source)!),
    ]
    if (witnesses.length === 0 || witnesses.some(({ state }) => state !== 'ENABLED')) continue
    const { freshness, lookUps } = database.tables.get(NETWORK)!
    const evidence = {
      image: shadow,
      now: shadow.at,
      freshness: (id: string) => freshness.get(id),
      lookUps: lookUps.get(record.address) ?? [],
      without: new Set<RuleName>(),
    }
    const why = judge(evidence, record).because.map(({ text }) => text)
    fail(
      `${record.address} #${record.token} is ${record.state} still, an hour after everything has ended: ${why.join('; ')}`,
    )
  }
}

/** All promises that can go on have gone on. */
function drained(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
