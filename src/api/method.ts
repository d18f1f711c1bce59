/**
 * A method is one declaration: the roles that may call it, and how its request is answered. Rights, metrics and both listeners
 * work from it; a method of the contract without a declaration does not compile.
 *
 * A command is canonical: equal requests are equal text, by which a repeated requestId is recognised.
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
import { beyondHead, networkNotFound, type Refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Reads } from '../ledger/reads.ts'
import type { Intake } from '../sources/intake.ts'
import type { SourceSecrets } from '../sources/settings.ts'
import type { RpcSpan } from '../telemetry.ts'
import type { Decoded, Decoder } from './codec/decode-request.ts'
import { propertyName, type View } from './codec/encode-response.ts'
import { invalidField, Refused, refused } from './codec/errors.ts'
import { NETWORK_NAME, networkName } from './codec/fields.ts'
import { type Caller, checkNetwork, type Role } from './rights.ts'

export type Call = {
  readonly caller: Caller
  /** The rpc's name; becomes the cause of what it writes. */
  readonly method: string
  /** `performance.now()` after which no caller waits for the answer. */
  readonly deadline: number
  readonly traceId: string | null
  readonly span: RpcSpan
}

export type Backend = {
  readonly ledger: Ledger
  readonly reads: Reads
  readonly intake: Intake
  readonly secrets: SourceSecrets
}

export type Scoped = Call & {
  readonly network: string
  /** Of the lease that the request names by its id. */
  readonly token: number | null
}

type Envelope = 'network' | 'actor' | 'cause' | 'requestId' | 'fingerprint' | 'traceId'
/** A command without what every command has. */
export type Content<T extends Command['type'] = Command['type']> = {
  readonly [K in T]: Omit<Command<K>, Envelope>
}[T]

/** A method whose request is a command; `view` makes its response of the command's answer. */
type Commanding<I, O> = {
  decode(request: I, call: Scoped, backend: Backend): Content
  view(answer: Answer, call: Scoped, backend: Backend): O | Promise<O>
}
type Answering<I, O> = { answer(request: I, call: Scoped, backend: Backend): Promise<O> }
type Declared<I, O> = { readonly roles: ReadonlySet<Role> } & (Commanding<I, O> | Answering<I, O>)
type Services = {
  readonly method: Readonly<Record<string, Pick<DescMethod, 'input' | 'output' | 'methodKind'>>>
}

export type Declarations<S extends Services> = {
  readonly [K in keyof S['method'] as S['method'][K]['methodKind'] extends 'unary' ? K : never]: Declared<
    Decoded<MessageShape<S['method'][K]['input']>>,
    View<MessageShape<S['method'][K]['output']>>
  >
}

type Called<D> = {
  /** `/ipledger.v1.LeaseService/Reserve` */
  readonly path: string
  readonly desc: D
  readonly roles: ReadonlySet<Role>
}

export type Method = Called<DescMethodUnary> & {
  readonly declared: Declared<object, object>
  readonly isRead: boolean
  readonly decoder: Decoder
  readonly encode: (view: object) => object
}

/** A method whose answer is a stream; it ends with the signal. */
export type Stream = Called<DescMethodServerStreaming> & {
  readonly stream: (message: Message, call: Call, signal: AbortSignal) => AsyncIterable<Message>
}

export async function submit({ ledger }: Backend, command: Command, call: Call): Promise<Answer> {
  const outcome = await ledger.submit(command, { deadline: call.deadline })
  if (!outcome.ok) throw new Refused(outcome.refusal)
  return outcome.answer
}

/** What commands would do, each after the ones before; nothing is written. */
export async function dryRun(
  backend: Backend,
  items: readonly Command[],
  call: Scoped,
): Promise<readonly (Answer | Refused)[]> {
  const { outcomes = [] } = await submit(backend, commandOf(call, '', { type: 'dryRun', items }), call)
  return outcomes.map((one) => ('reason' in one ? new Refused(one) : one))
}

