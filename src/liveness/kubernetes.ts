/**
 * A Kubernetes cluster, asked at its API server: pods by name `<namespace>/<name>` and uid, with their addresses.
 *
 * - The list is paged at one resourceVersion and never taken from a cache (`resourceVersion=0`). Pages that come from
 *   another version, or run out while being paged (410), make it incomplete; so does one that is older than the one
 *   before (kubernetes#59848: an API server that lags behind).
 * - Phases, as whereabouts#162 teaches: everything is alive but a pod that has Succeeded or Failed, is not being
 *   deleted, and of which every container says when it finished. A Failed pod on a node that nobody hears from still
 *   says "running" of its containers, and they may be. A Pending pod has no address yet and is in no list; a look-up
 *   finds it.
 * - `gone`: the API server's own NotFound about this very pod, or a pod of the same name with another uid.
 * - Pods in their host's network have their node's address, which no lease has: ignored.
 * - The epoch is the uid of the namespace kube-system, the cluster's only identity: another cluster at the same address
 *   is another life. Rights needed: list and get pods, get the namespace kube-system.
 */
import {
  ApiException,
  CoreV1Api,
  createConfiguration,
  KubeConfig,
  type RequestContext,
  type ResponseContext,
  ServerConfiguration,
} from '@kubernetes/client-node'
import { z } from 'zod'
import type { KubernetesSettings, Secrets } from './asked.ts'
import type { AskedSource, GivenEntry, Listing, LookUpReply, Question } from './source.ts'

export const POD = 'pod'

/** Pods of a page: what the API server's own clients ask for. */
const PAGE = 500
const MOST_PAGES = 1_000
const MOST_TOLD = 3

const NAMESPACE = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/
const NAME = /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/

const text = z.string().nullish()
const time = z.date().nullish()
const container = z.object({
  state: z.object({ terminated: z.object({ finishedAt: time }).nullish() }).nullish(),
})
const pod = z.object({
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1),
    uid: z.string().min(1),
    deletionTimestamp: time,
  }),
  spec: z.object({
    nodeName: text,
    hostNetwork: z.boolean().nullish(),
    containers: z.array(z.unknown()).nullish(),
  }),
  status: z
    .object({
      phase: text,
      podIP: text,
      podIPs: z.array(z.object({ ip: text })).nullish(),
      initContainerStatuses: z.array(container).nullish(),
      containerStatuses: z.array(container).nullish(),
      ephemeralContainerStatuses: z.array(container).nullish(),
    })
    .nullish(),
})
/** Of a pod that cannot be read the rest; the first of its addresses, where the others are no text. */
const withAddresses = z.object({
  spec: z.object({ hostNetwork: z.boolean().nullish().catch(null) }).catch({ hostNetwork: null }),
  status: z.object({
    podIP: text.catch(null),
    podIPs: z
      .array(z.object({ ip: text }))
      .nullish()
      .catch(null),
  }),
})
const page = z.object({
  items: z.array(z.unknown()),
  metadata: z.object({ _continue: text, resourceVersion: z.string().min(1) }),
})
const namespaceRead = z.object({ metadata: z.object({ uid: z.string().min(1) }) })
const notFound = z.object({
  kind: z.literal('Status'),
  reason: z.literal('NotFound'),
  details: z.object({ kind: z.literal('pods'), name: z.string() }),
})

type Pod = z.infer<typeof pod>

