/**
 * What really is, whatever ipledger believes: nodes, the lives of workloads on them, the addresses that they use, what each
 * source sees of it, and what each has told. Time is simulated; all chance comes from the seed.
 */
import type { Actor, LookUp } from '../../src/core/command.ts'
import type { Entry, SourceDeclaration } from '../../src/core/event.ts'
import { guardsWithout, RULES, type RuleName } from '../../src/core/guards.ts'
import { createHeap } from '../../src/core/heap.ts'
import { attachmentKey, type Owner, RESERVE_KIND } from '../../src/core/owner.ts'
import { ALL_CHECKS, type LoopChecks } from '../../src/ledger/loop-options.ts'
import { readingEntries } from '../../src/sources/entries.ts'
import { inventedList } from './hostile.ts'

export const NETWORK = 'net'
export const START = Date.UTC(2026, 0, 1)
export const SECOND = 1_000
export const MINUTE = 60_000

/** What a world may be without: a rule of the core, or a check of the loop. */
export type Rule = RuleName | Exclude<keyof LoopChecks, 'guards'>
const CHECKS = Object.keys(ALL_CHECKS).filter((one) => one !== 'guards') as Rule[]
export const ALL_RULES: readonly Rule[] = [...RULES, ...CHECKS]

export function checksWithout(rules: readonly Rule[]): LoopChecks {
  const checks = CHECKS.map((one) => [one, !rules.includes(one)])
  return { ...Object.fromEntries(checks), guards: guardsWithout(rules as readonly RuleName[]) }
}

/** What goes wrong in a seed: a random part of this. */
export const FAULTS = [
  'callsAreSlow',
  'answersAreLost',
  'callsRepeatLate',
  'callsHoldTogether',
  'labelsChange',
  'callersDie',
  'callersSeeGhosts',
  'confirmsAreLate',
  'releasesAreEarly',
  'releasesRepeat',
  'livesOverlap',
  'livesMove',
  'livesPause',
  'livesRestart',
  'strangersAppear',
  'nodesReboot',
  'nodesPartition',
  'listsLag',
  'listsMiss',
  'listsArePartial',
  'listsFillSlowly',
  'listsRepeat',
  'listsSkipPaused',
  'endsAreListed',
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
  'backupIsRestoredAsDocumented',
  'failoverLosesTheEnd',
  'failoverLosesTheUnconfirmed',
  'operatorsAreStrict',
  'operatorsResize',
  'operatorsReapWrongly',
  'operatorsReapNodesWrongly',
  'operatorsQuarantine',
  'sourcesChange',
  'sourcesRunAhead',
  'nodesHaveAgents',
  'nodesHaveTwoAgents',
  'agentsRestart',
  'agentsStandStill',
  'agentsAreCopied',
  'poolsLimitNodes',
  'addressesAreAnswered',
  'sourcesInvent',
  'callersForge',
  'strangersHide',
] as const
export type Fault = (typeof FAULTS)[number]

/** What a rule is for, where without this it is rarely all that stands between a workload and another. */
export const FAULTS_FOR: Partial<Record<Rule, readonly Fault[]>> = {
  OLDER_LISTS_ONLY_PROTECT: ['callsAreSlow', 'livesOverlap', 'strangersAppear', 'listsLag'],
  NUMBER_BEYOND_NEEDS_A_PROOF: ['sourcesRunAhead'],
  UNKNOWN_SOURCE_KEEPS_RECOVERY_OPEN: ['sourcesChange', 'backupIsRestored'],
  CLOCK_HOLD_KEEPS_RECOVERY: ['clockGoesForward', 'backupIsRestored'],
  EVERY_WITNESS_MISSES: ['nodesReboot', 'lookUpsLie'],
  CONTESTED_IS_KEPT: ['strangersAppear', 'strangersHide'],
  WARNED_COMMIT_IS_UNKNOWN: ['commitsAreWarned', 'failoverLosesTheUnconfirmed'],
  ONE_REPORTER_FILLS_NO_POOL: ['callersSeeGhosts'],
}

/** A small pool whose leases are all promised. */
export const SPILL = { name: 'spill', cidr: '10.0.1.0/29', confirmWithinMs: MINUTE }

