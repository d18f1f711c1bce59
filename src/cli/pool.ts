import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Duration } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import {
  CreatePoolResponseSchema,
  DeletePoolResponseSchema,
  GetPoolResponseSchema,
  ListPoolsResponseSchema,
  type Pool,
  PoolLiveness,
  PoolLivenessSchema,
  type PoolUsage,
  type ReapPolicy,
  type ReapPolicySchema,
  UpdatePoolResponseSchema,
} from '../gen/ipledger/v1/pool_pb.ts'
import type { PoolOptionsSchema } from '../gen/ipledger/v1/types_pb.ts'
import { connect } from './connection.ts'
import { changedExclusions, changesExclusions, type ExclusionOptions } from './exclusions.ts'
import { Unclear } from './failure.ts'
import {
  type CallOptions,
  duration,
  given,
  type LabelMap,
  label,
  list,
  name,
  repeated,
  seq,
  whole,
  withJson,
  withNetwork,
  withPage,
  withRequestId,
} from './options.ts'
import { labels, printAnswer, printMore, sheet, span, table, time } from './print.ts'

/** What CreatePool and UpdatePool share; `false` stands for `--no-…`, which only UpdatePool has. */
type SettingsOptions = CallOptions &
  Readonly<{
    cidr?: string
    subnet?: string
    gateway?: string | false
    exclude?: readonly string[] | false
    cooldown?: Duration
    confirmWithin?: Duration | false
    liveness?: Exclude<PoolLiveness, 0>
    ownerLimit?: number
    default?: boolean
    draining?: boolean
    route?: readonly string[]
    dns?: readonly string[]
    mtu?: number
    options?: boolean
    label?: LabelMap
    labels?: boolean
    misses?: number
    minimumAge?: Duration
    unwitnessedAge?: Duration
    terminalGrace?: Duration
    confirmGrace?: Duration
    reapPolicy?: boolean
    requestId?: string
  }>
type CreateOptions = SettingsOptions & Readonly<{ cidr: string; prefixLength?: number }>
type UpdateOptions = SettingsOptions & ExclusionOptions & Readonly<{ newName?: string; version?: bigint }>
type ListOptions = CallOptions &
  Readonly<{ label?: LabelMap; cidr?: string; pageSize?: number; pageToken?: string }>
type DeleteOptions = CallOptions & Readonly<{ version?: bigint; requestId?: string }>

