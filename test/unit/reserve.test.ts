/** Reserve: what it answers, what it reuses, which pool and which address it takes (DESIGN §2, §6). */
import { describe, expect, test } from 'vitest'
import type { Reserve } from '../../src/core/command.ts'
import type { Owner } from '../../src/core/owner.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import {
  active,
  agentOf,
  claim,
  confirm,
  confirmOf,
  elapsed,
  type Given,
  given,
  givenIn,
  HOUR,
  MINUTE,
  on,
  owner,
  pool,
  quarantine,
  quarantined,
  recovering,
  release,
  releaseOf,
  reserve,
  reserved,
  SECOND,
  updatePool,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const named = (address: string, name = 'a') => ({ claims: [claim({ pool: name, address })] })
const someone = (n: number): Owner => owner({ name: `someone-${n}`, incarnation: '1' })

/** Everything a pool hands out until it is exhausted, in order. */
function drain(books: Given, name: string): readonly string[] {
  const got: string[] = []
  for (let n = 0; n < 1_000; n += 1) {
    const { answer, refusal } = books.ledger.submit(
      reserve({ owner: owner({ name: `drainer-${n}`, incarnation: '1' }), claims: [claim({ pool: name })] }),
    )
    if (refusal !== null) {
      expect(refusal.reason).toBe('POOL_EXHAUSTED')
      return got
    }
    got.push(answer!.leases[0]!.address)
  }
  throw new Error('a pool without an end')
}

describe('the answer', () => {
  test('is everything its caller needs to configure the address', () => {
    const books = given(
      pool('a', '10.0.0.0/28', {
        subnet: '10.0.0.0/24',
        gateway: '10.0.0.254',
        options: {
          routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.254' }],
          dns: ['10.0.0.53'],
          mtu: 1400,
        },
      }),
    )
    const lease = books.take(
      reserve({
        owner: web(1),
        ...inA,
        placement: { node: 'n1', boot: 'b1', labels: { team: 'red' } },
        witness: 'w',
      }),
    )
    expect(lease).toEqual({
      leaseId: 'default/3',
      network: 'default',
      poolId: 2,
      pool: 'a',
      address: '10.0.0.1',
      prefixLength: 32,
      subnet: '10.0.0.0/24',
      gateway: '10.0.0.254',
      options: {
        routes: [{ destination: '0.0.0.0/0', gateway: '10.0.0.254' }],
        dns: ['10.0.0.53'],
        mtu: 1400,
      },
      state: 'RESERVED',
      quarantine: null,
      version: 3,
      fencingToken: 3,
      owner: web(1),
      placement: { node: 'n1', boot: 'b1', labels: { team: 'red' } },
      witness: 'w',
      reservedAt: books.ledger.now(),
      confirmedAt: null,
      confirmBy: null,
      endedAt: null,
      availableAt: null,
      reused: false,
    })
  })

  test('is ACTIVE at once with confirmed, whatever deadline the pool sets', () => {
    const books = given(pool('a', '10.0.0.0/29', { confirmWithinMs: MINUTE }))
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmed: true, confirmWithinMs: MINUTE }))
    expect(lease).toMatchObject({ state: 'ACTIVE', confirmedAt: books.ledger.now(), confirmBy: null })
  })

  test('comes in the order of the claims', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('b', 'fd00::/125'))
    const leases = books.accept(
      reserve({ owner: web(1), claims: [claim({ pool: 'b' }), claim({ pool: 'a' })] }),
    )
    expect(leases.map((lease) => lease.address)).toEqual(['fd00::1', '10.0.0.1'])
  })
})

