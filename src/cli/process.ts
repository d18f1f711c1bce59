/** Commands that run something: the service, its jobs, the migrations, the bench, the demo. */
import { resolve } from 'node:path'
import type { Command } from 'commander'
import type { Options } from '../../bench/main.ts'
import { whole } from './readers.ts'

/** Loaded only by the command that needs it: the others talk to a server and start in a tenth of the time. */
const load = () => import('./serve.ts')

export function processCommands(program: Command): void {
  program
    .command('serve')
    .description('run the service: API and worker, on its own PostgreSQL or on DATABASE_URL')
    .option('--no-worker', 'leave the jobs to other processes ("ipledger worker")')
    .addHelpText(
      'after',
      `
Listens on 127.0.0.1:8080 (gRPC on 8081); IPLEDGER_HOST, IPLEDGER_PORT and IPLEDGER_GRPC_PORT change that. Without
DATABASE_URL an own PostgreSQL keeps its data in .ipledger (IPLEDGER_DIR). SIGINT and SIGTERM let calls finish; a
second one ends it at once.`,
    )
    .action(async (options: { readonly worker: boolean }) => (await load()).serve(options))

  program
    .command('worker')
    .description('run the jobs alone, beside servers started with --no-worker')
    .action(async () => (await load()).runWorker())

  program
    .command('migrate')
    .description('make roles, schema and the network "default", or bring them up to date')
    .addHelpText('after', '\nDATABASE_ADMIN_URL names the owner of the database, if DATABASE_URL does not.')
    .action(async () => (await load()).runMigrate())

  program
    .command('bench')
    .argument('[lines...]', 'what to measure (default: all lines)')
    .description('measure it on this machine, each line beside its floor from the same run')
    .option('--quick', 'everything small: that it runs, not how fast')
    .option('--held-open <minutes>', 'how long the line "snapshot" holds a transaction open', whole, 1)
    .addHelpText('after', '\nWorks on a PostgreSQL of its own, which is gone afterwards.')
    .action(async (lines: readonly string[], options: Options) => {
      const { runBench } = await import('../../bench/main.ts')
      await runBench(lines, options)
    })

  program
    .command('demo')
    .description('play MIR-1238 step by step: a list that lags, and still no address on two sandboxes')
    .option('--directory <path>', 'keep its data there (default: a directory that is thrown away)')
    .addHelpText(
      'after',
      `
Takes less than 20 seconds, uses a PostgreSQL of its own and touches nothing else. What --directory kept can be looked at:
IPLEDGER_DIR=<path> ipledger serve.`,
    )
    .action(async ({ directory }: { readonly directory?: string }) => {
      const { runDemo } = await import('../demo/run.ts')
      await runDemo(directory === undefined ? undefined : resolve(directory))
    })
}
