/** Another server beside that of a service, and callers in each protocol. */

import type { DescService } from '@bufbuild/protobuf'
import { type Client, createClient, type Transport } from '@connectrpc/connect'
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node'
import { ApiServer } from '../../src/api/http/server.ts'
import type { TlsFiles } from '../../src/api/http/tls.ts'
import { loopbackTokens, type Tokens } from '../../src/api/tokens.ts'
import type { Ledger } from '../../src/ledger/ledger.ts'
import type { Reads } from '../../src/ledger/reads.ts'
import type { Intake } from '../../src/sources/intake.ts'
import { createLogger, type Logger } from '../../src/telemetry.ts'
import type { TestService } from '../support/service.ts'

export type Running = Pick<TestService, 'url' | 'grpcUrl'>

/** Another server, on whatever it is given. */
export function serverOn(options: {
  readonly ledger: Ledger
  readonly reads: Reads
  readonly intake: Intake
  readonly tokens?: Tokens
  readonly deadlineMs?: number
  readonly logger?: Logger
  readonly takenWithinMs?: number
  readonly callsInFlight?: number
  readonly mostWatches?: number
  readonly tls?: TlsFiles | undefined
}): Promise<ApiServer> {
  return ApiServer.start({
    ...options,
    secrets: {},
    tokens: options.tokens ?? loopbackTokens(),
    config: {
      host: '127.0.0.1',
      port: 0,
      grpcPort: 0,
      deadlineMs: options.deadlineMs ?? 10_000,
      ...(options.tls !== undefined && {
        tls: { clientCa: undefined, clientRequired: false, ...options.tls },
      }),
    },
    logger: options.logger ?? createLogger('fatal'),
    metrics: null,
  })
}

export function urls(server: ApiServer): { readonly url: string; readonly grpcUrl: string } {
  return { url: `http://127.0.0.1:${server.httpPort}`, grpcUrl: `http://127.0.0.1:${server.grpcPort}` }
}

export type Protocol = 'connect json' | 'connect binary' | 'grpc-web' | 'grpc' | 'connect json over h2'

export function transportOf(running: Running, protocol: Protocol): Transport {
  switch (protocol) {
    case 'connect json':
      return createConnectTransport({ baseUrl: running.url, httpVersion: '1.1', useBinaryFormat: false })
    case 'connect binary':
      return createConnectTransport({ baseUrl: running.url, httpVersion: '1.1', useBinaryFormat: true })
    case 'grpc-web':
      return createGrpcWebTransport({ baseUrl: running.url, httpVersion: '1.1' })
    case 'grpc':
      return createGrpcTransport({ baseUrl: running.grpcUrl })
    case 'connect json over h2':
      return createConnectTransport({ baseUrl: running.grpcUrl, httpVersion: '2', useBinaryFormat: false })
  }
}

export function clientOf<S extends DescService>(
  service: S,
  running: Running,
  protocol: Protocol = 'connect json',
): Client<S> {
  return createClient(service, transportOf(running, protocol))
}

let networks = 0

/** A network of its own with a pool `web`. */
export async function newNetwork({ call }: Pick<TestService, 'call'>, pool: object = {}): Promise<string> {
  const network = `own-${networks++}`
  await call.ok('NetworkService/CreateNetwork', { name: network })
  await call.ok('PoolService/CreatePool', { network, name: 'web', cidr: '10.0.0.0/24', ...pool })
  return network
}

/** Every page of a list. */
export async function walk<P extends { nextPageToken: string }>(
  get: (pageToken: string) => Promise<P>,
): Promise<P[]> {
  const pages: P[] = []
  for (let pageToken = ''; ; ) {
    const page = await get(pageToken)
    pages.push(page)
    pageToken = page.nextPageToken
    if (pageToken === '') return pages
    if (pages.length > 1_000) throw new Error('the list does not end')
  }
}
