/** Reserve meets truth: what a source sees live is never handed out, whatever the books say (INV-12, azure#1259, 7.1). */
import { describe, expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import {
  active,
  claim,
  elapsed,
  entry,
  type Fact,
  fenced,
  given,
  givenIn,
  HOUR,
  lists,
  listsPartly,
  MINUTE,
  owner,
  pool,
  reaped,
  released,
  removed,
  reserve,
  source,
  updatePool,
  web,
} from '../support/given.ts'

const api = owner({ name: 'api', uid: 'u1', incarnation: '1' })
const stranger = owner({ name: 'stranger', uid: 'u9', incarnation: '1' })
const inA = { claims: [claim({ pool: 'a' })] }
const named = (address: string) => ({ claims: [claim({ pool: 'a', address })] })
const prefer = { claims: [claim({ pool: 'a', preferPrevious: true })] }
const host = (from: number, to: number, prefix = '10.0.0') =>
  Array.from({ length: to - from + 1 }, (_, n) => `${prefix}.${from + n}`)
const seen = (...addresses: readonly string[]) => addresses.map((address) => entry(address, stranger))

describe('a candidate that a source sees live', () => {
  const past = [pool('a', '10.0.0.0/26'), source('agent')]

  test('is passed over, and nothing is recorded', () => {
    const books = given(...past, lists('agent', ...seen('10.0.0.1', '10.0.0.2', '10.0.0.9')))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.3')
    expect(books.ledger.pool('a').counts.quarantined).toBe(0)
  })

  test.each([
    ['for nobody known', entry('10.0.0.1', null)],
    ['paused', entry('10.0.0.1', stranger, { state: 'paused' })],
    ['for the caller itself: it was not asked for', entry('10.0.0.1', api)],
  ])('%s', (_how, one) => {
    const books = given(...past, lists('agent', one))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
  })

  test('as ended is a candidate', () => {
    const books = given(...past, lists('agent', entry('10.0.0.1', stranger, { state: 'terminal' })))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('no more is a candidate again', () => {
    const books = given(...past, lists('agent', ...seen('10.0.0.1')), elapsed(MINUTE), lists('agent'))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('by a list with holes, or one of which nothing proves the head, is passed over as well', () => {
    const partly = given(...past, listsPartly('agent', seen('10.0.0.1'), 2))
    partly.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
    const unproven = given(...past, listsPartly('agent', seen('10.0.0.1'), null))
    unproven.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
  })

  test('by a source in dry run too; by one that was retired, no more', () => {
    const dry = given(
      pool('a', '10.0.0.0/26'),
      source('agent', { state: 'REGISTERED' }),
      lists('agent', ...seen('10.0.0.1')),
    )
    dry.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
    source('agent', { state: 'RETIRED' })(dry.ledger)
    dry.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('before the pool was made', () => {
    const books = given(source('agent'), lists('agent', ...seen('10.0.0.1')), pool('a', '10.0.0.0/26'))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
  })

  test('in what a pool grows by', () => {
    const books = given(
      source('agent'),
      lists('agent', ...seen('10.0.0.1', '10.0.0.5')),
      pool('a', '10.0.0.4/30', { subnet: '10.0.0.0/24' }),
    )
    const results = books.ledger.submitBatch([
      reserve({ owner: api, ...inA }),
      updatePool('a', { cidr: '10.0.0.0/29' }),
      reserve({ owner: web(1), ...inA }),
    ])
    expect(results.map(({ answer }) => answer!.leases[0]?.address)).toEqual([
      '10.0.0.4',
      undefined,
      '10.0.0.2',
    ])
  })

  test('is no skip: of those there may be more than 32', () => {
    const many = host(1, POLICY.skips + 20)
    const books = given(...past, lists('agent', ...seen(...many)))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.53')
  })

  test('and by the caller too is quarantined for the caller alone when it comes to it', () => {
    const books = given(...past, lists('agent', ...seen('10.0.0.1')))
    books
      .when(reserve({ owner: api, ...inA, liveAddresses: ['10.0.0.1', '10.0.0.2'] }))
      .then('lease.quarantined 10.0.0.2 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.3')
  })

  test('leaves a pool exhausted, which says so', () => {
    const books = given(pool('a', '10.0.0.0/29'), source('agent'), lists('agent', ...seen(...host(1, 6))))
    const refusal = books.refuse(reserve({ owner: api, ...inA }), 'POOL_EXHAUSTED')
    expect(refusal.metadata).toMatchObject({ seenLive: '6', cooling: '0' })
    expect(refusal.message).toContain('6 are seen live')
  })

  test('inside a block, is the block', () => {
    const books = given(
      pool('a', '10.0.0.0/24', { prefixLength: 28 }),
      source('agent'),
      lists('agent', ...seen('10.0.0.7', '10.0.0.8', '10.0.0.16')),
    )
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.32')
  })

  test('inside a block of v6', () => {
    const books = given(
      pool('a', 'fd00::/60', { prefixLength: 64 }),
      source('agent'),
      lists('agent', ...seen('fd00::ffff:1')),
    )
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved fd00:0:0:1::')
  })

  test('on both sides of the ends of windows', () => {
    for (const window of [1, 2, 3, 5, 50]) {
      const books = givenIn(
        { windows: [window] },
        ...past,
        lists('agent', ...seen('10.0.0.2', '10.0.0.3', '10.0.0.5', '10.0.0.8')),
      )
      const got = host(1, 6).map(
        (_, n) => books.take(reserve({ owner: owner({ name: `x${n}`, incarnation: '1' }), ...inA })).address,
      )
      expect(got, `windows of ${window}`).toEqual([
        '10.0.0.1',
        '10.0.0.4',
        '10.0.0.6',
        '10.0.0.7',
        '10.0.0.9',
        '10.0.0.10',
      ])
    }
  })
})

describe('a recycled candidate', () => {
  /** The only addresses of the pool, both free again. */
  const recycled = (...facts: readonly Fact[]) =>
    given(
      pool('a', '10.0.0.0/30'),
      source('agent'),
      active('10.0.0.1', stranger),
      active('10.0.0.2', owner({ name: 'y' })),
      ...facts,
      elapsed(HOUR),
    )
  const both = [released('10.0.0.1'), released('10.0.0.2')]

  test('that is seen live is passed over', () => {
    const books = recycled(...both, lists('agent', ...seen('10.0.0.1')))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
    books.when(reserve({ owner: web(1), ...inA })).refused('POOL_EXHAUSTED')
  })

  test('that only its last holder was seen at, before it said that it is gone, is free: its source is silent', () => {
    const books = recycled(lists('agent', ...seen('10.0.0.1')), ...both)
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.1')
  })

  test.each([
    ['somebody else', entry('10.0.0.1', owner({ name: 'other', uid: 'u8' }))],
    ['another life of its holder', entry('10.0.0.1', { ...stranger, incarnation: '2' })],
    ['nobody known', entry('10.0.0.1', null)],
  ])('where a silent source saw %s before it was released is passed over', (_who, one) => {
    const books = recycled(lists('agent', one), ...both)
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
    books.refuse(reserve({ owner: web(1), ...inA }), 'POOL_EXHAUSTED')
    const refusal = books.refuse(reserve({ owner: web(1), ...named('10.0.0.1') }), 'ADDRESS_QUARANTINED')
    expect(refusal.metadata.seenBy).toBe('agent')
  })

  test('that its holder was seen at on another node than the one it was released on is passed over', () => {
    const at = (node: string) => ({ placement: { node, boot: 'b1', labels: {} } })
    for (const [node, address] of [
      ['n1', '10.0.0.1'],
      ['n2', '10.0.0.2'],
    ] as const) {
      const books = given(
        pool('a', '10.0.0.0/30'),
        source('agent'),
        active('10.0.0.1', stranger, at(node)),
        active('10.0.0.2', owner({ name: 'y' })),
        lists('agent', ...seen('10.0.0.1')),
        ...both,
        elapsed(HOUR),
      )
      books.when(reserve({ owner: api, ...inA })).then(`lease.reserved ${address}`)
    }
  })

  test('that a silent source saw before it was reaped is passed over: of what is seen nothing was proven', () => {
    const books = recycled(lists('agent', ...seen('10.0.0.1')), reaped('10.0.0.1'), released('10.0.0.2'))
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
    books.refuse(reserve({ owner: web(1), ...inA }), 'POOL_EXHAUSTED')
    fenced('n1', 'b1')(books.ledger)
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('in a block goes by who released it: its guests on its node went with it, those elsewhere did not', () => {
    const from = (node: string) =>
      given(
        pool('a', '10.0.0.0/27', { prefixLength: 28 }),
        source('agent'),
        active('10.0.0.0', owner({ name: 'n1' }), { placement: { node: 'n1', boot: 'b1', labels: {} } }),
        active('10.0.0.16', owner({ name: 'n3' })),
        lists('agent', entry('10.0.0.7', stranger, { node })),
        released('10.0.0.0'),
        elapsed(HOUR),
      )
    from('n1')
      .when(reserve({ owner: api, ...inA }))
      .then('lease.reserved 10.0.0.0')
    from('n2')
      .when(reserve({ owner: api, ...inA }))
      .refused('POOL_EXHAUSTED')
    from('')
      .when(reserve({ owner: api, ...inA }))
      .refused('POOL_EXHAUSTED')
  })

  test('that a fenced node listed last is free', () => {
    const books = recycled(
      lists('agent', ...seen('10.0.0.1')),
      fenced('n1', 'b1'),
      reaped('10.0.0.1'),
      released('10.0.0.2'),
    )
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('that was seen, and nothing proves when, is passed over', () => {
    const books = recycled(listsPartly('agent', seen('10.0.0.1'), null), ...both)
    books.when(reserve({ owner: api, ...inA })).then('lease.reserved 10.0.0.2')
  })
})

describe('a named address that a source sees live', () => {
  const past = [pool('a', '10.0.0.0/26'), source('agent')]

  test('is refused, and says who sees it', () => {
    const books = given(...past, lists('agent', ...seen('10.0.0.5')))
    const refusal = books.refuse(reserve({ owner: api, ...named('10.0.0.5') }), 'ADDRESS_QUARANTINED')
    expect(refusal.metadata).toEqual({ address: '10.0.0.5', pool: 'a', seenBy: 'agent' })
    expect(refusal.message).toContain('stranger')
    expect(books.since()).toEqual([])
  })

  test('for nobody known is refused', () => {
    const books = given(...past, lists('agent', entry('10.0.0.5', null)))
    books.refuse(reserve({ owner: api, ...named('10.0.0.5') }), 'ADDRESS_QUARANTINED')
  })

  test('for its own claimant is had: the books had lost it', () => {
    const books = given(...past, lists('agent', entry('10.0.0.5', { ...api, incarnation: '' })))
    books.when(reserve({ owner: api, ...named('10.0.0.5') })).then('lease.reserved 10.0.0.5')
  })

  test('for another life of its claimant is not', () => {
    const books = given(...past, lists('agent', entry('10.0.0.5', { ...api, incarnation: '2' })))
    books.refuse(reserve({ owner: api, ...named('10.0.0.5') }), 'ADDRESS_QUARANTINED')
  })

  test('for its claimant and for another is not', () => {
    const books = given(...past, lists('agent', entry('10.0.0.5', api), entry('10.0.0.5', stranger)))
    books.refuse(reserve({ owner: api, ...named('10.0.0.5') }), 'ADDRESS_QUARANTINED')
  })

  test('inside the block that is named', () => {
    const books = given(
      pool('a', '10.0.0.0/24', { prefixLength: 28 }),
      source('agent'),
      lists('agent', ...seen('10.0.0.21')),
    )
    books.refuse(reserve({ owner: api, ...named('10.0.0.16') }), 'ADDRESS_QUARANTINED')
  })

  test('in a dry run of a Reserve as well', () => {
    const books = given(...past, lists('agent', ...seen('10.0.0.5')))
    books.refuse(reserve({ owner: api, ...named('10.0.0.5'), validateOnly: true }), 'ADDRESS_QUARANTINED')
  })
})

describe('what goes back to its last holder before it has cooled', () => {
  const next = { ...api, incarnation: '2' }
  const before = (...facts: readonly Fact[]) =>
    given(pool('a', '10.0.0.0/26'), source('agent'), active('10.0.0.5', api), ...facts)

  test('may still be in the lists of before', () => {
    const books = before(lists('agent', entry('10.0.0.5', api)), released('10.0.0.5'))
    books.when(reserve({ owner: next, ...prefer })).then('lease.reserved 10.0.0.5')
  })

  test('not if it is seen since it was removed', () => {
    const books = before(released('10.0.0.5'), lists('agent', entry('10.0.0.5', api)))
    books.when(reserve({ owner: next, ...prefer })).then('lease.reserved 10.0.0.1')
    books.refuse(reserve({ owner: { ...next, interface: 'eth0' }, ...named('10.0.0.5') }), 'ILLEGAL_STATE')
  })

  test('not if somebody else was seen there, whenever', () => {
    const books = before(lists('agent', ...seen('10.0.0.5')), released('10.0.0.5'))
    books.when(reserve({ owner: next, ...prefer })).then('lease.reserved 10.0.0.1')
  })

  test('named, it is refused on the same ground', () => {
    const books = before(lists('agent', ...seen('10.0.0.5')), released('10.0.0.5'))
    books.refuse(reserve({ owner: next, ...named('10.0.0.5') }), 'ADDRESS_QUARANTINED')
    const own = before(lists('agent', entry('10.0.0.5', api)), released('10.0.0.5'))
    own.when(reserve({ owner: next, ...named('10.0.0.5') })).then('lease.reserved 10.0.0.5')
  })

  test('handed on by a confirmed removal: the same', () => {
    const supersedes = removed({ incarnation: '1' })
    const handedOn = before(lists('agent', entry('10.0.0.5', api)))
    handedOn
      .when(reserve({ owner: next, ...prefer, supersedes }))
      .then('lease.released 10.0.0.5', 'attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.5')
    const contested = before(lists('agent', ...seen('10.0.0.5')))
    contested
      .when(reserve({ owner: next, ...prefer, supersedes }))
      .then('lease.released 10.0.0.5', 'attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.1')
  })

  test('where nothing has to cool, what the predecessor lets go of is the last candidate, unless others see it', () => {
    const full = (facts: readonly Fact[]) =>
      given(
        pool('a', '10.0.0.5/32', { cooldownMs: 0 }),
        source('agent', { intervalMs: 0 }),
        active('10.0.0.5', api),
        ...facts,
      )
    const supersedes = removed({ incarnation: '1' })
    full([lists('agent', entry('10.0.0.5', api))])
      .when(reserve({ owner: next, ...inA, supersedes }))
      .then('lease.released 10.0.0.5', 'attachment.closed u1#1 everywhere', 'lease.reserved 10.0.0.5')
    full([lists('agent', ...seen('10.0.0.5'))])
      .when(reserve({ owner: next, ...inA, supersedes }))
      .refused('POOL_EXHAUSTED')
  })

  test('nothing goes on at once where a source needs time to say that it is live', () => {
    const books = given(
      pool('a', '10.0.0.5/32', { cooldownMs: 0 }),
      source('agent', { intervalMs: MINUTE }),
      active('10.0.0.5', api),
    )
    books
      .when(reserve({ owner: next, ...inA, supersedes: removed({ incarnation: '1' }) }))
      .refused('POOL_EXHAUSTED')
  })
})
