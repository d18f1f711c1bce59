import type { Command } from 'commander'
import { type Event, ListEventsResponseSchema } from '../gen/ipledger/v1/audit_pb.ts'
import { connect } from './connection.ts'
import { type CallOptions, given, list, seq, withJson, withNetwork, withPage } from './options.ts'
import { printAnswer, printMore, table, time } from './print.ts'
import { addressOf, holderOf, stateOf } from './show-lease.ts'
import { rangeOf, WHEN_HELP, type When, whenOption } from './when.ts'

type Options = CallOptions &
  Readonly<{
    afterSeq?: bigint
    beforeSeq?: bigint
    address?: string
    cidr?: string
    ownerKind?: string
    ownerName?: string
    leaseId?: string
    type?: readonly string[]
    descending?: boolean
    from?: When
    to?: When
    pageSize?: number
    pageToken?: string
  }>

export function eventsCommand(program: Command): void {
  withPage(withJson(withNetwork(program.command('events').description("a network's log"))))
    .option('--from <when>', 'from then on', whenOption)
    .option('--to <when>', 'up to then', whenOption)
    .option('--after-seq <n>', 'only events with a greater number', seq)
    .option('--before-seq <n>', 'only events with a smaller number', seq)
    .option('--address <address>', 'only about the lease or block that contains it')
    .option('--cidr <cidr>', 'only about leases that overlap it')
    .option('--owner-kind <kind>', 'only about leases of owners of this kind')
    .option('--owner-name <name>', 'only about leases of owners of this name')
    .option('--lease-id <id>', 'only about this lease, also one that has ended')
    .option(
      '--type <types>',
      'only these types; repeatable, or with commas: lease.reserved,lease.reaped',
      list,
    )
    .option('--descending', 'newest first')
    .addHelpText(
      'after',
      `${WHEN_HELP}

Examples:
  ipledger events --address 10.0.0.17 --descending
  ipledger events --from -15m --type lease.reaped
  ipledger events --owner-kind pod --owner-name default/web-0`,
    )
    .action(async (options: Options) => {
      const { network, afterSeq, beforeSeq, address, cidr, ownerKind, ownerName, leaseId } = options
      const { descending, pageSize, pageToken, type, from, to } = options
      const answer = await connect().audit.listEvents({
        ...rangeOf({ from, to }),
        ...given({ network, afterSeq, beforeSeq, address, cidr, ownerKind, ownerName, leaseId }),
        ...given({ descending, pageSize, pageToken, types: type && [...type] }),
      })
      printAnswer(options, ListEventsResponseSchema, answer, ({ events }) => eventTable(events))
      printMore(options, answer.nextPageToken)
    })
}

export function eventTable(events: readonly Event[]): string {
  if (events.length === 0) return 'no events'
  return table(
    ['SEQ', 'TIME', 'TYPE', 'ACTOR', 'CAUSE', 'ABOUT', 'STATE', 'OWNER', 'WHY'],
    events.map((event) => [
      String(event.seq),
      time(event.time),
      event.type,
      event.actor,
      event.cause,
      aboutOf(event),
      event.lease === undefined ? '' : stateOf(event.lease),
      ownerOf(event),
      whyOf(event),
    ]),
  )
}

function aboutOf(event: Event): string {
  if (event.lease !== undefined) return addressOf(event.lease)
  if (event.pool !== undefined) return `${event.pool.name} ${event.pool.cidr}`
  return event.closed?.pool ?? ''
}

function ownerOf(event: Event): string {
  if (event.lease !== undefined) return holderOf(event.lease)
  const closed = event.closed?.owner
  return closed === undefined ? '' : `${closed.kind} ${closed.name} ${closed.incarnation}`
}

function whyOf(event: Event): string {
  const why = event.evidence?.why ?? event.evidence?.reason ?? event.lease?.quarantine?.why
  return typeof why === 'string' ? why : ''
}
