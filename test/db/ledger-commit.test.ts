/**
 * What a batch may answer (DESIGN §2, traps): committed only when every statement was answered and the tag says so;
 * once the commit was sent, anything else is OUTCOME_UNKNOWN; before that the batch waits for the database.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { claim, confirm, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger, type TestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { moveToThePast } from '../support/past.ts'
import { startProxy, type TestProxy } from '../support/proxy.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

async function freshPool(cidr = '10.0.0.0/24'): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr, cooldownMs: 0 }, { network }))
  return network
}

function any(network: string, name: string, fields: Partial<Parameters<typeof reserve>[0]> = {}) {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })], ...fields })
}

async function rows<T>(sql: string, values: readonly unknown[]): Promise<readonly T[]> {
  const result = await admin.query(sql, [...values])
  return result.rows as readonly T[]
}

async function held(network: string): Promise<readonly string[]> {
  const found = await rows<{ name: string }>(
    `select owner_name || ' ' || host(address) as name from ipledger.lease where network_id = $1 order by address`,
    [network],
  )
  return found.map(({ name }) => name)
}

/** A row that no event made, as a second writer or an operator's hand would leave it. */
async function insertPhantom(network: string, address: string): Promise<void> {
  await admin.query(
    `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key,
       node, boot, labels, witness, reserved_at)
     select $1, $2::inet, 32, pool_id, 900000, 900000, 'ACTIVE', 'pod', 'phantom', 'phantom', false, '', 'eth0',
       'pod|eth0|phantom', 'pod|eth0||phantom', '', '', '{}', '', now()
     from ipledger.pool where network_id = $1`,
    [network, address],
  )
}

async function removePhantoms(network: string): Promise<void> {
  await admin.query(`delete from ipledger.lease where network_id = $1 and fencing_token = 900000`, [network])
}

/** A ledger behind a proxy, on its own connections. */
async function behindProxy(): Promise<{ readonly proxy: TestProxy; readonly far: TestLedger }> {
  const proxy = await startProxy(database.serviceUrl)
  const far = openTestLedger({ url: proxy.url, connections: 2 })
  onTestFinished(async () => {
    proxy.silent(false)
    proxy.down(false)
    await far.close()
    await proxy.close()
  })
  return { proxy, far }
}

test('a commit that was answered with ROLLBACK is no success: the address is set aside, and every command of the batch is served', async () => {
  const network = await freshPool()
  const before = await ledger.take(any(network, 'before'))
  await insertPhantom(network, '10.0.0.2')
  const from = ledger.logged.length
  const [first, second, other] = await Promise.all([
    ledger.take(any(network, 'first')),
    ledger.take(any(network, 'second')),
    ledger.take(release(before.fencingToken, { network })),
  ])
  expect([first.address, second.address, other.state]).toEqual(['10.0.0.3', '10.0.0.4', 'RELEASED'])
  expect(await held(network)).toEqual(['phantom 10.0.0.2', 'first 10.0.0.3', 'second 10.0.0.4'])
  const logged = ledger.logged.slice(from)
  expect(logged.filter(({ level }) => level === 'error').map(({ fields }) => fields)).toEqual([
    expect.objectContaining({ network, address: '10.0.0.2', command: 'reserve' }),
  ])
  expect(logged[0]).toMatchObject({ level: 'warn', fields: { kind: 'rolledBack' } })
  // A named claim is told, and the next process finds out for itself.
  await ledger.refuse(
    reserve({ network, owner: owner({ name: 'n' }), claims: [claim({ pool: 'a', address: '10.0.0.2' })] }),
    'ADDRESS_TAKEN',
  )
  const next = openTestLedger({ url: database.serviceUrl, connections: 1 })
  expect((await next.take(any(network, 'third'))).address).toBe('10.0.0.5')
  await next.close()
  await removePhantoms(network)
  await expectPartition(admin, network)
})

test('an address is set aside in its canonical form, however the database writes it', async () => {
  const network = await freshPool('::a00:0/122')
  await insertPhantom(network, '::10.0.0.1')
  await admin.query(`update ipledger.lease set prefix_length = 128 where network_id = $1`, [network])
  expect((await ledger.take(any(network, 'x'))).address).toBe('::a00:2')
  await removePhantoms(network)
  await expectPartition(admin, network)
})

