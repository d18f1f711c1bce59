/** AuditService. What it says of the past is `ipledger_audit`'s; here requests are read and answers put together. */
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import { type Cidr, formatAddress, formatCidr } from '../core/address.ts'
import { EVENT_TYPES, type EventType } from '../core/event.ts'
import { refusal } from '../core/refusal.ts'
import type * as pb from '../gen/ipledger/v1/audit_pb.ts'
import type { Beyond, EventFilter, HistoryPage, Moment, PageOfLog, Range } from '../ledger/reads-types.ts'
import { shownEntry, shownEvent, shownHolder, shownPastLease } from './answers.ts'
import { type Backend, type Call, checkHead, type Handlers, ofNetwork } from './call.ts'
import { invalidField, Refused } from './errors.ts'
import {
  address,
  atMost,
  cidrOrAddress,
  ipAddress,
  leaseKey,
  ledgerNumber,
  optionalInstant,
  optionalNumber,
  optionalText,
  pageSize,
  poolName,
} from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork } from './requests.ts'
import { checkNetwork } from './rights.ts'

export function auditHandlers({ reads }: Backend): Handlers<typeof pb.AuditService> {
  return {
    listEvents: async (message, call) => {
      const { network, filter, asked } = readListEvents(message, call)
      const page = ofNetwork(await reads.events(network, filter, readPage(message, asked)), network)
      const { head } = page
      checkHead('afterSeq', filter.afterSeq, head)
      checkHead('leaseId', filter.token ?? 0, head)
      return {
        events: page.events.map((one) => shownEvent(network, one)),
        nextPageToken: page.next === null ? '' : encodePage(String(page.next), asked),
        head,
      }
    },

    getAddressHistory: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const cidr = readPlace(message)
      const range = readRange(message)
      const asked = ['GetAddressHistory', network, formatCidr(cidr), range, message.descending]
      const found = await reads.addressHistory(network, cidr, range, readPage(message, asked))
      const page = ofNetwork(found, network)
      checkHead('afterSeq', range.afterSeq, page.head)
      return { ...historyFields(network, page, asked) }
    },

    getLeaseHistory: async (message, call) => {
      if (message.leaseId === '') throw invalidField('leaseId', 'required')
      const { network, token } = leaseKey(message.leaseId, '')
      checkNetwork(call.caller, network)
      const asked = ['GetLeaseHistory', network, token, message.descending]
      const page = ofNetwork(await reads.leaseHistory(network, token, readPage(message, asked)), network)
      if (page === undefined) {
        const { leaseId } = message
        checkHead('leaseId', token, ofNetwork(await reads.network(network), network).head)
        throw new Refused(refusal('LEASE_NOT_FOUND', `no lease ${leaseId} was ever handed out`, { leaseId }))
      }
      return { ...historyFields(network, page, asked) }
    },

    listLeasesAsOf: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const moment = readMoment(message)
      const pool = message.pool === '' ? null : poolName(message.pool, 'pool')
      const asked = ['ListLeasesAsOf', network, moment, pool]
      const place = readPlaceInList(decodePage(message.pageToken, asked))
      const at = place === null ? moment : { seq: place.seq, at: null }
      const size = pageSize(message.pageSize)
      const found = await reads.leasesAsOf(network, at, { pool, after: place?.after ?? null, size })
      const page = notBeyond(ofNetwork(found, network), at)
      if (page.poolUnknown) {
        throw new Refused(
          refusal('POOL_NOT_FOUND', `pool ${pool} of network ${network} does not exist and never did`, {
            network,
            pool: pool!,
          }),
        )
      }
      return {
        leases: page.leases.map(shownPastLease),
        nextPageToken: page.next === null ? '' : encodePage(`${page.seq} ${page.next}`, asked),
        seq: page.seq,
        time: page.at,
        head: page.head,
      }
    },

    explainAddress: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      if (message.address === '') throw invalidField('address', 'required')
      const moment = readMoment(message)
      const at = ipAddress(message.address, 'address')
      const found = notBeyond(ofNetwork(await reads.explanation(network, at, moment), network), moment)
      return { ...found, time: found.at, steps: found.steps.map((step) => ({ ...step, time: step.at })) }
    },

    verifyNetwork: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const verified = ofNetwork(await reads.verification(network), network)
      if (verified === 'busy') {
        throw new Refused(
          refusal('OVERLOADED', 'this process verifies another network; one is done at a time', {}, 5_000),
        )
      }
      return { network, ...verified }
    },
  }
}

