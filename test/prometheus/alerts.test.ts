/**
 * The alerts on a real Prometheus that scrapes real processes: every rule is evaluated, every query of a panel is
 * understood, and alerts are seen firing. Debian's package `prometheus` has what it needs; run with
 * IPLEDGER_TEST_PROMETHEUS=yes. The tests are one story and run in order.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { createTestDatabase } from '../support/database.ts'
import { panelsOf, readDashboards, withVariables } from '../support/grafana.ts'
import {
  configured,
  freePort,
  openPrometheus,
  type Prometheus,
  promtool,
  type Rule,
} from '../support/prometheus.ts'
import { ROOT, SRC } from '../support/root.ts'
import { type Rpc, rpc } from '../support/rpc.ts'
import { readAlerts } from '../support/runbooks.ts'
import { waitFor as waitAWhile } from '../support/wait-for.ts'

/** Gauges that count leases are read once a minute, and jobs begin with the minute. */
const waitFor = <T>(condition: () => T | Promise<T>, what: string) =>
  waitAWhile(condition, { timeout: 150_000, every: 250, what })

const MAIN = new URL('main.ts', SRC).pathname
const open = new AsyncDisposableStack()
let home: string
let prometheus: Prometheus
let call: Rpc

type Env = Readonly<Record<string, string>>

/** A process of ipledger, once it says that it is there. */
async function begin(args: readonly string[], env: Env): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const ended = once(child, 'exit')
  open.defer(async () => {
    child.kill('SIGKILL')
    await ended
  })
  let said = ''
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    said += chunk
  })
  await waitFor(() => said.includes('ipledger'), `ipledger ${args.join(' ')}`)
}

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'ipledger-alerts-'))
  open.defer(() => rmSync(home, { recursive: true, force: true }))
  const database = await createTestDatabase()
  open.defer(() => database.drop())
  const file = join(home, 'tokens.jsonl')
  const admin = createToken({ file, name: 'admin', role: 'admin' })
  const token = createToken({ file, name: 'prometheus', role: 'auditor' })

  const [port, grpcPort, workerPort] = [await freePort(), await freePort(), await freePort()].map(String)
  const shared = { DATABASE_URL: database.adminUrl, IPLEDGER_TOKENS: file, IPLEDGER_METRICS: 'yes' }
  await begin(['serve', '--no-worker'], { ...shared, IPLEDGER_PORT: port!, IPLEDGER_GRPC_PORT: grpcPort! })
  await begin(['worker'], { ...shared, IPLEDGER_METRICS_PORT: workerPort! })
  call = rpc(`http://127.0.0.1:${port}`, { token: admin })
  await call.ok('NetworkService/CreateNetwork', { name: 'restored' })
  await call.ok('NetworkService/BeginRecovery', {
    network: 'restored',
    why: 'the dump of Friday was restored',
  })
  const targets = { serve: [`127.0.0.1:${port}`], worker: [`127.0.0.1:${workerPort}`] }
  prometheus = await openPrometheus(targets, token)
  open.defer(() => prometheus.close())
}, 120_000)
afterAll(() => open.disposeAsync())

test('promtool finds nothing wrong with configuration and rules, and runs their tests', () => {
  const config = configured(
    mkdtempSync(join(home, 'checked-')),
    { serve: ['127.0.0.1:1'], worker: ['127.0.0.1:2'] },
    'no token',
  )
  expect(promtool('check', 'config', config)).toContain('SUCCESS')
  const tests = readdirSync(new URL('ops/prometheus/tests/', ROOT))
  const said = promtool('test', 'rules', ...tests.map((name) => `tests/${name}`))
  expect([...said.matchAll(/SUCCESS/g)].length).toBe(tests.length)
})

test('both processes are scraped', async () => {
  await waitFor(async () => {
    const { activeTargets } = await prometheus.ask('targets')
    const states = activeTargets.map((one: { labels: { job: string }; health: string }) =>
      [one.labels.job, one.health].join(' '),
    )
    return String(states.sort()) === 'ipledger up,ipledger-worker up'
  }, 'both targets to be up')
})

async function fired(name: string): Promise<readonly NonNullable<Rule['alerts']>[number][]> {
  const rules = await prometheus.rules()
  return rules
    .filter((rule) => rule.name === name)
    .flatMap(({ alerts = [] }) => alerts.filter(({ state }) => state === 'firing'))
}

const firing = (name: string) =>
  waitFor(async () => {
    const alerts = await fired(name)
    return alerts.length > 0 && alerts
  }, `${name} to fire`)

test('a pool without free addresses fires, and an era by its time', async () => {
  await call.ok('PoolService/CreatePool', { name: 'full', cidr: '10.0.1.0/30' })
  for (const name of ['one', 'two'])
    await call.ok('LeaseService/Reserve', { owner: { kind: 'container', name }, claims: [{ pool: 'full' }] })
  const [exhausted] = await firing('IpledgerPoolExhausted')
  expect(exhausted!.labels).toMatchObject({ network: 'default', pool: 'full', severity: 'page' })
  // Nobody has been scraped in the era before.
  const eras = await firing('IpledgerNewEra')
  expect(eras.map(({ annotations }) => annotations.summary)).toEqual(['Network restored began era 1.'])
}, 200_000)

test('every rule is evaluated, and none that must be quiet fires', async () => {
  const rules = await waitFor(async () => {
    const all = await prometheus.rules()
    return all.length > 0 && all.every(({ health }) => health !== 'unknown') && all
  }, 'every rule to be evaluated')
  expect(rules.flatMap(({ name, health, lastError }) => (health === 'ok' ? [] : [name, lastError]))).toEqual(
    [],
  )
  const alerts = rules.filter(({ type }) => type === 'alerting')
  expect(alerts.map(({ name }) => name).sort()).toEqual(
    readAlerts()
      .map(({ alert }) => alert)
      .sort(),
  )
  const loud = rules.filter(({ alerts = [] }) => alerts.some(({ state }) => state === 'firing'))
  expect(loud.map(({ name }) => name).sort()).toEqual(['IpledgerNewEra', 'IpledgerPoolExhausted'])
}, 200_000)

test('every query of a panel is one that Prometheus understands', async () => {
  const names = { network: ['default', 'prod.eu-1'], source: ['ip-10-0-0-1.ec2.internal'], pool: 'tiny.v6' }
  const values = { ...names, instance: ['127.0.0.1:1', 'ipledger-2.internal:8080'] }
  for (const [file, dashboard] of readDashboards()) {
    for (const { title, targets } of panelsOf(dashboard)) {
      for (const { expr } of targets!) {
        if (expr === undefined) continue
        const query = withVariables(expr, values)
          .replaceAll('$__rate_interval', '1m')
          .replaceAll('$__range', '1h')
          .replaceAll('$__interval', '1m')
        const { resultType } = await prometheus.ask('query', { query })
        expect(['vector', 'scalar'], `${file}: ${title}`).toContain(resultType)
      }
    }
  }
})