test('only what the database says of a row is retried command by command', async () => {
  const network = await freshPool()
  const lease = await ledger.take(any(network, 'x'))
  await admin.query('revoke insert on ipledger.released_address from ipledger_service')
  try {
    const outcomes = await Promise.all([
      ledger.refuse(any(network, 'y'), 'OUTCOME_UNKNOWN'),
      ledger.refuse(release(lease.fencingToken, { network }), 'OUTCOME_UNKNOWN'),
      ledger.refuse(any(network, 'z'), 'OUTCOME_UNKNOWN'),
    ])
    expect(outcomes).toHaveLength(3)
    expect(await held(network)).toEqual(['x 10.0.0.1'])
    expect(ledger.logged.at(-1)).toMatchObject({ fields: { kind: 'unknown', err: { code: '42501' } } })
  } finally {
    await admin.query('grant insert on ipledger.released_address to ipledger_service')
  }
  await ledger.take(release(lease.fencingToken, { network }))
  await expectPartition(admin, network)
})

test('a command that the database cannot take is refused alone', async () => {
  const network = await freshPool()
  const [good, , alsoGood] = await Promise.all([
    ledger.take(any(network, 'good')),
    // A character PostgreSQL has no text for; the API does not let it pass.
    ledger.refuse(any(network, 'bad\0'), 'NETWORK_RECOVERING'),
    ledger.take(any(network, 'also good')),
  ])
  expect([good.address, alsoGood.address]).toEqual(['10.0.0.1', '10.0.0.2'])
  await expectPartition(admin, network)
})

test('a value that no column of ours holds is the misfortune of whoever needs it, and of nobody else', async () => {
  const network = await freshPool()
  const bad = any(network, 'bad')
  const { fencingToken } = await ledger.take(bad)
  const setVersion = (version: string) =>
    admin.query(
      `update ipledger.lease set version = ${version} where network_id = $1 and owner_name = 'bad'`,
      [network],
    )
  // Beyond 2^53, which no number of ours is.
  await setVersion('9007199254740993')
  const [good] = await Promise.all([
    ledger.take(any(network, 'good')),
    ledger.refuse(bad, 'NETWORK_RECOVERING'),
  ])
  expect(good.address).toBe('10.0.0.2')
  await setVersion(String(fencingToken))
  await expectPartition(admin, network)
})

test('a lease that is another by the time it is written fails its command alone, and nothing of it is committed', async () => {
  const network = await freshPool()
  const one = await ledger.take(any(network, 'one'))
  const two = await ledger.take(any(network, 'two'))
  // Between what the batch reads and what it writes, in its own transaction.
  await admin.query(`
    create function ipledger.swap_lease() returns trigger language plpgsql as $$ begin
      update ipledger.lease set fencing_token = fencing_token - 1
       where network_id = new.network_id and address = new.address;
      return new;
    end $$;
    create trigger swap before insert on ipledger.event for each row
      when (new.network_id = '${network}' and new.address = '${one.address}') execute function ipledger.swap_lease()`)
  const before = ledger.logged.length
  try {
    const refused = ledger.refuse(confirm(one.fencingToken, { network }), 'NETWORK_RECOVERING')
    await Promise.all([refused, ledger.accept(confirm(two.fencingToken, { network }))])
  } finally {
    await admin.query('drop function ipledger.swap_lease cascade')
  }
  const alarm = ledger.logged.slice(before).find(({ level }) => level === 'error')
  expect(alarm?.fields).toMatchObject({
    network,
    err: { code: '22P02', message: expect.stringContaining(one.address) },
  })
  await expectVerified(database, { network })
  expect((await ledger.take(confirm(one.fencingToken, { network }))).state).toBe('ACTIVE')
})

