/** Commands of a batch are decided in order, and a batch has a bound. */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { command, confirm, release, reserve } from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { waitFor } from '../support/wait-for.ts'
import { expectInOrder, freshNetwork, linesOf, type Step, useLedger } from './opened.ts'

const database = await useTestDatabase()

const asked = (requestId: string, fingerprint = 'f') => ({ requestId, fingerprint })

const create = command({ type: 'createNetwork', settings: { description: '', labels: {} } })

/** `first` waits for the lock, then `second` comes. What they came to, and how many commands each batch had. */
async function whileLocked(network: string | null, first: Step, second: Step) {
  const batches: number[] = []
  const ledger = await useLedger(database.serviceUrl, {
    observer: { batch: (_, { commands }) => batches.push(commands) },
  })
  const { of } =
    network === null ? await freshNetwork(ledger) : { of: (step: Step): Command => ({ ...step(), network }) }
  await ledger.image(of(first).network)
  batches.length = 0
  return withClient(database.adminUrl, async (client) => {
    await client.query('begin')
    await client.query('lock table ipledger.network_lock in exclusive mode')
    const one = ledger.submit(of(first))
    const waits = `select from pg_locks where not granted and relation = 'ipledger.network_lock'::regclass`
    await waitFor(async () => (await client.query(waits)).rowCount)
    const other = ledger.submit(of(second))
    await client.query('commit')
    const outcomes = (await Promise.all([one, other])).map((done) => (done.ok ? 'ok' : done.refusal.reason))
    const locks = 'select from ipledger.network_lock where network_id = $1'
    return { batches, outcomes, locks: (await client.query(locks, [of(first).network])).rowCount }
  })
}

describe('what comes while the lock is waited for', () => {
  test.each([
    ['goes with that batch', null, reserve('b/1'), { batches: [2], outcomes: ['ok', 'ok'] }],
    ['waits if it needs what was not read', null, reserve('b/1', asked('r')), { batches: [1, 1] }],
    [
      'waits if it makes the network, whose lock row there must be',
      'new',
      create,
      { outcomes: ['NETWORK_NOT_FOUND', 'ok'], locks: 1 },
    ],
  ])('%s', async (_, network, second, expected) => {
    expect(await whileLocked(network, reserve('a/1'), second)).toMatchObject(expected)
  })
})

describe('a batch', () => {
  test('is decided in order: each command sees those before it, a refused one refuses itself alone', async () => {
    const batches: number[] = []
    const ledger = await useLedger(database.serviceUrl, {
      observer: { batch: (_, { commands }) => batches.push(commands) },
    })
    const { network, of } = await freshNetwork(ledger)
    await ledger.image(network)
    batches.length = 0
    const outcomes = await Promise.all(
      [
        reserve('a/1', asked('r')),
        reserve('a/1', asked('r')),
        reserve('b/1', { claims: [{ address: '10.0.0.1' }] }),
        confirm('a/1'),
        release('a/1'),
        reserve('a/1'),
        reserve('c/1', { claims: [{ address: '10.0.0.1' }] }),
      ].map((step) => ledger.submit(of(step))),
    )
    assert.deepEqual(
      outcomes.map((one) =>
        one.ok ? `${one.answer.leases[0]!.address} ${one.answer.leases[0]!.state}` : one.refusal.reason,
      ),
      [
        '10.0.0.1 RESERVED',
        '10.0.0.1 RESERVED',
        'ADDRESS_TAKEN',
        '10.0.0.1 ACTIVE',
        '10.0.0.1 RELEASED',
        'ATTACHMENT_CLOSED',
        '10.0.0.1 RESERVED',
      ],
    )
    assert.deepEqual(batches, [7])
    assert.deepEqual((await linesOf(ledger, network)).slice(2), [
      'lease.reserved 10.0.0.1 RESERVED #3',
      'lease.confirmed 10.0.0.1 ACTIVE #3',
      'lease.released 10.0.0.1 RELEASED #3',
      'lease.reserved 10.0.0.1 RESERVED #6',
    ])
    await expectInOrder(database.serviceUrl, network, ledger)
  })

  test('holds so many commands at most, and one that holds several counts as many', async () => {
    const batches: number[] = []
    const ledger = await useLedger(database.serviceUrl, {
      limits: { batch: 4 },
      observer: { batch: (_, { commands }) => batches.push(commands) },
    })
    const { network, of } = await freshNetwork(ledger)
    await ledger.image(network)
    batches.length = 0
    const items = [1, 2, 3].map((i) => of(reserve(`many${i}`)))
    const outcomes = await Promise.all([
      ledger.submit(of(command({ type: 'allOrNothing', items }))),
      ...Array.from({ length: 11 }, (_, i) => ledger.submit(of(reserve(`x${i}`)))),
    ])
    assert.deepEqual(batches, [2, 4, 4, 2])
    expect(outcomes.every(({ ok }) => ok)).toBe(true)
    const { leases } = await expectInOrder(database.serviceUrl, network, ledger).then((image) => ({
      leases: [...image.records.values()].map(({ address, owner }) => `${owner!.name} ${address}`),
    }))
    assert.deepEqual(leases.slice(0, 4), [
      'many1 10.0.0.1',
      'many2 10.0.0.2',
      'many3 10.0.0.3',
      'x0 10.0.0.4',
    ])
  })

  test('a dry run counts as many as it tries, also those of an atomic batch in it', async () => {
    const batches: number[] = []
    const ledger = await useLedger(database.serviceUrl, {
      limits: { batch: 4 },
      observer: { batch: (_, { commands }) => batches.push(commands) },
    })
    const { network, of } = await freshNetwork(ledger)
    const { head } = (await ledger.image(network))!
    batches.length = 0
    const items = [1, 2, 3].map((i) => of(reserve(`many${i}`))) as Command<'allOrNothing'>['items']
    const atomic = of(command({ type: 'allOrNothing', items })) as Command<'allOrNothing'>
    const tried = of(command({ type: 'dryRun', items: [atomic] }))
    const outcomes = await Promise.all([1, 2, 3].map(() => ledger.submit(tried)))
    assert.deepEqual(batches, [1, 1, 1])
    for (const outcome of outcomes) {
      const { outcomes: [answer] = [] } = outcome.ok ? outcome.answer : assert.fail(outcome.refusal.message)
      const addresses = answer && 'leases' in answer && answer.items?.map(({ leases }) => leases[0]!.address)
      assert.deepEqual(addresses, ['10.0.0.1', '10.0.0.2', '10.0.0.3'])
    }
    assert.equal((await ledger.image(network))!.head, head)
  })
})
