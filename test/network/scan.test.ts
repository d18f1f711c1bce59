/** A look while processes end and namespaces lose their names. */
import { spawn as start } from 'node:child_process'
import { once } from 'node:events'
import { expect, onTestFinished, test, vi } from 'vitest'
import { scanNode } from '../../src/cni/namespaces.ts'
import { openNode } from './node.ts'

/** Between the look's list of namespaces and its reading of them. */
let meanwhile = () => {}
/** Processes whose namespace can't be read: no process has the first number. */
const ENDED = '99999999'
let unreadable: readonly string[] = []
vi.mock('node:child_process', async (original) => {
  const real = await original<typeof import('node:child_process')>()
  const spawn = (...args: Parameters<typeof real.spawn>) => {
    meanwhile()
    return real.spawn(...args)
  }
  return { ...real, spawn }
})
vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>()
  const readdirSync = (dir: string) =>
    dir === '/proc' ? [...real.readdirSync(dir), ENDED] : real.readdirSync(dir)
  const statfsSync = (path: string) => {
    if (unreadable.some((pid) => path === `/proc/${pid}/ns/net`))
      throw Object.assign(new Error(`EACCES: ${path}`), { code: 'EACCES' })
    return real.statfsSync(path)
  }
  return { ...real, readdirSync, statfsSync }
})
const node = await openNode({ IPLEDGER_URL: 'http://127.0.0.1:1' })

/** A process in the container's namespace. */
async function running(...command: readonly string[]): Promise<number> {
  const [file, ...args] = command
  const child = start(file!, args, { stdio: ['ignore', 'pipe', 'ignore'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return child.pid!
}

test('a process that ended while it was looked at hides nothing; one that lives does', async () => {
  unreadable = [ENDED]
  expect((await scanNode(null)).complete).toBe(true)
  unreadable = [String(await running('sh', '-c', 'echo begun; exec sleep 60'))]
  expect((await scanNode(null)).complete).toBe(false)
  unreadable = []
})

/** Once, when the look reads the containers' namespaces: the node's own is read first. */
function whenRead(change: () => void): void {
  let calls = 0
  meanwhile = () => {
    calls += 1
    if (calls === 2) change()
  }
  onTestFinished(() => {
    meanwhile = () => {}
  })
}

test('a namespace that loses its name while it is looked at is read as long as a process is in it', async () => {
  const path = node.pathOf(node.add('nameless'))
  node.inside('nameless', 'ip', 'address', 'add', '10.99.0.1/32', 'dev', 'lo')
  await running('nsenter', `--net=${path}`, 'sh', '-c', 'echo begun; exec sleep 60')
  whenRead(() => node.remove('nameless'))
  const { complete, all } = await scanNode(null)
  expect(complete).toBe(true)
  expect(all).toContain('10.99.0.1')
})

test('one that goes away meanwhile hides nothing, also when a new one gets its number', async () => {
  node.add('going')
  whenRead(() => {
    node.remove('going')
    node.add('coming')
  })
  expect((await scanNode(null)).complete).toBe(true)
})

test('one that can’t be read hides what is in it, also when no shell starts', async () => {
  node.add('shut')
  whenRead(() => {
    process.env.PATH = '/nowhere'
  })
  const { PATH } = process.env
  onTestFinished(() => {
    process.env.PATH = PATH
  })
  expect((await scanNode(null)).complete).toBe(false)
})
