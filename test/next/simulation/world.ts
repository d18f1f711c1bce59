/**
 * What really is, whatever ipledger believes: nodes, the lives of workloads on them, the addresses that they use, what each
 * source sees of it, and what each source has told. Time is simulated; all chance comes from the seed.
 */

import type { LookUp } from '../../../src/next/core/command.ts'
import type { Entry, SourceDeclaration } from '../../../src/next/core/event.ts'
import { createHeap } from '../../../src/next/core/heap.ts'
import type { Owner } from '../../../src/next/core/owner.ts'
import { attachmentKey } from '../../../src/next/core/owner.ts'
import type { RuleName } from '../../../src/next/core/rules.ts'

export const NETWORK = 'net'
export const START = Date.UTC(2026, 0, 1)
export const SECOND = 1_000
export const MINUTE = 60_000

export type Random = {
  /** From 0 up to and without 1. */
  next(): number
  below(below: number): number
  chance(probability: number): boolean
  pick<T>(items: readonly T[]): T
  /** Whole, from `least` up to and without `most`. */
  between(least: number, most: number): number
}

export function seeded(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  return {
    next,
    below: (below) => Math.floor(next() * below),
    chance: (probability) => next() < probability,
    pick: (items) => items[Math.floor(next() * items.length)]!,
    between: (least, most) => least + Math.floor(next() * (most - least)),
  }
}

/** What goes wrong in this seed. */
export const FAULTS = [
  'callsAreSlow',
  'answersAreLost',
  'callsRepeatLate',
  'callersDie',
  'confirmsAreLate',
  'releasesAreEarly',
  'releasesRepeat',
  'livesOverlap',
  'livesMove',
  'livesRestart',
  'strangersAppear',
  'callersSeeGhosts',
  'nodesReboot',
  'nodesPartition',
  'listsLag',
  'listsMiss',
  'listsArePartial',
  'listsFillSlowly',
  'endsAreListed',
  'listsRepeat',
  'startsAreUnseen',
  'lookUpsFail',
  'lookUpsLie',
  'processesCrash',
  'processesPause',
  'connectionsDrop',
  'commitsAreWarned',
  'databaseIsAway',
  'clockGoesForward',
  'clockGoesBack',
  'backupIsRestored',
  'backupIsRestoredSilently',
  'failoverLosesTheEnd',
  'operatorsResize',
  'operatorsReapWrongly',
  'operatorsReapNodesWrongly',
  'operatorsQuarantine',
  'sourcesChange',
  'sourcesRunAhead',
] as const
export type Fault = (typeof FAULTS)[number]

export type NodeState = { readonly name: string; isUp: boolean; isPartitioned: boolean; boots: number }

/** One life of a workload. */
export type Life = {
  readonly id: number
  readonly owner: Owner
  /** Number of the life among those of its name. */
  readonly generation: number
  node: NodeState
  /** asking: no address yet; pending: promised one; running: uses it; gone: ended. */
  state: 'asking' | 'pending' | 'running' | 'gone'
  /** The unit that was leased, and the address in it that is used. */
  unit: string | null
  address: string | null
  token: number
  /** Own view of `confirmBy`, in simulated time; null: none, or confirmed. */
  deadline: number | null
  /** It is not as the contract says, by nobody's fault but its caller's, its operator's or its restore's. */
  excuse: string | null
  endedAt: number
  /** Runs, and its sources do not see it for now: it is rebooting, or moving. */
  isHidden: boolean
  /** Owners of no source: a gateway, or a kind that no source reads. */
  readonly isCovered: boolean
}

export type Told = { readonly attachment: string; readonly node: string }

export type SourceWorld = {
  readonly declaration: SourceDeclaration
  /** Null: it sees all nodes. */
  readonly node: NodeState | null
  /** What it does not know of an owner. */
  readonly isVague: boolean
  isRetired: boolean
  epoch: string
  /** It has just started, and knows so many entries so far; null: all of them. */
  filled: number | null
  /** Loses its memory: lists nothing until then. */
  blankUntil: number
  /** By address: what ipledger has acknowledged to be listed live there. */
  readonly told: Map<string, Told>
}

