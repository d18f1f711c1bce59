/**
 * MIR-1238 (mirendev/runtime#856), played on ipledger: a list from an index that lags, a clean-up that frees what the
 * list does not name, and another sandbox that asks for an address.
 *
 * Whatever is told is read back from the API first. What is not as it should be ends the demo with an error (`must`):
 * one that ends well has shown what it says.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { prose, table, tableOf, wrapped } from '../cli/print.ts'
import { holderOf, stateOf } from '../cli/show-lease.ts'
import { verifiedText } from '../cli/verified.ts'
import { CallFailed } from '../client/call-failed.ts'
import { type Lease, LeaseState, QuarantineReason } from '../gen/ipledger/v1/types_pb.ts'
import { type LookedUp, startOrchestrator } from './orchestrator.ts'
import type { Stage } from './stage.ts'

const SOURCE = 'orchestrator'
const POOL = 'sandboxes'
const UNASKED = '10.8.0.77'
const INTERVAL_MS = 1_000
const COOLDOWN_MS = 2_000
const WIDTH = 112
/** Until something must have followed. On a busy machine there are gaps between lists, and after one misses count anew. */
const MOST_LISTS = 30

export const INTRODUCTION = `
MIR-1238: one address, two live sandboxes (mirendev/runtime#856)

   A watchdog compared the sandboxes that ran with a list from an index that lagged. One was missing, so it was taken
   for dead and its address was freed. Nineteen hours later another sandbox got it. The same now happens to ipledger.

   What plays is the real thing: PostgreSQL in a directory of its own, the API over HTTP, the jobs of the worker. Only
   time is shortened, by settings that every pool and source has: the source lists each second, the pool's minimum age is
   a second and its cooldown two, and the jobs run after each list. Every guard is in force.
`

