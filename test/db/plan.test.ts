/** The dry run: what would be done, for whom, and why; and that nothing is. */
import { afterAll, describe, expect, test } from 'vitest'
import { type PlanWanted, planNetwork } from '../../src/liveness/plan.ts'
import { retireSource } from '../../src/liveness/register.ts'
import { isRefusal } from '../../src/liveness/report.ts'
import { createPool, release } from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

const WANTED = {
  pool: null,
  address: null,
  source: null,
  kept: false,
  asIfEnabled: null,
  after: null,
  limit: 100,
} as const

async function plan(network: string, fields: Partial<PlanWanted> = {}) {
  const at = { database: truth.connections, ledger: truth.ledger }
  return settled(await planNetwork(at, { network, ...WANTED, ...fields }))
}

async function told(network: string, fields: Partial<PlanWanted> = {}): Promise<readonly string[]> {
  const { findings } = await plan(network, fields)
  return findings.map(
    ({ address, verdict, because }) => `${address} ${verdict} ${because.map(({ code }) => code).join(' ')}`,
  )
}

async function withLeases(count: number) {
  const network = await truth.network()
  await truth.source(network, 'agent')
  const owners = Array.from({ length: count }, (_, n) => workload(n))
  const leases = []
  for (const of of owners) leases.push(await truth.lease(network, of))
  await truth.past(network, 10 * MINUTE)
  return { network, leases, entries: leases.map(({ address }, n) => listedAs(address, owners[n]!)) }
}

