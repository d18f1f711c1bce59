/**
 * What sources see, and what the ledger does about it, on a database: nothing that is seen live is handed out, what is
 * seen is written down at once, and what is proven gone is taken back, by whichever process is asked.
 */
import { afterAll, describe, expect, test, vi } from 'vitest'
import type { Command, Finding, Sight } from '../../src/core/command.ts'
import type { Lease } from '../../src/core/lease.ts'
import { newAbsenceMemory } from '../../src/ledger/absence.ts'
import { type Hints, newHints, weightOf } from '../../src/ledger/anticipate.ts'
import { runBatch } from '../../src/ledger/batch.ts'
import { rebuild } from '../../src/ledger/rebuild.ts'
import { verify } from '../../src/ledger/verify.ts'
import { readEntries } from '../../src/liveness/entries.ts'
import { enableSource, retireSource } from '../../src/liveness/register.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import { connect } from '../../src/postgres/connect.ts'
import {
  allOrNothing,
  claim,
  createPool,
  expire,
  fenceNode,
  owner,
  reapProven,
  release,
  removed,
  reserve,
  restore,
  resumeHold,
  sight,
} from '../support/commands.ts'
import { useTestDatabase, withClient } from '../support/database.ts'
import { createEye, pod, register, settled, useIntake } from '../support/intake.ts'
import { freshNetwork, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { moveToThePast } from '../support/past.ts'
import { foldOf, leaseAt, missing, proofAbout, showing } from '../support/told.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
const other = useLedger({ url: database.serviceUrl })
const intake = useIntake(database.serviceUrl)
const reader = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => reader.end())

const HOUR = 3_600_000
const EPOCH = 'e1'
/** The looks of an eye are some minutes old; they are proven for half of what an address cools. */
const LONG = 1_200_000

type Eye = ReturnType<typeof createEye>

/** A network with one pool, and a source that is enabled and warm. */
async function seenNetwork(pool: Partial<Parameters<typeof createPool>[0]> = {}, source = 'docker') {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: LONG, ...pool }, { network }))
  return { network, eye: await openEye(network, source) }
}

async function openEye(network: string, source: string, node = ''): Promise<Eye> {
  await register(intake, network, source, { node })
  settled(await enableSource(intake.database, { network, id: source, by: 'test' }))
  const eye = createEye(intake, network, source)
  await eye.look([], { node })
  await eye.look([], { node })
  return eye
}

const any = (network: string, name: string, fields: Partial<Parameters<typeof claim>[0]> = {}) =>
  reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a', ...fields })] })
const take = async (network: string, name: string, fields: Partial<Parameters<typeof claim>[0]> = {}) =>
  (await ledger.take(any(network, name, fields))).address

/** Everything of a list, as the job that reads it asks. */
function sightOf(network: string, given: readonly GivenEntry[], fields: Partial<Sight> = {}): Sight {
  const { entries } = readEntries(given, { network, node: '', epoch: EPOCH })
  return sight('docker', {
    network,
    epoch: EPOCH,
    begunAt: Date.now(),
    entries: [...entries.values()].map(({ key: _, ...entry }) => entry),
    ...fields,
  })
}

async function findings(command: Sight): Promise<readonly Finding['because'][]> {
  return (await ledger.accept(command)).findings!.map(({ because }) => because)
}

async function held(network: string, address: string): Promise<Lease> {
  const lease = await leaseAt(reader, network, address)
  if (lease === null) throw new Error(`nobody holds ${address}`)
  return lease
}

const rows = async (table: 'hold' | 'fence', network: string) =>
  (await reader.query(`select t.* from ipledger.${table} t where network_id = $1 order by 2, 3`, [network]))
    .rows

/** How often a batch asked the database; the last time it committed. */
async function tripsOf(network: string, commands: readonly Command[], expected: Partial<Hints> = {}) {
  return withClient(database.serviceUrl, async (client) => {
    // What is read of a connection once is read by a batch of nothing.
    const options = {
      hints: newHints(),
      absence: newAbsenceMemory(),
      setAside: new Set<string>(),
      decides: () => true,
      eras: { commitsAreNeverLost: false, seen: { head: 0 }, onBegun: () => undefined },
    }
    await runBatch(client, network, [], options)
    Object.assign(options.hints, expected)
    const asked = vi.spyOn(client, 'query')
    const result = await runBatch(client, network, commands, options)
    return { result, trips: asked.mock.calls.length }
  })
}

