/** AuditService: who had it, why, how it was, and whether the books are in order. */
import { timestampDate, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { beforeAll, describe, expect, test } from 'vitest'
import { formatValue, isMalformed, mustParse, parseCidr, parseRange } from '../../src/core/address.ts'
import {
  AuditService,
  type GetAddressHistoryResponse,
  type HistoryEntry,
  type Holder,
} from '../../src/gen/ipledger/v1/audit_pb.ts'
import { LeaseService } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { NetworkService } from '../../src/gen/ipledger/v1/network_pb.ts'
import { PoolService } from '../../src/gen/ipledger/v1/pool_pb.ts'
import type { Lease } from '../../src/gen/ipledger/v1/types_pb.ts'
import { withClient } from '../support/database.ts'
import { useService } from '../support/service.ts'
import { clientOf, walk } from './running.ts'

const running = await useService()
const leases = clientOf(LeaseService, running, 'connect binary')
const pools = clientOf(PoolService, running, 'connect binary')
const networks = clientOf(NetworkService, running, 'connect binary')
const audit = clientOf(AuditService, running, 'connect binary')

type Asked<F extends (request: never, ...rest: never[]) => unknown> = Parameters<F>[0]

const historyPages = (asked: Asked<typeof audit.getAddressHistory>) =>
  walk((pageToken) => audit.getAddressHistory({ ...asked, pageToken }))
const seqsOf = (entries: readonly HistoryEntry[]) => entries.map(({ event }) => Number(event!.seq))

/** Each once, oldest first. */
function holdersOf(pages: readonly GetAddressHistoryResponse[]): readonly Holder[] {
  const found = new Map(pages.flatMap((page) => page.holders.map((one) => [Number(one.fromSeq), one])))
  return [...found.values()].sort((one, other) => Number(one.fromSeq - other.fromSeq))
}

/** `default/3 web-0 3-5` */
function spanOf({ leaseId, owner, fromSeq, untilSeq }: Holder): string {
  return `${leaseId} ${owner?.name ?? 'nobody'} ${fromSeq}-${untilSeq === 0n ? '' : untilSeq}`
}

const reserve = async (network: string, name: string, pool: string) =>
  (await leases.reserve({ network, owner: pod(name), claims: [{ pools: [pool] }] })).leases[0]!
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
    // Its holder gives it back, and it stays where the operator put it: no event.
    await leases.release({ leaseId: second.leaseId })
    const { lease } = await leases.getLease({ leaseId: second.leaseId })
    await leases.reap({ leaseId: second.leaseId, version: lease!.version, why: 'cable was pulled' })
  })

  test('of an address: its events in sentences, and who held it over which span', async () => {
    const { entries, holders, head, nextPageToken } = await audit.getAddressHistory({ network, address })
    expect(nextPageToken).toBe('')
    expect(head).toBe(8n)
    expect(entries.map(({ event }) => [Number(event!.seq), event!.type, event!.lease?.leaseId])).toEqual([
      [3, 'lease.reserved', 'story/3'],
      [4, 'lease.confirmed', 'story/3'],
      [5, 'lease.released', 'story/3'],
      [6, 'lease.reserved', 'story/6'],
      [7, 'lease.quarantined', 'story/6'],
      [8, 'lease.reaped', 'story/6'],
    ])
    expect(entries[0]!.what).toMatch(
      /^10\.8\.64\.2 of pool web \(lease story\/3\) was reserved for pod web-0/,
    )
    expect(entries[0]!.what).toContain('on node n1')
    expect(entries[4]!.what).toContain('answers ping twice')
    expect(entries[5]!.what).toContain('cable was pulled')
    expect(entries[2]!.event!.requestId).toBe('bye')
    expect(holders.map(spanOf)).toEqual(['story/3 web-0 3-5', 'story/6 web-1 6-8'])
    const [one, two] = holders
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
    expect(two!.endedAs).toBe('lease.reaped/Reap')
  })

  test('of a lease, whole and by pages, up and down', async () => {
    const { entries, holders } = await audit.getLeaseHistory({ leaseId: 'story/6' })
    expect(seqsOf(entries)).toEqual([6, 7, 8])
    expect(holders.map(spanOf)).toEqual(['story/6 web-1 6-8'])
    for (const descending of [false, true]) {
      for (const pageSize of [1, 2, 3]) {
        const pages = await walk((pageToken) =>
          audit.getLeaseHistory({ leaseId: 'story/6', pageSize, descending, pageToken }),
        )
        const expected = descending ? [8, 7, 6] : [6, 7, 8]
        expect(pages.flatMap((page) => seqsOf(page.entries))).toEqual(expected)
        expect(pages.every((page) => page.holders.length === 1)).toBe(true)
      }
    }
  })

  test('by numbers and by times, both ends of a time included', async () => {
    const all = (await audit.getAddressHistory({ network, address })).entries
    const at = (seq: number) => all.find(({ event }) => event!.seq === BigInt(seq))!.event!.time!
    const asked = async (fields: Asked<typeof audit.getAddressHistory>) =>
      seqsOf((await audit.getAddressHistory({ network, address, ...fields })).entries)
    expect(await asked({ afterSeq: 4n, beforeSeq: 8n })).toEqual([5, 6, 7])
    const times = all.map(({ event }) => timestampDate(event!.time!).getTime())
    const between = (from: number, to: number) =>
      all
        .filter((_, index) => times[index]! >= from && times[index]! <= to)
        .map(({ event }) => Number(event!.seq))
    const [from, to] = [at(4), at(7)]
    expect(await asked({ from, to })).toEqual(
      between(timestampDate(from).getTime(), timestampDate(to).getTime()),
    )
    expect(await asked({ from, to })).toEqual(expect.arrayContaining([4, 5, 6, 7]))
    expect(await asked({ from: timestampFromMs(Date.now() + 3_600_000) })).toEqual([])
    expect(await asked({ to: timestampFromMs(0) })).toEqual([])
    expect(await asked({ to: timestampFromMs(Date.now() + 3_600_000) })).toHaveLength(6)
  })

  test('whoever held throughout is named where nothing happened', async () => {
    const history = (place: object, afterSeq: bigint) =>
      audit.getAddressHistory({ network, ...place, afterSeq, beforeSeq: afterSeq + 1n })
    const { entries, holders } = await history({ address }, 4n)
    expect(entries).toEqual([])
    expect(holders.map(spanOf)).toEqual(['story/3 web-0 3-5'])
    expect((await history({ address }, 5n)).holders).toEqual([])
    const inCidr = await history({ cidr: '10.8.64.0/28' }, 7n)
    expect(inCidr.holders.map((one) => one.leaseId)).toEqual(['story/6'])
  })

  // The reasons themselves: db/audit.test.ts.
  test('explained: what it is, and the events that led there', async () => {
    const now = await audit.explainAddress({ network, address })
    expect(now).toMatchObject({ state: 'FREE', seq: now.head })
    expect(now.answer).toContain('lease story/6')
    expect(now.steps.map((step) => Number(step.seq))).toEqual([3, 4, 5, 6, 7, 8])
    expect(now.steps.at(-1)).toMatchObject({
      what: expect.stringContaining('cable was pulled'),
      evidence: { why: 'cable was pulled' },
    })
    const then = await audit.explainAddress({ network, address, seq: 4n })
    expect(then).toMatchObject({ state: 'ACTIVE', seq: 4n })
    expect(then.steps.map((step) => Number(step.seq))).toEqual([3, 4])
    const time = timestampFromMs(Date.now() + 10 ** 9)
    const later = await audit.explainAddress({ network, address, time })
    expect(later).toMatchObject({ state: now.state, seq: now.seq })
    expect(timestampDate(later.time!).getTime()).toBeLessThan(Date.now() + 60_000)
    const before = await audit.explainAddress({ network, address, time: timestampFromMs(0) })
    expect(before).toMatchObject({ state: 'OUTSIDE', seq: 0n, steps: [] })
  })
})