describe('an attachment that holds a lease', () => {
  const books = () =>
    given(
      pool('a', '10.0.0.0/29'),
      pool('b', '10.0.1.0/29'),
      active('10.0.0.3', web(1), { placement: on('n1') }),
    )

  test('gets it again, without an event', () => {
    const lease = books()
      .when(reserve({ owner: web(1), ...inA }))
      .then()
    expect(lease).toMatchObject({ address: '10.0.0.3', reused: true, state: 'ACTIVE' })
  })

  const booted = (boot: string, state: 'ACTIVE' | 'RESERVED' = 'ACTIVE') => {
    const placement = { node: 'n1', boot, labels: { a: 'b' } }
    const held = state === 'ACTIVE' ? active : reserved
    return given(pool('a', '10.0.0.0/29'), held('10.0.0.3', web(1), { placement }))
  }
  const from = (node: string, boot: string, fields: Partial<Reserve> = {}) =>
    reserve({ owner: web(1), ...inA, placement: { node, boot, labels: {} }, ...fields })

  test.each([
    ['from another node', 'n2', 'b1', ['n2']],
    ['from another node that names no boot', 'n2', '', ['n2']],
    ['from another boot of its node', 'n1', 'b2', undefined],
    ['from another boot of no node', '', 'b2', undefined],
  ])('%s, and it is written down that it may run there, once', (_where, node, boot, askedFrom) => {
    const books = booted('b1')
    const before = books.leaseAt('10.0.0.3')!
    const lease = books.when(from(node, boot)).then('lease.updated 10.0.0.3')
    expect(lease).toMatchObject({ reused: true, version: before.version + 1 })
    expect(books.ledger.events.at(-1)!.evidence).toEqual({ askedFrom: { node, boot } })
    expect(books.leaseAt('10.0.0.3')).toEqual({
      ...before,
      version: before.version + 1,
      placement: { node: 'n1', boot: '', labels: { a: 'b' } },
      ...(askedFrom && { askedFrom }),
    })
    books.when(from(node, boot)).then()
  })

  test('from one node after the other: each is written down, and the first one again', () => {
    const books = booted('')
    const asked = () => books.leaseAt('10.0.0.3')!.askedFrom
    books.when(from('n1', '')).then()
    expect(asked()).toBeUndefined()
    for (const node of ['n2', 'n1', 'n3', 'n4']) {
      books.when(from(node, '')).then('lease.updated 10.0.0.3')
      books.when(from(node, '')).then()
    }
    books.when(from('n5', '')).then()
    expect(asked()).toEqual(['n2', 'n1', 'n3', 'n4'])
    books.when(from('', '')).then()
  })

  test.each([
    ['from the boot it was placed on', 'b1', 'n1', 'b1'],
    ['from its node, which names no boot', 'b1', 'n1', ''],
    ['from nowhere', 'b1', '', ''],
    ['that was placed on no boot', '', 'n1', 'b2'],
  ])('%s without an event', (_where, placed, node, boot) => {
    booted(placed).when(from(node, boot)).then()
  })

  test('from elsewhere, told by a token that may not touch it, or confirmed there, all the same', () => {
    const told = booted('b1')
    told.when(from('n2', 'b1', { actor: agentOf('n2') })).then('lease.updated 10.0.0.3')
    expect(told.leaseAt('10.0.0.3')!.placement.boot).toBe('')
    const confirmed = booted('b1', 'RESERVED')
    confirmed
      .when(from('n2', 'b2', { confirmed: true }))
      .then('lease.updated 10.0.0.3', 'lease.confirmed 10.0.0.3')
    expect(confirmed.leaseAt('10.0.0.3')).toMatchObject({
      state: 'ACTIVE',
      placement: { node: 'n1', boot: '' },
    })
    booted('b1')
      .when(from('n2', 'b2', { validateOnly: true }))
      .then()
  })

  test('gets it from any of its pools, whatever their order', () => {
    const claims = [claim({ pools: ['b', 'a'] })]
    expect(
      books()
        .when(reserve({ owner: web(1), claims }))
        .then().address,
    ).toBe('10.0.0.3')
  })

  test('gets it by its name', () => {
    expect(
      books()
        .when(reserve({ owner: web(1), ...named('10.0.0.3') }))
        .then().reused,
    ).toBe(true)
  })

  test('is refused another address', () => {
    const refusal = books().refuse(reserve({ owner: web(1), ...named('10.0.0.4') }), 'ILLEGAL_STATE')
    expect(refusal.message).toContain('claims[0].address')
    expect(refusal.metadata).toMatchObject({ address: '10.0.0.3', state: 'ACTIVE' })
  })

  test("is refused another address also in another of the claim's pools", () => {
    const claims = [claim({ pools: ['a', 'b'], address: '10.0.1.4' })]
    books().refuse(reserve({ owner: web(1), claims }), 'ILLEGAL_STATE')
  })

  test('gets it although its caller sees it live: the workload itself may be what is seen', () => {
    books()
      .when(reserve({ owner: web(1), ...inA, liveAddresses: ['10.0.0.3'] }))
      .then()
  })

  test.each([
    ['whose uid is its name', { name: 'tenant-b/db', uid: 'u-1' }, { name: 'u-1' }],
    ['whose name is its uid', { name: 'u-1' }, { name: 'tenant-b/db', uid: 'u-1' }],
  ])('is not told the lease of another %s', (_which, first, second) => {
    const books = given(pool('a', '10.0.0.0/29'))
    const life = { incarnation: '1' }
    const held = books.take(reserve({ owner: owner({ ...first, ...life }), ...inA, confirmed: true }))
    expect(held.address).toBe('10.0.0.1')
    const other = owner({ ...second, ...life })
    for (const command of [reserve({ owner: other, ...inA }), confirmOf(other), releaseOf(other)]) {
      const { message, metadata } = books.refuse(command, 'ILLEGAL_STATE')
      expect(metadata).toMatchObject({ address: '10.0.0.1' })
      expect(message).toContain('the uid of tenant-b/db is the name of u-1')
    }
    // By its uid alone it is the same.
    const itself = owner({ ...first, ...life })
    const byUid = { ...itself, name: itself.uidNamed ? itself.uid : itself.name }
    expect(books.take(reserve({ owner: byUid, ...inA })).fencingToken).toBe(held.fencingToken)
  })

  test('keeps node, labels and witness as they were', () => {
    const placement = { node: 'n2', boot: 'b2', labels: { a: 'b' } }
    const here = books()
    const again = reserve({ owner: web(1), ...inA, placement, witness: 'w2' })
    const lease = here.when(again).then('lease.updated 10.0.0.3')
    expect(lease).toMatchObject({ placement: on('n1'), witness: '' })
  })

  test('gets it although the pool is draining or STRICT', () => {
    const here = books()
    here.accept(updatePool('a', { draining: true, liveness: 'STRICT' }))
    here.when(reserve({ owner: web(1), ...inA })).then()
  })

  test('gets a fresh one beside it for a claim on another pool', () => {
    const claims = [claim({ pool: 'a' }), claim({ pool: 'b' })]
    books()
      .when(reserve({ owner: web(1), claims }))
      .then('lease.reserved 10.0.1.1')
  })

  test('another interface of the same workload is another attachment', () => {
    books()
      .when(reserve({ owner: { ...web(1), interface: 'eth1' }, ...inA }))
      .then('lease.reserved 10.0.0.1')
  })

  test('without an incarnation it gets its lease again as well', () => {
    const here = given(pool('a', '10.0.0.0/29'), active('10.0.0.3', web()))
    here.when(reserve({ owner: web(), ...inA })).then()
  })

  test('does not get it while it is quarantined', () => {
    const here = books()
    here.accept(quarantine({ address: '10.0.0.3' }))
    here.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
    // From now on the fresh one is the one it holds.
    here.when(reserve({ owner: web(1), ...inA })).then()
  })
})

