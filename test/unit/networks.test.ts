/** Networks: made once, described, recovering until somebody says otherwise (DESIGN §4 "New era"). */
import { describe, expect, test } from 'vitest'
import { emptyBooks } from '../../src/core/books.ts'
import type { Command, CreateNetwork, EndRecovery, UpdateNetwork } from '../../src/core/command.ts'
import { isShapeCommand } from '../../src/core/command.ts'
import { decide } from '../../src/core/decide.ts'
import { evolve } from '../../src/core/evolve.ts'
import type { Proof } from '../../src/core/judge.ts'
import { eraOf, firstSeqOfEra } from '../../src/core/policy.ts'
import { sight } from '../support/commands.ts'
import {
  ADMIN,
  active,
  allOrNothing,
  beginEra,
  claim,
  confirm,
  createNetwork,
  createPool,
  deletePool,
  expire,
  fenceNode,
  given,
  lists,
  pool,
  quarantine,
  reap,
  reapProven,
  recovering,
  release,
  reserve,
  reserved,
  restore,
  resumeHold,
  source,
  updateLabels,
  updatePool,
  web,
} from '../support/given.ts'
import { memoryLedger } from '../support/memory-ledger.ts'

const envelope = {
  network: 'default',
  actor: ADMIN,
  cause: 'test',
  requestId: null,
  fingerprint: null,
  traceId: null,
}
const update = (fields: Partial<UpdateNetwork>): UpdateNetwork => ({
  ...envelope,
  type: 'updateNetwork',
  version: null,
  description: null,
  labels: null,
  ...fields,
})
const endRecovery: EndRecovery = { ...envelope, type: 'endRecovery', why: 'looked at every host' }

const everyCommand: Readonly<Record<Command['type'], Command>> = {
  reserve: reserve({ owner: web(1) }),
  allOrNothing: allOrNothing([]),
  confirm: confirm(1),
  release: release(1),
  quarantine: quarantine({ token: 1 }),
  reap: reap(1, 1),
  expire: expire(1, 1),
  updateLabels: updateLabels(1, {}),
  createNetwork: createNetwork(),
  updateNetwork: update({}),
  endRecovery,
  sight: sight('agent', { entries: [] }),
  reapProven: reapProven({ token: 1, version: 1 } as Proof),
  restore: restore({ token: 1, version: 1 } as Proof),
  resumeHold: resumeHold(null),
  fenceNode: fenceNode('n1', 'b1'),
  beginEra: beginEra(1),
  createPool: createPool({ name: 'a', cidr: '10.0.0.0/29' }),
  updatePool: updatePool('a', {}),
  deletePool: deletePool('a'),
}

test('in a network that is not there nothing is, but its making', () => {
  for (const command of Object.values(everyCommand)) {
    const { refusal } = memoryLedger().submit(command)
    if (command.type === 'createNetwork') expect(refusal).toBeNull()
    else expect(refusal).toMatchObject({ reason: 'NETWORK_NOT_FOUND', metadata: { network: 'default' } })
  }
})

test('commands that change what others rest on make a batch of their own', () => {
  const shapes = Object.values(everyCommand)
    .filter(isShapeCommand)
    .map((command) => command.type)
  expect(shapes.sort()).toEqual([
    'beginEra',
    'createNetwork',
    'createPool',
    'deletePool',
    'endRecovery',
    'updateNetwork',
    'updatePool',
  ])
})

describe('a network', () => {
  test('is made once', () => {
    const ledger = memoryLedger()
    const make: CreateNetwork = {
      ...envelope,
      type: 'createNetwork',
      settings: { description: 'd', labels: { a: 'b' } },
    }
    expect(ledger.submit(make).events).toMatchObject([{ type: 'network.created', seq: 1 }])
    expect(ledger.fold().network).toEqual({
      network: 'default',
      description: 'd',
      labels: { a: 'b' },
      state: 'READY',
      era: 0,
      createdAt: ledger.now(),
      updatedAt: ledger.now(),
      version: 1,
    })
    expect(ledger.submit(make).refusal).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: 'name' },
    })
  })

  test('what is named of it changes, the rest stays', () => {
    const { ledger } = given()
    ledger.wait(5)
    ledger.submit(update({ description: 'd' }))
    ledger.submit(update({ labels: { a: 'b' } }))
    expect(ledger.fold().network).toMatchObject({
      description: 'd',
      labels: { a: 'b' },
      version: 3,
      createdAt: ledger.now() - 5,
      updatedAt: ledger.now(),
    })
    expect(ledger.submit(update({})).events).toEqual([])
    expect(ledger.submit(update({ description: 'd', labels: { a: 'b' } })).events).toEqual([])
  })

  test('changes at the version that was looked at, and at no other', () => {
    const { ledger } = given()
    ledger.submit(update({ description: 'theirs' }))
    const { events, refusal } = ledger.submit(update({ description: 'mine', version: 1 }))
    expect(events).toEqual([])
    expect(refusal).toMatchObject({
      reason: 'VERSION_MISMATCH',
      metadata: { network: 'default', version: '2', expected: '1' },
    })
    expect(ledger.fold().network).toMatchObject({ description: 'theirs', version: 2 })
    expect(ledger.submit(update({ description: 'mine', version: 2 })).events).toHaveLength(1)
  })
})

