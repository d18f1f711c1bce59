/** A new incarnation or uid under a name deals with the older one before it gets an address (DESIGN §2, §3; azure#4350). */
import { describe, expect, test } from 'vitest'
import type { Owner } from '../../src/core/owner.ts'
import { POLICY } from '../../src/core/policy.ts'
import {
  active,
  agentOf,
  claim,
  closed,
  DAY,
  elapsed,
  given,
  on,
  owner,
  pool,
  quarantined,
  release,
  removed,
  reserve,
  reserved,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const vm = (uid: string, incarnation = '1'): Owner => owner({ kind: 'vm', name: 'db', uid, incarnation })
const network = [pool('a', '10.0.0.0/28'), pool('b', '10.0.1.0/28')]

describe('another incarnation', () => {
  test('quarantines what the older one holds, in every pool, and closes it', () => {
    given(...network, active('10.0.0.5', web(1)), reserved('10.0.1.6', web(1)))
      .when(reserve({ owner: web(2), ...inA }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.quarantined 10.0.1.6 SUPERSEDED',
        'lease.reserved 10.0.0.1',
      )
  })

  test('also in a pool that the Reserve does not claim', () => {
    given(...network, active('10.0.0.5', web(1)))
      .when(reserve({ owner: web(2), claims: [claim({ pool: 'b' })] }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.reserved 10.0.1.1',
      )
  })

  test('says by whom, and the deadline is gone', () => {
    const books = given(...network, reserved('10.0.0.5', web(1), { confirmBy: 1 }))
    books.take(reserve({ owner: web(2), ...inA }))
    expect(books.leaseAt('10.0.0.5')).toMatchObject({
      state: 'QUARANTINED',
      confirmBy: null,
      owner: web(1),
      quarantine: { reason: 'SUPERSEDED', by: 'test', why: expect.stringContaining('incarnation 2') },
    })
  })

  test('of another interface, kind or name supersedes nothing', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books.when(reserve({ owner: { ...web(2), interface: 'eth1' }, ...inA })).then('lease.reserved 10.0.0.1')
    books.when(reserve({ owner: { ...web(2), kind: 'container' }, ...inA })).then('lease.reserved 10.0.0.2')
    books
      .when(reserve({ owner: { ...web(2), name: 'web2', uid: 'x' }, ...inA }))
      .then('lease.reserved 10.0.0.3')
  })

  test('which one is newer, no comparison of strings decides', () => {
    given(...network, active('10.0.0.5', web(9)))
      .when(reserve({ owner: web(1), ...inA }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#9 everywhere',
        'lease.reserved 10.0.0.1',
      )
  })

  test('closes an older one once, whatever becomes of each of its leases', () => {
    const kept = [active('10.0.0.5', web(1)), quarantined('10.0.0.5', 'OPERATOR'), active('10.0.1.6', web(1))]
    given(...network, ...kept)
      .when(reserve({ owner: web(2), ...inA }))
      .then(
        'attachment.closed web#1 everywhere',
        'lease.quarantined 10.0.1.6 SUPERSEDED',
        'lease.reserved 10.0.0.1',
      )
    // Closed until now, and from now on for as long as its lease is superseded.
    given(...network, ...kept, closed(web(1)))
      .when(reserve({ owner: web(2), ...inA }))
      .then(
        'lease.quarantined 10.0.1.6 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.reserved 10.0.0.1',
      )
  })

  test('several older ones are each closed once', () => {
    const other = owner({ name: 'web', uid: 'u9', incarnation: '1' })
    given(...network, active('10.0.0.5', web(1)), active('10.0.0.6', other), active('10.0.1.5', web(1)))
      .when(reserve({ owner: web(2), ...inA }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.quarantined 10.0.0.6 SUPERSEDED',
        'attachment.closed u9#1 everywhere',
        'lease.quarantined 10.0.1.5 SUPERSEDED',
        'lease.reserved 10.0.0.1',
      )
  })

  test('a refused Reserve supersedes nothing', () => {
    const books = given(pool('a', '10.0.0.0/30'), active('10.0.0.1', web(1)), active('10.0.0.2', vm('u1')))
    books.when(reserve({ owner: web(2), ...inA })).refused('POOL_EXHAUSTED')
    books
      .when(reserve({ owner: web(2), ...inA, supersedes: removed({ incarnation: '1' }) }))
      .refused('POOL_EXHAUSTED')
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'ACTIVE' })
  })

  test('a node may supersede what is on another: it only quarantines', () => {
    given(...network, active('10.0.0.5', web(1), { placement: on('n1') }))
      .when(reserve({ owner: web(2), ...inA, actor: agentOf('n2'), placement: on('n2') }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.reserved 10.0.0.1',
      )
  })
})

describe.each([
  'SUPERSEDED',
  'REMOVAL_UNCONFIRMED',
  'CONFLICT',
  'OPERATOR',
  'RELEASED_BUT_LIVE',
  'SECOND_ADDRESS',
] as const)('an older life whose lease is %s already', (reason) => {
  const old = owner({ name: 'web', uid: 'u1', incarnation: '1' })
  const past = [...network, active('10.0.0.5', old), quarantined('10.0.0.5', reason)]
  const inB = { claims: [claim({ pool: 'b' })] }

  describe.each([
    ['incarnation', owner({ name: 'web', uid: 'u1', incarnation: '2' })],
    ['uid', owner({ name: 'web', uid: 'u2', incarnation: '1' })],
  ])('and another %s', (_what, newcomer) => {
    test('is closed, and its late Reserve supersedes nobody', () => {
      const books = given(...past)
      const before = books.leaseAt('10.0.0.5')
      books
        .when(reserve({ owner: newcomer, ...inA }))
        .then('attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.1')
      for (const claims of [inA, inB])
        books.when(reserve({ owner: old, ...claims })).refused('ATTACHMENT_CLOSED')
      expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'RESERVED', owner: newcomer })
      expect(books.leaseAt('10.0.0.5')).toEqual(before)
      // Said again, the Reserve leaves no event, whether the closing binds still or not.
      books.when(reserve({ owner: newcomer, ...inA })).then()
      books.wait(POLICY.retryHorizonMs + 1)
      books.when(reserve({ owner: newcomer, ...inA })).then()
      // Another claim overtakes it anew, unless its lease keeps the closing.
      const kept = reason === 'SUPERSEDED' || reason === 'REMOVAL_UNCONFIRMED'
      books
        .when(reserve({ owner: newcomer, ...inB }))
        .then(...(kept ? [] : ['attachment.closed u1#1 everywhere']), 'lease.reserved 10.0.1.1')
    })

    test('is closed everywhere, though a Release by id closed it in one pool', () => {
      const books = given(...past, closed(old, 'a'))
      books
        .when(reserve({ owner: newcomer, ...inA }))
        .then('attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.1')
      books.when(reserve({ owner: old, ...inB })).refused('ATTACHMENT_CLOSED')
    })

    test('is not closed by a Reserve that is refused', () => {
      const books = given(...past)
      const named = { claims: [claim({ pool: 'a', address: '10.0.0.5' })] }
      books.when(reserve({ owner: newcomer, ...named })).refused('ADDRESS_QUARANTINED')
      books.when(reserve({ owner: old, ...inA })).then('lease.reserved 10.0.0.1')
    })
  })

  test('is not closed by a Reserve without an incarnation, which may be the older one', () => {
    given(...past)
      .when(reserve({ owner: web(), ...inA }))
      .then('lease.reserved 10.0.0.1')
  })
})

describe('an owner without an incarnation', () => {
  test('is never superseded by itself: reserve, release, reserve again just works', () => {
    const books = given(...network)
    for (let round = 0; round < 3; round += 1) {
      const lease = books.when(reserve({ owner: web(), ...inA })).then(`lease.reserved 10.0.0.${round + 1}`)
      books.when(reserve({ owner: web(), ...inA })).then()
      books.when(release(lease.fencingToken)).then(`lease.released ${lease.address}`)
    }
  })

  test.each(['RESERVED', 'ACTIVE'] as const)(
    'cannot tell whether it is newer than a named one: %s',
    (state) => {
      const books = given(...network, reserved('10.0.0.5', web(1), { state }))
      const refusal = books.refuse(reserve({ owner: web(), ...inA }), 'ILLEGAL_STATE')
      expect(refusal.metadata).toMatchObject({
        address: '10.0.0.5',
        holder: expect.stringContaining('incarnation 1'),
      })
      books.refuse(
        reserve({ owner: web(), ...inA, supersedes: removed({ incarnation: '1' }) }),
        'ILLEGAL_STATE',
      )
    },
  )

  test('beside a quarantined one of a named life it may reserve, and say that one is removed', () => {
    const past = [...network, active('10.0.0.5', web(1)), quarantined('10.0.0.5', 'SUPERSEDED')]
    given(...past)
      .when(reserve({ owner: web(), ...inA }))
      .then('lease.reserved 10.0.0.1')
    given(...past)
      .when(reserve({ owner: web(), ...inA, supersedes: removed({ incarnation: '1' }) }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
  })

  test('is superseded by a named one, and not closed', () => {
    const books = given(...network, active('10.0.0.5', web()))
    books
      .when(reserve({ owner: web(1), ...inA }))
      .then('lease.quarantined 10.0.0.5 SUPERSEDED', 'lease.reserved 10.0.0.1')
  })
})

describe('another uid', () => {
  const held = (node: string) => given(...network, active('10.0.0.5', vm('u1'), { placement: on(node) }))
  const superseded = [
    'lease.quarantined 10.0.0.5 SUPERSEDED',
    'attachment.closed u1#1 everywhere',
    'lease.reserved 10.0.0.1',
  ]

  test('on another node is refused with the holder: two of one name may both run', () => {
    const refusal = held('n1').refuse(
      reserve({ owner: vm('u2'), ...inA, placement: on('n2') }),
      'ILLEGAL_STATE',
    )
    expect(refusal.metadata).toMatchObject({ holder: expect.stringContaining('u1'), leaseId: 'default/4' })
    expect(refusal.message).toContain('n1')
  })

  test.each([
    ['on the same node', 'n1', 'n1'],
    ['from a caller that names no node', 'n1', ''],
    ['of a holder whose node is unknown', '', 'n2'],
  ])('supersedes %s', (_how, before, now) => {
    held(before)
      .when(reserve({ owner: vm('u2'), ...inA, placement: on(now) }))
      .then(...superseded)
  })

  test('supersedes if the caller names the holder, removed or not', () => {
    for (const supersedes of [
      { uid: 'u1', incarnation: null, removalConfirmed: false },
      { uid: null, incarnation: '1', removalConfirmed: false },
      { uid: 'u1', incarnation: '1', removalConfirmed: false },
    ]) {
      held('n1')
        .when(reserve({ owner: vm('u2'), ...inA, placement: on('n2'), supersedes }))
        .then(...superseded)
    }
  })

  test.each([
    ['another uid', { uid: 'u9', incarnation: null }],
    ['another incarnation', { uid: null, incarnation: '9' }],
    ['the uid with another incarnation', { uid: 'u1', incarnation: '9' }],
    ['nobody', { uid: null, incarnation: null }],
  ])('naming %s names not the holder', (_what, who) => {
    held('n1').refuse(
      reserve({
        owner: vm('u2'),
        ...inA,
        placement: on('n2'),
        supersedes: { ...who, removalConfirmed: true },
      }),
      'ILLEGAL_STATE',
    )
  })

  test('of a pod supersedes: a name is never given to two pods', () => {
    given(
      ...network,
      active('10.0.0.5', owner({ name: 'web', uid: 'u1', incarnation: '1' }), { placement: on('n1') }),
    )
      .when(
        reserve({ owner: owner({ name: 'web', uid: 'u2', incarnation: '1' }), ...inA, placement: on('n2') }),
      )
      .then(...superseded)
  })

  test('the same uid on another node supersedes: it moved', () => {
    held('n1')
      .when(reserve({ owner: vm('u1', '2'), ...inA, placement: on('n2') }))
      .then(...superseded)
  })

  test('a quarantined lease on another node is no reason to refuse', () => {
    given(
      ...network,
      active('10.0.0.5', vm('u1'), { placement: on('n1') }),
      quarantined('10.0.0.5', 'OPERATOR'),
    )
      .when(reserve({ owner: vm('u2'), ...inA, placement: on('n2') }))
      .then('attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.1')
  })
})

describe('a predecessor whose removal is confirmed', () => {
  const held = () => given(...network, active('10.0.0.5', web(1), { placement: on('n1') }))
  const successor = { owner: web(2), supersedes: removed({ incarnation: '1' }) }

  test('lets its address cool', () => {
    const books = held()
    books
      .when(reserve({ ...successor, ...inA }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
    expect(books.ledger.fold().addresses.get('10.0.0.5')?.released).toMatchObject({ removalConfirmed: true })
  })

  test.each([
    ['by name', claim({ pool: 'a', address: '10.0.0.5' })],
    ['by preference', claim({ pool: 'a', preferPrevious: true })],
  ])('hands its address on %s, under a new token', (_how, wanted) => {
    const lease = held()
      .when(reserve({ ...successor, claims: [wanted] }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.5')
    expect(lease).toMatchObject({
      fencingToken: 7,
      version: 7,
      owner: web(2),
      state: 'RESERVED',
      reused: false,
    })
  })

  test('hands nothing on to a claim on another pool', () => {
    held()
      .when(reserve({ ...successor, claims: [claim({ pool: 'b', preferPrevious: true })] }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.1.1')
  })

  test('hands nothing on that the caller sees live', () => {
    const liveAddresses = ['10.0.0.5']
    const books = held()
    // A refused Reserve supersedes nothing: the predecessor's lease stands, and keeps its address from everybody.
    books
      .when(reserve({ ...successor, claims: [claim({ pool: 'a', address: '10.0.0.5' })], liveAddresses }))
      .refused('ADDRESS_QUARANTINED')
    expect(books.leaseAt('10.0.0.5')).toMatchObject({ state: 'ACTIVE' })
    books
      .when(reserve({ ...successor, claims: [claim({ pool: 'a', preferPrevious: true })], liveAddresses }))
      .then(
        'lease.released 10.0.0.5',
        'attachment.closed web#1 everywhere',
        'lease.quarantined 10.0.0.5 SEEN_BY_CALLER (nobody)',
        'lease.reserved 10.0.0.1',
      )
  })

  test.each(['SUPERSEDED', 'REMOVAL_UNCONFIRMED'] as const)('also one that is %s by now', (reason) => {
    given(...network, active('10.0.0.5', web(1)), quarantined('10.0.0.5', reason))
      .when(reserve({ ...successor, claims: [claim({ pool: 'a', preferPrevious: true })] }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.5')
  })

  test.each(['CONFLICT', 'OPERATOR', 'RELEASED_BUT_LIVE', 'SECOND_ADDRESS'] as const)(
    'not one in quarantine for reasons of its own: %s',
    (reason) => {
      given(...network, active('10.0.0.5', web(1)), quarantined('10.0.0.5', reason))
        .when(reserve({ ...successor, ...inA }))
        .then('attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
    },
  )

  test('no longer counts against the limit of the holder', () => {
    const books = given(pool('a', '10.0.0.0/28', { ownerLimit: 1 }), active('10.0.0.5', web(1)))
    books.when(reserve({ owner: web(2), ...inA })).refused('OWNER_LIMIT')
    books
      .when(reserve({ ...successor, ...inA }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
  })

  test('by the word of a node, only on that node', () => {
    const refusal = held().refuse(
      reserve({ ...successor, ...inA, actor: agentOf('n2'), placement: on('n2') }),
      'PERMISSION_DENIED',
    )
    expect(refusal.metadata.node).toBe('n2')
    held()
      .when(reserve({ ...successor, ...inA, actor: agentOf('n1'), placement: on('n1') }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
  })

  test('closes it anew, long after it was superseded: its late calls hold nothing', () => {
    const books = given(
      ...network,
      active('10.0.0.5', web(1)),
      quarantined('10.0.0.5', 'SUPERSEDED'),
      closed(web(1)),
      elapsed(DAY),
    )
    books
      .when(reserve({ ...successor, ...inA }))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.1')
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
  })

  test('the newcomer itself is never its own predecessor', () => {
    given(...network, active('10.0.0.5', web(2)))
      .when(reserve({ owner: web(2), ...inA, supersedes: removed({ incarnation: '2' }) }))
      .then()
  })
})

test('reuse comes first, and supersedes what is left of older ones', () => {
  given(...network, active('10.0.0.5', web(2)), active('10.0.0.6', web(1)))
    .when(reserve({ owner: web(2), ...inA }))
    .then('lease.quarantined 10.0.0.6 SUPERSEDED', 'attachment.closed web#1 everywhere')
})
