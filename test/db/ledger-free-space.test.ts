/**
 * Free space as it is stored: untouched ranges, one cursor, released addresses in order of reuse. After any history
 * they and the leases divide each pool exactly, whoever wrote and however often the process was started anew.
 */
import { afterAll, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { decide } from '../../src/core/decide.ts'
import { evolve } from '../../src/core/evolve.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import { size as rangeSize } from '../../src/core/ranges.ts'
import { writeBatch } from '../../src/ledger/append.ts'
import { ask, askFor, askHead } from '../../src/ledger/load.ts'
import { emptySlice } from '../../src/ledger/slice.ts'
import { connect } from '../../src/postgres/connect.ts'
import {
  claim,
  createNetwork,
  createPool,
  deletePool,
  owner,
  quarantine,
  reap,
  release,
  reserve,
  updatePool,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { type Random, seededRandom } from '../support/random.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => reader.end())

const DAYS = 30 * 24 * 3_600_000

function any(network: string, name: string, pool = 'a') {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool })] })
}

function named(network: string, name: string, address: string, pool = 'a') {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool, address })] })
}

/** A pool in which every second address is held, so that each free piece is one address long. */
async function combed(network: string, most: number): Promise<void> {
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  for (let last = 2; last <= most; last += 2)
    await ledger.take(named(network, `tooth${last}`, `10.0.0.${last}`))
}

test('a range beyond the window that was read does not hide those between', async () => {
  const network = await freshNetwork(ledger)
  await combed(network, 12)
  const [first, far] = await Promise.all([
    ledger.take(any(network, 'x')),
    ledger.take(named(network, 'y', '10.0.0.100')),
  ])
  expect([first.address, far.address]).toEqual(['10.0.0.1', '10.0.0.100'])
  await expectPartition(reader, network)
  expect((await ledger.take(any(network, 'z'))).address).toBe('10.0.0.3')
})

test('an address is found in untouched space also when its pool was not named', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  const lease = await ledger.take(
    reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ address: '10.0.0.9' })] }),
  )
  expect(lease.address).toBe('10.0.0.9')
  await expectPartition(reader, network)
})

test('ranges that were read before their pool are filed as soon as it is', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  await ledger.take(any(network, 'x'))
  const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
  const slice = emptySlice(network, new Set())
  await client.query('begin')
  await ask(client, askHead(slice))
  await ask(client, askFor(slice, [{ what: 'address', address: '10.0.0.9' }]))
  expect(slice.books.pools.size).toBe(0)
  await ask(client, askFor(slice, [{ what: 'pool', name: 'a' }]))
  await client.query('rollback')
  await client.end()
  const [book] = slice.books.pools.values()
  // From the cursor on.
  expect(book!.untouched).toEqual([{ first: 0x0a000002n, last: 0x0a0000fen }])
})

test('pieces of one address are used up one by one, and the low end moves along', async () => {
  const network = await freshNetwork(ledger)
  await combed(network, 40)
  for (let last = 1; last <= 39; last += 2) {
    expect((await ledger.take(any(network, `x${last}`))).address).toBe(`10.0.0.${last}`)
  }
  const { position } = (await expectPartition(reader, network)).get('a')!
  expect(position.low_first).toBe('10.0.0.39')
  expect((await ledger.take(any(network, 'end'))).address).toBe('10.0.0.41')
})

test.each(['one process', 'a new process for every call'])(
  'many lives leave a small pool as it was, whoever served them: %s',
  async (processes) => {
    const network = await freshNetwork(ledger)
    const [cidr, size] = processes === 'one process' ? ['10.0.0.0/24', 254] : ['10.0.0.0/28', 14]
    await ledger.accept(createPool({ name: 'a', cidr: cidr!, cooldownMs: 0 }, { network }))
    if (processes === 'one process') {
      const seen = new Set<string>()
      await Promise.all(
        Array.from({ length: 200 }, async (_, caller) => {
          for (let life = 0; life < 50; life += 1) {
            const lease = await ledger.take(any(network, `c${caller}-${life}`))
            expect(seen.has(lease.address)).toBe(false)
            seen.add(lease.address)
            seen.delete(lease.address)
            await ledger.take(release(lease.fencingToken, { network }))
          }
        }),
      )
    } else {
      for (let life = 0; life < 30; life += 1) {
        const one = openTestLedger({ url: database.serviceUrl, connections: 1 })
        const lease = await one.take(any(network, `x${life}`))
        await one.close()
        const other = openTestLedger({ url: database.serviceUrl, connections: 1 })
        await other.take(release(lease.fencingToken, { network }))
        await other.close()
        // Untouched space first, then longest free first.
        expect(lease.address).toBe(`10.0.0.${1 + (life % Number(size))}`)
      }
    }
    const { leases, released, untouched } = (await expectPartition(reader, network)).get('a')!
    expect(leases).toEqual([])
    expect(released.length + Number(rangeSize(untouched))).toBe(size)
  },
)

