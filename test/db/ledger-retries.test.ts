/** Each retry a caller may make, with the lease and the address it must end at (DESIGN §2, "Retries"). */
import { afterAll, expect, test } from 'vitest'
import type { LeaseView, Reserve } from '../../src/core/command.ts'
import { POLICY } from '../../src/core/policy.ts'
import { connect } from '../../src/postgres/connect.ts'
import {
  claim,
  confirmOf,
  createPool,
  deletePool,
  expire,
  owner,
  quarantine,
  release,
  releaseOf,
  removed,
  reserve,
} from '../support/commands.ts'
import { useTestDatabase } from '../support/database.ts'
import { freshNetwork, openTestLedger, useLedger } from '../support/ledger.ts'
import { expectPartition } from '../support/partition.ts'
import { moveToThePast } from '../support/past.ts'
import { expectVerified } from '../support/verified.ts'

const database = await useTestDatabase()
const ledger = useLedger({ url: database.serviceUrl })
/** Another process on the same database. */
const other = useLedger({ url: database.serviceUrl })
const admin = await connect({ url: database.adminUrl, applicationName: 'test' })
afterAll(() => admin.end())

const DAY_MS = 24 * 3_600_000

async function freshPool(cidr = '10.0.0.0/24', cooldownMs = 0): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(createPool({ name: 'a', cidr, cooldownMs }, { network }))
  return network
}

function any(network: string, name: string, fields: Partial<Reserve> = {}): Reserve {
  return reserve({ network, owner: owner({ name }), claims: [claim({ pool: 'a' })], ...fields })
}

function withId(network: string, requestId: string, fields: Partial<Reserve> = {}): Reserve {
  return any(network, 'web', { requestId, fingerprint: 'content', ...fields })
}

async function head(network: string): Promise<number> {
  const { rows } = await admin.query<{ head: number }>(
    'select max(seq) as head from ipledger.event where network_id = $1',
    [network],
  )
  return rows[0]!.head
}

type HeldRow = {
  readonly address: string
  readonly token: number
  readonly owner_name: string
  readonly state: string
}

async function held(network: string): Promise<readonly HeldRow[]> {
  const { rows } = await admin.query<HeldRow>(
    `select host(address) as address, fencing_token as token, owner_name, state from ipledger.lease
     where network_id = $1 order by address`,
    [network],
  )
  return rows
}

function identity({ address, fencingToken, leaseId }: LeaseView) {
  return { address, fencingToken, leaseId }
}

test('the same requestId gets the same answer, from any process, and leaves nothing more', async () => {
  const network = await freshPool()
  const first = await ledger.accept(withId(network, 'r'))
  const at = await head(network)
  for (const process of [ledger, other]) {
    expect(await process.submit(withId(network, 'r'))).toEqual({ ok: true, answer: first, replayed: true })
  }
  const next = openTestLedger({ url: database.serviceUrl })
  expect(await next.submit(withId(network, 'r'))).toEqual({ ok: true, answer: first, replayed: true })
  await next.close()
  expect(await head(network)).toBe(at)
  expect(await held(network)).toHaveLength(1)
})

test('the same requestId a hundred times at once, through two processes: one lease', async () => {
  const network = await freshPool()
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? ledger : other).accept(withId(network, 'r'))),
  )
  expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
  expect(await held(network)).toHaveLength(1)
})

test('the same requestId with other content is refused and changes nothing', async () => {
  const network = await freshPool()
  const lease = await ledger.take(withId(network, 'r'))
  const at = await head(network)
  await ledger.refuse(withId(network, 'r', { fingerprint: 'other' }), 'REQUEST_ID_REUSED')
  await ledger.refuse(
    release(lease.fencingToken, { network, requestId: 'r', fingerprint: 'release' }),
    'REQUEST_ID_REUSED',
  )
  expect(await head(network)).toBe(at)
  expect(await held(network)).toMatchObject([{ address: lease.address, token: lease.fencingToken }])
})

test('the same requestId after its lease has ended and the address has a new holder: lost, never the address', async () => {
  const network = await freshPool('10.0.0.0/30')
  const lease = await ledger.take(withId(network, 'r'))
  await ledger.take(release(lease.fencingToken, { network }))
  const refusal = await ledger.refuse(withId(network, 'r'), 'LEASE_LOST')
  expect(refusal.metadata).toMatchObject({ leaseId: lease.leaseId, state: 'RELEASED' })
  await ledger.take(any(network, 'filler'))
  const heir = await ledger.take(any(network, 'heir'))
  expect(heir.address).toBe(lease.address)
  for (const process of [ledger, other]) {
    expect((await process.refuse(withId(network, 'r'), 'LEASE_LOST')).message).not.toContain(lease.address)
  }
  expect((await held(network)).map((row) => row.owner_name)).toEqual(['heir', 'filler'])
})

