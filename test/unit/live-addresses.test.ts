/** What a Reserve's caller sees in use is never handed out (M-10, M-12, M-13; opnsense#10285; DESIGN §3, §4 caps). */
import { describe, expect, test } from 'vitest'
import {
  ADMIN,
  active,
  agentOf,
  claim,
  elapsed,
  given,
  givenIn,
  HOUR,
  on,
  owner,
  pool,
  quarantine,
  quarantined,
  reap,
  released,
  reserve,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const host = (from: number, to: number, prefix = '10.0.0') =>
  Array.from({ length: to - from + 1 }, (_, n) => `${prefix}.${from + n}`)

describe('a candidate that the caller sees', () => {
  test('is quarantined, and the next one is taken', () => {
    const books = given(pool('a', '10.0.0.0/26'))
    books
      .when(reserve({ owner: web(1), ...inA, liveAddresses: ['10.0.0.1', '10.0.0.2', '10.0.0.9'] }))
      .then(
        'lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)',
        'lease.quarantined 10.0.0.2 SEEN_BY_CALLER (nobody)',
        'lease.reserved 10.0.0.3',
      )
    expect(books.leaseAt('10.0.0.1')).toMatchObject({
      owner: null,
      quarantine: { reason: 'SEEN_BY_CALLER', by: 'test' },
    })
    expect(books.ledger.events.at(-3)!.evidence).toEqual({
      seenBy: 'test',
      reservingFor: 'pod web incarnation 1 (eth0)',
    })
    // And stays out, for everybody.
    books.when(reserve({ owner: owner({ name: 'x' }), ...inA })).then('lease.reserved 10.0.0.4')
  })

  test('among recycled addresses is passed over as well', () => {
    const books = given(
      pool('a', '10.0.0.0/30'),
      active('10.0.0.1', web(1)),
      active('10.0.0.2', owner({ name: 'y' })),
      released('10.0.0.2'),
      released('10.0.0.1'),
      elapsed(HOUR),
    )
    books
      .when(reserve({ owner: owner({ name: 'x' }), ...inA, liveAddresses: ['10.0.0.2'] }))
      .then('lease.quarantined 10.0.0.2 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.1')
  })

  test('is not looked for where nobody takes one: what is held is not quarantined', () => {
    const books = given(pool('a', '10.0.0.0/28'), active('10.0.0.1', web(1)))
    books
      .when(reserve({ owner: owner({ name: 'x' }), ...inA, liveAddresses: ['10.0.0.1', '10.0.0.7'] }))
      .then('lease.reserved 10.0.0.2')
  })

  test('the previous address, seen live, is not given back', () => {
    const books = given(pool('a', '10.0.0.0/28'), active('10.0.0.5', web(1)), released('10.0.0.5'))
    books
      .when(
        reserve({
          owner: web(2),
          claims: [claim({ pool: 'a', preferPrevious: true })],
          liveAddresses: ['10.0.0.5'],
        }),
      )
      .then('lease.quarantined 10.0.0.5 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.1')
  })

  test('the previous address, free and seen live, is skipped once', () => {
    const books = given(
      pool('a', '10.0.0.0/27'),
      ...host(2, 30).map((address) => active(address, owner({ name: address }))),
      active('10.0.0.1', web(1)),
      released('10.0.0.1'),
      elapsed(HOUR),
    )
    books
      .when(
        reserve({
          owner: web(2),
          claims: [claim({ pool: 'a', preferPrevious: true })],
          liveAddresses: ['10.0.0.1'],
        }),
      )
      .refused('POOL_EXHAUSTED', 'lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)')
  })

  test('of the other family is another address, whatever its number', () => {
    const seen = ['::a00:1', '::a00:5']
    given(pool('a', '10.0.0.0/28'))
      .when(reserve({ owner: web(1), ...inA, liveAddresses: seen }))
      .then('lease.reserved 10.0.0.1')
    given(pool('a', '10.0.0.0/28', { prefixLength: 30 }))
      .when(reserve({ owner: web(1), ...inA, liveAddresses: seen }))
      .then('lease.reserved 10.0.0.0')
  })

  test('inside a block vetoes the block, outside of it does not', () => {
    const books = given(
      pool('a', '10.0.0.0/24', { prefixLength: 28 }),
      pool('c', 'fd00::/60', { prefixLength: 64 }),
    )
    books
      .when(reserve({ owner: web(1), ...inA, liveAddresses: ['10.0.0.7', '10.0.0.33', 'fd00::1'] }))
      .then('lease.quarantined 10.0.0.0 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.16')
  })

  test('inside a block of v6', () => {
    const books = given(pool('c', 'fd00::/60', { prefixLength: 64 }))
    books
      .when(
        reserve({
          owner: web(1),
          claims: [claim({ pool: 'c' })],
          liveAddresses: ['fd00::ffff:1', '10.0.0.1'],
        }),
      )
      .then('lease.quarantined fd00:: SEEN_BY_CALLER (nobody)', 'lease.reserved fd00:0:0:1::')
  })

  test('is quarantined also when the Reserve is refused in the end', () => {
    const books = given(
      pool('a', '10.0.0.0/27'),
      pool('b', '10.0.1.0/32'),
      active('10.0.1.0', owner({ name: 'y' })),
    )
    books
      .when(
        reserve({
          owner: web(1),
          claims: [claim({ pool: 'a' }), claim({ pool: 'b' })],
          liveAddresses: ['10.0.0.1'],
        }),
      )
      .refused('POOL_EXHAUSTED', 'lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)')
  })
})

describe('a named address that the caller sees', () => {
  test('is quarantined and refused', () => {
    const books = given(pool('a', '10.0.0.0/28'))
    const command = reserve({
      owner: web(1),
      claims: [claim({ pool: 'a', address: '10.0.0.5' })],
      liveAddresses: ['10.0.0.5'],
    })
    const refusal = books
      .when(command)
      .refused('ADDRESS_QUARANTINED', 'lease.quarantined 10.0.0.5 SEEN_BY_CALLER (nobody)')
    expect(refusal.metadata).toEqual({
      address: '10.0.0.5',
      pool: 'a',
      quarantineReason: 'SEEN_BY_CALLER',
      seenBy: 'test',
    })
    books.when(command).refused('ADDRESS_QUARANTINED')
  })
})

describe('thirty-two skips', () => {
  const big = () => given(pool('a', '10.0.0.0/22'))

  test('end the Reserve, and what was skipped is still held', () => {
    const books = big()
    const refusal = books
      .when(reserve({ owner: web(1), ...inA, liveAddresses: host(1, 32) }))
      .refused(
        'ALL_CANDIDATES_LIVE',
        ...host(1, 32).map((address) => `lease.quarantined ${address} SEEN_BY_CALLER (nobody)`),
      )
    expect(refusal.metadata).toEqual({ pool: 'a', skips: '32' })
    for (const address of host(1, 32)) expect(books.leaseAt(address)).toMatchObject({ state: 'QUARANTINED' })
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.33')
  })

  test('thirty-one do not', () => {
    const lease = big()
      .ledger.submit(reserve({ owner: web(1), ...inA, liveAddresses: host(1, 31) }))
      .answer!.leases.at(0)
    expect(lease?.address).toBe('10.0.0.32')
  })

  test('count for the whole Reserve, over its claims and pools', () => {
    const books = given(pool('a', '10.0.0.0/23'), pool('b', '10.1.0.0/23'))
    const seen = [...host(1, 20), ...host(1, 20, '10.1.0')]
    const { refusal } = books.ledger.submit(
      reserve({
        owner: web(1),
        claims: [claim({ pool: 'a' }), claim({ pool: 'b' })],
        liveAddresses: seen,
      }),
    )
    expect(refusal).toMatchObject({ reason: 'ALL_CANDIDATES_LIVE', metadata: { pool: 'b', skips: '32' } })
  })

  test('end it at the previous address as well', () => {
    const books = given(
      pool('a', '10.0.0.0/22'),
      pool('b', '10.1.0.0/24'),
      active('10.1.0.5', web(1)),
      released('10.1.0.5'),
    )
    const { refusal } = books.ledger.submit(
      reserve({
        owner: web(2),
        claims: [claim({ pool: 'a' }), claim({ pool: 'b', preferPrevious: true })],
        liveAddresses: [...host(1, 31), '10.1.0.5'],
      }),
    )
    expect(refusal).toMatchObject({ reason: 'ALL_CANDIDATES_LIVE', metadata: { pool: 'b', skips: '32' } })
  })

  test('are not evaded through the next pool', () => {
    const books = given(pool('a', '10.0.0.0/22'), pool('b', '10.1.0.0/22'))
    const { refusal } = books.ledger.submit(
      reserve({
        owner: web(1),
        claims: [claim({ pools: ['a', 'b'] })],
        liveAddresses: host(1, 40),
      }),
    )
    expect(refusal?.reason).toBe('ALL_CANDIDATES_LIVE')
  })
})

describe('the cap of a pool', () => {
  test('is a tenth of it: beyond, the address is skipped and not recorded', () => {
    // 30 addresses: three quarantines.
    const books = given(pool('a', '10.0.0.0/27'))
    books
      .when(reserve({ owner: web(1), ...inA, liveAddresses: host(1, 6) }))
      .then(
        ...host(1, 3).map((address) => `lease.quarantined ${address} SEEN_BY_CALLER (nobody)`),
        'lease.reserved 10.0.0.7',
      )
    // Seen again by the next caller: still never handed out, and nothing durable.
    books
      .when(reserve({ owner: owner({ name: 'x' }), ...inA, liveAddresses: host(4, 6) }))
      .then('lease.reserved 10.0.0.8')
  })

  test('is at least one address', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    books
      .when(reserve({ owner: web(1), ...inA, liveAddresses: host(1, 2) }))
      .then('lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.3')
  })

  test('counts blocks in a pool of blocks', () => {
    // 32 blocks: three.
    const books = given(pool('a', '10.0.0.0/24', { prefixLength: 29 }))
    books
      .when(
        reserve({
          owner: web(1),
          ...inA,
          liveAddresses: ['10.0.0.1', '10.0.0.9', '10.0.0.17', '10.0.0.25'],
        }),
      )
      .then(
        'lease.quarantined 10.0.0.0 SEEN_BY_CALLER (nobody)',
        'lease.quarantined 10.0.0.8 SEEN_BY_CALLER (nobody)',
        'lease.quarantined 10.0.0.16 SEEN_BY_CALLER (nobody)',
        'lease.reserved 10.0.0.32',
      )
  })

  test('counts every quarantine of the pool', () => {
    const books = given(
      pool('a', '10.0.0.0/27'),
      quarantined('10.0.0.20', 'FOREIGN'),
      quarantined('10.0.0.21', 'OPERATOR'),
      quarantined('10.0.0.22', 'SEEN_BY_CALLER', 'else'),
    )
    books.when(reserve({ owner: web(1), ...inA, liveAddresses: host(1, 1) })).then('lease.reserved 10.0.0.2')
  })

  test('of one pool does not limit another', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'))
    books
      .when(
        reserve({
          owner: web(1),
          claims: [claim({ pool: 'a' }), claim({ pool: 'b' })],
          liveAddresses: ['10.0.0.1', '10.0.0.2', '10.0.1.1', '10.0.1.2'],
        }),
      )
      .then(
        'lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)',
        'lease.quarantined 10.0.1.1 SEEN_BY_CALLER (nobody)',
        'lease.reserved 10.0.0.3',
        'lease.reserved 10.0.1.3',
      )
  })

  test('what is free and seen is not counted as cooling', () => {
    const books = given(
      pool('a', '10.0.0.0/30', { cooldownMs: 1 }),
      active('10.0.0.1', web(1)),
      active('10.0.0.2', owner({ name: 'y' })),
      released('10.0.0.1'),
      released('10.0.0.2'),
      elapsed(1),
    )
    const { refusal } = books.ledger.submit(
      reserve({ owner: owner({ name: 'x' }), ...inA, liveAddresses: host(1, 2) }),
    )
    expect(refusal).toMatchObject({ reason: 'POOL_EXHAUSTED', metadata: { cooling: '0' } })
    expect(refusal!.retryAfterMs).toBeUndefined()
  })

  test('pool exhausted by what is seen: nothing live comes out', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    for (let n = 0; n < 5; n += 1) {
      const { answer, refusal } = books.ledger.submit(
        reserve({ owner: owner({ name: `x${n}` }), ...inA, liveAddresses: host(1, 6) }),
      )
      expect(answer).toBeNull()
      expect(refusal!.reason).toBe('POOL_EXHAUSTED')
    }
    expect(books.ledger.pool('a').leases).toHaveLength(1)
  })
})

