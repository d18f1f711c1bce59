/** What the image knows after what happened, and what a command answers by it. Times are seconds after the start. */
import { expect, test } from 'vitest'
import { change } from '../../src/core/batch.ts'
import { isSame, ownerOf } from '../../src/core/evolve.ts'
import { createHeap } from '../../src/core/heap.ts'
import * as images from '../../src/core/image.ts'
import { POLICY } from '../../src/core/policy.ts'
import { canonical } from '../support/canonical.ts'
import {
  after,
  answers,
  boundTo,
  command,
  confirm,
  decideOnce,
  expire,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  newScene,
  on,
  owner,
  play,
  pool,
  quarantine,
  reap,
  reapProven,
  register,
  release,
  reserve,
  type Scene,
  SECOND,
  START,
  type Step,
  source,
} from './given.ts'

type One = Exclude<Step, readonly Step[]>
const IT = '10.0.0.1'
const room: Step = [network, pool('10.0.0.0/28')]
/** A warm source: events 3 to 5, a minute after the start. */
const seen: Step = [room, source('agent')]
const named = (who: string, address = IT) => reserve(who, { claims: [{ address }] })
const x = reserve('x/1', { confirmed: true, node: 'n1' })
const sees = (...entries: readonly string[]) => lists('agent', entries)
const label = (token: number) =>
  command({ type: 'updateLabels', token, version: null, labels: { a: 'b' } }) as One
const drop = command({ type: 'deletePool', name: 'pool', version: null })
const secondsOf = (time: number | null) => (time === null ? 0 : (time - START) / SECOND)

/** After each step, what is known of it. */
function story(
  known: (scene: Scene) => unknown,
  before: Step,
  ...steps: readonly (readonly [Step, unknown])[]
) {
  const scene = newScene()
  play(scene, [before])
  for (const [index, [step, expected]] of steps.entries()) {
    play(scene, [step])
    expect(known(scene), `step ${index}`).toEqual(expected)
  }
}

/** Who, since which event, of a list begun at which head, and when; then what became of it. */
const listed = ({ image }: Scene) =>
  images.sightingsOf(image, IT).map((one) => {
    const { appearedSeq, appearedHead, appearedAt, vanishedSeq, terminalSeq, terminalAt, restsUntil } = one
    const since = `${one.owner?.name ?? '?'} ${appearedSeq}/${appearedHead} at ${secondsOf(appearedAt)}`
    const gone = vanishedSeq === null ? '' : ` gone ${vanishedSeq}`
    const ended = terminalSeq === null ? '' : ` ended ${terminalSeq} at ${secondsOf(terminalAt)}`
    return `${since}${gone}${ended}${restsUntil === null ? '' : ` rests to ${secondsOf(restsUntil)}`}`
  })
/** A source that is not enabled lists an owner at an address: that only protects. Retired, it lists it no more. */
const protects = (id: string, who: string, at = IT): Step => [register(id), lists(id, [`${who}@${at}`])]
const retire = (id: string) => command({ type: 'retireSource', id }) as One
const rested: Step = [seen, protects('d', 'y/1'), retire('d')]

test('what is listed where a lease is held is remembered with its end for as long as it is held', () => {
  story(
    listed,
    [seen, x],
    [sees(`x/1@${IT}`), ['x 7/6 at 90']],
    [sees(`x/1@${IT}!`), ['x 7/6 at 90 ended 8 at 120']],
    [sees(`x/1@${IT}`), ['x 7/6 at 90']],
    [sees(), ['x 7/6 at 90 gone 10']],
    [label(6), ['x 7/6 at 90 gone 10']],
    [sees(`x/1@${IT}`), ['x 12/11 at 210']],
    [[sees(), release('x/1')], []],
  )
})

test('what is listed as ended at a free address keeps its end and rest, whoever has it and wherever it is', () => {
  const known = ['y 6/5 at 90 ended 6 at 90 rests to 210']
  const elsewhere = on('n2', sees(`y/1@${IT}!`))
  story(listed, seen, [sees(`y/1@${IT}!`), known], [named('y/1'), known], [elsewhere, known])
  const beside = [seen, protects('d', 'w/1'), sees(`y/1@${IT}!`), retire('d'), after(HOUR)]
  const still = 'y 8/7 at 120 ended 8 at 120 rests to 240'
  story(listed, beside, [sees(`y/1@${IT}!`, 'z/1@10.0.0.9'), [still]])
})