export function poolCommands(program: Command): void {
  const pool = program.command('pool').description('CIDRs of a network from which leases are cut')

  withSettings(withCall(pool.command('create').argument('<name>').description('make a pool')))
    .requiredOption('--cidr <cidr>', 'the addresses it hands out')
    .option(
      '--prefix-length <n>',
      'size of one lease, for ever: 28 delegates /28 blocks (default: one address)',
      whole,
    )
    .addHelpText(
      'after',
      `
Examples:
  ipledger pool create web --cidr 10.0.0.0/24 --gateway 10.0.0.1 --exclude 10.0.0.2-10.0.0.9 --cooldown 2m
  ipledger pool create nodes --cidr 10.64.0.0/12 --prefix-length 26
  ipledger pool create web6 --cidr 2001:db8:0:1::/64 --gateway 2001:db8:0:1::1`,
    )
    .action(async (poolName: string, options: CreateOptions) => {
      const { network, cidr, subnet, cooldown, liveness, ownerLimit, draining, requestId, prefixLength } =
        options
      const { gateway, exclude, confirmWithin, label: labels } = options
      const answer = await connect().pools.createPool({
        name: poolName,
        ...given({
          network,
          cidr,
          subnet,
          cooldown,
          liveness,
          ownerLimit,
          draining,
          requestId,
          prefixLength,
        }),
        ...given({ gateway: gateway || undefined, confirmWithin: confirmWithin || undefined, labels }),
        ...given({ exclude: exclude ? [...exclude] : undefined }),
        ...given({ isDefault: options.default, options: handedOut(options) }),
        ...given({ reapPolicy: reapPolicyOf(options) }),
      })
      printAnswer(options, CreatePoolResponseSchema, answer, (one) => sheetOf(one.pool))
    })

  withPage(
    withJson(withNetwork(pool.command('list').description('pools of a network with their usage, by name'))),
  )
    .option('--label <key=value>', 'only pools with this label, repeatable', label)
    .option('--cidr <cidr>', 'only pools that overlap it')
    .action(async (options: ListOptions) => {
      const { network, label: labels, cidr, pageSize, pageToken } = options
      const answer = await connect().pools.listPools(given({ network, labels, cidr, pageSize, pageToken }))
      printAnswer(options, ListPoolsResponseSchema, answer, (page) => tableOf(page.pools))
      printMore(options, answer.nextPageToken)
    })

  withJson(withNetwork(pool.command('get').argument('<name>').description('one pool with its usage'))).action(
    async (poolName: string, options: CallOptions) => {
      const answer = await connect().pools.getPool({ name: poolName, ...given({ network: options.network }) })
      printAnswer(options, GetPoolResponseSchema, answer, (one) => sheetOf(one.pool))
    },
  )

  withSettings(
    withCall(pool.command('update').argument('<name>').description('change a pool; what is not named stays')),
  )
    .option('--new-name <name>', 'rename it')
    .option('--cidr <cidr>', 'grow or shrink it')
    .option('--no-gateway', 'it has none')
    .option('--add-exclude <address|cidr|first-last>', 'exclude this too; repeatable, or with commas', list)
    .option(
      '--remove-exclude <address|cidr|first-last>',
      'hand this out again; repeatable, or with commas',
      list,
    )
    .option('--no-exclude', 'remove all exclusions')
    .option('--no-confirm-within', 'Reserves have no deadline of the pool')
    .option('--no-default', 'not used by a Reserve that names no pool')
    .option('--no-draining', 'hand out again')
    .option('--no-options', 'remove routes, dns and mtu')
    .option('--no-labels', 'remove all labels')
    .option('--no-reap-policy', 'misses, ages and graces as by default')
    .option('--version <n>', 'only if the pool is at this version', seq)
    .addHelpText(
      'after',
      `
--exclude replaces all exclusions, and what it does not repeat is handed out; --add-exclude and --remove-exclude keep the others.
--label replaces all labels; --route, --dns and --mtu together replace all of theirs.
Refused with POOL_IN_USE when it would strand a held address or forget a cooling one.

Examples:
  ipledger pool update web --cidr 10.0.0.0/23
  ipledger pool update web --add-exclude 10.0.0.128/25
  ipledger pool update web --draining`,
    )
    .action(async (poolName: string, options: UpdateOptions) => {
      const { network, newName, cidr, subnet, cooldown, liveness, ownerLimit, draining, requestId } = options
      const { gateway, confirmWithin } = options
      const { pools } = connect()
      let { exclude, version } = options
      if (changesExclusions(options)) {
        const { pool: found } = await pools.getPool({ name: poolName, ...given({ network }) })
        exclude = changedExclusions(found!, options)
        version ??= found!.version
      }
      const entries = options.labels === false ? {} : options.label
      const clear = [
        ...(gateway === false ? ['gateway'] : []),
        ...(confirmWithin === false ? ['confirmWithin'] : []),
        ...(options.reapPolicy === false ? ['reapPolicy'] : []),
      ]
      const answer = await pools.updatePool({
        name: poolName,
        clear,
        ...given({
          network,
          newName,
          cidr,
          subnet,
          cooldown,
          liveness,
          ownerLimit,
          draining,
          version,
          requestId,
        }),
        ...given({ gateway: gateway || undefined, confirmWithin: confirmWithin || undefined }),
        ...given({
          exclude: exclude === undefined ? undefined : { entries: [...(exclude || [])] },
        }),
        ...given({ isDefault: options.default, labels: entries && { entries } }),
        ...given({ options: options.options === false ? {} : handedOut(options) }),
        ...given({ reapPolicy: reapPolicyOf(options) }),
      })
      printAnswer(options, UpdatePoolResponseSchema, answer, (one) => sheetOf(one.pool))
    })

  withCall(
    pool
      .command('delete')
      .argument('<name>')
      .description('remove a pool; only an empty one whose addresses have all cooled'),
  )
    .option('--version <n>', 'only if the pool is at this version', seq)
    .action(async (poolName: string, options: DeleteOptions) => {
      const { network, version, requestId } = options
      const answer = await connect().pools.deletePool({
        name: poolName,
        ...given({ network, version, requestId }),
      })
      printAnswer(options, DeletePoolResponseSchema, answer, (one) => sheetOf(one.pool))
    })
}

function withCall(command: Command): Command {
  return withRequestId(withJson(withNetwork(command)))
}

function withSettings(command: Command): Command {
  return command
    .option('--subnet <cidr>', 'the on-link CIDR, from which workloads take their netmask (default: --cidr)')
    .option('--gateway <address>', 'gateway of the subnet; never handed out')
    .option('--exclude <address|cidr|first-last>', 'never handed out; repeatable, or with commas', list)
    .option('--cooldown <duration>', 'how long a released address rests (default: 2m)', duration)
    .option(
      '--confirm-within <duration>',
      'deadline of Reserves that name none (default: no deadline)',
      duration,
    )
    .option('--liveness <available|strict>', 'what Reserve does when sources are silent', name(PoolLiveness))
    .option('--owner-limit <n>', 'leases one owner may hold in it (default: 4)', whole)
    .option('--default', 'used by a Reserve that names no pool')
    .option('--draining', 'hand out nothing new')
    .option('--route <destination[=gateway]>', 'route for its workloads, repeatable', repeated)
    .option('--dns <address>', 'resolver for its workloads; repeatable, or with commas', list)
    .option('--mtu <bytes>', 'mtu for its workloads', whole)
    .option('--label <key=value>', 'label, repeatable', label)
    .option('--misses <n>', 'snapshots without a workload before it is asked after (default: 3)', whole)
    .option(
      '--minimum-age <duration>',
      'since the last change, before absence means anything (default: 5m)',
      duration,
    )
    .option(
      '--unwitnessed-age <duration>',
      'the same for a lease that no source has seen (default: 1h)',
      duration,
    )
    .option(
      '--terminal-grace <duration>',
      'how long an ended workload counts as there (default: 5m)',
      duration,
    )
    .option('--confirm-grace <duration>', 'between a missed deadline and the reap (default: 1m)', duration)
}

