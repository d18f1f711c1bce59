/**
 * What is listed at a free address, by a list that is older than the address's last event, and whose source then falls
 * silent: whoever is listed is still there (INV-12, azure#1259). Only whoever let go of the address is not, and whoever was
 * listed by a boot that is fenced. Until the source reports again or is over, `stuck` names it.
 */
import { describe, expect, test } from 'vitest'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { beginSnapshot, reportSnapshot } from '../../src/liveness/report.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { claim, fenceNode, owner, quarantine, reap, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, NOTHING_SEEN, settled, taken } from '../support/intake.ts'
import { GONE, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const sightAll = createProcessSnapshots()
const verify = createVerifySuspects({ stayMs: 0 })

const OLD = 10 * MINUTE
const X = '10.0.0.1'
const V = workload('v')
const Y = workload('y')
const on = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })
const boundTo = (node: string) => ({ actor: { name: `agent-${node}`, node } })

/** A pool of two addresses, the second of which is set aside, so that the cap on quarantines is reached. */
async function small() {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
  await truth.source(network, 'na', { node: 'na' })
  const lease = await truth.lease(network, V, on('na', 'a1'))
  expect(lease.address).toBe(X)
  await truth.ledger.accept(quarantine({ address: '10.0.0.2' }, { network }))
  await truth.past(network, OLD)
  return { network, lease }
}

const listed = (network: string, source: string, epoch: string, entries: Parameters<typeof listedAs>[1][]) =>
  truth.watch(network, source, Array(4).fill(entries.map((one) => listedAs(X, one))), { epoch, endedAgo: 0 })

/** When it has cooled, and every source is silent. */
async function asNewcomer(network: string) {
  await truth.run(sightAll)
  await truth.past(network, OLD + MINUTE)
  await truth.run(sightAll)
  const newcomer = workload('newcomer')
  const any = await truth.ledger.submit(
    reserve({ network, owner: newcomer, claims: [claim({ pool: 'web' })], validateOnly: true }),
  )
  const named = await truth.ledger.submit(
    reserve({ network, owner: newcomer, claims: [claim({ pool: 'web', address: X })], validateOnly: true }),
  )
  const told = (outcome: typeof any) =>
    outcome.ok ? outcome.answer.leases[0]!.address : outcome.refusal.reason
  const codes = ['SIGHTING_NOT_RECORDED']
  const { stuck } = settled(await listStuck(truth.connections, { network, codes, after: null, limit: 100 }))
  return { any: told(any), named: told(named), stuck: stuck.map(({ source, text }) => `${source}: ${text}`) }
}

const KEPT = { any: 'POOL_EXHAUSTED', named: 'ADDRESS_QUARANTINED' }
const keptFor = (source: string, whom: string) => ({
  ...KEPT,
  stuck: [
    expect.stringMatching(
      `^${source}: ${source} lists pod default/web-${whom} .*at ${X}, which .* older than the end of the last lease`,
    ),
  ],
})

