/**
 * A Docker Engine, asked over its socket or TCP: the containers that have an address on one of its networks.
 *
 * - A container is what `docker rm` ends. Stopped, created, paused, restarting, being removed or dead, it keeps the address
 *   it was given (`--ip`, or what it has while it runs), and is alive until the engine says "no such container". An address
 *   that the engine chose itself goes with a stop; such a container is then in no list, and a look-up finds it.
 * - The epoch is the engine's own id, which lies in its data root beside its containers: a restart of the daemon, or of the
 *   machine, is the same life, and an engine that was set up anew is another.
 * - The list is one answer, from the memory of the daemon that runs the containers. A daemon that is down or coming up does
 *   not answer, and the source is silent.
 * - The engine's `inspect` takes ids, names and beginnings of ids alike. Only what it answers about the very id, or name,
 *   that was asked for is taken as such.
 * - uid: the container's id. name: its name, and of a source of a node `<node>/<name>`, since engines know nothing of each
 *   other's names. No incarnation: the engine's only word for a life, StartedAt, changes with each restart, while container,
 *   address and lease stay. No interface: the engine does not know which of a container's is which.
 */
import { z } from 'zod'
import { TERMINAL } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'
import { type Answered, createGetJson, failure, readAnswer } from './get-json.ts'
import { type DockerSettings, engineOf, type Secrets } from './settings.ts'
import {
  type AskedSource,
  draftOf,
  type GivenEntry,
  type Listing,
  type LookUp,
  type Question,
} from './source.ts'

const LARGEST_LIST = 64 * 1024 * 1024
const LARGEST_ANSWER = 4 * 1024 * 1024
/** What the engine takes for an id or a name; nothing else goes into a path. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/
/** An id, or as much of it as people write; the engine itself is content with one digit. */
const ID = /^[0-9a-f]{12,64}$/

const text = z.string().nullish()
const endpoint = z.object({
  NetworkID: text,
  IPAddress: text,
  GlobalIPv6Address: text,
  IPAMConfig: z.object({ IPv4Address: text, IPv6Address: text }).nullish(),
})
/** Of a container that cannot be read the networks that can. */
const attached = z.object({
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpoint.nullable().catch(null)) }),
})
const listed = z.object({
  Id: z.string().regex(/^[0-9a-f]{64}$/),
  Names: z.array(z.string()).nullish(),
  State: z.string().min(1),
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpoint.nullable()) }),
})
const inspected = z.object({
  Id: z.string().min(1),
  Name: z.string(),
  State: z.object({ Status: z.string() }),
})
const identity = z.object({ ID: z.string().min(1) })
const network = z.object({ Id: z.string().min(1), Name: z.string() })

export function openDocker(
  node: string,
  settings: DockerSettings,
  secrets: Secrets | undefined,
): AskedSource {
  const getJson = createGetJson(secrets)
  const engine = engineOf(settings)
  const [base, options] = engine.startsWith('unix:')
    ? ['http://docker', { socketPath: engine.slice('unix:'.length) }]
    : [engine, {}]

  const answerTo = (path: string, signal: AbortSignal, largest = LARGEST_ANSWER) =>
    getJson(new URL(base + path), largest, signal, options)
  const get = async <T>(what: z.ZodType<T>, path: string, signal: AbortSignal, largest?: number) =>
    readAnswer(what, await answerTo(path, signal, largest))

  async function list(signal: AbortSignal): Promise<Listing> {
    const before = await get(identity, '/info', signal)
    const { Id: networkId, Name: networkName } = await get(network, `/networks/${settings.network}`, signal)
    // The engine is also content with the beginning of an id.
    if (settings.network !== networkId && settings.network !== networkName) {
      throw new Error(`the engine takes ${settings.network} for the network ${networkName}`)
    }
    const filters = encodeURIComponent(JSON.stringify({ label: settings.labels }))
    const path = `/containers/json?all=true&filters=${filters}`
    const containers = await get(z.array(z.unknown()), path, signal, LARGEST_LIST)
    const after = await get(identity, '/info', signal)
    // Also one that calls itself something else each time, as engines do that only speak the same API.
    if (before.ID !== after.ID) throw new Error(`the engine was ${before.ID} and then ${after.ID}`)

    const draft = draftOf(listed, (one) => addressesOf(one, networkId), describe)
    containers.forEach(draft.add)
    return draft.listing(before.ID)
  }

  function addressesOf(container: unknown, networkId: string): readonly string[] {
    const networks = attached.safeParse(container).data?.NetworkSettings.Networks ?? {}
    return Object.entries(networks).flatMap(([name, one]) => {
      // By name too: a container that was stopped while its network was made anew still has the old one's id.
      if (one === null || (name !== settings.network && one.NetworkID !== networkId)) return []
      const { IPAddress, GlobalIPv6Address, IPAMConfig } = one
      const all = [IPAddress, GlobalIPv6Address, IPAMConfig?.IPv4Address, IPAMConfig?.IPv6Address]
      return all.flatMap((address) => address || [])
    })
  }

  function describe({ Id, Names, State }: z.infer<typeof listed>): Omit<GivenEntry, 'address'> {
    // Another with a second slash is a link of another container to this one.
    const name = Names?.find((one) => /^\/[^/]+$/.test(one))?.slice(1)
    return {
      kind: settings.kind,
      ...(name !== undefined && { name: qualified(name) }),
      uid: Id,
      // Nothing that the engine lists has ended, whatever it calls it.
      state: State === TERMINAL ? '' : State,
    }
  }

  async function lookUp({ owner, epoch }: Question, signal: AbortSignal): Promise<LookUp> {
    const reference = referenceTo(owner)
    if (reference === null) {
      return { answer: 'unknown', detail: `${owner.name} names no container of this engine` }
    }
    const answered = await answerTo(`/containers/${reference}/json`, signal)
    if (isNoSuchContainer(answered, reference)) {
      // Of an engine that was set up anew since the last list, on another data root or at this address, it is no word.
      const { ID } = await get(identity, '/info', signal)
      return ID === epoch
        ? { answer: 'gone', detail: `no such container: ${reference}` }
        : { answer: 'unknown', detail: `the engine was ${epoch} and is ${ID}, and has no such container` }
    }
    const { Id, Name, State } = readAnswer(inspected, answered)
    const isIt = ID.test(reference) ? Id.startsWith(reference) : Name === `/${reference}`
    return isIt
      ? { answer: 'live', detail: State.Status }
      : { answer: 'unknown', detail: `the engine takes ${reference} for container ${Id}` }
  }

  /** An id, or the name of an owner that gave no id; of an id of somebody else's the engine knows nothing. */
  function referenceTo({ uid, name }: Owner): string | null {
    if (ID.test(uid)) return uid
    if (uid !== name || !name.startsWith(qualified(''))) return null
    const reference = name.slice(qualified('').length)
    return REFERENCE.test(reference) ? reference : null
  }

  function qualified(name: string): string {
    return node === '' ? name : `${node}/${name}`
  }

  return { list, lookUp }
}

/** The engine's own word for this very container. A 404 of whatever stands before the engine is none. */
function isNoSuchContainer({ status, body }: Answered, reference: string): boolean {
  const message = failure.safeParse(body).data?.message ?? ''
  return (
    status === 404 &&
    /no such container/i.test(message) &&
    message.split(/[^A-Za-z0-9_.-]+/).includes(reference)
  )
}