test('the same requestId while its lease is quarantined: lost', async () => {
  const network = await freshPool()
  const lease = await ledger.take(withId(network, 'r'))
  await ledger.take(quarantine({ token: lease.fencingToken }, { network }))
  const refusal = await ledger.refuse(withId(network, 'r'), 'LEASE_LOST')
  expect(refusal.metadata).toMatchObject({
    leaseId: lease.leaseId,
    state: 'QUARANTINED',
    quarantineReason: 'OPERATOR',
  })
})

test('a refusal is not remembered: the same requestId may succeed later', async () => {
  const network = await freshPool('10.0.0.0/30')
  const [first] = await Promise.all([ledger.take(any(network, 'x')), ledger.take(any(network, 'y'))])
  await ledger.refuse(withId(network, 'r'), 'POOL_EXHAUSTED')
  await ledger.take(release(first.fencingToken, { network }))
  expect((await ledger.take(withId(network, 'r'))).address).toBe(first.address)
})

test('validateOnly leaves no trace, and no memory of its requestId', async () => {
  const network = await freshPool()
  const at = await head(network)
  const dry = await ledger.take(withId(network, 'r', { validateOnly: true }))
  expect(dry).toMatchObject({ address: '10.0.0.1', leaseId: '' })
  expect(await head(network)).toBe(at)
  expect(await ledger.submit(withId(network, 'r'))).toMatchObject({ ok: true, replayed: false })
})

test('the same attachment gets the lease it has, without an event', async () => {
  const network = await freshPool()
  const lease = await ledger.take(any(network, 'web'))
  const at = await head(network)
  const again = await Promise.all([ledger, other].map((process) => process.take(any(network, 'web'))))
  for (const one of again) expect(one).toMatchObject({ ...identity(lease), reused: true })
  expect(await head(network)).toBe(at)
})

test('the same attachment a hundred times at once, through two processes: one lease', async () => {
  const network = await freshPool()
  const leases = await Promise.all(
    Array.from({ length: 100 }, (_, i) => (i % 2 === 0 ? ledger : other).take(any(network, 'web'))),
  )
  expect(new Set(leases.map((lease) => lease.fencingToken)).size).toBe(1)
  expect(leases.filter((lease) => !lease.reused)).toHaveLength(1)
  expect(await held(network)).toHaveLength(1)
})

test('the same attachment while its lease is quarantined gets a fresh address', async () => {
  const network = await freshPool()
  const lease = await ledger.take(any(network, 'web'))
  await ledger.take(quarantine({ token: lease.fencingToken }, { network }))
  const fresh = await ledger.take(any(network, 'web'))
  expect(fresh).toMatchObject({ address: '10.0.0.2', reused: false })
  expect(await held(network)).toMatchObject([
    { address: lease.address, token: lease.fencingToken, state: 'QUARANTINED' },
    { address: fresh.address, token: fresh.fencingToken, state: 'RESERVED' },
  ])
})

test('released twice: the same answer, and no event', async () => {
  const network = await freshPool()
  const lease = await ledger.take(any(network, 'web'))
  const first = await ledger.take(release(lease.fencingToken, { network }))
  const at = await head(network)
  for (const process of [ledger, other]) {
    expect(await process.take(release(lease.fencingToken, { network }))).toEqual(first)
  }
  expect(await head(network)).toBe(at)
})

