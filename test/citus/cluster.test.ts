/**
 * A coordinator and two workers, later three. Networks are on the workers; what Citus and operators do to these is done, and the
 * ledger says of each whether the log may lack what was acknowledged.
 */

import { afterAll, beforeAll, expect, test } from 'vitest'
import { readUrl, replaceLogin } from '../../src/postgres/connect.ts'
import { setLimits } from '../../src/postgres/limits.ts'
import { AUDITOR_ROLE } from '../../src/postgres/roles.ts'
import { startStandby } from '../chaos/standby.ts'
import { confirm, HOUR, MINUTE, release, reserve } from '../core/given.ts'
import {
  eventsOf,
  expectInOrder,
  freshNetwork,
  openTestLedger,
  type TestLedger,
  useLedger,
} from '../ledger/opened.ts'
import { TestClock } from '../support/clock.ts'
import { withClient } from '../support/database.ts'
import { waitFor } from '../support/wait-for.ts'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
/** A process that has committed to each network. */
let ledger: TestLedger
const networks: Awaited<ReturnType<typeof freshNetwork>>[] = []

beforeAll(async () => {
  cluster = await startCluster()
  await cluster.migrate()
  ledger = await openTestLedger(cluster.serviceUrl, { losesNothing: true })
  // By their names, no fewer than 5 are in each of the two shards.
  for (let i = 0; i < 12; i += 1) networks.push(await freshNetwork(ledger))
})
afterAll(async () => {
  await ledger?.close()
  await cluster?.stop()
})

/** A network that is served: on this worker, or on any. Made, if there is none. */
async function on(worker: number | null) {
  const port = worker === null ? null : readUrl(cluster.workers[worker]!.url('ipledger')).port
  for (let i = 0; ; i += 1) {
    const one = networks[i] ?? (await freshNetwork(ledger))
    if (i === networks.length) networks.push(one)
    const isThere = port === null || (await cluster.placeOf(one.network)).port === port
    if (isThere && (await stateOf(one.network)) === 'READY') return one
  }
}

async function stateOf(network: string): Promise<string> {
  const [row] = await cluster.query<{ state: string }>(
    'select state from ipledger_audit.network where network = $1',
    network,
  )
  return row!.state
}

const causes = async (network: string) => (await eventsOf(ledger, network)).map(({ cause }) => cause)
const REFUSED = /permission denied|read-only transaction|because it is a shard/

/** In the database of a worker, whose shards have names of their own. */
async function onShards(url: string, text: string): Promise<unknown> {
  return withClient(url, async (client) => {
    await client.query('set citus.override_table_visibility = off')
    const { rows } = await client.query<{ shard: string }>(
      `select oid::regclass::text as shard from pg_class
        where relnamespace = 'ipledger'::regnamespace and relname ~ '^event_\\d+$' order by 1`,
    )
    expect(rows.length).toBeGreaterThan(0)
    for (const { shard } of rows) await client.query(text.replace('EVENT', shard))
    return rows.length
  })
}

test('each network is on one worker, both have some, and all that is done to it is in order', async () => {
  for (const { network, of } of networks) {
    const { fencingToken } = await ledger.take(of(reserve('a/1')))
    await ledger.take(of(confirm('a/1')))
    await ledger.take(of(reserve('b/1')))
    await ledger.take(of(release('b/1')))
    const [who] = await cluster.query<{ owner_name: string; fencing_token: number }>(
      `select owner_name, fencing_token from ipledger_audit.who_had($1, '10.0.0.1', now())`,
      network,
    )
    expect(who).toEqual({ owner_name: 'a', fencing_token: fencingToken })
    await expectInOrder(cluster.serviceUrl, network, ledger)
  }
  for (const worker of [0, 1]) await on(worker)
})

test('while the coordinator is away, networks that a process has used go on', async () => {
  for (const { of } of networks) await ledger.take(of(reserve('before/1')))
  await cluster.coordinator.restart(async () => {
    for (const { of } of networks) await ledger.take(of(reserve('meanwhile/1')))
  })
  for (const { network } of networks) await expectInOrder(cluster.serviceUrl, network, ledger)
})

