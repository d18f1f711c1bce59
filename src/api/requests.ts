/**
 * From messages to commands: every field checked, every default filled in, every right that depends on the content
 * looked at. What comes out is canonical, so that two requests that say the same are the same text, by which a
 * repeated requestId is recognised.
 */
import { hash } from 'node:crypto'
import type { Claim, Command, LeaseReference, PoolChange } from '../core/command.ts'
import type { Labels, Owner } from '../core/owner.ts'
import type { ReapPolicy } from '../core/policy.ts'
import { type Liveness, type PoolOptions, parsePoolSettings } from '../core/pool.ts'
import type * as leasePb from '../gen/ipledger/v1/lease_pb.ts'
import type * as networkPb from '../gen/ipledger/v1/network_pb.ts'
import * as poolPb from '../gen/ipledger/v1/pool_pb.ts'
import * as pb from '../gen/ipledger/v1/types_pb.ts'
import { accepted, type Call } from './call.ts'
import { invalidField } from './errors.ts'
import {
  address,
  addressInUse,
  atMost,
  cidr,
  DEFAULT_INTERFACE,
  duration,
  interfaceName,
  known,
  LIMITS,
  labels,
  leaseKey,
  ledgerNumber,
  networkName,
  optionalNumber,
  ownerKind,
  poolName,
  requestId,
  requiredNetworkName,
  requiredText,
  specified,
  text,
} from './fields.ts'
import { checkDryRun, checkNetwork, checkNode } from './rights.ts'

const SHORTEST_CONFIRM_MS = 1_000

/** A command: its content, and what every command has. `id` is the caller's; `same` is what a repetition must repeat. */
export function command<const C extends { readonly type: Command['type'] }>(
  call: Call,
  network: string,
  id: string,
  content: C,
  same: unknown = content,
) {
  const given = requestId(id)
  return {
    ...content,
    network,
    actor: { name: call.caller.name, node: call.caller.node },
    cause: call.method,
    requestId: given,
    fingerprint: given === null ? null : fingerprint(call.method, same),
    traceId: call.traceId,
  }
}

function fingerprint(method: string, content: unknown): string {
  return hash('sha256', JSON.stringify([method, content]), 'base64url')
}

/** The network of a call, by default `default`, if the caller may use it. */
export function allowedNetwork(call: Call, name: string): string {
  const network = networkName(name, 'network')
  checkNetwork(call.caller, network)
  return network
}

/** Of calls that create or change a network: nobody does that by default. */
function namedNetwork(call: Call, name: string, path: string): string {
  const network = requiredNetworkName(name, path)
  checkNetwork(call.caller, network)
  return network
}

// Leases. `network` is that of the batch that the message is an item of.

export function readReserve(
  message: leasePb.ReserveRequest,
  call: Call,
  network = allowedNetwork(call, message.network),
): Command<'reserve'> {
  const { liveAddresses } = message
  const { owner, node, labels } = requiredOwner(message.owner, call, DEFAULT_INTERFACE)
  if (message.validateOnly) checkDryRun(call.caller)
  atMost(message.claims.length, LIMITS.claims, 'claims')
  atMost(liveAddresses.length, LIMITS.liveAddresses, 'liveAddresses')
  return command(call, network, message.requestId, {
    type: 'reserve',
    owner,
    node: node === '' ? (call.caller.node ?? '') : node,
    labels,
    claims: message.claims.map(readClaim),
    liveAddresses: liveAddresses.map((one, index) => addressInUse(one, `liveAddresses[${index}]`)),
    confirmWithinMs: duration(message.confirmWithin, 'confirmWithin', SHORTEST_CONFIRM_MS),
    confirmed: message.confirmed,
    validateOnly: message.validateOnly,
  })
}

function readClaim(claim: leasePb.Claim, index: number): Claim {
  const path = `claims[${index}]`
  if (claim.pool !== '' && claim.pools.length > 0) {
    throw invalidField(`${path}.pool`, 'pool and pools exclude each other')
  }
  atMost(claim.pools.length, LIMITS.poolsOfClaim, `${path}.pools`)
  return {
    pools:
      claim.pool !== ''
        ? [poolName(claim.pool, `${path}.pool`)]
        : claim.pools.map((name, at) => poolName(name, `${path}.pools[${at}]`)),
    address: claim.address === '' ? null : address(claim.address, `${path}.address`),
    preferPrevious: claim.preferPrevious,
  }
}

