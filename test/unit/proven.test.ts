/**
 * The second look: a proof is made outside the lock, and whatever changed since wins. Each guard is a test here that
 * fails without it; that a proof proves anything at all is the judge's business (judge.test.ts).
 */
import { describe, expect, test } from 'vitest'
import { emptyBooks, leasesSeenOf, MOST_ENTRIES } from '../../src/core/books.ts'
import { type Command, type SightedEntry, TERMINAL } from '../../src/core/command.ts'
import { judgeHeld, type LeaseEvidence, type Proof } from '../../src/core/judge.ts'
import { judgePolicy, POLICY, type ReapPolicy } from '../../src/core/policy.ts'
import {
  active,
  claim,
  closed,
  confirm,
  elapsed,
  entry,
  type Fact,
  fenced,
  fenceNode,
  type Given,
  given,
  givenIn,
  HOUR,
  lists,
  listsPartly,
  MINUTE,
  on,
  owner,
  pool,
  quarantine,
  reapProven,
  recovering,
  release,
  released,
  reserve,
  restore,
  resumeHold,
  SECOND,
  source,
  updatePool,
} from '../support/given.ts'
import { absence, evidenceOf, missing, proofOf, showing } from '../support/proof.ts'
import { QUARANTINED, SUBJECT, statesOf } from '../support/states.ts'

const api = owner({ name: 'api', uid: 'u1', incarnation: '1' })
const stranger = owner({ name: 'stranger', uid: 'u9', incarnation: '1' })
const REAPED = `lease.reaped ${SUBJECT}`

/** A lease that nobody sees any more, and a source that says so. */
function leaked(...facts: readonly Fact[]): Given {
  const state = facts.length > 0 ? facts : [active(SUBJECT, api, { placement: on('n1') })]
  return given(pool('a', '10.0.0.0/24'), ...state, elapsed(HOUR), source('agent'), lists('agent'))
}

describe('a lease whose absence is proven', () => {
  test('is reaped: it cools, and the event has the proof', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.when(reapProven(proof)).then(REAPED)
    const event = books.ledger.events.at(-1)!
    expect(event).toMatchObject({
      cause: 'PROVEN_ABSENT',
      evidence: { reason: 'PROVEN_ABSENT', sources: ['agent'], proof },
      ended: { removalConfirmed: false, availableAt: books.ledger.now() + 2 * MINUTE },
    })
    // As it is read back from the log.
    expect(JSON.parse(JSON.stringify(event.evidence))).toEqual(event.evidence)
  })

  test('an answer that stands for two reports of its source stands under the lock as well, a proof for a minute', () => {
    const books = leaked()
    const lease = books.leaseAt(SUBJECT)!
    const lookup = { answer: 'gone', at: books.ledger.now() - 8 * MINUTE, detail: 'given' } as const
    const witnesses = [missing(books.ledger, lease, { answersForMs: 10 * MINUTE, lookup })]
    const proof = absence(books.ledger, SUBJECT, { witnesses })
    books.wait(MINUTE + 1)
    books.refuse(reapProven(proof), 'VERSION_MISMATCH')
    const younger = absence(books.ledger, SUBJECT, { witnesses })
    books.when(reapProven(younger)).then(REAPED)
  })

  test('rests on the sources that testify, and on no other', () => {
    const books = leaked()
    source('other')(books.ledger)
    const lease = books.leaseAt(SUBJECT)!
    const other = missing(books.ledger, lease, { source: 'other', why: 'COVERS', enabled: false })
    const proof = absence(books.ledger, SUBJECT, { witnesses: [missing(books.ledger, lease), other] })
    books.when(reapProven(proof)).then(REAPED)
    expect(books.ledger.events.at(-1)!.evidence!.sources).toEqual(['agent'])
  })

  const states = statesOf(api)
  test.each(['RESERVED', 'ACTIVE', ...QUARANTINED] as const)('%s', (state) => {
    const books = leaked(...states[state])
    const lease = books.leaseAt(SUBJECT)!
    // The judge reaps no quarantine of an operator; a proof of another state is tried on it.
    const judged = { ...lease, quarantine: state === 'OPERATOR' ? null : lease.quarantine }
    const witnesses = [missing(books.ledger, lease)]
    const command = reapProven(absence(books.ledger, SUBJECT, { lease: judged, witnesses }))
    if (state === 'OPERATOR') books.when(command).refused('ILLEGAL_STATE')
    else books.when(command).then(REAPED)
  })

  test('reaped twice by two workers, is reaped once', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.accept(reapProven(proof))
    books.when(reapProven(proof)).refused('LEASE_LOST')
  })
})

