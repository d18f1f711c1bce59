/** Confirm, Release, Quarantine, Reap and labels: fenced, idempotent, and only of the lease they name (INV-10; azure#885). */
import { describe, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import type { Owner } from '../../src/core/owner.ts'
import {
  active,
  agentOf,
  allOrNothing,
  claim,
  confirm,
  confirmOf,
  DAY,
  elapsed,
  entry,
  given,
  lists,
  on,
  owner,
  pool,
  quarantine,
  quarantined,
  reap,
  reaped,
  recovering,
  release,
  released,
  releaseOf,
  removed,
  reserve,
  reserved,
  source,
  updateLabels,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const x = owner({ name: 'x', incarnation: '1' })

describe('Confirm', () => {
  test('makes a reservation ACTIVE, once, and takes its deadline away', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: DAY }))
    books.wait(1)
    const confirmed = books.when(confirm(lease.fencingToken)).then('lease.confirmed 10.0.0.1')
    expect(confirmed).toEqual({
      ...lease,
      state: 'ACTIVE',
      confirmBy: null,
      confirmedAt: books.ledger.now(),
      version: lease.version + 1,
    })
    expect(books.when(confirm(lease.fencingToken)).then()).toEqual(confirmed)
    expect(books.when(confirmOf(web(1))).then()).toEqual(confirmed)
  })

  test('by owner confirms every lease of the attachment', () => {
    const books = given(pool('a', '10.0.0.0/29'), pool('c', 'fd00::/125'))
    books.accept(reserve({ owner: web(1), claims: [claim({ pool: 'a' }), claim({ pool: 'c' })] }))
    const when = books.when(confirmOf(web(1)))
    when.then('lease.confirmed 10.0.0.1', 'lease.confirmed fd00::1')
    expect(when.result.answer!.leases.map((lease) => lease.state)).toEqual(['ACTIVE', 'ACTIVE'])
  })

  test('by an owner without an incarnation', () => {
    given(pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web()))
      .when(confirmOf(web()))
      .then('lease.confirmed 10.0.0.5')
  })

  test('after the deadline counts, if nobody has reaped it', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const lease = books.take(reserve({ owner: web(1), ...inA, confirmWithinMs: 1 }))
    books.wait(DAY).when(confirm(lease.fencingToken)).then('lease.confirmed 10.0.0.1')
  })

  test('an owner beside the id must match, to the last part', () => {
    const past = [pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web(1))]
    for (const wrong of [
      web(2),
      web(),
      { ...web(1), interface: 'eth1' },
      { ...web(1), kind: 'vm' },
      { ...web(1), uid: 'u' },
    ]) {
      const refusal = given(...past).refuse(
        confirm(3, { lease: { token: 3, owner: wrong } }),
        'ILLEGAL_STATE',
      )
      expect(refusal.metadata.leaseId).toBe('default/3')
      expect(refusal.message).toContain('held by pod web incarnation 1')
    }
    given(...past)
      .when(confirm(3, { lease: { token: 3, owner: { ...web(1), name: 'renamed' } } }))
      .then('lease.confirmed 10.0.0.5')
  })

  test('of what ended is LEASE_LOST and says when', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), released('10.0.0.5'))
    expect(books.refuse(confirm(3), 'LEASE_LOST').metadata).toEqual({
      leaseId: 'default/3',
      address: '10.0.0.5',
      state: 'RELEASED',
      endedAt: new Date(books.ledger.now()).toISOString(),
    })
    const other = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), reaped('10.0.0.5'))
    expect(other.refuse(confirm(3), 'LEASE_LOST').metadata.state).toBe('REAPED')
  })
})

