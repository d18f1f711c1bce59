import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { MOST_EXAMINED } from '../../src/ledger/read-leases.ts'
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
    ...['--misses', '4', '--minimum-age', '10m', '--unwitnessed-age', '2h', '--terminal-grace', '30s'],
    ...['--confirm-grace', '90s'],
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
      reapPolicy: {
        misses: 4,
        minimumAge: '600s',
        unwitnessedAge: '7200s',
        terminalGrace: '30s',
        confirmGrace: '90s',
      },
    },
  })
  expect(
    (await json<{ pool: object }>('pool', 'update', 'all', '--terminal-grace', '1m')).pool,
  ).toMatchObject({ reapPolicy: { misses: 4, terminalGrace: '60s' } })
  const { pool } = await json<{ pool: Record<string, unknown> }>(
    ...['pool', 'update', 'all', '--new-name', 'some', '--no-gateway', '--no-exclude', '--no-confirm-within'],
    ...['--no-draining', '--no-options', '--no-labels', '--no-reap-policy', '--liveness', 'available'],
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
  expect(text.stdout).toMatch(
    /reap policy +3 misses, age 5m, unwitnessed 1h, grace 5m ended, 1m unconfirmed\n/,
  )
  expect(text.stdout).toMatch(/usage +256 = \d+ free \+ 0 cooling \+ 0 reserved/)
  await json('pool', 'delete', 'some')
  expect((await run('pool', 'get', 'some')).stderr).toMatch(/^ipledger: POOL_NOT_FOUND: /)
})

test('an exclusion more or less leaves the others as they are', async () => {
  type One = { readonly pool: { readonly exclude: readonly string[]; readonly version: string } }
  await json('network', 'create', 'shared')
  const shared = (...args: readonly string[]) => [...args, '--network', 'shared']
  const update = (...args: readonly string[]) => run('pool', 'update', 'web', ...shared(...args))
  const get = async () => (await json<One>('pool', 'get', 'web', ...shared())).pool
  const { pool: made } = await json<One>(
    ...['pool', 'create', 'web', '--cidr', '10.8.0.0/24', '--exclude', '10.8.0.1-10.8.0.9,10.8.0.200'],
    ...shared(),
  )
  // A second allocator has 10.8.0.10 to 10.8.0.15, and the upper half is somebody else's anyway.
  expect(
    await update('--add-exclude', '10.8.0.10-10.8.0.15', '--add-exclude', '10.8.0.128/25'),
  ).toMatchObject({
    code: 0,
  })
  const all = ['10.8.0.1-10.8.0.9', '10.8.0.200', '10.8.0.10-10.8.0.15', '10.8.0.128-10.8.0.255']
  expect((await get()).exclude).toEqual(all)
  expect(await update('--add-exclude', '10.8.0.12')).toMatchObject({ code: 0 })
  expect((await get()).exclude).toEqual(all)
  const { leases } = await json('reserve', '--kind', 'pod', '--name', 'first', '--pool', 'web', ...shared())
  expect(leases[0]!.address).toBe('10.8.0.16')

  // 10.8.0.200 was in two of them.
  expect(await update('--remove-exclude', '10.8.0.200,10.8.0.4')).toMatchObject({ code: 0 })
  const left = ['10.8.0.1-10.8.0.3', '10.8.0.5-10.8.0.9', '10.8.0.10-10.8.0.15']
  const halves = ['10.8.0.128-10.8.0.199', '10.8.0.201-10.8.0.255']
  const { exclude, version } = await get()
  expect(exclude).toEqual([...left, ...halves])
  const { leases: second } = await json(
    ...['reserve', '--kind', 'pod', '--name', 'second', '--pool', 'web', '--address', '10.8.0.4'],
    ...shared(),
  )
  expect(second[0]!.address).toBe('10.8.0.4')

  for (const [args, said] of [
    [['--remove-exclude', '10.8.0.50'], /^ipledger: 10\.8\.0\.50 is not among the exclusions of pool web, /],
    [['--add-exclude', '10.8.0.4'], /^ipledger: POOL_IN_USE: .*10\.8\.0\.4 RESERVED shared\/\d+/],
    [['--add-exclude', '10.8.0.300'], /^ipledger: "10\.8\.0\.300" .+\.\n$/],
    [['--add-exclude', '10.8.0.50', '--exclude', '10.8.0.60'], /--exclude and --no-exclude say all of it/],
    [['--add-exclude', '10.8.0.50', '--request-id', 'once'], /need no --request-id/],
    [['--add-exclude', '10.8.0.50', '--version', made.version], /^ipledger: VERSION_MISMATCH: /],
  ] as const) {
    expect(await update(...args)).toMatchObject({ code: 1, stderr: expect.stringMatching(said) })
  }
  expect(await get()).toMatchObject({ exclude, version })
})

