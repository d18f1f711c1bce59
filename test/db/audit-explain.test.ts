/**
 * Why an address is as it is: every state made by commands and by looks of sources, and the sentence asserted by what it
 * must name (INV-20, incident 15.1).
 */
import { afterAll, describe, expect, test } from 'vitest'
import type { Owner } from '../../src/core/owner.ts'
import { createClearQuarantine } from '../../src/jobs/clear-quarantine.ts'
import { expireUnconfirmed } from '../../src/jobs/expire-unconfirmed.ts'
import { observeStuck } from '../../src/jobs/observe-stuck.ts'
import { createProcessSnapshots } from '../../src/jobs/process-snapshots.ts'
import { createVerifySuspects } from '../../src/jobs/verify-suspects.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { useAuditor } from '../support/auditor.ts'
import {
  claim,
  confirm,
  createPool,
  deletePool,
  fenceNode,
  quarantine,
  reap,
  release,
  reserve,
  updatePool,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { INTERVAL, register } from '../support/intake.ts'
import { GONE, HOUR, listedAs, MINUTE, seenThenMissed, useTruth, workload } from '../support/truth.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const truth = await useTruth(database)
const audit = await useAuditor(database)
afterAll(() => expectVerified(database, { full: true }))

const OLD = 10 * MINUTE
const A = workload('a')
const B = workload('b')
const NAME_OF_A = 'pod default/web-a uid uid-a incarnation life-a (eth0)'

const processSnapshots = () => truth.run(createProcessSnapshots())
const verifySuspects = () => truth.run(createVerifySuspects({ stayMs: 0 }))
const clear = () => truth.run(createClearQuarantine())

/** `@` stands for a time in UTC. */
function sentence(...parts: readonly string[]): RegExp {
  const escaped = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\/]/g, String.raw`\$&`))
  return new RegExp(escaped.join('.*').replaceAll('@', String.raw`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC`))
}

async function later(network: string, lists: readonly (readonly GivenEntry[])[], ms = 0) {
  await truth.past(network, ms + lists.length * INTERVAL)
  return truth.watch(network, 'agent', lists, { endedAgo: 0 })
}

function times<T>(count: number, one: T): readonly T[] {
  return Array.from({ length: count }, () => one)
}

async function withAgent(fields: Parameters<typeof truth.source>[2] = {}): Promise<string> {
  const network = await truth.network({ gateway: '10.0.0.1', exclude: ['10.0.0.40-10.0.0.50'] })
  await truth.source(network, 'agent', fields)
  return network
}

async function goneForGood(network: string, list: readonly GivenEntry[] = []): Promise<void> {
  await later(network, times(4, list), OLD)
  await clear()
  await verifySuspects()
  const { asks } = await later(network, [list])
  await truth.answer(network, 'agent', asks, GONE)
}

const chain = async (network: string, address: string) =>
  (await audit.explain(network, address)).slice(1).map(({ what }) => what)

