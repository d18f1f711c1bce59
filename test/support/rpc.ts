/** Calls over HTTP as curl makes them; what a test asserts is what was on the wire. */

export type Refusal = {
  readonly code: string
  readonly message: string
  /** Empty for an answer. */
  readonly reason: string
  readonly metadata: Readonly<Record<string, string>>
  readonly retryAfter: string | undefined
}

export type Told = Refusal & {
  readonly status: number
  readonly headers: Headers
  /** The answer, or the Connect error. */
  // biome-ignore lint/suspicious/noExplicitAny: JSON as it came
  readonly body: any
}

/** `method` as `LeaseService/Reserve`; a body that is no object is sent as it is. */
export async function post(
  { url }: { readonly url: string },
  method: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Told> {
  const response = await fetch(`${url}/ipledger.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  })
  const text = await response.text()
  const answer = text === '' ? null : JSON.parse(text)
  return { ...readRefusal(answer), status: response.status, headers: response.headers, body: answer }
}

/** Of a Connect error, with its details read. */
// biome-ignore lint/suspicious/noExplicitAny: JSON as it came
export function readRefusal(body: any): Refusal {
  const detail = (type: string) =>
    (body?.details ?? []).find((one: { type: string }) => one.type === type)?.debug
  const info = detail('google.rpc.ErrorInfo')
  return {
    code: body?.code,
    message: body?.message,
    reason: info?.reason ?? '',
    metadata: info?.metadata ?? {},
    retryAfter: detail('google.rpc.RetryInfo')?.retryDelay,
  }
}

export type Rpc = ((method: string, message: unknown) => Promise<Told>) & {
  /** The answer of a call that must succeed. */
  readonly ok: (method: string, message: object) => Promise<Told['body']>
}

export function rpc(url: string, { token }: { readonly token?: string } = {}): Rpc {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const call = (method: string, message: unknown) => post({ url }, method, message, headers)
  const ok = async (method: string, message: object) => {
    const told = await call(method, message)
    if (told.status !== 200) throw new Error(`${method}: ${told.reason}: ${told.message}`)
    return told.body
  }
  return Object.assign(call, { ok })
}
