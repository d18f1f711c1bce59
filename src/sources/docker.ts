/**
 * A Docker Engine: the containers that have an address on one of its networks. Of a network of our driver see `docker-endpoints.ts`.
 *
 * - A container is alive until `docker rm`, in every state. One that lost its address with a stop is in no list; a look-up finds it.
 * - The epoch is the engine's own id, which lies in its data root beside its containers: a restart keeps it, a new engine has another.
 * - The list is one answer, from the memory of the daemon that runs the containers.
 * - `inspect` takes ids, names and beginnings of ids alike, so its answer counts only for the very id or name that was asked for.
 * - There is no incarnation: StartedAt changes with each restart, while container, address and lease stay.
 */
import { z } from 'zod'
import { TERMINAL } from '../core/event.ts'
import { ENDPOINT_KIND, type Owner } from '../core/owner.ts'
import { openEndpoints } from './docker-endpoints.ts'
import { openEngine } from './docker-engine.ts'
import { type Answered, failure, readAnswer } from './get-json.ts'
import type { DockerSettings, Secrets } from './settings.ts'
import { draftOf, type GivenEntry, type LookUp, type PulledSource } from './source.ts'

/** An id or a name; nothing else goes into a path. */
const REFERENCE = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/
/** An id, or as much of it as people write; the engine itself accepts one digit. */
const ID = /^[0-9a-f]{12,64}$/

const text = z.string().nullish()
const endpoint = z.object({
  NetworkID: text,
  IPAddress: text,
  GlobalIPv6Address: text,
  IPAMConfig: z.object({ IPv4Address: text, IPv6Address: text }).nullish(),
})
/** Networks that can be read, of a container that cannot. */
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

export function openDocker(
  node: string,
  settings: DockerSettings,
  secrets: Secrets | undefined,
): PulledSource {
  const engine = openEngine(settings, secrets)
  if (settings.kind === ENDPOINT_KIND) return openEndpoints(node, engine)
  const prefix = node === '' ? '' : `${node}/`
  return {
    list: (signal) =>
      engine.list(signal, async ({ Id }) => {
        const filters = encodeURIComponent(JSON.stringify({ label: settings.labels }))
        const path = `/containers/json?all=true&filters=${filters}`
        const containers = await engine.get(z.array(z.unknown()), path, signal)
        const draft = draftOf(
          listed.transform((one) => ({ ...describe(one, prefix), kind: settings.kind })),
          attached.transform((one) => addressesOf(one, settings.network, Id)),
        )
        containers.forEach(draft.add)
        return draft
      }),

    async lookUp({ owner, epoch }, signal) {
      const unknown = (detail: string): LookUp => ({ answer: 'unknown', detail })
      const reference = referenceTo(owner, prefix)
      if (reference === null) return unknown(`${owner.name} names no container of this engine`)
      const answered = await engine.answerTo(`/containers/${reference}/json`, signal)
      if (isNoSuchContainer(answered, reference)) {
        // An engine that was set up anew since the last list, on another data root or at this address, knows nothing of it.
        const id = await engine.identify(signal)
        if (id !== epoch) return unknown(`the engine was ${epoch} and is ${id}, and has no such container`)
        return { answer: 'gone', detail: `no such container: ${reference}` }
      }
      const { Id, Name, State } = readAnswer(inspected, answered)
      const isIt = ID.test(reference) ? Id.startsWith(reference) : Name === `/${reference}`
      if (!isIt) return unknown(`the engine takes ${reference} for container ${Id}`)
      return { answer: 'live', detail: State.Status }
    },
  }
}

/** On a network, by id or name: a container that was stopped while its network was recreated has the old id. */
function addressesOf({ NetworkSettings }: z.infer<typeof attached>, named: string, id: string) {
  return Object.entries(NetworkSettings.Networks).flatMap(([name, one]) => {
    if (one === null || (name !== named && one.NetworkID !== id)) return []
    const { IPAddress, GlobalIPv6Address, IPAMConfig } = one
    const all = [IPAddress, GlobalIPv6Address, IPAMConfig?.IPv4Address, IPAMConfig?.IPv6Address]
    return all.flatMap((address) => address || [])
  })
}

function describe({ Id, Names, State }: z.infer<typeof listed>, prefix: string): Omit<GivenEntry, 'address'> {
  // A name with a second slash is a link of another container to this one.
  const name = Names?.find((one) => /^\/[^/]+$/.test(one))?.slice(1)
  // A listed container has not ended, also in a state of this name.
  const state = State === TERMINAL ? '' : State
  return { ...(name !== undefined && { name: prefix + name }), uid: Id, state }
}

/** An id, or the name of an owner without a uid; null: the engine cannot know it. */
function referenceTo({ uid, name }: Owner, prefix: string): string | null {
  if (ID.test(uid)) return uid
  if (uid !== name || !name.startsWith(prefix)) return null
  const reference = name.slice(prefix.length)
  return REFERENCE.test(reference) ? reference : null
}

/** The engine's own answer about this very container, not a 404 of a proxy in front of it. */
function isNoSuchContainer({ status, body }: Answered, reference: string): boolean {
  const message = failure.safeParse(body).data?.message ?? ''
  return (
    status === 404 &&
    /no such container/i.test(message) &&
    message.split(/[^A-Za-z0-9_.-]+/).includes(reference)
  )
}