test('a lease that somebody changed between reading and writing is not set back', async () => {
  const network = await freshPool()
  const one = await ledger.take(any(network, 'one'))
  await admin.query(`
    create function ipledger.hurry_lease() returns trigger language plpgsql as $$ begin
      update ipledger.lease set version = new.seq where network_id = new.network_id and address = new.address;
      return new;
    end $$;
    create trigger hurry before insert on ipledger.event for each row
      when (new.network_id = '${network}') execute function ipledger.hurry_lease()`)
  const before = ledger.logged.length
  try {
    await ledger.refuse(confirm(one.fencingToken, { network }), 'NETWORK_RECOVERING')
  } finally {
    await admin.query('drop function ipledger.hurry_lease cascade')
  }
  const alarm = ledger.logged.slice(before).find(({ level }) => level === 'error')
  expect(alarm?.fields).toMatchObject({ network, err: { code: '22P02' } })
  await expectVerified(database, { network })
  expect((await ledger.take(confirm(one.fencingToken, { network }))).state).toBe('ACTIVE')
})

test('a decision that asks for what is never there fails alone, after so many questions', async () => {
  const network = await freshPool()
  const lost = await ledger.take(any(network, 'lost'))
  await ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network }))
  // Its pool's row is gone: it is asked for by number, and no answer brings it.
  const where = `where network_id = '${network}' and name = 'a'`
  await admin.query(`create table public.kept as select * from ipledger.pool ${where}`)
  await admin.query(`delete from ipledger.pool ${where}`)
  const before = ledger.logged.length
  try {
    const [good] = await Promise.all([
      ledger.take(any(network, 'good', { claims: [claim({ pool: 'b' })] })),
      ledger.refuse(release(lost.fencingToken, { network }), 'NETWORK_RECOVERING'),
    ])
    expect(good.address).toBe('10.1.0.1')
  } finally {
    await admin.query('insert into ipledger.pool select * from public.kept; drop table public.kept')
  }
  const alarm = ledger.logged.slice(before).find(({ level }) => level === 'error')
  expect(alarm?.fields).toMatchObject({
    command: 'release',
    err: { message: 'release asks for poolById for ever' },
  })
  expect((await ledger.take(release(lost.fencingToken, { network }))).state).toBe('RELEASED')
  await expectPartition(admin, network)
})

test('so many addresses are set aside and no more: beyond it something is wrong that skipping does not mend', async () => {
  const network = await freshPool()
  const own = openTestLedger({ url: database.serviceUrl, connections: 1, bounds: { setAside: 2 } })
  onTestFinished(() => own.close())
  for (const last of [1, 2, 3]) await insertPhantom(network, `10.0.0.${last}`)
  await own.refuse(any(network, 'x'), 'NETWORK_RECOVERING')
  const aside = own.logged.flatMap(({ fields }) => ('address' in fields ? [fields.address] : []))
  expect(aside).toEqual(['10.0.0.1', '10.0.0.2'])
  await removePhantoms(network)
  expect((await own.take(any(network, 'y'))).address).toBe('10.0.0.3')
  await expectPartition(admin, network)
})

test('networks that nobody asks for any more are forgotten, those with an address set aside are not', async () => {
  const network = await freshPool()
  await insertPhantom(network, '10.0.0.1')
  const own = openTestLedger({ url: database.serviceUrl, connections: 1, bounds: { idleNetworks: 3 } })
  onTestFinished(() => own.close())
  expect((await own.take(any(network, 'x'))).address).toBe('10.0.0.2')
  for (const name of ['g1', 'g2', 'g3', 'g4']) {
    await own.refuse(any(name, 'x'), 'NETWORK_NOT_FOUND')
    // Its batch is over in this turn of the event loop.
    await nextTurn()
  }
  expect(own.networks()).toEqual([network, 'g3', 'g4'])
  await removePhantoms(network)
  // Still set aside, although it is free.
  expect((await own.take(any(network, 'y'))).address).toBe('10.0.0.3')
  await expectPartition(admin, network)
})

