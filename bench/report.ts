/** What the bench prints: rows with their floors. */
import { cpus, release } from 'node:os'
import type { Row } from './measure.ts'

function isMet({ value, ratio, goal }: Row): boolean | null {
  if (goal === null) return null
  const judged = goal.isOfValue === true || ratio === null ? value : ratio
  return (
    judged >= (goal.least ?? Number.NEGATIVE_INFINITY) && judged <= (goal.most ?? Number.POSITIVE_INFINITY)
  )
}

const TITLES = ['LINE', 'WHAT', 'MEASURED', 'P50 MS', 'P99 MS', 'FLOOR', '', 'RATIO', 'GOAL', 'MET', 'CORES']

export function people(rows: readonly Row[], isQuick: boolean): string {
  const lines = [TITLES, ...rows.map((row) => cells(row, isQuick))]
  const widths = TITLES.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)))
  return [
    ...lines.map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    ),
    '',
    `${cpus()[0]?.model}, ${cpus().length} cores shared by callers, services and PostgreSQL; Linux ${release()}; Node.js ${process.version}.`,
    'CORES: callers / services / PostgreSQL.',
    ...(isQuick ? ['Quick: too short to be figures, so none is held against its goal.'] : []),
  ].join('\n')
}

function cells(row: Row, isQuick: boolean): readonly string[] {
  const { line, what, value, unit, figures, floor, ratio, goal } = row
  const met = isQuick ? null : isMet(row)
  return [
    line,
    what,
    `${number(value)} ${unit}`,
    figures === null ? '' : number(figures.p50),
    figures === null ? '' : number(figures.p99),
    floor?.what ?? '',
    floor === null ? '' : number(floor.value),
    ratio === null ? '' : ratio.toFixed(2),
    goal === null ? '' : goal.least !== undefined ? `≥ ${number(goal.least)}` : `≤ ${number(goal.most!)}`,
    met === null ? '' : met ? 'yes' : 'NO',
    figures === null
      ? ''
      : [figures.cpu, figures.services, figures.postgres].map((one) => one.toFixed(2)).join(' / '),
  ]
}

export function number(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}
