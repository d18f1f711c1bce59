/**
 * Half of a surrogate pair has no UTF-8: on its way to the database it would become the replacement character, and two
 * strings one. JSON can spell it, so every string of every request is tried, wherever it stands.
 */

import { gzipSync } from 'node:zlib'
import { type DescMessage, ScalarType } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { SERVICES } from '../../src/api/dispatch.ts'
import { text } from '../../src/api/fields.ts'
import { post, readRefusal } from '../support/rpc.ts'
import { useService } from '../support/service.ts'

const running = await useService()

const HALF = '\ud800'
const labels = { a: 'b' }
const owner = {
  kind: 'pod',
  name: 'a',
  uid: 'u',
  incarnation: 'i',
  interface: 'eth0',
  node: 'n',
  labels,
}
const named = { leaseId: 'default/1', network: 'default', owner, requestId: '' }
const reserve = {
  network: 'default',
  owner,
  claims: [{ pools: ['web'], address: '10.0.0.5' }, { pool: 'six' }],
  liveAddresses: ['10.0.0.9'],
  requestId: '',
}
const options = { routes: [{ destination: '10.9.0.0/16', gateway: '10.0.0.1' }], dns: ['10.0.0.2'] }
const space = { cidr: '10.0.0.0/24', subnet: '10.0.0.0/16', gateway: '10.0.0.1', options }
const batch = (item: object) => ({ network: 'default', requestId: 'r', atomic: true, requests: [item] })
const page = { pageToken: '' }
const at = { network: 'default', source: 's', sequence: 1, head: 1, begunAt: '2030-01-01T00:00:00Z' }

/** Requests that are in order, with every string field there is; several where two exclude each other. */
const REQUESTS: Readonly<Record<string, readonly object[]>> = {
  CreateNetwork: [{ name: 'n', description: 'd', labels, requestId: 'r' }],
  UpdateNetwork: [{ name: 'n', description: 'd', labels: { entries: labels }, requestId: 'r' }],
  GetNetwork: [{ name: 'n' }],
  ListNetworks: [{ labels, ...page }],
  EndRecovery: [{ network: 'default', why: 'w', requestId: 'r' }],
  CreatePool: [{ ...space, network: 'default', name: 'web', exclude: ['10.0.0.7'], labels, requestId: 'r' }],
  UpdatePool: [
    {
      ...space,
      network: 'default',
      name: 'web',
      newName: 'web2',
      exclude: { entries: ['10.0.0.7'] },
      labels: { entries: labels },
      clear: ['confirmWithin'],
      requestId: 'r',
    },
  ],
  DeletePool: [{ network: 'default', name: 'web', requestId: 'r' }],
  GetPool: [{ network: 'default', name: 'web' }],
  ListPools: [{ network: 'default', labels, cidr: '10.0.0.0/24', ...page }],
  Reserve: [reserve],
  BatchReserve: [batch(reserve)],
  Confirm: [named],
  BatchConfirm: [batch(named)],
  Release: [named],
  BatchRelease: [batch(named)],
  Quarantine: [
    { network: 'default', address: '10.0.0.5', why: 'w', requestId: 'r' },
    { network: 'default', leaseId: 'default/1', why: 'w', requestId: 'r' },
  ],
  Reap: [
    { leaseId: 'default/1', version: 1, network: 'default', why: 'w', requestId: 'r' },
    { node: 'n', head: 1, network: 'default', why: 'w' },
  ],
  UpdateLabels: [{ leaseId: 'default/1', labels, requestId: 'r' }],
  GetLease: [{ network: 'default', address: '10.0.0.5' }, { leaseId: 'default/1' }],
  ListLeases: [
    {
      network: 'default',
      ownerKind: 'pod',
      ownerName: 'a',
      ownerUid: 'u',
      node: 'n',
      labels,
      pools: ['web'],
      cidr: '10.0.0.0/24',
      ...page,
    },
  ],
  GetRequest: [{ network: 'default', requestId: 'r' }],
  ListEvents: [
    { network: 'default', address: '10.0.0.5', ownerKind: 'pod', ownerName: 'a', ...page },
    { network: 'default', cidr: '10.0.0.0/24', types: ['lease.reserved'] },
    { leaseId: 'default/1' },
  ],
  GetAddressHistory: [
    { network: 'default', address: '10.0.0.5', ...page },
    { network: 'default', cidr: '10.0.0.0/24' },
  ],
  GetLeaseHistory: [{ leaseId: 'default/1', ...page }],
  ListLeasesAsOf: [{ network: 'default', pool: 'web', ...page }],
  ExplainAddress: [{ network: 'default', address: '10.0.0.5' }],
  VerifyNetwork: [{ network: 'default' }],
  RegisterSource: [
    {
      network: 'default',
      id: 's',
      kind: 'HTTP',
      sight: { node: 'n', ownerKinds: ['pod'] },
      settings: { listUrl: 'u' },
      requestId: 'r',
    },
  ],
  EnableSource: [{ network: 'default', id: 's', requestId: 'r' }],
  RetireSource: [{ network: 'default', id: 's', requestId: 'r' }],
  ListSources: [{ network: 'default', id: 's', node: 'n', ...page }],
  ListSightings: [{ network: 'default', source: 's', address: '10.0.0.5', ...page }],
  BeginSnapshot: [{ network: 'default', source: 's' }],
  ReportSnapshot: [
    {
      ...at,
      epoch: 'e',
      entries: [
        {
          address: '10.0.0.5',
          network: 'default',
          kind: 'pod',
          name: 'a',
          uid: 'u',
          incarnation: 'i',
          interface: 'eth0',
          node: 'n',
          state: 'running',
        },
      ],
    },
    { ...at, epoch: 'e', unchanged: 'd' },
  ],
  ReportVerdicts: [
    { network: 'default', source: 's', epoch: 'e', verdicts: [{ id: 'v', answer: 'GONE', detail: 'd' }] },
  ],
  Reconcile: [{ network: 'default', pool: 'web', address: '10.0.0.5', source: 's', ...page }],
  ResumeHold: [{ network: 'default', why: 'w', requestId: 'r' }],
  ListAttention: [{ network: 'default', codes: ['HELD'], ...page }],
}

