/** What a caller over HTTP/2 can hold: streams, bytes, time. */
import { once } from 'node:events'
import * as http2 from 'node:http2'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { Admission } from '../../src/api/http/admission.ts'
import { createHttp2Server } from '../../src/api/http/http2-server.ts'
import { RequestBytes } from '../../src/api/http/request-bytes.ts'
import { createLogger } from '../../src/telemetry.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const RESERVE = '/ipledger.v1.LeaseService/Reserve'
const GRPC = { ':method': 'POST', 'content-type': 'application/grpc+proto', te: 'trailers' }
const KB = 1024

let answered = 0
/** Those that `/wait` are read once a test says so. */
const waiting: (() => void)[] = []
/** Answers when a request has arrived. */
const { server } = createHttp2Server(
  (request, response, isRead) => {
    if (request.url === '/wait') return void waiting.push(isRead)
    isRead()
    answered += 1
    request.resume().once('end', () => response.end('done'))
  },
  { requestWithinMs: 200, idleMs: 300 },
  createLogger('fatal'),
  new Admission(),
)
let url: string
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => void server.close())

test('a request that does not arrive in time is reset, and its connection serves the next', async () => {
  const session = http2.connect(url)
  const slow = session.request({ ':method': 'POST' })
  slow.write('never ended')
  await once(slow.resume(), 'close')
  expect(slow.rstCode).toBe(http2.constants.NGHTTP2_CANCEL)
  const next = session.request({ ':method': 'POST' })
  next.end('all of it')
  expect((await next.setEncoding('utf8').toArray()).join('')).toBe('done')
  session.destroy()
})

test('its time begins when it is read', async () => {
  const session = http2.connect(url)
  const unread = session.request({ ':method': 'POST', ':path': '/wait' })
  unread.resume().write('never ended')
  const read = session.request({ ':method': 'POST' })
  read.write('never ended')
  // The later one is over, and the earlier one has all of its time.
  await once(read.resume(), 'close')
  expect(unread.closed).toBe(false)
  for (const isRead of waiting.splice(0)) isRead()
  await once(unread, 'close')
  expect(unread.rstCode).toBe(http2.constants.NGHTTP2_CANCEL)
  session.destroy()
})

test.each([
  ['that never had one', 0],
  ['that had one', 1],
])('a connection without requests is closed: %s', async (_, requests) => {
  const session = http2.connect(url)
  for (let n = 0; n < requests; n += 1) session.request().resume()
  await once(session, 'close')
  expect(session.destroyed).toBe(true)
})

test('requests of one connection that do not end hold 32 MB, and the others are told so', async () => {
  const session = http2.connect(running.grpcUrl)
  session.on('error', () => {})
  const refusals: string[] = []
  let sent = 0
  // More than that in all, in streams that may be open at a time.
  for (let stream = 0; stream < 80; stream += 1) {
    const body = Buffer.alloc(500 * KB)
    body.writeUInt32BE(511 * KB, 1)
    const request = session.request({ ...GRPC, ':path': RESERVE })
    request.on('trailers', (trailers) => refusals.push(String(trailers['grpc-message'])))
    request.on('error', () => {})
    request.resume().write(body)
    sent += body.length
  }
  const most = 32 * KB * KB
  await waitFor(() => refusals.length >= Math.floor((sent - most) / (500 * KB)) - 1)
  for (const message of refusals) expect(message).toContain('on this connection')
  // Another connection has its own.
  const other = http2.connect(running.grpcUrl)
  const request = other.request({ ...GRPC, ':path': '/ipledger.v1.PoolService/ListPools' })
  request.end(Buffer.alloc(5))
  const [trailers] = await once(request.resume(), 'trailers')
  expect(trailers['grpc-status']).toBe('0')
  session.destroy()
  other.destroy()
})

