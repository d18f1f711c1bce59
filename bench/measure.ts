/**
 * How a figure is made. The machine is shared and noisy, so a line and its floor run in turn, several short runs each
 * (floor, line, floor, line, …): the ratio is the median of those of each turn, the figures shown are medians.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Interval, Load, Work } from './load.ts'
import type { Row } from './report.ts'
import type { Scratch } from './scratch.ts'
import type { Server } from './server.ts'
import type { Stage } from './stage.ts'
import { median } from './statistics.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

export type Scale = {
  /** Runs of a line and of its floor. */
  readonly rounds: number
  readonly warmUpMs: number
  readonly measureMs: number
  /** Prefix length of the pools that are filled: `/16`, or smaller. */
  readonly fillPrefix: number
  /** Events of the log that counts as old. */
  readonly agedEvents: number
  /** A transaction is held open for so many intervals. */
  readonly heldOpenIntervals: number
  readonly heldOpenIntervalMs: number
  readonly soakIntervalMs: number
  readonly soakIntervals: number
  /** Entries of a snapshot, and leases it is held against. */
  readonly listed: number
  readonly agents: number
  readonly agentIntervalMs: number
  /** Intervals that are measured. */
  readonly agentIntervals: number
}

export type Bench = {
  readonly scale: Scale
  readonly scratch: Scratch
  readonly load: Load
  readonly signal: AbortSignal
  /** Everything opened for a line, kept for `verify`. */
  readonly stages: Stage[]
  readonly say: (line: string) => void
  readonly show: (row: Row) => void
}

export type Subject = {
  readonly what: string
  /** Made anew for each run, before its clock starts. */
  readonly work: () => Work | Promise<Work>
  readonly callers: number
  readonly stage: Stage
  /** Default: the stage's first. */
  readonly servers?: readonly Server[]
  /** Leases or calls that one call of the generator stands for. */
  readonly units?: number
}

export type Cpu = {
  readonly load: number
  readonly server: number | null
  readonly postgres: number | null
}

/** `p50` and `p99` are milliseconds of one call, `cpu` is in cores. */
export type Figures = {
  readonly what: string
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  readonly cpu: Cpu
}

/** A generator that meets no resistance would not stop: so many calls a second end a run early. */
const MOST_CALLS_PER_SECOND = 100_000
/** Of a run whose intervals are cut: for as many calls as in so long. */
const LONGEST_CUT_MS = 600_000

let runs = 0

export type Shape = {
  readonly warmUpMs: number
  /** Null: intervals are cut by `bench.load.cut`. */
  readonly intervalMs: number | null
  readonly intervals: number
}

export type Listening = {
  /** The warm-up is over. */
  readonly begun?: () => void
  readonly hear?: (interval: Interval, index: number) => void
}

function longest({ warmUpMs, intervalMs, intervals }: Shape): number {
  return intervalMs === null ? LONGEST_CUT_MS : warmUpMs + intervals * intervalMs
}

export async function run(
  bench: Bench,
  subject: Subject,
  shape: Shape,
  { begun, hear }: Listening = {},
): Promise<readonly Figures[]> {
  bench.signal.throwIfAborted()
  const { stage, units = 1 } = subject
  const servers = subject.servers ?? stage.servers.slice(0, 1)
  const work = await subject.work()
  const before = usage(bench, servers)
  let since = before
  const figures: Figures[] = []
  runs += 1
  const { acknowledged } = await bench.load.run(
    {
      work,
      callers: subject.callers,
      targets: servers.map((server) => server.target),
      name: `run-${runs}`,
      ...shape,
      mostCalls: (MOST_CALLS_PER_SECOND * longest(shape)) / 1_000,
    },
    {
      begun: () => {
        since = usage(bench, servers)
        begun?.()
      },
      interval: (interval) => {
        const now = usage(bench, servers)
        figures.push({
          what: subject.what,
          perSecond: interval.perSecond * units,
          p50: interval.p50,
          p99: interval.p99,
          cpu: { load: interval.cpu, ...between(since, now) },
        })
        since = now
        hear?.(interval, figures.length - 1)
      },
    },
  )
  stage.acknowledged += acknowledged
  return figures
}

