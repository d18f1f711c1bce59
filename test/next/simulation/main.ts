/**
 * `npm run simulate -- --seed N --events M [--seeds K] [--without RULE] [--workers W]`: K worlds from seed N on, of M events
 * each, on W threads. A failure prints its seed, its event and both stories, and ends the run with status 1.
 */
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { RULES, type RuleName } from '../../../src/next/core/rules.ts'
import { type Result, simulate } from './simulate.ts'

type Task = { readonly seed: number; readonly events: number; readonly without: readonly RuleName[] }

if (isMainThread) await main()
else {
  const { events, without } = workerData as Task
  parentPort!.on('message', (seed: number) => {
    void simulate(seed, events, new Set(without)).then((result) => parentPort!.postMessage(result))
  })
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '1' },
      events: { type: 'string', default: '10000' },
      without: { type: 'string', multiple: true, default: [] },
      workers: { type: 'string', default: String(Math.min(2, availableParallelism())) },
    },
  })
  const unknown = values.without.find((name) => !RULES.includes(name as RuleName))
  if (unknown !== undefined) throw new Error(`there is no rule ${unknown}; the rules are ${RULES.join(', ')}`)
  const first = Number(values.seed)
  const task: Task = { seed: first, events: Number(values.events), without: values.without as RuleName[] }
  const begun = performance.now()
  const done = await runAll(task, Number(values.seeds), Number(values.workers))
  const seconds = (performance.now() - begun) / 1_000
  const sum = (of: (one: Result) => number) => done.reduce((total, one) => total + of(one), 0)
  const events = sum((one) => one.events)
  console.log(
    `${done.length} seeds from ${first}: ${events} events, ${sum((one) => one.logged)} of them in the logs, ${seconds.toFixed(1)} s, ${Math.round(events / seconds)} events/s`,
  )
  const failed = done.find(({ failure }) => failure !== null)
  if (failed === undefined) return
  const { story } = await simulate(failed.seed, task.events, new Set(task.without), true)
  console.log(story.join('\n'))
  console.log(`\nseed ${failed.seed}, event ${failed.events}: ${failed.failure}`)
  process.exitCode = 1
}

/** Until one fails. */
async function runAll(task: Task, seeds: number, workers: number): Promise<readonly Result[]> {
  const done: Result[] = []
  let next = task.seed
  const end = task.seed + seeds
  await Promise.all(
    Array.from({ length: Math.min(workers, seeds) }, async () => {
      const worker = new Worker(new URL(import.meta.url), {
        workerData: task,
        // Most of what is made is gone at once.
        resourceLimits: { maxYoungGenerationSizeMb: 64 },
      })
      while (next < end) {
        const { promise, resolve, reject } = Promise.withResolvers<Result>()
        worker.once('message', resolve)
        worker.once('error', reject)
        worker.postMessage(next++)
        const result = await promise
        worker.removeListener('error', reject)
        done.push(result)
        if (result.failure !== null) next = end
      }
      await worker.terminate()
    }),
  )
  return done
}
