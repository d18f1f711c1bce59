/** What waits although nothing fails: nobody will end it, or whoever should have has not. */
import { afterAll, describe, expect, test } from 'vitest'
import type { LeaseView } from '../../src/core/command.ts'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { claim, fenceNode, release, reserve } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, settled } from '../support/intake.ts'
import { answering, HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const on = (node: string, boot: string) => ({ node, boot, labels: {} })

async function list(network: string, { codes = [] as readonly string[] } = {}) {
  const page = await listStuck(truth.connections, { network, codes, after: null, limit: 100 })
  return settled(page).stuck
}

async function told(network: string): Promise<readonly string[]> {
  return (await list(network)).map(({ code, source, lease }) =>
    [code, source, lease?.address].filter(Boolean).join(' '),
  )
}

/** The source goes on looking, an interval apart. */
async function goesOn(network: string, source: string, looks: number, epoch = 'e1'): Promise<void> {
  for (let n = 0; n < looks; n += 1) {
    await truth.past(network, INTERVAL)
    await truth.watch(network, source, [[]], { epoch, endedAgo: 0 })
  }
}

describe('an owner that lives on and is listed at its address no more', () => {
  const running = answering(async () => ({ answer: 'live', detail: 'Running' }))

  test('its earlier lives, asked of a source that knows no lives (azure#4350)', async () => {
    const network = await truth.network()
    await truth.source(network, 'k8s', { kind: 'kubernetes' })
    const first = workload('w', { incarnation: 'life-1' })
    const second = workload('w', { incarnation: 'life-2' })
    const superseded = await truth.lease(network, first)
    const held = await truth.lease(network, second)
    await truth.past(network, 10 * MINUTE)
    const before = [listedAs(superseded.address, first, { incarnation: '' })]
    const after = [listedAs(held.address, second, { incarnation: '' })]
    await truth.watch(network, 'k8s', seenThenMissed(before, 4, after), { endedAgo: 0 })
    await truth.run(createClearQuarantine(), { asked: running })
    expect(await told(network)).toEqual([])
    for (let n = 0; n < 6; n += 1) {
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'k8s', [after], { endedAgo: 0 })
    }
    const [stuck] = await list(network)
    expect(stuck).toMatchObject({ code: 'OWNER_LIVES_ELSEWHERE', source: 'k8s' })
    expect(stuck!.lease!.address).toBe(superseded.address)
    expect(stuck!.text).toMatch(/Running.*supersedes/)
    expect(await told(network)).toHaveLength(1)
  })
})

describe('what nobody can tell', () => {
  test('leases of a kind that no source covers', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const lease = await truth.lease(network, workload('vm', { kind: 'vm' }))
    await goesOn(network, 'agent', 3)
    expect(await told(network)).toEqual([])
    await truth.past(network, 24 * HOUR)
    await goesOn(network, 'agent', 1)
    expect(await told(network)).toEqual([`NOBODY_CAN_TELL ${lease.address}`])
  })

  test('leases of a node whose source was retired', async () => {
    const network = await truth.network()
    await truth.source(network, 'n1', { node: 'n1' })
    const lease = await truth.lease(network, workload('w'), { placement: on('n1', 'b1') })
    const entries = [listedAs(lease.address, workload('w'))]
    await truth.watch(network, 'n1', [entries, entries, entries], { epoch: 'b1', endedAgo: 0 })
    settled(await retireSource(truth.intake.database, { network, id: 'n1', by: 'test' }))
    await truth.past(network, HOUR)
    expect(await told(network)).toEqual([`NOBODY_CAN_TELL n1 ${lease.address}`])
  })

  test('where there never was a source, nobody is awaited', async () => {
    const network = await truth.network()
    await truth.lease(network, workload('w'))
    await truth.past(network, 24 * HOUR)
    expect(await told(network)).toEqual([])
  })
})

test('a question that nobody puts', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const lease = await truth.lease(network, workload(1))
  await truth.past(network, 10 * MINUTE)
  await truth.watch(network, 'agent', seenThenMissed([listedAs(lease.address, workload(1))], 4), {
    endedAgo: 0,
  })
  expect(await told(network)).toEqual([])
  await goesOn(network, 'agent', 3)
  expect(await told(network)).toEqual([`LOOKUP_WAITING agent ${lease.address}`])
})

test('conflicts that a cap keeps out of the books', async () => {
  const network = await truth.network({ cidr: '10.0.0.0/29' })
  await truth.source(network, 'agent')
  const leases: LeaseView[] = []
  for (const n of [1, 2, 3]) leases.push(await truth.lease(network, workload(n)))
  await truth.past(network, 10 * MINUTE)
  const thieves = leases.map(({ address }, n) => listedAs(address, workload(`thief-${n}`)))
  for (let n = 0; n < 5; n += 1) {
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'agent', [thieves], { endedAgo: 0 })
    await truth.run(createProcessSnapshots())
  }
  const [quarantined, ...kept] = leases.map(({ address }) => address)
  expect(await truth.state(network, quarantined!)).toBe('CONFLICT')
  for (const address of kept) expect(await truth.state(network, address)).toBe('ACTIVE')
  const stuck = (await list(network)).filter(({ code }) => code === 'SIGHTING_NOT_RECORDED')
  expect(stuck.map(({ text }) => kept.find((address) => text.includes(` ${address},`)))).toEqual(kept)
})