test('released by owner twice: the same answer from any process, and no event, however much later', async () => {
  const network = await freshPool()
  await ledger.accept(createPool({ name: 'b', cidr: 'fd00::/120' }, { network }))
  const life = (incarnation: string) => owner({ name: 'web', uid: 'u', incarnation })
  const pair = { claims: [claim({ pool: 'a' }), claim({ pool: 'b' })] }
  await ledger.accept(any(network, 'web', { owner: life('1'), ...pair }))
  const first = await ledger.leases(releaseOf(life('1'), { network }))
  expect(first.map((lease) => [lease.pool, lease.state])).toEqual([
    ['a', 'RELEASED'],
    ['b', 'RELEASED'],
  ])
  // Another life under the name is nobody's business.
  const next = await ledger.leases(any(network, 'web', { owner: life('2'), ...pair }))
  const at = await head(network)
  for (const process of [ledger, other]) {
    expect(await process.leases(releaseOf(life('1'), { network }))).toEqual(first)
  }
  await moveToThePast(database, DAY_MS, network)
  const places = (leases: readonly LeaseView[]) => leases.map(identity)
  expect(places(await other.leases(releaseOf(life('1'), { network })))).toEqual(places(first))
  expect(await head(network)).toBe(at)
  expect(await held(network)).toMatchObject(next.map((lease) => ({ token: lease.fencingToken })))
  // Also of one that the same batch ends.
  const third = life('3')
  const [reservedNow, ended, again] = await Promise.all([
    ledger.leases(any(network, 'web', { owner: third, ...pair })),
    ledger.leases(releaseOf(third, { network })),
    ledger.leases(releaseOf(third, { network })),
  ])
  expect(again).toEqual(ended)
  expect(places(again)).toEqual(places(reservedNow))
  // A pool may be gone by then.
  for (const quarantined of next) await ledger.take(release(quarantined.fencingToken, { network }))
  await moveToThePast(database, DAY_MS, network)
  await ledger.accept(deletePool('b', { network }))
  const [, gone] = await other.leases(releaseOf(third, { network }))
  expect(gone).toMatchObject({ address: reservedNow[1]!.address, pool: '', state: 'RELEASED' })
})

test('released by owner without the name it was reserved under: the same answer, and no event', async () => {
  const network = await freshPool()
  await ledger.accept(createPool({ name: 'b', cidr: 'fd00::/120' }, { network }))
  const pair = { claims: [claim({ pool: 'a' }), claim({ pool: 'b' })] }
  const web = owner({ name: 'web', uid: 'u', incarnation: '1' })
  // As the API reads an owner that names its uid alone.
  const nameless = owner({ name: 'u', uid: 'u', incarnation: '1' })
  await ledger.accept(any(network, 'web', { owner: web, ...pair }))
  const first = await ledger.leases(releaseOf(nameless, { network }))
  expect(first.map((lease) => [lease.pool, lease.owner?.name, lease.state])).toEqual([
    ['a', 'web', 'RELEASED'],
    ['b', 'web', 'RELEASED'],
  ])
  const at = await head(network)
  const again = () =>
    Promise.all([
      ledger.leases(releaseOf(nameless, { network })),
      other.leases(releaseOf(nameless, { network })),
      ledger.leases(releaseOf(owner({ ...nameless, name: 'another' }), { network })),
      other.leases(releaseOf(web, { network })),
    ])
  expect(await again()).toEqual([first, first, first, first])
  expect(await head(network)).toBe(at)
  // Whatever happens under the name, and elsewhere, in the meantime.
  for (let life = 2; life <= 90; life += 1) {
    const lives = owner({ name: 'web', uid: `u${life}`, incarnation: '1' })
    await ledger.accept(any(network, 'web', { owner: lives }))
    await ledger.accept(releaseOf(lives, { network }))
  }
  const later = await head(network)
  expect(later - at).toBeGreaterThan(256)
  expect(await again()).toEqual([first, first, first, first])
  expect(await head(network)).toBe(later)
})

test('an attachment that was closed without a lease to release has nothing to answer, however often it is said', async () => {
  const network = await freshPool()
  const web = owner({ name: 'web', uid: 'u', incarnation: '1' })
  const nameless = owner({ name: 'u', uid: 'u', incarnation: '1' })
  const lease = await ledger.take(any(network, 'web', { owner: web }))
  await ledger.take(release(lease.fencingToken, { network }))
  // Long after, nobody remembers that life by its uid; what it held stands right before in the log.
  await moveToThePast(database, DAY_MS, network)
  await admin.query('delete from ipledger.closed_attachment where network_id = $1', [network])
  for (const process of [ledger, other, ledger])
    expect(await process.leases(releaseOf(nameless, { network }))).toEqual([])
  expect(await head(network)).toBe(lease.fencingToken + 3)
})

test('a Release by owner that overtakes its Reserve closes the attachment, also one that was never seen', async () => {
  const network = await freshPool()
  const life = owner({ name: 'web', uid: 'u', incarnation: '1' })
  expect(await ledger.leases(releaseOf(life, { network }))).toEqual([])
  for (const process of [ledger, other]) {
    await process.refuse(any(network, 'web', { owner: life }), 'ATTACHMENT_CLOSED')
    await process.refuse(confirmOf(life, { network }), 'ATTACHMENT_CLOSED')
  }
  expect(await held(network)).toEqual([])
  // The next life is another attachment, and a caller that serialises its own calls may reopen this one.
  const next = owner({ name: 'web', uid: 'u', incarnation: '2' })
  expect((await ledger.take(any(network, 'web', { owner: next }))).address).toBe('10.0.0.1')
  await ledger.accept(releaseOf(next, { network }))
  expect((await ledger.take(any(network, 'web', { owner: next, reopen: true }))).address).toBe('10.0.0.2')
  await ledger.accept(confirmOf(next, { network }))
})

