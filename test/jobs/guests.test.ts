/** What is seen inside a delegated block, and what it says of who holds the block (DESIGN §6, 16.5). */
import { afterAll, describe, expect, test } from 'vitest'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import type { GivenEntry, LookUpReply } from '../../src/liveness/source.ts'
import { owner } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL } from '../support/intake.ts'
import { ended, GONE, HOUR, listedAs, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const verify = createVerifySuspects({ stayMs: 0 })
const clear = createClearQuarantine()
const processed = createProcessSnapshots()
const LIVE: LookUpReply = { answer: 'live', detail: 'running' }
const on = (node: string) => ({ placement: { node, boot: '', labels: {} } })
const HOLDER = owner({ kind: 'vm', name: 'v', uid: 'uid-v', incarnation: 'life-v' })
const KINDS = ['vm', 'pod']

async function withBlock(node = 'n1') {
  const network = await truth.network({ cidr: '10.0.0.0/24', prefixLength: 28 })
  await truth.source(network, 'n1', { node: 'n1', ownerKinds: KINDS })
  await truth.source(network, 'n2', { node: 'n2', ownerKinds: KINDS })
  const block = await truth.lease(network, HOLDER, on(node))
  expect(block.address).toBe('10.0.0.0')
  return { network, block }
}

type Sources = Readonly<
  Record<string, { readonly list?: readonly GivenEntry[]; readonly reply?: LookUpReply }>
>

async function cycles(network: string, count: number, sources: Sources): Promise<void> {
  for (let cycle = 0; cycle < count; cycle += 1) {
    await truth.past(network, INTERVAL)
    for (const [source, { list = [], reply = GONE }] of Object.entries(sources)) {
      const { asks } = await truth.watch(network, source, [list], { epoch: 'b1', endedAgo: 0 })
      await truth.answer(network, source, asks, reply, 'b1')
    }
    await truth.run(processed)
    await truth.run(verify)
    await truth.run(clear)
  }
}

describe('a guest of a block', () => {
  test('that is listed as ended is no end of who holds the block: he is asked after', async () => {
    const { network, block } = await withBlock()
    const guest = listedAs('10.0.0.3', workload('guest'))
    await cycles(network, 4, { n1: { list: [guest], reply: LIVE } })
    await cycles(network, 40, { n1: { list: [ended(guest)], reply: LIVE } })
    await truth.expectKept(network, block)
  })

  test('seen by nobody known on another node makes no witness of that node', async () => {
    const { network, block } = await withBlock()
    await cycles(network, 4, { n2: { list: [listedAs('10.0.0.3', null)] } })
    await cycles(network, 20, { n2: {} })
    await truth.expectKept(network, block)
  })

  test('makes no witness of his node where nobody knows the node of the block', async () => {
    const { network, block } = await withBlock('')
    await cycles(network, 4, { n2: { list: [listedAs('10.0.0.3', workload('guest'))] } })
    await cycles(network, 20, { n2: {} })
    await truth.expectKept(network, block)
  })

  test('on his node is no other party of a conflict that is over', async () => {
    const { network, block } = await withBlock()
    const own = listedAs('10.0.0.3', workload('guest'))
    const stranger = listedAs('10.0.0.9', workload('stranger'))
    await cycles(network, 4, { n1: { list: [own] }, n2: { list: [stranger] } })
    expect(await truth.state(network, block.address)).toBe('CONFLICT')
    await truth.past(network, HOUR)
    await cycles(network, 20, { n1: { list: [own], reply: LIVE }, n2: {} })
    expect(await truth.state(network, block.address)).toBe('ACTIVE')
  })

  test('on a node that has asked for the block since is no conflict of it', async () => {
    const { network, block } = await withBlock()
    expect(await truth.lease(network, HOLDER, on('n2'))).toMatchObject({ address: block.address })
    const guest = listedAs('10.0.0.3', workload('guest'))
    await cycles(network, 4, { n1: {}, n2: { list: [guest] } })
    expect(await truth.state(network, block.address)).toBe('ACTIVE')
    await truth.past(network, HOUR)
    await cycles(network, 10, { n1: {}, n2: { reply: LIVE } })
    await truth.expectKept(network, block)
    await cycles(network, 10, { n1: {}, n2: {} })
    expect(await truth.state(network, block.address)).toBe('FREE')
  })
})
