/**
 * The agent's end of the plugin's socket. A connection is one call: lines NAME=value of the CNI_ variables, an empty line, then
 * stdin until the plugin closes its half. The answer: a line with the exit code, and after a blank what goes to stderr; then stdout.
 */
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { dirname } from 'node:path'
import type { Answer } from '../cni/answer.ts'

const LARGEST_CALL = 1_048_576

type Answerer = (env: Readonly<Record<string, string>>, stdin: string) => Promise<Answer>

/** Only root may call. @throws Error if another agent listens there */
export async function listenForCalls(path: string, answer: Answerer): Promise<AsyncDisposable> {
  mkdirSync(dirname(path), { recursive: true })
  if (await isAnswered(path)) throw new Error(`another agent listens on ${path}`)
  rmSync(path, { force: true })
  const server = createServer({ allowHalfOpen: true }, (socket) => void serve(socket, answer))
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
  chmodSync(path, 0o600)
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) }
}

async function isAnswered(path: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const probe = createConnection(path)
    probe.once('connect', () => resolve(true)).once('error', () => resolve(false))
    probe.once('connect', () => probe.destroy())
  })
}

async function serve(socket: Socket, answer: Answerer): Promise<void> {
  // A plugin that was killed waits for nothing.
  socket.on('error', () => {})
  let text = ''
  socket.setEncoding('utf8')
  for await (const part of socket.iterator({ destroyOnReturn: false })) {
    text += part
    if (text.length > LARGEST_CALL) return void socket.destroy()
  }
  const end = text.indexOf('\n\n')
  if (end < 0) return void socket.destroy()
  const env = Object.fromEntries(
    text
      .slice(0, end)
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  const { exitCode, stdout, note = '' } = await answer(env, text.slice(end + 2))
  socket.end(`${exitCode}${note && ` ${note.replaceAll('\n', ' ')}`}\n${stdout}`)
}
