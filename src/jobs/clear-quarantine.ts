/**
 * What is set aside, and may come back: to its owner, if everybody who saw the address has seen nobody else there for
 * long enough, or into use, if nobody uses it (DESIGN §3). What an operator set aside is not looked at.
 */
import { judgeNetwork } from '../liveness/suspects.ts'
import { inEachNetwork, type Job } from './job.ts'
import { doneOf, judgingOf } from './verify-suspects.ts'

export const CLEAR_ACTOR = 'job:clear-quarantine'

export function createClearQuarantine(): Job {
  const stoppedAt = new Map<string, string>()
  return (context) =>
    inEachNetwork(context, async (network) => {
      const judging = judgingOf(context, CLEAR_ACTOR)
      const { run, after } = await judgeNetwork(judging, network, 'setAside', stoppedAt.get(network) ?? null)
      if (after === null) stoppedAt.delete(network)
      else stoppedAt.set(network, after)
      return doneOf(run)
    })
}
