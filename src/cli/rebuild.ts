import type { Command } from 'commander'
import { Unclear, Unsuccessful } from './failure.ts'
import { withJson, withNetwork } from './options.ts'

type RebuildOptions = Readonly<{ network: string; dryRun?: boolean; tenure?: boolean; json?: boolean }>

export function rebuildCommand(program: Command): void {
  withJson(withNetwork(program.command('rebuild')))
    .description("recompute a network's projections from its log, and replace what differs")
    .option('--dry-run', 'only report what differs; exit code 1 if anything does')
    .option(
      '--tenure',
      'make tenure and checkpoints anew instead: the past as audit reads it, not the projections',
    )
    .addHelpText(
      'after',
      `
Works while the service runs; while much is being replaced, Reserve is refused with NETWORK_RECOVERING for a moment.
A rebuild that breaks off is ended by the next one; with --tenure nothing is refused, and the jobs end it.`,
    )
    .action(async (options: RebuildOptions) => {
      const { runRebuild, runRebuildTenure } = await import('./run-rebuild.ts')
      if (options.tenure === true) {
        if (options.dryRun === true)
          throw new Unclear('--dry-run compares projections; tenure is compared by "ipledger verify".')
        if (!(await runRebuildTenure(options))) throw new Unsuccessful(1)
        return
      }
      if (!(await runRebuild(options))) throw new Unsuccessful(1)
    })
}
