import { resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readConfig, StartRefused } from '../../src/config.ts'

test('without a variable everything has its default', () => {
  expect(readConfig({})).toMatchObject({
    databaseUrl: undefined,
    databaseAdminUrl: undefined,
    host: '127.0.0.1',
    port: 8080,
    directory: resolve('.ipledger'),
    tokensFile: undefined,
    logLevel: 'info',
    clientUrl: 'http://127.0.0.1:8080',
    deadlineMs: 10_000,
    imageAddresses: 1_000_000,
    commitsAreNeverLost: false,
  })
  const empty = Object.fromEntries(
    ['DATABASE_URL', 'IPLEDGER_PORT', 'IPLEDGER_METRICS'].map((name) => [name, '']),
  )
  expect(readConfig(empty)).toEqual(readConfig({}))
})

test.each([
  [
    { IPLEDGER_PORT: '70000' },
    'IPLEDGER_PORT must be a whole number from 0 to 65535; unset it for 8080 (it is "70000").',
  ],
  [
    { IPLEDGER_LOG_LEVEL: 'loud' },
    'IPLEDGER_LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent (it is "loud").',
  ],
  [{ IPLEDGER_URL: 'ftp://x' }, 'IPLEDGER_URL must look like http://127.0.0.1:8080.'],
  [
    { IPLEDGER_SYNCHRONOUS_REPLICATION: '1' },
    'IPLEDGER_SYNCHRONOUS_REPLICATION must be yes or no (it is "1").',
  ],
  [
    { OTEL_METRICS_EXPORTER: 'otlp,' },
    'OTEL_METRICS_EXPORTER must be otlp, prometheus, both with a comma, or none (it is "otlp,").',
  ],
  [{ OTEL_TRACES_EXPORTER: 'zipkin' }, 'OTEL_TRACES_EXPORTER must be otlp or none (it is "zipkin").'],
])('%o is refused with the remedy', (env, sentence) => {
  expect(() => readConfig(env)).toThrow(new StartRefused(sentence, { isUsage: true }))
})

test('a URL that may hold a password is never repeated', () => {
  expect(() => readConfig({ DATABASE_URL: 'mysql://me:hunter2@h/d' })).toThrow(
    /^DATABASE_URL must look like [^(]*$/,
  )
  expect(() => readConfig({ DATABASE_URL: 'mysql://me:hunter2@h/d' })).not.toThrow('hunter2')
})

describe('telemetry leaves the process only where somebody asked for it', () => {
  const read = (env: Record<string, string>) => {
    const { page, pushed, traces } = readConfig(env).telemetry
    return [page && 'page', pushed && 'pushed', traces && 'traces'].filter(Boolean)
  }
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
  test.each([
    [{}, []],
    [{ IPLEDGER_METRICS: 'yes' }, ['page']],
    [{ OTEL_METRICS_EXPORTER: 'prometheus, otlp' }, ['page', 'pushed']],
    [{ OTEL_METRICS_EXPORTER: 'prometheus', IPLEDGER_METRICS: 'no' }, []],
    [endpoint, ['pushed', 'traces']],
    [{ ...endpoint, OTEL_TRACES_EXPORTER: 'none', OTEL_METRICS_EXPORTER: 'none' }, []],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318' }, ['traces']],
    [{ ...endpoint, OTEL_SDK_DISABLED: 'true' }, []],
  ])('%o: %o', (env, expected) => {
    expect(read(env as Record<string, string>)).toEqual(expected)
  })

  test('the sampler and its share', () => {
    expect(readConfig({}).telemetry.sampler).toEqual({ name: 'parentbased_always_on', ratio: 1 })
    const sampled = { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.01' }
    expect(readConfig(sampled).telemetry.sampler).toEqual({ name: 'parentbased_traceidratio', ratio: 0.01 })
    for (const [name, value] of [
      ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
      ['OTEL_TRACES_SAMPLER', 'jaeger_remote'],
      ['OTEL_TRACES_SAMPLER_ARG', '1.5'],
    ] as const)
      expect(() => readConfig({ [name]: value })).toThrow(new RegExp(`^${name} must be `))
  })
})
