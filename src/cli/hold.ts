import type { Command } from 'commander'
import {
  type Hold,
  ListHoldsResponseSchema,
  ResumeHoldResponseSchema,
} from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, withJson, withNetwork, withRequestId } from './options.ts'
import { printAnswer, table, time } from './print.ts'

type ResumeOptions = CallOptions & Readonly<{ why: string; requestId?: string }>

export function holdCommands(program: Command): void {
  const hold = program.command('hold').description('proofs of absence that are not acted on')

  withJson(withNetwork(hold.command('list')))
    .description('whose silence reaps nothing, because it would have been too much in an hour')
    .action(async ({ network, ...options }: CallOptions) => {
      const answer = await connect().liveness.listHolds(given({ network }))
      printAnswer(options, ListHoldsResponseSchema, answer, ({ holds }) => tableOf(holds))
    })

  withRequestId(withJson(withNetwork(hold.command('resume'))))
    .argument('[source]', 'without, the hold of the whole network')
    .description("end a hold, by an operator's word that what is missed is gone")
    .requiredOption('--why <text>', 'goes into the log')
    .addHelpText('after', '\nExample:\n  ipledger hold resume agent-1 --why "node-1 was drained at noon"')
    .action(async (source: string | undefined, options: ResumeOptions) => {
      const { network, why, requestId } = options
      const answer = await connect().liveness.resumeHold({ why, ...given({ network, source, requestId }) })
      printAnswer(options, ResumeHoldResponseSchema, answer, ({ holds }) => tableOf(holds))
    })
}

function tableOf(holds: readonly Hold[]): string {
  if (holds.length === 0) return 'no holds'
  return table(
    ['HELD', 'SINCE', 'EVENT', 'REAPS', 'OF LEASES', 'WHY'],
    holds.map((one) => [
      one.source === '' ? `network ${one.network}` : `source ${one.source}`,
      time(one.since),
      String(one.seq),
      String(one.reaps),
      String(one.leases),
      one.why,
    ]),
  )
}