describe('the second look finds that', () => {
  const refusedAfter = (change: (books: Given) => void, reason: Parameters<Given['refuse']>[1]) => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    change(books)
    const refusal = books.when(reapProven(proof)).refused(reason)
    expect(books.leaseAt(SUBJECT)).not.toBeNull()
    return refusal
  }
  const fact = (one: Fact) => (books: Given) => one(books.ledger)

  test('the lease has changed: the version that was judged, or nothing (W-02)', () => {
    refusedAfter((books) => {
      books.accept(quarantine({ token: books.leaseAt(SUBJECT)!.fencingToken }))
    }, 'VERSION_MISMATCH')
  })

  test('the proof is of another version than the command', () => {
    const books = leaked()
    books.when(reapProven(absence(books.ledger, SUBJECT), { version: 1 })).refused('VERSION_MISMATCH')
    const proof = { ...absence(books.ledger, SUBJECT), version: 1 }
    books.when(reapProven(proof, { version: books.leaseAt(SUBJECT)!.version })).refused('VERSION_MISMATCH')
  })

  test('the proof is of another lease (9.1)', () => {
    const books = leaked(active(SUBJECT, api), active('10.0.0.9', stranger))
    const proof = absence(books.ledger, '10.0.0.9')
    const { fencingToken, version } = books.leaseAt(SUBJECT)!
    const other = { ...proof, version }
    books.when(reapProven(other, { token: fencingToken, version })).refused('INVALID_FIELD')
  })

  test('the pool asks for more since', () => {
    const stricter: readonly Partial<ReapPolicy>[] = [
      { misses: 4 },
      { minimumAgeMs: 2 * HOUR, unwitnessedAgeMs: 2 * HOUR },
    ]
    for (const reapPolicy of stricter) {
      const refusal = refusedAfter((books) => {
        books.accept(updatePool('a', { reapPolicy }))
      }, 'VERSION_MISMATCH')
      expect(refusal.message).toContain('reap policy that pool a has now')
    }
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.accept(updatePool('a', { reapPolicy: { misses: 2 } }))
    books.when(reapProven(proof)).then(REAPED)
  })

  test('the lease has ended', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.accept(release(proof.token))
    books.when(reapProven(proof)).refused('LEASE_LOST')
  })

  test('the lease never was', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.when(reapProven({ ...proof, token: 1 })).refused('LEASE_NOT_FOUND')
  })

  test('somebody sees it: a worker was paused between verdict and reap', () => {
    const refusal = refusedAfter(fact(lists('agent', entry(SUBJECT, api))), 'ILLEGAL_STATE')
    expect(refusal.metadata).toMatchObject({ seenBy: 'agent', address: SUBJECT })
  })

  test.each([
    ['another source', 'ENABLED'],
    ['a source in dry run', 'REGISTERED'],
  ] as const)('%s sees it', (_who, state) => {
    refusedAfter((books) => {
      source('other', { state })(books.ledger)
      lists('other', entry(SUBJECT, api))(books.ledger)
    }, 'ILLEGAL_STATE')
  })

  test.each([
    ['for another', entry(SUBJECT, stranger)],
    ['for nobody known', entry(SUBJECT, null)],
    ['paused', entry(SUBJECT, api, { state: 'paused' })],
  ])('it is seen %s', (_whom, seen) => {
    refusedAfter(fact(lists('agent', seen)), 'ILLEGAL_STATE')
  })

  test('it was seen since, and is no more', () => {
    const refusal = refusedAfter((books) => {
      books.wait(SECOND)
      lists('agent', entry(SUBJECT, api))(books.ledger)
      books.wait(SECOND)
      lists('agent')(books.ledger)
    }, 'VERSION_MISMATCH')
    expect(refusal.message).toContain('seen since')
  })

  test('it is listed as ended: that keeps nothing', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    lists('agent', entry(SUBJECT, api, { state: 'terminal' }))(books.ledger)
    books.when(reapProven(proof)).then(REAPED)
  })

  test('what was seen before the proof was known to it', () => {
    const books = leaked()
    lists('agent', entry(SUBJECT, api))(books.ledger)
    const lastSightedAt = books.ledger.now()
    books.wait(10 * MINUTE)
    lists('agent')(books.ledger)
    books.when(reapProven(absence(books.ledger, SUBJECT, { lastSightedAt }))).then(REAPED)
  })

  test.each([
    ['is held', 'agent'],
    ['of the network are', ''],
  ])('reaping on the word of its source %s on hold', (_what, held) => {
    const refusal = refusedAfter((books) => hold(held)(books.ledger), 'ILLEGAL_STATE')
    expect(refusal.message).toContain('on hold')
    expect(refusal.metadata.held).toBe(held === '' ? 'default' : held)
  })

  test('a hold of another source is none of its business', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    hold('other')(books.ledger)
    books.when(reapProven(proof)).then(REAPED)
  })

  test.each([
    ['is in another epoch', { epoch: 'b2' }],
    ['was retired', { state: 'RETIRED' }],
    ['is in dry run', { state: 'REGISTERED' }],
    ['is warming up', { warm: false }],
    ['has not reported completely in this era', { era: null }],
    ['reported completely in an era that is over', { era: -1 }],
  ] as const)('its source %s', (_what, change) => {
    refusedAfter(({ ledger }) => {
      ledger.world.sources.set('agent', { ...ledger.world.sources.get('agent')!, ...change })
    }, 'VERSION_MISMATCH')
  })

  test('its source is gone', () => {
    refusedAfter(({ ledger }) => {
      ledger.world.sources.delete('agent')
    }, 'VERSION_MISMATCH')
  })

  test('every source it rests on must stand', () => {
    const books = leaked()
    source('other')(books.ledger)
    lists('other')(books.ledger)
    const lease = books.leaseAt(SUBJECT)!
    const witnesses = ['agent', 'other'].map((one) => missing(books.ledger, lease, { source: one }))
    const proof = absence(books.ledger, SUBJECT, { witnesses })
    source('other', { epoch: 'b2', era: 0 })(books.ledger)
    const refusal = books.refuse(reapProven(proof), 'VERSION_MISMATCH')
    expect(refusal.message).toContain('other')
  })

  test('another era has begun, also where nothing recovers', () => {
    const refusal = refusedAfter(({ ledger }) => {
      recovering()(ledger)
      ledger.submit({ ...resumeHold(null), type: 'endRecovery', why: 'looked at every host' })
      lists('agent')(ledger)
    }, 'VERSION_MISMATCH')
    expect(refusal.message).toContain('era')
  })

  test('the network is recovering: nothing is reaped, not on evidence of this era either', () => {
    const books = leaked()
    recovering()(books.ledger)
    lists('agent')(books.ledger)
    const proof = absence(books.ledger, SUBJECT, {
      witnesses: [missing(books.ledger, { ...books.leaseAt(SUBJECT)!, version: 2 ** 40 }, { about: api })],
    })
    books.when(reapProven(proof)).refused('NETWORK_RECOVERING')
  })

  test.each([
    ['a second before it is a minute old', 59 * SECOND, null],
    ['when it is a minute old', 60 * SECOND, null],
    ['later', 60 * SECOND + 1, 'VERSION_MISMATCH'],
  ] as const)('the proof is too old: %s', (_when, age, reason) => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    books.wait(age)
    const { refusal } = books.ledger.submit(reapProven(proof))
    expect(refusal?.reason ?? null).toBe(reason)
  })

  test('the proof is of a time to come: its clock is wrong', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    const ahead = { ...proof, at: proof.at + 60 * SECOND + 1 }
    books.when(reapProven(ahead)).refused('VERSION_MISMATCH')
  })

  test('the proof proves nothing, whoever says so (15.2)', () => {
    const books = leaked()
    const proof = absence(books.ledger, SUBJECT)
    const [witness] = proof.sources
    const weaker: Proof = { ...proof, sources: [{ ...witness!, misses: witness!.misses.slice(0, 2) }] }
    books.when(reapProven(weaker)).refused('INVALID_FIELD')
    // Nor does one of absence give anything back.
    books.when(restore(proof)).refused('INVALID_FIELD')
  })
})

