/** What every log keeps, PostgreSQL's and the simulator's: the loop rests on it. */
import assert from 'node:assert/strict'
import { afterAll, beforeAll, describe, test } from 'vitest'
import { type Command, type PoolChange, requestName } from '../../src/core/command.ts'
import { attachmentKey } from '../../src/core/owner.ts'
import { buildImage } from '../../src/ledger/build-image.ts'
import { NO_DIGEST, textOf } from '../../src/ledger/event-text.ts'
import type { Log, Write } from '../../src/ledger/log.ts'
import type { Prefetch } from '../../src/ledger/prefetch.ts'
import { command, enable, lists, newScene, owner, pool, register, release, reserve } from '../core/given.ts'
import { canonical } from '../support/canonical.ts'
import { createWriter, NOTHING, type Writer } from './writer.ts'

const R = requestName('', 'r')

type Logs = {
  /** Another client of the same database at each call. */
  connect(): Log
  close(): Promise<void>
}

const EMPTY: Write = {
  events: [],
  records: [],
  pools: [],
  network: null,
  sources: [],
  freshness: [],
  sightings: new Map(),
  requests: [],
}

export function logContract(name: string, open: () => Promise<Logs>): void {
  describe(`the contract of a log: ${name}`, () => {
    let logs: Logs
    let made = 0
    beforeAll(async () => {
      logs = await open()
    })
    afterAll(() => logs.close())

    const at = (network: string) => (step: () => Command) => ({ ...step(), network })
    /** A network of its own with a pool /24; the writer and a client beside it. */
    async function network(...more: readonly (() => Command)[]) {
      made += 1
      const id = `net-${made}`
      const of = at(id)
      const writer = createWriter(logs.connect(), id)
      await writer.write(
        of(command({ type: 'createNetwork', settings: { description: '', labels: {} } })),
        of(pool('10.0.0.0/24')),
        ...more.map(of),
      )
      return { id, of, writer }
    }
    const begin = (
      log: Log,
      id: string,
      after: number,
      prefetch: Partial<Prefetch> = {},
      expectedSeq: number | null = null,
    ) => log.begin(id, { after, prefetch: { ...NOTHING, ...prefetch }, creates: false, expectedSeq })

    test('a network that is not there has an empty log', async () => {
      const transaction = await begin(logs.connect(), 'nowhere', 0)
      const { digest, tail, isCut } = transaction.caught
      assert.deepEqual({ digest, tail, isCut }, { digest: NO_DIGEST, tail: [], isCut: false })
      await transaction.abandon()
    })

    test('what was committed is the tail, as it was written', async () => {
      const { id, writer } = await network(reserve('a/1', { labels: { x: '1' } }))
      const transaction = await begin(logs.connect(), id, 0)
      const { tail, isCut } = transaction.caught
      await transaction.abandon()
      assert.deepEqual([tail.map(({ event }) => event.seq), isCut], [[1, 2, 3], false])
      assert.equal(tail.at(-1)!.digest, writer.image.digest)
      const last = tail.at(-1)!.event
      assert.ok('record' in last)
      assert.deepEqual(last.record, writer.image.records.get('10.0.0.1'))
    })

    test('the digest tells whether a number is in the log', async () => {
      const { id, writer } = await network()
      const there = await begin(logs.connect(), id, 2, {}, 1)
      await there.abandon()
      assert.equal(there.caught.digest, writer.image.digest)
      assert.match(there.caught.expectedDigest!, /^[0-9a-f]{64}$/)
      assert.deepEqual(there.caught.tail, [])
      const beyond = await begin(logs.connect(), id, 9, {}, 8)
      await beyond.abandon()
      assert.deepEqual([beyond.caught.digest, beyond.caught.expectedDigest], [null, null])
    })

    test('the lock orders writers: who waits sees what the other wrote', async () => {
      const { id, of, writer } = await network()
      const first = await writer.prepare(of(reserve('a/1')))
      let isLocked = false
      const second = begin(logs.connect(), id, 2).then((transaction) => {
        isLocked = true
        return transaction
      })
      await new Promise((resolve) => setTimeout(resolve, 20))
      assert.equal(isLocked, false)
      await first.transaction.commit(first.write)
      const { caught, abandon } = await second
      assert.deepEqual(
        caught.tail.map(({ event }) => event.seq),
        [3],
      )
      await abandon()
    })

    test('a transaction that is abandoned leaves nothing, and the lock', async () => {
      const { id, of, writer } = await network()
      const { transaction } = await writer.prepare(of(reserve('a/1')))
      await transaction.abandon()
      await transaction.abandon()
      const next = await begin(logs.connect(), id, 2)
      assert.deepEqual(next.caught.tail, [])
      await next.abandon()
    })

    test('networks do not wait for each other', async () => {
      const one = await network()
      const other = await network()
      const held = await begin(logs.connect(), one.id, 2)
      await other.writer.write(other.of(reserve('a/1')))
      await held.abandon()
    })

    test('a transaction without a write commits', async () => {
      const { id } = await network()
      const transaction = await begin(logs.connect(), id, 2)
      assert.deepEqual(await transaction.commit(EMPTY), { kind: 'committed', isWarned: false })
    })

    /** Another writes meanwhile, and this one goes on from what it knew. */
    async function stale(mine: () => Command, theirs: () => Command) {
      const { id, of, writer } = await network()
      const other = createWriter(logs.connect(), id)
      await other.write(of(theirs))
      const { transaction, write } = await writer.prepareStale(of(mine))
      return { id, of, other, transaction, write }
    }

    async function unchanged(other: Writer): Promise<void> {
      const { name, head } = other.image
      const transaction = await begin(logs.connect(), name, head)
      const { digest, tail } = transaction.caught
      assert.deepEqual({ digest, tail }, { digest: other.image.digest, tail: [] })
      await transaction.abandon()
      const loaded = await logs
        .connect()
        .load(other.image.name, (found) => buildImage(other.image.name, found, Infinity))
      assert.deepEqual(canonical(loaded, loaded.at), canonical(other.image, loaded.at))
    }

    test('a number is given once', async () => {
      const { transaction, write, other } = await stale(
        reserve('b/1', { requestId: 'r', fingerprint: 'f' }),
        reserve('a/1'),
      )
      const committed = await transaction.commit(write)
      assert.ok(committed.kind === 'vetoed')
      await unchanged(other)
      const asked = await begin(logs.connect(), other.image.name, 3, { requests: new Map([[R.key, R]]) })
      assert.equal(asked.caught.known.requests.size, 0, 'all or nothing: no request is remembered')
      await asked.abandon()
    })

    /** With numbers that nobody has given yet. */
    const renumbered = (write: Write, id: string): Write => ({
      ...write,
      events: write.events.map(({ event: before, digest }) => {
        const event =
          'record' in before
            ? { ...before, seq: 9, record: { ...before.record, seq: 9 } }
            : { ...before, seq: 9 }
        return { event, digest, text: textOf(id, event) }
      }),
    })

    const change = (to: PoolChange) =>
      command({ type: 'updatePool', name: 'pool', version: null, change: to })

    test.each([
      ['the history of an address never forks', reserve('b/1'), reserve('a/1')],
      ['the name of a pool is taken once', change({ name: 'x' }), pool('10.9.0.0/24', { name: 'x' })],
      ['pools never overlap', change({ cidr: '10.0.0.0/8' }), pool('10.9.0.0/24', { name: 'x' })],
    ])('%s, whatever the number', async (_, mine, theirs) => {
      const { transaction, write, other } = await stale(mine, theirs)
      const committed = await transaction.commit(renumbered(write, other.image.name))
      assert.ok(committed.kind === 'vetoed')
      await unchanged(other)
    })

    test('a source lists an owner at an address once', async () => {
      const { of, writer } = await network(register('agent'))
      const { write, transaction } = await writer.prepare(
        of(() => lists('agent', ['a/1@10.0.0.1'])({ ...newScene(), image: writer.image })),
      )
      const sightings = new Map([...write.sightings].map(([address, all]) => [address, [...all, ...all]]))
      const committed = await transaction.commit({ ...write, sightings })
      assert.ok(committed.kind === 'vetoed')
    })

    test('a request has one answer: of a later one, that', async () => {
      const { id, of, writer } = await network()
      const { write, transaction } = await writer.prepare(
        of(reserve('a/1', { requestId: 'r', fingerprint: 'f' })),
      )
      await transaction.commit(write)
      const again = await begin(logs.connect(), id, 3)
      const requests = write.requests.map((request) => ({ ...request, fingerprint: 'g' }))
      assert.equal((await again.commit({ ...EMPTY, requests })).kind, 'committed')
      const { caught, abandon } = await begin(logs.connect(), id, 3, { requests: new Map([[R.key, R]]) })
      assert.equal(caught.known.requests.get(R.key)!.fingerprint, 'g')
      await abandon()
    })

    test('an image that is loaded is the image that was written', async () => {
      const scene = newScene()
      const { id, of, writer } = await network(
        register('agent'),
        enable('agent'),
        reserve('a/1'),
        reserve('b/1'),
      )
      const list = async (...entries: readonly string[]) => {
        Object.assign(scene, { image: writer.image, now: writer.image.at })
        const listed = { ...lists('agent', entries)(scene), network: id }
        await writer.write(listed)
        const row = await begin(logs.connect(), id, writer.image.head, { sources: new Set(['agent']) })
        scene.freshness.set('agent', row.caught.known.freshness.get('agent')!)
        await row.abandon()
      }
      await list('a/1@10.0.0.1')
      await list('a/1@10.0.0.1')
      await list('a/1@10.0.0.1', '?@10.0.0.9', 'x/1@10.0.0.2!')
      await list('a/1@10.0.0.1!', 'x/1@10.0.0.8')
      await writer.write(of(release('b/1')), of(release('c/1')), of(pool('10.1.0.0/24', { name: 'other' })))
      await writer.write(
        of(
          command({
            type: 'createPool',
            pool: { name: 'blocks', cidr: '10.2.0.0/24', prefixLength: 28, labels: { a: 'b' } },
          }),
        ),
        of(command({ type: 'hold', hold: 'SOURCE_AHEAD', why: 'so' })),
        of(command({ type: 'quarantine', target: { address: '10.0.0.77' }, why: 'so' })),
        of(command({ type: 'beginEra', above: 0, recovering: true, why: 'so' })),
      )
      await unchanged(writer)
      assert.equal(scene.freshness.get('agent')!.warm, true)
    })

    test('what a batch needs is read with it: requests, endings, freshness, look-ups', async () => {
      const { id, of, writer } = await network(
        reserve('a/1', { requestId: 'r', fingerprint: 'f' }),
        register('agent'),
      )
      await writer.write(of(release('a/1')))
      await writer.write(of(reserve('a/2', { claims: [{ address: '10.0.0.1' }] })))
      const names = [R, requestName('', 'never'), requestName('n1', 'r')]
      const tokens = [3, 4, writer.image.records.get('10.0.0.1')!.token]
      const owners = ['a/1', 'never/1'].map((one) => [attachmentKey(owner(one)), owner(one)] as const)
      const needs = {
        requests: new Map(names.map((name) => [name.key, name])),
        tokens: new Set(tokens),
        owners: new Map(owners),
        sources: new Set(['agent']),
        lookUps: new Set(['10.0.0.1']),
      }
      const transaction = await begin(logs.connect(), id, writer.image.head, needs)
      const { known } = transaction.caught
      assert.deepEqual([...known.requests.keys()], [R.key])
      const { answer, method, fingerprint } = known.requests.get(R.key)!
      assert.deepEqual([method, fingerprint, answer.leases[0]!.address], ['Reserve', 'f', '10.0.0.1'])
      assert.deepEqual(
        tokens.map((token) => known.endedByToken.get(token)?.ended ?? null),
        ['RELEASED', null, null],
      )
      assert.deepEqual(
        owners.map(([key]) => known.endedByOwner.get(key)!.map(({ token }) => token)),
        [[3], []],
      )
      assert.deepEqual([known.freshness.get('agent'), known.lookUps.get('10.0.0.1')], [null, []])
      const more = await transaction.know({ ...NOTHING, tokens: new Set([3]) })
      assert.equal(more.endedByToken.get(3)!.address, '10.0.0.1')
      await transaction.abandon()
    })

    test('a long tail comes in pages: the first under the lock, the others without', async () => {
      const count = 2_500
      const { id, of, writer } = await network()
      const big = of(command({ type: 'createPool', pool: { name: 'big', cidr: '10.64.0.0/16' } }))
      const claims = [{ pools: ['big'] }]
      await writer.write(big, ...Array.from({ length: count }, (_, i) => of(reserve(`w${i}/1`, { claims }))))
      const numbers = async (log: Log, found: number[] = []) => {
        for (let isCut = true; isCut; ) {
          const page = await log.tail(id, found.at(-1) ?? 0)
          found.push(...page.tail.map(({ event }) => event.seq))
          ;({ isCut } = page)
        }
        return found
      }
      const all = Array.from({ length: count + 3 }, (_, i) => i + 1)
      const log = logs.connect()
      assert.deepEqual(await numbers(log), all)
      const { caught, abandon } = await begin(log, id, 0)
      assert.ok(caught.isCut)
      const first = caught.tail.map(({ event }) => event.seq)
      assert.deepEqual(first, all.slice(0, first.length))
      assert.deepEqual(await numbers(log, first), all)
      await abandon()
    })

    test('the clock is in whole milliseconds', async () => {
      const clock = await logs.connect().clock()
      assert.equal(clock, Math.floor(clock))
      assert.ok(clock > 1_700_000_000_000)
    })
  })
}
