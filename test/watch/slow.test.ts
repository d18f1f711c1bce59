/** The cost of a watch whose caller does not read, and the limits on watches. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { create, type Message } from '@bufbuild/protobuf'
import { type Client, ConnectError } from '@connectrpc/connect'
import { describe, expect, onTestFinished, test } from 'vitest'
import { WatchLeases } from '../../src/api/handlers/watch-leases.ts'
import type { Call } from '../../src/api/method.ts'
import { createToken, openTokens } from '../../src/api/tokens.ts'
import { LeaseMirror } from '../../src/client/mirror.ts'
import { ErrorInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import {
  LeaseService,
  WatchLeasesRequestSchema,
  type WatchLeasesResponse,
} from '../../src/gen/ipledger/v1/lease_pb.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { createLogger, RpcSpan } from '../../src/telemetry.ts'
import { clientOf, newNetwork, serverOn, urls } from '../api/running.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const { ok } = running.call
const MB = 1024 * 1024

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

function heap(): number {
  collectGarbage()
  return process.memoryUsage().heapUsed
}

/** Reserved, and released if `ends`: a network whose log has about so many events. */
async function networkOf(leases: number, ends: boolean): Promise<string> {
  const network = await newNetwork(running, { cidr: '10.0.0.0/16', cooldown: '0s' })
  const labels = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`l${n}`, 'x'.repeat(60)]))
  for (let begin = 0; begin < leases; begin += 100) {
    const requests = Array.from({ length: 100 }, (_, n) => ({
      owner: { kind: 'pod', name: `p${begin + n}`, labels },
    }))
    const { results } = await ok('LeaseService/BatchReserve', { network, requests })
    const named = results.map((one: { response: { leases: { leaseId: string }[] } }) => ({
      leaseId: one.response.leases[0]!.leaseId,
    }))
    if (ends) await ok('LeaseService/BatchRelease', { network, requests: named })
  }
  return network
}

const CALLER = { name: 'tester', role: 'admin', networks: null, node: null } as const

/** A watch in this process. */
function opened(request: object, watches = new WatchLeases({ ...running, secrets: {} })) {
  const abort = new AbortController()
  onTestFinished(() => abort.abort())
  const call: Call = {
    caller: CALLER,
    method: 'WatchLeases',
    deadline: performance.now() + 60_000,
    traceId: null,
    span: new RpcSpan('LeaseService/WatchLeases', 'connectrpc', undefined),
  }
  const sent = watches.stream(create(WatchLeasesRequestSchema, request), call, abort.signal)
  return sent[Symbol.asyncIterator]() as AsyncIterator<Message, void> as AsyncIterator<
    WatchLeasesResponse,
    void
  >
}

describe('a watch that is not read keeps its position and one message', () => {
  test.each([
    ['of what happened', true, { after: 0n }],
    ['of the initial state', false, { sendInitialState: true }],
  ])('%s', async (_, ends, request) => {
    const network = await networkOf(2_000, ends)
    const watches = new WatchLeases({ ...running, secrets: {} })
    const count = 100
    await opened({ network, ...request }, watches).next()
    const before = heap()
    const slow: AsyncIterator<WatchLeasesResponse>[] = []
    for (let n = 0; n < count; n += 1) {
      const watch = opened({ network, ...request }, watches)
      await watch.next()
      await watch.next()
      slow.push(watch)
    }
    const each = (heap() - before) / count
    expect(each).toBeLessThan(MB / 2)
    // What it missed is read from the log again.
    const seen = new Set<string>()
    while (seen.size < 1_900) {
      const { value } = await slow[0]!.next()
      for (const { lease } of value!.changes) seen.add(lease!.leaseId)
    }
  })
})