test('an exclusion that came between reading and writing is not lost', async () => {
  await json('pool', 'create', 'two', '--cidr', '10.8.1.0/24', '--exclude', '10.8.1.9')
  const between = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray())
    // Somebody else is quicker, between GetPool and UpdatePool.
    const other = { name: 'two', exclude: { entries: ['10.8.1.9', '10.8.1.16'] } }
    if (request.url!.endsWith('/UpdatePool')) await post('UpdatePool', JSON.stringify(other))
    const answer = await post(request.url!.split('/').at(-1)!, body, request.headers['content-type'])
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type')! })
    response.end(Buffer.from(await answer.arrayBuffer()))
  })
  const post = (method: string, body: string | Buffer<ArrayBuffer>, type = 'application/json') =>
    fetch(`${service.url}/ipledger.v1.PoolService/${method}`, {
      method: 'POST',
      headers: { 'content-type': type },
      body,
    })
  await new Promise<void>((resolve) => between.listen(0, '127.0.0.1', resolve))
  onTestFinished(async () => void (await promisify(between.close.bind(between))()))
  const url = `http://127.0.0.1:${(between.address() as AddressInfo).port}`
  const late = await ipledger({ url }, ['pool', 'update', 'two', '--add-exclude', '10.8.1.32'])
  expect(late).toMatchObject({ code: 1, stderr: expect.stringMatching(/^ipledger: VERSION_MISMATCH: /) })
  const { pool } = await json<{ pool: { exclude: readonly string[] } }>('pool', 'get', 'two')
  expect(pool.exclude).toEqual(['10.8.1.9', '10.8.1.16'])
})

test('a free address and a mistyped lease are told as what they are', async () => {
  const free = await run('lease', 'get', '10.0.0.200')
  expect(free).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'ipledger: LEASE_NOT_FOUND: nobody holds 10.0.0.200 in network default\n' +
      '  "ipledger explain 10.0.0.200" says who had it, and how that ended.\n',
  })
  const typed = await run('release', 'default/99999')
  expect(typed.stderr).toMatch(
    /^ipledger: VERSION_MISMATCH: lease default\/99999 is beyond .*\n {2}Check what you typed\. If ipledger did give out /,
  )
  expect(typed.stderr).not.toContain('Read it again')
})

test('networks', async () => {
  await json('network', 'create', 'vpc-1', '--description', 'first', '--label', 'a=b')
  await json('network', 'update', 'vpc-1', '--description', 'second', '--no-labels')
  const { network } = await json<{ network: Record<string, unknown> }>('network', 'get', 'vpc-1')
  expect(network).toMatchObject({ name: 'vpc-1', description: 'second', state: 'READY' })
  const stale = await run('network', 'update', 'vpc-1', '--version', '1', '--description', 'third')
  expect(stale).toMatchObject({ code: 1, stderr: expect.stringMatching(/^ipledger: VERSION_MISMATCH: /) })
  const version = String(network.version)
  expect(
    await json<object>('network', 'update', 'vpc-1', '--version', version, '--description', 'second'),
  ).toMatchObject({ network: { version } })
  expect((await run('network', 'list')).stdout).toMatch(
    /^NETWORK +STATE .*\ndefault +READY [\s\S]*\nvpc-1 +READY/,
  )
  expect(await json<object>('recover', 'vpc-1', '--end', '--why', 'nothing runs there')).toMatchObject({
    network: { name: 'vpc-1' },
  })
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
  expect(await run('lease', 'get', lease.leaseId)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(
      `^ipledger: LEASE_NOT_FOUND: lease ${lease.leaseId} was RELEASED at .*; it held ${lease.address}\n` +
        `(?: .*\n)*  "ipledger explain ${lease.address}" says who had it, and how that ended\\.\n$`,
    ),
  })
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

test('in a large network an owner is looked for to the end', async () => {
  await json('network', 'create', 'large')
  await json('pool', 'create', 'p', '--cidr', '10.64.0.0/17', '--network', 'large')
  const at = ['--kind', 'pod', '--network', 'large'] as const
  const first = await json('reserve', '--name', 'first', '--uid', 'u-first', ...at)
  for (let done = 0; done <= MOST_EXAMINED; done += 1_000) {
    const requests = Array.from({ length: 1_000 }, (_, index) => ({
      owner: { kind: 'vm', name: `v${done + index}` },
    }))
    const answer = await fetch(`${service.url}/ipledger.v1.LeaseService/BatchReserve`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ network: 'large', requests }),
    })
    expect(answer.status).toBe(200)
  }
  const last = await json('reserve', '--name', 'last', '--uid', 'u-last', ...at)
  for (const [uid, { leases }] of [
    ['u-first', first],
    ['u-last', last],
  ] as const) {
    const released = await json('release', '--uid', uid, ...at)
    expect(released.leases).toMatchObject([{ leaseId: leases[0]!.leaseId, state: 'ENDED' }])
    expect(await run('release', '--uid', uid, ...at)).toMatchObject({
      code: 1,
      stderr: `ipledger: pod ${uid} holds no lease in network large.\n`,
    })
  }
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

