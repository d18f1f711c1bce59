/**
 * Sources that are asked: what each kind is told by its declaration, and one open connection for each.
 *
 * A declaration says where and how (`settings`) and comes over the API; secrets are the server's own configuration, a
 * file that IPLEDGER_SOURCE_SECRETS names and that is read when a worker starts. So no secret is ever in a request, in
 * the database, or in an answer.
 *
 * docker      `socketPath` (default /var/run/docker.sock), or `host` and `port` with `tls`; `network`: the Docker network
 *             whose addresses are meant, by name or id; `kind` of owner (default `container`); `labels`: only containers
 *             that have all of them (`team`, `team=web`). Secrets: `ca`, `cert`, `key`.
 * kubernetes  `context` of the kubeconfig, or `server`: URL of the API server; neither: the cluster the worker runs in.
 *             Secrets: `kubeconfig` (its text) or `kubeconfigFile`; with `server`: `token`, `ca`, `cert`, `key`.
 * http        `listUrl` and `lookUpUrl`, as `http.ts` says. Secrets: `token` (sent as bearer), `ca`, `cert`, `key`.
 *
 * What a kind needs is loaded when the first source of it is used: a process that asks nobody loads nothing.
 */
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { StartRefused } from '../config.ts'
import { invalid, type Refusal } from '../core/refusal.ts'
import { MOST_ENTRIES } from './report.ts'
import type { AskedSource, Listing, SourceKind } from './source.ts'
import type { Source } from './source-rows.ts'

export type AskedSources = {
  /** Opened once for as long as its declaration stays. One that cannot be opened rejects when it is used. */
  get(source: Declared): AskedSource
  close(): Promise<void>
}

/** What decides how a source is asked. */
export type Declared = Pick<Source, 'network' | 'id' | 'kind' | 'node' | 'settings'>

// Settings.

const LONGEST_EPOCH = 253
const MOST_LABELS = 16

const line = (most: number) =>
  z
    .string()
    .min(1, 'must not be empty')
    .max(most, `must be at most ${most} characters`)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
    .regex(/^[^\u0000-\u001f\u007f]*$/, 'must not contain control characters')

const url = line(2_000).refine(isPlainUrl, 'must be an http or https URL without user, password and fragment')

export const dockerSettings = z
  .strictObject({
    /** Sockets have short paths (sockaddr_un). */
    socketPath: line(107).startsWith('/', 'must be an absolute path').optional(),
    host: line(253)
      .regex(/^[A-Za-z0-9.:_-]+$/, 'must be a host name or an address')
      .optional(),
    port: z.number().int().min(1).max(65_535).optional(),
    tls: z.boolean().optional(),
    network: line(253).regex(/^[A-Za-z0-9][A-Za-z0-9_.-]*$/, 'must be the name or id of a Docker network'),
    kind: line(63)
      .regex(/^[a-z][a-z0-9-]*$/, 'must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter')
      .default('container'),
    labels: z.array(line(253)).max(MOST_LABELS, `must be at most ${MOST_LABELS}`).default([]),
  })
  .refine((one) => one.host === undefined || one.socketPath === undefined, {
    path: ['socketPath'],
    message: 'must not be given with host: a source has one engine',
  })
  .refine((one) => (one.host === undefined) === (one.port === undefined), {
    path: ['port'],
    message: 'goes with host: give both, or neither and the socket is used',
  })
  .refine((one) => one.tls === undefined || one.host !== undefined, {
    path: ['tls'],
    message: 'is for an engine that is reached by host and port',
  })

export const kubernetesSettings = z
  .strictObject({
    context: line(253).optional(),
    server: url.refine((server) => server.startsWith('https:'), 'must be an https URL').optional(),
  })
  .refine((one) => one.context === undefined || one.server === undefined, {
    path: ['context'],
    message: 'must not be given with server: a context names its own',
  })

