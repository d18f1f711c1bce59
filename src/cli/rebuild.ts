import type { Command } from 'commander'
import { Unsuccessful } from './failure.ts'
import { withJson, withNetwork } from './options.ts'

type RebuildOptions = Readonly<{ network: string; dryRun?: boolean; json?: boolean }>

export function rebuildCommand(program: Command): void {
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
      const { runRebuild } = await import('./run-rebuild.ts')
      if (!(await runRebuild(options))) throw new Unsuccessful(1)
    })
}
