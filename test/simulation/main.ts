/**
 * `npm run simulate -- --seed N --events M [--seeds K] [--without RULE] [--fault FAULT] [--workers W]`: K worlds from seed N
 * on, of M events each, on W threads. A failure prints its seed, its event and both stories, and ends the run with status 1.
 */
import { parseArgs } from 'node:util'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { RULES, type RuleName } from '../../src/core/rules.ts'
import { type Options, type Result, simulate } from './simulate.ts'
import { FAULTS, type Fault } from './world.ts'

type Task = Options & { readonly events: number }

if (isMainThread) await main()
else {
  const task = workerData as Task
  parentPort!.on('message', (seed: number) => {
    void simulate(seed, task.events, task).then((result) => parentPort!.postMessage(result))
  })
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '1' },
      events: { type: 'string', default: '10000' },
      without: { type: 'string', multiple: true, default: [] },
      fault: { type: 'string', multiple: true, default: [] },
      workers: { type: 'string', default: '2' },
    },
  })
  for (const [given, all] of [
    [values.without, RULES],
    [values.fault, FAULTS],
  ] as const)
    for (const name of given)
      if (!(all as readonly string[]).includes(name)) throw new Error(`not ${name}, but: ${all.join(', ')}`)
  const first = Number(values.seed)
  const task = {
    events: Number(values.events),
    without: values.without as RuleName[],
    faults: values.fault as Fault[],
  }
  const begun = performance.now()
  const done = await runAll(task, first, Number(values.seeds), Number(values.workers))
  const seconds = (performance.now() - begun) / 1_000
  const sum = (of: (one: Result) => number) => done.reduce((total, one) => total + of(one), 0)
  const events = sum((one) => one.events)
  const rate = Math.round(events / seconds)
  console.log(
    `${done.length} seeds from ${first}: ${events} events in ${seconds.toFixed(1)} s, ${rate} a second; ${sum((one) => one.logged)} events in the logs`,
  )
  const failed = done.find(({ failure }) => failure !== null)
  if (failed === undefined) return
  const { story } = await simulate(failed.seed, task.events, { ...task, tells: true })
  console.log(`${story.join('\n')}\n\nseed ${failed.seed}, event ${failed.events}: ${failed.failure}`)
  process.exitCode = 1
}

/** Until one fails. */
async function runAll(task: Task, first: number, seeds: number, workers: number): Promise<readonly Result[]> {
  const done: Result[] = []
  let next = first
  let end = first + seeds
  const work = async (): Promise<void> => {
    // Most of what is made is gone at once.
    const worker = new Worker(new URL(import.meta.url), {
      workerData: task,
      resourceLimits: { maxYoungGenerationSizeMb: 64 },
    })
    while (next < end) {
      const result = await new Promise<Result>((resolve, reject) => {
        worker.removeAllListeners().once('message', resolve).once('error', reject)
        worker.postMessage(next++)
      })
      done.push(result)
      if (result.failure !== null) end = 0
    }
    await worker.terminate()
  }
  await Promise.all(Array.from({ length: Math.min(workers, seeds) }, work))
  return done
}
