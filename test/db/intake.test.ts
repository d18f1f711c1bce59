/** The intake of snapshots against PostgreSQL (DESIGN §4 "Reporting", "What is kept"). */
import { randomBytes } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { attachmentKey } from '../../src/core/owner.ts'
import { digestOfGiven } from '../../src/liveness/entries.ts'
import {
  enableSource,
  findSource,
  listSources,
  registerSource,
  retireSource,
} from '../../src/liveness/register.ts'
import {
  type Ask,
  beginSnapshot,
  createUnchangedIntake,
  isRefusal,
  MOST_ALONE,
  type Reported,
  reportSnapshot,
  reportVerdicts,
  type UnchangedCall,
} from '../../src/liveness/report.ts'
import { signToken } from '../../src/liveness/snapshot-token.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { connect, createPool as connectionPool } from '../../src/postgres/connect.ts'
import { claim, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import {
  createEye,
  live,
  NOTHING_SEEN,
  pod,
  register,
  report,
  settled,
  sightings,
  taken,
  tokenFor,
  useIntake,
} from '../support/intake.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { startProxy, type TestProxy } from '../support/proxy.ts'
import { seededRandom } from '../support/random.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const intake = useIntake(database.serviceUrl)
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

/** So that looks of some minutes ago are in time. */
const LONG = 3_600_000

const A = pod('10.0.0.1')
const B = pod('10.0.0.2')
const C = pod('10.0.0.3')

async function withSource(id = 'agent', fields: Parameters<typeof register>[3] = {}) {
  const network = await freshNetwork(ledger)
  await register(intake, network, id, fields)
  return { network, source: id, eye: createEye(intake, network, id) }
}

async function count(table: string, network: string): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `select count(*) as n from ipledger.${table} where network_id = $1`,
    [network],
  )
  return rows[0]!.n
}

