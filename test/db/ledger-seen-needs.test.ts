/**
 * What the ledger reads of sources, beside the world of `world.ts`, which says how every question is to be answered:
 * random sources report random sights to a database, and the same to the world. What is folded from the log is held
 * against its fold.
 */
import { afterAll, expect, test } from 'vitest'
import { type Family, formatValue, maxPrefix } from '../../src/core/address.ts'
import {
  type Books,
  bootKey,
  candidates,
  cooldownOf,
  Missing,
  type Need,
  placeKey,
  type Sightings,
  workloadKey,
} from '../../src/core/books.ts'
import type { Command, SightedEntry } from '../../src/core/command.ts'
import { decide as decideCommand } from '../../src/core/decide.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { evolve } from '../../src/core/evolve.ts'
import { attachmentKey } from '../../src/core/owner.ts'
import { newAbsenceMemory } from '../../src/ledger/absence.ts'
import { ask, askFor, askHead } from '../../src/ledger/load.ts'
import { emptySlice, type Slice } from '../../src/ledger/slice.ts'
import { readEntries } from '../../src/liveness/entries.ts'
import { enableSource, retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, createPool, fenceNode, owner, release, reserve, updatePool } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { createEye, register, settled, useIntake } from '../support/intake.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { moveToThePast } from '../support/past.ts'
import { type Random, seededRandom } from '../support/random.ts'
import { foldOf } from '../support/told.ts'
import { createWorld, type World } from '../support/world.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const intake = useIntake(database.serviceUrl)
const service = await connect({ url: database.serviceUrl, applicationName: 'test' })
afterAll(() => service.end())

const EPOCH = 'b1'
/** The looks of an eye are some minutes old; they are proven for half of what an address cools. */
const LONG = 1_200_000
const POOLS = [
  { name: 'a', cidr: '10.0.0.0/25', cooldownMs: LONG },
  { name: 'b', cidr: '10.1.0.0/20', prefixLength: 28, cooldownMs: LONG },
  { name: 'c', cidr: 'fd00::/121', cooldownMs: LONG },
] as const

/** What a batch would read, in as many trips as it takes; nothing is written. */
async function inBatch<T>(network: string, work: (slice: Slice, read: Reading) => Promise<T>): Promise<T> {
  const slice = emptySlice(network, new Set(), newAbsenceMemory())
  await service.query('begin')
  try {
    await ask(service, askHead(slice))
    return await work(slice, (...needs) => ask(service, askFor(slice, needs)))
  } finally {
    await service.query('rollback')
  }
}

type Reading = (...needs: readonly Need[]) => Promise<void>

/** A decision of its own: what it misses is read, and it is asked again. */
async function decided<T>(
  read: Reading,
  decide: () => T,
): Promise<{ readonly result: T; readonly trips: number }> {
  for (let trips = 0; ; trips += 1) {
    try {
      return { result: decide(), trips }
    } catch (error) {
      if (!(error instanceof Missing)) throw error
      await read(error.need, ...error.alike)
    }
  }
}

function randomAddress(random: Random): string {
  switch (random.below(4)) {
    case 0:
      return `10.1.${random.below(16)}.${random.below(256)}`
    case 1:
      return `fd00::${(1 + random.below(127)).toString(16)}`
    case 2:
      return `192.168.0.${random.below(8)}`
    default:
      return `10.0.0.${random.below(128)}`
  }
}

function randomEntries(random: Random, node: string): readonly GivenEntry[] {
  const entries = Array.from({ length: random.below(40) }, (): GivenEntry => {
    const who = random.below(10)
    return {
      address: randomAddress(random),
      ...(who > 1 && { kind: 'pod', name: `w${who}`, uid: who > 3 ? `u${who}` : '', interface: 'eth0' }),
      node: node === '' ? random.pick(['', 'n1', 'n2']) : node,
      state: random.pick(['running', 'running', 'paused', 'terminal']),
    }
  })
  return [...new Map(entries.map((entry) => [JSON.stringify(entry), entry])).values()]
}

