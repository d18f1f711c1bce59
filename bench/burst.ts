/**
 * 100,000 Reserves at once on one network, all with a deadline of 60 s. None may be refused, and each gets a lease of its own.
 * Commands are committed in the order in which the queue got them: that is checked where the callers know it, in each batch
 * and in the process that submits all of them. Latencies count from the beginning of the burst.
 */
import { type BurstWay, startLoad } from './load.ts'
import { amount, type Bench } from './measure.ts'
import { clusterCpuMs, cpuMs, mostMb } from './usage.ts'

const DEADLINE_S = 60

const WAYS: readonly { readonly way: BurstWay; readonly connections: number; readonly what: string }[] = [
  { way: 'http1', connections: 2_000, what: '2,000 connections of HTTP/1.1' },
  { way: 'http2', connections: 64, what: '64 connections of HTTP/2' },
  { way: 'batches', connections: 1_000, what: '1,000 BatchReserves of 100' },
  { way: 'process', connections: 1, what: 'submitted in one process' },
]

export async function burst(bench: Bench): Promise<void> {
  for (const { way, connections, what } of WAYS) {
    // A service of its own, whose memory has seen nothing else.
    const stage = await bench.stage(`burst_${way}`)
    const network = 'burst'
    await stage.network({ network, cidr: '10.0.0.0/8', addresses: 0, held: 0, reserves: 0 })
    const { through, pids } = way === 'process' ? { through: [], pids: [] } : await stage.through(1)
    const [service] = through
    const target = service?.kind === 'service' ? service : null
    const load = startLoad()
    const ask = (count: number) =>
      load.burst({
        way,
        connections,
        target,
        url: stage.database.url,
        network,
        count,
        withinMs: DEADLINE_S * 1_000,
      })
    try {
      // Compiles, and makes plans.
      await ask(bench.scale.burst / 20)
      const usage = () => ({
        services: pids.reduce((sum, pid) => sum + cpuMs(pid), 0),
        postgres: clusterCpuMs(bench.scratch.postmaster()),
      })
      const before = usage()
      const { ms, ...rest } = await ask(bench.scale.burst)
      const after = usage()
      const figures = {
        ...rest,
        perSecond: (bench.scale.burst * 1_000) / ms,
        services: (after.services - before.services) / ms,
        postgres: (after.postgres - before.postgres) / ms,
      }
      const all = `${bench.scale.burst.toLocaleString('en-US')} Reserves at once, ${what}`
      bench.show({ ...amount('burst', all, ms / 1_000, 's', { most: DEADLINE_S }), figures })
      const [pid] = pids
      const mb = pid === undefined ? rest.mostMb : mostMb(pid)
      bench.show(
        amount(
          'burst',
          `the same: most memory of ${pid === undefined ? 'that process' : 'the service'}`,
          mb,
          'MB',
        ),
      )
    } finally {
      load.stop()
    }
  }
}
