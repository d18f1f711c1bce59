/** The lines about the past: rebuild, verify, and what an auditor asks, on a log that is old. And what the jobs take. */
import { randomInt } from 'node:crypto'
import type pg from 'pg'
import { formatValue } from '../src/core/address.ts'
import { rebuildNetwork } from '../src/ledger/rebuild.ts'
import { verifyNetwork } from '../src/ledger/verify.ts'
import { withClient } from '../src/postgres/connect.ts'
import type { History } from './history.ts'
import { alternate, amount, type Bench, mid, type Subject } from './measure.ts'
import { median, percentile } from './statistics.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

const ASKED = 200

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
    const { rows } = await client.query<{ head: number; first: number; last: number }>(
      `select max(seq)::float8 as head, extract(epoch from min(at))::float8 * 1000 as first, extract(epoch from max(at))::float8 * 1000 as last from ipledger.event where network_id = $1`,
      [network],
    )
    const { head, first, last } = rows[0]!
    const events = `${(head / 1e6).toFixed(2)} M events`
    const at = () => new Date(randomInt(Math.ceil(first), Math.floor(last)))
    const address = () => formatValue(4, 0x0a000001n + BigInt(randomInt(addresses)))

    const spent = () => clusterCpuMs(bench.scratch.postmaster()) + cpuMs(process.pid)
    let [began, before] = [performance.now(), spent()]
    await rebuildNetwork(client, network)
    show(`rebuild of ${events}`, (head * 1_000) / (performance.now() - began), '/s', { least: 500_000 })
    ;[began, before] = [performance.now(), spent()]
    const { findings, complete } = await verifyNetwork(client, network, { from: 0 })
    if (!complete || findings.length > 0) throw new Error(`verify: ${JSON.stringify(findings.slice(0, 3))}`)
    show(`verify of ${events}, with digests`, (performance.now() - began) / 1_000, 's', { most: 90 })
    show('the same, processor time', (spent() - before) / 1_000, 's', null)

    await client.query('set role ipledger_auditor')
    const each = async (what: string, text: string, values: () => readonly unknown[], most: number) => {
      const ms: number[] = []
      for (let i = 0; i < ASKED; i += 1) ms.push(await timed(client, text, values()))
      ms.sort((a, b) => a - b)
      show(`${what}, of ${events}, p50`, percentile(ms, 0.5), 'ms', { most })
      show('the same, p99', percentile(ms, 0.99), 'ms', null)
    }
    const whoHad = 'select * from ipledger_audit.who_had($1, $2, $3)'
    await each('who_had', whoHad, () => [network, address(), at()], 2)
    const explain = 'select * from ipledger_audit.explain_address($1, $2, $3)'
    await each('explain_address', explain, () => [network, address(), at()], 5)
    const asOf = 'select count(*), max(owner_name) from ipledger_audit.leases_as_of($1, $2::bigint)'
    for (const [when, seq] of [
      ['the middle of', Math.floor(head / 2)],
      ['the end of', head],
    ] as const) {
      const ms: number[] = []
      for (let i = 0; i < 3; i += 1) ms.push(await timed(client, asOf, [network, seq]))
      show(`leases_as_of ${when} ${events}`, median(ms), 'ms', { most: 500 })
    }
    await client.query('reset role')
  })
}

async function timed(client: pg.Client, text: string, values: readonly unknown[]): Promise<number> {
  const began = performance.now()
  await client.query(text, [...values])
  return performance.now() - began
}

/** What a service that does the background jobs, too, takes beside one that does not, under the same load. */
export async function jobs(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const network = 'jobs'
  await stage.network({ network, cidr: '10.0.0.0/16', addresses: 65_534, held: 0, reserves: 65_534 })
  const took = async (worker: boolean) => {
    const { through, pids } = await stage.through(1, worker)
    const subject: Subject = {
      what: `pairs ${worker ? 'beside' : 'without'} background jobs`,
      ...{ work: { kind: 'pair' }, callers: 64, network, through, pids },
    }
    const [rounds] = await alternate(bench, [subject])
    return mid(rounds!)
  }
  const [alone, beside] = [await took(false), await took(true)]
  // Of what a pair costs in processors, beside callers that cost the same.
  const each = ({ services, postgres, perSecond }: typeof alone) => (services + postgres) / perSecond
  const share = Math.max(0, 1 - each(alone) / each(beside)) * 100
  bench.show({
    ...amount('jobs', 'background jobs under load, a /16 in rotation', share, '%', {
      most: 10,
    }),
    figures: beside,
  })
}
