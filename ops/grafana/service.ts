/** The processes: what callers get, where time goes, and whether the jobs keep up. From Prometheus, but for the age of PostgreSQL's answers. */
import { METRICS } from './metrics.ts'
import { NONE_IS_RIGHT, series, stat } from './panels.ts'
import { IN_INSTANCES, IN_NETWORKS, promql, promqlNow, sql } from './queries.ts'
import { dashboard, NETWORK_VARIABLE } from './sheet.ts'

const RATE = '[$__rate_interval]'

/** The share `q` of a histogram, by a label. */
function quantile(q: number, metric: string, by: string | null, where = IN_INSTANCES): string {
  const labels = by === null ? 'le' : `le, ${by}`
  return `histogram_quantile(${q}, sum by (${labels}) (rate(${metric}_bucket{${where}}${RATE})))`
}

function average(metric: string, where = IN_INSTANCES): string {
  return `sum(rate(${metric}_sum{${where}}${RATE})) / sum(rate(${metric}_count{${where}}${RATE}))`
}

export const service = dashboard({
  target: 'service',
  title: 'Service',
  about: 'Calls, their errors and latency; queue, batches and images; the database; jobs and processes.',
  variables: [
    { ...NETWORK_VARIABLE, many: true },
    {
      name: 'instance',
      label: 'Process',
      about: 'Processes that Prometheus scrapes.',
      from: 'prometheus',
      query: 'label_values({__name__=~"ipledger_.+"}, instance)',
      many: true,
    },
  ],
  marked: true,
  rows: [
    {
      title: 'Calls',
      panels: [
        series({
          title: 'Calls a second by method',
          help: {
            shows: 'Answered calls, with any answer.',
            normal: 'follows the workloads that start and stop.',
            act: 'A jump of one method: find its caller by the token in the log.',
          },
          width: 12,
          height: 8,
          unit: 'reqps',
          queries: [
            promql(
              `sum by (rpc_method) (rate(${METRICS.rpcDuration}_count{${IN_INSTANCES}}${RATE}))`,
              '{{rpc_method}}',
            ),
          ],
        }),
        series({
          title: 'Calls that were not answered with OK, as a share',
          help: {
            shows:
              'By status of gRPC: refusals, and failures of the service (UNAVAILABLE, INTERNAL, DEADLINE_EXCEEDED).',
            normal: 'below 1 %.',
            act: 'Look at the reasons beside it.',
          },
          width: 12,
          height: 8,
          unit: 'percentunit',
          steps: {
            base: 'green',
            from: [
              [0.01, 'yellow'],
              [0.1, 'red'],
            ],
          },
          queries: [
            promql(
              `
                sum by (rpc_status_code) (rate(${METRICS.callsFailed}{${IN_INSTANCES}}${RATE}))
                  / ignoring (rpc_status_code) group_left ()
                sum(rate(${METRICS.rpcDuration}_count{${IN_INSTANCES}}${RATE}))`,
              '{{rpc_status_code}}',
            ),
          ],
        }),
        series({
          title: 'Latency of calls, p99 by method',
          help: {
            shows: 'The time that one call in a hundred exceeds.',
            normal: 'Reserve within some milliseconds.',
            act: 'Compare with the waits below: queue, batch or database.',
          },
          width: 12,
          height: 8,
          unit: 's',
          steps: {
            base: 'green',
            from: [
              [0.1, 'yellow'],
              [1, 'red'],
            ],
          },
          queries: [promql(quantile(0.99, METRICS.rpcDuration, 'rpc_method'), '{{rpc_method}}')],
        }),
        series({
          title: 'Latency of all calls',
          help: {
            shows: 'The median call, and the slowest in a hundred.',
            normal: 'p99 a few times the median.',
            act: 'Both up: the database. Only p99: a job, a lock or a pause.',
          },
          width: 12,
          height: 8,
          unit: 's',
          queries: [
            promql(quantile(0.5, METRICS.rpcDuration, null), 'p50', 'A'),
            promql(quantile(0.99, METRICS.rpcDuration, null), 'p99', 'B'),
          ],
        }),
      ],
    },
    {
      title: 'Queue, batches, images, database',
      panels: [
        series({
          title: 'Commands that wait',
          help: {
            shows: 'Commands in the queue of each network.',
            normal: 'as many as one batch takes.',
            act: 'Growing: the database is slow, or one network gets more than one loop writes. Beyond the limit calls are refused with OVERLOADED.',
          },
          width: 8,
          height: 8,
          unit: 'short',
          queries: [
            promql(
              `sum by (network) (${METRICS.queueCommands}{${IN_NETWORKS}, ${IN_INSTANCES}})`,
              '{{network}}',
            ),
          ],
        }),
        series({
          title: 'Commands in a batch',
          help: {
            shows: 'How many commands share one commit: on average, and in large batches.',
            normal: '1 when little happens, tens under load.',
            act: 'Large and slow: callers send more at once than the database commits.',
          },
          width: 8,
          height: 8,
          unit: 'none',
          queries: [
            promql(average(METRICS.batchCommands), 'on average', 'A'),
            promql(quantile(0.99, METRICS.batchCommands, null), 'p99', 'B'),
          ],
        }),
        series({
          title: 'Batches a second by outcome',
          help: {
            shows:
              'Batches: committed, not begun, not loaded, rolled back, vetoed by a constraint, or of unknown outcome.',
            normal: 'all of them committed.',
            act: 'not_begun, rolled_back, unknown: the database. vetoed: follow the runbook of IpledgerUniqueViolation.',
          },
          width: 8,
          height: 8,
          unit: 'ops',
          queries: [
            promql(`sum by (outcome) (rate(${METRICS.batches}{${IN_INSTANCES}}${RATE}))`, '{{outcome}}'),
          ],
        }),
        series({
          title: 'Time of a batch, p99',
          help: {
            shows: 'From asking for the lock to the commit.',
            normal: 'a few milliseconds: two round trips and a flush of the disk.',
            act: 'Beside it is which part takes the time.',
          },
          width: 8,
          height: 8,
          unit: 's',
          steps: {
            base: 'green',
            from: [
              [0.05, 'yellow'],
              [0.5, 'red'],
            ],
          },
          queries: [
            promql(quantile(0.5, METRICS.batchDuration, null), 'p50', 'A'),
            promql(quantile(0.99, METRICS.batchDuration, null), 'p99', 'B'),
          ],
        }),
        series({
          title: 'Parts of a batch, p99',
          help: {
            shows: 'lock: get the network and catch up. decide: in memory. write: write and commit.',
            normal: 'decide far below the others.',
            act: 'write is slow: the disk, or a standby. lock is slow: another process works on the network, or the database is loaded. decide is slow: the machine.',
          },
          width: 8,
          height: 8,
          unit: 's',
          queries: [promql(quantile(0.99, METRICS.batchPhase, 'phase'), '{{phase}}')],
        }),
        series({
          title: 'Reads of the API, p99',
          help: {
            shows: 'How long a read takes: get, list, history.',
            normal: 'milliseconds.',
            act: 'Slow with fast batches: somebody reads a lot, or an old transaction keeps dead rows.',
          },
          width: 8,
          height: 8,
          unit: 's',
          queries: [
            promql(
              quantile(
                0.99,
                METRICS.rpcDuration,
                null,
                `rpc_method=~".*/(Get|List|Explain).*", ${IN_INSTANCES}`,
              ),
              'p99',
            ),
          ],
        }),
        series({
          title: 'Addresses in memory',
          help: {
            shows: 'Touched addresses of each network in the image of each process: 0.5 to 0.8 KB each.',
            normal: 'the same in every process that serves the network.',
            act: 'Near the limit (IPLEDGER_IMAGE_ADDRESSES, a million): Reserve takes only touched addresses there. Split the network, or raise the limit.',
          },
          width: 8,
          height: 8,
          unit: 'short',
          queries: [
            promql(`${METRICS.imageRecords}{${IN_NETWORKS}, ${IN_INSTANCES}}`, '{{network}} {{instance}}'),
          ],
        }),
        series({
          title: 'Loads of images, p99',
          help: {
            shows: 'How long it takes to read the image of a network into memory. Its calls wait meanwhile.',
            normal: 'at the start, and a second for 100,000 leases.',
            act: 'Loads in the middle of the work: a process fell far behind, a constraint refused a batch, or a new era began.',
          },
          width: 8,
          height: 8,
          unit: 's',
          queries: [promql(quantile(0.99, METRICS.imageLoad, null), 'p99')],
        }),
        stat({
          title: 'Vetoes',
          help: {
            shows:
              'How often a constraint of the database refused what the rules allowed, within the time range.',
            normal: 'none, ever: it means a defect, or a second writer.',
            act: 'Follow the runbook of IpledgerUniqueViolation.',
          },
          width: 8,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(`sum(increase(${METRICS.uniqueViolations}{${IN_NETWORKS}}[$__range]))`, 'vetoes'),
        }),
        stat({
          title: 'Clock jumps',
          help: {
            shows: "How often the database's clock was set forward or back within the time range.",
            normal: 'none.',
            act: 'Mend the clock of the database server. After a step forward networks are held (CLOCK) until the hold ends.',
          },
          width: 8,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(`sum(increase(${METRICS.clockJumps}{${IN_INSTANCES}}[$__range]))`, 'jumps'),
        }),
        stat({
          title: 'New eras',
          help: {
            shows:
              'How often an era began within the time range: the database was restored, set back or failed over.',
            normal: 'none.',
            act: 'Follow the runbook of IpledgerNewEra.',
          },
          width: 8,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(`sum(increase(${METRICS.erasBegun}{${IN_NETWORKS}}[$__range]))`, 'eras'),
        }),
        stat({
          title: 'Database answers',
          help: {
            shows: 'Whether every process could read its gauges from the database within the last minute.',
            normal: 'yes.',
            act: 'No: calls fail with DATABASE_UNAVAILABLE. `/readyz` of the process says since when, and why.',
          },
          width: 6,
          height: 4,
          unit: 'bool_yes_no',
          steps: { base: 'red', from: [[1, 'green']] },
          query: promqlNow(`min(${METRICS.databaseUp}{${IN_INSTANCES}})`, 'answers'),
        }),
        stat({
          title: 'Age of what PostgreSQL answers here',
          help: {
            shows: 'How far a standby is behind, where the data source is one; 0 at the primary.',
            normal: 'up to a minute: ipledger writes that often.',
            act: 'Older: the standby has lost its primary or cannot keep up. No panel that asks PostgreSQL shows what came since.',
          },
          width: 6,
          height: 4,
          unit: 's',
          steps: { base: 'green', from: [[120, 'red']] },
          none: 'unknown',
          query: sql('select extract(epoch from lag)::float8 as age from ipledger_audit.standby'),
        }),
      ],
    },
    {
      title: 'Jobs and what they keep',
      panels: [
        series({
          title: 'Time since a job last succeeded',
          help: {
            shows: 'For each job, of the process that ran it last.',
            normal: 'below two of its intervals: a minute or two, twenty for prune.',
            act: 'A job that stays behind fails or hangs: the log names it.',
          },
          width: 12,
          height: 8,
          unit: 's',
          steps: {
            base: 'green',
            from: [
              [1_200, 'yellow'],
              [3_600, 'red'],
            ],
          },
          queries: [
            promql(`time() - max by (job_name) (${METRICS.jobLastSuccess}{${IN_INSTANCES}})`, `{{job_name}}`),
          ],
        }),
        series({
          title: 'Time of a job, p99',
          help: {
            shows: 'How long runs take, by job. Those that wait for answers stay for most of their minute.',
            normal: 'seconds, or close to a minute for those that stay.',
            act: 'Beyond a minute a job is behind: see what it works on.',
          },
          width: 12,
          height: 8,
          unit: 's',
          queries: [promql(quantile(0.99, METRICS.jobDuration, 'job_name'), `{{job_name}}`)],
        }),
        stat({
          title: 'Jobs waiting',
          help: {
            shows: 'Jobs in the queue that could run.',
            normal: 'none, or a few at the full minute.',
            act: 'Growing: no worker runs, or all of them hang.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: {
            base: 'green',
            from: [
              [20, 'yellow'],
              [100, 'red'],
            ],
          },
          query: promqlNow(`max(${METRICS.jobsWaiting})`, 'waiting'),
        }),
        stat({
          title: 'Jobs failing',
          help: {
            shows: 'Jobs whose last run failed.',
            normal: 'none.',
            act: 'The log has the error; what they would have done is done by the next run that succeeds.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          query: promqlNow(`max(${METRICS.jobsFailing})`, 'failing'),
        }),
        stat({
          title: 'Needs attention',
          help: {
            shows: 'What waits for a person, or for an answer that does not come.',
            normal: 'none.',
            act: '`ipledger attention` names each, and Sources and reconciliation has the table.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(`sum(max by (network, code) (${METRICS.attention}{${IN_NETWORKS}}))`, 'items'),
        }),
        stat({
          title: 'Findings of verify',
          help: {
            shows: 'Where logs and tables differ, or a log is not whole.',
            normal: 'none, ever.',
            act: 'Follow the runbook of IpledgerVerifyFailed.',
          },
          width: 4,
          height: 4,
          unit: 'short',
          steps: NONE_IS_RIGHT,
          none: '0',
          query: promqlNow(
            `sum(max by (network) (${METRICS.verifyDifferences}{${IN_NETWORKS}}))`,
            'findings',
          ),
        }),
        stat({
          title: 'Last verify',
          help: {
            shows:
              'How long ago the log and the tables were last verified to the end, in the network where that is longest.',
            normal: 'minutes; an hour or so for tens of millions of events.',
            act: 'Run `ipledger verify`; it reads, and blocks no call.',
          },
          width: 4,
          height: 4,
          unit: 's',
          steps: {
            base: 'green',
            from: [
              [86_400, 'yellow'],
              [604_800, 'red'],
            ],
          },
          none: 'never',
          query: promqlNow(`max(${METRICS.verifyAge}{${IN_NETWORKS}})`, 'ago'),
        }),
      ],
    },
    {
      title: 'Processes',
      panels: [
        series({
          title: 'Delay of the event loop, p99',
          help: {
            shows: 'How long a process of Node.js does not come round to its calls.',
            normal: 'below 20 ms.',
            act: 'Above 100 ms: too much on one process. Run another.',
          },
          width: 8,
          height: 8,
          unit: 's',
          steps: {
            base: 'green',
            from: [
              [0.05, 'yellow'],
              [0.2, 'red'],
            ],
          },
          queries: [promql(`${METRICS.eventLoopDelay}{${IN_INSTANCES}}`, '{{instance}}')],
        }),
        series({
          title: 'Memory',
          help: {
            shows: 'Resident memory of each process.',
            normal: 'flat: 200 MB, and 0.5 to 0.8 KB for each touched address of its networks.',
            act: 'Growing for hours: restart one, keep the graph and report it.',
          },
          width: 8,
          height: 8,
          unit: 'bytes',
          queries: [promql(`${METRICS.memory}{${IN_INSTANCES}}`, '{{instance}}')],
        }),
        series({
          title: 'CPU',
          help: {
            shows: 'Cores that each process keeps busy.',
            normal: 'below 1.',
            act: 'At 1 for long: give networks processes of their own.',
          },
          width: 8,
          height: 8,
          unit: 'none',
          queries: [promql(`rate(${METRICS.cpu}{${IN_INSTANCES}}${RATE})`, '{{instance}}')],
        }),
      ],
    },
  ],
})
