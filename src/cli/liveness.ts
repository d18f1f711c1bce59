/** What sources see, what follows from it, and what waits for a person. */
import type { Command } from 'commander'
import { type Finding, LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import type { AttentionCode } from '../ledger/read-sources.ts'
import { Unclear } from './failure.ts'
import { table, tableOf, time } from './print.ts'
import { addressOf, holderOf, stateOf } from './show-lease.ts'
import { ask, verb } from './verb.ts'

const { method } = LivenessService

export const ATTENTION: Readonly<Record<AttentionCode, string>> = {
  NETWORK_RECOVERING: 'nothing is handed out before its sources have reported: recover --end',
  HELD: 'nothing is taken back until an operator resumes: network get, network resume',
  SOURCE_SILENT: 'it is late with its report: nothing it sees is missed',
  SOURCE_COLD: 'still warming up: nothing it sees is missed',
  SOURCE_PARTIAL: 'only partial reports: it only protects',
  LOOKUP_FAILING: 'asked after a workload, a source gives no clear answer',
  OPERATOR_ONLY: 'a quarantine that only an operator ends: reap',
  NO_WITNESS: 'no source can miss it: release, or reap',
  BOOKS_DIFFER: 'verification found differences: verify',
}

export function livenessCommands(program: Command): void {
  verb(program.command('sighting').description('what sources see'), 'list', {
    about: 'who is seen where, by address',
    method: method.listSightings,
    fields: [
      ['--source <id>', 'only by this source'],
      ['--address <address>', 'only there; of a block that is leased as one, anywhere in it'],
      ['--vanished', 'also what is listed no more'],
    ],
    show: ({ sightings }) =>
      tableOf('no sightings', sightings, {
        ADDRESS: ({ address }) => address,
        SOURCE: ({ source }) => source,
        OWNER: holderOf,
        UID: ({ owner }) => (owner === undefined || owner.uid === owner.name ? '' : owner.uid),
        INTERFACE: ({ owner }) => owner?.interface ?? '',
        NODE: ({ owner }) => owner?.node ?? '',
        STATE: ({ state }) => state,
        SINCE: ({ appearedAt }) => time(appearedAt),
        UNTIL: ({ vanishedAt }) => time(vanishedAt),
      }),
  })
  verb(program, 'reconcile', {
    about: 'what would be done about leases now, and why',
    method: method.reconcile,
    fields: [
      ['--dry-run', 'required: nothing is done', null],
      ['--pool <name>', 'only about this pool'],
      ['--address <address>', 'only about the lease there'],
      ['--source <id>', 'only what this source lists, or is a witness of'],
      ['--kept', 'also leases about which nothing would be done'],
    ],
    help: `
-o json has the evidence of each finding.

Examples:
  ipledger reconcile --dry-run
  ipledger reconcile --dry-run --address 10.0.0.17 --kept`,
    run: (request, { dryRun }: { readonly dryRun?: boolean }) => {
      if (dryRun === true) return ask(method.reconcile, request)
      throw new Unclear(
        'Reconciling is what the worker does by itself, all the time ("ipledger serve", or "ipledger worker"). Say --dry-run to see what it would do.',
      )
    },
    show: ({ findings }) =>
      tableOf('nothing to be done', findings, {
        ADDRESS: ({ address, lease }) => (lease === undefined ? address : addressOf(lease)),
        VERDICT: ({ verdict }) => verdict,
        LEASE: ({ lease }) => lease?.leaseId ?? '',
        STATE: ({ lease }) => (lease === undefined ? '' : stateOf(lease)),
        OWNER: ({ lease }) => (lease === undefined ? '' : holderOf(lease)),
        WHY: ({ because }) => because.map(whyOf).join('; '),
      }),
  })
  verb(program, 'attention', {
    about: 'everything that waits for a person, or for an answer',
    method: method.listAttention,
    fields: [['--code <codes>', 'only of these; repeatable, or with commas: HELD,SOURCE_SILENT', 'codes']],
    help: `\nCodes:\n${table(['CODE', 'MEANS'], Object.entries(ATTENTION))}`,
    show: ({ items }) =>
      tableOf('nothing waits', items, {
        CODE: ({ code }) => code,
        SINCE: ({ since }) => time(since),
        SOURCE: ({ source }) => source,
        LEASE: ({ leaseId }) => leaseId,
        ADDRESS: ({ address }) => address,
        'WAITS FOR': ({ text }) => text,
      }),
  })
}

function whyOf({ code, source, text }: Finding['because'][number]): string {
  const said = text === '' ? code : text
  return source === '' || said.includes(source) ? said : `${source}: ${said}`
}
