/**
 * The orchestrator of MIR-1238, a push source. It knows its sandboxes twice: in a *store*, which is the truth and is
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
import { LookUpAnswer, type ReportSnapshotResponse, SourceKind } from '../gen/ipledger/v1/liveness_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'

export type Sandbox = Readonly<{
  kind: 'sandbox'
  name: string
  uid: string
  incarnation: string
  node: string
}>

/** One list, as it was given and taken. */
export type List = Readonly<{
  sequence: number
  /** Whom it named. */
  names: readonly string[]
  complete: boolean
  counted: boolean
  lookedUp: readonly LookedUp[]
}>

/** Whom ipledger asked after with its answer, and what the store said. */
export type LookedUp = Readonly<{ name: string; address: string; found: boolean }>

export type Orchestrator = Readonly<{
  /** Reserves an address, starts the sandbox with it, confirms. */
  start: (name: string, address?: string) => Promise<Lease>
  /** Starts one that asks nobody. */
  startUnasked: (name: string, address: string) => void
  /** It ends, and its address is nobody's; ipledger is not told. */
  end: (name: string) => void
  /** Its index does not name it, whether it runs or not. */
  lag: (name: string) => void
  catchUp: () => void
  /** Lists once: begin, look, report, answer what is asked. Not sooner after the last than counts. */
  list: () => Promise<List>
  /** Who runs, by address. */
  running: () => ReadonlyMap<string, string>
}>

const EPOCH = 'orchestrator-1'
const NODE = 'node-1'
/** Of an interval: half of it is what a list must be begun after the last to count. */
const SPACING = POLICY.countedAfterIntervals + 0.03

export async function startOrchestrator(
  options: Readonly<{
    id: string
    client: IpledgerClient
    admin: IpledgerClient
    pool: string
    intervalMs: number
  }>,
): Promise<Orchestrator> {
  const { id, client, admin, pool, intervalMs } = options
  const source = { id, kind: SourceKind.PUSH }
  const sight = { ownerKinds: ['sandbox'], families: [4], interval: durationFromMs(intervalMs) }
  await admin.liveness.registerSource({ ...source, sight })
  await admin.liveness.enableSource({ id })

  const store = new Map<string, Readonly<{ sandbox: Sandbox; address: string }>>()
  const lagging = new Set<string>()
  let begunAt = Number.NEGATIVE_INFINITY
  let seen = { seenEra: 0, seenHead: 0n }

  function run(sandbox: Sandbox, address: string): void {
    const there = [...store.values()].find((one) => one.address === address)
    if (there !== undefined)
      throw new Error(`${sandbox.name} and ${there.sandbox.name} run with ${address}: a duplicate`)
    store.set(sandbox.uid, { sandbox, address })
  }

  function byName(name: string) {
    const found = [...store.values()].find(({ sandbox }) => sandbox.name === name)
    if (found === undefined) throw new Error(`there is no sandbox ${name}`)
    return found
  }

  async function answer({ verifications }: ReportSnapshotResponse): Promise<readonly LookedUp[]> {
    const lookedUp = verifications.map((asked) => ({ asked, found: store.has(asked.owner!.uid) }))
    if (lookedUp.length > 0) {
      const verdicts = lookedUp.map(({ asked, found }) => ({
        id: asked.id,
        answer: found ? LookUpAnswer.LIVE : LookUpAnswer.GONE,
        detail: found ? 'the store has it' : 'the store has no such sandbox',
      }))
      await client.liveness.reportVerdicts({ source: id, epoch: EPOCH, verdicts, ...seen })
    }
    return lookedUp.map(({ asked, found }) => ({ name: asked.owner!.name, address: asked.address, found }))
  }

  return {
    start: async (name, wanted = '') => {
      const sandbox = sandboxOf(name)
      const reserved = await client.leases.reserve({ owner: sandbox, claims: [{ pool, address: wanted }] })
      const { leaseId, address } = reserved.leases[0]!
      run(sandbox, address)
      const confirmed = await client.leases.confirm({ leaseId })
      return confirmed.leases[0]!
    },
    startUnasked: (name, address) => run(sandboxOf(name), address),
    end: (name) => {
      store.delete(byName(name).sandbox.uid)
    },
    lag: (name) => {
      lagging.add(byName(name).sandbox.uid)
    },
    catchUp: () => lagging.clear(),
    list: async () => {
      await delay(Math.max(0, begunAt + intervalMs * SPACING - performance.now()))
      const begun = await client.liveness.beginSnapshot({ source: id, ...seen })
      begunAt = performance.now()
      const listed = [...store.values()].filter(({ sandbox }) => !lagging.has(sandbox.uid))
      const report = await client.liveness.reportSnapshot({
        source: id,
        token: begun.token,
        epoch: EPOCH,
        complete: true,
        entries: listed.map(({ sandbox, address }) => ({ ...sandbox, address })),
        ...seen,
      })
      seen = { seenEra: report.era, seenHead: report.head }
      return {
        sequence: Number(report.sequence),
        names: listed.map(({ sandbox }) => sandbox.name),
        complete: report.complete,
        counted: report.counted,
        lookedUp: await answer(report),
      }
    },
    running: () => new Map([...store.values()].map(({ sandbox, address }) => [address, sandbox.name])),
  }
}

function sandboxOf(name: string): Sandbox {
  return { kind: 'sandbox', name, uid: `sb-${name}`, incarnation: '1', node: NODE }
}
