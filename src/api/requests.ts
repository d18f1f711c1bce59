/**
 * From what was asked to commands: every default filled in, every right that depends on the content looked at. What comes out is canonical, so that two requests that say the same are the same text, by which a
 * repeated requestId is recognised.
 */
import { hash } from 'node:crypto'
import type { DescField, DescMessage } from '@bufbuild/protobuf'
import type { Claim, Command, LeaseReference, PoolChange } from '../core/command.ts'
import type { Labels, Owner } from '../core/owner.ts'
import type { ReapPolicy } from '../core/policy.ts'
import { type Liveness, parsePoolSettings } from '../core/pool.ts'
import type * as leasePb from '../gen/ipledger/v1/lease_pb.ts'
import * as poolPb from '../gen/ipledger/v1/pool_pb.ts'
import type * as pb from '../gen/ipledger/v1/types_pb.ts'
import type { Asked } from './asked.ts'
import { accepted, type Call } from './call.ts'
import { invalidField } from './errors.ts'
import { DEFAULT_INTERFACE, excluding, NETWORK_NAME, networkName, oneOf, required } from './fields.ts'
import { checkDryRun, checkNetwork, checkNode } from './rights.ts'

/** A command: its content, and what every command has. `id` is the caller's; `same` is what a repetition must repeat. */
export function command<const C extends { readonly type: Command['type'] }>(
  call: Call,
  network: string,
  id: string,
  content: C,
  same: unknown = content,
) {
  return {
    ...content,
    network,
    actor: { name: call.caller.name, node: call.caller.node },
    cause: call.method,
    requestId: id === '' ? null : id,
    fingerprint: id === '' ? null : fingerprint(call.method, same),
    traceId: call.traceId,
  }
}

function fingerprint(method: string, content: unknown): string {
  return hash('sha256', JSON.stringify([method, content]), 'base64url')
}

/** The network of a call, by default `default`, if the caller may use it. */
export function allowedNetwork(call: Call, name: string, path = 'network'): string {
  const network = networkName(name, path)
  checkNetwork(call.caller, network)
  return network
}

/** Of calls that create or change a network: nobody does that by default. */
export function namedNetwork(call: Call, name: string, path: string): string {
  return allowedNetwork(call, required(name, path), path)
}

// Leases. `network` is that of the batch that the message is an item of.

export function readReserve(
  message: Asked<leasePb.ReserveRequest>,
  call: Call,
  network = allowedNetwork(call, message.network),
): Command<'reserve'> {
  const { liveAddresses, confirmWithinMs = null, confirmed, validateOnly } = message
  const { owner, node, labels } = requiredOwner(message.owner, call, DEFAULT_INTERFACE)
  if (validateOnly) checkDryRun(call.caller)
  return command(call, network, message.requestId, {
    type: 'reserve',
    owner,
    node: node === '' ? (call.caller.node ?? '') : node,
    labels,
    claims: message.claims.map(readClaim),
    liveAddresses,
    confirmWithinMs,
    confirmed,
    validateOnly,
  })
}

function readClaim({ pool, pools, address, preferPrevious }: Asked<leasePb.Claim>, index: number): Claim {
  if (pool !== '' && pools.length > 0) excluding(`claims[${index}].pool`, 'pool', 'pools')
  return {
    pools: pool === '' ? pools : [pool],
    address: address === '' ? null : address,
    preferPrevious,
  }
}

export function readConfirm(
  message: Asked<leasePb.ConfirmRequest>,
  call: Call,
  network?: string,
): Command<'confirm'> {
  const named = readReference(message, call, network)
  return command(call, named.network, message.requestId, { type: 'confirm', lease: named.lease })
}

export function readRelease(
  message: Asked<leasePb.ReleaseRequest>,
  call: Call,
  network?: string,
): Command<'release'> {
  const named = readReference(message, call, network)
  const removalConfirmed = message.removal !== 'UNCONFIRMED'
  return command(call, named.network, message.requestId, {
    type: 'release',
    lease: named.lease,
    removalConfirmed,
  })
}

