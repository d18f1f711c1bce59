/** What Reserve makes of claims and of the settings of a pool, and what a pool may be. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { isHeld } from '../../src/core/image.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import {
  after,
  command,
  expire,
  given,
  HOUR,
  MINUTE,
  network,
  owner,
  pool,
  reapNode,
  register,
  release,
  reserve,
  SECOND,
  source,
} from './given.ts'

const named = (name: string, cidr: string, input: Partial<PoolInput> = {}) => pool(cidr, { name, ...input })
/** Pools of one address each: pool events 2 and 3, the first lease is event 4. */
const two = [network, named('a', '10.0.0.0/32'), named('b', '10.0.1.0/32')]
const either = { claims: [{ pools: ['a', 'b'] }] }
const record = ({ scene }: ReturnType<ReturnType<typeof given>['when']>, address = '10.0.0.1') =>
  scene.image.records.get(address)!

describe('the pools of a claim', () => {
  test('the first that has an address, in the order of the claim', () => {
    given(two).when(reserve('x/1', either)).then('lease.reserved 10.0.0.0 RESERVED #4')
    given(two)
      .when(reserve('x/1', { claims: [{ pools: ['b', 'a'] }] }))
      .then('lease.reserved 10.0.1.0 RESERVED #4')
  })

  test('the next one where the first has none', () => {
    given(two, reserve('x/1', either))
      .when(reserve('y/1', either))
      .then('lease.reserved 10.0.1.0 RESERVED #5')
  })

  test('the next one where the first is draining', () => {
    const draining = [network, named('a', '10.0.0.0/32', { draining: true }), named('b', '10.0.1.0/32')]
    given(draining).when(reserve('x/1', either)).then('lease.reserved 10.0.1.0 RESERVED #4')
  })

  test('the refusal of the last where none has any', () => {
    const { outcome } = given(two, reserve('x/1', either), reserve('y/1', either))
      .when(reserve('z/1', either))
      .then('refused POOL_EXHAUSTED')
    assert.equal(!outcome.ok && outcome.refusal.metadata.pool, 'b')
  })

  test('a limit of the first is no reason for the next', () => {
    const one = { ownerLimit: 1 }
    const limited = [network, named('a', '10.0.0.0/28', one), named('b', '10.0.1.0/28')]
    const second = [reserve('x/1', either), release('x/1', 'UNCONFIRMED')]
    given(limited, second).when(reserve('x/2', either)).then('refused OWNER_LIMIT')
  })

  test('what is held in any of them satisfies it', () => {
    const fromB = reserve('x/1', { claims: [{ pools: ['b'] }] })
    given(two, fromB).when(reserve('x/1', either)).then().answers('10.0.1.0 RESERVED #4 reused')
  })

  test('two claims get one each, and share no pool', () => {
    const both = [named('a', '10.0.0.0/28'), named('b', 'fd00::/120'), named('c', 'fd01::/120')]
    given(network, both)
      .when(reserve('x/1', { claims: [{ pools: ['a'] }, { pools: ['c', 'b'] }] }))
      .then('lease.reserved 10.0.0.1 RESERVED #5', 'lease.reserved fd01::1 RESERVED #6')
    given(network, both)
      .when(reserve('x/1', { claims: [{ pools: ['a', 'b'] }, { pools: ['c', 'b'] }] }))
      .then('refused INVALID_FIELD')
  })

  test('all claims or none: what the first got is given back when the second is refused', () => {
    given(two, reserve('x/1', { claims: [{ pools: ['b'] }] }))
      .when(reserve('y/1', { claims: [{ pools: ['a'] }, { pools: ['b'] }] }))
      .then('refused POOL_EXHAUSTED')
  })
})

