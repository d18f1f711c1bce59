/**
 * Leases that nobody lists: asked after, and taken back on proof (DESIGN §4 "Reap on proof"). Sources that are asked
 * are asked here; those that report get the question with the answer to their next report, and answer when they like.
 * A proof must not be older than a minute, and neither may an answer in it: so the job stays for most of its slot as
 * long as answers are awaited, and looks at what they are about as they come.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type Judging, judgeAnswered, judgeNetwork, type Run } from '../liveness/suspects.ts'
import { createWalks, type Done, type Job, type JobContext } from './job.ts'

export const VERIFY_ACTOR = 'job:verify-suspects'

const LOOK_EVERY_MS = 2_000

/** `stayMs`: how long a run waits for answers; 0: it judges what is there. `askForMs`: as in `Judging`. */
export function createVerifySuspects({
  stayMs,
  askForMs,
}: {
  readonly stayMs: number
  readonly askForMs?: number
}): Job {
  const inEachNetwork = createWalks()
  return async (context) => {
    const end = performance.now() + stayMs
    const judging: Judging = { ...judgingOf(context, VERIFY_ACTOR), askForMs }
    const awaited = new Set<string>()
    const done: Record<string, number> = {
      ...(await inEachNetwork(context, async (network, from) => {
        const { run, after } = await judgeNetwork(judging, network, 'unseen', from)
        if (run.waiting > 0) awaited.add(network)
        return { done: doneOf(run), after }
      })),
    }
    const since = new Map<string, number>()
    while (awaited.size > 0 && performance.now() < end && !context.signal.aborted) {
      await delay(LOOK_EVERY_MS, undefined, { signal: context.signal }).catch(() => undefined)
      for (const network of awaited) {
        if (context.signal.aborted) break
        const { run, upTo } = await judgeAnswered(judging, network, since.get(network) ?? 0)
        since.set(network, upTo)
        for (const [what, count] of Object.entries(doneOf(run))) done[what] = (done[what] ?? 0) + count
      }
    }
    return done
  }
}

export function judgingOf(context: JobContext, actor: string): Judging {
  const { database, ledger, log, signal, asked } = context
  return {
    database,
    ledger,
    log,
    signal,
    actor,
    lookUp: (source, question, ended) => asked.get(source).lookUp(question, ended),
  }
}

export function doneOf({ reaped, restored, asked, held }: Run): Done {
  return { reaped, restored, asked, held }
}
