/** The service in this process, on a database of its own, whose time a test can move. */
import { afterAll } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { ownCommand } from '../../src/core/command.ts'
import { GUARDS } from '../../src/core/guards.ts'
import { isHeld } from '../../src/core/image.ts'
import type { Job, JobContext } from '../../src/jobs/job.ts'
import { judge } from '../../src/jobs/judge.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import type { Clock } from '../../src/ledger/clock.ts'
import { ALL_CHECKS, type LoopChecks } from '../../src/ledger/loop-options.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { callersUrl, openService, type Service } from '../../src/serve.ts'
import { Intake } from '../../src/sources/intake.ts'
import { PulledSources } from '../../src/sources/pulled-sources.ts'
import { createLogger } from '../../src/telemetry.ts'
import { TestClock } from './clock.ts'
import { type TestDatabase, useTestDatabase } from './database.ts'
import { type Rpc, rpc } from './rpc.ts'
import { expectVerified } from './verified.ts'
import { waitFor } from './wait-for.ts'

type Started = Pick<Service, 'ledger' | 'server'> & {
  readonly url: string
  readonly grpcUrl: string
  stop(): Promise<void>
}

/** Time that has passed because a test said so, in milliseconds. */
export type TestTime = { movedBy: number }

/** What a service checks at the moment. */
export type Checks = { -readonly [check in keyof LoopChecks]: LoopChecks[check] }

export type TestService = Started &
  AsyncDisposable & {
    readonly database: TestDatabase
    readonly time: TestTime
    readonly checks: Checks
    /** What a server is made of besides, for another one. */
    readonly reads: Reads
    readonly intake: Intake
    /** Without a token. */
    readonly call: Rpc
    /** One run of a job by its name in the schedule, in one network. */
    run(job: string, network: string): Promise<Readonly<Record<string, number>>>
  }

/** At the top of a test file; everything ends after its tests, and the logs verify. */
export async function useService(env: Readonly<Record<string, string>> = {}): Promise<TestService> {
  const database = await useTestDatabase()
  const service = await serviceOn({ database }, env)
  // Until then it asks for the images of the networks it finds, also of those that a test has just made.
  await waitFor(async () => (await fetch(`${service.url}/readyz`)).ok, { what: 'the service to be ready' })
  afterAll(async () => {
    await service.stop()
    await expectVerified(database)
  })
  return service
}

/** Another process on a database: a replica, or the next life of the service. */
export async function serviceOn(
  {
    database,
    time = { movedBy: 0 },
    checks = { ...ALL_CHECKS },
    clock = new TestClock({ movedBy: () => time.movedBy }),
  }: {
    readonly database: TestDatabase
    readonly time?: TestTime
    readonly checks?: Checks
    readonly clock?: Clock
  },
  env: Readonly<Record<string, string>> = {},
): Promise<TestService> {
  const started = await start(database.adminUrl, clock, checks, env)
  const { ledger } = started
  const log = createLogger('silent')
  const pool = createPool({ url: database.serviceUrl, applicationName: 'test jobs', max: 4 })
  const pulled = new PulledSources({})
  const intake = new Intake({ ledger, database: pool, log })
  const context: JobContext = {
    database: pool,
    ledger,
    intake,
    pulled,
    log,
    signal: new AbortController().signal,
  }
  // It judges what is there: a test answers between two runs.
  const schedule: Readonly<Record<string, { readonly run: Job }>> = {
    ...createSchedule(),
    judge: { run: (given) => judge(given, { stayMs: 0, guards: checks.guards }) },
  }
  const stop = async () => {
    await started.stop()
    await pool.end()
  }
  return {
    ...started,
    database,
    time,
    checks,
    reads: new Reads(pool),
    intake,
    call: rpc(started.url),
    async run(name, network) {
      const job = schedule[name]
      if (job === undefined) throw new Error(`there is no job ${name}`)
      const done = await job.run({ ...context, database: within(pool, network) })
      if (name === 'expire' && checks.guards !== GUARDS) await expireAll(context, network)
      return done
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

/** Without jobs, on free ports of loopback. */
async function start(
  databaseUrl: string,
  clock: Clock,
  checks: Checks,
  env: Readonly<Record<string, string>>,
): Promise<Started> {
  const config = readConfig({
    DATABASE_URL: databaseUrl,
    IPLEDGER_PORT: '0',
    IPLEDGER_GRPC_PORT: '0',
    IPLEDGER_LOG_LEVEL: 'silent',
    // A busy machine may take longer than the default.
    IPLEDGER_DEADLINE_SECONDS: '60',
    ...env,
  })
  const open = new AsyncDisposableStack()
  try {
    const log = createLogger(config.logLevel)
    const options = { worker: false, clock, checks }
    const { ledger, server } = await openService(config, log, open, options)
    return {
      url: callersUrl(config.host, server.httpPort),
      grpcUrl: callersUrl(config.host, server.grpcPort),
      ledger,
      server,
      stop: () => open.disposeAsync(),
    }
  } catch (error) {
    await open.disposeAsync()
    throw error
  }
}

/** The job knows all rules. Where some are taken out, the ledger is asked about every promise. */
async function expireAll({ ledger }: JobContext, network: string): Promise<void> {
  const records = (await ledger.image(network))?.records.values() ?? []
  for (const { token, seq: version } of [...records].filter(isHeld))
    await ledger.submit({
      ...ownCommand(network, 'job:expire', 'NEVER_CONFIRMED'),
      type: 'expire',
      token,
      version,
    })
}

const LIST_NETWORKS = 'select network_id from ipledger.network order by network_id'

/** The same connections, in a world of one network: what other scenes of the file have left is not walked again. */
function within(pool: JobContext['database'], network: string): JobContext['database'] {
  const connect = async () => {
    const client = await pool.connect()
    const query = client.query.bind(client) as (...args: unknown[]) => unknown
    return new Proxy(client, {
      get(target, key) {
        if (key !== 'query') {
          const value = Reflect.get(target, key)
          return typeof value === 'function' ? value.bind(target) : value
        }
        return (text: unknown, ...rest: unknown[]) =>
          text === LIST_NETWORKS ? Promise.resolve({ rows: [{ network_id: network }] }) : query(text, ...rest)
      },
    })
  }
  return { connect } as unknown as JobContext['database']
}
