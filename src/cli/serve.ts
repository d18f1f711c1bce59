/**
 * The processes of the service, put together: what each needs is opened in order, and closed in the other order
 * however it ends. A start that fails leaves nothing running.
 */

import { createHealth } from '../api/health.ts'
import { startPages } from '../api/pages.ts'
import { type RunningServer, startServer } from '../api/server.ts'
import { isLoopback, loopbackTokens, openTokens, type Tokens } from '../api/tokens.ts'
import { type Config, readConfig, StartRefused } from '../config.ts'
import { startWorker, type Worker } from '../jobs/worker.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { openLedger } from '../ledger/open.ts'
import { createReads } from '../ledger/reads.ts'
import { createObserved } from '../observed.ts'
import { createPool } from '../postgres/connect.ts'
import { type Database, openDatabase } from '../postgres/database.ts'
import { addGauges, createLogger, type Logger } from '../telemetry.ts'
import { startTelemetry, type Telemetry } from '../telemetry-export.ts'
import { ensureDefaultNetwork } from './default-network.ts'
import { closeBrokenNetworks } from './projections.ts'
import { beginErasAtStart } from './recovery.ts'
import { awaitSignals } from './stopping.ts'

/** API and, unless told otherwise, worker; until asked to stop. */
export async function serve(options: Readonly<{ worker: boolean }>): Promise<void> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const stopping = awaitSignals(log)
  await using open = new AsyncDisposableStack()

  const { server } = await openService(config, log, open, { ...options, onFailure: stopping.fail })
  console.log(welcome(config, server))
  await stopping.asked
}

/** For what sources report: each report is a few milliseconds of one of them. Not measured. */
const INTAKE_CONNECTIONS = 8

/** All that `serve` runs, ready; closed with `open`. */
export async function openService(
  config: Config,
  log: Logger,
  open: AsyncDisposableStack,
  options: Readonly<{ worker: boolean; onFailure: (error: Error) => void }>,
): Promise<Readonly<{ database: Database; ledger: Ledger; server: RunningServer }>> {
  const tokens = open.adopt(chooseTokens(config, log), (one) => one.close())
  const telemetry = open.adopt(await startTelemetry(config.telemetry, log), (one) => one.close())
  const database = await openDatabase(config, { log, embedded: 'own', onFailure: options.onFailure })
  open.defer(() => database.stop())
  const ledger = await openWriter(config, database, log, open)
  const pool = createPool({
    url: database.serviceUrl,
    applicationName: 'ipledger reads',
    max: config.readConnections,
    onLost: (error) => log.warn({ err: error }, 'a connection for reads was lost'),
  })
  open.defer(() => pool.end())
  const reads = createReads(pool)
  open.defer(addGauges(createObserved(pool, log).readings))
  const worker = options.worker ? await openWorker(config, database, log, open) : undefined
  const intake = createPool({
    url: database.serviceUrl,
    applicationName: 'ipledger intake',
    max: INTAKE_CONNECTIONS,
    onLost: (error) => log.warn({ err: error }, 'a connection of the intake was lost'),
  })
  open.defer(() => intake.end())
  const server = await startServer({
    ledger,
    reads,
    intake: { database: intake, log },
    tokens,
    config,
    logger: log,
    metrics: telemetry.page,
    ...(worker === undefined ? {} : { worker: worker.trouble }),
  })
  open.defer(() => server.close())
  return { database, ledger, server }
}

/** The jobs alone. */
export async function runWorker(): Promise<void> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const stopping = awaitSignals(log)
  await using open = new AsyncDisposableStack()

  const isAsked = config.telemetry.page
  const tokens = isAsked ? open.adopt(chooseTokens(config, log), (one) => one.close()) : undefined
  const telemetry = open.adopt(await startTelemetry(config.telemetry, log), (one) => one.close())
  const database = await openDatabase(config, { log, embedded: 'share', onFailure: stopping.fail })
  open.defer(() => database.stop())
  await openWriter(config, database, log, open)
  const worker = await openWorker(config, database, log, open)
  const pages = tokens && (await openPages(config, database, log, open, { tokens, telemetry, worker }))

  const said = pages === undefined ? '' : ` Metrics: ${callersUrl(config.host, pages.port)}/metrics`
  console.log(`ipledger worker is running.${said}`)
  await stopping.asked
}