/** By lease id, by token, or by owner. */
function readReference(
  message: Asked<leasePb.ConfirmRequest>,
  call: Call,
  network: string | undefined,
): { readonly network: string; readonly lease: LeaseReference } {
  const { fencingToken: token } = message
  const owner = message.owner === undefined ? null : requiredOwner(message.owner, call, null).owner
  if (message.leaseId !== '') {
    const key = requiredLease(message.leaseId, call, network ?? message.network)
    if (token !== 0 && token !== key.token) {
      throw invalidField('fencingToken', `leaseId names token ${key.token}; give the same, or leave this out`)
    }
    return { network: key.network, lease: { token: key.token, owner } }
  }
  const named = network ?? allowedNetwork(call, message.network)
  if (token !== 0) return { network: named, lease: { token, owner } }
  if (owner !== null) return { network: named, lease: { token: null, owner } }
  throw invalidField('leaseId', 'required: give leaseId, fencingToken or owner')
}

/** `defaultInterface` is null where the interface must be said. */
function requiredOwner(
  message: Asked<pb.Owner> | undefined,
  call: Call,
  defaultInterface: string | null,
): { readonly owner: Owner; readonly node: string; readonly labels: Labels } {
  const { node, labels, ...owner } = required(message, 'owner')
  required(owner.kind, 'owner.kind')
  const name = required(owner.name || owner.uid, 'owner.name', 'the name or the uid of the workload')
  const on = owner.interface || defaultInterface
  if (on === null) {
    throw invalidField(
      'owner.interface',
      `required here: the interface that was reserved for; Reserve's default is ${DEFAULT_INTERFACE}`,
    )
  }
  checkNode(call.caller, node)
  return { owner: { ...owner, name, uid: owner.uid || name, interface: on }, node, labels }
}

export function readQuarantine(message: Asked<leasePb.QuarantineRequest>, call: Call): Command<'quarantine'> {
  const { leaseId, address } = message
  const why = required(message.why, 'why')
  oneOf(['address', address], ['leaseId', leaseId])
  if (leaseId === '') {
    const network = allowedNetwork(call, message.network)
    return command(call, network, message.requestId, { type: 'quarantine', target: { address }, why })
  }
  const { network, token } = requiredLease(leaseId, call, message.network)
  return command(call, network, message.requestId, { type: 'quarantine', target: { token }, why })
}

/** One lease that was judged, or all that is placed on a node. */
export function readReap(
  message: Asked<leasePb.ReapRequest>,
  call: Call,
): Command<'reap'> | Command<'reapNode'> {
  const { version, head, node } = message
  const why = required(message.why, 'why')
  if (node === '') {
    if (head !== 0) throw invalidField('head', 'is only for a reap by node; give version')
    const { network, token } = requiredLease(message.leaseId, call, message.network)
    required(version || undefined, 'version')
    return command(call, network, message.requestId, { type: 'reap', token, version, why })
  }
  if (message.leaseId !== '') excluding('node', 'leaseId', 'node')
  if (version !== 0) throw invalidField('version', 'is only for a reap by leaseId; give head')
  required(head || undefined, 'head')
  checkNode(call.caller, node)
  const network = allowedNetwork(call, message.network)
  return command(call, network, message.requestId, { type: 'reapNode', node, head, why })
}

/** Of a lease id, which contains its network; one named beside it must agree. */
export function requiredLease(id: string, call: Call, network: string) {
  const [named = '', digits = '', ...rest] = required(id, 'leaseId').split('/')
  const token = Number(digits)
  const isNumber = /^[1-9][0-9]{0,15}$/.test(digits) && Number.isSafeInteger(token)
  if (!isNumber || rest.length > 0 || !NETWORK_NAME.test(named)) {
    throw invalidField('leaseId', 'must be <network>/<fencing token>, as in default/42')
  }
  if (network !== '' && network !== named) {
    throw invalidField('network', `leaseId names network ${named}; give the same, or leave this out`)
  }
  checkNetwork(call.caller, named)
  return { network: named, token }
}

/** Several commands of one kind as one, which holds all or nothing. */
export function allOrNothing(
  call: Call,
  network: string,
  id: string,
  items: readonly (Command<'reserve'> | Command<'confirm'> | Command<'release'>)[],
): Command {
  const same = items.map(({ actor: _actor, traceId: _traceId, ...rest }) => rest)
  return command(call, network, id, { type: 'allOrNothing', items }, same)
}

// Pools.

