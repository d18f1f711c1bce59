/**
 * Operators, and everything that happens to nodes, processes, the database and its clock. What an operator does wrongly, or
 * what is lost with the end of a log, excuses the lives that it harms; everything else must be met by the ledger.
 */
import type { Command, PoolChange } from '../../../src/next/core/command.ts'
import { isHeld } from '../../../src/next/core/image.ts'
import type { Checks } from './check.ts'
import type { Database } from './memory-log.ts'
import type { Processes } from './processes.ts'
import type { Reporters } from './reporters.ts'
import {
  type Fault,
  has,
  type Life,
  MINUTE,
  NETWORK,
  SECOND,
  type SourceWorld,
  sees,
  type World,
} from './world.ts'

export type Operators = { setUp(): void; keepBreaking(): void; calm(): void; tidy(): void }

const LOSSES: ReadonlySet<Fault> = new Set([
  'backupIsRestored',
  'backupIsRestoredSilently',
  'failoverLosesTheEnd',
])
const BLOCKS = {
  name: 'blocks',
  cidr: 'fd00::/120',
  prefixLength: 124,
  reapPolicy: { unwitnessedAgeMs: 10 * MINUTE },
}

export function createOperators(
  world: World,
  database: Database,
  processes: Processes,
  checks: Checks,
  reporters: Reporters,
): Operators {
  const { random } = world
  let backup = 0
  let made = 0

  const envelope = (cause: string) => ({
    network: NETWORK,
    actor: { name: 'operator', node: null },
    cause,
    requestId: null,
    fingerprint: null,
    traceId: `o${++made}`,
  })

  /** Tries until it is answered. */
  function order(
    body: Record<string, unknown> & { readonly type: Command['type'] },
    then: () => void = () => {},
  ): void {
    const process = processes.any()
    const again = () => world.at(SECOND, () => order(body, then))
    if (process === null) {
      again()
      return
    }
    processes.call(process, { ...envelope(body.type), ...body } as unknown as Command, (outcome) => {
      const isAway =
        !outcome.ok &&
        ['DATABASE_UNAVAILABLE', 'DEADLINE_EXCEEDED', 'OUTCOME_UNKNOWN'].includes(outcome.refusal.reason)
      world.tell(
        () =>
          `operator: ${JSON.stringify(body).slice(0, 200)}: ${outcome.ok ? 'ok' : outcome.refusal.reason}`,
      )
      if (isAway) again()
      else then()
    })
  }

  // What there is.

  const prefix = world.faults.has('callersSeeGhosts') ? 24 : random.pick([28, 28, 27, 27, 26])
  const pool = `10.0.0.0/${prefix}`
  const confirmGraceMs = MINUTE
  const unwitnessedAgeMs = random.pick([6 * MINUTE, 10 * MINUTE, 20 * MINUTE])

  function setUp(): void {
    const reapPolicy = {
      unwitnessedAgeMs,
      confirmGraceMs,
      terminalGraceMs: random.pick([MINUTE, 5 * MINUTE]),
    }
    const cooldownMs = random.pick([30 * SECOND, 2 * MINUTE])
    order({ type: 'createNetwork', settings: { description: '', labels: {} } }, () =>
      order(
        { type: 'createPool', pool: { name: 'pool', cidr: pool, cooldownMs, reapPolicy, isDefault: true } },
        () =>
          order({ type: 'createPool', pool: BLOCKS }, () => {
            const kinds = random.pick(['agents', 'cluster', 'both', 'both'] as const)
            if (kinds !== 'cluster')
              for (const node of world.nodes) addSource(`agent-${node.name}`, node.name)
            if (kinds !== 'agents') addSource('cluster', '')
            if (random.chance(0.3)) addSource('dry', '', false)
          }),
      ),
    )
  }

  function addSource(id: string, node: string, isEnabled = true): void {
    const declaration = {
      id,
      kind: 'push' as const,
      node,
      ownerKinds: ['container', 'pod', 'stranger'],
      families: [4, 6] as const,
      intervalMs: node === '' ? MINUTE : 30 * SECOND,
      settings: {},
    }
    const source: SourceWorld = {
      declaration,
      node: world.nodes.find(({ name }) => name === node) ?? null,
      isVague: random.chance(0.3),
      isRetired: false,
      epoch: `${id}-1`,
      filled: null,
      blankUntil: 0,
      told: new Map(),
    }
    order({ type: 'registerSource', declaration }, () => {
      world.sources.set(id, source)
      reporters.start(source)
      if (isEnabled) order({ type: 'enableSource', id })
    })
  }

  // What goes wrong.

  function life(): Life | undefined {
    const all = [...world.lives].filter(({ state }) => state === 'running')
    return all.length === 0 ? undefined : random.pick(all)
  }

  const breaks: Partial<Record<Fault, () => void>> = {
    nodesReboot() {
      const node = random.pick(world.nodes)
      world.tell(() => `${node.name} reboots`)
      node.isUp = false
      const back = random.between(20 * SECOND, 3 * MINUTE)
      for (const one of world.lives) if (one.node === node && one.state === 'running') one.isHidden = true
      world.at(back, () => {
        node.isUp = true
        node.boots += 1
        for (const source of world.sources.values()) if (source.node === node) startAnew(source)
        for (const one of world.lives) if (one.node === node) one.isHidden = false
      })
    },
    nodesPartition() {
      // Best where something has just stopped: what its source told last stays.
      const node = random.chance(0.5) ? (world.stopped.at(-1)?.life.node ?? world.nodes[0]!) : random.pick(world.nodes)
      world.tell(() => `${node.name} is cut off`)
      node.isPartitioned = true
      world.at(random.between(MINUTE, 30 * MINUTE), () => {
        node.isPartitioned = false
      })
    },
    listsRepeat() {
      const source = random.pick([...world.sources.values()])
      if (source === undefined) return
      startAnew(source)
    },
    processesCrash() {
      const process = processes.any()
      if (process !== null) processes.crash(process)
    },
    processesPause() {
      const process = processes.any()
      if (process !== null) processes.pause(process, random.between(SECOND, 20 * SECOND))
    },
    connectionsDrop() {
      world.tell(() => 'the database ends all connections')
      database.sever()
    },
    databaseIsAway() {
      world.tell(() => 'the database is away')
      processes.databaseAwayUntil = world.now + random.below(30 * SECOND)
      database.sever()
    },
    clockGoesForward() {
      stepClock(random.pick([10 * SECOND, 10 * MINUTE, 60 * MINUTE]))
    },
    clockGoesBack() {
      if (world.clockOffset >= 0) stepClock(-random.pick([10 * SECOND, 10 * MINUTE]))
    },
    backupIsRestored() {
      lose(backup, `system-${++made}/database/event/1`)
    },
    backupIsRestoredSilently() {
      // All processes have all of the log; each finds that the one which is there is another.
      for (const process of processes.all) processes.image(process, () => {})
      world.afterwards(() => {
        const running = processes.all.filter(({ isDead, stopped }) => !isDead && stopped === null)
        if (running.length < processes.all.length || world.now < processes.databaseAwayUntil) return
        lose(backup, database.identity)
        for (const process of running) processes.image(process, () => {})
      })
    },
    failoverLosesTheEnd() {
      const [system, name, table, timeline] = database.identity.split('/')
      lose(
        Math.max(backup, database.commits - random.below(6)),
        `${system}/${name}/${table}/${Number(timeline) + 1}`,
      )
    },
    operatorsResize() {
      const change: PoolChange = random.pick([
        { exclude: [`10.0.0.${random.between(1, 14)}`] },
        { exclude: [] },
        { cidr: `10.0.0.0/${prefix + 1}` },
        { cidr: pool },
        { draining: random.chance(0.3) },
        { cooldownMs: random.pick([30 * SECOND, 2 * MINUTE]) },
      ])
      order({ type: 'updatePool', name: 'pool', version: null, change })
      if (random.chance(0.2)) order({ type: 'deletePool', name: 'blocks', version: null })
      if (random.chance(0.5)) order({ type: 'createPool', pool: BLOCKS })
    },
    operatorsReapWrongly() {
      const held = [...checks.shadow.records.values()].filter(isHeld)
      if (held.length === 0) return
      const { token, seq: version } = random.pick(held)
      const isSoon = random.chance(0.5)
      world.at(isSoon ? 0 : random.below(3 * MINUTE), () =>
        order({ type: 'reap', token, version, why: 'it seemed gone' }),
      )
    },
    operatorsReapNodesWrongly() {
      const { name } = random.pick(world.nodes)
      const { head } = checks.shadow
      world.at(random.below(20 * SECOND), () =>
        order({ type: 'reapNode', node: name, head, why: 'it seemed gone' }),
      )
    },
    operatorsQuarantine() {
      const one = life()
      const address = one?.unit ?? `10.0.0.${random.between(1, 14)}`
      order({ type: 'quarantine', target: { address }, why: 'to look at it' })
    },
    sourcesChange() {
      const source = random.pick([...world.sources.values()])
      if (source === undefined) return
      const { id } = source.declaration
      if (random.chance(0.2) && world.sources.size > 1) order({ type: 'retireSource', id })
      else if (random.chance(0.5))
        addSource(`more-${++made}`, random.pick(['', ...world.nodes.map(({ name }) => name)]))
      else order({ type: 'enableSource', id })
    },
    sourcesRunAhead() {
      const source = random.pick([...world.sources.values()])
      const process = processes.any()
      if (source === undefined || process === null) return
      const report = {
        type: 'report' as const,
        source: source.declaration.id,
        epoch: source.epoch,
        sequence: 1,
        head: checks.shadow.head + 1_000,
        begunAt: processes.now(process),
        complete: true,
        because: [],
        entries: [],
        vanished: [],
        last: { entries: 0, digest: '', after: 0 },
      }
      processes.call(process, { ...envelope('REPORT'), ...report }, () => {})
      world.at(random.below(5 * MINUTE), () =>
        order({ type: 'resumeHold', hold: 'SOURCE_AHEAD', why: 'it was a bad agent' }),
      )
    },
  }

  /** Its reporting process starts anew, and may know nothing at first. */
  function startAnew(source: SourceWorld): void {
    source.epoch = `${source.declaration.id}-${++made}`
    if (has(world, 'listsFillSlowly')) source.filled = 0
    world.tell(() => `${source.declaration.id} starts anew as ${source.epoch}`)
  }

  function stepClock(ms: number): void {
    const isSeen = processes.all.every(({ isDead, stopped }) => !isDead && stopped === null)
    if (!isSeen || world.now < processes.databaseAwayUntil) return
    processes.compareClocks()
    world.clockOffset += ms
    world.tell(() => `the clock of the database is set by ${ms} ms`)
    world.at(random.below(SECOND), () => {
      processes.compareClocks()
      for (const process of processes.all) processes.image(process, () => {})
    })
  }

  /** The end of the log is lost; whoever was given something by it lives on. */
  function lose(to: number, identity: string): void {
    // A backup from before the present era wants its number from the operator: nobody else may know it.
    const commits = Math.max(to, checks.count.begun)
    if (commits >= database.commits) return
    const { head } = checks.shadow
    const before = database.commits
    database.setBack(commits)
    world.tell(
      () =>
        `${before - commits} commits are lost; the log ends at ${database.tables.get(NETWORK)!.events.at(-1)?.event.seq}`,
    )
    const isSame =
      database.tables.get(NETWORK)!.events.at(-1)?.event.seq === head && identity === database.identity
    database.identity = identity
    // Of reports alone nothing is missed.
    if (isSame) return
    checks.lost()
    // Lists alone bring back what was lost, so from here on they are right; what no list shows is lost.
    for (const fault of [
      'listsMiss',
      'listsLag',
      'listsRepeat',
      'nodesReboot',
      'livesMove',
      'sourcesChange',
    ] as const)
      world.faults.delete(fault)
    const stored = database.tables.get(NETWORK)!.sources
    for (const source of world.sources.values())
      source.isRetired = stored.get(source.declaration.id)?.state === 'RETIRED'
    const believed = [...world.sources.values()].filter(
      ({ declaration: { id } }) => stored.get(id)?.state === 'ENABLED',
    )
    for (const one of world.lives)
      if (!believed.some((source) => sees(source, one)) && one.deadline === null)
        one.excuse ??= 'lost with the end of the log'
  }

  function keepBreaking(): void {
    const able = Object.keys(breaks) as Fault[]
    const next = (): void => {
      if (world.isCalm) return
      const able_ = able.filter((fault) => has(world, fault))
      const fault = able_.length > 0 ? random.pick(able_) : null
      // What loses the log is rare, or nothing else would ever happen.
      if (fault !== null && (!LOSSES.has(fault) || random.chance(0.2))) breaks[fault]!()
      world.at(random.between(20 * SECOND, 8 * MINUTE), next)
    }
    world.at(5 * MINUTE, () => {
      backup = database.commits
      next()
    })
    world.at(30 * MINUTE, function again() {
      if (random.chance(0.5)) backup = database.commits
      world.at(random.between(10 * MINUTE, 60 * MINUTE), again)
    })
    world.at(MINUTE, lookAfter)
  }

  /** What an operator is called for: holds. A recovery he ends only if no source is there that could. */
  function lookAfter(): void {
    const { network, sources } = checks.shadow
    const isWatched = [...sources.values()].some(({ state }) => state === 'ENABLED')
    for (const hold of ['TOO_MANY_REAPS', 'SOURCE_AHEAD'] as const)
      if (network?.holds[hold] !== undefined && (world.isCalm || hold === 'TOO_MANY_REAPS'))
        order({ type: 'resumeHold', hold, why: 'I looked' })
    if (network?.recovering !== null && network !== null && !isWatched) {
      for (const one of world.lives) one.excuse ??= 'an operator ended the recovery'
      order({ type: 'endRecovery', why: 'nobody else will' })
    }
    world.at(world.isCalm ? 10 * SECOND : random.between(10 * SECOND, 2 * MINUTE), lookAfter)
  }

  return {
    setUp,
    keepBreaking,
    calm() {
      world.isCalm = true
      processes.databaseAwayUntil = 0
      for (const node of world.nodes) Object.assign(node, { isUp: true, isPartitioned: false })
      for (const source of world.sources.values()) source.blankUntil = 0
      order({ type: 'resumeHold', hold: null, why: 'calm' })
      order({ type: 'updatePool', name: 'pool', version: null, change: { draining: false } })
    },
    /** What no proof ends: what an operator quarantined, and what has no witness that could ever speak. */
    tidy() {
      for (const record of checks.shadow.records.values()) {
        if (!isHeld(record)) continue
        const { token, seq: version } = record
        order({ type: 'reap', token, version, why: 'nobody else will' })
      }
    },
  }
}
