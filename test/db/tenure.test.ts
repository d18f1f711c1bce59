/**
 * Tenure: equal to what core/evolve makes of the log, in slices of every size, by several at once, over eras and pools of
 * other sizes; overlaps are refused, written down, and hold nothing up.
 */
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { type AddressBook, UNTOUCHED } from '../../src/core/books.ts'
import { isEndedEvent, isHeldEvent } from '../../src/core/event.ts'
import { addressOf, evolveAddress } from '../../src/core/evolve.ts'
import { leaseId } from '../../src/core/lease.ts'
import type { Owner } from '../../src/core/owner.ts'
import { createProjectTenure } from '../../src/jobs/project-tenure.ts'
import { readAddress } from '../../src/ledger/rows.ts'
import { foldBoundaries, OtherLog, projectSlice, resetTenure } from '../../src/ledger/tenure.ts'
import { claim, createNetwork, createPool, owner, quarantine, release, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { writeLongHistory } from '../support/long-history.ts'
import { seededRandom } from '../support/random.ts'
import { readLog } from '../support/read-log.ts'
import { openJobs } from '../support/run-jobs.ts'
import { makeTraffic } from '../support/traffic.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const jobs = openJobs(database.serviceUrl)
afterAll(() => jobs.close())
const random = seededRandom()
console.log(`seed ${random.seed}`)

const sql = <Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) =>
  withClient(database.adminUrl, async (admin) => (await admin.query<Row>(text, [...values])).rows)

type Tenure = {
  readonly lease: string
  readonly address: string
  readonly first: number
  readonly ended: number | null
  readonly owner: string | null
  readonly began: string
  readonly endedAs: string | null
  readonly beganAt: number
  readonly endedAt: number | null
}

const nameOf = (of: Owner | null): string | null =>
  of === null ? null : [of.kind, of.name, of.uid, of.uidNamed, of.incarnation, of.interface].join(' ')

/** By the log and core/evolve alone. */
async function expectedTenures(network: string): Promise<readonly Tenure[]> {
  const books = new Map<string, AddressBook>()
  const open = new Map<string, { -readonly [K in keyof Tenure]: Tenure[K] }>()
  const all: Tenure[] = []
  for (const event of await readLog(database, network)) {
    if (!isHeldEvent(event) && !isEndedEvent(event)) continue
    const { address } = addressOf(event)
    const before = books.get(address) ?? UNTOUCHED
    const after = evolveAddress(before, event)
    books.set(address, after)
    const same =
      before.lease !== null &&
      after.lease !== null &&
      before.lease.fencingToken === after.lease.fencingToken &&
      nameOf(before.lease.owner) === nameOf(after.lease.owner)
    if (same) continue
    const now = open.get(address)
    if (before.lease !== null && now !== undefined) {
      Object.assign(now, { ended: event.seq, endedAt: event.at, endedAs: `${event.type}/${event.cause}` })
      open.delete(address)
    }
    if (after.lease === null) continue
    const { lease } = after
    const begun = {
      lease: leaseId(network, lease.fencingToken),
      address: `${address}/${lease.prefixLength}`,
      first: event.seq,
      ended: null,
      owner: nameOf(lease.owner),
      began: `${event.type}/${event.cause}`,
      endedAs: null,
      beganAt: event.at,
      endedAt: null,
    }
    open.set(address, begun)
    all.push(begun)
  }
  return all
}

async function storedTenures(network: string): Promise<readonly Tenure[]> {
  const rows = await sql<Record<string, unknown>>(
    `select t.network_id || '/' || t.fencing_token as lease, host(t.address) as host, masklen(t.address) as length, t.first_seq,
            upper(t.span) as ended, nullif(concat_ws(' ', owner_kind, owner_name, owner_uid, owner_uid_named::text::boolean,
              owner_incarnation, owner_interface), '') as owner, began_as, ended_as, began_at, ended_at, owner_uid_named
       from ipledger.tenure t where network_id = $1 order by first_seq`,
    [network],
  )
  return rows.map((row) => ({
    lease: row.lease as string,
    address: `${readAddress(row.host as string)}/${row.length}`,
    first: row.first_seq as number,
    ended: row.ended as number | null,
    owner: (row.owner as string | null)?.replace(/ ([tf]) /, (_, flag) => ` ${flag === 't'} `) ?? null,
    began: row.began_as as string,
    endedAs: row.ended_as as string | null,
    beganAt: row.began_at as number,
    endedAt: row.ended_at as number | null,
  }))
}

