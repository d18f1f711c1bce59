/** A database of its own for a test file, cloned from the migrated template. */

import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import type pg from 'pg'
import { afterAll, inject, onTestFinished } from 'vitest'
import { connectUnchecked } from '../../src/postgres/connect.ts'
import { ON_CITUS, onOneNode } from './citus.ts'
import { waitFor } from './wait-for.ts'

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
  if (ON_CITUS && options.empty) await withClient(here(url), (admin) => onOneNode(admin, here(url)))
  return {
    name,
    adminUrl: here(url),
    serviceUrl: here(serviceUrl),
    jobsUrl: here(jobsUrl),
    auditorUrl: here(auditorUrl),
    drop: () => dropDatabase(name),
  }
}

/** For one test. */
export async function useOwnDatabase(
  options?: Parameters<typeof createTestDatabase>[0],
): Promise<TestDatabase> {
  const database = await createTestDatabase(options)
  onTestFinished(() => database.drop())
  return database
}

const PROGRAMS = `/usr/lib/postgresql/${process.env.IPLEDGER_TEST_POSTGRES}/bin`

/**
 * For one test: a dump of this moment, restored beside the original. By PostgreSQL's own programs where they are of the server's
 * version (IPLEDGER_TEST_POSTGRES=15 with Debian's), else as a copy of the database. Nobody is connected to the original.
 */
export async function copyOf(original: TestDatabase): Promise<TestDatabase> {
  const name = `${original.name}_copy`
  const drop = () => dropDatabase(name)
  onTestFinished(drop)
  const [adminUrl, serviceUrl] = [original.adminUrl, original.serviceUrl].map(
    (url) => new URL(`/${name}`, url).href,
  )
  if (existsSync(`${PROGRAMS}/pg_dump`)) {
    const dump = execFileSync(`${PROGRAMS}/pg_dump`, [original.adminUrl], { maxBuffer: 2 ** 28 })
    await asSuperuser(`create database ${name}`)
    const options = ['--quiet', '--set=ON_ERROR_STOP=1', adminUrl!]
    execFileSync(`${PROGRAMS}/psql`, options, { input: dump, stdio: ['pipe', 'ignore', 'inherit'] })
  } else {
    const leave = `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${original.name}'`
    await unused(() => asSuperuser(leave, `create database ${name} template ${original.name}`))
  }
  return { ...original, name, adminUrl: adminUrl!, serviceUrl: serviceUrl!, drop }
}

const dropDatabase = (name: string) =>
  unused(() => asSuperuser(`drop database if exists ${name} with (force)`))

/** The maintenance daemon of Citus is connected to each of its databases, and comes again when it is ended. */
async function unused(work: () => Promise<void>): Promise<void> {
  if (!ON_CITUS) return work()
  const done = () => work().then(() => true)
  await waitFor(done, { what: 'a database to be left by all' })
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
