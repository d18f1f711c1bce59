/** An end that is listed, and a workload that was made anew, or promised its address again, since (M-06, W-03, 2.4). */
import { afterAll, describe, expect, test } from 'vitest'
import type { Owner } from '../../src/core/owner.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import type { GivenEntry, LookUpReply } from '../../src/liveness/source.ts'
import { owner } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL } from '../support/intake.ts'
import { ended, GONE, listedAs, MINUTE, useTruth } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const verify = createVerifySuspects({ stayMs: 0 })
const LIVE: LookUpReply = { answer: 'live', detail: 'creating' }
const WEB = owner({ name: 'n1/web' })

async function reports(
  network: string,
  count: number,
  list: readonly GivenEntry[],
  reply: LookUpReply = LIVE,
): Promise<number> {
  let asked = 0
  for (let report = 0; report < count; report += 1) {
    await truth.past(network, INTERVAL)
    const { asks } = await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    asked += await truth.answer(network, 'agent', asks, reply)
    await truth.run(verify)
  }
  return asked
}

/** A lease of long ago, known by its name, and its container as it is listed. */
async function seen(of: Owner) {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const lease = await truth.lease(network, WEB)
  const entry = listedAs(lease.address, of)
  await reports(network, 4, [entry])
  await truth.past(network, 10 * MINUTE)
  await reports(network, 4, [entry])
  return { network, lease, entry }
}

describe('an end that is listed', () => {
  test('of one container of a name is no end of the name: whether there is another is asked', async () => {
    const { network, lease, entry } = await seen(owner({ name: 'n1/web', uid: 'c1' }))
    expect(await reports(network, 30, [ended(entry)])).toBeGreaterThanOrEqual(1)
    await truth.expectKept(network, lease)
  })

  test('since before the address was promised again is no end of who was promised it', async () => {
    const { network, lease, entry } = await seen(WEB)
    await reports(network, 4, [ended(entry)])
    const again = await truth.lease(network, WEB)
    expect(again).toMatchObject({ fencingToken: lease.fencingToken, reused: true })
    expect(await reports(network, 30, [ended(entry)])).toBeGreaterThanOrEqual(1)
    await truth.expectKept(network, lease)
  })

  test('of either is one when its source says that it is gone', async () => {
    const { network, lease, entry } = await seen(owner({ name: 'n1/web', uid: 'c1' }))
    await reports(network, 4, [ended(entry)])
    await truth.lease(network, WEB)
    await reports(network, 30, [ended(entry)], GONE)
    expect(await truth.state(network, lease.address)).toBe('FREE')
  })
})
