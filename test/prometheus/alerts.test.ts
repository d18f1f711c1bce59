/**
 * The alerts on a real Prometheus that scrapes real processes: every rule is evaluated, every metric that a rule or a panel
 * names is there, and an alert is seen firing.
 *
 * Debian's package `prometheus` has what it needs; run with IPLEDGER_TEST_PROMETHEUS=yes. The tests are one story and run
 * in order.
 */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { ipledgerJson, startProcess, startService, stopService } from '../e2e/service.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { metricsOf, panelsOf, readDashboards, withVariables } from '../support/grafana.ts'
import { MINUTE, openScene } from '../support/incident.ts'
import {
  configured,
  freePort,
  openPrometheus,
  type Prometheus,
  promtool,
  type Rule,
} from '../support/prometheus.ts'
import { type Rpc, rpc } from '../support/rpc.ts'
import { openJobs } from '../support/run-jobs.ts'
import { readAlerts } from '../support/runbooks.ts'
import { waitFor as waitAWhile } from '../support/wait-for.ts'

/** Processes start, Prometheus scrapes each second, gauges of the database are read every ten, and jobs begin with the minute. */
const waitFor = <T>(condition: () => T | Promise<T>, what: string) =>
  waitAWhile(condition, { timeout: 90_000, every: 250, what })

const open = new AsyncDisposableStack()
let home: string
let prometheus: Prometheus
let call: Rpc

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'ipledger-alerts-'))
  open.defer(() => rmSync(home, { recursive: true, force: true }))
  const database = await createTestDatabase()
  open.defer(() => database.drop())
  const file = join(home, 'tokens.jsonl')
  const admin = createToken({ file, name: 'admin', role: 'admin' })
  const token = createToken({ file, name: 'prometheus', role: 'auditor' })

  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_TOKENS: file, IPLEDGER_METRICS: 'yes' }
  const service = await startService(env, { args: ['--no-worker'] })
  open.defer(async () => void (await stopService(service)))
  call = rpc(service.url, { token: admin })
  open.defer(() => call.close())
  await haveTrouble(database)
  await call.ok('NetworkService/CreateNetwork', { name: 'restored' })
  const recover = ['recover', 'restored', '--why', 'the dump of Friday was restored']
  await ipledgerJson(service, recover, { DATABASE_URL: database.adminUrl, IPLEDGER_TOKENS: file })

  const workerPort = await freePort()
  const worker = startProcess(['worker'], { ...env, IPLEDGER_METRICS_PORT: String(workerPort) })
  open.defer(async () => void (await stopService(worker)))
  const targets = { serve: [`127.0.0.1:${service.port}`], worker: [`127.0.0.1:${workerPort}`] }
  prometheus = await openPrometheus(targets, token)
  open.defer(() => prometheus.close())
}, 120_000)
afterAll(() => open.disposeAsync())

/** A network in which there is what has a metric only then: a pool that fills, a suspect whose look-up fails, something stuck. */
async function haveTrouble(database: TestDatabase): Promise<void> {
  const network = 'troubled'
  await call.ok('NetworkService/CreateNetwork', { name: network })
  const jobs = openJobs(database.serviceUrl)
  try {
    const scene = openScene({ network, call, jobs, database })
    await scene.pool('10.1.0.0/24')
    const agent = await scene.agent('agent-7')
    agent.answers = () => ({ answer: 'UNKNOWN', detail: 'neither alive nor gone' })
    const { workload } = await scene.start({ name: 'lost', node: 'agent-7' })
    await scene.cycles(2)
    scene.reality.end(workload)
    await scene.longEnough()
    for (let minute = 0; minute < 6; minute += 1) {
      await scene.start({ name: `more-${minute}`, node: 'agent-7' })
      await scene.passes(MINUTE + minute)
      await scene.jobs('observe-pools')
    }
    await scene.jobs('observe-stuck')
  } finally {
    await jobs.close()
  }
}

test('promtool finds nothing wrong with configuration and rules, and runs their tests', () => {
  const config = configured(
    mkdtempSync(join(home, 'checked-')),
    { serve: ['127.0.0.1:1'], worker: ['127.0.0.1:2'] },
    'no token',
  )
  expect(promtool('check', 'config', config)).toContain('SUCCESS')
  const tests = readdirSync(new URL('../../ops/prometheus/tests/', import.meta.url))
  const said = promtool('test', 'rules', ...tests.map((name) => `tests/${name}`))
  expect([...said.matchAll(/SUCCESS/g)].length).toBe(tests.length)
})

async function fired(name: string): Promise<readonly NonNullable<Rule['alerts']>[number][]> {
  const rules = await prometheus.rules()
  return rules
    .filter((rule) => rule.name === name)
    .flatMap(({ alerts = [] }) => alerts.filter(({ state }) => state === 'firing'))
}

test('both processes are scraped', async () => {
  await waitFor(async () => {
    const { activeTargets } = await prometheus.ask('targets')
    const states = activeTargets.map((one: { labels: { job: string }; health: string }) =>
      [one.labels.job, one.health].join(' '),
    )
    return String(states.sort()) === 'ipledger up,ipledger-worker up'
  }, 'both targets to be up')
})

