/**
 * The agent of a node: answers the CNI plugin, confirms what it handed out when it is configured, releases what is gone, keeps a
 * reserve for outages, and reports what is on the node as a source.
 *
 * It holds nothing that the ledger, the node's namespaces or its files do not have, so it may be killed at any time.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { durationMs } from '@bufbuild/protobuf/wkt'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { failure } from '../cni/answer.ts'
import { attend, type Desk, deliver } from '../cni/attend.ts'
import { type Call, type CniOwner, readCall, versionOf } from '../cni/call.ts'
import { CniError } from '../cni/cni-error.ts'
import { addressesOf } from '../cni/look.ts'
import { createOutbox } from '../cni/outbox.ts'
import { type Lease, Removal } from '../gen/ipledger/v1/types_pb.ts'
import type { Logger } from '../telemetry.ts'
import { checkProbe, isAnsweredFor } from './probe.ts'
import { createReporter } from './report.ts'
import { openReserve, RESERVE_KIND } from './reserve.ts'
import { listenForCalls } from './socket.ts'

export type AgentOptions = {
  readonly network: string
  readonly bridge: string
  readonly node: string
  readonly source: string
  readonly socket: string
  readonly state: string
  readonly cniCache: string
  readonly reserve: number
  readonly pools: readonly string[]
  readonly probe: boolean
}

/** Of a call that a container's start waits for; an outage is answered from the reserve after it. */
const PATIENCE_MS = 3_000
/** While something waits to be confirmed or released. */
const TICK_MS = 100
const LONGEST_TICK_MS = 5_000
/** As long as the report's interval is not known, or reports fail. */
const RETRY_MS = 5_000
/** Then the next report confirms it, if it is configured. */
const CONFIRM_PATIENCE_MS = 30_000

type Unconfirmed = {
  readonly owner: CniOwner
  readonly netns: string
  readonly leases: readonly Lease[]
  readonly until: number
  /** When to look, and how long to wait after that. */
  next: number
  wait: number
}

