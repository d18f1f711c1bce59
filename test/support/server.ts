import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { lockDirectory } from '../../src/postgres/directory-lock.ts'
import { EMBEDDED_SETTINGS, embeddedBinaries } from '../../src/postgres/embedded.ts'
import { type Binaries, runServer, type ServerProcess } from '../../src/postgres/server-process.ts'
import { CITUS_SETTINGS, ON_CITUS } from './citus.ts'

const PREFIX = 'ipledger-test-'
const PASSWORD = 'test'
/** In memory where the machine has it: a cluster is made in a third of the time. fsync stays on: the service refuses a server without it. */
export const HOME = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

type TestServer = Pick<ServerProcess, 'url' | 'pid' | 'stop'> & {
  /** Stops it in order; starts it on what `meanwhile` makes of its directory. Default: at the same port. */
  readonly restart: (
    meanwhile: (dataDirectory: string) => void | Promise<void>,
    port?: number,
  ) => Promise<void>
}

/**
 * A PostgreSQL server of its own: for all test files (`postgres.ts`), and for the few that stop it, or change roles,
 * which belong to the whole server. `fill` may put the data of another server there. IPLEDGER_TEST_POSTGRES=15 takes
 * Debian's PostgreSQL of that version instead of the embedded one, `citus` the same with Citus (`citus.ts`).
 */
export async function startTestServer(
  settings: Readonly<Record<string, string>> = {},
  fill: (dataDirectory: string) => Promise<void> = async () => {},
): Promise<TestServer> {
  sweep()
  const directory = mkdtempSync(join(HOME, PREFIX))
  // PostgreSQL does not run as root; the user it runs as must pass through.
  chmodSync(directory, 0o711)
  const lock = lockDirectory(directory)!
  await fill(join(directory, 'postgres'))
  const binaries = await chosenBinaries()
  let restarted: Promise<void> | undefined
  const run = (port?: number): Promise<ServerProcess> =>
    runServer({
      binaries,
      dataDirectory: join(directory, 'postgres'),
      password: PASSWORD,
      port,
      settings: {
        ...EMBEDDED_SETTINGS,
        shared_buffers: '128MB',
        max_wal_size: '512MB',
        min_wal_size: '64MB',
        ...(ON_CITUS && CITUS_SETTINGS),
        ...settings,
      },
      log: pino({ level: 'warn' }),
      // As an operator's own server would be, for those who kill it.
      onFailure: () => {
        restarted = run(server.port).then((again) => {
          server = again
        })
      },
    })
  let server = await run()
  return {
    url: (database) => server.url(database),
    pid: () => server.pid(),
    restart: async (meanwhile, port = server.port) => {
      await server.stop()
      await meanwhile(join(directory, 'postgres'))
      server = await run(port)
    },
    stop: async () => {
      await restarted
      await server.stop()
      lock.release()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

async function chosenBinaries(): Promise<Binaries> {
  const version = process.env.IPLEDGER_TEST_POSTGRES
  if (version === undefined || version === '' || version === '18') return embeddedBinaries()
  const bin = `/usr/lib/postgresql/${ON_CITUS ? '15' : version}/bin`
  if (!existsSync(bin)) throw new Error(`IPLEDGER_TEST_POSTGRES=${version}: there is no ${bin}`)
  return { postgres: join(bin, 'postgres'), initdb: join(bin, 'initdb') }
}

/** What runs that were killed left in memory: nobody holds their lock any more. */
function sweep(): void {
  for (const name of readdirSync(HOME)) {
    if (!name.startsWith(PREFIX) || !existsSync(join(HOME, name, 'lock'))) continue
    const lock = lockDirectory(join(HOME, name))
    if (lock === undefined) continue
    lock.release()
    // Its server may still be shutting down; the next sweep removes it.
    if (existsSync(join(HOME, name, 'postgres', 'postmaster.pid'))) continue
    rmSync(join(HOME, name), { recursive: true, force: true })
  }
}
