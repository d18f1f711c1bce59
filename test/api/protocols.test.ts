import { connect as connectTcp } from 'node:net'
import { gzipSync } from 'node:zlib'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { describe, expect, onTestFinished, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { SERVICES } from '../../src/api/rpc-server.ts'
import { ErrorInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
} from '../../src/gen/grpc/health/v1/health_pb.ts'
import { ServerReflection } from '../../src/gen/grpc/reflection/v1/reflection_pb.ts'
import { AuditService } from '../../src/gen/ipledger/v1/audit_pb.ts'
import {
  LeaseService,
  ReserveRequestSchema,
  ReserveResponseSchema,
} from '../../src/gen/ipledger/v1/lease_pb.ts'
import { PoolService } from '../../src/gen/ipledger/v1/pool_pb.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { clientOf, type Protocol, serverOn, transportOf, urls } from './running.ts'

const PROTOCOLS: readonly Protocol[] = [
  'connect json',
  'connect binary',
  'grpc-web',
  'grpc',
  'connect json over h2',
]

const running = await useService()
const pools = clientOf(PoolService, running)
await pools.createPool({
  name: 'web',
  cidr: '10.0.0.0/24',
  gateway: '10.0.0.1',
  options: { dns: ['1.1.1.1'], mtu: 1400 },
})

describe('the same in every protocol', () => {
  test.each(PROTOCOLS)('%s: an answer', async (protocol) => {
    const leases = clientOf(LeaseService, running, protocol)
    const request = {
      owner: { kind: 'pod', name: 'default/same', incarnation: 'a', node: 'n1', labels: { app: 'web' } },
      claims: [{ pool: 'web' }],
    }
    const first = await clientOf(LeaseService, running).reserve(request)
    const again = await leases.reserve(request)
    expect(again.leases).toEqual([{ ...first.leases[0], reused: true }])
    const got = await leases.getLease({ leaseId: first.leases[0]!.leaseId })
    expect(got.lease).toEqual(
      first.leases[0]!.reused ? { ...first.leases[0], reused: false } : first.leases[0],
    )
    expect(got.head).toBeTypeOf('bigint')
  })

  test.each(PROTOCOLS)('%s: a refusal, with its details', async (protocol) => {
    const error = await clientOf(LeaseService, running, protocol)
      .reserve({ owner: { kind: 'pod', name: 'refused' }, claims: [{ pool: 'nowhere' }] })
      .catch((thrown: unknown) => ConnectError.from(thrown))
    if (!(error instanceof ConnectError)) throw new Error('was accepted')
    expect(error.code).toBe(Code.NotFound)
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([
      {
        reason: 'POOL_NOT_FOUND',
        domain: 'ipledger',
        metadata: { pool: 'nowhere', field: 'claims[0].pools[0]' },
      },
    ])
  })

  test.each(PROTOCOLS)('%s: text beyond ASCII, in an answer and in an error', async (protocol) => {
    const leases = clientOf(LeaseService, running, protocol)
    const name = `größe-日本-🚀-${protocol}`
    const { leases: made } = await leases.reserve({ owner: { kind: 'vm', name }, claims: [{ pool: 'web' }] })
    expect(made[0]!.owner!.name).toBe(name)
    const error = await leases
      .reserve({ owner: { kind: 'vm', name }, claims: [{ pool: 'web', address: '10.0.0.250' }] })
      .catch((thrown: unknown) => ConnectError.from(thrown))
    expect((error as ConnectError).rawMessage).toContain(name)
  })

  test('JSON shows false, 0 and empty, and 64-bit numbers as strings', async () => {
    const { body } = await post(running, 'LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'plain' },
      claims: [{ pool: 'web' }],
    })
    expect(body.leases[0]).toMatchObject({
      state: 'RESERVED',
      reused: false,
      version: expect.stringMatching(/^\d+$/),
      fencingToken: expect.stringMatching(/^\d+$/),
      owner: {
        kind: 'pod',
        name: 'plain',
        uid: 'plain',
        incarnation: '',
        interface: 'eth0',
        node: '',
        labels: {},
      },
      options: { routes: [], dns: ['1.1.1.1'], mtu: 1400 },
    })
    expect(body.leases[0]).not.toHaveProperty('confirmBy')
  })

  test('snake_case names are read too, and strings for 64-bit numbers as well as numbers', async () => {
    const { body } = await post(running, 'LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'snake' },
      claims: [{ pool: 'web', prefer_previous: true }],
    })
    const { fencingToken } = body.leases[0]
    const one = await post(running, 'LeaseService/Confirm', { fencing_token: fencingToken })
    const other = await post(running, 'LeaseService/Confirm', { fencingToken: Number(fencingToken) })
    expect(one.body).toEqual(other.body)
    expect(one.body.leases[0].state).toBe('ACTIVE')
  })

  test('a compressed request goes to the library and gets the same answer', async () => {
    const body = JSON.stringify({ owner: { kind: 'pod', name: 'plain' }, claims: [{ pool: 'web' }] })
    const compressed = await post(running, 'LeaseService/Reserve', gzipSync(body), {
      'content-encoding': 'gzip',
    })
    const plain = await post(running, 'LeaseService/Reserve', body)
    expect(compressed.status).toBe(200)
    expect(compressed.body).toEqual(plain.body)
  })

  test('a body in pieces is one body', async () => {
    const body = JSON.stringify({ owner: { kind: 'pod', name: 'grö' }, claims: [{ pool: 'web' }] })
    const bytes = Buffer.from(body)
    const cut = bytes.indexOf(Buffer.from('ö')) + 1
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(bytes.subarray(0, cut))
        controller.enqueue(bytes.subarray(cut))
        controller.close()
      },
    })
    const response = await fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json; charset=utf-8' },
      body: stream,
      duplex: 'half',
    } as RequestInit)
    expect(await response.json()).toMatchObject({ leases: [{ owner: { name: 'grö' } }] })
  })

  test('binary answers of unary-http are those of the schema', async () => {
    const request = { owner: { kind: 'pod', name: 'plain' }, claims: [{ pool: 'web' }] }
    const json = await post(running, 'LeaseService/Reserve', request)
    const response = await fetch(`${running.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/proto' },
      body: toBinary(ReserveRequestSchema, create(ReserveRequestSchema, request)),
    })
    expect(response.headers.get('content-type')).toBe('application/proto')
    const answered = fromBinary(ReserveResponseSchema, new Uint8Array(await response.arrayBuffer()))
    expect(answered.leases[0]!.leaseId).toBe(json.body.leases[0].leaseId)
  })

  test.each(PROTOCOLS)('%s: the trace of the caller is in the log', async (protocol) => {
    const trace = Buffer.from(protocol.padEnd(16).slice(0, 16)).toString('hex')
    const headers = { traceparent: `00-${trace}-00f067aa0ba902b7-01` }
    const { leases } = await clientOf(LeaseService, running, protocol).reserve(
      { owner: { kind: 'pod', name: `traced ${protocol}` }, claims: [{ pool: 'web' }] },
      { headers },
    )
    const { events } = await clientOf(AuditService, running, protocol).listEvents({
      leaseId: leases[0]!.leaseId,
    })
    expect(events).toMatchObject([
      { type: 'lease.reserved', traceId: trace, cause: 'Reserve', actor: 'loopback' },
    ])
  })
})

describe('health', () => {
  test.each(['connect json', 'grpc-web', 'grpc'] satisfies Protocol[])('%s: Check', async (protocol) => {
    const health = clientOf(Health, running, protocol)
    expect((await health.check({})).status).toBe(Status.SERVING)
    expect((await health.check({ service: 'ipledger.v1.LeaseService' })).status).toBe(Status.SERVING)
    const error = await health
      .check({ service: 'nobody' })
      .catch((thrown: unknown) => ConnectError.from(thrown))
    expect(error).toMatchObject({ code: Code.NotFound })
  })

  test('Watch says what is, and when the server stops', async () => {
    const server = await serverOn(running)
    const health = clientOf(Health, urls(server), 'grpc')
    const seen: Status[] = []
    const watching = (async () => {
      for await (const { status } of health.watch({ service: 'ipledger.v1.LeaseService' })) seen.push(status)
    })()
    await waitFor(() => seen.length > 0)
    await server.close()
    await watching.catch(() => {})
    expect(seen).toEqual([Status.SERVING, Status.NOT_SERVING])
  })

  test('Watch of an unknown service says so and stays', async () => {
    const abort = new AbortController()
    const health = clientOf(Health, running, 'grpc')
    for await (const { status } of health.watch({ service: 'nobody' }, { signal: abort.signal })) {
      expect(status).toBe(Status.SERVICE_UNKNOWN)
      break
    }
    abort.abort()
  })

  test('without the database: up, not ready, and methods say so', async () => {
    const { Reads } = await import('../../src/ledger/reads.ts')
    const { createPool } = await import('../../src/postgres/connect.ts')
    const gone = createPool({ url: 'postgresql://nobody@127.0.0.1:1/none', applicationName: 'test', max: 1 })
    const server = await serverOn({ ...running, reads: new Reads(gone) })
    onTestFinished(async () => {
      await server.close()
      await gone.end()
    })
    const { url } = urls(server)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    const ready = await fetch(`${url}/readyz`)
    expect([ready.status, await ready.text()]).toEqual([503, expect.stringContaining('not ready')])
    const health = clientOf(Health, urls(server))
    for (const service of ['', 'ipledger.v1.LeaseService'])
      expect((await health.check({ service })).status).toBe(Status.NOT_SERVING)
    expect(await post({ url }, 'LeaseService/ListLeases', {}, { 'connect-timeout-ms': '100' })).toMatchObject(
      {
        code: 'unavailable',
        reason: 'DATABASE_UNAVAILABLE',
        retryAfter: '1s',
      },
    )
  })
})

describe('reflection', () => {
  test('tells everything a client needs', async () => {
    const transport = transportOf(running, 'grpc')
    const ask = async (...questions: { case: string; value: unknown }[]) => {
      const client = createClient(ServerReflection, transport)
      const answers = []
      const requests = (async function* () {
        for (const messageRequest of questions) yield { messageRequest } as never
      })()
      for await (const { messageResponse } of client.serverReflectionInfo(requests))
        answers.push(messageResponse)
      return answers
    }
    const [listed] = await ask({ case: 'listServices', value: '' })
    const names = (listed!.value as { service: { name: string }[] }).service.map((one) => one.name)
    expect(names).toEqual([
      ...SERVICES.map((one) => one.typeName),
      'grpc.health.v1.Health',
      'grpc.reflection.v1.ServerReflection',
    ])
    const answers = await ask(
      ...names.map((value) => ({ case: 'fileContainingSymbol', value })),
      { case: 'fileContainingSymbol', value: 'ipledger.v1.LeaseService.Reserve' },
      { case: 'fileContainingSymbol', value: 'ipledger.v1.Owner' },
      { case: 'fileByFilename', value: 'ipledger/v1/types.proto' },
    )
    for (const answer of answers) {
      expect(answer.case).toBe('fileDescriptorResponse')
      const { fileDescriptorProto } = answer.value as { fileDescriptorProto: Uint8Array[] }
      const file = fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes))
      // The client can build its types from one answer: nothing imported is missing.
      const names = file.map((one) => one.name)
      expect(file.flatMap((one) => one.dependency).filter((name) => !names.includes(name))).toEqual([])
    }
    const [unknown, nothing] = await ask(
      { case: 'fileContainingSymbol', value: 'ipledger.v1.Nobody' },
      {
        case: 'fileContainingExtension',
        value: { containingType: 'ipledger.v1.Owner', extensionNumber: 1 },
      },
    )
    expect(unknown).toMatchObject({ case: 'errorResponse', value: { errorCode: Code.NotFound } })
    expect(nothing).toMatchObject({ case: 'errorResponse', value: { errorCode: Code.NotFound } })
  })
})

describe('HTTP', () => {
  const JSON_TYPE = "-H 'content-type: application/json'"
  test.each([
    ['GET', '/nothing', 404, 'unimplemented', 'see /openapi.json'],
    ['GET', '/', 200, undefined, undefined],
    ['POST', '/ipledger.v1.LeaseService/Nothing', 404, 'unimplemented', 'see /openapi.json'],
    ['POST', '/LeaseService/reserve', 404, 'unimplemented', 'POST /ipledger.v1.LeaseService/Reserve'],
    ['GET', '/ipledger.v1.LeaseService/Reserve', 405, 'unimplemented', `by POST: curl ${JSON_TYPE}`],
    ['GET', '/ipledger.v1.LeaseService/WatchLeases', 405, 'unimplemented', 'by POST'],
    ['POST', '/readyz', 405, 'unimplemented', 'GET, HEAD'],
    ['POST', '/ipledger.v1.LeaseService/Reserve', 415, 'invalid_argument', JSON_TYPE],
    ['POST', '/ipledger.v1.LeaseService/WatchLeases', 415, 'invalid_argument', 'application/connect+json'],
  ] as const)('%s %s as curl sends it', async (method, path, status, code, message) => {
    const form = { headers: { 'content-type': 'application/x-www-form-urlencoded' }, body: '{}' }
    const answer = await fetch(running.url + path, { method, ...(method === 'POST' && form) })
    expect(answer.status).toBe(status)
    expect(answer.headers.get('content-type')).toBe('application/json')
    const body = (await answer.json()) as { code?: string; message?: string }
    expect(body.code).toBe(code)
    if (message !== undefined) expect(body.message).toContain(message)
  })

  test('405 names what is allowed', async () => {
    const allowed = async (method: string, path: string) =>
      (await fetch(running.url + path, { method })).headers.get('allow')
    expect(await allowed('GET', '/ipledger.v1.LeaseService/Reserve')).toBe('POST')
    expect(await allowed('POST', '/readyz')).toBe('GET, HEAD')
  })

  test('/ names the pages and the command that says what runs', async () => {
    expect(await (await fetch(`${running.url}/`)).json()).toEqual({
      service: 'ipledger',
      docs: manifest.homepage,
      openapi: '/openapi.json',
      version: 'run: ipledger version',
    })
  })

  test('a page of another site cannot speak as admin through a name that points here', async () => {
    const answer = await raw('POST /ipledger.v1.PoolService/ListPools HTTP/1.1\r\nHost: evil.example\r\n')
    expect(answer).toMatch(/^HTTP\/1\.1 403 /)
    for (const host of ['localhost', '127.0.0.1:8080', '[::1]:8080', 'LOCALHOST:1']) {
      expect(await raw(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\n`)).toMatch(/^HTTP\/1\.1 200 /)
    }
    for (const host of ['127.0.0.1.evil.example', 'localhost.evil.example', '', '[::2]']) {
      expect(await raw(`GET /healthz HTTP/1.1\r\nHost: ${host}\r\n`)).toMatch(/^HTTP\/1\.1 403 /)
    }
  })

  test('a Host header that is no host does not end the server', async () => {
    const { loopbackTokens } = await import('../../src/api/tokens.ts')
    const server = await serverOn({ ...running, tokens: { ...loopbackTokens(), everyoneIsAdmin: false } })
    onTestFinished(() => server.close())
    const head = 'POST /ipledger.v1.PoolService/ListPools HTTP/1.0\r\nContent-Type: application/grpc-web\r\n'
    expect(await raw(head, server.httpPort)).toMatch(/^HTTP\/1\.1 400 /)
    expect(await raw(`${head}Host: a b^c\r\n`, server.httpPort)).toMatch(/^HTTP\/1\.1 400 /)
    expect((await fetch(`${urls(server).url}/healthz`)).status).toBe(200)
  })

  /** Sends a head without a body and reads what comes back. */
  function raw(head: string, port = running.server.httpPort): Promise<string> {
    return new Promise((resolve, reject) => {
      const socket = connectTcp(port, '127.0.0.1', () => socket.end(`${head}Connection: close\r\n\r\n`))
      let text = ''
      socket.on('data', (chunk) => {
        text += chunk.toString('latin1')
      })
      socket.on('error', reject)
      socket.on('close', () => resolve(text))
    })
  }
})
