/** `serve`, `worker` and `migrate`: a process of the service, until it is asked to stop. */
import { type Config, readConfig } from '../config.ts'
import { migrateDatabase, startService, startWorkerAlone } from '../main.ts'
import { createLogger, type Logger } from '../telemetry.ts'
import { awaitSignals } from './stopping.ts'

/** API and, unless told otherwise, worker. */
export function serve({ worker }: { readonly worker: boolean }): Promise<void> {
  return untilStopped(
    (config, log, onFailure) => startService(config, { worker, log, onFailure }),
    (config, { url, grpcUrl }) => welcome(config, url, grpcUrl),
  )
}

/** The jobs alone. */
export function runWorker(): Promise<void> {
  return untilStopped(
    (config, log, onFailure) => startWorkerAlone(config, { log, onFailure }),
    (_, { url }) => `ipledger worker is running.${url === null ? '' : ` Metrics: ${url}/metrics`}`,
  )
}

export async function runMigrate(): Promise<void> {
  const config = readConfig()
  await migrateDatabase(config, { log: createLogger(config.logLevel) })
  console.log('The database is up to date.')
}

async function untilStopped<S extends { stop(): Promise<void> }>(
  start: (config: Config, log: Logger, onFailure: (error: Error) => void) => Promise<S>,
  told: (config: Config, started: S) => string,
): Promise<void> {
  const config = readConfig()
  const log = createLogger(config.logLevel)
  const stopping = awaitSignals(log)
  const started = await start(config, log, stopping.fail)
  try {
    console.log(told(config, started))
    await stopping.asked
  } finally {
    await started.stop()
  }
}

/** What a person sees who starts it: commands that work as they are printed. */
export function welcome(config: Config, url: string, grpcUrl: string): string {
  const settings = [
    ...(url === 'http://127.0.0.1:8080' ? [] : [`IPLEDGER_URL=${url} `]),
    ...(config.tokensFile === undefined ? [] : ['IPLEDGER_TOKEN=… ']),
  ].join('')
  const place =
    config.databaseUrl === undefined ? `data in ${config.directory}` : 'data in the database of DATABASE_URL'
  return `
ipledger is ready: ${url} (gRPC on port ${new URL(grpcUrl).port}), ${place}

Create a pool, reserve an address, look at it:

  ${settings}npx ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1
  ${settings}npx ipledger reserve --kind container --name hello --pool web
  ${settings}npx ipledger lease list
`
}