describe('Release', () => {
  test('twice has the same answer, and no event', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)))
    const freed = books.when(release(3)).then('lease.released 10.0.0.5', 'attachment.closed web#1 in a')
    expect(freed).toMatchObject({
      state: 'RELEASED',
      endedAt: books.ledger.now(),
      availableAt: books.ledger.now() + 120_000,
      confirmBy: null,
      version: 4,
    })
    expect(books.wait(DAY).when(release(3)).then()).toEqual(freed)
    expect(books.when(release(3, { removalConfirmed: false })).then()).toEqual(freed)
  })

  test('by owner twice has the same answer, and no event', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      pool('c', 'fd00::/125'),
      active('10.0.0.5', web(1)),
      active('fd00::5', web(1)),
    )
    const first = books.accept(releaseOf(web(1)))
    expect(first.map((lease) => [lease.address, lease.state])).toEqual([
      ['10.0.0.5', 'RELEASED'],
      ['fd00::5', 'RELEASED'],
    ])
    for (const ms of [0, 1, DAY]) {
      const again = books.wait(ms).when(releaseOf(web(1)))
      again.then()
      expect(again.result.answer!.leases).toEqual(first)
    }
    const unconfirmed = books.when(releaseOf(web(1), { removalConfirmed: false }))
    unconfirmed.then()
    expect(unconfirmed.result.answer!.leases).toEqual(first)
  })

  test('by owner twice in one batch, and all or nothing, has the same answer', () => {
    const once = releaseOf(web(1))
    const batch = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)))
    const [first, again] = batch.ledger.submitBatch([once, once])
    expect(again!.answer).toEqual(first!.answer)
    expect(again!.events).toEqual([])
    const whole = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))).ledger.submit(
      allOrNothing([once, once]),
    )
    expect(whole.answer!.items![1]).toEqual(whole.answer!.items![0])
    expect(whole.events).toHaveLength(2)
  })

  test('by owner again tells what was held last, of this attachment alone', () => {
    const sameName = owner({ name: 'web', uid: 'u2', incarnation: '1' })
    const books = given(
      pool('a', '10.0.0.0/28'),
      active('10.0.0.4', web(1)),
      released('10.0.0.4'),
      active('10.0.0.5', web(1)),
      active('10.0.0.6', sameName),
      active('10.0.0.7', web(2)),
      released('10.0.0.5'),
      released('10.0.0.6'),
      released('10.0.0.7'),
      elapsed(DAY),
    )
    const told = (of: Owner) => books.accept(releaseOf(of)).map((lease) => lease.address)
    expect(told(web(1))).toEqual(['10.0.0.5'])
    expect(told(web(2))).toEqual(['10.0.0.7'])
    expect(told(sameName)).toEqual(['10.0.0.6'])
    expect(told({ ...web(1), interface: 'eth1' })).toEqual([])
    expect(told({ ...web(1), kind: 'vm' })).toEqual([])
    expect(told(web(3))).toEqual([])
  })

  test('by owner again answers what it ended, though some of its leases stayed', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      pool('b', '10.0.1.0/29'),
      pool('c', 'fd00::/125'),
      active('10.0.0.5', web(1)),
      active('10.0.1.5', web(1)),
      quarantined('10.0.1.5', 'OPERATOR'),
      active('fd00::5', web(1)),
    )
    books
      .when(releaseOf(web(1)))
      .then(
        'lease.released 10.0.0.5',
        'lease.released fd00::5',
        'lease.quarantined 10.0.1.5 OPERATOR (nobody)',
        'attachment.closed web#1 everywhere',
      )
    const again = books.accept(releaseOf(web(1)))
    expect(again.map((lease) => lease.address)).toEqual(['10.0.0.5', 'fd00::5'])
  })

  test('of a lease whose address has a new holder touches nothing, a hundred times', () => {
    const books = given(
      pool('a', '10.0.0.0/32'),
      active('10.0.0.0', web(1)),
      released('10.0.0.0'),
      elapsed(DAY),
    )
    const before = books.ledger.submit(release(3)).answer
    const taken = books.take(reserve({ owner: x, ...inA }))
    for (let n = 0; n < 50; n += 1) {
      expect(books.when(release(3)).then()).toEqual(before!.leases[0])
      books.when(release(3, { lease: { token: 3, owner: web(1) } })).then()
    }
    expect(books.leaseAt('10.0.0.0')).toMatchObject({ fencingToken: taken.fencingToken, state: 'RESERVED' })
  })

  test('by owner releases every lease of the attachment, and no other', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      pool('c', 'fd00::/125'),
      active('10.0.0.5', web(1)),
      active('fd00::5', web(1)),
      active('10.0.0.6', x),
      active('10.0.0.4', { ...web(1), interface: 'eth1' }),
    )
    const when = books.when(releaseOf(web(1)))
    when.then('lease.released 10.0.0.5', 'lease.released fd00::5', 'attachment.closed web#1 everywhere')
    expect(when.result.answer!.leases.map((lease) => [lease.address, lease.state])).toEqual([
      ['10.0.0.5', 'RELEASED'],
      ['fd00::5', 'RELEASED'],
    ])
  })

  test('by owner of what holds nothing answers with nothing', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    expect(books.ledger.submit(releaseOf(web(1))).answer).toEqual({ leases: [] })
  })

  test('an owner beside the id must match, also of a lease that has ended', () => {
    const lease = { token: 3, owner: x }
    given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))).refuse(release(3, { lease }), 'ILLEGAL_STATE')
    given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), released('10.0.0.5')).refuse(
      release(3, { lease }),
      'ILLEGAL_STATE',
    )
  })

  test('without its confirmation keeps the address, until the confirmation comes', () => {
    const books = given(pool('a', '10.0.0.0/32'), active('10.0.0.0', web(1)))
    books
      .when(release(3, { removalConfirmed: false }))
      .then('lease.quarantined 10.0.0.0 REMOVAL_UNCONFIRMED', 'attachment.closed web#1 in a')
    books.when(release(3, { removalConfirmed: false })).then()
    books.wait(30 * DAY).refuse(reserve({ owner: x, ...inA }), 'POOL_EXHAUSTED')
    books.when(release(3)).then('lease.released 10.0.0.0', 'attachment.closed web#1 in a')
  })

  test('of an address under suspicion takes the holder away and keeps the address', () => {
    const books = given(
      pool('a', '10.0.0.0/32'),
      active('10.0.0.0', web(1)),
      quarantined('10.0.0.0', 'CONFLICT'),
    )
    const left = books
      .when(release(3))
      .then('lease.quarantined 10.0.0.0 CONFLICT (nobody)', 'attachment.closed web#1 in a')
    expect(left).toMatchObject({ owner: null, state: 'QUARANTINED' })
    expect(books.ledger.events.at(-2)!.evidence).toEqual({ releasedBy: 'pod web incarnation 1 (eth0)' })
    expect(books.leaseAt('10.0.0.0')!.quarantine).toMatchObject({ reason: 'CONFLICT', by: 'somebody' })
    books.when(release(3)).then()
    expect(
      books.refuse(release(3, { lease: { token: 3, owner: web(1) } }), 'ILLEGAL_STATE').message,
    ).toContain('held by nobody')
  })

  test('one lease of the attachment that cannot be released keeps all of them', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      pool('c', 'fd00::/125'),
      active('10.0.0.5', web(1)),
      active('fd00::5', web(1)),
      quarantined('fd00::5', 'CONFLICT'),
    )
    books.when(releaseOf(web(1), { removalConfirmed: false })).refused('ILLEGAL_STATE')
    expect(books.leaseAt('10.0.0.5')).toMatchObject({ state: 'ACTIVE' })
  })
})

