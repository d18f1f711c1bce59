/** Each reason as callers meet it: code, reason, metadata, and when to come back. */
import { Code } from '@connectrpc/connect'
import { codeToString } from '@connectrpc/connect/protocol-connect'
import { pino } from 'pino'
import { describe, expect, onTestFinished, test } from 'vitest'
import { itemErrorView, MEANINGS, Refused } from '../../src/api/codec/errors.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { ErrorInfoSchema, RetryInfoSchema } from '../../src/gen/google/rpc/error_details_pb.ts'
import { Reads } from '../../src/ledger/reads.ts'
import { createPool } from '../../src/postgres/connect.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { REQUESTS, UNARY } from './requests.ts'
import { newNetwork, serverOn, urls } from './running.ts'

const running = await useService()
const { call } = running
const { ok } = call

/** A network of its own with a pool `web`, by default of two addresses. */
async function world(pool: object = {}) {
  const network = await newNetwork(running, { cidr: '10.0.0.0/31', ...pool })
  const asked = (name: string, { owner, ...more }: { owner?: object; [key: string]: unknown } = {}) =>
    [
      'LeaseService/Reserve',
      { network, claims: [{ pool: 'web' }], owner: { kind: 'pod', name, ...owner }, ...more },
    ] as const
  return {
    network,
    reserve: (...given: Parameters<typeof asked>) => call(...asked(...given)),
    held: async (...given: Parameters<typeof asked>) => (await ok(...asked(...given))).leases[0],
  }
}

const release = (leaseId: string) => ok('LeaseService/Release', { leaseId })
const QUICK = { cooldown: '600s' }

describe('the table', () => {
  const CODES: Record<string, readonly Reason[]> = {
    resource_exhausted: ['POOL_EXHAUSTED', 'ALL_CANDIDATES_LIVE', 'OWNER_LIMIT', 'NODE_LIMIT'],
    already_exists: ['ALREADY_EXISTS', 'ADDRESS_TAKEN'],
    failed_precondition: [
      'ADDRESS_COOLING',
      'ADDRESS_QUARANTINED',
      'ADDRESS_EXCLUDED',
      'ILLEGAL_STATE',
      'ATTACHMENT_CLOSED',
      'LEASE_LOST',
      'LIVENESS_STALE',
      'NETWORK_RECOVERING',
      'NETWORK_CLOSED',
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
    expect(codeToString(refused.code)).toBe(code)
    expect(refused.findDetails(ErrorInfoSchema)).toMatchObject([
      { reason, domain: 'ipledger', metadata: { a: 'b' } },
    ])
    expect(refused.findDetails(RetryInfoSchema)).toMatchObject([
      { retryDelay: { seconds: 1n, nanos: 500_000_000 } },
    ])
    expect(itemErrorView(refused)).toMatchObject({ code, reason, message: 'why', metadata: { a: 'b' } })
    expect(MEANINGS[reason].caller).toMatch(/^[A-Z].*\.$/)
  })

  test('what a caller sent comes back as text that any header can carry', () => {
    const nasty = `\u0000\r\n\ud800${'x'.repeat(10_000)}`
    const error = new Refused({ reason: 'INVALID_FIELD', message: nasty, metadata: { field: nasty } })
    expect(error.rawMessage.isWellFormed()).toBe(true)
    expect(() => encodeURIComponent(error.rawMessage)).not.toThrow()
    // biome-ignore lint/suspicious/noControlCharactersInRegex: those must be gone
    expect(error.rawMessage).not.toMatch(/[\u0000-\u001f]/)
    expect(error.rawMessage.length).toBeLessThan(2_100)
    expect(error.findDetails(ErrorInfoSchema)[0]!.metadata.field!.length).toBeLessThan(2_100)
  })
})