async function waitingForLocks(applicationName: string): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(
    `select count(*)::int as n from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
    [applicationName],
  )
  return rows[0]!.n
}

async function headOf(network: string): Promise<number> {
  const { rows } = await admin.query<{ head: number }>(
    'select max(seq) as head from ipledger.event where network_id = $1',
    [network],
  )
  return rows[0]!.head
}

describe('BeginSnapshot', () => {
  test('reads the head first, gives the next number, and stores nothing', async () => {
    const { network, source, eye } = await withSource()
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: LONG }, { network }))
    const begin = () => beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN })
    const first = settled(await begin())
    expect(first.begun).toMatchObject({ network, source, era: 0, head: await headOf(network), sequence: 1 })
    expect(settled(await begin()).begun.sequence).toBe(1)
    expect([await count('snapshot', network), await count('sighting', network)]).toEqual([0, 0])
    await eye.look([A])
    await ledger.accept(createPool({ name: 'b', cidr: '10.0.1.0/24', cooldownMs: LONG }, { network }))
    expect(settled(await begin()).begun).toMatchObject({ head: await headOf(network), sequence: 2 })
  })

  test('a token lasts for half of the shortest cooldown of the network', async () => {
    const { network, source } = await withSource()
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 90_000 }, { network }))
    await ledger.accept(createPool({ name: 'b', cidr: '10.0.1.0/24', cooldownMs: 40_000 }, { network }))
    const { begun, expiresAt } = settled(
      await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }),
    )
    expect(expiresAt - begun.begunAt).toBe(20_000)
  })

  test('numbers the ledger has not reached are told', async () => {
    const { network, source } = await withSource()
    const head = await headOf(network)
    const quote = async (era: number, seen: number) =>
      settled(await beginSnapshot(intake, { network, source, quoted: { era, head: seen } })).ground.beyond
    expect(await quote(0, head)).toBeNull()
    expect(await quote(0, head + 1)).toEqual({ era: 0, head: head + 1 })
    expect(await quote(1, 0)).toEqual({ era: 1, head: 0 })
  })

  test('who is not known, or retired, is refused', async () => {
    const { network, source } = await withSource()
    const refused = async (net: string, id: string) => {
      const result = await beginSnapshot(intake, { network: net, source: id, quoted: NOTHING_SEEN })
      return isRefusal(result) ? result.reason : undefined
    }
    expect(await refused('nowhere', source)).toBe('NETWORK_NOT_FOUND')
    expect(await refused(network, 'nobody')).toBe('SOURCE_NOT_FOUND')
    settled(await retireSource(intake.database, { network, id: source, by: 'test' }))
    expect(await refused(network, source)).toBe('ILLEGAL_STATE')
  })

  test('the key is made once, by whoever is first', async () => {
    const { network, source } = await withSource()
    const tokens = await Promise.all(Array.from({ length: 8 }, () => tokenFor(intake, network, source)))
    const results = []
    for (const token of tokens) results.push(taken(await report(intake, { network, source, token })))
    expect(results[0]!.assessment.because).toEqual([])
    for (const { assessment } of results.slice(1)) expect(assessment.because).toEqual(['OUT_OF_SEQUENCE'])
    expect(await count('signing_key', network)).toBe(1)
  })
})

describe('intervals', () => {
  test('an entry begins with the snapshot that lists it and ends with the complete one that does not', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A, B])
    const second = await eye.begin()
    await eye.look([A, B], { begun: second })
    const third = await eye.begin()
    expect(await eye.look([A, C], { begun: third })).toMatchObject({ appeared: 1, vanished: 1, size: 2 })
    const [a, b, c] = await sightings(intake, network, source)
    expect(a).toMatchObject({
      uid: A.uid,
      live: true,
      appeared_sequence: 1,
      vanished_sequence: null,
      last_seen_at: null,
    })
    expect(b).toMatchObject({
      uid: B.uid,
      live: false,
      appeared_sequence: 1,
      vanished_sequence: 3,
      vanished_head: third.head,
      vanished_at: third.begunAt,
      last_seen_at: second.begunAt,
    })
    expect(c).toMatchObject({
      live: true,
      appeared_sequence: 3,
      appeared_head: third.head,
      appeared_at: third.begunAt,
    })
  })

  test('what comes back begins another', async () => {
    const { network, source, eye } = await withSource()
    for (const entries of [[A], [], [A]]) await eye.look(entries)
    expect(await sightings(intake, network, source)).toMatchObject([
      { appeared_sequence: 1, vanished_sequence: 2, live: false },
      { appeared_sequence: 3, vanished_sequence: null, live: true },
    ])
  })

  test('a workload that has ended and is listed all the same is not live, and not gone', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A])
    await eye.look([{ ...A, state: 'terminal' }])
    expect(await sightings(intake, network, source)).toMatchObject([
      { state: 'live', live: false, vanished_sequence: 2 },
      { state: 'terminal', live: false, vanished_sequence: null },
    ])
  })

  test('an unchanged set touches the row of its source and no other', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A, B])
    await eye.look([A, B])
    const versions = async () => {
      const { rows } = await admin.query(
        `select 'sighting' as of, xmin::text, count(*) from ipledger.sighting where network_id = $1 group by xmin
         union all select 'snapshot', xmin::text, count(*) from ipledger.snapshot where network_id = $1 group by xmin
         union all select 'epoch', xmin::text, count(*) from ipledger.source_epoch where network_id = $1 group by xmin
         order by 1, 2`,
        [network],
      )
      return rows
    }
    const before = await versions()
    const standing = (await findSource(intake.database, network, source))!.standing
    expect(await eye.look([B, A])).toMatchObject({
      appeared: 0,
      vanished: 0,
      assessment: { unchanged: true, counted: true },
    })
    expect(await versions()).toEqual(before)
    const after = (await findSource(intake.database, network, source))!.standing
    expect(after).toMatchObject({ counted: standing.counted + 1, lastSequence: 3, complete: { sequence: 3 } })
  })

  test('nor does it grow while it stays partial for the same reason', async () => {
    const { network, eye } = await withSource()
    await eye.look([A])
    for (let i = 0; i < 5; i += 1) await eye.look([A], { complete: false })
    expect(await count('snapshot', network)).toBe(2)
    await eye.look([A])
    expect(await count('snapshot', network)).toBe(3)
  })

  test('sets of any size, after any others', async () => {
    const { network, source, eye } = await withSource()
    const random = seededRandom()
    console.log(`seed ${random.seed}`)
    // Before it is warm, nothing ends.
    for (let i = 0; i < 2; i += 1) await eye.look([])
    let listed = new Set<string>()
    for (let step = 0; step < 25; step += 1) {
      // More than a page of the comparison, now and then.
      const most = step % 8 === 3 ? 12_000 : 40
      const entries = new Map<string, GivenEntry>()
      for (let i = random.below(most); i > 0; i -= 1) {
        const n = random.below(2 * most)
        const entry = pod(`10.1.${n >> 8}.${n & 255}`)
        entries.set(entry.address, entry)
      }
      const complete = random.chance(0.6)
      await eye.look([...entries.values()], { complete })
      listed = complete ? new Set(entries.keys()) : listed.union(new Set(entries.keys()))
      expect(new Set(await live(intake, network, source)), `step ${step}`).toEqual(listed)
    }
  }, 60_000)
})

describe('partial evidence only protects (INV-6)', () => {
  type Sent = Parameters<typeof report>[1]
  type Context = { readonly network: string; readonly source: string; readonly token: string }
  const PARTIAL: readonly (readonly [
    string,
    string,
    number | 'head',
    (with_: Context) => Promise<Sent> | Sent,
  ])[] = [
    ['without a token', 'NO_TOKEN', 0, (c) => ({ ...c, token: '' })],
    [
      'with a forged token',
      'TOKEN_INVALID',
      0,
      (c) => ({ ...c, token: c.token.replace(/.{8}$/, 'AAAAAAAA') }),
    ],
    ['declared so', 'DECLARED', 'head', (c) => ({ ...c, complete: false })],
    [
      'with an entry that cannot be read',
      'UNREADABLE_ENTRY',
      'head',
      (c) => ({ ...c, content: { entries: [B, { address: '10.0.0.300' }] } }),
    ],
    [
      'with the token of another source',
      'TOKEN_OF_ANOTHER_SOURCE',
      0,
      async (c) => {
        await register(intake, c.network, 'other')
        return { ...c, token: await tokenFor(intake, c.network, 'other') }
      },
    ],
    [
      'with a token that was used',
      'OUT_OF_SEQUENCE',
      0,
      async (c) => {
        await report(intake, { ...c, content: { entries: [A] } })
        return c
      },
    ],
    [
      'of an era that is over',
      'OTHER_ERA',
      0,
      async (c) => {
        await admin.query('update ipledger.network set era = 1 where network_id = $1', [c.network])
        return c
      },
    ],
    [
      'of an epoch that is over',
      'CLOSED_EPOCH',
      0,
      async (c) => {
        await report(intake, { ...c, epoch: 'e2', content: { entries: [A] } })
        return { ...c, token: await tokenFor(intake, c.network, c.source) }
      },
    ],
  ]

  test.each(PARTIAL)('%s: nothing ends, what is new is seen', async (_what, reason, head, prepare) => {
    const { network, source, eye } = await withSource()
    await eye.look([A])
    const context = { network, source, token: await tokenFor(intake, network, source) }
    const sent = { content: { entries: [B] }, ...(await prepare(context)) }
    const before = (await findSource(intake.database, network, source))!.standing
    const reported = taken(await report(intake, sent))
    expect(reported.assessment).toMatchObject({ because: [reason], complete: false, counted: false })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.2'])
    const [, seen] = await sightings(intake, network, source)
    // 0: it decides nothing.
    expect(seen!.appeared_head).toBe(head === 'head' ? await headOf(network) : 0)
    const after = (await findSource(intake.database, network, source))!
    expect(after.standing).toMatchObject({
      counted: before.counted,
      streakFrom: before.streakFrom,
      complete: before.complete,
    })
    expect(after.standing.partialBecause).toEqual([reason])
  })

  test('with a token that is too old', async () => {
    const { network, source, eye } = await withSource()
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 60_000 }, { network }))
    const { begun } = settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
    const late = await eye.look([A], { begun: { ...begun, begunAt: begun.begunAt - 31_000 } })
    expect(late.assessment.because).toEqual(['TOKEN_EXPIRED'])
    const timely = await eye.look([A], { begun: { ...begun, begunAt: begun.begunAt - 29_000 } })
    expect(timely.assessment.because).toEqual([])
  })

  test('a token of ours with numbers beyond the head says that the database is older than itself', async () => {
    const { network, source, eye } = await withSource()
    const { begun } = settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
    const head = begun.head + 5
    const reported = await eye.look([A], { begun: { ...begun, head } })
    expect(reported).toMatchObject({
      assessment: { because: ['BEYOND_HEAD'] },
      ground: { beyond: { era: 0, head } },
      appeared: 1,
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1'])
  })

  test('what it added is ended by the next complete one, which lists the same as the last', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A])
    await eye.look([A, B], { complete: false })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.2'])
    expect(await eye.look([A])).toMatchObject({ vanished: 1 })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1'])
  })

  test('an entry that cannot be read is logged once, with source, sequence and text', async () => {
    const { network, source, eye } = await withSource()
    const from = intake.logged.length
    await eye.look([A, { address: '10.0.0.300' }])
    expect(intake.logged.slice(from)).toMatchObject([
      { network, source, sequence: 1, text: '{"address":"10.0.0.300"}' },
    ])
  })
})

describe('epochs', () => {
  test('the first lists of a new one take nothing back into use: it may still be reading what there is (INV-6, cilium#9888)', async () => {
    const { network, source, eye } = await withSource()
    for (let i = 0; i < 3; i += 1) await eye.look([A, B, C])
    const seen = () => live(intake, network, source)
    const restarted = { epoch: 'e2' }
    expect(await eye.look([], restarted)).toMatchObject({
      vanished: 0,
      assessment: { complete: true, ends: false },
    })
    expect(await eye.look([A], restarted)).toMatchObject({ vanished: 0, digest: '' })
    expect(await eye.look([A, B], restarted)).toMatchObject({ vanished: 0 })
    expect(await seen()).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3'])
    expect(await eye.look([A, B], restarted)).toMatchObject({ vanished: 1, assessment: { ends: true } })
    expect(await seen()).toEqual(['10.0.0.1', '10.0.0.2'])
  })

  test('a new one closes the others for good', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A], { epoch: 'boot-1' })
    expect(await eye.look([A], { epoch: 'boot-2' })).toMatchObject({ closedEpoch: 'boot-1' })
    expect(await eye.look([A], { epoch: 'boot-1' })).toMatchObject({
      closedEpoch: '',
      assessment: { because: ['CLOSED_EPOCH'], opensEpoch: false },
    })
    const { rows } = await admin.query(
      'select epoch, closed_by from ipledger.source_epoch where network_id = $1 and source_id = $2 order by begun_sequence',
      [network, source],
    )
    expect(rows).toEqual([
      { epoch: 'boot-1', closed_by: 'boot-2' },
      { epoch: 'boot-2', closed_by: null },
    ])
  })

  test('of a source of a node they are boots: its entries are of the boot that reports', async () => {
    const { network, eye } = await withSource('agent', { node: 'n1' })
    await eye.look([A], { epoch: 'boot-1', node: 'n1' })
    for (let i = 0; i < 2; i += 1) await eye.look([A], { epoch: 'boot-2', node: 'n1' })
    const { rows } = await admin.query(
      'select node, boot, live from ipledger.sighting where network_id = $1 order by appeared_sequence',
      [network],
    )
    expect(rows).toEqual([
      { node: 'n1', boot: 'boot-1', live: false },
      { node: 'n1', boot: 'boot-2', live: true },
    ])
  })

  test('the service cannot forget one', async () => {
    await expect(
      withClient(database.serviceUrl, (client) => client.query('delete from ipledger.source_epoch')),
    ).rejects.toMatchObject({ code: '42501' })
  })
})

describe('a snapshot in chunks', () => {
  const PARTS = [[A], [B, C], [pod('10.0.0.4')]] as const
  const ALL = PARTS.flat()
  const TOTAL = { entries: ALL.length, digest: digestOfGiven(ALL) }

  function sender(network: string, source: string, token: string, epoch = 'e1') {
    return (
      number: number,
      total: typeof TOTAL | null = null,
      entries: readonly GivenEntry[] = PARTS[number]!,
    ) =>
      report(intake, { network, source, token, epoch, content: { entries }, chunk: { number, last: total } })
  }

  async function started() {
    const at = await withSource()
    for (let i = 0; i < 2; i += 1) await at.eye.look([A, pod('10.0.0.9')])
    const token = await tokenFor(intake, at.network, at.source)
    return { ...at, send: sender(at.network, at.source, token) }
  }

  test('says nothing before the last one has come, and then all', async () => {
    const { network, source, send } = await started()
    for (const number of [0, 1]) expect(await send(number)).toMatchObject({ is: 'staged' })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.9'])
    expect(await send(2, TOTAL)).toMatchObject({
      assessment: { complete: true },
      appeared: 3,
      vanished: 1,
      size: 4,
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'])
    expect(await count('snapshot_part', network)).toBe(0)
  })

  test('a chunk that is sent again replaces itself', async () => {
    const { send } = await started()
    for (const number of [0, 1, 1, 0]) await send(number)
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { complete: true } })
  })

  test('with one that is lost it is partial: nothing is missed', async () => {
    const { network, source, send } = await started()
    await send(0)
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { because: ['CHUNK_MISSING'] }, vanished: 0 })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.4', '10.0.0.9'])
  })

  test('of which any part was declared incomplete is partial: nothing is missed (INV-6)', async () => {
    const { network, source, send } = await started()
    const token = await tokenFor(intake, network, source)
    const chunk = { number: 0, last: null }
    const content = { entries: PARTS[0] }
    // Its authority did not answer for a part of this one; what it could be asked for is all there afterwards.
    await report(intake, { network, source, token, content, chunk, complete: false })
    const rest = sender(network, source, token)
    await rest(1)
    expect(await rest(2, TOTAL)).toMatchObject({ assessment: { because: ['DECLARED'] }, vanished: 0 })
    expect(await live(intake, network, source)).toEqual([
      '10.0.0.1',
      '10.0.0.2',
      '10.0.0.3',
      '10.0.0.4',
      '10.0.0.9',
    ])
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { complete: false } })
  })

  test('with a count that differs it is partial', async () => {
    const { send } = await started()
    for (const number of [0, 1]) await send(number)
    expect(await send(2, { ...TOTAL, entries: 5 })).toMatchObject({
      assessment: { because: ['CHUNK_MISSING'] },
    })
  })

  test('with a digest that differs it is partial', async () => {
    const { send } = await started()
    await send(0)
    await send(1, null, [B, B])
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { because: ['DIGEST_DIFFERS'] }, vanished: 0 })
  })

  test('with an entry of any chunk that cannot be read it is partial, and that is logged', async () => {
    const { network, source, send } = await started()
    const from = intake.logged.length
    const broken = { address: 'broken' }
    await send(0, null, [A, broken])
    const given = [A, broken, ...PARTS[2]]
    const total = { entries: given.length, digest: digestOfGiven(given) }
    expect(await send(1, total, PARTS[2])).toMatchObject({
      assessment: { because: ['UNREADABLE_ENTRY'] },
      unreadable: 1,
    })
    expect(intake.logged.slice(from)).toMatchObject([
      { network, source, sequence: 3, text: '{"address":"broken"}' },
    ])
  })

  test('is not mixed with another that its source began meanwhile', async () => {
    const { network, source, send } = await started()
    await send(0)
    await send(1)
    const { rows } = await admin.query<{ begun_at: number }>(
      'select begun_at from ipledger.snapshot_part limit 1',
    )
    const staged = rows[0]!.begun_at
    const begin = async () => settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
    let later = await begin()
    // In the next millisecond at the latest.
    while (later.begun.begunAt <= staged) later = await begin()
    const other = sender(network, source, later.token)
    // Even what is the same in both is of two looks.
    for (const number of [0, 1]) await other(number)
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { because: ['CHUNK_MISSING'] } })
  })

  test('of which a part is gone when its entries are written is partial, and the last of it protects', async () => {
    const { network, source, send } = await started()
    for (const number of [0, 1]) await send(number)
    await withClient(database.adminUrl, async (holder) => {
      await holder.query('begin')
      await holder.query('select from ipledger.source where network_id = $1 for update', [network])
      const last = send(2, TOTAL)
      await waitFor(async () => {
        const { rows } = await admin.query(
          `select from pg_stat_activity where application_name = 'test intake' and wait_event_type = 'Lock'`,
        )
        return rows.length > 0
      })
      await admin.query('delete from ipledger.snapshot_part where network_id = $1', [network])
      await holder.query('rollback')
      expect(await last).toMatchObject({
        assessment: { because: ['CHUNK_MISSING'] },
        appeared: 1,
        vanished: 0,
        digest: '',
      })
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.4', '10.0.0.9'])
  })

  test('one of which a process before 0017 wrote is partial, and ends nothing', async () => {
    const { network, source, send } = await started()
    for (const number of [0, 1]) await send(number)
    await admin.query('update ipledger.snapshot_part set keys = null where network_id = $1 and part = 1', [
      network,
    ])
    expect(await send(2, TOTAL)).toMatchObject({
      assessment: { because: ['CHUNK_MISSING'] },
      vanished: 0,
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.4', '10.0.0.9'])
  })

  test('of two epochs is of none', async () => {
    const { network, source, send } = await started()
    const token = await tokenFor(intake, network, source)
    await sender(network, source, token, 'e2')(0)
    const rest = sender(network, source, token)
    await rest(1)
    expect(await rest(2, TOTAL)).toMatchObject({ assessment: { because: ['CHUNK_MISSING'] } })
    expect(await send(2, TOTAL)).toMatchObject({ assessment: { complete: false } })
  })

  test('without a token each one only protects', async () => {
    const { network, source } = await started()
    const reported = await sender(network, source, '')(1)
    expect(reported).toMatchObject({
      assessment: { because: ['NO_TOKEN', 'CHUNK_MISSING'] },
      appeared: 2,
      vanished: 0,
    })
  })

  test('has a limit of chunks and of entries, which the refusal says', async () => {
    const { network, source } = await started()
    const send = async (chunk: { number: number; last: typeof TOTAL | null }) => {
      const result = await reportSnapshot(intake, {
        network,
        source,
        token: '',
        epoch: 'e1',
        complete: true,
        content: { entries: [] },
        chunk,
        quoted: NOTHING_SEEN,
      })
      return isRefusal(result) ? result.message : undefined
    }
    expect(await send({ number: 200, last: null })).toContain('200')
    expect(await send({ number: 0, last: { ...TOTAL, entries: 200_001 } })).toContain('200000')
  })
})

describe('"unchanged", by the digest of the last answer', () => {
  async function listed() {
    const { network, source, eye } = await withSource()
    const { digest } = await eye.look([A, B])
    const say = async (unchanged: string, fields: object = {}) =>
      report(intake, {
        network,
        source,
        token: await tokenFor(intake, network, source),
        content: { unchanged },
        ...fields,
      })
    return { network, source, eye, digest, say }
  }

  test('is a complete snapshot of the same set', async () => {
    const { network, source, digest, say } = await listed()
    expect(await say(digest)).toMatchObject({
      assessment: { complete: true, unchanged: true },
      size: 2,
      digest,
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.2'])
  })

  test('of another set wants the entries, and counts for nothing', async () => {
    const { network, source, say } = await listed()
    for (const other of ['', 'f'.repeat(64)]) expect(await say(other)).toMatchObject({ is: 'resend' })
    expect((await findSource(intake.database, network, source))!.standing.lastSequence).toBe(1)
  })

  test('after a partial snapshot that added something wants the entries', async () => {
    const { eye, digest, say } = await listed()
    await eye.look([A, B, C], { complete: false })
    expect(await say(digest)).toMatchObject({ is: 'resend' })
  })

  test('in another epoch wants the entries', async () => {
    const { digest, say } = await listed()
    expect(await say(digest, { epoch: 'e2' })).toMatchObject({ is: 'resend' })
  })
})

describe('"unchanged", of several sources together', () => {
  /** Sources of one network that have listed one pod each, and what each would say next. */
  async function several(...sources: readonly string[]) {
    const network = await freshNetwork(ledger)
    const reports: UnchangedCall[] = []
    for (const [number, source] of sources.entries()) {
      await register(intake, network, source)
      const eye = createEye(intake, network, source)
      const { digest: unchanged } = await eye.look([pod(`10.0.0.${number + 1}`)])
      const token = await tokenFor(intake, network, source)
      const quoted = NOTHING_SEEN
      const isAwaited = () => true
      reports.push({ network, source, token, epoch: 'e1', complete: true, quoted, unchanged, isAwaited })
    }
    const standings = async () =>
      Promise.all(
        sources.map(async (source) => (await findSource(intake.database, network, source))!.standing),
      )
    return { network, reports, standings }
  }
  const together = async (reports: readonly UnchangedCall[]) =>
    (await Promise.allSettled(createUnchangedIntake(intake)(reports))).map((one) =>
      one.status === 'fulfilled' ? one.value : one,
    )
  /** While the work runs, somebody else writes to these sources of the network. */
  async function whileWritten(network: string, ids: readonly string[], work: () => Promise<void>) {
    await withClient(database.adminUrl, async (holder) => {
      await holder.query('begin')
      await holder.query(
        'select from ipledger.source where network_id = $1 and source_id = any($2) for update',
        [network, ids],
      )
      await work()
      await holder.query('rollback')
    })
  }

  test('each is taken as it would be by itself', async () => {
    const { reports, standings } = await several('a', 'b', 'c', 'd')
    const [a, b, c, d] = reports as [UnchangedCall, UnchangedCall, UnchangedCall, UnchangedCall]
    const before = await standings()
    const outcomes = await together([d, { ...c, complete: false }, { ...b, unchanged: 'other' }, a])
    expect(outcomes).toMatchObject([
      { is: 'taken', source: { id: 'd' }, sequence: 2, size: 1, assessment: { complete: true }, news: [] },
      { is: 'taken', source: { id: 'c' }, assessment: { complete: false, because: ['DECLARED'] } },
      { is: 'resend' },
      { is: 'taken', source: { id: 'a' }, sequence: 2, assessment: { complete: true } },
    ])
    const after = await standings()
    expect(after[1]).toEqual(before[1])
    for (const [outcome, place] of [
      [0, 3],
      [1, 2],
      [3, 0],
    ] as const) {
      expect(after[place]).toEqual(taken(outcomes[outcome] as Reported).source.standing)
    }
    expect(after[2]).toMatchObject({ partialBecause: ['DECLARED'], lastSequence: 2 })
    expect(after[0]).toMatchObject({ partialBecause: [], complete: { sequence: 2 }, digest: a.unchanged })
  })

  test('who is refused keeps nobody else from being heard', async () => {
    const { network, reports, standings } = await several('a', 'b')
    const [a, b] = reports as [UnchangedCall, UnchangedCall]
    settled(await retireSource(intake.database, { network, id: 'b', by: 'root' }))
    expect(await together([b, { ...a, source: 'nobody' }, a])).toMatchObject([
      { reason: 'ILLEGAL_STATE' },
      { reason: 'SOURCE_NOT_FOUND' },
      { is: 'taken', sequence: 2 },
    ])
    expect((await standings())[0]).toMatchObject({ lastSequence: 2 })
  })

  test('nor does one whose source somebody else is writing to, nor is an answer held up by it', async () => {
    const { network, reports, standings } = await several('a', 'b', 'c')
    let slow: Promise<unknown> | undefined
    await whileWritten(network, ['a'], async () => {
      const [a, ...others] = createUnchangedIntake(intake)(reports)
      slow = a
      expect(await Promise.all(others)).toMatchObject([
        { is: 'taken', sequence: 2 },
        { is: 'taken', sequence: 2 },
      ])
      expect((await standings()).map(({ lastSequence }) => lastSequence)).toEqual([1, 2, 2])
    })
    expect(await slow).toMatchObject({ is: 'taken', sequence: 2 })
  })

  test('those that wait for somebody else wait beside each other, a few at a time, while anybody awaits them', async () => {
    const ids = Array.from({ length: MOST_ALONE + 2 }, (_, number) => `s${number}`)
    const { network, reports, standings } = await several(...ids)
    const [late, ...others] = reports.toReversed() as [UnchangedCall, ...UnchangedCall[]]
    let awaited = true
    const pool = connectionPool({
      url: database.serviceUrl,
      applicationName: 'test several',
      max: 2 * MOST_ALONE,
    })
    const take = createUnchangedIntake({ database: pool })
    let outcomes: readonly Promise<unknown>[] = []
    try {
      await whileWritten(network, ids, async () => {
        // Of two groups, and counted together.
        const first = take(others.slice(0, MOST_ALONE - 1))
        await waitFor(async () => (await waitingForLocks('test several')) === MOST_ALONE - 1)
        const then = take([...others.slice(MOST_ALONE - 1), { ...late, isAwaited: () => awaited }])
        outcomes = [...first, ...then]
        await waitFor(async () => (await waitingForLocks('test several')) === MOST_ALONE)
        expect(pool.totalCount - pool.idleCount).toBe(MOST_ALONE)
        awaited = false
      })
      expect(await Promise.all(outcomes)).toMatchObject([
        ...others.map(() => ({ is: 'taken', sequence: 2 })),
        { reason: 'OVERLOADED' },
      ])
      expect((await standings()).at(-1)).toMatchObject({ lastSequence: 1 })
    } finally {
      await pool.end()
    }
  })

  test('nor one that the database refuses', async () => {
    const { network, reports } = await several('a', 'b')
    const never = `sighted_never_by_a_test check (network_id <> '${network}' or source_id <> 'a' or last_sequence < 2)`
    await admin.query(`alter table ipledger.source add constraint ${never}`)
    try {
      expect(await together(reports)).toMatchObject([
        { status: 'rejected', reason: { constraint: 'sighted_never_by_a_test' } },
        { is: 'taken', sequence: 2 },
      ])
    } finally {
      await admin.query('alter table ipledger.source drop constraint sighted_never_by_a_test')
    }
  })

  describe('through a connection that fails', () => {
    async function throughProxy(
      work: (proxy: TestProxy, take: ReturnType<typeof createUnchangedIntake>) => unknown,
    ) {
      const proxy = await startProxy(database.serviceUrl)
      const pool = connectionPool({ url: proxy.url, applicationName: 'test lost', max: 2 })
      try {
        await work(proxy, createUnchangedIntake({ database: pool }))
      } finally {
        proxy.down(true)
        await pool.end()
        await proxy.close()
      }
    }

    test('a group of which nobody knows whether it was committed is not sent again', async () => {
      const { reports, standings } = await several('a', 'b')
      await throughProxy(async (proxy, take) => {
        proxy.loseNextCommit('after')
        expect(await Promise.allSettled(take(reports))).toMatchObject([
          { reason: { message: expect.stringMatching(/terminated/) } },
          { reason: { message: expect.stringMatching(/terminated/) } },
        ])
        expect(proxy.commits()).toBe(1)
      })
      for (const standing of await standings()) {
        expect(standing).toMatchObject({ lastSequence: 2, partialBecause: [] })
      }
    })

    test.each([1, 2])(
      '%i together whose commit is answered by a rollback are not told that they were taken',
      async (some) => {
        const { reports } = await several('a', 'b')
        await throughProxy(async (proxy, take) => {
          proxy.answerNextCommitWithRollback()
          for (const one of await Promise.allSettled(take(reports.slice(0, some)))) {
            expect(one).toMatchObject({ reason: { message: "the report's transaction ended with ROLLBACK" } })
          }
        })
      },
    )
  })

  test('what is wanted of each is asked of it', async () => {
    const { network, reports } = await several('a', 'b')
    await admin.query(
      `insert into ipledger.lookup
         (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
          owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, epoch, detail, attempts)
       select $1, s, 7, 'pod|eth0||' || s, 7, '10.0.0.9', 'pod', s, s, false, '', 'eth0', '', now(), '', '', 0
         from unnest(array['b', 'c']) s`,
      [network],
    )
    expect(await together(reports)).toMatchObject([{ asks: [] }, { asks: [{ owner: { name: 'b' } }] }])
    const { rows } = await admin.query(
      `select source_id as of from ipledger.lookup where network_id = $1 and asked_at is not null`,
      [network],
    )
    expect(rows).toEqual([{ of: 'b' }])
  })
})

describe('the token for the next report', () => {
  test('is begun with this one: one call an interval is enough for who has nothing new to say', async () => {
    const { network, source } = await withSource()
    const first = taken(
      await report(intake, {
        network,
        source,
        token: await tokenFor(intake, network, source),
        content: { entries: [A] },
      }),
    )
    expect(first.next!.expiresAt).toBeGreaterThan(first.ground.now + 1.5 * first.source.intervalMs)
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24' }, { network }))
    const second = taken(
      await report(intake, {
        network,
        source,
        token: first.next!.token,
        content: { unchanged: first.digest },
      }),
    )
    expect(second).toMatchObject({ sequence: 2, assessment: { complete: true } })
    // Evidence of what was known when it was begun, and of nothing later.
    expect(second.source.standing.complete).toEqual({
      sequence: 2,
      head: first.ground.head,
      begunAt: first.ground.now,
      era: 0,
    })
    expect(second.ground.head).toBeGreaterThan(first.ground.head)
    const again = { network, source, token: first.next!.token, content: { unchanged: first.digest } }
    expect(taken(await report(intake, again)).assessment.because).toEqual(['OUT_OF_SEQUENCE'])
  })

  test('is not given where it would not last until then, nor to one that is asked', async () => {
    const { network, source } = await withSource()
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 80_000 }, { network }))
    const fields = { network, source, token: await tokenFor(intake, network, source) }
    expect(taken(await report(intake, fields)).next).toBeNull()
    const asked = await withSource('cluster', { kind: 'kubernetes' })
    await tokenFor(intake, asked.network, asked.source)
    expect((await asked.eye.look([A])).next).toBeNull()
  })

  test('is not given with numbers that this ledger never gave out: a new era is due', async () => {
    const { network, source } = await withSource()
    const { begun } = settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
    const { rows } = await admin.query<{ secret: string }>(
      'select secret from ipledger.signing_key where network_id = $1',
      [network],
    )
    const token = signToken({ ...begun, head: begun.head + 1_000 }, rows[0]!.secret)
    expect(taken(await report(intake, { network, source, token }))).toMatchObject({
      ground: { beyond: { head: begun.head + 1_000 } },
      next: null,
    })
  })

  test('proves no beginning once its boot was fenced: it is heard when it arrived (6.3)', async () => {
    const { network, source } = await withSource('agent', { node: 'n1' })
    const say = async (fields: Parameters<typeof report>[1]) => taken(await report(intake, fields))
    const token = await tokenFor(intake, network, source)
    const first = await say({ network, source, token, content: { entries: [A] } })
    // In the same millisecond, and told in a later one.
    await admin.query(
      `insert into ipledger.fence values ($1, 'n1', 'e1', 1, to_timestamp($2::float8 / 1000), 'op', 'gone')`,
      [network, first.ground.now],
    )
    await waitFor(() => Date.now() > first.ground.now + 1)
    const content = { unchanged: first.digest }
    const second = await say({ network, source, token: first.next!.token, content })
    expect(second).toMatchObject({ assessment: { because: ['TOKEN_EXPIRED'] }, fencedAt: expect.any(Number) })
    expect(second.source.standing.lastBegunAt).toBeGreaterThanOrEqual(second.fencedAt!)
    expect(await live(intake, network, source)).toEqual(['10.0.0.1'])
    const third = await say({ network, source, token: second.next!.token, content })
    expect(third.assessment.because).toEqual([])
  })
})

describe('at once', () => {
  test('a report does not wait for the lock of the network, nor anybody for a report', async () => {
    const { network, source, eye } = await withSource()
    await withClient(database.adminUrl, async (holder) => {
      await holder.query('begin')
      await holder.query('select from ipledger.network_lock where network_id = $1 for no key update', [
        network,
      ])
      await eye.look([A])
      await holder.query('rollback')
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1'])
  })

  test('of two reports of one source with one token, one is the snapshot', async () => {
    const { network, source } = await withSource()
    const token = await tokenFor(intake, network, source)
    const both = await Promise.all(
      [[A], [B]].map((entries) => report(intake, { network, source, token, content: { entries } })),
    )
    expect(both.map((one) => taken(one).assessment.because.join()).sort()).toEqual(['', 'OUT_OF_SEQUENCE'])
    expect(await live(intake, network, source)).toEqual(['10.0.0.1', '10.0.0.2'])
  })

  test('a source lists an entry once at a time, whoever writes', async () => {
    const { network, eye } = await withSource()
    await eye.look([A])
    await expect(
      admin.query(
        `insert into ipledger.sighting (network_id, address, source_id, entry_key, appeared_sequence, node, boot, state, live, epoch,
           appeared_head, appeared_at)
         select network_id, address, source_id, entry_key, appeared_sequence + 1, node, boot, state, live, epoch, appeared_head, appeared_at
           from ipledger.sighting where network_id = $1`,
        [network],
      ),
    ).rejects.toMatchObject({ constraint: 'source_lists_an_entry_once' })
  })
})

describe('ReportVerdicts', () => {
  const HOLDER = owner({ name: 'default/web-0', uid: 'u1', incarnation: 's1|2' })

  /** As the job that judges suspects wants it. */
  async function want(
    network: string,
    source: string,
    token: number,
    version: number,
    of = HOLDER,
  ): Promise<void> {
    await admin.query(
      `insert into ipledger.lookup
         (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
          owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, epoch, detail, attempts)
       values ($1, $2, $3, $4, $5, '10.0.0.1', 'pod', 'default/web-0', 'u1', true, 's1|2', 'eth0', 'n1', now(), '', '', 0)`,
      [network, source, token, attachmentKey(of), version],
    )
  }

  async function asked() {
    const { network, source, eye } = await withSource()
    await eye.look([])
    await want(network, source, 4, 7)
    const { asks } = await eye.look([])
    const answer = async (id: string, fields: object = {}) =>
      settled(
        await reportVerdicts(intake, {
          network,
          source,
          epoch: 'e1',
          verdicts: [{ id, answer: { answer: 'gone', detail: 'no such container' } }],
          quoted: NOTHING_SEEN,
          ...fields,
        }),
      )
    const row = async () => {
      const { rows } = await admin.query(
        `select answer, detail, epoch, asked_at, answered_at, terminal_since from ipledger.lookup where network_id = $1`,
        [network],
      )
      return rows[0]
    }
    return { network, source, eye, ask: asks[0] as Ask, answer, row }
  }

  test('what is wanted is asked for with the answer to a report, and again until it is answered', async () => {
    const { eye, ask, answer, row } = await asked()
    expect(ask).toMatchObject({ fencingToken: 4, version: 7, address: '10.0.0.1', owner: HOLDER })
    const { asked_at } = await row()
    const again = await eye.look([])
    expect(again.asks).toEqual([ask])
    // The answer may be to the first asking: it is not claimed to be newer.
    expect((await row()).asked_at).toBe(asked_at)
    expect(await answer(ask.id)).toMatchObject({ accepted: 1, ignored: 0 })
    expect(await row()).toMatchObject({ answer: 'gone', detail: 'no such container', epoch: 'e1', asked_at })
    expect((await eye.look([])).asks).toEqual([])
  })

  test('of two questions about one lease, each has its own time', async () => {
    const { network, source, eye, ask, row } = await asked()
    const { asked_at } = await row()
    await want(network, source, 4, 7, owner({ name: 'default/web-0', uid: 'u1', incarnation: 's3' }))
    expect((await eye.look([])).asks).toHaveLength(2)
    expect((await eye.look([])).asks).toContainEqual(ask)
    const { rows } = await admin.query(
      'select count(*) as n from ipledger.lookup where network_id = $1 and asked_at = to_timestamp($2::float8 / 1000)',
      [network, asked_at],
    )
    expect(rows[0].n).toBe(1)
  })

  test('what was not asked, or is about another version, or was answered, is ignored', async () => {
    const { network, ask, answer, row } = await asked()
    const forge = (text: string) => Buffer.from(text).toString('base64url')
    const [token, version, at] = Buffer.from(ask.id, 'base64url').toString().split('.')
    const about = attachmentKey(HOLDER)
    for (const id of [
      'nonsense',
      '',
      forge(`${token}.6.${at}.${about}`),
      forge(`9.${version}.${at}.${about}`),
      forge(`${token}.${version}.${Number(at) + 1}.${about}`),
      forge(`${token}.${version}.${at}.pod|eth0||u1`),
      forge(`${token}.${version}.${at}.\0`),
    ]) {
      expect(await answer(id), id).toMatchObject({ accepted: 0, ignored: 1 })
    }
    expect((await row()).answer).toBeNull()
    await answer(ask.id)
    expect(await answer(ask.id)).toMatchObject({ accepted: 0, ignored: 1 })
    expect(await count('lookup', network)).toBe(1)
  })

  test('from another epoch than the source is in, they are ignored', async () => {
    const { ask, answer, row } = await asked()
    expect(await answer(ask.id, { epoch: 'e0' })).toMatchObject({ accepted: 0, ignored: 1 })
    expect((await row()).answer).toBeNull()
  })

  test('two that differ are no clear answer', async () => {
    const { ask, answer, row } = await asked()
    const verdicts = (['gone', 'live'] as const).map((word) => ({
      id: ask.id,
      answer: { answer: word, detail: '' },
    }))
    await answer(ask.id, { verdicts })
    expect((await row()).answer).toBe('unknown')
  })

  test('terminal says since when, and not in the future', async () => {
    const { ask, answer, row } = await asked()
    const since = Date.now() + 3_600_000
    await answer(ask.id, {
      verdicts: [{ id: ask.id, answer: { answer: 'terminal', since, detail: 'exited' } }],
    })
    const { answer: word, terminal_since, answered_at } = await row()
    expect(word).toBe('terminal')
    expect(terminal_since).toBeLessThanOrEqual(answered_at)
  })

  test('a closed epoch is asked nothing', async () => {
    const { eye } = await asked()
    await eye.look([], { epoch: 'e2' })
    expect((await eye.look([], { epoch: 'e1' })).asks).toEqual([])
  })
})

describe('registering', () => {
  const by = 'root'

  test('the same again changes nothing, another declaration is in dry run again', async () => {
    const { network, source, eye } = await withSource('agent', {
      ownerKinds: ['vm', 'pod'],
      settings: { a: 1, b: 2 },
    })
    settled(await enableSource(intake.database, { network, id: source, by }))
    await eye.look([A])
    const same = { ownerKinds: ['pod', 'vm'], settings: { b: 2, a: 1 } }
    expect(await register(intake, network, source, same)).toMatchObject({ state: 'ENABLED', enabledBy: by })
    const wider = { ...same, ownerKinds: ['pod', 'vm', 'container'] }
    expect(await register(intake, network, source, wider)).toMatchObject({
      state: 'REGISTERED',
      enabledHead: null,
      ownerKinds: ['container', 'pod', 'vm'],
    })
    expect(await live(intake, network, source)).toEqual(['10.0.0.1'])
  })

  test('one of another kind, node or settings is another source', async () => {
    const { network, source } = await withSource('agent', { node: 'n1', settings: { a: 1 } })
    settled(await enableSource(intake.database, { network, id: source, by }))
    const known = (await findSource(intake.database, network, source))!
    for (const other of [
      { node: 'n2' },
      { kind: 'docker' as const },
      { settings: { a: 2 } },
      { node: '', ownerKinds: ['vm'] },
    ]) {
      const refused = await registerSource(intake.database, { ...known, ...other, by })
      expect(refused).toMatchObject({ reason: 'ILLEGAL_STATE', metadata: { source, state: 'ENABLED' } })
    }
    expect(await findSource(intake.database, network, source)).toEqual(known)
    expect(await registerSource(intake.database, { ...known, by })).toEqual(known)
  })

  test('enabling says from which number on, and starts the streak', async () => {
    const { network, source, eye } = await withSource()
    for (let i = 0; i < 4; i += 1) await eye.look([A])
    const enabled = settled(await enableSource(intake.database, { network, id: source, by }))
    expect(enabled).toMatchObject({ state: 'ENABLED', enabledHead: await headOf(network), enabledBy: by })
    expect(enabled.standing).toMatchObject({ counted: 2, streakFrom: 2 })
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: LONG }, { network }))
    await eye.look([A])
    const again = settled(await enableSource(intake.database, { network, id: source, by: 'somebody' }))
    expect(again).toMatchObject({
      enabledHead: enabled.enabledHead,
      enabledBy: by,
      standing: { counted: 3, streakFrom: 2 },
    })
  })

  test('retiring ends its sightings, and it for good', async () => {
    const { network, source, eye } = await withSource()
    await eye.look([A, B])
    settled(await retireSource(intake.database, { network, id: source, by }))
    expect(await live(intake, network, source)).toEqual([])
    expect(settled(await retireSource(intake.database, { network, id: source, by: 'x' }))).toMatchObject({
      retiredBy: by,
    })
    const retired = (await findSource(intake.database, network, source))!
    for (const result of [
      await enableSource(intake.database, { network, id: source, by }),
      await registerSource(intake.database, { ...retired, by }),
      await registerSource(intake.database, { ...retired, ownerKinds: ['vm'], by }),
    ]) {
      expect(result).toMatchObject({ reason: 'ILLEGAL_STATE' })
    }
    expect(await findSource(intake.database, network, source)).toEqual(retired)
  })

  test('nobody is registered in a network that is not there', async () => {
    const { network, source } = await withSource()
    const known = (await findSource(intake.database, network, source))!
    expect(await registerSource(intake.database, { ...known, network: 'nowhere', by })).toMatchObject({
      reason: 'NETWORK_NOT_FOUND',
    })
    expect(await enableSource(intake.database, { network, id: 'nobody', by })).toMatchObject({
      reason: 'SOURCE_NOT_FOUND',
    })
  })

  test('a source that is asked does not report, and an epoch has a name', async () => {
    const { network, source } = await withSource('engine', { kind: 'docker' })
    const sent = {
      network,
      source,
      token: await tokenFor(intake, network, source),
      complete: true,
      chunk: null,
    }
    const content = { entries: [A] }
    const quoted = NOTHING_SEEN
    expect(await reportSnapshot(intake, { ...sent, epoch: 'e1', content, quoted })).toMatchObject({
      reason: 'ILLEGAL_STATE',
    })
    expect(await reportSnapshot(intake, { ...sent, epoch: '', content, quoted })).toMatchObject({
      reason: 'INVALID_FIELD',
    })
  })

  test('lists go by id, page after page', async () => {
    const { network } = await withSource('b')
    for (const id of ['c', 'a']) await register(intake, network, id)
    const ids = async (after: string, limit: number) =>
      (await listSources(intake.database, { network, after, limit })).map(({ id }) => id)
    expect(await ids('', 2)).toEqual(['a', 'b'])
    expect(await ids('b', 2)).toEqual(['c'])
  })
})

test('the secret of the tokens is for the service alone', async () => {
  await expect(
    withClient(database.jobsUrl, (client) => client.query('select secret from ipledger.signing_key')),
  ).rejects.toMatchObject({ code: '42501' })
  for (const sql of [
    `update ipledger.signing_key set secret = '${'A'.repeat(43)}'`,
    'delete from ipledger.signing_key',
  ]) {
    await expect(withClient(database.serviceUrl, (client) => client.query(sql))).rejects.toMatchObject({
      code: '42501',
    })
  }
})

test('a number of the ledger is proven by what happened before the source looked (2.2 list-order)', async () => {
  const { network, source, eye } = await withSource()
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: LONG }, { network }))
  const begun = await eye.begin()
  const lease = await ledger.take(
    reserve({ network, owner: owner({ name: 'x' }), claims: [claim({ pool: 'a' })] }),
  )
  await eye.look([pod(lease.address)], { begun })
  const [seen] = await sightings(intake, network, source)
  expect(seen!.appeared_head).toBeLessThan(lease.fencingToken)
  await ledger.take(release(lease.fencingToken, { network }))
  await eye.look([pod(lease.address)])
  const { rows } = await admin.query<{ complete_head: number }>(
    'select complete_head from ipledger.source where network_id = $1',
    [network],
  )
  expect(rows[0]!.complete_head).toBeGreaterThan(lease.fencingToken)
})

test('a source that is named in bytes of any kind is itself', async () => {
  const id = `agent/"{},'\\ ${randomBytes(4).toString('hex')} ü`
  const { network, eye } = await withSource(id)
  await eye.look([pod('10.0.0.1', { name: `a,"b"\\{}'`, uid: 'NULL' })])
  expect(await sightings(intake, network, id)).toMatchObject([{ uid: 'NULL', live: true }])
})
