/**
 * The edge where a source's text becomes what the house compares: one spelling for each address, owners as in a lease,
 * each entry once.
 *
 * - What cannot be read makes the snapshot partial, so that nothing is missed on its account, and is handed back to be
 *   logged (M-20). If its address can be read, or can only mean one, that is kept all the same, as somebody's: it is in use.
 * - Link-local and loopback addresses, and entries of another network, are valid and ignored: every workload has some,
 *   and they say nothing about this network (IPv6 of every interface would make every snapshot partial).
 * - A zone id belongs to the host that wrote it. A link-local address with one is ignored like any; another address is
 *   read without it, since what is in use stays in use.
 *
 * Digests do not depend on the order of entries, and those of parts add up to that of the whole.
 *
 * Of a list of any length the process holds the keys; the entries themselves it may have elsewhere (`Listed`).
 */
import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { addressMeant, formatAddress, isMalformed, parseAddress } from '../core/address.ts'
import type { SightedEntry } from '../core/command.ts'
import { isNowhere } from '../core/nowhere.ts'
import type { Owner } from '../core/owner.ts'
import type { GivenEntry } from './source.ts'

/** What a source lists that says nothing of its state. */
const LIVE = 'live'

/** An entry in canonical form; `key` is a digest of all that it says. */
export type Entry = SightedEntry & { readonly key: string }

export type Unreadable = { readonly text: string; readonly why: string }

export type EntrySet = {
  /** By key. */
  readonly entries: ReadonlyMap<string, Entry>
  /** At most `MOST_SHOWN`; `unreadableCount` has all. */
  readonly unreadable: readonly Unreadable[]
  readonly unreadableCount: number
  readonly ignored: number
}

/** What a snapshot lists, however long it is. */
export type Listed = Pick<EntrySet, 'unreadable' | 'unreadableCount' | 'ignored'> & {
  readonly keys: ReadonlySet<string>
  /** Those of these keys, some at a time. */
  readonly pages: (keys: ReadonlySet<string>) => AsyncIterable<readonly Entry[]>
}

export function listedOf({ entries, ...rest }: EntrySet): Listed {
  async function* pages(keys: ReadonlySet<string>) {
    yield [...keys].flatMap((key) => entries.get(key) ?? [])
  }
  return { ...rest, keys: new Set(entries.keys()), pages }
}

/** Whose report the entries are in. */
export type Scope = {
  readonly network: string
  /** Of a source of a node; empty: the whole network. */
  readonly node: string
  readonly epoch: string
}

/** Unreadable entries that are told of one snapshot; the rest is counted. */
const MOST_SHOWN = 20
const LONGEST_SHOWN = 200

const LIMITS = { nameBytes: 253, interfaceBytes: 63, stateBytes: 63 } as const
const KIND = /^[a-z][a-z0-9-]{0,62}$/

type Reading = {
  readonly entries: Map<string, Entry>
  readonly unreadable: Unreadable[]
  unreadableCount: number
  ignored: number
}

export function readEntries(given: Iterable<GivenEntry>, scope: Scope): EntrySet {
  const reading = newReading()
  for (const one of given) readInto(reading, one, scope)
  return reading
}

/** Entries read in one go: 8 ms of the process. */
const TURN = 2_000

/** The same for a list of any length, by turns with what else the process does: a batch may be holding its network's lock. */
export async function readManyEntries(given: Iterable<GivenEntry>, scope: Scope): Promise<EntrySet> {
  const reading = newReading()
  let read = 0
  for (const one of given) {
    readInto(reading, one, scope)
    read += 1
    if (read % TURN === 0) await setImmediate()
  }
  return reading
}

function newReading(): Reading {
  return { entries: new Map(), unreadable: [], unreadableCount: 0, ignored: 0 }
}

function readInto(reading: Reading, given: GivenEntry, scope: Scope): void {
  const read = readEntry(given, scope)
  if (read === 'ignored') {
    reading.ignored += 1
    return
  }
  if (read.why !== null) {
    reading.unreadableCount += 1
    if (reading.unreadable.length < MOST_SHOWN) reading.unreadable.push({ text: show(given), why: read.why })
  }
  if (read.entry !== null) reading.entries.set(read.entry.key, read.entry)
}

