/** Follows the leases of a network through lost connections, restarts and restores, without missing or repeating anything. */
import type { MessageInitShape } from '@bufbuild/protobuf'
import type { Client } from '@connectrpc/connect'
import type {
  LeaseChange,
  LeaseService,
  WatchLeasesRequestSchema,
  WatchLeasesResponse,
} from '../gen/ipledger/v1/lease_pb.ts'
import { CallFailed } from './call-failed.ts'
import { pause } from './pause.ts'

/** Changes that belong together. */
export type Watched = {
  /** In order of `lease.version`. With `reset`, all leases that are held and match, in no order. */
  readonly changes: readonly LeaseChange[]
  /** Number of the log up to which every change was sent: `after` of a later watch. */
  readonly position: bigint
  /** Of the log up to there: `afterDigest` beside `after`. */
  readonly digest: string
  /** The initial state: it replaces everything known before. */
  readonly reset: boolean
}

/** How a watch ends, and where it reports failed attempts. */
export type WatchOptions = {
  /** Ends the watch, without an error. */
  readonly signal?: AbortSignal
  /** Called for each attempt that failed and is repeated. */
  readonly onTrouble?: (error: CallFailed) => void
}

/** The server sends a message at least every five seconds. */
const SILENT_MS = 20_000
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 5_000
/** The request is refused, and would be again. */
const FINAL: ReadonlySet<string> = new Set([
  'INVALID_FIELD',
  'NETWORK_NOT_FOUND',
  'POOL_NOT_FOUND',
  'PERMISSION_DENIED',
  'UNAUTHENTICATED',
])

/**
 * Iterates until the caller leaves the loop, or until the signal; a `request` as WatchLeases takes it. Connects again where it
 * was, after 100 ms to 5 s. With `sendInitialState` it begins anew, with a `reset`, when a restore has removed changes that it
 * had received.
 *
 * ```ts
 * await client.leases.reserve({ owner: { kind: 'vm', name: 'watched' }, claims: [{ pool: 'web' }] })
 * for await (const { changes } of watchLeases(client, { ownerName: 'watched', after: 0n })) {
 *   for (const { lease, type } of changes) console.log(lease!.owner!.name, type) // watched lease.reserved
 *   if (changes.length > 0) break
 * }
 * ```
 *
 * @throws CallFailed what repeating does not help: INVALID_FIELD, a network or pool that is not there, no right to it, and
 *   VERSION_MISMATCH without `sendInitialState`
 */
export async function* watchLeases(
  { leases }: { readonly leases: Pick<Client<typeof LeaseService>, 'watchLeases'> },
  request: MessageInitShape<typeof WatchLeasesRequestSchema>,
  { signal = new AbortController().signal, onTrouble }: WatchOptions = {},
): AsyncGenerator<Watched, void> {
  const { sendInitialState = false } = request
  let { after, afterDigest = '' } = request
  for (let failed = 0; !signal.aborted; failed += 1) {
    const silent = new AbortController()
    const resumed = {
      ...request,
      sendInitialState: sendInitialState && after === undefined,
      ...(after !== undefined && { after, afterDigest }),
    }
    try {
      const stream = leases.watchLeases(resumed, { signal: AbortSignal.any([signal, silent.signal]) })
      let initial: LeaseChange[] | null = resumed.sendInitialState ? [] : null
      for await (const { changes, position, digest } of untilSilent(stream, silent)) {
        failed = 0
        initial?.push(...changes)
        if (position === 0n && initial !== null) continue
        after = position
        afterDigest = digest
        yield { changes: initial ?? changes, position, digest, reset: initial !== null }
        initial = null
      }
    } catch (error) {
      if (signal.aborted) return
      if (!(error instanceof CallFailed) || FINAL.has(error.reason ?? '')) throw error
      if (error.reason === 'VERSION_MISMATCH') {
        if (!sendInitialState) throw error
        after = undefined
      }
      onTrouble?.(error)
      const wait = error.retryAfterMs ?? FIRST_WAIT_MS * 2 ** Math.min(failed, 10)
      await pause(Math.min(wait, LONGEST_WAIT_MS), signal)
    } finally {
      // A caller that has seen enough keeps no connection.
      silent.abort()
    }
  }
}

/** Gives up a connection without messages. */
async function* untilSilent(
  stream: AsyncIterable<WatchLeasesResponse>,
  silent: AbortController,
): AsyncGenerator<WatchLeasesResponse> {
  const late = () => setTimeout(() => silent.abort(), SILENT_MS)
  let timer = late()
  try {
    for await (const one of stream) {
      clearTimeout(timer)
      yield one
      timer = late()
    }
  } finally {
    clearTimeout(timer)
  }
}