describe('nobody has it', () => {
  test('never held', async () => {
    const network = await withAgent()
    const explained = await audit.explain(network, '10.0.0.9')
    expect(explained[0]!.what).toMatch(
      sentence('At @ 10.0.0.9 of pool web is free, and nobody has ever held it.'),
    )
    expect(explained.slice(1).map(({ what }) => what)).toEqual([
      expect.stringMatching(
        /^Pool web was created by test \(test\): 10\.0\.0\.0\/24 in leases of \/32, cooldown 3600 s, gateway 10\.0\.0\.1, excluded 10\.0\.0\.40-10\.0\.0\.50\.$/,
      ),
    ])
  })

  test.each([
    ['10.0.0.1', 'it is the gateway of the pool.'],
    ['10.0.0.0', 'it is the network address of its subnet.'],
    ['10.0.0.255', 'it is the broadcast address of its subnet.'],
    ['10.0.0.44', `it is excluded by the pool's settings (10.0.0.40-10.0.0.50).`],
  ])('%s is never handed out', async (address, why) => {
    const network = await withAgent()
    expect(await audit.answer(network, address)).toMatch(
      sentence(`At @ ${address} of pool web is never handed out: ${why}`),
    )
  })

  test('outside every pool, in no network, before the first event, and a range', async () => {
    const network = await withAgent()
    expect(await audit.answer(network, '192.0.2.7')).toMatch(
      sentence(`192.0.2.7 is in no pool of network ${network}.`),
    )
    expect(await audit.answer('nowhere', '192.0.2.7')).toMatch(sentence('there was no network nowhere.'))
    expect(await audit.answer(network, '10.0.0.9', new Date('2020-01-01'))).toMatch(
      sentence(
        `At 2020-01-01 00:00:00.000 UTC nothing was known of 10.0.0.9: network ${network} was begun @.`,
      ),
    )
    expect(await audit.answer(network, '10.0.0.0/24')).toMatch(sentence('10.0.0.0/24 is a range: who_had'))
    expect(await audit.ask('select step from explain_address($1, null::inet)', network)).toEqual([])
  })

  test('in a block of a pool that was made again since with single addresses', async () => {
    const network = await truth.network({ prefixLength: 28, gateway: '10.0.0.1', cooldownMs: 0 })
    const block = await truth.lease(network, A)
    expect(block.address).toBe('10.0.0.16')
    await truth.ledger.accept(release(block.fencingToken, { network }))
    await truth.ledger.accept(deletePool('web', { network }))
    await truth.ledger.accept(createPool({ name: 'web', cidr: '10.0.0.0/24' }, { network }))
    // Where the block began, so that its events are no longer the last there.
    await truth.lease(network, B, { claims: [claim({ pool: 'web', address: '10.0.0.16' })] })
    const [answer, ...steps] = await audit.explain(network, '10.0.0.20')
    expect(answer!.what).toMatch(
      sentence('10.0.0.20 of pool web is free, and has cooled since @: block 10.0.0.16/28', block.leaseId),
    )
    expect(steps.map(({ what }) => what).join('\n')).toContain(block.leaseId)
  })

  test('in a pool that was deleted', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.past(network, 2 * HOUR)
    await truth.ledger.accept(deletePool('web', { network }))
    const explained = await audit.explain(network, lease.address)
    expect(explained[0]!.what).toMatch(
      sentence(
        `${lease.address} is in no pool: pool web (10.0.0.0/24), which it was in, was deleted @ by test;`,
        `lease ${lease.leaseId}, held for ${NAME_OF_A}, was released @`,
      ),
    )
    expect(explained.at(-1)!.what).toMatch(sentence('Pool web was deleted by test'))
  })

  test('excluded since it was held', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.past(network, 2 * HOUR)
    await truth.ledger.accept(updatePool('web', { exclude: [lease.address] }, { network }))
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence(`is never handed out: it is excluded by the pool's settings (${lease.address}).`),
    )
    expect((await chain(network, lease.address)).at(-1)).toMatch(sentence('Pool web was updated'))
  })

  test('cooling, then free, and nobody gets what was reaped before it has cooled', async () => {
    const network = await withAgent()
    const [one, two] = [await truth.lease(network, A), await truth.lease(network, B)]
    await truth.ledger.accept(release(one.fencingToken, { network }))
    await truth.ledger.accept(reap(two.fencingToken, two.version, { network, why: 'host burnt' }))
    expect(await audit.answer(network, one.address)).toMatch(
      sentence(
        `At @ ${one.address} of pool web is free and cooling until @: lease ${one.leaseId}, held for ${NAME_OF_A}, was released @ by test (test); until then only its last holder may have it back.`,
      ),
    )
    expect(await audit.answer(network, two.address)).toMatch(
      sentence(
        `is free and cooling until @: lease ${two.leaseId}`,
        'was reaped @ by test (test); until then nobody gets it.',
      ),
    )
    expect((await chain(network, two.address)).at(-1)).toMatch(
      sentence(
        `${two.address} of pool web (lease ${two.leaseId}), held for pod default/web-b`,
        'was reaped by an operator by test (test): host burnt; the address cools until @.',
      ),
    )
    await truth.past(network, 2 * HOUR)
    expect(await audit.answer(network, one.address)).toMatch(
      sentence('is free, and has cooled since @: lease', NAME_OF_A, 'was released @ by test (test).'),
    )
  })

  test('seen live though the books have nobody there', async () => {
    const network = await truth.network()
    await register(truth.intake, network, 'dry')
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'dry', times(3, [listedAs('10.0.0.77', B)]), { endedAgo: 0 })
    await processSnapshots()
    const [answer] = await audit.explain(network, '10.0.0.77')
    expect(answer!.what).toMatch(
      sentence(
        'is free, and nobody has ever held it.',
        'Source dry listed pod default/web-b uid uid-b incarnation life-b there as running since @.',
        'It is seen live though the books have nobody there, and is not handed out while it is listed.',
      ),
    )
    expect(answer!.evidence).toMatchObject({ sightings: [{ source: 'dry', owner_uid: 'uid-b' }] })
  })

  test('seen live elsewhere in the block it is handed out with', async () => {
    const network = await truth.network({ prefixLength: 28 })
    await register(truth.intake, network, 'dry')
    await truth.past(network, 4 * INTERVAL)
    await truth.watch(network, 'dry', times(3, [listedAs('10.0.0.9', B)]), { endedAgo: 0 })
    for (const [address, where] of [
      ['10.0.0.0', 'at 10.0.0.9 in its block'],
      ['10.0.0.9', 'there'],
    ] as const)
      expect(await audit.answer(network, address)).toMatch(
        sentence(
          `${address} of pool web is free, and nobody has ever held it.`,
          `Source dry listed pod default/web-b uid uid-b incarnation life-b ${where} as running since @.`,
          'It is seen live though the books have nobody there, and is not handed out while it is listed.',
        ),
      )
    expect(await audit.answer(network, '10.0.0.16')).not.toContain('listed')
  })
})

