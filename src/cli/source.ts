/** What says which addresses are alive: sources are made known, believed, ended, and looked at. */

import type { JsonObject } from '@bufbuild/protobuf'
import type { Duration } from '@bufbuild/protobuf/wkt'
import { type Command, InvalidArgumentError } from 'commander'
import {
  EnableSourceResponseSchema,
  ListSourcesResponseSchema,
  RegisterSourceResponseSchema,
  type RetireSourceResponse,
  RetireSourceResponseSchema,
  type Source,
  SourceKind,
  SourceKindSchema,
  SourceState,
  SourceStateSchema,
} from '../gen/ipledger/v1/liveness_pb.ts'
import { connect } from './connection.ts'
import { Unclear } from './failure.ts'
import {
  type CallOptions,
  duration,
  given,
  list,
  name,
  names,
  whole,
  withJson,
  withNetwork,
  withPage,
} from './options.ts'
import { printAnswer, printMore, sheet, span, table, time } from './print.ts'

type RegisterOptions = CallOptions &
  Readonly<{
    kind?: Exclude<SourceKind, 0>
    node?: string
    ownerKinds: readonly string[]
    families?: readonly number[]
    seesStopped?: boolean
    bootEndsAll?: boolean
    interval?: Duration
    settings?: JsonObject
  }>
type ListOptions = CallOptions &
  Readonly<{
    node?: string
    state?: readonly Exclude<SourceState, 0>[]
    pageSize?: number
    pageToken?: string
  }>

export function sourceCommands(program: Command): void {
  const source = program.command('source').description('what says which addresses are alive')

  withJson(withNetwork(source.command('register')))
    .argument('<id>')
    .description('make a source known, in dry run: what it sees is not handed out, and nothing else follows')
    .requiredOption('--owner-kinds <kinds>', 'kinds of owners it can see: pod,container', list)
    .option('--kind <kind>', 'push (it reports), or docker, kubernetes, http (it is asked)', name(SourceKind))
    .option('--node <name>', 'the node it sees; without, the whole network')
    .option('--families <families>', 'families of the addresses it can see: 4, 6 or 4,6', families)
    .option('--sees-stopped', 'stopped workloads that keep their address are in its lists')
    .option('--boot-ends-all', 'a new boot of its node proves that everything of the older ones ended')
    .option('--interval <duration>', 'how often it reports or is asked (30s; asked: 60s)', duration)
    .option('--settings <json>', 'of a source that is asked: where and how, without secrets', settings)
    .addHelpText(
      'after',
      `
The same declaration again changes nothing; one with other kinds of owners, families, flags or interval replaces it, and is
in dry run again. One of another kind, node or settings is another source: register and enable another id, let it report
what runs, then retire this one. What only this one has seen is kept, and listed by ipledger stuck, until another has seen it.

Examples:
  ipledger source register agent-1 --node node-1 --owner-kinds pod --sees-stopped
  ipledger source register docker-1 --kind docker --node node-1 --owner-kinds container --sees-stopped \\
    --settings '{"socketPath": "/var/run/docker.sock", "network": "sandboxes"}'`,
    )
    .action(async (id: string, options: RegisterOptions) => {
      const { network, kind, node, interval, seesStopped, bootEndsAll } = options
      const answer = await connect().liveness.registerSource({
        id,
        sight: {
          ownerKinds: [...options.ownerKinds],
          families: [...(options.families ?? [])],
          ...given({ node, interval, seesStopped, bootEndsAll }),
        },
        ...given({ network, kind, settings: options.settings }),
      })
      printAnswer(options, RegisterSourceResponseSchema, answer, (one) => sourceSheet(one.source))
    })

  withJson(withNetwork(source.command('enable')))
    .argument('<id>')
    .description('believe a source from now on; look at reconcile --dry-run --as-if-enabled first')
    .action(async (id: string, { network, ...options }: CallOptions) => {
      const answer = await connect().liveness.enableSource({ id, ...given({ network }) })
      printAnswer(options, EnableSourceResponseSchema, answer, (one) => sourceSheet(one.source))
    })

  withJson(withNetwork(source.command('retire')))
    .argument('<id>')
    .description(
      'end a source for good, and all that it sees; what only it has seen stays held; its id is not used again',
    )
    .action(async (id: string, { network, ...options }: CallOptions) => {
      const answer = await connect().liveness.retireSource({ id, ...given({ network }) })
      printAnswer(options, RetireSourceResponseSchema, answer, (one) => sourceSheet(one.source))
      if (options.json !== true && answer.uncovered > 0) console.error(uncoveredText(answer))
    })

  withPage(withJson(withNetwork(source.command('list').description('sources, by id, and how they stand'))))
    .option('--node <name>', 'only of this node')
    .option('--state <states>', 'registered, enabled, retired', names(SourceState))
    .action(async (options: ListOptions) => {
      const { network, node, pageSize, pageToken } = options
      const answer = await connect().liveness.listSources({
        states: [...(options.state ?? [])],
        ...given({ network, node, pageSize, pageToken }),
      })
      printAnswer(options, ListSourcesResponseSchema, answer, ({ sources }) => sourceTable(sources))
      printMore(options, answer.nextPageToken)
    })

  withJson(withNetwork(source.command('show')))
    .argument('<id>')
    .description('what one source declares, and how far it is believed')
    .action(async (id: string, { network, ...options }: CallOptions) => {
      const answer = await connect().liveness.listSources({ id, ...given({ network }) })
      if (answer.sources.length === 0) throw new Unclear(`network ${network} has no source ${id}.`)
      printAnswer(options, ListSourcesResponseSchema, answer, (one) => sourceSheet(one.sources[0]))
    })
}

