/**
 * Sources of kind kubernetes, by the official client against a real HTTP server that speaks the API: pages of one
 * version, phases as whereabouts#162 teaches, and what is NotFound and what is only a 404.
 */
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type GivenEntry, type LookUp, MOST_ENTRIES } from '../../src/sources/source.ts'
import { owner as anOwner, declaration, kubeconfigOf, useSource } from '../support/asked.ts'
import { type Answering, breakOff, json, says, useEndpoint } from '../support/endpoint.ts'

const endpoint = await useEndpoint()
const kubeconfig = kubeconfigOf(endpoint.url)

/** Another each time: what it remembers of versions is its own. */
const open = (settings = {}) => useSource(declaration('kubernetes', settings), { kubeconfig })
let source = open()
// The client is large: seconds on a busy machine.
beforeAll(() => import('../../src/sources/kubernetes.ts'))
beforeEach(() => {
  source = open()
})
const owner = (fields: Parameters<typeof anOwner>[0]) => anOwner({ kind: 'pod', ...fields })

const patience = () => AbortSignal.timeout(60_000)
const list = () => source.list(patience())

const FINISHED = '2026-01-31T12:00:00Z'
const LATER = '2026-01-31T12:05:00Z'

type Fields = Readonly<Record<string, unknown>>

function pod(name: string, ip: string, fields: { metadata?: Fields; spec?: Fields; status?: Fields } = {}) {
  return {
    metadata: { name, namespace: 'default', uid: `uid-${name}`, ...fields.metadata },
    spec: { nodeName: 'n1', containers: [], ...fields.spec },
    status: {
      phase: 'Running',
      podIP: ip,
      podIPs: [{ ip }],
      containerStatuses: [running()],
      ...fields.status,
    },
  }
}

const container = (state: object) => ({ name: 'c', image: 'i', ready: false, state })
const running = () => container({ running: { startedAt: FINISHED } })
const finished = (finishedAt: string | null) => container({ terminated: { exitCode: 0, finishedAt } })
const ended = (phase: string, ...containers: readonly (string | null)[]) => ({
  phase,
  containerStatuses: containers.map((at) => (at === 'running' ? running() : finished(at))),
})

const VERSION = '4711'

function status(code: number, reason: string, details?: object) {
  return { kind: 'Status', status: 'Failure', message: `said ${reason}`, reason, details, code }
}
const ofPod = (name: string) => ({ kind: 'pods', name })
const namespace = (uid: string) => ({ kind: 'Namespace', metadata: { name: 'kube-system', uid } })

/** The cluster, and its pods by the page. */
function cluster(
  pages: readonly (readonly object[])[],
  options: { version?: string; next?: Answering; uid?: string } = {},
): Answering {
  return (asked, response) => {
    if (asked.path.includes('kube-system')) return json(response, 200, namespace(options.uid ?? 'cluster-1'))
    if (asked.path !== '/api/v1/pods') return json(response, 404, status(404, 'NotFound'))
    const at = Number(asked.query.continue ?? 0)
    if (at > 0 && options.next !== undefined) return options.next(asked, response)
    const next = at + 1 < pages.length ? `${at + 1}` : undefined
    json(response, 200, podList(pages[at]!, options.version ?? VERSION, next))
  }
}

function podList(items: readonly object[], resourceVersion: string, next?: string) {
  return { kind: 'PodList', metadata: { resourceVersion, ...(next && { continue: next }) }, items }
}

function entry(name: string, address: string, state = 'running'): GivenEntry {
  return { address, kind: 'pod', name: `default/${name}`, uid: `uid-${name}`, node: 'n1', state }
}

