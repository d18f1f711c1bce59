/**
 * A source that was registered after the copy was made which is restored: these books have never heard of it, and of
 * what it sees nothing is in them. The recovery waits for it (12.1).
 */
import { describe, expect, test } from 'vitest'
import { endRecovery } from '../../src/jobs/end-recovery.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { pruneObservations } from '../../src/jobs/prune-observations.ts'
import { enableSource, retireSource } from '../../src/liveness/register.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { readUnknown, rememberUnknown } from '../../src/liveness/unknown-sources.ts'
import { beginEra, claim, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { listedAs, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)

const calls = (network: string, id = 'n2') =>
  rememberUnknown(truth.connections, { network, id, node: 'n2', by: 'agent-n2' })
const ended = async () => (await truth.run(endRecovery)).ended
const next = (network: string) =>
  reserve({ network, owner: workload('next'), claims: [claim({ pool: 'web' })] })

const endByHand = (network: string) =>
  truth.ledger.accept({
    type: 'endRecovery',
    network,
    actor: { name: 'op', node: null },
    cause: 'test',
    requestId: null,
    fingerprint: null,
    traceId: null,
    why: 'n2 was scrapped',
  })

async function told(network: string) {
  const page = await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 })
  return settled(page).stuck.map(({ code, source, text }) => ({ code, source, text }))
}

/** Books as of before n2, its source and its workloads were there. */
async function restored() {
  const network = await truth.network({ cidr: '10.0.0.0/29' })
  await truth.source(network, 'n1', { node: 'n1' })
  await truth.ledger.accept(beginEra(1, { network }))
  return network
}

const n1Reports = (network: string) => truth.watch(network, 'n1', [[], [], []], { epoch: 'b1', endedAgo: 0 })

describe('who calls and is in no book', () => {
  test('keeps the recovery open until it is registered, enabled and has reported; nobody gets what it sees', async () => {
    const network = await restored()
    expect(await calls(network)).toBe(true)
    await n1Reports(network)
    expect(await ended()).toBe(0)
    const refusal = await truth.ledger.submit(next(network))
    expect(refusal).toMatchObject({
      ok: false,
      refusal: {
        reason: 'NETWORK_RECOVERING',
        message: expect.stringContaining('n2'),
        metadata: { sources: 'n2' },
      },
    })
    expect(await told(network)).toEqual([
      expect.objectContaining({ code: 'NETWORK_RECOVERING' }),
      {
        code: 'SOURCE_UNKNOWN',
        source: 'n2',
        text: expect.stringMatching(/agent-n2 of node n2.*register and enable it.*recover --end/),
      },
    ])

    await register(truth.intake, network, 'n2', { node: 'n2' })
    expect(await ended()).toBe(0)
    expect((await told(network)).map(({ code }) => code)).toEqual([
      'NETWORK_RECOVERING',
      'SOURCE_NOT_ENABLED',
    ])
    settled(await enableSource(truth.connections, { network, id: 'n2', by: 'test' }))
    expect(await ended()).toBe(0)
    const lost = listedAs('10.0.0.1', workload('lost'))
    await truth.watch(network, 'n2', [[lost]], { epoch: 'b9', endedAgo: INTERVAL })
    expect(await ended()).toBe(0)
    await truth.watch(network, 'n2', [[lost]], { epoch: 'b9', endedAgo: 0 })
    await truth.run(createProcessSnapshots())
    expect(await ended()).toBe(1)
    expect(await truth.state(network, '10.0.0.1')).toBe('ACTIVE')
    expect(await truth.ledger.take(next(network))).toMatchObject({ address: '10.0.0.2' })
  })

  test('keeps it open where the books know it in dry run: it was enabled since', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/29' })
    await truth.source(network, 'n1', { node: 'n1' })
    await register(truth.intake, network, 'n2', { node: 'n2' })
    await truth.ledger.accept(beginEra(1, { network }))
    expect(await calls(network)).toBe(true)
    await n1Reports(network)
    expect(await ended()).toBe(0)
    expect(await truth.ledger.submit(next(network))).toMatchObject({
      ok: false,
      refusal: { reason: 'NETWORK_RECOVERING', metadata: { sources: 'n2' } },
    })
    settled(await enableSource(truth.connections, { network, id: 'n2', by: 'test' }))
    const lost = listedAs('10.0.0.1', workload('lost'))
    await truth.watch(network, 'n2', [[lost], [lost]], { epoch: 'b9', endedAgo: 0 })
    await truth.run(createProcessSnapshots())
    expect(await ended()).toBe(1)
    expect(await truth.ledger.take(next(network))).toMatchObject({ address: '10.0.0.2' })
  })

  test('an operator may end it by hand', async () => {
    const network = await restored()
    await calls(network)
    await n1Reports(network)
    expect(await ended()).toBe(0)
    await endByHand(network)
    expect(await told(network)).toEqual([])
    expect(await truth.run(pruneObservations)).toMatchObject({ unknown: 1 })
    expect(await truth.run(pruneObservations)).toMatchObject({ unknown: 0 })
  })

  test('nor is a source waited for that somebody has registered and retired', async () => {
    const network = await restored()
    await calls(network)
    await truth.source(network, 'n2', { node: 'n2' })
    settled(await retireSource(truth.connections, { network, id: 'n2', by: 'test' }))
    await n1Reports(network)
    expect(await ended()).toBe(1)
  })

  test('of an earlier era is waited for when it calls again', async () => {
    const network = await restored()
    await calls(network)
    await endByHand(network)
    await truth.ledger.accept(beginEra(2, { network }))
    await n1Reports(network)
    expect(await readUnknown(truth.connections, network, 10)).toEqual([])
    expect(await calls(network)).toBe(true)
    expect(await readUnknown(truth.connections, network, 10)).toMatchObject([
      { id: 'n2', heardFrom: 'agent-n2' },
    ])
    expect(await ended()).toBe(0)
  })

  test('is remembered where the books recover, and where they do not know it', async () => {
    const network = await truth.network()
    await truth.source(network, 'n1', { node: 'n1' })
    expect(await calls(network)).toBe(false)
    await truth.ledger.accept(beginEra(1, { network }))
    expect(await calls(network, 'n1')).toBe(false)
    expect(await calls('nowhere')).toBe(false)
    expect(await calls(network)).toBe(true)
    await truth.past(network, INTERVAL)
    expect(await calls(network)).toBe(true)
    const [n2, ...more] = await readUnknown(truth.connections, network, 10)
    expect(more).toEqual([])
    expect(n2!.lastAt - n2!.firstAt).toBeGreaterThanOrEqual(INTERVAL)
  })

  test('of a thousand there is room for no other, and for those that are there', async () => {
    const network = await restored()
    await calls(network)
    await truth.connections.query(
      `insert into ipledger.unknown_source select $1, 'x' || i, 1, '', 'many', now(), now() from generate_series(1, 999) i`,
      [network],
    )
    expect(await calls(network, 'one-more')).toBe(false)
    expect(await calls(network)).toBe(true)
    const stuck = (await told(network)).filter(({ code }) => code === 'SOURCE_UNKNOWN')
    expect(stuck).toHaveLength(100)
    expect(stuck.at(-1)!.text).toContain('and there are more')
  })
})