describe('much happened', () => {
  const network = 'busy'
  /** Any will do: what is read is compared with the log, whatever it is. */
  let draws = 1
  const below = (bound: number) => {
    draws = (draws * 48_271) % 2_147_483_647
    return draws % bound
  }
  let all: readonly Lease[]

  beforeAll(async () => {
    await networks.createNetwork({ name: network })
    for (const [name, cidr, prefixLength] of [
      ['web', '10.0.0.0/27', 32],
      ['nets', '10.1.0.0/24', 28],
      ['six', 'fd00::/123', 128],
    ] as const) {
      const cooldown = { seconds: 0n }
      await pools.createPool({ network, name, cidr, prefixLength, ownerLimit: 100, cooldown })
    }
    const held: Lease[] = []
    for (let turn = 0; turn < 60; turn++) {
      const many = held.length > 12 || (held.length > 5 && below(2) === 0)
      if (many) {
        const [lease] = held.splice(below(held.length), 1)
        await leases.release({ leaseId: lease!.leaseId })
      } else {
        const pool = ['web', 'web', 'nets', 'six'][below(4)]!
        const lease = await reserve(network, `w-${turn}`, pool)
        if (below(2) === 0) await leases.confirm({ leaseId: lease.leaseId })
        held.push(lease)
      }
    }
    for (const pool of ['web', 'nets', 'six']) held.push(await reserve(network, 'last', pool))
    all = held
  })

  const rangeOf = (text: string) => {
    const cidr = parseCidr(text.includes('/') ? text : `${text}/32`)
    if (isMalformed(cidr)) throw new Error(cidr.malformed)
    return cidr
  }
  const PLACES = ['10.0.0.2', '10.1.0.37', '10.0.0.0/29', '0.0.0.0/0', 'fd00::/64']
  test.each(PLACES)('%s: pages neither skip nor repeat, up and down', async (place) => {
    const { first, last } = rangeOf(place)
    const { events } = await audit.listEvents({ network, pageSize: 1000 })
    const seqs = events
      .filter(({ lease }) => {
        if (lease === undefined) return false
        const held = rangeOf(`${lease.address}/${lease.prefixLength}`)
        return held.family === rangeOf(place).family && held.first <= last && held.last >= first
      })
      .map(({ seq }) => Number(seq))
    const asked = place.includes('/') ? { cidr: place } : { address: place }
    const whole = await historyPages({ network, ...asked, pageSize: 1000 })
    for (const pageSize of [1000, 9]) {
      for (const descending of [false, true]) {
        const pages = await historyPages({ network, ...asked, pageSize, descending })
        expect(pages.flatMap((page) => seqsOf(page.entries))).toEqual(descending ? seqs.toReversed() : seqs)
        expect(holdersOf(pages).map(spanOf)).toEqual(holdersOf(whole).map(spanOf))
      }
    }
    const reserved = whole
      .flatMap((page) => page.entries)
      .filter(({ event }) => event!.type === 'lease.reserved')
    expect(holdersOf(whole).map((one) => one.fromSeq)).toEqual(reserved.map(({ event }) => event!.seq))
  })

  test('the holders of a stretch are those that the log has there', async () => {
    const { head } = await audit.listEvents({ network, pageSize: 1 })
    const holders = holdersOf(await historyPages({ network, cidr: '0.0.0.0/0', pageSize: 1000 }))
    for (let after = 10n; after < head; after += 19n) {
      const before = after + 9n
      const range = { afterSeq: after, beforeSeq: before }
      const pages = await historyPages({ network, cidr: '0.0.0.0/0', pageSize: 3, ...range })
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
        await reserve(network, 'late', 'web')
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

  test('as of a time, before the first event and in the future', async () => {
    const { events } = await audit.listEvents({ network, pageSize: 1000 })
    const some = events[60]!
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
    const { leaseId } = await reserve(network, 'gone', 'gone')
    const { seq } = await audit.listLeasesAsOf({ network, pageSize: 1 })
    await leases.release({ leaseId })
    await pools.deletePool({ network, name: 'gone' })
    const then = await audit.listLeasesAsOf({ network, seq, pool: 'gone' })
    expect(then.leases.map((one) => [one.leaseId, one.pool, one.subnet])).toEqual([[leaseId, '', '']])
  })
})

describe('a map', () => {
  const network = 'busy'
  /** Of each address of a CIDR its state, as a map shows it: leases before what their pools exclude. */
  async function statesOf(cidr: string, moment: object): Promise<ReadonlyMap<string, string>> {
    const map = await audit.getAddressMap({ network, cidr, ...moment })
    const { family, first, last } = cidrOf(cidr)
    const states = new Map<string, string>()
    const fill = (from: bigint, to: bigint, state: string) => {
      for (let value = from; value <= to; value++) states.set(formatValue(family, value), state)
    }
    fill(first, last, 'FREE')
    for (const text of map.excluded) {
      const range = mustParse(parseRange(text))
      fill(range.first, range.last, 'EXCLUDED')
    }
    for (const { address, prefixLength, state } of map.addresses) {
      const leased = cidrOf(`${address}/${prefixLength}`)
      fill(leased.first, leased.last, state)
    }
    return states
  }
  const cidrOf = (text: string) => mustParse(parseCidr(text))

  test.each(['10.0.0.0/27', '10.0.0.0/26', '10.1.0.0/26', 'fd00::/123', '10.9.0.0/30'])(
    '%s is what explain says of each of its addresses, now and then',
    async (cidr) => {
      const { head } = await audit.listEvents({ network, pageSize: 1 })
      for (const moment of [{}, { seq: 2n }, { seq: head / 3n }, { seq: head - 5n }, { seq: 0n }]) {
        const states = await statesOf(cidr, moment)
        for (const [address, state] of states) {
          const explained = await audit.explainAddress({ network, address, ...moment })
          expect(
            `${address} ${state}`,
            JSON.stringify(moment, (_, x) => String(x)),
          ).toBe(`${address} ${explained.state.replace('OUTSIDE', 'EXCLUDED')}`)
        }
      }
    },
    60_000,
  )

  test('who has an address, and who had it', async () => {
    const { addresses } = await audit.getAddressMap({ network: 'story', cidr: '10.8.64.0/24', seq: 4n })
    expect(addresses).toMatchObject([
      {
        address: '10.8.64.2',
        state: 'ACTIVE',
        leaseId: 'story/3',
        ownerKind: 'pod',
        ownerName: 'web-0',
        node: 'n1',
      },
    ])
    await expect(audit.getAddressMap({ network: 'story', cidr: '10.8.64.0/24', seq: 999n })).rejects.toThrow(
      /beyond/,
    )
    await expect(audit.getAddressMap({ network: 'story' })).rejects.toThrow(/cidr: required/)
  })

  test('of more than 4,096 addresses blocks: counted now, an estimate of the past; of IPv6 only where leases are', async () => {
    const large = 'large'
    const all = await Promise.all(
      ['10.0.0.0/8', 'fd00::/48'].map(async (cidr, at) => {
        const name = `large-${at}`
        await networks.createNetwork({ name })
        await pools.createPool({ network: name, name: large, cidr, cooldown: { seconds: 0n } })
        const owners = Array.from({ length: 5_000 }, (_, i) => pod(`w-${i}`))
        await leases.quarantine({ network: name, address: cidr.replace(/0?\/.*/, '9'), why: 'printer' })
        for (let from = 0; from < owners.length; from += 500) {
          const requests = owners
            .slice(from, from + 500)
            .map((owner) => ({ owner, claims: [{ pools: [large] }] }))
          const { results } = await leases.batchReserve({ network: name, requests })
          const made = results.map(({ result }) => (result.value as { leases: Lease[] }).leases[0]!)
          await leases.batchConfirm({ network: name, requests: made.map(({ leaseId }) => ({ leaseId })) })
        }
        return { network: name, cidr }
      }),
    )
    for (const asked of all) {
      const { head } = await audit.listEvents({ network: asked.network, pageSize: 1 })
      const now = await audit.getAddressMap(asked)
      const sum = (blocks: typeof now.blocks) => blocks.reduce((total, { active }) => total + active, 0)
      expect(now).toMatchObject({ addresses: [], excluded: [], sampled: 0, head })
      expect(sum(now.blocks)).toBe(5_000)
      const half = { ...asked, seq: head / 2n }
      const then = await audit.getAddressMap(half)
      expect(then.sampled).toBe(2)
      expect(sum(then.blocks)).toBeGreaterThan(2_100)
      expect(sum(then.blocks)).toBeLessThan(2_900)
      if (!asked.cidr.includes(':')) expect(now.blockSize).toBe('65536')
    }
    // Far back in the log, and found at once.
    const seldom = await audit.listEvents({
      network: 'large-0',
      types: ['lease.quarantined'],
      descending: true,
    })
    expect(seldom).toMatchObject({ events: [{ seq: 3n }], nextPageToken: '' })
    const six = await audit.getAddressMap(all[1]!)
    expect(cidrOf(six.cidr).prefixLength).toBeGreaterThan(100)
    const zoomed = await audit.getAddressMap({ ...all[1]!, cidr: six.blocks[0]!.cidr })
    expect(zoomed.addresses).toHaveLength(six.blocks[0]!.active + six.blocks[0]!.quarantined)
  })
})

describe('find', () => {
  const found = async (network: string, text: string) =>
    (await audit.find({ network, text })).matches.map(({ kind, name, address }) =>
      `${kind} ${name} ${address}`.trim(),
    )

  test('names by how they begin, of the past too; what else a text can be', async () => {
    const network = 'found'
    await networks.createNetwork({ name: network })
    await pools.createPool({ network, name: 'web', cidr: '10.0.0.0/24' })
    const owner = pod('web-0', { uid: 'u-1', node: 'web-node', labels: { app: 'shop' } })
    const [lease] = (await leases.reserve({ network, owner })).leases
    const gone = await reserve(network, 'web-past', 'web')
    await leases.release({ leaseId: gone.leaseId })
    expect(await found(network, 'web')).toEqual([
      'OWNER web-0',
      'OWNER web-past',
      'NODE web-node',
      'POOL web 10.0.0.0/24',
    ])
    expect(await found(network, 'web-p')).toEqual(['OWNER web-past'])
    expect(await found(network, 'app=shop')).toEqual(['LABEL app=shop'])
    expect(await found(network, lease!.leaseId)).toEqual([`LEASE ${lease!.leaseId} ${lease!.address}`])
    expect(await found(network, gone.leaseId)).toEqual([`LEASE ${gone.leaseId} ${gone.address}`])
    expect(await found(network, ' 10.0.0.7 ')).toEqual(['ADDRESS 10.0.0.7'])
    expect(await found(network, 'FD00::1')).toEqual(['ADDRESS fd00::1'])
    expect(await found(network, '10.0.0.0/28')).toEqual(['CIDR 10.0.0.0/28'])
    for (const text of ['nothing', 'u-1', `${network}/999`, '10.0.0.7/8', '=shop', '%', "'; drop"])
      expect(await found(network, text), text).toEqual([])
    await expect(audit.find({ network, text: ' ' })).rejects.toThrow(/text: required/)
    await expect(audit.find({ network: 'nowhere', text: 'x' })).rejects.toThrow(
      /network nowhere does not exist/,
    )
  })
})

describe('verification', () => {
  test('a log that is whole, and its digest for an anchor', async () => {
    const first = await audit.verifyNetwork({ network: 'busy' })
    expect(first).toMatchObject({ complete: true, fromSeq: 0n, findings: [], omitted: 0n })
    expect(first.verifiedSeq).toBe(first.head)
    const again = await audit.verifyNetwork({ network: 'busy' })
    expect(again).toMatchObject({ complete: true, verifiedSeq: first.head, digest: first.digest })
  })

  test('a row that is not what the log says is named', async () => {
    const { address } = await reserve('busy', 'tampered', 'web')
    const change = `update ipledger.lease set state = $1 where network_id = 'busy' and address = $2`
    const say = (state: string) =>
      withClient(running.database.adminUrl, (client) => client.query(change, [state, address]))
    await say('FREE')
    const { findings, complete } = await audit.verifyNetwork({ network: 'busy' })
    expect(complete).toBe(true)
    expect(findings).toHaveLength(1)
    expect(findings[0]).toMatchObject({ what: 'LEASE_DIFFERS', address })
    expect(findings[0]!.found).toContain('FREE')
    await say('RESERVED')
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
})
