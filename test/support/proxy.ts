/** Between the ledger and PostgreSQL, for what networks do: connections lost at the worst moment, or gone silent. */
import { createConnection, createServer, type Socket } from 'node:net'
import { readUrl } from '../../src/postgres/connect.ts'

export type TestProxy = {
  /** The same login and database, through the proxy. */
  readonly url: string
  /** Loses the connection at the next commit: before the server has heard of it, or after it has answered. */
  loseNextCommit(when: 'before' | 'after'): void
  /** The next commit takes effect, and is answered as if it had been a rollback. */
  answerNextCommitWithRollback(): void
  /** The next error of this SQLSTATE arrives; the connection is lost as soon as the client says anything more. */
  loseAfterNext(sqlState: string): void
  /** The next commit arrives, and from its answer on nothing does, in either direction. */
  silentFromNextCommit(): void
  /** Accepts and forwards nothing, in either direction, from now on or no longer. */
  silent(on: boolean): void
  /** Ends every connection, and refuses new ones until told otherwise. */
  down(on: boolean): void
  /** Ends every connection; the next ones go to this server, as an address that moves with a failover does. */
  retarget(url: string): void
  /** Commits that went through or were lost. */
  commits(): number
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
  let lose: 'before' | 'after' | 'silently' | undefined
  let misanswers = false
  let fatal: string | undefined
  let silent = false
  let down = false
  let commits = 0

  const listener = createServer((client) => {
    if (down) {
      client.destroy()
      return
    }
    const server = createConnection({ host, port })
    const pair = { client, server }
    pairs.add(pair)
    let answerIsLost = false
    let lastWords = false
    const end = () => {
      pairs.delete(pair)
      client.destroy()
      server.destroy()
    }
    client.on('data', (chunk: Buffer) => {
      if (silent) return
      if (lastWords) {
        end()
        return
      }
      const at = chunk.indexOf(COMMIT)
      if (at >= 0) {
        commits += 1
        if (lose === 'before') {
          lose = undefined
          // All that stands before it arrives, the commit does not.
          server.write(chunk.subarray(0, at), end)
          return
        }
        if (lose === 'after') {
          lose = undefined
          answerIsLost = true
        }
        if (lose === 'silently') {
          lose = undefined
          silent = true
        }
      }
      server.write(chunk)
    })
    server.on('data', (chunk: Buffer) => {
      if (silent) return
      if (fatal !== undefined && chunk.includes(`\0C${fatal}\0`)) {
        fatal = undefined
        lastWords = true
      }
      if (misanswers && chunk.includes(COMMITTED, 0, 'latin1')) {
        misanswers = false
        client.write(chunk.toString('latin1').replace(COMMITTED, ROLLED_BACK), 'latin1')
        return
      }
      if (!answerIsLost) {
        client.write(chunk)
        return
      }
      const tag = chunk.toString('latin1')
      if (tag.includes('COMMIT') || tag.includes('ROLLBACK')) end()
    })
    for (const socket of [client, server]) {
      socket.on('error', end)
      socket.on('close', end)
    }
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
    url: replacePlace(target, address.port),
    loseNextCommit(when) {
      lose = when
    },
    answerNextCommitWithRollback() {
      misanswers = true
    },
    loseAfterNext(sqlState) {
      fatal = sqlState
    },
    silentFromNextCommit() {
      lose = 'silently'
    },
    silent(on) {
      silent = on
    },
    down(on) {
      down = on
      if (on) endAll()
    },
    retarget(url) {
      ;({ host, port } = readUrl(url))
      endAll()
    },
    commits: () => commits,
    async close() {
      endAll()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

function replacePlace(url: string, port: number): string {
  return url.replace(/^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)[^/?#]*/, `$1127.0.0.1:${port}`)
}