describe('what is sighted is never handed out', () => {
  test('in a pool made later over what was seen', async () => {
    const network = await freshNetwork(ledger)
    const eye = await openEye(network, 'docker')
    await eye.look([{ address: '10.0.0.1' }, pod('10.0.0.2'), pod('10.0.0.4', { state: 'terminal' })])
    await ledger.accept(createPool({ name: 'a', cidr: '10.0.0.0/29', cooldownMs: LONG }, { network }))
    expect([await take(network, 'x'), await take(network, 'y')]).toEqual(['10.0.0.3', '10.0.0.4'])
  })

  test('not in untouched space, however much of it is seen', async () => {
    const { network, eye } = await seenNetwork()
    await eye.look(Array.from({ length: 150 }, (_, index) => ({ address: `10.0.0.${index + 1}` })))
    expect(await take(network, 'x')).toBe('10.0.0.151')
    const crowd = Array.from({ length: 20 }, (_, index) => any(network, `c${index}`))
    const taken = await Promise.all(crowd.map((one) => ledger.take(one)))
    expect(taken.map(({ address }) => address)).toEqual(crowd.map((_, index) => `10.0.0.${152 + index}`))
  })

  test('by a source in dry run neither; of one that is retired nothing counts', async () => {
    const { network } = await seenNetwork()
    await register(intake, network, 'dry')
    await createEye(intake, network, 'dry').look([{ address: '10.0.0.1' }])
    expect(await take(network, 'x')).toBe('10.0.0.2')
    settled(await retireSource(intake.database, { network, id: 'dry', by: 'test' }))
    expect(await take(network, 'y', { address: '10.0.0.1' })).toBe('10.0.0.1')
  })

  test('what is seen of holders costs no trip', async () => {
    const { network, eye } = await seenNetwork()
    await ledger.accept(
      allOrNothing(
        Array.from({ length: 150 }, (_, i) => any(network, `h${i}`)),
        { network },
      ),
    )
    await eye.look(Array.from({ length: 150 }, (_, i) => pod(`10.0.0.${i + 1}`)))
    const { result, trips } = await tripsOf(network, [any(network, 'x'), any(network, 'y')])
    expect(result).toMatchObject({ kind: 'committed', outcomes: [{ ok: true }, { ok: true }] })
    expect(trips, 'one to read, one to write').toBe(2)
  })

  test('nor a released address, unless it was seen only before its release', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/29' })
    const leases = await Promise.all(Array.from({ length: 6 }, (_, i) => ledger.take(any(network, `h${i}`))))
    await eye.look(leases.map(({ address }) => pod(address)))
    for (const { fencingToken } of leases.slice(0, 4)) await ledger.take(release(fencingToken, { network }))
    // .2 and .3 are still in use; .1 and .4 are not listed any more.
    await eye.look(['10.0.0.2', '10.0.0.3', '10.0.0.5', '10.0.0.6'].map((address) => pod(address)))
    await moveToThePast(database, HOUR, network)
    const { trips } = await tripsOf(network, [any(network, 'x')])
    expect(trips, 'what is seen of released addresses comes with them').toBe(2)
    expect((await held(network, '10.0.0.1')).owner!.name).toBe('x')
    expect(await take(network, 'y')).toBe('10.0.0.4')
    const refused = await ledger.refuse(any(network, 'z'), 'POOL_EXHAUSTED')
    expect(refused.metadata.seenLive).toBe('2')
  })

  test('not by a batch either that expected no source; it takes a trip more', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/28' })
    const leases = await Promise.all(Array.from({ length: 10 }, (_, i) => ledger.take(any(network, `h${i}`))))
    for (const { fencingToken } of leases.slice(0, 8)) await ledger.take(release(fencingToken, { network }))
    // Four in untouched space, and half of the released ones.
    const seen = [11, 12, 13, 14, 1, 3, 5, 7]
    await eye.look(seen.map((last) => pod(`10.0.0.${last}`)))
    await moveToThePast(database, HOUR, network)
    const blind = { watched: false }
    const crowd = [any(network, 'x'), any(network, 'y'), any(network, 'z', { address: '10.0.0.8' })]
    const { result, trips } = await tripsOf(network, crowd, blind)
    const outcomes = result.kind === 'committed' ? result.outcomes : []
    const addresses = outcomes.map((one) => (one?.ok ? one.answer.leases[0]!.address : one))
    expect(addresses).toEqual(['10.0.0.2', '10.0.0.4', '10.0.0.8'])
    expect(trips).toBeLessThan(7)
    const stayed = await tripsOf(network, [any(network, 'last'), any(network, 'none')], blind)
    const [last, none] = stayed.result.kind === 'committed' ? stayed.result.outcomes : []
    expect(last).toMatchObject({ ok: true, answer: { leases: [{ address: '10.0.0.6' }] } })
    expect(none).toMatchObject({
      ok: false,
      refusal: { reason: 'POOL_EXHAUSTED', metadata: { seenLive: '8' } },
    })
  })

  test('of a list from before the release, its holder is not held against the address, and everybody else is', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/29' })
    const who = (index: number) => owner({ name: `h${index}`, uid: `u${index}` })
    const leases = await Promise.all(
      Array.from({ length: 6 }, (_, i) =>
        ledger.take(reserve({ network, owner: who(i + 1), claims: [claim({ pool: 'a' })] })),
      ),
    )
    const own = (last: number) => pod(`10.0.0.${last}`, { name: `h${last}`, uid: `u${last}` })
    await eye.look([
      own(1),
      pod('10.0.0.2'),
      pod('10.0.0.3', { node: 'n1', boot: 'b1' }),
      own(4),
      own(5),
      own(6),
    ])
    for (const index of [0, 2, 1]) await ledger.take(release(leases[index]!.fencingToken, { network }))
    await moveToThePast(database, HOUR, network)
    const { trips } = await tripsOf(network, [any(network, 'x')])
    expect((await held(network, '10.0.0.1')).owner!.name).toBe('x')
    expect(trips, 'what refutes a list comes with it').toBe(2)
    expect((await ledger.refuse(any(network, 'y'), 'POOL_EXHAUSTED')).metadata.seenLive).toBe('2')
    const named = any(network, 'y', { address: '10.0.0.2' })
    expect((await ledger.refuse(named, 'ADDRESS_QUARANTINED')).metadata.seenBy).toBe('docker')
    // The ways out: a fence of the boot, or the end of the source.
    await ledger.accept(fenceNode('n1', 'b1', { network }))
    expect(await take(network, 'y')).toBe('10.0.0.3')
    await ledger.refuse(any(network, 'z'), 'POOL_EXHAUSTED')
    settled(await retireSource(intake.database, { network, id: 'docker', by: 'test' }))
    expect(await take(network, 'z')).toBe('10.0.0.2')
  })

  test('nor an address by name, but for whom it is seen', async () => {
    const { network, eye } = await seenNetwork()
    await eye.look([pod('10.0.0.7'), { address: '10.0.0.8' }])
    const refused = await ledger.refuse(any(network, 'x', { address: '10.0.0.7' }), 'ADDRESS_QUARANTINED')
    expect(refused.metadata.seenBy).toBe('docker')
    await ledger.refuse(any(network, 'x', { address: '10.0.0.8' }), 'ADDRESS_QUARANTINED')
    const itself = owner({ name: 'pod-10.0.0.7', uid: 'uid-10.0.0.7' })
    const own = reserve({ network, owner: itself, claims: [claim({ pool: 'a', address: '10.0.0.7' })] })
    expect((await ledger.take(own)).address).toBe('10.0.0.7')
    const { trips } = await tripsOf(network, [any(network, 'x', { address: '10.0.0.9' })])
    expect(trips).toBe(2)
  })

  test('nor the previous address', async () => {
    const { network, eye } = await seenNetwork()
    const mine = owner({ name: 'web', uid: 'u', incarnation: '1' })
    const again = (fields = {}) =>
      reserve({ network, owner: mine, claims: [claim({ pool: 'a', preferPrevious: true })], ...fields })
    const first = await ledger.take(again())
    await ledger.take(release(first.fencingToken, { network }))
    await eye.look([pod('10.0.0.1')])
    expect((await ledger.take(again({ reopen: true }))).address).toBe('10.0.0.2')
  })

  test('nor what a predecessor hands on', async () => {
    const { network, eye } = await seenNetwork()
    const life = (incarnation: string) => owner({ name: 'web', uid: 'u', incarnation })
    const start = (incarnation: string, fields = {}) =>
      ledger.take(
        reserve({
          network,
          owner: life(incarnation),
          claims: [claim({ pool: 'a', preferPrevious: true })],
          ...fields,
        }),
      )
    await start('1')
    await eye.look([pod('10.0.0.1')])
    const handed = await start('2', { supersedes: removed({ incarnation: '1' }) })
    expect(handed.address).toBe('10.0.0.2')
    // Its own is nobody else's.
    await eye.look([{ ...pod('10.0.0.2'), name: 'web', uid: 'u' }])
    const kept = await start('3', { supersedes: removed({ incarnation: '2' }) })
    expect(kept.address).toBe('10.0.0.2')
  })

  test('nor a block with one address in use', async () => {
    const { network, eye } = await seenNetwork({ prefixLength: 28 })
    await eye.look([pod('10.0.0.5'), pod('10.0.0.47')])
    expect([await take(network, 'x'), await take(network, 'y')]).toEqual(['10.0.0.16', '10.0.0.48'])
    await ledger.refuse(any(network, 'z', { address: '10.0.0.32' }), 'ADDRESS_QUARANTINED')
    // Nobody's: whoever is seen in it may be one of many (12.1).
    expect(await findings(sightOf(network, [pod('10.0.0.5')]))).toEqual(['FOREIGN'])
    expect((await held(network, '10.0.0.0')).prefixLength).toBe(28)
  })

  test('nor beyond the caps of quarantines', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/27' })
    const strangers = Array.from({ length: 10 }, (_, i) => ({ address: `10.0.0.${i + 1}` }))
    await eye.look(strangers)
    const said = await findings(sightOf(network, strangers))
    expect(said).toEqual([...Array(3).fill('FOREIGN'), ...Array(7).fill('CAPPED')])
    expect(await take(network, 'x')).toBe('10.0.0.11')
    await ledger.refuse(any(network, 'y', { address: '10.0.0.9' }), 'ADDRESS_QUARANTINED')
    await expectPartition(reader, network)
  })

  test('nor at all from a STRICT pool whose sources are not fresh', async () => {
    const network = await freshNetwork(ledger)
    await ledger.accept(
      createPool({ name: 'a', cidr: '10.0.0.0/24', cooldownMs: LONG, liveness: 'STRICT' }, { network }),
    )
    await ledger.refuse(any(network, 'x'), 'LIVENESS_STALE')
    const eye = await openEye(network, 'docker')
    for (let at = 0; at < 7; at += 1) await eye.look([])
    expect(await take(network, 'x')).toBe('10.0.0.1')
    await register(intake, network, 'agent', { node: 'n9' })
    settled(await enableSource(intake.database, { network, id: 'agent', by: 'test' }))
    const refused = await ledger.refuse(any(network, 'y'), 'LIVENESS_STALE')
    expect(refused.metadata.sources).toBe('agent')
    const agent = createEye(intake, network, 'agent')
    await agent.look([], { node: 'n9' })
    // The list of a start may be empty because nothing was put back into it yet (7.1, cilium#9888).
    expect((await ledger.refuse(any(network, 'y'), 'LIVENESS_STALE')).metadata.sources).toBe('agent')
    await agent.look([], { node: 'n9' })
    // Once it is known to be strict, what that asks comes with the rest.
    expect(await take(network, 'y')).toBe('10.0.0.2')
  })

  test('a fence of the same batch ends the wait for its node', async () => {
    const { network, eye } = await seenNetwork({ liveness: 'STRICT' })
    for (let at = 0; at < 7; at += 1) await eye.look([])
    await register(intake, network, 'agent', { node: 'n9' })
    settled(await enableSource(intake.database, { network, id: 'agent', by: 'test' }))
    await createEye(intake, network, 'agent').look([], { node: 'n9', complete: false })
    const batch = [any(network, 'x'), fenceNode('n9', EPOCH, { network }), any(network, 'y')]
    const { result, trips } = await tripsOf(network, batch, { strict: new Set(['a']) })
    expect(result).toMatchObject({
      outcomes: [{ refusal: { reason: 'LIVENESS_STALE' } }, { ok: true }, { ok: true }],
    })
    expect(trips).toBe(3)
  })

  test('what is released rests for two reports of the slowest source', async () => {
    const { network } = await seenNetwork()
    await register(intake, network, 'slow', { intervalMs: 900_000 })
    const { fencingToken } = await ledger.take(any(network, 'x'))
    const [ended] = await ledger.leases(release(fencingToken, { network }))
    expect(ended!.availableAt! - ended!.endedAt!).toBe(1_800_000)
  })
})

