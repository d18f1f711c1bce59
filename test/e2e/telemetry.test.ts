/** Telemetry of real processes: what is asked for arrives, and what nobody asked for is neither loaded nor sent. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test, vi } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { startCollector } from '../support/collector.ts'
import { createTestDatabase, withClient } from '../support/database.ts'
import { moveToThePast } from '../support/past.ts'
import { readPage, type Scraped } from '../support/scraped.ts'
import { waitFor as waitAWhile } from '../support/wait-for.ts'
import { CHECKOUT, ipledgerJson, startProcess, startService, stopService } from './service.ts'

vi.setConfig({ testTimeout: 120_000 })
/** Each is of processes that start, and of jobs that run behind others. */
const waitFor = <T>(condition: () => T | Promise<T>) => waitAWhile(condition, { timeout: 30_000 })

async function ownDatabase() {
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  return database
}

async function ownCollector() {
  const collector = await startCollector()
  onTestFinished(() => collector.close())
  return collector
}

async function scrape(url: string): Promise<Scraped> {
  return readPage(await (await fetch(`${url}/metrics`)).text())
}

type Logged = Readonly<{ msg: string; trace_id?: string; span_id?: string; actor?: string }>

const logged = (stderr: string): readonly Logged[] =>
  stderr
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))

async function reserve(url: string, headers: Readonly<Record<string, string>> = {}) {
  const response = await fetch(`${url}/ipledger.v1.LeaseService/Reserve`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ owner: { kind: 'vm', name: `vm-${Math.random()}` }, claims: [{ pool: 'web' }] }),
  })
  expect(response.status).toBe(200)
  const { leases } = (await response.json()) as { leases: readonly { version: string }[] }
  return leases[0]!
}

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const CALLER = 'b7ad6b7169203331'

