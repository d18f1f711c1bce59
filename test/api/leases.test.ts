/** LeaseService and what it reads back, as callers see it: lives of a lease, batches, requestIds, pools and their usage. */
import { describe, expect, test } from 'vitest'
import type { LeaseSettings } from '../../src/core/event.ts'
import { OwnerSchema } from '../../src/gen/ipledger/v1/types_pb.ts'
import { withClient } from '../support/database.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { newNetwork } from './running.ts'

const running = await useService()
const { call } = running
const { ok } = call

const world = (pool: object = {}) => newNetwork(running, { cooldown: '600s', ...pool })

const DEFAULT_REAP_POLICY = {
  misses: 3,
  minimumAge: '300s',
  unwitnessedAge: '3600s',
  terminalGrace: '300s',
  confirmGrace: '60s',
}

const reserve = (network: string, name: string, more: object = {}) => ({
  network,
  owner: { kind: 'pod', name },
  claims: [{ pool: 'web' }],
  ...more,
})

/** What a caller can set on a lease: the fields of its owner, or of the request and the lease. */
const SETTINGS = Object.entries({ node: 'n1', labels: { app: 'web' } } satisfies LeaseSettings)

test('what a caller sets on a lease is shown in every answer about it', async () => {
  const network = await world()
  const ofOwner = OwnerSchema.fields.map(({ jsonName }) => jsonName)
  const [owned, own] = [true, false].map((isOfOwner) =>
    Object.fromEntries(SETTINGS.filter(([name]) => ofOwner.includes(name) === isOfOwner)),
  )
  const owner = { kind: 'pod', name: 'a', ...owned }
  const { leases } = await ok('LeaseService/Reserve', { network, owner, claims: [{ pool: 'web' }], ...own })
  const { leaseId } = leases[0]
  const { lease } = await ok('LeaseService/GetLease', { leaseId })
  const { entries } = await ok('AuditService/GetLeaseHistory', { leaseId })
  const past = await ok('AuditService/ListLeasesAsOf', { network, seq: 3 })
  for (const one of [leases[0], lease, entries[0].event.lease, past.leases[0]])
    expect(one).toMatchObject({ owner, ...own })
})

