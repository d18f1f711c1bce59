/** Verification without anybody asking: what it finds, where it says so, and how it goes on wherever it was stopped. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { leaseId } from '../../src/core/lease.ts'
import { createProjectTenure } from '../../src/jobs/project-tenure.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { createVerifyLog, type VerifyLogOptions } from '../../src/jobs/verify-log.ts'
import { makeCheckpoint } from '../../src/ledger/checkpoints.ts'
import { rebuildTenure } from '../../src/ledger/rebuild-tenure.ts'
import { sealNext } from '../../src/ledger/seals.ts'
import { resetTenure } from '../../src/ledger/tenure.ts'
import { lookAtAll, lookAtRecent } from '../../src/ledger/verification.ts'
import { verify } from '../../src/ledger/verify.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { createObserved } from '../../src/observed.ts'
import { connect } from '../../src/postgres/connect.ts'
import { addGauges, createLogger } from '../../src/telemetry.ts'
import { startTelemetry } from '../../src/telemetry-export.ts'
import { useAuditor } from '../support/auditor.ts'
import { claim, reserve, updateLabels } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { settled } from '../support/intake.ts'
import { freshNetwork } from '../support/ledger.ts'
import { seededRandom } from '../support/random.ts'
import { readPage } from '../support/scraped.ts'
import { makeTraffic } from '../support/traffic.ts'
import { HOUR, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const audit = await useAuditor(database)
const random = seededRandom()
console.log(`seed ${random.seed}`)
const telemetry = await startTelemetry(
  readConfig({ IPLEDGER_METRICS: 'yes' }).telemetry,
  createLogger('silent'),
)

afterAll(() => expectVerified(database, { full: true }))
beforeAll(() => {
  return () => telemetry.close()
})

const said: unknown[] = []
const log = Object.assign(createLogger('silent'), { error: (...words: unknown[]) => void said.push(words) })

async function run(network: string, options: VerifyLogOptions = {}) {
  said.length = 0
  const within = {
    query: (text: string, values?: unknown[]) =>
      text.startsWith('select network_id from ipledger.network ')
        ? { rows: [{ network_id: network }] }
        : truth.connections.query(text, values),
    connect: () => truth.connections.connect(),
  } as unknown as typeof truth.connections
  return createVerifyLog(options)(truth.context({ database: within, log }))
}

/** The smallest piece of the look at all of it. */
const service = await connect({ url: database.serviceUrl, applicationName: 'test' })
afterAll(() => service.end())
const lookOnce = (network: string, slice: number, signal?: AbortSignal) =>
  lookAtAll(service, network, { by: 'test', workMs: 0, slice, signal })

const tamper = (text: string, ...values: readonly unknown[]) =>
  withClient(database.adminUrl, (admin) => admin.query(text, [...values]))

/** As Prometheus would read it now. */
async function gauge(name: string, network: string): Promise<number | undefined> {
  const end = addGauges(createObserved(truth.connections, createLogger('silent')).readings)
  try {
    return readPage(await telemetry.page!()).value(name, { network })
  } finally {
    end()
  }
}

type Standing = Readonly<{
  in_order_up_to: number | null
  looked_up_to: number | null
  all_looked_at: number | null
  all_events: number | null
  now_at: string
  now_events: number
}>

async function standing(network: string): Promise<Standing> {
  const rows = await audit.ask<Standing>('select * from verification where network = $1', network)
  return rows[0]!
}

const headOf = async (network: string) =>
  (
    await truth.rows<{ seq: number }>(
      'select max(seq) as seq from ipledger.event where network_id = $1',
      network,
    )
  )[0]!.seq

type Found = Readonly<{ what: string; address: string | null; message: string }>
const findings = (network: string) =>
  audit.ask<Found>(
    'select what, host(address) as address, message from verify_findings where network = $1 order by what, address',
    network,
  )

async function withTraffic(commands = 200) {
  const network = await freshNetwork(truth.ledger)
  const traffic = await makeTraffic(truth.ledger, network, random)
  await traffic.run(commands)
  return { network, traffic }
}

