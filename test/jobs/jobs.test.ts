import { afterAll, beforeEach, expect, test } from 'vitest'
import type { Command, LeaseView } from '../../src/core/command.ts'
import { POLICY } from '../../src/core/policy.ts'
import { refusal } from '../../src/core/refusal.ts'
import { expireUnconfirmed } from '../../src/jobs/expire-unconfirmed.ts'
import type { Job, JobContext } from '../../src/jobs/job.ts'
import { createPrunePositions, pruneClosedAttachments, pruneRequests } from '../../src/jobs/prune.ts'
import { openLedger } from '../../src/ledger/open.ts'
import { createAskedSources } from '../../src/liveness/asked.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'
import { claim, confirm, createNetwork, createPool, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { moveToThePast } from '../support/past.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const log = createLogger('warn')
const ledger = openLedger({ url: database.serviceUrl, log })
const connections = createConnections({ url: database.serviceUrl, applicationName: 'test jobs', max: 2 })

const asked = createAskedSources({ log, secrets: {} })

let network: string
let count = 0

beforeEach(async () => {
  count += 1
  network = `n${count}`
  await ok(createNetwork(network))
  await ok(createPool({ name: 'web', cidr: '10.0.0.0/20', cooldownMs: 0 }, { network }))
})
afterAll(async () => {
  await ledger.close()
  await connections.end()
  await expectVerified(database, { full: true })
})

async function ok(command: Command): Promise<readonly LeaseView[]> {
  const outcome = await ledger.submit(command)
  if (!outcome.ok) throw new Error(`${outcome.refusal.reason}: ${outcome.refusal.message}`)
  return outcome.answer.leases
}

async function hold(
  name: string,
  fields: Omit<Parameters<typeof reserve>[0], 'owner'> & { readonly incarnation?: string } = {},
): Promise<LeaseView> {
  const { incarnation = '', ...rest } = fields
  const leases = await ok(
    reserve({ network, owner: owner({ name, incarnation }), claims: [claim({ pool: 'web' })], ...rest }),
  )
  return leases[0]!
}

function context(fields: Partial<JobContext> = {}): JobContext {
  const intake = { database: connections, log }
  const signal = new AbortController().signal
  return { database: connections, ledger, intake, asked, log, signal, ...fields }
}

async function runJob(job: Job): Promise<number> {
  const done = await job(context())
  return Object.values(done).reduce((sum, one) => sum + one, 0)
}

async function past(ms: number): Promise<void> {
  await moveToThePast(database, ms, network)
}

async function rowsOf<T>(sql: string): Promise<readonly T[]> {
  const { rows } = await connections.query(sql, [network])
  return rows as readonly T[]
}

const HELD = 'select address, state from ipledger.lease where network_id = $1 order by address'

test('a reservation that was not confirmed is reaped after its deadline and the grace, and not before', async () => {
  const lease = await hold('late', { confirmWithinMs: 30_000 })
  await past(30_000 + POLICY.confirmGraceMs - 5_000)
  expect(await runJob(expireUnconfirmed)).toBe(0)
  expect(await rowsOf(HELD)).toHaveLength(1)

  await past(5_000)
  expect(await runJob(expireUnconfirmed)).toBe(1)
  expect(await rowsOf(HELD)).toEqual([])
  const [event] = await rowsOf<Record<string, unknown>>(
    `select type, actor, cause, fencing_token, evidence from ipledger.event where network_id = $1 order by seq desc limit 1`,
  )
  expect(event).toMatchObject({
    type: 'lease.reaped',
    actor: 'job:expire-unconfirmed',
    cause: 'NEVER_CONFIRMED',
    fencing_token: lease.fencingToken,
    evidence: { reason: 'NEVER_CONFIRMED', version: lease.version },
  })
})

test('each pool has its own grace, and what waits longer does not hide what is due', async () => {
  const patient = { reapPolicy: { confirmGraceMs: 3_600_000 } }
  await ok(createPool({ name: 'patient', cidr: '10.1.0.0/20', ...patient }, { network }))
  await ok(
    createPool({ name: 'swift', cidr: '10.2.0.0/20', reapPolicy: { confirmGraceMs: 1_000 } }, { network }),
  )
  const within = (pool: string, confirmWithinMs: number) =>
    hold(`${pool}-${confirmWithinMs}`, { claims: [claim({ pool })], confirmWithinMs })
  await within('patient', 1_000)
  await within('swift', 2_000)
  await within('web', 3_000)
  const asked: Command[] = []
  const counting = { ...ledger, submit: ledger.submit.bind(ledger) }
  counting.submit = (command, options) => {
    asked.push(command)
    return ledger.submit(command, options)
  }
  const expired = async (ms: number) => {
    await past(ms)
    asked.length = 0
    await expireUnconfirmed(context({ ledger: counting }))
    return [asked.length, (await rowsOf<{ address: string }>(HELD)).map((one) => one.address)]
  }
  // What is not due is not even asked for.
  expect(await expired(10_000)).toEqual([1, ['10.0.0.1', '10.1.0.1']])
  expect(await expired(POLICY.confirmGraceMs)).toEqual([1, ['10.1.0.1']])
  expect(await expired(3_500_000)).toEqual([0, ['10.1.0.1']])
  expect(await expired(60_000)).toEqual([1, []])
})

test('without a deadline, confirmed, or quarantined, a lease is held after 30 days', async () => {
  await hold('patient')
  const confirmed = await hold('confirmed', { confirmWithinMs: 1_000 })
  await ok(confirm(confirmed.fencingToken, { network }))
  const unremoved = await hold('unremoved', { confirmWithinMs: 1_000 })
  await ok(release(unremoved.fencingToken, { network, removalConfirmed: false }))
  await past(30 * 24 * 3_600_000)
  expect(await runJob(expireUnconfirmed)).toBe(0)
  expect((await rowsOf<{ state: string }>(HELD)).map((one) => one.state)).toEqual([
    'RESERVED',
    'ACTIVE',
    'QUARANTINED',
  ])
})

test('what happened to a lease after it was listed is respected', async () => {
  const lease = await hold('confirming', { confirmWithinMs: 1_000 })
  await past(1_000 + POLICY.confirmGraceMs + 1_000)
  // The confirm goes in between the job's look and its question.
  const confirming = { ...ledger, submit: ledger.submit.bind(ledger) }
  confirming.submit = async (command, options) => {
    if (command.type === 'expire') await ok(confirm(lease.fencingToken, { network }))
    return ledger.submit(command, options)
  }
  expect(await expireUnconfirmed(context({ ledger: confirming }))).toEqual({ reaped: 0 })
  expect((await rowsOf<{ state: string }>(HELD)).map((one) => one.state)).toEqual(['ACTIVE'])
})

test('more of them than a page, by two workers at once, are each reaped once', async () => {
  const names = Array.from({ length: 1_201 }, (_, at) => `crowd-${at}`)
  await Promise.all(names.map((name) => hold(name, { confirmWithinMs: 1_000 })))
  await past(1_000 + POLICY.confirmGraceMs + 1_000)
  const [one, other] = await Promise.all([runJob(expireUnconfirmed), runJob(expireUnconfirmed)])
  expect(one + other).toBe(1_201)
  expect(await rowsOf(HELD)).toEqual([])
  const reaped = await rowsOf(`select 1 from ipledger.event where network_id = $1 and type = 'lease.reaped'`)
  expect(reaped).toHaveLength(1_201)
})

test('leases that the ledger keeps do not hide those behind them', async () => {
  const names = Array.from({ length: 601 }, (_, at) => `queue-${at}`)
  await Promise.all(names.map((name) => hold(name, { confirmWithinMs: 1_000 })))
  await past(1_000 + POLICY.confirmGraceMs + 1_000)
  let asked = 0
  const keeping: JobContext['ledger'] = {
    ...ledger,
    submit: (command, options) => {
      asked += 1
      return asked > 500
        ? ledger.submit(command, options)
        : Promise.resolve({ ok: false, refusal: refusal('VERSION_MISMATCH', 'changed meanwhile') })
    },
  }
  expect(await expireUnconfirmed(context({ ledger: keeping }))).toEqual({ reaped: 101 })
})

test('requests are forgotten after 24 h, and not before', async () => {
  await hold('remembered', { requestId: 'r1', fingerprint: 'f' })
  await past(POLICY.requestMemoryMs - 60_000)
  await hold('later', { requestId: 'r2', fingerprint: 'f' })
  expect(await runJob(pruneRequests)).toBe(0)
  await past(60_000)
  expect(await runJob(pruneRequests)).toBe(1)
  expect(await rowsOf('select request_id from ipledger.request where network_id = $1')).toEqual([
    { request_id: 'r2' },
  ])
})

test('many requests go in slices', async () => {
  await withClient(database.adminUrl, (admin) =>
    admin.query(
      `insert into ipledger.request (network_id, request_id, fingerprint, method, at, seq, answer)
       select $1, 'old-' || n, '', 'Reserve', now() - interval '25 hours' - (n / 100) * interval '1 second', 1, '{}'
         from generate_series(1, 9000) as n`,
      [network],
    ),
  )
  expect(await runJob(pruneRequests)).toBe(9_000)
})

test('a closed attachment is forgotten after the retry horizon, and not before', async () => {
  const lease = await hold('closing', { incarnation: 'a' })
  await ok(release(lease.fencingToken, { network }))
  await past(POLICY.retryHorizonMs - 5_000)
  expect(await runJob(pruneClosedAttachments)).toBe(0)
  await past(5_000)
  expect(await runJob(pruneClosedAttachments)).toBe(1)
})

test('a closed attachment is kept while a lease of it is superseded or its removal is unknown', async () => {
  await hold('life', { incarnation: 'one' })
  await hold('life', { incarnation: 'two' })
  const unremoved = await hold('gone', { incarnation: 'x' })
  await ok(release(unremoved.fencingToken, { network, removalConfirmed: false }))
  await past(POLICY.retryHorizonMs + 1_000)
  expect(await runJob(pruneClosedAttachments)).toBe(0)

  await ok(release(unremoved.fencingToken, { network }))
  await past(POLICY.retryHorizonMs + 1_000)
  expect(await runJob(pruneClosedAttachments)).toBe(1)
  expect(
    await rowsOf('select owner_incarnation from ipledger.closed_attachment where network_id = $1'),
  ).toEqual([{ owner_incarnation: 'one' }])
})

test('rows the write path holds are left to the next run, without waiting', async () => {
  await hold('held', { requestId: 'held', fingerprint: 'f' })
  await past(POLICY.requestMemoryMs + 1_000)
  await withClient(database.serviceUrl, async (writer) => {
    await writer.query('begin')
    await writer.query('select 1 from ipledger.request where network_id = $1 for update', [network])
    expect(await runJob(pruneRequests)).toBe(0)
    await writer.query('commit')
  })
  expect(await runJob(pruneRequests)).toBe(1)
})

const POSITIONS =
  'select pool_id, seq from ipledger.pool_position where network_id = $1 order by pool_id, seq'

test('of each pool the latest position is kept, and the ledger goes on from it', async () => {
  await ok(createPool({ name: 'other', cidr: '10.1.0.0/24' }, { network }))
  for (let at = 0; at < 5; at++) await hold(`one-${at}`)
  await ok(reserve({ network, owner: owner({ name: 'b' }), claims: [claim({ pool: 'other' })] }))
  const before = await rowsOf<{ pool_id: number; seq: number }>(POSITIONS)
  expect(before.length).toBeGreaterThan(2)
  const prunePositions = createPrunePositions()
  expect(await runJob(prunePositions)).toBeGreaterThanOrEqual(before.length - 2)
  const kept = await rowsOf<{ pool_id: number; seq: number }>(POSITIONS)
  expect(kept).toHaveLength(2)
  for (const row of kept) {
    expect(row.seq).toBe(
      Math.max(...before.filter((one) => one.pool_id === row.pool_id).map((one) => one.seq)),
    )
  }
  const after = openLedger({ url: database.serviceUrl, log })
  const outcome = await after.submit(
    reserve({ network, owner: owner({ name: 'next' }), claims: [claim({ pool: 'web' })] }),
  )
  await after.close()
  expect(outcome).toMatchObject({ ok: true, answer: { leases: [{ address: '10.0.0.6' }] } })
  // The same process goes on where it was.
  await hold('another')
  expect(await runJob(prunePositions)).toBeGreaterThan(0)
  expect(await rowsOf(POSITIONS)).toHaveLength(2)
})

test('positions of a deleted pool go', async () => {
  await ok(createPool({ name: 'short', cidr: '10.1.0.0/24', cooldownMs: 0 }, { network }))
  const [lease] = await ok(
    reserve({ network, owner: owner({ name: 'b' }), claims: [claim({ pool: 'short' })] }),
  )
  await ok(release(lease!.fencingToken, { network }))
  const poolId = lease!.poolId
  await ok({ ...createNetwork(network), type: 'deletePool', name: 'short', version: null } as Command)
  await runJob(createPrunePositions())
  const left = await rowsOf<{ pool_id: number }>(POSITIONS)
  expect(left.map((one) => one.pool_id)).not.toContain(poolId)
})

test('a stopped worker ends between slices', async () => {
  await hold('late', { confirmWithinMs: 1_000 })
  await past(1_000 + POLICY.confirmGraceMs + 1_000)
  const stopped = context({ signal: AbortSignal.abort() })
  expect(await expireUnconfirmed(stopped)).toEqual({})
})