/** As a cap leaves it. */
function hold(held: string): Fact {
  return (ledger) => {
    const { head } = ledger.fold()
    ledger.append([
      {
        network: 'default',
        seq: head + 1,
        at: ledger.now(),
        actor: 'somebody',
        cause: 'given',
        requestId: null,
        traceId: null,
        type: 'reconcile.held',
        evidence: { source: held, why: 'too many', reaps: 4, leases: 10, leaseId: 'default/3' },
      },
    ])
  }
}

describe('caps of reaps on absence (cilium#9888, aws#3876, calico#5044)', () => {
  const address = (n: number) => `10.0.0.${n}`
  const last = (leases: number, listed: number) =>
    Array.from({ length: listed }, (_, n) => {
      const of = leases - listed + n
      return entry(address(of + 1), owner({ name: `w${of}`, uid: `w${of}` }))
    })
  /** So many leases, the last of which the source lists, and what it lists besides. */
  const crowd = (leases: number, listed: number, besides: readonly SightedEntry[] = []) =>
    given(
      pool('a', '10.0.0.0/24'),
      ...Array.from({ length: leases }, (_, n) =>
        active(address(n + 1), owner({ name: `w${n}`, uid: `w${n}` })),
      ),
      elapsed(HOUR),
      source('agent'),
      lists('agent', ...last(leases, listed), ...besides),
    )
  const reapOf = (books: Given, n: number, fields: Partial<LeaseEvidence> = {}): Command =>
    reapProven(absence(books.ledger, address(n), fields))

  test('three are always allowed; the fourth is not where it is more than a fifth', () => {
    const books = crowd(10, 0)
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    const refusal = books
      .when(reapOf(books, 4))
      .refused('ILLEGAL_STATE', 'reconcile.held everything', 'reconcile.held agent')
    expect(refusal.message).toContain('on hold')
    expect(books.ledger.events.at(-2)!.evidence).toEqual({
      source: '',
      why: expect.stringContaining('4 of 10 leases of the network'),
      reaps: 4,
      leases: 10,
      leaseId: 'default/6',
    })
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ source: 'agent', reaps: 4, leases: 4 })
    // Held once: after that nothing is written.
    books.when(reapOf(books, 5)).refused('ILLEGAL_STATE')
    expect(books.leaseAt(address(4))).not.toBeNull()
  })

  test('of a source: of what it lists, and what it lost', () => {
    // 5 of 25 is a fifth, 6 of 26 is more.
    const books = crowd(100, 20)
    for (const n of [1, 2, 3, 4, 5]) books.accept(reapOf(books, n))
    books.when(reapOf(books, 6)).refused('ILLEGAL_STATE', 'reconcile.held agent')
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ reaps: 6, leases: 26 })
  })

  test('what it lists besides leases makes nothing safer (5.4)', () => {
    const foreign = Array.from({ length: 200 }, (_, n) => entry(`10.9.0.${n}`, null))
    const over = { ...entry(address(30), null), state: TERMINAL }
    const books = crowd(100, 0, [...foreign, over, over])
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    books.when(reapOf(books, 4)).refused('ILLEGAL_STATE', 'reconcile.held agent')
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ source: 'agent', reaps: 4, leases: 4 })
  })

  test('a block in which it lists many is one lease', () => {
    const block = (n: number) => `10.0.${n}.0`
    const books = given(
      pool('a', '10.0.0.0/16', { prefixLength: 24 }),
      ...Array.from({ length: 40 }, (_, n) => active(block(n), owner({ name: `w${n}`, uid: `w${n}` }))),
      elapsed(HOUR),
      source('agent'),
      lists('agent', ...Array.from({ length: 90 }, (_, n) => entry(`10.0.39.${n + 1}`, null))),
    )
    const ended = (n: number) => reapProven(absence(books.ledger, block(n)))
    for (const n of [0, 1, 2]) books.accept(ended(n))
    books.when(ended(3)).refused('ILLEGAL_STATE', 'reconcile.held agent')
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ reaps: 4, leases: 5 })
  })

  test('of a long list some is looked at, and the rest is taken to be like it', () => {
    const books = crowd(200, 0)
    books.ledger.world.register('agent', { size: 100_000 })
    const lost = (looked: { readonly entries: number; readonly leases: number }) => {
      const seen = { ...emptyBooks('default'), heldLeases: 200 }
      seen.leasesSeen.set('agent', { upTo: MOST_ENTRIES, ...looked })
      return leasesSeenOf(seen, books.ledger.world.bookOf('agent')!, 1_000)
    }
    expect(lost({ entries: MOST_ENTRIES, leases: 4 })).toBe(97)
    expect(lost({ entries: MOST_ENTRIES, leases: 900 }), 'no more than there are').toBe(200)
    expect(lost({ entries: MOST_ENTRIES - 1, leases: 4 }), 'all of it was looked at').toBe(4)
  })

  test('of the network: of what is held, and what was taken', () => {
    // 5 of 25 is a fifth, 6 of 25 is more; of each source they are three.
    const books = crowd(25, 0)
    source('other')(books.ledger)
    lists('other')(books.ledger)
    const byOther = (n: number) =>
      reapOf(books, n, {
        witnesses: [missing(books.ledger, books.leaseAt(address(n))!, { source: 'other' })],
      })
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    for (const n of [4, 5]) books.accept(byOther(n))
    books.when(byOther(6)).refused('ILLEGAL_STATE', 'reconcile.held everything')
  })

  test('are reached within one batch', () => {
    const books = crowd(10, 0)
    const results = books.ledger.submitBatch([1, 2, 3, 4, 5].map((n) => reapOf(books, n)))
    expect(results.map(({ refusal }) => refusal?.reason ?? 'reaped')).toEqual([
      'reaped',
      'reaped',
      'reaped',
      'ILLEGAL_STATE',
      'ILLEGAL_STATE',
    ])
    expect(results.map(({ events }) => events.length)).toEqual([1, 1, 1, 2, 0])
  })

  test('of one source do not stop another', () => {
    const books = crowd(60, 0)
    source('other')(books.ledger)
    lists('other', ...last(60, 40))(books.ledger)
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    books.when(reapOf(books, 4)).refused('ILLEGAL_STATE', 'reconcile.held agent')
    const lease = books.leaseAt(address(4))!
    books.accept(reapOf(books, 4, { witnesses: [missing(books.ledger, lease, { source: 'other' })] }))
  })

  test('let go after an hour, and not before', () => {
    const books = crowd(10, 0)
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    books.wait(POLICY.holdWindowMs - 1)
    books.when(reapOf(books, 4)).refused('ILLEGAL_STATE', 'reconcile.held everything', 'reconcile.held agent')
    const later = crowd(10, 0)
    for (const n of [1, 2, 3]) later.accept(reapOf(later, n))
    later.wait(POLICY.holdWindowMs)
    later.accept(reapOf(later, 4))
  })

  test('end by an operator, and count anew from then on', () => {
    const books = crowd(10, 0)
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    books.ledger.submit(reapOf(books, 4))
    books.when(resumeHold(null)).then('reconcile.resumed everything')
    books.when(reapOf(books, 4)).refused('ILLEGAL_STATE')
    books.when(resumeHold('agent')).then('reconcile.resumed agent')
    for (const n of [4, 5, 6]) books.accept(reapOf(books, n))
    books.when(reapOf(books, 7)).refused('ILLEGAL_STATE', 'reconcile.held everything', 'reconcile.held agent')
  })

  test('resumed and reaped within one batch', () => {
    const books = crowd(10, 0)
    for (const n of [1, 2, 3]) books.accept(reapOf(books, n))
    books.ledger.submit(reapOf(books, 4))
    const results = books.ledger.submitBatch([
      resumeHold(null),
      resumeHold('agent'),
      ...[4, 5, 6, 7].map((n) => reapOf(books, n)),
    ])
    expect(results.map(({ refusal }) => refusal === null)).toEqual([true, true, true, true, true, false])
  })

  test('resuming what is not held does nothing', () => {
    const books = crowd(1, 0)
    books.when(resumeHold(null)).then()
    books.when(resumeHold('agent')).then()
    books.when(resumeHold('nobody')).then()
  })

  test('count what rests on absence alone: a boot that ended may end many (12.2)', () => {
    const books = given(
      pool('a', '10.0.0.0/24'),
      ...Array.from({ length: 14 }, (_, n) =>
        active(address(n + 1), owner({ name: `w${n}`, uid: `w${n}` }), {
          placement: { node: 'n1', boot: 'b0', labels: {} },
        }),
      ),
      elapsed(HOUR),
      source('agent', { node: 'n1' }),
      lists('agent'),
    )
    const ended = (n: number) => {
      const bootEnded = { boot: 'b0', newBoot: 'b1', at: books.ledger.now() - MINUTE }
      const lease = books.leaseAt(address(n))!
      const witnesses = [missing(books.ledger, lease, { bootEnded, misses: [] })]
      return reapOf(books, n, { witnesses })
    }
    for (let n = 1; n <= 6; n += 1) {
      books.accept(ended(n))
      expect(books.ledger.events.at(-1)!.cause).toBe('PREVIOUS_BOOT')
    }
    const together = [reapOf(books, 10), ended(7), ended(8), ended(9), reapOf(books, 11), reapOf(books, 12)]
    for (const { refusal } of books.ledger.submitBatch(together)) expect(refusal).toBeNull()
    books.accept(ended(13))
    books
      .when(reapOf(books, 14))
      .refused('ILLEGAL_STATE', 'reconcile.held everything', 'reconcile.held agent')
  })
})