/** Where somebody is who invents lists and forges calls, in some seeds. */
export const HOSTILE_NODE = 'n2'

export type Node = { readonly name: string; isUp: boolean; isPartitioned: boolean }

/** One life of a workload. */
export type Life = {
  readonly id: number
  readonly owner: Owner
  /** Its caller's token is bound to its node: its calls go as the node's agent makes them. */
  readonly isBound: boolean
  node: Node
  /** What it got of its node's agent while the service was away. */
  spare: Spare | null
  /** asking: without an address; pending: promised one; running: uses it; gone: ended. */
  state: 'asking' | 'pending' | 'running' | 'gone'
  /** What was leased, and the address in it that is used. */
  block: string | null
  address: string
  /** The same of the other family, where it has both. */
  second: Pick<Life, 'block' | 'address'> | null
  token: number
  /** Its own view of `confirmBy`; null: none, or confirmed. */
  deadline: number | null
  /** Why it is not as the contract says: its caller's, its operator's or its restore's fault. */
  excuse: string | null
  /** It runs, and no source sees it: it is rebooting, or moving. */
  isHidden: boolean
  /** It is there, and comes back to its address. */
  isPaused: boolean
}

/** An address that an agent holds for an outage, in the memory of its process only. */
export type Spare = {
  /** Its holder in the ledger. */
  readonly owner: Owner
  readonly address: string
  readonly token: number
  /** Who is getting it, or got it. */
  taker: Life | null
  givenAt: number | null
  /** As of a life. */
  excuse: string | null
}

/** A process that reports for a source. */
export type Reporter = {
  epoch: string
  /** It has just started, and knows so many entries so far; null: all of them. */
  filled: number | null
  readonly spares: Set<Spare>
  /** How often it stood still, until when it does, and how often it had before the last report that was taken. */
  stops: number
  stoppedUntil: number
  reportedAt: number
}

/** For whom an address is listed, and on which node. */
export type Told = { readonly attachment: string; readonly node: string }

export type Source = {
  readonly declaration: SourceDeclaration
  /** Null: it sees all nodes. */
  readonly node: Node | null
  /** It knows neither incarnations nor interfaces. */
  readonly isVague: boolean
  /** It lists only what is not paused; asked, it knows better. */
  skipsPaused: boolean
  isRetired: boolean
  /** Complete reports that were taken in this era. */
  taken: number
  /** Two: somebody copied an agent. None of two knows of the other. */
  readonly processes: Reporter[]
  /** It is an agent, which keeps so many spare addresses; -1: it is none. */
  readonly spares: number
  /** What it lists is made up. */
  readonly isHostile: boolean
  /** Sent so far. */
  reports: number
  /** When the last complete one was begun, by the ledger's clock; of this era. */
  completeAt: number
  /** When the last report that was taken was begun. */
  takenAt: number
  /** By address: what ipledger has acknowledged to be listed live there. */
  readonly told: Map<string, Told>
}

type Due = { readonly at: number; readonly order: number; readonly run: () => void }
type Stopped = { readonly life: Life; readonly entry: Entry; readonly until: number }

export class World {
  readonly faults: Set<Fault>
  readonly checks: LoopChecks
  readonly nodes: readonly Node[] = ['n0', 'n1', 'n2'].map((name) => ({
    name,
    isUp: true,
    isPartitioned: false,
  }))
  readonly lives = new Set<Life>()
  readonly sources = new Map<string, Source>()
  /** When the last life of a kind and uid ended. */
  readonly ended = new Map<string, number>()
  /** What has stopped, and is listed as terminal for a while. */
  stopped: readonly Stopped[] = []
  now = 0
  /** How far the database's clock is from the truth. */
  clockOffset = 0
  /** Faults are over. */
  isCalm = false
  readonly story: string[] = []
  readonly #tells: boolean
  #state: number
  #order = 0
  readonly #due = createHeap<Due>((a, b) => a.at < b.at || (a.at === b.at && a.order < b.order))
  #afterwards: (() => void)[] = []

