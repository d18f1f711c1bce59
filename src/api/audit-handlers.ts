import { EVENT_TYPES } from '../core/event.ts'
import type * as pb from '../gen/ipledger/v1/audit_pb.ts'
import type { Beyond, EventFilter, HistoryPage, Moment, PageOfLog, Range } from '../ledger/read-log.ts'
import { shownEvent, shownHolder, shownPastLease } from './answers.ts'
import type { Asked } from './asked.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  checkHead,
  type Handlers,
  neverWas,
  ofNetwork,
  poolNotFound,
  requiredLease,
} from './call.ts'
import { refused } from './errors.ts'
import { address, cidrOrAddress, excluding, ipAddress, knownTexts, oneOf, required } from './fields.ts'
import { notOurs, type Page, pageOf } from './page-token.ts'

export function auditHandlers({ reads }: Backend): Handlers<typeof pb.AuditService> {
  return {
    listEvents: async (message, call) => {
      const { address, ownerKind, ownerName, includeSources } = message
      const key = message.leaseId === '' ? null : requiredLease(message.leaseId, call, message.network)
      const network = key?.network ?? allowedNetwork(call, message.network)
      if (includeSources && message.types.length > 0) excluding('includeSources', 'types', 'includeSources')
      const types = knownTexts(message.types, EVENT_TYPES, 'types')
      const filter: EventFilter = {
        ...readRange(message),
        address: address === '' ? null : ipAddress(address, 'address'),
        ownerKind: ownerKind || null,
        ownerName: ownerName || null,
        token: key?.token ?? null,
        types: includeSources ? EVENT_TYPES : types,
      }
      const page = pageOf(message, readPosition)
      const { entries, next, head } = ofNetwork(
        await reads.events(network, filter, logPage(message, page)),
        network,
      )
      checkHead('afterSeq', filter.afterSeq, head)
      checkHead('leaseId', filter.token ?? 0, head)
      if (key !== null && entries.length === 0) {
        const { lease, ended } = ofNetwork(await reads.leaseByToken(network, key.token), network)
        if (lease === null && ended === null) throw neverWas(message.leaseId)
      }
      return {
        events: entries.map((one) => forReader(call, shownEvent(network, one))),
        nextPageToken: page.next(next),
        head,
      }
    },

    getAddressHistory: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const { address, cidr } = message
      oneOf(['address', address], ['cidr', cidr])
      const place = address === '' ? cidrOrAddress(cidr, 'cidr') : cidrOrAddress(address, 'address')
      const range = readRange(message)
      const page = pageOf(message, readPosition)
      const read = await reads.addressHistory(network, place, range, logPage(message, page))
      const found = ofNetwork(read, network)
      checkHead('afterSeq', range.afterSeq, found.head)
      return shownHistory(call, network, found, page)
    },

    getLeaseHistory: async (message, call) => {
      const { network, token } = requiredLease(message.leaseId, call, '')
      const page = pageOf(message, readPosition)
      const found = ofNetwork(await reads.leaseHistory(network, token, logPage(message, page)), network)
      if (found === undefined) {
        const { leaseId } = message
        checkHead('leaseId', token, ofNetwork(await reads.network(network), network).head)
        throw neverWas(leaseId)
      }
      return shownHistory(call, network, found, page)
    },

    listLeasesAsOf: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const moment = readMoment(message)
      const { pool } = message
      const page = pageOf(message, readPlaceInList)
      const at = page.after === null ? moment : { seq: page.after.seq, at: null }
      const asked = { pool: pool || null, after: page.after?.after ?? null, size: page.size }
      const found = notBeyond(ofNetwork(await reads.leasesAsOf(network, at, asked), network), at)
      if (found.poolUnknown) throw poolNotFound(network, pool)
      const { seq, at: time, head, next } = found
      const nextPageToken = page.next(next === null ? null : `${seq} ${next}`)
      return { leases: found.leases.map(shownPastLease), nextPageToken, seq, time, head }
    },

    explainAddress: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const at = ipAddress(required(message.address, 'address'), 'address')
      const moment = readMoment(message)
      const found = notBeyond(ofNetwork(await reads.explanation(network, at, moment), network), moment)
      return { ...found, time: found.at, steps: found.steps.map((step) => ({ ...step, time: step.at })) }
    },

    verifyNetwork: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const verified = ofNetwork(await reads.verification(network), network)
      if (verified === 'busy') {
        throw refused('OVERLOADED', 'this process verifies another network; one is done at a time', {}, 5_000)
      }
      return { network, ...verified }
    },
  }
}

function shownHistory(
  call: Call,
  network: string,
  { entries, holders, next, head }: HistoryPage,
  page: Page<number>,
) {
  return {
    entries: entries.map((one) => ({
      event: forReader(call, shownEvent(network, one)),
      what: one.what ?? '',
    })),
    holders: holders.map((one) => shownHolder(network, one)),
    nextPageToken: page.next(next),
    head,
  }
}

/** Whoever knows the id of a request is answered it again: not an auditor. */
function forReader<E extends { readonly requestId?: unknown }>({ caller }: Call, event: E): E {
  return caller.role === 'auditor' ? { ...event, requestId: null } : event
}

function notBeyond<T extends object>(found: T | Beyond, { seq }: Moment): T {
  if ('beyond' in found) checkHead('seq', seq!, found.beyond)
  return found as T
}

type RangeAsked = Pick<Asked<pb.ListEventsRequest>, 'afterSeq' | 'beforeSeq' | 'from' | 'to'>

function readRange({ afterSeq, beforeSeq, from, to }: RangeAsked): Range {
  return { afterSeq, beforeSeq: beforeSeq ?? null, from: from ?? null, to: to ?? null }
}

function logPage({ descending }: { readonly descending: boolean }, { size, after }: Page<number>): PageOfLog {
  return { descending, size, position: after }
}

function readMoment({ seq, time }: Pick<Asked<pb.ExplainAddressRequest>, 'seq' | 'time'>): Moment {
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
function readPlaceInList(position: string): { readonly seq: number; readonly after: string } {
  const found = /^([0-9]{1,16}) ([0-9a-f:.]{2,45})$/.exec(position)
  if (found === null) throw notOurs()
  return { seq: readPosition(found[1]!), after: address(found[2]!, 'pageToken') }
}
