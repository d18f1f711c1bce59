/** Many at once: what supersession and a repeated Release read must not cost a trip each (azure#4350 at the scale of a node). */
import { afterAll, expect, test, vi } from 'vitest'
import type { Command } from '../../src/core/command.ts'
import { POLICY } from '../../src/core/policy.ts'
import { newAbsenceMemory } from '../../src/ledger/absence.ts'
import { newHints } from '../../src/ledger/anticipate.ts'
import { runBatch } from '../../src/ledger/batch.ts'
import { connect } from '../../src/postgres/connect.ts'
import {
  allOrNothing,
  claim,
  confirm,
  createPool,
  fenceNode,
  owner,
  quarantine,
  releaseOf,
  reserve,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { moveToThePast } from '../support/past.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const newEras = () => ({ commitsAreNeverLost: false, seen: { head: 0 }, onBegun: () => undefined })
const eras = newEras()
const ledger = useLedger({ url: database.serviceUrl })
afterAll(() => expectVerified(database))

test('a thousand successors, all or nothing, are decided before the deadline of one call', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/20' }, { network }))
  const life = (incarnation: string) =>
    allOrNothing(
      Array.from({ length: 1_000 }, (_, index) =>
        reserve({
          network,
          owner: owner({ name: `w${index}`, incarnation }),
          claims: [claim({ pool: 'a' })],
        }),
      ),
      { network },
    )
  const first = await ledger.accept(life('1'))
  const second = await ledger.accept(life('2'))
  expect(first.items![7]!.leases[0]).toMatchObject({
    address: '10.0.0.8',
    owner: { name: 'w7', incarnation: '1' },
  })
  expect(second.items![7]!.leases[0]).toMatchObject({
    address: '10.0.3.240',
    owner: { name: 'w7', incarnation: '2' },
  })
})

test('a third life over quarantined predecessors whose closing no longer binds is read in a few trips', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/20' }, { network }))
  const life = (incarnation: string) =>
    Array.from({ length: 200 }, (_, index) =>
      reserve({ network, owner: owner({ name: `w${index}`, incarnation }), claims: [claim({ pool: 'a' })] }),
    )
  const held = await Promise.all(life('1').map((one) => ledger.take(one)))
  await Promise.all(
    held.map(({ fencingToken }) => ledger.take(quarantine({ token: fencingToken }, { network }))),
  )
  await ledger.accept(allOrNothing(life('2'), { network }))
  await moveToThePast(database, POLICY.retryHorizonMs + 1_000, network)
  const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
  const trips = vi.spyOn(client, 'query')
  const options = { hints: newHints(), absence: newAbsenceMemory(), setAside: new Set<string>(), eras }
  const third = await runBatch(client, network, [allOrNothing(life('3'), { network })], {
    ...options,
    decides: () => true,
  })
  expect(third).toMatchObject({ kind: 'committed', outcomes: [{ ok: true }] })
  expect(trips.mock.calls.length).toBeLessThan(10)
  await client.end()
})

test('a storm of releases by owner that were said before is read in one trip', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/20' }, { network }))
  const owners = Array.from({ length: 500 }, (_, index) => owner({ name: `w${index}`, incarnation: '1' }))
  const claims = [claim({ pool: 'a' })]
  const all = (commands: readonly Command[]) => Promise.all(commands.map((one) => ledger.take(one)))
  await all(owners.map((one) => reserve({ network, owner: one, claims })))
  const releases = owners.map((one) => releaseOf(one, { network }))
  const first = await all(releases)
  const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
  const trips = vi.spyOn(client, 'query')
  const options = { hints: newHints(), absence: newAbsenceMemory(), setAside: new Set<string>(), eras }
  const again = await runBatch(client, network, releases, { ...options, decides: () => true })
  expect(again).toMatchObject({
    kind: 'committed',
    outcomes: first.map((lease) => ({ ok: true, answer: { leases: [lease] } })),
  })
  expect(trips.mock.calls.length).toBeLessThan(10)
  await client.end()
})

test('leases of many boots that are promised again at once read in one trip whether these are fenced', async () => {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/20' }, { network }))
  const first = Array.from({ length: 200 }, (_, index) =>
    reserve({
      network,
      owner: owner({ name: `w${index}` }),
      claims: [claim({ pool: 'a' })],
      placement: { node: `n${index}`, boot: `b${index}`, labels: {} },
      confirmed: true,
    }),
  )
  const held = await Promise.all(first.map((one) => ledger.take(one)))
  await ledger.accept(fenceNode('n7', 'b7', { network }))
  const confirms = held.map(({ fencingToken }) => confirm(fencingToken, { network }))
  const together = [
    allOrNothing(confirms.slice(0, 100), { network }),
    allOrNothing(first.slice(100), { network }),
  ]
  for (const commands of [together, [...confirms, ...first]]) {
    const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
    const trips = vi.spyOn(client, 'query')
    const options = {
      hints: newHints(),
      absence: newAbsenceMemory(),
      setAside: new Set<string>(),
      eras: newEras(),
    }
    const again = await runBatch(client, network, commands, { ...options, decides: () => true })
    expect(again).toMatchObject({ kind: 'committed', outcomes: commands.map(() => ({ ok: true })) })
    expect(trips.mock.calls.length).toBeLessThan(10)
    await client.end()
  }
  // Of the one whose boot was fenced it was written down, once.
  const { address, version, fencingToken } = held[7]!
  const again = await ledger.take(confirm(fencingToken, { network }))
  expect(again).toMatchObject({ address, state: 'ACTIVE' })
  expect(again.version).toBeGreaterThan(version)
  expect((await ledger.take(confirm(fencingToken, { network }))).version).toBe(again.version)
})
