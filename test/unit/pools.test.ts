/** Pools: made, edited and deleted without orphaning an address (DESIGN §6 "Pool"; INV-19; incidents 14.1, 14.2). */
import { describe, expect, test } from 'vitest'
import type { PoolChange } from '../../src/core/command.ts'
import {
  ADMIN,
  active,
  claim,
  createPool,
  DAY,
  deletePool,
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
  reserve,
  reserved,
  SECOND,
  updatePool,
  web,
} from '../support/given.ts'
import { partition } from '../support/memory-ledger.ts'

const x = owner({ name: 'x', incarnation: '1' })
const from = (name: string) => ({ claims: [claim({ pool: name })] })
const someone = (n: number) => owner({ name: `someone-${n}` })

describe('CreatePool', () => {
  test('answers with the number that made it, and its addresses are to be had', () => {
    const books = given()
    const { answer } = books.ledger.submit(createPool({ name: 'a', cidr: '10.0.0.0/29' }))
    expect(answer).toMatchObject({
      leases: [],
      poolId: 2,
      pool: { version: 2, settings: { cidr: '10.0.0.0/29' } },
    })
    books.when(reserve({ owner: x, ...from('a') })).then('lease.reserved 10.0.0.1')
    expect(partition(books.ledger, 'a')).toEqual({
      free: 5n,
      cooling: 0n,
      reserved: 1n,
      active: 0n,
      quarantined: 0n,
      excluded: 2n,
      size: 8n,
    })
  })

  test('a name is given once', () => {
    const refusal = given(pool('a', '10.0.0.0/29')).refuse(
      createPool({ name: 'a', cidr: '10.0.1.0/29' }),
      'INVALID_FIELD',
    )
    expect(refusal.metadata.field).toBe('name')
  })

  test.each(['10.0.0.0/29', '10.0.0.0/24', '10.0.0.4/31', '10.0.0.0/8', '0.0.0.0/0'])(
    'never overlaps another: %s',
    (cidr) => {
      const refusal = given(pool('a', '10.0.0.0/29')).refuse(createPool({ name: 'b', cidr }), 'INVALID_FIELD')
      expect(refusal.metadata.field).toBe('cidr')
      expect(refusal.message).toContain('a (10.0.0.0/29)')
    },
  )

  test.each([
    ['0.1.0.0/16', '0.0.0.0/8 (unspecified)'],
    ['127.0.1.0/24', '127.0.0.0/8 (loopback)'],
    ['169.254.7.0/29', '169.254.0.0/16 (link-local)'],
    ['169.0.0.0/8', '169.254.0.0/16 (link-local)'],
    ['224.1.0.0/16', '224.0.0.0/4 (multicast)'],
    ['240.0.0.0/4', '255.255.255.255/32 (broadcast)'],
    ['::/96', '::/128 (unspecified), ::1/128 (loopback)'],
    ['fe80::/64', 'fe80::/10 (link-local)'],
    ['febf:ffff::/32', 'fe80::/10 (link-local)'],
    ['ff05::/16', 'ff00::/8 (multicast)'],
  ])('no sighting of its addresses would count: %s', (cidr, what) => {
    const books = given(pool('a', cidr.includes(':') ? 'fd00::/64' : '10.0.0.0/29'))
    for (const command of [createPool({ name: 'b', cidr }), updatePool('a', { cidr })]) {
      const refusal = books.refuse(command, 'INVALID_FIELD')
      expect(refusal.metadata.field).toBe('cidr')
      expect(refusal.message).toContain(what)
    }
  })

  test.each(['1.0.0.0/8', '126.0.0.0/8', '128.0.0.0/8', '169.253.0.0/16', '169.255.0.0/16', '223.0.0.0/8'])(
    'beside what sources say nothing of is fine: %s',
    (cidr) => {
      given().accept(createPool({ name: 'b', cidr }))
    },
  )

  test.each(['255.255.255.128/26', '::2/127', 'fec0::/10', 'fe00::/9', 'fe7f::/16', 'fe00::/10'])(
    'and so is %s',
    (cidr) => {
      given().accept(createPool({ name: 'b', cidr }))
    },
  )

  test('a pool that has some of them already may be changed otherwise', () => {
    const books = given(pool('a', '169.254.0.0/24'))
    books.when(updatePool('a', { draining: true })).then('pool.updated a')
    books.when(updatePool('a', { cidr: '169.254.0.0/23' })).refused('INVALID_FIELD')
  })

  test('beside another, and in the other family, is fine', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    books.accept(createPool({ name: 'b', cidr: '10.0.0.8/29' }))
    books.accept(createPool({ name: 'c', cidr: 'fd00::/8' }))
  })

  test('settings that make no sense are refused with their field', () => {
    expect(
      given().refuse(createPool({ name: 'a', cidr: '10.0.0.1/29' }), 'INVALID_FIELD').metadata.field,
    ).toBe('cidr')
  })
})

