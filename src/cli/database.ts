/** Where the database is, for psql, pg_dump and whatever else goes past the service. Asks nobody; starts nothing. */
import { type Command, Option } from 'commander'
import { readConfig, StartRefused } from '../config.ts'
import { replaceLogin } from '../postgres/connect.ts'
import { attachEmbedded } from '../postgres/embedded.ts'
import { AUDITOR_ROLE } from '../postgres/roles.ts'

type Role = 'owner' | 'auditor'

export function databaseCommands(program: Command): void {
  const database = program.command('database').description('the database itself, past the service')

  database
    .command('url')
    .description("print its connection string: the owner's, password included, or the auditor's")
    .addOption(
      new Option('--role <role>', 'auditor: reads ipledger_audit only, once it has a password (PGPASSWORD)')
        .choices(['owner', 'auditor'] satisfies Role[])
        .default('owner'),
    )
    .addHelpText(
      'after',
      `
Of DATABASE_ADMIN_URL or DATABASE_URL; without them, of the embedded PostgreSQL while the service runs. For looking and
for backups: what is written past the service is not in the log, and verify finds it.

Examples:
  psql "$(ipledger database url)" -c '\\dv ipledger_audit.*'
  pg_dump "$(ipledger database url)" --format=custom --file=ipledger.dump`,
    )
    .action(async ({ role }: Readonly<{ role: Role }>) => {
      const owner = await ownersUrl()
      console.log(role === 'owner' ? owner : replaceLogin(owner, { user: AUDITOR_ROLE }))
    })
}

async function ownersUrl(): Promise<string> {
  const { databaseUrl, databaseAdminUrl, directory } = readConfig()
  const url = databaseAdminUrl ?? databaseUrl ?? (await attachEmbedded(directory))
  if (url !== undefined) return url
  throw new StartRefused(
    `No PostgreSQL runs in ${directory}: start the service there, or let IPLEDGER_DIR or DATABASE_URL name another.`,
  )
}
