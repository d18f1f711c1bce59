/**
 * Floors that answer over HTTP, each a process of its own, with the flags of the service. `http` answers without any work.
 * `insert` is what a user would write instead: one INSERT of `pg`, over 10 connections.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { extname, join } from 'node:path'
import { SERVICE_FLAGS, type Service } from './service.ts'

export const FLOORS = { http: 'HTTP without any work', insert: 'HTTP and one INSERT' } as const
export type Floor = keyof typeof FLOORS

export async function startFloor(floor: Floor, url: string): Promise<Service> {
  // The package has .js files.
  const file = join(import.meta.dirname, `floor-process${extname(import.meta.filename)}`)
  const child = fork(file, floor === 'insert' ? [url] : [], { execArgv: SERVICE_FLAGS })
  const [port] = (await once(child, 'message')) as [number]
  return {
    pid: child.pid!,
    target: { host: '127.0.0.1', port },
    async stop() {
      child.disconnect()
      if (child.exitCode === null) await once(child, 'exit')
    },
  }
}
