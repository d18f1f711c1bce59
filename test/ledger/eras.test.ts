/**
 * A database that is older than itself, or not the one that wrote the log, hands out nothing before it has said so: a new era
 * begins, and the network is RECOVERING until its sources have told what runs. Failovers are in `chaos/failover.test.ts`.
 */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { firstSeqOfEra, LAST_ERA } from '../../src/core/policy.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import { rebuildNetwork } from '../../src/ledger/rebuild.ts'
import { command, enable, lists, register, release, reserve, type Scene, SECOND } from '../core/given.ts'
import { TestClock } from '../support/clock.ts'
import { copyOf, type TestDatabase, useOwnDatabase, withClient } from '../support/database.ts'
import { waitFor } from '../support/wait-for.ts'
import { expectInOrder, freshNetwork, linesOf, type TestLedger, useLedger } from './opened.ts'

const ERA = 2 ** 40

/** A network with leases of `one` at 10.0.0.1 and `two` at 10.0.0.2; nobody is connected. */
async function withPast(options: Partial<PoolInput> = {}, more: readonly (() => Command)[] = []) {
  const database = await useOwnDatabase()
  const ledger = await useLedger(database.serviceUrl)
  const { network, of } = await freshNetwork(ledger, options)
  await ledger.take(of(reserve('one')))
  await ledger.take(of(reserve('two')))
  for (const step of more) await ledger.accept(of(step))
  await ledger.close()
  return { database, network, of }
}

async function erasOf(ledger: TestLedger, network: string) {
  const image = (await ledger.image(network))!
  const lines = await linesOf(ledger, network)
  const { era, recovering, holds } = image.network!
  return {
    era,
    begun: lines.filter((line) => line === 'era.begun').length,
    isRecovering: recovering !== null,
    holds: Object.keys(holds),
  }
}

describe('a dump restored beside the original', () => {
  test('begins an era before anybody is answered: nothing is handed out, what is held is held', async () => {
    const { database, network, of } = await withPast()
    const copy = await copyOf(database)
    const ledger = await useLedger(copy.serviceUrl)
    const refused = await ledger.refuse(of(reserve('late')), 'NETWORK_RECOVERING')
    expect(refused.metadata).toMatchObject({ state: 'RECOVERING', era: '1' })
    expect(ledger.eras).toEqual([expect.stringMatching(/^1: .*a restored copy$/)])
    // A holder's own word is taken, with a number above all that were known or lost.
    const released = await ledger.take(of(release(4)))
    expect(released).toMatchObject({ address: '10.0.0.2', state: 'RELEASED', version: ERA + 1 })
    const { records, head } = await expectInOrder(copy.serviceUrl, network, ledger)
    assert.deepEqual([records.size, head], [2, ERA + 1])
    const secrets = [database, copy].map(({ adminUrl }) =>
      withClient(
        adminUrl,
        async (admin) => (await admin.query('select secret from ipledger.network_lock')).rows,
      ),
    )
    const [ours, theirs] = await Promise.all(secrets)
    expect(ours, 'a dump has the secret of proofs').toEqual(theirs)
    // The original is the original.
    const original = await useLedger(database.serviceUrl)
    expect(await original.take(of(reserve('late')))).toMatchObject({ address: '10.0.0.3', fencingToken: 5 })
    expect(await erasOf(original, network)).toMatchObject({ era: 0, begun: 0, isRecovering: false })
  })

  test('one era, however many processes and calls find out at once; a copy of the copy is another', async () => {
    const { database, network, of } = await withPast()
    const copy = await copyOf(database)
    const processes = await Promise.all([1, 2, 3].map(() => useLedger(copy.serviceUrl)))
    await Promise.all(
      Array.from({ length: 30 }, (_, i) =>
        processes[i % 3]!.refuse(of(reserve(`x${i}`)), 'NETWORK_RECOVERING'),
      ),
    )
    expect(await erasOf(processes[0]!, network)).toMatchObject({ era: 1, begun: 1, isRecovering: true })
    await Promise.all(processes.map((one) => one.close()))
    const second = await useLedger((await copyOf(copy)).serviceUrl)
    await second.refuse(of(reserve('x')), 'NETWORK_RECOVERING')
    expect(await erasOf(second, network)).toMatchObject({ era: 2, begun: 2 })
    assert.equal((await second.image(network))!.head, 2 * ERA)
  })

  test('recovers though the deployment loses nothing in a failover: it is none', async () => {
    const { database, of } = await withPast()
    const ledger = await useLedger((await copyOf(database)).serviceUrl, { losesNothing: true })
    await ledger.refuse(of(reserve('x')), 'NETWORK_RECOVERING')
  })
})

