/**
 * What `verify` asks of tenure and checkpoints: tenure is the log up to its position, no two tenures overlap (seen by
 * reading the rows, whether their constraints are there or not), the constraints are there, and each checkpoint holds
 * exactly what was held at its number.
 *
 * The log is walked by number, and the tenures that begin in each slice with it, in one snapshot a slice. An end is asked for
 * where its event is; an end that no event explains is seen where its tenure begins. What lies behind the position is
 * nobody's yet.
 *
 * A closed tenure that somebody put over one that is held still is seen here and nowhere else: the constraint compares it
 * with the number at which the open one began, until that one ends (ops/decisions/0018-tenure.md).
 */
import type pg from 'pg'
import { leaseId } from '../core/lease.ts'
import { MOST_OF_ONE, OWNER_COLUMNS, readAddress } from './rows.ts'
import {
  type Boundary,
  begins,
  ENDED,
  foldBoundaries,
  neighbours,
  readSizes,
  TENURE_STATEMENTS,
} from './tenure.ts'
import { createPace, inSnapshot } from './transaction.ts'

export type TenureOdd = {
  readonly what:
    | 'TENURE_CONSTRAINT_MISSING'
    | 'TENURE_POSITION_WRONG'
    | 'TENURE_MISSING'
    | 'TENURE_UNEXPLAINED'
    | 'TENURE_DIFFERS'
    | 'TENURE_OVERLAPS'
    | 'CHECKPOINT_DIFFERS'
  /** A sentence for people. */
  readonly message: string
  readonly address: string | null
  readonly leaseId: string | null
  readonly seq: number | null
}

export type TenureCheckOptions = {
  /** From the first event, not from where an earlier check found all in order. */
  readonly full: boolean
  readonly use: (odd: TenureOdd) => void
  readonly onProgress?: ((events: number) => void) | undefined
  readonly signal?: AbortSignal | undefined
  /** For tests: events per slice. */
  readonly slice?: number | undefined
}

/** Behind every number. */
const NO_END = Number.MAX_SAFE_INTEGER

/** Columns whose values are those of the events that begin and end a tenure. */
const COPIED = [
  'fencing_token',
  'pool_id',
  'address',
  ...OWNER_COLUMNS,
  'began_at',
  'ended_at',
  'began_as',
  'ended_as',
] as const

