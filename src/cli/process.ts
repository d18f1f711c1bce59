/** Commands that run something: the service, its jobs, the migrations, the bench, the demo. */
import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { Unsuccessful } from './failure.ts'

/** Loaded only by the command that needs it: the others talk to a server and start in a tenth of the time. */
const load = () => import('./serve.ts')
const BENCH = fileURLToPath(new URL('../../bench/main.ts', import.meta.url))

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
    .argument('[options...]')
    .description('measure it on this machine, each line beside its floor from the same run')
    .allowUnknownOption()
    .addHelpText(
      'after',
      `
--quick           everything small: that it runs, not how fast
--line <name>     this line, and others so named; without it all
--json <file>     the table for programs
--profile <dir>   CPU profiles
Works on a PostgreSQL of its own, which is gone afterwards. More options: the beginning of bench/main.ts.`,
    )
    .action((options: readonly string[]) => {
      const { status } = spawnSync(process.execPath, [BENCH, ...options], { stdio: 'inherit' })
      if (status !== 0) throw new Unsuccessful(status ?? 1)
    })

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
    .action(async ({ directory }: { readonly directory?: string }) => {
      const { runDemo } = await import('../demo/run.ts')
      await runDemo(directory === undefined ? undefined : resolve(directory))
    })
}
