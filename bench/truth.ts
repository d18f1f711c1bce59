/**
 * What sources cost: one that lists 100,000 pods over the API, and 2,000 agents with nothing new to say. The service is
 * `ipledger serve` with its worker, in one process as anybody starts it; its memory is that of both.
 *
 * A snapshot is *answered* when its last chunk is, and *held against the books* when the worker's next run of
 * process-snapshots (everything that is listed, against the leases) and of verify-suspects (every lease, against what is
 * listed) has ended. Both are asked for at once, as in a slot of the schedule, and as soon as the answer is there: the
 * minute that a slot may be away is not waited for. Making entries and digests is the source's own affair and not timed.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { connect } from '../src/postgres/connect.ts'
import { JOBS_SCHEMA } from '../src/postgres/migrate.ts'
import type { Place } from './load.ts'
import { type Bench, type Cpu, compare, type Figures, runBeside, type Subject, watchCpu } from './measure.ts'
import type { Amount, Row } from './report.ts'
import { type Paced, type Sources, startSources } from './sources.ts'
import { openStage, type Stage } from './stage.ts'
import { median } from './statistics.ts'
import { forgetPeak, peakBytes } from './usage.ts'

const CALLERS = 64
const WIDE = '10.0.0.0/8'
/** As pools have by default: a snapshot's token lasts half of it. */
const COOLDOWN_SECONDS = 120

/** Reserve in the same network; what it gives is released again, so that the leases stay those that are listed. */
const reserving = (stage: Stage, place: Place): Subject => ({
  what: `Reserve, ${CALLERS} callers`,
  work: () => ({ kind: 'pass', places: [place] }),
  callers: CALLERS,
  stage,
})

// A snapshot of 100,000.

const RECONCILED_WITHIN_S = 2
const MOST_MEMORY_MB = 300
const MOST_TIMES_P99 = 2
const NODES = 100
/** So long must two looks lie apart to count (half of the interval that the source declares), and then some. */
const SOURCE_INTERVAL_MS = 1_000
const APART_MS = 700

const STEPS = ['first', 'unchanged', 'full', 'changed'] as const
type StepName = (typeof STEPS)[number]

type Step = {
  readonly requests: number
  readonly bytes: number
  readonly answeredMs: number
  readonly walked: Walked
  readonly cpu: Omit<Cpu, 'load'>
  /** Resident, when it began and at its most. */
  readonly rest: number | undefined
  readonly peak: number | undefined
  readonly beside: { readonly before: Figures; readonly meanwhile: Figures } | null
}

/** Milliseconds until each job, and so all of them, had ended. */
type Walked = { readonly ms: number; readonly jobs: Readonly<Record<string, number>> }

export async function reconcile(bench: Bench): Promise<void> {
  const { listed, rounds } = bench.scale
  const changed = Math.ceil(listed / 100)
  // One of each is thrown away, as in `alternate`.
  const courses = (rounds > 1 ? rounds + 1 : rounds) * 2
  const stage = await open(bench, 'reconcile')
  const walker = await connect({ url: stage.database.jobsUrl, applicationName: 'ipledger bench jobs' })
  let sources: Sources | undefined
  try {
    const held = listed + courses * changed
    const pods = { confirmed: listed, nodes: NODES }
    const place = await stage.place(WIDE, { held, pairs: 0, churned: 0, pods }, COOLDOWN_SECONDS)
    await catchUp(bench, stage, walker)
    sources = await startSources(stage.servers[0]!.target, place, bench.signal)
    const alone: Course[] = []
    const beside: Course[] = []
    for (let course = 0; course < courses; course += 1) {
      const isBeside = course % 2 === 1
      const from = course * changed
      const taken = await takeCourse({ bench, stage, place, sources, walker, from, changed, isBeside })
      if (rounds === 1 || course >= 2) (isBeside ? beside : alone).push(taken)
    }
    for (const name of STEPS) bench.show(aloneRow(name, listed, alone))
    for (const name of STEPS) bench.show(besideRow(name, beside))
    bench.show(memoryRow([...alone, ...beside]))
  } finally {
    await sources?.stop()
    await walker.end()
    await stage.close()
  }
}

