/** LivenessService as its callers meet it: each method over HTTP, one life of a source over gRPC. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, describe, expect, test } from 'vitest'
import { encodePage } from '../../src/api/page-token.ts'
import { createToken, openTokens } from '../../src/api/tokens.ts'
import { firstSeqOfEra } from '../../src/core/policy.ts'
import { LivenessService, SourceState } from '../../src/gen/ipledger/v1/liveness_pb.ts'
import { addDigests, digestOfGiven } from '../../src/liveness/entries.ts'
import { signToken } from '../../src/liveness/snapshot-token.ts'
import { createPool as connectionPool } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'
import { beginEra, createNetwork, createPool } from '../support/commands.ts'
import { withClient } from '../support/database.ts'
import { startProxy } from '../support/proxy.ts'
import { clientOf, post, serverOn, told, urls, useServer } from './running.ts'

const directory = mkdtempSync(join(tmpdir(), 'ipledger-tokens-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'tokens')
const TOKENS = {
  admin: createToken({ file, name: 'admin', role: 'admin' }),
  orchestrator: createToken({ file, name: 'orchestrator', role: 'orchestrator' }),
  agent: createToken({ file, name: 'agent-n1', role: 'agent', node: 'n1' }),
  bound: createToken({ file, name: 'bound', role: 'orchestrator', node: 'n1' }),
}
const tokens = openTokens(file, createLogger('silent'))
afterAll(() => tokens.close())

const running = await useServer({ tokens })
const { ledger, database } = running

type Who = keyof typeof TOKENS
const bearer = (who: Who) => ({ authorization: `Bearer ${TOKENS[who]}` })
const call = (method: string, body: object, who: Who = 'admin') =>
  post(running, `LivenessService/${method}`, body, bearer(who))

async function ok(method: string, body: object, who: Who = 'admin') {
  const answer = await call(method, body, who)
  if (answer.status !== 200) throw new Error(`${method}: ${JSON.stringify(answer.body)}`)
  return answer.body
}
const refused = async (method: string, body: object, who: Who = 'admin') =>
  told(await call(method, body, who))

const POD = { ownerKinds: ['pod'] }
const entry = (address: string, fields: object = {}) => ({
  address,
  kind: 'pod',
  name: `pod-${address}`,
  uid: `uid-${address}`,
  ...fields,
})

let networks = 0
/** A network of its own, with a pool and a source that is enabled. */
async function withSource(fields: { readonly enabled?: boolean; readonly sight?: object } = {}) {
  networks += 1
  const network = `live-${networks}`
  const source = 'eyes'
  await ledger.accept(createNetwork(network))
  await ledger.accept(createPool({ name: 'web', cidr: '10.0.0.0/16' }, { network }))
  await ok('RegisterSource', { network, id: source, sight: { ...POD, ...fields.sight } })
  if (fields.enabled !== false) await ok('EnableSource', { network, id: source })
  const named = { network, source }
  return {
    network,
    source,
    begin: async (who: Who = 'admin'): Promise<string> => (await ok('BeginSnapshot', named, who)).token,
    report: (body: object, who: Who = 'admin') =>
      ok('ReportSnapshot', { ...named, epoch: 'e1', complete: true, ...body }, who),
    sightings: async (body: object = {}) => (await ok('ListSightings', { ...named, ...body })).sightings,
    standing: async () => (await ok('ListSources', { network, id: source })).sources[0],
    head: async (): Promise<number> => (await running.reads.network(network))!.head,
  }
}

const sql = (text: string, values: readonly unknown[]) =>
  withClient(database.adminUrl, async (client) => (await client.query(text, [...values])).rows)

const partsOf = (network: string) =>
  sql('select part from ipledger.snapshot_part where network_id = $1', [network])

