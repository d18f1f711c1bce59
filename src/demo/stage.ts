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
import { createClient, type IpledgerClient } from '../client/client.ts'
import { readConfig, StartRefused } from '../config.ts'
import type { JobContext } from '../jobs/job.ts'
import { createJudge } from '../jobs/judge.ts'
import { createPool } from '../postgres/connect.ts'
import { callersUrl, openService } from '../serve.ts'
import { Intake } from '../sources/intake.ts'
import { PulledSources } from '../sources/pulled-sources.ts'
import { createLogger } from '../telemetry.ts'

const CALLERS = {
  admin: 'admin',
  orchestrator: 'orchestrator',
  'clean-up': 'orchestrator',
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
    IPLEDGER_PORT: '0',
    IPLEDGER_GRPC_PORT: '0',
    IPLEDGER_TOKENS: file,
    IPLEDGER_LOG_LEVEL: 'error',
  })
  const log = createLogger(config.logLevel)
  const { database, ledger, server } = await openService(config, log, open, { worker: false, onFailure })
  const pool = createPool({ url: database.serviceUrl, applicationName: 'ipledger jobs', max: 2 })
  open.defer(() => pool.end())
  const context: JobContext = {
    database: pool,
    ledger,
    intake: new Intake({ ledger, database: pool, log }),
    asked: new PulledSources({}),
    log,
    signal: new AbortController().signal,
  }
  const judge = createJudge({ stayMs: 0 })
  const url = callersUrl(config.host, server.httpPort)
  return {
    as: Object.fromEntries(tokens.map(([name, token]) => [name, createClient({ url, token })])) as Readonly<
      Record<keyof typeof CALLERS, IpledgerClient>
    >,
    /** Runs the job that judges. It does not stay for answers that are on their way: the next run has them. */
    judge: () => judge(context),
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
