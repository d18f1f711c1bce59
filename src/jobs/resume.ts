/** Holds for the clock end by themselves once the clock has advanced by the step once more, also where nobody calls. */
import { ask } from '../postgres/on-connection.ts'
import { commandOf, inEachNetwork, type Job } from './job.ts'

const HELD = `
  select (n.holds #>> '{CLOCK,details,until}')::bigint as until from ipledger.network n
   where n.network_id = $1 and n.holds #>> '{CLOCK,details,until}' is not null`

export const resume: Job = (context) =>
  inEachNetwork(context, async (network) => {
    const { database, ledger } = context
    const [held] = await ask<{ until: number }>(database, HELD, [network])
    if (held === undefined || held.until > ledger.now()) return { resumed: 0 }
    const why = 'the clock has advanced by the step once more'
    const command = commandOf(network, 'resume', 'CLOCK')
    const outcome = await ledger.submit({ ...command, type: 'resumeHold', hold: 'CLOCK', why })
    return { resumed: outcome.ok ? 1 : 0 }
  })