export function openKubernetes(settings: KubernetesSettings, secrets: Secrets): AskedSource {
  const config = readKubeConfig(settings, secrets)
  const cluster = config.getCurrentCluster()
  if (cluster === null) throw new Error('its kubeconfig names no cluster for its context')
  let latest: bigint | null = null

  /** A client whose requests end with the signal. */
  const client = (signal: AbortSignal): CoreV1Api =>
    new CoreV1Api(
      createConfiguration({
        baseServer: new ServerConfiguration(cluster.server, {}),
        authMethods: { default: config },
        promiseMiddleware: [
          {
            pre: async (context: RequestContext) => {
              context.setSignal(signal)
              return context
            },
            post: async (context: ResponseContext) => context,
          },
        ],
      }),
    )

  async function list(signal: AbortSignal): Promise<Listing> {
    const api = client(signal)
    const uid = await clusterOf(api)
    const entries: GivenEntry[] = []
    const unread: string[] = []
    const listing = (incompleteBecause: string): Listing => ({
      epoch: uid,
      complete: incompleteBecause === '',
      incompleteBecause,
      entries,
    })
    let version: string | undefined
    let next: string | undefined
    for (let number = 0; number < MOST_PAGES; number += 1) {
      let answered: z.infer<typeof page>
      try {
        answered = page.parse(
          await api.listPodForAllNamespaces({
            limit: PAGE,
            ...(next === undefined ? {} : { _continue: next }),
          }),
        )
      } catch (error) {
        // What was read so far protects.
        if (next !== undefined) return listing(`page ${number + 1}: ${messageOf(error)}`)
        throw error
      }
      const { resourceVersion, _continue } = answered.metadata
      version ??= resourceVersion
      for (const item of answered.items) {
        const read = pod.safeParse(item)
        if (read.success) {
          entries.push(...entriesOf(read.data))
          continue
        }
        unread.push(`${describe(item)}: ${z.prettifyError(read.error)}`)
        // In use, whatever else is wrong with it (INV-12).
        const addressed = withAddresses.safeParse(item)
        if (addressed.success) entries.push(...addressesOf(addressed.data).map((address) => ({ address })))
      }
      if (resourceVersion !== version) {
        return listing(`page ${number + 1} is of version ${resourceVersion}, and the first of ${version}`)
      }
      if (!_continue) return listing(staleness(version) || unreadable(unread))
      next = _continue
    }
    return listing(`it has more than ${MOST_PAGES} pages`)
  }

  /** Versions are numbers that grow, though the API server promises it only since 1.35. */
  function staleness(version: string): string {
    if (!/^[0-9]{1,20}$/.test(version)) return ''
    const number = BigInt(version)
    if (latest !== null && number < latest) return `version ${version} is older than ${latest}, seen before`
    latest = number
    return ''
  }

  async function lookUp(question: Question, signal: AbortSignal): Promise<LookUpReply> {
    const reply = await lookUpHere(question, signal)
    if (reply.answer !== 'gone' && reply.answer !== 'terminal') return reply
    // Of another cluster that answers at this address since the last list it is no word (5.1).
    const uid = await clusterOf(client(signal)).catch((error: unknown) => {
      throw new Error(messageOf(error), { cause: error })
    })
    return uid === question.epoch
      ? reply
      : { answer: 'unknown', detail: `the cluster was ${question.epoch} and is ${uid}: ${reply.detail}` }
  }

  async function lookUpHere({ owner }: Question, signal: AbortSignal): Promise<LookUpReply> {
    const [namespace, name, ...more] = owner.name.split('/')
    if (!NAMESPACE.test(namespace ?? '') || !NAME.test(name ?? '') || more.length > 0) {
      return { answer: 'unknown', detail: `${owner.name} is not <namespace>/<name> of a pod` }
    }
    let found: Pod
    try {
      found = pod.parse(await client(signal).readNamespacedPod({ namespace: namespace!, name: name! }))
    } catch (error) {
      if (isNotFound(error, name!)) return { answer: 'gone', detail: `pods "${name}" not found` }
      throw new Error(messageOf(error), { cause: error })
    }
    if (found.metadata.name !== name || found.metadata.namespace !== namespace) {
      return { answer: 'unknown', detail: 'the API server answers about another pod' }
    }
    const { uid } = found.metadata
    if (owner.uidNamed && uid !== owner.uid) {
      return { answer: 'gone', detail: `${owner.name} is another pod now, uid ${uid}` }
    }
    const since = endedSince(found)
    const detail = found.status?.phase ?? 'no phase'
    return since === null ? { answer: 'live', detail } : { answer: 'terminal', since, detail }
  }

  return {
    list,
    lookUp,
    // Connections are the client's, and end when nobody uses them.
    close: async () => {},
  }
}

async function clusterOf(api: CoreV1Api): Promise<string> {
  return namespaceRead.parse(await api.readNamespace({ name: 'kube-system' })).metadata.uid
}

function entriesOf(one: Pod): GivenEntry[] {
  const { metadata, spec, status } = one
  const { name, namespace, uid } = metadata
  const state = endedSince(one) === null ? wordFor(one) : 'terminal'
  return addressesOf({ spec, status }).map((address) => ({
    address,
    kind: POD,
    name: `${namespace}/${name}`,
    uid,
    node: spec.nodeName ?? '',
    state,
  }))
}

