/**
 * The owner of a lease. The *attachment* (kind, uid, incarnation, interface) is what retries, Release and closing go by; the
 * *holder* (kind, name, interface) is what supersession, `preferPrevious` and the owner limit go by. Node and labels
 * describe a lease and never identify its owner (calico#12257).
 */
export type Labels = Readonly<Record<string, string>>

export type Owner = {
  readonly kind: string
  readonly name: string
  /** Repeats the name where the caller gave none. */
  readonly uid: string
  /** One life of the workload; empty when the caller tells no lives apart. */
  readonly incarnation: string
  readonly interface: string
}

/** Of spare addresses that a node's agent holds for an outage. */
export const RESERVE_KIND = 'reserve'

/** Of an interface of a container on a Docker network whose addresses the driver (`ipledger docker-driver`) hands out. */
export const ENDPOINT_KIND = 'endpoint'

/**
 * Docker tells an IPAM driver neither the network's id nor the container, and asks it while its API is not up yet. A subnet is in
 * one Docker network of a node, and its driver and its source both know it.
 */
export function endpointUid(node: string, subnet: string, mac: string): string {
  return `${node}/${subnet}/${mac.toLowerCase()}`
}

/** Text without control characters, so that the separator makes keys unambiguous. */
export const SEPARATOR = '\u001f'

export function attachmentKey(owner: Owner): string {
  return owner.kind + SEPARATOR + owner.uid + SEPARATOR + owner.incarnation + SEPARATOR + owner.interface
}

export function holderKey(owner: Owner): string {
  return owner.kind + SEPARATOR + owner.name + SEPARATOR + owner.interface
}

export function sameAttachment(a: Owner, b: Owner): boolean {
  return (
    a.uid === b.uid && a.incarnation === b.incarnation && a.interface === b.interface && a.kind === b.kind
  )
}

/**
 * Whether a source's entry is about this owner. Sources often know less than the caller of Reserve, so an empty
 * incarnation or interface of the entry fits any; where the lease's owner gave no uid, the name decides.
 */
export function isListedAs(owner: Owner, entry: Owner): boolean {
  if (owner.kind !== entry.kind) return false
  if (owner.uid !== entry.uid && !(owner.uid === owner.name && owner.name === entry.name)) return false
  return (
    (entry.incarnation === '' || owner.incarnation === '' || entry.incarnation === owner.incarnation) &&
    (entry.interface === '' || entry.interface === owner.interface)
  )
}

export function describeOwner(owner: Owner): string {
  const uid = owner.uid === owner.name ? '' : ` uid ${owner.uid}`
  const incarnation = owner.incarnation === '' ? '' : ` incarnation ${owner.incarnation}`
  const on = owner.interface === '' ? '' : ` (${owner.interface})`
  return `${owner.kind} ${owner.name}${uid}${incarnation}${on}`
}
