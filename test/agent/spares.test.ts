/** Which spare address is handed out, to whom, and when none is. The scans and the clocks are the test's, the leases the service's. */
import { expect, test } from 'vitest'
import { Spares } from '../../src/agent/spares.ts'
import { createClient } from '../../src/client/client.ts'
import { type Call, readCall } from '../../src/cni/call.ts'
import type { Scan } from '../../src/cni/namespaces.ts'
import { LeaseState } from '../../src/gen/ipledger/v1/types_pb.ts'
import { useService } from '../support/service.ts'

const { call, url } = await useService()
const client = createClient({ url })
let count = 0

type Options = Partial<ConstructorParameters<typeof Spares>[0]>

/** On a node of its own; reported, and filled. */
async function spares(size: number, options: Options = {}) {
  count += 1
  const node = `n${count}`
  await call.ok('PoolService/CreatePool', { name: node, cidr: `10.50.${count}.0/28` })
  const one = on(node, size, options)
  one.reported(one.stops, 0)
  await one.fill([])
  return { one, node }
}

const on = (node: string, size: number, options: Options = {}) =>
  new Spares({
    client,
    network: 'default',
    node,
    source: node,
    size,
    pools: [node],
    scan: async () => scanning(),
    isAnsweredFor: async () => false,
    ...options,
  })

function add(container: string, pools?: readonly string[]): Call {
  const env = { CNI_COMMAND: 'ADD', CNI_NETNS: '/none', CNI_IFNAME: 'eth0', CNI_CONTAINERID: container }
  return readCall(env, JSON.stringify({ cniVersion: '1.0.0', ipam: { type: 'ipledger-cni', pools } }))
}
const taken = async (one: Spares, container: string) => (await one.take(add(container)))?.[0]?.address
const heldOn = async (node: string) => {
  const { leases } = await client.leases.listLeases({ node })
  return leases.filter(({ state }) => state !== LeaseState.QUARANTINED)
}
const scanning = (...addresses: readonly string[]): Scan => ({
  seen: addresses.map((address) => ({ address, interface: 'eth0', namespace: '1:1', isConnected: true })),
  all: new Set(addresses),
  complete: true,
  namespaces: new Map(),
})

test('after a report was refused none is given before one is taken', async () => {
  const { one } = await spares(2)
  one.reported(null)
  await expect(one.take(add('a'))).rejects.toThrow('has not reported')
  one.reported(one.stops, 0)
  expect(await taken(one, 'a')).toBeDefined()
})

test('each has a holder of its own, so that another process gets others', async () => {
  const { one, node } = await spares(2)
  const other = on(node, 2)
  await other.fill([])
  const holders = (await heldOn(node)).map(({ owner }) => owner!.name)
  expect(new Set(holders).size).toBe(4)
  for (const holder of holders) expect(holder).toMatch(new RegExp(`^${node}/[-0-9a-f]{36}$`))
  expect(one.listed()).toHaveLength(2)
  expect(other.listed()).toHaveLength(2)
})

test('on a node are twice as many as wanted, however often its agent starts', async () => {
  const { node } = await spares(2)
  for (const held of [2, 4, 4]) {
    const later = on(node, 2)
    expect(await heldOn(node)).toHaveLength(held)
    later.compare(await heldOn(node), scanning())
    await later.fill([])
  }
})

test('those of another agent of the node are not among them', async () => {
  const { one, node } = await spares(2)
  await on(node, 4, { source: `${node}/second` }).fill([])
  for (const container of ['a', 'b']) await taken(one, container)
  const others = (await heldOn(node)).filter(({ owner }) => owner!.name.startsWith(`${node}/second/`))
  expect(others).toHaveLength(4)
  one.compare(others, scanning())
  await one.fill([])
  expect(one.free).toBe(2)
})

test('as many as wanted are free after each outage, though the containers live on', async () => {
  const { one, node } = await spares(2)
  const given: string[] = []
  for (const outage of [1, 2, 3, 4]) {
    for (const container of ['a', 'b']) given.push((await taken(one, `${container}${outage}`))!)
    // The service has adopted them for their containers.
    const spare = (await heldOn(node)).filter(({ address }) => !given.includes(address))
    one.compare(spare, scanning(...given))
    await one.fill([])
    expect(one.free, `after outage ${outage}`).toBe(2)
  }
})

