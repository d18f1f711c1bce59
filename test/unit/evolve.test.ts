/** What a log must satisfy by itself: breaking it is a bug or a tampered log, and is met loudly, never as a refusal (INV-18). */
import { describe, expect, test } from 'vitest'
import {
  absenceReapsOf,
  addressValue,
  BrokenBooks,
  bookAt,
  emptyBooks,
  fenceOf,
  holdOf,
  leaseByToken,
  Missing,
  type Need,
} from '../../src/core/books.ts'
import type { Command } from '../../src/core/command.ts'
import { decide } from '../../src/core/decide.ts'
import { EVENT_TYPES, type LedgerEvent } from '../../src/core/event.ts'
import { evolve, evolveAddress, evolveNetwork, evolvePool } from '../../src/core/evolve.ts'
import { type Lease, leaseId, parseLeaseId } from '../../src/core/lease.ts'
import { attachmentKey, holderKey, type Owner, sameAttachment } from '../../src/core/owner.ts'
import {
  active,
  claim,
  closed,
  given,
  owner,
  pool,
  quarantined,
  released,
  reserve,
  web,
} from '../support/given.ts'

const FREE = { lease: null, released: null }
const header = {
  network: 'default',
  at: 1,
  actor: 'a',
  cause: 'c',
  requestId: null,
  traceId: null,
  evidence: null,
}
const lease = (token: number, version: number, fields: Partial<Lease> = {}): Lease => ({
  network: 'default',
  poolId: 2,
  address: '10.0.0.5',
  prefixLength: 32,
  fencingToken: token,
  version,
  state: 'RESERVED',
  quarantine: null,
  owner: web(1),
  placement: { node: '', boot: '', labels: {} },
  witness: '',
  reservedAt: 1,
  confirmedAt: null,
  confirmBy: null,
  ...fields,
})
const held = <
  T extends 'lease.reserved' | 'lease.confirmed' | 'lease.quarantined' | 'lease.adopted' | 'lease.updated',
>(
  type: T,
  seq: number,
  of: Lease,
) => ({ ...header, seq, type, lease: of })
const ended = (seq: number, of: Lease) => ({
  ...header,
  seq,
  type: 'lease.released' as const,
  ended: {
    lease: of,
    how: 'lease.released' as const,
    seq,
    endedAt: 1,
    availableAt: 2,
    removalConfirmed: true,
  },
})
const HELD = { lease: lease(3, 3), released: null }

describe('one address, one event', () => {
  test.each([
    ['a version that is not its number', FREE, held('lease.reserved', 3, lease(3, 4))],
    ['a new lease with an old token', FREE, held('lease.reserved', 4, lease(3, 4))],
    ['a new token for a lease that is there', HELD, held('lease.confirmed', 4, lease(4, 4))],
    ['reserved while held', HELD, held('lease.reserved', 4, lease(3, 4))],
    ['adopted while held', HELD, held('lease.adopted', 4, lease(3, 4))],
    ['confirmed without a lease', FREE, held('lease.confirmed', 4, lease(4, 4))],
    ['updated without a lease', FREE, held('lease.updated', 4, lease(4, 4))],
    ['quarantined, another lease', HELD, held('lease.quarantined', 4, lease(2, 4))],
    ['an end without a lease', FREE, ended(4, lease(3, 4))],
    ['the end of another lease', HELD, ended(4, lease(2, 4))],
  ])('%s is broken', (_what, before, event) => {
    expect(() => evolveAddress(before, event)).toThrow(BrokenBooks)
    expect(() => evolveAddress(before, event)).toThrow(`default/${event.seq} (${event.type})`)
  })

  test('held again, an address is released no more', () => {
    const free = evolveAddress(HELD, ended(4, lease(3, 4)))
    expect(free).toEqual({
      lease: null,
      released: {
        poolId: 2,
        address: '10.0.0.5',
        prefixLength: 32,
        availableAt: 2,
        releasedSeq: 4,
        holderKey: holderKey(web(1)),
        removalConfirmed: true,
      },
    })
    expect(evolveAddress(free, held('lease.adopted', 5, lease(5, 5)))).toEqual({
      lease: lease(5, 5),
      released: null,
    })
  })
})

