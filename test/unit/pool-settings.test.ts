/** Settings of a pool: one canonical form, and a refusal that names the field (DESIGN §6 "Pool"). */
import { describe, expect, test } from 'vitest'
import { judgePolicy } from '../../src/core/policy.ts'
import { buildPool, type PoolInput, parsePoolSettings, poolSize, settingsOf } from '../../src/core/pool.ts'

const AT = { network: 'default', poolId: 1, version: 1, createdAt: 0, updatedAt: 0 }

const parse = (fields: Partial<PoolInput>) => parsePoolSettings({ name: 'p', cidr: '10.0.0.0/24', ...fields })

function settings(fields: Partial<PoolInput>) {
  const parsed = parse(fields)
  if ('reason' in parsed) throw new Error(parsed.message)
  return parsed
}

test('defaults', () => {
  expect(settings({})).toEqual({
    name: 'p',
    cidr: '10.0.0.0/24',
    subnet: '10.0.0.0/24',
    prefixLength: 32,
    gateway: '',
    exclude: [],
    cooldownMs: 120_000,
    confirmWithinMs: null,
    liveness: 'AVAILABLE',
    ownerLimit: 4,
    isDefault: false,
    draining: false,
    options: { routes: [], dns: [], mtu: 0 },
    labels: {},
  })
  expect(settings({ cidr: 'fd00::/64' }).prefixLength).toBe(128)
  // Zero and empty stand for absent, as protobuf has it.
  expect(settings({ prefixLength: 0, ownerLimit: 0, subnet: '', gateway: '' })).toEqual(settings({}))
})

test('one spelling for one thing', () => {
  expect(
    settings({
      cidr: 'FD00:0:0::/64',
      subnet: 'fd00::0/48',
      gateway: 'FD00::0001',
      exclude: ['FD00:0::5', 'fd00::8/126', 'fd00::1-fd00::0001', 'fd00::10-fd00::1F'],
      options: {
        routes: [
          { destination: '::0/0', gateway: 'FD00::1' },
          { destination: 'fd01::/64', gateway: '' },
        ],
        dns: ['FD00::53', '10.0.0.53'],
        mtu: 9000,
      },
    }),
  ).toMatchObject({
    cidr: 'fd00::/64',
    subnet: 'fd00::/48',
    gateway: 'fd00::1',
    exclude: ['fd00::5', 'fd00::8-fd00::b', 'fd00::1', 'fd00::10-fd00::1f'],
    options: {
      routes: [
        { destination: '::/0', gateway: 'fd00::1' },
        { destination: 'fd01::/64', gateway: '' },
      ],
      dns: ['fd00::53', '10.0.0.53'],
      mtu: 9000,
    },
  })
  // What is canonical stays as it is.
  const once = settings({ exclude: ['10.0.0.8/30'], gateway: '10.0.0.1' })
  expect(settings(once)).toEqual(once)
})

test('of the reap policy only what differs from the defaults, which is nothing in pools made before it', () => {
  const defaults = { misses: 3, minimumAgeMs: 300_000, terminalGraceMs: 300_000 }
  for (const reapPolicy of [{}, defaults, judgePolicy()]) {
    expect(settings({ reapPolicy })).toEqual(settings({}))
    expect(settings({ reapPolicy })).not.toHaveProperty('reapPolicy')
  }
  const set = settings({ reapPolicy: { ...defaults, misses: 4, confirmGraceMs: 1_000.4 } })
  expect(set.reapPolicy).toEqual({ misses: 4, confirmGraceMs: 1_000 })
  expect(settings(set)).toEqual(set)
  expect(settingsOf(buildPool(set, AT))).toEqual(set)
  expect(Object.keys(settingsOf(buildPool(settings({}), AT)))).not.toContain('reapPolicy')
  expect(judgePolicy(set.reapPolicy)).toEqual({
    misses: 4,
    minimumAgeMs: 300_000,
    unwitnessedAgeMs: 3_600_000,
    terminalGraceMs: 300_000,
    proofAgeMs: 60_000,
    confirmGraceMs: 1_000,
  })
})