test('both in one batch, in either order', async () => {
  const network = await freshPool()
  const [a, b] = ['a', 'b'].map((name) => owner({ name, uid: name, incarnation: '1' })) as [
    ReturnType<typeof owner>,
    ReturnType<typeof owner>,
  ]
  const [reservedFirst, , , releasedFirst] = await Promise.all([
    ledger.submit(any(network, 'a', { owner: a })),
    ledger.submit(releaseOf(a, { network })),
    ledger.submit(releaseOf(b, { network })),
    ledger.submit(any(network, 'b', { owner: b })),
  ])
  expect(reservedFirst.ok).toBe(true)
  expect(releasedFirst).toMatchObject({ ok: false, refusal: { reason: 'ATTACHMENT_CLOSED' } })
  expect(await held(network)).toEqual([])
  await expectPartition(admin, network)
})

test('an owner without an incarnation reserves, releases and reserves again', async () => {
  const network = await freshPool()
  for (let turn = 0; turn < 3; turn += 1) {
    const lease = await ledger.take(any(network, 'web'))
    expect(lease).toMatchObject({ address: `10.0.0.${turn + 1}`, reused: false })
    await ledger.take(release(lease.fencingToken, { network }))
  }
  await ledger.refuse(releaseOf(owner({ name: 'web' }), { network }), 'INVALID_FIELD')
})

test('a hundred replays of a Release leave the new holder of the address alone', async () => {
  const network = await freshPool('10.0.0.0/31')
  const life = (incarnation: string) => owner({ name: 'old', uid: 'old', incarnation })
  const old = await ledger.take(any(network, 'old', { owner: life('1') }))
  const first = await ledger.take(release(old.fencingToken, { network, requestId: 'r', fingerprint: 'f' }))
  await ledger.take(any(network, 'filler'))
  const heir = await ledger.take(any(network, 'heir'))
  expect(heir.address).toBe(old.address)
  const at = await head(network)
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => {
      const process = i % 2 === 0 ? ledger : other
      switch (i % 4) {
        case 0:
          return process.leases(release(old.fencingToken, { network, requestId: 'r', fingerprint: 'f' }))
        case 1:
          return process.leases(release(old.fencingToken, { network }))
        case 2:
          return process.leases(release(old.fencingToken, { network, removalConfirmed: false }))
        default:
          return process.leases(
            release(old.fencingToken, { network, lease: { token: old.fencingToken, owner: life('1') } }),
          )
      }
    }),
  )
  for (const leases of answers) expect(leases).toEqual([first])
  expect(await head(network)).toBe(at)
  expect(await held(network)).toMatchObject([{ address: heir.address, token: heir.fencingToken }, {}])
  // By owner it closes the attachment anew at most, and touches no lease.
  await ledger.accept(releaseOf(life('1'), { network }))
  expect(await held(network)).toMatchObject([{ address: heir.address, token: heir.fencingToken }, {}])
})

test('v4 and v6 with v6 exhausted, a thousand times: no v4 is held', async () => {
  const network = await freshPool('10.0.0.0/22')
  await ledger.accept(createPool({ name: 'b', cidr: 'fd00::/127' }, { network }))
  const pair = [claim({ pool: 'a' }), claim({ pool: 'b' })]
  const full = await Promise.all([1, 2].map((i) => ledger.leases(any(network, `x${i}`, { claims: pair }))))
  expect(full.map((leases) => leases.map((lease) => lease.address))).toEqual([
    ['10.0.0.1', 'fd00::'],
    ['10.0.0.2', 'fd00::1'],
  ])
  const veteran = await ledger.take(any(network, 'veteran'))
  const at = await head(network)
  await Promise.all(
    Array.from({ length: 1_000 }, (_, i) =>
      (i % 2 === 0 ? ledger : other).refuse(any(network, `y${i}`, { claims: pair }), 'POOL_EXHAUSTED'),
    ),
  )
  // Who had a v4 address before keeps it.
  await ledger.refuse(any(network, 'veteran', { claims: pair }), 'POOL_EXHAUSTED')
  expect(await head(network)).toBe(at)
  const pools = await expectPartition(admin, network)
  expect(pools.get('a')!.leases).toHaveLength(3)
  expect(await held(network)).toContainEqual(expect.objectContaining({ token: veteran.fencingToken }))
})