test('a row that cannot be read is the misfortune of whoever needs it, and of nobody else', async () => {
  const network = await freshPool()
  await ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24' }, { network }))
  const [before] = await rows<{ settings: object }>(
    `select settings from ipledger.pool where network_id = $1 and name = 'b'`,
    [network],
  )
  const setSettings = (settings: object) =>
    admin.query(`update ipledger.pool set settings = $2 where network_id = $1 and name = 'b'`, [
      network,
      settings,
    ])
  await setSettings({ cidr: '?' })
  const [good, , alsoGood] = await Promise.all([
    ledger.take(any(network, 'good')),
    ledger.refuse(any(network, 'bad', { claims: [claim({ pool: 'b' })] }), 'NETWORK_RECOVERING'),
    ledger.take(any(network, 'also good')),
  ])
  expect([good.address, alsoGood.address]).toEqual(['10.0.0.1', '10.0.0.2'])
  await setSettings(before!.settings)
  await expectPartition(admin, network)
})

test('without its lock row a network takes no command', async () => {
  const network = await freshPool()
  await admin.query('delete from ipledger.network_lock where network_id = $1', [network])
  await ledger.refuse(any(network, 'x'), 'NETWORK_RECOVERING')
  await admin.query('insert into ipledger.network_lock values ($1)', [network])
  expect((await ledger.take(any(network, 'x'))).address).toBe('10.0.0.1')
})

test('time does not run backwards when the clock of the database does', async () => {
  const network = await freshPool('10.0.0.0/30')
  const lease = await ledger.take(any(network, 'x'))
  // As if all of it had happened on a server whose clock was ahead.
  await moveToThePast(database, -3_600_000, network)
  const later = await ledger.take(any(network, 'y'))
  expect(later.reservedAt).toBeGreaterThanOrEqual(lease.reservedAt + 3_600_000)
  // What was released at that time is free at that time.
  await ledger.take(release(later.fencingToken, { network }))
  expect((await ledger.take(any(network, 'z'))).address).toBe(later.address)
  await expectPartition(admin, network)
})

test('a migration under a running ledger costs a connection and no call', async () => {
  const network = await freshPool()
  const reserveOnce = (name: string) =>
    ledger.take(
      reserve({ network, owner: owner({ name, incarnation: '1' }), claims: [claim({ pool: 'a' })] }),
    )
  await reserveOnce('before')
  await admin.query('alter table ipledger.closed_attachment add column added_later integer')
  expect((await reserveOnce('after')).address).toBe('10.0.0.2')
  await admin.query('alter table ipledger.closed_attachment drop column added_later')
  await expectPartition(admin, network)
})

test.each(['before', 'after'] as const)(
  'a connection lost %s the commit took effect is an unknown outcome, and repeating the request gives one lease',
  async (when) => {
    const network = await freshPool()
    const { proxy, far } = await behindProxy()
    await far.take(any(network, 'warm'))
    const command = any(network, 'x', { requestId: `r-${when}`, fingerprint: 'f' })
    proxy.loseNextCommit(when)
    const refusal = await far.refuse(command, 'OUTCOME_UNKNOWN')
    expect(refusal.retryAfterMs).toBeGreaterThan(0)
    await waitFor(async () => (await held(network)).length === (when === 'after' ? 2 : 1), {
      what: 'the server to finish the transaction',
    })
    const outcome = await far.submit(command)
    expect(outcome).toMatchObject({ ok: true, replayed: when === 'after' })
    expect(await held(network)).toEqual(['warm 10.0.0.1', 'x 10.0.0.2'])
    expect(await far.submit(command)).toMatchObject({ ok: true, replayed: true })
    await expectPartition(admin, network)
  },
)

test('a commit is a success only if its answer says so', async () => {
  const network = await freshPool()
  const { proxy, far } = await behindProxy()
  await far.take(any(network, 'warm'))
  const command = any(network, 'x', { requestId: 'r-tag', fingerprint: 'f' })
  proxy.answerNextCommitWithRollback()
  await far.refuse(command, 'OUTCOME_UNKNOWN')
  expect(far.logged.at(-1)).toMatchObject({
    fields: { kind: 'rolledBack', err: { message: expect.any(String) } },
  })
  expect(await far.submit(command)).toMatchObject({ ok: true, replayed: true })
  expect(await held(network)).toEqual(['warm 10.0.0.1', 'x 10.0.0.2'])
  await expectPartition(admin, network)
})

