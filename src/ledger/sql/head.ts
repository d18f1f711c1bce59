/** The last event of a network. */
import { sql } from 'kysely'

/** `network`: what names it in the statement, as `$1`. */
export const lastEvent = (network: string, columns = 'e.seq'): string =>
  `select ${columns} from ipledger.event e where e.network_id = ${network} order by e.seq desc limit 1`

/** Its number, in a statement of Kysely; null: there is no such network. */
export const headOf = (network: string) =>
  sql<
    number | null
  >`(select e.seq from ipledger.event e where e.network_id = ${network} order by e.seq desc limit 1)`
