/**
 * MIR-1238 (mirendev/runtime#856), played on ipledger: a list from an index that lags, a clean-up that frees what the
 * list does not name, and another sandbox that asks for an address.
 *
 * Whatever is told is read back from the API first. What is not as it should be ends the demo with an error (`must`):
 * one that ends well has shown what it says.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { durationFromMs } from '@bufbuild/protobuf/wkt'
import type { Role } from '../api/rights.ts'
import { eventTable } from '../cli/audit.ts'
import { milliseconds, table, tableOf, wrapped } from '../cli/print.ts'
import { holderOf, stateOf } from '../cli/show-lease.ts'
import { verifiedText } from '../cli/verified.ts'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import type { Proof } from '../core/judge.ts'
import type { Event } from '../gen/ipledger/v1/audit_pb.ts'
import { type Lease, LeaseState, QuarantineReason } from '../gen/ipledger/v1/types_pb.ts'
import { type List, type LookedUp, type Orchestrator, startOrchestrator } from './orchestrator.ts'
import type { Stage } from './stage.ts'

export const CALLERS = {
  admin: 'admin',
  orchestrator: 'orchestrator',
  'clean-up': 'orchestrator',
} as const satisfies Readonly<Record<string, Role>>

const SOURCE = 'orchestrator'
const POOL = 'sandboxes'
const UNASKED = '10.8.0.77'
const INTERVAL_MS = 1_000
const MINIMUM_AGE_MS = 1_000
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

/** Numbered steps, and what they show beneath, three columns in. */
function createTelling(say: (text: string) => void) {
  const line = (text: string) => say(text.replace(/^(?=.)/gm, '   '))
  let steps = 0
  return {
    step: (title: string) => say(`${++steps}  ${title}\n`),
    /** Paragraphs and tables. */
    show(...blocks: readonly string[]) {
      for (const block of blocks) line(`${block}\n`)
    },
    /** One line of several that come one by one; an empty one follows the last. */
    line,
  }
}

type Play = {
  readonly stage: Stage<keyof typeof CALLERS>
  readonly admin: IpledgerClient
  readonly world: Orchestrator
  readonly telling: ReturnType<typeof createTelling>
}

export async function playMir1238(stage: Play['stage'], say: (text: string) => void): Promise<void> {
  const telling = createTelling(say)
  const { admin, orchestrator: client } = stage.as
  await admin.pools.createPool({
    name: POOL,
    cidr: '10.8.0.0/24',
    gateway: '10.8.0.1',
    cooldown: durationFromMs(COOLDOWN_MS),
    reapPolicy: { minimumAge: durationFromMs(MINIMUM_AGE_MS) },
  })
  const world = await startOrchestrator({ id: SOURCE, client, admin, pool: POOL, intervalMs: INTERVAL_MS })
  const play: Play = { stage, admin, world, telling }

  const { api, batch } = await sandboxesStart(play)
  await indexLags(play, api)
  await cleanUpReleases(play, api)
  await othersAsk(play, api)
  await leakIsReaped(play, api, batch)
  await addressIsHandedOn(play, api)
  await storyIsRead(play, api)
}

async function sandboxesStart(play: Play): Promise<{ readonly api: Lease; readonly batch: Lease }> {
  const { admin, world, telling } = play
  telling.step('Three sandboxes start. The orchestrator reserves an address for each, and lists them.')
  const api = await world.start('api')
  await world.start('web')
  const batch = await world.start('batch')
  // Before a source is warm nothing it does not list is a miss.
  await listUntil(play, async () => {
    const { sources } = await admin.liveness.listSources({ id: SOURCE })
    return sources[0]?.warm === true
  })
  await compare(play)
  return { api, batch }
}

