/**
 * The orchestrator of MIR-1238, a source that reports. It knows its sandboxes twice: in a *store*, which is the truth and is
 * asked by id, and in an *index* built from it, which it lists from and which may lag. The runtime it drives, where
 * sandboxes really run, is the store here.
 *
 * It keeps the truth apart from the books, so that what is told can be checked against it: two sandboxes that run never
 * have one address.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { IpledgerClient } from '../client/client.ts'
import { POLICY } from '../core/policy.ts'
import { LookUpAnswer, SourceKind, type Verification } from '../gen/ipledger/v1/liveness_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'

/** Whom ipledger asked after with its answer, and what the store said. */
export type LookedUp = { readonly name: string; readonly address: string; readonly found: boolean }

const EPOCH = 'orchestrator-1'
/** Of an interval: half of it is what a list must be begun after the last to count. */
const SPACING = POLICY.countedAfterIntervals + 0.03

export async function startOrchestrator(options: {
  readonly id: string
  readonly client: IpledgerClient
  readonly admin: IpledgerClient
  readonly pool: string
  readonly intervalMs: number
}) {
  const { id, client, admin, pool, intervalMs } = options
  const sight = { ownerKinds: ['sandbox'], families: [4], interval: durationFromMs(intervalMs) }
  await admin.liveness.registerSource({ id, kind: SourceKind.PUSH, sight })
  await admin.liveness.enableSource({ id })

  const store = new Map<string, { readonly sandbox: Sandbox; readonly address: string }>()
  const lagging = new Set<string>()
  let begun = Number.NEGATIVE_INFINITY

  function run(sandbox: Sandbox, address: string): void {
    const there = [...store.values()].find((one) => one.address === address)
    if (there !== undefined)
      throw new Error(`${sandbox.name} and ${there.sandbox.name} run with ${address}: a duplicate`)
    store.set(sandbox.uid, { sandbox, address })
  }

  async function answer(verifications: readonly Verification[]): Promise<readonly LookedUp[]> {
    const asked = verifications.map(({ id: of, owner, address }) => {
      return { of, name: owner!.name, address, found: store.has(owner!.uid) }
    })
    const verdicts = asked.map(({ of, found }) => ({
      id: of,
      answer: found ? LookUpAnswer.LIVE : LookUpAnswer.GONE,
      detail: found ? 'the store has it' : 'the store has no such sandbox',
    }))
    if (verdicts.length > 0) await client.liveness.reportVerdicts({ source: id, epoch: EPOCH, verdicts })
    return asked
  }

  return {
    /** Reserves an address, starts the sandbox with it, confirms. */
    async start(name: string, wanted = ''): Promise<Lease> {
      const sandbox = sandboxOf(name)
      const reserved = await client.leases.reserve({ owner: sandbox, claims: [{ pool, address: wanted }] })
      const { leaseId, address } = reserved.leases[0]!
      run(sandbox, address)
      return (await client.leases.confirm({ leaseId })).leases[0]!
    },
    startUnasked: (name: string, address: string) => run(sandboxOf(name), address),
    /** It ends, and its address is nobody's; ipledger is not told. */
    end: (name: string) => void store.delete(sandboxOf(name).uid),
    /** Its index does not name it, whether it runs or not. */
    lag: (name: string) => void lagging.add(sandboxOf(name).uid),
    catchUp: () => lagging.clear(),
    /** Lists once: begin, look, report, answer what is asked. Not sooner after the last than counts. */
    async list() {
      await delay(Math.max(0, begun + intervalMs * SPACING - performance.now()))
      const { sequence, head, begunAt } = await client.liveness.beginSnapshot({ source: id })
      begun = performance.now()
      const listed = [...store.values()].filter(({ sandbox }) => !lagging.has(sandbox.uid))
      const { counted, verifications } = await client.liveness.reportSnapshot({
        source: id,
        epoch: EPOCH,
        ...{ sequence, head, begunAt: begunAt! },
        complete: true,
        entries: listed.map(({ sandbox, address }) => ({ ...sandbox, address })),
      })
      const names = listed.map(({ sandbox }) => sandbox.name)
      return { sequence, names, counted, lookedUp: await answer(verifications) }
    },
    /** Who runs, by address. */
    running: (): ReadonlyMap<string, string> =>
      new Map([...store.values()].map(({ sandbox, address }) => [address, sandbox.name])),
  }
}

type Sandbox = ReturnType<typeof sandboxOf>

function sandboxOf(name: string) {
  return { kind: 'sandbox', name, uid: `sb-${name}`, incarnation: '1', node: 'node-1' }
}