describe('sources', () => {
  test('a declaration comes back as it was made, with its defaults, in dry run', async () => {
    const { network } = await withSource()
    const before = Date.now()
    const { source } = await ok('RegisterSource', { network, id: 'least', sight: POD })
    expect(source).toMatchObject({
      network,
      id: 'least',
      kind: 'PUSH',
      sight: {
        node: '',
        ownerKinds: ['pod'],
        families: [4, 6],
        seesStopped: false,
        bootEndsAll: false,
        interval: '30s',
      },
      state: 'REGISTERED',
      registeredBy: 'admin',
      enabledHead: '0',
      epoch: '',
      warm: false,
      lastSequence: '0',
      held: false,
      partialBecause: [],
    })
    for (const absent of ['settings', 'enabledAt', 'reportedAt', 'completeAt', 'partialSince', 'retiredAt']) {
      expect(source).not.toHaveProperty(absent)
    }
    expect(Math.abs(Date.parse(source.registeredAt) - before)).toBeLessThan(60_000)
    const sight = {
      node: 'n1',
      ownerKinds: ['vm', 'pod', 'vm'],
      families: [6],
      seesStopped: true,
      bootEndsAll: true,
      interval: '90s',
    }
    expect((await ok('RegisterSource', { network, id: 'full', kind: 'PUSH', sight })).source).toMatchObject({
      sight: { ...sight, ownerKinds: ['pod', 'vm'] },
    })
    const settings = { network: 'sandboxes', labels: ['a=b'] }
    const docker = { network, id: 'docker', kind: 'DOCKER', sight: { ownerKinds: ['container'] }, settings }
    expect((await ok('RegisterSource', docker)).source).toMatchObject({
      kind: 'DOCKER',
      settings,
      sight: { interval: '60s' },
    })
  })

  test('the same again is the same; another declaration is in dry run again', async () => {
    const { network, source, head } = await withSource()
    const [enabled] = (await ok('ListSources', { network, id: source })).sources
    expect(enabled).toMatchObject({
      state: 'ENABLED',
      enabledBy: 'admin',
      enabledHead: String(await head()),
    })
    expect((await ok('RegisterSource', { network, id: source, sight: POD })).source).toEqual(enabled)
    expect((await ok('EnableSource', { network, id: source })).source).toEqual(enabled)
    const other = await ok('RegisterSource', { network, id: source, sight: { ...POD, interval: '10s' } })
    expect(other.source).toMatchObject({ state: 'REGISTERED', enabledHead: '0', enabledBy: '' })
  })

  test('one that is retired is over for good, with all that it saw', async () => {
    const { network, source, begin, report, sightings } = await withSource()
    await report({ token: await begin(), entries: [entry('10.0.9.1')] })
    expect(await sightings()).toHaveLength(1)
    const retired = await ok('RetireSource', { network, id: source })
    expect(retired.source).toMatchObject({ state: 'RETIRED', retiredAt: expect.any(String) })
    // What it listed was adopted.
    expect(retired).toMatchObject({ uncovered: 1, atLeast: false })
    expect(await sightings()).toEqual([])
    for (const [method, body] of [
      ['RegisterSource', { id: source, sight: POD }],
      ['EnableSource', { id: source }],
      ['BeginSnapshot', { source }],
      ['ReportSnapshot', { source, epoch: 'e1' }],
      ['ReportVerdicts', { source, epoch: 'e1', verdicts: [{ id: 'x', answer: 'GONE' }] }],
    ] as const) {
      expect(await refused(method, { network, ...body }), method).toMatchObject({
        code: 'failed_precondition',
        reason: 'ILLEGAL_STATE',
        metadata: { source, state: 'RETIRED' },
      })
    }
    expect((await ok('RetireSource', { network, id: source })).source.state).toBe('RETIRED')
  })

  const long = 'x'.repeat(254)
  test.each([
    [{ id: '' }, 'id'],
    [{ id: long }, 'id'],
    [{ id: 'a\nb' }, 'id'],
    [{ sight: undefined }, 'sight'],
    [{ kind: 9 }, 'kind'],
    [{ sight: {} }, 'sight.ownerKinds'],
    [{ sight: { ownerKinds: ['pod', 'Pod'] } }, 'sight.ownerKinds[1]'],
    [{ sight: { ownerKinds: Array.from({ length: 65 }, () => 'pod') } }, 'sight.ownerKinds'],
    [{ sight: { ...POD, node: long } }, 'sight.node'],
    [{ sight: { ...POD, bootEndsAll: true } }, 'sight.bootEndsAll'],
    [{ sight: { ...POD, families: [4, 5] } }, 'sight.families[1]'],
    [{ sight: { ...POD, families: [4, 4, 4] } }, 'sight.families'],
    [{ sight: { ...POD, interval: '0.999s' } }, 'sight.interval'],
    [{ sight: { ...POD, interval: '3601s' } }, 'sight.interval'],
    [{ settings: { network: 'x' } }, 'settings'],
    [{ kind: 'DOCKER', settings: {} }, 'settings.network'],
    [{ kind: 'DOCKER', settings: { network: 'x', token: 'secret' } }, 'settings.token'],
    [{ kind: 'DOCKER', settings: { network: 'a\u0000b' } }, 'settings'],
    [{ kind: 'DOCKER', sight: { ...POD, node: 'n1', bootEndsAll: true } }, 'sight.bootEndsAll'],
    [{ kind: 'KUBERNETES', sight: { ...POD, node: 'n1' } }, 'sight.node'],
    [{ kind: 'HTTP', settings: { listUrl: 'x'.repeat(20_000) } }, 'settings'],
  ])('%j is refused, and says where', async (fields, field) => {
    const answer = await refused('RegisterSource', { id: 'wrong', sight: POD, ...fields })
    expect(answer).toMatchObject({ code: 'invalid_argument', reason: 'INVALID_FIELD', metadata: { field } })
  })

  test('who is not there is said', async () => {
    const { network } = await withSource()
    const nobody = { network, id: 'nobody', source: 'nobody' }
    for (const [method, body] of [
      ['EnableSource', { network, id: 'nobody' }],
      ['RetireSource', { network, id: 'nobody' }],
      ['ListSnapshots', { network, source: 'nobody' }],
      ['ListSightings', { network, source: 'nobody' }],
      ['BeginSnapshot', { network, source: 'nobody' }],
      ['ReportSnapshot', { network, source: 'nobody', epoch: 'e' }],
      ['ResumeHold', { network, source: 'nobody', why: 'x' }],
    ] as const) {
      expect(await refused(method, body), method).toMatchObject({
        code: 'not_found',
        reason: 'SOURCE_NOT_FOUND',
        metadata: { source: nobody.source },
      })
    }
    expect((await ok('ListSources', { network, id: 'nobody' })).sources).toEqual([])
    for (const [method, body] of [
      ['RegisterSource', { id: 'x', sight: POD }],
      ['ListSources', {}],
      ['ListSnapshots', { source: 'x' }],
      ['ListSightings', {}],
      ['BeginSnapshot', { source: 'x' }],
      ['ReportSnapshot', { source: 'x', epoch: 'e' }],
      ['ReportVerdicts', { source: 'x', epoch: 'e', verdicts: [{ answer: 'LIVE' }] }],
      ['FenceNode', { node: 'n', boot: 'b', why: 'x' }],
      ['Reconcile', {}],
      ['ListHolds', {}],
      ['ResumeHold', { why: 'x' }],
      ['ListStuck', {}],
    ] as const) {
      expect(await refused(method, { network: 'nowhere', ...body }), method).toMatchObject({
        reason: 'NETWORK_NOT_FOUND',
        metadata: { network: 'nowhere' },
      })
    }
  })
})

