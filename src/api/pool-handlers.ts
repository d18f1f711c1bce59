/** PoolService. */
import type { PoolView } from '../core/command.ts'
import type { Pool, PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { shownPool } from './answers.ts'
import { type Backend, commanded, type Handlers, ofNetwork, poolNotFound } from './call.ts'
import { optionalCidr, poolName, required } from './fields.ts'
import { pageOf } from './page-token.ts'
import { allowedNetwork, command, readCreatePool, readUpdatePool } from './requests.ts'
import type { Shown } from './shown.ts'

export function poolHandlers(backend: Backend): Handlers<typeof PoolService> {
  const { reads } = backend

  /** As the command left it; how full it is only as long as it is still that pool. */
  async function answered(network: string, view: PoolView): Promise<Shown<Pool>> {
    const { poolId, version } = view
    // The command is done, whether this can be read or not.
    const found = await reads.pools(network, { poolId, limit: 1 }).catch(() => null)
    const now = found?.pools[0]
    return shownPool(network, view, now?.pool.version === version ? now.usage : null)
  }

  return {
    createPool: commanded(backend, readCreatePool, async ({ pool }, { network }) => ({
      pool: await answered(network, pool!),
    })),

    updatePool: commanded(backend, readUpdatePool, async ({ pool }, { network }) => ({
      pool: await answered(network, pool!),
    })),

    deletePool: commanded(
      backend,
      ({ network, name, version = null, requestId }, call) =>
        command(call, allowedNetwork(call, network), requestId, {
          type: 'deletePool',
          name: required(name, 'name'),
          version,
        }),
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
