/** Commands about leases, decoded from their requests, which may be items of a batch. */
import type { Claim, Command, LeaseReference } from '../../core/command.ts'
import type { LeaseSettings } from '../../core/event.ts'
import type * as pb from '../../gen/ipledger/v1/lease_pb.ts'
import type { Owner as OwnerMessage } from '../../gen/ipledger/v1/types_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField } from '../codec/errors.ts'
import { DEFAULT_INTERFACE, excluding, required } from '../codec/fields.ts'
import type { Content, Scoped } from '../method.ts'
import { checkNode } from '../rights.ts'

export function decodeReserve(request: Decoded<pb.ReserveRequest>, call: Scoped): Content<'reserve'> {
  const { liveAddresses, confirmWithinMs = null, confirmed } = request
  const { owner, settings } = requiredOwner(request.owner, call, DEFAULT_INTERFACE)
  return {
    type: 'reserve',
    owner,
    settings: { ...settings, node: settings.node || (call.caller.node ?? '') } satisfies LeaseSettings,
    claims: request.claims.map(decodeClaim),
    liveAddresses,
    confirmWithinMs,
    confirmed,
  }
}

function decodeClaim({ pool, pools, address, preferPrevious }: Decoded<pb.Claim>, index: number): Claim {
  if (pool !== '' && pools.length > 0) excluding(`claims[${index}].pool`, 'pool', 'pools')
  return { pools: pool === '' ? pools : [pool], address: address || null, preferPrevious }
}

export function decodeConfirm(request: Decoded<pb.ConfirmRequest>, call: Scoped): Content<'confirm'> {
  return { type: 'confirm', lease: decodeReference(request, call) }
}

export function decodeRelease(request: Decoded<pb.ReleaseRequest>, call: Scoped): Content<'release'> {
  const removal = (request.removal ?? 'CONFIRMED') as Command<'release'>['removal']
  return { type: 'release', lease: decodeReference(request, call), removal }
}

function decodeReference(request: Decoded<pb.ConfirmRequest>, call: Scoped): LeaseReference {
  const { fencingToken } = request
  const owner = request.owner === undefined ? null : requiredOwner(request.owner, call, null).owner
  if (call.token !== null && fencingToken !== 0 && fencingToken !== call.token) {
    throw invalidField('fencingToken', `leaseId names token ${call.token}; give the same, or leave this out`)
  }
  const token = call.token ?? (fencingToken || null)
  if (token !== null) return { token, owner }
  if (owner !== null) return { token, owner }
  throw invalidField('leaseId', 'required: give leaseId, fencingToken or owner')
}

/** `defaultInterface` is null where the interface is required. */
function requiredOwner(
  message: Decoded<OwnerMessage> | undefined,
  call: Scoped,
  defaultInterface: string | null,
) {
  const { kind, name: given, uid, incarnation, interface: named, ...settings } = required(message, 'owner')
  required(kind, 'owner.kind')
  const name = required(given || uid, 'owner.name', 'the name or the uid of the workload')
  const on = required(
    named || defaultInterface,
    'owner.interface',
    `the interface that was reserved for; Reserve's default is ${DEFAULT_INTERFACE}`,
  )
  checkNode(call.caller, settings.node)
  return { owner: { kind, name, uid: uid || name, incarnation, interface: on }, settings }
}