export type World = {
  readonly random: Random
  readonly faults: Set<Fault>
  readonly without: ReadonlySet<RuleName>
  now: number
  /** Faults are over. */
  isCalm: boolean
  at(after: number, run: () => void): void
  /** Once all that a step has set off has happened. */
  afterwards(run: () => void): void
  /** Runs what comes next; false: nothing does. */
  step(): boolean
  /** Runs what was to wait for the end of the step. */
  finish(): void
  readonly nodes: readonly NodeState[]
  readonly lives: Set<Life>
  /** What has stopped, where it was, and until when it is listed all the same. */
  stopped: readonly { readonly life: Life; readonly entry: Entry; readonly until: number }[]
  readonly users: Map<string, Set<Life>>
  readonly sources: Map<string, SourceWorld>
  use(life: Life, unit: string, address: string): void
  drop(life: Life): void
  /** Of the last lives of a kind and uid, for look-ups. */
  readonly byUid: Map<string, Life>
  /** A line of what happened, for whoever reads a failure. */
  tell(line: () => string): void
  readonly story: string[] | null
  /** How far the database's clock is from the truth. */
  clockOffset: number
}

export function createWorld(
  random: Random,
  faults: Set<Fault>,
  without: ReadonlySet<RuleName>,
  tells: boolean,
): World {
  type Due = { readonly at: number; readonly order: number; readonly run: () => void }
  const due = createHeap<Due>((a, b) => a.at < b.at || (a.at === b.at && a.order < b.order))
  let order = 0
  let waiting: (() => void)[] = []
  const users = new Map<string, Set<Life>>()
  const story: string[] | null = tells ? [] : null
  const world: World = {
    random,
    faults,
    without,
    now: 0,
    isCalm: false,
    at: (after, run) => {
      order += 1
      due.push({ at: world.now + Math.max(0, Math.floor(after)), order, run })
    },
    afterwards: (run) => {
      waiting.push(run)
    },
    finish() {
      if (waiting.length === 0) return
      const runs = waiting
      waiting = []
      for (const run of runs) run()
    },
    step() {
      const next = due.pop()
      if (next === undefined) return false
      world.now = Math.max(world.now, next.at)
      next.run()
      return true
    },
    nodes: Array.from({ length: 3 }, (_, i) => ({
      name: `n${i}`,
      isUp: true,
      isPartitioned: false,
      boots: 0,
    })),
    lives: new Set(),
    stopped: [],
    users,
    sources: new Map(),
    byUid: new Map(),
    story,
    clockOffset: 0,
    use(life, unit, address) {
      if (life.unit === unit) return
      world.drop(life)
      life.unit = unit
      life.address = address
      const there = users.get(unit)
      if (there === undefined) users.set(unit, new Set([life]))
      else there.add(life)
    },
    drop(life) {
      if (life.unit === null) return
      if (has(world, 'endsAreListed') && life.isCovered && life.state === 'running') {
        const entry = entryFor(life, 'terminal')
        const until = world.now + 10 * MINUTE
        world.stopped = [...world.stopped.filter((one) => one.until > world.now), { life, entry, until }]
      }
      const there = users.get(life.unit)
      there?.delete(life)
      if (there?.size === 0) users.delete(life.unit)
      life.unit = null
      life.address = null
      life.deadline = null
    },
    tell(line) {
      if (story === null) return
      story.push(`${timeOf(world.now)} ${line()}`)
    },
  }
  return world
}

export function timeOf(ms: number): string {
  return new Date(ms).toISOString().slice(11, 23)
}

export function has(world: World, fault: Fault): boolean {
  return !world.isCalm && world.faults.has(fault)
}

/** Whether a source would list a life if it were asked now and did its work. */
export function sees(source: SourceWorld, life: Life): boolean {
  if (life.state !== 'running' || life.isHidden || !life.isCovered) return false
  return source.node === null || source.node === life.node
}

