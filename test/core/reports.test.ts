/** How a source stands after reports that are late, partial, or of another life. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { newImage } from '../../src/core/image.ts'
import { ERA_BITS, POLICY } from '../../src/core/policy.ts'
import {
  after,
  answers,
  command,
  decideOnce,
  enable,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  newScene,
  perform,
  pool,
  reapNode,
  reapProven,
  register,
  release,
  reserve,
  SECOND,
  type Step,
  source,
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
