/** What `npm pack` puts into the package: JavaScript and SQL that run, and the contract. No tests, no TypeScript source. */
import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, globSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const cwd = fileURLToPath(ROOT)

const WANTED = [
  /^(LICENSE|README\.md|(dist\/)?package\.json|bin\/ipledger\.js)$/,
  /^dist\/src\/gen\/openapi\.json$/,
  /^dist\/(src|bench)\/.+(\.js|\.d\.ts)$/,
  /^dist\/src\/console\/style\.css$/,
  /^dist\/src\/sources\/kubeconfig\.js\.LICENSES\.txt$/,
  /^dist\/bench\/cni-calls\.c$/,
  /^dist\/cni\/(ipledger-cni\.mjs|launcher\.c)$/,
  /^dist\/db\/(audit|grants|migrations)\/.+\.sql$/,
  /^proto\/.+(\.proto|LICENSE)$/,
]

test('the package has what runs, and nothing else', { timeout: 120_000 }, () => {
  const said = execFileSync('npm', ['pack', '--dry-run', '--json', '--silent'], { cwd, encoding: 'utf8' })
  const files: string[] = JSON.parse(said)[0].files.map(({ path }: { path: string }) => path)
  expect(files.filter((file) => !WANTED.some((pattern) => pattern.test(file)))).toEqual([])
  const sources = globSync('{src,bench}/**/*.ts', { cwd }).map((file) => `dist/${file.slice(0, -3)}.js`)
  const sql = globSync('db/{audit,grants,migrations}/*.sql', { cwd }).map((file) => `dist/${file}`)
  const needed = [
    ...sources,
    ...sql,
    'dist/src/console/style.css',
    'bin/ipledger.js',
    'proto/ipledger/v1/lease.proto',
    'dist/cni/ipledger-cni.mjs',
    'dist/cni/launcher.c',
    'dist/bench/cni-calls.c',
  ]
  expect(files).toEqual(expect.arrayContaining(needed))
})

test('the command runs src where it is, else dist; on the Node.js that it brings, else on a new one', () => {
  const root = temporaryDirectory()
  for (const path of ['package.json', 'bin/ipledger.js']) cpSync(new URL(path, ROOT), join(root, path))
  const write = (path: string, text: string) => {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const ran = () =>
    execFileSync(process.execPath, [join(root, 'bin/ipledger.js'), 'serve'], { encoding: 'utf8' })
  const show = 'console.log(import.meta.url, ...process.execArgv)'
  write('dist/src/main.js', show)
  expect(ran()).toMatch(/dist\/src\/main\.js --max-semi-space-size=64\n$/)
  write('src/main.ts', show)
  expect(ran()).toMatch(/(?<!dist\/)src\/main\.ts --max-semi-space-size=64\n$/)
  const { platform, arch } = process
  const name = `node${platform === 'darwin' && arch === 'arm64' ? '-bin' : ''}-${platform}-${arch}`
  write(`node_modules/${name}/package.json`, '{}')
  write(`node_modules/${name}/bin/node`, '#!/bin/sh\necho brought "$@"')
  chmodSync(join(root, `node_modules/${name}/bin/node`), 0o755)
  expect(ran()).toMatch(/^brought --max-semi-space-size=64 .*main\.ts serve\n$/)
  // A binary for glibc on a system with musl: its loader is missing.
  write(`node_modules/${name}/bin/node`, '#!/nowhere/loader\n')
  expect(ran()).toMatch(/src\/main\.ts --max-semi-space-size=64\n$/)
})