describe('a log that lost its end', () => {
  /** As if the last commit had never been. */
  const loseLast = (database: TestDatabase, network: string) =>
    withClient(database.adminUrl, async (admin) => {
      await admin.query(
        `delete from ipledger.lease where (network_id, seq) in (select network_id, max(seq) from ipledger.event where network_id = $1 group by 1)`,
        [network],
      )
      await admin.query(
        `delete from ipledger.event where (network_id, seq) in (select network_id, max(seq) from ipledger.event where network_id = $1 group by 1)`,
        [network],
      )
    })

  test('is found out by the process that wrote it; the lost address is not handed out again', async () => {
    const { database, network, of } = await withPast()
    const [seer, other] = [await useLedger(database.serviceUrl), await useLedger(database.serviceUrl)]
    const lost = await seer.take(of(reserve('lost')))
    expect(lost).toMatchObject({ address: '10.0.0.3', fencingToken: 5 })
    await loseLast(database, network)
    await seer.refuse(of(reserve('next')), 'NETWORK_RECOVERING')
    assert.deepEqual(seer.eras, ['1: number 5 is not in the log as this process knows it'])
    await other.refuse(of(reserve('next')), 'NETWORK_RECOVERING')
    // Who quotes the lost lease is told that it is known to nobody, and it is not confused with another.
    await other.refuse(of(release(lost.fencingToken)), 'LEASE_NOT_FOUND')
    await other.accept(of(command({ type: 'endRecovery', why: 'nothing runs there' })))
    expect((await seer.take(of(reserve('next')))).fencingToken).toBe(ERA + 2)
    await expectInOrder(database.serviceUrl, network, seer, other)
  })
})

