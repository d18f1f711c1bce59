/** What one process of a node has at a time: an abstract socket, which the kernel closes with its process, however that ends. */
import { hash } from 'node:crypto'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { createServer, type Server } from 'node:net'

/** Held until it is closed, by whatever path the directory is named; keeps no process alive. Null: another has it. */
export async function tryLock(directory: string, name: string): Promise<Server | null> {
  const { dev, ino } = statSync(directory)
  const identity = hash('sha256', JSON.stringify([dev, ino, name]))
  const lock = createServer().unref().listen(`\0ipledger-${identity}`)
  return await once(lock, 'listening').then(
    () => lock,
    () => null,
  )
}