test('books in order: all of them are looked at once, then only what is new, until it is time again', async () => {
  const { network, traffic } = await withTraffic()
  const head = await headOf(network)
  // It begins where the log ends; what was before is part of all of it.
  expect(await run(network)).toEqual({ verified: head, found: 0 })
  expect(await standing(network)).toMatchObject({ in_order_up_to: head, all_events: head, now_at: '' })
  await traffic.run(100)
  const later = await headOf(network)
  expect(await run(network)).toEqual({ verified: later - head, found: 0 })
  expect(await standing(network)).toMatchObject({
    in_order_up_to: later,
    looked_up_to: later,
    all_events: head,
  })
  expect(await gauge('ipledger_verify_differences', network)).toBe(0)
  expect(await gauge('ipledger_verify_age_seconds', network)).toBeLessThan(60)
  expect(await run(network)).toEqual({ verified: 0, found: 0 })
  await truth.past(network, HOUR)
  expect(await run(network)).toEqual({ verified: later, found: 0 })
  expect(said).toEqual([])
})

test('a lease row that was altered long after its event is found, said once, shown everywhere, and over when it is repaired', async () => {
  const network = await truth.network()
  const { address, leaseId } = await truth.lease(network, workload('a'))
  await truth.lease(network, workload('b'))
  await run(network)
  expect(await findings(network)).toEqual([])
  const inOrder = (await standing(network)).looked_up_to
  await tamper(
    `update ipledger.lease set owner_name = 'default/thief' where network_id = $1 and address = $2`,
    network,
    address,
  )
  // The event is no new one: the look at all of it must find it.
  expect(await run(network)).toMatchObject({ found: 0 })
  await truth.past(network, HOUR)
  // The altered row keeps its own times, but `past` moved them all alike.
  expect(await run(network)).toMatchObject({ found: 1 })
  const found = {
    what: 'LEASE_DIFFERS',
    address,
    message: expect.stringContaining(`the lease row of ${address} differs from event`),
  }
  expect(await findings(network)).toEqual([found])
  expect(said).toEqual([
    [
      expect.objectContaining({
        network,
        what: 'LEASE_DIFFERS',
        address,
        leaseId,
        expected: 'owner_name=default/web-a',
        found: 'owner_name=default/thief',
      }),
      expect.stringContaining('the books differ: network'),
    ],
  ])
  expect(await gauge('ipledger_verify_differences', network)).toBe(1)
  const { stuck } = settled(
    await listStuck(truth.connections, { network, codes: ['BOOKS_DIFFER'], after: null, limit: 10 }),
  )
  expect(stuck.map(({ text }) => text)).toEqual([expect.stringContaining('the lease row of')])

  // What is new is looked at all the same; that everything is in order is not said of it.
  await truth.lease(network, workload('c'))
  expect(await run(network)).toMatchObject({ found: 0 })
  expect(said).toEqual([])
  expect(await standing(network)).toMatchObject({
    looked_up_to: inOrder! + 1,
    in_order_up_to: inOrder,
  })
  await tamper(
    `update ipledger.lease set owner_name = 'default/web-a' where network_id = $1 and address = $2`,
    network,
    address,
  )
  await run(network)
  expect(await findings(network)).toEqual([])
  await run(network)
  expect(await gauge('ipledger_verify_differences', network)).toBe(0)
  expect(await standing(network)).toMatchObject({ in_order_up_to: inOrder! + 1 })
})

test('what a person finds with "verify --full" is written down, and what he misses is over', async () => {
  const network = await truth.network()
  const { address } = await truth.lease(network, workload('a'))
  const look = () => verify({ url: database.serviceUrl, network, full: true })
  const rename = (name: string) =>
    tamper(
      `update ipledger.lease set node = $3 where network_id = $1 and address = $2`,
      network,
      address,
      name,
    )
  await rename('elsewhere')
  await look()
  expect(await findings(network)).toMatchObject([{ what: 'LEASE_DIFFERS', address }])
  await rename('')
  await verify({ url: database.serviceUrl, network })
  expect(await findings(network)).toHaveLength(1)
  await look()
  expect(await findings(network)).toEqual([])
})

