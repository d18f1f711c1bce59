/**
 * After a recovery: what was promised, confirmed or fenced in the books that were lost frees nothing (INV-24, 12.1, 12.4),
 * and what can't end by itself any more is told.
 */
import { describe, expect, test } from 'vitest'
import { endRecovery } from '../../src/jobs/end-recovery.ts'
import { expireUnconfirmed } from '../../src/jobs/expire-unconfirmed.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import {
  beginEra,
  claim,
  confirm,
  endRecovery as endRecoveryByHand,
  expire,
  fenceNode,
  release,
  reserve,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, settled } from '../support/intake.ts'
import { GONE, HOUR, listedAs, MINUTE, SECOND, seenThenMissed, useTruth, workload } from '../support/truth.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const verify = createVerifySuspects({ stayMs: 0 })
const V = workload('v')
const X = '10.0.0.1'
const CLEAN = [[], [], []]

const on = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })

async function held(fields: Parameters<typeof truth.lease>[2] = {}) {
  const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: 10 * MINUTE })
  const lease = await truth.lease(network, V, { ...on('na', 'a1'), ...fields })
  expect(lease.address).toBe(X)
  return { network, lease }
}

/** Another owner names X; or what it is told instead. */
async function newcomerAt(network: string): Promise<string> {
  const wanted = reserve({
    network,
    owner: workload('newcomer'),
    claims: [claim({ pool: 'web', address: X })],
  })
  const outcome = await truth.ledger.submit(wanted)
  return outcome.ok ? 'has X' : outcome.refusal.reason
}

async function stuck(network: string) {
  const page = settled(await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 }))
  return page.stuck.map(({ code, lease, text }) => ({ code, address: lease?.address ?? '', text }))
}

describe('a Confirm that may be lost', () => {
  async function reservedInLostBooks(see: (network: string) => Promise<unknown>) {
    const { network, lease } = await held({ confirmed: false, confirmWithinMs: MINUTE })
    await see(network)
    // Here it was confirmed, in books that are lost.
    await truth.past(network, HOUR)
    await truth.ledger.accept(beginEra(1, { network }))
    return { network, lease }
  }

  test('keeps the lease from its deadline once the sources have ended the recovery', async () => {
    const { network, lease } = await reservedInLostBooks((of) => truth.source(of, 'nz', { node: 'nz' }))
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 0 })
    await truth.watch(network, 'nz', CLEAN, { epoch: 'z1', endedAgo: 0 })
    expect(await truth.run(endRecovery)).toMatchObject({ ended: 1 })
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 0 })
    // Nor a job that had listed it before.
    const listed = expire(lease.fencingToken, lease.version, { network })
    const refusal = await truth.ledger.refuse(listed, 'ILLEGAL_STATE')
    expect(refusal.message).toContain('its Confirm may be lost')
    expect(await truth.state(network, X)).toBe('RESERVED')
    await truth.past(network, HOUR)
    expect(await newcomerAt(network)).toBe('ADDRESS_TAKEN')
  })

  test('is told where no source looks, and ends by a word', async () => {
    const { network, lease } = await reservedInLostBooks(async () => {})
    const forgotten = workload('late')
    await truth.ledger.accept(endRecoveryByHand({ network }))
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 0 })
    // Young again, as after any change; then told.
    expect(await stuck(network)).toEqual([])
    await truth.past(network, HOUR)
    expect(await stuck(network)).toEqual([
      { code: 'NOBODY_CAN_TELL', address: X, text: expect.stringContaining('a Confirm of it may be lost') },
    ])
    expect(await newcomerAt(network)).toBe('ADDRESS_TAKEN')
    // What is reserved in this era expires as ever, and is not told.
    const late = await truth.lease(network, forgotten, { confirmed: false, confirmWithinMs: SECOND })
    await truth.past(network, HOUR)
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 1 })
    expect(await truth.state(network, late.address)).toBe('FREE')
    await truth.ledger.take(confirm(lease.fencingToken, { network }))
    expect(await stuck(network)).toEqual([])
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await truth.state(network, X)).toBe('FREE')
  })

  test('was not lost where no commit ever is', async () => {
    const { network } = await held({ confirmed: false, confirmWithinMs: MINUTE })
    await truth.past(network, HOUR)
    await truth.ledger.accept(beginEra(1, { network, recovering: false }))
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 1 })
  })
})

