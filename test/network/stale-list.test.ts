/** MIR-1238 on real namespaces: a list that lags says that a running one is gone. Its address goes to nobody. */
import { expect, test } from 'vitest'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, given, openNode } from './node.ts'

const service = await useService()
const { call, time } = service
// Two addresses, and a workload for each: whoever comes then can only get what is taken from one of them.
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.204.0.0/29',
  gateway: '10.204.0.1',
  exclude: ['10.204.0.4-10.204.0.6'],
  cooldown: '0s',
})
const liveness = (method: string, body: object) => call.ok(`LivenessService/${method}`, body)
for (const [id, node] of [
  ['n1', 'n1'],
  ['index', ''],
]) {
  const sight = { node, ownerKinds: ['container'], interval: '1s' }
  await liveness('RegisterSource', { id, sight })
  await liveness('EnableSource', { id })
}
const node = await openNode({ IPLEDGER_URL: service.url })
await node.startAgent()

type Listed = { readonly address: string; readonly kind: string; readonly uid: string }
/** The orchestrator's index as a source: its list, and its look-ups answer from the same list. */
async function reportIndex(entries: readonly Listed[]): Promise<number> {
  const { sequence, head, begunAt } = await liveness('BeginSnapshot', { source: 'index' })
  const report = { source: 'index', epoch: 'e1', sequence, head, begunAt, complete: true, entries }
  const { verifications } = await liveness('ReportSnapshot', report)
  const verdicts = verifications.map(({ id }: { readonly id: string }) => ({ id, answer: 'GONE' }))
  if (verdicts.length > 0) await liveness('ReportVerdicts', { source: 'index', epoch: 'e1', verdicts })
  return verdicts.length
}

type Lease = { readonly address: string; readonly state: string; readonly owner: { readonly uid: string } }
const held = async (): Promise<readonly Lease[]> => (await call.ok('LeaseService/ListLeases', {})).leases

test('a running namespace keeps its address; the one that is really gone gives its own', async () => {
  const [address] = given(await node.call('ADD', node.add('running')))
  const [other] = given(await node.call('ADD', node.add('crashed')))
  const both = [address!, other!]
  const seenBy = async (source: string) =>
    (await liveness('ListSightings', { source })).sightings.map((one: Listed) => one.address)
  await waitFor(
    async () => {
      const seen = await seenBy('n1')
      return both.every((one) => seen.includes(one))
    },
    { what: 'the agent to list both' },
  )
  await reportIndex(
    both.map((one, at) => ({ address: one, kind: 'container', uid: ['running', 'crashed'][at]! })),
  )

  // From here on the index knows nothing; and one container crashes, without DEL.
  node.remove('crashed')
  const refused = await node.call('ADD', node.add('third'))
  expect(refused.body.msg).toContain('POOL_EXHAUSTED')
  await node.call('DEL', 'third')
  let asked = 0
  await waitFor(
    async () => {
      time.movedBy += 20 * 60_000
      asked += await reportIndex([])
      await service.run('judge', 'default')
      return !(await held()).some(({ owner }) => owner.uid === 'crashed')
    },
    { what: 'the lease of the crashed one to be reaped', every: 500 },
  )
  expect(asked, 'the index was asked, and said gone').toBeGreaterThan(0)
  expect((await held()).map((one) => [one.address, one.owner.uid])).toEqual([[address, 'running']])
  time.movedBy += 60_000
  expect(given(await node.call('ADD', 'third'))).toEqual([other])
  expect(node.addresses().get('running')).toEqual([address])
  expect(doubles(node)).toEqual([])
})

test('nor when the agent is dead and the list lies for hours', async () => {
  await node.killAgent()
  const before = await held()
  for (let turn = 0; turn < 10; turn += 1) {
    time.movedBy += 60 * 60_000
    await reportIndex([])
    await service.run('judge', 'default')
  }
  expect((await held()).map(({ address }) => address)).toEqual(before.map(({ address }) => address))
  await node.startAgent()
  expect((await node.call('ADD', node.add('fourth'))).body.msg).toContain('POOL_EXHAUSTED')
  expect(doubles(node)).toEqual([])
})
