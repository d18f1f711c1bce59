/**
 * LeaseMirror: whatever order the watch and the pushes of peers come in, the table ends as the ledger's own. The log is that of
 * the core; openkruise/agents#492 is what it is for.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createLeaseMirror, isKept, type LeaseMirror } from '../../src/client/mirror.ts'
import type { Watched } from '../../src/client/watch.ts'
import type { AddressRecord } from '../../src/core/event.ts'
import { type LeaseChange, LeaseChangeSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { type Lease, LeaseSchema, LeaseState } from '../../src/gen/ipledger/v1/types_pb.ts'
import {
  after,
  confirm,
  network,
  pool,
  quarantine,
  reap,
  release,
  reserve,
  SECOND,
  type Step,
} from '../core/given.ts'
import { played } from '../support/stored-scene.ts'

function leaseOf(record: AddressRecord): Lease {
  const state = record.state === 'FREE' ? 'ENDED' : record.state
  return create(LeaseSchema, {
    leaseId: `net/${record.token}`,
    address: record.address,
    version: BigInt(record.seq),
    state: LeaseState[state],
    ...(record.owner !== null && { owner: record.owner }),
  })
}

/** What the ledger did, as a watch tells it. */
function logOf(...steps: readonly Step[]): readonly LeaseChange[] {
  const { events } = played(network, pool('10.0.0.0/29', { cooldownMs: 0 }), ...steps)
  return events.flatMap((event) => {
    if (!('record' in event)) return []
    const gone = event.record.state === 'FREE'
    return create(LeaseChangeSchema, { lease: leaseOf(event.record), type: event.type, gone })
  })
}

/** The ledger's own table after a number. */
function tableAt(log: readonly LeaseChange[], position: bigint): readonly LeaseChange[] {
  const last = new Map<string, LeaseChange>()
  for (const change of log) if (change.lease!.version <= position) last.set(change.lease!.address, change)
  return [...last.values()].filter(isKept)
}

const STATES = new Map<number, string>(Object.entries(LeaseState).map(([name, state]) => [state, name]))
const lines = (leases: readonly Lease[]) =>
  leases
    .map(({ address, leaseId, state, version }) => `${address} ${leaseId} ${STATES.get(state)} ${version}`)
    .sort()
const ownTable = (log: readonly LeaseChange[]) => lines(tableAt(log, endOf(log)).map(({ lease }) => lease!))
const endOf = (log: readonly LeaseChange[]) => log.at(-1)?.lease?.version ?? 0n
const told = (changes: readonly LeaseChange[], position: bigint, reset = false): Watched => ({
  changes,
  position,
  reset,
})

/** The watch from a number on, in messages of so many changes. */
function watchOf(log: readonly LeaseChange[], from: bigint, size: number): readonly Watched[] {
  const rest = log.filter(({ lease }) => lease!.version > from)
  return Array.from({ length: Math.ceil(rest.length / size) }, (_, n) => {
    const some = rest.slice(n * size, (n + 1) * size)
    return told(some, some.at(-1)!.lease!.version)
  })
}

/** Everything that the table says of itself is the same. */
function expectConsistent(mirror: LeaseMirror): void {
  for (const lease of mirror.all()) {
    expect(mirror.at(lease.address)).toBe(lease)
    expect(mirror.at(`::ffff:${lease.address}`)).toBe(lease)
    if (lease.owner === undefined) continue
    expect(mirror.ofAttachment(lease.owner)).toContain(lease)
    expect(mirror.ofOwner(lease.owner)).toContain(lease)
  }
}

const reapIfHeld =
  (host: number): Step =>
  (scene) =>
    scene.image.records.has(`10.0.0.${host}`) ? reap(`10.0.0.${host}`)(scene) : undefined

const NAMES = ['a', 'b', 'c'] as const
const someStep = fc.oneof(
  fc
    .constantFrom(...NAMES)
    .chain((name) => fc.integer({ min: 1, max: 9 }).map((life) => reserve(`${name}/${life}`))),
  fc.constantFrom(...NAMES).map((name) => confirm(`${name}/1`)),
  fc
    .constantFrom(...NAMES)
    .chain((name) => fc.integer({ min: 1, max: 9 }).map((life) => release(`${name}/${life}`))),
  fc.integer({ min: 1, max: 6 }).map((host) => quarantine(`10.0.0.${host}`)),
  fc.integer({ min: 1, max: 6 }).map(reapIfHeld),
  fc.constant(after(SECOND)),
)

