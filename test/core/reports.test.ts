/** How a source stands after reports that are late, partial, or of another life. */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { freshnessAfter, isSpaced } from '../../src/core/decide-report.ts'
import { newImage } from '../../src/core/image.ts'
import { conditionOf } from '../../src/core/lifecycle.ts'
import { ERA_BITS, POLICY } from '../../src/core/policy.ts'
import {
  after,
  answers,
  begun,
  boundTo,
  command,
  decideOnce,
  enable,
  entry,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  newScene,
  on,
  perform,
  pool,
  reap,
  reapNode,
  reapProven,
  recheck,
  register,
  release,
  reserve,
  SECOND,
  START,
  type Step,
  source,
  unchanged,
} from './given.ts'

const room = [network, pool('10.0.0.0/28')]
const freshness = ({ scene }: ReturnType<ReturnType<typeof given>['when']>, id = 'agent') =>
  scene.freshness.get(id)!

describe('reports', () => {
  test('a report of a closed epoch changes of the freshness only its digest and when it was reported', () => {
    const list = lists('agent', ['x/1@10.0.0.1'])
    const known = freshness(given(room, source('agent'), list).when(list))
    const shown = given(room, source('agent'), list, list)
      // It was begun before the present epoch opened, and lists what the present one does not.
      .when(lists('agent', ['y/1@10.0.0.2'], { epoch: 'e0', head: 1 }))
      .then('source.reported agent +10.0.0.2')
    const { digest, reportedAt } = freshness(shown)
    assert.deepEqual(freshness(shown), { ...known, digest, reportedAt })
    assert.equal(known.epoch, 'e1')
    assert.equal(known.warm, true)
    assert.equal(known.counted.length, 2)
  })

  test('what a late report added is not covered by "unchanged": the list is wanted in full', () => {
    const shown = given(room, source('agent'), lists('agent', ['x/1@10.0.0.1'])).when(
      lists('agent', ['y/1@10.0.0.2'], { sequence: 1 }),
    )
    assert.equal(freshness(shown).digest, '')
  })

  test('a list that ended nothing, because its source was warming up, is wanted in full once more', () => {
    const life = { epoch: 'e2' }
    const shown = given(
      room,
      source('agent'),
      lists('agent', ['x/1@10.0.0.1']),
      lists('agent', [], life),
    ).when(lists('agent', [], life))
    assert.equal(freshness(shown).warm, true)
    assert.equal(freshness(shown).digest, '')
  })

  test('the owner at an address changes: who is listed still, does not vanish with the other', () => {
    const both = lists('agent', ['x/1@10.0.0.1', 'y/1@10.0.0.1'])
    const { scene } = given(room, register('agent'), enable('agent'), both, both, both)
      .when(lists('agent', ['x/1@10.0.0.1']))
      .then('source.reported agent -10.0.0.1')
    const live = scene.image.sightings.get('10.0.0.1')!.filter(({ vanishedSeq }) => vanishedSeq === null)
    assert.deepEqual(
      live.map(({ owner }) => owner?.name),
      ['x'],
    )
  })

  test('an operator who resumes after many reaps gets a window of its own', () => {
    const many = Array.from({ length: 8 }, (_, i) => i + 1)
    given(
      room,
      source('agent'),
      ...many.map((i) => reserve(`x${i}/1`, { confirmed: true })),
      after(2 * HOUR),
      ...[0, 1, 2].map(() => lists('agent', [])),
      ...many.map((i) => answers('agent', `x${i}/1`, `10.0.0.${i}`, 'gone')),
      ...[1, 2, 3, 4].map((i) => reapProven(`10.0.0.${i}`)),
      command({ type: 'resumeHold', hold: null, why: 'it is so' }),
    )
      .when(reapProven('10.0.0.4'))
      .then('lease.reaped 10.0.0.4 REAPED #9')
  })

  test('a new era lifts the hold of a source that was ahead', () => {
    given(room, source('agent'), lists('agent', [], { head: 4_000, proven: true }))
      .when(command({ type: 'beginEra', above: 4_000, recovering: true, why: 'recover' }))
      .then('era.begun', 'reconcile.resumed')
  })

  test('… and its numbers are above the one that was proven, whatever era that is of', () => {
    const proven = 3 * 2 ** ERA_BITS + 7
    const { scene } = given(room, source('agent'), lists('agent', [], { head: proven, proven: true }))
      .when(command({ type: 'beginEra', above: 0, recovering: true, why: 'recover' }))
      .then('era.begun', 'reconcile.resumed')
    assert.equal(scene.image.network!.era, 4)
    const last = Number.MAX_SAFE_INTEGER
    const after = given(room, source('agent'), lists('agent', [], { head: last, proven: true }))
      .when(command({ type: 'beginEra', above: 0, recovering: true, why: 'recover' }))
      .then('era.begun', 'reconcile.resumed')
    assert.equal(after.scene.image.network!.era, 1)
  })

  test('a batch that is repeated after its lease ended is lost, as a single Reserve is', () => {
    const batch = command({
      type: 'allOrNothing',
      cause: 'BatchReserve',
      items: [reserve('x/1')(), reserve('y/1')()],
      requestId: 'r',
      fingerprint: 'f',
    })
    given(room, batch, command({ type: 'reap', token: 3, version: 3, why: 'gone' }))
      .when(batch)
      .then('refused LEASE_LOST')
  })

  test('a dry run leaves the image as it was: supersessions, quarantines and what is remembered too', () => {
    const tried = command({
      type: 'dryRun',
      items: [
        reserve('a/2')(),
        reserve('b/1', { node: 'n', requestId: 'r', fingerprint: 'f' })(),
        reserve('c/1', { liveAddresses: ['10.0.0.3', '10.0.0.4', '10.0.0.5'] })(),
        reserve('d/1', { claims: [{ address: '192.168.0.1' }] })(),
      ] as Command<'dryRun'>['items'],
    })
    const before = [room, reserve('a/1'), reserve('b/1', { confirmed: true })]
    given(before).when(tried).then()
    given(before, tried)
      .when(reserve('b/1', { node: 'n', requestId: 'r', fingerprint: 'other' }))
      .then('lease.updated 10.0.0.2 ACTIVE #4')
  })

  test('an hour forward: what cooled before the step cools on, also when another process wrote after it', () => {
    given(
      network,
      pool('10.0.0.0/30'),
      reserve('a/1'),
      reserve('b/1'),
      command({ type: 'release', removal: 'CONFIRMED', lease: { token: 3, owner: null } }),
      after(HOUR),
      // A process that did not see the step wrote this.
      command({ type: 'updateNetwork', version: null, description: 'x', labels: null }),
      after(SECOND),
      command({ type: 'hold', hold: 'CLOCK', why: 'set forward', stepMs: HOUR }),
    )
      .when(reserve('c/1'))
      .then('refused POOL_EXHAUSTED')
  })

  test('at the bound of a process only touched addresses are handed out, also by name, and the refusal names the bound', () => {
    const scene = newScene()
    const full = { ...scene, image: newImage('net', 1) }
    const act = (step: (of: typeof full) => Command | undefined) => perform(full, step(full)!).outcome
    for (const step of [...room, reserve('a/1')]) assert.ok(act(step as Parameters<typeof act>[0]).ok)
    for (const claims of [[], [{ address: '10.0.0.9' }]]) {
      const outcome = act(reserve('b/1', { claims }))
      assert.ok(!outcome.ok && outcome.refusal.reason === 'POOL_EXHAUSTED')
      assert.match(outcome.refusal.message, /IPLEDGER_IMAGE_ADDRESSES/)
    }
    act(release('a/1'))
    full.now += HOUR
    const again = act(reserve('b/1'))
    assert.equal(again.ok && again.answer.leases[0]!.address, '10.0.0.1')
  })
})

