/** What the tables say about a lease, rule by rule (the comments of LeaseEvidence in core/judge.ts). */
import { afterAll, describe, expect, test } from 'vitest'
import type { LeaseEvidence, WitnessEvidence } from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import { attachmentKey } from '../../src/core/owner.ts'
import { POLICY } from '../../src/core/policy.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { LEASE_COLUMNS, type LeaseRow, readLease } from '../../src/ledger/rows.ts'
import { readEvidence, takeEvidence } from '../../src/liveness/evidence.ts'
import { findSource, retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { connect } from '../../src/postgres/connect.ts'
import { claim, fenceNode, owner, release, updateLabels } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, settled } from '../support/intake.ts'
import {
  ended,
  HOUR,
  listedAs,
  MINUTE,
  SECOND,
  seenThenMissed,
  useTruth,
  workload,
} from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const A = workload('a')
const B = workload('b')

async function leaseAt(network: string, address: string): Promise<Lease> {
  const [row] = await truth.rows<LeaseRow>(
    `select ${LEASE_COLUMNS.join(', ')} from ipledger.lease where network_id = $1 and address = $2`,
    network,
    address,
  )
  return readLease(row!)
}

async function evidence(network: string, address: string): Promise<LeaseEvidence> {
  const read = await takeEvidence(truth.connections, network, [await leaseAt(network, address)])
  expect(read!.evidence).toHaveLength(1)
  return read!.evidence[0]!
}

function of(found: LeaseEvidence, source: string): WitnessEvidence {
  return found.witnesses.find((one) => one.source === source)!
}

function times<T>(count: number, one: T): readonly T[] {
  return Array.from({ length: count }, () => one)
}

async function withLease(fields: Parameters<typeof truth.source>[2] = {}) {
  const network = await truth.network()
  await truth.source(network, 'agent', fields)
  const lease = await truth.lease(network, A)
  await truth.past(network, 10 * MINUTE)
  return { network, lease, address: lease.address, entry: listedAs(lease.address, A) }
}

