/**
 * Runs the commands of `database.ts`. They make and migrate nothing. Each first prints which database it is: another terminal may
 * have another DATABASE_URL.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type pg from 'pg'
import { encoderOf } from '../api/codec/encode-response.ts'
import { type Config, readConfig, StartRefused, setVariables } from '../config.ts'
import { ownCommand } from '../core/command.ts'
import { VerifyNetworkResponseSchema } from '../gen/ipledger/v1/audit_pb.ts'
import { openLedger } from '../ledger/open.ts'
import { rebuildNetwork } from '../ledger/rebuild.ts'
import { type Anchor, verifyNetwork } from '../ledger/verify.ts'
import { hasCitus } from '../postgres/citus.ts'
import { place, replaceLogin, withClient } from '../postgres/connect.ts'
import { type FoundDatabase, findDatabase } from '../postgres/database.ts'
import { attachEmbedded } from '../postgres/embedded.ts'
import { AUDITOR_ROLE, inspectLogin } from '../postgres/roles.ts'
import { createLogger } from '../telemetry.ts'
import { CommandFailed, SilentExit, UsageError } from './exit.ts'
import { type Format, print, progressOf, sheet, tableOf } from './print.ts'
import { type NetworkVerified, verifiedText } from './views.ts'

export type VerifyOptions = Readonly<{ network?: string; against?: Anchor; output?: Format }>
export type RecoverOptions = Readonly<{ why: string; above?: number; output?: Format }>

/** Also networks of which only the log is left. One look-up in an index for each, however long their logs. */
const NETWORKS = `
  with recursive n (id) as (
    select min(e.network_id) from ipledger.event e
    union all
    select (select min(e.network_id) from ipledger.event e where e.network_id > n.id) from n where n.id is not null)
  select id from n where id is not null`
/** Citus has no recursion over networks. */
const NETWORKS_OF_CITUS = 'select distinct e.network_id as id from ipledger.event e order by 1'

/** True without findings. */
export function runVerify({ network, against, output }: VerifyOptions): Promise<boolean> {
  return onDatabase('verify', async ({ client, where }) => {
    const networks = await networksOf(client, where, network)
    if (against !== undefined && networks.length > 1)
      throw new UsageError(
        'Say of which network the anchor is: ipledger verify --network NETWORK --against …',
      )
    const progress = progressOf()
    const found = await Array.fromAsync(networks, async (name): Promise<NetworkVerified> => {
      const verified = await verifyNetwork(client, name, {
        from: 0,
        ...(against !== undefined && { against }),
        onProgress: ({ part, done, head }) =>
          part === 'log'
            ? progress(`${name}: events`, Number(done), head)
            : progress(`${name}: ${part} ${done}`),
      })
      return { network: name, ...verified }
    })
    progress('')
    const asAnswered = found.map(encoderOf(VerifyNetworkResponseSchema))
    await print(output, { networks: asAnswered, database: where }, () => verifiedText(found))
    return found.every(({ findings }) => findings.length === 0)
  })
}

export function runRebuild({ network, output }: { readonly network: string; readonly output?: Format }) {
  return onDatabase('rebuild', async ({ client, where }) => {
    await requireOwner(client)
    const progress = progressOf()
    const rebuilt = await rebuildNetwork(client, network, (table, at, all) =>
      progress(`${network}: ${table}, tables done`, at, all),
    )
    progress('')
    if (rebuilt === null) throw new CommandFailed(`network ${network} has no events in ${where}.`)
    const rows = Object.entries(rebuilt.rows).map(([name, count]) => [`rows of ${name}`, count])
    await print(output, { network, ...rebuilt, database: where }, () =>
      sheet({ network, head: rebuilt.head, ...Object.fromEntries(rows) }),
    )
  })
}

