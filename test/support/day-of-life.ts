/**
 * A day of a network, for whatever draws or explains one: decided by the core, with a clock of its own that ends now, and
 * stored as the loop stores it. Everything that a dashboard shows happens at least once: churn, a crash loop, a conflict, a
 * quarantine of each reason, reaps of each cause, a lost node, a hold, a source that falls silent and one that is partial, a
 * new era, a pool that is nearly full. What a test asks for by name is in what it answers; the rest is as it comes.
 */
import type pg from 'pg'
import type { AddressRecord } from '../../src/core/event.ts'
import { recordsIn } from '../../src/core/image.ts'
import { poolSize } from '../../src/core/pool.ts'
import {
  after,
  answers,
  command,
  confirm,
  expire,
  lists,
  MINUTE,
  network,
  newScene,
  owner,
  pool,
  quarantine,
  reap,
  reapNode,
  reapProven,
  register,
  release,
  reserve,
  type Scene,
  type Step,
  source,
} from '../core/given.ts'
import type { Values } from './grafana.ts'
import { judgeScene, NETWORK, playAll, storeScene } from './stored-scene.ts'

export const DAY_NETWORK = NETWORK
/** Its holders, one after the other: released by the first, reaped from the second, in conflict with the third. */
export const STORIED_ADDRESS = '10.20.0.77'
export const STORIED_OWNERS = ['shop-first', 'shop-second', 'shop-third'] as const
const GHOST = 'shop-ghost'
export const LOOPING = 'shop-loop'
const BLOCKED = 'shop-unanswered'
export const SILENT_SOURCE = 'node-3'
export const LOST_NODE = 'node-5'
const FULL_POOL = 'small'
const STRAY_ADDRESS = '10.20.0.160'

export type DayOfLife = {
  /** Before its first event, and after its last. */
  readonly from: Date
  readonly to: Date
  /** Leases at STORIED_ADDRESS, in the order of STORIED_OWNERS. */
  readonly storied: readonly string[]
}

const INTERVAL_MS = 5 * MINUTE

/** What a person chose, or a link: everything where several may be chosen. */
export const CHOSEN: Readonly<Record<string, Values>> = {
  overview: { network: [DAY_NETWORK] },
  pool: { network: DAY_NETWORK, pool: 'web' },
  address: { network: DAY_NETWORK, address: STORIED_ADDRESS, owner: '', lease: '' },
  sources: { network: [DAY_NETWORK], source: ['dry-run', ...[1, 2, 3, 4, 5].map((n) => `node-${n}`)] },
  service: { network: [DAY_NETWORK] },
}

type World = {
  readonly scene: Scene
  /** What each source lists: `name/incarnation@address`. */
  readonly listed: Map<string, Set<string>>
  readonly samples: unknown[][]
}

/** With a superuser's connection, into an empty database. */
export async function liveADay(client: pg.Client): Promise<DayOfLife> {
  const world: World = { scene: newScene(), listed: new Map(), samples: [] }
  // Played twice: how long the day was is known at its end.
  const { scene } = world
  const begun = scene.now
  const rehearsed = play(world).scene.now - begun
  const told: World = { scene: newScene(), listed: new Map(), samples: [] }
  told.scene.now = Date.now() - rehearsed
  const from = new Date(told.scene.now - MINUTE)
  const { storied } = play(told)
  await store(client, told)
  return { from, to: new Date(Date.now() + MINUTE), storied }
}

