/**
 * A past for a network, written straight into its tables because ten million calls would take an hour: what the
 * service would have left behind had it been asked. `held` leases on the pool's first addresses, then reserve and
 * release pairs that go round over the next `churned` ones. Log and projections agree, and `verify` says so.
 *
 * Only for a pool nothing was taken from yet, without a cooldown, whose addresses are one range; and only while
 * nobody writes to its network.
 */
import type pg from 'pg'
import type { Place } from './load.ts'

export type History = {
  readonly held: number
  readonly pairs: number
  /** Addresses the pairs go round over. */
  readonly churned: number
  /** What holds is pods, the first so many of them confirmed, dealt out to so many nodes. Default: containers on 100. */
  readonly pods?: { readonly confirmed: number; readonly nodes: number }
}

/** The owner of the lease on the pool's first address + `k`, where pods hold. */
export function podAt(k: number, nodes: number) {
  return {
    kind: 'pod',
    name: `bench/held-${k}`,
    uid: `00000000-0000-4000-8000-${String(k).padStart(12, '0')}`,
    incarnation: '1',
    interface: 'eth0',
    node: `node-${k % nodes}`,
  } as const
}

/** Who did it, in the log. */
export const HISTORY_ACTOR = 'bench'

const PAIRS_PER_STATEMENT = 100_000

/** Answers the number of events written. */
export async function writeHistory(
  admin: pg.Client,
  place: Place,
  history: History,
  signal: AbortSignal,
): Promise<number> {
  const { held, pairs, churned, pods } = history
  const holders = pods === undefined ? ['container', 0, 100] : ['pod', pods.confirmed, pods.nodes]
  if (held + pairs === 0) return 0
  const { rows } = await admin.query<{ pool_id: number; head: number; first: string; fits: boolean }>(
    `select p.pool_id, (select max(seq) from ipledger.event where network_id = $1) as head,
            host(r.first_address) as first, r.first_address + ($3::bigint - 1) <= r.last_address as fits
       from ipledger.pool p join ipledger.untouched_range r using (network_id, pool_id)
      where p.network_id = $1 and p.name = $2`,
    [place.network, place.pool, held + Math.min(pairs, churned)],
  )
  const [pool, ...more] = rows
  if (pool === undefined || more.length > 0 || !pool.fits)
    throw new Error(`pool ${place.pool} of network ${place.network} cannot have this history`)
  const { pool_id: poolId, head, first } = pool
  const base = [place.network, poolId, head, first] as const

  for (let from = 0; from < held; from += PAIRS_PER_STATEMENT) {
    signal.throwIfAborted()
    await admin.query(HELD_EVENTS, [...base, from, Math.min(held, from + PAIRS_PER_STATEMENT), ...holders])
  }
  await admin.query(LEASES, [place.network, head + 1, head + held])
  const headOfPairs = head + held
  for (let from = 0; from < pairs; from += PAIRS_PER_STATEMENT) {
    signal.throwIfAborted()
    const to = Math.min(pairs, from + PAIRS_PER_STATEMENT)
    await admin.query(PAIR_EVENTS, [...base, from, to, held, churned, headOfPairs])
  }
  const lastHead = headOfPairs + 2 * pairs
  const released = Math.min(pairs, churned)
  await admin.query(RELEASED, [place.network, lastHead - 2 * released + 1])
  await admin.query(RANGE_USED_UP, [place.network, poolId, held + released])
  const active = Math.min(held, pods?.confirmed ?? 0)
  const position = [place.network, poolId, lastHead, first, held + released, held - active, released, active]
  await admin.query(POSITION, position)
  return held + 2 * pairs
}

/** Autovacuum and a checkpoint would come in the middle of a run for what was written here; now they need not. */
export async function settle(admin: pg.Client): Promise<void> {
  await admin.query(
    'vacuum (analyze) ipledger.event, ipledger.lease, ipledger.released_address, ipledger.untouched_range, ipledger.pool_position',
  )
  const { rows } = await admin.query<{ may: boolean }>(
    `select pg_has_role(current_user, 'pg_checkpoint', 'usage') as may`,
  )
  if (rows[0]!.may) await admin.query('checkpoint')
}

