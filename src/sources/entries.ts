/**
 * Reads the text of a source into entries that can be compared: one spelling for each address, name and uid filled in for each other,
 * empty fields left out, each owner at an address once.
 *
 * - A spelling that can only mean one address is that address: with a zone id, with the prefix length of its interface (as
 *   CNI results have it), IPv4-mapped.
 * - An entry that cannot be read makes the list partial, so nothing is missed because of it. Its address, if that can be read, is
 *   kept without owner: it is in use.
 * - Link-local, loopback and such, and entries of another network, are valid and ignored: every host has some.
 */
import { hash } from 'node:crypto'
import { formatAddress, isMalformed, parseAddress, parseLenientAddress } from '../core/address.ts'
import { type Entry, TERMINAL } from '../core/event.ts'
import { isSpecialPurpose } from '../core/special-purpose-ranges.ts'
import { STEP } from '../in-slices.ts'
import type { GivenEntry } from './source.ts'

/** What a list is about. */
export type Scope = {
  readonly network: string
  /** Of a source of a node; empty: the whole network. */
  readonly node: string
}

const MOST_SHOWN = 20
const LONGEST_SHOWN = 200
export const NAME_BYTES = 253
const SHORT_BYTES = 63
const KIND = /^[a-z][a-z0-9-]{0,62}$/
/** No field has it. */
const SEPARATOR = '\u001f'

/** `unreadable`: the first `MOST_SHOWN`; `unreadableCount` has all. Any makes the list partial. */
export function* readingEntries(given: Iterable<GivenEntry>, scope: Scope) {
  const entries: Entries = new Map()
  const unreadable: { readonly index: number; readonly text: string; readonly why: string }[] = []
  let unreadableCount = 0
  let index = 0
  for (const one of given) {
    const { entry, why } = readEntry(one, scope)
    if (entry !== null) add(entries, entry)
    if (why !== null) {
      unreadableCount += 1
      if (unreadable.length < MOST_SHOWN) unreadable.push({ index, text: show(one), why })
    }
    index += 1
    if (index % STEP === 0) yield
  }
  return { entries: [...entries.values()], unreadable, unreadableCount }
}

/**
 * 64 hexadecimal digits that do not depend on the order of the entries: the sum of their SHA-256, modulo 2^256. A sender could make
 * two lists with one sum, and gains nothing: it could as well send one list twice.
 */
export function* digestingList(entries: Iterable<Entry>): Generator<void, string> {
  // By parts of 16 bits, whose sums are exact: adding numbers of 256 bits is as much work as the hash.
  const sums = new Float64Array(16)
  let count = 0
  for (const entry of entries) {
    const bytes = hash('sha256', textOf(entry), 'latin1')
    for (let i = 0; i < sums.length; i += 1)
      sums[i]! += 256 * bytes.charCodeAt(2 * i) + bytes.charCodeAt(2 * i + 1)
    count += 1
    if (count % STEP === 0) yield
  }
  let sum = 0n
  for (const part of sums) sum = sum * 65_536n + BigInt(part)
  return BigInt.asUintN(256, sum).toString(16).padStart(64, '0')
}

type Read = { readonly entry: Entry | null; readonly why: string | null }
const IGNORED: Read = { entry: null, why: null }

function readEntry(given: GivenEntry, { network, node: ownNode }: Scope): Read {
  if (given.network && given.network !== network) return IGNORED
  const zone = given.address.indexOf('%')
  const text = zone < 0 ? given.address : given.address.slice(0, zone)
  const parsed = parseLenientAddress(text)
  if (parsed === null) {
    const refused = parseAddress(text)
    return { entry: null, why: isMalformed(refused) ? refused.malformed : 'is not an address' }
  }
  if (isSpecialPurpose(parsed)) return IGNORED
  const entry: { -readonly [K in keyof Entry]: Entry[K] } = { address: formatAddress(parsed) }
  const why = whyUnreadable(given, ownNode)
  // An interface alone is no owner.
  if (why === null && given.kind) {
    const { kind, name = '', uid = '', incarnation, interface: on } = given
    entry.kind = kind
    entry.name = name || uid
    entry.uid = uid || name
    if (incarnation) entry.incarnation = incarnation
    if (on) entry.interface = on
  }
  const node = (why === null && given.node) || ownNode
  if (node !== '') entry.node = node
  if (why === null && given.state && given.state !== 'live') entry.state = given.state
  return { entry, why }
}

/** By address; a second owner of an address by all its identity: that long key costs time, and few need it. */
type Entries = Map<string, Entry>

/** Of two entries for one owner at one address the one that is alive; if both are, the same one in any order. */
function add(entries: Entries, entry: Entry): void {
  const { address, kind, uid, incarnation, interface: on } = entry
  let key = address
  let other = entries.get(key)
  const isSameOwner = other?.kind === kind && other?.uid === uid && other?.incarnation === incarnation
  if (other !== undefined && !(isSameOwner && other.interface === on)) {
    key = [address, kind, uid, incarnation, on].join(SEPARATOR)
    other = entries.get(key)
  }
  const ended = entry.state === TERMINAL
  const isAlike = ended === (other?.state === TERMINAL)
  if (other === undefined || (isAlike ? textOf(entry) < textOf(other) : !ended)) entries.set(key, entry)
}

function textOf(entry: Entry): string {
  const { address, kind = '', name = '', uid = '', incarnation = '', interface: on = '' } = entry
  const { node = '', state = '' } = entry
  return [address, kind, name, uid, incarnation, on, node, state].join(SEPARATOR)
}

function whyUnreadable(given: GivenEntry, ownNode: string): string | null {
  const { kind = '', name = '', uid = '', incarnation = '', interface: on = '' } = given
  const { node = '', state = '' } = given
  if (kind === '') {
    if (name + uid + incarnation !== '') return 'names an owner without its kind'
  } else {
    if (!KIND.test(kind)) return 'kind must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter'
    if (name === '' && uid === '') return 'names a kind and neither name nor uid'
  }
  if (ownNode !== '' && node !== '' && node !== ownNode)
    return `is on another node than its source, ${ownNode}`
  return (
    badText('name', name, NAME_BYTES) ??
    badText('uid', uid, NAME_BYTES) ??
    badText('incarnation', incarnation, NAME_BYTES) ??
    badText('interface', on, SHORT_BYTES) ??
    badText('node', node, NAME_BYTES) ??
    badText('state', state, SHORT_BYTES)
  )
}

export function badText(field: string, value: string, mostBytes: number): string | null {
  if (value === '') return null
  // Most are short: three bytes a character at most.
  if (3 * value.length > mostBytes && Buffer.byteLength(value) > mostBytes) {
    return `${field} is longer than ${mostBytes} bytes`
  }
  if (/\p{Cc}/u.test(value)) return `${field} contains control characters`
  return value.isWellFormed() ? null : `${field} is not well-formed Unicode`
}

/** Its fields that are not empty, without those of a protobuf message. */
function show(given: GivenEntry): string {
  const text = JSON.stringify(given, (key, value) =>
    (value === '' && key !== 'address') || key.startsWith('$') ? undefined : value,
  )
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}…`.toWellFormed() : text
}
