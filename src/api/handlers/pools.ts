import type { Answer, PoolChange } from '../../core/command.ts'
import type { ReapPolicy } from '../../core/policy.ts'
import { type Liveness, parsePoolSettings } from '../../core/pool.ts'
import * as pb from '../../gen/ipledger/v1/pool_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { invalidField } from '../codec/errors.ts'
import { optionalCidr, poolName, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { poolView, usageView } from '../codec/views.ts'
import {
  accepted,
  type Backend,
  changedFields,
  type Declarations,
  ofNetwork,
  poolNotFound,
  type Scoped,
} from '../method.ts'
import { ADMINS, READERS } from '../rights.ts'

const SAMPLED_MS = 6 * 3_600_000
const MOST_SAMPLES = 500

export const poolMethods: Declarations<typeof pb.PoolService> = {
  createPool: {
    roles: ADMINS,
    decode({ network: _network, requestId: _id, liveness, reapPolicy, confirmWithinMs, ...settings }) {
      required(settings.name, 'name')
      required(settings.cidr, 'cidr')
      // Canonical, so that a repetition in another spelling is the same request.
      const pool = parsePoolSettings({
        ...settings,
        confirmWithinMs: confirmWithinMs || null,
        liveness: livenessOf(liveness),
        reapPolicy: decodeReapPolicy(reapPolicy),
      })
      return { type: 'createPool', pool: accepted(pool) }
    },
    view: viewOf,
  },
  updatePool: {
    roles: ADMINS,
    decode: ({ network: _network, requestId: _id, name, version = null, ...settings }) => ({
      type: 'updatePool',
      name: required(name, 'name'),
      version,
      change: decodeChange(settings),
    }),
    view: viewOf,
  },
  deletePool: {
    roles: ADMINS,
    decode: ({ name, version = null }) => ({ type: 'deletePool', name: required(name, 'name'), version }),
    view: ({ pool }, { network }) => ({ pool: poolView(network, pool!, null) }),
  },
  getPool: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const name = required(request.name, 'name')
      const { pools, head } = ofNetwork(await reads.pools(network, { name, limit: 1 }), network)
      if (pools[0] === undefined) throw poolNotFound(network, name)
      return { pool: poolView(network, pools[0].pool, pools[0].usage), head }
    },
  },
  listPools: {
    roles: READERS,
    async answer(request, { network }, { reads }) {
      const page = pageOf(request, poolName)
      const filter = {
        labels: request.labels,
        cidr: optionalCidr(request.cidr, 'cidr'),
        after: page.after,
        limit: page.size + 1,
      }
      const { pools, head } = ofNetwork(await reads.pools(network, filter), network)
      const { items, nextPageToken } = page.cut(pools, ({ pool }) => pool.name)
      return { pools: items.map(({ pool, usage }) => poolView(network, pool, usage)), nextPageToken, head }
    },
  },
  listPoolTrends: {
    roles: READERS,
    async answer(request, { network }, { ledger, reads }) {
      const { pool, samples: steps, to = ledger.now(), from = to - SAMPLED_MS } = request
      if (from >= to) throw invalidField('from', 'must be before `to`, which is now if it is not given')
      if (steps > MOST_SAMPLES) throw invalidField('samples', `must be at most ${MOST_SAMPLES}`)
      const page = pageOf(request, poolName)
      const filter = { pool: pool || null, after: page.after, limit: page.size + 1, from, to, steps }
      const { trends, countedFrom } = ofNetwork(await reads.trends(network, filter), network)
      if (pool !== '' && trends.length === 0) throw poolNotFound(network, pool)
      const { items, nextPageToken } = page.cut(trends, (last) => last.pool)
      const sampled = items.map(({ samples, ...trend }) => ({
        ...trend,
        samples: samples.map(({ time, usage }) => ({ time, usage: usageView(usage) })),
      }))
      return { trends: sampled, nextPageToken, countedFrom }
    },
  },
}

/** As the command left it; its usage only while it is still that pool. */
async function viewOf({ pool }: Answer, { network }: Scoped, { reads }: Backend) {
  const { poolId, version } = pool!
  // The command is done, whether this can be read or not.
  const found = await reads.pools(network, { poolId, limit: 1 }).catch(() => null)
  const now = found?.pools[0]
  return { pool: poolView(network, pool!, now?.pool.version === version ? now.usage : null) }
}

function decodeChange(
  request: Omit<Decoded<pb.UpdatePoolRequest>, 'network' | 'name' | 'version' | 'requestId'>,
): PoolChange {
  const { newName, exclude, labels, liveness, reapPolicy, confirmWithinMs, updateMask, ...input } = request
  const changes = changedFields(pb.UpdatePoolRequestSchema, request)
  if (input.ownerLimit === 0) throw invalidField('ownerLimit', 'must be between 1 and 1000000 leases')
  return {
    ...input,
    ...(confirmWithinMs !== undefined && { confirmWithinMs: confirmWithinMs || null }),
    ...(newName !== undefined && { name: newName }),
    ...(changes.has('exclude') && { exclude }),
    ...(changes.has('labels') && { labels }),
    ...(liveness !== undefined && { liveness: livenessOf(liveness) }),
    ...(reapPolicy !== undefined && { reapPolicy: decodeReapPolicy(reapPolicy) }),
  }
}

/** 0 misses are not given. The core checks the bounds. */
function decodeReapPolicy(given: Partial<Decoded<pb.ReapPolicy>> = {}): Partial<ReapPolicy> {
  const { misses = 0, ...ages } = given
  return misses === 0 ? ages : { misses, ...ages }
}

function livenessOf(name: string | undefined): Liveness {
  return name === 'STRICT' ? 'STRICT' : 'AVAILABLE'
}