/** Runs until the signal. @throws Error if it can't start */
export async function runAgent(
  options: AgentOptions,
  client: IpledgerClient,
  log: Logger,
  signal: AbortSignal,
  onReady: () => void,
): Promise<void> {
  const { network, node, bridge, source } = options
  if (options.probe) await checkProbe()
  const outbox = createOutbox(options.state)
  const reserve = openReserve({ ...options, client, size: options.reserve })
  const reporter = createReporter({ ...options, client, reserve, epoch: randomUUID() })

  const unconfirmed = new Map<string, Unconfirmed>()
  const nameOf = (owner: CniOwner) => `${owner.uid} ${owner.incarnation} ${owner.interface}`
  let foreign: readonly string[] = []
  /** Since the last look, so that its list of leases may lack them. */
  let handed = new Map<string, Lease['owner']>()
  let wake = () => {}
  const turns = new Map<string, Promise<unknown>>()

  const desk: Desk = {
    client,
    node,
    outbox,
    patienceMs: PATIENCE_MS,
    agent: {
      seenLive: () => foreign.slice(0, 4_096),
      async probe(leases) {
        if (!options.probe) return
        for (const { address, leaseId } of leases) {
          if (!(await isAnsweredFor(address, bridge))) continue
          await client.leases.release({ leaseId, removal: Removal.UNCONFIRMED })
          throw new CniError(
            'inUse',
            `another host on ${bridge} answers for ${address}; it is quarantined. Try again`,
          )
        }
      },
      added({ owner, netns }: Call, leases) {
        for (const { address, owner: holder } of leases) handed.set(address, holder)
        const next = performance.now() + TICK_MS
        const until = next + CONFIRM_PATIENCE_MS
        unconfirmed.set(nameOf(owner!), { owner: owner!, netns, leases, until, next, wait: TICK_MS })
        wake()
      },
      reserve,
    },
  }

  async function answer(env: Readonly<Record<string, string>>, stdin: string) {
    try {
      const call = readCall(env, stdin)
      if (call.config.ipam.network !== network)
        throw new CniError(
          'configuration',
          `ipam.network: this agent is for network ${network}, not ${call.config.ipam.network}`,
        )
      if (call.owner === null) return await attend(call, desk)
      if (call.command === 'DEL') unconfirmed.delete(nameOf(call.owner))
      return await inTurn(nameOf(call.owner), () => attend(call, desk))
    } catch (error) {
      if (!(error instanceof CniError)) log.error({ err: error }, 'a call of the plugin failed')
      return failure(versionOf(stdin), error)
    } finally {
      wake()
    }
  }

  /** One call of an attachment at a time: the ADD of a plugin that was killed still runs here, and DEL waits for it. */
  async function inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = turns.get(name) ?? Promise.resolve()
    const mine = before.catch(() => {}).then(work)
    turns.set(name, mine)
    try {
      return await mine
    } finally {
      if (turns.get(name) === mine) turns.delete(name)
    }
  }

  /** Confirms what is configured. Answers how many wait. */
  async function confirm(): Promise<number> {
    const now = performance.now()
    const waiting = [...unconfirmed.values()].filter(({ next }) => next <= now)
    const places = waiting.map(({ netns, owner }) => ({ netns, interface: owner.interface }))
    const configured = await addressesOf(places)
    for (const [at, one] of waiting.entries()) {
      const { owner, leases } = one
      const isThere = leases.every(({ address }) => configured[at]?.includes(address))
      if (isThere)
        for (const { leaseId } of leases) await client.leases.confirm({ leaseId }).catch(refusedBy(one))
      one.next = now + one.wait
      one.wait *= 2
      if ((isThere || now > one.until) && unconfirmed.get(nameOf(owner)) === one)
        unconfirmed.delete(nameOf(owner))
    }
    return unconfirmed.size
  }

  const refusedBy = ({ owner }: Unconfirmed) => {
    return (error: unknown) => {
      if (!(error instanceof CallFailed) || error.reason === undefined) throw error
      log.error(
        { owner, reason: error.reason },
        `${error.message}: its address is configured, and not its own`,
      )
    }
  }

  async function tend(): Promise<void> {
    for (let wait = TICK_MS; !signal.aborted; ) {
      const woken = Promise.withResolvers<boolean>()
      wake = () => woken.resolve(true)
      const waiting = await attempt(
        'confirm or release',
        async () => (await confirm()) + (await deliver(network, desk)),
      )
      // A plugin that found no agent leaves its releases in the outbox and wakes nobody.
      const isWoken = await Promise.race([pause(waiting === 0 ? LONGEST_TICK_MS : wait), woken.promise])
      wait = isWoken === true ? TICK_MS : Math.min(wait * 2, LONGEST_TICK_MS)
      if (isWoken === true) await pause(TICK_MS)
    }
  }

  async function watchNode(): Promise<void> {
    while (!signal.aborted) {
      handed = new Map()
      const begun = await attempt('begin a report', reporter.begin)
      const survey = await attempt('look', () => reporter.survey(handed))
      if (survey !== undefined) foreign = survey.foreign
      if (begun !== undefined && survey !== undefined)
        await attempt('report', () => reporter.report(begun, survey))
      if (survey !== undefined) await attempt('fill the reserve', () => reserve.fill(survey.held))
      await pause(begun === undefined ? RETRY_MS : durationMs(begun.interval!))
    }
  }

  const pause = (ms: number) => delay(ms, undefined, { signal }).catch(() => {})
  const told = new Map<string, string>()
  /** Each new trouble is told once. */
  async function attempt<T>(what: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      const result = await work()
      told.delete(what)
      return result
    } catch (error) {
      const { message, reason } = error as Partial<CallFailed>
      const remedy =
        reason === 'SOURCE_NOT_FOUND'
          ? `: ipledger source register ${source} --node ${node} --owner-kinds pod,container,${RESERVE_KIND}`
          : ''
      if (told.get(what) !== message) log.warn({ network, node }, `cannot ${what}: ${message}${remedy}`)
      told.set(what, message!)
      return undefined
    }
  }

  await using _ = await listenForCalls(options.socket, answer)
  onReady()
  await Promise.all([tend(), watchNode()])
}