type Course = Readonly<Record<StepName, Step>>

/** A source that is new, its four reports, and its end. 1 % of its pods end without a word and others are there. */
async function takeCourse({
  bench,
  stage,
  place,
  sources,
  walker,
  from,
  changed,
  isBeside,
}: {
  readonly bench: Bench
  readonly stage: Stage
  readonly place: Place
  readonly sources: Sources
  readonly walker: pg.Client
  readonly from: number
  readonly changed: number
  readonly isBeside: boolean
}): Promise<Course> {
  const { listed: count } = bench.scale
  const { pid } = stage.servers[0]!
  await sources.ask({ type: 'declare', source: `orchestrator-${from}`, intervalMs: SOURCE_INTERVAL_MS })

  async function take(name: StepName): Promise<Step> {
    await delay(APART_MS, undefined, { signal: bench.signal })
    forgetPeak(pid)
    const rest = peakBytes(pid)
    const happen = () =>
      watchCpu(bench, stage.servers, async () => {
        const told = await sources.ask({
          type: 'report',
          how: name === 'unchanged' ? 'unchanged' : 'entries',
        })
        return { told, walked: await walk(walker, bench.signal) }
      })
    const { warmUpMs, measureMs: beforeMs } = bench.scale
    const { before, meanwhile, happened } = isBeside
      ? await runBeside(bench, reserving(stage, place), { warmUpMs, beforeMs }, happen)
      : { before: null, meanwhile: null, happened: await happen() }
    const { told, walked } = happened.happened
    // It is warm with the second; before, nothing that is not listed ends.
    if (!told.counted && (name === 'full' || name === 'changed')) throw new Error('a snapshot did not count')
    const { requests, bytes, ms: answeredMs } = told
    return {
      requests,
      bytes,
      answeredMs,
      walked,
      cpu: happened.cpu,
      rest,
      peak: peakBytes(pid),
      beside: before === null ? null : { before, meanwhile },
    }
  }

  await sources.ask({ type: 'list', pods: { from, count, nodes: NODES } })
  const first = await take('first')
  const unchanged = await take('unchanged')
  const full = await take('full')
  await sources.ask({ type: 'list', pods: { from: from + changed, count, nodes: NODES } })
  const last = await take('changed')
  await sources.ask({ type: 'release', pods: { from, count: changed, nodes: NODES } })
  await sources.ask({ type: 'retire' })
  return { first, unchanged, full, changed: last }
}

const WALKS = ['process-snapshots', 'verify-suspects'] as const
/** What follows the log: a history that was written in one go is not what they have before them otherwise. */
const FOLLOWERS = ['keep-checkpoints', 'seal-log'] as const
const LONGEST_WALK_MS = 120_000
const LOOK_EVERY_MS = 5

/** Until what follows the log has followed it to its end. */
async function catchUp(bench: Bench, { admin }: Stage, walker: pg.Client): Promise<void> {
  bench.say('waiting for tenure, checkpoints and seals')
  // The job of tenures stays for its slot, and follows.
  for (;;) {
    const { rows } = await admin.query<{ behind: boolean }>(
      `select exists (
         select from ipledger.network n
          where coalesce((select t.seq from ipledger.tenure_position t where t.network_id = n.network_id), 0)
              < coalesce((select max(e.seq) from ipledger.event e where e.network_id = n.network_id), 0)) as behind`,
    )
    if (!rows[0]!.behind) break
    await delay(LOOK_EVERY_MS, undefined, { signal: bench.signal })
  }
  await walk(walker, bench.signal, FOLLOWERS)
}

