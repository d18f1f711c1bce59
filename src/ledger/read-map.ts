/** Many addresses at once, now and in the past: each by itself, or counted by blocks. */
import { sql } from 'kysely'
import {
  blockSize,
  type Cidr,
  formatCidr,
  formatValue,
  maxPrefix,
  mustParse,
  parseAddress,
} from '../core/address.ts'
import { buildPool, type PoolSettings } from '../core/pool.ts'
import { contains, type Range, without } from '../core/ranges.ts'
import type { Db } from './read-db.ts'
import { type Moment, readPosition, timeAt } from './read-log.ts'
import { COUNTS } from './read-pools.ts'

/** Addresses that are shown each by itself, and those of the past that are looked at for a sample. */
const MOST_SHOWN = 4_096
/** Blocks are at most 2^8. */
const BLOCK_BITS = 8

type Shown = {
  readonly address: string
  readonly prefixLength: number
  readonly state: string
  readonly leaseId: string
  readonly ownerKind: string
  readonly ownerName: string
  readonly node: string
}
type Block = Readonly<Record<'cooling' | 'reserved' | 'active' | 'quarantined', number>> & {
  readonly cidr: string
  readonly size: bigint
}

const NOTHING = { cooling: 0, reserved: 0, active: 0, quarantined: 0 }

export async function readAddressMap(db: Db, network: string, asked: Cidr, moment: Moment) {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const { family } = asked
  const pools = await readPoolsAt(db, network, asked, position.seq)
  const length = Math.max(...pools.map(({ prefixLength }) => prefixLength), 0) || maxPrefix(family)
  const isNow = moment.seq === null && moment.at === null
  // A map of IPv4 as it is now does not need the count, which is slow in a large pool.
  const touched = family === 4 && isNow ? NOTHING_TOUCHED : await readTouched(db, network, asked)
  // Of IPv6 nobody could see more than what was ever leased.
  const cidr = family === 6 && touched.count > 0 ? commonOf(asked, touched) : asked
  const cells = (cidr.last - cidr.first + 1n) / blockSize(family, length)
  const isEach = cells <= MOST_SHOWN || (family === 6 && touched.count <= MOST_SHOWN)
  const map = {
    ...position,
    cidr: formatCidr(cidr),
    prefixLength: length,
    addresses: [],
    ranges: [],
    blocks: [],
    sampled: 0,
  }
  if (isEach) {
    const ranges = rangesOf(asked, pools)
    const at = timeAt(position, moment)
    const { rows } = await sql<Shown>`
      select host(a.address) as address, a.prefix_length as "prefixLength", a.state, a.lease_id as "leaseId", a.owner_kind as "ownerKind",
        a.owner_name as "ownerName", a.node
      from ipledger_audit.addresses_at(${network}, ${formatCidr(cidr)}::inet, ${at}, ${position.seq}::bigint) a
      where a.state <> 'FREE' or ${family === 6}::bool`.execute(db)
    const covered = ranges.toSorted((a, b) => (a.first < b.first ? -1 : 1))
    const isHeldOrIn = ({ address, state }: Shown) =>
      (state !== 'COOLING' && state !== 'FREE') || !contains(covered, mustParse(parseAddress(address)).value)
    const named = ({ first, last, state }: StatedRange) => ({
      first: formatValue(family, first),
      last: formatValue(family, last),
      state,
    })
    return { ...map, addresses: rows.filter(isHeldOrIn), ranges: covered.map(named) }
  }
  const blockLength = Math.min(cidr.prefixLength + BLOCK_BITS, length)
  const sampled = isNow ? 0 : Math.ceil(touched.count / MOST_SHOWN)
  const blockSpan = blockSize(family, blockLength)
  const names = Array.from({ length: Number((cidr.last - cidr.first + 1n) / blockSpan) }, (_, index) =>
    formatCidr({ ...cidr, first: cidr.first + BigInt(index) * blockSpan, prefixLength: blockLength }),
  )
  // A range of the index for each: to find the block of each lease takes twice as long.
  const counted = sql`
    select p.cidr::text as cidr, c.*
    from (select b.cidr, ${network}::text as network_id, ${length}::int as prefix_length from unnest(${names}::cidr[]) as b (cidr)) p
    cross join lateral (${sql.raw(COUNTS)}) c`
  const estimated = sql`
    select network(set_masklen(t.address, ${blockLength}::int))::text as cidr,
      count(*) filter (where e.state = 'FREE' and e.available_at > ${timeAt(position, moment)}) as cooling,
      count(*) filter (where e.state = 'RESERVED') as reserved, count(*) filter (where e.state = 'ACTIVE') as active,
      count(*) filter (where e.state = 'QUARANTINED') as quarantined
    from ipledger_audit.touched t
    cross join lateral ipledger_audit.last_event(${network}, t.address, ${position.seq}::bigint) e
    where t.network = ${network} and t.address >= ${formatValue(family, cidr.first)}::inet
      and t.address <= ${formatValue(family, cidr.last)}::inet and abs(hashinet(t.address)::bigint) % ${sampled}::bigint = 0
    group by 1`
  const { rows } = await sql<Omit<Block, 'size'>>`
    select c.* from (${isNow ? counted : estimated}) c
    where c.cooling + c.reserved + c.active + c.quarantined > 0 order by c.cidr::inet`.execute(db)
  const size = blockSpan / blockSize(family, length)
  const times = Math.max(1, sampled)
  const found = new Map(rows.map((row) => [row.cidr, row]))
  const shown = family === 6 ? rows : names.map((name) => found.get(name) ?? { ...NOTHING, cidr: name })
  const blocks = shown.map(
    ({ cidr, cooling, reserved, active, quarantined }): Block => ({
      cidr,
      size,
      cooling: cooling * times,
      reserved: reserved * times,
      active: active * times,
      quarantined: quarantined * times,
    }),
  )
  return { ...map, prefixLength: blockLength, blocks, sampled: times > 1 ? times : 0 }
}

