/** A requestId makes a command exactly-once; its replay never hands out what has ended since (DESIGN §2 "Retries"; INV-14). */
import { describe, expect, test } from 'vitest'
import {
  active,
  allOrNothing,
  claim,
  confirm,
  DAY,
  type Given,
  given,
  MINUTE,
  owner,
  pool,
  quarantine,
  reap,
  recovering,
  release,
  reserve,
  updatePool,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const once = { requestId: 'r1', fingerprint: 'f1' }
const other = owner({ name: 'other', incarnation: '1' })
const network = () => given(pool('a', '10.0.0.0/29', { cooldownMs: MINUTE }))

describe('a replayed Reserve', () => {
  test('has the same answer, and leaves no event', () => {
    const books = network()
    const first = books.ledger.submit(reserve({ owner: web(1), ...inA, ...once, confirmWithinMs: MINUTE }))
    for (let n = 0; n < 3; n += 1) {
      books.wait(MINUTE)
      const again = books.ledger.submit(reserve({ owner: web(1), ...inA, ...once, confirmWithinMs: MINUTE }))
      expect(again).toEqual({ events: [], answer: first.answer, refusal: null, replayed: true })
    }
    // The deadline counts from the first sending.
    expect(books.leaseAt('10.0.0.1')!.confirmBy).toBe(books.ledger.events.at(-1)!.at + MINUTE)
  })

  test('within its own batch', () => {
    const books = network()
    const [first, again] = books.ledger.submitBatch([
      reserve({ owner: web(1), ...inA, ...once }),
      reserve({ owner: web(1), ...inA, ...once }),
    ])
    expect(again).toEqual({ events: [], answer: first!.answer, refusal: null, replayed: true })
  })

  test('with other content is refused, whatever the command', () => {
    const books = network()
    books.accept(reserve({ owner: web(1), ...inA, ...once }))
    const refusal = books.refuse(
      reserve({ owner: other, ...inA, requestId: 'r1', fingerprint: 'f2' }),
      'REQUEST_ID_REUSED',
    )
    expect(refusal.metadata).toEqual({ requestId: 'r1', method: 'test' })
    books.refuse(
      updatePool('a', { draining: true }, { requestId: 'r1', fingerprint: 'f3' }),
      'REQUEST_ID_REUSED',
    )
  })

  test('still holds its lease when that was confirmed meanwhile', () => {
    const books = network()
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    books.accept(confirm(lease.fencingToken))
    expect(books.when(reserve({ owner: web(1), ...inA, ...once })).then()).toEqual(lease)
  })

  const lost = (books: Given) => books.refuse(reserve({ owner: web(1), ...inA, ...once }), 'LEASE_LOST')

  test('of a lease that was released is LEASE_LOST', () => {
    const books = network()
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    books.accept(release(lease.fencingToken))
    expect(lost(books).metadata).toEqual({
      leaseId: lease.leaseId,
      state: 'RELEASED',
      endedAt: new Date(books.ledger.now()).toISOString(),
    })
  })

  test('of a lease that was reaped is LEASE_LOST', () => {
    const books = network()
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    books.accept(reap(lease.fencingToken, lease.version))
    expect(lost(books).metadata.state).toBe('REAPED')
  })

  test('of a lease whose address has a new holder is LEASE_LOST, never the address', () => {
    const books = given(pool('a', '10.0.0.0/32', { cooldownMs: 0 }))
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    books.accept(release(lease.fencingToken))
    books.take(reserve({ owner: other, ...inA }))
    lost(books)
    books.accept(release(books.leaseAt('10.0.0.0')!.fencingToken))
    books.accept(quarantine({ address: '10.0.0.0' }))
    lost(books)
  })

  test('of a lease in quarantine is LEASE_LOST', () => {
    const books = network()
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    books.accept(quarantine({ token: lease.fencingToken }))
    expect(lost(books).metadata).toEqual({
      leaseId: lease.leaseId,
      state: 'QUARANTINED',
      quarantineReason: 'OPERATOR',
    })
  })

  test('of several leases is LEASE_LOST with the first one lost', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('c', 'fd00::/125'))
    const both = { owner: web(1), claims: [claim({ pool: 'a' }), claim({ pool: 'c' })], ...once }
    const [, six] = books.accept(reserve(both))
    books.accept(quarantine({ token: six!.fencingToken }))
    expect(books.refuse(reserve(both), 'LEASE_LOST').metadata.leaseId).toBe(six!.leaseId)
  })

  test('of a batch is LEASE_LOST as well', () => {
    const books = network()
    const batch = allOrNothing([reserve({ owner: web(1), ...inA }), reserve({ owner: other, ...inA })], once)
    const first = books.ledger.submit(batch)
    expect(books.ledger.submit(batch)).toEqual({
      events: [],
      answer: first.answer,
      refusal: null,
      replayed: true,
    })
    books.accept(release(first.answer!.items![1]!.leases[0]!.fencingToken))
    books.refuse(batch, 'LEASE_LOST')
  })
})

