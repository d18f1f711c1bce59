/**
 * The network namespaces of this node, the addresses in them, and the containers of processes. Read from the kernel by `nsenter`
 * and `ip`, one shell for a whole scan: 4 ms a namespace.
 */
import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statfsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { CniOwner } from './call.ts'

/** An address on an interface in a namespace. */
export type Seen = {
  readonly address: string
  readonly interface: string
  /** Identity of the namespace, the same for each of its paths. */
  readonly namespace: string
  /** To the bridge of the scan: a port of it, or an interface above it (macvlan, ipvlan). */
  readonly isConnected: boolean
}

export type Scan = {
  readonly seen: readonly Seen[]
  /** Every address of every interface, the node's own and those in namespaces. */
  readonly all: ReadonlySet<string>
  /** Every namespace could be read. */
  readonly complete: boolean
  /** All namespaces but the node's own, with a process in each, where there is one. */
  readonly namespaces: ReadonlyMap<string, { readonly path: string; readonly pid: number | null }>
}

type Link = {
  readonly ifindex: number
  readonly ifname: string
  readonly link_index?: number
  readonly master?: string
  readonly addr_info: readonly { readonly local: string; readonly scope: string }[]
}

/** The node's own. */
export const OWN = '/proc/self/ns/net'
/** Directories in which namespaces have names. */
const NAMED = ['/run/netns', '/run/docker/netns']
const NSFS = 0x6e736673
/** What a path has ends with NUL; what a program that failed printed is no JSON. */
const SCRIPT = 'while read -r p; do nsenter --net="$p" ip -j addr || echo "!"; printf "\\0"; done'
const SCAN_MS = 60_000
/** To read a namespace whose path was lost. */
const MOST_TRIES = 3

export const UNREAD = 'unread'

/** Identity of the namespace at a path; null: there is none; UNREAD: the path can't be looked at. */
export function namespaceAt(path: string): string | null {
  // The shell reads a path a line.
  if (path.includes('\n')) return UNREAD
  try {
    if (statfsSync(path).type !== NSFS) return null
    const { dev, ino } = statSync(path)
    return `${dev}:${ino}`
  } catch (error) {
    return isNone(error) ? null : UNREAD
  }
}

const isNone = (error: unknown) => ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code!)

/** Global addresses of interfaces, none where there is no such namespace; null: it can't be read, or is no network namespace. */
export async function addressesOf(
  interfaces: readonly { readonly netns: string; readonly interface: string }[],
): Promise<readonly (readonly string[] | null)[]> {
  const paths = [...new Set(interfaces.map(({ netns }) => netns))]
  const there = paths.filter((path) => ![null, UNREAD].includes(namespaceAt(path)))
  const links = await linksIn(there)
  const found = new Map(there.map((path, at) => [path, links[at]!]))
  return interfaces.map(({ netns, interface: on }) => {
    const inside = found.get(netns)
    if (!inside) return namespaceAt(netns) === null ? [] : null
    return inside.filter(({ ifname }) => ifname === on).flatMap(globalAddresses)
  })
}

/**
 * The addresses in all namespaces, and of the node's own those of `bridge`: a bridge, or the parent of macvlan and ipvlan
 * interfaces.
 */
export async function scanNode(bridge: string | null): Promise<Scan> {
  const own = namespaceAt(OWN)!
  const [host] = await linksIn([OWN])
  const device = host?.find(({ ifname }) => ifname === bridge)
  const ports = new Map(
    (host ?? []).filter(({ master }) => master === bridge).map((port) => [port.ifindex, port.link_index]),
  )
  const isConnected = ({ link_index: peer, ifindex }: Link) =>
    peer !== undefined && (ports.get(peer) === ifindex || peer === device?.ifindex)

  const { namespaces, hidden } = namespacesBut(own)
  const seen: Seen[] = (device === undefined ? [] : globalAddresses(device)).map((address) => ({
    address,
    interface: bridge!,
    namespace: own,
    isConnected: true,
  }))
  const { inside, unread } = await linksInside(namespaces, own)
  for (const [namespace, links] of inside)
    for (const link of links.filter(({ ifname }) => ifname !== 'lo'))
      for (const address of globalAddresses(link))
        seen.push({ address, interface: link.ifname, namespace, isConnected: isConnected(link) })
  const every = [host ?? [], ...inside.values()].flat()
  const all = new Set(every.flatMap(({ addr_info: list }) => list.map(({ local }) => local)))
  const complete = host !== null && !hidden && unread === 0
  return { seen, all, complete, namespaces }
}

