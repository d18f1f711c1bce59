/** AuditService. What it says of the past is `ipledger_audit`'s; here requests are read and answers put together. */
import type { Timestamp } from '@bufbuild/protobuf/wkt'
import { type Cidr, formatAddress, formatCidr, isMalformed, parseAddress } from '../core/address.ts'
import { EVENT_TYPES, type EventType } from '../core/event.ts'
import { refusal } from '../core/refusal.ts'
import type * as pb from '../gen/ipledger/v1/audit_pb.ts'
import type { HistoryAsked, HistoryPage, Moment, Range } from '../ledger/read-audit.ts'
import type { EventFilter } from '../ledger/read-events.ts'
import { BRIEF_MS, type VerifiedBriefly } from '../ledger/verify-briefly.ts'
import {
  entryMessage,
  eventMessage,
  holderMessage,
  jsonObject,
  pastLeaseMessage,
  stepMessage,
} from './answers.ts'
import { type Backend, beyondHead, type Call, type Handlers, networkNotFound } from './call.ts'
import { invalidField, Refused } from './errors.ts'
import {
  address,
  atMost,
  cidrOrAddress,
  instant,
  LIMITS,
  leaseKey,
  ledgerNumber,
  pageSize,
  poolName,
  text,
} from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork } from './requests.ts'
import { checkNetwork } from './rights.ts'
import { timestampMessage } from './times.ts'

export function auditHandlers(backend: Backend): Handlers<typeof pb.AuditService> {
  return {
    listEvents: async (message, call) => {
      const { network, filter, asked } = readListEvents(message, call)
      const { descending } = message
      const size = pageSize(message.pageSize)
      const position = decodePage(message.pageToken, asked)
      const narrowed = await between(backend, network, filter, message)
      const page = await backend.reads.events(network, from(narrowed, position, descending), {
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

    getAddressHistory: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const cidr = readPlace(message)
      const range = readRange(message)
      const { descending } = message
      const asked = ['GetAddressHistory', network, formatCidr(cidr), range, descending]
      const page = await backend.reads.addressHistory(network, cidr, range, readHistory(message, asked))
      if (page === null) throw networkNotFound(network)
      const { head } = page
      if (range.afterSeq > head) {
        throw beyondHead(backend, call, 'afterSeq', { network, number: range.afterSeq, head })
      }
      return { $typeName: 'ipledger.v1.GetAddressHistoryResponse', ...historyFields(page, asked) }
    },

    getLeaseHistory: async (message, call) => {
      if (message.leaseId === '') throw invalidField('leaseId', 'required')
      const { network, token } = leaseKey(message.leaseId, '')
      checkNetwork(call.caller, network)
      const asked = ['GetLeaseHistory', network, token, message.descending]
      const page = await backend.reads.leaseHistory(network, token, readHistory(message, asked))
      if (page === null) throw networkNotFound(network)
      if (page === undefined) {
        throw new Refused(
          refusal('LEASE_NOT_FOUND', `no lease ${message.leaseId} was ever handed out`, {
            leaseId: message.leaseId,
          }),
        )
      }
      const { head } = page
      if (token > head) throw beyondHead(backend, call, 'leaseId', { network, number: token, head })
      return { $typeName: 'ipledger.v1.GetLeaseHistoryResponse', ...historyFields(page, asked) }
    },

    listLeasesAsOf: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const moment = readMoment(message)
      const pool = message.pool === '' ? null : poolName(message.pool, 'pool')
      const asked = ['ListLeasesAsOf', network, moment, pool]
      const position = readPlaceInList(decodePage(message.pageToken, asked))
      const page = await backend.reads.leasesAsOf(
        network,
        position === null ? moment : { seq: position.seq, at: null },
        { pool, after: position?.after ?? null, size: pageSize(message.pageSize) },
      )
      if (page === null) throw networkNotFound(network)
      if ('beyond' in page)
        throw beyondMoment(backend, call, network, position?.seq ?? moment.seq!, page.beyond)
      if (page.poolUnknown) {
        throw new Refused(
          refusal('POOL_NOT_FOUND', `pool ${pool} of network ${network} does not exist and never did`, {
            network,
            pool: pool!,
          }),
        )
      }
      const answer: pb.ListLeasesAsOfResponse = {
        $typeName: 'ipledger.v1.ListLeasesAsOfResponse',
        leases: page.leases.map(pastLeaseMessage),
        nextPageToken: page.next === null ? '' : encodePage(`${page.seq} ${page.next}`, asked),
        seq: BigInt(page.seq),
        head: BigInt(page.head),
      }
      if (page.at !== null) answer.time = timestampMessage(page.at)
      return answer
    },

    explainAddress: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      if (message.address === '') throw invalidField('address', 'required')
      const at = parsed(address(message.address, 'address'))
      const moment = readMoment(message)
      const found = await backend.reads.explanation(network, at, moment)
      if (found === null) throw networkNotFound(network)
      if ('beyond' in found) throw beyondMoment(backend, call, network, moment.seq!, found.beyond)
      const answer: pb.ExplainAddressResponse = {
        $typeName: 'ipledger.v1.ExplainAddressResponse',
        answer: found.answer,
        state: found.state,
        seq: BigInt(found.seq),
        steps: found.steps.map(stepMessage),
        evidence: jsonObject(found.evidence),
        head: BigInt(found.head),
      }
      if (found.at !== null) answer.time = timestampMessage(found.at)
      return answer
    },

    verifyNetwork: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const verified = await backend.reads.verification(network)
      if (verified === null) throw networkNotFound(network)
      if (verified === 'busy') {
        throw new Refused(
          refusal('OVERLOADED', 'this process verifies another network; one is done at a time', {}, BRIEF_MS),
        )
      }
      return verifiedMessage(network, verified)
    },
  }
}

