/** Samples of pools, and what of the observations need not be remembered. */
import { afterAll, describe, expect, test } from 'vitest'
import { observePools } from '../../src/jobs/observe-pools.ts'
import { pruneObservations } from '../../src/jobs/prune-observations.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { LEASE_COLUMNS, type LeaseRow, readLease } from '../../src/ledger/rows.ts'
import { takeEvidence } from '../../src/liveness/evidence.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { listStuck } from '../../src/liveness/stuck.ts'
import { createPool, fenceNode, release } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { HOUR, listedAs, MINUTE, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const DAY = 24 * HOUR
const observe = () => truth.run(observePools)
const prune = () => truth.run(pruneObservations)

describe('samples', () => {
  test('say how full each pool is, once a minute', async () => {
    const network = await truth.network()
    await truth.ledger.accept(createPool({ name: 'six', cidr: 'fd00::/48', cooldownMs: HOUR }, { network }))
    await truth.lease(network, workload(1))
    await truth.lease(network, workload(2), { confirmed: false })
    const gone = await truth.lease(network, workload(3))
    await truth.ledger.accept(release(gone.fencingToken, { network }))
    const [first, second] = await Promise.all([observe(), observe()])
    // The minute may end between the two.
    expect([2, 4]).toContain(first.sampled! + second.sampled!)
    const samples = await truth.rows(
      `select p.name, s.size, s.allocatable, s.cooling, s.reserved, s.active, s.quarantined, s.excluded
         from ipledger.pool_sample s join ipledger.pool p using (network_id, pool_id)
        where network_id = $1 order by p.name desc, s.at desc`,
      network,
    )
    expect(samples[0]).toEqual({
      name: 'web',
      size: '256',
      allocatable: '254',
      cooling: 1,
      reserved: 1,
      active: 1,
      quarantined: 0,
      excluded: '2',
    })
    expect(samples.at(-1)).toMatchObject({ name: 'six', size: String(2n ** 80n), excluded: '1' })
    await truth.past(network, MINUTE)
    expect(await observe()).toEqual({ sampled: 2 })
  })

  test('are kept for 90 days', async () => {
    const network = await truth.network()
    await observe()
    await truth.past(network, 89 * DAY)
    expect(await prune()).toMatchObject({ samples: 0 })
    await truth.past(network, 2 * DAY)
    expect(await prune()).toMatchObject({ samples: 1 })
  })
})

describe('sightings and snapshots', () => {
  test('go after 30 days; the last sighting of a held lease by each source stays', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const of = workload('held')
    const lease = await truth.lease(network, of)
    const held = listedAs(lease.address, of)
    const paused = { ...held, state: 'paused' }
    const stray = listedAs('10.0.0.200', workload('stray'))
    await truth.watch(network, 'agent', [[held, stray], [held, stray], [held, stray], [paused], [], []])
    const addresses = () =>
      truth.rows<{ address: string; state: string }>(
        'select host(address) as address, state from ipledger.sighting where network_id = $1 order by 1, 2',
        network,
      )
    expect(await addresses()).toHaveLength(3)
    await truth.past(network, 29 * DAY)
    expect(await prune()).toMatchObject({ sightings: 0, snapshots: 0 })
    await truth.past(network, 2 * DAY)
    const { sightings, snapshots } = await prune()
    expect(sightings).toBe(2)
    expect(snapshots).toBeGreaterThan(0)
    expect(await addresses()).toEqual([{ address: lease.address, state: 'paused' }])
    expect(
      await truth.rows('select 1 from ipledger.source_epoch where network_id = $1', network),
    ).toHaveLength(1)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await prune()).toMatchObject({ sightings: 1 })
  })

  test('where a held lease was seen, and in which life, stays too (16.5, 16.8)', async () => {
    const network = await truth.network()
    await truth.source(network, 'cluster')
    const of = workload('moved')
    const placement = { node: 'n1', boot: 'b1', labels: {} }
    const { address, fencingToken } = await truth.lease(network, of, { placement })
    const here = listedAs(address, of, { node: 'n1', boot: 'b1' })
    const there = listedAs(address, of, { node: 'n2', boot: 'c1' })
    const before = { ...here, incarnation: 'another', state: 'terminal' }
    await truth.watch(network, 'cluster', [[here], [here], [there], [here], [before], []])
    const evidence = async () => {
      const { rows } = await truth.connections.query<LeaseRow>(
        `select ${LEASE_COLUMNS.join(', ')} from ipledger.lease where network_id = $1 and fencing_token = $2`,
        [network, fencingToken],
      )
      const read = await takeEvidence(truth.connections, network, rows.map(readLease))
      return read!.evidence[0]!.witnesses.map(({ source, why, seenOn }) => ({ source, why, seenOn }))
    }
    const witnesses = await evidence()
    expect(witnesses).toMatchObject([
      { source: 'cluster', why: 'SIGHTED', seenOn: [{ node: expect.any(String) }, {}] },
    ])
    await truth.past(network, 31 * DAY)
    // Of the two intervals on n1 the first.
    expect(await prune()).toMatchObject({ sightings: 1 })
    const places = (all: typeof witnesses) =>
      all.map((one) => ({ ...one, seenOn: one.seenOn!.map(({ node }) => node).sort() }))
    expect(places(await evidence())).toEqual(places(witnesses))
  })

  test('what had moved away a month ago and back is freed by no fence (16.5)', async () => {
    const network = await truth.network()
    await truth.source(network, 'cluster')
    const of = workload('moved')
    const placement = { node: 'n1', boot: 'b1', labels: {} }
    const { address } = await truth.lease(network, of, { placement })
    const on = (node: string, boot: string) => listedAs(address, of, { node, boot })
    await truth.watch(network, 'cluster', [
      [on('n1', 'b1')],
      [on('n1', 'b1')],
      [on('n2', 'c1')],
      [on('n1', 'b1')],
      [],
    ])
    await truth.past(network, 31 * DAY)
    await prune()
    await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
    await truth.run(createVerifySuspects({ stayMs: 0 }))
    expect(await truth.state(network, address)).toBe('ACTIVE')
  })

  test('what is listed stays however long it has been', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const entry = listedAs('10.0.0.9', workload(9))
    await truth.watch(network, 'agent', [[entry]])
    await truth.past(network, 100 * DAY)
    await prune()
    expect(
      await truth.rows('select 1 from ipledger.sighting where network_id = $1 and live', network),
    ).toHaveLength(1)
  })

  test('chunks that were never finished go after an hour', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const part = (n: number) =>
      truth.connections.query(
        `insert into ipledger.snapshot_part values ($1, 'agent', now(), $2, now(), 'e1', '[]', 0, '', 0, 0)`,
        [network, n],
      )
    await part(0)
    await truth.past(network, HOUR + MINUTE)
    await part(1)
    expect(await prune()).toMatchObject({ parts: 1 })
  })

  test('questions about leases that are over go', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const lease = await truth.lease(network, workload(1))
    const ask = (token: number, version: number) =>
      truth.connections.query(
        `insert into ipledger.lookup
           (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
            owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, epoch, detail, attempts)
         values ($1, 'agent', $2, 'k' || $3::bigint, $3::bigint, '10.0.0.1', 'pod', 'x', 'x', false, '', 'eth0', '', now(), '', '', 1)`,
        [network, token, version],
      )
    await ask(lease.fencingToken, lease.version)
    await ask(lease.fencingToken, lease.version - 1)
    await ask(lease.fencingToken + 100, lease.version)
    expect(await prune()).toMatchObject({ questions: 2 })
    expect(await truth.rows('select version from ipledger.lookup where network_id = $1', network)).toEqual([
      { version: lease.version },
    ])
    await truth.past(network, INTERVAL)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect(await prune()).toMatchObject({ questions: 1 })
  })
})

