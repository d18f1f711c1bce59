/**
 * From a message to what handlers work with, by the message's descriptor, as `shown.ts` does for answers: every field checked
 * by its type and name, texts canonical. Times are milliseconds since 1970, durations milliseconds under a name that ends in
 * `Ms`, numbers of the log are numbers, enums are names. What was not said is undefined, of plain texts the empty one.
 *
 * What is wrong throws INVALID_FIELD with the field's path in JSON spelling. What is required, and what depends on the state
 * of a network, is not looked at here.
 */
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type Message,
  type MessageShape,
  ScalarType,
} from '@bufbuild/protobuf'
import { type Duration, FeatureSet_FieldPresence as Presence, type Timestamp } from '@bufbuild/protobuf/wkt'
import type { ConfirmRequest, ReleaseRequest, ReserveRequest } from '../../gen/ipledger/v1/lease_pb.ts'
import type { SnapshotEntry } from '../../gen/ipledger/v1/liveness_pb.ts'
import { MOST_ENTRIES } from '../../sources/source.ts'
import { type OurName, ourName } from './encode-response.ts'
import { invalidField } from './errors.ts'
import {
  address,
  addressInUse,
  checkCount,
  cidr,
  interfaceName,
  LIMITS,
  labels,
  ownerKind,
  poolName,
  text,
} from './fields.ts'

const asItIs = (value: unknown) => value

/** Read one by one: what is wrong with an item of a batch refuses that item, with an entry of a report nothing. */
type Later = ReserveRequest | ConfirmRequest | ReleaseRequest | SnapshotEntry
const LATER: ByName<Read> = { requests: asItIs, 'ReportSnapshotRequest.entries': asItIs }

export type Asked<T> = T extends bigint | Timestamp | Duration
  ? number
  : T extends number
    ? AskedNumber<T>
    : T extends readonly (infer I)[]
      ? readonly (I extends Later ? I : Asked<I>)[]
      : T extends Message
        ? { readonly [K in keyof T as OurName<K, T[K]>]: Asked<Exclude<T[K], undefined>> }
        : T
type AskedNumber<T extends number> = number extends T ? number : string | undefined

/** By message and field, or by the field alone. */
type ByName<T> = Readonly<Record<string, T>>
function named<T>(table: ByName<T>, message: string, { localName }: DescField): T | undefined {
  return table[`${message}.${localName}`] ?? table[localName]
}

type Read = (value: never, path: string) => unknown
/** Answers a function that reads a message. @throws Refused INVALID_FIELD */
export function readerOf<D extends DescMessage>(
  desc: D,
): (message: MessageShape<D>, path?: string) => Asked<MessageShape<D>> {
  const places = desc.fields.map((field) => {
    const { localName: from, jsonName: json } = field
    return { from, to: ourName(field), json, read: readOf(desc.name, field) }
  })
  return (message, path = '') => {
    const asked: Record<string, unknown> = {}
    for (const { from, to, json, read } of places) {
      const value = (message as unknown as Readonly<Record<string, unknown>>)[from]
      if (value !== undefined) asked[to] = read(value as never, path === '' ? json : `${path}.${json}`)
    }
    return asked as Asked<MessageShape<D>>
  }
}

function readOf(message: string, field: DescField): Read {
  const isSaid = field.presence !== Presence.IMPLICIT
  if (field.fieldKind === 'map') return labels
  if (field.fieldKind === 'list') return listOf(message, field)
  const read = singleOf(message, field, isSaid)
  if (isSaid || field.scalar !== ScalarType.STRING) return read
  return (value: never, path) => (value === '' ? value : read(value, path))
}

/** A value of a field, or of its list. */
function singleOf(message: string, field: DescField, isSaid: boolean): Read {
  if (field.enum !== undefined) return enumOf(field.enum, isSaid)
  if (field.message === undefined) return scalarOf(message, field)
  switch (field.message.typeName) {
    case 'google.protobuf.Duration':
      return durationOf(named(BOUNDS, message, field))
    case 'google.protobuf.Timestamp':
      return instant
    case 'google.protobuf.Struct':
      return asItIs
    default:
      return readerOf(field.message) as Read
  }
}

// Texts.

const nameText = (value: string, path: string) => text(value, path, LIMITS.nameBytes)
const why = (value: string, path: string) => text(value, path, LIMITS.whyBytes)

