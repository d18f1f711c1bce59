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
import type { ConnectRpc } from './connect-rpc.ts'
import type { RequestBytes } from './request-bytes.ts'
import { subjectOf } from './tls.ts'

const JSON_TYPE = 'application/json'
const BINARY_TYPE = 'application/proto'
const IS_JSON = /^application\/json(?: *; *charset="?utf-8"?)?$/i

type Options = {
  readonly rpc: RpcServer
  readonly bytes: RequestBytes
  readonly stopping: AbortSignal
  readonly library: ConnectRpc
}

export class UnaryHttp {
  readonly #options: Options

  constructor(options: Options) {
    this.#options = options
  }

  async serve(method: Method, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { rpc, bytes, stopping, library } = this.#options
    const { headers } = request
    const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = headers
    const isJson = IS_JSON.test(type)
    if (encoding !== 'identity' || (!isJson && type !== BINARY_TYPE))
      return void library.take(request, response)
    const most = method.path === REPORT_PATH ? MOST_REPORT_BYTES : MOST_REQUEST_BYTES
    const isTooLong = Number(headers['content-length'] ?? 0) > most
    let call: Call | null = null
    let status = 200
    let answer: string | Uint8Array
    try {
      try {
        call = rpc.authorize(method, {
          system: 'connectrpc',
          authorization: headers.authorization,
          subject: subjectOf(request.socket),
          timeoutMs: timeoutOf(headers['connect-timeout-ms'] as string | undefined),
          traceparent: headers.traceparent as string | undefined,
        })
      } catch (error) {
        // First the request is read: a connection that is closed while its caller still sends is reset, and the caller never
        // gets the answer. A request that is too long is not worth it.
        if (!isTooLong) await new Promise((resolve) => request.once('end', resolve).resume())
        throw error
      }
      if (isTooLong) throw tooLarge(most)
      const body = await receive(request, response, most, bytes)
      const json = await rpc.answer(method, await decode(method, body, isJson), call)
      // Text goes out in one piece with the header; bytes take a second buffer.
      answer = isJson ? JSON.stringify(json) : toBinary(method.desc.output, messageOf(method, json))
    } catch (error) {
      const refusal = rpc.toConnectError(method, call, error)
      // The rest of the request is not read, so the connection is of no further use.
      if (!request.complete) response.setHeader('connection', 'close')
      status = codeToHttpStatus(refusal.code)
      answer = JSON.stringify(errorToJson(refusal, undefined))
    }
    if (stopping.aborted) response.setHeader('connection', 'close')
    if (status === 401) response.setHeader('www-authenticate', 'Bearer')
    response.writeHead(status, {
      'content-type': typeof answer === 'string' ? JSON_TYPE : BINARY_TYPE,
      'content-length': Buffer.byteLength(answer),
    })
    response.end(answer)
    if (status === 200) call?.span.end('OK', '')
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
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>()
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
  return promise
}

async function decode({ path, desc, decoder }: Method, body: Buffer, isJson: boolean) {
  if (isJson && !isUtf8(body)) throw invalidField('', 'the body is not UTF-8')
  if (path === REPORT_PATH) return cooperatively(readingReport(body, isJson))
  if (isJson) return decoder.fromJson(parseJson(body.toString()))
  return decoder.fromMessage(readable(NO_MESSAGE, () => fromBinary(desc.input, body)))
}
