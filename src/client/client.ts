/**
 * The SDK: ipledger's services as typed functions (Connect over HTTP/1.1). It adds two things to the generated
 * clients: failures are a `CallFailed` with the server's reason, and calls that are safe to repeat are repeated a few times
 * when the server is away for a moment.
 *
 * In messages a number of the log is a bigint, a duration is `{ seconds: 30n, nanos: 0 }`, a time is
 * `{ seconds, nanos }` since 1970. Each field is described in `proto/ipledger/v1`. Examples of these files are run by a test, with
 * everything of `ipledger-client` imported, a `client`, and a pool `web` of 10.0.0.0/24.
 */

import { createConnectTransport } from '@connectrpc/connect-node'
import { clientOver, type IpledgerClient } from './calls.ts'

export * from './exports.ts'

/** Where the service is, and who calls. */
export type ClientOptions = Readonly<{
  /** `http://127.0.0.1:8080` */
  url: string
  /** Bearer token. Undefined: none is sent. */
  token?: string | undefined
  /** For `https`: contents of PEM files. The CA of the server's certificate, and a certificate that may stand for a token. */
  tls?: Readonly<{ ca?: string; cert?: string; key?: string }>
}>

/**
 * Opens nothing until the first call. Calls reject with `CallFailed`.
 *
 * Repeated up to twice, after 100 ms and 200 ms or what the server asks for, when the server is unavailable or the connection broke:
 * requests with a `requestId`, and methods with an `idempotency_level` in the contract. All others are the caller's to repeat.
 *
 * ```ts
 * const client = createClient({ url: 'http://127.0.0.1:8080', token: process.env.IPLEDGER_TOKEN })
 * const owner = { kind: 'container', name: 'node-1/api', incarnation: 'start-17', interface: 'eth0', node: 'node-1' }
 * const { leases } = await client.leases.reserve({
 *   owner,
 *   claims: [{ pool: 'web' }],
 *   confirmWithin: { seconds: 60n },
 *   requestId: 'start-17/eth0',
 * })
 * // Configure the address of each lease, then:
 * for (const { leaseId, address, prefixLength } of leases) {
 *   await client.leases.confirm({ leaseId })
 *   console.log(`${address}/${prefixLength}`) // 10.0.0.1/32
 * }
 * await client.leases.release({ owner, removal: Removal.CONFIRMED })
 * ```
 */
export function createClient({ url, token, tls }: ClientOptions): IpledgerClient {
  return clientOver(token, (interceptors) =>
    createConnectTransport({
      baseUrl: url,
      httpVersion: '1.1',
      interceptors,
      ...(tls !== undefined && { nodeOptions: tls }),
    }),
  )
}