/** A request with one string spoilt, and the path of that string. */
type Spoilt = { readonly path: string; readonly body: unknown }

/** Every way to spoil a request; `seen` is told which fields of the message's type were met. */
function spoilt(desc: DescMessage, json: unknown, seen: Set<string>): readonly Spoilt[] {
  const whole = json as Readonly<Record<string, unknown>>
  return desc.fields.flatMap((field): readonly Spoilt[] => {
    const value = whole[field.jsonName]
    if (value === undefined) return []
    const put = (path: string, part: unknown): Spoilt => ({
      path: `${field.jsonName}${path}`,
      body: { ...whole, [field.jsonName]: part },
    })
    const mark = () => seen.add(`${desc.typeName}.${field.name}`)
    switch (field.fieldKind) {
      case 'scalar':
        if (field.scalar !== ScalarType.STRING) return []
        mark()
        return [put('', `x${HALF}y`)]
      case 'map':
        mark()
        return [
          put(`["a"]`, { a: HALF }),
          // A key that is half a pair, and one that begins well.
          ...[HALF, `a${HALF}`].map((key) => put(`[${JSON.stringify(key)}]`, { [key]: 'b' })),
        ]
      case 'message':
        if (isStruct(field.message)) {
          mark()
          return [put('', { a: HALF }), put('', { [HALF]: 'b' }), put('', { a: [{ b: `x${HALF}` }] })]
        }
        return spoilt(field.message, value, seen).map(({ path, body }) => put(`.${path}`, body))
      case 'list': {
        const items = value as readonly unknown[]
        const inItem = (index: number, path: string, body: unknown) =>
          put(`[${index}]${path}`, items.with(index, body))
        if (field.listKind === 'message')
          return items.flatMap((item, index) =>
            spoilt(field.message, item, seen).map(({ path, body }) => inItem(index, `.${path}`, body)),
          )
        if (field.listKind !== 'scalar' || field.scalar !== ScalarType.STRING) return []
        mark()
        return [inItem(0, '', HALF)]
      }
      default:
        return []
    }
  })
}

/** JSON in a message: it contains itself. */
function isStruct({ typeName }: DescMessage): boolean {
  return typeName === 'google.protobuf.Struct'
}

/** String fields of a message and of what it contains. */
function stringsOf(desc: DescMessage): readonly string[] {
  return desc.fields.flatMap((field): readonly string[] => {
    if (field.message !== undefined && isStruct(field.message)) return [`${desc.typeName}.${field.name}`]
    if (field.message !== undefined) return stringsOf(field.message)
    const isText = 'scalar' in field && field.scalar === ScalarType.STRING
    return isText || field.fieldKind === 'map' ? [`${desc.typeName}.${field.name}`] : []
  })
}

const METHODS = SERVICES.flatMap((service) => service.methods)

test.each(METHODS.map((method) => [method.name, method] as const))('%s', async (name, method) => {
  const seen = new Set<string>()
  const all = REQUESTS[name]!.flatMap((request) => spoilt(method.input, request, seen))
  for (const { path, body } of all) {
    const answer = await post(running, `${method.parent.name}/${name}`, body)
    expect(answer.status, path).toBe(400)
    expect(answer, path).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: path } })
  }
  expect([...seen].sort()).toEqual([...new Set(stringsOf(method.input))].sort())
})

test('a string that JSON did not bring is looked at all the same', () => {
  for (const half of [HALF, `a${HALF}`, `${HALF}b`, '\udc00', '\udc00\ud800', '🚀\ud83d'])
    expect(() => text(half, 'owner.name', 253), JSON.stringify(half)).toThrow('surrogate')
  for (const whole of ['', 'é', '日本', '🚀', 'a🚀b']) expect(text(whole, 'owner.name', 253)).toBe(whole)
})

describe('bytes that are no UTF-8', () => {
  const body = Buffer.concat([
    Buffer.from('{"owner":{"kind":"pod","name":"a'),
    Buffer.from([0xff]),
    Buffer.from('"},"claims":[{"pool":"web"}]}'),
  ])
  const send = (type: string, sent: Uint8Array, headers: Readonly<Record<string, string>> = {}) =>
    fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': type, ...headers },
      body: sent,
    })

  test.each([
    ['plain', {}, body],
    ['compressed', { 'content-encoding': 'gzip' }, gzipSync(body)],
  ] as const)('%s JSON is refused', async (_how, headers, sent) => {
    const answer = await send('application/json', sent, headers)
    expect(answer.status).toBe(400)
    expect(readRefusal(await answer.json())).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: '' },
    })
  })

  test('gRPC-Web JSON is refused', async () => {
    const frame = Buffer.alloc(5)
    frame.writeUInt32BE(body.length, 1)
    const answer = await send('application/grpc-web+json', Buffer.concat([frame, body]))
    expect(await answer.text()).toContain('grpc-status: 3')
  })
})
