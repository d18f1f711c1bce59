/** PoolService. */
import type { PoolView } from '../core/command.ts'
import { refusal } from '../core/refusal.ts'
import { poolOfView } from '../core/view.ts'
import type { Pool, PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { barePoolMessage, poolMessage } from './answers.ts'
import { type Backend, type Handlers, networkNotFound, submit } from './call.ts'
import { Refused } from './errors.ts'
import { cidrOrAddress, labels, pageSize, poolName } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork, readCreatePool, readDeletePool, readUpdatePool } from './requests.ts'

export function poolHandlers(backend: Backend): Handlers<typeof PoolService> {
  const { reads } = backend

  /** As the command left it; how full it is only as long as it is still that pool. */
  async function answered(view: PoolView): Promise<Pool> {
    const { network, poolId, version } = view
    // The command is done, whether this can be read or not.
    const found = await reads.pools(network, { poolId, limit: 1 }).catch(() => null)
    const now = found?.pools[0]
    return now?.pool.version === version ? poolMessage(now) : barePoolMessage(poolOfView(view))
  }

  return {
    createPool: async (message, call) => {
      const { pool } = await submit(backend, readCreatePool(message, call), call)
      return { $typeName: 'ipledger.v1.CreatePoolResponse', pool: await answered(pool!) }
    },

    updatePool: async (message, call) => {
      const { pool } = await submit(backend, readUpdatePool(message, call), call)
      return { $typeName: 'ipledger.v1.UpdatePoolResponse', pool: await answered(pool!) }
    },

    deletePool: async (message, call) => {
      const { pool } = await submit(backend, readDeletePool(message, call), call)
      return { $typeName: 'ipledger.v1.DeletePoolResponse', pool: barePoolMessage(poolOfView(pool!)) }
    },

    getPool: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const name = poolName(message.name, 'name')
      const found = await reads.pools(network, { name, limit: 1 })
      if (found === null) throw networkNotFound(network)
      const pool = found.pools[0]
      if (pool === undefined) {
        throw new Refused(
          refusal('POOL_NOT_FOUND', `there is no pool ${name} in network ${network}`, { pool: name }),
        )
      }
      return {
        $typeName: 'ipledger.v1.GetPoolResponse',
        pool: poolMessage(pool),
        head: BigInt(found.head),
      }
    },

    listPools: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const wanted = labels(message.labels, 'labels')
      const cidr = message.cidr === '' ? null : cidrOrAddress(message.cidr, 'cidr')
      const size = pageSize(message.pageSize)
      const asked = [
        'ListPools',
        network,
        wanted,
        cidr === null ? null : [cidr.family, `${cidr.first}`, cidr.prefixLength],
      ]
      const after = decodePage(message.pageToken, asked)
      const found = await reads.pools(network, {
        labels: wanted,
        cidr,
        after: after === null ? null : poolName(after, 'pageToken'),
        limit: size + 1,
      })
      if (found === null) throw networkNotFound(network)
      const pools = found.pools.slice(0, size)
      return {
        $typeName: 'ipledger.v1.ListPoolsResponse',
        pools: pools.map(poolMessage),
        nextPageToken: found.pools.length > size ? encodePage(pools.at(-1)!.pool.name, asked) : '',
        head: BigInt(found.head),
      }
    },
  }
}
