/** PoolService. What a command made is read back, so that its answer is what Get would say. */
import { create } from '@bufbuild/protobuf'
import { refusal } from '../core/refusal.ts'
import { type Pool, PoolSchema, type PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import type { PoolUsage } from '../ledger/read-pools.ts'
import { deletedPoolMessage, poolMessage } from './answers.ts'
import { type Backend, type Handlers, networkNotFound, readingBack, submit } from './call.ts'
import { Refused } from './errors.ts'
import { cidrOrAddress, labels, pageSize, poolName } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { allowedNetwork, readCreatePool, readDeletePool, readUpdatePool } from './requests.ts'

export function poolHandlers(backend: Backend): Handlers<typeof PoolService> {
  const { reads } = backend

  async function byId(network: string, poolId: number): Promise<PoolUsage | undefined> {
    return (await reads.pools(network, { poolId, limit: 1 }))?.pools[0]
  }

  return {
    createPool: async (message, call) => {
      const command = readCreatePool(message, call)
      const answer = await submit(backend, command, call)
      const pool = await readingBack(
        byId(command.network, answer.poolId!),
        `pool ${command.pool.name} was created`,
      )
      return { $typeName: 'ipledger.v1.CreatePoolResponse', pool: poolMessage(pool) }
    },

    updatePool: async (message, call) => {
      const command = readUpdatePool(message, call)
      const answer = await submit(backend, command, call)
      const pool = await readingBack(
        byId(command.network, answer.poolId!),
        `pool ${command.name} was updated`,
      )
      return { $typeName: 'ipledger.v1.UpdatePoolResponse', pool: poolMessage(pool) }
    },

    deletePool: async (message, call) => {
      const command = readDeletePool(message, call)
      const before = await reads.pools(command.network, { name: command.name, limit: 1 })
      const { poolId } = await submit(backend, command, call)
      const was = before?.pools[0]?.pool
      const pool: Pool =
        was !== undefined && was.poolId === poolId
          ? deletedPoolMessage(was)
          : create(PoolSchema, { network: command.network, name: command.name, id: BigInt(poolId!) })
      return { $typeName: 'ipledger.v1.DeletePoolResponse', pool }
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
