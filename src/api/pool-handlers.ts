/** PoolService. */
import type { Answer, PoolChange } from '../core/command.ts'
import type { ReapPolicy } from '../core/policy.ts'
import { type Liveness, parsePoolSettings } from '../core/pool.ts'
import * as pb from '../gen/ipledger/v1/pool_pb.ts'
import { shownPool } from './answers.ts'
import type { Asked } from './asked.ts'
import {
  accepted,
  allowedNetwork,
  type Backend,
  changedFields,
  commandedIn,
  type Handlers,
  ofNetwork,
  poolNotFound,
} from './call.ts'
import { invalidField } from './errors.ts'
import { optionalCidr, poolName, required } from './fields.ts'
import { pageOf } from './page-token.ts'

export function poolHandlers(backend: Backend): Handlers<typeof pb.PoolService> {
  const { reads } = backend

  /** As the command left it; how full it is only as long as it is still that pool. */
  async function answered({ pool }: Answer, { network }: { readonly network: string }) {
    const { poolId, version } = pool!
    // The command is done, whether this can be read or not.
    const found = await reads.pools(network, { poolId, limit: 1 }).catch(() => null)
    const now = found?.pools[0]
    return { pool: shownPool(network, pool!, now?.pool.version === version ? now.usage : null) }
  }

  return {
    createPool: commandedIn(
      backend,
      ({ network: _network, requestId: _id, liveness, reapPolicy, confirmWithinMs, ...settings }) => {
        required(settings.name, 'name')
        required(settings.cidr, 'cidr')
        // Canonical, so that a repetition in another spelling is the same request.
        const pool = parsePoolSettings({
          ...settings,
          confirmWithinMs: confirmWithinMs || null,
          liveness: livenessOf(liveness),
          reapPolicy: readReapPolicy(reapPolicy),
        })
        return { type: 'createPool', pool: accepted(pool) }
      },
      answered,
    ),

    updatePool: commandedIn(
      backend,
      ({ network: _network, requestId: _id, name, version = null, ...said }) => ({
        type: 'updatePool',
        name: required(name, 'name'),
        version,
        change: readChange(said),
      }),
      answered,
    ),

    deletePool: commandedIn(
      backend,
      ({ name, version = null }) => ({ type: 'deletePool', name: required(name, 'name'), version }),
      ({ pool }, { network }) => ({ pool: shownPool(network, pool!, null) }),
    ),

    getPool: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const name = required(message.name, 'name')
      const { pools, head } = ofNetwork(await reads.pools(network, { name, limit: 1 }), network)
      if (pools[0] === undefined) throw poolNotFound(network, name)
      return { pool: shownPool(network, pools[0].pool, pools[0].usage), head }
    },

    listPools: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const page = pageOf(message, poolName)
      const filter = {
        labels: message.labels,
        cidr: optionalCidr(message.cidr, 'cidr'),
        after: page.after,
        limit: page.size + 1,
      }
      const { pools, head } = ofNetwork(await reads.pools(network, filter), network)
      const { items, nextPageToken } = page.cut(pools, ({ pool }) => pool.name)
      return { pools: items.map(({ pool, usage }) => shownPool(network, pool, usage)), nextPageToken, head }
    },
  }
}

function readChange(
  request: Omit<Asked<pb.UpdatePoolRequest>, 'network' | 'name' | 'version' | 'requestId'>,
): PoolChange {
  const { newName, exclude, labels, liveness, reapPolicy, confirmWithinMs, updateMask, ...said } = request
  const changes = changedFields(pb.UpdatePoolRequestSchema, request)
  if (said.ownerLimit === 0) throw invalidField('ownerLimit', 'must be between 1 and 1000000 leases')
  return {
    ...said,
    ...(confirmWithinMs !== undefined && { confirmWithinMs: confirmWithinMs || null }),
    ...(newName !== undefined && { name: newName }),
    ...(changes.has('exclude') && { exclude }),
    ...(changes.has('labels') && { labels }),
    ...(liveness !== undefined && { liveness: livenessOf(liveness) }),
    ...(reapPolicy !== undefined && { reapPolicy: readReapPolicy(reapPolicy) }),
  }
}

/** What is said of it; 0 misses are none said. Its bounds are the core's. */
function readReapPolicy({ misses = 0, ...ages }: Partial<Asked<pb.ReapPolicy>> = {}): Partial<ReapPolicy> {
  return misses === 0 ? ages : { misses, ...ages }
}

function livenessOf(name: string | undefined): Liveness {
  return name === 'STRICT' ? 'STRICT' : 'AVAILABLE'
}
