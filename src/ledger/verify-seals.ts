/**
 * `ipledger verify --seals`: whether the log is still what was sealed, and whether the seals are still the ones that
 * were made. All of them, from the first: an old event may be altered today. The database makes the leaves and digests
 * of a slice anew and answers whether they agree; only of a seal that does not are the leaves read.
 *
 * The job that verifies by itself does the same a piece at a time, and writes down what it finds (`verification.ts`): a
 * piece goes on after the last seal of the one before, as if there had been no end between them; only a run of deleted
 * events is told in two.
 *
 * `--against` asks the log instead what digests say that were exported before: whoever altered an event and made all
 * seals anew, did not make those anew. The seals in the database have no say in it.
 *
 * Whoever administers the database may replace its functions, too. Against that helps only to ask elsewhere: a restored
 * copy, or a file of lines (`check-export.ts`).
 */
import type pg from 'pg'
import {
  alteredFinding,
  compareSeal,
  createChain,
  createDeleted,
  events as eventsOf,
  type Leaf,
  type Run,
  type SealFinding,
  sealAlteredFinding,
} from './seal-chain.ts'
import { readSeals, SEAL_AFTER_MS, type Seal, type SealedStretch } from './seals.ts'
import { IS_SHAPE } from './shape.ts'
import { createPace, inSnapshot } from './transaction.ts'

/** Exported digests of a network, in order; with leaves where it was more than digests that was exported. */
export type Exported = SealedStretch & { readonly leaves: string | null }

export type SealsOptions = {
  readonly use: (finding: SealFinding) => void
  readonly onProgress?: ((events: number, of: number | null) => void) | undefined
  readonly signal?: AbortSignal | undefined
  /** For tests: seals per slice. */
  readonly slice?: number | undefined
}

export type SealsVerified = {
  readonly seals: number
  /** Events they cover. */
  readonly events: number
  /** 0: there is no seal. */
  readonly upTo: number
  /** Events after the last seal: nothing is known of them. */
  readonly unsealed: number
}

/**
 * Events of a slice, in whole seals: 16,384 took 0.2 s, and 0.7 s beside other work (2 cores). Counted in events, because
 * one seal is as good as 4,096 of another.
 */
const EVENTS_AT_FIRST = 16_384
const MOST_EVENTS = 65_536
/** Where events are few and far between there may be a seal for each. */
const MOST_SEALS = 1_000
/** No seal is as long (constraint seal_is_short_enough_to_be_read_at_once): whatever the row says, not more is read. */
const LONGEST = 16_384
/** Events that should have been sealed long ago: no worker runs, or sealing has stopped. */
const LATE_MS = 3 * SEAL_AFTER_MS

/** For the test of their plans. */
export const VERIFY_SEAL_STATEMENTS = {
  bounds: `
    select s.first_seq as first, s.last_seq as last from ipledger.seal s
     where s.network_id = $1 and s.first_seq > $2 order by s.first_seq limit $3`,
  slice: `
    select s.first_seq, s.last_seq, s.sealed_at, encode(s.digest, 'hex') as digest,
           encode(s.previous_digest, 'hex') as previous_digest, encode(f.previous_digest, 'hex') as followed_by,
           coalesce(l.leaves = s.leaves and s.digest
             = ipledger.seal_digest(s.previous_digest, $1, s.first_seq, s.last_seq, l.leaves), false) as agrees
      from (select o.first_seq, o.last_seq, o.leaves, o.digest, o.previous_digest, o.sealed_at from ipledger.seal o
             where o.network_id = $1 and o.first_seq > $2 and o.first_seq <= $3 order by o.first_seq limit ${MOST_SEALS}) s
      left join lateral (
        select string_agg(x.leaf, ''::bytea) as leaves
          from (select ipledger.event_leaf(e) as leaf from ipledger.event e
                 where e.network_id = $1 and e.seq >= s.first_seq and e.seq <= s.last_seq
                 order by e.seq limit ${LONGEST}) x) l on true
      left join lateral (
        select n.previous_digest from ipledger.seal n
         where n.network_id = $1 and n.first_seq > s.first_seq order by n.first_seq limit 1) f on true
     order by s.first_seq`,
  leaves: `
    select encode(s.leaves, 'hex') as leaves from ipledger.seal s where s.network_id = $1 and s.first_seq = $2 limit 1`,
  events: `
    select e.seq, encode(ipledger.event_leaf(e), 'hex') as leaf from ipledger.event e
     where e.network_id = $1 and e.seq >= $2 and e.seq <= $3 order by e.seq limit ${LONGEST}`,
  line: `
    select ipledger.event_line(e) as line from ipledger.event e
     where e.network_id = $1 and e.seq >= $2 and e.seq <= $2 order by e.seq limit 1`,
  between: `
    select e.seq from ipledger.event e where e.network_id = $1 and e.seq > $2 and e.seq < $3 order by e.seq limit 1`,
  /** Counted no further than anybody reads. */
  unsealed: `
    select count(*) as events, min(x.seq) as first, min(x.at) as first_at, now() as now
      from (select e.seq, e.at from ipledger.event e where e.network_id = $1 and e.seq > $2 order by e.seq limit $3) x`,
  exported: `
    select w.first, coalesce(encode(ipledger.seal_digest(decode(w.previous, 'hex'), $1, w.first, w.last, l.leaves), 'hex'), '') as digest
      from unnest($2::bigint[], $3::bigint[], $4::text[]) with ordinality as w (first, last, previous, place)
      left join lateral (
        select string_agg(x.leaf, ''::bytea) as leaves
          from (select ipledger.event_leaf(e) as leaf from ipledger.event e
                 where e.network_id = $1 and e.seq >= w.first and e.seq <= w.last
                 order by e.seq limit ${LONGEST}) x) l on true
     order by w.place`,
  laterEra: `
    select e.seq from ipledger.event e
     where e.network_id = $1 and e.seq > $2 and ${IS_SHAPE} and e.type = 'era.begun' order by e.seq limit 1`,
} as const

