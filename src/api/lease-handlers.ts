/** LeaseService: what is asked of leases, one function a method. */
import type { Answer, Claim, Command, LeaseReference } from '../core/command.ts'
import type { LeaseState, QuarantineReason } from '../core/event.ts'
import type { Labels, Owner } from '../core/owner.ts'
import * as pb from '../gen/ipledger/v1/lease_pb.ts'
import type { Owner as OwnerMessage } from '../gen/ipledger/v1/types_pb.ts'
import type { LeaseFilter } from '../ledger/read-leases.ts'
import { shownLease } from './answers.ts'
import { type Asked, readerOf } from './asked.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  checkHead,
  command,
  commanded,
  type Handlers,
  neverWas,
  ofNetwork,
  poolNotFound,
  requiredLease,
  submit,
} from './call.ts'
import { invalidField, Refused, refused, shownItemError } from './errors.ts'
import { address, DEFAULT_INTERFACE, excluding, ipAddress, oneOf, optionalCidr, required } from './fields.ts'
import { pageOf } from './page-token.ts'
import { checkNode, checkReadableNode, readableNode } from './rights.ts'

export function leaseHandlers(backend: Backend): Handlers<typeof pb.LeaseService> {
  const { reads } = backend
  return {
    reserve: commanded(backend, readReserve, leases),
    confirm: commanded(backend, readConfirm, leases),
    release: commanded(backend, readRelease, leases),
    /** One lease that was judged, or all that is placed on a node. */
    reap: commanded(
      backend,
      (message, call) => {
        const { requestId, version, head, node } = message
        const why = required(message.why, 'why')
        if (node === '') {
          if (head !== 0) throw invalidField('head', 'is only for a reap by node; give version')
          const { network, token } = requiredLease(message.leaseId, call, message.network)
          required(version || undefined, 'version')
          return command(call, network, requestId, { type: 'reap', token, version, why })
        }
        if (message.leaseId !== '') excluding('node', 'leaseId', 'node')
        if (version !== 0) throw invalidField('version', 'is only for a reap by leaseId; give head')
        required(head || undefined, 'head')
        checkNode(call.caller, node)
        const network = allowedNetwork(call, message.network)
        return command(call, network, requestId, { type: 'reapNode', node, head, why })
      },
      leases,
    ),
    quarantine: commanded(
      backend,
      ({ leaseId, address, why: said, network: named, requestId }, call) => {
        const why = required(said, 'why')
        oneOf(['address', address], ['leaseId', leaseId])
        const { network, ...target } =
          leaseId === ''
            ? { network: allowedNetwork(call, named), address }
            : requiredLease(leaseId, call, named)
        return command(call, network, requestId, { type: 'quarantine', target, why })
      },
      onlyLease,
    ),
    updateLabels: commanded(
      backend,
      ({ leaseId, version = null, labels, requestId }, call) => {
        const { network, token } = requiredLease(leaseId, call, '')
        return command(call, network, requestId, { type: 'updateLabels', token, version, labels })
      },
      onlyLease,
    ),

    batchReserve: batched(backend, readerOf(pb.ReserveRequestSchema), (item, call, network) => {
      if (item.validateOnly) throw invalidField('validateOnly', 'is not for items of a batch; call Reserve')
      return readReserve(item, call, network)
    }),
    batchConfirm: batched(backend, readerOf(pb.ConfirmRequestSchema), readConfirm),
    batchRelease: batched(backend, readerOf(pb.ReleaseRequestSchema), readRelease),

    getLease: async ({ leaseId, address, network: named }, call) => {
      oneOf(['address', address], ['leaseId', leaseId])
      const key = leaseId === '' ? null : requiredLease(leaseId, call, named)
      const network = key?.network ?? allowedNetwork(call, named)
      const read =
        key === null
          ? reads.leaseAt(network, ipAddress(address, 'address'))
          : reads.leaseByToken(network, key.token)
      const { lease, ended, head } = ofNetwork(await read, network)
      const what = key === null ? `${address} in network ${network}` : `lease ${leaseId}`
      if (lease === null) {
        if (ended !== null) {
          const { address, ended: state, at } = ended
          const endedAt = new Date(at).toISOString()
          const message = `${what} was ${state} at ${endedAt}; it held ${address}`
          throw refused('LEASE_NOT_FOUND', message, { state: state!, endedAt, address })
        }
        if (key === null) throw refused('LEASE_NOT_FOUND', `nobody holds ${what}`, { address })
        checkHead(what, key.token, head)
        throw neverWas(leaseId)
      }
      checkReadableNode(call.caller, lease.node)
      return { lease: shownLease(lease), head }
    },

    listLeases: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const page = pageOf(message, address)
      const node = readableNode(call.caller, message.node)
      const { states, quarantineReasons, labels, pools } = message
      const ended = states.indexOf('ENDED')
      if (ended >= 0)
        throw invalidField(`states[${ended}]`, 'leases that ended are not listed; see ListEvents')
      const filter: LeaseFilter = {
        states: states as readonly LeaseState[],
        quarantineReasons: quarantineReasons as readonly QuarantineReason[],
        ownerKind: message.ownerKind || null,
        ownerName: message.ownerName || null,
        ownerUid: message.ownerUid || null,
        node: node || null,
        labels,
        pools,
        cidr: optionalCidr(message.cidr, 'cidr'),
      }
      const found = ofNetwork(await reads.leases(network, filter, page), network)
      if (found.unknownPools[0] !== undefined) throw poolNotFound(network, found.unknownPools[0])
      const { leases, next, head } = found
      return { leases: leases.map(shownLease), nextPageToken: page.next(next), head }
    },

    getRequest: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const id = required(message.requestId, 'requestId')
      const { found } = ofNetwork(await reads.request(network, id), network)
      const { leases = [], items = [] } = found?.answer ?? {}
      const all = [...leases, ...items.flatMap((item) => item.leases)]
      const { method, at, seq } = found ?? {}
      return { requestId: id, committed: found !== null, method, at, seq, leases: all.map(shownLease) }
    },
  }
}

