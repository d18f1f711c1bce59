/**
 * A real Docker Engine of a test's own, beside none that the machine may have: Debian's dockerd and containerd on
 * sockets and directories of their own, without a bridge of their own and without touching the firewall. As root.
 *
 * The image is a static busybox and nothing else. Containers outlive a stop of the daemon (`live-restore`), as on any
 * machine that is upgraded; `stop` and `kill` end the daemon and not them.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Docker from 'dockerode'
import { waitFor } from '../support/wait-for.ts'

export const BUSYBOX = '/bin/busybox'
export const IMAGE = 'busybox:test'
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin'
const START_MS = 60_000
const LONGEST_STOP_MS = 20_000

export type Engine = {
  readonly socketPath: string
  readonly docker: Docker
  /** Made on its own network, with this address, not started. */
  create(name: string, address: string): Promise<Docker.Container>
  run(name: string, address: string): Promise<Docker.Container>
  /** The daemon alone. */
  start(): Promise<void>
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>
  close(): Promise<void>
}

export const NETWORK = 'workloads'

export async function openEngine(subnet: string): Promise<Engine> {
  const home = mkdtempSync(join(tmpdir(), 'ipledger-docker-'))
  const socketPath = join(home, 'docker.sock')
  const containerdSocket = join(home, 'containerd.sock')
  const docker = new Docker({ socketPath })
  // Not what the machine's own engine is told.
  writeFileSync(join(home, 'docker.json'), '{}')
  writeFileSync(
    join(home, 'containerd.toml'),
    'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
  )
  const started: ChildProcess[] = []
  let daemon: ChildProcess | undefined

  function launch(command: string, args: readonly string[]): ChildProcess {
    const log = openSync(join(home, `${command}.log`), 'a')
    // They end with this process, however it ends.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', command, ...args], {
      stdio: ['ignore', log, log],
      env: { PATH },
    })
    started.push(child)
    return child
  }

  async function untilUp(child: ChildProcess, isUp: () => Promise<unknown>, what: string): Promise<void> {
    await waitFor(
      async () => {
        if (hasEnded(child)) return true
        await isUp()
        return true
      },
      { timeout: START_MS, every: 50, what },
    ).catch((error: unknown) => {
      throw new Error(`${what}: ${lastOf(home, child)}`, { cause: error })
    })
    if (hasEnded(child)) throw new Error(`${what}: it ended: ${lastOf(home, child)}`)
  }

  async function start(): Promise<void> {
    const child = launch('dockerd', [
      ...['--data-root', join(home, 'data'), '--exec-root', join(home, 'exec')],
      ...['--pidfile', join(home, 'docker.pid'), '--config-file', join(home, 'docker.json')],
      ...['--host', `unix://${socketPath}`, '--containerd', containerdSocket],
      ...[
        '--bridge',
        'none',
        '--iptables=false',
        '--ip6tables=false',
        '--ip-forward=false',
        '--userland-proxy=false',
      ],
      ...['--live-restore', '--exec-opt', 'native.cgroupdriver=cgroupfs'],
    ])
    daemon = child
    await untilUp(child, () => docker.ping(), 'the Docker daemon to start')
  }

  async function stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if (daemon !== undefined) await end(daemon, signal)
    daemon = undefined
  }

  async function create(name: string, address: string): Promise<Docker.Container> {
    return docker.createContainer({
      name,
      Image: IMAGE,
      Cmd: ['/bin/busybox', 'sleep', '3600'],
      HostConfig: { NetworkMode: NETWORK },
      NetworkingConfig: { EndpointsConfig: { [NETWORK]: { IPAMConfig: { IPv4Address: address } } } },
    })
  }

  async function close(): Promise<void> {
    try {
      if (daemon === undefined || hasEnded(daemon)) await start()
      for (const { Id } of await docker.listContainers({ all: true })) {
        await docker.getContainer(Id).remove({ force: true })
      }
      await docker.getNetwork(NETWORK).remove()
    } finally {
      for (const child of started.reverse()) await end(child, 'SIGTERM')
      // What a daemon that was killed left mounted.
      for (const line of readFileSync('/proc/self/mounts', 'utf8').split('\n').reverse()) {
        const mount = line.split(' ')[1]
        if (mount?.startsWith(home)) execFileSync('umount', ['--lazy', mount])
      }
      rmSync(home, { recursive: true, force: true })
    }
  }

  try {
    const containerd = launch('containerd', [
      ...['--config', join(home, 'containerd.toml'), '--address', containerdSocket],
      ...['--root', join(home, 'containerd'), '--state', join(home, 'containerd-state')],
    ])
    await untilUp(
      containerd,
      async () =>
        execFileSync('ctr', ['--address', containerdSocket, 'version'], { stdio: 'ignore', env: { PATH } }),
      'containerd to start',
    )
    await start()
    await importBusybox(docker, home)
    await docker.createNetwork({ Name: NETWORK, Driver: 'bridge', IPAM: { Config: [{ Subnet: subnet }] } })
  } catch (error) {
    await close().catch(() => {})
    throw error
  }

  return {
    socketPath,
    docker,
    create,
    async run(name, address) {
      const container = await create(name, address)
      await container.start()
      return container
    },
    start,
    stop,
    close,
  }
}

async function importBusybox(docker: Docker, home: string): Promise<void> {
  const tree = join(home, 'tree')
  mkdirSync(join(tree, 'bin'), { recursive: true })
  copyFileSync(BUSYBOX, join(tree, 'bin', 'busybox'))
  await importTree(docker, tree, IMAGE)
}

/** An image of the files of a directory. */
export async function importTree(docker: Docker, tree: string, image: string): Promise<void> {
  const [repo, tag] = image.split(':')
  await finished(docker, await docker.importImage(packed(tree, ['.']), { repo, tag }))
}

export function packed(directory: string, paths: readonly string[]): NodeJS.ReadableStream {
  const options = ['--create', '--owner=0', '--group=0', '--directory', directory]
  return spawn('tar', [...options, ...paths], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout
}

/** The engine has done what it tells of line by line; rejects with what it told when it failed. */
export async function finished(docker: Docker, telling: NodeJS.ReadableStream): Promise<void> {
  type Line = { readonly stream?: string; readonly error?: string }
  const lines = await new Promise<readonly Line[]>((resolve, reject) => {
    docker.modem.followProgress(telling, (error, told) => (error ? reject(error) : resolve(told)))
  })
  const failed = lines.find(({ error }) => error !== undefined)
  if (failed === undefined) return
  throw new Error(
    `${lines
      .map(({ stream }) => stream)
      .slice(-40)
      .join('')}${failed.error}`,
  )
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null
}

async function end(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (hasEnded(child)) return
  const late = setTimeout(() => child.kill('SIGKILL'), LONGEST_STOP_MS)
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
  clearTimeout(late)
}

function lastOf(home: string, { spawnargs }: ChildProcess): string {
  return readFileSync(join(home, `${spawnargs[3]}.log`), 'utf8')
    .split('\n')
    .slice(-12)
    .join('\n')
}
