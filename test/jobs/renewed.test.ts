/** A promise made again starts every proof anew: what is reserved or confirmed once more is not reaped as missing (2.4). */
import { describe, expect, test } from 'vitest'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { claim, confirm, confirmOf, fenceNode, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL } from '../support/intake.ts'
import { GONE, listedAs, MINUTE, SECOND, seenThenMissed, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const run = () => truth.run(createVerifySuspects({ stayMs: 0 }))

const LIVES = [
  ['that names its life', 'life-w'],
  ['that names none', ''],
] as const

async function missed(incarnation: string) {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const of = workload('w', { incarnation })
  const lease = await truth.lease(network, of)
  await truth.past(network, 10 * MINUTE)
  await truth.watch(network, 'agent', seenThenMissed([listedAs(lease.address, of)], 3), { endedAgo: 0 })
  const again = reserve({ network, owner: of, claims: [claim({ pool: 'web' })] })
  return { network, lease, again }
}

async function askedAndGone(network: string): Promise<number> {
  await run()
  await truth.past(network, INTERVAL)
  const { asks } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
  await truth.answer(network, 'agent', asks, GONE)
  return asks.length
}

test.each(LIVES)(
  'an owner %s reserves and confirms again, and is kept while it starts',
  async (_which, life) => {
    const { network, lease, again } = await missed(life)
    expect(await truth.ledger.take(again)).toMatchObject({ address: lease.address, reused: true })
    await truth.ledger.take(confirm(lease.fencingToken, { network }))
    expect(await askedAndGone(network)).toBe(0)
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.events(network, 'lease.confirmed')).toHaveLength(1)
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    // Never seen again: it is missed anew, and old enough.
    for (let n = 0; n < 11; n += 1) {
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
    }
    expect(await askedAndGone(network)).toBe(1)
    expect(await run()).toMatchObject({ reaped: 1 })
  },
)

test.each(LIVES)('an owner %s reserves between the answer and the reap', async (_which, life) => {
  const { network, lease, again } = await missed(life)
  expect(await askedAndGone(network)).toBe(1)
  await truth.past(network, SECOND)
  await truth.ledger.take(again)
  expect(await run()).toMatchObject({ reaped: 0 })
  expect(await truth.state(network, lease.address)).toBe('ACTIVE')
})

test('without it the lease is reaped', async () => {
  const { network, lease } = await missed('life-w')
  expect(await askedAndGone(network)).toBe(1)
  expect(await run()).toMatchObject({ reaped: 1 })
  expect(await truth.state(network, lease.address)).toBe('FREE')
})

describe('made while a source still lists the life before', () => {
  const V = workload('v')
  const X = '10.0.0.1'
  const on = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })

  async function listedOnItsNode(fields: Parameters<typeof truth.source>[2] = {}) {
    const network = await truth.network()
    const lease = await truth.lease(network, V, on('na', 'a1'))
    expect(lease.address).toBe(X)
    await truth.source(network, 'na', { node: 'na', ...fields })
    await truth.past(network, 10 * MINUTE)
    const seen = listedAs(X, V)
    await truth.watch(
      network,
      'na',
      [seen, seen, seen].map((one) => [one]),
      { epoch: 'a1', endedAgo: 0 },
    )
    await truth.past(network, SECOND)
    return { network, lease }
  }

  /** Cycles of 30 s in which nobody lists it any more, until it is free. */
  async function freeAfter(network: string, most: number, sources: Readonly<Record<string, string>>) {
    for (let cycle = 1; cycle <= most; cycle += 1) {
      await truth.past(network, INTERVAL)
      for (const [source, epoch] of Object.entries(sources)) {
        const { asks } = await truth.watch(network, source, [[]], { epoch, endedAgo: 0 })
        await truth.answer(network, source, asks, GONE, epoch)
      }
      await run()
      if ((await truth.state(network, X)) === 'FREE') return cycle
    }
    return null
  }

  test.each([
    ['confirmed', (network: string, token: number) => truth.ledger.take(confirm(token, { network }))],
    ['reserved without a node', (network: string) => truth.lease(network, V)],
  ])('%s after the fence of its boot, it contradicts the fence (6.3)', async (_how, promise) => {
    const { network, lease } = await listedOnItsNode()
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.past(network, SECOND)
    expect(await promise(network, lease.fencingToken)).toMatchObject({ address: X, state: 'ACTIVE' })
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.state(network, X)).toBe('ACTIVE')
  })

  test('reserved again with a deadline after the fence of its boot, it is kept until then', async () => {
    const network = await truth.network()
    const promise = { confirmed: false, confirmWithinMs: 10 * MINUTE }
    const before = await truth.lease(network, V, { ...on('na', 'a1'), ...promise })
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.past(network, MINUTE)
    const after = await truth.lease(network, V, promise)
    expect(after).toMatchObject({ address: X, state: 'RESERVED', reused: true })
    expect(after.version).toBeGreaterThan(before.version)
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.state(network, X)).toBe('RESERVED')
    await truth.past(network, 12 * MINUTE)
    expect(await run()).toMatchObject({ reaped: 1 })
  })

  test.each([
    ['confirmed', (network: string) => truth.ledger.take(confirmOf(V, { network }))],
    ['reserved on its node', (network: string) => truth.lease(network, V, on('na', ''))],
  ])('%s after its node booted anew, it outlives the boot before (12.2)', async (_how, promise) => {
    const { network } = await listedOnItsNode({ bootEndsAll: true })
    await truth.watch(network, 'na', [[]], { epoch: 'a2', endedAgo: 0 })
    await truth.past(network, SECOND)
    expect(await promise(network)).toMatchObject({ address: X, state: 'ACTIVE' })
    // In 5 minutes nothing ends it; then it is missed like any.
    expect(await freeAfter(network, 10, { na: 'a2' })).toBeNull()
    expect(await freeAfter(network, 4, { na: 'a2' })).not.toBeNull()
    expect((await truth.events(network, 'lease.reaped'))[0]).toMatchObject({ cause: 'PROVEN_ABSENT' })
  })

  test.each([
    ['on its node', on('na', 'a1'), { na: 'a1' }],
    ['from another node', on('nb', 'b1'), { na: 'a1', nb: 'b1' }],
  ])('reserved %s, it is kept for its age while it starts (2.4)', async (_where, from, sources) => {
    const { network } = await listedOnItsNode()
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.watch(network, 'nb', [[], [], []], { epoch: 'b1', endedAgo: 0 })
    expect(await truth.lease(network, V, from)).toMatchObject({ address: X, reused: true })
    expect(await freeAfter(network, 9, sources)).toBeNull()
    expect(await truth.state(network, X)).toBe('ACTIVE')
  })
})
