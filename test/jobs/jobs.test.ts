import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { pino } from 'pino'
import { beforeEach, describe, test } from 'vitest'
import type { SourceDeclaration } from '../../src/core/event.ts'
import { expire } from '../../src/jobs/expire.ts'
import type { JobContext } from '../../src/jobs/job.ts'
import { judge as judgeFor } from '../../src/jobs/judge.ts'
import { prune } from '../../src/jobs/prune.ts'
import { Pull } from '../../src/jobs/pull.ts'
import { Sample } from '../../src/jobs/sample.ts'
import { verify } from '../../src/jobs/verify.ts'
import type { SourceRead } from '../../src/ledger/read-sources.ts'
import { Intake } from '../../src/sources/intake.ts'
import type { Listing, LookUp } from '../../src/sources/source.ts'
import {
  command,
  enable,
  lists,
  MINUTE,
  network,
  pool,
  quarantine,
  reap,
  register,
  reserve,
  SECOND,
  source,
  unchanged,
} from '../core/given.ts'
import { useTestDatabase } from '../support/database.ts'
import { type TestLedger, useTestLedger } from '../support/ledger.ts'
import { NETWORK } from '../support/stored-scene.ts'
import { waitFor } from '../support/wait-for.ts'

/** What the sources of a test say; one that says nothing fails. */
type Said = { lookUp?: () => LookUp; list?: () => Listing; asked: number }

async function begin(): Promise<{ at: TestLedger; context: JobContext; said: Said }> {
  const at = await useTestLedger(await useTestDatabase())
  const said: Said = { asked: 0 }
  const pulled: JobContext['pulled'] = {
    get: () => ({
      async lookUp() {
        said.asked += 1
        return said.lookUp?.() ?? { answer: 'error', detail: 'away' }
      },
      async list() {
        if (said.list === undefined) throw new Error('away')
        return said.list()
      },
    }),
  }
  const context: JobContext = {
    database: at.pool,
    ledger: at.ledger,
    intake: new Intake({ ledger: at.ledger, database: at.pool }),
    pulled,
    log: pino({ level: 'silent' }),
    signal: new AbortController().signal,
  }
  return { at, context, said }
}

const DOCKER: Partial<SourceDeclaration> = { kind: 'docker' }
const QUICK = { reapPolicy: { minimumAgeMs: SECOND, unwitnessedAgeMs: SECOND } }
const DEFAULT_POOL = pool('10.0.0.0/24', { isDefault: true })
const judge = (context: JobContext) => judgeFor(context, { stayMs: 0 })
/** Often enough for what is missing. */
const ONLY_B = Array.from({ length: 3 }, () => lists('docker', ['b@10.0.0.2']))

describe('judge', async () => {
  const { at, context, said } = await begin()

  test('asks who is asked, and reaps on proof in the same run', async () => {
    await at.play(
      network,
      pool('10.0.0.0/24', { isDefault: true, ...QUICK }),
      source('docker', DOCKER),
      reserve('a', { confirmed: true }),
      reserve('b', { confirmed: true }),
      ONLY_B,
    )
    const { head } = await at.image()
    said.lookUp = () => ({ answer: 'gone', detail: 'no such container' })
    assert.deepEqual(await judge(context), { reaped: 1, asked: 1 })
    assert.deepEqual(await at.told(head), ['lease.reaped 10.0.0.1 PROVEN_ABSENT'])
    assert.equal(said.asked, 1)
    assert.deepEqual(await judge(context), { reaped: 0, asked: 0 })
  })

  test('asks again after a wait that doubles, for as long as the answer is a doubt', async () => {
    await at.play(reserve('c', { confirmed: true }))
    await at.play(ONLY_B)
    said.asked = 0
    said.lookUp = () => ({ answer: 'live', detail: 'running' })
    await judge(context)
    assert.equal(said.asked, 1)
    await judge(context)
    assert.equal(said.asked, 1, 'not yet')
    await at.play(unchanged('docker'))
    await judge(context)
    assert.equal(said.asked, 2, 'after 30 s')
    await at.play(unchanged('docker'))
    await judge(context)
    assert.equal(said.asked, 2, 'not after 30 s more')
    await at.play(unchanged('docker'))
    said.lookUp = () => ({ answer: 'gone', detail: '' })
    assert.deepEqual(await judge(context), { reaped: 1, asked: 1 })
  })

  test('asks a source that failed no more in the same run', async () => {
    await at.play(...Array.from({ length: 12 }, (_, index) => reserve(`f${index}`, { confirmed: true })))
    await at.play(ONLY_B)
    said.asked = 0
    delete said.lookUp
    await judge(context)
    assert.ok(said.asked <= 8)
    const rows = await at.pool.query("select from ipledger.lookup where answer = 'error'")
    assert.equal(rows.rows.length, said.asked)
  })
})

