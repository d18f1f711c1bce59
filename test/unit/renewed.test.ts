/**
 * A promise that is made again is life (2.4): a Reserve or a Confirm that is answered with a lease that is held already
 * is written down, once the lease's last change is older than half its pool's minimum age, whoever lists it.
 */
import { describe, expect, test } from 'vitest'
import { stateOf } from '../../src/core/lifecycle.ts'
import {
  active,
  agentOf,
  claim,
  confirm,
  confirmOf,
  elapsed,
  entry,
  fenced,
  type Given,
  given,
  HOUR,
  MINUTE,
  on,
  pool,
  reserve,
  reserved,
  SECOND,
  web,
} from '../support/given.ts'

const HALF = 150 * SECOND
const inA = { claims: [claim({ pool: 'a' })] }
const again = reserve({ owner: web(1), ...inA })
const X = '10.0.0.3'
const at = (node: string, boot: string) => ({ ...on(node), boot })

const held = (age: number) => given(pool('a', '10.0.0.0/29'), active(X, web(1)), elapsed(age))
const waiting = (age: number) => given(pool('a', '10.0.0.0/29'), reserved(X, web(1)), elapsed(age))

function lists(books: Given, of = web(1)): void {
  const { ledger } = books
  ledger.world.register('agent')
  const report = { head: ledger.fold().head, begunAt: ledger.now(), era: 0, complete: true }
  ledger.world.report('agent', [entry(X, of)], report)
}

describe('of an ACTIVE lease', () => {
  test.each([
    ['Reserve', again],
    ['Reserve, confirmed', reserve({ owner: web(1), ...inA, confirmed: true })],
    ['Confirm by its owner', confirmOf(web(1))],
  ])('%s says anew when it was confirmed, once', (_what, command) => {
    const books = held(HALF + 1)
    const before = books.leaseAt(X)!
    books.when(command).then(`lease.confirmed ${X}`)
    const now = books.ledger.now()
    expect(books.leaseAt(X)).toEqual({ ...before, version: before.version + 1, confirmedAt: now })
    books.wait(HALF).when(command).then()
    books.wait(1).when(command).then(`lease.confirmed ${X}`)
  })

  test('Confirm by its id does, too', () => {
    const books = held(HALF + 1)
    const { fencingToken, version } = books.leaseAt(X)!
    const lease = books.when(confirm(fencingToken)).then(`lease.confirmed ${X}`)
    expect(lease).toMatchObject({ state: 'ACTIVE', fencingToken, version: version + 1 })
  })

  test('the answer is the same lease, at its new version', () => {
    const books = held(HOUR)
    const { fencingToken, version } = books.leaseAt(X)!
    const lease = books.when(again).then(`lease.confirmed ${X}`)
    expect(lease).toMatchObject({ address: X, fencingToken, version: version + 1, reused: true })
  })
})

describe('where a source lists it', () => {
  test.each([
    ['Reserve', again],
    ['Confirm', confirmOf(web(1))],
  ])('%s says it anew all the same, whoever is listed', (_what, command) => {
    for (const of of [web(1), web(2)]) {
      const books = held(HOUR)
      lists(books, of)
      books.when(command).then(`lease.confirmed ${X}`)
      books.when(command).then()
    }
  })
})

describe('after its boot was fenced', () => {
  const onA1 = { placement: at('na', 'a1') }

  test.each([
    ['Reserve', again],
    ['Confirm', confirmOf(web(1))],
  ])('%s says it anew once, however young the lease is', (_what, command) => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      active(X, web(1), onA1),
      elapsed(SECOND),
      fenced('na', 'a1'),
    )
    books.wait(SECOND).when(command).then(`lease.confirmed ${X}`)
    for (let n = 0; n < 100; n += 1) books.when(command).then()
  })

  test('of another boot or before its last change it is as ever', () => {
    const other = given(
      pool('a', '10.0.0.0/29'),
      active(X, web(1), onA1),
      fenced('na', 'a2'),
      elapsed(SECOND),
    )
    other.when(again).then()
    const before = given(
      pool('a', '10.0.0.0/29'),
      fenced('na', 'a1'),
      elapsed(SECOND),
      active(X, web(1), onA1),
    )
    before.wait(SECOND).when(again).then()
  })
})

