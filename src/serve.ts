/**
 * Assembles the processes of the service. Parts are opened in order and closed in reverse order. A start that fails leaves
 * nothing running.
 */
import { HealthState } from './api/http/health.ts'
import { checkPort, startPages } from './api/http/pages.ts'
import { ApiServer } from './api/http/server.ts'
import { isLoopback, loopbackTokens, openTokens, type Tokens } from './api/tokens.ts'
import { type Config, StartRefused } from './config.ts'
import { ownCommand } from './core/command.ts'
import { DatabaseGauges } from './database-gauges.ts'
import { Worker } from './jobs/worker.ts'
import { loadedImage, Unavailable } from './ledger/ledger.ts'
import { type LedgerOptions, type OpenLedger, openLedger } from './ledger/open.ts'
import { Reads } from './ledger/reads.ts'
import { createPool } from './postgres/connect.ts'
import { type Database, openDatabase } from './postgres/database.ts'
import { checkRowLocks } from './postgres/locks.ts'
import { Intake } from './sources/intake.ts'
import { PulledSources } from './sources/pulled-sources.ts'
import { readSourceSecrets } from './sources/settings.ts'
import { addGauges, currentTraceId, type Logger, observeLedger, type Reading } from './telemetry.ts'

export type ProcessOptions = {
  /** The embedded PostgreSQL died. */
  readonly onFailure?: ((error: Error) => void) | undefined
  /** Ends a start between two of its steps. */
  readonly stopping?: AbortSignal
}
/** Tests have another clock, and leave checks out. */
type Options = ProcessOptions & Pick<LedgerOptions, 'clock' | 'checks'>

export type Service = {
  readonly database: Database
  readonly ledger: OpenLedger
  readonly server: ApiServer
}

/** For reports of sources: each takes one for a few milliseconds. Not measured. */
const INTAKE_CONNECTIONS = 8
/** For statements of jobs; a job that waits holds none. */
const JOB_CONNECTIONS = 4
const NETWORK = 'default'

/** All that `serve` runs, ready; closed with `open`. */
export async function openService(
  config: Config,
  log: Logger,
  open: AsyncDisposableStack,
  options: Options & { readonly worker: boolean },
): Promise<Service> {
  const tokens = open.adopt(chooseTokens(config, log), (one) => one.close())
  // If a port is taken, no database is made.
  await checkPort(config.host, config.port, 'IPLEDGER_PORT')
  await checkPort(config.host, config.grpcPort, 'IPLEDGER_GRPC_PORT')
  const { connect, startJobs, ...parts } = await openParts(config, log, open, 'own', options)
  const { database, ledger } = parts
  const pool = connect('ipledger reads', config.readConnections)
  const reads = new Reads(pool)
  const gauges = new DatabaseGauges(pool, log)
  open.defer(addGauges(() => gauges.collect()))
  const worker = options.worker ? { worker: (await startJobs()).trouble } : {}
  const loading = new AbortController()
  open.defer(() => loading.abort())
  const loaded = loadImages(ledger, reads, log, loading.signal)
  options.stopping?.throwIfAborted()
  const server = await ApiServer.start({ ...parts, reads, tokens, config, logger: log, loaded, ...worker })
  open.defer(() => server.close())
  open.defer(addGauges(() => [['ipledger.watches', [], server.watches()]]))
  return { database, ledger, server }
}

/** Loads the images of all networks, one after the other. The returned function says whether that has ended. */
function loadImages(ledger: OpenLedger, reads: Reads, log: Logger, signal: AbortSignal): () => boolean {
  let isLoaded = false
  const load = async () => {
    for (let after: string | null = null; ; ) {
      const networks = await reads.networks({ labels: {}, only: null, after, limit: 1_000 })
      // A network that cannot be served must not delay the others.
      for (const { name } of networks)
        await loadedImage(ledger, name).catch((error) =>
          log.warn({ network: name, err: error }, 'image not loaded'),
        )
      after = networks.at(-1)?.name ?? null
      if (after === null || signal.aborted) return
    }
  }
  load()
    .catch((error) => signal.aborted || log.warn({ err: error }, 'images are loaded at first use'))
    .finally(() => {
      isLoaded = true
    })
  return () => isLoaded
}

/** The jobs alone, ready. Returns the port of their metrics; null: there is none. */
export async function openJobs(
  config: Config,
  log: Logger,
  open: AsyncDisposableStack,
  options: ProcessOptions,
): Promise<number | null> {
  const tokens = config.telemetry.page ? chooseTokens(config, log) : null
  open.defer(() => tokens?.close())
  if (tokens !== null) await checkPort(config.host, config.metricsPort, 'IPLEDGER_METRICS_PORT')
  const { metrics, connect, startJobs } = await openParts(config, log, open, 'share', options)
  const { trouble } = await startJobs()
  if (tokens === null) return null
  // A worker serves no methods, so its metrics and its state have a port of their own.
  const reads = new Reads(connect('ipledger probes', 1))
  const stopping = new AbortController()
  const health = new HealthState({ reads, services: [], stopping: stopping.signal, worker: trouble })
  const where = { host: config.host, port: config.metricsPort }
  const pages = await startPages({ health, tokens, metrics, log }, where)
  open.defer(() => pages.close())
  open.defer(() => stopping.abort())
  return pages.port
}

