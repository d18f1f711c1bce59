/**
 * Leases of Kea: its lease file, the output of `kea-admin lease-dump`, its tables as psql writes them with `--csv`, and the
 * answers of its control agent to `lease4-get-all` and `lease6-get-all`.
 */
import { isUtf8 } from 'node:buffer'
import { z } from 'zod'
import { formatAddress, parseLenientAddress } from '../core/address.ts'
import { type Cells, csvLines, quoted, textOf } from './file.ts'
import { faultOf, type LeftOut, leftOut, type Read, type Row } from './rows.ts'

/** A lease without an end has this lifetime; the tables say that it ended when it began. */
const INFINITE = 0xffff_ffff
/** Kea's value for no DUID. */
const NO_DUID = '00:00:00'

type KeaLease = ReturnType<typeof leaseOf>

/** The last line about an address counts. */
export function keaRows(path: string, now = Date.now()): Read {
  if (/^\s*[[{]/.test(textOf(path))) return answeredLeases(path, now)
  const latest = new Map<string, Row | LeftOut>()
  for (const one of csvLines(path, ['address', 'valid_lifetime', 'expire'], unquoted)) {
    const where = `${path}:${one.line}`
    const row =
      'fault' in one ? leftOut(where, 'unreadable', one.fault) : rowOf(where, leaseOf(one.cells), now)
    const key = row.address || where
    // Of two the later one is the last in order, too.
    latest.delete(key)
    latest.set(key, row)
  }
  return [...latest.values()]
}

/** Kea quotes nothing, and escapes commas; databases quote. */
function unquoted(line: string, count: number): readonly string[] {
  const cells = quoted(line)
  return cells?.length === count ? cells : line.split(',')
}

function leaseOf(cells: Cells) {
  const { address = '', state = '0', valid_lifetime = '', expire = '', iaid = '', hostname = '' } = cells
  return {
    // The table of IPv4 leases has numbers.
    address:
      /^\d{1,10}$/.test(address) && Number(address) <= 0xffff_ffff
        ? formatAddress({ family: 4, value: BigInt(address) })
        : address,
    state,
    /** Seconds. */
    lifetime: Number(valid_lifetime || Number.NaN),
    /** Milliseconds since 1970. NaN: it can't be read, so it has not come. */
    ends: /^\d+$/.test(expire) ? Number(expire) * 1_000 : timeOf(expire),
    hardware: bytesOf(cells.hwaddr),
    client: bytesOf(cells.client_id),
    duid: bytesOf(cells.duid),
    // PostgreSQL's has a sign.
    iaid: Number(iaid) >>> 0,
    hostname: unescaped(hostname),
    isPrefix: cells.lease_type === '2',
  }
}

/** A time without a zone is taken to be the latest that it can be. */
const timeOf = (text: string) => Date.parse(/([+-]\d\d(:?\d\d)?|Z)$/.test(text) ? text : `${text}-12:00`)

/** PostgreSQL's `\x0800` as `08:00`, which is how the rest of Kea writes it. */
function bytesOf(cell = ''): string {
  const digits = /^\\x((?:[0-9a-f]{2})*)$/.exec(cell)?.[1]
  return digits === undefined ? cell : (digits.match(/../g) ?? []).join(':')
}

/** Kea writes a byte that would end a cell as `&#x2c`. */
function unescaped(cell: string): string {
  const escaped = Buffer.from(cell).toString('latin1')
  const bytes = escaped.replaceAll(/&#x([0-9a-f]{2})/gi, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 16)),
  )
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

/** Kea's JSON has each byte as a character. */
function charactersOf(text: string): string {
  const bytes = Buffer.from(text, 'latin1')
  return bytes.toString('latin1') === text && isUtf8(bytes) ? bytes.toString('utf8') : text
}

const TEXT = z.string().default('')
const LEASE = z
  .object({
    'ip-address': z.string(),
    state: z.number(),
    'valid-lft': z.number(),
    cltt: z.number(),
    'hw-address': TEXT,
    'client-id': TEXT,
    duid: TEXT,
    iaid: z.number().default(0),
    hostname: TEXT,
    type: TEXT,
  })
  .transform(
    ({ duid, iaid, cltt, ...one }): KeaLease => ({
      address: one['ip-address'],
      state: String(one.state),
      lifetime: one['valid-lft'],
      ends: (cltt + one['valid-lft']) * 1_000,
      hardware: one['hw-address'],
      client: one['client-id'],
      duid,
      iaid,
      hostname: charactersOf(one.hostname),
      isPrefix: one.type === 'IA_PD',
    }),
  )
/** 0: leases, 3: there are none. */
const ANSWER = z.object({
  result: z.number(),
  text: TEXT,
  arguments: z
    .object({ leases: z.array(z.unknown()).default([]), count: z.unknown() })
    .partial()
    .default({}),
})

function answeredLeases(path: string, now: number): Read {
  const read: unknown = JSON.parse(textOf(path))
  const { data } = ANSWER.array().safeParse(Array.isArray(read) ? read : [read])
  if (data === undefined) throw new Error('it is not an answer of Kea to lease4-get-all or lease6-get-all')
  return data.flatMap(({ result, text, arguments: { leases = [], count } }, at) => {
    if (result !== 0 && result !== 3) throw new Error(`Kea answered an error: ${text}`)
    if (count !== undefined)
      throw new Error('it is one page; ask for all, with lease4-get-all or lease6-get-all')
    return leases.map((one, index) => {
      const where = `${path}: answer ${at}, lease ${index}`
      const { data: lease, error } = LEASE.safeParse(one)
      return lease === undefined ? leftOut(where, 'unreadable', faultOf(error)) : rowOf(where, lease, now)
    })
  })
}

const STATES: ReadonlyMap<string, readonly [LeftOut['outcome'], why: string]> = new Map([
  ['1', ['declined', 'its client found that somebody else uses the address']],
  ['2', ['ended', 'it expired, and Kea took it back']],
])

function rowOf(where: string, lease: KeaLease, now: number): Row | LeftOut {
  const { state, lifetime, ends, hardware, client, duid, iaid, hostname } = lease
  const parsed = parseLenientAddress(lease.address)
  if (parsed === null) return leftOut(where, 'unreadable', `"${lease.address}" is no address`)
  const address = formatAddress(parsed)
  const left = (outcome: LeftOut['outcome'], why: string) => leftOut(where, outcome, why, address)
  // A lease that Kea removes is written with the state that it had.
  if (state === '3' || lifetime === 0) return left('ended', 'it was released')
  if (state !== '0') return left(...(STATES.get(state) ?? ['unreadable', `state ${state} is not known`]))
  if (lifetime !== INFINITE && ends < now)
    return left('ended', `it expired at ${new Date(ends).toISOString()}`)
  if (lease.isPrefix) return left('unreadable', 'it is a delegated prefix')
  const uid = duid && duid !== NO_DUID ? `${duid}/${iaid}` : hardware || client
  if (uid === '') return left('unreadable', 'it has neither hwaddr, client_id nor duid')
  const name = hostname ? `${hostname.replace(/\.$/, '')}/${uid}` : uid
  return { where, address, owner: { kind: 'host', name, uid } }
}
