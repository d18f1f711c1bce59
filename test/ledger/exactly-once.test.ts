/** A request is committed once, whoever asks again, wherever and whenever; commands of a batch are decided in order. */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import { command, confirm, quarantine, release, reserve } from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { expectInOrder, freshNetwork, linesOf, openTestLedger, useLedger } from './opened.ts'

const database = await useTestDatabase()
const open = () => useLedger(database.serviceUrl)

const asked = (requestId: string, fingerprint = 'f') => ({ requestId, fingerprint })

describe('a request id', () => {
  test('gives one lease, asked again at once, later, elsewhere and after a restart', async () => {
    const first = await openTestLedger(database.serviceUrl)
    const { network, of } = await freshNetwork(first)
    const request = of(reserve('a', asked('r')))
    const [one, again] = await Promise.all([first.submit(request), first.submit(request)])
    expect([one, again]).toMatchObject([
      { ok: true, replayed: false, answer: { leases: [{ address: '10.0.0.1', fencingToken: 3 }] } },
      { ok: true, replayed: true, answer: { leases: [{ address: '10.0.0.1', fencingToken: 3 }] } },
    ])
    // Another owner's lease may have come since.
    expect((await first.take(of(reserve('b')))).address).toBe('10.0.0.2')
    const other = await open()
    assert.deepEqual(await other.submit(request), { ...one, replayed: true })
    await first.close()
    const restarted = await open()
    assert.deepEqual(await restarted.submit(request), { ...one, replayed: true })
    await expectInOrder(database.serviceUrl, network, other, restarted)
  })

  test('gives one lease, asked at three processes at the same time, twelve times', async () => {
    const processes = [await open(), await open(), await open()]
    const { network, of } = await freshNetwork(processes[0]!)
    const outcomes = await Promise.all(
      Array.from({ length: 36 }, (_, i) =>
        processes[i % 3]!.submit(of(reserve(`x${i % 12}`, asked(`r${i % 12}`)))),
      ),
    )
    const addresses = outcomes.map((one) => one.ok && one.answer.leases[0]!.address)
    assert.deepEqual(new Set(addresses).size, 12)
    assert.deepEqual(outcomes.filter((one) => one.ok && one.replayed).length, 24)
    await expectInOrder(database.serviceUrl, network, ...processes)
  })

  test('with other content is refused, and writes nothing', async () => {
    const [one, two] = [await open(), await open()]
    const { network, of } = await freshNetwork(one)
    await one.take(of(reserve('a', asked('r'))))
    for (const ledger of [one, two])
      await ledger.refuse(of(reserve('b', asked('r', 'g'))), 'REQUEST_ID_REUSED')
    const [, same] = await Promise.all([
      one.take(of(reserve('c', asked('s')))),
      one.submit(of(reserve('d', asked('s', 'g')))),
    ])
    expect(same).toMatchObject({ ok: false, refusal: { reason: 'REQUEST_ID_REUSED' } })
    assert.deepEqual((await linesOf(one, network)).slice(2), [
      'lease.reserved 10.0.0.1 RESERVED #3',
      'lease.reserved 10.0.0.2 RESERVED #4',
    ])
  })

  test('whose lease has ended or is quarantined says so instead of promising it again', async () => {
    const [one, two] = [await open(), await open()]
    const { of } = await freshNetwork(one)
    const { fencingToken } = await one.take(of(reserve('a', asked('r'))))
    await one.accept(of(reserve('b', asked('s'))))
    await two.accept(of(release(fencingToken)))
    await two.accept(of(quarantine('10.0.0.2')))
    for (const ledger of [one, two, await open()]) {
      await ledger.refuse(of(reserve('a', asked('r'))), 'LEASE_LOST')
      await ledger.refuse(of(reserve('b', asked('s'))), 'LEASE_LOST')
    }
    // What was handed on since is another's.
    expect((await one.take(of(reserve('c', { claims: [{ address: '10.0.0.1' }] })))).fencingToken).toBe(7)
    await two.refuse(of(reserve('a', asked('r'))), 'LEASE_LOST')
  })

  test('of what was refused may be asked again: only commits are remembered', async () => {
    const ledger = await open()
    const { of } = await freshNetwork(ledger)
    const request = of(reserve('a', { ...asked('r'), claims: [{ pools: ['other'] }] }))
    await ledger.refuse(request, 'POOL_NOT_FOUND')
    await ledger.accept(of(command({ type: 'createPool', pool: { name: 'other', cidr: '10.1.0.0/24' } })))
    expect((await ledger.take(request)).address).toBe('10.1.0.1')
  })

  test('of a Release gives the answer of then, and no second event', async () => {
    const [one, two] = [await open(), await open()]
    const { network, of } = await freshNetwork(one)
    await one.take(of(reserve('a/1')))
    const request = { ...of(release('a/1')), ...asked('r') }
    const outcome = await one.submit(request)
    const next = await one.take(of(reserve('b', { claims: [{ address: '10.0.0.1' }] })))
    assert.deepEqual(await two.submit(request), { ...outcome, replayed: true })
    // Without an id, too: the lease of that attachment has ended, and b keeps its own.
    expect(await two.take(of(release('a/1')))).toMatchObject({
      address: '10.0.0.1',
      state: 'RELEASED',
      fencingToken: 3,
    })
    expect(await two.take(of(release(3)))).toMatchObject({ address: '10.0.0.1', state: 'RELEASED' })
    assert.deepEqual((await linesOf(one, network)).slice(2), [
      'lease.reserved 10.0.0.1 RESERVED #3',
      'lease.released 10.0.0.1 RELEASED #3',
      `lease.reserved 10.0.0.1 RESERVED #${next.fencingToken}`,
    ])
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
      limits: { batch: 4, queued: 12 },
      observer: { batch: (_, { commands }) => batches.push(commands) },
    })
    const { network, of } = await freshNetwork(ledger)
    await ledger.image(network)
    batches.length = 0
    const items = [1, 2, 3].map((i) => of(reserve(`many${i}`)))
    const outcomes = await Promise.all([
      ledger.submit(of(command({ type: 'allOrNothing', items }))),
      ...Array.from({ length: 12 }, (_, i) => ledger.submit(of(reserve(`x${i}`)))),
    ])
    assert.deepEqual(batches, [2, 4, 4, 2])
    expect(outcomes.at(-1)).toMatchObject({ ok: false, refusal: { reason: 'OVERLOADED' } })
    assert.equal(outcomes.filter(({ ok }) => ok).length, 12)
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

  test('that holds all or nothing leaves nothing when one item is refused', async () => {
    const ledger = await open()
    const { network, of } = await freshNetwork(ledger)
    const items = [of(reserve('a')), of(reserve('b', { claims: [{ pools: ['none'] }] }))]
    const { metadata } = await ledger.refuse(of(command({ type: 'allOrNothing', items })), 'POOL_NOT_FOUND')
    expect(metadata).toMatchObject({ item: '1' })
    expect((await ledger.take(of(reserve('c')))).address).toBe('10.0.0.1')
    await expectInOrder(database.serviceUrl, network, ledger)
  })
})

test('the service cannot rewrite what it wrote', async () => {
  const ledger = await open()
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('a')))
  for (const sql of [
    `update ipledger.event set actor = 'x' where network_id = '${network}'`,
    `delete from ipledger.event where network_id = '${network}'`,
  ])
    await expect(withClient(database.serviceUrl, (client) => client.query(sql))).rejects.toMatchObject({
      code: '42501',
    })
})