describe('Quarantine', () => {
  const past = [
    pool('a', '10.0.0.0/28', { exclude: ['10.0.0.7'] }),
    pool('b', '10.0.1.0/28', { prefixLength: 30 }),
  ]

  test('of an address says who and why', () => {
    const lease = given(...past)
      .when(quarantine({ address: '10.0.0.5' }, { why: 'smells' }))
      .then('lease.quarantined 10.0.0.5 OPERATOR (nobody)')
    expect(lease).toMatchObject({
      state: 'QUARANTINED',
      owner: null,
      quarantine: { reason: 'OPERATOR', by: 'test', why: 'smells' },
    })
  })

  test('of a held one keeps its owner and drops its deadline', () => {
    const books = given(...past, reserved('10.0.0.5', web(1), { confirmBy: 9 }))
    books.when(quarantine({ address: '10.0.0.5' })).then('lease.quarantined 10.0.0.5 OPERATOR')
    expect(books.leaseAt('10.0.0.5')).toMatchObject({ owner: web(1), confirmBy: null, fencingToken: 4 })
  })

  test('of an address in a block is of the block', () => {
    given(...past)
      .when(quarantine({ address: '10.0.1.6' }))
      .then('lease.quarantined 10.0.1.4 OPERATOR (nobody)')
  })

  test.each([
    ['10.0.0.7', 'ADDRESS_EXCLUDED'],
    ['10.0.0.0', 'ADDRESS_EXCLUDED'],
    ['10.9.9.9', 'INVALID_FIELD'],
    ['no address', 'INVALID_FIELD'],
  ] as const)('of %s is refused: %s', (address, reason) => {
    given(...past).refuse(quarantine({ address }), reason)
  })

  test('of a lease that ended says to name the address', () => {
    const books = given(...past, active('10.0.0.5', web(1)), released('10.0.0.5'))
    expect(books.refuse(quarantine({ token: 4 }), 'LEASE_LOST').message).toContain('10.0.0.5')
  })

  test('ends by an operator only', () => {
    const books = given(...past, active('10.0.0.5', web(1)))
    const { fencingToken, version } = books.take(quarantine({ token: 4 }))
    books.accept(release(fencingToken))
    expect(books.leaseAt('10.0.0.5')!.quarantine!.reason).toBe('OPERATOR')
    books.refuse(reap(fencingToken, version), 'VERSION_MISMATCH')
    books.when(reap(fencingToken, books.leaseAt('10.0.0.5')!.version)).then('lease.reaped 10.0.0.5')
  })
})

