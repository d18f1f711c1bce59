/** A database of its own for a test file, cloned from the migrated template. */

import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { afterAll, inject } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'

export type TestDatabase = {
  readonly name: string
  /** Superuser. */
  readonly adminUrl: string
  readonly serviceUrl: string
  readonly jobsUrl: string
  /** Of who reads `ipledger_audit`. */
  readonly auditorUrl: string
  readonly drop: () => Promise<void>
}

/** `const database = await useTestDatabase()` at the top of a test file; dropped after its tests. */
export async function useTestDatabase(): Promise<TestDatabase> {
  const database = await createTestDatabase()
  afterAll(() => database.drop())
  return database
}

/** With `empty`, a database without any schema, as an operator would create it. */
export async function createTestDatabase(options: { readonly empty?: boolean } = {}): Promise<TestDatabase> {
  const { url, template, serviceUrl, jobsUrl, auditorUrl } = inject('postgres')
  const name = `test_${randomBytes(6).toString('hex')}`
  await asSuperuser(`create database ${name} template ${options.empty ? 'template1' : template}`)
  const here = (other: string) => new URL(`/${name}`, other).href
  return {
    name,
    adminUrl: here(url),
    serviceUrl: here(serviceUrl),
    jobsUrl: here(jobsUrl),
    auditorUrl: here(auditorUrl),
    drop: () => asSuperuser(`drop database if exists ${name} with (force)`),
  }
}

/** Runs statements one by one, each in its own transaction, as superuser of the whole server. */
export async function asSuperuser(...statements: readonly string[]): Promise<void> {
  await withClient(inject('postgres').url, async (admin) => {
    for (const statement of statements) await admin.query(statement)
  })
}

/** A connection that is closed after the work, whatever comes of it; also of a role that only reads. */
export async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connectUnchecked({ url, applicationName: 'test' })
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
