/**
 * One call of one method, whatever protocol it came in by, and the command that it is: what comes out is canonical, so that two
 * requests that say the same are the same text, by which a repeated requestId is recognised.
 */
import { hash } from 'node:crypto'
import type {
  DescMessage,
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  Message,
  MessageShape,
} from '@bufbuild/protobuf'
import type { Answer, Command } from '../core/command.ts'
import type { Refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Reads } from '../ledger/reads.ts'
import type { Intake } from '../sources/intake.ts'
import type { SourceSecrets } from '../sources/settings.ts'
import type { RpcObserved } from '../telemetry.ts'
import type { Asked } from './asked.ts'
import { invalidField, Refused, refused } from './errors.ts'
import { NETWORK_NAME, networkName, required } from './fields.ts'
import { type Caller, checkNetwork, type Role } from './rights.ts'
import { ourName, type Shown } from './shown.ts'

export type Call = {
  readonly caller: Caller
  /** The rpc's name; becomes the cause of what it writes. */
  readonly method: string
  /** `performance.now()` after which nobody waits for the answer any more. */
  readonly deadline: number
  readonly traceId: string | null
  readonly rpc: RpcObserved
}

/** A function for each method of a service, none forgotten: from what is asked to what is answered. Streams are elsewhere. */
export type Handlers<
  S extends {
    readonly method: Readonly<Record<string, Pick<DescMethod, 'input' | 'output' | 'methodKind'>>>
  },
> = {
  readonly [K in keyof S['method'] as S['method'][K]['methodKind'] extends 'unary' ? K : never]: (
    message: Asked<MessageShape<S['method'][K]['input']>>,
    call: Call,
  ) => Promise<Shown<MessageShape<S['method'][K]['output']>>>
}

type Called<D> = {
  /** `/ipledger.v1.LeaseService/Reserve` */
  readonly path: string
  readonly desc: D
  readonly roles: ReadonlySet<Role>
}

export type Method = Called<DescMethodUnary> & {
  /** Answers the JSON of the message. */
  readonly handle: (message: Message, call: Call) => Promise<object>
}

/** A method whose answer is a stream; it ends with the signal. */
export type Stream = Called<DescMethodServerStreaming> & {
  readonly tell: (message: Message, call: Call, signal: AbortSignal) => AsyncIterable<Message>
}

export type Backend = {
  readonly ledger: Ledger
  readonly reads: Reads
  readonly intake: Intake
  readonly secrets: SourceSecrets
}

export async function submit({ ledger }: Backend, command: Command, call: Call): Promise<Answer> {
  const outcome = await ledger.submit(command, { deadline: call.deadline })
  if (!outcome.ok) throw new Refused(outcome.refusal)
  return outcome.answer
}

// From what was asked to commands.

/** A method that submits the command that its request is. */
export function commanded<M, C extends Command, R>(
  backend: Backend,
  read: (message: M, call: Call) => C,
  show: (answer: Answer, command: C) => R | Promise<R>,
): (message: M, call: Call) => Promise<R> {
  return async (message, call) => {
    const command = read(message, call)
    return show(await submit(backend, command, call), command)
  }
}

/** Methods whose requests say which network their command is of; `networkOf` finds it, if the caller may use it. */
export function commandsBy<N>(networkOf: (message: N, call: Call) => string) {
  return <M extends N & { readonly requestId: string }, R>(
    backend: Backend,
    content: (message: M, call: Call, network: string) => Content,
    show: (answer: Answer, command: Command) => R | Promise<R>,
  ) => {
    const read = (message: M, call: Call): Command => {
      const network = networkOf(message, call)
      return command(call, network, message.requestId, content(message, call, network))
    }
    return commanded(backend, read, show)
  }
}

/** By default it is `default`. */
export const commandedIn = commandsBy(({ network }: { readonly network: string }, call) =>
  allowedNetwork(call, network),
)

type Envelope = 'network' | 'actor' | 'cause' | 'requestId' | 'fingerprint' | 'traceId'
type Content = { readonly [T in Command['type']]: Omit<Command<T>, Envelope> }[Command['type']]