/** Pools as they were, of those that overlap the CIDR. */
async function readPoolsAt(db: Db, network: string, cidr: Cidr, seq: number) {
  const { rows } = await sql<{ settings: PoolSettings }>`
    select p.evidence as settings from ipledger_audit.pools_at(${network}, ${seq}::bigint) p
    where p.type <> 'pool.deleted' and (p.evidence ->> 'cidr')::inet && ${formatCidr(cidr)}::inet
    order by (p.evidence ->> 'cidr')::inet`.execute(db)
  return rows.map(({ settings }) =>
    buildPool(settings, { poolId: 0, version: seq, createdAt: 0, updatedAt: 0 }),
  )
}

type Touched = { readonly count: number; readonly first: string; readonly last: string }

const NOTHING_TOUCHED: Touched = { count: 0, first: '', last: '' }

/** How many addresses of the CIDR were ever leased, and the first and the last of them. */
async function readTouched(db: Db, network: string, { family, first, last }: Cidr): Promise<Touched> {
  const inside = sql`
    from ipledger_audit.touched t where t.network = ${network}
      and t.address >= ${formatValue(family, first)}::inet and t.address <= ${formatValue(family, last)}::inet`
  const { rows } = await sql<Touched>`
    select (select count(*) ${inside}) as count, host((select t.address ${inside} order by t.address limit 1)) as first,
      host((select t.address ${inside} order by t.address desc limit 1)) as last`.execute(db)
  return rows[0]!
}

/** The smallest part of a CIDR that has both addresses. */
function commonOf(asked: Cidr, touched: Touched): Cidr {
  const [first, last] = [touched.first, touched.last].map((text) => mustParse(parseAddress(text)).value)
  const different = first! ^ last!
  const bits = different === 0n ? 0 : different.toString(2).length
  const size = 1n << BigInt(bits)
  const base = (first! / size) * size
  return { ...asked, prefixLength: maxPrefix(asked.family) - bits, first: base, last: base + size - 1n }
}

type StatedRange = Range & { readonly state: 'EXCLUDED' | 'OUTSIDE' }

function rangesOf(asked: Cidr, pools: readonly ReturnType<typeof buildPool>[]): readonly StatedRange[] {
  const larger = (a: bigint, b: bigint) => (a > b ? a : b)
  const within = ({ first, last }: Range): Range => ({
    first: larger(first, asked.first),
    last: -larger(-last, -asked.last),
  })
  const outside = without(
    asked,
    pools.map(({ range }) => range),
  )
  const excluded = pools.flatMap(({ range, allocatable }) => without(within(range), allocatable))
  return [
    ...outside.map((one) => ({ ...one, state: 'OUTSIDE' as const })),
    ...excluded.map((one) => ({ ...one, state: 'EXCLUDED' as const })),
  ]
}
