/** LeaseService: what is asked of leases, one function a method. */
import type { Answer, Command, LeaseView } from '../core/command.ts'
import type { LeaseState, QuarantineReason } from '../core/event.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import {
  ConfirmRequestSchema,
  type GetLeaseRequest,
  type LeaseService,
  type ListLeasesRequest,
  ReleaseRequestSchema,
  ReserveRequestSchema,
} from '../gen/ipledger/v1/lease_pb.ts'
import type { LeaseFilter, LeaseFound } from '../ledger/read-leases.ts'
import { shownLease } from './answers.ts'
import { type Asked, readerOf } from './asked.ts'
import {
  type Backend,
  type Call,
  checkHead,
  commanded,
  type Handlers,
  neverWas,
  ofNetwork,
  poolNotFound,
  submit,
} from './call.ts'
import { invalidField, Refused, shownItemError } from './errors.ts'
import { address, ipAddress, oneOf, optionalCidr, required } from './fields.ts'
import { pageOf } from './page-token.ts'
import {
  allOrNothing,
  allowedNetwork,
  command,
  readConfirm,
  readQuarantine,
  readReap,
  readRelease,
  readReserve,
  requiredLease,
} from './requests.ts'
import { checkReadableNode } from './rights.ts'

export function leaseHandlers(backend: Backend): Handlers<typeof LeaseService> {
  const { reads } = backend
  return {
    reserve: commanded(backend, readReserve, leases),
    confirm: commanded(backend, readConfirm, leases),
    release: commanded(backend, readRelease, leases),
    reap: commanded(backend, readReap, leases),
    quarantine: commanded(backend, readQuarantine, onlyLease),
    updateLabels: commanded(
      backend,
      ({ leaseId, version = null, labels, requestId }, call) => {
        const { network, token } = requiredLease(leaseId, call, '')
        return command(call, network, requestId, { type: 'updateLabels', token, version, labels })
      },
      onlyLease,
    ),

    batchReserve: async (message, call) =>
      batch(backend, message, call, (item, network) => {
        if (item.validateOnly) throw invalidField('validateOnly', 'is not for items of a batch; call Reserve')
        return readReserve(askedReserve(item), call, network)
      }),

    batchConfirm: async (message, call) =>
      batch(backend, message, call, (item, network) => readConfirm(askedConfirm(item), call, network)),

    batchRelease: async (message, call) =>
      batch(backend, message, call, (item, network) => readRelease(askedRelease(item), call, network)),

    getLease: async (message, call) => {
      const { lease, head } = await findLease(backend, message, call)
      checkReadableNode(call.caller, lease.node)
      return { lease: shownLease(lease), head }
    },

    listLeases: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const page = pageOf(message, address)
      const { caller } = call
      const node = message.node || (caller.role === 'agent' ? caller.node! : '')
      checkReadableNode(caller, node)
      const filter = readFilter({ ...message, node })
      const found = ofNetwork(await reads.leases(network, filter, page), network)
      if (found.unknownPools[0] !== undefined) throw poolNotFound(network, found.unknownPools[0])
      return {
        leases: found.leases.map(shownLease),
        nextPageToken: page.next(found.next),
        head: found.head,
      }
    },

    getRequest: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const id = required(message.requestId, 'requestId')
      const { found } = ofNetwork(await reads.request(network, id), network)
      return {
        requestId: id,
        committed: found !== null,
        method: found?.method,
        at: found?.at,
        leases: found === null ? [] : leasesOf(found.answer).map(shownLease),
        seq: found?.seq,
      }
    },
  }
}

function leases(answer: Answer) {
  return { leases: answer.leases.map(shownLease) }
}

/** These commands are about exactly one lease. */
function onlyLease(answer: Answer) {
  return { lease: shownLease(answer.leases[0]!) }
}

function leasesOf(answer: Answer): readonly LeaseView[] {
  return [...answer.leases, ...(answer.items ?? []).flatMap((item) => item.leases)]
}