describe('UpdatePool', () => {
  const accepted = (facts: readonly Fact[], change: PoolChange) => {
    const books = given(...facts)
    books.when(updatePool('a', change)).then(`pool.updated ${change.name ?? 'a'}`)
    return books
  }

  test('what is not there is not found', () => {
    given().refuse(updatePool('a', {}), 'POOL_NOT_FOUND')
  })

  test('that changes nothing leaves no event', () => {
    const books = given(pool('a', '10.0.0.0/29', { labels: { a: '1', b: '2' } }))
    expect(books.ledger.submit(updatePool('a', {})).answer).toMatchObject({
      leases: [],
      poolId: 2,
      pool: { poolId: 2, version: 2 },
    })
    books.when(updatePool('a', { cooldownMs: 2 * MINUTE, labels: { b: '2', a: '1' } })).then()
  })

  test("a version, if given, must be the pool's", () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const refusal = books.refuse(updatePool('a', { draining: true }, { version: 1 }), 'VERSION_MISMATCH')
    expect(refusal.metadata).toEqual({ pool: 'a', version: '2', expected: '1' })
    books.when(updatePool('a', { draining: true }, { version: 2 })).then('pool.updated a')
    books.refuse(updatePool('a', { draining: false }, { version: 2 }), 'VERSION_MISMATCH')
  })

  test('only what is named changes', () => {
    const fields = {
      subnet: '10.0.0.0/24',
      gateway: '10.0.0.254',
      exclude: ['10.0.0.3'],
      cooldownMs: 5 * SECOND,
      confirmWithinMs: MINUTE,
      ownerLimit: 2,
      isDefault: true,
      options: { routes: [], dns: ['10.0.0.53'], mtu: 1400 },
      labels: { a: 'b' },
    }
    const books = given(pool('a', '10.0.0.0/29', fields))
    const before = books.ledger.pool('a').pool
    books.accept(updatePool('a', { liveness: 'STRICT' }))
    const after = books.ledger.pool('a').pool
    expect(after).toEqual({ ...before, liveness: 'STRICT', version: 3, updatedAt: books.ledger.now() })
    // Null clears.
    books.accept(
      updatePool('a', { liveness: 'AVAILABLE', confirmWithinMs: null, gateway: null, subnet: '10.0.0.0/29' }),
    )
    expect(books.ledger.pool('a').pool).toMatchObject({
      confirmWithinMs: null,
      gateway: '',
      subnet: '10.0.0.0/29',
    })
    books.accept(
      updatePool('a', {
        cooldownMs: SECOND,
        ownerLimit: 3,
        isDefault: false,
        labels: {},
        options: { routes: [], dns: [], mtu: 0 },
      }),
    )
    expect(books.ledger.pool('a').pool).toMatchObject({
      cooldownMs: SECOND,
      ownerLimit: 3,
      isDefault: false,
      labels: {},
    })
  })

  test('of the reap policy, too; null is as by default, and as it is already changes nothing', () => {
    const books = given(pool('a', '10.0.0.0/29', { reapPolicy: { misses: 5, minimumAgeMs: MINUTE } }))
    const policy = () => books.ledger.pool('a').pool.reapPolicy
    books.when(updatePool('a', { reapPolicy: { misses: 4 } })).then('pool.updated a')
    expect(policy()).toEqual({ misses: 4, minimumAgeMs: MINUTE })
    books.when(updatePool('a', { reapPolicy: { misses: 4 } })).then()
    books.when(updatePool('a', { reapPolicy: { misses: 3 }, draining: true })).then('pool.updated a')
    expect(policy()).toEqual({ minimumAgeMs: MINUTE })
    books.when(updatePool('a', { draining: false })).then('pool.updated a')
    expect(policy()).toEqual({ minimumAgeMs: MINUTE })
    books.when(updatePool('a', { reapPolicy: null })).then('pool.updated a')
    expect(policy()).toBeUndefined()
    const { metadata } = books.refuse(updatePool('a', { reapPolicy: { misses: 9 } }), 'INVALID_FIELD')
    expect(metadata.field).toBe('reapPolicy.misses')
  })

  test('bad settings are refused with their field, as it is called there', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    expect(books.refuse(updatePool('a', { gateway: '10.9.9.9' }), 'INVALID_FIELD').metadata.field).toBe(
      'gateway',
    )
    expect(books.refuse(updatePool('a', { cidr: 'fd00::/125' }), 'INVALID_FIELD').metadata.field).toMatch(
      /^(cidr|prefixLength)$/,
    )
    expect(books.refuse(updatePool('a', { cidr: 'fd00::/16' }), 'INVALID_FIELD').metadata.field).toBe('cidr')
  })

  describe('rename', () => {
    test('keeps the pool, its leases and its number', () => {
      const books = accepted([pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))], { name: 'b' })
      books.when(reserve({ owner: web(1), ...from('b') })).then()
      books.refuse(reserve({ owner: x, ...from('a') }), 'POOL_NOT_FOUND')
      expect(books.ledger.pool('b').pool.poolId).toBe(2)
      // The old name is free again.
      books.accept(createPool({ name: 'a', cidr: '10.0.1.0/29' }))
    })

    test('to a name that is taken is refused', () => {
      const books = given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'))
      expect(books.refuse(updatePool('a', { name: 'b' }), 'INVALID_FIELD').metadata.field).toBe('newName')
    })
  })

  describe('grow', () => {
    test('its new addresses are to be had, and the old broadcast address among them', () => {
      const books = accepted([pool('a', '10.0.0.0/30'), active('10.0.0.1', x), active('10.0.0.2', web(1))], {
        cidr: '10.0.0.0/29',
      })
      const got = [1, 2, 3, 4].map((n) => books.take(reserve({ owner: someone(n), ...from('a') })).address)
      expect(got).toEqual(['10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6'])
      expect(books.ledger.pool('a').pool.subnet).toBe('10.0.0.0/29')
    })

    test('keeps what cools and in what order it was free', () => {
      const books = accepted(
        [
          pool('a', '10.0.0.4/30', { subnet: '10.0.0.0/24' }),
          ...[4, 5, 6, 7].map((n) => active(`10.0.0.${n}`, someone(n))),
          released('10.0.0.6'),
          elapsed(DAY),
          released('10.0.0.5'),
        ],
        { cidr: '10.0.0.0/29' },
      )
      const got = [11, 12, 13, 14].map(
        (n) => books.take(reserve({ owner: someone(n), ...from('a') })).address,
      )
      // 10.0.0.0 is the subnet's network address; 10.0.0.5 still cools.
      expect(got).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.6'])
      books.refuse(reserve({ owner: x, ...from('a') }), 'POOL_EXHAUSTED')
    })

    test('never over another pool', () => {
      const books = given(pool('a', '10.0.0.0/30'), pool('b', '10.0.0.4/30'))
      const refusal = books.refuse(updatePool('a', { cidr: '10.0.0.0/29' }), 'INVALID_FIELD')
      expect(refusal.metadata.field).toBe('cidr')
      expect(refusal.message).toContain('b (10.0.0.4/30)')
    })

    test('a subnet of its own must still contain it', () => {
      const books = given(pool('a', '10.0.0.0/30', { subnet: '10.0.0.0/29' }))
      expect(books.refuse(updatePool('a', { cidr: '10.0.0.0/28' }), 'INVALID_FIELD').metadata.field).toBe(
        'subnet',
      )
      books.accept(updatePool('a', { cidr: '10.0.0.0/28', subnet: '10.0.0.0/24' }))
    })
  })

  describe('what would leave with an edit is in the way:', () => {
    const edits: Record<string, { readonly change: PoolChange; readonly address: string }> = {
      shrink: { change: { cidr: '10.0.0.0/29' }, address: '10.0.0.9' },
      'shrink to the other side': { change: { cidr: '10.0.0.8/29' }, address: '10.0.0.4' },
      'a new broadcast address': { change: { cidr: '10.0.0.0/29' }, address: '10.0.0.7' },
      exclude: { change: { exclude: ['10.0.0.5-10.0.0.6'] }, address: '10.0.0.6' },
      'a gateway': { change: { gateway: '10.0.0.3' }, address: '10.0.0.3' },
    }

    describe.each(Object.entries(edits))('%s', (_name, { change, address }) => {
      test.each([
        ['RESERVED', [reserved(address, x)]],
        ['ACTIVE', [active(address, x)]],
        ['QUARANTINED', [active(address, x), quarantined(address, 'SUPERSEDED')]],
        ['QUARANTINED', [quarantined(address, 'FOREIGN')]],
      ] as const)('held: %s', (state, facts) => {
        const books = given(pool('a', '10.0.0.0/28'), ...facts)
        const refusal = books.refuse(updatePool('a', change), 'POOL_IN_USE')
        expect(refusal.metadata).toMatchObject({ pool: 'a', held: '1', cooling: '0' })
        expect(refusal.metadata.blockers).toBe(`${address} ${state} default/3`)
        expect(refusal.message).toContain('draining')
        expect(refusal.retryAfterMs).toBeUndefined()
        expect(books.since()).toEqual([])
      })

      test('cooling: and when it has cooled', () => {
        const books = given(pool('a', '10.0.0.0/28'), active(address, x), released(address), elapsed(SECOND))
        const refusal = books.refuse(updatePool('a', change), 'POOL_IN_USE')
        expect(refusal.metadata).toMatchObject({ held: '0', cooling: '1' })
        expect(refusal.metadata.blockers).toContain(`${address} COOLING until`)
        expect(refusal.retryAfterMs).toBe(2 * MINUTE - SECOND)
        books.wait(2 * MINUTE - SECOND)
        books.when(updatePool('a', change)).then('pool.updated a')
      })

      test('what stays is not', () => {
        given(pool('a', '10.0.0.0/27'), active('10.0.0.2', x), active('10.0.0.10', someone(1)))
          .when(updatePool('a', { cidr: '10.0.0.0/28' }))
          .then('pool.updated a')
      })

      test('what has cooled is forgotten, and counted no more', () => {
        const books = given(pool('a', '10.0.0.0/28'), active(address, x), released(address), elapsed(DAY))
        books.accept(updatePool('a', change))
        const { free, size, excluded, cooling } = partition(books.ledger, 'a')
        expect(free + cooling + excluded).toBe(size)
        // And neither its holder nor anybody else has it from there.
        books.when(reserve({ owner: x, claims: [claim({ pool: 'a', preferPrevious: true })] }))
        expect(books.ledger.pool('a').leases.map((lease) => lease.address)).not.toContain(address)
      })
    })

    test('held and cooling: waiting alone does not help', () => {
      const books = given(
        pool('a', '10.0.0.0/27'),
        active('10.0.0.20', x),
        active('10.0.0.9', web(1)),
        released('10.0.0.9'),
      )
      const refusal = books.refuse(updatePool('a', { cidr: '10.0.0.0/29' }), 'POOL_IN_USE')
      expect(refusal.metadata).toMatchObject({ held: '1', cooling: '1' })
      expect(refusal.retryAfterMs).toBeUndefined()
    })

    test('no more is looked at than a page, and one to know that there is more', () => {
      const held = Array.from({ length: 30 }, (_, n) => active(`10.0.0.${n + 100}`, someone(n)))
      const refusal = given(pool('a', '10.0.0.0/24'), ...held).refuse(
        updatePool('a', { cidr: '10.0.0.0/26' }),
        'POOL_IN_USE',
      )
      expect(refusal.metadata.held).toBe('20 and more')
      expect(refusal.metadata.blockers!.split('; ')).toHaveLength(20)
    })
  })

  describe('un-exclude', () => {
    test('gives the address back as untouched', () => {
      const books = accepted([pool('a', '10.0.0.0/30', { exclude: ['10.0.0.1'] }), active('10.0.0.2', x)], {
        exclude: [],
      })
      books.when(reserve({ owner: web(1), ...from('a') })).then('lease.reserved 10.0.0.1')
    })

    test('also one that was held, excluded once it had cooled, and comes back', () => {
      const books = given(
        pool('a', '10.0.0.0/30'),
        active('10.0.0.1', x),
        active('10.0.0.2', web(1)),
        released('10.0.0.1'),
        elapsed(DAY),
      )
      books.accept(updatePool('a', { exclude: ['10.0.0.1'] }))
      books.refuse(reserve({ owner: someone(1), ...from('a') }), 'POOL_EXHAUSTED')
      books.refuse(
        reserve({ owner: x, claims: [claim({ pool: 'a', address: '10.0.0.1' })] }),
        'ADDRESS_EXCLUDED',
      )
      books.accept(updatePool('a', { exclude: [] }))
      books.when(reserve({ owner: someone(1), ...from('a') })).then('lease.reserved 10.0.0.1')
    })
  })

  describe('drain', () => {
    test('hands out nothing new, keeps what is held, and ends', () => {
      const books = accepted([pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))], { draining: true })
      books.refuse(reserve({ owner: x, ...from('a') }), 'POOL_DRAINING')
      books.when(reserve({ owner: web(1), ...from('a') })).then()
      books.accept(updatePool('a', { draining: false }))
      books.when(reserve({ owner: x, ...from('a') })).then('lease.reserved 10.0.0.1')
    })
  })

  test('of a fragmented pool forgets no piece of its free space', () => {
    const odd = Array.from({ length: 15 }, (_, n) => active(`10.0.0.${2 * n + 1}`, someone(n)))
    const books = given(pool('a', '10.0.0.0/27'), ...odd)
    books.accept(updatePool('a', { exclude: ['10.0.0.30'] }))
    books.accept(updatePool('a', { exclude: [], cidr: '10.0.0.0/26' }))
    const free = []
    for (let n = 100; n < 200; n += 1) {
      const { answer } = books.ledger.submit(reserve({ owner: someone(n), ...from('a') }))
      if (answer === null) break
      free.push(answer.leases[0]!.address)
    }
    expect(free).toHaveLength(62 - 15)
    expect(new Set(free).size).toBe(free.length)
  })
})

