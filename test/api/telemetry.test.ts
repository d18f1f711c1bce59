/** Spans and metrics as they leave the process: to a real collector, and on a page read as Prometheus reads it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { createToken, openTokens } from '../../src/api/tokens.ts'
import { readConfig } from '../../src/config.ts'
import { LeaseService } from '../../src/gen/ipledger/v1/lease_pb.ts'
import { createReads } from '../../src/ledger/reads.ts'
import { createObserved } from '../../src/observed.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { addGauges, createLogger, METRICS } from '../../src/telemetry.ts'
import { startTelemetry } from '../../src/telemetry-export.ts'
import { pageName } from '../../src/telemetry-page.ts'
import { createAgent } from '../support/agent.ts'
import { type CollectedSpan, startCollector } from '../support/collector.ts'
import {
  beginEra,
  claim,
  createNetwork,
  createPool,
  owner as ownerOf,
  reserve as reserveOf,
} from '../support/commands.ts'
import { withClient } from '../support/database.ts'
import { startProxy } from '../support/proxy.ts'
import { createReality } from '../support/reality.ts'
import { rpc } from '../support/rpc.ts'
import { readPage, type Scraped } from '../support/scraped.ts'
import { waitFor } from '../support/wait-for.ts'
import { clientOf, post, serverOn, told, urls, useServer } from './running.ts'

const log = createLogger('fatal')
const collector = await startCollector()
vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.url)
const telemetry = await startTelemetry(
  readConfig({
    IPLEDGER_METRICS: 'yes',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRICS_EXPORTER: 'none',
    OTEL_BSP_SCHEDULE_DELAY: '20',
  }).telemetry,
  log,
)
const running = await useServer({ metrics: telemetry.page })
const gauges = createConnections({
  url: running.database.serviceUrl,
  applicationName: 'test gauges',
  max: 2,
})
const endGauges = addGauges(createObserved(gauges, log).readings)

beforeAll(() => running.ledger.accept(createPool({ name: 'web', cidr: '10.0.0.0/28', gateway: '10.0.0.1' })))
afterAll(async () => {
  endGauges()
  await gauges.end()
  await telemetry.close()
  await collector.close()
})

const owner = (name: string) => ({ kind: 'container', name, uid: `uid-of-${name}`, incarnation: '1' })
const reserve = (name: string, headers: Readonly<Record<string, string>> = {}) =>
  post(running, 'LeaseService/Reserve', { owner: owner(name), claims: [{ pool: 'web' }] }, headers)

async function scrape(url = running.url, headers: Readonly<Record<string, string>> = {}): Promise<Scraped> {
  const response = await fetch(`${url}/metrics`, { headers })
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  return readPage(await response.text())
}

async function traceOfEvent(seq: string): Promise<string | null> {
  const { rows } = await withClient(running.database.serviceUrl, (client) =>
    client.query<{ trace_id: string | null }>(
      `select trace_id from ipledger.event where network_id = 'default' and seq = $1`,
      [seq],
    ),
  )
  return rows[0]!.trace_id
}

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const CALLER = 'b7ad6b7169203331'

function collected(what: string, is: (span: CollectedSpan) => boolean): Promise<CollectedSpan> {
  return waitFor(() => collector.spans.find(is), { what })
}

const isRpc = (traceId: string) => (span: CollectedSpan) =>
  span.traceId === traceId && span.name === 'ipledger.v1.LeaseService/Reserve'

describe('spans', () => {
  test('one Reserve is followed into its batch, the trips of the batch, and its event', async () => {
    const answer = await reserve('followed', { traceparent: `00-${TRACE}-${CALLER}-01` })
    expect(answer.status).toBe(200)
    const { version } = answer.body.leases[0]
    const rpc = await collected('the call', isRpc(TRACE))
    expect(rpc).toMatchObject({
      service: 'ipledger',
      parentId: CALLER,
      kind: 2,
      attributes: {
        'rpc.system.name': 'connectrpc',
        'rpc.method': 'ipledger.v1.LeaseService/Reserve',
        'rpc.status_code': 'OK',
      },
    })
    const batch = await collected('its batch', (span) => span.spanId === rpc.links[0]?.spanId)
    expect(batch).toMatchObject({
      name: 'ipledger.batch',
      parentId: '',
      links: [{ traceId: TRACE, spanId: rpc.spanId }],
      attributes: {
        'ipledger.network': 'default',
        'ipledger.commands': 1,
        'ipledger.outcome': 'committed',
        'ipledger.first_seq': Number(version),
        'ipledger.last_seq': Number(version),
      },
    })
    expect(batch.traceId).not.toBe(TRACE)
    for (const name of ['postgresql load', 'postgresql commit']) {
      const trip = await collected(name, (span) => span.name === name && span.parentId === batch.spanId)
      expect(trip).toMatchObject({
        traceId: batch.traceId,
        kind: 3,
        attributes: { 'db.system.name': 'postgresql' },
      })
      expect(trip.attributes['db.operation.batch.size']).toBeGreaterThan(2)
    }
    expect(await traceOfEvent(version)).toBe(TRACE)
  })

  test('a caller without a trace gets one, and its event names it', async () => {
    const answer = await reserve('traceless')
    const traceId = await traceOfEvent(answer.body.leases[0].version)
    expect(traceId).toMatch(/^[0-9a-f]{32}$/)
    expect(await collected('the call', isRpc(traceId!))).toMatchObject({ parentId: '' })
  })

  test('over gRPC it is the same', async () => {
    const traceId = TRACE.replace('0af7', '0af8')
    const { leases } = await clientOf(LeaseService, running, 'grpc').reserve(
      { owner: owner('remote'), claims: [{ pool: 'web' }] },
      { headers: { traceparent: `00-${traceId}-${CALLER}-01` } },
    )
    expect(await collected('the call', isRpc(traceId))).toMatchObject({
      parentId: CALLER,
      attributes: { 'rpc.system.name': 'grpc', 'rpc.status_code': 'OK' },
    })
    expect(await traceOfEvent(String(leases[0]!.version))).toBe(traceId)
  })

  test('a caller that does not sample sends no span, and its event names its trace all the same', async () => {
    const traceId = TRACE.replace('0af7', '0af9')
    const unsampled = await reserve('unsampled', { traceparent: `00-${traceId}-${CALLER}-00` })
    const after = await reserve('sampled', {
      traceparent: `00-${TRACE.replace('0af7', '0afa')}-${CALLER}-01`,
    })
    expect(await traceOfEvent(unsampled.body.leases[0].version)).toBe(traceId)
    await collected('a later call', isRpc(TRACE.replace('0af7', '0afa')))
    expect(after.status).toBe(200)
    expect(collector.spans.filter((span) => span.traceId === traceId)).toEqual([])
  })

  test('what is no traceparent is none', async () => {
    for (const traceparent of [`00-${'0'.repeat(32)}-${CALLER}-01`, 'nonsense', `00-${TRACE}-${CALLER}`]) {
      const answer = await reserve(`odd-${traceparent.length}-${traceparent[5]}`, { traceparent })
      expect(await traceOfEvent(answer.body.leases[0].version)).toMatch(
        /^(?!0{32}|0af7651916cd)[0-9a-f]{32}$/,
      )
    }
  })

  test('a refusal names its reason, and is no error of the server', async () => {
    const traceId = TRACE.replace('0af7', '0afb')
    const refused = await post(
      running,
      'LeaseService/GetLease',
      { leaseId: 'default/1' },
      { traceparent: `00-${traceId}-${CALLER}-01` },
    )
    expect(told(refused).reason).toBe('LEASE_NOT_FOUND')
    const span = await collected('the call', (one) => one.traceId === traceId && one.kind === 2)
    expect(span.attributes).toMatchObject({ 'rpc.status_code': 'NOT_FOUND', 'error.type': 'LEASE_NOT_FOUND' })
    expect(span.status).toBe(0)
    // Its read is part of it.
    const read = await collected('its read', (one) => one.parentId === span.spanId)
    expect(read).toMatchObject({ name: 'postgresql read', kind: 3 })
  })
})

describe('metrics', () => {
  test('every metric of the page is one that telemetry.ts names, of its kind', async () => {
    const named = new Map(
      METRICS.map((one) => [pageName(one.name, one.unit, one.kind === 'counter'), one.kind]),
    )
    const { types } = await scrape()
    expect([...types].filter(([name, type]) => named.get(name) !== type)).toEqual([])
    expect(types.size).toBeGreaterThan(25)
  })

  test('calls, commands, events and pools are counted by what they are', async () => {
    const before = await scrape()
    const network = 'default'
    const done = { command: 'reserve', outcome: 'done', reason: '' }
    const events = { network, type: 'lease.reserved', cause: 'Reserve' }
    const calls = { rpc_method: 'ipledger.v1.LeaseService/Reserve', rpc_status_code: 'OK' }
    await reserve('counted')
    const after = await scrape()
    const grown = (name: string, labels: Readonly<Record<string, string>>) =>
      after.of(name, labels).reduce((sum, { value }) => sum + value, 0) -
      before.of(name, labels).reduce((sum, { value }) => sum + value, 0)
    expect(grown('ipledger_commands_total', done)).toBe(1)
    expect(grown('ipledger_events_total', events)).toBe(1)
    expect(grown('rpc_server_call_duration_seconds_count', calls)).toBe(1)
    expect(grown('rpc_server_call_duration_seconds_bucket', { ...calls, le: '+Inf' })).toBe(1)
    expect(grown('ipledger_batches_total', { outcome: 'committed' })).toBe(1)
    expect(grown('ipledger_queue_wait_seconds_count', {})).toBe(1)
    expect(grown('ipledger_batch_commands_sum', {})).toBe(1)
    expect(grown('ipledger_database_duration_seconds_count', { statement: 'commit' })).toBe(1)
    expect(after.value('ipledger_queue_commands', { network })).toBe(0)
    expect(after.value('ipledger_unique_violations_total', { network })).toBe(0)
    expect(after.value('ipledger_clock_jumps_total', { network })).toBe(0)
    expect(after.value('ipledger_reaps_total', { network, cause: 'NEVER_CONFIRMED' })).toBe(0)
    expect(after.value('process_resident_memory_bytes')).toBeGreaterThan(1e7)
    expect(after.value('process_cpu_seconds_total')).toBeGreaterThan(0)
    expect(after.value('nodejs_eventloop_delay_p99_seconds')).toBeGreaterThan(0)
  })

  test('a refusal is counted by its reason, of the call and of the command', async () => {
    const full = await post(running, 'LeaseService/Reserve', {
      owner: owner('elsewhere'),
      claims: [{ pool: 'nowhere' }],
    })
    expect(told(full).reason).toBe('POOL_NOT_FOUND')
    const malformed = await post(running, 'LeaseService/Reserve', '{"owner": 3}')
    expect(told(malformed).reason).toBe('INVALID_FIELD')
    const page = await scrape()
    const calls = (labels: Readonly<Record<string, string>>) =>
      page.value('rpc_server_call_duration_seconds_count', {
        rpc_method: 'ipledger.v1.LeaseService/Reserve',
        rpc_system_name: 'connectrpc',
        ...labels,
      })
    expect(calls({ rpc_status_code: 'NOT_FOUND', error_type: 'POOL_NOT_FOUND' })).toBe(1)
    expect(calls({ rpc_status_code: 'INVALID_ARGUMENT', error_type: 'INVALID_FIELD' })).toBe(1)
    expect(
      page.value('ipledger_commands_total', {
        command: 'reserve',
        outcome: 'refused',
        reason: 'POOL_NOT_FOUND',
      }),
    ).toBe(1)
  })

  test('gauges of the database say what is in it, and the parts of a pool are its size', async () => {
    const gauges = createConnections({
      url: running.database.serviceUrl,
      applicationName: 'test gauges',
      max: 2,
    })
    try {
      const readings = await createObserved(gauges, log).readings()
      const { rows } = await withClient(running.database.serviceUrl, (client) =>
        client.query<{ held: number; head: number }>(
          `select (select count(*) from ipledger.lease where state = 'RESERVED') as held, max(seq) as head from ipledger.event`,
        ),
      )
      const value = (key: string, ...labels: readonly string[]) =>
        readings.find(([metric, of]) => metric === key && of.join() === labels.join())?.[2]
      expect(value('poolAddresses', 'default', 'web', 'reserved')).toBe(rows[0]!.held)
      expect(value('head', 'default')).toBe(rows[0]!.head)
      // No job runs here: all of the log is neither projected nor sealed.
      expect(value('tenureLagEvents', 'default')).toBe(rows[0]!.head)
      expect(value('tenureLag', 'default')).toBeGreaterThan(0)
      expect(value('tenureOverlaps', 'default')).toBe(0)
      expect(value('sealLagEvents', 'default')).toBe(rows[0]!.head)
      expect(value('networkState', 'default', 'READY')).toBe(1)
      expect(value('networkState', 'default', 'RECOVERING')).toBe(0)
      expect(value('databaseUp')).toBe(1)
      expect(value('poolDraining', 'default', 'web')).toBe(0)
      expect(value('era', 'default')).toBe(0)
      expect(value('eraBegun', 'default'), 'the first era began nowhere').toBeUndefined()
      const parts = readings.filter(([metric]) => metric === 'poolAddresses')
      expect(parts.map(([, labels]) => labels[2])).toEqual([
        'free',
        'cooling',
        'reserved',
        'active',
        'quarantined',
        'excluded',
      ])
      expect(parts.reduce((sum, [, , leases]) => sum + leases, 0)).toBe(16)
      expect(value('poolSize', 'default', 'web')).toBe(16)
    } finally {
      await gauges.end()
    }
  })

  test('a row that the database refuses and the books allow is counted', async () => {
    const network = 'crowded'
    const violations = async () => (await scrape()).value('ipledger_unique_violations_total', { network })
    await running.ledger.accept(createNetwork(network))
    // A rate is of two numbers.
    expect(await violations()).toBe(0)
    await running.ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
    await withClient(running.database.adminUrl, (admin) =>
      admin.query(
        `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state,
           owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
           node, boot, labels, witness, reserved_at)
         select $1, '10.0.0.1', 32, pool_id, 900000, 900000, 'ACTIVE', 'pod', 'phantom', 'phantom', false, '', 'eth0',
           'pod|eth0|phantom', 'pod|eth0||phantom', '', '', '{}', '', now()
         from ipledger.pool where network_id = $1`,
        [network],
      ),
    )
    const lease = await running.ledger.take(
      reserveOf({ network, owner: ownerOf({ name: 'next' }), claims: [claim({ pool: 'a' })] }),
    )
    expect(lease.address).toBe('10.0.0.2')
    expect(await violations()).toBe(1)
    const page = await scrape()
    expect(page.value('ipledger_batches_total', { outcome: 'rolled_back' })).toBeGreaterThanOrEqual(1)
    await withClient(running.database.adminUrl, (admin) =>
      admin.query(`delete from ipledger.lease where network_id = $1 and fencing_token = 900000`, [network]),
    )
  })

  test("a clock of the database that moves otherwise than this process's is counted", async () => {
    const network = 'default'
    const jumps = async () => (await scrape()).value('ipledger_clock_jumps_total', { network })
    await reserve('before-the-jump')
    expect(await jumps()).toBe(0)
    const now = performance.now.bind(performance)
    const set = vi.spyOn(performance, 'now').mockImplementation(() => now() + 5_000)
    try {
      await reserve('after-the-jump')
    } finally {
      set.mockRestore()
    }
    expect(await jumps()).toBe(1)
    expect(running.ledger.logged.at(-1)).toMatchObject({
      level: 'warn',
      message: "the database's clock was set",
      fields: { network },
    })
  })

  test('a new era says since when, and a pool that drains that it does', async () => {
    const network = 'restored'
    await running.ledger.accept(createNetwork(network))
    await running.ledger.accept(createPool({ name: 'old', cidr: '10.0.0.0/24', draining: true }, { network }))
    await running.ledger.accept(beginEra(3, { network }))
    const { rows } = await withClient(running.database.serviceUrl, (client) =>
      client.query<{ at: number }>(
        `select at from ipledger.event where network_id = $1 and type = 'era.begun'`,
        [network],
      ),
    )
    const connections = createConnections({
      url: running.database.serviceUrl,
      applicationName: 'test gauges',
      max: 2,
    })
    const readings = await createObserved(connections, log).readings()
    await connections.end()
    const of = (key: string) =>
      readings.flatMap(([metric, [name], value]) => (metric === key && name === network ? [value] : []))
    expect(of('era')).toEqual([3])
    expect(of('eraBegun')).toEqual([new Date(rows[0]!.at).getTime() / 1_000])
    expect(of('poolDraining')).toEqual([1])
  })

  test('reports and sources', async () => {
    const network = 'seen'
    const call = rpc(running.url)
    await call.ok('NetworkService/CreateNetwork', { name: network })
    const agent = await createAgent({ call, network, reality: createReality() }, 'agent-1')
    await createAgent({ call, network, reality: createReality() }, 'agent-2', { enabled: false })
    await agent.report()
    await agent.report({ complete: false })
    const page = await scrape()
    expect(page.value('ipledger_reports_total', { network, complete: 'yes' })).toBe(1)
    expect(page.value('ipledger_reports_total', { network, complete: 'no' })).toBe(1)
    const connections = createConnections({
      url: running.database.serviceUrl,
      applicationName: 'test gauges',
      max: 2,
    })
    const readings = await createObserved(connections, log).readings()
    await connections.end()
    call.close()
    const of = (key: string) =>
      readings
        .filter(([metric, [name]]) => metric === key && name === network)
        .map(([, [, ...labels], value]) => [...labels, Math.floor(value)])
    expect(of('sources')).toEqual([
      ['ENABLED', 'cold', 1],
      ['REGISTERED', 'cold', 1],
    ])
    expect(of('sourceInterval')).toEqual([
      ['agent-1', 30],
      ['agent-2', 30],
    ])
    expect(of('sourceLag').map(([source]) => source)).toEqual(['agent-1', 'agent-2'])
    expect(of('holds')).toEqual([[0]])
  })

  test('labels that are odd are written as the format has it', async () => {
    const name = 'a"b\\c'
    const end = addGauges(() => [['queue', [name], 7]])
    const page = await scrape()
    end()
    expect(page.value('ipledger_queue_commands', { network: name })).toBe(7)
  })
})

describe('who may read the page', () => {
  const directory = mkdtempSync(join(tmpdir(), 'ipledger-metrics-'))
  const file = join(directory, 'tokens')
  const auditor = createToken({ file, name: 'prometheus', role: 'auditor' })
  const limited = createToken({ file, name: 'limited', role: 'auditor', networks: ['default'] })
  const agent = createToken({ file, name: 'agent', role: 'agent', node: 'n1' })
  const tokens = openTokens(file, log)
  afterAll(() => {
    tokens.close()
    rmSync(directory, { recursive: true })
  })

  test('with tokens: who may list everything', async () => {
    const server = await serverOn({ ...running, tokens, metrics: telemetry.page })
    try {
      const { url } = urls(server)
      const as = (token: string) => fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
      const nobody = await fetch(`${url}/metrics`)
      expect([nobody.status, nobody.headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
      expect(await nobody.text()).toContain('Authorization: Bearer')
      expect((await as(limited)).status).toBe(403)
      expect((await as(agent)).status).toBe(403)
      expect((await scrape(url, { authorization: `Bearer ${auditor}` })).types.size).toBeGreaterThan(25)
    } finally {
      await server.close()
    }
  })

  test('who was not asked for it says so', async () => {
    const server = await serverOn(running)
    try {
      const page = await fetch(`${urls(server).url}/metrics`)
      expect([page.status, await page.text()]).toEqual([404, expect.stringContaining('IPLEDGER_METRICS=yes')])
    } finally {
      await server.close()
    }
  })
})

describe('a database that is away', () => {
  test('holds up no collection, and the gauges say so', async () => {
    const proxy = await startProxy(running.database.serviceUrl)
    const connections = createConnections({ url: proxy.url, applicationName: 'test silent', max: 2 })
    // What it says to whom it refuses a connection is not the test's.
    connections.on('error', () => {})
    try {
      const observed = createObserved(connections, log)
      expect(await observed.readings()).toContainEqual(['databaseUp', [], 1])
      const silent = createObserved(connections, log)
      proxy.silent(true)
      const begun = performance.now()
      const readings = await silent.readings()
      expect(performance.now() - begun).toBeLessThan(3_000)
      expect(readings).toEqual([['databaseUp', [], 0]])
      // Who asks again meanwhile waits for nothing, and asks nothing of it.
      const again = performance.now()
      expect(await silent.readings()).toEqual([['databaseUp', [], 0]])
      expect(performance.now() - again).toBeLessThan(1_000)
      // What was known a moment ago is still told.
      expect((await observed.readings()).map(([metric]) => metric)).toContain('poolSize')
    } finally {
      proxy.down(true)
      await connections.end()
      await proxy.close()
    }
  })

  test('a page of a server without a database is answered', async () => {
    const gone = createConnections({
      url: 'postgresql://nobody@127.0.0.1:1/none',
      applicationName: 'x',
      max: 1,
    })
    const end = addGauges(createObserved(gone, log).readings)
    const server = await serverOn({ ...running, reads: createReads(gone), metrics: telemetry.page })
    try {
      const { url } = urls(server)
      const page = await (await fetch(`${url}/metrics`)).text()
      expect(page).toContain('ipledger_database_up 0')
    } finally {
      end()
      await server.close()
      await gone.end()
    }
  })
})
