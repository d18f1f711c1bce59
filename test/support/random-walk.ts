/** Random histories of a network by the core's own decisions, for what must hold of any log. The same seed makes the same. */
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
import { playAll } from './stored-scene.ts'

/** mulberry32 */
export function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

/** A few owners on a few addresses, single and in blocks, that sources list, miss, and list as ended. */
export function walk(seed: number, steps: number): Scene {
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
  const where = () => `${['10.0.0', '10.0.1'][pick(2)]}.${pick(2) === 0 ? pick(16) : pick(64)}`
  const held = (state: Scene) => [...state.image.records.values()].filter((one) => one.state !== 'FREE')
  const oneHeld =
    (make: (address: string) => Step): Step =>
    (state) => {
      const all = held(state)
      const step = all.length === 0 ? undefined : make(all[pick(all.length)]!.address)
      return typeof step === 'function' ? step(state) : undefined
    }
  const entries = (state: Scene) => [
    ...held(state).flatMap(({ address, owner }) =>
      pick(3) === 0
        ? []
        : [
            `${owner === null ? '?' : `${owner.kind}:${owner.name}/${owner.incarnation}`}@${address}${pick(6) === 0 ? '!' : ''}`,
          ],
    ),
    ...Array.from({ length: pick(3) }, () => `${pick(3) === 0 ? '?' : who()}@${where()}`),
  ]
  const list: Step = (state) =>
    lists(pick(2) === 0 ? 'wide' : 'near', entries(state), {
      epoch: `e${pick(12) === 0 ? pick(9) : 1}`,
      complete: pick(8) > 0,
    })(state)
  const kinds: readonly (() => Step)[] = [
    () =>
      reserve(who(), {
        node: `n${pick(3)}`,
        claims: [{ pools: [['single', 'blocks', 'six'][pick(3)]!] }],
        confirmWithinMs: pick(2) * 60_000 || null,
      }),
    () => reserve(who(), { confirmed: true, claims: [{ pools: ['single'] }] }),
    () => confirm(who()),
    () => oneHeld((address) => (state) => release(state.image.records.get(address)!.token, pick(3) > 0)()),
    () => oneHeld((address) => reap(address)),
    () => list,
    () => list,
    () => list,
    () => after(pick(40) * SECOND),
    () => (pick(6) === 0 ? quarantine(where()) : list),
    () => (pick(25) === 0 ? reapNode(`n${pick(2)}`) : list),
    () =>
      pick(40) === 0
        ? command({ type: 'beginEra', above: 0, recovering: pick(2) === 0, why: 'restored' })
        : list,
    () => (pick(15) === 0 ? command({ type: 'endRecovery', why: 'looked' }) : list),
    () =>
      pick(10) === 0
        ? command({
            type: 'hold',
            hold: ['CLOCK', 'SOURCE_AHEAD'][pick(2)],
            why: 'test',
            ...(pick(2) === 0 && { stepMs: 1000 }),
          })
        : list,
    () => (pick(6) === 0 ? command({ type: 'resumeHold', hold: null, why: 'looked' }) : list),
    () =>
      pick(60) === 0 ? command({ type: 'retireSource', id: 'near' }) : pick(8) === 0 ? enable('near') : list,
    () =>
      pick(20) === 0
        ? command({ type: 'updateNetwork', version: null, description: `d${pick(9)}`, labels: null })
        : list,
    () =>
      pick(20) === 0
        ? command({ type: 'updatePool', name: 'single', version: null, change: { draining: pick(2) === 0 } })
        : list,
    () => (pick(30) === 0 ? command({ type: 'deletePool', name: 'six', version: null }) : list),
    () => (pick(20) === 0 ? pool('fd00::/120', { name: 'six' }) : list),
  ]
  return playAll(
    scene,
    Array.from({ length: steps }, () => kinds[pick(kinds.length)]!()),
  )
}