describe('judge and sources that report', async () => {
  const { at, context } = await begin()

  test('leaves questions for sources that report, and stays for their answers', async () => {
    await at.play(
      network,
      pool('10.0.0.0/24', { isDefault: true, ...QUICK }),
      source('agent', { node: 'n1' }),
      reserve('p', { confirmed: true, node: 'n1' }),
      reserve('q', { confirmed: true }),
      Array.from({ length: 3 }, () => lists('agent', [])),
    )
    const { head } = await at.image()
    const staying = judgeFor(context, { stayMs: 10 * SECOND })
    const reporting = {
      network: NETWORK,
      source: 'agent',
      traceId: null,
      deadline: performance.now() + MINUTE,
      actor: { name: 'test', node: null },
      mayReport: () => null,
    }
    for (let isAnswered = false; !isAnswered; await delay(100)) {
      const begun = await context.intake.begin(reporting)
      assert.ok(!('reason' in begun))
      const given = { ...reporting, ...begun, epoch: 'e1', complete: true, content: { entries: [] } }
      const reported = await context.intake.report(given)
      assert.ok(!('reason' in reported))
      const [question] = reported.verifications
      if (question === undefined) continue
      assert.equal(question.address, '10.0.0.1')
      const verdicts = [{ id: question.id, answer: 'gone' as const, detail: '' }]
      const taken = await context.intake.verdicts({ ...reporting, epoch: 'e1', verdicts })
      assert.deepEqual(taken, { accepted: 1, ignored: 0 })
      isAnswered = true
    }
    await staying
    assert.ok((await at.told(head)).includes('lease.reaped 10.0.0.1 PROVEN_ABSENT'))
  })
})

describe('pull', async () => {
  const { at, context, said } = await begin()
  const pulls = new Pull()
  const pull = (context: JobContext) => pulls.run(context, 50)

  test('asks each source when its interval is over', async () => {
    await at.play(network, DEFAULT_POOL, register('docker', DOCKER), enable('docker'))
    const entries = [{ address: '10.0.0.9', kind: 'container', name: 'x', uid: 'x', state: 'running' }]
    said.list = () => ({ epoch: 'engine', complete: true, because: '', entries })
    assert.deepEqual(await pull(context), { pulled: 1, failed: 0 })
    assert.equal((await at.reads.freshness(NETWORK)).get('docker')!.entries, 1)
    assert.deepEqual(await pull(context), { pulled: 0, failed: 0 })
    await at.advance(31 * SECOND)
    assert.deepEqual(await pull(context), { pulled: 1, failed: 0 })
    assert.equal((await at.image()).listedBy.get('docker')!.size, 1)
  })

  test('a source that fails says nothing, and is asked again after its interval', async () => {
    const before = (await at.reads.freshness(NETWORK)).get('docker')
    delete said.list
    await at.advance(31 * SECOND)
    assert.deepEqual(await pull(context), { pulled: 0, failed: 1 })
    assert.deepEqual(await pull(context), { pulled: 0, failed: 0 })
    assert.deepEqual((await at.reads.freshness(NETWORK)).get('docker'), before)
  })

  test('why a source fails is shown with it until it answers again', async () => {
    const shown = async () => {
      const filter = { id: 'docker', node: null, states: [], after: null, limit: 1 }
      const [{ failure, failingSince }] = (await at.reads.sources(NETWORK, filter))! as [SourceRead]
      return { failure, isSince: failingSince !== null }
    }
    for (const why of ['connect ECONNREFUSED /run/docker.sock', 'it answers 500', '']) {
      said.list = () => {
        if (why !== '') throw new Error(why)
        return { epoch: 'engine', complete: true, because: '', entries: [] }
      }
      await at.advance(31 * SECOND)
      const expected = { failure: why || null, isSince: why !== '' }
      // A run stays for so short that a busy machine may not come to ask in it.
      const isShown = async () => {
        await pull(context)
        return isDeepStrictEqual(await shown(), expected)
      }
      await waitFor(isShown, { what: `the source to show ${JSON.stringify(expected)}` })
    }
  })
})