export function readConfirm(
  message: leasePb.ConfirmRequest,
  call: Call,
  network?: string,
): Command<'confirm'> {
  const named = readReference(message, call, network)
  return command(call, named.network, message.requestId, { type: 'confirm', lease: named.lease })
}

export function readRelease(
  message: leasePb.ReleaseRequest,
  call: Call,
  network?: string,
): Command<'release'> {
  known(message.removal, pb.RemovalSchema, 'removal')
  const named = readReference(message, call, network)
  return command(call, named.network, message.requestId, {
    type: 'release',
    lease: named.lease,
    removalConfirmed: message.removal !== pb.Removal.UNCONFIRMED,
  })
}

/** By lease id, by token, or by owner. */
function readReference(
  message: Pick<leasePb.ReleaseRequest, 'leaseId' | 'network' | 'fencingToken' | 'owner'>,
  call: Call,
  network: string | undefined,
): { readonly network: string; readonly lease: LeaseReference } {
  const owner = message.owner === undefined ? null : requiredOwner(message.owner, call, null).owner
  const token = ledgerNumber(message.fencingToken, 'fencingToken')
  if (message.leaseId !== '') {
    const key = leaseKey(message.leaseId, network ?? message.network)
    if (token !== 0 && token !== key.token) {
      throw invalidField('fencingToken', `the lease id names token ${key.token}`)
    }
    checkNetwork(call.caller, key.network)
    return { network: key.network, lease: { token: key.token, owner } }
  }
  const named = network ?? allowedNetwork(call, message.network)
  if (token !== 0) return { network: named, lease: { token, owner } }
  if (owner !== null) return { network: named, lease: { token: null, owner } }
  throw invalidField('leaseId', 'required: name the lease by leaseId, by fencingToken, or by owner')
}

/** `defaultInterface` is null where the interface must be said. */
function requiredOwner(
  message: pb.Owner | undefined,
  call: Call,
  defaultInterface: string | null,
): { readonly owner: Owner; readonly node: string; readonly labels: Labels } {
  if (message === undefined) throw invalidField('owner', 'required')
  const kind = ownerKind(message.kind, 'owner.kind')
  const name = text(message.name, 'owner.name', LIMITS.nameBytes)
  const uid = text(message.uid, 'owner.uid', LIMITS.nameBytes)
  if (name === '' && uid === '') throw invalidField('owner.name', 'name or uid is required')
  const on = interfaceName(message.interface, 'owner.interface')
  if (on === '' && defaultInterface === null) {
    throw invalidField('owner.interface', `required here; Reserve's default is ${DEFAULT_INTERFACE}`)
  }
  const node = text(message.node, 'owner.node', LIMITS.nameBytes)
  checkNode(call.caller, node)
  return {
    owner: {
      kind,
      name: name === '' ? uid : name,
      uid: uid === '' ? name : uid,
      incarnation: text(message.incarnation, 'owner.incarnation', LIMITS.nameBytes),
      interface: on === '' ? (defaultInterface ?? '') : on,
    },
    node,
    labels: labels(message.labels, 'owner.labels'),
  }
}

export function readQuarantine(message: leasePb.QuarantineRequest, call: Call): Command<'quarantine'> {
  const why = requiredText(message.why, 'why', LIMITS.whyBytes)
  if (message.leaseId !== '' && message.address !== '') {
    throw invalidField('address', 'address and leaseId exclude each other')
  }
  if (message.leaseId === '' && message.address === '')
    throw invalidField('address', 'required: name an address or a leaseId')
  if (message.leaseId !== '') {
    const { network, token } = requiredLease(message.leaseId, call, message.network)
    return command(call, network, message.requestId, { type: 'quarantine', target: { token }, why })
  }
  const target = { address: address(message.address, 'address') }
  const network = allowedNetwork(call, message.network)
  return command(call, network, message.requestId, { type: 'quarantine', target, why })
}