describe('pools and networks', () => {
  const settings = given(pool('a', '10.0.0.0/29')).ledger.pool('a').pool

  test('a change of what was never made is broken', () => {
    const network = { description: '', labels: {} }
    const events: LedgerEvent[] = [
      { ...header, seq: 3, type: 'network.updated', settings: network, recoveryEnded: false },
      { ...header, seq: 3, type: 'era.begun', era: 1, recovering: true },
    ]
    for (const event of events) expect(() => evolveNetwork(null, event)).toThrow(BrokenBooks)
    expect(() =>
      evolvePool(null, { ...header, seq: 3, type: 'pool.updated', poolId: 2, pool: settings }),
    ).toThrow(BrokenBooks)
  })

  test('an era that lost nothing is not a recovery', () => {
    const { network } = given().ledger.fold()
    expect(
      evolveNetwork(network, { ...header, seq: 2 ** 40, type: 'era.begun', era: 1, recovering: false }),
    ).toMatchObject({
      state: 'READY',
      era: 1,
    })
  })

  test('what is not about them leaves them', () => {
    const fold = given(pool('a', '10.0.0.0/29')).ledger.fold()
    const event = held('lease.reserved', 3, lease(3, 3))
    expect(evolveNetwork(fold.network, event)).toBe(fold.network)
    expect(evolvePool(settings, event)).toBe(settings)
  })

  test('holds and fences are what the last statement says, whatever was read of them', () => {
    const held = {
      ...header,
      seq: 7,
      type: 'reconcile.held' as const,
      evidence: { source: 'agent', why: 'too many', reaps: 4, leases: 10, leaseId: 'default/3' },
    }
    const books = evolve(emptyBooks('default'), held)
    expect(holdOf(books, 'agent')).toEqual({
      source: 'agent',
      seq: 7,
      at: 1,
      why: 'too many',
      reaps: 4,
      leases: 10,
    })
    evolve(books, {
      ...header,
      seq: 8,
      type: 'reconcile.resumed',
      evidence: { source: 'agent', why: 'looked' },
    })
    expect(holdOf(books, 'agent')).toBeNull()
    // From here on the window begins anew.
    expect(absenceReapsOf(books, 'agent')).toBe(0)
    for (const seq of [9, 10]) {
      const fenced = {
        ...header,
        seq,
        type: 'node.fenced' as const,
        evidence: { node: 'n1', boot: 'b1', why: 'off' },
      }
      expect(fenceOf(evolve(books, fenced), 'n1', 'b1')).toEqual({
        node: 'n1',
        boot: 'b1',
        seq,
        head: seq,
        at: 1,
        by: 'a',
        why: 'off',
      })
    }
    expect(() => holdOf(books, '')).toThrow(Missing)
    expect(() => fenceOf(books, 'n1', 'b2')).toThrow(Missing)
  })
})

test('each type of event is listed once', () => {
  expect(new Set(EVENT_TYPES).size).toBe(EVENT_TYPES.length)
  expect(EVENT_TYPES).toHaveLength(17)
})

describe('books that contradict themselves', () => {
  const loaded = () => {
    const books = emptyBooks('default')
    const { ledger } = given(pool('a', '10.0.0.0/29'))
    const { pool: made } = ledger.pool('a')
    books.network = ledger.fold().network
    books.head = 2
    books.pools.set(2, {
      pool: made,
      counts: { reserved: 0, active: 0, quarantined: 0, released: 0 },
      untouched: [{ first: addressValue('10.0.0.1'), last: addressValue('10.0.0.3') }],
      untouchedUpTo: null,
      cooled: new Map(),
      cooledComplete: true,
      sighted: new Set(),
      sightedUpTo: null,
    })
    return books
  }

  test('an address that is neither held, released nor untouched is taken by nobody', () => {
    const books = loaded()
    books.addresses.set('10.0.0.5', FREE)
    expect(() => evolve(books, held('lease.reserved', 3, lease(3, 3)))).toThrow(BrokenBooks)
  })

  test('an address that was not read is asked for, never assumed free', () => {
    expect(() => evolve(loaded(), held('lease.reserved', 3, lease(3, 3)))).toThrow(Missing)
    expect(() => bookAt(loaded(), '10.0.0.5')).toThrow(Missing)
  })

  test('a token that is not at its address', () => {
    const books = loaded()
    books.byToken.set(3, { address: '10.0.0.5' })
    for (const book of [FREE, { lease: lease(4, 4), released: null }]) {
      books.addresses.set('10.0.0.5', book)
      expect(() => leaseByToken(books, 3)).toThrow(BrokenBooks)
    }
    expect(() =>
      decide(books, {
        ...reserve({ owner: web(1) }),
        type: 'confirm',
        lease: { token: 3, owner: null },
      } as Command),
    ).toThrow(BrokenBooks)
  })

  test('text that is no address', () => {
    expect(() => addressValue('10.0.0.300')).toThrow(BrokenBooks)
  })
})

