/** What a Reserve is refused with: the reason, what it is about, and when to try again. */
import { expect, test } from 'vitest'
import {
  after,
  confirm,
  given,
  lists,
  MINUTE,
  network,
  owner,
  pool,
  quarantine,
  release,
  reserve,
  type Step,
  source,
} from './given.ts'

const CIDR = '10.0.0.0/29'
const room: Step = [network, pool(CIDR)]
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

function fillOf(name: string, count: number): Step {
  return Array.from({ length: count }, (_, at) => from(`${name}${at}/1`, name))
}

test('a network that is not there', () => {
  const { outcome } = given().when(reserve('x/1'))
  expect(outcome).toMatchObject({
    ok: false,
    refusal: { reason: 'NETWORK_NOT_FOUND', metadata: { network: 'net' } },
  })
})

test('what is only validated gets an address and no number, and changes nothing', () => {
  const made = given([room, reserve('y/1')]).when(reserve('x/1', { validateOnly: true }))
  expect(made.outcome).toMatchObject({
    ok: true,
    replayed: false,
    answer: { leases: [{ address: '10.0.0.2', leaseId: '', version: 0, fencingToken: 0, reused: false }] },
  })
  made.then()
  expect(made.scene.image.head).toBe(3)
  // What it holds already has its numbers.
  given([room, reserve('y/1')])
    .when(reserve('y/1', { validateOnly: true }))
    .then()
    .answers('10.0.0.1 RESERVED #3 reused')
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
})
