/** Debian's PgBouncer between ipledger and its server: by session everything works, by transaction or statement nothing starts. */
import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer } from 'node:net'
import { pino } from 'pino'
import { expect, inject, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { connectUnchecked, readUrl } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { checkSessions } from '../../src/postgres/locks.ts'
import { serve, startProcess, stop } from '../e2e/commands.ts'
import { useOwnDatabase, withClient } from '../support/database.ts'
import { rpc } from '../support/rpc.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'
import { usePgBouncer } from './pgbouncer.ts'

/** As docs/deploying.md says: a process may use 24 connections as ipledger_service. */
const POOL_SIZE = 25
const server = inject('postgres').url
const owner = (name: string) => ({ kind: 'container', name, uid: name, incarnation: '1' })

async function run(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  const { code, stdout, stderr } = await startProcess(args, env).finished
  expect({ code, stderr }, args.join(' ')).toMatchObject({ code: 0 })
  return stdout
}

test('pool_mode = session: migrate, reserve, report, watch, jobs, verify, rebuild, recover', async () => {
  const database = await useOwnDatabase({ empty: true })
  const pooler = await usePgBouncer(server, { pool_mode: 'session', default_pool_size: POOL_SIZE })
  const { serviceUrl } = database
  const env = { DATABASE_URL: pooler.through(database.adminUrl) }
  await run(['migrate'], env)

  const service = await serve(env)
  const call = rpc(service.url)
  await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24' })
  await call.ok('LivenessService/RegisterSource', {
    id: 'n1',
    sight: { node: 'n1', ownerKinds: ['container'], families: [4], interval: '30s' },
  })
  await call.ok('LivenessService/EnableSource', { id: 'n1' })
  const watch = startProcess(['watch', '--after', '0'], { IPLEDGER_URL: service.url })
  const names = Array.from({ length: 100 }, (_, index) => `c${index}`)
  const leases = await Promise.all(
    names.map(async (name) => {
      const message = { owner: owner(name), claims: [{ pools: ['web'] }], confirmed: true }
      return (await call.ok('LeaseService/Reserve', message)).leases[0] as {
        leaseId: string
        address: string
      }
    }),
  )
  expect(new Set(leases.map(({ address }) => address)).size).toBe(100)
  await waitFor(() => leases.every(({ address }) => watch.stdout().includes(`${address} `)), {
    what: 'the watch to have all leases',
  })
  const list = async (...entries: readonly object[]) => {
    const begun = await call.ok('LivenessService/BeginSnapshot', { source: 'n1' })
    const { sequence, head, begunAt, proof } = begun
    const look = { sequence, head, begunAt, proof, epoch: 'life', complete: true, entries }
    return call.ok('LivenessService/ReportSnapshot', { source: 'n1', ...look })
  }
  expect(await list({ address: '10.0.0.200', ...owner('unknown') })).toMatchObject({ complete: true })
  const seen = `select from ipledger.sighting where address = '10.0.0.200'`
  await stop(watch)
  // The role's limits arrive: else a process that is paused would hold the network's lock.
  expect(
    await withClient(
      pooler.through(serviceUrl),
      async (client) => (await client.query('show lock_timeout')).rows[0],
    ),
  ).toEqual({ lock_timeout: '3s' })
  const ended = `select from ipledger.verification where finished_at is not null`
  await withClient(database.adminUrl, async (admin) => {
    expect((await admin.query(seen)).rows).toHaveLength(1)
    await waitFor(async () => (await admin.query(ended)).rows.length > 0, { what: 'the job verify' })
  })
  await stop(service)
  expect(service.stderr()).not.toMatch(/"level":(?:50|60)/)

  expect(await run(['verify'], env)).toMatch(/default +\d+ +0 +\d+ +none/)
  await run(['rebuild', '--network', 'default'], env)
  await run(['recover', '--all', '--database', '--why', 'the disk was set back'], env)
  const again = await serve(env)
  const refused = await rpc(again.url)('LeaseService/Reserve', { owner: owner('x'), claims: [{}] })
  expect(refused.reason).toBe('NETWORK_RECOVERING')
  await stop(again)
  await expectVerified(database)
})

const REFUSAL =
  /^Two sessions share one advisory lock of PostgreSQL at 127\.0\.0\.1:\d+, database "\w+": if that is a pooler, set its pool_mode = session,/

test.each([
  ['transaction', 0],
  ['statement', 0],
  ['transaction', 1],
] as const)('pool_mode = %s, server_round_robin = %s: refused at the start', async (mode, roundRobin) => {
  const database = await useOwnDatabase({ empty: true })
  const pooler = await usePgBouncer(server, {
    pool_mode: mode,
    server_round_robin: roundRobin,
    min_pool_size: 3,
  })
  const through = pooler.through(database.adminUrl)
  const client = await connectUnchecked({ url: through, applicationName: 'test' })
  onTestFinished(() => client.end())
  await client.query('select')
  await withClient(database.adminUrl, (admin) =>
    waitFor(
      async () =>
        (await admin.query('select from pg_stat_activity where datname = current_database()')).rows.length >
        3,
      { what: 'a pool of three connections' },
    ),
  )
  const open = (databaseUrl: string, databaseAdminUrl?: string) =>
    openDatabase(
      { databaseUrl, databaseAdminUrl, directory: '' },
      { log: pino({ level: 'silent' }), embedded: 'own' },
    )
  const refuses = async (...urls: Parameters<typeof open>) => {
    const refused = open(...urls)
    await expect(refused).rejects.toThrow(StartRefused)
    await expect(refused).rejects.toThrow(REFUSAL)
  }
  await refuses(through)
  // The same where one of two logins goes through it.
  await refuses(database.adminUrl, through)
  await refuses(through, database.adminUrl)
  expect(
    await withClient(
      database.adminUrl,
      async (admin) => (await admin.query(`select to_regnamespace('ipledger') as it`)).rows,
    ),
    'nothing was made',
  ).toEqual([{ it: null }])
  await open(database.adminUrl)
  await refuses(pooler.through(database.serviceUrl))
})

/** As a balancer does: each new connection goes to the next of them. */
async function byTurns(urls: readonly string[]): Promise<string> {
  let next = 0
  const listener = createServer((client) => {
    const { host, port } = readUrl(urls[next++ % urls.length]!)
    const server = createConnection({ host, port })
    client.on('error', () => server.destroy())
    server.on('error', () => client.destroy())
    client.pipe(server).pipe(client)
  }).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  onTestFinished(() => void listener.close())
  const { port } = listener.address() as AddressInfo
  return urls[0]!.replace(/:\d+(?=\/)/, `:${port}`)
}

test.each([2, 4])('%s poolers by transaction behind one address, without other clients', async (count) => {
  const database = await useOwnDatabase()
  const urls: string[] = []
  while (urls.length < count)
    urls.push((await usePgBouncer(server, { pool_mode: 'transaction' })).through(database.adminUrl))
  await expect(checkSessions(await byTurns(urls))).rejects.toThrow(REFUSAL)
})
