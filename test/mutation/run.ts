/**
 * Takes the guards of `guards.ts` out of a copy of this tree, one at a time, and runs the tests that must then fail.
 *
 *   node test/mutation/run.ts [--quick] [--only TEXT]…
 *
 * `--quick`: those whose tests need no database. `--only`: guards whose words or file contain the text. Ends with 1 if a
 * guard can be taken out unnoticed, or if a test fails with all of them in place. The tree itself is never changed.
 *
 * Guards whose tests need no database are asked of a vitest that stays (`standing.ts`): 25 of them in 17 s instead of 39. It might run a
 * text that is no longer there; so each changed text writes a stamp when it is loaded, and an answer counts only if the run has
 * loaded the stamp of its guard and no other. Whatever else comes of it, an unnoticed guard above all, is asked again of a
 * vitest of its own. A guard that is none ends each copy: its run must pass.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { GUARDS, type Guard, isQuick } from './guards.ts'
import { type Outcome, read } from './report.ts'
import type { Answer, Question } from './standing.ts'

const TREE = fileURLToPath(new URL('../../', import.meta.url))
const NOT_COPIED = new Set(['node_modules', '.git', '.ipledger'])
/** Copies, each with a run of its own: what keeps two cores busy. */
const COPIES = 2
/** A guard that bounds a loop may be what ends it: a test that hangs without it has failed. */
const LONGEST_MS = 180_000
/** All files of tests, one run. */
const LONGEST_WHOLE_MS = 900_000

type Copy = {
  readonly tree: string
  /** Started with the first question, and again when it is gone. */
  standing: ChildProcess | null
  /** What it was not told of yet. */
  readonly changed: Set<string>
  asked: number
  /** Answers that did not count. */
  unbelieved: number
}

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
  // A test runs a command of the tree as somebody else.
  chmodSync(work, 0o755)
  const end = () => {
    for (const child of running) endGroup(child)
    rmSync(work, { recursive: true, force: true })
  }
  process.once('SIGINT', () => process.exit(130))
  process.once('exit', end)
  const copies = Array.from({ length: COPIES }, (_, index): Copy => {
    const tree = copyTree(join(work, `tree-${index}`))
    return { tree, standing: null, changed: new Set(), asked: 0, unbelieved: 0 }
  })

  const begun = performance.now()
  const files = [...new Set(chosen.map(({ fails }) => fails))]
  const whole = await runTests(copies[0]!.tree, files, LONGEST_WHOLE_MS)
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
      let last: Guard | undefined
      for (let guard = waiting.shift(); guard !== undefined; guard = waiting.shift()) {
        if (isQuick(guard)) last = guard
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
      if (last !== undefined) await expectNoGuard(copy, last)
      if (copy.standing !== null) endGroup(copy.standing)
    }),
  )
  const seconds = Math.round((performance.now() - begun) / 1_000)
  console.log(
    `${chosen.length - unnoticed.length} of ${chosen.length} guards are missed when they are gone (${seconds} s).`,
  )
  const [asked, unbelieved] = [sum(copies, ({ asked }) => asked), sum(copies, (copy) => copy.unbelieved)]
  if (asked > 0) console.log(`${asked} questions to a vitest that stays, ${unbelieved} of them asked again.`)
  for (const { guard, file } of unnoticed) console.error(`unnoticed: ${guard} (${file})`)
  return unnoticed.length === 0 ? 0 : 1
}

function copyTree(to: string): string {
  cpSync(TREE, to, { recursive: true, filter: (path) => !NOT_COPIED.has(basename(path)) })
  symlinkSync(join(TREE, 'node_modules'), join(to, 'node_modules'))
  return to
}

async function without(copy: Copy, guard: Guard): Promise<Outcome> {
  const { file, text, replacement, fails } = guard
  const source = readFileSync(join(copy.tree, file), 'utf8')
  if (source.split(text).length !== 2)
    return { failed: 0, first: '', problem: `: its text is not once in ${file}` }
  // Not a pattern: `$` stands for itself.
  const changed = source.replace(text, () => replacement)
  return withText(copy, { file, source, changed }, async () => {
    if (isQuick(guard)) {
      const outcome = await askStanding(copy, { file, changed, fails })
      if (outcome !== null && outcome.failed > 0) return outcome
      copy.unbelieved += 1
      writeFileSync(join(copy.tree, file), changed)
    }
    return runTests(copy.tree, [fails], LONGEST_MS, '--bail=1')
  })
}

