/** Alerts, their pages and their cases: none without the others. And the command line knows each command of a page. */
import { expect, test } from 'vitest'
import { complaints, filledCommand, readAlerts, readCases, readPages } from '../support/runbooks.ts'

const pages = readPages()
const VALUES = {
  network: 'default',
  pool: 'web',
  source: 'agent-1',
  address: '10.0.0.2',
  lease: 'default/42',
  version: '57',
  node: 'node-1',
  head: '4711',
  range: '10.0.0.128/25',
}

test('each alert has a page, and a case in which it fires and one in which it does not', () => {
  const alerts = readAlerts()
  const names = alerts.map(({ alert }) => alert).sort()
  const cases = Object.groupBy(readCases(), ({ exp_alerts }) => (exp_alerts.length > 0 ? 'fires' : 'quiet'))
  for (const some of [cases.fires, cases.quiet])
    expect([...new Set(some!.map(({ alertname }) => alertname))].sort()).toEqual(names)
  const linked = alerts.map(({ annotations }) => annotations.runbook_url.split('}}/')[1])
  expect(['README.md', ...linked].sort()).toEqual(pages.map(({ name }) => name))
})

test.each(pages.flatMap(({ name, commands }) => commands.map((command) => [name, command] as const)))(
  '%s: %s',
  (_, command) => {
    expect(complaints(filledCommand(command, VALUES))).toEqual([])
  },
)
