/** LivenessService as callers see it: sources, what they report and list, what would follow, and what waits. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { proofOf } from '../../src/sources/proof.ts'
import { withClient } from '../support/database.ts'
import { serviceOn, useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { newNetwork, walk } from './running.ts'

const running = await useService()
const { time } = running
const { call } = running

const SECRET = 'select secret from ipledger.network_lock where network_id = $1'
const one = (url: string, text: string, network: string) =>
  withClient(url, async (client) => (await client.query(text, [network])).rows[0])

const { ok } = call
const live = (method: string, body: object) => ok(`LivenessService/${method}`, body)
const ready = async () => (await fetch(`${running.url}/readyz`)).text()

type Entry = { readonly address: string; readonly [field: string]: string }

/** A network with a pool and an enabled source of the whole of it that reports every second. */
async function world(sight: object = {}) {
  const network = await newNetwork(running, { cooldown: '0s' })
  const source = 'eyes'
  const declared = { network, id: source, sight: { ownerKinds: ['pod'], interval: '1s', ...sight } }
  await live('RegisterSource', declared)
  await live('EnableSource', { network, id: source })
  const begin = () => live('BeginSnapshot', { network, source })
  const report = async (entries: readonly Entry[], more: object = {}) => {
    const { sequence, head, begunAt } = await begin()
    const at = { network, source, epoch: 'e1', sequence, head, begunAt }
    return live('ReportSnapshot', { ...at, complete: true, entries, ...more })
  }
  /** So often; two intervals pass after each, so that the next counts. */
  const repeat = async (times: number, entries: readonly Entry[]) => {
    for (let turn = 0; turn < times; turn += 1, pass()) await report(entries)
  }
  const reserve = async (name: string, { node = '' } = {}) => {
    const owner = { kind: 'pod', name, node }
    return (await ok('LeaseService/Reserve', { network, owner, claims: [{ pool: 'web' }] })).leases[0]
  }
  return { network, source, declared, begin, report, repeat, reserve }
}

const pod = (address: string, name: string) => ({ address, kind: 'pod', name })
const RECOVER = {
  type: 'beginEra',
  actor: { name: 'operator', node: null },
  cause: 'recover',
  traceId: null,
  requestId: null,
  fingerprint: null,
  above: 0,
  recovering: true,
  why: 'restored',
} as const
/** Two intervals pass, so that the next report counts. */
const pass = () => {
  time.movedBy += 2_000
}

