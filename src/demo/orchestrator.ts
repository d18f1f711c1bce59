/**
 * The orchestrator of MIR-1238, a source that reports. It knows its sandboxes twice: in a *store*, which is the truth and is
 * read by id, and in an *index* built from it, which it lists from and which may lag. The store is also the runtime here: it
 * refuses two sandboxes with one address.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { IpledgerClient } from '../client/client.ts'
import { POLICY } from '../core/policy.ts'
import { LookUpAnswer, SourceKind } from '../gen/ipledger/v1/liveness_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'

const EPOCH = 'orchestrator-1'
/** In intervals. A list counts that begins half an interval after the last. */
const SPACING = POLICY.countedAfterIntervals + 0.03

/** A sandbox that ipledger looked up, and whether the store has it. */
export type LookedUp = { readonly name: string; readonly address: string; readonly found: boolean }

const sandboxOf = (name: string) => {
  return { kind: 'sandbox', name, uid: `sb-${name}`, incarnation: '1', node: 'node-1' }
}

type Options = Readonly<{ client: IpledgerClient; id: string; pool: string; intervalMs: number }>

export class Orchestrator {
  readonly #options: Options
  /** By name, where each runs. */
  readonly #store = new Map<string, string>()
  readonly #lagging = new Set<string>()
  #begun = Number.NEGATIVE_INFINITY

  constructor(options: Options) {
    this.#options = options
  }

  async register({ liveness }: IpledgerClient): Promise<void> {
    const { id, intervalMs } = this.#options
    const sight = { ownerKinds: ['sandbox'], families: [4], interval: durationFromMs(intervalMs) }
    await liveness.registerSource({ id, kind: SourceKind.PUSH, sight })
    await liveness.enableSource({ id })
  }

  /** Reserves an address, starts the sandbox with it, confirms. */
  async start(name: string, wanted = ''): Promise<Lease> {
    const { client, pool } = this.#options
    const claims = [{ pool, address: wanted }]
    const { leaseId, address } = (await client.leases.reserve({ owner: sandboxOf(name), claims })).leases[0]!
    this.startUnasked(name, address)
    return (await client.leases.confirm({ leaseId })).leases[0]!
  }

  startUnasked(name: string, address: string): void {
    const there = this.running(address)
    if (there !== undefined) throw new Error(`${name} and ${there} run with ${address}: a duplicate`)
    this.#store.set(name, address)
  }

  /** Nothing releases its address. */
  end(name: string): void {
    this.#store.delete(name)
  }

  /** The index leaves it out, whether it runs or not; without a name the index is up to date again. */
  lag(name?: string): void {
    if (name === undefined) this.#lagging.clear()
    else this.#lagging.add(name)
  }

  running(address: string): string | undefined {
    return [...this.#store].find(([, at]) => at === address)?.[0]
  }

  /** Lists once: begin, look, report, answer look-ups. Waits until the list counts. */
  async list() {
    const { client, id: source, intervalMs } = this.#options
    await delay(Math.max(0, this.#begun + intervalMs * SPACING - performance.now()))
    const { sequence, head, begunAt } = await client.liveness.beginSnapshot({ source })
    this.#begun = performance.now()
    const listed = [...this.#store].filter(([name]) => !this.#lagging.has(name))
    const entries = listed.map(([name, address]) => ({ ...sandboxOf(name), address }))
    const { counted, verifications } = await client.liveness.reportSnapshot({
      source,
      epoch: EPOCH,
      sequence,
      head,
      begunAt: begunAt!,
      complete: true,
      entries,
    })
    const lookedUp: LookedUp[] = verifications.map(({ owner, address }) => {
      return { name: owner!.name, address, found: this.#store.has(owner!.name) }
    })
    const verdicts = verifications.map(({ id }, at) =>
      lookedUp[at]!.found
        ? { id, answer: LookUpAnswer.LIVE, detail: 'the store has it' }
        : { id, answer: LookUpAnswer.GONE, detail: 'the store has no such sandbox' },
    )
    if (verdicts.length > 0) await client.liveness.reportVerdicts({ source, epoch: EPOCH, verdicts })
    const names = listed.map(([name]) => name).join(', ')
    return { lookedUp, row: { list: sequence, names, counts: counted ? 'yes' : 'no' } }
  }
}
