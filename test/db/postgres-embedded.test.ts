import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { pino } from 'pino'
import { expect, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { attachEmbedded, type EmbeddedServer, startEmbedded } from '../../src/postgres/embedded.ts'
import { withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'

const log = pino({ level: 'silent' })

async function start(directory: string): Promise<EmbeddedServer> {
  const server = await startEmbedded({ directory, log })
  onTestFinished(() => server.stop())
  return server
}

/** A process that starts the embedded server and then waits to be killed. */
async function startElsewhere(
  directory: string,
): Promise<Readonly<{ child: ChildProcess; postmaster: number }>> {
  const holder = fileURLToPath(new URL('../support/hold-embedded.ts', import.meta.url))
  const child = spawn(process.execPath, [holder, directory], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await waitFor(() => !isAlive(Number(said)))
  })
  child.stdout.on('data', (chunk) => {
    said += chunk
  })
  await waitFor(() => said.includes('\n'), { what: 'the other process to start its server' })
  return { child, postmaster: Number(said) }
}

/** A zombie, which init has not yet reaped, is not. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !existsSync('/proc/self/stat') || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** The process that is to stop the server when `child` cannot. */
function watcherOf(child: ChildProcess): number {
  const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim().split(' ')
  return Number(children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('read -r _')))
}

const write = (url: string) =>
  withClient(url, async (client) => {
    await client.query('create table if not exists kept (n int8 primary key)')
    await client.query('insert into kept select coalesce(max(n), 0) + 1 from kept')
  })
const read = (url: string) =>
  withClient(
    url,
    async (client) => (await client.query<{ n: number }>('select max(n) as n from kept')).rows[0]!.n,
  )

test('keeps its data over a restart, its password to its owner, and no process behind', async () => {
  const directory = `${temporaryDirectory()}/ledger`
  const first = await start(directory)
  await write(first.url)
  await withClient(first.url, async (client) => {
    const { rows } = await client.query(
      `select current_setting('fsync') as fsync, current_setting('synchronous_commit') as commits,
              current_setting('listen_addresses') as listens, current_setting('password_encryption') as passwords`,
    )
    expect(rows).toEqual([{ fsync: 'on', commits: 'on', listens: '127.0.0.1', passwords: 'scram-sha-256' }])
  })
  expect(statSync(`${directory}/postgres-password`).mode & 0o777).toBe(0o600)
  expect(statSync(`${directory}/postgres`).mode & 0o777).toBe(0o700)
  const pid = first.pid()!
  await first.stop()
  expect(isAlive(pid)).toBe(false)
  expect(existsSync(`${directory}/postgres/postmaster.pid`)).toBe(false)
  const second = await start(directory)
  expect(await read(second.url)).toBe(1)
})

test('a second start in the same directory is refused in one sentence, and disturbs nothing', async () => {
  const directory = temporaryDirectory()
  const { child, postmaster } = await startElsewhere(directory)
  await expect(startEmbedded({ directory, log })).rejects.toThrow(
    `Another ipledger (process ${child.pid}) is running in ${directory}: stop it, or set IPLEDGER_DIR to another directory.`,
  )
  expect(isAlive(postmaster)).toBe(true)
})

test('a postmaster that is killed is told in one sentence; the next start has everything it acknowledged', async () => {
  const directory = temporaryDirectory()
  const { promise, resolve } = Promise.withResolvers<Error>()
  const server = await startEmbedded({ directory, log, onFailure: resolve })
  await write(server.url)
  process.kill(server.pid()!, 'SIGKILL')
  expect(await promise).toEqual(
    new StartRefused(
      `PostgreSQL in ${directory}/postgres died; its log is in ${directory}/postgres/log: start ipledger again.`,
    ),
  )
  await server.stop()
  expect(await read((await start(directory)).url)).toBe(1)
})

test('when ipledger is killed its server shuts down in order, and the next start has the data', async () => {
  const directory = temporaryDirectory()
  for (let killed = 1; killed <= 1; killed++) {
    const { child, postmaster } = await startElsewhere(directory)
    const url = (await attachEmbedded(directory))!
    await write(url)
    child.kill('SIGKILL')
    await waitFor(() => !isAlive(postmaster), { what: 'the postmaster to follow its ipledger' })
  }
  const server = await start(directory)
  expect(await read(server.url)).toBe(1)
  // In order: the log of the server knows no recovery.
  const logged = readFileSync(`${directory}/postgres/log/${weekday()}`, 'utf8')
  expect(logged).toContain('received fast shutdown request')
  expect(logged).not.toContain('not properly shut down')
})

