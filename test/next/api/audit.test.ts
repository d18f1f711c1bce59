/** AuditService: who had it, why, how it was, and whether the books are in order. */
import { timestampDate, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { beforeAll, describe, expect, test } from 'vitest'
import { isMalformed, parseCidr } from '../../../src/next/core/address.ts'
import {
  AuditService,
  type GetAddressHistoryResponse,
  type HistoryEntry,
  type Holder,
} from '../../../src/next/gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../../../src/next/gen/ipledger/v1/lease_pb.ts'
import { NetworkService } from '../../../src/next/gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../../../src/next/gen/ipledger/v1/pool_pb.ts'
import {
  type Lease,
  LeaseStateSchema,
  QuarantineReasonSchema,
  Removal,
} from '../../../src/next/gen/ipledger/v1/types_pb.ts'
import { type HistoryPage, MOST_MERGED } from '../../../src/next/ledger/read-audit.ts'
import { verifyBriefly } from '../../../src/next/ledger/verify-briefly.ts'
import { withClient } from '../support/database.ts'
import { seededRandom } from '../support/random.ts'
import { clientOf, post, told, useServer } from './running.ts'

const running = await useServer()
const leases = clientOf(LeaseService, running, 'connect binary')
const pools = clientOf(PoolService, running, 'connect binary')
const networks = clientOf(NetworkService, running, 'connect binary')
const audit = clientOf(AuditService, running, 'connect binary')

type Asked<F extends (request: never, ...rest: never[]) => unknown> = Parameters<F>[0]

/** Every page of a list. */
async function walk<P extends { nextPageToken: string }>(
  get: (pageToken: string) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = []
  for (let pageToken = ''; ; ) {
    const page = await get(pageToken)
    pages.push(page)
    pageToken = page.nextPageToken
    if (pageToken === '') return pages
    if (pages.length > 5_000) throw new Error('the list does not end')
  }
}

const historyPages = (asked: Asked<typeof audit.getAddressHistory>) =>
  walk((pageToken) => audit.getAddressHistory({ ...asked, pageToken }))
const seqsOf = (entries: readonly HistoryEntry[]) => entries.map(({ event }) => Number(event!.seq))

/** Each once, oldest first. */
function holdersOf(pages: readonly GetAddressHistoryResponse[]): readonly Holder[] {
  const found = new Map(pages.flatMap((page) => page.holders.map((one) => [Number(one.fromSeq), one])))
  return [...found.values()].sort((one, other) => Number(one.fromSeq - other.fromSeq))
}

/** `default/3 web-0 3-5 RESERVED@3 ACTIVE@4` */
function spanOf({ leaseId, owner, fromSeq, untilSeq, states }: Holder): string {
  const until = untilSeq === 0n ? '' : untilSeq
  const shown = states.map(({ state, quarantineReason, seq }) => {
    const reason = quarantineReason === 0 ? '' : ` ${QuarantineReasonSchema.value[quarantineReason]!.name}`
    return `${LeaseStateSchema.value[state]!.name}${reason}@${seq}`
  })
  return `${leaseId} ${owner?.name ?? 'nobody'} ${fromSeq}-${until} ${shown.join(' ')}`
}

const pod = (name: string, more: object = {}) => ({ kind: 'pod', name, incarnation: '1', ...more })

describe('a story', () => {
  const network = 'story'
  const address = '10.8.64.2'
  let first: Lease
  let second: Lease

  beforeAll(async () => {
    await networks.createNetwork({ name: network })
    await pools.createPool({ network, name: 'web', cidr: '10.8.64.0/24', cooldown: { seconds: 0n } })
    const claims = [{ pools: ['web'], address }]
    first = (await leases.reserve({ network, owner: pod('web-0', { node: 'n1' }), claims })).leases[0]!
    await leases.confirm({ leaseId: first.leaseId })
    await leases.release({ leaseId: first.leaseId, requestId: 'bye' })
    second = (await leases.reserve({ network, owner: pod('web-1'), claims, confirmed: true })).leases[0]!
    await leases.quarantine({ network, address, why: 'answers ping twice' })
    // Its holder gives it back, and it stays where the operator put it.
    await leases.release({ leaseId: second.leaseId })
    const { lease } = await leases.getLease({ leaseId: second.leaseId })
    await leases.reap({ leaseId: second.leaseId, version: lease!.version, why: 'cable was pulled' })
  })

  test('of an address: its events in sentences, and who held it over which span', async () => {
    const { entries, holders, head, nextPageToken } = await audit.getAddressHistory({ network, address })
    expect(nextPageToken).toBe('')
    expect(head).toBe(11n)
    expect(entries.map(({ event }) => [Number(event!.seq), event!.type, event!.lease?.leaseId])).toEqual([
      [3, 'lease.reserved', 'story/3'],
      [4, 'lease.confirmed', 'story/3'],
      [5, 'lease.released', 'story/3'],
      [7, 'lease.reserved', 'story/7'],
      [8, 'lease.quarantined', 'story/7'],
      [9, 'lease.quarantined', 'story/7'],
      [11, 'lease.reaped', 'story/7'],
    ])
    expect(entries[0]!.what).toMatch(
      /^10\.8\.64\.2 of pool web \(lease story\/3\) was reserved for pod web-0/,
    )
    expect(entries[0]!.what).toContain('on node n1')
    expect(entries[4]!.what).toContain('answers ping twice')
    expect(entries[6]!.what).toContain('cable was pulled')
    expect(entries[2]!.event!.requestId).toBe('bye')
    expect(holders.map(spanOf)).toEqual([
      'story/3 web-0 3-5 RESERVED@3 ACTIVE@4',
      'story/7 web-1 7-9 ACTIVE@7 QUARANTINED OPERATOR@8',
      'story/7 nobody 9-11 QUARANTINED OPERATOR@9',
    ])
    const [one, two, three] = holders
    expect(one).toMatchObject({
      address,
      prefixLength: 32,
      pool: 'web',
      beganAs: 'lease.reserved/Reserve',
      endedAs: 'lease.released/Release',
      owner: { node: 'n1', incarnation: '1', interface: 'eth0' },
    })
    expect(one!.availableAt).toEqual(one!.untilTime)
    expect(one!.fromTime).toEqual(entries[0]!.event!.time)
    expect(two!.availableAt).toBeUndefined()
    expect(three!.owner).toBeUndefined()
    expect(three!.endedAs).toBe('lease.reaped/Reap')
  })

  test('of a lease, whole and by pages, up and down', async () => {
    const { entries, holders } = await audit.getLeaseHistory({ leaseId: 'story/7' })
    expect(seqsOf(entries)).toEqual([7, 8, 9, 11])
    expect(holders.map(spanOf)).toEqual([
      'story/7 web-1 7-9 ACTIVE@7 QUARANTINED OPERATOR@8',
      'story/7 nobody 9-11 QUARANTINED OPERATOR@9',
    ])
    for (const descending of [false, true]) {
      for (const pageSize of [1, 2, 3]) {
        const pages = await walk((pageToken) =>
          audit.getLeaseHistory({ leaseId: 'story/7', pageSize, descending, pageToken }),
        )
        const expected = descending ? [11, 9, 8, 7] : [7, 8, 9, 11]
        expect(pages.flatMap((page) => seqsOf(page.entries))).toEqual(expected)
        expect(pages.every((page) => page.holders.length === 2)).toBe(true)
      }
    }
  })

  test('by numbers and by times, both ends of a time included', async () => {
    const all = (await audit.getAddressHistory({ network, address })).entries
    const at = (seq: number) => all.find(({ event }) => event!.seq === BigInt(seq))!.event!.time!
    const asked = async (fields: Asked<typeof audit.getAddressHistory>) =>
      seqsOf((await audit.getAddressHistory({ network, address, ...fields })).entries)
    expect(await asked({ afterSeq: 4n, beforeSeq: 9n })).toEqual([5, 7, 8])
    const times = all.map(({ event }) => timestampDate(event!.time!).getTime())
    const between = (from: number, to: number) =>
      all
        .filter((_, index) => times[index]! >= from && times[index]! <= to)
        .map(({ event }) => Number(event!.seq))
    const [from, to] = [at(4), at(8)]
    expect(await asked({ from, to })).toEqual(
      between(timestampDate(from).getTime(), timestampDate(to).getTime()),
    )
    expect(await asked({ from, to })).toEqual(expect.arrayContaining([4, 5, 7, 8]))
    expect(await asked({ from: timestampFromMs(Date.now() + 3_600_000) })).toEqual([])
    expect(await asked({ to: timestampFromMs(0) })).toEqual([])
    expect(await asked({ to: timestampFromMs(Date.now() + 3_600_000) })).toHaveLength(7)
  })

  test('whoever held throughout is named where nothing happened', async () => {
    const { entries, holders } = await audit.getAddressHistory({
      network,
      address,
      afterSeq: 4n,
      beforeSeq: 5n,
    })
    expect(entries).toEqual([])
    expect(holders.map(spanOf)).toEqual(['story/3 web-0 3-5 RESERVED@3 ACTIVE@4'])
    expect(
      (await audit.getAddressHistory({ network, address, afterSeq: 5n, beforeSeq: 7n })).holders,
    ).toEqual([])
    const inCidr = await audit.getAddressHistory({
      network,
      cidr: '10.8.64.0/28',
      afterSeq: 8n,
      beforeSeq: 9n,
    })
    expect(inCidr.holders.map((one) => one.leaseId)).toEqual(['story/7'])
  })

  test('explained: what it is, and the events that led there', async () => {
    const states = async (asked: object) => (await audit.explainAddress({ network, address, ...asked })).state
    expect(await states({ seq: 0n })).toBe('OUTSIDE')
    expect(await states({ seq: 2n })).toBe('FREE')
    expect(await states({ seq: 3n })).toBe('RESERVED')
    expect(await states({ seq: 4n })).toBe('ACTIVE')
    expect(await states({ seq: 8n })).toBe('QUARANTINED')
    expect(await states({})).toBe('FREE')
    expect(await states({ address: '10.8.64.0' })).toBe('EXCLUDED')
    expect(await states({ address: '10.9.0.1' })).toBe('OUTSIDE')
    const now = await audit.explainAddress({ network, address })
    expect(now.seq).toBe(now.head)
    expect(now.answer).toContain('10.8.64.2 of pool web')
    expect(now.answer).toContain('lease story/7')
    expect(now.steps.map((step) => Number(step.seq))).toEqual([3, 4, 5, 7, 8, 9, 11])
    expect(now.steps.at(-1)!.what).toContain('cable was pulled')
    expect(now.steps.at(-1)!.evidence).toMatchObject({ why: 'cable was pulled' })
    const then = await audit.explainAddress({ network, address, seq: 4n })
    expect(then).toMatchObject({ state: 'ACTIVE', seq: 4n })
    expect(then.answer).toContain('lease story/3 is ACTIVE for pod web-0')
    expect(then.steps.map((step) => Number(step.seq))).toEqual([3, 4])
    const future = await audit.explainAddress({
      network,
      address,
      time: timestampFromMs(Date.now() + 10 ** 9),
    })
    expect(future.seq).toBe(future.head)
    expect(timestampDate(future.time!).getTime()).toBeLessThan(Date.now() + 60_000)
    const before = await audit.explainAddress({ network, address, time: timestampFromMs(0) })
    expect(before).toMatchObject({ state: 'OUTSIDE', seq: 0n, steps: [] })
  })

  test('a number tells apart what happened at one time', async () => {
    const claims = [{ pools: ['web'], address: '10.8.64.9' }]
    const owner = (incarnation: string) => ({ kind: 'pod', name: 'same', uid: 'u', incarnation })
    const [old] = (await leases.reserve({ network, owner: owner('1'), claims, confirmed: true })).leases
    const [young] = (
      await leases.reserve({
        network,
        owner: owner('2'),
        claims,
        supersedes: { uid: 'u', incarnation: '1', removal: Removal.CONFIRMED },
      })
    ).leases
    expect(young!.address).toBe('10.8.64.9')
    const { entries } = await audit.getAddressHistory({ network, address: '10.8.64.9' })
    const released = entries.find(({ event }) => event!.type === 'lease.released')!.event!
    const reserved = entries.at(-1)!.event!
    expect(reserved.time).toEqual(released.time)
    const asked = { network, address: '10.8.64.9' }
    expect((await audit.explainAddress({ ...asked, seq: released.seq })).answer).toContain(old!.leaseId)
    expect((await audit.explainAddress({ ...asked, seq: released.seq })).state).toBe('FREE')
    expect((await audit.explainAddress({ ...asked, time: released.time! })).answer).toContain(young!.leaseId)
  })
})

describe('much happened', () => {
  const network = 'busy'
  const random = seededRandom()
  console.log(`seed ${random.seed}`)
  let all: readonly Lease[]

  beforeAll(async () => {
    await networks.createNetwork({ name: network })
    for (const [name, cidr, prefixLength] of [
      ['web', '10.0.0.0/27', 32],
      ['nets', '10.1.0.0/24', 28],
      ['six', 'fd00::/123', 128],
    ] as const) {
      await pools.createPool({
        network,
        name,
        cidr,
        prefixLength,
        ownerLimit: 100,
        cooldown: { seconds: 0n },
      })
    }
    const held: Lease[] = []
    for (let turn = 0; turn < 150; turn++) {
      const many = held.length > 20 || (held.length > 5 && random.chance(0.5))
      if (many) {
        const [lease] = held.splice(random.below(held.length), 1)
        await leases.release({ leaseId: lease!.leaseId })
      } else {
        const pool = random.pick(['web', 'web', 'nets', 'six'])
        const owner = pod(`w-${turn}`)
        const { leases: made } = await leases.reserve({ network, owner, claims: [{ pools: [pool] }] })
        if (random.chance(0.5)) await leases.confirm({ leaseId: made[0]!.leaseId })
        held.push(...made)
      }
    }
    for (const pool of ['web', 'nets', 'six']) {
      const { leases: made } = await leases.reserve({
        network,
        owner: pod('last'),
        claims: [{ pools: [pool] }],
      })
      held.push(...made)
    }
    all = held
  }, 60_000)

  const PLACES = [
    { address: '10.0.0.2' },
    { address: '10.1.0.37' },
    { address: 'fd00::3' },
    { cidr: '10.0.0.0/29' },
    { cidr: '10.0.0.3/32' },
    { cidr: '10.1.0.40/30' },
    { cidr: '10.1.0.0/25' },
    { cidr: '10.0.0.0/8' },
    { cidr: '0.0.0.0/0' },
    { cidr: 'fd00::/64' },
    { cidr: '10.0.0.200/29' },
  ]
  test.each(PLACES)('%j: pages neither skip nor repeat, up and down', async (place) => {
    const expected = await walk((pageToken) =>
      audit.listEvents({ network, ...place, pageToken, pageSize: 1000 }),
    )
    const seqs = expected.flatMap((page) => page.events.map((one) => Number(one.seq)))
    const whole = await historyPages({ network, ...place, pageSize: 1000 })
    for (const pageSize of [1000, 17, 1]) {
      for (const descending of [false, true]) {
        const pages = await historyPages({ network, ...place, pageSize, descending })
        expect(pages.flatMap((page) => seqsOf(page.entries))).toEqual(descending ? seqs.toReversed() : seqs)
        expect(holdersOf(pages).map(spanOf)).toEqual(holdersOf(whole).map(spanOf))
      }
    }
    const reserved = whole
      .flatMap((page) => page.entries)
      .filter(({ event }) => event!.type === 'lease.reserved')
    expect(holdersOf(whole).map((one) => one.fromSeq)).toEqual(reserved.map(({ event }) => event!.seq))
  })

  test('a page that looked at all it may goes on where that ended', async () => {
    const range = { afterSeq: 0, beforeSeq: null, from: null, to: null }
    for (const text of ['10.0.0.0/24', '10.1.0.37/32', '10.0.0.3/32', 'fd00::/64']) {
      const cidr = parseCidr(text)
      if (isMalformed(cidr)) throw new Error(cidr.malformed)
      const { events } = await audit.listEvents({ network, cidr: text, pageSize: 1000 })
      const seqs = events.map((one) => Number(one.seq))
      for (const descending of [false, true]) {
        const found: number[] = []
        const holders = new Map<number, string>()
        let pages = 0
        for (let position: number | null = null; ; pages++) {
          // No more than one event of each address.
          const asked = { descending, size: 50, position, examined: 60 }
          const page: HistoryPage | null = await running.reads.addressHistory(network, cidr, range, asked)
          found.push(...page!.entries.map(({ event }) => event.seq))
          for (const { holder } of page!.holders) holders.set(holder.from.seq, holder.leaseId)
          position = page!.next
          if (position === null) break
        }
        expect(found).toEqual(descending ? seqs.toReversed() : seqs)
        expect(holders.size).toBe(events.filter((one) => one.type === 'lease.reserved').length)
        if (text === '10.0.0.0/24') expect(pages).toBeGreaterThan(3)
      }
    }
  })

  test('the holders of a stretch are those that the log has there', async () => {
    const { head } = await audit.listEvents({ network, pageSize: 1 })
    const holders = holdersOf(await historyPages({ network, cidr: '0.0.0.0/0', pageSize: 1000 }))
    for (let after = 20n; after < head; after += 37n) {
      const before = after + 9n
      const pages = await historyPages({
        network,
        cidr: '0.0.0.0/0',
        pageSize: 3,
        afterSeq: after,
        beforeSeq: before,
      })
      const there = holders.filter(
        (one) => one.fromSeq < before && (one.untilSeq === 0n || one.untilSeq > after),
      )
      expect(holdersOf(pages).map(spanOf)).toEqual(there.map(spanOf))
    }
  })

  test('as of a number: the leases of then, on all pages, whatever happens meanwhile', async () => {
    const { leases: now, head } = await leases.listLeases({ network, pageSize: 1000 })
    expect(now.map((one) => one.leaseId).sort()).toEqual(all.map((one) => one.leaseId).sort())
    const seen: Lease[] = []
    let pageToken = ''
    let turns = 0
    do {
      const page = await audit.listLeasesAsOf({ network, pageToken, pageSize: 3 })
      expect(page.seq).toBe(head)
      seen.push(...page.leases)
      pageToken = page.nextPageToken
      // The first is gone when the next page is read, and another is there.
      if (turns++ === 0) {
        await leases.release({ leaseId: page.leases[0]!.leaseId })
        await leases.reserve({ network, owner: pod('late'), claims: [{ pools: ['web'] }] })
      }
    } while (pageToken !== '')
    const bare = ({ options: _, ...lease }: Lease) => lease
    expect(seen.map(bare)).toEqual(now.map(bare))

    const byPool = async (pool: string, pageSize: number) =>
      (await walk((token) => audit.listLeasesAsOf({ network, seq: head, pool, pageSize, pageToken: token })))
        .flatMap((page) => page.leases)
        .map((one) => one.leaseId)
    for (const pool of ['web', 'nets', 'six']) {
      const wanted = now.filter((one) => one.pool === pool).map((one) => one.leaseId)
      expect(wanted.length).toBeGreaterThan(0)
      expect(await byPool(pool, 1000)).toEqual(wanted)
      expect(await byPool(pool, 2)).toEqual(wanted)
    }
  })

  test('as of a number, of one pool: a page that looked at all it may goes on where that ended', async () => {
    const { leases: now, head } = await leases.listLeases({ network, pageSize: 1000 })
    const wanted = now.filter((one) => one.pool === 'six').map((one) => one.address)
    const found: string[] = []
    let pages = 0
    for (let after: string | null = null; ; pages++) {
      const asked = { pool: 'six', after, size: 3, examined: 4 }
      const page = await running.reads.leasesAsOf(network, { seq: Number(head), at: null }, asked)
      if (page === null || 'beyond' in page) throw new Error('no page')
      found.push(...page.leases.map(({ lease }) => lease.address))
      after = page.next
      if (after === null) break
    }
    expect(found).toEqual(wanted)
    expect(pages).toBeGreaterThanOrEqual(Math.floor(now.length / 4))
  })

  test('as of a time, before the first event and in the future', async () => {
    const { events } = await audit.listEvents({ network, pageSize: 1000 })
    const some = events[100]!
    const last = events.findLast((one) => timestampDate(one.time!) <= timestampDate(some.time!))!
    const then = await audit.listLeasesAsOf({ network, time: some.time!, pageSize: 1000 })
    expect(then).toMatchObject({ seq: last.seq, time: some.time })
    expect(then.leases).toEqual(
      (await audit.listLeasesAsOf({ network, seq: last.seq, pageSize: 1000 })).leases,
    )
    expect(then.leases.length).toBeGreaterThan(0)
    const none = await audit.listLeasesAsOf({ network, time: timestampFromMs(0) })
    expect(none).toMatchObject({ leases: [], seq: 0n, nextPageToken: '' })
    expect(none.time).toBeUndefined()
    const future = await audit.listLeasesAsOf({ network, time: timestampFromMs(Date.now() + 10 ** 9) })
    expect(future.seq).toBe(future.head)
  })

  test('a pool that is gone is found by its name', async () => {
    await pools.createPool({ network, name: 'gone', cidr: '10.7.0.0/29', cooldown: { seconds: 0n } })
    const { leases: made } = await leases.reserve({
      network,
      owner: pod('gone'),
      claims: [{ pools: ['gone'] }],
    })
    const { seq } = await audit.listLeasesAsOf({ network, pageSize: 1 })
    await leases.release({ leaseId: made[0]!.leaseId })
    await pools.deletePool({ network, name: 'gone' })
    const then = await audit.listLeasesAsOf({ network, seq, pool: 'gone' })
    expect(then.leases.map((one) => [one.leaseId, one.pool, one.subnet])).toEqual([
      [made[0]!.leaseId, 'gone', ''],
    ])
  })

  test('of a CIDR with more addresses than are merged, the log is walked', { timeout: 60_000 }, async () => {
    await networks.createNetwork({ name: 'wide' })
    await pools.createPool({ network: 'wide', name: 'web', cidr: '10.0.0.0/16', ownerLimit: 10_000 })
    for (let made = 0; made <= MOST_MERGED; made += 500) {
      const requests = Array.from({ length: 500 }, (_, index) => ({
        owner: pod(`w-${made + index}`),
        claims: [{ pools: ['web'] }],
      }))
      await leases.batchReserve({ network: 'wide', requests })
    }
    const pages = await historyPages({ network: 'wide', cidr: '10.0.0.0/16', pageSize: 1000 })
    const seqs = pages.flatMap((page) => seqsOf(page.entries))
    expect(seqs).toEqual(Array.from({ length: 1500 }, (_, index) => index + 3))
    expect(holdersOf(pages)).toHaveLength(1500)
  })
})

describe('what is wrong is said', () => {
  const refused = async (method: string, body: object) =>
    told(await post(running, `AuditService/${method}`, body))

  test.each([
    ['GetAddressHistory', {}, 'INVALID_FIELD', 'address'],
    ['GetAddressHistory', { address: '10.0.0.1', cidr: '10.0.0.0/8' }, 'INVALID_FIELD', 'cidr'],
    ['GetAddressHistory', { address: '10.0.0.300' }, 'INVALID_FIELD', 'address'],
    ['GetAddressHistory', { address: '10.0.0.0/24' }, 'INVALID_FIELD', 'address'],
    ['GetAddressHistory', { cidr: '10.0.0.1/24' }, 'INVALID_FIELD', 'cidr'],
    ['GetAddressHistory', { address: '10.0.0.1', pageSize: 1001 }, 'INVALID_FIELD', 'pageSize'],
    ['GetAddressHistory', { address: '10.0.0.1', pageToken: 'x' }, 'INVALID_FIELD', 'pageToken'],
    ['GetAddressHistory', { address: '10.0.0.1', from: 'yesterday' }, 'INVALID_FIELD', 'from'],
    ['GetLeaseHistory', {}, 'INVALID_FIELD', 'leaseId'],
    ['GetLeaseHistory', { leaseId: '10.0.0.1' }, 'INVALID_FIELD', 'leaseId'],
    ['ListLeasesAsOf', { seq: '1', time: '2026-01-01T00:00:00Z' }, 'INVALID_FIELD', 'time'],
    ['ListLeasesAsOf', { pool: 'A B' }, 'INVALID_FIELD', 'pool'],
    ['ExplainAddress', {}, 'INVALID_FIELD', 'address'],
    ['ExplainAddress', { address: '10.0.0.0/24' }, 'INVALID_FIELD', 'address'],
    [
      'ExplainAddress',
      { address: '10.0.0.1', seq: 1, time: '2026-01-01T00:00:00Z' },
      'INVALID_FIELD',
      'time',
    ],
  ])('%s %j', async (method, body, reason, field) => {
    expect(await refused(method, body)).toMatchObject({ reason, metadata: { field } })
  })

  test.each([
    ['GetAddressHistory', { address: '10.0.0.1' }],
    ['ListLeasesAsOf', {}],
    ['ExplainAddress', { address: '10.0.0.1' }],
    ['VerifyNetwork', {}],
  ])('%s of no network', async (method, body) => {
    expect(await refused(method, { ...body, network: 'none' })).toMatchObject({
      reason: 'NETWORK_NOT_FOUND',
      metadata: { network: 'none' },
    })
  })

  test('a number that was never given out', async () => {
    for (const [method, body] of [
      ['GetAddressHistory', { address: '10.0.0.1', afterSeq: '9999' }],
      ['GetLeaseHistory', { leaseId: 'default/9999' }],
      ['ListLeasesAsOf', { seq: '9999' }],
      ['ExplainAddress', { address: '10.0.0.1', seq: '9999' }],
    ] as const) {
      expect(await refused(method, body)).toMatchObject({
        code: 'aborted',
        reason: 'VERSION_MISMATCH',
        metadata: { beyondHead: '1' },
      })
    }
    expect(await refused('GetLeaseHistory', { leaseId: 'default/1' })).toMatchObject({
      code: 'not_found',
      reason: 'LEASE_NOT_FOUND',
      metadata: { leaseId: 'default/1' },
    })
    expect(await refused('GetLeaseHistory', { leaseId: 'none/1' })).toMatchObject({
      reason: 'NETWORK_NOT_FOUND',
    })
    expect(await refused('ListLeasesAsOf', { pool: 'none' })).toMatchObject({ reason: 'POOL_NOT_FOUND' })
  })

  test('a page token of other filters', async () => {
    const { nextPageToken } = await audit.getAddressHistory({
      network: 'busy',
      cidr: '10.0.0.0/24',
      pageSize: 1,
    })
    for (const other of [{ cidr: '10.0.0.0/25' }, { cidr: '10.0.0.0/24', descending: true }]) {
      expect(
        await refused('GetAddressHistory', { network: 'busy', ...other, pageToken: nextPageToken }),
      ).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
    }
    const { nextPageToken: asOf } = await audit.listLeasesAsOf({ network: 'busy', pageSize: 1 })
    expect(await refused('ListLeasesAsOf', { network: 'busy', seq: '5', pageToken: asOf })).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: 'pageToken' },
    })
  })
})

