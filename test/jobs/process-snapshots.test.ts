/** What sources list and the books do not say: brought before the ledger, at once and again and again. */
import { afterAll, describe, expect, test } from 'vitest'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { enableSource } from '../../src/liveness/register.ts'
import { sightNews } from '../../src/liveness/sighted.ts'
import type { LookUpReply } from '../../src/liveness/source.ts'
import { claim, createPool, owner, release, releaseOf, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { ended, GONE, HOUR, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const run = (fields: Parameters<typeof truth.context>[0] = {}) => truth.run(createProcessSnapshots(), fields)

const A = workload('a')
const B = workload('b')

async function withAgent(pool: Parameters<typeof truth.network>[0] = {}): Promise<string> {
  const network = await truth.network(pool)
  await truth.source(network, 'agent')
  return network
}

/** A ledger that counts what it is asked. */
function counting() {
  const asked: number[] = []
  const submit: typeof truth.ledger.submit = (command, options) => {
    if (command.type === 'sight') asked.push(command.entries.length)
    return truth.ledger.submit(command, options)
  }
  return { asked, ledger: { ...truth.ledger, submit } }
}

describe('what follows', () => {
  test('a reservation that is seen for its owner is confirmed', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A, { confirmed: false })
    await truth.watch(network, 'agent', [[listedAs(lease.address, A)]], { endedAgo: 0 })
    expect(await run()).toEqual({ confirmed: 1 })
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
    expect((await truth.events(network, 'lease.confirmed'))[0]).toMatchObject({
      actor: 'job:process-snapshots',
      cause: 'SIGHTED',
      evidence: { source: 'agent', epoch: 'e1' },
    })
  })

  test('a free address that is seen live is adopted for whoever uses it', async () => {
    const network = await withAgent()
    await truth.watch(network, 'agent', [[listedAs('10.0.0.50', A)]], { endedAgo: 0 })
    expect(await run()).toEqual({ adopted: 1 })
    expect(await truth.state(network, '10.0.0.50')).toBe('ACTIVE')
  })

  test('somebody else’s is a conflict, somebody unknown’s is foreign, one that ended is nothing', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const list = [
      listedAs(lease.address, B),
      listedAs('10.0.0.60', null),
      ended(listedAs('10.0.0.61', workload('c'))),
    ]
    await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    expect(await run()).toEqual({ conflict: 1, foreign: 1 })
    expect(await truth.state(network, lease.address)).toBe('CONFLICT')
    expect(await truth.state(network, '10.0.0.60')).toBe('FOREIGN')
    expect(await truth.state(network, '10.0.0.61')).toBe('FREE')
  })

  test('a list that was begun before the address was given back changes nothing (whereabouts#208)', async () => {
    const network = await withAgent({ cooldownMs: HOUR })
    const lease = await truth.lease(network, A)
    await truth.watch(network, 'agent', [[listedAs(lease.address, A)]], { endedAgo: 0 })
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    const { asked, ledger } = counting()
    expect(await run({ ledger })).toEqual({})
    expect(asked).toEqual([])
    expect(await truth.state(network, lease.address)).toBe('FREE')
    // The next ones that still show it are of the books as they are.
    await truth.past(network, 2 * INTERVAL)
    await truth.watch(network, 'agent', [[listedAs(lease.address, A)], [listedAs(lease.address, A)]], {
      endedAgo: 0,
    })
    expect(await run()).toEqual({ released_but_live: 1 })
  })

  test('inside a delegated block it is the block’s, unless it is on another node', async () => {
    const network = await withAgent({ cidr: '10.0.0.0/20', prefixLength: 28 })
    const block = await truth.lease(network, A, {
      confirmed: false,
      placement: { node: 'n1', boot: '', labels: {} },
    })
    const inside = (last: number, node: string) => listedAs(`10.0.0.${last}`, workload(last), { node })
    await truth.watch(network, 'agent', [[inside(3, 'n1')]], { endedAgo: 0 })
    expect(await run()).toEqual({ confirmed: 1 })
    expect(await truth.state(network, block.address)).toBe('ACTIVE')
    const { asked, ledger } = counting()
    await truth.watch(network, 'agent', [[inside(3, 'n1'), inside(4, 'n1')]], { endedAgo: 0 })
    expect(await run({ ledger })).toEqual({})
    expect(asked).toEqual([])
    await truth.watch(network, 'agent', [[inside(3, 'n1'), inside(5, 'n2')]], { endedAgo: 0 })
    expect(await run()).toEqual({ conflict: 1 })
    expect(await truth.state(network, block.address)).toBe('CONFLICT')
  })
})