async function follow(network: string, most: number): Promise<number> {
  return withClient(database.serviceUrl, async (client) => {
    for (let overlaps = 0; ; ) {
      const slice = await projectSlice(client, network, most)
      overlaps += slice.overlaps
      if (slice.done) return overlaps
    }
  })
}

test('a lease that goes on with another owner is two tenures', () => {
  const at = (seq: number, token: number, begins: boolean) => ({ seq, token, begins })
  expect(
    foldBoundaries([
      at(10, 10, true),
      at(11, 3, true),
      at(12, 10, true),
      at(13, 11, false),
      at(14, 10, false),
      at(15, 5, false),
    ]),
  ).toEqual({
    begun: [
      { firstSeq: 10, endedSeq: 12 },
      { firstSeq: 11, endedSeq: null },
      { firstSeq: 12, endedSeq: 14 },
    ],
    ended: [
      { token: 3, endedSeq: 11 },
      { token: 11, endedSeq: 13 },
      { token: 5, endedSeq: 15 },
    ],
  })
})

describe('tenure is the log', () => {
  const network = 'long'

  test('over eras, blocks and pools made again in another size, in slices of every length', async () => {
    await ledger.accept(createNetwork(network))
    await writeLongHistory({ ledger, jobs, random }, network, { rounds: 4, commands: 250 })
    expect(await follow(network, 1 + random.below(40))).toBe(0)
    const expected = await expectedTenures(network)
    expect(expected.length).toBeGreaterThan(200)
    expect(
      expected.some(({ first, lease }) => !lease.endsWith(`/${first}`)),
      'an owner changed',
    ).toBe(true)
    expect(await storedTenures(network)).toEqual(expected)
  }, 60_000)

  test('made anew it is the same', async () => {
    const before = await storedTenures(network)
    await withClient(database.serviceUrl, (client) => resetTenure(client, network))
    await follow(network, 300)
    expect(await storedTenures(network)).toEqual(before)
    expect(await sql('select from ipledger.tenure_overlap where network_id = $1', [network])).toEqual([])
  })

  test('while it is written to, by several who follow at once', async () => {
    const busy = await freshNetwork(ledger)
    const traffic = await makeTraffic(ledger, busy, random)
    const stop = new AbortController()
    const hammering = traffic.hammer(6, stop.signal)
    const project = createProjectTenure({ slotMs: 2_000 })
    // In slices of 3 it may never be done while that goes on.
    const following = follow(busy, 3)
    await Promise.all([project(jobs.context), project(jobs.context)])
    stop.abort()
    await hammering
    await following
    await project(jobs.context)
    expect(await storedTenures(busy)).toEqual(await expectedTenures(busy))
  }, 60_000)
})

test('the job stays for its slot, follows what is written meanwhile, and ends when it is told to', async () => {
  const network = await freshNetwork(ledger)
  const stop = new AbortController()
  const running = createProjectTenure({ slotMs: 60_000 })({ ...jobs.context, signal: stop.signal })
  await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const { fencingToken } = await ledger.take(
    reserve({ network, owner: owner({ name: 'a' }), claims: [claim({ pool: 'p' })] }),
  )
  const lease = leaseId(network, fencingToken)
  const tenures = () => storedTenures(network)
  await waitFor(async () => (await tenures()).some((one) => one.lease === lease && one.ended === null))
  await ledger.accept(release(fencingToken, { network }))
  await waitFor(async () => (await tenures()).some((one) => one.lease === lease && one.ended !== null))
  stop.abort()
  await running
})

