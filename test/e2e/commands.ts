/** The command line as people use it: in this process, or as a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { format } from 'node:util'
import { afterAll, vi } from 'vitest'
import { runCli } from '../../src/cli/program.ts'
import { SRC } from '../support/root.ts'
import { waitFor } from '../support/wait-for.ts'

export const MAIN = fileURLToPath(new URL('main.ts', SRC))

export type Finished = { readonly code: number | null; readonly stdout: string; readonly stderr: string }
type Env = Readonly<Record<string, string | undefined>>

export type Running = {
  readonly child: ChildProcess
  readonly stdout: () => string
  readonly stderr: () => string
  readonly finished: Promise<Finished>
}
type ServiceProcess = Running & { readonly url: string }

const started = new Set<Running>()

// Of the file that imports this. Skipped when that file fails to load, or when a hook of its own fails.
afterAll(async () => {
  for (const { child, finished } of started) {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await finished
  }
})

/** A process of `ipledger` that sees only what it is told; ended with the test's process, if it has not ended before. */
export function startProcess(args: readonly string[], env: Env): Running {
  const child = spawn(process.execPath, [MAIN, ...args], {
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

/** `ipledger serve` on ports of its own choosing, ready. */
export async function serve(env: Env, ...args: readonly string[]): Promise<ServiceProcess> {
  const ports = { IPLEDGER_PORT: '0', IPLEDGER_GRPC_PORT: '0', IPLEDGER_LOG_LEVEL: 'warn' }
  const running = startProcess(['serve', ...args], { ...ports, ...env })
  const url = await waitFor(
    () => {
      if (running.child.exitCode !== null) return `exit ${running.child.exitCode}`
      return /is ready: (http:\/\/\S+) [\s\S]*lease list/.exec(running.stdout())?.[1]
    },
    { what: 'the service to be ready' },
  )
  if (!url.startsWith('http')) throw new Error(`the service did not start: ${running.stderr()}`)
  return { ...running, url }
}

export async function stop(running: Running, signal: NodeJS.Signals = 'SIGTERM'): Promise<Finished> {
  running.child.kill(signal)
  return running.finished
}

/** One command in this process, to its end. One at a time: what it prints is the console's. */
export async function ipledger(
  service: { readonly url: string },
  args: readonly string[],
  env: Env = {},
): Promise<Finished> {
  const printed = { stdout: '', stderr: '' }
  const keep = (on: keyof typeof printed, text: string): true => {
    printed[on] += text
    return true
  }
  const spies = [
    vi.spyOn(console, 'log').mockImplementation((...told) => void keep('stdout', `${format(...told)}\n`)),
    vi.spyOn(console, 'error').mockImplementation((...told) => void keep('stderr', `${format(...told)}\n`)),
    vi.spyOn(process.stdout, 'write').mockImplementation((chunk) => keep('stdout', String(chunk))),
    vi.spyOn(process.stderr, 'write').mockImplementation((chunk) => keep('stderr', String(chunk))),
  ]
  // As the default server, of which commands that change something say nothing.
  const [, port] = /^http:\/\/127\.0\.0\.1:(\d+)$/.exec(service.url) ?? []
  const set = {
    IPLEDGER_TOKEN: undefined,
    IPLEDGER_LOG_LEVEL: 'silent',
    ...env,
    IPLEDGER_PORT: port,
    IPLEDGER_URL: port === undefined ? service.url : undefined,
  }
  for (const [name, value] of Object.entries(set)) vi.stubEnv(name, value)
  try {
    return { code: await runCli(args), ...printed }
  } finally {
    vi.unstubAllEnvs()
    for (const spy of spies) spy.mockRestore()
  }
}

/** One that must succeed; what `--json` printed. */
export async function ipledgerJson<T>(
  service: { readonly url: string },
  args: readonly string[],
  env: Env = {},
): Promise<T> {
  const { code, stdout, stderr } = await ipledger(service, [...args, '-o', 'json'], env)
  if (code !== 0) throw new Error(`ipledger ${args.join(' ')}: exit ${code}: ${stderr}`)
  return JSON.parse(stdout) as T
}

/** `reserve --kind pod`: as people type it. */
export function words(line: string): readonly string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare!)
}

/** Ids of processes whose command line mentions the path: those of its PostgreSQL. */
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
