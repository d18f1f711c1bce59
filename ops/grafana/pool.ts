/** One pool: how full it is, its owners, and where in its address space. */
import { TO_ADDRESS, TO_LEASE, TO_OWNER } from './links.ts'
import { type Column, DENSITY, FULLNESS, STATE_COLOURS, series, stat, TIME_LEFT, table } from './panels.ts'
import { FROM, NETWORK, POOL, sql, sqlSeries, TO } from './queries.ts'
import { dashboard, NETWORK_VARIABLE } from './sheet.ts'

/** A row of the map has so many cells; pool_map has at most 16 rows of them. */
const CELLS = Array.from({ length: 16 }, (_, cell) => cell)

const CELL: Column = { unit: 'percentunit', look: 'coloured', steps: DENSITY, decimals: 0, width: 62 }

export const pool = dashboard({
  target: 'pool',
  title: 'Pool',
  about: 'One pool: its use over time by state, its forecast, who takes from it, and a map of its addresses.',
  variables: [
    NETWORK_VARIABLE,
    {
      name: 'pool',
      label: 'Pool',
      about: 'Pools of the network.',
      from: 'postgresql',
      query: `select pool from ipledger_audit.pool where network = ${NETWORK} order by pool`,
      many: false,
    },
  ],
  marked: true,
  rows: [
    {
      title: 'Now',
      panels: [
        stat({
          title: 'Leases',
          help: {
            shows: 'What the pool is made of: the six add up to its size, always.',
            normal: 'most are free or active.',
            act: 'Many reserved: callers do not confirm. Many cooling: churn. Many quarantined: see the table at the end.',
          },
          width: 15,
          height: 4,
          unit: 'short',
          steps: { base: 'text', from: [] },
          columns: true,
          query: sql(`
            select size, free, cooling, reserved, active, quarantined, excluded
              from ipledger_audit.pool_usage
             where network = ${NETWORK} and pool = ${POOL}`),
        }),
        stat({
          title: 'Used',
          help: {
            shows: 'Held leases, as a share of what the pool may hand out.',
            normal: 'below 80 %.',
            act: 'Above: look at the forecast beside it, and at the owners below.',
          },
          width: 3,
          height: 4,
          unit: 'percentunit',
          steps: FULLNESS,
          query: sql(`
            select used_ratio
              from ipledger_audit.pool_usage
             where network = ${NETWORK} and pool = ${POOL}`),
        }),
        stat({
          title: 'Runs out in',
          help: {
            shows: 'Time until no address is free, if the last hour goes on: free addresses by the net rate.',
            normal: 'it does not, or days.',
            act: 'Below a day: make it larger or find who takes so much.',
          },
          width: 3,
          height: 4,
          unit: 'dtdurations',
          steps: TIME_LEFT,
          none: 'it does not',
          query: sql(`
            select extract(epoch from exhausted_in)::float8 as runs_out_in
              from ipledger_audit.pool_forecast
             where network = ${NETWORK} and pool = ${POOL}`),
        }),
        stat({
          title: 'Net leases an hour',
          help: {
            shows:
              'By how many held and cooling leases grew within the last hour of samples, by least squares.',
            normal: 'around nothing.',
            act: 'Growing without growth of what runs: leases are not released.',
          },
          width: 3,
          height: 4,
          unit: 'none',
          steps: { base: 'text', from: [] },
          query: sql(`
            select leases_per_hour
              from ipledger_audit.pool_forecast
             where network = ${NETWORK} and pool = ${POOL}`),
        }),
      ],
    },
    {
      title: 'Over time',
      panels: [
        series({
          title: 'Leases by state',
          help: {
            shows:
              'Held and cooling leases, stacked, and the line that they must not reach: what may be handed out at all (left out of pools of more than 2^24).',
            normal: 'well below the line.',
            act: 'Look which colour grows: active is use, reserved is callers that do not confirm, quarantined is doubt.',
          },
          width: 14,
          height: 9,
          unit: 'short',
          draw: 'areas',
          colours: { ...STATE_COLOURS, allocatable: 'text' },
          limit: 'allocatable',
          queries: [
            sql(
              `
              select $__timeGroupAlias(at, $__interval), max(active)::float8 as active, max(reserved)::float8 as reserved,
                     max(quarantined)::float8 as quarantined, max(cooling)::float8 as cooling,
                     max(case when allocatable <= 16777216 then allocatable end)::float8 as allocatable
                from ipledger_audit.pool_usage_history(${NETWORK}, ${POOL}, ${FROM}, ${TO})
               group by 1
               order by 1`,
              'time_series',
            ),
          ],
        }),
        series({
          title: 'Churn',
          help: {
            shows: 'Leases of the pool that began and ended, in each part of the time range.',
            normal: 'reserved is about released and reaped together.',
            act: 'Adopted or quarantined: the log and the world disagreed there. Follow a mark to the address.',
          },
          width: 10,
          height: 9,
          unit: 'short',
          draw: 'bars',
          maxDataPoints: 48,
          colours: {
            reserved: 'green',
            released: 'blue',
            reaped: 'orange',
            adopted: 'purple',
            quarantined: 'red',
          },
          queries: [
            sqlSeries(`
              select date_bin(step, l.at, 'epoch'::timestamptz) as time, split_part(l.type, '.', 2) as metric, count(*)::float8 as value
                from make_interval(secs => $__interval_ms / 1000.0) as step
               cross join lateral ipledger_audit.events_between(${NETWORK}, date_bin(step, ${FROM}, 'epoch'::timestamptz), ${TO}) l
                join ipledger_audit.pool_names p on p.network = ${NETWORK} and p.pool_id = l.pool_id
               where p.pool = ${POOL}
                 and l.type in ('lease.reserved', 'lease.released', 'lease.reaped', 'lease.adopted', 'lease.quarantined')
               group by 1, 2
               order by 1, 2`),
          ],
        }),
      ],
    },
    {
      title: 'Where',
      panels: [
        table({
          title: 'Map of the address space',
          help: {
            shows:
              'The pool in order, 16 parts a row: of each, the share that is held or cooling. The first column is the first address of the row; "a part" says how many leases fit in one.',
            normal: 'filled from the beginning, longest-free first after that.',
            act: 'A dense part with the rest empty is what named addresses or a small claim look like. Excluded addresses count as free here.',
          },
          width: 24,
          height: 14,
          query: sql(`
            select min(abbrev(first_address)) filter (where part % 16 = 0) as first_address, min(size)::float8 as size,
                   ${CELLS.map((cell) => `max(used_ratio) filter (where part % 16 = ${cell}) as c${String(cell).padStart(2, '0')}`).join(',\n                   ')}
              from ipledger_audit.pool_map
             where network = ${NETWORK} and pool = ${POOL}
             group by part / 16
             order by part / 16`),
          columns: {
            first_address: { title: 'From', width: 200 },
            size: { title: 'a part', unit: 'short', width: 90 },
            ...Object.fromEntries(
              CELLS.map((cell) => [
                `c${String(cell).padStart(2, '0')}`,
                { ...CELL, title: `+${cell.toString(16)}` },
              ]),
            ),
          },
        }),
      ],
    },
    {
      title: 'Who',
      panels: [
        table({
          title: 'Who holds most, at the end of the time range',
          help: {
            shows:
              'Owners by the leases of this pool that they held at the end of the time range, quarantined ones counted.',
            normal: 'one a workload, more for several interfaces.',
            act: 'An owner at its limit loops or leaks: follow its name.',
          },
          width: 12,
          height: 10,
          query: sql(`
            select ${NETWORK} as network, owner_kind as kind, owner_name as owner, count(*) as leases,
                   count(*) filter (where state = 'QUARANTINED') as quarantined, min(reserved_at) as oldest
              from ipledger_audit.leases_as_of(${NETWORK}, ${TO})
             where pool = ${POOL}
             group by owner_kind, owner_name
             order by leases desc, owner_name
             limit 50`),
          columns: {
            network: { hidden: true },
            kind: { title: 'Kind', width: 110 },
            owner: {
              title: 'Owner',
              links: [
                {
                  to: 'address',
                  title: 'The owner: every address it held',
                  with: { network: 'network', owner: 'owner' },
                },
              ],
            },
            leases: {
              title: 'Leases',
              unit: 'short',
              steps: {
                base: 'green',
                from: [
                  [3, 'yellow'],
                  [4, 'red'],
                ],
              },
            },
            quarantined: { title: 'Quarantined', unit: 'short' },
            oldest: { title: 'Oldest since' },
          },
        }),
        table({
          title: 'Who takes and gives back most, in the whole network',
          help: {
            shows:
              'Owners and nodes by what they reserved and gave back within the last hour of the time range.',
            normal: 'many small ones.',
            act: 'One owner far above the others is a crash loop; one node is a sick node.',
          },
          width: 12,
          height: 10,
          query: sql(`
            select network, "by" as kind, key, reserved, released, reaped, adopted, quarantined
              from ipledger_audit.churn(greatest(${FROM}, ${TO} - interval '1 hour'), ${TO})
             where network = ${NETWORK} and "by" in ('owner', 'node')
             order by reserved desc, key
             limit 50`),
          columns: {
            network: { hidden: true },
            kind: { title: 'Of', width: 80 },
            key: { title: 'Name' },
            reserved: { title: 'Reserved', unit: 'short' },
            released: { title: 'Released', unit: 'short' },
            reaped: { title: 'Reaped', unit: 'short' },
            adopted: { title: 'Adopted', unit: 'short' },
            quarantined: { title: 'Quarantined', unit: 'short' },
          },
        }),
        table({
          title: 'Quarantined in this pool',
          help: {
            shows: 'What is held in quarantine, why, and what ends it.',
            normal: 'empty, or minutes old.',
            act: 'Follow the address for the whole story.',
          },
          width: 24,
          height: 8,
          query: sql(`
            select quarantined_at as since, network, abbrev(address) as address, lease_id as lease, owner_name as owner, node,
                   quarantine_reason as reason, quarantine_why as why, exit as ends
              from ipledger_audit.quarantines
             where network = ${NETWORK} and pool = ${POOL}
             order by quarantined_at
             limit 500`),
          columns: {
            since: { title: 'Since', width: 170 },
            network: { hidden: true },
            address: { title: 'Address', links: [TO_ADDRESS] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Holder', links: [TO_OWNER] },
            node: { title: 'Node' },
            reason: { title: 'Reason' },
            why: { title: 'Why', look: 'wrapped' },
            ends: { title: 'Ends by', look: 'wrapped' },
          },
        }),
      ],
    },
  ],
})
