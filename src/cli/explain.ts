import type { Command } from 'commander'
import { ExplainAddressResponseSchema } from '../gen/ipledger/v1/audit_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, withJson, withNetwork } from './options.ts'
import { lineWidth, printAnswer, prose, time, wrapped } from './print.ts'
import { momentOf, WHEN_HELP, type When, whenOption } from './when.ts'

type Options = CallOptions & Readonly<{ at?: When }>

export function explainCommand(program: Command): void {
  withJson(withNetwork(program.command('explain')))
    .argument('<address>')
    .description('why an address is free, cooling, held or quarantined, and what led there')
    .option('--at <when>', 'as it was then (default: now)', whenOption)
    .addHelpText(
      'after',
      `${WHEN_HELP}

Examples:
  ipledger explain 10.8.64.2
  ipledger explain 10.8.64.2 --at "2026-11-20 03:12"`,
    )
    .action(async (address: string, options: Options) => {
      const { network, at } = options
      const answer = await connect().audit.explainAddress({
        ...given({ network }),
        address,
        ...(at === undefined ? {} : momentOf(at)),
      })
      printAnswer(options, ExplainAddressResponseSchema, answer, (explained) => {
        const width = lineWidth()
        const steps = explained.steps.map((step) => [String(step.seq), time(step.time), step.what])
        return [
          `${explained.state} at number ${explained.seq}`,
          ...wrapped(explained.answer, width),
          ...(steps.length === 0 ? [] : ['', prose(['SEQ', 'TIME', 'WHAT'], steps, width)]),
        ].join('\n')
      })
    })
}
