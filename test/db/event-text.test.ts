/** The text of an event, and so its digest, is the same in TypeScript and SQL, whatever an event holds. */
import { afterAll, expect, test } from 'vitest'
import type { LeaseEvent, LedgerEvent } from '../../src/core/event.ts'
import { digestOf, eventOf, textOf } from '../../src/ledger/event-text.ts'
import { writeStatements } from '../../src/ledger/tables.ts'
import { verifyNetwork } from '../../src/ledger/verify.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { random, walk } from '../support/random-walk.ts'
import { chain, NETWORK, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const WORDS = [
  ...['', 'NULL', 'null', '{}', 'a,b', '{a}', ' x ', 'tab\there', 'line\nbreak', '%s', '$1', 'x'.repeat(300)],
  ...'aäΩ≈😀"\\\'\u007f',
]
const ADDRESSES = [
  ...['0.0.0.1', '10.0.0.1', '255.255.255.254', 'fd00::', 'fd00::1', '2001:db8:0:1:1:1:1:1', '2001:0:0:1::1'],
  ...['2001:db8::1:0:0:1', 'ff00::', '1:2:3:4:5:6:7:8', '64:ff9b::102:304', 'fd00:0:1::'],
]
const TIMES = [
  0, 1, 999, 1_767_225_600_000, 1_767_225_600_001, 1_767_225_600_999, 4_102_444_799_999, 253_402_300_799_999,
]

function randomEvents(seed: number, count: number): readonly LedgerEvent[] {
  const pick = random(seed)
  const one = <T>(values: readonly T[]): T => values[pick(values.length)]!
  const orNull = <T>(value: T): T | null => (pick(3) === 0 ? null : value)
  const last = new Map<string, number>()
  const owner = () => ({
    kind: one(WORDS),
    name: one(WORDS),
    uid: one(WORDS),
    incarnation: one(WORDS),
    interface: one(WORDS),
  })
  return Array.from({ length: count }, (_, index): LedgerEvent => {
    const seq = index + 1 + (index > count / 2 ? 8_190 * 2 ** 40 : 0)
    const address = one(ADDRESSES)
    const header = {
      seq,
      at: one(TIMES),
      actor: one(WORDS),
      cause: one(WORDS),
      requestId: orNull(one(WORDS)),
      traceId: orNull(one(WORDS)),
    }
    if (pick(4) === 0)
      return { ...header, type: 'recovery.extended', details: { source: one(WORDS), node: one(WORDS) } }
    if (pick(4) === 0) return { ...header, type: 'recovery.ended', details: { why: one(WORDS) } }
    if (pick(5) === 0) return { ...header, type: 'attachment.closed', owner: owner(), node: one(WORDS) }
    const event: LeaseEvent = {
      ...header,
      type: 'lease.reserved',
      previous: last.get(address) ?? 0,
      details: orNull({ [one(WORDS)]: [one(WORDS), 1.5, null, { deep: one(WORDS) }] }),
      record: {
        address,
        prefixLength: address.includes(':') ? pick(129) : pick(33),
        poolId: pick(1000),
        state: one(['FREE', 'RESERVED', 'ACTIVE', 'QUARANTINED']),
        seq,
        at: header.at,
        token: pick(seq) + 1,
        owner: orNull(owner()),
        node: one(WORDS),
        labels: pick(2) === 0 ? {} : { [one(WORDS)]: one(WORDS), b: one(WORDS) },
        reservedAt: one(TIMES),
        confirmedAt: orNull(one(TIMES)),
        confirmBy: orNull(one(TIMES)),
        quarantine: orNull({
          reason: 'FOREIGN',
          at: one(TIMES),
          by: one(WORDS),
          node: one(WORDS),
          why: one(WORDS),
        }),
        availableAt: orNull(one(TIMES)),
        ended: orNull(one(['RELEASED', 'REAPED'] as const)),
      },
    }
    last.set(address, seq)
    return event
  })
}

test.each([1, 2, 3])('of random events, seed %i', async (seed) => {
  const network = `random${seed}`
  const events = randomEvents(seed, 400)
  const [insert] = writeStatements(network, {
    events: chain(network, events),
    records: [],
    pools: [],
    network: null,
    sources: [],
    freshness: [],
    sightings: new Map(),
    requests: [],
  })
  await admin.query('insert into ipledger.network_lock (network_id) values ($1)', [network])
  await admin.query(insert!.text, [...insert!.values])
  const { rows } = await admin.query<{ text: string; digest: string; own: string; seq: number }>(
    `select e.seq, ipledger.event_text(row(e.*)::ipledger.event) as text, encode(e.digest, 'hex') as digest,
            encode(sha256(lag(e.digest, 1, decode(repeat('00', 32), 'hex')) over (order by e.seq) || convert_to(ipledger.event_text(row(e.*)::ipledger.event), 'UTF8')), 'hex') as own
       from ipledger.event e where e.network_id = $1 order by e.seq`,
    [network],
  )
  expect(rows.map(({ text }) => text)).toEqual(events.map((event) => textOf(network, event)))
  expect(rows.map(({ own }) => own)).toEqual(rows.map(({ digest }) => digest))
  expect(rows.map(({ text }) => eventOf(text))).toEqual(events)
})

test('of everything that the core writes', async () => {
  const scene = await walk(11, 500)
  const digest = await storeScene(admin, scene)
  const { rows } = await admin.query<{ text: string }>(
    'select ipledger.event_text(row(e.*)::ipledger.event) as text from ipledger.event e where e.network_id = $1 order by e.seq',
    [NETWORK],
  )
  expect(rows.map(({ text }) => eventOf(text))).toEqual(scene.events)
  expect(rows.reduce((before, { text }) => digestOf(before, text), '0'.repeat(64))).toBe(digest)
  expect((await verifyNetwork(admin, NETWORK, { from: 0 })).findings).toEqual([])
})
