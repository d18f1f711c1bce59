/** Pools: create, get, list, update, delete. */
import type { MessageInitShape } from '@bufbuild/protobuf'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { formatRange, isMalformed, parseRange } from '../core/address.ts'
import { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { ask } from './ask.ts'
import { UsageError } from './exit.ts'
import { fromOf, list, toOf, WHEN_HELP, when } from './readers.ts'
import { type Field, group, masked, verb } from './verb.ts'

const { method } = PoolService

const SETTINGS: readonly Field[] = [
  ['--exclude <address|cidr|first-last>', 'never handed out; repeatable, or with commas'],
  ['--label <key=value>', 'label, repeatable', 'labels'],
  ['--subnet <cidr>', 'the on-link CIDR, from which workloads take their netmask (default: --cidr)'],
  ['--gateway <address>', 'gateway of the subnet; never handed out'],
  ['--cooldown <duration>', 'how long a released address rests (default: 2m)'],
  ['--confirm-within <duration>', 'deadline of Reserves that name none (default: no deadline)'],
  ['--liveness <available|strict>', 'what Reserve does when sources are silent'],
  ['--owner-limit <n>', 'leases one owner may hold in it (default: 4)'],
  ['--node-limit <n>', 'leases, spares and quarantines that one node may hold in it (default: any)'],
  ['--default', 'used by a Reserve that names no pool; one of each family', 'isDefault'],
  ['--draining', 'hand out nothing new'],
  ['--route <destination[=gateway]>', 'route for its workloads, repeatable', 'options.routes', route],
  ['--dns <address>', 'resolver for its workloads; repeatable, or with commas', 'options.dns'],
  ['--mtu <bytes>', 'mtu for its workloads', 'options.mtu'],
  ['--misses <n>', 'lists without a workload before it is looked up (default: 3)', 'reapPolicy.misses'],
  ['--minimum-age <duration>', 'of a lease, before absence counts (default: 5m)', 'reapPolicy.minimumAge'],
  ['--unwitnessed-age <duration>', 'of one that was never listed (default: 1h)', 'reapPolicy.unwitnessedAge'],
  ['--terminal-grace <duration>', 'an ended workload counts as there (5m)', 'reapPolicy.terminalGrace'],
  ['--confirm-grace <duration>', 'after a missed deadline (default: 1m)', 'reapPolicy.confirmGrace'],
]

export const poolCommands = group(
  'pool',
  'CIDRs of a network from which leases are cut',
  verb('create <name>', method.createPool, {
    about: 'make a pool',
    fields: [
      ['--cidr <cidr>', 'the addresses it hands out'],
      ['--prefix-length <n>', 'size of one lease, for ever: 28 delegates /28 blocks (default: one address)'],
      ...SETTINGS,
    ],
    required: ['cidr'],
    help: `
Examples:
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1 --exclude 10.0.0.2-10.0.0.9 --cooldown 2m
  ipledger pool create nodes --cidr 10.64.0.0/12 --prefix-length 26`,
  }),
  verb('list', method.listPools, {
    about: 'pools of a network with their usage, by name',
    fields: [
      ['--label <key=value>', 'only pools with this label, repeatable', 'labels'],
      ['--cidr <cidr>', 'only pools that overlap it'],
    ],
  }),
  verb('get <name>', method.getPool, { about: 'one pool with its usage' }),
  verb('trend [pool]', method.listPoolTrends, {
    about: 'how fast pools change, and when they will have nothing free',
    fields: [
      ['--samples <n>', 'of each pool, how full it was: n steps (with -o json)'],
      ['--from <when>', 'begin of the samples (default: six hours before their end)', fromOf, when],
      ['--to <when>', 'their end (default: now)', toOf, when],
    ],
    help: WHEN_HELP,
  }),
  verb('update <name>', method.updatePool, {
    about: 'change a pool; other settings stay',
    fields: [
      ['--new-name <name>', 'rename it'],
      ['--cidr <cidr>', 'grow or shrink it'],
      ...SETTINGS,
      ['--no-gateway', 'it has none', () => ({ gateway: '' })],
      ['--add-exclude <address|cidr|first-last>', 'exclude this too; repeatable', null, list],
      ['--remove-exclude <address|cidr|first-last>', 'hand this entry out again; repeatable', null, list],
      ['--no-exclude', 'remove all exclusions', () => ({ exclude: [] })],
      ['--no-confirm-within', 'no deadline of the pool', () => ({ confirmWithin: durationFromMs(0) })],
      ['--no-default', 'not used by a Reserve that names no pool', 'isDefault'],
      ['--no-draining', 'hand out again', 'draining'],
      ['--no-options', 'remove routes, dns and mtu', () => ({ options: {} })],
      ['--no-labels', 'remove all labels', () => ({ labels: {} })],
    ],
    help: `
--exclude replaces all exclusions: those that it leaves out are handed out; --add-exclude and --remove-exclude keep the others.
--label replaces all labels; --route, --dns and --mtu together replace all of theirs.
Refused with POOL_IN_USE when it would strand a held address or forget a cooling one.

Examples:
  ipledger pool update web --cidr 10.0.0.0/23
  ipledger pool update web --add-exclude 10.0.0.128/25
  ipledger pool update web --draining`,
    run: update,
  }),
  verb('delete <name>', method.deletePool, {
    about: 'remove a pool; only an empty one whose addresses have all cooled',
  }),
)

type Exclusions = { readonly addExclude?: readonly string[]; readonly removeExclude?: readonly string[] }
type Update = MessageInitShape<typeof method.updatePool.input>

/**
 * One exclusion more or less, without losing the others. The API knows only the whole list; addresses that a new list leaves
 * out would be handed out.
 */
async function update(request: Update, { addExclude = [], removeExclude = [] }: Exclusions) {
  if (addExclude.length + removeExclude.length === 0) return ask(method.updatePool, request)
  if (request.exclude !== undefined)
    throw new UsageError(
      '--exclude and --no-exclude say all of it: leave --add-exclude and --remove-exclude away.',
    )
  // A repeat reads another list and another version: under the same id it would be another request.
  if (request.requestId !== undefined)
    throw new UsageError(
      '--add-exclude and --remove-exclude read the pool anew each time, and need no --request-id.',
    )
  const found = await ask(method.getPool, { name: request.name!, network: request.network ?? '' })
  const { name, exclude: before, version } = found.pool!
  const removed = removeExclude.map(canonical)
  const missing = removed.find((one) => !before.includes(one))
  if (missing !== undefined)
    throw new UsageError(
      `${missing} is not among the exclusions of pool ${name}, which are: ${before.join(', ') || 'nothing'}.`,
    )
  const kept = before.filter((one) => !removed.includes(one))
  const exclude = [...new Set([...kept, ...addExclude.map(canonical)])]
  // By its version: the list may have changed since.
  return ask(method.updatePool, masked(method.updatePool.input, { version, ...request, exclude }))
}

/** As the server answers it. */
function canonical(text: string): string {
  const range = parseRange(text)
  if (isMalformed(range)) throw new UsageError(`${range.malformed}.`)
  return formatRange(range)
}

function route(text: string, before: readonly object[] = []): readonly object[] {
  const [destination, gateway = '', more] = text.split('=')
  if (more !== undefined) throw new UsageError('A route is written destination or destination=gateway.')
  return [...before, { destination, gateway }]
}