/** As one waits for the rest of its snapshot: without the names of fields it is half as long. */
export type Packed = readonly [
  key: string,
  address: string,
  node: string,
  boot: string,
  state: string,
  owner?: readonly [
    kind: string,
    name: string,
    uid: string,
    uidNamed: boolean,
    incarnation: string,
    interface_: string,
  ],
]

export function pack({ key, address, owner, node, boot, state }: Entry): Packed {
  if (owner === null) return [key, address, node, boot, state]
  const { kind, name, uid, uidNamed, incarnation } = owner
  return [key, address, node, boot, state, [kind, name, uid, uidNamed, incarnation, owner.interface]]
}

export function unpack([key, address, node, boot, state, given]: Packed): Entry {
  if (given === undefined) return { key, address, owner: null, node, boot, state }
  const [kind, name, uid, uidNamed, incarnation, on] = given
  return {
    key,
    address,
    owner: { kind, name, uid, uidNamed, incarnation, interface: on },
    node,
    boot,
    state,
  }
}

const KEY_BYTES = 18
const KEY_CHARACTERS = 24

/** Of keys that were written one after the other. */
export function* splitKeys(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += KEY_CHARACTERS) yield text.slice(at, at + KEY_CHARACTERS)
}

/** Sums of the keys' parts, each far below 2^53: of 100,000 entries in 30 ms. */
export function digestOf(keys: ReadonlySet<string>): string {
  const sums = new Float64Array(KEY_BYTES / 2)
  for (const key of keys) {
    const bytes = Buffer.from(key, 'base64url')
    for (let i = 0; i < sums.length; i += 1) sums[i]! += bytes.readUInt16BE(2 * i)
  }
  return `${keys.size}.${Array.from(sums, (sum) => sum.toString(36)).join('.')}`
}

/**
 * Of entries as they were sent, for a source to say what it sent: of each the SHA-256 of its fields in this order, one
 * a line, absent ones empty: address, network, kind, name, uid, incarnation, interface, node, boot, state. The sum of
 * these, as numbers, modulo 2^256, in 64 hexadecimal digits.
 */
export function digestOfGiven(given: Iterable<GivenEntry>): string {
  // By parts of 16 bits, whose sums are exact: adding numbers of 256 bits is as much work as the hash.
  const sums = new Float64Array(16)
  for (const one of given) {
    const bytes = hash('sha256', linesOf(one), 'latin1')
    for (let i = 0; i < sums.length; i += 1) {
      sums[i]! += 256 * bytes.charCodeAt(2 * i) + bytes.charCodeAt(2 * i + 1)
    }
  }
  return formatSum(sums.reduce((sum, part) => sum * 65_536n + BigInt(part), 0n))
}

/** Of the whole, from those of its parts. */
export function addDigests(parts: Iterable<string>): string {
  let sum = 0n
  for (const part of parts) sum += BigInt(`0x${part}`)
  return formatSum(sum)
}

const MODULUS = 2n ** 256n

function formatSum(sum: bigint): string {
  return (sum % MODULUS).toString(16).padStart(64, '0')
}

function linesOf(given: GivenEntry): string {
  const { address, network, kind, name, uid, incarnation, node, boot, state } = given
  return [address, network, kind, name, uid, incarnation, given.interface, node, boot, state]
    .map((field) => field ?? '')
    .join('\n')
}

type Read = 'ignored' | { readonly entry: Entry | null; readonly why: string | null }