describe('a node that was fenced', () => {
  const ON_N1 = { placement: { node: 'n1', boot: 'b1', labels: {} } }
  const fencedBy = (books: Given) => {
    const fence = books.ledger.fold().fences.values().next().value!
    return { node: 'n1', boot: 'b1', head: fence.head, by: fence.by, why: fence.why, at: fence.at }
  }
  const dark = (...facts: readonly Fact[]) =>
    given(
      pool('a', '10.0.0.0/24'),
      source('agent', { node: 'n1' }),
      active(SUBJECT, api, ON_N1),
      lists('agent', entry(SUBJECT, api)),
      elapsed(MINUTE),
      ...facts,
    )
  const proofIn = (books: Given) =>
    proofOf(
      evidenceOf(books.ledger, SUBJECT, {
        fencedBy: fencedBy(books),
        lastSightedAt: books.ledger.now() - MINUTE,
        witnesses: [],
        placements: [{ node: 'n1', boot: 'b1', source: 'agent' }],
      }),
    )

  test('frees what its silent source still lists', () => {
    const books = dark(fenced('n1', 'b1'))
    books.when(reapProven(proofIn(books))).then(REAPED)
    expect(books.ledger.events.at(-1)).toMatchObject({ cause: 'FENCED', evidence: { sources: [] } })
  })

  test('and reports again was fenced falsely: nothing is freed', () => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    lists('agent', entry(SUBJECT, api))(books.ledger)
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test.each([
    ['node', { node: 'n2' }],
    ['boot', { boot: 'b2' }],
  ])('frees nothing that another %s lists', (_what, where) => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    // Of another that was fenced as well, another statement is about.
    fenced('n2', 'b1')(books.ledger)
    fenced('n1', 'b2')(books.ledger)
    source('other')(books.ledger)
    books.ledger.world.report('other', [entry(SUBJECT, api, where)], {
      head: 2,
      begunAt: books.ledger.now() - MINUTE,
      era: 0,
      complete: true,
    })
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test('frees nothing on a list of which nothing proves the head', () => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    listsPartly('agent', [entry(SUBJECT, stranger)], null)(books.ledger)
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test.each([
    ['in part', true],
    ['completely, and is warming up', false],
  ])('and reports again %s, was fenced falsely too', (_what, warm) => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    books.ledger.world.sources.set('agent', { ...books.ledger.world.sources.get('agent')!, warm })
    if (warm) listsPartly('agent', [entry(SUBJECT, api)], books.ledger.fold().head)(books.ledger)
    else lists('agent', entry(SUBJECT, api))(books.ledger)
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test.each([
    [
      'completely',
      (books: Given) => lists('agent', entry(SUBJECT, stranger, { state: 'terminal' }))(books.ledger),
    ],
    ['in part', (books: Given) => listsPartly('agent', [], null)(books.ledger)],
  ])('and reports again %s, without what it had, was fenced falsely for all of it (6.3)', (_what, report) => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    books.ledger.world.report('agent', [], {
      head: books.ledger.fold().head,
      begunAt: books.ledger.now() - MINUTE,
      era: 0,
      complete: true,
    })
    books.wait(1)
    report(books)
    books.when(reapProven(proof)).refused('VERSION_MISMATCH')
    // Said again in the knowledge of it, it holds.
    books.wait(MINUTE)
    fenced('n1', 'b1')(books.ledger)
    books.when(reapProven(proofIn(books))).then(REAPED)
  })

  test('frees what it listed when it last reported, in part, before it was fenced', () => {
    const books = dark(
      (ledger) => listsPartly('agent', [entry(SUBJECT, api)], ledger.fold().head)(ledger),
      elapsed(MINUTE),
      fenced('n1', 'b1'),
    )
    books.when(reapProven(proofIn(books))).then(REAPED)
  })

  test('is held back with the network', () => {
    const books = dark(fenced('n1', 'b1'))
    const proof = proofIn(books)
    hold('')(books.ledger)
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test('what its source lists is life for every other ground', () => {
    const books = dark(fenced('n1', 'b1'), released(SUBJECT), active(SUBJECT, stranger, ON_N1))
    books.wait(HOUR)
    const lastSightedAt = books.ledger.now() - HOUR
    const proof = absence(books.ledger, SUBJECT, { lastSightedAt, fencedBy: fencedBy(books) })
    expect(proof.cause).toBe('PROVEN_ABSENT')
    books.when(reapProven(proof)).refused('ILLEGAL_STATE')
  })

  test('by whom, why, and up to which number', () => {
    const books = dark()
    books.when(fenceNode('n1', 'b1')).then('node.fenced n1 b1')
    const { seq, at } = books.ledger.events.at(-1)!
    expect([...books.ledger.fold().fences.values()]).toEqual([
      { node: 'n1', boot: 'b1', seq, head: seq, at, by: 'test', why: 'powered off' },
    ])
    // Said again, of what was reserved since as well.
    books.when(fenceNode('n1', 'b1')).then('node.fenced n1 b1')
    expect([...books.ledger.fold().fences.values()]).toMatchObject([{ seq: seq + 1, head: seq + 1 }])
  })

  test('up to the head that its caller had seen, and to no number of later (6.3)', () => {
    const books = dark()
    const { fencingToken } = books.leaseAt(SUBJECT)!
    const head = fencingToken - 1
    books.when(fenceNode('n1', 'b1', { head })).then('node.fenced n1 b1')
    const { seq } = books.ledger.events.at(-1)!
    expect([...books.ledger.fold().fences.values()]).toMatchObject([{ seq, head }])
    const evidence = evidenceOf(books.ledger, SUBJECT, {
      fencedBy: { ...fencedBy(books), head },
      lastSightedAt: books.ledger.now() - MINUTE,
      witnesses: [],
      placements: [{ node: 'n1', boot: 'b1', source: 'agent' }],
    })
    const { verdict, because } = judgeHeld(evidence, judgePolicy({}))
    expect([verdict, because.map(({ code }) => code)]).toEqual(['keep', ['SEEN_LIVE']])
    books.when(fenceNode('n1', 'b1', { head: fencingToken })).then('node.fenced n1 b1')
    books.when(reapProven(proofIn(books))).then(REAPED)
    const beyond = books.ledger.fold().head + 1
    expect(books.refuse(fenceNode('n1', 'b1', { head: beyond }), 'VERSION_MISMATCH').metadata).toEqual({
      beyondHead: String(beyond - 1),
    })
  })

  test.each([
    ['lists it', (books: Given) => lists('agent', entry(SUBJECT, api))(books.ledger), 'ILLEGAL_STATE'],
    ['does not', (books: Given) => listsPartly('agent', [], null)(books.ledger), 'VERSION_MISMATCH'],
  ] as const)(
    'said as of an earlier head, frees nothing of a boot that reported after that, which %s (6.3)',
    (_what, report, refusal) => {
      const books = dark()
      const { fencingToken: head } = books.leaseAt(SUBJECT)!
      books.ledger.world.report('agent', [], {
        head: books.ledger.fold().head,
        begunAt: books.ledger.now() - MINUTE,
        era: 0,
        complete: true,
      })
      books.when(fenceNode('n3', 'b1')).then('node.fenced n3 b1')
      const since = books.ledger.now()
      books.wait(MINUTE)
      report(books)
      books.wait(MINUTE)
      books.when(fenceNode('n1', 'b1', { head })).then('node.fenced n1 b1')
      const { at } = books.ledger.events.at(-1)!
      const proof = proofOf(
        evidenceOf(books.ledger, SUBJECT, {
          fencedBy: { node: 'n1', boot: 'b1', head, by: 'test', why: 'powered off', at, since },
          lastSightedAt: since - 1,
          witnesses: [],
          placements: [{ node: 'n1', boot: 'b1', source: 'agent' }],
        }),
      )
      books.when(reapProven(proof)).refused(refusal)
    },
  )

  test('is named with its boot: it comes back under another', () => {
    const books = dark()
    expect(books.refuse(fenceNode('n1', ''), 'INVALID_FIELD').metadata.field).toBe('boot')
    expect(books.refuse(fenceNode('', 'b1'), 'INVALID_FIELD').metadata.field).toBe('node')
  })
})

describe('a quarantine whose owner is left alone', () => {
  const states = statesOf(api)
  const RESTORED = ['CONFLICT', 'SECOND_ADDRESS', 'RELEASED_BUT_LIVE'] as const
  const alone = (...facts: readonly Fact[]) => {
    const books = leaked(...facts)
    lists('agent', entry(SUBJECT, api))(books.ledger)
    return books
  }
  const proofIn = (books: Given, fields: Partial<LeaseEvidence> = {}) => {
    const lease = books.leaseAt(SUBJECT)!
    return proofOf(
      evidenceOf(books.ledger, SUBJECT, { witnesses: [showing(books.ledger, lease)], ...fields }),
    )
  }

  test.each(RESTORED)('%s is given back', (state) => {
    const books = alone(...states[state])
    books.when(restore(proofIn(books))).then(`lease.confirmed ${SUBJECT}`)
    expect(books.leaseAt(SUBJECT)).toMatchObject({ state: 'ACTIVE', owner: api, quarantine: null })
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ reason: 'SEEN_ALONE', sources: ['agent'] })
  })

  test.each([
    'RESERVED',
    'ACTIVE',
    ...QUARANTINED.filter((one) => !RESTORED.includes(one as never)),
  ] as const)('%s is not', (state) => {
    const books = alone(...states[state])
    const lease = books.leaseAt(SUBJECT)!
    const as = {
      ...lease,
      owner: api,
      quarantine: { reason: 'CONFLICT' as const, at: lease.reservedAt, by: 'x', why: 'x' },
    }
    const proof = proofIn(books, {
      lease: as,
      witnesses: [showing(books.ledger, lease, { about: api })],
    })
    books.when(restore(proof)).refused('ILLEGAL_STATE')
  })

  test('but has none any more is not given back', () => {
    const books = alone(...states.CONFLICT)
    const before = books.leaseAt(SUBJECT)!
    books.accept(release(before.fencingToken))
    const lease = books.leaseAt(SUBJECT)!
    const proof = proofIn(books, {
      lease: { ...lease, owner: api },
      witnesses: [showing(books.ledger, lease, { about: api })],
    })
    books.when(restore(proof)).refused('ILLEGAL_STATE')
  })

  type Change = readonly [string, (books: Given) => void, 'VERSION_MISMATCH' | 'ILLEGAL_STATE']
  const CHANGES: readonly Change[] = [
    ['is closed', (books) => closed(api)(books.ledger), 'VERSION_MISMATCH'],
    ['is seen no more', (books) => lists('agent')(books.ledger), 'VERSION_MISMATCH'],
    [
      'is not alone',
      (books) => {
        source('other', { state: 'REGISTERED' })(books.ledger)
        lists('other', entry(SUBJECT, stranger))(books.ledger)
      },
      'ILLEGAL_STATE',
    ],
    [
      'is there with somebody unknown',
      (books) => lists('agent', entry(SUBJECT, api), entry(SUBJECT, null))(books.ledger),
      'ILLEGAL_STATE',
    ],
    [
      'was seen by a source of another epoch',
      ({ ledger }) => {
        ledger.world.sources.set('agent', { ...ledger.world.sources.get('agent')!, epoch: 'b2' })
      },
      'VERSION_MISMATCH',
    ],
    [
      'was quarantined by an operator since',
      (books) => {
        books.accept(quarantine({ token: books.leaseAt(SUBJECT)!.fencingToken }))
      },
      'VERSION_MISMATCH',
    ],
    ['was judged too long ago', (books) => books.wait(61 * SECOND), 'VERSION_MISMATCH'],
  ]
  test.each(CHANGES)('and %s since stays where it is', (_what, change, reason) => {
    const books = alone(...states.CONFLICT)
    const proof = proofIn(books)
    change(books)
    books.when(restore(proof)).refused(reason)
    expect(books.leaseAt(SUBJECT)!.state).toBe('QUARANTINED')
  })

  test('is given back while its source is on hold: that takes nothing', () => {
    const books = alone(...states.CONFLICT)
    hold('')(books.ledger)
    books.when(restore(proofIn(books))).then(`lease.confirmed ${SUBJECT}`)
  })

  test('on proof of absence gives nothing back, and the other way round', () => {
    const books = alone(...states.CONFLICT)
    books.when(reapProven(proofIn(books))).refused('INVALID_FIELD')
  })
})

test('Reserves and Confirms against a reaper with stale proofs: nothing alive is taken', () => {
  const books = givenIn({ windows: [7] }, pool('a', '10.0.0.0/24'), source('agent'))
  const proofs: Proof[] = []
  for (let n = 0; n < 200; n += 1) {
    const lease = books.take(
      reserve({ owner: owner({ name: `w${n}`, uid: `w${n}` }), claims: [claim({ pool: 'a' })] }),
    )
    books.wait(SECOND)
    // Judged before the Confirm, as if it were old enough.
    if (n % 10 === 0) {
      lists('agent')(books.ledger)
      const held = { ...books.leaseAt(lease.address)!, reservedAt: books.ledger.now() - HOUR }
      proofs.push(absence(books.ledger, lease.address, { lease: held }))
    }
    books.accept(confirm(lease.fencingToken))
    for (const proof of proofs.slice(-3)) expect(books.ledger.submit(reapProven(proof)).answer).toBeNull()
  }
  expect(books.ledger.pool('a').counts.active).toBe(200)
})

test('a rest between two holders covers two reports of the slowest source', () => {
  const slow = 10 * MINUTE
  const books = given(
    pool('a', '10.0.0.0/24'),
    active(SUBJECT, api),
    source('agent', { intervalMs: slow }),
    source('retired', { intervalMs: HOUR, state: 'RETIRED' }),
  )
  const lease = books.take(release(books.leaseAt(SUBJECT)!.fencingToken))
  expect(lease.availableAt).toBe(books.ledger.now() + 2 * slow)
})
