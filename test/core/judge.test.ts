/** What the judge says of a proof: a lease that is reaped, and what each change of its proof makes of that. */
import assert from 'node:assert/strict'
import { describe, test } from 'vitest'
import type { LeaseEvent } from '../../src/core/event.ts'
import { confirmableUntil, entryOf, judgeProof, type Proof } from '../../src/core/judge.ts'
import { POLICY } from '../../src/core/policy.ts'
import {
  after,
  answers,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  owner,
  pool,
  reapProven,
  reserve,
  SECOND,
  source,
} from './given.ts'

const { scene } = given(
  [network, pool('10.0.0.0/28'), source('agent'), reserve('x/1', { node: 'n1', confirmed: true })],
  lists('agent', ['x/1@10.0.0.1']),
  after(HOUR),
  [1, 2, 3, 4].map(() => lists('agent', [])),
  answers('agent', 'x/1', '10.0.0.1', 'gone'),
).when(reapProven('10.0.0.1'))
const PROOF = JSON.parse(JSON.stringify((scene.events.at(-1) as LeaseEvent).details!.proof)) as Proof

const { record, judgedAt, policy, sightings: [seen] = [], lookUps: [gone] = [] } = PROOF
const [agent] = PROOF.witnesses
const witness = (change: object) => ({ witnesses: [{ ...agent!, ...change }] })
const answer = (change: object) => ({ lookUps: [{ ...gone!, ...change }] })
const sighting = (change: object) => ({ sightings: [{ ...seen!, ...change }] })
const other = { ...agent!, id: 'other', parties: [] }
const codes = (change: object) =>
  judgeProof({ ...PROOF, ...change }).because.map((one) => `${one.code} ${one.source}`.trim())
/** The last moment of its youth is the one that is given. */
const agedUntil = (young: number) => ({ record: { ...record, at: young - policy.minimumAgeMs } })
const missedAt = agent!.missed.at(-1)!.at
const earliest = Math.min(missedAt, gone!.askedAt)

describe('reaps', () => {
  test.each<[string, object]>([
    ['what every witness has missed, and says is gone', {}],
    ['what ended longer ago than the grace', answer({ answer: 'terminal', terminalSince: judgedAt - HOUR })],
    [
      'what is listed as ended for as long',
      {
        ...sighting({ state: 'terminal', vanishedSeq: null, terminalAt: judgedAt - HOUR }),
        lookUps: [],
      },
    ],
    ['when it was missed and asked a moment after its youth', agedUntil(earliest - 1)],
    ['what has a promise that is broken', { record: { ...record, state: 'RESERVED', confirmBy: record.at } }],
    [
      'what nobody saw, after the longer age',
      { sightings: [], record: { ...record, at: judgedAt - 3 * HOUR } },
    ],
    ['a quarantine that nobody saw, after the shorter age', quarantined({})],
    [
      'what is missed on and on after it was said to be gone',
      witness({ missed: [...agent!.missed, { head: gone!.head + 1, at: gone!.askedAt + 1 }] }),
    ],
    ['a witness that has nobody to be asked for', { witnesses: [agent, other] }],
  ])('%s', (_, change) => {
    assert.deepEqual(codes(change), [])
    assert.equal(judgeProof({ ...PROOF, ...change }).verdict, 'reap')
  })
})

describe('keeps', () => {
  test.each<[string, object, readonly string[]]>([
    ['infrastructure', { record: { ...record, owner: owner('infrastructure:x/1') } }, ['INFRASTRUCTURE']],
    ['what an operator quarantined', quarantined({ reason: 'OPERATOR' }), ['OPERATOR']],
    ['what is listed', sighting({ vanishedSeq: null }), ['LISTED_LIVE agent']],
    ['what is listed for nobody', sighting({ vanishedSeq: null, owner: null }), ['LISTED_LIVE agent']],
    ['without a witness', { witnesses: [] }, ['NO_WITNESS']],
    ['with one that could not see it', witness({ couldSee: false }), ['NO_WITNESS']],
    ['by a witness that is not enabled', witness({ isEnabled: false }), ['WITNESS_NOT_ENABLED agent']],
    ['by a witness that warms up', witness({ isWarm: false }), ['WITNESS_NOT_WARM agent']],
    ['by one of two', { witnesses: [agent, { ...other, isWarm: false }] }, ['WITNESS_NOT_WARM other']],
    ['what changed lately', agedUntil(judgedAt), ['TOO_YOUNG']],
    ['by the end of a recovery', { recoveredAt: judgedAt - policy.minimumAgeMs }, ['TOO_YOUNG']],
    [
      'what nobody saw, for the longer age after its witness was enabled',
      { sightings: [], ...witness({ enabledAt: judgedAt - policy.unwitnessedAgeMs }) },
      ['TOO_YOUNG'],
    ],
    [
      'what is promised',
      { record: { ...record, state: 'RESERVED', confirmBy: judgedAt - policy.confirmGraceMs } },
      ['TOO_YOUNG'],
    ],
    [
      'what was last missed before its youth was over',
      { ...agedUntil(missedAt), ...answer({ askedAt: missedAt + 1 }), judgedAt: judgedAt + 1 },
      ['TOO_YOUNG agent'],
    ],
    ['what was missed too seldom', witness({ missed: agent!.missed.slice(-2) }), ['TOO_FEW_REPORTS agent']],
    ['what could not be asked for', answer({ answer: 'error' }), ['LOOK_UP_FAILED agent']],
    ['what is said to live', answer({ answer: 'live' }), ['LOOK_UP_ALIVE agent']],
    ['of what nothing is known', answer({ answer: 'unknown' }), ['LOOK_UP_ALIVE agent']],
    [
      'what ended within the grace',
      answer({ answer: 'terminal', terminalSince: judgedAt - policy.terminalGraceMs }),
      ['TERMINAL_GRACE agent'],
    ],
    ['what ended at an unknown time', answer({ answer: 'terminal' }), ['TERMINAL_GRACE agent']],
    [
      'what is listed as ended within the grace, whatever is answered',
      sighting({ state: 'terminal', vanishedSeq: null, terminalAt: judgedAt - SECOND }),
      ['TERMINAL_GRACE agent'],
    ],
  ])('%s', (_, change, expected) => {
    assert.deepEqual(codes(change), expected)
    assert.equal(judgeProof({ ...PROOF, ...change }).verdict, 'keep')
  })
})