describe('what a source has seen and missed', () => {
  test('seen: the counted snapshots that listed it; misses: those that did not, from the one that ended it', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed([entry], 2))
    const found = await evidence(network, address)
    const agent = of(found, 'agent')
    expect(agent).toMatchObject({
      why: 'SIGHTED',
      live: null,
      about: { uid: 'uid-a' },
      warm: true,
      epoch: 'e1',
    })
    expect(agent.seen.map(({ sequence }) => sequence)).toEqual([3])
    expect(agent.misses.map(({ sequence }) => sequence)).toEqual([4, 5])
    // Not later than the report before the one that missed it.
    expect(found.lastSightedAt).toBe(agent.seen[0]!.begunAt)
    expect(agent.vanishedAt).toBe(agent.misses[0]!.begunAt)
  })

  test('while it is listed, it was last seen with the last complete snapshot, and is missed by none', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', [[entry], [entry], [entry], [entry]])
    const found = await evidence(network, address)
    const agent = of(found, 'agent')
    expect(agent.live).toMatchObject({ state: 'running', node: '', incarnation: 'life-a' })
    expect(agent.misses).toEqual([])
    expect(found.lastSightedAt).toBe(agent.seen.at(-1)!.begunAt)
    expect(found.placements).toEqual([{ node: '', boot: '', source: 'agent' }])
  })

  test.each([
    ['with holes', { complete: false }],
    ['of a source that warms up', { epoch: 'e2' }],
  ])('while it may be listed in reports %s, it was last seen with the last of them', async (_what, how) => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', [[entry], [entry], [entry]], { endedAgo: 0 })
    await truth.past(network, INTERVAL)
    const { source } = await truth.watch(network, 'agent', [[entry]], { endedAgo: 0, ...how })
    const found = await evidence(network, address)
    expect(of(found, 'agent').live).not.toBeNull()
    expect(found.lastSightedAt).toBe(source.standing.lastBegunAt)
  })

  test('not so with those of a later boot of its node', async () => {
    const { network, address, entry } = await withLease({ node: 'n1' })
    await truth.watch(network, 'agent', [[entry]], { epoch: 'b1', endedAgo: 0 })
    const before = (await evidence(network, address)).lastSightedAt!
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'agent', [[]], { epoch: 'b2', endedAgo: 0 })
    const found = await evidence(network, address)
    expect(of(found, 'agent').live).not.toBeNull()
    expect(found.lastSightedAt).toBe(before - INTERVAL)
  })

  test('who saw another life of its owner must miss it and knows nothing of this one; its end is no news', async () => {
    const { network, address } = await withLease()
    const other = listedAs(address, workload('a', { incarnation: 'life-0' }))
    await truth.watch(network, 'agent', [[other], [other], [other]], { endedAgo: 0 })
    expect(of(await evidence(network, address), 'agent')).toMatchObject({
      why: 'SIGHTED',
      anotherLife: true,
      live: { incarnation: 'life-0' },
    })
    for (const list of [[ended(other)], []]) {
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [list], { endedAgo: 0 })
      const found = await evidence(network, address)
      expect(of(found, 'agent')).toMatchObject({
        why: 'SIGHTED',
        anotherLife: true,
        live: null,
        listedTerminal: null,
      })
      // All the same somebody was there.
      expect(found.lastSightedAt).not.toBeNull()
    }
  })

  test('listed as ended: since then, and no life', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed([entry], 3, [ended(entry)]))
    const found = await evidence(network, address)
    const agent = of(found, 'agent')
    expect(agent).toMatchObject({ live: null, why: 'SIGHTED' })
    expect(agent.listedTerminal).toEqual({ since: agent.misses[0]!.begunAt })
    expect(agent.misses).toHaveLength(3)
    expect(found.placements).toEqual([])
  })

  test('beside whom those that cover it testify, until one has seen this life', async () => {
    const { network, address, entry } = await withLease()
    await truth.source(network, 'other')
    const whys = async () =>
      (await evidence(network, address)).witnesses.map(({ source, why }) => `${source} ${why}`).sort()
    const before = listedAs(address, workload('a', { incarnation: 'life-0' }))
    await truth.watch(network, 'agent', [[before]], { endedAgo: 0 })
    expect(await whys()).toEqual(['agent SIGHTED', 'other COVERS'])
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'agent', [[before, entry]], { endedAgo: 0 })
    expect(await whys()).toEqual(['agent SIGHTED'])
    expect(of(await evidence(network, address), 'agent').anotherLife).toBe(false)
  })

  test.each<[string, (network: string, list: readonly GivenEntry[]) => Promise<unknown>]>([
    [
      'after a report with holes',
      (network, list) => truth.watch(network, 'agent', [list], { endedAgo: 0, complete: false }),
    ],
    [
      'while its source warms up again',
      (network, list) => truth.watch(network, 'agent', [list], { endedAgo: 0, epoch: 'e2' }),
    ],
    ['after three intervals without a report', (network) => truth.past(network, 3 * INTERVAL)],
  ])('listed as ended is no end %s, until its source is believed again', async (_when, doubt) => {
    const { network, address, entry } = await withLease()
    const over = [ended(entry)]
    const listedTerminal = async () => of(await evidence(network, address), 'agent').listedTerminal
    await truth.watch(network, 'agent', seenThenMissed([entry], 3, over), { endedAgo: 0 })
    expect(await listedTerminal()).not.toBeNull()
    await truth.past(network, INTERVAL)
    await doubt(network, over)
    expect(await listedTerminal()).toBeNull()
    const { standing } = (await findSource(truth.intake.database, network, 'agent'))!
    for (let n = 0; n < 2; n += 1) {
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [over], { endedAgo: 0, epoch: standing.epoch })
    }
    expect(await listedTerminal()).not.toBeNull()
  })

  test('a gap begins the count again', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed([entry], 2))
    await truth.past(network, 5 * INTERVAL)
    await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
    expect(of(await evidence(network, address), 'agent').misses.map(({ sequence }) => sequence)).toEqual([6])
  })

  test('what it saw of the lease before is of the one before', async () => {
    const { network, lease, address, entry } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed([entry], 1))
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.past(network, 2 * HOUR)
    await truth.lease(network, B, { claims: [claim({ pool: 'web', address })] })
    const found = await evidence(network, address)
    expect(found.witnesses).toMatchObject([{ source: 'agent', why: 'COVERS' }])
    // The ledger asks when the address was last seen by anybody, whoever held it.
    expect(found.lastSightedAt).not.toBeNull()
  })

  test('where it saw it alive, now or before: node and boot, of an engine the node alone (16.5)', async () => {
    const { network, address, entry } = await withLease()
    await truth.source(network, 'n1', { node: 'n1' })
    await truth.source(network, 'engine', { node: 'n1', kind: 'docker' })
    const on = (node: string, boot: string) => ({ ...entry, node, boot })
    await truth.watch(network, 'agent', [[entry], [on('n2', 'b2')], [ended(on('n3', 'b3'))]], { endedAgo: 0 })
    await truth.watch(network, 'n1', [[entry]], { epoch: 'b1', endedAgo: INTERVAL })
    await truth.watch(network, 'n1', [[entry]], { epoch: 'b2', endedAgo: 0 })
    await truth.watch(network, 'engine', [[entry], []], { epoch: 'engine-id', endedAgo: 0 })
    const found = await evidence(network, address)
    const seenOn = (source: string) =>
      of(found, source)
        .seenOn!.map(({ node, boot }) => `${node} ${boot}`)
        .sort()
    expect(seenOn('agent')).toEqual(['n2 b2'])
    expect(seenOn('n1')).toEqual(['n1 b1', 'n1 b2'])
    expect(seenOn('engine')).toEqual(['n1 '])
    for (const id of ['agent', 'n1'])
      settled(await retireSource(truth.intake.database, { network, id, by: 'test' }))
    await truth.watch(network, 'engine', [[], []], { epoch: 'engine-id', endedAgo: 0 })
    const { retired } = await evidence(network, address)
    expect(retired).toMatchObject([
      { source: 'agent', seenOn: [{ node: 'n2', boot: 'b2' }] },
      { source: 'n1', scopeNode: 'n1', seenOn: expect.arrayContaining([{ node: 'n1', boot: 'b2' }]) },
    ])
  })

  test('the boot that was left, where it was asked for from elsewhere; null where it was not', async () => {
    const network = await truth.network()
    const placed = (node: string, boot: string) => ({ placement: { node, boot, labels: {} } })
    const stays = await truth.lease(network, A, placed('n1', 'b1'))
    const unknown = await truth.lease(network, workload('u'), placed('n1', ''))
    const leaves = await truth.lease(network, B, placed('n1', 'b1'))
    await truth.lease(network, B, placed('n2', 'b7'))
    const leftBoot = async ({ address }: { readonly address: string }) =>
      (await evidence(network, address)).leftBoot
    expect([await leftBoot(stays), await leftBoot(unknown), await leftBoot(leaves)]).toEqual([
      null,
      null,
      'b1',
    ])
  })

  describe('listed before the lease was reserved', () => {
    const web = owner({ name: 'web' })
    async function reservedAgain() {
      const network = await truth.network()
      await truth.source(network, 'agent')
      const first = await truth.lease(network, web)
      const former = listedAs(first.address, owner({ name: 'web', uid: 'c1' }))
      await truth.past(network, 10 * MINUTE)
      return { network, first, former }
    }
    async function again(
      network: string,
      first: { readonly fencingToken: number; readonly address: string },
    ) {
      await truth.ledger.accept(release(first.fencingToken, { network }))
      const claims = [claim({ pool: 'web', address: first.address })]
      return truth.lease(network, web, { claims })
    }

    test('alive: of another life, which keeps it, until a report that knew of it has it', async () => {
      const { network, first, former } = await reservedAgain()
      await truth.watch(network, 'agent', times(4, [former]), { endedAgo: 0 })
      await again(network, first)
      const agent = async () => of(await evidence(network, first.address), 'agent')
      expect(await agent()).toMatchObject({ why: 'SIGHTED', anotherLife: true, live: { state: 'running' } })
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[former]], { endedAgo: 0 })
      expect(await agent()).toMatchObject({ why: 'SIGHTED', anotherLife: false })
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[former]], { endedAgo: 0, epoch: 'e2' })
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[], []], { endedAgo: 0, epoch: 'e2' })
      expect(await agent()).toMatchObject({ why: 'SIGHTED', anotherLife: false, live: null })
    })

    test('alive, and gone by the first that knew of it: of another life for good', async () => {
      const { network, first, former } = await reservedAgain()
      await truth.watch(network, 'agent', times(4, [former]), { endedAgo: 0 })
      await truth.past(network, SECOND)
      await again(network, first)
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
      expect(of(await evidence(network, first.address), 'agent')).toMatchObject({
        why: 'SIGHTED',
        anotherLife: true,
        live: null,
      })
    })

    test('as ended: nothing, and no witness', async () => {
      const { network, first, former } = await reservedAgain()
      await truth.watch(network, 'agent', [...times(4, [former]), [ended(former)]], { endedAgo: 0 })
      await again(network, first)
      await truth.past(network, INTERVAL)
      await truth.watch(network, 'agent', [[ended(former)]], { endedAgo: 0 })
      expect(of(await evidence(network, first.address), 'agent')).toMatchObject({
        why: 'COVERS',
        listedTerminal: null,
      })
    })

    test('what was adopted by it is what it is about', async () => {
      const network = await truth.network()
      await truth.source(network, 'agent')
      const list = [listedAs('10.0.0.9', A)]
      await truth.watch(network, 'agent', times(3, list), { endedAgo: 0 })
      await truth.run(createProcessSnapshots())
      expect(await truth.state(network, '10.0.0.9')).toBe('ACTIVE')
      expect(of(await evidence(network, '10.0.0.9'), 'agent').anotherLife).toBe(false)
    })
  })

  test('in dry run it testifies, and is not enabled; retired it testifies no more', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', [[entry], [entry], [entry]])
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    const found = await evidence(network, address)
    expect(found.witnesses).toEqual([])
    expect(found.placements).toEqual([])
    expect(found.lastSightedAt).not.toBeNull()
    expect(found.retired).toMatchObject([{ source: 'agent', about: { uid: 'uid-a' } }])
  })

  test('of retired ones those are told whose workload no other has seen since the lease began', async () => {
    const { network, lease, address, entry } = await withLease()
    for (const id of ['heir', 'third']) await truth.source(network, id)
    const other = listedAs(address, B)
    await truth.watch(network, 'agent', [[entry, other, listedAs(address, null)]], { endedAgo: 0 })
    const retired = async () =>
      (await evidence(network, address)).retired!.map(({ about }) => about?.uid ?? 'nobody').sort()
    await truth.watch(network, 'heir', [[listedAs(address, workload('a', { incarnation: 'life-0' }))]], {
      endedAgo: 0,
    })
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    expect(await retired(), 'another life is not this one').toEqual(['nobody', 'uid-a', 'uid-b'])
    await truth.watch(network, 'third', [[entry]], { endedAgo: 0 })
    expect(await retired()).toEqual(['nobody', 'uid-b'])
    // What it saw was of the lease before.
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'heir', [[], [], []], { endedAgo: 0 })
    await truth.watch(network, 'third', [[], [], []], { endedAgo: 0 })
    await truth.lease(network, B, { claims: [claim({ pool: 'web', address })] })
    expect(await retired()).toEqual([])
  })

  test('an heir has seen it since, live, and where the retired one looked', async () => {
    const { network, address, entry } = await withLease()
    await truth.source(network, 'before')
    await truth.source(network, 'n1', { node: 'n1' })
    await truth.source(network, 'heir')
    const retired = async () => (await evidence(network, address)).retired
    await truth.watch(network, 'before', [[entry], []], { endedAgo: 0 })
    await truth.watch(network, 'agent', [[entry]], { endedAgo: 0 })
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    await truth.watch(network, 'n1', [[entry]], { epoch: 'b1', endedAgo: 0 })
    await truth.watch(network, 'heir', [[ended(entry)]], { endedAgo: 0 })
    expect(await retired()).toEqual([
      { source: 'agent', about: expect.objectContaining({ uid: 'uid-a' }), scopeNode: '', seenOn: [] },
    ])
    await truth.past(network, INTERVAL)
    await truth.watch(network, 'heir', [[entry]], { endedAgo: 0 })
    expect(await retired()).toEqual([])
  })

  test('who was seen there and could not be named counts if he was listed to the end', async () => {
    const { network, address } = await withLease()
    const nameless = [listedAs(address, null)]
    await truth.watch(network, 'agent', [nameless, nameless, nameless, []], { endedAgo: 0 })
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    expect((await evidence(network, address)).retired).toEqual([])
  })

  test('and of those that listed it in part alone', async () => {
    const { network, address, entry } = await withLease()
    await truth.watch(network, 'agent', [[entry]], { endedAgo: 0, complete: false })
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    expect((await evidence(network, address)).retired).toMatchObject([{ source: 'agent' }])
  })

  test('also where the clock was behind when they were retired, so that what they listed ends before it began', async () => {
    const { network, lease, address, entry } = await withLease()
    await truth.watch(network, 'agent', [[entry]], { endedAgo: 0, complete: false })
    settled(await retireSource(truth.intake.database, { network, id: 'agent', by: 'test' }))
    await truth.connections.query('update ipledger.sighting set vanished_head = $2 where network_id = $1', [
      network,
      lease.fencingToken - 1,
    ])
    expect((await evidence(network, address)).retired).toMatchObject([{ source: 'agent' }])
  })
})

