/** What an agent has heard of the log is on its disk: a database that was set back is found out, also after a restart. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { LastNumber } from '../../src/agent/last-number.ts'
import { Reporter } from '../../src/agent/report.ts'
import { Spares } from '../../src/agent/spares.ts'
import { createClient } from '../../src/client/client.ts'
import { Attachments } from '../../src/cni/attachments.ts'
import { scanNode } from '../../src/cni/namespaces.ts'
import { proofOf } from '../../src/sources/proof.ts'
import { withClient } from '../support/database.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const proof = (byte: number) => Buffer.from([byte])
const open = (state: string, source = 'n1') => new LastNumber(state, 'default', source)

test('the later number is the one that counts, in every process on this directory', () => {
  const state = temporaryDirectory()
  expect(open(state).latest({ head: 7n, proof: proof(7) })).toEqual({ head: 7n, proof: proof(7) })
  expect(open(state).latest({ head: 5n, proof: proof(5) })).toEqual({ head: 7n, proof: proof(7) })
  expect(open(state).latest({ head: 9n, proof: proof(9) })).toEqual({ head: 9n, proof: proof(9) })
  open(state).forget()
  expect(open(state).latest({ head: 5n, proof: proof(5) })).toEqual({ head: 5n, proof: proof(5) })
})

test('a file of another source, and one that cannot be read, say nothing', () => {
  const state = temporaryDirectory()
  open(state, 'n2').latest({ head: 7n, proof: proof(7) })
  expect(open(state).latest({ head: 5n, proof: proof(5) }).head).toBe(5n)
  const read = (name: string) => readFileSync(join(state, name), 'utf8')
  const file = join(state, readdirSync(state).find((name) => read(name).includes('"5"'))!)
  for (const text of ['', '{', '{"head":null}', readFileSync(file, 'utf8').replace('"5"', '"five"')]) {
    writeFileSync(file, text)
    expect(open(state).latest({ head: 4n, proof: proof(4) }).head).toBe(4n)
  }
})

test('an agent that has started since holds a network that was set back, once; another service it does not', async () => {
  const service = await useService()
  const { call } = service
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.60.0.0/28' })
  const sight = { node: 'n1', ownerKinds: ['container'], interval: '30s' }
  await call.ok('LivenessService/RegisterSource', { id: 'n1', sight })
  await call.ok('LivenessService/EnableSource', { id: 'n1' })
  const secret = await withClient(service.database.adminUrl, async (admin) => {
    const { rows } = await admin.query(
      `select secret from ipledger.network_lock where network_id = 'default'`,
    )
    return rows[0].secret as Buffer
  })
  const state = temporaryDirectory()
  const common = { client: createClient(service), network: 'default', node: 'n1', source: 'n1' }
  const started = () => {
    const unused = { size: 0, pools: [], scan: () => scanNode(null), isAnsweredFor: async () => false }
    const spares = new Spares({ ...common, ...unused })
    const attachments = new Attachments(state, () => {})
    const reporter = new Reporter({
      ...common,
      state,
      bridge: 'none',
      cniCache: state,
      spares,
      attachments,
      scanNode,
    })
    return () => reporter.report()
  }
  const holds = async () => (await call.ok('NetworkService/GetNetwork', {})).network.holds ?? []

  await started()()
  open(state).latest({ head: 1_000n, proof: proof(1) })
  await expect(started()()).rejects.toThrow('UNPROVEN_HEAD')
  await started()()
  expect(await holds()).toEqual([])

  open(state).latest({ head: 1_000n, proof: proofOf(secret, 'default', 'n1', 1_000) })
  await expect(started()()).rejects.toThrow('BEYOND_HEAD')
  expect(await holds()).toMatchObject([{ cause: 'SOURCE_AHEAD' }])
  // Whoever ends the hold has been told.
  await started()()
})
