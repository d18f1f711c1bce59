import {
  type Lease,
  LeaseSchema,
  LeaseStateSchema,
  QuarantineReasonSchema,
} from '../gen/ipledger/v1/types_pb.ts'
import { routesText } from './pool.ts'
import { nameOf, sheetOf, tableOf, time } from './print.ts'

export function leaseTable(leases: readonly Lease[]): string {
  return tableOf('no leases', leases, {
    LEASE: ({ leaseId }) => leaseId,
    ADDRESS: addressOf,
    STATE: stateOf,
    OWNER: holderOf,
    INTERFACE: ({ owner }) => owner?.interface ?? '',
    POOL: ({ pool }) => pool,
    GATEWAY: ({ gateway }) => gateway,
    NODE: ({ owner }) => owner?.node ?? '',
    'CONFIRM BY': ({ confirmBy }) => time(confirmBy),
    'COOLS UNTIL': ({ availableAt }) => time(availableAt),
  })
}

export function leaseSheet(lease: Lease | undefined): string {
  return sheetOf(LeaseSchema, lease, { reused: undefined, routes: routesText(lease?.options) })
}

/** A block carries its length, a single address does not. */
export function addressOf({ address, prefixLength }: Pick<Lease, 'address' | 'prefixLength'>): string {
  const single = address.includes(':') ? 128 : 32
  return prefixLength === single ? address : `${address}/${prefixLength}`
}

/** `ACTIVE`, `QUARANTINED SUPERSEDED` */
export function stateOf({ state, quarantine }: Lease): string {
  const name = nameOf(LeaseStateSchema, state)
  if (quarantine === undefined) return name
  return `${name} ${nameOf(QuarantineReasonSchema, quarantine.reason)}`
}

export function holderOf({ owner }: Pick<Lease, 'owner'>): string {
  return owner === undefined ? '' : `${owner.kind} ${owner.name}`
}
