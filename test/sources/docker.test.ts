/**
 * Sources of kind docker, against a real HTTP server that speaks the Engine API: what a real engine seldom answers. The
 * engine itself is in test/docker.
 */
import { describe, expect, test } from 'vitest'
import type { LookUp } from '../../src/sources/source.ts'
import { declaration, owner, useSource } from '../support/asked.ts'
import { type Answering, breakOff, json, says, useEndpoint } from '../support/endpoint.ts'

const endpoint = await useEndpoint()
const { hostname, port } = new URL(endpoint.url)
const settings = { host: hostname, port: Number(port), network: 'workloads', labels: ['team=web'] }
const source = useSource(declaration('docker', settings, { node: 'n1' }))
const list = () => source.list(AbortSignal.timeout(60_000))

const ID = 'a'.repeat(64)
const OTHER = 'b'.repeat(64)

function container(fields: object = {}, network: object = {}) {
  return {
    Id: ID,
    Names: ['/other/link', '/web'],
    State: 'running',
    NetworkSettings: {
      Networks: {
        workloads: {
          NetworkID: 'net1',
          IPAddress: '10.0.0.5',
          GlobalIPv6Address: '',
          IPAMConfig: null,
          ...network,
        },
      },
    },
    ...fields,
  }
}

const WEB = { address: '10.0.0.5', kind: 'container', name: 'n1/web', uid: ID, state: 'running' }

function engine(containers: unknown, over: Readonly<Record<string, Answering>> = {}): Answering {
  const answers: Readonly<Record<string, Answering>> = {
    '/info': says({ ID: 'engine-1' }),
    '/networks/workloads': says({ Id: 'net1', Name: 'workloads' }),
    '/containers/json': says(containers),
    ...over,
  }
  return (asked, response) => (answers[asked.path] ?? says({}, 500))(asked, response)
}

describe('list', () => {
  test('has all containers on the network, in whatever state, and no other', async () => {
    const NetworkSettings = { Networks: { bridge: { IPAddress: '172.17.0.2' } } }
    endpoint.answer(engine([container(), container({ Id: OTHER, Names: ['/elsewhere'], NetworkSettings })]))
    expect(await list()).toEqual({ epoch: 'engine-1', complete: true, because: '', entries: [WEB] })
    expect(endpoint.asked.find(({ path }) => path === '/containers/json')!.query).toMatchObject({
      all: 'true',
      filters: '{"label":["team=web"]}',
    })
  })

  test.each(['created', 'paused', 'restarting', 'removing', 'exited', 'dead', 'hibernated'])(
    'one that is %s keeps the address it was given',
    async (State) => {
      const given = { IPAddress: '', IPAMConfig: { IPv4Address: '10.0.0.5', IPv6Address: 'fd00::5' } }
      endpoint.answer(engine([container({ State }, given)]))
      expect((await list()).entries).toEqual([
        { ...WEB, state: State },
        { ...WEB, address: 'fd00::5', state: State },
      ])
    },
  )

  test('nothing that it lists is terminal, whatever the engine calls it', async () => {
    endpoint.answer(engine([container({ State: 'terminal' })]))
    expect((await list()).entries).toEqual([{ ...WEB, state: '' }])
  })

  test('one without a name, as while it is being removed, is there by its id', async () => {
    endpoint.answer(engine([container({ Names: null, State: 'removing' })]))
    const { name: _, ...nameless } = WEB
    expect(await list()).toMatchObject({ complete: true, entries: [{ ...nameless, state: 'removing' }] })
  })

  test('one that was stopped while its network was made anew is there by the name of the network', async () => {
    endpoint.answer(engine([container({}, { NetworkID: 'net0' })]))
    expect((await list()).entries).toEqual([WEB])
  })

  test('with a container that cannot be read it is partial', async () => {
    endpoint.answer(engine([container(), { Id: OTHER, Names: ['/half'] }]))
    const listing = await list()
    expect(listing).toMatchObject({ complete: false, entries: [WEB] })
    expect(listing.because).toContain('/half')
  })

  test('of one that cannot be read its address is in use all the same', async () => {
    const short = container({ Id: 'short' }, { IPAddress: '10.0.0.6' })
    const elsewhere = container()
    Object.assign(elsewhere.NetworkSettings.Networks, { bridge: { IPAddress: 7 } })
    endpoint.answer(engine([container({ State: undefined }), short, elsewhere]))
    expect(await list()).toMatchObject({
      complete: false,
      entries: [{ address: '10.0.0.5' }, { address: '10.0.0.6' }, { address: '10.0.0.5' }],
    })
  })

  test.each<[string, unknown, Readonly<Record<string, Answering>>]>([
    [
      'the engine calls itself something else each time',
      [container()],
      { '/info': (_, response) => json(response, 200, { ID: `engine-${endpoint.asked.length}` }) },
    ],
    ['the engine has no identity', [container()], { '/info': says({ ID: '' }) }],
    ['it has no such network', [], { '/networks/workloads': says({ message: 'not found' }, 404) }],
    ['another is taken for it', [], { '/networks/workloads': says({ Id: 'workloads1', Name: 'other' }) }],
    ['the list is none', { message: 'starting' }, {}],
    ['the list breaks off', [], { '/containers/json': (_, response) => breakOff(response, [container()]) }],
  ])('there is none when %s', async (_, containers, over) => {
    endpoint.answer(engine(containers, over))
    await expect(source.list(AbortSignal.timeout(300))).rejects.toThrow()
  })
})

