/**
 * JSON over HTTP: kept connections, answers of limited size, no redirects (another origin must not get the secret). An answer that
 * breaks off, or is not there when the signal comes, throws; one that is not JSON has no body.
 */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns'
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent as HttpsAgent, type RequestOptions, request as requestHttps } from 'node:https'
import { z } from 'zod'
import { type Secrets, whyNotAsked } from './settings.ts'

export type Answered = { readonly status: number; readonly body: unknown }

/** `largest`: bytes of the answer. */
type GetJson = (url: URL, largest: number, signal: AbortSignal, options?: RequestOptions) => Promise<Answered>

/** Idle connections keep no process alive. `secrets`: undefined where the file has none for this source. */
export function createGetJson(secrets: Pick<Secrets, 'origin' | 'ca' | 'cert' | 'key'> | undefined): GetJson {
  const http = new HttpAgent({ keepAlive: true })
  const { ca, cert, key } = secrets ?? {}
  // An option of the agent, also undefined, wins over one of the request.
  const https = new HttpsAgent({
    keepAlive: true,
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key }),
  })
  return async (url, largest, signal, { headers, ...options } = {}) => {
    const to = options.socketPath ? `unix:${options.socketPath}` : url.origin
    const check = (host?: string): void => {
      const why = whyNotAsked(to, secrets?.origin, host)
      if (why !== null) throw new Error(why)
    }
    check()
    const [request, agent] = url.protocol === 'https:' ? [requestHttps, https] : [requestHttp, http]
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = request(url, {
        agent,
        ...options,
        lookup: lookUpThrough(check),
        signal,
        headers: { accept: 'application/json', 'accept-encoding': 'identity', ...headers },
      })
      sent.once('response', resolve)
      sent.once('error', reject)
      sent.end()
    })
    const chunks: Buffer[] = []
    let size = 0
    for await (const chunk of response as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > largest) throw new Error(`its answer is larger than ${largest} bytes`)
      chunks.push(chunk)
    }
    return { status: response.statusCode!, body: parse(Buffer.concat(chunks)) }
  }
}

/** `dns.lookup` for connections: no address is connected to that `check` throws at. */
function lookUpThrough(check: (address: string) => void) {
  return (
    host: string,
    options: LookupOptions,
    answer: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
  ): void =>
    lookup(host, options, (error, found: string | LookupAddress[], family) => {
      try {
        if (error === null)
          for (const one of typeof found === 'string' ? [{ address: found }] : found) check(one.address)
        answer(error, found, family)
      } catch (refused) {
        answer(refused as Error, [])
      }
    })
}

export const failure = z.object({ message: z.string() })

/** @throws with its status and message, if it is not what was asked for */
export function readAnswer<T>(what: z.ZodType<T>, { status, body }: Answered): T {
  const message = failure.safeParse(body).data?.message
  if (status !== 200) throw new Error(`it answers ${status}${message === undefined ? '' : `: ${message}`}`)
  const read = what.safeParse(body)
  if (!read.success) throw new Error(`its answer cannot be read: ${z.prettifyError(read.error)}`)
  return read.data
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    return undefined
  }
}
