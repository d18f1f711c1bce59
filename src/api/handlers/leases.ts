/** LeaseService. */
import type { Answer } from '../../core/command.ts'
import type { LeaseState, QuarantineReason } from '../../core/event.ts'
import { unknownLease } from '../../core/refusal.ts'
import type * as pb from '../../gen/ipledger/v1/lease_pb.ts'
import type { LeaseFilter } from '../../ledger/read-leases.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField, Refused, refused } from '../codec/errors.ts'
import { address, ipAddress, oneOf, optionalCidr, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { leaseView } from '../codec/views.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  type Declarations,
  ofNetwork,
  poolNotFound,
  requiredLease,
} from '../method.ts'
import {
  ADMINS,
  checkNode,
  checkReadableNode,
  HOLDERS,
  LEASE_READERS,
  ORCHESTRATORS,
  readableNode,
} from '../rights.ts'
import { batchConfirm, batchRelease, batchReserve } from './batches.ts'
import {
  decodeConfirm,
  decodeQuarantine,
  decodeReap,
  decodeRelease,
  decodeReserve,
  decodeUpdateLabels,
} from './decode-lease.ts'

const leases = (answer: Answer) => ({ leases: answer.leases.map(leaseView) })
/** These commands are about exactly one lease. */
const onlyLease = (answer: Answer) => ({ lease: leaseView(answer.leases[0]!) })

export const leaseMethods: Declarations<typeof pb.LeaseService> = {
  reserve: { roles: HOLDERS, decode: decodeReserve, view: leases },
  confirm: { roles: HOLDERS, decode: decodeConfirm, view: leases },
  release: { roles: HOLDERS, decode: decodeRelease, view: leases },
  batchReserve: { roles: ORCHESTRATORS, answer: batchReserve },
  batchConfirm: { roles: ORCHESTRATORS, answer: batchConfirm },
  batchRelease: { roles: ORCHESTRATORS, answer: batchRelease },
  quarantine: { roles: ORCHESTRATORS, decode: decodeQuarantine, view: onlyLease },
  updateLabels: { roles: ORCHESTRATORS, decode: decodeUpdateLabels, view: onlyLease },
  reap: { roles: ADMINS, decode: decodeReap, view: leases },
  getLease: { roles: LEASE_READERS, answer: getLease },
  listLeases: { roles: LEASE_READERS, answer: listLeases },
  getRequest: { roles: ORCHESTRATORS, answer: getRequest },
}

async function getLease(
  { leaseId, address, network: named }: Decoded<pb.GetLeaseRequest>,
  call: Call,
  { reads }: Backend,
) {
  oneOf(['address', address], ['leaseId', leaseId])
  const key = leaseId === '' ? null : requiredLease(leaseId, call, named)
  const network = key?.network ?? allowedNetwork(call, named)
  const read =
    key === null
      ? reads.leaseAt(network, ipAddress(address, 'address'))
      : reads.leaseByToken(network, key.token)
  const { lease, ended, head } = ofNetwork(await read, network)
  if (lease !== null) {
    checkReadableNode(call.caller, lease.node)
    return { lease: leaseView(lease), head }
  }
  const what = key === null ? `${address} in network ${network}` : `lease ${leaseId}`
  if (ended !== null) {
    const { address, ended: state, at } = ended
    const endedAt = new Date(at).toISOString()
    const message = `${what} was ${state} at ${endedAt}; it held ${address}`
    throw refused('LEASE_NOT_FOUND', message, { state: state!, endedAt, address })
  }
  if (key === null) throw refused('LEASE_NOT_FOUND', `nobody holds ${what}`, { address })
  throw new Refused(unknownLease(leaseId, key.token, head))
}

async function listLeases(request: Decoded<pb.ListLeasesRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const page = pageOf(request, address)
  const node = readableNode(call.caller, request.node)
  const { states, quarantineReasons, labels, pools } = request
  const ended = states.indexOf('ENDED')
  if (ended >= 0) throw invalidField(`states[${ended}]`, 'leases that ended are not listed; see ListEvents')
  const filter: LeaseFilter = {
    states: states as readonly LeaseState[],
    quarantineReasons: quarantineReasons as readonly QuarantineReason[],
    ownerKind: request.ownerKind || null,
    ownerName: request.ownerName || null,
    ownerUid: request.ownerUid || null,
    node: node || null,
    labels,
    pools,
    cidr: optionalCidr(request.cidr, 'cidr'),
  }
  const found = ofNetwork(await reads.leases(network, filter, page), network)
  if (found.unknownPools[0] !== undefined) throw poolNotFound(network, found.unknownPools[0])
  return { leases: found.leases.map(leaseView), nextPageToken: page.next(found.next), head: found.head }
}

async function getRequest(request: Decoded<pb.GetRequestRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const requestId = required(request.requestId, 'requestId')
  checkNode(call.caller, request.node)
  const node = request.node || (call.caller.node ?? '')
  const { found } = ofNetwork(await reads.request(network, { node, requestId }), network)
  const { leases = [], items = [] } = found?.answer ?? {}
  const all = [...leases, ...items.flatMap((item) => item.leases)]
  const { method, at, seq } = found ?? {}
  return { requestId, committed: found !== null, method, at, seq, leases: all.map(leaseView) }
}
