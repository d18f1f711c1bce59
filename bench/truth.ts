/** The lines about lists of what is alive: one of a whole network beside Reserve, and thousands of agents with their nodes'. */
import { setTimeout as delay } from 'node:timers/promises'
import { formatValue } from '../src/core/address.ts'
import { type History, holderOf } from './history.ts'
import type { Through } from './load.ts'
import { amount, type Bench, run, type Subject } from './measure.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

/** Of any method: fields that are not there are not read. */
type Answer = {
  readonly sequence: string
  readonly head: string
  readonly begunAt: string
  readonly digest?: string
  readonly resend?: boolean
  readonly nextSequence: string
  readonly nextHead: string
  readonly nextBegunAt: string
}
type Listed = { readonly address: string; readonly kind: string; readonly name: string; readonly uid: string }

/** Callers of Reserve beside a list: enough to see it wait, too few to take the machine. */
const CALLERS = 8

/** 100,000 entries against 100,000 leases, and what Reserve in the same network meets meanwhile. */
export async function truth(bench: Bench): Promise<void> {
  const { listed, measureMs } = bench.scale
  const stage = await bench.stage('listed')
  const history = leases('listed', listed)
  await stage.network(history)
  const { through, pids } = await stage.through(1, true)
  const reserving: Subject = {
    what: 'Reserve meanwhile',
    work: 'reserve',
    callers: CALLERS,
    network: history.network,
    through,
    pids,
  }
  const source = await openSource(through[0]!, history.network, 'cluster', '')
  const entries = Array.from({ length: listed }, (_, k) => entryOf(k))
  const alone = await run(bench, reserving, { warmUpMs: measureMs, measureMs })
  const tell = async (what: string, list: readonly Listed[], most: number) => {
    let ms = 0
    const [figures] = await Promise.all([
      run(bench, reserving, {
        warmUpMs: 200,
        measureMs: Math.max(measureMs, most * 1_000 * (listed / 1e5)),
      }),
      delay(400).then(async () => {
        const began = performance.now()
        await source.report(list)
        ms = performance.now() - began
      }),
    ])
    bench.show(
      amount('truth', `${listed.toLocaleString('en-US')} entries, ${what}`, ms / 1_000, 's', { most }),
    )
    bench.show({
      ...amount('truth', `Reserve's p99 meanwhile, ${CALLERS} callers`, figures.p99, 'ms', { most: 2 }),
      figures: figures,
      floor: { what: 'without a list', value: alone.p99 },
      ratio: figures.p99 / alone.p99,
    })
  }
  await tell('first', entries, 3)
  // It warms up, and is said in full until it is believed.
  for (let i = 0; i < 2; i += 1) await source.report(entries)
  await tell('unchanged in full', entries, 0.5)
  await tell(
    '1 % changed',
    entries.map((one, k) =>
      k % 100 === 0 ? { ...one, name: `${one.name}-new`, uid: `${one.uid}-new` } : one,
    ),
    0.6,
  )
}

/** Each agent says each interval that its list is as it was. */
export async function agents(bench: Bench): Promise<void> {
  const { agents: count, agentIntervalMs } = bench.scale
  const stage = await bench.stage('listed')
  const history = leases('agents', count * 50)
  await stage.network(history)
  const { through, pids } = await stage.through(1, true)
  const perNode = new Map<string, Listed[]>()
  for (let k = 0; k < history.held; k += 1) {
    const { node } = holderOf(k)
    perNode.set(node, [...(perNode.get(node) ?? []), entryOf(k)])
  }
  const nodes = [...perNode.keys()].slice(0, count)
  const sources: Source[] = []
  for (const node of nodes)
    sources.push(await openSource(through[0]!, history.network, `agent-${node}`, node))
  for (let i = 0; i < 3; i += 1)
    for (const [index, source] of sources.entries()) await source.report(perNode.get(nodes[index]!)!)
  const idle = await coresFor(bench, pids, 2 * agentIntervalMs)
  let isOver = false
  const reporting = sources.map(async (source, index) => {
    await delay((index * agentIntervalMs) / sources.length)
    while (!isOver) {
      const [said] = await Promise.all([source.unchanged(), delay(agentIntervalMs)])
      if (!said) throw new Error('an agent was asked for its list in full')
    }
  })
  await delay(agentIntervalMs)
  const busy = await coresFor(bench, pids, 2 * agentIntervalMs)
  isOver = true
  await Promise.all(reporting)
  const what = `${count.toLocaleString('en-US')} agents of 50 leases, each ${agentIntervalMs / 1_000} s, unchanged`
  bench.show(
    amount('agents', `${what}: cores of service and PostgreSQL`, busy - idle, 'cores', { most: 0.05 }),
  )
  bench.show(amount('agents', 'without agents', idle, 'cores'))
}

function leases(network: string, count: number): History {
  const all = { addresses: count, held: count, reserves: count }
  return { network, cidr: '10.0.0.0/8', ...all, isActive: true }
}

/** Of the k-th lease of a pool that begins at 10.0.0.0, which is its network's address. */
function entryOf(k: number): Listed {
  return { address: formatValue(4, 0x0a000001n + BigInt(k)), ...holderOf(k).owner }
}

async function coresFor({ scratch }: Bench, pids: readonly number[], ms: number): Promise<number> {
  const spent = () => pids.reduce((sum, pid) => sum + cpuMs(pid), clusterCpuMs(scratch.postmaster()))
  const before = spent()
  await delay(ms)
  return (spent() - before) / ms
}

type Source = {
  report(entries: readonly Listed[]): Promise<void>
  /** False: the list is wanted in full. */
  unchanged(): Promise<boolean>
}

async function openSource(through: Through, network: string, source: string, node: string): Promise<Source> {
  if (through.kind !== 'service') throw new Error('a list is told to a service')
  const { host, port } = through
  const ask = async (method: string, body: object): Promise<Answer> => {
    const reply = await fetch(`http://${host}:${port}/ipledger.v1.LivenessService/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ network, ...body }),
    })
    if (reply.ok) return (await reply.json()) as Answer
    throw new Error(`${method} was answered ${reply.status}: ${(await reply.text()).slice(0, 300)}`)
  }
  await ask('RegisterSource', {
    id: source,
    sight: { ...(node !== '' && { node }), ownerKinds: ['pod', 'container'], families: [4], interval: '30s' },
  })
  await ask('EnableSource', { id: source, acceptUnlisted: true })
  let digest = ''
  let { sequence, head, begunAt } = await ask('BeginSnapshot', { source })
  const tell = async (content: object) => {
    const report = { source, epoch: 'bench', complete: true, sequence, head, begunAt, ...content }
    const answer = await ask('ReportSnapshot', report)
    digest = answer.digest || digest
    sequence = answer.nextSequence
    head = answer.nextHead
    begunAt = answer.nextBegunAt
    return answer.resend !== true
  }
  return {
    report: async (entries) => void (await tell({ entries })),
    unchanged: () => tell({ unchanged: digest }),
  }
}
