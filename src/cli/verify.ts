import type { Command } from 'commander'
import { Unsuccessful } from './failure.ts'
import { withJson, withNetwork } from './options.ts'

type VerifyOptions = Readonly<{ network?: string; full?: boolean; json?: boolean }>
type RebuildOptions = Readonly<{ network: string; dryRun?: boolean; json?: boolean }>

export function verifyCommands(program: Command): void {
  withJson(program.command('verify'))
    .description('prove that the books are in order: the log without a gap, the projections its fold')
    .option('--network <name>', 'only this network (default: all)')
    .option('--full', 'from the first event, not from where the last clean run ended')
    .addHelpText(
      'after',
      `
Asks the database of DATABASE_URL, or the embedded one, while the service runs or not. Exit code 1 with findings.`,
    )
    .action(async (options: VerifyOptions) => {
      const { runVerify } = await import('./books.ts')
      if (!(await runVerify(options))) throw new Unsuccessful(1)
    })
  withJson(withNetwork(program.command('rebuild')))
    .description("recompute a network's projections from its log, and replace what differs")
    .option('--dry-run', 'only report what differs; exit code 1 if anything does')
    .addHelpText(
      'after',
      `
Works while the service runs; while much is being replaced, Reserve is refused with NETWORK_RECOVERING for a moment.
A rebuild that breaks off is ended by the next one.`,
    )
    .action(async (options: RebuildOptions) => {
      const { runRebuild } = await import('./books.ts')
      if (!(await runRebuild(options))) throw new Unsuccessful(1)
    })
}