describe('the deadline', () => {
  const settled = (fields: Partial<PoolInput> = {}) => given(pool('a', '10.0.0.0/29', fields))
  const asking = (confirmWithinMs: number | null) => reserve({ owner: web(1), ...inA, confirmWithinMs })

  test('none without confirmWithin', () => {
    expect(settled().take(asking(null)).confirmBy).toBeNull()
  })

  test('of the call', () => {
    const books = settled()
    expect(books.take(asking(MINUTE)).confirmBy).toBe(books.ledger.now() + MINUTE)
  })

  test('of the pool, unless the call has its own', () => {
    const books = settled({ confirmWithinMs: HOUR })
    expect(books.take(asking(null)).confirmBy).toBe(books.ledger.now() + HOUR)
    const other = settled({ confirmWithinMs: HOUR })
    expect(other.take(asking(SECOND)).confirmBy).toBe(other.ledger.now() + SECOND)
  })

  test('moves out with a later Reserve', () => {
    const books = settled()
    books.take(asking(MINUTE))
    books.wait(30 * SECOND)
    const lease = books.when(asking(MINUTE)).then('lease.updated 10.0.0.1')
    expect(lease).toMatchObject({ confirmBy: books.ledger.now() + MINUTE, reused: true, state: 'RESERVED' })
  })

  test('never moves in', () => {
    const books = settled()
    const { confirmBy } = books.take(asking(HOUR))
    expect(books.when(asking(MINUTE)).then().confirmBy).toBe(confirmBy)
  })

  test('goes with a Reserve that promises nothing', () => {
    const books = settled()
    books.take(asking(HOUR))
    expect(books.when(asking(null)).then('lease.updated 10.0.0.1').confirmBy).toBeNull()
  })

  test('is never added to a lease that has none', () => {
    const books = settled()
    books.take(asking(null))
    expect(books.when(asking(MINUTE)).then().confirmBy).toBeNull()
  })

  test('goes when a Reserve comes confirmed', () => {
    const books = settled()
    books.take(asking(HOUR))
    const lease = books
      .when(reserve({ owner: web(1), ...inA, confirmed: true }))
      .then('lease.confirmed 10.0.0.1')
    expect(lease).toMatchObject({ state: 'ACTIVE', confirmBy: null, confirmedAt: books.ledger.now() })
  })

  test('is not moved by a token of another node that does not say where, nor is the lease confirmed by it', () => {
    const books = settled()
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: HOUR, placement: on('n1') }))
    for (const asked of [asking(null), asking(2 * HOUR), { ...asking(null), confirmed: true }]) {
      const again = books.when({ ...asked, actor: agentOf('n2') }).then()
      expect(again).toEqual({ ...lease, reused: true })
    }
    books.when({ ...asking(null), actor: agentOf('n1') }).then('lease.updated 10.0.0.1')
  })

  test('is moved for the node that asks, which counts on it, and may confirm', () => {
    const books = settled()
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: HOUR, placement: on('n1') }))
    const there = { actor: agentOf('n2'), placement: on('n2') }
    const moved = books
      .when({ ...asking(2 * HOUR), ...there })
      .then('lease.updated 10.0.0.1', 'lease.updated 10.0.0.1')
    expect(moved.confirmBy).toBe(lease.confirmBy! + HOUR)
    books.when({ ...asking(null), ...there, confirmed: true }).then('lease.confirmed 10.0.0.1')
  })

  test('of an ACTIVE lease there is none', () => {
    const books = settled()
    const { fencingToken } = books.take(asking(HOUR))
    books.accept(confirm(fencingToken))
    expect(books.when(asking(MINUTE)).then().confirmBy).toBeNull()
  })
})