const SOURCES = [
  { id: 'docker', node: '', intervalMs: 60_000, enabled: true },
  { id: 'agent-1', node: 'n1', intervalMs: 30_000, enabled: true },
  { id: 'agent-2', node: 'n2', intervalMs: 45_000, enabled: true },
  { id: 'dry', node: '', intervalMs: 30_000, enabled: false },
] as const

/** A network with leases and released addresses, and sources that see some of its addresses, and others. */
async function populate(random: Random, retires: boolean): Promise<{ network: string; world: World }> {
  const network = await freshNetwork(ledger)
  const world = createWorld()
  for (const pool of POOLS) await ledger.accept(createPool(pool, { network }))
  const eyes = new Map<string, ReturnType<typeof createEye>>()
  const looks = async (id: string, node: string, given: readonly GivenEntry[], complete = true) => {
    const eye = eyes.get(id)!
    const begun = await eye.begin()
    await eye.look(given, { begun, complete, epoch: EPOCH, node })
    const set = readEntries(given, { network, node, epoch: EPOCH })
    const entries = [...set.entries.values()].map(({ key: _, ...entry }): SightedEntry => entry)
    world.report(id, entries, { head: begun.head, begunAt: begun.begunAt, era: 0, complete })
  }
  for (const { id, node, intervalMs, enabled } of SOURCES) {
    await register(intake, network, id, { node, intervalMs })
    if (enabled) settled(await enableSource(intake.database, { network, id, by: 'test' }))
    const state = enabled ? 'ENABLED' : 'REGISTERED'
    world.register(id, { state, node, intervalMs, epoch: EPOCH, warm: true })
    eyes.set(id, createEye(intake, network, id))
    // It is warm from then on.
    await looks(id, node, [])
    await looks(id, node, [])
  }
  const held: number[] = []
  for (let step = 0; step < 4; step += 1) {
    for (let index = 0; index < 20; index += 1) {
      const { name: pool } = random.pick(POOLS)
      const who = owner({ name: `h${step}-${index}` })
      const lease = await ledger.take(reserve({ network, owner: who, claims: [claim({ pool })] }))
      held.push(lease.fencingToken)
    }
    for (let index = 0; index < 8; index += 1) {
      const [token] = held.splice(random.below(held.length), 1)
      await ledger.accept(release(token!, { network }))
    }
    for (const { id, node } of SOURCES)
      if (random.chance(0.8)) await looks(id, node, randomEntries(random, node), random.chance(0.7))
  }
  if (retires) {
    settled(await retireSource(intake.database, { network, id: 'docker', by: 'test' }))
    world.register('docker', { ...world.sources.get('docker')!, state: 'RETIRED' })
  }
  return { network, world }
}

function sorted(sightings: Sightings, isTold = true) {
  const live = sightings.live
    .map(({ source, address, owner: who, node, boot, head, listedAt }) => {
      const named =
        who === null ? [] : [who.kind, who.name, who.uid, who.uidNamed, who.incarnation, who.interface]
      return [source, address, ...named, node, boot, head, listedAt].join(' ')
    })
    .sort()
  return { live, lastSeenAt: isTold ? sightings.lastSeenAt : null }
}

