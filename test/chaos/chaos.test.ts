/**
 * PostgreSQL, ledgers and the network between them die, stop and break under load from three processes on one network. The
 * world is kept here, apart from the log: an address is live from the answer to Reserve until Release is sent, and whoever
 * gets no answer asks again with the same request id, wherever he gets one.
 *
 * Each fault once, in an order that the seed gives; IPLEDGER_CHAOS_ROUNDS=50 for the long form.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import { pino } from 'pino'
import { afterAll, test } from 'vitest'
import type { Command, LeaseView } from '../../src/core/command.ts'
import type { Outcome } from '../../src/core/decide.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { openDatabase } from '../../src/postgres/database.ts'
import { confirm, release, reserve } from '../core/given.ts'
import { eventsOf, expectInOrder, freshNetwork, linesOf, openTestLedger } from '../ledger/opened.ts'
import { canonical } from '../support/canonical.ts'
import { withClient } from '../support/database.ts'
import { startProxy, type TestProxy } from '../support/proxy.ts'
import { random } from '../support/random-walk.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'
import type { Asked } from './ledger-process.ts'

const ROUNDS = Number(process.env.IPLEDGER_CHAOS_ROUNDS ?? 10)
const SEED = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
const CALLERS = 12
const HELD_BY_EACH = 6
/** Answers between two faults. */
const PROGRESS = 60
/** Who has not answered by then may be stopped, and another is asked. */
const PATIENCE_MS = 2_000
/** `transaction_timeout` of the service's role, and what the server and this look at it may take. */
const LONGEST_LOCK_MS = 10_000 + 1_000
const ASK_AGAIN: ReadonlySet<Reason> = new Set([
  'OUTCOME_UNKNOWN',
  'DATABASE_UNAVAILABLE',
  'DEADLINE_EXCEEDED',
  'OVERLOADED',
])

const server = await startTestServer()
afterAll(() => server.stop())
await withClient(server.url('postgres'), (admin) => admin.query('create database chaos'))
const { serviceUrl } = await openDatabase(
  { databaseUrl: server.url('chaos'), databaseAdminUrl: undefined, directory: '' },
  { log: pino({ level: 'warn' }), embedded: 'own' },
)

// A process with a ledger.

type LedgerProcess = {
  readonly child: ChildProcess
  readonly proxy: TestProxy
  ask<T>(asked: Record<string, unknown>, withinMs: number): Promise<T>
}

async function startProcess(proxy: TestProxy): Promise<LedgerProcess> {
  const child = fork(new URL('./ledger-process.ts', import.meta.url).pathname, [proxy.url], { execArgv: [] })
  const waiting = new Map<number, { resolve(answer: never): void; reject(error: Error): void }>()
  let asked = 0
  child.on('message', ({ id, answer }: { id: number; answer: never }) => waiting.get(id)?.resolve(answer))
  child.on('exit', () => {
    for (const one of waiting.values()) one.reject(new Error('the process is gone'))
  })
  child.on('error', () => {})
  const answered = async <T>(id: number, withinMs: number): Promise<T> => {
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    waiting.set(id, { resolve: resolve as never, reject })
    const timer = setTimeout(() => reject(new Error('the process does not answer')), withinMs)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
      waiting.delete(id)
    }
  }
  await answered(0, 30_000)
  return {
    child,
    proxy,
    ask(message, withinMs) {
      asked += 1
      if (!child.connected) return Promise.reject(new Error('the process is gone'))
      child.send({ id: asked, ...message } as Asked, () => {})
      return answered(asked, withinMs)
    },
  }
}

// Faults.

type World = {
  readonly processes: LedgerProcess[]
  readonly pick: (below: number) => number
}

const one = ({ processes, pick }: World) => processes[pick(processes.length)]!

/** It may have ended meanwhile. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

async function stopped(pids: readonly number[], ms: number): Promise<void> {
  for (const pid of pids) signal(pid, 'SIGSTOP')
  await delay(ms)
  for (const pid of pids) signal(pid, 'SIGCONT')
}

/** It may be on its way back from the fault before. */
const postmaster = () => waitFor(() => server.pid(), { what: 'the postmaster' })