const MOST_COUNTED = 100_000

/** Behind every number. */
const NO_END = Number.MAX_SAFE_INTEGER

type SliceRow = {
  readonly first_seq: number
  readonly last_seq: number
  readonly sealed_at: number
  readonly digest: string
  readonly previous_digest: string
  readonly followed_by: string | null
  readonly agrees: boolean
}

export async function walkSeals(
  client: pg.Client,
  network: string,
  { useLate, ...options }: SealsOptions & { readonly useLate: SealsOptions['use'] },
): Promise<SealsVerified> {
  const { after: _, ...done } = await walkChain(client, network, FIRST, options)
  const unsealed = await checkTail(client, network, done.upTo, useLate)
  return { ...done, unsealed }
}

/**
 * A piece of it: from the seal after `after` on, until it is `enough`. Answers the seal to go on after; null: that was the
 * last one. What is not sealed yet is not asked about: it is what the job that seals has still to do, and has a gauge.
 */
export async function walkSealsPiece(
  client: pg.Client,
  network: string,
  { after, ...options }: SealsOptions & { readonly after: number; readonly enough: () => boolean },
): Promise<number | null> {
  const from = after === 0 ? FIRST : await resume(client, network, after)
  // One that is looked at once more is no progress.
  return (await walkChain(client, network, from, { ...options, least: from.after < after ? 2 : 1 })).after
}

type From = {
  readonly after: number
  readonly upTo: number
  readonly chain: Parameters<typeof createChain>[0]
}
const FIRST: From = { after: 0, upTo: 0, chain: { whole: true } }

/** Where a piece ended with the seal `at`. */
async function resume(client: pg.Client, network: string, at: number): Promise<From> {
  const seals = readSeals(client, network, { after: at - 1, upTo: NO_END, most: 2 })
  const [last, next] = await inSnapshot(client, () => Array.fromAsync(seals))
  // Removed or made anew meanwhile: of what was looked at nothing is known.
  if (last?.first !== at) return FIRST
  // Which of the two is wrong its events say: they are looked at once more.
  if (next !== undefined && next.previousDigest !== last.digest)
    return { after: at - 1, upTo: at - 1, chain: { whole: false } }
  return { after: at, upTo: last.last, chain: { whole: false, after: last } }
}

type Walked = Omit<SealsVerified, 'unsealed'> & { readonly after: number | null }

