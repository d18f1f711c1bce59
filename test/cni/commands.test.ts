/** What the commands decide, on a real service, with what the node's namespaces say made by hand. */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Code, ConnectError } from '@connectrpc/connect'
import { afterAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createToken } from '../../src/api/tokens.ts'
import { CallFailed } from '../../src/client/call-failed.ts'
import { createClient } from '../../src/client/client.ts'
import { Attachments } from '../../src/cni/attachments.ts'
import { readCall } from '../../src/cni/call.ts'
import { CniError } from '../../src/cni/cni-error.ts'
import { type AgentContext, type Context, deliver, runCommand } from '../../src/cni/commands.ts'
import { rpc } from '../support/rpc.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'

const directory = mkdtempSync(join(tmpdir(), 'ipledger-commands-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'tokens')
const admin = createToken({ file, name: 'admin', role: 'admin' })
const onN2 = createToken({ file, name: 'agent-n2', role: 'agent', node: 'n2' })
const { url } = await useService({ IPLEDGER_TOKENS: file })
const call = rpc(url, { token: admin })
await call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24', cooldown: '0s' })
const client = createClient({ url, token: admin })

/** Of the node: what is configured in the namespace of a path, and what is seen in any. */
let configured = new Map<string, readonly string[] | null>()
let seen: readonly string[] = []
let complete = true
let scans = 0
const namespaces: Context['namespaces'] = {
  addressesOf: async (places) =>
    places.map(({ netns }) => configured.get(netns) ?? (configured.has(netns) ? null : [])),
  scanNode: async () => {
    scans += 1
    return { seen: [], all: new Set(seen), complete, namespaces: new Map() }
  },
}

let state = ''
let warned: string[] = []
beforeEach(() => {
  state = mkdtempSync(join(directory, 'state-'))
  warned = []
  configured = new Map()
  seen = []
  complete = true
  scans = 0
})
const attachmentsAt = (stateDir = state) => new Attachments(stateDir, (message) => warned.push(message))
const contextOf = (more: Partial<Context> = {}): Context => ({
  client,
  node: 'n1',
  attachments: attachmentsAt(),
  namespaces,
  patienceMs: 10_000,
  agent: null,
  ...more,
})
/** An agent with these addresses for outages. */
const agentWith = (spares: Partial<AgentContext['spares']> = {}): AgentContext => ({
  seenLive: () => [],
  reserved: async () => {},
  spares: { of: () => null, take: async () => null, forget: () => {}, free: 0, ...spares },
})
/** Where no service is. */
const away = createClient({ url: 'http://127.0.0.1:9' })

type More = {
  readonly netns?: string
  readonly on?: string
  readonly args?: string
  readonly config?: object
}
const named = (name: string) => `${name}-${randomUUID()}`
const run = (command: string, container: string, context: Context, more: More = {}) => {
  const env = {
    CNI_CONTAINERID: container,
    CNI_NETNS: more.netns ?? `/run/netns/${container}`,
    CNI_IFNAME: more.on ?? 'eth0',
  }
  const config = { cniVersion: '1.1.0', name: 'blue', ipam: { type: 'ipledger-cni' }, ...more.config }
  return runCommand(
    readCall({ ...env, CNI_COMMAND: command, CNI_ARGS: more.args ?? '' }, JSON.stringify(config)),
    context,
  )
}
/** The address that ADD answers. */
const add = async (container: string, context: Context, more: More = {}): Promise<string> =>
  JSON.parse((await run('ADD', container, context, more)).stdout).ips[0].address.split('/')[0]

type Held = { readonly leaseId: string; readonly owner?: { readonly uid: string } }
const holderOf = async (address: string): Promise<Held | null> => {
  const { status, body } = await call('LeaseService/GetLease', { address })
  return status === 200 ? body.lease : null
}
/** A lease of a spare address, as an agent reserves it, and a context of an agent that hands it out in an outage. */
async function spareFor(): Promise<{ readonly address: string; readonly outage: Context }> {
  const name = named('spare')
  const { leases } = await client.leases.reserve({
    owner: { kind: 'reserve', name, interface: 'eth0', node: 'n1' },
    confirmed: true,
  })
  const agent = agentWith({ take: async () => leases })
  return { address: leases[0]!.address, outage: contextOf({ client: away, agent }) }
}
const podArgs = (uid: string) =>
  `IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=${uid};K8S_POD_UID=${uid}`
const owner = (uid: string) =>
  ({ kind: 'container', name: uid, uid, incarnation: '', interface: 'eth0' }) as const
/** The only release that waits; null: its file is empty. */
function rewrite(change: object | null): void {
  const [written] = attachmentsAt().files('removed', 'default')
  const path = files().find((one) => readFileSync(one, 'utf8').includes('"isRemoved":true'))!
  writeFileSync(path, change === null ? '' : JSON.stringify({ ...written, ...change }))
  utimesSync(path, 0, 0)
}
const files = () => readdirSync(join(state, 'attachments')).map((name) => join(state, 'attachments', name))
const aside = () => files().filter((path) => statSync(path).mtimeMs > Date.now())
/** An hour passes for what was set aside. */
const anHourLater = () => {
  for (const path of aside()) {
    const ahead = statSync(path).mtimeMs - Date.now()
    expect(ahead).toBeGreaterThan(3_500_000)
    expect(ahead).toBeLessThanOrEqual(3_600_000)
    utimesSync(path, new Date(), new Date())
  }
}

describe('the node', () => {
  test('ADD without an agent wants its name; DEL goes by what ADD wrote down', async () => {
    const container = named('c')
    const nameless = contextOf({ node: '' })
    await expect(add(container, nameless)).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('ipam.node'),
    })
    const address = await add(container, contextOf())
    expect((await run('DEL', container, nameless)).exitCode).toBe(0)
    expect(await holderOf(address)).toBeNull()
    expect(warned).toEqual([])
  })

  test('DEL under another name of the node releases what ADD answered', async () => {
    for (const args of ['', podArgs(named('pod'))]) {
      const container = named('c')
      const address = await add(container, contextOf(), { args })
      await run('DEL', container, contextOf({ node: 'renamed' }), { args })
      expect(await holderOf(address), args).toBeNull()
    }
  })

  test('what nothing was written down of, and of which the node is not known, is set aside', async () => {
    await run('DEL', named('c'), contextOf({ node: '' }))
    expect(warned).toEqual([expect.stringContaining('ipam.node')])
    anHourLater()
    expect(await deliver('default', contextOf())).toBe(0)
    expect(aside()).toEqual([])
  })
})