describe('sources', () => {
  test('a unix socket is registered only where the file on the server names it', async () => {
    const secrets = join(temporaryDirectory(), 'secrets.json')
    writeFileSync(secrets, '{"default/docker": {"origin": "unix:/var/run/docker.sock"}}')
    await using service = await serviceOn(running, { IPLEDGER_SOURCE_SECRETS: secrets })
    const docker = { kind: 'DOCKER', sight: { ownerKinds: ['container'] }, settings: { network: 'web' } }
    await service.call.ok('LivenessService/RegisterSource', { ...docker, id: 'docker' })
    expect(await service.call('LivenessService/RegisterSource', { ...docker, id: 'other' })).toMatchObject({
      reason: 'INVALID_FIELD',
      message: expect.stringContaining('add {"<network>/<source>": {"origin": "unix:/var/run/docker.sock"}}'),
    })
  })

  test('registered, declared again, enabled, retired: each answer is what List says', async () => {
    const { network, declared } = await world({ node: 'n1' })
    const other = { ...declared, id: 'other', kind: 'DOCKER', sight: { ownerKinds: ['container'] } }
    const settings = { network: 'sandboxes', host: '192.0.2.1', port: 2375 }
    const { source } = await live('RegisterSource', { ...other, settings })
    expect(source).toMatchObject({
      network,
      id: 'other',
      kind: 'DOCKER',
      state: 'REGISTERED',
      settings,
      sight: { node: '', ownerKinds: ['container'], families: [4, 6], interval: '60s' },
      registeredBy: 'loopback',
      epoch: '',
      status: 'COLD',
      counted: '0',
      partialBecause: [],
    })
    expect(await live('RegisterSource', { ...other, settings })).toEqual({ source })
    const moved = { ...declared, sight: { ...declared.sight, node: 'n2' } }
    expect((await call('LivenessService/RegisterSource', moved)).reason).toBe('ILLEGAL_STATE')
    const ids = async (asked: object) =>
      (await live('ListSources', { network, ...asked })).sources.map((one: { id: string }) => one.id)
    expect(await ids({})).toEqual(['eyes', 'other'])
    expect(await ids({ node: 'n1' })).toEqual(['eyes'])
    expect(await ids({ states: ['REGISTERED'] })).toEqual(['other'])
    expect(await live('GetSource', { network, id: 'other' })).toEqual({ source })
    expect(await call('LivenessService/GetSource', { network, id: 'none' })).toMatchObject({
      reason: 'SOURCE_NOT_FOUND',
      metadata: { network, source: 'none' },
    })
    const first = await live('ListSources', { network, pageSize: 1 })
    expect(first.sources).toMatchObject([{ id: 'eyes', state: 'ENABLED', enabledBy: 'loopback' }])
    const second = { network, pageSize: 1, pageToken: first.nextPageToken }
    expect(await live('ListSources', second)).toEqual({ sources: [source], nextPageToken: '' })
    const retired = await live('RetireSource', { network, id: 'other', requestId: 'r' })
    expect(retired).toMatchObject({ source: { state: 'RETIRED' }, unwitnessed: 0, unlisted: 0 })
    expect(await live('RetireSource', { network, id: 'other', requestId: 'r' })).toEqual(retired)
    const { reason } = await call('LivenessService/EnableSource', { network, id: 'other' })
    expect(reason).toBe('ILLEGAL_STATE')
  })

  test('enabling says what it is a witness of from now on, and wants a yes if it lists under half of it', async () => {
    const { network, declared, reserve } = await world()
    await live('RegisterSource', { ...declared, id: 'n1', sight: { ...declared.sight, node: 'n1' } })
    for (const name of ['a', 'b', 'c']) await reserve(name, { node: 'n1' })
    const { address } = await reserve('d', { node: 'n1' })
    const { sequence, head, begunAt } = await live('BeginSnapshot', { network, source: 'n1' })
    const report = { network, source: 'n1', epoch: 'e1', sequence, head, begunAt, complete: true }
    await live('ReportSnapshot', { ...report, entries: [pod(address, 'd')] })
    const refused = await call('LivenessService/EnableSource', { network, id: 'n1' })
    expect(refused).toMatchObject({
      reason: 'ILLEGAL_STATE',
      message: expect.stringMatching(
        /^source n1 would be a witness of 4 leases that are placed on node n1, and lists 1 of them\..* wrong node's name/,
      ),
      metadata: { source: 'n1', placed: '4', listed: '1' },
    })
    expect((await live('GetSource', { network, id: 'n1' })).source).toMatchObject({ state: 'REGISTERED' })
    const yes = { network, id: 'n1', acceptUnlisted: true }
    expect(await live('EnableSource', yes)).toMatchObject({
      source: { state: 'ENABLED' },
      placed: 4,
      listed: 1,
    })
    expect(await live('EnableSource', { network, id: 'n1' })).toMatchObject({ placed: 0, listed: 0 })
  })

  test('a dry run of enabling foresees what the next list does, and does none of it', async () => {
    const { network, declared, reserve } = await world()
    const source = 'n1'
    await live('RegisterSource', { ...declared, id: source, sight: { ...declared.sight, node: 'n1' } })
    const held = await reserve('a', { node: 'n1' })
    const other = await reserve('b', { node: 'n1' })
    const { sequence, head, begunAt } = await live('BeginSnapshot', { network, source })
    const entries = [
      pod(held.address, 'a'),
      pod(other.address, 'thief'),
      pod('10.0.0.9', 'c'),
      { address: '10.0.0.8', kind: 'vm', name: 'v' },
    ]
    await live('ReportSnapshot', {
      network,
      source,
      epoch: 'e1',
      sequence,
      head,
      begunAt,
      complete: true,
      entries,
    })
    const before = (await ok('NetworkService/GetNetwork', { name: network })).network.head
    const looked = await live('EnableSource', { network, id: source, validateOnly: true })
    expect(looked).toMatchObject({
      source: { id: source, state: 'ENABLED' },
      placed: 2,
      listed: 2,
      foreseen: { adopted: 1, quarantined: 2, confirmed: 1, omitted: 0 },
    })
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.head).toBe(before)
    expect((await live('GetSource', { network, id: source })).source.state).toBe('REGISTERED')
    const done = await live('EnableSource', { network, id: source })
    expect(done).toMatchObject({ placed: 2, listed: 2 })
    expect(done.foreseen).toBeUndefined()
  })

  test('retiring says what is no longer missed, and what is no longer seen', async () => {
    const { network, report, reserve } = await world()
    const lease = await reserve('a')
    await report([pod('10.0.0.9', 'b'), pod(lease.address, 'a')])
    expect(await live('RetireSource', { network, id: 'eyes' })).toMatchObject({
      unwitnessed: 1,
      unlisted: 1,
    })
  })
})

