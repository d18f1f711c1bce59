/** Lists: filters against a plain loop over everything, pages while everything moves, tokens that were tampered with. */
import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf'
import { beforeAll, describe, expect, test } from 'vitest'
import { decoderOf } from '../../src/api/codec/decode-request.ts'
import { encodePage } from '../../src/api/codec/page-token.ts'
import { AuditService, type Event } from '../../src/gen/ipledger/v1/audit_pb.ts'
import { LeaseService, ListLeasesRequestSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { ListNetworksRequestSchema, NetworkService } from '../../src/gen/ipledger/v1/network_pb.ts'
import { ListPoolsRequestSchema, PoolService } from '../../src/gen/ipledger/v1/pool_pb.ts'
import { type Lease, LeaseState, type Owner, QuarantineReason } from '../../src/gen/ipledger/v1/types_pb.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { clientOf, walk } from './running.ts'

const running = await useService()
const leases = clientOf(LeaseService, running, 'connect binary')
const pools = clientOf(PoolService, running, 'connect binary')
const networks = clientOf(NetworkService, running, 'connect binary')
const audit = clientOf(AuditService, running, 'connect binary')

type Asked<F extends (request: never, ...rest: never[]) => unknown> = Parameters<F>[0]

const leasePages = (asked: Asked<typeof leases.listLeases>) =>
  walk((pageToken) => leases.listLeases({ ...asked, pageToken }))
const listLeases = async (asked: Asked<typeof leases.listLeases>) =>
  (await leasePages(asked)).flatMap((page) => page.leases)
const eventPages = (asked: Asked<typeof audit.listEvents>) =>
  walk((pageToken) => audit.listEvents({ ...asked, pageToken }))
const listEvents = async (asked: Asked<typeof audit.listEvents>) =>
  (await eventPages(asked)).flatMap((page) => page.events)
const addresses = (found: readonly Lease[]) => found.map((one) => one.address)

describe('filters', () => {
  const network = 'filters'
  let everything: readonly Lease[]

  beforeAll(async () => {
    await networks.createNetwork({ name: network })
    for (const [name, cidr, prefixLength] of [
      ['web', '10.0.0.0/24', 32],
      ['six', 'fd00::/64', 128],
      ['nets', '10.1.0.0/16', 28],
      ['empty', '10.2.0.0/24', 32],
    ] as const) {
      await pools.createPool({ network, name, cidr, prefixLength, ownerLimit: 100, labels: { size: name } })
    }
    const { results } = await leases.batchReserve({
      network,
      requests: Array.from({ length: 60 }, (_, index) => ({
        owner: {
          kind: ['pod', 'vm', 'pod-extra'][index % 3]!,
          name: `default/w-${index % 10}`,
          uid: `u-${index}`,
          incarnation: `i-${index % 7}`,
          interface: ['eth0', 'eth1', 'net~x'][index % 3 === 0 ? (index / 3) % 3 : 0]!,
          node: index % 10 === 0 ? '' : `n${(index % 10) % 4}`,
          labels: { app: `app-${index % 3}`, ...(index % 2 === 0 ? { tier: 'front' } : {}) },
        },
        claims: [{ pool: ['web', 'six', 'nets'][index % 3]! }],
        confirmed: index % 5 === 0,
      })),
    })
    expect(results.map((one) => one.result).filter((one) => one.case !== 'response')).toEqual([])
    for (const address of ['10.0.0.200', 'fd00::ffff', '10.1.9.0']) {
      await leases.quarantine({ network, address, why: 'test' })
    }
    everything = (await leases.listLeases({ network, pageSize: 1000 })).leases
    expect(everything.length).toBeGreaterThan(50)
    expect(new Set(everything.map((one) => one.state)).size).toBe(3)
  })

  test('all of them are in order of address, v4 first', () => {
    const key = ({ address }: Lease) =>
      address.includes(':')
        ? `6 ${address.replace(/^fd00::/, '').padStart(8, '0')}`
        : `4 ${address.replace(/\d+/g, (octet) => octet.padStart(3, '0'))}`
    expect(everything.map(key)).toEqual(everything.map(key).sort())
  })

  const { RESERVED, ACTIVE, QUARANTINED } = LeaseState
  const { OPERATOR, SUPERSEDED, FOREIGN } = QuarantineReason
  const owns = (wanted: (owner: Owner, lease: Lease) => boolean) => (lease: Lease) =>
    lease.owner !== undefined && wanted(lease.owner, lease)
  const FILTERS: readonly (readonly [Asked<typeof leases.listLeases>, (lease: Lease) => boolean])[] = [
    [{ states: [RESERVED] }, (lease) => lease.state === RESERVED],
    [{ states: [ACTIVE, QUARANTINED] }, (lease) => lease.state !== RESERVED],
    [{ states: [QUARANTINED] }, (lease) => lease.state === QUARANTINED],
    [{ quarantineReasons: [OPERATOR] }, (lease) => lease.quarantine?.reason === OPERATOR],
    [{ quarantineReasons: [SUPERSEDED, FOREIGN] }, (lease) => lease.quarantine?.reason === SUPERSEDED],
    [{ states: [ACTIVE], quarantineReasons: [OPERATOR] }, () => false],
    [{ ownerKind: 'pod' }, owns((owner) => owner.kind === 'pod')],
    [{ ownerName: 'default/w-3' }, owns((owner) => owner.name === 'default/w-3')],
    [{ ownerName: 'default/w-6' }, owns((owner) => owner.name === 'default/w-6')],
    [{ ownerName: 'default/w' }, () => false],
    [
      { ownerKind: 'vm', ownerName: 'default/w-1' },
      owns((owner) => owner.kind === 'vm' && owner.name === 'default/w-1'),
    ],
    [{ ownerKind: 'po', ownerName: 'default/w-1' }, () => false],
    [{ ownerUid: 'u-17' }, owns((owner) => owner.uid === 'u-17')],
    [{ ownerName: 'default/w-7', node: 'n3' }, owns((owner) => owner.name === 'default/w-7')],
    [{ ownerName: 'default/w-7', node: 'n1' }, () => false],
    [{ node: 'n2' }, owns((owner) => owner.node === 'n2')],
    [{ node: 'n9' }, () => false],
    [{ labels: { app: 'app-1' } }, owns((owner) => owner.labels.app === 'app-1')],
    [
      { labels: { app: 'app-0', tier: 'front' } },
      owns(({ labels }) => labels.app === 'app-0' && labels.tier === 'front'),
    ],
    [{ pools: ['six'] }, (lease) => lease.pool === 'six'],
    [{ pools: ['six', 'web'] }, (lease) => lease.pool === 'six' || lease.pool === 'web'],
    [{ pools: ['empty'] }, () => false],
    [{ cidr: '10.0.0.0/28' }, (lease) => /^10\.0\.0\.(\d|1[0-5])$/.test(lease.address)],
    [{ cidr: '10.1.0.0/16' }, (lease) => lease.pool === 'nets'],
    [{ cidr: '10.1.9.5' }, (lease) => lease.address === '10.1.9.0'],
    [{ cidr: '10.1.9.8/29' }, (lease) => lease.address === '10.1.9.0'],
    [{ cidr: '10.1.9.16/28' }, () => false],
    [{ cidr: '0.0.0.0/0' }, (lease) => !lease.address.includes(':')],
    [{ cidr: 'fd00::/120' }, (lease) => lease.pool === 'six' && lease.address.length < 9],
    [
      {
        cidr: '10.0.0.0/8',
        pools: ['nets'],
        states: [RESERVED],
        ownerKind: 'pod-extra',
        labels: { app: 'app-2' },
      },
      owns((owner, lease) => lease.pool === 'nets' && lease.state === RESERVED && owner.kind === 'pod-extra'),
    ],
  ]
  test.each(FILTERS.map(([filter, wanted]) => [JSON.stringify(filter), filter, wanted] as const))(
    '%s',
    async (_, filter, wanted) => {
      const expected = addresses(everything.filter(wanted))
      for (const pageSize of [1000, 7, 1]) {
        expect(addresses(await listLeases({ network, ...filter, pageSize }))).toEqual(expected)
      }
    },
  )

  test('each page says the head it is true at', async () => {
    const { head } = await leases.listLeases({ network })
    expect(head).toBe((await networks.getNetwork({ name: network })).network!.head)
    expect((await leases.listLeases({ network, node: 'none' })).head).toBe(head)
  })

  test('pools and networks', async () => {
    const named = async (asked: Asked<typeof pools.listPools>) =>
      (await walk((pageToken) => pools.listPools({ network, ...asked, pageToken }))).flatMap((page) =>
        page.pools.map((one) => one.name),
      )
    expect(await named({ pageSize: 1 })).toEqual(['empty', 'nets', 'six', 'web'])
    expect(await named({ labels: { size: 'web' } })).toEqual(['web'])
    expect(await named({ labels: { size: 'web', other: 'x' } })).toEqual([])
    expect(await named({ cidr: '10.0.0.0/15' })).toEqual(['nets', 'web'])
    expect(await named({ cidr: '10.1.2.3' })).toEqual(['nets'])
    for (const name of ['list-b', 'list-a', 'list-c']) {
      await networks.createNetwork({ name, labels: { list: 'yes', name } })
    }
    const asked = { labels: { list: 'yes' }, pageSize: 1 }
    const pages = await walk((pageToken) => networks.listNetworks({ ...asked, pageToken }))
    const names = pages.map((page) => page.networks.map((one) => one.name))
    expect(names).toEqual([['list-a'], ['list-b'], ['list-c']])
  })

  test('events', async () => {
    const all = (await audit.listEvents({ network, pageSize: 1000 })).events
    const seqs = (events: readonly Event[]) => events.map((one) => Number(one.seq))
    expect(seqs(all)).toEqual(all.map((_, index) => index + 1))
    const lease = all.find((one) => one.type === 'lease.reserved' && one.lease!.pool === 'nets')!.lease!
    const inBlock = lease.address.replace(/\d+$/, (last) => String(Number(last) + 5))
    const ownerOf = (event: Event) => event.lease?.owner ?? event.closed?.owner
    const filters: readonly (readonly [Asked<typeof audit.listEvents>, (event: Event) => boolean])[] = [
      [{}, () => true],
      [{ afterSeq: 10n }, (event) => event.seq > 10n],
      [{ beforeSeq: 10n }, (event) => event.seq < 10n],
      [{ afterSeq: 5n, beforeSeq: 9n }, (event) => event.seq > 5n && event.seq < 9n],
      [{ types: ['pool.created', 'lease.quarantined'] }, (event) => /^pool|quarantined/.test(event.type)],
      [{ types: ['lease.quarantined', 'lease.reaped'] }, (event) => /quarantined|reaped/.test(event.type)],
      [{ leaseId: lease.leaseId }, (event) => event.lease?.leaseId === lease.leaseId],
      [{ address: lease.address }, (event) => event.lease?.address === lease.address],
      [{ address: inBlock }, (event) => event.lease?.address === lease.address],
      [{ ownerName: 'default/w-3' }, (event) => ownerOf(event)?.name === 'default/w-3'],
      [{ ownerKind: 'vm' }, (event) => ownerOf(event)?.kind === 'vm'],
      [
        { ownerName: 'default/w-3', types: ['lease.reserved'], ownerKind: 'pod' },
        (event) =>
          ownerOf(event)?.name === 'default/w-3' &&
          event.type === 'lease.reserved' &&
          ownerOf(event)?.kind === 'pod',
      ],
    ]
    for (const [filter, wanted] of filters) {
      const expected = seqs(all.filter(wanted))
      for (const pageSize of [1000, 3]) {
        const [up, down] = [false, true].map((descending) => ({ network, ...filter, pageSize, descending }))
        expect(seqs(await listEvents(up!))).toEqual(expected)
        expect(seqs(await listEvents(down!))).toEqual(expected.toReversed())
      }
    }
  })
})

describe('pages while everything moves', () => {
  const network = 'moving'

  test('neither skip nor repeat what is held throughout', async () => {
    await networks.createNetwork({ name: network })
    await pools.createPool({ network, name: 'web', cidr: '10.0.0.0/22', cooldown: { seconds: 0n } })
    const reserve = (name: string) => ({ owner: { kind: 'pod', name }, claims: [{ pools: ['web'] }] })
    const { results } = await leases.batchReserve({
      network,
      requests: Array.from({ length: 200 }, (_, index) =>
        reserve(index % 3 === 0 ? `stays-${index}` : `moves-${index}`),
      ),
    })
    const made = results.flatMap(({ result }) => (result.case === 'response' ? result.value.leases : []))
    expect(made).toHaveLength(200)
    const held = new Map(made.map((lease) => [lease.owner!.name, lease]))
    const stays = [...held].filter(([name]) => name.startsWith('stays')).map(([, lease]) => lease.address)
    const moving = [...held.keys()].filter((name) => name.startsWith('moves'))

    let stop = false
    let moves = 0
    const churn = async (names: readonly string[]) => {
      for (let index = 0; !stop; index = (index + 1) % names.length) {
        const name = names[index]!
        await leases.release({ leaseId: held.get(name)!.leaseId })
        const { leases: again } = await leases.reserve({ network, ...reserve(name) })
        held.set(name, again[0]!)
        moves += 1
      }
    }
    const churning = Promise.all(
      [0, 1, 2, 3].map((part) => churn(moving.filter((_, index) => index % 4 === part))),
    )
    try {
      const filters = [{}, { ownerKind: 'pod' }, { states: [LeaseState.RESERVED] }, { cidr: '10.0.0.0/16' }]
      for (const [round, filter] of filters.entries()) {
        const seen: Lease[] = []
        let pageToken = ''
        let head = 0n
        do {
          const page = await leases.listLeases({ network, pageSize: 10 + round, pageToken, ...filter })
          expect(page.head).toBeGreaterThanOrEqual(head)
          head = page.head
          seen.push(...page.leases)
          pageToken = page.nextPageToken
        } while (pageToken !== '')
        const found = seen.map((one) => one.address)
        expect(new Set(found).size).toBe(found.length)
        expect(stays.filter((address) => !found.includes(address))).toEqual([])
      }
    } finally {
      stop = true
      await churning
    }
    expect(moves).toBeGreaterThan(100)
  })

  test('events: whoever resumes misses nothing, upwards or downwards', async () => {
    const up = await listEvents({ network, pageSize: 333 })
    expect(up.map((one) => Number(one.seq))).toEqual(up.map((_, index) => index + 1))
    const down = await listEvents({ network, pageSize: 444, descending: true })
    expect(down.map((one) => one.seq)).toEqual(up.map((one) => one.seq).toReversed())
  })
})

describe('page tokens', () => {
  test('belong to the filters they were made with', async () => {
    const network = 'filters'
    const { nextPageToken: pageToken } = await leases.listLeases({ network, pageSize: 1 })
    await leases.listLeases({ network, pageSize: 9, pageToken })
    const events = await audit.listEvents({ network, pageSize: 1 })
    for (const [method, body] of [
      ['LeaseService/ListLeases', { network: 'default' }],
      ['LeaseService/ListLeases', { network, states: ['ACTIVE'] }],
      ['LeaseService/ListLeases', { network, cidr: '10.0.0.0/24' }],
      ['PoolService/ListPools', { network }],
      ['NetworkService/ListNetworks', {}],
      ['AuditService/ListEvents', { network }],
      ['AuditService/ListEvents', { network, descending: true, pageToken: events.nextPageToken }],
      ['AuditService/GetAddressHistory', { network, cidr: '10.0.0.0/24', pageToken: events.nextPageToken }],
      ['AuditService/ListLeasesAsOf', { network, seq: 5 }],
    ] as const) {
      const refused = await post(running, method, { pageToken, ...body })
      expect(refused).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
    }
  })

  test('a forged position reaches nothing', async () => {
    const network = 'default'
    const asked = <D extends DescMessage>(desc: D, init: MessageInitShape<D>) =>
      decoderOf(desc).fromMessage(create(desc, init))
    const lists = [
      ['LeaseService/ListLeases', { network }, asked(ListLeasesRequestSchema, { network })],
      ['PoolService/ListPools', { network }, asked(ListPoolsRequestSchema, { network })],
      ['NetworkService/ListNetworks', {}, asked(ListNetworksRequestSchema, {})],
    ] as const
    for (const [method, body, filters] of lists) {
      for (const position of ['\u0000', '10.0.0.1/8', '1 or 1=1', 'Ä', '-']) {
        const pageToken = encodePage(position, filters)
        const answer = await post(running, method, { ...body, pageToken })
        expect(answer).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
      }
      // The digest was right all along: a position that is one is taken.
      const sound = method === 'LeaseService/ListLeases' ? '10.0.0.1' : 'a'
      const pageToken = encodePage(sound, filters)
      expect((await post(running, method, { ...body, pageToken })).status).toBe(200)
    }
  })
})