describe('claims', () => {
  const two = () => given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'), pool('c', 'fd00::/125'))

  test.each([
    ['by name', [claim({ pool: 'a' }), claim({ pools: ['b', 'a'] })], 'claims[1].pools'],
    ['by address', [claim({ pool: 'a' }), claim({ address: '10.0.0.5' })], 'claims[1].pools'],
    ['by the same name twice over', [claim({ pools: ['b', 'a'] }), claim({ pool: 'b' })], 'claims[1].pools'],
  ])('two of them may not share a pool: %s', (_how, claims, field) => {
    const refusal = two().refuse(reserve({ owner: web(1), claims }), 'INVALID_FIELD')
    expect(refusal.metadata.field).toBe(field)
  })

  test('one of them may name a pool twice', () => {
    two()
      .when(reserve({ owner: web(1), claims: [claim({ pools: ['a', 'a'] })] }))
      .then('lease.reserved 10.0.0.1')
  })

  test('an unknown pool is named with its path', () => {
    const refusal = two().refuse(
      reserve({ owner: web(1), claims: [claim({ pool: 'a' }), claim({ pools: ['b', 'x'] })] }),
      'POOL_NOT_FOUND',
    )
    expect(refusal.metadata).toMatchObject({ field: 'claims[1].pools[1]', pool: 'x' })
  })

  test('are all or nothing: v6 exhausted, v4 not held', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('c', 'fd00::/127'))
    drain(books, 'c')
    const both = [claim({ pool: 'a' }), claim({ pool: 'c' })]
    for (let n = 0; n < 50; n += 1)
      books.refuse(
        reserve({ owner: owner({ name: `both-${n}`, incarnation: '1' }), claims: both }),
        'POOL_EXHAUSTED',
      )
    expect(books.ledger.pool('a').leases).toEqual([])
    // The v4 address somebody holds already is not undone by a call that failed to add v6 (cni-plugin#1010).
    books.take(reserve({ owner: web(1), ...inA }))
    books.when(reserve({ owner: web(1), claims: both })).refused('POOL_EXHAUSTED')
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'RESERVED' })
  })

  test('take addresses each from its own pool', () => {
    const claims = [claim({ pool: 'a' }), claim({ pool: 'b' }), claim({ pool: 'c' })]
    two()
      .when(reserve({ owner: web(1), claims }))
      .then('lease.reserved 10.0.0.1', 'lease.reserved 10.0.1.1', 'lease.reserved fd00::1')
  })
})

describe('default pools', () => {
  const any = { claims: [] }

  test('the only pool of its family is one', () => {
    given(pool('a', '10.0.0.0/29'), pool('c', 'fd00::/125'))
      .when(reserve({ owner: web(1), ...any }))
      .then('lease.reserved 10.0.0.1', 'lease.reserved fd00::1')
  })

  test('one of several has to be said', () => {
    given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29', { isDefault: true }))
      .when(reserve({ owner: web(1), ...any }))
      .then('lease.reserved 10.0.1.1')
  })

  test('several in one family make claims required', () => {
    const books = given(
      pool('a', '10.0.0.0/29', { isDefault: true }),
      pool('b', '10.0.1.0/29', { isDefault: true }),
    )
    const refusal = books.refuse(reserve({ owner: web(1), ...any }), 'INVALID_FIELD')
    expect(refusal.metadata.field).toBe('claims')
    expect(refusal.message).toMatch(/IPv4.*a, b/)
    books.refuse(reserve({ owner: web(1), claims: [claim()] }), 'INVALID_FIELD')
  })

  test('several and none of them the default: there is none', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'))
    const refusal = books.refuse(reserve({ owner: web(1), ...any }), 'INVALID_FIELD')
    expect(refusal).toMatchObject({ metadata: { field: 'claims' } })
    expect(refusal.message).toContain('no default pool')
    expect(books.refuse(reserve({ owner: web(1), claims: [claim()] }), 'INVALID_FIELD').message).toContain(
      'no default pool',
    )
  })

  test('a claim without pools takes the only one', () => {
    given(pool('a', '10.0.0.0/29'))
      .when(reserve({ owner: web(1), claims: [claim()] }))
      .then('lease.reserved 10.0.0.1')
  })

  test('a claim without pools, and one of each family: which one is not said', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('c', 'fd00::/125'))
    expect(books.refuse(reserve({ owner: web(1), claims: [claim()] }), 'INVALID_FIELD').message).toContain(
      'a, c',
    )
  })

  test('a named address says its pool', () => {
    given(pool('a', '10.0.0.0/29'), pool('b', '10.0.1.0/29'))
      .when(reserve({ owner: web(1), claims: [claim({ address: '10.0.1.5' })] }))
      .then('lease.reserved 10.0.1.5')
  })

  test.each([
    ['10.9.0.1', 'is in no pool'],
    ['10.0.0.300', 'octet'],
  ])('a named address that is nowhere: %s', (address, why) => {
    const books = given(pool('a', '10.0.0.0/29'))
    const refusal = books.refuse(reserve({ owner: web(1), claims: [claim({ address })] }), 'INVALID_FIELD')
    expect(refusal.metadata.field).toBe('claims[0].address')
    expect(refusal.message).toContain(why)
  })
})