describe('snapshots', () => {
  test('begun, reported, listed; what is new is in the books at once', async () => {
    const { network, source, report, sightings, standing, head } = await withSource()
    const before = await head()
    const begun = await ok('BeginSnapshot', { network, source })
    expect(begun).toMatchObject({ sequence: '1', era: 0, head: String(before), interval: '30s' })
    const seen = entry('10.0.0.9', { interface: 'eth0', node: 'n7', state: 'paused' })
    const reported = await report({
      token: begun.token,
      entries: [seen, entry('fe80::1'), { address: '10.0.0.8', network: 'another' }],
    })
    expect(reported).toMatchObject({
      sequence: '1',
      complete: true,
      counted: false,
      because: ['WARM_UP'],
      staged: false,
      resend: false,
      digest: expect.stringMatching(/./),
      unreadable: 0,
      verifications: [],
      era: 0,
      head: String(before),
    })
    expect(await sightings()).toMatchObject([
      {
        source,
        address: '10.0.0.9',
        owner: { kind: 'pod', name: 'pod-10.0.0.9', uid: 'uid-10.0.0.9', interface: 'eth0', node: 'n7' },
        state: 'paused',
        listed: true,
        appearedSequence: '1',
        vanishedSequence: '0',
      },
    ])
    const held = await post(
      running,
      'LeaseService/GetLease',
      { network, address: '10.0.0.9' },
      bearer('admin'),
    )
    expect(held.body.lease).toMatchObject({
      state: 'ACTIVE',
      address: '10.0.0.9',
      owner: { uid: 'uid-10.0.0.9' },
      fencingToken: String(before + 1),
    })
    expect(await standing()).toMatchObject({
      epoch: 'e1',
      warm: false,
      lastSequence: '1',
      completeHead: String(before),
      size: 1,
    })
    expect((await ok('ListSnapshots', { network, source })).snapshots).toMatchObject([
      {
        sequence: '1',
        epoch: 'e1',
        complete: true,
        head: String(before),
        entries: 1,
        ignored: 2,
        appeared: 1,
      },
    ])
  })

  test('in dry run nothing follows but that it is not handed out', async () => {
    const { network, begin, report, head } = await withSource({ enabled: false })
    const before = await head()
    await report({ token: await begin(), entries: [entry('10.0.0.1')] })
    expect(await head()).toBe(before)
    const owner = { kind: 'pod', name: 'asks' }
    const got = await post(running, 'LeaseService/Reserve', { network, owner }, bearer('admin'))
    expect(got.body.leases).toMatchObject([{ address: '10.0.0.2' }])
  })

  test('whatever is wrong makes it partial, and says why', async () => {
    const { begin, report, sightings, standing } = await withSource()
    expect(await report({ entries: [entry('10.0.0.1')] })).toMatchObject({
      complete: false,
      because: ['NO_TOKEN'],
      sequence: '0',
    })
    expect(await report({ token: 'forged', entries: [] })).toMatchObject({ because: ['TOKEN_INVALID'] })
    const token = await begin()
    const bad = [entry('10.0.0.2'), { address: '10.0.0.300' }, entry('10.0.0.3', { kind: 'No Kind' })]
    expect(await report({ token, complete: false, entries: bad })).toMatchObject({
      because: ['DECLARED', 'UNREADABLE_ENTRY'],
      unreadable: 2,
      sequence: '1',
    })
    expect(await report({ token, entries: [] })).toMatchObject({ because: ['OUT_OF_SEQUENCE'] })
    expect((await sightings()).map((one: { address: string }) => one.address)).toEqual([
      '10.0.0.1',
      '10.0.0.2',
      '10.0.0.3',
    ])
    expect(await standing()).toMatchObject({
      partialSince: expect.any(String),
      partialBecause: ['OUT_OF_SEQUENCE'],
    })
  })

  test('an unchanged set is told by its digest; another one is asked for', async () => {
    const { begin, report, sightings } = await withSource()
    const entries = [entry('10.0.0.1'), entry('10.0.0.2')]
    const { digest } = await report({ token: await begin(), entries })
    const same = await report({ token: await begin(), unchanged: digest })
    expect(same).toMatchObject({ complete: true, resend: false, digest, sequence: '2' })
    const token = await begin()
    for (const unchanged of ['another', digest.replace(/^2/, '3')]) {
      expect(await report({ token, unchanged })).toMatchObject({
        resend: true,
        complete: false,
        sequence: '0',
        digest: '',
      })
    }
    // With the same token, as the answer says.
    expect(await report({ token, entries })).toMatchObject({ complete: true, sequence: '3', digest })
    expect(await sightings()).toHaveLength(2)
  })

  test('20,000 entries in chunks, one of them twice; before the last nothing is seen', {
    timeout: 60_000,
  }, async () => {
    const { network, source, begin, report, sightings, standing } = await withSource({ enabled: false })
    const all = Array.from({ length: 20_000 }, (_, index) => entry(`10.0.${index >> 8}.${index & 255}`))
    const chunks = Array.from({ length: 8 }, (_, number) => all.slice(number * 2_500, (number + 1) * 2_500))
    const token = await begin()
    const total = { entries: all.length, digest: addDigests(chunks.map(digestOfGiven)) }
    for (const [number, entries] of chunks.slice(0, -1).entries()) {
      const staged = await report({ token, entries, chunk: { number } })
      expect(staged).toMatchObject({ staged: true, complete: false, sequence: '0', digest: '' })
      if (number === 3) await report({ token, entries, chunk: { number } })
    }
    expect(await sightings()).toEqual([])
    const reported = await report({ token, entries: chunks[7]!, chunk: { number: 7, total } })
    expect(reported).toMatchObject({ complete: true, because: ['WARM_UP'], sequence: '1', staged: false })
    expect(await standing()).toMatchObject({ size: 20_000 })
    const [last] = await sightings({ address: all.at(-1)!.address })
    expect(last).toMatchObject({ owner: { uid: all.at(-1)!.uid } })
    const pages = []
    for (let pageToken = ''; ; ) {
      const page = await ok('ListSightings', { network, source, pageSize: 1_000, pageToken })
      pages.push(page.sightings.length)
      pageToken = page.nextPageToken
      if (pageToken === '') break
    }
    expect(pages).toEqual(Array.from({ length: 20 }, () => 1_000))
    // One is missing; another is not what was sent.
    const again = await begin()
    await report({ token: again, entries: chunks[0]!, chunk: { number: 0 } })
    expect(await report({ token: again, entries: [], chunk: { number: 2, total } })).toMatchObject({
      because: ['CHUNK_MISSING'],
    })
    const third = await begin()
    await report({ token: third, entries: chunks[0]!, chunk: { number: 0 } })
    const wrong = { entries: 2_500, digest: '0'.repeat(64) }
    expect(await report({ token: third, entries: [], chunk: { number: 1, total: wrong } })).toMatchObject({
      because: ['DIGEST_DIFFERS'],
    })
  })

  const hex = '0'.repeat(64)
  test.each([
    ['ReportSnapshot', { epoch: '' }, 'epoch'],
    ['ReportSnapshot', { epoch: 'x'.repeat(254) }, 'epoch'],
    ['ReportSnapshot', { source: '' }, 'source'],
    ['ReportSnapshot', { unchanged: 'd', entries: [entry('10.0.0.1')] }, 'unchanged'],
    ['ReportSnapshot', { unchanged: 'd', chunk: { number: 0 } }, 'chunk'],
    ['ReportSnapshot', { chunk: { number: 200 } }, 'chunk.number'],
    ['ReportSnapshot', { chunk: { total: { entries: 200_001, digest: hex } } }, 'chunk.total.entries'],
    ['ReportSnapshot', { chunk: { total: { entries: 1, digest: 'x' } } }, 'chunk.total.digest'],
    ['ReportSnapshot', { seenHead: '9007199254740992' }, 'seenHead'],
    ['BeginSnapshot', { seenHead: '9007199254740992' }, 'seenHead'],
    ['BeginSnapshot', { network: 'No Network' }, 'network'],
    ['ReportVerdicts', {}, 'verdicts'],
    ['ReportVerdicts', { verdicts: [{ id: 'x' }] }, 'verdicts[0].answer'],
    ['ReportVerdicts', { verdicts: [{ answer: 'TERMINAL' }] }, 'verdicts[0].terminalSince'],
    [
      'ReportVerdicts',
      { verdicts: [{ answer: 'GONE', terminalSince: '2026-01-01T00:00:00Z' }] },
      'verdicts[0].terminalSince',
    ],
    ['ReportVerdicts', { verdicts: [{ answer: 'GONE', detail: 'ä'.repeat(513) }] }, 'verdicts[0].detail'],
    ['ReportVerdicts', { verdicts: Array.from({ length: 1_001 }, () => ({ answer: 'LIVE' })) }, 'verdicts'],
    ['ListSnapshots', {}, 'source'],
    ['ListSightings', { sequence: 1 }, 'sequence'],
    ['ListSightings', { address: '10.0.0.300' }, 'address'],
    ['ListSources', { states: ['SOURCE_STATE_UNSPECIFIED'] }, 'states[0]'],
    ['ListSources', { pageSize: 1_001 }, 'pageSize'],
    ['FenceNode', { boot: 'b', why: 'x' }, 'node'],
    ['FenceNode', { node: 'n', why: 'x' }, 'boot'],
    ['FenceNode', { node: 'n', boot: 'b' }, 'why'],
    ['ResumeHold', {}, 'why'],
    ['Reconcile', { pool: 'No Pool' }, 'pool'],
    ['Reconcile', { address: 'x' }, 'address'],
    ['ListStuck', { codes: [''] }, 'codes[0]'],
    ['ListStuck', { codes: ['HELD', 'PROOF_BLOKED'] }, 'codes[1]'],
  ])('%s %j is refused, and says where', async (method, fields, field) => {
    const whole = method.startsWith('Report') ? { source: 'eyes', epoch: 'e1' } : {}
    const named = method === 'BeginSnapshot' ? { source: 'eyes' } : {}
    expect(await refused(method, { ...whole, ...named, ...fields })).toMatchObject({
      code: 'invalid_argument',
      reason: 'INVALID_FIELD',
      metadata: { field },
    })
  })

  test('more entries than one request may have come in chunks', async () => {
    const { report, standing } = await withSource()
    const entries = Array.from({ length: 5_000 }, (_, index) => ({
      address: `10.0.${index >> 8}.${index & 255}`,
    }))
    expect(await report({ entries })).toMatchObject({ because: ['NO_TOKEN'] })
    const body = { network: (await standing()).network, source: 'eyes', epoch: 'e1' }
    expect(await refused('ReportSnapshot', { ...body, entries: [...entries, {}] })).toMatchObject({
      reason: 'INVALID_FIELD',
      metadata: { field: 'entries', why: expect.stringContaining('chunks') },
    })
  })

  test('a source that is asked does not report', async () => {
    const { network } = await withSource()
    const id = 'docker'
    await ok('RegisterSource', { network, id, kind: 'DOCKER', sight: POD, settings: { network: 'x' } })
    const { token } = await ok('BeginSnapshot', { network, source: id })
    for (const [method, body] of [
      ['ReportSnapshot', {}],
      ['ReportSnapshot', { chunk: { number: 0 } }],
      ['ReportSnapshot', { chunk: { number: 0 }, token }],
      ['ReportVerdicts', { verdicts: [{ answer: 'LIVE' }] }],
    ] as const) {
      const sent = { network, source: id, epoch: 'e1', ...body }
      expect(await refused(method, sent)).toMatchObject({ reason: 'ILLEGAL_STATE', metadata: { source: id } })
    }
    expect(await partsOf(network)).toEqual([])
  })

  test('one life of a source over gRPC', async () => {
    const { network, source } = await withSource()
    const liveness = clientOf(LivenessService, running, 'grpc')
    const headers = bearer('orchestrator')
    const { token, head } = await liveness.beginSnapshot({ network, source }, { headers })
    const reported = await liveness.reportSnapshot(
      { network, source, token, epoch: 'e1', complete: true, entries: [entry('10.0.0.7')], seenHead: head },
      { headers },
    )
    expect(reported).toMatchObject({ complete: true, sequence: 1n })
    const { digest: unchanged, nextToken, nextExpiresAt } = reported
    expect(nextExpiresAt!.seconds).toBeGreaterThan(BigInt(Math.floor(Date.now() / 1_000)))
    const again = await liveness.reportSnapshot(
      { network, source, token: nextToken, epoch: 'e1', complete: true, unchanged },
      { headers },
    )
    expect(again).toMatchObject({ complete: true, sequence: 2n, digest: unchanged })
    const { sources } = await liveness.listSources({ network, states: [SourceState.ENABLED] }, { headers })
    expect(sources).toMatchObject([{ id: source, size: 1 }])
  })
})

