/** Leases: reserve, confirm, release, quarantine, reap, labels; lists, and watch. */
import { create, type MessageInitShape, toJson } from '@bufbuild/protobuf'
import { LeaseService, WatchLeasesResponseSchema } from '../gen/ipledger/v1/lease_pb.ts'
import { type Lease, Removal } from '../gen/ipledger/v1/types_pb.ts'
import { ask, connected } from './ask.ts'
import { leaseHistory } from './audit.ts'
import { UsageError } from './exit.ts'
import { type Format, JSON_ANSWERS, sheet, time } from './print.ts'
import { leaseOrAddress, list, repeated } from './readers.ts'
import { command, type Field, group, requestOptions, verb } from './verb.ts'
import { addressOf, holderOf, leaseSheet, leaseTable, stateOf } from './views.ts'

const { method } = LeaseService

const OWNER_FIELDS: readonly Field[] = [
  ['--kind <kind>', 'kind of the owner: pod, container, vm, sandbox, infrastructure, …', 'owner.kind'],
  ['--name <name>', 'name of the owner, unique per kind in a network: default/web-0', 'owner.name'],
  ['--uid <uid>', 'identity at its authority: pod uid, container id', 'owner.uid'],
  ['--incarnation <id>', 'one life of the owner: sandbox id, start', 'owner.incarnation'],
  ['--interface <name>', 'interface of the owner', 'owner.interface'],
]
const OWNED: readonly Field[] = [
  ['--kind <kind>', 'only of owners of this kind', 'ownerKind'],
  ['--name <name>', 'only of owners of this name', 'ownerName'],
  ['--uid <uid>', 'only of the owner with this uid', 'ownerUid'],
  ['--node <name>', 'only on this node'],
  ['--pool <names>', 'only of these pools; repeatable, or with commas', 'pools'],
]

const reserve = verb('reserve', method.reserve, {
  about: 'give a workload its addresses, all or nothing',
  fields: [
    ...OWNER_FIELDS,
    ['--node <name>', 'where it runs', 'owner.node'],
    ['--label <key=value>', 'label, repeatable', 'owner.labels'],
    ['--pool <names>', 'an address of each of these pools; repeatable, or with commas', null, list],
    ['--prefer <a,b>', 'an address of the first of these pools that has one; repeatable', null, repeated],
    ['--address <address>', 'this address, or refused; repeatable without --pool', null, list],
    ['--prefer-previous', "the owner's latest address in the pool if it can be had", null],
    ['--live <addresses>', 'seen in use by others: not handed out; repeatable', 'liveAddresses'],
    ['--confirm-within <duration>', 'promise not to use it later than that unless confirmed'],
    ['--confirmed', 'it is configured already: active at once'],
  ],
  required: ['kind'],
  says: { claims: '--pool', 'claims.pools': '--pool', 'claims.address': '--address' },
  help: `
Without --pool, --prefer and --address: one address of the default pool of each family.
Repeating the command gives the same lease. A name is unique per kind: another --uid or --incarnation under the same
name takes over, and the addresses of the old one are quarantined until they are known to be gone.

Examples:
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger reserve --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --pool web,web6
  ipledger reserve --kind vm --name build-7 --prefer fast,slow --confirm-within 30s
  ipledger reserve --kind infrastructure --name ntp --address 10.0.0.53 --confirmed`,
  run: (request, options: Wanted) =>
    ask(method.reserve, { ...request, claims: claimsOf(options) } as typeof request),
})

type Wanted = Partial<Readonly<Record<'pool' | 'prefer' | 'address', readonly string[]>>> & {
  readonly preferPrevious?: boolean
}

function claimsOf({ pool = [], prefer = [], address = [], preferPrevious = false }: Wanted) {
  const pools = [...pool.map((one) => [one]), ...prefer.map((text) => [...list(text)])]
  if (pools.length === 0) {
    if (preferPrevious) throw new UsageError('--prefer-previous needs --pool or --prefer.')
    return address.map((one) => ({ address: one }))
  }
  if (address.length > 1 || (address.length === 1 && pools.length > 1))
    throw new UsageError('--address goes with one --pool, or without any.')
  return pools.map((names) => ({ pools: names, preferPrevious, address: address[0] ?? '' }))
}

const held = [
  verb('confirm [lease-id]', method.confirm, {
    about: 'say that the address is configured',
    fields: OWNER_FIELDS,
    help: '\nNames the lease, or its owner in full. A refused confirm means: unconfigure the address.',
  }),
  verb('release [lease-id]', method.release, {
    about: 'give addresses back; they cool before another owner gets them',
    fields: [
      ...OWNER_FIELDS,
      [
        '--removal-unconfirmed',
        'it may still be configured: quarantined',
        () => ({ removal: Removal.UNCONFIRMED }),
      ],
    ],
    help: `
Names the lease, or its owner in full.

Examples:
  ipledger release default/42
  ipledger release --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --interface eth0`,
  }),
  verb('quarantine <lease-id|address>', method.quarantine, {
    about: 'take an address out of use until an operator reaps it',
    argument: leaseOrAddress,
    help: '\nExample:\n  ipledger quarantine 10.0.0.17 --why "answers ping, owner unknown"',
  }),
  verb('reap [lease-id]', method.reap, {
    about: 'end a lease, or all of a node, because an operator says that nothing uses the addresses',
    fields: [
      ['--version <n>', 'with a lease: its version when you looked ("lease get")'],
      ['--node <name>', 'all leases of a node that is gone for good'],
      ['--head <n>', 'with --node: the head of the log when you found out ("network get")'],
      ['-y, --yes', 'with --node: do not ask', null],
    ],
    help: `
It must be true: a machine that only lost its network still uses its addresses. A node is not reaped while one of its sources
reports. Leases that a source of another node lists are kept, and so are quarantines by an operator. A node that was renamed must list
its addresses under its new name first.

Examples:
  ipledger reap default/42 --version 57 --why "node-3 was scrapped on Monday"
  ipledger reap --node n3 --head 48213 --why "power is off, PDU port 7"`,
    isGrave: ({ node = '' }) => node !== '',
    run: (request, options: { readonly yes?: boolean }) =>
      request.node ? reapNode(request, options) : reapLease(request),
    show: ({ leases }) => (leases.length === 1 ? leaseSheet(leases[0]) : leaseTable(leases)),
  }),
]

