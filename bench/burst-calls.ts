/** The calls of a burst. A lane makes one call at a time, and all lanes begin at once. */
import { once } from 'node:events'
import * as http2 from 'node:http2'
import { createHistogram } from 'node:perf_hooks'
import { openLedger } from '../src/ledger/open.ts'
import { POOL } from './history.ts'
import { openKeepAlive, type Reply } from './keep-alive.ts'
import type { Burst, Bursted, BurstWay } from './load.ts'
import { BATCH, batchOf, leaseIdsIn, pathOf, reserveOf } from './messages.ts'

/** Makes the n-th call, and answers the leases that it got. */
type Lane = (n: number) => Promise<readonly string[]>
type Lanes = { readonly lanes: readonly Lane[]; close(): Promise<void> | void }

/** As many as the service lets a connection have. */
const STREAMS = 256
let bursts = 0

export async function performBurst(burst: Burst): Promise<Bursted> {
  const { way } = burst
  const units = way === 'batches' ? BATCH : 1
  const calls = Math.ceil(burst.count / units)
  const { lanes, close } = await OPEN[way](burst, `burst-${process.pid}-${++bursts}`, calls)
  const numbers: (readonly number[])[] = []
  const spent = createHistogram()
  const cpu = process.cpuUsage()
  const began = performance.now()
  let next = 0
  try {
    await Promise.all(
      lanes.map(async (lane) => {
        while (next < calls) {
          const n = next++
          numbers[n] = (await lane(n)).map((id) => Number(id.slice(id.lastIndexOf('/') + 1)))
          spent.record(Math.max(1, Math.round((performance.now() - began) * 1_000)))
        }
      }),
    )
  } finally {
    await close()
  }
  const ms = performance.now() - began
  if (new Set(numbers.flat()).size !== calls * units) throw new Error('a lease was given twice')
  if (!(way === 'process' ? [numbers.flat()] : numbers).every(isAscending))
    throw new Error('commands were committed in another order than they came in')
  const { user, system } = process.cpuUsage(cpu)
  return {
    ms,
    p50: spent.percentile(50) / 1_000,
    p99: spent.percentile(99) / 1_000,
    cpu: (user + system) / 1_000 / ms,
    mostMb: process.resourceUsage().maxRSS / 1_000,
  }
}

const isAscending = (numbers: readonly number[]): boolean =>
  numbers.every((one, index) => index === 0 || numbers[index - 1]! < one)

const OPEN: Readonly<Record<BurstWay, (burst: Burst, name: string, calls: number) => Promise<Lanes>>> = {
  http1: (burst, name, calls) =>
    overHttp1(burst, calls, 'Reserve', (n) => reserveOf(burst.network, `${name}-${n}`)),
  batches: (burst, name, calls) =>
    overHttp1(burst, calls, 'BatchReserve', (n) => batchOf(burst.network, `${name}-${n}`)),
  http2: overHttp2,
  process: inProcess,
}

async function overHttp1(
  { target, connections, withinMs }: Burst,
  calls: number,
  method: string,
  bodyOf: (n: number) => string,
): Promise<Lanes> {
  const headers = `\r\nconnect-timeout-ms: ${withinMs}`
  const open = Array.from({ length: Math.min(connections, calls) }, () => openKeepAlive(target!, headers))
  const all = await Promise.all(open)
  return {
    lanes: all.map(
      ({ post }) =>
        async (n) =>
          leaseIdsIn(await post(pathOf(method), bodyOf(n))),
    ),
    close: () => all.forEach(({ close }) => void close()),
  }
}

async function overHttp2({ target, connections, withinMs, network }: Burst, name: string): Promise<Lanes> {
  const sessions = Array.from({ length: connections }, () =>
    http2.connect(`http://${target!.host}:${target!.grpcPort}`),
  )
  await Promise.all(sessions.map((session) => once(session, 'remoteSettings')))
  const headers = {
    ':method': 'POST',
    ':path': pathOf('Reserve'),
    'content-type': 'application/json',
    'connect-timeout-ms': withinMs,
  }
  const post = (session: http2.ClientHttp2Session, body: string) =>
    new Promise<Reply>((resolve, reject) => {
      const stream = session.request(headers)
      const reply = { status: 0, body: '' }
      stream.setEncoding('latin1')
      stream.on('response', ({ ':status': status = 0 }) => {
        reply.status = status
      })
      stream.on('data', (chunk: string) => {
        reply.body += chunk
      })
      stream.on('end', () => resolve(reply)).on('error', reject)
      stream.end(body)
    })
  const lane = (session: http2.ClientHttp2Session): Lane => {
    return async (n) => leaseIdsIn(await post(session, reserveOf(network, `${name}-${n}`)))
  }
  return {
    lanes: sessions.flatMap((session) => Array.from({ length: STREAMS }, () => lane(session))),
    close: () => sessions.forEach((session) => void session.destroy()),
  }
}

/** All at once: a lane for each. */
async function inProcess({ url, network, withinMs }: Burst, name: string, calls: number): Promise<Lanes> {
  const ledger = await openLedger({ url })
  await ledger.image(network)
  const lane: Lane = async (n) => {
    const uid = `${name}-${n}`
    const outcome = await ledger.submit(
      {
        type: 'reserve',
        network,
        actor: { name: 'bench', node: null },
        cause: 'Reserve',
        requestId: null,
        fingerprint: null,
        traceId: null,
        owner: { kind: 'container', name: `bench/${uid}`, uid, incarnation: '1', interface: '' },
        settings: { node: 'node-1' },
        claims: [{ pools: [POOL], address: null, preferPrevious: true }],
        liveAddresses: [],
        confirmWithinMs: null,
        confirmed: false,
      },
      { deadline: performance.now() + withinMs },
    )
    if (!outcome.ok) throw new Error(outcome.refusal.message)
    return outcome.answer.leases.map(({ leaseId }) => leaseId)
  }
  return { lanes: Array.from({ length: calls }, () => lane), close: () => ledger.close() }
}
