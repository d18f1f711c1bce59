/** Deadlines, overload and the end of a server: who waits is answered, and who is not answered holds nothing. */
import { type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2'
import { connect as connectTcp, type Socket } from 'node:net'
import { ConnectError } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { LeaseService } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { connect, createPool } from '../../src/postgres/connect.ts'
import { Intake } from '../../src/sources/intake.ts'
import { createLogger } from '../../src/telemetry.ts'
import { startProxy } from '../support/proxy.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { clientOf, type Protocol, serverOn, urls } from './running.ts'

const running = await useService()
await post(running, 'PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24' })

const request = (name: string) => ({ owner: { kind: 'pod', name }, claims: [{ pools: ['web'] }] })
const held = async (name: string) =>
  (await post(running, 'LeaseService/ListLeases', { ownerName: name })).body.leases.length

/** While the work runs, no batch of the network gets its lock; a command is in flight and waits for it. */
async function whileLocked<T>(work: () => Promise<T>): Promise<T> {
  const blocker = await connect({ url: running.database.adminUrl, applicationName: 'test blocker' })
  await blocker.query('begin')
  await blocker.query(`select from ipledger.network_lock where network_id = 'default' for update`)
  try {
    return await work()
  } finally {
    await blocker.query('rollback')
    await blocker.end()
  }
}