describe('Reap', () => {
  test('names the version it judged: a lease that changed since stays', () => {
    const books = given(pool('a', '10.0.0.0/29'))
    const lease = books.take(reserve({ owner: web(1), ...inA }))
    books.accept(confirm(lease.fencingToken))
    const refusal = books.refuse(reap(lease.fencingToken, lease.version), 'VERSION_MISMATCH')
    expect(refusal.metadata).toEqual({ leaseId: 'default/3', version: '4', expected: '3' })
    const ended = books.when(reap(lease.fencingToken, 4, { why: 'gone' })).then('lease.reaped 10.0.0.1')
    expect(ended).toMatchObject({ state: 'REAPED', availableAt: books.ledger.now() + 120_000 })
    expect(books.ledger.events.at(-1)!.evidence).toEqual({ reason: 'OPERATOR', why: 'gone', version: 4 })
    expect(books.refuse(reap(lease.fencingToken, 5), 'LEASE_LOST').metadata.state).toBe('REAPED')
  })

  test('of the one address does not touch the successor of that name (whereabouts#176)', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)))
    books.take(reserve({ owner: web(2), ...inA }))
    const { fencingToken, version } = books.leaseAt('10.0.0.5')!
    books.when(reap(fencingToken, version)).then('lease.reaped 10.0.0.5')
    expect(books.leaseAt('10.0.0.1')).toMatchObject({ owner: web(2), state: 'RESERVED' })
  })

  test('is off while the books may be older than the world', () => {
    const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), recovering())
    expect(books.refuse(reap(3, 3), 'NETWORK_RECOVERING').retryAfterMs).toBeGreaterThan(0)
    // What its holder says about its own lease is still heard.
    books.when(release(3)).then('lease.released 10.0.0.5', 'attachment.closed web#1 in a')
  })
})

