import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import { formatValue, isMalformed, parseRange } from '../core/address.ts'
import {
  type Pool,
  PoolLiveness,
  PoolSchema,
  PoolService,
  type PoolUsage,
  type ReapPolicy,
} from '../gen/ipledger/v1/pool_pb.ts'
import type { PoolOptions } from '../gen/ipledger/v1/types_pb.ts'
import { Unclear } from './failure.ts'
import { sheetOf, span, tableOf } from './print.ts'
import { list, repeated } from './readers.ts'
import { ask, type Field, maskOf, verb } from './verb.ts'

type ExclusionOptions = {
  readonly addExclude?: readonly string[]
  readonly removeExclude?: readonly string[]
}

const SETTINGS: readonly Field[] = [
  ['--subnet <cidr>', 'the on-link CIDR, from which workloads take their netmask (default: --cidr)'],
  ['--gateway <address>', 'gateway of the subnet; never handed out'],
  ['--cooldown <duration>', 'how long a released address rests (default: 2m)'],
  ['--confirm-within <duration>', 'deadline of Reserves that name none (default: no deadline)'],
  ['--liveness <available|strict>', 'what Reserve does when sources are silent'],
  ['--owner-limit <n>', 'leases one owner may hold in it (default: 4)'],
  ['--default', 'used by a Reserve that names no pool', 'isDefault'],
  ['--draining', 'hand out nothing new'],
  ['--route <destination[=gateway]>', 'route for its workloads, repeatable', routesOf, repeated],
  ['--dns <address>', 'resolver for its workloads; repeatable, or with commas', 'options.dns'],
  ['--mtu <bytes>', 'mtu for its workloads', 'options.mtu'],
  ['--misses <n>', 'snapshots without a workload before it is asked after (default: 3)', 'reapPolicy.misses'],
  [
    '--minimum-age <duration>',
    'since the last change, before absence means anything (default: 5m)',
    'reapPolicy.minimumAge',
  ],
  [
    '--unwitnessed-age <duration>',
    'the same for a lease that no source has seen (default: 1h)',
    'reapPolicy.unwitnessedAge',
  ],
  [
    '--terminal-grace <duration>',
    'how long an ended workload counts as there (default: 5m)',
    'reapPolicy.terminalGrace',
  ],
  [
    '--confirm-grace <duration>',
    'between a missed deadline and the reap (default: 1m)',
    'reapPolicy.confirmGrace',
  ],
]
const EXCLUDE = [
  '--exclude <address|cidr|first-last>',
  'never handed out; repeatable, or with commas',
] as const
const LABEL = ['--label <key=value>', 'label, repeatable'] as const

export function poolCommands(program: Command): void {
  const pool = program.command('pool').description('CIDRs of a network from which leases are cut')
  const one = (answer: { readonly pool?: Pool | undefined }) => poolSheet(answer.pool)

  verb(pool, 'create <name>', {
    about: 'make a pool',
    method: PoolService.method.createPool,
    fields: [
      ['--cidr <cidr>', 'the addresses it hands out'],
      ['--prefix-length <n>', 'size of one lease, for ever: 28 delegates /28 blocks (default: one address)'],
      [...EXCLUDE, 'exclude'],
      [...LABEL, 'labels'],
      ...SETTINGS,
    ],
    required: ['cidr'],
    help: `
Examples:
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1 --exclude 10.0.0.2-10.0.0.9 --cooldown 2m
  ipledger pool create nodes --cidr 10.64.0.0/12 --prefix-length 26
  ipledger pool create web6 --cidr 2001:db8:0:1::/64 --gateway 2001:db8:0:1::1`,
    show: one,
  })
  verb(pool, 'list', {
    about: 'pools of a network with their usage, by name',
    method: PoolService.method.listPools,
    fields: [
      ['--label <key=value>', 'only pools with this label, repeatable', 'labels'],
      ['--cidr <cidr>', 'only pools that overlap it'],
    ],
    show: ({ pools }) => poolTable(pools),
  })
  verb(pool, 'get <name>', {
    about: 'one pool with its usage',
    method: PoolService.method.getPool,
    show: one,
  })
  verb(pool, 'update <name>', {
    about: 'change a pool; what is not named stays',
    method: PoolService.method.updatePool,
    fields: [
      ['--new-name <name>', 'rename it'],
      ['--cidr <cidr>', 'grow or shrink it'],
      [...EXCLUDE, 'exclude'],
      [...LABEL, 'labels'],
      ...SETTINGS,
      ['--no-gateway', 'it has none', () => ({ gateway: '' })],
      ['--add-exclude <address|cidr|first-last>', 'exclude this too; repeatable', null, list],
      ['--remove-exclude <address|cidr|first-last>', 'hand this entry out again; repeatable', null, list],
      ['--no-exclude', 'remove all exclusions', () => ({ updateMask: { paths: ['exclude'] } })],
      [
        '--no-confirm-within',
        'Reserves have no deadline of the pool',
        () => ({ confirmWithin: durationFromMs(0) }),
      ],
      ['--no-default', 'not used by a Reserve that names no pool', 'isDefault'],
      ['--no-draining', 'hand out again', 'draining'],
      ['--no-options', 'remove routes, dns and mtu', () => ({ options: {} })],
      ['--no-labels', 'remove all labels', () => ({ updateMask: { paths: ['labels'] } })],
    ],
    help: `
--exclude replaces all exclusions, and what it does not repeat is handed out; --add-exclude and --remove-exclude keep the others.
--label replaces all labels; --route, --dns and --mtu together replace all of theirs.
Refused with POOL_IN_USE when it would strand a held address or forget a cooling one.

Examples:
  ipledger pool update web --cidr 10.0.0.0/23
  ipledger pool update web --add-exclude 10.0.0.128/25
  ipledger pool update web --draining`,
    run: async (request, options: ExclusionOptions) => {
      const { updatePool, getPool } = PoolService.method
      if (options.addExclude === undefined && options.removeExclude === undefined)
        return ask(updatePool, request)
      if (request.exclude !== undefined || request.updateMask?.paths?.includes('exclude'))
        throw new Unclear(
          '--exclude and --no-exclude say all of it: leave --add-exclude and --remove-exclude away.',
        )
      // A repeat reads another list and another version: under the same id it would be another request.
      if (request.requestId !== undefined)
        throw new Unclear(
          '--add-exclude and --remove-exclude read the pool anew each time, and need no --request-id.',
        )
      const { pool: found } = await ask(getPool, { name: request.name!, network: request.network ?? '' })
      // What was read may have changed since.
      const version = request.version ?? found!.version
      const exclude = changedExclusions(found!, options)
      const updateMask = { paths: [...(request.updateMask?.paths ?? []), 'exclude'] }
      return ask(
        updatePool,
        maskOf(updatePool.input, { ...request, version, exclude, updateMask }) as typeof request,
      )
    },
    show: one,
  })
  verb(pool, 'delete <name>', {
    about: 'remove a pool; only an empty one whose addresses have all cooled',
    method: PoolService.method.deletePool,
    show: one,
  })
}

