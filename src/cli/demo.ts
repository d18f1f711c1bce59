import { resolve } from 'node:path'
import type { Command } from 'commander'

export function demoCommand(program: Command): void {
  program
    .command('demo')
    .description('MIR-1238, step by step: an index that lags, and no address that two sandboxes have')
    .option('--directory <path>', 'keep its data there (default: a directory that is thrown away)')
    .addHelpText(
      'after',
      `
Takes less than 20 seconds, uses a PostgreSQL of its own and touches nothing else. What --directory kept can be looked at:
IPLEDGER_DIR=<path> ipledger serve.`,
    )
    .action(async ({ directory }: Readonly<{ directory?: string }>) => {
      const { runDemo } = await import('../demo/run.ts')
      await runDemo({ directory: directory === undefined ? undefined : resolve(directory) })
    })
}