describe('verifications', () => {
  async function suspect(network: string, source: string) {
    const owner = {
      kind: 'pod',
      name: 'default/a',
      uid: 'u-1',
      incarnation: 'i',
      interface: 'eth0',
      node: 'n1',
    }
    const got = await post(running, 'LeaseService/Reserve', { network, owner }, bearer('admin'))
    const [lease] = got.body.leases
    await sql(
      `insert into ipledger.lookup
         (network_id, source_id, fencing_token, attachment_key, version, address, owner_kind, owner_name, owner_uid,
          owner_uid_named, owner_incarnation, owner_interface, node, wanted_at, epoch, detail, attempts)
       values ($1, $2, $3, 'pod|eth0|i|u-1', $4, $5, 'pod', 'default/a', 'u-1', true, 'i', 'eth0', 'n1', now(), '', '', 0)`,
      [network, source, lease.fencingToken, lease.version, lease.address],
    )
    return { lease, owner }
  }
  const answerOf = async (network: string) =>
    (
      await sql(
        'select answer, terminal_since, detail from ipledger.lookup where network_id = $1 and fencing_token > 0',
        [network],
      )
    )[0]

  test('asked with the answer to a report until they are answered', async () => {
    const { network, source, begin, report } = await withSource()
    const { lease, owner } = await suspect(network, source)
    const first = await report({ token: await begin(), entries: [] })
    expect(first.verifications).toMatchObject([
      { owner, address: lease.address, leaseId: lease.leaseId, id: expect.stringMatching(/./) },
    ])
    const { verifications } = await report({ token: await begin(), entries: [] })
    expect(verifications).toEqual(first.verifications)
    const { id } = verifications[0]
    const verdicts = [
      { id, answer: 'TERMINAL', terminalSince: '2026-01-02T03:04:05.678Z', detail: 'Failed:\n  OOMKilled' },
      { id: 'made-up', answer: 'GONE' },
    ]
    const send = (epoch: string) => ok('ReportVerdicts', { network, source, epoch, verdicts })
    expect(await send('e0')).toMatchObject({ accepted: 0, ignored: 2 })
    expect(await answerOf(network)).toMatchObject({ answer: null })
    const beyond = { network, source, epoch: 'e1', verdicts, seenHead: 10_000 }
    expect((await refused('ReportVerdicts', beyond)).reason).toBe('VERSION_MISMATCH')
    expect(await answerOf(network)).toMatchObject({ answer: null })
    expect(await send('e1')).toMatchObject({ accepted: 1, ignored: 1, era: 0 })
    expect(await answerOf(network)).toEqual({
      answer: 'terminal',
      terminal_since: Date.parse('2026-01-02T03:04:05.678Z'),
      detail: 'Failed:   OOMKilled',
    })
    expect(await send('e1')).toMatchObject({ accepted: 0, ignored: 2 })
    expect((await report({ token: await begin(), entries: [] })).verifications).toEqual([])
  })

  test.each(['0001-01-01T00:00:00Z', '1970-01-01T00:00:00Z'])(
    'an end at %s is no clear answer: its grace would be over at once (M-07)',
    async (terminalSince) => {
      const { network, source, begin, report } = await withSource()
      await suspect(network, source)
      const { verifications } = await report({ token: await begin(), entries: [] })
      const verdicts = [{ id: verifications[0].id, answer: 'TERMINAL', terminalSince }]
      expect(await ok('ReportVerdicts', { network, source, epoch: 'e1', verdicts })).toMatchObject({
        accepted: 1,
      })
      const [answered] = await sql(
        'select answer, terminal_since from ipledger.lookup where network_id = $1',
        [network],
      )
      expect(answered).toEqual({ answer: 'unknown', terminal_since: null })
    },
  )
})

