/** What a Reserve is refused with: the reason, what it is about, and when to try again. */
import { describe, expect, test } from 'vitest'
import {
  after,
  command,
  confirm,
  given,
  lists,
  MINUTE,
  network,
  owner,
  pool,
  quarantine,
  register,
  release,
  reserve,
  type Step,
  source,
} from './given.ts'

const CIDR = '10.0.0.0/29'
const room: Step = [network, pool(CIDR)]
const updateNetwork = (closed: boolean) =>
  command({ type: 'updateNetwork', version: null, description: null, labels: null, closed }) as Step
const CLOSE = updateNetwork(true)
const second = pool('10.1.0.0/29', { name: 'second' })
const named = (who: string, address: string) => reserve(who, { claims: [{ address }] })
const from = (who: string, ...pools: readonly string[]) => reserve(who, { claims: [{ pools }] })
const fill = (from: number, to: number): Step =>
  Array.from({ length: to - from + 1 }, (_, at) => reserve(`f${from + at}/1`))

test.each<[string, Step, Exclude<Step, readonly Step[]>, string, object, number?]>([
  [
    'a pool that is not there',
    room,
    from('x/1', 'pool', 'none'),
    'POOL_NOT_FOUND',
    { field: 'claims[0].pools[1]', pool: 'none' },
  ],
  ['no pool of two', [room, second], reserve('x/1'), 'INVALID_FIELD', { field: 'claims' }],
  [
    'no pool in a claim of two',
    [room, second],
    reserve('x/1', { claims: [{}] }),
    'INVALID_FIELD',
    { field: 'claims[0].pool' },
  ],
  [
    'one pool in two claims',
    room,
    reserve('x/1', { claims: [{ pools: ['pool'] }, { pools: ['pool'] }] }),
    'INVALID_FIELD',
    { field: 'claims[1].pools' },
  ],
  [
    'an address of another pool',
    [room, second],
    reserve('x/1', { claims: [{ pools: ['pool'], address: '10.1.0.1' }] }),
    'INVALID_FIELD',
    { field: 'claims[0].address' },
  ],
  [
    'an address inside a block',
    [network, pool('10.0.0.0/24', { prefixLength: 28 })],
    named('x/1', '10.0.0.17'),
    'INVALID_FIELD',
    { field: 'claims[0].address', why: 'leases of pool pool are /28 blocks; did you mean 10.0.0.16?' },
  ],
  [
    'an excluded address',
    room,
    named('x/1', '10.0.0.0'),
    'ADDRESS_EXCLUDED',
    { address: '10.0.0.0', pool: 'pool' },
  ],
  [
    'an address that is held',
    [room, reserve('y/1')],
    named('x/1', '10.0.0.1'),
    'ADDRESS_TAKEN',
    { address: '10.0.0.1', pool: 'pool', leaseId: 'net/3', state: 'RESERVED' },
  ],
  [
    'an address in quarantine',
    [room, quarantine('10.0.0.1')],
    named('x/1', '10.0.0.1'),
    'ADDRESS_QUARANTINED',
    { address: '10.0.0.1', quarantineReason: 'OPERATOR', since: '2026-01-01T00:00:00.000Z' },
  ],
  [
    'an address that its caller sees',
    room,
    reserve('x/1', { claims: [{ address: '10.0.0.1' }], liveAddresses: ['10.0.0.1'] }),
    'ADDRESS_QUARANTINED',
    { address: '10.0.0.1', pool: 'pool', seenBy: 'caller' },
  ],
  [
    'an address that is listed',
    [room, source('s'), reserve('y/1'), lists('s', ['y/1@10.0.0.1']), release('y/1'), after(3 * MINUTE)],
    named('x/1', '10.0.0.1'),
    'ADDRESS_QUARANTINED',
    { address: '10.0.0.1', pool: 'pool', seenBy: 's', sinceSeq: '7' },
  ],
  [
    'an address that rests',
    [room, reserve('y/1'), confirm('y/1'), release('y/1')],
    named('x/1', '10.0.0.1'),
    'ADDRESS_COOLING',
    { address: '10.0.0.1', pool: 'pool', availableAt: '2026-01-01T00:02:00.000Z' },
    2 * MINUTE,
  ],
  [
    'a draining pool',
    [network, pool(CIDR, { draining: true })],
    reserve('x/1'),
    'POOL_DRAINING',
    { pool: 'pool' },
  ],
  ['a closed network', [room, CLOSE], reserve('x/1'), 'NETWORK_CLOSED', { network: 'net' }],
  [
    'a named address of a closed network',
    [room, CLOSE],
    named('x/1', '10.0.0.1'),
    'NETWORK_CLOSED',
    { network: 'net' },
  ],
  [
    'a STRICT pool without a source',
    [network, pool(CIDR, { liveness: 'STRICT' })],
    reserve('x/1', { node: 'n1' }),
    'LIVENESS_STALE',
    { pool: 'pool', node: 'n1', sources: '' },
  ],
  [
    'a STRICT pool whose source has not reported',
    [network, pool(CIDR, { liveness: 'STRICT' }), source('s'), after(10 * MINUTE)],
    reserve('x/1', { node: 'n1' }),
    'LIVENESS_STALE',
    { pool: 'pool', node: 'n1', sources: 's' },
  ],
  [
    'a full node',
    [network, pool(CIDR, { nodeLimit: 1 }), reserve('y/1', { node: 'n1' })],
    reserve('x/1', { node: 'n1' }),
    'NODE_LIMIT',
    { pool: 'pool', node: 'n1', limit: '1' },
  ],
  [
    'an owner at its limit',
    [network, pool(CIDR, { ownerLimit: 1 }), second, from('x/1', 'second'), from('x/1', 'pool')],
    from('x/2', 'pool'),
    'OWNER_LIMIT',
    { pool: 'pool', limit: '1', leases: 'net/5' },
  ],
  [
    'two names with one uid',
    [room, reserve({ ...owner('y/1'), uid: 'u' })],
    reserve({ ...owner('x/1'), uid: 'u' }),
    'ILLEGAL_STATE',
    { leaseId: 'net/3', address: '10.0.0.1' },
  ],
  [
    'another address than it holds',
    [room, reserve('x/1')],
    named('x/1', '10.0.0.2'),
    'ILLEGAL_STATE',
    { leaseId: 'net/3', address: '10.0.0.1' },
  ],
  [
    'a full pool',
    [room, fill(1, 6)],
    reserve('x/1'),
    'POOL_EXHAUSTED',
    { pool: 'pool', cooling: '0', listedBy: '' },
  ],
  [
    'a full pool with one that rests',
    [room, fill(1, 6), release('f3/1')],
    reserve('x/1'),
    'POOL_EXHAUSTED',
    { pool: 'pool', cooling: '1', nextAvailableAt: '2026-01-01T00:02:00.000Z' },
    2 * MINUTE,
  ],
  [
    'a full pool with one that is listed',
    [room, source('s'), fill(1, 6), lists('s', ['f3/1@10.0.0.3']), release('f3/1'), after(3 * MINUTE)],
    reserve('x/1'),
    'POOL_EXHAUSTED',
    { pool: 'pool', listedBy: 's' },
  ],
  [
    'the last pool of a claim that is full',
    [room, second, fillOf('pool', 6), fillOf('second', 6)],
    from('x/1', 'pool', 'second'),
    'POOL_EXHAUSTED',
    { pool: 'second' },
  ],
])('%s is refused', (_, before, when, reason, metadata, retryAfterMs) => {
  const { outcome } = given(before).when(when)
  const refused = outcome.ok ? null : outcome.refusal
  expect(refused).toMatchObject({ reason, metadata })
  expect(refused?.retryAfterMs).toBe(retryAfterMs)
})