test('what rests is forgotten with the next lease, quarantine, or list after its time', () => {
  const missing = ['y 11/10 at 120 gone 13']
  const other = [after(MINUTE), sees('z/1@10.0.0.9')]
  const own = [named('y/1'), sees(`y/1@${IT}`), sees()]
  story(listed, rested, [[], ['y 7/6 at 90 gone 8 rests to 210']], [own, missing], [other, missing])
  story(listed, rested, [named('y/1'), []])
  story(listed, rested, [quarantine(IT), []])
  const long = pool('10.0.1.0/28', { name: 'long', cooldownMs: 10 * MINUTE })
  const three = [protects('e', 'y/1', '10.0.1.1'), protects('d', 'y/1'), protects('f', 'y/1', '10.0.1.2')]
  const held = [named('x/1', '10.0.0.2'), sees('x/1@10.0.0.2'), sees()]
  const before = [seen, long, held, three, ['e', 'd', 'f'].map(retire), after(90 * SECOND)]
  const keys = ['10.0.0.2', '10.0.0.9', '10.0.1.1', '10.0.1.2']
  story(({ image }) => [...image.sightings.keys()].sort(), before, [sees('z/1@10.0.0.9'), keys])
})

test('when a contested lease ends, what was missed of it is forgotten, and of others kept', () => {
  const n = (i: number, ...entries: string[]) => lists(`n${i}`, entries)
  const nodes = [1, 2].map((i) => source(`n${i}`, { node: `n${i}` }))
  const missed = [n(1, `x/1@${IT}`), n(2, `y/1@${IT}`, `?@${IT}`), n(1), n(2)]
  const kept = ['y 11/10 at 180 gone 13', '? 11/10 at 180 gone 13']
  story(listed, [room, nodes, x, missed], [release('x/1'), kept])
})

test('an address rests until the last of all that was there has rested', () => {
  const until = ({ image }: Scene) => secondsOf(images.readyAt(image, IT))
  const before = [seen, protects('d', 'y/1'), protects('e', 'w/1'), retire('e'), after(MINUTE)]
  story(until, before, [retire('d'), 300])
  story(until, seen, [sees(`y/1@${IT}!`), 210], [named('y/1'), 0], [release('y/1'), 210])
})

test('inside a block each address is listed by itself; in no pool it is forgotten with its list', () => {
  const addresses = ({ image }: Scene) => [...image.sightings.values()].flat().map((one) => one.address)
  const [two, three, far] = ['y/1@10.0.0.2', 'y/1@10.0.0.3', 'y/1@9.9.9.9'] as const
  const blocks = [network, pool('10.0.0.0/28', { prefixLength: 30 }), reserve('x/1'), source('agent')]
  story(
    addresses,
    blocks,
    [sees(two, far), ['10.0.0.2', '9.9.9.9']],
    [sees(two, three, far), ['10.0.0.2', '10.0.0.3', '9.9.9.9']],
    [sees(two), ['10.0.0.2', '10.0.0.3']],
  )
})

test('a source keeps the epoch that its first list opened, a pool the time when it was made', () => {
  const epoch = { name: 'e1', seq: 5, head: 4, at: START + 30 * SECOND }
  story(({ image }) => image.sources.get('agent')!.epoch, seen, [sees('z/1@10.0.0.9'), epoch])
  const change = command({ type: 'updatePool', name: 'pool', version: null, change: { draining: true } })
  story(({ image }) => image.pools.get(2)!.pool.createdAt, seen, [change, START])
})

test('reaps count by absence only, for an hour, or until an operator has looked', () => {
  const three = [1, 2, 3].map((i) => reserve(`x${i}/1`, { confirmed: true }))
  const gone = [1, 2].map((i) => answers('agent', `x${i}/1`, `10.0.0.${i}`, 'gone'))
  const hold = command({ type: 'hold', hold: 'TOO_MANY_REAPS', why: 'so' })
  story(
    ({ image, now }) => image.reaps.map((time) => now - time),
    [seen, three, after(2 * HOUR), [0, 1, 2].map(() => sees()), gone],
    [reap('10.0.0.3'), []],
    [reapProven(IT), [0]],
    [[after(HOUR), reapProven('10.0.0.2')], [0]],
    [[hold, command({ type: 'resumeHold', hold: null, why: 'so' })], []],
  )
})

