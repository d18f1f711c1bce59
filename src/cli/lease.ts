/** What is done with leases that are held: confirm, release, quarantine, reap, labels; and looking at them. */

import { create } from '@bufbuild/protobuf'
import type { Command } from 'commander'
import {
  ConfirmResponseSchema,
  GetLeaseResponseSchema,
  GetRequestResponseSchema,
  ListLeasesResponseSchema,
  QuarantineResponseSchema,
  ReapResponseSchema,
  ReleaseResponseSchema,
  UpdateLabelsResponseSchema,
} from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, LeaseState, QuarantineReason, Removal } from '../gen/ipledger/v1/types_pb.ts'
import { type Connection, connect } from './connection.ts'
import { Unclear } from './failure.ts'
import {
  type CallOptions,
  given,
  isLeaseId,
  type LabelMap,
  label,
  list,
  names,
  type OwnerOptions,
  ownerOf,
  seq,
  withJson,
  withNetwork,
  withOwner,
  withPage,
  withRequestId,
} from './options.ts'
import { printAnswer, printMore, sheet, time } from './print.ts'
import { addressOf, holderOf, leaseSheet, leaseTable, stateOf } from './show-lease.ts'

type NamedOptions = CallOptions & OwnerOptions & Readonly<{ requestId?: string }>
type ReleaseOptions = NamedOptions & Readonly<{ removalUnconfirmed?: boolean }>
type QuarantineOptions = CallOptions & Readonly<{ why: string; requestId?: string }>
type ReapOptions = CallOptions & Readonly<{ why: string; version?: bigint; requestId?: string }>
type LabelsOptions = CallOptions &
  Readonly<{ label?: LabelMap; labels: boolean; version?: bigint; requestId?: string }>
type ListOptions = CallOptions &
  Readonly<{
    state?: readonly Exclude<LeaseState, 0>[]
    ownerKind?: string
    ownerName?: string
    ownerUid?: string
    node?: string
    label?: LabelMap
    pool?: readonly string[]
    cidr?: string
    quarantineReason?: readonly Exclude<QuarantineReason, 0>[]
    pageSize?: number
    pageToken?: string
  }>

/** The most leases of one owner that are looked at to find out which is meant: a page. */
const LOOKED_AT = 1_000

