import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { ShapeCommand } from '../../src/core/command.ts'
import { poolSize } from '../../src/core/pool.ts'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { readAddress } from '../../src/ledger/rows.ts'
import { advanceShape, newShape } from '../../src/ledger/shape.ts'
import { tallyPool } from '../../src/ledger/tally.ts'
import { inSnapshot } from '../../src/ledger/transaction.ts'
import { type Finding, type FindingCode, verify } from '../../src/ledger/verify.ts'
import { claim, createNetwork, createPool, owner, reserve, updatePool } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { writeLongLog } from '../support/long-log.ts'
import { seededRandom } from '../support/random.ts'
import { makeTraffic } from '../support/traffic.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const random = seededRandom()
console.log(`seed ${random.seed}`)

afterAll(() => expectVerified(database))

const sql = (text: string, values: readonly unknown[] = []) =>
  withClient(database.adminUrl, (admin) => admin.query(text, [...values]))

async function findingsOf(network: string, full = true) {
  const { networks } = await verify({ url: database.serviceUrl, network, full })
  return networks[0]!.findings
}

test('traffic of every kind verifies, from the start and from the checkpoint', async () => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(1_200)
  await expectVerified(database, { network })
  for (let round = 0; round < 3; round += 1) {
    await traffic.run(300)
    await expectVerified(database, { network, full: false })
  }
  await expectVerified(database, { network })
  expect(ledger.logged).toEqual([])
})

test('from the checkpoint only newer events are looked at', async () => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(600)
  const first = await verify({ url: database.serviceUrl, network })
  expect(first.networks[0]).toMatchObject({ from: 0, findings: [] })
  const { head } = first.networks[0]!
  expect(first.networks[0]!.eventsChecked).toBe(head)

  await traffic.run(200)
  // One that no later event rests on: what an attachment's reservation reopened would be closed without it.
  const old = `seq = (
    select max(e.seq) from ipledger.event e where e.network_id = $1 and e.type <> 'lease.reserved' and exists (
      select from ipledger.event f where f.network_id = $1 and f.address = e.address and f.seq > e.seq and f.seq <= ${head}))`
  await withLogDamaged(network, old, null, async () => {
    const second = await verify({ url: database.serviceUrl, network })
    expect(second.networks[0]).toMatchObject({ from: head, findings: [] })
    expect(second.networks[0]!.eventsChecked).toBe(second.networks[0]!.head - head)
    expect((await findingsOf(network)).map(({ what }) => what)).toContain('EVENT_MISSING')
  })
})

test.each([4, 9, 50])('slices of %i rows leave nothing out and see nothing twice', async (slice) => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(150)
  await expectVerified(database, { network, slice })
  await traffic.run(50)
  await expectVerified(database, { network, slice, full: false })
  await sql(
    `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state,
       quarantine_reason, quarantined_at, quarantined_by, node, boot, labels, witness, reserved_at)
     select $1, '10.0.0.0'::inet + n * 3, 32, 2, 1, 1, 'QUARANTINED', 'OPERATOR', now(), '', '', '', '{}', '', now()
       from generate_series(0, 60) as n`,
    [network],
  )
  await sql('delete from ipledger.closed_attachment where network_id = $1', [network])
  const whole = await findingsOf(network)
  const { networks } = await verify({ url: database.serviceUrl, network, full: true, slice })
  const key = ({ what, address, seq }: Finding) => `${what} ${address} ${seq}`
  expect(networks[0]!.findings.map(key).sort()).toEqual(whole.map(key).sort())
  expect(whole.filter(({ what }) => what === 'LEASE_UNEXPLAINED').length).toBe(61)
  await rebuild({ adminUrl: database.adminUrl, network })
})

