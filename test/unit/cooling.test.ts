/** Between two holders an address rests, and the longest free goes first (DESIGN §2 "Free space"; INV-11; aws#1127, calico#4152). */
import { describe, expect, test } from 'vitest'
import {
  active,
  claim,
  DAY,
  elapsed,
  given,
  MINUTE,
  owner,
  pool,
  quarantine,
  reap,
  reaped,
  release,
  released,
  removed,
  reserve,
  SECOND,
  updatePool,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const naming = (address: string) => ({ claims: [claim({ pool: 'a', address })] })
const previous = { claims: [claim({ pool: 'a', preferPrevious: true })] }
const x = owner({ name: 'x', incarnation: '1' })
const y = owner({ name: 'y', incarnation: '1' })

describe('a released address', () => {
  const past = [pool('a', '10.0.0.0/32'), active('10.0.0.0', x), released('10.0.0.0')]

  test("is nobody else's before it has cooled, to the millisecond", () => {
    const books = given(...past, elapsed(2 * MINUTE - 1))
    books.when(reserve({ owner: y, ...inA })).refused('POOL_EXHAUSTED')
    const refusal = books.refuse(reserve({ owner: y, ...naming('10.0.0.0') }), 'ADDRESS_COOLING')
    expect(refusal.retryAfterMs).toBe(1)
    expect(refusal.metadata).toEqual({
      address: '10.0.0.0',
      pool: 'a',
      availableAt: new Date(books.ledger.now() + 1).toISOString(),
    })
    books.wait(1)
    books.when(reserve({ owner: y, ...inA })).then('lease.reserved 10.0.0.0')
  })

  test('has the cooldown its pool had at the release: a new one applies to later releases', () => {
    const books = given(...past)
    books.accept(updatePool('a', { cooldownMs: SECOND }))
    books.wait(MINUTE)
    books.when(reserve({ owner: y, ...inA })).refused('POOL_EXHAUSTED')
    books.wait(MINUTE)
    const { fencingToken } = books.take(reserve({ owner: y, ...inA }))
    books.accept(release(fencingToken))
    books.wait(SECOND)
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.0')
  })

  test.each([
    ['by name', naming('10.0.0.0')],
    ['by preference', previous],
  ])('goes back to its holder at once, %s, under a new token', (_how, claims) => {
    const books = given(...past)
    const again = owner({ name: 'x', incarnation: '2' })
    const lease = books.when(reserve({ owner: again, ...claims })).then('lease.reserved 10.0.0.0')
    expect(lease.fencingToken).toBe(5)
  })

  test('does not go back at once without being asked for', () => {
    given(...past)
      .when(reserve({ owner: owner({ name: 'x', incarnation: '2' }), ...inA }))
      .refused('POOL_EXHAUSTED')
  })

  test("is its holder's only: kind, name and interface", () => {
    for (const other of [
      owner({ name: 'x', kind: 'vm' }),
      owner({ name: 'xx', uid: 'x' }),
      { ...owner({ name: 'x' }), interface: 'eth1' },
    ]) {
      given(...past)
        .when(reserve({ owner: other, ...naming('10.0.0.0') }))
        .refused('ADDRESS_COOLING')
      given(...past)
        .when(reserve({ owner: other, ...previous }))
        .refused('POOL_EXHAUSTED')
    }
  })

  test('may be quarantined while it cools, and stays out then', () => {
    const books = given(...past)
    books.when(quarantine({ address: '10.0.0.0' })).then('lease.quarantined 10.0.0.0 OPERATOR (nobody)')
    books.wait(DAY)
    books.when(reserve({ owner: x, ...naming('10.0.0.0') })).refused('ADDRESS_QUARANTINED')
  })
})

describe('a reaped address', () => {
  const past = [pool('a', '10.0.0.0/32'), active('10.0.0.0', x), reaped('10.0.0.0')]

  test('cools for everybody: nobody said that it was removed', () => {
    const books = given(...past)
    books.when(reserve({ owner: x, ...naming('10.0.0.0') })).refused('ADDRESS_COOLING')
    books.when(reserve({ owner: x, ...previous })).refused('POOL_EXHAUSTED')
    books.wait(2 * MINUTE)
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.0')
  })
})

describe('the order of reuse', () => {
  test('untouched space first, then the longest free', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      active('10.0.0.1', x),
      active('10.0.0.2', y),
      active('10.0.0.3', web(1)),
      released('10.0.0.2'),
      elapsed(MINUTE),
      released('10.0.0.3'),
      elapsed(MINUTE),
      reaped('10.0.0.1'),
      elapsed(DAY),
    )
    const got = Array.from(
      { length: 6 },
      (_, n) => books.take(reserve({ owner: owner({ name: `z${n}` }), ...inA })).address,
    )
    expect(got).toEqual(['10.0.0.4', '10.0.0.5', '10.0.0.6', '10.0.0.2', '10.0.0.3', '10.0.0.1'])
  })

  test('goes by when they became free, not by when they were released', () => {
    const books = given(pool('a', '10.0.0.0/30'), active('10.0.0.1', x), active('10.0.0.2', y))
    books.accept(updatePool('a', { cooldownMs: 10 * MINUTE }))
    books.accept(release(books.leaseAt('10.0.0.1')!.fencingToken))
    books.accept(updatePool('a', { cooldownMs: SECOND }))
    books.accept(release(books.leaseAt('10.0.0.2')!.fencingToken))
    books.wait(DAY)
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.2')
    books
      .when(reserve({ owner: web(2), ...inA }))
      .then(
        'lease.quarantined 10.0.0.2 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.reserved 10.0.0.1',
      )
  })

  test('everything is recycled: ten thousand short lives in a pool of two', () => {
    const books = given(pool('a', '10.0.0.0/30', { cooldownMs: SECOND }))
    for (let n = 0; n < 1_000; n += 1) {
      const lease = books.take(reserve({ owner: owner({ name: `life-${n}`, incarnation: '1' }), ...inA }))
      expect(lease.address).toBe(n % 2 === 0 ? '10.0.0.1' : '10.0.0.2')
      books.accept(release(lease.fencingToken))
      books.wait(SECOND)
    }
  })
})

