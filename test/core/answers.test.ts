/** What a command about a lease or a source answers or is refused with: the reason, what it is about, when to try again. */
import { expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import {
  after,
  boundTo,
  command,
  confirm,
  decideOnce,
  enable,
  expire,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  on,
  owner,
  pool,
  quarantine,
  reap,
  reapNode,
  reapProven,
  register,
  release,
  reserve,
  type Step,
  source,
} from './given.ts'

type One = Exclude<Step, readonly Step[]>
const CIDR = '10.0.0.0/28'
const room: Step = [network, pool(CIDR)]
/** x/1 at .1 with token 3, on n1. */
const x: Step = [room, reserve('x/1', { node: 'n1', confirmWithinMs: MINUTE })]
const byToken = (type: string, token: number, more: object = {}) =>
  command({
    type,
    lease: { token, owner: null },
    removal: 'CONFIRMED',
    version: null,
    why: 'so',
    token,
    ...more,
  }) as One
const of = (who: string, token: number) => byToken('confirm', token, { lease: { token, owner: owner(who) } })
/** The same with token 6, and a source of its node. */
const watched: Step = [room, source('s', { node: 'n1' }), reserve('x/1', { node: 'n1' })]
const retire = command({ type: 'retireSource', id: 's' })
const held = {
  leaseId: 'net/3',
  address: '10.0.0.1',
  state: 'RESERVED',
  holder: 'container x incarnation 1 (eth0)',
}
const ended = { leaseId: 'net/3', address: '10.0.0.1', state: 'RELEASED' }
const era = command({ type: 'beginEra', above: 0, recovering: true, why: 'so' })

test.each<[string, Step, One, string, object, number?]>([
  ['a Confirm of nothing', room, confirm('x/1'), 'LEASE_NOT_FOUND', { network: 'net' }],
  ['a Confirm after the Release', [x, release('x/1')], confirm('x/1'), 'LEASE_LOST', ended],
  [
    'a Confirm of what was closed',
    [room, release('x/1')],
    confirm('x/1'),
    'ATTACHMENT_CLOSED',
    { owner: held.holder },
  ],
  [
    'a Confirm in quarantine',
    [x, release('x/1', 'UNCONFIRMED')],
    byToken('confirm', 3),
    'ATTACHMENT_CLOSED',
    { owner: held.holder },
  ],
  ['a Confirm of a lease that is not its own', x, of('y/1', 3), 'ILLEGAL_STATE', held],
  ['a Confirm on another node', x, boundTo('n2', byToken('confirm', 3)), 'PERMISSION_DENIED', { node: 'n2' }],
  [
    '… of what has ended there',
    [x, release('x/1')],
    boundTo('n2', byToken('confirm', 3)),
    'LEASE_LOST',
    ended,
  ],
  ['a Release without an incarnation', x, release('x'), 'INVALID_FIELD', { field: 'owner.incarnation' }],
  ['a Release of an id that never was', x, release(2), 'LEASE_NOT_FOUND', { leaseId: 'net/2' }],
  [
    'labels of what has ended',
    [x, release('x/1')],
    byToken('updateLabels', 3, { labels: {} }),
    'LEASE_LOST',
    ended,
  ],
  [
    'labels of an id beyond the log',
    x,
    byToken('updateLabels', 9, { labels: {} }),
    'LEASE_NOT_FOUND',
    { beyondHead: '3' },
  ],
  [
    'a Reap at another version',
    x,
    reap('10.0.0.1', 2),
    'VERSION_MISMATCH',
    { leaseId: 'net/3', expected: '2' },
  ],
  [
    'a Reap in a recovery',
    [x, source('s'), era],
    reap('10.0.0.1'),
    'NETWORK_RECOVERING',
    { network: 'net', state: 'RECOVERING', era: '1' },
    1_000,
  ],
  [
    'a Reap in a hold',
    [x, command({ type: 'hold', hold: 'CLOCK', stepMs: MINUTE, why: 'so' })],
    reap('10.0.0.1'),
    'NETWORK_RECOVERING',
    { state: 'HELD', era: '0' },
    3 * MINUTE,
  ],
  [
    'a Quarantine of a lease that has ended',
    [x, release('x/1')],
    byToken('quarantine', 3, { target: { token: 3 } }),
    'LEASE_LOST',
    ended,
  ],
  [
    'a Quarantine of a lease elsewhere',
    x,
    boundTo('n2', quarantine('10.0.0.1')),
    'PERMISSION_DENIED',
    { node: 'n2' },
  ],
  ['a Quarantine in no pool', x, quarantine('10.1.0.1'), 'INVALID_FIELD', { field: 'address' }],
  [
    'a Quarantine of what is never leased',
    x,
    quarantine('10.0.0.0'),
    'ADDRESS_EXCLUDED',
    { address: '10.0.0.0', pool: 'pool' },
  ],
  ['an expiry before its time', x, expire('10.0.0.1'), 'ILLEGAL_STATE', held, 2 * MINUTE + 1],
  ['an expiry of what has no deadline', [room, reserve('x/1')], expire('10.0.0.1'), 'ILLEGAL_STATE', held],
  [
    'an expiry of what was confirmed',
    [x, confirm('x/1')],
    expire('10.0.0.1'),
    'ILLEGAL_STATE',
    { ...held, state: 'ACTIVE' },
  ],
  [
    'a node beyond the log',
    x,
    { ...reapNodeAt(9) }.step,
    'VERSION_MISMATCH',
    { number: '9', beyondHead: '3' },
  ],
  [
    'a Confirm by an owner of what nobody holds',
    [room, quarantine('10.0.0.5')],
    of('x/1', 3),
    'ILLEGAL_STATE',
    { leaseId: 'net/3', address: '10.0.0.5' },
  ],
  [
    'a Confirm of a quarantined lease whose pool gave no other',
    [x, quarantine('10.0.0.1')],
    confirm('x/1'),
    'ILLEGAL_STATE',
    { ...held, state: 'QUARANTINED' },
  ],
  [
    'a Reap of an id beyond the log',
    x,
    byToken('reap', 9, { version: 3 }),
    'LEASE_NOT_FOUND',
    { beyondHead: '3' },
  ],
  ['a node in a recovery', [x, era], reapNode('n1'), 'NETWORK_RECOVERING', { network: 'net' }],
  ['a node that reports', watched, reapNode('n1'), 'ILLEGAL_STATE', { node: 'n1', source: 's' }],
  ['a reap without proof', x, reapProven('10.0.0.1'), 'ILLEGAL_STATE', { address: '10.0.0.1' }],
  ['to enable a source that is not there', room, enable('s'), 'SOURCE_NOT_FOUND', { source: 's' }],
  ['… to retire it', room, retire, 'SOURCE_NOT_FOUND', { source: 's' }],
  ['… a report of it', room, lists('s', []), 'SOURCE_NOT_FOUND', { source: 's' }],
  ['to enable one that is retired', [watched, retire], enable('s'), 'ILLEGAL_STATE', { state: 'RETIRED' }],
  ['… to register it', [watched, retire], register('s'), 'ILLEGAL_STATE', { state: 'RETIRED' }],
  ['another node for a source', watched, register('s', { node: 'n2' }), 'ILLEGAL_STATE', { source: 's' }],
])('%s is refused', (_, before, when, reason, metadata, retryAfterMs) => {
  const { outcome } = given(before).when(when)
  const refused = outcome.ok ? null : outcome.refusal
  expect(refused).toMatchObject({ reason, metadata })
  expect(refused?.retryAfterMs).toBe(retryAfterMs)
})

function reapNodeAt(head: number) {
  return { step: (scene: Parameters<One>[0]) => ({ ...reapNode('n1')(scene), head }) }
}

const reserved = '10.0.0.1 RESERVED #3'
test.each<[string, Step, One, readonly string[], readonly string[]]>([
  ['a Confirm confirms', x, confirm('x/1'), ['lease.confirmed 10.0.0.1 ACTIVE #3'], ['10.0.0.1 ACTIVE #3']],
  ['… once', [x, confirm('x/1')], confirm('x/1'), [], ['10.0.0.1 ACTIVE #3']],
  ['a Release answers what has ended', [x, release('x/1')], release('x/1'), [], ['10.0.0.1 RELEASED #3']],
  ['… also by its id', [x, release('x/1')], release(3), [], ['10.0.0.1 RELEASED #3']],
  [
    '… and nothing of what its caller may not touch',
    x,
    boundTo('n2', release('x/1')),
    ['attachment.closed x/1'],
    [],
  ],
  ['labels that are as they were', x, byToken('updateLabels', 3, { labels: {} }), [], [reserved]],
  [
    'a second quarantine',
    [x, quarantine('10.0.0.1')],
    quarantine('10.0.0.1'),
    [],
    ['10.0.0.1 QUARANTINED #3'],
  ],
  [
    'a Reap answers what ended',
    x,
    reap('10.0.0.1'),
    ['lease.reaped 10.0.0.1 REAPED #3'],
    ['10.0.0.1 REAPED #3'],
  ],
  [
    'an expiry answers what ended',
    [x, after(2 * MINUTE + 1)],
    expire('10.0.0.1'),
    ['lease.reaped 10.0.0.1 REAPED #3'],
    ['10.0.0.1 REAPED #3'],
  ],
  ['a source registered as it is', watched, register('s', { node: 'n1' }), [], []],
  ['a source enabled again', watched, enable('s'), [], []],
  ['a source that lists nothing is retired', watched, retire, ['source.retired'], []],
  ['… once', [watched, retire], retire, [], []],
  [
    'a node whose source is retired is reaped',
    [watched, retire],
    reapNode('n1'),
    ['lease.reaped 10.0.0.1 REAPED #6'],
    ['10.0.0.1 REAPED #6'],
  ],
  [
    '… and one whose source never reported',
    [x, register('s', { node: 'n1' })],
    reapNode('n1'),
    ['lease.reaped 10.0.0.1 REAPED #3'],
    ['10.0.0.1 REAPED #3'],
  ],
  [
    '… and what its source listed is over',
    [watched, lists('s', ['y/1@10.0.0.5']), after(2 * MINUTE)],
    reapNode('n1'),
    ['source.reported s -10.0.0.5', 'lease.reaped 10.0.0.1 REAPED #6', 'lease.reaped 10.0.0.5 REAPED #8'],
    ['10.0.0.1 REAPED #6', '10.0.0.5 REAPED #8'],
  ],
  [
    '… up to the head that was seen',
    [watched, lists('s', ['y/1@10.0.0.5']), after(2 * MINUTE)],
    reapNodeAt(6).step,
    ['source.reported s -10.0.0.5', 'lease.reaped 10.0.0.1 REAPED #6'],
    ['10.0.0.1 REAPED #6'],
  ],
  [
    '… and what was listed behind it stays',
    [watched, lists('s', ['y/1@10.0.0.5']), after(2 * MINUTE)],
    reapNodeAt(5).step,
    ['source.reported s'],
    [],
  ],
  [
    'a source of the whole network that lists a lease on the node does not keep it',
    [room, source('s'), reserve('x/1', { node: 'n1' }), on('n1', lists('s', ['x/1@10.0.0.1']))],
    reapNode('n1'),
    ['lease.reaped 10.0.0.1 REAPED #6'],
    ['10.0.0.1 REAPED #6'],
  ],
  [
    '… one that lists it on another does',
    [room, source('s'), reserve('x/1', { node: 'n1' }), on('n2', lists('s', ['x/1@10.0.0.1']))],
    reapNode('n1'),
    [],
    [],
  ],
  [
    'a Confirm of the fresh lease, beside the quarantined one of its pool',
    [x, quarantine('10.0.0.1'), reserve('x/1', { node: 'n1' })],
    confirm('x/1'),
    ['lease.confirmed 10.0.0.2 ACTIVE #5'],
    ['10.0.0.2 ACTIVE #5'],
  ],
  [
    'a Reserve again with a nearer deadline leaves that of the promise',
    [room, reserve('x/1', { confirmWithinMs: HOUR }), after(HOUR / 2)],
    reserve('x/1', { confirmWithinMs: MINUTE }),
    [],
    ['10.0.0.1 RESERVED #3 reused'],
  ],
  [
    'a Release long after the Release',
    [x, release('x/1'), after(POLICY.retryHorizonMs)],
    release('x/1'),
    [],
    ['10.0.0.1 RELEASED #3'],
  ],
  [
    'a Release again of an earlier life',
    [x, release('x/1'), reserve('x/2'), release('x/2')],
    release('x/1'),
    [],
    ['10.0.0.1 RELEASED #3'],
  ],
  [
    'a Release of what a source lists for an owner it does not know',
    [room, source('s'), reserve('x/1'), release('x/1', 'UNCONFIRMED'), lists('s', ['?@10.0.0.1'])],
    release('x/1'),
    [],
    ['10.0.0.1 QUARANTINED #6'],
  ],
  [
    'a Release of an address that nobody holds, and a source lists',
    [room, source('s'), quarantine('10.0.0.5'), lists('s', ['y/1@10.0.0.5'])],
    release(6),
    [],
    ['10.0.0.5 QUARANTINED #6'],
  ],
  [
    'a Quarantine of a free address by a node',
    room,
    boundTo('n2', quarantine('10.0.0.5')),
    ['lease.quarantined 10.0.0.5 QUARANTINED OPERATOR #3'],
    ['10.0.0.5 QUARANTINED #3'],
  ],
])('%s', (_, before, when, events, leases) => {
  given(before)
    .when(when)
    .then(...events)
    .answers(...leases)
})

test.each<[string, Step, One, object | null]>([
  ['a Release', x, release('x/1'), null],
  ['a Release of a node', x, boundTo('n1', release('x/1')), { tokenNode: 'n1' }],
  [
    'a list that ends with its node',
    [watched, lists('s', ['y/1@10.0.0.5']), after(2 * MINUTE)],
    reapNodeAt(5).step,
    { source: 's', epoch: 'e1', sequence: 0, head: 5, appeared: [], vanished: [], closed: true },
  ],
])('the details of %s', (_, before, when, details) => {
  expect(given(before).when(when).scene.events.at(-1)).toMatchObject({ details })
})

test('a network has so many sources and no more', () => {
  const { scene } = given(room).when(register('s'))
  const { sources } = scene.image
  for (let i = 2; i < POLICY.sources; i++) sources.set(`s${i}`, sources.get('s')!)
  const takes = (id: string) => decideOnce(scene, register(id, { intervalMs: 1 })()).outcome.ok
  expect(['last', 'beyond', 's'].map(takes)).toEqual([true, false, true])
})

const free = 'reserve:f@10.0.0.9'
test.each<[string, Step, number, number]>([
  ['a lease that only it covers', reserve('x/1', { node: 'n1' }), 1, 0],
  ['no lease that another covers, too', reserve('pod:p/1', { node: 'n1' }), 0, 0],
  ['no lease that only another covers', reserve('pod:p/1', { node: 'n2' }), 0, 0],
  ['no lease that has ended', [reserve('x/1', { node: 'n1' }), release('x/1')], 0, 0],
  ['a free address that only it lists', lists('s', [free]), 0, 1],
  ['… also if another lists it as ended', [lists('s', [free]), lists('pods', [`${free}!`])], 0, 1],
  ['no address that another lists, too', [lists('s', [free]), lists('pods', [free])], 0, 0],
  ['no address that only another lists', lists('pods', [free]), 0, 0],
  ['no address that it lists no more', [lists('s', [free]), lists('s', [])], 0, 0],
  ['no address of no pool', lists('s', ['reserve:f@10.9.0.9']), 0, 0],
  ['no address that is held', [reserve('x/1'), lists('s', ['reserve:f@10.0.0.1'])], 0, 0],
])('a source that is retired leaves unwatched %s', (_, step, unwitnessed, unlisted) => {
  const sources = [source('s', { node: 'n1' }), source('pods', { ownerKinds: ['pod'] })]
  const { outcome } = given(room, sources, step).when(retire)
  expect(outcome.ok && outcome.answer).toMatchObject({ unwitnessed, unlisted })
})
