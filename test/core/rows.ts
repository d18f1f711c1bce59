/**
 * The lifecycle and the ten rules as rows: given, when, then. A row names the rule that it shows; with that rule taken out the
 * row must come to something else (`rules.test.ts`).
 */
import type { RuleName } from '../../src/core/guards.ts'
import { POLICY } from '../../src/core/policy.ts'
import {
  after,
  answers,
  begun,
  command,
  confirm,
  enable,
  expire,
  HOUR,
  lists,
  MINUTE,
  network,
  pool,
  quarantine,
  reap,
  reapNode,
  reapProven,
  recheck,
  register,
  release,
  reserve,
  SECOND,
  type Step,
  source,
  unchanged,
} from './given.ts'

export type Row = {
  readonly name: string
  readonly rule?: RuleName
  readonly given: readonly Step[]
  readonly when: Exclude<Step, readonly Step[]>
  readonly gives: readonly string[]
  readonly answers?: readonly string[]
}

/** Events 1 and 2; the first address is 10.0.0.1. */
const room: Step = [network, pool('10.0.0.0/28')]
const strict: Step = [network, pool('10.0.0.0/28', { liveness: 'STRICT' })]
/** The same with a warm source of the whole network: events 1 to 5. */
const seen: Step = [room, source('agent')]
const at = (address: string) => ({ claims: [{ address }] })
const previous = { claims: [{ preferPrevious: true }] }
const until = (confirmWithinMs: number) => ({ confirmWithinMs })

/** a/1 at .1 was superseded by a/2 at .2: events 3 to 5. */
const superseded: Step = [room, reserve('a/1'), reserve('a/2')]
/** x holds .1 with token 6, and y is listed there: events 6 to 8. */
const conflict: Step = [seen, reserve('x/1'), lists('agent', ['y/1@10.0.0.1'])]
/** Released long ago: .1 rests on. */
const freed: Step = [seen, reserve('x/1'), release('x/1'), after(HOUR)]

/** The agent misses everybody for hours, and says of some that they are gone. */
const goneFor = (...owners: readonly string[]): Step => [
  after(2 * HOUR),
  ...[1, 2, 3, 4].map(() => lists('agent', [])),
  ...owners.map((who) => answers('agent', who, '10.0.0.1', 'gone')),
]

