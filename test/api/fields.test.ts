/** Each field that is refused is named as the caller wrote it; each limit holds at its edge. */
import { gzipSync } from 'node:zlib'
import { create, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError } from '@connectrpc/connect'
import { describe, expect, test } from 'vitest'
import { text } from '../../src/api/codec/fields.ts'
import { EVENT_TYPES } from '../../src/core/event.ts'
import { ErrorInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import { LeaseService, ReleaseRequestSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'
import type { Removal } from '../../src/gen/ipledger/v1/types_pb.ts'
import { readRefusal } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { clientOf, type Protocol } from './running.ts'

const running = await useService()
const { call } = running
const made = await call('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/16' })
expect(made.status).toBe(200)

const OWNER = { kind: 'pod', name: 'a' }
const FULL = { ...OWNER, incarnation: 'i', interface: 'eth0' }
/** Half of a surrogate pair has no UTF-8, and JSON can spell it. */
const HALF = '\ud800'
const long = (bytes: number) => 'x'.repeat(bytes)
const many = <T>(count: number, of: (index: number) => T) =>
  Array.from({ length: count }, (_, index) => of(index))
const labels = (count: number) => Object.fromEntries(many(count, (index) => [`k${index}`, 'v']))

const reserve = (more: object) => ({ owner: OWNER, claims: [{ pool: 'web' }], ...more })
const space = (more: object) => ({ name: 'p', cidr: '10.1.0.0/16', ...more })
const sees = (more: object, sight: object = {}) => ({
  id: 's',
  sight: { ownerKinds: ['pod'], ...sight },
  ...more,
})
const owner = (more: object) => reserve({ owner: { ...OWNER, ...more } })

const REFUSED: Readonly<Record<string, readonly (readonly [body: unknown, field: string])[]>> = {
  'LeaseService/Reserve': [
    ['', ''],
    ['{', ''],
    ['[]', ''],
    ['null', ''],
    ['"x"', ''],
    ['{"network":"a","network":"b"}', ''],
    ['{"requestId":"a","request_id":"b"}', ''],
    [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), ''],
    [{ nework: 'x' }, 'nework'],
    [{ owner: { kind: 'pod', nmae: 'x' } }, 'owner.nmae'],
    [{ claims: [{}, { adress: 'x' }] }, 'claims[1].adress'],
    [{ claims: 'x' }, 'claims'],
    [{ claims: [7] }, 'claims[0]'],
    [{ claims: [{ pools: ['a', 7] }] }, 'claims[0].pools[1]'],
    [{ claims: [{ preferPrevious: 'yes' }] }, 'claims[0].preferPrevious'],
    [{ owner: 'x' }, 'owner'],
    [{ owner: { labels: [] } }, 'owner.labels'],
    [{ owner: { labels: { a: 1 } } }, 'owner.labels["a"]'],
    [{ confirmWithin: 30 }, 'confirmWithin'],
    [{ confirmWithin: '30' }, 'confirmWithin'],
    [{ liveAddresses: [null] }, 'liveAddresses[0]'],
    [{}, 'owner'],
    [{ owner: {} }, 'owner.kind'],
    [{ owner: { kind: 'pod' } }, 'owner.name'],
    [owner({ kind: 'Pod' }), 'owner.kind'],
    [owner({ kind: `p${long(63)}` }), 'owner.kind'],
    [owner({ name: long(254) }), 'owner.name'],
    [owner({ name: '日'.repeat(85) }), 'owner.name'],
    [owner({ name: 'a\nb' }), 'owner.name'],
    [owner({ name: 'a\u0085b' }), 'owner.name'],
    [owner({ uid: long(254) }), 'owner.uid'],
    [owner({ incarnation: long(254) }), 'owner.incarnation'],
    [owner({ interface: long(64) }), 'owner.interface'],
    [owner({ interface: 'a|b' }), 'owner.interface'],
    [owner({ node: long(254) }), 'owner.node'],
    [owner({ labels: labels(65) }), 'owner.labels'],
    [owner({ labels: { '-a': 'v' } }), 'owner.labels["-a"]'],
    [owner({ labels: { [long(64)]: 'v' } }), `owner.labels["${long(63)}"]`],
    [owner({ labels: { a: long(254) } }), 'owner.labels["a"]'],
    ['{"owner":{"kind":"pod","name":"a","labels":{"__proto__":"x"}}}', 'owner.labels["__proto__"]'],
    [reserve({ network: 'Default' }), 'network'],
    [reserve({ network: long(64) }), 'network'],
    [reserve({ claims: many(9, () => ({ pool: 'web' })) }), 'claims'],
    [reserve({ claims: [{ pool: 'web', pools: ['web'] }] }), 'claims[0].pool'],
    [reserve({ claims: [{ pool: 'Web' }] }), 'claims[0].pool'],
    [reserve({ claims: [{ pools: ['web', ''] }] }), 'claims[0].pools[1]'],
    [reserve({ claims: [{ pools: many(9, (i) => `p${i}`) }] }), 'claims[0].pools'],
    [reserve({ claims: [{ pool: 'web' }, { pool: 'web' }] }), 'claims[1].pools'],
    [reserve({ claims: [{ address: '10.0.0.300' }] }), 'claims[0].address'],
    [reserve({ claims: [{ address: '::ffff:10.0.0.5' }] }), 'claims[0].address'],
    [reserve({ claims: [{ address: '192.168.0.1' }] }), 'claims[0].address'],
    [reserve({ claims: [{ pool: 'web', address: '192.168.0.1' }] }), 'claims[0].address'],
    [reserve({ liveAddresses: ['10.0.0.1', 'x'] }), 'liveAddresses[1]'],
    [reserve({ liveAddresses: many(4097, () => '10.0.0.1') }), 'liveAddresses'],
    [reserve({ confirmWithin: '0.5s' }), 'confirmWithin'],
    [reserve({ confirmWithin: '-5s' }), 'confirmWithin'],
    [reserve({ confirmWithin: '2592001s' }), 'confirmWithin'],
    [reserve({ requestId: long(129) }), 'requestId'],
    [owner({ name: `x${HALF}y` }), 'owner.name'],
    [owner({ labels: { a: HALF } }), 'owner.labels["a"]'],
    [owner({ labels: { [`a${HALF}`]: 'v' } }), 'owner.labels["a\\ud800"]'],
    [reserve({ claims: [{ address: HALF }] }), 'claims[0].address'],
    [reserve({ claims: [{ pools: [HALF] }] }), 'claims[0].pools[0]'],
    [reserve({ liveAddresses: [HALF] }), 'liveAddresses[0]'],
    [reserve({ confirmWithin: HALF }), 'confirmWithin'],
    [reserve({ requestId: HALF }), 'requestId'],
    [reserve({ requestId: 'a\tb' }), 'requestId'],
  ],
  'LeaseService/BatchReserve': [
    [{ requests: [{}, { owner: { kind: 7 } }] }, 'requests[1].owner.kind'],
    [{}, 'requests'],
    [{ requests: many(1001, () => reserve({})) }, 'requests'],
    [{ requests: [reserve({})], requestId: 'x' }, 'requestId'],
    [{ requests: [reserve({ requestId: 'x' })], atomic: true }, 'requestId'],
    [{ requests: [reserve({ network: 'other' })], atomic: true }, 'network'],
    [{ requests: [reserve({ validateOnly: true })], atomic: true }, 'validateOnly'],
  ],
  'LeaseService/Confirm': [
    [{ fencingToken: -1 }, 'fencingToken'],
    [{ fencingToken: '1.5' }, 'fencingToken'],
    [{ fencingToken: 'x' }, 'fencingToken'],
    [{ fencingToken: '18446744073709551616' }, 'fencingToken'],
    [{}, 'leaseId'],
    [{ leaseId: '42' }, 'leaseId'],
    [{ leaseId: 'default/0' }, 'leaseId'],
    [{ leaseId: 'default/042' }, 'leaseId'],
    [{ leaseId: 'default/9007199254740993' }, 'leaseId'],
    [{ leaseId: 'UPPER/42' }, 'leaseId'],
    [{ leaseId: 'default/42', network: 'other' }, 'network'],
    [{ leaseId: 'default/42', fencingToken: 43 }, 'fencingToken'],
    [{ fencingToken: '9007199254740992' }, 'fencingToken'],
    [{ owner: OWNER }, 'owner.interface'],
    [{ leaseId: 'default/42', owner: OWNER }, 'owner.interface'],
  ],
  'LeaseService/ListLeases': [
    [{ states: ['BROKEN'] }, 'states[0]'],
    [{ pageSize: -1 }, 'pageSize'],
    [{ pageSize: 5_000_000_000 }, 'pageSize'],
    [{ pageToken: 'x' }, 'pageToken'],
    [{ pageToken: long(5_000) }, 'pageToken'],
    [{ states: ['ENDED'] }, 'states[0]'],
    [{ states: ['ACTIVE', 'LEASE_STATE_UNSPECIFIED'] }, 'states[1]'],
    [{ states: [9] }, 'states[0]'],
    [{ quarantineReasons: [0] }, 'quarantineReasons[0]'],
    [{ ownerName: long(254) }, 'ownerName'],
    [{ pools: many(65, (i) => `p${i}`) }, 'pools'],
    [{ cidr: '10.0.0.1/8' }, 'cidr'],
    [{ labels: labels(65) }, 'labels'],
  ],
  'LeaseService/Release': [
    [{ owner: { ...OWNER, incarnation: 'i' } }, 'owner.interface'],
    [{ owner: { ...OWNER, interface: 'eth0' } }, 'owner.incarnation'],
    [{ leaseId: 'default/42', removal: 7 }, 'removal'],
  ],
  'LeaseService/BatchConfirm': [[{ requests: [{ leaseId: 'other/1' }], atomic: true }, 'network']],
  'LeaseService/BatchRelease': [[{ requests: [{ owner: OWNER }], atomic: true }, 'owner.interface']],
  'LeaseService/Quarantine': [
    [{ address: '10.0.0.1' }, 'why'],
    [{ why: 'x' }, 'address'],
    [{ why: 'x', address: '10.0.0.1', leaseId: 'default/1' }, 'address'],
    [{ why: long(1025), address: '10.0.0.1' }, 'why'],
    [{ why: 'x', address: '192.168.0.1' }, 'address'],
  ],
  'LeaseService/Reap': [
    [{ version: 1, why: 'x' }, 'leaseId'],
    [{ leaseId: 'default/1', why: 'x' }, 'version'],
    [{ leaseId: 'default/1', version: 1 }, 'why'],
    [{ node: 'n1', why: 'x' }, 'head'],
    [{ node: 'n1', head: 1, leaseId: 'default/1', why: 'x' }, 'node'],
    [{ node: 'n1', head: 1, version: 1, why: 'x' }, 'version'],
    [{ leaseId: 'default/1', version: 1, head: 1, why: 'x' }, 'head'],
  ],
  'LeaseService/UpdateLabels': [
    [{}, 'leaseId'],
    [{ leaseId: 'default/1', labels: labels(65) }, 'labels'],
    [{ leaseId: 'default/1', version: '9007199254740992' }, 'version'],
  ],
  'LeaseService/GetLease': [
    [{}, 'address'],
    [{ leaseId: 'default/1', address: '10.0.0.1' }, 'address'],
    [{ address: '10.0.0' }, 'address'],
  ],
  'LeaseService/GetRequest': [[{}, 'requestId']],
  'AuditService/ListEvents': [
    [{ types: ['lease.lost'] }, 'types[0]'],
    [{ types: ['lease.reserved'], includeSources: true }, 'includeSources'],
    [{ types: many(EVENT_TYPES.length + 1, () => 'lease.reserved') }, 'types'],
    [{ afterSeq: '9007199254740992' }, 'afterSeq'],
    [{ beforeSeq: '9007199254740992' }, 'beforeSeq'],
    [{ leaseId: 'default/1', network: 'other' }, 'network'],
  ],
  'LivenessService/RegisterSource': [
    [{ id: 's' }, 'sight'],
    [{ sight: { ownerKinds: ['pod'] } }, 'id'],
    [{ id: 's', sight: {} }, 'sight.ownerKinds'],
    [sees({}, { families: [5] }), 'sight.families[0]'],
    [sees({}, { interval: '0.5s' }), 'sight.interval'],
    [sees({ kind: 9 }), 'kind'],
    [sees({ settings: { a: 1 } }), 'settings.a'],
    ...[{ a: HALF }, { [HALF]: 'b' }, { a: [{ b: `x${HALF}` }] }].map(
      (settings) => [sees({ settings }), 'settings'] as const,
    ),
    [sees({ kind: 'DOCKER' }), 'settings.network'],
  ],
  'LivenessService/ReportSnapshot': [
    [{ source: 's', epoch: 'e', sequence: 1 }, 'begunAt'],
    [{ source: 's', epoch: 'e', begunAt: '2030-01-01T00:00:00Z' }, 'sequence'],
    [{ source: 's', sequence: 1, begunAt: '2030-01-01T00:00:00Z' }, 'epoch'],
    [{ source: 's', epoch: 'e', entries: [{}], unchanged: 'd' }, 'unchanged'],
    [{ source: 's', epoch: 'e', entries: [{ name: HALF }] }, 'entries[0].name'],
  ],
  'LivenessService/ReportVerdicts': [
    [{ source: 's', epoch: 'e' }, 'verdicts'],
    [{ source: 's', epoch: 'e', verdicts: [{ id: 'x' }] }, 'verdicts[0].answer'],
    [{ source: 's', epoch: 'e', verdicts: [{ answer: 'TERMINAL' }] }, 'verdicts[0].terminalSince'],
  ],
  'LivenessService/ListSources': [[{ states: [0] }, 'states[0]']],
  'LivenessService/ListAttention': [[{ codes: ['NOTHING'] }, 'codes[0]']],
  'LivenessService/ResumeHold': [
    [{}, 'why'],
    [{ cause: 9, why: 'x' }, 'cause'],
  ],
  'AuditService/GetAddressHistory': [
    [{}, 'address'],
    [{ address: '10.0.0.1', cidr: '10.0.0.0/8' }, 'address'],
    [{ address: '10.0.0.0/24' }, 'address'],
    [{ cidr: '10.0.0.1/24' }, 'cidr'],
    [{ address: '10.0.0.1', pageToken: 'x' }, 'pageToken'],
    [{ address: '10.0.0.1', from: 'yesterday' }, 'from'],
  ],
  'AuditService/GetLeaseHistory': [
    [{}, 'leaseId'],
    [{ leaseId: '10.0.0.1' }, 'leaseId'],
  ],
  'AuditService/ListLeasesAsOf': [
    [{ seq: '1', time: '2026-01-01T00:00:00Z' }, 'time'],
    [{ pool: 'A B' }, 'pool'],
  ],
  'AuditService/ExplainAddress': [
    [{}, 'address'],
    [{ address: '10.0.0.0/24' }, 'address'],
    [{ address: '10.0.0.1', seq: 1, time: '2026-01-01T00:00:00Z' }, 'time'],
  ],
  'NetworkService/CreateNetwork': [
    [{}, 'name'],
    [{ name: '-a' }, 'name'],
    [{ name: 'n', description: long(1025) }, 'description'],
  ],
  'NetworkService/UpdateNetwork': [[{ name: 'default', labels: { '': 'x' } }, 'labels[""]']],
  'NetworkService/EndRecovery': [
    [{ network: 'default' }, 'why'],
    [{ why: 'x' }, 'network'],
  ],
  'PoolService/CreatePool': [
    [{}, 'name'],
    [{ name: 'p' }, 'cidr'],
    [{ name: long(254), cidr: '10.1.0.0/16' }, 'name'],
    [{ name: 'p', cidr: '10.1.0.1/16' }, 'cidr'],
    [space({ exclude: ['10.1.0.5', '10.2.0.0/24'] }), 'exclude[1]'],
    [space({ liveness: 7 }), 'liveness'],
    [space({ reapPolicy: { misses: 9 } }), 'reapPolicy.misses'],
    [space({ reapPolicy: { confirmGrace: '0s' } }), 'reapPolicy.confirmGrace'],
    [space({ options: { dns: many(17, () => '1.1.1.1') } }), 'options.dns'],
    [space({ options: { routes: [{}] } }), 'options.routes[0].destination'],
    [space({ options: { routes: many(65, () => ({ destination: '0.0.0.0/0' })) } }), 'options.routes'],
  ],
  'PoolService/UpdatePool': [
    [{ name: 'web', newName: '' }, 'newName'],
    [{ name: 'web', confirmWithin: '0.5s' }, 'confirmWithin'],
    [{ name: 'web', subnet: '' }, 'subnet'],
    [{ name: 'web', ownerLimit: 0 }, 'ownerLimit'],
    [{ name: 'web', liveness: 'POOL_LIVENESS_UNSPECIFIED' }, 'liveness'],
    [{ name: 'web', updateMask: 'lables' }, 'updateMask'],
    [{ name: 'web', updateMask: 'name' }, 'updateMask'],
    [{ name: 'web', updateMask: 'gateway' }, 'gateway'],
    [{ name: 'web', updateMask: 'labels', draining: true }, 'draining'],
    [{ name: 'web', reapPolicy: { confirmGrace: '-1s' } }, 'reapPolicy.confirmGrace'],
  ],
  'LivenessService/GetSource': [[{}, 'id']],
  'PoolService/GetPool': [[{ network: long(64), name: long(64) }, 'network']],
  'PoolService/ListPools': [[{ cidr: 'x' }, 'cidr']],
}