describe('DeletePool', () => {
  test('an empty pool goes, and its space is free for another', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    books.when(deletePool('a')).then('pool.deleted a')
    books.refuse(reserve({ owner: x, ...from('a') }), 'POOL_NOT_FOUND')
    books.refuse(deletePool('a'), 'POOL_NOT_FOUND')
    const { answer } = books.ledger.submit(createPool({ name: 'a', cidr: '10.0.0.0/28' }))
    // Its number is never used again.
    expect(answer!.poolId).toBe(4)
    books.when(reserve({ owner: x, ...from('a') })).then('lease.reserved 10.0.0.1')
  })

  test.each([
    ['held', [active('10.0.0.5', x)], 'POOL_IN_USE'],
    ['quarantined', [quarantined('10.0.0.5', 'OPERATOR')], 'POOL_IN_USE'],
    ['cooling', [active('10.0.0.5', x), released('10.0.0.5')], 'POOL_IN_USE'],
  ] as const)('not while something in it is %s', (_what, facts, reason) => {
    given(pool('a', '10.0.0.0/29'), ...facts).refuse(deletePool('a'), reason)
  })

  test('says when it is only cooling that is in the way', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      active('10.0.0.5', x),
      active('10.0.0.6', web(1)),
      released('10.0.0.5'),
      elapsed(SECOND),
      released('10.0.0.6'),
    )
    expect(books.refuse(deletePool('a'), 'POOL_IN_USE').retryAfterMs).toBe(2 * MINUTE)
    books.wait(2 * MINUTE)
    books.when(deletePool('a')).then('pool.deleted a')
  })

  test("a version, if given, must be the pool's", () => {
    const books = given(pool('a', '10.0.0.0/29'))
    books.refuse(deletePool('a', { version: 1 }), 'VERSION_MISMATCH')
    books.when(deletePool('a', { version: 2 })).then('pool.deleted a')
  })

  test('a Release of a lease that ended in it is still answered', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', x), released('10.0.0.5'), elapsed(DAY))
    books.accept(deletePool('a'))
    expect(books.when(release(3)).then()).toMatchObject({
      state: 'RELEASED',
      address: '10.0.0.5',
      pool: '',
      subnet: '',
    })
  })

  test('what was held before a pool of the same space is of the old pool', () => {
    const books = given(pool('a', '10.0.0.0/32'), active('10.0.0.0', x), released('10.0.0.0'), elapsed(DAY))
    books.accept(deletePool('a'))
    books.accept(createPool({ name: 'a', cidr: '10.0.0.0/32' }))
    books.when(reserve({ owner: web(1), ...from('a') })).then('lease.reserved 10.0.0.0')
    expect(books.ledger.pool('a').counts).toEqual({ reserved: 1, active: 0, quarantined: 0, released: 0 })
  })
})

