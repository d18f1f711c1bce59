/**
 * A PostgreSQL server as a child of this process: made when its directory is empty, started, and stopped with this process.
 *
 * - When it dies, `onFailure` is called. PostgreSQL itself recovers from a backend that dies.
 * - No server is left behind: `stop` shuts it down in order. If this process dies first, by kill -9 too, a watcher does so:
 *   an `sh` that reads a pipe of which only this process has the other end.
 * - PostgreSQL refuses to run as root. Then it runs as the owner of its directory, or, where that user cannot enter
 *   (a checkout under /root), as root in a user namespace.
 * - The caller holds the lock of the directory (`directory-lock.ts`), so a postmaster found alive in it is an orphan.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdir, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import { StartRefused } from '../config.ts'

const SUPERUSER = 'postgres'

export type Binaries = { readonly postgres: string; readonly initdb: string }

export type ServerProcess = {
  readonly port: number
  /** Of the postmaster, while it runs. */
  readonly pid: () => number | undefined
  readonly url: (database: string) => string
  /** Fast shutdown; resolves when the process is gone. */
  readonly stop: () => Promise<void>
}

type Options = {
  readonly binaries: Binaries
  readonly dataDirectory: string
  /** Of the superuser `postgres`. */
  readonly password: string
  readonly settings: Readonly<Record<string, string>>
  /** Default: a free one. */
  readonly port?: number | undefined
  readonly log: Logger
  /** The server died. */
  readonly onFailure: (error: Error) => void
}

/** The user that the server runs as: another one, or root in a user namespace. */
type Identity = { readonly command: readonly string[]; readonly uid?: number; readonly gid?: number }
type Child = ChildProcess & { readonly output: () => string }
type Postmaster = { readonly pid: number; readonly port: number; readonly ready: boolean }

const POLL_MS = 10
/** Crash recovery of a full max_wal_size takes tens of seconds on a slow disk. */
const START_TIMEOUT_MS = 300_000
/** SIGINT asks for a fast shutdown, SIGQUIT for an immediate one, after which the next start recovers. */
const SHUTDOWN: readonly (readonly [afterMs: number, signal: NodeJS.Signals])[] = [
  [0, 'SIGINT'],
  [30_000, 'SIGQUIT'],
  [35_000, 'SIGKILL'],
]
/** Backends of a postmaster that was killed keep its shared memory until they notice: at once, or after a long read. */
const HELD_MS: readonly number[] = [200, 1_000, 3_000, 10_000]

export async function runServer(options: Options): Promise<ServerProcess> {
  const { dataDirectory, log } = options
  await initialise(options)
  await stopOrphan(dataDirectory, log)
  const port = options.port ?? (await freePort())
  const child = await start(options, await identityOf(dataDirectory), port)
  let stopping = false
  child.once('exit', (code, signal) => {
    if (stopping) return
    log.error({ code, signal, output: child.output() }, 'PostgreSQL died')
    options.onFailure(
      new StartRefused(
        `PostgreSQL in ${dataDirectory} died; its log is in ${dataDirectory}/log: start ipledger again.`,
      ),
    )
  })
  return {
    port,
    pid: () => (isRunning(child) ? child.pid : undefined),
    url: (database) => serverUrl(options.password, port, database),
    stop: async () => {
      stopping = true
      await shutDown(child)
    },
  }
}

async function start(options: Options, identity: Identity, port: number, attempt = 0): Promise<Child> {
  try {
    return await startOnce(options, identity, port)
  } catch (error) {
    const ms = HELD_MS[attempt]
    // Any other failure takes the file of the postmaster along.
    if (ms === undefined || (await readPostmaster(options.dataDirectory)) === undefined) throw error
    await delay(ms)
    return start(options, identity, port, attempt + 1)
  }
}

export function serverUrl(password: string, port: number, database: string): string {
  return `postgresql://${SUPERUSER}:${encodeURIComponent(password)}@127.0.0.1:${port}/${database}`
}

/** The port of the server that accepts connections on this directory, if one does. */
export async function runningPort(dataDirectory: string): Promise<number | undefined> {
  const postmaster = await readPostmaster(dataDirectory)
  if (postmaster === undefined || !postmaster.ready) return undefined
  return (await isPostmaster(postmaster.pid, dataDirectory)) ? postmaster.port : undefined
}

