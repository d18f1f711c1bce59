/** Vitest's global setup: one PostgreSQL for all test files, with a migrated database that each file clones. */

import { pino } from 'pino'
import type { TestProject } from 'vitest/node'
import { replaceLogin, withClient } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { AUDITOR_ROLE } from '../../src/postgres/roles.ts'
import { mayLogIn, ON_CITUS, onOneNode } from './citus.ts'
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
      const url = server.url(TEMPLATE)
      if (ON_CITUS)
        await withClient({ url, applicationName: 'test setup' }, (client) => onOneNode(client, url))
      const { serviceUrl, jobsUrl } = await openDatabase(
        { databaseUrl: url, databaseAdminUrl: undefined, directory: '' },
        { log: pino({ level: 'warn' }), embedded: 'own' },
      )
      await admin.query(`alter role ${AUDITOR_ROLE} password 'auditor'`)
      const auditorUrl = replaceLogin(serviceUrl, { user: AUDITOR_ROLE, password: 'auditor' })
      if (ON_CITUS)
        await withClient({ url, applicationName: 'test setup' }, (client) =>
          mayLogIn(client, serviceUrl, auditorUrl),
        )
      await admin.query(`alter database ${TEMPLATE} with is_template true allow_connections false`)
      // The maintenance daemon of Citus, which keeps the database from being cloned.
      await admin.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${TEMPLATE}'`,
      )
      project.provide('postgres', {
        url: server.url('postgres'),
        template: TEMPLATE,
        serviceUrl,
        jobsUrl,
        auditorUrl,
      })
    })
  } catch (error) {
    await server.stop()
    throw error
  }
  return () => server.stop()
}
