/** The service as real processes: start, stop, what ends a start in a sentence; tokens; who reads and who stops reading. */
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { useOwnDatabase, withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { waitFor } from '../support/wait-for.ts'
import { ipledger, ipledgerJson, MAIN, processesOf, serve, startProcess, stop, words } from './commands.ts'

type Leases = { readonly leases: readonly { readonly leaseId: string; readonly address: string }[] }

test('from an empty directory: start, the three commands, restart, the lease is still there', async () => {
  const directory = temporaryDirectory()
  const env = { IPLEDGER_DIR: join(directory, '.ipledger') }
  const before = await ipledger({ url: '' }, ['database', 'url'], env)
  expect(before.stderr).toBe(
    `ipledger: No PostgreSQL runs in ${env.IPLEDGER_DIR}: start the service there, or let IPLEDGER_DIR or DATABASE_URL name another.\n`,
  )
  expect(existsSync(env.IPLEDGER_DIR)).toBe(false)

  const first = await serve(env)
  const printed = [...first.stdout().matchAll(/IPLEDGER_URL=(\S+) ipledger (.*)/g)]
  expect(printed).toHaveLength(3)
  for (const [, url, args] of printed) {
    expect(url).toBe(first.url)
    const ran = await startProcess(args!.split(' '), { IPLEDGER_URL: url }).finished
    expect(ran).toMatchObject({
      code: 0,
      stderr: args!.startsWith('lease list') ? '' : expect.stringContaining(`: ${url}, network default\n`),
    })
  }
  const { leases } = await ipledgerJson<Leases>(first, ['lease', 'list'])
  expect(leases).toMatchObject([{ leaseId: 'default/3', address: '10.0.0.2' }])
  expect(
    await startProcess(['pool', 'get', 'none', '-o', 'json'], { IPLEDGER_URL: first.url }).finished,
  ).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('"reason":"POOL_NOT_FOUND"'),
  })
  const second = await startProcess(['serve'], { ...env, IPLEDGER_LOG_LEVEL: 'silent' }).finished
  expect(second).toMatchObject({
    code: 1,
    stdout: '',
    stderr: `ipledger: Another ipledger (process ${first.child.pid}) is running in ${env.IPLEDGER_DIR}: stop it, or set IPLEDGER_DIR to another directory.\n`,
  })
  const url = async (role: string) =>
    (await ipledger(first, ['database', 'url', '--role', role], env)).stdout.trim()
  await withClient(await url('owner'), async (owner) => {
    await owner.query(`alter role ipledger_auditor password 'chosen'`)
  })
  const auditor = (await url('auditor')).replace('ipledger_auditor@', 'ipledger_auditor:chosen@')
  const reader = await connectUnchecked({ url: auditor, applicationName: 'test' })
  expect((await reader.query('select network from ipledger_audit.network')).rows).toEqual([
    { network: 'default' },
  ])
  await expect(reader.query('select seq from ipledger.event')).rejects.toThrow('permission denied')
  await reader.end()
  expect(await ipledger(first, ['verify'], env)).toMatchObject({
    code: 0,
    stderr: `ipledger verify: the embedded PostgreSQL in ${env.IPLEDGER_DIR}\n`,
  })
  expect(await stop(first)).toMatchObject({ code: 0 })
  expect(processesOf(directory)).toEqual([])

  expect(await ipledger(first, ['verify'], env)).toMatchObject({ code: 0 })
  const look = `import(${JSON.stringify(import.meta.resolve('pg'))}).then(async ({ default: { Client } }) => {
    const client = new Client(process.env.DATABASE_URL)
    await client.connect()
    console.log((await client.query('select address from ipledger.lease')).rows)
    await client.end()
    process.exitCode = 7
  })`
  const looked = await startProcess(['database', 'run', '--', process.execPath, '-e', look], env).finished
  expect(looked).toEqual({
    code: 7,
    stdout: "[ { address: '10.0.0.2' } ]\n",
    stderr: `ipledger database run: the embedded PostgreSQL in ${env.IPLEDGER_DIR}\n`,
  })
  expect(processesOf(directory)).toEqual([])
  const again = await serve(env)
  expect((await ipledgerJson<Leases>(again, ['lease', 'list'])).leases).toEqual(leases)
  expect(await stop(again, 'SIGINT')).toMatchObject({ code: 0 })
  expect(processesOf(directory)).toEqual([])
})