test('a quarantined address stays held when its holder lets go of it', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const lease = await ledger.take(
    reserve({ network, owner: owner({ name: 'a' }), claims: [claim({ pool: 'p' })] }),
  )
  await ledger.accept(quarantine({ address: lease.address }, { network }))
  await ledger.accept(release(lease.fencingToken, { network }))
  await follow(network, 1_000)
  const id = leaseId(network, lease.fencingToken)
  expect(await storedTenures(network)).toMatchObject([
    {
      lease: id,
      address: `${lease.address}/32`,
      owner: 'pod a a false  eth0',
      endedAs: 'lease.quarantined/test',
    },
    { lease: id, address: `${lease.address}/32`, owner: null, began: 'lease.quarantined/test', ended: null },
  ])
})

const EVENT = `insert into ipledger.event
    (network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state, owner_kind, owner_name,
     owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels, witness, reserved_at, available_at, removal_confirmed)
  values ($1, $2, $3, now(), 'past the ledger', 'test', 1, $4, $5, $6, 'RESERVED', 'pod', 'w' || $6::bigint, 'w' || $6::bigint, true, '',
     'eth0', '', '', '{}', '', now(), case when $3 = 'lease.released' then now() end, case when $3 = 'lease.released' then true end)`

describe('two that hold one address at once', () => {
  /** What is written past the ledger: [what, address, prefix length, lease], numbered from 100 on. */
  type Step = readonly ['reserved' | 'released', string, number, number]
  const CASES: Readonly<Record<string, readonly Step[]>> = {
    'the same address, both held still': [
      ['reserved', '10.0.0.1', 32, 100],
      ['reserved', '10.0.0.1', 32, 101],
    ],
    'the second ends first': [
      ['reserved', '10.0.0.1', 32, 100],
      ['reserved', '10.0.0.1', 32, 101],
      ['released', '10.0.0.1', 32, 101],
      ['released', '10.0.0.1', 32, 100],
    ],
    'the first ends first': [
      ['reserved', '10.0.0.1', 32, 100],
      ['reserved', '10.0.0.1', 32, 101],
      ['released', '10.0.0.1', 32, 100],
      ['released', '10.0.0.1', 32, 101],
    ],
    'an address in a block': [
      ['reserved', '10.0.0.0', 28, 100],
      ['reserved', '10.0.0.5', 32, 101],
      ['released', '10.0.0.5', 32, 101],
    ],
    'a block over an address': [
      ['reserved', '10.0.0.5', 32, 100],
      ['reserved', '10.0.0.0', 28, 101],
      ['released', '10.0.0.5', 32, 100],
    ],
    'a v6 block over another': [
      ['reserved', 'fd00::10', 124, 100],
      ['reserved', 'fd00::', 120, 101],
      ['released', 'fd00::', 120, 101],
      ['released', 'fd00::10', 124, 100],
    ],
  }

  test.each(Object.keys(CASES).flatMap((name) => [1, 2, 100].map((slice) => ({ name, slice }))))(
    '$name, in slices of $slice: the later one is refused and written down',
    async ({ name, slice }) => {
      const network = await freshNetwork(ledger)
      const place = { network, owner: owner({ name: 'other' }), claims: [claim({ pool: 'o' })] }
      for (const [index, prefixLength] of [32, 28].entries())
        await ledger.accept(
          createPool({ name: `p${index}`, cidr: `10.${index}.0.0/24`, prefixLength }, { network }),
        )
      for (const [index, prefixLength] of [124, 120].entries())
        await ledger.accept(
          createPool({ name: `six${index}`, cidr: `fd0${index + 1}::/112`, prefixLength }, { network }),
        )
      await ledger.accept(createPool({ name: 'o', cidr: '10.9.0.0/24' }, { network }))
      await follow(network, 1_000)
      const steps = CASES[name]!
      for (const [index, [what, address, length, lease]] of steps.entries())
        await sql(EVENT, [network, 100 + index, `lease.${what}`, address, length, lease])
      // What the ledger writes next comes behind it, and the job gets there.
      const { fencingToken: next } = await ledger.take(reserve(place))
      expect(await follow(network, slice)).toBe(1)

      const stored = await storedTenures(network)
      const endOf = (lease: number) => {
        const at = steps.findIndex(([what, , , of]) => what === 'released' && of === lease)
        return at < 0 ? null : 100 + at
      }
      const [, address, length] = steps[0]!
      expect(stored).toMatchObject([
        { lease: leaseId(network, 100), address: `${address}/${length}`, first: 100, ended: endOf(100) },
        { lease: leaseId(network, next), ended: null },
      ])
      const [, later, laterLength] = steps[1]!
      const overlaps = await sql<Record<string, unknown>>(
        'select network, address, lease_id, other_lease_id, upper(span) as ended, what from ipledger_audit.tenure_overlaps where network = $1',
        [network],
      )
      expect(overlaps).toMatchObject([
        {
          address: laterLength === 32 ? later : `${later}/${laterLength}`,
          lease_id: leaseId(network, 101),
          other_lease_id: leaseId(network, 100),
          ended: endOf(101),
        },
      ])
      expect(overlaps[0]!.what).toContain('which began with event 100')
    },
  )
})