describe('ends in the ledger’s own table', () => {
  test('whatever is pushed, late, twice or never, and wherever the watch begins anew', () => {
    const story = fc.record({
      steps: fc.array(someStep, { minLength: 10, maxLength: 40, size: 'max' }),
      size: fc.integer({ min: 1, max: 5 }),
      turns: fc.array(fc.tuple(fc.constantFrom('push', 'push', 'push', 'watch', 'again', 'list'), fc.nat()), {
        maxLength: 120,
      }),
    })
    let events = 0
    fc.assert(
      fc.property(story, ({ steps, size, turns }) => {
        const log = logOf(...steps)
        events += log.length
        const mirror = createLeaseMirror()
        const listAt = (position: bigint) => mirror.follow(told(tableAt(log, position), position, true))
        listAt(0n)
        for (const [turn, pick] of turns) {
          const { position } = mirror
          const [next] = watchOf(log, position, size)
          if (turn === 'push' && log.length > 0) mirror.push(log[pick % log.length]!.lease!)
          if (turn === 'watch' && next !== undefined) mirror.follow(next)
          // A connection was lost, and something is told twice.
          if (turn === 'again' && position > 0n)
            for (const one of watchOf(log, BigInt(pick) % position, size).slice(0, 5)) mirror.follow(one)
          if (turn === 'list' && log.length > 0) listAt(log[pick % log.length]!.lease!.version)
          expect(mirror.position).toBeGreaterThanOrEqual(position)
          expectConsistent(mirror)
        }
        for (const one of watchOf(log, mirror.position, size)) mirror.follow(one)
        expect(lines(mirror.all())).toEqual(ownTable(log))
        // From now on nothing that a peer is late with changes anything.
        for (const { lease } of log) expect(mirror.push(lease!)).toBe(false)
        expect(lines(mirror.all())).toEqual(ownTable(log))
      }),
      { numRuns: 1_000 },
    )
    expect(events).toBeGreaterThan(5_000)
  })

  test('every way to mix the watch of four events with a push of each, before, between or after', () => {
    const log = logOf(
      reserve('a/1'),
      confirm('a/1'),
      release('a/1'),
      reserve('b/1', { claims: [{ address: '10.0.0.1' }] }),
    )
    expect(log.map(({ type }) => type)).toEqual([
      'lease.reserved',
      'lease.confirmed',
      'lease.released',
      'lease.reserved',
    ])
    const places = [0, 1, 2, 3, 4]
    let ways = 0
    for (const a of places)
      for (const b of places)
        for (const c of places)
          for (const d of places)
            for (const isForward of [true, false]) {
              const mirror = createLeaseMirror()
              mirror.follow(told([], 0n, true))
              for (const place of places) {
                const pushes = log.filter((_, n) => [a, b, c, d][n] === place)
                for (const { lease } of isForward ? pushes : pushes.toReversed()) mirror.push(lease!)
                if (place < 4) mirror.follow(told([log[place]!], log[place]!.lease!.version))
              }
              expect(lines(mirror.all())).toEqual(ownTable(log))
              ways += 1
            }
    expect(ways).toBe(1_250)
  })

  test('two readers that heard the same, in another order, have the same table', () => {
    fc.assert(
      fc.property(
        fc.array(someStep, { maxLength: 30 }),
        fc.array(fc.nat(), { maxLength: 30 }),
        (steps, order) => {
          const log = logOf(...steps)
          const [one, other] = [createLeaseMirror(), createLeaseMirror()]
          const sent = order.flatMap((n) => log[n % Math.max(1, log.length)] ?? [])
          for (const { lease } of sent) one.push(lease!)
          for (const { lease } of sent.toReversed()) other.push(lease!)
          expect(lines(one.all())).toEqual(lines(other.all()))
        },
      ),
      { numRuns: 1_000 },
    )
  })
})

