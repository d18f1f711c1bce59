/**
 * The tables as SQL folds them from the log are the image that `evolve` made, written as the loop writes it; whatever was
 * rebuilt is the same again.
 */
import { afterAll, expect, test } from 'vitest'
import type { Command } from '../../../src/next/core/command.ts'
import { FOLDS } from '../../../src/next/ledger/fold.ts'
import { rebuildNetwork } from '../../../src/next/ledger/rebuild.ts'
import { verifyNetwork } from '../../../src/next/ledger/verify.ts'
import { connect } from '../../../src/next/postgres/connect.ts'
import {
  after,
  command,
  confirm,
  enable,
  lists,
  network,
  newScene,
  pool,
  quarantine,
  reap,
  reapNode,
  register,
  release,
  reserve,
  type Scene,
  SECOND,
  type Step,
} from '../core/given.ts'
import { asSuperuser, createTestDatabase } from '../support/database.ts'
import { NETWORK, playAll, storeScene } from '../support/stored-scene.ts'

const SEEDS = [1, 2, 3, 4]
const STEPS = 400

/** mulberry32 */
function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

/** A few owners on a few addresses, single and in blocks, that sources list, miss, and list as ended. */
function walk(seed: number): Scene {
  const pick = random(seed)
  const scene = playAll(newScene(), [
    network,
    pool('10.0.0.0/28', { name: 'single', cooldownMs: 20 * SECOND }),
    pool('10.0.1.0/24', { name: 'blocks', prefixLength: 28, cooldownMs: 20 * SECOND, exclude: ['10.0.1.3'] }),
    pool('fd00::/120', { name: 'six' }),
    register('wide'),
    register('near', { node: 'n1' }),
    enable('wide'),
  ])
  const who = () => `${['', 'pod:'][pick(2)]}w${pick(6)}/${pick(3)}`
  const where = () => ['10.0.0', '10.0.1'][pick(2)] + `.${pick(2) === 0 ? pick(16) : pick(64)}`
  const held = (state: Scene) => [...state.image.records.values()].filter((one) => one.state !== 'FREE')
  const oneHeld = (make: (address: string) => Step): Step => (state) => {
    const all = held(state)
    const step = all.length === 0 ? undefined : make(all[pick(all.length)]!.address)
    return typeof step === 'function' ? step(state) : undefined
  }
  const entries = (state: Scene) => [
    ...held(state).flatMap(({ address, owner }) =>
      pick(3) === 0 ? [] : [`${owner === null ? '?' : `${owner.kind}:${owner.name}/${owner.incarnation}`}@${address}${pick(6) === 0 ? '!' : ''}`],
    ),
    ...Array.from({ length: pick(3) }, () => `${pick(3) === 0 ? '?' : who()}@${where()}`),
  ]
  const list: Step = (state) =>
    lists(pick(2) === 0 ? 'wide' : 'near', entries(state), { epoch: `e${pick(12) === 0 ? pick(9) : 1}`, complete: pick(8) > 0 })(state)
  const kinds: readonly (() => Step)[] = [
    () => reserve(who(), { node: `n${pick(3)}`, claims: [{ pools: [['single', 'blocks', 'six'][pick(3)]!] }], confirmWithinMs: pick(2) * 60_000 || null }),
    () => reserve(who(), { confirmed: true, claims: [{ pools: ['single'] }] }),
    () => confirm(who()),
    () => oneHeld((address) => (state) => release(state.image.records.get(address)!.token, pick(3) > 0)(state) as Command),
    () => oneHeld((address) => reap(address)),
    () => list,
    () => list,
    () => list,
    () => after(pick(40) * SECOND),
    () => (pick(6) === 0 ? quarantine(where()) : list),
    () => (pick(25) === 0 ? reapNode(`n${pick(2)}`) : list),
    () => (pick(40) === 0 ? command({ type: 'beginEra', above: 0, recovering: pick(2) === 0, why: 'restored' }) : list),
    () => (pick(15) === 0 ? command({ type: 'endRecovery', why: 'looked' }) : list),
    () => (pick(10) === 0 ? command({ type: 'hold', hold: ['CLOCK', 'SOURCE_AHEAD'][pick(2)], why: 'test', ...(pick(2) === 0 && { stepMs: 1000 }) }) : list),
    () => (pick(6) === 0 ? command({ type: 'resumeHold', hold: null, why: 'looked' }) : list),
    () => (pick(60) === 0 ? command({ type: 'retireSource', id: 'near' }) : (pick(8) === 0 ? enable('near') : list)),
    () => (pick(20) === 0 ? command({ type: 'updateNetwork', version: null, description: `d${pick(9)}`, labels: null }) : list),
    () => (pick(20) === 0 ? command({ type: 'updatePool', name: 'single', version: null, change: { draining: pick(2) === 0 } }) : list),
    () => (pick(30) === 0 ? command({ type: 'deletePool', name: 'six', version: null }) : list),
    () => (pick(20) === 0 ? pool('fd00::/120', { name: 'six' }) : list),
  ]
  return playAll(
    scene,
    Array.from({ length: STEPS }, () => kinds[pick(kinds.length)]!()),
  )
}

test.each(SEEDS)('seed %i: verify finds nothing in what the loop writes, and rebuild writes the same', async (seed) => {
  const database = await createTestDatabase()
  const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
  try {
    const scene = walk(seed)
    const digest = await storeScene(admin, scene)
    expect(new Set(scene.events.map(({ type }) => type)).size).toBeGreaterThan(12)
    const dump = async () =>
      Promise.all(
        Object.keys(FOLDS).map(async (table) => (await admin.query(`select to_jsonb(t) as row from ipledger.${table} t order by 1`)).rows),
      )
    const before = await dump()
    const verified = await verifyNetwork(admin, NETWORK, { from: 0 })
    expect(verified).toMatchObject({ complete: true, findings: [], omitted: 0, digest, verifiedSeq: scene.image.head })
    await admin.query('truncate ipledger.lease, ipledger.pool, ipledger.network, ipledger.source, ipledger.sighting, ipledger.network_lock')
    const rebuilt = await rebuildNetwork(admin, NETWORK)
    expect(rebuilt).toMatchObject({ head: scene.image.head, rows: { lease: scene.image.records.size, pool: scene.image.pools.size, network: 1 } })
    expect(await dump()).toEqual(before)
    expect((await verifyNetwork(admin, NETWORK, { from: 0 })).findings).toEqual([])
  } finally {
    await admin.end()
    await database.drop()
  }
}, 60_000)