describe('whom it is about', () => {
  test('the holder by (kind, uid), another as itself, and nobody known as nobody', async () => {
    const { network, address, entry } = await withLease()
    const list = [entry, listedAs(address, B), listedAs(address, null)]
    await truth.watch(network, 'agent', [list, list, list])
    const found = await evidence(network, address)
    expect(found.witnesses.map(({ about }) => about?.uid ?? null).sort()).toEqual(
      ['uid-a', 'uid-b', null].sort(),
    )
    expect(found.othersSightedAt).not.toBeNull()
  })

  test('inside a block whatever is on its holder’s node is the holder’s', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/20', prefixLength: 28 })
    await truth.source(network, 'agent')
    const block = await truth.lease(network, A, { placement: { node: 'n1', boot: '', labels: {} } })
    const list = [
      listedAs('10.0.0.3', workload('x'), { node: 'n1' }),
      listedAs('10.0.0.9', workload('y'), { node: 'n2' }),
      listedAs('10.0.0.16', workload('z'), { node: 'n2' }),
    ]
    await truth.watch(network, 'agent', [list])
    const found = await evidence(network, block.address)
    expect(found.witnesses.map(({ about }) => about?.uid).sort()).toEqual(['uid-a', 'uid-y'])
  })
})

describe('who testifies without having seen it', () => {
  test('the one that Reserve named; otherwise those that are enabled and cover its node', async () => {
    const network = await truth.network()
    await truth.source(network, 'all')
    await truth.source(network, 'here', { node: 'n1' })
    await truth.source(network, 'there', { node: 'n2' })
    const placement = { node: 'n1', boot: 'b1', labels: {} }
    const unseen = await truth.lease(network, A, { placement })
    const named = await truth.lease(network, B, { placement, witness: 'there' })
    const whys = async (address: string) =>
      (await evidence(network, address)).witnesses.map(({ source, why }) => `${source} ${why}`).sort()
    expect(await whys(unseen.address)).toEqual(['all COVERS', 'here COVERS'])
    expect(await whys(named.address)).toEqual(['there NAMED'])
  })

  test('each that covers the network of what a caller saw, whoever has seen it since', async () => {
    const network = await truth.network()
    await truth.source(network, 'all')
    await truth.source(network, 'seer')
    await truth.source(network, 'here', { node: 'n1' })
    await truth.lease(network, A, { liveAddresses: ['10.0.0.1'] })
    const whys = async () =>
      (await evidence(network, '10.0.0.1')).witnesses.map(({ source, why }) => `${source} ${why}`).sort()
    expect(await whys()).toEqual(['all COVERS', 'seer COVERS'])
    const list = [[listedAs('10.0.0.1', B)]]
    await truth.watch(network, 'here', list, { epoch: 'b1', endedAgo: 0 })
    await truth.watch(network, 'seer', list, { endedAgo: 0 })
    expect(await whys()).toEqual(['all COVERS', 'here SIGHTED', 'seer SIGHTED'])
  })

  test('sees only the kinds and families it declares', async () => {
    const { network, address } = await withLease({ ownerKinds: ['vm'] })
    expect(of(await evidence(network, address), 'agent').canSee).toBe(false)
    await truth.source(network, 'six', { families: [6] })
    expect(of(await evidence(network, address), 'six').canSee).toBe(false)
  })
})

