/** Lists of leases in a network whose leases are more than one look takes: what matches is found, and the end is known. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { type AddressRecord, BLANK, type LeaseEvent } from '../../src/core/event.ts'
import { EVERY_LEASE, type LeaseFilter } from '../../src/ledger/read-leases.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { writeStatements } from '../../src/ledger/tables.ts'
import { connect, createPool } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { chain } from '../support/stored-scene.ts'

const LEASES = 25_000
const database = await useTestDatabase()
const pool = createPool({ url: database.serviceUrl, applicationName: 'test', max: 2 })
const reads = new Reads(pool)
afterAll(() => pool.end())

const addressOf = (index: number) => `10.0.${index >> 8}.${index & 255}`

/** The first three are quarantined, on node `n1` and containers; the rest is active. */
function eventAt(index: number): LeaseEvent {
  const seq = index + 1
  const isOdd = index < 3
  const owner = {
    kind: isOdd ? 'container' : 'vm',
    name: `w${seq}`,
    uid: `w${seq}`,
    incarnation: '',
    interface: '',
  }
  const record: AddressRecord = {
    ...BLANK,
    address: addressOf(index),
    prefixLength: 32,
    poolId: 1,
    state: isOdd ? 'QUARANTINED' : 'ACTIVE',
    seq,
    at: seq,
    token: seq,
    owner,
    node: isOdd ? 'n1' : 'n2',
    reservedAt: seq,
    confirmedAt: seq,
    quarantine: isOdd ? { reason: 'OPERATOR', at: seq, by: 'x', node: '', why: 'x' } : null,
  }
  const header = { seq, at: seq, actor: 'x', cause: 'x', requestId: null, traceId: null }
  return { ...header, type: 'lease.reserved', record, previous: 0, details: null }
}

beforeAll(async () => {
  const events = Array.from({ length: LEASES }, (_, index) => eventAt(index))
  const nothing = { pools: [], network: null, sources: [], freshness: [], sightings: new Map(), requests: [] }
  const write = { ...nothing, events: chain('net', events), records: events.map(({ record }) => record) }
  const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
  await admin.query(`insert into ipledger.network_lock (network_id) values ('net')`)
  for (const { text, values } of writeStatements('net', write)) await admin.query(text, [...values])
  await admin.end()
})

const FILTERS: readonly (readonly [string, Partial<LeaseFilter>])[] = [
  ['a state', { states: ['QUARANTINED'] }],
  ['a reason', { quarantineReasons: ['OPERATOR'] }],
  ['a node', { node: 'n1' }],
  ['an owner kind', { ownerKind: 'container' }],
]

test.each(FILTERS)('by %s: the only page has all that match, and is the last', async (_, filter) => {
  const page = await reads.leases('net', { ...EVERY_LEASE, ...filter }, { after: null, size: 100 })
  expect(page!.leases.map(({ address }) => address)).toEqual([0, 1, 2].map(addressOf))
  expect(page!.next).toBeNull()
})

test('a page is full, or at the end, or a second old', async () => {
  const { next } = (await reads.leases(
    'net',
    { ...EVERY_LEASE, states: ['QUARANTINED'] },
    { after: null, size: 2 },
  ))!
  expect(next).toBe(addressOf(1))
  let now = 0
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += 1_000))
  onTestFinished(() => clock.mockRestore())
  const filter = { ...EVERY_LEASE, ownerKind: 'container' }
  const places: (string | null)[] = [addressOf(2)]
  while (places.at(-1) !== null) {
    const page = (await reads.leases('net', filter, { after: places.at(-1)!, size: 9 }))!
    expect(page.leases).toEqual([])
    places.push(page.next)
  }
  expect(places).toEqual([addressOf(2), addressOf(10_002), addressOf(20_002), null])
})