test('an altered row of a new event is found with it, and so is an event that is gone', async () => {
  const network = await truth.network()
  await run(network)
  const { address } = await truth.lease(network, workload('a'))
  await truth.lease(network, workload('b'))
  const rename = (name: string) =>
    tamper(
      `update ipledger.lease set node = $3 where network_id = $1 and address = $2`,
      network,
      address,
      name,
    )
  await rename('elsewhere')
  const head = await headOf(network)
  // With it the look at all of it begins anew.
  expect(await run(network)).toMatchObject({ verified: 2 + head, found: 1 })
  expect(await findings(network)).toMatchObject([{ what: 'LEASE_DIFFERS', address }])
  await rename('')
  await run(network)
  expect(await findings(network)).toEqual([])

  const last = await headOf(network)
  await truth.lease(network, workload('c'))
  const third = await truth.lease(network, workload('d'))
  await truth.lease(network, workload('e'))
  await tamper(
    'create table kept as select * from ipledger.event where network_id = $1 and seq = $2',
    network,
    third.version,
  )
  await tamper('delete from ipledger.event where network_id = $1 and seq = $2', network, third.version)
  await run(network)
  expect((await findings(network)).map(({ what }) => what)).toEqual([
    'EVENT_MISSING',
    'LEASE_UNEXPLAINED',
    'UNTOUCHED_MISSING',
  ])
  expect((await standing(network)).in_order_up_to).toBe(last)
  await tamper('insert into ipledger.event select * from kept')
  await run(network)
  await run(network)
  expect(await findings(network)).toEqual([])
})

test('a log that ends earlier than before is said until a person has looked at all of it', async () => {
  const network = await truth.network()
  await truth.lease(network, workload('a'))
  await run(network)
  await tamper(`update ipledger.verification set seq = seq + 5 where network_id = $1`, network)
  await run(network)
  await run(network)
  expect(await findings(network)).toMatchObject([{ what: 'LOG_SHORTER_THAN_BEFORE' }])
  for (let n = 0; n < 6; n += 1) await truth.lease(network, workload(`more-${n}`))
  await run(network)
  await truth.past(network, HOUR)
  await run(network)
  expect(await findings(network)).toMatchObject([{ what: 'LOG_SHORTER_THAN_BEFORE' }])
  await verify({ url: database.serviceUrl, network, full: true })
  expect(await findings(network)).toEqual([])
})

test.each([4, 20])(
  'in pieces of slices of %i rows everything is looked at once, and each difference found',
  async (slice) => {
    const { network } = await withTraffic(150)
    // An address whose events are more than a slice, or some.
    const { fencingToken: token } = await truth.ledger.take(
      reserve({ network, owner: workload('changed'), claims: [claim({ pool: 'slow' })] }),
    )
    for (let n = 0; n < 30; n += 1)
      await truth.ledger.accept(updateLabels(token, { n: String(n) }, { network }))
    const head = await headOf(network)
    const pieces = async () => {
      let [looked, events] = [0, 0]
      for (let more = true; more; looked += 1) {
        const piece = (await lookOnce(network, slice))!
        events += piece.events
        more = piece.more
      }
      return { looked, events }
    }
    const whole = await pieces()
    expect(whole.events).toBe(head)
    expect(whole.looked).toBeGreaterThan(head / slice)
    expect(await findings(network)).toEqual([])
    expect(await lookOnce(network, slice)).toBeNull()

    await truth.past(network, HOUR)
    await tamper(`update ipledger.lease set node = 'elsewhere-' || node where network_id = $1`, network)
    const expected = await truth.rows<{ address: string }>(
      `select host(address) as address from ipledger.lease where network_id = $1 and node like 'elsewhere-%' order by address`,
      network,
    )
    expect(expected.length).toBeGreaterThan(0)
    expect(await pieces()).toMatchObject({ events: head })
    expect((await findings(network)).map(({ address }) => address).sort()).toEqual(
      expected.map(({ address }) => address).sort(),
    )
    await tamper(
      `update ipledger.lease set node = substr(node, 11) where network_id = $1 and node like 'elsewhere-%'`,
      network,
    )
    await verify({ url: database.serviceUrl, network, full: true })
  },
)