test('what happens while the initial state is sent comes before the first position', async () => {
  const network = await networkOf(1_500, false)
  const page = { network, pageSize: 1_000 }
  const { leases, nextPageToken } = await ok('LeaseService/ListLeases', page)
  const [later] = (await ok('LeaseService/ListLeases', { ...page, pageToken: nextPageToken })).leases
  const watch = opened({ network, sendInitialState: true })
  const changes = [...(await watch.next()).value!.changes]
  // Of those that were sent, and of those that were not yet.
  for (const [n, lease] of [leases[0], later].entries()) {
    await ok('LeaseService/Release', { leaseId: lease.leaseId })
    const owner = { kind: 'pod', name: `again${n}` }
    await ok('LeaseService/Reserve', { network, owner, claims: [{ address: lease.address }] })
  }
  // Of more than one message.
  const requests = leases.slice(1, 100).map(({ leaseId }: { leaseId: string }) => ({ leaseId }))
  await ok('LeaseService/BatchConfirm', { network, requests })
  let position = 0n
  let digest = ''
  while (position === 0n) {
    const { value } = await watch.next()
    changes.push(...value!.changes)
    position = value!.position
    digest = value!.digest
  }
  const mirror = new LeaseMirror({ network })
  mirror.follow({ changes, position, digest, reset: true })
  const held: unknown[] = []
  for (let pageToken = '', pages = 0; pages === 0 || pageToken !== ''; pages += 1) {
    const listed = await ok('LeaseService/ListLeases', { ...page, pageToken })
    for (const { address, leaseId, version } of listed.leases) held.push({ address, leaseId, version })
    pageToken = listed.nextPageToken
  }
  const mirrored = mirror.all().map(({ address, leaseId, version }) => {
    return { address, leaseId, version: String(version) }
  })
  const byAddress = (one: { address: string }, other: { address: string }) =>
    one.address < other.address ? -1 : 1
  expect(mirrored.sort(byAddress)).toEqual((held as typeof mirrored).sort(byAddress))
})

test('a caller has half of the watches, and one too many is overloaded', async () => {
  const file = `${temporaryDirectory()}/tokens`
  const one = createToken({ file, name: 'one', role: 'admin' })
  const other = createToken({ file, name: 'other', role: 'admin' })
  const third = createToken({ file, name: 'third', role: 'admin' })
  const tokens = openTokens(file, createLogger('silent'))
  const server = await serverOn({ ...running, tokens, mostWatches: 4 })
  onTestFinished(() => server.close())
  const client = clientOf(LeaseService, urls(server), 'grpc')
  const abort = new AbortController()
  onTestFinished(() => abort.abort())
  const watch = (token: string) => begin(client, abort.signal, { authorization: `Bearer ${token}` })
  expect(
    (await Promise.all(Array.from({ length: 5 }, () => watch(one)))).filter((reason) => reason !== null),
  ).toEqual(Array.from({ length: 3 }, () => 'OVERLOADED'))
  expect(await Promise.all([watch(other), watch(other)])).toEqual([null, null])
  expect(await watch(third)).toBe('OVERLOADED')
  abort.abort()
  await waitFor(() => server.watches() === 0)
})

/** Why a watch is refused; null: it goes on. */
async function begin(client: Client<typeof LeaseService>, signal: AbortSignal, headers = {}) {
  try {
    await client.watchLeases({}, { headers, signal })[Symbol.asyncIterator]().next()
    return null
  } catch (error) {
    return ConnectError.from(error).findDetails(ErrorInfoSchema)[0]?.reason ?? 'none'
  }
}

test('watches beyond the ledger’s queue are overloaded', async () => {
  const ledger = await openLedger({ url: running.database.serviceUrl, limits: { queuedMb: 0.001 } })
  onTestFinished(() => ledger.close())
  const server = await serverOn({ ...running, ledger })
  onTestFinished(() => server.close())
  const client = clientOf(LeaseService, urls(server), 'grpc')
  const abort = new AbortController()
  onTestFinished(() => abort.abort())
  const reasons = await Promise.all(Array.from({ length: 50 }, () => begin(client, abort.signal)))
  expect(new Set(reasons)).toEqual(new Set([null, 'OVERLOADED']))
})

test('watches that are late leave the other reads their connections', async () => {
  const network = await networkOf(100, true)
  const counts = { now: 0, most: 0 }
  const tail: typeof running.reads.tail = async (...request) => {
    counts.now += 1
    counts.most = Math.max(counts.most, counts.now)
    return running.reads.tail(...request).finally(() => {
      counts.now -= 1
    })
  }
  const reads = Object.assign(Object.create(running.reads), { tail })
  const watches = new WatchLeases({ ...running, reads, secrets: {} })
  const late = Array.from({ length: 20 }, () => opened({ network, after: 0n }, watches))
  await Promise.all(late.map((watch) => watch.next()))
  const sent = await Promise.all(late.map((watch) => watch.next()))
  expect(new Set(sent.map(({ value }) => value!.changes.length))).toEqual(new Set([50]))
  expect(counts.most).toBe(2)
})