describe('refused, with the field', () => {
  test.each(
    Object.entries(REFUSED).flatMap(([method, all]) =>
      all.map(([body, field], index) => [index, method, field, body] as const),
    ),
  )('#%i %s %j', async (_index, method, field, body) => {
    const answer = await call(method, body)
    expect(answer).toMatchObject({
      code: 'invalid_argument',
      reason: 'INVALID_FIELD',
      metadata: { field, why: expect.stringMatching(/./) },
    })
    if (field !== '') expect(answer.message).toContain(field)
  })

  const torn = Buffer.concat([
    Buffer.from('{"owner":{"kind":"pod","name":"a'),
    Buffer.from([0xff, 0x22, 0x7d, 0x7d]),
  ])
  test('bytes that are no UTF-8, compressed and in gRPC-Web', async () => {
    const send = (
      type: string,
      body: Uint8Array<ArrayBuffer>,
      headers: Readonly<Record<string, string>> = {},
    ) =>
      fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
        method: 'POST',
        headers: { 'content-type': type, ...headers },
        body,
      })
    const zipped = await send('application/json', gzipSync(torn), { 'content-encoding': 'gzip' })
    expect(readRefusal(await zipped.json())).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: '' },
    })
    const framed = await send(
      'application/grpc-web+json',
      Buffer.concat([Buffer.from([0, 0, 0, 0, torn.length]), torn]),
    )
    expect(await framed.text()).toContain('grpc-status: 3')
  })

  test('half of a pair that JSON did not bring', () => {
    for (const half of [HALF, `a${HALF}`, `${HALF}b`, '\udc00', '\udc00\ud800', '🚀\ud83d'])
      expect(() => text(half, 'owner.name', 253), JSON.stringify(half)).toThrow('surrogate')
    for (const whole of ['', 'é', '日本', '🚀', 'a🚀b']) expect(text(whole, 'owner.name', 253)).toBe(whole)
  })

  test('and nothing came of any of it', async () => {
    const { body } = await call('NetworkService/ListNetworks', {})
    expect(body.networks.map((one: { name: string; head: string }) => [one.name, one.head])).toEqual([
      ['default', '2'],
    ])
  })
})

