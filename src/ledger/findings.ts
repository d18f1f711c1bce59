/**
 * What verification found, written down until a later look at all of a network finds it no more: for the view
 * `ipledger_audit.verify_findings`, for `ipledger stuck`, and for the gauge that an alert watches. Nothing is decided by it.
 *
 * The same difference found again is the same row, whatever numbers its sentence names by then. At most `MOST_KEPT` of a
 * network: with more, the first ones say what is wrong.
 */
import { hash } from 'node:crypto'
import type pg from 'pg'
import type { Finding, FindingCode } from './verify.ts'

/** A row of some 500 bytes each. */
export const MOST_KEPT = 1_000

const KNOWN = 'select v.finding_key from ipledger.verify_finding v where v.network_id = $1'
const KEEP = `
  insert into ipledger.verify_finding as v
    (network_id, finding_key, what, message, address, lease_id, pool, seq, expected, found, found_at, seen_at)
  select $1, f.finding_key, f.what, f.message, f.address, f.lease_id, f.pool, f.seq, f.expected, f.found,
         statement_timestamp(), statement_timestamp()
    from unnest($2::text[], $3::text[], $4::text[], $5::inet[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[])
         as f (finding_key, what, message, address, lease_id, pool, seq, expected, found)
  on conflict (network_id, finding_key) do update
    set message = excluded.message, lease_id = excluded.lease_id, seq = excluded.seq, expected = excluded.expected,
        found = excluded.found, seen_at = greatest(v.seen_at, excluded.seen_at)`
const FORGET = `
  delete from ipledger.verify_finding
   where network_id = $1 and seen_at < to_timestamp($2::float8 / 1000) and ($3::text[] is null or what like any($3))`
const STILL = `
  update ipledger.verify_finding set seen_at = statement_timestamp()
   where network_id = $1 and what like any($2::text[]) and ($3::text is null or pool = $3)`
const ANY =
  'select v.finding_key from ipledger.verify_finding v where v.network_id = $1 order by v.finding_key limit 1'

/** For the test of their plans. */
export const FINDING_STATEMENTS = {
  findingsKnown: KNOWN,
  findingsKeep: KEEP,
  findingsForget: FORGET,
  findingsStill: STILL,
  findingsAny: ANY,
} as const

/** Answers those that were not known before. */
export async function keepFindings(
  client: pg.Client,
  network: string,
  findings: readonly Finding[],
): Promise<readonly Finding[]> {
  if (findings.length === 0) return []
  const { rows } = await client.query<{ finding_key: string }>(KNOWN, [network])
  const known = new Set(rows.map((row) => row.finding_key))
  const found = new Map(findings.map((finding) => [keyOf(finding), finding]))
  const fresh = [...found].filter(([key]) => !known.has(key)).slice(0, Math.max(0, MOST_KEPT - known.size))
  const kept = [...[...found].filter(([key]) => known.has(key)), ...fresh]
  const column = <K extends keyof Finding>(name: K) => kept.map(([, finding]) => finding[name])
  if (kept.length > 0)
    await client.query(KEEP, [
      network,
      kept.map(([key]) => key),
      column('what'),
      column('message'),
      column('address'),
      column('leaseId'),
      column('pool'),
      column('seq'),
      column('expected'),
      column('found'),
    ])
  return fresh.map(([, finding]) => finding)
}

/** After a look at all of it that began at `since`, or at all that `codes` are about: what it did not find is there no more. */
export async function forgetFindings(
  client: pg.Client,
  network: string,
  since: number,
  codes: readonly string[] | null = null,
): Promise<void> {
  await client.query(FORGET, [network, since, codes])
}

/** Those of a log that is not what was sealed, and of seals that are not what was made, as patterns of `like`. */
export const CODES_OF_SEALS: readonly string[] = ['EVENT_ALTERED', 'EVENTS_DELETED', 'SEAL_%']

/** What was not looked at is as it was found. `codes`: patterns of `like`; `pool`: only of this one. */
export async function leaveFindings(
  client: pg.Client,
  network: string,
  { codes, pool = null }: { readonly codes: readonly string[]; readonly pool?: string | null },
): Promise<void> {
  await client.query(STILL, [network, codes, pool])
}

export async function hasFindings(client: pg.Client, network: string): Promise<boolean> {
  return (await client.query(ANY, [network])).rows.length > 0
}

export async function readClock(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ now: number }>('select clock_timestamp() as now')
  return rows[0]!.now
}

const OF_AN_EVENT: ReadonlySet<FindingCode> = new Set([
  'EVENT_MISSING',
  'ERA_WRONG',
  'TIME_GOES_BACK',
  'EVENT_ILLEGAL',
  'EVENT_ALTERED',
  'EVENTS_DELETED',
  'SEAL_ALTERED',
  'SEAL_MISSING',
  'SEAL_DOES_NOT_FOLLOW',
])
const OF_THE_NETWORK: ReadonlySet<FindingCode> = new Set([
  'LOG_SHORTER_THAN_BEFORE',
  'LOCK_ROW_MISSING',
  'NETWORK_MISSING',
  'NETWORK_UNEXPLAINED',
  'NETWORK_DIFFERS',
  'REQUEST_AFTER_HEAD',
])

/** What it is about. Sentences and numbers of the rest move with the log. */
function keyOf({ what, message, address, pool, seq }: Finding): string {
  const about = OF_THE_NETWORK.has(what)
    ? ''
    : OF_AN_EVENT.has(what)
      ? String(seq)
      : (address ?? pool ?? message)
  return hash('md5', `${what} ${about}`, 'hex')
}
