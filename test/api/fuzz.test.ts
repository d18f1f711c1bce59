/**
 * Whatever is sent to whichever method in whichever protocol: an answer or a refusal, never an internal error, never a
 * crash, and a call that was refused left nothing behind. A failing seed is printed and becomes a test.
 */
import * as http2 from 'node:http2'
import { connect as connectTcp } from 'node:net'
import { gzipSync } from 'node:zlib'
import {
  create,
  type DescField,
  type DescMessage,
  fromJson,
  type JsonValue,
  toBinary,
} from '@bufbuild/protobuf'
import fc from 'fast-check'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { SERVICES } from '../../src/api/rpc-server.ts'
import { Health } from '../../src/gen/grpc/health/v1/health_pb.ts'
import { useService } from '../support/service.ts'
import { serverOn, urls } from './running.ts'

const RUNS = Number(process.env.IPLEDGER_FUZZ_RUNS ?? 8)

const running = await useService()
const errors: unknown[] = []
const logger = pino({ level: 'error' }, { write: (line: string) => errors.push(JSON.parse(line)) })
const server = await serverOn({ ...running, logger })
const { url, grpcUrl } = urls(server)
let session: http2.ClientHttp2Session

beforeAll(async () => {
  session = http2.connect(grpcUrl)
  for (const [name, cidr, prefixLength] of [
    ['web', '10.0.0.0/24', 32],
    ['six', 'fd00::/64', 128],
    ['blocks', '10.1.0.0/16', 28],
  ]) {
    await running.call('PoolService/CreatePool', { name, cidr, prefixLength })
  }
  for (const [id, kind, settings] of [
    ['agent', 'PUSH', undefined],
    ['docker', 'DOCKER', { network: 'sandboxes', host: '192.0.2.1', port: 2375 }],
  ]) {
    const sight = { ownerKinds: ['pod'] }
    await running.call('LivenessService/RegisterSource', { id, kind, sight, ...(settings && { settings }) })
    await running.call('LivenessService/EnableSource', { id })
  }
  for (const pool of ['web', 'six', 'blocks']) {
    await running.call('LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'default/a', incarnation: 'i' },
      claims: [{ pool }],
    })
  }
})
afterAll(async () => {
  session.close()
  await server.close()
})

const METHODS = [...SERVICES, Health].flatMap((service) =>
  service.methods
    .filter((method) => method.methodKind === 'unary')
    .map((method) => ({ name: `${service.typeName}/${method.name}`, input: method.input })),
)

/** What would be right, by the name of the field. */
const LIKELY: Readonly<Record<string, readonly JsonValue[]>> = {
  kind: ['pod', 'vm'],
  name: ['default/a', 'web', 'default'],
  interface: ['eth0'],
  incarnation: ['i', 'j'],
  network: ['default'],
  pool: ['web', 'six', 'blocks'],
  pools: ['web', 'six', 'blocks'],
  address: ['10.0.0.5', 'fd00::5', '10.1.0.16'],
  cidr: ['10.0.0.0/24', '10.2.0.0/24', 'fd01::/64'],
  liveAddresses: ['10.0.0.5', 'fd00::5', '10.1.0.17'],
  leaseId: ['default/5', 'default/6', 'default/7'],
  fencingToken: [5, 6, 7],
  version: [5, 6, 7],
  why: ['fuzz'],
  uid: ['u'],
  pageSize: [0, 1, 1000],
  types: ['lease.reserved'],
  service: ['', 'ipledger.v1.LeaseService'],
  source: ['agent', 'agent', 'docker', 'none'],
  id: ['agent', 'new', 'docker'],
  node: ['', 'n1'],
  epoch: ['e1', 'e2'],
  ownerKinds: ['pod', 'vm'],
  families: [4, 6],
  detail: ['no such pod'],
  codes: ['SOURCE_SILENT', 'HELD'],
  sequence: [1, 2, 3],
  head: [0, 1, 3],
  begunAt: [new Date().toISOString()],
  unchanged: [''],
}

/** What means something somewhere, in fields where it may not, and what has no meaning anywhere. */
const WORDS = [
  ...Object.values(LIKELY).flat().map(String),
  ...['10.0.0.300', '::ffff:10.0.0.1', 'fe80::1%1', '10.0.0.1-10.0.0.9', 'gateway', 'MS5hYWFhYWFhYWFhYWEueA'],
  ...['\u0000', '\ud800', '\udfff', ...'%|\\"\u202e🚀'],
  ...['a\nb', "'; drop table ipledger.event; --"],
  ...['__proto__', 'constructor', 'toString', 'x'.repeat(300), 'x'.repeat(5_000)],
]
const numbers = fc.oneof(
  fc.nat(300),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom<JsonValue>(2 ** 53, 2 ** 63, '42', '9007199254740993'),
)
const DURATIONS = ['0s', '30s', '-1s', '0.0000001s', '2592000s', '315576000000s', '99999999999999s', '1', 's']
const TIMES = ['2026-01-02T03:04:05.678Z', '0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999999999Z', 'now']