/** For the test of their plans. */
export const TENURE_CHECKS = {
  constraints: `select
      exists (select from pg_constraint x join pg_index i on i.indexrelid = x.conindid
        where x.conrelid = 'ipledger.tenure'::regclass and x.conname = 'no_two_owners_hold_one_address' and x.contype = 'x'
          and x.convalidated and i.indisvalid
          and pg_get_constraintdef(x.oid) like 'EXCLUDE USING gist (address inet\\_ops WITH &&, network\\_id WITH =, int8range(first\\_seq, %) WITH &&)') as ended,
      exists (select from pg_index i where i.indrelid = 'ipledger.tenure'::regclass
        and i.indexrelid = to_regclass('ipledger.one_address_has_one_open_tenure') and i.indisunique and i.indisvalid) as open`,
  position: `select p.seq, p.verified_seq, coalesce(p.at = e.at, false) as known from ipledger.tenure_position p
      left join lateral (
        select k.at from ipledger.event k
         where k.network_id = $1 and k.seq >= p.seq and k.seq <= p.seq order by k.seq limit 1) e on true
     where p.network_id = $1`,
  begun: `select x.first_seq, x.fencing_token, x.address, t.first_seq is null as missing,
        (select o.other_fencing_token from ipledger.tenure_overlap o
          where o.network_id = $1 and o.first_seq >= x.first_seq and o.first_seq <= x.first_seq order by o.first_seq limit 1) as refused_for,
        array_remove(array[${COPIED.map((name) => `case when t.${name} is distinct from x.${name} then '${name}' end`).join(', ')},
          case when upper(t.span) is distinct from upper(x.span) then 'span' end], null) as differing
      from (
        select e.fencing_token, e.pool_id, set_masklen(e.address, e.prefix_length) as address, e.seq as first_seq,
               ${OWNER_COLUMNS.map((column) => `e.${column}`).join(', ')},
               int8range(e.seq, u.seq) as span, e.at as began_at, u.at as ended_at,
               e.type || '/' || e.cause as began_as, u.type || '/' || u.cause as ended_as, b.place
          from unnest($2::bigint[], $3::bigint[]) with ordinality as b (first_seq, ended_seq, place)
          cross join lateral (
            select * from ipledger.event
             where event.network_id = $1 and event.seq >= b.first_seq and event.seq <= b.first_seq order by event.seq limit 1) e
          left join lateral (
            select s.span from ipledger.tenure s
             where s.network_id = $1 and s.first_seq >= b.first_seq and s.first_seq <= b.first_seq order by s.first_seq limit 1) r on true
          -- One that did not end in the slice ends where its row says, if the event there ends it.
          left join lateral (
            select z.seq, z.at, z.type, z.cause from (
              select w.* from ipledger.event w
               where w.network_id = $1 and w.seq >= coalesce(b.ended_seq, upper(r.span)) and w.seq <= coalesce(b.ended_seq, upper(r.span))
               order by w.seq limit 1) z
             where b.ended_seq is not null
                or z.seq > $4 and z.fencing_token = e.fencing_token
                   and (z.type in ${ENDED} or ${begins('z')})) u on true) x
      left join lateral (
        select * from ipledger.tenure s
         where s.network_id = $1 and s.first_seq >= x.first_seq and s.first_seq <= x.first_seq order by s.first_seq limit 1) t on true
     order by x.place`,
  ended: `select c.token, c.ended_seq, u.address from unnest($2::bigint[], $3::bigint[]) as c (token, ended_seq)
      cross join lateral (
        select address, at, type, cause from ipledger.event
         where event.network_id = $1 and event.seq >= c.ended_seq and event.seq <= c.ended_seq order by event.seq limit 1) u
     where (select count(*) from (
        (select s.* from ipledger.tenure s
          where s.network_id = $1 and s.first_seq >= c.token and s.first_seq <= c.token order by s.first_seq limit 1)
        union all
        (select s.* from ipledger.tenure s
          where s.network_id = $1 and s.fencing_token >= c.token and s.fencing_token <= c.token and s.first_seq <> s.fencing_token
          order by s.fencing_token, s.first_seq limit ${MOST_OF_ONE})) r
        where upper(r.span) = c.ended_seq and r.ended_at = u.at and r.ended_as = u.type || '/' || u.cause) <> 1
       and not exists (select from ipledger.tenure_overlap o where o.network_id = $1 and o.fencing_token = c.token)`,
  rows: `select t.first_seq, t.fencing_token, t.address, t.span::text as span,
        o.fencing_token as other_token, o.address as other_address, o.span::text as other_span
      from ipledger.tenure t
      left join lateral (
        select n.fencing_token, n.address, n.span from (
          ${neighbours(`coalesce(upper(t.span), ${NO_END})`)}) n
         where n.span && t.span limit 1) o on true
     where t.network_id = $1 and t.first_seq > $2 and t.first_seq <= $4 order by t.first_seq limit $5`,
  overlaps: `select o.fencing_token, o.address, o.span::text as span, o.other_fencing_token as other_token, o.other_address
      from ipledger.tenure_overlap o where o.network_id = $1 order by o.first_seq limit 1000`,
  verified: `update ipledger.tenure_position p set verified_seq = $2 where p.network_id = $1 and p.seq >= $2 and p.verified_seq < $2`,
  checkpoints: `select c.seq, c.leases, c.parts,
        coalesce((select max(b.seq) from ipledger.lease_checkpoint b where b.network_id = $1 and b.seq < c.seq), 0) as before
      from ipledger.lease_checkpoint c
     where c.network_id = $1 and c.seq > $2 and ($3 or c.verified_at is null) order by c.seq limit 1`,
  held: `select coalesce((select b.leases from ipledger.lease_checkpoint b where b.network_id = $1 and b.seq = $2), 0)
        + count(*) filter (where e.seq = e.fencing_token) - count(*) filter (where e.type in ${ENDED}) as leases,
        (select count(*) from ipledger.lease_checkpoint_part p where p.network_id = $1 and p.seq = $3) as parts,
        (select coalesce(sum(cardinality(p.events)), 0)::bigint from ipledger.lease_checkpoint_part p where p.network_id = $1 and p.seq = $3) as listed
      from ipledger.event e where e.network_id = $1 and e.seq > $2 and e.seq <= $3 and e.type like 'lease.%'`,
  listed: `select w.seq, w.address from (
        select k.seq, e.address, e.type, l.seq as last_seq, p.first_address, p.last_address,
               lag(e.address) over (order by p.part, k.place) as before,
               (select q.last_address from ipledger.lease_checkpoint_part q
                 where q.network_id = $1 and q.seq = $2 and q.part = p.part - 1) as before_part
          from ipledger.lease_checkpoint_part p
          cross join lateral unnest(p.events) with ordinality as k (seq, place)
          left join lateral (
            select event.address, event.type from ipledger.event
             where event.network_id = $1 and event.seq >= k.seq and event.seq <= k.seq order by event.seq limit 1) e on true
          left join lateral (
            select v.seq from ipledger.event v
             where v.network_id = $1 and v.address >= e.address and (v.address, v.seq) <= (e.address, $2)
             order by v.address desc, v.seq desc limit 1) l on true
         where p.network_id = $1 and p.seq = $2 and p.part >= $3 and p.part < $4) w
     where w.address is null or w.type in ${ENDED} or w.last_seq <> w.seq or w.address < w.first_address or w.address > w.last_address
        or w.before >= w.address or w.before_part >= w.first_address
     limit 10`,
  checkpointVerified: `update ipledger.lease_checkpoint c set verified_at = clock_timestamp() where c.network_id = $1 and c.seq = $2`,
  // So that every look looks at it again, until it is in order or gone.
  checkpointDiffers: `update ipledger.lease_checkpoint c set verified_at = null
     where c.network_id = $1 and c.seq = $2 and c.verified_at is not null`,
} as const

