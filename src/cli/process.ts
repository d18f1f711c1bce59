import type { Command } from 'commander'

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
    .action(async (options: Readonly<{ worker: boolean }>) => (await load()).serve(options))

  program
    .command('worker')
    .description('run the jobs alone, beside servers started with --no-worker')
    .action(async () => (await load()).runWorker())

  program
    .command('migrate')
    .description('make roles, schema and the network "default", or bring them up to date')
    .addHelpText('after', '\nDATABASE_ADMIN_URL names the owner of the database, if DATABASE_URL does not.')
    .action(async () => (await load()).runMigrate())
}
