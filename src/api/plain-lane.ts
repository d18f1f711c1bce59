/**
 * The way most calls take: one message in, one message out, JSON or binary, uncompressed, over HTTP/1.1. That is
 * Connect's unary protocol, where the body is the message and nothing else; spoken here directly because the library
 * spends four times the processor's time on it, most of it on web Headers, URLs and abort signals that no handler looks at.
 *
 * Whatever it does not recognise (gRPC-Web, compression, streams, GET) goes on to the library unread.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { fromBinary, type Message, toBinary } from '@bufbuild/protobuf'
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect'
import { inTurns } from '../sources/entries.ts'
import type { Call, Method } from './call.ts'
import {
  answer,
  beginCall,
  type Front,
  MOST_REQUEST_BYTES,
  messageOf,
  refuse,
  timeoutOf,
  tooLarge,
} from './dispatch.ts'
import { invalidField, Refused } from './errors.ts'
import { MOST_REPORT_BYTES, REPORT_PATH, readingReport, SLICE_BYTES } from './large-report.ts'
import { readJson } from './read-json.ts'
import { subjectOf } from './tls.ts'

const JSON_TYPE = 'application/json'
const BINARY_TYPE = 'application/proto'
const IS_JSON = /^application\/json(?: *; *charset="?utf-8"?)?$/i

export function createPlainLane(front: Front, closing: () => boolean) {
  const methods = new Map(front.methods.map((method) => [method.path, method]))

  async function serve(
    method: Method,
    isJson: boolean,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const { path, desc } = method
    const most = path === REPORT_PATH ? MOST_REPORT_BYTES : MOST_REQUEST_BYTES
    const isTooLong = Number(request.headers['content-length'] ?? 0) > most
    let call: Call | null = null
    try {
      try {
        call = begin(method, request)
      } catch (error) {
        // Answered when the request has arrived: a connection closed while its caller still sends is reset, and the
        // answer lost with it. What is too long is not worth reading.
        if (!isTooLong) await new Promise((resolve) => request.once('end', resolve).resume())
        throw error
      }
      if (isTooLong) throw tooLarge(most)
      const body = await receive(request, most, front.countFor(response))
      const answered = await answer(method, await read(method, body, isJson), call)
      // As text, which goes out in one piece with the header; bytes take a second buffer.
      if (isJson) send(response, 200, JSON_TYPE, JSON.stringify(answered))
      else send(response, 200, BINARY_TYPE, toBinary(desc.output, messageOf(method, answered)))
      call.rpc.end('OK', '')
    } catch (error) {
      const told = refuse(front, method, call, error)
      // Of no further use to a caller who sends what nobody reads.
      if (!request.complete) response.setHeader('connection', 'close')
      send(response, codeToHttpStatus(told.code), JSON_TYPE, JSON.stringify(errorToJson(told, undefined)))
    }
  }

  function begin(method: Method, { headers, socket }: IncomingMessage): Call {
    return beginCall(front, method, {
      system: 'connectrpc',
      authorization: headers.authorization,
      subject: subjectOf(socket),
      timeoutMs: timeoutOf(headers['connect-timeout-ms'] as string | undefined),
      traceparent: headers.traceparent as string | undefined,
    })
  }

  function send(response: ServerResponse, status: number, type: string, body: string | Uint8Array): void {
    if (closing()) response.setHeader('connection', 'close')
    if (status === 401) response.setHeader('www-authenticate', 'Bearer')
    response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
    response.end(body)
  }

  /** True when the request was taken. */
  return function take(request: IncomingMessage, response: ServerResponse): boolean {
    const method = methods.get(request.url!)
    if (method === undefined || request.method !== 'POST') return false
    const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = request.headers
    const isJson = IS_JSON.test(type)
    if ((!isJson && type !== BINARY_TYPE) || encoding !== 'identity') return false
    void serve(method, isJson, request, response)
    return true
  }
}

function receive(request: IncomingMessage, most: number, count: (bytes: number) => void): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    request.on('data', (chunk: Buffer) => {
      try {
        size += chunk.length
        if (size > most) throw tooLarge(most)
        count(chunk.length)
        chunks.push(chunk)
      } catch (error) {
        reject(error)
      }
    })
    request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
  })
}

async function read({ path, desc }: Method, body: Buffer, isJson: boolean): Promise<Message> {
  if (isJson && !isUtf8(body)) throw invalidField('', 'the body is not UTF-8')
  try {
    if (path === REPORT_PATH && body.length > SLICE_BYTES) return await inTurns(readingReport(body, isJson))
    return isJson ? readJson(desc.input, body.toString()) : fromBinary(desc.input, body)
  } catch (error) {
    if (error instanceof Refused) throw error
    const why = error instanceof Error ? error.message : String(error)
    throw invalidField('', `the body is not a message of this method: ${why}`)
  }
}
