import { type Command, InvalidArgumentError } from 'commander'
import { type JudgePolicy, judgePolicy } from '../core/policy.ts'
import { Unsuccessful } from './failure.ts'
import { seq, withJson, withNetwork } from './options.ts'

type SealsOptions = Readonly<{ network?: string; json?: boolean }>
type RangeOptions = Readonly<{ from?: bigint; to?: bigint }>
type CheckOptions = Readonly<{ against?: string; json?: boolean }>
export type RejudgeOptions = RangeOptions &
  Readonly<{ network: string; policy: PolicyAsked; restores?: boolean; json?: boolean }>

/** Today's of each pool, or the policy of the day with these in their places. */
export type PolicyAsked = 'today' | Readonly<Partial<JudgePolicy>>

export function auditCommands(program: Command): void {
  const audit = program
    .command('audit')
    .description('whether the log is what it was, and whether it was right')

  withJson(audit.command('seals'))
    .description('digests of closed stretches of the log; --json: a line each, to be kept elsewhere')
    .option('--network <name>', 'only of this network (default: all)')
    .addHelpText(
      'after',
      `
Asks the database of DATABASE_URL, or the embedded one. Kept where nobody who administers the database can write, they
tell later whether the log is still the same, even if all seals were made anew:

  ipledger audit seals --json > seals.ndjson
  ipledger verify --seals --against seals.ndjson`,
    )
    .action(async (options: SealsOptions) => {
      const { runSeals } = await import('./run-audit.ts')
      await runSeals(options)
    })

  audit
    .command('export')
    .argument('<network>')
    .description("a network's log and its seals, one JSON a line, to be checked without a database")
    .option('--from <n>', 'begin with the seal that has this event (default: the first)', seq)
    .option('--to <n>', 'end with the seal that has this event (default: the head)', seq)
    .addHelpText(
      'after',
      `
Asks the database of DATABASE_URL, or the embedded one.

Example:
  ipledger audit export default > default.ndjson`,
    )
    .action(async (network: string, { from, to }: RangeOptions) => {
      const { runExport } = await import('./run-audit.ts')
      await runExport(network, {
        from: Math.max(1, Number(from ?? 1n)),
        to: to === undefined ? null : Number(to),
      })
    })

  withJson(audit.command('check'))
    .argument('<file>', 'of "audit export"; -: standard input')
    .description('hash the lines of an export, and compare them with their seals: no database, no server')
    .option('--against <file>', 'digests that were kept: "audit seals --json" or an earlier "audit export"')
    .addHelpText(
      'after',
      '\nExit code 1 with findings: the first line that was altered, lines that are gone, seals that do not fit.',
    )
    .action(async (file: string, options: CheckOptions) => {
      const { runCheck } = await import('./run-audit.ts')
      if (!(await runCheck(file, options))) throw new Unsuccessful(1)
    })

  withJson(withNetwork(audit.command('rejudge')))
    .description('judge every recorded reap again from the evidence in its event')
    .option('--from <n>', 'from this event on', seq)
    .option('--to <n>', 'up to this event', seq)
    .option(
      '--policy <settings>',
      'today: of each pool as it is now; or misses=5,minimumAgeMs=600000: as then, with these',
      policy,
      'today',
    )
    .option('--restores', 'also quarantines that were given back to their owner: walks all confirms')
    .addHelpText(
      'after',
      `
Asks the server. By the policy of its day each must come to what was done: exit code 1 if one does not, or cannot be
read. What another policy would not have done is listed, and is no failure.

Settings: ${Object.keys(judgePolicy()).join(', ')}.

Examples:
  ipledger audit rejudge
  ipledger audit rejudge --policy misses=5,minimumAgeMs=600000 --json`,
    )
    .action(async (options: RejudgeOptions) => {
      const { runRejudge } = await import('./run-rejudge.ts')
      if (!(await runRejudge(options))) throw new Unsuccessful(1)
    })
}

function policy(text: string): PolicyAsked {
  if (text === 'today') return text
  const known = Object.keys(judgePolicy())
  const set: Record<string, number> = {}
  for (const part of text.split(',')) {
    const found = /^\s*([A-Za-z]+)=(\d{1,12})\s*$/.exec(part)
    if (found === null || !known.includes(found[1]!))
      throw new InvalidArgumentError(`It is today, or settings as misses=5, of ${known.join(', ')}.`)
    set[found[1]!] = Number(found[2])
  }
  return set
}
