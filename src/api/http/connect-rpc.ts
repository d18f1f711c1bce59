/**
 * gRPC, gRPC-Web, streams and compressed bodies, by the Connect library. Methods answer as in unary-http.ts.
 *
 * The library answers some malformed requests with `internal` (a body that is no message) or without a reason (too large, unknown
 * JSON field). Such an error is rewritten when it aborts the call, which in every protocol is before it is sent.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2'
import type { Message } from '@bufbuild/protobuf'
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from '@connectrpc/connect'
import type { UniversalHandler } from '@connectrpc/connect/protocol'
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node'
import type { Logger } from '../../telemetry.ts'
import { afterRunning } from '../../time-limit.ts'
import { invalidField, isOurs, overloaded } from '../codec/errors.ts'
import type { Call, Method, Stream } from '../method.ts'
import {
  deadlinePassed,
  endCall,
  METHODS,
  MOST_REQUEST_BYTES,
  messageOf,
  type RpcServer,
  tooLarge,
} from '../rpc-server.ts'
import { refuse, refuseMethod } from './pages.ts'
import type { RequestBytes } from './request-bytes.ts'
import { subjectOf } from './tls.ts'

/** Else bytes that are no UTF-8 become the replacement character, and two owners one. */
const STRICT_UTF8 = { textDecoder: new TextDecoder('utf-8', { fatal: true }) }

const CALL = createContextKey<Call | null>(null)
const SOCKET = createContextKey<object | undefined>(undefined)
/** Ends the response at once, even if bytes are still to be written. */
const CUT = createContextKey<() => void>(() => {})

/** Codes of errors that the library makes because of the request. */
const ABOUT_THE_REQUEST: ReadonlySet<Code> = new Set([
  Code.Internal,
  Code.InvalidArgument,
  Code.ResourceExhausted,
  Code.DataLoss,
])
const MOST_OPEN_BYTES = 64 * 1024

type Request = IncomingMessage | Http2ServerRequest
type Response = ServerResponse | Http2ServerResponse

type Options = {
  readonly rpc: RpcServer
  readonly bytes: RequestBytes
  readonly stopping: AbortSignal
  /** A stream whose caller takes nothing for so long is cut off. */
  readonly takenWithinMs: number
  readonly log: Logger
}

export class ConnectRpc {
  readonly #options: Options
  readonly #protocols: { readonly grpc: boolean; readonly grpcWeb: true; readonly connect: true }
  readonly #handlers: ReadonlyMap<string, UniversalHandler>

  /** `open` registers services without tokens; their requests are small. */
  constructor(
    options: Options,
    { grpc }: { readonly grpc: boolean },
    streams: readonly Stream[],
    open: (router: ConnectRouter) => void,
  ) {
    this.#options = options
    this.#protocols = { grpc, grpcWeb: true, connect: true }
    const router = createConnectRouter({
      ...this.#protocols,
      jsonOptions: { alwaysEmitImplicit: true, ignoreUnknownFields: false, ...STRICT_UTF8 },
      acceptCompression: [compressionGzip],
      readMaxBytes: MOST_OPEN_BYTES,
      requestGate: (context) => refuseMalformed(context, MOST_OPEN_BYTES),
    })
    open(router)
    for (const method of METHODS.values())
      router.rpc(method.desc, this.#unaryHandler(method), this.#gate(method))
    for (const stream of streams) router.rpc(stream.desc, this.#streamHandler(stream), this.#gate(stream))
    this.#handlers = new Map(router.handlers.map((one) => [one.requestPath, one]))
  }

  /** How a call begins. With the protocols: a method's own options replace the router's. */
  #gate(method: Method | Stream) {
    const { rpc } = this.#options
    return {
      ...this.#protocols,
      readMaxBytes: MOST_REQUEST_BYTES,
      requestGate: (context: HandlerContext) => {
        refuseMalformed(context, MOST_REQUEST_BYTES)
        const { requestHeader, protocolName, timeoutMs, values } = context
        try {
          const call = rpc.authorize(method, {
            system: protocolName === 'connect' ? 'connectrpc' : 'grpc',
            authorization: requestHeader.get('authorization') ?? undefined,
            subject: subjectOf(values.get(SOCKET)),
            timeoutMs: timeoutMs(),
            traceparent: requestHeader.get('traceparent') ?? undefined,
          })
          values.set(CALL, call)
        } catch (error) {
          throw rpc.toConnectError(method, null, error)
        }
      },
    }
  }

  #unaryHandler(method: Method) {
    const { rpc } = this.#options
    return async (message: Message, { values }: HandlerContext): Promise<Message> => {
      const call = values.get(CALL)!
      try {
        const answer = messageOf(method, await rpc.answer(method, method.decoder.fromMessage(message), call))
        call.span.end('OK', '')
        return answer
      } catch (error) {
        throw rpc.toConnectError(method, call, error)
      }
    }
  }

