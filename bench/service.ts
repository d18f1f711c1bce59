/** `ipledger serve` as anybody starts it, in a process of its own, on a port of its own. */
import { spawn } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Target } from './keep-alive.ts'
import type { ScratchDatabase } from './scratch.ts'

export type Service = { readonly pid: number; readonly target: Target; stop(): Promise<void> }

/** As `npm start` has them. */
export const SERVICE_FLAGS = ['--max-semi-space-size=64']
const START_TIMEOUT_MS = 60_000
const STOP_TIMEOUT_MS = 20_000
const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url))

export async function startService(
  { adminUrl }: ScratchDatabase,
  { worker, profile }: { readonly worker: boolean; readonly profile: string | undefined },
): Promise<Service> {
  const profiling = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]
  const child = spawn(
    process.execPath,
    [...SERVICE_FLAGS, ...profiling, MAIN, 'serve', ...(worker ? [] : ['--no-worker'])],
    {
      // Nothing of the caller's environment: neither its tokens nor its limits are what is measured.
      env: {
        DATABASE_URL: adminUrl,
        IPLEDGER_PORT: '0',
        IPLEDGER_GRPC_PORT: '0',
        IPLEDGER_LOG_LEVEL: 'error',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
  const { promise: ready, resolve, reject } = Promise.withResolvers<URL>()
  const exited = new Promise<void>((done) => child.once('exit', () => done()))
  let said = ''
  const fail = () => reject(new Error(`the service did not start: ${said}`))
  const timer = setTimeout(fail, START_TIMEOUT_MS)
  child.once('exit', fail)
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    said = (said + chunk).slice(-4_096)
    const url = /is ready: (http:\/\/\S+:\d+)/.exec(said)?.[1]
    if (url !== undefined) resolve(new URL(url))
  })
  try {
    const { hostname, port } = await ready
    // Until then it loads the images of all networks.
    while (!(await fetch(`http://${hostname}:${port}/readyz`)).ok) await delay(50)
    return {
      pid: child.pid!,
      target: { host: hostname, port: Number(port) },
      async stop() {
        child.kill('SIGTERM')
        const kill = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
        await exited
        clearTimeout(kill)
      },
    }
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  } finally {
    clearTimeout(timer)
  }
}
