import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { EXPOSED, OF_THE_SCRAPE } from '../support/exposed.ts'
import {
  type DashboardJson,
  labelsOf,
  linksOf,
  metricsOf,
  panelsOf,
  readDashboards,
} from '../support/grafana.ts'
import { ROOT } from '../support/root.ts'

const dashboards = readDashboards()
const byUid = new Map([...dashboards.values()].map((dashboard) => [dashboard.uid, dashboard]))

const provisioned = readFileSync(new URL('ops/grafana/provisioning/datasources/ipledger.yaml', ROOT), 'utf8')
const sources = new Set([...provisioned.matchAll(/^ +uid: (\S+)$/gm)].map(([, uid]) => uid!))

test('there are five, and each has a uid of its own', () => {
  expect([...dashboards.keys()]).toEqual(['address', 'overview', 'pool', 'service', 'sources'])
  expect(byUid.size).toBe(5)
})

test('the auditor is who asks PostgreSQL, and no password is written down', () => {
  expect(provisioned).toMatch(/^ +user: ipledger_auditor$/m)
  expect(provisioned).toMatch(/^ +password: \$\{IPLEDGER_AUDITOR_PASSWORD\}$/m)
})

/** Everything that stands somewhere in a dashboard, as text. */
function texts(dashboard: DashboardJson): string {
  return JSON.stringify([dashboard.panels, dashboard.annotations, dashboard.templating])
}

describe.each([...dashboards])('%s', (_, dashboard) => {
  const panels = panelsOf(dashboard)

  test.each(panels.map((panel) => [panel.title, panel] as const))('%s', (_, panel) => {
    expect(panel.description, 'what it shows, what is normal, what to do').toMatch(
      /^\S.+\.\n\n\*\*Normal:\*\* \S.+\.\n\n\*\*What to do:\*\* \S.+\.$/s,
    )
    expect(panel.fieldConfig!.defaults.unit, 'a unit').toMatch(/^\w+$/)
    const { steps } = panel.fieldConfig!.defaults.thresholds ?? { steps: [] }
    const limits = steps.flatMap(({ value }) => (value === null ? [] : [value]))
    expect(limits, 'thresholds rise').toEqual(limits.toSorted((a, b) => a - b))
    expect(sources, 'a data source that is provisioned').toContain(panel.datasource!.uid)
    expect(panel.targets!.length).toBeGreaterThan(0)
    const refs = panel.targets!.map(({ refId }) => refId)
    expect(new Set(refs).size).toBe(refs.length)
    for (const { datasource, rawSql, expr } of panel.targets!) {
      expect(datasource.uid).toBe(panel.datasource!.uid)
      expect(rawSql !== undefined).toBe(datasource.uid === 'ipledger-postgresql')
      expect(expr !== undefined).toBe(datasource.uid === 'ipledger-prometheus')
    }
  })

  test('every variable that is used is there, and every one that is there is used', () => {
    const names = dashboard.templating.list.map(({ name }) => name)
    const used = [...texts(dashboard).matchAll(/\$\{([a-z]\w*)(?::\w+)?\}/g)].map(([, name]) => name!)
    expect(used.filter((name) => !names.includes(name))).toEqual([])
    // Those of dashboards that show nothing but Prometheus choose the marks.
    expect(names.filter((name) => !used.includes(name))).toEqual([])
  })

  test('every link leads to a dashboard that has the variables it sets', () => {
    for (const panel of panels) {
      for (const { title, url } of linksOf(panel)) {
        const [, uid, query] = /^\/d\/([\w-]+)\?(.+)$/.exec(url) ?? []
        const target = byUid.get(uid ?? '')
        expect(target, `${panel.title}: ${title}`).toBeDefined()
        const names = target!.templating.list.map(({ name }) => name)
        for (const [, set, same] of query!.matchAll(/var-(\w+)=|\$\{(\w+):queryparam\}/g)) {
          expect(names).toContain(set ?? same)
        }
        expect(query, 'with the time that is shown').toContain(`\${__url_time_range}`)
      }
    }
  })

  test('PromQL reads metrics that are exposed, and labels that these have', () => {
    for (const { targets } of panels) {
      for (const { expr } of targets!) {
        if (expr === undefined) continue
        const named = metricsOf(expr)
        expect(named.length, expr).toBeGreaterThan(0)
        const described = named.map((name) => {
          const found = EXPOSED.get(name)
          expect(found, `${name} is exposed`).toBeDefined()
          return found!
        })
        const labels = new Set([...OF_THE_SCRAPE, ...described.flat()])
        for (const label of labelsOf(expr)) expect(labels, expr).toContain(label)
        // In quotes the `\\.` that a dot of a name becomes is no escape, and an error.
        expect(expr, 'a variable stands in backticks').not.toMatch(/"[^"`]*\$\{/)
      }
    }
  })
})
