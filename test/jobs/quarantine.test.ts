/** What is set aside, and each reason's way out (DESIGN §3). */
import { afterAll, describe, expect, test } from 'vitest'
import type { Owner } from '../../src/core/owner.ts'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { claim, quarantine, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, settled } from '../support/intake.ts'
import { GONE, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const clear = () => truth.run(createClearQuarantine())
const processSnapshots = () => truth.run(createProcessSnapshots())
const OLD = 10 * MINUTE

const A = workload('a')
const B = workload('b')

function times<T>(count: number, one: T): readonly T[] {
  return Array.from({ length: count }, () => one)
}

async function withAgent(): Promise<string> {
  const network = await truth.network()
  await truth.source(network, 'agent')
  return network
}

/** Looks of the agent after some time, the last of them now. */
async function later(network: string, lists: readonly (readonly GivenEntry[])[], ms = 0) {
  await truth.past(network, ms + lists.length * INTERVAL)
  return truth.watch(network, 'agent', lists, { endedAgo: 0 })
}

/** The agent is asked, and says that they are gone. */
async function saysGone(network: string, list: readonly GivenEntry[] = []): Promise<number> {
  const { asks } = await later(network, [list])
  await truth.answer(network, 'agent', asks, GONE)
  return asks.length
}

async function expectReaped(network: string, address: string, list: readonly GivenEntry[] = []) {
  await clear()
  expect(await truth.state(network, address)).not.toBe('FREE')
  expect(await saysGone(network, list)).toBeGreaterThanOrEqual(1)
  expect(await clear()).toMatchObject({ reaped: 1 })
  expect(await truth.state(network, address)).toBe('FREE')
  expect((await truth.events(network, 'lease.reaped')).at(-1)).toMatchObject({
    address,
    actor: 'job:clear-quarantine',
    cause: 'PROVEN_ABSENT',
  })
}

describe('SUPERSEDED and REMOVAL_UNCONFIRMED', () => {
  test('a superseded life is reaped when it is gone, and not while it is seen', async () => {
    const network = await withAgent()
    const old = await truth.lease(network, A)
    const entries = [listedAs(old.address, A)]
    await later(network, times(3, entries), OLD)
    const fresh = await truth.lease(network, workload('a', { incarnation: 'life-2' }))
    expect(fresh.address).not.toBe(old.address)
    expect(await truth.state(network, old.address)).toBe('SUPERSEDED')
    await later(network, times(4, entries), OLD)
    await clear()
    expect(await truth.state(network, old.address)).toBe('SUPERSEDED')
    await later(network, times(3, []), 0)
    await expectReaped(network, old.address)
    expect(await truth.state(network, fresh.address)).toBe('ACTIVE')
  })

  test('what was not removed for certain is reaped when it is gone', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await later(network, times(3, [listedAs(lease.address, A)]), OLD)
    await truth.ledger.accept(release(lease.fencingToken, { network, removalConfirmed: false }))
    expect(await truth.state(network, lease.address)).toBe('REMOVAL_UNCONFIRMED')
    await truth.past(network, OLD)
    await later(network, times(4, []))
    await expectReaped(network, lease.address)
  })
})