test('two at once do the work of one', async () => {
  const { network, traffic } = await withTraffic(150)
  const head = await headOf(network)
  const both = (options: VerifyLogOptions) =>
    Promise.all([run(network, options), run(network, options), run(network, options)])
  const sum = (all: readonly Readonly<Record<string, number>>[]) =>
    all.reduce((total, { verified }) => total + verified!, 0)
  let verified = 0
  while ((await standing(network)).all_looked_at === null)
    verified += sum(await both({ pieceMs: 0, slice: 50 }))
  expect(verified).toBe(head)
  await traffic.run(200)
  const later = await headOf(network)
  expect(sum(await both({ slice: 20 }))).toBe(later - head)
  expect(await standing(network)).toMatchObject({ in_order_up_to: later })
})

test('the piece of a worker that was killed is done by the next, once it is taken for dead', async () => {
  const { network } = await withTraffic(300)
  const head = await headOf(network)
  expect(await lookOnce(network, 50)).toMatchObject({ events: 50, more: true })
  await tamper(
    `update ipledger.verification set claimed_by = 'killed', claimed_until = clock_timestamp() + interval '1 minute' where network_id = $1`,
    network,
  )
  expect(await run(network)).toEqual({ verified: 0, found: 0 })
  expect(await standing(network)).toMatchObject({ now_at: 'numbers', now_events: 50 })
  await tamper(`update ipledger.verification set claimed_until = now() where network_id = $1`, network)
  expect(await run(network)).toEqual({ verified: head - 50, found: 0 })
  expect(await standing(network)).toMatchObject({ all_events: head })
})

test('a run ends when its time is over or the worker stops, and leaves nothing claimed', async () => {
  const { network } = await withTraffic(100)
  const stopped = new AbortController()
  stopped.abort()
  await createVerifyLog()(truth.context({ log, signal: stopped.signal }))
  expect((await standing(network)).looked_up_to).toBeNull()
  await run(network, { slotMs: 0 })
  expect((await standing(network)).looked_up_to).toBeNull()
  await expect(lookOnce(network, 10, stopped.signal)).rejects.toThrow('aborted')
  expect(await run(network)).toMatchObject({ verified: await headOf(network) })
})

test('a network that is being rebuilt is left alone', async () => {
  const network = await truth.network()
  await tamper(`update ipledger.network set state = 'REBUILDING' where network_id = $1`, network)
  await run(network)
  expect((await standing(network)).looked_up_to).toBeNull()
  await tamper(`update ipledger.network set state = 'READY' where network_id = $1`, network)
  await run(network)
  expect((await standing(network)).all_looked_at).not.toBeNull()
})

test('a network that cannot be read does not stop the others, and the run says that it failed', async () => {
  const [one, other] = [await truth.network(), await truth.network()]
  let connections = 0
  const refusesOnce = Object.create(truth.connections, {
    query: {
      value: (text: string, values?: unknown[]) =>
        text.startsWith('select network_id from ipledger.network ')
          ? { rows: [{ network_id: one }, { network_id: other }] }
          : truth.connections.query(text, values),
    },
    connect: {
      value: () => {
        connections += 1
        return connections === 1 ? Promise.reject(new Error('no route')) : truth.connections.connect()
      },
    },
  })
  said.length = 0
  await expect(createVerifyLog()(truth.context({ database: refusesOnce, log }))).rejects.toThrow('no route')
  expect((await standing(other)).looked_up_to).toBe(await headOf(other))
  expect(said).toMatchObject([[{ network: one }, 'a network could not be verified']])
})

test('while new events are still to be looked at, the checkpoint says how old those are that were', async () => {
  const network = await truth.network()
  await run(network)
  await truth.past(network, HOUR)
  for (let n = 0; n < 4; n += 1) await truth.lease(network, workload(n))
  await truth.past(network, HOUR)
  const look = () => lookAtRecent(service, network, { by: 'test', workMs: 0, slice: 2 })
  const age = async () => {
    const [row] = await audit.ask<{ age: number }>(
      'select extract(epoch from now() - in_order_at)::float8 as age from verification where network = $1',
      network,
    )
    return row!.age
  }
  expect(await look()).toMatchObject({ events: 2, more: true })
  expect(await age()).toBeGreaterThan(3_600)
  expect(await look()).toMatchObject({ events: 2, more: false })
  expect(await age()).toBeLessThan(60)
})

test('it is in the schedule, every minute', () => {
  expect(createSchedule()['verify-log']).toEqual({ everyMinutes: 1, run: expect.any(Function) })
})