describe('what is sighted is written down', () => {
  test('a reservation is confirmed, in one trip to read and one to write', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/22' })
    const who = (index: number) => owner({ name: `default/w${index}`, uid: `u${index}` })
    const leases = await Promise.all(
      Array.from({ length: 500 }, (_, i) =>
        ledger.take(reserve({ network, owner: who(i), claims: [claim({ pool: 'a' })] })),
      ),
    )
    const given = leases.map(({ address, owner: of }) => pod(address, { name: of!.name, uid: of!.uid }))
    await eye.look(given)
    const { result, trips } = await tripsOf(network, [sightOf(network, given)])
    expect(result).toMatchObject({ kind: 'committed', outcomes: [{ ok: true }] })
    expect(trips).toBe(2)
    const { rows: states } = await reader.query(
      'select state, count(*) as leases from ipledger.lease where network_id = $1 group by 1',
      [network],
    )
    expect(states).toEqual([{ state: 'ACTIVE', leases: 500 }])
  })

  test('five hundred that nobody booked are adopted in one trip more', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/22' })
    const given = Array.from({ length: 500 }, (_, i) =>
      pod(`10.0.${(i + 1) >> 8}.${(i + 1) & 255}`, {
        interface: i % 2 === 0 ? 'eth0' : '',
        node: 'n1',
        boot: 'b1',
      }),
    )
    await eye.look(given)
    const { result, trips } = await tripsOf(network, [sightOf(network, given)])
    expect(result).toMatchObject({ kind: 'committed' })
    const [outcome] = result.kind === 'committed' ? result.outcomes : []
    const said = outcome?.ok ? outcome.answer.findings!.map(({ because }) => because) : []
    expect(new Set(said)).toEqual(new Set(['ADOPTED']))
    expect(trips).toBe(3)
    await expectPartition(reader, network)
    // Seen again, they are as booked; what is not newer than the books says nothing.
    expect(new Set(await findings(sightOf(network, given)))).toEqual(new Set(['OLDER_THAN_THE_BOOKS']))
    await eye.look(given)
    expect(new Set(await findings(sightOf(network, given)))).toEqual(new Set(['AS_BOOKED']))
  })

  test('what is free and seen for whom it cannot be is set aside, what is held by another is a conflict', async () => {
    const { network, eye } = await seenNetwork()
    const life = owner({ name: 'gone', uid: 'gone', incarnation: '1' })
    const over = await ledger.take(reserve({ network, owner: life, claims: [claim({ pool: 'a' })] }))
    await ledger.take(release(over.fencingToken, { network }))
    const web = owner({ name: 'web', uid: 'web' })
    await ledger.take(reserve({ network, owner: web, claims: [claim({ pool: 'a', address: '10.0.0.20' })] }))
    const given: readonly GivenEntry[] = [
      { address: '10.0.0.1', kind: 'pod', name: 'gone', uid: 'gone', incarnation: '1', interface: 'eth0' },
      { address: '10.0.0.3' },
      { address: '10.0.0.4', kind: 'pod', name: 'web', uid: 'web', interface: 'eth0' },
      { address: '10.0.0.20', kind: 'pod', name: 'thief', uid: 'thief', interface: 'eth0' },
      { address: '10.0.0.5', kind: 'pod', name: 'new', uid: 'new' },
      { address: '10.0.0.0', kind: 'pod', name: 'odd', uid: 'odd' },
      { address: '172.16.0.1', kind: 'pod', name: 'far', uid: 'far' },
    ]
    await eye.look(given)
    const said = await ledger.accept(sightOf(network, given))
    expect(said.findings!.map(({ address, because }) => `${address} ${because}`)).toEqual([
      '10.0.0.1 RELEASED_BUT_LIVE',
      '10.0.0.3 FOREIGN',
      '10.0.0.4 SECOND_ADDRESS',
      '10.0.0.20 CONFLICT',
      '10.0.0.5 ADOPTED',
      '10.0.0.0 EXCLUDED',
      '172.16.0.1 OUTSIDE',
    ])
    const conflict = await held(network, '10.0.0.20')
    expect(conflict.quarantine).toMatchObject({ reason: 'CONFLICT', by: 'docker' })
    expect((await held(network, '10.0.0.5')).owner!.interface).toBe('?10.0.0.5')
    await expectPartition(reader, network)
  })

  test('two Reserves and what was seen between them, in one batch', async () => {
    const { network, eye } = await seenNetwork()
    const given = [pod('10.0.0.1'), pod('10.0.0.3', { interface: 'eth0' })]
    await eye.look(given)
    // The second names the owner that was just adopted.
    const known = owner({ name: 'pod-10.0.0.3', uid: 'uid-10.0.0.3' })
    const { result } = await tripsOf(network, [
      any(network, 'x'),
      sightOf(network, given),
      reserve({ network, owner: known, claims: [claim({ pool: 'a' })] }),
      any(network, 'y'),
    ])
    const outcomes = result.kind === 'committed' ? result.outcomes : []
    const addresses = outcomes.map((one) => (one?.ok ? one.answer.leases.map(({ address }) => address) : one))
    expect(addresses).toEqual([['10.0.0.2'], ['10.0.0.1', '10.0.0.3'], ['10.0.0.3'], ['10.0.0.4']])
    await expectPartition(reader, network)
    await expectVerified(database, { network })
  })

  test('what a batch quarantines counts for the sources of its next commands', async () => {
    const { network, eye } = await seenNetwork({ cidr: '10.0.0.0/20' })
    const strangers = Array.from({ length: 70 }, (_, i) => ({ address: `10.0.0.${i + 1}` }))
    await eye.look(strangers)
    const { result } = await tripsOf(
      network,
      [strangers.slice(0, 40), strangers.slice(40)].map((some) => sightOf(network, some)),
    )
    const outcomes = result.kind === 'committed' ? result.outcomes : []
    const said = outcomes.flatMap((one) =>
      one?.ok ? one.answer.findings!.map(({ because }) => because) : [],
    )
    expect(said.filter((because) => because === 'FOREIGN')).toHaveLength(64)
    expect(said.filter((because) => because === 'CAPPED')).toHaveLength(6)
  })

  test('a reservation that was seen does not expire', async () => {
    const { network, eye } = await seenNetwork()
    const within = { confirmWithinMs: 1_000 }
    const one = await ledger.take({ ...any(network, 'x'), ...within })
    const two = await ledger.take({ ...any(network, 'y'), ...within })
    await eye.look([{ address: one.address }])
    await moveToThePast(database, HOUR, network)
    await ledger.refuse(expire(one.fencingToken, one.version, { network }), 'ILLEGAL_STATE')
    await ledger.accept(expire(two.fencingToken, two.version, { network }))
  })

  test('what is seen of many leases that may have expired is read together', async () => {
    const { network } = await seenNetwork()
    const reserved = await Promise.all(
      Array.from({ length: 50 }, (_, i) => ledger.take({ ...any(network, `x${i}`), confirmWithinMs: 1_000 })),
    )
    await moveToThePast(database, HOUR, network)
    const due = reserved.map((one) => expire(one.fencingToken, one.version, { network }))
    const { result, trips } = await tripsOf(network, due)
    expect(result).toMatchObject({ kind: 'committed', outcomes: due.map(() => ({ ok: true })) })
    expect(trips).toBe(3)
  })

  test('a sight weighs as much as it lists', () => {
    const given = Array.from({ length: 300 }, (_, i) => pod(`10.0.${i >> 8}.${i & 255}`))
    expect(weightOf(sightOf('n', given))).toBe(300)
  })
})

