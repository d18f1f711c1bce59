import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase, withClient } from '../support/database.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import {
  CHECKOUT,
  type Finished,
  ipledger,
  ipledgerJson,
  ipledgerProcess,
  type Service,
  startService,
  stopService,
} from './service.ts'

type Lease = Readonly<{
  leaseId: string
  address: string
  state: string
  version: string
  owner?: Readonly<{ labels?: Record<string, string> }>
}>
type Leases = Readonly<{ leases: readonly Lease[] }>

let database: TestDatabase
let service: Service

beforeAll(async () => {
  database = await createTestDatabase({ empty: true })
  service = await startService({ DATABASE_URL: database.adminUrl })
  await json('pool', 'create', 'web', '--cidr', '10.0.0.0/24', '--gateway', '10.0.0.1', '--cooldown', '0s')
})
afterAll(async () => {
  await stopService(service)
  await expectVerified(database)
  await database.drop()
})

const json = <T = Leases>(...args: readonly string[]): Promise<T> => ipledgerJson<T>(service, args)
const run = (...args: readonly string[]): Promise<Finished> => ipledger(service, args)

async function reserved(name: string, ...args: readonly string[]): Promise<Lease> {
  const { leases } = await json('reserve', '--kind', 'pod', '--name', name, '--pool', 'web', ...args)
  return leases[0]!
}

test('a pool with every setting comes back as it was made, and changes', async () => {
  await json(
    ...['pool', 'create', 'all', '--cidr', '10.9.1.0/24', '--subnet', '10.9.0.0/16', '--gateway', '10.9.0.1'],
    ...['--exclude', '10.9.1.2-10.9.1.9,10.9.1.200', '--exclude', '10.9.1.240/28', '--cooldown', '1h30m'],
    ...['--confirm-within', '30s', '--liveness', 'strict', '--owner-limit', '7', '--draining'],
    ...[
      '--route',
      '0.0.0.0/0=10.9.0.1',
      '--route',
      '10.9.0.0/16',
      '--dns',
      '1.1.1.1,9.9.9.9',
      '--mtu',
      '9000',
    ],
    ...['--label', 'team=a', '--label', 'note=b=c'],
  )
  expect(await json<object>('pool', 'get', 'all')).toMatchObject({
    pool: {
      subnet: '10.9.0.0/16',
      exclude: ['10.9.1.2-10.9.1.9', '10.9.1.200', '10.9.1.240-10.9.1.255'],
      cooldown: '5400s',
      confirmWithin: '30s',
      liveness: 'STRICT',
      ownerLimit: 7,
      draining: true,
      options: {
        routes: [{ destination: '0.0.0.0/0', gateway: '10.9.0.1' }, { destination: '10.9.0.0/16' }],
        dns: ['1.1.1.1', '9.9.9.9'],
        mtu: 9000,
      },
      labels: { team: 'a', note: 'b=c' },
    },
  })
  const { pool } = await json<{ pool: Record<string, unknown> }>(
    ...['pool', 'update', 'all', '--new-name', 'some', '--no-gateway', '--no-exclude', '--no-confirm-within'],
    ...['--no-draining', '--no-options', '--no-labels', '--liveness', 'available'],
  )
  expect(pool.name).toBe('some')
  expect(pool).toMatchObject({
    gateway: '',
    exclude: [],
    draining: false,
    labels: {},
    options: { routes: [], dns: [], mtu: 0 },
  })
  expect(pool).not.toHaveProperty('confirmWithin')
  const text = await run('pool', 'get', 'some')
  expect(text.stdout).toMatch(/^pool +some\nnetwork +default\n/)
  expect(text.stdout).toMatch(/usage +256 = \d+ free \+ 0 cooling \+ 0 reserved/)
  await json('pool', 'delete', 'some')
  expect((await run('pool', 'get', 'some')).stderr).toMatch(/^ipledger: POOL_NOT_FOUND: /)
})

