/** Dual stack (group 13 of docs/incidents.md) and pools that change under their leases (group 14). */
import { expect } from 'vitest'
import { isMalformed, parseAddress } from '../../src/core/address.ts'
import { sandbox, useIncidents } from '../support/incident.ts'
import { random } from '../support/random-walk.ts'
import { serviceOn, useService } from '../support/service.ts'

const running = await useService()
const incident = useIncidents(running)

incident(
  '13.1 second-family-fails: a pair that cannot be had leaves nothing, and takes nothing that was there',
  [],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.131.0.0/20', { name: 'four' })
    await scene.pool('fd13::/127', { name: 'six' })
    const pair = [{ pool: 'four' }, { pool: 'six' }]
    const had: string[] = []
    for (const name of ['a', 'b']) {
      const leases = await scene.reserve.ok(sandbox(name), { claims: pair })
      had.push(...leases.map(({ address }: { address: string }) => address))
    }
    expect(had.sort()).toEqual(['10.131.0.1', '10.131.0.2', 'fd13::', 'fd13::1'])
    // One more has v4 already, and adds v6, which fails: what it had stays.
    const [own] = await scene.reserve.ok(sandbox('own'), { claims: [{ pool: 'four' }] })
    expect((await scene.reserve(sandbox('own'), { claims: pair })).reason).toBe('POOL_EXHAUSTED')
    expect(await scene.lease(own.leaseId)).toEqual(own)
    const before = await scene.log()
    const told = await Promise.all(
      Array.from({ length: 200 }, (_, index) => scene.reserve(sandbox(`pair-${index}`), { claims: pair })),
    )
    expect(new Set(told.map(({ reason }) => reason))).toEqual(new Set(['POOL_EXHAUSTED']))
    expect(await scene.log(), 'not one event').toEqual(before)
    const { pool } = await call.ok('PoolService/GetPool', { network, name: 'four' })
    expect(pool.usage).toMatchObject({ reserved: '3', cooling: '0' })
  },
)

