/**
 * When a scan is complete. /proc, the names of namespaces and what `nsenter` prints are the test's, so that it needs no privileges;
 * test/network/races.test.ts and running.test.ts look at real ones.
 */
import { EventEmitter } from 'node:events'
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { addressesOf, OWN, scanNode } from '../../src/cni/namespaces.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

type Space = { readonly ino: number } | 'EACCES' | 'EIO'
/** By path; processes that live; directories of names. */
const fake = vi.hoisted(() => ({
  spaces: new Map<string, Space>(),
  processes: new Set<string>(),
  names: new Set<string>(),
  meanwhile: [] as (() => void)[],
  shells: 0,
  isFull: false,
}))
vi.mock('node:child_process', async (original) => {
  const real = await original<typeof import('node:child_process')>()
  const spawn = (...args: Parameters<typeof real.spawn>) => {
    fake.meanwhile[fake.shells]?.()
    fake.shells += 1
    // As Node.js does where files are at their limit.
    return fake.isFull ? Object.assign(new EventEmitter(), { pid: undefined }) : real.spawn(...args)
  }
  return { ...real, spawn }
})
vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>()
  const isFake = (path: string) => path.startsWith('/proc/') || path.startsWith('/run/')
  const spaceAt = (path: string) => {
    const space = fake.spaces.get(path)
    if (typeof space === 'object') return { dev: 4, ino: space.ino, type: 0x6e736673 }
    throw Object.assign(new Error(`${space}: ${path}`), { code: space ?? 'ENOENT' })
  }
  const statSync: typeof real.statSync = ((path: string, options?: object) =>
    isFake(path) ? spaceAt(path) : real.statSync(path, options)) as never
  return {
    ...real,
    statSync,
    statfsSync: (path: string) => (isFake(path) ? spaceAt(path) : real.statfsSync(path)),
    readdirSync: (path: string) => {
      if (path === '/proc') return ['1', 'meminfo', ...fake.processes]
      if (path === '/run/netns') return [...fake.names]
      return isFake(path) ? spaceAt(path) : real.readdirSync(path)
    },
    existsSync: (path: string) =>
      path.startsWith('/proc/') ? fake.processes.has(path.slice('/proc/'.length)) : real.existsSync(path),
  }
})

/** What `nsenter` prints of a path. */
let printed = ''
const nameOf = (path: string) => join(printed, path.replaceAll('/', '_'))
const links = (address: string) =>
  `${JSON.stringify([{ ifindex: 2, ifname: 'eth0', addr_info: [{ local: address, scope: 'global' }] }])}\n`
function space(path: string, ino: number, prints: string | null): void {
  fake.spaces.set(path, { ino })
  const [, process] = /^[/]proc[/](\d+)[/]/.exec(path) ?? []
  if (process !== undefined) fake.processes.add(process)
  if (path.startsWith('/run/netns/')) fake.names.add(path.slice('/run/netns/'.length))
  if (prints !== null) writeFileSync(nameOf(path), prints)
}
function gone(path: string): void {
  fake.spaces.delete(path)
  fake.processes.delete(path.split('/')[2]!)
  fake.names.delete(path.slice('/run/netns/'.length))
  rmSync(nameOf(path), { force: true })
}
beforeEach(() => {
  const home = temporaryDirectory()
  printed = join(home, 'printed')
  mkdirSync(printed)
  const nsenter = join(home, 'nsenter')
  writeFileSync(
    nsenter,
    `#!/bin/sh\nfile="${printed}/$(echo "\${1#--net=}" | tr / _)"\ncat "$file" && [ ! -e "$file.fails" ]\n`,
  )
  chmodSync(nsenter, 0o755)
  vi.stubEnv('PATH', `${home}:${process.env.PATH}`)
  onTestFinished(() => void vi.unstubAllEnvs())
  for (const all of [fake.spaces, fake.processes, fake.names]) all.clear()
  Object.assign(fake, { meanwhile: [], shells: 0, isFull: false })
  space(OWN, 1, links('10.0.0.1'))
})
/** In the order of the shells: the first reads the node's own. */
const beforeShell = (...work: readonly (() => void)[]) => void fake.meanwhile.push(() => {}, ...work)

test('every namespace is read, once, by whatever it is found', async () => {
  space('/run/netns/named', 2, links('10.0.0.2'))
  space('/proc/8/ns/net', 2, null)
  space('/proc/9/ns/net', 3, links('10.0.0.3'))
  const { complete, all, namespaces } = await scanNode(null)
  expect(complete).toBe(true)
  expect([...all]).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3'])
  expect(namespaces.get('4:2')).toEqual({ path: '/run/netns/named', pid: 8 })
})

test('a process whose namespace may not be read hides it, unless it has ended', async () => {
  fake.spaces.set('/proc/8/ns/net', 'EACCES')
  fake.processes.add('8')
  expect((await scanNode(null)).complete).toBe(false)
  // The kernel refuses it, and then it is not there.
  const has = vi.spyOn(fake.processes, 'has').mockReturnValue(false)
  onTestFinished(() => void has.mockRestore())
  expect((await scanNode(null)).complete).toBe(true)
})

