import { type Lease, LeaseStateSchema, QuarantineReasonSchema } from '../gen/ipledger/v1/types_pb.ts'
import { optionRows } from './pool.ts'
import { labels, sheet, tableOf, time } from './print.ts'

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
  if (lease === undefined) return ''
  const { owner, quarantine } = lease
  return sheet([
    ['lease', lease.leaseId],
    ['address', addressOf(lease)],
    ['state', stateOf(lease)],
    ['since', time(quarantine?.since)],
    ['by', quarantine?.by ?? ''],
    ['why', quarantine?.why ?? ''],
    ['owner', holderOf(lease)],
    ['uid', owner?.uid ?? ''],
    ['incarnation', owner?.incarnation ?? ''],
    ['interface', owner?.interface ?? ''],
    ['node', owner?.node ?? ''],
    ['labels', labels(owner?.labels)],
    ['network', lease.network],
    ['pool', lease.pool],
    ['subnet', lease.subnet],
    ['gateway', lease.gateway],
    ...optionRows(lease.options),
    ['reserved', time(lease.reservedAt)],
    ['confirm by', time(lease.confirmBy)],
    ['confirmed', time(lease.confirmedAt)],
    ['ended', time(lease.endedAt)],
    ['cools until', time(lease.availableAt)],
    ['version', String(lease.version)],
    ['token', String(lease.fencingToken)],
  ])
}

/** A block carries its length, a single address does not. */
export function addressOf({ address, prefixLength }: Pick<Lease, 'address' | 'prefixLength'>): string {
  const single = address.includes(':') ? 128 : 32
  return prefixLength === single ? address : `${address}/${prefixLength}`
}

/** `ACTIVE`, `QUARANTINED SUPERSEDED` */
export function stateOf({ state, quarantine }: Lease): string {
  const name = LeaseStateSchema.value[state]?.name ?? String(state)
  if (quarantine === undefined) return name
  return `${name} ${QuarantineReasonSchema.value[quarantine.reason]?.name ?? String(quarantine.reason)}`
}

export function holderOf({ owner }: Pick<Lease, 'owner'>): string {
  return owner === undefined ? '' : `${owner.kind} ${owner.name}`
}
