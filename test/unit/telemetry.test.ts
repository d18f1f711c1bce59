/** What is counted, how much of it, and what a configuration asks for. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers/promises'
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
      return (await promise).split('\n')
    }
  }

  test('nothing is counted before somebody asks, and nothing of it is told later', async () => {
    expect(startTelemetry(asked({}), log, open)).toBeNull()
    countReport('early', true, 1)
    expect((await start()()).join()).not.toContain('ipledger_reports_total{')
  })

  test('a metric has so many series and no more: one has the sum of the others', async () => {
    const page = start()
    for (let n = 0; n < SERIES_OF_A_METRIC + 5; n += 1) countJudgement(`n${n}`, 'keep')
    countJudgement('n0', 'keep')
    const series = (await page()).filter((line) => line.startsWith('ipledger_judgements_total{'))
    expect(series).toHaveLength(SERIES_OF_A_METRIC)
    expect(series).toContain('ipledger_judgements_total{network="n0",verdict="keep"} 2')
    expect(series).toContain('ipledger_judgements_total{otel_metric_overflow="true"} 6')
  })

  test('what a ledger tells', async () => {
    const page = start()
    const tell = observeLedger(log)
    tell.batch('blue', { commands: 3, events: 3, lockMs: 1, decideMs: 0.1, writeMs: 2 })
    tell.failed('blue', 'vetoed', null)
    tell.failed('blue', 'unknown', null)
    tell.loaded('blue', { records: 1, ms: 20 })
    const header = { seq: 1, at: 1, actor: 'a', requestId: null, traceId: null }
    const event = (body: object) => tell.event('blue', { ...header, ...body } as LedgerEvent)
    event({ type: 'lease.reaped', cause: 'PROVEN_ABSENT' })
    event({ type: 'era.begun', cause: 'ERA', details: { era: 1, why: 'restored' } })
    tell.clockStep(-5_000)
    // A batch is counted once its callers have their answers.
    await setImmediate()
    expect(await page()).toEqual(
      expect.arrayContaining([
        'ipledger_batches_total{outcome="committed"} 1',
        'ipledger_batches_total{outcome="vetoed"} 1',
        'ipledger_batches_total{outcome="unknown"} 1',
        'ipledger_unique_violations_total{network="blue"} 1',
        'ipledger_batch_commands_sum 3',
        'ipledger_batch_phase_duration_seconds_sum{phase="write"} 0.002',
        'ipledger_batch_phase_duration_seconds_bucket{phase="write",le="0.005"} 1',
        'ipledger_image_load_duration_seconds_bucket{le="0.1"} 1',
        'ipledger_eras_begun_total{network="blue"} 1',
        'ipledger_events_total{network="blue",type="lease.reaped",cause="PROVEN_ABSENT"} 1',
        'ipledger_reaps_total{network="blue",cause="PROVEN_ABSENT"} 1',
        'ipledger_reaps_total{network="blue",cause="NEVER_CONFIRMED"} 0',
        'ipledger_clock_jumps_total{direction="back"} 1',
        'ipledger_clock_jumps_total{direction="forward"} 0',
      ]),
    )
  })

  test('what sources, jobs and reads tell', async () => {
    const page = start()
    countReport('blue', true, 30)
    countLookup('docker', 'gone')
    recordJobs({ waiting: 3, failing: 1 })
    await onJob('prune', async () => 1)
    await expect(onJob('judge', () => Promise.reject(new Error('away')))).rejects.toThrow('away')
    const lines = await page()
    expect(lines).toEqual(
      expect.arrayContaining([
        'ipledger_reports_total{network="blue",complete="yes"} 1',
        'ipledger_report_duration_seconds_sum{network="blue"} 0.03',
        'ipledger_lookups_total{source_kind="docker",answer="gone"} 1',
        'ipledger_jobs_waiting 3',
        'ipledger_job_duration_seconds_count{job_name="prune",outcome="done"} 1',
        'ipledger_job_duration_seconds_count{job_name="judge",outcome="failed"} 1',
      ]),
    )
    const succeeded = lines.filter((line) => line.startsWith('ipledger_job_last_success_timestamp_seconds{'))
    expect(succeeded).toEqual([expect.stringContaining('{job_name="prune"}')])
    expect(lines.filter((line) => line.startsWith('process_resident_memory_bytes '))).toHaveLength(1)
  })
})