describe('a named address', () => {
  const books = () =>
    given(
      pool('a', '10.0.0.0/28', { gateway: '10.0.0.2', exclude: ['10.0.0.5-10.0.0.6'] }),
      pool('b', '10.0.1.0/28'),
      pool('blocks', '10.1.0.0/24', { prefixLength: 28 }),
    )

  test('anywhere in the pool is had at once, and the rest stays in order', () => {
    const here = books()
    here.when(reserve({ owner: someone(1), ...named('10.0.0.9') })).then('lease.reserved 10.0.0.9')
    here.when(reserve({ owner: someone(2), ...named('10.0.0.14') })).then('lease.reserved 10.0.0.14')
    here.when(reserve({ owner: someone(3), ...named('10.0.0.1') })).then('lease.reserved 10.0.0.1')
    expect(drain(here, 'a')).toEqual([3, 4, 7, 8, 10, 11, 12, 13].map((last) => `10.0.0.${last}`))
  })

  test.each([
    ['the network address', '10.0.0.0'],
    ['the broadcast address', '10.0.0.15'],
    ['the gateway', '10.0.0.2'],
    ['an exclusion', '10.0.0.6'],
  ])('%s is excluded', (_what, address) => {
    const refusal = books().refuse(reserve({ owner: web(1), ...named(address) }), 'ADDRESS_EXCLUDED')
    expect(refusal.metadata).toMatchObject({ address, pool: 'a' })
  })

  test('outside the pools of the claim is a mistake', () => {
    const refusal = books().refuse(reserve({ owner: web(1), ...named('10.0.1.4') }), 'INVALID_FIELD')
    expect(refusal.metadata.field).toBe('claims[0].address')
    books().refuse(reserve({ owner: web(1), ...named('fd00::4') }), 'INVALID_FIELD')
    // As a number, this is 10.0.0.4.
    books().refuse(reserve({ owner: web(1), ...named('::a00:4') }), 'INVALID_FIELD')
    expect(
      books().refuse(reserve({ owner: web(1), ...named('nonsense') }), 'INVALID_FIELD').message,
    ).toContain('"nonsense"')
  })

  test('in a later pool of the claim is found', () => {
    books()
      .when(reserve({ owner: web(1), claims: [claim({ pools: ['a', 'b'], address: '10.0.1.4' })] }))
      .then('lease.reserved 10.0.1.4')
  })

  test('must be the first of its block', () => {
    const refusal = books().refuse(
      reserve({ owner: web(1), ...named('10.1.0.17', 'blocks') }),
      'INVALID_FIELD',
    )
    expect(refusal.message).toContain('10.1.0.16')
    books()
      .when(reserve({ owner: web(1), ...named('10.1.0.16', 'blocks') }))
      .then('lease.reserved 10.1.0.16')
  })

  test("held by somebody is refused with the holder, never answered as if it were the caller's", () => {
    const here = books()
    const lease = here.take(reserve({ owner: someone(1), ...named('10.0.0.9') }))
    const refusal = here.refuse(reserve({ owner: someone(2), ...named('10.0.0.9') }), 'ADDRESS_TAKEN')
    expect(refusal.metadata).toMatchObject({
      address: '10.0.0.9',
      pool: 'a',
      leaseId: lease.leaseId,
      holder: expect.stringContaining('someone-1'),
    })
  })

  test('in quarantine is refused with who saw it', () => {
    const here = given(pool('a', '10.0.0.0/28'), quarantined('10.0.0.9', 'FOREIGN', 'docker-n1'))
    expect(
      here.refuse(reserve({ owner: web(1), ...named('10.0.0.9') }), 'ADDRESS_QUARANTINED').metadata,
    ).toMatchObject({
      address: '10.0.0.9',
      pool: 'a',
      quarantineReason: 'FOREIGN',
      seenBy: 'docker-n1',
    })
  })

  test('in a draining or STRICT pool is not had', () => {
    const draining = given(pool('a', '10.0.0.0/28', { draining: true }))
    draining.refuse(reserve({ owner: web(1), ...named('10.0.0.9') }), 'POOL_DRAINING')
    const strict = given(pool('a', '10.0.0.0/28', { liveness: 'STRICT' }))
    strict.refuse(reserve({ owner: web(1), ...named('10.0.0.9') }), 'LIVENESS_STALE')
  })

  test('that the database holds a row for, unknown to the books, is not had', () => {
    const here = books()
    here.ledger.setAside.add('10.0.0.1')
    expect(here.refuse(reserve({ owner: web(1), ...named('10.0.0.1') }), 'ADDRESS_TAKEN').metadata).toEqual({
      address: '10.0.0.1',
      pool: 'a',
    })
    here.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.3')
  })
})

