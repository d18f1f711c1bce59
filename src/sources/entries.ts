/**
 * Reads the text of a source into entries that can be compared: one spelling for each address, name and uid filled in for each other,
 * empty fields left out, each owner at an address once.
 *
 * - A spelling that can only mean one address is that address: with a zone id, with the prefix length of its interface (as
 *   CNI results have it), IPv4-mapped.
 * - An entry that cannot be read makes the list partial, so nothing is missed because of it. If its address can be read, that is kept
 *   without owner: it is in use.
 * - Link-local, loopback and such, and entries of another network, are valid and ignored: every host has some, and they say
 *   nothing about this network.
 */
import { hash } from 'node:crypto'
import { formatAddress, isMalformed, parseAddress, parseLenientAddress } from '../core/address.ts'
import { type Entry, TERMINAL } from '../core/event.ts'
import { isSpecialPurpose } from '../core/special-purpose-ranges.ts'
import { inSteps } from '../in-slices.ts'
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
  const entries: Entries = { first: new Map(), more: new Map() }
  const unreadable: { readonly index: number; readonly text: string; readonly why: string }[] = []
  let unreadableCount = 0
  yield* inSteps(given, (one, index) => {
    const { entry, why } = readEntry(one, scope)
    if (entry !== null) add(entries, entry)
    if (why === null) return
    unreadableCount += 1
    if (unreadable.length < MOST_SHOWN) unreadable.push({ index, text: show(one), why })
  })
  return { entries: [...entries.first.values(), ...entries.more.values()], unreadable, unreadableCount }
}

/**
 * 64 hexadecimal digits that do not depend on the order of the entries: the sum of their SHA-256, modulo 2^256. A sender could make
 * two lists with one sum, and gains nothing: it could as well send one list twice.
 */
export function* digestingList(entries: Iterable<Entry>): Generator<void, string> {
  // By parts of 16 bits, whose sums are exact: adding numbers of 256 bits is as much work as the hash.
  const sums = new Float64Array(16)
  yield* inSteps(entries, (entry) => {
    const bytes = hash('sha256', textOf(entry), 'latin1')
    for (let i = 0; i < sums.length; i += 1) {
      sums[i]! += 256 * bytes.charCodeAt(2 * i) + bytes.charCodeAt(2 * i + 1)
    }
  })
  const sum = sums.reduce((sum, part) => sum * 65_536n + BigInt(part), 0n)
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
  const address = formatAddress(parsed)
  const why = whyUnreadable(given, ownNode)
  if (why !== null) return { entry: entryOf(address, ownNode, ''), why }
  const node = given.node || ownNode
  const state = given.state && given.state !== 'live' ? given.state : ''
  return { entry: entryOf(address, node, state, given), why: null }
}

/** An interface alone is no owner. */
function entryOf(address: string, node: string, state: string, given?: GivenEntry): Entry {
  const entry: { -readonly [K in keyof Entry]: Entry[K] } = { address }
  if (given?.kind) {
    const { kind, name = '', uid = '', incarnation, interface: on } = given
    entry.kind = kind
    entry.name = name || uid
    entry.uid = uid || name
    if (incarnation) entry.incarnation = incarnation
    if (on) entry.interface = on
  }
  if (node !== '') entry.node = node
  if (state !== '') entry.state = state
  return entry
}

/** By address, and by the rest of the owner where an address has several: most have one, whose long key costs time. */
type Entries = { readonly first: Map<string, Entry>; readonly more: Map<string, Entry> }

/** Of two entries for one owner at one address the one that is alive; if both are, the same one in any order. */
function add({ first, more }: Entries, entry: Entry): void {
  const { address, kind = '', uid = '', incarnation = '', interface: on = '' } = entry
  const other = first.get(address)
  if (other === undefined || isSameOwner(other, entry)) {
    if (other === undefined || isPreferred(entry, other)) first.set(address, entry)
    return
  }
  const key = [address, kind, uid, incarnation, on].join(SEPARATOR)
  const before = more.get(key)
  if (before === undefined || isPreferred(entry, before)) more.set(key, entry)
}

function isSameOwner(a: Entry, b: Entry): boolean {
  return (
    a.uid === b.uid && a.kind === b.kind && a.incarnation === b.incarnation && a.interface === b.interface
  )
}

function isPreferred(one: Entry, other: Entry): boolean {
  const ended = one.state === TERMINAL
  return ended === (other.state === TERMINAL) ? textOf(one) < textOf(other) : !ended
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

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

export function badText(field: string, value: string, mostBytes: number): string | null {
  if (value === '') return null
  // Most are short: three bytes a character at most.
  if (3 * value.length > mostBytes && Buffer.byteLength(value) > mostBytes) {
    return `${field} is longer than ${mostBytes} bytes`
  }
  if (CONTROL.test(value)) return `${field} contains control characters`
  return value.isWellFormed() ? null : `${field} is not well-formed Unicode`
}

/** Its fields that are not empty, without those of a protobuf message. */
function show(given: GivenEntry): string {
  const text = JSON.stringify(given, (key, value) =>
    (value === '' && key !== 'address') || key.startsWith('$') ? undefined : value,
  )
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}…`.toWellFormed() : text
}
