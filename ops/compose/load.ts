/**
 * Sandboxes that come and go, so that the dashboards move: a pool of its own, and an orchestrator that reports what runs.
 * Most sandboxes end with a Release; some are forgotten and end by proof; now and then one is released while it lives.
 *
 * Bounded: at most `MOST` sandboxes at a time, one begun or ended a tick, until it is told to end. Asks IPLEDGER_URL with
 * IPLEDGER_TOKEN, of role admin. Not for a network that anybody uses.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { CallFailed } from '../../src/client/call-failed.ts'
import { createClient } from '../../src/client/client.ts'
import { readConfig } from '../../src/config.ts'
import { Orchestrator } from '../../src/demo/orchestrator.ts'

const POOL = 'load'
/** Room for those that run and those that cool, two minutes each. */
const CIDR = '10.99.0.0/23'
const MOST = 200
const TICK_MS = 500
const LIST_EVERY_MS = 10_000
/** Of those that end. */
const FORGOTTEN = 0.05
const RELEASED_ALIVE = 0.002

const { clientUrl: url, clientToken: token } = readConfig()
const client = createClient({ url, token })
const stopping = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopping.abort())

await client.pools.getPool({ name: POOL }).catch((error: unknown) => {
  if (!(error instanceof CallFailed) || error.reason !== 'POOL_NOT_FOUND') throw error
  return client.pools.createPool({ name: POOL, cidr: CIDR })
})
const world = new Orchestrator({ client, id: POOL, pool: POOL, intervalMs: LIST_EVERY_MS })
await world.register(client)

const run = Date.now().toString(36)
const running: { readonly name: string; readonly leaseId: string }[] = []
let begun = 0

async function tick(): Promise<void> {
  // About two thirds full, give or take.
  if (running.length < MOST * (0.5 + 0.4 * Math.random())) {
    begun += 1
    const name = `load-${run}-${begun}`
    const { leaseId } = await world.start(name)
    running.push({ name, leaseId })
    return
  }
  const at = Math.floor(Math.random() * running.length)
  const [{ name, leaseId }] = running.splice(at, 1) as [(typeof running)[number]]
  const chance = Math.random()
  if (chance >= RELEASED_ALIVE) world.end(name)
  if (chance >= FORGOTTEN || chance < RELEASED_ALIVE) await client.leases.release({ leaseId })
}

async function forever(everyMs: number, work: () => Promise<unknown>): Promise<void> {
  while (!stopping.signal.aborted) {
    try {
      await work()
    } catch (error) {
      if (!(error instanceof CallFailed)) throw error
      console.error(error.message)
    }
    await delay(everyMs, undefined, { signal: stopping.signal }).catch(() => {})
  }
}

await Promise.all([forever(TICK_MS, tick), forever(LIST_EVERY_MS, () => world.list())])
