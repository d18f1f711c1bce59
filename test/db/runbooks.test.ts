/**
 * What the pages of alerts say to type, typed on a database that has lived a day: each statement runs with the auditor's
 * rights and settings, and each command that only looks answers.
 */
import { beforeAll, describe, expect, test } from 'vitest'
import { useServer } from '../api/running.ts'
import { ipledger, ipledgerJson } from '../e2e/service.ts'
import { useAuditor } from '../support/auditor.ts'
import { claim, createNetwork, createPool, owner, reserve } from '../support/commands.ts'
import {
  DAY_NETWORK,
  EDGE_NETWORK,
  liveADay,
  SILENT_SOURCE,
  STORIED_ADDRESS,
  STORIED_OWNERS,
} from '../support/day-of-life.ts'
import { panelsOf, readDashboards, withMacros, withVariables } from '../support/grafana.ts'
import { HOUR, MINUTE } from '../support/incident.ts'
import { filledCommand, filledStatement, type PageValues, readPages } from '../support/runbooks.ts'

const running = await useServer()
const audit = await useAuditor(running.database)
const values: Record<string, string> = {
  network: DAY_NETWORK,
  pool: 'web',
  source: SILENT_SOURCE,
  address: STORIED_ADDRESS,
  owner: STORIED_OWNERS[2],
  range: '10.20.0.128/25',
}

beforeAll(async () => {
  const { storied } = await liveADay(running)
  values.lease = storied[2]!.leaseId
}, 120_000)

/** Of these something happened that day, so that what a person looks for is there to be seen; where it is another network, which. */
const SEEN: Readonly<Record<string, PageValues>> = {
  'conflict-detected': {},
  'fence-contradicted': {},
  'lookups-failing': {},
  'new-era': { network: EDGE_NETWORK },
  'pool-nearly-exhausted': {},
  'quarantine-growing': {},
  'reap-rate': {},
  'reconciliation-held': {},
  'released-but-live': {},
  'sealing-stopped': {},
  'source-silent': {},
  stuck: {},
}

/** Those that ask the server and change nothing; `verify`, `rebuild` and `audit` have tests of their own. */
const LOOKS =
  /^(explain|history|stuck|events|reconcile --dry-run|(hold|lease|source|sighting|snapshot|pool) (list|show|get)|network get) /

for (const { path, statements, commands } of readPages()) {
  const name = /([^/]+)\.md$/.exec(path)![1]!
  // A transcript of another database, and what has nothing to type.
  if (name === 'example-review' || name === 'README') continue
  describe(name, () => {
    if (statements.length > 0) {
      test('statements run as the auditor', async () => {
        const found: number[] = []
        for (const statement of statements) {
          const filled = filledStatement(statement, { ...values, ...SEEN[name] })
          found.push((await audit.ask(filled)).length)
        }
        if (name in SEEN) expect(found[0], 'the first says who it is about').toBeGreaterThan(0)
        expect(Math.max(...found)).toBeLessThanOrEqual(2_000)
      })
    }
    const looks = commands.filter((command) => LOOKS.test(command.replace(/^ipledger /, '')))
    if (looks.length > 0) {
      test('commands that look answer', async () => {
        for (const command of looks) {
          const { code, stderr } = await ipledger(
            running,
            filledCommand(command, { ...values, ...SEEN[name] }),
          )
          expect({ command, code, stderr }).toEqual({ command, code: 0, stderr: '' })
        }
      })
    }
  })
}

test('quarantine-growing: the range of a second allocator is excluded around what is held in it', async () => {
  const network = 'shared'
  await running.ledger.accept(createNetwork(network))
  await running.ledger.accept(
    createPool({ name: 'web', cidr: '10.77.0.0/24', exclude: ['10.77.0.9'] }, { network }),
  )
  for (const address of ['10.77.0.128', '10.77.0.140', '10.77.0.141', '10.77.0.20']) {
    await ipledgerJson(running, ['quarantine', address, '--network', network, '--why', 'another allocator'])
  }
  const page = readPages().find(({ path }) => path.endsWith('/quarantine-growing.md'))!
  const told = { network, pool: 'web', range: '10.77.0.128/25' }
  const whole = filledCommand(page.commands.find((one) => one.includes('--add-exclude'))!, told)
  expect((await ipledger(running, whole)).stderr).toMatch(
    /^ipledger: POOL_IN_USE: .*10\.77\.0\.128 QUARANTINED/,
  )

  const gaps = page.statements.find((one) => one.includes('as add_exclude'))!
  const [{ add_exclude: around } = { add_exclude: '' }] = await audit.ask<{ add_exclude: string }>(
    filledStatement(gaps, told),
  )
  expect(around).toBe('10.77.0.129-10.77.0.139,10.77.0.142-10.77.0.255')
  const { pool } = await ipledgerJson<{ pool: { exclude: readonly string[] } }>(
    running,
    whole.map((word) => (word === told.range ? around : word)),
  )
  expect(pool.exclude).toEqual(['10.77.0.9', '10.77.0.129-10.77.0.139', '10.77.0.142-10.77.0.255'])
})

test('conflict-detected, and the dashboard: a reaped block is told of at each of its addresses', async () => {
  const network = 'blocks'
  const pool = createPool({ name: 'nodes', cidr: '10.64.0.0/24', prefixLength: 28 }, { network })
  await running.ledger.accept(createNetwork(network))
  await running.ledger.accept(pool)
  const { leaseId } = await running.ledger.take(
    reserve({ network, owner: owner({ name: 'node-9' }), claims: [claim({ pool: 'nodes' })] }),
  )
  await ipledgerJson(running, ['reap', leaseId, '--why', 'node-9 was scrapped'])

  const address = '10.64.0.9'
  const page = readPages().find(({ path }) => path.endsWith('/conflict-detected.md'))!
  const asked = page.statements.find((one) => one.includes('lookup_answer, lookup_detail'))!
  expect(await audit.ask(filledStatement(asked, { network, address }))).toHaveLength(1)
  const panel = panelsOf(readDashboards().get('address')!).find(({ title }) =>
    title.startsWith('Reaps of this'),
  )!
  const range = { from: new Date(Date.now() - HOUR), to: new Date(Date.now() + HOUR), intervalMs: MINUTE }
  const shown = (at: string) =>
    audit.ask(withMacros(withVariables(panel.targets![0]!.rawSql!, { network, address: at }), range))
  expect(await shown(address)).toMatchObject([{ address: '10.64.0.0/28', lease: leaseId, cause: 'Reap' }])
  expect(await shown('10.64.0.0/28')).toHaveLength(1)
  expect(await shown('10.64.0.16')).toEqual([])
})
