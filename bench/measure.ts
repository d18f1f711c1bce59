/**
 * How a figure is made. The machine is shared and noisy, so a line and its floor run in turn, several short runs each (floor,
 * line, floor, line, …): the ratio is the median of those of each turn, the figures shown are medians.
 */
import type { Floor } from './floors.ts'
import type { History } from './history.ts'
import type { Load, Measured, Shape, Through, Work } from './load.ts'
import type { Scratch, ScratchDatabase } from './scratch.ts'
import type { Service } from './service.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

export type Scale = Shape & {
  /** Runs of a line and of its floor. */
  readonly rounds: number
  /** Reserves of any past at most. */
  readonly reserves: number
  /** Of the log that counts as old. */
  readonly oldEvents: number
  readonly oldLeases: number
  readonly images: readonly number[]
  /** A transaction is held open for so long. */
  readonly heldOpenMs: number
  /** Entries of a snapshot, and leases that it is held against. */
  readonly listed: number
  readonly agents: number
  readonly agentIntervalMs: number
  readonly watches: number
  readonly watchedPerSecond: number
  readonly watchedMs: number
  /** Reserves at once. */
  readonly burst: number
  /** Attachments of a run. */
  readonly adds: number
}

/** A database, and what calls it. */
export type Stage = {
  readonly database: ScratchDatabase
  /** Made with this past, once a database. */
  network(history: History): Promise<void>
  /** So many services. */
  through(
    processes: number,
    /** The first does the background jobs, too. */
    worker?: boolean,
  ): Promise<{ readonly through: readonly Through[]; readonly pids: readonly number[] }>
}

export type Bench = {
  readonly scale: Scale
  readonly scratch: Scratch
  /** One database a name. */
  stage(name: string): Promise<Stage>
  /** The process of callers with this number; started when first asked for. */
  load(index: number): Load
  /** A server that is a floor; started when first asked for. */
  server(floor: Floor): Promise<Service>
  /** The table of the floor. */
  readonly floor: Through
  readonly rows: readonly Row[]
  readonly show: (row: Row) => void
}

export type Subject = {
  readonly what: string
  /** The table's is an INSERT, whatever is named here. */
  readonly work: Work
  readonly callers: number
  /** Each has a process of callers, which share the callers. */
  readonly through: readonly Through[]
  readonly network?: string
  /** What one call stands for. */
  readonly units?: number
  /** Processes of services, whose processor time is shown. */
  readonly pids?: readonly number[]
}

export type Row = {
  readonly line: string
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly figures: Figures | null
  readonly floor: { readonly what: string; readonly value: number } | null
  /** To the floor. */
  readonly ratio: number | null
  /** Of the ratio where there is a floor, else of the value. */
  readonly goal: { readonly least?: number; readonly most?: number; readonly isOfValue?: boolean } | null
}

export type Figures = Measured & {
  /** In cores. */
  readonly services: number
  readonly postgres: number
}

/** One run; what several processes of callers did is added up. */
export async function run(
  bench: Bench,
  { work, callers, through, network = '', units = 1, pids = [] }: Subject,
  { warmUpMs, measureMs }: Shape = bench.scale,
): Promise<Figures> {
  const usage = () => ({
    at: performance.now(),
    services: pids.reduce((sum, pid) => sum + cpuMs(pid), 0),
    postgres: clusterCpuMs(bench.scratch.postmaster()),
  })
  let before = usage()
  const share = { network, work, callers: Math.ceil(callers / through.length), warmUpMs, measureMs }
  const all = await Promise.all(
    through.map((one, index) =>
      bench.load(index).run({ ...share, through: one }, () => {
        before = usage()
      }),
    ),
  )
  const after = usage()
  const ms = after.at - before.at
  const sum = (pick: (measured: Measured) => number) => all.reduce((total, one) => total + pick(one), 0)
  return {
    perSecond: sum((one) => one.perSecond) * units,
    p50: sum((one) => one.p50) / all.length,
    p99: Math.max(...all.map((one) => one.p99)),
    cpu: sum((one) => one.cpu),
    services: (after.services - before.services) / ms,
    postgres: (after.postgres - before.postgres) / ms,
  }
}

/** Figures of each subject, a run a round; the round before the first is thrown away, since it compiles and makes plans. */
export async function alternate(
  bench: Bench,
  subjects: readonly Subject[],
): Promise<readonly (readonly Figures[])[]> {
  const { rounds, warmUpMs, measureMs } = bench.scale
  const results: Figures[][] = subjects.map(() => [])
  for (let round = rounds > 1 ? -1 : 0; round < rounds; round += 1) {
    for (const [index, subject] of subjects.entries()) {
      const figures = await run(bench, subject, {
        warmUpMs,
        measureMs: round < 0 ? measureMs / 3 : measureMs,
      })
      if (round >= 0) results[index]!.push(figures)
    }
  }
  return results
}

/** Medians throughout: one run in which the machine did something else must not count. */
function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.ceil(values.length / 2) - 1]!
}

function mid(rounds: readonly Figures[]): Figures {
  const of = (pick: (figures: Figures) => number) => median(rounds.map(pick))
  return {
    perSecond: of((one) => one.perSecond),
    p50: of((one) => one.p50),
    p99: of((one) => one.p99),
    cpu: of((one) => one.cpu),
    services: of((one) => one.services),
    postgres: of((one) => one.postgres),
  }
}

/** A line of the table: a subject beside its floor. */
export function compare(
  line: string,
  { what }: Subject,
  rounds: readonly Figures[],
  options: {
    readonly floor: { readonly subject: Subject; readonly rounds: readonly Figures[] }
    readonly by?: 'rate' | 'p50'
    readonly goal: Row['goal']
  },
): Row {
  const { floor, by = 'rate', goal } = options
  const pick = (one: Figures) => (by === 'rate' ? one.perSecond : one.p50)
  const unit = by === 'rate' ? '/s' : 'ms'
  const figures = mid(rounds)
  return {
    line,
    what,
    value: pick(figures),
    unit,
    figures,
    floor: { what: floor.subject.what, value: pick(mid(floor.rounds)) },
    ratio: median(rounds.map((one, round) => pick(one) / pick(floor.rounds[round]!))),
    goal,
  }
}

/** A figure that is no rate. */
export function amount(
  line: string,
  what: string,
  value: number,
  unit: string,
  goal: Row['goal'] = null,
): Row {
  return { line, what, value, unit, figures: null, floor: null, ratio: null, goal }
}