test.each([false, true])(
  'of random sources, one retired: %s, all is read as the world has it',
  async (retires) => {
    const random = seededRandom()
    console.log(`seed ${random.seed}`)
    const { network, world } = await populate(random, retires)
    const places = Array.from({ length: 200 }, () => {
      const address = randomAddress(random)
      const family: Family = address.includes(':') ? 6 : 4
      const [, rest, last] = /^10\.1\.(\d+)\.(\d+)$/.exec(address) ?? []
      return last === undefined
        ? { address, prefixLength: maxPrefix(family) }
        : { address: `10.1.${rest}.${Number(last) & ~15}`, prefixLength: 28 }
    })
    await inBatch(network, async (slice, read) => {
      const { books } = slice
      expect(books.slowestIntervalMs).toBe(world.slowestIntervalMs())
      await read(
        ...places.map((place): Need => ({ what: 'sightings', ...place })),
        ...[...SOURCES.map(({ id }) => id), 'nobody'].map((source): Need => ({ what: 'source', source })),
        ...['', 'n1', 'n2', 'n3'].map((node): Need => ({ what: 'strictness', node })),
        { what: 'unobserved' },
      )
      const { sources, ...unobserved } = books.unobserved!
      const awaited = world.unobservedIn(0)
      expect({ ...unobserved, sources: sources > 0 }).toEqual({ ...awaited, sources: awaited.sources > 0 })
      for (const { address, prefixLength } of places) {
        const key = placeKey(address, prefixLength)
        // A retired source ends what it lists when it is retired, which the world does not tell.
        const found = sorted(books.sightings.get(key)!, !retires)
        expect(found, key).toEqual(sorted(world.at(address, prefixLength), !retires))
      }
      for (const id of [...SOURCES.map((one) => one.id), 'nobody']) {
        expect(books.sources.get(id), id).toEqual(world.bookOf(id))
      }
      for (const node of ['', 'n1', 'n2', 'n3']) {
        const wanted = world.strictnessFor(node, 0, [])
        const found = books.strictness.get(node)!
        const bySource = (a: { readonly source: string }, b: { readonly source: string }) =>
          a.source < b.source ? -1 : 1
        expect(found.sources > 0, node).toBe(wanted.sources > 0)
        expect({ ...found, sources: 0, asking: found.asking.toSorted(bySource) }, node).toEqual({
          ...wanted,
          sources: 0,
          asking: wanted.asking.toSorted(bySource),
        })
      }
    })
  },
  60_000,
)

test('candidates are all that is free and that nobody sees, in order', async () => {
  const random = seededRandom()
  console.log(`seed ${random.seed}`)
  for (const retires of [false, true]) {
    const { network, world } = await populate(random, retires)
    // What was released has cooled.
    await moveToThePast(database, 24 * 3_600_000, network)
    const partition = await expectPartition(service, network)
    for (const { name } of POOLS) {
      const { pool, untouched, released } = partition.get(name)!
      const seen = new Set(world.seenIn(pool.family, pool.prefixLength))
      const step = 1n << BigInt((pool.family === 4 ? 32 : 128) - pool.prefixLength)
      const free: string[] = []
      for (const { first, last } of untouched)
        for (let value = first; value <= last; value += step) {
          const address = formatValue(pool.family, value)
          if (!seen.has(address)) free.push(address)
        }
      // Whoever is seen is none of those who released it, so that it is never too old.
      for (const { address } of released)
        if (world.at(address, pool.prefixLength).live.length === 0) free.push(address)
      for (const window of [1, 8]) {
        await inBatch(network, async ({ books }, read) => {
          await read({ what: 'candidates', pool: name, ranges: window, released: window })
          const [book] = [...books.pools.values()]
          const { result, trips } = await decided(read, () => [...candidates(books, book!)])
          expect(result, `${name} by ${window}, retired: ${retires}`).toEqual(free)
          expect(trips, 'a window is read with what is seen in it').toBeLessThan(6)
        })
      }
    }
  }
}, 60_000)

test('what a window of untouched space does not show is read before anything of it is handed out', async () => {
  const network = await freshNetwork(ledger)
  // A gap between any two of them: pieces of one address.
  const odd = Array.from({ length: 60 }, (_, index) => `10.0.0.${2 * index + 2}`)
  await ledger.accept(
    createPool({ name: 'a', cidr: '10.0.0.0/20', cooldownMs: LONG, exclude: odd }, { network }),
  )
  await register(intake, network, 's')
  const eye = createEye(intake, network, 's')
  const live = Array.from({ length: 700 }, (_, index) => `10.0.${index >> 8}.${index & 255}`)
  await eye.look(live.map((address) => ({ address })))
  await inBatch(network, async ({ books }, read) => {
    const first = () => {
      for (const address of candidates(books, books.pools.values().next().value!)) return address
      return undefined
    }
    await read({ what: 'candidates', pool: 'a', ranges: 1, released: 1 })
    const { result, trips } = await decided(read, first)
    expect(result).toBe('10.0.2.188')
    expect(trips).toBeLessThan(4)
  })
})