describe('pools in order of preference', () => {
  const prefer = { claims: [claim({ pools: ['a', 'b'] })] }

  test('the first that has a free address', () => {
    const books = given(pool('a', '10.0.0.0/30'), pool('b', '10.0.1.0/30'))
    const got = [1, 2, 3, 4].map((n) => books.take(reserve({ owner: someone(n), ...prefer })).address)
    expect(got).toEqual(['10.0.0.1', '10.0.0.2', '10.0.1.1', '10.0.1.2'])
    expect(books.refuse(reserve({ owner: someone(5), ...prefer }), 'POOL_EXHAUSTED').metadata.pool).toBe('b')
  })

  test('a draining pool is passed over', () => {
    given(pool('a', '10.0.0.0/30', { draining: true }), pool('b', '10.0.1.0/30'))
      .when(reserve({ owner: web(1), ...prefer }))
      .then('lease.reserved 10.0.1.1')
  })

  test('only draining ones left', () => {
    const books = given(
      pool('a', '10.0.0.0/30', { draining: true }),
      pool('b', '10.0.1.0/30', { draining: true }),
    )
    expect(books.refuse(reserve({ owner: web(1), ...prefer }), 'POOL_DRAINING').metadata.pool).toBe('a')
  })

  test.each([
    ['first', { draining: true }, {}],
    ['last', {}, { draining: true }],
  ])('one draining (%s) and one exhausted: the exhausted one says when to come back', (_which, a, b) => {
    const books = given(
      pool('a', '10.0.0.0/32', { ...a }),
      pool('b', '10.0.1.0/32', { ...b }),
      active('draining' in a ? '10.0.1.0' : '10.0.0.0', someone(1)),
    )
    books.refuse(reserve({ owner: web(1), ...prefer }), 'POOL_EXHAUSTED')
  })

  test('the owner limit of the first is not evaded through the second', () => {
    const books = given(
      pool('a', '10.0.0.0/28', { ownerLimit: 1 }),
      pool('b', '10.0.1.0/28'),
      active('10.0.0.5', web(1)),
    )
    books.refuse(reserve({ owner: web(2), ...prefer }), 'OWNER_LIMIT')
  })

  test('a STRICT pool is not evaded either', () => {
    const books = given(pool('a', '10.0.0.0/28', { liveness: 'STRICT' }), pool('b', '10.0.1.0/28'))
    expect(books.refuse(reserve({ owner: web(1), ...prefer }), 'LIVENESS_STALE').metadata.pool).toBe('a')
  })
})