describe('a lease', () => {
  test('reserved, confirmed, labelled, released: each answer is what Get says', async () => {
    const network = await world({
      gateway: '10.0.0.1',
      options: { mtu: 1400, routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.1' }] },
    })
    const owner = {
      kind: 'pod',
      name: 'a',
      uid: 'u',
      incarnation: 'i',
      node: 'n1',
      labels: { app: 'web' },
    }
    const { leases } = await ok('LeaseService/Reserve', {
      network,
      owner,
      claims: [{ pool: 'web' }],
      confirmWithin: '30s',
    })
    const [lease] = leases
    expect(lease).toMatchObject({
      leaseId: `${network}/3`,
      address: '10.0.0.2',
      prefixLength: 32,
      subnet: '10.0.0.0/24',
      gateway: '10.0.0.1',
      options: { routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.1' }], dns: [], mtu: 1400 },
      state: 'RESERVED',
      version: '3',
      fencingToken: '3',
      owner: { ...owner, interface: 'eth0' },
    })
    expect(Date.parse(lease.confirmBy) - Date.parse(lease.reservedAt)).toBe(30_000)
    const get = async () => (await ok('LeaseService/GetLease', { leaseId: lease.leaseId })).lease
    expect(await get()).toEqual(lease)

    const { leaseId } = lease
    const confirmed = (await ok('LeaseService/Confirm', { leaseId })).leases[0]
    expect(confirmed).toMatchObject({ state: 'ACTIVE', version: '4', confirmedAt: expect.any(String) })
    expect(confirmed).not.toHaveProperty('confirmBy')
    expect(await get()).toEqual(confirmed)

    const labelled = (await ok('LeaseService/UpdateLabels', { leaseId, version: 4, labels: { app: 'api' } }))
      .lease
    expect(labelled).toMatchObject({ version: '5', owner: { labels: { app: 'api' } } })
    expect(await get()).toEqual(labelled)

    const released = (await ok('LeaseService/Release', { network, fencingToken: 3 })).leases[0]
    expect(released).toMatchObject({ leaseId, state: 'ENDED', version: '6', endedAt: expect.any(String) })
    expect(Date.parse(released.availableAt) - Date.parse(released.endedAt)).toBe(600_000)
    expect((await ok('LeaseService/Release', { leaseId })).leases[0]).toEqual(released)

    const { events } = await ok('AuditService/ListEvents', { leaseId })
    expect(events.map((one: { type: string }) => one.type)).toEqual([
      'lease.reserved',
      'lease.confirmed',
      'lease.updated',
      'lease.released',
    ])
    const { options: _, ...last } = released
    expect(events[3].lease).toEqual(last)
  })

  test('quarantined and reaped by an operator', async () => {
    const network = await world()
    const [held] = (await ok('LeaseService/Reserve', reserve(network, 'a'))).leases
    const { lease } = await ok('LeaseService/Quarantine', { leaseId: held.leaseId, why: 'looks odd' })
    expect(lease).toMatchObject({
      state: 'QUARANTINED',
      quarantine: { reason: 'OPERATOR', by: 'loopback', why: 'looks odd', since: expect.any(String) },
      owner: { name: 'a' },
    })
    const free = await ok('LeaseService/Quarantine', { network, address: '10.0.0.77', why: 'printer' })
    expect(free.lease).toMatchObject({ address: '10.0.0.77', state: 'QUARANTINED' })
    expect(free.lease).not.toHaveProperty('owner')
    expect((await ok('LeaseService/GetLease', { network, address: '10.0.0.77' })).lease).toEqual(free.lease)
    const { version, leaseId } = free.lease
    const reaped = await ok('LeaseService/Reap', { leaseId, version, why: 'printer is gone' })
    expect(reaped.leases).toMatchObject([{ leaseId, address: '10.0.0.77', state: 'ENDED' }])
    const { events } = await ok('AuditService/ListEvents', { leaseId })
    expect(events.at(-1)).toMatchObject({
      type: 'lease.reaped',
      cause: 'Reap',
      evidence: { why: 'printer is gone' },
    })
  })

  test('a block is found by any of its addresses, and by no other', async () => {
    const network = await world({ cidr: '10.0.0.0/16', prefixLength: 28 })
    const [lease] = (await ok('LeaseService/Reserve', reserve(network, 'a'))).leases
    expect([lease.address, lease.prefixLength]).toEqual(['10.0.0.0', 28])
    for (const address of ['10.0.0.0', '10.0.0.15']) {
      expect((await ok('LeaseService/GetLease', { network, address })).lease.leaseId).toBe(lease.leaseId)
    }
    for (const address of ['10.0.0.16', '9.255.255.255', '255.255.255.255', 'fd00::1']) {
      expect((await call('LeaseService/GetLease', { network, address })).reason).toBe('LEASE_NOT_FOUND')
    }
  })

  test('validateOnly promises nothing and leaves nothing', async () => {
    const network = await world()
    const before = (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const [lease] = (await ok('LeaseService/Reserve', reserve(network, 'a', { validateOnly: true }))).leases
    expect(lease).toMatchObject({ leaseId: '', version: '0', fencingToken: '0', address: '10.0.0.1' })
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.head).toBe(before)
  })

  test('an attachment by its owner, and the interface that Reserve fills in', async () => {
    const network = await world()
    const owner = { kind: 'pod', uid: 'u', incarnation: 'i' }
    const [lease] = (await ok('LeaseService/Reserve', { network, owner, claims: [{ pool: 'web' }] })).leases
    expect(lease.owner).toMatchObject({ name: 'u', uid: 'u', interface: 'eth0' })
    const attachment = { ...owner, interface: 'eth0' }
    expect((await ok('LeaseService/Confirm', { network, owner: attachment })).leases[0].state).toBe('ACTIVE')
    const wrong = { ...attachment, incarnation: 'j' }
    expect((await call('LeaseService/Confirm', { leaseId: lease.leaseId, owner: wrong })).reason).toBe(
      'ILLEGAL_STATE',
    )
    expect((await ok('LeaseService/Release', { network, owner: attachment })).leases[0].state).toBe('ENDED')
    // One that was never seen: so that a Reserve that its Release overtook is refused.
    const overtaken = { ...attachment, incarnation: 'k' }
    expect((await ok('LeaseService/Release', { network, owner: overtaken })).leases).toEqual([])
    const { events } = await ok('AuditService/ListEvents', { network, types: ['attachment.closed'] })
    expect(events[0].closed).toMatchObject({ owner: { uid: 'u', incarnation: 'k' } })
    expect(Date.parse(events[0].closed.until) - Date.parse(events[0].time)).toBe(120_000)
  })
})

describe('batches', () => {
  test('each item is answered as if alone, in order', async () => {
    const network = await world({ cidr: '10.0.0.0/31' })
    const item = (name: string, more: object = {}) => {
      const { network: _, ...request } = reserve(network, name)
      return { ...request, ...more }
    }
    const { results } = await ok('LeaseService/BatchReserve', {
      network,
      requests: [
        item('a', { requestId: 'r' }),
        item('b', { claims: [{ pool: 'none' }] }),
        item('c', { owner: { kind: 'POD', name: 'c' } }),
        item('d', { network }),
        item('e', { network: 'other' }),
        item('a'),
        item('f', { requestId: 'r' }),
        item('g'),
        item('h', { validateOnly: true }),
      ],
    })
    const short = results.map(
      (one: { response?: { leases: { address: string; reused: boolean }[] }; error?: { reason: string } }) =>
        one.error === undefined
          ? `${one.response!.leases[0]!.address} ${one.response!.leases[0]!.reused}`
          : one.error.reason,
    )
    expect(short).toEqual([
      '10.0.0.0 false',
      'POOL_NOT_FOUND',
      'INVALID_FIELD',
      '10.0.0.1 false',
      'INVALID_FIELD',
      '10.0.0.0 true',
      'REQUEST_ID_REUSED',
      'POOL_EXHAUSTED',
      'INVALID_FIELD',
    ])
    expect(results[2].error).toMatchObject({ code: 'invalid_argument', metadata: { field: 'owner.kind' } })
    const alone = await call('LeaseService/Reserve', reserve(network, 'g'))
    expect(results[7].error).toMatchObject({
      code: alone.code,
      message: alone.message,
      metadata: alone.metadata,
    })
    expect(results[8].error.metadata.field).toBe('validateOnly')
  })

  test('atomic: all of it or nothing, and which item was refused', async () => {
    const network = await world({ cidr: '10.0.0.0/30' })
    const requests = (...names: string[]) => names.map((name) => reserve(network, name))
    const refused = await call('LeaseService/BatchReserve', {
      network,
      atomic: true,
      requests: requests('a', 'b', 'c'),
    })
    expect(refused).toMatchObject({
      code: 'resource_exhausted',
      reason: 'POOL_EXHAUSTED',
      metadata: { item: '2' },
      message: expect.stringMatching(/^item 2: /),
    })
    expect((await ok('LeaseService/ListLeases', { network })).leases).toEqual([])
    const bad = {
      network,
      atomic: true,
      requests: [reserve(network, 'a'), { network, owner: { kind: 'pod' } }],
    }
    expect(await call('LeaseService/BatchReserve', bad)).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { item: '1', field: 'owner.name' },
    })
    const { results } = await ok('LeaseService/BatchReserve', {
      network,
      atomic: true,
      requests: requests('a', 'b'),
    })
    const ids = results.map(
      (one: { response: { leases: { leaseId: string }[] } }) => one.response.leases[0]!.leaseId,
    )
    const named = ids.map((leaseId: string) => ({ leaseId }))
    const confirmed = await ok('LeaseService/BatchConfirm', { network, atomic: true, requests: named })
    expect(
      confirmed.results.map(
        (one: { response: { leases: { state: string }[] } }) => one.response.leases[0]!.state,
      ),
    ).toEqual(['ACTIVE', 'ACTIVE'])
    const half = { network, atomic: true, requests: [...named, { leaseId: `${network}/1` }] }
    expect(await call('LeaseService/BatchRelease', half)).toMatchObject({
      reason: 'LEASE_NOT_FOUND',
      metadata: { item: '2' },
    })
    expect((await ok('LeaseService/ListLeases', { network })).leases).toHaveLength(2)
    await ok('LeaseService/BatchRelease', { network, atomic: true, requests: named })
    expect((await ok('LeaseService/ListLeases', { network })).leases).toEqual([])
  })

  test('validateOnly of what operators do: the answer that it would have, no reason needed, and nothing is done', async () => {
    const network = await newNetwork(running)
    const [lease] = (
      await ok(
        'LeaseService/Reserve',
        reserve(network, 'a', { owner: { kind: 'pod', name: 'a', node: 'n' } }),
      )
    ).leases
    const { leaseId, version, address } = lease
    const head = async () => (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const before = await head()
    const looked = { network, validateOnly: true }
    expect(await ok('LeaseService/Quarantine', { ...looked, address })).toMatchObject({
      lease: { leaseId, state: 'QUARANTINED' },
    })
    expect(await ok('LeaseService/Reap', { ...looked, leaseId, version })).toMatchObject({
      leases: [{ leaseId, state: 'ENDED' }],
    })
    expect(await ok('LeaseService/Reap', { ...looked, node: 'n', head: before })).toMatchObject({
      leases: [{ leaseId, state: 'ENDED' }],
    })
    expect(await call('LeaseService/Reap', { ...looked, leaseId, version: '1' })).toMatchObject({
      reason: 'VERSION_MISMATCH',
    })
    expect(await ok('LivenessService/ResumeHold', looked)).toEqual({ holds: [] })
    expect(await ok('NetworkService/EndRecovery', looked)).toMatchObject({ network: { state: 'READY' } })
    expect(await head()).toBe(before)
    const acts = [
      ['LeaseService/Quarantine', { network, address }],
      ['LeaseService/Reap', { leaseId, version }],
      ['LivenessService/ResumeHold', { network }],
      ['NetworkService/EndRecovery', { network }],
    ] as const
    for (const [method, request] of acts)
      expect(await call(method, request), method).toMatchObject({
        reason: 'INVALID_FIELD',
        metadata: { field: 'why' },
      })
  })

  test('validateOnly: each is answered as it would be after the earlier ones, and nothing is left of any', async () => {
    const network = await world({ cidr: '10.0.0.0/29' })
    const again = reserve(network, 'held', { requestId: 'before' })
    const first = await ok('LeaseService/BatchReserve', { network, requests: [again] })
    const [held] = first.results[0].response.leases
    const item = (name: string, address: string, more: object = {}) =>
      reserve(network, name, { claims: [{ address }], ...more })
    const requests = [
      item('a', '10.0.0.2', { requestId: 'r' }),
      item('b', '10.0.0.2'),
      item('b', '192.168.0.1'),
      item('a', '10.0.0.2', { confirmed: true }),
      again,
      item('c', '10.0.0.3', { requestId: 'r' }),
      reserve(network, 'live', { liveAddresses: [3, 4, 5, 6].map((i) => `10.0.0.${i}`) }),
      { network, owner: { kind: 'POD', name: 'c' } },
      item('d', '10.0.0.3', { validateOnly: true }),
    ]
    const before = (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const batch = { network, requests, validateOnly: true }
    const { results } = await ok('LeaseService/BatchReserve', batch)
    const short = (all: typeof results) =>
      all.map(({ response, error }: { response?: { leases: { address: string }[] }; error?: object }) =>
        error === undefined ? response!.leases[0]!.address : (error as { reason: string }).reason,
      )
    const expected = [
      '10.0.0.2',
      'ADDRESS_TAKEN',
      'INVALID_FIELD',
      '10.0.0.2',
      '10.0.0.1',
      'REQUEST_ID_REUSED',
    ]
    expect(short(results)).toEqual([...expected, 'POOL_EXHAUSTED', 'INVALID_FIELD', 'INVALID_FIELD'])
    const none = { leaseId: '', version: '0', fencingToken: '0' }
    expect(results[0].response.leases[0]).toMatchObject({ ...none, state: 'RESERVED', reused: false })
    expect(results[3].response.leases[0]).toMatchObject({ ...none, state: 'ACTIVE', reused: true })
    expect(results[4].response.leases[0]).toMatchObject({ leaseId: held.leaseId })
    // Nothing was done: the same again, and neither log nor ids nor quarantine know of it.
    expect(short((await ok('LeaseService/BatchReserve', batch)).results)).toEqual(short(results))
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.head).toBe(before)
    expect((await ok('LeaseService/GetRequest', { network, requestId: 'r' })).committed).toBe(false)
    const { leases } = await ok('LeaseService/ListLeases', { network })
    expect(leases.map((lease: { leaseId: string }) => lease.leaseId)).toEqual([held.leaseId])
    // Really done, it comes out the same.
    const really = requests.slice(0, 6)
    expect(short((await ok('LeaseService/BatchReserve', { network, requests: really })).results)).toEqual(
      expected,
    )
  })

  test('validateOnly and atomic: the first refusal is the answer, and nothing is left either way', async () => {
    const network = await world({ cidr: '10.0.0.0/30' })
    const before = (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const batch = (...names: string[]) => ({
      network,
      atomic: true,
      validateOnly: true,
      requestId: 'r',
      requests: names.map((name) => reserve(network, name)),
    })
    expect(await call('LeaseService/BatchReserve', batch('a', 'b', 'c'))).toMatchObject({
      reason: 'POOL_EXHAUSTED',
      metadata: { item: '2' },
    })
    for (const names of [
      ['a', 'b'],
      ['c', 'd'],
    ]) {
      const { results } = await ok('LeaseService/BatchReserve', batch(...names))
      expect(
        results.map(({ response: { leases } }: { response: { leases: object[] } }) => leases[0]),
      ).toMatchObject([
        { leaseId: '', address: '10.0.0.1' },
        { leaseId: '', address: '10.0.0.2' },
      ])
    }
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.head).toBe(before)
    expect((await ok('LeaseService/GetRequest', { network, requestId: 'r' })).committed).toBe(false)
  })

  test('atomic with a requestId is done once', async () => {
    const network = await world()
    const batch = {
      network,
      atomic: true,
      requestId: 'batch',
      requests: [reserve(network, 'a'), reserve(network, 'b')],
    }
    const first = await ok('LeaseService/BatchReserve', batch)
    expect(await ok('LeaseService/BatchReserve', batch)).toEqual(first)
    const other = { ...batch, requests: [reserve(network, 'a')] }
    expect((await call('LeaseService/BatchReserve', other)).reason).toBe('REQUEST_ID_REUSED')
    const found = await ok('LeaseService/GetRequest', { network, requestId: 'batch' })
    expect(found).toMatchObject({ committed: true, method: 'BatchReserve' })
    expect(found.leases.map((one: { address: string }) => one.address)).toEqual(['10.0.0.1', '10.0.0.2'])
  })

  test('a thousand items, with their order', async () => {
    const network = await world({ cidr: '10.0.0.0/20' })
    const requests = Array.from({ length: 1000 }, (_, index) => reserve(network, `p-${index}`))
    const { results } = await ok('LeaseService/BatchReserve', { network, requests })
    const tokens = results.map((one: { response: { leases: { fencingToken: string }[] } }) =>
      Number(one.response.leases[0]!.fencingToken),
    )
    expect(tokens).toEqual([...tokens].sort((a, b) => a - b))
  })
})

describe('requestId', () => {
  test('pools and networks are answered as they were, whatever became of them', async () => {
    const network = 'answered'
    const twice = async (method: string, body: object, meanwhile?: () => Promise<unknown>) => {
      const request = { ...body, requestId: `${method}-${network}` }
      const first = await ok(method, request)
      await meanwhile?.()
      return [first, await ok(method, request)]
    }
    const web = { network, name: 'web' }
    const [begun, begunAgain] = await twice('NetworkService/CreateNetwork', { name: network })
    expect(begunAgain).toEqual(begun)

    const [described, again] = await twice(
      'NetworkService/UpdateNetwork',
      { name: network, description: 'first' },
      () => ok('NetworkService/UpdateNetwork', { name: network, description: 'second' }),
    )
    expect(described.network).toMatchObject({ description: 'first', version: '2', head: '2' })
    expect(again).toEqual(described)

    const [made, madeAgain] = await twice(
      'PoolService/CreatePool',
      { ...web, cidr: '10.0.0.0/24', exclude: ['10.0.0.7'] },
      () => ok('PoolService/DeletePool', web),
    )
    const { usage, ...created } = made.pool
    expect(usage).toMatchObject({ free: '253', excluded: '3' })
    expect(madeAgain.pool).toEqual(created)

    await ok('PoolService/CreatePool', { ...web, cidr: '10.1.0.0/24' })
    const [grown, grownAgain] = await twice('PoolService/UpdatePool', { ...web, cidr: '10.1.0.0/23' }, () =>
      ok('PoolService/UpdatePool', { ...web, cidr: '10.1.0.0/22' }),
    )
    expect(grown.pool.usage).toMatchObject({ size: '512' })
    expect(grownAgain.pool).toMatchObject({ cidr: '10.1.0.0/23', version: grown.pool.version })
    expect(grownAgain.pool.usage).toBeUndefined()

    const [gone, goneAgain] = await twice('PoolService/DeletePool', web)
    expect(gone.pool).toMatchObject({ name: 'web', cidr: '10.1.0.0/22' })
    expect(goneAgain).toEqual(gone)
  })

  test('the same request gets the same answer, whoever repeats it, in whatever state it is by then', async () => {
    const network = await world()
    const request = reserve(network, 'a', { requestId: 'r' })
    const first = await ok('LeaseService/Reserve', request)
    const { leaseId } = first.leases[0]
    await ok('LeaseService/Confirm', { leaseId })
    expect(await ok('LeaseService/Reserve', request)).toEqual(first)
    expect(await ok('LeaseService/GetRequest', { network, requestId: 'r' })).toEqual({
      requestId: 'r',
      committed: true,
      method: 'Reserve',
      at: expect.any(String),
      leases: first.leases,
      seq: '3',
    })
  })

  test('one that was never committed is an answer', async () => {
    const network = await world()
    await call('LeaseService/Reserve', reserve(network, 'a', { requestId: 'r', claims: [{ pool: 'none' }] }))
    expect(await ok('LeaseService/GetRequest', { network, requestId: 'r' })).toEqual({
      requestId: 'r',
      committed: false,
      method: '',
      leases: [],
      seq: '0',
    })
  })

  test('one that is older than a day is forgotten', async () => {
    const network = await world()
    await ok('LeaseService/Reserve', reserve(network, 'a', { requestId: 'r' }))
    await withClient(running.database.adminUrl, (admin) =>
      admin.query(
        `update ipledger.request set at = now() - interval '24 hours 1 second' where network_id = $1`,
        [network],
      ),
    )
    expect((await ok('LeaseService/GetRequest', { network, requestId: 'r' })).committed).toBe(false)
  })
})

describe('pools', () => {
  const COUNTS = ['free', 'cooling', 'reserved', 'active', 'quarantined', 'excluded'] as const

  test('trends: what was made and ended, how fast it fills, and samples of equal steps', async () => {
    const network = await world()
    await ok('PoolService/CreatePool', { network, name: 'idle', cidr: '10.1.0.0/24' })
    for (const name of ['a', 'b', 'c']) await ok('LeaseService/Reserve', reserve(network, name))
    const [{ leaseId }] = (await ok('LeaseService/ListLeases', { network })).leases
    await ok('LeaseService/Release', { leaseId })
    const { id } = (await ok('PoolService/GetPool', { network, name: 'web' })).pool
    const end = Math.floor(Date.now() / 60_000) * 60_000
    await withClient(running.database.adminUrl, (admin) =>
      admin.query(
        `insert into ipledger.pool_sample (network_id, pool_id, at, size, excluded, free, cooling, reserved, active, quarantined)
         select $1, $2, to_timestamp($3::float8 / 1000) - (59 - i) * interval '1 minute', 256, 2, 254 - i, 0, 0, i, 0 from generate_series(0, 59) as i`,
        [network, id, end],
      ),
    )
    const [from, to] = [end - 59 * 60_000, end].map((ms) => new Date(ms).toISOString())
    const trends = async (more: object) => ok('PoolService/ListPoolTrends', { network, ...more })
    const { trends: both, countedFrom } = await trends({})
    expect(both).toMatchObject([
      { pool: 'idle', made: 0, ended: 0, leasesPerHour: 0, samples: [] },
      {
        pool: 'web',
        cidr: expect.stringContaining('/24'),
        made: 3,
        ended: 1,
        leasesPerHour: 60,
        exhaustedIn: '11700s',
        samples: [],
      },
    ])
    expect(both[0].exhaustedIn).toBeUndefined()
    expect(Date.now() - Date.parse(countedFrom)).toBeGreaterThan(290_000)
    const [web] = (await trends({ pool: 'web', from, to, samples: 3 })).trends
    expect(web.samples.map(({ usage }: { usage: { active: string } }) => usage.active)).toEqual([
      '19',
      '39',
      '59',
    ])
    expect(web.samples[2]).toMatchObject({
      time: to!.replace('.000', ''),
      usage: { size: '256', excluded: '2', free: '195' },
    })
    expect((await call('PoolService/ListPoolTrends', { network, pool: 'none' })).reason).toBe(
      'POOL_NOT_FOUND',
    )
    for (const [field, wrong] of [
      ['from', { from: to, to: from }],
      ['samples', { samples: 501 }],
    ] as const)
      expect(await call('PoolService/ListPoolTrends', { network, ...wrong })).toMatchObject({
        metadata: { field },
      })
  })

  test('the parts are the whole, at every step', async () => {
    const network = await world({ gateway: '10.0.0.1', exclude: ['10.0.0.10-10.0.0.19'], cooldown: '3s' })
    const usage = async () => {
      const one = (await ok('PoolService/GetPool', { network, name: 'web' })).pool.usage
      const [listed] = (await ok('PoolService/ListPools', { network })).pools
      expect(listed.usage).toEqual(one)
      expect(COUNTS.reduce((sum, key) => sum + BigInt(one[key]), 0n)).toBe(BigInt(one.size))
      expect(BigInt(one.size) - BigInt(one.excluded)).toBe(BigInt(one.allocatable))
      return COUNTS.map((key) => Number(one[key]))
    }
    expect(await usage()).toEqual([243, 0, 0, 0, 0, 13])
    const [a] = (await ok('LeaseService/Reserve', reserve(network, 'a'))).leases
    await ok('LeaseService/Reserve', reserve(network, 'b', { confirmed: true }))
    await ok('LeaseService/Quarantine', { network, address: '10.0.0.200', why: 'x' })
    expect(await usage()).toEqual([240, 0, 1, 1, 1, 13])
    await ok('LeaseService/Release', { leaseId: a.leaseId })
    expect(await usage()).toEqual([240, 1, 0, 1, 1, 13])
    await waitFor(async () => (await usage())[1] === 0)
    expect(await usage()).toEqual([241, 0, 0, 1, 1, 13])
  })

  test('sizes have no limit', async () => {
    const network = await world({ name: 'six', cidr: 'fd00::/48' })
    const { pool } = await ok('PoolService/GetPool', { network, name: 'six' })
    expect(pool.usage).toMatchObject({
      size: String(2n ** 80n),
      allocatable: String(2n ** 80n - 1n),
      excluded: '1',
    })
  })

  test('every setting comes back, in the answer, from Get and in the event', async () => {
    const network = await world()
    const settings = {
      name: 'full',
      cidr: '10.7.1.0/24',
      subnet: '10.7.0.0/16',
      prefixLength: 28,
      gateway: '10.7.0.1',
      exclude: ['10.7.1.16-10.7.1.31'],
      cooldown: '90.500s',
      confirmWithin: '45s',
      liveness: 'STRICT',
      ownerLimit: 9,
      default: true,
      draining: true,
      options: { routes: [{ destination: '10.0.0.0/8', gateway: '10.7.0.1' }], dns: ['10.7.0.2'], mtu: 9000 },
      labels: { team: 'net' },
      reapPolicy: {
        misses: 5,
        minimumAge: '600s',
        unwitnessedAge: '7200s',
        terminalGrace: '1.500s',
        confirmGrace: '90s',
      },
    }
    const { pool } = await ok('PoolService/CreatePool', { network, ...settings })
    expect(pool).toMatchObject({ network, ...settings, id: '3', version: '3' })
    expect((await ok('PoolService/GetPool', { network, name: 'full' })).pool).toEqual(pool)
    const { events } = await ok('AuditService/ListEvents', { network, afterSeq: 2 })
    const { usage: _, ...shown } = pool
    expect(events[0]).toMatchObject({ type: 'pool.created', pool: shown })
  })

  test('UpdatePool changes what it names and nothing else', async () => {
    const network = await world({
      gateway: '10.0.0.1',
      confirmWithin: '9s',
      labels: { a: '1' },
      exclude: ['10.0.0.9'],
    })
    const { pool: before } = await ok('PoolService/GetPool', { network, name: 'web' })
    const changes: readonly (readonly [object, object])[] = [
      [{ newName: 'api' }, { name: 'api' }],
      [{ cooldown: '1s' }, { cooldown: '1s' }],
      [{ exclude: ['10.0.0.32/28'] }, { exclude: ['10.0.0.32-10.0.0.47'] }],
      [{ updateMask: 'exclude' }, { exclude: [] }],
      [{ gateway: '' }, { gateway: '' }],
      [{ gateway: '10.0.0.2' }, { gateway: '10.0.0.2' }],
      [{ confirmWithin: '0s' }, { confirmWithin: undefined }],
      [{ liveness: 'STRICT' }, { liveness: 'STRICT' }],
      [{ ownerLimit: 7 }, { ownerLimit: 7 }],
      [
        { default: true, draining: true },
        { default: true, draining: true },
      ],
      [{ options: { mtu: 1300 } }, { options: { routes: [], dns: [], mtu: 1300 } }],
      [{ options: {} }, { options: { routes: [], dns: [], mtu: 0 } }],
      [{ labels: {}, updateMask: 'labels' }, { labels: {} }],
      [{ reapPolicy: { misses: 4 } }, { reapPolicy: { ...DEFAULT_REAP_POLICY, misses: 4 } }],
      [
        { reapPolicy: { minimumAge: '60s' } },
        { reapPolicy: { ...DEFAULT_REAP_POLICY, misses: 4, minimumAge: '60s' } },
      ],
      [{ cidr: '10.0.0.0/23' }, { cidr: '10.0.0.0/23', subnet: '10.0.0.0/23' }],
      [{}, {}],
    ]
    let pool = before
    for (const [change, expected] of changes) {
      const { pool: after } = await ok('PoolService/UpdatePool', {
        network,
        name: pool.name,
        version: pool.version,
        ...change,
      })
      const { version, updatedAt, usage, ...rest } = after
      const wanted = { ...pool, ...expected }
      for (const key of ['version', 'updatedAt', 'usage'] as const) delete wanted[key]
      expect(rest).toEqual(JSON.parse(JSON.stringify(wanted)))
      expect(Number(version)).toBe(Number(pool.version) + (Object.keys(change).length > 0 ? 1 : 0))
      expect([updatedAt, usage]).not.toContain(undefined)
      pool = after
    }
    expect(pool.id).toBe(before.id)
  })

  test('networks: made, changed, looked at', async () => {
    const { network: made } = await ok('NetworkService/CreateNetwork', {
      name: 'made',
      description: 'größer',
      labels: { a: '1' },
    })
    expect(made).toMatchObject({
      name: 'made',
      description: 'größer',
      labels: { a: '1' },
      state: 'READY',
      era: 0,
      head: '1',
      version: '1',
    })
    const { network: changed } = await ok('NetworkService/UpdateNetwork', {
      name: 'made',
      updateMask: 'labels',
    })
    expect(changed).toMatchObject({ description: 'größer', labels: {}, version: '2' })
    expect(
      (await ok('NetworkService/UpdateNetwork', { name: 'made', description: '' })).network,
    ).toMatchObject({ description: '', version: '3' })
    expect(
      (await ok('NetworkService/EndRecovery', { network: 'made', why: 'nothing to end' })).network.head,
    ).toBe('3')
    expect((await ok('NetworkService/UpdateNetwork', { name: 'made', closed: true })).network).toMatchObject({
      closed: true,
      version: '4',
    })
    const { events } = await ok('AuditService/ListEvents', { network: 'made' })
    expect(events.map((one: { networkSettings: object }) => one.networkSettings)).toMatchObject([
      { name: 'made', description: 'größer', state: 'READY', head: '1' },
      { description: 'größer', labels: {} },
      { description: '' },
      { closed: true },
    ])
  })

  test('a closed network hands out nothing new, and what is held goes on', async () => {
    const of = { network: 'closing' }
    const owner = (name: string) => ({ kind: 'container', name, incarnation: '1' })
    await ok('NetworkService/CreateNetwork', { name: 'closing' })
    await ok('PoolService/CreatePool', { ...of, name: 'p', cidr: '10.0.0.0/29', default: true })
    const { leases } = await ok('LeaseService/Reserve', { ...of, owner: owner('held') })
    await ok('NetworkService/UpdateNetwork', { name: 'closing', closed: true })
    expect(await call('LeaseService/Reserve', { ...of, owner: owner('new') })).toMatchObject({
      code: 'failed_precondition',
      reason: 'NETWORK_CLOSED',
      metadata: of,
    })
    const requests = [{ owner: owner('held') }, { owner: owner('new'), confirmed: true }]
    expect((await ok('LeaseService/BatchReserve', { ...of, requests })).results).toMatchObject([
      { response: { leases: [{ leaseId: leases[0].leaseId, reused: true }] } },
      { error: { reason: 'NETWORK_CLOSED' } },
    ])
    await ok('LeaseService/Confirm', { leaseId: leases[0].leaseId })
    await ok('LeaseService/Release', { leaseId: leases[0].leaseId })
    await ok('NetworkService/UpdateNetwork', { name: 'closing', closed: false, updateMask: 'closed' })
    await ok('LeaseService/Reserve', { ...of, owner: owner('new') })
  })
})