/** A guard that is none: what was changed before is no longer there. */
async function expectNoGuard(copy: Copy, { file, fails }: Guard): Promise<void> {
  const source = readFileSync(join(copy.tree, file), 'utf8')
  const outcome = await withText(copy, { file, source, changed: source }, () =>
    askStanding(copy, { file, changed: source, fails }),
  )
  if (outcome !== null && outcome.failed > 0) throw new Error(`with every guard in place: ${outcome.first}`)
}

type Change = { readonly file: string; readonly source: string; readonly changed: string }

async function withText<T>(
  copy: Copy,
  { file, source, changed }: Change,
  work: () => Promise<T>,
): Promise<T> {
  const path = join(copy.tree, file)
  copy.changed.add(file)
  writeFileSync(path, changed)
  try {
    return await work()
  } finally {
    writeFileSync(path, source)
    copy.changed.add(file)
  }
}

type Asked = { readonly file: string; readonly changed: string; readonly fails: string }

/** Null: it is not known, or not certain that the run had this text. */
async function askStanding(copy: Copy, { file, changed, fails }: Asked): Promise<Outcome | null> {
  copy.asked += 1
  const stamp = `${copy.asked} ${file}`
  const stamps = join(copy.tree, 'stamps')
  rmSync(stamps, { force: true })
  writeFileSync(
    join(copy.tree, file),
    `${changed}\nprocess.getBuiltinModule('node:fs').appendFileSync(${JSON.stringify(stamps)}, ${JSON.stringify(`${stamp}\n`)})\n`,
  )
  const outcome = await put(copy, { changed: [...copy.changed], file: fails })
  if (outcome === null || !existsSync(stamps)) return null
  const loaded = new Set(readFileSync(stamps, 'utf8').trim().split('\n'))
  return loaded.size === 1 && loaded.has(stamp) ? outcome : null
}

/** Null: it ended instead. */
async function put(copy: Copy, question: Question): Promise<Outcome | null> {
  copy.standing ??= await startStanding(copy.tree)
  const child = copy.standing
  if (child === null) return null
  copy.changed.clear()
  const { promise, resolve } = Promise.withResolvers<Outcome | null>()
  const answered = ({ outcome }: Answer) => resolve(outcome)
  const ended = () => resolve(null)
  child.once('message', answered)
  child.once('close', ended)
  const late = setTimeout(
    () => resolve({ failed: 1, first: `no end after ${LONGEST_MS / 1_000} s`, problem: '' }),
    LONGEST_MS,
  )
  if (child.connected) child.send(question)
  else resolve(null)
  const outcome = await promise
  clearTimeout(late)
  child.off('message', answered)
  child.off('close', ended)
  // One that hangs is no good any more, and one that ended is not there.
  if (outcome === null || outcome.first.startsWith('no end after')) {
    endGroup(child)
    copy.standing = null
  }
  return outcome
}

/** Null: it does not start. */
async function startStanding(tree: string): Promise<ChildProcess | null> {
  const child = fork('test/mutation/standing.ts', {
    cwd: tree,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    detached: true,
  })
  running.add(child)
  child.once('close', () => running.delete(child))
  const { promise, resolve } = Promise.withResolvers<boolean>()
  child.once('message', () => resolve(true))
  child.once('close', () => resolve(false))
  return (await promise) ? child : null
}

/** With the processes that its tests run in: one that hangs hears nothing. */
function endGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL')
  }
}

function sum(copies: readonly Copy[], of: (copy: Copy) => number): number {
  return copies.reduce((total, copy) => total + of(copy), 0)
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
    { cwd: copy, stdio: 'ignore', detached: true },
  )
  running.add(child)
  const late = setTimeout(() => endGroup(child), longestMs)
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
