/** What `verify` finds: a log that was touched, and tables that are not its fold. As superuser, who alone could do either. */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { rebuildNetwork } from '../../src/ledger/rebuild.ts'
import { type Finding, type VerifyOptions, verifyNetwork } from '../../src/ledger/verify.ts'
import { connect } from '../../src/postgres/connect.ts'
import { cannot } from '../support/citus.ts'
import { useTestDatabase } from '../support/database.ts'
import { walk } from '../support/random-walk.ts'
import { NETWORK, storeScene } from '../support/stored-scene.ts'

const database = await useTestDatabase()
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

/** The first with an era that has ended, and something listed. */
let scene = await walk(1, 500)
const isFull = () => scene.image.sightings.size > 0 && scene.events.some(({ type }) => type === 'era.begun')
for (let seed = 2; !isFull(); seed += 1) scene = await walk(seed, 500)
const leases = scene.events.filter((event) => 'record' in event)
/** In the middle of a chain of the first era: it has a predecessor and a successor. */
const middle = leases.find(
  ({ seq, previous, record }) =>
    previous > 0 &&
    record.state !== 'ACTIVE' &&
    seq < 2 ** 40 &&
    leases.some((other) => other.previous === seq && other.seq > seq + 1),
)!
const head = scene.image.head
let digest = ''
beforeAll(async () => {
  digest = await storeScene(admin, scene)
})

const ALTER = (change: string, seq: number | string) =>
  `update ipledger.event set ${change} where seq = ${seq}`
/** The digest that the event would have, made again by whoever altered it. */
const CHAINED = `digest = sha256((select p.digest from ipledger.event p where p.network_id = '${NETWORK}' and p.seq = e.seq - 1)
  || convert_to(ipledger.event_text(row(e.*)::ipledger.event), 'UTF8'))`

/** What is found after these statements, which are taken back. */
async function findingsAfter(statements: string, options: VerifyOptions = { from: 0 }) {
  await admin.query('begin')
  try {
    await admin.query(statements)
    const { findings } = await verifyNetwork(admin, NETWORK, options)
    return findings
  } finally {
    await admin.query('rollback')
  }
}
const codes = (findings: readonly Finding[]) =>
  findings.map(({ what, seq }) => (seq === null ? what : `${what} ${seq}`))
const found = async (...asked: Parameters<typeof findingsAfter>) => codes(await findingsAfter(...asked))

test('finds nothing in what was written, and answers with an anchor', async () => {
  const verified = await verifyNetwork(admin, NETWORK, { from: 0, against: { seq: head, digest } })
  const found = { complete: true, findings: [], omitted: 0 }
  expect(verified).toEqual({ ...found, fromSeq: 0, verifiedSeq: head, head, digest })
})