/** What a minute's slot does about it, now. */
async function walk(
  walker: pg.Client,
  signal: AbortSignal,
  names: readonly string[] = WALKS,
): Promise<Walked> {
  const begun = performance.now()
  const waiting = new Map<string, string>()
  for (const job of names) {
    const { rows } = await walker.query<{ id: string }>(
      `select id::text as id from ${JOBS_SCHEMA}.add_job($1, '{}'::json, max_attempts := 1)`,
      [job],
    )
    waiting.set(rows[0]!.id, job)
  }
  const jobs: Record<string, number> = {}
  while (waiting.size > 0) {
    const { rows } = await walker.query<{ id: string; failed: boolean }>(
      `select id::text as id, attempts >= max_attempts and locked_at is null as failed
         from ${JOBS_SCHEMA}._private_jobs where id = any($1::bigint[])`,
      [[...waiting.keys()]],
    )
    const now = performance.now()
    if (rows.some(({ failed }) => failed)) throw new Error('a job failed: the server has said why')
    if (now - begun > LONGEST_WALK_MS) throw new Error(`${[...waiting.values()].join(' and ')} took too long`)
    const left = new Set(rows.map(({ id }) => id))
    for (const [id, job] of waiting) {
      if (left.has(id)) continue
      waiting.delete(id)
      jobs[job] = now - begun
    }
    if (waiting.size > 0) await delay(LOOK_EVERY_MS, undefined, { signal })
  }
  return { ms: performance.now() - begun, jobs }
}

const SAID: Readonly<Record<StepName, string>> = {
  first: 'the first',
  unchanged: 'said to be unchanged',
  full: 'unchanged, sent in full',
  changed: '1 % changed',
}

function aloneRow(name: StepName, listed: number, courses: readonly Course[]): Row {
  const steps = courses.map((course) => course[name])
  const value = median(steps.map(totalMs)) / 1_000
  return {
    ...NO_CALLS,
    line: 'reconcile',
    what: `snapshot of ${listed.toLocaleString('en-US')}, ${SAID[name]}`,
    amount: { value, unit: 's' },
    cpu: { load: 0, ...steps[0]!.cpu },
    goal: { most: RECONCILED_WITHIN_S },
    reached: value <= RECONCILED_WITHIN_S,
    parts: partsOf(steps),
  }
}

function besideRow(name: StepName, courses: readonly Course[]): Row {
  const steps = courses.map((course) => course[name])
  const what = `Reserve, ${CALLERS} callers, snapshot ${SAID[name]}`
  const meanwhile = steps.map(({ beside }) => ({ ...beside!.meanwhile, what }))
  const before = steps.map(({ beside }) => beside!.before)
  return {
    ...compare('reconcile', meanwhile, { rounds: before, by: 'p99', goal: { most: MOST_TIMES_P99 } }),
    parts: [
      ...partsOf(steps),
      { of: 'p99 of Reserve before', amount: { value: median(before.map(({ p99 }) => p99)), unit: 'ms' } },
    ],
  }
}

function partsOf(steps: readonly Step[]): NonNullable<Row['parts']> {
  const ms = (of: string, pick: (step: Step) => number): { of: string; amount: Amount } => ({
    of,
    amount: { value: median(steps.map(pick)), unit: 'ms' },
  })
  const { requests, bytes } = steps[0]!
  const sent = requests === 1 ? 'one request' : `${requests} requests, ${Math.round(bytes / 1e6)} MB`
  return [
    ms('answered and held against the books', totalMs),
    ms(`answered (${sent})`, ({ answeredMs }) => answeredMs),
    ms('then held against the books', ({ walked }) => walked.ms),
    ...WALKS.map((job) => ms(`of that, until ${job} had ended`, ({ walked }) => walked.jobs[job]!)),
    ...memoryOf(
      'memory of server and worker before',
      steps.map(({ rest }) => rest),
    ),
    ...memoryOf(
      'memory of server and worker at its peak',
      steps.map(({ peak }) => peak),
    ),
  ]
}