const v6 = pool('fd00::/124', { name: 'six' })
const strict = pool(CIDR, { liveness: 'STRICT' })
const of = (who: string, node: string) => reserve(who, { node })
const shut = 'pool pool is STRICT and'

test.each<[string, Step, Exclude<Step, readonly Step[]>]>([
  ['required: network net has no default pool; name a pool', [room, second], reserve('x/1')],
  [
    'required: network net has a default pool of each family (pool, six); name a pool',
    [room, v6],
    reserve('x/1', { claims: [{}] }),
  ],
  [
    '10.1.0.1 is not in pool (10.0.0.0/29), six (fd00::/124)',
    [room, second, v6],
    reserve('x/1', { claims: [{ pools: ['pool', 'six'], address: '10.1.0.1' }] }),
  ],
  ['10.9.0.1 is not in a pool of network net', room, named('x/1', '10.9.0.1')],
  [`${shut} no enabled source sees the node; it hands out nothing`, [network, strict], of('x/1', 'n1')],
  [
    `${shut} no enabled source sees the node; it hands out nothing`,
    [network, strict, source('s', { node: 'n1' }), register('t')],
    of('x/1', 'n2'),
  ],
  [
    `${shut} s has not reported completely; it hands out nothing`,
    [network, strict, source('s', { node: 'n1' }), source('t'), after(MINUTE / 2), lists('t', [])],
    of('x/1', ''),
  ],
  [
    '10.0.0.1 was released recently and rests until 2026-01-01T00:02:00.000Z',
    [room, reserve('y/1'), confirm('y/1'), release('y/1')],
    named('x/1', '10.0.0.1'),
  ],
  [
    '10.0.0.1 was listed as live until recently and rests until 2026-01-01T00:06:00.000Z',
    [
      room,
      source('s'),
      reserve('y/1'),
      lists('s', ['y/1@10.0.0.1']),
      release('y/1'),
      after(2 * MINUTE),
      lists('s', []),
    ],
    named('x/1', '10.0.0.1'),
  ],
  ['pool pool has no free address', [room, fill(1, 6)], reserve('x/1')],
  ['pool pool has no free address; 1 are cooling', [room, fill(1, 6), release('f3/1')], reserve('x/1')],
  [
    'pool pool has no free address; free ones are listed live by s: see ListSightings',
    [
      room,
      second,
      source('s'),
      source('t'),
      fillOf('pool', 6),
      lists('s', ['pool0/1@10.0.0.1', 'pool1/1@10.0.0.2']),
      release('pool0/1'),
      lists('t', ['pool2/1@10.0.0.3', '?@10.1.0.1']),
      after(3 * MINUTE),
    ],
    from('x/1', 'pool'),
  ],
])('%s', (message, before, when) => {
  const { outcome } = given(before).when(when)
  expect(outcome.ok ? null : outcome.refusal.message.replace(/^claims\S+ /, '')).toBe(message)
})

