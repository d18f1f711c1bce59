/** Limits of a transaction in place of the role's, as verify, rebuild and a load need them. */
import type pg from 'pg'

/** PostgreSQL has the last one since 17. */
const LIMITS = `
  select string_agg(format('set local %I = %L', s.name, $1::text), ';') as text from pg_settings s
   where s.name in ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')`

/** In an open transaction. The first statement lets them reach the workers of Citus; to any other server it says nothing. */
export async function setLimits(client: pg.ClientBase, limit: '0' | '60s'): Promise<void> {
  const { rows } = await client.query<{ text: string }>(LIMITS, [limit])
  await client.query(`set local citus.propagate_set_commands = 'local'; ${rows[0]!.text}`)
}
