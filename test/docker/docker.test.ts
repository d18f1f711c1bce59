/**
 * The Docker source against a real engine: what it lists and finds while containers live and die and the daemon comes and
 * goes. The tests are one story and run in order.
 */
import type Docker from 'dockerode'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { LookUp, PulledSource } from '../../src/sources/source.ts'
import { declaration, owner, useSource } from '../support/asked.ts'
import { readEntries } from '../support/at-once.ts'
import { type Engine, NETWORK, openEngine } from './engine.ts'

const SUBNET = '172.31.250.0/24'
const patience = () => AbortSignal.timeout(60_000)

let engine: Engine
let source: PulledSource
let epoch: string
const containers = new Map<string, Docker.Container>()
const KEPT = ['running', 'stopped', 'killed', 'paused', 'created']
const address = (name: string) => `172.31.250.${10 + [...KEPT, 'removed'].indexOf(name)}`

beforeAll(async () => {
  engine = await openEngine(SUBNET)
  const settings = { socketPath: engine.socketPath, network: NETWORK }
  source = useSource(declaration('docker', settings, { node: 'n1' }))
  for (const name of ['running', 'stopped', 'killed', 'paused', 'removed']) {
    containers.set(name, await engine.run(name, address(name)))
  }
  containers.set('created', await engine.create('created', address('created')))
})
afterAll(() => engine?.close())

async function listed(): Promise<readonly (readonly string[])[]> {
  const listing = await source.list(patience())
  expect(listing).toMatchObject({ complete: true, because: '' })
  epoch ??= listing.epoch
  expect(listing.epoch, 'the same life').toBe(epoch)
  const { entries, unreadableCount } = readEntries(listing.entries, { network: 'default', node: 'n1' })
  expect(unreadableCount).toBe(0)
  return entries.map((entry) => [entry.name!, entry.address, entry.uid!, entry.state!]).sort()
}

function lookUp(name: string, uid = `n1/${name}`): Promise<LookUp> {
  const asked = owner({ kind: 'container', name: `n1/${name}`, uid })
  return source.lookUp({ owner: asked, address: '', node: 'n1', epoch }, patience())
}

const uidOf = (name: string): string => containers.get(name)!.id

test('containers with addresses of their own are listed, by name and id', async () => {
  const all = await listed()
  const expected = [...containers.keys()].map((name) => [
    `n1/${name}`,
    address(name),
    uidOf(name),
    name === 'created' ? 'created' : 'running',
  ])
  expect(all).toEqual(expected.sort())
})

test('stopped, killed and paused ones are listed and found; a removed one is gone', async () => {
  await containers.get('stopped')!.stop({ t: 0 })
  await containers.get('killed')!.kill()
  await containers.get('paused')!.pause()
  await containers.get('removed')!.remove({ force: true })
  expect((await listed()).map(([name]) => name)).toEqual(KEPT.map((name) => `n1/${name}`).sort())
  for (const name of KEPT) {
    expect(await lookUp(name), name).toMatchObject({ answer: 'live' })
    expect(await lookUp(name, uidOf(name)), name).toMatchObject({ answer: 'live' })
  }
  expect(await lookUp('removed')).toMatchObject({ answer: 'gone' })
  expect(await lookUp('removed', uidOf('removed'))).toMatchObject({ answer: 'gone' })
})

test('a new one of the same name is not the old one', async () => {
  const again = await engine.run('removed', address('removed'))
  expect(await lookUp('removed', uidOf('removed'))).toMatchObject({ answer: 'gone' })
  expect(await lookUp('removed')).toMatchObject({ answer: 'live' })
  await again.remove({ force: true })
})

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'while the daemon is down (%s) there is no answer, and it is the same life afterwards',
  async (signal) => {
    await engine.stop(signal)
    await expect(source.list(patience())).rejects.toThrow()
    expect(await lookUp('removed')).toMatchObject({ answer: 'error' })
    await engine.start()
    expect((await listed()).map(([name]) => name)).toEqual(KEPT.map((name) => `n1/${name}`).sort())
    expect(await lookUp('removed')).toMatchObject({ answer: 'gone' })
  },
)

test('while the daemon goes down and up no list lacks what lives, and nothing that lives is gone', async () => {
  let over = false
  const going = (async () => {
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL'] as const) {
      await engine.stop(signal)
      await engine.start()
    }
    over = true
  })()
  while (!over) {
    const listing = await source.list(patience()).catch(() => null)
    if (listing?.complete)
      expect(listing.entries.map(({ uid }) => uid)).toEqual(expect.arrayContaining(KEPT.map(uidOf)))
    for (const name of KEPT) expect((await lookUp(name)).answer, name).toMatch(/^(live|error|unknown)$/)
  }
  await going
})
