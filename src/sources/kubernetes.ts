/**
 * A Kubernetes cluster, asked at its API server: pods by name `<namespace>/<name>` and uid, with their addresses.
 *
 * - The list is paged at one resourceVersion and never taken from a cache (`resourceVersion=0`). Pages that come from
 *   another version, or run out while being paged (410), make it partial; so does a list that is older than the one before
 *   (kubernetes#59848: an API server that lags behind).
 * - A pod has ended if it has Succeeded or Failed, is not being deleted, and every container has the time when it finished
 *   (whereabouts#162). Every other pod is alive: containers of a Failed pod on a node that is out of reach may still run.
 *   A Pending pod has no address yet and is in no list; a look-up finds it.
 * - `gone`: the API server's own NotFound about this very pod, or a pod of the same name with another uid.
 * - Pods in their host's network are left out: they have their node's address.
 * - The epoch is the uid of the namespace kube-system, the cluster's only identity.
 */
import type { RequestOptions } from 'node:https'
import { z } from 'zod'
import { TERMINAL } from '../core/event.ts'
import type { Owner } from '../core/owner.ts'
import { type Answered, createGetJson, readAnswer } from './get-json.ts'
import { type Cluster, KubeConfig, type User } from './kubeconfig.ts'
import type { KubernetesSettings, Secrets } from './settings.ts'
import {
  draftOf,
  type GivenEntry,
  type Listing,
  type LookUp,
  type Page,
  type PulledSource,
  type Question,
  readPages,
} from './source.ts'

/** Pods of a page, 4 ms to parse. The API server's own clients ask for 500, which hold the process for 20. */
const PAGE = 100
const LARGEST_ANSWER = 32 * 1024 * 1024

const NAMESPACE = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/
const NAME = /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/

const text = z.string().nullish()
const containers = z
  .array(z.object({ state: z.object({ terminated: z.object({ finishedAt: text }).nullish() }).nullish() }))
  .nullish()
const addresses = { podIP: text, podIPs: z.array(z.object({ ip: text })).nullish() }
const pod = z.object({
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1),
    uid: z.string().min(1),
    deletionTimestamp: text,
  }),
  spec: z.object({
    nodeName: text,
    hostNetwork: z.boolean().nullish(),
    containers: z.array(z.unknown()).nullish(),
  }),
  status: z
    .object({
      phase: text,
      ...addresses,
      initContainerStatuses: containers,
      containerStatuses: containers,
      ephemeralContainerStatuses: containers,
    })
    .nullish(),
})
/** The addresses of a pod, also of one that cannot be read; only the first where the others are no text. */
const addressed = z
  .object({
    spec: z.object({ hostNetwork: z.boolean().nullish().catch(null) }).catch({ hostNetwork: null }),
    status: z.object({ podIP: addresses.podIP.catch(null), podIPs: addresses.podIPs.catch(null) }),
  })
  .transform(({ spec, status: { podIP, podIPs } }) => {
    const all = spec.hostNetwork === true ? [] : [podIP, ...(podIPs ?? []).map(({ ip }) => ip)]
    return all.flatMap((address) => address || [])
  })
const page = z.object({
  kind: z.literal('PodList'),
  items: z.array(z.unknown()),
  metadata: z.object({ continue: text, resourceVersion: z.string().min(1) }),
})
const kubeSystem = z.object({ metadata: z.object({ uid: z.string().min(1) }) })
const notFound = z.object({
  kind: z.literal('Status'),
  reason: z.literal('NotFound'),
  details: z.object({ kind: z.literal('pods'), name: z.string() }),
})

type Pod = z.infer<typeof pod>

export class Kubernetes implements PulledSource {
  readonly #config: KubeConfig
  readonly #cluster: Cluster
  readonly #getJson: ReturnType<typeof createGetJson>
  /** Of this cluster, the version of the last list. */
  #latest = { uid: '', version: 0n }

  constructor(settings: KubernetesSettings, secrets: Secrets | undefined) {
    this.#config = readKubeConfig(settings, secrets)
    const cluster = this.#config.getCurrentCluster()
    if (cluster === null) throw new Error('its kubeconfig names no cluster for its context')
    this.#cluster = cluster
    // Its certificates come with each call.
    this.#getJson = createGetJson(secrets && { origin: secrets.origin })
  }