function readEntry(given: GivenEntry, scope: Scope): Read {
  const { network = '' } = given
  if (network !== '' && network !== scope.network) return 'ignored'
  const zone = given.address.indexOf('%')
  const text = zone < 0 ? given.address : given.address.slice(0, zone)
  const address = parseAddress(text)
  if (isMalformed(address)) return readMeant(text, address.malformed, scope)
  if (zone >= 0 && address.family === 4) return readMeant(text, 'is an IPv4 address with a zone id', scope)
  if (isNowhere(address)) return 'ignored'
  const canonical = formatAddress(address)
  const why = whyUnreadable(given, scope)
  if (why !== null) {
    // In use, whatever else is wrong with it.
    return { entry: entryOf(canonical, null, scope.node, bootOf('', scope), LIVE), why }
  }
  const { node = '', boot = '', state = '' } = given
  return {
    entry: entryOf(
      canonical,
      ownerOf(given),
      node === '' ? scope.node : node,
      bootOf(boot, scope),
      state === '' ? LIVE : state,
    ),
    why: null,
  }
}

/** Of a spelling that is refused the address is kept where there is no doubt which: somebody has configured it (INV-12). */
function readMeant(text: string, why: string, scope: Scope): Read {
  const meant = addressMeant(text)
  if (meant === null) return { entry: null, why }
  if (isNowhere(meant)) return 'ignored'
  return { entry: entryOf(formatAddress(meant), null, scope.node, bootOf('', scope), LIVE), why }
}

/** The epoch of a node's source is the boot of its node. */
function bootOf(boot: string, scope: Scope): string {
  return scope.node === '' ? boot : scope.epoch
}

function ownerOf(given: GivenEntry): Owner | null {
  const { kind = '', name = '', uid = '', incarnation = '' } = given
  if (kind === '') return null
  return {
    kind,
    name: name === '' ? uid : name,
    uid: uid === '' ? name : uid,
    uidNamed: uid !== '',
    incarnation,
    interface: given.interface ?? '',
  }
}

function entryOf(address: string, owner: Owner | null, node: string, boot: string, state: string): Entry {
  const parts =
    owner === null
      ? [address, '', '', '', '', '', '', node, boot, state]
      : [
          address,
          owner.kind,
          owner.name,
          owner.uid,
          owner.uidNamed ? 'named' : '',
          owner.incarnation,
          owner.interface,
          node,
          boot,
          state,
        ]
  // No part has a control character: different entries are different text.
  const key = hash('sha256', parts.join('\n'), 'base64url').slice(0, KEY_CHARACTERS)
  return { key, address, owner, node, boot, state }
}

function whyUnreadable(given: GivenEntry, scope: Scope): string | null {
  const { kind = '', name = '', uid = '', incarnation = '', node = '', boot = '', state = '' } = given
  if (kind === '' && (name !== '' || uid !== '' || incarnation !== ''))
    return 'names an owner without its kind'
  if (kind !== '' && !KIND.test(kind))
    return 'kind must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter'
  if (kind !== '' && name === '' && uid === '') return 'names a kind and neither name nor uid'
  if (given.interface?.includes('|')) return 'interface must not contain |'
  if (scope.node !== '' && node !== '' && node !== scope.node) {
    return `is on node ${JSON.stringify(node.slice(0, LIMITS.nameBytes))}, and its source sees ${JSON.stringify(scope.node)}`
  }
  return (
    badText('name', name, LIMITS.nameBytes) ??
    badText('uid', uid, LIMITS.nameBytes) ??
    badText('incarnation', incarnation, LIMITS.nameBytes) ??
    badText('interface', given.interface ?? '', LIMITS.interfaceBytes) ??
    badText('node', node, LIMITS.nameBytes) ??
    badText('boot', boot, LIMITS.nameBytes) ??
    badText('state', state, LIMITS.stateBytes)
  )
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

function badText(field: string, value: string, mostBytes: number): string | null {
  // Most are empty or short: three bytes a character at most.
  if (value === '') return null
  if (3 * value.length > mostBytes && Buffer.byteLength(value) > mostBytes)
    return `${field} is longer than ${mostBytes} bytes`
  if (CONTROL.test(value)) return `${field} contains control characters`
  return value.isWellFormed() ? null : `${field} is not well-formed Unicode`
}

/** What it says, without what it does not say and without what a message carries besides. */
function show(given: GivenEntry): string {
  const text = JSON.stringify(given, (key, value) =>
    (value === '' && key !== 'address') || key.startsWith('$') ? undefined : value,
  )
  return text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN)}…` : text
}
