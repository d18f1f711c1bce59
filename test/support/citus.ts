/** Citus in the databases of tests: IPLEDGER_TEST_POSTGRES=citus, where it is installed beside Debian's PostgreSQL 15. */
import type pg from 'pg'
import { readUrl } from '../../src/postgres/connect.ts'

export const ON_CITUS = process.env.IPLEDGER_TEST_POSTGRES === 'citus'

/** What tests cannot ask of Citus, and why. */
const CANNOT = {
  plans: 'The coordinator plans tasks. What a shard plans is that of PostgreSQL 15, where these tests run.',
  tamper:
    'An update by a subquery or a function that is not immutable: so that a test alters an event and its digest.',
} as const
export const cannot = (what: keyof typeof CANNOT): boolean => ON_CITUS && what in CANNOT

export const CITUS_SETTINGS = {
  shared_preload_libraries: 'citus',
  wal_level: 'logical',
  max_connections: '300',
  max_worker_processes: '120',
  max_prepared_transactions: '200',
  'citus.shard_count': '2',
  'citus.node_conninfo': 'sslmode=disable',
}

/** How nodes log in to each other, as an operator sets it. */
export async function mayLogIn(admin: pg.Client, ...urls: readonly string[]): Promise<void> {
  for (const url of urls) {
    const { user, password } = readUrl(url)
    await admin.query('insert into pg_dist_authinfo (nodeid, rolename, authinfo) values (0, $1, $2)', [
      user,
      `password=${password}`,
    ])
  }
}

/** Makes the database of this login a cluster of one node. */
export async function onOneNode(admin: pg.Client, url: string): Promise<void> {
  const { host, port } = readUrl(url)
  await admin.query('create extension citus')
  await mayLogIn(admin, url)
  await admin.query('select citus_set_coordinator_host($1, $2)', [host, port])
  await admin.query(`select citus_set_node_property($1, $2, 'shouldhaveshards', true)`, [host, port])
}