describe('a spare address', () => {
  test('DEL releases it with its own owner, though the agent that gave it is gone', async () => {
    for (const args of ['', podArgs(named('pod'))]) {
      const { address, outage } = await spareFor()
      const container = named('c')
      expect(await add(container, outage, { args })).toBe(address)
      await run('DEL', container, outage, { args })
      expect(await deliver('default', contextOf())).toBe(0)
      expect(await holderOf(address), args).toBeNull()
    }
  })

  test('without a path it is looked for as any other address', async () => {
    const { address, outage } = await spareFor()
    const container = named('c')
    await add(container, outage)
    seen = [address]
    await run('DEL', container, outage, { netns: '' })
    expect(await deliver('default', contextOf())).toBe(1)
    expect(await holderOf(address)).not.toBeNull()
  })

  test('ADD again gives the same, also when the service is back; what the service refuses gets none', async () => {
    const { leases } = await client.leases.reserve({
      owner: { kind: 'reserve', name: named('spare'), interface: 'eth0', node: 'n1' },
      confirmed: true,
    })
    const { address } = leases[0]!
    expect(await add(named('c'), contextOf({ agent: agentWith({ of: () => leases }) }))).toBe(address)
    const agent = agentWith({ take: async () => leases })
    const config = { ipam: { type: 'ipledger-cni', pools: ['none'] } }
    await expect(add(named('c'), contextOf({ agent }), { config })).rejects.toThrow('POOL_NOT_FOUND')
  })

  test('an id that is another’s, as after a restore, releases nothing', async () => {
    const theirs = await add(named('other'), contextOf())
    const { leaseId } = (await holderOf(theirs))!
    const { address, outage } = await spareFor()
    const container = named('c')
    await add(container, outage)
    await run('DEL', container, outage)
    rewrite({ leases: [{ leaseId, address, owner: { ...owner('x'), kind: 'reserve' } }] })
    expect(await deliver('default', contextOf())).toBe(0)
    expect((await holderOf(theirs))?.leaseId).toBe(leaseId)
    expect(warned).toEqual([])
  })

  test('CHECK knows it before and after it is adopted, and says when it is gone', async () => {
    const { address, outage } = await spareFor()
    const container = named('c')
    await add(container, outage)
    const netns = `/run/netns/${container}`
    configured.set(netns, [address])
    const config = { prevResult: { cniVersion: '1.1.0', ips: [{ address: `${address}/24` }] } }
    const check = () => run('CHECK', container, contextOf(), { config })
    expect((await check()).exitCode).toBe(0)
    const { leaseId } = (await holderOf(address))!
    await call.ok('LeaseService/Release', { leaseId })
    await expect(check()).rejects.toMatchObject({ code: 101 })
    // As it is adopted: for the container, with an id of its own.
    await client.leases.reserve({ owner: { ...owner(container), node: 'n1' }, claims: [{ address }] })
    expect((await check()).exitCode).toBe(0)
    configured.set(netns, [])
    await expect(check()).rejects.toMatchObject({ code: 102 })
    const again = (await holderOf(address))!.leaseId
    await call.ok('LeaseService/Quarantine', { leaseId: again, why: 'looks odd' })
    await expect(check()).rejects.toMatchObject({ code: 101 })
  })
})

