/** A small HTTP server that answers as a test says: what sources that are asked are asked over. */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'

export type Asked = {
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

export type Answering = (asked: Asked, response: ServerResponse) => void

type Endpoint = {
  readonly url: string
  /** What it was asked, in order. */
  readonly asked: Asked[]
  /** From now on, and forgets what it was asked. */
  answer(answering: Answering): void
}

/** For the tests of a file. */
export async function useEndpoint(): Promise<Endpoint> {
  const asked: Asked[] = []
  let answering = says({}, 500)
  const server = createServer((request, response) => {
    const url = new URL(request.url!, 'http://endpoint')
    const one = { path: url.pathname, query: Object.fromEntries(url.searchParams), headers: request.headers }
    asked.push(one)
    answering(one, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterAll(() => {
    server.close()
    server.closeAllConnections()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    answer(next) {
      asked.length = 0
      answering = next
    },
  }
}

export function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

/** The same, whatever it is asked. */
export const says =
  (body: unknown, status = 200): Answering =>
  (_, response) =>
    json(response, status, body)

/** Promises more than it sends. */
export function breakOff(response: ServerResponse, body: unknown): void {
  const text = JSON.stringify(body)
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length })
  response.write(text.slice(0, text.length / 2), () => response.destroy())
}

/** Never answers. */
export function hang(): void {}

/** What is no answer, whatever was asked. */
export const NO_ANSWERS: readonly (readonly [string, Answering])[] = [
  ['nothing', hang],
  ['a closed connection', (_, response) => void response.destroy()],
  ['half of something', (_, response) => breakOff(response, { epoch: 'e1', complete: true, entries: [] })],
  ['an error', says({}, 500)],
  ['forbidden', (_, response) => void response.writeHead(403).end('Forbidden')],
  ['a page for people', (_, response) => void response.end('<h1>It works!</h1>')],
  ['an empty body', (_, response) => void response.end()],
]