describe('the address of a claim', () => {
  const plain = [network, pool('10.0.0.0/26')]
  const live = (count: number) => Array.from({ length: count }, (_, at) => `10.0.0.${at + 1}`)
  const earlier = [plain, reserve('x/1'), release('x/1'), after(5 * MINUTE)]

  test('is the last one of its holder only where the claim prefers it, and of its own pools', () => {
    given(earlier).when(reserve('x/2')).then('lease.reserved 10.0.0.2 RESERVED #5')
    const prefer = { claims: [{ pools: ['pool'], preferPrevious: true }] }
    given(earlier).when(reserve('x/2', prefer)).then('lease.reserved 10.0.0.1 RESERVED #5')
    const other = [plain, named('b', '10.0.1.0/28'), reserve('x/1', { claims: [{ pools: ['b'] }] })]
    given(other, release('x/1'), after(5 * MINUTE))
      .when(reserve('x/2', prefer))
      .then('lease.reserved 10.0.0.1 RESERVED #6')
  })

  test('that its caller sees live is quarantined, and not one that is held', () => {
    const seen = { claims: [{ address: '10.0.0.1' }], liveAddresses: ['10.0.0.1'] }
    given(plain)
      .when(reserve('x/1', seen))
      .then('lease.quarantined 10.0.0.1 QUARANTINED FOREIGN #3', 'refused ADDRESS_QUARANTINED')
    given(plain, reserve('y/1')).when(reserve('x/1', seen)).then('refused ADDRESS_TAKEN')
  })

  test('is refused, and not looked for in the next pool, after 32 in a row that its caller sees', () => {
    const both = [plain, named('b', '10.0.1.0/28')]
    const seen = (count: number) =>
      given(both).when(reserve('x/1', { claims: [{ pools: ['pool', 'b'] }], liveAddresses: live(count) }))
    const { said, outcome } = seen(32)
    assert.equal(said.refused, 'ALL_CANDIDATES_LIVE')
    assert.equal(said.events.length, 32)
    const metadata = { pool: 'pool', skips: '32', skipped: live(32).join(',') }
    assert.deepEqual(!outcome.ok && outcome.refusal.metadata, metadata)
    assert.equal(seen(31).said.events.at(-1), 'lease.reserved 10.0.0.32 RESERVED #35')
  })
})

test.each([
  ['another workload of its name on another node', { uid: 'u2' }, 'n1', 'n2', false],
  ['… placed on none', { uid: 'u2' }, '', 'n2', true],
  ['… by a Reserve that names no node', { uid: 'u2' }, 'n1', '', true],
  ['… that is a pod', { uid: 'u2', kind: 'pod' }, 'n1', 'n2', true],
  ['an earlier life of it on another node', {}, 'n1', 'n2', true],
])('%s is superseded, or the Reserve refused', (_, differs, node, newNode, isSuperseded) => {
  const older = { ...owner('x/1'), ...differs }
  const newer = { ...owner('x/2'), kind: older.kind }
  given([network, pool('10.0.0.0/28')], reserve(older, { node }))
    .when(reserve(newer, { node: newNode }))
    .then(
      ...(isSuperseded
        ? ['lease.quarantined 10.0.0.1 QUARANTINED SUPERSEDED #3', 'lease.reserved 10.0.0.2 RESERVED #5']
        : ['refused ILLEGAL_STATE']),
    )
})

describe('what a pool sets', () => {
  const promised = [network, pool('10.0.0.0/28', { confirmWithinMs: MINUTE })]

  test('its own confirmWithin, unless the caller asks for another or has confirmed', () => {
    const within = (options: Partial<Command<'reserve'>>) => {
      const shown = given(promised).when(reserve('x/1', options))
      const { confirmBy } = record(shown)
      return confirmBy === null ? null : confirmBy - shown.scene.now
    }
    assert.equal(within({}), MINUTE)
    assert.equal(within({ confirmWithinMs: SECOND }), SECOND)
    assert.equal(within({ confirmed: true }), null)
  })

  test('a repeated Reserve promises by it once more', () => {
    const again = [promised, reserve('x/1'), after(30 * SECOND), reserve('x/1')]
    given(again, after(2 * MINUTE))
      .when(expire('10.0.0.1'))
      .then('refused ILLEGAL_STATE')
    given(again, after(2 * MINUTE + 1))
      .when(expire('10.0.0.1'))
      .then('lease.reaped 10.0.0.1 REAPED #3')
  })

  test('its own cooldown, or two intervals of the slowest enabled source if that is longer', () => {
    const rests = (cooldownMs: number, ...more: ReturnType<typeof source>[]) => {
      const shown = given(network, pool('10.0.0.0/28', { cooldownMs }), ...more, reserve('x/1')).when(
        release('x/1'),
      )
      return record(shown).availableAt! - shown.scene.now
    }
    assert.equal(rests(0), 0)
    assert.equal(rests(10 * MINUTE), 10 * MINUTE)
    assert.equal(rests(0, source('a'), source('b', { intervalMs: MINUTE })), 2 * MINUTE)
    assert.equal(rests(0, source('a'), register('b', { intervalMs: MINUTE })), MINUTE)
    assert.equal(rests(10 * MINUTE, source('a')), 10 * MINUTE)
  })
})

