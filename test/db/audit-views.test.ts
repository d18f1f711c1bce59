/**
 * The views and functions that count: of pools, rates and owners, and what they repeat of the core's rules, compared with
 * the core.
 */
import { afterAll, describe, expect, test } from 'vitest'
import { formatValue, parseAddress } from '../../src/core/address.ts'
import { judgeHeld } from '../../src/core/judge.ts'
import type { Owner } from '../../src/core/owner.ts'
import { buildPool, parsePoolSettings, poolSize, settingsOf } from '../../src/core/pool.ts'
import { contains } from '../../src/core/ranges.ts'
import { expireUnconfirmed } from '../../src/jobs/expire-unconfirmed.ts'
import { observePools } from '../../src/jobs/observe-pools.ts'
import { observeStuck } from '../../src/jobs/observe-stuck.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { useAuditor } from '../support/auditor.ts'
import {
  beginEra,
  claim,
  createPool,
  deletePool,
  fenceNode,
  owner,
  quarantine,
  release,
  reserve,
  resumeHold,
  updateLabels,
  updatePool,
} from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { evidence, held, NOW, witness } from '../support/evidence.ts'
import { INTERVAL, register } from '../support/intake.ts'
import { seededRandom } from '../support/random.ts'
import { answering, HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const audit = await useAuditor(database)
const random = seededRandom()
console.log(`seed ${random.seed}`)
afterAll(() => expectVerified(database, { full: true }))

describe('what core says too', () => {
  const v4 = () => `10.${random.below(2)}.${random.below(3)}.${random.below(256)}`
  const v6 = () => `fd00::${random.below(3)}:${(random.below(65_536)).toString(16)}`

  /** Pools of every shape; what is not valid is not made. */
  function somePool() {
    const six = random.chance(0.4)
    const one = six ? v6 : v4
    const longest = six ? 128 : 32
    const bits = six ? 44 + random.below(85) : 14 + random.below(19)
    const subnet = random.chance(0.3) ? { subnet: `${one()}/${Math.max(8, bits - random.below(6))}` } : {}
    const exclude = Array.from({ length: random.below(5) }, () => {
      const [a, b] = [one(), one()]
      const value = (text: string) => (parseAddress(text) as { value: bigint }).value
      if (random.chance(0.3)) return a
      return value(a) <= value(b) ? `${a}-${b}` : `${b}-${a}`
    })
    const settings = parsePoolSettings({
      name: 'p',
      cidr: `${one()}/${bits}`,
      prefixLength: random.chance(0.5) ? longest : Math.min(longest, bits + random.below(12)),
      ...(random.chance(0.5) && { gateway: one() }),
      ...subnet,
      exclude,
    })
    if ('reason' in settings) return null
    return buildPool(settings, { network: 'n', poolId: 1, version: 1, createdAt: 0, updatedAt: 0 })
  }

  test('how much of a pool can be leased, and why not the rest', async () => {
    let compared = 0
    while (compared < 300) {
      const pool = somePool()
      if (pool === null) continue
      compared += 1
      const { size, allocatable } = poolSize(pool)
      const values = [
        pool.range.first,
        pool.range.last,
        ...pool.allocatable.flatMap(({ first, last }) => [first - 1n, first, last, last + 1n]),
      ]
        .filter((value) => value >= pool.range.first && value <= pool.range.last)
        .slice(0, 12)
      const [row] = await audit.ask<{ size: string; allocatable: string; why: (string | null)[] }>(
        `select s.size::text, s.allocatable::text,
                array(select excluded_because($1, a) from unnest($2::inet[]) with ordinality as x (a, i) order by i) as why
           from pool_space($1) s`,
        JSON.stringify(settingsOf(pool)),
        values.map((value) => formatValue(pool.family, value)),
      )
      expect({ size: row!.size, allocatable: row!.allocatable }, JSON.stringify(settingsOf(pool))).toEqual({
        size: String(size),
        allocatable: String(allocatable),
      })
      expect(row!.why.map((why) => why === null)).toEqual(
        values.map((value) => contains(pool.allocatable, value)),
      )
    }
  })

  test('which snapshots are misses', async () => {
    for (let turn = 0; turn < 200; turn += 1) {
      const misses = Array.from({ length: random.below(8) }, (_, n) => ({
        sequence: 41 + n - random.below(2),
        head: random.chance(0.2) ? 2 ** 40 + random.below(9) : 105 + random.below(10),
        begunAt: NOW - random.below(600) * 1_000,
      }))
      const of = evidence({
        lease: held({ version: 105 + random.below(8) }),
        lastSightedAt: random.chance(0.3) ? null : NOW - random.below(600) * 1_000,
        witnesses: [witness({ misses })],
      })
      const { because } = judgeHeld(of, {
        misses: 99,
        minimumAgeMs: 0,
        unwitnessedAgeMs: 0,
        terminalGraceMs: 0,
        proofAgeMs: 60_000,
        confirmGraceMs: 0,
      })
      const said = Number(
        /missed by agent-n1 in (\d+) of 99/.exec(because.map(({ text }) => text).join())![1],
      )
      const { lease, witnesses, now, ...rest } = of
      const proof = { ...rest, lease, at: now, version: lease.version, sources: witnesses }
      const rows = await audit.ask(
        'select * from counted_misses($1, $2)',
        JSON.stringify(proof),
        JSON.stringify(witnesses[0]),
      )
      expect(rows.length).toBe(said)
    }
  })
})

describe('pools', () => {
  const usage = (network: string) =>
    audit.ask<Record<string, string | number | null>>(
      'select * from pool_usage where network = $1 order by pool',
      network,
    )
  const sum = (row: Record<string, unknown>) =>
    ['free', 'cooling', 'reserved', 'active', 'quarantined', 'excluded'].reduce(
      (all, name) => all + BigInt(row[name] as string),
      0n,
    )

  test('are what they are made of, also a /48', async () => {
    const network = await truth.network({ gateway: '10.0.0.1' })
    await truth.ledger.accept(createPool({ name: 'wide', cidr: 'fd00::/48' }, { network }))
    const [a] = [
      await truth.lease(network, workload('a')),
      await truth.lease(network, workload('b'), { confirmed: false }),
    ]
    await truth.ledger.accept(quarantine({ address: '10.0.0.99' }, { network }))
    await truth.ledger.accept(release(a.fencingToken, { network }))
    await truth.lease(network, workload('c'), { claims: [claim({ pool: 'wide' })] })
    const [web, wide] = await usage(network)
    expect(web).toMatchObject({
      pool: 'web',
      cidr: '10.0.0.0/24',
      family: 4,
      size: '256',
      allocatable: '253',
      free: '250',
      cooling: 1,
      reserved: 1,
      active: 0,
      quarantined: 1,
      excluded: '3',
      draining: false,
    })
    expect(wide).toMatchObject({ pool: 'wide', size: String(2n ** 80n), active: 1, excluded: '1' })
    expect(sum(web!)).toBe(256n)
    expect(sum(wide!)).toBe(2n ** 80n)
    expect(web!.used_ratio).toBeCloseTo(2 / 253, 9)
  })

  test('are sampled, and the rate of the last hour says when one is full', async () => {
    const network = await truth.network()
    expect(await audit.ask('select * from pool_forecast where network = $1', network)).toEqual([])
    for (let n = 0; n < 12; n += 1) {
      await truth.lease(network, workload(n))
      if (n % 2 === 1) {
        await truth.run(observePools)
        await truth.past(network, 5 * MINUTE)
      }
    }
    const [forecast] = await audit.ask<{ free: string; leases_per_hour: number; hours: number }>(
      `select free, leases_per_hour, extract(epoch from exhausted_in)::float8 / 3600 as hours from pool_forecast where network = $1`,
      network,
    )
    // Two leases each five minutes; 254 addresses, 12 of them held. Samples are of full minutes, one of which may begin here.
    expect(forecast).toMatchObject({ free: '242' })
    expect(Math.abs(forecast!.leases_per_hour - 24)).toBeLessThan(4)
    expect(forecast!.hours).toBeCloseTo(242 / forecast!.leases_per_hour, 6)
    const history = await audit.ask<{ active: number; free: string; pool: string }>(
      `select * from pool_usage_history($1, 'web', now() - interval '2 hours', now())`,
      network,
    )
    expect(history.map(({ active }) => active)).toEqual([2, 4, 6, 8, 10, 12])
    expect(history[0]).toMatchObject({ network, pool: 'web', family: 4, free: '252', used_ratio: 2 / 254 })
    expect(
      await audit.ask(
        `select 1 from pool_usage_history($1, 'web', now() - interval '13 minutes', now())`,
        network,
      ),
    ).toHaveLength(2)
  })

  test('that do not fill are never exhausted, and of a deleted one the samples stay', async () => {
    const network = await truth.network()
    for (let n = 0; n < 6; n += 1) {
      await truth.run(observePools)
      await truth.past(network, 5 * MINUTE)
    }
    expect(
      await audit.ask('select leases_per_hour, exhausted_in from pool_forecast where network = $1', network),
    ).toEqual([{ leases_per_hour: 0, exhausted_in: null }])
    await truth.ledger.accept(deletePool('web', { network }))
    expect(
      await audit.ask(`select 1 from pool_usage_history($1, 'web', '-infinity', 'infinity')`, network),
    ).toHaveLength(6)
    expect(await usage(network)).toEqual([])
  })
})

describe('comings and goings', () => {
  test('by owner, node and pool', async () => {
    const network = await truth.network()
    const place = { placement: { node: 'n1', boot: '', labels: {} } }
    for (let n = 0; n < 3; n += 1) {
      const lease = await truth.lease(network, workload('a', { incarnation: `i${n}` }), place)
      await truth.ledger.accept(release(lease.fencingToken, { network }))
    }
    await truth.lease(network, workload('b'), { confirmed: false, confirmWithinMs: 1_000 })
    await truth.past(network, 10 * MINUTE)
    await truth.run(expireUnconfirmed)
    await truth.ledger.accept(quarantine({ address: '10.0.0.9' }, { network }))
    const none = { reserved: 0, released: 0, reaped: 0, adopted: 0, quarantined: 0 }
    expect(
      await audit.ask(
        'select by, key, reserved, released, reaped, adopted, quarantined from churn() where network = $1',
        network,
      ),
    ).toEqual([
      { by: 'node', key: 'n1', ...none, reserved: 3, released: 3 },
      { by: 'owner', key: 'pod default/web-a', ...none, reserved: 3, released: 3 },
      { by: 'owner', key: 'pod default/web-b', ...none, reserved: 1, reaped: 1 },
      { by: 'pool', key: 'web', reserved: 4, released: 3, reaped: 1, adopted: 0, quarantined: 1 },
    ])
    expect(
      await audit.ask(
        `select 1 from churn(now() - interval '1 minute', now()) where network = $1 and by = 'node'`,
        network,
      ),
    ).toEqual([])
    const rates = await audit.ask<{ type: string; cause: string; events: number; per_second: number }>(
      `select type, cause, sum(events)::int as events, max(per_second) as per_second from event_rate(now() - interval '1 hour', now(), '1 hour') where network = $1 group by 1, 2 order by 1, 2`,
      network,
    )
    expect(rates.find(({ type }) => type === 'lease.reserved')).toMatchObject({ cause: 'test', events: 4 })
    expect(rates.find(({ type }) => type === 'lease.reaped')).toMatchObject({
      cause: 'NEVER_CONFIRMED',
      events: 1,
    })
  })

  test('an owner that starts again and again', async () => {
    const network = await truth.network({ ownerLimit: 10 })
    for (let n = 0; n < 6; n += 1)
      await truth.lease(network, workload('loop', { incarnation: `i${n}`, uid: `u${n}` }))
    for (let n = 0; n < 4; n += 1)
      await truth.lease(network, workload('calm', { incarnation: `i${n}`, uid: `c${n}` }))
    expect(
      await audit.ask(
        'select owner_kind, owner_name, owner_interface, pool, lives, addresses, held_now from crash_loops where network = $1',
        network,
      ),
    ).toEqual([
      {
        owner_kind: 'pod',
        owner_name: 'default/web-loop',
        owner_interface: 'eth0',
        pool: 'web',
        lives: 6,
        addresses: 6,
        held_now: 6,
      },
    ])
    await truth.past(network, 16 * MINUTE)
    expect(await audit.ask('select 1 from crash_loops where network = $1', network)).toEqual([])
  })

  test('many leases of one life are no loop; many lives without an incarnation are', async () => {
    const network = await truth.network()
    const pools = Array.from({ length: 5 }, (_, n) => ({
      name: `p${n}`,
      cidr: `10.1.${n}.0/24`,
      cooldownMs: 0,
    }))
    for (const pool of pools) await truth.ledger.accept(createPool(pool, { network }))
    const claims = pools.map(({ name }) => claim({ pool: name }))
    const once = async (given: Pick<Owner, 'name' | 'incarnation'>, wanted = claims) => {
      const asked = reserve({ network, owner: owner({ kind: 'vm', ...given }), claims: wanted })
      return (await truth.ledger.accept(asked)).leases
    }
    await once({ name: 'at-once', incarnation: '1' })
    for (const one of claims) await once({ name: 'one-by-one', incarnation: '1' }, [one])
    await once({ name: 'nameless', incarnation: '' })
    for (let n = 0; n < 5; n += 1) {
      const [lease] = await once({ name: 'unnamed', incarnation: '' }, [claims[0]!])
      await truth.ledger.accept(release(lease!.fencingToken, { network }))
    }
    expect(
      await audit.ask(
        'select owner_name, lives, addresses, held_now from crash_loops where network = $1',
        network,
      ),
    ).toEqual([{ owner_name: 'unnamed', lives: 5, addresses: 5, held_now: 0 }])
  })
})

describe('what is seen', () => {
  test('whom a witness blocks, though it was asked about the lease as it was before', async () => {
    const network = await truth.network()
    await truth.source(network, 'engine', { kind: 'docker' })
    const lease = await truth.lease(network, workload('a'))
    await truth.past(network, 10 * MINUTE)
    await truth.watch(network, 'engine', seenThenMissed([listedAs(lease.address, workload('a'))], 3))
    const asked = answering(async () => {
      throw new Error('connection refused')
    })
    await truth.run(createVerifySuspects({ stayMs: 0 }), { asked })
    await truth.run(observeStuck)
    const suspects = () =>
      audit.ask<{ answer: string | null; what: string }>(
        'select answer, what from suspects where network = $1 and lease_id = $2',
        network,
        lease.leaseId,
      )
    expect(await suspects()).toMatchObject([{ what: expect.stringContaining('engine lists') }])
    await truth.ledger.accept(updateLabels(lease.fencingToken, { team: 'net' }, { network }))
    expect(await suspects()).toMatchObject([
      { answer: null, what: expect.stringContaining('connection refused') },
    ])
  })

  test('sources, how they stand, and what they saw', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent', { node: 'n1' })
    await register(truth.intake, network, 'dry')
    await truth.past(network, HOUR)
    await truth.watch(
      network,
      'agent',
      [[listedAs('10.0.0.7', workload('a'), { state: 'paused' })], []].concat([[]]),
      { endedAgo: INTERVAL },
    )
    const [agent, dry] = await audit.ask<Record<string, unknown>>(
      `select *, extract(epoch from lag)::int as lag_seconds, extract(epoch from complete_lag)::int as complete_seconds,
              extract(epoch from interval)::int as interval_seconds from sources where network = $1 order by source`,
      network,
    )
    expect(agent).toMatchObject({
      source: 'agent',
      kind: 'push',
      node: 'n1',
      state: 'ENABLED',
      epoch: 'e1',
      interval_seconds: 30,
      sequence: 3,
      listed: 0,
      partial_because: [],
      held: false,
      looks: '',
    })
    expect(agent!.lag_seconds).toBeLessThan(60)
    expect(dry).toMatchObject({ source: 'dry', state: 'REGISTERED', reported_at: null, held: false })
    expect(dry!.lag_seconds).toBeGreaterThanOrEqual(3_600)
    const seen = await audit.ask<Record<string, unknown>>(
      'select * from sightings where network = $1',
      network,
    )
    expect(seen).toMatchObject([
      { address: '10.0.0.7', source: 'agent', owner_uid: 'uid-a', state: 'paused', appeared_sequence: 1 },
    ])
  })
})

