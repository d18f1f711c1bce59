/**
 * Callers: whoever starts, moves, restarts and ends workloads and asks ipledger for their addresses. They keep to the
 * contract (`confirmBy`, a refused Confirm, removal before Release); where a fault makes one break it, its life is excused.
 */
import type { Answer, Command, LeaseReference, LeaseView } from '../../src/core/command.ts'
import type { Refusal } from '../../src/core/refusal.ts'
import type { Agents, Send } from './agents.ts'
import { forgedCommand, requestOf } from './hostile.ts'
import type { Processes } from './processes.ts'
import {
  callerOf,
  type Life,
  MINUTE,
  NETWORK,
  type Node,
  SECOND,
  SPILL,
  type Spare,
  type World,
} from './world.ts'

/** Longest time from an answer until its address is used, or between two uses: less than any age of the judge. */
const LONGEST_START = 3.5 * MINUTE
/** The same of a spare address, which the plugin configures at once: its agent may end, and prove it to be nobody's. */
const SPARE_START = MINUTE
/** How long calls wait for others that they go together with. */
const GATHERS = 5 * SECOND
const UNKNOWN: readonly string[] = ['DATABASE_UNAVAILABLE', 'OUTCOME_UNKNOWN', 'DEADLINE_EXCEEDED']

/** What lives ask for, one after the other: a block, an address of one of several pools, one of each family. */
const CLAIMS: readonly (readonly (readonly string[])[] | undefined)[] = [
  [['blocks']],
  [['pool', 'spill']],
  [['spill', 'pool']],
  [['spill', 'pool'], ['blocks']],
  ...[undefined, undefined, undefined],
]

type Item = Command<'reserve' | 'confirm' | 'release'>
type Answered = Parameters<Send>[1]
type Removal = Command<'release'>['removal']

export class Callers {
  readonly #world: World
  readonly #processes: Processes
  #lives = 0
  #calls = 0
  #isOver = false
  readonly #generations = new Map<string, number>()
  /** Names whose lives nobody tells apart: they follow each other. */
  readonly #taken = new Set<string>()
  readonly #most: number
  /** Calls that go together, by their cause: all of them hold, or none. */
  readonly #gathered = new Map<string, { readonly item: Item; readonly answered: Answered }[]>()

  constructor(world: World, processes: Processes) {
    this.#world = world
    this.#processes = processes
    this.#most = world.between(6, 24)
  }

  /** Not given with the rest: they call as these do. */
  agents: Agents | null = null

