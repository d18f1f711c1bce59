/** The views and functions of `ipledger_audit`, with what they say of themselves. */
import type pg from 'pg'

type AuditObject = { readonly kind: string; readonly name: string; readonly comment: string | null }

export async function auditObjects(client: pg.Client): Promise<readonly AuditObject[]> {
  const { rows } = await client.query<AuditObject>(`
    select 'view' as kind, c.relname as name, obj_description(c.oid, 'pg_class') as comment
      from pg_class c where c.relnamespace = 'ipledger_audit'::regnamespace and c.relkind = 'v'
    union all
    select 'function', p.proname, obj_description(p.oid, 'pg_proc')
      from pg_proc p where p.pronamespace = 'ipledger_audit'::regnamespace and not p.prosecdef and p.provolatile <> 'v'
    order by 1, 2`)
  return rows
}