test('networks', async () => {
  await json('network', 'create', 'vpc-1', '--description', 'first', '--label', 'a=b')
  await json('network', 'update', 'vpc-1', '--description', 'second', '--no-labels')
  const { network } = await json<{ network: Record<string, unknown> }>('network', 'get', 'vpc-1')
  expect(network).toMatchObject({ name: 'vpc-1', description: 'second', state: 'READY' })
  expect((await run('network', 'list')).stdout).toMatch(
    /^NETWORK +STATE .*\ndefault +READY [\s\S]*\nvpc-1 +READY/,
  )
  expect(await json<object>('network', 'end-recovery', 'vpc-1', '--why', 'nothing runs there')).toMatchObject(
    {
      network: { name: 'vpc-1' },
    },
  )
})

test('reserve, confirm, labels, look, release', async () => {
  const lease = await reserved('life', '--node', 'n1', '--label', 'a=b', '--confirm-within', '1h')
  expect(await reserved('life')).toMatchObject({ leaseId: lease.leaseId, reused: true })
  expect((await json('confirm', lease.leaseId)).leases[0]).toMatchObject({ state: 'ACTIVE' })
  await json('lease', 'labels', lease.leaseId, '--label', 'c=d')
  expect(await json<object>('lease', 'get', lease.address)).toMatchObject({
    lease: { leaseId: lease.leaseId, state: 'ACTIVE', owner: { labels: { c: 'd' }, node: 'n1' } },
  })
  expect((await run('lease', 'list', '--owner-name', 'life')).stdout).toMatch(
    new RegExp(
      `^LEASE +ADDRESS +STATE +OWNER .*\n${lease.leaseId} +${lease.address} +ACTIVE +pod life +eth0 +web`,
    ),
  )
  expect((await json('release', lease.leaseId)).leases[0]).toMatchObject({ state: 'ENDED' })
  expect(await run('lease', 'get', lease.leaseId)).toMatchObject({ code: 1, stdout: '' })
  const log = await run('events', '--lease-id', lease.leaseId)
  expect(log.stdout.match(/lease\.\w+/g)).toEqual([
    'lease.reserved',
    // Reserving again without --confirm-within takes the deadline away.
    'lease.updated',
    'lease.confirmed',
    'lease.updated',
    'lease.released',
  ])
})

test('--json is what the API answers', async () => {
  await reserved('json')
  const asked = { labels: {}, ownerName: 'json' }
  const response = await fetch(`${service.url}/ipledger.v1.LeaseService/ListLeases`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(asked),
  })
  expect(await json<object>('lease', 'list', '--owner-name', 'json')).toEqual(await response.json())
})

test('labels are removed only when that is said', async () => {
  const lease = await reserved('labelled', '--label', 'a=b')
  expect(await run('lease', 'labels', lease.leaseId)).toMatchObject({
    code: 1,
    stderr: 'ipledger: Say which --label it shall have, or --no-labels.\n',
  })
  await json('lease', 'labels', lease.leaseId, '--no-labels')
  const { lease: after } = await json<{ lease: Lease }>('lease', 'get', lease.leaseId)
  expect(after.owner?.labels ?? {}).toEqual({})
})

test('claims: several pools, preference, an address, what is refused', async () => {
  await json('pool', 'create', 'tiny', '--cidr', '10.3.0.0/32')
  await json('pool', 'create', 'six', '--cidr', '2001:db8::/64')
  const both = await json('reserve', '--kind', 'vm', '--name', 'dual', '--pool', 'web', '--pool', 'six')
  expect(both.leases.map((one) => one.address)).toEqual([expect.stringMatching(/^10\.0\.0\./), '2001:db8::1'])
  const first = await json('reserve', '--kind', 'vm', '--name', 'p1', '--prefer', 'tiny,web')
  const second = await json('reserve', '--kind', 'vm', '--name', 'p2', '--prefer', 'tiny,web')
  expect([first, second].map(({ leases }) => leases[0]!.address)).toEqual([
    '10.3.0.0',
    expect.stringMatching(/^10\.0\.0\./),
  ])
  const named = await json(
    'reserve',
    '--kind',
    'vm',
    '--name',
    'named',
    '--address',
    '10.0.0.99',
    '--confirmed',
  )
  expect(named.leases[0]).toMatchObject({ address: '10.0.0.99', state: 'ACTIVE' })
  expect((await run('reserve', '--kind', 'vm', '--name', 'x', '--address', '10.0.0.99')).stderr).toMatch(
    /^ipledger: ADDRESS_TAKEN: /,
  )
  const seen = await json(
    'reserve',
    '--kind',
    'vm',
    '--name',
    'y',
    '--pool',
    'web',
    '--live',
    '10.0.0.98',
    '--validate-only',
  )
  expect(seen.leases).toHaveLength(1)
  expect((await run('lease', 'list', '--owner-name', 'y')).stdout).toBe('no leases\n')
  expect(
    await run(
      'reserve',
      '--kind',
      'vm',
      '--name',
      'z',
      '--pool',
      'web',
      '--pool',
      'six',
      '--address',
      '10.0.0.7',
    ),
  ).toMatchObject({
    code: 1,
    stderr: 'ipledger: --address goes with one --pool, or without any.\n',
  })
})

