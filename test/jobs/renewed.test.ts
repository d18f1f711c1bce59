/** A promise made again starts every proof anew: what is reserved or confirmed once more is not reaped as missing (2.4). */
import { expect, test } from 'vitest'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { claim, confirm, reserve } from '../support/commands.ts'
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