test('attachments are closed for a while, those of an incarnation only', () => {
  story(
    ({ image, now }) => [...image.closings.values()].map((time) => (now - time) / SECOND),
    [room, x],
    [reserve('x/2'), [0]],
    [[after(SECOND), label(3)], [1]],
    [[reserve('q'), reserve('q/2')], [1]],
    [[after(POLICY.retryHorizonMs - SECOND), release('y/1')], [0]],
  )
})

test('a lease counts on the node that holds it, and on the one that quarantined it if that is another', () => {
  story(
    ({ image }) => Object.fromEntries(image.pools.get(2)!.heldOn),
    [room, [1, 2].map((i) => source(`n${i}`, { node: `n${i}` })), x, reserve('free')],
    [lists('n1', [`y/1@${IT}`]), { n1: 1 }],
    [[reserve('w/1', { node: 'n1' }), lists('n2', ['v/1@10.0.0.3'])], { n1: 2, n2: 1 }],
    [quarantine('10.0.0.3'), { n1: 2 }],
  )
})

/** The events of what is refused and why, or the leases that are answered. */
const said = (before: Step, step: One) => {
  const { events, refused, leases } = given(before).when(step).said
  return (refused === null ? leases : [...events, refused]).join(', ')
}
const twice = (step: One, requestId: string | null = 'r') =>
  ((scene) => ({ ...step(scene)!, requestId, fingerprint: 'f' })) as One
const ends = twice(release('x/1'))
const other = twice(reserve('y/1'), null)
const poolAfter = (list: One): Step => [network, source('agent'), list, pool('10.0.0.0/28')]
const uid = (name: string) => reserve({ ...owner('web/1'), uid: name })
const tiny: Step = [network, pool('10.0.0.0/30', { cooldownMs: 0 })]
const two: Step = [reserve('a/1'), reserve('b/1'), release('a/1'), release('b/1')]
const ended: Step = [tiny, two, named('a/2'), release('a/2')]
const both = { liveAddresses: [IT, '10.0.0.2'] }
const all = command({ type: 'allOrNothing', items: [reserve('x/1', both)()] }) as One
const closed: Step = [room, release('x/1'), after(POLICY.retryHorizonMs)]
const superseded: Step = [room, x, reserve('x/2')]
const old: Step = [superseded, release(3), release('x/2')]
const kept: Step = [room, x, boundTo('n1', release('x/1', 'UNCONFIRMED')), after(HOUR)]
const endless: Step = [room, reserve('a'), release(3, 'UNCONFIRMED')]
const limited: Step = [network, pool('10.0.0.0/28', { ownerLimit: 2 }), uid('1'), uid('2')]
const dry: Step = [room, reserve('x/1', { confirmWithinMs: MINUTE }), protects('d', 'x/1'), retire('d')]
const six: Step = [room, pool('fd00::/124', { name: 'six' }), reserve('x/1'), label(4)]
const previous = reserve('x/3', { claims: [{ preferPrevious: true }] })

test.each<[string, Step, One, string]>([
  ['reaped: what was superseded stays closed', [superseded, reap(IT)], x, 'ATTACHMENT_CLOSED'],
  ['superseded: closed on every node', [superseded, after(HOUR)], x, 'ATTACHMENT_CLOSED'],
  ['quarantined by a caller of a node: closed there', kept, x, 'ATTACHMENT_CLOSED'],
  ['… and not elsewhere', kept, reserve('x/1', { node: 'n2' }), '10.0.0.2 RESERVED #5'],
  ['closed so long and no longer', closed, reserve('x/1'), '10.0.0.1 RESERVED #4'],
  ['no incarnation: never closed', endless, reserve('a'), '10.0.0.2 RESERVED #5'],
  ['of two previous addresses the last', old, previous, '10.0.0.2 RESERVED #8'],
  ['of two that have rested the first that ended', ended, reserve('c/1'), '10.0.0.2 RESERVED #9'],
  ['all uids of a name have one limit', limited, uid('3'), 'OWNER_LIMIT'],
  ['confirmed in the order of their numbers', six, confirm('x/1'), '10.0.0.1 ACTIVE #4, fd00::1 ACTIVE #5'],
  ['a promise expires that only a retired source saw', [dry, after(HOUR)], expire(IT), '10.0.0.1 REAPED #3'],
  ['a new pool leases what is listed as ended', poolAfter(sees(`w/1@${IT}!`)), x, '10.0.0.1 ACTIVE #7'],
  ['… and not as live as well', poolAfter(sees(`w/1@${IT}!`, `y/1@${IT}`)), x, '10.0.0.2 ACTIVE #7'],
  ['nor does a batch that is refused', tiny, all, 'POOL_EXHAUSTED'],
  ['a Release is repeated: it promised nothing', [room, x, ends], ends, '10.0.0.1 RELEASED #3'],
  ['a request without an id repeats none', [room, twice(x, 'null')], other, '10.0.0.2 RESERVED #4'],
  [
    'a lease outlives its pool in answers',
    [[room, x, ends], after(HOUR), drop],
    release('x/1'),
    '10.0.0.1 RELEASED #3',
  ],
])('%s', (_, before, when, expected) => {
  expect(said(before, when)).toBe(expected)
})

