/** What says which addresses are alive: sources are made known, believed, ended, and looked at. */
import type { Command } from 'commander'
import {
  LivenessService,
  type Source,
  SourceKindSchema,
  SourceSchema,
  SourceState,
  SourceStateSchema,
} from '../gen/ipledger/v1/liveness_pb.ts'
import { REFUSED, Unclear } from './failure.ts'
import { nameOf, sheetOf, tableOf, time } from './print.ts'
import { ask, verb } from './verb.ts'

const { method } = LivenessService

export function sourceCommands(program: Command): void {
  const source = program.command('source').description('what says which addresses are alive')
  const one = (answer: { readonly source?: Source | undefined }) => sourceSheet(answer.source)

  verb(source, 'register <id>', {
    about: 'make a source known, in dry run: what it sees is not handed out, and nothing else follows',
    method: method.registerSource,
    fields: [
      ['--owner-kinds <kinds>', 'kinds of owners it can see: pod,container', 'sight.ownerKinds'],
      ['--kind <kind>', 'push (it reports), or docker, kubernetes, http (it is asked)'],
      ['--node <name>', 'the node it sees; without, the whole network', 'sight.node'],
      ['--families <families>', 'families of addresses it can see: 4, 6 or 4,6', 'sight.families'],
      ['--interval <duration>', 'how often it reports or is asked (30s; asked: 60s)', 'sight.interval'],
      ['--settings <json>', 'of a source that is asked: where and how, without secrets'],
    ],
    required: ['ownerKinds'],
    help: `
The same declaration again changes nothing; one with other kinds of owners, families or interval replaces it, and is in dry
run again. One of another kind, node or settings is another source: register and enable another id, let it report what
runs, then retire this one.

Examples:
  ipledger source register agent-1 --node node-1 --owner-kinds pod
  ipledger source register docker-1 --kind docker --node node-1 --owner-kinds container \\
    --settings '{"socketPath": "/var/run/docker.sock", "network": "sandboxes"}'`,
    show: one,
  })
  verb(source, 'enable <id>', {
    about: 'believe a source from now on; look at what it lists first: sighting list',
    method: method.enableSource,
    show: one,
  })
  verb(source, 'retire <id>', {
    about: 'end a source for good, and all that it lists; its id is not used again',
    method: method.retireSource,
    show: (answer) =>
      [
        one(answer),
        ...(answer.unwitnessed === 0
          ? []
          : [
              '',
              `${answer.unwitnessed} leases lost their last witness: they are held until they are released, or reaped by an operator.`,
            ]),
        ...(answer.unlisted === 0
          ? []
          : ['', `${answer.unlisted} free addresses that only it listed may be handed out from now on.`]),
      ].join('\n'),
  })
  verb(source, 'list', {
    about: 'sources, by id, and how they stand',
    method: method.listSources,
    fields: [
      ['--node <name>', 'only of this node'],
      ['--state <states>', 'registered, enabled, retired', 'states'],
    ],
    show: ({ sources }) =>
      tableOf('no sources', sources, {
        SOURCE: ({ id }) => id,
        KIND: kindOf,
        NODE: ({ sight }) => sight?.node ?? '',
        SEES: ({ sight }) => sight?.ownerKinds.join(',') ?? '',
        STATE: stateOf,
        SIZE: ({ size }) => String(size),
        REPORTED: ({ reportedAt }) => time(reportedAt),
        STANDING: standingOf,
      }),
  })
  verb(source, 'get <id>', {
    about: 'what one source declares, and how far it is believed',
    method: method.listSources,
    run: async (request) => {
      const answer = await ask(method.listSources, request)
      if (answer.sources.length > 0) return answer
      throw new Unclear(`network ${request.network ?? 'default'} has no source ${request.id}.`, REFUSED)
    },
    show: ({ sources }) => sourceSheet(sources[0]),
  })
}

function sourceSheet(source: Source | undefined): string {
  if (source === undefined) return ''
  const { lastSequence, completeAt, completeHead, size } = source
  return sheetOf(SourceSchema, source, {
    kind: kindOf(source),
    warm: undefined,
    lastSequence: source.reportedAt && String(lastSequence),
    completeHead: completeAt && String(completeHead),
    size: completeAt && String(size),
    standing: standingOf(source),
  })
}

/** How far it is believed, and why no further. */
function standingOf(source: Source): string {
  if (source.state === SourceState.RETIRED) return 'over for good'
  const reports = () => {
    if (source.failingSince !== undefined)
      return `fails since ${time(source.failingSince)}: ${source.failure}`
    if (source.reportedAt === undefined) return 'has not reported yet'
    if (source.partialSince !== undefined)
      return `partial since ${time(source.partialSince)} (${source.partialBecause.join(', ')}): it only protects`
    return source.warm ? 'complete' : 'warming up: nothing is missed yet'
  }
  return `${source.state === SourceState.REGISTERED ? 'dry run; ' : ''}${reports()}`
}

function kindOf({ kind }: Source): string {
  return nameOf(SourceKindSchema, kind).toLowerCase()
}

function stateOf({ state }: Source): string {
  return nameOf(SourceStateSchema, state)
}
