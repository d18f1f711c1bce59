/**
 * The agent's end of the plugin's socket. A connection is one call: lines NAME=value of the CNI_ variables, an empty line, then
 * stdin until the plugin closes its half. The answer: a line with the exit code, and after a blank what goes to stderr; then stdout.
 */
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { basename, dirname, join } from 'node:path'
import type { Answer } from '../cni/answer.ts'
import { tryLock } from '../cni/lock.ts'

const LARGEST_CALL = 1_048_576

type Answerer = (env: Readonly<Record<string, string>>, stdin: string) => Promise<Answer>

/** Only root may call. @throws Error if another agent has this socket or this state directory */
export async function listenForCalls(
  path: string,
  state: string,
  answer: Answerer,
): Promise<AsyncDisposable> {
  await lock('--state', state, '.')
  await lock('--socket', dirname(path), basename(path))
  rmSync(path, { force: true })
  const server = createServer({ allowHalfOpen: true }, (socket) => void serve(socket, answer))
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
  chmodSync(path, 0o600)
  return server
}

/** Until this process ends. */
async function lock(option: string, directory: string, name: string): Promise<void> {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  if ((await tryLock(directory, name)) !== null) return
  const remedy = 'give this one a --socket, a --state and a --source of its own'
  throw new Error(`another agent of this node has ${option} ${join(directory, name)}: ${remedy}`)
}

async function serve(socket: Socket, answer: Answerer): Promise<void> {
  // A plugin that was killed needs no answer.
  socket.on('error', () => {})
  let text = ''
  socket.setEncoding('utf8')
  for await (const part of socket.iterator({ destroyOnReturn: false })) {
    text += part
    if (text.length > LARGEST_CALL) return void socket.destroy()
  }
  const end = text.indexOf('\n\n')
  if (end < 0) return void socket.destroy()
  const lines = text.slice(0, end).split('\n')
  const pairs = lines.map((line) => [line.split('=', 1)[0], line.slice(line.indexOf('=') + 1)])
  const { exitCode, stdout, note = '' } = await answer(Object.fromEntries(pairs), text.slice(end + 2))
  socket.end(`${exitCode}${note && ` ${note.replaceAll('\n', ' ')}`}\n${stdout}`)
}