describe('CONFLICT', () => {
  async function conflict() {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const own = listedAs(lease.address, A)
    const other = listedAs(lease.address, B)
    await later(network, times(3, [own]), OLD)
    await later(network, times(1, [own, other]))
    expect(await processSnapshots()).toMatchObject({ conflict: 1 })
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
    return { network, lease, own, other }
  }

  test('is given back to its owner when nobody else has been seen for three snapshots', async () => {
    const { network, lease, own } = await conflict()
    await later(network, times(3, [own]))
    // Missed, and not asked after yet.
    expect(await clear()).toMatchObject({ restored: 0 })
    expect(await saysGone(network, [own])).toBe(1)
    expect(await clear()).toMatchObject({ restored: 1 })
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    const [event] = (await truth.events(network, 'lease.confirmed')).slice(-1)
    expect(event).toMatchObject({
      address: lease.address,
      actor: 'job:clear-quarantine',
      cause: 'SEEN_ALONE',
      evidence: { reason: 'SEEN_ALONE', sources: ['agent'] },
    })
  })

  test('stays while the other is found when he is asked after, whatever the lists leave out (M-02)', async () => {
    const { network, lease, own } = await conflict()
    await later(network, times(3, [own]))
    await clear()
    for (let look = 0; look < 4; look += 1) {
      const { asks } = await later(network, [[own]])
      await truth.answer(network, 'agent', asks, { answer: 'live', detail: 'running' })
      await clear()
    }
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
    // Its holder lets go: the address stays for the other.
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
  })

  test('stays when the source that saw the other was retired, and is told (16.8)', async () => {
    const network = await withAgent()
    await truth.source(network, 'second')
    const lease = await truth.lease(network, A)
    const own = listedAs(lease.address, A)
    await later(network, times(3, [own]), OLD)
    await truth.watch(network, 'second', times(3, [listedAs(lease.address, B)]), { endedAgo: 0 })
    expect(await processSnapshots()).toMatchObject({ conflict: 1 })
    settled(await retireSource(truth.intake.database, { network, id: 'second', by: 'test' }))
    await later(network, times(4, [own]))
    await clear()
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
    const { stuck } = settled(
      await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 }),
    )
    expect(stuck).toContainEqual(
      expect.objectContaining({
        code: 'NOBODY_CAN_TELL',
        source: 'second',
        lease: expect.objectContaining({ address: lease.address }),
      }),
    )
  })

  test('stays while both are seen', async () => {
    const { network, lease, own, other } = await conflict()
    await later(network, times(5, [own, other]), OLD)
    await clear()
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
  })

  test('is reaped when both are gone', async () => {
    const { network, lease } = await conflict()
    await truth.past(network, OLD)
    await later(network, times(4, []))
    await clear()
    expect(await saysGone(network)).toBe(2)
    expect(await clear()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, lease.address)).toBe('FREE')
  })

  test('stays when only the other one is left', async () => {
    const { network, lease, other } = await conflict()
    await truth.past(network, OLD)
    await later(network, times(5, [other]))
    await clear()
    await saysGone(network, [other])
    await clear()
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
  })
})

describe('found live', () => {
  async function found(address: string, of: Owner | null, expected: string) {
    const network = await withAgent()
    const entries = [listedAs(address, of)]
    await later(network, times(3, entries), OLD)
    await processSnapshots()
    expect(await truth.state(network, address)).toBe(expected)
    return { network, entries }
  }

  test('RELEASED_BUT_LIVE: reaped when it is gone', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const entries = [listedAs(lease.address, A)]
    await later(network, times(3, entries))
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.watch(network, 'agent', [entries], { endedAgo: 0 })
    await processSnapshots()
    expect(await truth.state(network, lease.address)).toBe('RELEASED_BUT_LIVE')
    await truth.past(network, OLD)
    await later(network, times(4, []))
    await expectReaped(network, lease.address)
  })

  test('RELEASED_BUT_LIVE: not given back while its attachment is closed', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const entries = [listedAs(lease.address, A)]
    await later(network, times(3, entries))
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.watch(network, 'agent', [entries], { endedAgo: 0 })
    await processSnapshots()
    await later(network, times(3, entries))
    await clear()
    expect(await truth.state(network, lease.address)).toBe('RELEASED_BUT_LIVE')
    // Late calls of it can't arrive any more: it is simply there.
    await later(network, times(3, entries), 2 * MINUTE)
    await clear()
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
  })

  test.each(['given back when nobody else is there', 'reaped when it is gone'])(
    'SECOND_ADDRESS: %s',
    async (what) => {
      const network = await withAgent()
      const lease = await truth.lease(network, A)
      const first = listedAs(lease.address, A, { interface: 'eth0' })
      const second = listedAs('10.0.0.78', A, { interface: 'eth0' })
      await later(network, times(3, [first, second]), OLD)
      expect(await processSnapshots()).toMatchObject({ second_address: 1 })
      expect(await truth.state(network, '10.0.0.78')).toBe('SECOND_ADDRESS')
      if (what.startsWith('reaped')) {
        await truth.past(network, OLD)
        await later(network, times(4, [first]))
        await expectReaped(network, '10.0.0.78', [first])
      } else {
        await later(network, times(3, [first, second]))
        expect(await clear()).toMatchObject({ restored: 1 })
        expect(await truth.state(network, '10.0.0.78')).toBe('ACTIVE')
      }
      expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    },
  )

  test('FOREIGN: after three clean snapshots of whoever saw it, without a question', async () => {
    const { network } = await found('10.0.0.90', null, 'FOREIGN')
    await truth.past(network, OLD)
    await later(network, times(2, []))
    expect(await clear()).toMatchObject({ reaped: 0 })
    await later(network, times(1, []))
    expect(await clear()).toMatchObject({ reaped: 1, asked: 0 })
    expect(await truth.state(network, '10.0.0.90')).toBe('FREE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test('FOREIGN: stays while it is seen, and while whoever saw it is silent', async () => {
    const { network, entries } = await found('10.0.0.91', null, 'FOREIGN')
    await later(network, times(4, entries), OLD)
    await clear()
    await truth.past(network, OLD)
    await clear()
    expect(await truth.state(network, '10.0.0.91')).toBe('FOREIGN')
  })
})

