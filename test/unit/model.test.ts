/**
 * Thousands of random commands, each held against the reference model: same answer or refusal, same address, state
 * and version, same events. After each batch the projections, the partition of every pool and the log itself are
 * checked (INV-1, 2, 11, 15, 20; incidents §6.1).
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { LedgerEvent } from '../../src/core/event.ts'
import { describeEvent } from '../support/given.ts'
import { foldAll, type MemoryLedger, memoryLedger, partition } from '../support/memory-ledger.ts'
import type { Model } from '../support/model.ts'
import { auditReuse, follow, modelScripts, type System } from '../support/model-walk.ts'

/** `IPLEDGER_MODEL_RUNS=2000 IPLEDGER_TEST_SEED=7` for a longer walk, or to take a failing one again. */
const RUNS = Number(process.env.IPLEDGER_MODEL_RUNS ?? 120)
const SEED = process.env.IPLEDGER_TEST_SEED
const seeded = SEED === undefined || SEED === '' ? {} : { seed: Number(SEED) }

function systemOver(ledger: MemoryLedger): Required<System> {
  return {
    submit: async (commands) =>
      ledger.submitBatch(commands).map(({ events, answer, refusal }) => ({
        answer,
        refusal,
        events: events.map((event) => describeEvent(ledger, event)),
      })),
    now: () => ledger.now(),
    wait: (ms) => ledger.wait(ms),
    world: {
      register: ({ id, ...source }) => ledger.world.register(id, source),
      report(id, entries, { complete, proven, epoch }) {
        ledger.world.sources.set(id, { ...ledger.world.sources.get(id)!, epoch })
        const head = proven ? ledger.fold().head : null
        ledger.world.report(id, entries, { head, begunAt: ledger.now(), era: 0, complete })
      },
    },
  }
}

function agree(ledger: MemoryLedger, model: Model): void {
  const fold = ledger.fold()
  expect(fold.head).toBe(model.state.head)
  const standing = [...fold.addresses].flatMap(([address, { lease }]) =>
    lease === null
      ? []
      : [
          [
            address,
            lease.fencingToken,
            lease.version,
            lease.state,
            lease.quarantine?.reason ?? null,
            lease.owner,
            lease.confirmBy,
            lease.placement.boot,
            lease.placement.labels,
            lease.askedFrom,
          ],
        ],
  )
  const expected = [...model.state.leases.values()].map((one) => [
    one.address,
    one.token,
    one.version,
    one.state,
    one.reason,
    one.owner,
    one.confirmBy,
    one.boot,
    one.labels,
    one.asked,
  ])
  expect(new Map(standing.map((row) => [row[0], row]))).toEqual(new Map(expected.map((row) => [row[0], row])))
  const resting = [...fold.addresses].flatMap(([address, { released }]) =>
    released === null
      ? []
      : [
          [
            address,
            {
              availableAt: released.availableAt,
              seq: released.releasedSeq,
              removed: released.removalConfirmed,
              poolId: released.poolId,
            },
          ],
        ],
  )
  expect(Object.fromEntries(resting)).toEqual(
    Object.fromEntries(
      [...model.state.resting].map(
        ([address, { holder: _holder, owner: _owner, node: _node, moved: _moved, ...rest }]) => [
          address,
          rest,
        ],
      ),
    ),
  )
  for (const pool of model.state.pools) {
    const { size, ...parts } = partition(ledger, pool.name)
    expect(
      Object.values(parts).reduce((sum, part) => sum + part, 0n),
      pool.name,
    ).toBe(size)
    const addresses = model.leasable(pool)
    const free = addresses.filter(
      (one) =>
        !model.state.leases.has(one) && (model.state.resting.get(one)?.availableAt ?? 0) <= ledger.now(),
    )
    expect(parts.free, `free in ${pool.name}`).toBe(BigInt(free.length))
    expect(size - parts.excluded, `allocatable in ${pool.name}`).toBe(BigInt(addresses.length))
  }
}

test.each([
  ['of callers', false],
  ['of callers and sources', true],
] as const)(
  `the core and the model agree on ${RUNS} histories %s`,
  { timeout: RUNS * 1_000 },
  async (_of, findings) => {
    let commands = 0
    const refusals = new Map<string, number>()
    const left = new Map<string, number>()
    await fc.assert(
      fc.asyncProperty(modelScripts({ min: 1, max: findings ? 300 : 150, findings }), async (script) => {
        const ledger = memoryLedger({ windows: [1, 3] })
        const { world, ...callers } = systemOver(ledger)
        const system: System = findings ? { ...callers, world } : callers
        const counting: System = {
          ...system,
          submit: async (batch) => {
            const observed = await system.submit(batch)
            commands += batch.length
            for (const { refusal } of observed) {
              const reason = refusal?.reason ?? 'accepted'
              refusals.set(reason, (refusals.get(reason) ?? 0) + 1)
            }
            return observed
          },
        }
        await follow(counting, script, { time: 'jumps', each: (model) => agree(ledger, model) })
        const again = foldAll(ledger.events)
        expect(again.addresses).toEqual(ledger.fold().addresses)
        expect(again.closings).toEqual(ledger.fold().closings)
        expect(again.pools).toEqual(ledger.fold().pools)
        expect(again.holds).toEqual(ledger.fold().holds)
        expect(again.fences).toEqual(ledger.fold().fences)
        auditReuse(ledger.events)
        for (const event of ledger.events) {
          const what = kindOf(event)
          left.set(what, (left.get(what) ?? 0) + 1)
        }
      }),
      // Finding the smallest history that fails may take many minutes; a small one will do.
      { numRuns: RUNS, interruptAfterTimeLimit: RUNS * 500, markInterruptAsFailure: true, ...seeded },
    )
    // A walk that is refused at every step has gone nowhere.
    expect(commands).toBeGreaterThan(20 * RUNS)
    expect(refusals.get('accepted') ?? 0).toBeGreaterThan(commands / 5)
    for (const reason of [
      'POOL_EXHAUSTED',
      'OWNER_LIMIT',
      'ADDRESS_COOLING',
      'ATTACHMENT_CLOSED',
      'LEASE_LOST',
    ])
      expect(refusals.get(reason) ?? 0, reason).toBeGreaterThan(0)
    if (!findings) return
    for (const what of FINDINGS) expect(left.get(what) ?? 0, what).toBeGreaterThan(0)
  },
)

/** The others are too rare for every walk. */
const FINDINGS = [
  'lease.adopted',
  'lease.quarantined RELEASED_BUT_LIVE',
  'lease.quarantined FOREIGN',
  'lease.reaped PROVEN_ABSENT',
  'node.fenced',
]

function kindOf(event: LedgerEvent): string {
  switch (event.type) {
    case 'lease.quarantined':
      return `${event.type} ${event.lease.quarantine!.reason}`
    case 'lease.reaped':
      return `${event.type} ${event.cause}`
    case 'lease.confirmed':
      return event.evidence?.reason === 'SEEN_ALONE' ? `${event.type} SEEN_ALONE` : event.type
    default:
      return event.type
  }
}