/** Answers how many events tenure was compared with. */
export async function checkTenure(
  client: pg.Client,
  network: string,
  options: TenureCheckOptions,
): Promise<number> {
  let found = 0
  const report = reporter(network, (odd) => {
    found += 1
    options.use(odd)
  })
  await checkConstraints(client, report)
  const position = await begin(client, network, report)
  if (position === null) return 0
  const sizes = await readSizes(client, network)
  const from = options.full ? 0 : position.verifiedSeq
  const { events } = await walkTenures(
    client,
    network,
    { ...options, from, upto: position.upto, sizes },
    report,
  )
  await checkEnd(client, network, sizes, report)
  if (found === 0) await tenureIsInOrder(client, network, position.upto)
  return events
}

/** How far a piece came. */
export type TenurePiece =
  | { readonly after: number }
  /** All of it is looked at, up to this number. */
  | { readonly upto: number }
  /** There is none to look at, it was made anew since the piece before, or it is of another log, which was said. */
  | { readonly nothing: true }

/**
 * The same as `checkTenure` from the first event on, a piece at a time: from `after` on, until it is `enough`. That all of it
 * was in order only the caller knows: `tenureIsInOrder`.
 */
export async function checkTenurePiece(
  client: pg.Client,
  network: string,
  options: Omit<TenureCheckOptions, 'full' | 'onProgress'> & {
    readonly after: number
    readonly enough: () => boolean
  },
): Promise<TenurePiece> {
  const report = reporter(network, options.use)
  if (options.after === 0) await checkConstraints(client, report)
  const position = await begin(client, network, report)
  if (position === null || position.upto < options.after) return { nothing: true }
  const sizes = await readSizes(client, network)
  const { upto } = position
  const { after } = await walkTenures(
    client,
    network,
    { ...options, from: options.after, upto, sizes },
    report,
  )
  if (after < upto) return { after }
  await checkEnd(client, network, sizes, report)
  return { upto }
}

/** What `verify` need not look at again. */
export async function tenureIsInOrder(client: pg.Client, network: string, upto: number): Promise<void> {
  await client.query(TENURE_CHECKS.verified, [network, upto])
}

function reporter(network: string, use: TenureCheckOptions['use']): Use {
  return (what, message, fields = {}) =>
    use({
      what,
      message: `network ${network}: ${message}`,
      address: null,
      leaseId: null,
      seq: null,
      ...fields,
    })
}

/** The log and the tenures that begin in (from, upto], as far as it came. */
async function walkTenures(
  client: pg.Client,
  network: string,
  options: Pick<TenureCheckOptions, 'onProgress' | 'signal' | 'slice'> & {
    readonly from: number
    readonly upto: number
    readonly sizes: readonly number[]
    readonly enough?: () => boolean
  },
  report: Use,
): Promise<{ readonly after: number; readonly events: number }> {
  const { upto: last, sizes, enough, onProgress, signal, slice } = options
  const pace = createPace(5_000, 40_000, slice)
  let events = 0
  let after = options.from
  while (after < last) {
    signal?.throwIfAborted()
    const begun = performance.now()
    const { upto, boundaries } = await inSnapshot(client, () =>
      checkSlice(client, network, { after, last, most: pace.size(), sizes }, report),
    )
    pace.took(performance.now() - begun)
    after = upto
    events += boundaries
    onProgress?.(events)
    if (enough?.() === true) break
  }
  return { after, events }
}

async function checkEnd(
  client: pg.Client,
  network: string,
  sizes: readonly number[],
  report: Use,
): Promise<void> {
  await inSnapshot(client, () => checkBehind(client, network, sizes, report))
  await checkRefused(client, network, report)
}