describe('verification', () => {
  test('books in order, from the first event and then from where that ended', async () => {
    const first = await audit.verifyNetwork({ network: 'busy' })
    expect(first).toMatchObject({ complete: true, fromSeq: 0n, findings: [], omitted: 0n })
    expect(first.verifiedSeq).toBe(first.head)
    const again = await audit.verifyNetwork({ network: 'busy' })
    expect(again).toMatchObject({ complete: true, fromSeq: first.head, verifiedSeq: first.head })
  })

  test('a lease that nobody was given is named', async () => {
    const { leases: made } = await leases.reserve({
      network: 'busy',
      owner: pod('tampered'),
      claims: [{ pools: ['web'] }],
    })
    const [lease] = made
    const owner = (name: string) =>
      withClient(running.database.adminUrl, (client) =>
        client.query(
          'update ipledger.lease set owner_name = $1 where network_id = $2 and fencing_token = $3',
          [name, 'busy', lease!.fencingToken],
        ),
      )
    await owner('somebody-else')
    const { findings, complete } = await audit.verifyNetwork({ network: 'busy' })
    expect(complete).toBe(true)
    expect(findings).toHaveLength(1)
    expect(findings[0]).toMatchObject({ what: 'LEASE_DIFFERS', address: lease!.address })
    expect(findings[0]!.found).toContain('somebody-else')
    await owner('tampered')
    expect((await audit.verifyNetwork({ network: 'busy' })).findings).toEqual([])
  })

  test('one network at a time; those who ask for it together are told the same', async () => {
    const { reads } = running
    const [one, other, busy] = await Promise.all([
      reads.verification('busy'),
      reads.verification('busy'),
      reads.verification('story'),
    ])
    expect(busy).toBe('busy')
    expect(other).toBe(one)
    expect(await reads.verification('story')).toMatchObject({ complete: true, findings: [] })
  })

  test('what had no time is said, and moves nothing', async () => {
    await withClient(running.database.serviceUrl, async (client) => {
      const stopped = await verifyBriefly(client, 'wide', AbortSignal.abort(new Error('time is up')))
      expect(stopped).toMatchObject({ complete: false, from: 0, verified: 0, head: 1502, findings: [] })
      const { rowCount } = await client.query(
        `select from ipledger.verify_checkpoint where network_id = 'wide'`,
      )
      expect(rowCount).toBe(0)
    })
  })
})
