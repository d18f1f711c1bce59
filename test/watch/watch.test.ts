/** WatchLeases as callers see it: the initial state, what follows, filters, resuming, and what ends a watch. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { ConnectError } from '@connectrpc/connect'
import { pino } from 'pino'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { ErrorInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import { LeaseService, type WatchLeasesResponse } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { LeaseState } from '../../src/gen/ipledger/v1/types_pb.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { clientOf, newNetwork, type Protocol, type Running, serverOn, urls } from '../api/running.ts'
import { copyOf, useOwnDatabase } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { serviceOn, type TestService, useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const { ok } = running.call

type Sent = readonly WatchLeasesResponse[]
type Options = {
  readonly protocol?: Protocol
  readonly on?: Running
  readonly token?: string
  readonly each?: (one: WatchLeasesResponse) => void
}

/** Reads a watch until `enough`, and ends it. */
async function watched(
  request: object,
  enough: (sent: Sent) => boolean,
  options: Options = {},
): Promise<Sent> {
  const { protocol = 'grpc', on = running, token } = options
  const abort = new AbortController()
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const sent: WatchLeasesResponse[] = []
  const call = { signal: abort.signal, timeoutMs: 0, headers }
  const watch = clientOf(LeaseService, on, protocol).watchLeases(request, call)
  for await (const one of watch) {
    sent.push(one)
    options.each?.(one)
    if (enough(sent)) break
  }
  abort.abort()
  return sent
}

async function refused(request: object, options: Options = {}) {
  const error = await watched(request, () => false, options).then(
    () => null,
    (thrown: unknown) => ConnectError.from(thrown),
  )
  const { reason, metadata } = error!.findDetails(ErrorInfoSchema)[0]!
  return { reason, metadata, message: error!.rawMessage }
}

const changes = (sent: Sent) => sent.flatMap((one) => one.changes)
/** `10.0.0.1 lease.reserved`, with `!` where it is gone. */
const lines = (sent: Sent) =>
  changes(sent).map(({ lease, type, gone }) => `${lease!.address} ${type}${gone ? '!' : ''}`)
const upto = (count: number) => (sent: Sent) => changes(sent).length >= count

async function world() {
  const network = await newNetwork(running, { cooldown: '0s' })
  const reserve = async (name: string, more: object = {}, claims: object[] = [{ pool: 'web' }]) => {
    const request = { network, owner: { kind: 'pod', name, ...more }, claims, confirmed: true }
    return (await ok('LeaseService/Reserve', request)).leases[0]
  }
  const release = (lease: { leaseId: string }) => ok('LeaseService/Release', { leaseId: lease.leaseId })
  const quarantine = (lease: { leaseId: string }) =>
    ok('LeaseService/Quarantine', { leaseId: lease.leaseId, why: 'odd' })
  return { network, reserve, release, quarantine }
}

test('how many are open is known', async () => {
  const { network, reserve } = await world()
  const counts: number[] = []
  const each = ({ changes: [change] }: WatchLeasesResponse) => {
    if (change === undefined) void reserve('a')
    else counts.push(running.server.watches())
  }
  await waitFor(() => running.server.watches() === 0)
  await watched({ network }, upto(1), { each })
  expect(counts).toEqual([1])
  await waitFor(() => running.server.watches() === 0)
})

