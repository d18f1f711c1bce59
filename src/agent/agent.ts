/**
 * The agent of a node. It answers the CNI plugin, confirms leases once their addresses are configured, releases those of removed
 * containers, keeps spare addresses for outages, and reports as a source what is on the node.
 *
 * Except for the spares, all that it holds is also in the ledger, in the node's namespaces or in its files. It may be killed at any
 * time.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { type Answer, failure } from '../cni/answer.ts'
import { Attachments } from '../cni/attachments.ts'
import { type Call, readCall, versionOf } from '../cni/call.ts'
import { CniError } from '../cni/cni-error.ts'
import { type Context, deliver, isForLater, runCommand } from '../cni/commands.ts'
import * as namespaces from '../cni/namespaces.ts'
import { attachmentKey } from '../core/owner.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import type { Logger } from '../telemetry.ts'
import { checkProbe, isAnsweredFor, probe } from './probe.ts'
import { Reporter, type SourceOptions } from './report.ts'
import { listenForCalls } from './socket.ts'
import { Spares } from './spares.ts'

export type AgentOptions = SourceOptions & {
  readonly socket: string
  readonly spares: number
  readonly pools: readonly string[]
  readonly probe: boolean
}

/** A container's start waits for the call; after this time it gets a spare address. */
const PATIENCE_MS = 3_000
/** While something waits to be confirmed or released. */
const TICK_MS = 100
const LONGEST_TICK_MS = 5_000
/** While the report's interval is not known, or reports fail. */
const RETRY_MS = 5_000
/** After that the next report confirms the lease, if its address is configured. */
const CONFIRM_PATIENCE_MS = 30_000

type Unconfirmed = {
  readonly call: Call
  readonly leases: readonly Lease[]
  /** When to check again, and how long to wait after that. */
  next: number
  wait: number
}

export class Agent {
  readonly #options: AgentOptions
  readonly #client: IpledgerClient
  readonly #log: Logger
  readonly #spares: Spares
  readonly #reporter: Reporter
  readonly #context: Context
  /** Both by attachment. */
  readonly #unconfirmed = new Map<string, Unconfirmed>()
  readonly #calls = new Map<string, Promise<unknown>>()
  readonly #warned = new Map<string, string>()
  #wake = () => {}