test('of a database of one’s own the url is the owner’s, and it is not asked', async () => {
  const own = {
    DATABASE_URL: 'postgresql://app:x@db/ledger',
    DATABASE_ADMIN_URL: 'postgresql://o:y@db/ledger',
  }
  const url = async (line: string) => (await ipledger({ url: '' }, words(line), own)).stdout
  expect(await url('database url')).toBe(`${own.DATABASE_ADMIN_URL}\n`)
  expect(await url('database url --role auditor')).toBe('postgresql://ipledger_auditor@db/ledger\n')
})

test('a start that cannot be ends in a sentence and leaves nothing running', async () => {
  const file = join(temporaryDirectory(), 'file')
  writeFileSync(file, '')
  const busy = createServer()
  await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void busy.close())
  const { port } = busy.address() as { port: number }
  const ports = { IPLEDGER_PORT: '0', IPLEDGER_GRPC_PORT: '0' }
  for (const [env, sentence, code = 1] of [
    [{ IPLEDGER_DIR: join(file, 'below') }, /^ipledger: Cannot write to .*below .*IPLEDGER_DIR\.\n$/],
    [
      { DATABASE_URL: 'postgresql://nobody@127.0.0.1:1/none' },
      /^ipledger: Cannot connect to PostgreSQL at 127\.0\.0\.1:1.*\n$/,
      3,
    ],
    [{ IPLEDGER_HOST: '0.0.0.0' }, /^ipledger: Without tokens .* IPLEDGER_HOST\.\n$/],
    [{ IPLEDGER_GRPC_PORT: String(port) }, /^ipledger: Something listens .*IPLEDGER_GRPC_PORT\.\n$/],
  ] as const) {
    const directory = temporaryDirectory()
    const all = { IPLEDGER_DIR: directory, IPLEDGER_LOG_LEVEL: 'silent', ...ports, ...env }
    const ended = await startProcess(['serve'], all).finished
    expect(ended).toMatchObject({ code, stdout: '' })
    expect(ended.stderr).toMatch(sentence)
    // No database was made for it.
    expect(readdirSync(directory)).toEqual([])
    expect(processesOf(directory)).toEqual([])
  }
})

test('a start that is asked to stop ends without a word of being ready', async () => {
  const directory = temporaryDirectory()
  const ports = { IPLEDGER_PORT: '0', IPLEDGER_GRPC_PORT: '0' }
  const starting = startProcess(['serve'], { IPLEDGER_DIR: directory, ...ports })
  await waitFor(() => starting.stderr().includes('migration applied'))
  const { code, stdout, stderr } = await stop(starting)
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
  expect(stderr).not.toContain('stack')
  expect(processesOf(directory)).toEqual([])
})