function totalMs({ answeredMs, walked }: Step): number {
  return answeredMs + walked.ms
}

function memoryRow(courses: readonly Course[]): Row {
  const peaks = courses.flatMap((course) => STEPS.map((name) => course[name].peak))
  const [most] = memoryOf('', peaks)
  return {
    ...NO_CALLS,
    line: 'reconcile',
    what: 'peak resident memory of server and worker, one process',
    ...(most === undefined
      ? {}
      : {
          amount: most.amount,
          goal: { most: MOST_MEMORY_MB },
          reached: most.amount.value < MOST_MEMORY_MB,
        }),
  }
}

/** Nothing where the system does not tell. */
function memoryOf(of: string, peaks: readonly (number | undefined)[]): { of: string; amount: Amount }[] {
  const known = peaks.filter((peak) => peak !== undefined)
  return known.length === 0 ? [] : [{ of, amount: { value: Math.max(...known) / 1e6, unit: 'MB' } }]
}

const NO_CALLS = {
  perSecond: null,
  p50: null,
  p99: null,
  cpu: null,
  floor: null,
  ratio: null,
  goal: null,
  reached: null,
}

// Many agents with nothing new to say.

const PODS_EACH = 50
const MOST_CORES = 0.05
/** One more than are remembered in a source's row: from then on it is as long as it will be. */
const SETTLING_REPORTS = 9
/** While they settle they report as fast as counts. */
const SETTLING_INTERVAL_MS = 1_000
const SETTLING_PER_SECOND = 500

export async function agents(bench: Bench): Promise<void> {
  const { agents: nodes, agentIntervalMs: intervalMs, agentIntervals: intervals } = bench.scale
  const stage = await open(bench, 'agents')
  const walker = await connect({ url: stage.database.jobsUrl, applicationName: 'ipledger bench jobs' })
  let sources: Sources | undefined
  try {
    const held = nodes * PODS_EACH
    const pods = { confirmed: held, nodes }
    const place = await stage.place(WIDE, { held, pairs: 0, churned: 0, pods }, COOLDOWN_SECONDS)
    sources = await startSources(stage.servers[0]!.target, place, bench.signal)
    bench.say(`enrolling ${nodes.toLocaleString('en-US')} agents`)
    await sources.ask({ type: 'enrol', nodes, podsEach: PODS_EACH, intervalMs: SETTLING_INTERVAL_MS })
    const settling = Math.max(APART_MS, (nodes * 1_000) / SETTLING_PER_SECOND)
    await sources.ask({ type: 'pace', intervalMs: settling, intervals: SETTLING_REPORTS })
    await sources.ask({ type: 'redeclare', intervalMs })
    await catchUp(bench, stage, walker)

    const pace = (times: number) => sources!.ask({ type: 'pace', intervalMs, intervals: times })
    await pace(1)
    // As long as what is measured, so that as many slots of the schedule fall into it.
    const idle = await watchCpu(bench, stage.servers, () =>
      delay(intervals * intervalMs, undefined, { signal: bench.signal }),
    )
    const before = await tablesOf(stage)
    const { happened: paced, cpu } = await watchCpu(bench, stage.servers, () => pace(intervals))
    const after = await tablesOf(stage)
    const { warmUpMs, measureMs: beforeMs } = bench.scale
    const beside = await runBeside(bench, reserving(stage, place), { warmUpMs, beforeMs }, () => pace(1))

    const seconds = intervalMs / 1_000
    const what = `${nodes.toLocaleString('en-US')} agents of ${PODS_EACH} leases, unchanged each ${seconds} s`
    bench.show(reportsRow(what, paced, cpu))
    bench.show(coresRow(cpu, idle.cpu))
    bench.show(growthRow('rows', before, after))
    bench.show(growthRow('bytes', before, after))
    const meanwhile = { ...beside.meanwhile, what: `Reserve, ${CALLERS} callers, agents reporting` }
    bench.show({
      ...compare('agents', [meanwhile], { rounds: [beside.before], by: 'p99' }),
      parts: [{ of: 'p99 of Reserve before', amount: { value: beside.before.p99, unit: 'ms' } }],
    })
  } finally {
    await sources?.stop()
    await walker.end()
    await stage.close()
  }
}

