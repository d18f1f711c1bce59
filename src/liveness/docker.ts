/**
 * A Docker Engine, asked over its socket or TCP: the containers that have an address on one of its networks.
 *
 * - A container is what `docker rm` ends. Stopped, created, paused, restarting, being removed or dead, it keeps the
 *   address it was given (`--ip`, or what it has while it runs), and is alive until the engine says "no such container".
 *   An address that the engine chose itself goes with a stop; such a container is then in no list, and a look-up finds it.
 * - The epoch is the engine's own id, which lies in its data root beside its containers: a restart of the daemon, or of
 *   the machine, is the same life, and an engine that was set up anew is another. So a Docker source must not declare
 *   that a new boot ends all, and never gets one.
 * - The list is one answer, from the memory of the daemon that runs the containers. A daemon that is down or coming up
 *   does not answer, and the source is silent.
 * - The engine's `inspect` takes ids, names and beginnings of ids alike. Only what it answers about the very id, or name,
 *   that was asked for is taken as such.
 * - uid: the container's id. name: its name, and of a source of a node `<node>/<name>`, since engines know nothing of
 *   each other's names. No incarnation: the engine's only word for a life, StartedAt, changes with each restart, while
 *   container, address and lease stay, and a lease that was reserved before the start cannot know it. No interface:
 *   the engine does not know which of a container's is which.
 */
import Docker from 'dockerode'
import { z } from 'zod'
import { TERMINAL } from '../core/command.ts'
import type { Owner } from '../core/owner.ts'
import type { Declared, DockerSettings, Secrets } from './asked.ts'
import type { AskedSource, GivenEntry, Listing, LookUpReply, Question } from './source.ts'

const SOCKET = '/var/run/docker.sock'
/** What the engine takes for an id or a name; nothing else goes into a path. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/
/** Ids as people write them; the engine itself is content with one digit. */
const SHORT_ID = /^[0-9a-f]{12,63}$/
const MOST_TOLD = 3

const text = z.string().nullish()
const endpoint = z.object({
  NetworkID: text,
  IPAddress: text,
  GlobalIPv6Address: text,
  IPAMConfig: z.object({ IPv4Address: text, IPv6Address: text }).nullish(),
})
const listed = z.object({
  Id: z.string().regex(/^[0-9a-f]{64}$/),
  Names: z.array(z.string()).nullish(),
  State: z.string().min(1),
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpoint.nullable()) }),
})
/** Of a container that cannot be read the networks that can. */
const withNetworks = z.object({
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpoint.nullable().catch(null)) }),
})
const inspected = z.object({
  Id: z.string().min(1),
  Name: z.string(),
  State: z.object({ Status: z.string() }),
})
const identity = z.object({ ID: z.string().min(1) })
const network = z.object({ Id: z.string().min(1), Name: z.string() })
const failure = z.object({ statusCode: z.number(), json: z.object({ message: z.string() }) })

type Listed = z.infer<typeof listed>