test('SIGTERM lets a call that waits for the database finish and refuses new ones; a second signal ends it', async () => {
  const database = await useOwnDatabase({ empty: true })
  const env = { DATABASE_URL: database.adminUrl }
  const waiting = async (url: string, name: string) => {
    await ipledgerJson({ url }, words(`pool create ${name} --cidr 10.${name.length}.0.0/24`))
    const blocker = await connectUnchecked({ url: database.adminUrl, applicationName: 'blocker' })
    onTestFinished(() => blocker.end())
    await blocker.query('begin')
    await blocker.query(`select from ipledger.network_lock where network_id = 'default' for update`)
    const reserving = fetch(`${url}/ipledger.v1.LeaseService/Reserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ owner: { kind: 'container', name }, claims: [{ pool: name }] }),
    }).catch((error: unknown) => error)
    const isLocked = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    await waitFor(async () => (await blocker.query(isLocked)).rowCount, { what: 'the reserve to wait' })
    return { blocker, reserving }
  }
  const isClosed = (url: string) => () =>
    fetch(url).then(
      () => false,
      () => true,
    )

  // Without jobs, and with its images loaded: nobody but the call waits for the lock.
  const ready = async () => {
    const service = await serve(env, '--no-worker')
    await waitFor(async () => (await fetch(`${service.url}/readyz`)).ok, { what: 'its images' })
    return service
  }
  const first = await ready()
  const one = await waiting(first.url, 'patient')
  // The one that arrives twice, from the terminal and the launcher, is one.
  first.child.kill('SIGINT')
  first.child.kill('SIGTERM')
  await waitFor(isClosed(first.url), { what: 'the port to close' })
  expect(first.child.exitCode).toBe(null)
  await one.blocker.query('rollback')
  const answer = (await one.reserving) as Response
  expect(await answer.json()).toMatchObject({ leases: [{ address: '10.7.0.1' }] })
  expect(await first.finished).toMatchObject({ code: 0 })

  const second = await ready()
  const two = await waiting(second.url, 'cut-off-so')
  second.child.kill('SIGTERM')
  await waitFor(isClosed(second.url), { what: 'the port to close' })
  await waitFor(
    () => {
      second.child.kill('SIGTERM')
      return second.child.exitCode !== null
    },
    { every: 200, what: 'the process to end' },
  )
  expect(await second.finished).toMatchObject({ code: 1 })
  expect(await two.reserving).toBeInstanceOf(Error)
  await two.blocker.query('rollback')
})

test('migrate, a server without jobs and a worker share a database', async () => {
  const database = await useOwnDatabase({ empty: true })
  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_LOG_LEVEL: 'warn' }
  const migrated = await startProcess(['migrate'], env).finished
  expect(migrated).toMatchObject({ code: 0, stdout: 'The database is up to date.\n' })
  expect(migrated.stderr).toMatch(/^ipledger migrate: PostgreSQL at 127\.0\.0\.1:\d+, database "\w+"\n$/)
  expect(await startProcess(['migrate'], env).finished).toMatchObject({ code: 0 })

  await withClient(database.adminUrl, async (other) => {
    await other.query('alter table ipledger.sighting rename to renamed')
    const started = startProcess(['serve'], {
      ...env,
      IPLEDGER_LOG_LEVEL: 'silent',
      IPLEDGER_DEADLINE_SECONDS: '1',
    })
    expect(await started.finished).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^ipledger: Network default: .*sighting.*\n$/),
    })
    await other.query('alter table ipledger.renamed rename to sighting')
  })

  const service = await serve(env, '--no-worker')
  expect(await ipledgerJson(service, ['network', 'list'])).toMatchObject({
    networks: [{ name: 'default', head: '1' }],
  })
  const workers = () =>
    withClient(database.adminUrl, async (client) => {
      const known = 'select count(*)::int as known from graphile_worker._private_known_crontabs'
      return (await client.query<{ known: number }>(known)).rows[0]!.known
    })
  expect(await workers()).toBe(0)
  const worker = startProcess(['worker'], env)
  await waitFor(() => worker.stdout().includes('worker is running'), { what: 'the worker to run' })
  await waitFor(workers, { what: 'the schedule to be known' })
  expect(await stop(worker)).toMatchObject({ code: 0, stderr: '' })

  const reader = `${process.execPath} ${MAIN} events --page-size 1000 | head -1; echo "\${PIPESTATUS[0]}"`
  const { PATH } = process.env
  const piped = spawnSync('bash', ['-c', reader], {
    encoding: 'utf8',
    env: { PATH, IPLEDGER_URL: service.url },
  })
  expect(piped.stdout).toMatch(/^SEQ .*\n0\n$/)
  expect(await stop(service)).toMatchObject({ code: 0 })
})

test('tokens are made, work, are listed without what opens them, and are withdrawn', async () => {
  const database = await useOwnDatabase({ empty: true })
  const file = join(temporaryDirectory(), 'tokens.jsonl')
  const token = (line: string) => ipledger({ url: '' }, words(`token ${line} --file ${file}`))
  const admin = (await token('create boss --role admin')).stdout.trim()
  const auditor = (await token('create eyes --role auditor --networks default')).stdout.trim()
  expect(admin).toMatch(/^ipl_/)
  expect(readFileSync(file, 'utf8')).not.toContain(admin)
  expect((await token('create boss --role admin')).code).toBe(1)
  const listed = await token('list')
  expect(listed.stdout).toMatch(
    /^NAME +ROLE +CREATED +NETWORKS\nboss +admin .*\neyes +auditor +\S+ +default\n/,
  )
  expect((await token('list -o json')).stdout).not.toContain('sha256')

  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_TOKENS: file, IPLEDGER_HOST: '0.0.0.0' }
  const guarded = await serve(env, '--no-worker')
  const list = (by?: string) => ipledger(guarded, ['pool', 'list'], { IPLEDGER_TOKEN: by })
  expect(await list(admin)).toMatchObject({ code: 0, stdout: 'no pools\n' })
  expect(await list(auditor)).toMatchObject({ code: 0 })
  expect((await list()).stderr).toMatch(
    /^ipledger: UNAUTHENTICATED: .*\n {2}Set IPLEDGER_TOKEN to a token that the server knows; /,
  )
  const denied = await ipledger(guarded, ['pool', 'delete', 'web'], { IPLEDGER_TOKEN: auditor })
  expect(denied.stderr).toMatch(/^ipledger: PERMISSION_DENIED: /)
  expect(await token('revoke eyes')).toMatchObject({ code: 0 })
  expect((await token('revoke eyes')).stderr).toMatch(/has no token named eyes\.\n$/)
  await waitFor(async () => (await list(auditor)).code === 1, { what: 'the token to be unknown', every: 300 })
  expect(await list(admin)).toMatchObject({ code: 0 })
  await stop(guarded)
})

/** Any user but root. */
const NOBODY = 65_534

test.runIf(process.getuid?.() === 0)(
  'a token is withdrawn from the server that may read the file',
  async () => {
    const directory = temporaryDirectory()
    const file = join(directory, 'tokens.jsonl')
    const token = (line: string) => words(`token ${line} --file ${file}`)
    await ipledger({ url: '' }, token('create eyes --role auditor'))
    await ipledger({ url: '' }, token('create boss --role admin'))
    chownSync(file, NOBODY, NOBODY)
    chmodSync(file, 0o640)
    expect(await ipledger({ url: '' }, token('revoke eyes'))).toMatchObject({ code: 0 })
    const { uid, gid, mode } = statSync(file)
    expect({ uid, gid, mode: mode & 0o777 }).toEqual({ uid: NOBODY, gid: NOBODY, mode: 0o640 })

    // Who may write in the directory, but may not leave the file to its owner, withdraws nothing.
    chownSync(directory, NOBODY, NOBODY)
    chownSync(file, 0, 0)
    chmodSync(file, 0o644)
    const before = readFileSync(file, 'utf8')
    const refused = spawnSync(process.execPath, [MAIN, ...token('revoke boss')], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH },
      uid: NOBODY,
      gid: NOBODY,
    })
    expect(refused).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(
        /^ipledger: .* could not be replaced by one of the same owner, so nothing was withdrawn /,
      ),
    })
    expect(readFileSync(file, 'utf8')).toBe(before)
    expect(readdirSync(directory)).toEqual(['tokens.jsonl'])
  },
)

test('a small installation has under 300 series, and says what runs and since when', async () => {
  const env = { IPLEDGER_DIR: join(temporaryDirectory(), '.ipledger'), IPLEDGER_METRICS: 'yes' }
  const service = await serve({ ...env, IPLEDGER_LOG_LEVEL: 'silent' })
  for (const line of [
    'pool create web --cidr 10.0.0.0/24',
    'pool create web6 --cidr fd00::/64',
    'source register agent-1 --node n1 --owner-kinds pod',
    'source register agent-2 --node n2 --owner-kinds pod',
    'reserve --kind pod --name a --pool web --confirm-within 30s',
    'confirm default/6',
    'lease list',
    'pool list',
    'explain 10.0.0.1',
    'history 10.0.0.1',
    'release default/6',
  ])
    expect(await ipledger(service, line.split(' '), env), line).toMatchObject({ code: 0 })
  const samples = await waitFor(
    async () => {
      const page = await (await fetch(`${service.url}/metrics`)).text()
      const found = page.split('\n').filter((line) => /^[a-z]/.test(line))
      return page.includes('ipledger_job_last_success_timestamp_seconds{') && found
    },
    { what: 'a job to have run' },
  )
  expect(samples.join('\n')).toMatch(/^ipledger_build_info\{version="\d+\.\d+\.\d+",node_version="v26\./m)
  expect(samples.join('\n')).toMatch(/^process_start_time_seconds \d+/m)
  expect(samples.length).toBeLessThan(300)
  expect(samples.length).toBeGreaterThan(100)
})