test('all callers together hold 256 MB, until their answers are closed', () => {
  const bytes = new RequestBytes()
  const connections = Array.from({ length: 8 }, () => ({}))
  for (const connection of connections) bytes.add(connection, 32 * KB * KB)
  const one = {}
  expect(() => bytes.add(one, 1)).toThrow('requests of all callers that are not answered yet have 256 MB')
  bytes.remove(connections[0]!, 32 * KB * KB)
  bytes.add(one, 1)
})

test('an authority that is no name of the loopback interface is refused where there are no tokens', async () => {
  const session = http2.connect(running.grpcUrl)
  const ask = async (authority: string) => {
    const request = session.request({ ...GRPC, ':path': RESERVE, ':authority': authority })
    request.resume().end()
    const [headers] = await once(request, 'response')
    return headers[':status']
  }
  const { port } = new URL(running.grpcUrl)
  expect(await ask(`rebound.example:${port}`)).toBe(403)
  expect(await ask(`localhost:${port}`)).toBe(200)
  expect(await ask(`[::1]:${port}`)).toBe(200)
  session.destroy()
})

test('a call has one message: another behind it ends the call', async () => {
  const session = http2.connect(running.grpcUrl)
  const request = session.request({ ...GRPC, ':path': RESERVE })
  const trailers = once(request, 'trailers')
  // Empty envelopes, of which a few bytes make millions.
  request.write(Buffer.alloc(5 * KB))
  const [told] = (await trailers) as [http2.IncomingHttpHeaders]
  expect(told).toMatchObject({
    'grpc-status': '3',
    'grpc-message': 'a call has one message; this has another behind it',
  })
  session.destroy()
})

describe('a connection that resets its streams', () => {
  const CANCEL = Buffer.from([0, 0, 0, http2.constants.NGHTTP2_CANCEL])
  /** A GET of /, in HPACK. */
  const GET = Buffer.from([0x82, 0x84, 0x86, 0x41, 0x01, 0x61])

  function frame(type: number, flags: number, id: number, payload: Buffer): Buffer {
    const header = Buffer.alloc(9)
    header.writeUIntBE(payload.length, 0, 3)
    header[3] = type
    header[4] = flags
    header.writeUInt32BE(id, 5)
    return Buffer.concat([header, payload])
  }

  /** So many streams from a number on, each reset at once. */
  const resets = (from: number, count: number): Buffer =>
    Buffer.concat(
      Array.from({ length: count }, (_, n) => {
        const id = 2 * (from + n) + 1
        // END_STREAM is missing: the request would go on.
        return Buffer.concat([frame(1, 4, id, GET), frame(3, 0, id, CANCEL)])
      }),
    )

  async function connected(): Promise<Socket> {
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => {}).resume()
    await once(socket, 'connect')
    socket.write(
      Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(4, 0, 0, Buffer.alloc(0))]),
    )
    return socket
  }

  test('at once is ended when it has begun as many as it may have open', async () => {
    answered = 0
    const sockets = await Promise.all(Array.from({ length: 10 }, connected))
    const closed = sockets.map((socket) => once(socket, 'close'))
    for (const socket of sockets) socket.write(resets(0, 12_000))
    await Promise.all(closed)
    expect(answered).toBeLessThanOrEqual(10 * 101)
  })

  test('little by little is ended, too', async () => {
    const socket = await connected()
    let isClosed = false
    let acknowledged = 0
    socket.on('close', () => {
      isClosed = true
    })
    socket.on('data', (chunk: Buffer) => {
      // Acknowledgements of PING: each ends a turn.
      for (let at = chunk.indexOf('resetted'); at >= 0; at = chunk.indexOf('resetted', at + 1))
        acknowledged += 1
    })
    for (let n = 0; n < 14 && !isClosed; n += 1) {
      socket.write(Buffer.concat([resets(50 * n, 50), frame(6, 0, 0, Buffer.from('resetted'))]))
      await waitFor(() => isClosed || acknowledged > n)
    }
    expect(acknowledged).toBeLessThan(14)
  })
})
