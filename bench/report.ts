/** What the bench prints: rows with their floors, for people and for programs. */
import { table } from '../src/cli/print.ts'
import type { Machine } from './machine.ts'
import type { Cpu } from './measure.ts'

export type Amount = {
  readonly value: number
  /** MB are 10^6 bytes. */
  readonly unit: 's' | 'ms' | 'MB' | 'cores' | 'bytes' | 'rows'
}

export type Row = {
  /** What `--only` calls it. */
  readonly line: string
  readonly what: string
  readonly perSecond: number | null
  /** What is no rate. */
  readonly amount?: Amount
  /** Milliseconds of one call; null where there are no calls. */
  readonly p50: number | null
  readonly p99: number | null
  readonly cpu: Cpu | null
  readonly floor: { readonly what: string; readonly perSecond: number; readonly p50: number | null } | null
  readonly ratio: { readonly value: number; readonly by: 'rate' | 'p50' | 'p99' } | null
  /** On the ratio, or on the rate or amount where there is no floor. */
  readonly goal: { readonly least?: number; readonly most?: number } | null
  readonly reached: boolean | null
  /** How it went on: what happened to the rate over a long run. */
  readonly course?: readonly { readonly at: string; readonly perSecond: number; readonly p99: number }[]
  /** What it is made of, or what belongs to it. */
  readonly parts?: readonly { readonly of: string; readonly amount: Amount }[]
  /** Sizes and memory, at start and end. */
  readonly sizes?: readonly { readonly of: string; readonly start: number; readonly end: number }[]
}

export type Report = {
  readonly quick: boolean
  readonly machine: Machine
  readonly generator: string
  readonly rows: readonly Row[]
  readonly verified: {
    readonly networks: number
    readonly events: number
    readonly findings: readonly string[]
  }
  readonly profile: readonly string[]
  readonly seconds: number
}

export const GENERATOR =
  'own process, raw sockets, one kept-alive HTTP/1.1 connection a caller, one call in flight on each'

const TITLES = [
  'LINE',
  'WHAT',
  'PER SECOND',
  'P50 MS',
  'P99 MS',
  'FLOOR',
  'PER SECOND',
  'P50 MS',
  'RATIO',
  'GOAL',
  '',
  'CPU',
]

export function people(report: Report): string {
  const { machine } = report
  const disk =
    machine.fdatasyncMs === null
      ? 'its disk is not ours to try'
      : `fdatasync of 8 kB ${ms(machine.fdatasyncMs.p50)} ms, p99 ${ms(machine.fdatasyncMs.p99)} ms (${machine.fileSystem})`
  return [
    table(TITLES, report.rows.map(cells)),
    '',
    ...report.rows.flatMap(more),
    `${machine.cpu}, ${machine.cores} cores shared by generator, server${machine.fileSystem === null ? '' : ' and PostgreSQL'}, ${machine.memoryGib} GiB, ${machine.system}`,
    `Node.js ${machine.node}, PostgreSQL ${machine.postgres}, ${disk}${machine.revision === null ? '' : `, ipledger ${machine.revision}`}`,
    `Load: ${GENERATOR}. CPU: cores used by generator / server / PostgreSQL.`,
    ...(report.quick
      ? ['Quick: each run is too short to be a figure, so none is held against its goal.']
      : []),
    ...report.profile.map((file) => `CPU profile: ${file}`),
    report.verified.findings.length === 0
      ? `verify: clean (${count(report.verified.networks)} networks, ${count(report.verified.events)} events)`
      : `verify: ${report.verified.findings.length} findings`,
    `${Math.round(report.seconds)} s`,
  ].join('\n')
}

export function cells(row: Row): readonly string[] {
  const { floor, ratio, goal, cpu } = row
  const unit = row.amount === undefined ? '' : ` ${row.amount.unit}`
  const sides =
    goal === null ? '' : `${goal.least !== undefined ? `≥ ${goal.least}` : `≤ ${goal.most}`}${unit}`
  return [
    row.line,
    row.what,
    row.amount !== undefined ? amount(row.amount) : row.perSecond === null ? '' : count(row.perSecond),
    ms(row.p50),
    ms(row.p99),
    floor?.what ?? '',
    floor === null ? '' : count(floor.perSecond),
    ms(floor?.p50 ?? null),
    ratio === null ? '' : `${ratio.value.toFixed(2)}${ratio.by === 'rate' ? '' : ` of ${ratio.by}`}`,
    sides,
    row.reached === null ? '' : row.reached ? 'reached' : 'missed',
    cpu === null ? '' : [cpu.load, cpu.server, cpu.postgres].map((one) => one?.toFixed(2) ?? '?').join(' / '),
  ]
}

function more(row: Row): readonly string[] {
  const course = (row.course ?? []).map(({ at, perSecond, p99 }) => [at, count(perSecond), ms(p99)])
  const parts = (row.parts ?? []).map(({ of, amount: part }) => [of, amount(part)])
  const sizes = (row.sizes ?? []).map(({ of, start, end }) => [of, mib(start), mib(end)])
  return [
    ...(course.length === 0 ? [] : [row.what, table(['', 'PER SECOND', 'P99 MS'], course), '']),
    ...(parts.length === 0 ? [] : [row.what, table(['', 'OF THIS'], parts), '']),
    ...(sizes.length === 0 ? [] : [row.what, table(['MIB', 'START', 'END'], sizes), '']),
  ]
}

export function amount({ value, unit }: Amount): string {
  const digits = unit === 'cores' ? 3 : unit === 's' ? 2 : unit === 'ms' && value < 100 ? 2 : 0
  return `${value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`
}

export function count(value: number | null): string {
  if (value === null) return ''
  return Math.round(value).toLocaleString('en-US')
}

function ms(value: number | null): string {
  if (value === null || Number.isNaN(value)) return ''
  return value >= 100 ? value.toFixed(0) : value.toFixed(2)
}

function mib(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1)
}
