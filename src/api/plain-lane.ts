/**
 * The way most calls take: one message in, one message out, JSON or binary, uncompressed, over HTTP/1.1. That is
 * Connect's unary protocol, where the body is the message and nothing else; spoken here directly because the library
 * spends four times the CPU on it (Reserve with a handler that answers at once, 64 callers, same run: 60 to 100 µs a
 * call against 225 to 365), most of it on web Headers, URLs and abort signals that no handler looks at.
 *
 * Whatever it does not recognise (gRPC-Web, compression, streams, GET) goes on to the library unread.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { fromBinary, fromJsonString, type Message, toBinary, toJsonString } from '@bufbuild/protobuf'
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect'
import type { Call, Method } from './call.ts'
import {
  answer,
  beginCall,
  type Front,
  type Header,
  MOST_REQUEST_BYTES,
  refuse,
  timeoutOf,
} from './dispatch.ts'
import { invalidField, Refused, toErrorJson } from './errors.ts'
import { malformedBinary, malformedJson } from './malformed.ts'

const JSON_TYPE = 'application/json'
const BINARY_TYPE = 'application/proto'

/** What is answered always says false, 0 and empty, so that a reader sees every field there is. */
export const JSON_ANSWERS = { alwaysEmitImplicit: true } as const

/** True when the request was taken. */
export type PlainLane = (request: IncomingMessage, response: ServerResponse) => boolean

export function createPlainLane(front: Front, closing: () => boolean): PlainLane {
  const methods = new Map(front.methods.map((method) => [method.path, method]))

  return function take(request, response) {
    const method = methods.get(request.url!)
    if (method === undefined || request.method !== 'POST') return false
    const { headers } = request
    const type = typeOf(headers['content-type'])
    if (type === null || (headers['content-encoding'] ?? 'identity') !== 'identity') return false
    const tooLong = Number(headers['content-length'] ?? 0) > MOST_REQUEST_BYTES
    let call: Call | null = null
    try {
      const said: Header = {
        system: 'connectrpc',
        authorization: headers.authorization,
        timeoutMs: timeoutOf(header(headers['connect-timeout-ms'])),
        traceparent: header(headers.traceparent),
        tracestate: header(headers.tracestate),
      }
      call = beginCall(front, method, said, () => response.destroyed)
      if (tooLong) throw tooLarge()
    } catch (error) {
      // Answered when the request has arrived: a connection closed while its caller still sends is reset, and the
      // answer lost with it. What is too long is not worth reading.
      if (tooLong) cut(response, method, call, error)
      else request.once('end', () => tell(response, method, call, error)).resume()
      return true
    }
    receive(request, response, method, type, call)
    return true
  }

  function receive(
    request: IncomingMessage,
    response: ServerResponse,
    method: Method,
    type: string,
    call: Call,
  ): void {
    const chunks: Buffer[] = []
    let size = 0
    request.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= MOST_REQUEST_BYTES) chunks.push(chunk)
      else if (!response.headersSent) cut(response, method, call, tooLarge())
    })
    request.on('end', () => {
      if (size > MOST_REQUEST_BYTES) return
      const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
      void reply(response, method, type, body, call)
    })
  }

  async function reply(
    response: ServerResponse,
    method: Method,
    type: string,
    body: Buffer,
    call: Call,
  ): Promise<void> {
    try {
      const message = type === JSON_TYPE ? readJson(method, body) : readBinary(method, body)
      const answered = await answer(front, method, message, call)
      const { output } = method.desc
      // As text, which goes out in one piece with the header; bytes take a second buffer.
      if (type === JSON_TYPE) send(response, 200, type, toJsonString(output, answered, JSON_ANSWERS))
      else send(response, 200, type, toBinary(output, answered))
      call.rpc?.end('OK', '')
    } catch (error) {
      tell(response, method, call, error)
    }
  }

  /** Before the body was read: the connection is of no further use to a caller who sends what nobody reads. */
  function cut(response: ServerResponse, method: Method, call: Call | null, error: unknown): void {
    response.setHeader('connection', 'close')
    tell(response, method, call, error)
  }

  function tell(response: ServerResponse, method: Method, call: Call | null, error: unknown): void {
    const told = refuse(front, method, call, error)
    if (told instanceof Refused) {
      const { status, json } = toErrorJson(told)
      send(response, status, JSON_TYPE, json)
    } else {
      send(response, codeToHttpStatus(told.code), JSON_TYPE, JSON.stringify(errorToJson(told, undefined)))
    }
  }

  function send(response: ServerResponse, status: number, type: string, body: string | Uint8Array): void {
    if (closing()) response.setHeader('connection', 'close')
    if (status === 401) response.setHeader('www-authenticate', 'Bearer')
    response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) })
    response.end(body)
  }
}

function readJson(method: Method, body: Buffer): Message {
  if (!isUtf8(body)) throw invalidField('', 'the body is not UTF-8')
  const text = body.toString()
  try {
    return fromJsonString(method.desc.input, text)
  } catch (error) {
    throw malformedJson(method.desc.input, text, error)
  }
}

function readBinary(method: Method, body: Buffer): Message {
  try {
    return fromBinary(method.desc.input, body)
  } catch (error) {
    throw malformedBinary(error)
  }
}

function typeOf(contentType: string | undefined): typeof JSON_TYPE | typeof BINARY_TYPE | null {
  if (contentType === JSON_TYPE) return JSON_TYPE
  if (contentType === BINARY_TYPE) return BINARY_TYPE
  return contentType !== undefined && /^application\/json *; *charset="?utf-8"?$/i.test(contentType)
    ? JSON_TYPE
    : null
}

function header(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : value?.[0]
}

function tooLarge() {
  return invalidField('', `the request is larger than ${MOST_REQUEST_BYTES} bytes, the limit`)
}
