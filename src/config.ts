/**
 * The environment, read once and only here; docs/deploying.md says what each variable means. A value that cannot be used ends the
 * start with a sentence that names the variable and the remedy.
 */

import { resolve } from 'node:path'
import { z } from 'zod'

/** A reason not to start that a person can act on. Printed as one sentence, without a stack; `isUsage`: a setting is wrong. */
export class StartRefused extends Error {
  override readonly name = 'StartRefused'
  readonly isUsage: boolean
  constructor(
    sentence: string,
    { isUsage = false, ...options }: ErrorOptions & { readonly isUsage?: boolean } = {},
  ) {
    super(sentence, options)
    this.isUsage = isUsage
  }
}

const oneOf = <const T extends readonly string[]>(...values: T) =>
  z.enum(values, `must be one of ${values.join(', ')}`)
const yesOrNo = z.enum(['yes', 'no'], 'must be yes or no')
const text = z.string().optional()
const postgresUrl = z
  .string()
  .regex(
    /^postgres(ql)?:\/\/./,
    'must look like postgresql://user:password@host:5432/database; unset it to use the embedded PostgreSQL',
  )
  .optional()
const protocol = z
  .literal('http/protobuf', 'must be http/protobuf, the protocol that ipledger speaks; unset it')
  .optional()

function whole(least: number, most: number, fallback: number) {
  const remedy = `must be a whole number from ${least} to ${most}; unset it for ${fallback}`
  return z
    .string()
    .regex(/^\d{1,9}$/, remedy)
    .transform(Number)
    .refine((n) => n >= least && n <= most, remedy)
    .default(fallback)
}

const environment = z.object({
  DATABASE_URL: postgresUrl,
  DATABASE_ADMIN_URL: postgresUrl,
  IPLEDGER_HOST: z.string().default('127.0.0.1'),
  IPLEDGER_PORT: whole(0, 65_535, 8080),
  IPLEDGER_GRPC_PORT: whole(0, 65_535, 8081),
  IPLEDGER_DIR: z.string().default('.ipledger'),
  IPLEDGER_TOKENS: text,
  IPLEDGER_TLS_CERT: text,
  IPLEDGER_TLS_KEY: text,
  IPLEDGER_TLS_CLIENT_CA: text,
  IPLEDGER_TLS_CLIENT_REQUIRED: yesOrNo.optional(),
  IPLEDGER_SOURCE_SECRETS: text,
  IPLEDGER_LOG_LEVEL: oneOf('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent').default('info'),
  IPLEDGER_URL: z.url({ protocol: /^https?$/, error: 'must look like http://127.0.0.1:8080' }).optional(),
  IPLEDGER_TOKEN: text,
  // The parser of the command line reads it, too, as the default of --network.
  IPLEDGER_NETWORK: text,
  IPLEDGER_CA: text,
  IPLEDGER_CERT: text,
  IPLEDGER_KEY: text,
  IPLEDGER_WRITE_CONNECTIONS: whole(1, 64, 4),
  IPLEDGER_READ_CONNECTIONS: whole(1, 256, 8),
  // Two, and one for each job that runs: a job that waits for a source must not delay another.
  IPLEDGER_JOB_CONNECTIONS: whole(2, 64, 12),
  IPLEDGER_BATCH_LEASES: whole(1, 10_000, 1_000),
  IPLEDGER_DEADLINE_SECONDS: whole(1, 600, 10),
  // At 0.5 to 0.8 KB an address, below a gigabyte.
  IPLEDGER_IMAGE_ADDRESSES: whole(1_000, 100_000_000, 1_000_000),
  IPLEDGER_SYNCHRONOUS_REPLICATION: yesOrNo.optional(),
  IPLEDGER_METRICS: yesOrNo.optional(),
  IPLEDGER_METRICS_PORT: whole(0, 65_535, 9464),
  // The exporters read the rest of OTEL_EXPORTER_OTLP_* themselves.
  OTEL_TRACES_EXPORTER: z.enum(['otlp', 'none'], 'must be otlp or none').optional(),
  OTEL_METRICS_EXPORTER: z
    .string()
    .regex(
      /^(?:(?:otlp|prometheus|none)(?: *, *(?=.)|$))+$/,
      'must be otlp, prometheus, both with a comma, or none',
    )
    .optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol,
  OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: protocol,
  // OpenTelemetry's names of the samplers that come with its SDK.
  OTEL_TRACES_SAMPLER: oneOf(
    'always_on',
    'always_off',
    'traceidratio',
    'parentbased_always_on',
    'parentbased_always_off',
    'parentbased_traceidratio',
  ).default('parentbased_always_on'),
  OTEL_TRACES_SAMPLER_ARG: z
    .string()
    .regex(/^(?:0|1|0?\.\d{1,9}|[01]\.0{1,9})$/, 'must be a number from 0 to 1; unset it for 1')
    .default('1'),
  OTEL_METRIC_EXPORT_INTERVAL: whole(1, 999_999_999, 60_000),
})

export type Config = Readonly<ReturnType<typeof readConfig>>
export type LogLevel = Config['logLevel']
export type TelemetryConfig = Readonly<ReturnType<typeof readTelemetry>>

type Env = Readonly<Record<string, string | undefined>>

