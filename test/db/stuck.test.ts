/** What waits for a person, or for an answer: each with its code, its source and since when. */
import { afterAll, describe, expect, test } from 'vitest'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import { isRefusal } from '../../src/liveness/report.ts'
import { listStuck, type StuckWanted } from '../../src/liveness/stuck.ts'
import { quarantine } from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { INTERVAL, register, settled } from '../support/intake.ts'
import { answering, HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
afterAll(() => expectVerified(database, { full: true }))

async function list(network: string, fields: Partial<StuckWanted> = {}) {
  return settled(
    await listStuck(truth.connections, { network, codes: [], after: null, limit: 100, ...fields }),
  )
}

async function told(network: string, fields: Partial<StuckWanted> = {}): Promise<readonly string[]> {
  const { stuck } = await list(network, fields)
  return stuck.map(({ code, source, lease }) => [code, source, lease?.address].filter(Boolean).join(' '))
}

describe('sources', () => {
  test('in dry run, silent, partial, and cold', async () => {
    const network = await truth.network()
    await register(truth.intake, network, 'a-dry')
    await truth.source(network, 'b-never')
    await truth.source(network, 'c-silent')
    await truth.source(network, 'd-partial')
    await truth.source(network, 'e-cold')
    await truth.source(network, 'f-well')
    expect(await told(network)).toEqual(['SOURCE_NOT_ENABLED a-dry'])
    for (const source of ['a-dry', 'c-silent', 'd-partial', 'e-cold', 'f-well']) {
      await truth.watch(network, source, [[], []])
    }
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'a-dry', [[], []])
    await truth.watch(network, 'f-well', [[], []])
    await truth.watch(network, 'd-partial', [[]], { complete: false })
    await truth.watch(network, 'e-cold', [[]], { epoch: 'e2' })
    await truth.past(network, 3 * INTERVAL + 1)
    await truth.watch(network, 'a-dry', [[], []])
    await truth.watch(network, 'f-well', [[], []])
    await truth.watch(network, 'd-partial', [[]], { complete: false })
    await truth.watch(network, 'e-cold', [[listedAs('10.9.0.1', workload(1))]], { epoch: 'e2' })
    expect(await told(network)).toEqual([
      'SOURCE_NOT_ENABLED a-dry',
      'SOURCE_SILENT b-never',
      'SOURCE_SILENT c-silent',
      'SOURCE_PARTIAL d-partial',
      'SOURCE_COLD e-cold',
    ])
    expect(await told(network, { codes: ['SOURCE_PARTIAL', 'SOURCE_COLD'] })).toHaveLength(2)
    const paged: string[] = []
    for (let after: string | null = null; ; ) {
      const page: Awaited<ReturnType<typeof list>> = await list(network, { after, limit: 2 })
      paged.push(...page.stuck.map(({ source }) => source))
      if (page.next === null) break
      after = page.next
    }
    expect(paged).toEqual(['a-dry', 'b-never', 'c-silent', 'd-partial', 'e-cold'])
  })
})

test('of a source that is asked and lists only a part, it is said why', async () => {
  const network = await truth.network()
  await truth.source(network, 'engine', { kind: 'docker' })
  for (let look = 0; look < 2; look += 1) {
    await truth.watch(network, 'engine', [[]], { complete: false })
    await truth.past(network, 2 * INTERVAL)
  }
  await truth.connections.query(
    `insert into ipledger.turn values ($1, 'engine', now(), 'test', now(), '3 containers cannot be read')`,
    [network],
  )
  const { stuck } = await list(network)
  expect(stuck.find(({ code }) => code === 'SOURCE_PARTIAL')!.text).toBe(
    'reports only in part: DECLARED: 3 containers cannot be read',
  )
})

