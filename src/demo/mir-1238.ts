/**
 * MIR-1238 (mirendev/runtime#856), played on ipledger: a list from an index that lags, a clean-up that frees the
 * addresses that the list leaves out, and another sandbox that asks for an address.
 *
 * Each statement is read back from the API first; `must` ends the demo with an error where one is false.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import { prose, tableOf, wrapped } from '../cli/print.ts'
import { holderOf, stateOf, verifiedText } from '../cli/views.ts'
import { CallFailed } from '../client/call-failed.ts'
import { SourceStatus } from '../gen/ipledger/v1/liveness_pb.ts'
import { type Lease, LeaseState, QuarantineReason } from '../gen/ipledger/v1/types_pb.ts'
import { type LookedUp, Orchestrator } from './orchestrator.ts'
import type { Stage } from './stage.ts'

const SOURCE = 'orchestrator'
const POOL = 'sandboxes'
const UNASKED = '10.8.0.77'
const COOLDOWN_MS = 2_000
const WIDTH = 112
/** On a busy machine there are gaps between lists, and after a gap misses count anew. */
const MOST_LISTS = 30

export const INTRODUCTION = `
MIR-1238: one address, two live sandboxes (mirendev/runtime#856)

   A watchdog compared the sandboxes that ran with a list from an index that lagged. One was missing, so it was taken
   for dead and its address was freed. Nineteen hours later another sandbox got it. The same now happens to ipledger.

   What plays is the real thing: PostgreSQL in a directory of its own, the API over HTTP, the jobs of the worker. Only
   time is shortened, by settings that every pool and source has: the source lists each second, the pool's minimum age is
   a second and its cooldown two, and the jobs run after each list. Every guard is in force.
`

/** Returns the address that it is about. */
export async function playMir1238(stage: Stage, say: (text: string) => void): Promise<string> {
  const { admin, orchestrator } = stage.as
  await admin.pools.createPool({
    name: POOL,
    cidr: '10.8.0.0/24',
    gateway: '10.8.0.1',
    cooldown: durationFromMs(COOLDOWN_MS),
    reapPolicy: { minimumAge: durationFromMs(1_000) },
  })
  const world = new Orchestrator({ client: orchestrator, id: SOURCE, pool: POOL, intervalMs: 1_000 })
  await world.register(admin)
  const play = new Play(stage, world, say)
  const api = await play.begin()
  await play.lag(api)
  await play.release(api)
  await play.refuse(api)
  await play.leak(api)
  await play.reuse(api)
  await play.recount(api)
  return api.address
}

class Play {
  readonly #stage: Stage
  readonly #world: Orchestrator
  readonly #say: (text: string) => void
  #steps = 0

  constructor(stage: Stage, world: Orchestrator, say: (text: string) => void) {
    this.#stage = stage
    this.#world = world
    this.#say = say
  }