async function walkChain(
  client: pg.Client,
  network: string,
  from: From,
  {
    use,
    onProgress,
    signal,
    slice,
    enough,
    least = 1,
  }: SealsOptions & {
    readonly enough?: () => boolean
    /** Seals to look at whatever is enough. */
    readonly least?: number
  },
): Promise<Walked> {
  const chain = createChain(from.chain)
  const deleted = createDeleted(network)
  const pace = createPace(EVENTS_AT_FIRST, MOST_EVENTS, slice)
  const done = { seals: 0, events: 0, upTo: from.upTo }
  const tell = (finding: SealFinding | null) => {
    if (finding !== null) use(finding)
  }
  let after: number | null = from.after
  while (after !== null) {
    signal?.throwIfAborted()
    const begun = performance.now()
    const rows: readonly SliceRow[] = await inSnapshot(client, async () => {
      const bounds = await client.query<Run>(VERIFY_SEAL_STATEMENTS.bounds, [network, after, MOST_SEALS])
      const end = atOnce(bounds.rows, pace.size()).at(-1)
      if (end === undefined) return []
      const slice = await client.query<SliceRow>(VERIFY_SEAL_STATEMENTS.slice, [network, after, end.first])
      return slice.rows
    })
    pace.took(performance.now() - begun)
    for (const row of rows) {
      const seal = sealOf(network, row)
      const compared = row.agrees ? null : await compareStored(client, seal, row.followed_by)
      const following = chain.add(seal, compared?.digest)
      const between = await unsealedBetween(client, seal, done.upTo)
      tell(following?.what === 'SEAL_MISSING' ? following : (between ?? following))
      if (compared !== null) {
        const { sealAltered, altered, deleted: gone } = compared
        if (sealAltered !== null) use(sealAlteredFinding(seal, sealAltered))
        for (const run of gone) tell(deleted.add({ ...run, sealedAt: seal.sealedAt }))
        if (altered === 'unknown') use(sealAlteredFinding(seal, 'it has not one leaf for each of its events'))
        else if (altered.length > 0)
          use(
            alteredFinding(seal, {
              altered,
              line: await readLine(client, network, altered[0]!),
              sealedAt: seal.sealedAt,
            }),
          )
      }
      done.seals += 1
      done.events += seal.last - seal.first + 1
      done.upTo = Math.max(done.upTo, seal.last)
    }
    onProgress?.(done.events, null)
    after = rows.at(-1)?.first_seq ?? null
    if (done.seals >= least && enough?.() === true) break
  }
  tell(deleted.end())
  return { ...done, after }
}

/** The first of them, one at least, as far as they have so many events together. */
function atOnce<T extends Run>(stretches: readonly T[], most: number): readonly T[] {
  let events = 0
  const end = stretches.findIndex(({ first, last }, index) => {
    events += last - first + 1
    return index > 0 && events > most
  })
  return end === -1 ? stretches : stretches.slice(0, end)
}

function sealOf(network: string, row: SliceRow): Seal {
  const {
    first_seq: first,
    last_seq: last,
    digest,
    previous_digest: previousDigest,
    sealed_at: sealedAt,
  } = row
  return { network, first, last, digest, previousDigest, sealedAt }
}

async function compareStored(client: pg.Client, seal: Seal, followedBy: string | null) {
  const { network, first } = seal
  return inSnapshot(client, async () => {
    const { rows } = await client.query<{ leaves: string }>(VERIFY_SEAL_STATEMENTS.leaves, [network, first])
    const events = await readLeaves(client, seal)
    return compareSeal(seal, { leaves: rows[0]?.leaves ?? '', followedBy, events })
  })
}

async function readLeaves(
  client: pg.Client,
  { network, first, last }: SealedStretch,
): Promise<readonly Leaf[]> {
  const { rows } = await client.query<{ seq: number; leaf: string }>(VERIFY_SEAL_STATEMENTS.events, [
    network,
    first,
    last,
  ])
  return rows.map(({ seq, leaf }) => [seq, leaf] as const)
}

async function readLine(client: pg.Client, network: string, seq: number): Promise<string | null> {
  const { rows } = await inSnapshot(client, () =>
    client.query<{ line: string }>(VERIFY_SEAL_STATEMENTS.line, [network, seq]),
  )
  return rows[0]?.line ?? null
}

/** Numbers that no seal covers may be those that an era ended before, or events that nobody sealed. */
async function unsealedBetween(client: pg.Client, seal: Seal, before: number): Promise<SealFinding | null> {
  const { network, first } = seal
  if (first <= before + 1) return null
  const { rows } = await inSnapshot(client, () =>
    client.query<{ seq: number }>(VERIFY_SEAL_STATEMENTS.between, [network, before, first]),
  )
  const found = rows[0]
  if (found === undefined) return null
  return {
    what: 'SEAL_MISSING',
    message: `no seal covers events ${network}/${found.seq} and after, and one covers those from ${first} on`,
    seq: found.seq,
    expected: null,
    found: null,
  }
}