test('an address that another host answers for is not given, nor written down; what is given is confirmed later', async () => {
  const added: string[] = []
  const agent = agentWith()
  const probed = { ...agent, reserved: () => Promise.reject(new CniError('inUse', 'another host answers')) }
  const confirming: AgentContext = {
    ...agent,
    reserved: async (_, leases) => void added.push(leases[0]!.address),
  }
  await expect(add(named('c'), contextOf({ agent: probed }))).rejects.toMatchObject({ code: 103 })
  expect(attachmentsAt().files('inUse', 'default')).toEqual([])
  const address = await add(named('c'), contextOf({ agent: confirming }))
  expect(added).toEqual([address])
})

describe('a plugin without an agent', () => {
  test('DEL succeeds while the service is away, and the next ADD delivers what it left', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    expect((await run('DEL', container, contextOf({ client: away }))).exitCode).toBe(0)
    expect(await holderOf(address)).not.toBeNull()
    await add(named('c'), contextOf({ agent: agentWith() }))
    expect(await holderOf(address), 'an agent has a loop').not.toBeNull()
    await add(named('c'), contextOf())
    expect(await holderOf(address)).toBeNull()
  })

  test('an address that cools is to be tried again', async () => {
    const network = named('net')
    await call.ok('NetworkService/CreateNetwork', { name: network })
    await call.ok('PoolService/CreatePool', { network, name: 'slow', cidr: '10.9.0.0/30', cooldown: '3600s' })
    const config = { ipam: { type: 'ipledger-cni', network } }
    const first = named('c')
    const address = await add(first, contextOf(), { config })
    await run('DEL', first, contextOf(), { config })
    await expect(add(named('c'), contextOf(), { config, args: `IP=${address}` })).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('ADDRESS_COOLING'),
    })
  })
})

