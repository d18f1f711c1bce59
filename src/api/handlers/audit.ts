/** AuditService. */
import { EVENT_TYPES } from '../../core/event.ts'
import { unknownLease } from '../../core/refusal.ts'
import type * as pb from '../../gen/ipledger/v1/audit_pb.ts'
import type { Beyond, EventFilter, HistoryPage, Moment, PageOfLog, Range } from '../../ledger/read-log.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { Refused, refused } from '../codec/errors.ts'
import { address, cidrOrAddress, excluding, ipAddress, knownTexts, oneOf, required } from '../codec/fields.ts'
import { notOurs, type Page, pageOf } from '../codec/page-token.ts'
import { eventView, holderView, pastLeaseView } from '../codec/views.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  checkHead,
  type Declarations,
  ofNetwork,
  poolNotFound,
  requiredLease,
} from '../method.ts'
import { READERS } from '../rights.ts'

export const auditMethods: Declarations<typeof pb.AuditService> = {
  listEvents: { roles: READERS, answer: listEvents },
  getAddressHistory: { roles: READERS, answer: getAddressHistory },
  getLeaseHistory: { roles: READERS, answer: getLeaseHistory },
  listLeasesAsOf: { roles: READERS, answer: listLeasesAsOf },
  explainAddress: { roles: READERS, answer: explainAddress },
  verifyNetwork: { roles: READERS, answer: verifyNetwork },
}

async function listEvents(request: Decoded<pb.ListEventsRequest>, call: Call, { reads }: Backend) {
  const { address, ownerKind, ownerName, includeSources } = request
  const key = request.leaseId === '' ? null : requiredLease(request.leaseId, call, request.network)
  const network = key?.network ?? allowedNetwork(call, request.network)
  if (includeSources && request.types.length > 0) excluding('includeSources', 'types', 'includeSources')
  const types = knownTexts(request.types, EVENT_TYPES, 'types')
  const filter: EventFilter = {
    ...readRange(request),
    address: address === '' ? null : ipAddress(address, 'address'),
    ownerKind: ownerKind || null,
    ownerName: ownerName || null,
    token: key?.token ?? null,
    types: includeSources ? EVENT_TYPES : types,
  }
  const page = pageOf(request, readPosition)
  const { entries, next, head } = ofNetwork(
    await reads.events(network, filter, logPage(request, page)),
    network,
  )
  checkHead('afterSeq', filter.afterSeq, head)
  if (key !== null && entries.length === 0) {
    const { lease, ended } = ofNetwork(await reads.leaseByToken(network, key.token), network)
    if (lease === null && ended === null) throw new Refused(unknownLease(request.leaseId, key.token, head))
  }
  return {
    events: entries.map((one) => forReader(call, eventView(network, one))),
    nextPageToken: page.next(next),
    head,
  }
}

async function getAddressHistory(
  request: Decoded<pb.GetAddressHistoryRequest>,
  call: Call,
  { reads }: Backend,
) {
  const network = allowedNetwork(call, request.network)
  const { address, cidr } = request
  oneOf(['address', address], ['cidr', cidr])
  const block = address === '' ? cidrOrAddress(cidr, 'cidr') : cidrOrAddress(address, 'address')
  const range = readRange(request)
  const page = pageOf(request, readPosition)
  const read = await reads.addressHistory(network, block, range, logPage(request, page))
  const found = ofNetwork(read, network)
  checkHead('afterSeq', range.afterSeq, found.head)
  return historyView(call, network, found, page)
}

async function getLeaseHistory(request: Decoded<pb.GetLeaseHistoryRequest>, call: Call, { reads }: Backend) {
  const { network, token } = requiredLease(request.leaseId, call, '')
  const page = pageOf(request, readPosition)
  const found = ofNetwork(await reads.leaseHistory(network, token, logPage(request, page)), network)
  if (found === undefined) {
    const { head } = ofNetwork(await reads.network(network), network)
    throw new Refused(unknownLease(request.leaseId, token, head))
  }
  return historyView(call, network, found, page)
}

async function listLeasesAsOf(request: Decoded<pb.ListLeasesAsOfRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const moment = readMoment(request)
  const { pool } = request
  const page = pageOf(request, readListPosition)
  const at = page.after === null ? moment : { seq: page.after.seq, at: null }
  const filter = { pool: pool || null, after: page.after?.after ?? null, size: page.size }
  const found = notBeyond(ofNetwork(await reads.leasesAsOf(network, at, filter), network), at)
  if (found.poolUnknown) throw poolNotFound(network, pool)
  const { seq, at: time, head, next } = found
  const nextPageToken = page.next(next === null ? null : `${seq} ${next}`)
  return { leases: found.leases.map(pastLeaseView), nextPageToken, seq, time, head }
}

async function explainAddress(request: Decoded<pb.ExplainAddressRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const at = ipAddress(required(request.address, 'address'), 'address')
  const moment = readMoment(request)
  const found = notBeyond(ofNetwork(await reads.explanation(network, at, moment), network), moment)
  return { ...found, time: found.at, steps: found.steps.map((step) => ({ ...step, time: step.at })) }
}

async function verifyNetwork(request: Decoded<pb.VerifyNetworkRequest>, call: Call, { reads }: Backend) {
  const network = allowedNetwork(call, request.network)
  const verified = ofNetwork(await reads.verification(network), network)
  if (verified === 'busy') {
    throw refused('OVERLOADED', 'this process verifies another network; one is done at a time', {}, 5_000)
  }
  return { network, ...verified }
}

function historyView(
  call: Call,
  network: string,
  { entries, holders, next, head }: HistoryPage,
  page: Page<number>,
) {
  return {
    entries: entries.map((one) => ({
      event: forReader(call, eventView(network, one)),
      what: one.what ?? '',
    })),
    holders: holders.map((one) => holderView(network, one)),
    nextPageToken: page.next(next),
    head,
  }
}

/** The id of a request gets its answer again, which is not for auditors. */
function forReader<E extends { readonly requestId?: unknown }>({ caller }: Call, event: E): E {
  return caller.role === 'auditor' ? { ...event, requestId: null } : event
}

function notBeyond<T extends object>(found: T | Beyond, { seq }: Moment): T {
  if ('beyond' in found) checkHead('seq', seq!, found.beyond)
  return found as T
}

type RangeRequest = Pick<Decoded<pb.ListEventsRequest>, 'afterSeq' | 'beforeSeq' | 'from' | 'to'>

function readRange({ afterSeq, beforeSeq, from, to }: RangeRequest): Range {
  return { afterSeq, beforeSeq: beforeSeq ?? null, from: from ?? null, to: to ?? null }
}

function logPage({ descending }: { readonly descending: boolean }, { size, after }: Page<number>): PageOfLog {
  return { descending, size, position: after }
}

function readMoment({ seq, time }: Pick<Decoded<pb.ExplainAddressRequest>, 'seq' | 'time'>): Moment {
  if (seq !== undefined && time !== undefined) excluding('time', 'seq', 'time')
  return { seq: seq ?? null, at: time ?? null }
}

/** Of a page: a number of the log. */
function readPosition(position: string): number {
  const number = Number(/^[0-9]{1,16}$/.exec(position)?.[0])
  if (!Number.isSafeInteger(number)) throw notOurs()
  return number
}

/** The number that all pages are of, and the last address of the page before. */
function readListPosition(position: string): { readonly seq: number; readonly after: string } {
  const found = /^([0-9]{1,16}) ([0-9a-f:.]{2,45})$/.exec(position)
  if (found === null) throw notOurs()
  return { seq: readPosition(found[1]!), after: address(found[2]!, 'pageToken') }
}