/** A worker serves no methods: its metrics have a port of their own, and its state with them. */
async function openPages(
  config: Config,
  database: Database,
  log: Logger,
  open: AsyncDisposableStack,
  of: Readonly<{ tokens: Tokens; telemetry: Telemetry; worker: Worker }>,
): Promise<Readonly<{ port: number }>> {
  const pool = createPool({
    url: database.serviceUrl,
    applicationName: 'ipledger probes',
    max: 1,
    onLost: (error) => log.warn({ err: error }, 'a connection for probes was lost'),
  })
  open.defer(() => pool.end())
  const reads = createReads(pool)
  const stopping = new AbortController()
  const health = createHealth({
    look: () => reads.condition(),
    services: [],
    stopping: stopping.signal,
    worker: of.worker.trouble,
  })
  const pages = await startPages(
    { health, tokens: of.tokens, metrics: of.telemetry.page, log },
    { host: config.host, port: config.metricsPort },
  )
  open.defer(() => pages.close())
  open.defer(() => stopping.abort())
  return pages
}

export async function runMigrate(): Promise<void> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  await using open = new AsyncDisposableStack()

  const database = await openDatabase(config, { log, embedded: 'share', auditAnew: true })
  open.defer(() => database.stop())
  await openWriter(config, database, log, open)

  console.log('The database is up to date.')
}

async function openWriter(
  config: Config,
  database: Database,
  log: Logger,
  open: AsyncDisposableStack,
): Promise<Ledger> {
  const ledger = openLedger({
    url: database.serviceUrl,
    connections: config.writeConnections,
    commitsAreNeverLost: config.commitsAreNeverLost,
    limits: {
      queued: config.maxQueuedCommands,
      leasesPerBatch: config.batchLeases,
      defaultDeadlineMs: config.deadlineMs,
    },
    log,
  })
  open.defer(() => ledger.close())
  await closeBrokenNetworks(database.serviceUrl, log)
  await beginErasAtStart(ledger, database.serviceUrl)
  await ensureDefaultNetwork(ledger, database.serviceUrl, log)
  return ledger
}

async function openWorker(
  config: Config,
  database: Database,
  log: Logger,
  open: AsyncDisposableStack,
): Promise<Worker> {
  const { jobsUrl, serviceUrl } = database
  const worker = await startWorker({ jobsUrl, serviceUrl, config, log })
  open.defer(() => worker.stop())
  return worker
}

function chooseTokens(config: Config, log: Logger) {
  if (config.tokensFile !== undefined) return openTokens(config.tokensFile, log)
  if (!isLoopback(config.host)) {
    throw new StartRefused(
      `Without tokens every caller is admin, so ipledger listens on ${config.host} only with a file of tokens: ` +
        'make one with "ipledger token create" and let IPLEDGER_TOKENS name it, or unset IPLEDGER_HOST.',
    )
  }
  return loopbackTokens()
}

/** Of a server on this machine. Who listens everywhere is asked at the loopback interface. */
export function callersUrl(host: string, port: number): string {
  const reached = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  return `http://${reached.includes(':') ? `[${reached}]` : reached}:${port}`
}

/** What a person sees who starts it: commands that work as they are printed. */
export function welcome(config: Config, ports: Readonly<{ httpPort: number; grpcPort: number }>): string {
  const url = callersUrl(config.host, ports.httpPort)
  const settings = [
    ...(url === 'http://127.0.0.1:8080' ? [] : [`IPLEDGER_URL=${url} `]),
    ...(config.tokensFile === undefined ? [] : ['IPLEDGER_TOKEN=… ']),
  ].join('')
  const place =
    config.databaseUrl === undefined ? `data in ${config.directory}` : 'data in the database of DATABASE_URL'
  return `
ipledger is ready: ${url} (gRPC on port ${ports.grpcPort}), ${place}

Create a pool, reserve an address, look at it:

  ${settings}npx ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ${settings}npx ipledger reserve --kind container --name hello --pool web
  ${settings}npx ipledger lease list
`
}