describe('the path of a namespace', () => {
  test.each([
    ['a plain file', true],
    ['a namespace of somebody else', false],
  ])('%s: the addresses are looked for in all', async (_, isFile) => {
    const container = named('c')
    const netns = join(state, 'netns')
    if (isFile) writeFileSync(netns, '')
    else configured.set(netns, ['10.7.7.7'])
    const address = await add(container, contextOf(), { netns })
    seen = [address]
    await run('DEL', container, contextOf(), { netns })
    expect(await holderOf(address)).not.toBeNull()
    seen = ['10.7.7.7']
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await holderOf(address)).toBeNull()
    expect(warned).toEqual([])
  })

  test('one without the interface, as of a name that is used again: the same', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    configured.set(`/run/netns/${container}`, [])
    seen = [address]
    await run('DEL', container, contextOf())
    expect(await holderOf(address)).not.toBeNull()
  })

  test('what its interface still has is not looked for elsewhere', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    configured.set(`/run/netns/${container}`, [address])
    await run('DEL', container, contextOf())
    expect(await holderOf(address)).not.toBeNull()
    expect(scans).toBe(0)
  })
})

test('what ended between list and release is delivered', async () => {
  const container = named('c')
  const address = await add(container, contextOf())
  rmSync(join(state, 'attachments'), { recursive: true })
  const listLeases: typeof client.leases.listLeases = async (asked, options) => {
    const answer = await client.leases.listLeases(asked, options)
    for (const { leaseId } of answer.leases) await client.leases.release({ leaseId })
    // Somebody else's now.
    await client.leases.reserve({ owner: { ...owner(named('next')), node: 'n2' }, claims: [{ address }] })
    return answer
  }
  const late = { ...client, leases: { ...client.leases, listLeases } }
  await run('DEL', container, contextOf({ client: late }))
  expect(warned).toEqual([])
})

describe('a namespace without a path', () => {
  test.each([
    ['a container', ''],
    ['a pod', podArgs('hidden')],
  ])('%s keeps its address while any namespace has it, or may have it', async (_, args) => {
    const container = named('c')
    const address = await add(container, contextOf(), { args })
    seen = [address]
    await run('DEL', container, contextOf(), { args, netns: '' })
    expect(await holderOf(address)).not.toBeNull()
    seen = []
    complete = false
    expect(await deliver('default', contextOf())).toBe(1)
    expect(await holderOf(address)).not.toBeNull()
    complete = true
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await holderOf(address)).toBeNull()
  })

  test('nothing was written down: what the ledger says it holds is looked for', async () => {
    for (const args of ['', podArgs(named('pod'))]) {
      const container = named('c')
      const address = await add(container, contextOf(), { args })
      seen = [address]
      const elsewhere = contextOf({ attachments: attachmentsAt(join(state, args === '' ? 'a' : 'b')) })
      await run('DEL', container, elsewhere, { args, netns: '' })
      expect(await holderOf(address), args).not.toBeNull()
      seen = []
      expect(await deliver('default', elsewhere)).toBe(0)
      expect(await holderOf(address), args).toBeNull()
    }
  })

  test('what another interface and another sandbox hold is theirs', async () => {
    const uid = named('pod')
    for (const args of ['', podArgs(uid)]) {
      const container = named('c')
      const address = await add(container, contextOf(), { args })
      const other = await add(args === '' ? container : named('c'), contextOf(), {
        args,
        on: args === '' ? 'eth1' : 'eth0',
      })
      rmSync(join(state, 'attachments'), { recursive: true })
      seen = [other]
      await run('DEL', container, contextOf(), { args, netns: '' })
      expect(await holderOf(address), args).toBeNull()
      expect(await holderOf(other), args).not.toBeNull()
    }
  })

  test('one scan serves all releases', async () => {
    const called = { network: 'default', configuration: 'blue', node: 'n1', netns: '' }
    for (let n = 0; n < 3; n += 1) attachmentsAt().removed({ ...called, owner: owner(named('c')) })
    expect(await deliver('default', contextOf())).toBe(0)
    expect(scans).toBe(1)
  })
})

