/**
 * Takes the guards of `guards.ts` out of a copy of this tree, one at a time, and runs the tests that must then fail.
 *
 *   node test/mutation/run.ts [--quick] [--only TEXT]…
 *
 * `--quick`: those whose tests need no database. `--only`: guards whose words or file contain the text. Ends with 1 if a
 * guard can be taken out unnoticed, or if a test fails with all of them in place. The tree itself is never changed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { GUARDS, type Guard, isQuick } from './guards.ts'

const TREE = fileURLToPath(new URL('../../', import.meta.url))
const NOT_COPIED = new Set(['node_modules', '.git', '.ipledger'])
/** Copies, each with a run of its own: what keeps two cores busy. */
const COPIES = 2
/** A guard that bounds a loop may be what ends it: a test that hangs without it has failed. */
const LONGEST_MS = 180_000
/** All files of tests, one run. */
const LONGEST_WHOLE_MS = 900_000

type Outcome = { readonly failed: number; readonly first: string; readonly problem: string }

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', multiple: true, default: [] },
  },
})
const running = new Set<ChildProcess>()
process.exitCode = await main()

async function main(): Promise<number> {
  const chosen = GUARDS.filter(
    (guard) =>
      (!values.quick || isQuick(guard)) &&
      values.only.every((text) => `${guard.guard} ${guard.file}`.includes(text)),
  )
  // Without files of tests to run, vitest would run all.
  if (chosen.length === 0) {
    console.error('No guard is meant by that.')
    return 1
  }
  const work = mkdtempSync(join(tmpdir(), 'ipledger-guards-'))
  const end = () => {
    for (const child of running) child.kill('SIGKILL')
    rmSync(work, { recursive: true, force: true })
  }
  process.once('SIGINT', () => process.exit(130))
  process.once('exit', end)
  const copies = Array.from({ length: COPIES }, (_, index) => copyTree(join(work, `tree-${index}`)))

  const begun = performance.now()
  const files = [...new Set(chosen.map(({ fails }) => fails))]
  const whole = await runTests(copies[0]!, files, LONGEST_WHOLE_MS)
  if (whole.failed > 0 || whole.problem !== '') {
    console.error(`With every guard in place: ${whole.first}${whole.problem}`)
    return 1
  }
  console.log(`${files.length} files of tests pass with every guard in place.`)

  const waiting = [...chosen]
  const unnoticed: Guard[] = []
  let done = 0
  await Promise.all(
    copies.map(async (copy) => {
      for (let guard = waiting.shift(); guard !== undefined; guard = waiting.shift()) {
        const { failed, first, problem } = await without(copy, guard)
        done += 1
        if (failed > 0) {
          console.log(`${done}/${chosen.length} ${guard.guard}\n      fails: ${first}`)
          continue
        }
        unnoticed.push(guard)
        console.log(
          `${done}/${chosen.length} ${guard.guard}\n      NOTHING FAILS in ${guard.fails} ${problem}`,
        )
      }
    }),
  )
  const seconds = Math.round((performance.now() - begun) / 1_000)
  console.log(
    `${chosen.length - unnoticed.length} of ${chosen.length} guards are missed when they are gone (${seconds} s).`,
  )
  for (const { guard, file } of unnoticed) console.error(`unnoticed: ${guard} (${file})`)
  return unnoticed.length === 0 ? 0 : 1
}

function copyTree(to: string): string {
  cpSync(TREE, to, { recursive: true, filter: (path) => !NOT_COPIED.has(basename(path)) })
  symlinkSync(join(TREE, 'node_modules'), join(to, 'node_modules'))
  return to
}

async function without(copy: string, { file, text, replacement, fails }: Guard): Promise<Outcome> {
  const path = join(copy, file)
  const source = readFileSync(path, 'utf8')
  if (source.split(text).length !== 2)
    return { failed: 0, first: '', problem: `: its text is not once in ${file}` }
  // Not a pattern: `$` stands for itself.
  writeFileSync(
    path,
    source.replace(text, () => replacement),
  )
  try {
    return await runTests(copy, [fails], LONGEST_MS, '--bail=1')
  } finally {
    writeFileSync(path, source)
  }
}

async function runTests(
  copy: string,
  files: readonly string[],
  longestMs: number,
  ...options: readonly string[]
): Promise<Outcome> {
  const report = join(copy, 'report.json')
  rmSync(report, { force: true })
  const child = spawn(
    process.execPath,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      ...files,
      '--reporter=json',
      `--outputFile=${report}`,
      ...options,
    ],
    { cwd: copy, stdio: 'ignore' },
  )
  running.add(child)
  const late = setTimeout(() => child.kill('SIGKILL'), longestMs)
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  clearTimeout(late)
  running.delete(child)
  if (code === null) return { failed: 1, first: `no end after ${longestMs / 1_000} s`, problem: '' }
  try {
    return read(JSON.parse(readFileSync(report, 'utf8')))
  } catch (error) {
    return { failed: 0, first: '', problem: `no report: ${error}` }
  }
}

type Report = {
  readonly numFailedTests: number
  readonly testResults: readonly {
    readonly name: string
    readonly status: string
    readonly message: string
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[]
  }[]
}

/** A file that cannot even be loaded proves nothing: the guard has to be missed by a test. */
function read({ numFailedTests, testResults }: Report): Outcome {
  const first = testResults
    .flatMap(({ assertionResults }) => assertionResults)
    .find(({ status }) => status === 'failed')
  const broken = testResults.find(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  )
  return {
    failed: numFailedTests,
    first: first?.fullName ?? '',
    problem: broken === undefined ? '' : `${broken.name}: ${broken.message}`,
  }
}