describe('what goes by time', async () => {
  const { at, context } = await begin()

  beforeEach(async () => {
    if ((await at.ledger.image(NETWORK)) === null)
      await at.play(network, DEFAULT_POOL, reserve('a', { requestId: 'r', fingerprint: 'f' }))
  })

  const sample = new Sample().run

  test('samples add up, once a minute', async () => {
    const done = await Promise.all([sample(context), sample(context)])
    assert.equal(done[0].sampled! + done[1].sampled!, 1)
    const { rows } = await at.pool.query(
      'select size::int = (excluded + free + cooling)::int + reserved + active + quarantined as ok, reserved from ipledger.pool_sample',
    )
    assert.deepEqual(rows[0], { ok: true, reserved: 1 })
  })

  test('what is old is forgotten', async () => {
    assert.deepEqual(await prune(context), { requests: 0, samples: 0, lookUps: 0 })
    await at.pool.query("update ipledger.request set at = now() - interval '25 hours'")
    await at.pool.query("update ipledger.pool_sample set at = now() - interval '91 days'")
    await at.pool.query(
      `insert into ipledger.lookup select 'net', 's', 'container', 'x', 'x', '10.0.0.99', 'gone', null, '', 1, now(), 1`,
    )
    assert.deepEqual(await prune(context), { requests: 1, samples: 1, lookUps: 1 })
  })

  test('the log is verified, and what differs is found', async () => {
    assert.deepEqual(await verify(context, 5 * SECOND), { verified: 1, found: 0 })
    assert.deepEqual(await verify(context, 5 * SECOND), { verified: 0, found: 0 }, 'it rests')
    await at.pool.query("update ipledger.lease set state = 'ACTIVE'")
    await at.pool.query("update ipledger.verification set finished_at = now() - interval '1 hour'")
    const { found } = await verify(context, 5 * SECOND)
    assert.ok(found! > 0)
  })

  test('a hold for the clock ends by itself', async () => {
    await at.play(command({ type: 'hold', hold: 'CLOCK', why: 'test', stepMs: 300 }))
    await waitFor(async () => {
      await expire(context)
      return (await at.image()).network!.holds.CLOCK === undefined
    })
  })
})

test('what waits for a person is written anew, also when nothing waits any more', async () => {
  const { at, context } = await begin()
  const sample = new Sample().run
  await at.play(network, DEFAULT_POOL)
  const codes = async () => {
    await sample(context)
    const text =
      "select code, host(address) as address, true_at > now() - interval '1 minute' as now from ipledger.attention"
    return (await at.pool.query(text)).rows
  }
  assert.deepEqual(await codes(), [])
  await at.play(quarantine('10.0.0.9'))
  assert.deepEqual(await codes(), [{ code: 'OPERATOR_ONLY', address: '10.0.0.9', now: true }])
  await at.play(reap('10.0.0.9'))
  assert.deepEqual(await codes(), [])
})

test('a network that fails holds up no other', async () => {
  const { at, context } = await begin()
  await at.play(network, DEFAULT_POOL, reserve('a', { confirmWithinMs: 1 }))
  await at.pool.query(
    `insert into ipledger.network select 'broken', description, labels, closed, era, identity, recovering, unknown_sources, recovered_at, holds, version, created_at, updated_at
         from ipledger.network`,
  )
  await at.pool.query(
    `insert into ipledger.lease select 'broken', address, seq, pool_id, state, node, confirm_by, available_at from ipledger.lease`,
  )
  await at.advance(5 * MINUTE)
  const { head } = await at.image()
  await assert.rejects(expire(context), /rebuild/)
  assert.deepEqual(await at.told(head), ['lease.reaped 10.0.0.1 NEVER_CONFIRMED'])
})
