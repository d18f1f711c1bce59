/** What one node's token and source can do to the others: over HTTP, with tokens that are bound to their nodes. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'

const directory = mkdtempSync(join(tmpdir(), 'ipledger-nodes-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'tokens')
const TOKENS = {
  admin: createToken({ file, name: 'admin', role: 'admin' }),
  n1: createToken({ file, name: 'agent-n1', role: 'agent', node: 'n1' }),
  n2: createToken({ file, name: 'agent-n2', role: 'agent', node: 'n2' }),
}
type Who = keyof typeof TOKENS
const running = await useService({ IPLEDGER_TOKENS: file })
const call = (who: Who, method: string, body: object) =>
  post(running, method, body, { authorization: `Bearer ${TOKENS[who]}` })
const ok = async (who: Who, method: string, body: object) => {
  const answer = await call(who, method, body)
  expect(answer.status, `${method}: ${JSON.stringify(answer.body)}`).toBe(200)
  return answer.body
}

const LIMIT = 20
/** A network of its own, with a warm source of n2. */
async function room(name: string, pool: object = {}) {
  await ok('admin', 'NetworkService/CreateNetwork', { name })
  await ok('admin', 'PoolService/CreatePool', {
    network: name,
    name: 'web',
    cidr: '10.0.0.0/24',
    nodeLimit: LIMIT,
    ...pool,
  })
  const sight = { node: 'n2', ownerKinds: ['container'], interval: '30s' }
  await ok('admin', 'LivenessService/RegisterSource', { network: name, id: 'n2', sight })
  await ok('admin', 'LivenessService/EnableSource', { network: name, id: 'n2' })
  const report = async (entries: readonly object[], more: object = {}) => {
    const begun = await ok('n2', 'LivenessService/BeginSnapshot', { network: name, source: 'n2' })
    const { sequence, head, begunAt, proof } = begun
    return ok('n2', 'LivenessService/ReportSnapshot', {
      network: name,
      source: 'n2',
      epoch: 'e',
      sequence,
      head,
      begunAt,
      proof,
      entries,
      complete: true,
      ...more,
    })
  }
  await report([])
  await report([])
  const reserve = async (who: Who, owner: object, more: object = {}) =>
    (await ok(who, 'LeaseService/Reserve', { network: name, owner, ...more })).leases[0]
  const leases = async (filter: object) =>
    (await ok('admin', 'LeaseService/ListLeases', { network: name, pageSize: 1_000, ...filter })).leases ?? []
  return { report, reserve, leases }
}

test('a source that lists a whole pool takes nothing from another node, and no more than its limit', async () => {
  const { report, reserve, leases } = await room('greedy', { nodeLimit: 200 })
  await ok('admin', 'PoolService/UpdatePool', { network: 'greedy', name: 'web', nodeLimit: LIMIT })
  const held = []
  for (let n = 0; n < LIMIT; n += 1)
    held.push(await reserve('n1', { kind: 'container', name: `c${n}` }, { confirmed: true }))
  await report(
    Array.from({ length: 254 }, (_, n) => ({ address: `10.0.0.${n + 1}`, kind: 'container', uid: `x${n}` })),
  )
  expect(await leases({ node: 'n1', states: ['ACTIVE'] })).toHaveLength(LIMIT)
  expect(await leases({ node: 'n2' })).toHaveLength(LIMIT)
  expect(await leases({ states: ['QUARANTINED'] })).toEqual([])
  for (const { leaseId } of held) {
    await ok('n1', 'LeaseService/Confirm', { leaseId })
    const [{ state }] = (await ok('n1', 'LeaseService/Release', { leaseId })).leases
    expect(state).toBe('ENDED')
  }
  // What it lists is handed out to nobody.
  const refused = await call('n1', 'LeaseService/Reserve', {
    network: 'greedy',
    owner: { kind: 'container', name: 'next' },
  })
  expect(refused.reason).toBe('POOL_EXHAUSTED')
})

test("when a lease ends that another node's source listed, nobody gets its address, within that node's limit", async () => {
  const { report, reserve, leases } = await room('contested')
  const held = await reserve('n1', { kind: 'container', name: 'c' }, { confirmed: true })
  await report([{ address: held.address, kind: 'container', uid: 'x' }])
  await ok('n1', 'LeaseService/Release', { leaseId: held.leaseId })
  const [kept] = await leases({ states: ['QUARANTINED'] })
  expect(kept).toMatchObject({ address: held.address, quarantine: { reason: 'CONFLICT', by: 'n2' } })
  expect(kept.owner).toBeUndefined()
  expect(kept.leaseId).not.toBe(held.leaseId)
})

test('beyond its limit a node gets nothing more, and the refusal says which limit', async () => {
  const { reserve } = await room('limit', { nodeLimit: 1 })
  await reserve('n1', { kind: 'container', name: 'a' })
  const { reason, metadata } = await call('n1', 'LeaseService/Reserve', {
    network: 'limit',
    owner: { kind: 'container', name: 'b' },
  })
  expect({ reason, metadata }).toMatchObject({
    reason: 'NODE_LIMIT',
    metadata: { pool: 'web', node: 'n1', limit: '1' },
  })
})