export function openDocker(
  { node }: Pick<Declared, 'node'>,
  settings: DockerSettings,
  secrets: Secrets,
): AskedSource {
  const engine = new Docker(whereabouts(settings, secrets))
  // The types know nothing of their options.
  const info = engine.info.bind(engine) as (options: object) => Promise<unknown>
  const on = engine.getNetwork(settings.network)
  const inspectNetwork = on.inspect.bind(on) as (options: object) => Promise<unknown>

  async function list(abortSignal: AbortSignal): Promise<Listing> {
    const before = identity.parse(await info({ abortSignal }))
    const { Id: networkId, Name: networkName } = network.parse(await inspectNetwork({ abortSignal }))
    // The engine is also content with the beginning of an id.
    if (settings.network !== networkId && settings.network !== networkName) {
      throw new Error(`the engine takes ${settings.network} for the network ${networkName}`)
    }
    const filters = { label: [...settings.labels] }
    const containers = z
      .array(z.unknown())
      .parse(await engine.listContainers({ all: true, filters, abortSignal }))
    const after = identity.parse(await info({ abortSignal }))
    // Also one that calls itself something else each time, as engines do that only speak the same API.
    if (before.ID !== after.ID) throw new Error(`the engine was ${before.ID} and then ${after.ID}`)

    const entries: GivenEntry[] = []
    const unread: string[] = []
    for (const container of containers) {
      const read = listed.safeParse(container)
      if (read.success) {
        entries.push(...entriesOf(read.data, networkId))
        continue
      }
      unread.push(`${JSON.stringify(container)?.slice(0, 100)}: ${z.prettifyError(read.error)}`)
      // In use, whatever else is wrong with it (INV-12).
      const attached = withNetworks.safeParse(container)
      if (attached.success) {
        entries.push(...addressesOf(attached.data, networkId).map((address) => ({ address, node })))
      }
    }
    return {
      epoch: before.ID,
      complete: unread.length === 0,
      incompleteBecause:
        unread.length === 0
          ? ''
          : `${unread.length} containers cannot be read: ${unread.slice(0, MOST_TOLD).join('; ')}`,
      entries,
    }
  }

  function addressesOf({ NetworkSettings }: Pick<Listed, 'NetworkSettings'>, networkId: string): string[] {
    const addresses = new Set<string>()
    for (const [name, one] of Object.entries(NetworkSettings.Networks)) {
      // By name too: a container that was stopped while its network was made anew still has the old one's id.
      if (one === null || (name !== settings.network && one.NetworkID !== networkId)) continue
      for (const address of [
        one.IPAddress,
        one.GlobalIPv6Address,
        one.IPAMConfig?.IPv4Address,
        one.IPAMConfig?.IPv6Address,
      ]) {
        if (address) addresses.add(address)
      }
    }
    return [...addresses]
  }

  function entriesOf(one: Listed, networkId: string): GivenEntry[] {
    const { Id, Names, State } = one
    // Another with a second slash is a link of another container to this one.
    const name = Names?.find((one) => /^\/[^/]+$/.test(one))?.slice(1)
    return addressesOf(one, networkId).map((address) => ({
      address,
      kind: settings.kind,
      ...(name === undefined ? {} : { name: qualified(name) }),
      uid: Id,
      node,
      // The engine's word; but nothing that it lists has ended.
      state: State === TERMINAL ? '' : State,
    }))
  }

  async function lookUp({ owner, epoch }: Question, abortSignal: AbortSignal): Promise<LookUpReply> {
    const reference = referenceTo(owner)
    if (reference === null)
      return { answer: 'unknown', detail: `${owner.name} names no container of this engine` }
    let found: z.infer<typeof inspected>
    try {
      found = inspected.parse(await engine.getContainer(reference).inspect({ abortSignal }))
    } catch (error) {
      if (!isGone(error, reference)) throw error
      // Of an engine that was set up anew since the last list, on another data root or at this address, it is no word (5.1).
      const { ID } = identity.parse(await info({ abortSignal }))
      return ID === epoch
        ? { answer: 'gone', detail: `no such container: ${reference}` }
        : { answer: 'unknown', detail: `the engine was ${epoch} and is ${ID}, and has no such container` }
    }
    const { Id, Name, State } = found
    const isIt = owner.uidNamed
      ? Id === owner.uid || (SHORT_ID.test(owner.uid) && Id.startsWith(owner.uid))
      : Name === `/${reference}`
    return isIt
      ? { answer: 'live', detail: State.Status }
      : { answer: 'unknown', detail: `the engine takes ${reference} for container ${Id}` }
  }

  function referenceTo({ uid, uidNamed, name }: Owner): string | null {
    const prefix = qualified('')
    if (!uidNamed && !name.startsWith(prefix)) return null
    const reference = uidNamed ? uid : name.slice(prefix.length)
    return REFERENCE.test(reference) ? reference : null
  }

  function qualified(name: string): string {
    return node === '' ? name : `${node}/${name}`
  }

  return {
    list,
    lookUp,
    // Connections are the process's, and end when nobody uses them.
    close: async () => {},
  }
}

/** The engine's own word for this very container. A 404 of whatever stands before the engine is none (M-09). */
function isGone(error: unknown, reference: string): boolean {
  const read = failure.safeParse(error)
  if (!read.success || read.data.statusCode !== 404) return false
  const { message } = read.data.json
  return /no such container/i.test(message) && message.split(/[^A-Za-z0-9_.-]+/).includes(reference)
}

function whereabouts(settings: DockerSettings, { ca, cert, key }: Secrets): Docker.DockerOptions {
  const { host, port, tls = false } = settings
  if (host === undefined) return { socketPath: settings.socketPath ?? SOCKET }
  return {
    protocol: tls ? 'https' : 'http',
    host,
    port: port!,
    ...(tls && ca !== undefined && { ca }),
    ...(tls && cert !== undefined && { cert }),
    ...(tls && key !== undefined && { key }),
  }
}
