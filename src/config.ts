/**
 * The environment, read once. Nothing else reads it: what a process does follows from the `Config` it was given.
 * A value that cannot be used ends the start with a sentence that names the variable and the remedy.
 */

import { resolve } from 'node:path'
import { z } from 'zod'

/** A reason not to start that a person can act on. Printed as one sentence, without a stack, exit code 1. */
export class StartRefused extends Error {
  override readonly name = 'StartRefused'
}

const unsetWhenEmpty = (value: unknown): unknown => (value === '' ? undefined : value)

const whole = (least: number, most: number, fallback: number) =>
  z.preprocess(
    unsetWhenEmpty,
    z
      .string()
      .regex(/^\d{1,9}$/, wholeRemedy(least, most, fallback))
      .transform(Number)
      .refine((n) => n >= least && n <= most, wholeRemedy(least, most, fallback))
      .default(fallback),
  )

const text = () => z.preprocess(unsetWhenEmpty, z.string().optional())

const postgresUrl = () =>
  z.preprocess(
    unsetWhenEmpty,
    z
      .string()
      .regex(
        /^postgres(ql)?:\/\/./,
        'must look like postgresql://user:password@host:5432/database; unset it to use the embedded PostgreSQL',
      )
      .optional(),
  )

const httpUrl = () =>
  z.preprocess(
    unsetWhenEmpty,
    z
      .string()
      .refine(
        (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
        'must look like http://127.0.0.1:8080',
      )
      .optional(),
  )

const yesOrNo = () => z.preprocess(unsetWhenEmpty, z.enum(['yes', 'no'], 'must be yes or no').optional())

/** What OpenTelemetry calls its samplers; others are made by packages that are not here. */
const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

const protocol = () =>
  z.preprocess(
    unsetWhenEmpty,
    z
      .enum(['http/protobuf'], 'must be http/protobuf, the protocol that ipledger speaks; unset it')
      .optional(),
  )

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

/** Of a ledger, opened by the service or by anybody else. */
export const LEDGER_DEFAULTS = {
  connections: 4,
  /** Commands that wait for one network. */
  queued: 20_000,
  leasesPerBatch: 1_000,
  deadlineSeconds: 10,
} as const

const environment = z.object({
  DATABASE_URL: postgresUrl(),
  DATABASE_ADMIN_URL: postgresUrl(),
  IPLEDGER_HOST: z.preprocess(unsetWhenEmpty, z.string().default('127.0.0.1')),
  IPLEDGER_PORT: whole(0, 65_535, 8080),
  IPLEDGER_GRPC_PORT: whole(0, 65_535, 8081),
  IPLEDGER_DIR: z.preprocess(unsetWhenEmpty, z.string().default('.ipledger')),
  IPLEDGER_TOKENS: text(),
  IPLEDGER_SOURCE_SECRETS: text(),
  IPLEDGER_LOG_LEVEL: z.preprocess(
    unsetWhenEmpty,
    z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`).default('info'),
  ),
  IPLEDGER_URL: httpUrl(),
  IPLEDGER_TOKEN: text(),
  IPLEDGER_WRITE_CONNECTIONS: whole(1, 64, LEDGER_DEFAULTS.connections),
  IPLEDGER_READ_CONNECTIONS: whole(1, 256, 8),
  // Two, and one for each job that runs: one that waits for a source must hold up no other.
  IPLEDGER_JOB_CONNECTIONS: whole(2, 64, 12),
  IPLEDGER_MAX_QUEUED_COMMANDS: whole(1, 1_000_000, LEDGER_DEFAULTS.queued),
  IPLEDGER_BATCH_LEASES: whole(1, 10_000, LEDGER_DEFAULTS.leasesPerBatch),
  IPLEDGER_DEADLINE_SECONDS: whole(1, 600, LEDGER_DEFAULTS.deadlineSeconds),
  IPLEDGER_SYNCHRONOUS_REPLICATION: z.preprocess(
    unsetWhenEmpty,
    z.enum(['yes', 'no'], 'must be yes or no; unset it for no').default('no'),
  ),
  IPLEDGER_METRICS: yesOrNo(),
  IPLEDGER_METRICS_PORT: whole(0, 65_535, 9464),
})

/** Where telemetry goes; the exporters read the rest of OTEL_EXPORTER_OTLP_* themselves. */
const telemetry = z.object({
  OTEL_TRACES_EXPORTER: z.preprocess(
    unsetWhenEmpty,
    z.enum(['otlp', 'none'], 'must be otlp or none').optional(),
  ),
  OTEL_METRICS_EXPORTER: z.preprocess(
    unsetWhenEmpty,
    z
      .string()
      .regex(
        /^(?:(?:otlp|prometheus|none)(?: *, *(?=.)|$))+$/,
        'must be otlp, prometheus, both with a comma, or none',
      )
      .transform((list) => new Set(list.split(/ *, */)))
      .optional(),
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_PROTOCOL: protocol(),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol(),
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: protocol(),
  OTEL_TRACES_SAMPLER: z.preprocess(
    unsetWhenEmpty,
    z.enum(SAMPLERS, `must be one of ${SAMPLERS.join(', ')}`).default('parentbased_always_on'),
  ),
  OTEL_TRACES_SAMPLER_ARG: z.preprocess(
    unsetWhenEmpty,
    z
      .string()
      .regex(/^(?:0|1|0?\.\d{1,9}|[01]\.0{1,9})$/, 'must be a number from 0 to 1; unset it for 1')
      .transform(Number)
      .default(1),
  ),
  OTEL_METRIC_EXPORT_INTERVAL: whole(1, 999_999_999, 60_000),
  OTEL_BSP_SCHEDULE_DELAY: whole(1, 999_999_999, 5_000),
  OTEL_BSP_MAX_QUEUE_SIZE: whole(1, 1_000_000, 8_192),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: whole(1, 1_000_000, 512),
})

export type LogLevel = (typeof LOG_LEVELS)[number]
export type SamplerName = (typeof SAMPLERS)[number]

/** What leaves the process about itself. Nothing, unless somebody asked for it. */
export type TelemetryConfig = Readonly<{
  /** /metrics, for Prometheus. */
  page: boolean
  /** Metrics by OTLP. */
  pushed: boolean
  pushEveryMs: number
  /** Spans by OTLP. */
  traces: boolean
  sampler: Readonly<{ name: SamplerName; ratio: number }>
  spans: Readonly<{ everyMs: number; queued: number; atOnce: number }>
}>

export type Config = Readonly<{
  /** Undefined: the embedded PostgreSQL in `directory`. */
  databaseUrl: string | undefined
  /** Serves migrate, rebuild and graphile-worker's migrations only. Undefined: `databaseUrl`. */
  databaseAdminUrl: string | undefined
  host: string
  port: number
  grpcPort: number
  /** Absolute; holds the embedded PostgreSQL. */
  directory: string
  /** Absolute path of the file of hashed tokens. Undefined: every loopback caller is admin. */
  tokensFile: string | undefined
  /** Absolute path of the file of secrets by which sources are asked, a JSON object by `<network>/<source>`. */
  sourceSecretsFile: string | undefined
  logLevel: LogLevel
  /** The server the CLI talks to; by default the one `serve` starts with the same environment. */
  clientUrl: string
  clientToken: string | undefined
  writeConnections: number
  readConnections: number
  jobConnections: number
  maxQueuedCommands: number
  /** Most leases touched by one batch of a network. */
  batchLeases: number
  /** Deadline of a call that names none. */
  deadlineMs: number
  /** No failover loses a commit that was acknowledged, so that none is followed by a recovery. */
  commitsAreNeverLost: boolean
  telemetry: TelemetryConfig
  /** Of the page of \`ipledger worker\`, which serves nothing else. */
  metricsPort: number
}>

/** @throws StartRefused naming each variable that cannot be used, and what it must be. */
export function readConfig(env: Env = process.env): Config {
  const set = parse(environment, env)
  return {
    databaseUrl: set.DATABASE_URL,
    databaseAdminUrl: set.DATABASE_ADMIN_URL,
    host: set.IPLEDGER_HOST,
    port: set.IPLEDGER_PORT,
    grpcPort: set.IPLEDGER_GRPC_PORT,
    directory: resolve(set.IPLEDGER_DIR),
    tokensFile: set.IPLEDGER_TOKENS === undefined ? undefined : resolve(set.IPLEDGER_TOKENS),
    sourceSecretsFile:
      set.IPLEDGER_SOURCE_SECRETS === undefined ? undefined : resolve(set.IPLEDGER_SOURCE_SECRETS),
    logLevel: set.IPLEDGER_LOG_LEVEL,
    clientUrl: set.IPLEDGER_URL ?? `http://127.0.0.1:${set.IPLEDGER_PORT}`,
    clientToken: set.IPLEDGER_TOKEN,
    writeConnections: set.IPLEDGER_WRITE_CONNECTIONS,
    readConnections: set.IPLEDGER_READ_CONNECTIONS,
    jobConnections: set.IPLEDGER_JOB_CONNECTIONS,
    maxQueuedCommands: set.IPLEDGER_MAX_QUEUED_COMMANDS,
    batchLeases: set.IPLEDGER_BATCH_LEASES,
    deadlineMs: set.IPLEDGER_DEADLINE_SECONDS * 1000,
    commitsAreNeverLost: set.IPLEDGER_SYNCHRONOUS_REPLICATION === 'yes',
    telemetry: readTelemetry(set.IPLEDGER_METRICS, env),
    metricsPort: set.IPLEDGER_METRICS_PORT,
  }
}

type Env = Readonly<Record<string, string | undefined>>

function parse<T>(schema: z.ZodType<T>, env: Env): T {
  const parsed = schema.safeParse(env)
  if (parsed.success) return parsed.data
  throw new StartRefused(
    parsed.error.issues
      .map((issue) => `${String(issue.path[0])} ${issue.message}${was(env[String(issue.path[0])])}.`)
      .join('\n'),
  )
}

/** Where OTLP has an address, it is asked for; its default, a collector on this machine, has to be named. */
function readTelemetry(metrics: 'yes' | 'no' | undefined, env: Env): TelemetryConfig {
  const isDisabled = env.OTEL_SDK_DISABLED?.toLowerCase() === 'true'
  const set = parse(telemetry, isDisabled ? {} : env)
  const exporters = set.OTEL_METRICS_EXPORTER
  const named = set.OTEL_EXPORTER_OTLP_ENDPOINT
  const isNamed = (endpoint: string | undefined) => named !== undefined || endpoint !== undefined
  return {
    page: metrics === undefined ? (exporters?.has('prometheus') ?? false) : metrics === 'yes',
    pushed:
      exporters?.has('otlp') ?? (exporters === undefined && isNamed(set.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT)),
    pushEveryMs: set.OTEL_METRIC_EXPORT_INTERVAL,
    traces:
      set.OTEL_TRACES_EXPORTER === 'otlp' ||
      (set.OTEL_TRACES_EXPORTER === undefined && isNamed(set.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)),
    sampler: { name: set.OTEL_TRACES_SAMPLER, ratio: set.OTEL_TRACES_SAMPLER_ARG },
    spans: {
      everyMs: set.OTEL_BSP_SCHEDULE_DELAY,
      queued: set.OTEL_BSP_MAX_QUEUE_SIZE,
      atOnce: set.OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    },
  }
}

function wholeRemedy(least: number, most: number, fallback: number): string {
  return `must be a whole number from ${least} to ${most}; unset it for ${fallback}`
}

/** A URL may hold a password: it is never repeated. */
function was(value: string | undefined): string {
  return value === undefined || value.includes('://') || value.includes('@') ? '' : ` (it is "${value}")`
}
