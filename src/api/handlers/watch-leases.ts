/** WatchLeases: the rights to it, the changes that a watch sends, and their encoding. */
import { setImmediate } from 'node:timers/promises'
import { create, fromJson, type JsonObject, type Message } from '@bufbuild/protobuf'
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
import type { LogPosition, TailItem } from '../../ledger/read-tail.ts'
import { CHANGES, LogTail } from '../../watch/log-tail.ts'
import { type Decoded, decoderOf } from '../codec/decode-request.ts'
import { encoderOf, type View } from '../codec/encode-response.ts'
import { invalidField, overloaded } from '../codec/errors.ts'
import { pastLeaseView, recordView } from '../codec/views.ts'
import {
  type Backend,
  type Call,
  checkHead,
  ofNetwork,
  poolNotFound,
  type Scoped,
  type Stream,
  scoped,
} from '../method.ts'
import { LEASE_READERS, readableNode } from '../rights.ts'

const MOST_WATCHES = 10_000
/** Records that are examined at a time for the initial state. */
const EXAMINED = 1_000

const { fromMessage: decode } = decoderOf(WatchLeasesRequestSchema)
const encode = encoderOf(LeaseChangeSchema)

function changeOf(view: Partial<View<LeaseChange>>): LeaseChange {
  return fromJson(LeaseChangeSchema, encode(view) as JsonObject)
}

/** Made once for all watches. */
const changes = new WeakMap<TailItem, LeaseChange>()

function changeFor(network: string, item: TailItem): LeaseChange {
  return changes.getOrInsertComputed(item, ({ event: { record, type, at, actor, cause }, poolInfo }) =>
    changeOf({ lease: recordView(network, record, poolInfo), type, time: at, actor, cause }),
  )
}

function response(changes: LeaseChange[], { seq, digest }: LogPosition): WatchLeasesResponse {
  return create(WatchLeasesResponseSchema, { changes, position: BigInt(seq), digest })
}

/** Of messages before the initial state is complete. */
const NO_POSITION: LogPosition = { seq: 0, digest: '' }

export const WATCH_LEASES = { desc: LeaseService.method.watchLeases, roles: LEASE_READERS }

export class WatchLeases implements Stream {
  readonly desc = WATCH_LEASES.desc
  readonly path = `/${this.desc.parent.typeName}/${this.desc.name}`
  readonly roles = WATCH_LEASES.roles
  readonly #ledger: Backend['ledger']
  readonly #tail: LogTail
  readonly #most: number
  #count = 0
  readonly watches = () => this.#count
  readonly #countOfCaller = new Map<string, number>()
  #iteration: Promise<void> = Promise.resolve()

  constructor({ ledger, reads, mostWatches = MOST_WATCHES }: Backend & { readonly mostWatches?: number }) {
    this.#ledger = ledger
    this.#tail = new LogTail(reads)
    this.#most = mostWatches
  }

  async *stream(message: Message, call: Call, signal: AbortSignal): AsyncGenerator<WatchLeasesResponse> {
    // Before anything is awaited, so that never too many begin.
    this.#add(call.caller.name, 1)
    try {
      const request = decode(message as WatchLeasesRequest)
      yield* this.#watch(request, scoped(call, request), signal)
    } finally {
      this.#add(call.caller.name, -1)
    }
  }