describe('answers', () => {
  async function asked(fields: {
    readonly version?: number
    readonly epoch?: string
    readonly answer?: string | null
    readonly askedAgo?: number
  }) {
    const { network, lease, address, entry } = await withLease()
    await truth.watch(network, 'agent', seenThenMissed([entry], 3))
    const { version = lease.version, epoch = 'e1', answer = 'gone', askedAgo = SECOND } = fields
    await truth.connections.query(
      `insert into ipledger.lookup
         (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
          owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, asked_at, answered_at, answer, epoch, detail, attempts)
       values ($1, 'agent', $2, $3, $4, $5, 'pod', 'x', 'x', true, '', 'eth0', '', now(),
         now() - $6::float8 * interval '1 ms', case when $7::text is null then null else now() end, $7, $8, '', 1)`,
      [network, lease.fencingToken, attachmentKey(A), version, address, askedAgo, answer, epoch],
    )
    return of(await evidence(network, address), 'agent').lookup
  }

  test('of this version and this life of the source, as old as the question', async () => {
    expect(await asked({})).toMatchObject({ answer: 'gone' })
    const { at } = (await asked({ askedAgo: 20 * SECOND }))!
    expect(Date.now() - at).toBeGreaterThan(15 * SECOND)
    expect(await asked({ version: 2 })).toBeNull()
    expect(await asked({ epoch: 'e0' })).toBeNull()
  })

  test('none within two intervals is no answer', async () => {
    expect(await asked({ answer: null })).toBeNull()
    expect(await asked({ answer: null, askedAgo: 2 * INTERVAL + SECOND })).toMatchObject({
      answer: 'unanswered',
    })
  })
})