test('turns of sources that are retired are over', async () => {
  const network = await truth.network()
  for (const id of ['asked', 'over']) {
    const settings = { listUrl: 'http://127.0.0.1:1/', lookUpUrl: 'http://127.0.0.1:1/' }
    await register(truth.intake, network, id, { kind: 'http', settings })
    await withClient(database.adminUrl, (admin) =>
      admin.query(`insert into ipledger.turn values ($1, $2, now(), 'test', now(), '')`, [network, id]),
    )
  }
  expect(await prune()).toMatchObject({ turns: 0 })
  settled(await retireSource(truth.connections, { network, id: 'over', by: 'test' }))
  expect(await prune()).toMatchObject({ turns: 1 })
  expect(await truth.rows('select source_id from ipledger.turn where network_id = $1', network)).toEqual([
    { source_id: 'asked' },
  ])
})

test('a source that was retired by a process that died lists nothing any more: its leases are judged again', async () => {
  const network = await truth.network()
  await truth.source(network, 'na', { node: 'na' })
  await truth.source(network, 'nb', { node: 'nb' })
  const placement = { node: 'na', boot: 'a1', labels: {} }
  const lease = await truth.lease(network, workload(1), { placement })
  const seen = listedAs(lease.address, workload(1))
  await truth.watch(network, 'na', [[seen], [seen]], { epoch: 'a1', endedAgo: 0 })
  await withClient(database.adminUrl, (admin) =>
    admin.query(
      `update ipledger.source set state = 'RETIRED', retired_at = clock_timestamp(), retired_by = 'test'
        where network_id = $1 and source_id = 'na'`,
      [network],
    ),
  )
  const told = async () => {
    const { stuck } = settled(
      await listStuck(truth.connections, { network, codes: [], after: null, limit: 100 }),
    )
    return stuck.flatMap((one) => (one.lease === null ? [] : [`${one.lease.address} ${one.code}`]))
  }
  await truth.past(network, HOUR)
  // Listed live, and so nobody's to judge.
  expect(await told()).toEqual([])
  expect(await prune()).toMatchObject({ retired: 1 })
  expect(await told()).toEqual([`${lease.address} NOBODY_CAN_TELL`])
  expect(await prune()).toMatchObject({ retired: 0 })
})
