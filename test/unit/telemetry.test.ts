/** What is counted, how much of it, and what a configuration asks for. */
import { afterEach, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { watchClock } from '../../src/ledger/clock.ts'
import {
  addMeasurements,
  countCommand,
  countReport,
  createLogger,
  isCounting,
  MOST_SERIES,
  startHandingOver,
  takeMeasurements,
} from '../../src/telemetry.ts'
import { startTelemetry, type Telemetry } from '../../src/telemetry-export.ts'
import { readPage } from '../support/scraped.ts'

const log = createLogger('silent')
const asked = (env: Readonly<Record<string, string>>) => readConfig(env).telemetry

describe('counting', () => {
  let telemetry: Telemetry | undefined
  afterEach(async () => {
    await telemetry?.close()
    telemetry = undefined
  })
  const start = async () => {
    telemetry = await startTelemetry(asked({ IPLEDGER_METRICS: 'yes' }), log)
    return async () => readPage(await telemetry!.page!())
  }

  test('nothing is counted before somebody asks, and nothing of it is told later', async () => {
    expect((await startTelemetry(asked({}), log)).page).toBeNull()
    expect(isCounting()).toBe(false)
    countReport('early', true)
    const page = await (await start())()
    expect(page.of('ipledger_reports_total')).toEqual([])
  })

  test('a metric has so many series and no more, and says that it is without some', async () => {
    const page = await start()
    for (let n = 0; n < MOST_SERIES + 5; n += 1) countReport(`n${n}`, true)
    countReport('n0', true)
    const scraped = await page()
    expect(scraped.of('ipledger_reports_total')).toHaveLength(MOST_SERIES)
    expect(scraped.value('ipledger_reports_total', { network: 'n0', complete: 'yes' })).toBe(2)
    expect(scraped.value('ipledger_reports_total', { network: `n${MOST_SERIES + 1}` })).toBeUndefined()
    expect(scraped.value('ipledger_series_left_out', { of: 'ipledger.reports' })).toBe(1)
  })

  test('a command is done, refused by the rules, or failed', async () => {
    const page = await start()
    countCommand('reserve', null)
    countCommand('reserve', 'POOL_EXHAUSTED')
    countCommand('reserve', 'OVERLOADED')
    countCommand('reserve', 'OUTCOME_UNKNOWN')
    const scraped = await page()
    const outcomes = scraped
      .of('ipledger_commands_total')
      .map(({ labels, value }) => [labels.outcome, labels.reason, value])
    expect(outcomes).toEqual([
      ['done', '', 1],
      ['refused', 'POOL_EXHAUSTED', 1],
      ['failed', 'OVERLOADED', 1],
      ['failed', 'OUTCOME_UNKNOWN', 1],
    ])
  })

  test('what a thread counted is added to what its process counted', async () => {
    const page = await start()
    countReport('blue', true)
    const measured = {
      counts: [['reports', ['blue', 'yes'], 2] as ['reports', string[], number]],
      values: [['job', ['prune', 'done'], 0.07] as ['job', string[], number]],
      gauges: [['jobsWaiting', [], 3] as ['jobsWaiting', string[], number]],
    }
    addMeasurements(measured)
    addMeasurements({ ...measured, gauges: [['jobsWaiting', [], 1]] })
    const scraped = await page()
    expect(scraped.value('ipledger_reports_total', { network: 'blue' })).toBe(5)
    expect(scraped.value('ipledger_job_duration_seconds_count', { job_name: 'prune' })).toBe(2)
    expect(scraped.value('ipledger_job_duration_seconds_bucket', { job_name: 'prune', le: '0.1' })).toBe(2)
    expect(scraped.value('ipledger_job_duration_seconds_bucket', { job_name: 'prune', le: '0.05' })).toBe(0)
    expect(scraped.value('ipledger_jobs_waiting')).toBe(1)
  })
})

// Last of those that count: from here on this process hands over.
test('a thread hands over what it counted since the last time, once', () => {
  startHandingOver()
  expect(takeMeasurements()).toBeNull()
  countReport('blue', true)
  countReport('blue', true)
  countReport('green', false)
  expect(takeMeasurements()).toEqual({
    counts: [
      ['reports', ['blue', 'yes'], 2],
      ['reports', ['green', 'no'], 1],
    ],
    values: [],
    gauges: [],
  })
  expect(takeMeasurements()).toBeNull()
  countReport('blue', true)
  expect(takeMeasurements()?.counts).toEqual([['reports', ['blue', 'yes'], 1]])
})

describe('the clock of the database', () => {
  const NOW = 1_000_000
  const watched = () => {
    const jumps: number[] = []
    return { jumps, look: watchClock((byMs) => jumps.push(byMs)) }
  }

  test('that goes with time does not jump, however long nobody looked or this process stood still', () => {
    const { jumps, look } = watched()
    look(NOW, 0, 5)
    look(NOW + 100, 100, 104)
    // Asked, then stopped for a minute: the answer had come long before.
    look(NOW + 200, 200, 60_200)
    look(NOW + 3_600_000, 3_600_000, 3_600_003)
    look(NOW + 3_601_500, 3_600_010, 3_600_013)
    expect(jumps).toEqual([])
  })

  test('that was set is noticed, forward and back, once each', () => {
    const { jumps, look } = watched()
    look(NOW, 0, 1)
    look(NOW + 60_010, 10, 11)
    look(NOW + 60_020, 20, 21)
    look(NOW + 30, 30, 31)
    look(NOW + 40, 40, 41)
    expect(jumps.map((byMs) => Math.round(byMs / 1_000))).toEqual([60, -60])
  })
})

describe('what a configuration asks for', () => {
  const NOTHING = { page: false, pushed: false, traces: false }

  test('nothing, unless somebody does', () => {
    expect(asked({})).toMatchObject(NOTHING)
    expect(asked({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'always_on' })).toMatchObject(NOTHING)
    expect(asked({ OTEL_TRACES_EXPORTER: '', OTEL_EXPORTER_OTLP_ENDPOINT: '' })).toMatchObject(NOTHING)
  })

  test.each([
    [{ IPLEDGER_METRICS: 'yes' }, { ...NOTHING, page: true }],
    [{ OTEL_METRICS_EXPORTER: 'prometheus' }, { ...NOTHING, page: true }],
    [{ OTEL_METRICS_EXPORTER: 'prometheus,otlp' }, { ...NOTHING, page: true, pushed: true }],
    [{ OTEL_METRICS_EXPORTER: 'prometheus', IPLEDGER_METRICS: 'no' }, NOTHING],
    [{ OTEL_TRACES_EXPORTER: 'otlp' }, { ...NOTHING, traces: true }],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' }, { page: false, pushed: true, traces: true }],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://c:4318/v1/traces' }, { ...NOTHING, traces: true }],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318', OTEL_TRACES_EXPORTER: 'none' },
      { ...NOTHING, pushed: true },
    ],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318', OTEL_METRICS_EXPORTER: 'prometheus' },
      { page: true, pushed: false, traces: true },
    ],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318', OTEL_SDK_DISABLED: 'true' }, NOTHING],
  ])('%o', (env, expected) => {
    expect(asked(env as Record<string, string>)).toMatchObject(expected)
  })

  test('the sampler and its share', () => {
    expect(asked({}).sampler).toEqual({ name: 'parentbased_always_on', ratio: 1 })
    expect(
      asked({ OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.01' }).sampler,
    ).toEqual({ name: 'parentbased_traceidratio', ratio: 0.01 })
  })

  test.each([
    [{ OTEL_TRACES_EXPORTER: 'zipkin' }, 'OTEL_TRACES_EXPORTER must be otlp or none (it is "zipkin").'],
    [{ OTEL_METRICS_EXPORTER: 'otlp,console' }, /^OTEL_METRICS_EXPORTER must be /],
    [{ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /^OTEL_EXPORTER_OTLP_PROTOCOL must be http\/protobuf/],
    [{ OTEL_TRACES_SAMPLER: 'jaeger_remote' }, /^OTEL_TRACES_SAMPLER must be one of /],
    [{ OTEL_TRACES_SAMPLER_ARG: '1.5' }, /^OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1/],
    [{ IPLEDGER_METRICS: 'true' }, /^IPLEDGER_METRICS must be yes or no/],
  ])('what cannot be used ends the start: %o', (env, said) => {
    expect(() => asked(env as Record<string, string>)).toThrow(said)
  })
})