describe('every kind of event is a sentence', () => {
  const said = async (network: string) =>
    (
      await audit.ask<{ type: string; what: string }>(
        'select type, what from event where network = $1 order by seq',
        network,
      )
    ).map(({ type, what }) => `${type}: ${what}`)

  test('of networks, pools, eras, fences, holds', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const lease = await truth.lease(network, workload('a'))
    await truth.ledger.accept(
      updateLabels(lease.fencingToken, { team: 'blue' }, { network, cause: 'UpdateLabels' }),
    )
    await truth.ledger.accept(updatePool('web', { name: 'www', draining: true }, { network }))
    await truth.ledger.accept(fenceNode('n1', 'b1', { network, why: 'powered off' }))
    await withClient(database.adminUrl, async (admin) => {
      const evidenceOf = {
        source: 'agent',
        why: '5 of 9 leases of source agent would be reaped on absence within 60 min',
        reaps: 5,
        leases: 9,
        leaseId: lease.leaseId,
      }
      await admin.query(
        `insert into ipledger.event (network_id, seq, type, at, actor, cause, evidence)
           select $1, max(seq) + 1, 'reconcile.held', max(at), 'job:verify-suspects', 'PROVEN_ABSENT', $2 from ipledger.event where network_id = $1`,
        [network, JSON.stringify(evidenceOf)],
      )
      await admin.query(
        `insert into ipledger.hold (network_id, source_id, held_seq, held_at, why, reaps, leases)
           select $1, 'agent', max(seq), max(at), $2, 5, 9 from ipledger.event where network_id = $1`,
        [network, evidenceOf.why],
      )
    })
    expect(
      await audit.ask('select source, why, reaps, leases from holds where network = $1', network),
    ).toMatchObject([{ source: 'agent', reaps: 5, leases: 9 }])
    expect(await audit.ask('select node, boot, actor, why from fences where network = $1', network)).toEqual([
      { node: 'n1', boot: 'b1', actor: 'test', why: 'powered off' },
    ])
    expect(await audit.ask('select held from sources where network = $1', network)).toEqual([{ held: true }])
    await truth.ledger.accept(resumeHold('agent', { network, why: 'looked at it' }))
    await truth.ledger.accept(beginEra(1, { network, why: 'restored' }))
    const events = await said(network)
    expect(events).toEqual([
      `network.created: Network ${network} was created by test (test).`,
      'pool.created: Pool web was created by test (test): 10.0.0.0/24 in leases of /32, cooldown 3600 s.',
      expect.stringMatching(
        /^lease\.reserved: 10\.0\.0\.\d+ of pool www \(lease n\d+\/3\) was reserved for pod default\/web-a/,
      ),
      expect.stringMatching(
        /^lease\.updated: .* held for pod default\/web-a .*, was labelled \{"team": "blue"\} by test \(UpdateLabels\)\.$/,
      ),
      'pool.updated: Pool www was updated by test (test): 10.0.0.0/24 in leases of /32, cooldown 3600 s, draining.',
      'node.fenced: Boot b1 of node n1 was fenced by test (test): powered off; leases up to number 6 that were placed there and nowhere else are taken back.',
      `reconcile.held: Reaping on absence for source agent is on hold by job:verify-suspects (PROVEN_ABSENT): 5 of 9 leases of source agent would be reaped on absence within 60 min; lease ${lease.leaseId} was the one that went too far and is kept.`,
      'reconcile.resumed: Reaping on absence for source agent was resumed by test (test): looked at it.',
      `era.begun: Era 1 of network ${network} began by test (test): restored; the era before it ends at number 8; the network recovers, and nothing is handed out or taken back meanwhile.`,
    ])
    await truth.ledger.accept({
      type: 'endRecovery',
      network,
      actor: { name: 'test', node: null },
      cause: 'EndRecovery',
      requestId: null,
      fingerprint: null,
      traceId: null,
      why: 'all is well',
    })
    expect((await said(network)).at(-1)).toBe(
      `network.updated: The recovery of network ${network} ended by test (EndRecovery): all is well.`,
    )
  })

  test('of superseding with removal, of the previous address, of a promise made again', async () => {
    const network = await truth.network()
    const old = await truth.lease(network, workload('a'))
    await truth.ledger.accept(
      reserve({
        network,
        owner: workload('a', { incarnation: 'life-2' }),
        claims: [claim({ pool: 'web', preferPrevious: true })],
        supersedes: { uid: null, incarnation: 'life-a', removalConfirmed: true },
        confirmWithinMs: MINUTE,
      }),
    )
    const events = await said(network)
    expect(events.find((one) => one.startsWith('lease.released'))).toMatch(
      /held for pod default\/web-a uid uid-a incarnation life-a \(eth0\), ended: pod default\/web-a uid uid-a incarnation life-2 \(eth0\) superseded it, and said that it is removed by test \(test\); the address cools until /,
    )
    expect(events.at(-1)).toMatch(
      new RegExp(
        `^lease\\.reserved: ${old.address} of pool web .* by test \\(test\\), as it had it before; it must be confirmed by .* UTC\\.$`,
      ),
    )
    expect(
      events.some((one) =>
        one.startsWith(
          'attachment.closed: Late calls for pod default/web-a uid uid-a incarnation life-a (eth0) are refused in every pool',
        ),
      ),
    ).toBe(true)
  })
})
