import { createServer } from 'node:http'
import { create, toBinary } from '@bufbuild/protobuf'
import { Code, type ConnectError } from '@connectrpc/connect'
import { errorToJsonBytes } from '@connectrpc/connect/protocol-connect'
import { expect, onTestFinished, test } from 'vitest'
import { invalidField, Refused, toConnectError } from '../../src/api/errors.ts'
import { CallFailed } from '../../src/client/call-failed.ts'
import { createClient, type IpledgerClient } from '../../src/client/client.ts'
import { refusal } from '../../src/core/refusal.ts'
import { ReserveResponseSchema } from '../../src/gen/ipledger/v1/lease_pb.ts'

/** 'broken' ends the connection without an answer. */
type Answer = ConnectError | 'broken' | 'done'

const unavailable = (retryAfterMs?: number): ConnectError =>
  toConnectError(new Refused(refusal('OUTCOME_UNKNOWN', 'not known', { network: 'default' }, retryAfterMs)))

/** A server that gives these answers in turn, the last one again and again. */
async function answering(
  answers: readonly Answer[],
): Promise<{ client: IpledgerClient; seen: { at: number; authorization: string | undefined }[] }> {
  const seen: { at: number; authorization: string | undefined }[] = []
  const server = createServer((request, response) => {
    const answer = answers[Math.min(seen.length, answers.length - 1)]!
    seen.push({ at: performance.now(), authorization: request.headers.authorization })
    request.resume().on('end', () => {
      if (answer === 'broken') return void request.socket.destroy()
      if (answer === 'done') {
        response.setHeader('content-type', 'application/proto')
        return void response.end(toBinary(ReserveResponseSchema, create(ReserveResponseSchema)))
      }
      response.writeHead(answer.code === Code.Unavailable ? 503 : 400, { 'content-type': 'application/json' })
      response.end(errorToJsonBytes(answer, undefined))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  return { client: createClient({ url: `http://127.0.0.1:${port}`, token: 'secret' }), seen }
}

const once = { owner: { kind: 'vm', name: 'a' }, requestId: 'r' }

test.for<[string, Answer]>([
  ['unavailable', unavailable()],
  ['connection broken', 'broken'],
])('%s: what carries a request id is repeated', async ([, answer]) => {
  const { client, seen } = await answering([answer, answer, 'done'])
  expect(await client.leases.reserve(once)).toMatchObject({ leases: [] })
  expect(seen).toHaveLength(3)
  expect(seen[0]!.authorization).toBe('Bearer secret')
})

test('reads are repeated, and after the third time the failure is told', async () => {
  const { client, seen } = await answering([unavailable()])
  await expect(client.leases.listLeases({})).rejects.toMatchObject({ reason: 'OUTCOME_UNKNOWN' })
  expect(seen).toHaveLength(3)
})

test('a write without a request id is sent once', async () => {
  const { client, seen } = await answering([unavailable(), 'done'])
  await expect(client.leases.reserve({ owner: once.owner })).rejects.toBeInstanceOf(CallFailed)
  expect(seen).toHaveLength(1)
})

test('what is refused is not repeated', async () => {
  const { client, seen } = await answering([
    toConnectError(invalidField('owner.kind', 'is required')),
    'done',
  ])
  await expect(client.leases.reserve(once)).rejects.toMatchObject({
    code: 'invalid_argument',
    reason: 'INVALID_FIELD',
    message: 'owner.kind: is required',
    metadata: { field: 'owner.kind', why: 'is required' },
    retryAfterMs: undefined,
  })
  expect(seen).toHaveLength(1)
})

test('the server says when', async () => {
  const { client, seen } = await answering([unavailable(300), 'done'])
  await client.leases.reserve(once)
  expect(seen[1]!.at - seen[0]!.at).toBeGreaterThan(290)
})

test('the time of a caller is up for all tries together', async () => {
  const { client, seen } = await answering([unavailable(60_000)])
  await expect(client.leases.reserve(once, { timeoutMs: 100 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
    reason: undefined,
  })
  expect(seen).toHaveLength(1)
})

test('without an answer of ipledger there is no reason', async () => {
  const { client } = await answering(['broken'])
  await expect(client.leases.reserve({ owner: once.owner })).rejects.toMatchObject({
    name: 'CallFailed',
    reason: undefined,
    metadata: {},
  })
})
