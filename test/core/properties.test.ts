/**
 * Whatever is commanded: a batch undone restores the image exactly, decided again it leaves the same events, the fold of all
 * events is the image, free space is handed out in order, the partition is exact.
 */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import { describe, test } from 'vitest'
import { blockBase, formatValue, parseAddress } from '../../src/core/address.ts'
import { rollback } from '../../src/core/image.ts'
import { canonical } from '../support/canonical.ts'
import {
  after,
  answers,
  checkFold,
  command,
  confirm,
  decideOnce,
  enable,
  expire,
  HOUR,
  lists,
  MINUTE,
  network,
  newScene,
  perform,
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
} from './given.ts'

type One = Exclude<Step, readonly Step[]>
type Draw = {
  readonly kind: number
  readonly who: number
  readonly life: number
  readonly at: number
  readonly flag: boolean
}

const SOURCES = ['agent', 'cluster'] as const
const POOLS = ['pool', 'blocks', 'late'] as const
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
const STEPS: readonly ((draw: Draw) => One | readonly One[])[] = [
  (draw) => reserve(who(draw), { node: `n${draw.at % 3}`, claims: [{ pools: ['pool'] }] }),
  (draw) => reserve(who(draw), { confirmed: draw.flag, claims: [{ pools: [POOLS[draw.at % 3]!] }] }),
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
  (draw) => (isRare(draw) ? command({ type: 'deletePool', name: POOLS[draw.at % 3]!, version: null }) : []),
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

const draw = fc.record({
  kind: fc.nat(STEPS.length - 1),
  who: fc.nat(4),
  life: fc.nat(2),
  at: fc.nat(39),
  flag: fc.boolean(),
})

const START: readonly One[] = [
  network as One,
  pool('10.0.0.0/28', {
    cooldownMs: 30 * SECOND,
    reapPolicy: { misses: 1, minimumAgeMs: SECOND, unwitnessedAgeMs: MINUTE },
  }),
  pool('10.0.0.16/28', { name: 'blocks', prefixLength: 30, confirmWithinMs: MINUTE }),
  ...SOURCES.flatMap((source) => [register(source), enable(source), lists(source, []), lists(source, [])]),
]

function runAll(scene: Scene, batches: readonly (readonly Draw[])[]): void {
  for (const step of START) perform(scene, step(scene)!)
  for (const batch of batches) {
    const before = canonical(scene.image, scene.now)
    // The whole batch at once, and back.
    const clock = scene.now
    const inverses: (() => void)[] = []
    for (const one of stepsOf(batch)) {
      const command = one(scene)
      if (command === undefined) continue
      decideOnce(scene, command)
      inverses.push(...scene.image.journal!)
    }
    scene.image.journal = inverses
    rollback(scene.image, 0)
    scene.image.journal = null
    scene.now = clock
    assert.deepEqual(canonical(scene.image, scene.now), before, 'undo of a batch restores the image')
    for (const one of stepsOf(batch)) {
      const command = one(scene)
      if (command !== undefined) perform(scene, command)
    }
    checkFold(scene)
  }
}

const stepsOf = (batch: readonly Draw[]) => batch.flatMap((one) => STEPS[one.kind]!(one))

describe('whatever is commanded', () => {
  test('undo, fold, free space and partition hold', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(draw, { minLength: 1, maxLength: 6 }), { minLength: 6, maxLength: 24 }),
        (batches) => runAll(newScene(), batches),
      ),
      { numRuns: 80 },
    )
  })
})
