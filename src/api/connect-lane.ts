/**
 * Connect, the library: gRPC, gRPC-Web, streams, compressed bodies. Every method is registered with the same handler
 * as in the plain lane.
 *
 * Connect answers some malformed requests with `internal` (a body that is no message) or without a reason (too large,
 * unknown JSON field). They are told here as in the plain lane: an error that Connect made itself is rewritten when
 * it aborts the call, which is before it is put on the wire, in every protocol.
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
import type { Call, Method, Stream } from './call.ts'
import {
  answer,
  beginCall,
  deadlinePassed,
  endCall,
  type Front,
  MOST_REQUEST_BYTES,
  messageOf,
  refuse,
  tooLarge,
} from './dispatch.ts'
import { invalidField, isOurs, overloaded } from './errors.ts'
import { page } from './pages.ts'
import { subjectOf } from './tls.ts'

/** Bytes that are no UTF-8 would each become the replacement character, and two owners one. */
const STRICT_UTF8 = { textDecoder: new TextDecoder('utf-8', { fatal: true }) }

const CALL = createContextKey<Call | null>(null)
const SOCKET = createContextKey<object | undefined>(undefined)
/** Ends the connection's stream, whatever is still to be written. */
const CUT = createContextKey<() => void>(() => {})

/** Codes of errors that Connect makes because of what was sent. */
const ABOUT_THE_REQUEST: ReadonlySet<Code> = new Set([
  Code.Internal,
  Code.InvalidArgument,
  Code.ResourceExhausted,
  Code.DataLoss,
])
const MOST_OPEN_BYTES = 64 * 1024

/** `open` registers what anybody may call, without a token; its requests are small. */
export function createConnectLane(
  front: Front,
  protocols: { readonly grpc: boolean },
  open: (router: ConnectRouter) => void,
) {
  // Given once more with each method: the library forgets it where a method has options of its own.
  const spoken = { grpc: protocols.grpc, grpcWeb: true, connect: true }
  const router = createConnectRouter({
    ...spoken,
    jsonOptions: { alwaysEmitImplicit: true, ignoreUnknownFields: false, ...STRICT_UTF8 },
    acceptCompression: [compressionGzip],
    readMaxBytes: MOST_OPEN_BYTES,
    requestGate: (context) => tellAsRefusal(context, MOST_OPEN_BYTES),
  })
  open(router)
  const gated = (method: Method | Stream) => ({
    ...spoken,
    readMaxBytes: MOST_REQUEST_BYTES,
    requestGate: (context: HandlerContext) => {
      tellAsRefusal(context, MOST_REQUEST_BYTES)
      const { requestHeader, protocolName, timeoutMs, values } = context
      try {
        const call = beginCall(front, method, {
          system: protocolName === 'connect' ? 'connectrpc' : 'grpc',
          authorization: requestHeader.get('authorization') ?? undefined,
          subject: subjectOf(values.get(SOCKET)),
          timeoutMs: timeoutMs(),
          traceparent: requestHeader.get('traceparent') ?? undefined,
        })
        values.set(CALL, call)
      } catch (error) {
        throw refuse(front, method, null, error)
      }
    },
  })
  for (const method of front.methods) {
    const handle = async (message: Message, { values }: HandlerContext) => {
      const call = values.get(CALL)!
      try {
        const answered = messageOf(method, await answer(method, message, call))
        call.rpc.end('OK', '')
        return answered
      } catch (error) {
        throw refuse(front, method, call, error)
      }
    }
    router.rpc(method.desc, handle, gated(method))
  }
  for (const method of front.streams) {
    const tell = async function* (message: Message, { values, signal }: HandlerContext) {
      const call = values.get(CALL)!
      const until = AbortSignal.any([signal, front.stopping])
      try {
        for await (const told of method.tell(message, call, until)) {
          const slow = setTimeout(values.get(CUT), front.takenWithinMs)
          try {
            yield told
          } catch {
            // Its caller is gone: nobody is left to be told.
            return
          } finally {
            clearTimeout(slow)
          }
        }
        if (front.stopping.aborted) throw overloaded('is stopping')
      } catch (error) {
        throw refuse(front, method, call, error)
      }
    }
    router.rpc(method.desc, tell, gated(method))
  }
  const handlers = new Map<string, UniversalHandler>(router.handlers.map((one) => [one.requestPath, one]))

  return function take(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): boolean {
    const url = request.url ?? ''
    const query = url.indexOf('?')
    const handler = handlers.get(query < 0 ? url : url.slice(0, query))
    if (handler === undefined) return false
    try {
      const session = 'stream' in request ? request.stream.session : undefined
      const socket = session?.socket ?? request.socket
      const values = createContextValues()
        .set(CUT, () => response.destroy())
        .set(SOCKET, socket)
      const asked = universalRequestFromNodeRequest(request, response, undefined, values)
      const count = front.countFor(response, session)
      const body = counted(asked.body as AsyncIterable<Uint8Array>, count)
      const hasOne =
        handler.method.methodKind !== 'bidi_streaming' &&
        ENVELOPED.test(asked.header.get('content-type') ?? '')
      handler({ ...asked, body: hasOne ? oneEnvelope(body) : body })
        .then((answered) => {
          for (const headers of [answered.header, answered.trailer]) withPlainMessage(headers)
          return universalResponseToNodeResponse(answered, response)
        })
        .catch((error: unknown) => {
          // The caller went away while the answer was written.
          front.log.debug({ method: handler.method.name, err: error }, 'answer not delivered')
          response.destroy()
        })
    } catch (error) {
      // A Host header that is no host, or none.
      front.log.debug({ err: error }, 'request without a usable authority')
      page(response, 400, 'the Host header is missing or malformed\n')
    }
    return true
  }
}

async function* counted(
  body: AsyncIterable<Uint8Array>,
  count: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    count(chunk.length)
    yield chunk
  }
}

const ENVELOPED = /^application\/(?:grpc|connect\+)/
const PREFIX_BYTES = 5

/** A call has one message. The library would keep each that comes, also millions of empty ones. */
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

/** gRPC wants only what is not printable ASCII, and "%", percent-encoded; the library encodes every space. */
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

function tellAsRefusal({ signal, values }: HandlerContext, maxBytes: number): void {
  // Nothing is heard of an abort that has happened already, so such a call is not begun.
  if (signal.aborted) throw deadlinePassed()
  signal.addEventListener('abort', () => {
    const error: unknown = signal.reason
    if (error instanceof ConnectError && !isOurs(error) && ABOUT_THE_REQUEST.has(error.code)) {
      const isTooLarge = error.code === Code.ResourceExhausted
      const why = error.rawMessage.replace(/^(?:parse binary|protocol error): /, '')
      const { code, rawMessage, message, details } = isTooLarge ? tooLarge(maxBytes) : invalidField('', why)
      Object.assign(error, { code, rawMessage, message, details })
    }
    // Of a call whose handler is not reached; any other ends with its answer, or by now nobody waits for it.
    const call = values.get(CALL)
    if (call !== null) endCall(call.rpc, error)
  })
}
