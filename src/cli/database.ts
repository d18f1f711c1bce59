/** The commands that go to the database, past the service: verify, rebuild, recover, and where it is. `on-database.ts` runs them. */
import { InvalidArgumentError, Option } from 'commander'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import type { Anchor } from '../ledger/verify.ts'
import { announce, ask, everyPage } from './ask.ts'
import { SilentExit, UsageError } from './exit.ts'
import type { RecoverOptions, VerifyOptions } from './on-database.ts'
import { type Format, outputOption } from './print.ts'
import { command, group, networkOptions, printAnswer, serverOptions } from './verb.ts'
import { verifiedText } from './views.ts'

/** Loaded only by the command that needs it: the others start in a tenth of the time. */
const load = () => import('./on-database.ts')

export const databaseCommands = [
  command('verify', {
    about: 'check that the log is whole and that the tables follow from it',
    options: [
      new Option('--network <name>', 'only this network (default: all)'),
      ...serverOptions(),
      [
        '--against <head:digest>',
        'the log must have had this end: an anchor that was kept elsewhere',
        anchorOf,
      ],
      ['--server', 'ask the server of IPLEDGER_URL: one network, new events only, for at most 5 s'],
      outputOption(),
    ],
    help: `
Goes to the database of DATABASE_URL, or the embedded one, while the service runs or not; makes and migrates nothing. Exit
code 1 with findings, and without a network to look at.

An anchor, as verify and "network get" print it, names the end of the log. Keep it where administrators of the database
can't write: it shows later that nothing before it was altered, and that no end is missing:
  ipledger verify --network default --against 48213:9f0c…`,
    run: verify,
  }),
  command('rebuild', {
    about: "make a network's tables anew from its log",
    options: [...networkOptions().slice(0, 1), outputOption()],
    help: `
"ipledger verify" lists the differences. It takes one transaction, while the service runs: writers wait, readers see the
old tables until it commits.`,
    run: async (options: { readonly network: string; readonly output?: Format }) =>
      (await load()).runRebuild(options),
  }),
  command('recover [name]', {
    about:
      'say that the database may be older than what it answered: a new era, and nothing handed out until sources have reported',
    options: [
      ['--why <text>', 'the reason, or with --end why it is safe; goes into the log'],
      ['--above <number>', 'a lease id or number that was answered and that this log may lack', numberOf],
      ['--all', 'every network'],
      ['--end', 'end the recovery of one network: you say that it is safe'],
      ['--database', 'before anything serves: go to the database itself'],
      outputOption(),
      ...serverOptions(),
    ],
    required: ['why'],
    help: `
Asks the server of IPLEDGER_URL. A restored dump and a failover are found out without it. It is for
what the database cannot know: a copy of the whole data directory, a disk that was set back, an import into a new installation.
Numbers of the new era are above all earlier ones; with --above, also above that one. Recovery ends by itself when each enabled
source has reported twice; a network without sources waits for:
  ipledger recover --end <network> --why "nothing runs there yet"

Examples:
  ipledger recover --all --database --why "volume set back to the snapshot of 02:00"
  ipledger recover tenant-7 --why "volume set back to the snapshot of 02:00" --above tenant-7/48213`,
    run: recover,
  }),
  group(
    'database',
    'the database itself, past the service',
    command('url', {
      about: "print its connection string: the owner's, password included, or the auditor's",
      options: [
        new Option('--role <role>', 'auditor: reads ipledger_audit only, once it has a password (PGPASSWORD)')
          .choices(['owner', 'auditor'])
          .default('owner'),
      ],
      help: `
Of DATABASE_ADMIN_URL or DATABASE_URL; without them, of the embedded PostgreSQL while the service runs. For looking and
for backups: the log lacks rows that are written past the service, and verify finds them.

Examples:
  psql "$(ipledger database url)" -c '\\dv ipledger_audit.*'
  pg_dump "$(ipledger database url)" --format=custom --file=ipledger.dump`,
      run: async ({ role }: { readonly role: string }) => console.log(await (await load()).databaseUrl(role)),
    }),
    command('run <program> [arguments...]', {
      about: "run a program that finds the owner's login in DATABASE_URL, also while the service is stopped",
      help: `
Example:
  ipledger database run -- sh -c 'pg_dump "$DATABASE_URL" --format=custom' >ipledger.dump`,
      run: async (_, program: string, args: string[]) => (await load()).runWithDatabase(program, args),
    }),
  ),
]

async function verify(options: VerifyOptions & { readonly server?: boolean }): Promise<void> {
  const { server, against, network = 'default', output } = options
  if (server !== true) {
    if (await (await load()).runVerify(options)) return
    throw new SilentExit()
  }
  if (against !== undefined) throw new UsageError('A server reads new events only: leave --against away.')
  const { verifyNetwork } = AuditService.method
  const answer = await ask(verifyNetwork, { network })
  await printAnswer({ output }, verifyNetwork, answer, () => verifiedText([answer]))
  if (!answer.complete || answer.findings.length > 0) throw new SilentExit()
}

type Recover = RecoverOptions & {
  readonly all?: boolean
  readonly end?: boolean
  readonly database?: boolean
}

async function recover(options: Recover, network: string | undefined): Promise<void> {
  const { why, above, end, output } = options
  if (network === undefined && (end === true || above !== undefined))
    throw new UsageError('Say which network: ipledger recover NAME …')
  if ((network === undefined) !== (options.all === true))
    throw new UsageError('Say which network, or --all: ipledger recover NAME …')
  if (options.database === true && end === true)
    throw new UsageError('--end asks the server: leave --database away.')
  if (options.database === true) return (await load()).runRecover(network, options)
  await announce('ipledger recover', network === undefined ? { all: true } : { network })
  const { beginRecovery, endRecovery, listNetworks } = NetworkService.method
  if (end === true)
    return printAnswer({ output }, endRecovery, await ask(endRecovery, { network: network!, why }))
  const named = network === undefined ? (await everyPage(listNetworks, {})).networks : [{ name: network }]
  for (const { name } of named) {
    const request = { network: name, why, ...(above !== undefined && { above: BigInt(above) }) }
    await printAnswer({ output }, beginRecovery, await ask(beginRecovery, request))
  }
}

function anchorOf(text: string): Anchor {
  const [, number, digest] = /^(\d{1,16}):([0-9a-f]{64})$/i.exec(text) ?? []
  if (digest === undefined)
    throw new InvalidArgumentError('It must be a number and 64 hexadecimal digits: 48213:9f0c…')
  return { seq: Number(number), digest }
}

function numberOf(text: string): number {
  const number = Number(/^(?:[^/]+\/)?(\d{1,16})$/.exec(text)?.[1])
  if (!Number.isSafeInteger(number)) throw new InvalidArgumentError('It must be a lease id or a number.')
  return number
}