type Addressed = Pick<Pod, 'status'> & { readonly spec: Pick<Pod['spec'], 'hostNetwork'> }

function addressesOf({ spec, status }: Addressed): readonly string[] {
  if (spec.hostNetwork === true) return []
  const given = [status?.podIP, ...(status?.podIPs ?? []).map(({ ip }) => ip)]
  return [...new Set(given)].flatMap((address) => (address ? [address] : []))
}

function wordFor({ metadata, status }: Pod): string {
  if (metadata.deletionTimestamp) return 'terminating'
  const phase = (status?.phase ?? '').toLowerCase()
  // Not the one word that means ended.
  return phase === 'terminal' ? '' : phase
}

/** When the last of its containers finished; null: it has not ended for good, or it does not say so. */
function endedSince({ metadata, spec, status }: Pod): number | null {
  if (status?.phase !== 'Succeeded' && status?.phase !== 'Failed') return null
  if (metadata.deletionTimestamp) return null
  const { containerStatuses, initContainerStatuses, ephemeralContainerStatuses } = status
  // A pod that never started one says nothing of them.
  if (!containerStatuses || containerStatuses.length === 0) return null
  // Of one that is not mentioned nobody says that it has finished (M-08).
  if (containerStatuses.length < (spec.containers?.length ?? 0)) return null
  const finished = [
    ...containerStatuses,
    ...(initContainerStatuses ?? []),
    ...(ephemeralContainerStatuses ?? []),
  ].map(({ state }) => state?.terminated?.finishedAt?.getTime() ?? null)
  // 0: the API server's word for a container whose end nobody saw.
  return finished.every((at) => at !== null && at > 0) ? Math.max(...(finished as number[])) : null
}

/** Of a server that knows pods and not this one; a 404 of anything else is none (M-09). */
function isNotFound(error: unknown, name: string): boolean {
  if (!(error instanceof ApiException) || error.code !== 404) return false
  const read = notFound.safeParse(jsonOf(error.body))
  return read.success && read.data.details.name === name
}

function jsonOf(body: unknown): unknown {
  if (typeof body !== 'string') return body
  try {
    return JSON.parse(body)
  } catch {
    return null
  }
}

/** The client's messages have all headers in them. */
function messageOf(error: unknown): string {
  if (error instanceof ApiException) {
    const said = z.object({ message: z.string() }).safeParse(jsonOf(error.body))
    return `the API server answers ${error.code}${said.success ? `: ${said.data.message}` : ''}`
  }
  if (error instanceof z.ZodError) return `the API server's answer cannot be read: ${z.prettifyError(error)}`
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}

function describe(item: unknown): string {
  const read = z.object({ metadata: z.object({ namespace: z.string(), name: z.string() }) }).safeParse(item)
  return read.success ? `${read.data.metadata.namespace}/${read.data.metadata.name}` : 'a pod without a name'
}

function unreadable(unread: readonly string[]): string {
  return unread.length === 0
    ? ''
    : `${unread.length} pods cannot be read: ${unread.slice(0, MOST_TOLD).join('; ')}`
}

function readKubeConfig({ context, server }: KubernetesSettings, secrets: Secrets): KubeConfig {
  const config = new KubeConfig()
  if (server !== undefined) {
    const { ca, cert, key, token } = secrets
    const base64 = (pem: string): string => Buffer.from(pem).toString('base64')
    config.loadFromClusterAndUser(
      { name: 'cluster', server, skipTLSVerify: false, ...(ca !== undefined && { caData: base64(ca) }) },
      {
        name: 'user',
        ...(token !== undefined && { token }),
        ...(cert !== undefined && { certData: base64(cert) }),
        ...(key !== undefined && { keyData: base64(key) }),
      },
    )
    return config
  }
  if (secrets.kubeconfig !== undefined) config.loadFromString(secrets.kubeconfig)
  else if (secrets.kubeconfigFile !== undefined) config.loadFromFile(secrets.kubeconfigFile)
  else config.loadFromCluster()
  if (context !== undefined) config.setCurrentContext(context)
  return config
}
