/** bin/ipledger.js: which Node.js it takes. */
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** An installation whose Node.js is `program`; null: without that package. */
function installed(program: string | null): string {
  const root = temporaryDirectory()
  cpSync(fileURLToPath(new URL('bin', ROOT)), join(root, 'bin'), { recursive: true })
  cpSync(fileURLToPath(new URL('package.json', ROOT)), join(root, 'package.json'))
  mkdirSync(join(root, 'src'))
  writeFileSync(join(root, 'src', 'main.ts'), 'console.log("runs on", process.execPath)')
  if (program !== null) {
    const { platform, arch } = process
    const packaged = join(root, 'node_modules', `node-${platform}-${arch}`)
    mkdirSync(join(packaged, 'bin'), { recursive: true })
    writeFileSync(join(packaged, 'package.json'), '{}')
    writeFileSync(join(packaged, 'bin', 'node'), program, { mode: 0o755 })
  }
  return join(root, 'bin', 'ipledger.js')
}

test.runIf(process.platform === 'linux')(
  'the one that comes with it, or else the one that runs this, if it is new enough',
  () => {
    const own = (launcher: string) => execFileSync(process.execPath, [launcher, 'x']).toString()
    expect(own(installed('#!/bin/sh\necho "its own: $2"'))).toBe('its own: x\n')
    expect(own(installed(null))).toBe(`runs on ${process.execPath}\n`)
    // As a binary for glibc on a system with musl: its loader is missing.
    expect(own(installed('#!/nowhere/loader\n'))).toBe(`runs on ${process.execPath}\n`)
  },
)

const old =
  spawnSync('/usr/bin/env', [
    '-i',
    'PATH=/usr/local/bin:/usr/bin:/bin',
    'node',
    '--version',
  ]).stdout?.toString() ?? ''
test.runIf(/^v2[0-5]\./.test(old))('an old one says what is missing', () => {
  const { status, stderr } = spawnSync('/usr/bin/env', [
    '-i',
    'PATH=/usr/local/bin:/usr/bin:/bin',
    'node',
    installed(null),
  ])
  expect(status).toBe(1)
  expect(stderr.toString()).toMatch(
    /^ipledger: the package node-\S+, the Node\.js 26 that it runs on, is missing: /,
  )
})
