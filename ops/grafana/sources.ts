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
    'Sources by lag and completeness, suspects and what they wait for, holds, recoveries, look-ups and their answers.',
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
          help: {
            shows: 'Enabled sources that have not reported for two of their intervals.',
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
             where network = ${NETWORKS} and source = ${SOURCES} and status = 'silent'`),
        }),
        stat({
          title: 'Partial',
          help: {
            shows: 'Enabled sources whose last reports are not complete: they protect, and prove nothing.',
            normal: 'none, or one that has just started.',
            act: 'The table says what made it partial: an entry that cannot be read, a report out of order, a list the source itself calls incomplete.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as partial
              from ipledger_audit.sources
             where network = ${NETWORKS} and source = ${SOURCES} and status = 'partial'`),
        }),
        stat({
          title: 'Held',
          help: {
            shows:
              'Holds in force: nothing is taken back in that network until the hold ends or an operator resumes it.',
            normal: 'none.',
            act: 'Read why below. Resume only after you know the cause.',
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
          help: {
            shows: 'Leases that no source lists live, and that are being asked about.',
            normal: 'a few, for a minute or two.',
            act: 'Many that stay: the table below says who was asked and what came back.',
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
          title: 'Attention',
          help: {
            shows: 'What waits for a person, or for an answer that does not come.',
            normal: 'none.',
            act: 'Each line of the table says what it waits for.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select coalesce(sum(count), 0) as attention
              from ipledger_audit.attention
             where network = ${NETWORKS}`),
        }),
        stat({
          title: 'Not warm',
          help: {
            shows:
              'Enabled sources whose lists prove nothing yet: they started, or have not reported in this era.',
            normal: 'none, or those that started within the last two intervals.',
            act: 'For long: the source restarts again and again, or its list never stops growing.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: sql(`
            select count(*) as cold
              from ipledger_audit.sources
             where network = ${NETWORKS} and source = ${SOURCES} and status = 'cold'`),
        }),
      ],
    },
    {
      title: 'Sources',
      panels: [
        table({
          title: 'Sources, the longest silent first',
          help: {
            shows:
              'Each source: when it last reported, whether completely, in which life (epoch) and era, and how many it lists.',
            normal: 'lag below its interval, complete, good, of the present era.',
            act: 'Cold for long: it restarts again and again. An older era: it has not been heard since a restore, and its network waits for it.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select network, source, kind, node, state, extract(epoch from lag)::float8 as lag,
                   extract(epoch from "interval")::float8 as every, (extract(epoch from lag) / extract(epoch from "interval"))::float8 as intervals,
                   extract(epoch from complete_lag)::float8 as complete_lag, listed, counted, status, era, sequence, epoch,
                   nullif(partial_because::text, '[]') as partial_because
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
                  [1.5, 'yellow'],
                  [2, 'red'],
                ],
              },
            },
            complete_lag: { title: 'Complete', unit: 's' },
            listed: { title: 'Listed', unit: 'short' },
            counted: { title: 'Counted', unit: 'short' },
            status: { title: 'Status' },
            era: { title: 'Era', unit: 'none', decimals: 0 },
            sequence: { title: 'Report', unit: 'none', decimals: 0 },
            epoch: { title: 'Epoch' },
            partial_because: { title: 'Partial because', look: 'wrapped' },
          },
        }),
        series({
          title: 'Lag, in intervals of the source',
          help: {
            shows: 'How long ago each source last reported, in its own intervals.',
            normal: 'a saw between 0 and 1.',
            act: 'Above 2 it is silent and blocks every proof that needs it.',
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
                max by (network, source) (${METRICS.sourceLag}{${IN_NETWORKS}, ${IN_SOURCES}})
                  / max by (network, source) (${METRICS.sourceInterval}{${IN_NETWORKS}, ${IN_SOURCES}})`,
              '{{network}} {{source}}',
            ),
          ],
        }),
        series({
          title: 'Reports a second, complete and not',
          help: {
            shows: 'Reports that were taken in, by whether they were complete.',
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
        series({
          title: 'Time of a report, p99',
          help: {
            shows: 'From the list at hand to the answer. A long list is taken in slices.',
            normal: 'milliseconds; seconds for a first list of 100,000 entries.',
            act: 'Growing: lists change more than they did, or the database is slow.',
          },
          width: 12,
          height: 8,
          unit: 's',
          queries: [
            promql(
              `histogram_quantile(0.99, sum by (le, network) (rate(${METRICS.reportDuration}_bucket{${IN_NETWORKS}}[$__rate_interval])))`,
              '{{network}}',
            ),
          ],
        }),
        series({
          title: 'Judgements a second by verdict',
          help: {
            shows: 'Suspects judged by the job: keep, ask, or reap.',
            normal: 'few, and most of them ask.',
            act: 'A high rate of keep: sources are not warm, silent or fail. The tables below say which.',
          },
          width: 12,
          height: 8,
          unit: 'ops',
          queries: [
            promql(
              `sum by (verdict) (rate(${METRICS.judgements}{${IN_NETWORKS}}[$__rate_interval]))`,
              '{{verdict}}',
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
          help: {
            shows: 'What sources answered when they were asked about one workload.',
            normal: 'gone and live.',
            act: 'error and unknown mean alive and block every proof: mend the source, its token or its network.',
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
          },
          queries: [promql(`sum by (answer) (rate(${METRICS.lookups}[$__rate_interval]))`, '{{answer}}')],
        }),
        series({
          title: 'Suspects by answer',
          help: {
            shows: 'Leases that are asked about, by the last answer.',
            normal: 'few, and none for long.',
            act: 'A level that stays is blocked: the table of suspects names the source.',
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
          help: {
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
          help: {
            shows: 'The sources by whose proof leases were taken back.',
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
          title: 'Suspects, and what they wait for',
          help: {
            shows: 'Leases that no source lists live: which source was asked, when, and what it answered.',
            normal: 'empty, or minutes old.',
            act: 'Mend the source that fails. If its node is gone for good: `ipledger reap --node`. Never reap by hand what might live.',
          },
          width: 16,
          height: 8,
          query: sql(`
            select extract(epoch from waiting)::float8 as waiting, network, abbrev(address) as address, lease_id as lease,
                   owner_name as owner, source, answer, attempts, question_at, what
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
            question_at: { title: 'Asked', width: 170 },
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
          help: {
            shows:
              'Which network is held, since when, for what cause, why, and when it ends by itself (CLOCK only).',
            normal: 'empty.',
            act: 'TOO_MANY_REAPS: look at what the sources stopped listing. SOURCE_AHEAD: was the database set back? Then `ipledger recover`. `ipledger network resume` when you know.',
          },
          width: 12,
          height: 7,
          query: sql(`
            select at, network, hold, until, why
              from ipledger_audit.holds
             where network = ${NETWORKS}
             order by at`),
          columns: {
            at: { title: 'Since', width: 170 },
            network: { title: 'Network', width: 100 },
            hold: { title: 'Cause', width: 150 },
            until: { title: 'Ends by itself', width: 170 },
            why: { title: 'Why', look: 'wrapped' },
          },
        }),
        table({
          title: 'Eras and recovery',
          help: {
            shows: 'The era of each network, and which sources a recovery waits for.',
            normal: 'READY.',
            act: 'RECOVERING: bring back the sources it names, register the unknown ones, or end the recovery: `ipledger recover --end`.',
          },
          width: 12,
          height: 7,
          query: sql(`
            select n.network, n.state, n.era, string_agg(a.source, ', ' order by a.source) filter (where a.code <> 'SOURCE_UNKNOWN') as sources,
                   string_agg(a.source, ', ' order by a.source) filter (where a.code = 'SOURCE_UNKNOWN') as unknown
              from ipledger_audit.network n
              left join ipledger_audit.attention a on a.network = n.network and n.state = 'RECOVERING' and a.code like 'SOURCE_%'
             where n.network = ${NETWORKS}
             group by n.network, n.state, n.era
             order by n.state desc, n.network`),
          columns: {
            network: { title: 'Network', width: 140 },
            state: { title: 'State', width: 120 },
            era: { title: 'Era', unit: 'none', decimals: 0, width: 70 },
            sources: { title: 'Sources that are not good', look: 'wrapped' },
            unknown: { title: 'Unknown sources', look: 'wrapped' },
          },
        }),
        table({
          title: 'Attention, the worst first',
          help: {
            shows: 'What waits for a person, or for an answer that does not come.',
            normal: 'empty.',
            act: 'Each line says what it waits for; `ipledger attention` judges it now, and lists each lease with --each.',
          },
          width: 24,
          height: 9,
          query: sql(`
            select severity, code, network, source, count, extract(epoch from age)::float8 as age, abbrev(address) as address,
                   lease_id as lease, what, true_at
              from ipledger_audit.attention
             where network = ${NETWORKS}
             order by rank, network, source
             limit 500`),
          columns: {
            severity: { title: 'Severity', width: 90 },
            count: { title: 'Count', unit: 'short', width: 80 },
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
            what: { title: 'What', look: 'wrapped' },
            true_at: { title: 'Judged at', width: 170 },
          },
        }),
      ],
    },
  ],
})