type Use = (
  what: TenureOdd['what'],
  message: string,
  fields?: Partial<Pick<TenureOdd, 'address' | 'leaseId' | 'seq'>>,
) => void

async function checkConstraints(client: pg.Client, report: Use): Promise<void> {
  const { rows } = await client.query<{ ended: boolean; open: boolean }>(TENURE_CHECKS.constraints)
  const { ended, open } = rows[0]!
  const missing = (name: string) =>
    report(
      'TENURE_CONSTRAINT_MISSING',
      `table tenure lacks ${name}, or has another of that name: the database refuses no overlap; run ipledger rebuild --tenure`,
    )
  if (!ended) missing('no_two_owners_hold_one_address')
  if (!open) missing('one_address_has_one_open_tenure')
}

/** How far to look. Null: tenure was not begun, or does not follow this log. */
async function begin(
  client: pg.Client,
  network: string,
  report: Use,
): Promise<{ readonly verifiedSeq: number; readonly upto: number } | null> {
  const { rows } = await client.query<{ seq: number; verified_seq: number; known: boolean }>(
    TENURE_CHECKS.position,
    [network],
  )
  const position = rows[0]
  if (position === undefined || position.seq === 0) return null
  if (!position.known) {
    report(
      'TENURE_POSITION_WRONG',
      `tenure was made up to event ${position.seq}, which this log does not have, or has at another time: run ipledger rebuild --tenure`,
      { seq: position.seq },
    )
    return null
  }
  return { verifiedSeq: position.verified_seq, upto: position.seq }
}

type Part = {
  readonly after: number
  readonly last: number
  readonly most: number
  readonly sizes: readonly number[]
}

async function checkSlice(
  client: pg.Client,
  network: string,
  { after, last, most, sizes }: Part,
  report: Use,
): Promise<{ readonly upto: number; readonly boundaries: number }> {
  const bound = await client.query<{ upto: number | null }>(TENURE_STATEMENTS.ahead, [network, after, most])
  const upto = Math.min(bound.rows[0]!.upto ?? last, last)
  const { rows: boundaries } = await client.query<Boundary>(TENURE_STATEMENTS.boundaries, [
    network,
    after,
    upto,
  ])
  const { begun, ended } = foldBoundaries(boundaries)
  const known = new Set(begun.map(({ firstSeq }) => firstSeq))
  const compared = await client.query<BegunRow>(TENURE_CHECKS.begun, [
    network,
    begun.map(({ firstSeq }) => firstSeq),
    begun.map(({ endedSeq }) => endedSeq),
    upto,
  ])
  for (const row of compared.rows) reportBegun(network, row, report)
  if (ended.length > 0) {
    const { rows } = await client.query<{ token: number; ended_seq: number; address: string }>(
      TENURE_CHECKS.ended,
      [network, ended.map(({ token }) => token), ended.map(({ endedSeq }) => endedSeq)],
    )
    for (const { token, ended_seq: seq, address } of rows) {
      const id = leaseId(network, token)
      report(
        'TENURE_DIFFERS',
        `event ${seq} ends the tenure of lease ${id} on ${address}; it is stored otherwise`,
        {
          address: readAddress(address),
          leaseId: id,
          seq,
        },
      )
    }
  }
  await checkRows(client, network, { after, upto, sizes }, known, report)
  return { upto, boundaries: boundaries.length }
}

type BegunRow = {
  first_seq: number
  fencing_token: number
  address: string
  missing: boolean
  refused_for: number | null
  differing: readonly string[]
}

function reportBegun(network: string, row: BegunRow, report: Use): void {
  const { first_seq: seq, fencing_token: token, address, missing, refused_for: other, differing } = row
  // Said with all that were refused.
  if (missing && other !== null) return
  const id = leaseId(network, token)
  const fields = { address: readAddress(address), leaseId: id, seq }
  const about = `the tenure of lease ${id} on ${address} that begins with event ${seq}`
  if (missing) report('TENURE_MISSING', `${about} is not stored`, fields)
  else if (differing.length > 0)
    report('TENURE_DIFFERS', `${about} differs from the log in ${differing.join(', ')}`, fields)
}

type StoredRow = {
  first_seq: number
  fencing_token: number
  address: string
  span: string
  other_token: number | null
  other_address: string
  other_span: string
}

const MOST_BEHIND = 1_000

