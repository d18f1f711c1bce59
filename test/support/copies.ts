/** Databases that are older than themselves: a copy of one, taken while nobody writes, that lives on beside it. */
import { onTestFinished } from 'vitest'
import { replaceDatabase } from '../../src/postgres/connect.ts'
import { asSuperuser, createTestDatabase, type TestDatabase } from './database.ts'

let copies = 0

/** Gone with the test that made it. */
export async function useOwnDatabase(): Promise<TestDatabase> {
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  return database
}

/** What a dump of this moment would be, restored in the same cluster. Nobody is connected to the original. */
export async function copyOf(original: TestDatabase): Promise<TestDatabase> {
  copies += 1
  const name = `${original.name}_copy${copies}`
  const drop = () => asSuperuser(`drop database if exists ${name} with (force)`)
  onTestFinished(drop)
  await asSuperuser(`create database ${name} template ${original.name}`)
  return {
    name,
    adminUrl: replaceDatabase(original.adminUrl, name),
    serviceUrl: replaceDatabase(original.serviceUrl, name),
    jobsUrl: replaceDatabase(original.jobsUrl, name),
    drop,
  }
}
