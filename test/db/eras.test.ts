/**
 * Eras that begin by themselves (INV-24; incidents 12.1, 12.4, 7.1): a database that is older than itself hands out
 * nothing before it has said so, whoever asks first.
 */
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { EndRecovery, LeaseView, Reserve, UpdateNetwork } from '../../src/core/command.ts'
import type { JobContext } from '../../src/jobs/job.ts'
import { createPullSources } from '../../src/jobs/pull-sources.ts'
import { beginDueEras, beginEra, beginEraBeyond } from '../../src/ledger/eras.ts'
import { currentLife, type DatabaseSeen } from '../../src/ledger/life.ts'
import type { LedgerOptions } from '../../src/ledger/open.ts'
import { createReads } from '../../src/ledger/reads.ts'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { enableSource } from '../../src/liveness/register.ts'
import { beginSnapshot, type SnapshotReport } from '../../src/liveness/report.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import {
  claim,
  confirm,
  createNetwork,
  createPool,
  fenceNode,
  owner,
  release,
  reserve,
} from '../support/commands.ts'
import { copyOf, useOwnDatabase } from '../support/copies.ts'
import { type TestDatabase, withClient } from '../support/database.ts'
import { INTERVAL, register, report, settled, type TestIntake, tokenFor } from '../support/intake.ts'
import { openTestLedger, type TestLedger } from '../support/ledger.ts'
import { moveToThePast } from '../support/past.ts'
import { openJobs } from '../support/run-jobs.ts'
import { expectVerified } from '../support/verified.ts'

const NETWORK = 'n1'
const ERA = 2 ** 40

function open(database: TestDatabase, options: Partial<LedgerOptions> = {}): TestLedger {
  const ledger = openTestLedger({ url: database.serviceUrl, connections: 2, ...options })
  onTestFinished(() => ledger.close())
  return ledger
}

function any(name: string, fields: Partial<Reserve> = {}): Reserve {
  return reserve({ network: NETWORK, owner: owner({ name }), claims: [claim({ pool: 'a' })], ...fields })
}

const envelope = {
  network: NETWORK,
  actor: { name: 'test', node: null },
  cause: 'test',
  requestId: null,
  fingerprint: null,
  traceId: null,
} as const

function endRecovery(fields: Partial<EndRecovery> = {}): EndRecovery {
  return { ...envelope, type: 'endRecovery', why: 'nothing runs there', ...fields }
}

function describeAs(description: string): UpdateNetwork {
  return { ...envelope, type: 'updateNetwork', version: null, description, labels: null }
}

async function sql<T>(
  database: TestDatabase,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly T[]> {
  return withClient(database.adminUrl, async (admin) => (await admin.query(text, [...values])).rows as T[])
}

/** A network with two leases, and nobody connected. */
async function withPast(): Promise<{ database: TestDatabase; leases: readonly LeaseView[] }> {
  const database = await useOwnDatabase()
  const ledger = open(database)
  await ledger.accept(createNetwork(NETWORK))
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: 0 }, { network: NETWORK }))
  const leases = [await ledger.take(any('one')), await ledger.take(any('two'))]
  await ledger.close()
  return { database, leases }
}

type Begun = {
  seq: number
  actor: string
  cause: string
  recovering: boolean
  why: string
  lost_after: number
}

function erasOf(database: TestDatabase, network = NETWORK): Promise<readonly Begun[]> {
  return sql(
    database,
    `select seq, actor, cause, (settings ->> 'recovering')::boolean as recovering, evidence ->> 'why' as why,
            (evidence ->> 'lostAfter')::bigint as lost_after
       from ipledger.event where network_id = $1 and type = 'era.begun' order by seq`,
    [network],
  )
}

async function standing(database: TestDatabase): Promise<{ state: string; era: number; leases: number }> {
  const [row] = await sql<{ state: string; era: number; leases: number }>(
    database,
    `select n.state, n.era, (select count(*) from ipledger.lease l where l.network_id = $1) as leases
       from ipledger.network n where n.network_id = $1`,
    [NETWORK],
  )
  return row!
}