  #streamHandler(method: Stream) {
    const { rpc, stopping, takenWithinMs } = this.#options
    return async function* (message: Message, { values, signal }: HandlerContext): AsyncGenerator<Message> {
      const call = values.get(CALL)!
      try {
        for await (const one of method.stream(message, call, AbortSignal.any([signal, stopping]))) {
          const inTime = afterRunning(takenWithinMs, values.get(CUT))
          try {
            yield one
          } catch {
            // The caller is gone.
            return
          } finally {
            inTime()
          }
        }
        if (stopping.aborted) throw overloaded('is stopping')
      } catch (error) {
        throw rpc.toConnectError(method, call, error)
      }
    }
  }

  /** False: no method has this path. */
  take(request: Request, response: Response): boolean {
    const url = request.url ?? ''
    const query = url.indexOf('?')
    const handler = this.#handlers.get(query < 0 ? url : url.slice(0, query))
    if (handler === undefined) return false
    // The library would answer reads by GET, which a page of another site can send.
    if (request.method !== 'POST') refuseMethod(response, 'POST')
    else if (!handler.supportedContentType(request.headers['content-type'] ?? ''))
      refuse(response, 415, invalidField('content-type', TYPES))
    else void this.#serve(handler, request, response)
    return true
  }

  async #serve(handler: UniversalHandler, request: Request, response: Response): Promise<void> {
    const { log, bytes } = this.#options
    const session = 'stream' in request ? request.stream.session : undefined
    const socket = session?.socket ?? request.socket
    const connection = session ?? socket
    const values = createContextValues()
      .set(CUT, () => response.destroy())
      .set(SOCKET, socket)
    let size = 0
    response.once('close', () => bytes.remove(connection, size))
    let input: ReturnType<typeof universalRequestFromNodeRequest>
    try {
      input = universalRequestFromNodeRequest(request, response, undefined, values)
    } catch (error) {
      // A Host header that is no host, or none.
      log.debug({ err: error }, 'request without a usable authority')
      return refuse(response, 400, invalidField('Host', 'this header is missing or malformed'))
    }
    const body = (async function* () {
      for await (const chunk of input.body as AsyncIterable<Uint8Array>) {
        size += chunk.length
        bytes.add(connection, chunk.length)
        yield chunk
      }
    })()
    const hasOne =
      handler.method.methodKind !== 'bidi_streaming' && ENVELOPED.test(input.header.get('content-type') ?? '')
    try {
      const answer = await handler({ ...input, body: hasOne ? oneEnvelope(body) : body })
      for (const headers of [answer.header, answer.trailer]) withPlainMessage(headers)
      await universalResponseToNodeResponse(answer, response)
    } catch (error) {
      // The caller went away while the answer was written.
      log.debug({ method: handler.method.name, err: error }, 'answer not delivered')
      response.destroy()
    }
  }
}

/** A form, as curl sends it by default, could come from a page of another site. */
const TYPES = "send -H 'content-type: application/json', or for a stream application/connect+json"

const ENVELOPED = /^application\/(?:grpc|connect\+)/
const PREFIX_BYTES = 5

/** Refuses a second message. The library would keep all, also millions of empty ones. */
async function* oneEnvelope(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const prefix = Buffer.alloc(PREFIX_BYTES)
  let seen = 0
  for await (const chunk of body) {
    for (let n = 0; n < chunk.length && seen + n < PREFIX_BYTES; n += 1) prefix[seen + n] = chunk[n]!
    seen += chunk.length
    if (seen >= PREFIX_BYTES && seen > PREFIX_BYTES + prefix.readUInt32BE(1))
      throw invalidField('', 'a call has one message; this has another behind it')
    yield chunk
  }
}

/** gRPC percent-encodes only "%" and what is not printable ASCII; the library encodes spaces too. */
function withPlainMessage(headers: Headers | undefined): void {
  if (headers === undefined) return
  const set = (name: string, value: string) => {
    const isMessage = name.toLowerCase() === 'grpc-message'
    const plain = () => decodeURIComponent(value).replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent)
    Headers.prototype.set.call(headers, name, isMessage ? plain() : value)
  }
  const before = headers.get('grpc-message')
  if (before !== null) set('grpc-message', before)
  // Trailers are set after the body.
  Object.assign(headers, { set })
}

function refuseMalformed({ signal, values }: HandlerContext, maxBytes: number): void {
  // A signal that is aborted already emits no event.
  if (signal.aborted) throw deadlinePassed()
  signal.addEventListener('abort', () => {
    const error: unknown = signal.reason
    if (error instanceof ConnectError && !isOurs(error) && ABOUT_THE_REQUEST.has(error.code)) {
      const isTooLarge = error.code === Code.ResourceExhausted
      const why = error.rawMessage.replace(/^(?:parse binary|protocol error): /, '')
      const { code, rawMessage, message, details } = isTooLarge ? tooLarge(maxBytes) : invalidField('', why)
      Object.assign(error, { code, rawMessage, message, details })
    }
    // For a call whose handler is not reached; any other has ended with its answer.
    const call = values.get(CALL)
    if (call !== null) endCall(call.span, error)
  })
}
