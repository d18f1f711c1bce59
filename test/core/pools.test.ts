/** What the settings of a pool and of a network may be, what they become, and what stands in the way of a change. */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import { isMalformed, parseAddress } from '../../src/core/address.ts'
import { LAST_ERA } from '../../src/core/policy.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import { beyondHead, unknownLease } from '../../src/core/refusal.ts'
import { isSpecialPurpose } from '../../src/core/special-purpose-ranges.ts'
import {
  after,
  command,
  given,
  MINUTE,
  network,
  pool,
  quarantine,
  release,
  reserve,
  SECOND,
  type Step,
} from './given.ts'

const DAYS = 24 * 60 * MINUTE
const CIDR = '10.0.0.16/28'
type One = Exclude<Step, readonly Step[]>
const update = (change: object, more: object = {}) =>
  command({ type: 'updatePool', name: 'pool', version: null, change, ...more }) as One
const remove = command({ type: 'deletePool', name: 'pool', version: null }) as One
const refused = (step: One, ...before: readonly Step[]) => {
  const { outcome } = given(network, ...before).when(step)
  return outcome.ok ? null : outcome.refusal
}
const settingsOf = (step: One, ...before: readonly Step[]) => {
  const { outcome } = given(network, ...before).when(step)
  return outcome.ok ? outcome.answer.pool!.settings : assert.fail(outcome.refusal.message)
}
const route = (destination: string, gateway = '') => ({
  options: { routes: [{ destination, gateway }], dns: [], mtu: 0 },
})
const mtu = (bytes: number) => ({ options: { routes: [], dns: [], mtu: bytes } })
const dns = (...servers: string[]) => ({ options: { routes: [], dns: servers, mtu: 0 } })

/** A setting, values that it may have, and values that it may not. */
const BOUNDS: readonly (readonly [string, (value: number) => Partial<PoolInput>, number[], number[]])[] = [
  ['prefixLength', (prefixLength) => ({ prefixLength }), [28, 32], [27, 33, 30.5]],
  ['cooldown', (cooldownMs) => ({ cooldownMs }), [0, 30 * DAYS], [-1, 30 * DAYS + 1]],
  ['confirmWithin', (confirmWithinMs) => ({ confirmWithinMs }), [SECOND, 30 * DAYS], [999, 30 * DAYS + 1]],
  ['ownerLimit', (ownerLimit) => ({ ownerLimit }), [1, 1_000_000], [-1, 1_000_001]],
  ['nodeLimit', (nodeLimit) => ({ nodeLimit }), [0, 1_000_000], [-1, 1_000_001]],
  ['reapPolicy.misses', (misses) => ({ reapPolicy: { misses } }), [1, 8], [0, 9, 1.5]],
  [
    'reapPolicy.minimumAge',
    (minimumAgeMs) => ({ reapPolicy: { minimumAgeMs } }),
    [SECOND, 60 * MINUTE],
    [999],
  ],
  [
    'reapPolicy.unwitnessedAge',
    (unwitnessedAgeMs) => ({ reapPolicy: { unwitnessedAgeMs } }),
    [5 * MINUTE, 30 * DAYS],
    [5 * MINUTE - 1, 30 * DAYS + 1],
  ],
  ['options.mtu', mtu, [0, 68, 65_535], [67, 65_536]],
  ['exclude', (count) => ({ exclude: Array(count).fill('10.0.0.20') }), [1_024], [1_025]],
]

describe('a setting of a pool', () => {
  test.each(BOUNDS)('%s has bounds', (field, setting, within, beyond) => {
    for (const value of within) assert.equal(refused(pool(CIDR, setting(value))), null, `${value}`)
    for (const value of beyond)
      assert.equal(refused(pool(CIDR, setting(value)))?.metadata.field, field, `${value}`)
  })

  test.each<[string, Partial<PoolInput>]>([
    ['cidr', { cidr: 'x' }],
    ['subnet', { subnet: 'x' }],
    ['subnet', { cidr: 'fd00::/120', subnet: '0.0.0.0/1' }],
    ['gateway', { gateway: 'x' }],
    ['gateway', { cidr: 'fd00::/120', gateway: '10.0.0.17' }],
    ['exclude[1]', { exclude: ['10.0.0.20', 'x'] }],
    ['exclude[1]', { exclude: ['10.0.0.0-10.0.0.16', '10.0.0.0-10.0.0.15'] }],
    ['exclude[1]', { exclude: ['10.0.0.31-10.0.0.40', '10.0.0.32'] }],
    ['exclude[0]', { exclude: ['::/0'] }],
    ['options.dns[1]', dns('10.0.0.53', 'x')],
    ['options.routes[0].destination', route('x')],
    ['options.routes[0].destination', route('fd00::/64')],
    ['options.routes[0].gateway', route('0.0.0.0/0', 'fd00::1')],
  ])('%s is refused: %j', (field, input) => {
    assert.equal(refused(pool(CIDR, input))?.metadata.field, field)
  })

  test('is stored in one spelling', () => {
    const input = {
      exclude: ['10.0.0.20', '10.0.0.24/30'],
      cooldownMs: 1_000.4,
      confirmWithinMs: 1_000.6,
      labels: { a: 'b' },
    }
    const misses = { reapPolicy: { misses: 2, terminalGraceMs: 5 * MINUTE } }
    const ways = { ...route('10.9.0.0/16', '255.255.255.255').options, dns: ['FD00::53'] }
    expect(settingsOf(pool(CIDR, { ...input, ...misses, options: ways }))).toMatchObject({
      exclude: ['10.0.0.20', '10.0.0.24-10.0.0.27'],
      cooldownMs: 1_000,
      confirmWithinMs: 1_001,
      labels: { a: 'b' },
      reapPolicy: { misses: 2 },
      options: { ...ways, dns: ['fd00::53'] },
    })
    expect('reapPolicy' in settingsOf(pool(CIDR, { reapPolicy: { misses: 3 } }))).toBe(false)
  })

  test('an excluded address is not leased', () => {
    given(network, pool('10.0.0.0/30', { exclude: ['10.0.0.1'] }))
      .when(reserve('x/1'))
      .then('lease.reserved 10.0.0.2 RESERVED #3')
  })
})