describe('a replayed Confirm', () => {
  const confirmed = () => {
    const books = given(pool('a', '10.0.0.0/32', { cooldownMs: 0 }))
    const { fencingToken, leaseId } = books.take(reserve({ owner: web(1), ...inA }))
    const again = confirm(fencingToken, once)
    const { answer } = books.ledger.submit(again)
    return { books, fencingToken, leaseId, again, answer }
  }

  test('has the same answer while the lease is held', () => {
    const { books, again, answer } = confirmed()
    books.wait(DAY - 1)
    expect(books.ledger.submit(again)).toEqual({ events: [], answer, refusal: null, replayed: true })
  })

  test('of a lease that was released is LEASE_LOST, whoever has the address now', () => {
    const { books, fencingToken, leaseId, again } = confirmed()
    books.accept(release(fencingToken))
    expect(books.refuse(again, 'LEASE_LOST').metadata).toMatchObject({ leaseId, state: 'RELEASED' })
    expect(books.take(reserve({ owner: other, ...inA }))).toMatchObject({ address: '10.0.0.0' })
    expect(books.refuse(again, 'LEASE_LOST').message).toContain('unconfigure')
  })

  test('of a lease in quarantine is LEASE_LOST', () => {
    const { books, fencingToken, again } = confirmed()
    books.accept(quarantine({ token: fencingToken }))
    expect(books.refuse(again, 'LEASE_LOST').metadata).toMatchObject({ state: 'QUARANTINED' })
  })

  test('of a batch is LEASE_LOST as well', () => {
    const books = network()
    const leases = [web(1), other].map((holder) => books.take(reserve({ owner: holder, ...inA })))
    const batch = allOrNothing(
      leases.map(({ fencingToken }) => confirm(fencingToken)),
      once,
    )
    books.accept(batch)
    books.accept(release(leases[1]!.fencingToken))
    expect(books.refuse(batch, 'LEASE_LOST').metadata).toMatchObject({ leaseId: leases[1]!.leaseId })
  })
})

describe('what is remembered', () => {
  test('only commits: a refused request may be sent again, and with other content', () => {
    const books = given(pool('a', '10.0.0.0/32', { cooldownMs: 0 }), active('10.0.0.0', other))
    books.refuse(reserve({ owner: web(1), ...inA, ...once }), 'POOL_EXHAUSTED')
    books.accept(release(books.leaseAt('10.0.0.0')!.fencingToken))
    books
      .when(reserve({ owner: web(1), ...inA, requestId: 'r1', fingerprint: 'f2' }))
      .then('lease.reserved 10.0.0.0')
  })

  test('the answer of a command that lets go, also when its lease has ended', () => {
    const books = network()
    const lease = books.take(reserve({ owner: web(1), ...inA }))
    const letGo = { requestId: 'r2', fingerprint: 'f2' }
    const freed = books.ledger.submit(release(lease.fencingToken, letGo)).answer
    books.wait(DAY)
    expect(books.ledger.submit(release(lease.fencingToken, letGo))).toMatchObject({
      answer: freed,
      events: [],
    })
  })

  test('the answer of a batch that hands nothing out, also when its leases have ended', () => {
    const books = network()
    const leases = [web(1), other].map((holder) => books.take(reserve({ owner: holder, ...inA })))
    const batch = allOrNothing(
      leases.map(({ fencingToken }) => release(fencingToken)),
      once,
    )
    const { answer } = books.ledger.submit(batch)
    expect(books.ledger.submit(batch)).toEqual({ events: [], answer, refusal: null, replayed: true })
  })

  test('an answer without an event as well', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.1', web(1)))
    books.when(reserve({ owner: web(1), ...inA, ...once })).then()
    books.refuse(reserve({ owner: other, ...inA, requestId: 'r1', fingerprint: 'f2' }), 'REQUEST_ID_REUSED')
  })

  test('the request and the trace stand in the events', () => {
    const books = network()
    books.take(reserve({ owner: web(1), ...inA, ...once, traceId: 't1' }))
    expect(books.ledger.events.at(-1)).toMatchObject({
      requestId: 'r1',
      traceId: 't1',
      actor: 'test',
      cause: 'test',
      at: books.ledger.now(),
    })
  })

  test('is answered while the network is recovering: it hands out nothing new', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const lease = books.take(reserve({ owner: web(1), ...inA, ...once }))
    recovering()(books.ledger)
    expect(books.when(reserve({ owner: web(1), ...inA, ...once })).then()).toEqual(lease)
  })
})
