/**
 * A table of leases at a reader, such as a gateway's routes: fed by a watch, and by peers that push what they know, in any
 * order and any number of times. Every write carries the lease's version, deletes too, and the greater one stays, whoever
 * brought it: so the dead stay dead, and readers that heard the same have the same table.
 */
import { addressMeant, formatAddress } from '../core/address.ts'
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

/** `null`: it was dropped at this version. */
type Entry = { readonly version: bigint; readonly lease: Lease | null }

/**
 * An empty table of one network. Its functions throw RangeError for what is no address.
 *
 * ```ts
 * const owner = { kind: 'vm', name: 'mirrored' }
 * const { leases } = await client.leases.reserve({ owner, claims: [{ pool: 'web', address: '10.0.0.77' }] })
 * const mirror = createLeaseMirror()
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
export function createLeaseMirror() {
  const entries = new Map<string, Entry>()
  const ofAttachment = createIndex(attachmentKey)
  const ofOwner = createIndex(({ kind, name }) => `${kind}\u001f${name}`)
  /** Keys of tombstones. */
  const dropped = new Set<string>()
  let position = 0n

  function put(key: string, entry: Entry | undefined): void {
    const before = entries.get(key)?.lease?.owner
    const now = entry?.lease?.owner
    for (const index of [ofAttachment, ofOwner]) {
      if (before !== undefined) index.remove(before, key)
      if (now !== undefined) index.add(now, key)
    }
    if (entry === undefined) entries.delete(key)
    else entries.set(key, entry)
    if (entry?.lease === null) dropped.add(key)
    else dropped.delete(key)
  }

  /** What the watch has passed, and what is older than what is known of its address, is nothing new. */
  function take(change: Heard): boolean {
    const { address, version } = change.lease!
    const key = keyOf(address)
    const known = entries.get(key)
    if (version <= position || (known !== undefined && version <= known.version)) return false
    put(key, { version, lease: isKept(change) ? change.lease! : null })
    return true
  }

  const leasesAt = (keys: ReadonlySet<string>) => [...keys].map((key) => entries.get(key)!.lease!)

  return {
    /** What a watch of this network told; all of one watch, in order. */
    follow({ changes, position: upto, reset }: Watched): void {
      if (upto < position) return
      if (reset) {
        // What the list does not have, or has in an older version, was lost by a restore or has ended.
        for (const [key, { version }] of entries) if (version <= upto) put(key, undefined)
        position = 0n
      }
      for (const change of changes) take(change)
      position = upto
      // Nothing older is taken any more, so these tombstones have done their work.
      for (const key of dropped) if (entries.get(key)!.version <= upto) put(key, undefined)
    },
    /** What a peer knows of a lease, `ENDED` ones too; only what the watch would tell. Answers whether it was news. */
    push: (lease: Lease): boolean => take({ lease }),
    /** The lease at an address, however it is spelled: `::ffff:10.8.64.2` is `10.8.64.2`. */
    at: (address: string): Lease | undefined => entries.get(keyOf(address))?.lease ?? undefined,
    /** Leases of an attachment: kind, uid (default: the name), incarnation, interface. */
    ofAttachment: (owner: AnyOwner): readonly Lease[] => leasesAt(ofAttachment.of(owner)),
    /** Leases of an owner by kind and name, of all its lives and interfaces. */
    ofOwner: (owner: AnyOwner): readonly Lease[] => leasesAt(ofOwner.of(owner)),
    /** All leases, in no order. */
    all: (): readonly Lease[] => [...entries.values()].flatMap(({ lease }) => lease ?? []),
    /** Number of the log up to which the watch has told everything. */
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

/** One key for an address, whoever spells it. @throws RangeError if it is none */
function keyOf(address: string): string {
  const meant = addressMeant(address)
  if (meant === null) throw new RangeError(`not an address: ${address}`)
  return formatAddress(meant)
}