// Batches.

const askedReserve = readerOf(ReserveRequestSchema)
const askedConfirm = readerOf(ConfirmRequestSchema)
const askedRelease = readerOf(ReleaseRequestSchema)

type BatchRequest<Item> = {
  readonly network: string
  readonly requests: readonly Item[]
  readonly atomic: boolean
  readonly requestId: string
}

/**
 * Items are commands of their own, decided in order, or one command that holds all or nothing. Each is refused as it
 * would be alone, so what it is refused for names the fields of the item.
 */
async function batch<Item extends { readonly network: string; readonly requestId: string }>(
  backend: Backend,
  message: BatchRequest<Item>,
  call: Call,
  readItem: (item: Item, network: string) => Command<'reserve'> | Command<'confirm'> | Command<'release'>,
) {
  const network = allowedNetwork(call, message.network)
  const { requests, atomic } = message
  if (requests.length === 0) throw invalidField('requests', 'required: 1 to 1000 requests')
  if (!atomic && message.requestId !== '') {
    throw invalidField('requestId', 'is only for an atomic batch; give each item its own')
  }
  const read = (item: Item) => {
    if (item.network !== '' && item.network !== network) {
      throw invalidField('network', `the batch is about network ${network}`)
    }
    if (atomic && item.requestId !== '') {
      throw invalidField('requestId', 'an item of an atomic batch has none; give it to the batch')
    }
    return readItem(item, network)
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
  const command: Command = allOrNothing(call, network, message.requestId, items)
  const answer = await submit(backend, command, call)
  return { results: (answer.items ?? []).map(respond) }
}

function inItem({ refusal: { message, metadata, ...rest } }: Refused, index: number): Refused {
  return new Refused({
    ...rest,
    message: `item ${index}: ${message}`,
    metadata: { ...metadata, item: String(index) },
  })
}

// Reading.

async function findLease({ reads }: Backend, message: Asked<GetLeaseRequest>, call: Call) {
  const { leaseId, address } = message
  oneOf(['address', address], ['leaseId', leaseId])
  if (leaseId !== '') {
    const { network, token } = requiredLease(leaseId, call, message.network)
    const found = ofNetwork(await reads.leaseByToken(network, token), network)
    const what = `lease ${leaseId}`
    if (found.lease === null && found.ended === null) checkHead(what, token, found.head)
    return held(found, what, neverWas(leaseId))
  }
  const network = allowedNetwork(call, message.network)
  const found = ofNetwork(await reads.leaseAt(network, ipAddress(address, 'address')), network)
  const what = `${address} in network ${network}`
  return held(found, what, refusal('LEASE_NOT_FOUND', `nobody holds ${what}`, { address }))
}

function held({ lease, ended, head }: LeaseFound, what: string, unknown: Refusal) {
  if (lease !== null) return { lease, head }
  if (ended === null) throw new Refused(unknown)
  const { address } = ended
  const state = ended.ended!
  const endedAt = new Date(ended.at).toISOString()
  const message = `${what} was ${state} at ${endedAt}; it held ${address}`
  throw new Refused(refusal('LEASE_NOT_FOUND', message, { state, endedAt, address }))
}

function readFilter(message: Asked<ListLeasesRequest>): LeaseFilter {
  const { states, quarantineReasons, labels, pools } = message
  const ended = states.indexOf('ENDED')
  if (ended >= 0) throw invalidField(`states[${ended}]`, 'leases that ended are not listed; see ListEvents')
  return {
    states: states as readonly LeaseState[],
    quarantineReasons: quarantineReasons as readonly QuarantineReason[],
    ownerKind: message.ownerKind || null,
    ownerName: message.ownerName || null,
    ownerUid: message.ownerUid || null,
    node: message.node || null,
    labels,
    pools,
    cidr: optionalCidr(message.cidr, 'cidr'),
  }
}
