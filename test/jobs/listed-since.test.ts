/**
 * What a source goes on listing in reports that end nothing: with holes, while it warms up, or without a token. They write
 * nothing down for an entry that stays, and all the same it is not handed out, nor taken back (DESIGN §4: partial evidence
 * only protects).
 */
import { afterAll, describe, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { reportSnapshot } from '../../src/liveness/report.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { claim, expire, fenceNode, release, removed, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, NOTHING_SEEN, settled } from '../support/intake.ts'
import {
  ended,
  GONE,
  listedAs,
  MINUTE,
  SECOND,
  seenThenMissed,
  useTruth,
  workload,
} from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const verify = createVerifySuspects({ stayMs: 0 })
const processed = createProcessSnapshots()
afterAll(() => expectVerified(database, { full: true }))

const W = workload('w')

/** So that an address has no other to be given instead: two leases, and W has the first. */
async function small(): Promise<{ network: string; x: LeaseView; list: readonly GivenEntry[] }> {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: 5 * MINUTE })
  await truth.source(network, 'agent')
  const x = await truth.lease(network, W)
  expect(x.address).toBe('10.0.0.1')
  await truth.lease(network, workload('filler'))
  return { network, x, list: [listedAs(x.address, W)] }
}

const give = (network: string) =>
  truth.ledger.submit(
    reserve({ network, owner: workload('newcomer'), claims: [claim({ pool: 'web' })], confirmed: true }),
  )

async function givenTo(network: string): Promise<string> {
  const outcome = await give(network)
  return outcome.ok ? outcome.answer.leases[0]!.address : outcome.refusal.reason
}

/** A report that nothing proves the beginning of. */
async function withoutToken(network: string, entries: readonly GivenEntry[]): Promise<void> {
  settled(
    await reportSnapshot(truth.intake, {
      network,
      source: 'agent',
      token: '',
      epoch: 'e1',
      complete: true,
      content: { entries },
      chunk: null,
      quoted: NOTHING_SEEN,
    }),
  )
}

const grown = (count: number) =>
  Array.from({ length: count }, (_, n) => listedAs(`10.9.0.${n + 1}`, workload(`grow-${n}`)))

/** Reports that list what they are given and end nothing, the `n`th of them. */
const REPORTS: readonly (readonly [
  string,
  string,
  (network: string, list: readonly GivenEntry[], n: number) => Promise<unknown>,
])[] = [
  [
    'with holes',
    'DECLARED',
    (network, list) => truth.watch(network, 'agent', [list], { endedAgo: 0, complete: false }),
  ],
  [
    'of a source that warms up and grows',
    'WARMING_UP',
    (network, list, n) =>
      truth.watch(network, 'agent', [[...list, ...grown(n)]], { endedAgo: 0, epoch: 'e2' }),
  ],
  ['without a token', 'NO_TOKEN', (network, list) => withoutToken(network, list)],
]