test('the partition of a pool sums up to its size, through everything that happens to it', () => {
  const books = given(pool('a', '10.0.0.0/28', { gateway: '10.0.0.1', exclude: ['10.0.0.9'] }))
  const check = () => {
    const { size, ...parts } = partition(books.ledger, 'a')
    expect(Object.values(parts).reduce((sum, part) => sum + part, 0n)).toBe(size)
    return parts
  }
  const lease = books.take(reserve({ owner: web(1), ...from('a') }))
  expect(check()).toMatchObject({ free: 11n, reserved: 1n, excluded: 4n })
  books.take(reserve({ owner: web(2), ...from('a'), confirmed: true }))
  expect(check()).toMatchObject({ active: 1n, quarantined: 1n })
  books.accept(quarantine({ address: '10.0.0.14' }, { actor: ADMIN }))
  books.accept(release(lease.fencingToken))
  expect(check()).toMatchObject({ cooling: 1n, quarantined: 1n, active: 1n, free: 9n })
  books.wait(DAY)
  expect(check()).toMatchObject({ cooling: 0n, free: 10n })
  const { fencingToken, version } = books.leaseAt('10.0.0.14')!
  books.accept(reap(fencingToken, version))
  books.accept(updatePool('a', { cidr: '10.0.0.0/27' }))
  expect(check()).toMatchObject({ cooling: 1n, quarantined: 0n, excluded: 4n })
})
