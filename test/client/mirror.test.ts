/**
 * LeaseMirror: whatever order the watch and the pushes of peers come in, and whatever a restore takes back, the table ends as the
 * ledger's own. The log is that of the core; openkruise/agents#492 is what it is for.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { create } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isKept, LeaseMirror } from '../../src/client/mirror.ts'
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

const emptyMirror = () => new LeaseMirror({ network: 'net' })

function leaseOf(record: AddressRecord): Lease {
  const state = record.state === 'FREE' ? 'ENDED' : record.state
  return create(LeaseSchema, {
    leaseId: `net/${record.token}`,
    network: 'net',
    address: record.address,
    prefixLength: 32,
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

const ERA = 2n ** 40n

/** The same in another era. */
function later(change: LeaseChange, by: bigint): LeaseChange {
  const lease = create(LeaseSchema, { ...change.lease!, version: change.lease!.version + by })
  return create(LeaseChangeSchema, { ...change, lease })
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
  digest: '',
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
  test('whatever is pushed, late, twice or never, wherever the watch begins anew, and whatever a restore lost', () => {
    const turn = fc.constantFrom('push', 'push', 'push', 'watch', 'watch', 'again', 'list', 'restore')
    const story = fc.record({
      steps: fc.array(someStep, { minLength: 10, maxLength: 30, size: 'max' }),
      others: fc.array(fc.array(someStep, { minLength: 5, maxLength: 20, size: 'max' }), { maxLength: 3 }),
      isNewEra: fc.boolean(),
      size: fc.integer({ min: 1, max: 5 }),
      turns: fc.array(fc.tuple(turn, fc.nat()), { maxLength: 60, size: 'max' }),
    })
    const seen = { events: 0, restores: 0, lower: 0, news: 0 }
    fc.assert(
      fc.property(story, ({ steps, others, isNewEra, size, turns }) => {
        let life = { steps, log: logOf(...steps) }
        const everything = [...life.log]
        const mirror = emptyMirror()
        const follow = (one: Watched) => {
          const before = mirror.position
          mirror.follow(one)
          expectConsistent(mirror)
          if (one.reset) expect(lines(mirror.all())).toEqual(lines(one.changes.map(({ lease }) => lease!)))
          if (one.position < before) return one.reset
          const last = new Map(one.changes.map((change) => [change.lease!.address, change]))
          for (const [address, change] of last)
            expect(mirror.at(address)).toBe(isKept(change) ? change.lease : undefined)
        }
        const listAt = (position: bigint) => {
          if (position < mirror.position) seen.lower += 1
          follow(told(tableAt(life.log, position), position, true))
        }
        listAt(0n)
        for (const [turn, pick] of turns) {
          const { position } = mirror
          const { log } = life
          const [next] = watchOf(log, position, size)
          const known = everything[pick % Math.max(1, everything.length)]?.lease
          if (turn === 'push' && known !== undefined && mirror.push(known)) seen.news += 1
          if (turn === 'watch' && next !== undefined) follow(next)
          // A connection was lost, and something is told twice.
          if (turn === 'again' && position > 0n)
            for (const one of watchOf(log, BigInt(pick) % position, size).slice(0, 5)) follow(one)
          if (turn === 'list') listAt(log[pick % log.length]?.lease?.version ?? 0n)
          if (turn === 'restore' && others.length > 0) {
            // Numbers are given out a second time, unless an era began.
            const kept = life.steps.slice(0, pick % life.steps.length)
            const at = endOf(logOf(...kept))
            const again = [...kept, ...others[pick % others.length]!]
            const log = logOf(...again).map((change) =>
              isNewEra && change.lease!.version > at ? later(change, ERA) : change,
            )
            life = { steps: again, log }
            everything.push(...log)
            seen.restores += 1
            listAt(log[pick % Math.max(1, log.length)]?.lease?.version ?? 0n)
          }
          expectConsistent(mirror)
        }
        for (const one of watchOf(life.log, mirror.position, size)) follow(one)
        const end = endOf(everything.toSorted((a, b) => Number(a.lease!.version - b.lease!.version)))
        follow(told([], end > mirror.position ? end : mirror.position))
        expect(lines(mirror.all())).toEqual(ownTable(life.log))
        // From now on nothing that a peer is late with changes anything.
        for (const { lease } of everything) expect(mirror.push(lease!)).toBe(false)
        expect(lines(mirror.all())).toEqual(ownTable(life.log))
        seen.events += everything.length
      }),
      { numRuns: 1_000 },
    )
    expect(seen.events).toBeGreaterThan(5_000)
    expect(Math.min(seen.restores, seen.lower, seen.news)).toBeGreaterThan(500)
  })

  test('two readers that heard the same, in another order, have the same table', () => {
    fc.assert(
      fc.property(
        fc.array(someStep, { maxLength: 30 }),
        fc.array(fc.nat(), { maxLength: 30 }),
        (steps, order) => {
          const log = logOf(...steps)
          const [one, other] = [emptyMirror(), emptyMirror()]
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
    const [byWatch, byPeer] = [emptyMirror(), emptyMirror()]
    byWatch.follow(told(log.slice(0, 2), quarantined!.version))
    for (const lease of [reserved!, quarantined!]) byPeer.push(lease)
    for (const mirror of [byWatch, byPeer])
      expect(mirror.at('10.0.0.1')).toMatchObject({
        state: LeaseState.QUARANTINED,
        leaseId: reserved!.leaseId,
      })
  })

  test('a stale write after a delete stays dead, before and after the watch has passed it', () => {
    const mirror = emptyMirror()
    mirror.follow(told(log.slice(0, 2), quarantined!.version))
    expect(mirror.push(reaped!)).toBe(true)
    for (const stale of [reserved!, quarantined!]) expect(mirror.push(stale)).toBe(false)
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    mirror.follow(told(log.slice(2), reaped!.version))
    for (const stale of [reserved!, quarantined!]) expect(mirror.push(stale)).toBe(false)
    expect(mirror.all()).toEqual([])
  })

  test('the watch has the last word, also where it lags behind a peer', () => {
    const mirror = emptyMirror()
    mirror.push(reaped!)
    mirror.follow(told([log[0]!], reserved!.version))
    expect(mirror.at('10.0.0.1')).toBe(reserved)
    mirror.push(reaped!)
    mirror.follow(told([log[0]!], reserved!.version, true))
    expect(mirror.at('10.0.0.1')).toBe(reserved)
    mirror.follow(told(log.slice(1), reaped!.version))
    expect(mirror.all()).toEqual([])
  })

  test('what is told twice is news once; what a filter lets through no longer is dropped for good', () => {
    const mirror = emptyMirror()
    expect([mirror.push(reserved!), mirror.push(reserved!)]).toEqual([true, false])
    mirror.follow(told([{ ...log[1]!, gone: true }], quarantined!.version))
    expect(mirror.at('10.0.0.1')).toBeUndefined()
    expect(mirror.push(quarantined!)).toBe(false)
    expect(mirror.all()).toEqual([])
  })

  test('one key for an address, an attachment and an owner, whoever spells it', () => {
    const mirror = emptyMirror()
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
  const mirror = emptyMirror()
  const heapAfter = (from: number, count: number) => {
    for (let n = from; n < from + count; n += 1) {
      const address = `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`
      const version = BigInt(2 * n + 1)
      const owner = { kind: 'pod', name: `pod-${n}`, uid: `${n}`, incarnation: '1', interface: 'eth0' }
      const lease = create(LeaseSchema, { network: 'net', address, version, owner, state: LeaseState.ACTIVE })
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

describe('a restore', () => {
  const log = logOf(reserve('a/1'), reserve('b/1'), confirm('a/1'))
  const [a, b, confirmed] = log.map(({ lease }) => lease!)

  test.each([
    ['lower', 1n],
    ['higher', ERA],
  ])('what it lost is dropped with the new list, at a %s position', (_, offset) => {
    const mirror = emptyMirror()
    mirror.follow(told(log, endOf(log)))
    const position = a!.version * offset
    mirror.follow(told([log[0]!], position, true))
    expect(lines(mirror.all())).toEqual(lines([a!]))
    expect(mirror.position).toBe(position)
    // Peers may still know what was lost.
    for (const lost of [b!, confirmed!]) expect(mirror.push(lost)).toBe(false)
    expect(lines(mirror.all())).toEqual(lines([a!]))
  })

  test('what a peer pushed of it is gone once the watch has passed its number; what the watch said before counts again', () => {
    const mirror = emptyMirror()
    mirror.follow(told([log[0]!], a!.version))
    const lost = { ...a!, version: 100n, state: LeaseState.ENDED }
    expect([mirror.push(lost), mirror.push({ ...b!, version: 100n })]).toEqual([true, true])
    expect(lines(mirror.all())).toEqual(lines([{ ...b!, version: 100n }]))
    mirror.follow(told([], 99n))
    expect(mirror.at(a!.address)).toBeUndefined()
    mirror.follow(told([], 100n))
    expect(mirror.all()).toEqual([a])
  })
})

test.each([LeaseState.ENDED, LeaseState.ACTIVE])(
  'of more pushes than it keeps (state %i) it forgets the first, and what it forgot revives nothing',
  (state) => {
    const mirror = emptyMirror()
    const at = (n: number, state: LeaseState, version: bigint) =>
      create(LeaseSchema, { network: 'net', address: `10.1.${n >> 8}.${n & 255}`, state, version })
    for (let n = 0; n < 10_000; n += 1) expect(mirror.push(at(n, state, BigInt(10 + 2 * n)))).toBe(true)
    // Nothing is forgotten yet.
    expect(mirror.push(at(0, LeaseState.ACTIVE, 9n))).toBe(false)
    const live = at(20_000, LeaseState.ACTIVE, 11n)
    expect(mirror.push(live)).toBe(true)
    expect(mirror.all()).toHaveLength(state === LeaseState.ACTIVE ? 10_000 : 1)
    expect(mirror.at('10.1.0.0')).toBeUndefined()
    for (const version of [9n, 10n]) expect(mirror.push(at(0, LeaseState.ACTIVE, version))).toBe(false)
    expect(mirror.push(at(30_000, LeaseState.ACTIVE, 10n))).toBe(false)
    // What was taken before stays until the watch has passed it.
    mirror.follow(told([], 5n))
    expect(mirror.at(live.address)).toBe(live)
  },
)

test('a lease of another network is refused, and nothing of what came with it is taken', () => {
  const mirror = new LeaseMirror()
  const own = create(LeaseSchema, { network: 'default', address: '10.0.0.1', version: 1n })
  const other = create(LeaseSchema, { network: 'blue', address: '10.0.0.2', version: 2n })
  const why = 'lease.network is blue, and this table is of default'
  expect(() => mirror.push(other)).toThrow(why)
  const changes = [own, other].map((lease) => create(LeaseChangeSchema, { lease }))
  expect(() => mirror.follow(told(changes, 2n))).toThrow(why)
  expect([mirror.all(), mirror.position]).toEqual([[], 0n])
  expect(new LeaseMirror({ network: 'blue' }).push(other)).toBe(true)
})

test('an address inside a block is its holder’s', () => {
  const mirror = emptyMirror()
  const block = (address: string, prefixLength: number, version: bigint) =>
    create(LeaseSchema, { network: 'net', address, prefixLength, version, state: LeaseState.ACTIVE })
  const [four, one, six] = [block('10.0.0.16', 28, 1n), block('10.0.0.32', 32, 2n), block('fd00::', 64, 3n)]
  for (const lease of [four, one, six]) mirror.push(lease)
  for (const inside of ['10.0.0.16', '10.0.0.17', '10.0.0.31', '::ffff:10.0.0.20', '10.0.0.20/24'])
    expect(mirror.at(inside)).toBe(four)
  expect(mirror.at('10.0.0.32')).toBe(one)
  for (const outside of ['10.0.0.15', '10.0.0.33', 'fd00:0:0:1::', '::10.0.0.16'])
    expect(mirror.at(outside)).toBeUndefined()
  expect(mirror.at('fd00::ffff:1')).toBe(six)
  mirror.push({ ...four, version: 4n, state: LeaseState.ENDED })
  expect(mirror.at('10.0.0.17')).toBeUndefined()
})