/** One that is in a transaction, if there is one at that moment. */
const backend = () =>
  waitFor(
    () =>
      withClient(server.url('chaos'), async (admin) => {
        const { rows } = await admin.query<{ pid: number }>(
          `select pid from pg_stat_activity where usename = 'ipledger_service' order by backend_xid is null, random() limit 1`,
        )
        return rows[0]?.pid
      }),
    { what: 'a backend' },
  )

/** The postmaster and its children. */
async function serverPids(): Promise<readonly number[]> {
  const pid = await postmaster()
  const children = execFileSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' })
  return [
    pid,
    ...children
      .split('\n')
      .map(Number)
      .filter((child) => child > 0),
  ]
}

const FAULTS: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
  'kill -9 of the postmaster': async () => signal(await postmaster(), 'SIGKILL'),
  'kill -9 of a backend': async () => signal(await backend(), 'SIGKILL'),
  'a backend is terminated': async () => signal(await backend(), 'SIGTERM'),
  'a backend stops for 2.5 s': async () => stopped([await backend()], 2_500),
  'all of PostgreSQL stops for 3 s': async () => stopped(await serverPids(), 3_000),
  'kill -9 of a ledger': async ({ processes, pick }) => {
    const at = pick(processes.length)
    const { child, proxy } = processes[at]!
    child.kill('SIGKILL')
    processes[at] = await startProcess(proxy)
  },
  'a ledger stops for 4 s': (world) => stopped([one(world).child.pid!], 4_000),
  'a packet is cut, the connection lost': async (world) => one(world).proxy.cutNextPacket('lost'),
  'a packet is cut, the connection silent': async (world) => one(world).proxy.cutNextPacket('silent'),
  'a commit is lost': async (world) =>
    one(world).proxy.loseNextCommit(world.pick(2) === 0 ? 'before' : 'after'),
}

/** For how long a transaction that holds a lock has lasted at most, by looking all the time. */
function watchLocks() {
  let longestMs = 0
  let isOver = false
  const look = async (): Promise<void> => {
    while (!isOver) {
      try {
        await withClient(server.url('chaos'), async (admin) => {
          while (!isOver) {
            const { rows } = await admin.query<{ ms: number | null }>(
              `select max(date_part('epoch', clock_timestamp() - xact_start) * 1000)::int as ms from pg_stat_activity
                where usename = 'ipledger_service' and backend_xid is not null`,
            )
            longestMs = Math.max(longestMs, rows[0]!.ms ?? 0)
            await delay(50)
          }
        })
      } catch {
        await delay(100)
      }
    }
  }
  const looking = look()
  return async () => {
    isOver = true
    await looking
    return longestMs
  }
}