/** `same`: a repetition under the same request id must repeat it. */
export function commandOf<const C extends Content>(
  { caller, method, traceId, network }: Scoped,
  requestId: string,
  content: C,
  same: unknown = content,
) {
  const isNamed = requestId !== ''
  return {
    ...content,
    network,
    actor: { name: caller.name, node: caller.node },
    cause: method,
    requestId: isNamed ? requestId : null,
    fingerprint: isNamed ? hash('sha256', JSON.stringify([method, network, same]), 'base64url') : null,
    traceId,
  }
}

/** By `network`, by `name` where the request is about the network itself, or by `leaseId`, which names its network. */
type Scope = { readonly network?: string; readonly name?: string; readonly leaseId?: string }

/** The network of a request, by default `default`, if the caller may use it. A list of networks is about none. */
export function scoped(call: Call, { name, network, leaseId = '' }: Scope): Scoped {
  const lease = leaseId === '' ? null : parseLeaseId(leaseId)
  const named = network ?? name
  if (lease === null && named === undefined) return { ...call, network: '', token: null }
  if (lease !== null && network && network !== lease.network)
    throw invalidField('network', `leaseId names network ${lease.network}; give the same, or leave this out`)
  const about = lease ?? {
    network: networkName(named!, network === undefined ? 'name' : 'network'),
    token: null,
  }
  checkNetwork(call.caller, about.network)
  return { ...call, ...about }
}

function parseLeaseId(id: string) {
  const [network = '', digits = '', ...rest] = id.split('/')
  const token = Number(digits)
  const isNumber = /^[1-9][0-9]{0,15}$/.test(digits) && Number.isSafeInteger(token)
  if (isNumber && rest.length === 0 && NETWORK_NAME.test(network)) return { network, token }
  throw invalidField('leaseId', 'must be <network>/<fencing token>, as in default/42')
}

const NOT_SETTINGS: ReadonlySet<string> = new Set(['network', 'name', 'version', 'requestId', 'updateMask'])

/**
 * JSON names of the fields that an update changes: those that its mask names, else those that are given. Only lists and maps
 * can be named and empty, which clears them; any other disagreement with the mask is refused.
 */
export function changedFields(
  { fields }: DescMessage,
  { updateMask, ...input }: { readonly updateMask?: readonly string[] },
): ReadonlySet<string> {
  const settings = fields.filter(({ localName }) => !NOT_SETTINGS.has(localName))
  const names = settings.map(({ jsonName }) => jsonName)
  const unknown = updateMask?.find((path) => !names.includes(path))
  if (unknown !== undefined)
    throw invalidField('updateMask', `${unknown} can't be changed; it may name ${names.join(', ')}`)
  const changed = settings.filter((field) => {
    const { jsonName, fieldKind } = field
    const isMany = fieldKind === 'list' || fieldKind === 'map'
    const value = (input as Readonly<Record<string, unknown>>)[propertyName(field)]
    const isGiven = isMany ? Object.keys(value as object).length > 0 : value !== undefined
    const isNamed = updateMask?.includes(jsonName)
    if (updateMask !== undefined && isGiven && !isNamed)
      throw invalidField(jsonName, 'is given, and updateMask does not name it')
    if (isNamed && !isGiven && !isMany)
      throw invalidField(jsonName, 'is named by updateMask; give its new value')
    return isNamed || isGiven
  })
  return new Set(changed.map(({ jsonName }) => jsonName))
}

export function accepted<T extends object>(result: T | Refusal): T {
  if ('reason' in result) throw new Refused(result as Refusal)
  return result as T
}

/** Null: the network does not exist. */
export function ofNetwork<T>(found: T | null, network: string): T {
  if (found !== null) return found
  throw new Refused(networkNotFound(network))
}

export function poolNotFound(network: string, pool: string): Refused {
  return refused('POOL_NOT_FOUND', `there is no pool ${pool} in network ${network}`, { network, pool })
}

export function checkHead(what: string, number: number, head: number): void {
  if (number > head) throw new Refused(beyondHead(what, number, head))
}