describe('labels', () => {
  const past = [
    pool('a', '10.0.0.0/29'),
    active('10.0.0.5', web(1), { placement: on('n1', { a: '1', b: '2' }) }),
  ]

  test('are replaced, and nothing else', () => {
    const books = given(...past)
    const lease = books.when(updateLabels(3, { c: '3' })).then('lease.updated 10.0.0.5')
    expect(lease).toMatchObject({
      placement: on('n1', { c: '3' }),
      state: 'ACTIVE',
      version: 4,
      fencingToken: 3,
    })
  })

  test.each([
    ['the same', { a: '1', b: '2' }, 0],
    ['the same in another order', { b: '2', a: '1' }, 0],
    ['one fewer', { a: '1' }, 1],
    ['one more', { a: '1', b: '2', c: '3' }, 1],
    ['another value', { a: '1', b: '3' }, 1],
    ['another key', { a: '1', c: '2' }, 1],
  ])('%s', (_what, labels, events) => {
    expect(given(...past).ledger.submit(updateLabels(3, labels)).events).toHaveLength(events)
  })

  test("a version, if given, must be the lease's", () => {
    const books = given(...past)
    books.refuse(updateLabels(3, {}, { version: 2 }), 'VERSION_MISMATCH')
    books.when(updateLabels(3, {}, { version: 3 })).then('lease.updated 10.0.0.5')
  })
})

describe('a token bound to a node', () => {
  const here = agentOf('n1')
  const commands: Record<string, Command> = {
    confirm: confirm(3, { actor: here }),
    'confirm by owner': confirmOf(web(1), { actor: here }),
    release: release(3, { actor: here }),
    'release by owner': releaseOf(web(1), { actor: here }),
    quarantine: quarantine({ token: 3 }, { actor: here }),
    'quarantine by address': quarantine({ address: '10.0.0.5' }, { actor: here }),
    labels: updateLabels(3, { a: 'b' }, { actor: here }),
    reap: reap(3, 3, { actor: here }),
  }

  test.each(Object.entries(commands))('touches only what is placed there: %s', (_name, command) => {
    for (const node of ['n2', '']) {
      const books = given(pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web(1), { placement: on(node) }))
      expect(books.refuse(command, 'PERMISSION_DENIED').metadata.node).toBe('n1')
    }
    const books = given(pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web(1), { placement: on('n1') }))
    books.accept(command)
  })

  test('hears nothing of a lease elsewhere that has ended', () => {
    const books = given(
      pool('a', '10.0.0.0/29'),
      reserved('10.0.0.5', web(1), { placement: on('n2') }),
      released('10.0.0.5'),
    )
    books.refuse(release(3, { actor: here }), 'PERMISSION_DENIED')
    books.refuse(releaseOf(web(1), { actor: here }), 'PERMISSION_DENIED')
    books.when(releaseOf(web(1), { actor: agentOf('n2') })).then('attachment.closed web#1 everywhere')
  })
})

