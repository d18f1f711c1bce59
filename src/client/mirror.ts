/**
 * A table of leases at a reader, such as a gateway's routes: fed by a watch, and by peers that push what they know, in any
 * order and any number of times.
 *
 * - The watch has precedence: a change from it replaces what was pushed for that address, at any version. A reset replaces
 *   everything, also at a lower position, as after a restore.
 * - A push is applied only above every position that the watch ever had, and stays until the watch has passed its version. So
 *   ended leases stay ended, and peers cannot bring back what a restore removed.
 * - Of several pushes the one with the greatest version stays: readers with the same input have the same table.
 */
import {
  blockBase,
  formatAddress,
  formatValue,
  type IpAddress,
  maxPrefix,
  parseLenientAddress,
} from '../core/address.ts'
import { attachmentKey } from '../core/owner.ts'
import type { LeaseChange } from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, LeaseState, type Owner } from '../gen/ipledger/v1/types_pb.ts'
import type { Watched } from './watch.ts'

/**
 * Whether the table shows a lease. One that is quarantined is shown: its state is the reader's to act on.
 *
 * ```ts
 * const { leases } = await client.leases.reserve({ owner: { kind: 'vm', name: 'kept' }, claims: [{ pool: 'web' }] })
 * const { lease } = await client.leases.quarantine({ leaseId: leases[0]!.leaseId, why: 'odd' })
 * console.log(isKept({ lease }), isKept({ lease, gone: true })) // true false
 * ```
 */
export function isKept({
  lease,
  gone = false,
}: Pick<LeaseChange, 'lease'> & { readonly gone?: boolean }): boolean {
  return !gone && lease!.state !== LeaseState.ENDED
}

/** Beyond them the first is forgotten, and nothing up to its version is news any more. */
const MOST_PUSHED = 10_000

/** `null`: the lease has ended. */
type Pushed = { readonly version: bigint; readonly lease: Lease | null }

/** An owner as a reader may know it: `uid` defaults to the name, `interface` to `eth0`. */
export type AnyOwner = Pick<Owner, 'kind' | 'name'> &
  Partial<Pick<Owner, 'uid' | 'incarnation' | 'interface'>>

const ownerName = ({ kind, name }: AnyOwner) => `${kind}\u001f${name}`
const attachmentName = ({ kind, name, uid, incarnation = '', interface: on }: AnyOwner) =>
  attachmentKey({ kind, name, uid: uid || name, incarnation, interface: on || 'eth0' })
const namesOf = (lease: Lease | undefined) =>
  lease?.owner === undefined ? [] : [ownerName(lease.owner), attachmentName(lease.owner)]

/**
 * A table of one network, empty at first. Its methods throw RangeError for what is no address, or a lease of another network.
 *
 * ```ts
 * const owner = { kind: 'vm', name: 'mirrored' }
 * const { leases } = await client.leases.reserve({ owner, claims: [{ pool: 'web', address: '10.0.0.77' }] })
 * const mirror = new LeaseMirror({ network: 'default' })
 * for await (const message of watchLeases(client, { pools: ['web'], sendInitialState: true })) {
 *   mirror.follow(message)
 *   break
 * }
 * console.log(mirror.at('::ffff:10.0.0.77')?.owner?.name, mirror.position >= leases[0]!.version) // mirrored true
 * console.log(mirror.ofOwner(owner).length, mirror.ofAttachment(owner).length) // 1 1
 * const { leases: ended } = await client.leases.release({ leaseId: leases[0]!.leaseId })
 * // A peer pushes the end before the watch has it; a push that comes late is no news.
 * console.log(mirror.push(ended[0]!), mirror.push(leases[0]!), mirror.at('10.0.0.77')) // true false undefined
 * ```
 */
export class LeaseMirror {
  readonly #network: string
  /** By the watch. */
  readonly #watched = new Map<string, Lease>()
  /** By peers, and not passed by the watch. */
  readonly #pushed = new Map<string, Pushed>()
  /** Keys of leases by the names of owners and of attachments. */
  readonly #named = new Map<string, Set<string>>()
  /** Every prefix length that a lease had. */
  readonly #lengths = new Set<number>()
  #position = 0n
  /** No push up to here is news: the highest position so far, or that of a push that was forgotten. */
  #floor = 0n

  constructor({ network = 'default' }: { readonly network?: string } = {}) {
    this.#network = network
  }

