import type { Command } from 'commander'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import {
  type Hold,
  HoldCauseSchema,
  type Network,
  NetworkSchema,
  NetworkService,
  NetworkStateSchema,
  type Recovery,
} from '../gen/ipledger/v1/network_pb.ts'
import { labels, nameOf, sheetOf, tableOf, time } from './print.ts'
import { verb } from './verb.ts'

export function networkCommands(program: Command): void {
  const network = program.command('network').description('address spaces in which an address is unique')
  const one = (answer: { readonly network?: Network | undefined }) => networkSheet(answer.network)

  verb(network, 'create <name>', {
    about: 'make a network and its ledger',
    method: NetworkService.method.createNetwork,
    fields: [
      ['--description <text>', 'for people'],
      ['--label <key=value>', 'label, repeatable', 'labels'],
    ],
    help: '\nExample:\n  ipledger network create tenant-7 --description "VPC of tenant 7"',
    show: one,
  })
  verb(network, 'list', {
    about: 'networks, by name',
    method: NetworkService.method.listNetworks,
    fields: [['--label <key=value>', 'only networks with this label, repeatable', 'labels']],
    show: ({ networks }) => networkTable(networks),
  })
  verb(network, 'get [name]', {
    about: 'one network (default: "default"): what it waits for, and where its log stands',
    method: NetworkService.method.getNetwork,
    show: one,
  })
  verb(network, 'update <name>', {
    about: 'change description or labels',
    method: NetworkService.method.updateNetwork,
    fields: [
      ['--description <text>', 'new description; "" clears it'],
      ['--label <key=value>', 'new label, repeatable; together they replace all labels', 'labels'],
      ['--no-labels', 'remove all labels', () => ({ updateMask: { paths: ['labels'] } })],
    ],
    show: one,
  })
  verb(network, 'resume [network]', {
    about: "end holds, by an operator's word that what is missed is gone, or that the clock is right",
    method: LivenessService.method.resumeHold,
    fields: [['--cause <cause>', 'only this hold (default: all of them)']],
    help: '\nExample:\n  ipledger network resume --cause too-many-reaps --why "node-1 was drained at noon"',
    show: ({ holds }) =>
      tableOf('no holds', holds, {
        HELD: causeOf,
        SINCE: ({ since }) => time(since),
        WHY: ({ why }) => why,
      }),
  })
}

function networkTable(networks: readonly Network[]): string {
  return tableOf('no networks', networks, {
    NETWORK: (one) => one.name,
    STATE: ({ state }) => nameOf(NetworkStateSchema, state),
    HELD: ({ holds }) => holds.map(causeOf).join(', '),
    ERA: ({ era }) => String(era),
    HEAD: ({ head }) => String(head),
    CREATED: ({ createdAt }) => time(createdAt),
    LABELS: (one) => labels(one.labels),
    DESCRIPTION: ({ description }) => description,
  })
}

export function networkSheet(network: Network | undefined): string {
  if (network === undefined) return ''
  const { head, digest, holds, recovery } = network
  return sheetOf(NetworkSchema, network, {
    digest: undefined,
    recovery: undefined,
    held: holds.map((hold) => `${causeOf(hold)} since ${time(hold.since)}: ${hold.why}`).join('; '),
    anchor: digest === '' ? '' : `${head}:${digest}`,
    recovering: recovery && `since ${time(recovery.since)}: ${recovery.why}`,
    waitsFor: recovery && waitsFor(network.name, recovery),
  })
}

function waitsFor(name: string, { sources, unreported }: Recovery): string {
  if (sources === 0) return `an operator, no source is enabled: ipledger recover --end ${name}`
  const missing =
    unreported.length === 0 ? ', all have reported' : `; still to report: ${unreported.join(', ')}`
  return `${sources} sources${missing}`
}

function causeOf({ cause }: Hold): string {
  return nameOf(HoldCauseSchema, cause)
}