describe('list', () => {
  test('is every page, of one version, from the authority and not from a cache', async () => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1')], [pod('b', '10.0.0.2')], [pod('c', '10.0.0.3')]]))
    expect(await list()).toEqual({
      epoch: 'cluster-1',
      complete: true,
      because: '',
      entries: [entry('a', '10.0.0.1'), entry('b', '10.0.0.2'), entry('c', '10.0.0.3')],
    })
    const asked = endpoint.asked.filter(({ path }) => path === '/api/v1/pods')
    expect(asked.map(({ query }) => query.continue)).toEqual([undefined, '1', '2'])
    for (const { query } of asked) {
      expect(query.limit).toBe('100')
      // `resourceVersion=0` would be answered from any cache (kubernetes#59848).
      expect(query).not.toHaveProperty('resourceVersion')
      expect(query).not.toHaveProperty('resourceVersionMatch')
    }
  })

  test('has both families, and no pod of its host', async () => {
    const both = { podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }] }
    const host = pod('h', '192.0.2.1', { spec: { hostNetwork: true } })
    endpoint.answer(cluster([[pod('a', '10.0.0.1', { status: both }), host]]))
    const entries = [entry('a', '10.0.0.1'), entry('a', 'fd00::1')]
    expect(await list()).toMatchObject({ complete: true, entries })
  })

  test('a pending pod without an address is in no list, and makes none partial (whereabouts#162)', async () => {
    const status = { phase: 'Pending', podIP: undefined, podIPs: undefined }
    const pending = pod('p', '', { spec: { nodeName: undefined }, status })
    endpoint.answer(cluster([[pending, pod('a', '10.0.0.1')]]))
    expect(await list()).toMatchObject({ complete: true, entries: [entry('a', '10.0.0.1')] })
  })

  test.each<[string, Fields, string]>([
    ['Pending with an address', { phase: 'Pending' }, 'pending'],
    ['Unknown', { phase: 'Unknown' }, 'unknown'],
    ['a phase nobody knows', { phase: 'Hibernated' }, 'hibernated'],
    ['a phase called terminal', { phase: 'Terminal' }, ''],
    ['no phase', { phase: undefined }, ''],
    ['Failed with a container that still runs (a node nobody hears from)', { phase: 'Failed' }, 'failed'],
    ['Failed without a word on its containers', { phase: 'Failed', containerStatuses: [] }, 'failed'],
    ['Failed with a container whose end nobody saw', ended('Failed', null), 'failed'],
    ['Succeeded with one that runs', ended('Succeeded', FINISHED, 'running'), 'succeeded'],
    ['Succeeded', ended('Succeeded', FINISHED), 'terminal'],
    ['Failed', ended('Failed', FINISHED, LATER), 'terminal'],
  ])('%s', async (_, fields, state) => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1', { status: fields })]]))
    expect((await list()).entries).toEqual([entry('a', '10.0.0.1', state)])
  })

  test('a pod that is being deleted is alive, also when it has ended', async () => {
    const metadata = { deletionTimestamp: FINISHED }
    const succeeded = pod('b', '10.0.0.2', { metadata, status: ended('Succeeded', FINISHED) })
    endpoint.answer(cluster([[pod('a', '10.0.0.1', { metadata }), succeeded]]))
    expect((await list()).entries.map(({ state }) => state)).toEqual(['terminating', 'terminating'])
  })

  test.each<[string, Answering, RegExp]>([
    ['410 while paging', says(status(410, 'Expired'), 410), /410/],
    ['an error while paging', says(status(500, 'InternalError'), 500), /500/],
    ['forbidden while paging', says(status(403, 'Forbidden'), 403), /403/],
    ['a page of another version', says(podList([pod('b', '10.0.0.2')], '4712')), /4712/],
    ['a page that is none', says({ kind: 'PodList' }), /page 2/],
    ['a page for people', (_, response) => void response.end('<h1>It works!</h1>'), /page 2/],
    ['half a page', (_, response) => breakOff(response, podList([pod('b', '10.0.0.2')], VERSION)), /page 2/],
  ])('with %s it is partial, and what was read stays', async (_, next, why) => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1')], []], { next }))
    const listing = await list()
    expect(listing).toMatchObject({ epoch: 'cluster-1', complete: false })
    expect(listing.because).toMatch(why)
    expect(listing.entries).toContainEqual(entry('a', '10.0.0.1'))
  })

  test('with a pod that cannot be read it is partial', async () => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1'), pod('b', '10.0.0.2', { metadata: { uid: undefined } })]]))
    const listing = await list()
    const entries = [entry('a', '10.0.0.1'), { address: '10.0.0.2' }]
    expect(listing).toMatchObject({ complete: false, entries })
    expect(listing.because).toContain('"name":"b"')
  })

  test('of one that cannot be read its addresses are in use all the same', async () => {
    const nameless = { metadata: { uid: undefined } }
    const hosted = { ...nameless, spec: { hostNetwork: true } }
    endpoint.answer(cluster([[pod('half', '10.0.0.6', nameless), pod('host', '192.0.2.1', hosted)]]))
    expect(await list()).toMatchObject({ complete: false, entries: [{ address: '10.0.0.6' }] })
  })

  test('of an older version than before it is partial (kubernetes#59848)', async () => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1')]], { version: '1000' }))
    expect(await list()).toMatchObject({ complete: true })
    endpoint.answer(cluster([[]], { version: '999' }))
    expect(await list()).toMatchObject({ complete: false })
    endpoint.answer(cluster([[]], { version: '1000' }))
    expect(await list()).toMatchObject({ complete: true })
  })

  test('of another cluster at its address is not compared with the list of the old one', async () => {
    endpoint.answer(cluster([[pod('a', '10.0.0.1')]], { version: '1000' }))
    expect(await list()).toMatchObject({ epoch: 'cluster-1', complete: true })
    endpoint.answer(cluster([[]], { version: '999', uid: 'cluster-2' }))
    expect(await list()).toMatchObject({ epoch: 'cluster-2', complete: true })
  })

  test('without an end it is partial, and is not asked for for ever', async () => {
    const podIPs = Array.from({ length: MOST_ENTRIES / 4 }, (_, n) => ({ ip: `fd00::${n.toString(16)}` }))
    const items = [pod('a', 'fd00::', { status: { podIPs } })]
    endpoint.answer(cluster(Array.from({ length: 9 }, () => items)))
    expect(await source.list(AbortSignal.timeout(60_000))).toMatchObject({ complete: false })
    expect(endpoint.asked.filter(({ path }) => path === '/api/v1/pods')).toHaveLength(4)
  })

  const pods =
    (answering: Answering): Answering =>
    (asked, response) =>
      (asked.path.includes('kube-system') ? cluster([]) : answering)(asked, response)
  test.each<[string, Answering]>([
    ['the cluster does not say which it is', says(status(403, 'Forbidden'), 403)],
    ['everything is forbidden but the namespace', pods(says(status(403, 'Forbidden'), 403))],
    ['the list has no version', pods(says({ kind: 'PodList', items: [] }))],
  ])('there is none when %s', async (_, answering) => {
    endpoint.answer(answering)
    await expect(list()).rejects.toThrow()
  })
})