/** A subject by itself for `beforeMs`, and then while something else happens, however long that takes. */
export async function runBeside<T>(
  bench: Bench,
  subject: Subject,
  { warmUpMs, beforeMs }: { readonly warmUpMs: number; readonly beforeMs: number },
  happen: () => Promise<T>,
): Promise<{ readonly before: Figures; readonly meanwhile: Figures; readonly happened: T }> {
  const begun = Promise.withResolvers<void>()
  const running = run(bench, subject, { warmUpMs, intervalMs: null, intervals: 2 }, { begun: begun.resolve })
  // A run that fails before it begins is heard of below.
  running.catch(begun.resolve)
  await begun.promise
  await delay(beforeMs, undefined, { signal: bench.signal })
  bench.load.cut()
  const [happened] = await Promise.allSettled([happen()])
  bench.load.cut()
  const [before, meanwhile] = await running
  if (happened.status === 'rejected') throw happened.reason
  if (before === undefined || meanwhile === undefined) throw new Error(`nothing came back: ${subject.what}`)
  return { before, meanwhile, happened: happened.value }
}

/** What servers and PostgreSQL use while something happens, in cores. */
export async function watchCpu<T>(
  bench: Bench,
  servers: readonly Server[],
  happen: () => Promise<T>,
): Promise<{ readonly happened: T; readonly cpu: Omit<Cpu, 'load'> }> {
  const before = usage(bench, servers)
  const happened = await happen()
  return { happened, cpu: between(before, usage(bench, servers)) }
}

/**
 * Figures of each subject, a run a round; round for round at the same index. Where there are several, one before them
 * is thrown away: a server that has just started compiles what it runs, and its first plans are made.
 */
export async function alternate(
  bench: Bench,
  subjects: readonly Subject[],
): Promise<readonly (readonly Figures[])[]> {
  const { scale } = bench
  const results: Figures[][] = subjects.map(() => [])
  const shape = { warmUpMs: scale.warmUpMs, intervalMs: scale.measureMs, intervals: 1 }
  for (let round = scale.rounds > 1 ? -1 : 0; round < scale.rounds; round += 1) {
    for (const [index, subject] of subjects.entries()) {
      const [figures] = await run(bench, subject, shape)
      if (figures === undefined) throw new Error(`nothing came back: ${subject.what}`)
      if (round >= 0) results[index]!.push(figures)
    }
  }
  return results
}

export function mid(rounds: readonly Figures[]): Figures {
  const of = (pick: (figures: Figures) => number) => median(rounds.map(pick))
  const orNull = (pick: (figures: Figures) => number | null) =>
    rounds.some((one) => pick(one) === null) ? null : of((one) => pick(one)!)
  return {
    what: rounds[0]!.what,
    perSecond: of((one) => one.perSecond),
    p50: of((one) => one.p50),
    p99: of((one) => one.p99),
    cpu: {
      load: of((one) => one.cpu.load),
      server: orNull((one) => one.cpu.server),
      postgres: orNull((one) => one.cpu.postgres),
    },
  }
}

/** A line of the table: a subject beside its floor. */
export function compare(
  line: string,
  rounds: readonly Figures[],
  floor?: {
    readonly rounds: readonly Figures[]
    readonly by?: 'rate' | 'p50' | 'p99'
    readonly goal?: { readonly least?: number; readonly most?: number }
  },
): Row {
  const figures = mid(rounds)
  if (floor === undefined) return { line, ...figures, floor: null, ratio: null, goal: null, reached: null }
  const by = floor.by ?? 'rate'
  const pick = (one: Figures) => (by === 'rate' ? one.perSecond : one[by])
  const ratio = median(rounds.map((one, round) => pick(one) / pick(floor.rounds[round]!)))
  const { least, most } = floor.goal ?? {}
  const beside = mid(floor.rounds)
  return {
    line,
    ...figures,
    floor: { what: beside.what, perSecond: beside.perSecond, p50: beside.p50 },
    ratio: { value: ratio, by },
    goal: least !== undefined ? { least } : most !== undefined ? { most } : null,
    reached: least !== undefined ? ratio >= least : most !== undefined ? ratio <= most : null,
  }
}

type Usage = {
  readonly at: number
  readonly server: number | undefined
  readonly postgres: number | undefined
}

function usage(bench: Bench, servers: readonly Server[]): Usage {
  const times = servers.map((server) => cpuMs(server.pid))
  return {
    at: performance.now(),
    server: times.includes(undefined) ? undefined : times.reduce<number>((sum, ms) => sum + ms!, 0),
    postgres: clusterCpuMs(bench.scratch.postmaster()),
  }
}

function between(before: Usage, after: Usage): Omit<Cpu, 'load'> {
  const cores = (from: number | undefined, to: number | undefined) =>
    from === undefined || to === undefined ? null : (to - from) / (after.at - before.at)
  return { server: cores(before.server, after.server), postgres: cores(before.postgres, after.postgres) }
}