function historyFields(network: string, page: HistoryPage, asked: unknown) {
  return {
    entries: page.entries.map((entry) => shownEntry(network, entry)),
    holders: page.holders.map(shownHolder),
    nextPageToken: page.next === null ? '' : encodePage(String(page.next), asked),
    head: page.head,
  }
}

function notBeyond<T extends object>(found: T | Beyond, { seq }: Moment): T {
  if ('beyond' in found) checkHead('seq', seq!, found.beyond)
  return found as T
}

/** An address, or the addresses of a CIDR. */
function readPlace({ address: one, cidr }: pb.GetAddressHistoryRequest): Cidr {
  if (one !== '' && cidr !== '') throw invalidField('cidr', 'address and cidr exclude each other')
  if (one === '' && cidr === '') throw invalidField('address', 'required, or cidr')
  return one === '' ? cidrOrAddress(cidr, 'cidr') : cidrOrAddress(address(one, 'address'), 'address')
}

type RangeMessage = Pick<pb.ListEventsRequest, 'afterSeq' | 'beforeSeq' | 'from' | 'to'>

function readRange({ afterSeq, beforeSeq, from, to }: RangeMessage): Range {
  return {
    afterSeq: ledgerNumber(afterSeq, 'afterSeq'),
    beforeSeq: optionalNumber(beforeSeq, 'beforeSeq'),
    from: optionalInstant(from, 'from'),
    to: optionalInstant(to, 'to'),
  }
}

function readPage(
  message: { readonly pageSize: number; readonly pageToken: string; readonly descending: boolean },
  asked: unknown,
): PageOfLog {
  return {
    descending: message.descending,
    size: pageSize(message.pageSize),
    position: readPosition(decodePage(message.pageToken, asked)),
  }
}

function readMoment({
  seq,
  time,
}: {
  readonly seq?: bigint | undefined
  readonly time?: Timestamp | undefined
}): Moment {
  if (seq !== undefined && time !== undefined) throw invalidField('time', 'seq and time exclude each other')
  return { seq: optionalNumber(seq, 'seq'), at: optionalInstant(time, 'time') }
}

function readListEvents(message: pb.ListEventsRequest, call: Call) {
  const key = message.leaseId === '' ? null : leaseKey(message.leaseId, message.network)
  const network = key?.network ?? allowedNetwork(call, message.network)
  checkNetwork(call.caller, network)
  if (message.address !== '' && message.cidr !== '') {
    throw invalidField('cidr', 'address and cidr exclude each other')
  }
  atMost(message.types.length, EVENT_TYPES.length, 'types')
  if (message.includeSources && message.types.length > 0) {
    throw invalidField('includeSources', 'types and includeSources exclude each other')
  }
  const cidr = message.cidr === '' ? null : cidrOrAddress(message.cidr, 'cidr')
  const at = message.address === '' ? null : ipAddress(message.address, 'address')
  const filter: EventFilter = {
    ...readRange(message),
    address: at,
    cidr,
    ownerKind: optionalText(message.ownerKind, 'ownerKind'),
    ownerName: optionalText(message.ownerName, 'ownerName'),
    token: key?.token ?? null,
    types: message.includeSources ? EVENT_TYPES : message.types.map(readType),
  }
  const canonical = {
    ...filter,
    address: at === null ? null : formatAddress(at),
    cidr: cidr === null ? null : formatCidr(cidr),
  }
  return { network, filter, asked: ['ListEvents', network, canonical, message.descending] }
}

function readType(type: string, index: number): EventType {
  const found = EVENT_TYPES.find((one) => one === type)
  if (found !== undefined) return found
  throw invalidField(`types[${index}]`, `must be one of ${EVENT_TYPES.join(', ')}`)
}

function readPosition(position: string | null): number | null {
  if (position === null) return null
  if (!/^[0-9]{1,16}$/.test(position)) throw invalidField('pageToken', 'is not a page token of this server')
  return ledgerNumber(BigInt(position), 'pageToken')
}

/** The number that all pages are of, and the last address of the page before. */
function readPlaceInList(position: string | null): { readonly seq: number; readonly after: string } | null {
  if (position === null) return null
  const found = /^([0-9]{1,16}) ([0-9a-f:.]{2,45})$/.exec(position)
  if (found === null) throw invalidField('pageToken', 'is not a page token of this server')
  return { seq: readPosition(found[1]!)!, after: address(found[2]!, 'pageToken') }
}
