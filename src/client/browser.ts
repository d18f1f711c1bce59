/** `createClient` in a browser, which has `fetch` and certificates of its own. The page must come from the service, or through one proxy. */
import { createConnectTransport } from '@connectrpc/connect-web'
import { clientOver, type IpledgerClient } from './calls.ts'

export * from './exports.ts'

/** `url`: the default is where the page comes from. `token`: a bearer token. */
export type ClientOptions = Readonly<{ url?: string; token?: string | undefined }>

/** As on Node.js: opens nothing until the first call; calls reject with `CallFailed`. */
export function createClient({ url = '', token }: ClientOptions = {}): IpledgerClient {
  return clientOver(token, (interceptors) => createConnectTransport({ baseUrl: url, interceptors }))
}