  async list(signal: AbortSignal): Promise<Listing> {
    const epoch = await this.#clusterUid(signal)
    const draft = draftOf(pod.transform(describe), addressed)
    const readPage = async (from?: string): Promise<Page> => {
      const query = new URLSearchParams({ limit: String(PAGE), ...(from && { continue: from }) })
      const { items, metadata } = readAnswer(page, await this.#answerTo(`/api/v1/pods?${query}`, signal))
      const { resourceVersion: moment, continue: next } = metadata
      return { moment, items, next: next ? () => readPage(next) : null }
    }
    const { moment: version, because } = await readPages(draft, readPage)
    return draft.listing(epoch, because || this.#staleness(epoch, version))
  }

  async lookUp({ owner, epoch }: Question, signal: AbortSignal): Promise<LookUp> {
    const [namespace = '', name = '', ...more] = owner.name.split('/')
    if (!NAMESPACE.test(namespace) || !NAME.test(name) || more.length > 0)
      return { answer: 'unknown', detail: `${owner.name} is not <namespace>/<name> of a pod` }
    const answered = await this.#answerTo(`/api/v1/namespaces/${namespace}/pods/${name}`, signal)
    const found = answerAbout(owner, namespace, name, answered)
    if (found.answer !== 'gone' && found.answer !== 'terminal') return found
    // Another cluster that answers at this address since the last list knows nothing of this pod.
    const uid = await this.#clusterUid(signal)
    if (uid === epoch) return found
    return { answer: 'unknown', detail: `the cluster was ${epoch} and is ${uid}: ${found.detail}` }
  }

  async #answerTo(path: string, signal: AbortSignal): Promise<Answered> {
    const { server, proxyUrl } = this.#cluster
    const options: RequestOptions = {}
    await this.#config.applyToHTTPSOptions(options)
    // Its agent would keep certificates that have been renewed since; only the agent knows the way through a proxy.
    if (proxyUrl === undefined) delete options.agent
    return this.#getJson(new URL(server.replace(/\/+$/, '') + path), LARGEST_ANSWER, signal, options)
  }

  async #clusterUid(signal: AbortSignal): Promise<string> {
    return readAnswer(kubeSystem, await this.#answerTo('/api/v1/namespaces/kube-system', signal)).metadata.uid
  }

  /** Versions are numbers that grow, though the API server promises it only since 1.35. */
  #staleness(uid: string, text: string): string {
    if (!/^[0-9]{1,20}$/.test(text)) return ''
    const version = BigInt(text)
    const latest = this.#latest
    if (latest.uid === uid && version < latest.version)
      return `version ${version} is older than ${latest.version}, seen before`
    this.#latest = { uid, version }
    return ''
  }
}

function answerAbout(owner: Owner, namespace: string, name: string, answered: Answered): LookUp {
  // Of a server that knows pods and not this one; a 404 of anything else is an error.
  if (answered.status === 404 && notFound.safeParse(answered.body).data?.details.name === name)
    return { answer: 'gone', detail: `pods "${name}" not found` }
  const found = readAnswer(pod, answered)
  const { uid } = found.metadata
  if (found.metadata.name !== name || found.metadata.namespace !== namespace)
    return { answer: 'unknown', detail: 'the API server answers about another pod' }
  if (owner.uid !== owner.name && uid !== owner.uid)
    return { answer: 'gone', detail: `${owner.name} is another pod now, uid ${uid}` }
  const since = finishedAt(found)
  const detail = found.status?.phase ?? 'no phase'
  return since === null ? { answer: 'live', detail } : { answer: 'terminal', since, detail }
}

function describe(one: Pod): Omit<GivenEntry, 'address'> {
  const { name, namespace, uid, deletionTimestamp } = one.metadata
  const phase = (one.status?.phase ?? '').toLowerCase()
  // A phase of this name does not mean that it has ended.
  const alive = deletionTimestamp ? 'terminating' : phase === TERMINAL ? '' : phase
  const state = finishedAt(one) === null ? alive : TERMINAL
  return { kind: 'pod', name: `${namespace}/${name}`, uid, node: one.spec.nodeName ?? '', state }
}

/** When the last of its containers finished; null: it has not ended for good, or its statuses leave it open. */
function finishedAt({ metadata, spec, status }: Pod): number | null {
  if (status?.phase !== 'Succeeded' && status?.phase !== 'Failed') return null
  if (metadata.deletionTimestamp) return null
  const { containerStatuses, initContainerStatuses, ephemeralContainerStatuses } = status
  // A container without a status may still run.
  const reported = containerStatuses?.length ?? 0
  if (reported === 0 || reported < (spec.containers?.length ?? 0)) return null
  const finished = [containerStatuses, initContainerStatuses, ephemeralContainerStatuses]
    .flatMap((statuses) => statuses ?? [])
    .map(({ state }) => Date.parse(state?.terminated?.finishedAt ?? ''))
  // 0: the API server did not see the container's end.
  return finished.every((at) => at > 0) ? Math.max(...finished) : null
}

function readKubeConfig({ context, server }: KubernetesSettings, secrets: Partial<Secrets> = {}): KubeConfig {
  const config = new KubeConfig()
  if (server !== undefined) {
    const { ca, cert, key, token } = secrets
    const base64 = (pem?: string) => pem && Buffer.from(pem).toString('base64')
    const cluster = { name: 'cluster', server, skipTLSVerify: false, caData: base64(ca) }
    const user = { name: 'user', token, certData: base64(cert), keyData: base64(key) }
    config.loadFromClusterAndUser(cluster as Cluster, user as User)
    return config
  }
  if (secrets.kubeconfig !== undefined) config.loadFromString(secrets.kubeconfig)
  else if (secrets.kubeconfigFile !== undefined) config.loadFromFile(secrets.kubeconfigFile)
  else config.loadFromCluster()
  if (context !== undefined) config.setCurrentContext(context)
  return config
}
