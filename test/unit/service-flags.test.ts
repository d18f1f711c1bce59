import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const root = new URL('../../', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, root), 'utf8')
const { config } = JSON.parse(read('package.json')) as { readonly config: { readonly serviceFlags: string } }
const flags = config.serviceFlags.split(' ')

// Decision 0020.
test('the service is told to keep its memory small, whoever starts it', () => {
  expect(flags).toEqual([
    expect.stringContaining('--heap-growing-percent='),
    expect.stringContaining('--max-semi-space-size='),
  ])
  const entry = /^ENTRYPOINT (.*)$/m.exec(read('ops/Dockerfile'))![1]!
  expect(JSON.parse(entry)).toEqual(['node', ...flags, 'src/main.ts'])
  expect(read('package.json')).toContain('exec node $npm_package_config_serviceFlags src/main.ts serve')
})

test('the Node.js of this project knows these flags', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...flags, '--print', '1'], {
    encoding: 'utf8',
  })
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: '1\n', stderr: '' })
})
