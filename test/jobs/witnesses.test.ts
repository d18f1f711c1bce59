/**
 * Who is a witness of a lease, and what makes an end one: whoever has seen the workload must miss it, whatever it called
 * its life and whatever became of the source; and an end that is listed frees only while its source is to be believed.
 */
import { afterAll, describe, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { beginSnapshot, reportSnapshot } from '../../src/liveness/report.ts'
import type { GivenEntry, LookUpReply } from '../../src/liveness/source.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { claim, fenceNode, owner, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, NOTHING_SEEN, settled, taken } from '../support/intake.ts'
import {
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

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const verify = createVerifySuspects({ stayMs: 0 })
const clear = createClearQuarantine()
const OLD = 10 * MINUTE
const X = '10.0.0.1'
const V = workload('v')
const LIVE: LookUpReply = { answer: 'live', detail: 'running' }
const on = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })
const retire = async (network: string, id: string) =>
  settled(await retireSource(truth.intake.database, { network, id, by: 'test' }))

function repeat<T>(count: number, one: T): readonly T[] {
  return Array.from({ length: count }, () => one)
}

/** Two leases, so that an address has no other to be given instead; V has the first. */
async function small(fields: Parameters<typeof truth.lease>[2] = {}) {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
  const lease = await truth.lease(network, V, fields)
  expect(lease.address).toBe(X)
  await truth.lease(network, workload('filler'))
  return { network, lease, seen: listedAs(X, V) }
}

/** The sources report once more and answer what they are asked, so many times, and each time all is judged. */
async function cycles(
  network: string,
  count: number,
  sources: Readonly<
    Record<
      string,
      {
        readonly list?: readonly GivenEntry[]
        readonly reply?: LookUpReply
        readonly epoch?: string
        readonly complete?: boolean
      }
    >
  >,
): Promise<number> {
  let asked = 0
  for (let cycle = 0; cycle < count; cycle += 1) {
    await truth.past(network, INTERVAL)
    for (const [source, { list = [], reply = GONE, epoch = 'e1', complete = true }] of Object.entries(
      sources,
    )) {
      const { asks } = await truth.watch(network, source, [list], { epoch, complete, endedAgo: 0 })
      asked += await truth.answer(network, source, asks, reply, epoch)
    }
    await truth.run(verify)
    await truth.run(clear)
  }
  return asked
}

/** Whom the address is given to when somebody asks for one; long after everything was judged. */
async function givenTo(network: string): Promise<string> {
  await truth.past(network, OLD + MINUTE)
  const outcome = await truth.ledger.submit(
    reserve({ network, owner: workload('newcomer'), claims: [claim({ pool: 'web' })] }),
  )
  return outcome.ok ? outcome.answer.leases[0]!.address : outcome.refusal.reason
}

async function expectKept(network: string, lease: LeaseView): Promise<void> {
  expect(
    await truth.rows(
      'select fencing_token from ipledger.lease where network_id = $1 and address = $2',
      network,
      X,
    ),
  ).toEqual([{ fencing_token: lease.fencingToken }])
  const reaped = await truth.events(network, 'lease.reaped')
  expect(reaped.filter(({ address }) => address === X)).toEqual([])
  expect(await givenTo(network)).not.toBe(X)
}

async function stuck(network: string) {
  const page = settled(await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 }))
  return page.stuck.map(({ code, source, lease, text }) => ({ code, source, address: lease?.address, text }))
}