describe('SEEN_BY_CALLER', () => {
  async function seenByCaller(network: string): Promise<string> {
    const free = '10.0.0.1'
    await truth.ledger.accept(
      reserve({
        network,
        owner: A,
        claims: [claim({ pool: 'web' })],
        liveAddresses: [free],
        confirmed: true,
      }),
    )
    expect(await truth.state(network, free)).toBe('SEEN_BY_CALLER')
    return free
  }

  test('ends after three clean snapshots of the sources that cover the network', async () => {
    const network = await withAgent()
    const address = await seenByCaller(network)
    await truth.past(network, OLD)
    await later(network, times(5, []))
    expect(await clear()).toMatchObject({ reaped: 1, asked: 0 })
    expect(await truth.state(network, address)).toBe('FREE')
  })

  test('and of those that were enabled since, alone or beside others', async () => {
    const network = await truth.network()
    const address = await seenByCaller(network)
    await truth.source(network, 'agent')
    await truth.past(network, OLD)
    await later(network, times(5, []))
    await truth.source(network, 'later')
    expect(await clear()).toMatchObject({ reaped: 0 })
    await truth.past(network, 5 * INTERVAL)
    await truth.watch(network, 'later', times(5, []), { endedAgo: 0 })
    await truth.watch(network, 'agent', times(3, []), { endedAgo: 0 })
    expect(await clear()).toMatchObject({ reaped: 1, asked: 0 })
    expect(await truth.state(network, address)).toBe('FREE')
  })

  test('not of one that leaves out the stopped (M-19)', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { seesStopped: false })
    const address = await seenByCaller(network)
    await truth.past(network, OLD)
    await later(network, times(5, []))
    expect(await clear()).toMatchObject({ reaped: 0 })
    expect(await truth.state(network, address)).toBe('SEEN_BY_CALLER')
  })

  test('is an operator’s where there is no such source', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n1' })
    const address = await seenByCaller(network)
    await truth.past(network, OLD)
    await later(network, times(6, []))
    await clear()
    expect(await truth.state(network, address)).toBe('SEEN_BY_CALLER')
  })
})

test('OPERATOR ends by an operator only', async () => {
  const network = await withAgent()
  const lease = await truth.lease(network, A)
  await truth.ledger.accept(quarantine({ token: lease.fencingToken }, { network }))
  await truth.past(network, OLD)
  await later(network, times(6, []))
  await clear()
  await saysGone(network)
  await clear()
  expect(await truth.state(network, lease.address)).toBe('OPERATOR')
})

test('twice at once: everything is done once', async () => {
  const network = await withAgent()
  const leases = [await truth.lease(network, A), await truth.lease(network, B)]
  await later(
    network,
    times(
      3,
      leases.map(({ address }, n) => listedAs(address, [A, B][n]!)),
    ),
    OLD,
  )
  for (const { fencingToken } of leases) {
    await truth.ledger.accept(release(fencingToken, { network, removalConfirmed: false }))
  }
  await truth.past(network, OLD)
  await later(network, times(4, []))
  await Promise.all([clear(), clear()])
  expect(await saysGone(network)).toBe(2)
  const done = await Promise.all([clear(), clear()])
  expect(done[0].reaped! + done[1].reaped!).toBe(2)
  expect(await truth.events(network, 'lease.reaped')).toHaveLength(2)
})
