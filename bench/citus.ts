/**
 * Reserve on Citus beside one PostgreSQL: Debian's PostgreSQL 15, the same settings, on one machine. What counts is the processor time
 * that a call takes of the coordinator and of the workers.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import { readUrl, withClient } from '../src/postgres/connect.ts'
import { openDatabase } from '../src/postgres/database.ts'
import { EMBEDDED_SETTINGS } from '../src/postgres/embedded.ts'
import { runServer, type ServerProcess } from '../src/postgres/server-process.ts'
import { POOL } from './history.ts'
import { amount, type Bench } from './measure.ts'
import { type Service, startService } from './service.ts'
import { clusterCpuMs } from './usage.ts'

const BIN = '/usr/lib/postgresql/15/bin'
const EXTENSION = '/usr/share/postgresql/15/extension/citus.control'
const PASSWORD = 'bench'
const DATABASE = 'bench'
const SETTINGS = {
  ...EMBEDDED_SETTINGS,
  shared_preload_libraries: 'citus',
  wal_level: 'logical',
  max_prepared_transactions: '200',
  'citus.node_conninfo': 'sslmode=disable',
}
const NETWORKS = ['net-0', 'net-1', 'net-2', 'net-3', 'net-4', 'net-5', 'net-6', 'net-7'] as const
/** All call in one network, and in eight, which are on both workers. */
const LOADS: readonly { readonly callers: number; readonly networks: readonly string[] }[] = [
  { callers: 1, networks: NETWORKS.slice(0, 1) },
  { callers: 8, networks: NETWORKS.slice(0, 1) },
  { callers: 64, networks: NETWORKS.slice(0, 1) },
  { callers: 64, networks: NETWORKS },
]

type Deployment = {
  readonly name: string
  readonly service: Service
  /** Of which the processor time is told apart. */
  readonly parts: Readonly<Record<string, readonly ServerProcess[]>>
}
type Round = {
  readonly perSecond: number
  readonly p50: number
  readonly us: Readonly<Record<string, number>>
}

export const hasCitus = (): boolean => existsSync(EXTENSION) && existsSync(join(BIN, 'postgres'))

export async function citus(bench: Bench): Promise<void> {
  if (!hasCitus())
    return console.error('citus: left out, because Debian’s PostgreSQL 15 with Citus is not installed')
  await using open = new AsyncDisposableStack()
  const startNode = async (name: string, extension: boolean): Promise<ServerProcess> => {
    const server = await runServer({
      binaries: { postgres: join(BIN, 'postgres'), initdb: join(BIN, 'initdb') },
      dataDirectory: join(bench.scratch.directory, name),
      password: PASSWORD,
      settings: SETTINGS,
      log: pino({ level: 'warn' }),
      onFailure: (error) => console.error(error.message),
    })
    open.defer(() => server.stop())
    await query(server.url('postgres'), `create database ${DATABASE}`)
    if (extension) await query(server.url(DATABASE), `create extension citus; ${login('postgres', PASSWORD)}`)
    return server
  }
  const deploy = async (
    name: string,
    server: ServerProcess,
    parts: Deployment['parts'],
  ): Promise<Deployment> => {
    const adminUrl = server.url(DATABASE)
    const config = { databaseUrl: adminUrl, databaseAdminUrl: undefined, directory: '' }
    const { serviceUrl } = await openDatabase(config, { log: pino({ level: 'warn' }), embedded: 'share' })
    const { user, password } = readUrl(serviceUrl)
    if ('workers' in parts) await query(adminUrl, login(user, password!))
    const service = await startService({ url: serviceUrl, adminUrl }, false)
    open.defer(() => service.stop())
    for (const network of NETWORKS) {
      await call(service, 'NetworkService/CreateNetwork', { name: network })
      await call(service, 'PoolService/CreatePool', {
        network,
        name: POOL,
        cidr: '10.0.0.0/8',
        cooldown: '0s',
      })
    }
    return { name, service, parts }
  }

  const plain = await startNode('plain', false)
  const coordinator = await startNode('coordinator', true)
  const workers = [await startNode('worker-1', true), await startNode('worker-2', true)]
  const { host, port } = readUrl(coordinator.url(DATABASE))
  await query(coordinator.url(DATABASE), `select citus_set_coordinator_host('${host}', ${port})`)
  for (const worker of workers)
    await query(coordinator.url(DATABASE), `select citus_add_node('${host}', ${worker.port})`)
  const deployments = [
    await deploy('PostgreSQL 15', plain, { server: [plain] }),
    await deploy('Citus', coordinator, { coordinator: [coordinator], workers }),
  ]

  for (const load of LOADS) {
    const rounds: Round[][] = [[], []]
    for (let round = 0; round <= bench.scale.rounds; round += 1)
      for (const [index, deployment] of deployments.entries()) {
        const one = await measure(bench, deployment, load)
        // The first compiles, and makes plans.
        if (round > 0) rounds[index]!.push(one)
      }
    show(bench, load, rounds)
  }
}