describe('what a pool hands out', () => {
  const v4 = (from: number, to: number, prefix = '10.0.0') =>
    Array.from({ length: to - from + 1 }, (_, n) => `${prefix}.${from + n}`)

  test.each<[string, Partial<PoolInput> & { cidr: string }, readonly string[]]>([
    ['/29: not the first and the last', { cidr: '10.0.0.0/29' }, v4(1, 6)],
    ['/30', { cidr: '10.0.0.0/30' }, v4(1, 2)],
    ['/31: both (RFC 3021)', { cidr: '10.0.0.0/31' }, v4(0, 1)],
    ['/32', { cidr: '10.0.0.7/32' }, ['10.0.0.7']],
    ['/125: not the first', { cidr: 'fd00::/125' }, [1, 2, 3, 4, 5, 6, 7].map((n) => `fd00::${n}`)],
    ['/126', { cidr: 'fd00::/126' }, ['fd00::1', 'fd00::2', 'fd00::3']],
    ['/127: both (RFC 6164)', { cidr: 'fd00::/127' }, ['fd00::', 'fd00::1']],
    ['/128', { cidr: 'fd00::7/128' }, ['fd00::7']],
    ['a middle of its subnet', { cidr: '10.0.0.8/30', subnet: '10.0.0.0/24' }, v4(8, 11)],
    ['the end of its subnet', { cidr: '10.0.0.252/30', subnet: '10.0.0.0/24' }, v4(252, 254)],
    ['not the gateway', { cidr: '10.0.0.0/29', gateway: '10.0.0.1' }, v4(2, 6)],
    ['not the gateway, in v6', { cidr: 'fd00::/126', gateway: 'fd00::2' }, ['fd00::1', 'fd00::3']],
    [
      'not its exclusions',
      { cidr: '10.0.0.0/28', exclude: ['10.0.0.3', '10.0.0.5-10.0.0.7', '10.0.0.12/30'] },
      ['10.0.0.1', '10.0.0.2', '10.0.0.4', '10.0.0.8', '10.0.0.9', '10.0.0.10', '10.0.0.11'],
    ],
    [
      'blocks: the first and the last as well',
      { cidr: '10.0.0.0/28', prefixLength: 30 },
      ['10.0.0.0', '10.0.0.4', '10.0.0.8', '10.0.0.12'],
    ],
    [
      'blocks: not those that an exclusion or the gateway touches',
      { cidr: '10.0.0.0/28', prefixLength: 30, exclude: ['10.0.0.5'], gateway: '10.0.0.15' },
      ['10.0.0.0', '10.0.0.8'],
    ],
    [
      'blocks of v6',
      { cidr: 'fd00::/62', prefixLength: 64 },
      ['fd00::', 'fd00:0:0:1::', 'fd00:0:0:2::', 'fd00:0:0:3::'],
    ],
    ['nothing', { cidr: '10.0.0.0/30', exclude: ['10.0.0.0/30'] }, []],
  ])('%s', (_name, { cidr, ...fields }, expected) => {
    expect(drain(given(pool('p', cidr, fields)), 'p')).toEqual(expected)
  })

  test.each([
    ['10.0.0.0/8', '10.255.255.254', '10.0.0.1'],
    ['fd00:1::/48', 'fd00:1:0:ffff:ffff:ffff:ffff:ffff', 'fd00:1::1'],
  ])('%s: any address and the last one, as in a small pool', (cidr, last, first) => {
    const books = givenIn({ windows: [1] }, pool('p', cidr))
    books.when(reserve({ owner: someone(1), ...named(last, 'p') })).then(`lease.reserved ${last}`)
    books.when(reserve({ owner: someone(2), claims: [claim({ pool: 'p' })] })).then(`lease.reserved ${first}`)
  })
})

describe('a pool without a free address', () => {
  test('says how many are cooling and when the next is free', () => {
    const books = given(pool('a', '10.0.0.0/30', { cooldownMs: MINUTE }))
    const first = books.take(reserve({ owner: someone(1), ...inA }))
    const second = books.take(reserve({ owner: someone(2), ...inA }))
    const full = books.refuse(reserve({ owner: web(1), ...inA }), 'POOL_EXHAUSTED')
    expect(full.metadata).toEqual({ pool: 'a', cooling: '0' })
    expect(full.message).toBe('pool a has no free address')
    expect(full.retryAfterMs).toBeUndefined()
    books.accept(release(first.fencingToken))
    books.wait(10 * SECOND)
    books.accept(release(second.fencingToken))
    books.wait(20 * SECOND)
    const cooling = books.refuse(reserve({ owner: web(1), ...inA }), 'POOL_EXHAUSTED')
    expect(cooling.retryAfterMs).toBe(30 * SECOND)
    expect(cooling.message).toBe('pool a has no free address; 2 are cooling')
    expect(cooling.metadata).toEqual({
      pool: 'a',
      cooling: '2',
      nextAvailableAt: new Date(books.ledger.now() + 30 * SECOND).toISOString(),
    })
    books.wait(30 * SECOND)
    books.when(reserve({ owner: web(1), ...inA })).then(`lease.reserved ${first.address}`)
  })
})

