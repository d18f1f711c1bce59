/**
 * HTTP/2, with TLS or without (h2c), with the limits that node:http has for HTTP/1.1 and node:http2 has not: a request must
 * arrive in time, and a connection without requests is closed. A connection that resets its streams all the time is ended.
 * (One of 0.3 MB kept the process busy for a second.)
 */
import * as http2 from 'node:http2'
import type { Socket } from 'node:net'
import type { Logger } from '../../telemetry.ts'
import { afterRunning } from '../../time-limit.ts'
import type { Admission } from './admission.ts'

/**
 * The least that RFC 9113 recommends; more wait at the caller. An iteration of the event loop takes in as many of each
 * connection, whatever they are.
 */
const STREAMS_PER_CONNECTION = 100
/** Resets at once, and a second after these: a caller may lose patience with all that it has. */
const RESETS = { streamResetBurst: STREAMS_PER_CONNECTION, streamResetRate: STREAMS_PER_CONNECTION / 4 }

/**
 * `requestWithinMs`: from the call of `isRead` to the end of a request's body; `idleMs`: how long a connection
 * without any is kept.
 */
export function createHttp2Server(
  answer: (
    request: http2.Http2ServerRequest,
    response: http2.Http2ServerResponse,
    isRead: () => void,
  ) => void,
  { requestWithinMs, idleMs }: { readonly requestWithinMs: number; readonly idleMs: number },
  log: Logger,
  admission: Admission,
  tls?: http2.SecureServerOptions,
) {
  const sessions = new Set<http2.ServerHttp2Session>()
  const settings = {
    settings: { maxConcurrentStreams: STREAMS_PER_CONNECTION },
    maxHeaderListPairs: 128,
    ...RESETS,
  }
  const server =
    tls === undefined ? http2.createServer(settings) : http2.createSecureServer({ ...settings, ...tls })
  server.on('request', (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => {
    const { stream } = response
    answer(request, response, () => {
      const inTime = afterRunning(requestWithinMs, () => stream.close(http2.constants.NGHTTP2_CANCEL))
      request.once('end', inTime)
      stream.once('close', inTime)
    })
  })
  server.on('session', (session) => {
    sessions.add(session)
    session.once('close', () => sessions.delete(session))
    // A peer that breaks the protocol: its session ends, nothing else does.
    session.on('error', (error) => log.debug({ err: error }, 'HTTP/2 session broken'))
    closeWhenIdle(session, idleMs)
    endWhenResetting(session)
  })
  server.on('connection', (socket: Socket) => socket.setNoDelay(true))
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => admission.add(socket))
  return { server, sessions }
}

function closeWhenIdle(session: http2.ServerHttp2Session, idleMs: number): void {
  const closeLater = () => afterRunning(idleMs, () => session.close())
  let streams = 0
  let inUse = closeLater()
  session.on('stream', (stream) => {
    inUse()
    streams += 1
    stream.once('close', () => {
      streams -= 1
      if (streams === 0 && !session.destroyed) inUse = closeLater()
    })
  })
  session.once('close', () => inUse())
}

/**
 * No stream is answered within an iteration of the event loop. So a session that begins more than it may have open has reset
 * some. The library notices resets only once it has taken in all that was read.
 */
function endWhenResetting(session: http2.ServerHttp2Session): void {
  let begun = 0
  session.on('stream', () => {
    if (begun === 0) {
      setImmediate(() => {
        begun = 0
      })
    }
    begun += 1
    if (begun > STREAMS_PER_CONNECTION) session.destroy()
  })
}