describe('what would be done', () => {
  test('everything that is to be done, by address, and nothing is', async () => {
    const { network, entries } = await withLeases(4)
    const other = listedAs(entries[2]!.address, workload('other'))
    const free = listedAs('10.0.0.100', workload('free'))
    const gateway = listedAs('10.0.0.255', workload('broadcast'))
    const left = [entries[1]!, entries[2]!, other, free, gateway]
    await truth.watch(network, 'agent', seenThenMissed(entries, 4, left))
    const before = await truth.rows(
      'select max(seq) as head from ipledger.event where network_id = $1',
      network,
    )
    expect(await told(network)).toEqual([
      '10.0.0.1 look_up LOOKUP_NEEDED',
      '10.0.0.3 quarantine CONFLICT',
      '10.0.0.4 look_up LOOKUP_NEEDED',
      '10.0.0.100 adopt ADOPTED',
      '10.0.0.255 blocked EXCLUDED',
    ])
    expect(await told(network, { kept: true })).toContain('10.0.0.2 keep SEEN_LIVE')
    const after = await truth.rows(
      'select max(seq) as head from ipledger.event where network_id = $1',
      network,
    )
    expect(after).toEqual(before)
    expect(await truth.rows('select 1 from ipledger.lookup where network_id = $1', network)).toEqual([])
    const { findings, head } = await plan(network)
    expect(head).toBe(before[0]!.head)
    expect(findings[0]).toMatchObject({
      lease: { address: '10.0.0.1' },
      pool: { name: 'web' },
      evidence: { witnesses: [{ source: 'agent', why: 'SIGHTED' }], policy: { misses: 3 } },
    })
    expect(findings[3]).toMatchObject({ lease: null, pool: { name: 'web' }, evidence: { source: 'agent' } })
  })

  test('only what is asked for', async () => {
    const { network, entries } = await withLeases(3)
    await truth.ledger.accept(createPool({ name: 'b', cidr: '10.1.0.0/24', cooldownMs: HOUR }, { network }))
    const elsewhere = listedAs('10.1.0.9', workload('elsewhere'))
    await truth.watch(network, 'agent', seenThenMissed(entries, 4, [elsewhere]))
    expect(await told(network, { pool: 'b' })).toEqual(['10.1.0.9 adopt ADOPTED'])
    expect(await told(network, { address: '10.0.0.2' })).toEqual(['10.0.0.2 look_up LOOKUP_NEEDED'])
    expect(await told(network, { address: '10.0.0.200' })).toEqual([])
    expect(await told(network, { source: 'agent' })).toHaveLength(4)
    await truth.source(network, 'other', { node: 'n9' })
    expect(await told(network, { source: 'other' })).toEqual([])
  })

  test('as if a source were enabled', async () => {
    const network = await truth.network()
    await register(truth.intake, network, 'agent')
    const lease = await truth.lease(network, workload(1))
    const unseen = await truth.lease(network, workload(2))
    await truth.past(network, 2 * HOUR)
    const list = [listedAs(lease.address, workload(1))]
    const stray = listedAs('10.0.0.77', workload('stray'))
    await truth.watch(network, 'agent', seenThenMissed(list, 4, [stray]))
    expect(await told(network)).toEqual(['10.0.0.1 blocked NOT_ENABLED'])
    expect(await told(network, { asIfEnabled: 'agent' })).toEqual([
      '10.0.0.1 look_up LOOKUP_NEEDED',
      `${unseen.address} blocked PREDATES_SOURCE`,
      '10.0.0.77 adopt ADOPTED',
    ])
    expect(await truth.state(network, '10.0.0.77')).toBe('FREE')
  })

  test('pages neither skip nor repeat', async () => {
    const { network, entries } = await withLeases(23)
    const free = Array.from({ length: 9 }, (_, n) => listedAs(`10.0.0.${60 + n}`, workload(`free-${n}`)))
    await truth.watch(network, 'agent', seenThenMissed(entries, 4, free))
    const whole = await told(network)
    expect(whole).toHaveLength(32)
    const paged: string[] = []
    for (let after: string | null = null; ; ) {
      const page: Awaited<ReturnType<typeof plan>> = await plan(network, { after, limit: 5 })
      expect(page.findings.length).toBeLessThanOrEqual(5)
      paged.push(...page.findings.map(({ address }) => address))
      if (page.next === null) break
      after = page.next
    }
    expect(paged).toEqual(whole.map((one) => one.split(' ')[0]))
  })

  test('what several sources list at one address is on one page', async () => {
    const { network } = await withLeases(0)
    await truth.source(network, 'other')
    for (const [n, source] of ['agent', 'other'].entries()) {
      const list = [60, 61].map((at) => listedAs(`10.0.0.${at}`, workload(`${source}-${at + n}`)))
      await truth.watch(network, source, [list, list])
    }
    const whole = await told(network)
    expect(whole).toHaveLength(4)
    const first = await plan(network, { limit: 1 })
    expect(first.findings.map(({ address }) => address)).toEqual(['10.0.0.60', '10.0.0.60'])
    const rest = await plan(network, { after: first.next, limit: 1 })
    expect(rest.findings.map(({ address }) => address)).toEqual(['10.0.0.61', '10.0.0.61'])
  })

  test('as if a source were enabled that is over is refused', async () => {
    const { network } = await withLeases(0)
    settled(await retireSource(truth.connections, { network, id: 'agent', by: 'test' }))
    const at = { database: truth.connections, ledger: truth.ledger }
    const result = await planNetwork(at, { network, ...WANTED, asIfEnabled: 'agent' })
    expect(isRefusal(result) ? result.message : 'accepted').toBe(
      'source agent is retired for good; register another',
    )
  })

  test('of a delegated block once', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/20', prefixLength: 28 })
    await truth.source(network, 'agent')
    const block = await truth.lease(network, workload(1), { placement: { node: 'n1', boot: '', labels: {} } })
    const inside = [5, 6, 7].map((n) => listedAs(`10.0.0.${n}`, workload(`x${n}`), { node: 'n2' }))
    await truth.watch(network, 'agent', [inside], { endedAgo: 0 })
    const page = await plan(network, { limit: 1 })
    expect(page.findings).toMatchObject([{ address: block.address, verdict: 'quarantine' }])
    expect(page.next === null ? [] : (await plan(network, { after: page.next })).findings).toEqual([])
    expect(await told(network, { address: '10.0.0.6' })).toEqual([`${block.address} quarantine CONFLICT`])
  })

  test('what a hold stops', async () => {
    const { network, entries } = await withLeases(2)
    await truth.watch(network, 'agent', seenThenMissed(entries, 4))
    await truth.connections.query(
      `insert into ipledger.hold values ($1, 'agent', 1, now(), 'too many', 4, 4)`,
      [network],
    )
    expect(await told(network)).toEqual(['10.0.0.1 hold HELD', '10.0.0.2 hold HELD'])
    await truth.connections.query('delete from ipledger.hold where network_id = $1', [network])
  })

  test('an address given back is not adopted on a list that is older', async () => {
    const { network, entries, leases } = await withLeases(1)
    await truth.watch(network, 'agent', [entries], { endedAgo: INTERVAL })
    await truth.ledger.accept(release(leases[0]!.fencingToken, { network }))
    expect(await told(network)).toEqual([])
    expect(await told(network, { kept: true })).toEqual(['10.0.0.1 keep OLDER_THAN_THE_BOOKS'])
  })

  test.each([
    [{ network: 'nowhere' }, 'NETWORK_NOT_FOUND'],
    [{ pool: 'nope' }, 'POOL_NOT_FOUND'],
    [{ source: 'nope' }, 'SOURCE_NOT_FOUND'],
    [{ asIfEnabled: 'nope' }, 'SOURCE_NOT_FOUND'],
    [{ address: 'x' }, 'INVALID_FIELD'],
  ])('%j is refused with %s', async (fields, reason) => {
    const network = await truth.network()
    const at = { database: truth.connections, ledger: truth.ledger }
    const result = await planNetwork(at, { network, ...WANTED, ...fields })
    expect(isRefusal(result) ? result.reason : 'accepted').toBe(reason)
  })
})