describe('a recovery', () => {
  const past = [pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1)), recovering()]

  test('begins an era whose numbers are greater than all before', () => {
    const { ledger } = given(...past)
    expect(ledger.fold()).toMatchObject({ head: 2 ** 40, network: { state: 'RECOVERING', era: 1 } })
    expect([firstSeqOfEra(0), firstSeqOfEra(1), firstSeqOfEra(2)]).toEqual([1, 2 ** 40, 2 ** 41])
    expect([eraOf(1), eraOf(2 ** 40 - 1), eraOf(2 ** 40)]).toEqual([0, 0, 1])
  })

  test('ends by an operator, with a reason, and then leases have numbers of the new era', () => {
    const books = given(...past)
    books.when(endRecovery).then('network.updated')
    expect(books.ledger.events.at(-1)!.evidence).toEqual({ why: 'looked at every host' })
    expect(books.ledger.fold().network).toMatchObject({ state: 'READY', era: 1 })
    const lease = books.take(reserve({ owner: web(2), claims: [claim({ pool: 'a' })] }))
    expect(lease.fencingToken).toBeGreaterThan(2 ** 40)
    books.when(endRecovery).then()
  })

  test('does not end by an edit of the network', () => {
    const books = given(...past)
    books.accept(update({ description: 'new' }))
    expect(books.ledger.fold().network!.state).toBe('RECOVERING')
  })

  test('lets pools be edited and leases be looked after', () => {
    const books = given(...past)
    books.accept(updatePool('a', { draining: true }))
    books.accept(quarantine({ address: '10.0.0.5' }))
    books.accept(release(3))
  })
})

test('a network whose projections are lost, and not its log, is not taken for one that was never made (7.1)', () => {
  for (const command of Object.values(everyCommand)) {
    const books = emptyBooks('default')
    books.head = 7
    expect(decide(books, command), command.type).toMatchObject({
      kind: 'refused',
      refusal: { reason: 'NETWORK_RECOVERING', metadata: { state: 'REBUILDING' } },
    })
  }
})

describe('a recovery that the sources end', () => {
  const observed: EndRecovery = { ...endRecovery, observed: true }
  const past = [pool('a', '10.0.0.0/29'), source('agent'), lists('agent')]

  test('ends when each enabled one has reported completely in this era', () => {
    const books = given(...past, source('other'), lists('other'), recovering())
    expect(books.refuse(observed, 'LIVENESS_STALE').metadata.sources).toBe('agent,other')
    lists('agent')(books.ledger)
    expect(books.refuse(observed, 'LIVENESS_STALE').metadata.sources).toBe('other')
    lists('other')(books.ledger)
    books.when(observed).then('network.updated')
    expect(books.ledger.fold().network!.state).toBe('READY')
  })

  test('waits for none in dry run', () => {
    const books = given(...past, source('dry', { state: 'REGISTERED' }), recovering(), lists('agent'))
    books.when(observed).then('network.updated')
  })

  test('waits for one whose node was fenced: what that node runs now is in no restored book (12.1)', () => {
    const books = given(...past, source('dark', { node: 'n1' }), recovering(), lists('agent'))
    books.accept(fenceNode('n1', 'b1'))
    expect(books.refuse(observed, 'LIVENESS_STALE').metadata.sources).toBe('dark')
    expect(books.refuse(reserve({ owner: web(1) }), 'NETWORK_RECOVERING').metadata.sources).toBe('dark')
    // It came back in another boot, and says so; or it never will, and is retired.
    source('dark', { node: 'n1', state: 'RETIRED' })(books.ledger)
    books.when(observed).then('network.updated')
  })

  test('does not end without any: then an operator ends it', () => {
    const books = given(pool('a', '10.0.0.0/29'), recovering())
    books.refuse(observed, 'LIVENESS_STALE')
    books.when(endRecovery).then('network.updated')
  })

  test('a job that was paused meanwhile does not end the next era’s', () => {
    const books = given(...past, recovering(), lists('agent'))
    books.accept(beginEra(2))
    books.refuse(observed, 'LIVENESS_STALE')
  })
})

