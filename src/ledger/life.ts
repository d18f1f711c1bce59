/**
 * Which database this is: the cluster, the database in it, the table of the log, and the timeline. Any of them is another
 * one after a restore, a copy or a failover, and what was acknowledged before may be missing (12.1, 12.4).
 *
 * Each batch reads the timeline with the head, since a standby can be promoted under whatever stands between us and the
 * server. The rest does not change under a server process, and the cluster takes the reading of a file: it is asked once
 * for each, which behind PgBouncer is not once for each connection of ours. What was stored with the network comes with
 * the head too. In all that is 10 µs of the server's processor and 3 µs of ours for each batch (the head: 29 and 10, on
 * a busy machine); half of it is the join.
 *
 * A copy of the whole data directory that was never promoted is the same life, and so are rows that were put back into the
 * same tables; numbers that others have seen tell (eras.ts).
 *
 * `pg_control_checkpoint()` would say the old timeline until the first checkpoint after a promotion; the name of the
 * segment that is written to does not.
 */
import type pg from 'pg'
import { type Statement, trip } from '../postgres/trip.ts'

export type DatabaseLife = {
  readonly systemIdentifier: string
  readonly databaseOid: number
  /** Of the table `event`. */
  readonly logOid: number
  readonly timeline: number
}

type Identity = Omit<DatabaseLife, 'timeline'>

/** What the head's read says of the database. */
export type DatabaseSeen = {
  /** The server process that the transaction runs in. */
  readonly serverProcess: string
  readonly timeline: number
  /** Null: the network was never written since lives are stored. */
  readonly stored: DatabaseLife | null
}

/** Beside the head, with `STORED_LIFE` joined. */
export const SEEN_COLUMNS = `pg_backend_pid() as server_pid, pg_postmaster_start_time() as server_started_at,
      left(pg_walfile_name(pg_current_wal_lsn()), 8) as timeline_now,
      life.system_identifier, life.database_oid, life.log_oid, life.timeline`
export const STORED_LIFE = 'left join ipledger.database_life life on life.network_id = $1'

export type SeenRow = {
  server_pid: number
  server_started_at: number
  timeline_now: string
  system_identifier: string | null
  database_oid: number | null
  log_oid: number | null
  timeline: number | null
}

export const LIFE_STATEMENTS = {
  identity: `select s.system_identifier::text as system_identifier, d.oid::bigint as database_oid,
      'ipledger.event'::regclass::oid::bigint as log_oid
    from pg_control_system() s cross join pg_database d where d.datname = current_database()`,
  store: `insert into ipledger.database_life (network_id, system_identifier, database_oid, log_oid, timeline, known_at)
    values ($1, $2, $3, $4, $5, to_timestamp($6::float8 / 1000))
    on conflict (network_id) do update set system_identifier = excluded.system_identifier,
      database_oid = excluded.database_oid, log_oid = excluded.log_oid, timeline = excluded.timeline, known_at = excluded.known_at`,
  // A handful of networks, once at a start and once a minute.
  strangers: `select n.network_id, n.era
    from pg_control_system() s
    cross join pg_database d
    cross join ipledger.network n
    left join ipledger.database_life l on l.network_id = n.network_id
    where d.datname = current_database()
      and (l.system_identifier, l.database_oid, l.log_oid, l.timeline) is distinct from (
        s.system_identifier::text, d.oid::bigint, 'ipledger.event'::regclass::oid::bigint,
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int)
    order by n.network_id`,
} as const

export function readSeen(row: SeenRow): DatabaseSeen {
  const { system_identifier, database_oid, log_oid, timeline } = row
  return {
    serverProcess: `${row.server_started_at}/${row.server_pid}`,
    timeline: Number.parseInt(row.timeline_now, 16),
    stored:
      system_identifier === null
        ? null
        : {
            systemIdentifier: system_identifier,
            databaseOid: database_oid!,
            logOid: log_oid!,
            timeline: timeline!,
          },
  }
}

/** By connection: the server process that answered on it last, and where that is. */
const identities = new WeakMap<pg.Client, { readonly serverProcess: string; readonly identity: Identity }>()

/** In the batch's transaction, which one server process has from its begin to its end. */
export async function currentLife(client: pg.Client, seen: DatabaseSeen): Promise<DatabaseLife> {
  const { serverProcess, timeline } = seen
  let known = identities.get(client)
  if (known?.serverProcess !== serverProcess) {
    known = { serverProcess, identity: await readIdentity(client) }
    identities.set(client, known)
  }
  return { ...known.identity, timeline }
}

async function readIdentity(client: pg.Client): Promise<Identity> {
  const [answered] = await trip(client, [{ name: 'life', text: LIFE_STATEMENTS.identity, values: [] }])
  const row = answered!.rows[0]!
  return {
    systemIdentifier: row.system_identifier as string,
    databaseOid: row.database_oid as number,
    logOid: row.log_oid as number,
  }
}

export function isSameLife(a: DatabaseLife | null, b: DatabaseLife): boolean {
  return (
    a !== null &&
    a.systemIdentifier === b.systemIdentifier &&
    a.databaseOid === b.databaseOid &&
    a.logOid === b.logOid &&
    a.timeline === b.timeline
  )
}

export function storeLife(network: string, life: DatabaseLife, now: number): Statement {
  const { systemIdentifier, databaseOid, logOid, timeline } = life
  return {
    name: 'write_life',
    text: LIFE_STATEMENTS.store,
    values: [network, systemIdentifier, databaseOid, logOid, timeline, now],
  }
}
