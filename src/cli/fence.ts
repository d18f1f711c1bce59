import type { Command } from 'commander'
import { FenceNodeResponseSchema } from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, withJson, withNetwork, withRequestId } from './options.ts'
import { printAnswer, sheet } from './print.ts'

type Options = CallOptions & Readonly<{ boot: string; why: string; requestId?: string }>

export function fenceCommand(program: Command): void {
  withRequestId(withJson(withNetwork(program.command('fence'))))
    .argument('<node>')
    .description('vouch that a boot of a node is over for good: powered off, destroyed')
    .requiredOption('--boot <id>', 'the boot that is over')
    .requiredOption('--why <text>', 'goes into the log')
    .addHelpText(
      'after',
      `
Leases of that boot end by this word, unless somebody sees them elsewhere. It must be true: a machine that only lost its
network still uses its addresses.

Example:
  ipledger fence n3 --boot 5f0c… --why "power is off, PDU port 7"`,
    )
    .action(async (node: string, options: Options) => {
      const { network, boot, why, requestId } = options
      const answer = await connect().liveness.fenceNode({ node, boot, why, ...given({ network, requestId }) })
      printAnswer(options, FenceNodeResponseSchema, answer, (one) =>
        sheet([
          ['node', node],
          ['boot', boot],
          ['event', String(one.seq)],
          ['leases', String(one.leases)],
        ]),
      )
    })
}
