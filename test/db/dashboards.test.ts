/**
 * Every query of every dashboard on a database that has lived a day: it runs with the auditor's rights and settings, and answers
 * what its panel can draw.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { QUARANTINE_REASONS } from '../../src/core/lease.ts'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { useServer } from '../api/running.ts'
import {
  DAY_NETWORK,
  type DayOfLife,
  EDGE_NETWORK,
  FULL_POOL,
  GHOST,
  HANDED,
  HANDED_ADDRESS,
  LOOPING,
  liveADay,
  STORIED_ADDRESS,
  STORIED_OWNERS,
} from '../support/day-of-life.ts'
import { drawCells, drawRows, drawSeries, drawTimeline, type Mark, picture } from '../support/draw.ts'
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

const running = await useServer()
const dashboards = readDashboards()

let day: DayOfLife
let auditor: pg.Client

beforeAll(async () => {
  day = await liveADay(running)
  auditor = await connectUnchecked({
    url: running.database.auditorUrl,
    applicationName: 'test dashboards',
  })
}, 120_000)
afterAll(() => auditor?.end())

/** What a person chose, or a link: everything where several may be chosen. */
const CHOSEN: Readonly<Record<string, Values>> = {
  overview: { network: [DAY_NETWORK, EDGE_NETWORK] },
  pool: { network: DAY_NETWORK, pool: 'web' },
  address: { network: DAY_NETWORK, address: STORIED_ADDRESS, owner: '', lease: '' },
  sources: {
    network: [DAY_NETWORK, EDGE_NETWORK],
    source: ['edge-1', ...[1, 2, 3, 4, 5, 6, 7].map((n) => `node-${n}`)],
  },
  service: { network: [DAY_NETWORK, EDGE_NETWORK] },
}

/** What no day can have, and why. */
const EMPTY: ReadonlyMap<string, string> = new Map()

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

function expectDrawable(panel: PanelJson, answer: Answer): void {
  const { types } = answer
  for (const [name, type] of types) expect(KNOWN, `type of ${name}`).toContain(type)
  switch (panel.type) {
    case 'timeseries': {
      expect(panel.targets!.every(({ format }) => format === 'time_series')).toBe(true)
      expect([...TIME, ...NUMBER]).toContain(types.get('time'))
      const texts = columns(answer, TEXT)
      expect(['', 'metric'], 'the only text names the series').toContain(texts.join())
      expect(columns(answer, NUMBER).filter((name) => name !== 'time').length).toBeGreaterThan(0)
      expectInTime(answer, texts)
      return
    }
    case 'state-timeline': {
      const [partition] = panel.transformations!.map(({ options }) => options.fields[0]!)
      expect(TIME).toContain(types.get('time'))
      expect(columns(answer, TEXT)).toContain(partition)
      expect(columns(answer, TEXT).length, 'a text to show').toBeGreaterThan(1)
      expect(columns(answer, TEXT).length, 'and nothing but texts').toBe(types.size - 1)
      expectInTime(answer, [partition!])
      return
    }
    case 'stat':
      expect(answer.rows).toHaveLength(1)
      expect(columns(answer, NUMBER)).toEqual([...types.keys()])
      return
    case 'bargauge':
      expect([...types.keys()]).toEqual(['metric', 'value'])
      expect(columns(answer, NUMBER)).toEqual(['value'])
      return
    case 'table': {
      const overrides = new Map(
        panel.fieldConfig!.overrides.map(({ matcher, properties }) => [matcher.options, properties]),
      )
      expect(types.keys().toArray().sort(), 'its columns').toEqual([...overrides.keys()].sort())
      for (const name of columns(answer, NUMBER)) {
        const ids = overrides.get(name)!.map(({ id }) => id)
        expect(ids, `${name} has a unit`).toContain('unit')
      }
      return
    }
    default:
      throw new Error(`a panel of type ${panel.type}`)
  }
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

  test.each(asked)('%s', async (title, panel, rawSql) => {
    const answer = await ask(rawSql, chosen, panel.maxDataPoints)
    if (!EMPTY.has(`${name}: ${title}`)) expect(answer.rows.length, 'rows of the day').toBeGreaterThan(0)
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
      // Only the edge begins an era.
      const edge = { ...chosen, network: EDGE_NETWORK }
      const rows = answer.rows.length > 0 ? answer.rows : (await ask(target.rawSql!, edge)).rows
      expect(rows.length).toBeGreaterThan(0)
      for (const { text } of rows) expect(text).toMatch(/\w+ .*\w/)
    },
  )
})

