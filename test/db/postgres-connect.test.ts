import { type AddressInfo, createServer } from 'node:net'
import type pg from 'pg'
import { afterEach, describe, expect, inject, onTestFinished, test } from 'vitest'
import { StartRefused } from '../../src/config.ts'
import { Nodes } from '../../src/ledger/nodes.ts'
import { asking } from '../../src/ledger/reads.ts'
import { checkServer, connect, createPool, readUrl, replaceLogin } from '../../src/postgres/connect.ts'
import { ConnectionLost } from '../../src/postgres/connection-lost.ts'
import { asSuperuser, useTestDatabase, withClient } from '../support/database.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

const database = await useTestDatabase()
const target = (url: string) => ({ url, applicationName: 'ipledger test connect' })

async function failure(url: string): Promise<Error> {
  return connect(target(url)).then(
    async (client) => {
      await client.end()
      throw new Error('connected')
    },
    (error: Error) => error,
  )
}

describe('what a server must offer', () => {
  const statements: string[] = []
  afterEach(async () => {
    await asSuperuser(...statements.splice(0))
  })

  test.each(['role', 'database', 'role in database'])(
    'synchronous_commit = off of the %s is refused',
    async (where) => {
      const owner = {
        role: `role ipledger_sync`,
        database: `database ${database.name}`,
        'role in database': `role ipledger_sync in database ${database.name}`,
      }[where]!
      await asSuperuser(
        `create role ipledger_sync login password 'sync'`,
        `alter ${owner} set synchronous_commit = off`,
      )
      statements.push(`alter ${owner} reset synchronous_commit`, 'drop role ipledger_sync')
      const url = replaceLogin(database.adminUrl, { user: 'ipledger_sync', password: 'sync' })
      await expect(connect(target(url))).rejects.toThrow(
        new StartRefused(
          'synchronous_commit is off for role "ipledger_sync", so a crash would lose acknowledged leases: ' +
            'alter role "ipledger_sync" set synchronous_commit = on.',
        ),
      )
    },
  )

  test('each new connection of the ledger is checked', async () => {
    const url = new URL(database.adminUrl)
    url.searchParams.set('options', '-c synchronous_commit=off')
    const nodes = new Nodes(url.href, { connections: 1 })
    await expect(nodes.connect('any')).rejects.toThrow('a crash would lose acknowledged leases')
    await nodes.end()
  })

  test('fsync = off is refused', async () => {
    const server = await startTestServer({ fsync: 'off' })
    onTestFinished(() => server.stop())
    await expect(connect(target(server.url('postgres')))).rejects.toThrow(
      new StartRefused(
        'The PostgreSQL server runs with fsync = off and can lose what it acknowledged: set fsync = on.',
      ),
    )
  })

  test('a database that is not UTF8 is refused', async () => {
    const name = `${database.name}_latin1`
    await asSuperuser(`create database ${name} template template0 encoding latin1 locale 'C'`)
    statements.push(`drop database ${name}`)
    await expect(connect(target(new URL(`/${name}`, database.adminUrl).href))).rejects.toThrow(
      'encoding is LATIN1',
    )
  })

  test.each([
    [{ number: 140012, version: '14.12' }, 'PostgreSQL 14.12 is too old: ipledger needs 15 or newer.'],
    [{ standby: true }, 'The PostgreSQL server is a read-only standby'],
  ])(
    '%o is refused (no such server can be had here: what it answers is made up)',
    async (answer, sentence) => {
      const good = {
        number: 180000,
        version: '18',
        fsync: 'on',
        commits: 'on',
        encoding: 'UTF8',
        standby: false,
        role: 'x',
      }
      const server = { query: async () => ({ rows: [{ ...good, ...answer }] }) }
      await expect(checkServer(server as unknown as pg.ClientBase)).rejects.toThrow(sentence)
    },
  )
})

