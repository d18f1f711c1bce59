/**
 * The environment, read once. Nothing else reads it: what a process does follows from the `Config` it was given. A value
 * that cannot be used ends the start with a sentence that names the variable and the remedy.
 */

import { resolve } from 'node:path'
import { z } from 'zod'

/** A reason not to start that a person can act on. Printed as one sentence, without a stack, exit code 1. */
export class StartRefused extends Error {
  override readonly name = 'StartRefused'
}

const unsetWhenEmpty = (value: unknown): unknown => (value === '' ? undefined : value)
const given = <T extends z.ZodType>(schema: T) => z.preprocess(unsetWhenEmpty, schema)

const text = () => given(z.string().optional())
const textOr = (fallback: string) => given(z.string().default(fallback))
const oneOf = <const T extends readonly string[]>(allowed: T) =>
  z.enum(allowed, `must be one of ${allowed.join(', ')}`)
const yesOrNo = () => given(z.enum(['yes', 'no'], 'must be yes or no').optional())

const matching = (pattern: RegExp, remedy: string) => given(z.string().regex(pattern, remedy).optional())

const whole = (least: number, most: number, fallback: number) => {
  const remedy = `must be a whole number from ${least} to ${most}; unset it for ${fallback}`
  return given(
    z
      .string()
      .regex(/^\d{1,9}$/, remedy)
      .transform(Number)
      .refine((n) => n >= least && n <= most, remedy)
      .default(fallback),
  )
}

const postgresUrl = () =>
  matching(
    /^postgres(ql)?:\/\/./,
    'must look like postgresql://user:password@host:5432/database; unset it to use the embedded PostgreSQL',
  )

const httpUrl = () =>
  given(
    z
      .string()
      .refine(
        (value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol),
        'must look like http://127.0.0.1:8080',
      )
      .optional(),
  )

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

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
  matching(/^http\/protobuf$/, 'must be http/protobuf, the protocol that ipledger speaks; unset it')

/** Of a ledger, opened by the service or by anybody else. */
export const LEDGER_DEFAULTS = {
  connections: 4,
  /** Commands that wait for one network. */
  queued: 20_000,
  leasesPerBatch: 1_000,
  deadlineSeconds: 10,
  /** At 0.5 to 0.8 KB an address, below a gigabyte. */
  addressesPerImage: 1_000_000,
} as const

const environment = z.object({
  DATABASE_URL: postgresUrl(),
  DATABASE_ADMIN_URL: postgresUrl(),
  IPLEDGER_HOST: textOr('127.0.0.1'),
  IPLEDGER_PORT: whole(0, 65_535, 8080),
  IPLEDGER_GRPC_PORT: whole(0, 65_535, 8081),
  IPLEDGER_DIR: textOr('.ipledger'),
  IPLEDGER_TOKENS: text(),
  IPLEDGER_SOURCE_SECRETS: text(),
  IPLEDGER_LOG_LEVEL: given(oneOf(LOG_LEVELS).default('info')),
  IPLEDGER_URL: httpUrl(),
  IPLEDGER_TOKEN: text(),
  IPLEDGER_WRITE_CONNECTIONS: whole(1, 64, LEDGER_DEFAULTS.connections),
  IPLEDGER_READ_CONNECTIONS: whole(1, 256, 8),
  // Two, and one for each job that runs: a job that waits for a source must not delay another.
  IPLEDGER_JOB_CONNECTIONS: whole(2, 64, 12),
  IPLEDGER_MAX_QUEUED_COMMANDS: whole(1, 1_000_000, LEDGER_DEFAULTS.queued),
  IPLEDGER_BATCH_LEASES: whole(1, 10_000, LEDGER_DEFAULTS.leasesPerBatch),
  IPLEDGER_DEADLINE_SECONDS: whole(1, 600, LEDGER_DEFAULTS.deadlineSeconds),
  IPLEDGER_IMAGE_ADDRESSES: whole(1_000, 100_000_000, LEDGER_DEFAULTS.addressesPerImage),
  IPLEDGER_SYNCHRONOUS_REPLICATION: yesOrNo(),
  IPLEDGER_METRICS: yesOrNo(),
  IPLEDGER_METRICS_PORT: whole(0, 65_535, 9464),
})