/** Any other text is a name. */
const TEXTS: ByName<Read> = {
  address,
  'UpdatePoolRequest.gateway': (value: string, path) => (value === '' ? value : address(value, path)),
  'UpdatePoolRequest.cidr': cidr,
  'UpdatePoolRequest.subnet': cidr,
  liveAddresses: addressInUse,
  'Owner.kind': ownerKind,
  ownerKinds: ownerKind,
  'Owner.interface': interfaceName,
  pool: poolName,
  pools: poolName,
  newName: poolName,
  'CreatePoolRequest.name': poolName,
  'UpdatePoolRequest.name': poolName,
  'DeletePoolRequest.name': poolName,
  'GetPoolRequest.name': poolName,
  requestId: (value: string, path) => text(value, path, LIMITS.requestId),
  why,
  description: why,
  // Checked where they are read: a token's position; lines of a runtime's error.
  pageToken: asItIs,
  'LookUpVerdict.detail': asItIs,
}

function scalarOf(message: string, field: DescField): Read {
  const { localName, scalar } = field
  if (scalar === ScalarType.UINT64) return ledgerNumber
  if (localName === 'pageSize') return pageSize
  if (scalar !== ScalarType.STRING) return asItIs
  return named(TEXTS, message, field) ?? nameText
}

// Lists.

const MOST_ON_PAGE = 1_000
const MOST: ByName<number> = {
  claims: 8,
  'Claim.pools': 8,
  pools: 64,
  liveAddresses: 4_096,
  routes: 64,
  dns: 16,
  requests: 1_000,
  'ReportSnapshotRequest.entries': MOST_ENTRIES,
  verdicts: 1_000,
  ownerKinds: 64,
  families: 2,
}

function listOf(message: string, field: DescField): Read {
  const most = named(MOST, message, field) ?? field.enum?.values.length
  const read = named(LATER, message, field) ?? singleOf(message, field, true)
  return (items: readonly never[], path) => {
    if (most !== undefined) checkCount(items.length, most, path)
    return read === asItIs ? items : items.map((item, index) => read(item, `${path}[${index}]`))
  }
}

// Numbers, times, enums.

type Bounds = readonly [leastMs: number, mostMs: number]
const ANY: Bounds = [0, 30 * 24 * 3_600_000]
const BOUNDS: ByName<Bounds> = {
  'ReserveRequest.confirmWithin': [1_000, ANY[1]],
  interval: [1_000, 3_600_000],
}

/** Finer than a millisecond is rounded. */
function durationOf([leastMs, mostMs] = ANY): Read {
  return ({ seconds, nanos }: Duration, path) => {
    const ms = Number(seconds) * 1000 + Math.round(nanos / 1_000_000)
    const mixed = (seconds > 0n && nanos < 0) || (seconds < 0n && nanos > 0)
    if (mixed || Math.abs(nanos) > 999_999_999) {
      throw invalidField(path, 'nanos must be below one second and of the sign of seconds')
    }
    if (!(ms >= leastMs && ms <= mostMs)) {
      throw invalidField(
        path,
        `must be between ${leastMs / 1000}s and ${mostMs / 1000}s; it is ${ms / 1000}s`,
      )
    }
    return ms
  }
}

/** The years 1 to 9999, as protobuf has it. */
const FIRST_SECOND = -62_135_596_800n
const LAST_SECOND = 253_402_300_799n

/** What is finer than a millisecond is cut off, and what was before 1970 was before every log. */
function instant({ seconds, nanos }: Timestamp, path: string): number {
  const sound = seconds >= FIRST_SECOND && seconds <= LAST_SECOND && nanos >= 0 && nanos <= 999_999_999
  if (!sound)
    throw invalidField(path, 'must be a time of the years 1 to 9999, with nanos from 0 to 999999999')
  return Math.max(0, Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000))
}

/** Version, token, position: all of them are below 2^53. */
function ledgerNumber(value: bigint, path: string): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER))
    throw invalidField(path, 'must be below 2^53, which no log reaches')
  return Number(value)
}

/** AIP-158: one above the limit is the limit. */
const pageSize = (value: number) => Math.min(value, MOST_ON_PAGE)

/** Protobuf hands over numbers that the enum does not know. `…_UNSPECIFIED` says something only where nothing need be said. */
function enumOf({ values, value: byNumber }: DescEnum, isSaid: boolean): Read {
  const names = values.filter(({ number }) => number !== 0).map(({ name }) => name)
  return (value: number, path) => {
    if (value === 0 && !isSaid) return undefined
    const found = value === 0 ? undefined : byNumber[value]
    if (found !== undefined) return found.name
    throw invalidField(path, `must be one of ${names.join(', ')}`)
  }
}