export function runRecover(network: string | undefined, { why, above = 0, output }: RecoverOptions) {
  return onDatabase('recover', async ({ client, where, found }) => {
    const { rows: served } = await client.query(
      `select from pg_stat_activity where datname = current_database() and application_name = 'ipledger ledger'`,
    )
    if (served.length > 0)
      throw new CommandFailed(
        'A service uses this database: leave --database away, and let IPLEDGER_URL name it.',
      )
    const ledger = await openLedger({ url: found.url, connections: 1 })
    try {
      const networks = await Array.fromAsync(await networksOf(client, where, network), async (name) => {
        const outcome = await ledger.submit({
          ...ownCommand(name, 'recover', 'recover'),
          type: 'beginEra',
          above,
          recovering: true,
          why,
        })
        if (!outcome.ok) throw new CommandFailed(`${outcome.refusal.reason}: ${outcome.refusal.message}`)
        const { network: made, head } = outcome.answer.network!
        const state = made.recovering ? 'RECOVERING' : 'READY'
        return { network: name, era: made.era, head: String(head), state }
      })
      await print(output, { networks, database: where }, () => tableOf('', networks))
    } finally {
      await ledger.close()
    }
  })
}

export async function databaseUrl(role: string): Promise<string> {
  const config = readConfig()
  const { databaseUrl: given, databaseAdminUrl } = config
  if (role === 'owner' && databaseAdminUrl === undefined && given !== undefined)
    await withClient({ url: given, applicationName: 'ipledger database url' }, requireOwner)
  const url = databaseAdminUrl ?? given ?? (await attachEmbedded(config.directory))
  if (url === undefined)
    throw new StartRefused(
      `No PostgreSQL runs in ${config.directory}: start the service there, or let IPLEDGER_DIR or DATABASE_URL name another.`,
    )
  return role === 'owner' ? url : replaceLogin(url, { user: AUDITOR_ROLE })
}

/** Ends with the program's exit code. */
export function runWithDatabase(program: string, args: readonly string[]): Promise<void> {
  return onDatabase('database run', async ({ client, found }) => {
    await requireOwner(client)
    setVariables({ DATABASE_URL: found.adminUrl })
    const child = spawn(program, args, { stdio: 'inherit' })
    const [code] = (await once(child, 'exit')) as [number | null]
    if (code !== 0) throw new SilentExit(code ?? undefined)
  })
}

async function requireOwner(client: pg.Client): Promise<void> {
  const { administers, role } = await inspectLogin(client)
  if (administers) return
  throw new StartRefused(
    `Role "${role}" does not own the database: let DATABASE_ADMIN_URL, or DATABASE_URL, name the owner.`,
  )
}

type OnDatabase = { readonly client: pg.Client; readonly where: string; readonly found: FoundDatabase }

/** `rebuild` and `database run` take the owner's login. Ctrl-C ends the process, and PostgreSQL rolls back. */
async function onDatabase<T>(command: string, work: (on: OnDatabase) => Promise<T>): Promise<T> {
  const config = readConfig()
  const where = whereOf(config)
  console.error(`ipledger ${command}: ${where}`)
  const found = await findDatabase(config, { log: createLogger(config.logLevel) })
  const url = ['rebuild', 'database run'].includes(command) ? found.adminUrl : found.url
  try {
    return await withClient({ url, applicationName: `ipledger ${command}` }, (client) =>
      work({ client, where, found }),
    )
  } finally {
    await found.stop()
  }
}

/** Never a password. */
export function whereOf({ databaseUrl: url, directory }: Config): string {
  return url === undefined ? `the embedded PostgreSQL in ${directory}` : place(url)
}

async function networksOf(client: pg.Client, where: string, network: string | undefined): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>((await hasCitus(client)) ? NETWORKS_OF_CITUS : NETWORKS)
  const names = rows.map(({ id }) => id).filter((id) => network === undefined || id === network)
  if (names.length === 0)
    throw new CommandFailed(`There is no network${network === undefined ? '' : ` ${network}`} in ${where}.`)
  return names
}
