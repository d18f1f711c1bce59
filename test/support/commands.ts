/** Commands with named fields and defaults, for tests that speak to the ledger directly. */
import type {
  Actor,
  AllOrNothing,
  BeginEra,
  Claim,
  Confirm,
  DeletePool,
  EndRecovery,
  Expire,
  FenceNode,
  PoolChange,
  QuarantineAddress,
  Reap,
  ReapProven,
  Release,
  Reserve,
  Restore,
  ResumeHold,
  ShapeCommand,
  Sight,
  SightedEntry,
  Supersedes,
  UpdateLabels,
  UpdatePool,
} from '../../src/core/command.ts'
import type { Proof } from '../../src/core/judge.ts'
import type { Labels, Owner } from '../../src/core/owner.ts'
import type { PoolInput } from '../../src/core/pool.ts'

export const ADMIN: Actor = { name: 'test', node: null }

const envelope = {
  network: 'default',
  actor: ADMIN,
  cause: 'test',
  requestId: null,
  fingerprint: null,
  traceId: null,
}

type Fields<T> = Partial<Omit<T, 'type'>>

export function owner(fields: Partial<Owner> & { readonly name: string }): Owner {
  return {
    kind: 'pod',
    uid: fields.uid ?? fields.name,
    uidNamed: fields.uid !== undefined,
    incarnation: '',
    interface: 'eth0',
    ...fields,
  }
}

export function claim(fields: Partial<Claim> & { readonly pool?: string } = {}): Claim {
  const { pool, ...rest } = fields
  return { pools: pool === undefined ? [] : [pool], address: null, preferPrevious: false, ...rest }
}

export function reserve(fields: Fields<Reserve> & { readonly owner: Owner }): Reserve {
  return {
    ...envelope,
    type: 'reserve',
    placement: { node: '', boot: '', labels: {} },
    claims: [],
    liveAddresses: [],
    confirmWithinMs: null,
    confirmed: false,
    supersedes: null,
    reopen: false,
    witness: '',
    validateOnly: false,
    ...fields,
  }
}

export function release(token: number, fields: Fields<Release> = {}): Release {
  return { ...envelope, type: 'release', lease: { token, owner: null }, removalConfirmed: true, ...fields }
}

export function releaseOf(of: Owner, fields: Fields<Release> = {}): Release {
  return {
    ...envelope,
    type: 'release',
    lease: { token: null, owner: of },
    removalConfirmed: true,
    ...fields,
  }
}

export function confirm(token: number, fields: Fields<Confirm> = {}): Confirm {
  return { ...envelope, type: 'confirm', lease: { token, owner: null }, ...fields }
}

export function confirmOf(of: Owner, fields: Fields<Confirm> = {}): Confirm {
  return { ...envelope, type: 'confirm', lease: { token: null, owner: of }, ...fields }
}

export function quarantine(
  target: QuarantineAddress['target'],
  fields: Fields<QuarantineAddress> = {},
): QuarantineAddress {
  return { ...envelope, type: 'quarantine', target, why: 'test', ...fields }
}

export function reap(token: number, version: number, fields: Fields<Reap> = {}): Reap {
  return { ...envelope, type: 'reap', token, version, why: 'test', ...fields }
}

export function expire(token: number, version: number, fields: Fields<Expire> = {}): Expire {
  return { ...envelope, type: 'expire', token, version, ...fields }
}

export function updateLabels(token: number, labels: Labels, fields: Fields<UpdateLabels> = {}): UpdateLabels {
  return { ...envelope, type: 'updateLabels', token, version: null, labels, ...fields }
}

/** What a source lists: running on n1, unless the fields say otherwise. */
export function entry(address: string, of: Owner | null, fields: Partial<SightedEntry> = {}): SightedEntry {
  return { address, owner: of, node: 'n1', boot: 'b1', state: 'running', ...fields }
}

export function sight(source: string, fields: Fields<Sight> & Pick<Sight, 'entries'>): Sight {
  return {
    ...envelope,
    type: 'sight',
    source,
    epoch: 'b1',
    sequence: 1,
    begunAt: 0,
    dryRun: false,
    ...fields,
  }
}

export function reapProven(proof: Proof, fields: Fields<ReapProven> = {}): ReapProven {
  return { ...envelope, type: 'reapProven', token: proof.token, version: proof.version, proof, ...fields }
}

export function restore(proof: Proof, fields: Fields<Restore> = {}): Restore {
  return { ...envelope, type: 'restore', token: proof.token, version: proof.version, proof, ...fields }
}

export function resumeHold(source: string | null, fields: Fields<ResumeHold> = {}): ResumeHold {
  return { ...envelope, type: 'resumeHold', source, why: 'looked at it', ...fields }
}

export function fenceNode(node: string, boot: string, fields: Fields<FenceNode> = {}): FenceNode {
  return { ...envelope, type: 'fenceNode', node, boot, head: null, why: 'powered off', ...fields }
}

export function beginEra(era: number, fields: Fields<BeginEra> = {}): BeginEra {
  return { ...envelope, type: 'beginEra', era, recovering: true, why: 'restored', ...fields }
}

export function endRecovery(fields: Fields<EndRecovery> = {}): EndRecovery {
  return { ...envelope, type: 'endRecovery', why: 'looked at every host', ...fields }
}

export function allOrNothing(items: AllOrNothing['items'], fields: Fields<AllOrNothing> = {}): AllOrNothing {
  return { ...envelope, type: 'allOrNothing', items, ...fields }
}

export function createPool(pool: PoolInput, fields: { readonly network?: string } = {}): ShapeCommand {
  return { ...envelope, type: 'createPool', pool, ...fields }
}

export function updatePool(name: string, change: PoolChange, fields: Fields<UpdatePool> = {}): UpdatePool {
  return { ...envelope, type: 'updatePool', name, version: null, change, ...fields }
}

export function deletePool(name: string, fields: Fields<DeletePool> = {}): DeletePool {
  return { ...envelope, type: 'deletePool', name, version: null, ...fields }
}

export function createNetwork(network = 'default'): ShapeCommand {
  return { ...envelope, network, type: 'createNetwork', settings: { description: '', labels: {} } }
}

/** `supersedes` of a Reserve whose caller saw the predecessor removed. */
export function removed(of: { readonly uid?: string; readonly incarnation?: string }): Supersedes {
  return { uid: of.uid ?? null, incarnation: of.incarnation ?? null, removalConfirmed: true }
}
