import { create, toJson } from '@bufbuild/protobuf'
import type { Command } from 'commander'
import { LeaseService, WatchLeasesResponseSchema } from '../gen/ipledger/v1/lease_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import { type Format, JSON_ANSWERS, time } from './print.ts'
import { addressOf, holderOf, stateOf } from './show-lease.ts'
import { asking, connected } from './verb.ts'

export function watchCommand(program: Command): void {
  const { command, request } = asking(program, 'watch', LeaseService.method.watchLeases.input, {
    about: 'what happens to leases, from now on, until it is ended by Ctrl-C',
    fields: [
      ['--state <states>', 'reserved, active, quarantined, ended', 'states'],
      ['--owner-kind <kind>', 'only of owners of this kind'],
      ['--owner-name <name>', 'only of owners of this name'],
      ['--owner-uid <uid>', 'only of the owner with this uid'],
      ['--node <name>', 'only on this node'],
      ['--pool <names>', 'only of these pools; repeatable, or with commas', 'pools'],
      ['--after <n>', 'what happened after this number, too; 0: everything'],
      ['--held', 'first the leases that are held', 'sendInitialState'],
    ],
    help: `
It goes on where it was when the connection is lost. -o json prints a line for each answer of the server; the last
\`position\` is where --after goes on.

Examples:
  ipledger watch --pool web
  ipledger watch --after 48213 -o json`,
  })
  command.action(async () => {
    const { output } = command.opts<{ readonly output?: Format }>()
    const client = await connected()
    const { watchLeases } = await import('../client/watch.ts')
    const onTrouble = (error: Error) => console.error(`ipledger: ${error.message}; trying again`)
    for await (const told of watchLeases(client, request(), { onTrouble })) {
      const { changes, position } = told
      if (output === 'json') {
        const answer = create(WatchLeasesResponseSchema, { changes: [...changes], position })
        console.log(JSON.stringify(toJson(WatchLeasesResponseSchema, answer, JSON_ANSWERS)))
      } else for (const { lease, type, time: at } of changes) console.log(lineOf(lease!, type, time(at)))
    }
  })
}

/** Columns as wide as most need, since nobody knows what comes. */
function lineOf(lease: Lease, type: string, at: string): string {
  const cells = [
    String(lease.version).padEnd(8),
    at.padEnd(20),
    (type || 'held').padEnd(17),
    addressOf(lease).padEnd(15),
    stateOf(lease).padEnd(11),
    holderOf(lease),
  ]
  return cells.join('  ').trimEnd()
}
