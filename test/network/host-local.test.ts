/** A node moves from host-local, the real plugin, to ipledger; and while one has not moved yet, its leaked files are removed. */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createClient } from '../../src/client/client.ts'
import { sweepHostLocal } from '../../src/import/host-local-gc.ts'
import { importRows } from '../../src/import/import.ts'
import { hostLocalRows } from '../../src/import/rows.ts'
import { useService } from '../support/service.ts'
import { waitFor } from '../support/wait-for.ts'
import { doubles, given, type Held, heldBy, openNode } from './node.ts'

const service = await useService()
const { call, time } = service
const client = createClient({ url: service.url })
await call.ok('PoolService/CreatePool', {
  name: 'web',
  cidr: '10.205.0.0/25',
  gateway: '10.205.0.1',
  default: true,
})
await call.ok('PoolService/CreatePool', { name: 'old', cidr: '10.205.1.0/24', gateway: '10.205.1.1' })
const sight = { node: 'n1', ownerKinds: ['container'], interval: '1s' }
await call.ok('LivenessService/RegisterSource', { id: 'n1', sight })
const node = await openNode({ IPLEDGER_URL: service.url })
const ledger = { network: 'default', node: 'n1', cniCache: join(node.dir, 'cache') }

/** `bridge` with host-local. */
const hostLocal = (name: string, subnet: string) => ({
  config: { name, isGateway: false },
  ipam: { type: 'host-local', subnet, dataDir: join(node.dir, 'networks') },
})
const filesOf = (name: string) =>
  readdirSync(join(node.dir, 'networks', name)).filter((file) => /^[\d.]+$/.test(file))

const { leases } = heldBy(call)
/** But for what is set aside for an unknown owner: what runs without a lease. */
const held = async () => (await leases()).filter(({ owner }: Partial<Held>) => owner !== undefined)
const listed = async (): Promise<ReadonlySet<string>> =>
  new Set((await call.ok('LivenessService/ListSightings', {})).sightings.map((one: Held) => one.address))
const holders = async () =>
  Object.fromEntries((await held()).map(({ address, owner }) => [address, owner.uid!]))

test('a directory of the real plugin is imported before the source is enabled: leaks end by proof, what runs and has no name keeps its address', async () => {
  const before = hostLocal('blue', '10.205.0.0/25')
  const old = new Map<string, string>()
  for (const one of ['old1', 'old2', 'old3'])
    old.set(one, given(await node.call('ADD', node.add(one), before))[0]!)
  const dir = join(node.dir, 'networks/blue')
  const [leak] = given(await node.call('ADD', node.add('leaked'), before))
  node.remove('leaked')
  expect(filesOf('blue').sort()).toEqual([...old.values(), leak].sort())

  const findings = await importRows(client, 'default', hostLocalRows(dir, ledger), { apply: true })
  expect(findings.map(({ outcome }) => outcome)).toEqual(['new', 'new', 'new', 'new'])
  const imported = {
    ...Object.fromEntries([...old].map(([one, address]) => [address, one])),
    [leak!]: 'leaked',
  }
  expect(await holders()).toEqual(imported)
  const early = await call('LivenessService/EnableSource', { id: 'n1' })
  expect(early.message).toMatch(/witness of 4 leases .* node n1, and lists 0 of them/)
  await node.startAgent()
  await waitFor(async () => (await listed()).isSupersetOf(new Set(old.values())), {
    what: 'the agent to list what runs',
  })
  expect(await call.ok('LivenessService/EnableSource', { id: 'n1' })).toMatchObject({ placed: 4, listed: 3 })
  const now = { config: { isGateway: false } }
  for (const one of ['new1', 'new2', 'new3']) {
    const [address] = given(await node.call('ADD', node.add(one), now))
    expect([...old.values()]).not.toContain(address)
  }
  expect(doubles(node)).toEqual([])
  const sweep = async () => {
    const { swept } = await sweepHostLocal(client, dir, { ...ledger, apply: true })
    return Object.fromEntries(swept.map(({ path, outcome, why }) => [path, `${outcome}: ${why}`]))
  }
  const kept = Object.fromEntries(
    [...old.values()].map((address) => [
      join(dir, address),
      'kept: a namespace of this node has the address',
    ]),
  )
  expect(await sweep()).toEqual({
    ...kept,
    [join(dir, leak!)]: expect.stringMatching(
      /^kept: default\/\d+ is held: .*counts as alive for at least another/,
    ),
  })
  await waitFor(
    async () => {
      time.movedBy += 20 * 60_000
      await service.run('judge', 'default')
      return !Object.values(await holders()).includes('leaked')
    },
    { what: 'the leak to be taken back', every: 500 },
  )
  for (const [one, address] of old) {
    expect(node.addresses().get(one)).toEqual([address])
    expect((await holders())[address]).toBe(one)
  }
  expect(await sweep()).toEqual({
    ...kept,
    [join(dir, leak!)]: expect.stringMatching(/^removed: default\/\d+ was reaped/),
  })
  expect((await node.call('DEL', 'old1', now)).code).toBe(0)
  await waitFor(async () => !Object.values(await holders()).includes('old1'), { what: 'old1 to be released' })
})