test('sources: registered, enabled, looked at, retired', async () => {
  await json('network', 'create', 'seen')
  await json('pool', 'create', 'p', '--cidr', '10.8.0.0/24', '--network', 'seen')
  const at = ['--network', 'seen']
  const registered = await run(
    ...[
      'source',
      'register',
      'agent-n1',
      '--node',
      'n1',
      '--owner-kinds',
      'pod,vm',
      '--families',
      '4',
      ...at,
    ],
    ...['--sees-stopped', '--boot-ends-all', '--interval', '45s'],
  )
  expect(registered.stdout).toMatch(/^source +agent-n1\nnetwork +seen\nkind +push\n/)
  expect(registered.stdout).toMatch(
    /\nsees +pod, vm on node n1 \(IPv4\), stopped ones too, a new boot ends all\ninterval +45s\nstate +REGISTERED\nstanding +dry run; has not reported yet\n/,
  )
  await json(
    ...['source', 'register', 'docker', '--kind', 'docker', '--owner-kinds', 'container', ...at],
    ...['--settings', '{"network": "sandboxes"}'],
  )
  expect(await json<object>('source', 'show', 'docker', ...at)).toMatchObject({
    sources: [{ id: 'docker', kind: 'DOCKER', settings: { network: 'sandboxes' } }],
  })
  expect((await run('source', 'enable', 'agent-n1', ...at)).stdout).toMatch(/\nstate +ENABLED\n/)

  const report = async (body: object) => {
    const call = async (method: string, message: object) => {
      const response = await fetch(`${service.url}/ipledger.v1.LivenessService/${method}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ network: 'seen', source: 'agent-n1', ...message }),
      })
      return (await response.json()) as { token: string }
    }
    const { token } = await call('BeginSnapshot', {})
    await call('ReportSnapshot', { token, epoch: 'b1', complete: true, ...body })
  }
  await report({
    entries: [
      { address: '10.8.0.7', kind: 'pod', name: 'default/a', uid: 'u-7' },
      { address: '10.8.0.300' },
      { address: '10.9.9.9', kind: 'vm', name: 'far' },
    ],
  })
  await report({ entries: [{ address: '10.8.0.7', kind: 'pod', name: 'default/a', uid: 'u-7' }] })
  const list = await run('source', 'list', '--state', 'enabled', '--node', 'n1', ...at)
  expect(list.stdout).toMatch(
    /^SOURCE +KIND +NODE +SEES +STATE +SIZE +REPORTED +STANDING\nagent-n1 +push +n1 +pod,vm +ENABLED +1 +\S+ +warming up: nothing is missed yet\n$/,
  )
  const snapshots = await run('snapshot', 'list', 'agent-n1', ...at)
  expect(snapshots.stdout).toMatch(
    /^SEQUENCE .*\n2 .* complete, not counted: WARM_UP\n1 .* partial: UNREADABLE_ENTRY\n$/,
  )
  const first = await run('snapshot', 'show', 'agent-n1', '1', ...at)
  expect(first.stdout).toMatch(/^snapshot +1\nsource +agent-n1\ntaken as +partial: UNREADABLE_ENTRY\n/)
  expect(first.stdout).toMatch(
    /\n\nADDRESS .*\n10\.8\.0\.7 +agent-n1 +pod default\/a +u-7 .*\n10\.9\.9\.9 +agent-n1 +vm far /,
  )
  expect((await run('snapshot', 'show', 'agent-n1', '0', ...at)).stderr).toContain(
    'Snapshots are numbered from 1.',
  )
  expect((await run('stuck', '--code', 'source_silent', ...at)).stderr).toContain(
    'codes[0]: source_silent is no code; it must be one of NETWORK_RECOVERING, ',
  )
  expect((await run('snapshot', 'show', 'agent-n1', '9', ...at)).stderr).toBe(
    'ipledger: No report 9 of agent-n1 is kept: it changed nothing, is too old, or never was.\n',
  )
  expect(await json<object>('sighting', 'list', '--address', '10.8.0.7', ...at)).toMatchObject({
    sightings: [{ source: 'agent-n1', owner: { uid: 'u-7', node: 'n1', boot: 'b1' }, listed: true }],
  })
  expect((await run('lease', 'get', '10.8.0.7', ...at)).stdout).toMatch(/\nstate +ACTIVE\n/)

  const retired = await run('source', 'retire', 'agent-n1', ...at)
  expect(retired.stdout).toMatch(/\nstanding +over for good\n/)
  expect(retired.stderr).toMatch(
    /^[12] leases? (is|are) covered by no other enabled source: .* reaped by an operator/,
  )
  expect(await json<object>('source', 'retire', 'agent-n1', ...at)).toMatchObject({ atLeast: false })
  expect((await run('sighting', 'list', ...at)).stdout).toBe('no sightings\n')
  expect((await run('source', 'show', 'nobody', ...at)).stderr).toBe(
    'ipledger: network seen has no source nobody.\n',
  )
})

test('what would be done, what is held, what waits', async () => {
  expect(await run('reconcile')).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(/^ipledger: Reconciling is what the worker does .* --dry-run /),
  })
  await json('network', 'create', 'still')
  const at = ['--network', 'still']
  expect((await run('reconcile', '--dry-run', ...at)).stdout).toBe('nothing to be done\n')
  expect((await run('hold', 'list', ...at)).stdout).toBe('no holds\n')
  expect((await run('hold', 'resume', '--why', 'none', ...at)).stdout).toBe('no holds\n')
  expect((await run('hold', 'resume', 'nobody', '--why', 'none', ...at)).stderr).toMatch(
    /^ipledger: SOURCE_NOT_FOUND: /,
  )
  expect((await run('stuck', '--code', 'HELD', ...at)).stdout).toBe('nothing waits\n')
})

test('a boot that is over is vouched for', async () => {
  const lease = await reserved('fenced', '--node', 'n9', '--boot', 'b9')
  // Found out before the lease was there, it is not about it.
  const before = String(BigInt(lease.version) - 1n)
  const early = await run('fence', 'n9', '--boot', 'b9', '--why', 'dark', '--head', before)
  expect(early.stdout).toMatch(/\nleases +0\n$/)
  const fenced = await run('fence', 'n9', '--boot', 'b9', '--why', 'power is off')
  expect(fenced.stdout).toMatch(/^node +n9\nboot +b9\nevent +\d+\nleases +1\n$/)
  const log = await json<{ events: readonly { seq: string }[] }>('events', '--type', 'node.fenced')
  expect(log.events).toMatchObject([
    { evidence: { node: 'n9', boot: 'b9', why: 'dark', head: Number(before) } },
    { evidence: { node: 'n9', boot: 'b9', why: 'power is off' } },
  ])
  expect(Number(log.events[0]!.seq)).toBeGreaterThan(Number(lease.version))
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
  expect(refused.stderr).toMatch(/\n {2}Wait for RetryInfo if there is one/)
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

/** As people are told which one it is, without its login and password. */
function databaseAt(url: string): string {
  const { hostname, port, pathname } = new URL(url)
  return `PostgreSQL at ${hostname}:${port}, database "${pathname.slice(1)}"`
}

test('verify finds what differs, rebuild says what, and mends it', async () => {
  const env = { DATABASE_URL: database.adminUrl, IPLEDGER_LOG_LEVEL: 'silent' }
  const books = (...args: readonly string[]) => ipledger(service, args, env)
  await json('network', 'create', 'mended')
  await json('pool', 'create', 'p', '--cidr', '10.0.0.0/29', '--network', 'mended')
  await json('reserve', '--kind', 'vm', '--name', 'v', '--network', 'mended')
  const clean = await books('verify', '--full')
  expect(clean).toMatchObject({ code: 0 })
  expect(clean.stdout).toMatch(
    /^NETWORK +HEAD +FROM +EVENTS +FINDINGS\ndefault +\d+ +0 +\d+ +none\n(?:.*\n)*mended +3 +0 +3 +none\n/,
  )
  await withClient(database.adminUrl, (client) =>
    client.query(`delete from ipledger.lease where network_id = 'mended'`),
  )
  // In another terminal DATABASE_URL may name another database.
  expect(clean.stdout.split('\n').slice(-3)).toEqual(['', `This is ${databaseAt(database.adminUrl)}.`, ''])
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
  const mended = await books('verify', '--full', '--json')
  expect(mended.code).toBe(0)
  expect(JSON.parse(mended.stdout)).toMatchObject({ database: databaseAt(database.adminUrl) })
  expect((await books('rebuild', '--network', 'none')).stderr).toMatch(
    /^ipledger: network none has no events/,
  )
})

test('verify, rebuild and recover make no database, and verify and rebuild change none', async () => {
  const directory = join(temporaryDirectory(), 'nowhere')
  const none = { DATABASE_URL: undefined, IPLEDGER_DIR: directory, IPLEDGER_LOG_LEVEL: 'silent' }
  for (const args of [['verify'], ['rebuild'], ['rebuild', '--dry-run'], ['recover', '--why', 'x']]) {
    expect(await ipledger(service, args, none)).toMatchObject({
      code: 1,
      stdout: '',
      stderr: `ipledger: There is no database in ${directory}: run the command where the service runs, or let IPLEDGER_DIR or DATABASE_URL name it.\n`,
    })
    expect(existsSync(directory)).toBe(false)
  }

  const migrations = async (admin: pg.Client) =>
    (await admin.query('select name, applied_at::text from ipledger.migration order by name')).rows
  const other = await createTestDatabase()
  onTestFinished(() => other.drop())
  const env = { DATABASE_URL: other.adminUrl, IPLEDGER_LOG_LEVEL: 'silent' }
  // Nothing to look at is not "in order".
  expect(await ipledger(service, ['verify'], env)).toMatchObject({
    code: 1,
    stderr: `ipledger: There is no network in ${databaseAt(other.adminUrl)}.\n`,
  })
  await withClient(other.adminUrl, async (admin) => {
    await admin.query(
      'delete from ipledger.migration where version = (select max(version) from ipledger.migration)',
    )
    const before = await migrations(admin)
    for (const args of [['verify'], ['rebuild', '--dry-run'], ['rebuild']]) {
      expect(await ipledger(service, args, env)).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(
          new RegExp(
            `^ipledger: The database is at schema version ${before.length}, .*run "ipledger migrate"`,
          ),
        ),
      })
    }
    expect(await migrations(admin)).toEqual(before)
  })
  const empty = await createTestDatabase({ empty: true })
  onTestFinished(() => empty.drop())
  const unmade = await ipledger(service, ['verify'], { ...env, DATABASE_URL: empty.adminUrl })
  expect(unmade).toMatchObject({ code: 1, stderr: expect.stringContaining('schema version 0') })
  await withClient(empty.adminUrl, async (admin) => {
    expect((await admin.query(`select from pg_namespace where nspname = 'ipledger'`)).rows).toEqual([])
  })
})

/** Any user but root. */
const NOBODY = 65_534

test.runIf(process.getuid?.() === 0)(
  'a token is withdrawn from the server that may read the file',
  async () => {
    const directory = temporaryDirectory()
    const file = join(directory, 'tokens.jsonl')
    const token = (...args: readonly string[]) => ['token', ...args, '--file', file]
    await ipledger(service, token('create', 'eyes', '--role', 'auditor'))
    await ipledger(service, token('create', 'boss', '--role', 'admin'))
    chownSync(file, NOBODY, NOBODY)
    chmodSync(file, 0o640)
    expect(await ipledger(service, token('revoke', 'eyes'))).toMatchObject({ code: 0 })
    const { uid, gid, mode } = statSync(file)
    expect({ uid, gid, mode: mode & 0o777 }).toEqual({ uid: NOBODY, gid: NOBODY, mode: 0o640 })

    // Who may write in the directory, but may not leave the file to its owner, withdraws nothing.
    chownSync(directory, NOBODY, NOBODY)
    chownSync(file, 0, 0)
    chmodSync(file, 0o644)
    const before = readFileSync(file, 'utf8')
    const refused = spawnSync(process.execPath, ['src/main.ts', ...token('revoke', 'boss')], {
      cwd: CHECKOUT,
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
  expect((await list()).stderr).toMatch(
    /^ipledger: UNAUTHENTICATED: .*\n {2}Set IPLEDGER_TOKEN to a token that the server knows; /,
  )
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
