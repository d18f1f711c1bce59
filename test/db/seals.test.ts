/**
 * Seals of the log: what their lines are made of, how stretches are sealed, and that whoever alters or removes an event,
 * or a seal, with a superuser's rights is found and named (incidents 15.1, INV-20).
 */
import { createHash } from 'node:crypto'
import type pg from 'pg'
import { afterAll, describe, expect, test } from 'vitest'
import { firstSeqOfEra } from '../../src/core/policy.ts'
import { checkExport, readExported, UnreadableExport } from '../../src/ledger/check-export.ts'
import { exportLog, sealLine } from '../../src/ledger/export-log.ts'
import { EVENT_COLUMNS } from '../../src/ledger/rows.ts'
import { leafOf, sealDigest } from '../../src/ledger/seal-chain.ts'
import {
  NO_DIGEST,
  readSeals,
  SEAL_STATEMENTS,
  type Seal,
  type SealOutcome,
  sealNext,
} from '../../src/ledger/seals.ts'
import { type Finding, type VerifyProgress, verify } from '../../src/ledger/verify.ts'
import { type Exported, walkSealsPiece } from '../../src/ledger/verify-seals.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { beginEra } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { moveToThePast } from '../support/past.ts'
import { seededRandom } from '../support/random.ts'
import { makeTraffic } from '../support/traffic.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const connections = createConnections({ url: database.serviceUrl, applicationName: 'test seals', max: 4 })
afterAll(() => connections.end())
const random = seededRandom()
console.log(`seed ${random.seed}`)

const TEN = { events: 10, afterMs: 3_600_000 }
const AT_ONCE = { events: 10, afterMs: 0 }

/** As superuser, past everything that the service may not. */
const tamper = (text: string, values: readonly unknown[] = []) =>
  withClient(database.adminUrl, (admin) => admin.query(text, [...values]))

/** What no constraint lets pass. */
const tamperSeal = (text: string, values: readonly unknown[]) =>
  withClient(database.adminUrl, async (admin) => {
    const { rows } = await admin.query<{ name: string; definition: string }>(
      `select conname as name, pg_get_constraintdef(oid) as definition from pg_constraint
        where conrelid = 'ipledger.seal'::regclass and contype = 'c'`,
    )
    for (const { name } of rows) await admin.query(`alter table ipledger.seal drop constraint ${name}`)
    await admin.query(text, [...values])
    for (const { name, definition } of rows)
      await admin.query(`alter table ipledger.seal add constraint ${name} ${definition} not valid`)
  })

async function withEvents(count: number): Promise<string> {
  const network = await freshNetwork(ledger)
  const traffic = await makeTraffic(ledger, network, random)
  while ((await headOf(network)) < count) await traffic.run(10)
  return network
}

async function headOf(network: string): Promise<number> {
  const { rows } = await connections.query<{ head: number }>(
    'select max(seq) as head from ipledger.event where network_id = $1',
    [network],
  )
  return rows[0]!.head
}

/** Everything that is closed; what stopped it last. */
async function seal(network: string, limits = AT_ONCE): Promise<SealOutcome> {
  for (;;) {
    const outcome = await sealNext(connections, network, limits)
    if (!('sealed' in outcome)) return outcome
  }
}

async function sealsOf(network: string): Promise<readonly Seal[]> {
  return Array.fromAsync(readSeals(connections, network, { after: 0, upTo: Number.MAX_SAFE_INTEGER }))
}

async function verified(network: string, options: { against?: readonly Exported[]; slice?: number } = {}) {
  const { networks } = await verify({ url: database.serviceUrl, network, seals: true, ...options })
  return networks[0]!
}

const SEALS = [
  'EVENT_ALTERED',
  'EVENTS_DELETED',
  'SEAL_ALTERED',
  'SEAL_MISSING',
  'SEAL_DOES_NOT_FOLLOW',
  'EXPORT_DIFFERS',
  'EXPORT_ALTERED',
]