/** What a source lists: what it sees, and for a while those that have ended. */
export function listOf(world: World, source: SourceWorld): Entry[] {
  const { random } = world
  if (source.blankUntil > world.now) return []
  const misses = has(world, 'listsMiss') && random.chance(0.5)
  const entries: Entry[] = []
  for (const life of world.lives) {
    if (!sees(source, life)) continue
    if (misses && life.id % 3 === 0) continue
    entries.push(asSeenBy(source, entryFor(life, 'running')))
  }
  for (const { life, entry, until } of world.stopped)
    if (until > world.now && (source.node === null || source.node === life.node) && !runs(world, life.owner))
      entries.push(asSeenBy(source, entry))
  if (has(world, 'listsRepeat') && entries.length > 0) entries.push(random.pick(entries))
  if (source.filled === null) return entries
  source.filled = source.filled < entries.length && !world.isCalm ? source.filled + 1 : null
  return source.filled === null ? entries : entries.slice(0, source.filled)
}

function asSeenBy(source: SourceWorld, { incarnation, interface: on, ...entry }: Entry): Entry {
  if (source.isVague) return entry
  return {
    ...entry,
    ...(incarnation !== undefined && { incarnation }),
    ...(on !== undefined && { interface: on }),
  }
}

function entryFor({ owner, address, node }: Life, state: string): Entry {
  const { kind, name, uid, incarnation } = owner
  if (kind === 'stranger') return { address: address!, node: node.name, state }
  return {
    address: address!,
    kind,
    name,
    uid,
    ...(incarnation !== '' && { incarnation }),
    interface: owner.interface,
    node: node.name,
    state,
  }
}

/** What a source answers when it is asked whether a workload still exists. */
export function lookUpOf(
  world: World,
  source: SourceWorld,
  owner: LookUp['owner'],
): { readonly answer: LookUp['answer']; readonly terminalSince: number | null } {
  const { random } = world
  const is = (answer: LookUp['answer'], terminalSince: number | null = null) => ({ answer, terminalSince })
  if (source.node !== null && (source.node.isPartitioned || !source.node.isUp)) return is('error')
  if (has(world, 'lookUpsFail') && random.chance(0.3)) return is(random.pick(['error', 'unknown'] as const))
  const life = lifeOf(world, owner)
  if (source.blankUntil > world.now) return is('gone')
  // A source lies in its lists, or in its answers; one that does both is believed by whoever has no other.
  if (has(world, 'lookUpsLie') && random.chance(0.3)) return is('gone')
  if (life === undefined) return is('gone')
  if (life.state === 'gone') {
    const terminalSince = START + life.endedAt + world.clockOffset
    return world.now - life.endedAt < 3 * MINUTE ? is('terminal', terminalSince) : is('gone')
  }
  if (life.state === 'asking' || (life.state === 'pending' && world.faults.has('startsAreUnseen')))
    return is('gone')
  if (source.node !== null && life.node !== source.node) return is('gone')
  return is('live')
}

const runs = (world: World, owner: Owner) => lifeOf(world, owner)?.state === 'running'

/** The one that lives, or the last one that did. */
function lifeOf(world: World, { kind, uid }: LookUp['owner']): Life | undefined {
  let last: Life | undefined
  for (const life of world.lives)
    if (
      life.owner.uid === uid &&
      life.owner.kind === kind &&
      (last === undefined || life.state === 'running')
    )
      last = life
  return last ?? world.byUid.get(`${kind} ${uid}`)
}

/** From now on nothing of what a source said at these addresses is expected to be known. */
export function untell(source: SourceWorld, listed?: Iterable<string>): void {
  if (listed === undefined) source.told.clear()
  else for (const address of listed) source.told.delete(address)
}

/** What a source lists live: by address, for whom. A source lists an address once, or it is told as nobody's. */
export function toldBy(entries: readonly Entry[]): Map<string, Told> {
  const told = new Map<string, Told>()
  for (const entry of entries) {
    if (entry.state === 'terminal') continue
    const { kind, name = '', uid = name, incarnation = '', interface: on = '' } = entry
    const attachment =
      kind === undefined ? '' : attachmentKey({ kind, name, uid, incarnation, interface: on })
    const before = told.get(entry.address)
    told.set(entry.address, {
      attachment: before === undefined || before.attachment === attachment ? attachment : '',
      node: entry.node ?? '',
    })
  }
  return told
}
