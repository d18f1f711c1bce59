/**
 * The least HTTP/1.1 client that measures a server: one kept-alive connection, one call at a time, no pipelining, on a
 * raw socket. Generator, server and PostgreSQL share the machine's cores, so what the generator spends is missing in
 * what it measures: 17 µs of CPU a call here, 40 to 80 with `node:http`.
 *
 * It knows what our server answers with, content-length or chunks, and nothing else of HTTP.
 */
import { connect, type Socket } from 'node:net'

export type Reply = { readonly status: number; readonly body: string }

export type KeepAlive = {
  /** `path` and `body` are ASCII. Rejects when the connection breaks or nothing comes for `LONGEST_SILENCE_MS`. */
  post(path: string, body: string): Promise<Reply>
  /** False once the server, or we, have closed it: nothing is sent on it any more. */
  isOpen(): boolean
  close(): void
}

export type Target = { readonly host: string; readonly port: number }

const LONGEST_SILENCE_MS = 30_000
const HEAD_END = '\r\n\r\n'

/** `silenceMs`: for who has nothing to ask for longer than that between two calls. */
export async function openKeepAlive(
  target: Target,
  { silenceMs = LONGEST_SILENCE_MS }: { readonly silenceMs?: number } = {},
): Promise<KeepAlive> {
  const socket = connect({ ...target, noDelay: true, keepAlive: true })
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  // One byte a character: offsets are those of content-length, and nothing of an answer needs more.
  socket.setEncoding('latin1')
  socket.setTimeout(silenceMs, () => socket.destroy(new Error('the server does not answer')))
  return speak(socket, target)
}

function speak(socket: Socket, target: Target): KeepAlive {
  const host = `${target.host}:${target.port}`
  let received = ''
  let waiting: { resolve: (reply: Reply) => void; reject: (error: Error) => void } | undefined

  const fail = (error: Error) => {
    waiting?.reject(error)
    waiting = undefined
  }
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the server closed the connection')))
  socket.on('data', (chunk: string) => {
    received = received === '' ? chunk : received + chunk
    const reply = readReply(received)
    if (reply === undefined) return
    received = ''
    waiting?.resolve(reply)
    waiting = undefined
  })

  return {
    post(path, body) {
      return new Promise((resolve, reject) => {
        waiting = { resolve, reject }
        if (socket.destroyed) {
          fail(new Error('the connection is closed'))
          return
        }
        socket.write(
          `POST ${path} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
          'latin1',
        )
      })
    },
    isOpen: () => !socket.destroyed,
    close: () => socket.destroy(),
  }
}

/** Undefined while it is not whole. */
function readReply(received: string): Reply | undefined {
  const headEnd = received.indexOf(HEAD_END)
  if (headEnd < 0) return undefined
  const status = Number(received.slice(9, 12))
  const head = received.slice(0, headEnd).toLowerCase()
  const bodyStart = headEnd + HEAD_END.length
  const length = field(head, 'content-length')
  if (length !== undefined) {
    const end = bodyStart + Number(length)
    return received.length < end ? undefined : { status, body: received.slice(bodyStart, end) }
  }
  if (field(head, 'transfer-encoding') === 'chunked') {
    const body = readChunks(received, bodyStart)
    return body === undefined ? undefined : { status, body }
  }
  throw new Error(`an answer of unknown length: ${head}`)
}

function field(head: string, name: string): string | undefined {
  const at = head.indexOf(`\r\n${name}:`)
  if (at < 0) return undefined
  const start = at + name.length + 3
  const end = head.indexOf('\r\n', start)
  return head.slice(start, end < 0 ? undefined : end).trim()
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