const junk: fc.Arbitrary<JsonValue> = fc.oneof(
  fc.constantFrom<JsonValue>(null, true, {}, [], [[]], { a: 1 }, 'NaN'),
  fc.constantFrom<JsonValue>(...WORDS),
  numbers,
  fc.string({ unit: 'binary', maxLength: 40 }),
)

function fieldOf(field: DescField, depth: number): fc.Arbitrary<JsonValue> {
  switch (field.fieldKind) {
    case 'list':
      return fc.array(single(field, depth), { maxLength: 4 })
    case 'map':
      return fc.dictionary(fc.constantFrom(...WORDS, 'app'), single(field, depth), { maxKeys: 3 })
    default:
      return single(field, depth)
  }
}

function single(field: DescField, depth: number): fc.Arbitrary<JsonValue> {
  if (field.message !== undefined) {
    if (field.message.typeName === 'google.protobuf.Duration') return fc.constantFrom(...DURATIONS)
    if (field.message.typeName === 'google.protobuf.Timestamp') return fc.constantFrom(...TIMES)
    return depth > 3 ? fc.constant({}) : jsonOf(field.message, depth + 1)
  }
  if (field.enum !== undefined) {
    return fc.oneof(
      fc.constantFrom(...field.enum.values.map((one) => one.name)),
      fc.integer({ min: -3, max: 12 }),
    )
  }
  const likely = LIKELY[field.jsonName] ?? ['']
  return fc.oneof(
    { weight: 40, arbitrary: fc.constantFrom<JsonValue>(...likely) },
    { weight: 3, arbitrary: fc.constantFrom<JsonValue>(...WORDS) },
    { weight: 2, arbitrary: numbers },
    { weight: 1, arbitrary: fc.boolean() },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  )
}

function jsonOf(desc: DescMessage, depth = 0): fc.Arbitrary<JsonValue> {
  const fields = desc.fields.map(
    (field) =>
      [
        field.jsonName,
        fc.oneof(
          { weight: LIKELY[field.jsonName] === undefined ? 20 : 6, arbitrary: fc.constant(undefined) },
          { weight: 12, arbitrary: fieldOf(field, depth) },
          { weight: 1, arbitrary: junk },
        ),
      ] as const,
  )
  return fc.record(Object.fromEntries(fields)).map((record) => {
    const given = Object.entries(record).filter(([, value]) => value !== undefined)
    return Object.fromEntries(given) as JsonValue
  })
}

/** A message as bytes: well-formed if the JSON was one, then cut, flipped or stuffed. */
function bytesOf(desc: DescMessage): fc.Arbitrary<Uint8Array> {
  const sound = jsonOf(desc).map((json) => {
    try {
      return toBinary(desc, fromJson(desc, json, { ignoreUnknownFields: true }))
    } catch {
      return toBinary(desc, create(desc))
    }
  })
  const bytes = fc.uint8Array({ maxLength: 64 })
  return fc.oneof(
    sound,
    bytes,
    fc.tuple(sound, fc.nat(200)).map(([message, at]) => message.subarray(0, at)),
    fc.tuple(sound, fc.nat(200), fc.nat(255)).map(([message, at, flip]) => {
      const copy = message.slice()
      if (copy.length > 0) copy[at % copy.length]! ^= flip
      return copy
    }),
    fc.tuple(sound, bytes).map(([message, tail]) => Buffer.concat([message, tail])),
  )
}

const GRPC_CODES =
  'ok canceled unknown invalid_argument deadline_exceeded not_found already_exists permission_denied resource_exhausted failed_precondition aborted out_of_range unimplemented internal unavailable data_loss unauthenticated'.split(
    ' ',
  )

type Answered = { readonly refused: boolean; readonly code: string; readonly message: string }

async function plain(method: string, type: string, body: string | Uint8Array, more = {}): Promise<Answered> {
  const response = await fetch(`${url}/${method}`, {
    method: 'POST',
    headers: { 'content-type': type, ...more },
    body,
  })
  const bytes = Buffer.from(await response.arrayBuffer())
  if (response.status === 200) return { refused: false, code: 'ok', message: '' }
  if (response.headers.get('content-type') !== 'application/json') {
    return { refused: true, code: `HTTP ${response.status}`, message: bytes.toString() }
  }
  const { code, message } = JSON.parse(bytes.toString())
  return { refused: true, code, message }
}

function envelope(message: Uint8Array, flags = 0): Buffer {
  const head = Buffer.alloc(5)
  head[0] = flags
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

function grpc(method: string, body: Uint8Array, type = 'application/grpc+proto'): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': `/${method}`,
      'content-type': type,
      te: 'trailers',
    })
    let status = ''
    let message = ''
    const read = (headers: http2.IncomingHttpHeaders) => {
      if (headers['grpc-status'] !== undefined) {
        status = String(headers['grpc-status'])
        message = String(headers['grpc-message'] ?? '')
        expect(message).toMatch(/^[\x20-\x7e]*$/)
      }
    }
    stream.on('response', read)
    stream.on('trailers', read)
    stream.on('error', reject)
    stream.resume()
    stream.on('close', () => {
      const code = GRPC_CODES[Number(status === '' ? 'x' : status)] ?? `grpc-status "${status}"`
      resolve({ refused: code !== 'ok', code, message })
    })
    stream.end(body)
  })
}

