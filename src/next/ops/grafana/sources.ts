/** Who says what is alive, whether it can be relied on, and what ipledger concludes from it. */
import { TO_ADDRESS, TO_LEASE, TO_OWNER } from './links.ts'
import { METRICS } from './metrics.ts'
import { bars, NONE_IS_RIGHT, series, stat, table } from './panels.ts'
import { FROM, IN_NETWORKS, IN_SOURCES, NETWORKS, promql, SOURCES, sql, TO } from './queries.ts'
import { dashboard, NETWORK_VARIABLE } from './sheet.ts'

export const sources = dashboard({
  target: 'sources',
  title: 'Sources and reconciliation',
  about:
    'Sources by lag and completeness, what is suspected and what blocks it, holds and fences, look-ups and their answers.',
  variables: [
    { ...NETWORK_VARIABLE, many: true },
    {
      name: 'source',
      label: 'Source',
      about: 'Sources of these networks, retired ones too.',
      from: 'postgresql',
      query: `select distinct source from ipledger_audit.sources where network = ${NETWORKS} order by source`,
      many: true,
    },
  ],
  marked: true,
  rows: [
    {
      title: 'Now',
      panels: [
        stat({
          title: 'Silent',
          tells: {
            shows: 'Enabled sources that have not reported for three of their intervals.',
            normal: 'none.',
            act: 'Look at the node or agent of the source in the table below.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as silent
              from ipledger_audit.sources
             where network = ${NETWORKS} and source = ${SOURCES} and state = 'ENABLED' and lag > 3 * "interval"`),
        }),
        stat({
          title: 'Partial',
          tells: {
            shows: 'Enabled sources whose last report was not complete: it protects, and proves nothing.',
            normal: 'none, or one that has just started.',
            act: 'The table says what made it partial. An agent without a token, an entry that cannot be read, a gap.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as partial
              from ipledger_audit.sources
             where network = ${NETWORKS} and source = ${SOURCES} and state = 'ENABLED' and cardinality(partial_because) > 0`),
        }),
        stat({
          title: 'Held',
          tells: {
            shows:
              'Holds on a source or on the whole network: proofs of absence reap nothing until an operator resumes.',
            normal: 'none.',
            act: 'Read why below. Resume only after you know why so much vanished at once.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as held
              from ipledger_audit.holds
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Suspects',
          tells: {
            shows: 'Leases whose workload a source no longer lists, and which are being asked after.',
            normal: 'a few, for a minute or two.',
            act: 'Many that stay: see below which witness blocks them.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: {
            base: 'green',
            from: [
              [50, 'yellow'],
              [500, 'red'],
            ],
          },
          query: sql(`
            select count(*) as suspects
              from ipledger_audit.suspects
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Stuck',
          tells: {
            shows: 'What waits for a person: everything that ipledger cannot end by itself.',
            normal: 'none.',
            act: 'Each line of the table says what it waits for.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as stuck
              from ipledger_audit.stuck
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Fenced boots',
          tells: {
            shows: 'Boots of nodes that somebody vouched are over.',
            normal: 'none, or nodes that really are gone.',
            act: 'If one of them reports again, its addresses were in use: an incident.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: { base: 'text', from: [] },
          query: sql(`
            select count(*) as fenced
              from ipledger_audit.fences
             where network = ${NETWORKS}`),
        }),
      ],
    },
    {
      title: 'Sources',
      panels: [
        table({
          title: 'Sources, the longest silent first',
          tells: {
            shows:
              'Each source: when it last reported, whether completely, in which life (epoch) and era, and how many it lists.',
            normal: 'lag below its interval, complete, warm, of the present era.',
            act: 'Not warm for long: it restarts again and again. An older era: it has not been heard since a restore, and its network waits for it.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select network, source, kind, node, state, extract(epoch from lag)::float8 as lag,
                   extract(epoch from "interval")::float8 as every, (extract(epoch from lag) / extract(epoch from "interval"))::float8 as intervals,
                   extract(epoch from complete_lag)::float8 as complete_lag, listed, warm, held, era, sequence, epoch,
                   array_to_string(partial_because, ', ') as partial_because, looks
              from ipledger_audit.sources
             where network = ${NETWORKS} and source = ${SOURCES}
             order by lag desc nulls first, source`),
          columns: {
            network: { title: 'Network', width: 100 },
            source: { title: 'Source' },
            kind: { title: 'Kind' },
            node: { title: 'Node' },
            state: { title: 'State' },
            lag: { title: 'Lag', unit: 's' },
            every: { title: 'Interval', unit: 's' },
            intervals: {
              title: 'in intervals',
              unit: 'none',
              decimals: 1,
              steps: {
                base: 'green',
                from: [
                  [2, 'yellow'],
                  [3, 'red'],
                ],
              },
            },
            complete_lag: { title: 'Complete', unit: 's' },
            listed: { title: 'Listed', unit: 'short' },
            warm: { title: 'Warm' },
            held: { title: 'Held' },
            era: { title: 'Era', unit: 'none', decimals: 0 },
            sequence: { title: 'Snapshot', unit: 'none', decimals: 0 },
            epoch: { title: 'Epoch' },
            partial_because: { title: 'Partial because', look: 'wrapped' },
            looks: { title: 'Last failure', look: 'wrapped' },
          },
        }),
        series({
          title: 'Lag, in intervals of the source',
          tells: {
            shows: 'How long ago each source last reported, in its own intervals.',
            normal: 'a saw between 0 and 1.',
            act: 'Above 3 it is silent and blocks every proof that needs it.',
          },
          width: 12,
          height: 8,
          unit: 'none',
          steps: {
            base: 'green',
            from: [
              [2, 'yellow'],
              [3, 'red'],
            ],
          },
          queries: [
            promql(
              `
                max by (network, source) (${METRICS.sourceLag}{${IN_NETWORKS}, ${IN_SOURCES}})
                  / max by (network, source) (${METRICS.sourceInterval}{${IN_NETWORKS}, ${IN_SOURCES}})`,
              '{{network}} {{source}}',
            ),
          ],
        }),
        series({
          title: 'Reports a second, complete and not',
          tells: {
            shows: 'Snapshots that were taken in, by whether they were complete.',
            normal: 'all complete, as many as there are sources by their interval.',
            act: 'Partial ones that go on: the table above says why.',
          },
          width: 12,
          height: 8,
          unit: 'ops',
          queries: [
            promql(
              `sum by (complete) (rate(${METRICS.reports}{${IN_NETWORKS}}[$__rate_interval]))`,
              'complete: {{complete}}',
            ),
          ],
        }),
      ],
    },
    {
      title: 'What is concluded',
      panels: [
        series({
          title: 'Look-ups a second, by answer',
          tells: {
            shows: 'What sources answered when they were asked after one workload.',
            normal: 'gone and live.',
            act: 'Error and unanswered mean alive and block every proof: mend the source, its token or its network.',
          },
          width: 12,
          height: 8,
          unit: 'ops',
          colours: {
            gone: 'blue',
            live: 'green',
            terminal: 'purple',
            unknown: 'orange',
            error: 'red',
            unanswered: 'red',
          },
          queries: [promql(`sum by (answer) (rate(${METRICS.lookups}[$__rate_interval]))`, '{{answer}}')],
        }),
        series({
          title: 'Suspects by answer',
          tells: {
            shows: 'Leases that are asked after, by the last answer.',
            normal: 'few, and none for long.',
            act: 'A level that stays is blocked: the table of suspects names the witness.',
          },
          width: 6,
          height: 8,
          unit: 'short',
          draw: 'areas',
          queries: [
            promql(
              `sum by (answer) (max by (network, answer) (${METRICS.suspects}{${IN_NETWORKS}}))`,
              '{{answer}}',
            ),
          ],
        }),
        series({
          title: 'Reaps a minute by cause',
          tells: {
            shows: 'What is taken back, and for what.',
            normal: 'follows the workloads that die.',
            act: 'A jump with a hold after it: something vanished that should not have.',
          },
          width: 6,
          height: 8,
          unit: 'cpm',
          queries: [
            promql(
              `sum by (cause) (60 * rate(${METRICS.reaps}{${IN_NETWORKS}}[$__rate_interval]))`,
              '{{cause}}',
            ),
          ],
        }),
        bars({
          title: 'Reaps in the time range, by the source that proved them',
          tells: {
            shows: 'On whose word leases were taken back.',
            normal: 'about as its share of the leases.',
            act: 'One source far above the others: look whether its list is complete.',
          },
          width: 8,
          height: 8,
          unit: 'short',
          steps: { base: 'blue', from: [] },
          query: sql(`
            select coalesce(source, 'no source') as metric, count(distinct (network, seq)) as value
              from ipledger_audit.reaps(${FROM}, ${TO})
             where network = ${NETWORKS}
             group by source
             order by value desc, metric
             limit 20`),
        }),
        table({
          title: 'Suspects, and what blocks them',
          tells: {
            shows:
              'Leases whose proof is not whole: which source was asked, since when, what it answered, and which witness keeps the lease.',
            normal: 'empty, or seconds old.',
            act: 'Mend the witness that blocks. If the node is gone for good, fence it; never reap by hand what might live.',
          },
          width: 16,
          height: 8,
          query: sql(`
            select extract(epoch from waiting)::float8 as waiting, network, abbrev(address) as address, lease_id as lease,
                   owner_name as owner, source, answer, attempts, next_at, what
              from ipledger_audit.suspects
             where network = ${NETWORKS}
             order by suspects.waiting desc nulls last
             limit 500`),
          columns: {
            waiting: {
              title: 'Waiting',
              unit: 'dtdurations',
              width: 110,
              steps: {
                base: 'green',
                from: [
                  [300, 'yellow'],
                  [3_600, 'red'],
                ],
              },
            },
            network: { title: 'Network', width: 100 },
            address: { title: 'Address', links: [TO_ADDRESS] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            owner: { title: 'Owner', links: [TO_OWNER] },
            source: { title: 'Source' },
            answer: { title: 'Answer' },
            attempts: { title: 'Attempts', unit: 'short' },
            next_at: { title: 'Next' },
            what: { title: 'What', look: 'wrapped' },
          },
        }),
      ],
    },
    {
      title: 'What waits for a person',
      panels: [
        table({
          title: 'Holds',
          tells: {
            shows: 'Who is held, since when and why: so many reaps within an hour, of so many leases.',
            normal: 'empty.',
            act: 'Look at what the source stopped listing. `ipledger hold resume` when you know that it was right.',
          },
          width: 12,
          height: 7,
          query: sql(`
            select at, network, case when source = '' then 'the whole network' else source end as source, reaps, leases, why
              from ipledger_audit.holds
             where network = ${NETWORKS}
             order by at`),
          columns: {
            at: { title: 'Since', width: 170 },
            network: { title: 'Network', width: 100 },
            source: { title: 'Source' },
            reaps: { title: 'Reaps', unit: 'short' },
            leases: { title: 'of leases', unit: 'short' },
            why: { title: 'Why', look: 'wrapped' },
          },
        }),
        table({
          title: 'Fences',
          tells: {
            shows: 'Which boot of which node is over by whose word.',
            normal: 'nodes that are gone.',
            act: 'A node that came back has another boot: nothing to do.',
          },
          width: 12,
          height: 7,
          query: sql(`
            select at, network, node, boot, actor, why
              from ipledger_audit.fences
             where network = ${NETWORKS}
             order by at desc
             limit 200`),
          columns: {
            at: { title: 'At', width: 170 },
            network: { title: 'Network', width: 100 },
            node: { title: 'Node' },
            boot: { title: 'Boot' },
            actor: { title: 'By' },
            why: { title: 'Why', look: 'wrapped' },
          },
        }),
        table({
          title: 'Stuck, the longest first',
          tells: {
            shows:
              'Everything that waits for a person or for an answer that does not come, as of the minute it was observed.',
            normal: 'empty.',
            act: 'Each line says what it waits for; `ipledger stuck` has the same.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select extract(epoch from age)::float8 as age, code, network, source, abbrev(address) as address, lease_id as lease, pool, what,
                   observed_at
              from ipledger_audit.stuck
             where network = ${NETWORKS}
             order by stuck.age desc
             limit 500`),
          columns: {
            age: {
              title: 'Age',
              unit: 'dtdurations',
              width: 110,
              steps: {
                base: 'text',
                from: [
                  [3_600, 'yellow'],
                  [86_400, 'red'],
                ],
              },
            },
            code: { title: 'Code', width: 190 },
            network: { title: 'Network', width: 100 },
            source: { title: 'Source' },
            address: { title: 'Address', links: [TO_ADDRESS] },
            lease: { title: 'Lease', links: [TO_LEASE] },
            pool: { title: 'Pool' },
            what: { title: 'What', look: 'wrapped' },
            observed_at: { title: 'Observed', width: 170 },
          },
        }),
      ],
    },
  ],
})
