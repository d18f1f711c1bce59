import type { Command } from 'commander'
import { ListLeasesAsOfResponseSchema } from '../gen/ipledger/v1/audit_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, time } from './print.ts'
import { leaseTable } from './show-lease.ts'
import { momentOf, WHEN_HELP, type When, whenOption } from './when.ts'

type Options = CallOptions & Readonly<{ pool?: string; pageSize?: number; pageToken?: string }>

export function asOfCommand(program: Command): void {
  withPage(
    withJson(
      withNetwork(program.command('as-of').description('the leases as they were at a time or a number')),
    ),
  )
    .argument('<time|seq>', 'when', whenOption)
    // -15m looks like an option; what is neither option nor time is refused as a time.
    .allowUnknownOption()
    .option('--pool <name>', 'only leases of this pool')
    .addHelpText(
      'after',
      `${WHEN_HELP}

Examples:
  ipledger as-of "2026-11-20 03:12"
  ipledger as-of -15m --pool web
  ipledger as-of 120000 --json`,
    )
    .action(async (at: When, options: Options) => {
      const { network, pool, pageSize, pageToken } = options
      const answer = await connect().audit.listLeasesAsOf({
        ...given({ network, pool, pageSize, pageToken }),
        ...momentOf(at),
      })
      printAnswer(options, ListLeasesAsOfResponseSchema, answer, ({ leases, seq, time: made }) => {
        const then = seq === 0n ? 'before its first event' : `at number ${seq}, ${time(made)}`
        return `Network ${network} ${then}\n\n${leaseTable(leases)}`
      })
      printMore(options, answer.nextPageToken)
    })
}
