/** Vitest's global setup: one PostgreSQL for all test files, with a migrated database that each file clones. */

import { pino } from 'pino'
import type { TestProject } from 'vitest/node'
import { replaceLogin, withClient } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { AUDITOR_ROLE } from '../../src/postgres/roles.ts'
import { startTestServer } from './server.ts'

const TEMPLATE = 'ipledger_template'

declare module 'vitest' {
  interface ProvidedContext {
    postgres: Readonly<{
      /** Superuser, database `postgres`. */
      url: string
      template: string
      serviceUrl: string
      jobsUrl: string
      /** With a password, as an operator would set one. */
      auditorUrl: string
    }>
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startTestServer()
  try {
    await withClient({ url: server.url('postgres'), applicationName: 'test setup' }, async (admin) => {
      await admin.query(`create database ${TEMPLATE}`)
      const { serviceUrl, jobsUrl } = await openDatabase(
        { databaseUrl: server.url(TEMPLATE), databaseAdminUrl: undefined, directory: '' },
        { log: pino({ level: 'warn' }), embedded: 'own' },
      )
      await admin.query(`alter role ${AUDITOR_ROLE} password 'auditor'`)
      await admin.query(`alter database ${TEMPLATE} with is_template true allow_connections false`)
      project.provide('postgres', {
        url: server.url('postgres'),
        template: TEMPLATE,
        serviceUrl,
        jobsUrl,
        auditorUrl: replaceLogin(serviceUrl, { user: AUDITOR_ROLE, password: 'auditor' }),
      })
    })
  } catch (error) {
    await server.stop()
    throw error
  }
  return () => server.stop()
}
