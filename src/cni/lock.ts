/** A lock among the processes of a node: an abstract socket, which the kernel closes when its process ends. */
import { hash } from 'node:crypto'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { createServer, type Server } from 'node:net'

/** Held until it is closed; the same for every path of the directory; keeps no process alive. Null: another process has it. */
export async function tryLock(directory: string, name: string): Promise<Server | null> {
  const { dev, ino } = statSync(directory)
  const identity = hash('sha256', JSON.stringify([dev, ino, name]))
  const lock = createServer().unref().listen(`\0ipledger-${identity}`)
  return await once(lock, 'listening').then(
    () => lock,
    () => null,
  )
}