describe('an address that was released and goes on being listed', () => {
  test.each(REPORTS)(
    '%s, is not handed out; a person is told why; the next complete list decides',
    async (_what, told, report) => {
      const { network, x, list } = await small()
      await truth.watch(network, 'agent', [list, list, list], { endedAgo: 0 })
      await truth.past(network, INTERVAL)
      await truth.ledger.accept(release(x.fencingToken, { network }))
      for (let n = 1; n <= 14; n += 1) {
        await truth.past(network, INTERVAL)
        await report(network, list, n)
        await truth.run(processed)
      }
      expect(await givenTo(network)).toBe('POOL_EXHAUSTED')
      expect(await truth.state(network, x.address)).toBe('FREE')
      const found = settled(
        await listStuck(truth.connections, {
          network,
          codes: ['SIGHTING_NOT_RECORDED'],
          after: null,
          limit: 100,
        }),
      )
      expect(found.stuck.map(({ source, text }) => ({ source, text }))).toEqual([
        { source: 'agent', text: expect.stringMatching(new RegExp(`at 10\\.0\\.0\\.1.*${told}`)) },
      ])
      for (let n = 0; n < 2; n += 1) {
        await truth.past(network, INTERVAL)
        await truth.watch(network, 'agent', [[...list, ...grown(14)]], {
          endedAgo: 0,
          epoch: told === 'WARMING_UP' ? 'e2' : 'e1',
        })
      }
      await truth.run(processed)
      // So long after the release, that is its owner once more.
      expect((await truth.events(network, 'lease.adopted'))[0]).toMatchObject({ address: x.address })
    },
  )

  test('only in the lists of before is free again: silence is no news', async () => {
    const { network, x, list } = await small()
    await truth.watch(network, 'agent', [list, list, list], { endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.ledger.accept(release(x.fencingToken, { network }))
    await truth.past(network, 6 * MINUTE)
    expect(await givenTo(network)).toBe(x.address)
  })
})

test('what appears in a report without a token is newer than whatever the books say', async () => {
  const { network, x } = await small()
  await truth.watch(network, 'agent', [[], [], []], { endedAgo: 0 })
  await truth.ledger.accept(release(x.fencingToken, { network }))
  await truth.past(network, INTERVAL)
  await withoutToken(network, [listedAs(x.address, W)])
  await truth.past(network, 6 * MINUTE)
  expect(await givenTo(network)).toBe('POOL_EXHAUSTED')
})

test('a reservation that is listed in part does not expire, though it was listed before it was made', async () => {
  const { network, x, list } = await small()
  await truth.watch(network, 'agent', [list, list, list], { endedAgo: 0 })
  const life = workload('w', { incarnation: 'life-2' })
  const next = await truth.ledger.take(
    reserve({
      network,
      owner: life,
      claims: [claim({ pool: 'web', preferPrevious: true })],
      supersedes: removed({ incarnation: 'life-w' }),
      confirmWithinMs: MINUTE,
    }),
  )
  expect(next.address).toBe(x.address)
  await truth.past(network, INTERVAL)
  await truth.watch(network, 'agent', [list], { endedAgo: 0, complete: false })
  await truth.past(network, 10 * MINUTE)
  const refused = await truth.ledger.refuse(
    expire(next.fencingToken, next.version, { network }),
    'ILLEGAL_STATE',
  )
  expect(refused.metadata.seenBy).toBe('agent')
})

describe('a boot that was fenced and reports again', () => {
  async function fencedNode(warm: boolean) {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n1' })
    const x = await truth.lease(network, W, { placement: { node: 'n1', boot: 'b1', labels: {} } })
    await truth.past(network, 10 * MINUTE)
    const list = [listedAs(x.address, W)]
    await truth.watch(network, 'agent', warm ? [list, list, list] : [list], { epoch: 'b1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    return { network, x, list }
  }
  const fence = async (network: string) => {
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await truth.past(network, INTERVAL)
  }

  test.each([
    ['completely', true, true],
    ['in part', true, false],
    ['completely, and warms up', false, true],
    ['in part, and warms up', false, false],
  ])('%s, keeps what it lists', async (_what, warm, complete) => {
    const { network, x, list } = await fencedNode(warm)
    await fence(network)
    for (let n = 1; n <= 4; n += 1) {
      await truth.watch(network, 'agent', [[...list, ...(warm ? [] : grown(n))]], {
        epoch: 'b1',
        endedAgo: 0,
        complete,
      })
      await truth.past(network, INTERVAL)
    }
    await truth.run(verify)
    expect(await truth.state(network, x.address)).toBe('ACTIVE')
  })

  test.each([
    ['completely', true, true],
    ['in part', true, false],
    ['completely, and warmed up', false, true],
  ])('not, having reported %s before: what it listed goes', async (_what, warm, complete) => {
    const { network, x, list } = await fencedNode(warm)
    await truth.watch(network, 'agent', [[...list, ...(warm ? [] : grown(1))]], {
      epoch: 'b1',
      endedAgo: 0,
      complete,
    })
    await truth.past(network, INTERVAL)
    await fence(network)
    await truth.run(verify)
    expect(await truth.state(network, x.address)).toBe('FREE')
    expect((await truth.events(network, 'lease.reaped'))[0]).toMatchObject({
      address: x.address,
      cause: 'FENCED',
    })
  })

  test('between the verdict and the reap: under the lock nothing is taken', async () => {
    const { network, x, list } = await fencedNode(true)
    await fence(network)
    const refusals = await reportingLate(network, list)
    expect(await truth.state(network, x.address)).toBe('ACTIVE')
    expect(refusals).toEqual([['ILLEGAL_STATE', 'is seen live by agent']])
  })

  // What the boot did not list, or does not list any more, is on it all the same (6.3).
  const unlisted = async () => {
    const { network, x, list } = await fencedNode(true)
    const y = await truth.lease(network, workload('y'), { placement: { node: 'n1', boot: 'b1', labels: {} } })
    await fence(network)
    return { network, x, y, list }
  }

  test('listing a part of what it had, keeps all of it', async () => {
    const { network, x, y, list } = await unlisted()
    await truth.watch(network, 'agent', [list], { epoch: 'b1', endedAgo: 0 })
    await truth.run(verify)
    expect(await truth.state(network, y.address)).toBe('ACTIVE')
    expect(await truth.state(network, x.address)).toBe('ACTIVE')
    // Whoever says it again knows that it reported.
    await truth.past(network, INTERVAL)
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await truth.run(verify)
    expect(await truth.state(network, y.address)).toBe('FREE')
  })

  test('listing nothing, between the verdict and the reap: under the lock nothing is taken', async () => {
    const { network, x, y } = await unlisted()
    const refusals = await reportingLate(network, [])
    expect(await truth.state(network, y.address)).toBe('ACTIVE')
    expect(await truth.state(network, x.address)).toBe('ACTIVE')
    expect(refusals).toContainEqual([
      'VERSION_MISMATCH',
      'boot b1 of n1, which was fenced, has reported since',
    ])
  })

  /** Just before each reap the boot reports, in part; why each was refused. */
  async function reportingLate(network: string, list: readonly GivenEntry[]) {
    const refusals: (readonly [reason: string, why: string])[] = []
    const late: Pick<typeof truth.ledger, 'submit'> = {
      submit: async (command, options) => {
        if (command.type !== 'reapProven') return truth.ledger.submit(command, options)
        await truth.watch(network, 'agent', [list], { epoch: 'b1', endedAgo: 0, complete: false })
        const outcome = await truth.ledger.submit(command, options)
        if (!outcome.ok) {
          const { reason, message } = outcome.refusal
          refusals.push([reason, /is seen live by \w+|boot .* since/.exec(message)?.[0] ?? message])
        }
        return outcome
      },
    }
    await truth.run(verify, { ledger: { ...truth.ledger, ...late } })
    return refusals
  }
})

describe('a life that is followed by another at its address', () => {
  async function handedOn() {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const one = workload('w', { incarnation: 'life-1' })
    const x = await truth.lease(network, one)
    await truth.past(network, 10 * MINUTE)
    const list = [listedAs(x.address, one)]
    await truth.watch(network, 'agent', [list, list, list], { endedAgo: 0 })
    await truth.past(network, INTERVAL)
    const two = workload('w', { incarnation: 'life-2' })
    const next = await truth.ledger.take(
      reserve({
        network,
        owner: two,
        claims: [claim({ pool: 'web', preferPrevious: true })],
        supersedes: removed({ incarnation: 'life-1' }),
      }),
    )
    expect(next).toMatchObject({ address: x.address, state: 'RESERVED' })
    await truth.past(network, SECOND)
    return { network, next, list }
  }
  const looksOn = async (network: string, list: readonly GivenEntry[], count: number) => {
    for (let n = 0; n < count; n += 1) {
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [list], { endedAgo: 0 })
    }
  }
  const asks = (network: string) => truth.rows('select 1 from ipledger.lookup where network_id = $1', network)

  test('is listed as ended, which is no end of the other: it is starting, and is not even asked after', async () => {
    const { network, next, list } = await handedOn()
    const dead = list.map(ended)
    await looksOn(network, dead, 12)
    await truth.run(verify)
    expect(await truth.state(network, next.address)).toBe('RESERVED')
    expect(await asks(network)).toEqual([])
  })

  test('vanishes, which makes no witness of the other: it has the hour of one that was never seen', async () => {
    const { network, next, list } = await handedOn()
    await looksOn(network, list, 1)
    await looksOn(network, [], 13)
    await truth.run(verify)
    expect(await asks(network)).toEqual([])
    expect(await truth.state(network, next.address)).toBe('RESERVED')
  })

  test('that is listed still, keeps the address', async () => {
    const { network, next, list } = await handedOn()
    await looksOn(network, list, 20)
    await truth.run(verify)
    expect(await truth.state(network, next.address)).toBe('RESERVED')
    expect(await asks(network)).toEqual([])
  })

  test('of which a source tells no lives, is missed as before', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const x = await truth.lease(network, W)
    await truth.past(network, 10 * MINUTE)
    const untold = [listedAs(x.address, W, { incarnation: '' })]
    await truth.watch(network, 'agent', seenThenMissed(untold, 3), { endedAgo: 0 })
    await truth.run(verify)
    await truth.past(network, SECOND)
    const { asks: asked } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
    await truth.answer(network, 'agent', asked, GONE)
    await truth.run(verify)
    expect(await truth.state(network, x.address)).toBe('FREE')
  })
})
