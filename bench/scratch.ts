/**
 * Where the bench works: a PostgreSQL of its own on a disk (in memory every commit would be free), and databases made from
 * one migrated template.
 */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { withClient } from '../src/postgres/connect.ts'
import { openDatabase } from '../src/postgres/database.ts'
import { startEmbedded } from '../src/postgres/embedded.ts'

export type ScratchDatabase = {
  /** Of the service, and of the owner of everything, who may write past the service. */
  readonly url: string
  readonly adminUrl: string
}

export type Scratch = {
  /** On the same disk, gone at the end. */
  readonly directory: string
  readonly postmaster: () => number
  create(name: string): Promise<ScratchDatabase>
  stop(): Promise<void>
}

const TEMPLATE = 'bench_template'

export async function openScratch(): Promise<Scratch> {
  const log = pino({ level: 'warn' })
  const directory = mkdtempSync(join(tmpdir(), 'ipledger-bench-'))
  // PostgreSQL runs as another user than root, who must be able to pass through.
  chmodSync(directory, 0o711)
  const server = await startEmbedded({ directory, log })
  const at = (name: string) => new URL(`/${name}`, server.url).href
  const query = (text: string) =>
    withClient({ url: at('postgres'), applicationName: 'bench' }, (client) => client.query(text))
  await query(`create database ${TEMPLATE}`)
  const { serviceUrl } = await openDatabase(
    { databaseUrl: at(TEMPLATE), databaseAdminUrl: undefined, directory: '' },
    { log, embedded: 'share' },
  )
  return {
    directory,
    postmaster: () => server.pid() ?? 0,
    async create(name) {
      await query(`create database ${name} template ${TEMPLATE}`)
      return { url: new URL(`/${name}`, serviceUrl).href, adminUrl: at(name) }
    },
    async stop() {
      await server.stop()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}