test('of a source that is retired nothing counts, though its sightings have not ended yet', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/29', cooldownMs: LONG }, { network }))
  for (const id of ['stays', 'goes']) {
    await register(intake, network, id)
    await createEye(intake, network, id).look([{ address: id === 'goes' ? '10.0.0.1' : '10.0.0.2' }])
  }
  const read = () =>
    inBatch(network, async ({ books }, reading) => {
      const place = { address: '10.0.0.1', prefixLength: 32 } as const
      await reading(
        { what: 'candidates', pool: 'a', ranges: 1, released: 1 },
        { what: 'sightings', ...place },
      )
      const book = books.pools.values().next().value!
      const [first] = (await decided(reading, () => [...candidates(books, book)])).result
      return { first, live: books.sightings.get(placeKey(place.address, place.prefixLength))!.live.length }
    })
  expect(await read()).toEqual({ first: '10.0.0.3', live: 1 })
  // As far as a call gets that is interrupted.
  await intake.database.query(
    `update ipledger.source set state = 'RETIRED', retired_at = now(), retired_by = 'test'
      where network_id = $1 and source_id = 'goes'`,
    [network],
  )
  expect(await read()).toEqual({ first: '10.0.0.1', live: 0 })
})

test('a slow source makes everything cool for as long as two of its reports, until it is retired', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 1_000 }, { network }))
  await register(intake, network, 'slow', { intervalMs: 600_000 })
  await register(intake, network, 'fast', { intervalMs: 5_000 })
  const cooling = () =>
    inBatch(network, async ({ books }, read) => {
      await read({ what: 'pool', name: 'a' })
      return cooldownOf(books, books.pools.values().next().value!.pool)
    })
  expect(await cooling()).toBe(1_200_000)
  settled(await retireSource(intake.database, { network, id: 'slow', by: 'test' }))
  expect(await cooling()).toBe(10_000)
  settled(await retireSource(intake.database, { network, id: 'fast', by: 'test' }))
  expect(await cooling()).toBe(1_000)
})

test('a fence is not waited for by a STRICT pool, whether it is stored or of this batch', async () => {
  const network = await freshNetwork(ledger)
  for (const node of ['n1', 'n2']) {
    await register(intake, network, `agent-${node}`, { node })
    settled(await enableSource(intake.database, { network, id: `agent-${node}`, by: 'test' }))
    const eye = createEye(intake, network, `agent-${node}`)
    for (let looks = 0; looks < 2; looks += 1) {
      await eye.look([], { epoch: EPOCH, node, complete: node === 'n1' })
    }
  }
  const strict = (books: Books) => books.strictness.get('n1')
  await inBatch(network, async ({ books }, read) => {
    await read({ what: 'strictness', node: 'n1' })
    expect(strict(books)).toMatchObject({ unreported: ['agent-n2'] })
    const seq = books.head + 1
    const fence = { node: 'n2', boot: EPOCH, seq, head: seq, at: books.now, by: 'ops', why: 'off' }
    books.fences.set(bootKey('n2', EPOCH), fence)
    books.strictness.clear()
    await read({ what: 'strictness', node: 'n1' })
    expect(strict(books)).toMatchObject({ sources: 1, unreported: [], asking: [{ source: 'agent-n1' }] })
  })
  await ledger.accept(fenceNode('n2', EPOCH, { network }))
  await inBatch(network, async ({ books }, read) => {
    await read({ what: 'strictness', node: 'n1' }, { what: 'strictness', node: 'n2' })
    expect(strict(books)).toMatchObject({ sources: 1, unreported: [] })
    expect(books.strictness.get('n2')!.asking).toEqual([])
  })
})