describe('a lease that was asked for from another node than it was placed on', () => {
  const placed = (boot: string) => ({ placement: { node: 'n1', boot, labels: {} } })
  const askFrom = (node: string) =>
    reserve({ owner: web(1), ...inA, placement: { node, boot: '', labels: {} } })
  /** Held on n1, and told to each of these. */
  const asked = (nodes: readonly string[], boot = 'b1') => {
    const books = given(pool('a', '10.0.0.0/29'), source('s'), reserved('10.0.0.5', web(1), placed(boot)))
    for (const node of nodes) books.accept(askFrom(node))
    return { books, token: books.leaseAt('10.0.0.5')!.fencingToken }
  }
  const by = (node: string) => ({ actor: agentOf(node) })

  test.each(['b1', ''])(
    'is ended by the node that asked, not by the one it left (placed on boot "%s")',
    (boot) => {
      const { books, token } = asked(['n2'], boot)
      const { head } = books.ledger.fold()
      for (const command of [
        release(token, by('n1')),
        release(token, { ...by('n1'), removalConfirmed: false }),
        releaseOf(web(1), by('n1')),
      ]) {
        const { metadata, message } = books.refuse(command, 'ILLEGAL_STATE')
        expect(metadata).toMatchObject({ address: '10.0.0.5', node: 'n1', askedFrom: 'n2' })
        expect(message).toContain("a token of n2 or an orchestrator's token ends it")
        // Nor is its attachment closed.
        expect(books.ledger.fold().head).toBe(head)
      }
      books.refuse(confirm(token, by('n3')), 'PERMISSION_DENIED')
      books.refuse(release(token, by('n3')), 'PERMISSION_DENIED')
      books.when(confirm(token, by('n2'))).then('lease.confirmed 10.0.0.5')
      expect(books.leaseAt('10.0.0.5')).toMatchObject({ placement: { node: 'n1' }, askedFrom: ['n2'] })
      books.when(release(token, by('n2'))).then('lease.released 10.0.0.5', 'attachment.closed web#1 in a')
      for (const node of ['n1', 'n2']) books.when(release(token, by(node))).then()
    },
  )

  test('is ended by no node where two have asked, or the first one again; by whoever is of no node', () => {
    for (const nodes of [
      ['n2', 'n3'],
      ['n2', 'n1'],
    ]) {
      const { books, token } = asked(nodes)
      for (const node of new Set(['n1', ...nodes])) {
        expect(books.refuse(release(token, by(node)), 'ILLEGAL_STATE').metadata.askedFrom).toBe(
          nodes.join(', '),
        )
        books.accept(confirm(token, by(node)))
      }
      books.accept(release(token))
      expect(books.leaseAt('10.0.0.5')).toBeNull()
    }
  })

  test('is not ended by the node that asked while it is seen on another', () => {
    const { books, token } = asked(['n2'])
    lists('s', entry('10.0.0.5', web(1), { node: 'n1' }))(books.ledger)
    expect(books.refuse(release(token, by('n2')), 'ILLEGAL_STATE').metadata.seenBy).toBe('s')
    lists('s', entry('10.0.0.5', web(1), { node: 'n2' }))(books.ledger)
    books.accept(release(token, by('n2')))
  })

  test('is not handed on by the node it left either', () => {
    const { books } = asked(['n2'])
    const next = { owner: web(2), ...inA, supersedes: removed({ incarnation: '1' }) }
    books.refuse(reserve({ ...next, ...by('n1'), placement: on('n1') }), 'ILLEGAL_STATE')
    books.accept(reserve({ ...next, ...by('n2'), placement: on('n2') }))
  })

  test('says nothing by its end of what is listed on a node', () => {
    for (const [nodes, address] of [
      [[], '10.0.0.1'],
      [['n2'], null],
    ] as const) {
      const books = given(pool('a', '10.0.0.1/32'), source('s'), reserved('10.0.0.1', web(1), placed('b1')))
      for (const node of nodes) books.accept(askFrom(node))
      lists('s', entry('10.0.0.1', web(1), { node: 'n1' }))(books.ledger)
      books.accept(release(books.leaseAt('10.0.0.1')!.fencingToken))
      books.wait(DAY)
      const newcomer = reserve({ owner: web(7), ...inA })
      if (address === null) books.refuse(newcomer, 'POOL_EXHAUSTED')
      else expect(books.take(newcomer).address).toBe(address)
    }
  })
})

test('a lease id that never was is unknown, not a silent success', () => {
  const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)))
  // A number of an event that made no lease.
  for (const command of [confirm(2), release(2), quarantine({ token: 2 }), reap(2, 2), updateLabels(2, {})]) {
    expect(books.refuse(command, 'LEASE_NOT_FOUND').metadata.leaseId).toBe('default/2')
  }
  expect(books.refuse(confirmOf(x), 'LEASE_NOT_FOUND').metadata).toEqual({ network: 'default' })
})

test('the number of the last event is not beyond it', () => {
  given(pool('a', '10.0.0.0/29')).refuse(release(2), 'LEASE_NOT_FOUND')
})

test('a number beyond the head is refused as one of a later life of the ledger (12.1)', () => {
  const books = given(pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)))
  for (const command of [
    confirm(99),
    release(99),
    quarantine({ token: 99 }),
    reap(99, 99),
    updateLabels(99, {}),
  ]) {
    const { metadata } = books.refuse(command, 'VERSION_MISMATCH')
    expect(metadata).toMatchObject({ leaseId: 'default/99', beyondHead: expect.stringMatching(/^[0-9]+$/) })
  }
})