function play(world: World): { readonly scene: Scene; readonly storied: readonly string[] } {
  const { scene, listed } = world
  const run = (...steps: readonly Step[]) => void playAll(scene, steps)
  const at = (who: string): string => {
    const { uid, incarnation } = owner(who)
    const found = [...scene.image.records.values()].find(
      (one) => one.state !== 'FREE' && one.owner?.uid === uid && one.owner.incarnation === incarnation,
    )
    if (found === undefined) throw new Error(`${who} holds nothing`)
    return found.address
  }
  /** Reserves, runs on a node, and is listed there from now on. */
  const start = (
    name: string,
    node: string,
    { from = 'web', address = null as string | null, life = '1', confirmed = true } = {},
  ) => {
    const who = `${name}/${life}`
    run(reserve(who, { node, claims: [{ pools: [from], address }], confirmed, by: 'orchestrator' }))
    if (from !== 'blocks') listed.get(node)!.add(`${who}@${at(who)}`)
    return who
  }
  const vanish = (who: string) => {
    for (const list of listed.values())
      for (const entry of list) if (entry.startsWith(`${who}@`)) list.delete(entry)
  }
  const end = (who: string, removal: 'CONFIRMED' | 'UNCONFIRMED' = 'CONFIRMED') => {
    run(release(who, removal))
    vanish(who)
  }
  const silent = new Set<string>()
  const partial = new Set<string>()
  const look = (times = 1) => {
    for (let n = 0; n < times; n += 1) {
      run(after(INTERVAL_MS))
      for (const [id, list] of listed)
        if (!silent.has(id)) run(lists(id, [...list], { complete: !partial.has(id) }))
    }
  }
  /** Missed by everybody often enough, and gone by its source's word. */
  const prove = (who: string, node: string) => {
    const address = at(who)
    run(answers(node, who, address, 'gone'), reapProven(address))
  }
  const sample = () => {
    const minute = Math.floor(scene.now / MINUTE) * MINUTE
    for (const place of scene.image.pools.values()) {
      const { size, allocatable } = poolSize(place.pool)
      const { RESERVED: reserved, ACTIVE: active, QUARANTINED: quarantined } = place.counts
      const isCooling = (one: AddressRecord) => one.state === 'FREE' && one.availableAt! > scene.now
      const cooling = [...recordsIn(scene.image, place.pool)].filter(isCooling).length
      const held = BigInt(cooling) + BigInt(reserved + active + quarantined)
      world.samples.push([
        place.pool.poolId,
        minute,
        size,
        size - allocatable,
        allocatable - held,
        cooling,
        reserved,
        active,
        quarantined,
      ])
    }
  }

  run(
    network,
    pool('10.20.0.0/24', { name: 'web', gateway: '10.20.0.1', ownerLimit: 16, isDefault: true }),
    pool('10.21.0.0/27', { name: FULL_POOL }),
    pool('fd00:20::/64', { name: 'v6' }),
    pool('10.64.0.0/20', { name: 'blocks', prefixLength: 28 }),
  )
  for (const node of ['node-1', 'node-2', SILENT_SOURCE, 'node-4', LOST_NODE]) {
    run(source(node, { node, intervalMs: INTERVAL_MS }))
    listed.set(node, new Set())
  }
  run(register('dry-run', { node: 'node-6', intervalMs: INTERVAL_MS }))

  for (let n = 0; n < 8; n += 1) start(`shop-web-${n}`, `node-${(n % 4) + 1}`)
  for (let n = 0; n < 14; n += 1) start(`shop-batch-${n}`, 'node-2')
  for (let n = 0; n < 3; n += 1) start(`shop-lost-${n}`, LOST_NODE)
  for (let n = 0; n < 2; n += 1) start(`mesh-v6-${n}`, 'node-1', { from: 'v6' })
  for (let n = 0; n < 3; n += 1) start(`machine-${n}`, 'node-1', { from: 'blocks' })
  for (let n = 0; n < 16; n += 1) start(`queue-q-${n}`, 'node-1', { from: FULL_POOL })
  const storied: string[] = []
  const inTurn = (turn: number) => {
    const who = start(STORIED_OWNERS[turn]!, 'node-1', { address: STORIED_ADDRESS })
    storied.push(`${NETWORK}/${scene.image.records.get(at(who))!.token}`)
  }

  /** What happens at the begin of each two hours besides the churn. */
  const happens: Readonly<Record<number, () => void>> = {
    1: () => inTurn(0),
    2: () => end(`${STORIED_OWNERS[0]}/1`),
    3: () => {
      inTurn(1)
      // Restored from a backup, and observed until the next hours begin.
      run(
        command({
          type: 'beginEra',
          above: scene.image.head,
          recovering: true,
          why: 'restored from a backup',
        }),
      )
      // A node of after the backup calls, and is to be no more.
      run(
        command({ type: 'unknownSource', source: 'node-8', actor: { name: 'agent-8', node: 'node-8' } }),
        register('node-8', { node: 'node-8' }),
        command({ type: 'retireSource', id: 'node-8' }),
      )
      look(3)
    },
    4: () => {
      // It dies without a word; and a promise is broken.
      vanish(`${STORIED_OWNERS[1]}/1`)
      look(5)
      prove(`${STORIED_OWNERS[1]}/1`, 'node-1')
      run(reserve('shop-slow/1', { node: 'node-9', confirmWithinMs: MINUTE, claims: [{ pools: ['web'] }] }))
      run(after(5 * MINUTE), expire(at('shop-slow/1')))
    },
    5: () => {
      inTurn(2)
      listed.get('node-1')!.add(`shop-stray/1@${STRAY_ADDRESS}`)
      end('shop-web-0/1', 'UNCONFIRMED')
    },
    6: () => {
      run(reap(at('shop-web-1/1')))
      vanish('shop-web-1/1')
      run(quarantine('10.20.0.180'), release(start('shop-probed', 'node-2'), 'IN_USE_BY_ANOTHER'))
      vanish('shop-probed/1')
      listed.get('node-1')!.add('?@10.20.0.200')
    },
    7: () => {
      listed.get('node-1')!.add(`${GHOST}/1@${STORIED_ADDRESS}`)
      // Its node has burnt.
      listed.delete(LOST_NODE)
      run(reapNode(LOST_NODE))
    },
    8: () => {
      // Released while it lives.
      run(release('shop-web-2/1'))
      start('shop-web-3', 'node-4', { life: '2' })
      vanish('shop-web-3/1')
    },
    9: () => {
      // Its index has lost what it ran, and its look-ups go by that index.
      for (let n = 0; n < 14; n += 1) vanish(`shop-batch-${n}/1`)
      look(5)
      for (let n = 0; n < 14; n += 1) prove(`shop-batch-${n}/1`, 'node-2')
    },
    10: () => {
      const who = start(BLOCKED, 'node-1')
      look(2)
      vanish(who)
      look(4)
      run(answers('node-1', who, at(who), 'error'))
      const [asked] = scene.lookUps.get(at(who))!
      scene.lookUps.set(at(who), [{ ...asked!, detail: 'runtime: connection refused', attempts: 5 }])
    },
  }

  const churning: string[] = []
  for (let step = 0; step <= 10; step += 1) {
    for (let n = 0; n < 4; n += 1) churning.push(start(`shop-job-${step}-${n}`, `node-${(n % 2) + 1}`))
    for (const gone of churning.splice(0, step === 0 ? 0 : 3)) end(gone)
    happens[step]?.()
    look(2)
    for (let n = 0; n < 8; n += 1) {
      sample()
      run(after(5 * MINUTE))
    }
  }

  // The last hour: the small pool fills, two sources are in trouble, and a workload crashes again and again.
  silent.add(SILENT_SOURCE)
  partial.add('node-4')
  for (let n = 0; n < 6; n += 1) {
    start(`queue-late-${n}`, 'node-1', { from: FULL_POOL })
    sample()
    look()
  }
  for (let life = 1; life <= 6; life += 1) {
    const who = start(LOOPING, 'node-1', { life: String(life) })
    vanish(who)
    run(after(MINUTE))
  }
  start('shop-new', 'node-1', { confirmed: false })
  run(confirm('shop-new/1'))
  start('shop-newest', 'node-1', { confirmed: false })
  sample()
  look()
  return { scene, storied }
}

async function store(client: pg.Client, { scene, samples }: World): Promise<void> {
  await storeScene(client, scene)
  for (const one of samples)
    await client.query(
      `insert into ipledger.pool_sample
         (network_id, pool_id, at, size, excluded, free, cooling, reserved, active, quarantined)
       values ('${NETWORK}', $1, to_timestamp($2::float8 / 1000), $3, $4, $5, $6, $7, $8, $9) on conflict do nothing`,
      one,
    )
  for (const { source: id, address, owner: of, answer, terminalSince, detail, head, askedAt, attempts } of [
    ...scene.lookUps.values(),
  ].flat())
    await client.query(
      `insert into ipledger.lookup (network_id, source_id, owner_kind, owner_name, owner_uid, address, answer, terminal_since,
                                    detail, head, asked_at, attempts)
       values ('${NETWORK}', $1, $2, $3, $4, $5, $6, to_timestamp($7::float8 / 1000), $8, $9, to_timestamp($10::float8 / 1000), $11)`,
      [id, of.kind, of.name, of.uid, address, answer, terminalSince, detail, head, askedAt, attempts],
    )
  await judgeScene(client, scene.image)
}
