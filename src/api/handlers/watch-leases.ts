/** WatchLeases: who may watch what, which changes a watch tells, and how they are written. */
import { setImmediate as turn } from 'node:timers/promises'
import { create, fromJson, type JsonObject } from '@bufbuild/protobuf'
import { viewOf } from '../../core/batch.ts'
import type { AddressRecord } from '../../core/event.ts'
import { type Image, isHeld } from '../../core/image.ts'
import type { Owner } from '../../core/owner.ts'
import {
  type LeaseChange,
  LeaseChangeSchema,
  LeaseService,
  type WatchLeasesRequest,
  WatchLeasesRequestSchema,
  type WatchLeasesResponse,
  WatchLeasesResponseSchema,
} from '../../gen/ipledger/v1/lease_pb.ts'
import type { Place, Tailed } from '../../ledger/read-tail.ts'
import { CHANGES, createWatchHub, WatchEnded } from '../../watch/hub.ts'
import { type Decoded, decoderOf } from '../codec/decode-request.ts'
import { encoderOf, type View } from '../codec/encode-response.ts'
import { invalidField, overloaded, Refused } from '../codec/errors.ts'
import { pastLeaseView, recordView } from '../codec/views.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  checkHead,
  ofNetwork,
  poolNotFound,
  type Stream,
} from '../method.ts'
import { LEASE_READERS, readableNode } from '../rights.ts'

const MOST_WATCHES = 10_000
/** Leases of the initial state that are found at a time, and looked at for it. */
const FOUND = 500
const LOOKED_AT = 2_000

const { fromMessage: decode } = decoderOf(WatchLeasesRequestSchema)
const write = encoderOf(LeaseChangeSchema)

function changeOf(shown: Partial<View<LeaseChange>>): LeaseChange {
  return fromJson(LeaseChangeSchema, write(shown) as JsonObject)
}

/** Made once, for all who are told it. */
const changes = new WeakMap<Tailed, LeaseChange>()

function changeFor(network: string, item: Tailed): LeaseChange {
  const known = changes.get(item)
  if (known !== undefined) return known
  const { event, face } = item
  const { type, at: time, actor, cause } = event
  const change = changeOf({ lease: recordView(network, event.record, face), type, time, actor, cause })
  changes.set(item, change)
  return change
}

function message(changes: LeaseChange[], { seq, digest }: Place): WatchLeasesResponse {
  return create(WatchLeasesResponseSchema, { changes, position: BigInt(seq), digest })
}

/** The initial state is not yet complete. */
const NOWHERE: Place = { seq: 0, digest: '' }