describe('accepted at the edge', () => {
  test('everything as long as it may be', async () => {
    const owner = {
      kind: `p${long(62)}`,
      name: '日'.repeat(84),
      uid: long(253),
      incarnation: `|%${long(251)}`,
      interface: long(63),
      node: long(253),
      labels: { ...labels(63), [`k${long(61)}0`]: long(253) },
    }
    const { status, body } = await call('LeaseService/Reserve', {
      owner,
      claims: [{ pools: ['web'], address: '10.0.255.254' }],
      liveAddresses: many(4096, (index) => `10.9.${index >> 8}.${index & 255}`),
      confirmWithin: '2592000s',
      requestId: long(128),
    })
    expect([status, body.leases?.[0].owner]).toEqual([200, owner])
    const listed = await call('LeaseService/ListLeases', { ownerKind: owner.kind, ownerName: owner.name })
    expect(listed.body.leases).toHaveLength(1)
  })

  test('two spellings of one address are one address', async () => {
    await call('PoolService/CreatePool', { name: 'six', cidr: 'FD00:0:0:0::/64' })
    const first = await call('LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'six' },
      claims: [{ address: 'FD00:0000::00:A' }],
      requestId: 'six',
    })
    expect(first.body.leases[0].address).toBe('fd00::a')
    const again = await call('LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'six' },
      claims: [{ address: 'fd00::0.0.0.10' }],
      requestId: 'six',
    })
    expect(again.body.leases[0].leaseId).toBe(first.body.leases[0].leaseId)
    const got = await call('LeaseService/GetLease', { address: 'fd00::0.0.0.10' })
    expect(got.body.lease.leaseId).toBe(first.body.leases[0].leaseId)
  })

  test('labels in another order, and defaults that are spelled out, are the same request', async () => {
    const request = {
      owner: { kind: 'pod', name: 'order', labels: { b: '2', a: '1', 10: 'x', 9: 'y' } },
      claims: [{ pool: 'web' }],
      requestId: 'order',
    }
    const first = await call('LeaseService/Reserve', request)
    const again = await call('LeaseService/Reserve', {
      network: 'default',
      requestId: 'order',
      claims: [{ pools: ['web'], preferPrevious: false }],
      owner: { name: 'order', kind: 'pod', interface: 'eth0', labels: { 9: 'y', 10: 'x', a: '1', b: '2' } },
      liveAddresses: [],
    })
    expect(again.body.leases?.[0].leaseId).toBe(first.body.leases[0].leaseId)
  })

  test('a request of 512 KiB is read, a larger one is not', async () => {
    const padding = (bytes: number) => {
      const body = JSON.stringify({ owner: OWNER, claims: [{ pool: 'web' }] })
      return `${body}${' '.repeat(bytes - body.length)}`
    }
    const most = 512 * 1024
    expect((await call('LeaseService/Reserve', padding(most))).status).toBe(200)
    const tooLarge = await call('LeaseService/Reserve', padding(most + 1))
    expect(tooLarge).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: '' } })
    expect(tooLarge.message).toContain('524288 bytes')
    const batch = (bytes: number) => `{"requests":[${padding(bytes - '{"requests":[]}'.length)}]}`
    expect((await call('LeaseService/BatchReserve', batch(most))).status).toBe(200)
    expect((await call('LeaseService/BatchReserve', batch(most + 1))).reason).toBe('INVALID_FIELD')
  })

  test('an item of another type is named up to the last; a list that is too long is refused as a whole', async () => {
    const behind = (count: number) => ({ liveAddresses: [...many(count, () => '10.0.0.1'), 7] })
    const last = await call('LeaseService/Reserve', behind(4_095))
    expect(last).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'liveAddresses[4095]' } })
    expect(last.message).toContain('must be a string; it is 7')
    const far = await call('LeaseService/Reserve', behind(4_096))
    expect(far).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'liveAddresses' } })
    expect(far.message).toContain('at most 4096')
  })

  test('of a batch, a wrong type refuses all, a wrong value its item', async () => {
    const requests = (kind: unknown) => ({ requests: [reserve({}), owner({ kind })] })
    const type = await call('LeaseService/BatchReserve', requests(7))
    expect(type).toMatchObject({ status: 400, metadata: { field: 'requests[1].owner.kind' } })
    const { status, body } = await call('LeaseService/BatchReserve', requests('Pod'))
    expect([status, body.results[1].error.metadata.field]).toEqual([200, 'owner.kind'])
  })

  test.each(['grpc', 'grpc-web', 'connect json over h2'] satisfies Protocol[])(
    '%s has the same limit',
    async (protocol) => {
      const error = await clientOf(LeaseService, running, protocol)
        .reserve({ owner: { ...OWNER, labels: { a: 'x'.repeat(1024 * 1024) } } })
        .catch((thrown: unknown) => ConnectError.from(thrown))
      expect(error).toMatchObject({
        code: Code.InvalidArgument,
        rawMessage: expect.stringContaining('524288 bytes'),
      })
      expect((error as ConnectError).findDetails(ErrorInfoSchema)).toMatchObject([
        { reason: 'INVALID_FIELD' },
      ])
    },
  )

  test('the size is limited without a Content-Length too', async () => {
    const chunk = Buffer.alloc(64 * 1024, ' ')
    let sent = 0
    const stream = new ReadableStream({
      pull(controller) {
        sent += chunk.length
        if (sent > 8 * 1024 * 1024) controller.close()
        else controller.enqueue(chunk)
      },
    })
    const answer = await fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: stream,
      duplex: 'half',
    } as RequestInit).then(
      async (response) => readRefusal(await response.json()).reason,
      // The connection was closed while the rest was still being sent.
      (error: Error) => (error.cause as NodeJS.ErrnoException).code,
    )
    expect(['INVALID_FIELD', 'EPIPE', 'ECONNRESET', 'UND_ERR_SOCKET']).toContain(answer)
    expect(sent).toBeLessThanOrEqual(8 * 1024 * 1024 + chunk.length)
  })

  test('binary: a number that an enum does not know', async () => {
    const response = await fetch(`${running.url}/ipledger.v1.LeaseService/Release`, {
      method: 'POST',
      headers: { 'content-type': 'application/proto' },
      body: toBinary(
        ReleaseRequestSchema,
        create(ReleaseRequestSchema, { owner: FULL, removal: 77 as Removal }),
      ),
    })
    expect(readRefusal(await response.json()).metadata.field).toBe('removal')
  })

  test('an IPv4-mapped address in a list is its IPv4 address, and spoils nothing', async () => {
    await call('PoolService/CreatePool', { name: 'mapped', cidr: '10.77.0.0/24' })
    const { body } = await call('LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'mapped' },
      claims: [{ pool: 'mapped' }],
      liveAddresses: many(5, (index) => `::ffff:10.77.0.${index + 1}`),
    })
    expect(body.leases[0].address).toBe('10.77.0.6')
    const seen = await call('LeaseService/ListLeases', { quarantineReasons: ['FOREIGN'] })
    expect(seen.body.leases.map((one: { address: string }) => one.address)).toEqual(
      many(5, (index) => `10.77.0.${index + 1}`),
    )
  })
})
