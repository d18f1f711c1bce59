/** What the database itself refuses, whoever asks and whatever a process believes. */
import { afterAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { claim, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const other = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const INSUFFICIENT_PRIVILEGE = '42501'
const UNIQUE_VIOLATION = '23505'
const EXCLUSION_VIOLATION = '23P01'
const CHECK_VIOLATION = '23514'

async function onePool(): Promise<{ readonly network: string; readonly address: string }> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const { address } = await ledger.take(
    reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ pool: 'a' })] }),
  )
  return { network, address }
}

function asService(sql: string): Promise<unknown> {
  return withClient(database.serviceUrl, (client) => client.query(sql))
}

describe('the log is append-only for the service', () => {
  test.each([
    `update ipledger.event set actor = 'somebody else'`,
    `update ipledger.event set evidence = null where false`,
    `delete from ipledger.event`,
    `truncate ipledger.event`,
    `drop table ipledger.event`,
    `alter table ipledger.event disable trigger all`,
    `create table ipledger.mine (x int)`,
    `truncate ipledger.lease`,
    `delete from ipledger.network_lock`,
    `truncate ipledger.network_lock`,
  ])('%s', async (sql) => {
    const { network } = await onePool()
    await expect(asService(sql)).rejects.toMatchObject({ code: INSUFFICIENT_PRIVILEGE })
    await expectPartition(admin, network)
  })

  test('the right to lock a network is the right to update one column, and no more', async () => {
    const { rows } = await admin.query(
      `select privilege_type, column_name from information_schema.column_privileges
       where grantee = 'ipledger_service' and table_schema = 'ipledger' and table_name = 'network_lock'
         and privilege_type not in ('SELECT', 'INSERT')`,
    )
    expect(rows).toEqual([{ privilege_type: 'UPDATE', column_name: 'network_id' }])
    const tables = await admin.query(
      `select privilege_type from information_schema.table_privileges
       where grantee = 'ipledger_service' and table_schema = 'ipledger' and table_name = 'event' order by 1`,
    )
    expect(tables.rows).toEqual([{ privilege_type: 'INSERT' }, { privilege_type: 'SELECT' }])
    const owned = await admin.query(
      `select 1 from pg_class c join pg_roles r on r.oid = c.relowner where r.rolname = 'ipledger_service'`,
    )
    expect(owned.rows).toEqual([])
  })
})

describe('one address has one lease', () => {
  const COPY = `insert into ipledger.lease
      (network_id, address, prefix_length, pool_id, fencing_token, version, state, owner_kind, owner_name, owner_uid,
       owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key, node, boot, labels, witness, reserved_at)
    select network_id, address, prefix_length, pool_id, fencing_token + 1000, version + 1000, state, owner_kind, 'thief', 'thief',
       false, '', owner_interface, 'pod|eth0|thief', 'pod|eth0||thief', node, boot, labels, witness, now()
    from ipledger.lease where network_id = $1`

  test.each(['service', 'superuser'])('a second row is refused to the %s', async (role) => {
    const { network } = await onePool()
    const url = role === 'service' ? database.serviceUrl : database.adminUrl
    await expect(withClient(url, (client) => client.query(COPY, [network]))).rejects.toMatchObject({
      code: UNIQUE_VIOLATION,
      constraint: 'address_has_one_lease',
    })
  })

  test('an address with a mask is no other address: it is refused', async () => {
    const { network } = await onePool()
    await expect(
      admin.query(COPY.replace('select network_id, address', 'select network_id, set_masklen(address, 24)'), [
        network,
      ]),
    ).rejects.toMatchObject({ code: CHECK_VIOLATION, constraint: 'lease_address_is_a_host' })
  })

  test('the same address in another network is another address', async () => {
    const one = await onePool()
    const two = await onePool()
    expect(one.address).toBe(two.address)
  })

  test('a number is given once', async () => {
    const { network } = await onePool()
    await expect(
      asService(
        `insert into ipledger.event (network_id, seq, type, at, actor, cause) values ('${network}', 1, 'node.fenced', now(), 'x', 'x')`,
      ),
    ).rejects.toMatchObject({ code: UNIQUE_VIOLATION, constraint: 'event_is_numbered_once_per_network' })
  })
})

describe('pools of a network never overlap', () => {
  test('two processes race: one wins, the other is told', async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      const network = await freshNetwork(ledger)
      const outcomes = await Promise.all([
        ledger.submit(createPool({ name: 'a', cidr: '10.0.0.0/16' }, { network })),
        other.submit(createPool({ name: 'b', cidr: '10.0.128.0/24' }, { network })),
      ])
      expect(outcomes.filter((one) => one.ok)).toHaveLength(1)
      const loser = outcomes.find((one) => !one.ok)!
      expect(loser).toMatchObject({ refusal: { reason: 'INVALID_FIELD', metadata: { field: 'cidr' } } })
    }
  })

  test('two processes create one network: one wins, and its pools are seen by both', async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      const network = `race${turn}`
      const outcomes = await Promise.all([
        ledger.submit(createNetwork(network)),
        other.submit(createPool({ name: 'early', cidr: '10.0.0.0/24' }, { network })),
        other.submit(createNetwork(network)),
      ])
      expect([outcomes[0]!.ok, outcomes[2]!.ok].filter(Boolean)).toHaveLength(1)
      const early = outcomes[1]!
      if (!early.ok) {
        expect(early.refusal.reason).toBe('NETWORK_NOT_FOUND')
        await other.accept(createPool({ name: 'early', cidr: '10.0.0.0/24' }, { network }))
      }
      const lease = await ledger.take(
        reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ pool: 'early' })] }),
      )
      await other.take(release(lease.fencingToken, { network }))
      await expectPartition(admin, network)
    }
  })

  test('by any role the exclusion constraint decides', async () => {
    const { network } = await onePool()
    await expect(
      admin.query(
        `insert into ipledger.pool (network_id, pool_id, name, version, family, cidr, is_default, settings, created_at, updated_at)
         values ($1, 99, 'thief', 99, 4, '10.0.0.128/25', false, '{}', now(), now())`,
        [network],
      ),
    ).rejects.toMatchObject({ code: EXCLUSION_VIOLATION, constraint: 'pools_of_a_network_never_overlap' })
  })
})

test('the ledgers of this file are in order', () => expectVerified(database))