test('closed lives of a workload are found by its uid, with all their closings', async () => {
  const network = await freshNetwork(ledger)
  for (const name of ['a', 'b']) {
    const cidr = name === 'a' ? '10.0.0.0/24' : '10.1.0.0/24'
    await ledger.accept(createPool({ name, cidr }, { network }))
  }
  const life = (incarnation: string, uid = 'u') => owner({ name: 'web', uid, incarnation })
  for (const [who, pool] of [
    [life('1'), 'a'],
    [life('2'), 'b'],
    [life('1', 'other'), 'a'],
  ] as const) {
    const lease = await ledger.take(reserve({ network, owner: who, claims: [claim({ pool })] }))
    await ledger.accept(release(lease.fencingToken, { network }))
  }
  const { closings } = await foldOf(service, network)
  await inBatch(network, async ({ books }, read) => {
    await read({ what: 'closedLives', kind: 'pod', uid: 'u' }, { what: 'closedLives', kind: 'vm', uid: 'u' })
    const found = books.closedLives.get(workloadKey('pod', 'u'))!
    expect([...found.keys()].sort()).toEqual([life('1'), life('2')].map(attachmentKey).sort())
    expect(books.closedLives.get(workloadKey('vm', 'u'))!.size).toBe(0)
    for (const key of found.keys()) expect(books.closings.get(key), key).toEqual(closings.get(key))
  })
})

test('of a fenced boot is read when that boot reported last, and not another one of its node (6.3)', async () => {
  const network = await freshNetwork(ledger)
  await register(intake, network, 'agent', { node: 'n1' })
  const eye = createEye(intake, network, 'agent')
  const reported = async (epoch: string) =>
    (await eye.look([], { epoch, node: 'n1' })).source.standing.lastBegunAt
  const first = await reported('b1')
  const second = await reported('b2')
  expect(second).toBeGreaterThan(first!)
  const boots = ['b1', 'b2', 'never']
  for (const boot of boots) await ledger.accept(fenceNode('n1', boot, { network }))
  await inBatch(network, async ({ books }, read) => {
    await read(...boots.map((boot) => ({ what: 'fence', node: 'n1', boot }) as const))
    expect(boots.map((boot) => books.fencedReports.get(bootKey('n1', boot)))).toEqual([first, second, null])
  })
})

test('what is read late of a batch is carried on with what the batch has changed', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  const web = owner({ name: 'web', uid: 'u', incarnation: '1' })
  const before = await ledger.take(reserve({ network, owner: web, claims: [claim({ pool: 'a' })] }))
  await inBatch(network, async ({ books, events }, read) => {
    const submit = async (command: Command) => {
      const decide = () => {
        const decision = decideCommand(books, command)
        if (decision.kind === 'missing') throw new Missing(decision.need, decision.alike)
        return decision
      }
      const { result } = await decided(read, decide)
      for (const event of result.events) {
        evolve(books, event)
        events.push(event)
      }
    }
    const seen = { ...reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ pool: 'a' })] }) }
    await submit({ ...seen, liveAddresses: ['10.0.0.2', '10.0.0.3'] })
    await submit(release(before.fencingToken, { network }))
    await submit(fenceNode('n1', 'b1', { network }))
    books.quarantinesBy.clear()
    const reaped = { type: 'lease.reaped', cause: 'PROVEN_ABSENT', seq: books.head, at: books.now } as const
    events.push({ ...reaped, evidence: { sources: ['s'] } } as unknown as LedgerEvent)
    await read(
      { what: 'absenceReaps', source: '' },
      { what: 'absenceReaps', source: 's' },
      { what: 'absenceReaps', source: 'other' },
      { what: 'heldLeases' },
      { what: 'quarantinesBy', actor: 'test' },
      { what: 'closedLives', kind: 'pod', uid: 'u' },
      { what: 'fence', node: 'n1', boot: 'b1' },
    )
    expect(books.heldLeases, 'one came, one went, two are set aside').toBe(3)
    expect(books.quarantinesBy.get('test')).toBe(2)
    expect(Object.fromEntries(books.absenceReaps)).toEqual({ '': 1, s: 1, other: 0 })
    expect([...books.closedLives.get(workloadKey('pod', 'u'))!.keys()]).toEqual([attachmentKey(web)])
    expect(books.fences.get(bootKey('n1', 'b1'))).toMatchObject({ seq: books.head })
  })
})