/** Connections of the service that wait for a lock. */
async function waiting(): Promise<number> {
  const admin = await connect({ url: running.database.adminUrl, applicationName: 'test' })
  try {
    const { rows } = await admin.query<{ count: number }>(
      `select count(*)::int from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    return rows[0]!.count
  } finally {
    await admin.end()
  }
}

test.each(['connect json', 'grpc'] satisfies Protocol[])(
  '%s: a call whose deadline passed in the queue holds nothing',
  async (protocol) => {
    const leases = clientOf(LeaseService, running, protocol)
    const first = `first ${protocol}`
    const late = `late ${protocol}`
    const inFlight = await whileLocked(async () => {
      const answer = leases.reserve(request(first))
      await waitFor(waiting)
      // Told to the server alone: a caller that counts for itself gives up before the server does.
      const headers = protocol.startsWith('grpc')
        ? { 'grpc-timeout': '200m' }
        : { 'connect-timeout-ms': '200' }
      const error = await leases.reserve(request(late), { headers }).catch(ConnectError.from)
      expect(error).toBeInstanceOf(ConnectError)
      return { answer }
    })
    expect((await inFlight.answer).leases).toHaveLength(1)
    // One more, so that whatever stood in the queue before it has been decided.
    await leases.reserve(request(`after ${protocol}`))
    expect([await held(first), await held(late)]).toEqual([1, 0])
  },
)

test('the answer to it says so, and without a deadline the default counts', async () => {
  const server = await serverOn({ ...running, deadlineMs: 300 })
  onTestFinished(() => server.close())
  const inFlight = await whileLocked(async () => {
    const answer = post(running, 'LeaseService/Reserve', request('default-first'))
    await waitFor(waiting)
    const refused = await Promise.all([
      post(urls(server), 'LeaseService/Reserve', request('default-late')),
      post(running, 'LeaseService/Reserve', request('default-late'), { 'connect-timeout-ms': '300' }),
    ])
    for (const one of refused) {
      expect(one.status).toBe(504)
      expect(one).toMatchObject({ code: 'deadline_exceeded', reason: 'DEADLINE_EXCEEDED' })
    }
    return { answer }
  })
  expect((await inFlight.answer).status).toBe(200)
  expect(await held('default-late')).toBe(0)
})

test('a full queue refuses at once, and says which limit', async () => {
  const ledger = await openLedger({ url: running.database.serviceUrl, limits: { queuedMb: 0.001 } })
  const server = await serverOn({ ...running, ledger })
  onTestFinished(async () => {
    await server.close()
    await ledger.close()
  })
  const answers = await whileLocked(async () => {
    const first = post(urls(server), 'LeaseService/Reserve', request('queue-first'))
    await waitFor(waiting)
    const more = Array.from({ length: 8 }, (_, index) =>
      post(urls(server), 'LeaseService/Reserve', request(`queue-${index}`)),
    )
    for (const one of more) {
      expect(await one).toMatchObject({
        code: 'unavailable',
        reason: 'OVERLOADED',
        message: expect.stringContaining('0.001 MB'),
        retryAfter: expect.any(String),
      })
    }
    return Promise.resolve([first, ...more])
  })
  const settled = await Promise.all(answers)
  const statuses = settled.map((one) => one.status)
  expect(statuses.filter((status) => status === 200)).toHaveLength(1)
  expect(statuses.filter((status) => status === 503)).toHaveLength(8)
})

test.each(['connect json', 'grpc'] satisfies Protocol[])(
  '%s: stopping answers what is in flight',
  async (protocol) => {
    const server = await serverOn(running)
    const name = `stopping ${protocol}`
    const { answer, closed } = await whileLocked(async () => {
      const answer = clientOf(LeaseService, urls(server), protocol).reserve(request(name))
      await waitFor(waiting)
      const closed = server.close()
      // Nobody new is let in.
      await waitFor(() => refusesConnections(protocol === 'grpc' ? server.grpcPort : server.httpPort))
      expect(await Promise.race([closed.then(() => 'closed'), Promise.resolve('open')])).toBe('open')
      return { answer, closed }
    })
    expect((await answer).leases).toHaveLength(1)
    await closed
    expect(await held(name)).toBe(1)
  },
)

/** Its caller may always ask for more. */
async function openStream(url: string): Promise<ClientHttp2Stream> {
  const session = connectHttp2(url)
  onTestFinished(() => session.destroy())
  const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
  const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' }
  const stream = session
    .on('error', () => {})
    .request(headers)
    .on('error', () => {})
  // Answered after what came before it.
  await new Promise((resolve) => session.ping(resolve))
  return stream
}

test('stopping ends, whatever does not', async () => {
  const server = await serverOn({ ...running, deadlineMs: 600_000 })
  const late = new AbortController()
  const asked: number[] = []
  const stream = await openStream(urls(server).grpcUrl)
  await whileLocked(async () => {
    const answer = post(urls(server), 'LeaseService/Reserve', request('for ever')).catch(() => 'cut')
    await waitFor(waiting)
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => {
      asked.push(ms)
      return late.signal
    })
    const closed = server.close()
    timeout.mockRestore()
    await waitFor(() => refusesConnections(server.httpPort))
    expect(await Promise.race([closed.then(() => 'closed'), Promise.resolve('open')])).toBe('open')
    late.abort()
    await closed
    expect(await answer).toBe('cut')
    await waitFor(() => stream.destroyed)
  })
  // Of calls: longer than their default deadline, shorter than what a process is given to stop. Of streams.
  expect(asked).toEqual([15_000, 1_000])
})

test('stopping does not wait for connections that only idle, nor for streams', async () => {
  const server = await serverOn(running)
  const idle = await idleConnection(server.httpPort)
  const { Health } = await import('../../src/gen/grpc/health/v1/health_pb.ts')
  const seen: unknown[] = []
  const watching = (async () => {
    for await (const one of clientOf(Health, urls(server), 'grpc').watch({})) seen.push(one)
  })().catch(() => {})
  await waitFor(() => seen.length > 0)
  const gone = new Promise((resolve) => idle.once('close', resolve))
  // It would wait for ever.
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(new AbortController().signal)
  const closed = Promise.all([server.close(), server.close()])
  timeout.mockRestore()
  await closed
  await gone
  await watching
})

test('a database that went silent is told as such, and forgotten once it speaks again', async () => {
  const proxy = await startProxy(running.database.serviceUrl)
  const pool = createPool({ url: proxy.url, applicationName: 'test', max: 1 })
  const server = await serverOn({ ...running, reads: new Reads(pool) })
  onTestFinished(async () => {
    await server.close()
    await pool.end()
    await proxy.close()
  })
  const list = () => post(urls(server), 'PoolService/ListPools', {}, { 'connect-timeout-ms': '500' })
  expect((await list()).status).toBe(200)
  proxy.silent(true)
  // The one connection is not answered; the next finds none that is free, then none that can be opened.
  for (const lost of await Promise.all([list(), list()])) {
    expect(lost).toMatchObject({ code: 'unavailable', reason: 'DATABASE_UNAVAILABLE' })
  }
  proxy.silent(false)
  proxy.down(true)
  proxy.down(false)
  await waitFor(async () => (await list()).status === 200)
})

test('while the database is away reads and reports wait for it until their deadline, as writes do', async () => {
  const proxy = await startProxy(running.database.serviceUrl)
  const pool = createPool({ url: proxy.url, applicationName: 'test', max: 2 })
  const ledger = await openLedger({ url: proxy.url })
  const logger = createLogger('warn')
  const warn = vi.spyOn(logger, 'warn').mockImplementation(() => {})
  const intake = new Intake({ ledger, database: pool })
  const server = await serverOn({ ...running, ledger, intake, reads: new Reads(pool), logger })
  onTestFinished(async () => {
    await server.close()
    await ledger.close()
    await pool.end()
    await proxy.close()
  })
  await post(urls(server), 'LivenessService/RegisterSource', { id: 'eyes', sight: { ownerKinds: ['pod'] } })
  const methods = {
    'PoolService/ListPools': {},
    'LivenessService/BeginSnapshot': { source: 'eyes' },
    'LeaseService/Reserve': request('away'),
  }
  const ask = (headers = {}) =>
    Promise.all(Object.entries(methods).map(([method, body]) => post(urls(server), method, body, headers)))
  proxy.down(true)
  const patient = ask()
  for (const one of await ask({ 'connect-timeout-ms': '600' }))
    expect(one).toMatchObject({ reason: 'DATABASE_UNAVAILABLE', retryAfter: '1s' })
  proxy.down(false)
  for (const one of await patient) expect(one).toMatchObject({ status: 200 })
  // Two of them were no commands, of one caller.
  const about = { caller: 'loopback' }
  expect(warn.mock.calls.filter(([fields]) => 'caller' in (fields as object))).toEqual([
    [expect.objectContaining(about), 'the database does not answer'],
  ])
})

function refusesConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTcp(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(false)
    })
    socket.on('error', () => resolve(true))
  })
}

/** A connection that has had its answer and is kept open. */
function idleConnection(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp(port, '127.0.0.1', () => {
      socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n')
    })
    socket.once('data', () => resolve(socket))
    socket.once('error', reject)
  })
}