describe('somebody has it', () => {
  test('reserved with a deadline, without one, confirmed', async () => {
    const network = await withAgent()
    const due = await truth.lease(network, A, {
      confirmed: false,
      confirmWithinMs: MINUTE,
      placement: { node: 'n1', boot: 'b1', labels: {} },
    })
    expect(await audit.answer(network, due.address)).toMatch(
      sentence(
        `At @ ${due.address} of pool web is held: lease ${due.leaseId} is RESERVED for ${NAME_OF_A} on node n1 (boot b1) since @, given by test (test), not confirmed yet, which it must be by @.`,
      ),
    )
    const open = await truth.lease(network, B, { confirmed: false })
    expect(await audit.answer(network, open.address)).toMatch(
      sentence('is RESERVED for pod default/web-b', 'it has no deadline, and is held until it is released'),
    )
    await truth.ledger.accept(confirm(open.fencingToken, { network }))
    expect(await audit.answer(network, open.address)).toMatch(
      sentence(`lease ${open.leaseId} is ACTIVE for pod default/web-b`, 'confirmed @.'),
    )
    expect(await chain(network, open.address)).toEqual([
      expect.stringMatching(
        sentence(
          `${open.address} of pool web (lease ${open.leaseId}) was reserved for pod default/web-b`,
          'there is no deadline to confirm.',
        ),
      ),
      expect.stringMatching(sentence('was confirmed for pod default/web-b', 'by test (test).')),
    ])
  })

  test('at a time in the past, and who had it before', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.past(network, 2 * HOUR)
    const next = await truth.lease(network, B, {
      claims: [claim({ pool: 'web', address: lease.address })],
    })
    const [{ at }] = (await truth.rows<{ at: number }>(
      'select at from ipledger.event where network_id = $1 and seq = $2',
      network,
      lease.fencingToken,
    )) as [{ at: number }]
    expect(await audit.answer(network, lease.address, new Date(at))).toMatch(
      sentence(`lease ${lease.leaseId} is ACTIVE for ${NAME_OF_A}`),
    )
    const before = await audit.answer(network, lease.address, new Date(at - 1))
    expect(before).toMatch(sentence('is free, and nobody has ever held it.'))
    const told = await chain(network, lease.address)
    expect(told).toHaveLength(3)
    expect(told[1]).toMatch(sentence(NAME_OF_A, 'was released'))
    expect(told[2]).toMatch(sentence(`lease ${next.leaseId}`, 'was reserved for pod default/web-b'))
    expect(await audit.whoHad(network, lease.address, new Date(at))).toMatchObject([
      {
        address: lease.address,
        lease_id: lease.leaseId,
        pool: 'web',
        owner_name: A.name,
        given_by: 'test',
        ended_as: 'lease.released/test',
      },
    ])
    expect(await audit.whoHad(network, lease.address)).toMatchObject([
      { lease_id: next.leaseId, owner_name: B.name, until: null, ended_as: null },
    ])
  })

  test('adopted, and what its source listed', async () => {
    const network = await withAgent()
    await later(network, times(3, [listedAs('10.0.0.88', A, { node: 'n7', interface: 'eth0' })]), OLD)
    await processSnapshots()
    expect(await audit.answer(network, '10.0.0.88')).toMatch(
      sentence(
        'is held: lease',
        `is ACTIVE for ${NAME_OF_A} on node n7`,
        'given by job:process-snapshots (SIGHTED)',
        `Source agent listed ${NAME_OF_A} there as running on node n7 since @.`,
      ),
    )
    expect((await chain(network, '10.0.0.88')).at(-1)).toMatch(
      sentence(
        'was adopted for',
        `since nobody held it: source agent listed ${NAME_OF_A} at 10.0.0.88 as running on node n7`,
        'in snapshot 3, begun @ at head',
      ),
    )
  })

  test('and its source says so since it was found stuck', async () => {
    const network = await truth.network()
    const lease = await truth.lease(network, A)
    await truth.source(network, 'agent')
    await truth.past(network, 2 * HOUR)
    await later(network, times(6, []))
    await truth.run(observeStuck)
    expect(await audit.answer(network, lease.address)).toContain('It waits: NEVER_SIGHTED, observed')
    await truth.watch(network, 'agent', [[listedAs(lease.address, A)]], { endedAgo: 0 })
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence(
        'Source agent listed pod default/web-a uid uid-a incarnation life-a there as running since @.',
      ),
    )
    expect(await audit.answer(network, lease.address)).not.toContain('It waits')
    await truth.run(observeStuck)
    expect(await audit.answer(network, lease.address)).not.toContain('It waits')
  })

  test('and no longer waits for what was observed before its last event', async () => {
    const network = await truth.network()
    await truth.source(network, 'agent')
    const lease = await truth.lease(network, A)
    await truth.ledger.accept(quarantine({ token: lease.fencingToken }, { network }))
    await truth.run(observeStuck)
    expect(await audit.answer(network, lease.address)).toContain('It waits: NO_EXIT, observed')
    const { version } = (
      await truth.rows<{ version: number }>(
        'select version from ipledger.lease where network_id = $1',
        network,
      )
    )[0]!
    await truth.ledger.accept(reap(lease.fencingToken, version, { network }))
    expect(await audit.answer(network, lease.address)).not.toContain('It waits')
  })

  test('asked after in the spelling of IPv6', async () => {
    const network = await truth.network()
    const lease = await truth.lease(network, A)
    const mapped = `::ffff:${lease.address}`
    expect(await audit.whoHad(network, mapped)).toMatchObject([{ lease_id: lease.leaseId }])
    expect(await audit.whoHad(network, `${mapped}/120`)).toMatchObject([{ lease_id: lease.leaseId }])
    expect(await audit.answer(network, mapped)).toMatch(sentence(`At @ ${lease.address} of pool web is held`))
    expect(await audit.ask('select lease_id from address_history($1, $2)', network, mapped)).toEqual([
      { lease_id: lease.leaseId },
    ])
  })

  test('in a block: the block is named', async () => {
    const network = await truth.network({ prefixLength: 28 })
    const block = await truth.lease(network, A)
    expect(block.address).toBe('10.0.0.0')
    expect(await audit.answer(network, '10.0.0.9')).toMatch(
      sentence(`10.0.0.9 of pool web is held: block 10.0.0.0/28, lease ${block.leaseId} is ACTIVE`),
    )
    expect(await audit.whoHad(network, '10.0.0.9')).toMatchObject([
      { address: '10.0.0.0/28', lease_id: block.leaseId },
    ])
    expect(await audit.whoHad(network, '10.0.0.8/30')).toMatchObject([{ address: '10.0.0.0/28' }])
    expect(await audit.whoHad(network, '10.0.0.0/24')).toMatchObject([{ address: '10.0.0.0/28' }])
    expect(await audit.whoHad(network, '10.0.0.16')).toEqual([])
  })
})

