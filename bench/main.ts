/**
 * `ipledger bench`: how fast it is on this machine, each line beside a floor from the same run. Everything it makes is its own
 * and gone at the end. It fails when something breaks, never because of a speed.
 */
import { age } from '../src/cli/print.ts'
import { exitCodeOf } from '../src/cli/program.ts'
import { StartRefused } from '../src/config.ts'
import { withClient } from '../src/postgres/connect.ts'
import { type Floor, startFloor } from './floors.ts'
import { writeHistory } from './history.ts'
import { LINES } from './lines.ts'
import { type Load, startLoad } from './load.ts'
import type { Bench, Row, Scale, Stage } from './measure.ts'
import { number, people } from './report.ts'
import { openScratch } from './scratch.ts'
import { type Service, startService } from './service.ts'

type Asked = {
  /** What to measure; none means all. */
  readonly lines: readonly string[]
  /** Small and short: that it runs, not how fast. */
  readonly quick?: boolean
  /** How many minutes `snapshot` holds its transaction open. */
  readonly heldOpen: number
}

const FULL: Omit<Scale, 'heldOpenMs'> = {
  rounds: 3,
  warmUpMs: 500,
  measureMs: 2_000,
  reserves: Number.POSITIVE_INFINITY,
  oldEvents: 10_000_000,
  oldLeases: 100_000,
  images: [100_000, 1_000_000],
  listed: 100_000,
  agents: 2_000,
  agentIntervalMs: 30_000,
  watches: 1_000,
  watchedPerSecond: 5_000,
  watchedMs: 10_000,
  burst: 100_000,
  adds: 200,
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
  watches: 20,
  watchedPerSecond: 200,
  watchedMs: 500,
  burst: 2_000,
  adds: 20,
}

/** A user's own table: each holder has one row, and nothing else is checked. */
const ONE_ROW = `
  create schema bench;
  create table bench.one_row (
    network_id text not null,
    name text not null,
    address inet not null,
    at timestamptz not null,
    primary key (network_id, name))`

async function runBench({ lines, quick: isQuick = false, heldOpen }: Asked): Promise<void> {
  for (const name of lines)
    if (!(name in LINES))
      throw new StartRefused(`There is no line "${name}": name some of ${Object.keys(LINES).join(', ')}.`)
  const scale = isQuick ? QUICK : { ...FULL, heldOpenMs: heldOpen * 60_000 }
  const began = performance.now()
  const say = (line: string) =>
    console.error(`${((performance.now() - began) / 1_000).toFixed(0).padStart(5)} s  ${line}`)
  const rows: Row[] = []
  const loads: Load[] = []
  const services = new Set<Promise<Service>>()
  const floors = new Map<Floor, Promise<Service>>()
  const stages = new Map<string, Promise<Stage>>()
  const scratch = await openScratch()

  async function openStage(name: string): Promise<Stage> {
    const database = await scratch.create(name)
    const networks = new Set<string>()
    const started: Promise<Service>[] = []
    let isWorking = false
    return {
      database,
      async network(wanted) {
        if (networks.has(wanted.network)) return
        networks.add(wanted.network)
        const most = (count: number) => Math.min(count, scale.reserves)
        const [addresses, held, reserves] = [most(wanted.addresses), most(wanted.held), most(wanted.reserves)]
        say(`${wanted.network}: ${number(reserves * 2 - held)} events`)
        await writeHistory(database.adminUrl, { ...wanted, addresses, held, reserves })
      },
      async through(processes, worker = false) {
        if (worker !== isWorking) await Promise.all(started.splice(0).map(async (one) => (await one).stop()))
        isWorking = worker
        while (started.length < processes) {
          const one = startService(database, worker && started.length === 0)
          started.push(one)
          services.add(one)
        }
        const used = await Promise.all(started.slice(0, processes))
        return {
          through: used.map(({ target }) => ({ kind: 'service', ...target })),
          pids: used.map(({ pid }) => pid),
        }
      },
    }
  }

  try {
    const { adminUrl } = await scratch.create('floor')
    await withClient({ url: adminUrl, applicationName: 'bench' }, (client) => client.query(ONE_ROW))
    const bench: Bench = {
      scale,
      scratch,
      floor: { kind: 'table', url: adminUrl },
      stage(name) {
        const known = stages.get(name) ?? openStage(name)
        stages.set(name, known)
        return known
      },
      server(floor) {
        const known = floors.get(floor) ?? startFloor(floor, adminUrl)
        floors.set(floor, known)
        services.add(known)
        return known
      },
      load(index) {
        loads[index] ??= startLoad()
        return loads[index]
      },
      rows,
      show(row) {
        rows.push(row)
        const { what, value, unit, ratio, floor } = row
        const beside = ratio === null ? '' : `, ${number(ratio)} of ${floor!.what}`
        say(`${what}: ${number(value)} ${unit}${beside}`)
      },
    }
    const wanted = Object.entries(LINES).filter(([name]) => lines.length === 0 || lines.includes(name))
    for (const [done, [name, line]] of wanted.entries()) {
      const left = ((performance.now() - began) / done) * (wanted.length - done)
      say(`${name}: line ${done + 1} of ${wanted.length}${done === 0 ? '' : `, about ${age(left)} left`}`)
      await line(bench)
    }
    console.log(people(rows, isQuick))
  } finally {
    for (const load of loads) load.stop()
    await Promise.allSettled([...services].map(async (one) => (await one).stop()))
    await scratch.stop()
  }
}

process.exitCode = await exitCodeOf(() => runBench(JSON.parse(process.argv[2]!) as Asked))
