/**
 * The log by itself: in each era its numbers are without a gap, each era begins with its own era.begun at its first
 * number, and times never go back. Asked by `verify`, which names what is wrong, and by `rebuild`, which writes
 * nothing from a log that has lost an event. Events after the last are not missed here: no number says that they were.
 */
import type pg from 'pg'
import { eraOf, firstSeqOfEra } from '../core/policy.ts'
import { IS_SHAPE } from './shape.ts'
import { createPace } from './transaction.ts'

export type Odd = {
  readonly what: 'EVENT_MISSING' | 'ERA_WRONG' | 'TIME_GOES_BACK'
  /** A sentence for people. */
  readonly message: string
  readonly seq: number
  readonly expected: string | null
  readonly found: string | null
}

export type NumbersOptions = {
  readonly use: (odd: Odd) => void
  readonly times: boolean
  readonly onProgress?: ((events: number) => void) | undefined
  readonly signal?: AbortSignal | undefined
  /** For tests: events per statement. */
  readonly slice?: number | undefined
}

/** Odd rows named per slice of the log; one deleted event is enough to distrust the rest. */
const MOST_ODD = 100

/** A slice of the log with the event before each; the first of all is as if 0 came before it. */
const NEIGHBOURS = `(select w.seq, w.at, w.type, w.settings, lag(w.seq, 1, $2::bigint) over (order by w.seq) as before,
      lag(w.at) over (order by w.seq) as at_before
    from (select e.seq, e.at, e.type, e.settings from ipledger.event e
      where e.network_id = $1 and e.seq >= $2 and e.seq <= $3 order by e.seq limit $4) w) s`
const NUMBERS = `select count(*) filter (where s.seq > $2) as events, max(s.seq) as last,
    count(*) filter (where s.seq > $2 and (s.seq <> s.before + 1 or s.at < s.at_before)) as odd
  from ${NEIGHBOURS}`
/** The same of the numbers alone, which an index has: a ninth of the time. */
const COUNT = `select count(*) as events, max(s.seq) as last, (count(*) <> coalesce(max(s.seq) - $2::bigint, 0))::int as odd
  from (select e.seq from ipledger.event e
    where e.network_id = $1 and e.seq > $2 and e.seq <= $3 order by e.seq limit $4) s`
const ODD = `select s.seq, s.at, s.type, s.settings, s.before, s.at_before from ${NEIGHBOURS}
  where s.seq > $2 and (s.seq <> s.before + 1 or $5 and s.at < s.at_before) order by s.seq limit ${MOST_ODD}`

type OddRow = {
  seq: number
  at: number
  type: string
  settings: { readonly era?: number } | null
  before: number
  at_before: number | null
}

/**
 * Numbers and, if asked, times of the events in (from, head], and where eras begin; answers how many events there are.
 */
export async function walkNumbers(
  client: pg.Client,
  network: string,
  { from, head }: { readonly from: number; readonly head: number },
  { use, times, onProgress, signal, slice }: NumbersOptions,
): Promise<number> {
  const pace = createPace(20_000, 200_000, slice)
  const text = times ? NUMBERS : COUNT
  let events = 0
  for (let after = from; after < head; ) {
    signal?.throwIfAborted()
    const begun = performance.now()
    const most = pace.size()
    // The event before the slice comes with it, but is not counted.
    const neighbours = [network, after, head, most + 1]
    const { rows } = await client.query<{ events: number; last: number | null; odd: number }>(
      text,
      times ? neighbours : [network, after, head, most],
    )
    const row = rows[0]!
    if (row.odd > 0) {
      const odd = await client.query<OddRow>(ODD, [...neighbours, times])
      if (odd.rows.length === 0)
        throw new Error(`the numbers after event ${network}/${after} are odd, and none is`)
      for (const one of odd.rows) nameOdd(network, one, times, use)
    }
    if (row.last === null || row.last <= after) break
    events += row.events
    after = row.last
    pace.took(performance.now() - begun)
    onProgress?.(events)
  }
  await findLateEras(client, network, use)
  return events
}

function nameOdd(network: string, row: OddRow, times: boolean, use: (odd: Odd) => void): void {
  const { seq, before } = row
  if (times && row.at_before !== null && row.at < row.at_before) {
    use({
      what: 'TIME_GOES_BACK',
      message: `event ${network}/${seq} is earlier than event ${before} before it`,
      seq,
      expected: `not before ${new Date(row.at_before).toISOString()}`,
      found: new Date(row.at).toISOString(),
    })
  }
  if (seq === before + 1) return
  const era = eraOf(seq)
  if (era > eraOf(before) && seq === firstSeqOfEra(era)) {
    if (row.type !== 'era.begun' || row.settings?.era !== era) {
      use({
        what: 'ERA_WRONG',
        message: `era ${era} of network ${network} begins with ${row.type} instead of its own era.begun`,
        seq,
        expected: `era.begun of era ${era}`,
        found: row.type,
      })
    }
    return
  }
  const next = era > eraOf(before) ? firstSeqOfEra(era) : before + 1
  const begins = before === 0 ? `begins with event ${seq}` : `continues after event ${before} with ${seq}`
  use({
    what: 'EVENT_MISSING',
    message: `the log of network ${network} ${begins}: ${seq - next} missing from ${next} on`,
    seq: next,
    expected: String(next),
    found: String(seq),
  })
}

async function findLateEras(client: pg.Client, network: string, use: (odd: Odd) => void): Promise<void> {
  const { rows } = await client.query<{ seq: number; settings: { readonly era?: number } | null }>(
    `select seq, settings from ipledger.event where network_id = $1 and ${IS_SHAPE} and type = 'era.begun'`,
    [network],
  )
  for (const { seq, settings } of rows) {
    if (seq === firstSeqOfEra(settings?.era ?? -1)) continue
    use({
      what: 'ERA_WRONG',
      message: `event ${network}/${seq} begins era ${settings?.era ?? 'unknown'} in the middle of another`,
      seq,
      expected: null,
      found: null,
    })
  }
}
