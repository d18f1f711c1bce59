/**
 * A source that reports over the API, as a node's agent or an orchestrator does it: begin, look, report, answer what
 * was asked. What it sees and answers is the world's truth unless a test makes it lie.
 */
import type { Identity, Reality, Workload } from './reality.ts'
import type { Rpc } from './rpc.ts'

export const INTERVAL = 30_000

export type Listed = {
  readonly address: string
  readonly kind?: string
  readonly name?: string
  readonly uid?: string
  readonly incarnation?: string
  readonly interface?: string
  readonly node?: string
  readonly state?: string
}

type ReportAnswer = {
  readonly complete: boolean
  readonly counted: boolean
  readonly because: readonly string[]
  readonly unreadable: number
  readonly verifications: readonly Verification[]
}

/** What a report is begun at. */
export type Begun = Readonly<Record<'sequence' | 'head' | 'begunAt' | 'proof', string>>

type Verification = {
  readonly id: string
  readonly owner: Identity & { readonly incarnation: string }
  readonly address: string
  readonly leaseId: string
}

type Answer = 'LIVE' | 'TERMINAL' | 'GONE' | 'UNKNOWN' | 'ERROR'
type Verdict = { readonly answer: Answer; readonly terminalSince?: string; readonly detail?: string }

export type Declared = {
  readonly node?: string
  readonly families?: readonly number[]
  readonly ownerKinds?: readonly string[]
  readonly intervalMs?: number
  /** As it was registered: in dry run. */
  readonly enabled?: boolean
  /** The life of its process. */
  readonly epoch?: string
}

export type TestAgent = {
  readonly source: string
  readonly node: string
  epoch: string
  /** Of what is there, what its list has. A stale index forgets some; a truthful one none. */
  lists: (workload: Workload) => boolean
  /** What it says of one it is asked after; null: nothing. */
  answers: (asked: Verification) => Verdict | null
  /** What it was asked, in order. */
  readonly asked: Verification[]
  /** Through another server from now on: the next life of the service. */
  speaksTo(call: Rpc): void
  begin(): Promise<Begun>
  /** What its list has now. */
  entries: () => readonly Listed[]
  report: (look?: {
    readonly begun?: Begun
    readonly entries?: readonly Listed[]
    readonly complete?: boolean
  }) => Promise<ReportAnswer>
}

/** Registered, and enabled unless said otherwise. It has not reported yet. */
export async function createAgent(
  { call, network, reality }: { readonly call: Rpc; readonly network: string; readonly reality: Reality },
  source: string,
  declared: Declared = {},
): Promise<TestAgent> {
  const { node = source, families = [4, 6], ownerKinds = ['sandbox'], enabled = true } = declared
  await call.ok('LivenessService/RegisterSource', {
    network,
    id: source,
    sight: {
      node,
      ownerKinds,
      families,
      interval: `${(declared.intervalMs ?? INTERVAL) / 1_000}s`,
    },
  })
  if (enabled) await call.ok('LivenessService/EnableSource', { network, id: source })

  const asked: Verification[] = []
  let through = call
  const ask = (method: string, message: object) =>
    through.ok(`LivenessService/${method}`, { network, source, ...message })
  const agent: TestAgent = {
    source,
    node,
    epoch: declared.epoch ?? 'life-1',
    lists: () => true,
    answers: ({ owner }) =>
      reality.find(owner, node) === undefined ? { answer: 'GONE' } : { answer: 'LIVE', detail: 'running' },
    asked,
    speaksTo(other) {
      through = other
    },
    async begin() {
      const { sequence, head, begunAt, proof } = await ask('BeginSnapshot', {})
      return { sequence, head, begunAt, proof }
    },
    entries: () =>
      reality
        .on(node)
        .filter(agent.lists)
        .flatMap((workload) => listed(workload, agent, families)),
    async report({ begun, entries, complete = true } = {}) {
      const { epoch } = agent
      const answer: ReportAnswer = await ask('ReportSnapshot', {
        ...(begun ?? (await agent.begin())),
        epoch,
        complete,
        entries: entries ?? agent.entries(),
      })
      asked.push(...answer.verifications)
      const verdicts = answer.verifications.flatMap((one) => {
        const verdict = agent.answers(one)
        return verdict === null ? [] : [{ id: one.id, ...verdict }]
      })
      if (verdicts.length > 0) await ask('ReportVerdicts', { epoch, verdicts })
      return answer
    },
  }
  return agent
}

function listed(
  workload: Workload,
  { node }: Pick<TestAgent, 'node'>,
  families: readonly number[],
): readonly Listed[] {
  const { kind, name, uid, incarnation, interface: on, state, nodes } = workload
  // Of a source of a node, what it lists is there.
  const place = node === '' && nodes[0] !== undefined ? { node: nodes[0] } : {}
  return workload.addresses
    .filter((address) => families.includes(address.includes(':') ? 6 : 4))
    .map((address) => ({ address, kind, name, uid, incarnation, interface: on, state, ...place }))
}
