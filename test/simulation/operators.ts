/**
 * Operators, and everything that happens to nodes, processes, the database and its clock. What an operator does wrongly, or
 * what is lost with the end of a log, excuses the lives that it harms; everything else must be met by the ledger.
 */
import type { Command } from '../../src/core/command.ts'
import { isHeld } from '../../src/core/image.ts'
import { RESERVE_KIND } from '../../src/core/owner.ts'
import type { Agents } from './agents.ts'
import type { Callers } from './callers.ts'
import type { Checks } from './check.ts'
import type { Database } from './memory-log.ts'
import type { Processes } from './processes.ts'
import type { Reporters } from './reporters.ts'
import {
  type Fault,
  HOSTILE_NODE,
  MINUTE,
  NETWORK,
  type Reporter,
  SECOND,
  type Source,
  SPILL,
  type Spare,
  sees,
  uses,
  type World,
} from './world.ts'

type Order = Record<string, unknown> & { readonly type: Command['type'] }

const LOSSES: readonly Fault[] = [
  'backupIsRestored',
  'backupIsRestoredSilently',
  'backupIsRestoredAsDocumented',
  'failoverLosesTheEnd',
]
/** After a loss lists alone bring back what was lost, so from then on they are right. */
const MISLEADING = [
  'listsMiss',
  'strangersHide',
  'listsLag',
  'listsRepeat',
  'listsSkipPaused',
  'listsFillSlowly',
  'nodesReboot',
  'livesMove',
  'sourcesChange',
] as const
const AWAY: readonly string[] = ['DATABASE_UNAVAILABLE', 'DEADLINE_EXCEEDED', 'OUTCOME_UNKNOWN']
const BLOCKS = {
  name: 'blocks',
  cidr: 'fd00::/120',
  prefixLength: 124,
  reapPolicy: { unwitnessedAgeMs: 10 * MINUTE },
}

export class Operators {
  readonly #world: World
  readonly #database: Database
  readonly #processes: Processes
  readonly #checks: Checks
  readonly #reporters: Reporters
  readonly #agents: Agents
  readonly #callers: Callers
  readonly #prefix: number
  #backup = 0
  #made = 0

  constructor(
    world: World,
    database: Database,
    processes: Processes,
    checks: Checks,
    reporters: Reporters,
    agents: Agents,
    callers: Callers,
  ) {
    this.#world = world
    this.#agents = agents
    this.#callers = callers
    this.#database = database
    this.#processes = processes
    this.#checks = checks
    this.#reporters = reporters
    this.#prefix = world.faults.has('callersSeeGhosts') ? 24 : world.pick([28, 28, 27, 27, 26])
  }

