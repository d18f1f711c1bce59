/** Dual stack (group 13 of docs/incidents.md) and pools that change under their leases (group 14). */
import { expect } from 'vitest'
import { sandbox, useIncidents } from '../support/incident.ts'
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
    await scene.pool('10.141.0.0/26')
    const take = async (name: string, address: string) =>
      (await scene.reserve.ok(sandbox(name), { claims: [{ pool: 'web', address }] }))[0].leaseId
    // Reserved, bound, cooling, quarantined: all of them are in the way.
    await take('reserved', '10.141.0.10')
    await call.ok('LeaseService/Confirm', { leaseId: await take('bound', '10.141.0.20') })
    await call.ok('LeaseService/Release', { leaseId: await take('cooling', '10.141.0.30') })
    const odd = await take('odd', '10.141.0.40')
    await call.ok('LeaseService/Quarantine', { leaseId: odd, why: 'looks odd' })
    const change = (cidr: string, ...exclude: readonly string[]) =>
      call('PoolService/UpdatePool', {
        network,
        name: 'web',
        cidr,
        subnet: '10.141.0.0/24',
        exclude,
        ...(exclude.length === 0 && { updateMask: 'cidr,subnet,exclude' }),
      })
    for (const [inTheWay, cidr, ...exclude] of [
      ['10.141.0.10', '10.141.0.0/26', '10.141.0.10'],
      ['10.141.0.20', '10.141.0.0/26', '10.141.0.1-10.141.0.9', '10.141.0.15-10.141.0.20'],
      ['10.141.0.30', '10.141.0.0/26', '10.141.0.30-10.141.0.39'],
      ['10.141.0.40', '10.141.0.0/27'],
      ['10.141.0.10', '10.141.0.64/26'],
    ] as const) {
      const told = await change(cidr, ...exclude)
      expect(told.reason, cidr).toBe('POOL_IN_USE')
      expect(JSON.stringify(told.body)).toContain(inTheWay)
    }
    const before = await change('10.141.0.0/26', '10.141.0.11-10.141.0.19', '10.141.0.41-10.141.0.63')
    expect(before.status, JSON.stringify(before.body)).toBe(200)
    expect((await change('10.141.0.0/24')).body.pool).toMatchObject({ cidr: '10.141.0.0/24', exclude: [] })
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
  await scene.reserve.ok(sandbox('a'), { claims: [{ pool: 'web', address: '10.142.0.5' }] })
  const taken = await scene.reserve(sandbox('b'), { claims: [{ address: '10.142.0.5' }] })
  expect(taken.reason).toBe('ADDRESS_TAKEN')
})