/** What the seals say: code, number. What else verify finds of a damaged log is not asked here. */
async function said(network: string, options: Parameters<typeof verified>[1] = {}) {
  const { findings } = await verified(network, options)
  return findings.filter(({ what }) => SEALS.includes(what)).map(({ what, seq }) => `${what} ${seq}`)
}

async function messages(network: string, options: Parameters<typeof verified>[1] = {}) {
  const { findings } = await verified(network, options)
  return findings.filter(({ what }: Finding) => SEALS.includes(what)).map(({ message }) => message)
}

async function* bytes(lines: readonly string[]): AsyncGenerator<Buffer> {
  yield Buffer.from(lines.map((line) => `${line}\n`).join(''))
}

async function exported(network: string, range = { from: 1, to: null as number | null }) {
  return withClient(database.serviceUrl, (client) => Array.fromAsync(exportLog(client, network, range)))
}

/** Digests alone, as `ipledger audit seals --json` prints them. */
async function digests(network: string): Promise<readonly Exported[]> {
  const lines = (await sealsOf(network)).map((one) => sealLine(one, null))
  return readExported(bytes(lines))
}

describe('the line of an event', () => {
  /** Two values of each type, by the name the catalogue has for it. */
  const VALUES: Readonly<Record<string, readonly [unknown, unknown]>> = {
    text: ['a', 'b'],
    bigint: [1, 2],
    smallint: [1, 2],
    boolean: [true, false],
    'timestamp with time zone': ['2026-01-01T00:00:00.000001Z', '2026-01-01T00:00:00.000002Z'],
    inet: ['10.0.0.1', '10.0.0.2'],
    json: [{ a: 1 }, { a: 2 }],
    jsonb: [{ a: 1 }, { a: 2 }],
  }

  const lineOf = async (row: object): Promise<string> => {
    const { rows } = await connections.query<{ line: string }>(
      'select ipledger.event_line(jsonb_populate_record(null::ipledger.event, $1)) as line',
      [JSON.stringify(row)],
    )
    return rows[0]!.line
  }

  test('has every column of the table, also one that a later migration adds', async () => {
    const { rows } = await connections.query<{ name: string; type: string }>(
      `select column_name as name, data_type as type from information_schema.columns
        where table_schema = 'ipledger' and table_name = 'event' order by ordinal_position`,
    )
    expect(rows.map(({ name }) => name)).toEqual(EVENT_COLUMNS)
    const lines = [await lineOf({})]
    for (const { name, type } of rows) {
      const values = VALUES[type]
      expect(values, `values of type ${type}`).toBeDefined()
      for (const value of values!) lines.push(await lineOf({ [name]: value }))
    }
    expect(lines.length).toBe(1 + 2 * EVENT_COLUMNS.length)
    expect(new Set(lines).size, 'no two rows have one line').toBe(lines.length)
    for (const line of lines) expect(JSON.parse(line)).toHaveLength(EVENT_COLUMNS.length)
  })

  const ROW = {
    network_id: 'default',
    seq: 7,
    type: 'lease.quarantined',
    at: '2026-07-01T12:00:00.5Z',
    actor: 'a"\\\n\u2028é',
    cause: '',
    pool_id: 2,
    address: '10.0.0.1',
    prefix_length: 28,
    quarantined_at: '-infinity',
    owner_uid_named: false,
    labels: { b: '1', aa: '2' },
    settings: { z: 1.5, a: [null] },
    evidence: { at: 1795282690862.25 },
  }
  const LINE =
    '["default","7","lease.quarantined","1782907200.500000","a\\"\\\\\\n\u2028é","",null,null,"2","10.0.0.1/32","28",' +
    'null,null,null,"-Infinity",null,null,null,null,null,"false",null,null,null,null,"{\\"b\\": \\"1\\", \\"aa\\": \\"2\\"}",' +
    'null,null,null,null,null,null,"{\\"a\\": [null], \\"z\\": 1.5}","{\\"at\\": 1795282690862.25}"]'

  test('is the same in every version and under every setting', async () => {
    const settings = [
      [],
      ["timezone = 'Asia/Kathmandu'", "datestyle = 'German'", "intervalstyle = 'iso_8601'"],
      ['extra_float_digits = 0', "bytea_output = 'escape'", "search_path = 'pg_temp'"],
      ["client_encoding = 'LATIN1'", 'standard_conforming_strings = off', "lc_numeric = 'C'"],
    ]
    for (const some of settings) {
      const found = await withClient(database.adminUrl, async (client) => {
        const text = JSON.stringify(ROW).replaceAll(
          /[^ -~]/g,
          (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
        )
        for (const setting of some) await client.query(`set ${setting}`)
        const { rows } = await client.query<{ line: string; leaf: string; digest: string }>(
          `select encode(convert_to(ipledger.event_line(r.e), 'UTF8'), 'hex') as line,
                  encode(ipledger.event_leaf(r.e), 'hex') as leaf,
                  encode(ipledger.seal_digest(decode($2, 'hex'), 'default', 7, 7, ipledger.event_leaf(r.e)), 'hex') as digest
             from (select jsonb_populate_record(null::ipledger.event, $1) as e) r`,
          [text, NO_DIGEST],
        )
        return rows[0]!
      })
      expect(Buffer.from(found.line, 'hex').toString(), some.join(', ')).toBe(LINE)
      expect(found.leaf).toBe(leafOf(LINE))
      const stretch = { network: 'default', first: 7, last: 7, previousDigest: NO_DIGEST }
      expect(found.digest).toBe(sealDigest(stretch, found.leaf))
    }
    // By other means than the code under test.
    const leaf = createHash('sha256').update(LINE).digest('hex').slice(0, 32)
    const digest = createHash('sha256')
      .update(Buffer.from(`${NO_DIGEST}`, 'hex'))
      .update('default 7 7\n')
    expect(leafOf(LINE)).toBe(leaf)
    expect(sealDigest({ network: 'default', first: 7, last: 7, previousDigest: NO_DIGEST }, leaf)).toBe(
      digest.update(Buffer.from(leaf, 'hex')).digest('hex'),
    )
  })
})

describe('sealing', () => {
  test('takes full stretches, and what has waited long enough; each names the one before', async () => {
    const network = await withEvents(34)
    const head = await headOf(network)
    expect(await seal(network, TEN)).toEqual({ waiting: true })
    const full = await sealsOf(network)
    expect(full.map(({ first, last }) => [first, last])).toEqual(
      Array.from({ length: Math.floor(head / 10) }, (_, n) => [10 * n + 1, 10 * n + 10]),
    )
    expect(full.map(({ previousDigest }) => previousDigest)).toEqual([
      NO_DIGEST,
      ...full.slice(0, -1).map(({ digest }) => digest),
    ])
    await moveToThePast(database, 2 * TEN.afterMs, network)
    expect(await sealsOf(network), 'moved events are other events').toEqual([])
    await seal(network, TEN)
    expect((await sealsOf(network)).at(-1)).toMatchObject({ last: head })
    expect(await verified(network)).toMatchObject({
      seals: { upTo: head, events: head, unsealed: 0 },
      findings: [],
    })
  })

  test('twice at once seals each event once, and hashes it once', async () => {
    const network = await withEvents(120)
    const head = await headOf(network)
    let hashed = 0
    const counted = (client: pg.Client) =>
      Object.create(client, {
        release: { value: (failed: boolean) => (client as unknown as pg.PoolClient).release(failed) },
        query: {
          value: (text: string, values?: unknown[]) => {
            if (text === SEAL_STATEMENTS.seal) hashed += 1
            return client.query(text, values)
          },
        },
      })
    const counting: pg.Pool = Object.create(connections, {
      query: { value: (text: string, values?: unknown[]) => connections.query(text, values) },
      connect: { value: async () => counted((await connections.connect()) as unknown as pg.Client) },
    })
    const all = async () => {
      for (;;) {
        const outcome = await sealNext(counting, network, AT_ONCE)
        if (!('sealed' in outcome)) return
      }
    }
    await Promise.all(Array.from({ length: 4 }, all))
    expect(hashed).toBe((await sealsOf(network)).length)
    const seals = await sealsOf(network)
    expect(seals.reduce((sum, { first, last }) => sum + last - first + 1, 0)).toBe(head)
    expect(await verified(network)).toMatchObject({ seals: { upTo: head }, findings: [] })
  })

  test('a run that stopped is gone on with where its last seal ends, while events come', async () => {
    const network = await freshNetwork(ledger)
    const traffic = await makeTraffic(ledger, network, random)
    await traffic.run(40)
    expect(await sealNext(connections, network, AT_ONCE)).toEqual({ sealed: 10 })
    const more = traffic.run(60)
    await seal(network)
    await more
    await seal(network)
    const head = await headOf(network)
    expect(await verified(network, { slice: 3 })).toMatchObject({
      seals: { upTo: head, events: head },
      findings: [],
    })
    // A slice is so many events, whatever the seals have: it is what its transaction takes.
    const done = [0]
    const onProgress = ({ what, done: events }: VerifyProgress) => {
      if (what === 'seals') done.push(events)
    }
    await verify({ url: database.serviceUrl, network, seals: true, slice: 25, onProgress })
    const slices = done.map((events, index) => events - (done[index - 1] ?? 0))
    expect(Math.max(...slices), 'more than one seal').toBeGreaterThan(10)
    expect(Math.max(...slices)).toBeLessThanOrEqual(25)
  })

  test('a new era is the next of the chain; what ended the one before is sealed at once', async () => {
    const network = await withEvents(23)
    const before = await headOf(network)
    await ledger.accept(beginEra(1, { network }))
    await ledger.accept(beginEra(3, { network }))
    expect(await seal(network, TEN)).toEqual({ waiting: true })
    expect((await sealsOf(network)).at(-1), 'of the present era more is waited for').toMatchObject({
      first: firstSeqOfEra(1),
    })
    await moveToThePast(database, 2 * TEN.afterMs, network)
    await seal(network, TEN)
    const tail = (await sealsOf(network)).slice(-3)
    expect(tail.map(({ first, last }) => [first, last])).toEqual([
      [10 * Math.floor((before - 1) / 10) + 1, before],
      [firstSeqOfEra(1), firstSeqOfEra(1)],
      [firstSeqOfEra(3), firstSeqOfEra(3)],
    ])
    expect(await verified(network)).toMatchObject({ findings: [], seals: { upTo: firstSeqOfEra(3) } })
  })

  test('stops at a gap, and at the end of a log that is shorter than its seals', async () => {
    const network = await withEvents(40)
    await sealNext(connections, network, AT_ONCE)
    await tamper('delete from ipledger.event where network_id = $1 and seq = 15', [network])
    expect(await seal(network)).toEqual({ stopped: 'events are missing between 11 and 20' })
    await tamper('delete from ipledger.event where network_id = $1 and seq between 11 and 14', [network])
    expect(await seal(network)).toEqual({ stopped: 'after event 10 the log goes on with 16' })
    await tamper('delete from ipledger.event where network_id = $1 and seq > 8', [network])
    expect(await seal(network)).toEqual({ stopped: 'the log ends at 8, and was sealed up to 10' })
    expect(await sealsOf(network)).toHaveLength(1)
  })

  test('the service may add a seal, and change or remove none', async () => {
    const network = await withEvents(10)
    await seal(network)
    for (const statement of [
      'update ipledger.seal set sealed_at = now()',
      'delete from ipledger.seal',
      'truncate ipledger.seal',
    ]) {
      await expect(connections.query(statement)).rejects.toMatchObject({ code: '42501' })
    }
    const forged = (last: string) => `
      insert into ipledger.seal select network_id, first_seq + 500, ${last}, leaves, digest, previous_digest, now()
        from ipledger.seal where network_id = $1 order by first_seq limit 1`
    await expect(connections.query(forged('last_seq + 500'), [network])).rejects.toThrow(
      'seal_digest_is_of_its_leaves',
    )
  })
})

describe('verify --seals', () => {
  test('names the event of which one column was changed, and how it reads now', async () => {
    const network = await withEvents(60)
    await seal(network)
    expect(await said(network)).toEqual([])
    await tamper("update ipledger.event set actor = 'nobody' where network_id = $1 and seq = 33", [network])
    expect(await said(network)).toEqual(['EVENT_ALTERED 33'])
    const [message] = await messages(network)
    expect(message).toMatch(
      new RegExp(`^event ${network}/33 is not what was sealed at 20.*; it reads now: \\["${network}","33",`),
    )
    expect(message).toContain('"nobody"')
    await tamper(
      "update ipledger.event set at = at + interval '1 microsecond' where network_id = $1 and seq in (35, 38, 42)",
      [network],
    )
    expect(await said(network)).toEqual(['EVENT_ALTERED 33', 'EVENT_ALTERED 42'])
    expect((await messages(network))[0]).toContain(`; altered are also 35, 38 of events ${network}/31 to 40;`)
  })

  test('names a run of deleted events over several seals, from the first to the last', async () => {
    const network = await withEvents(60)
    await seal(network)
    await tamper('delete from ipledger.event where network_id = $1 and seq between 18 and 43', [network])
    expect(await said(network)).toEqual(['EVENTS_DELETED 18'])
    expect((await messages(network))[0]).toMatch(
      new RegExp(`^events ${network}/18 to 43 are gone, and were sealed at 20`),
    )
    await tamper('delete from ipledger.event where network_id = $1 and seq in (3, 5)', [network])
    expect(await said(network, { slice: 1 })).toEqual([
      'EVENTS_DELETED 3',
      'EVENTS_DELETED 5',
      'EVENTS_DELETED 18',
    ])
  })

  test('names events that were removed from the end of the log, which no later number misses', async () => {
    const network = await withEvents(40)
    await seal(network)
    const head = await headOf(network)
    await tamper('delete from ipledger.event where network_id = $1 and seq > 25', [network])
    await tamper('delete from ipledger.verify_checkpoint where network_id = $1', [network])
    expect((await messages(network))[0]).toContain(`events ${network}/26 to ${head} are gone`)
  })

  test('tells a seal that was altered from an event that was', async () => {
    const network = await withEvents(60)
    await seal(network)
    const leaves = `set leaves = set_byte(leaves, 20, get_byte(leaves, 20) # 1)`
    // Only its leaves: the digest is that of the events.
    await tamperSeal(`update ipledger.seal ${leaves} where network_id = $1 and first_seq = 21`, [network])
    expect(await said(network)).toEqual(['SEAL_ALTERED 21'])
    expect((await messages(network))[0]).toContain('its leaves are not those that its digest was made of')
    // With its digest: what follows still names that of the events.
    await tamperSeal(
      `update ipledger.seal set digest = ipledger.seal_digest(previous_digest, network_id, first_seq, last_seq, leaves)
        where network_id = $1 and first_seq = 21`,
      [network],
    )
    expect(await said(network)).toEqual(['SEAL_ALTERED 21'])
    expect((await messages(network))[0]).toContain('the next seal names what its events are')
    // Its digest alone.
    await tamperSeal(
      'update ipledger.seal set digest = set_byte(digest, 0, get_byte(digest, 0) # 1) where network_id = $1 and first_seq = 41',
      [network],
    )
    expect(await said(network)).toEqual(['SEAL_ALTERED 21', 'SEAL_ALTERED 41'])
  })

  test('in pieces of one seal each says the same, and comes to an end, where a seal does not name the one before', async () => {
    const network = await withEvents(80)
    await seal(network)
    const altered = 'digest = set_byte(digest, 0, get_byte(digest, 0) # 1)'
    for (const first of [21, 51])
      await tamperSeal(`update ipledger.seal set ${altered} where network_id = $1 and first_seq = $2`, [
        network,
        first,
      ])
    // One is gone, and the next was made to name the one before that.
    await tamper('delete from ipledger.seal where network_id = $1 and (first_seq = 61 or first_seq > 71)', [
      network,
    ])
    await tamperSeal(
      `update ipledger.seal s set previous_digest = b.digest,
              digest = ipledger.seal_digest(b.digest, s.network_id, s.first_seq, s.last_seq, s.leaves)
         from ipledger.seal b where b.network_id = $1 and b.first_seq = 51 and s.network_id = $1 and s.first_seq = 71`,
      [network],
    )
    const whole = (await said(network)).sort()
    expect(whole).toEqual(['SEAL_ALTERED 21', 'SEAL_ALTERED 51', 'SEAL_MISSING 71'])
    const found = new Set<string>()
    await withClient(database.serviceUrl, async (client) => {
      for (let after: number | null = 0, pieces = 0; after !== null; pieces += 1) {
        expect(pieces, 'each goes on').toBeLessThan(20)
        after = await walkSealsPiece(client, network, {
          after,
          slice: 1,
          enough: () => true,
          use: ({ what, seq }) => void found.add(`${what} ${seq}`),
        })
      }
    })
    expect([...found].sort()).toEqual(whole)
  })

  test('names seals that are missing: between others, the first, and the last', async () => {
    const network = await withEvents(60)
    await seal(network)
    const saved = await tamper(
      'delete from ipledger.seal where network_id = $1 and first_seq in (21, 31) returning first_seq',
      [network],
    )
    expect(saved.rowCount).toBe(2)
    expect(await said(network)).toEqual(['SEAL_MISSING 41'])
    expect((await messages(network))[0]).toContain(`no seal covers events ${network}/21 to 40`)
    await tamper('delete from ipledger.seal where network_id = $1 and first_seq <= 40', [network])
    expect((await messages(network))[0]).toContain(`no seal covers events ${network}/1 to 40`)
    await tamper('delete from ipledger.seal where network_id = $1', [network])
    expect(await said(network), 'they may still be sealed').toEqual([])
    await moveToThePast(database, 3_600_000, network)
    expect(await said(network)).toEqual(['SEAL_MISSING 1'])
  })

  test('names a seal missing where an era ended', async () => {
    const network = await withEvents(25)
    await seal(network, TEN)
    await ledger.accept(beginEra(1, { network }))
    await seal(network)
    expect(await said(network)).toEqual([])
    const { first } = (await sealsOf(network)).at(-2)!
    await tamper('delete from ipledger.seal where network_id = $1 and first_seq = $2', [network, first])
    expect(await said(network)).toEqual([`SEAL_MISSING ${first}`])
  })

  test('names a seal that was made anew without what follows', async () => {
    const network = await withEvents(60)
    await seal(network)
    await tamper("update ipledger.event set cause = 'forged' where network_id = $1 and seq = 25", [network])
    await reseal(network, 21)
    expect(await said(network)).toEqual(['SEAL_DOES_NOT_FOLLOW 31'])
  })
})

/** From the seal that begins there: by its own hand or, if all that follow are made anew, as if nothing had been. */
async function reseal(network: string, first: number, all = false): Promise<void> {
  const seals = await sealsOf(network)
  await withClient(database.adminUrl, async (admin) => {
    for (const one of seals.filter((other) => other.first === first || (all && other.first > first))) {
      await admin.query(
        `update ipledger.seal s set leaves = l.leaves, previous_digest = p.digest,
                digest = ipledger.seal_digest(p.digest, $1, s.first_seq, s.last_seq, l.leaves)
           from (select string_agg(ipledger.event_leaf(e), ''::bytea order by e.seq) as leaves from ipledger.event e
                  where e.network_id = $1 and e.seq between $2 and $3) l,
                (select coalesce((select o.digest from ipledger.seal o where o.network_id = $1 and o.first_seq < $2
                   order by o.first_seq desc limit 1), decode($4, 'hex')) as digest) p
          where s.network_id = $1 and s.first_seq = $2`,
        [network, one.first, one.last, NO_DIGEST],
      )
    }
  })
}

describe('verify --against', () => {
  test('finds what was altered and sealed anew, and names the event where the leaves were kept', async () => {
    const network = await withEvents(60)
    await seal(network)
    const kept = await digests(network)
    const withLeaves = await readExported(bytes(await exported(network)))
    expect(await said(network, { against: kept })).toEqual([])
    expect(await said(network, { against: withLeaves })).toEqual([])

    await tamper("update ipledger.event set node = 'elsewhere' where network_id = $1 and seq = 25", [network])
    await reseal(network, 21, true)
    expect(await said(network), 'its own seals know nothing').toEqual([])
    expect(await said(network, { against: kept })).toEqual(['EXPORT_DIFFERS 21'])
    expect(await said(network, { against: withLeaves })).toEqual(['EVENT_ALTERED 25'])
  })

  test('has no use for the seals of the database, nor for their bounds', async () => {
    const network = await withEvents(60)
    await seal(network)
    const kept = await digests(network)
    await tamper('delete from ipledger.seal where network_id = $1', [network])
    await seal(network, { events: 7, afterMs: 0 })
    expect(await said(network, { against: kept })).toEqual([])
    await tamper('delete from ipledger.event where network_id = $1 and seq = 12', [network])
    expect(await said(network, { against: kept })).toContain('EVENTS_DELETED 12')
  })

  test('names what a restore has lost, and a file that was altered', async () => {
    const network = await withEvents(40)
    await seal(network)
    const kept = await digests(network)
    const head = await headOf(network)
    // As from a dump of before: events and seals, and then a new era.
    await tamper('delete from ipledger.seal where network_id = $1 and last_seq > 20', [network])
    await tamper('delete from ipledger.event where network_id = $1 and seq > 26', [network])
    await tamper('delete from ipledger.verify_checkpoint where network_id = $1', [network])
    await tamper(
      `insert into ipledger.event (network_id, seq, type, at, actor, cause, settings)
        values ($1, $2, 'era.begun', now(), 'test', 'test', '{"era": 1, "recovering": true}')`,
      [network, firstSeqOfEra(1)],
    )
    await seal(network)
    expect(await said(network), 'the chain goes on').toEqual([])
    const [lost] = await messages(network, { against: kept })
    expect(lost).toContain(`events ${network}/27 to ${head} are gone`)
    expect(lost).toContain(`a new era began with event ${firstSeqOfEra(1)}, so a restore may have lost them`)

    const forged = kept.map((one) => (one.first === 1 ? { ...one, digest: NO_DIGEST } : one))
    expect(await said(network, { against: forged.slice(0, 2) })).toEqual([
      'EXPORT_DIFFERS 1',
      'EXPORT_ALTERED 11',
    ])
  })
})

describe('an exported file, without a database', () => {
  const check = async (lines: readonly string[], against: readonly Exported[] = []) => {
    const { findings, ...counted } = await checkExport(bytes(lines), against)
    return { ...counted, said: findings.map(({ what, seq }) => `${what} ${seq}`), findings }
  }

  test('holds, whole or in part, in chunks of any size', async () => {
    const network = await withEvents(45)
    const head = await headOf(network)
    await seal(network, TEN)
    const sealed = 10 * Math.floor(head / 10)
    const lines = await exported(network)
    expect(JSON.parse(lines[0]!)).toEqual({
      export: { network, from: 1, to: head, head, columns: EVENT_COLUMNS },
    })
    expect(await check(lines)).toMatchObject({
      network,
      seals: sealed / 10,
      events: sealed,
      unsealed: head - sealed,
      said: [],
    })
    const part = await exported(network, { from: 15, to: 25 })
    expect(JSON.parse(part[0]!)).toMatchObject({ export: { from: 11, to: 25 } })
    expect(await check(part)).toMatchObject({ seals: 2, events: 20, unsealed: 0, said: [] })
    expect(await check(lines, await digests(network))).toMatchObject({ against: sealed / 10, said: [] })
    async function* small() {
      const all = Buffer.from(`${lines.join('\n')}\n`)
      for (let at = 0; at < all.length; at += 777) yield all.subarray(at, at + 777)
    }
    expect((await checkExport(small())).events).toBe(sealed)
  })

  test('names the first line that was altered, lines that are gone, a second one, and seals that do not fit', async () => {
    const network = await withEvents(45)
    await seal(network)
    const lines = await exported(network)
    const at = (seq: number) => lines.findIndex((line) => line.startsWith(`["${network}","${seq}",`))
    const without = (...seqs: readonly number[]) =>
      lines.filter((_, index) => !seqs.some((seq) => index === at(seq)))
    const changed = (index: number, change: (line: string) => string) =>
      lines.map((line, place) => (place === index ? change(line) : line))

    const altered = await check(changed(at(33), (line) => line.replace('"test"', '"Test"')))
    expect(altered.said).toEqual(['EVENT_ALTERED 33'])
    expect(altered.findings[0]!.message).toContain('"Test"')
    const gone = await check(without(8, 9, 10, 11, 12))
    expect(gone.said).toEqual(['EVENTS_DELETED 8'])
    expect(gone.findings[0]!.message).toContain(`events ${network}/8 to 12 are gone`)
    const twice = [
      ...lines.slice(0, at(20)),
      lines[at(19)]!.replace('"test"', '"Test"'),
      ...lines.slice(at(20)),
    ]
    expect((await check(twice)).said).toEqual(['EVENT_ALTERED 19'])
    const behind = [...lines, lines[at(5)]!.replace('"test"', '"Test"')]
    expect((await check(behind)).said).toEqual(['EVENT_ALTERED 5'])

    const sealAt = (first: number) =>
      lines.findIndex((line) => line.startsWith(`{"seal":{"network":"${network}","first":${first},`))
    const flip = (text: string) => (text === '0' ? '1' : '0')
    const digest = changed(sealAt(21), (line) =>
      line.replace(/"digest":"(.)/, (_, one) => `"digest":"${flip(one)}`),
    )
    expect((await check(digest)).said).toEqual(['SEAL_ALTERED 21'])
    const leaves = changed(sealAt(21), (line) =>
      line.replace(/"leaves":"(.)/, (_, one) => `"leaves":"${flip(one)}`),
    )
    expect((await check(leaves)).said).toEqual(['SEAL_ALTERED 21'])
    const previous = changed(sealAt(21), (line) =>
      line.replace(/"previousDigest":"(.)/, (_, one) => `"previousDigest":"${flip(one)}`),
    )
    expect((await check(previous)).said).toContain('SEAL_DOES_NOT_FOLLOW 21')
    const whole = lines.filter(
      (line, index) => index !== sealAt(21) && !/^\["[^"]+","2[1-9]"|^\["[^"]+","30"/.test(line),
    )
    expect((await check(whole)).said).toEqual(['SEAL_MISSING 31'])
  })

  test('forged as a whole it holds, and differs from digests that were kept', async () => {
    const network = await withEvents(45)
    await seal(network)
    const kept = await digests(network)
    await tamper("update ipledger.event set actor = 'forged' where network_id = $1 and seq = 12", [network])
    await reseal(network, 11, true)
    const forged = await exported(network)
    expect((await check(forged)).said).toEqual([])
    expect((await check(forged, kept)).said[0]).toBe('EXPORT_DIFFERS 11')
    await tamper('delete from ipledger.seal where network_id = $1', [network])
    await seal(network, { events: 100, afterMs: 0 })
    expect((await check(await exported(network), kept.slice(1))).said[0]).toBe('EXPORT_DIFFERS 11')
  })

  test.each([
    ['', 'The file is empty.'],
    ['nonsense', 'Line 1 of the file is no JSON.'],
    ['[1,2]', 'Line 1 of the file is neither an event nor a seal.'],
    ['{"seal":{"network":"n"}}', 'Line 1 of the file is no whole seal.'],
    ['{"export":{"network":"a"}}\n["b","1"]', 'The file is of network a, and a line of it of b.'],
  ])('%s: %s', async (text, message) => {
    const failing = checkExport(bytes(text === '' ? [] : [text]))
    await expect(failing).rejects.toThrow(UnreadableExport)
    await expect(checkExport(bytes(text === '' ? [] : [text]))).rejects.toThrow(message)
  })
})
