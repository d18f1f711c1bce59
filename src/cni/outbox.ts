/**
 * Releases that are not delivered yet: the service is away, or the address is still configured. One file an attachment, below
 * the state directory, so that neither a crash of the plugin nor of the agent loses one. Files are not synced: after a loss of
 * power there are no containers, and sources prove that.
 *
 * Whoever delivers, or takes an attachment back into use, holds a lock, so that a release never overtakes the ADD after it.
 */
import { hash, randomUUID } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { CniOwner } from './call.ts'

export type Parting = {
  readonly network: string
  readonly owner: CniOwner
  /** Where it is, or was. Empty: not known, so nothing to look at. */
  readonly netns: string
}

export type Outbox = ReturnType<typeof createOutbox>

const LOCK_PATIENCE_MS = 30_000

export function createOutbox(stateDir: string) {
  const dir = join(stateDir, 'outbox')
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const fileOf = ({ network, owner }: Pick<Parting, 'network' | 'owner'>) =>
    join(dir, `${hash('sha256', JSON.stringify([network, owner]))}.json`)

  /** Alone among all processes of this node: an abstract socket, which the kernel closes with its process. */
  async function locked<T>(work: () => Promise<T>): Promise<T> {
    const name = `\0ipledger-outbox-${hash('sha256', dir).slice(0, 32)}`
    for (const until = performance.now() + LOCK_PATIENCE_MS; ; await delay(10)) {
      const lock = createServer()
      const isMine = await new Promise<boolean>((resolve) => {
        lock.once('error', () => resolve(false)).listen(name, () => resolve(true))
      })
      if (isMine) {
        try {
          return await work()
        } finally {
          await new Promise((closed) => lock.close(closed))
        }
      }
      if (performance.now() > until) throw new Error(`the lock of ${dir} is held by another process`)
    }
  }

  function read(file: string): Parting | null {
    try {
      return JSON.parse(readFileSync(file, 'utf8')) as Parting
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }

  return {
    put(parting: Parting): void {
      const file = fileOf(parting)
      const draft = `${file}.${randomUUID()}`
      writeFileSync(draft, JSON.stringify(parting))
      renameSync(draft, file)
    },
    /** Those of one network. */
    all(network: string): readonly Parting[] {
      const files = readdirSync(dir).filter((name) => name.endsWith('.json'))
      return files.flatMap((name) => read(join(dir, name)) ?? []).filter((one) => one.network === network)
    },
    remove: (parting: Parting): void => rmSync(fileOf(parting), { force: true }),
    /** The attachment is in use again. Waits for a delivery that is under way. */
    async withdraw(parting: Pick<Parting, 'network' | 'owner'>): Promise<void> {
      const file = fileOf(parting)
      if (read(file) !== null) await locked(async () => rmSync(file, { force: true }))
    },
    locked,
  }
}
