import { formatAddress, formatCidr, isMalformed, parseCidr, readAddress } from '../../core/address.ts'
import { EVENT_TYPES } from '../../core/event.ts'
import { unknownLease } from '../../core/refusal.ts'
import type * as pb from '../../gen/ipledger/v1/audit_pb.ts'
import type { Beyond, HistoryPage, Moment, Range } from '../../ledger/read-log.ts'
import type { Reads } from '../../ledger/reads.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { Refused, refused } from '../codec/errors.ts'
import {
  address,
  cidrOrAddress,
  excluding,
  ipAddress,
  knownTexts,
  oneOf,
  required,
  text,
} from '../codec/fields.ts'
import { notOurs, pageOf } from '../codec/page-token.ts'
import { eventView, holderView, pastLeaseView } from '../codec/views.ts'
import { checkHead, type Declarations, ofNetwork, poolNotFound, type Scoped } from '../method.ts'
import { READERS } from '../rights.ts'

export const auditMethods: Declarations<typeof pb.AuditService> = {
  listEvents: {
    roles: READERS,
    async answer(request, call, { reads }) {
      const { network, token } = call
      const { address, ownerKind, ownerName, includeSources } = request
      if (includeSources && request.types.length > 0) excluding('includeSources', 'types', 'includeSources')
      const types = knownTexts(request.types, EVENT_TYPES, 'types')
      const filter = {
        ...readRange(request),
        address: address === '' ? null : ipAddress(address, 'address'),
        ownerKind: ownerKind || null,
        ownerName: ownerName || null,
        token,
        types: includeSources ? EVENT_TYPES : types,
      }
      const page = logPage(request)
      const { entries, next, head } = ofNetwork(await reads.events(network, filter, page), network)
      checkHead('afterSeq', filter.afterSeq, head)
      if (token !== null && entries.length === 0) {
        const { lease, ended } = ofNetwork(await reads.leaseByToken(network, token), network)
        if (lease === null && ended === null) throw new Refused(unknownLease(request.leaseId, token, head))
      }
      return { events: entries.map((one) => eventFor(call, one)), nextPageToken: page.next(next), head }
    },
  },
  getAddressHistory: {
    roles: READERS,
    async answer(request, call, { reads }) {
      const { address, cidr } = request
      oneOf(['address', address], ['cidr', cidr])
      const block = address === '' ? cidrOrAddress(cidr, 'cidr') : cidrOrAddress(address, 'address')
      const range = readRange(request)
      const page = logPage(request)
      const found = ofNetwork(await reads.addressHistory(call.network, block, range, page), call.network)
      checkHead('afterSeq', range.afterSeq, found.head)
      return historyView(call, found, page)
    },
  },
  getLeaseHistory: {
    roles: READERS,
    async answer(request, call, { reads }) {
      const { network } = call
      const token = required(call.token, 'leaseId')
      const page = logPage(request)
      const found = ofNetwork(await reads.leaseHistory(network, token, page), network)
      if (found !== undefined) return historyView(call, found, page)
      const { head } = ofNetwork(await reads.network(network), network)
      throw new Refused(unknownLease(request.leaseId, token, head))
    },
  },
  listLeasesAsOf: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
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
    },
  },
  explainAddress: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const at = ipAddress(required(request.address, 'address'), 'address')
      const moment = readMoment(request)
      const found = notBeyond(ofNetwork(await reads.explanation(network, at, moment), network), moment)
      return { ...found, time: found.at, steps: found.steps.map((step) => ({ ...step, time: step.at })) }
    },
  },
  getAddressMap: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const cidr = cidrOrAddress(required(request.cidr, 'cidr'), 'cidr')
      const moment = readMoment(request)
      const { at: time, ...map } = notBeyond(
        ofNetwork(await reads.addressMap(network, cidr, moment), network),
        moment,
      )
      return { ...map, time }
    },
  },
  find: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const words = text(required(request.text.trim(), 'text'), 'text')
      return { matches: await matchesOf(reads, network, words) }
    },
  },
  verifyNetwork: {
    roles: READERS,
    async answer(_request, { network }, { reads }) {
      const verified = ofNetwork(await reads.verification(network), network)
      if (verified !== 'busy') return { network, ...verified }
      throw refused('OVERLOADED', 'this process verifies another network; one is done at a time', {}, 5_000)
    },
  },
}

/** What a text is by its form, and what has such a name. */
async function matchesOf(reads: Reads, network: string, words: string) {
  const matched = (kind: string, name: string, address = '') => [{ kind, name, address }]
  const cidr = parseCidr(words)
  if (!isMalformed(cidr)) return matched('CIDR', formatCidr(cidr))
  const address = readAddress(words)
  if (address !== null) return matched('ADDRESS', formatAddress(address))
  const [, its = '', token] = /^(.*)\/([1-9][0-9]{0,15})$/.exec(words) ?? []
  if (token !== undefined && its === network) {
    const found = await reads.leaseByToken(network, Number(token))
    const record = found?.lease ?? found?.ended
    if (record) return matched('LEASE', words, record.address)
  }
  const named = ofNetwork(await reads.named(network, words), network)
  return /^[^=]+=/.test(words) ? [...matched('LABEL', words), ...named] : named
}

type LogPage = ReturnType<typeof logPage>

function logPage(request: Pick<Decoded<pb.ListEventsRequest>, 'descending' | 'pageSize' | 'pageToken'>) {
  const { after: position, ...page } = pageOf(request, readPosition)
  return { ...page, position, descending: request.descending }
}

function historyView(call: Scoped, { entries, holders, next, head }: HistoryPage, page: LogPage) {
  return {
    entries: entries.map((one) => ({ event: eventFor(call, one), what: one.what ?? '' })),
    holders: holders.map((one) => holderView(call.network, one)),
    nextPageToken: page.next(next),
    head,
  }
}

/** The id of a request gets its answer again, which is not for auditors. */
function eventFor({ caller, network }: Scoped, entry: Parameters<typeof eventView>[1]) {
  const event = eventView(network, entry)
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

function readMoment({ seq, time }: Pick<Decoded<pb.ExplainAddressRequest>, 'seq' | 'time'>): Moment {
  if (seq !== undefined && time !== undefined) excluding('time', 'seq', 'time')
  return { seq: seq ?? null, at: time ?? null }
}

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
