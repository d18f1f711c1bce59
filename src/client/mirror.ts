/**
 * A table of leases at a reader, such as a gateway's routes: fed by a watch, and by peers that push what they know, in any
 * order and any number of times.
 *
 * - The watch's word counts: what it says of an address replaces what was pushed, whatever the versions, and a reset replaces
 *   everything, also at a lower position, as after a restore.
 * - A push is news only above every position that the watch ever had, and counts until the watch has passed its version. So the
 *   dead stay dead, and what a restore lost is gone, whatever peers still know of it.
 * - Of what was pushed the greatest version stays: readers that heard the same have the same table.
 */
import {
  addressMeant,
  blockBase,
  formatAddress,
  formatValue,
  type IpAddress,
  maxPrefix,
} from '../core/address.ts'
import { attachmentKey, type Owner as FullOwner } from '../core/owner.ts'
import type { LeaseChange } from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, LeaseState, type Owner } from '../gen/ipledger/v1/types_pb.ts'
import type { Watched } from './watch.ts'

/** What createLeaseMirror makes. */
export type LeaseMirror = ReturnType<typeof createLeaseMirror>

type Heard = Pick<LeaseChange, 'lease'> & { readonly gone?: boolean }

/**
 * Whether the table shows a lease. One that is quarantined is shown: its state is the reader's to act on.
 *
 * ```ts
 * const { leases } = await client.leases.reserve({ owner: { kind: 'vm', name: 'kept' }, claims: [{ pool: 'web' }] })
 * const { lease } = await client.leases.quarantine({ leaseId: leases[0]!.leaseId, why: 'odd' })
 * console.log(isKept({ lease }), isKept({ lease, gone: true })) // true false
 * ```
 */
export function isKept({ lease, gone = false }: Heard): boolean {
  return !gone && lease!.state !== LeaseState.ENDED
}

/** Beyond them the first is forgotten, and nothing up to its version is news any more. */
const MOST_PUSHED = 10_000

/** `null`: the lease has ended. */
type Pushed = { readonly version: bigint; readonly lease: Lease | null }

/**
 * An empty table of one network. Its functions throw RangeError for what is no address, or a lease of another network.
 *
 * ```ts
 * const owner = { kind: 'vm', name: 'mirrored' }
 * const { leases } = await client.leases.reserve({ owner, claims: [{ pool: 'web', address: '10.0.0.77' }] })
 * const mirror = createLeaseMirror({ network: 'default' })
 * for await (const told of watchLeases(client, { pools: ['web'], sendInitialState: true })) {
 *   mirror.follow(told)
 *   break
 * }
 * console.log(mirror.at('::ffff:10.0.0.77')?.owner?.name, mirror.position >= leases[0]!.version) // mirrored true
 * console.log(mirror.ofOwner(owner).length, mirror.ofAttachment(owner).length) // 1 1
 * const { leases: ended } = await client.leases.release({ leaseId: leases[0]!.leaseId })
 * // A peer tells it before the watch does; what it is late with is no news.
 * console.log(mirror.push(ended[0]!), mirror.push(leases[0]!), mirror.at('10.0.0.77')) // true false undefined
 * ```
 */
