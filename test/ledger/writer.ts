/** A process on a log, for tests of logs: its loop, whose next commit a test may take into its own hands. */
import assert from 'node:assert/strict'
import type { Command } from '../../src/core/command.ts'
import { type Image, newImage } from '../../src/core/image.ts'
import { Clock } from '../../src/ledger/clock.ts'
import type { Log, Transaction, Write } from '../../src/ledger/log.ts'
import { Loop } from '../../src/ledger/loop.ts'
import { prefetchOf } from '../../src/ledger/prefetch.ts'

export const NOTHING = prefetchOf(newImage('none'), [])

type Prepared = { readonly transaction: Transaction; readonly write: Write }

export type Writer = {
  /** After the last write. */
  readonly image: Image
  /** Locks, catches up, decides, and answers with what is to be written. It writes nothing afterwards. */
  prepare(command: Command): Promise<Prepared>
  /** The same without catching up: as a process that believes its image. */
  prepareStale(command: Command): Promise<Prepared>
  write(...commands: readonly Command[]): Promise<void>
}

export function createWriter(log: Log, network: string): Writer {
  let image = newImage(network)
  let isStale = false
  let take: ((prepared: Prepared) => void) | undefined
  const told: Log = {
    ...log,
    async begin(name, asked) {
      const transaction = await log.begin(name, asked)
      const caught = isStale ? { ...transaction.caught, tail: [] } : transaction.caught
      return {
        ...transaction,
        caught,
        commit(write) {
          if (take === undefined) return transaction.commit(write)
          take({ transaction, write })
          return new Promise(() => {})
        },
      }
    },
  }
  const loop = new Loop(network, { log: told, clock: new Clock(), limits: { deadlineMs: 60_000 } })

  function prepare(command: Command): Promise<Prepared> {
    const { promise, resolve } = Promise.withResolvers<Prepared>()
    take = resolve
    void loop.submit(command)
    return promise
  }

  return {
    get image() {
      return image
    },
    prepare,
    prepareStale(command) {
      isStale = true
      return prepare(command)
    },
    async write(...commands) {
      for (const outcome of await Promise.all(commands.map((one) => loop.submit(one))))
        assert.ok(outcome.ok, 'a command is refused')
      image = (await loop.image())!
    },
  }
}