describe('what exists', () => {
  const made = pool(CIDR, { labels: { a: 'b' }, options: { routes: [], dns: [], mtu: 1_500 } })
  test('is the answer to the same once more, else it is said what differs', () => {
    given(network, made).when(made).then()
    const other = refused(
      pool('10.1.0.0/28', {
        cooldownMs: SECOND,
        confirmWithinMs: MINUTE,
        options: { routes: [], dns: [], mtu: 1_400 },
      }),
      made,
    )!
    assert.equal(other.metadata.differs, 'cidr,subnet,cooldown,confirmWithin,options,labels')
    for (const one of [
      'cidr is "10.0.0.16/28", not "10.1.0.0/28"',
      'cooldown is "120s", not "1s"',
      'confirmWithin is null, not "60s"',
      '"mtu":1500',
      'labels is {"a":"b"}, not {}',
    ])
      assert.ok(other.message.includes(one), other.message)
    const settings = (description: string) =>
      command({ type: 'createNetwork', settings: { description, labels: {} } }) as One
    given(network).when(settings('')).then()
    assert.equal(refused(settings('d'))?.metadata.differs, 'description')
  })

  test('a pool is named, and at the version that was looked at', () => {
    expect(refused(update({}, { name: 'none' }), made)).toMatchObject({
      reason: 'POOL_NOT_FOUND',
      metadata: { pool: 'none' },
    })
    expect(refused(update({ draining: true }, { version: 3 }), made)).toMatchObject({
      reason: 'VERSION_MISMATCH',
    })
    given(network, made)
      .when(update({ labels: { a: 'b' } }))
      .then()
    given(network, made)
      .when(update({ labels: {} }, { version: 2 }))
      .then('pool.updated')
    expect(refused(update({ ownerLimit: -1 }), made)?.metadata).toMatchObject({ field: 'ownerLimit' })
    expect(
      refused(update({ cidr: 'fd00::/120', subnet: 'fd00::/120', prefixLength: 128 }), made)?.metadata,
    ).toMatchObject({
      field: 'cidr',
    })
  })

  test('no other pool has its name or part of its range', () => {
    const second = pool('10.0.1.0/28', { name: 'second' })
    for (const cidr of ['10.0.0.0/24', '10.0.0.16/32', '10.0.0.31/32'])
      assert.equal(refused(pool(cidr, { name: 'third' }), made)?.metadata.field, 'cidr', cidr)
    for (const cidr of ['10.0.0.15/32', '10.0.0.32/32', '::1:a00:0/104'])
      assert.equal(refused(pool(cidr, { name: 'third' }), made), null, cidr)
    assert.equal(refused(update({ name: 'second' }), made, second)?.metadata.field, 'newName')
    const { message = '' } =
      refused(update({ cidr: '10.0.0.0/23', subnet: '10.0.0.0/23' }), made, second) ?? {}
    assert.match(message, /overlaps second \(10\.0\.1\.0\/28\)/)
  })

  test('a subnet that is the cidr follows it, another stays; what is not said stays', () => {
    assert.equal(settingsOf(update({ cidr: '10.0.0.0/24' }), made).subnet, '10.0.0.0/24')
    const wide = pool(CIDR, { subnet: '10.0.0.0/24', reapPolicy: { misses: 2 } })
    expect(settingsOf(update({ reapPolicy: { minimumAgeMs: MINUTE } }), wide)).toMatchObject({
      ...{ cidr: CIDR, subnet: '10.0.0.0/24', reapPolicy: { misses: 2, minimumAgeMs: MINUTE } },
    })
  })
})

