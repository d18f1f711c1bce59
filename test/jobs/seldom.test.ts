/** Sources that report seldom, and out of step: their answers must meet, or nothing is ever proven (DESIGN §4). */
import { expect, test } from 'vitest'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { useTestDatabase } from '../support/database.ts'
import { GONE, listedAs, MINUTE, SECOND, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const run = () => truth.run(createVerifySuspects({ stayMs: 0 }))

/** Two agents in turns; what they listed at first they list no more. The address, and the round in which it was free. */
async function inTurns(intervalMs: number, answered: (source: string) => boolean) {
  const network = await truth.network()
  for (const source of ['a', 'b']) await truth.source(network, source, { intervalMs })
  const lease = await truth.lease(network, workload('w'))
  await truth.past(network, 10 * MINUTE)
  const list = [listedAs(lease.address, workload('w'))]
  for (let round = 0; round < 16; round += 1) {
    for (const source of ['a', 'b']) {
      await truth.past(network, intervalMs / 2)
      await run()
      const { asks } = await truth.watch(network, source, [round < 3 ? list : []], { endedAgo: 0 })
      if (answered(source)) await truth.answer(network, source, asks, GONE)
      await run()
    }
    if ((await truth.state(network, lease.address)) === 'FREE') return { network, round }
  }
  return { network, round: null }
}

test.each([
  ['half a minute', 30 * SECOND],
  ['five minutes', 5 * MINUTE],
])('each %s: what both miss and both call gone is reaped', async (_every, intervalMs) => {
  const { network, round } = await inTurns(intervalMs, () => true)
  expect(round).not.toBeNull()
  const [reaped] = await truth.events(network, 'lease.reaped')
  expect(reaped!.cause).toBe('PROVEN_ABSENT')
})

test('one that does not answer keeps it', async () => {
  expect((await inTurns(5 * MINUTE, (source) => source === 'a')).round).toBeNull()
})