  constructor(seed: number, forced: readonly Fault[], without: readonly Rule[], tells: boolean) {
    this.#state = seed >>> 0
    this.#tells = tells
    this.checks = checksWithout(without)
    this.faults = new Set([...FAULTS.filter(() => this.chance(0.3)), ...forced])
    // Who is lied to in lists and in answers has nothing to go by.
    const lists: readonly Fault[] = [
      'listsMiss',
      'listsLag',
      'listsSkipPaused',
      'sourcesInvent',
      'strangersHide',
    ]
    if (this.faults.has('lookUpsLie') && lists.some((fault) => this.faults.has(fault)))
      for (const fault of this.chance(0.5) ? lists : (['lookUpsLie'] as const)) this.faults.delete(fault)
  }

  has(fault: Fault): boolean {
    return !this.isCalm && this.faults.has(fault)
  }

  /** A line of what happened, for whoever reads a failure. */
  tell(line: () => string): void {
    if (this.#tells) this.story.push(`${new Date(this.now).toISOString().slice(11, 23)} ${line()}`)
  }

  // Time.

  at(after: number, run: () => void): void {
    this.#order += 1
    this.#due.push({ at: this.now + Math.max(0, Math.floor(after)), order: this.#order, run })
  }

  /** Once all that a step has set off has happened. */
  afterwards(run: () => void): void {
    this.#afterwards.push(run)
  }

  finish(): void {
    const runs = this.#afterwards
    this.#afterwards = []
    for (const run of runs) run()
  }

  /** Runs what comes next. */
  step(): void {
    const next = this.#due.pop()
    if (next === undefined) throw new Error('nothing is left to do')
    this.now = next.at
    next.run()
  }

  // Chance.

  /** From 0 up to and without 1. */
  random(): number {
    // mulberry32
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }

  /** Whole, from `least` up to and without `most`. */
  between(least: number, most: number): number {
    return least + Math.floor(this.random() * (most - least))
  }

  chance(probability: number): boolean {
    return this.random() < probability
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)]!
  }

  // Lives.

  /** It uses an address no more. */
  drop(life: Life): void {
    if (life.block !== null && life.state === 'running' && this.has('endsAreListed') && isCovered(life)) {
      const until = this.now + 10 * MINUTE
      const stopped = entriesOf(life, 'terminal').map((entry) => ({ life, entry, until }))
      this.stopped = [...this.stopped.filter((one) => one.until > this.now), ...stopped]
    }
    life.block = null
    life.second = null
    life.deadline = null
  }

  /** Those of an owner that live: of one uid several may, on different nodes. */
  livesOf({ kind, uid }: { readonly kind: string; readonly uid: string }): readonly Life[] {
    return [...this.lives].filter(({ owner }) => owner.uid === uid && owner.kind === kind)
  }

  // Sources.

  /** What a source lists: what it sees, what it holds, and for a while what has stopped. */
  listOf(source: Source, process: Reporter): readonly Entry[] {
    const misses = this.has('listsMiss') && this.chance(0.5)
    const entries: Entry[] = source.isHostile ? [...inventedList(this, source.node!)] : []
    for (const life of this.lives)
      if (sees(source, life) && !(misses && life.id % 3 === 0))
        for (const entry of entriesOf(life, life.isPaused ? 'paused' : 'running'))
          entries.push(asSeenBy(source, entry))
    for (const { life, entry, until } of this.stopped) {
      const isThere = !source.isHostile && (source.node === null || source.node === life.node)
      if (until > this.now && isThere && !this.livesOf(life.owner).some(({ state }) => state === 'running'))
        entries.push(asSeenBy(source, entry))
    }
    for (const { givenAt, owner, address } of process.spares)
      if (givenAt === null) entries.push({ address, ...owner, node: source.node!.name })
    // What is listed twice must not hide that a list is still being filled.
    const all = read(source, entries)
    if (process.filled !== null)
      process.filled = process.filled < all.length && !this.isCalm ? process.filled + 1 : null
    const list = all.slice(0, process.filled ?? undefined)
    return this.has('listsRepeat') && list.length > 0 ? [...list, this.pick(list)] : list
  }

  /** What a source answers when it is asked whether a workload still exists. */
  lookUp(
    { node, processes }: Source,
    owner: LookUp['owner'],
    address: string,
  ): Pick<LookUp, 'answer' | 'terminalSince'> {
    const is = (answer: LookUp['answer'], terminalSince: number | null = null) => ({ answer, terminalSince })
    if (node !== null && (node.isPartitioned || !node.isUp)) return is('error')
    if (this.has('lookUpsFail') && this.chance(0.3)) return is(this.pick(['error', 'unknown'] as const))
    if (this.has('lookUpsLie') && this.chance(0.3)) return is('gone')
    const process = this.pick(processes)
    if (process.stoppedUntil > this.now) return is('error')
    if (owner.kind === RESERVE_KIND) {
      const isThere = [...this.lives].some((life) => life.block === address && life.node === node)
      const spare = [...process.spares].find((one) => one.owner.name === owner.name)
      return is(isThere || (spare !== undefined && isAlive(this, spare)) ? 'live' : 'gone')
    }
    const lives = this.livesOf(owner)
    if (lives.length === 0) {
      const endedAt = this.ended.get(`${owner.kind} ${owner.uid}`) ?? Number.NEGATIVE_INFINITY
      return this.now - endedAt < 3 * MINUTE ? is('terminal', START + endedAt + this.clockOffset) : is('gone')
    }
    if (lives.every(({ isPaused }) => isPaused) && this.chance(0.5))
      return is(this.pick(['error', 'unknown'] as const))
    const isSeen = ({ state, node: on }: Life) =>
      (node === null || on === node) &&
      state !== 'asking' &&
      (state !== 'pending' || !this.faults.has('startsAreUnseen'))
    return is(lives.some(isSeen) ? 'live' : 'gone')
  }
}