function reportsRow(what: string, paced: Paced, cpu: Omit<Cpu, 'load'>): Row {
  const { reports, lastedMs, p50, p99, late } = paced
  return {
    ...NO_CALLS,
    line: 'agents',
    what,
    perSecond: (reports * 1_000) / lastedMs,
    p50,
    p99,
    cpu: { load: paced.cpu, ...cpu },
    ...(late === 0
      ? {}
      : {
          parts: [
            { of: 'reports left out, the one before was on its way', amount: { value: late, unit: 'rows' } },
          ],
        }),
  }
}

function coresRow(cpu: Omit<Cpu, 'load'>, idle: Omit<Cpu, 'load'>): Row {
  const row: Row = { ...NO_CALLS, line: 'agents', what: 'server, worker and PostgreSQL together' }
  const total = sumOf(cpu)
  const without = sumOf(idle)
  if (total === null || without === null) return row
  const cores = (of: string, value: number) => ({ of, amount: { value, unit: 'cores' } as const })
  return {
    ...row,
    amount: { value: total, unit: 'cores' },
    goal: { most: MOST_CORES },
    reached: total <= MOST_CORES,
    parts: [
      cores('server and worker', cpu.server!),
      cores('PostgreSQL', cpu.postgres!),
      cores('server and worker when no agent reports', idle.server!),
      cores('PostgreSQL when no agent reports', idle.postgres!),
      cores('the agents alone', total - without),
    ],
  }
}

function sumOf({ server, postgres }: Omit<Cpu, 'load'>): number | null {
  return server === null || postgres === null ? null : server + postgres
}

type Table = { readonly of: string; readonly rows: number; readonly bytes: number }

const TABLES = ['source', 'source_epoch', 'snapshot', 'snapshot_part', 'sighting', 'lookup', 'hold', 'fence']

/** Bytes with those of the indexes. */
async function tablesOf({ admin }: Stage): Promise<readonly Table[]> {
  const tables: Table[] = []
  for (const of of TABLES) {
    const { rows } = await admin.query<{ rows: number; bytes: number }>(
      `select (select count(*) from ipledger.${of}) as rows,
              (select sum(pg_relation_size(r))::bigint from (
                 select 'ipledger.${of}'::regclass as r
                 union all select indexrelid from pg_index where indrelid = 'ipledger.${of}'::regclass) x) as bytes`,
    )
    tables.push({ of, ...rows[0]! })
  }
  return tables
}

function growthRow(unit: 'rows' | 'bytes', before: readonly Table[], after: readonly Table[]): Row {
  const grown = after.map((table, at) => ({ ...table, by: table[unit] - before[at]![unit] }))
  const value = grown.reduce((sum, { by }) => sum + by, 0)
  return {
    ...NO_CALLS,
    line: 'agents',
    what: `growth of what is stored of sources, ${unit}`,
    amount: { value, unit },
    goal: { most: 0 },
    reached: value <= 0,
    parts: grown.flatMap(({ of, rows, bytes, by }) => [
      { of: `${of}, at the end`, amount: { value: unit === 'rows' ? rows : bytes, unit } },
      ...(by === 0 ? [] : [{ of: `${of}, grown by`, amount: { value: by, unit } }]),
    ]),
  }
}

async function open(bench: Bench, purpose: string): Promise<Stage> {
  const stage = await openStage(bench.scratch, { purpose, worker: true }, bench.signal)
  bench.stages.push(stage)
  return stage
}