  #add(caller: string, watches: 1 | -1): void {
    const ofCaller = (this.#countOfCaller.get(caller) ?? 0) + watches
    const most = this.#most
    if (watches > 0 && this.#count >= most) throw overloaded(`has ${most} watches`)
    if (ofCaller > most / 2)
      throw overloaded(`has ${most / 2} watches of ${caller}, and half of all is what one caller may have`)
    this.#count += watches
    if (ofCaller === 0) this.#countOfCaller.delete(caller)
    else this.#countOfCaller.set(caller, ofCaller)
  }

  async *#watch(
    request: Decoded<WatchLeasesRequest>,
    call: Scoped,
    signal: AbortSignal,
  ): AsyncGenerator<WatchLeasesResponse> {
    const { after, afterDigest, sendInitialState } = request
    const { network } = call
    if (sendInitialState && after !== undefined)
      throw invalidField('after', 'the initial state says where the watch begins; leave one of the two out')
    if (afterDigest !== '' && after === undefined)
      throw invalidField('afterDigest', 'is the digest that was answered beside a position; give both')
    const image = ofNetwork(await this.#ledger.image(network, { deadline: call.deadline }), network)
    const pools = new Set([...image.pools.values()].map(({ pool }) => pool.name))
    const unknown = request.pools.find((name) => !pools.has(name))
    if (unknown !== undefined) throw poolNotFound(network, unknown)
    const { head: seq, digest } = image
    checkHead('after', after ?? 0, seq)
    const node = readableNode(call.caller, request.node)
    const filter = filterOf(request, node)
    const from =
      after === undefined ? { seq, digest } : await this.#tail.positionAt(network, after, afterDigest)
    call.span.end('OK', '')

    // What happens meanwhile follows before the first position, so that the initial state is of one number.
    const upTo = sendInitialState ? yield* this.#initialState(network, image, filter) : seq
    // At once, so that the caller knows from where on it watches.
    if (upTo === seq) yield response([], from)
    const message = (items: readonly TailItem[], position: LogPosition) => {
      const changes = items.map((item) => {
        const change = changeFor(network, item)
        return filter.hasLeft(item) ? { ...change, gone: true } : change
      })
      return response(changes, sendInitialState && position.seq < upTo ? NO_POSITION : position)
    }
    const { matches } = filter
    yield* this.#tail.stream({ network, from, upTo, node, matches, message }, signal)
  }

  /**
   * The leases that are held, found as the caller takes them, so that nothing is kept for a slow caller. Returns the number up to
   * which these leases and the events since the beginning are complete. Records keep their order while they change; when the
   * image was loaded anew, all are sent again.
   */
  async *#initialState(
    network: string,
    first: Image,
    { matchesLease, matchesNow }: Filter,
  ): AsyncGenerator<WatchLeasesResponse, number> {
    let image = first
    let records = image.records.values()
    for (;;) {
      const { head, pools } = image
      let examined = 0
      const found = records
        .take(EXAMINED)
        .filter((record) => {
          examined += 1
          return (
            isHeld(record) &&
            matchesNow(record.state, record.node) &&
            matchesLease(record.owner, pools.get(record.poolId)!.pool.name)
          )
        })
        .toArray()
      for (let begin = 0; begin < found.length; begin += CHANGES) {
        await this.#nextIteration()
        const some = found.slice(begin, begin + CHANGES)
        // A pool that was deleted meanwhile has no held lease, and the events that follow say so.
        const held = some.filter(({ poolId }) => image.pools.has(poolId))
        const leases = held.map((record) => changeOf({ lease: pastLeaseView(viewOf(image, record)) }))
        yield response(leases, NO_POSITION)
      }
      if (examined < EXAMINED) return head
      // Between two batches, so that nothing is sent that is not committed.
      const now = ofNetwork(await this.#ledger.image(network), network)
      if (now !== image) records = now.records.values()
      image = now
    }
  }

  /** One message of all initial states in an iteration of the event loop: thousands may begin at once. (1,400 took 15 s.) */
  #nextIteration(): Promise<void> {
    this.#iteration = this.#iteration.then(() => setImmediate())
    return this.#iteration
  }
}

type Filter = ReturnType<typeof filterOf>

/**
 * `matchesLease` compares what of a lease never changes, `matchesNow` what may. They run for each event and watch, so they allocate
 * nothing.
 */
function filterOf(
  { states, pools, ownerKind, ownerName, ownerUid }: Decoded<WatchLeasesRequest>,
  node: string,
) {
  const [wantedStates, wantedPools] = [new Set<string | undefined>(states), new Set(pools)]
  const matchesLease = (owner: Owner | null, pool: string) =>
    (ownerKind === '' || ownerKind === owner?.kind) &&
    (ownerName === '' || ownerName === owner?.name) &&
    (ownerUid === '' || ownerUid === owner?.uid) &&
    (wantedPools.size === 0 || wantedPools.has(pool))
  const matchesNow = (state: string, on: string) =>
    (node === '' || node === on) && (wantedStates.size === 0 || wantedStates.has(state))
  const isMatching = ({ state, node }: AddressRecord) => matchesNow(state === 'FREE' ? 'ENDED' : state, node)
  return {
    matchesLease,
    matchesNow,
    matches: ({ event: { record }, poolInfo, before }: TailItem) =>
      (isMatching(record) || (before !== null && matchesNow(before.state, before.node))) &&
      matchesLease(record.owner, poolInfo.pool),
    /** The lease matched before, and does not any more or has ended. */
    hasLeft: ({ event: { record } }: TailItem) => record.state === 'FREE' || !isMatching(record),
  }
}