/** The next look at all of it is due. Not `past`: events at other times are other events than those that were sealed. */
async function lookAgain(network: string): Promise<void> {
  await tamper(`update ipledger.verification set begins_at = now() where network_id = $1`, network)
  await run(network)
}

const sealAll = async (network: string) => {
  while ('sealed' in (await sealNext(truth.connections, network, { events: 4, afterMs: 0 })));
}

const codes = async (network: string) => (await findings(network)).map(({ what }) => what)

/** Everything but what has found it out is as it was. */
async function mended(network: string, rows: string, mend: () => Promise<unknown>): Promise<void> {
  expect(await codes(network), rows).not.toEqual([])
  await mend()
  await lookAgain(network)
  expect(await findings(network), rows).toEqual([])
}

test('a closed tenure that was put over one that is held still, in a stretch that was found in order once, is found and named', async () => {
  const network = await truth.network()
  const one = await truth.lease(network, workload('one'))
  // Its second event: no tenure begins there.
  const two = await truth.lease(network, workload('two'))
  await truth.ledger.accept(updateLabels(two.fencingToken, { a: 'b' }, { network }))
  await truth.lease(network, workload('three'))
  await truth.run(createProjectTenure({ slotMs: 0 }))
  await verify({ url: database.serviceUrl, network })
  await run(network)
  expect(await findings(network)).toEqual([])
  const first = two.fencingToken + 1
  // The constraints are in place, and let it pass.
  await tamper(
    `insert into ipledger.tenure (network_id, first_seq, fencing_token, pool_id, address, span, owner_kind, owner_name, owner_uid,
        owner_uid_named, owner_incarnation, owner_interface, began_at, ended_at, began_as, ended_as)
      select network_id, $2::bigint, $2::bigint, pool_id, address, int8range($2::bigint, $2::bigint + 1), owner_kind, 'mallory', 'mallory', true, '', 'eth0',
             now(), now(), 'lease.reserved/Reserve', 'lease.released/Release'
        from ipledger.tenure where network_id = $1 and address = $3`,
    network,
    first,
    one.address,
  )
  await verify({ url: database.serviceUrl, network })
  expect(await findings(network), 'what was found in order once is not looked at again').toEqual([])
  await lookAgain(network)
  expect(await findings(network)).toEqual([
    {
      what: 'TENURE_OVERLAPS',
      address: one.address,
      message: expect.stringContaining(
        `lease ${leaseId(network, first)} on ${one.address} over [${first},${first + 1}), and lease ${one.leaseId} on`,
      ),
    },
    {
      what: 'TENURE_UNEXPLAINED',
      address: one.address,
      message: expect.stringContaining(leaseId(network, first)),
    },
  ])
  expect(await gauge('ipledger_tenure_overlaps', network)).toBe(1)
  expect(
    await audit.ask(
      'select host(address) as address, lease_id from tenure_overlaps where network = $1',
      network,
    ),
  ).toEqual([{ address: one.address, lease_id: leaseId(network, first) }])
  // What a person looked at with "verify --full" is not what a look at all of it may forget.
  await lookAgain(network)
  expect(await codes(network)).toEqual(['TENURE_OVERLAPS', 'TENURE_UNEXPLAINED'])
  await mended(network, 'tenures made anew', () => rebuildTenure({ adminUrl: database.adminUrl, network }))
})

test('tenures are looked at in slices, from the first event, whatever was found in order before', async () => {
  const { network } = await withTraffic(150)
  await truth.run(createProjectTenure({ slotMs: 0 }))
  await verify({ url: database.serviceUrl, network })
  await tamper(
    `update ipledger.tenure set owner_name = 'default/mallory' where network_id = $1 and owner_name is not null`,
    network,
  )
  const altered = await truth.rows<{ address: string }>(
    `select distinct host(address) as address from ipledger.tenure where network_id = $1 and owner_name = 'default/mallory' order by 1`,
    network,
  )
  expect(altered.length).toBeGreaterThan(10)
  while ((await lookOnce(network, 7))!.more);
  const found = await findings(network)
  expect(new Set(found.map(({ what }) => what))).toEqual(new Set(['TENURE_DIFFERS']))
  expect(found.map(({ address }) => address).sort()).toEqual(altered.map(({ address }) => address).sort())
  await mended(network, 'tenures made anew', () => rebuildTenure({ adminUrl: database.adminUrl, network }))
})

