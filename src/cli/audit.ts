/** The past: events, history, explain, as-of. */
import type { Command } from 'commander'
import {
  AuditService,
  type GetAddressHistoryResponse,
  type GetLeaseHistoryResponse,
  HolderSchema,
  MapAddressSchema,
  MapBlockSchema,
} from '../gen/ipledger/v1/audit_pb.ts'
import { ask } from './ask.ts'
import { prose, time, wrapped } from './print.ts'
import { fromOf, toOf, WHEN_HELP, type When, when } from './readers.ts'
import { type Field, verb } from './verb.ts'
import { leaseTable, listText } from './views.ts'

const { method } = AuditService

const RANGE: readonly Field[] = [
  ['--from <when>', 'from this time or number on', fromOf, when],
  ['--to <when>', 'up to this time or number', toOf, when],
]

export const auditCommands = [
  verb('events', method.listEvents, {
    about: "a network's log",
    fields: [
      ...RANGE,
      ['--address <address>', 'only about the lease or block that contains it'],
      ['--kind <kind>', 'only about leases of owners of this kind', 'ownerKind'],
      ['--name <name>', 'only about leases of owners of this name', 'ownerName'],
      ['--lease-id <id>', 'only about this lease, also one that has ended'],
      ['--type <types>', 'only these types; repeatable, or with commas', 'types'],
      ['--include-sources', 'also source.*, which is left out otherwise'],
      ['--descending', 'newest first'],
    ],
    help: `${WHEN_HELP}

Examples:
  ipledger events --address 10.0.0.17 --descending
  ipledger events --from -15m --type lease.reaped
  ipledger events --kind pod --name default/web-0`,
  }),
  verb('history <address|cidr>', method.getAddressHistory, {
    about: 'holders and events of an address or a block',
    argument: (text) => (text.includes('/') ? { cidr: text } : { address: text }),
    fields: RANGE,
    help: `${WHEN_HELP}

Examples:
  ipledger history 10.8.64.2
  ipledger history 10.8.64.0/28 --from "2026-11-20 03:00" --to "2026-11-20 03:30"`,
    run: (request) => ask(method.getAddressHistory, { ...request, descending: true }),
    show: historyText,
  }),
  verb('explain <address>', method.explainAddress, {
    about: 'the state of an address, and the events of its last two leases ("history" has all)',
    fields: [['--at <when>', 'as it was then (default: now)', (point: When) => point, when]],
    help: `${WHEN_HELP}

Examples:
  ipledger explain 10.8.64.2
  ipledger explain 10.8.64.2 --at "2026-11-20 03:12"`,
    show: ({ state, seq: number, answer, steps }) => {
      const rows = steps.map((step) => [String(step.seq), time(step.time), step.what])
      const story = rows.length === 0 ? [] : ['', prose(['SEQ', 'TIME', 'WHAT'], rows)]
      return [`${state} at number ${number}`, wrapped(answer), ...story].join('\n')
    },
  }),
  verb('map <cidr>', method.getAddressMap, {
    about: 'the addresses of a CIDR now or then; of a large one its blocks',
    fields: [['--at <when>', 'as they were then (default: now)', (point: When) => point, when]],
    help: `${WHEN_HELP}

Examples:
  ipledger map 10.8.64.0/24
  ipledger map 10.0.0.0/8 --at -1h`,
    show: ({ addresses, blocks, blockSize, excluded, sampled, seq: number }) =>
      [
        blockSize !== '' ? listText(MapBlockSchema, blocks) : listText(MapAddressSchema, addresses),
        ...(excluded.length > 0 ? [wrapped(`Excluded: ${excluded.join(', ')}.`)] : []),
        ...(sampled > 0 ? [`An estimate: one of ${sampled} addresses was looked at.`] : []),
        `At number ${number}.`,
      ].join('\n\n'),
  }),
  verb('find <text>', method.find, {
    about: 'what a text could mean: an address, lease, owner, node, label, pool or source',
    help: '\nExamples:\n  ipledger find 10.8.64.2\n  ipledger find web-',
  }),
  // -15m looks like an option; an unknown option is refused as a time.
  (parent: Command) => asOf(parent).allowUnknownOption(),
]

const asOf = verb('as-of <when>', method.listLeasesAsOf, {
  about: 'the leases as they were at a time or a number',
  argument: when,
  fields: [['--pool <name>', 'only leases of this pool']],
  help: `${WHEN_HELP}

Examples:
  ipledger as-of "2026-11-20 03:12"
  ipledger as-of -15m --pool web
  ipledger as-of 120000 -o json`,
  show: ({ leases, seq: number, time: made }, { network = 'default' }) => {
    const then = number === 0n ? 'before its first event' : `at number ${number}, ${time(made)}`
    return `Network ${network} ${then}\n\n${leaseTable(leases, { at: made })}`
  },
})

export const leaseHistory = verb('history <lease-id>', method.getLeaseHistory, {
  about: 'events of a lease, also of one that has ended',
  run: (request) => ask(method.getLeaseHistory, { ...request, descending: true }),
  show: historyText,
})

/** The newest page, in the order in which it happened. */
function historyText({ entries, holders }: GetAddressHistoryResponse | GetLeaseHistoryResponse): string {
  const rows = entries.map(({ event, what }) => [String(event!.seq), time(event!.time), what]).toReversed()
  const story = rows.length === 0 ? 'no events' : prose(['SEQ', 'TIME', 'WHAT'], rows)
  return `${listText(HolderSchema, holders)}\n\n${story}`
}