type Stored = { system_identifier: string; database_oid: number; log_oid: number; timeline: number }

async function livesOf(database: TestDatabase) {
  const stored = await sql<Stored>(
    database,
    'select system_identifier, database_oid, log_oid, timeline from ipledger.database_life where network_id = $1',
    [NETWORK],
  )
  const [now] = await sql<Stored>(
    database,
    `select system_identifier::text, (select oid::bigint from pg_database where datname = current_database()) as database_oid,
            'ipledger.event'::regclass::oid::bigint as log_oid, (select timeline_id from pg_control_checkpoint()) as timeline from pg_control_system()`,
  )
  return { stored, now: now! }
}

/** As if the last commit had never been. */
async function loseDescription(database: TestDatabase): Promise<void> {
  const at = [NETWORK]
  await sql(database, `delete from ipledger.event where network_id = $1 and type = 'network.updated'`, at)
  await sql(database, `update ipledger.network set description = '', version = 1 where network_id = $1`, at)
}

/** As if the log had gone on elsewhere. */
function alterLife(database: TestDatabase, change: string) {
  return sql(database, `update ipledger.database_life set ${change} where network_id = $1`, [NETWORK])
}

function openIntake(database: TestDatabase): TestIntake {
  const connections = createConnections({
    url: database.serviceUrl,
    applicationName: 'test intake',
    max: 2,
  })
  onTestFinished(() => connections.end())
  return { database: connections, logged: [], log: { warn: () => undefined } }
}

describe('a database', () => {
  test('is stored with a network when it is made, and the same one begins no era', async () => {
    const { database } = await withPast()
    const { stored, now } = await livesOf(database)
    expect(stored).toEqual([now])
    await open(database).take(any('three'))
    expect(await erasOf(database)).toEqual([])
  })

  test('that was never stored is stored by the next command, and begins no era', async () => {
    const { database } = await withPast()
    await sql(database, 'delete from ipledger.database_life')
    await open(database).take(any('one'))
    const { stored, now } = await livesOf(database)
    expect(stored).toEqual([now])
    expect(await erasOf(database)).toEqual([])
  })
})