test('release by owner looks its leases up, and does not guess which life is meant', async () => {
  await reserved('simple')
  expect(await run('release', '--kind', 'pod', '--name', 'simple')).toMatchObject({ code: 0 })
  expect(await run('release', '--kind', 'pod', '--name', 'simple')).toMatchObject({
    code: 1,
    stderr: 'ipledger: pod simple holds no lease in network default.\n',
  })
  const old = await reserved('twice', '--uid', 'u1', '--incarnation', 'one')
  const present = await reserved('twice', '--uid', 'u1', '--incarnation', 'two')
  const unclear = await run('release', '--kind', 'pod', '--name', 'twice')
  expect(unclear).toMatchObject({ code: 1, stdout: '' })
  expect(unclear.stderr).toContain('more than one life')
  expect(unclear.stderr).toContain(old.leaseId)
  expect(unclear.stderr).toContain('QUARANTINED SUPERSEDED')
  const released = await json('release', '--kind', 'pod', '--name', 'twice', '--incarnation', 'one')
  expect(released.leases.map((one) => one.leaseId)).toEqual([old.leaseId])
  const whole = await json(
    ...[
      'release',
      '--kind',
      'pod',
      '--name',
      'twice',
      '--uid',
      'u1',
      '--incarnation',
      'two',
      '--interface',
      'eth0',
    ],
    '--removal-unconfirmed',
  )
  expect(whole.leases).toMatchObject([{ leaseId: present.leaseId, state: 'QUARANTINED' }])
})

test('quarantine and reap say why, and reap shows what ends', async () => {
  const { lease } = await json<{ lease: Lease }>('quarantine', '10.0.0.77', '--why', 'answers ping')
  expect(lease).toMatchObject({
    state: 'QUARANTINED',
    quarantine: { reason: 'OPERATOR', why: 'answers ping' },
  })
  const reaped = await run('reap', lease.leaseId, '--why', 'it was a printer')
  expect(reaped).toMatchObject({ code: 0 })
  expect(reaped.stderr).toBe(
    `Reaping ${lease.leaseId} at version ${lease.version}: 10.0.0.77, QUARANTINED OPERATOR, held for nobody.\n`,
  )
  const held = await reserved('reaped')
  const stale = await run('reap', held.leaseId, '--why', 'x', '--version', '1', '--json')
  expect(stale).toMatchObject({ code: 1, stdout: '' })
  expect(JSON.parse(stale.stderr)).toMatchObject({
    code: 'aborted',
    reason: 'VERSION_MISMATCH',
    metadata: { version: held.version },
  })
})

test('a request id makes a command exactly-once, and can be looked up', async () => {
  const first = await reserved('once', '--request-id', 'r-1')
  expect(await reserved('once', '--request-id', 'r-1')).toEqual(first)
  expect(await json<object>('request', 'get', 'r-1')).toMatchObject({
    committed: true,
    method: 'Reserve',
    leases: [{ leaseId: first.leaseId }],
  })
  expect((await run('request', 'get', 'r-0')).stdout).toBe('request r-0 was not committed in the last 24 h\n')
})