test('books whose last event is of the future', async () => {
  const network = await truth.network()
  const lease = await truth.lease(network, workload('w'))
  await truth.past(network, 10 * MINUTE)
  expect(await told(network)).toEqual([])
  await truth.past(network, -24 * HOUR)
  await truth.ledger.accept(release(lease.fencingToken, { network }))
  await truth.past(network, 2 * HOUR)
  const [stuck] = await list(network)
  expect(stuck).toMatchObject({ code: 'CLOCK_AHEAD' })
  await truth.past(network, 22 * HOUR)
  expect(await told(network)).toEqual([])
})

test('a fenced boot that reports', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent', { node: 'n1' })
  await truth.watch(network, 'agent', [[], []], { epoch: 'b1', endedAgo: 0 })
  await truth.past(network, INTERVAL)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  expect(await told(network)).toEqual([])
  await goesOn(network, 'agent', 1, 'b1')
  const [stuck] = await list(network)
  expect(stuck).toMatchObject({ code: 'FENCE_CONTRADICTED', source: 'agent' })
  expect(stuck!.text).toContain('b1 of n1')
  await goesOn(network, 'agent', 2, 'b2')
  expect(await told(network)).toEqual([])
})

test('a lease of a fenced boot that has reported, once no source is left there that would', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent', { node: 'n1' })
  const placement = { node: 'n1', boot: 'b1', labels: {} }
  const lease = await truth.lease(network, workload('w'), { placement })
  await truth.watch(network, 'agent', [[], []], { epoch: 'b1', endedAgo: 0 })
  await truth.past(network, INTERVAL)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  await goesOn(network, 'agent', 1, 'b1')
  expect(await told(network)).toEqual(['FENCE_CONTRADICTED agent'])
  settled(await retireSource(truth.connections, { network, id: 'agent', by: 'test' }))
  const [stuck, ...more] = await list(network, { codes: ['FENCE_CONTRADICTED'] })
  expect(more).toEqual([])
  expect(stuck).toMatchObject({ code: 'FENCE_CONTRADICTED', source: '', lease: { address: lease.address } })
  expect(stuck!.text).toContain('fence it again if it is over now')
  await truth.past(network, INTERVAL)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  await truth.run(createVerifySuspects({ stayMs: 0 }))
  expect(await truth.state(network, lease.address)).toBe('FREE')
})

test('what a silent node listed last, at an address that another has now', async () => {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: 5 * MINUTE })
  await truth.source(network, 'n1', { node: 'n1' })
  const lost = await truth.lease(network, workload('lost'), { placement: on('n1', 'b1') })
  await truth.lease(network, workload('filler'), { placement: on('n2', 'b1') })
  await truth.past(network, 10 * MINUTE)
  const entries = [listedAs(lost.address, workload('lost'))]
  await truth.watch(network, 'n1', [entries, entries, entries], { epoch: 'b1', endedAgo: 0 })
  await truth.past(network, 10 * MINUTE)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  await truth.run(createVerifySuspects({ stayMs: 0 }))
  expect(await truth.state(network, lost.address)).toBe('FREE')
  const ofTheSource = async () =>
    (await list(network)).filter(({ code }) => ['SOURCE_SILENT', 'STALE_SIGHTING'].includes(code))
  expect((await ofTheSource()).map(({ code }) => code)).toEqual(['SOURCE_SILENT'])
  await truth.past(network, 10 * MINUTE)
  const next = reserve({ network, owner: workload('next'), placement: on('n2', 'b1'), claims: [claim()] })
  expect(await truth.ledger.take({ ...next, confirmed: true })).toMatchObject({ address: lost.address })
  expect((await ofTheSource()).map(({ code }) => code)).toEqual(['SOURCE_SILENT', 'STALE_SIGHTING'])
  expect((await ofTheSource())[1]!.text).toContain(lost.address)
})

test('why a source that is asked does not answer', async () => {
  const network = await truth.network()
  await truth.source(network, 'engine', { kind: 'docker' })
  await truth.past(network, HOUR)
  const turn = `insert into ipledger.turn values ($1, 'engine', now(), 'a run', now(), 'connect ENOENT docker.sock')`
  await truth.connections.query(turn, [network])
  const [stuck] = await list(network)
  expect(stuck).toMatchObject({ code: 'SOURCE_SILENT', source: 'engine' })
  expect(stuck!.text).toContain('connect ENOENT docker.sock')
})