describe('a copy', () => {
  test('12.1: whoever asks first finds the era begun: nothing is handed out, and what is held is held', async () => {
    const { database, leases } = await withPast()
    const copy = await copyOf(database)
    const ledger = open(copy)
    const refused = await ledger.refuse(any('late'), 'NETWORK_RECOVERING')
    expect(refused.metadata).toMatchObject({ state: 'RECOVERING', era: '1' })
    expect(refused.message).toContain('no source is enabled: ipledger recover --end n1')
    expect(await erasOf(copy)).toEqual([
      {
        seq: ERA,
        actor: 'ledger',
        cause: 'DATABASE_REPLACED',
        recovering: true,
        why: expect.stringContaining('a restored copy'),
        lost_after: leases[1]!.version,
      },
    ])
    expect(ledger.logged.map(({ level, fields }) => [level, fields])).toEqual([
      ['error', expect.objectContaining({ network: NETWORK, era: 1, recovering: true })],
    ])
    expect(await standing(copy)).toEqual({ state: 'RECOVERING', era: 1, leases: 2 })
    const { stored, now } = await livesOf(copy)
    expect(stored).toEqual([now])
    // The original is the original.
    expect((await open(database).take(any('three'))).fencingToken).toBeLessThan(ERA)
    expect(await erasOf(database)).toEqual([])
    await expectVerified(copy)
  })

  test('a command that may be decided all the same is, in the same call, with a number of the new era', async () => {
    const { database, leases } = await withPast()
    const copy = await copyOf(database)
    const released = await open(copy).take(release(leases[0]!.fencingToken, { network: NETWORK }))
    expect(released).toMatchObject({ address: leases[0]!.address, state: 'RELEASED', version: ERA + 1 })
    const confirmed = await open(copy).take(confirm(leases[1]!.fencingToken, { network: NETWORK }))
    expect(confirmed).toMatchObject({ address: leases[1]!.address, state: 'ACTIVE', version: ERA + 2 })
    await expectVerified(copy)
  })

  test('one era, however many processes and calls find out at once', async () => {
    const { database } = await withPast()
    const copy = await copyOf(database)
    const processes = [open(copy), open(copy), open(copy)]
    await Promise.all(
      Array.from({ length: 60 }, (_, i) => processes[i % 3]!.refuse(any(`x${i}`), 'NETWORK_RECOVERING')),
    )
    expect((await erasOf(copy)).map(({ seq }) => seq)).toEqual([ERA])
    expect(await standing(copy)).toEqual({ state: 'RECOVERING', era: 1, leases: 2 })
  })

  test('of a copy is another era still', async () => {
    const { database } = await withPast()
    const first = await copyOf(database)
    const ledger = open(first)
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    await ledger.close()
    const second = await copyOf(first)
    await open(second).refuse(any('x'), 'NETWORK_RECOVERING')
    expect((await erasOf(second)).map(({ seq, lost_after }) => [seq, lost_after])).toEqual([
      [ERA, expect.any(Number)],
      [2 * ERA, ERA],
    ])
    await expectVerified(second)
  })

  test('recovers although the deployment loses no commits: it is no failover', async () => {
    const { database } = await withPast()
    const copy = await copyOf(database)
    await open(copy, { commitsAreNeverLost: true }).refuse(any('x'), 'NETWORK_RECOVERING')
  })

  test('a job that saw the era before does not end this one’s recovery', async () => {
    const { database } = await withPast()
    const copy = await copyOf(database)
    const command = endRecovery({ observed: true })
    await open(copy).refuse(command, 'LIVENESS_STALE')
    expect(await standing(copy)).toMatchObject({ state: 'RECOVERING', era: 1 })
  })

  test('is found out without a command, network by network', async () => {
    const { database } = await withPast()
    const before = open(database)
    await before.accept(createNetwork('n2'))
    await before.close()
    const copy = await copyOf(database)
    const ledger = open(copy)
    const look = () => withClient(copy.serviceUrl, (client) => beginDueEras(ledger, client))
    expect(await look()).toEqual(['n1', 'n2'])
    expect((await erasOf(copy, 'n1')).map(({ seq }) => seq)).toEqual([ERA])
    expect((await erasOf(copy, 'n2')).map(({ seq }) => seq)).toEqual([ERA])
    expect(await look()).toEqual([])
  })

  test('whose projections were lost as well is refused, and begins its era once they are rebuilt', async () => {
    const { database } = await withPast()
    const copy = await copyOf(database)
    await sql(copy, 'truncate ipledger.network, ipledger.lease, ipledger.pool_position')
    const ledger = open(copy)
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(copy)).toEqual([])
    await rebuild({ adminUrl: copy.adminUrl, network: NETWORK })
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect((await erasOf(copy)).map(({ seq }) => seq)).toEqual([ERA])
    expect(await standing(copy)).toEqual({ state: 'RECOVERING', era: 1, leases: 2 })
    await expectVerified(copy)
  })
})