describe('the log', () => {
  test.each([
    ['owner', `owner_name = 'somebody else'`],
    ['time', `reserved_at = '2020-01-01Z'`],
    ['state', `state = 'ACTIVE', ended = null`],
    ['details', `details = '{"seen":1}'`],
    ['address', `address = '10.0.0.200'`],
    ['actor', `actor = ''`],
    ['null', `trace_id = ''`],
    ['digest', `digest = sha256('x')`],
  ])('an altered event is named: its %s', async (_, change) => {
    expect(await found(ALTER(change, middle.seq))).toContain(`EVENT_ALTERED ${middle.seq}`)
  })

  test.skipIf(cannot('tamper'))('an event altered with its digest is named by the next one', async () => {
    const statements = `${ALTER(`owner_name = 'x'`, middle.seq)}; update ipledger.event e set ${CHAINED} where e.seq = ${middle.seq}`
    expect(await found(statements)).toEqual([`EVENT_ALTERED ${middle.seq + 1}`])
  })

  test('a removed event is named', async () => {
    const findings = await findingsAfter(`delete from ipledger.event where seq = ${middle.seq}`)
    expect(codes(findings)).toContain(`EVENT_MISSING ${middle.seq + 1}`)
    const message = `numbers ${middle.seq} to ${middle.seq} are missing`
    expect(findings).toContainEqual(expect.objectContaining({ what: 'EVENT_MISSING', message }))
    const successor = leases.find(({ previous }) => previous === middle.seq)!
    expect(codes(findings)).toContain(`CHAIN_BROKEN ${successor.seq}`)
  })

  test('the last event of an era that has ended is missed', async () => {
    const begun = scene.events.find(({ type }) => type === 'era.begun')!
    expect(begun).toBeDefined()
    const last = scene.events.at(scene.events.indexOf(begun) - 1)!
    const findings = await findingsAfter(`delete from ipledger.event where seq = ${last.seq}`)
    const message = `numbers ${last.seq} to ${last.seq} are missing`
    expect(findings[0]).toMatchObject({ what: 'EVENT_MISSING', seq: begun.seq, message })
  })

  test.skipIf(cannot('tamper'))('an inserted event is named', async () => {
    const insert = (change: object) =>
      `insert into ipledger.event select (jsonb_populate_record(e, '${JSON.stringify({ seq: head + 1, ...change })}')).* from ipledger.event e where seq = ${middle.seq}`
    const other = { address: '10.0.0.77', previous: 0, at: new Date(scene.image.at).toISOString() }
    expect(await found(insert(other))).toContain(`EVENT_ALTERED ${head + 1}`)
    // With a digest that follows, what it says is illegal.
    const chained = (change: object) =>
      found(`${insert(change)}; update ipledger.event e set ${CHAINED} where e.seq = ${head + 1}`)
    const illegal = { ...other, type: 'lease.confirmed', state: 'ACTIVE', ended: null }
    expect(await chained(illegal)).toContain(`EVENT_ILLEGAL ${head + 1}`)
    expect(await chained({ ...other, previous: head })).toContain(`CHAIN_BROKEN ${head + 1}`)
    const early = { address: null, previous: null, type: 'recovery.ended', at: '2020-01-01Z' }
    expect(await chained(early)).toContain(`EVENT_ILLEGAL ${head + 1}`)
  })

  test('a missing tail is found by an anchor, and by what was verified before', async () => {
    const cut = `delete from ipledger.event where seq >= ${leases.at(-1)!.seq}`
    const rebuilt = async (options: VerifyOptions, forget: string) => {
      await admin.query(
        `create schema if not exists kept; create table kept.event as select * from ipledger.event; ${cut}; ${forget}`,
      )
      try {
        await rebuildNetwork(admin, NETWORK)
        return codes((await verifyNetwork(admin, NETWORK, options)).findings)
      } finally {
        await admin.query(
          `insert into ipledger.event select * from kept.event on conflict do nothing; drop table kept.event`,
        )
        await rebuildNetwork(admin, NETWORK)
        await verifyNetwork(admin, NETWORK, { from: 0 })
        await verifyNetwork(admin, NETWORK, { from: 0 })
      }
    }
    await verifyNetwork(admin, NETWORK, { from: 0 })
    const forget = 'delete from ipledger.verification'
    const anchored = { from: 0, against: { seq: head, digest } }
    expect(await rebuilt({ from: 0 }, forget)).toEqual([])
    expect(await rebuilt(anchored, forget)).toEqual([`LOG_SHORTER ${head}`])
    expect(await rebuilt({ from: 0 }, 'select 1')).toEqual([`LOG_SHORTER ${head}`])
  })

  test('a log that was made anew as a whole is found by an anchor', async () => {
    const against = { seq: middle.seq, digest: 'ab'.repeat(32) }
    expect(await found('select 1', { from: 0, against })).toEqual([`EVENT_ALTERED ${middle.seq}`])
    const removed = `delete from ipledger.event where seq = ${middle.seq}`
    expect(await found(removed, { from: middle.seq, against })).toContain(`EVENT_MISSING ${middle.seq}`)
  })

  test('a constraint that is gone is missed', async () => {
    const [one, ...more] = await findingsAfter(
      'alter table ipledger.event drop constraint history_of_an_address_never_forks',
    )
    expect(one).toMatchObject({ what: 'CHAIN_BROKEN', message: expect.stringContaining('never_forks') })
    expect(more).toEqual([])
  })
})

