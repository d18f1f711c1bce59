/**
 * `ipledger bench`: how fast it is on this machine, each line beside a floor from the same run. Everything it makes is its own
 * and gone at the end, unless `--directory` keeps it for the next run. It fails when something breaks, never because of a
 * speed.
 *
 *   --quick           small and short: that it runs, not how fast
 *   --ledger          without services: callers open the ledger in their own process
 *   --line NAME       this line, and others so named; without it all
 *   --held-open MIN   how long `snapshot` holds its transaction open (default 1)
 *   --directory DIR   of the database
 *   --json FILE       the table for programs
 *   --profile DIR     CPU profiles of the callers, with --ledger of the ledger
 */
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { withClient } from '../src/postgres/connect.ts'
import { writeHistory } from './history.ts'
import { LINES } from './lines.ts'
import { type Load, startLoad, type Through } from './load.ts'
import type { Bench, Scale, Stage } from './measure.ts'
import { machine, number, people, type Row } from './report.ts'
import { openScratch, type Scratch } from './scratch.ts'
import { type Service, startService } from './service.ts'

const FULL: Scale = {
  rounds: 3,
  warmUpMs: 500,
  measureMs: 2_000,
  reserves: Number.POSITIVE_INFINITY,
  oldEvents: 10_000_000,
  oldLeases: 100_000,
  images: [100_000, 1_000_000],
  heldOpenMs: 60_000,
  listed: 100_000,
  agents: 2_000,
  agentIntervalMs: 30_000,
}

const QUICK: Scale = {
  rounds: 1,
  warmUpMs: 100,
  measureMs: 200,
  reserves: 5_000,
  oldEvents: 10_000,
  oldLeases: 5_000,
  images: [5_000],
  heldOpenMs: 400,
  listed: 5_000,
  agents: 10,
  agentIntervalMs: 400,
}

/** What somebody would write who wants an address to have one holder, and nothing more. */
const ONE_ROW = `
  create schema if not exists bench;
  create table if not exists bench.one_row (
    network_id text not null,
    name text not null,
    address inet not null,
    at timestamptz not null,
    primary key (network_id, name))`

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    ledger: { type: 'boolean', default: false },
    line: { type: 'string', multiple: true, default: [] },
    'held-open': { type: 'string' },
    directory: { type: 'string' },
    json: { type: 'string' },
    profile: { type: 'string' },
  },
})
const chosen = [...values.line, ...positionals]
for (const name of chosen)
  if (!(name in LINES))
    throw new Error(`There is no line "${name}": there are ${Object.keys(LINES).join(', ')}.`)

const scale = { ...(values.quick ? QUICK : FULL) }
const heldOpenMs = values['held-open'] === undefined ? scale.heldOpenMs : Number(values['held-open']) * 60_000
const began = performance.now()
const rows: Row[] = []
const scratch = await openScratch(values.directory)
const loads: Load[] = []
const services = new Set<Promise<Service>>()
try {
  const bench = await openBench(scratch)
  for (const [name, line] of Object.entries(LINES))
    if (chosen.length === 0 || chosen.includes(name)) await line(bench)
  console.log(people(rows, values.quick))
  if (values.json !== undefined) writeFileSync(values.json, `${machine(rows, values.quick)}\n`)
} finally {
  for (const load of loads) load.stop()
  await Promise.allSettled([...services].map(async (one) => (await one).stop()))
  await scratch.stop()
}

async function openBench(server: Scratch): Promise<Bench> {
  const stages = new Map<string, Promise<Stage>>()
  const { adminUrl } = await server.create('floor')
  await withClient({ url: adminUrl, applicationName: 'bench' }, (client) => client.query(ONE_ROW))
  return {
    scale: { ...scale, heldOpenMs },
    scratch: server,
    floor: { kind: 'table', url: adminUrl },
    stage(name) {
      const known = stages.get(name) ?? openStage(server, name)
      stages.set(name, known)
      return known
    },
    load(index) {
      loads[index] ??= startLoad(values.profile)
      return loads[index]
    },
    async fresh(work) {
      const load = startLoad(values.profile)
      try {
        return await work(load)
      } finally {
        load.stop()
      }
    },
    rows,
    show(row) {
      rows.push(row)
      say(
        `${row.what}: ${number(row.value)} ${row.unit}${row.ratio === null ? '' : `, ${number(row.ratio)} of ${row.floor!.what}`}`,
      )
    },
  }
}

async function openStage(server: Scratch, name: string): Promise<Stage> {
  const database = await server.create(name)
  const started: Promise<Service>[] = []
  let isWorking = false
  return {
    database,
    async network(wanted) {
      const most = (count: number) => Math.min(count, scale.reserves)
      const history = {
        ...wanted,
        addresses: most(wanted.addresses),
        held: most(wanted.held),
        reserves: most(wanted.reserves),
      }
      const isThere = await withClient({ url: database.adminUrl, applicationName: 'bench' }, (client) =>
        client.query('select from ipledger.network where network_id = $1', [history.network]),
      )
      if (isThere.rowCount! > 0) return
      say(`${history.network}: ${number(history.reserves * 2 - history.held)} events`)
      await writeHistory(database.adminUrl, history)
    },
    async through(processes, worker = false) {
      if (values.ledger) {
        const one: Through = { kind: 'ledger', url: database.url }
        return { through: Array.from({ length: processes }, () => one), pids: [] }
      }
      if (worker !== isWorking) await Promise.all(started.splice(0).map(async (one) => (await one).stop()))
      isWorking = worker
      while (started.length < processes) {
        const one = startService(database, {
          worker: worker && started.length === 0,
          profile: values.profile,
        })
        started.push(one)
        services.add(one)
      }
      const used = await Promise.all(started.slice(0, processes))
      return {
        through: used.map(({ target }) => ({ kind: 'service', target })),
        pids: used.map(({ pid }) => pid),
      }
    },
  }
}

function say(line: string): void {
  console.error(`${((performance.now() - began) / 1_000).toFixed(0).padStart(5)} s  ${line}`)
}
