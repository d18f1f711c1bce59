/** How people see messages: the columns of a list, and a sheet's texts that differ from the API. */
import type { DescField, DescMessage, Message, MessageShape } from '@bufbuild/protobuf'
import { type Timestamp, timestampMs, timestampNow } from '@bufbuild/protobuf/wkt'
import * as audit from '../gen/ipledger/v1/audit_pb.ts'
import * as liveness from '../gen/ipledger/v1/liveness_pb.ts'
import * as network from '../gen/ipledger/v1/network_pb.ts'
import { PoolSchema, PoolTrendSchema } from '../gen/ipledger/v1/pool_pb.ts'
import * as types from '../gen/ipledger/v1/types_pb.ts'
import type { Verified } from '../ledger/verify.ts'
import {
  age,
  fieldAt,
  type Look,
  large,
  nameOf,
  rowOf,
  sheet,
  table,
  tableOf,
  textOf,
  time,
} from './print.ts'

/** Columns with these times are called AGE. */
const AGES: ReadonlySet<string> = new Set(['createdAt', 'reservedAt', 'registeredAt'])

type View<M> = {
  /** `OWNER NODE:owner.node`: titles and their fields; a title without a field has its function in `cells`. */
  readonly columns: string
  readonly cells?: Readonly<Record<string, (one: M) => string>>
  /** Text of an empty list. Default: `no leases`. */
  readonly none?: string
  /** Other texts for fields; undefined: left out. */
  readonly sheet?: (one: M) => Readonly<Record<string, string | undefined>>
}

const viewOf = <D extends DescMessage>(desc: D, view: View<MessageShape<D>>) =>
  [desc.typeName, view as View<never>] as const