test('what was found of tenures is there still while they are made anew, and over once they are looked at', async () => {
  const { network } = await withTraffic(60)
  await truth.run(createProjectTenure({ slotMs: 0 }))
  await tamper(
    `delete from ipledger.tenure where network_id = $1 and first_seq = (select max(first_seq) from ipledger.tenure where network_id = $1)`,
    network,
  )
  await run(network)
  expect(await codes(network)).toEqual(['TENURE_MISSING'])
  await withClient(database.serviceUrl, (client) => resetTenure(client, network))
  await lookAgain(network)
  expect(await codes(network), 'nothing was looked at').toEqual(['TENURE_MISSING'])
  await mended(network, 'made anew', () => truth.run(createProjectTenure({ slotMs: 0 })))
})

test('a checkpoint that "verify --full" found to be wrong is found again by every look, until it is made anew', async () => {
  const { network } = await withTraffic(150)
  await withClient(database.serviceUrl, async (client) => {
    while (await makeCheckpoint(client, network, { distance: 50, part: 5 }));
  })
  await run(network)
  expect(await findings(network)).toEqual([])
  await tamper(
    `update ipledger.lease_checkpoint_part set events = array[1::bigint] || events[2:] where network_id = $1 and part = 0
      and seq = (select max(seq) from ipledger.lease_checkpoint where network_id = $1)`,
    network,
  )
  await verify({ url: database.serviceUrl, network, full: true })
  expect(new Set(await codes(network))).toEqual(new Set(['CHECKPOINT_DIFFERS']))
  await lookAgain(network)
  expect(new Set(await codes(network))).toEqual(new Set(['CHECKPOINT_DIFFERS']))
  await mended(network, 'made anew', () => rebuildTenure({ adminUrl: database.adminUrl, network }))
})

test('an event that was altered and is legal still is found by a look at all of it, and by "verify --seals"', async () => {
  const network = await truth.network()
  const { version } = await truth.lease(network, workload('a'))
  for (let n = 0; n < 12; n += 1) await truth.lease(network, workload(n))
  await sealAll(network)
  await run(network)
  expect(await findings(network)).toEqual([])
  const actor = (name: string) =>
    tamper(`update ipledger.event set actor = $3 where network_id = $1 and seq = $2`, network, version, name)
  await actor('nobody')
  const altered = {
    what: 'EVENT_ALTERED',
    address: null,
    message: expect.stringContaining(`event ${network}/${version} is not what was sealed`),
  }
  await lookAgain(network)
  expect(await findings(network)).toEqual([altered])
  expect(said).toEqual([
    [expect.objectContaining({ network, what: 'EVENT_ALTERED', seq: version }), expect.any(String)],
  ])
  expect(await gauge('ipledger_verify_differences', network)).toBe(1)
  // Who does not ask for the seals does not know that it is over.
  await verify({ url: database.serviceUrl, network, full: true })
  expect(await findings(network)).toEqual([altered])
  await mended(network, 'the event is what it was', () => actor('test'))

  await actor('nobody')
  await verify({ url: database.serviceUrl, network, seals: true })
  expect(await findings(network)).toEqual([altered])
  await actor('test')
  await verify({ url: database.serviceUrl, network })
  expect(await findings(network)).toEqual([altered])
  await verify({ url: database.serviceUrl, network, seals: true })
  expect(await findings(network)).toEqual([])
})