describe('reports', () => {
  test('warm up, count, and say what they are', async () => {
    const { network, begin, report, reserve } = await world()
    const lease = await reserve('a')
    const begun = await begin()
    expect(begun).toEqual({
      sequence: '1',
      head: lease.version,
      begunAt: expect.stringMatching(/Z$/),
      era: 0,
      interval: '1s',
      proof: expect.stringMatching(/^[A-Za-z0-9+/]{43}=$/),
    })
    const first = await report([pod(lease.address, 'a')])
    expect(first).toMatchObject({
      complete: true,
      counted: false,
      because: ['WARM_UP'],
      resend: false,
      verifications: [],
      nextSequence: '2',
    })
    pass()
    expect(await report([pod(lease.address, 'a')])).toMatchObject({ complete: true, because: ['WARM_UP'] })
    pass()
    expect(await report([pod(lease.address, 'a')])).toMatchObject({
      counted: true,
      because: [],
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    const late = await reserve('b')
    pass()
    await report([pod(lease.address, 'a'), pod(late.address, 'b')])
    const { lease: seen } = await ok('LeaseService/GetLease', { network, address: late.address })
    expect(seen).toMatchObject({ leaseId: late.leaseId, state: 'ACTIVE' })
    const [source] = (await live('ListSources', { network })).sources
    expect(source).toMatchObject({ epoch: 'e1', status: 'GOOD', size: 2, counted: '2', lastSequence: '4' })
  })

  test('the next report without asking again, and one that is unchanged', async () => {
    const { network, source, report, repeat, reserve } = await world()
    const lease = await reserve('a')
    await repeat(2, [pod(lease.address, 'a')])
    const { digest, nextSequence, nextHead, nextBegunAt } = await report([pod(lease.address, 'a')])
    const begun = { sequence: nextSequence, head: nextHead, begunAt: nextBegunAt }
    const next = { network, source, epoch: 'e1', ...begun }
    const { head } = (await ok('NetworkService/GetNetwork', { name: network })).network
    const same = await live('ReportSnapshot', { ...next, complete: true, unchanged: digest })
    expect(same).toMatchObject({ complete: true, resend: false, digest, nextSequence: '5' })
    const lost = { ...next, sequence: same.nextSequence, complete: true, unchanged: 'f'.repeat(64) }
    expect(await live('ReportSnapshot', lost)).toMatchObject({ resend: true, counted: false })
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.head).toBe(head)
  })

  test.each([
    [
      'to report once an hour',
      ({ declared }) =>
        live('RegisterSource', { ...declared, sight: { ...declared.sight, interval: '3600s' } }),
      { body: { resend: false, counted: false, because: ['TOO_SOON'] } },
    ],
    [
      'of a node that is gone',
      ({ network, head }) => ok('LeaseService/Reap', { network, node: 'n1', head, why: 'gone' }),
      { body: { resend: true, counted: false } },
    ],
    [
      'of a network in another era',
      ({ network }) => running.ledger.submit({ ...RECOVER, network }),
      { body: { resend: true, counted: false } },
    ],
  ] satisfies [
    string,
    (at: { network: string; declared: { sight: object }; head: string }) => Promise<unknown>,
    object,
  ][])(
    'after one that was unchanged its source is %s: the next is not taken as it was',
    async (_, change, expected) => {
      const { network, source, declared, report, repeat, begin, reserve } = await world({ node: 'n1' })
      const lease = await reserve('a')
      const entries = [pod(lease.address, 'a')]
      await repeat(2, entries)
      const { digest } = await report(entries)
      const said = { complete: true, unchanged: digest }
      pass()
      expect(await report([], { entries: undefined, ...said })).toMatchObject({
        resend: false,
        counted: true,
      })
      pass()
      const { sequence, head, begunAt } = await begin()
      await change({ network, declared, head })
      const next = { network, source, epoch: 'e1', sequence, head, begunAt, ...said }
      expect(await call('LivenessService/ReportSnapshot', next)).toMatchObject(expected)
    },
  )

  test('what cannot be read makes them partial, and protects all the same', async () => {
    const { network, report, reserve } = await world()
    const entries = [
      { address: '10.0.0.1' },
      { address: '::ffff:10.0.0.2', kind: 'pod', name: 'b' },
      { address: 'x' },
    ]
    expect(await report(entries)).toMatchObject({
      complete: false,
      because: ['UNREADABLE_ENTRY'],
      unreadable: 1,
      digest: '',
    })
    expect(await report([], { complete: false })).toMatchObject({ complete: false, because: ['DECLARED'] })
    expect((await reserve('a')).address).toBe('10.0.0.3')
    const { sightings } = await live('ListSightings', { network })
    expect(sightings).toMatchObject([
      { source: 'eyes', address: '10.0.0.1', state: '', listed: true, vanishedSeq: '0' },
      { address: '10.0.0.2', owner: { kind: 'pod', name: 'b', interface: '' } },
    ])
    expect(sightings[0]).not.toHaveProperty('owner')
    const page = await live('ListSightings', { network, pageSize: 1 })
    const rest = { network, pageSize: 1, pageToken: page.nextPageToken }
    expect((await live('ListSightings', rest)).sightings).toEqual([sightings[1]])
    const at = await live('ListSightings', { network, source: 'eyes', address: '10.0.0.2' })
    expect(at.sightings).toEqual([sightings[1]])
  })

  test('events of sources are told to those who ask for them', async () => {
    const { network, report } = await world()
    await report([pod('10.0.0.9', 'b')])
    const types = async (asked: object) =>
      (await ok('AuditService/ListEvents', { network, ...asked })).events.map(
        (one: { type: string }) => one.type,
      )
    expect(await types({})).toEqual(['network.created', 'pool.created'])
    const told = ['source.registered', 'source.enabled', 'source.reported']
    expect(await types({ includeSources: true })).toEqual(['network.created', 'pool.created', ...told])
    const { events } = await ok('AuditService/ListEvents', { network, types: ['source.reported'] })
    expect(events).toMatchObject([
      {
        type: 'source.reported',
        evidence: { source: 'eyes', epoch: 'e1', appeared: [{ address: '10.0.0.9' }] },
      },
    ])
  })

  test('however many, they end no recovery before its minimum time, and GetNetwork says so', async () => {
    const { network, repeat, reserve } = await world()
    await ok('NetworkService/BeginRecovery', { network, why: 'restored' })
    await repeat(8, [])
    const owner = { kind: 'pod', name: 'a' }
    const refused = await call('LeaseService/Reserve', { network, owner })
    expect(refused).toMatchObject({ reason: 'NETWORK_RECOVERING', retryAfter: '1s' })
    const { recovery } = (await ok('NetworkService/GetNetwork', { name: network })).network
    expect(recovery).toMatchObject({ sources: 1, unreported: ['eyes'] })
    expect(Date.parse(recovery.notBefore) - Date.parse(recovery.since)).toBe(POLICY.recoveryMs)
    time.movedBy += POLICY.recoveryMs
    await repeat(2, [])
    expect((await reserve('a')).address).toBe('10.0.0.1')
  })

  test('one of a later life of the log holds the network until it is resumed, if its proof is right', async () => {
    const { network, source, begin, report, reserve } = await world()
    await reserve('a')
    const { secret } = await one(running.database.adminUrl, SECRET, network)
    const head = 2 ** 41
    const proofs = [
      '',
      (await begin()).proof,
      proofOf(secret, network, 'other', head).toString('base64'),
      proofOf(secret, network, source, head + 1).toString('base64'),
    ]
    for (const proof of proofs) {
      const unproven = await report([pod('10.0.0.2', 'b')], { head, proof })
      expect(unproven).toMatchObject({ complete: false, counted: false, because: ['UNPROVEN_HEAD'] })
    }
    expect((await ok('NetworkService/GetNetwork', { name: network })).network.holds).toEqual([])
    expect((await live('ListSightings', { network })).sightings).toEqual([])
    const proof = proofOf(secret, network, source, head).toString('base64')
    const ahead = await report([], { head, proof })
    expect(ahead).toMatchObject({ complete: false, because: ['BEYOND_HEAD'] })
    // What the answer says of the next report has its proof as well.
    const next = Buffer.from(ahead.nextProof, 'base64')
    expect(next).toEqual(proofOf(secret, network, source, Number(ahead.nextHead)))
    const refused = await call('LeaseService/Reserve', { network, owner: { kind: 'pod', name: 'b' } })
    const toSay = expect.stringMatching(
      `: ipledger recover ${network}, or ipledger network resume ${network} --why …$`,
    )
    const held = { reason: 'NETWORK_RECOVERING', metadata: { state: 'HELD' }, message: toSay }
    expect(refused).toMatchObject({ ...held, retryAfter: undefined })
    const { holds } = (await ok('NetworkService/GetNetwork', { name: network })).network
    expect(holds).toMatchObject([{ cause: 'SOURCE_AHEAD', why: expect.stringContaining('eyes') }])
    const { items } = await live('ListAttention', { network, codes: ['HELD'] })
    expect(items).toMatchObject([{ code: 'HELD', text: expect.stringMatching(/./) }])
    // An answer of this page stands for a second, and the test has asked for it before.
    await expect.poll(ready, { timeout: 10_000 }).toContain('warning: 1 network is held')
    const clock = { network, cause: 'CLOCK', why: 'not that one' }
    expect((await live('ResumeHold', clock)).holds).toMatchObject([{ cause: 'SOURCE_AHEAD' }])
    expect(await live('ResumeHold', { network, why: 'a lie' })).toEqual({ holds: [] })
    expect((await reserve('b')).address).toBe('10.0.0.2')
  })
})

describe('what would follow', () => {
  test('a lease that everybody misses is asked for, answered for, and would be reaped', async () => {
    const { network, source, report, repeat, reserve } = await world()
    const reapPolicy = { minimumAge: '1s', unwitnessedAge: '1s', misses: 2 }
    await ok('PoolService/UpdatePool', { network, name: 'web', reapPolicy })
    const [gone, alive] = [await reserve('gone'), await reserve('live')]
    const all = [pod(gone.address, 'gone'), pod(alive.address, 'live')]
    const reconcile = async (asked: object = {}) => (await live('Reconcile', { network, ...asked })).findings
    await repeat(3, all)
    expect(await reconcile()).toEqual([])
    expect((await reconcile({ kept: true })).map((one: { address: string }) => one.address)).toEqual([
      gone.address,
      alive.address,
    ])
    const [kept] = await reconcile({ kept: true, address: alive.address })
    expect(kept).toMatchObject({ address: alive.address, verdict: 'keep' })
    expect(kept.because).toContainEqual(expect.objectContaining({ code: 'LISTED_LIVE', source }))
    await repeat(3, [pod(alive.address, 'live')])
    const [wanted] = await reconcile({ source })
    expect(wanted).toMatchObject({
      address: gone.address,
      lease: { leaseId: gone.leaseId, owner: { name: 'gone' } },
      verdict: 'ask',
      because: [{ code: 'LOOK_UP_WANTED', source }],
      evidence: { witnesses: [{ id: source, isEnabled: true }] },
    })
    await running.run('judge', network)
    expect(await reconcile()).toMatchObject([{ address: gone.address, verdict: 'ask' }])
    const { verifications } = await report([pod(alive.address, 'live')])
    expect(verifications).toMatchObject([
      { address: gone.address, leaseId: gone.leaseId, owner: { name: 'gone' } },
    ])
    const verdicts = [
      { id: verifications[0].id, answer: 'GONE', detail: 'no such pod' },
      { id: 'x', answer: 'LIVE' },
    ]
    const taken = await live('ReportVerdicts', { network, source, epoch: 'e1', verdicts })
    expect(taken).toEqual({ accepted: 1, ignored: 1 })
    expect(await reconcile()).toMatchObject([{ address: gone.address, verdict: 'reap', because: [] }])
    const held = (await ok('LeaseService/ListLeases', { network })).leases
    expect(held.map((one: { address: string }) => one.address)).toEqual([gone.address, alive.address])
  })

  test('a promise that was not kept would expire, unless the network recovers', async () => {
    const { network, reserve } = await world()
    const change = { confirmWithin: '1s', reapPolicy: { confirmGrace: '1s' } }
    await ok('PoolService/UpdatePool', { network, name: 'web', ...change })
    const lease = await reserve('late')
    time.movedBy += 60_000
    const [found] = (await live('Reconcile', { network })).findings
    expect(found).toMatchObject({
      address: lease.address,
      verdict: 'expire',
      evidence: { confirmBy: expect.any(Number) },
    })
  })

  test('a source is late for a STRICT pool and for attention at once', async () => {
    const { network, report, repeat, reserve } = await world()
    await ok('PoolService/UpdatePool', { network, name: 'web', liveness: 'STRICT' })
    await repeat(3, [])
    await report([])
    await reserve('a')
    const waiting = async () => (await live('ListAttention', { network })).items
    expect(await waiting()).toEqual([])
    // Two intervals and a little later.
    time.movedBy += 2_100
    await report([], { complete: false })
    const claims = [{ pool: 'web' }]
    const late = await call('LeaseService/Reserve', { network, owner: { kind: 'pod', name: 'b' }, claims })
    expect(late.reason).toBe('LIVENESS_STALE')
    expect(await waiting()).toMatchObject([{ code: 'SOURCE_PARTIAL', source: 'eyes' }])
  })

  test('what waits for somebody, the worst first, and the leases behind a line', async () => {
    const { network, reserve } = await world({ node: 'n1' })
    for (const name of ['a', 'b', 'c']) await reserve(name)
    await ok('LeaseService/Quarantine', { network, address: '10.0.0.9', why: 'printer' })
    time.movedBy += 60_000
    const pagesOf = async (asked: object, pageSize: number) => {
      const pages = await walk((pageToken) =>
        live('ListAttention', { network, ...asked, pageSize, pageToken }),
      )
      return pages.map(({ items }) => items)
    }
    const text = expect.stringMatching(/^No source watches this lease/)
    expect(await pagesOf({}, 2)).toMatchObject([
      [
        { code: 'SOURCE_SILENT', severity: 'ticket', source: 'eyes', count: '1', leaseId: '' },
        { code: 'OPERATOR_ONLY', address: '10.0.0.9' },
      ],
      [{ code: 'NO_WITNESS', count: '3', address: '10.0.0.1', text }],
    ])
    expect(await pagesOf({ source: 'eyes' }, 2)).toMatchObject([[{ code: 'SOURCE_SILENT' }]])
    expect(await pagesOf({ codes: ['NO_WITNESS'], each: true }, 2)).toMatchObject([
      [{ address: '10.0.0.1' }, { address: '10.0.0.2' }],
      [{ address: '10.0.0.3', count: '1', leaseId: expect.stringContaining(network) }],
    ])
  })

  test('pages of it', async () => {
    const { network, reserve } = await world()
    for (const name of ['a', 'b', 'c']) await reserve(name)
    const asked = { network, kept: true, pageSize: 2, pool: 'web' }
    const first = await live('Reconcile', asked)
    const second = await live('Reconcile', { ...asked, pageToken: first.nextPageToken })
    const addresses = [...first.findings, ...second.findings].map((one) => one.address)
    expect(addresses).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3'])
    expect([first.findings.length, second.nextPageToken]).toEqual([2, ''])
  })
})
