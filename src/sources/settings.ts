/**
 * The settings in the declaration of a source; docs/sources.md lists them. A declaration comes over the API and is kept in the log,
 * so secrets are not in it: they are in a file on the server (IPLEDGER_SOURCE_SECRETS) that is read when the process starts.
 */
import { readFileSync } from 'node:fs'
import { BlockList, isIP } from 'node:net'
import { z } from 'zod'
import { StartRefused } from '../config.ts'
import { formatValue, parseLenientAddress } from '../core/address.ts'
import type { SourceDeclaration, SourceKind } from '../core/event.ts'
import { ENDPOINT_KIND } from '../core/owner.ts'
import { invalid, type Refusal } from '../core/refusal.ts'

const MOST_LABELS = 16
const SOCKET = '/var/run/docker.sock'
const HOST = 'must be a host name or an address'
const FILE = 'the file that IPLEDGER_SOURCE_SECRETS names on the server'

const line = (most: number) =>
  z
    .string({ error: ({ input }) => (input === undefined ? 'required' : 'must be text') })
    .min(1, 'must not be empty')
    .max(most, `must be at most ${most} characters`)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
    .regex(/^[^\u0000-\u001f\u007f]*$/, 'must not contain control characters')

const url = line(2_000).refine(isPlainUrl, 'must be an http or https URL without user, password and fragment')

const dockerFields = z.strictObject({
  /** Sockets have short paths (sockaddr_un). */
  socketPath: line(107).startsWith('/', 'must be an absolute path').optional(),
  host: line(253)
    .regex(/^[A-Za-z0-9.:_-]+$/, HOST)
    .optional(),
  port: z.int().min(1).max(65_535).optional(),
  tls: z.boolean().optional(),
  network: line(253).regex(/^[A-Za-z0-9][A-Za-z0-9_.-]*$/, 'must be the name or id of a Docker network'),
  kind: line(63)
    .regex(/^[a-z][a-z0-9-]*$/, 'must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter')
    .default('container'),
  labels: z.array(line(253)).max(MOST_LABELS, `must be at most ${MOST_LABELS}`).default([]),
})
const docker = dockerFields.superRefine(({ host, port, tls, socketPath, kind, labels }, context) => {
  const refuse = (field: string, message: string) =>
    context.addIssue({ code: 'custom', path: [field], message })
  if (host !== undefined && socketPath !== undefined)
    refuse('socketPath', 'must not be given with host: a source has one engine')
  if ((host === undefined) !== (port === undefined))
    refuse('port', 'goes with host: give both, or neither and the socket is used')
  if (host === undefined && tls !== undefined)
    refuse('tls', 'is for an engine that is reached by host and port')
  if (host !== undefined && !URL.canParse(engineOf({ host, port }))) refuse('host', HOST)
  if (kind === ENDPOINT_KIND && labels.length > 0) refuse('labels', 'endpoints have none')
})

const kubernetes = z
  .strictObject({
    context: line(253).optional(),
    server: url.refine((server) => server.startsWith('https:'), 'must be an https URL').optional(),
  })
  .refine(({ context, server }) => context === undefined || server === undefined, {
    path: ['context'],
    message: 'must not be given with server: a context names its own',
  })