  /** A message of a watch of this network; all of one watch, in order. */
  follow({ changes, position, reset }: Watched): void {
    const news = changes.map((change) => [this.#keyOf(change.lease!), change] as const)
    if (reset) for (const key of this.#keys()) this.#put(key, null, null)
    // After a broken connection the watch repeats some changes.
    else if (position < this.#position) return
    for (const [key, change] of news) this.#put(key, isKept(change) ? change.lease! : null, null)
    this.#position = position
    if (position > this.#floor) this.#floor = position
    for (const [key, { version }] of this.#pushed)
      if (version <= position) this.#put(key, this.#watched.get(key) ?? null, null)
  }

  /** A lease as a peer knows it, `ENDED` ones too; only such as the watch would send. Answers whether it was news. */
  push(lease: Lease): boolean {
    const { version } = lease
    const key = this.#keyOf(lease)
    if (version <= this.#floor || version <= (this.#pushed.get(key)?.version ?? 0n)) return false
    const put = (at: string, pushed: Pushed | null) => this.#put(at, this.#watched.get(at) ?? null, pushed)
    put(key, { version, lease: isKept({ lease }) ? lease : null })
    const [first] = this.#pushed
    if (this.#pushed.size > MOST_PUSHED) {
      if (first![1].version > this.#floor) this.#floor = first![1].version
      put(first![0], null)
    }
    return true
  }

  /** The lease at an address, or whose block it is in, however it is spelled: `::ffff:10.8.64.2` is `10.8.64.2`. */
  at(address: string): Lease | undefined {
    const { family, value } = read(address)
    const alone = this.#seen(formatValue(family, value))
    if (alone !== undefined) return alone
    for (const length of this.#lengths) {
      if (length >= maxPrefix(family)) continue
      const lease = this.#seen(formatValue(family, blockBase(family, value, length)))
      if (lease?.prefixLength === length) return lease
    }
    return undefined
  }

  /** Leases of an attachment: kind, uid (default: the name), incarnation, interface. */
  ofAttachment(owner: AnyOwner): readonly Lease[] {
    return this.#seenAll(this.#named.get(attachmentName(owner)) ?? [])
  }

  /** Leases of an owner by kind and name, of all its lives and interfaces. */
  ofOwner(owner: AnyOwner): readonly Lease[] {
    return this.#seenAll(this.#named.get(ownerName(owner)) ?? [])
  }

  /** All leases, in no order. */
  all(): readonly Lease[] {
    return this.#seenAll(this.#keys())
  }

  /** Number of the log up to which the watch has sent everything. Lower than before after a restore. */
  get position(): bigint {
    return this.#position
  }

  #keys(): ReadonlySet<string> {
    return new Set([...this.#watched.keys(), ...this.#pushed.keys()])
  }

  #seen(key: string): Lease | undefined {
    const late = this.#pushed.get(key)
    return late === undefined ? this.#watched.get(key) : (late.lease ?? undefined)
  }

  #seenAll(keys: Iterable<string>): readonly Lease[] {
    return [...keys].flatMap((key) => this.#seen(key) ?? [])
  }

  /** Null: nothing. */
  #put(key: string, watched: Lease | null, pushed: Pushed | null): void {
    for (const name of namesOf(this.#seen(key))) {
      const keys = this.#named.get(name)!
      keys.delete(key)
      if (keys.size === 0) this.#named.delete(name)
    }
    if (watched === null) this.#watched.delete(key)
    else this.#watched.set(key, watched)
    // What was pushed last is the last to be forgotten.
    this.#pushed.delete(key)
    if (pushed !== null) this.#pushed.set(key, pushed)
    const now = this.#seen(key)
    if (now !== undefined) this.#lengths.add(now.prefixLength)
    for (const name of namesOf(now)) this.#named.set(name, (this.#named.get(name) ?? new Set()).add(key))
  }

  #keyOf({ address, network }: Lease): string {
    if (network === this.#network) return formatAddress(read(address))
    throw new RangeError(
      `lease.network is ${network}, and this table is of ${this.#network}: LeaseMirror takes the name of its network`,
    )
  }
}

/** @throws RangeError if it is none */
function read(text: string): IpAddress {
  const address = parseLenientAddress(text)
  if (address === null) throw new RangeError(`not an address: ${text}`)
  return address
}