describe('what is proven gone', () => {
  /** Leases that were seen, and are no more; changed long ago. */
  async function forgotten(count: number) {
    const { network, eye } = await seenNetwork()
    const given = Array.from({ length: count }, (_, i) => pod(`10.0.0.${i + 1}`, { interface: 'eth0' }))
    await eye.look(given)
    await ledger.accept(sightOf(network, given))
    await moveToThePast(database, 2 * HOUR, network)
    await eye.look([])
    const prove = async (address: string, fields: Parameters<typeof proofAbout>[2] = {}) => {
      const lease = await held(network, address)
      const { rows: seen } = await reader.query<{ at: number }>(
        `select max(coalesce(last_seen_at, appeared_at)) as at from ipledger.sighting where network_id = $1 and address = $2`,
        [network, address],
      )
      const witness = missing(lease, Date.now(), { source: 'docker', epoch: EPOCH })
      return proofAbout(lease, [witness], { lastSightedAt: seen[0]!.at, ...fields })
    }
    return { network, eye, given, prove }
  }

  test('is taken back, with the proof in the log; in one trip to read and one to write', async () => {
    const { network, prove } = await forgotten(2)
    const { result, trips } = await tripsOf(network, [reapProven(await prove('10.0.0.1'), { network })])
    expect(result).toMatchObject({ kind: 'committed', outcomes: [{ ok: true }] })
    expect(trips).toBe(2)
    expect(await leaseAt(reader, network, '10.0.0.1')).toBeNull()
    const event = (
      await reader.query(
        'select cause, evidence from ipledger.event where network_id = $1 order by seq desc limit 1',
        [network],
      )
    ).rows[0]
    expect(event).toMatchObject({ cause: 'PROVEN_ABSENT', evidence: { sources: ['docker'] } })
  })

  test('is not, if anybody has seen it since', async () => {
    const { network, eye, prove } = await forgotten(2)
    const [one, two] = [await prove('10.0.0.1'), await prove('10.0.0.2')]
    // One is back, the other was there again for a moment.
    await eye.look([pod('10.0.0.1'), { address: '10.0.0.2' }])
    await eye.look([pod('10.0.0.1')])
    const refused = await ledger.refuse(reapProven(one, { network }), 'ILLEGAL_STATE')
    expect(refused.metadata.seenBy).toBe('docker')
    await ledger.refuse(reapProven(two, { network }), 'VERSION_MISMATCH')
    await ledger.accept(reapProven(await prove('10.0.0.2'), { network }))
  })

  test('is not, if its source began anew, is not enabled or does not exist', async () => {
    const { network, eye, prove } = await forgotten(1)
    const proof = await prove('10.0.0.1')
    const strange = { ...proof, sources: proof.sources.map((one) => ({ ...one, source: 'nobody' })) }
    await ledger.refuse(reapProven(strange, { network }), 'VERSION_MISMATCH')
    await eye.look([], { epoch: 'e2' })
    const refused = await ledger.refuse(reapProven(proof, { network }), 'VERSION_MISMATCH')
    expect(refused.message).toContain('epoch e2')
  })

  test('a mass of it is held, by every process, until an operator resumes', async () => {
    const { network, prove } = await forgotten(10)
    const reaps = async (from: number, to: number) => {
      const proofs = []
      for (let last = from; last <= to; last += 1) proofs.push(await prove(`10.0.0.${last}`))
      return proofs.map((proof) => reapProven(proof, { network }))
    }
    const [first, second] = await reaps(1, 2)
    await ledger.accept(first!)
    await other.accept(second!)
    // The third is within the caps, the fourth of ten is not: one batch.
    const { result } = await tripsOf(network, await reaps(3, 5))
    const outcomes = result.kind === 'committed' ? result.outcomes : []
    expect(outcomes.map((one) => (one?.ok ? 'reaped' : one?.refusal.metadata.held))).toEqual([
      'reaped',
      network,
      network,
    ])
    const [everything, source] = await rows('hold', network)
    expect(everything).toMatchObject({ source_id: '', reaps: 4, leases: 10 })
    expect(source).toMatchObject({ source_id: 'docker', reaps: 4 })
    const [fourth] = await reaps(4, 4)
    for (const one of [ledger, other])
      expect((await one.refuse(fourth!, 'ILLEGAL_STATE')).metadata.held).toBe(network)
    const { holds } = await foldOf(reader, network)
    expect([...holds.keys()].sort()).toEqual(['', 'docker'])

    await ledger.accept(resumeHold(null, { network }))
    expect((await rows('hold', network)).map((row) => row.source_id)).toEqual(['docker'])
    expect((await other.refuse(fourth!, 'ILLEGAL_STATE')).metadata.held).toBe('docker')
    // Resumed in the batch that reaps.
    const resumed = await tripsOf(network, [resumeHold('docker', { network }), ...(await reaps(4, 6))])
    expect(resumed.result).toMatchObject({
      outcomes: [{ ok: true }, { ok: true }, { ok: true }, { ok: true }],
    })
    expect(await rows('hold', network)).toEqual([])
    // Counted from then on.
    await ledger.refuse((await reaps(7, 7))[0]!, 'ILLEGAL_STATE')
    await expectVerified(database, { network })
  })

  test('the caps are of an hour, whatever a process remembers', async () => {
    const { network, prove } = await forgotten(10)
    for (const last of [1, 2, 3]) await ledger.accept(reapProven(await prove(`10.0.0.${last}`), { network }))
    await moveToThePast(database, HOUR, network)
    for (const last of [4, 5]) await ledger.accept(reapProven(await prove(`10.0.0.${last}`), { network }))
    await other.accept(reapProven(await prove('10.0.0.6'), { network }))
    await ledger.refuse(reapProven(await prove('10.0.0.7'), { network }), 'ILLEGAL_STATE')
  })

  test('a conflict of which only the holder is left is over', async () => {
    const { network, eye, given } = await forgotten(1)
    await eye.look([{ ...pod('10.0.0.1'), name: 'thief', uid: 'thief' }])
    expect(await findings(sightOf(network, [{ ...pod('10.0.0.1'), name: 'thief', uid: 'thief' }]))).toEqual([
      'CONFLICT',
    ])
    const conflict = await held(network, '10.0.0.1')
    await eye.look(given)
    const witness = showing(conflict, Date.now(), { source: 'docker', epoch: EPOCH })
    const proof = proofAbout(conflict, [witness])
    const { result, trips } = await tripsOf(network, [restore(proof, { network })])
    expect(result).toMatchObject({ outcomes: [{ ok: true }] })
    expect(trips).toBe(2)
    expect((await held(network, '10.0.0.1')).state).toBe('ACTIVE')
  })

  test('a fence is stored, said again it is of all leases up to then', async () => {
    const network = await freshNetwork(ledger)
    await ledger.accept(fenceNode('n1', 'b1', { network }))
    const [before] = await rows('fence', network)
    expect(before).toMatchObject({ node: 'n1', boot: 'b1', why: 'powered off', fenced_by: 'test' })
    // Twice in one batch.
    await tripsOf(network, [
      fenceNode('n1', 'b1', { network }),
      fenceNode('n1', 'b1', { network, why: 'burnt' }),
    ])
    const [after, ...more] = await rows('fence', network)
    expect(more).toEqual([])
    expect(after).toMatchObject({ why: 'burnt', fenced_seq: before.fenced_seq + 2 })
    await expectVerified(database, { network })
  })
})

