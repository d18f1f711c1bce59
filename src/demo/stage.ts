/**
 * What `ipledger serve --no-worker` runs (its own PostgreSQL, the API over HTTP), in a directory and on ports of its own. It
 * uses nothing of the caller's environment, and leaves nothing behind but a directory that was named.
 *
 * Callers have tokens, as in production. The worker begins its jobs once a minute; here the play runs them.
 */
import { chmod, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Role } from '../api/rights.ts'
import { createToken } from '../api/tokens.ts'
import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig, StartRefused } from '../config.ts'
import type { JobContext } from '../jobs/job.ts'
import { judge } from '../jobs/judge.ts'
import { createPool } from '../postgres/connect.ts'
import { callersUrl, openService } from '../serve.ts'
import { Intake } from '../sources/intake.ts'
import { PulledSources } from '../sources/pulled-sources.ts'
import { createLogger } from '../telemetry.ts'

const CALLERS = {
  admin: 'admin',
  orchestrator: 'orchestrator',
  'clean-up': 'orchestrator',
  reader: 'auditor',
} as const satisfies Readonly<Record<string, Role>>

export type Stage = Awaited<ReturnType<typeof openStage>>

/** Closed with `open`. */
export async function openStage(
  open: AsyncDisposableStack,
  wanted: string | undefined,
  onFailure: (error: Error) => void,
) {
  const directory = await emptyDirectory(wanted, open)
  const file = join(directory, 'tokens.jsonl')
  const tokens = Object.entries(CALLERS).map(
    ([name, role]) => [name, createToken({ file, name, role })] as const,
  )
  const config = readConfig({
    IPLEDGER_DIR: directory,
    IPLEDGER_TOKENS: file,
    IPLEDGER_LOG_LEVEL: 'error',
    IPLEDGER_PORT: '0',
    IPLEDGER_GRPC_PORT: '0',
  })
  const log = createLogger(config.logLevel)
  const { database: own, ledger, server } = await openService(config, log, open, { worker: false, onFailure })
  const database = createPool({ url: own.serviceUrl, applicationName: 'ipledger jobs', max: 2 })
  open.defer(() => database.end())
  const context: JobContext = {
    database,
    ledger,
    log,
    pulled: new PulledSources({}),
    signal: new AbortController().signal,
    intake: new Intake({ ledger, database, log }),
  }
  const url = callersUrl(config.host, server.httpPort)
  return {
    as: Object.fromEntries(tokens.map(([name, token]) => [name, createClient({ url, token })])) as Readonly<
      Record<keyof typeof CALLERS, IpledgerClient>
    >,
    url,
    /** Of who only looks. */
    token: new Map<string, string>(tokens).get('reader')!,
    /** Runs the job that judges. It does not wait for look-ups: the next run has the answers. */
    judge: () => judge(context, { stayMs: 0 }),
  }
}

async function emptyDirectory(wanted: string | undefined, open: AsyncDisposableStack): Promise<string> {
  if (wanted !== undefined) {
    // PostgreSQL may run as another user, who must be able to pass through.
    await mkdir(wanted, { recursive: true, mode: 0o711 })
    if ((await readdir(wanted)).length === 0) return wanted
    throw new StartRefused(`${wanted} is not empty: the demo keeps its data in a directory of its own.`)
  }
  const made = await mkdtemp(join(tmpdir(), 'ipledger-demo-'))
  open.defer(() => rm(made, { recursive: true, force: true }))
  await chmod(made, 0o711)
  return made
}
