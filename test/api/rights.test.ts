/** Who may do what: every cell of the table, networks, nodes, tokens. */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Code, ConnectError } from '@connectrpc/connect'
import { afterAll, describe, expect, test } from 'vitest'
import type { Role } from '../../src/api/rights.ts'
import { createToken, isLoopback, openTokens, readTokens, TokenFileError } from '../../src/api/tokens.ts'
import { PoolService } from '../../src/gen/ipledger/v1/pool_pb.ts'
import { createLogger } from '../../src/telemetry.ts'
import { post } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { REQUESTS, UNARY } from './requests.ts'
import { clientOf, type Protocol, transportOf } from './running.ts'

const directory = mkdtempSync(join(tmpdir(), 'ipledger-tokens-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'tokens')
const log = createLogger('silent')

const TOKENS: Record<Role | 'agent2' | 'limited' | 'limitedAuditor' | 'bound' | 'boundAdmin', string> = {
  admin: createToken({ file, name: 'admin', role: 'admin' }),
  orchestrator: createToken({ file, name: 'orchestrator', role: 'orchestrator' }),
  auditor: createToken({ file, name: 'auditor', role: 'auditor' }),
  agent: createToken({ file, name: 'agent-n1', role: 'agent', node: 'n1' }),
  agent2: createToken({ file, name: 'agent-n2', role: 'agent', node: 'n2' }),
  limited: createToken({ file, name: 'limited', role: 'admin', networks: ['blue'] }),
  limitedAuditor: createToken({ file, name: 'limited-auditor', role: 'auditor', networks: ['blue', 'none'] }),
  bound: createToken({ file, name: 'bound', role: 'orchestrator', node: 'n1' }),
  boundAdmin: createToken({ file, name: 'bound-admin', role: 'admin', node: 'n1' }),
}
const sources = join(directory, 'sources.json')
writeFileSync(
  sources,
  '{"blue/vms": {"origin": "https://vms.example"}, "blue/pods": {"origin": "https://k8s"}}',
)
const running = await useService({ IPLEDGER_TOKENS: file, IPLEDGER_SOURCE_SECRETS: sources })

const as = (who: keyof typeof TOKENS) => ({ authorization: `Bearer ${TOKENS[who]}` })
const call = (who: keyof typeof TOKENS, method: string, body: unknown) => post(running, method, body, as(who))

await call('admin', 'NetworkService/CreateNetwork', { name: 'blue' })
for (const network of ['default', 'blue'])
  await call('admin', 'PoolService/CreatePool', { network, name: 'web', cidr: '10.0.0.0/24' })

/** The rights, written out once more. */
const TABLE: Record<string, readonly Role[]> = {
  'NetworkService/CreateNetwork': ['admin'],
  'NetworkService/UpdateNetwork': ['admin'],
  'NetworkService/GetNetwork': ['admin', 'orchestrator', 'auditor'],
  'NetworkService/ListNetworks': ['admin', 'orchestrator', 'auditor'],
  'NetworkService/BeginRecovery': ['admin'],
  'NetworkService/EndRecovery': ['admin'],
  'PoolService/CreatePool': ['admin'],
  'PoolService/UpdatePool': ['admin'],
  'PoolService/DeletePool': ['admin'],
  'PoolService/GetPool': ['admin', 'orchestrator', 'auditor'],
  'PoolService/ListPools': ['admin', 'orchestrator', 'auditor'],
  'PoolService/ListPoolTrends': ['admin', 'orchestrator', 'auditor'],
  'LeaseService/Reserve': ['admin', 'orchestrator', 'agent'],
  'LeaseService/BatchReserve': ['admin', 'orchestrator'],
  'LeaseService/Confirm': ['admin', 'orchestrator', 'agent'],
  'LeaseService/BatchConfirm': ['admin', 'orchestrator'],
  'LeaseService/Release': ['admin', 'orchestrator', 'agent'],
  'LeaseService/BatchRelease': ['admin', 'orchestrator'],
  'LeaseService/Quarantine': ['admin', 'orchestrator'],
  'LeaseService/Reap': ['admin'],
  'LeaseService/UpdateLabels': ['admin', 'orchestrator'],
  'LeaseService/GetLease': ['admin', 'orchestrator', 'agent', 'auditor'],
  'LeaseService/ListLeases': ['admin', 'orchestrator', 'agent', 'auditor'],
  'LeaseService/GetRequest': ['admin', 'orchestrator'],
  'LivenessService/RegisterSource': ['admin'],
  'LivenessService/EnableSource': ['admin'],
  'LivenessService/RetireSource': ['admin'],
  'LivenessService/GetSource': ['admin', 'orchestrator', 'auditor'],
  'LivenessService/ListSources': ['admin', 'orchestrator', 'auditor'],
  'LivenessService/ListSightings': ['admin', 'orchestrator', 'auditor'],
  'LivenessService/BeginSnapshot': ['admin', 'orchestrator', 'agent'],
  'LivenessService/ReportSnapshot': ['admin', 'orchestrator', 'agent'],
  'LivenessService/ReportVerdicts': ['admin', 'orchestrator', 'agent'],
  'LivenessService/Reconcile': ['admin', 'orchestrator', 'auditor'],
  'LivenessService/ResumeHold': ['admin'],
  'LivenessService/ListAttention': ['admin', 'orchestrator', 'auditor'],
  'AuditService/ListEvents': ['admin', 'orchestrator', 'auditor'],
  'AuditService/GetAddressHistory': ['admin', 'orchestrator', 'auditor'],
  'AuditService/GetLeaseHistory': ['admin', 'orchestrator', 'auditor'],
  'AuditService/ListLeasesAsOf': ['admin', 'orchestrator', 'auditor'],
  'AuditService/ExplainAddress': ['admin', 'orchestrator', 'auditor'],
  'AuditService/GetAddressMap': ['admin', 'orchestrator', 'auditor'],
  'AuditService/Find': ['admin', 'orchestrator', 'auditor'],
  'AuditService/VerifyNetwork': ['admin', 'orchestrator', 'auditor'],
  'ServerService/GetServer': ['admin', 'orchestrator', 'agent', 'auditor'],
}
const METHODS = UNARY.map(({ parent, name }) => `${parent.name}/${name}`)

test('no two services have a method of one name: rights and handlers go by it', () => {
  const names = METHODS.map((method) => method.split('/')[1])
  expect(new Set(names).size).toBe(names.length)
})

describe('roles', () => {
  test('the table is about every method', () => {
    expect(Object.keys(TABLE).sort()).toEqual([...METHODS].sort())
  })

  const cells = METHODS.flatMap((method) =>
    (['admin', 'orchestrator', 'agent', 'auditor'] as const).map((role) => [method, role] as const),
  )
  test.each(cells)('%s by %s', async (method, role) => {
    // Nothing in it is valid, so a right that is had shows as another refusal, or as an answer that changes nothing.
    const answer = await call(role, method, {})
    if (TABLE[method]!.includes(role)) {
      if (answer.status !== 200) expect(answer.reason).not.toMatch(/PERMISSION_DENIED|UNAUTHENTICATED/)
    } else {
      expect(answer.status).toBe(403)
      expect(answer).toMatchObject({
        code: 'permission_denied',
        reason: 'PERMISSION_DENIED',
        metadata: { role },
      })
    }
  })

  test.each(['admin', 'orchestrator', 'agent', 'auditor'] as const)(
    'GetServer says them to %s',
    async (role) => {
      const { caller } = (await call(role, 'ServerService/GetServer', {})).body
      const may = METHODS.filter((method) => TABLE[method]!.includes(role))
      expect([...caller.reads, ...caller.changes].sort()).toEqual([...may, 'LeaseService/WatchLeases'].sort())
      const isRead = (method: string) => /\/(Get|List|Watch|Explain|Find|Verify|Reconcile)/.test(method)
      expect(caller.reads.every(isRead)).toBe(true)
      expect(caller.changes.some(isRead)).toBe(false)
    },
  )

  test('GetServer says what limits a token', async () => {
    const { body: limited } = await call('limited', 'ServerService/GetServer', {})
    expect(limited.caller).toMatchObject({ name: 'limited', role: 'admin', networks: ['blue'], node: '' })
    const { body: agent } = await call('agent', 'ServerService/GetServer', {})
    expect(agent.caller).toMatchObject({ name: 'agent-n1', role: 'agent', networks: [], node: 'n1' })
  })

  test.each(METHODS)('%s by nobody', async (method) => {
    const answer = await post(running, method, {})
    expect(answer.status).toBe(401)
    expect(answer.headers.get('www-authenticate')).toBe('Bearer')
    expect(answer).toMatchObject({ code: 'unauthenticated', reason: 'UNAUTHENTICATED' })
  })

  test.each(['connect binary', 'grpc', 'grpc-web'] satisfies Protocol[])(
    '%s asks for a token too',
    async (protocol) => {
      const pools = clientOf(PoolService, running, protocol)
      const refused = (headers: Record<string, string>) =>
        pools.listPools({}, { headers }).then(
          () => null,
          (error: unknown) => ConnectError.from(error).code,
        )
      expect(await refused({})).toBe(Code.Unauthenticated)
      expect(await refused({ authorization: 'Bearer ipl_wrong' })).toBe(Code.Unauthenticated)
      expect(await refused(as('agent'))).toBe(Code.PermissionDenied)
      expect(await refused(as('auditor'))).toBeNull()
    },
  )

  test('probes and reflection need none', async () => {
    expect((await fetch(`${running.url}/healthz`)).status).toBe(200)
    expect((await fetch(`${running.url}/readyz`)).status).toBe(200)
    const { Health } = await import('../../src/gen/grpc/health/v1/health_pb.ts')
    const { createClient } = await import('@connectrpc/connect')
    await createClient(Health, transportOf(running, 'grpc')).check({})
    expect(
      (
        await fetch(`${running.url}/grpc.health.v1.Health/Check`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: '{}',
        })
      ).status,
    ).toBe(200)
  })

  test('the actor in the log is the token', async () => {
    const { body } = await call('orchestrator', 'LeaseService/Reserve', {
      owner: { kind: 'pod', name: 'actor' },
      claims: [{ pool: 'web' }],
    })
    const events = await call('auditor', 'AuditService/ListEvents', { leaseId: body.leases[0].leaseId })
    expect(events.body.events).toMatchObject([{ actor: 'orchestrator' }])
  })
})

describe('networks', () => {
  const OWNER = { kind: 'pod', name: 'net', incarnation: 'a', interface: 'eth0' }
  const request = { owner: OWNER, claims: [{ pool: 'web' }] }
  const elsewhere = UNARY.flatMap(({ name, parent }) =>
    ['ListNetworks', 'GetServer'].includes(name)
      ? []
      : REQUESTS[name]!.map((body) => [`${parent.name}/${name}`, body] as const),
  )
  test.each([
    ...elsewhere,
    // The default network, which needs no name.
    ['NetworkService/GetNetwork', {}],
    ['LeaseService/Reserve', request],
    ['LeaseService/Confirm', { fencingToken: 1 }],
    ['LeaseService/Release', { owner: OWNER }],
    ['LeaseService/BatchReserve', { requests: [request] }],
    ['AuditService/ListEvents', {}],
  ] as const)('%s %j is refused to a token of another network', async (method, body) => {
    expect(await call('limited', method, body)).toMatchObject({
      code: 'permission_denied',
      reason: 'PERMISSION_DENIED',
    })
  })

  test('its own network is served', async () => {
    const made = await call('limited', 'LeaseService/Reserve', { ...request, network: 'blue' })
    expect(made.status).toBe(200)
    const { leaseId } = made.body.leases[0]
    expect((await call('limited', 'LeaseService/GetLease', { leaseId })).status).toBe(200)
    const batch = await call('limited', 'LeaseService/BatchConfirm', {
      network: 'blue',
      requests: [{ leaseId }],
    })
    expect(batch.body.results[0].response.leases[0].state).toBe('ACTIVE')
  })

  test('an item of a batch cannot reach another network', async () => {
    const { body } = await call('limited', 'LeaseService/BatchRelease', {
      network: 'blue',
      requests: [{ leaseId: 'default/1' }, { network: 'default', fencingToken: 1 }],
    })
    expect(body.results.map((one: { error: { reason: string } }) => one.error.reason)).toEqual([
      'INVALID_FIELD',
      'INVALID_FIELD',
    ])
  })

  test('an auditor sees no ids of requests, by which a caller is answered again', async () => {
    const asked = { owner: OWNER, claims: [{ pool: 'web' }], requestId: 'only-mine' }
    expect((await call('orchestrator', 'LeaseService/Reserve', asked)).status).toBe(200)
    const ids = async (who: keyof typeof TOKENS) =>
      (await call(who, 'AuditService/ListEvents', {})).body.events.map(
        (one: { requestId: string }) => one.requestId,
      )
    expect(await ids('orchestrator')).toContain('only-mine')
    expect(new Set(await ids('auditor'))).toEqual(new Set(['']))
  })

  test('a token with networks registers only sources that the file on the server names', async () => {
    const register = (who: keyof typeof TOKENS, id: string, kind: string, settings: object) =>
      call(who, 'LivenessService/RegisterSource', {
        network: 'blue',
        id,
        kind,
        sight: { ownerKinds: [kind === 'KUBERNETES' ? 'pod' : 'vm'] },
        settings,
      })
    const at = (origin: string) => ({ listUrl: `${origin}/list`, lookUpUrl: `${origin}/{uid}` })
    const how = 'the file that IPLEDGER_SOURCE_SECRETS names on the server: add {"blue/'
    for (const [id, kind, settings] of [
      ['inside', 'HTTP', at('http://10.0.0.1')],
      ['cluster', 'KUBERNETES', {}],
      ['socket', 'DOCKER', { network: 'web', host: '10.0.0.1', port: 2375, kind: 'vm' }],
    ] as const) {
      expect(await register('limited', id, kind, settings)).toMatchObject({
        reason: 'PERMISSION_DENIED',
        message: expect.stringContaining(`${how}${id}": {"origin": "`),
      })
      expect(await register('admin', id, kind, settings)).toMatchObject({ status: 200 })
    }
    // What a caller of every network has registered is not sent elsewhere, or taken over.
    expect((await register('limited', 'inside', 'HTTP', at('http://10.0.0.2'))).reason).toBe(
      'PERMISSION_DENIED',
    )
    expect((await register('limited', 'vms', 'HTTP', at('http://10.0.0.1'))).reason).toBe('INVALID_FIELD')
    expect((await register('limited', 'vms', 'HTTP', at('https://vms.example'))).status).toBe(200)
    expect((await register('limited', 'pods', 'KUBERNETES', {})).status).toBe(200)
    expect((await register('limited', 'agent', 'PUSH', {})).status).toBe(200)
  })

  test('ListNetworks shows what may be seen', async () => {
    const names = async (who: keyof typeof TOKENS) =>
      (await call(who, 'NetworkService/ListNetworks', {})).body.networks.map(
        (one: { name: string }) => one.name,
      )
    expect(await names('auditor')).toEqual(['blue', 'default'])
    expect(await names('limitedAuditor')).toEqual(['blue'])
  })
})

describe('nodes', () => {
  const request = (name: string, node?: string) => ({
    owner: { kind: 'pod', name, incarnation: 'a', ...(node === undefined ? {} : { node }) },
    claims: [{ pool: 'web' }],
  })

  test.each(['agent', 'bound'] as const)('%s: its node is filled in, another is refused', async (who) => {
    const made = await call(who, 'LeaseService/Reserve', request(`${who}-own`))
    expect(made.body.leases[0].owner.node).toBe('n1')
    const named = await call(who, 'LeaseService/Reserve', request(`${who}-named`, 'n1'))
    expect(named.body.leases[0].owner.node).toBe('n1')
    const other = await call(who, 'LeaseService/Reserve', request(`${who}-other`, 'n2'))
    expect(other).toMatchObject({ reason: 'PERMISSION_DENIED', metadata: { node: 'n1' } })
  })

  test('an agent reads the leases of its own node, and no others', async () => {
    const own = (await call('agent', 'LeaseService/Reserve', request('read-own'))).body.leases[0]
    const other = (await call('admin', 'LeaseService/Reserve', request('read-other', 'n2'))).body.leases[0]
    const get = ({ leaseId }: { leaseId: string }) => call('agent', 'LeaseService/GetLease', { leaseId })
    expect((await get(own)).body.lease.address).toBe(own.address)
    expect(await get(other)).toMatchObject({ reason: 'PERMISSION_DENIED', metadata: { node: 'n1' } })
    const { leases } = (await call('agent', 'LeaseService/ListLeases', { pageSize: 1000 })).body
    const addresses = leases.map(({ address }: { address: string }) => address)
    expect(addresses).toContain(own.address)
    expect(addresses).not.toContain(other.address)
    expect((await call('agent', 'LeaseService/ListLeases', { node: 'n2' })).reason).toBe('PERMISSION_DENIED')
  })

  test('leases of another node are not touched', async () => {
    const { body } = await call('orchestrator', 'LeaseService/Reserve', request('far', 'n2'))
    const { leaseId, owner } = body.leases[0]
    const attachment = { kind: owner.kind, name: owner.name, incarnation: 'a', interface: 'eth0' }
    for (const method of ['LeaseService/Confirm', 'LeaseService/Release'])
      expect((await call('agent', method, { leaseId })).reason).toBe('PERMISSION_DENIED')
    // By owner, what is placed elsewhere is only an address that is taken.
    const confirmed = await call('agent', 'LeaseService/Confirm', { owner: attachment })
    expect(confirmed.reason).toBe('LEASE_NOT_FOUND')
    const released = await call('agent', 'LeaseService/Release', { owner: attachment })
    expect(released.body.leases ?? []).toEqual([])
    expect((await call('auditor', 'LeaseService/GetLease', { leaseId })).body.lease.state).toBe('RESERVED')
  })
})

test('a request id is of the node of its caller: nobody else can take it, or see it', async () => {
  const reserve = async (who: keyof typeof TOKENS, name: string) => {
    const owner = { kind: 'pod', name: `guessed-${name}`, incarnation: 'a' }
    const asked = { owner, claims: [{ pool: 'web' }], requestId: 'guessed' }
    return (await call(who, 'LeaseService/Reserve', asked)).body.leases?.[0].leaseId
  }
  const ids = [
    await reserve('agent2', 'of n2'),
    await reserve('agent', 'of n1'),
    await reserve('orchestrator', 'of none'),
  ]
  expect(new Set(ids).size).toBe(3)
  expect(ids).not.toContain(undefined)
  expect(await reserve('agent2', 'of n2')).toBe(ids[0])
  expect(await reserve('agent', 'of n1')).toBe(ids[1])
  // Whoever is bound to the node, or to none, shares.
  expect(await reserve('bound', 'of n1')).toBe(ids[1])
  expect(await reserve('admin', 'of none')).toBe(ids[2])
  const get = (who: keyof typeof TOKENS, node?: string) =>
    call(who, 'LeaseService/GetRequest', { requestId: 'guessed', node })
  const found = [await get('admin', 'n2'), await get('bound'), await get('admin')]
  expect(found.map(({ body }) => body.leases[0].leaseId)).toEqual(ids)
  expect((await get('bound', 'n2')).reason).toBe('PERMISSION_DENIED')
})

describe('sources', () => {
  const source = (id: string, node: string) =>
    call('admin', 'LivenessService/RegisterSource', { id, sight: { node, ownerKinds: ['pod'] } })
  const entries = [{ address: '10.0.0.200', kind: 'pod', name: 'seen' }]
  const at = { sequence: 1, head: 0, begunAt: new Date().toISOString() }
  const reports: readonly (readonly [string, object])[] = [
    ['LivenessService/BeginSnapshot', {}],
    ['LivenessService/ReportSnapshot', { ...at, epoch: 'e1', complete: true, entries }],
    ['LivenessService/ReportVerdicts', { epoch: 'e1', verdicts: [{ id: 'x', answer: 'GONE' }] }],
  ]

  test.each(reports)('%s: for a source of a node, its agent and the admin', async (method, body) => {
    expect((await source('eyes-n1', 'n1')).status).toBe(200)
    for (const who of ['agent', 'admin'] as const)
      expect((await call(who, method, { ...body, source: 'eyes-n1' })).status, who).toBe(200)
    await source('eyes-n2', 'n2')
    for (const [who, id] of [
      ['agent', 'eyes-n2'],
      ['bound', 'eyes-n2'],
      ['bound', 'eyes-n1'],
      ['boundAdmin', 'eyes-n2'],
      ['orchestrator', 'eyes-n1'],
    ] as const) {
      const refused = await call(who, method, { ...body, source: id })
      expect(refused, who).toMatchObject({ code: 'permission_denied', reason: 'SOURCE_MISMATCH' })
    }
    const seen = await call('auditor', 'LivenessService/ListSightings', { source: 'eyes-n2' })
    expect(seen.body.sightings).toEqual([])
  })

  test.each(reports)('%s: for one of the whole network, orchestrator and admin', async (method, body) => {
    await source('eyes-all', '')
    for (const who of ['orchestrator', 'admin'] as const)
      expect((await call(who, method, { ...body, source: 'eyes-all' })).status, who).toBe(200)
    for (const who of ['agent', 'bound', 'boundAdmin'] as const)
      expect((await call(who, method, { ...body, source: 'eyes-all' })).reason, who).toBe('SOURCE_MISMATCH')
  })

  test('who could report for a source keeps a recovery open by calling for one that is not registered', async () => {
    const network = 'blue'
    await call('admin', 'NetworkService/BeginRecovery', { network, why: 'restored' })
    for (const who of ['bound', 'boundAdmin', 'agent', 'agent2', 'orchestrator', 'limited'] as const)
      for (const [method, body] of reports) {
        const refused = await call(who, method, { ...body, network, source: `of ${who}` })
        expect(refused).toMatchObject({ code: 'not_found', reason: 'SOURCE_NOT_FOUND' })
      }
    const { body } = await call('auditor', 'NetworkService/GetNetwork', { name: network })
    const known = ['agent', 'agent2', 'boundAdmin', 'limited', 'orchestrator']
    expect(body.network.recovery.unknown).toEqual(known.map((who) => `of ${who}`))
    const listed = await call('auditor', 'LivenessService/ListAttention', {
      network,
      codes: ['SOURCE_UNKNOWN'],
    })
    const [first] = listed.body.items
    expect(first.text).toMatch(/^of agent calls, and the recovery waits .* \(it called from node n1\)$/)
    const types = ['recovery.extended']
    const { events } = (await call('auditor', 'AuditService/ListEvents', { network, types })).body
    expect(events).toHaveLength(known.length)
    expect(events[1]).toMatchObject({ actor: 'agent-n1', evidence: { source: 'of agent', node: 'n1' } })
    await call('admin', 'NetworkService/EndRecovery', { network, why: 'done' })
  })

  test('who registers or reaps for a node is bound to it, or to none', async () => {
    const declared = { id: 'eyes-bound', sight: { node: 'n2', ownerKinds: ['pod'] } }
    const lost = { node: 'n2', head: 1, why: 'x' }
    expect((await call('boundAdmin', 'LivenessService/RegisterSource', declared)).reason).toBe(
      'PERMISSION_DENIED',
    )
    expect((await call('boundAdmin', 'LeaseService/Reap', lost)).reason).toBe('PERMISSION_DENIED')
    expect((await call('admin', 'LivenessService/RegisterSource', declared)).status).toBe(200)
    expect((await call('admin', 'LeaseService/Reap', lost)).status).toBe(200)
  })
})

describe('tokens', () => {
  test('the file holds no token, and only its owner reads it', () => {
    const content = readFileSync(file, 'utf8')
    for (const token of Object.values(TOKENS)) expect(content).not.toContain(token.slice(4))
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(readTokens(file)[3]).toMatchObject({ name: 'agent-n1', role: 'agent', node: 'n1' })
  })

  test.each([
    [{ name: 'admin', role: 'admin' }, 'already'],
    [{ name: 'loopback', role: 'admin' }, 'loopback'],
    [{ name: 'No Name', role: 'admin' }, 'name must be'],
    [{ name: 'nodeless', role: 'agent' }, 'node is required'],
    [{ name: 'odd', role: 'king' as Role }, 'role'],
    [{ name: 'nets', role: 'admin', networks: ['Not A Network'] }, 'networks'],
  ] as const)('%j cannot be made', (wanted, why) => {
    const before = readFileSync(file, 'utf8')
    expect(() => createToken({ file, ...wanted })).toThrow(TokenFileError)
    expect(() => createToken({ file, ...wanted })).toThrow(why)
    expect(readFileSync(file, 'utf8')).toBe(before)
  })

  test('a file that cannot be used is refused with its line', () => {
    const broken = join(directory, 'broken')
    for (const [content, why] of [
      ['nonsense', 'line 1: not JSON'],
      ['\n{"name":"a"}', 'line 2: role'],
      [`${readFileSync(file, 'utf8').split('\n')[0]}\n`.repeat(2), 'line 2: the name admin is there twice'],
      [readFileSync(file, 'utf8').replace('"role":"admin"', '"role":"admin","extra":1'), 'extra'],
    ] as const) {
      writeFileSync(broken, content)
      expect(() => openTokens(broken, log)).toThrow(why)
    }
    expect(() => openTokens(join(directory, 'none'), log)).toThrow('no such file')
  })

  test.each([
    undefined,
    '',
    'Basic YTpi',
    'Bearer',
    'Bearer ',
    'Bearer a b',
    `Bearer ${'x'.repeat(600)}`,
    'ipl_wrong',
  ])('Authorization %j is refused', async (authorization) => {
    const answer = await post(
      running,
      'PoolService/ListPools',
      {},
      authorization === undefined ? {} : { authorization },
    )
    expect(answer.reason).toBe('UNAUTHENTICATED')
  })

  test('the scheme is read in any case', async () => {
    const answer = await post(
      running,
      'PoolService/ListPools',
      {},
      { authorization: `bearer ${TOKENS.auditor}` },
    )
    expect(answer.status).toBe(200)
  })

  test('a token that is added while the file is read first is not overlooked', async () => {
    const opened = openTokens(file, log)
    const early = createToken({ file, name: 'early', role: 'auditor' })
    await waitFor(() => opened.authenticate(`Bearer ${early}`))
    opened.close()
  })

  test('a new token works and a removed one does not, without a restart', async () => {
    const content = readFileSync(file, 'utf8')
    const late = createToken({ file, name: 'late', role: 'auditor' })
    const status = async () =>
      (await post(running, 'PoolService/ListPools', {}, { authorization: `Bearer ${late}` })).status
    await waitFor(async () => (await status()) === 200, { every: 100 })
    // An edit that breaks the file withdraws nothing.
    appendFileSync(file, 'nonsense\n')
    const others = await post(running, 'PoolService/ListPools', {}, as('auditor'))
    expect(others.status).toBe(200)
    writeFileSync(file, content)
    await waitFor(async () => (await status()) === 401, { every: 100 })
  })

  test('what counts as loopback', () => {
    for (const host of ['127.0.0.1', '127.1.2.3', '::1', 'localhost']) expect(isLoopback(host)).toBe(true)
    for (const host of ['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example', 'example', '']) {
      expect(isLoopback(host)).toBe(false)
    }
  })
})