export function leaseCommands(program: Command): void {
  withNamed(program.command('confirm').description('say that the address is configured'))
    .addHelpText(
      'after',
      `
Names the lease, or its owner. A refused confirm means: unconfigure the address.

Examples:
  ipledger confirm default/42
  ipledger confirm --kind container --name node-1/web`,
    )
    .action(async (leaseId: string | undefined, options: NamedOptions) => {
      const client = connect()
      const { network, requestId } = options
      const named = await nameLeases(client, leaseId, options, [LeaseState.RESERVED, LeaseState.ACTIVE])
      const leases: Lease[] = []
      for (const one of named) {
        leases.push(...(await client.leases.confirm({ ...given({ network, requestId }), ...one })).leases)
      }
      printAnswer(options, ConfirmResponseSchema, create(ConfirmResponseSchema, { leases }), shown)
    })

  withNamed(
    program.command('release').description('give addresses back; they cool before anybody else gets them'),
  )
    .option(
      '--removal-unconfirmed',
      'nobody knows whether the address is still configured: it is quarantined',
    )
    .addHelpText(
      'after',
      `
Names the lease, or its owner. An owner is released as a whole if --uid or --name, --incarnation and --interface are
given; otherwise its leases are looked up, and it must be clear which life of it is meant.

Examples:
  ipledger release default/42
  ipledger release --kind container --name node-1/web
  ipledger release --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --interface eth0`,
    )
    .action(async (leaseId: string | undefined, options: ReleaseOptions) => {
      const client = connect()
      const { network, requestId } = options
      const removal = options.removalUnconfirmed ? Removal.UNCONFIRMED : Removal.CONFIRMED
      const named = await nameLeases(client, leaseId, options, [])
      const leases: Lease[] = []
      for (const one of named) {
        leases.push(
          ...(await client.leases.release({ ...given({ network, requestId }), removal, ...one })).leases,
        )
      }
      printAnswer(options, ReleaseResponseSchema, create(ReleaseResponseSchema, { leases }), shown)
    })

  withRequestId(withJson(withNetwork(program.command('quarantine'))))
    .argument('<lease-id|address>')
    .description('take an address out of use until an operator reaps it')
    .requiredOption('--why <text>', 'goes into the log')
    .addHelpText('after', '\nExample:\n  ipledger quarantine 10.0.0.17 --why "answers ping, owner unknown"')
    .action(async (target: string, options: QuarantineOptions) => {
      const { network, why, requestId } = options
      const answer = await connect().leases.quarantine({
        why,
        ...targetOf(target, network),
        ...given({ requestId }),
      })
      printAnswer(options, QuarantineResponseSchema, answer, (one) => leaseSheet(one.lease))
    })

  withRequestId(withJson(program.command('reap')))
    .argument('<lease-id>')
    .description("end a lease by an operator's word that nothing uses its address")
    .requiredOption('--why <text>', 'goes into the log')
    .option('--version <n>', 'the version you looked at (default: the present one)', seq)
    .addHelpText('after', '\nExample:\n  ipledger reap default/42 --why "node-3 was scrapped on Monday"')
    .action(async (leaseId: string, options: ReapOptions) => {
      const client = connect()
      const { why, requestId } = options
      const version = options.version ?? (await lookAt(client, leaseId))
      const answer = await client.leases.reap({ leaseId, version, why, ...given({ requestId }) })
      printAnswer(options, ReapResponseSchema, answer, (one) => leaseSheet(one.lease))
    })

  const lease = program.command('lease').description('who holds what')

  withPage(withJson(withNetwork(lease.command('list').description('leases that are held now, by address'))))
    .option('--state <states>', 'reserved, active, quarantined', names(LeaseState))
    .option('--owner-kind <kind>', 'only of owners of this kind')
    .option('--owner-name <name>', 'only of owners of this name')
    .option('--owner-uid <uid>', 'only of the owner with this uid')
    .option('--node <name>', 'only on this node')
    .option('--label <key=value>', 'only of owners with this label, repeatable', label)
    .option('--pool <names>', 'only of these pools; repeatable, or with commas', list)
    .option('--cidr <cidr>', 'only those that overlap it')
    .option('--quarantine-reason <reasons>', 'only those quarantined for it', names(QuarantineReason))
    .action(async (options: ListOptions) => {
      const {
        network,
        ownerKind,
        ownerName,
        ownerUid,
        node,
        label: labels,
        cidr,
        pageSize,
        pageToken,
      } = options
      const answer = await connect().leases.listLeases({
        ...given({ network, ownerKind, ownerName, ownerUid, node, labels, cidr, pageSize, pageToken }),
        states: [...(options.state ?? [])],
        pools: [...(options.pool ?? [])],
        quarantineReasons: [...(options.quarantineReason ?? [])],
      })
      printAnswer(options, ListLeasesResponseSchema, answer, shown)
      printMore(options, answer.nextPageToken)
    })

  withJson(withNetwork(lease.command('get')))
    .argument('<lease-id|address>')
    .description('one lease that is held now')
    .action(async (target: string, options: CallOptions) => {
      const answer = await connect().leases.getLease(targetOf(target, options.network))
      printAnswer(options, GetLeaseResponseSchema, answer, (one) => leaseSheet(one.lease))
    })

  withRequestId(withJson(lease.command('labels')))
    .argument('<lease-id>')
    .description("replace the labels of a lease's owner")
    .option('--label <key=value>', 'label, repeatable', label)
    .option('--no-labels', 'remove all labels')
    .option('--version <n>', 'only if the lease is at this version', seq)
    .action(async (leaseId: string, options: LabelsOptions) => {
      if (options.label === undefined && options.labels) {
        throw new Unclear('Say which --label it shall have, or --no-labels.')
      }
      const { version, requestId } = options
      const labels = options.labels ? { ...options.label } : {}
      const answer = await connect().leases.updateLabels({
        leaseId,
        labels,
        ...given({ version, requestId }),
      })
      printAnswer(options, UpdateLabelsResponseSchema, answer, (one) => leaseSheet(one.lease))
    })

  const request = program.command('request').description('remembered requests')

  withJson(withNetwork(request.command('get')))
    .argument('<request-id>')
    .description('what became of a request')
    .action(async (requestId: string, options: CallOptions) => {
      const answer = await connect().leases.getRequest({ requestId, ...given({ network: options.network }) })
      printAnswer(options, GetRequestResponseSchema, answer, (one) =>
        one.committed
          ? `${sheet([
              ['request', one.requestId],
              ['method', one.method],
              ['committed', time(one.at)],
              ['event', String(one.seq)],
            ])}\n\n${leaseTable(one.leases)}`
          : `request ${one.requestId} was not committed in the last 24 h`,
      )
    })
}

