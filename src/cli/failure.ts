/** What people and programs read of a call that failed. */
import { create, type JsonValue, toJson } from '@bufbuild/protobuf'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { CallFailed } from '../client/call-failed.ts'
import type { Reason } from '../core/refusal.ts'
import { ItemErrorSchema } from '../gen/ipledger/v1/types_pb.ts'
import { JSON_ANSWERS, milliseconds } from './print.ts'

/** A refused field as people typed it: `--pool`, not `claims[0].pools[0]`. `optionFor` knows the options of fields. */
export function spoken(error: unknown, optionFor: (field: string) => string | undefined): unknown {
  const { message, metadata } = error as CallFailed
  const field = metadata?.field
  const option = field && optionFor(field)
  if (option && message.startsWith(`${field}: `))
    Object.assign(error as CallFailed, { message: option + message.slice(field.length) })
  return error
}

/** For programs: the API's ItemError. */
export function failureJson({ code, reason, message, metadata, retryAfterMs }: CallFailed): JsonValue {
  const error = create(ItemErrorSchema, {
    code,
    reason: reason ?? '',
    message,
    metadata: { ...metadata },
    ...(retryAfterMs !== undefined && { retryAfter: durationFromMs(retryAfterMs) }),
  })
  return toJson(ItemErrorSchema, error, JSON_ANSWERS)
}

/** For people: reason and message, details from the server, what to do, when to try again. */
export async function failureText(failure: CallFailed, url: string): Promise<string> {
  const { reason, message, metadata, retryAfterMs } = failure
  if (reason === undefined) return unanswered(failure, url)
  return [
    `ipledger: ${reason}: ${message}`,
    ...Object.entries(metadata)
      .filter(([key, value]) => key !== 'field' && value !== '' && !message.includes(value))
      .map(([key, value]) => `  ${key}: ${value}`),
    ...(retryAfterMs === undefined ? [] : [`  try again in ${milliseconds(retryAfterMs)}`]),
    ...(await remedy(failure)).map((text) => `  ${text}`),
  ].join('\n')
}

async function remedy({ reason = '', metadata, retryAfterMs }: CallFailed): Promise<readonly string[]> {
  const { beyondHead, address } = metadata
  if (beyondHead !== undefined)
    return [
      'Check what you typed. If ipledger did give out this number, the database was set back: see "ipledger recover --help".',
    ]
  // A reader has nothing to unconfigure, which is the remedy of the table.
  if (reason === 'LEASE_NOT_FOUND' && address !== undefined)
    return [`"ipledger explain ${address}" says who had it, and how that ended.`]
  if (reason === 'UNAUTHENTICATED')
    return ['Set IPLEDGER_TOKEN to a token that the server knows; "ipledger token create" makes one.']
  const { MEANINGS } = await import('../api/codec/errors.ts')
  // A newer server may know reasons that this table does not.
  if (!Object.hasOwn(MEANINGS, reason)) return []
  const sentences = MEANINGS[reason as Reason].caller.split(/(?<=\.) /)
  const said = sentences.filter((text) => retryAfterMs !== undefined || !text.includes('RetryInfo'))
  return [said.map(inOptions).join(' ')].filter((text) => text !== '')
}

/** Of the words of the API, those that the command line has otherwise. */
const inOptions = (text: string) =>
  text
    .replace(/Wait for RetryInfo(?: if there is one)?/, 'Wait that long')
    .replace('after RetryInfo', 'after that')
    .replaceAll('requestId', '--request-id')
    .replace('your liveAddresses', '--live')
    .replace('Correct the request: the metadata name the field and what is wrong with it.', 'Correct it.')
    .replace('in the metadata', 'above')
    .replace('UpdateNetwork', '"ipledger network update --no-closed"')

async function unanswered({ cause, code, message }: CallFailed, url: string): Promise<string> {
  const system = systemCode(cause)
  if (system === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `ipledger: the certificate that ${url} shows is for another host (${message}). Nothing was sent. Let --url name a host of the certificate.`
  if (/CERT|VERIFY_LEAF/.test(system))
    return `ipledger: the certificate of ${url} is not accepted (${message}). Nothing was sent. IPLEDGER_CA names the file of the CA that signed it.`
  const toRecover =
    process.argv[2] === 'recover' ? ' If nothing serves the database yet, say --database.' : ''
  if (['ECONNRESET', 'EPIPE', 'HPE_INVALID_CONSTANT'].includes(system) && (await speaksTls(url)))
    return `ipledger: ${url}: this port speaks TLS. Write https:// in --url or IPLEDGER_URL.`
  const unknown = `the host of ${url} is unknown. Correct IPLEDGER_URL.`
  const texts: Readonly<Record<string, string>> = {
    ECONNREFUSED: `nothing listens at ${url}. Start it with "ipledger serve", or set IPLEDGER_URL.${toRecover}`,
    ENOTFOUND: unknown,
    EAI_AGAIN: unknown,
    HPE_INVALID_CONSTANT: `what listens at ${url} does not speak HTTP/1.1: is it the port of gRPC? Correct IPLEDGER_URL.`,
  }
  return `ipledger: ${texts[system] ?? `no answer from ${url} (${code}: ${message}). A write may have been done; repeating it is safe, surely so with --request-id.`}`
}

/** Whether a server that broke off plain HTTP goes on when it is greeted by TLS; nothing else is sent. */
async function speaksTls(url: string): Promise<boolean> {
  const { protocol, hostname, port } = new URL(url)
  if (protocol !== 'http:') return false
  const { connect } = await import('node:tls')
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const socket = connect({
    host: hostname.replace(/^\[|\]$/g, ''),
    port: Number(port || 80),
    rejectUnauthorized: false,
    timeout: 2_000,
  })
  socket
    .on('secureConnect', () => resolve(true))
    .on('timeout', () => resolve(false))
    .on('error', () => resolve(false))
  return promise.finally(() => socket.destroy())
}

function systemCode(error: unknown): string {
  for (let at = error, left = 10; at instanceof Error && left > 0; at = at.cause, left--)
    if ('code' in at && typeof at.code === 'string') return at.code
  return ''
}