export function watchLeases({
  ledger,
  reads,
  mostWatches = MOST_WATCHES,
}: Backend & { readonly mostWatches?: number }): Stream & { readonly watches: () => number } {
  const hub = createWatchHub(reads)
  const ofCallers = new Map<string, number>()
  /** One message of an initial state a turn of the event loop: thousands may begin at once. (1,400 took 15 s.) */
  let lastTurn: Promise<void> = Promise.resolve()
  let watches = 0

  /** Counted before anything is waited for, so that no more begin than there may be. */
  function count(caller: string, by: number): void {
    const own = (ofCallers.get(caller) ?? 0) + by
    if (by > 0 && watches >= mostWatches) throw overloaded(`has ${mostWatches} watches`)
    if (own > mostWatches / 2)
      throw overloaded(
        `has ${mostWatches / 2} watches of ${caller}, and half of all is what one caller may have`,
      )
    watches += by
    if (own === 0) ofCallers.delete(caller)
    else ofCallers.set(caller, own)
  }

  async function* counted(asked: Decoded<WatchLeasesRequest>, call: Call, signal: AbortSignal) {
    count(call.caller.name, 1)
    try {
      yield* watch(asked, call, signal)
    } finally {
      count(call.caller.name, -1)
    }
  }

  async function* watch(
    asked: Decoded<WatchLeasesRequest>,
    call: Call,
    signal: AbortSignal,
  ): AsyncGenerator<WatchLeasesResponse> {
    const network = allowedNetwork(call, asked.network)
    const { after, afterDigest, sendInitialState } = asked
    if (sendInitialState && after !== undefined)
      throw invalidField('after', 'the initial state says where the watch begins; leave one of the two out')
    if (afterDigest !== '' && after === undefined)
      throw invalidField('afterDigest', 'is the digest that was answered beside a position; give both')
    const image = ofNetwork(await ledger.image(network, { deadline: call.deadline }), network)
    const pools = new Set([...image.pools.values()].map(({ pool }) => pool.name))
    const unknown = asked.pools.find((name) => !pools.has(name))
    if (unknown !== undefined) throw poolNotFound(network, unknown)
    const { head: seq, digest } = image
    checkHead('after', after ?? 0, seq)
    const node = readableNode(call.caller, asked.node)
    const { fits, is } = filterOf(asked, node)
    const from = after === undefined ? { seq, digest } : await hub.place(network, after, afterDigest)
    call.span.end('OK', '')

    // What happens while it is sent follows it, before the first position: then all is of one number.
    const upTo = sendInitialState ? yield* heldLeases(network, image, { fits, is }) : seq
    // At once, so that whoever watches from now on knows since when.
    if (upTo === seq) yield message([], from)
    const wants = ({ event: { record }, face, before }: Tailed) =>
      (fits(stateOf(record), record.node) || (before !== null && fits(before.state, before.node))) &&
      is(record.owner, face.pool)
    const toChange = (item: Tailed): LeaseChange => {
      const { record } = item.event
      const gone = record.state === 'FREE' || !fits(stateOf(record), record.node)
      const change = changeFor(network, item)
      return gone ? { ...change, gone } : change
    }
    const told = (items: readonly Tailed[], position: Place) =>
      message(items.map(toChange), sendInitialState && position.seq < upTo ? NOWHERE : position)
    yield* hub.watch({ network, from, upTo, node, wants, message: told }, signal)
  }

  /**
   * The leases that are held, found as the caller takes them, so that nothing is kept for one who does not. Answers the number
   * up to which they, and what happened since the beginning, say everything. The order of the records stays while they change;
   * of an image that was loaded anew they are sent again.
   */
  async function* heldLeases(
    network: string,
    first: Image,
    filter: ReturnType<typeof filterOf>,
  ): AsyncGenerator<WatchLeasesResponse, number> {
    let image = first
    let records = image.records.values()
    for (;;) {
      const { found, isDone } = heldAmong(image, records, filter)
      const { head } = image
      for (let begin = 0; begin < found.length; begin += CHANGES) {
        lastTurn = lastTurn.then(() => turn())
        await lastTurn
        const some = found.slice(begin, begin + CHANGES)
        // Of a pool that is deleted by now no lease is held, and what follows tells it.
        const held = some.filter(({ poolId }) => image.pools.has(poolId))
        yield message(
          held.map((record) => changeOf({ lease: pastLeaseView(viewOf(image, record)) })),
          NOWHERE,
        )
      }
      if (isDone) return head
      // Between two batches, so that nothing is told that is not committed.
      const now = ofNetwork(await ledger.image(network), network)
      if (now !== image) records = now.records.values()
      image = now
    }
  }

  async function* refusing(watch: AsyncIterable<WatchLeasesResponse>): AsyncGenerator<WatchLeasesResponse> {
    try {
      yield* watch
    } catch (error) {
      throw error instanceof WatchEnded ? new Refused(error.refusal) : error
    }
  }

  const desc = LeaseService.method.watchLeases
  return {
    path: `/${desc.parent.typeName}/${desc.name}`,
    desc,
    roles: LEASE_READERS,
    stream: (message, call, signal) => refusing(counted(decode(message as WatchLeasesRequest), call, signal)),
    watches: () => watches,
  }
}

/** Of the next records those that are held and wanted. */
function heldAmong(
  image: Image,
  records: Iterator<AddressRecord>,
  { fits, is }: ReturnType<typeof filterOf>,
) {
  const found: AddressRecord[] = []
  for (let n = 0; n < LOOKED_AT && found.length < FOUND; n += 1) {
    const { value: record, done: isDone } = records.next()
    if (isDone) return { found, isDone }
    const pool = () => image.pools.get(record.poolId)!.pool.name
    if (isHeld(record) && fits(record.state, record.node) && is(record.owner, pool())) found.push(record)
  }
  return { found, isDone: false }
}

const stateOf = ({ state }: AddressRecord): string => (state === 'FREE' ? 'ENDED' : state)

/**
 * `is` looks at what never changes of a lease, `fits` at what may: a lease that fits no longer is told as gone. Both are called for
 * each event and watch, so they allocate nothing.
 */
function filterOf(
  { states, pools, ownerKind, ownerName, ownerUid }: Decoded<WatchLeasesRequest>,
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