/**
 * The links in each namespace, and how many namespaces can't be read. One that ended meanwhile has none; one that lost its path is
 * read by another, and so is a new one with the number of one that ended.
 */
async function linksInside(namespaces: Scan['namespaces'], own: string) {
  const inside = new Map<string, readonly Link[]>()
  let unread = namespaces
  for (let tries = 0; unread.size > 0 && tries < MOST_TRIES; tries += 1) {
    const links = await linksIn([...unread.values()].map(({ path }) => path))
    for (const [at, namespace] of [...unread.keys()].entries())
      if (links[at] != null) inside.set(namespace, links[at])
    const isLeft = [...unread.keys()].some((namespace) => !inside.has(namespace))
    const there = isLeft ? namespacesBut(own).namespaces : new Map()
    unread = new Map([...there].filter(([namespace]) => unread.has(namespace) && !inside.has(namespace)))
  }
  return { inside, unread: unread.size }
}

/** `hidden`: some can't be looked at. */
function namespacesBut(own: string): { readonly namespaces: Scan['namespaces']; readonly hidden: boolean } {
  const namespaces = new Map<string, { readonly path: string; readonly pid: number | null }>()
  let hidden = own === UNREAD
  const namesIn = (dir: string) => {
    try {
      return readdirSync(dir)
    } catch (error) {
      hidden ||= !isNone(error)
      return []
    }
  }
  const note = (path: string, pid: number | null) => {
    const namespace = namespaceAt(path)
    // The kernel refuses it too when the process has ended meanwhile.
    if (namespace === UNREAD) hidden ||= pid === null || existsSync(`/proc/${pid}`)
    // A path with a name outlives processes.
    else if (namespace !== null && namespace !== own)
      namespaces.set(namespace, { path: namespaces.get(namespace)?.path ?? path, pid })
  }
  for (const dir of NAMED) for (const name of namesIn(dir)) note(join(dir, name), null)
  // The first process is in the node's own namespace, and may be out of reach even for root.
  for (const pid of namesIn('/proc').filter((name) => /^\d+$/.test(name) && name !== '1'))
    note(`/proc/${pid}/ns/net`, Number(pid))
  return { namespaces, hidden }
}

const globalAddresses = ({ addr_info: list }: Link): readonly string[] =>
  list.filter(({ scope }) => scope === 'global').map(({ local }) => local)

/** Of each path its links; null: it can't be read. */
async function linksIn(paths: readonly string[]): Promise<readonly (readonly Link[] | null)[]> {
  if (paths.length === 0) return []
  const shell = spawn('sh', ['-c', SCRIPT], { stdio: ['pipe', 'pipe', 'ignore'], timeout: SCAN_MS })
  // A shell that cannot start has read nothing. Where files are at their limit, it has no pipes either.
  shell.on('error', () => {})
  if (shell.pid === undefined) return paths.map(() => null)
  shell.stdin.on('error', () => {}).end(paths.map((path) => `${path}\n`).join(''))
  let out = ''
  for await (const part of shell.stdout.setEncoding('utf8')) out += part
  const printed = out.split('\0')
  return paths.map((_, at) => {
    try {
      return JSON.parse(printed[at]!) as Link[]
    } catch {
      return null
    }
  })
}

/** The container or pod of a process, by the control group that its runtime made: Docker, containerd, CRI-O or Podman. */
export function containerOf(pid: number): Pick<CniOwner, 'kind' | 'uid'> | null {
  let groups: string
  try {
    groups = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
  } catch {
    return null
  }
  const pod = /pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})/.exec(groups)?.[1]
  if (pod !== undefined) return { kind: 'pod', uid: pod.replaceAll('_', '-') }
  const container = /[0-9a-f]{64}/.exec(groups)?.[0]
  return container === undefined ? null : { kind: 'container', uid: container }
}
