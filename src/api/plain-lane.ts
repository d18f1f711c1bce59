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
  type Header,
  MOST_REQUEST_BYTES,
  messageOf,
  refuse,
  timeoutOf,
} from './dispatch.ts'
import { invalidField, Refused, toErrorJson } from './errors.ts'
import { MOST_REPORT_BYTES, REPORT_PATH, readingReport, SLICE_BYTES } from './large-report.ts'
import { readJson } from './read-json.ts'

const JSON_TYPE = 'application/json'
const BINARY_TYPE = 'application/proto'

/** True when the request was taken. */
type PlainLane = (request: IncomingMessage, response: ServerResponse) => boolean

type Turn = {
  readonly response: ServerResponse
  readonly method: Method
  readonly isJson: boolean
  readonly most: number
  readonly call: Call | null
}

export function createPlainLane(front: Front, closing: () => boolean): PlainLane {
  const methods = new Map(front.methods.map((method) => [method.path, method]))

  return function take(request, response) {
    const method = methods.get(request.url!)
    if (method === undefined || request.method !== 'POST') return false
    const { headers } = request
    const type = typeOf(headers['content-type'])
    if (type === null || (headers['content-encoding'] ?? 'identity') !== 'identity') return false
    const most = method.path === REPORT_PATH ? MOST_REPORT_BYTES : MOST_REQUEST_BYTES
    const isTooLong = Number(headers['content-length'] ?? 0) > most
    const refused: Turn = { response, method, isJson: type === JSON_TYPE, most, call: null }
    let call: Call | null = null
    try {
      const said: Header = {
        system: 'connectrpc',
        authorization: headers.authorization,
        timeoutMs: timeoutOf(header(headers['connect-timeout-ms'])),
        traceparent: header(headers.traceparent),
      }
      call = beginCall(front, method, said)
      if (isTooLong) throw tooLarge(most)
    } catch (error) {
      // Answered when the request has arrived: a connection closed while its caller still sends is reset, and the
      // answer lost with it. What is too long is not worth reading.
      if (isTooLong) cut({ ...refused, call }, error)
      else request.once('end', () => tell(refused, error)).resume()
      return true
    }
    receive(request, { ...refused, call })
    return true
  }

  function receive(request: IncomingMessage, turn: Turn): void {
    const { most, response } = turn
    const count = front.countFor(null, response)
    const chunks: Buffer[] = []
    let size = 0
    let isCut = false
    request.on('data', (chunk: Buffer) => {
      if (isCut) return
      try {
        size += chunk.length
        if (size > most) throw tooLarge(most)
        count(chunk.length)
        chunks.push(chunk)
      } catch (error) {
        isCut = true
        cut(turn, error)
      }
    })
    request.on('end', () => {
      if (!isCut) void reply(turn, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
    })
  }

  async function reply(turn: Turn, body: Buffer): Promise<void> {
    const { response, method, isJson } = turn
    const call = turn.call!
    try {
      const isLong = turn.most === MOST_REPORT_BYTES && body.length > SLICE_BYTES
      if (isJson && !isUtf8(body)) throw invalidField('', 'the body is not UTF-8')
      const message = isLong
        ? await readLong(body, isJson)
        : isJson
          ? readJson(method.desc.input, body.toString())
          : readBinary(method, body)
      const answered = await answer(method, message, call)
      // As text, which goes out in one piece with the header; bytes take a second buffer.
      if (isJson) send(response, 200, JSON_TYPE, JSON.stringify(answered))
      else send(response, 200, BINARY_TYPE, toBinary(method.desc.output, messageOf(method, answered)))
      call.rpc?.end('OK', '')
    } catch (error) {
      tell(turn, error)
    }
  }

  /** Before the body was read: the connection is of no further use to a caller who sends what nobody reads. */
  function cut(turn: Turn, error: unknown): void {
    turn.response.setHeader('connection', 'close')
    tell(turn, error)
  }

  function tell({ response, method, call }: Turn, error: unknown): void {
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

function readBinary(method: Method, body: Buffer): Message {
  try {
    return fromBinary(method.desc.input, body)
  } catch (error) {
    throw malformedBinary(error)
  }
}

async function readLong(body: Buffer, isJson: boolean): Promise<Message> {
  try {
    return await inTurns(readingReport(body, isJson))
  } catch (error) {
    throw error instanceof Refused ? error : malformedBinary(error)
  }
}

function malformedBinary(error: unknown): Refused {
  const why = error instanceof Error ? error.message : String(error)
  return invalidField('', `the body is not a message of this method: ${why}`)
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

function tooLarge(most: number): Refused {
  return invalidField('', `the request is larger than ${most} bytes, the limit`)
}
