/** WatchLeases: who may watch what, which changes a watch tells, and how they are written. */
import { create, fromJson, type JsonObject } from '@bufbuild/protobuf'
import { viewOf } from '../core/batch.ts'
import type { AddressRecord } from '../core/event.ts'
import { isHeld } from '../core/image.ts'
import type { Owner } from '../core/owner.ts'
import {
  type LeaseChange,
  LeaseChangeSchema,
  LeaseService,
  type WatchLeasesRequest,
  WatchLeasesRequestSchema,
  type WatchLeasesResponse,
  WatchLeasesResponseSchema,
} from '../gen/ipledger/v1/lease_pb.ts'
import type { LeaseTailed } from '../ledger/read-tail.ts'
import { createWatchHub, WatchEnded } from '../watch/hub.ts'
import { shownPastLease, shownRecord } from './answers.ts'
import { type Asked, readerOf } from './asked.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  checkHead,
  ofNetwork,
  poolNotFound,
  type Stream,
} from './call.ts'
import { invalidField, overloaded, Refused } from './errors.ts'
import { RIGHTS, readableNode } from './rights.ts'
import { type Shown, writerOf } from './shown.ts'

/** Changes a message: a slow caller is owed one message and no more. */
const CHANGES = 200
const MOST_WATCHES = 10_000

const read = readerOf(WatchLeasesRequestSchema)
const write = writerOf(LeaseChangeSchema)

function changeOf(shown: Partial<Shown<LeaseChange>>): LeaseChange {
  return fromJson(LeaseChangeSchema, write(shown) as JsonObject)
}

/** Made once, for all who are told it. */
const changes = new WeakMap<LeaseTailed, LeaseChange>()

function changeFor(network: string, item: LeaseTailed): LeaseChange {
  const known = changes.get(item)
  if (known !== undefined) return known
  const { event, face } = item
  const { type, at: time, actor, cause } = event
  const change = changeOf({ lease: shownRecord(network, event.record, face), type, time, actor, cause })
  changes.set(item, change)
  return change
}

function* inMessages(changes: readonly LeaseChange[], position: number): Generator<WatchLeasesResponse> {
  for (let begin = 0; begin === 0 || begin < changes.length; begin += CHANGES) {
    const some = changes.slice(begin, begin + CHANGES)
    const isLast = begin + CHANGES >= changes.length
    const upto = isLast ? BigInt(position) : some.at(-1)!.lease!.version
    yield create(WatchLeasesResponseSchema, { changes: some, position: upto })
  }
}

export function watchLeases({ ledger, reads }: Backend): Stream & { readonly watches: () => number } {
  const hub = createWatchHub(reads)

  async function* watch(
    asked: Asked<WatchLeasesRequest>,
    call: Call,
    signal: AbortSignal,
  ): AsyncGenerator<WatchLeasesResponse> {
    const network = allowedNetwork(call, asked.network)
    const { after, sendInitialState } = asked
    if (sendInitialState && after !== undefined)
      throw invalidField('after', 'the initial state says where the watch begins; leave one of the two out')
    if (hub.watches() >= MOST_WATCHES) throw overloaded(`has ${MOST_WATCHES} watches`)
    const image = ofNetwork(await ledger.image(network, { deadline: call.deadline }), network)
    const pools = new Set([...image.pools.values()].map(({ pool }) => pool.name))
    const unknown = asked.pools.find((name) => !pools.has(name))
    if (unknown !== undefined) throw poolNotFound(network, unknown)
    const { head } = image
    checkHead('after', after ?? 0, head)
    const node = readableNode(call.caller, asked.node)
    const { fits, is } = filterOf(asked, node)
    const poolOf = ({ poolId }: AddressRecord) => image.pools.get(poolId)!.pool.name
    call.rpc.end('OK', '')

    if (sendInitialState) {
      // Collected in one go, so that all are of one number; sent as the caller takes them.
      const held: AddressRecord[] = []
      for (const record of image.records.values())
        if (isHeld(record) && fits(record.state, record.node) && is(record.owner, poolOf(record)))
          held.push(record)
      for (let begin = 0; begin < held.length; begin += CHANGES) {
        const some = held.slice(begin, begin + CHANGES)
        const changes = some.map((record) => changeOf({ lease: shownPastLease(viewOf(image, record)) }))
        yield create(WatchLeasesResponseSchema, { changes })
      }
    }
    // At once, so that whoever watches from now on knows since when.
    yield* inMessages([], after ?? head)
    const wants = ({ event: { record }, face, before }: LeaseTailed) =>
      (fits(stateOf(record), record.node) || (before !== null && fits(before.state, before.node))) &&
      is(record.owner, face.pool)
    try {
      for await (const { items, position } of hub.watch(network, after ?? head, { node, wants }, signal)) {
        const told = items.map((item) => {
          const { record } = item.event
          const gone = record.state === 'FREE' || !fits(stateOf(record), record.node)
          const change = changeFor(network, item)
          return gone ? { ...change, gone } : change
        })
        yield* inMessages(told, position)
      }
    } catch (error) {
      throw error instanceof WatchEnded ? new Refused(error.refusal) : error
    }
  }

  const desc = LeaseService.method.watchLeases
  return {
    path: `/${desc.parent.typeName}/${desc.name}`,
    desc,
    roles: RIGHTS.get(desc.name)!,
    tell: (message, call, signal) => watch(read(message as WatchLeasesRequest), call, signal),
    watches: hub.watches,
  }
}

const stateOf = ({ state }: AddressRecord): string => (state === 'FREE' ? 'ENDED' : state)

/**
 * `is` looks at what never changes of a lease, `fits` at what may: a lease that fits no longer is told as gone. Both are called for
 * each event and watch, so they allocate nothing.
 */
function filterOf(
  { states, pools, ownerKind, ownerName, ownerUid }: Asked<WatchLeasesRequest>,
  node: string,
) {
  const [wantedStates, wantedPools] = [new Set<string | undefined>(states), new Set(pools)]
  const isAnyOwner = ownerKind === '' && ownerName === '' && ownerUid === ''
  const isOwner = ({ kind, name, uid }: Owner) =>
    (ownerKind === '' || ownerKind === kind) &&
    (ownerName === '' || ownerName === name) &&
    (ownerUid === '' || ownerUid === uid)
  return {
    is: (owner: Owner | null, pool: string) =>
      (isAnyOwner || (owner !== null && isOwner(owner))) && (wantedPools.size === 0 || wantedPools.has(pool)),
    fits: (state: string, on: string) =>
      (node === '' || node === on) && (wantedStates.size === 0 || wantedStates.has(state)),
  }
}