describe('a failed connect is one sentence', () => {
  const { host, port } = readUrl(inject('postgres').url)
  const here = `PostgreSQL at ${host}:${port}`

  test('nothing listens', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await waitFor(() => server.listening)
    const free = (server.address() as { port: number }).port
    await new Promise((resolve) => server.close(resolve))
    const error = await failure(`postgresql://me:hunter2@127.0.0.1:${free}/ledger`)
    expect(error).toBeInstanceOf(ConnectionLost)
    expect(error.cause).toMatchObject({ code: 'ECONNREFUSED' })
    expect(error.message).toBe(
      `Cannot connect to PostgreSQL at 127.0.0.1:${free}, database "ledger": connect ECONNREFUSED 127.0.0.1:${free}. Start it, or correct DATABASE_URL.`,
    )
  })

  test('unknown host', async () => {
    const error = await failure('postgresql://me:hunter2@no-such-host.invalid/ledger')
    expect(error.message).toMatch(
      /^Cannot connect to PostgreSQL at no-such-host.invalid:5432, database "ledger": getaddrinfo E\w+ no-such-host.invalid. Start it, or correct DATABASE_URL.$/,
    )
  })

  test('wrong password', async () => {
    const error = await failure(replaceLogin(database.adminUrl, { user: 'postgres', password: 'hunter2' }))
    expect(error.message).toBe(
      `Cannot connect to ${here}, database "${database.name}": password authentication failed for user "postgres". Start it, or correct DATABASE_URL.`,
    )
    expect(JSON.stringify(error) + error.stack + String(error.cause)).not.toContain('hunter2')
  })

  test('something that accepts and says nothing', async () => {
    const mute = createServer(() => {}).listen(0, '127.0.0.1')
    await waitFor(() => mute.listening)
    const error = await failure(
      `postgresql://me@127.0.0.1:${(mute.address() as { port: number }).port}/ledger`,
    )
    expect(error.message).toContain('timeout expired')
    mute.close()
  })
})

describe('connections', () => {
  test('losing one rejects what is in flight, says so, and does not end the process', async () => {
    const client = await connect(target(database.adminUrl))
    const ended = new Promise<void>((resolve) => client.once('end', () => resolve()))
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    const sleeping = client.query('select pg_sleep(60)')
    const behind = client.query('select 1')
    const outcome = Promise.allSettled([sleeping, behind])
    await withClient(database.adminUrl, (other) =>
      other.query('select pg_terminate_backend($1)', [rows[0]!.pid]),
    )
    const [first, second] = (await outcome) as PromiseRejectedResult[]
    expect([first!.reason.code, second!.reason]).toEqual(['57P01', expect.any(ConnectionLost)])
    await ended
    await expect(client.query('select 1')).rejects.toThrow(ConnectionLost)
  })

  test('… also before its socket has ended, as between two statements of a transaction', async () => {
    const client = await connect(target(database.adminUrl))
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    // The server says that it ends the connection; the socket's end is read later.
    const statement = new Promise<Error | null>((resolve) => {
      client.once('error', () =>
        client.query('rollback').then(
          () => resolve(null),
          (error: Error) => resolve(error),
        ),
      )
    })
    await withClient(database.adminUrl, (other) =>
      other.query('select pg_terminate_backend($1)', [rows[0]!.pid]),
    )
    expect(await statement).toBeInstanceOf(ConnectionLost)
  })

  test('an error is no lost connection for the words of its text', async () => {
    const defect = new Error('a connection that has ended is closed: timeout, terminated')
    await expect(asking(Promise.reject(defect))).rejects.toBe(defect)
    const lost = new ConnectionLost('gone', defect)
    await expect(asking(Promise.reject(lost))).rejects.toMatchObject({
      name: 'ReadsUnavailable',
      cause: lost,
    })
    await withClient(database.adminUrl, async (client) => {
      const large = 'select 9007199254740993::int8 as value'
      await expect(client.query(large)).rejects.toThrow(RangeError)
      await expect(client.query('select 1/0')).rejects.toMatchObject({ code: '22012' })
    })
  })

  test('a pool hears of idle connections that were lost, and goes on', async () => {
    const lost: Error[] = []
    const pool = createPool({ ...target(database.adminUrl), max: 2, onLost: (error) => lost.push(error) })
    const { rows } = await pool.query<{ pid: number }>('select pg_backend_pid() as pid')
    await withClient(database.adminUrl, (other) =>
      other.query('select pg_terminate_backend($1)', [rows[0]!.pid]),
    )
    await waitFor(() => lost.length > 0)
    expect((await pool.query('select 1::int8 as one')).rows).toEqual([{ one: 1 }])
    await pool.end()
  })
})

describe('of several hosts', () => {
  const several = (...more: readonly string[]) =>
    database.adminUrl.replace(/@([^/]*)/, (_, here) => `@${[...more, here].join(',')}`)

  test('the one that takes writes is connected to: another refuses, another says nothing', async () => {
    let isGivenUp = false
    const mute = createServer((socket) => {
      socket.on('close', () => {
        isGivenUp = true
      })
    }).listen(0, '127.0.0.1')
    await waitFor(() => mute.listening)
    onTestFinished(() => void mute.close())
    const url = several(`127.0.0.1:${(mute.address() as AddressInfo).port}`, '127.0.0.1:1')
    const pool = createPool({ ...target(url), max: 1 })
    const { rows } = await pool.query<{ name: string }>('select current_database() as name')
    expect(isGivenUp, 'the silent one was waited for').toBe(false)
    expect(rows).toEqual([{ name: database.name }])
    await pool.end()
  })

  test('none takes writes: the sentence says of each why', async () => {
    const { host, port } = readUrl(database.adminUrl)
    const error = await failure(`${several('127.0.0.1:1')}?options=-c%20default_transaction_read_only%3Don`)
    expect(error).toBeInstanceOf(ConnectionLost)
    expect(error.message).toBe(
      `No host of DATABASE_URL takes writes. Cannot connect to PostgreSQL at 127.0.0.1:1, database "${database.name}": connect ECONNREFUSED 127.0.0.1:1. Start it, or correct DATABASE_URL. PostgreSQL at ${host}:${port}, database "${database.name}", is read-only.`,
    )
  })

  test('a wrong password is what counts', async () => {
    const url = replaceLogin(several('127.0.0.1:1'), { user: 'postgres', password: 'hunter2' })
    const error = await failure(url)
    expect(error.cause).toMatchObject({ code: '28P01' })
    expect(JSON.stringify(error) + error.stack + String(error.cause)).not.toContain('hunter2')
  })
})

