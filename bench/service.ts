/** `ipledger serve` as anybody starts it, in a process of its own, on a port of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { extname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import type { Target } from './keep-alive.ts'
import type { ScratchDatabase } from './scratch.ts'

export type Service = { readonly pid: number; readonly target: Target; stop(): Promise<void> }

/** As `npm start` has them. */
export const SERVICE_FLAGS = ['--max-semi-space-size=64']
const START_TIMEOUT_MS = 60_000
const STOP_TIMEOUT_MS = 20_000
/** The package has .js files. */
const MAIN = join(import.meta.dirname, '../src', `main${extname(import.meta.filename)}`)

export async function startService({ adminUrl }: ScratchDatabase, worker: boolean): Promise<Service> {
  const args = [...SERVICE_FLAGS, MAIN, 'serve', ...(worker ? [] : ['--no-worker'])]
  const child = spawn(process.execPath, args, {
    // Nothing of the caller's environment: neither its tokens nor its limits are what is measured.
    env: {
      DATABASE_URL: adminUrl,
      IPLEDGER_PORT: '0',
      IPLEDGER_GRPC_PORT: '0',
      IPLEDGER_LOG_LEVEL: 'error',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const late = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT_MS)
  for await (const line of createInterface(child.stdout)) {
    const [, url, grpcPort] = /is ready: (http:\/\/\S+:\d+) \(gRPC on port (\d+)/.exec(line) ?? []
    if (url === undefined) continue
    // Until then it loads the images of all networks.
    while (!(await fetch(`${url}/readyz`)).ok) await delay(50)
    clearTimeout(late)
    const { hostname, port } = new URL(url)
    return {
      pid: child.pid!,
      target: { host: hostname, port: Number(port), grpcPort: Number(grpcPort) },
      async stop() {
        const tooLate = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
        child.kill('SIGTERM')
        if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
        clearTimeout(tooLate)
      },
    }
  }
  throw new Error('the service did not start')
}