test('an orphaned server, its watcher killed too, is stopped by the next start', async () => {
  const directory = temporaryDirectory()
  const { child, postmaster } = await startElsewhere(directory)
  await write((await attachEmbedded(directory))!)
  process.kill(watcherOf(child), 'SIGKILL')
  child.kill('SIGKILL')
  await waitFor(() => child.signalCode !== null)
  expect(isAlive(postmaster)).toBe(true)
  const server = await start(directory)
  expect(isAlive(postmaster)).toBe(false)
  expect(await read(server.url)).toBe(1)
})

test('ipledger and its server killed together, its number then given to somebody else', async () => {
  const directory = temporaryDirectory()
  const { child, postmaster } = await startElsewhere(directory)
  await write((await attachEmbedded(directory))!)
  process.kill(postmaster, 'SIGSTOP')
  child.kill('SIGKILL')
  process.kill(postmaster, 'SIGKILL')
  await waitFor(() => child.signalCode !== null && !isAlive(postmaster))
  const bystander = spawn('sleep', ['60'])
  onTestFinished(() => void bystander.kill())
  const file = `${directory}/postgres/postmaster.pid`
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^\d+/, String(bystander.pid)))
  const server = await start(directory)
  expect(await read(server.url)).toBe(1)
  expect(isAlive(bystander.pid!)).toBe(true)
})

test('data of another major version, or without its password, is refused', async () => {
  const directory = temporaryDirectory()
  const server = await start(directory)
  await server.stop()
  writeFileSync(`${directory}/postgres/PG_VERSION`, '17\n')
  await expect(startEmbedded({ directory, log })).rejects.toThrow(
    'was made by PostgreSQL 17, this is PostgreSQL 18',
  )
  writeFileSync(`${directory}/postgres/PG_VERSION`, '18\n')
  const password = readFileSync(`${directory}/postgres-password`)
  rmSync(`${directory}/postgres-password`)
  await expect(startEmbedded({ directory, log })).rejects.toThrow(
    `Cannot read ${directory}/postgres-password`,
  )
  writeFileSync(`${directory}/postgres-password`, password)
  await start(directory)
})

test('a process whose initdb fails hears of it, and does not just end', () => {
  const initdb = `${temporaryDirectory()}/initdb`
  // Its standard error stays open for longer than it lives.
  writeFileSync(initdb, '#!/bin/sh\nsleep 0.5 &\nexit 1\n', { mode: 0o755 })
  const program = `
    import { runServer } from '${new URL('../../src/postgres/server-process.ts', import.meta.url).href}'
    await runServer({
      binaries: { initdb: '${initdb}', postgres: '/bin/false' }, password: 'x', settings: {},
      dataDirectory: '${temporaryDirectory()}/postgres',
    }).catch((error) => console.log(error.message))`
  const ran = spawnSync(process.execPath, ['--input-type=module', '--eval', program], { encoding: 'utf8' })
  expect(ran).toMatchObject({ status: 0, stdout: expect.stringContaining('initdb failed') })
})

test('an initdb that was killed leaves nothing that looks finished', async () => {
  const directory = temporaryDirectory()
  mkdirSync(`${directory}/postgres.new`)
  writeFileSync(`${directory}/postgres.new/PG_VERSION`, '18\n')
  await write((await start(directory)).url)
})

/** As log_filename has it. */
function weekday(): string {
  return `postgres-${['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'][new Date().getUTCDay()]}.log`
}

test('a directory that cannot be made ends the start in one sentence', async () => {
  const lock = new URL('../../src/postgres/directory-lock.ts', import.meta.url).href
  // In /proc, where Node's own recursive mkdir never ends; so in a process that can be ended.
  const script = `import('${lock}').then((it) => it.lockDirectory('/proc/nothing/here')).catch((error) => console.log(error.message))`
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', script], { timeout: 30_000 })
  expect(stdout).toMatch(/^Cannot write to \/proc\/nothing\/here \(.*\): .* or set IPLEDGER_DIR\.\n$/)
})