/** On this server of the cluster alone. */
async function onServer(url: string, text: string): Promise<number | null> {
  return withClient(url, async (admin) => {
    await admin.query('set citus.enable_ddl_propagation = off')
    return (await admin.query(text)).rowCount
  })
}

test('a process connects to each worker itself', async () => {
  const sessions = `select from pg_stat_activity where application_name = 'ipledger ledger'`
  for (const worker of cluster.workers)
    expect(await onServer(worker.url('ipledger'), sessions)).toBeGreaterThan(0)
})

test('the clock is that of the coordinator: it is not compared with that of a worker', async () => {
  let compared = 0
  const clock = new TestClock({
    database() {
      compared += 1
      return Date.now() + HOUR
    },
  })
  const ahead = await useLedger(cluster.serviceUrl, { clock })
  const { network, of } = await freshNetwork(ahead)
  for (let i = 0; i < 50; i += 1) await ahead.take(of(reserve(`timed-${i}/1`)))
  expect(compared).toBeLessThan(50)
  expect((await eventsOf(ahead, network)).at(-1)!.at).toBeGreaterThan(Date.now() + HOUR - MINUTE)
})

test('a worker that refuses a process is reached through the coordinator', async () => {
  const { network, of } = await on(0)
  const worker = cluster.workers[0]!.url('ipledger')
  const { user, password } = readUrl(cluster.serviceUrl)
  const knownAs = async (secret: string) => {
    await onServer(worker, `alter role ${user} password '${secret}'`)
    await cluster.query(`update pg_dist_authinfo set authinfo = 'password=${secret}' where rolename = '${user}'
      and nodeid = (select nodeid from pg_dist_node where nodeport = ${readUrl(worker).port})`)
  }
  await cluster.query(`insert into pg_dist_authinfo select nodeid, '${user}', 'password=${password}' from pg_dist_node
    where nodeport = ${readUrl(worker).port}`)
  await knownAs('other')
  try {
    const away: string[] = []
    const refused = await useLedger(cluster.serviceUrl, {
      losesNothing: true,
      observer: { nodeAway: (node, error) => away.push(`${node}: ${(error as Error).message}`) },
    })
    const { leaseId } = await refused.take(of(reserve('detour/1')))
    expect(leaseId).not.toBe('')
    expect(away).toEqual([expect.stringContaining(`${readUrl(worker).port}: Cannot connect`)])
    await expectInOrder(cluster.serviceUrl, network, ledger)
  } finally {
    await knownAs(password!)
  }
})

test.each(['update EVENT set actor = $$x$$', 'delete from EVENT', 'truncate EVENT'])(
  'a worker refuses the service: %s',
  async (text) => {
    const worker = cluster.workers[0]!.url('ipledger')
    const { user, password } = readUrl(cluster.serviceUrl)
    const service = replaceLogin(worker, { user, password: password! })
    await expect(onShards(service, text)).rejects.toThrow(REFUSED)
    const auditor = replaceLogin(worker, { user: AUDITOR_ROLE, password: 'auditor' })
    await expect(onShards(auditor, text)).rejects.toThrow(REFUSED)
    expect(await onShards(service, 'select 1 from EVENT')).toBeGreaterThan(0)
  },
)

test('limits of a transaction reach the worker', async () => {
  const limit = `select current_setting('statement_timeout') as is from ipledger.network_lock where network_id = $1`
  await withClient(cluster.serviceUrl, async (service) => {
    const read = async () => (await service.query(limit, [networks[0]!.network])).rows[0].is
    expect(await read()).toBe('5s')
    await service.query('begin')
    await setLimits(service, '60s')
    expect(await read()).toBe('1min')
  })
})