const leases = (answer: Answer) => ({ leases: answer.leases.map(shownLease) })
/** These commands are about exactly one lease. */
const onlyLease = (answer: Answer) => ({ lease: shownLease(answer.leases[0]!) })

// What is asked. `network` is that of the batch that the message is an item of.

function readReserve(
  message: Asked<pb.ReserveRequest>,
  call: Call,
  network = allowedNetwork(call, message.network),
): Command<'reserve'> {
  const { liveAddresses, confirmWithinMs = null, confirmed, validateOnly } = message
  const { owner, node, labels } = requiredOwner(message.owner, call, DEFAULT_INTERFACE)
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

function readClaim({ pool, pools, address, preferPrevious }: Asked<pb.Claim>, index: number): Claim {
  if (pool !== '' && pools.length > 0) excluding(`claims[${index}].pool`, 'pool', 'pools')
  return { pools: pool === '' ? pools : [pool], address: address || null, preferPrevious }
}

function readConfirm(message: Asked<pb.ConfirmRequest>, call: Call, network?: string): Command<'confirm'> {
  const named = readReference(message, call, network)
  return command(call, named.network, message.requestId, { type: 'confirm', lease: named.lease })
}

function readRelease(message: Asked<pb.ReleaseRequest>, call: Call, network?: string): Command<'release'> {
  const named = readReference(message, call, network)
  const removalConfirmed = message.removal !== 'UNCONFIRMED'
  const { network: of, lease } = named
  return command(call, of, message.requestId, { type: 'release', lease, removalConfirmed })
}

/** By lease id, by token, or by owner. */
function readReference(
  message: Asked<pb.ConfirmRequest>,
  call: Call,
  given: string | undefined,
): { readonly network: string; readonly lease: LeaseReference } {
  const { leaseId, fencingToken } = message
  const owner = message.owner === undefined ? null : requiredOwner(message.owner, call, null).owner
  const key = leaseId === '' ? null : requiredLease(leaseId, call, given ?? message.network)
  if (key !== null && fencingToken !== 0 && fencingToken !== key.token) {
    throw invalidField('fencingToken', `leaseId names token ${key.token}; give the same, or leave this out`)
  }
  const network = key?.network ?? given ?? allowedNetwork(call, message.network)
  const token = key?.token ?? fencingToken
  if (token !== 0) return { network, lease: { token, owner } }
  if (owner !== null) return { network, lease: { token: null, owner } }
  throw invalidField('leaseId', 'required: give leaseId, fencingToken or owner')
}

/** `defaultInterface` is null where the interface must be said. */
function requiredOwner(
  message: Asked<OwnerMessage> | undefined,
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

// Batches.

type Item = { readonly network: string; readonly requestId: string }
type Batch<I> = Item & { readonly requests: readonly I[]; readonly atomic: boolean }

/**
 * Items are commands of their own, decided in order, or one command that holds all or nothing. Each is refused as it
 * would be alone, so what it is refused for names the fields of the item.
 */
function batched<I extends Item, A>(
  backend: Backend,
  asked: (item: I) => A,
  readItem: (asked: A, call: Call, network: string) => Command<'reserve' | 'confirm' | 'release'>,
) {
  return async ({ requests, atomic, requestId, network: named }: Batch<I>, call: Call) => {
    const network = allowedNetwork(call, named)
    if (requests.length === 0) throw invalidField('requests', 'required: 1 to 1000 requests')
    if (!atomic && requestId !== '') {
      throw invalidField('requestId', 'is only for an atomic batch; give each item its own')
    }
    const read = (item: I) => {
      if (item.network !== '' && item.network !== network) {
        throw invalidField('network', `the batch is about network ${network}`)
      }
      if (atomic && item.requestId !== '') {
        throw invalidField('requestId', 'an item of an atomic batch has none; give it to the batch')
      }
      return readItem(asked(item), call, network)
    }
    const respond = (answer: Answer) => ({ response: leases(answer), error: undefined })
    if (!atomic) {
      const results = requests.map(async (item) => {
        try {
          return respond(await submit(backend, read(item), call))
        } catch (error) {
          if (error instanceof Refused) return { response: undefined, error: shownItemError(error) }
          throw error
        }
      })
      return { results: await Promise.all(results) }
    }
    const items = requests.map((item, index) => {
      try {
        return read(item)
      } catch (error) {
        throw error instanceof Refused ? inItem(error, index) : error
      }
    })
    const same = items.map(({ actor: _actor, traceId: _traceId, ...rest }) => rest)
    const all = command(call, network, requestId, { type: 'allOrNothing', items }, same)
    const answer = await submit(backend, all, call)
    return { results: (answer.items ?? []).map(respond) }
  }
}

function inItem({ refusal: { message, metadata, ...rest } }: Refused, index: number): Refused {
  return new Refused({
    ...rest,
    message: `item ${index}: ${message}`,
    metadata: { ...metadata, item: String(index) },
  })
}
