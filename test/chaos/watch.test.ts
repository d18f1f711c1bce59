/**
 * Watches under chaos: three services write to one network while PostgreSQL is killed, and watches with filters lose their
 * connections, move to another service and read slowly. Each must have seen every matching event once, in order.
 *
 * IPLEDGER_CHAOS_ROUNDS=50 for the long form: 100,000 events, 50 watches, five kills.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { CallFailed, createClient, watchLeases } from '../../src/client/client.ts'
import { LeaseState, LeaseStateSchema } from '../../src/gen/ipledger/v1/types_pb.ts'
import { serve, stop } from '../e2e/commands.ts'
import { withClient } from '../support/database.ts'
import { random } from '../support/random-walk.ts'
import { startTestServer } from '../support/server.ts'
import { waitFor } from '../support/wait-for.ts'

const IS_LONG = Number(process.env.IPLEDGER_CHAOS_ROUNDS ?? 0) >= 50
const EVENTS = IS_LONG ? 100_000 : 6_000
const WATCHES = IS_LONG ? 50 : 20
const KILLS = IS_LONG ? 5 : 2
const SEED = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
const WRITERS = 6
const NODES = 5
const BATCH = 50

const server = await startTestServer()
afterAll(() => server.stop())

type Filter = { readonly node?: string; readonly ownerName?: string; readonly states?: LeaseState[] }
type EventRow = {
  readonly seq: number
  readonly type: string
  readonly state: string
  readonly node: string
  readonly name: string
  readonly before: string | null
}

/** What a watch should have seen, by the log itself. */
function matching(log: readonly EventRow[], { node, ownerName, states = [] }: Filter): readonly string[] {
  const names = states.map((state) => LeaseStateSchema.value[state]!.name)
  const fits = (state: string | null) => state !== null && (names.length === 0 || names.includes(state))
  return log
    .filter((one) => (node ?? one.node) === one.node && (ownerName ?? one.name) === one.name)
    .filter(({ state, before }) => fits(state) || fits(before))
    .map(({ seq, type, state }) => `${seq} ${type}${fits(state) && state !== 'ENDED' ? '' : ' gone'}`)
}

/** The first place where two lists differ, and what is around it. */
function differing(seen: readonly string[], wanted: readonly string[]): object {
  const at = wanted.findIndex((one, n) => seen[n] !== one)
  if (at < 0 && seen.length === wanted.length) return {}
  const from = Math.max(0, (at < 0 ? wanted.length : at) - 2)
  return { seen: seen.slice(from, from + 6), wanted: wanted.slice(from, from + 6), at, of: wanted.length }
}