async function checkRows(
  client: pg.Client,
  network: string,
  {
    after,
    upto,
    sizes,
  }: { readonly after: number; readonly upto: number; readonly sizes: readonly number[] },
  known: ReadonlySet<number> | null,
  report: Use,
): Promise<void> {
  const { rows } = await client.query<StoredRow>(TENURE_CHECKS.rows, [
    network,
    after,
    sizes,
    upto,
    known === null ? MOST_BEHIND : NO_END,
  ])
  for (const row of rows) {
    const { first_seq: seq, fencing_token: token, address, span } = row
    const id = leaseId(network, token)
    const fields = { address: readAddress(address), leaseId: id, seq }
    if (known?.has(seq) !== true)
      report(
        'TENURE_UNEXPLAINED',
        known === null
          ? `a tenure of lease ${id} on ${address} begins with ${seq}, behind the last number that tenure takes account of`
          : `a tenure of lease ${id} on ${address} is stored from number ${seq} on, where no event begins one`,
        fields,
      )
    if (row.other_token !== null)
      report(
        'TENURE_OVERLAPS',
        `two held one address at once: lease ${id} on ${address} over ${span}, and lease ` +
          `${leaseId(network, row.other_token)} on ${row.other_address} over ${row.other_span}`,
        fields,
      )
  }
}

/** The job may have come further meanwhile: behind where it is now. */
async function checkBehind(
  client: pg.Client,
  network: string,
  sizes: readonly number[],
  report: Use,
): Promise<void> {
  const { rows } = await client.query<{ seq: number }>(TENURE_CHECKS.position, [network])
  const seq = rows[0]?.seq ?? 0
  if (seq > 0) await checkRows(client, network, { after: seq, upto: NO_END, sizes }, null, report)
}

async function checkRefused(client: pg.Client, network: string, report: Use): Promise<void> {
  const { rows } = await client.query<Omit<StoredRow, 'first_seq'>>(TENURE_CHECKS.overlaps, [network])
  for (const { fencing_token, address, span, other_token, other_address } of rows) {
    const id = leaseId(network, fencing_token)
    report(
      'TENURE_OVERLAPS',
      `two held one address at once by the log: lease ${id} on ${address} over ${span}, while lease ` +
        `${leaseId(network, other_token!)} held ${other_address}`,
      { address: readAddress(address), leaseId: id },
    )
  }
}

const PARTS_AT_ONCE = 10

/** Those that were not found in order yet, or all. */
export async function checkCheckpoints(
  client: pg.Client,
  network: string,
  options: TenureCheckOptions,
): Promise<void> {
  for (let after: number | null = 0; after !== null; )
    after = await checkNextCheckpoint(client, network, after, options)
}

/** The next one after a number. Null: there is none. */
export async function checkNextCheckpoint(
  client: pg.Client,
  network: string,
  after: number,
  { full, use, signal }: TenureCheckOptions,
): Promise<number | null> {
  const { rows } = await client.query<{ seq: number; leases: number; parts: number; before: number }>(
    TENURE_CHECKS.checkpoints,
    [network, after, full],
  )
  const checkpoint = rows[0]
  if (checkpoint === undefined) return null
  const { seq, leases, parts, before } = checkpoint
  let found = 0
  const report = (why: string, address: string | null = null) => {
    found += 1
    const message = `network ${network}: the checkpoint of its leases at number ${seq} ${why}; run ipledger rebuild --tenure`
    use({ what: 'CHECKPOINT_DIFFERS', message, address, leaseId: null, seq })
  }
  signal?.throwIfAborted()
  const counted = await inSnapshot(client, async () => {
    const { rows } = await client.query<{ leases: number; parts: number; listed: number }>(
      TENURE_CHECKS.held,
      [network, before, seq],
    )
    return rows[0]!
  })
  if (counted.leases !== leases || counted.listed !== leases || counted.parts !== parts)
    report(
      `says ${leases} leases in ${parts} parts and has ${counted.listed} in ${counted.parts}; by the log ${counted.leases} were held`,
    )
  for (let part = 0; part < parts; part += PARTS_AT_ONCE) {
    signal?.throwIfAborted()
    const odd = await inSnapshot(client, () =>
      client.query<{ seq: number; address: string | null }>(TENURE_CHECKS.listed, [
        network,
        seq,
        part,
        part + PARTS_AT_ONCE,
      ]),
    )
    for (const one of odd.rows) {
      const address = one.address === null ? null : readAddress(one.address)
      report(
        `names event ${one.seq} for ${address ?? 'an address'}, which is not its last event there, or not in its place`,
        address,
      )
    }
  }
  const said = found === 0 ? TENURE_CHECKS.checkpointVerified : TENURE_CHECKS.checkpointDiffers
  await client.query(said, [network, seq])
  return seq
}
