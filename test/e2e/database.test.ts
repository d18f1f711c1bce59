/** Commands that go to the database itself: verify, rebuild, recover, beside a service that runs. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { createTestDatabase, useTestDatabase, withClient } from '../support/database.ts'
import { serviceOn } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import { ipledger, words } from './commands.ts'

const database = await useTestDatabase()
const nobody = { url: 'http://127.0.0.1:1' }
const onDatabase = (line: string, DATABASE_URL = database.adminUrl) =>
  ipledger(nobody, words(line), { DATABASE_URL })
const one = (network: string, name: string) => ({
  network,
  owner: { kind: 'sandbox', name, incarnation: '1' },
  claims: [{ pool: 'web' }],
})

/** As people are told which one it is, without its login and password. */
function databaseAt(url: string): string {
  const { hostname, port, pathname } = new URL(url)
  return `PostgreSQL at ${hostname}:${port}, database "${pathname.slice(1)}"`
}

async function start() {
  const service = await serviceOn({ database })
  onTestFinished(() => service.stop())
  return service
}

test('7.1: projections lost by accident: nothing is handed out until they are rebuilt, and then what was held is', async () => {
  const first = await serviceOn({ database })
  const { call: before } = first
  await before.ok('NetworkService/CreateNetwork', { name: 'lost' })
  for (const network of ['default', 'lost'])
    await before.ok('PoolService/CreatePool', { network, name: 'web', cidr: '10.7.0.0/29' })
  const lease = (await before.ok('LeaseService/Reserve', one('lost', 'held'))).leases[0]
  await first.stop()

  const clean = await onDatabase('verify')
  expect(clean).toMatchObject({ code: 0 })
  expect(clean.stdout).toMatch(
    /^NETWORK +HEAD +FROM +UP TO +FINDINGS +ANCHOR\ndefault +2 +0 +2 +none +2:\S+\nlost +3 +0 +3 +none +3:[0-9a-f]{64}\n$/,
  )
  // In another terminal DATABASE_URL may name another database.
  expect(clean.stderr).toBe(`ipledger verify: ${databaseAt(database.adminUrl)}\n`)
  const { stdout: json } = await onDatabase('verify -o json')
  // As the API writes them.
  expect(JSON.parse(json).networks).toMatchObject([
    { network: 'default', head: '2', verifiedSeq: '2' },
    {
      network: 'lost',
      complete: true,
      fromSeq: '0',
      verifiedSeq: '3',
      head: '3',
      findings: [],
      omitted: '0',
    },
  ])
  const anchor = / (3:[0-9a-f]{64})\n/.exec(clean.stdout)![1]!

  await withClient(database.adminUrl, async (admin) => {
    for (const table of ['network', 'lease'])
      await admin.query(`delete from ipledger.${table} where network_id = 'lost'`)
  })
  const broken = await onDatabase('verify')
  expect(broken.code).toBe(1)
  expect(broken.stdout).toContain('lost: LEASE_DIFFERS: 10.7.0.1 has events and no row')
  const { call } = await start()
  for (const [method, message] of [
    ['LeaseService/Reserve', one('lost', 'new')],
    ['LeaseService/Quarantine', { network: 'lost', address: '10.7.0.1', why: 'looks free' }],
    ['PoolService/DeletePool', { network: 'lost', name: 'web' }],
    ['PoolService/UpdatePool', { network: 'lost', name: 'web', cidr: '10.7.0.4/30' }],
  ] as const) {
    const refused = await call(method, message)
    expect(refused.status, method).not.toBe(200)
    expect(refused.body.message, method).toContain('ipledger rebuild')
  }
  expect((await call.ok('LeaseService/Reserve', one('default', 'new'))).leases[0].address).toBe('10.7.0.1')
  const rebuilt = await onDatabase('rebuild --network lost')
  expect(rebuilt).toMatchObject({ code: 0 })
  expect(rebuilt.stdout).toMatch(/^network +lost\nhead +3\nrows of lease +1\n/)
  expect((await call.ok('LeaseService/Reserve', one('lost', 'new'))).leases[0].address).toBe('10.7.0.2')
  expect((await call.ok('LeaseService/GetLease', { leaseId: lease.leaseId })).lease).toEqual(lease)

  expect(await onDatabase(`verify --network lost --against ${anchor}`)).toMatchObject({ code: 0 })
  const lost = await onDatabase(`verify --network lost --against 9${anchor}`)
  expect(lost.code).toBe(1)
  expect(lost.stdout).toMatch(/LOG_SHORTER: the log ends with event 4; it once went on to event 93\n/)
  expect((await onDatabase(`verify --against ${anchor}`)).stderr).toMatch(
    /^ipledger: Say of which network the anchor is: /m,
  )
  await expectVerified(database)
})