describe('listed for somebody else than who let go of it', () => {
  test('a conflict beyond the cap: until the boot that listed it is fenced', async () => {
    const { network, lease } = await small()
    await listed(network, 'na', 'a1', [Y])
    await truth.run(sightAll)
    expect(await truth.state(network, X)).toBe('ACTIVE')
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await asNewcomer(network)).toEqual(keptFor('na', 'y'))
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    expect(await asNewcomer(network)).toEqual({ any: X, named: X, stuck: [] })
  })

  test('until its source is retired, or reports again', async () => {
    for (const ends of ['retired', 'reports'] as const) {
      const { network, lease } = await small()
      await listed(network, 'na', 'a1', [Y])
      await truth.ledger.accept(release(lease.fencingToken, { network }))
      expect(await asNewcomer(network), ends).toEqual(keptFor('na', 'y'))
      if (ends === 'retired')
        settled(await retireSource(truth.intake.database, { network, id: 'na', by: 'test' }))
      else await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
      expect(await asNewcomer(network), ends).toEqual({ any: X, named: X, stuck: [] })
    }
  })

  test('set aside because its removal was not confirmed, and then it was', async () => {
    const { network, lease } = await small()
    await truth.ledger.accept(release(lease.fencingToken, { network, removalConfirmed: false }))
    expect(await truth.state(network, X)).toBe('REMOVAL_UNCONFIRMED')
    await listed(network, 'na', 'a1', [Y])
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await asNewcomer(network)).toEqual(keptFor('na', 'y'))
  })

  test('by a look that was under way when it was reserved', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
    await truth.source(network, 'na', { node: 'na' })
    await truth.watch(network, 'na', [[], [], []], { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, INTERVAL)
    const { token } = settled(
      await beginSnapshot(truth.intake, { network, source: 'na', quoted: NOTHING_SEEN }),
    )
    const lease = await truth.lease(network, V)
    expect(lease.address).toBe(X)
    await truth.ledger.accept(quarantine({ address: '10.0.0.2' }, { network }))
    await report(network, 'na', 'a1', token, Y)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await asNewcomer(network)).toEqual(keptFor('na', 'y'))
  })

  test('moved to another node, and released by the one it left', async () => {
    const { network, lease } = await small()
    await truth.source(network, 'nb', { node: 'nb' })
    await listed(network, 'na', 'a1', [V])
    await listed(network, 'nb', 'b1', [V])
    await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
    await truth.ledger.accept(release(lease.fencingToken, { network, ...boundTo('na') }))
    expect(await asNewcomer(network)).toEqual(keptFor('nb', 'v'))
  })

  test('a guest of a block, on another node', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/29', prefixLength: 30, cooldownMs: OLD })
    await truth.source(network, 'nb', { node: 'nb' })
    const node = owner({ kind: 'pod', name: 'node-na', uid: 'node-na', incarnation: 'n1' })
    const lease = await truth.lease(network, node, on('na', 'a1'))
    await truth.ledger.accept(quarantine({ address: '10.0.0.4' }, { network }))
    await truth.past(network, OLD)
    const guest = listedAs('10.0.0.2', Y)
    await truth.watch(network, 'nb', [[guest], [guest], [guest]], { epoch: 'b1', endedAgo: 0 })
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.run(sightAll)
    await truth.past(network, OLD + MINUTE)
    const newcomer = reserve({ network, owner: workload('newcomer'), claims: [claim({ pool: 'web' })] })
    await truth.ledger.refuse(newcomer, 'POOL_EXHAUSTED')
  })
})

test.each(['::ffff:10.0.0.1', '10.0.0.1/24'])(
  'listed as %s it is in use, whosever it is',
  async (address) => {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: OLD })
    await truth.source(network, 'na', { node: 'na' })
    await truth.watch(network, 'na', [[listedAs(address, Y)]], { epoch: 'a1', endedAgo: 0 })
    expect(await truth.lease(network, V)).toMatchObject({ address: '10.0.0.2' })
    expect(await asNewcomer(network)).toMatchObject(KEPT)
  },
)

describe('listed for whoever had it', () => {
  test('and let go of it: it is free', async () => {
    const { network, lease } = await small()
    await listed(network, 'na', 'a1', [V])
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await asNewcomer(network)).toEqual({ any: X, named: X, stuck: [] })
  })

  test('by a look that was begun before it was reaped, and reported after: nothing was proven of that node', async () => {
    const { network } = await small()
    await truth.source(network, 'nb', { node: 'nb' })
    await listed(network, 'na', 'a1', [V])
    await truth.watch(network, 'nb', [[], [], []], { epoch: 'b1', endedAgo: 0 })
    let token = ''
    for (let cycle = 1; (await truth.state(network, X)) !== 'FREE'; cycle += 1) {
      expect(cycle, 'it is reaped').toBeLessThan(20)
      await truth.past(network, INTERVAL)
      ;({ token } = settled(
        await beginSnapshot(truth.intake, { network, source: 'nb', quoted: NOTHING_SEEN }),
      ))
      const { asks } = await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
      await truth.answer(network, 'na', asks, GONE, 'a1')
      await truth.run(verify)
    }
    await report(network, 'nb', 'b1', token, V)
    expect(await asNewcomer(network)).toEqual(keptFor('nb', 'v'))
  })

  test("an operator's Reap says nothing of what is listed", async () => {
    const { network, lease } = await small()
    await listed(network, 'na', 'a1', [V])
    await truth.ledger.accept(reap(lease.fencingToken, lease.version, { network }))
    expect(await asNewcomer(network)).toEqual(keptFor('na', 'v'))
  })
})

async function report(network: string, source: string, epoch: string, token: string, of: typeof V) {
  const content = { entries: [listedAs(X, of)] }
  const snapshot = {
    network,
    source,
    quoted: NOTHING_SEEN,
    token,
    epoch,
    complete: true,
    content,
    chunk: null,
  }
  taken(settled(await reportSnapshot(truth.intake, snapshot)))
}
