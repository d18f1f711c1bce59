/**
 * The connections of networks. With Citus they go to the node that has the network, so that the coordinator has no part in a call. Any node
 * takes any network: where this is out of date, or a node is not reached, a call is only slower.
 */
import type pg from 'pg'
import { atHost, checkServer, createPool } from '../postgres/connect.ts'
import { ask } from '../postgres/on-connection.ts'

type Place = {
  readonly group: number
  readonly host: string
  readonly port: number
  /** Place of the coordinator, with which the identities of networks begin. */
  readonly coordinator: string
}
export type Node = Place & { readonly pool: pg.Pool; awayUntil: number }

type NodesOptions = {
  /** To each node. */
  readonly connections: number
  /** A node is not reached, and calls go through the coordinator. */
  readonly onAway?: ((node: string, error: unknown) => void) | undefined
}

/** A node that was not reached is not asked for so long. */
const AWAY_MS = 60_000
const HAS_CITUS = `select from pg_extension where extname = 'citus'`
const NODES = {
  name: 'nodes',
  text: `select groupid as "group", nodename as host, nodeport as port,
      substring(ipledger.identity() from '^[0-9]+:[^/]+/') as coordinator
    from pg_dist_node
   where groupid <> 0 and noderole = 'primary' and isactive and shouldhaveshards and hasmetadata and metadatasynced
     and exists (select from pg_dist_partition where logicalrelid = to_regclass('ipledger.event'))`,
}
const GROUP = {
  name: 'group',
  text: `select groupid as "group" from pg_dist_placement
    where shardid = get_shard_id_for_distribution_column('ipledger.event', $1::text)`,
}

/**
 * Plans of prepared statements are made while tables are small, and kept: a scan and a sort that were cheap then. All that the
 * hot path asks for is in an index, in order. (At 30,000 events: 5.6 ms for the first round trip, 0.6 with these.) Citus makes no
 * generic plans of statements with parameters.
 */
const NEVER_SCAN = `set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off;
  set jit = off; select set_config('plan_cache_mode', 'force_generic_plan', false)
   where not exists (select from pg_extension where extname = 'citus')`

export class Nodes {
  readonly coordinator: pg.Pool
  readonly #url: string
  readonly #options: NodesOptions
  #hasCitus: boolean | undefined
  #nodes = new Map<number, Node>()
  readonly #groups = new Map<string, number>()

  constructor(url: string, options: NodesOptions) {
    this.coordinator = openPool(url, options.connections)
    this.#url = url
    this.#options = options
  }

  /** Looks where nodes are; to be called often, because an operator who puts another server in the place of one tells Citus alone. */
  async refresh(): Promise<void> {
    this.#hasCitus ??= (await ask(this.coordinator, HAS_CITUS)).length > 0
    if (!this.#hasCitus) return
    const places = await ask<Place>(this.coordinator, NODES)
    const before = this.#nodes
    this.#nodes = new Map()
    for (const one of places) {
      const known = before.get(one.group)
      const isSame =
        known?.host === one.host && known.port === one.port && known.coordinator === one.coordinator
      const open = () => openPool(atHost(this.#url, one), this.#options.connections)
      this.#nodes.set(one.group, isSame ? known : { ...one, pool: open(), awayUntil: 0 })
    }
    for (const [group, { pool }] of before) if (this.#nodes.get(group)?.pool !== pool) void pool.end()
  }

  /** Null: through the coordinator. */
  async connect(network: string): Promise<{ readonly client: pg.PoolClient; readonly node: Node | null }> {
    const node = this.#nodes.size === 0 ? undefined : this.#nodes.get(await this.#groupOf(network))
    if (node !== undefined && performance.now() >= node.awayUntil) {
      try {
        return { client: await node.pool.connect(), node }
      } catch (error) {
        node.awayUntil = performance.now() + AWAY_MS
        this.#options.onAway?.(`${node.host}:${node.port}`, error)
      }
    }
    return { client: await this.coordinator.connect(), node: null }
  }

  /** It is on another node, or not used any more. */
  forget(network: string): void {
    this.#groups.delete(network)
  }

  async #groupOf(network: string): Promise<number> {
    const known = this.#groups.get(network)
    if (known !== undefined) return known
    const [found] = await ask<{ group: number }>(this.coordinator, GROUP, [network])
    this.#groups.set(network, found!.group)
    return found!.group
  }

  async end(): Promise<void> {
    const pools = [this.coordinator, ...Array.from(this.#nodes.values(), ({ pool }) => pool)]
    await Promise.all(pools.map((pool) => pool.ending || pool.end()))
  }
}

/** Every new connection is checked: a failover can end on a server that forgets acknowledged commits. */
function openPool(url: string, max: number): pg.Pool {
  return createPool({
    url,
    applicationName: 'ipledger ledger',
    max,
    async prepare(client) {
      await checkServer(client)
      await client.query(NEVER_SCAN)
    },
  })
}
