/**
 * The random walk of the core's model test, asked of the ledger on PostgreSQL: the same answers, the same leases in the
 * tables, whichever of three processes is asked. Time is the database's own, so cooldowns are nothing or a month.
 */
import fc from 'fast-check'
import { afterAll, expect, test } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { connect } from '../../src/postgres/connect.ts'
import { useTestDatabase } from '../support/database.ts'
import { useLedger } from '../support/ledger.ts'
import type { Model } from '../support/model.ts'
import { follow, modelScripts, type System } from '../support/model-walk.ts'
import { expectPartition } from '../support/partition.ts'
import { expectVerified } from '../support/verified.ts'

/** `IPLEDGER_MODEL_RUNS=500 IPLEDGER_TEST_SEED=7` for a longer walk, or to take a failing one again. */
const RUNS = Number(process.env.IPLEDGER_MODEL_RUNS ?? 25)
const SEED = process.env.IPLEDGER_TEST_SEED
const seeded = SEED === undefined || SEED === '' ? {} : { seed: Number(SEED) }

const database = await useTestDatabase()
const processes = [1, 2, 3].map(() => useLedger({ url: database.serviceUrl, connections: 1 }))
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

let walks = 0

function systemOver(network: string): System {
  let turn = 0
  const here = (command: Command): Command =>
    command.type === 'allOrNothing'
      ? { ...command, network, items: command.items.map((item) => ({ ...item, network })) }
      : { ...command, network }
  return {
    async submit(commands) {
      turn += 1
      const ledger = processes[turn % processes.length]!
      // Queued in one turn of the event loop, so that they are one batch.
      const outcomes = await Promise.all(commands.map((command) => ledger.submit(here(command))))
      return outcomes.map((one) => ({
        answer: one.ok ? one.answer : null,
        refusal: one.ok ? null : one.refusal,
        events: null,
      }))
    },
    now: () => Date.now(),
  }
}

async function agree(network: string, model: Model): Promise<void> {
  const { rows } = await admin.query<{ seq: number; leases: readonly (readonly unknown[])[] | null }>(
    `select (select max(seq) from ipledger.event where network_id = $1) as seq,
       (select json_agg(json_build_array(host(address), fencing_token, version, state, quarantine_reason, owner_uid) order by fencing_token)
        from ipledger.lease where network_id = $1) as leases`,
    [network],
  )
  const { seq, leases } = rows[0]!
  expect(seq, 'the head').toBe(model.state.head)
  expect(leases ?? []).toEqual(
    [...model.state.leases.values()]
      .sort((a, b) => a.token - b.token)
      .map((one) => [one.address, one.token, one.version, one.state, one.reason, one.owner?.uid ?? null]),
  )
}

test(`the ledger and the model agree on ${RUNS} histories`, { timeout: 30_000 + RUNS * 2_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(modelScripts({ min: 20, max: 120 }), async (script) => {
      walks += 1
      const network = `walk${walks}`
      await follow(systemOver(network), script, { time: 'still', each: (model) => agree(network, model) })
      await expectPartition(admin, network)
    }),
    { numRuns: RUNS, ...seeded },
  )
  // The walk quotes leases that never were, which is told; nothing else is worth a line.
  const told = processes.flatMap(({ logged }) => logged.filter(({ fields }) => !('beyondHead' in fields)))
  expect(told).toEqual([])
  await expectVerified(database)
})
