/**
 * `verify` for somebody who waits for an answer: from the checkpoint, for a few seconds, in small slices so that the
 * process serves others meanwhile. What it did not come to is left to `ipledger verify`; only a whole run that found
 * nothing moves the checkpoint.
 */
import type pg from 'pg'
import { type Finding, verifyNetwork } from './verify.ts'

export type VerifiedBriefly = {
  readonly complete: boolean
  /** Events up to this one were taken as found in order before. */
  readonly from: number
  /** Events up to this one were looked at; 0: it began at the first and did not end. */
  readonly verified: number
  readonly head: number
  readonly findings: readonly Finding[]
  readonly omitted: number
}

/** Half of the shortest deadline that callers have who name none. */
export const BRIEF_MS = 5_000
/** Rows per transaction, and so what the event loop is kept with at once. */
const SLICE = 5_000
const MOST_SHOWN = 100

/** Null: there is no such network. */
export async function verifyBriefly(
  client: pg.Client,
  network: string,
  within: AbortSignal = AbortSignal.timeout(BRIEF_MS),
): Promise<VerifiedBriefly | null> {
  const { rows } = await client.query<{ head: number | null; seq: number | null }>(
    `select (select max(e.seq) from ipledger.event e where e.network_id = $1) as head,
       (select c.seq from ipledger.verify_checkpoint c where c.network_id = $1) as seq`,
    [network],
  )
  const { head, seq } = rows[0]!
  if (head === null) return null
  const findings: Finding[] = []
  const from = seq === null || seq > head ? 0 : seq
  let looked = 0
  const answer = (complete: boolean, verified: number, at: number): VerifiedBriefly => ({
    complete,
    from,
    verified,
    head: at,
    findings: findings.slice(0, MOST_SHOWN),
    omitted: Math.max(0, findings.length - MOST_SHOWN),
  })
  try {
    const whole = await verifyNetwork(client, network, {
      signal: within,
      slice: SLICE,
      onFinding: (finding) => findings.push(finding),
      onProgress: ({ what, done }) => {
        if (what === 'addresses') looked = done
      },
    })
    const told = answer(true, whole.head, whole.head)
    return { ...told, from: whole.from, omitted: told.omitted + whole.omitted }
  } catch (error) {
    if (!within.aborted || error !== within.reason) throw error
    return answer(false, from === 0 ? 0 : from + looked, head)
  }
}