const VIEWS: ReadonlyMap<string, View<never>> = new Map([
  viewOf(network.NetworkSchema, {
    columns:
      'NETWORK:name STATE:state HELD ERA:era HEAD:head AGE:createdAt LABELS:labels CLOSED:closed DESCRIPTION:description',
    cells: { HELD: ({ holds }) => holds.map(causeOf).join(', ') },
    sheet: ({ name, head, digest, holds, recovery }) => ({
      digest: undefined,
      recovery: undefined,
      held: holds.map((hold) => `${causeOf(hold)} since ${time(hold.since)}: ${hold.why}`).join('; '),
      anchor: digest === '' ? '' : `${head}:${digest}`,
      recovering: recovery && `since ${time(recovery.since)}: ${recovery.why}`,
      waitsFor: recovery && waitsFor(name, recovery),
    }),
  }),
  viewOf(network.HoldSchema, { columns: 'HELD:cause SINCE:since WHY:why' }),
  viewOf(PoolSchema, {
    columns:
      'POOL:name CIDR:cidr LEASE SIZE:usage.size FREE:usage.free COOLING:usage.cooling RESERVED:usage.reserved ' +
      'ACTIVE:usage.active QUARANTINED:usage.quarantined EXCLUDED:usage.excluded LIVENESS:liveness AGE:createdAt DEFAULT:isDefault DRAINING:draining',
    cells: { LEASE: ({ prefixLength }) => `/${prefixLength}` },
    sheet: ({ options, usage }) => ({
      routes: routesOf(options),
      usage:
        usage &&
        `${large(usage.size)} = ${large(usage.free)} free + ${usage.cooling} cooling + ${usage.reserved} reserved + ` +
          `${usage.active} active + ${usage.quarantined} quarantined + ${large(usage.excluded)} excluded`,
    }),
  }),
  viewOf(types.LeaseSchema, {
    columns:
      'LEASE:leaseId ADDRESS STATE OWNER INTERFACE:owner.interface POOL:pool GATEWAY:gateway NODE:owner.node ' +
      'AGE:reservedAt CONFIRM_BY:confirmBy COOLS_UNTIL:availableAt',
    cells: { ADDRESS: addressOf, STATE: stateOf, OWNER: holderOf },
    sheet: ({ options }) => ({ reused: undefined, routes: routesOf(options) }),
  }),
  viewOf(liveness.SourceSchema, {
    columns:
      'SOURCE:id KIND:kind NODE:sight.node SEES:sight.ownerKinds STATE:state SIZE:size AGE:registeredAt REPORTED:reportedAt STATUS',
    cells: { STATUS: statusOf },
    sheet: ({ completeAt, size }) => ({ size: completeAt && String(size) }),
  }),
  viewOf(liveness.SightingSchema, {
    columns:
      'ADDRESS:address SOURCE:source OWNER UID INTERFACE:owner.interface NODE:owner.node STATE:state ' +
      'SINCE:appearedAt UNTIL:vanishedAt',
    cells: { OWNER: holderOf, UID: ({ owner }) => (owner?.uid === owner?.name ? '' : owner!.uid) },
  }),
  viewOf(liveness.FindingSchema, {
    none: 'nothing to be done',
    columns: 'ADDRESS VERDICT:verdict LEASE:lease.leaseId STATE OWNER WHY',
    cells: {
      ADDRESS: ({ address, lease }) => (lease === undefined ? address : addressOf(lease)),
      STATE: ({ lease }) => stateOf(lease),
      OWNER: ({ lease }) => holderOf(lease),
      WHY: ({ because }) => because.map(({ code, text }) => text || code).join('; '),
    },
  }),
  viewOf(liveness.AttentionSchema, {
    none: 'nothing waits',
    columns:
      'SEVERITY:severity CODE:code COUNT SINCE:since SOURCE:source LEASE:leaseId ADDRESS:address WAITS_FOR:text',
    cells: { COUNT: ({ count }) => (count === 1n ? '' : String(count)) },
  }),
  viewOf(audit.EventSchema, {
    columns: 'SEQ:seq TIME:time TYPE:type ACTOR:actor CAUSE:cause ABOUT STATE OWNER WHY',
    cells: {
      ABOUT: ({ lease, pool }) => (lease ? addressOf(lease) : pool ? `${pool.name} ${pool.cidr}` : ''),
      STATE: ({ lease }) => stateOf(lease),
      OWNER: ({ lease, closed }) =>
        closed?.owner ? `${holderOf(closed)} ${closed.owner.incarnation}` : holderOf(lease),
      WHY: ({ evidence, lease }) => {
        const why = evidence?.why ?? evidence?.reason ?? lease?.quarantine?.why
        return typeof why === 'string' ? why : ''
      },
    },
  }),
  viewOf(PoolTrendSchema, {
    columns: 'POOL:pool CIDR:cidr MADE:made ENDED:ended GROWS_BY_HOUR:leasesPerHour EXHAUSTED_IN:exhaustedIn',
  }),
  viewOf(audit.MapAddressSchema, {
    none: 'no lease was ever made there',
    columns: 'ADDRESS STATE:state LEASE:leaseId KIND:ownerKind OWNER:ownerName NODE:node',
    cells: { ADDRESS: addressOf },
  }),
  viewOf(audit.MapBlockSchema, {
    none: 'every block is free',
    columns: 'BLOCK:cidr COOLING:cooling RESERVED:reserved ACTIVE:active QUARANTINED:quarantined',
  }),
  viewOf(audit.MatchSchema, {
    none: 'nothing has this name',
    columns: 'KIND:kind NAME:name ADDRESS:address',
  }),
  viewOf(audit.HolderSchema, {
    none: 'nobody held it',
    columns: 'ADDRESS LEASE:leaseId OWNER FROM:fromTime UNTIL:untilTime COOLS_UNTIL:availableAt',
    cells: { ADDRESS: addressOf, OWNER: holderOf },
  }),
])

export function listIn({ fields }: DescMessage): DescField | undefined {
  return fields.find((field) => field.fieldKind === 'list' && field.listKind === 'message')
}

/** An answer: the list in it as a table, or else the one thing in it as a sheet. */
export function answerText(desc: DescMessage, answer: Message, look: Look = {}): string {
  const list = listIn(desc)
  const one = desc.fields.find(({ fieldKind }) => fieldKind === 'message')
  if (list === undefined) return sheetText(one!.message!, valueAt(answer, one!))
  const things = valueAt<readonly Message[]>(answer, list)
  if (!look.isWide) return listText(list.message!, things, look, `no ${list.localName}`)
  const rows = things.map((thing) => rowOf(list.message!, thing))
  return tableOf('nothing', rows, look)
}

export function sheetText<D extends DescMessage>(desc: D, message: MessageShape<D> | undefined): string {
  if (message === undefined) return ''
  const own = (VIEWS.get(desc.typeName) as View<MessageShape<D>>).sheet?.(message) ?? {}
  return sheet({ ...rowOf(desc, message, own), ...own })
}

