/** What a Release or a supersession has overtaken holds nothing (DESIGN §2 "Closing"; incidents 4.1, 4.2). */
import { describe, expect, test } from 'vitest'
import {
  active,
  claim,
  closed,
  confirm,
  confirmOf,
  DAY,
  elapsed,
  given,
  MINUTE,
  on,
  owner,
  pool,
  quarantine,
  quarantined,
  reap,
  reaped,
  release,
  releaseOf,
  reserve,
  reserved,
  SECOND,
  web,
} from '../support/given.ts'

const inA = { claims: [claim({ pool: 'a' })] }
const inB = { claims: [claim({ pool: 'b' })] }
const network = [pool('a', '10.0.0.0/28'), pool('b', '10.0.1.0/28')]
const HORIZON = 2 * MINUTE

describe('a Release by owner', () => {
  test('closes the attachment in every pool', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books.when(releaseOf(web(1))).then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere')
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    books.when(reserve({ owner: web(1), ...inB })).refused('ATTACHMENT_CLOSED')
    books.when(confirmOf(web(1))).refused('ATTACHMENT_CLOSED')
  })

  test('closes an attachment that the ledger has never seen: it overtook its Reserve', () => {
    const books = given(...network)
    books.when(releaseOf(web(1))).then('attachment.closed web#1 everywhere')
    const refusal = books.refuse(reserve({ owner: web(1), ...inA }), 'ATTACHMENT_CLOSED')
    expect(refusal.metadata.owner).toContain('incarnation 1')
    expect(books.ledger.pool('a').leases).toEqual([])
  })

  test('closes neither another incarnation nor another interface', () => {
    const books = given(...network)
    books.accept(releaseOf(web(1)))
    books.when(reserve({ owner: { ...web(1), interface: 'eth1' }, ...inA })).then('lease.reserved 10.0.0.1')
    books.when(reserve({ owner: web(2), ...inA })).then('lease.reserved 10.0.0.2')
  })

  test('said again leaves no event while it is closed', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books.accept(releaseOf(web(1)))
    for (let n = 0; n < 10; n += 1) books.when(releaseOf(web(1))).then()
  })

  test('after one by id closes in the other pools too', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books.accept(release(books.leaseAt('10.0.0.5')!.fencingToken))
    books.when(releaseOf(web(1))).then('attachment.closed web#1 everywhere')
    books.when(reserve({ owner: web(1), ...inB })).refused('ATTACHMENT_CLOSED')
  })

  test('of what was reaped closes: nobody has said yet that this life is over', () => {
    const books = given(...network, active('10.0.0.5', web(1)), reaped('10.0.0.5'), elapsed(DAY))
    books.when(releaseOf(web(1))).then('attachment.closed web#1 everywhere')
    books.wait(DAY)
    books.when(releaseOf(web(1))).then('attachment.closed web#1 everywhere')
  })

  test('that does not confirm the removal closes for as long as the lease stands', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books
      .when(releaseOf(web(1), { removalConfirmed: false }))
      .then('lease.quarantined 10.0.0.5 REMOVAL_UNCONFIRMED', 'attachment.closed web#1 everywhere')
    books.wait(30 * DAY)
    books.when(reserve({ owner: web(1), ...inB })).refused('ATTACHMENT_CLOSED')
    books.when(releaseOf(web(1), { removalConfirmed: false })).then()
  })
})