test('a boot that ended, a fence, and what changed since', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent', { node: 'n1', bootEndsAll: true })
  const lease = await truth.lease(network, A, { placement: { node: 'n1', boot: 'b1', labels: {} } })
  const entry = listedAs(lease.address, A)
  await truth.watch(network, 'agent', [[entry], [entry], [entry]], { epoch: 'b1' })
  await truth.past(network, 2 * INTERVAL)
  await truth.watch(network, 'agent', [[]], { epoch: 'b2', endedAgo: INTERVAL })
  expect(of(await evidence(network, lease.address), 'agent').bootEnded).toBeNull()
  await truth.watch(network, 'agent', [[]], { epoch: 'b2' })
  const found = await evidence(network, lease.address)
  const { bootEnded, epoch } = of(found, 'agent')
  expect(bootEnded).toMatchObject({ boot: 'b1', newBoot: 'b2' })
  expect(epoch).toBe('b2')
  // It was not listed since, only not ended before the source was warm.
  expect(found.lastSightedAt!).toBeLessThanOrEqual(bootEnded!.at)

  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  const fenced = await evidence(network, lease.address)
  expect(fenced.fencedBy).toMatchObject({ node: 'n1', boot: 'b1', by: 'test', why: 'powered off' })
  expect(fenced.fencedBy!.head).toBeGreaterThan(lease.fencingToken)
  await truth.ledger.accept(updateLabels(lease.fencingToken, { a: 'b' }, { network }))
  expect((await evidence(network, lease.address)).lease.version).toBeGreaterThan(lease.version)
})