test('a hold for a step of the clock lasts until what is listed no more has rested', () => {
  const lasts = (...steps: readonly Step[]) => {
    const { scene } = given(...steps).when(
      command({ type: 'hold', hold: 'CLOCK', why: 'set forward', stepMs: SECOND }),
    )
    return scene.image.network!.holds.CLOCK!.details.until! - scene.now
  }
  const listed = [register('d'), lists('d', ['y/1@10.0.0.1']), lists('d', ['y/1@10.0.0.1']), enable('d')]
  assert.equal(lasts(room, listed), SECOND)
  // The rest of two minutes, and what the clock was ahead.
  assert.equal(lasts(room, listed, lists('d', [])), 120 * SECOND + SECOND)
})

test('… and until a recovery is over by the true time', () => {
  const era = command({ type: 'beginEra', above: 5, recovering: true, why: 'restored' })
  const step = command({ type: 'hold', hold: 'CLOCK', why: 'set forward', stepMs: 9 * SECOND })
  const { scene } = given(room, source('agent'), era).when(step)
  const { before, until } = scene.image.network!.holds.CLOCK!.details
  assert.equal(before, scene.now - 9 * SECOND)
  assert.equal(until! - scene.now, POLICY.recoveryMs + 9 * SECOND)
})

describe('what is listed no more', () => {
  const SIZE = 3_000
  const many = Array.from({ length: SIZE }, (_, i) => `y${i}/1@10.0.${i >> 8}.${i & 255}`)
  const wide: Step = [network, pool('10.0.0.0/20')]

  test('costs a bounded number of looks at an address, however many rest', () => {
    const scene = newScene()
    for (const step of [wide, register('d'), lists('d', many), lists('d', many), enable('d')].flat(2))
      perform(scene, (step as (of: typeof scene) => Command)(scene))
    const { sightings } = scene.image
    let looks = 0
    sightings.get = (key) => {
      looks += 1
      return Map.prototype.get.call(sightings, key) as ReturnType<typeof sightings.get>
    }
    const { outcome } = decideOnce(scene, lists('d', [])(scene))
    assert.ok(outcome.ok)
    assert.ok(looks < 10 * SIZE, `${looks} looks`)
  })

  test('is forgotten when it has rested and any source reports: its own may be retired, or of a node that is gone', () => {
    const listed: Step = [
      room,
      source('n1', { node: 'n1' }),
      register('d', { node: 'd' }),
      lists('d', ['y/1@10.0.0.1']),
      lists('d', ['y/1@10.0.0.1']),
      after(2 * MINUTE),
    ]
    const retire = command({ type: 'retireSource', id: 'd' })
    for (const ended of [retire, reapNode('d')]) {
      const forgotten = (wait: number): boolean => {
        const { scene } = given(listed, ended, after(wait)).when(lists('n1', ['z/1@10.0.0.9']))
        return !scene.image.sightings.has('10.0.0.1')
      }
      assert.deepEqual([forgotten(0), forgotten(2 * MINUTE)], [false, true])
    }
  })
})