describe('what is in the way of a change', () => {
  const room: Step = [pool(CIDR), reserve('x/1'), reserve('y/1')]
  const rest: Step = [release('x/1'), after(SECOND), release('y/1')]
  test('what is held, and what cools with how long', () => {
    expect(refused(remove, room, release('x/1'))).toEqual({
      reason: 'POOL_IN_USE',
      message: expect.stringContaining(
        'pool pool: 1 held and 1 cooling addresses are in it: 10.0.0.18 RESERVED net/4; 10.0.0.17 COOLING until',
      ),
      metadata: {
        pool: 'pool',
        held: '1',
        cooling: '1',
        blockers: expect.stringContaining('10.0.0.17 COOLING'),
      },
    })
    expect(refused(remove, room, rest)).toMatchObject({
      metadata: { held: '0', cooling: '2' },
      retryAfterMs: 2 * MINUTE,
    })
    given(network, room, rest, after(2 * MINUTE))
      .when(remove)
      .then('pool.deleted')
  })

  test('only what would leave, and twenty of it by name', () => {
    expect(refused(update({ cidr: '10.0.0.18/31' }), room)).toMatchObject({
      message: expect.stringContaining('would leave it: 10.0.0.17 RESERVED'),
    })
    given(network, room, release('x/1'), after(2 * MINUTE))
      .when(update({ cidr: '10.0.0.18/31', subnet: CIDR }))
      .then('pool.updated')
    const many = Array.from({ length: 21 }, (_, i) => quarantine(`10.0.0.${i + 1}`))
    const { metadata } = refused(remove, pool('10.0.0.0/24'), many)!
    assert.deepEqual([metadata.held, metadata.blockers!.split('; ').length], ['21', 20])
  })
})

test('a network keeps what an update does not say, and writes nothing of no change', () => {
  const change = (more: object) =>
    command({
      type: 'updateNetwork',
      version: null,
      description: null,
      labels: null,
      identity: null,
      ...more,
    }) as Exclude<One, undefined>
  given(network)
    .when(change({ description: '', labels: {}, closed: false }))
    .then()
  const { outcome } = given(
    network,
    change({ closed: true }),
    change({ description: 'd' }),
    change({ labels: { a: 'b' } }),
  )
    .when(change({ identity: 'two' }))
    .then('network.updated')
  expect(outcome.ok && outcome.answer).toMatchObject({
    network: {
      name: 'net',
      network: { description: 'd', labels: { a: 'b' }, closed: true, identity: 'two' },
    },
  })
  expect(refused(change({ version: 2 }))).toMatchObject({
    reason: 'VERSION_MISMATCH',
    metadata: { network: 'net', version: '1' },
  })
  given(network)
    .when(command({ type: 'endRecovery', why: 'x' }) as One)
    .then()
  given(network)
    .when(command({ type: 'resumeHold', hold: null, why: 'x' }) as One)
    .then()
  const hold = (cause: string) => command({ type: 'hold', hold: cause, why: 'x' })
  const resumed = given(network, hold('TOO_MANY_REAPS'), hold('SOURCE_AHEAD')).when(
    command({ type: 'resumeHold', hold: 'SOURCE_AHEAD', why: 'x' }) as One,
  )
  assert.deepEqual(Object.keys(resumed.scene.image.network!.holds), ['TOO_MANY_REAPS'])
  const era = (above: number) =>
    command({ type: 'beginEra', above: above * 2 ** 40, recovering: false, why: 'x' }) as One
  given(network)
    .when(era(LAST_ERA - 1))
    .then('era.begun')
  given(network).when(era(LAST_ERA)).then('refused ILLEGAL_STATE')
})

test.each([
  ['0.0.0.0', true],
  ['0.255.255.255', true],
  ['1.0.0.0', false],
  ['169.253.255.255', false],
  ['169.254.0.0', true],
  ['255.255.255.255', true],
  ['::', true],
  ['::1:0:0', false],
  ['fe80::', true],
  ['fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff', false],
])('an address that is on every host: %s %s', (text, expected) => {
  const address = parseAddress(text)
  assert.equal(!isMalformed(address) && isSpecialPurpose(address), expected)
})

test('an id up to the head never was, one beyond it may be of a later log', () => {
  expect(unknownLease('net/5', 5, 5)).toMatchObject({
    reason: 'LEASE_NOT_FOUND',
    metadata: { leaseId: 'net/5' },
  })
  expect(unknownLease('net/6', 6, 5)).toMatchObject({
    reason: 'LEASE_NOT_FOUND',
    metadata: { leaseId: 'net/6', beyondHead: '5' },
  })
  expect(beyondHead('it', 6, 5)).toMatchObject({
    reason: 'VERSION_MISMATCH',
    metadata: { number: '6', beyondHead: '5' },
  })
})
