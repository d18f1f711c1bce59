import type { Command } from 'commander'
import { type Finding, ReconcileResponseSchema } from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { Unclear } from './failure.ts'
import { type CallOptions, given, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, table } from './print.ts'
import { addressOf, holderOf, stateOf } from './show-lease.ts'

type Options = CallOptions &
  Readonly<{
    dryRun?: boolean
    pool?: string
    address?: string
    source?: string
    asIfEnabled?: string
    kept?: boolean
    pageSize?: number
    pageToken?: string
  }>

export function reconcileCommand(program: Command): void {
  withPage(withJson(withNetwork(program.command('reconcile'))))
    .description('what would be done about leases now, and why')
    .option('--dry-run', 'required: nothing is done')
    .option('--pool <name>', 'only about this pool')
    .option('--address <address>', 'only about the lease, or what is seen, there')
    .option('--source <id>', 'only what this source has a part in')
    .option('--as-if-enabled <source>', 'also as if this source were enabled')
    .option('--kept', 'also leases about which nothing would be done')
    .addHelpText(
      'after',
      `
--json has the evidence of each finding.

Examples:
  ipledger reconcile --dry-run
  ipledger reconcile --dry-run --as-if-enabled agent-1 --source agent-1
  ipledger reconcile --dry-run --address 10.0.0.17 --kept`,
    )
    .action(async (options: Options) => {
      if (!options.dryRun) {
        throw new Unclear(
          'Reconciling is what the worker does by itself, all the time ("ipledger serve", or "ipledger worker"). Say --dry-run to see what it would do.',
        )
      }
      const { network, pool, address, source, asIfEnabled, kept, pageSize, pageToken } = options
      const answer = await connect().liveness.reconcile(
        given({ network, pool, address, source, asIfEnabled, kept, pageSize, pageToken }),
      )
      printAnswer(options, ReconcileResponseSchema, answer, ({ findings }) => tableOf(findings))
      printMore(options, answer.nextPageToken)
    })
}

function tableOf(findings: readonly Finding[]): string {
  if (findings.length === 0) return 'nothing to be done'
  return table(
    ['ADDRESS', 'VERDICT', 'LEASE', 'STATE', 'OWNER', 'WHY'],
    findings.map(({ address, verdict, lease, because }) => [
      lease === undefined ? address : addressOf(lease),
      verdict.replaceAll('_', ' '),
      lease?.leaseId ?? '',
      lease === undefined ? '' : stateOf(lease),
      lease === undefined ? '' : holderOf(lease),
      because.map(whyOf).join('; '),
    ]),
  )
}

function whyOf({ code, source, text }: Finding['because'][number]): string {
  const said = text === '' ? code : text
  return source === '' || said.includes(source) ? said : `${source}: ${said}`
}
