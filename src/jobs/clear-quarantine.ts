/**
 * What is set aside, and may come back: to its owner, if everybody who saw the address has seen nobody else there for
 * long enough, or into use, if nobody uses it (DESIGN §3). What an operator set aside is not looked at.
 */
import { judgeNetwork } from '../liveness/suspects.ts'
import { createWalks, type Job } from './job.ts'
import { doneOf, judgingOf } from './verify-suspects.ts'

export const CLEAR_ACTOR = 'job:clear-quarantine'

export function createClearQuarantine(): Job {
  const inEachNetwork = createWalks()
  return (context) =>
    inEachNetwork(context, async (network, from) => {
      const { run, after } = await judgeNetwork(judgingOf(context, CLEAR_ACTOR), network, 'setAside', from)
      return { done: doneOf(run), after }
    })
}