describe('asked for from another node', () => {
  const from = (node: string, boot: string) => ({ ...again, placement: at(node, boot) })

  test.each([
    ['ACTIVE', active],
    ['RESERVED', reserved],
  ])('an %s lease is promised from now on', (_state, fact) => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      fact(X, web(1), { placement: at('na', 'a1') }),
      elapsed(HOUR),
    )
    const before = books.leaseAt(X)!
    books.when(from('nb', 'b1')).then(`lease.updated ${X}`)
    const now = books.ledger.now()
    expect(books.leaseAt(X)).toMatchObject({
      ...before,
      version: before.version + 1,
      reservedAt: now,
      placement: { ...before.placement, boot: '' },
    })
    books.when(from('nb', 'b1')).then()
    books.wait(HALF + 1)
    expect(books.when(from('nb', 'b1')).result.events).toHaveLength(1)
  })
})

describe('of a RESERVED lease', () => {
  test('Reserve says anew when it was promised, once', () => {
    const books = waiting(HALF + 1)
    const before = books.leaseAt(X)!
    books.when(again).then(`lease.updated ${X}`)
    const now = books.ledger.now()
    expect(books.leaseAt(X)).toEqual({ ...before, version: before.version + 1, reservedAt: now })
    books.wait(HALF).when(again).then()
    books.wait(1).when(again).then(`lease.updated ${X}`)
  })

  test('without a deadline from now on, it is promised from now on', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const { address } = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: HOUR }))
    books.wait(10 * MINUTE)
    books.when(again).then(`lease.updated ${address}`)
    expect(books.leaseAt(address)).toMatchObject({ confirmBy: null, reservedAt: books.ledger.now() })
  })

  test('with a deadline, the deadline keeps it', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const within = (confirmWithinMs: number) => reserve({ owner: web(1), ...inA, confirmWithinMs })
    const { address, reservedAt } = books.take(within(HOUR))
    books.wait(10 * MINUTE)
    books.when(within(MINUTE)).then()
    books.when(within(HOUR)).then(`lease.updated ${address}`)
    expect(books.leaseAt(address)).toMatchObject({ reservedAt })
  })
})

describe('nothing is written', () => {
  test.each([
    ['ACTIVE', held],
    ['RESERVED', waiting],
  ])('of an %s lease that changed lately: a storm of retries', (state, made) => {
    const books = made(HALF)
    for (let n = 0; n < 100; n += 1) books.when(again).then()
    expect(stateOf(books.leaseAt(X)!)).toBe(state)
  })

  test('of a dry run', () => {
    held(HOUR)
      .when({ ...again, validateOnly: true })
      .then()
  })

  test('for a token of another node, but that it asked', () => {
    const books = given(pool('a', '10.0.0.0/29'), active(X, web(1), { placement: on('n1') }), elapsed(HOUR))
    books.when({ ...again, actor: agentOf('n2') }).then()
    books.when({ ...again, actor: agentOf('n2'), placement: on('n2') }).then(`lease.updated ${X}`)
    books.when({ ...again, actor: agentOf('n2'), placement: on('n2') }).then()
    books.wait(HOUR)
    books.when({ ...again, actor: agentOf('n1') }).then(`lease.confirmed ${X}`)
  })
})

test('half of what, the pool says', () => {
  const books = given(
    pool('a', '10.0.0.0/29', { reapPolicy: { minimumAgeMs: 10 * SECOND } }),
    active(X, web(1)),
    elapsed(5 * SECOND),
  )
  books.when(again).then()
  books.wait(1).when(again).then(`lease.confirmed ${X}`)
})