test('a decision asks for what it has not read, and only for that', () => {
  const books = emptyBooks('default')
  books.network = given().ledger.fold().network
  const asked = (command: Command): Need | string => {
    const decision = decide(books, command)
    return decision.kind === 'missing' ? decision.need : decision.kind
  }
  expect(asked(reserve({ owner: web(1), claims: [claim({ pool: 'a' })], requestId: 'r' }))).toEqual({
    what: 'request',
    id: 'r',
  })
  expect(asked(reserve({ owner: web(1), claims: [claim({ pool: 'a' })] }))).toEqual({
    what: 'pool',
    name: 'a',
  })
  books.poolNames.set('a', null)
  expect(asked(reserve({ owner: web(1), claims: [claim({ pool: 'a' })] }))).toBe('refused')
  // A replayed answer is held against the lease as it stands now, wherever that has to be read from.
  const view = { fencingToken: 5, leaseId: 'default/5' }
  books.requests.set('r', {
    fingerprint: 'f',
    method: 'm',
    at: 1,
    seq: 5,
    answer: JSON.stringify({ leases: [view] }),
  })
  const again = reserve({ owner: web(1), requestId: 'r', fingerprint: 'f' })
  expect(asked(again)).toEqual({ what: 'token', token: 5 })
  books.byToken.set(5, { address: '10.0.0.5' })
  expect(asked(again)).toEqual({ what: 'address', address: '10.0.0.5' })
  books.addresses.set('10.0.0.5', { lease: lease(5, 5), released: null })
  expect(asked(again)).toBe('accepted')
  books.byToken.set(5, null)
  expect(asked(again)).toBe('refused')
})

describe('keys', () => {
  const owners: Owner[] = []
  for (const kind of ['pod', 'vm'])
    for (const name of ['a', 'a|b', '%7C', ''])
      for (const uid of ['a', 'b|a', 'a%'])
        for (const incarnation of ['', '1', '1|b', '%7C', '|'])
          for (const face of ['eth0', 'eth1'])
            owners.push(owner({ kind, name, uid, incarnation, interface: face }))

  test('are equal exactly where the owners are', () => {
    const byAttachment = new Map<string, Owner>()
    const byHolder = new Map<string, Owner>()
    for (const one of owners) {
      const attachment = byAttachment.get(attachmentKey(one))
      if (attachment !== undefined) expect(sameAttachment(attachment, one)).toBe(true)
      byAttachment.set(attachmentKey(one), one)
      const holder = byHolder.get(holderKey(one))
      if (holder !== undefined) {
        const { kind, name, interface: face } = holder
        expect({ kind, name, face }).toEqual({ kind: one.kind, name: one.name, face: one.interface })
      }
      byHolder.set(holderKey(one), one)
    }
    expect(byAttachment.size).toBe(2 * 3 * 5 * 2)
    expect(byHolder.size).toBe(2 * 4 * 2)
  })

  test('a lease id is its network and its token, and nothing else is one', () => {
    expect(parseLeaseId(leaseId('default', 42))).toEqual({ network: 'default', fencingToken: 42 })
    expect(parseLeaseId('default/1099511627777')?.fencingToken).toBe(2 ** 40 + 1)
    for (const text of [
      '',
      'default',
      'default/',
      'default/0',
      'default/-1',
      'default/1x',
      'a/b/1',
      '/1',
      'default/01',
      'default/9007199254740993',
      `${'n'.repeat(64)}/1`,
    ])
      expect(parseLeaseId(text), text).toBeUndefined()
  })
})

test('facts of sightings, which no command leaves yet, are folded like the others', () => {
  const books = given(
    pool('a', '10.0.0.0/29'),
    active('10.0.0.5', web(1)),
    released('10.0.0.5'),
    quarantined('10.0.0.5', 'RELEASED_BUT_LIVE'),
    closed(web(1)),
  )
  expect(books.ledger.pool('a').counts).toEqual({ reserved: 0, active: 0, quarantined: 1, released: 0 })
})
