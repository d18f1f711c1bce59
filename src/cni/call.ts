/** A call of the plugin: the environment and the configuration on stdin, read and checked. `launcher.c` answers VERSION. */
import { isIP } from 'node:net'
import { z } from 'zod'
import type { Owner } from '../core/owner.ts'
import { CniError, VERSIONS } from './cni-error.ts'

const COMMANDS = ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS'] as const
type Command = (typeof COMMANDS)[number]
type Environment = Readonly<Record<string, string | undefined>>

const text = z.string().min(1)
const shape = z.object({
  cniVersion: z.string().default('0.1.0'),
  name: z.string().default(''),
  ipam: z
    .object({
      type: text,
      network: text.default('default'),
      /** One address from each; where several are named together, from the first that has one. */
      pools: z.array(z.union([text, z.array(text).min(1)])).optional(),
      agentSocket: text.optional(),
      url: text.optional(),
      tokenFile: text.optional(),
      caFile: text.optional(),
      certFile: text.optional(),
      keyFile: text.optional(),
      node: text.optional(),
      stateDir: text.default('/var/lib/ipledger'),
      routes: z.array(z.looseObject({ dst: text })).optional(),
      dns: z.looseObject({}).optional(),
    })
    .prefault({ type: 'ipledger-cni' }),
  runtimeConfig: z.looseObject({ ips: z.array(text).optional() }).optional(),
  args: z.looseObject({ cni: z.looseObject({ ips: z.array(text).optional() }).optional() }).optional(),
  prevResult: z.looseObject({ ips: z.array(z.looseObject({ address: text })).optional() }).optional(),
  'cni.dev/valid-attachments': z.array(z.object({ containerID: text, ifname: text })).optional(),
})
export type Config = z.infer<typeof shape>
/** Only ADD refuses unknown fields: containers that were added before an upgrade must be removed after it. */
const strict = shape.extend({ ipam: shape.shape.ipam.unwrap().strict().prefault({ type: 'ipledger-cni' }) })

/**
 * The attachment as the ledger knows it. The incarnation of a pod is its sandbox. A container's id may be added again after DEL,
 * so a container has none.
 */
export type CniOwner = Owner & { readonly kind: 'pod' | 'container' }

export type Call = {
  readonly command: Command
  readonly config: Config
  /** Of ADD, DEL and CHECK. */
  readonly owner: CniOwner | null
  /** Path of the namespace; DEL may come without. */
  readonly netns: string
  readonly claims: readonly Readonly<{ pools?: readonly string[]; address?: string }>[]
}

const NEEDED: Readonly<Record<Command, readonly string[]>> = {
  ADD: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
  CHECK: ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME'],
  DEL: ['CNI_CONTAINERID', 'CNI_IFNAME'],
  GC: [],
  STATUS: [],
}

/** The version that an error is answered in, also where the configuration cannot be read. */
export function versionOf(stdin: string): string {
  return /"cniVersion"\s*:\s*"([0-9.]+)"/.exec(stdin)?.[1] ?? '1.0.0'
}

/** @throws CniError that names the variable or the field */
export function readCall(env: Environment, stdin: string): Call {
  const command = COMMANDS.find((one) => one === env.CNI_COMMAND)
  if (command === undefined)
    throw new CniError('environment', `CNI_COMMAND must be one of ${COMMANDS.join(', ')}`)
  const missing = NEEDED[command].filter((name) => !env[name])
  if (missing.length > 0) throw new CniError('environment', `${missing.join(', ')} must be set`)
  const config = readConfiguration(command, stdin)
  if (!VERSIONS.includes(config.cniVersion))
    throw new CniError(
      'incompatibleVersion',
      `cniVersion ${config.cniVersion} is not one of ${VERSIONS.join(', ')}`,
    )
  const args = argumentsOf(env.CNI_ARGS ?? '')
  return {
    command,
    config,
    owner: NEEDED[command].length === 0 ? null : ownerOf(env, args),
    netns: env.CNI_NETNS ?? '',
    claims: claimsOf(config, args),
  }
}

function readConfiguration(command: Command, stdin: string): Config {
  let parsed: unknown
  try {
    parsed = JSON.parse(stdin)
  } catch (error) {
    throw new CniError('undecodable', `the configuration on stdin is not JSON: ${(error as Error).message}`)
  }
  const { data, error } = (command === 'ADD' ? strict : shape).safeParse(parsed)
  if (data !== undefined) return data
  const [{ path, message }] = error.issues as [z.core.$ZodIssue]
  throw new CniError('configuration', `${path.join('.') || 'the configuration'}: ${message}`)
}

function argumentsOf(list: string): ReadonlyMap<string, string> {
  const pairs = list.split(';').filter((pair) => pair !== '')
  return new Map(
    pairs.map((pair) => {
      const at = pair.indexOf('=')
      if (at < 0) throw new CniError('environment', `CNI_ARGS: "${pair}" is not KEY=VALUE`)
      return [pair.slice(0, at), pair.slice(at + 1)]
    }),
  )
}

export function ownerOf(env: Environment, args: ReadonlyMap<string, string>): CniOwner {
  const container = env.CNI_CONTAINERID!
  const uid = args.get('K8S_POD_UID')
  const on = env.CNI_IFNAME!
  if (!uid) return { kind: 'container', name: container, uid: container, incarnation: '', interface: on }
  const name = `${args.get('K8S_POD_NAMESPACE') ?? ''}/${args.get('K8S_POD_NAME') ?? ''}`
  return { kind: 'pod', name, uid, incarnation: container, interface: on }
}

/** The requested addresses and no others; without any one of each pool; without pools those of the network's default pools. */
function claimsOf(
  { ipam, runtimeConfig, args }: Config,
  cniArgs: ReadonlyMap<string, string>,
): Call['claims'] {
  const requested = [
    ...(cniArgs.get('IP')?.split(',') ?? []),
    ...(runtimeConfig?.ips ?? []),
    ...(args?.cni?.ips ?? []),
  ].map((one) => one.split('/')[0]!.trim())
  for (const address of requested)
    if (isIP(address) === 0)
      throw new CniError('configuration', `IP, ips: the requested "${address}" is not an address`)
  if (requested.length > 0) return [...new Set(requested)].map((address) => ({ address }))
  return (ipam.pools ?? []).map((pools) => ({ pools: typeof pools === 'string' ? [pools] : pools }))
}