describe('a fence of the boot that the restored books know', () => {
  async function recovering() {
    const network = await truth.network({ cidr: '10.0.0.0/30', cooldownMs: 10 * MINUTE })
    await truth.source(network, 'na', { node: 'na' })
    await truth.source(network, 'nz', { node: 'nz' })
    await truth.watch(network, 'na', CLEAN, { epoch: 'a1', endedAgo: 0 })
    await truth.watch(network, 'nz', CLEAN, { epoch: 'z1', endedAgo: 0 })
    // Then na booted into a2, and X was reserved for V there: lost.
    await truth.past(network, HOUR)
    await truth.ledger.accept(beginEra(1, { network }))
    await truth.watch(network, 'nz', CLEAN, { epoch: 'z1', endedAgo: 0 })
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    return network
  }

  test('ends no recovery: what its node runs now is awaited', async () => {
    const network = await recovering()
    expect(await truth.run(endRecovery)).toMatchObject({ ended: 0 })
    expect(await newcomerAt(network)).toBe('NETWORK_RECOVERING')
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'na', [[listedAs(X, V)], [listedAs(X, V)], [listedAs(X, V)]], {
      epoch: 'a2',
      endedAgo: 0,
    })
    expect(await truth.run(endRecovery)).toMatchObject({ ended: 1 })
    expect(await newcomerAt(network)).not.toBe('has X')
  })

  test('whose node is gone for good: its source is retired', async () => {
    const network = await recovering()
    settled(await retireSource(truth.intake.database, { network, id: 'na', by: 'test' }))
    expect(await truth.run(endRecovery)).toMatchObject({ ended: 1 })
    expect(await newcomerAt(network)).toBe('has X')
  })
})

describe('a promise that may be lost', () => {
  async function recovered(fields: Parameters<typeof truth.source>[2] = { node: 'na' }) {
    const { network, lease } = await held()
    await truth.source(network, 'na', fields)
    await truth.past(network, 10 * MINUTE)
    await truth.watch(network, 'na', seenThenMissed([listedAs(X, V)], 1), { epoch: 'a1', endedAgo: 0 })
    await truth.past(network, HOUR)
    await truth.ledger.accept(beginEra(1, { network }))
    await truth.watch(network, 'na', CLEAN, { epoch: 'a1', endedAgo: 0 })
    expect(await truth.run(endRecovery)).toMatchObject({ ended: 1 })
    return { network, lease }
  }

  test('keeps it for as long as one that is known: its age begins with the era', async () => {
    const { network } = await recovered()
    const cycle = async () => {
      await truth.past(network, INTERVAL)
      const { asks } = await truth.watch(network, 'na', [[]], { epoch: 'a1', endedAgo: 0 })
      await truth.answer(network, 'na', asks, GONE, 'a1')
      await truth.run(verify)
    }
    for (let passed = INTERVAL; passed < 5 * MINUTE; passed += INTERVAL) {
      await cycle()
      expect(await truth.state(network, X)).toBe('ACTIVE')
    }
    await cycle()
    await cycle()
    expect(await truth.state(network, X)).toBe('FREE')
    expect(await truth.events(network, 'lease.reaped')).toMatchObject([
      { address: X, cause: 'PROVEN_ABSENT' },
    ])
  })

  test('to another node keeps it from a fence as long', async () => {
    const { network } = await recovered()
    await truth.ledger.accept(fenceNode('na', 'a1', { network }))
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('ACTIVE')
    await truth.past(network, 5 * MINUTE)
    await truth.run(verify)
    expect(await truth.state(network, X)).toBe('FREE')
    expect(await truth.events(network, 'lease.reaped')).toMatchObject([{ address: X, cause: 'FENCED' }])
  })
})

test('a fence of lost books frees nothing until it is said again', async () => {
  const { network } = await held()
  await truth.past(network, 10 * MINUTE)
  await truth.ledger.accept(fenceNode('na', 'a1', { network }))
  // Before anybody looked V was confirmed, which contradicts it, and is lost.
  await truth.past(network, HOUR)
  await truth.ledger.accept(beginEra(1, { network }))
  await truth.ledger.accept(endRecoveryByHand({ network }))
  await truth.past(network, HOUR)
  await truth.run(verify)
  expect(await truth.state(network, X)).toBe('ACTIVE')
  await truth.ledger.accept(fenceNode('na', 'a1', { network }))
  await truth.run(verify)
  expect(await truth.state(network, X)).toBe('FREE')
})
