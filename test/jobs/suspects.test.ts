/** Leases that nobody lists any more: what is taken back, and what is not (DESIGN §4 "Reap on proof"). */
import { afterAll, describe, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { POLICY } from '../../src/core/policy.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { type AskedSources, createAskedSources, type Declared } from '../../src/liveness/asked.ts'
import type { LookUpReply, Question } from '../../src/liveness/source.ts'
import { claim, fenceNode, release, reserve, resumeHold } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { json, openEndpoint } from '../support/endpoint.ts'
import { INTERVAL } from '../support/intake.ts'
import {
  answering,
  ended,
  GONE,
  HOUR,
  listedAs,
  MINUTE,
  SECOND,
  seenThenMissed,
  useTruth,
  workload,
} from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const verifySuspects = createVerifySuspects({ stayMs: 0 })
const run = (fields: Parameters<typeof truth.context>[0] = {}) => truth.run(verifySuspects, fields)
const OLD = 10 * MINUTE

/** A lease that an enabled source sees, old enough to be judged. */
async function withLease(
  options: {
    readonly count?: number
    readonly kind?: 'push' | 'docker'
    readonly pool?: Parameters<typeof truth.network>[0]
    readonly age?: number
  } = {},
) {
  const { count = 1, kind = 'push', pool = {}, age = OLD } = options
  const network = await truth.network(pool)
  await truth.source(network, 'agent', { kind })
  const owners = Array.from({ length: count }, (_, n) => workload(n))
  const leases: LeaseView[] = []
  for (const of of owners) leases.push(await truth.lease(network, of))
  await truth.past(network, age)
  const entries = leases.map(({ address }, n) => listedAs(address, owners[n]!))
  return { network, leases, lease: leases[0]!, owner: owners[0]!, entries, address: leases[0]!.address }
}

/** The agent reports once more, and answers what it is asked. */
async function answerAll(
  network: string,
  list: Parameters<typeof truth.watch>[2][number],
  reply: LookUpReply,
): Promise<number> {
  await truth.past(network, INTERVAL)
  const { asks } = await truth.watch(network, 'agent', [list], { endedAgo: 0 })
  await truth.answer(network, 'agent', asks, reply)
  return asks.length
}

describe('a lease that its source no longer lists', () => {
  test('is reaped when the source has missed it three times and says that it is gone, and not before', async () => {
    const { network, lease, owner, entries, address } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed(entries, 2), { endedAgo: INTERVAL })
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])

    await truth.watch(network, 'agent', [[]])
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await answerAll(network, [], GONE)).toBe(1)
    expect(await truth.state(network, address)).toBe('ACTIVE')

    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, address)).toBe('FREE')
    const [event] = await truth.events(network, 'lease.reaped')
    expect(event).toMatchObject({
      address,
      actor: 'job:verify-suspects',
      cause: 'PROVEN_ABSENT',
      evidence: {
        reason: 'PROVEN_ABSENT',
        sources: ['agent'],
        proof: {
          cause: 'PROVEN_ABSENT',
          token: lease.fencingToken,
          version: lease.version,
          policy: { misses: POLICY.misses },
          lease: { address, owner: { uid: owner.uid } },
          sources: [
            {
              source: 'agent',
              why: 'SIGHTED',
              epoch: 'e1',
              lookup: { answer: 'gone' },
              about: { uid: owner.uid },
            },
          ],
        },
      },
    })
    const [witness] = (event!.evidence as { proof: { sources: { misses: { head: number }[] }[] } }).proof
      .sources
    expect(witness!.misses.length).toBeGreaterThanOrEqual(3)
    for (const { head } of witness!.misses) expect(head).toBeGreaterThanOrEqual(lease.version)
    // The question went with the lease.
    await run()
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test.each<LookUpReply>([
    { answer: 'live', detail: 'runs' },
    { answer: 'unknown', detail: 'phase Zombie' },
    { answer: 'error', detail: '503' },
    { answer: 'terminal', since: Date.now(), detail: 'ended just now' },
  ])('is kept when the source answers $answer', async (reply) => {
    const { network, entries, address } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    expect(await answerAll(network, [], reply)).toBe(1)
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.state(network, address)).toBe('ACTIVE')
  })

  test('is reaped when it ended longer ago than the grace', async () => {
    const { network, entries, address } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    const since = Date.now() - POLICY.terminalGraceMs - MINUTE
    await answerAll(network, [], { answer: 'terminal', since, detail: 'Succeeded' })
    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, address)).toBe('FREE')
  })

  test('is reaped without a question when the list says that it ended, after the grace (M-06, M-07)', async () => {
    const { network, entries, address } = await withLease()
    const list = entries.map(ended)
    await truth.watch(network, 'agent', seenThenMissed(entries, 3, list))
    expect(await run()).toMatchObject({ reaped: 0 })
    await truth.past(network, POLICY.terminalGraceMs)
    // Silent for as long, the count begins again.
    await truth.watch(network, 'agent', [list, list, list])
    expect(await run()).toMatchObject({ reaped: 1, asked: 0 })
    expect(await truth.state(network, address)).toBe('FREE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test('is kept while it is young', async () => {
    const { network, entries, address } = await withLease({ age: 0 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    expect(await truth.state(network, address)).toBe('ACTIVE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test('is judged by the thresholds of its pool', async () => {
    const { network, entries, address } = await withLease({ pool: { reapPolicy: { misses: 1 } } })
    await truth.watch(network, 'agent', seenThenMissed(entries, 1))
    await run()
    await answerAll(network, [], GONE)
    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, address)).toBe('FREE')
    const [event] = await truth.events(network, 'lease.reaped')
    expect(event!.evidence).toMatchObject({ proof: { policy: { misses: 1 } } })
  })

  test('is not missed by partial reports, nor by a life of the source that is warming up (INV-6, 5.1)', async () => {
    const { network, entries, address } = await withLease()
    await truth.watch(network, 'agent', [entries, entries, entries], { endedAgo: 4 * INTERVAL })
    await truth.watch(network, 'agent', [[], [], []], { complete: false, endedAgo: INTERVAL })
    await run()
    await truth.watch(network, 'agent', [[]], { epoch: 'e2' })
    await run()
    expect(await truth.state(network, address)).toBe('ACTIVE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test('what its source lists is never asked after, run after run', async () => {
    const { network, entries, address } = await withLease({ count: 5 })
    await truth.watch(network, 'agent', [entries, entries, entries, entries, entries, entries])
    for (let i = 0; i < 3; i += 1) expect(await run()).toMatchObject({ reaped: 0, asked: 0 })
    expect(await truth.state(network, address)).toBe('ACTIVE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })
})

describe('several witnesses', () => {
  test('one that still lists it keeps it, one that is silent blocks', async () => {
    const { network, entries, address } = await withLease()
    await truth.source(network, 'other')
    await truth.watch(network, 'other', [entries, entries, entries], { endedAgo: 0 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    await answerAll(network, [], GONE)
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.state(network, address)).toBe('ACTIVE')
  })

  test('paused between verdict and Reap while another source sights it: no reap', async () => {
    const { network, entries, address, lease } = await withLease()
    await truth.source(network, 'other')
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    await answerAll(network, [], GONE)
    let paused = 0
    const submit: typeof truth.ledger.submit = async (command, options) => {
      if (command.type === 'reapProven') {
        paused += 1
        await truth.watch(network, 'other', [entries], { endedAgo: 0 })
      }
      return truth.ledger.submit(command, options)
    }
    expect(await run({ ledger: { ...truth.ledger, submit } })).toMatchObject({ reaped: 0 })
    expect(paused).toBe(1)
    expect(await truth.state(network, address)).toBe('ACTIVE')
    expect(await truth.events(network, 'lease.reaped')).toEqual([])
    // Nor when the other one has lost sight of it again meanwhile: it must be missed anew.
    const [row] = await truth.rows<{ fencing_token: number }>(
      'select fencing_token from ipledger.lease where network_id = $1 and address = $2',
      network,
      address,
    )
    expect(row).toEqual({ fencing_token: lease.fencingToken })
  })

  test('each of them is asked', async () => {
    const { network, entries, address } = await withLease()
    await truth.source(network, 'other')
    for (const source of ['agent', 'other']) {
      await truth.watch(network, source, seenThenMissed(entries, 3))
    }
    await run()
    await truth.past(network, INTERVAL)
    const first = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
    const second = await truth.watch(network, 'other', [[]], { endedAgo: 0 })
    expect([first.asks.length, second.asks.length]).toEqual([1, 1])
    await truth.answer(network, 'agent', first.asks, GONE)
    expect(await run()).toMatchObject({ reaped: 0 })
    await truth.answer(network, 'other', second.asks, GONE)
    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, address)).toBe('FREE')
  })
})

describe('nobody has seen it', () => {
  test('a source that covers it misses it after an hour, if the lease is younger than its enabling', async () => {
    const network = await truth.network()
    const before = await truth.lease(network, workload('before'))
    await truth.source(network, 'agent')
    const after = await truth.lease(network, workload('after'))
    const vm = await truth.lease(network, workload('vm', { kind: 'vm' }))
    await truth.past(network, POLICY.unwitnessedAgeMs - 5 * MINUTE)
    await truth.watch(network, 'agent', [[], [], [], [], []])
    await run()
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
    await truth.past(network, 6 * MINUTE)
    await truth.watch(network, 'agent', [[], [], []])
    await run()
    expect(await answerAll(network, [], GONE)).toBe(1)
    expect(await run()).toMatchObject({ reaped: 1 })
    const states = []
    for (const { address } of [before, after, vm]) states.push(await truth.state(network, address))
    expect(states).toEqual(['ACTIVE', 'FREE', 'ACTIVE'])
  })

  test('a source of another node says nothing about it', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n2' })
    const lease = await truth.lease(network, workload(1), {
      placement: { node: 'n1', boot: 'b1', labels: {} },
    })
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'agent', [[], [], [], [], [], []])
    await run()
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
  })

  test('a witness that Reserve named must miss it, and says that it is gone', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    await truth.source(network, 'other')
    const lease = await truth.lease(network, workload(1), { witness: 'agent' })
    await truth.past(network, OLD)
    await truth.watch(network, 'other', [[], [], [], [], [], []])
    await run()
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
    await truth.watch(network, 'agent', [[], [], [], [], []])
    await run()
    expect(await answerAll(network, [], GONE)).toBe(1)
    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, lease.address)).toBe('FREE')
  })

  test('a network without sources costs a small query (N-05)', async () => {
    const network = await truth.network()
    await truth.lease(network, workload(1))
    await truth.past(network, 2 * HOUR)
    const asked: string[] = []
    const { database: looking } = truth.context()
    const query = (text: string, values?: unknown[]) => {
      if (values?.[0] === network) asked.push(text)
      return looking.query(text, values)
    }
    await run({ database: { query, connect: () => looking.connect() } as unknown as typeof looking })
    expect(asked.length).toBeLessThanOrEqual(2)
  })
})

