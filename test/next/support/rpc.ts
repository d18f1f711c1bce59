/** Calls over HTTP as any JSON client makes them; what a test asserts is what was on the wire. */
import { Agent, request } from 'node:http'

export type Told = {
  readonly status: number
  /** The answer, or the Connect error. */
  // biome-ignore lint/suspicious/noExplicitAny: JSON as it came
  readonly body: any
  /** Reason of a refusal; empty for an answer. */
  readonly reason: string
}

export type Rpc = ((method: string, message: object) => Promise<Told>) & {
  /** The answer of a call that must succeed. */
  readonly ok: (method: string, message: object) => Promise<Told['body']>
  readonly close: () => void
}

/** `method` as `LeaseService/Reserve`. */
export function rpc(url: string, options: { readonly sockets?: number; readonly token?: string } = {}): Rpc {
  const agent = new Agent({ keepAlive: true, maxSockets: options.sockets ?? 64 })
  const call = (method: string, message: object): Promise<Told> =>
    new Promise((resolve, reject) => {
      const sent = request(
        `${url}/ipledger.v1.${method}`,
        {
          agent,
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
          },
        },
        (response) => {
          const chunks: Buffer[] = []
          response.on('data', (chunk: Buffer) => chunks.push(chunk))
          response.on('error', reject)
          response.on('end', () => {
            const body = JSON.parse(Buffer.concat(chunks).toString('utf8'))
            resolve({ status: response.statusCode!, body, reason: reasonOf(body) })
          })
        },
      )
      sent.on('error', reject)
      sent.end(JSON.stringify(message))
    })
  return Object.assign(call, {
    ok: async (method: string, message: object) => {
      const told = await call(method, message)
      if (told.status !== 200) throw new Error(`${method}: ${told.reason}: ${told.body.message}`)
      return told.body
    },
    close: () => agent.destroy(),
  })
}

function reasonOf(body: { details?: readonly { type: string; debug?: { reason?: string } }[] }): string {
  return body.details?.find((detail) => detail.type === 'google.rpc.ErrorInfo')?.debug?.reason ?? ''
}