describe('preferPrevious', () => {
  test('is the address released last, in the pool of the claim', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      pool('b', '10.0.1.0/28'),
      active('10.0.0.5', x),
      released('10.0.0.5'),
      active('10.0.0.9', x),
      released('10.0.0.9'),
      active('10.0.1.7', x),
      released('10.0.1.7'),
    )
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.9')
  })

  test('passes over one that cools after a reap, to an earlier one', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      active('10.0.0.5', x),
      released('10.0.0.5'),
      active('10.0.0.9', x),
      reaped('10.0.0.9'),
    )
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.5')
  })

  test('is one that was reaped, from the moment it has cooled', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      active('10.0.0.5', x),
      reaped('10.0.0.5'),
      elapsed(2 * MINUTE),
    )
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.5')
  })

  test('is nothing once somebody else has it, or had it since', () => {
    const books = given(
      pool('a', '10.0.0.0/28'),
      active('10.0.0.5', x),
      released('10.0.0.5'),
      elapsed(DAY),
      active('10.0.0.5', y),
    )
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.1')
    const later = given(
      pool('a', '10.0.0.0/28'),
      active('10.0.0.5', x),
      released('10.0.0.5'),
      elapsed(DAY),
      active('10.0.0.5', y),
      released('10.0.0.5'),
      elapsed(DAY),
    )
    later.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.1')
  })

  test('is marked in the evidence', () => {
    const books = given(pool('a', '10.0.0.0/28'), active('10.0.0.5', x), released('10.0.0.5'))
    books.take(reserve({ owner: x, ...previous }))
    expect(books.ledger.events.at(-1)!.evidence).toEqual({ previous: true })
  })

  test('is not an address the database vetoed', () => {
    const books = given(pool('a', '10.0.0.0/28'), active('10.0.0.5', x), released('10.0.0.5'))
    books.ledger.setAside.add('10.0.0.5')
    books.when(reserve({ owner: x, ...previous })).then('lease.reserved 10.0.0.1')
  })
})

describe('without a cooldown', () => {
  test('an address is free at once, behind those that were free before', () => {
    const books = given(
      pool('a', '10.0.0.0/30', { cooldownMs: 0 }),
      active('10.0.0.1', x),
      active('10.0.0.2', y),
      released('10.0.0.2'),
    )
    const { fencingToken } = books.leaseAt('10.0.0.1')!
    const results = books.ledger.submitBatch([
      release(fencingToken),
      reserve({ owner: web(1), ...inA }),
      reserve({ owner: owner({ name: 'z' }), ...inA }),
      reserve({ owner: owner({ name: 'zz' }), ...inA }),
    ])
    expect(results.map((result) => result.refusal?.reason ?? result.answer!.leases[0]!.address)).toEqual([
      '10.0.0.1',
      '10.0.0.2',
      '10.0.0.1',
      'POOL_EXHAUSTED',
    ])
    expect(results[3]!.refusal!.metadata).toEqual({ pool: 'a', cooling: '0' })
  })

  test('what a predecessor let go of is free for its successor, in the pool it was of', () => {
    const successor = { owner: web(2), supersedes: removed({ incarnation: '1' }) }
    const full = (name: string) => [
      pool('a', '10.0.0.0/32', { cooldownMs: 0 }),
      pool('b', '10.0.1.0/32', { cooldownMs: 0 }),
      active(name === 'a' ? '10.0.1.0' : '10.0.0.0', x),
      active(name === 'a' ? '10.0.0.0' : '10.0.1.0', web(1)),
    ]
    given(...full('a'))
      .when(reserve({ ...successor, ...inA }))
      .then('lease.released 10.0.0.0', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.0')
    given(...full('b'))
      .when(reserve({ ...successor, ...inA }))
      .refused('POOL_EXHAUSTED')
  })

  test('a reaped one as well', () => {
    const books = given(pool('a', '10.0.0.0/32', { cooldownMs: 0 }), active('10.0.0.0', x))
    const { fencingToken, version } = books.leaseAt('10.0.0.0')!
    books.accept(reap(fencingToken, version))
    books.when(reserve({ owner: y, ...inA })).then('lease.reserved 10.0.0.0')
  })

  test('what a batch freed and took again is not free', () => {
    const books = given(pool('a', '10.0.0.0/32', { cooldownMs: 0 }), active('10.0.0.0', x))
    const { fencingToken } = books.leaseAt('10.0.0.0')!
    const reasons = books.ledger
      .submitBatch([
        release(fencingToken),
        reserve({ owner: y, ...naming('10.0.0.0') }),
        reserve({ owner: web(1), ...inA }),
      ])
      .map((result) => result.refusal?.reason ?? 'ok')
    expect(reasons).toEqual(['ok', 'ok', 'POOL_EXHAUSTED'])
  })
})