test('four workloads of fifty lives without a Release, in a pool of thirty: four each, and a fifth finds room', async () => {
  const network = await freshPool('10.0.0.0/27')
  const outcomes = await Promise.all(
    Array.from({ length: 50 }, (_, life) =>
      ['a', 'b', 'c', 'd'].map((name) =>
        (life % 2 === 0 ? ledger : other).submit(
          any(network, name, { owner: owner({ name, uid: `${name}-${life}`, incarnation: String(life) }) }),
        ),
      ),
    ).flat(),
  )
  expect(outcomes.filter((one) => one.ok)).toHaveLength(16)
  for (const one of outcomes) if (!one.ok) expect(one.refusal.reason).toBe('OWNER_LIMIT')
  const rows = await held(network)
  for (const name of ['a', 'b', 'c', 'd']) {
    const own = rows.filter((row) => row.owner_name === name)
    expect(own).toHaveLength(4)
    // The youngest life holds; what it superseded stays set aside.
    expect(own.filter((row) => row.state === 'RESERVED')).toHaveLength(1)
  }
  expect((await ledger.take(any(network, 'e'))).address).toBe('10.0.0.17')
  // With confirmed removal the limit is no limit: the address is handed on.
  const last = rows.find((row) => row.owner_name === 'a' && row.state === 'RESERVED')!
  const handed = await ledger.take(
    any(network, 'a', {
      owner: owner({ name: 'a', uid: 'a-50', incarnation: '50' }),
      supersedes: removed({ uid: (await uidOf(network, last.token))! }),
      claims: [claim({ pool: 'a', preferPrevious: true })],
    }),
  )
  expect(handed.address).toBe(last.address)
  expect(handed.fencingToken).toBeGreaterThan(last.token)
  await expectPartition(admin, network)
})

async function uidOf(network: string, token: number): Promise<string | undefined> {
  const { rows } = await admin.query<{ owner_uid: string }>(
    'select owner_uid from ipledger.lease where network_id = $1 and fencing_token = $2',
    [network, token],
  )
  return rows[0]?.owner_uid
}

test('a reservation with a deadline is reaped after it and the grace; one without is held after thirty days', async () => {
  const network = await freshPool('10.0.0.0/24', 60_000)
  const [promised, plain] = await Promise.all([
    ledger.take(any(network, 'promised', { confirmWithinMs: 30_000 })),
    ledger.take(any(network, 'plain')),
  ])
  const early = await ledger.refuse(
    expire(promised.fencingToken, promised.version, { network }),
    'ILLEGAL_STATE',
  )
  expect(early.retryAfterMs).toBeGreaterThan(POLICY.confirmGraceMs)
  await moveToThePast(database, 30_000 + POLICY.confirmGraceMs + 1, network)
  await ledger.refuse(expire(promised.fencingToken, promised.version + 1, { network }), 'VERSION_MISMATCH')
  expect((await ledger.take(expire(promised.fencingToken, promised.version, { network }))).state).toBe(
    'REAPED',
  )
  await moveToThePast(database, 30 * DAY_MS, network)
  await ledger.refuse(expire(plain.fencingToken, plain.version, { network }), 'ILLEGAL_STATE')
  expect(await held(network)).toMatchObject([{ address: plain.address, token: plain.fencingToken }])
  await expectPartition(admin, network)
})

test('cooling is persisted: another process gives the address to nobody before its time', async () => {
  const network = await freshPool('10.0.0.0/30', 60_000)
  const lease = await ledger.take(any(network, 'x'))
  await ledger.take(any(network, 'y'))
  await ledger.take(release(lease.fencingToken, { network }))
  const next = openTestLedger({ url: database.serviceUrl })
  const refusal = await next.refuse(any(network, 'z'), 'POOL_EXHAUSTED')
  expect(refusal.metadata).toMatchObject({ pool: 'a', cooling: '1' })
  expect(refusal.retryAfterMs).toBeGreaterThan(30_000)
  await next.refuse(
    any(network, 'z', { claims: [claim({ pool: 'a', address: lease.address })] }),
    'ADDRESS_COOLING',
  )
  await moveToThePast(database, 60_001, network)
  expect((await next.take(any(network, 'z'))).address).toBe(lease.address)
  await next.close()
  await expectPartition(admin, network)
})

test('the ledgers of this file are in order', () => expectVerified(database))