test('rows put there past the job are in nobody’s way', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network }))
  const lease = await ledger.take(
    reserve({ network, owner: owner({ name: 'a' }), claims: [claim({ pool: 'p' })] }),
  )
  await follow(network, 1_000)
  const { fencingToken } = lease
  const { poolId: free } = await ledger.accept(createPool({ name: 'q', cidr: '10.1.0.0/24' }, { network }))
  await follow(network, 1_000)
  const put = `insert into ipledger.tenure (network_id, first_seq, fencing_token, pool_id, address, span, began_at, ended_at, began_as, ended_as)
     values ($1, $2::bigint, $2, 1, $3, int8range($2, $2 + 2), now(), now(), 'past', 'past')`
  // In the way of the end of the lease, and in the way of what comes next.
  await sql(put, [network, free, lease.address])
  await sql(put, [network, free! + 1, '10.5.0.1'])
  const { fencingToken: next } = await ledger.take(
    reserve({ network, owner: owner({ name: 'b' }), claims: [claim({ pool: 'p' })] }),
  )
  expect(next).toBe(free! + 1)
  await ledger.accept(release(fencingToken, { network }))
  await follow(network, 1_000)
  expect(await storedTenures(network)).toMatchObject([
    { first: free, began: 'past' },
    { lease: leaseId(network, next), first: next, ended: null },
  ])
  const id = leaseId(network, fencingToken)
  expect(
    await sql('select lease_id from ipledger_audit.tenure_overlaps where network = $1', [network]),
  ).toEqual([{ lease_id: id }])
  const [position] = await sql<{ behind: number }>(
    'select head - seq as behind from ipledger_audit.tenure_position where network = $1',
    [network],
  )
  expect(position).toEqual({ behind: 0 })
})

test('another log than the one it was made from is not followed, and the others are', async () => {
  const network = await freshNetwork(ledger)
  const healthy = await freshNetwork(ledger)
  await follow(network, 1_000)
  await sql(`update ipledger.event set at = at - interval '1 second' where network_id = $1`, [network])
  for (const one of [network, healthy])
    await ledger.accept(createPool({ name: 'p', cidr: '10.0.0.0/24' }, { network: one }))
  await expect(follow(network, 1_000)).rejects.toThrow(OtherLog)
  await createProjectTenure({ slotMs: 0 })(jobs.context)
  const positions = await sql<{ network: string; behind: number }>(
    'select network, head - seq as behind from ipledger_audit.tenure_position where network = any($1) order by network',
    [[network, healthy]],
  )
  expect(Object.fromEntries(positions.map((one) => [one.network, one.behind]))).toEqual({
    [network]: 1,
    [healthy]: 0,
  })
  // As a rebuild does.
  await withClient(database.serviceUrl, (client) => resetTenure(client, network))
  await follow(network, 1_000)
})
