/** PoolService. */

import { formatCidr } from '../core/address.ts'
import type { PoolView } from '../core/command.ts'
import { refusal } from '../core/refusal.ts'
import type { Pool, PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import { shownPool, shownPoolUsage } from './answers.ts'
import { type Backend, type Handlers, ofNetwork, submit } from './call.ts'
import { Refused } from './errors.ts'
import { cidrOrAddress, labels, pageSize, poolName } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork, readCreatePool, readDeletePool, readUpdatePool } from './requests.ts'
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
    createPool: async (message, call) => {
      const command = readCreatePool(message, call)
      const { pool } = await submit(backend, command, call)
      return { pool: await answered(command.network, pool!) }
    },

    updatePool: async (message, call) => {
      const command = readUpdatePool(message, call)
      const { pool } = await submit(backend, command, call)
      return { pool: await answered(command.network, pool!) }
    },

    deletePool: async (message, call) => {
      const command = readDeletePool(message, call)
      const { pool } = await submit(backend, command, call)
      return {
        pool: shownPool(command.network, pool!, null),
      }
    },

    getPool: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const name = poolName(message.name, 'name')
      const found = ofNetwork(await reads.pools(network, { name, limit: 1 }), network)
      const pool = found.pools[0]
      if (pool === undefined) {
        throw new Refused(
          refusal('POOL_NOT_FOUND', `there is no pool ${name} in network ${network}`, { pool: name }),
        )
      }
      return {
        pool: shownPoolUsage(network, pool),
        head: found.head,
      }
    },

    listPools: async (message, call) => {
      const network = allowedNetwork(call, message.network)
      const wanted = labels(message.labels, 'labels')
      const cidr = message.cidr === '' ? null : cidrOrAddress(message.cidr, 'cidr')
      const size = pageSize(message.pageSize)
      const asked = ['ListPools', network, wanted, cidr === null ? null : formatCidr(cidr)]
      const position = decodePage(message.pageToken, asked)
      const after = position === null ? null : poolName(position, 'pageToken')
      const filter = { labels: wanted, cidr, after, limit: size + 1 }
      const found = ofNetwork(await reads.pools(network, filter), network)
      const pools = found.pools.slice(0, size)
      return {
        pools: pools.map((pool) => shownPoolUsage(network, pool)),
        nextPageToken: found.pools.length > size ? encodePage(pools.at(-1)!.pool.name, asked) : '',
        head: found.head,
      }
    },
  }
}
