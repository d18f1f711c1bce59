/**
 * The lines about the CNI plugin, beside host-local in the same run: ADD of both as a runtime starts them, from the start of the
 * process to its end. The way through ipledger is the launcher, the node's agent, the service and PostgreSQL; host-local writes
 * a file, below the same directory as PostgreSQL. host-local reads the files of all its addresses for each ADD, so it gets an
 * empty directory each time, and gives away only as many as a node has.
 *
 * The namespaces that are named are not there: nothing is configured, and the agent has nothing to confirm.
 */
import { execFile, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { extname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { createClient } from '../src/client/client.ts'
import { type Bench, compare, type Figures, type Subject } from './measure.ts'
import { clusterCpuMs, cpuMs } from './usage.ts'

const HOST_LOCAL = '/usr/lib/cni/host-local'
const IS_PACKAGE = extname(import.meta.filename) === '.js'
const LAUNCHER = join(import.meta.dirname, IS_PACKAGE ? '../cni/launcher.c' : '../src/cni/launcher.c')
const CALLS = join(import.meta.dirname, 'cni-calls.c')
const MAIN = join(import.meta.dirname, '../src', IS_PACKAGE ? 'main.js' : 'main.ts')
const NETWORK = 'nodes'
/** ADDs until the compilers of agent and service are done: from then on it is twice as fast. */
const WARM_UP = 2_000
/** Times those of other lines, since one takes a second. */
const ROUNDS = 3

const run = promisify(execFile)

export async function cni(bench: Bench): Promise<void> {
  const missing = await whatIsMissing()
  if (missing !== null) return console.error(`cni is left out: ${missing}`)
  const directory = mkdtempSync(join(bench.scratch.directory, 'cni-'))
  const at = (name: string) => join(directory, name)
  await run('musl-gcc', ['-O2', '-static', '-o', at('ipledger-cni'), LAUNCHER])
  await run('cc', ['-O2', '-o', at('calls'), CALLS])

  const stage = await bench.stage('main')
  await stage.network({ network: NETWORK, cidr: '10.0.0.0/16', addresses: 0, held: 0, reserves: 0 })
  const { through, pids } = await stage.through(1)
  const [one] = through
  if (one?.kind !== 'service') throw new Error('a service is called')
  const agent = await startAgent(`http://${one.host}:${one.port}`, directory)
  try {
    const ranges = [[{ subnet: '10.0.0.0/16' }]]
    const configure = (name: string, ipam: object) => {
      const configuration = { cniVersion: '1.0.0', name: 'bench', type: 'bridge', ipam }
      writeFileSync(at(`${name}.json`), JSON.stringify(configuration))
    }
    configure('host-local', { type: 'host-local', dataDir: at('host-local'), ranges })
    configure('ipledger-cni', { type: 'ipledger-cni', network: NETWORK, agentSocket: agent.socket })

    let rounds = 0
    const usage = () => ({
      services: [...pids, agent.pid].reduce((sum, pid) => sum + cpuMs(pid), 0),
      postgres: clusterCpuMs(bench.scratch.postmaster()),
    })
    async function add(
      name: 'host-local' | 'ipledger-cni',
      callers: number,
      adds = bench.scale.adds,
    ): Promise<Figures> {
      rmSync(at('host-local'), { recursive: true, force: true })
      const plugin = name === 'host-local' ? HOST_LOCAL : at(name)
      rounds += 1
      const words = [plugin, at(`${name}.json`), `${name}-${rounds}`, String(adds), String(callers)]
      const before = usage()
      const { stdout } = await run(at('calls'), words, { maxBuffer: 1e8 })
      const after = usage()
      const [seconds, cpu, ...each] = stdout.trimEnd().split('\n').map(Number) as [
        number,
        number,
        ...number[],
      ]
      const ms = each.toSorted((a, b) => a - b)
      const percentile = (share: number) => ms[Math.ceil(ms.length * share) - 1]!
      return {
        perSecond: ms.length / seconds,
        p50: percentile(0.5),
        p99: percentile(0.99),
        cpu: cpu / seconds,
        services: (after.services - before.services) / (seconds * 1_000),
        postgres: (after.postgres - before.postgres) / (seconds * 1_000),
      }
    }

    // Agents run for long.
    if (bench.scale.rounds > 1) await add('ipledger-cni', 16, WARM_UP)
    for (const [callers, by, goal] of [
      [1, 'p50', { most: 1 }],
      [16, 'rate', { least: 3 }],
    ] as const) {
      const subject = (name: string): Subject => ({
        what: `${name}, ${callers} at a time`,
        work: 'reserve',
        callers,
        through,
      })
      const [floor, measured]: [Figures[], Figures[]] = [[], []]
      for (let round = 0; round < bench.scale.rounds * ROUNDS; round += 1) {
        floor.push(await add('host-local', callers))
        measured.push(await add('ipledger-cni', callers))
      }
      const beside = { subject: subject('ADD by host-local'), rounds: floor }
      bench.show(compare('cni', subject('ADD'), measured, { floor: beside, by, goal }))
    }
  } finally {
    agent.stop()
    rmSync(directory, { recursive: true, force: true })
  }
}

async function whatIsMissing(): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'an agent needs root'
  if (!existsSync(HOST_LOCAL)) return `there is no ${HOST_LOCAL} (Debian: containernetworking-plugins)`
  const hasCompilers = await run('sh', ['-c', 'command -v cc && command -v musl-gcc']).then(
    () => true,
    () => false,
  )
  return hasCompilers ? null : 'the launcher is built with musl-gcc (Debian: musl-tools gcc libc6-dev)'
}

type Agent = { readonly pid: number; readonly socket: string; stop(): void }

/** As on a node, with a source that is enabled. */
async function startAgent(url: string, directory: string): Promise<Agent> {
  const { liveness } = createClient({ url })
  const node = 'bench'
  const sight = { node, ownerKinds: ['pod', 'container', 'reserve'], interval: durationFromMs(30_000) }
  await liveness.registerSource({ network: NETWORK, id: node, sight })
  await liveness.enableSource({ network: NETWORK, id: node })
  const socket = join(directory, 'agent.sock')
  const state = join(directory, 'state')
  mkdirSync(state)
  const options = { network: NETWORK, node, bridge: 'bench0', socket, state, 'cni-cache': state }
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])
  const child = spawn(process.execPath, [MAIN, 'agent', ...words], {
    env: { PATH: process.env.PATH, IPLEDGER_URL: url, IPLEDGER_LOG_LEVEL: 'error' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  for await (const line of createInterface(child.stdout))
    if (line.includes('listening on')) return { pid: child.pid!, socket, stop: () => child.kill('SIGTERM') }
  throw new Error('the agent did not start')
}