test('lists have pages', async () => {
  for (const name of ['page-1', 'page-2', 'page-3']) await reserved(name, '--label', 'page=yes')
  const first = await run('lease', 'list', '--label', 'page=yes', '--page-size', '2')
  expect(first.stdout.trim().split('\n')).toHaveLength(3)
  const token = /--page-token (\S+)/.exec(first.stderr)![1]!
  const second = await run('lease', 'list', '--label', 'page=yes', '--page-size', '2', '--page-token', token)
  expect(second.stdout.trim().split('\n')).toHaveLength(2)
  expect(second.stderr).toBe('')
})

test('a refusal says reason, message, what is known, what to do and when', async () => {
  await json('pool', 'create', 'full', '--cidr', '10.4.0.0/32', '--cooldown', '1h')
  const { leases } = await json('reserve', '--kind', 'vm', '--name', 'f', '--pool', 'full')
  await json('release', leases[0]!.leaseId)
  const refused = await run('reserve', '--kind', 'vm', '--name', 'g', '--pool', 'full')
  expect(refused).toMatchObject({ code: 1, stdout: '' })
  expect(refused.stderr).toMatch(/^ipledger: POOL_EXHAUSTED: .*\n/)
  expect(refused.stderr).toMatch(/\n {2}try again in (1h|59m\d+s)\n/)
  expect(refused.stderr).toMatch(/\n {2}Wait for RetryInfo/)
})

test('what is malformed is refused before anything is sent', async () => {
  for (const args of [
    ['pool', 'create', 'x'],
    ['pool', 'create', 'x', '--cidr', '10.7.0.0/24', '--cooldown', 'soon'],
    ['reap', 'default/1'],
    ['lease', 'list', '--state', 'lost'],
    ['confirm'],
    ['confirm', 'default/1', '--kind', 'pod'],
    ['lease', 'list', '--page-size', '-1'],
    ['no-such-command'],
    ['pool', 'list', '--no-such-option'],
  ]) {
    const { code, stdout, stderr } = await run(...args)
    expect({ args, code, stdout }).toEqual({ args, code: 1, stdout: '' })
    expect(stderr).not.toBe('')
    expect(stderr).not.toMatch(/\bat .*\.ts:\d+/)
  }
})

test('a process says with its exit code how it went', async () => {
  expect(await ipledgerProcess(service, ['pool', 'get', 'web'])).toMatchObject({ code: 0, stderr: '' })
  const refused = await ipledgerProcess(service, ['pool', 'get', 'none', '--json'])
  expect(refused).toMatchObject({ code: 1, stdout: '' })
  expect(JSON.parse(refused.stderr)).toMatchObject({ code: 'not_found', reason: 'POOL_NOT_FOUND' })
  expect(await ipledgerProcess(service, ['pool', 'no-such-verb'])).toMatchObject({ code: 1, stdout: '' })
})

test('without a server the sentence says so', async () => {
  const { code, stderr } = await ipledger({ url: 'http://127.0.0.1:1' }, ['lease', 'list'])
  expect(code).toBe(1)
  expect(stderr).toBe(
    'ipledger: nothing listens at http://127.0.0.1:1. Start it with "ipledger serve", or set IPLEDGER_URL.\n',
  )
})