describe('what makes no sense is refused with its field:', () => {
  const routes = (destination: string, gateway = '') => ({
    options: { routes: [{ destination, gateway }], dns: [], mtu: 0 },
  })
  const mtu = (value: number) => ({ options: { routes: [], dns: [], mtu: value } })

  test.each<[string, Partial<PoolInput>]>([
    ['cidr', { cidr: 'x' }],
    ['cidr', { cidr: '10.0.0.1/24' }],
    ['cidr', { cidr: '10.0.0.0' }],
    ['subnet', { subnet: 'x' }],
    ['subnet', { subnet: '10.0.0.0/25' }],
    ['subnet', { subnet: '10.0.1.0/24' }],
    ['subnet', { cidr: '10.0.1.0/24', subnet: '10.0.0.0/24' }],
    ['subnet', { subnet: 'fd00::/64' }],
    ['prefixLength', { prefixLength: 23 }],
    ['prefixLength', { prefixLength: 33 }],
    ['prefixLength', { prefixLength: 28.5 }],
    ['prefixLength', { prefixLength: -1 }],
    ['prefixLength', { cidr: 'fd00::/64', prefixLength: 129 }],
    ['gateway', { gateway: 'x' }],
    ['gateway', { gateway: '10.0.1.1' }],
    ['gateway', { cidr: '10.0.1.0/24', gateway: '10.0.0.255' }],
    ['gateway', { gateway: 'fd00::1' }],
    // As numbers, these are 10.0.0.0 and on.
    ['gateway', { gateway: '::a00:1' }],
    ['subnet', { subnet: '::a00:0/120' }],
    ['exclude[0]', { exclude: ['::a00:5'] }],
    ['exclude[1]', { exclude: ['10.0.0.1', 'x'] }],
    ['exclude[0]', { exclude: ['10.0.1.0/24'] }],
    ['exclude[0]', { cidr: '10.0.1.0/24', exclude: ['10.0.0.255'] }],
    ['exclude[0]', { exclude: ['fd00::1'] }],
    ['exclude', { exclude: Array(1_025).fill('10.0.0.1') }],
    ['cooldown', { cooldownMs: -1 }],
    ['cooldown', { cooldownMs: Number.NaN }],
    ['cooldown', { cooldownMs: 30 * 86_400_000 + 1 }],
    ['confirmWithin', { confirmWithinMs: 0 }],
    ['confirmWithin', { confirmWithinMs: Number.NaN }],
    ['confirmWithin', { confirmWithinMs: 30 * 86_400_000 + 1 }],
    ['ownerLimit', { ownerLimit: -1 }],
    ['ownerLimit', { ownerLimit: 1.5 }],
    ['ownerLimit', { ownerLimit: 1_000_001 }],
    ['options.dns[0]', { options: { routes: [], dns: ['x'], mtu: 0 } }],
    ['options.routes[0].destination', routes('x')],
    ['options.routes[0].destination', routes('fd00::/64')],
    ['options.routes[0].gateway', routes('0.0.0.0/0', 'x')],
    ['options.routes[0].gateway', routes('0.0.0.0/0', 'fd00::1')],
    ['options.mtu', mtu(67)],
    ['options.mtu', mtu(65_536)],
    ['options.mtu', mtu(1_400.5)],
    ['reapPolicy.misses', { reapPolicy: { misses: 0 } }],
    ['reapPolicy.misses', { reapPolicy: { misses: 9 } }],
    ['reapPolicy.misses', { reapPolicy: { misses: 2.5 } }],
    ['reapPolicy.misses', { reapPolicy: { misses: Number.NaN } }],
    ['reapPolicy.minimumAge', { reapPolicy: { minimumAgeMs: 999 } }],
    ['reapPolicy.minimumAge', { reapPolicy: { minimumAgeMs: 30 * 86_400_000 + 1 } }],
    ['reapPolicy.unwitnessedAge', { reapPolicy: { unwitnessedAgeMs: 0 } }],
    ['reapPolicy.unwitnessedAge', { reapPolicy: { unwitnessedAgeMs: 299_999 } }],
    ['reapPolicy.unwitnessedAge', { reapPolicy: { minimumAgeMs: 3_600_001 } }],
    ['reapPolicy.terminalGrace', { reapPolicy: { terminalGraceMs: Number.NaN } }],
    ['reapPolicy.terminalGrace', { reapPolicy: { terminalGraceMs: 30 * 86_400_000 + 1 } }],
    ['reapPolicy.confirmGrace', { reapPolicy: { confirmGraceMs: -1 } }],
  ])('%s in %j', (field, fields) => {
    const refusal = parse(fields)
    expect(refusal).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field } })
    // Text that cannot be read is quoted.
    if ('message' in refusal && JSON.stringify(fields).includes('"x"'))
      expect(refusal.message).toContain('"x"')
  })

  test.each<Partial<PoolInput>>([
    { exclude: Array(1_024).fill('10.0.0.1') },
    { exclude: ['10.0.0.250-10.0.1.5', '9.0.0.0-10.0.0.0', '0.0.0.0/0'] },
    { exclude: ['10.0.0.0', '10.0.0.255'] },
    { cidr: '10.0.0.0/31', gateway: '10.0.0.0' },
    { cidr: '10.0.0.0/31', gateway: '10.0.0.1' },
    { confirmWithinMs: 30 * 86_400_000 },
    { cooldownMs: 0 },
    { cooldownMs: 30 * 86_400_000 },
    { confirmWithinMs: 1 },
    { confirmWithinMs: null },
    { ownerLimit: 1 },
    { ownerLimit: 1_000_000 },
    { prefixLength: 24 },
    { subnet: '10.0.0.0/8', gateway: '10.255.255.254' },
    mtu(68),
    mtu(65_535),
    { reapPolicy: { misses: 1, minimumAgeMs: 1_000, unwitnessedAgeMs: 1_000 } },
    { reapPolicy: { misses: 8, terminalGraceMs: 1_000, confirmGraceMs: 1_000 } },
    { reapPolicy: { minimumAgeMs: 30 * 86_400_000, unwitnessedAgeMs: 30 * 86_400_000 } },
  ])('but not %j', (fields) => {
    expect(parse(fields)).not.toHaveProperty('reason')
  })
})

describe('the size', () => {
  const size = (fields: Partial<PoolInput>) => poolSize(buildPool(settings(fields), AT))

  test.each<[Partial<PoolInput>, bigint, bigint]>([
    [{}, 256n, 254n],
    [{ cidr: '10.0.0.0/8' }, 2n ** 24n, 2n ** 24n - 2n],
    [{ cidr: 'fd00::/48' }, 2n ** 80n, 2n ** 80n - 1n],
    [{ cidr: 'fd00::/48', prefixLength: 64 }, 2n ** 16n, 2n ** 16n],
    [{ prefixLength: 28, exclude: ['10.0.0.17'] }, 16n, 15n],
    [{ exclude: ['10.0.0.0/25', '10.0.0.128/25'] }, 256n, 0n],
  ])('%j', (fields, whole, leasable) => {
    expect(size(fields)).toEqual({ size: whole, allocatable: leasable })
  })
})

test('settings that were stored and are not canonical are a bug, not a pool', () => {
  expect(() => buildPool({ ...settings({}), cidr: '10.0.0.1/24' }, AT)).toThrow('not canonical')
})