async function checkTail(
  client: pg.Client,
  network: string,
  upTo: number,
  use: SealsOptions['use'],
): Promise<number> {
  const { rows } = await inSnapshot(client, () =>
    client.query<{ events: number; first: number | null; first_at: number | null; now: number }>(
      VERIFY_SEAL_STATEMENTS.unsealed,
      [network, upTo, MOST_COUNTED],
    ),
  )
  const { events, first, first_at, now } = rows[0]!
  if (first !== null && first_at !== null && now - first_at > LATE_MS)
    use({
      what: 'SEAL_MISSING',
      message:
        `no seal covers event ${network}/${first} of ${new Date(first_at).toISOString()} and the ${events - 1} after it: ` +
        'no worker runs, or it says why it seals nothing, or seals were removed',
      seq: first,
      expected: null,
      found: null,
    })
  return events
}

// Exported digests.

/** Answers how many stretches there were. */
export async function walkExported(
  client: pg.Client,
  network: string,
  exported: readonly Exported[],
  { use, onProgress, signal, slice }: SealsOptions,
): Promise<number> {
  const chain = createChain({ whole: false })
  const deleted = createDeleted(network)
  const pace = createPace(EVENTS_AT_FIRST, MOST_EVENTS, slice)
  const tell = (finding: SealFinding | null) => {
    if (finding !== null) use(finding)
  }
  for (let at = 0; at < exported.length; ) {
    signal?.throwIfAborted()
    const begun = performance.now()
    const some = atOnce(exported.slice(at, at + MOST_SEALS), pace.size())
    const { rows } = await inSnapshot(client, () =>
      client.query<{ digest: string }>(VERIFY_SEAL_STATEMENTS.exported, [
        network,
        some.map(({ first }) => first),
        some.map(({ last }) => last),
        some.map(({ previousDigest }) => previousDigest),
      ]),
    )
    pace.took(performance.now() - begun)
    for (const [index, stretch] of some.entries()) {
      tell(exportedChain(chain.add(stretch)))
      if (rows[index]!.digest === stretch.digest) continue
      const {
        altered,
        deleted: gone,
        sealAltered,
      } = compareSeal(stretch, {
        leaves: stretch.leaves,
        followedBy: null,
        events: await inSnapshot(client, () => readLeaves(client, stretch)),
      })
      if (sealAltered !== null) use(exportAltered(stretch, sealAltered))
      for (const run of gone) tell(deleted.add({ ...run, sealedAt: null }))
      if (altered === 'unknown') use(differs(stretch))
      else if (altered.length > 0)
        use(
          alteredFinding(stretch, {
            altered,
            line: await readLine(client, network, altered[0]!),
            sealedAt: null,
          }),
        )
    }
    at += some.length
    onProgress?.(at, exported.length)
  }
  tell(await lost(client, network, deleted.end()))
  return exported.length
}

/** The last that is gone may have gone with a restore: what the exported digests know and the log does not. */
async function lost(
  client: pg.Client,
  network: string,
  finding: SealFinding | null,
): Promise<SealFinding | null> {
  if (finding === null) return null
  const { rows } = await inSnapshot(client, () =>
    client.query<{ seq: number }>(VERIFY_SEAL_STATEMENTS.laterEra, [network, finding.seq]),
  )
  const era = rows[0]
  if (era === undefined) return finding
  return {
    ...finding,
    message: `${finding.message}: a new era began with event ${era.seq}, so a restore may have lost them`,
  }
}

function exportedChain(finding: SealFinding | null): SealFinding | null {
  if (finding === null) return null
  return { ...finding, what: 'EXPORT_ALTERED', message: `among the exported digests, ${finding.message}` }
}

function exportAltered(stretch: SealedStretch, why: string): SealFinding {
  const { what: _, ...finding } = sealAlteredFinding(stretch, why)
  return { ...finding, what: 'EXPORT_ALTERED', message: `as it was exported, ${finding.message}` }
}

function differs(stretch: SealedStretch): SealFinding {
  return {
    what: 'EXPORT_DIFFERS',
    message:
      `${eventsOf(stretch.network, stretch)} are not what they were when their digest was exported: one of them was altered, ` +
      'and if the seals agree with it, they were made anew',
    seq: stretch.first,
    expected: stretch.digest,
    found: null,
  }
}