describe('asks', () => {
  const asked = [{ source: 'agent', address: '10.0.0.1', owner: agent!.parties[0], node: 'n1' }]
  const early = gone!.askedAt
  const ended = { state: 'terminal', vanishedSeq: null, terminalAt: judgedAt - HOUR }
  test.each<[string, object]>([
    ['when nothing was answered', { lookUps: [] }],
    ['when the answer is awaited', answer({ answer: 'wanted' })],
    ['when another source was asked', answer({ source: 'other' })],
    ['when another address was', answer({ address: '10.0.0.2' })],
    ['when another workload was', answer({ owner: { kind: 'container', name: 'x', uid: 'y' } })],
    ['when another kind was', answer({ owner: { kind: 'pod', name: 'x', uid: 'x' } })],
    ['when it was asked at a number before the misses', answer({ head: 0 })],
    ['when it was asked at a time before them', answer({ askedAt: agent!.missed[0]!.at - 1 })],
    ['when it was asked between them', answer({ askedAt: agent!.missed[1]!.at - 1 })],
    ['when another is listed as ended', { ...sighting({ owner: owner('y/1') }), lookUps: [] }],
    ['when another source lists it as ended', { ...sighting({ ...ended, source: 'other' }), lookUps: [] }],
    [
      'when it was listed as ended, and is no more',
      { ...sighting({ ...ended, vanishedSeq: 9 }), lookUps: [] },
    ],
    [
      'when it was asked before its youth was over',
      {
        ...agedUntil(early),
        ...witness({ missed: agent!.missed.map((one) => ({ ...one, at: one.at + MINUTE })) }),
        ...answer({ askedAt: early }),
        judgedAt: judgedAt + MINUTE,
      },
    ],
  ])('%s', (_, change) => {
    const { verdict, questions, because } = judgeProof({ ...PROOF, ...change })
    assert.equal(verdict, 'ask', JSON.stringify(because))
    assert.deepEqual(questions, asked)
  })

  test('each source that lacks an answer for each party, and no other', () => {
    const parties = [owner('x/1'), owner('y/1')]
    const asks = judgeProof({ ...PROOF, witnesses: [agent!, { ...other, parties }] })
    assert.deepEqual(
      asks.questions.map((one) => `${one.source} ${one.owner.name}`),
      ['other x', 'other y'],
    )
  })

  test('nothing of what is kept for another reason as well', () => {
    const { verdict } = judgeProof({ ...PROOF, lookUps: [], ...witness({ isWarm: false }) })
    assert.equal(verdict, 'keep')
  })
})

test('the entry of a sighting says what is known of it, and no more', () => {
  const { address } = seen!
  const x = { address, kind: 'container', name: 'x', uid: 'x' }
  const all = { ...x, incarnation: '1', interface: 'eth0', node: 'n1', state: 'running' }
  assert.deepEqual(entryOf({ ...seen!, node: 'n1' }), all)
  const bare = { ...owner('x'), interface: '' }
  assert.deepEqual(entryOf({ ...seen!, owner: bare, node: '', state: '' }), x)
})

test('a promise is in force as long as its lease is reserved: until the deadline and the longer grace', () => {
  const reserved = { ...record, state: 'RESERVED', confirmBy: record.reservedAt + MINUTE } as const
  assert.equal(confirmableUntil(reserved, MINUTE), reserved.confirmBy + MINUTE)
  const long = { ...reserved, confirmBy: record.reservedAt + 100 * HOUR }
  assert.equal(confirmableUntil(long, MINUTE), long.confirmBy + 100 * HOUR * POLICY.confirmGraceShare)
  assert.equal(confirmableUntil({ ...reserved, state: 'ACTIVE' }, MINUTE), null)
  assert.equal(confirmableUntil({ ...reserved, confirmBy: null }, MINUTE), null)
})

function quarantined(change: object) {
  const quarantine = { reason: 'FOREIGN', by: 'agent', node: '', at: record.at, why: 'so', ...change }
  const at = earliest - 1 - policy.minimumAgeMs
  return { record: { ...record, at, state: 'QUARANTINED', quarantine }, sightings: [] }
}
