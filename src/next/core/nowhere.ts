/**
 * Addresses that no workload has to itself: unspecified, loopback, link-local, multicast, broadcast. They stand on every
 * host, so a source that lists one says nothing, and the entry is ignored. A pool must not contain any: nothing would keep
 * such an address from being handed out while it is in use.
 */
import { type Cidr, type Family, formatCidr, type IpAddress } from './address.ts'

type Prefix = {
  readonly family: Family
  readonly value: bigint
  readonly bits: number
  readonly what: string
}

const NOWHERE: readonly Prefix[] = [
  { family: 4, value: 0x00n, bits: 8, what: 'unspecified' },
  { family: 4, value: 0x7fn, bits: 8, what: 'loopback' },
  { family: 4, value: 0xa9fen, bits: 16, what: 'link-local' },
  { family: 4, value: 0xen, bits: 4, what: 'multicast' },
  { family: 4, value: 0xffff_ffffn, bits: 32, what: 'broadcast' },
  { family: 6, value: 0n, bits: 128, what: 'unspecified' },
  { family: 6, value: 1n, bits: 128, what: 'loopback' },
  { family: 6, value: 0xfe80n >> 6n, bits: 10, what: 'link-local' },
  { family: 6, value: 0xffn, bits: 8, what: 'multicast' },
]

export function isNowhere({ family, value }: IpAddress): boolean {
  return NOWHERE.some((prefix) => prefix.family === family && value >> hostBits(prefix) === prefix.value)
}

/** What of it no pool may have, for people: `169.254.0.0/16 (link-local)`. */
export function nowhereIn({ family, first, last }: Cidr): readonly string[] {
  return NOWHERE.map((prefix) => ({ ...cidrOf(prefix), what: prefix.what }))
    .filter((one) => one.family === family && one.first <= last && one.last >= first)
    .map(({ what, ...cidr }) => `${formatCidr(cidr)} (${what})`)
}

function cidrOf(prefix: Prefix): Cidr {
  const first = prefix.value << hostBits(prefix)
  return {
    family: prefix.family,
    first,
    last: first + (1n << hostBits(prefix)) - 1n,
    prefixLength: prefix.bits,
  }
}

function hostBits({ family, bits }: Prefix): bigint {
  return BigInt((family === 4 ? 32 : 128) - bits)
}