test('a violation whose rollback nobody confirmed is an unknown outcome, and is not tried again', async () => {
  const network = await freshPool()
  const { proxy, far } = await behindProxy()
  await far.take(any(network, 'warm'))
  await insertPhantom(network, '10.0.0.2')
  const command = any(network, 'x', { requestId: 'r-violated', fingerprint: 'f' })
  proxy.loseAfterNext('23505')
  await far.refuse(command, 'OUTCOME_UNKNOWN')
  expect(far.logged.map(({ fields }) => fields)).toEqual([
    expect.objectContaining({ kind: 'unknown', err: expect.objectContaining({ code: '23505' }) }),
  ])
  expect(await held(network)).toEqual(['warm 10.0.0.1', 'phantom 10.0.0.2'])
  // Said again it meets the veto, whose rollback is heard of now.
  expect((await far.take(command)).address).toBe('10.0.0.3')
  await removePhantoms(network)
  await expectPartition(admin, network)
})

test('a backend terminated while it writes is an unknown outcome', async () => {
  const network = await freshPool()
  const { far } = await behindProxy()
  await far.take(any(network, 'warm'))
  const blocker = await connect({ url: database.adminUrl, applicationName: 'test' })
  await blocker.query('begin')
  await blocker.query('lock table ipledger.request in exclusive mode')
  const command = any(network, 'x', { requestId: 'r-terminated', fingerprint: 'f' })
  const refused = far.refuse(command, 'OUTCOME_UNKNOWN')
  await waitFor(async () => {
    const [found] = await rows<{ pid: number }>(
      `select pid from pg_stat_activity where datname = $1 and wait_event_type = 'Lock' and query like 'insert into ipledger.request%'`,
      [database.name],
    )
    if (found === undefined) return false
    await admin.query('select pg_terminate_backend($1)', [found.pid])
    return true
  })
  await refused
  await blocker.query('rollback')
  await blocker.end()
  expect(await held(network)).toEqual(['warm 10.0.0.1'])
  expect((await far.take(command)).address).toBe('10.0.0.2')
  await expectPartition(admin, network)
})

test('a batch that fails before its writes were sent returns to the front of the queue', async () => {
  const network = await freshPool()
  const { far } = await behindProxy()
  await far.take(any(network, 'warm'))
  const blocker = await connect({ url: database.adminUrl, applicationName: 'test' })
  await blocker.query('begin')
  await blocker.query('select 1 from ipledger.network_lock where network_id = $1 for update', [network])
  const first = far.take(any(network, 'first'))
  const pid = await waitFor(async () => {
    const [found] = await rows<{ pid: number }>(
      `select pid from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'`,
      [database.name],
    )
    return found?.pid
  })
  const second = far.take(any(network, 'second'))
  await admin.query('select pg_terminate_backend($1)', [pid])
  await waitFor(() => far.logged.some(({ fields }) => 'kind' in fields && fields.kind === 'unsent'))
  await blocker.query('rollback')
  await blocker.end()
  expect([(await first).address, (await second).address]).toEqual(['10.0.0.2', '10.0.0.3'])
  await expectPartition(admin, network)
})

test('while the database is away calls wait for it, and end by their deadline alone', async () => {
  const network = await freshPool()
  const { proxy, far } = await behindProxy()
  await far.take(any(network, 'warm'))
  proxy.down(true)
  const patient = far.take(any(network, 'patient'))
  const hasty = await far.refuse(any(network, 'hasty'), 'DATABASE_UNAVAILABLE', {
    deadline: performance.now() + 300,
  })
  expect(hasty.retryAfterMs).toBeGreaterThan(0)
  proxy.down(false)
  expect((await patient).address).toBe('10.0.0.2')
  expect(await held(network)).toEqual(['warm 10.0.0.1', 'patient 10.0.0.2'])
  // An idle connection that died is noticed, too.
  proxy.down(true)
  proxy.down(false)
  expect((await far.take(any(network, 'later'))).address).toBe('10.0.0.3')
  await expectPartition(admin, network)
})

test('the ledgers of this file are in order', () => expectVerified(database))
