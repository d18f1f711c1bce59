/** What the container runtime's library wrote down. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { attachmentsIn } from '../../src/cni/cache.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

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
  expect(attachmentsIn(cache)).toMatchObject([{ container: 'c1', netns: '' }])
})
