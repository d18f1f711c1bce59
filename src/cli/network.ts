import type { Command } from 'commander'
import {
  CreateNetworkResponseSchema,
  EndRecoveryResponseSchema,
  GetNetworkResponseSchema,
  ListNetworksResponseSchema,
  type Network,
  NetworkStateSchema,
  UpdateNetworkResponseSchema,
} from '../gen/ipledger/v1/network_pb.ts'
import { connect } from './connection.ts'
import {
  type CallOptions,
  given,
  type LabelMap,
  label,
  seq,
  withJson,
  withPage,
  withRequestId,
} from './options.ts'
import { labels, printAnswer, printMore, sheet, table, time } from './print.ts'

type CreateOptions = CallOptions & Readonly<{ description?: string; label?: LabelMap; requestId?: string }>
type ListOptions = CallOptions & Readonly<{ label?: LabelMap; pageSize?: number; pageToken?: string }>
type UpdateOptions = CallOptions &
  Readonly<{ description?: string; label?: LabelMap; labels?: boolean; version?: bigint; requestId?: string }>
type EndRecoveryOptions = CallOptions & Readonly<{ why: string }>

export function networkCommands(program: Command): void {
  const network = program.command('network').description('address spaces in which an address is unique')

  withRequestId(
    withJson(network.command('create').argument('<name>').description('make a network and its ledger')),
  )
    .option('--description <text>', 'for people')
    .option('--label <key=value>', 'label, repeatable', label)
    .addHelpText('after', '\nExample:\n  ipledger network create tenant-7 --description "VPC of tenant 7"')
    .action(async (name: string, options: CreateOptions) => {
      const { description, label: labels, requestId } = options
      const answer = await connect().networks.createNetwork({
        name,
        ...given({ description, labels, requestId }),
      })
      printAnswer(options, CreateNetworkResponseSchema, answer, (one) => sheetOf(one.network))
    })

  withPage(withJson(network.command('list').description('networks, by name')))
    .option('--label <key=value>', 'only networks with this label, repeatable', label)
    .action(async (options: ListOptions) => {
      const { label: labels, pageSize, pageToken } = options
      const answer = await connect().networks.listNetworks(given({ labels, pageSize, pageToken }))
      printAnswer(options, ListNetworksResponseSchema, answer, (page) => tableOf(page.networks))
      printMore(options, answer.nextPageToken)
    })

  withJson(
    network.command('get').argument('[name]', 'its name', 'default').description('one network'),
  ).action(async (name: string, options: CallOptions) => {
    const answer = await connect().networks.getNetwork({ name })
    printAnswer(options, GetNetworkResponseSchema, answer, (one) => sheetOf(one.network))
  })

  withRequestId(
    withJson(network.command('update').argument('<name>').description('change description or labels')),
  )
    .option('--description <text>', 'new description; "" clears it')
    .option('--label <key=value>', 'new label, repeatable; together they replace all labels', label)
    .option('--no-labels', 'remove all labels')
    .option('--version <n>', 'only if the network is at this version', seq)
    .action(async (name: string, options: UpdateOptions) => {
      const { description, version, requestId } = options
      const entries = options.labels === false ? {} : options.label
      const answer = await connect().networks.updateNetwork({
        name,
        ...given({ description, version, requestId, labels: entries && { entries } }),
      })
      printAnswer(options, UpdateNetworkResponseSchema, answer, (one) => sheetOf(one.network))
    })
}

/** `ipledger recover --end`. */
export async function endRecovery(name: string, options: EndRecoveryOptions): Promise<void> {
  const answer = await connect().networks.endRecovery({ network: name, why: options.why })
  printAnswer(options, EndRecoveryResponseSchema, answer, (one) => sheetOf(one.network))
}

function tableOf(networks: readonly Network[]): string {
  return table(
    ['NETWORK', 'STATE', 'ERA', 'HEAD', 'CREATED', 'LABELS', 'DESCRIPTION'],
    networks.map((one) => [
      one.name,
      stateOf(one),
      String(one.era),
      String(one.head),
      time(one.createdAt),
      labels(one.labels),
      one.description,
    ]),
  )
}

function sheetOf(network: Network | undefined): string {
  if (network === undefined) return ''
  return sheet([
    ['network', network.name],
    ['description', network.description],
    ['state', stateOf(network)],
    ...recoveryOf(network),
    ['era', String(network.era)],
    ['head', String(network.head)],
    ['version', String(network.version)],
    ['labels', labels(network.labels)],
    ['created', time(network.createdAt)],
    ['updated', time(network.updatedAt)],
  ])
}

function recoveryOf({ name, recovery }: Network): readonly [string, string][] {
  if (recovery === undefined) return []
  const { since, why, sources, unreported, unknown } = recovery
  const named = unreported.join(', ')
  return [
    ['recovering', `since ${time(since)}: ${why}`],
    [
      'waits for',
      sources === 0
        ? `an operator, no source is enabled: ipledger recover --end ${name}`
        : `${sources} sources${named === '' ? ', all have reported' : `; still to report: ${named}`}`,
    ],
    ...(unknown.length === 0
      ? []
      : [['not registered', `${unknown.join(', ')}: source register, source enable`] as [string, string]]),
  ]
}

function stateOf(network: Network): string {
  return NetworkStateSchema.value[network.state]?.name ?? String(network.state)
}
