/** Runs the commands `serve`, `worker` and `migrate` of `process.ts`. */
import { existsSync } from 'node:fs'
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Config, readConfig } from '../config.ts'
import { callersUrl, openJobs, openService, openWriter, type ProcessOptions } from '../serve.ts'
import { createLogger, type Logger } from '../telemetry.ts'
import { whereOf } from './on-database.ts'
import { awaitSignals } from './stopping.ts'

export function serve({ worker }: { readonly worker: boolean }): Promise<void> {
  return untilStopped(async (config, log, open, options) => {
    const { server } = await openService(config, log, open, { worker, ...options })
    return welcome(config, server)
  })
}

export function runWorker(): Promise<void> {
  return untilStopped(async (config, log, open, options) => {
    const port = await openJobs(config, log, open, options)
    const metrics = port === null ? '' : ` Metrics: ${callersUrl(config.host, port)}/metrics`
    return `ipledger worker is running.${metrics}`
  })
}

export async function runMigrate(): Promise<void> {
  const config = readConfig()
  const admin = config.databaseAdminUrl ?? config.databaseUrl
  console.error(`ipledger migrate: ${whereOf({ ...config, databaseUrl: admin })}`)
  await using open = new AsyncDisposableStack()
  await openWriter(config, createLogger(config.logLevel), open, 'share', {})
  console.log('The database is up to date.')
}

type Opened = [config: Config, log: Logger, open: AsyncDisposableStack, options: ProcessOptions]

/** `start` returns the text to print once it is ready. */
async function untilStopped(start: (...opened: Opened) => Promise<string>): Promise<void> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const { stopped, signal, fail } = awaitSignals(log)
  await using open = new AsyncDisposableStack()
  const text = await start(config, log, open, { stopping: signal, onFailure: fail })
  signal.throwIfAborted()
  console.log(text)
  await stopped
}

const LAUNCHER = fileURLToPath(
  new URL(`${extname(import.meta.filename) === '.ts' ? '' : '../'}../../bin/ipledger.js`, import.meta.url),
)
/** An image has no launcher. */
const ALIAS = existsSync(LAUNCHER) ? `  alias ipledger=${LAUNCHER}\n` : ''

/** Its commands work as they are printed. */
export function welcome(
  { host, tls, tokensFile, databaseUrl, directory }: Config,
  { httpPort, grpcPort }: { readonly httpPort: number; readonly grpcPort: number },
): string {
  const url = callersUrl(host, httpPort, tls !== undefined)
  const settings = [
    ...(url === 'http://127.0.0.1:8080' ? [] : [`IPLEDGER_URL=${url} `]),
    ...(tls === undefined ? [] : ['IPLEDGER_CA=… ']),
    ...(tokensFile === undefined ? [] : ['IPLEDGER_TOKEN=… ']),
  ].join('')
  const where = databaseUrl === undefined ? `data in ${directory}` : 'data in the database of DATABASE_URL'
  return `
ipledger is ready: ${url} (gRPC on port ${grpcPort}), ${where}

Create a pool, reserve an address, look at it:

${ALIAS}  ${settings}ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ${settings}ipledger reserve --kind container --name hello --pool web
  ${settings}ipledger lease list
`
}
