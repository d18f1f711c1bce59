/** What nothing that is under way will ever end is told of, and what a job would end is ended by it. */
import { describe, expect, test } from 'vitest'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { fenceNode, release } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { INTERVAL, settled } from '../support/intake.ts'
import { GONE, HOUR, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)

const on = (node: string, boot: string) => ({ node, boot, labels: {} })
const times = <T>(count: number, one: T): readonly T[] => Array.from({ length: count }, () => one)

async function list(network: string) {
  const page = await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 })
  return settled(page).stuck
}

async function told(network: string): Promise<readonly string[]> {
  return (await list(network)).map(({ code, source, lease }) =>
    [code, source, lease?.address].filter(Boolean).join(' '),
  )
}

async function judge() {
  await truth.run(createVerifySuspects({ stayMs: 0 }))
  await truth.run(createClearQuarantine())
}

/** The source reports once an interval, says gone of whomever it is asked after, and all that judges runs. */
async function days(network: string, source: string, intervals: number) {
  await truth.past(network, 24 * HOUR)
  for (let n = 0; n < intervals; n += 1) {
    await truth.past(network, INTERVAL)
    const { asks } = await truth.watch(network, source, [[]], { endedAgo: 0 })
    await truth.answer(network, source, asks, GONE)
    await judge()
  }
}

describe('a fenced boot without any source', () => {
  test('ends what was superseded there, or not removed, as it ends the rest', async () => {
    const network = await truth.network()
    const superseded = await truth.lease(network, workload('a'), { placement: on('n1', 'b1') })
    const next = workload('a', { incarnation: 'life-2' })
    const held = await truth.lease(network, next, { placement: on('n2', 'b2') })
    const unremoved = await truth.lease(network, workload('u'), { placement: on('n1', 'b1') })
    await truth.ledger.accept(release(unremoved.fencingToken, { network, removalConfirmed: false }))
    const active = await truth.lease(network, workload('c'), { placement: on('n1', 'b1') })
    await truth.past(network, 10 * MINUTE)
    expect(await told(network)).toEqual([`NO_EXIT ${superseded.address}`, `NO_EXIT ${unremoved.address}`])
    for (const { text } of await list(network)) {
      expect(text).toContain("its holder's Release with confirmed removal ends it, or an operator's Reap")
    }
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await judge()
    for (const { address } of [superseded, unremoved, active]) {
      expect(await truth.state(network, address)).toBe('FREE')
    }
    expect(await truth.state(network, held.address)).toBe('ACTIVE')
    expect(await told(network)).toEqual([])
  })

  test('ends nothing that was reserved after the head that was named (6.3)', async () => {
    const network = await truth.network()
    // By which each lease that nobody lists is judged, and not only those of the boot.
    await truth.source(network, 'silent')
    const seen = await truth.lease(network, workload('seen'), { placement: on('n1', 'b1') })
    const later = await truth.lease(network, workload('later'), { placement: on('n1', 'b1') })
    await truth.past(network, 10 * MINUTE)
    await truth.ledger.accept(fenceNode('n1', 'b1', { network, head: seen.fencingToken }))
    await judge()
    expect(await truth.state(network, seen.address)).toBe('FREE')
    expect(await truth.state(network, later.address)).toBe('ACTIVE')
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await judge()
    expect(await truth.state(network, later.address)).toBe('FREE')
  })
})

