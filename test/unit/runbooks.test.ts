/** Alerts and their pages: none without the other, and nothing in a page that the command line does not know. */
import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { complaints, filledCommand, readAlertCases, readAlerts, readPages } from '../support/runbooks.ts'

const alerts = readAlerts()
const pages = readPages()
const SECTIONS = ['What it means', 'What to look at', 'What to do', 'What not to do', 'When it is over']
const VALUES = {
  network: 'default',
  pool: 'web',
  source: 'agent-1',
  address: '10.0.0.2',
  lease: 'default/42',
  node: 'node-1',
  head: '4711',
  range: '10.0.0.128/25',
}

test('each alert has a severity, a sentence, a description and a page of its own name', () => {
  expect(alerts.length).toBeGreaterThan(20)
  expect(new Set(alerts.map(({ name }) => name)).size).toBe(alerts.length)
  for (const { name, severity, summary, description, runbook: file } of alerts) {
    const runbook = `ops/runbooks/${file}`
    expect(['page', 'ticket'], name).toContain(severity)
    expect(summary, name).toMatch(/\.'?$/)
    expect(description, name).toMatch(/\.'?$/)
    const words = name.replace(/^Ipledger/, '').replaceAll(/(?<=[a-z])(?=[A-Z])/g, '-')
    expect(runbook).toBe(`ops/runbooks/${words.toLowerCase()}.md`)
    const page = pages.find(({ path }) => path === runbook)
    expect(page?.text, runbook).toContain(`\n\`${name}\` · ${severity}\n`)
    expect([...page!.text.matchAll(/^## (.+)$/gm)].map(([, title]) => title)).toEqual(SECTIONS)
    expect(
      page!.statements.length + page!.commands.length,
      `${runbook} says what to look at`,
    ).toBeGreaterThan(0)
  }
})

test('each page is of an alert, but for the one about all', () => {
  const others = pages.filter(({ path }) => alerts.every(({ runbook }) => `ops/runbooks/${runbook}` !== path))
  expect(others.map(({ path }) => path)).toEqual(['ops/runbooks/README.md'])
})

test('each alert has a case in which it fires, and one just below in which it does not', () => {
  const cases = readAlertCases()
  const names = alerts.map(({ name }) => name).sort()
  const tried = (fires: boolean) => [
    ...new Set(cases.filter((one) => one.fires === fires).map(({ alert }) => alert)),
  ]
  expect(tried(true).sort()).toEqual(names)
  expect(tried(false).sort()).toEqual(names)
})

test.each(pages.flatMap(({ path, commands }) => commands.map((command) => [path, command] as const)))(
  '%s: %s',
  (_, command) => {
    expect(complaints(filledCommand(command, VALUES))).toEqual([])
  },
)

test('links lead somewhere', () => {
  for (const { path, text } of pages) {
    for (const [, target] of text.matchAll(/\]\(([^)#]+)\)/g)) {
      if (target!.startsWith('https://')) continue
      const url = new URL(target!, new URL(path, ROOT))
      expect(existsSync(url), `${path}: ${target}`).toBe(true)
    }
  }
})
