/**
 * Agents of nodes: each is the caller of its node's workloads and a source. For outages each of its processes holds spare addresses
 * in its memory, under holders that are never asked for twice, and gives them after a complete look at its own node. What others
 * know it does not see. As src/agent does it; nothing of that is called.
 */
import type { Answer, Command, LeaseView } from '../../src/core/command.ts'
import { type Owner, RESERVE_KIND } from '../../src/core/owner.ts'
import type { Refusal } from '../../src/core/refusal.ts'
import type { Checks } from './check.ts'
import {
  callerOf,
  type Life,
  NETWORK,
  type Reporter,
  SECOND,
  type Source,
  type Spare,
  type World,
} from './world.ts'

export type Send = (command: Command, answered: (answer: Answer | Refusal | undefined) => void) => void

export class Agents {
  readonly #world: World
  readonly #checks: Checks
  readonly #send: Send
  #made = 0

  constructor(world: World, checks: Checks, send: Send) {
    this.#world = world
    this.#checks = checks
    this.#send = send
  }

  /** Of what it holds, before it looks: what has ended, or is used here, is given to nobody; who was given one is known by looks. */
  compare({ node }: Source, { spares }: Reporter): void {
    const { records } = this.#checks.shadow
    for (const spare of spares) {
      const { address, token, givenAt, taker } = spare
      const record = records.get(address)
      const isHeld = record?.token === token && record.state === 'ACTIVE'
      const isConfigured = taker?.block === address && taker.state === 'pending'
      const isOver = givenAt === null ? !isHeld || this.#isUsed(node, address) : !isConfigured
      if (isOver) spares.delete(spare)
    }
  }

  #isUsed(node: Source['node'], address: string): boolean {
    return [...this.#world.lives].some(
      (life) => life.node === node && life.block === address && life.state === 'running',
    )
  }

  /** After a report: as many are free as it was told to keep. */
  fill({ spares: size, node, isRetired, declaration }: Source, reporter: Reporter): void {
    const world = this.#world
    const { spares, epoch } = reporter
    const free = [...spares].filter(({ givenAt }) => givenAt === null)
    if (free.length >= size || isRetired || world.isCalm) return
    this.#made += 1
    const name = `${declaration.id}/${this.#made}`
    const owner: Owner = { kind: RESERVE_KIND, name, uid: name, incarnation: '', interface: 'eth0' }
    const command: Command<'reserve'> = {
      network: NETWORK,
      actor: callerOf(node!.name),
      cause: 'Reserve',
      requestId: null,
      fingerprint: null,
      traceId: null,
      type: 'reserve',
      owner,
      settings: { node: node!.name },
      claims: [{ pools: ['pool'], address: null, preferPrevious: false }],
      liveAddresses: [],
      confirmWithinMs: null,
      confirmed: true,
    }
    this.#send(command, (answer) => {
      const lease: LeaseView | undefined =
        answer !== undefined && 'leases' in answer ? answer.leases[0] : undefined
      // Whoever started since does not know of it.
      if (lease === undefined || reporter.epoch !== epoch) return
      const { address, fencingToken: token } = lease
      spares.add({ owner, address, token, taker: null, givenAt: null, excuse: null })
      world.tell(() => `${epoch} holds ${address} #${token} as spare`)
    })
  }

  /** An ADD while the service is away. Null: it has none to give. */
  take(life: Life, given: (spare: Spare | null) => void): void {
    const world = this.#world
    const { node } = life
    const agents = [...world.sources.values()].filter((source) => source.node === node && source.spares >= 0)
    const reporter = world.pick(agents.flatMap(({ processes }) => processes))
    const free = ({ taker }: Spare) => taker === null
    const spare = [...(reporter?.spares ?? [])].find(free)
    if (reporter === undefined || spare === undefined || !node.isUp || !isReady(world, reporter)) {
      given(null)
      return
    }
    spare.taker = life
    const { epoch } = reporter
    const looked = (): void => {
      if (reporter.stoppedUntil > world.now) {
        world.at(reporter.stoppedUntil - world.now, looked)
        return
      }
      const isThere = reporter.epoch === epoch && reporter.spares.has(spare)
      if (!isThere || life.state !== 'asking' || life.node !== node || !isReady(world, reporter))
        spare.taker = null
      else if (this.#isUsed(node, spare.address)) reporter.spares.delete(spare)
      else {
        spare.givenAt = world.now
        world.tell(() => `${epoch} gives ${spare.address} to life ${life.id}`)
        given(spare)
        return
      }
      given(null)
    }
    world.at(world.between(0, 2 * SECOND), looked)
  }

  /** They hold nothing any more: what they held ends by proof. */
  forget(source: Source, excuse: string | null = null): void {
    for (const { spares } of source.processes) {
      for (const spare of spares) spare.excuse ??= excuse
      if (excuse === null) spares.clear()
    }
  }
}

/** It has reported since it started and since it stood still, and does not stand still. */
function isReady({ now }: World, { reportedAt, stops, stoppedUntil }: Reporter): boolean {
  return reportedAt === stops && stoppedUntil <= now
}