test('an answer says all of a lease, and whether it was given before', () => {
  const asks = twice(reserve('x/1', { node: 'n1' }))
  const lease = {
    ...{ leaseId: 'net/3', network: 'net', pool: 'pool', poolId: 2, subnet: '10.0.0.0/28', gateway: '' },
    ...{ options: { routes: [], dns: [], mtu: 0 }, address: IT, prefixLength: 32, state: 'RESERVED' },
    ...{ owner: owner('x/1'), node: 'n1', labels: {}, version: 3, fencingToken: 3, reused: false },
    ...{ reservedAt: START, confirmedAt: null, confirmBy: null, quarantine: null, availableAt: null },
    endedAt: null,
  }
  const { outcome, scene } = given(room).when(asks)
  expect(outcome).toEqual({ ok: true, replayed: false, answer: { leases: [lease] } })
  expect(scene.image.records.get(IT)!.ended).toBe(null)
  expect(given(room, asks).when(asks).outcome).toEqual({ ...outcome, replayed: true })
  expect(given(room, x, after(SECOND)).when(release('x/1')).outcome).toMatchObject({
    answer: { leases: [{ state: 'RELEASED', version: 4, endedAt: START + SECOND }] },
  })
  const batch = command({ type: 'allOrNothing', items: [reserve('x/1', { node: 'n1' })()] }) as One
  const batched = { leases: [], items: [{ leases: [lease] }] }
  expect(given(room).when(batch).outcome).toMatchObject({ answer: batched, replayed: false })
  const tried = command({ type: 'dryRun', items: [batch(scene)] }) as One
  const unnumbered = { leases: [{ ...lease, leaseId: '', version: 0, fencingToken: 0 }] }
  expect(given(room).when(tried).outcome).toMatchObject({
    answer: { outcomes: [{ leases: [], items: [unnumbered] }] },
  })
})

test('a repeated request says why it is refused; without an id none is remembered', () => {
  const lost = given(room, twice(x), quarantine(IT)).when(twice(x)).outcome
  const metadata = { leaseId: 'net/3', address: IT }
  expect(lost).toMatchObject({ refusal: { reason: 'LEASE_LOST', metadata } })
  const other = given(room, twice(x)).when(reserve('x/1', { requestId: 'r', fingerprint: 'g' })).outcome
  expect(other).toMatchObject({ refusal: { reason: 'REQUEST_ID_REUSED', metadata: { requestId: 'r' } } })
  expect(given(room).when(x).scene.requests.size).toBe(0)
})

test('a holder is one kind, name and interface, an attachment one uid', () => {
  const web = owner('web/1')
  const others = [{ kind: 'pod' }, { interface: 'eth1' }, { name: 'other', uid: 'web', incarnation: '2' }]
  const all = [web, ...others.map((other) => ({ ...web, ...other }))]
  const scene = newScene()
  play(scene, [room, ...all.map((who) => reserve(who))])
  for (const who of all)
    expect(images.leasesOfHolder(scene.image, who).map((lease) => lease.owner)).toEqual([who])
  play(scene, [reserve('web/3'), label(3)])
  expect(images.leasesOfHolder(scene.image, web).map(({ token }) => token)).toEqual([3, 8])
  const of = (name?: string, id?: string) => ownerOf({ address: IT, kind: 'pod', name, uid: id } as never)
  expect([of('a', 'b'), of('a'), of(undefined, 'b')]).toMatchObject([
    { name: 'a', uid: 'b' },
    { name: 'a', uid: 'a' },
    { name: 'b', uid: 'b' },
  ])
  const unknown = { source: 's', owner: null } as images.Sighting
  expect([isSame(unknown, 's', null), isSame(unknown, 's', web)]).toEqual([true, false])
})