describe('a release that cannot be delivered', () => {
  const refused = { leases: [{ leaseId: 'x', address: 'x', owner: owner('x') }] }
  const beyond = { leases: [{ leaseId: 'default/999999', address: 'x', owner: owner('x') }] }
  test.each([
    ['an id that the service refuses', refused, 'INVALID_FIELD'],
    ['an id of a later log', beyond, 'LEASE_NOT_FOUND'],
    ['an empty file', null, 'JSON'],
    ['a file of something else', { leases: null }, 'leases'],
  ])(
    '%s is set aside and named, and tried again after an hour; the others go on',
    async (_, change, because) => {
      const [bad, good] = [named('bad'), named('good')]
      await add(bad, contextOf())
      const address = await add(good, contextOf())
      const outage = contextOf({ client: away, agent: agentWith() })
      await run('DEL', bad, outage)
      rewrite(change)
      await run('DEL', good, outage)
      expect(await deliver('default', contextOf())).toBe(0)
      expect(await holderOf(address), 'the others go on').toBeNull()
      const [name, ...more] = aside()
      expect(more).toEqual([])
      const words = expect.stringMatching(new RegExp(`${name}.*${because}`, 's'))
      expect(warned).toEqual([words])
      expect((await run('STATUS', '', contextOf())).note).toContain('1 releases are set aside')
      expect(await deliver('default', contextOf())).toBe(0)
      expect(warned).toHaveLength(1)
      anHourLater()
      expect(await deliver('default', contextOf())).toBe(0)
      expect(warned).toEqual([words, words])
    },
  )

  test('of a namespace that cannot be read waits, and is named once; the others go on', async () => {
    const [bad, good] = [named('bad'), named('good')]
    const address = await add(bad, contextOf())
    const other = await add(good, contextOf())
    configured.set(`/run/netns/${bad}`, null)
    const agent = contextOf({ agent: agentWith() })
    for (const container of [bad, good]) await run('DEL', container, agent)
    for (let times = 0; times < 2; times += 1) expect(await deliver('default', agent)).toBe(1)
    expect([await holderOf(address), await holderOf(other)]).toEqual([expect.anything(), null])
    expect(warned).toEqual([expect.stringContaining(`/run/netns/${bad} cannot be read`)])
    expect(aside()).toEqual([])
    configured.clear()
    expect(await deliver('default', agent)).toBe(0)
    expect(await holderOf(address)).toBeNull()
  })

  test.each([
    ['a defect of the service', Code.Internal],
    ['what is not known', Code.Unknown],
    ['a proxy’s refusal', Code.PermissionDenied],
  ])('because of %s stops no other, and is tried again as soon as the agent tries', async (_, code) => {
    const [bad, good] = [named('bad'), named('good')]
    const addressOfBad = await add(bad, contextOf())
    const { leaseId } = attachmentsAt().files('inUse', 'default')[0]!.leases[0]!
    const address = await add(good, contextOf())
    const outage = contextOf({ client: away, agent: agentWith() })
    for (const container of [bad, good]) await run('DEL', container, outage)
    const release: typeof client.leases.release = (asked, options) =>
      asked.leaseId === leaseId
        ? Promise.reject(new CallFailed(new ConnectError('broken', code)))
        : client.leases.release(asked, options)
    const broken = { ...client, leases: { ...client.leases, release } }
    await expect(deliver('default', contextOf({ client: broken }))).rejects.toThrow('broken')
    expect(await holderOf(address)).toBeNull()
    expect(warned).toEqual([])
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await holderOf(addressOfBad)).toBeNull()
  })

  test('of another network is delivered by the agent, and left by a plugin of this one', async () => {
    const network = named('net')
    await call.ok('NetworkService/CreateNetwork', { name: network })
    await call.ok('PoolService/CreatePool', { network, name: 'web', cidr: '10.0.0.0/24' })
    const config = { ipam: { type: 'ipledger-cni', network } }
    const container = named('c')
    const address = await add(container, contextOf(), { config })
    const held = async () => (await call('LeaseService/GetLease', { network, address })).body.lease?.owner
    await run('DEL', container, contextOf({ client: away, agent: agentWith() }), { config })
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await held()).toMatchObject({ uid: container })
    expect(await deliver(null, contextOf({ agent: agentWith() }))).toBe(0)
    expect(await held()).toBeUndefined()
  })

  test('of another node’s token: it names the lease and the way out, and is done when an operator has reaped', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    const { leaseId } = (await holderOf(address))!
    const renamed = contextOf({ client: createClient({ url, token: onN2 }), node: 'n2' })
    await run('DEL', container, renamed)
    expect(warned).toEqual([
      expect.stringMatching(`PERMISSION_DENIED.*ipledger reap.*${leaseId} \\(${address}\\)`),
    ])
    const { lease } = await call.ok('LeaseService/GetLease', { leaseId })
    await call.ok('LeaseService/Reap', { leaseId, version: lease.version, why: 'its node was renamed' })
    anHourLater()
    expect(await deliver('default', renamed)).toBe(0)
    expect(aside()).toEqual([])
  })

  test('of an unknown network: the same', async () => {
    const config = { ipam: { type: 'ipledger-cni', network: 'nowhere' } }
    for (const args of ['', podArgs(named('pod'))])
      await run('DEL', named('c'), contextOf(), { args, config })
    expect(warned).toEqual(['', ''].map(() => expect.stringContaining('NETWORK_NOT_FOUND')))
  })

  test('while the service is away, or knows no such token, it waits', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    await run('DEL', container, contextOf({ client: away, agent: agentWith() }))
    // What speaks no TLS is no service either.
    const silent = createClient({ url: url.replace('http', 'https') })
    for (const nobody of [away, silent, createClient({ url, token: 'none' })])
      await expect(deliver('default', contextOf({ client: nobody }))).rejects.toThrow()
    expect(aside()).toEqual([])
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await holderOf(address)).toBeNull()
  })

  test('an ADD waits for the release of its attachment that is under way', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    await run('DEL', container, contextOf({ client: away, agent: agentWith() }))
    const open = Promise.withResolvers<void>()
    const release: typeof client.leases.release = async (...asked) => {
      await open.promise
      return await client.leases.release(...asked)
    }
    const locked = vi.spyOn(Attachments.prototype, 'locked')
    onTestFinished(() => locked.mockRestore())
    const delivery = deliver(
      'default',
      contextOf({ client: { ...client, leases: { ...client.leases, release } } }),
    )
    await waitFor(() => locked.mock.calls.length === 1 || scans === 1)
    let isAdded = false
    const added = add(container, contextOf({ agent: agentWith() }), { args: `IP=${address}` }).then(() => {
      isAdded = true
    })
    await waitFor(() => isAdded || locked.mock.calls.length === 2)
    open.resolve()
    await Promise.all([delivery, added])
    expect((await holderOf(address))?.owner?.uid).toBe(container)
  })

  test('ADD takes it back into use', async () => {
    const container = named('c')
    const address = await add(container, contextOf())
    await run('DEL', container, contextOf({ client: createClient({ url, token: onN2 }), node: 'n2' }))
    expect(aside()).toHaveLength(1)
    expect(await add(container, contextOf())).toBe(address)
    expect(aside()).toEqual([])
    anHourLater()
    expect(await deliver('default', contextOf())).toBe(0)
    expect(await holderOf(address)).not.toBeNull()
  })
})

