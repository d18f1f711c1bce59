/** A shell in which a page's commands are pasted, one after the other. */
import { spawn } from 'node:child_process'
import type { Writable } from 'node:stream'

type Shell = AsyncDisposable & {
  /** What a terminal would show of the command, and how it ended. */
  run(command: string): Promise<{ readonly printed: string; readonly code: number }>
}

/** Takes commands by a descriptor of its own, so that none reads the next one as its input. */
const LOOP = `exec 2>&1
while IFS= read -r -d '' -u 3 command; do eval "$command" </dev/null; printf '\\n<ended %d>\\n' $?; done`

/** Ends, with all that it has started, when it is disposed of. */
export function openShell(directory: string, env: Readonly<Record<string, string>>): Shell {
  const child = spawn('bash', ['-c', LOOP], {
    cwd: directory,
    env,
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const commands = child.stdio[3] as Writable
  let text = ''
  let look = () => {}
  child.stdout!.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
    look()
  })
  return {
    run(command) {
      text = ''
      return new Promise((resolve, reject) => {
        look = () => {
          const end = /(.*)\n<ended (\d+)>\n$/s.exec(text)
          if (end !== null) resolve({ printed: end[1]!.trimEnd(), code: Number(end[2]) })
        }
        closed.then(() => reject(new Error(`the shell ended in ${command}: ${text}`)))
        commands.write(`${command}\0`)
      })
    },
    async [Symbol.asyncDispose]() {
      process.kill(-child.pid!, 'SIGTERM')
      await closed
    },
  }
}
