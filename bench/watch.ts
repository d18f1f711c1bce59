/** The line about watches: many that each look at a node of their own, and how long after its commit an event arrives. */
import { setTimeout as delay } from 'node:timers/promises'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import { createClient } from '../src/client/client.ts'
import { amount, type Bench } from './measure.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

const TURN_MS = 100

/** Events come evenly, from callers of BatchReserve and BatchRelease, on nodes by turns. */
export async function watch(bench: Bench): Promise<void> {
  const { watches, watchedPerSecond, watchedMs } = bench.scale
  const stage = await bench.stage('main')
  const network = 'watched'
  await stage.network({ network, cidr: '10.0.0.0/8', addresses: 0, held: 0, reserves: 0 })
  const { through, pids } = await stage.through(1)
  const [one] = through
  if (one?.kind !== 'service') throw new Error('a service is watched')
  const { leases } = createClient({ url: `http://${one.host}:${one.port}` })

  const ended = new AbortController()
  const lateMs: number[] = []
  let ready = 0
  const watching = Array.from({ length: watches }, async (_, n) => {
    const stream = leases.watchLeases({ network, node: `node-${n}` }, { signal: ended.signal })
    for await (const { changes } of stream) {
      if (changes.length === 0) ready += 1
      for (const { time } of changes) lateMs.push(Date.now() - timestampMs(time!))
    }
  })
  while (ready < watches) await delay(20)

  const spent = () => pids.reduce((sum, pid) => sum + cpuMs(pid), clusterCpuMs(bench.scratch.postmaster()))
  const [before, began] = [spent(), performance.now()]
  const each = Math.ceil((watchedPerSecond * TURN_MS) / 2_000)
  let turn = 0
  const writing: Promise<unknown>[] = []
  for (; performance.now() < began + watchedMs; turn += 1) {
    const owner = (n: number) => ({
      ...{ kind: 'container', name: `bench/${turn}-${n}`, incarnation: '1', interface: 'eth0' },
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
  for (let waited = 0; lateMs.length < events && waited < 10_000; waited += 20) await delay(20)
  ended.abort()
  await Promise.allSettled(watching)
  if (lateMs.length !== events) throw new Error(`${events} events were written, ${lateMs.length} were told`)
  const late = lateMs.sort((a, b) => a - b)
  const what = `${watches.toLocaleString('en-US')} watches, ${Math.round((events * 1_000) / watchedMs).toLocaleString('en-US')} events a second`
  const at = (share: number) => late[Math.ceil(late.length * share) - 1]!
  bench.show(amount('watch', `${what}: from an event to its watcher, p50`, at(0.5), 'ms'))
  bench.show(amount('watch', 'the same, p99', at(0.99), 'ms', { most: 250 }))
  bench.show(amount('watch', 'the same: cores of service and PostgreSQL', cores, 'cores'))
}