  /** Gives an order until it is answered. */
  #order(body: Order, then: () => void = () => {}): void {
    const again = () => this.#world.at(SECOND, () => this.#order(body, then))
    const process = this.#processes.any()
    if (process === undefined) {
      again()
      return
    }
    this.#made += 1
    const actor = { name: 'operator', node: null }
    const envelope = {
      network: NETWORK,
      actor,
      cause: body.type,
      requestId: null,
      fingerprint: null,
      traceId: `o${this.#made}`,
    }
    this.#processes.call(process, { ...envelope, ...body } as unknown as Command, (outcome) => {
      const reason = outcome.ok ? 'ok' : outcome.refusal.reason
      this.#world.tell(() => `operator: ${JSON.stringify(body).slice(0, 160)}: ${reason}`)
      if (AWAY.includes(reason)) again()
      else then()
    })
  }

  setUp(): void {
    const world = this.#world
    const reapPolicy = {
      unwitnessedAgeMs: world.pick([6, 10, 20]) * MINUTE,
      terminalGraceMs: world.pick([1, 5]) * MINUTE,
    }
    const pool = {
      name: 'pool',
      cidr: `10.0.0.0/${this.#prefix}`,
      cooldownMs: world.pick([30, 120]) * SECOND,
      liveness: world.has('operatorsAreStrict') ? ('STRICT' as const) : ('AVAILABLE' as const),
      reapPolicy,
      ...(world.has('poolsLimitNodes') && { nodeLimit: world.between(3, 8) }),
    }
    const sources = world.pick(['agents', 'cluster', 'both', 'both'] as const)
    const addSources = () => {
      const spares = world.has('nodesHaveAgents') ? world.between(0, 3) : -1
      for (const { name } of world.nodes) {
        if (sources !== 'cluster') this.#addSource(`agent-${name}`, name, true, { spares })
        if (spares >= 0 && world.has('nodesHaveTwoAgents'))
          this.#addSource(`other-${name}`, name, true, { spares })
      }
      if (world.has('sourcesInvent')) this.#addSource('hostile', HOSTILE_NODE, true, { isHostile: true })
      if (sources !== 'agents') this.#addSource('cluster', '')
      if (world.chance(0.3)) this.#addSource('dry', '', false)
    }
    this.#order({ type: 'createNetwork', settings: { description: '', labels: {} } }, () => {
      this.#order({ type: 'createPool', pool })
      this.#order({ type: 'createPool', pool: BLOCKS })
      this.#order({ type: 'createPool', pool: { ...SPILL, reapPolicy } })
      addSources()
    })
  }

  #addSource(
    id: string,
    node: string,
    isEnabled = true,
    { spares = -1, isHostile = false }: Partial<Pick<Source, 'spares' | 'isHostile'>> = {},
  ): void {
    const world = this.#world
    const declaration = {
      id,
      kind: 'push' as const,
      node,
      ownerKinds: ['container', 'pod', 'stranger', ...(spares >= 0 ? [RESERVE_KIND] : [])],
      families: [4, 6] as const,
      intervalMs: node === '' ? MINUTE : 30 * SECOND,
      settings: {},
    }
    const source: Source = {
      declaration,
      node: world.nodes.find(({ name }) => name === node) ?? null,
      isVague: world.chance(0.3),
      skipsPaused: world.faults.has('listsSkipPaused') && world.chance(0.5),
      isRetired: false,
      processes: [],
      spares,
      isHostile,
      reports: 0,
      taken: 0,
      completeAt: 0,
      takenAt: 0,
      told: new Map(),
    }
    this.#order({ type: 'registerSource', declaration }, () => {
      world.sources.set(id, source)
      this.#startProcess(source)
      if (isEnabled) this.#order({ type: 'enableSource', id, acceptUnlisted: true })
    })
  }

  #startProcess(source: Source): void {
    const process = {
      epoch: '',
      filled: null,
      spares: new Set<Spare>(),
      stops: 0,
      stoppedUntil: 0,
      reportedAt: -1,
    }
    this.#startAnew(source, process)
    process.filled = null
    source.processes.push(process)
    this.#reporters.start(source, process)
  }

  /** A reporting process starts anew: without spares, and it may know nothing at first. */
  #startAnew({ declaration }: Source, process: Reporter): void {
    this.#made += 1
    Object.assign(process, { epoch: `${declaration.id}-${this.#made}`, stoppedUntil: 0, reportedAt: -1 })
    process.spares.clear()
    if (this.#world.has('listsFillSlowly')) process.filled = 0
    this.#world.tell(() => `${process.epoch} starts`)
  }

  // What goes wrong.

  keepBreaking(): void {
    const world = this.#world
    const breaks = this.#breaks()
    const next = (): void => {
      const able = (Object.keys(breaks) as Fault[]).filter((fault) => world.has(fault))
      const fault = able.length === 0 ? undefined : world.pick(able)
      // What loses the log is rare, or nothing else would ever happen.
      if (fault !== undefined && (!LOSSES.includes(fault) || world.chance(0.2))) breaks[fault]!()
      if (world.chance(0.05)) this.#backup = this.#database.commits
      if (!world.isCalm) world.at(world.between(20 * SECOND, 8 * MINUTE), next)
    }
    world.at(5 * MINUTE, () => {
      this.#backup = this.#database.commits
      next()
    })
    this.#lookAfter()
  }

  #breaks(): Partial<Record<Fault, () => void>> {
    const world = this.#world
    const processes = this.#processes
    const some = <T>(all: readonly T[], use: (one: T) => void) => {
      if (all.length > 0) use(world.pick(all))
    }
    const someProcess = (use: (process: Reporter, source: Source) => void) =>
      some([...world.sources.values()], (source) => some(source.processes, (one) => use(one, source)))
    const anywhere = () => `10.0.0.${world.between(1, 15)}`
    const reap = (order: Order) =>
      world.at(world.chance(0.5) ? 0 : world.between(0, 3 * MINUTE), () => this.#order(order))
    return {
      nodesReboot: () => {
        const node = world.pick(world.nodes)
        world.tell(() => `${node.name} reboots`)
        node.isUp = false
        for (const life of world.lives)
          if (life.node === node && life.state === 'running') life.isHidden = true
        world.at(world.between(20 * SECOND, 3 * MINUTE), () => {
          node.isUp = true
          for (const source of world.sources.values())
            if (source.node === node) {
              // A copy is not started.
              source.processes.length = Math.min(source.processes.length, 1)
              for (const one of source.processes) this.#startAnew(source, one)
            }
          for (const life of world.lives) if (life.node === node) life.isHidden = false
        })
      },
      nodesPartition: () => {
        // Best where something has just stopped: what its source told last stays.
        const node =
          (world.chance(0.5) ? world.stopped.at(-1)?.life.node : undefined) ?? world.pick(world.nodes)
        world.tell(() => `${node.name} is cut off`)
        node.isPartitioned = true
        world.at(world.between(MINUTE, 30 * MINUTE), () => {
          node.isPartitioned = false
        })
      },
      listsRepeat: () => someProcess((process, source) => this.#startAnew(source, process)),
      agentsRestart: () => someProcess((process, source) => this.#startAnew(source, process)),
      agentsStandStill: () =>
        someProcess((process) => {
          world.tell(() => `${process.epoch} stands still`)
          process.stops += 1
          process.stoppedUntil = world.now + world.between(30 * SECOND, 15 * MINUTE)
        }),
      agentsAreCopied: () =>
        someProcess((_, source) => {
          if (source.processes.length > 1) source.processes.shift()
          else if (source.node !== null) this.#startProcess(source)
        }),
      callersForge: () => this.#callers.forge(world.nodes.find(({ name }) => name === HOSTILE_NODE)!),
      processesCrash: () => some(processes.running(), (process) => processes.crash(process)),
      processesPause: () =>
        some(processes.running(), (process) => processes.pause(process, world.between(SECOND, 20 * SECOND))),
      connectionsDrop: () => this.#database.sever(),
      databaseIsAway: () => {
        world.tell(() => 'the database is away')
        processes.databaseAwayUntil = world.now + world.between(0, 30 * SECOND)
        this.#database.sever()
      },
      clockGoesForward: () => this.#stepClock(world.pick([10 * SECOND, 10 * MINUTE, 60 * MINUTE])),
      clockGoesBack: () =>
        this.#stepClock(world.clockOffset < 0 ? 0 : -world.pick([10 * SECOND, 10 * MINUTE])),
      backupIsRestored: () => this.#lose(this.#backup, `system-${world.now}/database/event/1`),
      backupIsRestoredSilently: () => {
        // All processes have all of the log, and each finds that the one which is there is another.
        for (const process of processes.all) processes.image(process, () => {})
        world.afterwards(() => {
          if (processes.running().length < processes.all.length || world.now < processes.databaseAwayUntil)
            return
          this.#lose(this.#backup, this.#database.identity)
          for (const process of processes.all) processes.image(process, () => {})
        })
      },
      backupIsRestoredAsDocumented: () => {
        const { head } = this.#checks.shadow
        for (const process of processes.all) processes.crash(process, true)
        // The volume is set back: with the log, the life of the database that wrote it.
        if (this.#lose(this.#backup, null, 'recovered')) processes.recover(head)
      },
      failoverLosesTheEnd: () =>
        this.#lose(
          Math.max(this.#backup, this.#database.commits - world.between(0, 6)),
          nextTimeline(this.#database.identity),
        ),
      failoverLosesTheUnconfirmed: () => {
        const { commits } = this.#database
        processes.isStandbyAway = true
        world.at(world.between(0, 5 * SECOND), () => {
          processes.isStandbyAway = false
          this.#lose(commits, nextTimeline(this.#database.identity), 'unconfirmed')
        })
      },
      operatorsResize: () => {
        const cidr = `10.0.0.0/${this.#prefix + world.between(0, 2)}`
        const change = world.pick([
          { exclude: [anywhere()] },
          { exclude: [] },
          { cidr },
          { draining: world.chance(0.3) },
        ])
        this.#order({ type: 'updatePool', name: 'pool', version: null, change })
        this.#setClosed(world.chance(0.1))
        if (world.chance(0.2)) this.#order({ type: 'deletePool', name: 'blocks', version: null })
        if (world.chance(0.5)) this.#order({ type: 'createPool', pool: BLOCKS })
      },
      operatorsReapWrongly: () =>
        some([...this.#checks.shadow.records.values()].filter(isHeld), ({ token, seq: version }) =>
          reap({ type: 'reap', token, version, why: 'it seemed gone' }),
        ),
      operatorsReapNodesWrongly: () =>
        reap({
          type: 'reapNode',
          node: world.pick(world.nodes).name,
          head: this.#checks.shadow.head,
          why: 'it seemed gone',
        }),
      operatorsQuarantine: () => {
        const address = world.pick([...world.lives].flatMap(({ block }) => block ?? [])) ?? anywhere()
        this.#order({ type: 'quarantine', target: { address }, why: 'to look at it' })
      },
      sourcesChange: () => {
        const node = world.pick(['', ...world.nodes.map(({ name }) => name)])
        if (world.chance(0.3)) this.#addSource(`more-${world.now}`, node, world.chance(0.8))
        else
          some([...world.sources.keys()], (id) =>
            this.#order({
              type: world.chance(0.2) && world.sources.size > 1 ? 'retireSource' : 'enableSource',
              id,
            }),
          )
      },
      sourcesRunAhead: () =>
        someProcess(({ epoch }, { declaration }) => {
          const head = this.#checks.shadow.head + 1_000
          const list = { entries: [], vanished: [], last: { entries: 0, digest: '', after: 0 } }
          const report = {
            source: declaration.id,
            epoch,
            sequence: 1,
            head,
            begunAt: 0,
            proven: world.chance(0.5),
            complete: true,
            because: [],
            ...list,
          }
          this.#order({ type: 'report', ...report })
          world.at(world.between(0, 5 * MINUTE), () =>
            this.#order({ type: 'resumeHold', hold: 'SOURCE_AHEAD', why: 'it was a bad agent' }),
          )
        }),
    }
  }

  /** Seen by all processes: each compares the clock every second. */
  #stepClock(ms: number): void {
    const world = this.#world
    const processes = this.#processes
    if (processes.running().length < processes.all.length || world.now < processes.databaseAwayUntil) return
    processes.compareClocks()
    world.clockOffset += ms
    world.tell(() => `the clock of the database is set by ${ms} ms`)
    world.at(world.between(0, SECOND), () => {
      processes.compareClocks()
      for (const process of processes.all) processes.image(process, () => {})
    })
  }

  /**
   * The end of the log is lost; whoever was given something by it lives on. What no list shows is lost with it. Of what was
   * not confirmed nobody was given anything. False: the database is the same as before.
   */
  #lose(
    to: number,
    becomes: string | null,
    what: 'unknown' | 'recovered' | 'unconfirmed' = 'unknown',
  ): boolean {
    const world = this.#world
    const database = this.#database
    // Of a backup from before the present era only an operator may know the number.
    const { events } = database.tables.get(NETWORK)!
    const head = events.at(-1)!.event.seq
    if (to < this.eraBegun && what !== 'recovered') return false
    database.setBack(to)
    const identity = becomes ?? database.tables.get(NETWORK)!.network.row!.identity
    const isSame = events.at(-1)!.event.seq === head && identity === database.identity
    database.identity = identity
    world.tell(() => `the log ends at ${events.at(-1)?.event.seq} after ${head}`)
    // Of reports alone nothing is missed.
    if (isSame) return false
    this.#checks.lost(events, what !== 'unconfirmed')
    if (what === 'unconfirmed') return true
    for (const fault of MISLEADING) world.faults.delete(fault)
    const { sources } = this.#checks.shadow
    const stateOf = ({ declaration }: Source) => sources.get(declaration.id)?.state
    for (const source of world.sources.values())
      Object.assign(source, { isRetired: stateOf(source) === 'RETIRED', skipsPaused: false })
    const believed = [...world.sources.values()].filter((source) => stateOf(source) === 'ENABLED')
    for (const source of world.sources.values())
      if (!believed.includes(source)) this.#agents.forget(source, 'lost with the log')
    for (const life of world.lives)
      if (life.deadline === null && !believed.some((source) => sees(source, life)))
        life.excuse ??= 'lost with the log'
    return true
  }

  /** Commits when the present era began. */
  eraBegun = 0

  // What operators are there for.

  /** Holds they resume; a recovery they end only if no source is there that could. */
  #lookAfter(): void {
    const world = this.#world
    const { network, sources } = this.#checks.shadow
    for (const hold of ['TOO_MANY_REAPS', 'SOURCE_AHEAD', 'CLOCK'] as const)
      if (network!.holds[hold] !== undefined && (world.isCalm || hold === 'TOO_MANY_REAPS'))
        this.#order({ type: 'resumeHold', hold, why: 'I looked' })
    for (const { source: id } of network!.unknownSources) {
      const source = world.sources.get(id)
      if (
        source === undefined ||
        sources.get(id)?.state === 'ENABLED' ||
        !(world.isCalm || world.chance(0.1))
      )
        continue
      this.#order({ type: 'registerSource', declaration: source.declaration }, () =>
        this.#order({ type: 'enableSource', id, acceptUnlisted: true }),
      )
    }
    for (const { token, seq: version, address, state, quarantine } of this.#checks.shadow.records.values()) {
      const isUsed = [...world.lives].some((life) => uses(life, address))
      const isKept = state === 'QUARANTINED' && quarantine!.reason === 'IN_USE'
      if (isKept && !isUsed && world.chance(0.3))
        this.#order({ type: 'reap', token, version, why: 'nobody answers there' })
    }
    // Until the clock has caught up with the log, nothing grows older.
    const behindMs = this.#checks.shadow.at - this.#processes.clock()
    if (world.isCalm && behindMs > 0) this.#stepClock(behindMs)
    if (network!.recovering !== null && ![...sources.values()].some(({ state }) => state === 'ENABLED')) {
      for (const life of world.lives) life.excuse ??= 'an operator ended the recovery'
      for (const source of world.sources.values())
        this.#agents.forget(source, 'an operator ended the recovery')
      this.#order({ type: 'endRecovery', why: 'nobody else will' })
    }
    world.at(world.isCalm ? 10 * SECOND : world.between(10 * SECOND, 2 * MINUTE), () => this.#lookAfter())
  }

  calm(): void {
    this.#world.isCalm = true
    this.#processes.databaseAwayUntil = 0
    for (const node of this.#world.nodes) Object.assign(node, { isUp: true, isPartitioned: false })
    // Two of one source prove nothing.
    for (const { processes } of this.#world.sources.values()) processes.splice(1)
    this.#order({ type: 'resumeHold', hold: null, why: 'calm' })
    this.#order({ type: 'updatePool', name: 'pool', version: null, change: { draining: false } })
    this.#setClosed(false)
  }

  #setClosed(closed: boolean): void {
    this.#order({ type: 'updateNetwork', version: null, description: null, labels: null, closed })
  }

  /** What no proof ends: what an operator quarantined, and what has no witness that could ever speak. */
  tidy(): void {
    for (const record of this.#checks.shadow.records.values())
      if (isHeld(record))
        this.#order({ type: 'reap', token: record.token, version: record.seq, why: 'nobody else will' })
  }
}

function nextTimeline(identity: string): string {
  const at = identity.lastIndexOf('/') + 1
  return `${identity.slice(0, at)}${Number(identity.slice(at)) + 1}`
}
