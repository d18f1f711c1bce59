/** What the container runtime's library wrote down. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { attachmentsIn } from '../../src/cni/cache.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

test('each attachment with its owner and namespace; what cannot be read says nothing', () => {
  const cache = temporaryDirectory()
  expect(attachmentsIn(cache)).toEqual([])
  const results = join(cache, 'results')
  mkdirSync(results)
  const entry = { kind: 'cniCacheV1', containerId: 'c1', ifName: 'eth0', cniArgs: [['K8S_POD_UID', 'u']] }
  const interfaces = [
    { name: 'eth0' },
    { name: 'eth1', sandbox: '/run/netns/other' },
    { name: 'eth0', sandbox: '/run/netns/c1' },
  ]
  const files = {
    full: { ...entry, result: { interfaces } },
    later: { ...entry, kind: 'cniCacheV2' },
    unsaid: { ...entry, containerId: 'c2', result: {} },
  }
  for (const [name, content] of Object.entries(files))
    writeFileSync(join(results, name), JSON.stringify(content))
  writeFileSync(join(results, 'half'), '{')
  const owner = { kind: 'pod', name: '/', uid: 'u', interface: 'eth0' }
  expect(attachmentsIn(cache)).toEqual([
    { container: 'c1', owner: { ...owner, incarnation: 'c1' }, netns: '/run/netns/c1' },
    { container: 'c2', owner: { ...owner, incarnation: 'c2' }, netns: '' },
  ])
})

test('what is no regular file is not read: a FIFO would be waited for', () => {
  const cache = temporaryDirectory()
  const results = join(cache, 'results')
  mkdirSync(join(results, 'a-directory'), { recursive: true })
  const entry = { kind: 'cniCacheV1', containerId: 'c1', ifName: 'eth0' }
  writeFileSync(join(results, 'blue-c1-eth0'), JSON.stringify(entry))
  execFileSync('mkfifo', [join(results, 'a-fifo')])
  // A process of its own can be ended, should it hang.
  const path = join(import.meta.dirname, '../../src/cni/cache.ts')
  const script = `const { attachmentsIn } = await import(${JSON.stringify(path)})
    console.log(attachmentsIn(${JSON.stringify(cache)}).length)`
  const options = { timeout: 10_000, encoding: 'utf8', env: {} } as const
  expect(execFileSync(process.execPath, ['--input-type=module', '-e', script], options)).toBe('1\n')
})