test('leaked files are removed when sources have proven it; the others stay, whatever a list says (antrea#8239)', async () => {
  const names = ['leak1', 'leak2', 'stuck', 'reused', 'runs', 'mistaken']
  // An agent that looks before the import takes what it sees for strangers'.
  await node.killAgent()
  const options = hostLocal('green', '10.205.1.0/24')
  const at: Record<string, string> = {}
  for (const one of names) at[one] = given(await node.call('ADD', node.add(one), options))[0]!
  const dir = join(node.dir, 'networks/green')
  const file = (one: string) => join(dir, at[one]!)
  mkdirSync(join(dir, '10.205.1.200'))
  const sweep = () => sweepHostLocal(client, dir, { ...ledger, apply: true })

  const first = await sweep()
  const inUse = { outcome: 'kept', why: 'a namespace of this node has the address' }
  expect(first.swept).toEqual(names.map((one) => ({ path: file(one), ...inUse })))
  expect(first.imported.filter(({ outcome }) => outcome === 'new')).toHaveLength(names.length)
  expect(first.imported.filter(({ outcome }) => outcome === 'unreadable')).toMatchObject([
    { where: join(dir, '10.205.1.200') },
  ])
  await node.startAgent()
  for (const one of ['leak1', 'leak2', 'stuck', 'reused']) node.remove(one)
  await waitFor(async () => (await listed()).has(at.runs!) && !(await listed()).has(at.leak1!), {
    what: 'the agent to see it',
  })
  const leaked = ['leak1', 'leak2', 'stuck']
  await waitFor(
    async () => {
      time.movedBy += 20 * 60_000
      await service.run('judge', 'default')
      return !Object.values(await holders()).some((uid) => leaked.includes(uid))
    },
    { what: 'the leaks to be reaped', every: 500 },
  )
  // An operator who is wrong: the books say that nobody has the address of a container that runs.
  const { leaseId } = (await held()).find(({ owner }) => owner.uid === 'mistaken')!
  const { lease } = await call.ok('LeaseService/GetLease', { leaseId })
  await call.ok('LeaseService/Reap', { leaseId, version: lease.version, why: 'a mistake' })
  // The same container again, after its lease ended: written by host-local since.
  const reused = (await held()).find(({ owner }) => owner.uid === 'reused')!
  await call.ok('LeaseService/Release', { leaseId: reused.leaseId })
  const later = new Date(Date.now() + time.movedBy + 60_000)
  writeFileSync(file('reused'), readFileSync(file('reused')))
  utimesSync(file('reused'), later, later)
  // One that cannot be removed.
  execFileSync('mount', ['--bind', file('stuck'), file('stuck')])
  onTestFinished(() => void execFileSync('umount', [file('stuck')]))

  const second = await sweep()
  const outcomes = new Map(second.swept.map(({ path, outcome, why }) => [path, `${outcome}: ${why}`]))
  expect(outcomes.get(file('leak1'))).toMatch(/^removed: default\/\d+ was reaped/)
  expect(outcomes.get(file('leak2'))).toMatch(/^removed: default\/\d+ was reaped/)
  expect(outcomes.get(file('stuck'))).toMatch(/^failed: .*busy/)
  expect(outcomes.get(file('mistaken'))).toBe('kept: a namespace of this node has the address')
  expect(outcomes.get(file('runs'))).toBe('kept: a namespace of this node has the address')
  expect(outcomes.get(file('reused'))).toMatch(/^kept: default\/\d+ is held: /)
  expect(names.filter((one) => existsSync(file(one)))).toEqual(['stuck', 'reused', 'runs', 'mistaken'])
  expect(doubles(node)).toEqual([])
})

test("a file is removed under host-local's lock, and only while it is what was looked at", async () => {
  await node.killAgent()
  const options = hostLocal('red', '10.205.1.128/26')
  const [address] = given(await node.call('ADD', node.add('locked'), options))
  const [other] = given(await node.call('ADD', node.add('rewritten'), options))
  const dir = join(node.dir, 'networks/red')
  const sweep = () => sweepHostLocal(client, dir, { ...ledger, apply: true })
  await sweep()
  for (const one of ['locked', 'rewritten']) {
    const { leaseId } = (await held()).find(({ owner }) => owner.uid === one)!
    node.remove(one)
    await call.ok('LeaseService/Release', { leaseId })
  }
  const holder = spawn('flock', [join(dir, 'lock'), 'sh', '-c', 'echo held; read -r _'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await new Promise((locked) => holder.stdout.once('data', locked))
  // The real plugin waits for it, too: it is the same lock.
  const added = node.call('ADD', node.add('waits'), { ...options, plugin: 'host-local' })
  const swept = sweep()
  const early = await Promise.race([
    added,
    swept,
    new Promise((resolve) => setTimeout(() => resolve('both wait'), 500)),
  ])
  expect(early).toBe('both wait')
  expect(existsSync(join(dir, address!))).toBe(true)
  writeFileSync(join(dir, other!), 'rewritten\r\neth0')
  holder.stdin.end('\n')
  expect((await swept).swept).toMatchObject([
    { path: join(dir, address!), outcome: 'removed' },
    { path: join(dir, other!), outcome: 'kept', why: 'it was changed meanwhile' },
  ])
  expect((await added).code).toBe(0)
  expect(existsSync(join(dir, address!))).toBe(false)
})
