/** Several commands in one go: all-or-nothing ones, and batches, in which each command sees the events of those before. */
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import {
  active,
  allOrNothing,
  claim,
  closed,
  confirm,
  confirmOf,
  elapsed,
  type Fact,
  given,
  MINUTE,
  owner,
  pool,
  quarantine,
  quarantined,
  reap,
  release,
  released,
  releaseOf,
  removed,
  reserve,
  reserved,
  updatePool,
  web,
} from '../support/given.ts'
import type { Result } from '../support/memory-ledger.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const inB = { claims: [claim({ pool: 'b' })] }
const someone = (n: number) => owner({ name: `someone-${n}`, incarnation: '1' })

describe('all or nothing', () => {
  test('is answered item by item, and numbered in one row', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const when = books.when(
      allOrNothing([
        reserve({ owner: someone(1), ...inA, requestId: 'i1', fingerprint: 'x' }),
        reserve({ owner: someone(2), ...inA }),
      ]),
    )
    expect(when.result.events.map((event) => [event.seq, event.requestId])).toEqual([
      [3, 'i1'],
      [4, null],
    ])
    expect(when.result.answer!.leases).toEqual([])
    expect(when.result.answer!.items!.map((item) => item.leases[0]!.address)).toEqual([
      '10.0.0.1',
      '10.0.0.2',
    ])
  })

  test('its items see each other', () => {
    const { events } = given(pool('a', '10.0.0.0/29')).ledger.submit(
      allOrNothing([
        reserve({ owner: web(1), ...inA }),
        reserve({ owner: web(1), ...inA }),
        confirmOf(web(1)),
        reserve({ owner: web(2), ...inA }),
        releaseOf(web(2)),
      ]),
    )
    expect(events.map((event) => event.type)).toEqual([
      'lease.reserved',
      'lease.confirmed',
      'lease.quarantined',
      'attachment.closed',
      'lease.reserved',
      'lease.released',
      'attachment.closed',
    ])
  })

  test('one refusal and nothing is left, not even what its caller saw live', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/32'), active('10.0.1.0', someone(9)))
    const refusal = books
      .when(
        allOrNothing([
          reserve({ owner: someone(1), ...inA, liveAddresses: ['10.0.0.1'] }),
          reserve({ owner: someone(2), ...inB }),
        ]),
      )
      .refused('POOL_EXHAUSTED')
    expect(refusal.metadata).toMatchObject({ item: '1', pool: 'b' })
    expect(refusal.message).toMatch(/^item 1: /)
    expect(books.ledger.pool('a').leases).toEqual([])
    // The books of the network are as they were.
    books.when(reserve({ owner: someone(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('the last address goes to one of two: both or none', () => {
    given(pool('a', '10.0.0.0/32'))
      .when(allOrNothing([reserve({ owner: someone(1), ...inA }), reserve({ owner: someone(2), ...inA })]))
      .refused('POOL_EXHAUSTED')
  })

  test('a refused one takes nothing out of the books of its batch', () => {
    const books = given(
      pool('a', '10.0.0.0/30', { cooldownMs: 0 }),
      active('10.0.0.1', web(1)),
      active('10.0.0.2', someone(8)),
      released('10.0.0.2'),
    )
    const results = books.ledger.submitBatch([
      reserve({ owner: someone(1), ...inA }),
      allOrNothing([
        release(3),
        reserve({ owner: someone(2), ...inA }),
        reserve({ owner: someone(3), ...inA }),
      ]),
      confirm(3),
      reserve({ owner: someone(4), ...inA }),
    ])
    expect(results.map(short)).toEqual(['10.0.0.2', 'POOL_EXHAUSTED', '10.0.0.1', 'POOL_EXHAUSTED'])
  })

  test('of nothing is nothing', () => {
    expect(given().ledger.submit(allOrNothing([]))).toEqual({
      events: [],
      answer: { leases: [], items: [] },
      refusal: null,
      replayed: false,
    })
  })
})

function short(result: Result): string {
  return result.refusal?.reason ?? result.answer!.leases.map((lease) => lease.address).join(' ')
}

/** One batch, and the same commands one by one at the same time, must come to the same. */
function bothWays(facts: readonly Fact[], commands: readonly Command[]): readonly Result[] {
  const together = given(...facts)
  const apart = given(...facts)
  const results = together.ledger.submitBatch(commands)
  expect(results).toEqual(commands.map((command) => apart.ledger.submit(command)))
  return results
}

describe('a batch comes to what its commands come to one by one:', () => {
  test('what one takes, the next does not get', () => {
    const results = bothWays(
      [pool('a', '10.0.0.0/30')],
      [1, 2, 3].map((n) => reserve({ owner: someone(n), ...inA })),
    )
    expect(results.map(short)).toEqual(['10.0.0.1', '10.0.0.2', 'POOL_EXHAUSTED'])
  })

  test('released and at once preferred by its holder', () => {
    bothWays(
      [pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))],
      [release(3), reserve({ owner: web(2), claims: [claim({ pool: 'a', preferPrevious: true })] })],
    )
    // Also when the previous addresses were read before.
    bothWays(
      [pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'), active('10.0.0.5', web(1))],
      [
        reserve({ owner: { ...web(1), uid: 'other' }, claims: [claim({ pool: 'b', preferPrevious: true })] }),
        release(4),
        reserve({ owner: web(3), claims: [claim({ pool: 'a', preferPrevious: true })] }),
      ],
    )
  })

  test('when the next address is free: the earliest of what cooled before and what it released', () => {
    const asking = (n: number) => reserve({ owner: someone(n), ...inA })
    const cooling = [
      pool('a', '10.0.0.0/30', { cooldownMs: 10 * MINUTE }),
      active('10.0.0.1', web(1)),
      active('10.0.0.2', someone(9)),
      released('10.0.0.1'),
      elapsed(MINUTE),
    ]
    const later = bothWays(cooling, [asking(1), release(4), asking(2)])
    expect(later.map((result) => result.refusal?.retryAfterMs)).toEqual([9 * MINUTE, undefined, 9 * MINUTE])
    const shorter: Fact = (ledger) => void ledger.submit(updatePool('a', { cooldownMs: MINUTE }))
    const sooner = bothWays([...cooling, shorter], [asking(1), release(4), asking(2)])
    expect(sooner.map((result) => result.refusal?.retryAfterMs)).toEqual([9 * MINUTE, undefined, MINUTE])
  })

  test('an address that another had meanwhile is not the previous one of the holder before', () => {
    const results = bothWays(
      [
        pool('a', '10.0.0.0/29', { cooldownMs: 0 }),
        pool('b', '10.0.1.0/29'),
        active('10.0.0.5', web(1)),
        released('10.0.0.5'),
      ],
      [
        reserve({ owner: web(2), claims: [claim({ pool: 'b', preferPrevious: true })] }),
        reserve({ owner: someone(1), claims: [claim({ pool: 'a', address: '10.0.0.5' })] }),
        releaseOf(someone(1)),
        reserve({ owner: web(3), claims: [claim({ pool: 'a', preferPrevious: true })] }),
      ],
    )
    expect(results.map(short)).toEqual(['10.0.1.1', '10.0.0.5', '10.0.0.5', '10.0.0.1'])
  })

  test('when the next address is free, also of what the batch itself released', () => {
    const results = bothWays(
      [pool('a', '10.0.0.0/32'), active('10.0.0.0', web(1))],
      [reserve({ owner: someone(1), ...inA }), release(3), reserve({ owner: someone(1), ...inA })],
    )
    expect(results[2]!.refusal).toMatchObject({ retryAfterMs: 2 * MINUTE, metadata: { cooling: '1' } })
  })

  test('free at once, behind what was free before', () => {
    const results = bothWays(
      [
        pool('a', '10.0.0.0/29', { cooldownMs: 0 }),
        ...[1, 2, 3, 4, 5, 6].map((n) => active(`10.0.0.${n}`, someone(n))),
        ...[4, 2, 6].map((n) => released(`10.0.0.${n}`)),
      ],
      [
        reserve({ owner: someone(11), ...inA }),
        release(3),
        ...[12, 13, 14, 15].map((n) => reserve({ owner: someone(n), ...inA })),
      ],
    )
    expect(results.map(short).filter((_, n) => n !== 1)).toEqual([
      '10.0.0.4',
      '10.0.0.2',
      '10.0.0.6',
      '10.0.0.1',
      'POOL_EXHAUSTED',
    ])
  })

  test('free at once, also for the items of an all-or-nothing command', () => {
    const results = bothWays(
      [pool('a', '10.0.0.0/32', { cooldownMs: 0 }), active('10.0.0.0', web(1))],
      [
        release(3),
        allOrNothing([reserve({ owner: someone(1), ...inA })]),
        reserve({ owner: someone(2), ...inA }),
      ],
    )
    expect(results.map((result) => result.refusal?.reason ?? 'ok')).toEqual(['ok', 'ok', 'POOL_EXHAUSTED'])
  })

  test("a holder's earlier addresses are not forgotten over a later one", () => {
    const results = bothWays(
      [
        pool('a', '10.0.0.0/29'),
        pool('b', '10.0.1.0/29'),
        active('10.0.0.5', web(9)),
        released('10.0.0.5'),
        active('10.0.0.6', web(1)),
      ],
      [
        reserve({ owner: web(1), claims: [claim({ pool: 'b', preferPrevious: true })] }),
        release(6),
        reserve({ owner: web(2), claims: [claim({ pool: 'a', address: '10.0.0.6' })] }),
        reserve({ owner: web(3), claims: [claim({ pool: 'a', preferPrevious: true })] }),
      ],
    )
    expect(results.map(short)).toEqual(['10.0.1.1', '10.0.0.6', '10.0.0.6', '10.0.0.5'])
  })

  test('a new holder of an address is not taken for the one before it', () => {
    const results = bothWays(
      [pool('a', '10.0.0.0/32', { cooldownMs: 0 }), active('10.0.0.0', web(1))],
      [
        release(3),
        reserve({ owner: someone(1), ...inA }),
        reserve({ owner: web(2), ...inA }),
        releaseOf(web(1)),
      ],
    )
    expect(results.map(short)).toEqual(['10.0.0.0', '10.0.0.0', 'POOL_EXHAUSTED', '10.0.0.0'])
    expect(results[3]!.answer!.leases[0]).toMatchObject({ state: 'RELEASED', fencingToken: 3 })
  })

  test("a quarantined lease that lost its holder is nobody's", () => {
    bothWays(
      [pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))],
      [quarantine({ token: 3 }), release(3), reserve({ owner: web(2), ...inA }), confirmOf(web(2))],
    )
  })

  test('closed, reopened, confirmed', () => {
    bothWays(
      [pool('a', '10.0.0.0/29'), closed(web(1))],
      [
        reserve({ owner: web(1), ...inA, reopen: true }),
        reserve({ owner: web(1), ...inA }),
        confirmOf(web(1)),
        releaseOf(web(1)),
        reserve({ owner: web(1), ...inA }),
      ],
    )
  })

  test('superseded in a pool that nobody in the batch claims', () => {
    bothWays(
      [pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'), active('10.0.0.5', web(1))],
      [reserve({ owner: web(2), ...inB }), reserve({ owner: web(1), ...inB }), release(4)],
    )
  })

  test('handed on twice', () => {
    const next = (life: number) =>
      reserve({
        owner: web(life),
        claims: [claim({ pool: 'a', preferPrevious: true })],
        supersedes: removed({ incarnation: String(life - 1) }),
      })
    const results = bothWays(
      [pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web(1))],
      [next(2), next(3), next(4)],
    )
    expect(results.map(short)).toEqual(['10.0.0.5', '10.0.0.5', '10.0.0.5'])
  })

  test('reaped, and its token asked for again', () => {
    bothWays(
      [pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), quarantined('10.0.0.5', 'CONFLICT')],
      [
        reap(3, 4),
        reap(3, 4),
        confirm(3),
        release(3),
        quarantine({ token: 3 }),
        quarantine({ address: '10.0.0.5' }),
      ],
    )
  })
})