describe('every reason, provoked', () => {
  test('POOL_EXHAUSTED: how many cool, and when the next is ready', async () => {
    const { reserve, held } = await world(QUICK)
    const first = await held('a')
    await held('b')
    expect(await reserve('c')).toMatchObject({
      code: 'resource_exhausted',
      reason: 'POOL_EXHAUSTED',
      metadata: { pool: 'web', cooling: '0' },
      retryAfter: undefined,
    })
    await release(first.leaseId)
    const cooling = await reserve('c')
    expect(cooling).toMatchObject({ reason: 'POOL_EXHAUSTED', metadata: { cooling: '1' } })
    expect(Date.parse(cooling.metadata.nextAvailableAt!)).toBeGreaterThan(Date.now())
    expect(Number.parseFloat(cooling.retryAfter!)).toBeGreaterThan(500)
  })

  const all = Array.from({ length: 100 }, (_, index) => `10.0.0.${index + 1}`)
  test.each<[Reason, object, object, object]>([
    ['ALL_CANDIDATES_LIVE', {}, { liveAddresses: all }, { pool: 'web', skips: '32' }],
    [
      'ADDRESS_QUARANTINED',
      {},
      { claims: [{ address: '10.0.0.9' }], liveAddresses: ['10.0.0.9'] },
      { address: '10.0.0.9', seenBy: 'loopback' },
    ],
    ...['10.0.0.0', '10.0.0.1', '10.0.0.255'].map((address): [Reason, object, object, object] => [
      'ADDRESS_EXCLUDED',
      { gateway: '10.0.0.1' },
      { claims: [{ address }] },
      { address },
    ]),
    ['LIVENESS_STALE', { liveness: 'STRICT' }, {}, { pool: 'web' }],
    ['POOL_DRAINING', { draining: true }, {}, { pool: 'web' }],
    ['POOL_NOT_FOUND', {}, { claims: [{ pools: ['web', 'none'] }] }, { pool: 'none' }],
  ])('%s: pool %j, Reserve %j', async (reason, pool, asked, metadata) => {
    const { reserve } = await world({ cidr: '10.0.0.0/24', ...pool })
    expect(await reserve('a', { ...asked })).toMatchObject({ reason, metadata })
  })

  test('of an address that a source lists, by whom and since when', async () => {
    const { network, reserve } = await world({ cidr: '10.0.0.4/31' })
    await call.ok('LivenessService/RegisterSource', { network, id: 'eyes', sight: { ownerKinds: ['pod'] } })
    const { sequence, head, begunAt } = await call.ok('LivenessService/BeginSnapshot', {
      network,
      source: 'eyes',
    })
    const entries = ['10.0.0.4', '10.0.0.5'].map((address) => ({ address, kind: 'pod', name: 'other' }))
    const report = { network, source: 'eyes', epoch: 'e', sequence, head, begunAt, complete: true, entries }
    await call.ok('LivenessService/ReportSnapshot', report)
    const { sightings } = await call.ok('LivenessService/ListSightings', { network })
    const { appearedSeq } = sightings[0]
    expect(await reserve('a', { claims: [{ address: '10.0.0.4' }] })).toMatchObject({
      reason: 'ADDRESS_QUARANTINED',
      message: `10.0.0.4 is listed live by source eyes for pod other since event ${appearedSeq}`,
      metadata: { seenBy: 'eyes', sinceSeq: appearedSeq },
    })
    expect(await reserve('a')).toMatchObject({
      reason: 'POOL_EXHAUSTED',
      message: 'pool web has no free address; free ones are listed live by eyes: see ListSightings',
      metadata: { listedBy: 'eyes' },
    })
  })

  test('OWNER_LIMIT: the leases that fill it, and what ends them', async () => {
    const { reserve, held } = await world({ cidr: '10.0.0.0/24', ownerLimit: 1 })
    const { leaseId } = await held('a', { owner: { incarnation: '1' } })
    expect(await reserve('a', { owner: { incarnation: '2' } })).toMatchObject({
      reason: 'OWNER_LIMIT',
      metadata: { pool: 'web', limit: '1', leases: leaseId },
      message: expect.stringContaining('Release with confirmed removal'),
    })
  })

  test('of an address that is held, by whom; of one that cools, until when', async () => {
    const { reserve, held } = await world(QUICK)
    const { address, leaseId } = await held('a')
    expect(await reserve('b', { claims: [{ address }] })).toMatchObject({
      reason: 'ADDRESS_TAKEN',
      metadata: { address, leaseId, holder: expect.stringContaining('pod a') },
    })
    expect(await reserve('a', { claims: [{ pool: 'web', address: '10.0.0.1' }] })).toMatchObject({
      reason: 'ILLEGAL_STATE',
      metadata: { leaseId, state: 'RESERVED' },
    })
    await release(leaseId)
    const cooling = await reserve('b', { claims: [{ address }] })
    expect(cooling.reason).toBe('ADDRESS_COOLING')
    expect(Number.parseFloat(cooling.retryAfter!)).toBeGreaterThan(500)
  })

  test('LEASE_LOST: a late Confirm, and a replayed Reserve; REQUEST_ID_REUSED for another', async () => {
    const { reserve, held } = await world(QUICK)
    const { leaseId } = await held('a', { requestId: 'one' })
    await release(leaseId)
    for (const late of [reserve('a', { requestId: 'one' }), call('LeaseService/Confirm', { leaseId })])
      expect(await late).toMatchObject({ reason: 'LEASE_LOST', metadata: { leaseId } })
    expect(await reserve('b', { requestId: 'one' })).toMatchObject({
      reason: 'REQUEST_ID_REUSED',
      metadata: { requestId: 'one' },
    })
  })

  test('NETWORK_RECOVERING, and the end of it', async () => {
    const { network, reserve, held } = await world()
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
    const { network: found } = await ok('NetworkService/GetNetwork', { name: network })
    expect(found).toMatchObject({
      state: 'RECOVERING',
      era: 1,
      head: String(2 ** 40),
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
      recovery: { why: 'restored from a copy', sources: 0, unreported: [], needsOperator: true },
    })
    expect(await reserve('a')).toMatchObject({
      reason: 'NETWORK_RECOVERING',
      metadata: { network, state: 'RECOVERING' },
      message: expect.stringMatching(
        /no source is enabled, only an operator .*: ipledger recover --end own-/,
      ),
      retryAfter: undefined,
    })
    const { network: after } = await ok('NetworkService/EndRecovery', { network, why: 'looked at it' })
    expect(after.state).toBe('READY')
    await held('a')
  })

  test('VERSION_MISMATCH', async () => {
    const { network, held } = await world()
    const { leaseId } = await held('a')
    for (const [method, stale] of [
      ['LeaseService/Reap', { leaseId, why: 'x' }],
      ['LeaseService/UpdateLabels', { leaseId }],
      ['PoolService/UpdatePool', { network, name: 'web', draining: true }],
      ['PoolService/DeletePool', { network, name: 'web' }],
    ] as const)
      expect(await call(method, { version: 1, ...stale }), method).toMatchObject({
        reason: 'VERSION_MISMATCH',
        metadata: { expected: '1' },
      })
  })

  test('a number beyond the head: of a lease LEASE_NOT_FOUND, else VERSION_MISMATCH, and no alarm', async () => {
    const alarms: string[] = []
    const logger = pino({ level: 'error' }, { write: (line: string) => alarms.push(line) })
    const server = await serverOn({ ...running, logger })
    const { network, held } = await world()
    const lease = await held('a')
    const far = 2 ** 41
    const leaseId = `${network}/${far}`
    for (const [method, lost, reason] of [
      ['LeaseService/GetLease', { leaseId }, 'LEASE_NOT_FOUND'],
      ['LeaseService/Confirm', { leaseId }, 'LEASE_NOT_FOUND'],
      ['LeaseService/Release', { network, fencingToken: far }, 'LEASE_NOT_FOUND'],
      ['LeaseService/Reap', { leaseId, version: far, why: 'x' }, 'LEASE_NOT_FOUND'],
      ['LeaseService/UpdateLabels', { leaseId }, 'LEASE_NOT_FOUND'],
      ['AuditService/ListEvents', { leaseId }, 'LEASE_NOT_FOUND'],
      ['AuditService/GetLeaseHistory', { leaseId }, 'LEASE_NOT_FOUND'],
      ['LeaseService/Reap', { network, node: 'n1', head: far, why: 'x' }, 'VERSION_MISMATCH'],
      ['AuditService/ListEvents', { network, afterSeq: far }, 'VERSION_MISMATCH'],
      ['AuditService/GetAddressHistory', { network, address: '10.0.0.1', afterSeq: far }, 'VERSION_MISMATCH'],
      ['AuditService/ListLeasesAsOf', { network, seq: far }, 'VERSION_MISMATCH'],
      ['AuditService/ExplainAddress', { network, address: '10.0.0.1', seq: far }, 'VERSION_MISMATCH'],
    ] as const)
      expect(await post(urls(server), method, lost), method).toMatchObject({
        reason,
        message: expect.stringContaining("is beyond the log's head 3; if it was ever answered"),
        metadata: { beyondHead: '3' },
      })
    const version = { leaseId: lease.leaseId, version: far, why: 'x' }
    expect(await post(urls(server), 'LeaseService/Reap', version)).toMatchObject({
      reason: 'VERSION_MISMATCH',
      metadata: { version: '3', expected: String(far) },
    })
    // A reader that has seen everything is not one of those.
    expect((await ok('AuditService/ListEvents', { network, afterSeq: 3 })).events).toEqual([])
    await server.close()
    expect(alarms).toEqual([])
  })

  const nowhere = UNARY.flatMap(({ name, parent }) =>
    ['CreateNetwork', 'ListNetworks', 'GetServer'].includes(name)
      ? []
      : REQUESTS[name]!.map((one) => [
          `${parent.name}/${name}`,
          JSON.stringify(one).replaceAll('"default', '"nowhere'),
        ]),
  )
  test.each(nowhere)('NETWORK_NOT_FOUND: %s %s', async (method, body) => {
    expect(await call(method!, body)).toMatchObject({
      code: 'not_found',
      reason: 'NETWORK_NOT_FOUND',
      metadata: { network: 'nowhere' },
    })
  })

  test('POOL_NOT_FOUND and SOURCE_NOT_FOUND', async () => {
    const { network } = await world()
    for (const [method, lost] of [
      ['PoolService/GetPool', { name: 'none' }],
      ['PoolService/UpdatePool', { name: 'none' }],
      ['PoolService/DeletePool', { name: 'none' }],
      ['LeaseService/ListLeases', { pools: ['web', 'none'] }],
      ['AuditService/ListLeasesAsOf', { pool: 'none' }],
      ['LivenessService/Reconcile', { pool: 'none' }],
    ] as const)
      expect(await call(method, { network, ...lost }), method).toMatchObject({
        reason: 'POOL_NOT_FOUND',
        metadata: { pool: 'none' },
      })
    for (const [method, lost] of [
      ['EnableSource', { id: 'none' }],
      ['RetireSource', { id: 'none' }],
      ['BeginSnapshot', { source: 'none' }],
      ['ListSightings', { source: 'none' }],
      ['Reconcile', { source: 'none' }],
    ] as const)
      expect(await call(`LivenessService/${method}`, { network, ...lost }), method).toMatchObject({
        reason: 'SOURCE_NOT_FOUND',
        metadata: { source: 'none' },
      })
  })

  test('LEASE_NOT_FOUND: unknown, and how an old one ended', async () => {
    const { network, held } = await world(QUICK)
    // The number of an event that made no lease.
    const leaseId = `${network}/1`
    for (const [method, lost] of [
      ['LeaseService/GetLease', { leaseId }],
      ['LeaseService/GetLease', { network, address: '10.0.0.1' }],
      ['LeaseService/Confirm', { leaseId }],
      ['LeaseService/Release', { network, fencingToken: 1 }],
      ['LeaseService/Reap', { leaseId, version: 1, why: 'x' }],
      ['LeaseService/Confirm', { network, owner: { kind: 'pod', name: 'nobody', interface: 'eth0' } }],
      ['AuditService/GetLeaseHistory', { leaseId }],
      ['AuditService/ListEvents', { leaseId }],
    ] as const) {
      const told = await call(method, lost)
      expect(told.reason, method).toBe('LEASE_NOT_FOUND')
      if ('leaseId' in lost) expect(told.message).toBe(`there never was a lease ${leaseId}`)
    }
    const [released, reaped] = [await held('a'), await held('b')]
    await release(released.leaseId)
    await ok('LeaseService/Reap', { leaseId: reaped.leaseId, version: reaped.version, why: 'gone' })
    // The address goes to somebody else; what became of the first lease is still known.
    expect((await held('a', { claims: [{ address: released.address }] })).address).toBe(released.address)
    for (const [lease, state] of [
      [released, 'RELEASED'],
      [reaped, 'REAPED'],
    ] as const) {
      const { reason, metadata } = await call('LeaseService/GetLease', { leaseId: lease.leaseId })
      expect({ reason, metadata }).toEqual({
        reason: 'LEASE_NOT_FOUND',
        metadata: { state, endedAt: expect.stringMatching(/Z$/), address: lease.address },
      })
    }
  })

  test('ALREADY_EXISTS says what differs; the same content is answered with what exists', async () => {
    const { network } = await world()
    const pool = { network, name: 'made', cidr: '10.3.0.0/24', labels: { a: 'b' } }
    const made = await ok('PoolService/CreatePool', pool)
    expect(await ok('PoolService/CreatePool', pool)).toEqual(made)
    const other = { ...pool, cidr: '10.4.0.0/24', labels: { a: 'c' } }
    expect(await call('PoolService/CreatePool', other)).toMatchObject({
      reason: 'ALREADY_EXISTS',
      message: expect.stringContaining('cidr is "10.3.0.0/24", not "10.4.0.0/24"'),
      metadata: { differs: 'cidr,subnet,labels' },
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
    expect(late).toMatchObject({ code: 'deadline_exceeded', reason: 'DEADLINE_EXCEEDED' })
  })

  test('a pool or a network that was made is answered, whether it can be read by then or not', async () => {
    const gone = createPool({ url: 'postgresql://nobody@127.0.0.1:1/none', applicationName: 'test', max: 1 })
    const server = await serverOn({ ...running, reads: new Reads(gone) })
    onTestFinished(async () => {
      await server.close()
      await gone.end()
    })
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
  })

  test('a defect of ours is told without what it was', async () => {
    const network = () => Promise.reject(new TypeError('secret'))
    const reads = Object.assign(Object.create(running.reads), { network })
    const server = await serverOn({ ...running, reads })
    onTestFinished(() => server.close())
    const answer = await post(urls(server), 'NetworkService/GetNetwork', {})
    expect(answer.status).toBe(500)
    expect(answer.body).toEqual({
      code: codeToString(Code.Internal),
      message: expect.stringContaining('log'),
    })
    expect(JSON.stringify(answer.body)).not.toContain('secret')
  })
})