/** One that names the workload: an answer about another is not an answer. */
export const httpSettings = z.strictObject({
  listUrl: url,
  lookUpUrl: line(2_000)
    .refine((template) => {
      const filled = template.replace(/\{(?:kind|name|uid)\}/g, 'x')
      return isPlainUrl(filled) && !/[{}]/.test(filled)
    }, 'must be an http or https URL; what is in braces must be {kind}, {name} or {uid}')
    .refine((template) => /\{uid\}|\{name\}/.test(template), 'must contain {uid} or {name}')
    .refine((template) => !/^[^/]*\/\/[^/]*\{/.test(template), 'must not have braces in its host'),
})

export type DockerSettings = z.infer<typeof dockerSettings>
export type KubernetesSettings = z.infer<typeof kubernetesSettings>
export type HttpSettings = z.infer<typeof httpSettings>

const SETTINGS = {
  push: z.strictObject({}),
  docker: dockerSettings,
  kubernetes: kubernetesSettings,
  http: httpSettings,
} as const

/** What a source of this kind cannot declare that it sees; null: nothing. */
export function checkSight(
  kind: SourceKind,
  { node, bootEndsAll }: Pick<Source, 'node' | 'bootEndsAll'>,
): Refusal | null {
  if (kind === 'docker' && bootEndsAll) {
    return invalid(
      'sight.bootEndsAll',
      'containers outlive a boot, and an engine that is new says nothing of the old',
    )
  }
  if (kind === 'kubernetes' && node !== '') {
    return invalid('sight.node', 'an API server sees its cluster, whose pods say themselves where they are')
  }
  return null
}

const SECRET_LIKE =
  /token|secret|password|passwd|authorization|bearer|credential|kubeconfig|^(?:ca|cert|key)$/i

/** What is wrong with the settings of a source of this kind; null: nothing. */
export function checkSettings(kind: SourceKind, settings: Readonly<Record<string, unknown>>): Refusal | null {
  const parsed = SETTINGS[kind].safeParse(settings)
  if (parsed.success) return null
  const issue = parsed.error.issues[0]!
  if (issue.code === 'unrecognized_keys') {
    const field = issue.keys.find((key) => SECRET_LIKE.test(key)) ?? issue.keys[0]!
    return invalid(`settings.${field}`, whyUnknown(kind, field))
  }
  return invalid(['settings', ...issue.path].join('.'), issue.message)
}

function whyUnknown(kind: SourceKind, field: string): string {
  if (SECRET_LIKE.test(field)) {
    return 'secrets are not settings: put it into the file that IPLEDGER_SOURCE_SECRETS names on the server'
  }
  const known = Object.keys(SETTINGS[kind].shape)
  return known.length === 0
    ? 'a source that reports has no settings'
    : `is not a setting of kind ${kind}; it has ${known.join(', ')}`
}

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, username, password, hash } = new URL(text)
  return /^https?:$/.test(protocol) && username === '' && password === '' && hash === ''
}

// Secrets.

const secretsOfOne = z.strictObject({
  token: z.string().min(1).optional(),
  ca: z.string().min(1).optional(),
  cert: z.string().min(1).optional(),
  key: z.string().min(1).optional(),
  kubeconfig: z.string().min(1).optional(),
  kubeconfigFile: z.string().startsWith('/', 'must be an absolute path').optional(),
})

export type Secrets = z.infer<typeof secretsOfOne>

/** By `<network>/<id of the source>`. */
export type SourceSecrets = Readonly<Record<string, Secrets>>

const secretsFile = z.record(
  z.string().regex(/^[^/]+\/./, 'must be <network>/<id of the source>'),
  secretsOfOne,
)

/** @throws StartRefused, without a word of what is in the file */
export function readSourceSecrets(file: string | undefined): SourceSecrets {
  if (file === undefined) return {}
  let given: unknown
  try {
    given = JSON.parse(readFileSync(file, 'utf8'))
  } catch (error) {
    const why = error instanceof SyntaxError ? 'it is not JSON' : (error as NodeJS.ErrnoException).code
    throw new StartRefused(`IPLEDGER_SOURCE_SECRETS names ${file}, which cannot be read: ${why}.`)
  }
  const parsed = secretsFile.safeParse(given)
  if (parsed.success) return parsed.data
  const { path, message } = parsed.error.issues[0]!
  throw new StartRefused(
    `IPLEDGER_SOURCE_SECRETS names ${file}, which cannot be used: ${path.join(' ')} ${message}. ` +
      'It is a JSON object: {"<network>/<id of the source>": {"token", "ca", "cert", "key", "kubeconfig", "kubeconfigFile"}}.',
  )
}