/** Of the agent: events 3 to 5. */
const warm: Step = [room, source('agent')]
const dry: Step = [room, register('agent')]
const list = (options: Parameters<typeof lists>[2]) => lists('agent', [], options)
const era = (recovering: boolean) => command({ type: 'beginEra', above: 5, recovering, why: 'restored' })
const ahead = { head: 99, proven: true }
type One = Exclude<Step, readonly Step[]>

test.each<[string, Step, One, string]>([
  ['a list', warm, list({}), 'complete counted'],
  ['a slice of it', warm, list({ last: null }), 'complete'],
  ['one that follows soon', [warm, list({})], list({ begunAt: START }), 'complete TOO_SOON'],
  ['one of a source that warms up', [dry, enable('agent')], list({}), 'complete WARM_UP'],
  ['one of a source in dry run', dry, list({}), 'complete NOT_ENABLED'],
  ['one of a source that knows no number yet', [dry, era(false)], list({ head: 0 }), 'complete NOT_ENABLED'],
  ['a partial one', warm, list({ complete: false }), 'partial DECLARED'],
  ['one that is sent again', warm, list({ sequence: 2 }), 'partial OUT_OF_SEQUENCE'],
  ['one after a gap', warm, list({ last: { entries: 0, digest: '', after: 1 } }), 'partial OUT_OF_SEQUENCE'],
  ['one of a lost era', [warm, era(false)], list({ head: 5 }), 'partial OTHER_ERA'],
  ['one of an epoch as old as the present', warm, list({ epoch: 'e2', head: 4 }), 'partial CLOSED_EPOCH'],
  ['one beyond the log', warm, list(ahead), 'partial BEYOND_HEAD'],
  ['… without proof', warm, list({ head: 99 }), 'partial UNPROVEN_HEAD'],
])('%s is taken for what it is', (_, before, when, taken) => {
  const { outcome } = given(before).when(when)
  const { complete, counted, because } = (outcome.ok && outcome.answer.report) || assert.fail()
  const words = [complete ? 'complete' : 'partial', ...(counted ? ['counted'] : []), ...because]
  expect(words.join(' ')).toBe(taken)
})

const { scene } = given(warm).when(list({}))
const known = scene.freshness.get('agent')!
const report = { sequence: 9, head: 9, begunAt: 9, last: { entries: 3, digest: 'd', after: 8 } }
const how = { now: 9, flaws: [], trusts: true, counted: true }

test.each(['OTHER_ERA', 'OUT_OF_SEQUENCE'])('a report that is %s changes no more than a late one', (flaw) => {
  const changed = freshnessAfter(known, report, { ...how, flaws: [flaw] })
  expect(changed).toEqual({ ...known, digest: '', reportedAt: 9 })
})

test('a source is warm once a complete list is not longer than the one before', () => {
  const isWarm = (entries: number) => freshnessAfter({ ...known, warm: false, entries }, report, how).warm
  expect([-1, 2, 3].map(isWarm)).toEqual([false, false, true])
})

test('the last counted reports are kept; one counts half an interval after the last of them', () => {
  const counted = [1, 2, 3, 4, 5, 6, 7, 8].map((at) => ({ sequence: at, head: at, at }))
  const fresh = freshnessAfter({ ...known, counted }, report, how)
  expect(fresh.counted.map(({ at }) => at)).toEqual([2, 3, 4, 5, 6, 7, 8, 9])
  const agent = scene.image.sources.get('agent')!
  expect([0, 1].map((early) => isSpaced(agent, fresh, 9 + 15 * SECOND - early))).toEqual([true, false])
})

