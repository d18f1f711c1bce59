import type { Command } from 'commander'
import { ListStuckResponseSchema, type Stuck } from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, list, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, table, time } from './print.ts'
import { addressOf, holderOf } from './show-lease.ts'

type Options = CallOptions & Readonly<{ code?: readonly string[]; pageSize?: number; pageToken?: string }>

/** Every code that the server may answer, as test/unit/stuck-codes.test.ts holds against it. */
export const STUCK_CODES: Readonly<Record<string, string>> = {
  NETWORK_RECOVERING: 'nothing is handed out before its sources have reported: recover --end',
  NETWORK_REBUILDING: 'being rebuilt from its log for more than a minute, or no more: rebuild',
  SOURCE_UNKNOWN: 'reports while the network recovers, and is not registered: source register, recover --end',
  BOOKS_DIFFER: 'verification found differences: verify',
  HELD: 'too much was missed in an hour: hold list, hold resume',
  OLD_TRANSACTION: 'a transaction in the database is open for more than a minute',
  CLOCK_AHEAD: "the last event is later than the database's clock",
  SOURCE_NOT_ENABLED: 'in dry run: source enable',
  SOURCE_SILENT: 'no report for three intervals',
  SOURCE_PARTIAL: 'only partial reports for three intervals',
  SOURCE_COLD: 'still warming up after three intervals, or anew with every report',
  SOURCE_SELDOM: 'no two of its reports are within three of its intervals, so none counts',
  FENCE_CONTRADICTED: 'reports from a boot that was fenced',
  STALE_SIGHTING: 'what a silent source listed last keeps leases of others',
  PROOF_BLOCKED: 'somebody whose word is needed cannot give it, or is held',
  LOOKUP_FAILING: 'asked after a workload, a source gives no clear answer',
  LOOKUP_WAITING: 'asked after a workload, a source has not answered for five intervals',
  OWNER_LIVES_ELSEWHERE: 'listed no more, and alive when asked after',
  NOBODY_CAN_TELL: 'no source can see the workload, or the one that saw it was retired',
  NO_EXIT: "no source's word ends it: its holder's release where the text says so, or reap",
  NEVER_SIGHTED: 'older than the source that should see it, and not seen by it yet',
  SIGHTING_EXCLUDED: 'seen on a gateway or an excluded address',
  SIGHTING_NOT_RECORDED: 'seen, not handed out, and not in the books',
}

export function stuckCommand(program: Command): void {
  withPage(withJson(withNetwork(program.command('stuck'))))
    .description('everything that waits for a person, or for an answer')
    .option('--code <codes>', 'only of these; repeatable, or with commas: PROOF_BLOCKED,SOURCE_SILENT', list)
    .addHelpText('after', `\nCodes:\n${table(['CODE', 'MEANS'], Object.entries(STUCK_CODES))}`)
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
