/** What is stuck, as the database shows it: what `ipledger stuck` says, a minute old at most. */
import { afterAll, expect, test } from 'vitest'
import { observeStuck } from '../../src/jobs/observe-stuck.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { useAuditor } from '../support/auditor.ts'
import { quarantine, reap } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const audit = await useAuditor(database)
afterAll(() => expectVerified(database, { full: true }))

const observe = () => truth.run(observeStuck)

type Item = Readonly<{
  code: string
  source: string
  lease_id: string | null
  address: string | null
  pool: string
  what: string
  observed_at: number
}>
const stuck = (network: string) =>
  audit.ask<Item>(
    'select code, source, lease_id, address, pool, what, observed_at from stuck where network = $1 order by code, source, address',
    network,
  )

const A = workload('a')

async function blocked() {
  const network = await truth.network()
  await truth.source(network, 'agent')
  await register(truth.intake, network, 'dry')
  const lease = await truth.lease(network, A)
  await truth.past(network, 10 * MINUTE)
  await truth.watch(network, 'agent', seenThenMissed([listedAs(lease.address, A)], 3))
  await truth.run(createVerifySuspects({ stayMs: 0 }))
  await truth.past(network, INTERVAL)
  const { asks } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
  await truth.answer(network, 'agent', asks, { answer: 'error', detail: 'no route to host' })
  return { network, lease }
}

test('every item is there, with its lease, its address and its words', async () => {
  const { network, lease } = await blocked()
  await truth.ledger.accept(quarantine({ address: '10.0.0.99' }, { network, why: 'cable swapped' }))
  await observe()
  const found = await stuck(network)
  const page = settled(await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 }))
  expect(page.stuck.length).toBeGreaterThan(2)
  expect(found.map(({ code, source, what }) => `${code} ${source} ${what}`).sort()).toEqual(
    page.stuck.map(({ code, source, text }) => `${code} ${source} ${text}`).sort(),
  )
  const failing = found.find(({ code }) => code === 'LOOKUP_FAILING')!
  expect(failing).toMatchObject({
    source: 'agent',
    lease_id: lease.leaseId,
    address: lease.address,
    pool: 'web',
  })
  expect(failing.what).toContain('no route to host')
  expect(await audit.answer(network, lease.address)).toMatch(
    /It waits: LOOKUP_FAILING, observed .* UTC: held for pod default\/web-a/,
  )
  expect(
    await audit.ask('select address, source, answer, attempts from suspects where network = $1', network),
  ).toEqual([{ address: lease.address, source: 'agent', answer: 'error', attempts: expect.any(Number) }])
  expect(
    await audit.ask('select address, exit, blocked_by from quarantines where network = $1', network),
  ).toEqual([
    {
      address: '10.0.0.99',
      exit: 'It ends by an operator only: Reap',
      blocked_by: expect.stringContaining('quarantined by test, and ends by an operator'),
    },
  ])
})

test('what is over is there no more after the next look, and what stays keeps its place', async () => {
  const { network, lease } = await blocked()
  await observe()
  const before = await stuck(network)
  expect(before.some(({ address }) => address === lease.address)).toBe(true)
  await truth.ledger.accept(reap(lease.fencingToken, lease.version, { network }))
  await observe()
  const after = await stuck(network)
  expect(after.some(({ address }) => address === lease.address)).toBe(false)
  expect(after.map(({ code, source }) => `${code} ${source}`)).toContain('SOURCE_NOT_ENABLED dry')
  const dry = (items: readonly Item[]) => items.find(({ source }) => source === 'dry')!
  expect(dry(after).observed_at).toBeGreaterThan(dry(before).observed_at)
})

test('two runs at once leave what one would, and an earlier one removes nothing of a later one', async () => {
  const { network } = await blocked()
  await observe()
  const once = await stuck(network)
  await Promise.all([observe(), observe(), observe()])
  const again = await stuck(network)
  expect(again.map(({ what }) => what)).toEqual(once.map(({ what }) => what))
  await truth.rows(
    `update ipledger.stuck_item set observed_at = now() + interval '1 hour', what = 'later' where network_id = $1`,
    network,
  )
  await observe()
  expect((await stuck(network)).map(({ what }) => what)).toEqual(again.map(() => 'later'))
  await truth.past(network, 2 * HOUR)
  await observe()
  expect((await stuck(network)).some(({ what }) => what === 'later')).toBe(false)
})
