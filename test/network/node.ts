/**
 * A node: a bridge and network namespaces of its own, the agent as a process, and CNI plugins called as a container runtime
 * calls them. What an interface really has is asked of the kernel, never of the books. As root, with Debian's
 * containernetworking-plugins, iproute2 and a C compiler.
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll } from 'vitest'
import { type Running, startProcess } from '../e2e/commands.ts'
import { ROOT } from '../support/root.ts'
import type { Rpc } from '../support/rpc.ts'
import { HOME } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

const PLUGINS = '/usr/lib/cni'
const ROOT_PATH = fileURLToPath(ROOT)

type Called = {
  readonly code: number
  /** What was on stdout. */
  // biome-ignore lint/suspicious/noExplicitAny: JSON as it came
  readonly body: any
  readonly stderr: string
}

type Command = 'ADD' | 'DEL' | 'CHECK' | 'GC' | 'STATUS' | 'VERSION'
type CallOptions = {
  /** Instead of `bridge`; the IPAM plugin alone, too. */
  readonly plugin?: 'bridge' | 'ptp' | 'macvlan' | 'ipledger-cni' | 'host-local'
  readonly args?: string
  readonly config?: object
  readonly ipam?: object
  /** Instead of the container's name. */
  readonly netns?: string
  readonly ifname?: string
  /** Told of the process, so that it can be killed. */
  readonly started?: (pid: number) => void
}

export type Node = Awaited<ReturnType<typeof openNode>>

let count = 0

/** One for a test file, `n1` by name. `env`: where its agent finds the service. */
export async function openNode(env: Readonly<Record<string, string>>) {
  count += 1
  const tag = `ipl${process.pid % 100_000}${String.fromCharCode(96 + count)}`
  const dir = mkdtempSync(join(HOME, 'ipledger-node-'))
  const socket = join(dir, 'agent.sock')
  const state = join(dir, 'state')
  const spaces = new Set<string>()
  buildPlugin(join(dir, 'bin'))
  const spaceOf = (container: string) => `${tag}-${container}`
  const agents = new Set<Running>()

  const node = {
    bridge: tag,
    dir,
    state,
    /** A namespace for a container; deleted at the end. */
    add(container: string): string {
      execFileSync('ip', ['netns', 'add', spaceOf(container)])
      spaces.add(container)
      return container
    },
    /** As a container ends that nobody cleans up after. */
    remove(container: string): void {
      execFileSync('ip', ['netns', 'del', spaceOf(container)])
      spaces.delete(container)
    },
    inside: (container: string, ...command: readonly string[]): string =>
      execFileSync('ip', ['netns', 'exec', spaceOf(container), ...command], { encoding: 'utf8' }),
    pathOf: (container: string): string => `/run/netns/${spaceOf(container)}`,
    processesIn: (container: string): readonly number[] =>
      execFileSync('ip', ['netns', 'pids', spaceOf(container)], { encoding: 'utf8' })
        .split('\n')
        .filter((line) => line !== '')
        .map(Number),
    /** Addresses of the bridge's network that the containers' interfaces have, by container. */
    addresses(): ReadonlyMap<string, readonly string[]> {
      return new Map([...spaces].map((container) => [container, addressesIn(spaceOf(container))]))
    },
    /** Waits until the agent answers. The last of an option given twice counts. */
    async startAgent(...more: readonly string[]): Promise<Running> {
      const args = ['agent', '--node', 'n1', '--bridge', tag, '--socket', socket, '--state', state]
      const running = startProcess([...args, '--cni-cache', join(dir, 'cache'), ...more], env)
      agents.add(running)
      await waitFor(
        () => {
          if (running.child.exitCode !== null) throw new Error(`the agent ended: ${running.stderr()}`)
          return running.stdout().includes('listening on')
        },
        { what: 'the agent to listen' },
      )
      return running
    },
    /** All that run. */
    async killAgent(): Promise<void> {
      for (const { child, finished } of agents) {
        child.kill('SIGKILL')
        await finished
      }
      agents.clear()
    },
    /** As a machine that goes down: agents, namespaces and sockets are gone; the disk stays. */
    async reboot(): Promise<void> {
      await node.killAgent()
      for (const container of [...spaces]) node.remove(container)
      rmSync(socket, { force: true })
    },
    /** As the container runtime's library writes down what ADD answered; null: a DEL was answered. */
    cache(container: string, added: Called['body'], args = ''): void {
      const results = join(dir, 'cache', 'results')
      const file = join(results, `blue-${container}-eth0`)
      if (added === null) {
        rmSync(file, { force: true })
        return
      }
      const cniArgs = args.split(';').flatMap((pair) => (pair === '' ? [] : [pair.split('=')]))
      const entry = { kind: 'cniCacheV1', containerId: container, ifName: 'eth0', cniArgs, result: added }
      mkdirSync(results, { recursive: true })
      writeFileSync(file, JSON.stringify(entry))
    },
    async call(command: Command, container: string, options: CallOptions = {}): Promise<Called> {
      const { plugin = 'bridge', args, netns = node.pathOf(container), ifname = 'eth0' } = options
      const ours = join(dir, 'bin')
      const service = { agentSocket: socket, stateDir: state, url: env.IPLEDGER_URL, node: 'n1' }
      const configuration = {
        cniVersion: '1.0.0',
        name: 'blue',
        type: 'bridge',
        bridge: tag,
        isGateway: true,
        ...options.config,
        ipam: { type: 'ipledger-cni', ...service, ...options.ipam },
      }
      return await run(join(plugin === 'ipledger-cni' ? ours : PLUGINS, plugin), {
        env: {
          PATH: `${join(ROOT_PATH, 'node_modules/.bin')}:${process.env.PATH}`,
          CNI_COMMAND: command,
          CNI_CONTAINERID: container,
          CNI_NETNS: netns,
          CNI_IFNAME: ifname,
          CNI_PATH: `${ours}:${PLUGINS}`,
          ...(args !== undefined && { CNI_ARGS: args }),
        },
        stdin: JSON.stringify(configuration),
        started: options.started,
      })
    },
  }

  afterAll(async () => {
    await node.killAgent()
    for (const container of [...spaces]) node.remove(container)
    try {
      execFileSync('ip', ['link', 'del', tag], { stdio: 'ignore' })
    } catch {
      // No ADD has made it.
    }
    rmSync(dir, { recursive: true, force: true })
  })
  return node
}

