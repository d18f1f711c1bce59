import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Duration } from '@bufbuild/protobuf/wkt'
import type { Command } from 'commander'
import {
  type ClaimSchema,
  ReserveResponseSchema,
  type SupersedesSchema,
} from '../gen/ipledger/v1/lease_pb.ts'
import { Removal } from '../gen/ipledger/v1/types_pb.ts'
import { connect } from './connection.ts'
import { Unclear } from './failure.ts'
import {
  type CallOptions,
  duration,
  given,
  label,
  list,
  type OwnerOptions,
  ownerOf,
  repeated,
  withJson,
  withNetwork,
  withOwner,
  withRequestId,
} from './options.ts'
import { printAnswer } from './print.ts'
import { leaseTable } from './show-lease.ts'

type Options = CallOptions &
  OwnerOptions &
  Readonly<{
    pool?: readonly string[]
    prefer?: readonly string[]
    address?: readonly string[]
    preferPrevious?: boolean
    live?: readonly string[]
    confirmWithin?: Duration
    confirmed?: boolean
    supersedesUid?: string
    supersedesIncarnation?: string
    removalConfirmed?: boolean
    reopen?: boolean
    witness?: string
    validateOnly?: boolean
    requestId?: string
  }>

export function reserveCommand(program: Command): void {
  const reserve = program.command('reserve').description('give a workload its addresses, all or nothing')
  withRequestId(withOwner(withJson(withNetwork(reserve))))
    .option('--node <name>', 'where it runs')
    .option('--boot <id>', 'boot id of that node')
    .option('--label <key=value>', 'label, repeatable', label)
    .option('--pool <name>', 'an address of this pool; repeatable, one address each', repeated)
    .option('--prefer <a,b>', 'an address of the first of these pools that has one; repeatable', repeated)
    .option('--address <address>', 'this address, or refused; repeatable without --pool', list)
    .option('--prefer-previous', "the owner's latest address in the pool if it can be had")
    .option('--live <addresses>', 'seen in use by others: not handed out; repeatable, or with commas', list)
    .option('--confirm-within <duration>', 'promise not to use it later than that unless confirmed', duration)
    .option('--confirmed', 'it is configured already: active at once')
    .option('--supersedes-uid <uid>', 'replaces the life of the owner that has this uid')
    .option('--supersedes-incarnation <id>', 'replaces this incarnation of the owner')
    .option(
      '--removal-confirmed',
      'the life it replaces is gone: its leases end instead of being quarantined',
    )
    .option('--reopen', 'although it was released or superseded')
    .option('--witness <source>', 'source that will see this workload')
    .option('--validate-only', 'answer as if, and leave no trace')
    .addHelpText(
      'after',
      `
Without --pool, --prefer and --address: one address of the default pool of each family.
Repeating the command gives the same lease. A name is unique per kind: another --uid or --incarnation under the same
name takes over, and the addresses of the old one are quarantined until they are known to be gone.

Examples:
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger reserve --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --pool web --pool web6
  ipledger reserve --kind vm --name build-7 --prefer fast,slow --confirm-within 30s
  ipledger reserve --kind infrastructure --name ntp --address 10.0.0.53 --confirmed`,
    )
    .action(async (options: Options) => {
      const { network, confirmWithin, confirmed, reopen, witness, validateOnly, requestId, live } = options
      const answer = await connect().leases.reserve({
        owner: ownerOf(options),
        claims: claimsOf(options),
        ...given({ network, confirmWithin, confirmed, reopen, witness, validateOnly, requestId }),
        ...given({ liveAddresses: live && [...live], supersedes: supersedesOf(options) }),
      })
      printAnswer(options, ReserveResponseSchema, answer, ({ leases }) => leaseTable(leases))
    })
}

function claimsOf(
  options: Pick<Options, 'pool' | 'prefer' | 'address' | 'preferPrevious'>,
): MessageInitShape<typeof ClaimSchema>[] {
  const pools = [
    ...(options.pool ?? []).map((one) => [one]),
    ...(options.prefer ?? []).map((text) => [...list(text)]),
  ]
  const addresses = options.address ?? []
  const preferPrevious = options.preferPrevious ?? false
  if (pools.length === 0) {
    if (preferPrevious) throw new Unclear('--prefer-previous needs --pool or --prefer.')
    return addresses.map((address) => ({ address }))
  }
  if (addresses.length > 1 || (addresses.length === 1 && pools.length > 1)) {
    throw new Unclear('--address goes with one --pool, or without any.')
  }
  const [address] = addresses
  return pools.map((names) => ({ pools: names, preferPrevious, ...given({ address }) }))
}

function supersedesOf(options: Options): MessageInitShape<typeof SupersedesSchema> | undefined {
  const { supersedesUid: uid, supersedesIncarnation: incarnation, removalConfirmed } = options
  if (uid === undefined && incarnation === undefined && removalConfirmed === undefined) return undefined
  return {
    ...given({ uid, incarnation }),
    removal: removalConfirmed ? Removal.CONFIRMED : Removal.UNCONFIRMED,
  }
}
