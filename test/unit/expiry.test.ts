/** Never confirmed by its deadline plus grace: reaped. Without a deadline: never (DESIGN §2 "The caller's contract"; incidents 2.1, 3.2). */
import { describe, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { endRecovery } from '../support/commands.ts'
import {
  beginEra,
  claim,
  confirm,
  DAY,
  entry,
  expire,
  type Given,
  given,
  lists,
  listsPartly,
  MINUTE,
  owner,
  pool,
  quarantine,
  recovering,
  reserve,
  reserved,
  SECOND,
  source,
  updateLabels,
  updatePool,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const network = () => given(pool('a', '10.0.0.0/26'))
const GRACE = MINUTE

function reserveWithin(books: Given, confirmWithinMs: number | null): LeaseView {
  return books.take(reserve({ owner: web(1), ...inA, confirmWithinMs }))
}

describe('with a deadline', () => {
  test('not before deadline and grace are over, to the millisecond', () => {
    const books = network()
    const { fencingToken, version, confirmBy } = reserveWithin(books, MINUTE)
    for (const early of [0, MINUTE, GRACE - 1, 1]) {
      books.wait(early)
      const refusal = books.refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
      expect(refusal.retryAfterMs).toBe(confirmBy! + GRACE - books.ledger.now() + 1)
    }
    books.wait(1)
    const ended = books.when(expire(fencingToken, version)).then('lease.reaped 10.0.0.1')
    expect(ended).toMatchObject({ state: 'REAPED', availableAt: books.ledger.now() + 2 * MINUTE })
    expect(books.ledger.events.at(-1)!.evidence).toEqual({
      reason: 'NEVER_CONFIRMED',
      confirmBy: new Date(confirmBy!).toISOString(),
      graceMs: GRACE,
      version,
    })
    expect(books.ledger.fold().addresses.get('10.0.0.1')!.released).toMatchObject({ removalConfirmed: false })
    books.refuse(expire(fencingToken, version + 1), 'LEASE_LOST')
  })

  test('after the grace that its pool has then', () => {
    const books = given(pool('a', '10.0.0.0/26', { reapPolicy: { confirmGraceMs: 10 * MINUTE } }))
    const { fencingToken, version, confirmBy } = reserveWithin(books, MINUTE)
    books.wait(11 * MINUTE)
    const refusal = books.refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
    expect(refusal.retryAfterMs).toBe(confirmBy! + 10 * MINUTE - books.ledger.now() + 1)
    books.accept(updatePool('a', { reapPolicy: { confirmGraceMs: 9 * MINUTE } }))
    books.when(expire(fencingToken, version)).then('lease.reaped 10.0.0.1')
    expect(books.ledger.events.at(-1)!.evidence).toMatchObject({ graceMs: 9 * MINUTE })
  })

  test('not once it is confirmed', () => {
    const books = network()
    const { fencingToken } = reserveWithin(books, MINUTE)
    const { version } = books.take(confirm(fencingToken))
    books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
  })

  test.each([
    ['lists', (books: Given) => lists('agent', entry('10.0.0.1', web(1)))(books.ledger)],
    ['lists for another', (books: Given) => lists('agent', entry('10.0.0.1', null))(books.ledger)],
    [
      'listed, and lists no more',
      (books: Given) => {
        lists('agent', entry('10.0.0.1', web(1)))(books.ledger)
        books.wait(1)
        lists('agent')(books.ledger)
      },
    ],
    [
      'lists, and nothing proves when',
      (books: Given) => listsPartly('agent', [entry('10.0.0.1', web(1))], null)(books.ledger),
    ],
  ])('not what a source %s, in dry run or not: the caller’s promise was not kept', (_how, see) => {
    const books = network()
    source('agent', { state: 'REGISTERED' })(books.ledger)
    const { fencingToken, version } = reserveWithin(books, MINUTE)
    books.wait(1)
    see(books)
    const refusal = books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
    expect(refusal.message).toContain('seen live')
  })

  test('not what was seen before and is seen still', () => {
    const books = network()
    source('agent', { state: 'REGISTERED' })(books.ledger)
    lists('agent', entry('10.0.0.1', web(1)))(books.ledger)
    books.wait(1)
    reserved('10.0.0.1', web(1), { confirmBy: books.ledger.now() + MINUTE })(books.ledger)
    const { fencingToken, version } = books.leaseAt('10.0.0.1')!
    books.wait(DAY)
    lists('agent', entry('10.0.0.1', web(1)))(books.ledger)
    books.refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
  })

  test('what was seen before it was reserved is another life’s', () => {
    const books = network()
    source('agent')(books.ledger)
    listsPartly('agent', [entry('10.0.0.1', web(2))], 1)(books.ledger)
    reserved('10.0.0.1', web(1), { confirmBy: books.ledger.now() + MINUTE })(books.ledger)
    const { fencingToken, version } = books.leaseAt('10.0.0.1')!
    books.wait(DAY)
    books.when(expire(fencingToken, version)).then('lease.reaped 10.0.0.1')
  })

  test('not in quarantine', () => {
    const books = network()
    const { fencingToken } = reserveWithin(books, MINUTE)
    const { version } = books.take(quarantine({ token: fencingToken }))
    books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
  })

  test('not by a judgement of an earlier version: the deadline moved since', () => {
    const books = network()
    const { fencingToken, version } = reserveWithin(books, MINUTE)
    books.wait(30 * SECOND)
    const later = reserveWithin(books, 10 * MINUTE)
    books.wait(2 * MINUTE)
    books.refuse(expire(fencingToken, version), 'VERSION_MISMATCH')
    books.refuse(expire(fencingToken, later.version), 'ILLEGAL_STATE')
  })

  test('its retry within the deadline gets the same address; after the reap a fresh one', () => {
    const books = network()
    const { fencingToken } = reserveWithin(books, MINUTE)
    books.wait(SECOND)
    const { version, address } = reserveWithin(books, MINUTE)
    books.wait(MINUTE + GRACE + 1)
    books.accept(expire(fencingToken, version))
    expect(reserveWithin(books, MINUTE).address).not.toBe(address)
  })

  test('ninety callers killed between Reserve and Confirm: all back, through cooling, each explained', () => {
    const books = given(pool('a', '10.0.0.0/25'))
    const leases = Array.from({ length: 90 }, (_, n) =>
      books.take(
        reserve({ owner: owner({ name: `w${n}`, incarnation: '1' }), ...inA, confirmWithinMs: MINUTE }),
      ),
    )
    books.wait(MINUTE + GRACE + 1)
    for (const { fencingToken, version } of leases) books.accept(expire(fencingToken, version))
    expect(books.ledger.pool('a').counts).toEqual({ reserved: 0, active: 0, quarantined: 0, released: 90 })
    const causes = books.ledger.events.flatMap((event) =>
      event.type === 'lease.reaped' ? [event.evidence!.reason] : [],
    )
    expect(causes).toEqual(Array(90).fill('NEVER_CONFIRMED'))
  })
})

describe('without a deadline', () => {
  test('never, in thirty days of asking', () => {
    const books = network()
    const { fencingToken, version } = reserveWithin(books, null)
    for (let day = 0; day < 30; day += 1) {
      books.wait(DAY)
      const refusal = books.refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
      expect(refusal.retryAfterMs).toBeUndefined()
      expect(refusal.message).toContain('never expires')
    }
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'RESERVED', owner: web(1) })
  })

  test('nor when a later Reserve took the deadline away', () => {
    const books = network()
    reserveWithin(books, MINUTE)
    const { fencingToken, version } = reserveWithin(books, null)
    books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
  })
})

