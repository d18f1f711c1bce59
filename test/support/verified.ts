/** The last line of every test file that wrote to a ledger. */
import { expect } from 'vitest'
import { verifyNetwork } from '../../src/ledger/verify.ts'
import { type TestDatabase, withClient } from './database.ts'

/** Fails, naming what was found, unless every log of the database is in order, and the projections are its fold. */
export async function expectVerified(
  { adminUrl }: Pick<TestDatabase, 'adminUrl'>,
  { network }: { readonly network?: string } = {},
): Promise<void> {
  await withClient(adminUrl, async (client) => {
    const { rows } = await client.query<{ network_id: string }>(
      'select network_id from ipledger.network where network_id = coalesce($1, network_id) order by network_id',
      [network ?? null],
    )
    for (const { network_id: name } of rows) {
      const { findings, complete } = await verifyNetwork(client, name, { from: 0 })
      expect(findings, `verify of ${name} finds nothing`).toEqual([])
      expect(complete, `verify of ${name} comes to its end`).toBe(true)
    }
  })
}