async function initialise({ dataDirectory, binaries, password }: Options): Promise<void> {
  const made = await readFile(join(dataDirectory, 'PG_VERSION'), 'utf8').catch(() => undefined)
  if (made !== undefined) {
    const { stdout } = spawnSync(binaries.postgres, ['--version'], {
      encoding: 'utf8',
      env: SERVER_ENVIRONMENT,
    })
    const wanted = /\d+/.exec(stdout ?? '')?.[0] ?? ''
    if (made.trim() === wanted) return
    throw new StartRefused(
      `${dataDirectory} was made by PostgreSQL ${made.trim()}, this is PostgreSQL ${wanted}: ` +
        'start the ipledger that made it, or move the directory away.',
    )
  }
  // Made beside it and renamed: an initdb that was killed leaves nothing that looks finished.
  const staging = `${dataDirectory}.new`
  const passwordFile = `${dataDirectory}.password`
  await rm(staging, { recursive: true, force: true })
  await mkdir(staging, { mode: 0o700 })
  const identity = await chooseIdentity(staging, binaries)
  try {
    await writeFile(passwordFile, password, { mode: 0o600 })
    if (identity.uid !== undefined) await chown(passwordFile, identity.uid, identity.gid ?? 0)
    await run(identity, binaries.initdb, [
      `--pgdata=${staging}`,
      `--username=${SUPERUSER}`,
      `--pwfile=${passwordFile}`,
      '--auth-local=reject',
      '--auth-host=scram-sha-256',
      '--encoding=UTF8',
      '--no-locale',
      '--no-instructions',
    ])
    await rename(staging, dataDirectory)
  } finally {
    await rm(passwordFile, { force: true })
    await rm(staging, { recursive: true, force: true })
  }
}

async function startOnce(
  { dataDirectory, binaries, settings, log }: Options,
  identity: Identity,
  port: number,
): Promise<Child> {
  const ours = { listen_addresses: '127.0.0.1', port: String(port), unix_socket_directories: '' }
  const flags = Object.entries({ ...settings, ...ours }).map(([name, value]) => `--${name}=${value}`)
  const child = spawnAs(identity, binaries.postgres, ['-D', dataDirectory, ...flags])
  // It does not keep this process alive. (An initdb must: with its pipe let go, this process ended before it did.)
  child.unref()
  ;(child.stderr as unknown as { unref(): void }).unref()
  const watcher = spawnWatcher(child)
  const gone = once(child, 'exit').catch(() => {})
  void gone.then(() => watcher.stdin?.end('done\n'))
  const deadline = performance.now() + START_TIMEOUT_MS
  let patience = performance.now() + 5_000
  for (;;) {
    if (!isRunning(child)) {
      await gone
      throw new Error(
        `PostgreSQL did not start; its log is in ${dataDirectory}/log; it wrote: ${child.output().trim()}`,
      )
    }
    const postmaster = await readPostmaster(dataDirectory)
    if (postmaster?.pid === child.pid && postmaster?.ready) return child
    if (performance.now() > deadline) {
      await shutDown(child)
      throw new Error(`PostgreSQL in ${dataDirectory} was not ready after ${START_TIMEOUT_MS / 1000} s`)
    }
    if (performance.now() > patience) {
      log.info({ directory: dataDirectory }, 'waiting for PostgreSQL to recover')
      patience += 10_000
    }
    await delay(POLL_MS)
  }
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null && child.pid !== undefined
}

async function shutDown(child: ChildProcess): Promise<void> {
  if (!isRunning(child)) return
  child.ref()
  const exited = once(child, 'exit')
  const timers = SHUTDOWN.map(([afterMs, signal]) => setTimeout(() => child.kill(signal), afterMs))
  await exited
  for (const timer of timers) clearTimeout(timer)
}

/** A postmaster of an ipledger that died is stopped and not adopted, since nothing would watch it. */
async function stopOrphan(dataDirectory: string, log: Logger): Promise<void> {
  const postmaster = await readPostmaster(dataDirectory)
  if (postmaster === undefined || !isAlive(postmaster.pid)) return
  if (!(await isPostmaster(postmaster.pid, dataDirectory))) {
    // Another process has its pid now, as is usual in containers, and PostgreSQL would refuse to start. It takes the pid of its
    // own parent for stale. The rest of the file leads it to backends that may still be alive.
    const file = join(dataDirectory, 'postmaster.pid')
    const text = await readFile(file, 'utf8')
    await writeFile(file, text.replace(/^\d+/, String(process.pid)))
    return
  }
  log.warn({ pid: postmaster.pid }, 'stopping the PostgreSQL that an ipledger which died left behind')
  const start = performance.now()
  let sent: NodeJS.Signals | undefined
  while (await isPostmaster(postmaster.pid, dataDirectory)) {
    const due = SHUTDOWN.findLast(([afterMs]) => performance.now() - start >= afterMs)![1]
    if (due !== sent) process.kill(postmaster.pid, due)
    sent = due
    await delay(POLL_MS)
  }
}