function withNamed(command: Command): Command {
  return withRequestId(withOwner(withJson(withNetwork(command.argument('[lease-id]')))))
}

function shown(answer: Readonly<{ leases: readonly Lease[] }>): string {
  return leaseTable(answer.leases)
}

function targetOf(
  target: string,
  network: string | undefined,
): Readonly<{ leaseId?: string; address?: string; network?: string }> {
  // A lease id contains its network.
  return isLeaseId(target) ? { leaseId: target } : { address: target, ...given({ network }) }
}

type Named = Readonly<{ leaseId: string; network?: never }> | Readonly<{ owner: ReturnType<typeof ownerOf> }>

/**
 * The lease that was named, the owner that was named in full, or the leases that the owner holds. Of these all must
 * belong to one life of the owner: which of two was meant is not guessed.
 */
async function nameLeases(
  client: Connection,
  leaseId: string | undefined,
  options: NamedOptions,
  states: readonly Exclude<LeaseState, 0>[],
): Promise<readonly Named[]> {
  const { kind, name, uid, incarnation, interface: ofInterface } = options
  if (leaseId !== undefined) {
    if (kind !== undefined || name !== undefined || uid !== undefined) {
      throw new Unclear('Name the lease or its owner, not both.')
    }
    return [{ leaseId }]
  }
  if (kind === undefined || (name === undefined && uid === undefined)) {
    throw new Unclear('Name the lease (default/42), or its owner with --kind and --name or --uid.')
  }
  if (incarnation !== undefined && ofInterface !== undefined) return [{ owner: ownerOf(options) }]
  const meant: Lease[] = []
  let pageToken = ''
  // In a large network a page may be empty and not the last: the server examines so many leases for each.
  do {
    const page = await client.leases.listLeases({
      ...given({ network: options.network, ownerName: name, ownerUid: uid }),
      ownerKind: kind,
      states: [...states],
      pageSize: LOOKED_AT,
      pageToken,
    })
    meant.push(
      ...page.leases.filter(
        ({ owner }) =>
          (incarnation === undefined || owner?.incarnation === incarnation) &&
          (ofInterface === undefined || owner?.interface === ofInterface),
      ),
    )
    pageToken = page.nextPageToken
  } while (pageToken !== '' && meant.length <= LOOKED_AT)
  if (meant.length === 0) {
    throw new Unclear(`${kind} ${name ?? uid} holds no lease in network ${options.network}.`)
  }
  const lives = new Set(
    meant.map(({ owner }) => JSON.stringify([owner?.uid, owner?.incarnation, owner?.interface])),
  )
  if (meant.length > LOOKED_AT) {
    throw new Unclear(`${kind} ${name ?? uid} holds more than ${LOOKED_AT} leases: name each lease.`)
  }
  if (lives.size > 1) {
    throw new Unclear(
      `${kind} ${name ?? uid} has leases of more than one life. Name one with --uid, --incarnation or --interface, or name the lease:\n\n${leaseTable(meant)}`,
    )
  }
  if (meant.length > 1 && options.requestId !== undefined) {
    throw new Unclear(
      `${kind} ${name ?? uid} holds ${meant.length} leases, and a request id stands for one command: name each lease, or the owner with --incarnation and --interface.`,
    )
  }
  return meant.map((lease) => ({ leaseId: lease.leaseId }))
}

/** Says on stderr what is about to end, and answers its version. */
async function lookAt(client: Connection, leaseId: string): Promise<bigint> {
  const { lease } = await client.leases.getLease({ leaseId })
  if (lease === undefined) return 0n
  const holder = holderOf(lease) === '' ? 'nobody' : holderOf(lease)
  console.error(
    `Reaping ${leaseId} at version ${lease.version}: ${addressOf(lease)}, ${stateOf(lease)}, held for ${holder}.`,
  )
  return lease.version
}