test('a conflict fires at once, a pool without free addresses once it lasts, and an era that began by its time', async () => {
  await call.ok('PoolService/CreatePool', { name: 'tiny', cidr: '10.0.0.0/30' })
  await call.ok('LivenessService/RegisterSource', {
    id: 'agent-1',
    sight: { node: 'node-1', ownerKinds: ['container'], families: [4], interval: '30s' },
  })
  await call.ok('LivenessService/EnableSource', { id: 'agent-1' })
  const reserve = async (name: string) => {
    const { leases } = await call.ok('LeaseService/Reserve', {
      owner: { kind: 'container', name, uid: `uid-${name}`, incarnation: '1', node: 'node-1' },
      claims: [{ pool: 'tiny' }],
    })
    return leases[0].address as string
  }
  expect(await reserve('one')).toBe('10.0.0.1')
  expect(await reserve('two')).toBe('10.0.0.2')
  expect(await fired('IpledgerConflictDetected')).toEqual([])

  const { token } = await call.ok('LivenessService/BeginSnapshot', { source: 'agent-1' })
  await call.ok('LivenessService/ReportSnapshot', {
    source: 'agent-1',
    token,
    epoch: 'boot-1',
    complete: true,
    entries: [{ address: '10.0.0.2', kind: 'container', name: 'ghost', uid: 'uid-ghost' }],
  })
  const [conflict] = await waitFor(async () => {
    const alerts = await fired('IpledgerConflictDetected')
    return alerts.length > 0 && alerts
  }, 'the conflict to fire')
  expect(conflict).toMatchObject({
    labels: { alertname: 'IpledgerConflictDetected', network: 'default', severity: 'page' },
    annotations: {
      summary: '1 address(es) of default are used by more than one workload.',
      runbook_url: 'ops/runbooks/conflict-detected.md',
    },
  })
  const [exhausted] = await waitFor(async () => {
    const alerts = await fired('IpledgerPoolExhausted')
    return alerts.length > 0 && alerts
  }, 'the pool to fire')
  expect(exhausted!.labels).toMatchObject({ network: 'default', pool: 'tiny', severity: 'page' })
  // Nobody has been scraped in the era before.
  const [era, ...others] = await waitFor(async () => {
    const alerts = await fired('IpledgerNewEra')
    return alerts.length > 0 && alerts
  }, 'the era to fire')
  expect([era?.labels.network, era?.annotations.summary]).toEqual([
    'restored',
    'Network restored began era 1.',
  ])
  expect(others).toEqual([])
}, 200_000)

test('every rule is evaluated, and none that must be quiet fires', async () => {
  const rules = await waitFor(async () => {
    const all = await prometheus.rules()
    return all.length > 0 && all.every(({ health }) => health !== 'unknown') && all
  }, 'every rule to be evaluated')
  const troubled = rules.filter(({ health }) => health !== 'ok')
  expect(troubled.map(({ name, lastError }) => `${name}: ${lastError}`)).toEqual([])
  const named = rules.filter(({ type }) => type === 'alerting').map(({ name }) => name)
  expect(named.sort()).toEqual(
    readAlerts()
      .map(({ name }) => name)
      .sort(),
  )
  const firing = rules.filter(({ alerts = [] }) =>
    alerts.some(({ state, labels }) => state === 'firing' && labels.network !== 'troubled'),
  )
  expect(firing.map(({ name }) => name).sort()).toEqual([
    'IpledgerConflictDetected',
    'IpledgerNewEra',
    'IpledgerPoolExhausted',
  ])
})

test('every metric that a rule or a panel names is scraped or declared', async () => {
  const rules = await prometheus.rules()
  const panels = [...readDashboards().values()].flatMap(panelsOf)
  const expressions = [
    ...rules.map(({ query }) => query),
    ...panels.flatMap(({ targets }) => targets!.flatMap(({ expr }) => (expr === undefined ? [] : [expr]))),
  ]
  const names = [...new Set(expressions.flatMap(metricsOf))].sort()
  expect(names.length).toBeGreaterThan(40)
  const missing = await waitAWhile(
    async () => {
      const scraped: readonly string[] = await prometheus.ask('label/__name__/values')
      const declared: readonly { metric: string; type: string }[] = await prometheus.ask('targets/metadata')
      const known = new Set([
        ...scraped,
        ...declared.flatMap(({ metric, type }) =>
          type === 'histogram' ? ['_bucket', '_sum', '_count'].map((part) => metric + part) : [metric],
        ),
      ])
      const left = names.filter((name) => !known.has(name))
      if (left.length > 0) throw new Error(left.join(', '))
      return ['none']
    },
    { timeout: 90_000, every: 1_000, what: 'every metric to be there' },
  )
  expect(missing).toEqual(['none'])
}, 120_000)

test('every query of a panel is one that Prometheus understands', async () => {
  const names = { network: ['default', 'prod.eu-1'], source: ['ip-10-0-0-1.ec2.internal'], pool: 'tiny.v6' }
  const values = { ...names, instance: ['127.0.0.1:1', 'ipledger-2.internal:8080'] }
  for (const [file, dashboard] of readDashboards()) {
    for (const { title, targets } of panelsOf(dashboard)) {
      for (const { expr } of targets!) {
        if (expr === undefined) continue
        const filled = withVariables(expr, values)
          .replaceAll('$__rate_interval', '1m')
          .replaceAll('$__range', '1h')
          .replaceAll('$__interval', '1m')
        const { resultType } = await prometheus.ask('query', { query: filled })
        expect(['vector', 'scalar'], `${file}: ${title}`).toContain(resultType)
      }
    }
  }
})