test('leases are counted among what a source lists live, each once, and as many entries as are asked for', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  await ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24', prefixLength: 28 }, { network }))
  for (let index = 0; index < 4; index += 1) {
    const claims = [claim({ pool: index < 3 ? 'a' : 'b' })]
    await ledger.take(reserve({ network, owner: owner({ name: `w${index}` }), claims }))
  }
  const listed = [
    ...['10.0.0.1', '10.0.0.2', '10.1.0.1', '10.1.0.15', '10.1.0.16', '10.0.0.9', '10.9.0.1', 'fd00::1'],
    ...['10.0.0.3 terminal', '10.0.0.3 vanished', '10.0.0.3 of another'],
  ]
  for (const [index, entry] of listed.entries()) {
    const [address, how] = entry.split(' ')
    await service.query(
      `insert into ipledger.sighting
         (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch, appeared_head,
          appeared_at, last_seen_at, vanished_sequence, vanished_head, vanished_at)
       values ($1, $2, $3, $4, 1, '', '', $5, $6, 'e1', 1, now(), $7, $8, $8, $7)`,
      [
        network,
        address,
        how === 'of' ? 'other' : 's',
        `k${index}`,
        how === 'terminal' ? 'terminal' : 'running',
        how !== 'terminal' && how !== 'vanished',
        how === 'vanished' ? new Date() : null,
        how === 'vanished' ? 2 : null,
      ],
    )
  }
  await inBatch(network, async ({ books }, read) => {
    await read({ what: 'leasesSeen', source: 's', upTo: 100 }, { what: 'leasesSeen', source: 'no', upTo: 5 })
    // Two addresses and one block; those that ended are entries, too.
    expect(books.leasesSeen.get('s')).toEqual({ upTo: 100, entries: 9, leases: 3 })
    expect(books.leasesSeen.get('no')).toEqual({ upTo: 5, entries: 0, leases: 0 })
    await read({ what: 'leasesSeen', source: 's', upTo: 1 })
    expect(books.leasesSeen.get('s')).toEqual({ upTo: 1, entries: 1, leases: 1 })
  })
})

test('all leases of the network are counted, over all its pools', async () => {
  const network = await freshNetwork(ledger)
  const held = () =>
    inBatch(network, async ({ books }, read) => {
      await read({ what: 'heldLeases' })
      return books.heldLeases
    })
  expect(await held()).toBe(0)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  await ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network }))
  for (let index = 0; index < 5; index += 1) {
    const who = owner({ name: `w${index}` })
    await ledger.take(reserve({ network, owner: who, claims: [claim({ pool: index < 2 ? 'a' : 'b' })] }))
  }
  await ledger.accept(updatePool('a', { draining: true }, { network }))
  expect(await held()).toBe(5)
})

test('a thousand addresses are placed in their pools by one statement', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
  await ledger.accept(createPool({ name: 'b', cidr: 'fd00::/64' }, { network }))
  await inBatch(network, async (slice, read) => {
    const addresses = Array.from({ length: 1_000 }, (_, index) =>
      index % 3 === 0
        ? `10.0.0.${index % 256}`
        : index % 3 === 1
          ? `fd00::${index.toString(16)}`
          : `10.9.9.${index % 256}`,
    )
    const needs = addresses.map((address): Need => ({ what: 'poolAt', address }))
    expect(askFor(slice, needs)).toHaveLength(1)
    await read(...needs)
    const names = (address: string) => {
      const id = slice.books.poolsAt.get(address)
      return id == null ? id : slice.books.pools.get(id)!.pool.name
    }
    for (const [index, address] of addresses.entries())
      expect(names(address), address).toBe(index % 3 === 0 ? 'a' : index % 3 === 1 ? 'b' : null)
  })
})
