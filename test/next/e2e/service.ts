/** The service and its command line as real processes. */

import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { format } from 'node:util'
import { afterAll, vi } from 'vitest'
import { runCli } from '../../../src/next/cli/program.ts'
import { waitFor } from '../support/wait-for.ts'

export const CHECKOUT = fileURLToPath(new URL('../../../', import.meta.url))
const MAIN = join(CHECKOUT, 'src', 'main.ts')

export type Finished = Readonly<{ code: number | null; stdout: string; stderr: string }>

export type Running = Readonly<{
  child: ChildProcess
  stdout: () => string
  stderr: () => string
  finished: Promise<Finished>
}>

type Env = Readonly<Record<string, string | undefined>>

const started = new Set<Running>()

// Of the file that imports this. Skipped when that file fails to load, or when a hook of its own fails.
afterAll(async () => {
  for (const { child, finished } of started) {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await finished
  }
})

/** A process of `ipledger` that sees only what it is told; ended with the test's process, if it has not ended before. */
export function startProcess(args: readonly string[], env: Env, cwd = CHECKOUT): Running {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd,
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  endWithThisProcess(child)
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    stdout += chunk
  })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    stderr += chunk
  })
  const finished = new Promise<Finished>((resolve) => {
    child.once('close', (code) => resolve({ code, stdout, stderr }))
  })
  const running = { child, stdout: () => stdout, stderr: () => stderr, finished }
  started.add(running)
  finished.then(() => started.delete(running))
  return running
}

/** However this one ends, a shell reads the end of its input and kills the child. */
function endWithThisProcess(child: ChildProcess): void {
  const watcher = spawn('/bin/sh', ['-c', 'read -r _ || kill -KILL "$0"', String(child.pid)], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  watcher.stdin.on('error', () => {})
  watcher.unref()
  child.once('exit', () => watcher.stdin.end('done\n'))
}

export type Service = Running & Readonly<{ url: string; port: number }>

/** `ipledger serve` on ports of its own choosing, ready. */
export async function startService(
  env: Env,
  options: Readonly<{ args?: string[]; cwd?: string }> = {},
): Promise<Service> {
  const running = startProcess(
    ['serve', ...(options.args ?? [])],
    { IPLEDGER_PORT: '0', IPLEDGER_GRPC_PORT: '0', IPLEDGER_LOG_LEVEL: 'warn', ...env },
    options.cwd,
  )
  const url = await waitFor(
    () => {
      if (running.child.exitCode !== null) return `exit ${running.child.exitCode}`
      return /is ready: (http:\/\/\S+) [\s\S]*lease list/.exec(running.stdout())?.[1]
    },
    { timeout: 30_000, what: 'the service to be ready' },
  )
  if (!url.startsWith('http')) throw new Error(`the service did not start: ${running.stderr()}`)
  return { ...running, url, port: Number(new URL(url).port) }
}

export async function stopService(service: Running, signal: NodeJS.Signals = 'SIGTERM'): Promise<Finished> {
  service.child.kill(signal)
  return service.finished
}

/** One command against a service, to its end, as a process. */
export async function ipledgerProcess(
  service: Readonly<{ url: string }>,
  args: readonly string[],
  env: Env = {},
): Promise<Finished> {
  return startProcess(args, { IPLEDGER_URL: service.url, ...env }).finished
}

/** The same without the process, which takes a third of a second. One at a time: what it prints is the console's. */
export async function ipledger(
  service: Readonly<{ url: string }>,
  args: readonly string[],
  env: Env = {},
): Promise<Finished> {
  let stdout = ''
  let stderr = ''
  const keep =
    (add: (text: string) => void) =>
    (chunk: string | Uint8Array): boolean => {
      add(String(chunk))
      return true
    }
  const spies = [
    vi.spyOn(console, 'log').mockImplementation((...words) => {
      stdout += `${format(...words)}\n`
    }),
    vi.spyOn(console, 'error').mockImplementation((...words) => {
      stderr += `${format(...words)}\n`
    }),
    vi.spyOn(process.stdout, 'write').mockImplementation(
      keep((text) => {
        stdout += text
      }),
    ),
    vi.spyOn(process.stderr, 'write').mockImplementation(
      keep((text) => {
        stderr += text
      }),
    ),
  ]
  for (const [name, value] of Object.entries({
    IPLEDGER_TOKEN: undefined,
    ...env,
    IPLEDGER_URL: service.url,
  })) {
    vi.stubEnv(name, value)
  }
  try {
    const code = await runCli(args)
    return { code, stdout, stderr }
  } finally {
    vi.unstubAllEnvs()
    for (const spy of spies) spy.mockRestore()
  }
}

/** One that must succeed; what `--json` printed. */
export async function ipledgerJson<T>(
  service: Readonly<{ url: string }>,
  args: readonly string[],
  env: Env = {},
): Promise<T> {
  const { code, stdout, stderr } = await ipledger(service, [...args, '--json'], env)
  if (code !== 0) throw new Error(`ipledger ${args.join(' ')}: exit ${code}: ${stderr}`)
  return JSON.parse(stdout) as T
}

/** Ids of processes whose command line or working directory mentions the path: those of its PostgreSQL. */
export function processesOf(path: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(path)
      } catch {
        return false
      }
    })
    .map(Number)
}
