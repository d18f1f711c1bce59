/**
 * A worker is stopped (SIGSTOP) in the middle of each job that judges, another takes over, and the first is resumed:
 * nothing is done twice, nothing that changed meanwhile is undone, and nothing stays stuck (16.2, INV-23).
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { afterAll, describe, expect, test } from 'vitest'
import type { Job, JobContext } from '../../src/jobs/job.ts'
import { createPullSources } from '../../src/jobs/pull-sources.ts'
import { createSchedule } from '../../src/jobs/schedule.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { createAskedSources } from '../../src/liveness/asked.ts'
import { createLogger } from '../../src/telemetry.ts'
import { beginEra, confirm, release } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { json, openEndpoint } from '../support/endpoint.ts'
import { INTERVAL, live, pod } from '../support/intake.ts'
import { GONE, HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const DAY = 24 * HOUR
const SCHEDULE: Readonly<Record<string, { readonly run: Job }>> = {
  ...createSchedule(),
  'verify-suspects': { run: createVerifySuspects({ stayMs: 0 }) },
  'pull-sources': { run: createPullSources({ slotMs: 0 }) },
}

/** Runs `meanwhile` while a worker of its own process stands still in the job. What that worker then said it did. */
async function pausedIn(
  name: string,
  where: string,
  network: string,
  meanwhile: () => Promise<unknown>,
): Promise<Readonly<Record<string, unknown>>> {
  const script = new URL('../support/paused-job.ts', import.meta.url).pathname
  const child = spawn(process.execPath, [script, database.serviceUrl, network, name, where], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  try {
    const said = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
    expect((await said.next()).value, `${name} comes to ${where}`).toBe('paused')
    // It says so before it stops: resumed before it stood, it would stand for ever.
    await waitFor(() => isStopped(child.pid!), { what: `${name} to stand still` })
    await meanwhile()
    child.kill('SIGCONT')
    const { value } = await said.next()
    await ended
    return JSON.parse(value!) as Readonly<Record<string, unknown>>
  } finally {
    child.kill('SIGKILL')
  }
}

/** By the state of the process, which stands behind its name in parentheses (proc(5)). */
function isStopped(pid: number): boolean {
  return /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}

const another = (name: string, fields: Partial<JobContext> = {}) => truth.run(SCHEDULE[name]!.run, fields)

async function suspects(count: number) {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const leases = []
  for (let n = 0; n < count; n += 1) leases.push(await truth.lease(network, workload(n)))
  await truth.past(network, 10 * MINUTE)
  const entries = leases.map(({ address }, n) => listedAs(address, workload(n)))
  await truth.watch(network, 'agent', seenThenMissed(entries, 3))
  return { network, leases, entries }
}

async function gone(network: string): Promise<void> {
  await truth.past(network, INTERVAL)
  const { asks } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
  await truth.answer(network, 'agent', asks, GONE)
}

describe.each(['look', 'evidence', 'submit'])('verify-suspects, stopped at %s', (where) => {
  test('each is reaped once', async () => {
    const { network, leases } = await suspects(2)
    await another('verify-suspects')
    await gone(network)
    await pausedIn('verify-suspects', where, network, async () => {
      expect(await another('verify-suspects')).toMatchObject({ reaped: 2 })
    })
    const reaped = await truth.events(network, 'lease.reaped')
    expect(reaped.map(({ address }) => address).sort()).toEqual(leases.map(({ address }) => address).sort())
    expect(await another('verify-suspects')).toMatchObject({ reaped: 0 })
  })

  test('what another source sights meanwhile is not reaped', async () => {
    const { network, leases, entries } = await suspects(1)
    await truth.source(network, 'other')
    await another('verify-suspects')
    await gone(network)
    await pausedIn('verify-suspects', where, network, async () => {
      await truth.watch(network, 'other', [entries], { endedAgo: 0 })
    })
    expect(await truth.state(network, leases[0]!.address)).toBe('ACTIVE')
    expect(await truth.events(network, 'lease.reaped')).toEqual([])
  })
})

test('verify-suspects, stopped before it writes its questions: each is asked once', async () => {
  const { network } = await suspects(3)
  await pausedIn('verify-suspects', 'write', network, async () => {
    await another('verify-suspects')
  })
  expect(await truth.rows('select attempts from ipledger.lookup where network_id = $1', network)).toEqual([
    { attempts: 1 },
    { attempts: 1 },
    { attempts: 1 },
  ])
})

test('process-snapshots: adopted once, and not what was given back meanwhile', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const reserved = await truth.lease(network, workload('reserved'), { confirmed: false })
  const list = [
    listedAs('10.0.0.50', workload(1)),
    listedAs('10.0.0.51', workload(2)),
    listedAs(reserved.address, workload('reserved')),
  ]
  await truth.watch(network, 'agent', [list], { endedAgo: 0 })
  await pausedIn('process-snapshots', 'submit', network, async () => {
    expect(await another('process-snapshots')).toEqual({ adopted: 2, confirmed: 1 })
    const [lease] = await truth.rows<{ fencing_token: number }>(
      `select fencing_token from ipledger.lease where network_id = $1 and address = '10.0.0.51'`,
      network,
    )
    await truth.ledger.accept(release(lease!.fencing_token, { network }))
    await truth.ledger.accept(release(reserved.fencingToken, { network }))
  })
  expect(await truth.events(network, 'lease.adopted')).toHaveLength(2)
  expect(await truth.state(network, '10.0.0.50')).toBe('ACTIVE')
  expect(await truth.state(network, '10.0.0.51')).toBe('FREE')
  expect(await truth.state(network, reserved.address)).toBe('FREE')
})

