/** Several processes on one network, each with its own image: whatever each believes, the log is one. */
import assert from 'node:assert/strict'
import { expect, test } from 'vitest'
import type { Command, LeaseView } from '../../src/core/command.ts'
import { command, confirm, pool, quarantine, release, reserve } from '../core/given.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { random } from '../support/random-walk.ts'
import { expectInOrder, freshNetwork, type Step, useLedger } from './opened.ts'

const database = await useTestDatabase()
const seed = Number(process.env.IPLEDGER_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31))
console.log(`seed ${seed}`)
const open = () => useLedger(database.serviceUrl)
const openMany = (count: number) => Promise.all(Array.from({ length: count }, open))

test('every kind of traffic at three processes: one log, and three times the same image', async () => {
  const processes = await openMany(3)
  const { network, of } = await freshNetwork(processes[0]!, { cidr: '10.0.0.0/28', ownerLimit: 6 })
  await processes[0]!.accept(of(pool('10.1.0.0/26', { name: 'blocks', prefixLength: 30, cooldownMs: 0 })))
  await processes[0]!.accept(of(pool('fd00::/120', { name: 'six', cooldownMs: 1 })))
  const pick = random(seed)
  const known: LeaseView[] = []
  const who = () => `${['', 'pod:'][pick(2)]}w${pick(8)}/${pick(3)}`
  const lease = () => known[pick(known.length)] ?? { fencingToken: 1, version: 1, address: '10.0.0.1' }
  const steps: readonly (() => Step)[] = [
    () =>
      reserve(who(), {
        claims: [{ pools: [['pool', 'blocks', 'six'][pick(3)]!], preferPrevious: pick(2) === 0 }],
      }),
    () => reserve(who(), { claims: [{ address: `10.0.0.${1 + pick(14)}` }], confirmWithinMs: 60_000 }),
    () =>
      reserve(who(), { requestId: `r${pick(50)}`, fingerprint: `${pick(2)}`, claims: [{ pools: ['pool'] }] }),
    () =>
      reserve(who(), {
        claims: [{ pools: ['pool'] }],
        liveAddresses: [`10.0.0.${1 + pick(14)}`],
        by: `by${pick(3)}`,
      }),
    () => confirm(who()),
    () => release(lease().fencingToken, pick(4) > 0),
    () => release(lease().fencingToken),
    () => release(who()),
    () => quarantine(`10.0.0.${1 + pick(14)}`),
    () => {
      const { fencingToken: token, version } = lease()
      return command({ type: 'reap', token, version, why: 'gone' })
    },
    () =>
      command({
        type: 'updateLabels',
        token: lease().fencingToken,
        version: null,
        labels: { a: `${pick(3)}` },
      }),
    () => command({ type: 'updatePool', name: 'pool', version: null, change: { draining: pick(5) === 0 } }),
  ]
  let accepted = 0
  let refused = 0
  for (let round = 0; round < 25; round += 1) {
    const commands: Command[] = Array.from({ length: 40 }, () => of(steps[pick(steps.length)]!()))
    await Promise.all(
      commands.map(async (one) => {
        const outcome = await processes[pick(3)]!.submit(one)
        if (!outcome.ok) {
          refused += 1
          return
        }
        accepted += 1
        known.push(...outcome.answer.leases)
      }),
    )
  }
  assert.ok(accepted > 100 && refused > 100, `${accepted} accepted, ${refused} refused`)
  await expectInOrder(database.serviceUrl, network, ...processes)
  assert.deepEqual(
    processes.flatMap(({ failed, defects }) => [...failed, ...defects]),
    [],
  )
})

test('a process that is far behind loads anew; one that begins late, too', async () => {
  const [busy, lazy] = [await open(), await useLedger(database.serviceUrl, { limits: { behind: 1_500 } })]
  const { network, of } = await freshNetwork(busy, { cidr: '10.0.0.0/16' })
  await lazy.take(of(reserve('first')))
  assert.equal(lazy.loads, 1)
  const fill = (from: number, count: number) =>
    Promise.all(Array.from({ length: count }, (_, i) => busy.take(of(reserve(`x${from + i}`)))))
  await fill(0, 2_100)
  // More than a page of the log, and not too far.
  expect((await lazy.take(of(reserve('second')))).address).toBe('10.0.8.54')
  assert.equal(lazy.loads, 1)
  await fill(2_100, 4_100)
  expect((await lazy.take(of(reserve('third')))).address).toBe('10.0.24.59')
  assert.equal(lazy.loads, 2)
  await expectInOrder(database.serviceUrl, network, busy, lazy, await open())
})

test('an image that nobody uses is dropped, and loaded again as it was', async () => {
  const ledger = await useLedger(database.serviceUrl, { idleMs: 1 })
  const { network, of } = await freshNetwork(ledger)
  await ledger.take(of(reserve('a')))
  await expect.poll(() => ledger.networks()).toEqual([])
  expect((await ledger.take(of(reserve('b')))).address).toBe('10.0.0.2')
  await expectInOrder(database.serviceUrl, network, ledger)
})

test('a network that is not there is not kept, and nothing is written there', async () => {
  const ledger = await open()
  const nowhere: (step: Step) => Command = (step) => ({ ...step(), network: 'nowhere' })
  await ledger.refuse(nowhere(reserve('a')), 'NETWORK_NOT_FOUND')
  await ledger.refuse(nowhere(release('a/1')), 'NETWORK_NOT_FOUND')
  assert.equal(await ledger.image('nowhere'), null)
  await expect.poll(() => ledger.networks()).toEqual([])
})

test('two processes make one network once', async () => {
  const processes = await openMany(3)
  const make = {
    ...command({ type: 'createNetwork', settings: { description: '', labels: {} } })(),
    network: 'once',
  }
  const outcomes = await Promise.all(processes.map((one) => one.submit(make)))
  assert.deepEqual(outcomes.map((one) => (one.ok ? 'made' : one.refusal.reason)).sort(), [
    'INVALID_FIELD',
    'INVALID_FIELD',
    'made',
  ])
  await expectInOrder(database.serviceUrl, 'once', ...processes)
})

test('a process whose image is not the beginning of the log begins an era instead of going on', async () => {
  const [one, two] = await openMany(2)
  const { network, of } = await freshNetwork(one!)
  await two!.take(of(reserve('a')))
  assert.equal((await one!.image(network))!.head, 3)
  // As if another log had been restored under it: the same numbers, other events.
  await withClient(database.adminUrl, async (admin) => {
    await admin.query(`update ipledger.event set digest = sha256(digest) where network_id = $1`, [network])
  })
  await one!.refuse(of(reserve('b')), 'NETWORK_RECOVERING')
  await two!.refuse(of(reserve('b')), 'NETWORK_RECOVERING')
  assert.deepEqual(one!.eras, ['1: number 3 is not in the log as this process knows it'])
  assert.deepEqual(two!.eras, [])
})