  constructor(options: AgentOptions, client: IpledgerClient, log: Logger) {
    this.#options = options
    this.#client = client
    this.#log = log
    const { network, node, bridge, state, spares: size, probe: isProbing } = options
    this.#spares = new Spares({
      ...options,
      client,
      size,
      scan: () => namespaces.scanNode(null),
      isAnsweredFor: async (address) => isProbing && (await isAnsweredFor(address, bridge)),
    })
    const attachments = new Attachments(state, (message) => log.warn({ network, node }, message))
    const { scanNode } = namespaces
    this.#reporter = new Reporter({ ...options, client, spares: this.#spares, attachments, scanNode })
    this.#context = {
      client,
      node,
      attachments,
      namespaces,
      patienceMs: PATIENCE_MS,
      agent: {
        seenLive: () => this.#reporter.foreign,
        reserved: (call, leases) => this.#reserved(call, leases),
        spares: this.#spares,
      },
    }
  }

  /** Until the signal. @throws Error if it can't start */
  async run(signal: AbortSignal, onReady: () => void): Promise<void> {
    const { socket, state } = this.#options
    if (this.#options.probe) await checkProbe()
    await using _ = await listenForCalls(socket, state, (env, stdin) => this.#answer(env, stdin))
    onReady()
    await Promise.all([this.#confirmAndRelease(signal), this.#reportAndFill(signal)])
  }

  async #answer(env: Readonly<Record<string, string>>, stdin: string): Promise<Answer> {
    try {
      const call = readCall(env, stdin)
      const { network } = this.#options
      const other = call.config.ipam.network
      // Containers that were added in another network before are still checked and released.
      if (['ADD', 'STATUS'].includes(call.command) && other !== network)
        throw new CniError('configuration', `ipam.network: this agent is for ${network}, not ${other}`)
      if (call.owner === null) return await runCommand(call, this.#context)
      const attachment = attachmentKey(call.owner)
      if (call.command === 'DEL') this.#unconfirmed.delete(attachment)
      return await this.#serially(attachment, () => runCommand(call, this.#context))
    } catch (error) {
      if (!(error instanceof CniError)) this.#log.error({ err: error }, 'a call of the plugin failed')
      return failure(versionOf(stdin), error)
    } finally {
      this.#wake()
    }
  }

  /** One call of an attachment at a time: the ADD of a plugin that was killed still runs here, and DEL waits for it. */
  async #serially<T>(attachment: string, work: () => Promise<T>): Promise<T> {
    const result = (this.#calls.get(attachment) ?? Promise.resolve()).then(work, work)
    this.#calls.set(attachment, result)
    try {
      return await result
    } finally {
      if (this.#calls.get(attachment) === result) this.#calls.delete(attachment)
    }
  }

  async #reserved(call: Call, leases: readonly Lease[]): Promise<void> {
    if (this.#options.probe) await probe(leases, this.#options.bridge, this.#client)
    this.#reporter.reserved(leases)
    const next = performance.now() + TICK_MS
    this.#unconfirmed.set(attachmentKey(call.owner!), { call, leases, next, wait: TICK_MS })
    this.#wake()
  }

  async #confirmAndRelease(signal: AbortSignal): Promise<void> {
    for (let wait = TICK_MS; !signal.aborted; wait = Math.min(wait * 2, LONGEST_TICK_MS)) {
      const woken = Promise.withResolvers<void>()
      this.#wake = () => {
        wait = TICK_MS
        woken.resolve()
      }
      const unconfirmed = await this.#attempt('confirm', () => this.#confirmDue())
      const unreleased = await this.#attempt('release', () => deliver(null, this.#context))
      const isIdle = unconfirmed === 0 && unreleased === 0
      // A plugin that found no agent leaves its releases in the state directory, and does not wake this loop.
      await Promise.race([pause(isIdle ? LONGEST_TICK_MS : wait, signal), woken.promise])
      await pause(TICK_MS, signal)
    }
  }

  /** Confirms leases that are configured. Answers how many are not yet. */
  async #confirmDue(): Promise<number> {
    const now = performance.now()
    const due = [...this.#unconfirmed].filter(([, { next }]) => next <= now)
    const interfaces = due.map(([, { call }]) => ({ netns: call.netns, interface: call.owner!.interface }))
    const configured = await namespaces.addressesOf(interfaces)
    for (const [at, [attachment, one]] of due.entries()) {
      const isConfigured = one.leases.every(({ address }) => configured[at]?.includes(address))
      if (isConfigured) await this.#confirm(one)
      one.next = now + one.wait
      one.wait *= 2
      const isOver = isConfigured || one.wait > CONFIRM_PATIENCE_MS
      if (isOver && this.#unconfirmed.get(attachment) === one) this.#unconfirmed.delete(attachment)
    }
    return this.#unconfirmed.size
  }

  async #confirm({ call: { owner }, leases }: Unconfirmed): Promise<void> {
    for (const { leaseId } of leases)
      await this.#client.leases.confirm({ leaseId }).catch((error: unknown) => {
        if (isForLater(error)) throw error
        this.#log.error({ owner, err: error }, 'the address is configured, and its lease cannot be confirmed')
      })
  }

  async #reportAndFill(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const intervalMs = await this.#attempt('report', () => this.#reporter.report())
      if (intervalMs !== undefined)
        await this.#attempt('lease spare addresses', () => this.#spares.fill(this.#reporter.foreign))
      await pause(intervalMs ?? RETRY_MS, signal)
    }
  }

  /** Each new error is logged once. */
  async #attempt<T>(what: string, work: () => Promise<T>): Promise<T | undefined> {
    const { network, node, source } = this.#options
    try {
      const result = await work()
      this.#warned.delete(what)
      return result
    } catch (error) {
      const { message = '', reason } = error as Partial<CallFailed>
      const register = `: ipledger source register ${source} --node ${node} --owner-kinds pod,container`
      const remedy = reason === 'SOURCE_NOT_FOUND' ? register : ''
      if (this.#warned.get(what) !== message)
        this.#log.warn({ network, node }, `cannot ${what}: ${message}${remedy}`)
      this.#warned.set(what, message)
      return undefined
    }
  }
}

const pause = (ms: number, signal: AbortSignal) => delay(ms, undefined, { signal }).catch(() => {})
