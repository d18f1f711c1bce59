/**
 * Who holds a lease. Identity is (kind, uid, incarnation, interface), the *attachment*: retries, Release and
 * closing go by it. Supersession and the owner limit go by (kind, name, interface), the *holder*. `node`,
 * `boot` and `labels` describe and never identify (calico#12257).
 */
export type Labels = Readonly<Record<string, string>>

export type Owner = {
  readonly kind: string
  readonly name: string
  readonly uid: string
  /** False when the caller gave no uid: `uid` then repeats the name and the owner is looked up by name. */
  readonly uidNamed: boolean
  /** One life of the workload; empty when the caller tells no lives apart. */
  readonly incarnation: string
  readonly interface: string
}

export type Placement = {
  readonly node: string
  readonly boot: string
  readonly labels: Labels
}

/**
 * Keys are text, so that one `= any($keys)` on an index finds a whole batch. Kind and interface are free of
 * `|` by validation; the incarnation is escaped and the last part may hold anything, so no two owners share a key.
 */
export function attachmentKey(owner: Owner): string {
  return `${owner.kind}|${owner.interface}|${escapePart(owner.incarnation)}|${owner.uid}`
}

export function holderKey(owner: Owner): string {
  return `${owner.kind}|${owner.interface}|${owner.name}`
}

export function sameAttachment(a: Owner, b: Owner): boolean {
  return (
    a.kind === b.kind && a.uid === b.uid && a.incarnation === b.incarnation && a.interface === b.interface
  )
}

/** The uid of one is the name of the other, which has none: their keys are the same, and they are two. */
export function isMistakenFor(a: Owner, b: Owner): boolean {
  return sameAttachment(a, b) && a.uidNamed !== b.uidNamed && a.name !== b.name
}

/** How an owner is named in sentences for people. */
export function describeOwner(owner: Owner): string {
  const uid = owner.uid === owner.name ? '' : ` uid ${owner.uid}`
  const incarnation = owner.incarnation === '' ? '' : ` incarnation ${owner.incarnation}`
  // Where it was sighted its interface may not have been told.
  const on = owner.interface === '' ? '' : ` (${owner.interface})`
  return `${owner.kind} ${owner.name}${uid}${incarnation}${on}`
}

function escapePart(part: string): string {
  return part.includes('|') || part.includes('%') ? part.replaceAll('%', '%25').replaceAll('|', '%7C') : part
}