describe('leases', () => {
  test('whose look-ups fail, with the source that fails', async () => {
    const network = await truth.network()
    await truth.source(network, 'engine', { kind: 'docker' })
    const lease = await truth.lease(network, workload(1))
    await truth.past(network, 10 * MINUTE)
    const entries = [listedAs(lease.address, workload(1))]
    await truth.watch(network, 'engine', seenThenMissed(entries, 3))
    const asked = answering(async () => {
      throw new Error('connection refused')
    })
    await truth.run(createVerifySuspects({ stayMs: 0 }), { asked })
    const { stuck } = await list(network)
    expect(stuck).toMatchObject([
      {
        code: 'LOOKUP_FAILING',
        source: 'engine',
        lease: { address: lease.address },
        pool: { name: 'web' },
      },
    ])
    expect(stuck[0]!.text).toContain('connection refused')
    expect(stuck[0]!.since).toBeGreaterThan(lease.reservedAt)
  })

  test('that a silent witness keeps, that predate their source, and what has no exit', async () => {
    const network = await truth.network()
    const old = await truth.lease(network, workload('old'))
    await truth.source(network, 'agent')
    const set = await truth.lease(network, workload('set'))
    await truth.ledger.accept(quarantine({ token: set.fencingToken }, { network }))
    const named = await truth.lease(network, workload('named'), { witness: 'nobody' })
    await truth.past(network, 2 * HOUR)
    await truth.watch(network, 'agent', [[], [], [], [], [], []])
    expect(await told(network)).toEqual([
      `NEVER_SIGHTED agent ${old.address}`,
      `NO_EXIT ${set.address}`,
      `PROOF_BLOCKED nobody ${named.address}`,
    ])
    expect(await told(network, { codes: ['NO_EXIT'] })).toEqual([`NO_EXIT ${set.address}`])
    const paged: (string | undefined)[] = []
    for (let after: string | null = null; ; ) {
      const page: Awaited<ReturnType<typeof list>> = await list(network, { after, limit: 1 })
      paged.push(...page.stuck.map((one) => one.lease?.address))
      if (page.next === null) break
      after = page.next
    }
    expect(paged).toEqual([old.address, set.address, named.address])
  })

  test('that are seen, or only young, are not', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const lease = await truth.lease(network, workload(1))
    const entries = [listedAs(lease.address, workload(1))]
    await truth.watch(network, 'agent', [entries, entries, entries])
    await truth.lease(network, workload(2))
    expect(await told(network)).toEqual([])
  })
})

describe('sightings', () => {
  test('on what a pool excludes', async () => {
    const network = await truth.network({ gateway: '10.0.0.1' })
    await truth.source(network, 'agent')
    await truth.watch(network, 'agent', [[listedAs('10.0.0.1', workload('router'))]])
    expect(await told(network)).toEqual(['SIGHTING_EXCLUDED agent'])
  })

  test('that a cap keeps out of the books, once they have lasted', async () => {
    const network = await truth.network({ cidr: '10.0.0.0/28' })
    await truth.source(network, 'agent')
    const seen = ['10.0.0.4', '10.0.0.5', '10.0.0.6'].map((address) => listedAs(address, null))
    await truth.watch(network, 'agent', [seen, seen, seen])
    expect(await truth.run(createProcessSnapshots())).toEqual({ foreign: 1 })
    const kept = ['SIGHTING_NOT_RECORDED', 'SIGHTING_EXCLUDED']
    expect(await told(network, { codes: kept })).toEqual([])
    await truth.past(network, 2 * INTERVAL)
    await truth.watch(network, 'agent', [seen], { endedAgo: 0 })
    const { stuck } = await list(network, { codes: kept })
    expect(stuck.map(({ code, source, pool }) => [code, source, pool?.name])).toEqual([
      ['SIGHTING_NOT_RECORDED', 'agent', 'web'],
      ['SIGHTING_NOT_RECORDED', 'agent', 'web'],
    ])
  })
})

describe('the network', () => {
  test('its holds, and a transaction that is open for long', async () => {
    const network = await truth.network()
    await truth.connections.query(`insert into ipledger.hold values ($1, '', 1, now(), 'too many', 4, 4)`, [
      network,
    ])
    expect(await told(network)).toEqual(['HELD'])
    await truth.connections.query('delete from ipledger.hold where network_id = $1', [network])
    await withClient(database.serviceUrl, async (client) => {
      await client.query('begin')
      const { rows } = await truth.connections.query<{ begun_at: number }>(
        'select begun_at from ipledger.oldest_transaction()',
      )
      expect(rows).toHaveLength(1)
      expect(await told(network)).toEqual([])
      await client.query('rollback')
    })
  })

  test('that does not exist is refused', async () => {
    const result = await listStuck(truth.connections, {
      network: 'nowhere',
      codes: [],
      after: null,
      limit: 10,
    })
    expect(isRefusal(result) ? result.reason : 'accepted').toBe('NETWORK_NOT_FOUND')
  })
})
