/**
 * Processes that serve the network: each has a loop, a clock of its own and a connection. They are killed, stopped and
 * started again, in the middle of whatever they do.
 */
import type { Command } from '../../src/core/command.ts'
import type { Outcome } from '../../src/core/decide.ts'
import type { Image } from '../../src/core/image.ts'
import { Clock } from '../../src/ledger/clock.ts'
import type { Log } from '../../src/ledger/log.ts'
import { Loop } from '../../src/ledger/loop.ts'
import type { Checks } from './check.ts'
import type { Database, Fate } from './memory-log.ts'
import { NETWORK, SECOND, START, type World } from './world.ts'

export type Process = {
  readonly name: string
  readonly loop: Loop
  readonly clock: Clock
  readonly log: Log
  isDead: boolean
  /** As by SIGSTOP, until this resolves. */
  stopped: Promise<void> | null
}

const DEADLINE_MS = 10 * SECOND
/** A transaction that is left idle, and the connection of a dead client, are ended within this. */
const IDLE_MS = 2 * SECOND
const AWAY = 'the database is away'

class WorldClock extends Clock {
  readonly #world: World
  readonly #offset: number

  constructor(world: World, offset: number) {
    super()
    this.#world = world
    this.#offset = offset
  }

  override now(): number {
    return this.#world.now + this.#offset
  }

  override pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.at(ms, resolve))
  }
}

export class Processes {
  readonly all: Process[] = []
  databaseAwayUntil = 0
  /** No commit is confirmed by a standby. */
  isStandbyAway = false
  readonly #world: World
  readonly #database: Database
  readonly #checks: Checks
  #started = 0

  constructor(world: World, database: Database, checks: Checks) {
    this.#world = world
    this.#database = database
    this.#checks = checks
    for (let i = world.pick([1, 1, 2, 3]); i > 0; i--) this.all.push(this.#start())
  }

  /** The database's clock. */
  clock(): number {
    return START + this.#world.now + this.#world.clockOffset
  }

  running(): readonly Process[] {
    return this.all.filter(({ isDead, stopped }) => !isDead && stopped === null)
  }

  /** One that runs; undefined: none does. */
  any(): Process | undefined {
    return this.#world.pick(this.running())
  }

  /** Submits a command, and hands over the answer in the same instant; a process that dies never answers. */
  call(process: Process, command: Command, answered: (outcome: Outcome) => void): void {
    const call = this.#checks.begin(command)
    let isAnswered = false
    void process.loop.submit(command, process.clock.now() + DEADLINE_MS).then((outcome) => {
      isAnswered = true
      if (process.isDead) return
      this.#checks.guarded(() => {
        this.#checks.answered(call, outcome)
        answered(outcome)
      })
    })
    this.#world.afterwards(() => {
      if (!isAnswered) this.#world.at(DEADLINE_MS + 1, () => process.loop.queue.sweep())
    })
  }

  /** The image of a process, caught up. */
  image(process: Process, use: (image: Image) => void): void {
    const got = process.loop.image(process.clock.now() + DEADLINE_MS)
    got.then(
      (image) => {
        if (!process.isDead && image !== null) this.#checks.guarded(() => use(image))
      },
      () => {},
    )
  }

  /** The ledger's clock as a process has it. */
  now(process: Process): number {
    return Math.max(process.clock.database(), this.#checks.shadow.at)
  }

  crash(process: Process, isOver = false): void {
    const world = this.#world
    if (isOver) this.#database.forget(process.log)
    if (process.isDead) return
    process.isDead = true
    world.tell(() => `${process.name} is killed`)
    world.at(world.between(0, IDLE_MS), () => this.#database.forget(process.log))
    world.at(world.between(SECOND, 20 * SECOND), () => {
      this.all[this.all.indexOf(process)] = this.#start()
    })
  }

  /** As `ipledger recover --above`: before any process serves again. */
  recover(above: number): void {
    const { checks } = this.#world
    const clock = new WorldClock(this.#world, 0)
    const loop = new Loop(NETWORK, { log: this.#database.connect(), clock, checks })
    const actor = { name: 'operator', node: null }
    const envelope = { network: NETWORK, actor, requestId: null, fingerprint: null, traceId: null }
    const why = 'a backup was restored'
    void loop.submit({ ...envelope, cause: 'recover', type: 'beginEra', above, recovering: true, why })
  }

  pause(process: Process, ms: number): void {
    this.#world.tell(() => `${process.name} is stopped for ${ms} ms`)
    process.stopped = this.#sleep(ms).then(() => {
      process.stopped = null
    })
  }

  /** All that run compare the clock with their own. */
  compareClocks(): void {
    for (const { clock } of this.running()) clock.observe(this.clock(), clock.now(), clock.now())
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.at(ms, resolve))
  }

  /** Now and then something takes its time. */
  #dawdle(probability: number): Promise<void> | undefined {
    const world = this.#world
    if (!world.has('processesPause') || !world.chance(probability)) return undefined
    return this.#sleep(world.between(0, world.chance(0.3) ? 2 * IDLE_MS : 50))
  }

  #fate(): Fate {
    const world = this.#world
    if (world.has('connectionsDrop') && world.chance(0.02))
      return world.pick(['lostBefore', 'lostAfter', 'lostAfter', 'rolledBack'] as const)
    const isWarned = this.isStandbyAway || (world.has('commitsAreWarned') && world.chance(0.01))
    return isWarned ? 'warned' : 'committed'
  }

  #start(): Process {
    this.#started += 1
    const world = this.#world
    const name = `p${this.#started}`
    const clock = new WorldClock(world, world.between(0, 1_000_000))
    const forever = <T>() => new Promise<T>(() => {})
    /** Idle in transaction, it is ended by the server. */
    const idle = (): Promise<void> | undefined => {
      const wait = process.stopped ?? this.#dawdle(0.01)
      if (wait === undefined) return undefined
      let isOver = false
      world.at(IDLE_MS, () => {
        if (!isOver) this.#database.sever(process.log)
      })
      return wait.then(() => {
        isOver = true
      })
    }
    const log = this.#database.connect({
      beforeLock: () => {
        if (!process.isDead && world.now < this.databaseAwayUntil) throw new Error(AWAY)
        return process.isDead ? forever() : (process.stopped ?? this.#dawdle(0.02))
      },
      afterLock: () => (process.isDead ? forever() : idle()),
      beforeCommit: () => (process.isDead ? forever() : (idle()?.then(() => this.#fate()) ?? this.#fate())),
      afterCommit: () => (process.isDead ? forever() : (process.stopped ?? this.#dawdle(0.01))),
    })
    const loop = new Loop(NETWORK, {
      log,
      clock,
      checks: world.checks,
      losesNothing: !world.faults.has('failoverLosesTheEnd'),
      limits: { behind: 200 },
      observer: {
        failed: (_network, what, error) =>
          this.#checks.guarded(() => {
            const { message, stack } = error as Error
            world.tell(() => `${name}: ${what}: ${message}`)
            if (what === 'vetoed') this.#checks.fail(`the database refused what ${name} decided: ${message}`)
            const isBroken = error instanceof TypeError || error instanceof RangeError
            if (isBroken || (what === 'load' && message !== AWAY))
              this.#checks.fail(`${name} cannot go on: ${stack}`)
          }),
      },
    })
    const process: Process = { name, loop, clock, log, isDead: false, stopped: null }
    clock.observe(this.clock(), clock.now(), clock.now())
    world.tell(() => `${name} starts`)
    return process
  }
}
