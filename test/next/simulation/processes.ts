/**
 * Processes that serve the network: each has a loop, a clock of its own and a connection. They are killed, stopped and
 * started again, in the middle of whatever they do.
 */
import type { Command } from '../../../src/next/core/command.ts'
import type { Outcome } from '../../../src/next/core/decide.ts'
import type { Image } from '../../../src/next/core/image.ts'
import { type ClockWatch, watchClock } from '../../../src/next/ledger/clock.ts'
import type { Log } from '../../../src/next/ledger/log.ts'
import { createLoop, type Loop } from '../../../src/next/ledger/loop.ts'
import type { Call, Checks } from './check.ts'
import type { Database, Fate } from './memory-log.ts'
import { has, NETWORK, SECOND, type World } from './world.ts'

export type Process = {
  readonly name: string
  readonly loop: Loop
  readonly clock: ClockWatch
  readonly log: Log
  readonly monotonic: () => number
  isDead: boolean
  /** Stopped, as by SIGSTOP, until this resolves. */
  stopped: Promise<void> | null
}

export type Processes = {
  readonly all: readonly Process[]
  /** One that runs; null: none does. */
  any(): Process | null
  /** Submits a command, and hands over the answer in the same instant; a process that dies never answers. */
  call(process: Process, command: Command, answered: (outcome: Outcome) => void): void
  /** The image of a process, caught up. */
  image(process: Process, use: (image: Image) => void): void
  /** The ledger's clock as a process has it. */
  now(process: Process): number
  crash(process: Process): void
  pause(process: Process, ms: number): void
  /** All that run compare the clock with their own. */
  compareClocks(): void
  databaseAwayUntil: number
  clock(): number
}

const AWAY = 'the database is away'
const DEADLINE_MS = 10 * SECOND
/** A transaction that is left idle, and the connection of a dead client, are ended within this. */
const IDLE_MS = 2 * SECOND

export function createProcesses(
  world: World,
  database: Database,
  checks: Checks,
  clock: () => number,
): Processes {
  const { random } = world
  let started = 0

  function start(): Process {
    started += 1
    const offset = random.below(1_000_000)
    const monotonic = () => world.now + offset
    const watch = watchClock()
    const process: Process = {
      name: `p${started}`,
      clock: watch,
      monotonic,
      isDead: false,
      stopped: null,
      log: database.connect({
        beforeLock() {
          if (process.isDead) return forever()
          if (world.now < processes.databaseAwayUntil) throw new Error(AWAY)
          return process.stopped ?? dawdles(0.02)
        },
        afterLock: () => (process.isDead ? forever() : idles()),
        beforeCommit: () => (process.isDead ? forever<Fate>() : (idles()?.then(fate) ?? fate())),
        afterCommit: () => (process.isDead ? forever() : (process.stopped ?? dawdles(0.01))),
      }),
      loop: undefined as unknown as Loop,
    }
    const idles = (): Promise<void> | undefined => {
      const wait = process.stopped ?? dawdles(0.01)
      // Idle in transaction: the server ends it.
      if (wait !== undefined) {
        let isOver = false
        world.at(IDLE_MS, () => {
          if (!isOver) database.sever(process.log)
        })
        return wait.then(() => {
          isOver = true
        })
      }
      return undefined
    }
    const loop = createLoop(NETWORK, {
      log: process.log,
      clock: watch,
      monotonic,
      pause: (ms) => new Promise((resolve) => world.at(ms, resolve)),
      without: world.without,
      losesNothing: !world.faults.has('failoverLosesTheEnd'),
      observer: {
        failed(_network, what, error) {
          world.tell(() => `${process.name}: ${what}: ${(error as Error).message}`)
          if (what === 'vetoed')
            checks.fail(`the database refused what ${process.name} decided: ${(error as Error).message}`)
          if (
            error instanceof TypeError ||
            error instanceof RangeError ||
            (what === 'load' && (error as Error).message !== AWAY)
          )
            checks.fail(`${process.name} cannot go on: ${(error as Error).stack}`)
        },
      },
    })
    Object.assign(process, { loop })
    watch.observe(clock(), monotonic(), monotonic())
    world.tell(() => `${process.name} starts`)
    return process
  }

  /** Now and then something takes its time. */
  function dawdles(probability: number): Promise<void> | undefined {
    if (!has(world, 'processesPause') || !random.chance(probability)) return undefined
    return new Promise((resolve) =>
      world.at(random.chance(0.3) ? random.below(4_000) : random.below(50), resolve),
    )
  }

  function fate(): Fate {
    if (has(world, 'connectionsDrop') && random.chance(0.02))
      return random.pick(['lostBefore', 'lostAfter', 'lostAfter', 'rolledBack'] as const)
    return has(world, 'commitsAreWarned') && random.chance(0.01) ? 'warned' : 'committed'
  }

  const all: Process[] = []
  const processes: Processes = {
    all,
    databaseAwayUntil: 0,
    clock,
    any() {
      const running = all.filter(({ isDead, stopped }) => !isDead && stopped === null)
      return running.length === 0 ? null : random.pick(running)
    },
    call(process, command, answered) {
      const call: Call = checks.begin(command)
      let isAnswered = false
      void process.loop.submit(command, process.monotonic() + DEADLINE_MS).then((outcome) => {
        isAnswered = true
        if (process.isDead) return
        checks.guarded(() => {
          checks.answered(call, outcome)
          answered(outcome)
        })
      })
      // Deadlines are looked at now and then; most calls are answered by the time that this comes up.
      world.afterwards(() => {
        if (!isAnswered) world.at(DEADLINE_MS + 1, () => process.loop.sweep())
      })
    },
    image(process, use) {
      const deadline = process.monotonic() + DEADLINE_MS
      process.loop.image(deadline).then(
        (image) => {
          if (!process.isDead && image !== null) checks.guarded(() => use(image))
        },
        () => {},
      )
    },
    now: (process) => Math.max(process.clock.at(process.monotonic()), checks.shadow.at),
    crash(process) {
      process.isDead = true
      world.tell(() => `${process.name} is killed`)
      world.at(random.below(IDLE_MS), () => database.forget(process.log))
      world.at(random.between(SECOND, 20 * SECOND), () => {
        all[all.indexOf(process)] = start()
      })
    },
    pause(process, ms) {
      world.tell(() => `${process.name} is stopped for ${ms} ms`)
      process.stopped = new Promise((resolve) =>
        world.at(ms, () => {
          process.stopped = null
          resolve()
        }),
      )
    },
    compareClocks() {
      for (const { isDead, stopped, clock: watch, monotonic } of all)
        if (!isDead && stopped === null) watch.observe(clock(), monotonic(), monotonic())
    },
  }
  for (let i = random.pick([1, 1, 2, 3]); i > 0; i--) all.push(start())
  return processes
}

function forever<T = void>(): Promise<T> {
  return new Promise<T>(() => {})
}