describe('leases that no source will ever speak of', () => {
  test('infrastructure that was superseded, or whose removal is not confirmed', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { ownerKinds: ['pod', 'infrastructure'] })
    const router = workload('r', { kind: 'infrastructure' })
    const superseded = await truth.lease(network, router)
    await truth.lease(network, { ...router, incarnation: 'life-2' })
    const unremoved = await truth.lease(network, workload('u', { kind: 'infrastructure' }))
    await truth.ledger.accept(release(unremoved.fencingToken, { network, removalConfirmed: false }))
    await days(network, 'agent', 5)
    expect(await told(network)).toEqual([`NO_EXIT ${superseded.address}`, `NO_EXIT ${unremoved.address}`])
    expect((await list(network))[0]!.text).toContain('Release with confirmed removal')
  })

  test('that somebody without a name was seen at, by a source that lists no stopped ones', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { seesStopped: false })
    const active = await truth.lease(network, workload('a'))
    const own = listedAs(active.address, workload('a'))
    await truth.past(network, 10 * MINUTE)
    const nameless = [{ address: '10.0.0.9' }, { address: active.address }]
    await truth.watch(network, 'agent', [...times(3, [own]), [own, ...nameless], [own]], { endedAgo: 0 })
    await truth.watch(network, 'agent', [[own, { address: '10.0.0.9' }]], { endedAgo: 0 })
    await truth.run(createProcessSnapshots())
    expect(await truth.state(network, '10.0.0.9')).toBe('FOREIGN')
    await days(network, 'agent', 6)
    expect(await truth.state(network, active.address)).toBe('ACTIVE')
    expect(await told(network)).toEqual([`NO_EXIT agent ${active.address}`, 'NO_EXIT agent 10.0.0.9'])
    expect((await list(network))[0]!.text).toMatch(/nobody can be asked after: look there, then Release/)
  })
})

describe('sources that report and never prove anything', () => {
  test('one that begins anew with each report', async () => {
    const network = await truth.network()
    await truth.source(network, 'web')
    const lease = await truth.lease(network, workload(1))
    await truth.past(network, HOUR)
    const reports = async (from: number, count: number) => {
      for (let n = from; n < from + count; n += 1) {
        await truth.past(network, INTERVAL)
        await truth.watch(network, 'web', [[]], { epoch: `e${n}`, endedAgo: 0 })
      }
    }
    // Registered long ago, and here just now.
    await reports(0, 3)
    expect(await told(network)).not.toContain('SOURCE_COLD web')
    await reports(3, 3)
    const [cold] = (await list(network)).filter(({ code }) => code === 'SOURCE_COLD')
    expect(cold).toMatchObject({ source: 'web', text: expect.stringContaining('epoch') })
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    // It stays in one, and warms up.
    await truth.watch(network, 'web', times(4, []), { epoch: 'e9', endedAgo: 0 })
    expect(await told(network)).not.toContain('SOURCE_COLD web')
    // Once warm, one restart after a long silence is no news.
    await truth.past(network, HOUR)
    await reports(20, 2)
    expect(await told(network)).not.toContain('SOURCE_COLD web')
  })

  test('one that reports so seldom that no two reports count', async () => {
    const network = await truth.network()
    await truth.source(network, 'slow')
    const lease = await truth.lease(network, workload(1))
    await truth.past(network, HOUR)
    const own = [listedAs(lease.address, workload(1))]
    await truth.watch(network, 'slow', times(3, own), { endedAgo: 0 })
    const reports = async (apart: number, count: number) => {
      for (let n = 0; n < count; n += 1) {
        await truth.past(network, apart)
        const { asks } = await truth.watch(network, 'slow', [[]], { endedAgo: 0 })
        await truth.answer(network, 'slow', asks, GONE)
        await judge()
      }
    }
    // Away once.
    await reports(3 * INTERVAL + 2_000, 1)
    expect(await told(network)).toEqual([])
    await reports(3 * INTERVAL + 2_000, 4)
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    expect(await told(network)).toEqual(['SOURCE_SELDOM slow', `PROOF_BLOCKED slow ${lease.address}`])
    await reports(INTERVAL, 4)
    expect(await told(network)).toEqual([])
    expect(await truth.state(network, lease.address)).toBe('FREE')
  })
})

test('a rebuild that broke off', async () => {
  const network = await truth.network()
  const says = (state: string, since: string) =>
    withClient(database.adminUrl, (admin) =>
      admin.query(
        `update ipledger.network set state = $2, rebuilding_since = ${since} where network_id = $1`,
        [network, state],
      ),
    )
  await truth.past(network, HOUR)
  await says('REBUILDING', 'clock_timestamp()')
  expect(await told(network)).toEqual([])
  await truth.past(network, 2 * MINUTE)
  const [stuck, ...more] = await list(network)
  expect(more).toEqual([])
  expect(stuck).toMatchObject({
    code: 'NETWORK_REBUILDING',
    text: expect.stringContaining('ipledger rebuild'),
  })
  await says('READY', 'rebuilding_since')
  expect(await told(network)).toEqual([])
})
