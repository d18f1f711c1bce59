/**
 * Connect's unary protocol over HTTP/1.1, JSON or binary, uncompressed: the body is the message. Most calls come so. Done here
 * because the library takes four times the processor time, mostly for Headers, URLs and abort signals that no handler uses. It
 * gets every other format (gRPC-Web, compression) unread.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect'
import { cooperatively } from '../../in-slices.ts'
import { NO_MESSAGE, parseJson, readable } from '../codec/decode-request.ts'
import { invalidField } from '../codec/errors.ts'
import { MOST_REPORT_BYTES, REPORT_PATH, readingReport } from '../codec/large-report.ts'
import type { Call, Method } from '../method.ts'
import { MOST_REQUEST_BYTES, messageOf, type RpcServer, tooLarge } from '../rpc-server.ts'
import type { RequestBytes } from './request-bytes.ts'
import { subjectOf } from './tls.ts'

const JSON_TYPE = 'application/json'
const BINARY_TYPE = 'application/proto'
const IS_JSON = /^application\/json(?: *; *charset="?utf-8"?)?$/i

/** Null: the request is for the library. */
export function formatOf({ headers }: IncomingMessage): 'json' | 'binary' | null {
  const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = headers
  if (encoding !== 'identity') return null
  return IS_JSON.test(type) ? 'json' : type === BINARY_TYPE ? 'binary' : null
}

export class UnaryHttp {
  readonly #rpc: RpcServer
  readonly #bytes: RequestBytes
  readonly #stopping: AbortSignal

  constructor(rpc: RpcServer, bytes: RequestBytes, stopping: AbortSignal) {
    this.#rpc = rpc
    this.#bytes = bytes
    this.#stopping = stopping
  }

  async serve(
    method: Method,
    format: 'json' | 'binary',
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const { headers } = request
    const most = method.path === REPORT_PATH ? MOST_REPORT_BYTES : MOST_REQUEST_BYTES
    const isTooLong = Number(headers['content-length'] ?? 0) > most
    let call: Call | null = null
    try {
      try {
        call = this.#rpc.authorize(method, {
          system: 'connectrpc',
          authorization: headers.authorization,
          subject: subjectOf(request.socket),
          timeoutMs: timeoutOf(headers['connect-timeout-ms'] as string | undefined),
          traceparent: headers.traceparent as string | undefined,
        })
      } catch (error) {
        // First the request is read: a connection that is closed while its caller still sends is reset, and the answer
        // lost with it. A request that is too long is not worth it.
        if (!isTooLong) await new Promise((resolve) => request.once('end', resolve).resume())
        throw error
      }
      if (isTooLong) throw tooLarge(most)
      const body = await receive(request, response, most, this.#bytes)
      const answer = await this.#rpc.answer(method, await decode(method, body, format), call)
      // Text goes out in one piece with the header; bytes take a second buffer.
      if (format === 'json') this.#send(response, 200, JSON_TYPE, JSON.stringify(answer))
      else this.#send(response, 200, BINARY_TYPE, toBinary(method.desc.output, messageOf(method, answer)))
      call.span.end('OK', '')
    } catch (error) {
      const refusal = this.#rpc.toConnectError(method, call, error)
      // The rest of the request is not read, so the connection is of no further use.
      if (!request.complete) response.setHeader('connection', 'close')
      const text = JSON.stringify(errorToJson(refusal, undefined))
      this.#send(response, codeToHttpStatus(refusal.code), JSON_TYPE, text)
    }
  }

  #send(response: ServerResponse, status: number, type: string, body: string | Uint8Array): void {
    if (this.#stopping.aborted) response.setHeader('connection', 'close')
    if (status === 401) response.setHeader('www-authenticate', 'Bearer')
    response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
    response.end(body)
  }
}

function timeoutOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (/^[0-9]{1,10}$/.test(header)) return Number(header)
  throw invalidField('Connect-Timeout-Ms', 'this header must be a whole number of milliseconds')
}

function receive(
  request: IncomingMessage,
  response: ServerResponse,
  most: number,
  bytes: RequestBytes,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const { socket } = request
    const chunks: Buffer[] = []
    let size = 0
    response.once('close', () => bytes.remove(socket, size))
    request.on('data', (chunk: Buffer) => {
      try {
        size += chunk.length
        bytes.add(socket, chunk.length)
        if (size > most) throw tooLarge(most)
        chunks.push(chunk)
      } catch (error) {
        reject(error)
      }
    })
    request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
  })
}

async function decode({ path, desc, decoder }: Method, body: Buffer, format: 'json' | 'binary') {
  const isJson = format === 'json'
  if (isJson && !isUtf8(body)) throw invalidField('', 'the body is not UTF-8')
  if (path === REPORT_PATH) return cooperatively(readingReport(body, isJson))
  if (isJson) return decoder.fromJson(parseJson(body.toString()))
  return decoder.fromMessage(readable(NO_MESSAGE, () => fromBinary(desc.input, body)))
}