test('a pool is counted in slices while it is written to and reshaped', async () => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(300)
  const stop = new AbortController()
  const hammering = traffic.hammer(8, stop.signal)
  const shape = newShape(network)
  let caughtUp = 0
  try {
    await withClient(database.serviceUrl, async (client) => {
      await inSnapshot(client, () => advanceShape(client, shape))
      const first = shape.head
      for (const poolId of [...shape.pools.keys()]) {
        for (const slice of [3, 20]) {
          await tallyPool(
            client,
            shape,
            poolId,
            async ({ counts, position, pool }) => {
              const { untouched, ...counted } = counts
              expect(position).toMatchObject(counted)
              const held = counts.reserved + counts.active + counts.quarantined
              expect(untouched + BigInt(held + counts.released)).toBe(poolSize(pool).allocatable)
              caughtUp = shape.head - first
            },
            { slice },
          )
        }
      }
    })
  } finally {
    stop.abort()
  }
  await hammering
  expect(caughtUp, 'events came while it was counted').toBeGreaterThan(100)
}, 60_000)

test('an interrupted verification ends between two slices', async () => {
  const network = await freshNetwork(ledger)
  const stop = new AbortController()
  const running = verify({
    url: database.serviceUrl,
    network,
    onProgress: () => stop.abort(new Error('enough')),
    signal: stop.signal,
  })
  await expect(running).rejects.toThrow('enough')
})

test('a network that nobody made is said to be missing', async () => {
  const findings = await findingsOf('nowhere')
  expect(findings.map(({ what, message }) => [what, message])).toEqual([
    ['NETWORK_MISSING', 'network nowhere: there is no such network'],
  ])
})

test('the labels of a network are the same in whatever order their keys are kept', async () => {
  const labels = { confirmWithin: '1', eth0: '2', 'a.b': '3', Z: '4' }
  const network = 'labelled'
  await ledger.accept({ ...createNetwork(network), settings: { description: '', labels } } as ShapeCommand)
  expect(await findingsOf(network)).toEqual([])
  await sql(`update ipledger.network set labels = labels || '{"Z": "5"}' where network_id = $1`, [network])
  expect((await findingsOf(network)).map(({ what }) => what)).toEqual(['NETWORK_DIFFERS'])
  await rebuild({ adminUrl: database.adminUrl, network })
  await expectVerified(database, { network })
})

test('verify and rebuild find nothing while eight writers hammer the ledger', async () => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  const stop = new AbortController()
  const hammering = traffic.hammer(8, stop.signal)
  try {
    for (let round = 0; round < 6; round += 1) {
      expect(await findingsOf(network, round % 2 === 0)).toEqual([])
      const report = await rebuild({ adminUrl: database.adminUrl, network })
      expect(report).toMatchObject({ replaced: 0, locked: 0, differences: [] })
    }
  } finally {
    stop.abort()
  }
  expect(await hammering).toBeGreaterThan(100)
  await expectVerified(database, { network })
}, 60_000)

/** Removes or changes events for as long as the work takes; of the log, unlike the projections, there is no second copy. */
async function withLogDamaged(
  network: string,
  which: string,
  change: string | null,
  work: () => Promise<void>,
): Promise<void> {
  const where = `network_id = $1 and ${which}`.replaceAll('$1', `'${network}'`)
  await withClient(database.adminUrl, async (admin) => {
    await admin.query(`create temporary table saved as select * from ipledger.event where ${where}`)
    const { rowCount } = await admin.query(
      change === null
        ? 'delete from ipledger.event e using saved s where (e.network_id, e.seq) = (s.network_id, s.seq)'
        : `update ipledger.event e set ${change} from saved s where (e.network_id, e.seq) = (s.network_id, s.seq)`,
    )
    try {
      expect(rowCount, 'something was damaged').toBeGreaterThan(0)
      await work()
    } finally {
      await admin.query(
        'delete from ipledger.event e using saved s where (e.network_id, e.seq) = (s.network_id, s.seq)',
      )
      await admin.query('insert into ipledger.event select * from saved')
    }
  })
}