describe('set aside: the reason, what it rests on, and the way out', () => {
  test('SUPERSEDED', async () => {
    const network = await withAgent()
    const old = await truth.lease(network, A)
    await truth.lease(network, workload('a', { incarnation: 'life-2' }))
    expect(await audit.answer(network, old.address)).toMatch(
      sentence(
        `is set aside: lease ${old.leaseId} is QUARANTINED as SUPERSEDED since @ by test, held for ${NAME_OF_A}`,
        'It ends when a Release by its holder confirms the removal',
      ),
    )
    expect((await chain(network, old.address)).at(-1)).toMatch(
      sentence(
        'was set aside as SUPERSEDED',
        'pod default/web-a uid uid-a incarnation life-2 (eth0) reserved under its name',
      ),
    )
  })

  test('REMOVAL_UNCONFIRMED', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await truth.ledger.accept(release(lease.fencingToken, { network, removalConfirmed: false }))
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence(
        'QUARANTINED as REMOVAL_UNCONFIRMED since @ by test',
        'removal was not confirmed',
        'It ends when',
      ),
    )
  })

  test('CONFLICT: both, and what is seen now; then without its holder', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const own = listedAs(lease.address, A)
    const other = listedAs(lease.address, B)
    await later(network, times(3, [own]), OLD)
    await later(network, times(1, [own, other]))
    await processSnapshots()
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence(
        `lease ${lease.leaseId} is QUARANTINED as CONFLICT since @ by agent, held for ${NAME_OF_A}`,
        'show its holder and nobody else, who then has it, or on proof that nobody is there, or by an operator: Reap',
        'Source agent listed pod default/web-b',
      ),
    )
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        `was set aside as CONFLICT by job:process-snapshots (SIGHTED), held for ${NAME_OF_A}: the books have ${NAME_OF_A}, and source agent listed pod default/web-b`,
        `at ${lease.address} as running in snapshot`,
      ),
    )
    const [conflict] = await audit.ask<{
      what: string
      seen_by: string[]
      parties: { role: string; owner: string; source: string | null }[]
    }>('select * from conflicts where network = $1', network)
    expect(conflict!.seen_by).toEqual(['agent'])
    expect(conflict!.parties.map(({ role, owner, source }) => `${role} ${owner} ${source}`)).toEqual([
      'found pod default/web-b uid uid-b incarnation life-b agent',
      `holder ${NAME_OF_A} null`,
      'seen pod default/web-a uid uid-a incarnation life-a agent',
      'seen pod default/web-b uid uid-b incarnation life-b agent',
    ])
    expect(conflict!.what).toMatch(
      sentence(
        `${lease.address} (lease ${lease.leaseId}) is in use by more than one since @: the books have ${NAME_OF_A}`,
        'Seen live there by agent.',
      ),
    )
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(`stays in quarantine as CONFLICT without a holder, since ${NAME_OF_A} released it`),
    )
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence('held for nobody known', 'It ends on proof that nobody is there'),
    )
  })

  test('a CONFLICT that is over: given back, and on what', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const own = listedAs(lease.address, A)
    await later(network, times(3, [own]), OLD)
    await later(network, times(1, [own, listedAs(lease.address, B)]))
    await processSnapshots()
    await later(network, times(3, [own]))
    await clear()
    const { asks } = await later(network, [[own]])
    await truth.answer(network, 'agent', asks, GONE)
    expect(await clear()).toMatchObject({ restored: 1 })
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        `was given back to ${NAME_OF_A} and is ACTIVE; it was in quarantine as CONFLICT; source agent listed ${NAME_OF_A}`,
        'and nobody else',
        'policy: 3 misses, minimum age 300 s',
      ),
    )
  })

  test('RELEASED_BUT_LIVE: with the release', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const entries = [listedAs(lease.address, A)]
    await later(network, times(3, entries))
    await truth.ledger.accept(release(lease.fencingToken, { network }))
    await truth.watch(network, 'agent', [entries], { endedAgo: 0 })
    await processSnapshots()
    expect(await audit.answer(network, lease.address)).toMatch(
      sentence('QUARANTINED as RELEASED_BUT_LIVE', 'which was released or superseded', 'Source agent listed'),
    )
    const told = await chain(network, lease.address)
    expect(told.at(-2)).toMatch(sentence(`(lease ${lease.leaseId})`, 'was released by test'))
    expect(told.at(-1)).toMatch(
      sentence(
        `was set aside as RELEASED_BUT_LIVE by job:process-snapshots (SIGHTED), held for ${NAME_OF_A}: agent sees`,
        'source agent listed',
      ),
    )
  })

  async function found(address: string, of: Owner | null): Promise<string> {
    const network = await withAgent()
    await later(network, times(3, [listedAs(address, of, { interface: 'eth0' })]), OLD)
    await processSnapshots()
    return network
  }

  test('FOREIGN', async () => {
    const network = await found('10.0.0.90', null)
    expect(await audit.answer(network, '10.0.0.90')).toMatch(
      sentence(
        'QUARANTINED as FOREIGN since @ by agent, held for nobody known',
        'of every source that saw somebody there, show nobody',
      ),
    )
  })

  test('SECOND_ADDRESS', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    const lists = [lease.address, '10.0.0.78'].map((address) => listedAs(address, A, { interface: 'eth0' }))
    await later(network, times(3, lists), OLD)
    await processSnapshots()
    expect(await audit.answer(network, '10.0.0.78')).toMatch(
      sentence('QUARANTINED as SECOND_ADDRESS since @ by agent', `which holds ${lease.address}`),
    )
  })

  test('SEEN_BY_CALLER', async () => {
    const network = await withAgent()
    await truth.ledger.accept(
      reserve({ network, owner: A, claims: [claim({ pool: 'web' })], liveAddresses: ['10.0.0.2'] }),
    )
    expect(await audit.answer(network, '10.0.0.2')).toMatch(
      sentence(
        'QUARANTINED as SEEN_BY_CALLER since @ by test, held for nobody known',
        'without such a source',
      ),
    )
    expect((await chain(network, '10.0.0.2')).at(-1)).toMatch(
      sentence(`test saw it live when it reserved for ${NAME_OF_A}`),
    )
  })

  test('OPERATOR, of a free address and of a held one', async () => {
    const network = await withAgent()
    await truth.ledger.accept(quarantine({ address: '10.0.0.99' }, { network, why: 'cable swapped' }))
    expect(await audit.answer(network, '10.0.0.99')).toMatch(
      sentence(
        'QUARANTINED as OPERATOR since @ by test, held for nobody known (cable swapped).',
        'by an operator only',
      ),
    )
  })
})