test('only a boot that its source has left has ended: not the one it is in, nor one it never was in (12.2)', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent', { node: 'n1', bootEndsAll: true })
  await truth.watch(network, 'agent', [[], [], []], { epoch: 'b1' })
  // Placed after the node came up again, and before its source did.
  const placed = (boot: string) => ({ placement: { node: 'n1', boot, labels: {} } })
  const here = await truth.lease(network, A, placed('b2'))
  const nowhere = await truth.lease(network, B, placed('b7'))
  await truth.past(network, 2 * INTERVAL)
  await truth.watch(network, 'agent', [[], [], []], { epoch: 'b2', endedAgo: 0 })
  for (const { address } of [here, nowhere]) {
    const witness = of(await evidence(network, address), 'agent')
    expect(witness).toMatchObject({ epoch: 'b2', warm: true, bootEnded: null })
  }
})

test('a source is held by its own hold and by its network’s, and by no other (INV-21, 5.2)', async () => {
  const { network, address, entry } = await withLease()
  await truth.source(network, 'other')
  for (const id of ['agent', 'other']) await truth.watch(network, id, [[entry]], { endedAgo: 0 })
  const held = async () => {
    const { witnesses } = await evidence(network, address)
    return witnesses.flatMap(({ source, held }) => (held ? [source] : [])).sort()
  }
  const hold = (source: string) =>
    truth.connections.query(`insert into ipledger.hold values ($1, $2, 1, now(), 'too many', 4, 4)`, [
      network,
      source,
    ])
  expect(await held()).toEqual([])
  await hold('agent')
  expect(await held()).toEqual(['agent'])
  await hold('')
  expect(await held()).toEqual(['agent', 'other'])
  await truth.connections.query('delete from ipledger.hold where network_id = $1', [network])
})