describe('numbers beyond the head', () => {
  const BEYOND = [{ seenHead: 1_000 }, { seenEra: 1 }, { seenEra: 1, seenHead: String(firstSeqOfEra(1) + 5) }]
  const reports = (seen: object): readonly (readonly [string, object])[] => [
    ['BeginSnapshot', seen],
    ['ReportSnapshot', { ...seen, epoch: 'e1', complete: true, entries: [entry('10.0.0.5')] }],
    ['ReportSnapshot', { ...seen, epoch: 'e1', chunk: { number: 0 }, entries: [entry('10.0.0.5')] }],
    ['ReportVerdicts', { ...seen, epoch: 'e1', verdicts: [{ id: 'x', answer: 'GONE' }] }],
  ]

  test.each(BEYOND)('%j from anybody is refused, and changes nothing', async (seen) => {
    const { network, source, begin, sightings, standing, head } = await withSource({ sight: { node: 'n1' } })
    await ok('RegisterSource', { network, id: 'dry', sight: { ...POD, node: 'n1' } })
    const before = { head: await head(), standing: await standing() }
    const token = await begin()
    for (const [method, body] of [...reports(seen), ...reports({ ...seen, token }).slice(1, 3)]) {
      for (const [who, id] of [
        ['admin', source],
        ['orchestrator', source],
        ['bound', source],
        // Its own, but in dry run.
        ['agent', 'dry'],
      ] as const) {
        expect(
          await refused(method, { network, ...body, source: id }, who),
          `${method} by ${who}`,
        ).toMatchObject({
          code: 'aborted',
          reason: 'VERSION_MISMATCH',
          metadata: { beyondHead: String(before.head) },
        })
      }
    }
    expect({ head: await head(), standing: await standing() }).toEqual(before)
    expect(await sightings()).toEqual([])
    expect(await partsOf(network)).toEqual([])
    expect(await running.reads.network(network)).toMatchObject({ network: { era: 0, state: 'READY' } })
  })

  test.each(reports({ seenHead: 1_000 }))(
    '%s by the own token of an enabled source: the database is older than itself, a new era begins',
    async (method, body) => {
      const { network, source, head } = await withSource({ sight: { node: 'n1' } })
      expect(await ok(method, { network, source, ...body }, 'agent')).toMatchObject({ era: 1 })
      expect(await head()).toBeGreaterThanOrEqual(firstSeqOfEra(1))
      expect(await running.reads.network(network)).toMatchObject({ network: { era: 1, state: 'RECOVERING' } })
      const events = await post(
        running,
        'AuditService/ListEvents',
        { network, types: ['era.begun'] },
        bearer('admin'),
      )
      expect(events.body.events).toMatchObject([
        { actor: 'agent-n1', networkSettings: { era: 1, state: 'RECOVERING' } },
      ])
    },
  )

  test('so far ahead that nobody was ever given it: refused even then', async () => {
    const { network, source } = await withSource({ sight: { node: 'n1' } })
    expect(await refused('BeginSnapshot', { network, source, seenEra: 5_000 }, 'agent')).toMatchObject({
      reason: 'VERSION_MISMATCH',
      metadata: { beyondHead: expect.any(String) },
    })
    expect(await running.reads.network(network)).toMatchObject({ network: { era: 0 } })
  })

  test('in a token that we signed, whoever brings it: what it lists protects, and a new era begins', async () => {
    const { network, source, begin, report, sightings, head } = await withSource()
    await begin()
    const [{ secret }] = await sql('select secret from ipledger.signing_key where network_id = $1', [network])
    const later = { era: 0, head: (await head()) + 1_000, begunAt: Date.now(), sequence: 1 }
    const token = signToken({ network, source, ...later }, secret)
    const reported = await report({ token, entries: [entry('10.0.0.5')] }, 'orchestrator')
    expect(reported).toMatchObject({ complete: false, because: ['BEYOND_HEAD'] })
    expect(await sightings()).toMatchObject([{ address: '10.0.0.5', listed: true }])
    expect(await running.reads.network(network)).toMatchObject({ network: { era: 1, state: 'RECOVERING' } })
  })
})

