/**
 * Time for tests. The ledger's clock is the database's, and no test may stop it; what a test can do without lying to
 * the books is to have begun earlier: every time of a network, in the log, in all that was projected from it and in
 * all that was observed, is moved into the past by the same amount. The fold of the log is then still the projection,
 * and `verify` still holds. Sources will then have been silent for as long; proofs in events keep the times they had.
 */

import pg from 'pg'
import { withClient } from './database.ts'

const TABLES = [
  'network',
  'event',
  'pool',
  'lease',
  'released_address',
  'pool_position',
  'request',
  'closed_attachment',
  'hold',
  'fence',
  'source',
  'source_epoch',
  'boot_report',
  'unknown_source',
  'snapshot',
  'snapshot_part',
  'sighting',
  'lookup',
  'pool_sample',
  'turn',
  'stuck_item',
  'verification',
  'verify_finding',
  'tenure',
  'tenure_position',
  'tenure_overlap',
] as const

/** The counted snapshots that are kept in the row of their source. */
const recent = (network: string, ms: string) => `
  update ipledger.source
     set recent = coalesce((
       select json_agg(jsonb_set(r.one, '{begunAt}', to_jsonb((r.one ->> 'begunAt')::float8 - ${ms}::float8)) order by r.at)
         from jsonb_array_elements(recent::jsonb) with ordinality as r (one, at)), '[]')
   where network_id = ${network}`

/** Events at other times are other events than those that were sealed: a job seals them anew. */
const unsealed = (network: string) => `delete from ipledger.seal where network_id = ${network}`

type TimesOf = { readonly name: string; readonly columns: readonly string[] }

/** Read once: every database of a run has the same tables. */
let times: Promise<readonly TimesOf[]> | undefined

async function readTimes(admin: pg.Client): Promise<readonly TimesOf[]> {
  const { rows } = await admin.query<TimesOf>(
    `select table_name as name, array_agg(column_name::text) as columns
       from information_schema.columns
      where table_schema = 'ipledger' and data_type = 'timestamp with time zone' and table_name = any($1)
      group by table_name`,
    [TABLES],
  )
  return rows
}

/** Only while nobody writes to the network. One round trip: scenes do it hundreds of times. */
export async function moveToThePast(
  database: Readonly<{ adminUrl: string }>,
  ms: number,
  network = 'default',
): Promise<void> {
  await withClient(database.adminUrl, async (admin) => {
    times ??= readTimes(admin)
    const named = pg.escapeLiteral(network)
    const by = String(Math.round(ms))
    const updates = (await times).map(({ name, columns }) => {
      const earlier = columns.map((column) => {
        const quoted = pg.escapeIdentifier(column)
        return `${quoted} = ${quoted} - (${by})::bigint * interval '1 millisecond'`
      })
      return `update ipledger.${pg.escapeIdentifier(name)} set ${earlier.join(', ')} where network_id = ${named}`
    })
    await admin.query(
      [
        'begin',
        'set local synchronous_commit = off',
        // What the job writes meanwhile would be of both times.
        'lock table ipledger.tenure_position in exclusive mode',
        ...updates,
        recent(named, `(${by})`),
        unsealed(named),
        'commit',
      ].join(';\n'),
    )
  })
}