test(
  `${ROUNDS} faults under load: what was acknowledged is there, nothing twice, and the log is in order`,
  async () => {
    console.log(`seed ${SEED}`)
    const pick = random(SEED)
    const observer = await openTestLedger(serviceUrl)
    const { network, of } = await freshNetwork(observer, { cidr: '10.0.0.0/25' })
    const proxies = await Promise.all([1, 2, 3].map(() => startProxy(serviceUrl)))
    const processes = await Promise.all(proxies.map(startProcess))
    const world: World = { processes, pick }
    const locks = watchLocks()

    const live = new Map<string, LeaseView>()
    const acknowledged: LeaseView[] = []
    const again: Partial<Record<string, number>> = {}
    let answers = 0
    let lastAnswer = performance.now()
    let longestSilence = 0
    let isStopping = false

    /** Until there is an answer that can be relied on. */
    async function settled(caller: number, asked: Command): Promise<LeaseView> {
      for (let attempt = caller; ; attempt += 1) {
        let outcome: Outcome
        try {
          const message = { command: asked, withinMs: PATIENCE_MS }
          outcome = await processes[attempt % processes.length]!.ask(message, PATIENCE_MS + 500)
        } catch (error) {
          const why = (error as Error).message
          again[why] = (again[why] ?? 0) + 1
          await delay(20)
          continue
        }
        if (outcome.ok) {
          const now = performance.now()
          answers += 1
          longestSilence = Math.max(longestSilence, now - lastAnswer)
          lastAnswer = now
          return outcome.answer.leases[0]!
        }
        const { reason, message } = outcome.refusal
        if (!ASK_AGAIN.has(reason)) throw new Error(`${asked.type}: ${reason}: ${message}`)
        again[reason] = (again[reason] ?? 0) + 1
        await delay(20)
      }
    }

    async function call(caller: number): Promise<readonly LeaseView[]> {
      const own: LeaseView[] = []
      for (let life = 0; !isStopping; life += 1) {
        const who = `c${caller}-${life}/1`
        const request = (what: string) => ({ requestId: `${what}-${caller}-${life}`, fingerprint: 'f' })
        const lease = await settled(caller, of(reserve(who, request('reserve'))))
        const other = live.get(lease.address)
        assert.equal(
          other,
          undefined,
          `${lease.address} has one holder: #${other?.fencingToken} and #${lease.fencingToken}`,
        )
        live.set(lease.address, lease)
        acknowledged.push(lease)
        own.push(lease)
        acknowledged.push(await settled(caller, { ...of(confirm(who)), ...request('confirm') }))
        if (own.length <= HELD_BY_EACH) continue
        const [gone] = own.splice(pick(own.length), 1)
        live.delete(gone!.address)
        acknowledged.push(
          await settled(caller, { ...of(release(gone!.fencingToken)), ...request('release') }),
        )
      }
      return own
    }

    const calling = Promise.all(Array.from({ length: CALLERS }, (_, caller) => call(caller)))
    const failed = calling.then(() => new Promise<never>(() => {}))
    const progress = (after: string) => {
      const before = answers
      return Promise.race([
        waitFor(() => answers >= before + PROGRESS, { what: `progress after: ${after}` }),
        failed,
      ])
    }
    await progress('the start')
    let faults: string[] = []
    for (let round = 1; round <= ROUNDS; round += 1) {
      if (faults.length === 0) faults = Object.keys(FAULTS)
      const [fault] = faults.splice(pick(faults.length), 1)
      const begun = performance.now()
      const before = answers
      longestSilence = 0
      await Promise.race([FAULTS[fault!]!(world), failed])
      await progress(fault!)
      const seconds = (ms: number) => (ms / 1_000).toFixed(1)
      console.log(
        `${round}. ${fault}: ${answers - before} answers in ${seconds(performance.now() - begun)} s, none for ${seconds(longestSilence)} s`,
      )
    }
    isStopping = true
    const held = (await calling).flat()
    const longestLockMs = await locks()

    assert.deepEqual(new Set(held.map(({ address }) => address)), new Set(live.keys()))
    const image = await expectInOrder(serviceUrl, network, observer)
    assert.deepEqual(
      [...image.records.values()]
        .filter(({ state }) => state !== 'FREE')
        .map(({ address, token, owner }) => `${address} ${token} ${owner!.name}`)
        .sort(),
      held.map(({ address, fencingToken, owner }) => `${address} ${fencingToken} ${owner!.name}`).sort(),
    )
    const events = new Map((await eventsOf(observer, network)).map((event) => [event.seq, event]))
    for (const { version, address, fencingToken, state } of acknowledged) {
      const event = events.get(version)
      assert.ok(
        event !== undefined && 'record' in event,
        `event ${version}, which was acknowledged, is there`,
      )
      const { record } = event
      assert.deepEqual(
        [record.address, record.token, record.ended ?? record.state],
        [address, fencingToken, state],
      )
    }
    const now = Date.now()
    const expected = JSON.parse(JSON.stringify(canonical(image, now)))
    for (const { ask } of processes) {
      const found = await ask<{ digest: string; canonical: string }>({ network, now }, 60_000)
      assert.deepEqual([found.digest, JSON.parse(found.canonical)], [image.digest, expected])
    }
    const lines = await linesOf(observer, network)
    assert.deepEqual(
      lines.filter((line) => !line.startsWith('lease.')),
      ['network.created', 'pool.created'],
    )
    console.log(
      `${events.size} events, ${acknowledged.length} answers; asked again: ${JSON.stringify(again)}; longest lock ${longestLockMs} ms`,
    )
    const { rows } = await withClient(serviceUrl, (client) =>
      client.query(`select 1 from pg_settings where name = 'transaction_timeout'`),
    )
    if (rows.length > 0)
      assert.ok(longestLockMs <= LONGEST_LOCK_MS, `a lock was held for ${longestLockMs} ms`)
    for (const { child } of processes) child.kill('SIGKILL')
    await observer.close()
    await Promise.all(proxies.map((proxy) => proxy.close()))
  },
  ROUNDS * 60_000,
)
