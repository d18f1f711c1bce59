/** Every query of every dashboard on a network that has lived a day: it runs with the auditor's rights and settings, and finds something. */
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { QUARANTINE_REASONS } from '../../src/core/event.ts'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { command, enable, network, register } from '../core/given.ts'
import { useOwnDatabase, useTestDatabase, withClient } from '../support/database.ts'
import {
  CHOSEN,
  DAY_NETWORK,
  type DayOfLife,
  LOOPING,
  LOST_NODE,
  liveADay,
  SILENT_SOURCE,
  STORIED_OWNERS,
} from '../support/day-of-life.ts'
import {
  type DashboardJson,
  intervalOf,
  linksOf,
  type PanelJson,
  panelsOf,
  readDashboards,
  type Values,
  withMacros,
  withVariables,
} from '../support/grafana.ts'
import { NETWORK, played, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const dashboards = readDashboards()

let day: DayOfLife
let auditor: pg.Client

beforeAll(async () => {
  day = await withClient(database.adminUrl, liveADay)
  auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test dashboards' })
})
afterAll(() => auditor?.end())

const TEXT = [25, 1043]
const TIME = [1184]
const NUMBER = [20, 21, 23, 700, 701, 1700]
const BOOLEAN = [16]
/** What Grafana's data source has a type of its own for. */
const KNOWN = [...TEXT, ...TIME, ...NUMBER, ...BOOLEAN]

type Answer = {
  readonly rows: readonly Readonly<Record<string, unknown>>[]
  readonly types: ReadonlyMap<string, number>
}

async function ask(text: string, values: Values, points?: number): Promise<Answer> {
  const range = { from: day.from, to: day.to, intervalMs: intervalOf(day, points) }
  const { rows, fields } = await auditor.query(withMacros(withVariables(text, values), range))
  expect(rows.length, 'rows that a browser can hold').toBeLessThanOrEqual(20_000)
  const types = new Map(fields.map(({ name, dataTypeID }) => [name, dataTypeID]))
  expect(types.size, 'columns have names of their own').toBe(fields.length)
  return { rows, types }
}

function columns({ types }: Answer, wanted: readonly number[]): readonly string[] {
  return [...types].flatMap(([name, type]) => (wanted.includes(type) ? [name] : []))
}

/** In the order of time, each time once a series: Grafana makes no wide frame of anything else. */
function expectInTime({ rows }: Answer, by: readonly string[]): void {
  const times = rows.map(({ time }) => Number(time))
  expect(times.every(Number.isFinite), 'every row has a time').toBe(true)
  expect(times, 'in the order of time').toEqual(times.toSorted((a, b) => a - b))
  const keys = rows.map((row) => [row.time, ...by.map((name) => row[name])].join('|'))
  expect(new Set(keys).size, 'one row a time and series').toBe(keys.length)
}

function expectDrawable({ type, transformations = [] }: PanelJson, answer: Answer): void {
  for (const [name, of] of answer.types) expect(KNOWN, `type of ${name}`).toContain(of)
  if (type === 'timeseries') expectInTime(answer, columns(answer, TEXT))
  if (type === 'state-timeline')
    expectInTime(
      answer,
      transformations.flatMap(({ options }) => options.fields),
    )
  if (type === 'stat') expect(answer.rows).toHaveLength(1)
}

function expectLinked(panel: PanelJson, { types }: Answer): void {
  for (const { url } of linksOf(panel)) {
    for (const [, field] of url.matchAll(/__data\.fields\.(\w+)/g)) {
      expect([...types.keys()], `${url} reads a column`).toContain(field)
    }
  }
}

describe.each([...dashboards])('%s', (name, dashboard: DashboardJson) => {
  const chosen = CHOSEN[name]!

  const asked = panelsOf(dashboard).flatMap((panel) =>
    (panel.targets ?? []).flatMap(({ rawSql, refId }) =>
      rawSql === undefined ? [] : [[`${panel.title} (${panel.id}${refId})`, panel, rawSql] as const],
    ),
  )

  test.each(asked)('%s', async (_, panel, rawSql) => {
    const answer = await ask(rawSql, chosen, panel.maxDataPoints)
    expect(answer.rows.length, 'rows of the day').toBeGreaterThan(0)
    expectDrawable(panel, answer)
    expectLinked(panel, answer)
  })

  const queried = dashboard.templating.list.filter(
    ({ type, datasource }) => type === 'query' && datasource?.uid === 'ipledger-postgresql',
  )
  test.each(queried.map((variable) => [variable.name, variable] as const))(
    'variable %s offers what was chosen',
    async (variable, { query }) => {
      const { rows } = await ask(query!, chosen)
      const offered = rows.map((row) => Object.values(row)[0])
      expect(offered).toEqual(expect.arrayContaining([chosen[variable]!].flat()))
    },
  )

  test('a choice of nothing is no error', async () => {
    const nothing = Object.fromEntries(
      dashboard.templating.list.map(({ name: variable, multi, type }) => [
        variable,
        multi ? [] : type === 'textbox' ? '' : 'nothing',
      ]),
    )
    for (const [, , rawSql] of asked) await ask(rawSql, nothing)
  })

  test.each(dashboard.annotations.list.map((mark) => [mark.name, mark] as const))(
    'marks: %s',
    async (_, { target }) => {
      const answer = await ask(target.rawSql!, chosen)
      expect([...answer.types.keys()]).toEqual(['time', 'text', 'tags'])
      expect([...answer.types.values()]).toEqual([...TIME, 25, 25])
      expect(answer.rows.length).toBeGreaterThan(0)
      for (const { text } of answer.rows) expect(text).toMatch(/\w+ .*\w/)
    },
  )
})

/** What a panel shows. */
async function shown(name: string, title: string, values: Values = CHOSEN[name]!): Promise<Answer['rows']> {
  const panel = panelsOf(dashboards.get(name)!).find((one) => one.title === title)
  if (panel === undefined) throw new Error(`${name} has no panel ${title}`)
  return (await ask(panel.targets![0]!.rawSql!, values, panel.maxDataPoints)).rows
}

test('the day has every cause of a reap and every reason of a quarantine', async () => {
  const causes = (await shown('overview', 'Reaps by cause')).map(({ metric }) => metric)
  expect(new Set(causes)).toEqual(new Set(['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'Reap']))
  const { rows } = await auditor.query<{ reason: string }>(
    `select distinct quarantine_reason as reason from event where network = $1 and type = 'lease.quarantined'`,
    [DAY_NETWORK],
  )
  expect(rows.map(({ reason }) => reason).sort()).toEqual([...QUARANTINE_REASONS].sort())
})

test('the timeline of the storied address names its holders in turn, with gaps between them', async () => {
  const rows = await shown('address', 'Holders and states')
  const [first, second, third] = STORIED_OWNERS.map((owner) => `${owner} 1`)
  expect(rows.map(({ holder }) => holder)).toEqual([first, null, second, null, third, third])
  expect(rows.at(-1)!.state).toBe('QUARANTINED CONFLICT')
})

test('its timeline begins with who held it before the time range', async () => {
  const whole = day
  day = { ...day, from: new Date(day.to.getTime() - 3_600_000) }
  onTestFinished(() => {
    day = whole
  })
  const rows = await shown('address', 'Holders and states')
  expect(rows).toMatchObject([{ holder: `${STORIED_OWNERS[2]} 1`, state: 'QUARANTINED CONFLICT' }])
  expect(Number(rows[0]!.time)).toBe(day.from.getTime())
})

test('the hold, the silent source and the crash loop are named', async () => {
  expect(await shown('sources', 'Holds')).toMatchObject([{ hold: 'TOO_MANY_REAPS', until: null }])
  expect(await shown('sources', 'Silent')).toEqual([{ silent: 2 }])
  expect(await shown('sources', 'Partial')).toEqual([{ partial: 1 }])
  const bySilence = await shown('sources', 'Sources, the longest silent first')
  expect(bySilence.slice(0, 3).map(({ source }) => source)).toEqual(['dry-run', LOST_NODE, SILENT_SOURCE])
  const codes = (await shown('sources', 'Attention, the worst first')).map(({ code }) => code)
  expect(codes).toEqual(expect.arrayContaining(['HELD', 'SOURCE_SILENT', 'LOOKUP_FAILING']))
  expect(await shown('overview', 'Crash loops')).toMatchObject([{ owner: LOOPING, lives: 6, pool: 'web' }])
})

test('a recovery names the sources that it waits for, also those that are not registered', async () => {
  const other = await useOwnDatabase()
  const ofTheDay = auditor
  const scene = played(
    network,
    register('heard-before'),
    enable('heard-before'),
    command({ type: 'beginEra', above: 4, recovering: true, why: 'restored' }),
    ...['b', 'a'].map((source) => command({ type: 'unknownSource', source })),
  )
  onTestFinished(() => {
    auditor = ofTheDay
  })
  await withClient(other.adminUrl, (admin) => storeScene(admin, scene))
  auditor = await connectUnchecked({ url: other.auditorUrl, applicationName: 'test dashboards' })
  const rows = await shown('sources', 'Eras and recovery', { network: [NETWORK], source: [] })
  await auditor.end()
  expect(rows).toMatchObject([{ state: 'RECOVERING', sources: 'heard-before', unknown: 'a, b' }])
})
