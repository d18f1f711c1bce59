/** What is done with leases that are held: confirm, release, quarantine, reap, labels; and looking at them. */
import type { Command } from 'commander'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, Removal } from '../gen/ipledger/v1/types_pb.ts'
import { Unclear } from './failure.ts'
import { sheet, time } from './print.ts'
import { leaseOrAddress } from './readers.ts'
import { OWNER_FIELDS } from './reserve.ts'
import { leaseSheet, leaseTable } from './show-lease.ts'
import { ask, verb } from './verb.ts'

const { method } = LeaseService
const UNCONFIRMED = () => ({ removal: Removal.UNCONFIRMED })

/** The group of those that look at leases. */
export function leaseCommands(program: Command): Command {
  const many = ({ leases }: { readonly leases: readonly Lease[] }) => leaseTable(leases)
  const one = (answer: { readonly lease?: Lease | undefined }) => leaseSheet(answer.lease)

  verb(program, 'confirm [lease-id]', {
    about: 'say that the address is configured',
    method: method.confirm,
    fields: OWNER_FIELDS,
    help: `
Names the lease, or its owner in full. A refused confirm means: unconfigure the address.

Example:
  ipledger confirm default/42`,
    show: many,
  })
  verb(program, 'release [lease-id]', {
    about: 'give addresses back; they cool before anybody else gets them',
    method: method.release,
    fields: [
      ...OWNER_FIELDS,
      ['--removal-unconfirmed', 'nobody knows whether it is still configured: quarantined', UNCONFIRMED],
    ],
    help: `
Names the lease, or its owner in full.

Examples:
  ipledger release default/42
  ipledger release --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --interface eth0`,
    show: many,
  })
  verb(program, 'quarantine <lease-id|address>', {
    about: 'take an address out of use until an operator reaps it',
    method: method.quarantine,
    argument: leaseOrAddress,
    help: '\nExample:\n  ipledger quarantine 10.0.0.17 --why "answers ping, owner unknown"',
    show: one,
  })
  verb(program, 'reap [lease-id]', {
    about: "end a lease, or all of a node, by an operator's word that nothing uses the addresses",
    method: method.reap,
    fields: [
      ['--version <n>', 'with a lease: its version when you looked ("lease get")'],
      ['--node <name>', 'all leases of a node that is gone for good'],
      ['--head <n>', 'with --node: the head of the log when you found out ("network get")'],
    ],
    help: `
It must be true: a machine that only lost its network still uses its addresses. What a source of another node lists is
kept, and so is what an operator quarantined.

Examples:
  ipledger reap default/42 --version 57 --why "node-3 was scrapped on Monday"
  ipledger reap --node n3 --head 48213 --why "power is off, PDU port 7"`,
    show: ({ leases }) => (leases.length === 1 ? leaseSheet(leases[0]) : leaseTable(leases)),
  })

  const lease = program.command('lease').description('who holds what')
  verb(lease, 'list', {
    about: 'leases that are held now, by address',
    method: method.listLeases,
    fields: [
      ['--state <states>', 'reserved, active, quarantined', 'states'],
      ['--owner-kind <kind>', 'only of owners of this kind'],
      ['--owner-name <name>', 'only of owners of this name'],
      ['--owner-uid <uid>', 'only of the owner with this uid'],
      ['--node <name>', 'only on this node'],
      ['--label <key=value>', 'only of owners with this label, repeatable', 'labels'],
      ['--pool <names>', 'only of these pools; repeatable, or with commas', 'pools'],
      ['--cidr <cidr>', 'only those that overlap it'],
      ['--quarantine-reason <reasons>', 'only those quarantined for it', 'quarantineReasons'],
    ],
    show: many,
  })
  verb(lease, 'get <lease-id|address>', {
    about: 'one lease that is held now',
    method: method.getLease,
    argument: leaseOrAddress,
    show: one,
  })
  verb(lease, 'labels <lease-id>', {
    about: "replace the labels of a lease's owner",
    method: method.updateLabels,
    fields: [
      ['--label <key=value>', 'label, repeatable', 'labels'],
      ['--no-labels', 'remove all labels', () => ({ labels: {} })],
    ],
    run: (request) => {
      if (request.labels === undefined) throw new Unclear('Say which --label it shall have, or --no-labels.')
      return ask(method.updateLabels, request)
    },
    show: one,
  })

  const request = program.command('request').description('remembered requests')
  verb(request, 'get <request-id>', {
    about: 'what became of a request',
    method: method.getRequest,
    show: ({ requestId, committed, method: name, at, seq, leases }) =>
      committed
        ? `${sheet([
            ['request', requestId],
            ['method', name],
            ['committed', time(at)],
            ['event', String(seq)],
          ])}\n\n${leaseTable(leases)}`
        : `request ${requestId} was not committed in the last 24 h`,
  })
  return lease
}
