import type { Answer } from '../../core/command.ts'
import type { LeaseState, QuarantineReason } from '../../core/event.ts'
import { unknownLease } from '../../core/refusal.ts'
import type { LeaseService } from '../../gen/ipledger/v1/lease_pb.ts'
import { invalidField, Refused, refused } from '../codec/errors.ts'
import { address, excluding, ipAddress, oneOf, optionalCidr, reason, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { leaseView } from '../codec/views.ts'
import { type Declarations, ofNetwork, poolNotFound } from '../method.ts'
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
import { decodeConfirm, decodeRelease, decodeReserve } from './decode-lease.ts'

const leases = (answer: Answer) => ({ leases: answer.leases.map(leaseView) })
const onlyLease = (answer: Answer) => ({ lease: leaseView(answer.leases[0]!) })

export const leaseMethods: Declarations<typeof LeaseService> = {
  reserve: { roles: HOLDERS, decode: decodeReserve, view: leases },
  confirm: { roles: HOLDERS, decode: decodeConfirm, view: leases },
  release: { roles: HOLDERS, decode: decodeRelease, view: leases },
  batchReserve: { roles: ORCHESTRATORS, answer: batchReserve },
  batchConfirm: { roles: ORCHESTRATORS, answer: batchConfirm },
  batchRelease: { roles: ORCHESTRATORS, answer: batchRelease },
  quarantine: {
    roles: ORCHESTRATORS,
    decode({ leaseId, address, ...given }, { token }) {
      oneOf(['address', address], ['leaseId', leaseId])
      return {
        type: 'quarantine',
        target: token === null ? { address } : { token },
        why: reason(given),
      }
    },
    view: onlyLease,
  },
  updateLabels: {
    roles: ORCHESTRATORS,
    decode: ({ version = null, labels }, { token }) => ({
      type: 'updateLabels',
      token: required(token, 'leaseId'),
      version,
      labels,
    }),
    view: onlyLease,
  },
  reap: {
    roles: ADMINS,
    decode({ version, head, node, leaseId, ...given }, { caller, token }) {
      const why = reason(given)
      if (node === '') {
        if (head !== 0) throw invalidField('head', 'is only for a reap by node; give version')
        return {
          type: 'reap',
          token: required(token, 'leaseId'),
          version: required(version || null, 'version'),
          why,
        }
      }
      if (leaseId !== '') excluding('node', 'leaseId', 'node')
      if (version !== 0) throw invalidField('version', 'is only for a reap by leaseId; give head')
      checkNode(caller, node)
      return { type: 'reapNode', node, head: required(head || null, 'head'), why }
    },
    view: leases,
  },
  getLease: {
    roles: LEASE_READERS,
    async answer({ leaseId, address }, { network, token, caller }, { reads }) {
      oneOf(['address', address], ['leaseId', leaseId])
      const read =
        token === null
          ? reads.leaseAt(network, ipAddress(address, 'address'))
          : reads.leaseByToken(network, token)
      const { lease, ended, head } = ofNetwork(await read, network)
      if (lease !== null) {
        checkReadableNode(caller, lease.node)
        return { lease: leaseView(lease), head }
      }
      const what = token === null ? `${address} in network ${network}` : `lease ${leaseId}`
      if (ended !== null) {
        const { address, ended: state, at } = ended
        const endedAt = new Date(at).toISOString()
        const message = `${what} was ${state} at ${endedAt}; it held ${address}`
        throw refused('LEASE_NOT_FOUND', message, { state: state!, endedAt, address })
      }
      if (token === null) throw refused('LEASE_NOT_FOUND', `no lease holds ${what}`, { address })
      throw new Refused(unknownLease(leaseId, token, head))
    },
  },
  listLeases: {
    roles: LEASE_READERS,
    async answer(request, { network, caller }, { reads }) {
      const page = pageOf(request, address)
      const { states, quarantineReasons, labels, pools } = request
      const ended = states.indexOf('ENDED')
      if (ended >= 0)
        throw invalidField(`states[${ended}]`, 'leases that ended are not listed; see ListEvents')
      const filter = {
        states: states as readonly LeaseState[],
        quarantineReasons: quarantineReasons as readonly QuarantineReason[],
        ownerKind: request.ownerKind || null,
        ownerName: request.ownerName || null,
        ownerUid: request.ownerUid || null,
        node: readableNode(caller, request.node) || null,
        labels,
        pools,
        cidr: optionalCidr(request.cidr, 'cidr'),
      }
      const found = ofNetwork(await reads.leases(network, filter, page), network)
      if (found.unknownPools[0] !== undefined) throw poolNotFound(network, found.unknownPools[0])
      return { leases: found.leases.map(leaseView), nextPageToken: page.next(found.next), head: found.head }
    },
  },
  getRequest: {
    roles: ORCHESTRATORS,
    async answer(request, { network, caller }, { reads }) {
      const requestId = required(request.requestId, 'requestId')
      checkNode(caller, request.node)
      const node = request.node || (caller.node ?? '')
      const { found } = ofNetwork(await reads.request(network, { node, requestId }), network)
      const { leases = [], items = [] } = found?.answer ?? {}
      const all = [...leases, ...items.flatMap((item) => item.leases)]
      const { method, at, seq } = found ?? {}
      return { requestId, committed: found !== null, method, at, seq, leases: all.map(leaseView) }
    },
  },
}
