/** The line about watches: many that each look at a node of their own, and how long after its commit an event arrives. */

import { request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { createClient } from '../src/client/client.ts'
import {
  WatchLeasesRequestSchema,
  type WatchLeasesResponse,
  WatchLeasesResponseSchema,
} from '../src/gen/ipledger/v1/lease_pb.ts'
import { amount, type Bench } from './measure.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

const TURN_MS = 100

export async function watch(bench: Bench): Promise<void> {
  for (const processes of [1, 2]) await watchOf(bench, processes)
}

/** The first process writes, the last is watched. Events come evenly, one node after the other. */
async function watchOf(bench: Bench, processes: number): Promise<void> {
  const { watches, watchedPerSecond, watchedMs } = bench.scale
  const stage = await bench.stage('main')
  const network = 'watched'
  await stage.network({ network, cidr: '10.0.0.0/8', addresses: 0, held: 0, reserves: 0 })
  const { through, pids } = await stage.through(processes)
  const [written, one] = [through[0], through.at(-1)]
  if (written?.kind !== 'service' || one?.kind !== 'service') throw new Error('a service is watched')
  const { leases } = createClient({ url: `http://${written.host}:${written.port}` })

  const ended = new AbortController()
  const lateMs: number[] = []
  let [ready, arrived] = [0, 0]
  /** What is written before then warms up. */
  let counted = Number.POSITIVE_INFINITY
  const watching = Array.from({ length: watches }, (_, n) =>
    receive({ ...one, signal: ended.signal }, { network, node: `node-${n}` }, ({ changes }) => {
      if (changes.length === 0) ready += 1
      arrived += changes.length
      for (const { time } of changes)
        if (timestampMs(time!) >= counted) lateMs.push(Date.now() - timestampMs(time!))
    }),
  )
  while (ready < watches) await delay(20)

  const spent = () => pids.reduce((sum, pid) => sum + cpuMs(pid), clusterCpuMs(bench.scratch.postmaster()))
  const [before, began] = [spent(), performance.now()]
  counted = Date.now() + watchedMs / 4
  const each = Math.ceil((watchedPerSecond * TURN_MS) / 2_000)
  let turn = 0
  const writing: Promise<unknown>[] = []
  for (; performance.now() < began + watchedMs; turn += 1) {
    const owner = (n: number) => ({
      kind: 'container',
      name: `bench/${processes}/${turn}-${n}`,
      incarnation: '1',
      interface: 'eth0',
      node: `node-${(turn * each + n) % watches}`,
    })
    const requests = Array.from({ length: each }, (_, n) => ({ owner: owner(n) }))
    const release = async () => {
      await leases.batchReserve({ network, requests })
      await leases.batchRelease({ network, requests })
    }
    writing.push(release())
    await delay(Math.max(0, began + (turn + 1) * TURN_MS - performance.now()))
  }
  await Promise.all(writing)
  const cores = (spent() - before) / (performance.now() - began)
  const events = 2 * each * turn
  for (let waited = 0; arrived < events && waited < 10_000; waited += 20) await delay(20)
  ended.abort()
  await Promise.allSettled(watching)
  if (arrived !== events) throw new Error(`${events} events were written, ${arrived} were told`)
  const late = lateMs.sort((a, b) => a - b)
  const perSecond = Math.round((events * 1_000) / watchedMs).toLocaleString('en-US')
  const of = processes === 1 ? 'the process that writes' : 'another process'
  const what = `${watches.toLocaleString('en-US')} watches of ${of}, ${perSecond} events a second`
  const at = (share: number) => late[Math.ceil(late.length * share) - 1]!
  bench.show(amount('watch', `${what}: from event to watcher, p50`, at(0.5), 'ms'))
  bench.show(amount('watch', 'the same, p99', at(0.99), 'ms', { most: 250 }))
  bench.show(amount('watch', 'the same: cores of service and PostgreSQL', cores, 'cores'))
}

/** A watch with as little of a client as there can be: a thousand in one process are to measure the service, not themselves. */
function receive(
  where: { readonly host: string; readonly port: number; readonly signal: AbortSignal },
  asked: object,
  tell: (one: WatchLeasesResponse) => void,
): Promise<void> {
  const message = toBinary(WatchLeasesRequestSchema, create(WatchLeasesRequestSchema, asked))
  const body = Buffer.alloc(5 + message.length)
  body.writeUInt32BE(message.length, 1)
  body.set(message, 5)
  const headers = { 'content-type': 'application/connect+proto', 'content-length': body.length }
  return new Promise((resolve, reject) => {
    const path = '/ipledger.v1.LeaseService/WatchLeases'
    const call = request({ ...where, path, method: 'POST', headers, agent: false }, (response) => {
      let rest: Buffer = Buffer.alloc(0)
      response.on('data', (chunk: Buffer) => {
        rest = Buffer.concat([rest, chunk])
        while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
          const end = 5 + rest.readUInt32BE(1)
          tell(fromBinary(WatchLeasesResponseSchema, rest.subarray(5, end)))
          rest = rest.subarray(end)
        }
      })
      response.once('error', reject).once('close', resolve)
    })
    call.once('error', reject).end(body)
  })
}