describe('the tables', () => {
  const lease = scene.image.records.values().next().value!
  const source = [...scene.image.sources.keys()][0]!
  const CHANGES = {
    LEASE_DIFFERS: [
      `update ipledger.lease set state = 'FREE' where address = '${middle.record.address}' and state <> 'FREE'; update ipledger.lease set pool_id = 1 where address = '${middle.record.address}'`,
      `update ipledger.lease set confirm_by = now() where address = '${lease.address}'`,
      `update ipledger.lease set seq = ${middle.previous} where address = '${middle.record.address}'`,
      `delete from ipledger.lease where address = '${lease.address}'`,
      `insert into ipledger.lease select network_id, '10.0.0.250', seq, pool_id, state, node from ipledger.lease limit 1`,
    ],
    POOL_DIFFERS: [
      `update ipledger.pool set name = 'other' where name = 'pool'`,
      `update ipledger.pool set settings = '{}' where name = 'pool'`,
      `delete from ipledger.pool where name = 'pool'`,
      `insert into ipledger.pool select network_id, 5, 'new', '10.9.0.0/24', 32, settings, version, created_at, updated_at from ipledger.pool limit 1`,
    ],
    NETWORK_DIFFERS: [
      `update ipledger.network set era = 17`,
      `update ipledger.network set holds = '{"CLOCK":{}}'`,
      `delete from ipledger.network`,
      `delete from ipledger.network_lock`,
    ],
    SOURCE_DIFFERS: [
      `update ipledger.source set state = 'REGISTERED', enabled_seq = null where source_id = '${source}'`,
      `update ipledger.source set epoch_head = 1 where source_id = '${source}'`,
      `delete from ipledger.source where source_id = '${source}'`,
      `insert into ipledger.source select network_id, 'zzz', declaration, state, version, registered_at, registered_by from ipledger.source limit 1`,
    ],
    SIGHTING_DIFFERS: [
      `delete from ipledger.sighting where appeared_seq = (select max(appeared_seq) from ipledger.sighting)`,
      `update ipledger.sighting set terminal_seq = 4, state = 'terminal' where appeared_seq = (select max(appeared_seq) from ipledger.sighting)`,
      `insert into ipledger.sighting select network_id, '10.0.0.250', source_id, owner_kind, owner_name, owner_uid, owner_incarnation, owner_interface, node, state, appeared_seq, appeared_at, appeared_head from ipledger.sighting limit 1`,
    ],
  }
  const cases = Object.entries(CHANGES).flatMap(([code, all]) => all.map((one) => [code, one] as const))
  test.each(cases)('%s: %s', async (code, statements) => {
    const findings = await findingsAfter(statements)
    // Whether a sighting that has vanished is kept depends on leases and pools.
    const whats = findings.map(({ what }) => what).filter((one) => one === code || one !== 'SIGHTING_DIFFERS')
    expect(new Set(whats)).toEqual(new Set([code]))
    expect(findings[0]!.message.length).toBeGreaterThan(20)
  })

  test('what was found stays known until a whole look finds it no more, and rebuild repairs it', async () => {
    const view = `select what, address from ipledger_audit.verify_findings where network = '${NETWORK}'`
    const kept = async () => (await admin.query(view)).rows
    await admin.query(
      `update ipledger.lease set pool_id = 1 where address = '${lease.address}'; delete from ipledger.pool; delete from ipledger.network_lock`,
    )
    await verifyNetwork(admin, NETWORK, { from: 0 })
    expect((await kept()).map(({ what }) => what)).toEqual(
      expect.arrayContaining(['LEASE_DIFFERS', 'NETWORK_DIFFERS', 'POOL_DIFFERS']),
    )
    await rebuildNetwork(admin, NETWORK)
    const begun = await verifyNetwork(admin, NETWORK, { budgetMs: 0 })
    expect(begun.complete).toBe(false)
    expect((await kept()).length).toBeGreaterThan(0)
    expect((await verifyNetwork(admin, NETWORK, { from: 0 })).findings).toEqual([])
    expect(await kept()).toEqual([])
  })
})

test('goes on where the budget ended, with the login of the service', async () => {
  const service = await connect({ url: database.serviceUrl, applicationName: 'test' })
  onTestFinished(() => service.end())
  await admin.query('delete from ipledger.verification')
  const from: number[] = []
  for (let calls = 0; calls < 50; calls++) {
    const verified = await verifyNetwork(service, NETWORK, { budgetMs: 1 })
    const { complete, fromSeq, findings, verifiedSeq } = verified
    expect(findings).toEqual([])
    from.push(fromSeq)
    if (complete) {
      expect(verifiedSeq).toBe(head)
      break
    }
  }
  expect(from.length).toBeGreaterThan(3)
  expect(from[0]).toBe(0)
  expect(from.at(-1)).toBe(head)
  const done = 'select finished_at >= started_at as done from ipledger.verification'
  expect((await admin.query(done)).rows).toEqual([{ done: true }])
  const limit = "select current_setting('statement_timeout') as value"
  expect((await service.query(limit)).rows).toEqual([{ value: '5s' }])
  // The next one begins anew.
  expect((await verifyNetwork(service, NETWORK)).fromSeq).toBe(0)
})

test('a network that does not exist has nothing wrong with it', async () => {
  const verified = await verifyNetwork(admin, 'nowhere', { from: 0 })
  expect(verified).toMatchObject({ complete: true, head: 0, findings: [] })
  expect(await rebuildNetwork(admin, 'nowhere')).toBeNull()
})
