/** A ledger on a real PostgreSQL, as a process has it, and what must hold of its network at any time. */
import assert from 'node:assert/strict'
import { onTestFinished } from 'vitest'
import type { Answer, Command, LeaseView } from '../../src/core/command.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { evolve } from '../../src/core/evolve.ts'
import { type Image, newImage } from '../../src/core/image.ts'
import type { Reason, Refusal } from '../../src/core/refusal.ts'
import { buildImage } from '../../src/ledger/build-image.ts'
import { digestOf, textOf } from '../../src/ledger/event-text.ts'
import type { SubmitOptions } from '../../src/ledger/ledger.ts'
import type { Chained, Log } from '../../src/ledger/log.ts'
import { type LedgerOptions, type OpenLedger, openLedger } from '../../src/ledger/open.ts'
import { verifyNetwork } from '../../src/ledger/verify.ts'
import { command, lineOf, pool } from '../core/given.ts'
import { canonical, partitionFault } from '../support/canonical.ts'
import { withClient } from '../support/database.ts'

export type Step = () => Command

export type TestLedger = OpenLedger & {
  /** What the loops told, in order: `vetoed: duplicate key …`. */
  readonly failed: string[]
  readonly defects: Command[]
  readonly eras: string[]
  readonly steps: number[]
  loads: number
  accept(command: Command, options?: SubmitOptions): Promise<Answer>
  /** Of a command about one lease. */
  take(command: Command, options?: SubmitOptions): Promise<LeaseView>
  refuse(command: Command, reason: Reason, options?: SubmitOptions): Promise<Refusal>
}

export async function openTestLedger(url: string, options: Partial<LedgerOptions> = {}): Promise<TestLedger> {
  const told = {
    failed: [] as string[],
    defects: [] as Command[],
    eras: [] as string[],
    steps: [] as number[],
  }
  const opened = await openLedger({
    url,
    connections: 2,
    observer: {
      failed: (_, what, error) => told.failed.push(`${what}: ${(error as Error).message}`),
      defect: (_, one) => told.defects.push(one),
      event(_, event) {
        if (event.type === 'era.begun') told.eras.push(`${event.details.era}: ${event.details.why}`)
      },
      clockStep: (byMs) => told.steps.push(byMs),
      loaded: () => {
        ledger.loads += 1
      },
    },
    ...options,
    // A busy machine may take longer than the default.
    limits: { deadlineMs: 60_000, ...options.limits },
  })
  const accept: TestLedger['accept'] = async (one, given) => {
    const outcome = await opened.submit(one, given)
    if (!outcome.ok) assert.fail(`${one.type}: ${outcome.refusal.reason}: ${outcome.refusal.message}`)
    return outcome.answer
  }
  const ledger: TestLedger = {
    log: opened.log,
    submit: (command, given) => opened.submit(command, given),
    image: (network, given) => opened.image(network, given),
    now: () => opened.now(),
    stats: () => opened.stats(),
    close: () => opened.close(),
    ...told,
    loads: 0,
    accept,
    async take(one, given) {
      const { leases } = await accept(one, given)
      assert.equal(leases.length, 1)
      return leases[0]!
    },
    async refuse(one, reason, given) {
      const outcome = await opened.submit(one, given)
      if (outcome.ok) assert.fail(`${one.type} is not refused: ${JSON.stringify(outcome.answer)}`)
      assert.equal(outcome.refusal.reason, reason, outcome.refusal.message)
      return outcome.refusal
    },
  }
  return ledger
}

/** For one test. */
export async function useLedger(url: string, options: Partial<LedgerOptions> = {}): Promise<TestLedger> {
  const ledger = await openTestLedger(url, options)
  onTestFinished(() => ledger.close())
  return ledger
}

let networks = 0

/** A network with a pool 10.0.0.0/24 without cooldown, and what addresses commands to it. */
export async function freshNetwork(ledger: TestLedger, options: Parameters<typeof pool>[1] = {}) {
  networks += 1
  const network = `net-${networks}`
  const of = (step: Step): Command => ({ ...step(), network })
  await ledger.accept(of(command({ type: 'createNetwork', settings: { description: '', labels: {} } })))
  await ledger.accept(of(pool('10.0.0.0/24', { cooldownMs: 0, ...options })))
  return { network, of }
}

/** The whole log, in order, read beside the loops. */
async function logOf(log: Log, network: string): Promise<readonly Chained[]> {
  const all: Chained[] = []
  for (let isCut = true; isCut; ) {
    const page = await log.tail(network, all.at(-1)?.event.seq ?? 0)
    all.push(...page.tail)
    ;({ isCut } = page)
  }
  return all
}

export async function linesOf({ log }: TestLedger, network: string): Promise<readonly string[]> {
  return (await logOf(log, network)).map(({ event }) => lineOf(event))
}

export async function eventsOf(ledger: TestLedger, network: string): Promise<readonly LedgerEvent[]> {
  return (await logOf(ledger.log, network)).map(({ event }) => event)
}

export async function held(ledger: TestLedger, network: string): Promise<readonly string[]> {
  const image = (await ledger.image(network))!
  return [...image.records.values()]
    .filter(({ state }) => state !== 'FREE')
    .map(({ address, owner }) => `${address} ${owner?.name}`)
    .sort()
}

/**
 * The chain of digests is what its events say, the image of each process, a fresh load and the fold of the log are the
 * same, its partition is exact, and verify finds nothing.
 */
export async function expectInOrder(
  serviceUrl: string,
  network: string,
  ...ledgers: readonly TestLedger[]
): Promise<Image> {
  const { log } = ledgers[0]!
  const deadline = performance.now() + 60_000
  const images = await Promise.all(ledgers.map(async (one) => (await one.image(network, { deadline }))!))
  const chained = await logOf(log, network)
  const folded = newImage(network)
  for (const { event, digest } of chained) {
    evolve(folded, event)
    const expected = digestOf(folded.digest, textOf(network, event))
    assert.equal(digest, expected, `the digest of event ${event.seq} follows from the one before`)
    Object.assign(folded, { head: event.seq, at: event.at, digest })
  }
  const loaded = await log.load(network, (found) => buildImage(network, found, Number.POSITIVE_INFINITY))
  // What was over when it was loaded is over for all.
  const now = Math.max(folded.at, Date.now())
  for (const image of [loaded, ...images]) {
    assert.deepEqual(canonical(image, now), canonical(folded, now))
    assert.equal(image.digest, folded.digest)
    for (const place of image.pools.values()) assert.equal(partitionFault(image, place), null)
  }
  const { complete, findings } = await withClient(serviceUrl, (client) =>
    verifyNetwork(client, network, { from: 0 }),
  )
  assert.deepEqual({ complete, findings }, { complete: true, findings: [] })
  return loaded
}