describe('look-up', () => {
  const ask = (fields: Partial<ReturnType<typeof owner>> = {}): Promise<LookUp> => {
    const asked = owner({ kind: 'container', name: 'n1/web', uid: ID, ...fields })
    const question = { owner: asked, address: '10.0.0.5', node: 'n1', epoch: 'engine-1' }
    return source.lookUp(question, AbortSignal.timeout(300))
  }
  const inspected = (fields: object = {}) => ({
    Id: ID,
    Name: '/web',
    State: { Status: 'exited' },
    ...fields,
  })
  const noSuch = (name: string) => ({ message: `No such container: ${name}` })
  const nameless = { uid: 'n1/web' }

  test('goes by the id, and by the name where none was named', async () => {
    endpoint.answer(says(inspected()))
    expect(await ask()).toEqual({ answer: 'live', detail: 'exited' })
    expect(await ask(nameless)).toEqual({ answer: 'live', detail: 'exited' })
    expect(await ask({ uid: ID.slice(0, 12) })).toMatchObject({ answer: 'live' })
    expect(endpoint.asked.map(({ path }) => path)).toEqual([
      `/containers/${ID}/json`,
      '/containers/web/json',
      `/containers/${ID.slice(0, 12)}/json`,
    ])
  })

  test.each<[string, Partial<ReturnType<typeof owner>>, object]>([
    ['another container, whose name is this id', {}, { Id: OTHER }],
    ['another container, whose id begins like this name', { name: 'n1/aaaa', uid: 'n1/aaaa' }, {}],
  ])('%s is no answer', async (_, asked, found) => {
    endpoint.answer(says(inspected(found)))
    expect(await ask(asked)).toMatchObject({ answer: 'unknown' })
  })

  test.each<[string, number, object | string, LookUp['answer']]>([
    ['the engine has no such container', 404, noSuch(ID), 'gone'],
    ['no such container, of another', 404, noSuch(OTHER), 'error'],
    ['no such container, of another whose name has this in it', 404, noSuch(`${ID}b`), 'error'],
    [
      'the same, as podman says it',
      404,
      { message: `no container with name or ID "${ID}" found: no such container` },
      'gone',
    ],
    ['a 404 that says something else of it', 404, { message: `container ${ID} is elsewhere` }, 'error'],
    ['a 404 of what stands before it', 404, { message: 'page not found' }, 'error'],
    ['a 404 that is no JSON', 404, 'not found', 'error'],
    ['a 404 without a message', 404, {}, 'error'],
    ['no such container, with 500', 500, noSuch(ID), 'error'],
    ['a conflict', 409, noSuch(ID), 'error'],
    ['an empty object', 200, {}, 'error'],
    ['no such container, with 200', 200, noSuch(ID), 'error'],
  ])('%s', async (_, status, body, expected) => {
    const said: Answering = (_asked, response) =>
      typeof body === 'string' ? void response.writeHead(status).end(body) : json(response, status, body)
    endpoint.answer(engine([], { [`/containers/${ID}/json`]: said }))
    expect(await ask()).toMatchObject({ answer: expected })
  })

  test.each<[string, number, object, LookUp['answer']]>([
    ['another engine', 200, { ID: 'engine-2' }, 'unknown'],
    ['one that does not say which it is', 200, { ID: '' }, 'error'],
    ['one that answers nothing else', 500, {}, 'error'],
  ])(
    'no such container, by %s than listed what there is, is no answer',
    async (_, status, body, expected) => {
      const [info, inspect] = [says(body, status), says(noSuch(ID), 404)]
      endpoint.answer(engine([], { '/info': info, [`/containers/${ID}/json`]: inspect }))
      expect(await ask()).toMatchObject({ answer: expected })
    },
  )

  test.each([
    { uid: '../images/web' },
    { uid: 'web?all=1' },
    { uid: '' },
    { uid: 'web' },
    { uid: 'b5a1c0de-0000-4000-8000-000000000000' },
    { name: 'n2/web', uid: 'n2/web' },
    { name: 'web', uid: 'web' },
    { name: 'n1/', uid: 'n1/' },
    { name: 'n1/../images/web', uid: 'n1/../images/web' },
    { kind: 'pod' },
  ])('%j names no container here, and nothing is asked', async (fields) => {
    endpoint.answer(says({ message: 'No such container: ' }, 404))
    expect(await ask(fields)).toMatchObject({ answer: 'unknown' })
    expect(endpoint.asked).toEqual([])
  })
})
