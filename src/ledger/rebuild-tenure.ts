/**
 * `ipledger rebuild --tenure`: tenure and checkpoints of a network made anew from its log, and the constraints of tenure put
 * back where somebody took them away. Nothing that decides reads them, so the service runs on, and nothing is refused.
 *
 * It only says that nothing was made yet, and then does what the jobs do; they may do it at the same time. One that breaks off
 * is ended by them. Answers from the past are right meanwhile: they read the log where there is no checkpoint.
 */
import type pg from 'pg'
import { connect } from '../postgres/connect.ts'
import { forgetCheckpoints, makeCheckpoint } from './checkpoints.ts'
import { networksBehind, projectSlice, resetTenure } from './tenure.ts'
import { createPace, inTransaction } from './transaction.ts'

export type RebuildTenureOptions = {
  /** The owner's login. The service's is enough but for a lost constraint. */
  readonly adminUrl: string
  readonly network: string
  readonly onProgress?: ((progress: RebuildTenureProgress) => void) | undefined
  readonly signal?: AbortSignal | undefined
}

export type RebuildTenureProgress = {
  readonly network: string
  readonly what: 'tenures' | 'checkpoints'
  readonly done: number
  readonly of: null
}

export type RebuildTenureReport = {
  readonly network: string
  readonly events: number
  readonly tenures: number
  /** Refused, and told of by verify: the log itself has two at one address. */
  readonly overlaps: number
  readonly checkpoints: number
  /** Names of constraints that were put back. */
  readonly restored: readonly string[]
}

/** As migration 0010 has them. */
const CONSTRAINTS = {
  no_two_owners_hold_one_address: `alter table ipledger.tenure add constraint no_two_owners_hold_one_address exclude using gist (
    address inet_ops with &&, network_id with =, int8range(first_seq, coalesce(upper(span), first_seq + 1)) with &&)`,
  one_address_has_one_open_tenure:
    'create unique index one_address_has_one_open_tenure on ipledger.tenure (network_id, address) where upper_inf(span)',
} as const

export async function rebuildTenure(options: RebuildTenureOptions): Promise<RebuildTenureReport> {
  const { adminUrl, network, signal } = options
  const client = await connect({ url: adminUrl, applicationName: 'ipledger rebuild' })
  const progress = (what: RebuildTenureProgress['what'], done: number) =>
    options.onProgress?.({ network, what, done, of: null })
  try {
    await inTransaction(client, async () => {
      await resetTenure(client, network)
      await forgetCheckpoints(client, network)
    })
    const sums = { events: 0, tenures: 0, overlaps: 0 }
    const restored: string[] = []
    const pace = createPace(2_000, 40_000)
    for (let cleared = false; ; ) {
      signal?.throwIfAborted()
      const begun = performance.now()
      const slice = await projectSlice(client, network, pace.size())
      pace.took(performance.now() - begun)
      sums.events += slice.events
      sums.tenures += slice.begun
      sums.overlaps += slice.overlaps
      progress('tenures', sums.events)
      // Once the rows that may have been put there without them are gone.
      if (!cleared && slice.cleared === 0) {
        cleared = true
        restored.push(...(await restoreConstraints(client)))
      }
      // Somebody else may be at it: until there is nothing left.
      if (slice.done && !(await networksBehind(client)).includes(network)) break
    }
    let checkpoints = 0
    while (await makeCheckpoint(client, network, { signal })) {
      checkpoints += 1
      progress('checkpoints', checkpoints)
    }
    signal?.throwIfAborted()
    return { network, ...sums, checkpoints, restored }
  } finally {
    await client.end()
  }
}

/** Nobody may write meanwhile, and with many tenures of other networks it takes its time. */
async function restoreConstraints(client: pg.Client): Promise<readonly string[]> {
  const restored: string[] = []
  for (const [name, text] of Object.entries(CONSTRAINTS)) {
    const { rows } = await client.query<{ present: boolean }>(
      `select to_regclass('ipledger.' || $1) is not null as present`,
      [name],
    )
    if (rows[0]!.present) continue
    await client.query(text)
    restored.push(name)
  }
  return restored
}