async function openParts(
  config: Config,
  log: Logger,
  open: AsyncDisposableStack,
  embedded: 'own' | 'share',
  options: Options,
) {
  const secrets = readSourceSecrets(config.sourceSecretsFile)
  const { page, pushed, traces } = config.telemetry
  const telemetry = page || pushed || traces ? await import('./telemetry-export.ts') : null
  const metrics = telemetry?.startTelemetry(config.telemetry, log, open) ?? null
  const { database, ledger } = await openWriter(config, log, open, embedded, options)
  const connect = (applicationName: string, max: number, url = database.serviceUrl) => {
    const onLost = (err: Error): void => log.warn({ err }, `a connection of ${applicationName} was lost`)
    return open.adopt(createPool({ url, applicationName, max, onLost }), (one) => one.end())
  }
  const intake = new Intake({ ledger, database: connect('ipledger intake', INTAKE_CONNECTIONS), log })
  const startJobs = async () => {
    const pools = {
      jobs: connect('ipledger jobs', config.jobConnections, database.jobsUrl),
      database: connect('ipledger jobs', JOB_CONNECTIONS),
    }
    const pulled = new PulledSources(secrets)
    return open.adopt(await new Worker().start({ ...pools, ledger, intake, pulled, log }), (one) =>
      one.stop(),
    )
  }
  return { metrics, database, ledger, intake, secrets, connect, startJobs }
}

/** The database, up to date, and its ledger. */
export async function openWriter(
  config: Config,
  log: Logger,
  open: AsyncDisposableStack,
  embedded: 'own' | 'share',
  { onFailure, stopping, clock, checks }: Options,
): Promise<Pick<Service, 'database' | 'ledger'>> {
  const database = open.adopt(await openDatabase(config, { log, embedded, onFailure }), (one) => one.stop())
  stopping?.throwIfAborted()
  const ledger = await openLedger({
    url: database.serviceUrl,
    connections: config.writeConnections,
    losesNothing: config.commitsAreNeverLost,
    limits: {
      batch: config.batchLeases,
      deadlineMs: config.deadlineMs,
      touched: config.imageAddresses,
    },
    traceId: currentTraceId,
    observer: observeLedger(log),
    clock,
    checks,
  })
  open.defer(() => ledger.close())
  const gaugesOf = ({ network, queued, records }: ReturnType<OpenLedger['stats']>[number]): Reading[] => [
    ['ipledger.queue.commands', [network], queued],
    ['ipledger.image.records', [network], records],
  ]
  open.defer(addGauges(() => ledger.stats().flatMap(gaugesOf)))
  await ensureDefaultNetwork(ledger, log)
  await checkRowLocks(database.serviceUrl, NETWORK)
  return { database, ledger }
}

/** The network of calls that name none. */
async function ensureDefaultNetwork(ledger: OpenLedger, log: Logger): Promise<void> {
  try {
    if ((await loadedImage(ledger, NETWORK)) !== null) return
  } catch (error) {
    // A network that must be rebuilt must not stop the others (azure#4449).
    if (!(error instanceof Unavailable)) throw error
    if (error.refusal.reason !== 'NETWORK_RECOVERING')
      throw new StartRefused(`Network ${NETWORK}: ${error.message}`)
    log.error({ network: NETWORK, err: error }, 'a network is not served')
    return
  }
  const outcome = await ledger.submit({
    ...ownCommand(NETWORK, 'migrate', 'migrate'),
    type: 'createNetwork',
    settings: { description: '', labels: {} },
  })
  if (outcome.ok) log.info({ network: NETWORK }, 'network created')
  // Another starter may have been faster.
  else if ((await ledger.image(NETWORK)) === null)
    throw new Error(`network ${NETWORK} could not be created: ${outcome.refusal.message}`)
}

function chooseTokens(config: Config, log: Logger): Tokens {
  if (config.tokensFile !== undefined) return openTokens(config.tokensFile, log)
  if (!isLoopback(config.host)) {
    throw new StartRefused(
      `Without tokens every caller is admin, so ipledger listens on ${config.host} only with a file of tokens: ` +
        'make one with "ipledger token create" and let IPLEDGER_TOKENS name it, or unset IPLEDGER_HOST.',
    )
  }
  return loopbackTokens()
}

/** Of a server on this machine. One that listens everywhere is called at the loopback interface. */
export function callersUrl(host: string, port: number, isTls = false): string {
  const reached = ['0.0.0.0', '::', 'localhost'].includes(host) ? '127.0.0.1' : host
  return `http${isTls ? 's' : ''}://${reached.includes(':') ? `[${reached}]` : reached}:${port}`
}
