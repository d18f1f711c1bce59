/**
 * The pages beside the methods: probes, the description of the methods, metrics. Only metrics need a token. They name networks,
 * pools and sources, so their callers must be allowed to list these: an auditor, orchestrator or admin of every network. Without a
 * token file every caller on this machine is. A worker serves no methods: it has these pages alone (`startPages`).
 */
import { once } from 'node:events'
import * as http from 'node:http'
import type * as http2 from 'node:http2'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { Code, ConnectError } from '@connectrpc/connect'
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect'
import manifest from '../../../package.json' with { type: 'json' }
import { StartRefused } from '../../config.ts'
import openapi from '../../gen/openapi.json' with { type: 'json' }
import type { Logger } from '../../telemetry.ts'
import { internalError, Refused } from '../codec/errors.ts'
import { checkAllNetworks, checkRole, READERS } from '../rights.ts'
import { SERVICES } from '../rpc-server.ts'
import { isLoopback, type Tokens } from '../tokens.ts'
import { createConsole } from './console.ts'
import type { HealthState } from './health.ts'
import { subjectOf } from './tls.ts'

export type Pages = {
  readonly health: Pick<HealthState, 'live' | 'report'>
  readonly tokens: Tokens
  /** Null: not turned on. */
  readonly metrics: ((request: http.IncomingMessage, response: http.ServerResponse) => void) | null
  readonly log: Logger
}

const JSON_TYPE = 'application/json'
const OPENAPI = JSON.stringify(openapi)
const HOME = JSON.stringify({
  service: 'ipledger',
  docs: manifest.homepage,
  openapi: '/openapi.json',
  version: 'run: ipledger version',
})
type Answer = (request: http.IncomingMessage, response: http.ServerResponse) => void | Promise<void>

export function createPages({ health, tokens, metrics, log }: Pages): Answer {
  const answerMetrics: Answer = (request, response) => {
    if (metrics === null)
      return refuse(response, 404, unimplemented('metrics are off: start with IPLEDGER_METRICS=yes'))
    try {
      const caller = tokens.authenticate(request.headers.authorization, subjectOf(request.socket))
      checkRole(caller, READERS, 'to read metrics')
      checkAllNetworks(caller, 'metrics are of all')
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      const status = codeToHttpStatus(error.code)
      if (status === 401) response.setHeader('www-authenticate', 'Bearer')
      return refuse(response, status, error)
    }
    metrics(request, response)
  }

  const pages: Readonly<Record<string, Answer>> = {
    '/healthz': (_request, response) => page(response, 200, health.live()),
    '/readyz': async (_request, response) => {
      const { ready, text } = await health.report()
      page(response, ready ? 200 : 503, text)
    },
    '/metrics': answerMetrics,
    '/': (_request, response) => page(response, 200, HOME, JSON_TYPE),
    '/openapi.json': (_request, response) => page(response, 200, OPENAPI, JSON_TYPE),
  }

  const console = createConsole()

  return async (request, response) => {
    const { method, url = '' } = request
    if (console(request, response)) return
    const answer = Object.hasOwn(pages, url) ? pages[url] : undefined
    if (answer === undefined) refusePath(url, response)
    else if (method !== 'GET' && method !== 'HEAD') refuseMethod(response, 'GET, HEAD')
    else {
      try {
        await answer(request, response)
      } catch (error) {
        log.error({ url, err: error }, 'a page failed')
        if (!response.headersSent) refuse(response, 500, internalError())
      }
    }
  }
}

/** For a worker, which serves nothing else. */
export async function startPages(
  pages: Pages,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const answer = createPages(pages)
  const server = http.createServer((request, response) => {
    if (pages.tokens.everyoneIsAdmin && refuseHost(request.headers.host, response)) return
    void answer(request, response)
  })
  const listening = await listen(server, host, port, 'IPLEDGER_METRICS_PORT')
  return {
    port: listening,
    async close() {
      const closed = closeServer(server)
      server.closeAllConnections()
      await closed
    },
  }
}

function page(response: Response, status: number, text: string, type = 'text/plain; charset=utf-8'): void {
  response.statusCode = status
  response.setHeader('content-type', type)
  response.end(text)
}

type Response = http.ServerResponse | http2.Http2ServerResponse

/** As Connect writes an error, also where no method is reached. */
export function refuse(response: Response, status: number, error: ConnectError): void {
  page(response, status, JSON.stringify(errorToJson(error, undefined)), JSON_TYPE)
}

const unimplemented = (why: string) => new ConnectError(why, Code.Unimplemented)

/** 405 names the methods that are allowed (RFC 9110, 15.5.6). */
export function refuseMethod(response: Response, allowed: string): void {
  response.setHeader('allow', allowed)
  const call = "a method is called by POST: curl -H 'content-type: application/json' -d '{}' URL"
  refuse(response, 405, unimplemented(`allowed: ${allowed}; ${call}`))
}

export function refusePath(url: string, response: Response): void {
  const name = url.slice(url.lastIndexOf('/') + 1).toLowerCase()
  const meant = SERVICES.flatMap(({ methods }) => methods).find((one) => one.name.toLowerCase() === name)
  const path = meant === undefined ? '<Service>/<Method>' : `${meant.parent.name}/${meant.name}`
  const why = `there is no such page; a method is called by POST /ipledger.v1.${path}, see /openapi.json`
  refuse(response, 404, unimplemented(why))
}

/**
 * Against DNS rebinding: without tokens a page of another site, with a name that resolves to this address, could act as admin. Its
 * Host header has that name. True: refused.
 */
export function refuseHost(host: string | undefined, response: Response): boolean {
  const name = (host ?? '').replace(/:[0-9]*$/, '').toLowerCase()
  if (isLoopback(name.startsWith('[') && name.endsWith(']') ? name.slice(1, -1) : name)) return false
  refuse(response, 403, new ConnectError(NOT_LOOPBACK, Code.PermissionDenied))
  return true
}

const NOT_LOOPBACK =
  'Without tokens this server answers only to names of the loopback interface: call it as 127.0.0.1 or localhost.'

/** @throws StartRefused when the port is not free */
export async function checkPort(host: string, port: number, variable: string): Promise<void> {
  const server = createServer()
  await listen(server, host, port, variable)
  await closeServer(server)
}

/** `variable` sets the port. @throws StartRefused when it is not free */
export async function listen(server: Server, host: string, port: number, variable: string): Promise<number> {
  try {
    await once(server.listen({ host, port }), 'listening')
  } catch (error) {
    const why = WHY_NOT[(error as NodeJS.ErrnoException).code ?? '']
    if (why === undefined) throw error
    throw new StartRefused(`${why.replace('AT', `${host}:${port}`)} ${variable}.`, { cause: error })
  }
  return (server.address() as AddressInfo).port
}

const WHY_NOT: Readonly<Record<string, string>> = {
  EADDRINUSE: 'Something listens on AT already: stop it, or set',
  EACCES: 'Not allowed to listen on AT: choose a port above 1023 with',
  EADDRNOTAVAIL: 'AT is no address of this machine: correct IPLEDGER_HOST, or',
  ENOTFOUND: 'AT is no address of this machine: correct IPLEDGER_HOST, or',
}

export function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
