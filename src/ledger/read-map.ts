/** Many addresses at once, now and in the past: each by itself, or counted by blocks. */
import { sql } from 'kysely'
import {
  blockSize,
  type Cidr,
  formatCidr,
  formatRange,
  formatValue,
  maxPrefix,
  mustParse,
  parseAddress,
  parseCidr,
} from '../core/address.ts'
import { buildPool, type PoolSettings } from '../core/pool.ts'
import { contains, without } from '../core/ranges.ts'
import type { Db } from './read-db.ts'
import { type Moment, readPosition, timeAt } from './read-log.ts'
import { COUNTS, type Counts } from './read-pools.ts'

/** Addresses that are shown each by itself, and those of the past that are looked at for a sample. */
const MOST_SHOWN = 4_096
/** Blocks are at most 2^8. */
const BLOCK_BITS = 8
const NONE = { addresses: [], excluded: [], blocks: [], blockSize: '', sampled: 0 }

type Shown = Readonly<
  Record<'address' | 'state' | 'leaseId' | 'ownerKind' | 'ownerName' | 'node', string>
> & { readonly prefixLength: number }

export async function readAddressMap(db: Db, network: string, asked: Cidr, moment: Moment) {
  const position = await readPosition(db, network, moment)
  if (position === null || 'beyond' in position) return position
  const { family } = asked
  const pools = await readPoolsAt(db, network, asked, position.seq)
  const leaseLength = Math.max(...pools.map(({ prefixLength }) => prefixLength), 0) || maxPrefix(family)
  // A CIDR inside one block is a single cell.
  const length = Math.max(leaseLength, asked.prefixLength)
  const isNow = moment.seq === null && moment.at === null
  // Only a sample needs the count of a large pool, which is slow.
  const touched = await readTouched(db, network, asked, isNow ? MOST_SHOWN + 1 : null)
  // Of IPv6 nobody could see more than what was ever leased.
  const cidr = family === 6 && touched.within !== null ? mustParse(parseCidr(touched.within)) : asked
  const cells = (cidr.last - cidr.first + 1n) / blockSize(family, length)
  const at = timeAt(position, moment)
  const map = { ...NONE, ...position, cidr: formatCidr(cidr), prefixLength: length }
  if (cells <= MOST_SHOWN || (family === 6 && touched.count <= MOST_SHOWN)) {
    const { rows } = await sql<Shown>`
      select host(a.address) as address, a.prefix_length as "prefixLength", a.state, a.lease_id as "leaseId", a.owner_kind as "ownerKind",
        a.owner_name as "ownerName", a.node
      from ipledger_audit.addresses_at(${network}, ${map.cidr}::inet, ${at}, ${position.seq}::bigint) a
      where a.state <> 'FREE' or ${family === 6}::bool`.execute(db)
    const excluded = without(
      asked,
      pools.flatMap(({ allocatable }) => allocatable),
    )
    const isHeldOrIn = ({ address, state }: Shown) =>
      (state !== 'COOLING' && state !== 'FREE') || !contains(excluded, mustParse(parseAddress(address)).value)
    const addresses = rows.filter(isHeldOrIn)
    return { ...map, addresses, excluded: excluded.map((range) => formatRange({ family, ...range })) }
  }
  const blockLength = Math.min(cidr.prefixLength + BLOCK_BITS, length)
  const blockSpan = blockSize(family, blockLength)
  const sampled = isNow ? 1 : Math.max(1, Math.ceil(touched.count / MOST_SHOWN))
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
      count(*) filter (where e.state = 'FREE' and e.available_at > ${at}) as cooling,
      count(*) filter (where e.state = 'RESERVED') as reserved, count(*) filter (where e.state = 'ACTIVE') as active,
      count(*) filter (where e.state = 'QUARANTINED') as quarantined
    from ipledger_audit.touched t
    cross join lateral ipledger_audit.last_event(${network}, t.address, ${position.seq}::bigint) e
    where ${isTouchedIn(network, cidr)} and abs(hashinet(t.address)::bigint) % ${sampled}::bigint = 0
    group by 1`
  const { rows: blocks } = await sql<Counts & { readonly cidr: string }>`
    select c.cidr, c.cooling * x.n as cooling, c.reserved * x.n as reserved, c.active * x.n as active, c.quarantined * x.n as quarantined
    from (${isNow ? counted : estimated}) c cross join (select ${sampled}::bigint as n) x
    where c.cooling + c.reserved + c.active + c.quarantined > 0 order by c.cidr::inet`.execute(db)
  const size = blockSpan / blockSize(family, length)
  return { ...map, prefixLength: blockLength, blocks, blockSize: size, sampled: sampled > 1 ? sampled : 0 }
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

const isTouchedIn = (network: string, { family, first, last }: Cidr) =>
  sql`t.network = ${network} and t.address >= ${formatValue(family, first)}::inet and t.address <= ${formatValue(family, last)}::inet`

/** How many addresses of the CIDR were ever leased, counted up to `most`, and the smallest part of it that has them all. */
async function readTouched(db: Db, network: string, cidr: Cidr, most: number | null) {
  const isInside = isTouchedIn(network, cidr)
  // `min` and `max` alone are read from the index; beside a count they would read every row.
  const { rows } = await sql<{ readonly count: number; readonly within: string | null }>`
    select (select count(*) from (select from ipledger_audit.touched t where ${isInside} limit ${most}) x) as count,
      inet_merge(min(t.address), max(t.address))::text as within
    from ipledger_audit.touched t where ${isInside}`.execute(db)
  return rows[0]!
}