test.each([3, 8, 30])(
  'in pieces of %i events the seals are one chain, and what does not fit is named',
  async (slice) => {
    const { network } = await withTraffic(60)
    await sealAll(network)
    const head = await headOf(network)
    while ((await lookOnce(network, slice))!.more);
    expect(await findings(network)).toEqual([])
    const seals = await truth.rows<{ first: number; last: number }>(
      'select first_seq as first, last_seq as last from ipledger.seal where network_id = $1 order by 1',
      network,
    )
    expect(seals.length).toBeGreaterThan(head / 5)
    await tamper(
      `delete from ipledger.seal where network_id = $1 and first_seq = $2`,
      network,
      seals[3]!.first,
    )
    await tamper(
      `update ipledger.event set actor = 'nobody' where network_id = $1 and seq in ($2, $3)`,
      network,
      seals[7]!.last,
      seals[8]!.first,
    )
    await tamper(`update ipledger.verification set begins_at = now() where network_id = $1`, network)
    while ((await lookOnce(network, slice))!.more);
    expect(
      (
        await audit.ask<{ what: string; seq: number }>(
          'select what, seq from verify_findings where network = $1 order by seq',
          network,
        )
      ).map(({ what, seq }) => `${what} ${seq}`),
    ).toEqual([
      `SEAL_MISSING ${seals[4]!.first}`,
      `EVENT_ALTERED ${seals[7]!.last}`,
      `EVENT_ALTERED ${seals[8]!.first}`,
    ])
    await mended(network, 'sealed anew', async () => {
      await tamper(`delete from ipledger.seal where network_id = $1`, network)
      await sealAll(network)
    })
  },
)

test('deleted events are named with all that is gone, by their numbers and by their seals', async () => {
  const network = await truth.network()
  for (let n = 0; n < 20; n += 1) await truth.lease(network, workload(n))
  await sealAll(network)
  await run(network)
  await tamper(
    'create table deleted as select * from ipledger.event where network_id = $1 and seq between 8 and 12',
    network,
  )
  await tamper('delete from ipledger.event where network_id = $1 and seq between 8 and 12', network)
  await lookAgain(network)
  const found = await findings(network)
  expect(found.map(({ what }) => what)).toEqual(expect.arrayContaining(['EVENT_MISSING', 'EVENTS_DELETED']))
  expect(found.find(({ what }) => what === 'EVENTS_DELETED')?.message).toContain(
    `events ${network}/8 to 12 are gone, and were sealed`,
  )
  await mended(network, 'put back', () => tamper('insert into ipledger.event select * from deleted'))
})

test('what is not sealed yet is no difference', async () => {
  const network = await truth.network()
  await truth.lease(network, workload('a'))
  await truth.past(network, HOUR)
  await run(network)
  await verify({ url: database.serviceUrl, network, seals: true })
  expect(await findings(network)).toEqual([])
})

test.each([
  { left: 'its seals', gone: ['tenure_position', 'verify_checkpoint', 'verification'] },
  { left: 'its checkpoint', gone: ['seal', 'tenure_position', 'verification'] },
  { left: 'where its look stands', gone: ['seal', 'tenure_position', 'verify_checkpoint'] },
  { left: 'where its tenures stand', gone: ['seal', 'verify_checkpoint', 'verification'] },
])('a network that is gone with its events is missed by $left', async ({ gone }) => {
  const network = await truth.network()
  for (let n = 0; n < 5; n += 1) await truth.lease(network, workload(n))
  await truth.run(createProjectTenure({ slotMs: 0 }))
  await sealAll(network)
  await run(network)
  const tables = [
    'event',
    'network',
    'network_lock',
    'lease',
    'pool',
    'untouched_range',
    'pool_position',
    ...gone,
  ]
  for (const table of tables) {
    await tamper(
      `create table "gone ${network} ${table}" as select * from ipledger.${table} where network_id = $1`,
      network,
    )
    await tamper(`delete from ipledger.${table} where network_id = $1`, network)
  }
  const { networks } = await verify({ url: database.serviceUrl })
  const found = networks.find((one) => one.network === network)
  expect(found?.findings.map(({ what }) => what)).toContain('NETWORK_MISSING')
  await tamper('delete from ipledger.verify_finding where network_id = $1', network)
  await tamper(`update ipledger.verification set begins_at = now() where network_id = $1`, network)
  await run(await truth.network())
  expect(await codes(network)).toContain('NETWORK_MISSING')
  expect(await gauge('ipledger_verify_differences', network)).toBeGreaterThan(0)
  await tamper('delete from ipledger.verification where network_id = $1', network)
  for (const table of tables)
    await tamper(`insert into ipledger.${table} select * from "gone ${network} ${table}"`)
  await verify({ url: database.serviceUrl, network, full: true, seals: true })
  expect(await findings(network)).toEqual([])
})
