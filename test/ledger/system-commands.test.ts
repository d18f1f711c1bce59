/** What the ledger writes by itself before it decides what was asked of it. */
import { expect, test } from 'vitest'
import { ALL_CHECKS } from '../../src/ledger/loop-options.ts'
import { type Found, systemCommands } from '../../src/ledger/system-commands.ts'
import { command, given, network, START, type Step } from '../core/given.ts'

const MADE = 'system/database/event/1'
const FAILED_OVER = { identity: 'system/database/event/2' }
const LOSSLESS = { hasCommitted: true, losesNothing: true }
const COPY = { identity: 'other/database/event/1', ...LOSSLESS }
const NOTHING: Found = {
  now: START,
  identity: MADE,
  stepsToHold: [],
  setBack: null,
  hasCommitted: false,
  losesNothing: false,
}
const LOST = { setBack: { above: 7, why: 'lost' } }
const STEPS = { stepsToHold: [600.2, 100].map((byMs) => ({ byMs, at: 1 })) }

const eraBegun = command({ type: 'beginEra', above: 0, recovering: true, why: 'so' })
const held = command({ type: 'hold', hold: 'CLOCK', why: 'so', stepMs: 1_000 })
const touch = command({ type: 'updateNetwork', version: null, description: 'so', labels: null })

const by = { network: 'net', actor: { name: 'ledger', node: null }, requestId: null }
const era = (above: number, why: string) => ({ ...by, type: 'beginEra', above, recovering: true, why })
const fork = `the log was written in ${MADE}, this is ${FAILED_OVER.identity}: a failover, or a recovery to a point in time`
const copied = `the log was written in ${MADE}, this is ${COPY.identity}: a restored copy`
const goesOn = { ...by, type: 'updateNetwork', description: null, labels: null, ...FAILED_OVER }
const hold = { ...by, type: 'hold', hold: 'CLOCK', stepMs: 701 }
const ended = { ...by, type: 'resumeHold', hold: 'CLOCK' }

test.each<[string, Partial<Found>, readonly object[], Step?]>([
  ['where all is as it was: nothing', {}, []],
  ['in a log that lacks what was written: an era above that', LOST, [era(7, 'lost')]],
  ['… which another process has begun already: nothing', LOST, [], eraBegun],
  ['in a restored copy: an era, though a failover loses nothing', COPY, [era(2, copied)]],
  ['… and above the era of its log', { ...COPY, ...LOST }, [era(2 ** 40 + 1, copied)], eraBegun],
  ['after a failover: an era', FAILED_OVER, [era(2, fork)]],
  ['… that lost nothing: where it goes on', { ...FAILED_OVER, ...LOSSLESS }, [goesOn]],
  ['… unless this process has not committed', { ...FAILED_OVER, losesNothing: true }, [era(2, fork)]],
  ['after steps of the clock: a hold for all of them', STEPS, [hold]],
  ['… and a failover: the era first', { ...FAILED_OVER, ...STEPS }, [era(2, fork), hold]],
  ['before a hold is over: nothing', { now: START + 999 }, [], held],
  ['then: its end', { now: START + 1_000 }, [ended], held],
  ['… but not with another step', { ...STEPS, now: START + 1_000 }, [hold], held],
])('%s', (_, found, expected, past = []) => {
  const { image } = given(network, past).when(touch).scene
  image.network = { ...image.network!, identity: MADE }
  expect(systemCommands(image, { ...NOTHING, ...found }, ALL_CHECKS)).toMatchObject(expected)
})

const COORDINATOR = '0:7.1.2'
const WORKER = `${COORDINATOR}/1:8.1.2/00000001`
test.each<[string, string, Partial<Found>, string]>([
  [
    'moved to another worker, for a process that committed',
    `${COORDINATOR}/2:9.1.2/00000001`,
    { hasCommitted: true },
    'MOVED',
  ],
  ['… for any other process', `${COORDINATOR}/2:9.1.2/00000001`, { losesNothing: true }, 'ERA'],
  ['on a standby of its worker', `${COORDINATOR}/1:8.1.2/00000002`, { hasCommitted: true }, 'ERA'],
  ['… that lost nothing', `${COORDINATOR}/1:8.1.2/00000002`, LOSSLESS, 'FAILED_OVER'],
  ['on a worker that was made anew', `${COORDINATOR}/1:9.1.2/00000001`, LOSSLESS, 'ERA'],
  ['in another cluster', `0:7.1.3/2:9.1.2/00000001`, LOSSLESS, 'ERA'],
])('a network of Citus %s', (_, identity, found, cause) => {
  const { image } = given(network).when(touch).scene
  image.network = { ...image.network!, identity: WORKER }
  expect(systemCommands(image, { ...NOTHING, identity, ...found }, ALL_CHECKS)).toMatchObject([{ cause }])
})
