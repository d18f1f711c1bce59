/**
 * A node that is in somebody else's hands, or broken: its source lists what is not there, its caller uses names, attachments and
 * request ids of other nodes' workloads. It may harm what is placed on its own node, which is excused; nothing else.
 */
import type { Command } from '../../src/core/command.ts'
import type { Entry } from '../../src/core/event.ts'
import type { Owner } from '../../src/core/owner.ts'
import { callerOf, type Life, NETWORK, type Node, type World } from './world.ts'

/** Addresses of others, for others, of whole ranges, of kinds that it does not declare, or nothing: anew each time. */
export function inventedList(world: World, node: Node): readonly Entry[] {
  if (world.isCalm || world.chance(0.5)) return []
  const elsewhere = [...world.lives].filter((life) => life.node !== node)
  const owners = [
    ...elsewhere.map(({ owner }) => owner),
    ...['pod', 'vm', 'infrastructure', 'reserve'].map((kind) => ({ kind, name: `h${world.between(1, 4)}` })),
    {},
  ]
  const used = elsewhere.flatMap(({ block, address }) => (block === null ? [] : address))
  const first = world.between(1, 12)
  const range = Array.from({ length: world.between(1, 5) }, (_, i) => `10.0.0.${first + i}`)
  const addresses = world.chance(0.6) && used.length > 0 ? used.filter(() => world.chance(0.5)) : range
  return addresses.map((address) => ({ address, ...world.pick(owners) }))
}

/** A call for a workload of another node, as if it were of this one; by owner, as who guesses can. */
export function forgedCommand(world: World, { name: node }: Node, { owner }: Life): Command {
  const actor = callerOf(node)
  const incarnation = String(Number(owner.incarnation) + world.between(0, 3))
  const uid = owner.kind === 'pod' ? `${owner.name}-${incarnation}` : owner.uid
  const next: Owner = { ...owner, uid, incarnation }
  const requestId = world.chance(0.5) ? requestOf('reserve', next) : null
  const envelope = { network: NETWORK, actor, requestId, fingerprint: 'forged', traceId: null }
  const lease = { token: null, owner: next }
  const claims = [{ pools: ['pool'], address: null, preferPrevious: true }]
  return world.pick<() => Command>([
    () => ({ ...envelope, cause: 'Confirm', type: 'confirm', lease }),
    () => ({ ...envelope, cause: 'Release', type: 'release', lease, removal: 'CONFIRMED' }),
    () => ({
      ...envelope,
      cause: 'Reserve',
      type: 'reserve',
      owner: next,
      settings: { node },
      claims,
      liveAddresses: [],
      confirmWithinMs: null,
      confirmed: world.chance(0.5),
    }),
  ])()
}

/** Who knows a workload can guess its request. */
export function requestOf(what: string, { kind, uid, incarnation }: Owner): string {
  return `${what} ${kind} ${uid} ${incarnation}`
}