describe('holds and fences are projections', () => {
  async function said() {
    const network = await freshNetwork(ledger)
    await ledger.accept(fenceNode('n1', 'b1', { network }))
    await ledger.accept(fenceNode('n2', 'b7', { network }))
    const hold = (seq: number, source: string, type = 'reconcile.held') =>
      reader.query(
        `insert into ipledger.event (network_id, seq, type, at, actor, cause, evidence)
         values ($1, $2, $3, date_trunc('milliseconds', clock_timestamp()), 'test', 'test', $4)`,
        [network, seq, type, { source, why: 'too many', reaps: 4, leases: 10, leaseId: 'x' }],
      )
    const { rows: heads } = await reader.query(
      'select max(seq) as head from ipledger.event where network_id = $1',
      [network],
    )
    const { head } = heads[0]
    await hold(head + 1, '')
    await hold(head + 2, 'docker')
    await hold(head + 3, 'over')
    await hold(head + 4, 'over', 'reconcile.resumed')
    await rebuild({ adminUrl: database.adminUrl, network })
    return { network, stored: { holds: await rows('hold', network), fences: await rows('fence', network) } }
  }
  const stored = async (network: string) => ({
    holds: await rows('hold', network),
    fences: await rows('fence', network),
  })
  const codes = async (network: string) => {
    const { networks } = await verify({ url: database.serviceUrl, network, full: true })
    return networks[0]!.findings.map(({ what }) => what)
  }

  test('rebuilt from nothing they are what they were', async () => {
    const { network, stored: before } = await said()
    expect(before.holds.map((row) => row.source_id)).toEqual(['', 'docker'])
    await expectVerified(database, { network })
    for (const table of ['hold', 'fence'])
      await reader.query(`delete from ipledger.${table} where network_id = $1`, [network])
    expect((await codes(network)).sort()).toEqual([
      'FENCE_MISSING',
      'FENCE_MISSING',
      'HOLD_MISSING',
      'HOLD_MISSING',
    ])
    const { counts } = await rebuild({ adminUrl: database.adminUrl, network })
    expect(counts).toMatchObject({ hold: 2, fence: 2 })
    expect(await stored(network)).toEqual(before)
    expect(await rebuild({ adminUrl: database.adminUrl, network })).toMatchObject({
      differences: [],
      replaced: 0,
    })
  })

  test('tampered with, they are found and put right', async () => {
    const { network, stored: before } = await said()
    await reader.query(`update ipledger.hold set why = 'nothing' where network_id = $1 and source_id = ''`, [
      network,
    ])
    await reader.query('update ipledger.fence set fenced_seq = 1 where network_id = $1 and node = $2', [
      network,
      'n2',
    ])
    await reader.query(`insert into ipledger.hold values ($1, 'nobody', 1, now(), 'x', 1, 1)`, [network])
    await reader.query(`insert into ipledger.fence values ($1, 'n9', 'b1', 1, now(), 'x', 'x')`, [network])
    expect((await codes(network)).sort()).toEqual([
      'FENCE_DIFFERS',
      'FENCE_UNEXPLAINED',
      'HOLD_DIFFERS',
      'HOLD_UNEXPLAINED',
    ])
    await rebuild({ adminUrl: database.adminUrl, network })
    expect(await stored(network)).toEqual(before)
    expect(await codes(network)).toEqual([])
  })
})

test('the ledgers of this file are in order', () => expectVerified(database))