// Opening.

type Log = { readonly warn: (fields: object, message: string) => void }

type Opened = { readonly declaration: string; readonly asked: AskedSource }

export function createAskedSources({
  log,
  secrets,
}: {
  readonly log: Log
  readonly secrets: SourceSecrets
}): AskedSources {
  const opened = new Map<string, Opened>()

  const end = async (key: string, { asked }: Opened): Promise<void> => {
    await asked
      .close()
      .catch((err: unknown) => log.warn({ source: key, err }, 'a source could not be closed'))
  }

  return {
    get(source) {
      const key = `${source.network}/${source.id}`
      const declaration = JSON.stringify([source.kind, source.node, source.settings])
      const known = opened.get(key)
      if (known?.declaration === declaration) return known.asked
      if (known !== undefined) void end(key, known)
      const asked = openWhenUsed(() => open(source, secrets[key] ?? {}))
      opened.set(key, { declaration, asked })
      return asked
    },
    async close() {
      const all = [...opened]
      opened.clear()
      await Promise.all(all.map(([key, one]) => end(key, one)))
    },
  }
}

async function open(source: Declared, secrets: Secrets): Promise<AskedSource> {
  const { kind, settings } = source
  switch (kind) {
    case 'docker':
      return (await import('./docker.ts')).openDocker(source, dockerSettings.parse(settings), secrets)
    case 'kubernetes':
      return (await import('./kubernetes.ts')).openKubernetes(kubernetesSettings.parse(settings), secrets)
    case 'http':
      return (await import('./http.ts')).openHttp(httpSettings.parse(settings), secrets)
    case 'push':
      throw new Error(`source ${source.id} reports by itself and cannot be asked`)
  }
}

/** What could not be opened is tried again with the next use: a file may be there by then. */
function openWhenUsed(openOne: () => Promise<AskedSource>): AskedSource {
  let opening: Promise<AskedSource> | undefined
  const use = (): Promise<AskedSource> => {
    if (opening === undefined) {
      opening = openOne()
      opening.catch(() => {
        opening = undefined
      })
    }
    return opening
  }
  return {
    list: async (signal) => checkListing(await until(signal, (await use()).list(signal))),
    async lookUp(question, signal) {
      try {
        return await until(signal, (await use()).lookUp(question, signal))
      } catch (error) {
        return { answer: 'error', detail: sentence(error) }
      }
    },
    async close() {
      // One that could not be opened has nothing to close.
      const asked = await opening?.catch(() => undefined)
      await asked?.close()
    },
  }
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

/** The epoch is kept for ever, and closes others for good: nothing that is not one is taken for one. */
function checkListing(listing: Listing): Listing {
  const { epoch, entries } = listing
  if (epoch === '' || Buffer.byteLength(epoch) > LONGEST_EPOCH || CONTROL.test(epoch)) {
    throw new Error(`its epoch must be 1 to ${LONGEST_EPOCH} bytes without control characters`)
  }
  if (entries.length <= MOST_ENTRIES) return listing
  // What is kept of it protects.
  const incompleteBecause = `it lists more than ${MOST_ENTRIES} entries`
  return { epoch, complete: false, incompleteBecause, entries: entries.slice(0, MOST_ENTRIES) }
}

/** Also where a library does not end with the signal. */
function until<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(new Error('it did not answer in time'))
    if (signal.aborted) ended()
    signal.addEventListener('abort', ended, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', ended))
  })
}

const LONGEST_SENTENCE = 300

/** What went wrong, for people, short. */
export function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  const cause = error instanceof Error && error.cause instanceof Error ? `: ${error.cause.message}` : ''
  const said = `${text}${cause}`.trim()
  return said.length > LONGEST_SENTENCE ? `${said.slice(0, LONGEST_SENTENCE)}…` : said
}
