/**
 * Several processes on one network (metallb#725: two active writers, each with its own memory): whatever each of them
 * remembers, the ledger is one. Each has its own connections, hints and addresses set aside.
 */
import { afterAll, expect, test } from 'vitest'
import type { LeaseView, Reserve } from '../../src/core/command.ts'
import { connect } from '../../src/postgres/connect.ts'
import {
  claim,
  createPool,
  deletePool,
  owner,
  quarantine,
  release,
  reserve,
  updatePool,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger, type TestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { seededRandom } from '../support/random.ts'
import { makeTraffic } from '../support/traffic.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const processes = [1, 2, 3].map(() => useLedger({ url: database.serviceUrl, connections: 2 }))
const [one, two] = processes as [TestLedger, TestLedger]
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

function any(network: string, name: string, fields: Partial<Reserve> = {}): Reserve {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })], ...fields })
}

test.each([2, 3])('%i processes under every kind of traffic: one ledger', async (count) => {
  const network = await freshNetwork(one)
  const random = seededRandom()
  try {
    let turn = 0
    const spread: TestLedger = {
      ...one,
      submit: (command, options) => {
        turn += 1
        return processes[turn % count]!.submit(command, options)
      },
    }
    const traffic = await makeTraffic(spread, network, random)
    const from = processes.map(({ logged }) => logged.length)
    await traffic.run(3_000, 60)
    await expectPartition(admin, network)
    await expectVerified(database, { network })
    expect(processes.map(({ logged }, i) => logged.slice(from[i]))).toEqual(processes.map(() => []))
  } catch (error) {
    throw new Error(`IPLEDGER_TEST_SEED=${random.seed}`, { cause: error })
  }
})

test('three processes fill a pool exactly, and recycle it without ever giving an address twice', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/23', cooldownMs: 0 }, { network }))
  const outcomes = await Promise.all(
    Array.from({ length: 600 }, (_, i) => processes[i % 3]!.submit(any(network, `x${i}`))),
  )
  const leases = outcomes.flatMap((outcome) => (outcome.ok ? outcome.answer.leases : []))
  expect(new Set(leases.map((lease) => lease.address)).size).toBe(510)
  expect(leases).toHaveLength(510)
  for (const outcome of outcomes) if (!outcome.ok) expect(outcome.refusal.reason).toBe('POOL_EXHAUSTED')
  const holders = new Map(leases.map((lease) => [lease.address, lease.fencingToken]))
  await Promise.all(
    leases.slice(0, 90).map(async (lease, caller) => {
      let own: LeaseView = lease
      for (let life = 0; life < 10; life += 1) {
        expect(holders.get(own.address)).toBe(own.fencingToken)
        holders.delete(own.address)
        await processes[(caller + life) % 3]!.take(release(own.fencingToken, { network }))
        own = await processes[(caller + life + 1) % 3]!.take(any(network, `c${caller}-${life}`))
        expect(holders.has(own.address)).toBe(false)
        holders.set(own.address, own.fencingToken)
      }
    }),
  )
  await expectPartition(admin, network)
  await expectVerified(database, { network })
})

test('what one process remembers of default pools is no more than a guess', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', isDefault: true }, { network }))
  const claimless = (name: string) => any(network, name, { claims: [] })
  for (const ledger of processes) await ledger.take(claimless(`x${processes.indexOf(ledger)}`))
  await two.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network }))
  await two.accept(updatePool('a', { isDefault: false, name: 'old' }, { network }))
  await two.accept(updatePool('b', { isDefault: true, name: 'a' }, { network }))
  expect((await one.take(claimless('y'))).address).toBe('10.1.0.1')
  await two.accept(createPool({ name: 'c', cidr: '10.2.0.0/24', isDefault: true }, { network }))
  await one.refuse(claimless('z'), 'INVALID_FIELD')
  await expectPartition(admin, network)
})

test('a process that saw much free space does not miss that another used it up', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/19', cooldownMs: 0 }, { network }))
  const first = await one.take(any(network, 'first'))
  await one.take(release(first.fencingToken, { network }))
  const second = await one.take(any(network, 'second'))
  // Untouched space is gone at once; what was released is what is left.
  await two.accept(updatePool('a', { cidr: '10.0.0.0/29' }, { network }))
  const rest = await Promise.all(Array.from({ length: 4 }, (_, i) => two.take(any(network, `rest${i}`))))
  expect([second, ...rest].map((lease) => lease.address)).not.toContain(first.address)
  expect((await one.take(any(network, 'last'))).address).toBe(first.address)
  await one.refuse(any(network, 'none'), 'POOL_EXHAUSTED')
  await expectPartition(admin, network)
})

test('a pool deleted and made anew by another process is another pool', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const lease = await one.take(any(network, 'x'))
  await one.take(release(lease.fencingToken, { network }))
  await two.accept(deletePool('a', { network }))
  await one.refuse(any(network, 'y'), 'POOL_NOT_FOUND')
  await two.accept(createPool({ name: 'a', cidr: '10.5.0.0/24' }, { network }))
  expect((await one.take(any(network, 'y'))).address).toBe('10.5.0.1')
  // The old lease is known as what it was.
  expect(await one.take(release(lease.fencingToken, { network }))).toMatchObject({
    address: lease.address,
    state: 'RELEASED',
    pool: '',
  })
  await expectPartition(admin, network)
})

test('an incarnation is superseded in every pool, also where the newcomer asks for nothing', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  await one.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network }))
  const life = (incarnation: string) => owner({ name: 'web', uid: 'u', incarnation })
  await one.leases(
    any(network, 'web', { owner: life('1'), claims: [claim({ pool: 'a' }), claim({ pool: 'b' })] }),
  )
  expect((await two.take(any(network, 'web', { owner: life('2') }))).address).toBe('10.0.0.2')
  const pools = await expectPartition(admin, network)
  expect(pools.get('b')!.leases).toEqual([{ address: '10.1.0.1', state: 'QUARANTINED' }])
  expect(pools.get('a')!.leases).toEqual([
    { address: '10.0.0.1', state: 'QUARANTINED' },
    { address: '10.0.0.2', state: 'RESERVED' },
  ])
})

test('processes that come and go between any two calls leave one ledger', async () => {
  const network = await freshNetwork(one)
  await one.accept(createPool({ name: 'a', cidr: '10.0.0.0/28', cooldownMs: 0 }, { network }))
  const held: LeaseView[] = []
  for (let turn = 0; turn < 40; turn += 1) {
    const ledger = openTestLedger({ url: database.serviceUrl, connections: 1 })
    if (turn % 4 === 3) {
      const lease = held.shift()!
      await ledger.take(release(lease.fencingToken, { network }))
    } else if (turn === 10) {
      await ledger.accept(quarantine({ address: '10.0.0.14' }, { network }))
    } else if (held.length < 12) {
      held.push(await ledger.take(any(network, `t${turn}`)))
    }
    await ledger.close()
    expect(new Set(held.map((lease) => lease.address)).size).toBe(held.length)
  }
  await expectPartition(admin, network)
  await expectVerified(database)
})