test('metrics of the jobs arrive on the page of their process, and OTLP takes spans and metrics', async () => {
  const { adminUrl, serviceUrl } = await ownDatabase()
  const collector = await ownCollector()
  const service = await startService({
    DATABASE_URL: adminUrl,
    IPLEDGER_LOG_LEVEL: 'debug',
    IPLEDGER_METRICS: 'yes',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_SERVICE_NAME: 'ipledger-test',
    OTEL_BSP_SCHEDULE_DELAY: '50',
    OTEL_METRIC_EXPORT_INTERVAL: '200',
    // Of a trace that a caller samples the batch is sent, however few are sampled here.
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0',
  })
  await ipledgerJson(service, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24'])
  const lease = await reserve(service.url, { traceparent: `00-${TRACE}-${CALLER}-01` })
  const unsampled = await reserve(service.url)

  const rpc = await waitFor(() => collector.spans.find((span) => span.traceId === TRACE && span.kind === 2))
  expect(rpc).toMatchObject({ service: 'ipledger-test', parentId: CALLER })
  const batch = await waitFor(() => collector.spans.find((span) => span.spanId === rpc.links[0]?.spanId))
  expect(batch.attributes['ipledger.last_seq']).toBe(Number(lease.version))
  const { rows } = await withClient(serviceUrl, (client) =>
    client.query<{ trace_id: string }>(
      `select trace_id from ipledger.event where network_id = 'default' and seq = any($1::bigint[]) order by seq`,
      [[lease.version, unsampled.version]],
    ),
  )
  expect(rows[0]!.trace_id).toBe(TRACE)
  expect(rows[1]!.trace_id).toMatch(/^[0-9a-f]{32}$/)
  expect(collector.spans.filter(({ traceId }) => traceId === rows[1]!.trace_id)).toEqual([])

  // What the call says in the log is found by its trace.
  const line = await waitFor(() =>
    logged(service.stderr()).find(({ msg, trace_id }) => msg === 'answered' && trace_id === TRACE),
  )
  expect(line.span_id).toBe(rpc.spanId)

  const page = await waitFor(async () => {
    const scraped = await scrape(service.url)
    const job = { job_name: 'expire-unconfirmed' }
    return scraped.value('ipledger_job_last_success_timestamp_seconds', job) !== undefined && scraped
  })
  expect(
    page.value('ipledger_job_duration_seconds_count', { job_name: 'prune-requests', outcome: 'done' }),
  ).toBeGreaterThanOrEqual(1)
  const at = page.value('ipledger_job_last_success_timestamp_seconds', { job_name: 'observe-pools' })!
  expect(Math.abs(Date.now() / 1_000 - at)).toBeLessThan(60)

  const pushed = ['rpc.server.call.duration', 'ipledger.commands', 'ipledger.job.duration', 'ipledger.head']
  await waitFor(() => pushed.every((name) => collector.metrics.has(name)))
  expect(await stopService(service)).toMatchObject({ code: 0 })
})

test('a job is a trace of its own, which the events it causes name', async () => {
  const database = await ownDatabase()
  const { adminUrl, serviceUrl } = database
  const collector = await ownCollector()
  const env = {
    DATABASE_URL: adminUrl,
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRICS_EXPORTER: 'none',
    OTEL_BSP_SCHEDULE_DELAY: '50',
  }
  const api = await startService(env, { args: ['--no-worker'] })
  await ipledgerJson(api, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24', '--confirm-within', '1s'])
  await reserve(api.url)
  await moveToThePast(database, 1_000 + POLICY.confirmGraceMs + 1_000)
  const worker = startProcess(['worker'], { ...env, IPLEDGER_LOG_LEVEL: 'warn' })
  const { trace_id: traceId } = await waitFor(async () => {
    const { rows } = await withClient(serviceUrl, (client) =>
      client.query<{ trace_id: string | null }>(
        `select trace_id from ipledger.event where network_id = 'default' and type = 'lease.reaped'`,
      ),
    )
    return rows[0]
  })
  const job = await waitFor(() => collector.spans.find((span) => span.name === 'job expire-unconfirmed'))
  expect(job.traceId).toBe(traceId)
  const batch = await waitFor(() =>
    collector.spans.find(({ links }) => links.some(({ spanId }) => spanId === job.spanId)),
  )
  expect(batch.name).toBe('ipledger.batch')
  worker.child.kill('SIGTERM')
  expect(await worker.finished).toMatchObject({ code: 0 })
  expect(await stopService(api)).toMatchObject({ code: 0 })
})

test('a worker has a page of its own, with its state', async () => {
  const { adminUrl } = await ownDatabase()
  const worker = startProcess(['worker'], {
    DATABASE_URL: adminUrl,
    IPLEDGER_LOG_LEVEL: 'warn',
    IPLEDGER_METRICS: 'yes',
    IPLEDGER_METRICS_PORT: '0',
  })
  const url = await waitFor(() => /Metrics: (\S+)\/metrics/.exec(worker.stdout())?.[1])
  const ready = await fetch(`${url}/readyz`)
  expect([ready.status, await ready.text()]).toEqual([200, 'ipledger is ready: the database answers\n'])
  await waitFor(async () => (await scrape(url)).of('ipledger_job_duration_seconds_count').length > 5)
  worker.child.kill('SIGTERM')
  expect(await worker.finished).toMatchObject({ code: 0 })
})

test('a collector that is away changes nothing, and the log tells of it once', async () => {
  const { adminUrl } = await ownDatabase()
  const service = await startService({
    DATABASE_URL: adminUrl,
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    OTEL_EXPORTER_OTLP_TIMEOUT: '200',
    OTEL_BSP_SCHEDULE_DELAY: '50',
    OTEL_METRIC_EXPORT_INTERVAL: '300',
  })
  await ipledgerJson(service, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24'])
  await reserve(service.url)
  await waitFor(() => logged(service.stderr()).some(({ msg }) => msg.startsWith('telemetry: ')))
  await reserve(service.url)
  expect(await stopService(service)).toMatchObject({ code: 0 })
})

test('unasked, nothing listens, nothing is sent, and a caller without a trace has none', async () => {
  const { adminUrl, serviceUrl } = await ownDatabase()
  const service = await startService({ DATABASE_URL: adminUrl })
  await ipledgerJson(service, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24'])
  const traced = await reserve(service.url, { traceparent: `00-${TRACE}-${CALLER}-01` })
  const traceless = await reserve(service.url)
  expect((await fetch(`${service.url}/metrics`)).status).toBe(404)
  const { rows } = await withClient(serviceUrl, (client) =>
    client.query<{ trace_id: string | null }>(
      `select trace_id from ipledger.event where network_id = 'default' and seq = any($1::bigint[]) order by seq`,
      [[traced.version, traceless.version]],
    ),
  )
  expect(rows).toEqual([{ trace_id: TRACE }, { trace_id: null }])
  expect(await stopService(service)).toMatchObject({ code: 0 })
})

test('unasked, no SDK is loaded; asked for, it is', async () => {
  const loads = async (env: Readonly<Record<string, string>>) => {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', LOADING], {
      cwd: CHECKOUT,
      env: { PATH: process.env.PATH, ...env },
    })
    return JSON.parse(stdout) as readonly string[]
  }
  expect(await loads({})).toEqual(['api', 'semantic-conventions'])
  expect(await loads({ OTEL_SDK_DISABLED: 'true', OTEL_TRACES_EXPORTER: 'otlp' })).toEqual([
    'api',
    'semantic-conventions',
  ])
  expect(await loads({ IPLEDGER_METRICS: 'yes' })).toContain('sdk-metrics')
  expect(await loads({ IPLEDGER_METRICS: 'yes' })).not.toContain('sdk-trace')
  expect(await loads({ OTEL_TRACES_EXPORTER: 'otlp' })).toContain('exporter-trace-otlp-proto')
})

/** All that `serve` imports, and what its telemetry adds: the packages of OpenTelemetry that were loaded. */
const LOADING = `
  import { registerHooks } from 'node:module'
  const loaded = new Set()
  registerHooks({
    load(url, context, next) {
      const found = /node_modules\\/@opentelemetry\\/([^/]+)\\//.exec(url)
      if (found !== null) loaded.add(found[1])
      return next(url, context)
    },
  })
  const src = ${JSON.stringify(join(CHECKOUT, 'src'))}
  await import(src + '/cli/serve.ts')
  await import(src + '/jobs/worker.ts')
  const { readConfig } = await import(src + '/config.ts')
  const { createLogger } = await import(src + '/telemetry.ts')
  const { startTelemetry } = await import(src + '/telemetry-export.ts')
  await startTelemetry(readConfig().telemetry, createLogger('silent'))
  console.log(JSON.stringify([...loaded].sort()))
  process.exit(0)
`