function verifiedMessage(network: string, verified: VerifiedBriefly): pb.VerifyNetworkResponse {
  return {
    $typeName: 'ipledger.v1.VerifyNetworkResponse',
    network,
    complete: verified.complete,
    fromSeq: BigInt(verified.from),
    verifiedSeq: BigInt(verified.verified),
    head: BigInt(verified.head),
    findings: verified.findings.map((one) => ({
      $typeName: 'ipledger.v1.VerifyFinding',
      what: one.what,
      message: one.message,
      address: one.address ?? '',
      leaseId: one.leaseId ?? '',
      pool: one.pool ?? '',
      seq: BigInt(one.seq ?? 0),
      expected: one.expected ?? '',
      found: one.found ?? '',
    })),
    omitted: BigInt(verified.omitted),
  }
}

function historyFields(page: HistoryPage, asked: unknown) {
  return {
    entries: page.entries.map(entryMessage),
    holders: page.holders.map(holderMessage),
    nextPageToken: page.next === null ? '' : encodePage(String(page.next), asked),
    head: BigInt(page.head),
  }
}

/** An address, or the addresses of a CIDR. */
function readPlace(message: pb.GetAddressHistoryRequest): Cidr {
  const { address: one, cidr } = message
  if (one !== '' && cidr !== '') throw invalidField('cidr', 'address and cidr exclude each other')
  if (one === '' && cidr === '') throw invalidField('address', 'required, or cidr')
  return one === '' ? cidrOrAddress(cidr, 'cidr') : cidrOrAddress(address(one, 'address'), 'address')
}

function readRange(message: pb.GetAddressHistoryRequest): Range {
  const { afterSeq, beforeSeq, from, to } = message
  return {
    afterSeq: ledgerNumber(afterSeq, 'afterSeq'),
    beforeSeq: beforeSeq === undefined ? null : ledgerNumber(beforeSeq, 'beforeSeq'),
    from: optionalInstant(from, 'from'),
    to: optionalInstant(to, 'to'),
  }
}

function readHistory(
  message: { readonly pageSize: number; readonly pageToken: string; readonly descending: boolean },
  asked: unknown,
): HistoryAsked {
  const { descending } = message
  const size = pageSize(message.pageSize)
  return { descending, size, position: readPosition(decodePage(message.pageToken, asked)) }
}

function readMoment(message: {
  readonly seq?: bigint | undefined
  readonly time?: Timestamp | undefined
}): Moment {
  const { seq, time } = message
  if (seq !== undefined && time !== undefined) throw invalidField('time', 'seq and time exclude each other')
  return {
    seq: seq === undefined ? null : ledgerNumber(seq, 'seq'),
    at: optionalInstant(time, 'time'),
  }
}

function optionalInstant(time: Timestamp | undefined, path: string): number | null {
  return time === undefined ? null : instant(time, path)
}

function beyondMoment(backend: Backend, call: Call, network: string, number: number, head: number): Refused {
  return beyondHead(backend, call, 'seq', { network, number, head })
}

function readListEvents(
  message: pb.ListEventsRequest,
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
  const times = [optionalInstant(message.from, 'from'), optionalInstant(message.to, 'to')]
  const canonical = { ...filter, address: at, cidr: cidr === null ? null : formatCidr(cidr), times }
  return { network, filter, asked: ['ListEvents', network, canonical, message.descending] }
}

/** Times as numbers. */
async function between(
  { reads }: Backend,
  network: string,
  filter: EventFilter,
  message: Pick<pb.ListEventsRequest, 'from' | 'to'>,
): Promise<EventFilter> {
  const times = { from: optionalInstant(message.from, 'from'), to: optionalInstant(message.to, 'to') }
  if (times.from === null && times.to === null) return filter
  const bounds = await reads.between(network, times)
  if (bounds === null) throw networkNotFound(network)
  return {
    ...filter,
    afterSeq: Math.max(filter.afterSeq, bounds.after),
    beforeSeq: Math.min(filter.beforeSeq ?? bounds.before, bounds.before),
  }
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
  const seq = readPosition(position)
  if (seq === null) return filter
  return descending
    ? { ...filter, beforeSeq: Math.min(seq, filter.beforeSeq ?? seq) }
    : { ...filter, afterSeq: Math.max(seq, filter.afterSeq) }
}

function readPosition(position: string | null): number | null {
  if (position === null) return null
  if (!/^[0-9]{1,16}$/.test(position)) throw invalidField('pageToken', 'is not a page token of this server')
  return ledgerNumber(BigInt(position), 'pageToken')
}

/** The number that all pages are of, and the last address of the page before. */
function readPlaceInList(position: string | null): { readonly seq: number; readonly after: string } | null {
  if (position === null) return null
  const [seq, after, ...others] = position.split(' ')
  const value = after === undefined || others.length > 0 ? undefined : parseAddress(after)
  if (value === undefined || isMalformed(value)) {
    throw invalidField('pageToken', 'is not a page token of this server')
  }
  return { seq: readPosition(seq!)!, after: formatAddress(value) }
}