test('nor do free ones count twice beside those of an earlier process', async () => {
  const { node } = await spares(2)
  const later = on(node, 2)
  later.compare(await heldOn(node), scanning())
  await later.fill([])
  later.reported(later.stops)
  const address = (await taken(later, 'a'))!
  const others = (await heldOn(node)).filter((lease) => lease.address !== address)
  later.compare(others, scanning(address))
  await later.fill([])
  expect(later.free).toBe(2)
})

test('those that were given and are not adopted yet count among the twice as many', async () => {
  const { one, node } = await spares(2)
  for (const [outage, free] of [
    [1, 2],
    [2, 0],
  ] as const) {
    for (const container of ['a', 'b']) await taken(one, `${container}${outage}`)
    one.compare(await heldOn(node), scanning())
    await one.fill([])
    expect(one.free, `after outage ${outage}`).toBe(free)
  }
})

test('what another host on the node uses is not leased', async () => {
  const { node } = await spares(0)
  const one = on(node, 1)
  const first = `10.50.${count}.1`
  await one.fill([first])
  expect(one.listed()[0]!.address).not.toBe(first)
})

test('one that is quarantined is given to nobody', async () => {
  const { one, node } = await spares(1)
  const { leaseId } = (await heldOn(node))[0]!
  await call.ok('LeaseService/Quarantine', { leaseId, why: 'looks odd' })
  one.compare((await client.leases.listLeases({ node })).leases, scanning())
  expect(await one.take(add('a'))).toBeNull()
})

test('one that is being taken is nobody else’s, and its taker’s when the scan is over', async () => {
  const scan = Promise.withResolvers<Scan>()
  const { one } = await spares(2, { scan: () => scan.promise })
  const [taking, another] = [one.take(add('a')), one.take(add('b'))]
  expect(one.of(add('a').owner!)).toBeNull()
  expect(one.free).toBe(0)
  expect(await one.take(add('c'))).toBeNull()
  scan.resolve(scanning())
  const leases = await taking
  expect(one.of(add('a').owner!)).toBe(leases)
  expect((await another)![0]!.address).not.toBe(leases![0]!.address)
})

test('one scan serves all that wait when it begins; who comes later waits for the next', async () => {
  const scans: PromiseWithResolvers<Scan>[] = []
  const scan = () => {
    scans.push(Promise.withResolvers())
    return scans.at(-1)!.promise
  }
  const { one } = await spares(4, { scan })
  const first = ['a', 'b'].map((container) => one.take(add(container)))
  await expect.poll(() => scans.length).toBe(1)
  const second = ['c', 'd'].map((container) => one.take(add(container)))
  scans[0]!.resolve(scanning())
  await Promise.all(first)
  await expect.poll(() => scans.length).toBe(2)
  const [at] = one.listed()
  scans[1]!.resolve(scanning(at!.address))
  const addresses = (await Promise.all(second)).flatMap((leases) => leases?.map(({ address }) => address))
  expect(addresses).not.toContain(at!.address)
  expect(scans).toHaveLength(2)
})

test('after a scan that is not complete it is as free as before', async () => {
  let complete = false
  const { one } = await spares(1, { scan: async () => ({ ...scanning(), complete }) })
  await expect(one.take(add('a'))).rejects.toMatchObject({ code: 11 })
  expect(one.of(add('a').owner!)).toBeNull()
  expect(one.free).toBe(1)
  complete = true
  expect(await taken(one, 'b')).toBeDefined()
})

test.each(['seen on this node', 'answered for on the link'])('one that is %s is never given', async (how) => {
  const used = new Set<string>()
  const isOnLink = how !== 'seen on this node'
  const { one } = await spares(2, {
    scan: async () => (isOnLink ? scanning() : scanning(...used)),
    isAnsweredFor: async (address) => isOnLink && used.has(address),
  })
  used.add(one.listed()[0]!.address)
  const first = await taken(one, 'a')
  expect(first).toBeDefined()
  expect(used).not.toContain(first)
  used.clear()
  expect(await one.take(add('b'))).toBeNull()
})

test('when the link cannot be asked it is as free as before', async () => {
  const isAnsweredFor = () => Promise.reject(new Error('arping: exit code 2'))
  const { one } = await spares(1, { isAnsweredFor })
  await expect(one.take(add('a'))).rejects.toThrow('exit code 2')
  expect(one.free).toBe(1)
})

