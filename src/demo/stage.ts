/**
 * Where a demo plays: what `ipledger serve --no-worker` runs (its own PostgreSQL, the API over HTTP), in a directory of
 * its own and on ports of its own. Nothing of the caller's environment is used, and nothing is left behind, unless a
 * directory is named: that one keeps the data.
 *
 * Who acts is told apart by tokens, as in earnest. Jobs are those of the worker, which begins them once a minute; here
 * they are run when the play wants them.
 */
import { chmod, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Role } from '../api/rights.ts'
import { createToken } from '../api/tokens.ts'
import { openService } from '../cli/serve.ts'
import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig, StartRefused } from '../config.ts'
import { createClearQuarantine } from '../jobs/clear-quarantine.ts'
import type { JobContext } from '../jobs/job.ts'
import { createVerifySuspects } from '../jobs/verify-suspects.ts'
import { type NetworkVerified, verify } from '../ledger/verify.ts'
import { createAskedSources } from '../liveness/asked.ts'
import { createPool } from '../postgres/connect.ts'
import { createLogger } from '../telemetry.ts'

export type Stage<Name extends string> = Readonly<{
  url: string
  as: Readonly<Record<Name, IpledgerClient>>
  /** Runs the jobs that judge, `verify-suspects` and `clear-quarantine`. */
  judge: () => Promise<void>
  /** As `ipledger verify --full`. */
  verify: () => Promise<readonly NetworkVerified[]>
}>

const JOB_CONNECTIONS = 2

// They don't stay for answers that are on their way: the next run has them.
const verifySuspects = createVerifySuspects({ stayMs: 0 })
const clearQuarantine = createClearQuarantine()

/** Closed with `open`. */
export async function openStage<Name extends string>(
  open: AsyncDisposableStack,
  options: Readonly<{
    callers: Readonly<Record<Name, Role>>
    directory: string | undefined
    onFailure: (error: Error) => void
  }>,
): Promise<Stage<Name>> {
  const { onFailure } = options
  const directory = await emptyDirectory(options.directory, open)
  const file = join(directory, 'tokens.jsonl')
  const callers = Object.entries<Role>(options.callers)
  const tokens = callers.map(([name, role]) => [name, createToken({ file, name, role })] as const)
  const config = readConfig({
    IPLEDGER_DIR: directory,
    IPLEDGER_PORT: '0',
    IPLEDGER_GRPC_PORT: '0',
    IPLEDGER_TOKENS: file,
    IPLEDGER_LOG_LEVEL: 'error',
  })
  const log = createLogger(config.logLevel)
  const { database, ledger, server } = await openService(config, log, open, { worker: false, onFailure })
  const connections = createPool({
    url: database.serviceUrl,
    applicationName: 'ipledger jobs',
    max: JOB_CONNECTIONS,
    onLost: (error) => log.warn({ err: error }, 'a connection of the jobs was lost'),
  })
  open.defer(() => connections.end())
  const asked = createAskedSources({ log, secrets: {} })
  open.defer(() => asked.close())
  const context: JobContext = {
    database: connections,
    ledger,
    intake: { database: connections, log },
    asked,
    log,
    signal: new AbortController().signal,
  }

  const url = `http://127.0.0.1:${server.httpPort}`
  return {
    url,
    as: Object.fromEntries(
      tokens.map(([name, token]) => [name, createClient({ url, token })]),
    ) as Stage<Name>['as'],
    judge: async () => {
      await verifySuspects(context)
      await clearQuarantine(context)
    },
    verify: async () => (await verify({ url: database.serviceUrl, full: true })).networks,
  }
}

async function emptyDirectory(wanted: string | undefined, open: AsyncDisposableStack): Promise<string> {
  if (wanted !== undefined) {
    // Where PostgreSQL runs as another user than we, that user must be able to pass through.
    await mkdir(wanted, { recursive: true, mode: 0o711 })
    if ((await readdir(wanted)).length === 0) return wanted
    throw new StartRefused(`${wanted} is not empty: the demo keeps its data in a directory of its own.`)
  }
  const made = await mkdtemp(join(tmpdir(), 'ipledger-demo-'))
  open.defer(() => rm(made, { recursive: true, force: true }))
  await chmod(made, 0o711)
  return made
}
