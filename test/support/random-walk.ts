/** Random histories of a network by the core's own decisions, for what must hold of any image and any log. */
import { blockBase, formatValue, parseAddress } from '../../src/core/address.ts'
import {
  after,
  answers,
  command,
  confirm,
  enable,
  expire,
  HOUR,
  lists,
  MINUTE,
  network,
  newScene,
  pool,
  quarantine,
  reap,
  reapNode,
  reapProven,
  recheck,
  register,
  release,
  reserve,
  type Scene,
  SECOND,
  type Step,
  unchanged,
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

export type One = Exclude<Step, readonly Step[]>
export type Draw = {
  readonly kind: number
  readonly who: number
  readonly life: number
  readonly at: number
  readonly flag: boolean
}

const SOURCES = ['agent', 'cluster'] as const
const POOLS = ['pool', 'blocks', 'six', 'late'] as const
const address = ({ at }: Draw) => `10.0.0.${at}`
const who = ({ who: name, life }: Draw) =>
  `${['container', 'pod'][name % 2]}:w${name}${life === 0 && name === 0 ? '' : `/${life}`}`
const id = ({ who: name }: Draw) => SOURCES[name % 2]!
const draws = ({ at, who: name, life }: Draw, count: number) =>
  Array.from({ length: count }, (_, i) => ({
    kind: 0,
    who: (name + i) % 5,
    life,
    at: (at + 5 * i) % 40,
    flag: false,
  }))

const isRare = ({ at }: Draw) => at < 4

/** Of these a step is drawn; the frequent ones stand twice. */
export const STEPS: readonly ((draw: Draw) => One | readonly One[])[] = [
  (draw) => reserve(who(draw), { node: `n${draw.at % 3}`, claims: [{ pools: ['pool'] }] }),
  (draw) => reserve(who(draw), { confirmed: draw.flag, claims: [{ pools: [POOLS[draw.at % 4]!] }] }),
  (draw) =>
    reserve(who(draw), { claims: [{ address: unit(draw) }], confirmWithinMs: draw.flag ? MINUTE : null }),
  (draw) => reserve(who(draw), { claims: [{ pools: ['pool', 'blocks'], preferPrevious: true }] }),
  (draw) =>
    reserve(who(draw), {
      claims: [{ pools: ['pool'] }],
      liveAddresses: draws(draw, 6).map(address),
      validateOnly: draw.flag,
    }),
  (draw) => confirm(who(draw)),
  (draw) => release(who(draw), draw.flag),
  (draw) => release(who(draw), true),
  (draw) =>
    command({
      type: 'allOrNothing',
      items: [reserve(`w9/${draw.at}`, { claims: [{ pools: ['pool'] }] })(), release(who(draw), draw.flag)()],
      requestId: `r${draw.at}`,
      fingerprint: who(draw),
    }),
  (draw) => quarantine(address(draw)),
  (draw) => (scene) => (scene.image.records.has(address(draw)) ? reap(address(draw))(scene) : undefined),
  (draw) => reapNode(`n${draw.at % 3}`),
  (draw) => (scene) => (scene.image.records.has(address(draw)) ? expire(address(draw))(scene) : undefined),
  (draw) => [
    ...SOURCES.flatMap((source) =>
      draws(draw, 5).map((one) => answers(source, who(one), address(draw), 'gone') as One),
    ),
    (scene) => (scene.image.records.has(address(draw)) ? reapProven(address(draw))(scene) : undefined),
  ],
  (draw) =>
    isRare(draw) ? register(id(draw), { ownerKinds: draw.flag ? ['pod'] : ['container', 'pod'] }) : [],
  (draw) => enable(id(draw)),
  (draw) => (draw.at === 7 ? command({ type: 'retireSource', id: id(draw) }) : lists(id(draw), [])),
  (draw) => lists(id(draw), []),
  (draw) =>
    lists(
      id(draw),
      draws(draw, 3).map((one) => `${who(one)}@${address(one)}`),
    ),
  (draw) =>
    lists(
      id(draw),
      draws(draw, 3).map((one) => `${who(one)}@${address(one)}`),
      { complete: draw.flag },
    ),
  (draw) =>
    lists(
      id(draw),
      draws(draw, 2).map((one) => `${draw.flag ? '?' : who(one)}@${address(one)}!`),
    ),
  (draw) =>
    lists(
      id(draw),
      draws(draw, 1).map((one) => `${who(one)}@${address(one)}`),
      { epoch: `e${draw.life}` },
    ),
  (draw) => unchanged(id(draw)),
  (draw) => recheck(...draws(draw, 6).map(address)),
  (draw) =>
    command({ type: 'updatePool', name: 'pool', version: null, change: { exclude: [address(draw)] } }),
  (draw) =>
    command({
      type: 'updatePool',
      name: 'pool',
      version: null,
      change: { cidr: draw.flag ? '10.0.0.0/28' : '10.0.0.0/29' },
    }),
  (draw) => pool('10.0.0.32/29', { name: 'late', prefixLength: draw.flag ? 32 : 30 }),
  (draw) => (isRare(draw) ? command({ type: 'deletePool', name: POOLS[draw.at % 4]!, version: null }) : []),
  () => pool('10.0.0.0/28'),
  (draw) =>
    isRare(draw) ? command({ type: 'beginEra', above: 0, recovering: draw.flag, why: 'drawn' }) : [],
  () => command({ type: 'endRecovery', why: 'drawn' }),
  (draw) =>
    isRare(draw)
      ? command({
          type: 'hold',
          hold: draw.flag ? 'CLOCK' : 'SOURCE_AHEAD',
          why: 'drawn',
          ...(draw.flag && { stepMs: HOUR }),
        })
      : [],
  () => command({ type: 'resumeHold', hold: null, why: 'drawn' }),
  (draw) => command({ type: 'updateNetwork', version: null, description: who(draw), labels: null }),
  (draw) => after(draw.flag ? SECOND * draw.at : MINUTE * draw.at) as One,
]

/** The address of the lease that the drawn address belongs to: the middle pool leases blocks of four. */
function unit(draw: Draw): string {
  if (draw.at < 16 || draw.at >= 32) return address(draw)
  const parsed = parseAddress(address(draw)) as { value: bigint }
  return formatValue(4, blockBase(4, parsed.value, 30))
}

/** Two pools of single addresses, one of blocks, and two warm sources. */
export const START: readonly One[] = [
  network as One,
  pool('10.0.0.0/28', {
    cooldownMs: 30 * SECOND,
    reapPolicy: { misses: 1, minimumAgeMs: SECOND, unwitnessedAgeMs: MINUTE },
  }),
  pool('10.0.0.16/28', { name: 'blocks', prefixLength: 30, confirmWithinMs: MINUTE }),
  pool('fd00::/120', { name: 'six' }),
  ...SOURCES.flatMap((source) => [register(source), enable(source), lists(source, []), lists(source, [])]),
]

export const stepsOf = (draws: readonly Draw[]) => draws.flatMap((one) => STEPS[one.kind]!(one))

export const drawn = (pick: (below: number) => number): Draw => ({
  kind: pick(STEPS.length),
  who: pick(5),
  life: pick(3),
  at: pick(40),
  flag: pick(2) === 0,
})

/** The same seed makes the same. */
export function walk(seed: number, steps: number): Scene {
  const pick = random(seed)
  const draws = Array.from({ length: steps }, () => drawn(pick))
  return playAll(playAll(newScene(), START), stepsOf(draws))
}
