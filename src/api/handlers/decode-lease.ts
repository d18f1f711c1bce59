/** Commands about leases, decoded from their requests. */
import type { Claim, Command, LeaseReference } from '../../core/command.ts'
import type { Labels, Owner } from '../../core/owner.ts'
import type * as pb from '../../gen/ipledger/v1/lease_pb.ts'
import type { Owner as OwnerMessage } from '../../gen/ipledger/v1/types_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField } from '../codec/errors.ts'
import { DEFAULT_INTERFACE, excluding, oneOf, required } from '../codec/fields.ts'
import { allowedNetwork, type Call, type Content, requiredLease } from '../method.ts'
import { checkNode } from '../rights.ts'

export function decodeReserve(request: Decoded<pb.ReserveRequest>, call: Call): Content<'reserve'> {
  const network = allowedNetwork(call, request.network)
  const { liveAddresses, confirmWithinMs = null, confirmed, validateOnly } = request
  const { owner, node, labels } = requiredOwner(request.owner, call, DEFAULT_INTERFACE)
  return {
    type: 'reserve',
    network,
    owner,
    node: node === '' ? (call.caller.node ?? '') : node,
    labels,
    claims: request.claims.map(decodeClaim),
    liveAddresses,
    confirmWithinMs,
    confirmed,
    validateOnly,
  }
}

function decodeClaim({ pool, pools, address, preferPrevious }: Decoded<pb.Claim>, index: number): Claim {
  if (pool !== '' && pools.length > 0) excluding(`claims[${index}].pool`, 'pool', 'pools')
  return { pools: pool === '' ? pools : [pool], address: address || null, preferPrevious }
}

export function decodeConfirm(request: Decoded<pb.ConfirmRequest>, call: Call): Content<'confirm'> {
  return { type: 'confirm', ...decodeReference(request, call) }
}

export function decodeRelease(request: Decoded<pb.ReleaseRequest>, call: Call): Content<'release'> {
  const removal = (request.removal ?? 'CONFIRMED') as Command<'release'>['removal']
  return { type: 'release', ...decodeReference(request, call), removal }
}

/** One lease that was judged, or all that is placed on a node. */
export function decodeReap(request: Decoded<pb.ReapRequest>, call: Call): Content<'reap' | 'reapNode'> {
  const { version, head, node } = request
  const why = required(request.why, 'why')
  if (node === '') {
    if (head !== 0) throw invalidField('head', 'is only for a reap by node; give version')
    const { network, token } = requiredLease(request.leaseId, call, request.network)
    required(version || undefined, 'version')
    return { type: 'reap', network, token, version, why }
  }
  if (request.leaseId !== '') excluding('node', 'leaseId', 'node')
  if (version !== 0) throw invalidField('version', 'is only for a reap by leaseId; give head')
  required(head || undefined, 'head')
  checkNode(call.caller, node)
  return { type: 'reapNode', network: allowedNetwork(call, request.network), node, head, why }
}

export function decodeQuarantine(
  { leaseId, address, why: given, network: named }: Decoded<pb.QuarantineRequest>,
  call: Call,
): Content<'quarantine'> {
  const why = required(given, 'why')
  oneOf(['address', address], ['leaseId', leaseId])
  if (leaseId === '')
    return { type: 'quarantine', network: allowedNetwork(call, named), target: { address }, why }
  const { network, token } = requiredLease(leaseId, call, named)
  return { type: 'quarantine', network, target: { token }, why }
}

export function decodeUpdateLabels(
  { leaseId, version, labels }: Decoded<pb.UpdateLabelsRequest>,
  call: Call,
): Content<'updateLabels'> {
  return { type: 'updateLabels', ...requiredLease(leaseId, call, ''), version: version ?? null, labels }
}

/** By lease id, by token, or by owner. */
function decodeReference(
  request: Decoded<pb.ConfirmRequest>,
  call: Call,
): { readonly network: string; readonly lease: LeaseReference } {
  const { leaseId, fencingToken } = request
  const owner = request.owner === undefined ? null : requiredOwner(request.owner, call, null).owner
  const key = leaseId === '' ? null : requiredLease(leaseId, call, request.network)
  if (key !== null && fencingToken !== 0 && fencingToken !== key.token) {
    throw invalidField('fencingToken', `leaseId names token ${key.token}; give the same, or leave this out`)
  }
  const network = key?.network ?? allowedNetwork(call, request.network)
  const token = key?.token ?? fencingToken
  if (token !== 0) return { network, lease: { token, owner } }
  if (owner !== null) return { network, lease: { token: null, owner } }
  throw invalidField('leaseId', 'required: give leaseId, fencingToken or owner')
}

/** `defaultInterface` is null where the interface is required. */
function requiredOwner(
  message: Decoded<OwnerMessage> | undefined,
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