describe('taken back: what it rested on', () => {
  test('PROVEN_ABSENT: snapshots, heads, the answer, the policy', async () => {
    const network = await withAgent({ node: '' })
    const lease = await truth.lease(network, A)
    await truth.past(network, OLD)
    await truth.watch(network, 'agent', seenThenMissed([listedAs(lease.address, A)], 3))
    await verifySuspects()
    await truth.past(network, INTERVAL)
    const { asks } = await truth.watch(network, 'agent', [[]], { endedAgo: 0 })
    await truth.answer(network, 'agent', asks, GONE)
    expect(await verifySuspects()).toMatchObject({ reaped: 1 })
    const head = lease.version
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        `(lease ${lease.leaseId}), held for ${NAME_OF_A}, was reaped by job:verify-suspects (PROVEN_ABSENT): source agent, which had seen it, missed ${NAME_OF_A} in 4 complete snapshots (numbers 4, 5, 6, 7, begun at heads ${head}, ${head}, ${head}, ${head}, the last @); asked @ it said gone (no such workload); policy: 3 misses, minimum age 300 s`,
        'the address cools until @.',
      ),
    )
    const reaps = await audit.ask(
      `select *, lookup_at is not null as was_asked from reaps(now() - interval '1 day', now()) where network = $1`,
      network,
    )
    expect(reaps).toMatchObject([
      {
        address: lease.address,
        lease_id: lease.leaseId,
        pool: 'web',
        owner_name: A.name,
        cause: 'PROVEN_ABSENT',
        source: 'agent',
        why: 'SIGHTED',
        snapshots: [4, 5, 6, 7],
        heads: [head, head, head, head],
        misses: 4,
        lookup_answer: 'gone',
        lookup_detail: 'no such workload',
        was_asked: true,
        policy: { misses: 3, minimumAgeMs: 300_000 },
      },
    ])
  })

  test('NEVER_CONFIRMED: the deadline and the grace', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A, { confirmed: false, confirmWithinMs: MINUTE })
    await truth.past(network, 10 * MINUTE)
    expect(await truth.run(expireUnconfirmed)).toMatchObject({ reaped: 1 })
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        'was reaped by job:expire-unconfirmed (NEVER_CONFIRMED): it was never confirmed by its deadline @ and 60 s of grace, and nobody had seen it',
      ),
    )
    expect(
      await audit.ask(
        `select cause, source, misses from reaps(now() - interval '1 day', now()) where network = $1`,
        network,
      ),
    ).toEqual([{ cause: 'NEVER_CONFIRMED', source: null, misses: 0 }])
  })

  test('FENCED: who vouched for what', async () => {
    const network = await withAgent({ node: 'n1' })
    const lease = await truth.lease(network, A, { placement: { node: 'n1', boot: 'b1', labels: {} } })
    await truth.past(network, OLD)
    await truth.watch(network, 'agent', times(3, [listedAs(lease.address, A)]), { epoch: 'b1' })
    await truth.past(network, INTERVAL)
    await truth.ledger.accept(fenceNode('n1', 'b1', { network, why: 'powered off' }))
    expect(await verifySuspects()).toMatchObject({ reaped: 1 })
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        'was reaped by job:verify-suspects (FENCED): test vouched @ that boot b1 of node n1 is over (powered off), and it was placed nowhere else',
      ),
    )
  })

  test('PREVIOUS_BOOT: the boots, and the answer of the new one', async () => {
    const network = await withAgent({ node: 'n1', bootEndsAll: true })
    const lease = await truth.lease(network, A, { placement: { node: 'n1', boot: 'b1', labels: {} } })
    await truth.past(network, OLD)
    const entries = [listedAs(lease.address, A)]
    await truth.watch(network, 'agent', times(3, entries), { epoch: 'b1', endedAgo: 3 * INTERVAL })
    await truth.watch(network, 'agent', times(3, []), { epoch: 'b2' })
    await verifySuspects()
    await truth.past(network, INTERVAL)
    const { asks } = await truth.watch(network, 'agent', [[]], { epoch: 'b2', endedAgo: 0 })
    await truth.answer(network, 'agent', asks, GONE, 'b2')
    expect(await verifySuspects()).toMatchObject({ reaped: 1 })
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        'was reaped by job:verify-suspects (PREVIOUS_BOOT): source agent, which had seen it, reports boot b2 of the node since @, which ended all of boot b1, where the lease was placed; asked @ it said gone (no such workload)',
      ),
    )
  })

  test('out of quarantine: the reason it was in', async () => {
    const network = await withAgent()
    const lease = await truth.lease(network, A)
    await later(network, times(3, [listedAs(lease.address, A)]), OLD)
    await truth.ledger.accept(release(lease.fencingToken, { network, removalConfirmed: false }))
    await goneForGood(network)
    expect(await clear()).toMatchObject({ reaped: 1 })
    expect((await chain(network, lease.address)).at(-1)).toMatch(
      sentence(
        'was reaped by job:clear-quarantine (PROVEN_ABSENT)',
        'it was in quarantine as REMOVAL_UNCONFIRMED since @',
      ),
    )
  })
})
