/**
 * The least HTTP/1.1 client that measures a server: one kept-alive connection, one call at a time, no pipelining, on a
 * raw socket. Generator, server and PostgreSQL share the machine's cores, so what the generator spends is missing in
 * what it measures: 17 µs of CPU a call here, 40 to 80 with `node:http`.
 *
 * It knows what our server answers with, content-length or chunks, and nothing else of HTTP.
 */
import { once } from 'node:events'
import { connect } from 'node:net'

export type Reply = { readonly status: number; readonly body: string }

type KeepAlive = {
  /** `path` and `body` are ASCII. Rejects when the connection breaks or nothing comes for `LONGEST_SILENCE_MS`. */
  post(path: string, body: string): Promise<Reply>
  close(): void
}

export type Target = {
  readonly host: string
  readonly port: number
  /** Of HTTP/2. */
  readonly grpcPort?: number
}

const LONGEST_SILENCE_MS = 30_000
const HEAD_END = '\r\n\r\n'

/** `headers`: more of them, each after a line break. */
export async function openKeepAlive({ host, port }: Target, headers = ''): Promise<KeepAlive> {
  const socket = connect({ host, port, noDelay: true })
  await once(socket, 'connect')
  // One byte a character: offsets are those of content-length, and nothing of an answer needs more.
  socket.setEncoding('latin1')
  socket.setTimeout(LONGEST_SILENCE_MS, () => socket.destroy(new Error('the server does not answer')))
  let received = ''
  let waiting: PromiseWithResolvers<Reply> | undefined
  const fail = (error: Error) => waiting?.reject(error)
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the server closed the connection')))
  socket.on('data', (chunk: string) => {
    received = received === '' ? chunk : received + chunk
    const reply = readReply(received)
    if (reply === undefined) return
    received = ''
    waiting?.resolve(reply)
  })
  return {
    post(path, body) {
      waiting = Promise.withResolvers()
      const head = `POST ${path} HTTP/1.1\r\nhost: ${host}:${port}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}${headers}`
      if (socket.destroyed) fail(new Error('the connection is closed'))
      else socket.write(head + HEAD_END + body, 'latin1')
      return waiting.promise
    },
    close: () => socket.destroy(),
  }
}

/** Undefined while it is not whole. */
function readReply(received: string): Reply | undefined {
  const headEnd = received.indexOf(HEAD_END)
  if (headEnd < 0) return undefined
  const status = Number(received.slice(9, 12))
  const bodyStart = headEnd + HEAD_END.length
  const head = received.slice(0, headEnd)
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)
  if (length === null) {
    const body = readChunks(received, bodyStart)
    return body === undefined ? undefined : { status, body }
  }
  const end = bodyStart + Number(length[1])
  return received.length < end ? undefined : { status, body: received.slice(bodyStart, end) }
}

function readChunks(received: string, start: number): string | undefined {
  let body = ''
  for (let at = start; ; ) {
    const lineEnd = received.indexOf('\r\n', at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(received.slice(at, lineEnd), 16)
    const next = lineEnd + 2 + size + 2
    if (received.length < next) return undefined
    if (size === 0) return body
    body += received.slice(lineEnd + 2, lineEnd + 2 + size)
    at = next
  }
}