export function readCreatePool(message: Asked<poolPb.CreatePoolRequest>, call: Call): Command<'createPool'> {
  const { network, requestId, liveness, reapPolicy, confirmWithinMs, ...settings } = message
  required(message.name, 'name')
  required(message.cidr, 'cidr')
  // Canonical, so that a repetition in another spelling is the same request.
  const pool = parsePoolSettings({
    ...settings,
    confirmWithinMs: confirmWithinMs || null,
    liveness: livenessOf(liveness),
    reapPolicy: readReapPolicy(reapPolicy),
  })
  return command(call, allowedNetwork(call, network), requestId, {
    type: 'createPool',
    pool: accepted(pool),
  })
}

export function readUpdatePool(message: Asked<poolPb.UpdatePoolRequest>, call: Call): Command<'updatePool'> {
  const { network, name, version = null, requestId, ...said } = message
  return command(call, allowedNetwork(call, network), requestId, {
    type: 'updatePool',
    name: required(name, 'name'),
    version,
    change: readChange(said),
  })
}

function readChange(
  request: Omit<Asked<poolPb.UpdatePoolRequest>, 'network' | 'name' | 'version' | 'requestId'>,
): PoolChange {
  const { newName, exclude, labels, liveness, reapPolicy, confirmWithinMs, updateMask, ...said } = request
  const changes = changedFields(poolPb.UpdatePoolRequestSchema, request)
  if (said.ownerLimit === 0) throw invalidField('ownerLimit', 'must be between 1 and 1000000 leases')
  return {
    ...said,
    ...(confirmWithinMs !== undefined && { confirmWithinMs: confirmWithinMs || null }),
    ...(newName !== undefined && { name: newName }),
    ...(changes.has('exclude') && { exclude }),
    ...(changes.has('labels') && { labels }),
    ...(liveness !== undefined && { liveness: livenessOf(liveness) }),
    ...(reapPolicy !== undefined && { reapPolicy: readReapPolicy(reapPolicy) }),
  }
}

const NOT_SETTINGS: ReadonlySet<string> = new Set(['network', 'name', 'version', 'requestId', 'updateMask'])

/**
 * JSON names of the fields that an update changes: those that its mask names, else those that are given. Only lists and maps
 * can be named and empty, which clears them; whatever else does not agree with the mask is refused.
 */
export function changedFields(
  { fields }: DescMessage,
  { updateMask, ...said }: { readonly updateMask?: { readonly paths: readonly string[] } },
): ReadonlySet<string> {
  const settings = fields.filter(({ localName }) => !NOT_SETTINGS.has(localName))
  const named = new Set(updateMask?.paths)
  for (const path of named)
    if (!settings.some(({ name }) => name === path))
      throw invalidField(
        'updateMask',
        `${path} can't be changed; it may name ${settings.map(({ jsonName }) => jsonName).join(', ')}`,
      )
  const isGiven = ({ localName, fieldKind, message }: DescField): boolean => {
    const isDuration = message?.typeName === 'google.protobuf.Duration'
    const value = (said as Readonly<Record<string, unknown>>)[isDuration ? `${localName}Ms` : localName]
    const isMany = fieldKind === 'list' || fieldKind === 'map'
    return isMany ? Object.keys(value as object).length > 0 : value !== undefined
  }
  for (const field of updateMask === undefined ? [] : settings) {
    const { jsonName, name, fieldKind } = field
    if (isGiven(field) && !named.has(name))
      throw invalidField(jsonName, 'is given, and updateMask does not name it')
    if (!isGiven(field) && named.has(name) && fieldKind !== 'list' && fieldKind !== 'map')
      throw invalidField(jsonName, 'is named by updateMask; give its new value')
  }
  return new Set(
    settings.filter((field) => named.has(field.name) || isGiven(field)).map(({ jsonName }) => jsonName),
  )
}

/** What is said of it; 0 misses are none said. Its bounds are the core's. */
function readReapPolicy({
  misses = 0,
  ...ages
}: Partial<Asked<poolPb.ReapPolicy>> = {}): Partial<ReapPolicy> {
  return misses === 0 ? ages : { misses, ...ages }
}

function livenessOf(name: string | undefined): Liveness {
  return name === 'STRICT' ? 'STRICT' : 'AVAILABLE'
}
