/** Commands that go to the database, past the service: verify, rebuild, recover, and where it is. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import type { Anchor } from '../ledger/verify.ts'
import { Unclear, Unsuccessful } from './failure.ts'
import { networkSheet } from './network.ts'
import type { RecoverOptions, VerifyOptions } from './on-database.ts'
import { type Format, outputOption } from './print.ts'
import { ask, pages, print } from './verb.ts'
import { verifiedText } from './verified.ts'

/** Loaded only by the command that needs it: the others talk to a server and start in a tenth of the time. */
const load = () => import('./on-database.ts')

export function databaseCommands(program: Command): void {
  program
    .command('verify')
    .description('check that the log is whole and that the tables follow from it')
    .option('--network <name>', 'only this network (default: all)')
    .option(
      '--against <head:digest>',
      'the log must have had this end: an anchor that was kept elsewhere',
      anchor,
    )
    .option('--server', 'ask the server of IPLEDGER_URL: one network, what is new, for at most 5 s')
    .addOption(outputOption())
    .addHelpText(
      'after',
      `
Goes to the database of DATABASE_URL, or the embedded one, while the service runs or not; makes and migrates nothing. Exit
code 1 with findings, and without a network to look at.

An anchor, as verify and "network get" print it, names the end of the log. Kept where nobody who administers the
database can write, it shows later that nothing before it was altered, and that no end is missing:
  ipledger verify --network default --against 48213:9f0c…`,
    )
    .action(async (options: VerifyOptions & { readonly server?: boolean }) => {
      const { server, against, network = 'default' } = options
      if (server !== true) {
        if (await (await load()).runVerify(options)) return
        throw new Unsuccessful(1)
      }
      if (against !== undefined)
        throw new Unclear('A server looks at what is new only: leave --against away.')
      const { verifyNetwork } = AuditService.method
      const answer = await ask(verifyNetwork, { network })
      await print(options.output, verifyNetwork, answer, (one) => verifiedText([one]))
      if (!answer.complete || answer.findings.length > 0) throw new Unsuccessful(1)
    })

  program
    .command('rebuild')
    .description("make a network's tables anew from its log")
    .option('--network <name>', 'network', 'default')
    .addOption(outputOption())
    .addHelpText(
      'after',
      `
What they are to be, and what differs, is what "ipledger verify" says. In one transaction, while the service runs: writers
wait, readers see the tables as they were until it is done.`,
    )
    .action(async (options: { readonly network: string; readonly output?: Format }) =>
      (await load()).runRebuild(options),
    )

  program
    .command('recover [network]')
    .description(
      'say that the database may be older than what it answered: a new era, and nothing handed out until sources have reported',
    )
    .requiredOption('--why <text>', 'what happened, or with --end why it is safe; goes into the log')
    .option('--above <number>', 'a lease id or number that was answered and that this log may lack', above)
    .option('--end', 'end the recovery of one network by your word')
    .option('--database', 'before anything serves: go to the database itself')
    .addOption(outputOption())
    .addHelpText(
      'after',
      `
Asks the server of IPLEDGER_URL; of all networks, if none is named. A restored dump and a failover are found out without it. It is for
what the database cannot know: a copy of the whole data directory, a disk that was set back, an import into a new installation.
Numbers of the new era are above all earlier ones; with --above, also above that one. Recovery ends by itself when each enabled
source has reported twice; a network without sources waits for:
  ipledger recover --end <network> --why "nothing runs there yet"

Examples:
  ipledger recover --database --why "volume set back to the snapshot of 02:00"
  ipledger recover tenant-7 --why "volume set back to the snapshot of 02:00" --above tenant-7/48213`,
    )
    .action(async (network: string | undefined, options: RecoverOptions) => {
      const { why, above: number, output } = options
      if ((options.end === true || number !== undefined) && network === undefined)
        throw new Unclear('Say which network: ipledger recover NETWORK …')
      if (options.database === true) return (await load()).runRecover(network, options)
      const { beginRecovery, endRecovery, listNetworks } = NetworkService.method
      if (options.end === true) {
        const answer = await ask(endRecovery, { network: network!, why })
        return print(output, endRecovery, answer, (one) => networkSheet(one.network))
      }
      const names = network === undefined ? [] : [network]
      if (network === undefined)
        for await (const { networks } of pages(listNetworks, {}))
          names.push(...networks.map(({ name }) => name))
      for (const name of names) {
        const asked = { network: name, why, ...(number !== undefined && { above: BigInt(number) }) }
        await print(output, beginRecovery, await ask(beginRecovery, asked), (one) =>
          networkSheet(one.network),
        )
      }
    })

  program
    .command('database')
    .description('the database itself, past the service')
    .command('url')
    .description("print its connection string: the owner's, password included, or the auditor's")
    .addOption(
      new Option('--role <role>', 'auditor: reads ipledger_audit only, once it has a password (PGPASSWORD)')
        .choices(['owner', 'auditor'])
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
    .action(async ({ role }: { readonly role: string }) =>
      console.log(await (await load()).databaseUrl(role)),
    )
}

function anchor(text: string): Anchor {
  const [, number, digest] = /^(\d{1,16}):([0-9a-f]{64})$/i.exec(text) ?? []
  if (digest === undefined)
    throw new InvalidArgumentError('It must be a number and 64 hexadecimal digits: 48213:9f0c…')
  return { seq: Number(number), digest }
}

function above(text: string): number {
  const number = Number(/^(?:[^/]+\/)?(\d{1,16})$/.exec(text)?.[1])
  if (!Number.isSafeInteger(number)) throw new InvalidArgumentError('It must be a lease id or a number.')
  return number
}
