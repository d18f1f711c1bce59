/** AuditService. */
import { formatCidr, isMalformed, parseAddress } from '../core/address.ts'
import { EVENT_TYPES, type EventType } from '../core/event.ts'
import type { AuditService, ListEventsRequest } from '../gen/ipledger/v1/audit_pb.ts'
import type { EventFilter } from '../ledger/read-events.ts'
import { eventMessage } from './answers.ts'
import { type Backend, beyondHead, type Call, type Handlers, networkNotFound } from './call.ts'
import { invalidField } from './errors.ts'
import { address, atMost, cidrOrAddress, LIMITS, leaseKey, ledgerNumber, pageSize, text } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork } from './requests.ts'
import { checkNetwork } from './rights.ts'

export function auditHandlers(backend: Backend): Handlers<typeof AuditService> {
  return {
    listEvents: async (message, call) => {
      const { network, filter, asked } = readListEvents(message, call)
      const { descending } = message
      const size = pageSize(message.pageSize)
      const position = decodePage(message.pageToken, asked)
      const page = await backend.reads.events(network, from(filter, position, descending), {
        descending,
        size,
      })
      if (page === null) throw networkNotFound(network)
      const { head } = page
      for (const [what, number] of [
        ['afterSeq', filter.afterSeq],
        ['leaseId', filter.token ?? 0],
      ] as const) {
        if (number > head) throw beyondHead(backend, call, what, { network, number, head })
      }
      return {
        $typeName: 'ipledger.v1.ListEventsResponse',
        events: page.events.map(eventMessage),
        nextPageToken: page.next === null ? '' : encodePage(String(page.next), asked),
        head: BigInt(head),
      }
    },
  }
}

function readListEvents(
  message: ListEventsRequest,
  call: Call,
): { network: string; filter: EventFilter; asked: unknown } {
  const key = message.leaseId === '' ? null : leaseKey(message.leaseId, message.network)
  const network = key?.network ?? allowedNetwork(call, message.network)
  checkNetwork(call.caller, network)
  if (message.address !== '' && message.cidr !== '') {
    throw invalidField('cidr', 'address and cidr exclude each other')
  }
  atMost(message.types.length, EVENT_TYPES.length, 'types')
  const cidr = message.cidr === '' ? null : cidrOrAddress(message.cidr, 'cidr')
  const at = message.address === '' ? null : address(message.address, 'address')
  const filter: EventFilter = {
    afterSeq: ledgerNumber(message.afterSeq, 'afterSeq'),
    beforeSeq: message.beforeSeq === undefined ? null : ledgerNumber(message.beforeSeq, 'beforeSeq'),
    address: at === null ? null : parsed(at),
    cidr,
    ownerKind: message.ownerKind === '' ? null : text(message.ownerKind, 'ownerKind', LIMITS.nameBytes),
    ownerName: message.ownerName === '' ? null : text(message.ownerName, 'ownerName', LIMITS.nameBytes),
    token: key?.token ?? null,
    types: message.types.map(readType),
  }
  const canonical = { ...filter, address: at, cidr: cidr === null ? null : formatCidr(cidr) }
  return { network, filter, asked: ['ListEvents', network, canonical, message.descending] }
}

function parsed(canonical: string) {
  const value = parseAddress(canonical)
  if (isMalformed(value)) throw invalidField('address', value.malformed)
  return value
}

function readType(type: string, index: number): EventType {
  const found = EVENT_TYPES.find((one) => one === type)
  if (found === undefined) {
    throw invalidField(`types[${index}]`, `must be one of ${EVENT_TYPES.join(', ')}`)
  }
  return found
}

/** Where a page goes on narrows what was asked. */
function from(filter: EventFilter, position: string | null, descending: boolean): EventFilter {
  if (position === null) return filter
  const seq = /^[0-9]{1,16}$/.test(position) ? ledgerNumber(BigInt(position), 'pageToken') : undefined
  if (seq === undefined) throw invalidField('pageToken', 'is not a page token of this server')
  return descending
    ? { ...filter, beforeSeq: Math.min(seq, filter.beforeSeq ?? seq) }
    : { ...filter, afterSeq: Math.max(seq, filter.afterSeq) }
}