describe('an era', () => {
  const past = [pool('a', '10.0.0.0/29'), active('10.0.0.5', web(1))]

  test('begins above every number there was, and says why', () => {
    const { ledger } = given(...past)
    const { events } = ledger.submit(beginEra(1))
    expect(events).toMatchObject([
      {
        type: 'era.begun',
        seq: 2 ** 40,
        era: 1,
        recovering: true,
        evidence: { why: 'restored', lostAfter: 3 },
      },
    ])
    expect(ledger.fold()).toMatchObject({ head: 2 ** 40, network: { state: 'RECOVERING', era: 1 } })
  })

  test('that has begun is begun: several processes find out at the same time', () => {
    const books = given(...past)
    books.when(beginEra(1)).then('era.begun')
    books.when(beginEra(1)).then()
    books.when(beginEra(0)).then()
    const [first, second] = given(...past).ledger.submitBatch([beginEra(1), beginEra(1)])
    expect([first!.events.length, second!.events.length]).toEqual([1, 0])
  })

  test('may be any later one: a number of the third was seen somewhere', () => {
    const { ledger } = given(...past)
    ledger.submit(beginEra(4))
    expect(ledger.fold()).toMatchObject({ head: 2 ** 42, network: { era: 4 } })
  })

  test('is no recovery where no commit can be lost', () => {
    const books = given(...past)
    books.accept(beginEra(1, { recovering: false }))
    expect(books.ledger.fold().network).toMatchObject({ state: 'READY', era: 1 })
    const lease = books.take(reserve({ owner: web(2), claims: [claim({ pool: 'a' })] }))
    expect(lease.fencingToken).toBeGreaterThan(2 ** 40)
  })
})

describe('a network whose projections are being replaced', () => {
  const rebuilding = () => {
    const books = emptyBooks('default')
    books.network = { ...given().ledger.fold().network!, state: 'REBUILDING' }
    return books
  }

  test('decides nothing that rests on free space or on what a pool holds', () => {
    const refused = Object.values(everyCommand).filter((command) => {
      const decision = decide(rebuilding(), command)
      return decision.kind === 'refused' && decision.refusal.reason === 'NETWORK_RECOVERING'
    })
    expect(refused.map((command) => command.type).sort()).toEqual([
      'createNetwork',
      'createPool',
      'deletePool',
      'quarantine',
      'reapProven',
      'reserve',
      'restore',
      'sight',
      'updatePool',
    ])
    expect(decide(rebuilding(), reserve({ owner: web(1) }))).toMatchObject({
      refusal: { metadata: { network: 'default', state: 'REBUILDING' }, retryAfterMs: 1_000 },
    })
  })

  test.each(['reap', 'expire'] as const)('takes nothing back: %s', (type) => {
    const fold = given(pool('a', '10.0.0.0/29'), reserved('10.0.0.5', web(1), { confirmBy: 1 })).ledger.fold()
    const books = rebuilding()
    books.now = fold.now
    books.head = fold.head
    books.byToken.set(3, { address: '10.0.0.5' })
    books.addresses.set('10.0.0.5', fold.addresses.get('10.0.0.5')!)
    expect(decide(books, type === 'reap' ? reap(3, 3) : expire(3, 3))).toMatchObject({
      kind: 'refused',
      refusal: { reason: 'NETWORK_RECOVERING', metadata: { state: 'REBUILDING' } },
    })
  })

  test('begins an era all the same, and stays what it is until the fold replaces it', () => {
    const books = rebuilding()
    books.head = 3
    const decision = decide(books, beginEra(1))
    if (decision.kind !== 'accepted') throw new Error(decision.kind)
    for (const event of decision.events) evolve(books, event)
    expect(books).toMatchObject({ head: 2 ** 40, network: { state: 'REBUILDING', era: 1 } })
  })

  test('is not recovered by an operator: a rebuild ends it', () => {
    expect(decide(rebuilding(), endRecovery)).toMatchObject({
      kind: 'refused',
      refusal: { reason: 'ILLEGAL_STATE', metadata: { state: 'REBUILDING' } },
    })
  })
})