describe('fencing', () => {
  test('says its number and how many leases it is about, and the same again for the same request', async () => {
    const { network, head } = await withSource()
    for (const [name, boot] of [
      ['a', 'b1'],
      ['b', 'b1'],
      ['c', 'b2'],
    ]) {
      const owner = { kind: 'pod', name, node: 'n3', boot }
      await post(running, 'LeaseService/Reserve', { network, owner }, bearer('admin'))
    }
    const fence = { network, node: 'n3', boot: 'b1', why: 'power is off', requestId: 'f-1' }
    const fenced = await ok('FenceNode', fence)
    expect(fenced).toEqual({ seq: String(await head()), leases: 2 })
    expect(await ok('FenceNode', fence)).toEqual(fenced)
    expect(await refused('FenceNode', { ...fence, boot: 'b2' })).toMatchObject({
      reason: 'REQUEST_ID_REUSED',
    })
    // As far as its caller had seen it.
    const named = await ok('FenceNode', { network, node: 'n3', boot: 'b3', why: 'x', head: fenced.seq })
    expect(named).toEqual({ seq: String(Number(fenced.seq) + 1), leases: 0 })
    const beyond = { network, node: 'n3', boot: 'b1', why: 'x', head: String(Number(named.seq) + 1) }
    expect(await refused('FenceNode', beyond)).toMatchObject({
      reason: 'VERSION_MISMATCH',
      metadata: { beyondHead: named.seq },
    })
    const events = await post(
      running,
      'AuditService/ListEvents',
      { network, types: ['node.fenced'] },
      bearer('admin'),
    )
    expect(events.body.events).toMatchObject([
      { seq: fenced.seq, evidence: { node: 'n3', boot: 'b1', why: 'power is off' } },
      { seq: named.seq, evidence: { node: 'n3', boot: 'b3', why: 'x', head: Number(fenced.seq) } },
    ])
  })
})

describe('a source that is not known', () => {
  const ofN2 = createToken({ file, name: 'agent-n2', role: 'agent', node: 'n2' })
  const remembered = (network: string) =>
    sql('select source_id, node, heard_from from ipledger.unknown_source where network_id = $1 order by 1', [
      network,
    ])

  test('is told to be registered, and waited for while the network recovers (12.1)', async () => {
    const { network } = await withSource({ sight: { node: 'n1' } })
    const report = { network, epoch: 'e1', complete: true, entries: [entry('10.0.0.1')] }
    const fromN2 = (method: string, body: object) =>
      post(running, `LivenessService/${method}`, body, { authorization: `Bearer ${ofN2}` })
    const first = await refused('BeginSnapshot', { network, source: 'cluster' })
    expect(first).toMatchObject({ reason: 'SOURCE_NOT_FOUND' })
    expect(first.message).toContain('register and enable it first')
    expect(await remembered(network)).toEqual([])

    await ledger.accept(beginEra(1, { network }))
    const begun = await refused('BeginSnapshot', { network, source: 'cluster' }, 'orchestrator')
    expect(begun).toMatchObject({ reason: 'SOURCE_NOT_FOUND' })
    expect(begun.message).toContain('the network recovers, and waits for that')
    // A token that is bound to a node is told the same of one that is there and of one that is not.
    await expect
      .poll(async () => told(await fromN2('ReportSnapshot', { ...report, source: 'n2' })).reason)
      .toBe('SOURCE_MISMATCH')
    expect(told(await fromN2('ReportSnapshot', { ...report, source: 'eyes' })).reason).toBe('SOURCE_MISMATCH')
    expect((await refused('ReportSnapshot', { ...report, source: 'eyes2', epoch: '' })).reason).toBe(
      'INVALID_FIELD',
    )
    expect(await remembered(network)).toEqual([
      { source_id: 'cluster', node: '', heard_from: 'orchestrator' },
      { source_id: 'n2', node: 'n2', heard_from: 'agent-n2' },
    ])
    const { stuck } = await ok('ListStuck', { network, codes: ['SOURCE_UNKNOWN'] })
    expect(stuck.map((one: { source: string }) => one.source)).toEqual(['cluster', 'n2'])
    const { body } = await post(running, 'NetworkService/GetNetwork', { name: network }, bearer('admin'))
    expect(body.network.recovery).toMatchObject({
      sources: 1,
      unreported: ['eyes'],
      unknown: ['cluster', 'n2'],
    })
  })

  test('and one in dry run, by whatever it says (12.1)', async () => {
    const { network } = await withSource()
    for (const id of ['begins', 'reports', 'silent']) await ok('RegisterSource', { network, id, sight: POD })
    const report = { network, epoch: 'e1', complete: true, entries: [entry('10.0.0.1')] }
    await ok('BeginSnapshot', { network, source: 'begins' })
    expect(await remembered(network)).toEqual([])
    await ledger.accept(beginEra(1, { network }))
    await ok('BeginSnapshot', { network, source: 'eyes' })
    await ok('BeginSnapshot', { network, source: 'begins' })
    await ok('ReportSnapshot', { ...report, source: 'reports' })
    expect((await remembered(network)).map(({ source_id }) => source_id)).toEqual(['begins', 'reports'])
    const { body } = await post(running, 'NetworkService/GetNetwork', { name: network }, bearer('admin'))
    expect(body.network.recovery).toMatchObject({ unknown: ['begins', 'reports'] })
  })

  test('is not remembered from whom may not report, or not there', async () => {
    const { network } = await withSource()
    await ledger.accept(beginEra(1, { network }))
    const auditor = createToken({ file, name: 'auditor', role: 'auditor' })
    const elsewhere = createToken({ file, name: 'elsewhere', role: 'orchestrator', networks: ['another'] })
    for (const token of [auditor, elsewhere]) {
      const said = () =>
        post(
          running,
          'LivenessService/BeginSnapshot',
          { network, source: 'x' },
          { authorization: `Bearer ${token}` },
        )
      await expect.poll(async () => told(await said()).reason).toBe('PERMISSION_DENIED')
    }
    expect(await remembered(network)).toEqual([])
  })
})