describe('inside a block that nobody holds (12.1)', () => {
  const P1 = workload('p1')
  const P2 = workload('p2')
  const inside = (last: number, of: typeof P1) => listedAs(`10.0.0.${last}`, of, { interface: 'eth0' })

  test('it is set aside, for as long as any guest is listed, and until each of them is gone', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/24', prefixLength: 28 })
    await truth.source(network, 'n1', { node: 'n1' })
    const both = [inside(17, P1), inside(18, P2)]
    await truth.watch(network, 'n1', [both, both, both], { epoch: 'b1' })
    expect(await run()).toEqual({ foreign: 1 })
    expect(await truth.state(network, '10.0.0.16')).toBe('FOREIGN')
    // Neither is its holder, so that neither releases it.
    expect(await truth.ledger.submit(releaseOf(P1, { network }))).toMatchObject({ ok: true })
    expect(await truth.state(network, '10.0.0.16')).toBe('FOREIGN')
    const node = owner({ kind: 'vm', name: 'n1', uid: 'node-1' })
    expect(await truth.lease(network, node)).toMatchObject({ address: '10.0.0.0', prefixLength: 28 })

    const clear = createClearQuarantine()
    const looks = async (left: typeof both, answer: LookUpReply) => {
      for (let look = 0; look < 5; look += 1) {
        await truth.past(network, INTERVAL)
        const { asks } = await truth.watch(network, 'n1', [left], { epoch: 'b1', endedAgo: 0 })
        await truth.answer(network, 'n1', asks, answer, 'b1')
        await truth.run(clear)
      }
    }
    await truth.past(network, 10 * MINUTE)
    await looks([inside(18, P2)], GONE)
    expect(await truth.state(network, '10.0.0.16')).toBe('FOREIGN')
    // Its lists lag: who is asked after lives.
    await looks([], { answer: 'live', detail: 'running' })
    expect(await truth.state(network, '10.0.0.16')).toBe('FOREIGN')
    await looks([], GONE)
    expect(await truth.state(network, '10.0.0.16')).toBe('FREE')
    expect((await truth.events(network, 'lease.adopted')).length).toBe(0)
  })
})

describe('again and again', () => {
  test('what the books say already is asked about no more', async () => {
    const network = await withAgent()
    const owners = Array.from({ length: 20 }, (_, n) => workload(n))
    const leases = []
    for (const of of owners) leases.push(await truth.lease(network, of))
    const list = leases.map(({ address }, n) => listedAs(address, owners[n]!))
    await truth.watch(network, 'agent', [list, list, list], { endedAgo: 0 })
    const { asked, ledger } = counting()
    for (let i = 0; i < 3; i += 1) expect(await run({ ledger })).toEqual({})
    expect(asked).toEqual([])
  })

  test('a source that names nobody by uid is no conflict, and no work', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const list = [{ address: lease.address, kind: A.kind, name: A.name }]
    await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    const { asked, ledger } = counting()
    expect(await run({ ledger })).toEqual({})
    expect(asked).toEqual([])
    expect(await truth.state(network, lease.address)).toBe('ACTIVE')
  })

  test('twice at once: adopted once', async () => {
    const network = await withAgent()
    const list = Array.from({ length: 30 }, (_, n) => listedAs(`10.0.0.${n + 100}`, workload(n)))
    await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    const done = await Promise.all([run(), run()])
    expect((done[0].adopted ?? 0) + (done[1].adopted ?? 0)).toBe(30)
    expect(await truth.events(network, 'lease.adopted')).toHaveLength(30)
  })

  test('more than a command takes', async () => {
    const network = await withAgent({ cidr: '10.0.0.0/20' })
    const at = (n: number) => `10.0.${1 + Math.floor(n / 200)}.${n % 200}`
    const list = Array.from({ length: 1_201 }, (_, n) => listedAs(at(n), workload(n)))
    await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    const { asked, ledger } = counting()
    expect(await run({ ledger })).toEqual({ adopted: 1_201 })
    expect(asked).toEqual([500, 500, 201])
  })

  test('a pool that is made later finds what is seen there', async () => {
    const network = await withAgent()
    await truth.watch(network, 'agent', [[listedAs('10.9.0.5', A)]], { endedAgo: 0 })
    expect(await run()).toEqual({})
    await truth.ledger.accept(
      createPool({ name: 'later', cidr: '10.9.0.0/24', cooldownMs: HOUR }, { network }),
    )
    // Begun before the pool was made, the list is still of an address that nothing has happened to.
    expect(await run()).toEqual({ adopted: 1 })
    expect(await truth.state(network, '10.9.0.5')).toBe('ACTIVE')
  })

  test('nothing follows from a source in dry run, and all of it once it is enabled', async () => {
    const network = await truth.network()
    await register(truth.intake, network, 'agent')
    await truth.watch(network, 'agent', [[listedAs('10.0.0.70', A)]], { endedAgo: 0 })
    expect(await run()).toEqual({})
    const lease = await truth.ledger.take(
      reserve({ network, owner: B, claims: [claim({ pool: 'web', address: null })] }),
    )
    expect(lease.address).not.toBe('10.0.0.70')
    settled(await enableSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    expect(await run()).toEqual({ adopted: 1 })
  })

  test('in a run that the ledger refuses, the rest is left to the next', async () => {
    const network = await withAgent()
    await truth.watch(network, 'agent', [[listedAs('10.0.0.80', A)]], { endedAgo: 0 })
    const overloaded: typeof truth.ledger.submit = async () => ({
      ok: false,
      refusal: { reason: 'OVERLOADED', message: 'busy', metadata: {} },
    })
    expect(await run({ ledger: { ...truth.ledger, submit: overloaded } })).toEqual({})
    expect(await run()).toEqual({ adopted: 1 })
  })
})