async function indexLags(play: Play, api: Lease): Promise<void> {
  const { admin, world, telling } = play
  telling.step('Its index lags: api runs, and the lists do not name it.')
  world.lag('api')
  const lookedUp = await listUntil(play, async (asked) => asked.length > 0)
  must(
    lookedUp.every(({ name, found }) => name === 'api' && found),
    'the store was asked for api, and has it',
  )
  telling.show(
    `The watchdog freed ${api.address} at the first of these. ipledger waits for three more in a row. With its answer\nto the next it asks after the sandbox by its id, past the index:`,
    answers(lookedUp),
  )
  const { findings } = await admin.liveness.reconcile({ address: api.address, kept: true })
  telling.show(
    tableOf('', findings, {
      ADDRESS: ({ address }) => address,
      VERDICT: ({ verdict }) => verdict,
      BECAUSE: ({ because }) => because.map(({ text }) => text).join('; '),
    }),
  )
  const kept = await leaseAt(play, api.address)
  must(kept?.state === LeaseState.ACTIVE && kept.version === api.version, `${api.address} is api's as before`)
  telling.show(
    `Nothing is freed, and nothing written about it: the lease is at version ${kept.version} as before.`,
  )
}

async function cleanUpReleases(play: Play, api: Lease): Promise<void> {
  const { stage, world, telling } = play
  telling.step('An old clean-up believes the index and releases api. And a sandbox starts that asked nobody.')
  await stage.as['clean-up'].leases.release({ leaseId: api.leaseId })
  must((await leaseAt(play, api.address)) === undefined, `${api.address} has no lease`)
  world.startUnasked('legacy', UNASKED)
  await compare(play, api.address, UNASKED)
  telling.show(
    'Both addresses are in use, and nobody has them in the books. The index catches up; its next list repairs both:',
  )
  world.catchUp()
  await listUntil(play, async () => true)
  await compare(play)
  const held = await leaseAt(play, api.address)
  must(
    held?.quarantine?.reason === QuarantineReason.RELEASED_BUT_LIVE,
    `${api.address} is in quarantine, released but live`,
  )
  const adopted = await leaseAt(play, UNASKED)
  must(
    adopted?.owner?.name === 'legacy' && adopted.state === LeaseState.ACTIVE,
    `${UNASKED} is adopted for legacy`,
  )
}

async function othersAsk(play: Play, api: Lease): Promise<void> {
  const { world, telling } = play
  telling.step(`Others ask for an address: worker for any, worker-2 for ${api.address}.`)
  const given = await world.start('worker')
  must(given.address !== api.address, 'worker gets another')
  const refusal = await refusalOf(world.start('worker-2', api.address))
  must(refusal.reason === 'ADDRESS_QUARANTINED', `${api.address} is refused`)
  const rows = [
    ['worker', 'any', given.address],
    ['worker-2', api.address, refusal.reason],
  ]
  telling.show(table(['FOR', 'ASKED', 'ANSWER'], rows), wrapped(`"${refusal.message}"`, WIDTH).join('\n'))
}

async function leakIsReaped(play: Play, api: Lease, batch: Lease): Promise<void> {
  const { world, telling } = play
  telling.step('batch crashes, and nobody releases its address: a leak. api ends, too.')
  world.end('batch')
  world.end('api')
  const leaked = [api.address, batch.address]
  const lookedUp = await listUntil(play, async () => {
    const leases = await Promise.all(leaked.map((address) => leaseAt(play, address)))
    return leases.every((lease) => lease === undefined)
  })
  must(
    leaked.every((address) => lookedUp.some((one) => one.address === address && !one.found)),
    'the store was asked for both, and has neither',
  )
  telling.show(answers(lookedUp))
  const reaps = await Promise.all(leaked.map(async (address) => (await eventsAt(play, address)).at(-1)!))
  must(
    reaps.every(({ type, cause }) => type === 'lease.reaped' && cause === 'PROVEN_ABSENT'),
    'both were reaped on proof',
  )
  telling.show(
    'Three misses in a row, and gone by the word of the store: both are reaped, and the proof is in the log.',
    proofs(reaps),
  )
}

async function addressIsHandedOn(play: Play, api: Lease): Promise<void> {
  const { world, telling } = play
  telling.step(`${api.address} has cooled and is free. worker-2 asks again.`)
  const next = await onceCool(() => world.start('worker-2', api.address))
  must(
    next.address === api.address && next.fencingToken > api.fencingToken,
    'it gets it, with a greater token',
  )
  await compare(play)
}

