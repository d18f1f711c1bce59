import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { createTestDatabase, type TestDatabase, withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
import {
  ipledger,
  ipledgerJson,
  ipledgerProcess,
  processesOf,
  startProcess,
  startService,
  stopService,
} from './service.ts'

// Each makes and starts a PostgreSQL of its own, some twice.
vi.setConfig({ testTimeout: 60_000 })

type Leases = Readonly<{ leases?: readonly Readonly<{ leaseId: string; address: string }>[] }>

async function ownDatabase(): Promise<TestDatabase> {
  const database = await createTestDatabase({ empty: true })
  onTestFinished(() => database.drop())
  return database
}

test('from an empty directory: start, the three commands, restart, the lease is still there', async () => {
  const directory = temporaryDirectory()
  const env = { IPLEDGER_DIR: join(directory, '.ipledger') }
  const first = await startService(env)
  const printed = first
    .stdout()
    .split('\n')
    .filter((line) => line.includes('npx ipledger'))
  expect(printed).toHaveLength(3)
  for (const line of printed) {
    const [, url, args] = /IPLEDGER_URL=(\S+) npx ipledger (.*)/.exec(line)!
    expect(url).toBe(first.url)
    expect(await ipledgerProcess(first, args!.split(' '))).toMatchObject({ code: 0 })
  }
  const before = await ipledgerJson<Leases>(first, ['lease', 'list'])
  expect(before.leases).toMatchObject([{ leaseId: 'default/3', address: '10.0.0.2' }])
  expect(await stopService(first)).toMatchObject({ code: 0 })
  expect(processesOf(directory)).toEqual([])

  const second = await startService(env)
  expect((await ipledgerJson<Leases>(second, ['lease', 'list'])).leases).toEqual(before.leases)
  expect(await stopService(second, 'SIGINT')).toMatchObject({ code: 0 })
  expect(processesOf(directory)).toEqual([])
})

test('database url: how to reach the embedded database, and as whom', async () => {
  const directory = temporaryDirectory()
  const env = { IPLEDGER_DIR: join(directory, '.ipledger') }
  const before = await ipledger({ url: '' }, ['database', 'url'], env)
  expect(before).toMatchObject({ code: 1, stdout: '' })
  expect(before.stderr).toBe(
    `ipledger: No PostgreSQL runs in ${env.IPLEDGER_DIR}: start the service there, or let IPLEDGER_DIR or DATABASE_URL name another.\n`,
  )
  expect(existsSync(env.IPLEDGER_DIR)).toBe(false)

  const service = await startService(env)
  const printed = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await ipledger(service, ['database', 'url', ...args], env)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    return stdout.trim()
  }
  await withClient(await printed(), async (owner) => {
    const { rows } = await owner.query('select current_user as role, current_database() as database')
    expect(rows).toEqual([{ role: 'postgres', database: 'ipledger' }])
    await owner.query(`alter role ipledger_auditor password 'chosen'`)
  })
  const auditor = await printed('--role', 'auditor')
  expect(auditor).not.toContain(':chosen')
  const reader = await connectUnchecked({
    url: auditor.replace('ipledger_auditor@', 'ipledger_auditor:chosen@'),
    applicationName: 'test',
  })
  expect((await reader.query('select network from ipledger_audit.network')).rows).toEqual([
    { network: 'default' },
  ])
  await expect(reader.query('select seq from ipledger.event')).rejects.toThrow('permission denied')
  await reader.end()
  await stopService(service)

  // Of a database of one's own: the owner's, and it is not asked.
  const own = {
    DATABASE_URL: 'postgresql://app:x@db/ledger',
    DATABASE_ADMIN_URL: 'postgresql://o:y@db/ledger',
  }
  expect((await ipledger({ url: '' }, ['database', 'url'], own)).stdout).toBe(`${own.DATABASE_ADMIN_URL}\n`)
  expect((await ipledger({ url: '' }, ['database', 'url', '--role', 'auditor'], own)).stdout).toBe(
    'postgresql://ipledger_auditor@db/ledger\n',
  )
})

test('a second start in the same directory is refused in one sentence', async () => {
  const directory = temporaryDirectory()
  const env = { IPLEDGER_DIR: directory, IPLEDGER_LOG_LEVEL: 'silent' }
  const first = await startService(env)
  const second = await startProcess(['serve'], env).finished
  expect(second.code).toBe(1)
  expect(second.stdout).toBe('')
  expect(second.stderr).toBe(
    `ipledger: Another ipledger (process ${first.child.pid}) is running in ${directory}: stop it, or set IPLEDGER_DIR to another directory.\n`,
  )
  expect(await ipledger(first, ['network', 'get'])).toMatchObject({ code: 0 })
  await stopService(first)
})

test.for(['IPLEDGER_PORT', 'IPLEDGER_GRPC_PORT'])(
  'a busy %s ends the start and leaves nothing running',
  async (name) => {
    const busy = createServer()
    await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void busy.close())
    const address = busy.address()
    const port = typeof address === 'object' && address !== null ? address.port : 0
    const directory = temporaryDirectory()
    const { code, stderr, stdout } = await startProcess(['serve'], {
      IPLEDGER_DIR: directory,
      IPLEDGER_PORT: '0',
      IPLEDGER_GRPC_PORT: '0',
      IPLEDGER_LOG_LEVEL: 'silent',
      [name]: String(port),
    }).finished
    expect(code).toBe(1)
    expect(stdout).toBe('')
    expect(stderr).toMatch(new RegExp(`^ipledger: .*${port}.*${name}.*\\.\n$`))
    expect(processesOf(directory)).toEqual([])
  },
)

