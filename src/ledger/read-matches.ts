/** Names that begin with a text, by the indexes that lists have; so a name with very many events may hide those after it. */
import { type RawBuilder, sql } from 'kysely'
import { type Db, MOST_EXAMINED, readHead } from './read-db.ts'

const MOST_MATCHES = 20
/** After every character that a name can have. */
const LAST = String.fromCodePoint(0x10_ff_ff)

export type Named = {
  readonly kind: 'OWNER' | 'NODE' | 'POOL' | 'SOURCE'
  readonly name: string
  /** Of a pool its CIDR. */
  readonly address: string
}

export async function readNamed(db: Db, network: string, text: string): Promise<readonly Named[] | null> {
  if ((await readHead(db, network)) === null) return null
  const named = (kind: Named['kind'], table: string, column: string, address = `''`): RawBuilder<unknown> => {
    const name = sql.raw(`x.${column}`)
    return sql`(
      select ${kind}::text as kind, f.name, min(f.address) as address
      from (select ${name} as name, ${sql.raw(address)} as address from ${sql.raw(table)} x
            where x.network_id = ${network} and ${name} >= ${text} and ${name} < ${text + LAST} order by ${name} limit ${MOST_EXAMINED}) f
      group by f.name order by f.name limit ${MOST_MATCHES})`
  }
  const { rows } = await sql<Named>`
    ${named('OWNER', 'ipledger.event', 'owner_name')} union all ${named('NODE', 'ipledger.lease', 'node')}
    union all ${named('POOL', 'ipledger.pool', 'name', 'x.cidr::text')} union all ${named('SOURCE', 'ipledger.source', 'source_id')}
  `.execute(db)
  return rows
}
