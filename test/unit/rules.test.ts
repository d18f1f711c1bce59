/**
 * The alert rules name series and labels that `/metrics` has, and so do the cases that try them: promtool knows neither, and
 * tries a rule by a label that nothing has on series that nobody exposes.
 */
import { describe, expect, test } from 'vitest'
import { STUCK_CODES } from '../../src/cli/stuck.ts'
import { EXPOSED, OF_THE_SCRAPE } from '../support/exposed.ts'
import { labelsOf, metricsOf } from '../support/grafana.ts'
import { readCaseSeries, readRules } from '../support/runbooks.ts'

const rules = readRules()
/** What a recorded series has is what it is grouped by; its name says it first. */
const RECORDED = new Map(
  rules.flatMap(({ kind, name, expr }) => (kind === 'record' ? [[name, groupedBy(expr)] as const] : [])),
)
const UP = new Map([['up', []]])
const series = (name: string): readonly string[] | undefined =>
  EXPOSED.get(name) ?? RECORDED.get(name) ?? UP.get(name)

/** Of the outermost aggregation. */
function groupedBy(expr: string): readonly string[] {
  const [, labels = ''] = /^\w+ by \(([^)]*)\)/.exec(expr.trim()) ?? []
  return labels.split(', ')
}

/** Each metric with the labels that choose from it: `name{a="b"}`. */
function selectors(expr: string): readonly (readonly [name: string, labels: readonly string[]])[] {
  const bare = expr.replaceAll(/"[^"]*"/g, '""')
  return [...bare.matchAll(/([a-zA-Z_:]\w*(?::\w+)*)(\{[^}]*\})/g)].map(
    ([, name, chosen]) => [name!, labelsOf(chosen!)] as const,
  )
}

test('a recorded series is named after what it is grouped by', () => {
  expect(RECORDED.size).toBeGreaterThan(3)
  for (const [name, labels] of RECORDED) expect(name.split(':')[0], name).toBe(labels.join('_'))
})

describe.each(rules.map((rule) => [rule.name, rule] as const))('%s', (_, { expr, told }) => {
  const named = metricsOf(expr)

  test('reads series that are exposed, by labels that these have', () => {
    expect(named.length).toBeGreaterThan(0)
    for (const name of named) expect(series(name), name).toBeDefined()
    for (const [name, labels] of selectors(expr)) {
      for (const label of labels) expect([...OF_THE_SCRAPE, ...series(name)!], name).toContain(label)
    }
    const some = new Set(named.flatMap((name) => series(name)!))
    for (const label of labelsOf(expr)) expect([...OF_THE_SCRAPE, ...some]).toContain(label)
  })

  test('tells of labels that are left', () => {
    const aggregates = /\b(sum|max|min|avg|count|histogram_quantile)\b/.test(expr)
    const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list]) => list!.split(', '))
    const left = aggregates ? grouped : [...OF_THE_SCRAPE, ...named.flatMap((name) => series(name)!)]
    for (const label of told) expect(left).toContain(label)
  })
})

/** What the alert about everything else leaves out, and who tells of it instead. */
const TOLD_BY: Readonly<Record<string, string | null>> = {
  FENCE_CONTRADICTED: 'IpledgerFenceContradicted',
  HELD: 'IpledgerReconciliationHeld',
  BOOKS_DIFFER: 'IpledgerVerifyFailed',
  SOURCE_SILENT: 'IpledgerSourceSilent',
  LOOKUP_FAILING: 'IpledgerLookupsFailing',
  LOOKUP_WAITING: 'IpledgerLookupsFailing',
  NETWORK_RECOVERING: 'IpledgerNetworkNotReady',
  NETWORK_REBUILDING: 'IpledgerNetworkNotReady',
  OLD_TRANSACTION: 'IpledgerOldTransaction',
  // Until an admin enables it, or retires it: a dry run may take as long as one likes.
  SOURCE_NOT_ENABLED: null,
}

test('whatever waits for a person is told of by some alert', () => {
  const { expr } = rules.find(({ name }) => name === 'IpledgerStuck')!
  const leftOut = new RegExp(`^(?:${/code!~"([^"]+)"/.exec(expr)![1]})$`)
  expect(
    Object.keys(STUCK_CODES)
      .filter((code) => leftOut.test(code))
      .sort(),
  ).toEqual(Object.keys(TOLD_BY).sort())
  for (const alert of Object.values(TOLD_BY)) {
    if (alert !== null) expect(rules.map(({ name }) => name)).toContain(alert)
  }
  expect(rules.find(({ name }) => name === TOLD_BY.LOOKUP_WAITING)!.expr).toContain('LOOKUP_WAITING')
})

test('cases try series as they are exposed', () => {
  const tried = readCaseSeries()
  expect(tried.length).toBeGreaterThan(80)
  for (const text of tried) {
    const name = /^[\w:]+/.exec(text)![0]
    expect(series(name), text).toBeDefined()
    for (const label of labelsOf(text)) expect([...OF_THE_SCRAPE, ...series(name)!], text).toContain(label)
  }
})