/** Undefined when none of its options was given. */
function reapPolicyOf(options: SettingsOptions): MessageInitShape<typeof ReapPolicySchema> | undefined {
  const { misses, minimumAge, unwitnessedAge, terminalGrace, confirmGrace } = options
  const policy = given({ misses, minimumAge, unwitnessedAge, terminalGrace, confirmGrace })
  return Object.keys(policy).length === 0 ? undefined : policy
}

/** Undefined when none of its options was given. */
function handedOut(options: SettingsOptions): MessageInitShape<typeof PoolOptionsSchema> | undefined {
  const { route, dns, mtu } = options
  if (route === undefined && dns === undefined && mtu === undefined) return undefined
  return {
    routes: (route ?? []).map((text) => {
      const [destination, gateway, more] = text.split('=')
      if (more !== undefined) throw new Unclear('A route is written destination or destination=gateway.')
      return { destination: destination ?? '', ...given({ gateway }) }
    }),
    dns: [...(dns ?? [])],
    ...given({ mtu }),
  }
}

function tableOf(pools: readonly Pool[]): string {
  return table(
    [
      'POOL',
      'CIDR',
      'LEASE',
      'SIZE',
      'FREE',
      'COOLING',
      'RESERVED',
      'ACTIVE',
      'QUARANTINED',
      'EXCLUDED',
      'FLAGS',
    ],
    pools.map((pool) => [pool.name, pool.cidr, `/${pool.prefixLength}`, ...counts(pool.usage), flags(pool)]),
  )
}

function counts(usage: PoolUsage | undefined): readonly string[] {
  if (usage === undefined) return ['', '', '', '', '', '', '']
  return [
    usage.size,
    usage.free,
    usage.cooling,
    usage.reserved,
    usage.active,
    usage.quarantined,
    usage.excluded,
  ]
}

function flags(pool: Pool): string {
  return [
    ...(pool.isDefault ? ['default'] : []),
    ...(pool.draining ? ['draining'] : []),
    ...(pool.liveness === PoolLiveness.STRICT ? ['strict'] : []),
  ].join(',')
}

function reapPolicy(policy: ReapPolicy | undefined): string {
  if (policy === undefined) return ''
  const { misses, minimumAge, unwitnessedAge, terminalGrace, confirmGrace } = policy
  return (
    `${misses} misses, age ${span(minimumAge)}, unwitnessed ${span(unwitnessedAge)}, ` +
    `grace ${span(terminalGrace)} ended, ${span(confirmGrace)} unconfirmed`
  )
}

function sheetOf(pool: Pool | undefined): string {
  if (pool === undefined) return ''
  const { usage, options } = pool
  return sheet([
    ['pool', pool.name],
    ['network', pool.network],
    ['id', String(pool.id)],
    ['cidr', pool.cidr],
    ['subnet', pool.subnet],
    ['lease', `/${pool.prefixLength}`],
    ['gateway', pool.gateway],
    ['exclude', pool.exclude.join(', ')],
    ['cooldown', span(pool.cooldown)],
    ['confirm within', span(pool.confirmWithin)],
    ['liveness', PoolLivenessSchema.value[pool.liveness]?.name ?? String(pool.liveness)],
    ['owner limit', String(pool.ownerLimit)],
    ['reap policy', reapPolicy(pool.reapPolicy)],
    ['default', pool.isDefault ? 'yes' : ''],
    ['draining', pool.draining ? 'yes' : ''],
    [
      'routes',
      (options?.routes ?? []).map((one) => `${one.destination} via ${one.gateway || 'link'}`).join(', '),
    ],
    ['dns', (options?.dns ?? []).join(', ')],
    ['mtu', options === undefined || options.mtu === 0 ? '' : String(options.mtu)],
    ['labels', labels(pool.labels)],
    ['version', String(pool.version)],
    ['created', time(pool.createdAt)],
    ['updated', time(pool.updatedAt)],
    [
      'usage',
      usage === undefined
        ? ''
        : `${usage.size} = ${usage.free} free + ${usage.cooling} cooling + ${usage.reserved} reserved + ` +
          `${usage.active} active + ${usage.quarantined} quarantined + ${usage.excluded} excluded`,
    ],
  ])
}
