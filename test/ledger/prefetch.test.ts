/** What a command needs that the image lacks is read with it, and nothing else. */
import { expect, test } from 'vitest'
import type { Command, Known } from '../../src/core/command.ts'
import { attachmentKey } from '../../src/core/owner.ts'
import { isEmpty, isKnown, prefetchOf } from '../../src/ledger/prefetch.ts'
import {
  boundTo,
  command,
  confirm,
  given,
  lists,
  network,
  newScene,
  owner,
  pool,
  quarantine,
  recheck,
  register,
  release,
  reserve,
  type Scene,
  type Step,
  source,
} from '../core/given.ts'

/** `a/1` holds 10.0.0.1 on n1, whose agent lists it and something in 10.1.0.0/28; source `new` of n1 is not enabled. */
const PAST: Step = [
  network,
  pool('10.0.0.0/24', { isDefault: true }),
  pool('10.1.0.0/24', { name: 'blocks', prefixLength: 28 }),
  ...['n1', 'n2'].map((node) => source(node, { node })),
  register('new', { node: 'n1' }),
  reserve('a/1', { node: 'n1' }),
  reserve('z/1', { node: 'n2' }),
  lists('n1', ['a/1@10.0.0.1', '?@10.1.0.7']),
  lists('n2', ['?@10.0.0.1']),
]
const strict = command({ type: 'updatePool', name: 'blocks', version: null, change: { liveness: 'STRICT' } })
const touch = command({ type: 'updateNetwork', version: null, description: 'so', labels: null })
const eraBegun = command({ type: 'beginEra', above: 0, recovering: true, why: 'so' })
const recovery = [eraBegun, command({ type: 'unknownSource', source: 'unheard' })]
/** After these. */
const imageAfter = (...steps: readonly Step[]) => given(...steps).when(touch).scene.image
const [A, Z] = ['10.0.0.1', '10.0.0.2'].map((address) => imageAfter(PAST).records.get(address)!.token)
const B = attachmentKey(owner('b/1'))
const named = { requestId: 'r' }
const several = command({ type: 'allOrNothing', items: [release('b/1')(), release(9)()] })
const dryRun = command({ type: 'dryRun', items: [several()] })
const proven = (token: number) => command({ type: 'reapProven', token, version: 1 })
const reports = (scene: Scene) => ({ ...lists('new', [])(scene), ...named })
const goneNode = command({ type: 'reapNode', node: 'n1', head: 9, why: 'so' })
const read = new Map<never, never>()
const NOTHING: Known = {
  identity: '',
  requests: read,
  endedByToken: read,
  endedByOwner: read,
  freshness: read,
  lookUps: read,
}

test.each<[string, (scene: Scene) => Command, string, Step?]>([
  ['a Reserve: nothing', reserve('b/1'), ''],
  ['with a request id: whether it was answered', reserve('b/1', named), 'requests \0r'],
  ['… in the name of its node', boundTo('n1', reserve('b/1', named)), 'requests n1\0r'],
  ['a Reserve where a pool is STRICT: the state of enabled sources', reserve('b/1'), 'sources n1 n2', strict],
  ['a Release of a lease that is held: nothing', release('a/1'), ''],
  ['… of one that is not: how it ended', release('b/1'), `owners ${B}`],
  ['a Confirm likewise', confirm('b/1'), `owners ${B}`],
  ['a Release by the token of a lease: nothing', release(A!), ''],
  ['… by another: how that ended', release(9), 'tokens 9'],
  ['all or nothing: what each needs', several, `tokens 9, owners ${B}`],
  ['a dry run: what each needs', dryRun, `tokens 9, owners ${B}`],
  ['a reap: how another lease ended', command({ type: 'reap', token: 9 }), 'tokens 9'],
  ['new labels likewise', command({ type: 'updateLabels', token: 9 }), 'tokens 9'],
  ['an expiry likewise', command({ type: 'expire', token: 9 }), 'tokens 9'],
  ['a quarantine likewise', command({ type: 'quarantine', target: { token: 9 } }), 'tokens 9'],
  ['… of an address: nothing', quarantine('10.0.0.9'), ''],
  ['a node that is gone: the state of its sources', goneNode, 'sources n1 new'],
  ['what is proven: the state of its witnesses, and look-ups', proven(Z!), 'sources n2, lookUps 10.0.0.2'],
  ['… and of others that list it', proven(A!), 'sources n1 n2, lookUps 10.0.0.1'],
  ['… of a lease that ended: how', proven(9), 'tokens 9'],
  ['a report: the state of its source', reports, 'requests \0r, sources new'],
  ['… in a recovery: of all that it waits for', lists('new', []), 'sources new n1 n2 unheard', recovery],
  ['a second look: the state of those that list an address', recheck('10.0.0.1'), 'sources n1 n2'],
  ['… or its block', recheck('10.1.0.7'), 'sources n1'],
  ['… or an address of no pool', recheck('10.9.0.7'), ''],
])('%s', (_, step, expected, more = []) => {
  const asked = prefetchOf(imageAfter(PAST, more), [step(newScene())])
  const parts = Object.entries(asked).filter(([, { size }]) => size > 0)
  expect(parts.map(([part, all]) => [part, ...all.keys()].join(' ')).join(', ')).toBe(expected)
  expect(isEmpty(asked)).toBe(expected === '')
  expect(isKnown(asked, NOTHING), 'requests always are').toBe(isEmpty({ ...asked, requests: new Map() }))
})