/**
 * One exclusion more or less, without losing the others. The API knows only the whole list, and a list typed anew forgets
 * what it does not repeat: those addresses would be handed out.
 */
function changedExclusions(
  { name, exclude }: Pool,
  { addExclude = [], removeExclude = [] }: ExclusionOptions,
): string[] {
  const removed = removeExclude.map(canonical)
  const missing = removed.find((one) => !exclude.includes(one))
  if (missing !== undefined)
    throw new Unclear(
      `${missing} is not among the exclusions of pool ${name}, which are: ${exclude.join(', ') || 'nothing'}.`,
    )
  return [...new Set([...exclude.filter((one) => !removed.includes(one)), ...addExclude.map(canonical)])]
}

/** As the server answers it. */
function canonical(text: string): string {
  const range = parseRange(text)
  if (isMalformed(range)) throw new Unclear(`${range.malformed}.`)
  const [first, last] = [formatValue(range.family, range.first), formatValue(range.family, range.last)]
  return first === last ? first : `${first}-${last}`
}

function routesOf(routes: readonly string[]): object {
  return {
    options: {
      routes: routes.map((text) => {
        const [destination, gateway = '', more] = text.split('=')
        if (more !== undefined) throw new Unclear('A route is written destination or destination=gateway.')
        return { destination, gateway }
      }),
    },
  }
}

function poolTable(pools: readonly Pool[]): string {
  const count = (of: keyof Omit<PoolUsage, '$typeName'>) => (pool: Pool) => String(pool.usage?.[of] ?? '')
  return tableOf('no pools', pools, {
    POOL: (pool) => pool.name,
    CIDR: ({ cidr }) => cidr,
    LEASE: ({ prefixLength }) => `/${prefixLength}`,
    SIZE: count('size'),
    FREE: count('free'),
    COOLING: count('cooling'),
    RESERVED: count('reserved'),
    ACTIVE: count('active'),
    QUARANTINED: count('quarantined'),
    EXCLUDED: count('excluded'),
    FLAGS: ({ isDefault, draining, liveness }) =>
      [
        ...(isDefault ? ['default'] : []),
        ...(draining ? ['draining'] : []),
        ...(liveness === PoolLiveness.STRICT ? ['strict'] : []),
      ].join(','),
  })
}

function poolSheet(pool: Pool | undefined): string {
  const { usage } = pool ?? {}
  return sheetOf(PoolSchema, pool, {
    routes: routesText(pool?.options),
    reapPolicy: reapPolicyOf(pool?.reapPolicy),
    usage:
      usage &&
      `${usage.size} = ${usage.free} free + ${usage.cooling} cooling + ${usage.reserved} reserved + ` +
        `${usage.active} active + ${usage.quarantined} quarantined + ${usage.excluded} excluded`,
  })
}

function reapPolicyOf(policy: ReapPolicy | undefined): string {
  if (policy === undefined) return ''
  const { misses, minimumAge, unwitnessedAge, terminalGrace, confirmGrace } = policy
  return (
    `${misses} misses, age ${span(minimumAge)}, unwitnessed ${span(unwitnessedAge)}, ` +
    `grace ${span(terminalGrace)} ended, ${span(confirmGrace)} unconfirmed`
  )
}

/** Of a pool, and of a lease. */
export function routesText(options: PoolOptions | undefined): string | undefined {
  return options?.routes.map((one) => `${one.destination} via ${one.gateway || 'link'}`).join(', ')
}
