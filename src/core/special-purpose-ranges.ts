/**
 * Special-purpose ranges (RFC 6890) that no workload has to itself: unspecified, loopback, link-local, multicast, broadcast.
 * They are on every host, so a source that lists one says nothing, and the entry is ignored. No pool may contain one: nothing
 * would keep such an address from being handed out while it is in use. Nor what PostgreSQL prints with a dotted tail: `::/96`,
 * and IPv4-mapped.
 */
import { type Cidr, formatCidr, type IpAddress, mustParse, parseCidr } from './address.ts'

const RANGES = [
  { cidr: '0.0.0.0/8', what: 'unspecified' },
  { cidr: '127.0.0.0/8', what: 'loopback' },
  { cidr: '169.254.0.0/16', what: 'link-local' },
  { cidr: '224.0.0.0/4', what: 'multicast' },
  { cidr: '255.255.255.255/32', what: 'broadcast' },
  { cidr: '::/96', what: 'unspecified, loopback and IPv4-compatible' },
  { cidr: '::ffff:0:0/96', what: 'IPv4-mapped' },
  { cidr: 'fe80::/10', what: 'link-local' },
  { cidr: 'ff00::/8', what: 'multicast' },
].map(({ cidr, what }) => ({ range: mustParse(parseCidr(cidr)), what }))

export function isSpecialPurpose({ family, value }: IpAddress): boolean {
  return RANGES.some(({ range }) => range.family === family && range.first <= value && value <= range.last)
}

/** Those that a CIDR overlaps, for people: `169.254.0.0/16 (link-local)`. */
export function specialPurposeIn({ family, first, last }: Cidr): readonly string[] {
  return RANGES.filter(
    ({ range }) => range.family === family && range.first <= last && range.last >= first,
  ).map(({ range, what }) => `${formatCidr(range)} (${what})`)
}