/** One lease that was judged, or all that is placed on a node. */
export function readReap(message: leasePb.ReapRequest, call: Call): Command<'reap'> | Command<'reapNode'> {
  const why = requiredText(message.why, 'why', LIMITS.whyBytes)
  const version = ledgerNumber(message.version, 'version')
  const head = ledgerNumber(message.head, 'head')
  if (message.node === '') {
    if (head !== 0) throw invalidField('head', 'only with node')
    const { network, token } = requiredLease(message.leaseId, call, message.network)
    if (version === 0) throw invalidField('version', 'required: the version that was judged')
    return command(call, network, message.requestId, { type: 'reap', token, version, why })
  }
  if (message.leaseId !== '') throw invalidField('node', 'leaseId and node exclude each other')
  if (version !== 0) throw invalidField('version', 'only with leaseId')
  if (head === 0) throw invalidField('head', 'required: the head when it was found out that the node is gone')
  const node = text(message.node, 'node', LIMITS.nameBytes)
  checkNode(call.caller, node)
  const network = allowedNetwork(call, message.network)
  return command(call, network, message.requestId, { type: 'reapNode', node, head, why })
}

export function readUpdateLabels(message: leasePb.UpdateLabelsRequest, call: Call): Command<'updateLabels'> {
  const { network, token } = requiredLease(message.leaseId, call, '')
  return command(call, network, message.requestId, {
    type: 'updateLabels',
    token,
    version: optionalNumber(message.version, 'version'),
    labels: labels(message.labels, 'labels'),
  })
}