export async function playMir1238(stage: Stage, say: (text: string) => void): Promise<void> {
  const { admin, orchestrator: client, 'clean-up': cleanUp } = stage.as
  await admin.pools.createPool({
    name: POOL,
    cidr: '10.8.0.0/24',
    gateway: '10.8.0.1',
    cooldown: durationFromMs(COOLDOWN_MS),
    reapPolicy: { minimumAge: durationFromMs(1_000) },
  })
  const world = await startOrchestrator({ id: SOURCE, client, admin, pool: POOL, intervalMs: INTERVAL_MS })

  // Numbered steps, and what they show beneath, three columns in.
  let steps = 0
  const step = (title: string) => say(`${++steps}  ${title}\n`)
  const show = (...blocks: readonly string[]) => say(`${blocks.join('\n\n').replace(/^(?=.)/gm, '   ')}\n`)

  const leaseAt = async (address: string) => (await admin.leases.listLeases({ cidr: address })).leases[0]

  /** Lists, and has the jobs judge after each, until it is `done`; what was looked up meanwhile. */
  async function listUntil(done: (lookedUp: readonly LookedUp[]) => Promise<boolean>) {
    const lookedUp: LookedUp[] = []
    const rows: string[][] = []
    for (let isDone = false; !isDone; isDone = await done(lookedUp)) {
      must(rows.length < MOST_LISTS, `something follows from ${MOST_LISTS} lists`)
      const list = await world.list()
      lookedUp.push(...list.lookedUp)
      rows.push([String(list.sequence), list.names.join(', ') || 'nobody', list.counted ? 'yes' : 'no'])
      await stage.judge()
    }
    show(table(['LIST', 'NAMES', 'COUNTS'], rows))
    return lookedUp
  }

  /** The world beside the books. */
  async function compare(...unheld: readonly string[]): Promise<void> {
    const { leases } = await admin.leases.listLeases({ pools: [POOL] })
    const running = world.running()
    const rows = [
      ...leases.map((lease) => [lease.address, stateOf(lease), holderOf(lease)] as const),
      ...unheld.map((address) => [address, 'no lease', ''] as const),
    ]
    const lastByte = (address: string) => Number(address.slice(address.lastIndexOf('.') + 1))
    const cells = rows
      .sort(([a], [b]) => lastByte(a) - lastByte(b))
      .map(([address, state, holder]) => [address, running.get(address) ?? 'nobody', state, holder])
    show(table(['ADDRESS', 'RUNS THERE', 'IN THE BOOKS', 'FOR'], cells))
  }

  /** Everything that happened to an address, in the ledger's own words. */
  async function storyOf(address: string): Promise<string> {
    const { entries } = await admin.audit.getAddressHistory({ address })
    return prose(
      ['SEQ', 'WHAT'],
      entries.map(({ event, what }) => [String(event!.seq), what]),
      WIDTH,
    )
  }

  step('Three sandboxes start. The orchestrator reserves an address for each, and lists them.')
  const api = await world.start('api')
  await world.start('web')
  const batch = await world.start('batch')
  // Before a source is warm nothing it does not list is a miss.
  await listUntil(async () => (await admin.liveness.listSources({ id: SOURCE })).sources[0]?.warm === true)
  await compare()

  step('Its index lags: api runs, and the lists do not name it.')
  world.lag('api')
  const asked = await listUntil(async (sofar) => sofar.length > 0)
  must(
    asked.every(({ name, found }) => name === 'api' && found),
    'the store was asked for api, and has it',
  )
  const { findings } = await admin.liveness.reconcile({ address: api.address, kept: true })
  const kept = await leaseAt(api.address)
  must(kept?.state === LeaseState.ACTIVE && kept.version === api.version, `${api.address} is api's as before`)
  show(
    `The watchdog freed ${api.address} at the first of these. ipledger waits for three more in a row. With its answer\nto the next it asks after the sandbox by its id, past the index, and the store has it:`,
    tableOf('', findings, {
      ADDRESS: ({ address }) => address,
      VERDICT: ({ verdict }) => verdict,
      BECAUSE: ({ because }) => because.map(({ text }) => text).join('; '),
    }),
    `Nothing is freed, and nothing written about it: the lease is at version ${kept.version} as before.`,
  )

  step('An old clean-up believes the index and releases api. And a sandbox starts that asked nobody.')
  await cleanUp.leases.release({ leaseId: api.leaseId })
  must((await leaseAt(api.address)) === undefined, `${api.address} has no lease`)
  world.startUnasked('legacy', UNASKED)
  await compare(api.address, UNASKED)
  show(
    'Both addresses are in use, and nobody has them in the books. The index catches up; its next list repairs both:',
  )
  world.catchUp()
  await listUntil(async () => true)
  await compare()
  const { quarantine } = (await leaseAt(api.address)) ?? {}
  must(quarantine?.reason === QuarantineReason.RELEASED_BUT_LIVE, `${api.address} is released but live`)
  const adopted = await leaseAt(UNASKED)
  must(adopted?.owner?.name === 'legacy' && adopted.state === LeaseState.ACTIVE, `${UNASKED} is legacy's`)

  step(`Others ask for an address: worker for any, worker-2 for ${api.address}.`)
  const given = await world.start('worker')
  must(given.address !== api.address, 'worker gets another')
  const refusal = await refusalOf(world.start('worker-2', api.address))
  must(refusal?.reason === 'ADDRESS_QUARANTINED', `${api.address} is refused`)
  show(
    `worker gets ${given.address}; worker-2 is refused:`,
    wrapped(`"${refusal.message}"`, WIDTH).join('\n'),
  )

  step('batch crashes, and nobody releases its address: a leak. api ends, too.')
  world.end('batch')
  world.end('api')
  const leaked = [api.address, batch.address]
  const gone = await listUntil(async () => {
    const leases = await Promise.all(leaked.map(leaseAt))
    return leases.every((lease) => lease === undefined)
  })
  const isGone = (address: string) => gone.some((one) => one.address === address && !one.found)
  must(leaked.every(isGone), 'the store was asked for both, and has neither')
  show(
    'Three misses in a row, and gone by the word of the store: both are reaped, and the proof is in the log.',
  )

  step(`${api.address} has cooled and is free. worker-2 asks again.`)
  const next = await onceCool(() => world.start('worker-2', api.address))
  must(
    next.address === api.address && next.fencingToken > api.fencingToken,
    'it gets it, with a greater token',
  )
  await compare()

  step(`The whole story of ${api.address}.`)
  const books = await stage.verify()
  must(books.findings.length === 0, `the books are in order (${books.findings.map((one) => one.message)})`)
  show(
    `$ ipledger history ${api.address}\n${await storyOf(api.address)}`,
    `$ ipledger verify\n${verifiedText([books])}`,
    'The log has no gap, and the books are what follows from it.\nAt no time did two sandboxes run with one address.',
  )
}

async function refusalOf(call: Promise<Lease>): Promise<CallFailed | undefined> {
  try {
    await call
    return undefined
  } catch (error) {
    if (error instanceof CallFailed) return error
    throw error
  }
}

/** The refusal says how long. */
async function onceCool<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof CallFailed) || error.reason !== 'ADDRESS_COOLING') throw error
      await delay(error.retryAfterMs ?? COOLDOWN_MS)
    }
  }
}

/** What is told must be so. */
function must(so: boolean, what: string): asserts so {
  if (!so) throw new Error(`The demo did not go as it should. Not so: ${what}.`)
}