  keepStarting(): void {
    const world = this.#world
    if (world.isCalm) return
    if (world.lives.size < this.#most) this.#start()
    world.at(world.between(SECOND, MINUTE), () => this.keepStarting())
  }

  endAll(): void {
    this.#isOver = true
    for (const life of this.#world.lives) this.#end(life, 'the world ends')
  }

  /** Somebody on a node uses what is another node's. */
  forge(node: Node): void {
    const world = this.#world
    const elsewhere = [...world.lives].filter((life) => life.node !== node && life.owner.incarnation !== '')
    for (const victim of elsewhere.filter(() => world.chance(0.5))) {
      // What has its name here is harmed.
      for (const life of world.lives)
        if (life.node === node && life.owner.name === victim.owner.name) life.excuse ??= 'its node is hostile'
      this.send(forgedCommand(world, node, victim), () => {})
    }
  }

  #envelope(cause: string, requestId: string | null = null, actor = callerOf(null)) {
    return { network: NETWORK, actor, cause, requestId, fingerprint: requestId, traceId: null }
  }

  /**
   * Sends a command to some process. Calls get lost on either way, take their time, and may be delivered once more much
   * later. `undefined`: no answer came.
   */
  send(command: Command, answered: Answered): void {
    const world = this.#world
    let isDone = false
    const done: Answered = (answer) => {
      if (!isDone) answered(answer)
      isDone = true
    }
    const deliver = (then: typeof done) => {
      const process = this.#processes.any()
      if (process === undefined || isCutOff(world, command)) return
      this.#calls += 1
      const traceId = `t${this.#calls}`
      const traced =
        command.type === 'allOrNothing'
          ? { ...command, traceId, items: command.items.map((item) => ({ ...item, traceId })) }
          : { ...command, traceId }
      this.#processes.call(process, traced, (outcome) => {
        const answer = outcome.ok ? outcome.answer : outcome.refusal
        if (world.has('answersAreLost') && world.chance(0.1)) return
        if (world.has('callsAreSlow') && world.chance(0.2))
          world.at(world.between(0, 3 * SECOND), () => then(answer))
        else then(answer)
      })
    }
    if (world.has('callsAreSlow') && world.chance(0.2) && !isDelicate(command))
      world.at(world.between(0, 5 * SECOND), () => deliver(done))
    else if (!world.has('answersAreLost') || !world.chance(0.05)) deliver(done)
    if (world.has('callsRepeatLate') && world.chance(0.1) && !isDelicate(command))
      world.at(world.between(0, 80 * SECOND), () => deliver(() => {}))
    world.afterwards(() => {
      if (!isDone) world.at(20 * SECOND, () => done(undefined))
    })
  }

  /** The same, or together with others of its kind. Refused together, each is sent alone. */
  #sendItem(item: Item, answered: Answered): void {
    const world = this.#world
    const { cause, requestId, actor } = item
    const by = `${cause} ${actor.name}`
    const isAlone = requestId !== null || isDelicate(item)
    if (!world.has('callsHoldTogether') || isAlone || world.chance(0.5)) {
      this.send(item, answered)
      return
    }
    const gathered = this.#gathered.get(by) ?? []
    this.#gathered.set(by, [...gathered, { item, answered }])
    if (gathered.length > 0) return
    world.at(world.between(0, GATHERS), () => {
      const calls = this.#gathered.get(by)!
      this.#gathered.delete(by)
      const id = world.chance(0.3) ? `batch ${this.#calls} ${world.now}` : null
      const items = calls.map((one) => one.item)
      this.send({ ...this.#envelope(`Batch${cause}`, id, actor), type: 'allOrNothing', items }, (answer) => {
        const isRefused = answer !== undefined && 'reason' in answer
        for (const [at, one] of calls.entries())
          if (isRefused) this.send(one.item, one.answered)
          else one.answered(answer?.items?.[at])
      })
    })
  }

  // A life.

  #start(like?: Life['owner']): void {
    const world = this.#world
    if (this.#isOver) return
    const kind =
      like?.kind ?? (world.chance(0.03) ? 'infrastructure' : world.pick(['container', 'pod', 'pod']))
    const name = like?.name ?? `w${world.between(0, 16)}`
    const isNameless = kind === 'container' && name.endsWith('3')
    if (isNameless && this.#taken.has(name)) return
    const generation = (this.#generations.get(name) ?? 0) + 1
    this.#generations.set(name, generation)
    this.#lives += 1
    const uid = kind === 'pod' ? `${name}-${generation}` : name
    const life: Life = {
      id: this.#lives,
      owner: { kind, name, uid, incarnation: isNameless ? '' : String(generation), interface: 'eth0' },
      isBound: kind !== 'infrastructure' && world.has('nodesHaveAgents') && world.chance(0.7),
      node: world.pick(world.nodes),
      spare: null,
      state: 'asking',
      block: null,
      address: '',
      second: null,
      token: 0,
      deadline: null,
      excuse: null,
      isHidden: false,
      isPaused: false,
    }
    if (world.has('strangersAppear') && world.chance(0.1)) {
      this.#appear(life)
      return
    }
    if (isNameless) this.#taken.add(name)
    world.lives.add(life)
    world.tell(() => `life ${life.id} is ${kind} ${name}/${life.owner.incarnation} on ${life.node.name}`)
    this.#reserve(life)
  }

  /** Uses an address that it never asked for, and that ipledger can only be told of. */
  #appear(life: Life): void {
    const world = this.#world
    const used = [...world.lives].flatMap(({ block }) => (block?.startsWith('10.') ? block : []))
    const isUsed = used.length > 0 && world.chance(0.5)
    const address = isUsed ? world.pick(used) : `10.0.0.${world.between(1, 15)}`
    const kind = world.chance(0.5) ? life.owner.kind : 'stranger'
    const owner = { ...life.owner, kind, name: `s${life.id}`, uid: `s${life.id}` }
    const stranger: Life = { ...life, owner, state: 'running', excuse: 'a stranger', block: address, address }
    world.lives.add(stranger)
    world.tell(() => `stranger ${life.id} takes ${address} on ${life.node.name}`)
    if (world.has('livesPause')) world.at(world.between(0, 5 * MINUTE), () => this.#pause(stranger))
    // Who is there when the faults stop stays, so that it is seen what becomes of whom it disturbs.
    const hides = world.has('strangersHide') && world.chance(0.5)
    if (hides)
      world.at(world.between(MINUTE, 3 * MINUTE), () => {
        stranger.isHidden = !world.isCalm
      })
    world.at(world.between(2 * MINUTE, (hides ? 60 : 20) * MINUTE), () => {
      if (!world.isCalm) this.#end(stranger, 'gone')
    })
  }

  #reserveCommand(
    { id, owner, isBound, node: on }: Life,
    node: Node,
    options: Partial<Command<'reserve'>> & { address?: string | null },
  ): Command<'reserve'> {
    const { address = null, requestId = null, ...rest } = options
    const preferPrevious = this.#world.chance(0.5)
    const claims = (CLAIMS[id % CLAIMS.length] ?? [['pool']]).map((pools, index) => ({
      pools,
      address: index === 0 ? address : null,
      preferPrevious,
    }))
    return {
      ...this.#envelope('Reserve', requestId, callerOf(isBound ? on.name : null)),
      type: 'reserve',
      owner,
      settings: { node: node.name, labels: { life: String(id) } },
      claims,
      liveAddresses: [],
      confirmWithinMs: null,
      confirmed: false,
      ...rest,
    }
  }

  #reserve(life: Life): void {
    const world = this.#world
    const confirmWithinMs = world.chance(0.4) ? world.between(20 * SECOND, 90 * SECOND) : null
    const address =
      life.id % CLAIMS.length !== 0 && world.chance(0.15) ? `10.0.0.${world.between(1, 16)}` : null
    const ghost = world.between(1, 200)
    const seesGhosts = world.has('callersSeeGhosts') && world.chance(0.5)
    const requestId = !world.chance(0.3)
      ? null
      : life.isBound && life.token === 0 && life.owner.incarnation !== ''
        ? requestOf('reserve', life.owner)
        : `reserve ${life.id} ${this.#calls}`
    const confirmed = confirmWithinMs === null && world.chance(0.3)
    const isDry = world.chance(0.02)
    const command = this.#reserveCommand(life, life.node, {
      address,
      requestId,
      // Twenty in a row, so that a Reserve that meets one meets them all.
      liveAddresses: seesGhosts ? Array.from({ length: 20 }, (_, i) => `10.0.0.${ghost + i}`) : [],
      confirmWithinMs,
      confirmed,
    })
    // Counted from the first time that it was asked for: a repeated request is answered as it was.
    const asked = world.now
    const deadlineOf = (leases: readonly LeaseView[]): number | null => {
      if (leases.every(({ state }) => state === 'ACTIVE')) return null
      const isPromised = confirmWithinMs !== null || leases.some(({ confirmBy }) => confirmBy !== null)
      return isPromised ? asked + (confirmWithinMs ?? SPILL.confirmWithinMs) : null
    }
    const ask = (attempt: number): void => {
      if (life.state !== 'asking') return
      const answered: Answered = (answer) => {
        if (life.state !== 'asking') return
        const leases = leasesOf(answer)
        const mayHelp =
          answer === undefined || (attempt === 0 && 'reason' in answer && answer.retryAfterMs !== undefined)
        const isGiven = leases.length > 0 && leases.every(({ state }) => state !== 'QUARANTINED')
        if (isGiven) this.#promised(life, leases, deadlineOf(leases))
        else if (answer === undefined && life.isBound)
          this.agents!.take(life, (spare) => {
            if (life.state !== 'asking') return
            if (spare !== null) this.#given(life, spare)
            else if (attempt < 3) world.at(world.between(SECOND, 15 * SECOND), () => ask(attempt + 1))
            else this.#end(life, 'without an address')
          })
        else if (attempt < 3 && mayHelp) world.at(world.between(SECOND, 15 * SECOND), () => ask(attempt + 1))
        else this.#end(life, 'without an address')
      }
      if (isDry) this.send({ ...command, requestId: null, type: 'dryRun', items: [command] }, answered)
      else this.#sendItem(command, answered)
    }
    ask(0)
  }

  #promised(life: Life, leases: readonly LeaseView[], deadline: number | null): void {
    const world = this.#world
    const [first, second] = leases
    const { address, fencingToken } = first!
    const isActive = leases.every(({ state }) => state === 'ACTIVE')
    Object.assign(life, usedOf(first!), {
      second: second === undefined ? null : usedOf(second),
      token: fencingToken,
    })
    Object.assign(life, { state: 'pending', deadline, spare: null })
    world.tell(() => `life ${life.id} is promised ${address} #${fencingToken} on ${life.node.name}`)
    if (deadline !== null)
      world.at(deadline - world.now, () => {
        if (life.deadline === deadline && life.block === address) this.#end(life, 'without a Confirm')
      })
    if (
      life.isBound &&
      world.has('addressesAreAnswered') &&
      (world.chance(0.03) || isUsedBeside(world, life))
    ) {
      this.#release(life, 'IN_USE_BY_ANOTHER')
      this.#end(life, 'another answers for its address')
      return
    }
    if (world.has('callersDie') && world.chance(0.15)) {
      if (world.chance(0.5)) {
        this.#end(life, 'with its caller')
        return
      }
      // The workload goes on, and nobody confirms it.
      if (deadline !== null) life.excuse = 'its caller died'
      life.deadline = null
      this.#run(life)
      return
    }
    const isLate = world.has('confirmsAreLate') || world.faults.has('startsAreUnseen')
    world.at(world.between(0, isLate ? LONGEST_START : 20 * SECOND), () => {
      if (life.state !== 'pending' || life.block !== address) return
      this.#run(life)
      if (!isActive && (life.deadline !== null || world.chance(0.7))) this.#confirm(life, 0)
    })
  }

  /** A spare address, by its agent. */
  #given(life: Life, spare: Spare): void {
    const world = this.#world
    const { address, token, excuse } = spare
    Object.assign(life, { block: address, address, token, spare, state: 'pending', deadline: null })
    life.excuse ??= excuse
    world.at(world.between(0, SPARE_START), () => {
      if (life.state === 'pending' && life.spare === spare) this.#run(life)
    })
  }

  #run(life: Life): void {
    const world = this.#world
    life.state = 'running'
    world.tell(() => `life ${life.id} runs at ${life.address} on ${life.node.name}`)
    const lasts = world.between(20 * SECOND, world.chance(0.3) ? 2 * MINUTE : 40 * MINUTE)
    world.at(lasts, () => this.#leave(life))
    if (world.chance(0.15)) world.at(world.between(0, lasts), () => this.#askAgain(life))
    if (world.has('labelsChange')) world.at(world.between(0, lasts), () => this.#label(life))
    if (world.has('livesPause') && world.chance(0.5))
      world.at(world.between(0, lasts), () => this.#pause(life))
  }

  #label(life: Life): void {
    const world = this.#world
    const { token, owner } = life
    const version = world.chance(0.5) ? null : token
    const labels = { generation: owner.incarnation, at: String(world.now) }
    this.send({ ...this.#by(life, 'UpdateLabels'), type: 'updateLabels', token, version, labels }, () => {})
  }

  #pause(life: Life): void {
    const world = this.#world
    if (life.state !== 'running') return
    life.isPaused = true
    world.tell(() => `life ${life.id} is paused`)
    world.at(world.between(SECOND, 40 * MINUTE), () => {
      life.isPaused = false
    })
  }

  #confirm(life: Life, attempt: number): void {
    const world = this.#world
    const { block, token } = life
    if (life.state !== 'running') return
    const requestId = world.chance(0.3) ? `confirm ${life.id} ${token}` : null
    this.#sendItem(
      { ...this.#by(life, 'Confirm', requestId), type: 'confirm', lease: this.#referenceTo(life) },
      (answer) => {
        if (life.block !== block) return
        if (leasesOf(answer).length > 0) life.deadline = null
        else if (answer !== undefined && 'reason' in answer && !UNKNOWN.includes(answer.reason))
          this.#end(life, 'refused')
        else if (attempt < 5)
          world.at(world.between(SECOND, 10 * SECOND), () => this.#confirm(life, attempt + 1))
      },
    )
  }

  #by({ isBound, node }: Life, cause: string, requestId: string | null = null) {
    return this.#envelope(cause, requestId, callerOf(isBound ? node.name : null))
  }

  #referenceTo({ owner, token, spare, second }: Life): LeaseReference {
    if (spare !== null || second !== null) return { token: null, owner }
    return owner.incarnation === '' || this.#world.chance(0.5) ? { token, owner } : { token: null, owner }
  }

  /** The same attachment asks once more: for another node, or just so. */
  #askAgain(life: Life): void {
    const world = this.#world
    if (life.state !== 'running') return
    const { block, second } = life
    const moves = world.has('livesMove') && !life.isBound && world.chance(0.5)
    const to = moves ? world.pick(world.nodes) : life.node
    this.send(this.#reserveCommand(life, to, {}), (answer) => {
      const leases = leasesOf(answer)
      if (leases.length === 0 || life.block !== block || life.state !== 'running') return
      // What it has is in quarantine, for whatever reason: it keeps to that, and gives the other back.
      const others = leases.filter(({ address }) => address !== block && address !== second?.block)
      for (const { fencingToken: token } of others)
        this.#release({ ...life, token, spare: null }, 'CONFIRMED', true)
      if (others.length === 0 && to !== life.node) {
        life.isHidden = true
        world.tell(() => `life ${life.id} moves from ${life.node.name} to ${to.name}`)
        world.at(world.between(0, LONGEST_START), () => {
          // One that stopped on its way starts where it was.
          if (life.isHidden && life.block === block) life.node = to
          life.isHidden = false
        })
      }
    })
  }

  #release(life: Life, removal: Removal, byToken = false, attempt = 0): void {
    const world = this.#world
    const { id, owner, token, spare } = life
    // First what was answered, under the spare's holder; then what the attachment has since.
    if (spare !== null && attempt === 0) {
      const given = { token: spare.token, owner: spare.owner }
      this.send({ ...this.#by(life, 'Release'), type: 'release', removal, lease: given }, () => {})
    }
    const lease = byToken ? { token, owner } : this.#referenceTo(life)
    const requestId = world.chance(0.3) ? `release ${id} ${token} ${removal}` : null
    const command: Command<'release'> = {
      ...this.#by(life, 'Release', requestId),
      type: 'release',
      removal,
      lease,
    }
    this.#sendItem(command, (answer) => {
      const isAgain = answer === undefined || (world.has('releasesRepeat') && world.chance(0.3))
      if (!isAgain || attempt > 2 || owner.incarnation === '') return
      world.at(world.between(SECOND, 90 * SECOND), () => this.#release(life, removal, byToken, attempt + 1))
    })
  }

  #leave(life: Life): void {
    const world = this.#world
    if (life.state !== 'running') return
    const endsWithin = (ms: number, then = () => {}) =>
      world.at(world.between(SECOND, ms), () => {
        this.#end(life, 'later')
        then()
      })
    if (world.has('livesRestart') && world.chance(0.3)) {
      this.#restart(life)
      return
    }
    const chance = world.random()
    if (world.has('livesOverlap') && chance < 0.35) {
      this.#start(life.owner)
      endsWithin(10 * MINUTE, () => {
        if (world.chance(0.5)) this.#release(life, 'CONFIRMED')
      })
    } else if (chance < 0.5) {
      this.#end(life, 'and is released')
      this.#release(life, 'CONFIRMED')
    } else if (chance < 0.65) {
      this.#release(life, 'UNCONFIRMED')
      endsWithin(8 * MINUTE)
    } else if (world.has('releasesAreEarly') && chance < 0.75) {
      life.excuse = 'released while it runs'
      this.#release(life, 'CONFIRMED')
      endsWithin(10 * MINUTE)
    } else this.#end(life, 'and is forgotten')
    if (world.chance(0.5)) world.at(world.between(0, MINUTE), () => this.#start(life.owner))
  }

  /** Stops, is away for a while, and asks for its address again before it uses it. */
  #restart(life: Life): void {
    const world = this.#world
    world.tell(() => `life ${life.id} stops`)
    world.drop(life)
    Object.assign(life, { state: 'asking', isHidden: false })
    world.at(world.between(SECOND, world.chance(0.5) ? MINUTE : 30 * MINUTE), () => {
      if (life.state === 'asking') this.#reserve(life)
    })
  }

  #end(life: Life, how: string): void {
    const world = this.#world
    const { owner, state } = life
    if (state === 'gone') return
    world.tell(() => `life ${life.id} ends at ${life.block}: ${how}`)
    world.drop(life)
    life.state = 'gone'
    world.lives.delete(life)
    world.ended.set(`${owner.kind} ${owner.uid}`, world.now)
    if (owner.incarnation === '') world.at(2 * MINUTE, () => this.#taken.delete(owner.name))
  }
}

/** Its agent does not reach the service. */
function isCutOff({ nodes }: World, { actor }: Command): boolean {
  const node = nodes.find(({ name }) => name === actor.node)
  return node !== undefined && (node.isPartitioned || !node.isUp)
}

function isUsedBeside({ lives }: World, life: Life): boolean {
  return [...lives].some((one) => one !== life && one.block === life.block && one.state === 'running')
}

/** Lives that nobody tells apart must not meet each other's calls. */
function isDelicate(command: Command): boolean {
  return command.type === 'release' && command.lease.owner?.incarnation === ''
}

function leasesOf(answer: Answer | Refusal | undefined): readonly LeaseView[] {
  return answer !== undefined && 'leases' in answer ? answer.leases : []
}

/** Of a block it uses one address. */
function usedOf({ address, prefixLength }: LeaseView): Pick<Life, 'block' | 'address'> {
  const inside = `${address.endsWith('::') ? address : address.slice(0, -1)}5`
  return { block: address, address: prefixLength === 124 ? inside : address }
}
