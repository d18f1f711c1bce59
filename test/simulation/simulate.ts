/**
 * One seed: a world, the faults that the seed draws, production's decide, evolve, judge and loop over a log in memory, and the
 * checks after every step. Towards the end the faults stop: what runs is then known, everybody ends, and within a bound all
 * addresses are free again.
 */

import { coverageOf, isOfAnotherNode } from '../../src/core/attention.ts'
import type { Known } from '../../src/core/command.ts'
import { believedHead } from '../../src/core/decide-report.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { GUARDS } from '../../src/core/guards.ts'
import { blockAt, isHeld, isLive, sightingsOf } from '../../src/core/image.ts'
import { judge } from '../../src/core/judge.ts'
import { isListedAs, RESERVE_KIND } from '../../src/core/owner.ts'
import { isSingle } from '../../src/core/pool.ts'
import { contains } from '../../src/core/ranges.ts'
import { Agents } from './agents.ts'
import { Callers } from './callers.ts'
import { Checks, logLine, Violation } from './check.ts'
import { createDatabase, type Tables } from './memory-log.ts'
import { Operators } from './operators.ts'
import { Processes } from './processes.ts'
import { Reporters } from './reporters.ts'
import { type Fault, MINUTE, NETWORK, type Rule, START, World } from './world.ts'

export type Options = {
  readonly without?: readonly Rule[]
  /** Faults beside those that the seed draws. */
  readonly faults?: readonly Fault[]
  /** Both stories are wanted. */
  readonly tells?: boolean
}

export type Result = {
  readonly seed: number
  /** Steps of the world, and commands that processes decided. */
  readonly events: number
  /** Events of the log. */
  readonly logged: number
  readonly failure: string | null
  readonly story: readonly string[]
  /** The whole of it, where stories are wanted. */
  readonly log: readonly LedgerEvent[]
}

/** Steps between comparisons of all images with the log. */
const FULL_CHECK = 2_500
/** After the faults: sources warm up, holds are resumed, recoveries end. */
const SETTLE_MS = 15 * MINUTE
/** After the last life: unwitnessed leases are 20 min old, then look-ups, reaps by threes with an operator between, cooling. */
const FREE_MS = 75 * MINUTE
/** About what it takes from then on, of the events that were asked for. */
const LAST = 2_000
const STORY = 400

export async function simulate(seed: number, events: number, options: Options = {}): Promise<Result> {
  const { without = [], faults = [], tells = false } = options
  const world = new World(seed, faults, without, tells)
  const database = createDatabase(() => START + world.now + world.clockOffset, 50)
  const checks = new Checks(world)
  const processes = new Processes(world, database, checks)
  const callers = new Callers(world, processes)
  const agents = new Agents(world, checks, (command, answered) => callers.send(command, answered))
  callers.agents = agents
  const reporters = new Reporters(world, database, processes, checks, agents)
  const operators = new Operators(world, database, processes, checks, reporters, agents, callers)
  database.onCommit = (_network, write) => {
    checks.guarded(() => checks.committed(write))
    if (write.events.some(({ event }) => event.type === 'era.begun')) operators.eraBegun = database.commits
  }
  let steps = 0

  async function go(until: () => boolean): Promise<void> {
    for (;;) {
      await drained()
      world.finish()
      if (steps % FULL_CHECK === 0) await compareAll()
      if (checks.violation !== null) throw checks.violation
      if (until()) return
      steps += 1
      world.step()
    }
  }

  const goFor = (ms: number): Promise<void> => {
    const end = world.now + ms
    return go(() => world.now > end)
  }

  /** Every process that catches up has the image that the log makes. */
  async function compareAll(): Promise<void> {
    checks.space()
    for (const process of processes.running()) {
      processes.image(process, (image) => {
        if (image.head === checks.shadow.head) checks.same(image, process.name, processes.clock())
      })
      await drained()
    }
  }

  try {
    operators.setUp()
    await goFor(MINUTE)
    if (checks.shadow.pools.size < 3) checks.fail('the pools cannot be made')
    callers.keepStarting()
    reporters.keepWorking()
    operators.keepBreaking()
    await go(() => steps + checks.calls >= events - LAST)
    operators.calm()
    await goFor(SETTLE_MS)
    const tables = database.tables.get(NETWORK)!
    // What the last report shows the next recheck acts on.
    const end = world.now + 2 * MINUTE
    await go(() => world.now > end || notCalm(checks, tables) === null)
    const wrong = notCalm(checks, tables)
    if (wrong !== null) checks.fail(wrong)
    callers.endAll()
    for (const source of world.sources.values()) agents.forget(source)
    await goFor(FREE_MS)
    checkFree(checks, tables)
    // What ends contested is kept for nobody, which the second word ends.
    for (const _ of [1, 2]) {
      operators.tidy()
      await goFor(5 * MINUTE)
    }
    await compareAll()
    for (const { pool, counts } of checks.shadow.pools.values())
      if (counts.RESERVED + counts.ACTIVE + counts.QUARANTINED > 0)
        checks.fail(`pool ${pool.name} is not free`)
  } catch (error) {
    checks.violation ??= error
  }
  const { violation } = checks
  const failure =
    violation instanceof Violation
      ? violation.message
      : violation === null
        ? null
        : String((violation as Error).stack)
  const log = database.tables.get(NETWORK)?.events ?? []
  const story = [
    `faults: ${[...world.faults].join(' ')}`,
    `sources: ${[...world.sources.keys()].join(' ')}; ${processes.all.length} processes`,
    '--- the world',
    ...world.story.slice(-STORY),
    '--- the log',
    ...log.slice(-STORY / 4).map(logLine),
  ]
  const told = tells ? { story, log: log.map(({ event }) => event) } : { story: [], log: [] }
  return { seed, events: steps + checks.calls, logged: checks.logged, failure, ...told }
}

