/**
 * What verify says of tenure and checkpoints that are not the log: each damage is done as a superuser, found, named by
 * address, lease and numbers, and gone after `rebuild --tenure`.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { leaseId } from '../../src/core/lease.ts'
import { makeCheckpoint } from '../../src/ledger/checkpoints.ts'
import { rebuildTenure } from '../../src/ledger/rebuild-tenure.ts'
import { projectSlice } from '../../src/ledger/tenure.ts'
import { verify } from '../../src/ledger/verify.ts'
import { claim, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import { writeLongHistory } from '../support/long-history.ts'
import { seededRandom } from '../support/random.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const jobs = openJobs(database.serviceUrl)
const random = seededRandom()
console.log(`seed ${random.seed}`)
const NETWORK = 'books'

afterAll(async () => {
  await jobs.close()
  await expectVerified(database)
})

const sql = (text: string, values: readonly unknown[] = []) =>
  withClient(database.adminUrl, async (admin) => (await admin.query(text, [...values])).rows)

async function follow(): Promise<void> {
  await withClient(database.serviceUrl, async (client) => {
    while (!(await projectSlice(client, NETWORK, 500)).done);
    while (await makeCheckpoint(client, NETWORK, { distance: 200, part: 20 }));
  })
}

const rebuildAnew = () => rebuildTenure({ adminUrl: database.adminUrl, network: NETWORK })

async function findings(options: { readonly full?: boolean; readonly slice?: number } = {}) {
  const { networks } = await verify({ url: database.serviceUrl, network: NETWORK, full: true, ...options })
  return networks[0]!.findings
}

let lease = ''
let token = 0
let address = ''

beforeAll(async () => {
  await ledger.accept(createNetwork(NETWORK))
  await writeLongHistory({ ledger, jobs, random }, NETWORK, { rounds: 3, commands: 200 })
  await ledger.accept(createPool({ name: 'mine', cidr: '10.7.0.0/24', cooldownMs: 0 }, { network: NETWORK }))
  const take = (name: string) =>
    ledger.take(reserve({ network: NETWORK, owner: owner({ name }), claims: [claim({ pool: 'mine' })] }))
  await ledger.accept(release((await take('before')).fencingToken, { network: NETWORK }))
  const taken = await take('web')
  token = taken.fencingToken
  lease = leaseId(NETWORK, token)
  address = taken.address
  await ledger.accept(release((await take('after')).fencingToken, { network: NETWORK }))
  await follow()
}, 60_000)

afterEach(async () => {
  await rebuildAnew()
  await follow()
  expect(await findings()).toEqual([])
}, 60_000)

test('sound ones are found to be so, in slices of every length, and then only what is new is looked at', async () => {
  expect(await findings()).toEqual([])
  for (const slice of [1 + random.below(9), 50]) expect(await findings({ slice })).toEqual([])
  const damage = `update ipledger.tenure set began_as = 'x' where network_id = $1 and first_seq = $2`
  await sql(damage, [NETWORK, token])
  expect(await findings({ full: false })).toEqual([])
  expect(await findings()).toMatchObject([{ what: 'TENURE_DIFFERS', leaseId: lease }])
  await rebuildAnew()
  await sql(damage, [NETWORK, token])
  expect(await findings({ full: false }), 'made anew it was not looked at yet').toMatchObject([
    { what: 'TENURE_DIFFERS', leaseId: lease },
  ])
}, 60_000)

const DROPPED = `alter table ipledger.tenure drop constraint no_two_owners_hold_one_address;
  drop index ipledger.one_address_has_one_open_tenure`
const PUT = `insert into ipledger.tenure (network_id, first_seq, fencing_token, pool_id, address, span, began_at, ended_at, began_as, ended_as)
  select $1, s.first, s.first, 1, $2, int8range(s.first, s.ended), now(), case when s.ended is not null then now() end, 'past',
         case when s.ended is not null then 'past' end from (select $3::bigint as first, $4::bigint as ended) s`

describe('without the constraints', () => {
  test.each([
    { what: 'over the beginning of a lease', block: '', from: -1, to: 1 as number | null },
    { what: 'within a lease', block: '', from: 2, to: 3 },
    { what: 'held still, like the lease', block: '', from: 2, to: null },
    { what: 'of a block around it', block: '10.7.0.0/28', from: 2, to: 3 },
    { what: 'of a block around it, begun before it', block: '10.7.0.0/28', from: -1, to: null },
  ])(
    'an overlapping tenure $what is found and named',
    async ({ block, from, to }) => {
      await withClient(database.adminUrl, (admin) => admin.query(DROPPED))
      const put = block === '' ? address : block
      // A number at which no tenure begins.
      const first = token + from
      await sql(PUT, [NETWORK, put, first, to === null ? null : token + to])
      const found = await findings()
      const missing = found.filter(({ what }) => what === 'TENURE_CONSTRAINT_MISSING')
      expect(missing).toHaveLength(2)
      expect(found).toContainEqual(
        expect.objectContaining({ what: 'TENURE_UNEXPLAINED', seq: first, leaseId: leaseId(NETWORK, first) }),
      )
      const overlap = found.find(({ what, message }) => what === 'TENURE_OVERLAPS' && message.includes(lease))
      expect(overlap?.message).toContain(leaseId(NETWORK, first))
      expect(overlap?.message).toContain(`${address} over [${token},`)
      await rebuildAnew()
      expect(await findings()).toEqual([])
    },
    30_000,
  )
})

describe('tenure that is not the log', () => {
  test.each([
    { what: 'missing', damage: 'delete from ipledger.tenure where first_seq = $2', code: 'TENURE_MISSING' },
    {
      what: 'of another owner',
      damage: `update ipledger.tenure set owner_name = 'mallory' where first_seq = $2`,
      code: 'TENURE_DIFFERS',
    },
    {
      what: 'of another address',
      damage: `update ipledger.tenure set address = '10.7.0.77' where first_seq = $2`,
      code: 'TENURE_DIFFERS',
    },
    {
      what: 'ended, although it is held',
      // With the event that comes next, which is about another lease.
      damage: `update ipledger.tenure set span = int8range(first_seq, first_seq + 1),
        (ended_at, ended_as) = (select e.at, e.type || '/' || e.cause from ipledger.event e where e.network_id = $1 and e.seq = $2 + 1)
        where first_seq = $2`,
      code: 'TENURE_DIFFERS',
    },
  ])('one that is $what', async ({ damage, code }) => {
    await sql(`${damage} and network_id = $1`, [NETWORK, token])
    expect(await findings()).toContainEqual(
      expect.objectContaining({ what: code, leaseId: lease, seq: token, address }),
    )
  })

  test('one that is held still, although the log ended it', async () => {
    const [ended] = await sql(
      `select first_seq, fencing_token, upper(span) as ended_seq from ipledger.tenure
        where network_id = $1 and not upper_inf(span) and address < '10.7.0.0' order by first_seq limit 1`,
      [NETWORK],
    )
    await sql(
      `alter table ipledger.tenure drop constraint no_two_owners_hold_one_address;
       drop index ipledger.one_address_has_one_open_tenure`,
    )
    await sql(
      `update ipledger.tenure set span = int8range(first_seq, null), ended_at = null, ended_as = null
        where network_id = $1 and first_seq = $2`,
      [NETWORK, ended!.first_seq],
    )
    expect(await findings({ slice: 20 })).toContainEqual(
      expect.objectContaining({
        what: 'TENURE_DIFFERS',
        leaseId: leaseId(NETWORK, ended!.fencing_token as number),
        seq: ended!.ended_seq,
      }),
    )
  })

  test('rows behind the position, and a position that the log does not have', async () => {
    const [{ seq }] = (await sql('select seq from ipledger.tenure_position where network_id = $1', [
      NETWORK,
    ])) as [{ seq: number }]
    await sql(PUT, [NETWORK, '10.66.0.1', seq + 5, null])
    expect(await findings()).toMatchObject([
      { what: 'TENURE_UNEXPLAINED', seq: seq + 5, address: '10.66.0.1' },
    ])
    await sql(`update ipledger.tenure_position set at = at - interval '1 hour' where network_id = $1`, [
      NETWORK,
    ])
    expect(await findings()).toMatchObject([{ what: 'TENURE_POSITION_WRONG', seq }])
  })

  test('what was refused is told of for as long as it is there', async () => {
    await sql(
      `insert into ipledger.tenure_overlap values ($1, 9999, 9999, 1, '10.7.0.9', '[9999,)', $2, $2, '10.7.0.8/30', now())`,
      [NETWORK, token],
    )
    const [found] = await findings()
    expect(found).toMatchObject({
      what: 'TENURE_OVERLAPS',
      leaseId: leaseId(NETWORK, 9999),
      address: '10.7.0.9',
    })
    expect(found!.message).toContain(lease)
  })
})

describe('checkpoints that are not what was held', () => {
  test.each([
    {
      what: 'a lease too few',
      damage: 'set events = events[2:], leases = leases - 1',
      says: 'leases were held|has \\d+ in',
    },
    {
      what: 'an event that is not the last',
      damage: 'set events = array[1::bigint] || events[2:]',
      says: 'event 1 ',
    },
    {
      what: 'out of order',
      damage: 'set events = events[2:3] || events[1:1] || events[4:]',
      says: 'not in its place',
    },
  ])(
    '$what',
    async ({ damage, says }) => {
      await sql(
        `update ipledger.lease_checkpoint_part ${damage} where network_id = $1 and part = 0
         and seq = (select max(seq) from ipledger.lease_checkpoint where network_id = $1)`,
        [NETWORK],
      )
      const found = await findings()
      expect(found.map(({ what }) => what)).toContain('CHECKPOINT_DIFFERS')
      expect(found.map(({ message }) => message).join('\n')).toMatch(new RegExp(says))
      await rebuildAnew()
      await follow()
      expect(await findings()).toEqual([])
    },
    30_000,
  )
})