test(
  `${WATCHES} watches of ${EVENTS} events through ${KILLS} kills see each that matches once, in order`,
  async () => {
    console.log(`seed ${SEED}`)
    const pick = random(SEED)
    await withClient(server.url('postgres'), (admin) => admin.query('create database chaos'))
    const env = { DATABASE_URL: server.url('chaos'), IPLEDGER_LOG_LEVEL: 'fatal' }
    const services = [await serve(env, '--no-worker')]
    services.push(...(await Promise.all([serve(env, '--no-worker'), serve(env, '--no-worker')])))
    const clients = services.map(({ url }) => createClient({ url }))
    const any = () => clients[pick(clients.length)]!
    await clients[0]!.pools.createPool({
      name: 'web',
      cidr: '10.0.0.0/16',
      cooldown: { seconds: 0n, nanos: 0 },
    })

    /** Until it is answered, wherever that is. */
    const persist = async <T>(call: (client: ReturnType<typeof any>) => Promise<T>): Promise<T> => {
      for (;;) {
        try {
          return await call(any())
        } catch (error) {
          if (!(error instanceof CallFailed)) throw error
          await delay(50)
        }
      }
    }
    let written = 0
    const write = async (writer: number) => {
      for (let turn = 0; written < EVENTS; turn += 1) {
        const requests = Array.from({ length: BATCH }, (_, n) => ({
          owner: {
            kind: 'pod',
            name: `w${writer}-${n % 10}`,
            incarnation: `${turn}-${n}`,
            // Two lives of each, so that some are superseded and none fills its limit.
            interface: `e${n}-${turn >> 1}`,
            node: `n${pick(NODES)}`,
          },
          requestId: `${writer}-${turn}-${n}`,
        }))
        const { results } = await persist((client) => client.leases.batchReserve({ requests }))
        const named = results.flatMap(({ result }) =>
          result.case === 'response' ? result.value.leases.map(({ leaseId }) => ({ leaseId })) : [],
        )
        written += named.length
        // All of them were refused: the database is away.
        if (named.length === 0) await delay(50)
        else {
          count(await persist((client) => client.leases.batchConfirm({ requests: named })))
          // Some are left to be superseded.
          count(await persist((client) => client.leases.batchRelease({ requests: named.slice(turn % 3) })))
        }
      }
    }
    const count = ({
      results,
    }: {
      readonly results: readonly { readonly result: { readonly case?: string | undefined } }[]
    }) => {
      written += results.filter(({ result }) => result.case === 'response').length
    }

    const filters: readonly Filter[] = [
      {},
      ...Array.from({ length: NODES }, (_, n) => ({ node: `n${n}` })),
      { ownerName: 'w0-1' },
      { states: [LeaseState.ACTIVE] },
      { states: [LeaseState.RESERVED], node: 'n1' },
    ]
    let upto: bigint | undefined
    const watches = Array.from({ length: WATCHES }, async (_, at) => {
      const filter = filters[at % filters.length]!
      const isSlow = at % 4 === 1
      const seen: string[] = []
      let connections = 0
      for (let after = 0n; upto === undefined || after < upto; ) {
        // Lost after some messages; the next goes on where it was, mostly elsewhere.
        let left = 1 + pick(60)
        connections += 1
        for await (const one of watchLeases(any(), { ...filter, after })) {
          for (const { lease, type, gone } of one.changes)
            seen.push(`${lease!.version} ${type}${gone ? ' gone' : ''}`)
          after = one.position
          left -= 1
          if (left === 0 || (upto !== undefined && after >= upto)) break
          if (isSlow) await delay(20)
        }
      }
      return { filter, seen, connections }
    })

    const kill = async () => {
      for (let n = 1; n <= KILLS; n += 1) {
        await waitFor(() => written > (n * EVENTS) / (KILLS + 1), { timeout: 600_000 })
        process.kill(await waitFor(() => server.pid(), { what: 'the postmaster' }), 'SIGKILL')
      }
    }
    await Promise.all([kill(), ...Array.from({ length: WRITERS }, (_, writer) => write(writer))])
    const { network } = await persist((client) => client.networks.getNetwork({ name: 'default' }))
    upto = network!.head
    const results = await Promise.all(watches)

    const log = await waitFor(() =>
      withClient(server.url('chaos'), async (admin) => {
        const { rows } = await admin.query<EventRow>(
          `select e.seq::int8 as seq, e.type, case e.state when 'FREE' then 'ENDED' else e.state end as state, e.node,
              e.owner_name as name, case b.state when 'FREE' then 'ENDED' else b.state end as before
             from ipledger.event e
             left join ipledger.event b on b.network_id = e.network_id and b.seq = e.previous and b.token = e.token
            where e.network_id = 'default' and e.address is not null and e.seq <= $1 order by e.seq`,
          [String(upto)],
        )
        return rows
      }),
    )
    expect(log.length).toBeGreaterThanOrEqual(EVENTS)
    for (const { filter, seen } of results)
      expect({ filter, ...differing(seen, matching(log, filter)) }).toEqual({ filter })
    const sent = results.reduce((sum, { seen }) => sum + seen.length, 0)
    const connections = results.reduce((sum, one) => sum + one.connections, 0)
    console.log(`${log.length} events, ${sent} sent over ${connections} connections`)
    for (const one of services) await stop(one)
  },
  IS_LONG ? 900_000 : 180_000,
)