export function createLeaseMirror({ network = 'default' }: { readonly network?: string } = {}) {
  /** By the watch. */
  const watched = new Map<string, Lease>()
  /** By peers, and not passed by the watch. */
  const pushed = new Map<string, Pushed>()
  const ofAttachment = createIndex(attachmentKey)
  const ofOwner = createIndex(({ kind, name }) => `${kind}\u001f${name}`)
  /** Every prefix length that a lease had. */
  const lengths = new Set<number>()
  let position = 0n
  /** No push up to here is news: the highest position so far, or that of a push that was forgotten. */
  let floor = 0n

  function seen(key: string): Lease | undefined {
    const late = pushed.get(key)
    return late === undefined ? watched.get(key) : (late.lease ?? undefined)
  }

  function put(key: string, word: { readonly watched?: Lease | null; readonly pushed: Pushed | null }): void {
    const before = seen(key)
    if (word.watched === null) watched.delete(key)
    else if (word.watched !== undefined) watched.set(key, word.watched)
    // What was pushed last is the last to be forgotten.
    pushed.delete(key)
    if (word.pushed !== null) pushed.set(key, word.pushed)
    const now = seen(key)
    if (now !== undefined) lengths.add(now.prefixLength)
    for (const index of [ofAttachment, ofOwner]) {
      if (before?.owner !== undefined) index.remove(before.owner, key)
      if (now?.owner !== undefined) index.add(now.owner, key)
    }
  }

  function keyOf({ address, network: of }: Lease): string {
    if (of === network) return formatAddress(read(address))
    throw new RangeError(
      `lease.network is ${of}, and this table is of ${network}: createLeaseMirror takes the name of its network`,
    )
  }

  function all(): readonly Lease[] {
    return [...new Set([...watched.keys(), ...pushed.keys()])].flatMap((key) => seen(key) ?? [])
  }

  const leasesAt = (keys: ReadonlySet<string>) => [...keys].map((key) => seen(key)!)

  return {
    /** What a watch of this network told; all of one watch, in order. */
    follow({ changes, position: upto, reset }: Watched): void {
      const told = changes.map((change) => [keyOf(change.lease!), change] as const)
      if (reset)
        for (const key of [...watched.keys(), ...pushed.keys()]) put(key, { watched: null, pushed: null })
      // A connection was lost, and the watch says again what it said.
      else if (upto < position) return
      for (const [key, change] of told)
        put(key, { watched: isKept(change) ? change.lease! : null, pushed: null })
      position = upto
      if (upto > floor) floor = upto
      for (const [key, { version }] of pushed) if (version <= upto) put(key, { pushed: null })
    },
    /** What a peer knows of a lease, `ENDED` ones too; only what the watch would tell. Answers whether it was news. */
    push(lease: Lease): boolean {
      const { version } = lease
      const key = keyOf(lease)
      if (version <= floor || version <= (pushed.get(key)?.version ?? 0n)) return false
      put(key, { pushed: { version, lease: isKept({ lease }) ? lease : null } })
      const [first] = pushed
      if (pushed.size > MOST_PUSHED) {
        if (first![1].version > floor) floor = first![1].version
        put(first![0], { pushed: null })
      }
      return true
    },
    /** The lease at an address, or whose block it is in, however it is spelled: `::ffff:10.8.64.2` is `10.8.64.2`. */
    at(address: string): Lease | undefined {
      const { family, value } = read(address)
      const alone = seen(formatValue(family, value))
      if (alone !== undefined) return alone
      for (const length of lengths) {
        if (length >= maxPrefix(family)) continue
        const lease = seen(formatValue(family, blockBase(family, value, length)))
        if (lease?.prefixLength === length) return lease
      }
      return undefined
    },
    /** Leases of an attachment: kind, uid (default: the name), incarnation, interface. */
    ofAttachment: (owner: AnyOwner): readonly Lease[] => leasesAt(ofAttachment.of(owner)),
    /** Leases of an owner by kind and name, of all its lives and interfaces. */
    ofOwner: (owner: AnyOwner): readonly Lease[] => leasesAt(ofOwner.of(owner)),
    /** All leases, in no order. */
    all,
    /** Number of the log up to which the watch has told everything. Lower than before after a restore. */
    get position(): bigint {
      return position
    },
  }
}

/** An owner as a reader may know it: `uid` defaults to the name, `interface` to `eth0`. */
export type AnyOwner = Pick<Owner, 'kind' | 'name'> &
  Partial<Pick<Owner, 'uid' | 'incarnation' | 'interface'>>

function createIndex(keyOfOwner: (owner: FullOwner) => string) {
  const keys = new Map<string, Set<string>>()
  const none: ReadonlySet<string> = new Set()
  const named = ({ kind, name, uid = '', incarnation = '', interface: on = '' }: AnyOwner) =>
    keyOfOwner({ kind, name, uid: uid || name, incarnation, interface: on || 'eth0' })
  return {
    of: (owner: AnyOwner): ReadonlySet<string> => keys.get(named(owner)) ?? none,
    add(owner: AnyOwner, key: string): void {
      const at = named(owner)
      const known = keys.get(at)
      if (known === undefined) keys.set(at, new Set([key]))
      else known.add(key)
    },
    remove(owner: AnyOwner, key: string): void {
      const at = named(owner)
      const known = keys.get(at)
      known?.delete(key)
      if (known?.size === 0) keys.delete(at)
    },
  }
}

/** @throws RangeError if it is none */
function read(address: string): IpAddress {
  const meant = addressMeant(address)
  if (meant === null) throw new RangeError(`not an address: ${address}`)
  return meant
}