describe('what was changed behind the ledger is found and named', () => {
  let network = ''
  beforeAll(async () => {
    network = await freshNetwork(ledger)
    const traffic = await makeTraffic(ledger, network, random)
    await traffic.run(250)
    // Of each kind that is damaged below at least one, whatever the traffic was: a pool that was changed, one that
    // never was, leases of a name of their own.
    await ledger.accept(updatePool('small', { labels: { changed: 'yes' } }, { network }))
    await ledger.accept(createPool({ name: 'quiet', cidr: '10.7.0.0/28' }, { network }))
    await ledger.accept(
      reserve({ network, owner: owner({ name: 'ns/quiet' }), claims: [claim({ pool: 'quiet' })] }),
    )
    for (let index = 0; index < 3; index += 1) {
      await ledger.accept(
        reserve({
          network,
          owner: owner({ name: `ns/held${index}`, incarnation: 'i' }),
          claims: [claim({ pool: 'wide' })],
          requestId: `held${index}`,
          fingerprint: '',
        }),
      )
    }
  })

  // One test that fails leaves sound projections to the next.
  afterEach(() => rebuild({ adminUrl: database.adminUrl, network }))

  /** `$1` is the network. Projections are repaired by rebuild, which has to be able to. */
  const projections: readonly (readonly [string, FindingCode, string])[] = [
    ['a lease row lost', 'LEASE_MISSING', 'delete from ipledger.lease where (network_id, address) = (LEASE)'],
    [
      'a lease row nobody made',
      'LEASE_UNEXPLAINED',
      `insert into ipledger.lease (network_id, address, prefix_length, pool_id, fencing_token, version, state, owner_kind,
         owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key, node, boot,
         labels, witness, reserved_at)
       select network_id, '10.77.0.1', prefix_length, pool_id, fencing_token, version, 'ACTIVE', 'pod', 'x', 'x', true, '', '', 'x',
         'x', '', '', '{}', '', now() from ipledger.lease where network_id = $1 limit 1`,
    ],
    [
      'a released row lost',
      'RELEASED_MISSING',
      'delete from ipledger.released_address where (network_id, address) = (RELEASED)',
    ],
    [
      'a released row nobody made',
      'RELEASED_UNEXPLAINED',
      `insert into ipledger.released_address
       select network_id, 'fd01:0:0:ffff::1', pool_id, 128, now(), 1, '', true from ipledger.pool
        where network_id = $1 and name = 'wide'`,
    ],
    [
      'a lease that is released as well',
      'RELEASED_UNEXPLAINED',
      `insert into ipledger.released_address
       select network_id, address, pool_id, prefix_length, now(), version, '', true from ipledger.lease
        where (network_id, address) = (LEASE)`,
    ],
    [
      'untouched space lost',
      'UNTOUCHED_MISSING',
      `delete from ipledger.untouched_range where network_id = $1 and pool_id = (select pool_id from ipledger.pool
        where network_id = $1 and name = 'wide')`,
    ],
    [
      'untouched space over a lease',
      'UNTOUCHED_UNEXPLAINED',
      `insert into ipledger.untouched_range
       select network_id, pool_id, address, address from ipledger.lease where (network_id, address) = (LEASE)
       on conflict do nothing`,
    ],
    [
      'untouched space over itself',
      'UNTOUCHED_OVERLAPS',
      `insert into ipledger.untouched_range
       select network_id, pool_id, last_address - 5, last_address from ipledger.untouched_range
        where network_id = $1 and last_address - 8 > first_address and family(first_address) = 6
        order by first_address desc limit 1`,
    ],
    [
      'untouched space outside every pool',
      'UNTOUCHED_UNEXPLAINED',
      `insert into ipledger.untouched_range values ($1, 999999, '10.99.0.0', '10.99.0.9')`,
    ],
    [
      'positions lost',
      'POSITION_MISSING',
      `delete from ipledger.pool_position where network_id = $1 and pool_id = (select min(pool_id) from ipledger.pool where network_id = $1)`,
    ],
    ...(['reserved', 'active', 'quarantined', 'released'] as const).map(
      (column) =>
        [
          `a wrong count of ${column}`,
          'COUNT_DIFFERS',
          `update ipledger.pool_position set ${column} = ${column} + 1 where (network_id, pool_id, seq) = (POSITION)`,
        ] as const,
    ),
    [
      'a low end above untouched space',
      'POSITION_WRONG',
      `update ipledger.pool_position set low_first = 'fd01:0:0:ffff::' where (network_id, pool_id, seq) = (POSITION)`,
    ],
    [
      'a cursor into no range',
      'POSITION_WRONG',
      `update ipledger.pool_position set cursor_first = 'fd01:0:0:ff::', cursor_next = 'fd01:0:0:ff::1'
        where (network_id, pool_id, seq) = (POSITION)`,
    ],
    [
      'a reuse that begins too late',
      'POSITION_WRONG',
      `update ipledger.pool_position set reuse_after = 'infinity' where (network_id, pool_id, seq) in (
         select network_id, pool_id, max(seq) from ipledger.pool_position where network_id = $1 and released > 0 group by 1, 2)`,
    ],
    [
      'a position after the head',
      'POSITION_WRONG',
      `insert into ipledger.pool_position select network_id, pool_id, seq + 1000000, low_first, cursor_first, cursor_next,
         reuse_after, reserved, active, quarantined, released from ipledger.pool_position
        where (network_id, pool_id, seq) = (POSITION)`,
    ],
    [
      'a closed attachment lost',
      'CLOSING_MISSING',
      'delete from ipledger.closed_attachment where (network_id, closed_seq) = (CLOSED)',
    ],
    [
      'a closed attachment nobody closed',
      'CLOSING_UNEXPLAINED',
      `insert into ipledger.closed_attachment values ($1, 'pod|eth0|i|nobody', 0, 'pod', 'nobody', 'nobody', true, 'i', 'eth0', now(), 5)`,
    ],
    [
      'an old closed attachment nobody closed',
      'CLOSING_UNEXPLAINED',
      `insert into ipledger.closed_attachment values ($1, 'pod|eth0|i|nobody', 0, 'pod', 'nobody', 'nobody', true, 'i', 'eth0', now() - interval '1 day', 5)`,
    ],
    [
      'a closed attachment altered',
      'CLOSING_DIFFERS',
      `update ipledger.closed_attachment set closed_at = closed_at - interval '1 second' where (network_id, closed_seq) = (CLOSED)`,
    ],
    ['a pool row lost', 'POOL_MISSING', `delete from ipledger.pool where network_id = $1 and name = 'wide'`],
    [
      'a pool row nobody made',
      'POOL_UNEXPLAINED',
      `insert into ipledger.pool select network_id, 999999, 'x', version, family, '10.88.0.0/24', false, settings, created_at,
         updated_at from ipledger.pool where network_id = $1 and name = 'small'`,
    ],
    [
      'a pool renamed',
      'POOL_DIFFERS',
      `update ipledger.pool set name = 'other' where network_id = $1 and name = 'six'`,
    ],
    [
      'the settings of a pool altered',
      'POOL_DIFFERS',
      `update ipledger.pool set settings = replace(settings::text, '"ownerLimit":4', '"ownerLimit":400')::json
        where network_id = $1 and name = 'six'`,
    ],
    ['the network row lost', 'NETWORK_MISSING', 'delete from ipledger.network where network_id = $1'],
    [
      'the network row altered',
      'NETWORK_DIFFERS',
      `update ipledger.network set labels = '{"a":"b"}' where network_id = $1`,
    ],
    [
      'a network left rebuilding',
      'NETWORK_IS_REBUILDING',
      `update ipledger.network set state = 'REBUILDING' where network_id = $1`,
    ],
    ['the lock row lost', 'LOCK_ROW_MISSING', 'delete from ipledger.network_lock where network_id = $1'],
  ]

  const fill = (text: string) =>
    text
      .replaceAll(
        '(LEASE)',
        `(select network_id, address from ipledger.lease where network_id = $1 and owner_name = 'ns/held1')`,
      )
      .replaceAll(
        '(RELEASED)',
        '(select network_id, max(address) from ipledger.released_address where network_id = $1 group by 1)',
      )
      .replaceAll(
        '(POSITION)',
        `(select q.network_id, q.pool_id, max(q.seq) from ipledger.pool_position q
            join ipledger.pool p using (network_id, pool_id) where q.network_id = $1 and p.name = 'wide' group by 1, 2)`,
      )
      .replaceAll(
        '(CLOSED)',
        '(select network_id, max(closed_seq) from ipledger.closed_attachment where network_id = $1 group by 1)',
      )

  test.each(projections)('%s: %s', async (_, what, damage) => {
    const { rowCount } = await sql(fill(damage), [network])
    expect(rowCount, 'something was damaged').toBeGreaterThan(0)
    const findings = await findingsOf(network)
    expect(findings.map((finding) => finding.what)).toContain(what)
    for (const { message } of findings) expect(message).toContain(network)
    const { replaced } = await rebuild({ adminUrl: database.adminUrl, network })
    expect(replaced).toBeGreaterThan(0)
    await expectVerified(database, { network })
  })

  /** Each on an address of its own. */
  test.each([
    [
      'lease',
      {
        prefix_length: '64',
        pool_id: '1',
        fencing_token: '1',
        version: 'version + 1',
        state: `case state when 'ACTIVE' then 'RESERVED' else 'ACTIVE' end`,
        owner_kind: `'vm'`,
        owner_name: `'other'`,
        owner_uid: `'other'`,
        owner_uid_named: 'not owner_uid_named',
        owner_incarnation: `'other'`,
        owner_interface: `'eth7'`,
        holder_key: `'other'`,
        attachment_key: `'other'`,
        node: `'other'`,
        boot: `'other'`,
        labels: `'{"other": "1"}'`,
        witness: `'other'`,
        reserved_at: `reserved_at + interval '1 millisecond'`,
        confirmed_at: `case when confirmed_at is null then now() end`,
        confirm_by: `case when confirm_by is null then now() end`,
        quarantine_why: `'other'`,
      },
      `state <> 'QUARANTINED' and confirm_by is null`,
      'LEASE_DIFFERS',
    ],
    [
      'lease',
      {
        quarantine_reason: `case quarantine_reason when 'OPERATOR' then 'CONFLICT' else 'OPERATOR' end`,
        quarantined_at: `quarantined_at - interval '1 second'`,
        quarantined_by: `'other'`,
        quarantine_why: `'other'`,
      },
      `state = 'QUARANTINED'`,
      'LEASE_DIFFERS',
    ],
    [
      'released_address',
      {
        pool_id: '1',
        prefix_length: '1',
        available_at: `available_at + interval '1 millisecond'`,
        released_seq: 'released_seq + 1',
        holder_key: `'other'`,
        removal_confirmed: 'not removal_confirmed',
      },
      'true',
      'RELEASED_DIFFERS',
    ],
  ] as const)('%s altered, column by column', async (table, columns, which, what) => {
    const { rows } = await sql(
      `select address from ipledger.${table} where network_id = $1 and ${which} order by address`,
      [network],
    )
    // Not both `confirm_by` and a state that cannot have one.
    const altered = Object.entries(columns).map(([column, value], index) => ({
      column,
      value,
      address: rows[index]!.address as string,
    }))
    for (const { column, value, address } of altered) {
      const held = column === 'confirm_by' ? `, state = 'RESERVED'` : ''
      await sql(
        `update ipledger.${table} set ${column} = ${value}${held} where network_id = $1 and address = $2`,
        [network, address],
      )
    }
    const findings = (await findingsOf(network)).filter((finding) => finding.what === what)
    expect(findings.length).toBe(altered.length)
    for (const { column, address } of altered) {
      const found = findings.find((finding) => finding.address === readAddress(address))
      expect(found?.message).toContain(column)
      expect(found?.found).toContain(`${column}=`)
    }
    const report = await rebuild({ adminUrl: database.adminUrl, network })
    expect(report.counts[table]).toBe(altered.length)
    await expectVerified(database, { network })
  })

  test('a remembered request of a number that never was', async () => {
    const change = (by: string) =>
      sql(`update ipledger.request set seq = seq ${by} where network_id = $1 and request_id = 'held1'`, [
        network,
      ])
    await change('+ 1000000')
    for (const full of [true, false]) {
      expect((await findingsOf(network, full)).map(({ what }) => what)).toEqual(
        full ? ['REQUEST_AFTER_HEAD'] : [],
      )
    }
    await change('- 1000000')
  })

  /** What the log itself suffers is put right by hand: nothing can be rebuilt from a damaged log. */
  const MIDDLE = `seq = (select seq from ipledger.event where network_id = $1 and type = 'lease.confirmed' order by seq offset 5 limit 1)`
  const HELD = `seq = (select version from ipledger.lease where network_id = $1 and owner_name = 'ns/held1')`
  const CREATED = (pool: string) => `type = 'pool.created' and settings->'pool'->>'name' = '${pool}'`
  const cidr = (other: string) =>
    `settings = replace(e.settings::text, '"cidr":"fd01::/48"', '"cidr":"${other}"')::json`
  const logs: readonly (readonly [string, FindingCode, string, string | null])[] = [
    ['an event deleted', 'EVENT_MISSING', MIDDLE, null],
    [
      'the last events deleted',
      'LOG_SHORTER_THAN_BEFORE',
      'seq > (select max(seq) - 3 from ipledger.event where network_id = $1)',
      null,
    ],
    ['the creation of a pool deleted', 'EVENT_ILLEGAL', CREATED('small'), null],
    ['the creation of a pool deleted that never changed', 'EVENT_ILLEGAL', CREATED('quiet'), null],
    ['the owner in an event altered', 'LEASE_DIFFERS', HELD, `owner_name = 'other'`],
    [
      'a quarantine written into an event',
      'LEASE_DIFFERS',
      HELD,
      `quarantine_reason = 'OPERATOR', quarantined_at = e.at, quarantined_by = 'other'`,
    ],
    ['the time of an event altered', 'TIME_GOES_BACK', MIDDLE, `at = e.at - interval '1 day'`],
    ['the kind of an event altered', 'EVENT_ILLEGAL', MIDDLE, `type = 'lease.reserved'`],
    ['the token in an event altered', 'EVENT_ILLEGAL', MIDDLE, 'fencing_token = e.seq'],
    ['the address of an event altered', 'EVENT_ILLEGAL', MIDDLE, `address = '10.66.0.1'`],
    ['the range of a pool altered', 'LEASE_MISPLACED', CREATED('wide'), cidr('fd02::/48')],
    ['the range of a pool altered into nonsense', 'EVENT_ILLEGAL', CREATED('wide'), cidr('fd01::/480')],
  ]

  test.each(logs)('%s: %s', async (_, what, which, change) => {
    await expectVerified(database, { network })
    await withLogDamaged(network, which, change, async () => {
      const findings = await findingsOf(network)
      expect(findings.map((finding) => finding.what)).toContain(what)
      for (const { message } of findings) expect(message).toContain(network)
    })
    await expectVerified(database, { network })
  })

  test('an event that names a pool nobody created is illegal, said once a pool', async () => {
    await verify({ url: database.serviceUrl, network })
    const { poolId } = await ledger.accept(createPool({ name: 'late', cidr: '10.8.0.0/28' }, { network }))
    for (const name of ['ns/late0', 'ns/late1'])
      await ledger.accept(reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'late' })] }))
    await withLogDamaged(network, CREATED('late'), null, async () => {
      for (const full of [true, false]) {
        const illegal = (await findingsOf(network, full)).filter(({ what }) => what === 'EVENT_ILLEGAL')
        expect(illegal.map(({ message }) => message)).toEqual([
          `event ${network}/${poolId! + 1} (lease.reserved): it names pool ${poolId}, which was never created`,
        ])
      }
    })
  })

  /** Every row of every projection, as it is stored. */
  const stored = async () => {
    const tables = ['network', 'pool', 'lease', 'released_address', 'untouched_range', 'pool_position']
    const rows = await Promise.all(
      tables.map((table) =>
        sql(`select t.ctid, t.xmin, t::text from ipledger.${table} t where network_id = $1`, [network]),
      ),
    )
    return rows.map((one) => one.rows)
  }

  test.each([
    ['a gap', MIDDLE, null, 'missing from'],
    ['a pool whose creation is lost', CREATED('small'), null, 'missing from'],
    ['the first event lost', 'seq = 1', null, 'begins with event 2: 1 missing from 1 on'],
    ['a pool that cannot be folded', CREATED('wide'), cidr('fd01::/480'), 'fd01::/480'],
  ])('a log with %s is not rebuilt from', async (_, which, change, why) => {
    await sql(fill('delete from ipledger.lease where (network_id, address) = (LEASE)'), [network])
    const before = await stored()
    await withLogDamaged(network, which, change, async () => {
      for (const dryRun of [true, false])
        await expect(rebuild({ adminUrl: database.adminUrl, network, dryRun })).rejects.toThrow(why)
      expect(await stored()).toEqual(before)
    })
    expect((await rebuild({ adminUrl: database.adminUrl, network })).replaced).toBeGreaterThan(0)
    await expectVerified(database, { network })
  })

  test.each([1, 2, 3])('a gap anywhere stops a rebuild in slices of %i', async (slice) => {
    const { rows } = await sql('select max(seq) as head from ipledger.event where network_id = $1', [network])
    const middle = Math.floor((rows[0]!.head as number) / 2)
    for (let lost = middle; lost < middle + 4; lost += 1) {
      await withLogDamaged(network, `seq = ${lost}`, null, async () => {
        for (const dryRun of [true, false]) {
          const broken = rebuild({ adminUrl: database.adminUrl, network, slice, dryRun })
          await expect(broken).rejects.toThrow(`1 missing from ${lost} on`)
        }
      })
    }
  })

  test('a lost row that no new event is about is missed by the sums', async () => {
    await verify({ url: database.serviceUrl, network })
    await sql(fill('delete from ipledger.lease where (network_id, address) = (LEASE)'), [network])
    const codes = (await findingsOf(network, false)).map(({ what }) => what)
    expect(codes).toEqual(['PARTITION_DIFFERS', 'COUNT_DIFFERS'])
  })
})