test('what cools while a batch reads does not hide what the batch itself gives back', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/30', cooldownMs: 500 }, { network }))
  const x = await ledger.take(any(network, 'x'))
  const y = await ledger.take(any(network, 'y'))
  await ledger.take(release(y.fencingToken, { network }))
  await ledger.accept(updatePool('a', { cooldownMs: 0 }, { network }))
  const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
  const slice = emptySlice(network, new Set())
  const { books } = slice
  await client.query('begin')
  await ask(client, askHead(slice))
  const { rows } = await reader.query<{ at: number }>(
    `select available_at as at from ipledger.released_address where network_id = $1`,
    [network],
  )
  expect(books.now, 'read before it has cooled').toBeLessThan(rows[0]!.at)
  await waitFor(async () => {
    const { rows: clock } = await reader.query<{ now: number }>('select clock_timestamp() as now')
    return clock[0]!.now > rows[0]!.at
  })
  await ask(
    client,
    askFor(slice, [
      { what: 'token', token: x.fencingToken },
      { what: 'candidates', pool: 'a', ranges: 8, released: 8 },
    ]),
  )
  const decision = decide(books, release(x.fencingToken, { network }))
  if (decision.kind !== 'accepted') throw new Error(`the release was ${decision.kind}`)
  for (const event of decision.events) evolve(books, event)
  for (const { text, values } of writeBatch(slice, decision.events, [])) await client.query(text, [...values])
  await client.query('commit')
  await client.end()
  const again = await Promise.all([ledger.take(any(network, 'v')), ledger.take(any(network, 'w'))])
  expect(again.map(({ address }) => address).sort()).toEqual([x.address, y.address])
  await expectPartition(reader, network)
})

// Random histories.

const SHAPES: readonly PoolInput[] = [
  { name: 'a', cidr: '10.0.0.0/26', cooldownMs: 0 },
  { name: 'b', cidr: '10.0.1.0/28', cooldownMs: DAYS },
  { name: 'c', cidr: '10.0.2.0/24', prefixLength: 28, cooldownMs: 0 },
  { name: 'd', cidr: 'fd00::/123', cooldownMs: 0 },
  { name: 'e', cidr: '::1:0/122', cooldownMs: 0 },
]

type World = { readonly network: string; readonly held: Map<string, { token: number; version: number }> }

function randomAddress(random: Random, pool: string): string {
  switch (pool) {
    case 'a':
      return `10.0.0.${random.below(64)}`
    case 'b':
      return `10.0.1.${random.below(16)}`
    case 'c':
      return `10.0.2.${random.below(16) * 16}`
    case 'd':
      return `fd00::${random.below(32).toString(16)}`
    default:
      return `::1:${random.below(64).toString(16)}`
  }
}

function randomCommand(random: Random, world: World, step: number): Command {
  const { network, held } = world
  const pool = random.pick(SHAPES).name
  const someone = owner({ name: `w${step}-${random.below(1_000)}` })
  const dice = random.below(100)
  if (dice < 35 || held.size === 0) return reserve({ network, owner: someone, claims: [claim({ pool })] })
  if (dice < 50) {
    const address = randomAddress(random, pool)
    return reserve({ network, owner: someone, claims: [claim({ pool, address })] })
  }
  if (dice < 58) {
    // Several of its candidates are seen live: quarantined, or beyond the caps skipped.
    const liveAddresses = [...new Set(Array.from({ length: 6 }, () => randomAddress(random, pool)))]
    return reserve({ network, owner: someone, claims: [claim({ pool })], liveAddresses })
  }
  const [, lease] = random.pick([...held])
  if (dice < 80) return release(lease.token, { network, removalConfirmed: random.chance(0.8) })
  if (dice < 88) return reap(lease.token, lease.version, { network })
  if (dice < 91) return quarantine({ address: randomAddress(random, pool) }, { network })
  return updatePool(pool, randomChange(random, pool), { network })
}

function randomChange(random: Random, pool: string) {
  if (random.chance(0.3)) return { cooldownMs: pool === 'b' ? DAYS : 0, draining: random.chance(0.1) }
  if (random.chance(0.3)) {
    const cidrs: Record<string, readonly string[]> = {
      a: ['10.0.0.0/26', '10.0.0.0/25', '10.0.0.0/27', '10.0.0.32/27'],
      b: ['10.0.1.0/28', '10.0.1.0/27', '10.0.1.8/29'],
      c: ['10.0.2.0/24', '10.0.2.0/25', '10.0.2.128/25', '10.0.2.0/23'],
      d: ['fd00::/123', 'fd00::/122', 'fd00::10/124'],
      e: ['::1:0/122', '::1:0/121', '::1:20/123'],
    }
    return { cidr: random.pick(cidrs[pool]!), exclude: [] }
  }
  const count = random.below(3)
  const gateway = random.chance(0.2) ? randomAddress(random, pool) : null
  return { exclude: Array.from({ length: count }, () => randomAddress(random, pool)), gateway }
}

async function begin(network: string): Promise<World> {
  await ledger.accept(createNetwork(network))
  for (const pool of SHAPES) await ledger.accept(createPool(pool, { network }))
  return { network, held: new Map() }
}

