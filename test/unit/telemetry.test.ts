/** What is counted, how much of it, and what a configuration asks for. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { afterEach, describe, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import {
  countJudgement,
  countLookup,
  countReport,
  createLogger,
  observeLedger,
  onJob,
  recordJobs,
} from '../../src/telemetry.ts'
import { SERIES_OF_A_METRIC, startTelemetry } from '../../src/telemetry-export.ts'

/** A page in Prometheus's text format, as OpenTelemetry writes it. */
function readPage(page: string) {
  const samples = [...page.matchAll(/^([a-z]\w*)(?:\{(.*)\})? (\S+)$/gm)].map(([, name, listed, value]) => ({
    name,
    labels: Object.fromEntries(
      [...(listed ?? '').matchAll(/(\w+)="([^"]*)"/g)].map(([, key, of]) => [key, of]),
    ),
    value: Number(value),
  }))
  const of = (name: string, labels: Readonly<Record<string, string>> = {}) =>
    samples.filter(
      (one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels[key] === value),
    )
  return { of, value: (...asked: Parameters<typeof of>) => of(...asked)[0]?.value }
}

const log = createLogger('silent')
const asked = (env: Readonly<Record<string, string>>) => readConfig(env).telemetry

describe('counting', () => {
  let open = new AsyncDisposableStack()
  afterEach(async () => {
    await open.disposeAsync()
    open = new AsyncDisposableStack()
  })
  const start = () => {
    const page = startTelemetry(asked({ IPLEDGER_METRICS: 'yes' }), log, open)!
    return async () => {
      const { promise, resolve } = Promise.withResolvers<string>()
      const response = { setHeader() {}, end: resolve } as unknown as ServerResponse
      page({} as IncomingMessage, response)
      return readPage(await promise)
    }
  }

  test('nothing is counted before somebody asks, and nothing of it is told later', async () => {
    expect(startTelemetry(asked({}), log, open)).toBeNull()
    countReport('early', true, 1)
    const page = await start()()
    expect(page.of('ipledger_reports_total')).toEqual([])
  })

  test('a metric has so many series and no more: one has the sum of the others', async () => {
    const page = start()
    for (let n = 0; n < SERIES_OF_A_METRIC + 5; n += 1) countJudgement(`n${n}`, 'keep')
    countJudgement('n0', 'keep')
    const scraped = await page()
    expect(scraped.of('ipledger_judgements_total')).toHaveLength(SERIES_OF_A_METRIC)
    expect(scraped.value('ipledger_judgements_total', { network: 'n0', verdict: 'keep' })).toBe(2)
    expect(scraped.value('ipledger_judgements_total', { otel_metric_overflow: 'true' })).toBe(6)
  })

  test('what a ledger tells', async () => {
    const page = start()
    const tell = observeLedger(log)
    tell.batch('blue', { commands: 3, events: 3, lockMs: 1, decideMs: 0.1, writeMs: 2 })
    tell.failed('blue', 'vetoed', null)
    tell.failed('blue', 'unknown', null)
    tell.loaded('blue', { records: 1, ms: 20 })
    tell.eraBegun('blue', 1, 'restored')
    const header = { seq: 1, at: 1, actor: 'a', requestId: null, traceId: null }
    const event = (body: object) => tell.event('blue', { ...header, ...body } as LedgerEvent)
    event({ type: 'lease.reaped', cause: 'PROVEN_ABSENT' })
    tell.clockStep(-5_000)
    const scraped = await page()
    const value = (name: string, labels: Record<string, string> = {}) =>
      scraped.value(`ipledger_${name}`, labels)
    expect(value('batches_total', { outcome: 'committed' })).toBe(1)
    expect(value('batches_total', { outcome: 'vetoed' })).toBe(1)
    expect(value('batches_total', { outcome: 'unknown' })).toBe(1)
    expect(value('unique_violations_total', { network: 'blue' })).toBe(1)
    expect(value('batch_commands_sum')).toBe(3)
    expect(value('batch_phase_duration_seconds_sum', { phase: 'write' })).toBe(0.002)
    expect(value('image_load_duration_seconds_count')).toBe(1)
    expect(value('eras_begun_total', { network: 'blue' })).toBe(1)
    expect(value('events_total', { type: 'lease.reaped' })).toBe(1)
    expect(value('reaps_total', { network: 'blue', cause: 'PROVEN_ABSENT' })).toBe(1)
    expect(value('reaps_total', { network: 'blue', cause: 'NEVER_CONFIRMED' })).toBe(0)
    expect(value('clock_jumps_total', { direction: 'back' })).toBe(1)
    expect(value('clock_jumps_total', { direction: 'forward' })).toBe(0)
  })

  test('what sources, jobs and reads tell', async () => {
    const page = start()
    countReport('blue', true, 30)
    countLookup('docker', 'gone')
    recordJobs({ waiting: 3, failing: 1 })
    await onJob('prune', async () => 1)
    await expect(onJob('judge', () => Promise.reject(new Error('away')))).rejects.toThrow('away')
    const scraped = await page()
    expect(scraped.value('ipledger_reports_total', { network: 'blue', complete: 'yes' })).toBe(1)
    expect(scraped.value('ipledger_report_duration_seconds_sum', { network: 'blue' })).toBe(0.03)
    expect(scraped.value('ipledger_lookups_total', { source_kind: 'docker', answer: 'gone' })).toBe(1)
    expect(scraped.value('ipledger_jobs_waiting')).toBe(3)
    expect(scraped.value('ipledger_job_duration_seconds_count', { job_name: 'prune', outcome: 'done' })).toBe(
      1,
    )
    expect(
      scraped.value('ipledger_job_duration_seconds_count', { job_name: 'judge', outcome: 'failed' }),
    ).toBe(1)
    expect(
      scraped.of('ipledger_job_last_success_timestamp_seconds').map(({ labels }) => labels.job_name),
    ).toEqual(['prune'])
  })
})