test('every command has help with what it does', async () => {
  const { stdout, code } = await run('--help')
  expect(code).toBe(0)
  const verbs = [...stdout.matchAll(/^ {2}([a-z]+) (?:\[|<|\S* {2,})/gm)].map((found) => found[1]!)
  expect(verbs).toEqual(
    expect.arrayContaining(['serve', 'worker', 'migrate', 'network', 'pool', 'reserve', 'release', 'events']),
  )
  expect((await run('reserve', '--help')).stdout).toContain('Examples:')
})

test('verify finds what differs, rebuild says what, and mends it', async () => {
  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_LOG_LEVEL: 'silent' }
  const books = (...args: readonly string[]) => ipledger(service, args, env)
  await json('network', 'create', 'mended')
  await json('pool', 'create', 'p', '--cidr', '10.0.0.0/29', '--network', 'mended')
  await json('reserve', '--kind', 'vm', '--name', 'v', '--network', 'mended')
  const clean = await books('verify', '--full')
  expect(clean).toMatchObject({ code: 0 })
  expect(clean.stdout).toMatch(
    /^NETWORK +HEAD +FROM +EVENTS +FINDINGS\ndefault +\d+ +0 +\d+ +none\nmended +3 +0 +3 +none\n/,
  )
  await withClient(database.adminUrl, (client) =>
    client.query(`delete from ipledger.lease where network_id = 'mended'`),
  )
  const broken = await books('verify', '--network', 'mended', '--full')
  expect(broken.code).toBe(1)
  expect(broken.stdout).toContain('LEASE_MISSING')
  const dry = await books('rebuild', '--network', 'mended', '--dry-run')
  expect(dry.code).toBe(1)
  expect(dry.stdout).toMatch(/lease .*10\.0\.0\.1.*: missing/)
  expect(await books('rebuild', '--network', 'mended')).toMatchObject({ code: 0 })
  const report = await books('rebuild', '--network', 'mended', '--dry-run', '--json')
  expect(report.code).toBe(0)
  expect(JSON.parse(report.stdout)).toMatchObject({ network: 'mended', differences: [] })
  expect(await books('verify', '--full', '--json')).toMatchObject({ code: 0 })
  expect((await books('rebuild', '--network', 'none')).stderr).toMatch(
    /^ipledger: network none has no events/,
  )
})

test('tokens are made, work, are listed without what opens them, and are withdrawn', async () => {
  const file = join(temporaryDirectory(), 'tokens.jsonl')
  const make = (...args: readonly string[]) => ipledger(service, ['token', ...args, '--file', file])
  const admin = (await make('create', 'boss', '--role', 'admin')).stdout.trim()
  const auditor = (await make('create', 'eyes', '--role', 'auditor', '--networks', 'default')).stdout.trim()
  expect(admin).toMatch(/^ipl_/)
  expect(readFileSync(file, 'utf8')).not.toContain(admin)
  expect((await make('create', 'boss', '--role', 'admin')).code).toBe(1)
  expect((await make('list')).stdout).toMatch(
    /^NAME +ROLE +NETWORKS +CREATED\nboss +admin .*\neyes +auditor +default /,
  )

  const guarded = await startService({
    DATABASE_URL: database.adminUrl,
    IPLEDGER_TOKENS: file,
    IPLEDGER_HOST: '0.0.0.0',
  })
  const list = (token?: string) => ipledger(guarded, ['pool', 'list'], { IPLEDGER_TOKEN: token })
  expect(await list(admin)).toMatchObject({ code: 0 })
  expect(await list(auditor)).toMatchObject({ code: 0 })
  expect((await list()).stderr).toMatch(/^ipledger: UNAUTHENTICATED: /)
  const denied = await ipledger(guarded, ['pool', 'delete', 'web'], { IPLEDGER_TOKEN: auditor })
  expect(denied.stderr).toMatch(/^ipledger: PERMISSION_DENIED: /)
  expect(await make('revoke', 'eyes')).toMatchObject({ code: 0 })
  expect((await make('revoke', 'eyes')).code).toBe(1)
  await waitFor(async () => (await list(auditor)).code === 1, { what: 'the token to be unknown', every: 300 })
  expect(await list(admin)).toMatchObject({ code: 0 })
  await stopService(guarded)
})

test('npx ipledger and npm run ipledger work in a checkout', () => {
  for (const command of ['npx --no-install ipledger', 'npm run --silent ipledger --']) {
    const [program, ...args] = command.split(' ')
    const ran = spawnSync(program!, [...args, 'lease', 'list', '--json'], {
      cwd: CHECKOUT,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, HOME: process.env.HOME, IPLEDGER_URL: service.url },
    })
    expect({ command, status: ran.status, stderr: ran.stderr }).toMatchObject({ status: 0 })
    expect(JSON.parse(ran.stdout)).toHaveProperty('head')
  }
})

test('a reader that stops reading is not an error', async () => {
  const program = `${process.execPath} src/main.ts events --page-size 1000 | head -1; echo "\${PIPESTATUS[0]}"`
  const ran = spawnSync('bash', ['-c', program], {
    cwd: CHECKOUT,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, IPLEDGER_URL: service.url },
  })
  expect(ran.stdout).toMatch(/^SEQ .*\n0\n$/)
})