describe('a Release by id', () => {
  test('closes the attachment in the pool of that lease', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    const { fencingToken } = books.leaseAt('10.0.0.5')!
    books.when(release(fencingToken)).then('lease.released 10.0.0.5', 'attachment.closed web#1 in a')
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    books.when(reserve({ owner: web(1), ...inB })).then('lease.reserved 10.0.1.1')
    // Also as one of several pools: which of them the late call would get, nobody knows.
    books
      .when(reserve({ owner: web(1), claims: [claim({ pools: ['b', 'a'] })] }))
      .refused('ATTACHMENT_CLOSED')
  })

  test('of a lease without an owner closes nobody', () => {
    const books = given(...network, active('10.0.0.5', web(1)), quarantined('10.0.0.5', 'OPERATOR'))
    const { fencingToken } = books.leaseAt('10.0.0.5')!
    books
      .when(release(fencingToken))
      .then('lease.quarantined 10.0.0.5 OPERATOR (nobody)', 'attachment.closed web#1 in a')
    books.when(release(fencingToken)).then()
  })

  test.each([
    'SUPERSEDED',
    'REMOVAL_UNCONFIRMED',
    'CONFLICT',
    'OPERATOR',
    'RELEASED_BUT_LIVE',
    'SECOND_ADDRESS',
  ] as const)('of a lease that is %s closes no attachment that has a fresh one in its pool', (reason) => {
    const nobody = ['SUPERSEDED', 'REMOVAL_UNCONFIRMED'].includes(reason)
      ? 'lease.released 10.0.0.5'
      : `lease.quarantined 10.0.0.5 ${reason} (nobody)`
    const replaced = [...network, active('10.0.0.5', web(1)), quarantined('10.0.0.5', reason)]
    for (const removalConfirmed of [true, false]) {
      if (reason === 'CONFLICT' && !removalConfirmed) continue
      const books = given(...replaced, reserved('10.0.0.6', web(1)))
      const [old, fresh] = ['10.0.0.5', '10.0.0.6'].map((address) => books.leaseAt(address)!.fencingToken)
      books.when(release(old!, { removalConfirmed })).then(...(removalConfirmed ? [nobody] : []))
      books.when(confirm(fresh!)).then('lease.confirmed 10.0.0.6')
      books.when(reserve({ owner: web(1), ...inA })).then()
      // The fresh one given back, this life is over.
      books.when(release(fresh!)).then('lease.released 10.0.0.6', 'attachment.closed web#1 in a')
    }
    // One in another pool, or one that is quarantined too, is no fresh one.
    for (const beside of [
      [reserved('10.0.1.6', web(1))],
      [active('10.0.0.6', web(1)), quarantined('10.0.0.6', 'OPERATOR')],
      [active('10.0.0.6', web(2))],
    ]) {
      const books = given(...replaced, ...beside)
      books
        .when(release(books.leaseAt('10.0.0.5')!.fencingToken))
        .then(nobody, 'attachment.closed web#1 in a')
    }
  })

  test('that has ended already closes nothing anew', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    const { fencingToken } = books.leaseAt('10.0.0.5')!
    books.accept(release(fencingToken))
    books.wait(DAY)
    books.when(release(fencingToken)).then()
  })
})