async function reapLease(request: Reap) {
  const { leaseId, network = '', validateOnly = false } = request
  if (leaseId === undefined) throw new UsageError('Name a lease, or --node.')
  const looked = validateOnly ? (await ask(method.getLease, { leaseId, network })).lease!.version : undefined
  const { version = looked } = request
  if (version === undefined) throw new UsageError('Say --version: its version when you looked ("lease get").')
  return ask(method.reap, { ...request, version })
}

type Reap = MessageInitShape<typeof method.reap.input>

/** Shows what it would end, and on a terminal asks. A program says --yes. */
async function reapNode(request: Reap, { yes = false }: { readonly yes?: boolean }) {
  const would = await ask(method.reap, { ...request, validateOnly: true })
  if (request.validateOnly) return would
  const { node } = request
  const { leases } = would
  console.error(leaseTable(leases))
  console.error(
    `If ${node} was renamed, its new source must list what runs there first ("source list"): else it is freed.`,
  )
  if (!yes && !(await confirmed(`End these ${leases.length} leases? [y/N] `)))
    throw new UsageError('Nothing was done: say --yes.')
  return ask(method.reap, request)
}

async function confirmed(question: string): Promise<boolean> {
  if (!process.stdin.isTTY) return false
  const { createInterface } = await import('node:readline/promises')
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await terminal.question(question)
  terminal.close()
  return /^y(es)?$/i.test(answer.trim())
}

const lease = group(
  'lease',
  'leases of a network',
  verb('list', method.listLeases, {
    about: 'leases that are held now, by address',
    fields: [
      ['--state <states>', 'only in these states', 'states'],
      ...OWNED,
      ['--label <key=value>', 'only of owners with this label, repeatable', 'labels'],
      ['--cidr <cidr>', 'only those that overlap it'],
      ['--quarantine-reason <reasons>', 'only those quarantined for it', 'quarantineReasons'],
    ],
  }),
  verb('get <lease-id|address>', method.getLease, {
    about: 'one lease that is held now',
    argument: leaseOrAddress,
  }),
  verb('labels <lease-id>', method.updateLabels, {
    about: "replace the labels of a lease's owner",
    fields: [
      ['--label <key=value>', 'label, repeatable', 'labels'],
      ['--no-labels', 'remove all labels', () => ({ labels: {} })],
    ],
    run: (request) => {
      if (request.labels === undefined)
        throw new UsageError('Say which --label it shall have, or --no-labels.')
      return ask(method.updateLabels, request)
    },
  }),
  leaseHistory,
)

const request = group(
  'request',
  'remembered requests',
  verb('get <request-id>', method.getRequest, {
    about: 'the outcome of a request',
    fields: [['--node <name>', "node of the caller's token; default: your token's", 'node']],
    show: ({ requestId: request, committed, method, at, seq: event, leases }) =>
      committed
        ? `${sheet({ request, method, committed: time(at), event })}\n\n${leaseTable(leases)}`
        : `request ${request} was not committed in the last 24 h`,
    isFailure: ({ committed }) => !committed,
  }),
)

const { options: watchOptions, request: watchRequest } = requestOptions(
  method.watchLeases.input,
  [
    ['--state <states>', 'only in these states', 'states'],
    ...OWNED,
    ['--after <n>', 'also events after this number; 0: all'],
    ['--after-digest <hex>', 'the digest that was answered beside that number'],
    ['--held', 'first the leases that are held', 'sendInitialState'],
  ],
  '',
  ['json'],
)

const watch = command('watch', {
  about: 'events of leases, from now on, until Ctrl-C',
  options: watchOptions,
  help: `
It goes on where it was when the connection is lost. -o json prints a line for each answer of the server; the last
\`position\` and \`digest\` are where --after and --after-digest go on.

Examples:
  ipledger watch --pool web
  ipledger watch --after 48213 -o json`,
  async run(options: { readonly output?: Format }) {
    const client = await connected()
    const { watchLeases } = await import('../client/watch.ts')
    const onTrouble = (error: Error) => console.error(`ipledger: ${error.message}; trying again`)
    for await (const { changes, position, digest } of watchLeases(client, watchRequest(options), {
      onTrouble,
    })) {
      if (options.output === 'json') {
        const answer = create(WatchLeasesResponseSchema, { changes: [...changes], position, digest })
        console.log(JSON.stringify(toJson(WatchLeasesResponseSchema, answer, JSON_ANSWERS)))
      } else for (const { lease, type, time: at } of changes) console.log(lineOf(lease!, type, time(at)))
    }
  },
})

/** Columns as wide as most lines need: later lines are not known. */
function lineOf(lease: Lease, type: string, at: string): string {
  const before = [String(lease.version).padEnd(8), at.padEnd(20), (type || 'held').padEnd(17)]
  const cells = [...before, addressOf(lease).padEnd(15), stateOf(lease).padEnd(11), holderOf(lease)]
  return cells.join('  ').trimEnd()
}

export const leaseCommands = [reserve, ...held, lease, request, watch]