/** What an answer says about who holds what; a second holder of a held address fails the test. */
function follow(world: World, command: Command, outcome: Awaited<ReturnType<typeof ledger.submit>>): void {
  if (!outcome.ok) return
  for (const lease of outcome.answer.leases) {
    if (command.type === 'reserve') {
      expect(world.held.has(lease.address), `${lease.address} has one holder`).toBe(false)
    }
    if (lease.state === 'RELEASED' || lease.state === 'REAPED') world.held.delete(lease.address)
    else world.held.set(lease.address, { token: lease.fencingToken, version: lease.version })
  }
}

test.each([1, 2])('random history %i: one after the other', async (run) => {
  const random = seededRandom()
  const world = await begin(`walk${run}`)
  try {
    for (let step = 0; step < 100; step += 1) {
      const command = randomCommand(random, world, step)
      const outcome = await ledger.submit(command)
      follow(world, command, outcome)
      if (outcome.ok && step % 3 !== 0) continue
      const pools = await expectPartition(reader, world.network)
      if (outcome.ok || command.type !== 'reserve') {
        if (!outcome.ok) expect(['NETWORK_RECOVERING']).not.toContain(outcome.refusal.reason)
        continue
      }
      expect(outcome.refusal.reason).not.toBe('NETWORK_RECOVERING')
      if (outcome.refusal.reason !== 'POOL_EXHAUSTED') continue
      // A short read is never exhaustion.
      const { untouched, released, pool } = pools.get(command.claims[0]!.pools[0]!)!
      const free = pool.cooldownMs === 0 ? released.length + untouched.length : untouched.length
      const skipped = command.liveAddresses.length
      expect(free, `${pool.name} has no free address`).toBeLessThanOrEqual(skipped)
    }
  } catch (error) {
    throw new Error(`IPLEDGER_TEST_SEED=${random.seed}`, { cause: error })
  }
})

test.each([1, 2, 3])('random history %i: many at once', async (run) => {
  const random = seededRandom()
  const world = await begin(`crowd${run}`)
  try {
    for (let step = 0; step < 40; step += 1) {
      const commands = Array.from({ length: 1 + random.below(20) }, () => randomCommand(random, world, step))
      const outcomes = await Promise.all(commands.map((command) => ledger.submit(command)))
      for (const [index, outcome] of outcomes.entries()) {
        if (!outcome.ok) expect(outcome.refusal.reason).not.toBe('NETWORK_RECOVERING')
        if (outcome.ok && commands[index]!.type === 'reserve') {
          for (const lease of outcome.answer.leases) expect(lease.state).toBe('RESERVED')
        }
      }
      const pools = await expectPartition(reader, world.network)
      const rows = await reader.query<{ address: string; fencing_token: number; version: number }>(
        'select host(address) as address, fencing_token, version from ipledger.lease where network_id = $1',
        [world.network],
      )
      world.held.clear()
      for (const row of rows.rows)
        world.held.set(row.address, { token: row.fencing_token, version: row.version })
      expect(pools.size).toBe(SHAPES.length)
    }
  } catch (error) {
    throw new Error(`IPLEDGER_TEST_SEED=${random.seed}`, { cause: error })
  }
})

test.each([1])('random history %i: the same with a restart between any two calls', async (run) => {
  const seed = seededRandom().seed
  const told: unknown[][] = []
  for (const restarts of [false, true]) {
    const random = seededRandom(seed)
    const world = await begin(`${restarts ? 'restarted' : 'running'}${run}`)
    const answers: unknown[] = []
    let current = openTestLedger({ url: database.serviceUrl, connections: 1 })
    for (let step = 0; step < 60; step += 1) {
      const command = randomCommand(random, world, step)
      const outcome = await current.submit(command)
      follow(world, command, outcome)
      answers.push(
        outcome.ok
          ? outcome.answer.leases.map((lease) => [
              lease.address,
              lease.fencingToken,
              lease.state,
              lease.version,
            ])
          : outcome.refusal.reason,
      )
      if (!restarts) continue
      await current.close()
      current = openTestLedger({ url: database.serviceUrl, connections: 1 })
    }
    await current.close()
    await expectPartition(reader, world.network)
    told.push(answers)
  }
  expect(told[1], `IPLEDGER_TEST_SEED=${seed}`).toEqual(told[0])
})

test('a deleted pool leaves nothing behind, and its range can be cut anew', async () => {
  const network = await freshNetwork(ledger)
  await combed(network, 20)
  const leases = await Promise.all(Array.from({ length: 30 }, (_, i) => ledger.take(any(network, `x${i}`))))
  await ledger.refuse(deletePool('a', { network }), 'POOL_IN_USE')
  for (const lease of leases) await ledger.take(release(lease.fencingToken, { network }))
  const { rows } = await reader.query<{ token: number }>(
    'select fencing_token as token from ipledger.lease where network_id = $1',
    [network],
  )
  for (const { token } of rows) await ledger.take(release(token, { network }))
  await ledger.accept(deletePool('a', { network }))
  await expectPartition(reader, network)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/25' }, { network }))
  expect((await ledger.take(any(network, 'again'))).address).toBe('10.0.0.1')
  await expectPartition(reader, network)
})

test('the ledgers of this file are in order', () => expectVerified(database))