describe('the horizon', () => {
  test('is two minutes to the millisecond', () => {
    const books = given(...network, closed(web(1)), elapsed(HORIZON - 1))
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    books.wait(1)
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('begins anew with a Release that changed something', () => {
    // Superseded a day ago and closed ever since; only now does the workload say that it is gone.
    const books = given(
      ...network,
      active('10.0.0.5', web(1)),
      quarantined('10.0.0.5', 'SUPERSEDED'),
      closed(web(1)),
      active('10.0.0.6', web(2)),
      elapsed(DAY),
    )
    books.when(releaseOf(web(1))).then('lease.released 10.0.0.5', 'attachment.closed web#1 everywhere')
    // A Reserve of its that comes late must not supersede the life that runs (incident 4.2).
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    expect(books.leaseAt('10.0.0.6')).toMatchObject({ state: 'ACTIVE' })
  })

  test('begins anew with a Release by id', () => {
    const books = given(
      ...network,
      active('10.0.0.5', web(1)),
      quarantined('10.0.0.5', 'SUPERSEDED'),
      closed(web(1)),
      elapsed(DAY),
    )
    books
      .when(release(books.leaseAt('10.0.0.5')!.fencingToken))
      .then('lease.released 10.0.0.5', 'attachment.closed web#1 in a')
    books.wait(HORIZON - SECOND)
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
  })

  test('over, a Release by owner of what was released leaves no event', () => {
    const books = given(...network, active('10.0.0.5', web(1)))
    books.accept(releaseOf(web(1)))
    for (const ms of [HORIZON - 1, 1, DAY]) {
      books.wait(ms)
      books.when(releaseOf(web(1))).then()
    }
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('over, a Release by owner of what never held anything closes again', () => {
    const books = given(...network, closed(web(1)), elapsed(HORIZON))
    books.when(releaseOf(web(1))).then('attachment.closed web#1 everywhere')
  })
})

describe.each(['SUPERSEDED', 'REMOVAL_UNCONFIRMED'] as const)('as long as a lease is %s', (reason) => {
  const past = [
    ...network,
    active('10.0.0.5', web(1)),
    quarantined('10.0.0.5', reason),
    closed(web(1)),
    elapsed(30 * DAY),
  ]

  test('its attachment stays closed', () => {
    const books = given(...past)
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    books.when(reserve({ owner: web(1), ...inB })).refused('ATTACHMENT_CLOSED')
    books.when(confirm(books.leaseAt('10.0.0.5')!.fencingToken)).refused('ATTACHMENT_CLOSED')
  })

  test('and no longer', () => {
    const books = given(...past)
    const { fencingToken, version } = books.leaseAt('10.0.0.5')!
    books.accept(reap(fencingToken, version))
    books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('a lease of another incarnation closes nobody', () => {
    given(...past)
      .when(reserve({ owner: web(3), ...inA }))
      .then('lease.reserved 10.0.0.1')
  })
})

test('other quarantines close nothing after the horizon', () => {
  const books = given(
    ...network,
    active('10.0.0.5', web(1)),
    closed(web(1)),
    quarantined('10.0.0.5', 'OPERATOR'),
    elapsed(HORIZON),
  )
  books.when(reserve({ owner: web(1), ...inA })).then('lease.reserved 10.0.0.1')
})

describe('a closed attachment', () => {
  test('cannot confirm what is reserved for it, but what is ACTIVE stays confirmed', () => {
    const books = given(
      ...network,
      reserved('10.0.0.5', web(1)),
      active('10.0.0.6', web(2)),
      closed(web(1)),
      closed(web(2)),
    )
    books.when(confirm(books.leaseAt('10.0.0.5')!.fencingToken)).refused('ATTACHMENT_CLOSED')
    books.when(confirm(books.leaseAt('10.0.0.6')!.fencingToken)).then()
  })

  test('closed in one pool may confirm in another', () => {
    const books = given(
      ...network,
      reserved('10.0.0.5', web(1)),
      reserved('10.0.1.5', web(1)),
      closed(web(1), 'a'),
    )
    books.when(confirm(books.leaseAt('10.0.0.5')!.fencingToken)).refused('ATTACHMENT_CLOSED')
    books.when(confirm(books.leaseAt('10.0.1.5')!.fencingToken)).then('lease.confirmed 10.0.1.5')
  })

  test('may be reopened by a caller that serialises its own operations', () => {
    const books = given(...network, closed(web(1)))
    const lease = books.when(reserve({ owner: web(1), ...inA, reopen: true })).then('lease.reserved 10.0.0.1')
    // And is open from then on.
    books.when(reserve({ owner: web(1), ...inA })).then()
    books.when(confirm(lease.fencingToken)).then('lease.confirmed 10.0.0.1')
    books.when(reserve({ owner: web(1), ...inB })).then('lease.reserved 10.0.1.1')
  })

  test('reopened in one pool stays closed in the other that was closed by itself', () => {
    const books = given(...network, closed(web(1), 'a'), closed(web(1), 'b'))
    books.when(reserve({ owner: web(1), ...inA, reopen: true })).then('lease.reserved 10.0.0.1')
    books.when(reserve({ owner: web(1), ...inA })).then()
    books.when(reserve({ owner: web(1), ...inB })).refused('ATTACHMENT_CLOSED')
  })

  test('reopened supersedes what superseded it', () => {
    given(...network, closed(web(1)), active('10.0.0.5', web(2)))
      .when(reserve({ owner: web(1), ...inA, reopen: true }))
      .then(
        'lease.quarantined 10.0.0.5 SUPERSEDED',
        'attachment.closed web#2 everywhere',
        'lease.reserved 10.0.0.1',
      )
  })
})

describe('without an incarnation', () => {
  test('nobody is closed', () => {
    const books = given(...network, active('10.0.0.5', web()))
    books.when(release(books.leaseAt('10.0.0.5')!.fencingToken)).then('lease.released 10.0.0.5')
    books.when(reserve({ owner: web(), ...inA })).then('lease.reserved 10.0.0.1')
  })

  test('a Release by owner is refused: a late one could hit a successor of that name', () => {
    const books = given(...network, active('10.0.0.5', web()))
    expect(books.refuse(releaseOf(web()), 'INVALID_FIELD').metadata.field).toBe('owner.incarnation')
    expect(books.refuse(releaseOf({ ...web(1), interface: '' }), 'INVALID_FIELD').metadata.field).toBe(
      'owner.interface',
    )
  })
})

describe('superseding', () => {
  test('M-22 in small: the older life cannot come back by a delayed call', () => {
    const books = given(...network)
    const first = books.take(reserve({ owner: web(1), ...inA }))
    const second = books.take(reserve({ owner: web(2), ...inA }))
    books.when(confirm(first.fencingToken)).refused('ATTACHMENT_CLOSED')
    books.when(reserve({ owner: web(1), ...inA })).refused('ATTACHMENT_CLOSED')
    books.when(confirm(second.fencingToken)).then(`lease.confirmed ${second.address}`)
    books
      .when(release(first.fencingToken))
      .then(`lease.released ${first.address}`, 'attachment.closed web#1 in a')
    expect(books.leaseAt(second.address)).toMatchObject({ state: 'ACTIVE' })
  })

  test('every order of Reserve, Confirm and Release of one life ends with nothing held after the Release', () => {
    const steps = {
      reserve: () => reserve({ owner: web(1), ...inA }),
      confirm: () => confirmOf(web(1)),
      release: () => releaseOf(web(1)),
    }
    type Step = keyof typeof steps
    const orders: Step[][] = []
    const names = Object.keys(steps) as Step[]
    for (const a of names)
      for (const b of names) for (const c of names) for (const d of names) orders.push([a, b, c, d])
    for (const order of orders) {
      const books = given(...network)
      let over = false
      for (const step of order) {
        books.ledger.submit(steps[step]())
        over ||= step === 'release'
        if (over) expect(books.ledger.pool('a').leases, order.join(', ')).toEqual([])
      }
    }
  })
})

test('a fresh lease beside a quarantined one can be confirmed by its owner', () => {
  const books = given(...network)
  books.take(reserve({ owner: web(1), ...inA }))
  books.accept(quarantine({ address: '10.0.0.1' }))
  books.take(reserve({ owner: web(1), ...inA }))
  const answer = books.when(confirmOf(web(1)))
  expect(answer.then('lease.confirmed 10.0.0.2').address).toBe('10.0.0.2')
  expect(answer.result.answer!.leases).toHaveLength(1)
  // One that nothing replaced still stands against it: the caller must not keep using that address.
  const two = given(...network)
  two.accept(reserve({ owner: web(1), claims: [claim({ pool: 'a' }), claim({ pool: 'b' })] }))
  two.accept(quarantine({ address: '10.0.1.1' }))
  two.when(confirmOf(web(1))).refused('ILLEGAL_STATE')
})

test('a closing is of one attachment, whatever its name and its node', () => {
  const books = given(...network)
  books.accept(releaseOf(owner({ name: 'other-name', uid: 'web', incarnation: '1' })))
  books.when(reserve({ owner: web(1), ...inA, placement: on('n9') })).refused('ATTACHMENT_CLOSED')
})