const query = (url: string, text: string) =>
  withClient({ url, applicationName: 'bench' }, (client) => client.query(text))

const login = (user: string, password: string) =>
  `insert into pg_dist_authinfo (nodeid, rolename, authinfo) values (0, '${user}', 'password=${password}')`

async function call({ target }: Service, method: string, message: object): Promise<void> {
  const response = await fetch(`http://${target.host}:${target.port}/ipledger.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(message),
  })
  if (!response.ok) throw new Error(`${method}: ${await response.text()}`)
}

async function measure(
  bench: Bench,
  { service, parts }: Deployment,
  { callers, networks }: (typeof LOADS)[number],
): Promise<Round> {
  const used = () =>
    Object.entries(parts).map(([part, servers]) => {
      const ms = servers.reduce((sum, server) => sum + clusterCpuMs(server.pid() ?? 0), 0)
      return { part, ms }
    })
  const { warmUpMs, measureMs } = bench.scale
  let [before, begun] = [used(), performance.now()]
  const all = await Promise.all(
    networks.map((network, index) =>
      bench.load(index).run(
        {
          through: { kind: 'service', ...service.target },
          network,
          work: 'reserve',
          callers: callers / networks.length,
          warmUpMs,
          measureMs,
        },
        () => {
          ;[before, begun] = [used(), performance.now()]
        },
      ),
    ),
  )
  const perSecond = all.reduce((sum, one) => sum + one.perSecond, 0)
  const calls = (perSecond * (performance.now() - begun)) / 1_000
  const us = used().map(({ part, ms }, index) => [part, ((ms - before[index]!.ms) * 1_000) / calls])
  return { perSecond, p50: middle(all.map(({ p50 }) => p50)), us: Object.fromEntries(us) }
}

const middle = (values: readonly number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!

function show(bench: Bench, { callers, networks }: (typeof LOADS)[number], rounds: readonly Round[][]): void {
  const what = `Reserve, ${callers} callers, ${networks.length} ${networks.length === 1 ? 'network' : 'networks'}`
  const [plain, spread] = rounds as [Round[], Round[]]
  const rate = (of: readonly Round[]) => middle(of.map(({ perSecond }) => perSecond))
  const ratio = middle(spread.map(({ perSecond }, index) => perSecond / plain[index]!.perSecond))
  const floor = { what: 'one PostgreSQL 15', value: rate(plain) }
  bench.show({ ...amount('citus', what, rate(spread), '/s'), floor, ratio })
  for (const [name, of] of [
    ['one PostgreSQL 15', plain],
    ['Citus', spread],
  ] as const) {
    bench.show(amount('citus', `${what}: p50 of ${name}`, middle(of.map(({ p50 }) => p50)), 'ms'))
    for (const part of Object.keys(of[0]!.us))
      bench.show(
        amount(
          'citus',
          `${what}: processor a call, ${part} of ${name}`,
          middle(of.map(({ us }) => us[part]!)),
          'µs',
        ),
      )
  }
}