/** A program with this on stdin, to its end. */
function run(
  program: string,
  {
    env,
    stdin,
    started,
  }: { readonly env: object; readonly stdin: string; readonly started?: ((pid: number) => void) | undefined },
): Promise<Called> {
  return new Promise((resolve) => {
    const child = execFile(program, { env: env as NodeJS.ProcessEnv }, (error, stdout, stderr) => {
      const code = error === null ? 0 : Number(error.code ?? -1)
      resolve({ code, body: stdout === '' ? null : JSON.parse(stdout), stderr })
    })
    child.stdin!.on('error', () => {})
    child.stdin!.end(stdin)
    started?.(child.pid!)
  })
}

/** As `npm run build:cni` builds it, in a place of its own. */
function buildPlugin(to: string): void {
  mkdirSync(to)
  const inside = (path: string) => join(ROOT_PATH, path)
  execFileSync('cc', [
    '-O2',
    '-static',
    '-Wall',
    '-Wextra',
    '-Werror',
    '-o',
    join(to, 'ipledger-cni'),
    inside('src/cni/launcher.c'),
  ])
  const bundle = join(to, 'ipledger-cni.mjs')
  const options = ['--platform', 'node', '--format', 'esm', '-o', bundle, '--log-level', 'silent']
  execFileSync(inside('node_modules/.bin/rolldown'), [inside('src/cni/main.ts'), ...options], {
    stdio: 'ignore',
  })
}

type Interface = { readonly addr_info: readonly { readonly local: string; readonly scope: string }[] }

function addressesIn(space: string): readonly string[] {
  const found: readonly Interface[] = JSON.parse(
    execFileSync('ip', ['-n', space, '-j', 'addr'], { encoding: 'utf8' }),
  )
  return found.flatMap(({ addr_info: list }) =>
    list.filter(({ scope }) => scope === 'global').map(({ local }) => local),
  )
}

/** A source of node `n1`, enabled. */
export async function enableSource({ ok }: Pick<Rpc, 'ok'>, id = 'n1', more: object = {}): Promise<void> {
  const sight = { node: 'n1', ownerKinds: ['pod', 'container'], interval: '1s', ...more }
  await ok('LivenessService/RegisterSource', { id, sight })
  await ok('LivenessService/EnableSource', { id })
}

export type Held = {
  readonly address: string
  readonly leaseId: string
  readonly state: string
  readonly owner: Readonly<Record<string, string>>
}
/** What the service holds. */
export function heldBy({ ok }: Pick<Rpc, 'ok'>) {
  const leases = async (filter: object = {}): Promise<readonly Held[]> =>
    (await ok('LeaseService/ListLeases', { pageSize: 1_000, ...filter })).leases
  const leasesOf = (ownerUid: string) => leases({ ownerUid })
  const untilActive = (uid: string) =>
    waitFor(async () => (await leasesOf(uid)).every(({ state }) => state === 'ACTIVE'), {
      what: `${uid} to be confirmed`,
    })
  const untilReleased = (uid: string) =>
    waitFor(async () => (await leasesOf(uid)).length === 0, { what: `${uid} to be released` })
  return { leases, leasesOf, untilActive, untilReleased }
}

/** Addresses that more than one interface has. */
export function doubles(node: Pick<Node, 'addresses'>): readonly string[] {
  const all = [...node.addresses().values()].flat()
  return all.filter((address, at) => all.indexOf(address) !== at)
}

/** Of a successful ADD. */
export const given = ({ code, body }: Called): readonly string[] => {
  if (code !== 0) throw new Error(`the plugin failed: ${JSON.stringify(body)}`)
  return body.ips.map(({ address }: { readonly address: string }) => address.split('/')[0]!)
}