test.each([
  ['a name that may not be read', '/run/netns/shut', 'EACCES'],
  ['a name that cannot be read', '/run/netns/broken', 'EIO'],
  ['a name that has a line break', '/run/netns/two\nlines', 'EIO'],
] as const)('so does %s', async (_, path, space) => {
  fake.names.add(path.slice('/run/netns/'.length))
  fake.spaces.set(path, space)
  expect((await scanNode(null)).complete).toBe(false)
})

test('so does a directory of names that may not be read', async () => {
  fake.spaces.set('/run/docker/netns', 'EACCES')
  expect((await scanNode(null)).complete).toBe(false)
})

test.each([
  ['nothing', null],
  ['half of a line, as of a shell that was killed', '[{"ifindex":2,"ifna'],
])('one of which %s is read hides what is in it, after three tries', async (_, prints) => {
  space('/run/netns/other', 3, links('10.0.0.3'))
  space('/run/netns/unread', 2, prints)
  const { complete, all } = await scanNode(null)
  expect(complete).toBe(false)
  expect(all).toContain('10.0.0.3')
  expect(fake.shells).toBe(4)
})

test.each([
  ['in several lines', JSON.stringify(JSON.parse(links('10.0.0.2')), null, 2), true],
  ['by a program that then fails', links('10.0.0.2'), false],
])('one that is printed %s changes nothing of the others', async (_, prints, isRead) => {
  space('/run/netns/a', 2, prints)
  if (!isRead) writeFileSync(`${nameOf('/run/netns/a')}.fails`, '')
  space('/run/netns/b', 3, links('10.0.0.3'))
  const { seen, complete } = await scanNode(null)
  expect(seen.map(({ namespace, address }) => [namespace, address])).toEqual([
    ...(isRead ? [['4:2', '10.0.0.2']] : []),
    ['4:3', '10.0.0.3'],
  ])
  expect(complete).toBe(isRead)
})

test('one that can be read the third time is', async () => {
  space('/run/netns/late', 2, null)
  beforeShell(
    () => {},
    () => {},
    () => space('/run/netns/late', 2, links('10.0.0.2')),
  )
  const { complete, all } = await scanNode(null)
  expect([complete, all.has('10.0.0.2')]).toEqual([true, true])
})

test('one that loses its name meanwhile is read by a process in it', async () => {
  space('/run/netns/named', 2, links('10.0.0.2'))
  space('/proc/8/ns/net', 2, links('10.0.0.2'))
  beforeShell(() => gone('/run/netns/named'))
  const { complete, all } = await scanNode(null)
  expect([complete, all.has('10.0.0.2')]).toEqual([true, true])
})

test('one that goes away meanwhile has nothing; a new one with its number is read', async () => {
  space('/run/netns/going', 2, links('10.0.0.2'))
  beforeShell(() => gone('/run/netns/going'))
  const first = await scanNode(null)
  expect([first.complete, first.all.has('10.0.0.2')]).toEqual([true, false])
  Object.assign(fake, { meanwhile: [], shells: 0 })
  space('/run/netns/going', 2, links('10.0.0.2'))
  beforeShell(() => {
    gone('/run/netns/going')
    space('/run/netns/coming', 2, links('10.0.0.3'))
  })
  const second = await scanNode(null)
  expect([second.complete, second.all.has('10.0.0.3')]).toEqual([true, true])
})

test('where the node’s own cannot be looked at or read, or no shell starts, it is not complete', async () => {
  fake.spaces.set(OWN, 'EACCES')
  expect((await scanNode(null)).complete).toBe(false)
  space(OWN, 1, null)
  rmSync(nameOf(OWN))
  expect((await scanNode(null)).complete).toBe(false)
  fake.isFull = true
  expect((await scanNode(null)).complete).toBe(false)
  fake.isFull = false
  vi.stubEnv('PATH', '/nowhere')
  expect((await scanNode(null)).complete).toBe(false)
})

test('of a place: its interface’s addresses, none, null where it cannot be read, none where there is no namespace', async () => {
  space('/run/netns/a', 2, links('10.0.0.2'))
  space('/run/netns/cut', 3, '[{"ifindex":2,"ifna')
  const at = (netns: string, on = 'eth0') => ({ netns, interface: on })
  fake.spaces.set('/proc/8/ns/net', 'EACCES')
  const places = [
    at('/run/netns/a'),
    at('/run/netns/a', 'eth1'),
    at('/run/netns/cut'),
    at('/proc/8/ns/net'),
    at('/run/netns/two\nlines'),
    at('/run/netns/none'),
  ]
  expect(await addressesOf(places)).toEqual([['10.0.0.2'], [], null, null, null, []])
})