incident(
  '14.1 shrink-under-live-leases: a pool changes exactly if no held address leaves it, and else it says which are in the way',
  ['POOL_KEEPS_WHAT_IS_HELD'],
  async (scene) => {
    const { network, call } = scene
    const seed = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
    console.log(`seed ${seed}`)
    const below = random(seed)
    await scene.pool('10.141.0.0/26')
    const held = new Set<number>()
    for (let index = 0; index < 12; index += 1) {
      const at = 1 + below(62)
      const told = await scene.reserve(sandbox(`s${index}`), {
        claims: [{ pool: 'web', address: `10.141.0.${at}` }],
      })
      if (told.status !== 200) continue
      held.add(at)
      // Some of them bound, some cooling, some quarantined: all of them are in the way.
      const { leaseId } = told.body.leases[0]
      if (index % 4 === 1) await call.ok('LeaseService/Confirm', { leaseId })
      if (index % 4 === 2) await call.ok('LeaseService/Release', { leaseId })
      if (index % 4 === 3) await call.ok('LeaseService/Quarantine', { leaseId, why: 'looks odd' })
    }
    const octet = (address: string) => {
      const parsed = parseAddress(address)
      if (isMalformed(parsed)) throw new Error(address)
      return Number(parsed.value & 255n)
    }
    let cidr = { first: 0, last: 63 }
    let exclude: readonly [number, number] | null = null
    const counts = { accepted: 0, refused: 0 }
    for (let turn = 0; turn < 80; turn += 1) {
      const bits = 24 + below(6)
      const size = 2 ** (32 - bits)
      const base = below(256 / size) * size
      const proposed = { first: base, last: base + size - 1 }
      const from = base + below(size)
      const excluded = below(2) === 0 ? ([from, Math.min(proposed.last, from + below(8))] as const) : null
      const told = await call('PoolService/UpdatePool', {
        network,
        name: 'web',
        cidr: `10.141.0.${base}/${bits}`,
        subnet: '10.141.0.0/24',
        exclude: excluded === null ? [] : [`10.141.0.${excluded[0]}-10.141.0.${excluded[1]}`],
        ...(excluded === null && { updateMask: 'cidr,subnet,exclude' }),
      })
      // The model: what is held lies in the new range and in no exclusion. The subnet's ends are nobody's.
      const stays = (at: number) =>
        proposed.first <= at &&
        at <= proposed.last &&
        !(excluded !== null && excluded[0] <= at && at <= excluded[1])
      const inTheWay = [...held].filter((at) => !stays(at))
      const what = `turn ${turn}: 10.141.0.${base}/${bits} without ${excluded}`
      if (inTheWay.length === 0) {
        expect(told.status, `${what}: ${JSON.stringify(told.body)}`).toBe(200)
        counts.accepted += 1
        cidr = proposed
        exclude = excluded
      } else {
        expect(told.reason, what).toBe('POOL_IN_USE')
        counts.refused += 1
        const told_ = JSON.stringify(told.body)
        expect(
          inTheWay.some((at) => told_.includes(`10.141.0.${at}`)),
          `${what} names one of ${inTheWay}`,
        ).toBe(true)
      }
    }
    expect(counts.refused).toBeGreaterThan(0)
    const { pool } = await call.ok('PoolService/GetPool', { network, name: 'web' })
    const [first, last] = [octet(pool.cidr.split('/')[0]), 2 ** (32 - Number(pool.cidr.split('/')[1]))]
    expect({ first, last: first + last - 1 }).toEqual(cidr)
    expect(pool.exclude).toHaveLength(exclude === null ? 0 : 1)
    // What is left is offered: draining hands out nothing new, and the pool can go when it is empty.
    await call.ok('PoolService/UpdatePool', { network, name: 'web', draining: true })
    expect((await scene.reserve(sandbox('new'))).reason).toBe('POOL_DRAINING')
  },
)

incident('14.2 overlap: pools of one network never overlap, those of two may', [], async (scene) => {
  const { network, call } = scene
  await scene.pool('10.142.0.0/28')
  // The /28 grown to a /24 as a second range (whereabouts#49).
  const grown = await call('PoolService/CreatePool', { network, name: 'grown', cidr: '10.142.0.0/24' })
  expect(grown.status).not.toBe(200)
  expect(JSON.stringify(grown.body)).toContain('10.142.0.0/28')
  const elsewhere = `${network}-b`
  await call.ok('NetworkService/CreateNetwork', { name: elsewhere })
  await call.ok('PoolService/CreatePool', { network: elsewhere, name: 'grown', cidr: '10.142.0.0/24' })
  // Two by race: one of them.
  await using second = await serviceOn(running)
  const told = await Promise.all(
    Array.from({ length: 10 }, (_, index) =>
      (index % 2 === 0 ? call : second.call)('PoolService/CreatePool', {
        network,
        name: `race-${index}`,
        cidr: index % 2 === 0 ? '10.142.1.0/24' : '10.142.1.128/25',
      }),
    ),
  )
  expect(told.filter(({ status }) => status === 200)).toHaveLength(1)
  // An address is one lease in its network, whatever pool is asked for it.
  const [lease] = await scene.reserve.ok(sandbox('a'), { claims: [{ pool: 'web', address: '10.142.0.5' }] })
  const [other] = (
    await call.ok('LeaseService/Reserve', {
      network: elsewhere,
      owner: sandbox('a'),
      claims: [{ pool: 'grown', address: '10.142.0.5' }],
    })
  ).leases
  expect([lease.address, other.address]).toEqual(['10.142.0.5', '10.142.0.5'])
  expect((await scene.reserve(sandbox('b'), { claims: [{ address: '10.142.0.5' }] })).reason).toBe(
    'ADDRESS_TAKEN',
  )
})
