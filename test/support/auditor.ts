/** Questions to schema `ipledger_audit`, asked as people ask them: logged in as its reader. */
import type pg from 'pg'
import { afterAll } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import type { AuditedDatabase } from './database.ts'

export type Auditor = Readonly<{
  client: pg.Client
  /** Rows of any statement. */
  ask: <Row extends pg.QueryResultRow>(text: string, ...values: readonly unknown[]) => Promise<readonly Row[]>
  /** `explain_address` now, or at a time. */
  explain: (network: string, address: string, at?: Date) => Promise<readonly Explained[]>
  /** Step 0 of it. */
  answer: (network: string, address: string, at?: Date) => Promise<string>
  whoHad: (network: string, address: string, at?: Date) => Promise<readonly Holder[]>
}>

export type Explained = Readonly<{
  step: number
  at: number
  seq: number | null
  what: string
  evidence: Readonly<Record<string, unknown>> | null
}>

export type Holder = Readonly<{
  network: string
  address: string
  pool: string
  state: string
  lease_id: string
  seq: number
  owner_name: string | null
  node: string
  given_by: string
  given_cause: string
  since: number
  until: number | null
  ended_as: string | null
}>

export async function useAuditor(database: Pick<AuditedDatabase, 'auditorUrl'>): Promise<Auditor> {
  const client = await connectUnchecked({ url: database.auditorUrl, applicationName: 'test auditor' })
  afterAll(() => client.end())
  const ask: Auditor['ask'] = async <Row extends pg.QueryResultRow>(
    text: string,
    ...values: readonly unknown[]
  ) => (await client.query<Row>(text, [...values])).rows
  const explain: Auditor['explain'] = (network, address, at) =>
    at === undefined
      ? ask('select * from explain_address($1, $2)', network, address)
      : ask('select * from explain_address($1, $2, $3)', network, address, at)
  return {
    client,
    ask,
    explain,
    answer: async (...asked) => (await explain(...asked))[0]!.what,
    whoHad: (network, address, at = new Date()) =>
      ask('select * from who_had($1, $2, $3)', network, address, at),
  }
}