describe('who waits for a connection of a pool', () => {
  test('waits while others bring theirs back, for longer than a connection may take to open', async () => {
    const pool = createPool({ ...target(database.adminUrl), max: 1 })
    const asked = Array.from({ length: 8 }, () => pool.query('select pg_sleep(1)'))
    expect(await Promise.all(asked)).toHaveLength(8)
    await pool.end()
  })

  test('is told when nobody does', async () => {
    const pool = createPool({ ...target(database.adminUrl), max: 1 })
    const lent = await pool.connect()
    await expect(pool.connect()).rejects.toThrow('No connection came free in 5 s: all are busy.')
    lent.release()
    expect((await pool.query('select 1::int8 as one')).rows).toEqual([{ one: 1 }])
    await pool.end()
  })
})

describe('URLs', () => {
  test.each([
    ['postgresql://a:b@h:1/d', 'postgresql://u:p%40%2F%3A@h:1/d'],
    ['postgres://h/d?sslmode=disable', 'postgres://u:p%40%2F%3A@h/d?sslmode=disable'],
    ['postgresql://a@/d?host=/run/pg&user=x&password=y', 'postgresql://u:p%40%2F%3A@/d?host=/run/pg'],
    ['postgresql://a:b%40c@[::1]:5433/d', 'postgresql://u:p%40%2F%3A@[::1]:5433/d'],
    ['postgresql://a:b,c@h:1,[::1]:2/d?x=1,2', 'postgresql://u:p%40%2F%3A@h:1,[::1]:2/d?x=1,2'],
  ])('another login in %s', (url, expected) => {
    const replaced = replaceLogin(url, { user: 'u', password: 'p@/:' })
    expect(replaced).toBe(expected)
    expect(readUrl(replaced)).toMatchObject({ user: 'u', password: 'p@/:', database: 'd' })
    expect(readUrl(replaced).host).toBe(readUrl(url).host)
  })
})

test('a server that ends a connection with the packet that opens it ends no process', async () => {
  const message = (type: string, body: string) => {
    const size = Buffer.alloc(4)
    size.writeInt32BE(body.length + 4)
    return Buffer.concat([Buffer.from(type), size, Buffer.from(body, 'latin1')])
  }
  const fatal = message('E', 'SFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0')
  const opening = [message('R', '\0\0\0\0'), message('Z', 'I'), fatal]
  const listener = createServer(
    (socket) => void socket.once('data', () => socket.end(Buffer.concat(opening))),
  )
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const { port } = listener.address() as AddressInfo
  const pool = createPool({ ...target(`postgresql://nobody@127.0.0.1:${port}/none`), max: 1 })
  expect(pool.listenerCount('connect'), 'graphile-worker warns of a pool without').toBe(1)
  await expect(pool.query('select 1')).rejects.toThrow()
  await pool.end()
  await new Promise((resolve) => listener.close(resolve))
})

test('the identity of a database is system identifier, database, table and timeline', async () => {
  const read = (url: string) =>
    withClient(
      url,
      async (client) => (await client.query('select ipledger.identity() as it')).rows[0].it as string,
    )
  const identity = await read(database.serviceUrl)
  expect(identity).toMatch(/^\d{15,20}\/\d+\/\d+\/0000000\d$/)
  expect(await read(database.adminUrl)).toBe(identity)
  // A table that was restored from a dump is another one, also for a statement that was prepared before.
  await withClient(database.adminUrl, async (admin) => {
    const ask = { name: 'identity', text: 'select ipledger.identity() as it' }
    expect((await admin.query(ask)).rows[0].it).toBe(identity)
    await admin.query('alter table ipledger.event rename to event_before')
    await admin.query('create table ipledger.event (like ipledger.event_before)')
    expect((await admin.query(ask)).rows[0].it).not.toBe(identity)
    await admin.query('drop table ipledger.event')
    await admin.query('alter table ipledger.event_before rename to event')
    expect((await admin.query(ask)).rows[0].it).toBe(identity)
  })
})