describe('the limit of one holder', () => {
  test('counts what it holds in the pool, quarantined as well, and lists it', () => {
    const books = given(
      pool('a', '10.0.0.0/28', { ownerLimit: 2 }),
      pool('b', '10.0.1.0/28', { ownerLimit: 2 }),
    )
    books.take(reserve({ owner: web(1), ...inA }))
    books.take(reserve({ owner: web(2), ...inA }))
    const refusal = books.refuse(reserve({ owner: web(3), ...inA }), 'OWNER_LIMIT')
    expect(refusal.metadata).toMatchObject({ pool: 'a', limit: '2', leases: 'default/4,default/7' })
    expect(refusal.message).toMatch(/Release with confirmed removal.*supersedes.*Reap/)
    // Each pool has its own.
    books.take(reserve({ owner: web(3), claims: [claim({ pool: 'b' })] }))
    // And each interface, and each kind.
    books.take(reserve({ owner: { ...web(3), interface: 'eth1' }, ...inA }))
    books.take(reserve({ owner: { ...web(3), kind: 'vm' }, ...inA }))
  })

  test('is 4 unless the pool says otherwise', () => {
    const books = given(pool('a', '10.0.0.0/28'))
    for (const life of [1, 2, 3, 4]) books.take(reserve({ owner: web(life), ...inA }))
    expect(books.refuse(reserve({ owner: web(5), ...inA }), 'OWNER_LIMIT').metadata.limit).toBe('4')
  })

  test('azure#4350: four crash loops of fifty lives each do not drain a pool of thirty', () => {
    const books = givenIn({ windows: [2] }, pool('a', '10.0.0.0/27'))
    const pod = (name: string, life: number) => owner({ name, incarnation: String(life) })
    for (let life = 1; life <= 50; life += 1) {
      for (const name of ['w1', 'w2', 'w3', 'w4']) {
        const { refusal } = books.ledger.submit(reserve({ owner: pod(name, life), ...inA }))
        if (refusal !== null) expect(refusal.reason).toBe('OWNER_LIMIT')
        const held = books.ledger.pool('a').leases.filter((lease) => lease.owner?.name === name)
        expect(held.length).toBeLessThanOrEqual(4)
        // The latest life that got an address still has it.
        expect(held.filter((lease) => lease.state === 'RESERVED')).toHaveLength(1)
      }
      books.wait(SECOND)
    }
    expect(books.ledger.pool('a').leases).toHaveLength(16)
    books.take(reserve({ owner: pod('w5', 1), ...inA }))
  })
})

describe('validateOnly', () => {
  const dry = { ...inA, validateOnly: true }

  test('answers as the Reserve would, and leaves no trace', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.1', web(1)))
    const lease = books.when(reserve({ owner: web(2), ...dry, requestId: 'r', fingerprint: 'f' })).then()
    expect(lease).toMatchObject({
      address: '10.0.0.2',
      leaseId: '',
      version: 0,
      fencingToken: 0,
      reused: false,
    })
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ state: 'ACTIVE' })
    // Not even the request is remembered: the real one may use its id.
    books
      .when(reserve({ owner: web(2), ...inA, requestId: 'r', fingerprint: 'g' }))
      .then(
        'lease.quarantined 10.0.0.1 SUPERSEDED',
        'attachment.closed web#1 everywhere',
        'lease.reserved 10.0.0.2',
      )
  })

  test('is refused as the Reserve would be, and leaves no quarantine', () => {
    const books = given(pool('a', '10.0.0.0/30'))
    books
      .when(reserve({ owner: web(1), ...dry, liveAddresses: ['10.0.0.1', '10.0.0.2'] }))
      .refused('POOL_EXHAUSTED')
    books
      .when(reserve({ owner: web(1), ...named('10.0.0.1'), validateOnly: true, liveAddresses: ['10.0.0.1'] }))
      .refused('ADDRESS_QUARANTINED')
  })

  test('of a lease it would reuse shows the lease as it is, not a version that is not there', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: MINUTE }))
    books.wait(SECOND)
    const seen = books.when(reserve({ owner: web(1), ...dry, confirmWithinMs: MINUTE })).then()
    expect(seen).toMatchObject({ leaseId: lease.leaseId, version: lease.version, reused: true })
  })
})

describe('a network that does not trust its books', () => {
  test('hands out nothing, and says for how long to wait', () => {
    const books = given(pool('a', '10.0.0.0/29'), reserved('10.0.0.3', web(1)), recovering())
    for (const command of [
      reserve({ owner: web(2), ...inA }),
      reserve({ owner: web(1), ...inA }),
      reserve({ owner: web(2), ...inA, validateOnly: true }),
    ]) {
      const refusal = books.refuse(command, 'NETWORK_RECOVERING')
      expect(refusal.metadata.state).toBe('RECOVERING')
      expect(refusal.retryAfterMs).toBeGreaterThan(0)
    }
  })
})

test('leases are numbered by the events that made them, in one row with all others', () => {
  const books = given(pool('a', '10.0.0.0/28'), elapsed(HOUR))
  const tokens = [1, 2, 3].map((n) => books.take(reserve({ owner: someone(n), ...inA })).fencingToken)
  expect(tokens).toEqual([3, 4, 5])
  expect(books.ledger.events.map((event) => event.seq)).toEqual([1, 2, 3, 4, 5])
})
