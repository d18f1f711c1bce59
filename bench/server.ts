/** `ipledger serve` as anybody starts it, in a process of its own, on a port of its own. */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Target } from './keep-alive.ts'
import type { ScratchDatabase } from './scratch.ts'

export type Server = {
  readonly pid: number
  readonly url: string
  readonly target: Target
  /** Lets calls finish, and writes the profile if there is to be one. */
  stop(): Promise<void>
}

export type ServerOptions = {
  readonly database: ScratchDatabase
  /** Jobs too: what runs for long needs its rows pruned. */
  readonly worker: boolean
  /** Where to write a CPU profile. */
  readonly profile?: string
  /** Beside what every server is told. */
  readonly env?: Readonly<Record<string, string>>
  /** Instead of `ipledger serve`: another script that prints where it is ready. */
  readonly script?: string
}

const START_TIMEOUT_MS = 30_000
const STOP_TIMEOUT_MS = 20_000
const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url))
/** As `npm start` has them. */
const SERVICE_FLAGS: readonly string[] = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
).config.serviceFlags.split(' ')

export async function startServer(options: ServerOptions, signal: AbortSignal): Promise<Server> {
  const { database, profile } = options
  if (profile !== undefined) mkdirSync(profile, { recursive: true })
  const child = spawn(
    process.execPath,
    [
      ...(profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]),
      ...(options.script === undefined
        ? [...SERVICE_FLAGS, MAIN, 'serve', ...(options.worker ? [] : ['--no-worker'])]
        : [options.script]),
    ],
    {
      // Nothing of the caller's environment: neither its tokens nor its limits are what is measured.
      env: {
        DATABASE_URL: database.adminUrl,
        IPLEDGER_PORT: '0',
        IPLEDGER_GRPC_PORT: '0',
        IPLEDGER_LOG_LEVEL: 'error',
        ...options.env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  let said = ''
  const keep = (chunk: string) => {
    said = (said + chunk).slice(-4_096)
  }
  child.stdout.setEncoding('utf8').on('data', keep)
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    keep(chunk)
    process.stderr.write(chunk)
  })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const abort = () => child.kill('SIGKILL')
  signal.addEventListener('abort', abort, { once: true })

  const url = await new Promise<string>((resolve, reject) => {
    const fail = () => reject(new Error(`the server did not start: ${said.trim()}`))
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      fail()
    }, START_TIMEOUT_MS)
    child.once('exit', fail)
    child.stdout.on('data', () => {
      const found = /is ready: (http:\/\/\S+:\d+)/.exec(said)
      if (found === null) return
      clearTimeout(timer)
      child.off('exit', fail)
      resolve(found[1]!)
    })
  })
  let stopped: Promise<void> | undefined
  async function stop(): Promise<void> {
    signal.removeEventListener('abort', abort)
    child.kill('SIGTERM')
    const kill = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
    await exited
    clearTimeout(kill)
    if (child.exitCode !== 0) throw new Error(`the server did not stop in order: ${said.trim()}`)
  }

  const { hostname, port } = new URL(url)
  return {
    pid: child.pid!,
    url,
    target: { host: hostname, port: Number(port) },
    stop() {
      stopped ??= stop()
      return stopped
    },
  }
}
