/** Debian's PgBouncer before a server, as an operator sets it up who lets it ask the server for passwords. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { readUrl, withClient } from '../../src/postgres/connect.ts'
import { freePort } from '../support/free-port.ts'
import { HOME } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

/** Debian's `nobody`: it does not run as root. */
const NOBODY = 65534

export type PgBouncer = {
  /** The same database and login, through it. */
  through(url: string): string
}

/** For one test. `settings` as in its file. `server` is the superuser's URL. */
export async function usePgBouncer(
  server: string,
  settings: Readonly<Record<string, string | number>>,
): Promise<PgBouncer> {
  const { host, port, user, password } = readUrl(server)
  const directory = mkdtempSync(join(HOME, 'ipledger-pgbouncer-'))
  const listenPort = await freePort()
  const lines = {
    listen_addr: '127.0.0.1',
    listen_port: listenPort,
    unix_socket_dir: '',
    auth_type: 'scram-sha-256',
    auth_file: join(directory, 'userlist.txt'),
    auth_user: user,
    // Its own default, for a login that may read it.
    auth_query: 'select usename, passwd from pg_shadow where usename = $1',
    ...settings,
  }
  const file = join(directory, 'pgbouncer.ini')
  writeFileSync(lines.auth_file, `"${user}" "${password}"\n`)
  writeFileSync(
    file,
    `[databases]\n* = host=${host} port=${port}\n[pgbouncer]\n${Object.entries(lines)
      .map(([name, value]) => `${name} = ${value}\n`)
      .join('')}`,
  )
  chmodSync(directory, 0o711)
  const isRoot = process.getuid?.() === 0
  if (isRoot) for (const one of [file, lines.auth_file]) chownSync(one, NOBODY, NOBODY)
  const child = spawn('/usr/sbin/pgbouncer', ['-q', file], {
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(isRoot && { uid: NOBODY, gid: NOBODY }),
  })
  let output = ''
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    output += chunk
  })
  onTestFinished(async () => {
    if (child.exitCode === null && child.kill('SIGTERM')) await once(child, 'exit')
    rmSync(directory, { recursive: true, force: true })
  })
  const through = (url: string) => url.replace(/(@|\/\/)[^@/]*(?=\/)/, `$1127.0.0.1:${listenPort}`)
  await waitFor(
    () => {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${output}`)
      return withClient({ url: through(server), applicationName: 'test' }, async () => true)
    },
    { what: 'PgBouncer to let a login in', timeout: 10_000 },
  )
  return { through }
}