/** All promises that can go on have gone on. */
function drained(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** Null: what is listed is held by whom it is listed for, or is in quarantine. */
function notCalm({ shadow }: Checks, { freshness }: Tables): string | null {
  const evidence = { image: shadow, known: { freshness } as unknown as Known, freshness: new Map() }
  for (const address of shadow.sightings.keys()) {
    const block = blockAt(shadow, address)
    const record = block === null ? undefined : shadow.records.get(block.address)
    for (const one of block === null ? [] : sightingsOf(shadow, block.address)) {
      const isSpare = one.owner?.kind === RESERVE_KIND
      const head = isLive(one) && !isSpare ? believedHead(evidence, one) : null
      if (head === null || head < (record?.seq ?? 0)) continue
      const { heldOn, pool } = block!.poolState
      // Whoever lists it there first may be of this node.
      const isFull = (heldOn.get(one.node) ?? 0) >= (pool.nodeLimit ?? Infinity)
      const isSpent = isFull || (shadow.quarantinedBy.get(one.source) ?? 0) >= 64
      const isLeased = contains(block!.poolState.pool.allocatable, block!.value)
      if (!isHeld(record) && !isSpent && isLeased) return `${address} is free, and ${one.source} lists it`
      const isTheirs =
        isHeld(record) &&
        one.owner !== null &&
        record.state !== 'QUARANTINED' &&
        isSingle(block!.poolState.pool) &&
        !isOfAnotherNode(shadow, one, record)
      if (isTheirs && !isListedAs(record.owner!, one.owner!))
        return `${address} is ${record.state} for ${record.owner!.name}, and ${one.source} lists it for ${one.owner!.name}`
    }
  }
  return null
}

/** Everything has ended: what a witness could speak for is free. */
function checkFree(checks: Checks, { freshness, lookUps }: Tables): void {
  const { shadow } = checks
  const coverage = coverageOf(shadow)
  for (const record of shadow.records.values()) {
    if (!isHeld(record) || record.owner?.kind === 'infrastructure') continue
    const isAnOperators = ['OPERATOR', 'IN_USE'].includes(record.quarantine?.reason ?? '')
    if (record.state === 'QUARANTINED' && isAnOperators) continue
    const answers = lookUps.get(record.address) ?? []
    const evidence = {
      image: shadow,
      now: shadow.at,
      freshness: (id: string) => freshness.get(id),
      lookUps: answers,
    }
    const { because, proof } = judge({ ...evidence, guards: GUARDS }, record, coverage)
    const { witnesses } = proof
    const isSilent =
      !witnesses.some(({ couldSee }) => couldSee) || witnesses.some(({ isEnabled }) => !isEnabled)
    const why = because.map(({ text }) => text).join('; ')
    if (!isSilent)
      checks.fail(`${record.address} #${record.token} is ${record.state} long after everything ended: ${why}`)
  }
}