const COLUMNS = `network_id, seq, type, at, actor, cause, pool_id, address, prefix_length, fencing_token, state,
  owner_kind, owner_name, owner_uid, owner_uid_named, owner_incarnation, owner_interface, node, boot, labels, witness,
  reserved_at, confirmed_at, available_at, removal_confirmed`

/** Whole milliseconds, as the ledger has them. */
const CLOCK = `(select date_trunc('milliseconds', statement_timestamp()) as at) clock`

const HELD_EVENTS = `insert into ipledger.event (${COLUMNS})
  select $1, $3::bigint + 1 + k, 'lease.reserved', clock.at, '${HISTORY_ACTOR}', 'Reserve', $2::bigint, $4::inet + k,
         masklen($4::inet), $3::bigint + 1 + k, case when k < $8::bigint then 'ACTIVE' else 'RESERVED' end, $7::text,
         'bench/held-' || k, case $7 when 'pod' then '00000000-0000-4000-8000-' || lpad(k::text, 12, '0') else 'held-' || k end,
         true, '1', 'eth0', 'node-' || k % $9::bigint, '', '{}', '', clock.at, case when k < $8 then clock.at end, null, null
    from ${CLOCK}, generate_series($5::bigint, $6::bigint - 1) as k order by k`

const PAIR_EVENTS = `insert into ipledger.event (${COLUMNS})
  select $1, $9::bigint + 1 + 2 * k + step, case step when 0 then 'lease.reserved' else 'lease.released' end, clock.at,
         '${HISTORY_ACTOR}', case step when 0 then 'Reserve' else 'Release' end, $2::bigint, $4::inet + ($7::bigint + k % $8::bigint),
         masklen($4::inet), $9::bigint + 1 + 2 * k, 'RESERVED', 'container', 'bench/past-' || k, 'past-' || k, true, '',
         'eth0', 'node-' || k % 100, '', '{}', '', clock.at, null, case step when 1 then clock.at end,
         case step when 1 then true end
    from ${CLOCK}, generate_series($5::bigint, $6::bigint - 1) as k, generate_series(0, 1) as step
   where $3::bigint is not null order by k, step`

const LEASES = `insert into ipledger.lease
    (network_id, address, prefix_length, pool_id, fencing_token, version, state, owner_kind, owner_name, owner_uid,
     owner_uid_named, owner_incarnation, owner_interface, holder_key, attachment_key, node, boot, labels, witness,
     reserved_at, confirmed_at)
  select network_id, address, prefix_length, pool_id, fencing_token, seq, state, owner_kind, owner_name, owner_uid,
         owner_uid_named, owner_incarnation, owner_interface, owner_kind || '|' || owner_interface || '|' || owner_name,
         owner_kind || '|' || owner_interface || '|' || owner_incarnation || '|' || owner_uid, node, boot, labels,
         witness, reserved_at, confirmed_at
    from ipledger.event where network_id = $1 and seq between $2 and $3 order by seq`

const RELEASED = `insert into ipledger.released_address
    (network_id, address, pool_id, prefix_length, available_at, released_seq, holder_key, removal_confirmed)
  select network_id, address, pool_id, prefix_length, available_at, seq,
         owner_kind || '|' || owner_interface || '|' || owner_name, removal_confirmed
    from ipledger.event where network_id = $1 and seq >= $2 and type = 'lease.released' order by seq`

const RANGE_USED_UP = `delete from ipledger.untouched_range
  where network_id = $1 and pool_id = $2 and first_address + $3::bigint > last_address`

const POSITION = `insert into ipledger.pool_position
    (network_id, pool_id, seq, low_first, cursor_first, cursor_next, reuse_after, reserved, active, quarantined, released)
  select $1, $2, $3::bigint, $4::inet, r.first_address, case when r.first_address is not null then $4::inet + $5::bigint end,
         (select min(available_at) from ipledger.released_address where network_id = $1 and pool_id = $2), $6, $8, 0, $7
    from (select 1) as one
    left join ipledger.untouched_range r on r.network_id = $1 and r.pool_id = $2`