/** What the command line says stands for the environment, also in processes that it starts. */
export function setVariables(said: Env): void {
  for (const [name, value] of Object.entries(said)) if (value !== undefined) process.env[name] = value
}

/** @throws StartRefused naming each variable that cannot be used, and what it must be. */
export function readConfig(env: Env = process.env) {
  const isOff = env.OTEL_SDK_DISABLED?.toLowerCase() === 'true'
  // Empty counts as unset.
  const given = Object.entries(env).filter(
    ([name, value]) => value !== '' && !(isOff && name.startsWith('OTEL_')),
  )
  const { data: set, error } = environment.safeParse(Object.fromEntries(given))
  if (set === undefined) {
    const sentences = error.issues.map(({ path: [name = ''], message }) => {
      return `${String(name)} ${message}${was(env[String(name)])}.`
    })
    throw new StartRefused(sentences.join('\n'), { isUsage: true })
  }
  const path = (file: string | undefined) => (file === undefined ? undefined : resolve(file))
  return {
    /** Undefined: the embedded PostgreSQL in `directory`. */
    databaseUrl: set.DATABASE_URL,
    databaseAdminUrl: set.DATABASE_ADMIN_URL,
    host: set.IPLEDGER_HOST,
    port: set.IPLEDGER_PORT,
    grpcPort: set.IPLEDGER_GRPC_PORT,
    directory: resolve(set.IPLEDGER_DIR),
    /** The file of hashed tokens. Undefined: every loopback caller is admin. */
    tokensFile: path(set.IPLEDGER_TOKENS),
    sourceSecretsFile: path(set.IPLEDGER_SOURCE_SECRETS),
    /** Undefined: both ports speak without TLS. */
    tls: readTlsFiles(set),
    logLevel: set.IPLEDGER_LOG_LEVEL,
    /** The server the CLI talks to; by default the one `serve` starts with the same environment. */
    isDefaultServer: set.IPLEDGER_URL === undefined,
    clientUrl: set.IPLEDGER_URL ?? `http${set.IPLEDGER_TLS_CERT ? 's' : ''}://127.0.0.1:${set.IPLEDGER_PORT}`,
    clientToken: set.IPLEDGER_TOKEN,
    clientNetwork: set.IPLEDGER_NETWORK,
    clientTls: { ca: path(set.IPLEDGER_CA), cert: path(set.IPLEDGER_CERT), key: path(set.IPLEDGER_KEY) },
    writeConnections: set.IPLEDGER_WRITE_CONNECTIONS,
    readConnections: set.IPLEDGER_READ_CONNECTIONS,
    jobConnections: set.IPLEDGER_JOB_CONNECTIONS,
    batchLeases: set.IPLEDGER_BATCH_LEASES,
    deadlineMs: set.IPLEDGER_DEADLINE_SECONDS * 1000,
    imageAddresses: set.IPLEDGER_IMAGE_ADDRESSES,
    commitsAreNeverLost: set.IPLEDGER_SYNCHRONOUS_REPLICATION === 'yes',
    telemetry: readTelemetry(set),
    metricsPort: set.IPLEDGER_METRICS_PORT,
  }
}

function readTlsFiles(set: z.infer<typeof environment>) {
  const { IPLEDGER_TLS_CERT: cert, IPLEDGER_TLS_KEY: key, IPLEDGER_TLS_CLIENT_CA: clientCa } = set
  const clientRequired = set.IPLEDGER_TLS_CLIENT_REQUIRED === 'yes'
  if (clientRequired && clientCa === undefined)
    throw new StartRefused('IPLEDGER_TLS_CLIENT_REQUIRED takes IPLEDGER_TLS_CLIENT_CA: set both, or neither.')
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined
  if (cert === undefined || key === undefined)
    throw new StartRefused('TLS takes both IPLEDGER_TLS_CERT and IPLEDGER_TLS_KEY: set both, or neither.')
  return { cert: resolve(cert), key: resolve(key), clientCa: clientCa && resolve(clientCa), clientRequired }
}

/**
 * Nothing is exported unless it is configured. OTLP is used if its endpoint is set; its default, a collector on this machine,
 * must be named.
 */
function readTelemetry(set: z.infer<typeof environment>) {
  const exporters = set.OTEL_METRICS_EXPORTER?.split(/ *, */)
  const hasEndpoint = (own: string | undefined) => (own ?? set.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined
  return {
    page: set.IPLEDGER_METRICS ? set.IPLEDGER_METRICS === 'yes' : exporters?.includes('prometheus') === true,
    pushed: exporters?.includes('otlp') ?? hasEndpoint(set.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT),
    pushEveryMs: set.OTEL_METRIC_EXPORT_INTERVAL,
    traces: set.OTEL_TRACES_EXPORTER
      ? set.OTEL_TRACES_EXPORTER === 'otlp'
      : hasEndpoint(set.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT),
    sampler: { name: set.OTEL_TRACES_SAMPLER, ratio: Number(set.OTEL_TRACES_SAMPLER_ARG) },
  }
}

/** A URL may hold a password: it is never repeated. */
function was(value: string | undefined): string {
  return value === undefined || value.includes('://') || value.includes('@') ? '' : ` (it is "${value}")`
}
