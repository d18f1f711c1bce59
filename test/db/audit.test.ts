/** Views and functions of `ipledger_audit`, asked as people ask them: with the auditor's login, about a log that the core made. */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { AddressRecord } from '../../src/core/event.ts'
import { EVENT_TYPES } from '../../src/core/event.ts'
import { poolNamed, readyAt, restedBy } from '../../src/core/image.ts'
import { poolSize } from '../../src/core/pool.ts'
import { SAMPLE_POOLS, sizesOf } from '../../src/ledger/read-pools.ts'
import { verifyNetwork } from '../../src/ledger/verify.ts'
import { connect, connectUnchecked } from '../../src/postgres/connect.ts'
import {
  after,
  answers,
  command,
  confirm,
  enable,
  expire,
  lists,
  MINUTE,
  network,
  pool,
  quarantine,
  reap,
  reapProven,
  register,
  release,
  reserve,
  source,
} from '../core/given.ts'
import { auditObjects } from '../support/audit-objects.ts'
import { cannot, ON_CITUS } from '../support/citus.ts'
import { useOwnDatabase, useTestDatabase } from '../support/database.ts'
import { tableIn } from '../support/docs.ts'
import { walk } from '../support/random-walk.ts'
import { judgeScene, NETWORK, played, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
const auditor = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test' })
afterAll(() => Promise.all([admin.end(), auditor.end()]))

// biome-ignore lint/suspicious/noExplicitAny: rows of any question
type Row = Record<string, any>
async function ask(text: string, ...values: readonly unknown[]): Promise<readonly Row[]> {
  return (await auditor.query<Row>(text, [...values])).rows
}

const scene = played(
  network,
  pool('10.0.0.0/28', {
    gateway: '10.0.0.1',
    exclude: ['10.0.0.12-10.0.0.14'],
    cooldownMs: 2 * MINUTE,
    isDefault: true,
  }),
  pool('10.0.1.0/24', { name: 'blocks', prefixLength: 28 }),
  register('dry'),
  source('wide'),
  reserve('web/1', { node: 'n1', confirmWithinMs: MINUTE, by: 'orchestrator' }), // 10.0.0.2
  confirm('web/1'),
  reserve('lost/1', { confirmed: true }), // 10.0.0.3
  reserve('both/1', { confirmed: true }), // 10.0.0.4
  reserve('late/1', { confirmWithinMs: MINUTE }), // 10.0.0.5
  reserve('block/1', { claims: [{ pools: ['blocks'] }] }), // 10.0.1.0/28
  quarantine('10.0.0.6'),
  lists('wide', ['web/1@10.0.0.2', 'lost/1@10.0.0.3', 'other/9@10.0.0.4', '?@10.0.1.7']),
  lists('wide', ['web/1@10.0.0.2', 'other/9@10.0.0.4', '?@10.0.1.7']),
  after(5 * MINUTE),
  expire('10.0.0.5'),
  ...Array.from({ length: 4 }, () => lists('wide', ['web/1@10.0.0.2', 'other/9@10.0.0.4', '?@10.0.1.7'])),
  answers('wide', 'lost/1', '10.0.0.3', 'gone'),
  reapProven('10.0.0.3'),
  release('web/1'),
  reserve('web/2', { node: 'n2', claims: [{ pools: ['pool'], address: '10.0.0.7' }], confirmed: true }),
  reap('10.0.0.7'),
  command({ type: 'hold', hold: 'SOURCE_AHEAD', why: 'an older copy?' }),
)
const { image, events } = scene
const ofAddress = (address: string) =>
  events.filter((event) => 'record' in event && event.record.address === address)
const at = (seq: number) => new Date(events.find((event) => event.seq === seq)!.at)

beforeAll(async () => {
  await storeScene(admin, scene)
})

describe('every object', () => {
  test('says what it answers, and has an example that runs', async () => {
    const rows = await auditObjects(admin)
    expect(rows.length).toBeGreaterThan(45)
    for (const { kind, name, comment } of rows) {
      const [, example] = (comment ?? '').split('\nExample: ')
      expect(example, name).toMatch(new RegExp(`^select [^]*\\b${name}\\b[^]*;$`))
      await ask(example!)
      if (kind === 'view') await ask(`select * from ${name} limit 10`)
    }
  })

  test('that the page names as a function is one, and takes as much', async () => {
    const named = tableIn('docs/audit.md', '| function | answers |').map(([cell]) => {
      const [, name, parameters] = /^`(\w+)\((.*)\)`$/.exec(cell!)!
      return { name, parameters: parameters!.split(', ').length }
    })
    expect(named).not.toEqual([])
    const missing = await admin.query(
      `select n.* from json_to_recordset($1) as n (name text, parameters int)
        where not exists (
          select from pg_proc p
           where p.pronamespace = 'ipledger_audit'::regnamespace and p.proname = n.name
             and n.parameters between p.pronargs - p.pronargdefaults and p.pronargs)`,
      [JSON.stringify(named)],
    )
    expect(missing.rows).toEqual([])
  })

  test('is all that the auditor may read', async () => {
    // A query of a shard runs as its caller: on Citus the auditor reads what the views read.
    for (const table of ['event', 'network_lock', 'request', ...(ON_CITUS ? [] : ['source', 'verification'])])
      await expect(ask(`select * from ipledger.${table}`)).rejects.toMatchObject({ code: '42501' })
    await expect(ask('delete from ipledger_audit.sightings')).rejects.toMatchObject({ code: /42501|25006/ })
  })
})

describe('who had an address', () => {
  test('while it was held, and nobody before and after', async () => {
    const [reserved, , released] = ofAddress('10.0.0.2')
    const asked = async (seq: number) => ask(`select * from who_had($1, '10.0.0.2', $2)`, NETWORK, at(seq))
    expect(await asked(reserved!.seq)).toMatchObject([
      {
        network: NETWORK,
        address: '10.0.0.2',
        pool: 'pool',
        lease_id: `${NETWORK}/${reserved!.seq}`,
        owner_name: 'web',
        node: 'n1',
        given_by: 'orchestrator',
        given_cause: 'Reserve',
        since: reserved!.at,
        until: released!.at,
        ended_as: 'lease.released/Release',
      },
    ])
    expect(await asked(released!.seq)).toEqual([])
    expect(await asked(1)).toEqual([])
    expect(
      await ask(`select owner_name from who_had($1, '::ffff:10.0.0.2', $2)`, NETWORK, at(reserved!.seq)),
    ).toEqual([{ owner_name: 'web' }])
  })

  test('of a CIDR, and of a block that holds the address', async () => {
    const now = new Date(image.at)
    expect(await ask(`select address, state from who_had($1, '10.0.0.0/24', $2)`, NETWORK, now)).toEqual([
      { address: '10.0.0.4', state: 'QUARANTINED' },
      { address: '10.0.0.6', state: 'QUARANTINED' },
    ])
    expect(await ask(`select address, owner_name from who_had($1, '10.0.1.9', $2)`, NETWORK, now)).toEqual([
      { address: '10.0.1.0/28', owner_name: 'block' },
    ])
    expect(await ask(`select address from who_had($1, '10.0.1.16', $2)`, NETWORK, now)).toEqual([])
  })
})

describe('histories', () => {
  test('of an address, a lease and an owner, in words', async () => {
    const story = await ask(`select seq, what from address_history($1, '10.0.0.2')`, NETWORK)
    expect(story.map(({ seq }) => seq)).toEqual(ofAddress('10.0.0.2').map(({ seq }) => seq))
    const [{ what }] = story as [Row]
    expect(what).toMatch(
      /^10\.0\.0\.2 of pool pool \(lease net\/\d+\) was reserved for container web incarnation 1 \(eth0\) on node n1 by orchestrator \(Reserve\); it must be confirmed by 2026-/,
    )
    expect(await ask('select seq from lease_history($1)', `${NETWORK}/${story[0]!.seq}`)).toEqual(
      story.map(({ seq }) => ({ seq })),
    )
    expect((await ask(`select type from owner_history($1, 'web')`, NETWORK)).map(({ type }) => type)).toEqual(
      ['lease.reserved', 'lease.confirmed', 'lease.released', 'lease.reserved', 'lease.reaped'],
    )
    const [first, , last] = story as [Row, Row, Row]
    const before = events.filter(
      (event) =>
        'record' in event &&
        event.at <= at(first.seq).getTime() &&
        event.record.address.startsWith('10.0.0.'),
    )
    expect(
      await ask(`select seq from address_history($1, '10.0.0.2', $2, $2)`, NETWORK, at(last.seq)),
    ).toEqual([{ seq: last.seq }])
    expect(
      await ask(
        `select count(*) from address_history($1, '10.0.0.0/24', '-infinity', $2)`,
        NETWORK,
        at(first.seq),
      ),
    ).toEqual([{ count: before.length }])
    expect(await ask(`select type from address_history($1, '10.0.1.9')`, NETWORK)).toEqual([
      { type: 'lease.reserved' },
    ])
  })

  test('have a sentence for every event', async () => {
    const rows = await ask('select type, what from event where network = $1', NETWORK)
    expect(rows.length).toBe(events.length)
    for (const { type, what } of rows) expect(what, type).toMatch(/^[A-Z0-9].{20,}\.$/s)
    const without = await ask(
      `select t as type from unnest($1::text[]) t
        where event_sentence(jsonb_populate_record(null::log, jsonb_build_object('type', t)), 'pool') is null`,
      [...EVENT_TYPES, 'pool.unheard'],
    )
    expect(without).toEqual([{ type: 'pool.unheard' }])
  })
})

test('a reap tells its proof, source by source', async () => {
  const rows = await ask('select * from reaps($1, $2) order by seq', new Date(0), new Date(image.at))
  expect(rows.map(({ cause }) => cause)).toEqual(['NEVER_CONFIRMED', 'PROVEN_ABSENT', 'Reap'])
  const counted = rows[1]!
  expect(counted).toMatchObject({
    source: 'wide',
    why: 'SIGHTED',
    lookup_answer: 'gone',
    policy: { misses: 3 },
  })
  expect(counted.misses).toBeGreaterThanOrEqual(3)
  expect(counted.snapshots).toHaveLength(counted.misses)
  expect(counted.last_sighted_at).toBeLessThan(counted.at)
  const [{ what }] = (await ask(
    'select what from event where network = $1 and seq = $2',
    NETWORK,
    counted.seq,
  )) as [Row]
  expect(what).toMatch(
    /was reaped by caller \(PROVEN_ABSENT\): source wide, which had listed it, missed it in \d counted reports \(numbers .*it answered gone; policy: 3 misses, minimum age 300 s/,
  )
})

describe('why an address is as it is', () => {
  const explained = async (address: string, when = new Date(image.at)) =>
    (await ask(
      'select step, what, evidence from explain_address($1, $2, $3)',
      NETWORK,
      address,
      when,
    )) as readonly Row[]
  test.each([
    ['10.0.0.1', 'EXCLUDED', /is never handed out: it is the gateway of the pool/],
    ['10.0.0.13', 'EXCLUDED', /excluded by the pool's settings \(10\.0\.0\.12-10\.0\.0\.14\)/],
    [
      '10.0.0.2',
      'COOLING',
      /is free and cooling until .*, was released .* only its last holder may have it back.* It is seen live/,
    ],
    ['10.0.0.3', 'COOLING', /was reaped .*\(PROVEN_ABSENT\); until then nobody gets it/],
    ['10.0.0.4', 'QUARANTINED', /is set aside: .* as CONFLICT .* Source wide lists container other .* there/],
    ['10.0.0.6', 'QUARANTINED', /as OPERATOR .*It ends by an operator/],
    ['10.0.0.8', 'FREE', /is free, and nobody has ever held it/],
    ['10.0.1.7', 'RESERVED', /is held: block 10\.0\.1\.0\/28.* Source wide lists an unknown owner there/],
    ['10.0.9.9', 'OUTSIDE', /is in no pool of network net/],
  ])('%s %s', async (address, state, words) => {
    const [answer, ...steps] = await explained(address)
    expect(answer!.what).toMatch(words)
    expect(answer!.evidence).toMatchObject({ state, position: image.head })
    const own = ofAddress(address)
    if (own.length > 0) expect(steps).toHaveLength(own.length)
  })

  test('at a time before, and of what does not exist', async () => {
    const [reserved] = ofAddress('10.0.0.2')
    expect((await explained('10.0.0.2', at(reserved!.seq - 1)))[0]!.evidence.state).toBe('FREE')
    expect((await explained('10.0.0.2', new Date(0)))[0]!.what).toMatch(/nothing was known of 10\.0\.0\.2/)
    expect((await explained('10.0.0.0/30'))[0]!.what).toMatch(/is a range/)
    expect((await ask(`select what from explain_address('none', '10.0.0.1')`))[0]!.what).toMatch(
      /there was no network none/,
    )
  })
})

test('quarantines, sightings, holds, sources', async () => {
  expect(await ask('select quarantine_reason, exit from quarantines order by address')).toMatchObject([
    { quarantine_reason: 'CONFLICT' },
    { quarantine_reason: 'OPERATOR' },
  ])
  expect(
    await ask(
      'select host(address) as address, owner_kind, live, appeared_seq is not null as known from sightings order by address',
    ),
  ).toEqual([
    { address: '10.0.0.2', owner_kind: 'container', live: true, known: true },
    { address: '10.0.0.4', owner_kind: 'container', live: true, known: true },
    { address: '10.0.1.7', owner_kind: null, live: true, known: true },
  ])
  expect(await ask('select hold, why, until from holds')).toEqual([
    { hold: 'SOURCE_AHEAD', why: 'an older copy?', until: null },
  ])
  expect(await ask('select source, status, listed from sources order by source')).toEqual([
    { source: 'dry', status: 'registered', listed: null },
    { source: 'wide', status: 'silent', listed: 3 },
  ])
})

test('what needs a person', async () => {
  await admin.query(
    `insert into ipledger.lookup values ($1, 'wide', 'container', 'both', 'both', '10.0.0.4', 'error', null, 'timed out', $2, now(), 5)`,
    [NETWORK, image.head],
  )
  await admin.query(`update ipledger.lease set state = 'RESERVED' where address = '10.0.0.6'`)
  await verifyNetwork(admin, NETWORK, { from: 0 })
  await admin.query(`update ipledger.lease set state = 'QUARANTINED' where address = '10.0.0.6'`)
  await judgeScene(admin, image)
  const rows = await ask(
    'select code, source, abbrev(address) as address, what from attention where network = $1 order by rank',
    NETWORK,
  )
  expect(rows.map(({ code, source: id, address }) => [code, id, address])).toEqual([
    ['PROJECTION_DIFFERS', '', null],
    ['HELD', '', null],
    ['SOURCE_SILENT', 'wide', null],
    ['LOOKUP_FAILING', 'wide', '10.0.0.4'],
    ['OPERATOR_ONLY', '', '10.0.0.6'],
  ])
  expect(await ask('select findings, now_at, looked_up_to from verification')).toEqual([
    { findings: 1, now_at: '', looked_up_to: image.head },
  ])
  await verifyNetwork(admin, NETWORK, { from: 0 })
  expect(await ask('select * from verify_findings')).toEqual([])
})

test('usage is that of the image, and sums up', async () => {
  await admin.query(SAMPLE_POOLS, [NETWORK, sizesOf(image.pools.values())])
  const usages = await ask('select * from pool_usage')
  expect(usages).toHaveLength(2)
  for (const { pool: name, size, free, cooling, reserved, active, quarantined, excluded } of usages) {
    expect(Number(free) + Number(cooling) + reserved + active + quarantined + Number(excluded)).toBe(
      Number(size),
    )
    const { counts, pool: of } = poolNamed(image, name)!
    const whole = poolSize(of)
    expect([Number(size), Number(excluded)]).toEqual([
      Number(whole.size),
      Number(whole.size - whole.allocatable),
    ])
    expect({ reserved, active, quarantined }).toEqual({
      reserved: counts.RESERVED,
      active: counts.ACTIVE,
      quarantined: counts.QUARANTINED,
    })
  }
  expect(
    await ask(
      `select sum(quarantined)::int as quarantined, sum(size)::int as size, count(*)::int as parts from pool_map where pool = 'pool'`,
    ),
  ).toEqual([{ quarantined: 2, size: 16, parts: 16 }])
  expect(
    await ask(
      `select first_address, part, reserved from pool_map where pool = 'blocks' order by part limit 2`,
    ),
  ).toMatchObject([
    { first_address: '10.0.1.0/28', part: 0, reserved: 1 },
    { first_address: '10.0.1.16/28', part: 1, reserved: 0 },
  ])
})

test('rates, churn, crash loops and marks of a time', async () => {
  const span = [new Date(0), new Date(image.at)]
  expect((await ask('select sum(events)::int as events from event_rate($1, $2)', ...span))[0]).toEqual({
    events: events.length,
  })
  expect(
    await ask(
      `select key, reserved, released from churn($1, $2) where by = 'owner' and key = 'container web'`,
      ...span,
    ),
  ).toEqual([{ key: 'container web', reserved: 2, released: 1 }])
  expect((await ask('select mark from marks($1, $2) order by seq', ...span)).map(({ mark }) => mark)).toEqual(
    ['conflict', 'reap', 'reap', 'reap', 'hold'],
  )
})

describe.skipIf(cannot('plans'))('the past is found by indexes, however long the log is', () => {
  /** Told to take no scan where an index will do, as the planner does of a long log. */
  async function planOf(question: string): Promise<string> {
    await auditor.query('set enable_seqscan = off; set enable_bitmapscan = off')
    const rows = await ask(`explain (analyze, costs off, timing off) ${question}`)
    await auditor.query('reset enable_seqscan; reset enable_bitmapscan')
    return rows.map((row) => row['QUERY PLAN']).join('\n')
  }
  const CHAIN = /history_of_an_address_never_forks.*\n\s+Index Cond: .*address = .*previous </

  test('the last event of an address, and its chain, by the chain', async () => {
    expect(await planOf(`select seq from last_event('${NETWORK}', '10.0.0.2', 100)`)).toMatch(CHAIN)
    const chain = await planOf(
      `select seq from chain('${NETWORK}', '10.0.0.2', 5, 100) order by previous limit 9`,
    )
    expect(chain).toMatch(/previous >= /)
    expect(chain).not.toMatch(/Sort|Seq Scan/)
  })

  test('leases as of a time: its place is found once, and no chain is read where nothing has changed since', async () => {
    const plan = await planOf(`select * from leases_as_of('${NETWORK}', now())`)
    expect(plan).toMatch(/Result \(actual rows=1(\.00)? loops=1\)/)
    expect(plan).toMatch(/history_of_an_address_never_forks .*never executed/)
    expect(await planOf(`select * from leases_as_of('${NETWORK}', 9::bigint)`)).toMatch(CHAIN)
  })
})

test.each([23, 31])('the past of a random log, seed %i, is the fold of its beginning', async (seed) => {
  const other = await useOwnDatabase()
  const [owner, reader] = await Promise.all([
    connect({ url: other.adminUrl, applicationName: 'test' }),
    connectUnchecked({ url: other.auditorUrl, applicationName: 'test' }),
  ])
  onTestFinished(async () => {
    await Promise.all([owner.end(), reader.end()])
  })
  const past = await walk(seed, 400)
  await storeScene(owner, past)
  const held = new Map<string, AddressRecord>()
  for (const [index, event] of past.events.entries()) {
    if ('record' in event) held.set(event.record.address, event.record)
    const next = past.events[index + 1]
    if (next?.at !== event.at) {
      const { rows } = await reader.query('select position_at($1, $2) as seq', [NETWORK, new Date(event.at)])
      expect(rows).toEqual([{ seq: event.seq }])
    }
    if (index % 23 !== 0 && next !== undefined) continue
    const expected = [...held.values()]
      .filter(({ state }) => state !== 'FREE')
      .map(({ address, seq, token, state, node }) => ({
        address,
        version: seq,
        fencing_token: token,
        state,
        node,
      }))
    const { rows } = await reader.query(
      'select host(address) as address, version, fencing_token, state, node from leases_as_of($1, $2::bigint)',
      [NETWORK, event.seq],
    )
    expect(new Set(rows)).toEqual(new Set(expected))
  }
  const now = await reader.query(
    'select host(address) as address, version from lease where network = $1 order by lease.address',
    [NETWORK],
  )
  const asOf = await reader.query('select host(address) as address, version from leases_as_of($1, now())', [
    NETWORK,
  ])
  expect(asOf.rows).toEqual(now.rows)
  // Numbers begin anew in each era; halving finds places in any.
  expect((await reader.query(`select position_at($1, 'infinity') as seq`, [NETWORK])).rows).toEqual([
    { seq: past.image.head },
  ])
})

test('what one node did to another, what became of a spare, and what rests', async () => {
  const told = played(
    network,
    pool('10.0.0.0/28'),
    source('n1', { node: 'n1' }),
    source('n2', { node: 'n2' }),
    reserve('x/1', { node: 'n1', confirmed: true }), // 10.0.0.1
    reserve('reserve:n1-7', { node: 'n1', confirmed: true }), // 10.0.0.2
    reserve('probed/1'), // 10.0.0.3
    lists('n2', ['y/1@10.0.0.1']),
    lists('n1', ['c/1@10.0.0.2']),
    release('x/1'),
    release('probed/1', 'IN_USE_BY_ANOTHER'),
    register('d'),
    lists('d', ['z/1@10.0.0.9']),
    lists('d', ['z/1@10.0.0.9']),
    enable('d'),
    lists('d', []),
  )
  await storeScene(admin, told, 'nodes')
  const sentences = async (address: string) =>
    (
      await ask(
        'select what from explain_address($1, $2, $3) order by step',
        'nodes',
        address,
        new Date(told.image.at),
      )
    ).map(({ what }) => what as string)
  const [contested] = await sentences('10.0.0.1')
  expect(contested).toMatch(
    /QUARANTINED as CONFLICT .* by n2, held for an unknown owner .*n2 has listed container y/,
  )
  expect((await sentences('10.0.0.1')).join()).toMatch(
    /was released .*another was listed there, so the address is kept/,
  )
  expect((await sentences('10.0.0.2')).join()).toMatch(
    /a spare that a workload got: source n1 lists container c .*adopted/,
  )
  expect((await sentences('10.0.0.3'))[0]).toMatch(/QUARANTINED as IN_USE .*It ends by an operator/)
  expect((await sentences('10.0.0.9'))[0]).toMatch(
    /Source d listed container z .*there until .*: nobody else gets it before /,
  )
  const reasons = await ask(`select quarantine_reason as is from quarantines where network = 'nodes'`)
  expect(reasons.filter(({ is }) => is === 'CONFLICT')).toHaveLength(1)
})

test('what cools is what the core hands out to nobody, also after it was listed', async () => {
  const rests = played(
    network,
    pool('10.0.0.0/28'),
    ...['a/1', 'b/1', 'c/1', 'held/1'].map((who) => reserve(who)), // 10.0.0.1 to 10.0.0.4
    release('a/1'),
    release('b/1'),
    after(5 * MINUTE),
    register('d'),
    lists('d', ['z/1@10.0.0.1']),
    lists('d', ['z/1@10.0.0.1']),
    enable('d'),
    lists('d', []),
    release('c/1'),
    command({ type: 'hold', hold: 'CLOCK', why: 'set forward', stepMs: 1_000 }),
  )
  await storeScene(admin, rests, 'rests')
  const by = restedBy(rests.image, Date.now())
  const expected = [...rests.image.records.values()].map(({ address, state }) => {
    const ready = readyAt(rests.image, address)
    return { address, state: state !== 'FREE' ? state : ready! > by ? 'COOLING' : 'FREE' }
  })
  expect(expected.map(({ state }) => state)).toEqual(['COOLING', 'FREE', 'COOLING', 'RESERVED'])
  expect(
    await ask(
      `select host(address) as address, state from pool_touched('rests', '10.0.0.0/28', 32) order by 1`,
    ),
  ).toEqual(expected)
  for (const { address, state } of expected) {
    const [answer] = await ask(`select evidence from explain_address('rests', $1) where step = 0`, address)
    expect(answer!.evidence.state, address).toBe(state)
  }
})

// The last: it adds a network to what the others count.
test('a network that was closed, opened, closed: what its log and its addresses say, as of each number', async () => {
  const setClosed = (closed: boolean) =>
    command({ type: 'updateNetwork', version: null, description: null, labels: null, closed })
  const told = played(network, pool('10.0.0.0/28'), setClosed(true), setClosed(false), setClosed(true))
  await storeScene(admin, told, 'closing')
  const sentences = await ask(
    `select e.what, (select x.what from explain_address('closing', '10.0.0.3', upto => e.seq) x where x.step = 0) as answer
       from event e where e.network = 'closing' and e.seq > 2 order by e.seq`,
  )
  expect(sentences.map(({ what }) => /; it is closed/.test(what))).toEqual([true, false, true])
  expect(
    sentences.map(({ answer }) => /; the network is closed and hands nothing out\.$/.test(answer)),
  ).toEqual([true, false, true])
  const [outside] = await ask(`select what from explain_address('closing', '10.0.9.9') where step = 0`)
  expect(outside!.what).toMatch(/is in no pool of network closing\.$/)
})