test('it shows its token to the API server', async () => {
  endpoint.answer(cluster([[]]))
  await list()
  expect(endpoint.asked.map(({ headers }) => headers.authorization)).toEqual(
    endpoint.asked.map(() => 'Bearer bearer-of-the-cluster'),
  )
})

test('a context that the kubeconfig does not have is no cluster', async () => {
  await expect(open({ context: 'other' }).list(patience())).rejects.toThrow(/names no cluster/)
})

describe('look-up', () => {
  const ask = (fields: Partial<ReturnType<typeof owner>> = {}, signal = patience()): Promise<LookUp> => {
    const asked = owner({ kind: 'pod', name: 'default/web-0', uid: 'uid-web-0', ...fields })
    return source.lookUp({ owner: asked, address: '10.0.0.5', node: 'n1', epoch: 'cluster-1' }, signal)
  }
  /** What a cluster says of the pod, and which one it is. */
  const answer = (code: number, body: object, uid = 'cluster-1') =>
    endpoint.answer(({ path }, response) =>
      path.includes('kube-system') ? json(response, 200, namespace(uid)) : json(response, code, body),
    )
  const answerPod = (fields: Parameters<typeof pod>[2] = {}) => answer(200, pod('web-0', '10.0.0.5', fields))

  test('asks for this very pod, from the authority', async () => {
    answerPod()
    expect(await ask()).toEqual({ answer: 'live', detail: 'Running' })
    expect(endpoint.asked).toMatchObject([{ path: '/api/v1/namespaces/default/pods/web-0', query: {} }])
  })

  test('a pod of the same name with another uid: gone', async () => {
    answerPod({ metadata: { uid: 'uid-of-another' } })
    expect(await ask()).toMatchObject({ answer: 'gone' })
    // Who named no uid is found by the name.
    expect(await ask({ uid: 'default/web-0' })).toMatchObject({ answer: 'live' })
  })

  test.each<[string, number, object, LookUp['answer']]>([
    ['NotFound of this pod', 404, status(404, 'NotFound', ofPod('web-0')), 'gone'],
    ['NotFound of another pod', 404, status(404, 'NotFound', ofPod('web-1')), 'error'],
    ['NotFound of the resource (an API server that is coming up)', 404, status(404, 'NotFound', {}), 'error'],
    [
      'NotFound of the namespace',
      404,
      status(404, 'NotFound', { kind: 'namespaces', name: 'web-0' }),
      'error',
    ],
    ['a 404 of something else', 404, { error: 'no route' }, 'error'],
    ['a 200 that says NotFound', 200, status(404, 'NotFound', ofPod('web-0')), 'error'],
    ['forbidden', 403, status(403, 'Forbidden', ofPod('web-0')), 'error'],
    ['unauthorized', 401, status(401, 'Unauthorized'), 'error'],
    ['too many requests', 429, status(429, 'TooManyRequests'), 'error'],
    ['expired', 410, status(410, 'Expired', ofPod('web-0')), 'error'],
    ['an error', 500, status(500, 'InternalError'), 'error'],
    ['a pod without a uid', 200, pod('web-0', '10.0.0.5', { metadata: { uid: undefined } }), 'error'],
    ['another pod', 200, pod('web-1', '10.0.0.5'), 'unknown'],
    ['an empty object', 200, {}, 'error'],
  ])('%s', async (_, code, body, expected) => {
    answer(code, body)
    expect(await ask()).toMatchObject({ answer: expected })
  })

  test.each<[string, number, object]>([
    ['NotFound', 404, status(404, 'NotFound', ofPod('web-0'))],
    ['a pod of the same name', 200, pod('web-0', '10.0.0.5', { metadata: { uid: 'uid-of-another' } })],
    ['an ended pod', 200, pod('web-0', '10.0.0.5', { status: ended('Failed', FINISHED) })],
  ])('%s, in another cluster than listed what there is, is no answer', async (_, code, body) => {
    answer(code, body, 'cluster-2')
    expect(await ask()).toMatchObject({ answer: 'unknown' })
  })

  test.each<[string, Fields]>([
    [
      'Pending without an address (whereabouts#162)',
      { phase: 'Pending', podIP: undefined, podIPs: undefined },
    ],
    ['Unknown', { phase: 'Unknown' }],
    ['Failed, with a container that still runs', { phase: 'Failed' }],
    [
      'Failed, with one whose end nobody saw (the API server says 1970)',
      ended('Failed', '1970-01-01T00:00:00Z'),
    ],
    ['Running, between two starts', ended('Running', FINISHED)],
    ['no status at all', { phase: undefined, containerStatuses: undefined }],
  ])('%s is alive', async (_, fields) => {
    answerPod({ status: fields })
    expect(await ask()).toMatchObject({ answer: 'live' })
  })

  test('a pod that has ended, since its last container did', async () => {
    const status = { ...ended('Failed', FINISHED), initContainerStatuses: [finished(LATER)] }
    answerPod({ status })
    expect(await ask()).toEqual({ answer: 'terminal', since: Date.parse(LATER), detail: 'Failed' })
    answerPod({ status, metadata: { deletionTimestamp: LATER } })
    expect(await ask()).toMatchObject({ answer: 'live' })
  })

  test('a pod that says nothing of one of its containers has not ended', async () => {
    const status = ended('Failed', FINISHED)
    const containers = ['c', 'sidecar'].map((name) => ({ name, image: 'i' }))
    answerPod({ status, spec: { containers } })
    expect(await ask()).toMatchObject({ answer: 'live' })
    answerPod({ status, spec: { containers: containers.slice(1) } })
    expect(await ask()).toMatchObject({ answer: 'terminal' })
  })

  test.each(['web-0', 'default/web-0/eth0', '../web-0', 'default/..', 'default/web 0', '/'])(
    '%s is no name of a pod, and nothing is asked',
    async (name) => {
      answerPod()
      expect(await ask({ name })).toMatchObject({ answer: 'unknown' })
      expect(endpoint.asked).toEqual([])
    },
  )
})
