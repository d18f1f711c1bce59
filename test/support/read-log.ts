/** The log of a network, for tests that fold it themselves. */
import type { LedgerEvent } from '../../src/core/event.ts'
import { EVENT_COLUMNS, type EventRow, readEvent } from '../../src/ledger/rows.ts'
import { withClient } from './database.ts'

export function readLog(
  database: Readonly<{ serviceUrl: string }>,
  network: string,
): Promise<readonly LedgerEvent[]> {
  return withClient(database.serviceUrl, async (client) => {
    const { rows } = await client.query<EventRow>(
      `select ${EVENT_COLUMNS.join(', ')} from ipledger.event where network_id = $1 order by seq`,
      [network],
    )
    return rows.map(readEvent)
  })
}