test('free addresses go out by when they have rested, then by when they ended, then lowest first', () => {
  const freed = (availableAt: number, seq: number, address: string) => ({ availableAt, seq, address })
  const inOrder = [freed(1, 9, 'z'), freed(2, 1, 'z'), freed(2, 2, 'a'), freed(2, 2, 'b')]
  expect(inOrder.toReversed().sort(images.compareFreed)).toEqual(inOrder)
  expect([...inOrder].sort(images.compareFreed)).toEqual(inOrder)
  const heap = createHeap<number>((a, b) => a < b)
  for (const one of [3, 1, 4, 1, 5, 2]) heap.push(one)
  expect(heap.size).toBe(6)
  expect([1, 2, 3, 4, 5, 6, 7].map(() => heap.pop()).join(' ')).toBe('1 1 2 3 4 5 ')
})

test('of a pool that has touched so many, what has rested goes out first', () => {
  for (const state of ['FREE', 'RESERVED', 'ACTIVE', 'QUARANTINED'] as const)
    for (const missing of [0, 1]) {
      const { image, now } = given(room, reserve('x/1')).when(release('x/1')).scene
      const poolState = image.pools.get(2)!
      Object.assign(poolState.counts, { FREE: 0, [state]: POLICY.touchFirst - missing })
      const expected = missing === 0 ? IT : '10.0.0.2'
      expect(images.takeCandidate(image, poolState, now + HOUR), state).toBe(expected)
    }
})

test('a queue of free addresses drops what went stale once it is long', () => {
  const { image, now } = given(room, reserve('c/1'), two, release('c/1')).when(named('c/2')).scene
  const poolState = image.pools.get(2)!
  while (poolState.free.size < 1_024) images.pushFree(image, poolState, '10.0.0.2')
  images.pushFree(image, poolState, '10.0.0.2')
  expect([poolState.free.size, images.nextCooledAt(image, poolState)! > now]).toEqual([2, true])
})

test('an image is the same in whichever order pools, addresses and what is listed are loaded', () => {
  const listed = [protects('d', 'y/1', '10.0.0.2'), protects('e', 'y/1', '192.168.0.1'), retire('d')]
  const before = [seen, listed, x, release('x/1'), after(HOUR)]
  const { image, now } = given(before).when(named('z/1', '10.0.0.3')).scene
  const { network: settings, head, at, reaps, sources, records, sightings } = image
  for (const isPoolFirst of [true, false]) {
    const loaded = images.newImage('net')
    images.assign(loaded, { network: settings, head, at, reaps })
    for (const one of sources.values()) images.putSource(loaded, one.declaration.id, one)
    const { pool: one } = image.pools.get(2)!
    if (isPoolFirst) images.putPool(loaded, 2, one)
    for (const [seen] of sightings.values()) images.putSightings(loaded, seen!.address, [seen!])
    for (const record of records.values()) images.put(loaded, record.address, record)
    if (!isPoolFirst) images.putPool(loaded, 2, one)
    expect({ ...canonical(loaded, now), closings: [] }).toEqual({ ...canonical(image, now), closings: [] })
  }
})

test('a pool counts no address that is inside one of its blocks', () => {
  const before = [room, named('x/1', '10.0.0.5'), release('x/1'), after(HOUR), drop]
  const { image } = given(before).when(pool('10.0.0.0/28', { prefixLength: 30 })).scene
  expect([...image.pools.values()].map(({ counts }) => counts.FREE)).toEqual([0])
})

test('what cannot be is an error', () => {
  const by = release('x/1')()
  const { scene } = given(room, x).when(() => by)
  const record = scene.image.records.get(IT)!
  const { batch } = decideOnce(scene, by)
  expect(() => change(batch, by, 'confirm', record)).toThrow('confirm: no row for 10.0.0.1, which is FREE')
  expect(() => images.rollback(images.newImage('net'), 0)).toThrow('no journal is open')
  expect(() => images.addressValue('x')).toThrow('not an address: x')
})
