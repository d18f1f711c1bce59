/**
 * Servers of PostgreSQL with Citus: a coordinator without shards of its own, and workers. They are set up by the statements of
 * docs/scaling.md.
 */
import { expect } from 'vitest'
import { readUrl, replaceLogin } from '../../src/postgres/connect.ts'
import { AUDITOR_ROLE, SERVICE_ROLE } from '../../src/postgres/roles.ts'
import { startProcess } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { textOf } from '../support/docs.ts'
import { startTestServer } from '../support/server.ts'

type Server = Awaited<ReturnType<typeof startTestServer>>
const DATABASE = 'ipledger'
const [SERVICE_PASSWORD, AUDITOR_PASSWORD] = ['service', 'auditor']
const [NODE, NODES] = Array.from(
  textOf('docs/scaling.md')
    .split('## Citus')[1]!
    .matchAll(/```text\n(.*?)```/gs),
  ([, statements]) => statements!,
)
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
    return replaceLogin(this.url, { user: SERVICE_ROLE, password: SERVICE_PASSWORD })
  }

  get auditorUrl(): string {
    return replaceLogin(this.url, { user: AUDITOR_ROLE, password: AUDITOR_PASSWORD })
  }

  async query<Row extends object>(text: string, ...values: readonly unknown[]): Promise<readonly Row[]> {
    return withClient(this.url, async (admin) => (await admin.query<Row>(text, [...values])).rows)
  }

  async migrate(): Promise<void> {
    const env = { DATABASE_URL: this.serviceUrl, DATABASE_ADMIN_URL: this.url, IPLEDGER_LOG_LEVEL: 'warn' }
    const { code, stderr } = await startProcess(['migrate'], env).finished
    expect(code, stderr).toBe(0)
  }

  async addWorker(): Promise<Server> {
    const worker = await startServer()
    await becomeNode(worker)
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

  /** Makes this server, and two new ones, a cluster. Roles that it has already stay as they are. */
  async spread(hasRoles: boolean): Promise<void> {
    await becomeNode(this.coordinator, hasRoles)
    let text = placed(NODES!, 'coordinator', this.url)
    for (const name of ['worker-1', 'worker-2']) {
      const worker = await startServer()
      this.workers.push(worker)
      await becomeNode(worker)
      text = placed(text, name, worker.url(DATABASE))
    }
    await this.query(text)
  }
}

export async function startCluster(): Promise<Cluster> {
  const cluster = new Cluster(await startServer())
  await cluster.spread(false)
  return cluster
}

/** With the database, and without Citus in it. */
export async function startServer(): Promise<Server> {
  const server = await startTestServer()
  await withClient(server.url('postgres'), (admin) => admin.query(`create database ${DATABASE}`))
  return server
}

async function becomeNode(server: Server, hasRoles = false): Promise<void> {
  const url = server.url(DATABASE)
  const text = NODE!
    .replaceAll('OWNER', passwordOf(url))
    .replaceAll('SERVICE', SERVICE_PASSWORD)
    .replaceAll('AUDITOR', AUDITOR_PASSWORD)
  await withClient(url, (admin) => admin.query(hasRoles ? text.replaceAll(/^create role .*$/gm, '') : text))
}