describe('what is sent', () => {
  test.each<Protocol>(['grpc', 'connect json', 'connect binary', 'grpc-web'])(
    'over %s: the leases that are held, at one number, and each event after it',
    async (protocol) => {
      const { network, reserve, release } = await world()
      const [a, b] = [await reserve('a'), await reserve('b')]
      await release(a)
      const sent = await watched(
        { network, sendInitialState: true },
        (soFar) => {
          if (soFar.at(-1)!.position > 0n && changes(soFar).length === 1) void reserve('c').then(release)
          return changes(soFar).length === 3
        },
        { protocol },
      )
      expect(lines(sent)).toEqual([`${b.address} `, '10.0.0.3 lease.reserved', '10.0.0.3 lease.released!'])
      const [held, reserved, released] = changes(sent)
      expect(held!.lease).toMatchObject({ leaseId: b.leaseId, version: BigInt(b.version) })
      expect(sent.find(({ position }) => position > 0n)!.position).toBe(reserved!.lease!.version - 1n)
      expect(sent.at(-1)!.position).toBe(released!.lease!.version)
      expect(released).toMatchObject({ cause: 'Release', lease: { leaseId: reserved!.lease!.leaseId } })
    },
  )

  test('an initial state of several messages is sent before the first position', async () => {
    const { network } = await world()
    const requests = Array.from({ length: 250 }, (_, n) => ({ owner: { kind: 'pod', name: `p${n}` } }))
    await ok('LeaseService/BatchReserve', { network, requests })
    const sent = await watched({ network, sendInitialState: true }, (soFar) => soFar.at(-1)!.position > 0n)
    expect(sent.map((one) => [one.changes.length, one.position > 0n])).toEqual([
      ...Array.from({ length: 5 }, () => [50, false]),
      [0, true],
    ])
    expect(new Set(lines(sent)).size).toBe(250)
  })

  test('from a number on, from the first event on, and again from where a watch ended', async () => {
    const { network, reserve, release } = await world()
    const a = await reserve('a')
    await release(a)
    const whole = await watched({ network, after: 0n }, upto(2))
    expect(lines(whole)).toEqual(['10.0.0.1 lease.reserved', '10.0.0.1 lease.released!'])
    const rest = await watched({ network, after: changes(whole)[0]!.lease!.version }, upto(1))
    expect(lines(rest)).toEqual(['10.0.0.1 lease.released!'])
    void reserve('b')
    const { position: after, digest: afterDigest } = rest.at(-1)!
    const more = await watched({ network, after, afterDigest }, upto(1))
    expect(lines(more)).toEqual(['10.0.0.2 lease.reserved'])
  })

  test('a watch goes on after each message, by its position and digest', async () => {
    const { network } = await world()
    const requests = Array.from({ length: 230 }, (_, n) => ({ owner: { kind: 'pod', name: `p${n}` } }))
    await ok('LeaseService/BatchReserve', { network, requests })
    const sent = await watched({ network, after: 0n }, (soFar) => changes(soFar).length === 230)
    expect(sent.map((one) => one.changes.length)).toEqual([0, 50, 50, 50, 50, 30])
    for (const { position: after, digest: afterDigest } of sent.slice(1)) {
      const [first] = await watched({ network, after, afterDigest }, () => true)
      expect(first).toMatchObject({ position: after, digest: afterDigest })
    }
    const { digest } = (await ok('NetworkService/GetNetwork', { name: network })).network
    expect(sent.at(-1)!.digest).toBe(digest)
  })

  test('filters by pool, node and owner', async () => {
    const { network, reserve } = await world()
    await ok('PoolService/CreatePool', { network, name: 'other', cidr: '10.1.0.0/24' })
    await reserve('a', { node: 'n1' })
    await reserve('b', { node: 'n2', uid: 'u' })
    await reserve('c', { node: 'n2' }, [{ pool: 'other' }])
    await reserve('d', { node: 'n1' }, [{ pool: 'other' }])
    const ownersOf = async (filter: object) =>
      changes(await watched({ network, after: 0n, ...filter }, (soFar) => soFar.at(-1)!.position > 5n)).map(
        ({ lease }) => lease!.owner!.name,
      )
    expect(await ownersOf({ node: 'n1' })).toEqual(['a', 'd'])
    expect(await ownersOf({ node: 'n2', pools: ['web'] })).toEqual(['b'])
    expect(await ownersOf({ pools: ['other'] })).toEqual(['c', 'd'])
    expect(await ownersOf({ ownerUid: 'u' })).toEqual(['b'])
    expect(await ownersOf({ ownerKind: 'pod', ownerName: 'c' })).toEqual(['c'])
  })

  test('a lease that leaves what is watched is gone, and is not sent any more', async () => {
    const { network, reserve, release, quarantine } = await world()
    const [a, b] = [await reserve('a', { node: 'n1' }), await reserve('b', { node: 'n1' })]
    await quarantine(a)
    await ok('LeaseService/Reap', {
      leaseId: a.leaseId,
      version: String(Number(a.version) + 2),
      why: 'looked',
    })
    // Promised again on another node.
    await reserve('b', { node: 'n2' })
    await release(b)
    const end = await reserve('end', { node: 'n1' })
    const isEnd = (sent: Sent) => changes(sent).some(({ lease }) => lease!.leaseId === end.leaseId)
    expect(
      lines(await watched({ network, after: 0n, states: [LeaseState.ACTIVE], node: 'n1' }, isEnd)),
    ).toEqual([
      '10.0.0.1 lease.reserved',
      '10.0.0.2 lease.reserved',
      '10.0.0.1 lease.quarantined!',
      '10.0.0.2 lease.updated!',
      '10.0.0.3 lease.reserved',
    ])
  })

  test('a watch that matches no event advances all the same', async () => {
    const { network, reserve } = await world()
    const before = (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const sent = await watched({ network, node: 'nowhere' }, (soFar) => {
      if (soFar.length === 1) void reserve('a')
      return soFar.at(-1)!.position > BigInt(before)
    })
    expect(changes(sent)).toEqual([])
  })
})

describe('what is refused, and what ends a watch', () => {
  test.each([
    [{ network: 'nowhere' }, { reason: 'NETWORK_NOT_FOUND' }],
    [{ pools: ['nowhere'] }, { reason: 'POOL_NOT_FOUND' }],
    [
      { sendInitialState: true, after: 1n },
      { reason: 'INVALID_FIELD', metadata: { field: 'after' } },
    ],
    [{ after: 1n << 50n }, { reason: 'VERSION_MISMATCH', metadata: { beyondHead: '1' } }],
    [
      { after: 1n, afterDigest: 'f'.repeat(64) },
      { reason: 'VERSION_MISMATCH', metadata: { number: '1' } },
    ],
    [{ afterDigest: 'f'.repeat(64) }, { reason: 'INVALID_FIELD', metadata: { field: 'afterDigest' } }],
  ])('%o', async (request, expected) => {
    expect(await refused({ network: 'default', ...request })).toMatchObject(expected)
  })

  test('an agent watches its own node, named or not', async () => {
    const file = `${temporaryDirectory()}/tokens`
    const agent = createToken({ file, name: 'agent', role: 'agent', node: 'n1' })
    const admin = createToken({ file, name: 'admin', role: 'admin' })
    await using guarded = await serviceOn(running, { IPLEDGER_TOKENS: file })
    const network = await newNetwork({ call: rpc(guarded.url, { token: admin }) })
    const reserve = (name: string, node: string) =>
      rpc(guarded.url, { token: admin }).ok('LeaseService/Reserve', {
        network,
        owner: { kind: 'pod', name, node },
      })
    await reserve('theirs', 'n2')
    await reserve('mine', 'n1')
    const options = { on: guarded, token: agent }
    for (const node of ['', 'n1'])
      expect(lines(await watched({ network, node, after: 0n }, upto(1), options))).toEqual([
        '10.0.0.2 lease.reserved',
      ])
    expect(await refused({ network, node: 'n2' }, options)).toMatchObject({ reason: 'PERMISSION_DENIED' })
    expect(await refused({ network }, { on: guarded })).toMatchObject({ reason: 'UNAUTHENTICATED' })
  })

  test('a watch of what a restored database has lost does not go on', async () => {
    const database = await useOwnDatabase()
    const reserve = async (one: TestService, network: string, name: string) => {
      const { leases } = await one.call.ok('LeaseService/Reserve', { network, owner: { kind: 'pod', name } })
      return BigInt(leases[0].version)
    }
    const before = await serviceOn({ database })
    const network = await newNetwork(before)
    const head = await reserve(before, network, 'known')
    await before.stop()
    const copy = await copyOf(database)
    const after = await serviceOn({ database })
    const lost = await reserve(after, network, 'lost')
    await after.stop()
    await using restored = await serviceOn({ database: copy })
    await expect(reserve(restored, network, 'late')).rejects.toThrow('NETWORK_RECOVERING')
    expect(await refused({ network, after: lost }, { on: restored })).toMatchObject({
      reason: 'VERSION_MISMATCH',
      metadata: { number: String(lost) },
    })
    // What the copy has is watched on, through the beginning of its era.
    const isPast = (sent: Sent) => sent.at(-1)!.position > lost
    expect(changes(await watched({ network, after: head }, isPast, { on: restored }))).toEqual([])
  })

  test('a caller that takes nothing is cut off', async () => {
    const { network } = await world()
    const seen: string[] = []
    const logger = pino({ level: 'debug' }, { write: (line: string) => seen.push(JSON.parse(line).msg) })
    const server = await serverOn({ ...running, takenWithinMs: 200, logger })
    onTestFinished(() => server.close())
    const socket = connect(server.httpPort, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    const body = JSON.stringify({ network, sendInitialState: true })
    const frame = Buffer.alloc(5)
    frame.writeUInt32BE(body.length, 1)
    const type = 'Content-Type: application/connect+json'
    socket.pause()
    socket.write(
      `POST /ipledger.v1.LeaseService/WatchLeases HTTP/1.1\r\nHost: localhost\r\n${type}\r\nContent-Length: ${frame.length + body.length}\r\n\r\n`,
    )
    socket.write(Buffer.concat([frame, Buffer.from(body)]))
    // Until more is on its way than the buffers between the two hold.
    const labels = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`l${n}`, 'x'.repeat(250)]))
    for (let round = 0; !seen.includes('answer not delivered'); round += 1) {
      expect(round, 'rounds of a megabyte').toBeLessThan(60)
      const requests = Array.from({ length: 60 }, (_, n) => ({
        owner: { kind: 'pod', name: `p${n}`, incarnation: `${round}`, labels },
      }))
      const { results } = await ok('LeaseService/BatchReserve', { network, requests: requests.slice(0, 30) })
      const named = results.map((one: { response: { leases: { leaseId: string }[] } }) => ({
        leaseId: one.response.leases[0]!.leaseId,
      }))
      await ok('LeaseService/BatchRelease', { network, requests: named })
    }
  })

  test('a caller that goes while it is written to is no defect', async () => {
    const { network, reserve } = await world()
    const seen: string[] = []
    const logger = pino({ level: 'error' }, { write: (line: string) => seen.push(JSON.parse(line).msg) })
    const server = await serverOn({ ...running, logger })
    onTestFinished(() => server.close())
    const breakAtWrite = (message: unknown) => {
      const { response } = message as { readonly response: ServerResponse }
      const write = response.write.bind(response) as (...written: unknown[]) => boolean
      response.write = (...written: unknown[]) => {
        if (written[0] instanceof Uint8Array && response.headersSent) response.destroy()
        return write(...written)
      }
    }
    subscribe('http.server.request.start', breakAtWrite)
    onTestFinished(() => void unsubscribe('http.server.request.start', breakAtWrite))
    const watch = watched({ network }, () => false, { on: urls(server), protocol: 'connect json' })
    await expect(watch).rejects.toThrow()
    await reserve('seen')
    expect(seen).toEqual([])
  })

  test.each(['grpc', 'connect json'] satisfies Protocol[])(
    '%s: a server that stops says so, though the watch waits for the database',
    async (protocol) => {
      const { serviceUrl: url } = running.database
      const pool = createPool({ url, applicationName: 'test', max: 1 })
      const server = await serverOn({ ...running, reads: new Reads(pool) })
      const slow = pool.query('select pg_sleep(0.3)')
      const positions: bigint[] = []
      const each = ({ position }: WatchLeasesResponse) => positions.push(position)
      const ended = refused({}, { on: urls(server), protocol, each })
      await waitFor(() => positions.length > 0)
      await server.close()
      expect(await ended).toMatchObject({
        reason: 'OVERLOADED',
        message: 'the server is stopping; ask another',
      })
      await slow
      await pool.end()
    },
  )
})