async function head(): Promise<number> {
  return (await running.reads.network('default'))!.head
}

const counted = { accepted: 0, refused: 0 }

/** Refused Reserves may leave quarantines of what their caller sees live; that is said in the contract. */
async function holds(send: () => Promise<Answered>, mayLeave = false): Promise<void> {
  const before = await head()
  const answered = await send()
  counted[answered.refused ? 'refused' : 'accepted'] += 1
  expect(errors).toEqual([])
  expect(answered.code, answered.message).not.toMatch(/internal|unknown|HTTP 5|grpc-status|data_loss/)
  if (answered.refused && !mayLeave) expect(await head()).toBe(before)
}

const seesLive = (body: unknown) => JSON.stringify(body ?? '').includes('liveAddresses')

describe.each(METHODS)('$name', ({ name, input }) => {
  const options = { numRuns: RUNS, endOnFailure: true }

  test('almost right JSON', async () => {
    await fc.assert(
      fc.asyncProperty(jsonOf(input), (json) =>
        holds(() => plain(name, 'application/json', JSON.stringify(json)), seesLive(json)),
      ),
      options,
    )
  })

  test('text that may be no JSON', async () => {
    const torn = fc
      .tuple(jsonOf(input), fc.nat(300), fc.string({ unit: 'binary', maxLength: 5 }))
      .map(([json, at, insert]) => {
        const text = JSON.stringify(json)
        return text.slice(0, at) + insert + text.slice(at + insert.length)
      })
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(torn, fc.json(), fc.string({ unit: 'binary' })),
        fc.constantFrom({}, { 'content-encoding': 'gzip' }),
        (text, headers) => {
          const body = 'content-encoding' in headers ? gzipSync(text) : text
          return holds(() => plain(name, 'application/json', body, headers), text.includes('live'))
        },
      ),
      options,
    )
  })

  test('bytes', async () => {
    const mayLeave = name.endsWith('Reserve')
    await fc.assert(
      fc.asyncProperty(bytesOf(input), (bytes) =>
        holds(() => plain(name, 'application/proto', bytes), mayLeave),
      ),
      options,
    )
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          bytesOf(input).map((bytes) => envelope(bytes)),
          fc
            .tuple(bytesOf(input), fc.constantFrom(1, 2, 128, 255))
            .map(([bytes, flags]) => envelope(bytes, flags)),
          bytesOf(input),
          fc
            .tuple(bytesOf(input), bytesOf(input))
            .map((both) => Buffer.concat(both.map((one) => envelope(one)))),
        ),
        fc.constantFrom('application/grpc', 'application/grpc+json'),
        (bytes, type) => holds(() => grpc(name, bytes, type), mayLeave),
      ),
      options,
    )
  })
})

test('noise on both ports', async () => {
  const noise = fc.uint8Array({ minLength: 1, maxLength: 200 })
  const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
  const send = (port: number, bytes: Uint8Array) =>
    new Promise<void>((resolve) => {
      const socket = connectTcp(port, '127.0.0.1', () => socket.end(bytes))
      socket.resume()
      socket.on('error', () => {})
      socket.on('close', () => resolve())
    })
  await fc.assert(
    fc.asyncProperty(noise, async (bytes) => {
      await send(server.httpPort, bytes)
      await send(server.httpPort, Buffer.concat([Buffer.from('POST / HTTP/1.1\r\n'), bytes]))
      await send(server.grpcPort, bytes)
      await send(server.grpcPort, Buffer.concat([preface, bytes]))
      await send(server.grpcPort, Buffer.concat([preface, Buffer.alloc(9), bytes]))
    }),
    { numRuns: RUNS },
  )
  expect((await fetch(`${url}/healthz`)).status).toBe(200)
  expect((await grpc('grpc.health.v1.Health/Check', envelope(new Uint8Array()))).code).toBe('ok')
})

test('headers that make no sense', async () => {
  const bad = {
    'connect-timeout-ms': ['x', '-1', '1e3', '99999999999'],
    'content-encoding': ['br', 'x'],
    traceparent: ['x'],
  }
  for (const [header, values] of Object.entries(bad)) {
    for (const value of values) {
      await holds(() =>
        plain('ipledger.v1.PoolService/ListPools', 'application/json', '{}', { [header]: value }).then(
          (answered) => ({
            ...answered,
            refused: false,
          }),
        ),
      )
    }
  }
})

test('both kinds of answers came up', () => {
  expect(counted.accepted).toBeGreaterThan(RUNS)
  expect(counted.refused).toBeGreaterThan(RUNS)
})