describe('openkruise/agents#492', () => {
  const log = logOf(reserve('a/1'), quarantine('10.0.0.1'), reap('10.0.0.1'))
  const [reserved, quarantined, reaped] = log.map(({ lease }) => lease!)

  test('what is paused or quarantined is kept on both sides; its state is the reader’s to act on', () => {
    const [byWatch, byPeer] = [createLeaseMirror(), createLeaseMirror()]
    byWatch.follow(told(log.slice(0, 2), quarantined!.version))
    for (const lease of [reserved!, quarantined!]) byPeer.push(lease)
    for (const mirror of [byWatch, byPeer])
      expect(mirror.at('10.0.0.1')).toMatchObject({
        state: LeaseState.QUARANTINED,
        leaseId: reserved!.leaseId,
      })
  })

  test('a stale write after a delete stays dead, until the watch has passed it and ever after', () => {
    const mirror = createLeaseMirror()
    expect(mirror.push(reaped!)).toBe(true)
    for (const stale of [reserved!, quarantined!]) expect(mirror.push(stale)).toBe(false)
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    // The watch lags behind the peer.
    mirror.follow(told([log[0]!], reserved!.version))
    expect(mirror.push(quarantined!)).toBe(false)
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    mirror.follow(told(log.slice(1), reaped!.version))
    for (const stale of [reserved!, quarantined!]) expect(mirror.push(stale)).toBe(false)
    expect(mirror.all()).toEqual([])
  })

  test('a list that is older than a peer’s word revives nothing, and forgets nothing', () => {
    const mirror = createLeaseMirror()
    mirror.push(reaped!)
    mirror.follow(told(log.slice(0, 1), reserved!.version, true))
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    const other = createLeaseMirror()
    other.push(quarantined!)
    other.follow(told([], 0n, true))
    expect(other.at('10.0.0.1')).toBe(quarantined)
  })

  test('what is told twice is news once; what a filter lets through no longer is dropped for good', () => {
    const mirror = createLeaseMirror()
    expect([mirror.push(reserved!), mirror.push(reserved!)]).toEqual([true, false])
    mirror.follow(told([{ ...log[1]!, gone: true }], reserved!.version))
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    expect(mirror.push(quarantined!)).toBe(false)
    expect(mirror.all()).toEqual([])
  })

  test('one key for an address, an attachment and an owner, whoever spells it', () => {
    const mirror = createLeaseMirror()
    mirror.push(reserved!)
    for (const address of ['10.0.0.1', '::ffff:10.0.0.1', '::FFFF:a00:1', '10.0.0.1/32'])
      expect(mirror.at(address)).toBe(reserved)
    const { kind, name } = reserved!.owner!
    expect(mirror.ofOwner({ kind, name })).toEqual([reserved])
    for (const uid of [name, '', undefined])
      expect(
        mirror.ofAttachment({ kind, name, incarnation: '1', ...(uid !== undefined && { uid }) }),
      ).toEqual([reserved])
    expect(mirror.ofAttachment({ kind, name, incarnation: '2' })).toEqual([])
    expect(mirror.ofOwner({ kind: 'vm', name })).toEqual([])
    expect(() => mirror.at('a/1')).toThrow('not an address: a/1')
    mirror.push(reaped!)
    expect([mirror.ofOwner({ kind, name }), mirror.ofAttachment(reserved!.owner!)]).toEqual([[], []])
  })
})

test('what the watch has passed and is no more costs nothing', () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  const mirror = createLeaseMirror()
  const heapAfter = (from: number, count: number) => {
    for (let n = from; n < from + count; n += 1) {
      const address = `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`
      const version = BigInt(2 * n + 1)
      const owner = { kind: 'pod', name: `pod-${n}`, uid: `${n}`, incarnation: '1', interface: 'eth0' }
      const lease = create(LeaseSchema, { address, version, owner, state: LeaseState.ACTIVE })
      const ended = { ...lease, version: version + 1n, state: LeaseState.ENDED }
      const change = (one: Lease) => create(LeaseChangeSchema, { lease: one })
      mirror.follow(told([change(lease)], version))
      mirror.push(ended)
      mirror.follow(told([change(ended)], ended.version))
    }
    collect()
    return process.memoryUsage().heapUsed
  }
  // 40,000 tombstones are 4 MB, and as many owners without leases 12 MB.
  const warm = heapAfter(0, 5_000)
  expect(heapAfter(5_000, 40_000) - warm).toBeLessThan(2_000_000)
})

test('what a restore lost is dropped with the new list, also what is there in an older version', () => {
  const log = logOf(reserve('a/1'), reserve('b/1'), confirm('a/1'))
  const [a, b] = log.map(({ lease }) => lease!)
  const mirror = createLeaseMirror()
  mirror.follow(told(log, endOf(log)))
  mirror.follow(told([log[0]!], 2n ** 40n, true))
  expect(lines(mirror.all())).toEqual(lines([a!]))
  expect(mirror.push(b!)).toBe(false)
  expect(mirror.position).toBe(2n ** 40n)
})