const free = lists('agent', ['reserve:f@10.0.0.9'])
const ended = lists('agent', ['reserve:f@10.0.0.9!'])
const news = ['source.reported agent +10.0.0.9']
const calls = command({ type: 'unknownSource', source: 'c' })
const waiting: Step = [warm, era(true), calls, register('c'), [1, 2, 3, 4, 5, 6].map(() => list({}))]

test.each<[string, Step, One, readonly string[]]>([
  ['what is listed again is news', [warm, free, list({})], free, news],
  ['… or on another node', [warm, on('n1', free)], on('n2', free), news],
  ['what is still listed as ended is none', [warm, ended], ended, []],
  ['… nor that it is gone, if it was not listed', warm, list({ vanished: [entry('y/1@10.0.0.9')] }), []],
  ['a first report opens an epoch, also at number 0', dry, list({ head: 0 }), ['source.reported agent']],
  ['a report beyond the log holds once', [warm, list(ahead)], list(ahead), []],
  ['… and none in dry run', dry, list(ahead), []],
  ['a report that does not count ends no recovery', waiting, lists('c', []), ['source.reported c']],
])('%s', (_, before, when, events) => {
  given(before)
    .when(when)
    .then(...events)
})

const IT = '10.0.0.1'
const thereIs = (owner: string) => `${owner}@${IT}`
const at = (id: string, ...owners: readonly string[]) => lists(id, owners.map(thereIs))
const nodes: Step = [room, source('n1', { node: 'n1' }), source('n2', { node: 'n2' })]
const full: Step = [network, pool('10.0.0.0/28', { nodeLimit: 1 }), source('n1', { node: 'n1' })]
const x = (node = '') => reserve('x/1', { node, confirmed: true })
const promise = reserve('x/1')
const spare = boundTo('n1', reserve('reserve:s'))
const partial = { complete: false, entries: [entry(thereIs('y/1'))] }
const again = register('agent', { intervalMs: 1 })
const pods: Step = [room, source('agent', { ownerKinds: ['pod'] })]
const reaped: Step = [warm, promise, reserve('x/2'), reap(IT), after(HOUR)]
const elsewhere: Step = [nodes, x('n1'), at('n1', 'x/1'), at('n2', 'y/1')]
/** It was listed when it was released. */
const left: Step = [warm, promise, at('agent', 'x/1'), release('x/1'), unchanged('agent')]

test.each<[string, Step, One, string]>([
  ['listed for its holder and another', [warm, x()], at('agent', 'x/1', 'y/1'), 'CONFLICT #6'],
  ['listed for nobody known and its holder', [warm, promise], at('agent', '?', 'x/1'), 'ACTIVE #6'],
  ['listed for its holder, and elsewhere for another', elsewhere, recheck(IT), 'ACTIVE #9'],
  ['promised on no node, and listed on one', [nodes, promise], at('n1', 'x/1'), 'ACTIVE #9'],
  ['promised after the list was begun', [warm, begun, promise], at('agent', 'x/1'), 'RESERVED #6'],
  ['promised, and listed for another by a full node', [full, promise, spare], at('n1', 'y/1'), 'RESERVED #6'],
  ['a spare, and listed for infrastructure', [nodes, spare], at('n1', 'infrastructure:gw/1'), 'CONFLICT #9'],
  ['listed in dry run', [dry, at('agent', 'y/1')], recheck(IT), 'FREE #0'],
  ['left behind, of a source in dry run again', [left, again], recheck(IT), 'FREE #6'],
  ['left behind in a lost era', [left, era(false)], recheck(IT), 'FREE #6'],
  ['listed by a partial list', [warm, free, list(partial)], recheck(IT), 'FREE #0'],
  ['of a life that was superseded, and long reaped', reaped, at('agent', 'x/1'), 'RELEASED_BUT_LIVE #11'],
  ['of a kind that a source of all nodes does not declare', pods, at('agent', 'y/1'), 'ACTIVE #7'],
])('what becomes of what is %s', (_, before, when, becomes) => {
  const record = given(before).when(when).scene.image.records.get(IT)
  expect(`${conditionOf(record)} #${record?.token ?? 0}`).toBe(becomes)
})

test('an adopted lease is confirmed, on eth0 if no interface is listed', () => {
  const { scene } = given(warm).when(list({ entries: [{ ...entry(thereIs('y/1')), interface: '' }] }))
  expect(scene.image.records.get(IT)).toMatchObject({ confirmedAt: scene.now, owner: { interface: 'eth0' } })
})
