/**
 * Servers of PostgreSQL with Citus: a coordinator without shards of its own, and workers. They are set up by the statements of
 * docs/scaling.md.
 */
import { pino } from 'pino'
import { readUrl, replaceLogin } from '../../src/postgres/connect.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { AUDITOR_ROLE, SERVICE_ROLE } from '../../src/postgres/roles.ts'
import { withClient } from '../support/database.ts'
import { textOf } from '../support/docs.ts'
import { startTestServer } from '../support/server.ts'

type Server = Awaited<ReturnType<typeof startTestServer>>
const DATABASE = 'ipledger'
const [NODE, NODES, LOGINS] = Array.from(
  textOf('docs/scaling.md')
    .split('## Citus')[1]!
    .matchAll(/```text\n(.*?)```/gs),
  ([, statements]) => statements!,
)
/** Of the service and the auditor. */
const LOGIN_PASSWORD = 'chosen'
const passwordOf = (url: string) => readUrl(url).password!
const placed = (text: string, name: string, url: string) =>
  text.replace(`'${name}', 5432`, `'${readUrl(url).host}', ${readUrl(url).port}`)

export class Cluster {
  readonly coordinator: Server
  readonly workers: Server[] = []

  constructor(coordinator: Server) {
    this.coordinator = coordinator
  }

  get url(): string {
    return this.coordinator.url(DATABASE)
  }

  get serviceUrl(): string {
    return replaceLogin(this.url, { user: SERVICE_ROLE, password: LOGIN_PASSWORD })
  }

  get auditorUrl(): string {
    return replaceLogin(this.serviceUrl, { user: AUDITOR_ROLE, password: LOGIN_PASSWORD })
  }

  async query<Row extends object>(text: string, ...values: readonly unknown[]): Promise<readonly Row[]> {
    return withClient(this.url, async (admin) => (await admin.query<Row>(text, [...values])).rows)
  }

  /** What `ipledger migrate` does. */
  async migrate(): Promise<void> {
    const options = { log: pino({ level: 'warn' }), embedded: 'own' } as const
    await openDatabase({ databaseUrl: this.serviceUrl, databaseAdminUrl: this.url, directory: '' }, options)
  }

  async addWorker(): Promise<Server> {
    const worker = await startNode()
    const { host, port } = readUrl(worker.url(DATABASE))
    await this.query('select citus_add_node($1, $2)', host, port)
    this.workers.push(worker)
    return worker
  }

  /** The port of the worker that has a network, and the shard of its log. */
  async placeOf(network: string): Promise<{ readonly port: number; readonly shard: string }> {
    const [place] = await this.query<{ port: number; shard: string }>(
      `select s.nodeport as port, s.shardid::text as shard from citus_shards s
        where s.shardid = get_shard_id_for_distribution_column('ipledger.event', $1::text)`,
      network,
    )
    return place!
  }

  /** Citus moves the network, and all that share its shard, to another worker. */
  async move(network: string, to: Server): Promise<void> {
    const { port, shard } = await this.placeOf(network)
    const { host, port: other } = readUrl(to.url(DATABASE))
    const move = `select citus_move_shard_placement($1, $2, $3, $2, $4, 'block_writes')`
    await this.query(move, shard, host, port, other)
  }

  /** What an operator says to Citus after a failover of a worker. */
  async replace(worker: Server, by: Server): Promise<void> {
    const [before, after] = [worker, by].map((server) => readUrl(server.url(DATABASE)))
    await this.query(
      'select citus_update_node(nodeid, $1, $2) from pg_dist_node where nodeport = $3',
      after!.host,
      after!.port,
      before!.port,
    )
    this.workers[this.workers.indexOf(worker)] = by
  }

  async stop(): Promise<void> {
    await Promise.all([this.coordinator, ...this.workers].map((server) => server.stop()))
  }
}

export async function startCluster(): Promise<Cluster> {
  const cluster = new Cluster(await startNode())
  let text = placed(NODES!, 'coordinator', cluster.url)
  for (const name of ['worker-1', 'worker-2']) {
    const worker = await startNode()
    cluster.workers.push(worker)
    text = placed(text, name, worker.url(DATABASE))
  }
  await cluster.query(`${text} ${LOGINS!.replaceAll('PASSWORD', LOGIN_PASSWORD)}`)
  return cluster
}

async function startNode(): Promise<Server> {
  const server = await startTestServer()
  await withClient(server.url('postgres'), (admin) => admin.query(`create database ${DATABASE}`))
  const url = server.url(DATABASE)
  await withClient(url, (admin) => admin.query(NODE!.replace('PASSWORD', passwordOf(url))))
  return server
}
