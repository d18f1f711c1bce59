/** The lines about Reserve and Release. "Pairs" are a Reserve and the Release of what it gave; owners are new each time. */
import { setTimeout as delay } from 'node:timers/promises'
import { withClient } from '../src/postgres/connect.ts'
import { audit, jobs, oldHistory } from './audit.ts'
import { burst } from './burst.ts'
import { citus } from './citus.ts'
import { cni } from './cni.ts'
import { FLOORS, type Floor } from './floors.ts'
import type { History } from './history.ts'
import { startLoad, type Work } from './load.ts'
import { alternate, amount, type Bench, compare, run, type Stage, type Subject } from './measure.ts'
import { BATCH } from './messages.ts'
import { agents, truth } from './truth.ts'
import { watch } from './watch.ts'

const CALLERS = 64
const EMPTY = { addresses: 0, held: 0, reserves: 0 }
/** Every address of it was held once, and is free again. */
const ROTATED: History = {
  network: 'rotated',
  cidr: '10.0.0.0/16',
  addresses: 65_534,
  held: 0,
  reserves: 65_534,
}

const inserting = (bench: Bench, connections: number): Subject => ({
  what: `one-row INSERT, ${connections} connections`,
  work: 'reserve',
  callers: connections,
  through: [bench.floor],
})

async function subject(
  stage: Stage,
  what: string,
  history: History,
  options: {
    readonly work?: Work
    readonly callers?: number
    readonly processes?: number
    readonly units?: number
  } = {},
): Promise<Subject> {
  const { work = 'reserve', callers = CALLERS, processes = 1, units = 1 } = options
  await stage.network(history)
  const { through, pids } = await stage.through(processes)
  return {
    what: `${what}, ${callers} callers`,
    work,
    callers,
    units,
    through,
    pids,
    network: history.network,
  }
}

const wide = (network: string): History => ({ network, cidr: '10.0.0.0/8', ...EMPTY })

/** The latency of a caller that is alone. */
async function one(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const insertOne = inserting(bench, 1)
  const single = await subject(stage, 'Reserve', wide('reserve'), { callers: 1 })
  const [floorOne, reservedOne] = await alternate(bench, [insertOne, single])
  const goal = { most: 3.5 }
  const floor = { subject: insertOne, rounds: floorOne! }
  bench.show(compare('one', single, reservedOne!, { floor, by: 'p50', goal }))
}

async function reserve(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const subjects = [
    await subject(stage, 'Reserve', wide('reserve'), { callers: 8 }),
    await subject(stage, 'Reserve', wide('reserve')),
    await subject(stage, 'Reserve with a request id', wide('reserve'), {
      work: 'keyed',
    }),
    await subject(stage, 'Reserve, 170,000 leases held', {
      network: 'held',
      cidr: '10.0.0.0/8',
      addresses: 170_000,
      held: 170_000,
      reserves: 170_000,
    }),
  ]
  await show(bench, 'reserve', inserting(bench, 32), subjects, [null, { least: 0.5 }, null, { least: 0.5 }])
}

/** Beside what a user would write instead, and beside what HTTP costs. */
async function instead(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const over = async (floor: Floor, callers: number): Promise<Subject> => {
    const { pid, target } = await bench.server(floor)
    const through = [{ kind: 'service' as const, ...target }]
    return { what: FLOORS[floor], work: 'reserve', callers, through, pids: [pid], network: 'instead' }
  }
  const goals = [
    [CALLERS, 'rate', { least: 1.4 }],
    [8, 'rate', { least: 0.75 }],
    [1, 'p50', { most: 2.2 }],
  ] as const
  for (const [callers, by, goal] of goals) {
    const insert = await over('insert', callers)
    const http = await over('http', callers)
    const reserving = await subject(stage, 'Reserve', wide('instead'), { callers })
    const [inserted, answered, reserved] = await alternate(bench, [insert, http, reserving])
    const toInsert = { subject: insert, rounds: inserted! }
    bench.show(compare('instead', reserving, reserved!, { floor: toInsert, by, goal }))
    const toHttp = { subject: http, rounds: answered! }
    bench.show(compare('instead', reserving, reserved!, { floor: toHttp, by, goal: null }))
  }
}

/** A floor and lines that are held against it. */
async function show(
  bench: Bench,
  line: string,
  floor: Subject,
  subjects: readonly Subject[],
  goals: readonly ({ least: number } | null)[],
): Promise<void> {
  const [floorRounds, ...all] = await alternate(bench, [floor, ...subjects])
  for (const [index, rounds] of all.entries())
    bench.show(
      compare(line, subjects[index]!, rounds, {
        floor: { subject: floor, rounds: floorRounds! },
        goal: goals[index]!,
      }),
    )
}

