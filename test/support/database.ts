/** A database of its own for a test file, cloned from the migrated template. */

import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { afterAll, inject } from 'vitest'
import { connect, replaceDatabase } from '../../src/postgres/connect.ts'

export type TestDatabase = Readonly<{
  name: string
  /** Superuser. */
  adminUrl: string
  serviceUrl: string
  jobsUrl: string
  drop: () => Promise<void>
}>
/** With the login of who reads `ipledger_audit`. */
export type AuditedDatabase = TestDatabase & Readonly<{ auditorUrl: string }>

/** `const database = await useTestDatabase()` at the top of a test file; dropped after its tests. */
export async function useTestDatabase(): Promise<AuditedDatabase> {
  const database = await createTestDatabase()
  afterAll(() => database.drop())
  return database
}

/** With `empty`, a database without any schema, as an operator would create it. */
export async function createTestDatabase(
  options: Readonly<{ empty?: boolean }> = {},
): Promise<AuditedDatabase> {
  const { url, template, serviceUrl, jobsUrl, auditorUrl } = inject('postgres')
  const name = `test_${randomBytes(6).toString('hex')}`
  const from = options.empty ? 'template1' : template
  await asSuperuser(`create database ${name} template ${from}`)
  return {
    name,
    adminUrl: replaceDatabase(url, name),
    serviceUrl: replaceDatabase(serviceUrl, name),
    jobsUrl: replaceDatabase(jobsUrl, name),
    auditorUrl: replaceDatabase(auditorUrl, name),
    drop: () => asSuperuser(`drop database if exists ${name} with (force)`),
  }
}

/** Runs statements one by one, each in its own transaction, as superuser of the whole server. */
export async function asSuperuser(...statements: readonly string[]): Promise<void> {
  const admin = await connect({ url: inject('postgres').url, applicationName: 'test support' })
  try {
    for (const statement of statements) await admin.query(statement)
  } finally {
    await admin.end()
  }
}

/** A connection that is closed after the work, whatever comes of it. */
export async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connect({ url, applicationName: 'test' })
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
