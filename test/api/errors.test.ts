/** Each reason as callers meet it: code, reason, metadata, and when to come back. */
import { Code } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { describe, expect, test } from 'vitest'
import { MEANINGS, Refused, shownItemError, toConnectError, toErrorJson } from '../../src/api/errors.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { ErrorInfoSchema, RetryInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import { createReads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { type Posted, post, serverOn, told, urls, useServer } from './running.ts'

const running = await useServer()
const call = (method: string, body: unknown) => post(running, method, body)
let networks = 0

/** A network of its own with a pool `web`, by default of two addresses. */
async function world(pool: object = {}) {
  const network = `e${networks++}`
  await ok(call('NetworkService/CreateNetwork', { name: network }))
  await ok(call('PoolService/CreatePool', { network, name: 'web', cidr: '10.0.0.0/31', ...pool }))
  return {
    network,
    reserve: (name: string, more: { owner?: object; claims?: object[]; [key: string]: unknown } = {}) =>
      call('LeaseService/Reserve', {
        network,
        claims: [{ pool: 'web' }],
        ...more,
        owner: { kind: 'pod', name, ...more.owner },
      }),
  }
}

async function ok(answer: Promise<Posted>): Promise<Posted['body']> {
  const { status, body } = await answer
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`)
  return body
}

async function refusal(answer: Promise<Posted>) {
  return told(await answer)
}

const QUICK = { cooldown: '600s' }

describe('the table', () => {
  const CODES: Record<string, readonly Reason[]> = {
    resource_exhausted: ['POOL_EXHAUSTED', 'ALL_CANDIDATES_LIVE', 'OWNER_LIMIT'],
    already_exists: ['ADDRESS_TAKEN'],
    failed_precondition: [
      'ADDRESS_COOLING',
      'ADDRESS_QUARANTINED',
      'ADDRESS_EXCLUDED',
      'ILLEGAL_STATE',
      'ATTACHMENT_CLOSED',
      'LEASE_LOST',
      'LIVENESS_STALE',
      'NETWORK_RECOVERING',
      'POOL_DRAINING',
      'POOL_IN_USE',
    ],
    aborted: ['VERSION_MISMATCH'],
    not_found: ['NETWORK_NOT_FOUND', 'POOL_NOT_FOUND', 'LEASE_NOT_FOUND', 'SOURCE_NOT_FOUND'],
    invalid_argument: ['INVALID_FIELD', 'REQUEST_ID_REUSED'],
    unavailable: ['OUTCOME_UNKNOWN', 'OVERLOADED', 'DATABASE_UNAVAILABLE'],
    deadline_exceeded: ['DEADLINE_EXCEEDED'],
    unauthenticated: ['UNAUTHENTICATED'],
    permission_denied: ['PERMISSION_DENIED', 'SOURCE_MISMATCH'],
  }
  const rows = Object.entries(CODES).flatMap(([code, reasons]) =>
    reasons.map((reason) => [reason, code] as const),
  )

  test('knows every reason', () => {
    expect(rows.map(([reason]) => reason).sort()).toEqual(Object.keys(MEANINGS).sort())
  })

  test.each(rows)('%s is %s, and says what to do', (reason, code) => {
    const refused = new Refused({ reason, message: 'why', metadata: { a: 'b' }, retryAfterMs: 1_500 })
    const error = toConnectError(refused)
    expect(codeToString(error.code)).toBe(code)
    expect(error.findDetails(ErrorInfoSchema)).toMatchObject([
      { reason, domain: 'ipledger', metadata: { a: 'b' } },
    ])
    expect(error.findDetails(RetryInfoSchema)).toMatchObject([
      { retryDelay: { seconds: 1n, nanos: 500_000_000 } },
    ])
    expect(shownItemError(refused)).toMatchObject({ code, reason, message: 'why', metadata: { a: 'b' } })
    expect(MEANINGS[reason].caller).toMatch(/^[A-Z].*\.$/)
  })

  test('the plain lane writes what the library writes', async () => {
    const { errorToJson } = await import('@connectrpc/connect/protocol-connect')
    for (const retryAfterMs of [0, 1, 1_500, 86_400_000]) {
      const refused = new Refused({
        reason: 'POOL_EXHAUSTED',
        message: 'grün 🚀',
        metadata: { a: 'b', ü: '' },
        retryAfterMs,
      })
      expect(JSON.parse(toErrorJson(refused).json)).toEqual(errorToJson(toConnectError(refused), undefined))
    }
  })

  test('what a caller sent comes back as text that any header can carry', () => {
    const nasty = `\u0000\r\n\ud800${'x'.repeat(10_000)}`
    const error = toConnectError(
      new Refused({ reason: 'INVALID_FIELD', message: nasty, metadata: { field: nasty } }),
    )
    expect(error.rawMessage.isWellFormed()).toBe(true)
    expect(() => encodeURIComponent(error.rawMessage)).not.toThrow()
    // biome-ignore lint/suspicious/noControlCharactersInRegex: those must be gone
    expect(error.rawMessage).not.toMatch(/[\u0000-\u001f]/)
    expect(error.rawMessage.length).toBeLessThan(2_100)
    expect(error.findDetails(ErrorInfoSchema)[0]!.metadata.field!.length).toBeLessThan(2_100)
  })
})

describe('every reason that exists by now, provoked', () => {
  test('POOL_EXHAUSTED: how many cool, and when the next is ready', async () => {
    const { network, reserve } = await world(QUICK)
    const [first] = (await ok(reserve('a'))).leases
    await ok(reserve('b'))
    expect(await refusal(reserve('c'))).toMatchObject({
      code: 'resource_exhausted',
      reason: 'POOL_EXHAUSTED',
      metadata: { pool: 'web', cooling: '0' },
      retryAfter: undefined,
    })
    await ok(call('LeaseService/Release', { leaseId: first.leaseId }))
    const cooling = await refusal(reserve('c'))
    expect(cooling).toMatchObject({ reason: 'POOL_EXHAUSTED', metadata: { cooling: '1' } })
    expect(Date.parse(cooling.metadata.nextAvailableAt!)).toBeGreaterThan(Date.now())
    expect(Number.parseFloat(cooling.retryAfter!)).toBeGreaterThan(500)
    expect(network).toMatch(/^e/)
  })

  test('ALL_CANDIDATES_LIVE', async () => {
    const { reserve } = await world({ cidr: '10.0.0.0/24' })
    const liveAddresses = Array.from({ length: 100 }, (_, index) => `10.0.0.${index + 1}`)
    expect(await refusal(reserve('a', { liveAddresses }))).toMatchObject({
      code: 'resource_exhausted',
      reason: 'ALL_CANDIDATES_LIVE',
      metadata: { pool: 'web', skips: '32' },
    })
  })

  test('OWNER_LIMIT: the leases that fill it, and what ends them', async () => {
    const { network, reserve } = await world({ cidr: '10.0.0.0/24', ownerLimit: 1 })
    const [held] = (await ok(reserve('a', { owner: { incarnation: '1' } }))).leases
    const refused = await refusal(reserve('a', { owner: { incarnation: '2' } }))
    expect(refused).toMatchObject({
      code: 'resource_exhausted',
      reason: 'OWNER_LIMIT',
      metadata: { pool: 'web', limit: '1', leases: held.leaseId },
    })
    expect(refused.message).toContain('Release with confirmed removal')
    expect(network).toMatch(/^e/)
  })

  test('ADDRESS_TAKEN: by whom', async () => {
    const { reserve } = await world()
    const [held] = (await ok(reserve('a'))).leases
    expect(await refusal(reserve('b', { claims: [{ address: held.address }] }))).toMatchObject({
      code: 'already_exists',
      reason: 'ADDRESS_TAKEN',
      metadata: { address: held.address, leaseId: held.leaseId, holder: expect.stringContaining('pod a') },
    })
  })

  test('ADDRESS_COOLING: until when', async () => {
    const { reserve } = await world(QUICK)
    const [held] = (await ok(reserve('a'))).leases
    await ok(call('LeaseService/Release', { leaseId: held.leaseId }))
    const refused = await refusal(reserve('b', { claims: [{ address: held.address }] }))
    expect(refused).toMatchObject({ code: 'failed_precondition', reason: 'ADDRESS_COOLING' })
    expect(Number.parseFloat(refused.retryAfter!)).toBeGreaterThan(500)
  })

  test('ADDRESS_QUARANTINED: seen by whom', async () => {
    const { reserve } = await world()
    expect(
      await refusal(reserve('a', { claims: [{ address: '10.0.0.0' }], liveAddresses: ['10.0.0.0'] })),
    ).toMatchObject({
      code: 'failed_precondition',
      reason: 'ADDRESS_QUARANTINED',
      metadata: { address: '10.0.0.0', seenBy: 'loopback' },
    })
  })

  test('ADDRESS_EXCLUDED', async () => {
    const { reserve } = await world({ cidr: '10.0.0.0/24', gateway: '10.0.0.1' })
    for (const address of ['10.0.0.0', '10.0.0.1', '10.0.0.255']) {
      expect(await refusal(reserve('a', { claims: [{ address }] }))).toMatchObject({
        code: 'failed_precondition',
        reason: 'ADDRESS_EXCLUDED',
        metadata: { address },
      })
    }
  })

  test('ILLEGAL_STATE: what the state is', async () => {
    const { reserve } = await world()
    const [held] = (await ok(reserve('a'))).leases
    expect(await refusal(reserve('a', { claims: [{ pool: 'web', address: '10.0.0.1' }] }))).toMatchObject({
      code: 'failed_precondition',
      reason: 'ILLEGAL_STATE',
      metadata: { leaseId: held.leaseId, state: 'RESERVED' },
    })
  })

  test('ATTACHMENT_CLOSED', async () => {
    const { network, reserve } = await world()
    const owner = { kind: 'pod', name: 'a', incarnation: '1', interface: 'eth0' }
    expect((await ok(call('LeaseService/Release', { network, owner }))).leases).toEqual([])
    expect(await refusal(reserve('a', { owner }))).toMatchObject({
      code: 'failed_precondition',
      reason: 'ATTACHMENT_CLOSED',
    })
    expect(await refusal(call('LeaseService/Confirm', { network, owner }))).toMatchObject({
      reason: 'ATTACHMENT_CLOSED',
    })
  })

  test('LEASE_LOST: a late Confirm, and a replayed Reserve', async () => {
    const { reserve } = await world(QUICK)
    const [held] = (await ok(reserve('a', { requestId: 'one' }))).leases
    await ok(call('LeaseService/Release', { leaseId: held.leaseId }))
    for (const late of [
      reserve('a', { requestId: 'one' }),
      call('LeaseService/Confirm', { leaseId: held.leaseId }),
    ]) {
      expect(await refusal(late)).toMatchObject({
        code: 'failed_precondition',
        reason: 'LEASE_LOST',
        metadata: { leaseId: held.leaseId },
      })
    }
  })

  test('LIVENESS_STALE', async () => {
    const { reserve } = await world({ liveness: 'STRICT' })
    expect(await refusal(reserve('a'))).toMatchObject({
      code: 'failed_precondition',
      reason: 'LIVENESS_STALE',
    })
  })

  test('NETWORK_RECOVERING, and the end of it', async () => {
    const { network, reserve } = await world()
    const begun = await running.ledger.submit({
      type: 'beginEra',
      network,
      actor: { name: 'test', node: null },
      cause: 'test',
      requestId: null,
      fingerprint: null,
      traceId: null,
      above: 0,
      recovering: true,
      why: 'restored from a copy',
    })
    expect(begun.ok).toBe(true)
    const { network: found } = await ok(call('NetworkService/GetNetwork', { name: network }))
    expect(found).toMatchObject({
      state: 'RECOVERING',
      era: 1,
      head: String(2 ** 40),
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
      recovery: { why: 'restored from a copy', sources: 0, unreported: [] },
    })
    expect(await refusal(reserve('a'))).toMatchObject({
      code: 'failed_precondition',
      reason: 'NETWORK_RECOVERING',
      metadata: { network, state: 'RECOVERING' },
      retryAfter: '1s',
    })
    const { network: after } = await ok(call('NetworkService/EndRecovery', { network, why: 'looked at it' }))
    expect(after.state).toBe('READY')
    await ok(reserve('a'))
  })

  test('POOL_DRAINING', async () => {
    const { network, reserve } = await world()
    await ok(call('PoolService/UpdatePool', { network, name: 'web', draining: true }))
    expect(await refusal(reserve('a'))).toMatchObject({
      code: 'failed_precondition',
      reason: 'POOL_DRAINING',
    })
  })

  test('POOL_IN_USE: what is in the way, and when only cooling is', async () => {
    const { network, reserve } = await world(QUICK)
    const [held] = (await ok(reserve('a'))).leases
    const remove = () => refusal(call('PoolService/DeletePool', { network, name: 'web' }))
    const blocked = await remove()
    expect(blocked).toMatchObject({
      code: 'failed_precondition',
      reason: 'POOL_IN_USE',
      metadata: { held: '1', cooling: '0', blockers: expect.stringContaining(held.leaseId) },
      retryAfter: undefined,
    })
    await ok(call('LeaseService/Release', { leaseId: held.leaseId }))
    const resting = await remove()
    expect(resting).toMatchObject({ reason: 'POOL_IN_USE', metadata: { held: '0', cooling: '1' } })
    expect(Number.parseFloat(resting.retryAfter!)).toBeGreaterThan(500)
  })

  test('VERSION_MISMATCH', async () => {
    const { network, reserve } = await world()
    const [held] = (await ok(reserve('a'))).leases
    for (const stale of [
      call('LeaseService/Reap', { leaseId: held.leaseId, version: 1, why: 'x' }),
      call('LeaseService/UpdateLabels', { leaseId: held.leaseId, version: 1 }),
      call('PoolService/UpdatePool', { network, name: 'web', version: 1, draining: true }),
      call('PoolService/DeletePool', { network, name: 'web', version: 1 }),
    ]) {
      expect(await refusal(stale)).toMatchObject({
        code: 'aborted',
        reason: 'VERSION_MISMATCH',
        metadata: { expected: '1' },
      })
    }
  })

  test('VERSION_MISMATCH: a number of a life that this database has not lived', async () => {
    const { network } = await world()
    const far = 2 ** 41
    for (const lost of [
      call('LeaseService/GetLease', { leaseId: `${network}/${far}` }),
      call('LeaseService/Confirm', { leaseId: `${network}/${far}` }),
      call('LeaseService/Release', { network, fencingToken: far }),
      call('LeaseService/Reap', { leaseId: `${network}/${far}`, version: far, why: 'x' }),
      call('LeaseService/UpdateLabels', { leaseId: `${network}/${far}` }),
      call('AuditService/ListEvents', { network, afterSeq: far }),
      call('AuditService/ListEvents', { leaseId: `${network}/${far}` }),
    ]) {
      expect(await refusal(lost)).toMatchObject({
        code: 'aborted',
        reason: 'VERSION_MISMATCH',
        metadata: { beyondHead: '2' },
      })
    }
    // A reader that has seen everything is not one of those.
    expect((await ok(call('AuditService/ListEvents', { network, afterSeq: 2 }))).events).toEqual([])
  })

  test.each([
    ['NetworkService/GetNetwork', { name: 'nowhere' }],
    ['NetworkService/UpdateNetwork', { name: 'nowhere', description: 'x' }],
    ['NetworkService/EndRecovery', { network: 'nowhere', why: 'x' }],
    ['PoolService/CreatePool', { network: 'nowhere', name: 'p', cidr: '10.0.0.0/24' }],
    ['PoolService/UpdatePool', { network: 'nowhere', name: 'p' }],
    ['PoolService/DeletePool', { network: 'nowhere', name: 'p' }],
    ['PoolService/GetPool', { network: 'nowhere', name: 'p' }],
    ['PoolService/ListPools', { network: 'nowhere' }],
    ['LeaseService/Reserve', { network: 'nowhere', owner: { kind: 'pod', name: 'a' } }],
    ['LeaseService/Confirm', { leaseId: 'nowhere/1' }],
    ['LeaseService/Release', { leaseId: 'nowhere/1' }],
    ['LeaseService/Quarantine', { network: 'nowhere', address: '10.0.0.1', why: 'x' }],
    ['LeaseService/Reap', { leaseId: 'nowhere/1', version: 1, why: 'x' }],
    ['LeaseService/UpdateLabels', { leaseId: 'nowhere/1' }],
    ['LeaseService/GetLease', { leaseId: 'nowhere/1' }],
    ['LeaseService/GetLease', { network: 'nowhere', address: '10.0.0.1' }],
    ['LeaseService/ListLeases', { network: 'nowhere' }],
    ['LeaseService/GetRequest', { network: 'nowhere', requestId: 'x' }],
    ['AuditService/ListEvents', { network: 'nowhere' }],
  ])('NETWORK_NOT_FOUND: %s', async (method, body) => {
    expect(await refusal(call(method, body))).toMatchObject({
      code: 'not_found',
      reason: 'NETWORK_NOT_FOUND',
      metadata: { network: 'nowhere' },
    })
  })

  test('POOL_NOT_FOUND', async () => {
    const { network, reserve } = await world()
    for (const lost of [
      reserve('a', { claims: [{ pools: ['web', 'none'] }] }),
      call('PoolService/GetPool', { network, name: 'none' }),
      call('PoolService/UpdatePool', { network, name: 'none' }),
      call('PoolService/DeletePool', { network, name: 'none' }),
      call('LeaseService/ListLeases', { network, pools: ['web', 'none'] }),
    ]) {
      expect(await refusal(lost)).toMatchObject({
        code: 'not_found',
        reason: 'POOL_NOT_FOUND',
        metadata: { pool: 'none' },
      })
    }
  })

  test('LEASE_NOT_FOUND: unknown, and how an old one ended', async () => {
    const { network, reserve } = await world(QUICK)
    for (const lost of [
      call('LeaseService/GetLease', { leaseId: `${network}/1` }),
      call('LeaseService/GetLease', { network, address: '10.0.0.1' }),
      // The number of an event that made no lease.
      call('LeaseService/Confirm', { leaseId: `${network}/1` }),
      call('LeaseService/Release', { network, fencingToken: 1 }),
      call('LeaseService/Reap', { leaseId: `${network}/1`, version: 1, why: 'x' }),
      call('LeaseService/Confirm', { network, owner: { kind: 'pod', name: 'nobody', interface: 'eth0' } }),
    ]) {
      expect(await refusal(lost)).toMatchObject({ code: 'not_found', reason: 'LEASE_NOT_FOUND' })
    }
    const [released] = (await ok(reserve('a'))).leases
    const [reaped] = (await ok(reserve('b'))).leases
    await ok(call('LeaseService/Release', { leaseId: released.leaseId }))
    await ok(call('LeaseService/Reap', { leaseId: reaped.leaseId, version: reaped.version, why: 'gone' }))
    // The address goes to somebody else; what became of the first lease is still known.
    const [next] = (await ok(reserve('a', { claims: [{ address: released.address }] }))).leases
    expect(next.address).toBe(released.address)
    for (const [lease, state] of [
      [released, 'RELEASED'],
      [reaped, 'REAPED'],
    ] as const) {
      const { reason, metadata } = await refusal(call('LeaseService/GetLease', { leaseId: lease.leaseId }))
      expect({ reason, metadata }).toEqual({
        reason: 'LEASE_NOT_FOUND',
        metadata: { state, endedAt: expect.stringMatching(/Z$/), address: lease.address },
      })
    }
  })

  test('INVALID_FIELD for what exists already or overlaps', async () => {
    const { network } = await world()
    const field = async (method: string, body: object) => {
      const { code, reason, metadata } = await refusal(call(method, { network, ...body }))
      expect({ code, reason }).toEqual({ code: 'invalid_argument', reason: 'INVALID_FIELD' })
      return metadata.field
    }
    expect(await field('PoolService/CreatePool', { name: 'web', cidr: '10.1.0.0/24' })).toBe('name')
    expect(await field('PoolService/CreatePool', { name: 'two', cidr: '10.0.0.0/24' })).toBe('cidr')
    await ok(call('PoolService/CreatePool', { network, name: 'two', cidr: '10.1.0.0/24' }))
    expect(await field('PoolService/UpdatePool', { name: 'two', newName: 'web' })).toBe('newName')
    expect(await field('PoolService/UpdatePool', { name: 'two', cidr: '10.0.0.0/8' })).toBe('cidr')
    expect(await field('PoolService/UpdatePool', { name: 'two', cidr: 'fd00::/64' })).toBeDefined()
    expect(told(await call('NetworkService/CreateNetwork', { name: network })).metadata.field).toBe('name')
  })

  test('REQUEST_ID_REUSED', async () => {
    const { reserve } = await world()
    await ok(reserve('a', { requestId: 'one' }))
    expect(await refusal(reserve('b', { requestId: 'one' }))).toMatchObject({
      code: 'invalid_argument',
      reason: 'REQUEST_ID_REUSED',
      metadata: { requestId: 'one' },
    })
  })

  test('DEADLINE_EXCEEDED: before the call was begun', async () => {
    const late = await post(
      running,
      'LeaseService/Reserve',
      { owner: { kind: 'pod', name: 'late' } },
      { 'connect-timeout-ms': '0' },
    )
    expect(late.status).toBe(504)
    expect(told(late)).toMatchObject({ code: 'deadline_exceeded', reason: 'DEADLINE_EXCEEDED' })
  })

  test('a pool or a network that was made is answered, whether it can be read by then or not', async () => {
    const gone = createPool({ url: 'postgresql://nobody@127.0.0.1:1/none', applicationName: 'test', max: 1 })
    const server = await serverOn({ ...running, reads: createReads(gone) })
    try {
      const made = await post(urls(server), 'NetworkService/CreateNetwork', { name: 'unread' })
      expect(made).toMatchObject({
        status: 200,
        body: { network: { name: 'unread', state: 'READY', head: '1' } },
      })
      const pool = await post(urls(server), 'PoolService/CreatePool', {
        network: 'unread',
        name: 'web',
        cidr: '10.0.0.0/24',
      })
      expect(pool).toMatchObject({
        status: 200,
        body: { pool: { name: 'web', cidr: '10.0.0.0/24', version: '2' } },
      })
      expect(pool.body.pool.usage).toBeUndefined()
    } finally {
      await server.close()
      await gone.end()
    }
  })

  test('a defect of ours is told without what it was', async () => {
    const server = await serverOn({
      ...running,
      reads: { ...running.reads, network: () => Promise.reject(new TypeError('secret')) },
    })
    try {
      const answer = await post(urls(server), 'NetworkService/GetNetwork', {})
      expect(answer.status).toBe(500)
      expect(answer.body).toEqual({
        code: codeToString(Code.Internal),
        message: expect.stringContaining('log'),
      })
      expect(JSON.stringify(answer.body)).not.toContain('secret')
    } finally {
      await server.close()
    }
  })
})