describe('what goes wrong', () => {
  /** Another server on the same database, and what it logs as an error. */
  async function elsewhere(options: Partial<Parameters<typeof serverOn>[0]>) {
    const logged: { readonly msg: string }[] = []
    const logger = pino({ level: 'error' }, { write: (line: string) => logged.push(JSON.parse(line)) })
    const server = await serverOn({ ...running, tokens, logger, ...options })
    return {
      logged,
      call: (method: string, body: object, who: Who = 'admin') =>
        post(urls(server), `LivenessService/${method}`, body, bearer(who)),
      [Symbol.asyncDispose]: () => server.close(),
    }
  }

  test('a boot that was fenced and reports is alive: that is an alarm (6.3)', async () => {
    await using there = await elsewhere({})
    const { network, source, begin, sightings } = await withSource({ sight: { node: 'n4' } })
    const report = async (epoch: string) => {
      const token = await begin()
      const entries = [entry('10.0.0.4')]
      const body = { network, source, token, epoch, complete: true, entries }
      expect((await there.call('ReportSnapshot', body)).status).toBe(200)
    }
    await report('b1')
    await ok('FenceNode', { network, node: 'n4', boot: 'b1', why: 'power is off' })
    await ok('FenceNode', { network, node: 'n5', boot: 'b2', why: 'another node' })
    expect(there.logged).toEqual([])
    await report('b1')
    expect(there.logged).toMatchObject([{ network, source, node: 'n4', boot: 'b1' }])
    await report('b2')
    expect(there.logged).toHaveLength(1)
    expect(await sightings()).toMatchObject([{ address: '10.0.0.4' }, { address: '10.0.0.4' }])
  })

  test('a report is taken whatever becomes of what it says', async () => {
    const refusing = {
      ok: false,
      refusal: { reason: 'OVERLOADED', message: 'full', metadata: {} },
    } as const
    for (const [submit, errors] of [
      [() => Promise.resolve(refusing), 0],
      [() => Promise.reject(new TypeError('a defect')), 1],
    ] as const) {
      await using there = await elsewhere({ ledger: { ...ledger, submit } })
      const { network, source, begin, sightings } = await withSource()
      const body = { network, source, epoch: 'e1', complete: true, entries: [entry('10.0.0.6')] }
      const reported = await there.call('ReportSnapshot', { ...body, token: await begin() })
      expect(reported).toMatchObject({ status: 200, body: { complete: true, sequence: '1' } })
      expect(await sightings()).toMatchObject([{ address: '10.0.0.6' }])
      expect(there.logged).toHaveLength(errors)
    }
  })

  test('without the database', async () => {
    const gone = connectionPool({
      url: 'postgresql://nobody@127.0.0.1:1/none',
      applicationName: 'test',
      max: 1,
    })
    const log = createLogger('silent')
    await using there = await elsewhere({ intake: { database: gone, log } })
    const { network, source } = await withSource()
    for (const [method, body] of [
      ['RegisterSource', { id: 'x', sight: POD }],
      ['BeginSnapshot', { source }],
      ['ReportSnapshot', { source, epoch: 'e1', entries: [] }],
      ['ReportVerdicts', { source, epoch: 'e1', verdicts: [{ id: 'x', answer: 'GONE' }] }],
      ['ListSources', {}],
      ['ListSightings', {}],
      ['Reconcile', {}],
      ['ListHolds', {}],
      ['ListStuck', {}],
    ] as const) {
      expect(told(await there.call(method, { network, ...body })), method).toMatchObject({
        code: 'unavailable',
        reason: 'DATABASE_UNAVAILABLE',
        retryAfter: '1s',
      })
    }
    expect(there.logged).toEqual([])
    await gone.end()
  })

  test('a connection that breaks while a report is written: nobody knows, and it is repeated with a new token', async () => {
    const proxy = await startProxy(database.serviceUrl)
    const through = connectionPool({ url: proxy.url, applicationName: 'test', max: 1 })
    await using there = await elsewhere({ intake: { database: through, log: createLogger('silent') } })
    const { network, source, begin, report, sightings } = await withSource()
    const body = { network, source, epoch: 'e1', complete: true, entries: [entry('10.0.0.3')] }
    proxy.loseNextCommit('after')
    const lost = await there.call('ReportSnapshot', { ...body, token: await begin() })
    expect(told(lost)).toMatchObject({ code: 'unavailable', reason: 'OUTCOME_UNKNOWN' })
    expect(await report({ token: await begin(), entries: body.entries })).toMatchObject({ complete: true })
    expect(await sightings()).toHaveLength(1)
    await through.end()
    await proxy.close()
  })

  test('a source whose row is locked for long: the report is refused, and may be repeated', async () => {
    const { network, source } = await withSource()
    const body = { network, source, epoch: 'e1', complete: true, entries: [entry('10.0.0.3')] }
    await withClient(database.adminUrl, async (admin) => {
      await admin.query('begin')
      await admin.query('select from ipledger.source where network_id = $1 for update', [network])
      expect(await refused('ReportSnapshot', body)).toMatchObject({ reason: 'DATABASE_UNAVAILABLE' })
      await admin.query('rollback')
    })
    expect((await call('ReportSnapshot', body)).status).toBe(200)
  })
})