  async begin(): Promise<Lease> {
    this.#step('Three sandboxes start. The orchestrator reserves an address for each, and lists them.')
    const api = await this.#world.start('api')
    for (const name of ['web', 'batch']) await this.#world.start(name)
    const { liveness } = this.#stage.as.admin
    // Before a source is warm nothing it does not list is a miss.
    await this.#listUntil(
      async () => (await liveness.getSource({ id: SOURCE })).source?.status === SourceStatus.GOOD,
    )
    await this.#compare()
    return api
  }

  async lag({ address, version }: Lease): Promise<void> {
    this.#step('Its index lags: api runs, and the lists do not name it.')
    this.#world.lag('api')
    const lookedUp = await this.#listUntil(async (sofar) => sofar.length > 0)
    must(
      lookedUp.every(({ name, found }) => name === 'api' && found),
      'the store was asked for api, and has it',
    )
    const { findings } = await this.#stage.as.admin.liveness.reconcile({ address, kept: true })
    const kept = await this.#leaseAt(address)
    must(kept?.state === LeaseState.ACTIVE && kept.version === version, `${address} is api's as before`)
    const verdicts = findings.map(({ verdict, because }) => {
      return { address, verdict, because: because.map(({ text }) => text).join('; ') }
    })
    this.#show(
      `The watchdog freed ${address} at the first of these. ipledger waits for three more in a row. Then it asks for the\nsandbox by its id, past the index, and the store has it:`,
      tableOf('', verdicts),
      `Nothing is freed, and nothing written about it: the lease is at version ${version} as before.`,
    )
  }

  async release({ address, leaseId }: Lease): Promise<void> {
    this.#step('An old clean-up believes the index and releases api. And a sandbox starts that asked nobody.')
    await this.#stage.as['clean-up'].leases.release({ leaseId })
    must((await this.#leaseAt(address)) === undefined, `${address} has no lease`)
    this.#world.startUnasked('legacy', UNASKED)
    await this.#compare(address, UNASKED)
    this.#show(
      'Both addresses are in use, and the ledger has no lease for them. The index catches up; its next list repairs both:',
    )
    this.#world.lag()
    await this.#listUntil(async () => true)
    await this.#compare()
    const { quarantine } = (await this.#leaseAt(address)) ?? {}
    must(quarantine?.reason === QuarantineReason.RELEASED_BUT_LIVE, `${address} is released but live`)
    const adopted = await this.#leaseAt(UNASKED)
    must(adopted?.owner?.name === 'legacy' && adopted.state === LeaseState.ACTIVE, `${UNASKED} is legacy's`)
  }

  async refuse({ address }: Lease): Promise<void> {
    this.#step(`Others ask for an address: worker for any, worker-2 for ${address}.`)
    const given = await this.#world.start('worker')
    must(given.address !== address, 'worker gets another')
    const refusal = await this.#world.start('worker-2', address).catch((error: unknown) => error)
    must(refusal instanceof CallFailed && refusal.reason === 'ADDRESS_QUARANTINED', `${address} is refused`)
    this.#show(`worker gets ${given.address}; worker-2 is refused:`, wrapped(`"${refusal.message}"`, WIDTH))
  }

  async leak({ address }: Lease): Promise<void> {
    this.#step('batch crashes, and nobody releases its address: a leak. api ends, too.')
    const { leases } = await this.#stage.as.admin.leases.listLeases({ ownerName: 'batch' })
    const leaked = [address, leases[0]!.address]
    for (const name of ['batch', 'api']) this.#world.end(name)
    const lookedUp = await this.#listUntil(async () => {
      const held = await Promise.all(leaked.map((one) => this.#leaseAt(one)))
      return held.every((lease) => lease === undefined)
    })
    const isGone = (one: string) => lookedUp.some((found) => found.address === one && !found.found)
    must(leaked.every(isGone), 'the store was asked for both, and has neither')
    this.#show(
      'The first list without them is followed by three more. Then ipledger asks for each by its id: the store has neither.\nBoth are reaped, and the proof is in the log.',
    )
  }

  async reuse({ address, fencingToken }: Lease): Promise<void> {
    this.#step(`${address} has cooled and is free. worker-2 asks again.`)
    for (;;) {
      const next = await this.#world.start('worker-2', address).catch((error: unknown) => error)
      if (!(next instanceof CallFailed)) {
        must((next as Lease).fencingToken > fencingToken, 'it gets it, with a greater token')
        return this.#compare()
      }
      must(next.reason === 'ADDRESS_COOLING', `${address} is free or cools (${next.message})`)
      await delay(next.retryAfterMs ?? COOLDOWN_MS)
    }
  }

  async recount({ address }: Lease): Promise<void> {
    this.#step(`The whole story of ${address}.`)
    const { audit } = this.#stage.as.admin
    const verified = await audit.verifyNetwork({})
    must(verified.findings.length === 0, `the log is whole (${verified.findings.map((one) => one.message)})`)
    const { entries } = await audit.getAddressHistory({ address })
    const story = entries.map(({ event, what }) => [String(event!.seq), what])
    this.#show(
      `$ ipledger history ${address}\n${prose(['SEQ', 'WHAT'], story, WIDTH)}`,
      `$ ipledger verify\n${verifiedText([verified])}`,
      'The log has no gap, and the leases are what follows from it.\nAt no time did two sandboxes run with one address.',
    )
  }

  #step(title: string): void {
    this.#steps += 1
    this.#say(`${this.#steps}  ${title}\n`)
  }

  /** Beneath a step, three columns in. */
  #show(...blocks: readonly string[]): void {
    this.#say(`${blocks.join('\n\n').replace(/^(?=.)/gm, '   ')}\n`)
  }

  /** Lists, and judges after each list, until it is `done`. Returns the look-ups. */
  async #listUntil(done: (lookedUp: readonly LookedUp[]) => Promise<boolean>): Promise<readonly LookedUp[]> {
    const lookedUp: LookedUp[] = []
    const rows: Awaited<ReturnType<Orchestrator['list']>>['row'][] = []
    do {
      must(rows.length < MOST_LISTS, `something follows from ${MOST_LISTS} lists`)
      const list = await this.#world.list()
      lookedUp.push(...list.lookedUp)
      rows.push(list.row)
      await this.#stage.judge()
    } while (!(await done(lookedUp)))
    this.#show(tableOf('', rows))
    return lookedUp
  }

  async #leaseAt(address: string): Promise<Lease | undefined> {
    return (await this.#stage.as.admin.leases.listLeases({ cidr: address })).leases[0]
  }

  /** The sandbox at each address, beside the lease in the ledger. */
  async #compare(...unheld: readonly string[]): Promise<void> {
    const { leases } = await this.#stage.as.admin.leases.listLeases({ pools: [POOL] })
    const held = new Map(leases.map((lease) => [lease.address, lease]))
    const addresses = [...held.keys(), ...unheld].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
    const rows = addresses.map((address) => ({
      address,
      runsThere: this.#world.running(address) ?? 'nobody',
      inTheLedger: stateOf(held.get(address)) || 'no lease',
      for: holderOf(held.get(address)),
    }))
    this.#show(tableOf('', rows))
  }
}

function must(isSo: boolean, what: string): asserts isSo {
  if (!isSo) throw new Error(`The demo did not go as it should. Not so: ${what}.`)
}
