import { type Command, InvalidArgumentError } from 'commander'
import { Unclear } from './failure.ts'
import { endRecovery } from './network.ts'
import { withJson } from './options.ts'

type RecoverOptions = Readonly<{ why: string; end?: boolean; above?: number; json?: boolean }>

export function recoverCommand(program: Command): void {
  withJson(program.command('recover').argument('[network]', 'one network (default: all)'))
    .description(
      'say that this database may be older than the world: a new era, and nothing handed out until it is observed',
    )
    .requiredOption('--why <text>', 'what happened, or with --end why it is safe; goes into the log')
    .option(
      '--above <number>',
      'a lease id or number that was given out and that this ledger does not know',
      above,
    )
    .option('--end', 'end the recovery of one network instead, by your word (asks the server: EndRecovery)')
    .addHelpText(
      'after',
      `
A restored dump and a failover are found out without it. It is for what the database cannot know: a copy of the whole
data directory, a disk that was set back, an import into a new installation. Asks the database of DATABASE_URL, or the
embedded one, while the service runs or not. Numbers of the new era are above all earlier ones; with --above, also above
that one. Recovery ends by itself when each enabled source has reported completely; a network without sources waits for:
  ipledger recover --end <network> --why "nothing runs there yet"

Example:
  ipledger recover tenant-7 --why "volume set back to the snapshot of 02:00" --above tenant-7/48213`,
    )
    .action(async (network: string | undefined, options: RecoverOptions) => {
      const { end, ...rest } = options
      if (end !== true) {
        const { runRecover } = await import('./recovery.ts')
        if (rest.above !== undefined && network === undefined)
          throw new Unclear('Say of which network the number is: ipledger recover NETWORK --above …')
        await runRecover({ ...rest, ...(network === undefined ? {} : { network }) })
        return
      }
      // Nobody ends a recovery by default.
      if (network === undefined)
        throw new Unclear('Say which network: ipledger recover --end NETWORK --why …')
      await endRecovery(network, options)
    })
}

function above(text: string): number {
  const number = Number(/^(?:[^/]+\/)?(\d{1,16})$/.exec(text)?.[1])
  if (!Number.isSafeInteger(number)) throw new InvalidArgumentError('It must be a lease id or a number.')
  return number
}