describe('while a network recovers', () => {
  const open = (database: TestDatabase) => useLedger(database.serviceUrl)

  /** A complete list of an agent, begun half a minute after the last. */
  function agent(
    ledger: TestLedger,
    of: (step: () => Command) => Command,
    id: string,
    epoch: string,
    first = 0,
  ) {
    let sequence = first
    return async (...entries: readonly string[]) => {
      const image = (await ledger.image(of(reserve('x')).network))!
      const freshness = new Map([[id, { sequence }]])
      const scene = { image, now: ledger.now() - 30 * SECOND, freshness, begunAt: null } as unknown as Scene
      sequence += 1
      const listed = lists(id, entries, { epoch })(scene)
      return (await ledger.accept(of(() => listed))).report!
    }
  }

  test('a step of the clock does not end it: the true time has to pass', async () => {
    const { database, network, of } = await withPast({}, [register('n1'), enable('n1')])
    let [passed, stepped] = [0, 0]
    const ledger = await useLedger((await copyOf(database)).serviceUrl, {
      clock: new TestClock({ database: () => Date.now() + stepped, movedBy: () => passed }),
    })
    await ledger.refuse(of(reserve('next')), 'NETWORK_RECOVERING')
    const list = agent(ledger, of, 'n1', 'after')
    const look = async (afterMs: number) => {
      passed += afterMs
      await list()
      return erasOf(ledger, network)
    }
    for (let looks = 0; looks < 3; looks += 1)
      expect(await look(20 * SECOND)).toMatchObject({ isRecovering: true, holds: [] })
    // At 60 s of 120 the clock is set forward by 100 s.
    stepped = 100 * SECOND
    await waitFor(async () => (await erasOf(ledger, network)).holds.includes('CLOCK'))
    expect(await look(20 * SECOND)).toMatchObject({ isRecovering: true, holds: ['CLOCK'] })
    expect(await look(20 * SECOND)).toMatchObject({ isRecovering: true, holds: ['CLOCK'] })
    await ledger.refuse(of(reserve('next')), 'NETWORK_RECOVERING')
    expect(await look(100 * SECOND)).toMatchObject({ isRecovering: false, holds: [] })
    expect((await ledger.take(of(reserve('next')))).address).toBe('10.0.0.3')
  })

  test('a small step just after its begin does not shorten it', async () => {
    const { database, network, of } = await withPast({}, [register('n1'), enable('n1')])
    let [passed, stepped] = [0, 0]
    const ledger = await useLedger((await copyOf(database)).serviceUrl, {
      clock: new TestClock({ database: () => Date.now() + stepped, movedBy: () => passed }),
    })
    await ledger.refuse(of(reserve('next')), 'NETWORK_RECOVERING')
    stepped = 60 * SECOND
    await waitFor(async () => (await erasOf(ledger, network)).holds.includes('CLOCK'))
    const list = agent(ledger, of, 'n1', 'after')
    for (const afterMs of [20, 20, 20, 20, 20].map((seconds) => seconds * SECOND)) {
      passed += afterMs
      await list()
    }
    // After 100 s of 120, which are 160 by the clock.
    expect(await erasOf(ledger, network)).toMatchObject({ isRecovering: true })
    passed += 30 * SECOND
    await list()
    expect(await erasOf(ledger, network)).toMatchObject({ isRecovering: false })
  })

  test('a source that calls in vain is kept by every process and in the tables, with what the log says', async () => {
    const { database, network, of } = await withPast({}, [register('n1'), enable('n1')])
    const copy = await copyOf(database)
    const ledger = await useLedger(copy.serviceUrl)
    const calls = (source: string, node: string) =>
      of(command({ type: 'unknownSource', source, actor: { name: `agent-${node}`, node } }))
    // The first call of all: before it nobody has noticed that the log is another's.
    await ledger.accept(calls('n2', 'n2'))
    await ledger.accept(calls('n2', 'n2'))
    await ledger.accept(calls('n1', 'n1'))
    await ledger.accept(calls('n3', 'n3'))
    expect((await linesOf(ledger, network)).slice(-3)).toEqual([
      'era.begun',
      'recovery.extended n2',
      'recovery.extended n3',
    ])
    const other = await useLedger(copy.serviceUrl)
    const { unknownSources } = (await other.image(network))!.network!
    expect(unknownSources.map(({ source, node }) => [source, node])).toEqual([
      ['n2', 'n2'],
      ['n3', 'n3'],
    ])
    await expectInOrder(copy.serviceUrl, network, ledger, other)
    await withClient(copy.adminUrl, (admin) => rebuildNetwork(admin, network))
    await expectInOrder(copy.serviceUrl, network, ledger, other)
    await ledger.accept(of(command({ type: 'endRecovery', why: 'they are none of ours' })))
    expect((await ledger.image(network))!.network!.unknownSources).toEqual([])
    await ledger.accept(calls('n4', 'n4'))
    expect((await linesOf(ledger, network)).at(-1)).toBe('recovery.ended')
    await expectInOrder(copy.serviceUrl, network, ledger, other)
  })

  test('one that is registered then, and left in dry run, is waited for until it has listed what it sees', async () => {
    const { database, network, of } = await withPast({}, [register('n1'), enable('n1')])
    let passed = 0
    const ledger = await useLedger((await copyOf(database)).serviceUrl, {
      clock: new TestClock({ movedBy: () => passed }),
    })
    await ledger.accept(of(command({ type: 'unknownSource', source: 'n2' })))
    const [counts, sees] = [agent(ledger, of, 'n1', 'after'), agent(ledger, of, 'n2', 'first')]
    const look = async (list: typeof counts) => {
      passed += 40 * SECOND
      await list()
      return (await erasOf(ledger, network)).isRecovering
    }
    for (let looks = 0; looks < 5; looks += 1) expect(await look(counts)).toBe(true)
    await ledger.accept(of(register('n2')))
    expect([await look(counts), await look(sees), await look(counts)]).toEqual([true, true, false])
  })

  test('what was listed before the restore protects from the first moment, and after it until it is listed no more', async () => {
    const { database, network, of } = await withPast({}, [register('n1'), enable('n1')])
    const before = await open(database)
    const list = agent(before, of, 'n1', 'before')
    await list('seen@10.0.0.3', '?@10.0.0.4')
    await before.close()
    const ledger = await open(await copyOf(database))
    await ledger.accept(of(command({ type: 'endRecovery', why: 'the operator is in a hurry' })))
    expect((await ledger.take(of(reserve('next')))).address).toBe('10.0.0.5')
    expect(await erasOf(ledger, network)).toMatchObject({ era: 1, isRecovering: false })
  })
})

test(`era ${LAST_ERA} is the last: its numbers can be read back, and a log that would need another writes nothing`, async () => {
  const { database, network, of } = await withPast()
  const begin = (above: number) => of(command({ type: 'beginEra', above, recovering: false, why: 'test' }))
  const ledger = await useLedger(database.serviceUrl)
  await ledger.accept(begin(firstSeqOfEra(LAST_ERA - 1)))
  const lease = await ledger.take(of(reserve('last')))
  assert.equal(lease.fencingToken, LAST_ERA * ERA + 1)
  assert.ok(Number.isSafeInteger(lease.fencingToken))
  await ledger.refuse(begin(0), 'ILLEGAL_STATE')
  await ledger.refuse(begin(Number.MAX_SAFE_INTEGER), 'ILLEGAL_STATE')
  assert.equal((await ledger.take(of(reserve('more')))).address, '10.0.0.4')
  await expectInOrder(database.serviceUrl, network, ledger)
  await ledger.close()
  const copy = await useLedger((await copyOf(database)).serviceUrl)
  for (const one of [reserve('x'), release(lease.fencingToken)]) {
    const { message } = await copy.refuse(of(one), 'ILLEGAL_STATE')
    assert.match(message, /beyond 8190, the last/)
  }
})
