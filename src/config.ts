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
})

export type LogLevel = (typeof LOG_LEVELS)[number]

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
}>

/** @throws StartRefused naming each variable that cannot be used, and what it must be. */
export function readConfig(env: Readonly<Record<string, string | undefined>> = process.env): Config {
  const parsed = environment.safeParse(env)
  if (!parsed.success) {
    throw new StartRefused(
      parsed.error.issues
        .map((issue) => `${String(issue.path[0])} ${issue.message}${was(env[String(issue.path[0])])}.`)
        .join('\n'),
    )
  }
  const set = parsed.data
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
  }
}

function wholeRemedy(least: number, most: number, fallback: number): string {
  return `must be a whole number from ${least} to ${most}; unset it for ${fallback}`
}

/** A URL may hold a password: it is never repeated. */
function was(value: string | undefined): string {
  return value === undefined || value.includes('://') || value.includes('@') ? '' : ` (it is "${value}")`
}
