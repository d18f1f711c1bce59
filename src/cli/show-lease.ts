import { type Lease, LeaseStateSchema, QuarantineReasonSchema } from '../gen/ipledger/v1/types_pb.ts'
import { labels, sheet, table, time } from './print.ts'

export function leaseTable(leases: readonly Lease[]): string {
  if (leases.length === 0) return 'no leases'
  return table(
    [
      'LEASE',
      'ADDRESS',
      'STATE',
      'OWNER',
      'INTERFACE',
      'POOL',
      'GATEWAY',
      'NODE',
      'CONFIRM BY',
      'COOLS UNTIL',
    ],
    leases.map((lease) => [
      lease.leaseId,
      addressOf(lease),
      stateOf(lease),
      holderOf(lease),
      lease.owner?.interface ?? '',
      lease.pool,
      lease.gateway,
      lease.owner?.node ?? '',
      time(lease.confirmBy),
      time(lease.availableAt),
    ]),
  )
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
    ['boot', owner?.boot ?? ''],
    ['labels', labels(owner?.labels ?? {})],
    ['network', lease.network],
    ['pool', lease.pool],
    ['subnet', lease.subnet],
    ['gateway', lease.gateway],
    [
      'routes',
      (lease.options?.routes ?? [])
        .map((one) => `${one.destination} via ${one.gateway || 'link'}`)
        .join(', '),
    ],
    ['dns', (lease.options?.dns ?? []).join(', ')],
    ['mtu', lease.options === undefined || lease.options.mtu === 0 ? '' : String(lease.options.mtu)],
    ['reserved', time(lease.reservedAt)],
    ['confirm by', time(lease.confirmBy)],
    ['confirmed', time(lease.confirmedAt)],
    ['ended', time(lease.endedAt)],
    ['cools until', time(lease.availableAt)],
    ['witnesses', lease.witnesses.join(', ')],
    ['version', String(lease.version)],
    ['token', String(lease.fencingToken)],
  ])
}

/** A block carries its length, a single address does not. */
export function addressOf(lease: Lease): string {
  const single = lease.address.includes(':') ? 128 : 32
  return lease.prefixLength === single ? lease.address : `${lease.address}/${lease.prefixLength}`
}

/** `ACTIVE`, `QUARANTINED SUPERSEDED` */
export function stateOf(lease: Lease): string {
  const state = LeaseStateSchema.value[lease.state]?.name ?? String(lease.state)
  if (lease.quarantine === undefined) return state
  const { reason } = lease.quarantine
  return `${state} ${QuarantineReasonSchema.value[reason]?.name ?? String(reason)}`
}

export function holderOf(lease: Lease): string {
  return lease.owner === undefined ? '' : `${lease.owner.kind} ${lease.owner.name}`
}