describeStops()
function describeStops() {
  const INTERVAL = 30_000
  test.each([
    ['stopped', [1, 1]],
    ['suspended', [0, 1]],
    ['set back', [0, -1]],
  ])('a process that was %s gives none until it has reported again', async (_, [running, real]) => {
    let clocks: readonly number[] = [0, 0]
    const { one } = await spares(2, { clocks: () => clocks })
    one.reported(one.stops, INTERVAL)
    const pass = (ms: number) => {
      clocks = [clocks[0]! + running! * ms, clocks[1]! + real! * ms]
    }
    pass(INTERVAL)
    expect(await taken(one, 'a')).toBeDefined()
    const before = one.stops
    pass(INTERVAL + 1)
    await expect(one.take(add('b'))).rejects.toMatchObject({ code: 11 })
    expect(one.free).toBe(0)
    // Begun before it stood still.
    one.reported(before, INTERVAL)
    await expect(one.take(add('b'))).rejects.toMatchObject({ code: 11 })
    one.reported(one.stops, INTERVAL)
    expect(one.free).toBe(1)
    expect(await taken(one, 'b')).toBeDefined()
  })

  test('ten seconds may be a busy machine, however short the interval is', async () => {
    let ms = 0
    const { one } = await spares(2, { clocks: () => [ms] })
    one.reported(one.stops, 1_000)
    ms += 10_000
    expect(await taken(one, 'a')).toBeDefined()
    ms += 10_001
    await expect(one.take(add('b'))).rejects.toMatchObject({ code: 11 })
  })

  test('nor does one that stands still while it scans', async () => {
    let clocks: readonly number[] = [0, 0]
    const scan = async () => {
      clocks = [INTERVAL + 1, INTERVAL + 1]
      return scanning()
    }
    const { one } = await spares(1, { clocks: () => clocks, scan })
    await expect(one.take(add('a'))).rejects.toMatchObject({ code: 11 })
    one.reported(one.stops, INTERVAL)
    expect(one.free).toBe(1)
  })

  test('nor one that has never reported', async () => {
    const { node } = await spares(0)
    const one = on(node, 1)
    await one.fill([])
    await expect(one.take(add('a'))).rejects.toMatchObject({ code: 11 })
  })
}

test('what has ended, is another’s or is in use is given to nobody, and listed no more', async () => {
  const { one, node } = await spares(3)
  const [ended, other, used] = one.listed().map(({ address }) => address)
  const held = (await heldOn(node)).filter(({ address }) => address !== ended)
  const another = held.find(({ address }) => address === other)!
  another.owner!.name = 'of another log, with the same id'
  one.compare(held, scanning(used!))
  expect(one.listed()).toEqual([])
  expect(await one.take(add('a'))).toBeNull()
})

test('nor is one that ended while its scan ran', async () => {
  const { one } = await spares(1, {
    scan: async () => {
      one.compare([], scanning())
      return scanning()
    },
  })
  expect(await one.take(add('a'))).toBeNull()
})

test('what was taken is its taker’s until it is released, or ended and gone', async () => {
  const { one, node } = await spares(2)
  const [{ uid: holder } = { uid: '' }] = one.listed()
  const address = (await taken(one, 'a'))!
  expect(one.listed().map((entry) => entry.address)).not.toContain(address)
  expect(one.isAlive(holder)).toBe(true)
  const others = (await heldOn(node)).filter((lease) => lease.address !== address)
  one.compare(others, scanning(address))
  expect(one.isAlive(holder)).toBe(false)
  one.compare(others, { ...scanning(), complete: false })
  expect(one.of(add('a').owner!)).toHaveLength(1)
  one.compare(others, scanning())
  expect(one.of(add('a').owner!)).toBeNull()
  expect(await taken(one, 'b')).toBeDefined()
  for (const [network, container] of [
    ['default', 'c'],
    ['other', 'b'],
  ] as const)
    one.forget({ network, owner: add(container).owner! })
  expect(one.of(add('b').owner!)).toHaveLength(1)
  one.forget({ network: 'default', owner: add('b').owner! })
  expect(one.of(add('b').owner!)).toBeNull()
})

test('pools that are named are those of its leases', async () => {
  const { one, node } = await spares(1)
  expect(await one.take(add('a', ['other']))).toBeNull()
  expect(await one.take(add('a', [node, node]))).toBeNull()
  expect(await one.take(add('a', [node]))).toHaveLength(1)
})