describe('a failover', () => {
  test('12.4: another timeline of the same database recovers', async () => {
    const { database } = await withPast()
    await alterLife(database, 'timeline = timeline + 1')
    const ledger = open(database)
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([{ seq: ERA, cause: 'FAILED_OVER', recovering: true }])
    const { stored, now } = await livesOf(database)
    expect(stored).toEqual([now])
  })

  test('that loses no commits begins an era and goes on', async () => {
    const { database } = await withPast()
    await alterLife(database, 'timeline = timeline + 1')
    const lease = await open(database, { commitsAreNeverLost: true }).take(any('three'))
    expect(lease).toMatchObject({ address: '10.0.0.3', fencingToken: ERA + 1 })
    expect(await erasOf(database)).toMatchObject([{ seq: ERA, cause: 'FAILED_OVER', recovering: false }])
    expect(await standing(database)).toEqual({ state: 'READY', era: 1, leases: 3 })
    await expectVerified(database)
  })

  /** The last commit of era 0 is lost, and era 1 has begun as one that lost none; with a process that saw the loss. */
  async function thatLost() {
    const { database, leases } = await withPast()
    const seer = open(database, { commitsAreNeverLost: true })
    await seer.accept(describeAs('lost'))
    const intake = openIntake(database)
    await register(intake, NETWORK, 'agent')
    const token = await tokenFor(intake, NETWORK, 'agent')
    await loseDescription(database)
    await alterLife(database, 'timeline = timeline + 1')
    const other = open(database, { commitsAreNeverLost: true })
    await other.take(any('three'))
    expect(await standing(database)).toMatchObject({ state: 'READY', era: 1 })
    const endedAt = leases[1]!.version
    return { database, intake, seer, other, token, endedAt, lost: { era: 0, head: endedAt + 1 } }
  }

  test('that was declared to lose no commits, and did, is found out by a process that saw them', async () => {
    const { database, seer, other } = await thatLost()
    await seer.refuse(any('four'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([
      { seq: ERA, cause: 'FAILED_OVER', recovering: false },
      {
        seq: 2 * ERA,
        cause: 'EVENTS_LOST',
        recovering: true,
        why: 'era 0 ended at 4, and the log was at 5 before: committed events are gone',
      },
    ])
    // Once.
    await seer.refuse(any('four'), 'NETWORK_RECOVERING')
    await other.accept(endRecovery())
    await seer.take(any('four'))
    expect(await erasOf(database)).toHaveLength(2)
  })

  test('and by numbers beyond the end of the era that it ended', async () => {
    const { database, intake, other, endedAt, lost } = await thatLost()
    const quote = async (head: number) => {
      const quoted = { era: 0, head }
      return settled(await beginSnapshot(intake, { network: NETWORK, source: 'agent', quoted })).ground
    }
    expect((await quote(endedAt)).beyond).toBeNull()
    const ground = await quote(lost.head)
    expect(ground.beyond).toEqual({ ...lost, endedAt })
    expect(await beginEraBeyond(other, { network: NETWORK, ground, actor: 'agent' })).toMatchObject({
      ok: true,
    })
    await other.refuse(any('four'), 'NETWORK_RECOVERING')
    expect((await erasOf(database)).at(-1)).toMatchObject({
      seq: 2 * ERA,
      cause: 'BEYOND_HEAD',
      why: expect.stringMatching(
        /quotes era 0 and number 5, the ledger is in era 1 at .*, and era 0 ended at 4$/,
      ),
    })
    // Recovered from, it tells nothing more.
    expect((await quote(lost.head)).beyond).toBeNull()
  })

  test('and by a token that was signed before', async () => {
    const { intake, token, endedAt, lost } = await thatLost()
    expect(await report(intake, { network: NETWORK, source: 'agent', token })).toMatchObject({
      assessment: { because: ['BEYOND_HEAD'] },
      ground: { beyond: { ...lost, endedAt } },
    })
  })

  test('that a number beyond the head finds out about recovers all the same', async () => {
    const { database } = await withPast()
    await alterLife(database, 'timeline = timeline + 1')
    const ledger = open(database, { commitsAreNeverLost: true })
    await beginEra(ledger, {
      network: NETWORK,
      era: 0,
      above: 0,
      actor: 'agent',
      cause: 'BEYOND_HEAD',
      recovering: true,
      why: 'it saw a later number',
    })
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([{ seq: ERA, cause: 'FAILED_OVER', recovering: true }])
  })

  test('a dump restored over what was there recovers, whatever the deployment declares', async () => {
    const { database } = await withPast()
    await withClient(database.adminUrl, (admin) =>
      admin.query(`
        create table ipledger.restored (like ipledger.event including all);
        insert into ipledger.restored select * from ipledger.event;
        drop table ipledger.event cascade;
        alter table ipledger.restored rename to event;
        grant select, insert on ipledger.event to ipledger_service`),
    )
    const ledger = open(database, { commitsAreNeverLost: true })
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([{ cause: 'DATABASE_REPLACED', recovering: true }])
    const { stored, now } = await livesOf(database)
    expect(stored).toEqual([now])
  })

  test('a copy in another cluster recovers', async () => {
    const { database } = await withPast()
    await alterLife(database, `system_identifier = '1'`)
    await open(database).refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([{ cause: 'DATABASE_REPLACED', recovering: true }])
  })

  test('to a server that lacks what this process saw committed: the era is above that', async () => {
    const { database } = await withPast()
    const ledger = open(database, { commitsAreNeverLost: true })
    await ledger.accept(describeAs('lost'))
    await loseDescription(database)
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    expect(await erasOf(database)).toMatchObject([{ seq: ERA, cause: 'EVENTS_LOST', recovering: true }])
  })

  test('behind a connection that goes on is seen by the server process', async () => {
    const { database } = await withPast()
    await withClient(database.serviceUrl, async (client) => {
      const asked = vi.spyOn(client, 'query')
      const seen = (serverProcess: string): DatabaseSeen => ({ serverProcess, timeline: 1, stored: null })
      const first = await currentLife(client, seen('a'))
      expect(await currentLife(client, seen('a'))).toEqual(first)
      expect(asked).toHaveBeenCalledTimes(1)
      expect(await currentLife(client, { ...seen('b'), timeline: 2 })).toEqual({ ...first, timeline: 2 })
      expect(asked).toHaveBeenCalledTimes(2)
    })
  })
})

describe('sources', () => {
  /** One that is enabled, has reported completely, and is warm. */
  async function withSource(): Promise<{ database: TestDatabase; intake: TestIntake }> {
    const { database } = await withPast()
    const intake = openIntake(database)
    await register(intake, NETWORK, 'agent')
    await enableSource(intake.database, { network: NETWORK, id: 'agent', by: 'test' })
    await reportNow(intake)
    await reportLater(database, intake)
    return { database, intake }
  }

  /** The second look of an era ends the warm-up. */
  async function reportLater(database: TestDatabase, intake: TestIntake): Promise<void> {
    await moveToThePast(database, INTERVAL, NETWORK)
    await reportNow(intake)
  }

  async function reportNow(intake: TestIntake, fields: Partial<SnapshotReport> = {}) {
    const token = await tokenFor(intake, NETWORK, 'agent')
    return report(intake, { network: NETWORK, source: 'agent', token, ...fields })
  }

  test('what was read of them in the old era counts no more in the call that begins the new one', async () => {
    const { database } = await withSource()
    const ledger = open(database, { commitsAreNeverLost: true })
    await ledger.accept(
      createPool({ name: 's', cidr: '10.1.0.0/24', liveness: 'STRICT' }, { network: NETWORK }),
    )
    const strict = (name: string) => any(name, { claims: [claim({ pool: 's' })] })
    await ledger.take(strict('before'))
    await alterLife(database, 'timeline = timeline + 1')
    // It knows the pool to be STRICT, and reads with the head what that takes.
    await ledger.refuse(strict('after'), 'LIVENESS_STALE')
    expect(await standing(database)).toMatchObject({ state: 'READY', era: 1 })
  })

  test('a job ends the recovery when each has reported completely in this era, and not before', async () => {
    const { database, intake } = await withSource()
    await alterLife(database, 'timeline = timeline + 1')
    const ledger = open(database)
    const jobs = openJobs(database.serviceUrl)
    onTestFinished(() => jobs.close())
    const run = () => jobs.run('end-recovery', NETWORK)
    // The era begins here, and nobody has reported in it.
    expect(await run()).toEqual({ looked: 1, ended: 0 })
    expect((await ledger.refuse(any('x'), 'NETWORK_RECOVERING')).message).toContain('still to come: agent')
    await reportNow(intake, { complete: false })
    expect(await run()).toEqual({ looked: 0, ended: 0 })
    await reportNow(intake)
    // The first list of an era may be that of a start (cilium#9888).
    expect(await run()).toEqual({ looked: 0, ended: 0 })
    expect((await ledger.refuse(any('x'), 'NETWORK_RECOVERING')).message).toContain('still to come: agent')
    await reportLater(database, intake)
    expect((await ledger.refuse(any('x'), 'NETWORK_RECOVERING')).message).toContain(
      'every source has reported completely in it',
    )
    expect(await run()).toEqual({ looked: 0, ended: 1 })
    expect(await ledger.take(any('x'))).toMatchObject({ fencingToken: ERA + 2 })
    expect(await run()).toEqual({ looked: 0, ended: 0 })
    await expectVerified(database)
  })

  test('one that was asked before the last commits were lost finds out', async () => {
    const { database, intake } = await withSource()
    await register(intake, NETWORK, 'asked', {
      kind: 'http',
      settings: { listUrl: 'http://x', lookUpUrl: 'http://x' },
    })
    const before = open(database)
    await before.accept(describeAs('lost'))
    await before.close()
    const jobs = openJobs(database.serviceUrl)
    onTestFinished(() => jobs.close())
    const asked = {
      get: () => ({
        list: async () => {
          await loseDescription(database)
          return { epoch: 'e1', complete: true, entries: [], incompleteBecause: '' }
        },
      }),
    } as unknown as JobContext['asked']
    await createPullSources({ slotMs: 0 })({ ...jobs.context, asked })
    expect(await erasOf(database)).toMatchObject([{ seq: ERA, cause: 'BEYOND_HEAD', recovering: true }])
  })

  test('what waits is told to people', async () => {
    const { database, intake } = await withSource()
    await register(intake, NETWORK, 'other')
    await enableSource(intake.database, { network: NETWORK, id: 'other', by: 'test' })
    const reads = createReads(intake.database)
    expect(await reads.recovery(NETWORK)).toBeNull()
    await alterLife(database, 'timeline = timeline + 1')
    await open(database).refuse(any('x'), 'NETWORK_RECOVERING')
    await reportNow(intake)
    expect(await reads.recovery(NETWORK)).toMatchObject({ unreported: ['agent', 'other'] })
    await reportLater(database, intake)
    expect(await reads.recovery(NETWORK)).toEqual({
      since: expect.any(Number),
      why: expect.stringContaining('a failover'),
      sources: 2,
      unreported: ['other'],
      unknown: [],
    })
    await register(intake, NETWORK, 'of-a-node', { node: 'n9' })
    await enableSource(intake.database, { network: NETWORK, id: 'of-a-node', by: 'test' })
    await sql(database, `update ipledger.source set epoch = 'b9' where source_id = 'of-a-node'`)
    expect(await reads.recovery(NETWORK)).toMatchObject({ sources: 3, unreported: ['of-a-node', 'other'] })
    // A fence is of a boot that the restored books know; what the node runs now is awaited all the same.
    await open(database).accept(fenceNode('n9', 'b9', { network: NETWORK }))
    expect(await reads.recovery(NETWORK)).toMatchObject({ sources: 3, unreported: ['of-a-node', 'other'] })
  })
})

describe('numbers beyond the head', () => {
  const beyond = async (ledger: TestLedger, quoted: { era: number; head: number }) =>
    beginEraBeyond(ledger, {
      network: NETWORK,
      ground: { era: 0, head: 4, beyond: quoted },
      actor: 'agent-n1',
    })

  test.each([
    [{ era: 0, head: 5 }, 1],
    [{ era: 3, head: 0 }, 4],
    [{ era: 2, head: 2 * ERA + 7 }, 3],
    [{ era: 0, head: 6 * ERA + 1 }, 7],
  ])('%o begin an era above them', async (quoted, era) => {
    const { database } = await withPast()
    const ledger = open(database)
    expect(await beyond(ledger, quoted)).toMatchObject({ ok: true })
    expect(await erasOf(database)).toMatchObject([
      { seq: era * ERA, actor: 'agent-n1', cause: 'BEYOND_HEAD', recovering: true },
    ])
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
  })

  test('make the network recover, also where the deployment declares that no commit is lost: one was', async () => {
    const { database } = await withPast()
    const ledger = open(database, { commitsAreNeverLost: true })
    expect(await beyond(ledger, { era: 0, head: 5 })).toMatchObject({ ok: true })
    expect(await erasOf(database)).toMatchObject([{ cause: 'BEYOND_HEAD', recovering: true }])
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
  })

  test('begin it once, however many sources quote them', async () => {
    const { database } = await withPast()
    const ledger = open(database)
    await Promise.all(Array.from({ length: 20 }, (_, i) => beyond(ledger, { era: 0, head: 5 + i })))
    expect((await erasOf(database)).map(({ seq }) => seq)).toEqual([ERA])
  })

  test('that nobody can have been given begin none', async () => {
    const { database } = await withPast()
    const ledger = open(database)
    for (const quoted of [
      { era: 1_234_567, head: 0 },
      { era: 0, head: 2 ** 52 },
    ]) {
      expect(await beyond(ledger, quoted)).toMatchObject({
        ok: false,
        refusal: { reason: 'VERSION_MISMATCH' },
      })
    }
    expect(await erasOf(database)).toEqual([])
  })

  test('in a call that nobody vouches for are refused, and change nothing', async () => {
    const { database } = await withPast()
    const ledger = open(database)
    const refused = await ledger.refuse(release(99, { network: NETWORK }), 'VERSION_MISMATCH')
    expect(refused.metadata).toMatchObject({ beyondHead: '4' })
    expect(await erasOf(database)).toEqual([])
  })
})

describe('an operator', () => {
  test('begins an era, above a number that somebody quotes, and ends its recovery', async () => {
    const { database } = await withPast()
    const ledger = open(database)
    const wanted = {
      network: NETWORK,
      actor: 'recover',
      cause: 'recover',
      recovering: true,
      why: 'disk set back',
    }
    expect(await beginEra(ledger, { ...wanted, era: 0, above: 3 * ERA + 5 })).toMatchObject({ ok: true })
    expect(await erasOf(database)).toMatchObject([{ seq: 4 * ERA, actor: 'recover', why: 'disk set back' }])
    await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
    await ledger.accept(endRecovery())
    expect((await ledger.take(any('x'))).fencingToken).toBe(4 * ERA + 2)
    await expectVerified(database)
  })
})

test('a rebuild across eras changes nothing, and leaves the life of the database alone', async () => {
  const { database } = await withPast()
  const copy = await copyOf(database)
  const ledger = open(copy)
  await ledger.refuse(any('x'), 'NETWORK_RECOVERING')
  await ledger.accept(endRecovery())
  await ledger.take(any('three'))
  const before = await livesOf(copy)
  const quiet = await rebuild({ adminUrl: copy.adminUrl, network: NETWORK })
  expect(quiet.replaced).toBe(0)
  await sql(
    copy,
    'truncate ipledger.network, ipledger.lease, ipledger.pool_position, ipledger.untouched_range',
  )
  await rebuild({ adminUrl: copy.adminUrl, network: NETWORK })
  expect(await livesOf(copy)).toEqual(before)
  expect(await standing(copy)).toEqual({ state: 'READY', era: 1, leases: 3 })
  await expectVerified(copy)
  await ledger.take(any('four'))
  expect((await erasOf(copy)).length).toBe(1)
})