test('eras ascend, each from its own first number', async () => {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  await traffic.run(200)
  const begin = (era: number, seq: number) =>
    sql(
      `insert into ipledger.event (network_id, seq, type, at, actor, cause, settings)
       values ($1, $2, 'era.begun', clock_timestamp(), 'test', 'test', $3)`,
      [network, seq, JSON.stringify({ era, recovering: false })],
    )
  await begin(1, 2 ** 40)
  await rebuild({ adminUrl: database.adminUrl, network })
  await traffic.run(200)
  await expectVerified(database, { network })
  await begin(4, 3 * 2 ** 40)
  expect((await findingsOf(network)).map(({ what }) => what)).toEqual(
    expect.arrayContaining(['ERA_WRONG', 'ERA_WRONG']),
  )
  await expect(rebuild({ adminUrl: database.adminUrl, network })).rejects.toThrow(
    'instead of its own era.begun',
  )
  await sql('delete from ipledger.event where network_id = $1 and seq = $2', [network, 3 * 2 ** 40])
  await begin(3, 3 * 2 ** 40 + 5)
  expect((await findingsOf(network)).map(({ what }) => what)).toContain('EVENT_MISSING')
  await expect(rebuild({ adminUrl: database.adminUrl, network })).rejects.toThrow(
    `5 missing from ${3 * 2 ** 40} on`,
  )
  await sql('delete from ipledger.event where network_id = $1 and seq > $2', [network, 3 * 2 ** 40])
})

test('a long log takes short transactions and no more memory than a slice', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const network = 'long'
  const head = await writeLongLog(database, ledger, network, { leases: 70_000, held: 5_000, over: 9_000 })
  await rebuild({ adminUrl: database.adminUrl, network })
  collect()
  const before = process.memoryUsage().heapUsed
  let highest = 0
  let ticks = 0
  const { networks } = await verify({
    url: database.serviceUrl,
    network,
    full: true,
    onProgress: () => {
      ticks += 1
      collect()
      highest = Math.max(highest, process.memoryUsage().heapUsed - before)
    },
  })
  expect(networks[0]).toMatchObject({ head, eventsChecked: head, findings: [] })
  expect(ticks).toBeGreaterThan(10)
  console.log(
    `${head} events: at most ${(highest / 1e6).toFixed(1)} MB more are reachable between two slices`,
  )
  // The log's links alone are four times that.
  expect(highest).toBeLessThan(12e6)
}, 60_000)