test('they make no database, and verify and rebuild change none', async () => {
  const directory = join(temporaryDirectory(), 'nowhere')
  for (const line of ['verify', 'rebuild', 'recover --all --database --why x']) {
    const none = { DATABASE_URL: undefined, DATABASE_ADMIN_URL: undefined, IPLEDGER_DIR: directory }
    expect(await ipledger(nobody, words(line), none)).toEqual({
      code: 1,
      stdout: '',
      stderr: `ipledger ${line.split(' ')[0]}: the embedded PostgreSQL in ${directory}\nipledger: There is no database in ${directory}: run the command where the service runs, or let IPLEDGER_DIR or DATABASE_URL name it.\n`,
    })
    expect(existsSync(directory)).toBe(false)
  }
  const other = await createTestDatabase()
  onTestFinished(() => other.drop())
  // Nothing to look at is not "in order".
  expect(await onDatabase('verify', other.adminUrl)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`\nipledger: There is no network in ${databaseAt(other.adminUrl)}.\n`),
  })
  const migrations = async (admin: pg.Client) =>
    (await admin.query('select name, timestamp from ipledger.migration order by name')).rows
  await withClient(other.adminUrl, async (admin) => {
    await admin.query(
      'delete from ipledger.migration where name = (select max(name) from ipledger.migration)',
    )
    const before = await migrations(admin)
    for (const line of ['verify', 'rebuild'])
      expect(await onDatabase(line, other.adminUrl)).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(
          /^ipledger (verify|rebuild): .*\nipledger: The database is at schema version \d+, .*run "ipledger migrate"/,
        ),
      })
    expect(await migrations(admin)).toEqual(before)
  })
})

test('rebuild takes the owner’s login, and a database that goes away is not reached', async () => {
  expect(await onDatabase('rebuild', database.serviceUrl)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(
      /\nipledger: Role "ipledger_service" does not own the database: let DATABASE_ADMIN_URL, .* name the owner\.\n$/,
    ),
  })
  const verifying = await withClient(database.adminUrl, async (admin) => {
    await admin.query('begin')
    await admin.query('lock table ipledger.event')
    const finished = onDatabase('verify')
    const end = `select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'ipledger verify' and wait_event_type = 'Lock' and datname = current_database()`
    // A transaction would see the same activity all along.
    await withClient(database.adminUrl, (other) =>
      waitFor(async () => (await other.query(end)).rowCount! > 0),
    )
    await admin.query('rollback')
    return { finished }
  })
  expect(await verifying.finished).toMatchObject({
    code: 3,
    stderr: expect.stringMatching(/\nipledger: PostgreSQL does not answer: terminating connection .*\.\n$/),
  })
})

test('recover --database is refused while a service uses the database, and begins an era when none does', async () => {
  const service = await serviceOn({ database })
  const line = 'recover default --database --why "set back"'
  expect(await onDatabase(line)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(
      'ipledger: A service uses this database: leave --database away, and let IPLEDGER_URL name it.',
    ),
  })
  expect((await service.call.ok('NetworkService/GetNetwork', { name: 'default' })).network.era).toBe(0)
  await service.stop()
  // PostgreSQL may still be about to end its sessions.
  const begun = await waitFor(async () => {
    const ended = await onDatabase(line)
    return ended.code === 0 && ended
  })
  expect(begun.stdout).toMatch(/default +1 +\d+ +RECOVERING/)
})