describe('an end that is listed', () => {
  async function seenByAgent() {
    const at = await small()
    await truth.source(at.network, 'agent')
    await truth.past(at.network, OLD)
    return at
  }

  test('by complete reports past its grace frees, and nobody is asked (M-06, M-07)', async () => {
    const { network, seen } = await seenByAgent()
    await truth.watch(network, 'agent', seenThenMissed([seen], 3, [ended(seen)]), { endedAgo: 0 })
    expect(await cycles(network, 12, { agent: { list: [ended(seen)] } })).toBe(0)
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('is none while its source is silent', async () => {
    const { network, lease, seen } = await seenByAgent()
    await truth.watch(network, 'agent', seenThenMissed([seen], 3, [ended(seen)]), { endedAgo: 0 })
    await truth.past(network, 3 * HOUR)
    await truth.run(verify)
    await expectKept(network, lease)
  })

  test('is none in reports with holes: its source is asked', async () => {
    const { network, lease, seen } = await seenByAgent()
    await truth.watch(network, 'agent', seenThenMissed([seen], 3), { endedAgo: 0 })
    const partial = { list: [ended(seen)], complete: false, reply: LIVE }
    expect(await cycles(network, 14, { agent: partial })).toBeGreaterThan(0)
    await expectKept(network, lease)
  })

  test('is none from a life of its source that is closed', async () => {
    const { network, lease, seen } = await seenByAgent()
    await truth.watch(network, 'agent', repeat(3, [seen]), { epoch: 'e0', endedAgo: 0 })
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'agent', seenThenMissed([seen], 3), { endedAgo: 0 })
    await truth.past(network, SECOND)
    const late = await truth.watch(network, 'agent', [[ended(seen)]], { epoch: 'e0', endedAgo: 0 })
    expect(late.assessment.because).toEqual(['CLOSED_EPOCH'])
    await truth.past(network, 6 * MINUTE)
    await truth.run(verify)
    await expectKept(network, lease)
  })
})

describe('whoever has seen the owner in another life', () => {
  const elsewhere = listedAs(X, { ...V, incarnation: 'life-on-nb' })

  test('must miss it and say that it is gone: a workload that moved to where its life has another name (16.5)', async () => {
    const { network, lease, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(3, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'nb', repeat(3, [elsewhere]), { epoch: 'b1', endedAgo: 0 })
    await truth.watch(network, 'na', repeat(3, []), { epoch: 'a1', endedAgo: 0 })
    // The index behind nb's list lags.
    await cycles(network, 8, { na: { epoch: 'a1' }, nb: { epoch: 'b1', reply: LIVE } })
    await expectKept(network, lease)
  })

  test('keeps it from a fence of the node it was placed on (16.5)', async () => {
    const { network, lease } = await small(on('na', 'a1'))
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, OLD)
    await truth.watch(network, 'nb', repeat(3, [elsewhere]), { epoch: 'b1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'nb', [[]], { epoch: 'b1', endedAgo: 0 })
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
    await expectKept(network, lease)
  })

  test('and nobody else, frees it by its word, after the long age (W-01, W-03)', async () => {
    const { network, lease } = await small()
    // Enabled later than the lease, it knows it by what it saw.
    await truth.source(network, 'agent')
    await truth.past(network, OLD)
    await truth.watch(network, 'agent', repeat(3, [elsewhere]), { endedAgo: 0 })
    await cycles(network, 8, { agent: {} })
    expect(
      await truth.rows(
        'select fencing_token from ipledger.lease where network_id = $1 and address = $2',
        network,
        X,
      ),
    ).toEqual([{ fencing_token: lease.fencingToken }])
    await truth.past(network, HOUR)
    await cycles(network, 6, { agent: {} })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('does not speak for those that cover this one (16.8)', async () => {
    const { network, lease } = await small(on('nb', 'b1'))
    const other = listedAs(X, { ...V, incarnation: 'life-before' })
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, 2 * HOUR)
    // nb has not reported yet.
    await truth.watch(network, 'na', repeat(3, [other]), { epoch: 'a1', endedAgo: 0 })
    await cycles(network, 8, { na: { epoch: 'a1' } })
    await expectKept(network, lease)
  })
})

describe('a witness that was retired', () => {
  test('can tell no more: nobody who never saw the lease tells for it (16.8)', async () => {
    const { network, lease, seen } = await small()
    await truth.source(network, 'k1')
    await truth.source(network, 'k2')
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'k1', repeat(4, [seen]), { endedAgo: 0 })
    await truth.watch(network, 'k2', repeat(4, []), { endedAgo: 0 })
    await retire(network, 'k1')
    await truth.source(network, 'k1b')
    await cycles(network, 6, { k2: {} })
    expect(await stuck(network)).toContainEqual({
      code: 'NOBODY_CAN_TELL',
      source: 'k1',
      address: X,
      text: expect.stringMatching(
        /k1 has seen .* there and was retired.*; register and enable its successor and let it report/,
      ),
    })
    await expectKept(network, lease)
  })

  test('is followed by whoever sees the lease as well', async () => {
    const { network, seen } = await small()
    await truth.source(network, 'k1')
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'k1', repeat(4, [seen]), { endedAgo: 0 })
    await retire(network, 'k1')
    await truth.source(network, 'k1b')
    await truth.watch(network, 'k1b', repeat(3, [seen]), { endedAgo: 0 })
    await cycles(network, 3, { k1b: { list: [seen] } })
    expect(await truth.state(network, X)).toBe('ACTIVE')
    expect((await stuck(network)).filter(({ address }) => address === X)).toEqual([])
    await cycles(network, 6, { k1b: {} })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  /** It moved from na to nb, which is retired while it lists it; na knew it before. */
  async function moved(fields: { readonly bootEndsAll?: boolean } = {}) {
    const at = await small(on('na', 'a1'))
    const { network, seen } = at
    await truth.source(network, 'na', { node: 'na', ...fields })
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(3, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'nb', repeat(4, [seen]), { epoch: 'b1', endedAgo: 0 })
    await truth.watch(network, 'na', repeat(3, []), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'nb', [[seen]], { epoch: 'b1', endedAgo: 0 })
    await retire(network, 'nb')
    return at
  }

  test('is not replaced by who saw the lease before it went there (16.5, 16.8)', async () => {
    const { network, lease } = await moved()
    await cycles(network, 10, { na: { epoch: 'a1' } })
    expect(await stuck(network)).toContainEqual(
      expect.objectContaining({ code: 'NOBODY_CAN_TELL', source: 'nb', address: X }),
    )
    await expectKept(network, lease)
  })

  test('on another node keeps it from the fence of the one it was placed on (16.5)', async () => {
    const { network, lease } = await moved()
    await truth.past(network, MINUTE)
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
    await expectKept(network, lease)
  })

  test('and from the end of its boot (12.2)', async () => {
    const { network, lease } = await moved({ bootEndsAll: true })
    await truth.past(network, MINUTE)
    await cycles(network, 8, { na: { epoch: 'a2' } })
    await expectKept(network, lease)
  })

  test('is not replaced by one that looks at another node', async () => {
    const { network, lease, seen } = await small()
    await truth.source(network, 'k1')
    await truth.source(network, 'na', { node: 'na' })
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'k1', repeat(4, [seen]), { endedAgo: 0 })
    await truth.watch(network, 'na', repeat(2, [seen]), { epoch: 'a1', endedAgo: 0 })
    await retire(network, 'k1')
    await cycles(network, 2, { na: { list: [seen], epoch: 'a1' } })
    await cycles(network, 8, { na: { epoch: 'a1' } })
    await expectKept(network, lease)
  })

  /** Two that see the whole network; V is old enough to be missed by one that never saw it. */
  async function seenByOne(before?: (network: string) => Promise<unknown>) {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: HOUR })
    await truth.source(network, 'k1')
    await truth.source(network, 'k2')
    const listed = await before?.(network)
    const lease = await truth.lease(network, V)
    expect(lease.address).toBe(X)
    await truth.lease(network, workload('filler'))
    return { network, lease, seen: listedAs(X, V), listed }
  }

  test('has seen it in reports without a token, too', async () => {
    const { network, lease, seen } = await seenByOne()
    await truth.past(network, 2 * HOUR)
    const report = { network, source: 'k1', quoted: NOTHING_SEEN, token: '', epoch: 'e1', complete: true }
    taken(
      settled(await reportSnapshot(truth.intake, { ...report, content: { entries: [seen] }, chunk: null })),
    )
    await truth.watch(network, 'k2', repeat(4, []), { endedAgo: 0 })
    await retire(network, 'k1')
    await cycles(network, 10, { k2: {} })
    await expectKept(network, lease)
  })

  test('has seen it in a report that was begun before the lease, too', async () => {
    const begin = async (network: string) => {
      await truth.watch(network, 'k1', repeat(3, []), { endedAgo: 0 })
      await truth.past(network, INTERVAL)
      return settled(await beginSnapshot(truth.intake, { network, source: 'k1', quoted: NOTHING_SEEN }))
    }
    const { network, lease, seen, listed } = await seenByOne(begin)
    const { token } = listed as Awaited<ReturnType<typeof begin>>
    const report = { network, source: 'k1', quoted: NOTHING_SEEN, token, epoch: 'e1', complete: true }
    const { assessment } = taken(
      settled(await reportSnapshot(truth.intake, { ...report, content: { entries: [seen] }, chunk: null })),
    )
    expect(assessment.complete).toBe(true)
    await retire(network, 'k1')
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'k2', repeat(4, []), { endedAgo: 0 })
    await cycles(network, 10, { k2: {} })
    await expectKept(network, lease)
  })

  test('keeps it with whom it listed there to the end and could not name', async () => {
    const { network, lease, seen } = await seenByOne()
    await truth.past(network, OLD)
    await truth.watch(network, 'k1', repeat(4, [{ address: X }]), { endedAgo: 0 })
    await truth.watch(network, 'k2', repeat(4, [seen]), { endedAgo: 0 })
    await retire(network, 'k1')
    await cycles(network, 10, { k2: {} })
    expect(await stuck(network)).toContainEqual(
      expect.objectContaining({ code: 'NOBODY_CAN_TELL', source: 'k1', address: X }),
    )
    await expectKept(network, lease)
  })

  test('is not needed for a fence', async () => {
    const { network, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na' })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, MINUTE)
    await retire(network, 'na')
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('ACTIVE')
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('FREE')
  })
})

describe('what a caller saw', () => {
  async function seenByCaller() {
    const network = await truth.network({ cidr: '10.0.0.0/24', cooldownMs: OLD })
    await truth.source(network, 'c')
    await truth.source(network, 'd')
    for (const source of ['c', 'd']) await truth.watch(network, source, repeat(3, []), { endedAgo: 0 })
    const other = await truth.lease(network, workload('w'), { liveAddresses: [X] })
    expect(other.address).not.toBe(X)
    await truth.past(network, OLD)
    return network
  }
  const someone = listedAs(X, workload('x'))

  test('each source that covers the network must miss, whoever saw it since (DESIGN §3)', async () => {
    const network = await seenByCaller()
    await truth.watch(network, 'c', repeat(3, [someone]), { endedAgo: 0 })
    await cycles(network, 8, { c: {} })
    expect(await truth.state(network, X)).toBe('SEEN_BY_CALLER')
    expect(await stuck(network)).toContainEqual(
      expect.objectContaining({ code: 'PROOF_BLOCKED', source: 'd', address: X }),
    )
    await cycles(network, 8, { c: {}, d: {} })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('and they tell where only a node has seen somebody', async () => {
    const network = await seenByCaller()
    await truth.source(network, 'na', { node: 'na' })
    await truth.watch(network, 'na', repeat(3, [someone]), { epoch: 'a1', endedAgo: 0 })
    await cycles(network, 8, { na: { epoch: 'a1' }, c: {}, d: {} })
    expect(await truth.state(network, X)).toBe('FREE')
  })
})

describe('a Reserve from another boot than the lease was placed on', () => {
  test('keeps it from the fence of that boot (6.3, 16.5)', async () => {
    const { network, lease } = await small(on('na', 'a1'))
    await truth.past(network, HOUR)
    const again = await truth.lease(network, V, on('nb', 'b1'))
    expect(again).toMatchObject({ address: X, fencingToken: lease.fencingToken, reused: true })
    const [told] = await truth.events(network, 'lease.updated')
    expect(told).toMatchObject({ address: X, evidence: { askedFrom: { node: 'nb', boot: 'b1' } } })
    await truth.past(network, MINUTE)
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
    await expectKept(network, lease)
  })

  test('keeps it from the node it left for the long age: it may be on its way (16.5, W-01)', async () => {
    const { network, lease, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.watch(network, 'nb', repeat(3, []), { epoch: 'b1', endedAgo: 0 })
    expect(await truth.lease(network, V, on('nb', 'b1'))).toMatchObject({ address: X, reused: true })
    const state = async () => {
      await cycles(network, 6, { na: { epoch: 'a1' }, nb: { epoch: 'b1' } })
      return truth.state(network, X)
    }
    await truth.past(network, 50 * MINUTE)
    expect(await state()).toBe('ACTIVE')
    await truth.past(network, HOUR)
    expect(await state()).toBe('FREE')
    expect(lease.address).toBe(X)
  })

  test('and no longer once it was seen where it went', async () => {
    const { network, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'nb', { node: 'nb' })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.lease(network, V, on('nb', 'b1'))
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'nb', repeat(4, [seen]), { epoch: 'b1', endedAgo: 0 })
    await cycles(network, 14, { na: { epoch: 'a1' }, nb: { epoch: 'b1' } })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('and from the end of that boot (12.2)', async () => {
    const { network, lease } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na', bootEndsAll: true })
    await truth.watch(network, 'na', repeat(3, []), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, OLD)
    await truth.lease(network, V, on('nb', 'b1'))
    await truth.past(network, OLD)
    await cycles(network, 8, { na: { epoch: 'a2' } })
    await expectKept(network, lease)
  })
})

test('a Reserve from another node keeps it from the silence of the node it was placed on (16.5)', async () => {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
  await truth.source(network, 'na', { node: 'na' })
  await truth.source(network, 'nb', { node: 'nb' })
  await truth.watch(network, 'na', repeat(3, []), { epoch: 'a1', endedAgo: 0 })
  const lease = await truth.lease(network, V, on('na', 'a1'))
  expect(lease.address).toBe(X)
  await truth.lease(network, workload('filler'))
  await truth.past(network, OLD)
  expect(await truth.lease(network, V, on('nb', 'b1'))).toMatchObject({ address: X, reused: true })
  // nb has not reported yet.
  await truth.past(network, 3 * HOUR)
  await cycles(network, 10, { na: { epoch: 'a1' } })
  await expectKept(network, lease)
})

describe('a lease that was seen elsewhere than it was placed', () => {
  /** Placed on na and seen there, and since then on nb: by one of the whole network. */
  async function moved(fields: { readonly bootEndsAll?: boolean } = {}) {
    const at = await small(on('na', 'a1'))
    const { network } = at
    await truth.source(network, 'all')
    await truth.source(network, 'na', { node: 'na', ...fields })
    await truth.past(network, OLD)
    await truth.watch(network, 'all', repeat(3, [listedAs(X, V, { node: 'na' })]), { endedAgo: 0 })
    await truth.watch(network, 'na', repeat(3, [listedAs(X, V)]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'all', repeat(4, [listedAs(X, V, { node: 'nb' })]), { endedAgo: 0 })
    await truth.watch(network, 'na', repeat(4, []), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    return at
  }
  async function fence(network: string) {
    await truth.past(network, SECOND)
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
  }

  test('is kept from the fence of its node when that source was retired (16.5)', async () => {
    const { network, lease } = await moved()
    await retire(network, 'all')
    await fence(network)
    await expectKept(network, lease)
  })

  test('and when that source has left it out once', async () => {
    const { network, lease } = await moved()
    await truth.watch(network, 'all', [[]], { endedAgo: 0 })
    await fence(network)
    await expectKept(network, lease)
  })

  test('and from the end of the boot there (12.2)', async () => {
    const { network, lease } = await moved({ bootEndsAll: true })
    await truth.watch(network, 'all', [[]], { endedAgo: 0 })
    await cycles(network, 6, { na: { epoch: 'a2' } })
    await expectKept(network, lease)
  })

  test('until that source misses it as well, and says that it is gone', async () => {
    const { network } = await moved()
    await truth.watch(network, 'all', [[]], { endedAgo: 0 })
    await fence(network)
    await cycles(network, 6, { all: {}, na: { epoch: 'a2' } })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  /** Placed in boot a1 of na and seen there; after the reboot it may be seen in a2. */
  async function rebooted(fields: { readonly bootEndsAll?: boolean } = {}) {
    const at = await small(on('na', 'a1'))
    const { network, seen } = at
    await truth.source(network, 'na', { node: 'na', ...fields })
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, 6 * INTERVAL)
    return at
  }

  test('in another boot of its node, is kept from the fence of the first by one that was retired (6.3)', async () => {
    const { network, lease, seen } = await rebooted()
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a2', endedAgo: 0 })
    await truth.past(network, SECOND)
    await retire(network, 'na')
    await fence(network)
    await expectKept(network, lease)
  })

  test('and by one that has left it out once', async () => {
    const { network, lease, seen } = await rebooted()
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a2', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'na', [[]], { epoch: 'a2', endedAgo: 0 })
    await fence(network)
    await expectKept(network, lease)
  })

  test('in the first report of another boot alone, does not end with the first boot (12.2)', async () => {
    const { network, seen } = await rebooted({ bootEndsAll: true })
    // Begun 5 s before it arrives, which is when the boot is known.
    await truth.watch(network, 'na', [[seen]], { epoch: 'a2', endedAgo: 5 * SECOND })
    await cycles(network, 10, { na: { epoch: 'a2' } })
    // By absence, three misses and its word, as any other.
    expect(
      (await truth.events(network, 'lease.reaped')).map(({ address, cause }) => `${address} ${cause}`),
    ).toEqual([`${X} PROVEN_ABSENT`])
  })

  test("an engine's own id is no boot: the fence of its node holds", async () => {
    const { network, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'engine', { node: 'na', kind: 'docker' })
    await truth.past(network, OLD)
    await truth.watch(network, 'engine', [...repeat(4, [seen]), []], { epoch: 'engine-id', endedAgo: 0 })
    await fence(network)
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('for another, by one that was retired, is not for the fence of its node to free (INV-12)', async () => {
    const { network, lease, seen } = await small(on('na', 'a1'))
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'all')
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.watch(network, 'all', repeat(4, [listedAs(X, workload('y'))]), { endedAgo: 0 })
    await truth.past(network, SECOND)
    await retire(network, 'all')
    await fence(network)
    await expectKept(network, lease)
  })
})

describe('a source of a node that Reserve named', () => {
  async function withNamed(witness: string) {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
    await truth.source(network, witness, { node: witness })
    await truth.watch(network, witness, repeat(3, []), { epoch: 'e1', endedAgo: 0 })
    const lease = await truth.lease(network, V, { ...on('na', 'a1'), witness })
    expect(lease.address).toBe(X)
    await truth.lease(network, workload('filler'), { witness: 'nobody' })
    return { network, lease }
  }

  test('says nothing of what was placed on another node: not here (16.5)', async () => {
    const { network, lease } = await withNamed('nz')
    await truth.past(network, 2 * HOUR)
    await cycles(network, 12, { nz: {} })
    expect(await stuck(network)).toContainEqual(
      expect.objectContaining({ code: 'NOBODY_CAN_TELL', address: X }),
    )
    await expectKept(network, lease)
  })

  test('nor of what was asked for from elsewhere since (16.5)', async () => {
    const { network, lease } = await withNamed('na')
    await truth.past(network, MINUTE)
    await truth.lease(network, V, on('nb', 'b1'))
    await truth.past(network, 2 * HOUR)
    await cycles(network, 12, { na: {} })
    await expectKept(network, lease)
  })

  test('says of what was placed on its own that it never came, after the long age (W-01)', async () => {
    const { network } = await withNamed('na')
    await truth.past(network, OLD)
    await cycles(network, 6, { na: {} })
    expect(await truth.state(network, X)).toBe('ACTIVE')
    await truth.past(network, HOUR)
    await cycles(network, 6, { na: {} })
    expect(await truth.state(network, X)).toBe('FREE')
  })
})

describe('what was listed before the lease was reserved', () => {
  const web = owner({ name: 'na/web' })
  const former = listedAs(X, owner({ name: 'na/web', uid: 'c1' }))
  /** Released with its container still listed, and reserved again under the same name. */
  async function reservedAgain(left: readonly GivenEntry[]) {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
    await truth.source(network, 'na', { node: 'na' })
    const first = await truth.lease(network, web, on('na', 'a1'))
    expect(first.address).toBe(X)
    await truth.past(network, OLD)
    await truth.watch(network, 'na', repeat(4, [former]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'na', [left], { epoch: 'a1', endedAgo: 0 })
    await truth.ledger.accept(release(first.fencingToken, { network }))
    const claims = [claim({ pool: 'web', preferPrevious: true })]
    const fresh = await truth.lease(network, web, { ...on('na', 'a1'), claims })
    expect(fresh.address).toBe(X)
    expect(fresh.fencingToken).toBeGreaterThan(first.fencingToken)
    await truth.lease(network, workload('filler'), { witness: 'nobody' })
    return { network, fresh }
  }

  test.each([
    ['an end, is no end of the next (W-03)', [ended(former)], [ended(former)]],
    ['alive, and gone by the first report that knew of it, is no witness of the next (W-01)', [former], []],
  ])('%s', async (_what, left, then) => {
    const { network, fresh } = await reservedAgain(left)
    await cycles(network, 16, { na: { list: then, epoch: 'a1' } })
    await expectKept(network, fresh)
  })

  test('ends after the long age as what nobody has seen (W-01)', async () => {
    const { network } = await reservedAgain([former])
    await truth.past(network, HOUR)
    await cycles(network, 6, { na: { epoch: 'a1' } })
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('is a witness once a report that knew of it has it', async () => {
    const { network } = await reservedAgain([former])
    await cycles(network, 2, { na: { list: [former], epoch: 'a1' } })
    await cycles(network, 14, { na: { epoch: 'a1' } })
    expect(await truth.state(network, X)).toBe('FREE')
  })
})

test('and though it was placed there in a boot that nobody named', async () => {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
  await truth.source(network, 'na', { node: 'na' })
  await truth.watch(network, 'na', repeat(3, []), { epoch: 'a1', endedAgo: 0 })
  const lease = await truth.lease(network, V, on('na', ''))
  expect(lease.address).toBe(X)
  await truth.lease(network, workload('filler'))
  await truth.past(network, OLD)
  expect(await truth.lease(network, V, on('nb', 'b1'))).toMatchObject({ address: X, reused: true })
  await truth.past(network, 3 * HOUR)
  await cycles(network, 10, { na: { epoch: 'a1' } })
  await expectKept(network, lease)
})

describe('a boot that was fenced and has reported', () => {
  async function seenOn(boot: string, before: readonly string[] = []) {
    const at = await small(on('na', boot))
    const { network, seen } = at
    await truth.source(network, 'na', { node: 'na' })
    await truth.past(network, OLD)
    for (const epoch of before) {
      await truth.watch(network, 'na', repeat(2, []), { epoch, endedAgo: 0 })
      await truth.past(network, 2 * INTERVAL)
    }
    await truth.watch(network, 'na', repeat(4, [seen]), { epoch: boot, endedAgo: 0 })
    await truth.past(network, INTERVAL)
    return at
  }
  const fence = (network: string, boot: string, head: number | null = null) =>
    truth.ledger.accept(fenceNode('na', boot, { network, head }))

  test('keeps its leases when its source goes on in another epoch (6.3)', async () => {
    const { network, lease } = await seenOn('a1')
    await fence(network, 'a1')
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'na', [[]], { epoch: 'a2', endedAgo: 0 })
    await truth.run(verify)
    expect(await stuck(network)).toContainEqual(
      expect.objectContaining({ code: 'FENCE_CONTRADICTED', address: X }),
    )
    await expectKept(network, lease)
    // Said again in the knowledge of it, it holds.
    await fence(network, 'a1')
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('and when it is in another epoch already (6.3)', async () => {
    const { network, lease } = await seenOn('a1')
    await truth.watch(network, 'na', [[]], { epoch: 'a2', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    await fence(network, 'a1')
    await truth.past(network, SECOND)
    const late = await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
    expect(late.assessment.because).toContain('CLOSED_EPOCH')
    await truth.run(verify)
    await expectKept(network, lease)
  })

  test('is no other boot of its node, whose fence holds', async () => {
    const { network } = await seenOn('a2', ['a1'])
    await fence(network, 'a2')
    await truth.past(network, SECOND)
    const late = await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
    expect(late.assessment.because).toContain('CLOSED_EPOCH')
    expect((await stuck(network)).map(({ code }) => code)).not.toContain('FENCE_CONTRADICTED')
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('contradicts a statement of what its caller had seen before that (6.3)', async () => {
    const { network, lease, seen } = await seenOn('a1')
    const [{ head }] = (await truth.rows<{ head: number }>(
      'select max(seq) as head from ipledger.event where network_id = $1',
      network,
    )) as [{ head: number }]
    await fence(network, 'other')
    await truth.past(network, 2 * INTERVAL)
    await truth.watch(network, 'na', repeat(2, [seen]), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, SECOND)
    await fence(network, 'a1', head)
    await truth.run(verify)
    await expectKept(network, lease)
  })
})

test('the cap of a source is a share of the leases it lists, not of all it lists (5.4)', async () => {
  const network = await truth.network()
  await truth.source(network, 'k8s')
  const owners = Array.from({ length: 20 }, (_, n) => workload(n))
  const leases: LeaseView[] = []
  for (const of of owners) leases.push(await truth.lease(network, of))
  // What others see, so that the cap of the network is not met.
  for (let n = 0; n < 80; n += 1) await truth.lease(network, workload(`vm${n}`, { kind: 'vm' }))
  await truth.past(network, 2 * HOUR)
  const foreign = Array.from({ length: 200 }, (_, n) => listedAs(`192.168.7.${n + 1}`, workload(`x${n}`)))
  const mine = leases.map(({ address }, n) => listedAs(address, owners[n]!))
  await truth.watch(network, 'k8s', repeat(4, [...mine, ...foreign]), { endedAgo: 0 })
  await cycles(network, 6, { k8s: { list: foreign } })
  expect(await truth.events(network, 'lease.reaped')).toHaveLength(3)
  const [held] = await truth.events(network, 'reconcile.held')
  expect(held!.evidence).toMatchObject({ source: 'k8s', reaps: 4, leases: 4 })
})