test('a network that Citus moves goes on for a process that committed, and begins an era for another', async () => {
  const { network, of } = await on(0)
  let isMoving = true
  const moved = cluster.move(network, cluster.workers[1]!).finally(() => {
    isMoving = false
  })
  const meanwhile: string[] = []
  while (isMoving) {
    const { address } = await ledger.take(of(reserve(`meanwhile-${meanwhile.length}/1`)))
    meanwhile.push(address)
  }
  await moved
  expect(new Set(meanwhile).size).toBe(meanwhile.length)
  const { address } = await ledger.take(of(reserve('moved/1')))
  await expectInOrder(cluster.serviceUrl, network, ledger)
  expect(await causes(network)).toContain('MOVED')
  expect(await stateOf(network)).toBe('READY')
  await cluster.move(network, cluster.workers[0]!)
  const fresh = await useLedger(cluster.serviceUrl, { losesNothing: true })
  await fresh.refuse(of(reserve('late/1')), 'NETWORK_RECOVERING')
  expect(fresh.eras).toHaveLength(1)
  expect(await stateOf(network)).toBe('RECOVERING')
  const image = await expectInOrder(cluster.serviceUrl, network, fresh)
  expect(image.records.get(address)?.owner?.name).toBe('moved')
})

test('a worker that is killed, and its standby promoted, begins an era unless nothing is lost', async () => {
  const { network, of } = await on(1)
  const worker = cluster.workers[1]!
  const standby = await startStandby(worker)
  try {
    await ledger.take(of(reserve('before/1')))
    await standby.caughtUp()
    await worker.stop()
    await standby.promote()
    await cluster.replace(worker, standby)
    await ledger.take(of(reserve('after/1')))
    expect(await causes(network)).toContain('FAILED_OVER')
    const careful = await useLedger(cluster.serviceUrl)
    await careful.take(of(reserve('same/1')))
    expect(careful.eras).toEqual([])
    for (const one of networks) await expectInOrder(cluster.serviceUrl, one.network, ledger)
  } catch (error) {
    await standby.stop()
    throw error
  }
})

const ownersOn = async (url: string, network: string): Promise<readonly string[]> =>
  withClient(url, async (admin) => {
    const owners = 'select owner_name as name from ipledger.event where network_id = $1'
    return (await admin.query<{ name: string }>(owners, [network])).rows.map(({ name }) => name)
  })

test('a process that still talks to the primary that a worker was has no answer until it meets the next one', async () => {
  const { network, of } = await on(0)
  const worker = cluster.workers[0]!
  const standby = await startStandby(worker)
  try {
    await ledger.take(of(reserve('confirmed/1')))
    await standby.caughtUp()
    await onServer(worker.url('postgres'), `alter system set synchronous_standby_names = '*'`)
    await onServer(worker.url('postgres'), 'select pg_reload_conf()')
    await standby.promote()
    let isAnswered = false
    const told = ledger.failed.length
    const answer = ledger.take(of(reserve('deposed/1'))).finally(() => {
      isAnswered = true
    })
    await waitFor(() => ledger.failed.slice(told).some((one) => one.startsWith('unknown')))
    expect(isAnswered).toBe(false)
    await cluster.replace(worker, standby)
    const { address } = await answer
    expect(await ownersOn(standby.url('ipledger'), network)).toContain('deposed')
    const image = await expectInOrder(cluster.serviceUrl, network, ledger)
    expect(image.records.get(address)?.owner?.name).toBe('deposed')
  } finally {
    await worker.stop()
  }
})

test('a node that is added later has the audit after the next migrate, and takes networks', async () => {
  const added = await cluster.addWorker()
  await cluster.migrate()
  const { network, of } = await on(null)
  await cluster.move(network, added)
  await ledger.take(of(reserve('there/1')))
  const said = await withClient(cluster.auditorUrl, (auditor) =>
    auditor.query<{ what: string }>(`select what from ipledger_audit.owner_history($1, 'there')`, [network]),
  )
  expect(said.rows.map(({ what }) => what).join()).toContain('there')
  await expectInOrder(cluster.serviceUrl, network, ledger)
})