describe('a new era', () => {
  const end = (books: Given) => books.accept(endRecovery())

  test('whose books may be older than the world: the Confirm may be among what was lost', () => {
    const books = network()
    const { fencingToken, version } = reserveWithin(books, MINUTE)
    books.wait(DAY)
    recovering()(books.ledger)
    books.refuse(expire(fencingToken, version), 'NETWORK_RECOVERING')
    end(books)
    // And it is lost for ever, whatever has changed of the lease and however many eras have begun since.
    const refusal = books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
    expect(refusal.message).toContain('its Confirm may be lost')
    const labelled = books.take(updateLabels(fencingToken, { rack: 'r1' }))
    books.refuse(expire(fencingToken, labelled.version), 'ILLEGAL_STATE')
    const again = reserveWithin(books, 2 * MINUTE)
    expect(again).toMatchObject({ address: '10.0.0.1', fencingToken, reused: true })
    books.wait(DAY).refuse(expire(fencingToken, again.version), 'ILLEGAL_STATE')
    books.accept(beginEra(2, { recovering: false }))
    books.wait(DAY).refuse(expire(fencingToken, again.version), 'ILLEGAL_STATE')
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'RESERVED', owner: web(1) })
    expect(books.take(confirm(fencingToken))).toMatchObject({ state: 'ACTIVE' })
  })

  test('has deadlines of its own', () => {
    const books = network()
    recovering()(books.ledger)
    end(books)
    const { fencingToken, version } = reserveWithin(books, MINUTE)
    books.wait(DAY)
    books.when(expire(fencingToken, version)).then('lease.reaped 10.0.0.1')
  })

  test('that lost nothing changes no deadline', () => {
    const books = network()
    const { fencingToken, version } = reserveWithin(books, MINUTE)
    books.accept(beginEra(1, { recovering: false }))
    books.wait(DAY)
    books.when(expire(fencingToken, version)).then('lease.reaped 10.0.0.1')
  })
})

test('asked for from another node, what was seen before stays seen: it never expires', () => {
  const books = network()
  source('dry', { state: 'REGISTERED' })(books.ledger)
  const from = (node: string, boot: string) =>
    reserve({ owner: web(1), ...inA, placement: { node, boot, labels: {} }, confirmWithinMs: MINUTE })
  const { fencingToken } = books.take(from('na', 'a1'))
  books.wait(1)
  lists('dry', entry('10.0.0.1', web(1)))(books.ledger)
  books.wait(1)
  lists('dry')(books.ledger)
  books.wait(1)
  const { version } = books.take(from('nb', 'b1'))
  const refusal = books.wait(DAY).refuse(expire(fencingToken, version), 'ILLEGAL_STATE')
  expect(refusal.message).toContain('seen live')
})