test('a start that cannot be ends in a sentence and leaves nothing running', async () => {
  const file = join(temporaryDirectory(), 'file')
  writeFileSync(file, '')
  const cases: readonly (readonly [Record<string, string>, RegExp])[] = [
    [{ IPLEDGER_DIR: join(file, 'below') }, /^ipledger: Cannot write to .*below .*IPLEDGER_DIR\.\n$/],
    [
      { DATABASE_URL: 'postgresql://nobody@127.0.0.1:1/none' },
      /^ipledger: Cannot reach PostgreSQL at 127\.0\.0\.1:1.*\n$/,
    ],
    [{ IPLEDGER_PORT: 'http' }, /^ipledger: IPLEDGER_PORT must be a whole number .*\n$/],
    [{ IPLEDGER_HOST: '0.0.0.0' }, /^ipledger: Without tokens .* IPLEDGER_HOST\.\n$/],
    [{ IPLEDGER_TOKENS: join(file, 'none') }, /^ipledger: Cannot read the token file: .*\n$/],
  ]
  for (const [env, sentence] of cases) {
    const directory = temporaryDirectory()
    const ended = await startProcess(['serve'], {
      IPLEDGER_DIR: directory,
      IPLEDGER_LOG_LEVEL: 'silent',
      ...env,
    }).finished
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toMatch(sentence)
    expect(processesOf(directory)).toEqual([])
  }
})

test('SIGTERM lets a call that waits for the database finish, and refuses new ones', async () => {
  const database = await ownDatabase()
  const service = await startService({ DATABASE_URL: database.adminUrl })
  await ipledgerJson(service, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24'])
  await withClient(database.adminUrl, async (blocker) => {
    await blocker.query('begin')
    await blocker.query(`select 1 from ipledger.network_lock where network_id = 'default' for update`)
    const reserving = fetch(`${service.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ owner: { kind: 'container', name: 'draining' }, claims: [{ pool: 'web' }] }),
    })
    await waitFor(
      async () => {
        const { rowCount } = await blocker.query(
          `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        )
        return rowCount
      },
      { what: 'the reserve to wait for the lock' },
    )
    service.child.kill('SIGTERM')
    await waitFor(
      async () =>
        fetch(service.url).then(
          () => false,
          () => true,
        ),
      { what: 'the port to close' },
    )
    expect(service.child.exitCode).toBe(null)
    await blocker.query('rollback')
    const answer = await reserving
    expect(answer.status).toBe(200)
    expect(await answer.json()).toMatchObject({ leases: [{ address: '10.0.0.1' }] })
  })
  expect(await service.finished).toMatchObject({ code: 0 })
})

test('a second signal ends it at once; the one that arrives twice does not', async () => {
  const database = await ownDatabase()
  const service = await startService({ DATABASE_URL: database.adminUrl })
  await ipledgerJson(service, ['pool', 'create', 'web', '--cidr', '10.0.0.0/24'])
  await withClient(database.adminUrl, async (blocker) => {
    await blocker.query('begin')
    await blocker.query(`select 1 from ipledger.network_lock where network_id = 'default' for update`)
    const reserving = fetch(`${service.url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ owner: { kind: 'container', name: 'cut off' }, claims: [{ pool: 'web' }] }),
    }).catch((error: unknown) => error)
    await waitFor(async () => {
      const { rowCount } = await blocker.query(
        `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      )
      return rowCount
    })
    service.child.kill('SIGINT')
    service.child.kill('SIGTERM')
    await waitFor(
      async () =>
        fetch(service.url).then(
          () => false,
          () => true,
        ),
      { what: 'the port to close' },
    )
    expect(service.child.exitCode).toBe(null)
    // Told again until it hears a second request, and not the echo of the first.
    await waitFor(
      () => {
        service.child.kill('SIGTERM')
        return service.child.exitCode !== null
      },
      { every: 200, what: 'the process to end' },
    )
    expect(await service.finished).toMatchObject({ code: 1 })
    expect(await reserving).toBeInstanceOf(Error)
    await blocker.query('rollback')
  })
})

test('migrate, a server without jobs and a worker share a database', async () => {
  const database = await ownDatabase()
  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_LOG_LEVEL: 'warn' }
  const migrated = await startProcess(['migrate'], env).finished
  expect(migrated).toMatchObject({ code: 0, stdout: 'The database is up to date.\n', stderr: '' })
  expect(await startProcess(['migrate'], env).finished).toMatchObject({ code: 0 })

  const service = await startService(env, { args: ['--no-worker'] })
  expect(await ipledgerJson(service, ['network', 'list'])).toMatchObject({
    networks: [{ name: 'default', head: '1' }],
  })
  const workers = async (): Promise<number> =>
    withClient(database.adminUrl, async (client) => {
      const { rows } = await client.query<{ known: number }>(
        'select count(*)::int as known from graphile_worker._private_known_crontabs',
      )
      return rows[0]!.known
    })
  expect(await workers()).toBe(0)
  const worker = startProcess(['worker'], env)
  await waitFor(() => worker.stdout().includes('worker is running'), { what: 'the worker to run' })
  await waitFor(workers, { what: 'the schedule to be known' })
  expect(await stopService(worker)).toMatchObject({ code: 0, stderr: '' })
  expect(await stopService(service)).toMatchObject({ code: 0 })
})