test('clear-quarantine: ended once', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const lease = await truth.lease(network, workload('q'))
  const entry = listedAs(lease.address, workload('q'))
  await truth.watch(network, 'agent', [[entry], [entry], [entry]])
  await truth.ledger.accept(release(lease.fencingToken, { network, removalConfirmed: false }))
  await truth.past(network, 10 * MINUTE)
  await truth.watch(network, 'agent', [[], [], [], []])
  await another('clear-quarantine')
  await gone(network)
  await pausedIn('clear-quarantine', 'submit', network, async () => {
    expect(await another('clear-quarantine')).toMatchObject({ reaped: 1 })
  })
  expect(await truth.events(network, 'lease.reaped')).toHaveLength(1)
  expect(await truth.state(network, lease.address)).toBe('FREE')
})

test('observe-pools: a minute is sampled once', async () => {
  const network = await truth.network()
  await pausedIn('observe-pools', 'write', network, async () => {
    await another('observe-pools')
  })
  const twice = await truth.rows(
    'select at from ipledger.pool_sample where network_id = $1 group by at having count(*) > 1',
    network,
  )
  expect(twice).toEqual([])
})

test('prune-observations: what is needed stays', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const lease = await truth.lease(network, workload('held'))
  const stray = listedAs('10.0.0.200', workload('stray'))
  const held = listedAs(lease.address, workload('held'))
  await truth.watch(network, 'agent', [[held, stray], [held, stray], [held, stray], []])
  await truth.past(network, 31 * DAY)
  await pausedIn('prune-observations', 'write', network, async () => {
    await another('prune-observations')
  })
  expect(
    await truth.rows('select host(address) as address from ipledger.sighting where network_id = $1', network),
  ).toEqual([{ address: lease.address }])
})

describe('expire-unconfirmed, stopped before its commands', () => {
  async function late() {
    const network = await truth.network({ confirmWithinMs: MINUTE })
    const leases = []
    for (const n of [1, 2]) leases.push(await truth.lease(network, workload(n), { confirmed: false }))
    await truth.past(network, 10 * MINUTE)
    return { network, leases }
  }

  test('each expires once', async () => {
    const { network, leases } = await late()
    const done = await pausedIn('expire-unconfirmed', 'submit', network, async () => {
      expect(await another('expire-unconfirmed')).toEqual({ reaped: 2 })
    })
    expect(done).toEqual({ reaped: 0 })
    const reaped = await truth.events(network, 'lease.reaped')
    expect(reaped.map(({ address }) => address).sort()).toEqual(leases.map(({ address }) => address))
  })

  test('what is confirmed meanwhile does not', async () => {
    const { network, leases } = await late()
    const done = await pausedIn('expire-unconfirmed', 'submit', network, async () => {
      await truth.ledger.accept(confirm(leases[0]!.fencingToken, { network }))
    })
    expect(done).toEqual({ reaped: 1 })
    expect(await truth.state(network, leases[0]!.address)).toBe('ACTIVE')
    expect(await truth.state(network, leases[1]!.address)).toBe('FREE')
  })
})

test('end-recovery: the recovery that it saw is ended once, and not the next one', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  await truth.ledger.accept(beginEra(1, { network }))
  await truth.past(network, INTERVAL)
  await truth.watch(network, 'agent', [[], [], []], { endedAgo: 0 })
  const done = await pausedIn('end-recovery', 'submit', network, async () => {
    expect(await another('end-recovery')).toMatchObject({ ended: 1 })
    await truth.ledger.accept(beginEra(2, { network }))
  })
  expect(done).toMatchObject({ ended: 0 })
  const state = 'select state, era from ipledger.network where network_id = $1'
  expect(await truth.rows(state, network)).toEqual([{ state: 'RECOVERING', era: 2 }])
})

test('pull-sources: what it was told before another asked again ends nothing', async () => {
  const endpoint = await openEndpoint()
  const asked = createAskedSources({ log: createLogger('silent'), secrets: {} })
  const answer = (...entries: ReturnType<typeof pod>[]) =>
    endpoint.answer((_, response) => json(response, 200, { epoch: 'e1', complete: true, entries }))
  const network = await truth.network()
  const settings = { listUrl: `${endpoint.url}/list`, lookUpUrl: `${endpoint.url}/of/{uid}` }
  await truth.source(network, 'urls', { kind: 'http', settings })
  answer(pod('10.0.0.5'))
  await pausedIn('pull-sources', 'listed', network, async () => {
    // Its turn is over: another takes the next one.
    await truth.past(network, 10 * MINUTE)
    answer(pod('10.0.0.6'))
    expect(await another('pull-sources', { asked })).toMatchObject({ pulled: 1 })
    expect(await live(truth.intake, network, 'urls')).toEqual(['10.0.0.6'])
  })
  // It only protects, and the turn of the other one stands.
  expect(await live(truth.intake, network, 'urls')).toEqual(['10.0.0.5', '10.0.0.6'])
  expect(await another('pull-sources', { asked })).toMatchObject({ pulled: 0 })
  await truth.past(network, 10 * MINUTE)
  expect(await another('pull-sources', { asked })).toMatchObject({ pulled: 1 })
  expect(await live(truth.intake, network, 'urls')).toEqual(['10.0.0.6'])
  await asked.close()
  await endpoint.close()
})
