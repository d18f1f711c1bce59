/**
 * `npm run simulate -- --seed N --events M [--seeds K] [--without RULE] [--fault FAULT] [--workers W]`: K worlds from seed N
 * on, of M events each, on W threads. A failure prints its seed, its event and both stories, and ends the run with status 1.
 * With `--table` each rule is taken out in turn, and it says how many of the K seeds it takes until one fails.
 */
import { parseArgs } from 'node:util'
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import { type Options, type Result, simulate } from './simulate.ts'
import { ALL_RULES, FAULTS, FAULTS_FOR, type Fault, type Rule } from './world.ts'

const USAGE = `npm run simulate -- [--seed N] [--seeds K] [--events M] [--workers W] [--table] [--without RULE] [--fault FAULT]
  rules: ${ALL_RULES.join(', ')}
  faults: ${FAULTS.join(', ')}`

type Task = Options & { readonly seed: number; readonly events: number }

if (isMainThread) await main()
else
  parentPort!.on('message', async (task: Task) =>
    parentPort!.postMessage(await simulate(task.seed, task.events, task)),
  )

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '1' },
      events: { type: 'string', default: '10000' },
      without: { type: 'string', multiple: true, default: [] },
      fault: { type: 'string', multiple: true, default: [] },
      workers: { type: 'string', default: '2' },
      table: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return console.log(USAGE)
  for (const [given, all] of [
    [values.without, ALL_RULES],
    [values.fault, FAULTS],
  ] as const)
    for (const name of given)
      if (!(all as readonly string[]).includes(name)) throw new Error(`not ${name}, but: ${all.join(', ')}`)
  const first = Number(values.seed)
  const seeds = Array.from({ length: Number(values.seeds) }, (_, i) => first + i)
  const events = Number(values.events)
  const without = values.without as Rule[]
  const faults = values.fault as Fault[]
  const workers = Number(values.workers)
  if (values.table) {
    const rules = without.length > 0 ? without : [...ALL_RULES]
    await inParallel(workers, rules, async (run, rule) => {
      for (const seed of seeds) {
        const needed = [...faults, ...(FAULTS_FOR[rule] ?? [])]
        const { failure } = await run({ seed, events, faults: needed, without: [rule] })
        if (failure === null) continue
        console.log(`| ${rule} | ${seed - first + 1} | ${failure.split('\n')[0]} |`)
        return true
      }
      console.log(`| ${rule} | none of ${seeds.length} fails | |`)
      process.exitCode = 1
      return true
    })
    return
  }
  const begun = performance.now()
  const done: Result[] = []
  await inParallel(workers, seeds, async (run, seed) => {
    const result = await run({ seed, events, faults, without })
    done.push(result)
    return result.failure === null
  })
  const seconds = (performance.now() - begun) / 1_000
  const sum = (of: (one: Result) => number) => done.reduce((total, one) => total + of(one), 0)
  const rate = Math.round(sum((one) => one.events) / seconds)
  console.log(
    `${done.length} seeds from ${first}: ${sum((one) => one.events)} events in ${seconds.toFixed(1)} s, ${rate} a second; ${sum((one) => one.logged)} events in the logs`,
  )
  const failed = done.find(({ failure }) => failure !== null)
  if (failed === undefined) return
  const { story } = await simulate(failed.seed, events, { without, faults, tells: true })
  console.log(`${story.join('\n')}\n\nseed ${failed.seed}, event ${failed.events}: ${failed.failure}`)
  process.exitCode = 1
}

type Run = (task: Task) => Promise<Result>

/** On so many threads; ends when `work` answers false. */
async function inParallel<T>(
  workers: number,
  all: readonly T[],
  work: (run: Run, one: T) => Promise<boolean>,
): Promise<void> {
  const queue = [...all]
  const thread = async (): Promise<void> => {
    // Most of what is made is gone at once.
    const worker = new Worker(new URL(import.meta.url), { resourceLimits: { maxYoungGenerationSizeMb: 256 } })
    const run: Run = (task) =>
      new Promise((resolve, reject) => {
        worker.removeAllListeners().once('message', resolve).once('error', reject)
        worker.postMessage(task)
      })
    for (let one = queue.shift(); one !== undefined; one = queue.shift())
      if (!(await work(run, one))) queue.length = 0
    await worker.terminate()
  }
  await Promise.all(Array.from({ length: Math.min(workers, all.length) }, thread))
}
