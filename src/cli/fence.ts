import type { Command } from 'commander'
import { FenceNodeResponseSchema } from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, seq, withJson, withNetwork, withRequestId } from './options.ts'
import { printAnswer, sheet } from './print.ts'

type Options = CallOptions & Readonly<{ boot: string; why: string; head?: bigint; requestId?: string }>

export function fenceCommand(program: Command): void {
  withRequestId(withJson(withNetwork(program.command('fence'))))
    .argument('<node>')
    .description('vouch that a boot of a node is over for good: powered off, destroyed')
    .requiredOption('--boot <id>', 'the boot that is over')
    .requiredOption('--why <text>', 'goes into the log')
    .option(
      '--head <number>',
      'of leases with a token up to this alone: the head when you found out (default: up to now)',
      seq,
    )
    .addHelpText(
      'after',
      `
Leases of that boot end by this word, unless somebody sees them elsewhere. It must be true: a machine that only lost its
network still uses its addresses.

Example:
  ipledger fence n3 --boot 5f0c… --why "power is off, PDU port 7"`,
    )
    .action(async (node: string, options: Options) => {
      const { network, boot, why, head, requestId } = options
      const fence = { node, boot, why, ...given({ network, head, requestId }) }
      const answer = await connect().liveness.fenceNode(fence)
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