async function storyIsRead(play: Play, api: Lease): Promise<void> {
  const { stage, telling } = play
  telling.step(`The whole story of ${api.address}.`)
  telling.show(`$ ipledger events --address ${api.address}\n${eventTable(await eventsAt(play, api.address))}`)
  const books = await stage.verify()
  must(books.findings.length === 0, `the books are in order (${books.findings.map((one) => one.message)})`)
  telling.show(
    `$ ipledger verify\n${verifiedText([books])}`,
    'The log has no gap, and the books are what follows from it.',
    'At no time did two sandboxes run with one address.',
  )
}

// What happens, and what is read.

/** Lists, and has the jobs judge after each, until it is `done`; what was looked up meanwhile. */
async function listUntil(
  { stage, world, telling }: Play,
  done: (lookedUp: readonly LookedUp[]) => Promise<boolean>,
): Promise<readonly LookedUp[]> {
  const lookedUp: LookedUp[] = []
  for (let lists = 0; lists < MOST_LISTS; lists++) {
    const list = await world.list()
    lookedUp.push(...list.lookedUp)
    telling.line(listed(list))
    await stage.judge()
    if (await done(lookedUp)) {
      telling.line('')
      return lookedUp
    }
  }
  throw new Error(`The demo did not go as it should: nothing follows from ${MOST_LISTS} lists.`)
}

async function leaseAt({ admin }: Play, address: string): Promise<Lease | undefined> {
  return (await admin.leases.listLeases({ cidr: address })).leases[0]
}

async function eventsAt({ admin }: Play, address: string): Promise<readonly Event[]> {
  return (await admin.audit.listEvents({ address })).events
}

async function refusalOf(call: Promise<unknown>): Promise<CallFailed> {
  try {
    await call
  } catch (error) {
    if (error instanceof CallFailed) return error
    throw error
  }
  throw new Error('The demo did not go as it should: what must be refused was granted.')
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

// How it is shown.

/** The world beside the books. */
async function compare({ admin, world, telling }: Play, ...unheld: readonly string[]): Promise<void> {
  const { leases } = await admin.leases.listLeases({ pools: [POOL] })
  const running = world.running()
  const rows = [
    ...leases.map((lease) => [lease.address, stateOf(lease), holderOf(lease)] as const),
    ...unheld.map((address) => [address, 'no lease', ''] as const),
  ]
  const lastByte = (address: string) => Number(address.slice(address.lastIndexOf('.') + 1))
  telling.show(
    table(
      ['ADDRESS', 'RUNS THERE', 'IN THE BOOKS', 'FOR'],
      rows
        .sort(([a], [b]) => lastByte(a) - lastByte(b))
        .map(([address, state, holder]) => [address, running.get(address) ?? 'nobody', state, holder]),
    ),
  )
}

function listed({ sequence, names, complete, counted }: List): string {
  const taken = counted ? 'counts' : complete ? 'complete' : 'partial'
  return `list ${String(sequence).padEnd(4)}names ${(names.join(', ') || 'nobody').padEnd(26)}${taken}`
}

function answers(lookedUp: readonly LookedUp[]): string {
  return tableOf('', lookedUp, {
    'ASKED AFTER': ({ name }) => `sandbox ${name}`,
    HAS: ({ address }) => address,
    'THE STORE SAYS': ({ found }) => (found ? 'live' : 'gone'),
  })
}

function proofs(reaps: readonly Event[]): string {
  const rows = reaps.flatMap(({ lease, evidence }) => {
    const { witnesses, lookUps, policy } = evidence!.proof as unknown as Proof
    return witnesses.map(({ id, missed }) => [
      lease!.address,
      holderOf(lease!),
      id,
      missed.map(({ sequence }) => sequence).join(', '),
      lookUps.find(({ source }) => source === id)?.answer ?? '',
      `${policy.misses} misses, age ${milliseconds(policy.minimumAgeMs)}`,
    ])
  })
  return table(['REAPED', 'FROM', 'SOURCE', 'WITHOUT IT: LISTS', 'ASKED', 'POLICY IN FORCE'], rows)
}
