/** The commands that run something: the service, its jobs, the migrations, an agent, the bench, the demo. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { hostname } from 'node:os'
import { extname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { AgentOptions } from '../agent/agent.ts'
import type { DriverOptions } from '../docker/driver.ts'
import { connected } from './ask.ts'
import { SilentExit } from './exit.ts'
import { list, whole } from './readers.ts'
import { awaitSignals, SIGNALS } from './stopping.ts'
import { command, networkOptions } from './verb.ts'

/** Loaded only by the command that needs it: the others start in a tenth of the time. */
const load = () => import('./serve.ts')

export const processCommands = [
  command('serve', {
    about: 'run the service: API and worker, on its own PostgreSQL or on DATABASE_URL',
    options: [['--no-worker', 'leave the jobs to other processes ("ipledger worker")']],
    help: `
Listens on 127.0.0.1:8080 (gRPC on 8081); IPLEDGER_HOST, IPLEDGER_PORT and IPLEDGER_GRPC_PORT change that. Without
DATABASE_URL an own PostgreSQL keeps its data in .ipledger (IPLEDGER_DIR). SIGINT and SIGTERM let calls finish; a
second one ends it at once.`,
    run: async (options: { readonly worker: boolean }) => (await load()).serve(options),
  }),
  command('worker', {
    about: 'run the jobs alone, beside servers started with --no-worker',
    run: async () => (await load()).runWorker(),
  }),
  command('migrate', {
    about: 'make roles, schema and the network "default", or bring them up to date',
    help: '\nDATABASE_ADMIN_URL names the owner of the database, if DATABASE_URL does not.',
    run: async () => (await load()).runMigrate(),
  }),
  command('agent', {
    about: 'run on a node: answer the CNI plugin, report live addresses, keep spares for an outage',
    options: [
      ['--bridge <name>', 'the bridge of its containers, or the parent of macvlan and ipvlan'],
      ...networkOptions(),
      ['--node <name>', 'this node, as the token has it', hostname()],
      ['--source <id>', 'its source, registered for this node (default: the name of the node)'],
      ['--socket <path>', 'where the plugin calls', '/run/ipledger/agent.sock'],
      ['--state <directory>', 'undelivered releases, and the last number heard', '/var/lib/ipledger'],
      ['--cni-cache <directory>', "where the container runtime's library keeps results", '/var/lib/cni'],
      ['--spares <n>', 'addresses to hand out while the service is away', whole, 0],
      ['--pool <names>', 'pools of spares, one address of each (default: the default pools)', list, []],
      ['--probe', 'ask the link whether an address is in use before it is handed out (ARP, ND)', false],
    ],
    required: ['bridge'],
    help: `
Needs root, and the programs ip and nsenter. Register and enable its source first:
  ipledger source register node-1 --node node-1 --owner-kinds pod,container
  ipledger source enable node-1
  ipledger agent --node node-1 --bridge cni0 --spares 8`,
    async run({ source, pool, ...options }: AgentFlags) {
      const { Agent } = await import('../agent/agent.ts')
      const { createLogger } = await import('../telemetry.ts')
      const { readConfig } = await import('../config.ts')
      const log = createLogger(readConfig().logLevel)
      const { signal } = awaitSignals(log)
      const { node, network, socket } = options
      const agent = new Agent({ ...options, pools: pool, source: source ?? node }, await connected(), log)
      await agent.run(signal, () =>
        console.log(`ipledger agent: node ${node}, network ${network}, listening on ${socket}`),
      )
    },
  }),
  command('docker-driver', {
    about: 'run on a node: hand out addresses to containers of Docker, as its IPAM driver',
    options: [
      ...networkOptions(),
      ['--node <name>', 'this node, as the token has it', hostname()],
      ['--socket <path>', 'where Docker calls; it names the driver', '/run/docker/plugins/ipledger.sock'],
    ],
    help: `
Needs root. The subnet of a Docker network must be a pool:
  ipledger pool create blue --cidr 10.9.0.0/24 --gateway 10.9.0.1
  docker network create --ipam-driver ipledger --subnet 10.9.0.0/24 blue`,
    async run({ socket, ...options }: DriverOptions & { readonly socket: string }) {
      const { Driver } = await import('../docker/driver.ts')
      const { listenForDocker } = await import('../docker/plugin.ts')
      const { createLogger } = await import('../telemetry.ts')
      const { readConfig } = await import('../config.ts')
      const log = createLogger(readConfig().logLevel)
      const { stopped } = awaitSignals(log)
      await using _ = await listenForDocker(socket, new Driver(options, await connected(), log))
      console.log(
        `ipledger docker-driver: node ${options.node}, network ${options.network}, listening on ${socket}`,
      )
      await stopped
    },
  }),
  command('bench [lines...]', {
    about:
      'measure this machine: each line, and the least that the same work could cost (default: all lines)',
    options: [
      ['--quick', 'everything small: that it runs, not how fast'],
      ['--held-open <minutes>', 'how long the line "snapshot" holds a transaction open', whole, 1],
    ],
    help: '\nWorks on a PostgreSQL of its own, which is gone afterwards.',
    run: (options, lines) => runProgram('bench/main', { ...options, lines }),
  }),
  command('demo', {
    about: 'play MIR-1238 step by step: a list that lags, and still no address on two sandboxes',
    options: [['--directory <path>', 'keep its data there (default: a directory that is thrown away)']],
    help: `
Takes less than 20 seconds, uses a PostgreSQL of its own and touches nothing else. On a terminal it then stays until Ctrl-C, so that
the story can be seen in the browser. To look at the data of --directory later: IPLEDGER_DIR=<path> ipledger serve.`,
    run: ({ directory }: { readonly directory?: string }) =>
      runProgram('src/demo/main', directory === undefined ? {} : { directory: resolve(directory) }),
  }),
]

type AgentFlags = Omit<AgentOptions, 'source' | 'pools'> & {
  readonly source?: string
  readonly pool: AgentOptions['pools']
}

/** Programs above this room are processes of their own. Their options are JSON. */
async function runProgram(path: string, options: object): Promise<void> {
  const file = new URL(`../../${path}${extname(import.meta.filename)}`, import.meta.url)
  const args = [...process.execArgv, fileURLToPath(file), JSON.stringify(options)]
  const child = spawn(process.execPath, args, { stdio: 'inherit' })
  for (const signal of SIGNALS) process.on(signal, () => child.kill(signal))
  const [code] = (await once(child, 'exit')) as [number | null]
  if (code !== 0) throw new SilentExit(code ?? undefined)
}