export function listText<D extends DescMessage>(
  desc: D,
  messages: readonly MessageShape<D>[],
  look: Look = {},
  nothing = 'none',
): string {
  const { columns, cells = {}, none = nothing } = VIEWS.get(desc.typeName) as View<MessageShape<D>>
  if (messages.length === 0) return none
  const readers = columns.split(' ').map((column) => {
    const [title = '', path] = column.split(':')
    return {
      title: title.replace('_', ' '),
      read: path === undefined ? cells[title]! : cellAt(desc, path, look.at),
    }
  })
  const titles = readers.map(({ title }) => title)
  const rows = messages.map((message) => readers.map(({ read }) => read(message)))
  return table(titles, rows, look)
}

export const leaseTable = (leases: readonly types.Lease[], look?: Look) =>
  listText(types.LeaseSchema, leases, look, 'no leases')
export const leaseSheet = (lease: types.Lease | undefined) => sheetText(types.LeaseSchema, lease)

/** A table prints a number that is 0; a sheet leaves it out. Of what was made, the age `at` then. */
function cellAt(desc: DescMessage, path: string, at = timestampNow()): (message: Message) => string {
  const field = fieldAt(desc, path)
  const names = path.split('.')
  return (message) => {
    const value = names.reduce<unknown>(
      (at, name) => (at as Record<string, unknown> | undefined)?.[name],
      message,
    )
    if (value === undefined) return ''
    if (typeof value === 'bigint') return String(value)
    if (AGES.has(field.localName)) return age(timestampMs(at) - timestampMs(value as Timestamp))
    return field.parent.name === 'PoolUsage' ? large(value as string) : textOf(field, value as never)
  }
}

function valueAt<T>(message: Message, { localName }: DescField): T {
  return (message as unknown as Readonly<Record<string, T>>)[localName]!
}

/** A block carries its length, a single address does not. */
export function addressOf({ address, prefixLength }: Pick<types.Lease, 'address' | 'prefixLength'>): string {
  const single = address.includes(':') ? 128 : 32
  return prefixLength === single ? address : `${address}/${prefixLength}`
}

/** `ACTIVE`, `QUARANTINED SUPERSEDED` */
export function stateOf(lease: types.Lease | undefined): string {
  if (lease === undefined) return ''
  const reason = lease.quarantine && ` ${nameOf(types.QuarantineReasonSchema, lease.quarantine.reason)}`
  return nameOf(types.LeaseStateSchema, lease.state) + (reason ?? '')
}

export function holderOf(held: Pick<types.Lease, 'owner'> | undefined): string {
  return held?.owner === undefined ? '' : `${held.owner.kind} ${held.owner.name}`
}

function routesOf(options: types.PoolOptions | undefined): string | undefined {
  return options?.routes.map((one) => `${one.destination} via ${one.gateway || 'link'}`).join(', ')
}

function waitsFor(name: string, recovery: network.Recovery): string {
  const { sources, unreported, unknown, notBefore, needsOperator } = recovery
  const calls = unknown.length === 0 ? '' : `; to register: ${unknown.join(', ')}`
  if (needsOperator) return `an operator: ipledger recover --end ${name}${calls}`
  const missing = unreported.length === 0 ? '' : `; still to report: ${unreported.join(', ')}`
  return `two reports of each of ${sources} sources, the second after ${time(notBefore)}${missing}${calls}`
}

function causeOf({ cause }: network.Hold): string {
  return nameOf(network.HoldCauseSchema, cause)
}

/** Whether its reports count, and why not. */
function statusOf({ status, failure, partialBecause }: liveness.Source): string {
  const because = [failure, ...partialBecause].filter((one) => one !== '').join(', ')
  return status === 0 ? '' : `${nameOf(liveness.SourceStatusSchema, status)}${because && `: ${because}`}`
}

/** Verified by the database, instead of a server. */
export type NetworkVerified = Verified & { readonly network: string }

export function verifiedText(networks: readonly (audit.VerifyNetworkResponse | NetworkVerified)[]): string {
  const rows = networks.map(
    ({ network, head, fromSeq: from, complete, verifiedSeq, findings, omitted, digest }) => ({
      network,
      head,
      from,
      upTo: `${verifiedSeq}${complete ? '' : ', no time for more'}`,
      findings: findings.length + Number(omitted) || 'none',
      anchor: `${verifiedSeq}:${digest}`,
    }),
  )
  const lines = networks.flatMap(({ network, findings, omitted, complete }) => [
    ...findings.map(({ what, message }) => `${network}: ${what}: ${message}`),
    ...(Number(omitted) === 0 ? [] : [`${network}: and ${omitted} more`]),
    ...(complete ? [] : [`${network}: not at its end; run "ipledger verify" beside the database`]),
  ])
  return [tableOf('', rows), ...(lines.length === 0 ? [] : ['', ...lines])].join('\n')
}
