/** The public API by its JSON: the same calls and rights that every caller has. Types only are taken from the generated code. */
import type { DescMessage, MessageJsonType } from '@bufbuild/protobuf'
import type { AuditService } from '../gen/ipledger/v1/audit_pb.ts'
import type { LeaseService } from '../gen/ipledger/v1/lease_pb.ts'
import type { LivenessService } from '../gen/ipledger/v1/liveness_pb.ts'
import type { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import type { PoolService } from '../gen/ipledger/v1/pool_pb.ts'
import type { ServerService } from '../gen/ipledger/v1/server_pb.ts'

type Services = {
  AuditService: typeof AuditService
  LeaseService: typeof LeaseService
  LivenessService: typeof LivenessService
  NetworkService: typeof NetworkService
  PoolService: typeof PoolService
  ServerService: typeof ServerService
}
type Methods<S extends keyof Services> = Services[S]['method']
type Json<D> = D extends DescMessage ? MessageJsonType<D> : never
type Input<M> = M extends { readonly input: infer I } ? Json<I> : never
type Output<M> = M extends { readonly output: infer O } ? Json<O> : never

/** A refusal, or no answer. `reason`: as in docs/callers.md; undefined: the server was not reached. */
export class Failed extends Error {
  readonly reason: string | undefined
  constructor(message: string, reason?: string) {
    super(message)
    this.reason = reason
  }
}

/** In memory, and in the session's storage if somebody asked for that. */
const KEY = 'ipledger.token'
let token = sessionStorage.getItem(KEY) ?? ''

export function signIn(given: string, isKept: boolean): void {
  token = given
  if (isKept) sessionStorage.setItem(KEY, given)
  else sessionStorage.removeItem(KEY)
}

export const isSignedIn = (): boolean => token !== ''

const headers = (type: string): Readonly<Record<string, string>> => ({
  'content-type': type,
  ...(token !== '' && { authorization: `Bearer ${token}` }),
})

const pathOf = (service: string, method: string) =>
  `/ipledger.v1.${service}/${method[0]!.toUpperCase()}${method.slice(1)}`

/** @throws Failed */
export async function call<S extends keyof Services, M extends keyof Methods<S> & string>(
  service: S,
  method: M,
  request: Input<Methods<S>[M]>,
  signal?: AbortSignal,
): Promise<Output<Methods<S>[M]>> {
  const body = JSON.stringify(request)
  const options = { method: 'POST', headers: headers('application/json'), body, signal: signal ?? null }
  const response = await fetch(pathOf(service, method), options).catch((error: Error) => {
    if (signal?.aborted) throw error
    throw new Failed(`The server does not answer (${error.message}).`)
  })
  const answer = await response.json().catch(() => ({ message: `status ${response.status}` }))
  if (response.ok) return answer
  throw failedOf(answer)
}

/** What is not there, cannot be named like this, or may not be seen by this caller; any other failure is thrown. */
export async function unlessRefused<T>(answer: Promise<T>, instead: T): Promise<T> {
  return answer.catch((error: unknown) => {
    if (isRefused(error as Failed)) return instead
    throw error
  })
}

export const isRefused = ({ reason = '' }: Failed): boolean =>
  /^(?:PERMISSION_DENIED|INVALID_FIELD|.*_NOT_FOUND)$/.test(reason)

/** WatchLeases sends something every five seconds. */
const SILENT_MS = 20_000
const PREFIX_BYTES = 5
/** The flags of the message that ends a stream. */
const LAST = 2

/**
 * Answers of WatchLeases, each as Connect frames it: a byte of flags, four of length, JSON.
 *
 * @throws Failed however it ends, unless by `signal`
 */
export async function* watchLeases(
  request: Input<Methods<'LeaseService'>['watchLeases']>,
  signal: AbortSignal,
): AsyncGenerator<Output<Methods<'LeaseService'>['watchLeases']>> {
  const silent = new AbortController()
  const inTime = <T>(answer: Promise<T>): Promise<T> => {
    const late = setTimeout(() => silent.abort(new Error('silent for 20 s')), SILENT_MS)
    return answer
      .catch((error: Error) => {
        throw new Failed(`The server does not answer (${error.message}).`)
      })
      .finally(() => clearTimeout(late))
  }
  const json = new TextEncoder().encode(JSON.stringify(request))
  const prefix = new DataView(new ArrayBuffer(PREFIX_BYTES))
  prefix.setUint32(1, json.length)
  const options = {
    method: 'POST',
    headers: headers('application/connect+json'),
    body: new Blob([prefix, json]),
    signal: AbortSignal.any([signal, silent.signal]),
  }
  const response = await inTime(fetch(pathOf('LeaseService', 'watchLeases'), options))
  if (!response.ok) throw new Failed(`status ${response.status}`)
  const reader = response.body!.getReader()
  for (let bytes = new Uint8Array(); ; ) {
    const { value } = await inTime(reader.read())
    if (value === undefined) throw new Failed('The server has ended the stream.')
    const before = bytes
    bytes = new Uint8Array(before.length + value.length)
    bytes.set(before)
    bytes.set(value, before.length)
    while (bytes.length >= PREFIX_BYTES) {
      const end = PREFIX_BYTES + new DataView(bytes.buffer, bytes.byteOffset).getUint32(1)
      if (bytes.length < end) break
      const message = JSON.parse(new TextDecoder().decode(bytes.subarray(PREFIX_BYTES, end)))
      if (bytes[0] === LAST) throw failedOf(message.error ?? {})
      yield message
      bytes = bytes.subarray(end)
    }
  }
}

type ErrorJson = {
  readonly message?: string
  readonly details?: readonly { readonly debug?: { readonly reason?: string } }[]
}

function failedOf({ message = 'no reason given', details = [] }: ErrorJson): Failed {
  return new Failed(message, details.find(({ debug }) => debug?.reason !== undefined)?.debug?.reason)
}
