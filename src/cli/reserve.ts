import type { Command } from 'commander'
import { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import { Unclear } from './failure.ts'
import { list, repeated } from './readers.ts'
import { leaseTable } from './show-lease.ts'
import { ask, type Field, verb } from './verb.ts'

type ClaimOptions = {
  readonly pool?: readonly string[]
  readonly prefer?: readonly string[]
  readonly address?: readonly string[]
  readonly preferPrevious?: boolean
}

export const OWNER_FIELDS: readonly Field[] = [
  ['--kind <kind>', 'what the owner is: pod, container, vm, sandbox, infrastructure, …', 'owner.kind'],
  ['--name <name>', 'name of the owner, unique per kind in a network: default/web-0', 'owner.name'],
  ['--uid <uid>', 'identity at its authority: pod uid, container id', 'owner.uid'],
  ['--incarnation <id>', 'one life of the owner: sandbox id, start', 'owner.incarnation'],
  ['--interface <name>', 'interface of the owner', 'owner.interface'],
]

export function reserveCommand(program: Command): void {
  const { reserve } = LeaseService.method
  verb(program, 'reserve', {
    about: 'give a workload its addresses, all or nothing',
    method: reserve,
    fields: [
      ...OWNER_FIELDS,
      ['--node <name>', 'where it runs', 'owner.node'],
      ['--label <key=value>', 'label, repeatable', 'owner.labels'],
      ['--pool <name>', 'an address of this pool; repeatable, one address each', null, repeated],
      ['--prefer <a,b>', 'an address of the first of these pools that has one; repeatable', null, repeated],
      ['--address <address>', 'this address, or refused; repeatable without --pool', null, list],
      ['--prefer-previous', "the owner's latest address in the pool if it can be had", null],
      ['--live <addresses>', 'seen in use by others: not handed out; repeatable', 'liveAddresses'],
      ['--confirm-within <duration>', 'promise not to use it later than that unless confirmed'],
      ['--confirmed', 'it is configured already: active at once'],
      ['--validate-only', 'answer as if, and leave no trace'],
    ],
    help: `
Without --pool, --prefer and --address: one address of the default pool of each family.
Repeating the command gives the same lease. A name is unique per kind: another --uid or --incarnation under the same
name takes over, and the addresses of the old one are quarantined until they are known to be gone.

Examples:
  ipledger reserve --kind container --name node-1/web --pool web
  ipledger reserve --kind pod --name default/web-0 --uid 9b3c… --incarnation 5f1e… --pool web --pool web6
  ipledger reserve --kind vm --name build-7 --prefer fast,slow --confirm-within 30s
  ipledger reserve --kind infrastructure --name ntp --address 10.0.0.53 --confirmed`,
    run: (request, options: ClaimOptions) =>
      ask(reserve, { ...request, claims: claimsOf(options) } as typeof request),
    show: ({ leases }) => leaseTable(leases),
  })
}

function claimsOf({ pool = [], prefer = [], address = [], preferPrevious = false }: ClaimOptions) {
  const pools = [...pool.map((one) => [one]), ...prefer.map((text) => [...list(text)])]
  if (pools.length === 0) {
    if (preferPrevious) throw new Unclear('--prefer-previous needs --pool or --prefer.')
    return address.map((one) => ({ address: one }))
  }
  if (address.length > 1 || (address.length === 1 && pools.length > 1))
    throw new Unclear('--address goes with one --pool, or without any.')
  return pools.map((names) => ({ pools: names, preferPrevious, address: address[0] ?? '' }))
}