describe('what a command says of a lease is written down', () => {
  const said = reserve('x/1', { node: 'n1', labels: { a: 'b' } })

  test('node and labels of a Reserve; a repeated one changes the node only', () => {
    assert.partialDeepStrictEqual(record(given(network, pool('10.0.0.0/28')).when(said)), {
      node: 'n1',
      labels: { a: 'b' },
    })
    const again = given(network, pool('10.0.0.0/28'), said).when(reserve('x/1', { node: 'n2' }))
    assert.partialDeepStrictEqual(record(again), { node: 'n2', labels: { a: 'b' } })
    const silent = given(network, pool('10.0.0.0/28'), said, after(HOUR)).when(reserve('x/1'))
    assert.partialDeepStrictEqual(record(silent), { node: 'n1', labels: { a: 'b' } })
  })

  test('UpdateLabels replaces the labels, at the version it names', () => {
    const update = (version: number | null, labels: object) =>
      command({ type: 'updateLabels', token: 3, version, labels })
    const room = [network, pool('10.0.0.0/28'), said]
    const shown = given(room)
      .when(update(3, { c: 'd' }))
      .then('lease.updated 10.0.0.1 RESERVED #3')
    assert.deepEqual(record(shown).labels, { c: 'd' })
    given(room)
      .when(update(null, { a: 'b' }))
      .then()
    given(room)
      .when(update(2, { c: 'd' }))
      .then('refused VERSION_MISMATCH')
  })

  test('ReapNode ends what is placed on the node up to the number, and nothing else', () => {
    const placed = (who: string, node: string) => reserve(who, { node })
    const all = [placed('x/1', 'n1'), placed('y/1', 'n2'), placed('z/1', ''), placed('w/1', 'n1')]
    const { scene } = given(network, pool('10.0.0.0/28'), all)
      .when((before) => ({ ...(reapNode('n1')(before) as Command<'reapNode'>), head: 5 }))
      .then('lease.reaped 10.0.0.1 REAPED #3')
    const held = [...scene.image.records.values()].filter(isHeld).map(({ owner }) => owner!.name)
    assert.deepEqual(held, ['y', 'z', 'w'])
  })
})

describe('what a pool may be', () => {
  test.each([
    ['0.0.0.0/8', '1.0.0.0/28', null],
    ['127.0.0.0/8', '128.0.0.0/28', '126.255.255.240/28'],
    ['169.254.0.0/16', '169.255.0.0/28', '169.253.255.240/28'],
    ['224.0.0.0/4', null, '223.255.255.240/28'],
    ['255.255.255.255/32', null, null],
    ['::/96', '::1:0:0/124', null],
    ['::ffff:0:0/96', '::1:0:0:0/124', '::fffe:ffff:fff0/124'],
    ['fe80::/10', 'fec0::/124', 'fe7f:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124'],
    ['ff00::/8', null, 'feff:ffff:ffff:ffff:ffff:ffff:ffff:fff0/124'],
  ])('nothing in %s, and what is beside it', (range, ...beside) => {
    const { outcome } = given(network).when(pool(range)).then('refused INVALID_FIELD')
    assert.ok(!outcome.ok && outcome.refusal.message.includes(range))
    for (const cidr of beside.filter((one) => one !== null))
      given(network).when(pool(cidr)).then('pool.created')
  })

  test.each(['10.0.0.15', '10.0.0.32', 'fd00::1'])('no gateway outside of the subnet: %s', (gateway) => {
    given(network).when(pool('10.0.0.16/28', { gateway })).then('refused INVALID_FIELD')
  })

  test.each(['10.0.0.16', '10.0.0.31', '10.0.0.17'])(
    'a gateway inside, which is not leased: %s',
    (gateway) => {
      given(network, pool('10.0.0.16/28', { gateway }))
        .when(reserve('x/1', { claims: [{ address: gateway }] }))
        .then('refused ADDRESS_EXCLUDED')
    },
  )

  test('a subnet contains the cidr on both sides', () => {
    for (const subnet of ['10.0.0.16/29', '10.0.0.24/29', 'fd00::/64'])
      given(network).when(pool('10.0.0.16/28', { subnet })).then('refused INVALID_FIELD')
    given(network)
      .when(pool('10.0.0.16/28', { subnet: '10.0.0.0/24', gateway: '10.0.0.1' }))
      .then('pool.created')
  })
})
