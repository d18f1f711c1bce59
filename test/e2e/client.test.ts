/**
 * `ipledger-client` as in its package: built, with Connect and nothing of the server beside it. The examples of its docstrings are
 * type-checked against what was built, and run; where one prints, a comment behind it says what.
 */
import { execFile } from 'node:child_process'
import { cpSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import * as client from '../../src/client/client.ts'
import { ROOT } from '../support/root.ts'
import { useService } from '../support/service.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const run = promisify(execFile)
const root = fileURLToPath(ROOT)
const tsc = (args: readonly string[], cwd: string) =>
  run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), ...args], { cwd }).catch(
    ({ stdout }) => {
      throw new Error(stdout)
    },
  )

const source = globSync('src/client/*.ts', { cwd: root, exclude: ['src/client/browser.ts'] })
  .map((file) => readFileSync(join(root, file), 'utf8'))
  .join('\n')

/** What the docstring right above a declaration says. */
const docstringOf = (name: string) =>
  new RegExp(
    String.raw`/\*\*((?:(?!\*/).)*)\*/\nexport (?:async )?(?:class|const|function\*?|type) ${name}\b`,
    's',
  ).exec(source)?.[1]
const exampleIn = (docstring = '') =>
  /```ts\n(.*?) \* ```/s.exec(docstring)?.[1]?.replaceAll(/^ \* ?/gm, '') ?? ''

/** Classes and functions; what else is exported are enums of the contract. */
const functions = Object.entries(client).flatMap(([name, one]) => (typeof one === 'function' ? [name] : []))
const types = [...source.matchAll(/^export type (\w+) =/gm)].map(([, name]) => name!)

test('each function says what it does, by an example; each type says what it is', () => {
  expect(functions.sort()).toEqual(['CallFailed', 'LeaseMirror', 'createClient', 'isKept', 'watchLeases'])
  expect(functions.filter((name) => exampleIn(docstringOf(name)) === '')).toEqual([])
  expect(types.filter((name) => docstringOf(name) === undefined)).toEqual([])
})

const service = await useService()

test('the package alone does what its examples say', async () => {
  await service.call.ok('PoolService/CreatePool', { name: 'web', cidr: '10.0.0.0/24' })
  const directory = temporaryDirectory()
  const packages = join(directory, 'node_modules')
  mkdirSync(packages)
  for (const name of ['@bufbuild', '@connectrpc', '@types'])
    symlinkSync(join(root, 'node_modules', name), join(packages, name))
  await run('npm', ['run', '--silent', 'build:client'], { cwd: root })
  cpSync(join(root, 'dist/client'), join(packages, 'ipledger-client'), { recursive: true })

  const url = 'http://127.0.0.1:8080'
  const examples = functions.map((name) => ({ name, text: exampleIn(docstringOf(name)) }))
  for (const { name, text } of examples) {
    const made = text.includes('const client =') ? '' : `const client = createClient({ url: '${url}' })\n`
    const head = `import { ${Object.keys(client).join(', ')} } from 'ipledger-client'\n`
    writeFileSync(join(directory, `${name}.ts`), (head + made + text).replaceAll(url, service.url))
  }
  const compilerOptions = {
    target: 'esnext',
    module: 'nodenext',
    types: ['node'],
    strict: true,
    noEmit: true,
  }
  writeFileSync(join(directory, 'package.json'), '{ "type": "module" }')
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
  await tsc(['-p', '.'], directory)

  for (const { name, text } of examples) {
    const { stdout } = await run(process.execPath, [`${name}.ts`], { cwd: directory, timeout: 30_000 })
    const said = [...text.matchAll(/console\.log\(.*\) \/\/ (.*)$/gm)].map(([, line]) => `${line}\n`)
    expect(said.length, name).toBeGreaterThan(0)
    expect(stdout, name).toBe(said.join(''))
  }
})