describe('the cap of a caller', () => {
  const seeing = (from: number, to: number, actor = ADMIN) =>
    reserve({
      owner: owner({ name: `${actor.name}-${from}`, incarnation: '1' }),
      ...inA,
      actor,
      liveAddresses: host(from, to),
    })

  test('is 64 at a time; beyond, it only skips; others go on', () => {
    const books = givenIn({ windows: [5] }, pool('a', '10.0.0.0/20'))
    for (let n = 0; n < 3; n += 1) books.ledger.submit(seeing(1 + 31 * n, 31 + 31 * n))
    const mine = () => books.ledger.pool('a').leases.filter((lease) => lease.quarantine?.by === 'test')
    expect(mine()).toHaveLength(64)
    // Some were skipped without a record, and none of them was handed out.
    const got = books.ledger.pool('a').leases.filter((lease) => lease.state === 'RESERVED')
    expect(got.map((lease) => lease.address)).toEqual(['10.0.0.32', '10.0.0.63', '10.0.0.94'])
    // Another caller that sees one of them may record it.
    books
      .when(seeing(67, 67, { name: 'else', node: null }))
      .then('lease.quarantined 10.0.0.67 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.68')
    // One of its own ends: there is room for one more.
    const { fencingToken, version } = mine()[0]!
    books.accept(reap(fencingToken, version))
    books
      .when(seeing(69, 70))
      .then('lease.quarantined 10.0.0.69 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.71')
  })

  test('is reached within one batch', () => {
    const books = givenIn({ windows: [5] }, pool('a', '10.0.0.0/20'))
    for (let n = 0; n < 2; n += 1) books.ledger.submit(seeing(1 + 31 * n, 31 + 31 * n))
    books.ledger.submitBatch([seeing(64, 66), seeing(68, 70)])
    const mine = books.ledger.pool('a').leases.filter((lease) => lease.quarantine?.by === 'test')
    expect(mine).toHaveLength(64)
  })

  test.each([
    ['reaped', (token: number, version: number) => reap(token, version)],
    ['taken over by an operator', (token: number) => quarantine({ token })],
  ])('has room again within one batch once one of its own is %s', (_how, ends) => {
    const books = givenIn({ windows: [5] }, pool('a', '10.0.0.0/20'))
    for (let n = 0; n < 3; n += 1) books.ledger.submit(seeing(1 + 31 * n, 31 + 31 * n))
    const [one] = books.ledger.pool('a').leases.filter((lease) => lease.quarantine?.by === 'test')
    const results = books.ledger.submitBatch([
      seeing(66, 69),
      ends(one!.fencingToken, one!.version),
      seeing(67, 68),
    ])
    expect(results.map((result) => result.events.map((event) => event.type))).toEqual([
      ['lease.reserved'],
      [expect.stringMatching(/^lease\.(reaped|quarantined)$/)],
      ['lease.quarantined', 'lease.reserved'],
    ])
  })

  test('quarantines of other reasons do not count against it', () => {
    const books = given(
      pool('a', '10.0.0.0/24'),
      ...host(100, 120).map((address) => quarantined(address, 'OPERATOR', 'test')),
    )
    books
      .when(seeing(1, 1))
      .then('lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.2')
  })

  test('a caller is its token, on whatever node', () => {
    const books = given(pool('a', '10.0.0.0/24'))
    books
      .when(
        reserve({
          owner: web(1),
          ...inA,
          actor: agentOf('n1'),
          placement: on('n1'),
          liveAddresses: ['10.0.0.1'],
        }),
      )
      .then('lease.quarantined 10.0.0.1 SEEN_BY_CALLER (nobody)', 'lease.reserved 10.0.0.2')
    expect(books.leaseAt('10.0.0.1')!.quarantine!.by).toBe('agent-n1')
  })
})