async function pairs(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const rotating = await subject(stage, 'pairs, a /16 in rotation', ROTATED, { work: 'pair' })
  await show(bench, 'pairs', inserting(bench, 32), [rotating], [null])
  bench.show({
    ...bench.rows.at(-1)!,
    what: 'the same: pairs a second',
    ratio: null,
    floor: null,
    goal: { least: 7_000 },
  })
}

async function batch(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const batches = await subject(stage, 'leases by BatchReserve of 100', wide('batch'), {
    work: 'batch',
    callers: 8,
    units: BATCH,
  })
  await show(bench, 'batch', inserting(bench, 32), [batches], [{ least: 1.5 }])
}

async function sizes(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const full: History = {
    network: 'full',
    cidr: '10.0.0.0/16',
    addresses: 64_878,
    held: 64_878,
    reserves: 64_878,
  }
  const empty = await subject(
    stage,
    'pairs, an empty /16',
    { ...wide('sixteen'), cidr: '10.0.0.0/16' },
    { work: 'pair' },
  )
  const subjects = [
    await subject(stage, 'pairs, a /16 99 % full', full, { work: 'pair' }),
    await subject(stage, 'pairs, an empty /8', wide('eight'), { work: 'pair' }),
    await subject(stage, 'pairs, an empty /48', { ...wide('six'), cidr: '2001:db8::/48' }, { work: 'pair' }),
  ]
  await show(bench, 'sizes', empty, subjects, [{ least: 0.95 }, { least: 0.95 }, { least: 0.95 }])
}

async function old(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const aged = await bench.stage(`old_${bench.scale.oldEvents}`)
  const history = oldHistory(bench)
  for (const work of ['reserve', 'pair'] as const) {
    const word = work === 'pair' ? 'pairs' : 'Reserve'
    const young = await subject(stage, `${word}, log empty`, wide('young'), { work })
    const aging = await subject(aged, `${word}, ${bench.scale.oldEvents / 1e6} M events`, history, { work })
    await show(bench, 'old', young, [aging], [{ least: 0.95 }])
  }
}

async function processes(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  const one = await subject(stage, 'Reserve through 1 process', wide('processes'), { callers: 66 })
  const three = await subject(stage, 'Reserve through 3 processes', wide('processes'), {
    callers: 66,
    processes: 3,
  })
  const goal = { least: 9_000, isOfValue: true }
  const [ones, threes] = await alternate(bench, [one, three])
  bench.show(compare('processes', three, threes!, { floor: { subject: one, rounds: ones! }, goal }))
}

/** What is measured before the transaction is begun is the floor. */
async function snapshot(bench: Bench): Promise<void> {
  const { measureMs, heldOpenMs } = bench.scale
  const stage = await bench.stage('main')
  const rotating = await subject(stage, 'pairs, a /16 in rotation', ROTATED, { work: 'pair' })
  const before = await run(bench, rotating)
  await withClient({ url: stage.database.adminUrl, applicationName: 'bench snapshot' }, async (client) => {
    await client.query('begin isolation level repeatable read; select count(*) from ipledger.pool')
    const last = await run(bench, rotating, { warmUpMs: heldOpenMs - measureMs, measureMs })
    const what = `pairs, a snapshot held open for ${heldOpenMs / 1_000} s`
    const floor = { subject: rotating, rounds: [before] }
    bench.show(compare('snapshot', { ...rotating, what }, [last], { floor, goal: { least: 0.8 } }))
  })
}

/** Each time in a process that is new. */
async function image(bench: Bench): Promise<void> {
  const stage = await bench.stage('main')
  for (const leases of bench.scale.images) {
    const network = `image-${leases}`
    await stage.network({ network, cidr: '10.0.0.0/8', addresses: leases, held: leases, reserves: leases })
    await delay(1_000)
    const load = startLoad()
    const { ms, mostMb } = await load.image(stage.database.url, network)
    load.stop()
    const what = `image of ${leases.toLocaleString('en-US')} leases`
    const isLarge = leases > 100_000
    bench.show(amount('image', `${what} loaded`, ms / 1_000, 's', { most: isLarge ? 10 : 1 }))
    const goal = isLarge ? { most: 1_000 } : null
    bench.show(amount('image', `${what}, most memory of its process`, mostMb, 'MB', goal))
  }
}

/** In the order of the table. */
export const LINES: Readonly<Record<string, (bench: Bench) => Promise<void>>> = {
  one,
  reserve,
  instead,
  pairs,
  snapshot,
  batch,
  sizes,
  processes,
  image,
  truth,
  agents,
  watch,
  cni,
  old,
  audit,
  jobs,
  citus,
  // Last, because its services keep much memory.
  burst,
}
