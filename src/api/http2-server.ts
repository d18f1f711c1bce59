/**
 * HTTP/2, with TLS or without (h2c), with the limits that node:http has for HTTP/1.1 and node:http2 has not: a request must
 * arrive in time, and a connection without requests is closed.
 */
import * as http2 from 'node:http2'
import type { Socket } from 'node:net'
import type { Logger } from '../telemetry.ts'

/** As many as a client commonly keeps on one connection; more wait on its side. */
const STREAMS_PER_CONNECTION = 256

/** `requestWithinMs`: from the headers of a request to the end of its body; `idleMs`: how long a connection without any is kept. */
export function createHttp2Server(
  answer: (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => void,
  { requestWithinMs, idleMs }: { readonly requestWithinMs: number; readonly idleMs: number },
  log: Logger,
  tls?: http2.SecureServerOptions,
) {
  const sessions = new Set<http2.ServerHttp2Session>()
  const settings = { settings: { maxConcurrentStreams: STREAMS_PER_CONNECTION }, maxHeaderListPairs: 128 }
  const server =
    tls === undefined ? http2.createServer(settings) : http2.createSecureServer({ ...settings, ...tls })
  server.on('request', (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => {
    const { stream } = response
    const late = setTimeout(() => stream.close(http2.constants.NGHTTP2_CANCEL), requestWithinMs)
    request.once('end', () => clearTimeout(late))
    stream.once('close', () => clearTimeout(late))
    answer(request, response)
  })
  server.on('session', (session) => {
    sessions.add(session)
    let streams = 0
    const closeIdle = () => {
      if (streams === 0) session.close()
    }
    session.on('stream', (stream) => {
      streams += 1
      stream.once('close', () => {
        streams -= 1
      })
    })
    session.setTimeout(idleMs, closeIdle)
    session.once('close', () => sessions.delete(session))
    // A peer that breaks the protocol: its session ends, nothing else does.
    session.on('error', (error) => log.debug({ err: error }, 'HTTP/2 session broken'))
  })
  server.on('connection', (socket: Socket) => socket.setNoDelay(true))
  return { server, sessions }
}