export const LIFECYCLE: readonly Row[] = [
  {
    name: 'free: Reserve hands out the lowest untouched address',
    given: [room],
    when: reserve('a/1'),
    gives: ['lease.reserved 10.0.0.1 RESERVED #3'],
  },
  {
    name: 'RESERVED: the same attachment gets the same lease, and nothing is written',
    rule: 'RETRY_GETS_THE_SAME_LEASE',
    given: [room, reserve('a/1')],
    when: reserve('a/1'),
    gives: [],
    answers: ['10.0.0.1 RESERVED #3 reused'],
  },
  {
    name: 'RESERVED: asked for again, confirmBy moves to the later',
    given: [room, reserve('a/1', until(MINUTE)), after(SECOND)],
    when: reserve('a/1', until(MINUTE)),
    gives: ['lease.updated 10.0.0.1 RESERVED #3'],
    answers: ['10.0.0.1 RESERVED #3 reused'],
  },
  {
    name: 'RESERVED: an earlier confirmBy changes nothing',
    given: [room, reserve('a/1', until(HOUR)), after(SECOND)],
    when: reserve('a/1', until(MINUTE)),
    gives: [],
    answers: ['10.0.0.1 RESERVED #3 reused'],
  },
  {
    name: 'RESERVED: not asked for again, confirmBy is removed',
    given: [room, reserve('a/1', until(MINUTE))],
    when: reserve('a/1'),
    gives: ['lease.updated 10.0.0.1 RESERVED #3'],
  },
  {
    name: 'ACTIVE: another node is written down',
    given: [room, reserve('a/1', { confirmed: true, node: 'n1' })],
    when: reserve('a/1', { node: 'n2' }),
    gives: ['lease.updated 10.0.0.1 ACTIVE #3'],
  },
  {
    name: 'ACTIVE: promised again after a minute, its age begins anew',
    rule: 'PROMISE_RENEWS_THE_AGE',
    given: [room, reserve('a/1', { confirmed: true }), after(MINUTE)],
    when: reserve('a/1'),
    gives: ['lease.updated 10.0.0.1 ACTIVE #3'],
  },
  {
    name: 'ACTIVE: Release without removal confirmed keeps it',
    rule: 'UNCONFIRMED_REMOVAL_IS_KEPT',
    given: [room, reserve('a/1', { confirmed: true })],
    when: release('a/1', 'UNCONFIRMED'),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED REMOVAL_UNCONFIRMED #3'],
  },
  {
    name: 'ACTIVE: a newer life supersedes it and gets another address',
    rule: 'NEWER_LIFE_SUPERSEDES',
    given: [room, reserve('a/1', { confirmed: true })],
    when: reserve('a/2'),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED SUPERSEDED #3', 'lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: 'ACTIVE: an owner without an incarnation supersedes it, too',
    given: [room, reserve('a/1', { confirmed: true })],
    when: reserve('a'),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED SUPERSEDED #3', 'lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: 'ACTIVE: a pod of another uid supersedes it from another node, too',
    given: [room, reserve({ ...owned('pod', 'web', 'u1'), incarnation: '' }, { node: 'n1' })],
    when: reserve({ ...owned('pod', 'web', 'u2'), incarnation: '' }, { node: 'n2' }),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED SUPERSEDED #3', 'lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: 'ACTIVE: a container of another uid on the same node supersedes it',
    given: [room, reserve(owned('container', 'web', 'u1'), { node: 'n1' })],
    when: reserve(owned('container', 'web', 'u2'), { node: 'n1' }),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED SUPERSEDED #3', 'lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: 'ACTIVE: a container of another uid on another node does not',
    given: [room, reserve(owned('container', 'web', 'u1'), { node: 'n1' })],
    when: reserve(owned('container', 'web', 'u2'), { node: 'n2' }),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: 'ACTIVE: listed live for another, it is a conflict',
    rule: 'OTHER_OWNER_IS_A_CONFLICT',
    given: [seen, reserve('x/1', { confirmed: true })],
    when: lists('agent', ['y/1@10.0.0.1']),
    gives: ['source.reported agent +10.0.0.1', 'lease.quarantined 10.0.0.1 QUARANTINED CONFLICT #6'],
  },
  {
    name: 'ACTIVE: listed for another by a list begun before the lease, it is only protected',
    rule: 'OLDER_LISTS_ONLY_PROTECT',
    given: [seen, begun, reserve('x/1', { confirmed: true })],
    when: lists('agent', ['y/1@10.0.0.1']),
    gives: ['source.reported agent +10.0.0.1'],
  },
  {
    name: 'ACTIVE: a conflict is marked though the cap on quarantines is reached',
    given: [
      network,
      pool('10.0.0.0/24'),
      source('agent'),
      reserve('x/1', { confirmed: true }),
      lists(
        'agent',
        Array.from({ length: 70 }, (_, i) => `?@10.0.0.${100 + i}`),
      ),
    ],
    when: lists('agent', ['y/1@10.0.0.1', ...Array.from({ length: 70 }, (_, i) => `?@10.0.0.${100 + i}`)]),
    gives: ['source.reported agent +10.0.0.1', 'lease.quarantined 10.0.0.1 QUARANTINED CONFLICT #6'],
  },
  {
    name: 'free: an operator quarantines it',
    given: [room],
    when: quarantine('10.0.0.9'),
    gives: ['lease.quarantined 10.0.0.9 QUARANTINED OPERATOR #3'],
  },
  {
    name: 'cooling: another gets it neither by name',
    rule: 'ADDRESS_COOLS',
    given: [room, reserve('a/1'), release('a/1')],
    when: reserve('b/1', at('10.0.0.1')),
    gives: ['refused ADDRESS_COOLING'],
  },
  {
    name: 'cooling: nor when the pool has no other',
    given: [network, pool('10.0.0.0/30'), reserve('a/1'), reserve('b/1'), release('a/1')],
    when: reserve('c/1'),
    gives: ['refused POOL_EXHAUSTED'],
  },
  {
    name: 'cooling: its last holder has it back by name',
    given: [room, reserve('a/1'), release('a/1')],
    when: reserve('a/2', at('10.0.0.1')),
    gives: ['lease.reserved 10.0.0.1 RESERVED #5'],
  },
  {
    name: 'cooling: its last holder has it back by preferPrevious',
    given: [room, reserve('a/1'), release('a/1')],
    when: reserve('a/2', previous),
    gives: ['lease.reserved 10.0.0.1 RESERVED #5'],
  },
  {
    name: 'cooling after a reap: its last holder does not have it back',
    given: [room, reserve('a/1'), reap('10.0.0.1')],
    when: reserve('a/2', previous),
    gives: ['lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: 'cooling: listed by a list begun before it ended, nothing is adopted',
    rule: 'OLDER_LISTS_ONLY_PROTECT',
    given: [seen, begun, reserve('x/1'), reap('10.0.0.1')],
    when: lists('agent', ['x/1@10.0.0.1']),
    gives: ['source.reported agent +10.0.0.1'],
  },
  {
    name: 'cooling: reaped by mistake and listed again, it is adopted',
    given: [seen, reserve('x/1'), reap('10.0.0.1')],
    when: lists('agent', ['x/1@10.0.0.1']),
    gives: ['source.reported agent +10.0.0.1', 'lease.adopted 10.0.0.1 ACTIVE #9'],
  },
  {
    name: 'cooling: released and listed live all the same, it is kept',
    rule: 'RELEASED_BUT_LIVE_IS_KEPT',
    given: [freed],
    when: lists('agent', ['x/1@10.0.0.1']),
    gives: ['source.reported agent +10.0.0.1', 'lease.quarantined 10.0.0.1 QUARANTINED RELEASED_BUT_LIVE #9'],
  },
  {
    name: 'free: in the liveAddresses of a Reserve that picks it, it is foreign and skipped',
    rule: 'WHAT_CALLERS_SEE_IS_SKIPPED',
    given: [room],
    when: reserve('a/1', { liveAddresses: ['10.0.0.1'] }),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED FOREIGN #3', 'lease.reserved 10.0.0.2 RESERVED #4'],
  },
  {
    name: 'free: a refused Reserve leaves what its caller sees live in quarantine',
    given: [network, pool('10.0.0.0/30')],
    when: reserve('a/1', { liveAddresses: ['10.0.0.1', '10.0.0.2'] }),
    gives: [
      'lease.quarantined 10.0.0.1 QUARANTINED FOREIGN #3',
      'lease.quarantined 10.0.0.2 QUARANTINED FOREIGN #4',
      'refused POOL_EXHAUSTED',
    ],
  },
  {
    name: 'SUPERSEDED: its own Release without removal confirmed changes nothing',
    given: [superseded],
    when: release('a/1', 'UNCONFIRMED'),
    gives: [],
    answers: ['10.0.0.1 QUARANTINED #3'],
  },
  {
    name: 'REMOVAL_UNCONFIRMED: while it is listed for another, its own Release changes nothing',
    given: [seen, reserve('x/1'), release('x/1', 'UNCONFIRMED'), lists('agent', ['y/1@10.0.0.1'])],
    when: release(6),
    gives: [],
    answers: ['10.0.0.1 QUARANTINED #6'],
  },
  {
    name: 'CONFLICT: its own attachment gets another address',
    given: [conflict],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.0.2 RESERVED #9'],
  },
  {
    name: 'SUPERSEDED: its own attachment is closed for as long as it is held',
    rule: 'CLOSED_IS_REFUSED',
    given: [superseded, after(HOUR)],
    when: reserve('a/1'),
    gives: ['refused ATTACHMENT_CLOSED'],
  },
  {
    name: 'released: a Reserve that was overtaken by the Release is refused',
    given: [room, release('a/1')],
    when: reserve('a/1'),
    gives: ['refused ATTACHMENT_CLOSED'],
  },
  {
    name: 'released: an attachment that the log has never seen is closed',
    given: [room],
    when: release('a/1'),
    gives: ['attachment.closed a/1'],
  },
  {
    name: 'released again: the same answer and no event',
    given: [room, reserve('a/1'), release('a/1')],
    when: release('a/1'),
    gives: [],
    answers: ['10.0.0.1 RELEASED #3'],
  },
  {
    name: 'RESERVED: past its deadline and the grace it is reaped',
    given: [room, reserve('a/1', until(MINUTE)), after(2 * MINUTE + 1)],
    when: expire('10.0.0.1'),
    gives: ['lease.reaped 10.0.0.1 REAPED #3'],
  },
  {
    name: 'RESERVED: within the grace it may still be confirmed',
    rule: 'GRACE_AFTER_THE_DEADLINE',
    given: [room, reserve('a/1', until(MINUTE)), after(2 * MINUTE)],
    when: expire('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: 'RESERVED: the grace is 2 % of a long deadline',
    given: [room, reserve('a/1', until(10 * HOUR)), after(10 * HOUR + 12 * MINUTE)],
    when: expire('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: 'RESERVED: once listed it never expires',
    rule: 'SEEN_NEVER_EXPIRES',
    given: [
      room,
      register('dry'),
      reserve('a/1', until(MINUTE)),
      lists('dry', ['a/1@10.0.0.1']),
      after(HOUR),
    ],
    when: expire('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: 'held: an operator reaps no other version than he saw',
    rule: 'VERSION_IS_JUDGED_AGAIN',
    given: [room, reserve('a/1'), confirm('a/1')],
    when: reap('10.0.0.1', 3),
    gives: ['refused VERSION_MISMATCH'],
  },
  {
    name: 'held: an operator reaps a node, and what all of its sources list ends, whoever was registered between them',
    given: [
      room,
      source('agent', { node: 'n1' }),
      source('other', { node: 'n2' }),
      register('second', { node: 'n1' }),
      reserve('a/1', { node: 'n1' }),
      lists('agent', ['a/1@10.0.0.1']),
      lists('second', ['a/1@10.0.0.1']),
      reserve('b/1', { node: 'n2' }),
      after(HOUR),
    ],
    when: reapNode('n1'),
    gives: [
      'source.reported agent -10.0.0.1',
      'source.reported second -10.0.0.1',
      'lease.reaped 10.0.0.1 REAPED #10',
    ],
  },
  {
    name: 'held: a node whose source reports is not gone, and is not reaped',
    rule: 'NODE_THAT_REPORTS_STAYS',
    given: [room, source('agent', { node: 'n1' }), reserve('a/1', { node: 'n1' })],
    when: reapNode('n1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: 'held: what another node lists is not reaped with the node',
    rule: 'NODE_ELSEWHERE_KEEPS',
    given: [
      room,
      register('other', { node: 'n2' }),
      reserve('a/1', { node: 'n1' }),
      lists('other', ['a/1@10.0.0.1']),
    ],
    when: reapNode('n1'),
    gives: [],
  },
  {
    name: 'an owner has a limit in a pool, quarantined ones included',
    rule: 'OWNER_HAS_A_LIMIT',
    given: [network, pool('10.0.0.0/28', { ownerLimit: 2 }), reserve('a/1'), reserve('a/2')],
    when: reserve('a/3'),
    gives: ['refused OWNER_LIMIT'],
  },
  {
    name: 'a request that is repeated is answered as it was',
    rule: 'REQUEST_IS_REMEMBERED',
    given: [room, reserve('a/1', { requestId: 'r', fingerprint: 'f' })],
    when: reserve('a/1', { requestId: 'r', fingerprint: 'f' }),
    gives: [],
    answers: ['10.0.0.1 RESERVED #3'],
  },
  {
    name: 'a request id with other content is refused',
    given: [room, reserve('a/1', { requestId: 'r', fingerprint: 'f' })],
    when: reserve('b/1', { requestId: 'r', fingerprint: 'g' }),
    gives: ['refused REQUEST_ID_REUSED'],
  },
  {
    name: 'a request id is of the node of the caller: the same one of another node is another',
    given: [room, reserve('a/1', { requestId: 'r', fingerprint: 'f', ...onNode('n1') })],
    when: reserve('b/1', { requestId: 'r', fingerprint: 'g', ...onNode('n2') }),
    gives: ['lease.reserved 10.0.0.2 RESERVED #4'],
  },
  {
    name: 'and so is one of callers without a node',
    given: [room, reserve('a/1', { requestId: 'r', fingerprint: 'f' })],
    when: reserve('b/1', { requestId: 'r', fingerprint: 'g', ...onNode('n2') }),
    gives: ['lease.reserved 10.0.0.2 RESERVED #4'],
  },
  {
    name: 'a request whose lease has ended meanwhile is lost',
    given: [room, reserve('a/1', { requestId: 'r', fingerprint: 'f' }), reap('10.0.0.1')],
    when: reserve('a/1', { requestId: 'r', fingerprint: 'f' }),
    gives: ['refused LEASE_LOST'],
  },
  {
    name: 'a pool keeps what is held',
    rule: 'POOL_KEEPS_WHAT_IS_HELD',
    given: [room, reserve('a/1', at('10.0.0.9'))],
    when: command({ type: 'updatePool', name: 'pool', version: null, change: { cidr: '10.0.0.0/29' } }),
    gives: ['refused POOL_IN_USE'],
  },
]

/** A lease at .1 (token 6) of which all is proven: three counted lists without it, and a look-up after them. */
const proven = (gone: Step = answers('agent', 'x/1', '10.0.0.1', 'gone')): Step => [
  seen,
  reserve('x/1', { confirmed: true }),
  lists('agent', ['x/1@10.0.0.1']),
  lists('agent', []),
  lists('agent', []),
  lists('agent', []),
  after(POLICY.minimumAgeMs),
  lists('agent', []),
  gone,
]
/** Four leases are gone, and three of them are reaped. There are others. */
const threeReaped = (...others: readonly Step[]): Step => [
  [network, pool('10.0.0.0/27'), source('agent')],
  ...[1, 2, 3, 4].map((i) => reserve(`x${i}/1`, { confirmed: true })),
  ...others,
  after(2 * HOUR),
  ...[0, 1, 2].map(() => lists('agent', [])),
  ...[1, 2, 3, 4].map((i) => answers('agent', `x${i}/1`, `10.0.0.${i}`, 'gone')),
  ...[1, 2, 3].map((i) => reapProven(`10.0.0.${i}`)),
]
const promises: Step = Array.from({ length: 18 }, (_, i) => reserve(`y${i}/1`))
const begin = (recovering: boolean) => command({ type: 'beginEra', above: 5, recovering, why: 'restored' })
const recovering: Step = [seen, begin(true)]
/** Two sources that are warm again, and a promise that may be kept for five minutes. */
const restored: Step = [
  [room, source('a'), source('b'), reserve('x/1', until(5 * MINUTE)), begin(true)],
  ...['a', 'b'].map((id) => [lists(id, []), lists(id, [])]),
]

/** A source that is not registered. */
const calls = (id: string, node: string | null = null) =>
  command({ type: 'unknownSource', source: id, actor: { name: 'token', node } })
const MANY = Array.from({ length: POLICY.unknownSources }, (_, index) => `c${index}`)

export const TRUTH: readonly Row[] = [
  {
    name: 'a STRICT pool hands out while who covers the node is fresh',
    given: [
      strict,
      source('near', { node: 'n1' }),
      source('far', { node: 'n2' }),
      after(MINUTE),
      lists('near', []),
    ],
    when: reserve('x/1', { node: 'n1' }),
    gives: ['lease.reserved 10.0.0.1 RESERVED #9'],
  },
  {
    name: '… and no more once that source has been silent for two intervals',
    rule: 'STRICT_WANTS_FRESH_SOURCES',
    given: [strict, source('near', { node: 'n1' }), after(MINUTE + SECOND)],
    when: reserve('x/1', { node: 'n1' }),
    gives: ['refused LIVENESS_STALE'],
  },
  {
    name: '… nor where nobody looks',
    rule: 'STRICT_WANTS_FRESH_SOURCES',
    given: [strict, source('far', { node: 'n2' })],
    when: reserve('x/1', { node: 'n1' }),
    gives: ['refused LIVENESS_STALE'],
  },
  {
    name: '1: what any source lists is never handed out',
    rule: 'LISTED_IS_NEVER_HANDED_OUT',
    given: [room, register('dry'), lists('dry', ['y/1@10.0.0.1'])],
    when: reserve('x/1', at('10.0.0.1')),
    gives: ['refused ADDRESS_QUARANTINED'],
  },
  {
    name: '1: it is no candidate either',
    given: [room, register('dry'), lists('dry', ['y/1@10.0.0.1'])],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: '1: also from a pool made later',
    given: [network, register('dry'), lists('dry', ['y/1@10.0.0.1']), pool('10.0.0.0/28')],
    when: reserve('x/1'),
    gives: ['lease.reserved 10.0.0.2 RESERVED #5'],
  },
  {
    name: '1: but to the very attachment that it is listed for',
    given: [room, register('dry'), lists('dry', ['y/1@10.0.0.1'])],
    when: reserve('y/1', at('10.0.0.1')),
    gives: ['lease.reserved 10.0.0.1 RESERVED #5'],
  },
  {
    name: '2: a partial report ends nothing',
    rule: 'ONLY_COUNTED_REPORTS_DECIDE',
    given: [seen, lists('agent', ['y/1@10.0.0.7'])],
    when: lists('agent', [], { complete: false }),
    gives: [],
  },
  {
    name: '2: a report of a source that is not warm adopts nothing',
    given: [room, register('agent'), enable('agent'), lists('agent', [])],
    when: lists('agent', ['y/1@10.0.0.7']),
    gives: ['source.reported agent +10.0.0.7'],
  },
  {
    name: '2: a report out of order ends nothing',
    given: [seen, lists('agent', ['y/1@10.0.0.7'])],
    when: lists('agent', [], { sequence: 1 }),
    gives: [],
  },
  {
    name: '2: a partial report that says terminal ends nothing',
    rule: 'ONLY_COUNTED_REPORTS_DECIDE',
    given: [seen, lists('agent', ['y/1@10.0.0.7'])],
    when: lists('agent', ['y/1@10.0.0.7!'], { complete: false }),
    gives: [],
  },
  {
    name: '2: a report of a closed epoch ends nothing, and leaves the present one as it is',
    given: [seen, begun, reserve('x/1'), lists('agent', ['x/1@10.0.0.1'])],
    when: lists('agent', [], { epoch: 'e0', head: 1 }),
    gives: [],
  },
  {
    name: '3: what a release left behind is found though no list changes',
    rule: 'LISTED_IS_LOOKED_AT_AGAIN',
    given: [seen, reserve('x/1'), lists('agent', ['x/1@10.0.0.1']), release('x/1'), unchanged('agent')],
    when: recheck('10.0.0.1'),
    gives: ['lease.quarantined 10.0.0.1 QUARANTINED RELEASED_BUT_LIVE #10'],
  },
  {
    name: '4: every witness must miss it in three counted lists',
    rule: 'EVERY_WITNESS_MISSES',
    given: [
      seen,
      reserve('x/1', { confirmed: true }),
      lists('agent', ['x/1@10.0.0.1']),
      lists('agent', ['x/1@10.0.0.1!']),
      after(HOUR),
      lists('agent', ['x/1@10.0.0.1!']),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: a look-up must say that it is gone',
    rule: 'LOOK_UP_SAYS_GONE',
    given: [proven([])],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: of another party that was seen there as well',
    given: [
      seen,
      reserve('x/1', { confirmed: true }),
      lists('agent', ['y/1@10.0.0.1']),
      ...[0, 1, 2, 3].map(() => lists('agent', [])),
      after(HOUR),
      answers('agent', 'x/1', '10.0.0.1', 'gone'),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: an end is waited for by the grace',
    given: [proven((scene) => answered(scene.now - POLICY.terminalGraceMs)(scene))],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: and then counts',
    given: [proven((scene) => answered(scene.now - POLICY.terminalGraceMs - 1)(scene))],
    when: reapProven('10.0.0.1'),
    gives: ['lease.reaped 10.0.0.1 REAPED #6'],
    answers: ['10.0.0.1 REAPED #6'],
  },
  {
    name: '4: the minimum age must have passed since its last change',
    rule: 'AGE_OF_THE_LAST_CHANGE',
    given: [
      seen,
      reserve('x/1', { confirmed: true }),
      ...[0, 1, 2].map(() => lists('agent', [])),
      after(POLICY.minimumAgeMs),
      answers('agent', 'x/1', '10.0.0.1', 'gone'),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: what was missed and asked before it was old enough says nothing of what started since',
    rule: 'AGE_OF_THE_LAST_CHANGE',
    given: [
      seen,
      reserve('x/1', { confirmed: true }),
      ...[0, 1, 2].map(() => lists('agent', [])),
      answers('agent', 'x/1', '10.0.0.1', 'gone'),
      after(2 * HOUR),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '4: nor does an answer of then, when it is missed again',
    rule: 'AGE_OF_THE_LAST_CHANGE',
    given: [
      seen,
      reserve('x/1', { confirmed: true }),
      ...[0, 1, 2].map(() => lists('agent', [])),
      answers('agent', 'x/1', '10.0.0.1', 'gone'),
      after(2 * HOUR),
      lists('agent', []),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '5: without a witness it is alive',
    rule: 'DOUBT_IS_LIFE',
    given: [room, reserve('x/1', { confirmed: true }), after(24 * HOUR)],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '5: who saw only another there is no witness of the owner',
    rule: 'DOUBT_IS_LIFE',
    given: [
      room,
      source('agent', { node: 'n1' }),
      reserve('x/1', { confirmed: true, node: 'n2' }),
      lists('agent', ['y/1@10.0.0.1']),
      goneFor('x/1', 'y/1'),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '5: who saw it before it moved to another node is no witness there',
    rule: 'DOUBT_IS_LIFE',
    given: [
      room,
      source('agent', { node: 'n1' }),
      reserve('x/1', { confirmed: true, node: 'n1' }),
      lists('agent', ['x/1@10.0.0.1']),
      reserve('x/1', { confirmed: true, node: 'n2' }),
      goneFor('x/1'),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '5: an error is life',
    given: [proven(answers('agent', 'x/1', '10.0.0.1', 'error'))],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '5: a witness that warms up anew is life',
    given: [proven(), lists('agent', [], { epoch: 'e2' })],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: "6: one caller's word quarantines so many addresses and no more",
    rule: 'ONE_REPORTER_FILLS_NO_POOL',
    given: [
      network,
      pool('10.0.0.0/24'),
      ...[0, 1, 2]
        .map((turn) =>
          reserve(`a${turn}/1`, {
            liveAddresses: Array.from({ length: 22 }, (_, i) => `10.0.0.${1 + 23 * turn + i}`),
          }),
        )
        .slice(0, 2),
      reserve('b/1', { liveAddresses: Array.from({ length: 20 }, (_, i) => `10.0.0.${47 + i}`) }),
    ],
    when: reserve('c/1', { liveAddresses: ['10.0.0.68'] }),
    gives: ['lease.reserved 10.0.0.69 RESERVED #70'],
  },
  {
    name: '7: infrastructure is never reaped on proof',
    rule: 'OPERATOR_AND_INFRASTRUCTURE_STAY',
    given: [
      seen,
      reserve('infrastructure:gw/1', { confirmed: true }),
      after(2 * HOUR),
      ...[0, 1, 2, 3].map(() => lists('agent', [])),
      answers('agent', 'infrastructure:gw/1', '10.0.0.1', 'gone'),
    ],
    when: reapProven('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '8: many reaps hold the network',
    rule: 'MANY_REAPS_HOLD',
    given: [threeReaped()],
    when: reapProven('10.0.0.4'),
    gives: ['reconcile.held TOO_MANY_REAPS'],
  },
  {
    name: '8: not those of an hour ago',
    given: [threeReaped(), after(HOUR)],
    when: reapProven('10.0.0.4'),
    gives: ['lease.reaped 10.0.0.4 REAPED #9'],
  },
  {
    name: '8: nor a fifth of what is held, in whatever state',
    given: [threeReaped(promises, quarantine('10.0.0.30'))],
    when: reapProven('10.0.0.4'),
    gives: ['lease.reaped 10.0.0.4 REAPED #9'],
  },
  {
    name: '9: a reap names the version that was judged',
    rule: 'VERSION_IS_JUDGED_AGAIN',
    given: [proven()],
    when: reapProven('10.0.0.1', 1),
    gives: ['refused VERSION_MISMATCH'],
  },
  {
    name: '10: a network in recovery hands out nothing',
    rule: 'NEW_ERA_RECOVERS',
    given: [recovering],
    when: reserve('x/1'),
    gives: ['refused NETWORK_RECOVERING'],
  },
  {
    name: '10: and reaps nothing',
    given: [room, reserve('x/1', { confirmed: true }), begin(true)],
    when: reap('10.0.0.1'),
    gives: ['refused NETWORK_RECOVERING'],
  },
  {
    name: '10: it ends when every enabled source has two counted lists, the last one after every promise',
    given: [restored, lists('a', []), lists('b', []), after(6 * MINUTE), lists('a', [])],
    when: lists('b', []),
    gives: ['recovery.ended'],
  },
  {
    name: '10: not with one list of one of them',
    given: [restored, lists('a', []), after(6 * MINUTE), lists('a', [])],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: not while a promise of before may still be kept',
    given: [restored, lists('a', []), lists('b', []), lists('a', [])],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: not while the clock is held: nobody knows how long it lasted',
    rule: 'CLOCK_HOLD_KEEPS_RECOVERY',
    given: [
      ...[restored, lists('a', []), lists('b', []), after(6 * MINUTE)],
      command({ type: 'hold', hold: 'CLOCK', why: 'set forward', stepMs: 5 * MINUTE }),
      lists('a', []),
    ],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: a source that calls in vain keeps it open',
    given: [restored],
    when: calls('c', 'n1'),
    gives: ['recovery.extended c'],
  },
  {
    name: '10: once',
    given: [restored, calls('c')],
    when: calls('c'),
    gives: [],
  },
  {
    name: '10: and only while the network recovers',
    given: [room],
    when: calls('c'),
    gives: [],
  },
  {
    name: '10: it does not end while one that called is not registered',
    rule: 'UNKNOWN_SOURCE_KEEPS_RECOVERY_OPEN',
    given: [restored, calls('c'), lists('a', []), lists('b', []), after(6 * MINUTE), lists('a', [])],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: nor while it is registered and has not reported completely',
    rule: 'UNKNOWN_SOURCE_KEEPS_RECOVERY_OPEN',
    given: [
      ...[
        restored,
        calls('c'),
        register('c'),
        lists('c', [], { complete: false }),
        lists('a', []),
        lists('b', []),
      ],
      ...[after(6 * MINUTE), lists('a', [])],
    ],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: nor before it has reported as the others',
    given: [
      ...[restored, calls('c'), register('c'), enable('c'), lists('a', []), lists('b', [])],
      ...[after(6 * MINUTE), lists('a', []), lists('b', []), lists('c', []), lists('c', [])],
    ],
    when: lists('c', []),
    gives: [],
  },
  {
    name: '10: then it does',
    given: [
      ...[restored, calls('c'), register('c'), enable('c'), lists('a', []), lists('b', [])],
      ...[after(6 * MINUTE), lists('a', []), lists('b', []), lists('c', []), lists('c', []), lists('c', [])],
    ],
    when: lists('c', []),
    gives: ['recovery.ended'],
  },
  {
    name: '10: or when an operator has retired it',
    given: [
      ...[restored, calls('c'), register('c'), command({ type: 'retireSource', id: 'c' })],
      ...[lists('a', []), lists('b', []), after(6 * MINUTE), lists('a', [])],
    ],
    when: lists('b', []),
    gives: ['recovery.ended'],
  },
  {
    name: '10: so many are waited for by name and no more',
    given: [restored, ...MANY.map((id) => calls(id))],
    when: calls('one more'),
    gives: [],
  },
  {
    name: '10: with so many it ends by an operator only',
    given: [
      ...[restored, ...MANY.map((id) => [calls(id), register(id), command({ type: 'retireSource', id })])],
      ...[lists('a', []), lists('b', []), after(6 * MINUTE), lists('a', [])],
    ],
    when: lists('b', []),
    gives: [],
  },
  {
    name: '10: an operator ends it though a source calls in vain, and the next recovery waits for others',
    given: [restored, calls('c'), command({ type: 'endRecovery', why: 'I looked' }), begin(true)],
    when: calls('c'),
    gives: ['recovery.extended c'],
  },
  {
    name: '10: nor by a source that nobody enabled',
    given: [room, register('a'), begin(true), lists('a', []), lists('a', []), after(HOUR)],
    when: lists('a', []),
    gives: [],
  },
  {
    name: '10: a promise of a lost era never expires: its Confirm may be lost',
    given: [room, reserve('x/1', until(MINUTE)), begin(false), after(HOUR)],
    when: expire('10.0.0.1'),
    gives: ['refused ILLEGAL_STATE'],
  },
  {
    name: '10: a source that quotes a head beyond ours holds the network, and burns no era',
    given: [seen],
    when: lists('agent', ['x/1@10.0.0.9'], { head: 4_000_000, proven: true }),
    gives: ['reconcile.held SOURCE_AHEAD'],
  },
  {
    name: '10: but not by a number that it cannot prove: then nothing is taken, and nothing is held',
    rule: 'NUMBER_BEYOND_NEEDS_A_PROOF',
    given: [seen],
    when: lists('agent', ['x/1@10.0.0.9'], { head: 4_000_000 }),
    gives: [],
  },
]

function answered(since: number) {
  return (scene: Parameters<Exclude<Step, readonly Step[]>>[0]) => {
    const step = answers('agent', 'x/1', '10.0.0.1', 'terminal', since) as Exclude<Step, readonly Step[]>
    return step(scene)
  }
}

/** By a caller that is bound to it. */
function onNode(node: string) {
  return { node, actor: { name: node, node } }
}

function owned(kind: string, name: string, uid: string) {
  return { kind, name, uid, incarnation: 'i', interface: 'eth0' }
}
