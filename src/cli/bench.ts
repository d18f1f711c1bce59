import type { Command } from 'commander'
import { Unsuccessful } from './failure.ts'
import { list, withJson } from './options.ts'

type Options = Readonly<{
  quick?: boolean
  soak?: boolean
  only?: readonly string[]
  databaseUrl?: string
  profile?: string
  json?: boolean
}>

export function benchCommand(program: Command): void {
  withJson(program.command('bench'))
    .description('measure it on this machine, each line beside its floor from the same run')
    .option('--quick', 'everything small: that it runs, not how fast')
    .option('--soak', 'an hour of churn')
    .option('--only <lines>', 'only these lines; repeatable, or with commas', list)
    .option(
      '--database-url <url>',
      'a PostgreSQL on which databases may be made and dropped (default: an own one)',
    )
    .option('--profile <directory>', 'write a CPU profile of the server there')
    .addHelpText('after', '\nWorks on databases of its own, which are gone afterwards, and ends with verify.')
    .action(async (options: Options) => {
      const { runBench } = await import('../../bench/main.ts')
      const code = await runBench(options)
      if (code !== 0) throw new Unsuccessful(code)
    })
}
