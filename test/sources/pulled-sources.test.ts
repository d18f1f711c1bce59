/** What every kind of source that is asked keeps to. */
import { beforeAll, describe, expect, test } from 'vitest'
import { PulledSources } from '../../src/sources/pulled-sources.ts'
import type { Question } from '../../src/sources/source.ts'
import { declaration, kubeconfigOf, owner, useSource } from '../support/asked.ts'
import { NO_ANSWERS, says, useEndpoint } from '../support/endpoint.ts'

const endpoint = await useEndpoint()
const sources = new PulledSources({})

const settings = { listUrl: `${endpoint.url}/list`, lookUpUrl: `${endpoint.url}/{uid}` }
const declared = declaration('http', settings)
const patience = () => AbortSignal.timeout(60_000)
const question = (kind = 'vm'): Question => ({
  owner: owner({ kind, name: 'a' }),
  address: '10.0.0.1',
  node: '',
  epoch: 'e1',
})

test('is opened once for as long as its declaration stays', () => {
  const one = sources.get('default', declared)
  expect(sources.get('default', { ...declared })).toBe(one)
  expect(sources.get('other', declared)).not.toBe(one)
  expect(sources.get('default', { ...declared, id: 'other' })).not.toBe(one)
  const elsewhere = { ...settings, listUrl: 'https://elsewhere/' }
  expect(sources.get('default', { ...declared, settings: elsewhere })).not.toBe(one)
  expect(sources.get('default', { ...declared, ownerKinds: ['pod'] })).not.toBe(one)
})

test('that cannot be opened says so when it is used, and not before', async () => {
  const agent = sources.get('default', declaration('push', {}))
  await expect(agent.list(patience())).rejects.toThrow(/reports by itself/)
  expect(await agent.lookUp(question(), patience())).toMatchObject({ answer: 'error' })
})

test('that could not be opened is tried again', async () => {
  const wrong = sources.get('default', declaration('kubernetes', { context: 'c' }))
  const before = process.env.KUBERNETES_SERVICE_HOST
  process.env.KUBERNETES_SERVICE_HOST = '127.0.0.1'
  await expect(wrong.list(patience())).rejects.toThrow(/names no cluster/)
  await expect(wrong.list(patience())).rejects.toThrow(/names no cluster/)
  if (before === undefined) delete process.env.KUBERNETES_SERVICE_HOST
})

test('answers only about the kinds of owner that it sees: of another it has none, wherever that is', async () => {
  endpoint.answer(says({ answer: 'gone', name: 'a' }))
  const source = useSource(declared)
  expect(await source.lookUp(question(), patience())).toMatchObject({ answer: 'gone' })
  expect(await source.lookUp(question('pod'), patience())).toMatchObject({ answer: 'unknown' })
  expect(endpoint.asked).toHaveLength(1)
})

test('what it says of itself is text that can be kept', async () => {
  const detail = `\u0000a\nb\ud800${'c'.repeat(1_000)}`
  endpoint.answer(says({ answer: 'live', detail }))
  const found = await useSource(declared).lookUp(question(), patience())
  expect(found.detail).toMatch(/^ a b\ufffdc{490,500}…$/)
})

const { hostname, port } = new URL(endpoint.url)
const kubeconfig = kubeconfigOf(endpoint.url)
const docker = { host: hostname, port: Number(port), network: 'web' }
describe.each([
  ['http', useSource(declared), 'vm'],
  ['docker', useSource(declaration('docker', docker)), 'container'],
  ['kubernetes', useSource(declaration('kubernetes', {}), { kubeconfig }), 'pod'],
] as const)('%s: what is no answer is no list, and of a workload an error', (_, source, kind) => {
  // The client of Kubernetes is large: seconds on a busy machine.
  beforeAll(() => import('../../src/sources/kubernetes.ts'))
  test.each(NO_ANSWERS)('%s', async (_, answering) => {
    endpoint.answer(answering)
    await expect(source.list(AbortSignal.timeout(300))).rejects.toThrow()
    const owner = { ...question(kind).owner, name: 'default/a', uid: 'a'.repeat(64) }
    const asked = { ...question(kind), owner }
    expect(await source.lookUp(asked, AbortSignal.timeout(300))).toMatchObject({ answer: 'error' })
  })
})