/** Where telemetry goes; the exporters read the rest of OTEL_EXPORTER_OTLP_* themselves. */
const telemetry = z.object({
  OTEL_TRACES_EXPORTER: given(z.enum(['otlp', 'none'], 'must be otlp or none').optional()),
  OTEL_METRICS_EXPORTER: matching(
    /^(?:(?:otlp|prometheus|none)(?: *, *(?=.)|$))+$/,
    'must be otlp, prometheus, both with a comma, or none',
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: text(),
  OTEL_EXPORTER_OTLP_PROTOCOL: protocol(),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol(),
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: protocol(),
  OTEL_TRACES_SAMPLER: given(oneOf(SAMPLERS).default('parentbased_always_on')),
  OTEL_TRACES_SAMPLER_ARG: matching(
    /^(?:0|1|0?\.\d{1,9}|[01]\.0{1,9})$/,
    'must be a number from 0 to 1; unset it for 1',
  ),
  OTEL_METRIC_EXPORT_INTERVAL: whole(1, 999_999_999, 60_000),
})

export type LogLevel = (typeof LOG_LEVELS)[number]

/** What leaves the process about itself. Nothing, unless somebody asked for it. */
export type TelemetryConfig = {
  /** /metrics, for Prometheus. */
  readonly page: boolean
  /** Metrics by OTLP. */
  readonly pushed: boolean
  readonly pushEveryMs: number
  /** Spans by OTLP. */
  readonly traces: boolean
  readonly sampler: { readonly name: (typeof SAMPLERS)[number]; readonly ratio: number }
}

export type Config = {
  /** Undefined: the embedded PostgreSQL in `directory`. */
  readonly databaseUrl: string | undefined
  /** Serves migrate, rebuild and graphile-worker's migrations only. Undefined: `databaseUrl`. */
  readonly databaseAdminUrl: string | undefined
  readonly host: string
  readonly port: number
  readonly grpcPort: number
  /** Absolute; holds the embedded PostgreSQL. */
  readonly directory: string
  /** Absolute path of the file of hashed tokens. Undefined: every loopback caller is admin. */
  readonly tokensFile: string | undefined
  /** Absolute path of the file of secrets by which sources are asked, a JSON object by `<network>/<source>`. */
  readonly sourceSecretsFile: string | undefined
  readonly logLevel: LogLevel
  /** The server the CLI talks to; by default the one `serve` starts with the same environment. */
  readonly clientUrl: string
  readonly clientToken: string | undefined
  readonly writeConnections: number
  readonly readConnections: number
  readonly jobConnections: number
  readonly maxQueuedCommands: number
  /** Most leases touched by one batch of a network. */
  readonly batchLeases: number
  /** Deadline of a call that names none. */
  readonly deadlineMs: number
  /** Most touched addresses of a network that a process keeps in memory. */
  readonly imageAddresses: number
  /** No failover loses a commit that was acknowledged, so that none is followed by a recovery. */
  readonly commitsAreNeverLost: boolean
  readonly telemetry: TelemetryConfig
  /** Of the metrics page of `ipledger worker`, which serves nothing else. */
  readonly metricsPort: number
}

/** @throws StartRefused naming each variable that cannot be used, and what it must be. */
export function readConfig(env: Env = process.env): Config {
  const set = parse(environment, env)
  const path = (file: string | undefined) => (file === undefined ? undefined : resolve(file))
  return {
    databaseUrl: set.DATABASE_URL,
    databaseAdminUrl: set.DATABASE_ADMIN_URL,
    host: set.IPLEDGER_HOST,
    port: set.IPLEDGER_PORT,
    grpcPort: set.IPLEDGER_GRPC_PORT,
    directory: resolve(set.IPLEDGER_DIR),
    tokensFile: path(set.IPLEDGER_TOKENS),
    sourceSecretsFile: path(set.IPLEDGER_SOURCE_SECRETS),
    logLevel: set.IPLEDGER_LOG_LEVEL,
    clientUrl: set.IPLEDGER_URL ?? `http://127.0.0.1:${set.IPLEDGER_PORT}`,
    clientToken: set.IPLEDGER_TOKEN,
    writeConnections: set.IPLEDGER_WRITE_CONNECTIONS,
    readConnections: set.IPLEDGER_READ_CONNECTIONS,
    jobConnections: set.IPLEDGER_JOB_CONNECTIONS,
    maxQueuedCommands: set.IPLEDGER_MAX_QUEUED_COMMANDS,
    batchLeases: set.IPLEDGER_BATCH_LEASES,
    deadlineMs: set.IPLEDGER_DEADLINE_SECONDS * 1000,
    imageAddresses: set.IPLEDGER_IMAGE_ADDRESSES,
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
      .map(({ path, message }) => `${String(path[0])} ${message}${was(env[String(path[0])])}.`)
      .join('\n'),
  )
}

/** OTLP is used where its endpoint is set; its default, a collector on this machine, has to be asked for by name. */
function readTelemetry(metrics: 'yes' | 'no' | undefined, env: Env): TelemetryConfig {
  const isDisabled = env.OTEL_SDK_DISABLED?.toLowerCase() === 'true'
  const set = parse(telemetry, isDisabled ? {} : env)
  const exporters = set.OTEL_METRICS_EXPORTER?.split(/ *, */)
  const hasEndpoint = (own: string | undefined) => (own ?? set.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined
  return {
    page: metrics === undefined ? (exporters?.includes('prometheus') ?? false) : metrics === 'yes',
    pushed: exporters?.includes('otlp') ?? hasEndpoint(set.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT),
    pushEveryMs: set.OTEL_METRIC_EXPORT_INTERVAL,
    traces:
      set.OTEL_TRACES_EXPORTER === undefined
        ? hasEndpoint(set.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
        : set.OTEL_TRACES_EXPORTER === 'otlp',
    sampler: { name: set.OTEL_TRACES_SAMPLER, ratio: Number(set.OTEL_TRACES_SAMPLER_ARG ?? 1) },
  }
}

/** A URL may hold a password: it is never repeated. */
function was(value: string | undefined): string {
  return value === undefined || value.includes('://') || value.includes('@') ? '' : ` (it is "${value}")`
}
