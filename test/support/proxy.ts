/** Between the ledger and PostgreSQL, for what networks do: connections lost at the worst moment, cut in a packet, gone silent. */
import { createConnection, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import { readUrl } from '../../src/postgres/connect.ts'

export type TestProxy = {
  /** The same login and database, through the proxy. */
  readonly url: string
  /** Loses the connection at the next commit: before the server has heard of it, or after it has answered. */
  loseNextCommit(when: 'before' | 'after'): void
  /** The next commit takes effect, and is answered as if it had been a rollback. */
  answerNextCommitWithRollback(): void
  /** The next commit arrives, and from its answer on nothing does, in either direction. */
  silentFromNextCommit(): void
  /** Of the next packet to the server half arrives; then the connection is lost, or goes silent for ever. */
  cutNextPacket(then: 'lost' | 'silent'): void
  /** Accepts and forwards nothing, in either direction, from now on or no longer. */
  silent(on: boolean): void
  /** Ends every connection, and refuses new ones until told otherwise. */
  down(on: boolean): void
  /** Ends every connection; the next ones go to this server, as an address that moves with a failover does. */
  retarget(url: string): void
  close(): Promise<void>
}

/** Bind of the prepared statement `commit`, as it is on the wire. */
const COMMIT = Buffer.from('B\0\0\0\x14\0commit\0', 'latin1')
/** The tags of finished commands, likewise. */
const COMMITTED = 'C\0\0\0\x0bCOMMIT\0'
const ROLLED_BACK = 'C\0\0\0\x0dROLLBACK\0'

export async function startProxy(target: string): Promise<TestProxy> {
  let { host, port } = readUrl(target)
  const pairs = new Set<{ readonly client: Socket; readonly server: Socket }>()
  let lose: 'before' | 'after' | 'silently' | 'misanswered' | undefined
  let cut: 'lost' | 'silent' | undefined
  let isSilent = false
  let isDown = false

  const listener = createServer((client) => {
    if (isDown) {
      client.destroy()
      return
    }
    const server = createConnection({ host, port })
    const pair = { client, server }
    pairs.add(pair)
    let isCut = false
    let answer: 'lost' | 'misanswered' | undefined
    const end = () => {
      pairs.delete(pair)
      client.destroy()
      server.destroy()
    }
    client.on('data', (chunk: Buffer) => {
      if (isSilent || isCut) return
      const at = lose === undefined ? -1 : chunk.indexOf(COMMIT)
      if (at >= 0) {
        const how = lose
        lose = undefined
        if (how === 'before') {
          // All that stands before it arrives, the commit does not.
          server.write(chunk.subarray(0, at), end)
          return
        }
        if (how === 'silently') isSilent = true
        else answer = how === 'after' ? 'lost' : 'misanswered'
      }
      // Not the few bytes of a heartbeat: a packet of a batch.
      if (cut !== undefined && chunk.length > 200) {
        const then = cut
        cut = undefined
        isCut = true
        server.write(chunk.subarray(0, chunk.length >> 1), () => {
          if (then === 'lost') end()
        })
        return
      }
      server.write(chunk)
    })
    server.on('data', (chunk: Buffer) => {
      if (isSilent || isCut) return
      const text = answer === undefined ? '' : chunk.toString('latin1')
      if (answer === 'lost' && /COMMIT|ROLLBACK/.test(text)) end()
      else if (answer === 'misanswered' && text.includes(COMMITTED)) {
        answer = undefined
        client.write(text.replace(COMMITTED, ROLLED_BACK), 'latin1')
      } else if (answer !== 'lost') client.write(chunk)
    })
    client.on('error', end).on('close', end)
    // Of a connection that was cut, the client does not hear that the server has ended it.
    const ended = () => (isCut ? server.destroy() : end())
    server.on('error', ended).on('close', ended)
  })
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const address = listener.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  const endAll = () => {
    for (const { client, server } of pairs) {
      client.destroy()
      server.destroy()
    }
  }
  return {
    url: target.replace(/^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)[^/?#]*/, `$1127.0.0.1:${address.port}`),
    loseNextCommit(when) {
      lose = when
    },
    answerNextCommitWithRollback() {
      lose = 'misanswered'
    },
    silentFromNextCommit() {
      lose = 'silently'
    },
    cutNextPacket(then) {
      cut = then
    },
    silent(on) {
      isSilent = on
    },
    down(on) {
      isDown = on
      if (on) endAll()
    },
    retarget(url) {
      ;({ host, port } = readUrl(url))
      endAll()
    },
    async close() {
      endAll()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

/** For one test. */
export async function useProxy(target: string): Promise<TestProxy> {
  const proxy = await startProxy(target)
  onTestFinished(() => proxy.close())
  return proxy
}