test('a source speaks in the era of its last complete report, whichever the books are in (12.4)', async () => {
  const { network, address, entry } = await withLease()
  await truth.watch(network, 'agent', [[entry]], { endedAgo: 0, complete: false })
  expect(of(await evidence(network, address), 'agent').era, 'it has never reported completely').toBe(-1)
  await truth.watch(network, 'agent', [[entry]], { endedAgo: 0 })
  expect(of(await evidence(network, address), 'agent').era).toBe(0)
})

test('a fence comes with the last report from its boot, whatever that listed (6.3)', async () => {
  const network = await truth.network()
  await truth.source(network, 'agent', { node: 'n1' })
  const lease = await truth.lease(network, A, { placement: { node: 'n1', boot: 'b1', labels: {} } })
  const fencedBy = async () => (await evidence(network, lease.address)).fencedBy!
  await truth.watch(network, 'agent', [[]], { epoch: 'b1', endedAgo: 0 })
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  const { at, reportedAt } = await fencedBy()
  expect(reportedAt!).toBeLessThan(at)
  await truth.past(network, INTERVAL)
  await truth.watch(network, 'agent', [[]], { epoch: 'b1', endedAgo: 0, complete: false })
  const again = await fencedBy()
  expect(again.reportedAt!).toBeGreaterThan(again.at)
  // In another boot, it says nothing of this one; nor does a source of another node in one of the same name.
  await truth.source(network, 'other', { node: 'n2' })
  await truth.watch(network, 'other', [[]], { epoch: 'b1', endedAgo: 0 })
  await truth.watch(network, 'agent', [[], []], { epoch: 'b2', endedAgo: 0 })
  expect(await fencedBy()).toEqual(again)
  // Beside it, it does.
  await truth.watch(network, 'agent', [[]], { epoch: 'b1', endedAgo: 0 })
  expect((await fencedBy()).reportedAt!).toBeGreaterThan(again.reportedAt!)
})