function fillOf(name: string, count: number): Step {
  return Array.from({ length: count }, (_, at) => from(`${name}${at}/1`, name))
}

describe('a network that is closed', () => {
  const closed: Step = [room, reserve('x/1'), CLOSE]

  test('keeps what is held: it is answered again, confirmed and released', () => {
    given(closed).when(reserve('x/1')).then().answers('10.0.0.1 RESERVED #3 reused')
    given(closed).when(confirm('x/1')).then('lease.confirmed 10.0.0.1 ACTIVE #3')
    given(closed).when(release('x/1')).then('lease.released 10.0.0.1 RELEASED #3')
  })

  test('supersedes nothing for a newer life, and gives back nothing to the last holder', () => {
    given(closed).when(reserve('x/2')).then('refused NETWORK_CLOSED')
    const freed: Step = [network, pool(CIDR, { cooldownMs: 0 }), reserve('y/1'), release('y/1'), CLOSE]
    given(freed)
      .when(reserve('y/2', { claims: [{ preferPrevious: true }] }))
      .then('refused NETWORK_CLOSED')
  })

  test('records who lives where all the same', () => {
    given(room, source('wide'), CLOSE)
      .when(lists('wide', ['y/1@10.0.0.2']))
      .then('source.reported wide +10.0.0.2', 'lease.adopted 10.0.0.2 ACTIVE #8')
  })

  test('hands out again when it is opened', () => {
    given(closed, updateNetwork(false)).when(reserve('y/1')).then('lease.reserved 10.0.0.2 RESERVED #6')
  })
})

test('a network that is not there', () => {
  const { outcome } = given().when(reserve('x/1'))
  expect(outcome).toMatchObject({
    ok: false,
    refusal: { reason: 'NETWORK_NOT_FOUND', metadata: { network: 'net' } },
  })
})

const items = (type: string, ...steps: readonly Exclude<Step, readonly Step[]>[]) =>
  ((scene) => ({ ...reserve('x/1')(), type, items: steps.map((step) => step(scene)) })) as Exclude<
    Step,
    readonly Step[]
  >

test('all or nothing names the item that is refused, and does none', () => {
  const made = given(room).when(items('allOrNothing', reserve('x/1'), from('y/1', 'none'), reserve('z/1')))
  expect(made.outcome).toMatchObject({
    ok: false,
    refusal: {
      reason: 'POOL_NOT_FOUND',
      message: 'item 1: claims[0].pools[0]: there is no pool none in network net',
      metadata: { pool: 'none', item: '1' },
    },
  })
  made.then('refused POOL_NOT_FOUND')
})

test('a dry run answers each item, without numbers, and changes nothing', () => {
  const made = given(room).when(items('dryRun', reserve('x/1'), from('y/1', 'none'), reserve('z/1')))
  expect(made.outcome).toMatchObject({
    ok: true,
    answer: {
      leases: [],
      outcomes: [
        { leases: [{ address: '10.0.0.1', leaseId: '', version: 0, fencingToken: 0 }] },
        { reason: 'POOL_NOT_FOUND' },
        { leases: [{ address: '10.0.0.2', leaseId: '', version: 0, fencingToken: 0 }] },
      ],
    },
  })
  made.then()
  expect(made.scene.image.head).toBe(2)
})

test('in a dry run what is held already has its numbers', () => {
  const made = given([room, reserve('y/1')]).when(items('dryRun', reserve('y/1')))
  expect(made.outcome).toMatchObject({
    answer: { outcomes: [{ leases: [{ leaseId: 'net/3', version: 3, reused: true }] }] },
  })
  made.then()
})
