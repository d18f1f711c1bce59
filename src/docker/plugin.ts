/** The driver's end of Docker's plugin protocol (docs/extend/plugin_api.md of docker/docs): JSON in POSTs over a unix socket. */
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import { basename, dirname, join } from 'node:path'
import { tryLock } from '../cni/lock.ts'
import type { Driver } from './driver.ts'

const LARGEST_CALL = 1_048_576

/** Docker knows the driver by the name of the socket. Only root may call. @throws Error if another driver has the socket */
export async function listenForDocker(path: string, driver: Driver): Promise<AsyncDisposable> {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 })
  // Until this process ends.
  if ((await tryLock(dirname(path), basename(path))) === null)
    throw new Error(
      `another driver has ${join(dirname(path), basename(path))}: give this one a --socket of its own`,
    )
  rmSync(path, { force: true })
  const server = createServer((request, response) => {
    const answered = read(request).then((body) => driver.answer(request.url!.slice(1), body))
    const send = (status: number, answer: object) =>
      response
        .writeHead(status, { 'content-type': 'application/vnd.docker.plugins.v1.1+json' })
        .end(JSON.stringify(answer))
    answered.then(
      (answer) =>
        answer === undefined ? send(404, { Err: `there is no ${request.url}` }) : send(200, answer),
      (error: Error) => send(400, { Err: error.message }),
    )
  })
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
  chmodSync(path, 0o600)
  return server
}

/** A call without arguments has no body. */
async function read(request: IncomingMessage): Promise<unknown> {
  let body = ''
  for await (const part of request.setEncoding('utf8')) {
    body += part
    if (body.length > LARGEST_CALL) throw new Error(`a call is at most ${LARGEST_CALL} characters`)
  }
  return body.trim() === '' ? {} : JSON.parse(body)
}