function uncoveredText({ uncovered, atLeast }: RetireSourceResponse): string {
  const count = `${atLeast ? 'At least ' : ''}${uncovered}`
  return uncovered === 1 && !atLeast
    ? `${count} lease is covered by no other enabled source: it is held until it is released, reaped by an operator, or covered again.`
    : `${count} leases are covered by no other enabled source: they are held until they are released, reaped by an operator, or covered again.`
}

function families(text: string): readonly number[] {
  return text.split(',').map((part) => whole(part.trim()))
}

function settings(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError('Settings are a JSON object.')
}

function sourceTable(sources: readonly Source[]): string {
  if (sources.length === 0) return 'no sources'
  return table(
    ['SOURCE', 'KIND', 'NODE', 'SEES', 'STATE', 'SIZE', 'REPORTED', 'STANDING'],
    sources.map((one) => [
      one.id,
      kindOf(one),
      one.sight?.node ?? '',
      one.sight?.ownerKinds.join(',') ?? '',
      stateOf(one),
      String(one.size),
      time(one.reportedAt),
      standingOf(one),
    ]),
  )
}

function sourceSheet(source: Source | undefined): string {
  if (source === undefined) return ''
  const { sight } = source
  return sheet([
    ['source', source.id],
    ['network', source.network],
    ['kind', kindOf(source)],
    ['sees', sight === undefined ? '' : seesOf(sight)],
    ['interval', span(sight?.interval)],
    ['settings', source.settings === undefined ? '' : JSON.stringify(source.settings)],
    ['state', stateOf(source)],
    ['standing', standingOf(source)],
    ['registered', done(time(source.registeredAt), source.registeredBy)],
    ['enabled', done(time(source.enabledAt), source.enabledBy)],
    ['from number', source.enabledAt === undefined ? '' : String(source.enabledHead)],
    ['retired', time(source.retiredAt)],
    ['epoch', source.epoch],
    ['since', time(source.epochBegunAt)],
    ['reported', time(source.reportedAt)],
    ['complete', time(source.completeAt)],
    ['at number', source.completeAt === undefined ? '' : String(source.completeHead)],
    ['entries', source.completeAt === undefined ? '' : String(source.size)],
    ['sequence', source.reportedAt === undefined ? '' : String(source.lastSequence)],
    ['counted', source.counted === 0n ? '' : `${source.counted}, of these ${source.streak} without a gap`],
  ])
}

function done(at: string, by: string): string {
  return at === '' || by === '' ? at : `${at} by ${by}`
}

/** `pod, container on node n1 (IPv4), stopped ones too, a new boot ends all` */
function seesOf(sight: NonNullable<Source['sight']>): string {
  return [
    `${sight.ownerKinds.join(', ')} ${sight.node === '' ? 'in the whole network' : `on node ${sight.node}`} (${sight.families.map((family) => `IPv${family}`).join(', ')})`,
    ...(sight.seesStopped ? ['stopped ones too'] : []),
    ...(sight.bootEndsAll ? ['a new boot ends all'] : []),
  ].join(', ')
}

/** How far it is believed, and why no further. */
function standingOf(source: Source): string {
  if (source.state === SourceState.RETIRED) return 'over for good'
  const reports =
    source.reportedAt === undefined
      ? 'has not reported yet'
      : source.partialSince !== undefined
        ? `partial since ${time(source.partialSince)} (${source.partialBecause.join(', ')}): it only protects`
        : source.warm
          ? 'complete'
          : 'warming up: nothing is missed yet'
  return [
    ...(source.state === SourceState.REGISTERED ? ['dry run'] : []),
    reports,
    ...(source.held ? ['held: its silence reaps nothing until it is resumed'] : []),
  ].join('; ')
}

function kindOf({ kind }: Source): string {
  return (SourceKindSchema.value[kind]?.name ?? String(kind)).toLowerCase()
}

function stateOf({ state }: Source): string {
  return SourceStateSchema.value[state]?.name ?? String(state)
}
