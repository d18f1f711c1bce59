/** The dashboards name only what is there: metrics that are exposed, dashboards that links lead to, and variables of these. */
import { describe, expect, test } from 'vitest'
import { EXPOSED } from '../support/exposed.ts'
import { linksOf, panelsOf, readDashboards } from '../support/grafana.ts'

const dashboards = readDashboards()
const byUid = new Map([...dashboards.values()].map((dashboard) => [dashboard.uid, dashboard]))

describe.each([...dashboards])('%s', (_, dashboard) => {
  const panels = panelsOf(dashboard)

  test('every link leads to a dashboard that has the variables it sets', () => {
    for (const { title, url } of panels.flatMap(linksOf)) {
      const [, uid, query] = /^\/d\/([\w-]+)\?(.+)$/.exec(url) ?? []
      const names = byUid.get(uid ?? '')?.templating.list.map(({ name }) => name)
      for (const [, set, same] of query!.matchAll(/var-(\w+)=|\$\{(\w+):queryparam\}/g))
        expect(names, title).toContain(set ?? same)
    }
  })

  test('PromQL reads metrics that are exposed', () => {
    for (const expr of panels.flatMap(({ targets }) => targets!.flatMap((one) => one.expr ?? []))) {
      const metrics = expr.match(/\b((ipledger|nodejs|process)_\w+|rpc_\w+_(count|sum|bucket))/g)
      expect(metrics, expr).not.toBeNull()
      expect(metrics!.filter((name) => !EXPOSED.has(name))).toEqual([])
    }
  })
})
