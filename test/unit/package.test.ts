/** What `npm pack` puts into the package: JavaScript and SQL that run, and the contract. No tests, no TypeScript source. */
import { execFileSync } from 'node:child_process'
import { globSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { ROOT } from '../support/root.ts'

const cwd = fileURLToPath(ROOT)

/** The types of `ipledger/client` are in the `.d.ts` files. */
const WANTED = [
  /^(LICENSE|README\.md|(dist\/)?package\.json|bin\/ipledger\.js)$/,
  /^dist\/src\/gen\/openapi\.json$/,
  /^dist\/(src|bench)\/.+(\.js|\.d\.ts)$/,
  /^dist\/db\/(grants|audit\/.+|migrations\/.+)\.sql$/,
  /^proto\/.+(\.proto|LICENSE)$/,
]

test('the package has what runs, and nothing else', { timeout: 60_000 }, () => {
  const said = execFileSync('npm', ['pack', '--dry-run', '--json', '--silent'], { cwd, encoding: 'utf8' })
  const files: string[] = JSON.parse(said)[0].files.map(({ path }: { path: string }) => path)
  expect(files.filter((file) => !WANTED.some((pattern) => pattern.test(file)))).toEqual([])
  const sources = globSync('{src,bench}/**/*.ts', { cwd }).map((file) => `dist/${file.slice(0, -3)}.js`)
  const sql = globSync('db/{grants,audit/*,migrations/*}.sql', { cwd }).map((file) => `dist/${file}`)
  const needed = [...sources, ...sql, 'bin/ipledger.js', 'proto/ipledger/v1/lease.proto']
  expect(files).toEqual(expect.arrayContaining(needed))
})
