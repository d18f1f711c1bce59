/** Sources, their sightings, the findings that follow, and attention. */
import { ATTENTION } from '../core/attention.ts'
import { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import { ask } from './ask.ts'
import { UsageError } from './exit.ts'
import { table } from './print.ts'
import { group, verb } from './verb.ts'

const { method } = LivenessService

const sources = group(
  'source',
  'reporters of live addresses',
  verb('register <id>', method.registerSource, {
    about:
      'make a source known, in dry run: addresses that it lists are not handed out, and nothing else follows',
    fields: [
      ['--owner-kinds <kinds>', 'kinds of owners it can see: pod,container', 'sight.ownerKinds'],
      ['--kind <kind>', 'push: it reports (default); the others are asked'],
      ['--node <name>', 'the node it sees; without, the whole network', 'sight.node'],
      ['--families <families>', 'families of addresses it can see: 4, 6 or 4,6', 'sight.families'],
      ['--interval <duration>', 'how often it reports or is asked (30s; asked: 60s)', 'sight.interval'],
      ['--settings <json>', 'of a source that is asked: where and how, without secrets'],
    ],
    required: ['ownerKinds'],
    help: `
The same declaration again changes nothing; one with other kinds of owners, families or interval replaces it, and is in dry
run again. One of another kind, node or settings is another source: register and enable another id, let it report,
then retire this one.

Examples:
  ipledger source register agent-1 --node node-1 --owner-kinds pod
  ipledger source register docker-1 --kind docker --node node-1 --owner-kinds container \\
    --settings '{"socketPath": "/var/run/docker.sock", "network": "sandboxes"}'`,
  }),
  verb('enable <id>', method.enableSource, {
    about: 'believe a source from now on; look at what it lists first: sighting list',
    fields: [
      ['--accept-unlisted', 'also if it lists less than half of the leases that are placed on its node'],
    ],
    notes: ({ placed, listed, foreseen }) => [
      placed > 0 &&
        `It is a witness of ${placed} leases of its node from now on, and lists ${listed} of them.`,
      foreseen !== undefined &&
        `Nothing was done. Its next list, if it is as the last, adopts ${foreseen.adopted} addresses, quarantines ${foreseen.quarantined} and ` +
          `confirms ${foreseen.confirmed} leases${foreseen.omitted > 0 ? `; ${foreseen.omitted} that it lists were not looked at` : ''}.`,
    ],
  }),
  verb('retire <id>', method.retireSource, {
    about: 'end a source for good: what only it lists is protected no longer, and its id is not used again',
    notes: ({ unwitnessed, unlisted }) => [
      unwitnessed > 0 &&
        `${unwitnessed} leases lost their last witness: they are held until they are released, or reaped by an operator.`,
      unlisted > 0 && `${unlisted} free addresses that only it listed may be handed out from now on.`,
    ],
  }),
  verb('list', method.listSources, {
    about: 'sources, by id, and how they stand by their reports',
    fields: [
      ['--node <name>', 'only of this node'],
      ['--state <states>', 'only in these states', 'states'],
    ],
  }),
  verb('get <id>', method.getSource, { about: 'one source: its declaration and its status' }),
)

export const livenessCommands = [
  sources,
  group(
    'sighting',
    'addresses that sources see',
    verb('list', method.listSightings, {
      about: 'sightings, by address',
      fields: [
        ['--source <id>', 'only by this source'],
        ['--address <address>', 'only there; of a block that is leased as one, anywhere in it'],
        ['--vanished', 'also sightings that have ended'],
      ],
    }),
  ),
  verb('reconcile', method.reconcile, {
    about: 'findings about leases now: the verdict and the reason',
    fields: [
      ['--dry-run', 'required: nothing is done', null],
      ['--pool <name>', 'only about this pool'],
      ['--address <address>', 'only about the lease there'],
      ['--source <id>', 'only leases that this source lists or is a witness of'],
      ['--kept', 'also leases about which nothing would be done'],
    ],
    help: `
-o json has the evidence of each finding.

Examples:
  ipledger reconcile --dry-run
  ipledger reconcile --dry-run --address 10.0.0.17 --kept`,
    run: (request, { dryRun }: { readonly dryRun?: boolean }) => {
      if (dryRun === true) return ask(method.reconcile, request)
      throw new UsageError(
        'The worker reconciles by itself, all the time ("ipledger serve", or "ipledger worker"). Say --dry-run to see what it would do.',
      )
    },
  }),
  verb('attention', method.listAttention, {
    about: 'everything that waits for a person, or for an answer',
    fields: [
      ['--code <codes>', 'only of these; repeatable, or with commas: HELD,SOURCE_SILENT', 'codes'],
      ['--source <id>', 'only of this source'],
      ['--each', 'each lease and address in a line of its own'],
    ],
    help: `\nThe worst first:\n${table(
      ['CODE', 'SEVERITY', 'MEANS'],
      Object.entries(ATTENTION).map(([code, [severity, says]]) => [code, severity, says('A source')]),
    )}\n\nExample:\n  ipledger attention --code NO_WITNESS --each`,
    notes: ({ items }) => {
      const many = items.find(({ count }) => count > 1n)
      return [many !== undefined && `Each of them: ipledger attention --code ${many.code} --each`]
    },
  }),
]
