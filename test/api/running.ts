/** A server as it runs, on a database of its own, and callers of it in each protocol. */

import type { DescService } from '@bufbuild/protobuf'
import { type Client, createClient, type Transport } from '@connectrpc/connect'
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node'
import { afterAll } from 'vitest'
import { type RunningServer, startServer } from '../../src/api/server.ts'
import { loopbackTokens, type Tokens } from '../../src/api/tokens.ts'
import type { Ledger } from '../../src/ledger/ledger.ts'
import { type LedgerOptions, type OpenLedger, openLedger } from '../../src/ledger/open.ts'
import { createReads } from '../../src/ledger/reads.ts'
import type { Reads } from '../../src/ledger/reads-types.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { createIntake } from '../../src/sources/intake.ts'
import type { Intake } from '../../src/sources/intake-types.ts'
import { createLogger, type Logger } from '../../src/telemetry.ts'
import { type TestDatabase, useTestDatabase } from '../support/database.ts'
import { expectVerified } from '../support/verified.ts'

export type Running = {
  readonly database: TestDatabase
  readonly ledger: OpenLedger
  readonly reads: Reads
  readonly intake: Intake
  readonly server: RunningServer
  readonly url: string
  readonly grpcUrl: string
  /** What went wrong with batches: nothing, unless a test made it so. */
  readonly failures: string[]
}

/** At the top of a test file; everything ends after its tests. With the network `default`. */
export async function useServer(
  options: Pick<Parameters<typeof serverOn>[0], 'tokens' | 'metrics'> & Pick<LedgerOptions, 'movedBy'> = {},
): Promise<Running> {
  const database = await useTestDatabase()
  const failures: string[] = []
  const ledger = await openLedger({
    url: database.serviceUrl,
    observer: { failed: (network, what) => failures.push(`${network} ${what}`) },
    ...(options.movedBy !== undefined && { movedBy: options.movedBy }),
  })
  const pool = createPool({ url: database.serviceUrl, applicationName: 'test reads', max: 4 })
  const reads = createReads(pool)
  const intake = createIntake({ ledger, database: pool, log: createLogger('silent') })
  const running = { ledger, reads, intake, database, failures }
  await createNetwork(running, 'default')
  const server = await serverOn({ ...running, ...options })
  afterAll(async () => {
    await server.close()
    await ledger.close()
    await pool.end()
    await expectVerified(database)
  })
  return { ...running, server, ...urls(server) }
}

export async function createNetwork({ ledger }: Pick<Running, 'ledger'>, network: string): Promise<void> {
  const outcome = await ledger.submit({
    type: 'createNetwork',
    network,
    actor: { name: 'test', node: null },
    cause: 'test',
    requestId: null,
    fingerprint: null,
    traceId: null,
    settings: { description: '', labels: {} },
  })
  if (!outcome.ok) throw new Error(outcome.refusal.message)
}

/** Another server, on whatever it is given. */
export function serverOn(options: {
  readonly ledger: Ledger
  readonly reads: Reads
  readonly intake: Intake
  readonly tokens?: Tokens
  readonly deadlineMs?: number
  readonly logger?: Logger
  readonly metrics?: (() => Promise<string>) | null
}): Promise<RunningServer> {
  return startServer({
    ledger: options.ledger,
    reads: options.reads,
    intake: options.intake,
    tokens: options.tokens ?? loopbackTokens(),
    config: { host: '127.0.0.1', port: 0, grpcPort: 0, deadlineMs: options.deadlineMs ?? 10_000 },
    logger: options.logger ?? createLogger('fatal'),
    metrics: options.metrics ?? null,
  })
}

export function urls(server: RunningServer): { readonly url: string; readonly grpcUrl: string } {
  return { url: `http://127.0.0.1:${server.httpPort}`, grpcUrl: `http://127.0.0.1:${server.grpcPort}` }
}

export type Protocol = 'connect json' | 'connect binary' | 'grpc-web' | 'grpc' | 'connect json over h2'

export function transportOf(running: Pick<Running, 'url' | 'grpcUrl'>, protocol: Protocol): Transport {
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
  running: Pick<Running, 'url' | 'grpcUrl'>,
  protocol: Protocol = 'connect json',
): Client<S> {
  return createClient(service, transportOf(running, protocol))
}

export type Posted = {
  readonly status: number
  readonly headers: Headers
  // biome-ignore lint/suspicious/noExplicitAny: what a JSON caller sees, whatever it is
  readonly body: any
}

/** A call as curl makes it. */
export async function post(
  running: Pick<Running, 'url'>,
  method: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Posted> {
  const response = await fetch(`${running.url}/ipledger.v1.${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) }
}

export type Told = {
  readonly code: string
  readonly message: string
  readonly reason: string
  readonly metadata: Readonly<Record<string, string>>
  readonly retryAfter: string | undefined
}

/** The error in an answer, with its details read. */
export function told({ body }: Pick<Posted, 'body'>): Told {
  const debug = (type: string) =>
    (body.details ?? []).find((one: { type: string }) => one.type === type)?.debug
  const info = debug('google.rpc.ErrorInfo')
  return {
    code: body.code,
    message: body.message,
    reason: info?.reason,
    metadata: info?.metadata ?? {},
    retryAfter: debug('google.rpc.RetryInfo')?.retryDelay,
  }
}