describe('GC', () => {
  const gc = (context: Context, ...valid: readonly string[]) => {
    const attachments = valid.map((containerID) => ({ containerID, ifname: 'eth0' }))
    return run('GC', '', context, { config: { 'cni.dev/valid-attachments': attachments } })
  }

  test('what is not confirmed yet and not written down is kept', async () => {
    const address = await add(named('c'), contextOf({ agent: agentWith() }))
    rmSync(join(state, 'attachments'), { recursive: true })
    await gc(contextOf({ agent: agentWith() }))
    expect(await holderOf(address)).not.toBeNull()
  })

  test('it waits for a delivery that is under way', async () => {
    await add(named('c'), contextOf())
    const locked = vi.spyOn(Attachments.prototype, 'locked')
    onTestFinished(() => locked.mockRestore())
    const steps: string[] = []
    const done = Promise.withResolvers<void>()
    const delivery = attachmentsAt().locked(async () => {
      await done.promise
      steps.push('delivered')
    })
    const release: typeof client.leases.release = (...asked) => {
      steps.push('released')
      return client.leases.release(...asked)
    }
    const collected = gc(
      contextOf({ client: { ...client, leases: { ...client.leases, release } }, agent: agentWith() }),
    )
    await waitFor(() => locked.mock.calls.length === 2 || steps.length > 0)
    done.resolve()
    await Promise.all([delivery, collected])
    expect(steps[0]).toBe('delivered')
  })

  test('waits for each release, and answers with the refusal of one when it has tried all', async () => {
    const addresses = [await add(named('c'), contextOf()), await add(named('c'), contextOf())]
    rmSync(join(state, 'attachments'), { recursive: true })
    const ids = await Promise.all(addresses.map(async (address) => (await holderOf(address))!.leaseId))
    const done: string[] = []
    const release: typeof client.leases.release = async (asked, options) => {
      // The service refuses the first.
      const leaseId = asked.leaseId === ids[0] ? 'none' : asked.leaseId!
      const answer = await client.leases.release({ leaseId }, options)
      done.push(leaseId)
      return answer
    }
    const refusing = { ...client, leases: { ...client.leases, release } }
    await expect(gc(contextOf({ client: refusing, agent: agentWith() }))).rejects.toThrow('INVALID_FIELD')
    expect(done).toContain(ids[1])
    await gc(contextOf())
    expect(await Promise.all(addresses.map(holderOf))).toEqual([null, null])
  })

  test('releases what ADD wrote down, if the runtime does not name it and no namespace has it', async () => {
    const containers = [named('gone'), named('named'), named('seen'), named('other')]
    const addresses: string[] = []
    for (const container of containers) {
      const { address, outage } = await spareFor()
      addresses.push(address)
      await add(container, outage, container === containers[3] ? { config: { name: 'green' } } : {})
    }
    seen = [addresses[2]!]
    const forgotten: string[] = []
    const agent = agentWith({ forget: (one) => void forgotten.push(one.owner.uid) })
    await gc(contextOf({ agent }), containers[1]!)
    const held = await Promise.all(addresses.map(holderOf))
    expect(held.map((one) => one !== null)).toEqual([false, true, true, true])
    expect(forgotten).toEqual([containers[0]])
    complete = false
    await expect(gc(contextOf({ agent }))).rejects.toMatchObject({ code: 11 })
    complete = true
    // What could not be delivered is delivered later; while the service is away only one call waits for it.
    const another = named('another')
    await add(another, contextOf())
    let calls = 0
    const release: typeof client.leases.release = (asked) => {
      calls += 1
      return away.leases.release(asked)
    }
    const cut = { ...client, leases: { ...client.leases, release } }
    await expect(gc(contextOf({ client: cut, agent }))).rejects.toMatchObject({ code: 11 })
    expect(calls).toBe(1)
    expect(
      attachmentsAt()
        .files('removed', 'default')
        .map((one) => one.owner.uid)
        .sort(),
    ).toEqual([another, containers[1]])
  })
})