/** A panel by its title. */
function panelOf(name: string, title: string): PanelJson {
  const panel = panelsOf(dashboards.get(name)!).find((one) => one.title === title)
  if (panel === undefined) throw new Error(`${name} has no panel ${title}`)
  return panel
}

/** What it shows. */
async function shown(name: string, title: string, values: Values = CHOSEN[name]!): Promise<Answer['rows']> {
  const panel = panelOf(name, title)
  return (await ask(panel.targets![0]!.rawSql!, values, panel.maxDataPoints)).rows
}

test('the day has every cause of a reap and every reason of a quarantine', async () => {
  const causes = (await shown('overview', 'Reaps by cause')).map(({ metric }) => metric)
  expect(new Set(causes)).toEqual(
    new Set(['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'PREVIOUS_BOOT', 'FENCED', 'Reap']),
  )
  const { rows } = await auditor.query<{ reason: string }>(
    `select distinct quarantine_reason as reason from event where network = $1 and type = 'lease.quarantined'`,
    [DAY_NETWORK],
  )
  expect(rows.map(({ reason }) => reason).sort()).toEqual([...QUARANTINE_REASONS].sort())
})

test('the timeline of the storied address names its three holders in turn, with gaps between them', async () => {
  const rows = await shown('address', 'Holders and states')
  expect(rows.map(({ holder }) => holder)).toEqual([
    `${STORIED_OWNERS[0]} 1`,
    `${STORIED_OWNERS[0]} 1`,
    null,
    `${STORIED_OWNERS[1]} 1`,
    `${STORIED_OWNERS[1]} 1`,
    null,
    `${STORIED_OWNERS[2]} 1`,
    `${STORIED_OWNERS[2]} 1`,
    `${STORIED_OWNERS[2]} 1`,
  ])
  expect(rows.at(-1)).toMatchObject({ address: STORIED_ADDRESS, state: 'QUARANTINED CONFLICT' })
})

test('of two events at one time the timeline has the last: a handover leaves no gap', async () => {
  const rows = await shown('address', 'Holders and states', {
    network: DAY_NETWORK,
    address: HANDED_ADDRESS,
    owner: '',
    lease: '',
  })
  expect(rows.map(({ holder }) => holder)).toEqual(['1', '1', '2', '2'].map((life) => `${HANDED} ${life}`))
})

test('its timeline begins with who held it before the time range', async () => {
  const { storied } = day
  const later = { ...day, from: new Date(day.to.getTime() - 3_600_000) }
  const before = day
  day = later
  try {
    const rows = await shown('address', 'Holders and states')
    expect(rows).toHaveLength(1)
    expect(rows[0]).toMatchObject({ holder: `${STORIED_OWNERS[2]} 1`, state: 'QUARANTINED CONFLICT' })
    expect(Number(rows[0]!.time)).toBe(later.from.getTime())
  } finally {
    day = before
  }
  expect(storied).toHaveLength(3)
})

test('from the reap of the second holder a link leads to the address and to its owner', async () => {
  const reap = (await shown('overview', 'Reaps, the latest first')).find(
    ({ address }) => address === STORIED_ADDRESS,
  )
  expect(reap).toMatchObject({
    network: DAY_NETWORK,
    owner: STORIED_OWNERS[1],
    lease: day.storied[1]!.leaseId,
    cause: 'PROVEN_ABSENT',
    source: 'node-1',
    why: 'SIGHTED',
    lookup_answer: 'gone',
  })
  expect(Number(reap!.misses)).toBeGreaterThanOrEqual(3)
  const owner = String(reap!.owner)
  const followed = { network: DAY_NETWORK, address: String(reap!.address), owner, lease: '' }
  const events = await shown('address', 'Events of the owner', followed)
  expect(events.map(({ type }) => type)).toEqual(['lease.reaped', 'lease.confirmed', 'lease.reserved'])
  const lease = await shown('address', 'Events of the lease', { ...followed, lease: String(reap!.lease) })
  expect(lease.map(({ type }) => type)).toEqual(['lease.reserved', 'lease.confirmed', 'lease.reaped'])
})

test('the conflict names everybody who is there', async () => {
  const [conflict] = await shown('overview', 'Conflicts, the latest first')
  expect(conflict).toMatchObject({ address: STORIED_ADDRESS, owner: STORIED_OWNERS[2] })
  expect(conflict!.what).toContain(GHOST)
})

test('the crash loop is named', async () => {
  expect(await shown('overview', 'Crash loops')).toMatchObject([{ owner: LOOPING, lives: 6, pool: 'web' }])
})

test('the map has a row for each sixteenth of the pool, and the storied address in its cell', async () => {
  const rows = await shown('pool', 'Map of the address space')
  expect(rows).toHaveLength(16)
  expect(rows[4]).toMatchObject({ first_address: '10.20.0.64', size: 1, c13: 1 })
  expect(rows[7]).toMatchObject({ first_address: '10.20.0.112', c13: 0 })
  const full = await shown('pool', 'Map of the address space', { network: DAY_NETWORK, pool: FULL_POOL })
  expect(full).toHaveLength(2)
  const six = await shown('pool', 'Map of the address space', { network: DAY_NETWORK, pool: 'v6' })
  expect(six).toHaveLength(16)
  expect(six[0]).toMatchObject({ first_address: 'fd00:20::/72', size: 2 ** 56 })
  expect(Number(six[0]!.c00)).toBeGreaterThan(0)
  const blocks = await shown('pool', 'Map of the address space', { network: DAY_NETWORK, pool: 'blocks' })
  expect(blocks[0]).toMatchObject({ first_address: '10.64.0.0/28', size: 1, c00: 1, c01: 1, c02: 1, c03: 0 })
})

test('the small pool is nearly full, and runs out', async () => {
  const [first] = await shown('overview', 'Pools, the fullest first')
  expect(first).toMatchObject({ network: DAY_NETWORK, pool: FULL_POOL })
  expect(Number(first!.used_ratio)).toBeGreaterThan(0.75)
  expect(Number(first!.exhausted_in)).toBeGreaterThan(0)
})

/**
 * The pictures of the README. `IPLEDGER_PICTURES=yes` writes them: a day's times are never twice the same, so they are drawn anew when the
 * dashboards changed, and otherwise only tried.
 */
const WRITE = process.env.IPLEDGER_PICTURES === 'yes'
const PICTURES = new URL('../../ops/grafana/pictures/', import.meta.url)

function keep(name: string, svg: string): void {
  expect(svg.length, 'small enough for a README').toBeLessThan(150_000)
  expect(svg).not.toMatch(/NaN|undefined|Infinity/)
  if (!WRITE) return
  mkdirSync(PICTURES, { recursive: true })
  writeFileSync(new URL(`${name}.svg`, PICTURES), svg)
}

async function marksOf(name: string): Promise<readonly Mark[]> {
  const marks: Mark[] = []
  for (const { iconColor, target } of dashboards.get(name)!.annotations.list) {
    const { rows } = await ask(target.rawSql!, CHOSEN[name]!)
    marks.push(...rows.map(({ time, text }) => ({ at: Number(time), colour: iconColor, name: String(text) })))
  }
  return marks
}

describe('pictures', () => {
  test('overview', async () => {
    const marks = await marksOf('overview')
    const svg = picture(dashboards.get('overview')!.title, [
      drawSeries(
        panelOf('overview', 'Used share of each pool'),
        await shown('overview', 'Used share of each pool'),
        day,
        marks,
      ),
      drawSeries(
        panelOf('overview', 'Reaps by cause'),
        await shown('overview', 'Reaps by cause'),
        day,
        marks,
      ),
      drawRows(
        panelOf('overview', 'Reaps, the latest first'),
        await shown('overview', 'Reaps, the latest first'),
        {
          at: 50,
          address: 90,
          lease: 90,
          owner: 120,
          node: 60,
          cause: 150,
          source: 70,
          why: 80,
          misses: 60,
          lookup_answer: 70,
          last_sighted_at: 70,
        },
        day,
        12,
      ),
      drawRows(
        panelOf('overview', 'Conflicts, the latest first'),
        await shown('overview', 'Conflicts, the latest first'),
        { since: 50, address: 90, owner: 90, node: 60, seen_by: 100, what: 540 },
        day,
      ),
    ])
    expect(svg).toContain(STORIED_ADDRESS)
    keep('overview', svg)
  })

  test('pool', async () => {
    const marks = await marksOf('pool')
    const svg = picture(`${dashboards.get('pool')!.title} web`, [
      drawSeries(panelOf('pool', 'Leases by state'), await shown('pool', 'Leases by state'), day, marks),
      drawSeries(panelOf('pool', 'Churn'), await shown('pool', 'Churn'), day, marks),
      drawCells(panelOf('pool', 'Map of the address space'), await shown('pool', 'Map of the address space')),
    ])
    expect(svg).toContain('10.20.0.64')
    keep('pool', svg)
  })

  test('address', async () => {
    const svg = picture(`${dashboards.get('address')!.title} ${STORIED_ADDRESS}`, [
      drawRows(
        panelOf('address', 'Why, at the end of the time range'),
        await shown('address', 'Why, at the end of the time range'),
        { at: 50, what: 870 },
        day,
      ),
      drawTimeline(
        panelOf('address', 'Holders and states'),
        await shown('address', 'Holders and states'),
        'address',
        day,
      ),
      drawRows(
        panelOf('address', 'Events'),
        await shown('address', 'Events'),
        { at: 50, seq: 60, type: 120, owner: 90, actor: 130, cause: 110, what: 370 },
        day,
        9,
      ),
      drawRows(
        panelOf('address', 'Reaps of this address, with their proof'),
        await shown('address', 'Reaps of this address, with their proof'),
        {
          at: 50,
          owner: 85,
          cause: 115,
          source: 70,
          why: 80,
          snapshots: 130,
          heads: 130,
          misses: 60,
          last_sighted_at: 80,
          lookup_answer: 60,
          lookup_at: 60,
        },
        day,
      ),
    ])
    for (const owner of STORIED_OWNERS) expect(svg).toContain(owner)
    keep('address', svg)
  })

  test('sources', async () => {
    const svg = picture(dashboards.get('sources')!.title, [
      drawRows(
        panelOf('sources', 'Sources, the longest silent first'),
        await shown('sources', 'Sources, the longest silent first'),
        {
          source: 80,
          kind: 60,
          state: 100,
          lag: 80,
          every: 70,
          intervals: 90,
          complete_lag: 90,
          listed: 60,
          warm: 60,
          held: 60,
          era: 40,
          partial_because: 140,
        },
        day,
      ),
      drawRows(
        panelOf('sources', 'Suspects, and what blocks them'),
        await shown('sources', 'Suspects, and what blocks them'),
        { waiting: 70, address: 90, owner: 120, source: 70, answer: 60, attempts: 60, what: 460 },
        day,
      ),
      drawRows(
        panelOf('sources', 'Holds'),
        await shown('sources', 'Holds'),
        { at: 60, source: 100, reaps: 60, leases: 80, why: 600 },
        day,
      ),
    ])
    expect(svg).toContain('node-2')
    keep('sources', svg)
  })
})
