/** The last line of every test file that wrote to a ledger. */
import { expect } from 'vitest'
import { verify } from '../../src/ledger/verify.ts'
import type { TestDatabase } from './database.ts'

/** Fails, naming what was found, unless every ledger of the database is in order. */
export async function expectVerified(
  database: Pick<TestDatabase, 'serviceUrl'>,
  options: { readonly network?: string; readonly full?: boolean; readonly slice?: number } = {},
): Promise<void> {
  const { full = true, network, slice } = options
  const { networks } = await verify({ url: database.serviceUrl, full, network, slice })
  const findings = networks.flatMap((one) =>
    one.findings.map(({ what, message, expected, found }) => ({ what, message, expected, found })),
  )
  expect(findings, 'ipledger verify finds nothing').toEqual([])
}
