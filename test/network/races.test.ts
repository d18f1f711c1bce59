/** What happens between two steps of the agent: between its list of leases and its look. */
import { execFileSync } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { Reporter } from '../../src/agent/report.ts'
import { Spares } from '../../src/agent/spares.ts'
import { createClient } from '../../src/client/client.ts'
import { Attachments } from '../../src/cni/attachments.ts'
import { scanNode } from '../../src/cni/namespaces.ts'
import { useService } from '../support/service.ts'
import { given, openNode } from './node.ts'

const { call, url } = await useService()
await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.207.0.0/28', gateway: '10.207.0.1' })
await call.ok('LivenessService/RegisterSource', {
  id: 'n1',
  sight: { node: 'n1', ownerKinds: ['container'], interval: '30s' },
})
const node = await openNode({ IPLEDGER_URL: url })

/** Without an agent; the bridge has no address. */
const alone = { config: { isGateway: false } }
/** After the ledger has said what it holds and before the look. */
let meanwhile = async () => {}
const real = createClient({ url })
const listLeases: typeof real.leases.listLeases = async (...asked) => {
  const answer = await real.leases.listLeases(...asked)
  await meanwhile()
  meanwhile = async () => {}
  return answer
}
const client = { ...real, leases: { ...real.leases, listLeases } }
const options = {
  client,
  network: 'default',
  node: 'n1',
  source: 'n1',
  bridge: node.bridge,
  cniCache: node.dir,
}
const spares = new Spares({
  ...options,
  size: 0,
  pools: [],
  scan: () => scanNode(null),
  isAnsweredFor: async () => false,
})
const attachments = new Attachments(node.dir, () => {})
const reporter = new Reporter({ ...options, state: node.dir, spares, attachments, scanNode })
const foreign = async () => {
  await reporter.report()
  return reporter.foreign
}

test('what is reserved while it looks is not foreign: a container’s next one would lose the address', async () => {
  let added: readonly string[] = []
  meanwhile = async () => {
    added = given(await node.call('ADD', node.add('late'), alone))
  }
  expect(await foreign()).toEqual([])
  expect(node.addresses().get('late')).toEqual(added)
  expect(await foreign()).toEqual([])
})

test('every address of the node: of its own interfaces, loopback and link scope, and of every namespace', async () => {
  node.inside('late', 'ip', 'addr', 'add', '10.207.0.10/32', 'dev', 'lo')
  node.inside('late', 'ip', 'addr', 'add', '10.207.0.11/32', 'dev', 'eth0', 'scope', 'link')
  const other = `${node.bridge}d`
  execFileSync('ip', ['link', 'add', other, 'type', 'bridge'])
  onTestFinished(() => void execFileSync('ip', ['link', 'del', other]))
  execFileSync('ip', ['addr', 'add', '10.207.0.12/32', 'dev', other])
  const { all } = await scanNode(null)
  for (const last of [10, 11, 12]) expect(all).toContain(`10.207.0.${last}`)
  for (const [address] of node.addresses().values()) expect(all).toContain(address)
})
