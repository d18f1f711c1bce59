/**
 * kill -9 of PostgreSQL and of servers under load (INV-13, 14). The world is kept here, apart from the books: an address
 * is live from the answer to Reserve until Release is sent. Whoever gets no answer asks again with the same requestId.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { connect } from '../../src/postgres/connect.ts'
import { type Service, startService } from '../e2e/service.ts'
import { seededRandom } from '../support/random.ts'
import { type Rpc, rpc, type Told } from '../support/rpc.ts'
import { startTestServer } from '../support/server.ts'
import { expectVerified } from '../support/verified.ts'
import { waitFor } from '../support/wait-for.ts'

const KILLS = 20
const CALLERS = 16
const HELD_BY_EACH = 8
/** Answers between two kills. */
const PROGRESS = 60
/** What says that asking again is right. */
const ASK_AGAIN = new Set(['OUTCOME_UNKNOWN', 'DATABASE_UNAVAILABLE', 'OVERLOADED'])

const server = await startTestServer()
afterAll(() => server.stop())

type Lease = { readonly leaseId: string; readonly address: string; readonly fencingToken: string }
type Place = { service: Service; call: Rpc }

test(`${KILLS} kills under load: what was acknowledged is there, nothing twice, and the books are in order`, async () => {
  const random = seededRandom()
  console.log(`seed ${random.seed}`)
  const url = await createDatabase('killed')
  const places: Place[] = []
  for (let i = 0; i < 2; i += 1) places.push(await open(url))
  await places[0]!.call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/23', cooldown: '0s' })

  const live = new Map<string, Lease>()
  let answers = 0
  let stopping = false

  /** Until there is an answer that can be relied on. */
  async function settled(caller: number, method: string, message: object): Promise<Told['body']> {
    for (let attempt = caller; ; attempt += 1) {
      let told: Told
      try {
        told = await places[attempt % places.length]!.call(method, message)
      } catch {
        await delay(20)
        continue
      }
      if (told.status === 200) {
        answers += 1
        return told.body
      }
      if (!ASK_AGAIN.has(told.reason)) throw new Error(`${method}: ${told.reason}: ${told.body.message}`)
      await delay(20)
    }
  }

  async function work(caller: number): Promise<readonly Lease[]> {
    const own: Lease[] = []
    for (let life = 0; !stopping; life += 1) {
      const owner = { kind: 'sandbox', name: `${caller}-${life}`, incarnation: '1' }
      const { leases } = await settled(caller, 'LeaseService/Reserve', {
        owner,
        claims: [{ pool: 'web' }],
        requestId: `reserve-${caller}-${life}`,
      })
      const lease: Lease = leases[0]
      expect(live.get(lease.address), `${lease.address} has one holder`).toBeUndefined()
      live.set(lease.address, lease)
      own.push(lease)
      if (own.length <= HELD_BY_EACH) continue
      const [gone] = own.splice(random.below(own.length), 1)
      live.delete(gone!.address)
      await settled(caller, 'LeaseService/Release', {
        leaseId: gone!.leaseId,
        requestId: `release-${caller}-${life}`,
      })
    }
    return own
  }

  const working = Promise.all(Array.from({ length: CALLERS }, (_, caller) => work(caller)))
  const failed = working.then(
    () => undefined,
    (error: unknown) => error,
  )
  const killed: Record<string, number> = { postmaster: 0, backend: 0, server: 0 }
  for (let kill = 0; kill < KILLS; kill += 1) {
    const before = answers
    await Promise.race([
      waitFor(() => answers >= before + PROGRESS, { timeout: 30_000, what: `progress after kill ${kill}` }),
      failed.then((error) => Promise.reject(error)),
    ])
    // Four deaths of the whole server, the rest of one process of it, which makes all the others start anew.
    const victim = kill % 5 === 4 ? 'postmaster' : kill % 2 === 0 ? 'server' : 'backend'
    killed[victim]! += 1
    if (victim === 'postmaster') process.kill(server.pid()!, 'SIGKILL')
    if (victim === 'backend') await killBackend(url)
    if (victim === 'server') {
      const place = random.pick(places)
      place.service.child.kill('SIGKILL')
      await place.service.finished
      place.call.close()
      Object.assign(place, await open(url))
    }
  }
  await waitFor(() => answers > 0)
  stopping = true
  const held = (await working).flat()
  expect(killed).toEqual({ postmaster: 4, backend: 8, server: 8 })

  const admin = await connect({ url, applicationName: 'test' })
  const { rows } = await admin.query<Lease>(
    `select 'default/' || fencing_token as "leaseId", host(address) as address, fencing_token::text as "fencingToken"
     from ipledger.lease where network_id = 'default' order by address`,
  )
  await admin.end()
  const byAddress = (a: Lease, b: Lease) => (a.address < b.address ? -1 : 1)
  expect([...rows].sort(byAddress)).toEqual(
    held.map(({ leaseId, address, fencingToken }) => ({ leaseId, address, fencingToken })).sort(byAddress),
  )
  expect(new Set(held.map((lease) => lease.address))).toEqual(new Set(live.keys()))
  await expectVerified({ serviceUrl: url })
  for (const { call, service } of places) {
    call.close()
    service.child.kill('SIGTERM')
    await service.finished
  }
}, 180_000)

async function createDatabase(name: string): Promise<string> {
  const admin = await connect({ url: server.url('postgres'), applicationName: 'test' })
  await admin.query(`create database ${name}`)
  await admin.end()
  return server.url(name)
}

async function open(url: string): Promise<Place> {
  const service = await startService({ DATABASE_URL: url }, { args: ['--no-worker'] })
  return { service, call: rpc(service.url, { sockets: CALLERS }) }
}

/** One that is writing, if there is one at that moment. The server may be on its way back from the kill before. */
async function killBackend(url: string): Promise<void> {
  await waitFor(async () => {
    try {
      const admin = await connect({ url, applicationName: 'test' })
      try {
        const { rows } = await admin.query<{ pid: number }>(
          `select pid from pg_stat_activity where application_name = 'ipledger ledger' order by (state = 'active') desc limit 1`,
        )
        if (rows[0] === undefined) return false
        process.kill(rows[0].pid, 'SIGKILL')
        return true
      } finally {
        await admin.end().catch(() => undefined)
      }
    } catch {
      return false
    }
  })
}
