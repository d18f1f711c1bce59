/** What is done with leases that are held: confirm, release, quarantine, reap, labels; and looking at them. */
import { create, type MessageInitShape } from '@bufbuild/protobuf'
import type { Command } from 'commander'
import {
  type ConfirmRequestSchema,
  ConfirmResponseSchema,
  LeaseService,
  ReleaseResponseSchema,
} from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, LeaseState, Removal } from '../gen/ipledger/v1/types_pb.ts'
import { Unclear } from './failure.ts'
import { sheet, time } from './print.ts'
import { leaseOrAddress } from './readers.ts'
import { OWNER_FIELDS } from './reserve.ts'
import { leaseSheet, leaseTable } from './show-lease.ts'
import { ask, pages, verb } from './verb.ts'

const { method } = LeaseService
const UNCONFIRMED = () => ({ removal: Removal.UNCONFIRMED })

export function leaseCommands(program: Command): void {
  const many = ({ leases }: { readonly leases: readonly Lease[] }) => leaseTable(leases)
  const one = (answer: { readonly lease?: Lease | undefined }) => leaseSheet(answer.lease)

  verb(program, 'confirm [lease-id]', {
    about: 'say that the address is configured',
    method: method.confirm,
    fields: OWNER_FIELDS,
    help: `
Names the lease, or its owner. A refused confirm means: unconfigure the address.

Examples:
  ipledger confirm default/42
  ipledger confirm --kind container --name node-1/web`,
    run: async (request) => {
      const leases: Lease[] = []
      for (const named of await nameLeases(request, [LeaseState.RESERVED, LeaseState.ACTIVE]))
        leases.push(...(await ask(method.confirm, { ...request, ...named })).leases)
      return create(ConfirmResponseSchema, { leases })
    },
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
Names the lease, or its owner. An owner is released as a whole if --uid or --name, --incarnation and --interface are
given; otherwise its leases are looked up, and it must be clear which life of it is meant.

Examples:
  ipledger release default/42
  ipledger release --kind container --name node-1/web
  ipledger release --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --interface eth0`,
    run: async (request) => {
      const leases: Lease[] = []
      for (const named of await nameLeases(request, []))
        leases.push(...(await ask(method.release, { ...request, ...named })).leases)
      return create(ReleaseResponseSchema, { leases })
    },
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
}

/** What a Confirm or a Release names. */
type Named = Pick<
  MessageInitShape<typeof ConfirmRequestSchema>,
  'leaseId' | 'owner' | 'network' | 'requestId'
>

/**
 * The lease that was named, the owner that was named in full, or the leases that the owner holds. Of these all must
 * belong to one life of the owner: which of two was meant is not guessed.
 */
async function nameLeases(
  { leaseId, owner, network = 'default', requestId }: Named,
  states: readonly Exclude<LeaseState, 0>[],
): Promise<readonly object[]> {
  if (leaseId !== undefined) {
    if (owner !== undefined) throw new Unclear('Name the lease or its owner, not both.')
    return [{}]
  }
  const { kind, name, uid, incarnation, interface: named } = owner ?? {}
  const who = `${kind} ${name ?? uid}`
  if (kind === undefined || (name === undefined && uid === undefined))
    throw new Unclear('Name the lease (default/42), or its owner with --kind and --name or --uid.')
  if (incarnation !== undefined && named !== undefined) return [{}]
  const filter = { network, ownerKind: kind, ownerName: name ?? '', ownerUid: uid ?? '', states: [...states] }
  const meant: Lease[] = []
  // In a large network a page may be empty and not the last: the server examines so many leases for each.
  for await (const { leases } of pages(method.listLeases, filter)) {
    meant.push(
      ...leases.filter(
        (one) =>
          (incarnation === undefined || one.owner?.incarnation === incarnation) &&
          (named === undefined || one.owner?.interface === named),
      ),
    )
  }
  if (meant.length === 0) throw new Unclear(`${who} holds no lease in network ${network}.`)
  const lifeOf = ({ owner: of }: Lease) => JSON.stringify([of?.uid, of?.incarnation, of?.interface])
  if (new Set(meant.map(lifeOf)).size > 1)
    throw new Unclear(
      `${who} has leases of more than one life. Name one with --uid, --incarnation or --interface, or name the lease:\n\n${leaseTable(meant)}`,
    )
  if (meant.length > 1 && requestId !== undefined)
    throw new Unclear(
      `${who} holds ${meant.length} leases, and a request id stands for one command: name each lease, or the owner with --incarnation and --interface.`,
    )
  return meant.map((one) => ({ leaseId: one.leaseId, owner: undefined }))
}
