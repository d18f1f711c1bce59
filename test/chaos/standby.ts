/** A standby that streams from a primary, as an operator would make it; and one that is promoted. */
import { spawnSync } from 'node:child_process'
import { chown, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type pg from 'pg'
import { readUrl } from '../../src/postgres/connect.ts'
import { withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

type Server = Awaited<ReturnType<typeof startTestServer>>

type Standby = Server & {
  /** Resolves when all that the primary has committed until now has arrived. */
  caughtUp(): Promise<void>
  promote(): Promise<void>
}

/** `through` is how it reaches the primary: behind a proxy it can be cut off. */
export async function startStandby(
  primary: Server,
  through: string = primary.url('postgres'),
): Promise<Standby> {
  const { host, port, user, password } = readUrl(through)
  const server = await startTestServer(
    { primary_conninfo: `host=${host} port=${port} user=${user} password=${password}` },
    (dataDirectory) => on(primary, (admin) => backUp(admin, dataDirectory)),
  )
  return {
    ...server,
    async caughtUp() {
      const lsn = await on(primary, async (admin) => {
        const { rows } = await admin.query<{ lsn: string }>('select pg_current_wal_lsn()::text as lsn')
        return rows[0]!.lsn
      })
      const arrived = () =>
        on(server, async (admin) => {
          const { rows } = await admin.query<{ there: boolean }>(
            'select pg_last_wal_replay_lsn() >= $1::pg_lsn as there',
            [lsn],
          )
          return rows[0]!.there
        })
      await waitFor(arrived, { what: 'the standby to have it all' })
    },
    promote: () => on(server, async (admin) => void (await admin.query('select pg_promote()'))),
  }
}

/** Of a server that runs files may vanish meanwhile, and a base backup does not need them (PostgreSQL's manual, Continuous Archiving). */
function copy(from: string, to: string): void {
  const { stderr } = spawnSync('cp', ['-a', from, to], { encoding: 'utf8' })
  const wrong = stderr
    .split('\n')
    .filter((line) => line !== '' && !line.endsWith(': No such file or directory'))
  if (wrong.length > 0) throw new Error(wrong.join('\n'))
}

/** A base backup, of a server that runs. */
async function backUp(admin: pg.Client, dataDirectory: string): Promise<void> {
  const { rows } = await admin.query<{ data_directory: string }>('show data_directory')
  const from = rows[0]!.data_directory
  await admin.query(`select pg_backup_start('test', true)`)
  copy(from, dataDirectory)
  const stopped = await admin.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)')
  // With what was written while it was copied.
  await rm(join(dataDirectory, 'pg_wal'), { recursive: true })
  copy(join(from, 'pg_wal'), join(dataDirectory, 'pg_wal'))
  for (const file of ['postmaster.pid', 'postmaster.opts', 'log']) {
    await rm(join(dataDirectory, file), { recursive: true, force: true })
  }
  const { uid, gid } = await stat(dataDirectory)
  for (const [file, content] of [
    ['backup_label', stopped.rows[0]!.labelfile],
    ['standby.signal', ''],
  ] as const) {
    await writeFile(join(dataDirectory, file), content)
    await chown(join(dataDirectory, file), uid, gid)
  }
}

function on<T>(server: Server, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  return withClient(server.url('postgres'), work)
}