/** Of a lease id that the caller may use; `network` is named beside it. */
export function requiredLease(id: string, call: Call, network: string) {
  if (id === '') throw invalidField('leaseId', 'required')
  const key = leaseKey(id, network)
  checkNetwork(call.caller, key.network)
  return key
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

// Networks.

export function readCreateNetwork(
  message: networkPb.CreateNetworkRequest,
  call: Call,
): Command<'createNetwork'> {
  return command(call, namedNetwork(call, message.name, 'name'), message.requestId, {
    type: 'createNetwork',
    settings: {
      description: text(message.description, 'description', LIMITS.descriptionBytes),
      labels: labels(message.labels, 'labels'),
    },
  })
}

export function readUpdateNetwork(
  message: networkPb.UpdateNetworkRequest,
  call: Call,
): Command<'updateNetwork'> {
  const { description } = message
  return command(call, namedNetwork(call, message.name, 'name'), message.requestId, {
    type: 'updateNetwork',
    version: optionalNumber(message.version, 'version'),
    description: description === undefined ? null : text(description, 'description', LIMITS.descriptionBytes),
    labels: message.labels === undefined ? null : labels(message.labels.entries, 'labels.entries'),
  })
}

export function readEndRecovery(message: networkPb.EndRecoveryRequest, call: Call): Command<'endRecovery'> {
  return command(call, namedNetwork(call, message.network, 'network'), message.requestId, {
    type: 'endRecovery',
    why: requiredText(message.why, 'why', LIMITS.whyBytes),
  })
}

// Pools.

export function readCreatePool(message: poolPb.CreatePoolRequest, call: Call): Command<'createPool'> {
  const network = allowedNetwork(call, message.network)
  const name = poolName(message.name, 'name')
  if (message.cidr === '') throw invalidField('cidr', 'required')
  known(message.liveness, poolPb.PoolLivenessSchema, 'liveness')
  const cooldownMs = duration(message.cooldown, 'cooldown', 0)
  // Canonical, so that a repetition in another spelling is the same request.
  const pool = parsePoolSettings({
    name,
    cidr: message.cidr,
    subnet: message.subnet,
    prefixLength: message.prefixLength,
    gateway: message.gateway,
    exclude: message.exclude,
    ...(cooldownMs !== null && { cooldownMs }),
    confirmWithinMs: duration(message.confirmWithin, 'confirmWithin', SHORTEST_CONFIRM_MS),
    liveness: livenessOf(message.liveness),
    ownerLimit: message.ownerLimit,
    isDefault: message.isDefault,
    draining: message.draining,
    ...(message.options !== undefined && { options: readOptions(message.options) }),
    labels: labels(message.labels, 'labels'),
    reapPolicy: readReapPolicy(message.reapPolicy),
  })
  return command(call, network, message.requestId, { type: 'createPool', pool: accepted(pool) })
}

export function readUpdatePool(message: poolPb.UpdatePoolRequest, call: Call): Command<'updatePool'> {
  return command(call, allowedNetwork(call, message.network), message.requestId, {
    type: 'updatePool',
    name: poolName(message.name, 'name'),
    version: optionalNumber(message.version, 'version'),
    change: readChange(message),
  })
}

function readChange(message: poolPb.UpdatePoolRequest): PoolChange {
  const change: { -readonly [K in keyof PoolChange]: PoolChange[K] } = {}
  if (message.newName !== undefined) change.name = poolName(message.newName, 'newName')
  if (message.cidr !== undefined) change.cidr = cidr(message.cidr, 'cidr')
  if (message.subnet !== undefined) change.subnet = cidr(message.subnet, 'subnet')
  if (message.gateway !== undefined) change.gateway = address(message.gateway, 'gateway')
  if (message.exclude !== undefined) change.exclude = message.exclude.entries
  const cooldownMs = duration(message.cooldown, 'cooldown', 0)
  if (cooldownMs !== null) change.cooldownMs = cooldownMs
  const confirmWithinMs = duration(message.confirmWithin, 'confirmWithin', SHORTEST_CONFIRM_MS)
  if (confirmWithinMs !== null) change.confirmWithinMs = confirmWithinMs
  if (message.liveness !== undefined) {
    specified(message.liveness, poolPb.PoolLivenessSchema, 'liveness')
    change.liveness = livenessOf(message.liveness)
  }
  if (message.ownerLimit !== undefined) {
    if (message.ownerLimit === 0) throw invalidField('ownerLimit', 'must be between 1 and 1000000 leases')
    change.ownerLimit = message.ownerLimit
  }
  if (message.isDefault !== undefined) change.isDefault = message.isDefault
  if (message.draining !== undefined) change.draining = message.draining
  if (message.options !== undefined) change.options = readOptions(message.options)
  if (message.labels !== undefined) change.labels = labels(message.labels.entries, 'labels.entries')
  if (message.reapPolicy !== undefined) change.reapPolicy = readReapPolicy(message.reapPolicy)
  for (const [index, field] of message.clear.entries()) {
    const key = CLEARABLE.get(field)
    if (key === undefined) {
      throw invalidField(`clear[${index}]`, `must be one of ${[...CLEARABLE.keys()].join(', ')}`)
    }
    if (change[key] !== undefined && change[key] !== null) {
      throw invalidField(`clear[${index}]`, `${field} has a value in the same request`)
    }
    change[key] = null
  }
  return change
}

const CLEARABLE: ReadonlyMap<string, 'gateway' | 'confirmWithinMs' | 'reapPolicy'> = new Map([
  ['gateway', 'gateway'],
  ['confirmWithin', 'confirmWithinMs'],
  ['reapPolicy', 'reapPolicy'],
])

/** What is said of it; 0 misses are none said. Its bounds are the core's. */
function readReapPolicy(message: poolPb.ReapPolicy | undefined): Partial<ReapPolicy> {
  const said = {
    misses: message === undefined || message.misses === 0 ? null : message.misses,
    minimumAgeMs: duration(message?.minimumAge, 'reapPolicy.minimumAge', 0),
    unwitnessedAgeMs: duration(message?.unwitnessedAge, 'reapPolicy.unwitnessedAge', 0),
    terminalGraceMs: duration(message?.terminalGrace, 'reapPolicy.terminalGrace', 0),
    confirmGraceMs: duration(message?.confirmGrace, 'reapPolicy.confirmGrace', 0),
  }
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null))
}

function readOptions(options: pb.PoolOptions): PoolOptions {
  atMost(options.routes.length, LIMITS.routes, 'options.routes')
  atMost(options.dns.length, LIMITS.resolvers, 'options.dns')
  return {
    routes: options.routes.map(({ destination, gateway }) => ({ destination, gateway })),
    dns: options.dns,
    mtu: options.mtu,
  }
}

function livenessOf(liveness: poolPb.PoolLiveness): Liveness {
  return liveness === poolPb.PoolLiveness.STRICT ? 'STRICT' : 'AVAILABLE'
}

export function readDeletePool(message: poolPb.DeletePoolRequest, call: Call): Command<'deletePool'> {
  return command(call, allowedNetwork(call, message.network), message.requestId, {
    type: 'deletePool',
    name: poolName(message.name, 'name'),
    version: optionalNumber(message.version, 'version'),
  })
}
