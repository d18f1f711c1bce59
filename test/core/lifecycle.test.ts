/** The lifecycle: each of its rows, each finding that is no row of a state, and the rules that guard them. */
import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'
import { type Condition, type Finding, LIFECYCLE } from '../../src/core/lifecycle.ts'
import {
  after,
  answers,
  command,
  confirm,
  expire,
  given,
  HOUR,
  lists,
  MINUTE,
  network,
  pool,
  quarantine,
  reap,
  reapNode,
  reapProven,
  release,
  reserve,
  type Scene,
  type Step,
  source,
} from './given.ts'
import { NODES } from './node-rows.ts'
import { POOLS } from './pool-rows.ts'
import { LIFECYCLE as GUARDED, type Row, TRUTH } from './rows.ts'

const IT = '10.0.0.1'
const seen: Step = [network, pool('10.0.0.0/28'), source('agent')]
const leased: Step = [seen, reserve('x/1', { confirmWithinMs: MINUTE })]
const freed: Step = [seen, reserve('x/1'), release('x/1'), after(HOUR)]

/** How an address gets there. x/1 holds it, or held it last. */
const REACHED: Readonly<Record<Condition, Step>> = {
  FREE: freed,
  RESERVED: leased,
  ACTIVE: [seen, reserve('x/1', { confirmed: true })],
  SUPERSEDED: [leased, reserve('x/2')],
  REMOVAL_UNCONFIRMED: [leased, release('x/1', 'UNCONFIRMED')],
  CONFLICT: [leased, lists('agent', [`y/1@${IT}`])],
  OPERATOR: [leased, quarantine(IT)],
  RELEASED_BUT_LIVE: [freed, lists('agent', [`x/1@${IT}`])],
  FOREIGN: [seen, lists('agent', [`?@${IT}`])],
  IN_USE: [leased, release('x/1', 'IN_USE_BY_ANOTHER')],
}

type When = Exclude<Step, readonly Step[]>
const tokenOf = ({ image }: Scene) => image.records.get(IT)!.token
const ofToken =
  (make: (token: number) => () => ReturnType<ReturnType<typeof command>>): When =>
  (scene) =>
    make(tokenOf(scene))()
const named = { claims: [{ address: IT }] }
const gone = ['x/1', 'y/1'].map((who) => answers('agent', who, IT, 'gone'))

/** What is said or found, after some time. */
const MADE: Readonly<Partial<Record<Finding, readonly [Step, When]>>> = {
  reserve: [[], reserve('z/1', named)],
  reserveConfirmed: [[], reserve('z/1', { ...named, confirmed: true })],
  renew: [after(2 * MINUTE), reserve('x/1')],
  label: [
    [],
    ofToken((token) => command({ type: 'updateLabels', token, version: null, labels: { a: 'b' } })),
  ],
  confirm: [[], confirm('x/1')],
  adopt: [[], lists('agent', [`y/1@${IT}`])],
  release: [[], ofToken((token) => release(token))],
  expire: [after(HOUR), expire(IT)],
  proveAbsent: [[after(2 * HOUR), ...[1, 2, 3, 4].map(() => lists('agent', [])), ...gone], reapProven(IT)],
  reap: [[], reap(IT)],
  reapNode: [after(HOUR), reapNode('')],
  supersede: [[], reserve('x/2')],
  releaseUnconfirmed: [[], ofToken((token) => release(token, 'UNCONFIRMED'))],
  conflict: [[], lists('agent', [`w/1@${IT}`])],
  quarantine: [[], quarantine(IT)],
  listedAfterRelease: [[], lists('agent', [`x/1@${IT}`])],
  listedForNobody: [[], lists('agent', [`?@${IT}`])],
  inUse: [[], ofToken((token) => release(token, 'IN_USE_BY_ANOTHER'))],
}

test('all findings are played, but those that are one with another', () => {
  const others = Object.keys(LIFECYCLE).filter((finding) => !(finding in MADE))
  expect(others).toEqual(['giveSpare', 'contest'])
})

const CONDITIONS = Object.keys(REACHED) as readonly Condition[]
describe.each(CONDITIONS)('%s', (condition) => {
  test.each(Object.entries(MADE))('%s', (finding, [wait, when]) => {
    const { from, event, to } = LIFECYCLE[finding as Finding]
    const { said } = given(REACHED[condition], wait).when(when)
    const done = said.events.some((line) => {
      const [type, address, ...what] = line.split(' ')
      return type === event && address === IT && what.at(-2) === (to ?? condition)
    })
    // A lease ends before another host's use of its address is quarantined.
    const isLater = finding === 'inUse' && condition === 'FREE'
    assert.equal(done, from.includes(condition) && !isLater, said.events.join('\n'))
  })
})

function rows(name: string, all: readonly Row[]): void {
  describe(name, () => {
    for (const row of all)
      test(row.name, () => {
        const shown = given(...row.given)
          .when(row.when)
          .then(...row.gives)
        if (row.answers !== undefined) shown.answers(...row.answers)
      })
  })
}

rows('lifecycle', GUARDED)
rows('truth', TRUTH)
rows('nodes', NODES)
rows('pools', POOLS)
