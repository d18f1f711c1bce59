/**
 * A database that Citus spreads over machines. Tables are distributed by network, all in one group. What is of no network (migrations,
 * the queue of jobs) stays on the coordinator. Schema `ipledger_audit` is made on each node by itself: the row types of its views
 * depend on each other in circles, which Citus does not take to other nodes.
 */
import type pg from 'pg'
import { StartRefused } from '../config.ts'
import { AUDITOR_ROLE, JOBS_ROLE } from './roles.ts'

/** Digest of the audit that a node has; null: it has none. */
export const AUDIT_DIGEST = `select right(obj_description(to_regnamespace('ipledger_audit'), 'pg_namespace'), 64)`
/** For the rest of a transaction statements are about this node only. */
export const ALONE = 'set local citus.enable_ddl_propagation = off'

export async function hasCitus(admin: pg.Client): Promise<boolean> {
  return (await admin.query(`select from pg_extension where extname = 'citus'`)).rowCount === 1
}

/** Tables that are there already, or that a migration has added. */
export async function distribute(admin: pg.Client): Promise<void> {
  const { rows } = await admin.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'network_id'
      where c.relnamespace = 'ipledger'::regnamespace and c.relkind = 'r' and not relation_is_a_known_shard(c.oid)
        and not exists (select from pg_dist_partition p where p.logicalrelid = c.oid)
      order by c.relname <> 'event', c.relname`,
  )
  if (rows.length === 0) return
  await dropAudit(admin)
  await admin.query(`set local citus.multi_shard_modify_mode = 'sequential'`)
  for (const { name } of rows)
    await admin.query(`select create_distributed_table($1, 'network_id', colocate_with => $2)`, [
      `ipledger.${name}`,
      name === 'event' ? 'none' : 'ipledger.event',
    ])
  await admin.query(`select create_distributed_function('ipledger.identity()')`)
}

/**
 * A query of a shard runs as its caller, who must be able to read what the views read: not the ids by which a caller is answered
 * again, nor the secrets of networks. The queue of jobs is the coordinator's alone.
 */
export const GRANTS = {
  name: 'citus',
  text: `
  grant usage on schema ipledger to ${AUDITOR_ROLE};
  do $$ begin execute (
    select string_agg(format('grant select (%s) on ipledger.%I to ${AUDITOR_ROLE};', c.columns, c.table_name), ' ')
      from (select c.table_name, string_agg(quote_ident(c.column_name), ', ') as columns from information_schema.columns c
             where c.table_schema = 'ipledger' and c.table_name not in ('migration', 'request')
               and c.column_name not in ('request_id', 'secret')
             group by c.table_name) c); end $$;
  alter role ${JOBS_ROLE} set citus.enable_ddl_propagation = off;`,
}

/** Before tables are altered or distributed: views depend on them. */
export async function dropAudit(admin: pg.Client): Promise<void> {
  const drop = 'drop schema if exists ipledger_audit cascade'
  await everywhere(admin, drop)
  await admin.query(`${ALONE}; ${drop}; set local citus.enable_ddl_propagation = on`)
}

/** Where the audit is not the one of this digest: also on a node that was added since. */
export async function onWorkers(admin: pg.Client, audit: readonly string[], digest: string): Promise<void> {
  const { rows } = await admin.query(
    'select from run_command_on_workers($1) where result is distinct from $2',
    [AUDIT_DIGEST, digest],
  )
  if (rows.length > 0) await everywhere(admin, `begin; ${ALONE}; ${audit.join('\n')}; commit`)
}

async function everywhere(admin: pg.Client, text: string): Promise<void> {
  const { rows } = await admin.query<{ node: string; result: string }>(
    `select nodename || ':' || nodeport as node, result from run_command_on_workers($1) where not success`,
    [text],
  )
  const [failed] = rows
  if (failed !== undefined)
    throw new StartRefused(`Node ${failed.node} of Citus could not be brought up to date: ${failed.result}`)
}

const SQL_FUNCTION = /(create function [^;]*?)language sql( [^$]*?)as \$\$\n(.*?)\$\$;/gs

/** Citus plans no statement with a parameter of a function of language sql: the same body in PL/pgSQL. Its queries may be about other shards. */
export function inPlpgsql(text: string): string {
  return text.replace(SQL_FUNCTION, (all, head: string, attributes: string, body: string) => {
    if (!/(?:from|join|lateral) ipledger_audit\./.test(body)) return all
    const isSet = /returns\s+(?:setof|table)/i.test(head)
    const plans = 'set plan_cache_mode = force_generic_plan '
    const how = `${attributes.replace(plans, '')}set citus.allow_nested_distributed_execution = on `
    const [open, close] = isSet ? ['return query', ''] : ['return (', ')']
    return `${head}language plpgsql${how}as $$\n#variable_conflict use_column\nbegin\n  ${open} ${body.trimEnd()}${close};\nend\n$$;`
  })
}