const http = z.strictObject({
  listUrl: url,
  lookUpUrl: line(2_000)
    .refine((template) => {
      const filled = template.replace(/\{(?:kind|name|uid)\}/g, 'x')
      return isPlainUrl(filled) && !/[{}]/.test(filled)
    }, 'must be an http or https URL; what is in braces must be {kind}, {name} or {uid}')
    .refine((template) => /\{uid\}|\{name\}/.test(template), 'must contain {uid} or {name}')
    .refine((template) => !/^[^/]*\/\/[^/]*\{/.test(template), 'must not have braces in its host'),
})

const SETTINGS = { push: z.strictObject({}), docker, kubernetes, http } as const

/** Where a Docker Engine is: the URL of its API, or `unix:` and the path of its socket. */
export function engineOf({ host, port, socketPath = SOCKET, tls = false }: Partial<DockerSettings>): string {
  if (host === undefined) return `unix:${socketPath}`
  return `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`
}

export type DockerSettings = z.infer<typeof dockerFields>
export type KubernetesSettings = z.infer<typeof kubernetes>
export type HttpSettings = z.infer<typeof http>
export type SettingsOf<K extends SourceKind> = z.infer<(typeof SETTINGS)[K]>

const SECRET_LIKE =
  /token|secret|password|passwd|authorization|bearer|credential|kubeconfig|^(?:ca|cert|key)$/i

/** The settings of a source of this kind, with defaults; or what is wrong with them (which has a `reason`). */
export function readSettings<K extends SourceKind>(kind: K, settings: unknown): Refusal | SettingsOf<K> {
  const read = SETTINGS[kind].safeParse(settings)
  if (read.success) return read.data as SettingsOf<K>
  const issue = read.error.issues[0]!
  if (issue.code !== 'unrecognized_keys') return invalid(['settings', ...issue.path].join('.'), issue.message)
  const [field = ''] = issue.keys
  const known = Object.keys(SETTINGS[kind].shape)
  let why = `is not a setting of kind ${kind}; it has ${known.join(', ')}`
  if (SECRET_LIKE.test(field)) why = `secrets are not settings: put it into ${FILE}`
  else if (known.length === 0) why = 'a source that reports has no settings'
  return invalid(`settings.${field}`, why)
}

/** What is wrong with a declaration: its settings, or a sight that its kind cannot have; null: nothing. */
export function checkDeclaration({ kind, node, ownerKinds, settings }: SourceDeclaration): Refusal | null {
  const read = readSettings(kind, settings)
  if ('reason' in read) return read as Refusal
  if (kind === 'kubernetes' && node !== '')
    return invalid('sight.node', 'an API server sees its whole cluster; each pod names its node')
  // It would answer that there is none of any other kind.
  const sees = kind === 'kubernetes' ? 'pod' : kind === 'docker' ? (read as DockerSettings).kind : null
  if (sees === ENDPOINT_KIND && node === '')
    return invalid('sight.node', 'required: endpoints are named by the --node of "ipledger docker-driver"')
  if (sees === null || ownerKinds.every((one) => one === sees)) return null
  const why = `must be ${sees}: a source of kind ${kind} with these settings sees no other`
  return invalid('sight.ownerKinds', why)
}

/** Why the file on the server forbids to ask where these settings lead; null: it does not. */
export function checkAllowed(
  secrets: SourceSecrets,
  network: string,
  { id, kind, settings }: SourceDeclaration,
): Refusal | null {
  const allowed = secrets[`${network}/${id}`]?.origin
  const why = originsOf(kind, settings).map((to) => whyNotAsked(to, allowed))
  const bad = why.find((one) => one !== null)
  return bad === undefined ? null : invalid('settings', bad)
}

/**
 * What to add to the file on the server, if it does not name a source that is asked; null: it does. A caller of some networks
 * registers no other: the server's operator decides where it may connect.
 */
export function missingEntry(
  secrets: SourceSecrets,
  network: string,
  { id, kind, settings }: SourceDeclaration,
): string | null {
  if (kind === 'push' || secrets[`${network}/${id}`] !== undefined) return null
  const [origin = 'https://host:port'] = originsOf(kind, settings)
  const entry = `{"${network}/${id}": {"origin": "${origin}"}}`
  return `source ${id} is not in ${FILE}: add ${entry} and start ipledger again`
}

/** Where these settings lead; that of a kubeconfig is not known before it is read. */
function originsOf(kind: SourceKind, settings: unknown): readonly string[] {
  if (kind === 'docker') return [originOf(engineOf(settings as DockerSettings))]
  const { listUrl, lookUpUrl, server } = settings as Partial<HttpSettings & KubernetesSettings>
  return [listUrl, lookUpUrl, server].filter((one) => one !== undefined).map(originOf)
}

/** Link-local, and where clouds answer with the credentials of the machine. A BlockList finds IPv4-mapped spellings as well. */
const NEVER_ASKED = new BlockList()
NEVER_ASKED.addSubnet('169.254.0.0', 16, 'ipv4')
NEVER_ASKED.addAddress('100.100.100.200', 'ipv4')
NEVER_ASKED.addSubnet('fe80::', 10, 'ipv6')
NEVER_ASKED.addAddress('fd00:ec2::254', 'ipv6')

/** The unspecified address connects to loopback. */
const LOOPBACK = new BlockList()
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4')
LOOPBACK.addAddress('0.0.0.0', 'ipv4')
LOOPBACK.addAddress('::1', 'ipv6')
LOOPBACK.addAddress('::', 'ipv6')

const isIn = (list: BlockList, host: string): boolean =>
  isIP(host) !== 0 && list.check(host, isIP(host) === 6 ? 'ipv6' : 'ipv4')

/**
 * The IPv4 addresses that an IPv6 address leads to behind a NAT64: at the end of 64:ff9b::/96, and in 64:ff9b:1::/48 (RFC 8215)
 * wherever a prefix of 48 to 96 bits puts it (RFC 6052).
 */
function translated(host: string): readonly string[] {
  if (isIP(host) !== 6) return []
  const { value } = parseLenientAddress(host.replace(/%.*/, ''))!
  const low = (bits: bigint, shift = 0n) => (value >> shift) & ((1n << bits) - 1n)
  const at96 = low(32n)
  const at48 = [(low(16n, 64n) << 16n) | low(16n, 40n), (low(8n, 64n) << 24n) | low(24n, 32n), low(32n, 24n)]
  const inner =
    value >> 80n === 0x64ff9b0001n ? [at96, ...at48] : value >> 32n === 0x64ff9bn << 64n ? [at96] : []
  return inner.map((one) => formatValue(4, one))
}

/**
 * Why a source is not asked at `to`, an origin or `unix:` and a path; null: it may be. `address`: one that its name leads to.
 * `allowed` is the origin of its entry in the file on the server.
 */
export function whyNotAsked(to: string, allowed: string | undefined, address?: string): string | null {
  const host = address ?? (to.startsWith('unix:') ? '' : new URL(to).hostname.replace(/^\[|\]$/g, ''))
  if ([host, ...translated(host)].some((one) => isIn(NEVER_ASKED, one)))
    return `${host} is link-local or gives out a machine's credentials: ipledger never asks there`
  const needsEntry = to.startsWith('unix:') || host === 'localhost' || isIn(LOOPBACK, host)
  if (allowed === to || (allowed === undefined && !needsEntry)) return null
  return allowed === undefined
    ? `${to} is asked only if ${FILE} allows it: add {"<network>/<source>": {"origin": "${to}"}} and start ipledger again`
    : `${to} is not asked: ${FILE} allows ${allowed} only; change one of the two`
}

function originOf(to: string): string {
  return to.startsWith('unix:') ? to : new URL(to).origin
}

function isPlainUrl(text: string): boolean {
  const { protocol = '', username, password, hash } = URL.parse(text) ?? {}
  return /^https?:$/.test(protocol) && !username && !password && !hash
}

const secret = z.string().min(1).optional()
const ORIGIN =
  'must be where it is asked: "https://host:port", "http://host:port" or "unix:/path/of/a/socket"'
const secretsOfOne = z.strictObject({
  origin: z
    .string({ error: ORIGIN })
    .refine((text) => /^unix:\/./.test(text) || (isPlainUrl(text) && new URL(text).pathname === '/'), ORIGIN)
    .transform(originOf),
  token: secret,
  ca: secret,
  cert: secret,
  key: secret,
  kubeconfig: secret,
  kubeconfigFile: z.string().startsWith('/', 'must be an absolute path').optional(),
})

export type Secrets = z.infer<typeof secretsOfOne>

export type SourceSecrets = Readonly<Record<string, Secrets>>

const secretsFile = z.record(
  z.string().regex(/^[^/]+\/./, 'must be <network>/<id of the source>'),
  secretsOfOne,
)

/** @throws StartRefused, which quotes nothing of the file */
export function readSourceSecrets(file: string | undefined): SourceSecrets {
  if (file === undefined) return {}
  let given: unknown
  try {
    given = JSON.parse(readFileSync(file, 'utf8'))
  } catch (error) {
    const why = error instanceof SyntaxError ? 'it is not JSON' : (error as NodeJS.ErrnoException).code
    throw new StartRefused(`IPLEDGER_SOURCE_SECRETS names ${file}, which cannot be read: ${why}.`)
  }
  const read = secretsFile.safeParse(given)
  if (read.success) return read.data
  const { path, message } = read.error.issues[0]!
  throw new StartRefused(
    `IPLEDGER_SOURCE_SECRETS names ${file}, which cannot be used: ${path.join(' ')} ${message}. ` +
      'It is a JSON object: {"<network>/<id of the source>": {"origin", "token", "ca", "cert", "key", "kubeconfig", "kubeconfigFile"}}.',
  )
}
