/**
 * The past, asked of a long log: how long tenure and checkpoints take to be made from it, who had an address at a time, the whole
 * table of leases at a number, and why an address is as it is. Asked as the service's role, one question after the other;
 * addresses, times and numbers are random, with a seed that is the same each time.
 *
 * leases_as_of is timed until the database has made its last row, as a dashboard that counts or filters has it; what
 * it takes to bring every row to this process, as JSON is read from text, is told beside it.
 */
import type pg from 'pg'
import { rebuildTenure } from '../src/ledger/rebuild-tenure.ts'
import { connect } from '../src/postgres/connect.ts'
import type { Place } from './load.ts'
import type { Bench } from './measure.ts'
import type { Amount, Row } from './report.ts'
import type { Stage } from './stage.ts'
import { median, percentile } from './statistics.ts'

const WHO_HAD_P99_MS = 5
const EXPLAIN_P99_MS = 20
const AS_OF_MS = 500

type Past = { readonly from: number; readonly to: number; readonly head: number; readonly leases: number }

export async function audit(bench: Bench, stage: Stage, place: Place): Promise<void> {
  await makeAnew(bench, stage, place)
  await stage.admin.query(
    'vacuum (analyze) ipledger.tenure, ipledger.lease_checkpoint, ipledger.lease_checkpoint_part',
  )
  const client = await connect({ url: stage.database.serviceUrl, applicationName: 'ipledger bench' })
  try {
    const past = await readPast(client, place)
    const random = mulberry(20_260_101)
    const times = bench.scale.rounds > 1 ? 2_000 : 100
    await askOften(bench, client, {
      what: `who_had one address at a time, ${millions(bench)} events`,
      text: 'select * from ipledger_audit.who_had($1, $2::inet + $3::bigint, to_timestamp($4::float8 / 1000))',
      values: () => [place.network, FIRST, Math.floor(random() * past.leases * 2), between(random, past)],
      times,
      goal: WHO_HAD_P99_MS,
    })
    await askOften(bench, client, {
      what: `explain_address at a time, ${millions(bench)} events`,
      text: 'select * from ipledger_audit.explain_address($1, $2::inet + $3::bigint, to_timestamp($4::float8 / 1000))',
      values: () => [place.network, FIRST, Math.floor(random() * past.leases * 2), between(random, past)],
      times,
      goal: EXPLAIN_P99_MS,
    })
    await askAsOf(bench, client, place, past, random)
  } finally {
    await client.end()
  }
}

/** Of `10.0.0.0/8`, whose network address is nobody's. */
const FIRST = '10.0.0.1'

const millions = ({ scale }: Bench) => `${(scale.agedEvents / 1e6).toLocaleString('en-US')} M`
const between = (random: () => number, { from, to }: Past) => from + random() * (to - from)

async function readPast(client: pg.Client, { network }: Place): Promise<Past> {
  const { rows } = await client.query<Past>(
    `select (select e.at from ipledger.event e where e.network_id = $1 order by e.seq limit 1) as "from",
            (select e.at from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) as "to",
            (select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) as head,
            (select count(*) from (select from ipledger.lease l where l.network_id = $1 order by l.address offset 0) s) as leases`,
    [network],
  )
  return rows[0]!
}

async function makeAnew(bench: Bench, { database }: Stage, { network }: Place): Promise<void> {
  const begun = performance.now()
  const { events } = await rebuildTenure({ adminUrl: database.adminUrl, network, signal: bench.signal })
  const perSecond = (events * 1_000) / (performance.now() - begun)
  bench.show(row({ what: 'tenure and checkpoints made anew (events)', perSecond }))
}

async function askOften(
  bench: Bench,
  client: pg.Client,
  question: {
    readonly what: string
    readonly text: string
    readonly values: () => readonly unknown[]
    readonly times: number
    readonly goal: number
  },
): Promise<void> {
  const took: number[] = []
  // The first ones read the index from the disk, and make the plan.
  for (let n = -question.times / 10; n < question.times; n += 1) {
    bench.signal.throwIfAborted()
    const begun = performance.now()
    await client.query(question.text, [...question.values()])
    if (n >= 0) took.push(performance.now() - begun)
  }
  took.sort((a, b) => a - b)
  const p99 = percentile(took, 0.99)
  const { what, goal } = question
  const amount: Amount = { value: p99, unit: 'ms' }
  bench.show(
    row({
      what: `${what}, p99`,
      amount,
      p50: percentile(took, 0.5),
      p99,
      goal: { most: goal },
      reached: p99 <= goal,
    }),
  )
}

const MADE =
  'select count(*) as leases, sum(l.version) as versions from ipledger_audit.leases_as_of($1, $2::bigint) l'
const BROUGHT = 'select l.* from ipledger_audit.leases_as_of($1, $2::bigint) l'

async function askAsOf(
  bench: Bench,
  client: pg.Client,
  { network }: Place,
  { head }: Past,
  random: () => number,
): Promise<void> {
  const made: number[] = []
  const brought: number[] = []
  let most = 0
  for (let n = 0; n < (bench.scale.rounds > 1 ? 20 : 3); n += 1) {
    bench.signal.throwIfAborted()
    // Not before most are held.
    const seq = Math.floor(head * (0.2 + 0.8 * random()))
    const begun = performance.now()
    const { rows } = await client.query<{ leases: number }>(MADE, [network, seq])
    made.push(performance.now() - begun)
    most = Math.max(most, rows[0]!.leases)
    const again = performance.now()
    await client.query(BROUGHT, [network, seq])
    brought.push(performance.now() - again)
  }
  const longest = Math.max(...made)
  bench.show(
    row({
      what: `leases_as_of, ${most.toLocaleString('en-US')} leases, ${millions(bench)} events, the longest`,
      amount: { value: longest, unit: 'ms' },
      p50: median(made),
      goal: { most: AS_OF_MS },
      reached: longest <= AS_OF_MS,
      parts: [
        { of: 'made by the database, median', amount: { value: median(made), unit: 'ms' } },
        { of: 'with every row read here, median', amount: { value: median(brought), unit: 'ms' } },
      ],
    }),
  )
}

function row(given: Partial<Row> & Pick<Row, 'what'>): Row {
  return {
    line: 'audit',
    perSecond: null,
    p50: null,
    p99: null,
    cpu: null,
    floor: null,
    ratio: null,
    goal: null,
    reached: null,
    ...given,
  }
}

function mulberry(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
