import type { Command } from 'commander'
import { Unclear, Unsuccessful } from './failure.ts'
import { withJson } from './options.ts'

type VerifyOptions = Readonly<{
  network?: string
  full?: boolean
  seals?: boolean
  against?: string
  server?: boolean
  json?: boolean
}>

export function verifyCommand(program: Command): void {
  withJson(program.command('verify'))
    .description('prove that the books are in order: the log without a gap, the projections its fold')
    .option('--network <name>', 'only this network (default: all)')
    .option('--full', 'from the first event, not from where the last clean run ended')
    .option('--seals', 'also hash the log again, and compare it with its seals')
    .option('--against <file>', 'and with digests that were kept: "audit seals --json", "audit export"')
    .option('--server', 'ask the server of IPLEDGER_URL: one network, what is new, for at most 5 s')
    .addHelpText(
      'after',
      `
Asks the database of DATABASE_URL, or the embedded one, while the service runs or not; makes and migrates nothing. Exit
code 1 with findings, and without a network to look at.`,
    )
    .action(async (options: VerifyOptions) => {
      if (options.server === true) {
        const { full, seals, against } = options
        if (full === true || seals === true || against !== undefined) {
          throw new Unclear(
            'A server looks at what is new only: leave --full, --seals and --against away, or --server.',
          )
        }
        const { askToVerify } = await import('./ask-to-verify.ts')
        if (!(await askToVerify(options))) throw new Unsuccessful(1)
        return
      }
      const { runVerify } = await import('./run-verify.ts')
      if (!(await runVerify(options))) throw new Unsuccessful(1)
    })
}
