import type { LeaseView, PoolView } from './command.ts'
import { type EndedLease, type Lease, leaseId } from './lease.ts'
import { buildPool, type Pool, settingsOf } from './pool.ts'

export function viewLease(lease: Lease, pool: Pool, reused = false): LeaseView {
  return {
    leaseId: leaseId(lease.network, lease.fencingToken),
    network: lease.network,
    poolId: lease.poolId,
    pool: pool.name,
    address: lease.address,
    prefixLength: lease.prefixLength,
    subnet: pool.subnet,
    gateway: pool.gateway,
    options: pool.options,
    state: lease.state,
    quarantine: lease.quarantine,
    version: lease.version,
    fencingToken: lease.fencingToken,
    owner: lease.owner,
    placement: lease.placement,
    witness: lease.witness,
    reservedAt: lease.reservedAt,
    confirmedAt: lease.confirmedAt,
    confirmBy: lease.confirmBy,
    endedAt: null,
    availableAt: null,
    reused,
  }
}

/** A lease that ended; its pool may be gone as well. */
export function viewEnded(ended: EndedLease, pool: Pool | null): LeaseView {
  const { lease } = ended
  return {
    leaseId: leaseId(lease.network, lease.fencingToken),
    network: lease.network,
    poolId: lease.poolId,
    pool: pool?.name ?? '',
    address: lease.address,
    prefixLength: lease.prefixLength,
    subnet: pool?.subnet ?? '',
    gateway: pool?.gateway ?? '',
    options: pool?.options ?? { routes: [], dns: [], mtu: 0 },
    state: ended.how === 'lease.released' ? 'RELEASED' : 'REAPED',
    quarantine: lease.quarantine,
    version: ended.seq,
    fencingToken: lease.fencingToken,
    owner: lease.owner,
    placement: lease.placement,
    witness: lease.witness,
    reservedAt: lease.reservedAt,
    confirmedAt: lease.confirmedAt,
    confirmBy: null,
    endedAt: ended.endedAt,
    availableAt: ended.availableAt,
    reused: false,
  }
}

export function viewPool(pool: Pool): PoolView {
  const { network, poolId, version, createdAt, updatedAt } = pool
  return { network, poolId, version, createdAt, updatedAt, settings: settingsOf(pool) }
}

/** The pool of a view, with its arithmetic. */
export function poolOfView({ settings, ...at }: PoolView): Pool {
  return buildPool(settings, at)
}