describe('what would be done, and what waits', () => {
  test('what enabling a source would lead to, before it is enabled', async () => {
    const { network, source, begin, report, head } = await withSource({ enabled: false })
    const owner = { kind: 'pod', name: 'pod-10.0.0.1', uid: 'uid-10.0.0.1', interface: 'eth0' }
    await post(running, 'LeaseService/Reserve', { network, owner }, bearer('admin'))
    const entries = ['10.0.0.1', '10.0.0.7', '10.0.0.8', '192.0.2.1'].map((one) => entry(one))
    await report({ token: await begin(), entries })
    const before = await head()
    expect(await ok('Reconcile', { network })).toMatchObject({ findings: [], nextPageToken: '' })
    const asked = { network, asIfEnabled: source }
    const planned = await ok('Reconcile', asked)
    expect(planned).toMatchObject({
      findings: [
        {
          address: '10.0.0.1',
          verdict: 'confirm',
          lease: { state: 'RESERVED', pool: 'web' },
          because: [
            { code: 'CONFIRMED', source, text: expect.stringContaining('eyes lists pod pod-10.0.0.1') },
          ],
        },
        {
          address: '10.0.0.7',
          verdict: 'adopt',
          because: [{ code: 'ADOPTED' }],
          evidence: { source, epoch: 'e1' },
        },
        { address: '10.0.0.8', verdict: 'adopt' },
      ],
      head: String(before),
    })
    expect(planned.findings[1]).not.toHaveProperty('lease')
    const pages = []
    for (let pageToken = ''; ; ) {
      const page = await ok('Reconcile', { ...asked, pageSize: 1, pageToken })
      pages.push(...page.findings)
      pageToken = page.nextPageToken
      if (pageToken === '') break
    }
    expect(pages).toEqual(planned.findings)
    expect((await ok('Reconcile', { ...asked, address: '10.0.0.8' })).findings).toEqual([planned.findings[2]])
    expect(await head()).toBe(before)
    await ok('EnableSource', { network, id: source })
    const lease = await post(running, 'LeaseService/ListLeases', { network }, bearer('admin'))
    expect(lease.body.leases).toMatchObject([{ address: '10.0.0.1', state: 'RESERVED' }])
    expect((await ok('Reconcile', { network })).findings).toHaveLength(3)
  })

  test('who is not there', async () => {
    const { network } = await withSource()
    for (const [body, reason] of [
      [{ pool: 'none' }, 'POOL_NOT_FOUND'],
      [{ source: 'none' }, 'SOURCE_NOT_FOUND'],
      [{ asIfEnabled: 'none' }, 'SOURCE_NOT_FOUND'],
    ] as const) {
      expect((await refused('Reconcile', { network, ...body })).reason).toBe(reason)
    }
  })

  test('sources that nobody hears of, and holds', async () => {
    const { network, source, begin, report, head } = await withSource()
    await report({ token: await begin(), complete: false, entries: [] })
    await sql(`update ipledger.source set partial_since = now() - interval '1 day' where network_id = $1`, [
      network,
    ])
    await sql(`insert into ipledger.hold values ($1, $2, $3, now(), 'too many', 4, 10)`, [
      network,
      source,
      await head(),
    ])
    const { stuck } = await ok('ListStuck', { network })
    expect(stuck).toMatchObject([
      { code: 'HELD', source, since: expect.any(String), text: expect.stringContaining('too many') },
      { code: 'SOURCE_PARTIAL', source, text: expect.stringMatching(/./) },
    ])
    expect((await ok('ListStuck', { network, codes: ['SOURCE_PARTIAL'] })).stuck).toEqual([stuck[1]])
    const pages = []
    for (let pageToken = ''; ; ) {
      const page = await ok('ListStuck', { network, pageSize: 1, pageToken })
      pages.push(...page.stuck)
      pageToken = page.nextPageToken
      if (pageToken === '') break
    }
    expect(pages).toEqual(stuck)
    await ok('ResumeHold', { network, source, why: 'looked at' })
  })

  test.each([
    [
      'Reconcile',
      ['Reconcile', 'default', { pool: null, address: null, source: null, kept: false, asIfEnabled: null }],
    ],
    ['ListStuck', ['ListStuck', 'default', []]],
  ] as const)('%s: a forged position reaches nothing', async (method, asked) => {
    for (const position of ['x', 'ax', 'a10.0.0.0/33', '10.0.0.300', '\u0000', 's\u0000', "' or 1=1"]) {
      const answer = await refused(method, { pageToken: encodePage(position, asked) })
      expect(answer).toMatchObject({ reason: 'INVALID_FIELD', metadata: { field: 'pageToken' } })
    }
    const sound = method === 'Reconcile' ? '10.0.0.1' : 'a0.0.0.0/0'
    await ok(method, { pageToken: encodePage(sound, asked) })
  })
})

describe('holds', () => {
  test('are listed, that of the network first, and end by an operator', async () => {
    const { network, source, standing, head } = await withSource()
    expect((await ok('ListHolds', { network })).holds).toEqual([])
    const at = await head()
    await sql(
      `insert into ipledger.hold values ($1, '', $2, now(), 'half the network', 9, 18), ($1, $3, $2, now(), 'too many', 4, 10)`,
      [network, at, source],
    )
    const { holds } = await ok('ListHolds', { network })
    expect(holds).toMatchObject([
      { network, source: '', reaps: 9, leases: '18', why: 'half the network', seq: String(at) },
      { network, source, reaps: 4, leases: '10' },
    ])
    expect(await standing()).toMatchObject({ held: true })
    const resume = { network, why: 'it was drained', requestId: 'r-1' }
    expect((await ok('ResumeHold', resume)).holds).toEqual([holds[1]])
    expect(await standing()).toMatchObject({ held: true })
    expect((await ok('ResumeHold', { network, source, why: 'it too' })).holds).toEqual([])
    expect(await standing()).toMatchObject({ held: false })
    const after = await head()
    expect(after).toBe(at + 2)
    // Neither is there any more: no event.
    await ok('ResumeHold', resume)
    await ok('ResumeHold', { network, source, why: 'it too' })
    expect(await head()).toBe(after)
  })
})
