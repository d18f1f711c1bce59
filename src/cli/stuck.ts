import type { Command } from 'commander'
import { ListStuckResponseSchema, type Stuck } from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, list, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, table, time } from './print.ts'
import { addressOf, holderOf } from './show-lease.ts'

type Options = CallOptions & Readonly<{ code?: readonly string[]; pageSize?: number; pageToken?: string }>

export function stuckCommand(program: Command): void {
  withPage(withJson(withNetwork(program.command('stuck'))))
    .description('everything that waits for a person, or for an answer')
    .option('--code <codes>', 'only of these; repeatable, or with commas: PROOF_BLOCKED,SOURCE_SILENT', list)
    .action(async (options: Options) => {
      const { network, pageSize, pageToken } = options
      const answer = await connect().liveness.listStuck({
        codes: [...(options.code ?? [])],
        ...given({ network, pageSize, pageToken }),
      })
      printAnswer(options, ListStuckResponseSchema, answer, ({ stuck }) => tableOf(stuck))
      printMore(options, answer.nextPageToken)
    })
}

function tableOf(stuck: readonly Stuck[]): string {
  if (stuck.length === 0) return 'nothing waits'
  return table(
    ['CODE', 'SINCE', 'SOURCE', 'LEASE', 'ADDRESS', 'OWNER', 'WAITS FOR'],
    stuck.map(({ lease, ...one }) => [
      one.code,
      time(one.since),
      one.source,
      lease?.leaseId ?? '',
      lease === undefined ? '' : addressOf(lease),
      lease === undefined ? '' : holderOf(lease),
      one.text,
    ]),
  )
}
