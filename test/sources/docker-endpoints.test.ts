/** Endpoints of a Docker network, against a real HTTP server that speaks the Engine API. The engine itself is in test/docker. */
import { describe, expect, test } from 'vitest'
import { declaration, owner, useSource } from '../support/asked.ts'
import { type Answering, json, says, useEndpoint } from '../support/endpoint.ts'

const endpoint = await useEndpoint()
const { hostname, port } = new URL(endpoint.url)
const settings = { host: hostname, port: Number(port), network: 'blue', kind: 'endpoint' }
const sees = { node: 'n1', ownerKinds: ['endpoint'] }
const source = useSource(declaration('docker', settings, sees))
const list = () => source.list(AbortSignal.timeout(60_000))

const MAC = '02:42:0a:09:00:05'
const WEB = { Name: 'web', MacAddress: MAC, IPv4Address: '10.9.0.5/24', IPv6Address: '' }
const OURS = { Driver: 'ipledger', Config: [{ Subnet: '10.9.0.0/24' }] }

function engine(
  all: Readonly<Record<string, object>>,
  over: Readonly<Record<string, Answering>> = {},
): Answering {
  const networks = Object.entries(all).map(([Id, Containers]) => ({ Id, Name: Id, IPAM: OURS, Containers }))
  const answers: Readonly<Record<string, Answering>> = {
    '/info': says({ ID: 'engine-1' }),
    '/networks': says(networks.map(({ Containers: _, ...one }) => ({ ...one, Containers: {} }))),
    ...Object.fromEntries(networks.map((one) => [`/networks/${one.Id}`, says(one)])),
    ...over,
  }
  return (asked, response) => (answers[asked.path] ?? says({}, 500))(asked, response)
}

describe('list', () => {
  test('has each address of each endpoint, by node, subnet and MAC; its name is that of the container', async () => {
    const both = { ...WEB, Name: 'db', MacAddress: '02:42:0A:09:00:06', IPv6Address: 'fd00::0:6/64' }
    endpoint.answer(engine({ blue: { c1: WEB, 'ep-c2': { ...both, IPv4Address: '10.9.0.6/24' } } }))
    const entry = { kind: 'endpoint', interface: 'eth0' }
    expect(await list()).toEqual({
      epoch: 'engine-1',
      complete: true,
      because: '',
      entries: [
        { ...entry, name: 'n1/web', uid: `n1/10.9.0.0/24/${MAC}`, address: '10.9.0.5' },
        { ...entry, name: 'n1/db', uid: 'n1/10.9.0.0/24/02:42:0a:09:00:06', address: '10.9.0.6' },
        { ...entry, name: 'n1/db', uid: 'n1/fd00::/64/02:42:0a:09:00:06', address: 'fd00::0:6' },
      ],
    })
  })

  test.each([
    ['no MAC', { MacAddress: '' }, ['10.9.0.5', '10.9.0.6']],
    ['no name', { Name: '' }, ['10.9.0.5', '10.9.0.6']],
    ['no address', { IPv4Address: '' }, ['10.9.0.6']],
    ['what is no address', { IPv4Address: '10.9.0.500/24' }, ['10.9.0.500', '10.9.0.6']],
    ['an address without its subnet', { IPv4Address: '10.9.0.5' }, ['10.9.0.5', '10.9.0.6']],
  ])('with an endpoint that has %s it is partial', async (_, fields, addresses) => {
    const other = { ...WEB, MacAddress: '02:42:0a:09:00:06', IPv4Address: '10.9.0.6/24' }
    endpoint.answer(engine({ blue: { c1: { ...WEB, ...fields }, c2: other } }))
    const { complete, entries } = await list()
    expect(complete).toBe(false)
    expect(entries.map(({ address }) => address)).toEqual(addresses)
  })

  test('there is none of a network that the driver does not serve, and none of containers of one that it serves', async () => {
    const other = { Id: 'blue', Name: 'blue', IPAM: { Driver: 'default' }, Containers: { c1: WEB } }
    endpoint.answer(engine({}, { '/networks/blue': says(other) }))
    await expect(list()).rejects.toThrow(
      'its IPAM driver is default: register a source with "kind": "container"',
    )
    const ofContainers = useSource(declaration('docker', { ...settings, kind: 'container' }, { node: 'n1' }))
    endpoint.answer(engine({ blue: { c1: WEB } }, { '/containers/json': says([]) }))
    await expect(ofContainers.list(AbortSignal.timeout(60_000))).rejects.toThrow('"kind": "endpoint"')
  })

  test('there is none when the engine is another afterwards', async () => {
    const changing: Answering = (_, response) =>
      json(response, 200, { ID: `engine-${endpoint.asked.length}` })
    endpoint.answer(engine({ blue: { c1: WEB } }, { '/info': changing }))
    await expect(list()).rejects.toThrow('the engine was')
  })
})

describe('look-up', () => {
  const lookUp = (uid = `n1/10.9.0.0/24/${MAC}`, epoch = 'engine-1') => {
    const asked = owner({ kind: 'endpoint', name: uid, uid })
    return source.lookUp(
      { owner: asked, address: '10.9.0.5', node: 'n1', epoch },
      AbortSignal.timeout(60_000),
    )
  }

  test('an endpoint is live while the engine has its MAC in a network with its subnet, whatever the network is called', async () => {
    endpoint.answer(engine({ blue: {}, green: { c1: { ...WEB, MacAddress: MAC.toUpperCase() } } }))
    expect(await lookUp()).toMatchObject({ answer: 'live', detail: 'in network green' })
    endpoint.answer(engine({ blue: { c1: { ...WEB, MacAddress: '02:42:0a:09:00:06' } } }))
    expect(await lookUp()).toEqual({ answer: 'gone', detail: `no endpoint in 10.9.0.0/24 has ${MAC}` })
    expect(await lookUp(`n1/10.9.1.0/24/${MAC}`)).toMatchObject({ answer: 'gone' })
  })

  test.each<[string, string, string, Readonly<Record<string, Answering>>, string]>([
    ['the engine is another', `n1/10.9.0.0/24/${MAC}`, 'engine-0', {}, 'unknown'],
    ['it is of another node', `n2/10.9.0.0/24/${MAC}`, 'engine-1', {}, 'unknown'],
    ['the uid names no endpoint', 'n1/web', 'engine-1', {}, 'unknown'],
    [
      'an endpoint has no MAC',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/networks/blue': says({ Containers: { c1: {} } }) },
      'error',
    ],
    [
      'a network cannot be read',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/networks/blue': says({ message: 'busy' }, 500) },
      'error',
    ],
    [
      'a network says nothing of its endpoints',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/networks/blue': says({ Id: 'blue', Name: 'blue', Containers: null }) },
      'error',
    ],
    [
      'a network is gone meanwhile',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/networks/blue': says({ message: 'no such network' }, 404) },
      'error',
    ],
    [
      'the networks cannot be read',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/networks': says([{ Id: 'blue' }]) },
      'error',
    ],
    [
      'the engine has no identity',
      `n1/10.9.0.0/24/${MAC}`,
      'engine-1',
      { '/info': says({ ID: '' }) },
      'error',
    ],
  ])('when %s it is not gone', async (_, uid, epoch, over, answer) => {
    endpoint.answer(engine({ blue: {} }, over))
    expect(await lookUp(uid, epoch)).toMatchObject({ answer })
  })
})