test('a fence as of an earlier head holds from when the ledger went beyond that (6.3)', async () => {
  const network = await truth.network()
  const lease = await truth.lease(network, A, { placement: { node: 'n1', boot: 'b1', labels: {} } })
  const fencedBy = async () => (await evidence(network, lease.address)).fencedBy!
  await truth.past(network, MINUTE)
  await truth.ledger.accept(fenceNode('n2', 'b1', { network }))
  await truth.past(network, MINUTE)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network, head: lease.fencingToken }))
  const { at, since, head } = await fencedBy()
  expect(head).toBe(lease.fencingToken)
  expect(at - since!).toBeGreaterThanOrEqual(MINUTE)
  expect(at - since!).toBeLessThan(2 * MINUTE)
  await truth.ledger.accept(fenceNode('n1', 'b1', { network }))
  const again = await fencedBy()
  expect(again.since).toBe(again.at)
})

test('its owner is closed for as long as late calls of it may arrive', async () => {
  const { network, lease, address, entry } = await withLease()
  await truth.ledger.accept(release(lease.fencingToken, { network }))
  await truth.watch(network, 'agent', [[entry]], { endedAgo: 0 })
  await truth.run(createProcessSnapshots())
  expect(await truth.state(network, address)).toBe('RELEASED_BUT_LIVE')
  expect((await evidence(network, address)).ownerClosed).toBe(true)
  await truth.past(network, POLICY.retryHorizonMs)
  expect((await evidence(network, address)).ownerClosed).toBe(false)
})

test('a source’s standing and its sightings are of one moment, whatever is reported while they are read', async () => {
  const { network, address, entry } = await withLease()
  await truth.watch(network, 'agent', seenThenMissed([entry], 2))
  await truth.past(network, INTERVAL)
  const lease = await leaseAt(network, address)
  const client = await connect({ url: database.serviceUrl, applicationName: 'test' })
  let trips = 0
  const query = client.query.bind(client) as (trip: unknown) => unknown
  const interrupted = {
    query(trip: unknown) {
      trips += 1
      // Before the second trip the agent lists it again, in a snapshot that counts.
      if (trips !== 2) return query(trip)
      return truth.watch(network, 'agent', [[entry]], { endedAgo: 0 }).then(() => query(trip))
    },
  }
  const read = await readEvidence(interrupted as unknown as typeof client, network, [lease])
  await client.end()
  expect(trips).toBe(3)
  const { misses, seen } = of(read!.evidence[0]!, 'agent')
  expect([seen.length, misses.length]).toEqual([1, 2])
})

test('a lease at which more is seen than is looked at has no evidence, and is kept', async () => {
  const { network, address } = await withLease()
  await truth.connections.query(
    `insert into ipledger.sighting
       (network_id, address, source_id, entry_key, appeared_sequence, owner_kind, owner_name, owner_uid, owner_uid_named,
        owner_incarnation, owner_interface, node, boot, state, live, epoch, appeared_head, appeared_at,
        last_seen_at, vanished_sequence, vanished_head, vanished_at)
     select $1, $2, 'agent', 'k' || i, 1, 'pod', 'x' || i, 'x' || i, true, '', '', '', '', 'live', false, 'e1', 100, now(),
        now(), 2, 100, now()
       from generate_series(1, 1000) i`,
    [network, address],
  )
  const read = await takeEvidence(truth.connections, network, [await leaseAt(network, address)])
  expect(read!.evidence).toEqual([])
  expect(read!.unread.map((lease) => lease.address)).toEqual([address])
})
