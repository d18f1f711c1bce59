/** Exhaustion, performance, stalls (group 8 of docs/incidents.md): what is refused holds nothing, and what is free is had. */
import { expect } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import { connect } from '../../src/postgres/connect.ts'
import { withClient } from '../support/database.ts'
import { emptyPool, sandbox, useIncidents, witnessesOf } from '../support/incident.ts'
import { useProxy } from '../support/proxy.ts'
import { serviceOn, useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const running = await useService()
const incident = useIncidents(running)

incident(
  '8.6 check-then-insert: as many Reserves at once as there are addresses get one each',
  [],
  async (scene) => {
    const { call, reality } = scene
    await scene.pool('10.8.6.0/24')
    await using second = await serviceOn(running)
    await using third = await serviceOn(running)
    const replicas = [call, second.call, third.call]
    // 256 less the first and the last of the subnet.
    const told = await Promise.all(
      Array.from({ length: 254 }, (_, index) =>
        replicas[index % 3]!('LeaseService/Reserve', scene.wants(sandbox(`s${index}`))),
      ),
    )
    expect(told.map(({ reason }) => reason).filter((reason) => reason !== '')).toEqual([])
    const addresses = told.map(({ body }) => body.leases[0].address as string)
    for (const [index, address] of addresses.entries())
      reality.start({ name: `s${index}`, addresses: [address] })
    const all = Array.from({ length: 254 }, (_, index) => `10.8.6.${index + 1}`)
    expect(new Set(addresses)).toEqual(new Set(all))
    // Of many more the pool has three, and all three are had.
    await scene.pool('10.86.0.0/29', { name: 'tight', exclude: ['10.86.0.4-10.86.0.6'] })
    const claims = [{ pool: 'tight' }]
    const crowd = await Promise.all(all.map((name) => scene.reserve(sandbox(name), { claims })))
    const served = crowd.flatMap(({ status, body }) => (status === 200 ? [body.leases[0].address] : []))
    expect(served.sort()).toEqual(['10.86.0.1', '10.86.0.2', '10.86.0.3'])
    expect(new Set(crowd.map(({ reason }) => reason))).toEqual(new Set(['', 'POOL_EXHAUSTED']))
  },
)

incident(
  '8.2 swallowed-timeout: a commit that hangs is an unknown outcome, and asking again gives one lease',
  [],
  async (scene) => {
    const { network, call } = scene
    await scene.pool('10.8.2.0/29')
    const proxy = await useProxy(running.database.adminUrl)
    const request = scene.wants(sandbox('once'), { requestId: 'only-once' })
    {
      const database = { ...running.database, adminUrl: proxy.url }
      await using far = await serviceOn({ ...running, database }, { IPLEDGER_DEADLINE_SECONDS: '3' })
      // The commit that hangs is that of the Reserve, and none of loading an image.
      await waitFor(async () => (await fetch(`${far.url}/readyz`)).ok)
      proxy.silentFromNextCommit()
      const told = await far.call('LeaseService/Reserve', request)
      expect(told.reason).toBe('OUTCOME_UNKNOWN')
      expect(JSON.stringify(told.body)).not.toContain('10.8.2.')
      proxy.silent(false)
      proxy.down(true)
    }
    // It arrived, so it is this lease; had it not, the same call would have made one.
    const [lease] = (await call.ok('LeaseService/Reserve', request)).leases
    expect(lease.address).toBe('10.8.2.1')
    const [again] = (await call.ok('LeaseService/Reserve', request)).leases
    expect(again.leaseId).toBe(lease.leaseId)
    expect((await call.ok('LeaseService/ListLeases', { network })).leases).toHaveLength(1)
    expect(await scene.events({ types: ['lease.reserved'] })).toHaveLength(1)
  },
)

incident(
  '8.3 deadline-consumed-waiting-for-lock: what was refused holds nothing, and others are served at once',
  [],
  async (scene) => {
    const { network, call, reality } = scene
    await scene.pool('10.8.16.0/20')
    await using slow = await serviceOn(running, { IPLEDGER_DEADLINE_SECONDS: '1' })
    const ask = (from: number, upTo: number) =>
      Promise.all(
        Array.from({ length: upTo - from }, (_, index) =>
          slow.call(
            'LeaseService/Reserve',
            scene.wants(sandbox(`herd-${from + index}`), { requestId: `herd-${from + index}` }),
          ),
        ),
      )
    const elephant = await connect({ url: running.database.adminUrl, applicationName: 'test' })
    // Somebody else holds the network's row until the first half has had its answers.
    await elephant.query('begin')
    await elephant.query('select 1 from ipledger.network_lock where network_id = $1 for update', [network])
    const told = await ask(0, 300)
    await elephant.query('commit')
    await elephant.end()
    told.push(...(await ask(300, 600)))
    const addresses: string[] = []
    let unserved = 0
    for (const [index, { status, reason, body }] of told.entries()) {
      if (status === 200) {
        addresses.push(body.leases[0].address)
        continue
      }
      unserved += 1
      // Out of time while it was being committed: whoever asks is told.
      if (reason === 'OUTCOME_UNKNOWN') {
        const found = await call.ok('LeaseService/GetRequest', { network, requestId: `herd-${index}` })
        if (found.committed) addresses.push(found.leases[0].address)
        continue
      }
      expect(['DATABASE_UNAVAILABLE', 'DEADLINE_EXCEEDED', 'OVERLOADED'], reason).toContain(reason)
    }
    expect(addresses.length, 'goodput').toBeGreaterThan(0)
    expect(unserved, 'more than it can do').toBeGreaterThan(0)
    for (const address of addresses) reality.start({ name: address, addresses: [address] })
    const held = await withClient(running.database.adminUrl, async (client) => {
      const { rows } = await client.query<{ address: string }>(
        'select host(address) as address from ipledger.lease where network_id = $1',
        [network],
      )
      return rows.map(({ address }) => address)
    })
    expect(new Set(held), 'held is what was answered').toEqual(new Set(addresses))
    expect(held).toHaveLength(addresses.length)
  },
)

incident('8.4 materialised-range: a /8 and a /48 cost what a /24 costs', [], async (scene) => {
  const { network, call } = scene
  for (const [name, cidr, first, last] of [
    ['four', '10.0.0.0/8', '10.0.0.1', '10.255.255.254'],
    ['six', 'fd00::/48', 'fd00::1', 'fd00::ffff:ffff:ffff:ffff:ffff'],
  ] as const) {
    await call.ok('PoolService/CreatePool', { network, name, cidr })
    const [any] = await scene.reserve.ok(sandbox(`${name}-any`), { claims: [{ pool: name }] })
    const claims = [{ pool: name, address: last }]
    const [named] = await scene.reserve.ok(sandbox(`${name}-last`), { claims })
    expect([any!.address, named!.address]).toEqual([first, last])
  }
  // Stored is what was handed out, and nothing of what was not.
  const touched = await withClient(running.database.adminUrl, (client) =>
    client.query('select from ipledger.lease where network_id = $1', [network]),
  )
  expect(touched.rowCount).toBe(4)
})

incident(
  '8.8 quarantine-as-denial-of-service: what nobody sees for three snapshots comes back by itself',
  ['DOUBT_IS_LIFE'],
  async (scene) => {
    const { reality } = scene
    await scene.pool('10.89.0.0/26')
    await scene.agent('n1')
    const orchestrator = await scene.newAgent('orchestrator', { node: '' })
    const { report } = orchestrator
    orchestrator.report = async () => undefined as never
    orchestrator.answers = () => ({ answer: 'GONE' })
    const told = await scene.reserve(sandbox('careful'), { liveAddresses: ['10.89.0.1', '10.89.0.2'] })
    expect(told.body.leases[0].address).toBe('10.89.0.3')
    reality.start({ name: 'careful', addresses: ['10.89.0.3'] })
    for (const address of ['10.89.0.1', '10.89.0.2'])
      expect((await scene.at(address))?.quarantine?.reason).toBe('FOREIGN')
    // They may be on any node: that the source of one does not see them says nothing, and the other is silent.
    await scene.longEnough()
    for (const address of ['10.89.0.1', '10.89.0.2'])
      expect(await scene.codes(address), address).toContain('WITNESS_NOT_WARM')
    // The caller was right about one of the two.
    reality.start({ name: 'not-ours', kind: 'sandbox', addresses: ['10.89.0.1'] })
    orchestrator.report = report
    await scene.longEnough()
    await scene.cycles(1)
    expect(await scene.at('10.89.0.2'), 'seen by nobody').toBeNull()
    expect(await scene.at('10.89.0.1'), 'seen live').toMatchObject({
      state: 'QUARANTINED',
      quarantine: { reason: 'FOREIGN' },
    })
    expect(await scene.codes('10.89.0.1')).toContain('LISTED_LIVE')
    const [reaped] = await scene.reaps({ address: '10.89.0.2' })
    expect(reaped).toMatchObject({ cause: 'PROVEN_ABSENT' })
    expect(witnessesOf(reaped)).toEqual(['orchestrator'])
    // It cools, and then it is handed out again, and the other is not.
    await scene.passes(10 * 60_000)
    const { addresses } = await emptyPool(scene)
    expect(addresses).toContain('10.89.0.2')
    expect(addresses).not.toContain('10.89.0.1')
  },
)

incident(
  '8.8 quarantine-as-denial-of-service: a source that cries wolf is capped, and beyond the cap nothing it sees is handed out',
  ['ONE_REPORTER_FILLS_NO_POOL'],
  async (scene) => {
    const { call, network } = scene
    await scene.pool('10.90.0.0/24')
    const wolf = await scene.agent('wolf', { node: '' })
    const cried = Array.from({ length: 100 }, (_, at) => ({ address: `10.90.0.${at + 1}` }))
    await scene.passes(30_000)
    await wolf.report({ entries: cried })
    await scene.jobs()
    const { leases } = await call.ok('LeaseService/ListLeases', { network, pageSize: 1_000 })
    expect(leases.length).toBe(POLICY.quarantinesPerCaller)
    expect(new Set(leases.map((one: { quarantine: { reason: string } }) => one.quarantine.reason))).toEqual(
      new Set(['FOREIGN']),
    )
    const { addresses, reason } = await emptyPool(scene)
    expect(reason).toBe('POOL_EXHAUSTED')
    expect(addresses).toHaveLength(154)
    const seen = new Set(cried.map(({ address }) => address))
    expect(addresses.filter((address) => seen.has(address))).toEqual([])
  },
)