describe('the news of a report', () => {
  test('comes before the ledger at once', async () => {
    const network = await withAgent()
    const reported = await truth.watch(network, 'agent', [[listedAs('10.0.0.40', A)]], { endedAgo: 0 })
    expect(reported.news.map(({ address }) => address)).toEqual(['10.0.0.40'])
    expect(
      await sightNews(
        { database: truth.intake.database, ledger: truth.ledger },
        network,
        reported,
        'agent-token',
      ),
    ).toEqual({
      findings: { ADOPTED: 1 },
      refused: null,
    })
    expect((await truth.events(network, 'lease.adopted'))[0]).toMatchObject({
      address: '10.0.0.40',
      actor: 'agent-token',
    })
    await truth.past(network, INTERVAL)
    const again = await truth.watch(network, 'agent', [[listedAs('10.0.0.40', A)]], { endedAgo: 0 })
    expect(again.news).toEqual([])
    expect(
      await sightNews(
        { database: truth.intake.database, ledger: truth.ledger },
        network,
        again,
        'agent-token',
      ),
    ).toEqual({
      findings: {},
      refused: null,
    })
  })

  test('of much that is new, as in a first list, the ledger is asked about what the books do not say', async () => {
    const network = await withAgent({ cidr: '10.8.0.0/20' })
    await truth.source(network, 'other')
    const list = Array.from({ length: 601 }, (_, number) =>
      listedAs(`10.8.${8 + Math.floor(number / 250)}.${1 + (number % 250)}`, workload(`w-${number}`)),
    )
    const first = await truth.watch(network, 'agent', [list.slice(1)], { endedAgo: 0 })
    const { intake, ledger } = truth
    expect(await sightNews({ database: intake.database, ledger }, network, first, 'agent-token')).toEqual({
      findings: { ADOPTED: 600 },
      refused: null,
    })
    const { asked, ledger: counted } = counting()
    const second = await truth.watch(network, 'other', [list], { endedAgo: 0 })
    expect(second.news).toHaveLength(601)
    expect(
      await sightNews({ database: intake.database, ledger: counted }, network, second, 'other-token'),
    ).toEqual({ findings: { ADOPTED: 1 }, refused: null })
    expect(asked).toEqual([1])
    expect(await truth.state(network, '10.8.8.1')).toBe('ACTIVE')
  })

  test('of a source in dry run nothing follows', async () => {
    const network = await truth.network()
    await register(truth.intake, network, 'agent')
    const reported = await truth.watch(network, 'agent', [[listedAs('10.0.0.41', A)]], { endedAgo: 0 })
    expect(
      await sightNews(
        { database: truth.intake.database, ledger: truth.ledger },
        network,
        reported,
        'agent-token',
      ),
    ).toEqual({
      findings: {},
      refused: null,
    })
    expect(await truth.state(network, '10.0.0.41')).toBe('FREE')
  })
})