async function readPostmaster(dataDirectory: string): Promise<Postmaster | undefined> {
  const file = await readFile(join(dataDirectory, 'postmaster.pid'), 'utf8').catch(() => '')
  const lines = file.split('\n')
  const pid = Number(lines[0])
  if (!Number.isInteger(pid) || pid <= 0) return undefined
  return { pid, port: Number(lines[3]), ready: lines[7]?.startsWith('ready') ?? false }
}

/** A postmaster's working directory is its data directory. */
async function isPostmaster(pid: number, dataDirectory: string): Promise<boolean> {
  if (!isAlive(pid)) return false
  if (process.platform === 'linux') {
    const directory = await realpath(dataDirectory)
    return (await realpath(`/proc/${pid}/cwd`).catch(() => undefined)) === directory
  }
  const listed = spawnSync('ps', ['-o', 'command=', '-p', String(pid)], { encoding: 'utf8' })
  return listed.stdout?.includes(dataDirectory) ?? false
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/** The owner of a directory that has been initialised. */
async function identityOf(dataDirectory: string): Promise<Identity> {
  if (process.getuid?.() !== 0) return { command: [] }
  const { uid, gid } = await stat(dataDirectory)
  return uid === 0 ? namespaceIdentity() : { command: [], uid, gid }
}

/** For an empty directory, which is given to the user that the server will run as. */
async function chooseIdentity(directory: string, binaries: Binaries): Promise<Identity> {
  if (process.getuid?.() !== 0) return { command: [] }
  const user = unprivilegedUser()
  await chown(directory, user.uid, user.gid)
  const reaches = spawnSync('/bin/sh', ['-c', 'test -x "$0" && test -w "$1"', binaries.initdb, directory], {
    ...user,
    cwd: '/',
  })
  if (reaches.status === 0) return { command: [], ...user }
  await chown(directory, 0, 0)
  const identity = namespaceIdentity()
  const [command, ...rest] = [...identity.command, 'true']
  if (spawnSync(command!, rest, { cwd: '/' }).status === 0) return identity
  throw new StartRefused(
    `PostgreSQL does not run as root, and the user it would run as cannot enter ${directory}: ` +
      'move the checkout to a directory that others may enter (chmod o+x on each of its parents), start as another user, or set DATABASE_URL.',
  )
}

function namespaceIdentity(): Identity {
  const { uid, gid } = unprivilegedUser()
  return { command: ['unshare', '--user', `--map-user=${uid}`, `--map-group=${gid}`] }
}

/** initdb wants a user that has a name. `postgres` is Debian's. */
function unprivilegedUser(): { readonly uid: number; readonly gid: number } {
  for (const name of ['postgres', 'nobody']) {
    const id = (flag: string) =>
      Number.parseInt(spawnSync('id', [flag, name], { encoding: 'utf8' }).stdout, 10)
    const [uid, gid] = [id('-u'), id('-g')]
    if (Number.isInteger(uid) && Number.isInteger(gid)) return { uid, gid }
  }
  throw new StartRefused(
    'PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody: start as another user, or set DATABASE_URL.',
  )
}

function spawnAs({ command, ...user }: Identity, program: string, args: readonly string[]): Child {
  const [first, ...rest] = [...command, program, ...args]
  const child = spawn(first!, rest, {
    // A session of its own: Ctrl-C in the terminal must not stop it while ipledger still answers calls.
    detached: true,
    cwd: '/',
    env: SERVER_ENVIRONMENT,
    stdio: ['ignore', 'ignore', 'pipe'],
    ...user,
  })
  let output = ''
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    output = (output + chunk).slice(-4_096)
  })
  return Object.assign(child, { output: () => output })
}

function spawnWatcher(child: ChildProcess): ChildProcess {
  const watcher = spawn('/bin/sh', ['-c', 'read -r _ || kill -INT "$0"', String(child.pid)], {
    detached: true,
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  watcher.stdin?.on('error', () => {})
  watcher.unref()
  return watcher
}

async function run(identity: Identity, program: string, args: readonly string[]): Promise<void> {
  const child = spawnAs(identity, program, args)
  const [code] = await once(child, 'close')
  if (code === 0) return
  throw new StartRefused(
    `${program} failed: ${child.output().trim().replace(/\.$/, '')}. If npm ran with --ignore-scripts, run "npm rebuild"; or set DATABASE_URL.`,
  )
}

/** Nothing of ours (PGDATA, PGPORT, secrets) reaches the server, and its messages are in English. */
const SERVER_ENVIRONMENT = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }

async function freePort(): Promise<number> {
  await using server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}