describe('twice at once', () => {
  test('by two workers: each is asked after once, and reaped once', async () => {
    const { network, entries, leases } = await withLease({ count: 3 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await Promise.all([run(), run()])
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toHaveLength(3)
    expect(await answerAll(network, [], GONE)).toBe(3)
    const done = await Promise.all([run(), run()])
    expect(done[0].reaped! + done[1].reaped!).toBe(3)
    const reaped = await truth.events(network, 'lease.reaped')
    expect(reaped.map(({ address }) => address).sort()).toEqual(leases.map(({ address }) => address).sort())
  })

  test('what happened to the lease after it was judged wins', async () => {
    const { network, entries, lease } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    await answerAll(network, [], GONE)
    const submit: typeof truth.ledger.submit = async (command, options) => {
      if (command.type === 'reapProven') {
        await truth.ledger.accept(release(lease.fencingToken, { network }))
        await truth.ledger.accept(
          reserve({ network, owner: workload('next'), claims: [claim({ pool: 'web' })], confirmed: true }),
        )
      }
      return truth.ledger.submit(command, options)
    }
    expect(await run({ ledger: { ...truth.ledger, submit } })).toMatchObject({ reaped: 0 })
    expect(await truth.events(network, 'lease.reaped')).toEqual([])
    expect(await truth.rows('select 1 from ipledger.lease where network_id = $1', network)).toHaveLength(1)
  })

  test('a stopped worker ends between slices', async () => {
    await withLease()
    expect(await run({ signal: AbortSignal.abort() })).toEqual({})
  })
})

describe('caps', () => {
  test('too many at once are held, and go on when an operator says so', async () => {
    const { network, entries } = await withLease({ count: 40 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    await run()
    expect(await answerAll(network, [], GONE)).toBe(40)
    let sent = 0
    const submit: typeof truth.ledger.submit = (command, options) => {
      if (command.type === 'reapProven') sent += 1
      return truth.ledger.submit(command, options)
    }
    // The source lists nothing any more: of what it lost, more than three are more than a fifth.
    const allowed = POLICY.heldAboveReaps
    expect(await run({ ledger: { ...truth.ledger, submit } })).toMatchObject({ reaped: allowed, held: 1 })
    expect(sent).toBeLessThan(40)
    const held = await truth.events(network, 'reconcile.held')
    expect(held.length).toBeGreaterThanOrEqual(1)
    // Nothing more happens on hold, and nothing is written about it again.
    expect(await run()).toMatchObject({ reaped: 0 })
    expect(await truth.events(network, 'reconcile.held')).toHaveLength(held.length)

    const holds = await truth.rows<{ source_id: string }>(
      'select source_id from ipledger.hold where network_id = $1',
      network,
    )
    for (const { source_id } of holds) {
      await truth.ledger.accept(resumeHold(source_id === '' ? null : source_id, { network }))
    }
    await run()
    await answerAll(network, [], GONE)
    await run()
    expect((await truth.events(network, 'lease.reaped')).length).toBeGreaterThan(allowed)
  })
})

describe('sources that are asked', () => {
  test('are asked here and now', async () => {
    const { network, entries, address, owner } = await withLease({ kind: 'docker' })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    const questions: unknown[] = []
    const asked = answering(async (question) => {
      questions.push(question)
      return GONE
    })
    expect(await run({ asked })).toMatchObject({ asked: 1, reaped: 1 })
    expect(questions).toEqual([{ owner, address, node: '', epoch: 'e1' }])
    expect(await truth.state(network, address)).toBe('FREE')
  })

  test('an engine that was set up anew since its last list knows nothing of it: no reap (5.1)', async () => {
    const { network, lease, entries, address } = await withLease({ kind: 'docker' })
    // Stopped, a container whose address the engine chose is in no list; a look-up finds it.
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    const engine = await openEndpoint()
    let id = 'e2'
    engine.answer(({ path }, response) =>
      path === '/info'
        ? json(response, 200, { ID: id })
        : json(response, 404, { message: `No such container: ${lease.owner!.uid}` }),
    )
    const { hostname, port } = new URL(engine.url)
    const settings = { host: hostname, port: Number(port), network: 'web' }
    const all = createAskedSources({ log: { warn: () => {} }, secrets: {} })
    const asked = { ...all, get: (source: Declared) => all.get({ ...source, settings }) }
    expect(await run({ asked })).toMatchObject({ asked: 1, reaped: 0 })
    expect(await truth.state(network, address)).toBe('ACTIVE')
    // The one that listed it, and has it no more.
    id = 'e1'
    await truth.past(network, MINUTE)
    await truth.watch(network, 'agent', [[], []])
    expect(await run({ asked })).toMatchObject({ asked: 1, reaped: 1 })
    await all.close()
    await engine.close()
  })

  test('what one says of itself stops nobody from being judged', async () => {
    const { network, leases, entries } = await withLease({ kind: 'docker', count: 2 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    const asked = answering(async ({ address }) =>
      address === leases[0]!.address ? { answer: 'live', detail: 'cut\u0000off\ud800' } : GONE,
    )
    expect(await run({ asked })).toMatchObject({ asked: 2, reaped: 1 })
    expect(await truth.state(network, leases[1]!.address)).toBe('FREE')
    expect(
      await truth.rows(
        `select detail from ipledger.lookup where network_id = $1 and answer = 'live'`,
        network,
      ),
    ).toEqual([{ detail: 'cut off\ufffd' }])
  })

  test('that are slow are asked for as long as an answer is fresh, and then what was answered is used', async () => {
    const { network, entries } = await withLease({ kind: 'docker', count: 60 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3, entries.slice(12)))
    const asked = answering(async () => GONE)
    const patience = createVerifySuspects({ stayMs: 0, askForMs: 0 })
    expect(await truth.run(patience, { asked })).toMatchObject({ asked: 8, reaped: 8 })
    expect(await truth.run(patience, { asked })).toMatchObject({ asked: 4, reaped: 4 })
  })

  test('what a run does not get to is asked first by the next, however often others are asked again', async () => {
    const { network, entries } = await withLease({ kind: 'docker', count: 20 })
    await truth.source(network, 'other', { kind: 'docker' })
    for (const source of ['agent', 'other']) await truth.watch(network, source, seenThenMissed(entries, 3))
    const said = new Set<string>()
    // What one says grows old while the other gives no clear answer.
    const answer = async (id: string, { owner: { uid } }: Question): Promise<LookUpReply> => {
      if (id === 'other') return { answer: 'unknown', detail: '' }
      said.add(uid)
      return GONE
    }
    const asked: AskedSources = {
      get: (source) => answering((question) => answer(source.id, question)).get(source),
      close: async () => {},
    }
    const patience = createVerifySuspects({ stayMs: 0, askForMs: 0 })
    for (let turn = 0; turn < 3; turn += 1) {
      await truth.run(patience, { asked })
      await truth.past(network, 2 * MINUTE)
      for (const source of ['agent', 'other']) await truth.watch(network, source, [[], [], []])
    }
    expect(said.size).toBe(20)
  })

  test('that answer live keep it, and are asked again only after a while', async () => {
    const { network, entries, address } = await withLease({ kind: 'docker' })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    const asked = answering(async () => ({ answer: 'live', detail: 'runs' }))
    expect(await run({ asked })).toMatchObject({ asked: 1, reaped: 0 })
    expect(await run({ asked })).toMatchObject({ asked: 0, reaped: 0 })
    expect(await truth.state(network, address)).toBe('ACTIVE')
  })

  test('failing for ever keeps it for ever, and nothing grows', async () => {
    const { network, entries, address } = await withLease({ kind: 'docker' })
    let failures = 0
    const asked = answering(async () => {
      failures += 1
      throw new Error('connection refused')
    })
    for (let i = 0; i < 14; i += 1) {
      await truth.watch(network, 'agent', i === 0 ? seenThenMissed(entries, 3) : [[], [], [], []])
      expect(await run({ asked })).toMatchObject({ asked: 1 })
      // Not again at once.
      expect(await run({ asked })).toMatchObject({ asked: 0 })
      await truth.past(network, POLICY.longestLookUpRetryMs + MINUTE)
    }
    expect(failures).toBe(14)
    expect(await truth.state(network, address)).toBe('ACTIVE')
    const rows = await truth.rows<{ attempts: number; answer: string; detail: string }>(
      'select attempts, answer, detail from ipledger.lookup where network_id = $1',
      network,
    )
    expect(rows).toEqual([{ attempts: POLICY.lookUpAttempts, answer: 'error', detail: 'connection refused' }])
    // Back again, it is as ever.
    await truth.watch(network, 'agent', [[], [], [], []])
    expect(await run({ asked: answering(async () => GONE) })).toMatchObject({ reaped: 1 })
  })

  test('at most eight questions at a time, each for no longer than its time', async () => {
    const { network, entries } = await withLease({ kind: 'docker', count: 12 })
    await truth.watch(network, 'agent', seenThenMissed(entries, 3))
    let now = 0
    let most = 0
    const asked = answering(async (_question, signal) => {
      now += 1
      most = Math.max(most, now)
      // It never answers.
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
      now -= 1
      throw signal.reason
    })
    await run({ asked })
    expect(most).toBe(POLICY.lookUpsAtOnce)
    const answers = await truth.rows<{ answer: string; count: number }>(
      'select answer, count(*) as count from ipledger.lookup where network_id = $1 group by 1',
      network,
    )
    expect(answers).toEqual([{ answer: 'error', count: 12 }])
    expect(await truth.events(network, 'lease.reaped')).toEqual([])
  }, 30_000)
})

describe('boots', () => {
  const onNode = { placement: { node: 'n1', boot: 'b1', labels: {} } }

  async function rebooted(bootEndsAll: boolean) {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n1', bootEndsAll })
    const lease = await truth.lease(network, workload(1), onNode)
    await truth.past(network, OLD)
    const entries = [listedAs(lease.address, workload(1))]
    await truth.watch(network, 'agent', [entries, entries, entries], { epoch: 'b1' })
    await truth.past(network, 2 * INTERVAL)
    return { network, address: lease.address }
  }

  test('a new boot ends what the old one ran, once it is warm and the source agrees', async () => {
    const { network, address } = await rebooted(true)
    // Its list grows at first, so that it takes three looks to be warm; what the old boot ran is in none of them.
    const [x, y] = ['10.9.0.1', '10.9.0.2'].map((one, n) => listedAs(one, workload(`host-${n}`)))
    for (const list of [[x!], [x!, y!]]) {
      await truth.watch(network, 'agent', [list], { epoch: 'b2', endedAgo: 0 })
      await run()
      expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
      await truth.past(network, INTERVAL)
    }
    const both = [x!, y!]
    await truth.watch(network, 'agent', [both], { epoch: 'b2', endedAgo: 0 })
    await run()
    await truth.past(network, SECOND)
    const { asks } = await truth.watch(network, 'agent', [both], { epoch: 'b2', endedAgo: 0 })
    expect(asks).toHaveLength(1)
    await truth.answer(network, 'agent', asks, GONE, 'b2')
    expect(await run()).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, address)).toBe('FREE')
    expect((await truth.events(network, 'lease.reaped'))[0]).toMatchObject({ cause: 'PREVIOUS_BOOT' })
  })

  test('not where the source does not declare that boots do', async () => {
    const { network, address } = await rebooted(false)
    await truth.watch(network, 'agent', [[], []], { epoch: 'b2' })
    await run()
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
    expect(await truth.state(network, address)).toBe('ACTIVE')
  })
})

describe('fences', () => {
  const at = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })

  test('free the leases of the fenced boot, though it listed them last, and no others', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n1' })
    await truth.source(network, 'migrated', { node: 'n2' })
    const owners = ['a', 'b', 'c'].map((n) => workload(n))
    const [fenced, moved, elsewhere] = [
      await truth.lease(network, owners[0]!, at('n1', 'b1')),
      await truth.lease(network, owners[1]!, at('n1', 'b1')),
      await truth.lease(network, owners[2]!, at('n2', 'b9')),
    ]
    await truth.past(network, OLD)
    const both = [listedAs(fenced.address, owners[0]!), listedAs(moved.address, owners[1]!)]
    await truth.watch(network, 'agent', [both, both, both], { epoch: 'b1' })
    const there = [listedAs(moved.address, owners[1]!)]
    await truth.watch(network, 'migrated', [there, there, there], { epoch: 'b9' })
    await truth.past(network, INTERVAL)
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    const younger = await truth.lease(network, workload('d'), at('n1', 'b1'))
    expect(await run()).toMatchObject({ reaped: 1 })
    const states = []
    for (const { address } of [fenced, moved, elsewhere, younger])
      states.push(await truth.state(network, address))
    expect(states).toEqual(['FREE', 'ACTIVE', 'ACTIVE', 'ACTIVE'])
    expect((await truth.events(network, 'lease.reaped'))[0]).toMatchObject({ cause: 'FENCED' })
  })
})

test('a run that stays for answers uses them as they come', async () => {
  const { network, entries, address } = await withLease()
  await truth.watch(network, 'agent', seenThenMissed(entries, 3))
  const over = new AbortController()
  const done = truth.run(createVerifySuspects({ stayMs: 60_000 }), { signal: over.signal })
  const asks = await waitFor(async () => {
    const rows = await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)
    if (rows.length === 0) return undefined
    return (await truth.watch(network, 'agent', [[]], { endedAgo: 0 })).asks
  })
  await truth.answer(network, 'agent', asks, GONE)
  await waitFor(async () => ((await truth.state(network, address)) === 'FREE' ? true : undefined))
  over.abort()
  expect((await done).reaped).toBe(1)
}, 40_000)
