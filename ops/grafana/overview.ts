/** Is anything wrong, and where: what a person on call opens first. */
import { TO_ADDRESS, TO_LEASE, TO_OWNER, TO_POOL, TO_SOURCES } from './links.ts'
import { METRICS } from './metrics.ts'
import { bars, FULLNESS, NONE_IS_RIGHT, series, stat, TIME_LEFT, table } from './panels.ts'
import { FROM, IN_NETWORKS, NETWORKS, promql, promqlNow, sql, sqlSeries, TO } from './queries.ts'
import { dashboard, NETWORK_VARIABLE } from './sheet.ts'

export const overview = dashboard({
  target: 'overview',
  title: 'Overview',
  about:
    'Every network at once: conflicts, quarantines, holds, what is reaped and why, how full pools are and for how long, how far logs are verified.',
  variables: [{ ...NETWORK_VARIABLE, many: true }],
  marked: true,
  rows: [
    {
      title: 'Now',
      panels: [
        stat({
          title: 'Conflicts',
          help: {
            shows: 'Addresses at which a source lists another workload than the one that holds them.',
            normal: 'none. Each is two workloads on one address, now.',
            act: 'Open the table of conflicts below, and from there the address.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as conflicts
              from ipledger_audit.quarantines
             where network = ${NETWORKS} and quarantine_reason = 'CONFLICT'`),
        }),
        stat({
          title: 'Holds',
          help: {
            shows:
              'Holds in force: a network in which nothing is taken back until the hold ends or an operator resumes it.',
            normal: 'none.',
            act: 'Sources and reconciliation says which and why. Find the cause before you resume.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as holds
              from ipledger_audit.holds
             where network = ${NETWORKS}`),
          link: { to: 'sources', title: 'Holds and their reasons', with: { network: '$network' } },
        }),
        stat({
          title: 'Quarantined',
          help: {
            shows: 'Leases that ipledger holds itself because the log and what sources list disagree.',
            normal: 'a few that come and go. Each costs an address and no more.',
            act: 'If it grows, look at the reasons below: one reason that grows points at one cause.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: {
            base: 'green',
            from: [
              [10, 'yellow'],
              [100, 'red'],
            ],
          },
          query: sql(`
            select count(*) as quarantined
              from ipledger_audit.quarantines
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Silent sources',
          help: {
            shows: 'Enabled sources that have not reported for two of their intervals.',
            normal: 'none. A silent source frees nothing; its leases are kept until it speaks again.',
            act: 'Look at the node or the agent. Do not retire the source to get rid of the alarm: it is what keeps live addresses.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as silent
              from ipledger_audit.sources
             where network = ${NETWORKS} and status = 'silent'`),
          link: { to: 'sources', title: 'Sources', with: { network: '$network' } },
        }),
        stat({
          title: 'Fullest pool',
          help: {
            shows: 'The share of the fullest pool that is held, of what it may hand out.',
            normal: 'below 80 %.',
            act: 'Open the pool. A crash loop or a growing quarantine fills it as well as real use does.',
          },
          width: 3,
          height: 4,
          unit: 'percentunit',
          steps: FULLNESS,
          query: sql(`
            select max(used_ratio) as used
              from ipledger_audit.pool_usage
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'First pool to run out',
          help: {
            shows: 'Time until the first pool has no free address, if the last hour goes on.',
            normal: 'none is running out, or days.',
            act: 'Below a day: make the pool larger, or find who takes so much. Below an hour: both, now.',
          },
          width: 3,
          height: 4,
          unit: 'dtdurations',
          steps: TIME_LEFT,
          none: 'none does',
          query: sql(`
            select extract(epoch from min(exhausted_in))::float8 as runs_out_in
              from ipledger_audit.pool_forecast
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Reaps in the time range',
          help: {
            shows:
              'Leases that ipledger took back by itself, on proof or because a promise to confirm was broken.',
            normal: 'follows how often workloads die without releasing.',
            act: 'A jump without crashes behind it: look at the causes and at the sources that proved them.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: { base: 'text', from: [] },
          query: sql(`
            select count(distinct (network, seq)) as reaps
              from ipledger_audit.reaps(${FROM}, ${TO})
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Networks not ready',
          help: {
            shows: 'Networks that recover after a new era.',
            normal: 'none. Such a network hands out nothing until its sources have reported.',
            act: 'Sources and reconciliation says which source has not reported in this era.',
          },
          width: 3,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(
            `sum(max by (network) (${METRICS.networkState}{state!="READY", ${IN_NETWORKS}}))`,
            'not ready',
          ),
        }),
      ],
    },
    {
      title: 'Pools',
      panels: [
        series({
          title: 'Used share of each pool',
          help: {
            shows: 'Held leases as a share of what a pool may hand out, from samples of a minute.',
            normal: 'flat, or following the day.',
            act: 'A line that climbs without coming back leaks: open the pool and look at its owners.',
          },
          width: 12,
          height: 9,
          unit: 'percentunit',
          max: 1,
          steps: FULLNESS,
          queries: [
            sqlSeries(`
              select $__timeGroupAlias(h.at, $__interval), u.network || ' ' || u.pool as metric, max(h.used_ratio) as value
                from ipledger_audit.pool_usage u
               cross join lateral ipledger_audit.pool_usage_history(u.network, u.pool, ${FROM}, ${TO}) h
               where u.network = ${NETWORKS}
               group by 1, 2
               order by 1, 2`),
          ],
        }),
        table({
          title: 'Pools, the fullest first',
          help: {
            shows:
              'Every pool, counted once a minute; free + cooling + reserved + active + quarantined + excluded is its size.',
            normal: 'runs out: empty, or more than a day.',
            act: 'Follow the name of the pool.',
          },
          width: 12,
          height: 9,
          query: sql(`
            select u.network, u.pool, u.cidr::text as cidr, u.used_ratio, u.size, u.free, u.cooling, u.reserved, u.active,
                   u.quarantined, u.excluded, extract(epoch from f.exhausted_in)::float8 as exhausted_in,
                   case when u.draining then 'draining' else '' end as draining
              from ipledger_audit.pool_usage u
              left join ipledger_audit.pool_forecast f on f.network = u.network and f.pool = u.pool
             where u.network = ${NETWORKS}
             order by u.used_ratio desc, u.network, u.pool`),
          columns: {
            network: { title: 'Network' },
            pool: { title: 'Pool', links: [TO_POOL] },
            cidr: { title: 'CIDR' },
            used_ratio: {
              title: 'Used',
              unit: 'percentunit',
              steps: FULLNESS,
              look: 'gauge',
              range: [0, 1],
              width: 130,
            },
            size: { title: 'Size', unit: 'short' },
            free: { title: 'Free', unit: 'short' },
            cooling: { title: 'Cooling', unit: 'short' },
            reserved: { title: 'Reserved', unit: 'short' },
            active: { title: 'Active', unit: 'short' },
            quarantined: { title: 'Quarantined', unit: 'short' },
            excluded: { title: 'Excluded', unit: 'short' },
            exhausted_in: { title: 'Runs out in', unit: 'dtdurations', steps: TIME_LEFT },
            draining: { title: '' },
          },
        }),
      ],
    },
    {
      title: 'What happens',
      panels: [
        series({
          title: 'Events a second',
          help: {
            shows: 'Rate of events by type, of all processes.',
            normal: 'reserved and released go together.',
            act: 'Reserved without released fills a pool; quarantined and adopted mean that the log and the world disagreed.',
          },
          width: 12,
          height: 8,
          unit: 'ops',
          queries: [
            promql(`sum by (type) (rate(${METRICS.events}{${IN_NETWORKS}}[$__rate_interval]))`, '{{type}}'),
          ],
        }),
        series({
          title: 'Reaps by cause',
          help: {
            shows: 'Leases taken back, by what they were taken back for.',
            normal: 'few; PROVEN_ABSENT follows workloads that died without a release.',
            act: 'Follow a mark or the table below to one address, and read its proof.',
          },
          width: 12,
          height: 8,
          unit: 'short',
          draw: 'bars',
          maxDataPoints: 120,
          queries: [
            sqlSeries(`
              select $__timeGroupAlias(at, $__interval), cause as metric, count(distinct (network, seq))::float8 as value
                from ipledger_audit.reaps(${FROM}, ${TO})
               where network = ${NETWORKS}
               group by 1, 2
               order by 1, 2`),
          ],
        }),
        series({
          title: 'Quarantined leases by reason',
          help: {
            shows: 'How many leases are in quarantine, by reason.',
            normal: 'each ends by itself, but for OPERATOR.',
            act: 'SUPERSEDED and REMOVAL_UNCONFIRMED that stay: nodes do not confirm removals. FOREIGN: somebody else hands out addresses here.',
          },
          width: 8,
          height: 8,
          unit: 'short',
          draw: 'areas',
          queries: [
            promql(
              `sum by (reason) (max by (network, reason) (${METRICS.quarantinedLeases}{${IN_NETWORKS}}))`,
              '{{reason}}',
            ),
          ],
        }),
        bars({
          title: 'Quarantined now by reason',
          help: {
            shows: 'The same now, read from the database.',
            normal: 'empty, or a few.',
            act: 'The table of quarantines says what ends each.',
          },
          width: 4,
          height: 8,
          unit: 'short',
          steps: {
            base: 'green',
            from: [
              [10, 'yellow'],
              [100, 'red'],
            ],
          },
          query: sql(`
            select quarantine_reason as metric, count(*) as value
              from ipledger_audit.quarantines
             where network = ${NETWORKS}
             group by quarantine_reason
             order by value desc, metric`),
        }),
        series({
          title: 'Source lag, in intervals of the source',
          help: {
            shows: 'How long ago each source last reported, in its own intervals.',
            normal: 'below 2.',
            act: 'Above 2 a source is silent and blocks every proof that needs it. Look at its node or agent.',
          },
          width: 12,
          height: 8,
          unit: 'none',
          steps: {
            base: 'green',
            from: [
              [1.5, 'yellow'],
              [2, 'red'],
            ],
          },
          queries: [
            promql(
              `
                max by (network, source) (${METRICS.sourceLag}{${IN_NETWORKS}})
                  / max by (network, source) (${METRICS.sourceInterval}{${IN_NETWORKS}})`,
              '{{network}} {{source}}',
            ),
          ],
        }),
      ],
    },
    {
      title: 'Address by address',
      panels: [
        table({
          title: 'Conflicts, the latest first',
          help: {
            shows: 'Addresses held in conflict, and which source found another there than the holder.',
            normal: 'empty.',
            act: 'Follow the address. Stop the workload that should not be there. The address stays quarantined until every owner there is proven gone, or an operator reaps it.',
          },
          width: 24,
          height: 6,
          query: sql(`
            select quarantined_at as since, network, abbrev(address) as address, pool, lease_id as lease, owner_name as owner, node,
                   quarantined_by as seen_by, quarantine_why as what
              from ipledger_audit.quarantines
             where network = ${NETWORKS} and quarantine_reason = 'CONFLICT'
             order by quarantined_at desc
             limit 200`),
          columns: {
            since: { title: 'Since', width: 170 },
            network: { title: 'Network', width: 100 },
            address: { title: 'Address', links: [TO_ADDRESS] },
            pool: { title: 'Pool', links: [TO_POOL] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Holder', links: [TO_OWNER] },
            node: { title: 'Node' },
            seen_by: { title: 'Seen by' },
            what: { title: 'What', look: 'wrapped' },
          },
        }),
        table({
          title: 'Reaps, the latest first',
          help: {
            shows: 'Every reap with its proof, a line for each source that testified.',
            normal: 'each with a source, misses and a look-up that answered gone.',
            act: 'Follow the address, then its owner. If the workload lived, quote the lease in a report: the proof stays in the log.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select at, network, abbrev(address) as address, pool, lease_id as lease, owner_name as owner, node, cause, source,
                   why, misses, lookup_answer, last_sighted_at
              from ipledger_audit.reaps(${FROM}, ${TO})
             where network = ${NETWORKS}
             order by at desc, seq desc, source
             limit 500`),
          columns: {
            at: { title: 'At', width: 170 },
            network: { title: 'Network', width: 100 },
            address: { title: 'Address', links: [TO_ADDRESS] },
            pool: { title: 'Pool', links: [TO_POOL] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Owner', links: [TO_OWNER] },
            node: { title: 'Node' },
            cause: { title: 'Cause' },
            source: { title: 'Source', links: [TO_SOURCES] },
            why: { title: 'Witness by' },
            misses: { title: 'Misses', unit: 'short' },
            lookup_answer: { title: 'Look-up' },
            last_sighted_at: { title: 'Last seen' },
          },
        }),
        table({
          title: 'Quarantines, the oldest first',
          help: {
            shows: 'What is held in quarantine, and what ends it.',
            normal: 'minutes old.',
            act: 'Hours old: look at the suspects and what needs attention. Do not reap by hand what a source may still see.',
          },
          width: 14,
          height: 9,
          query: sql(`
            select extract(epoch from age)::float8 as age, network, abbrev(address) as address, pool, lease_id as lease,
                   owner_name as owner, quarantine_reason as reason, exit as ends
              from ipledger_audit.quarantines
             where network = ${NETWORKS}
             order by quarantines.age desc
             limit 500`),
          columns: {
            age: {
              title: 'Age',
              unit: 'dtdurations',
              width: 110,
              steps: {
                base: 'green',
                from: [
                  [3_600, 'yellow'],
                  [86_400, 'red'],
                ],
              },
            },
            network: { title: 'Network', width: 100 },
            address: { title: 'Address', links: [TO_ADDRESS] },
            pool: { title: 'Pool', links: [TO_POOL] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Holder', links: [TO_OWNER] },
            reason: { title: 'Reason' },
            ends: { title: 'Ends by', look: 'wrapped' },
          },
        }),
        table({
          title: 'Crash loops',
          help: {
            shows: 'Owners with five lives or more within the last 15 minutes: each life takes an address.',
            normal: 'empty.',
            act: 'Stop or mend the workload before its pool is empty; the owner limit only slows it.',
          },
          width: 10,
          height: 9,
          query: sql(`
            select network, pool, owner_kind as kind, owner_name as owner, lives, addresses, held_now, last_at
              from ipledger_audit.crash_loops
             where network = ${NETWORKS}
             order by lives desc
             limit 200`),
          columns: {
            network: { title: 'Network', width: 100 },
            pool: { title: 'Pool', links: [TO_POOL] },
            kind: { title: 'Kind' },
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
            lives: { title: 'Lives', unit: 'short' },
            addresses: { title: 'Addresses', unit: 'short' },
            held_now: { title: 'Held now', unit: 'short' },
            last_at: { title: 'Last' },
          },
        }),
      ],
    },
    {
      title: 'The log',
      panels: [
        table({
          title: 'How far each log is verified',
          help: {
            shows:
              'Each network: its era, the number of its last event, and up to which number the chain of digests and the tables were verified.',
            normal: 'verified within the last hour, no findings.',
            act: 'Findings: follow the runbook of IpledgerVerifyFailed. A digest kept elsewhere finds a missing tail: `ipledger verify --against`.',
          },
          width: 24,
          height: 6,
          query: sql(`
            select n.network, n.state, n.era, n.head, v.looked_up_to, v.now_at, v.all_looked_at, v.findings, v.digest
              from ipledger_audit.network n
              left join ipledger_audit.verification v on v.network = n.network
             where n.network = ${NETWORKS}
             order by v.all_looked_at nulls first, n.network`),
          columns: {
            network: { title: 'Network', width: 140 },
            state: { title: 'State', width: 120 },
            era: { title: 'Era', unit: 'none', decimals: 0, width: 70 },
            head: { title: 'Last event', unit: 'none', decimals: 0 },
            looked_up_to: { title: 'Verified up to', unit: 'none', decimals: 0 },
            now_at: { title: 'Now at' },
            all_looked_at: { title: 'All of it at', width: 170 },
            findings: { title: 'Findings', unit: 'none', decimals: 0, steps: NONE_IS_RIGHT },
            digest: { title: 'Digest up to there' },
          },
        }),
      ],
    },
  ],
})