/** Who calls: bound to a node, or to none. */
export function callerOf(node: string | null): Actor {
  return { name: node === null ? 'caller' : `caller@${node}`, node }
}

/** The node that an actor's word is bound to; empty: none. */
export function nodeOfWord({ sources }: World, actor: string): string {
  return actor.startsWith('caller@') ? actor.slice(7) : (sources.get(actor)?.declaration.node ?? '')
}

/** A list as the intake reads it: each owner at an address once. */
export function read({ declaration: { node } }: Source, given: readonly Entry[]): readonly Entry[] {
  return done(readingEntries(given, { network: NETWORK, node })).entries
}

/** All turns of a work at once. */
export function done<T>(work: Generator<void, T>): T {
  for (;;) {
    const turn = work.next()
    if (turn.done) return turn.value
  }
}

/** Free, or so young that who got it may be about to configure it. */
function isAlive({ now }: World, { givenAt }: Spare): boolean {
  return givenAt === null || now - givenAt < 5 * MINUTE
}

/** No source reads infrastructure. */
function isCovered({ owner }: Life): boolean {
  return owner.kind !== 'infrastructure'
}

export function sees({ node, skipsPaused, isHostile }: Source, life: Life): boolean {
  if (isHostile) return false
  if (life.state !== 'running' || life.isHidden || (life.isPaused && skipsPaused)) return false
  return isCovered(life) && (node === null || node === life.node)
}

/** It uses this lease. */
export function uses({ block, second }: Life, leased: string): boolean {
  return block === leased || second?.block === leased
}

function entriesOf({ owner, address, second, node: { name: node } }: Life, state: string): readonly Entry[] {
  const { kind, name, uid, incarnation, interface: on } = owner
  const known = { kind, name, uid, ...(incarnation !== '' && { incarnation }), interface: on }
  const whose = kind === 'stranger' ? {} : known
  return [address, ...(second === null ? [] : [second.address])].map((one) => ({
    address: one,
    ...whose,
    node,
    state,
  }))
}

function asSeenBy({ isVague }: Source, entry: Entry): Entry {
  if (!isVague) return entry
  const { incarnation: _, interface: __, ...rest } = entry
  return rest
}

/** What a list says to be live: by address, for whom. Listed for several, it is told as nobody's. */
export function toldBy(entries: readonly Entry[]): Map<string, Told> {
  const told = new Map<string, Told>()
  for (const {
    address,
    state,
    node = '',
    kind,
    name = '',
    uid = name,
    incarnation = '',
    interface: on = '',
  } of entries) {
    if (state === 'terminal') continue
    const whose = kind === undefined ? '' : attachmentKey({ kind, name, uid, incarnation, interface: on })
    const before = told.get(address)?.attachment ?? whose
    told.set(address, { attachment: before === whose ? whose : '', node })
  }
  return told
}