/** A command: its content, and what every command has. `id` is the caller's; `same` is what a repetition must repeat. */
export function command<const C extends { readonly type: Command['type'] }>(
  call: Call,
  network: string,
  id: string,
  content: C,
  same: unknown = content,
) {
  return {
    ...content,
    network,
    actor: { name: call.caller.name, node: call.caller.node },
    cause: call.method,
    requestId: id === '' ? null : id,
    fingerprint: id === '' ? null : fingerprint(call.method, same),
    traceId: call.traceId,
  }
}

function fingerprint(method: string, content: unknown): string {
  return hash('sha256', JSON.stringify([method, content]), 'base64url')
}

/** The network of a call, by default `default`, if the caller may use it. */
export function allowedNetwork(call: Call, name: string, path = 'network'): string {
  const network = networkName(name, path)
  checkNetwork(call.caller, network)
  return network
}

/** Of a lease id, which contains its network; one named beside it must agree. */
export function requiredLease(id: string, call: Call, network: string) {
  const [named = '', digits = '', ...rest] = required(id, 'leaseId').split('/')
  const token = Number(digits)
  const isNumber = /^[1-9][0-9]{0,15}$/.test(digits) && Number.isSafeInteger(token)
  if (!isNumber || rest.length > 0 || !NETWORK_NAME.test(named)) {
    throw invalidField('leaseId', 'must be <network>/<fencing token>, as in default/42')
  }
  if (network !== '' && network !== named) {
    throw invalidField('network', `leaseId names network ${named}; give the same, or leave this out`)
  }
  checkNetwork(call.caller, named)
  return { network: named, token }
}

const NOT_SETTINGS: ReadonlySet<string> = new Set(['network', 'name', 'version', 'requestId', 'updateMask'])

/**
 * JSON names of the fields that an update changes: those that its mask names, else those that are given. Only lists and maps
 * can be named and empty, which clears them; whatever else does not agree with the mask is refused.
 */
export function changedFields(
  { fields }: DescMessage,
  { updateMask, ...said }: { readonly updateMask?: { readonly paths: readonly string[] } },
): ReadonlySet<string> {
  const settings = fields.filter(({ localName }) => !NOT_SETTINGS.has(localName))
  const named = new Set(updateMask?.paths)
  for (const path of named) {
    if (settings.some(({ name }) => name === path)) continue
    const allowed = settings.map(({ jsonName }) => jsonName).join(', ')
    throw invalidField('updateMask', `${path} can't be changed; it may name ${allowed}`)
  }
  const changed = settings.filter((field) => {
    const { jsonName, name, fieldKind } = field
    const isMany = fieldKind === 'list' || fieldKind === 'map'
    const value = (said as Readonly<Record<string, unknown>>)[ourName(field)]
    const isGiven = isMany ? Object.keys(value as object).length > 0 : value !== undefined
    const isNamed = named.has(name)
    if (updateMask !== undefined && isGiven && !isNamed)
      throw invalidField(jsonName, 'is given, and updateMask does not name it')
    if (isNamed && !isGiven && !isMany)
      throw invalidField(jsonName, 'is named by updateMask; give its new value')
    return isNamed || isGiven
  })
  return new Set(changed.map(({ jsonName }) => jsonName))
}

// What was read.

export function accepted<T extends object>(result: T | Refusal): T {
  if ('reason' in result) throw new Refused(result as Refusal)
  return result as T
}

/** What was read of a network, which may not exist. */
export function ofNetwork<T>(found: T | null, network: string): T {
  if (found !== null) return found
  throw refused('NETWORK_NOT_FOUND', `network ${network} does not exist; create it first`, { network })
}

export function poolNotFound(network: string, pool: string): Refused {
  return refused('POOL_NOT_FOUND', `there is no pool ${pool} in network ${network}`, { network, pool })
}

export function neverWas(leaseId: string): Refused {
  return refused('LEASE_NOT_FOUND', `there never was a lease ${leaseId}`, { leaseId })
}

/** A number that a later life of this log gave out: the database may be an older copy. The core says the same of writes. */
export function checkHead(what: string, number: number, head: number): void {
  if (number <= head) return
  throw refused(
    'VERSION_MISMATCH',
    `${what} is beyond this ledger's last number ${head}; if it was ever answered, the database is an older copy`,
    { number: String(number), beyondHead: String(head) },
  )
}
