/**
 * The lines about the past: rebuild, verify, and what an auditor asks, on a log that is old. And what the jobs take. Times are
 * the clock's, of one connection that waits for its answer.
 */
import { createHistogram } from 'node:perf_hooks'
import { formatValue } from '../src/core/address.ts'
import { rebuildNetwork } from '../src/ledger/rebuild.ts'
import { verifyNetwork } from '../src/ledger/verify.ts'
import { withClient } from '../src/postgres/connect.ts'
import { AUDITOR_SETTINGS } from '../src/postgres/roles.ts'
import type { History } from './history.ts'
import { amount, type Bench, run, type Subject } from './measure.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

/** Of the times asked: the i-th value. Multiples of an irrational number fall evenly, and are the same each run. */
type Spread = (i: number) => unknown

export function oldHistory({ scale: { oldEvents, oldLeases } }: Bench): History {
  return {
    network: 'old',
    cidr: '10.0.0.0/8',
    addresses: Math.floor(oldLeases * 1.1),
    held: oldLeases,
    reserves: Math.floor((oldEvents + oldLeases) / 2),
  }
}

export async function audit(bench: Bench): Promise<void> {
  const stage = await bench.stage(`old_${bench.scale.oldEvents}`)
  const history = oldHistory(bench)
  const { network, addresses } = history
  await stage.network(history)
  const show = (what: string, value: number, unit: string, goal: { least?: number; most?: number } | null) =>
    bench.show(amount('audit', what, value, unit, goal))
  await withClient({ url: stage.database.adminUrl, applicationName: 'bench audit' }, async (client) => {
    const spent = () => clusterCpuMs(bench.scratch.postmaster()) + cpuMs(process.pid)
    let began = performance.now()
    const { head } = (await rebuildNetwork(client, network))!
    const events = `${(head / 1e6).toFixed(2)} M events`
    show(`rebuild of ${events}`, (head * 1_000) / (performance.now() - began), '/s', { least: 500_000 })
    await client.query('vacuum (analyze) ipledger.lease')
    const before = spent()
    began = performance.now()
    const { findings, complete } = await verifyNetwork(client, network, { from: 0 })
    if (!complete || findings.length > 0) throw new Error(`verify: ${JSON.stringify(findings.slice(0, 3))}`)
    show(`verify of ${events}, with digests`, (performance.now() - began) / 1_000, 's', { most: 90 })
    show('the same, processor time', (spent() - before) / 1_000, 's', null)

    // A role that is set, not logged in with, has none of its settings.
    await client.query('set role ipledger_auditor')
    for (const setting of Object.entries(AUDITOR_SETTINGS))
      await client.query('select set_config($1, $2, false)', setting)
    const ask = async (what: string, times: number, most: number, question: string, ...values: Spread[]) => {
      const microseconds = createHistogram()
      for (let i = 1; i <= times; i += 1) {
        began = performance.now()
        await client.query(`select ${question}`, [network, ...values.map((value) => value(i))])
        microseconds.record(Math.ceil((performance.now() - began) * 1_000))
      }
      show(`${what}, ${events}, p50`, microseconds.percentile(50) / 1_000, 'ms', { most })
      if (times >= 100) show('the same, p99', microseconds.percentile(99) / 1_000, 'ms', null)
    }
    const { rows } = await client.query<{ at: number }>(
      'select at from log where network_id = $1 and seq in (1, $2) order by seq',
      [network, head],
    )
    const [first, last] = rows.map(({ at }) => at) as [number, number]
    const at: Spread = (i) => new Date(first + (last - first) * ((i * 0.6180339887) % 1))
    const address: Spread = (i) =>
      formatValue(4, 0x0a000001n + BigInt(Math.floor(addresses * ((i * 0.7548776662) % 1))))
    await ask('who_had', 200, 2, '* from who_had($1, $2, $3)', address, at)
    await ask('explain_address', 200, 5, '* from explain_address($1, $2, $3)', address, at)
    const counted = 'count(*), max(owner_name) from leases_as_of($1, $2::bigint)'
    await ask('leases_as_of the middle, counted', 5, 500, counted, () => Math.floor(head / 2))
    await ask('leases_as_of the end, counted', 5, 500, counted, () => head)
  })
}

/** What a service that does the background jobs, too, takes beside one that does not, under the same load; each job runs meanwhile. */
export async function jobs(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const network = 'jobs'
  await stage.network({ network, cidr: '10.0.0.0/16', addresses: 65_534, held: 0, reserves: 65_534 })
  const took = async (worker: boolean) => {
    const { through, pids } = await stage.through(1, worker)
    const subject: Subject = { what: 'pairs', work: 'pair', callers: 64, network, through, pids }
    const { warmUpMs, heldOpenMs: measureMs } = bench.scale
    return run(bench, subject, { warmUpMs, measureMs })
  }
  const [alone, beside] = [await took(false), await took(true)]
  // Of what a pair costs in processors, beside callers that cost the same.
  const each = ({ services, postgres, perSecond }: typeof alone) => (services + postgres) / perSecond
  const share = (1 - each(alone) / each(beside)) * 100
  bench.show({
    ...amount('jobs', 'background jobs under load, a /16 in rotation', share, '%', {
      most: 10,
    }),
    figures: beside,
  })
}
