/**
 * A network that sources look at, for the tests of the jobs that judge: leases, looks as far in the past as a test says,
 * questions and their answers. Time passes by `past`: everything that was, was earlier.
 */
import type pg from 'pg'
import { afterAll, expect } from 'vitest'
import type { Command, LeaseView } from '../../src/core/command.ts'
import { TERMINAL } from '../../src/core/command.ts'
import type { Owner } from '../../src/core/owner.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import type { Job, JobContext } from '../../src/jobs/job.ts'
import type { AskedSources } from '../../src/liveness/asked.ts'
import { readEntries } from '../../src/liveness/entries.ts'
import { enableSource, type Registration } from '../../src/liveness/register.ts'
import {
  type Ask,
  beginSnapshot,
  type Reported,
  reportVerdicts,
  takeSnapshot,
} from '../../src/liveness/report.ts'
import type { AskedSource, GivenEntry, LookUpReply } from '../../src/liveness/source.ts'
import { createPool as createConnections } from '../../src/postgres/connect.ts'
import { createLogger } from '../../src/telemetry.ts'
import { claim, createPool, owner, reserve } from './commands.ts'
import type { TestDatabase } from './database.ts'
import { INTERVAL, NOTHING_SEEN, register, settled, taken, useIntake } from './intake.ts'
import { freshNetwork, type TestLedger, useLedger } from './ledger.ts'
import { moveToThePast } from './past.ts'

export const SECOND = 1_000
export const MINUTE = 60 * SECOND
export const HOUR = 60 * MINUTE

/** The owner of a lease, as sources list it. */
export function workload(n: number | string, fields: Partial<Owner> = {}): Owner {
  return owner({ name: `default/web-${n}`, uid: `uid-${n}`, incarnation: `life-${n}`, ...fields })
}

export function listedAs(address: string, of: Owner | null, fields: Partial<GivenEntry> = {}): GivenEntry {
  if (of === null) return { address, ...fields }
  const { kind, name, uid, uidNamed, incarnation } = of
  return { address, kind, name, ...(uidNamed && { uid }), incarnation, state: 'running', ...fields }
}

export function ended(entry: GivenEntry): GivenEntry {
  return { ...entry, state: TERMINAL }
}

export type Watching = {
  readonly epoch?: string
  /** Begin of the last look; the others were an interval earlier each. */
  readonly endedAgo?: number
  readonly complete?: boolean
}

export type Truth = Awaited<ReturnType<typeof useTruth>>

export async function useTruth(database: TestDatabase) {
  const ledger = useLedger({ url: database.serviceUrl })
  const intake = useIntake(database.serviceUrl)
  const log = createLogger('silent')
  const connections = createConnections({ url: database.serviceUrl, applicationName: 'test jobs', max: 4 })
  afterAll(() => connections.end())

  let current = ''
  const looking = onlyNetwork(connections, () => current)

  const context = (fields: Partial<JobContext> = {}): JobContext => ({
    database: looking,
    ledger,
    intake,
    asked: nobodyIsAsked,
    log,
    signal: new AbortController().signal,
    ...fields,
  })

  return {
    database,
    ledger,
    intake,
    connections,
    context,
    run: (job: Job, fields: Partial<JobContext> = {}) => job(context(fields)),
    /** A network of its own, which the jobs look at from then on. */
    network: async (pool: Partial<PoolInput> = {}) => {
      current = await networkWithPool(ledger, pool)
      return current
    },
    past: (network: string, ms: number) => moveToThePast(database, ms, network),
    rows: async <T extends pg.QueryResultRow>(text: string, ...values: readonly unknown[]) =>
      (await connections.query<T>(text, [...values])).rows,
    source: async (network: string, id: string, fields: Partial<Registration> = {}) => {
      await register(intake, network, id, fields)
      return settled(await enableSource(intake.database, { network, id, by: 'test' }))
    },
    /** A lease of somebody, as it was confirmed so long ago that it is no longer young. */
    lease: async (
      network: string,
      of: Owner,
      fields: Partial<Omit<Extract<Command, { type: 'reserve' }>, 'type' | 'owner'>> = {},
    ): Promise<LeaseView> =>
      ledger.take(
        reserve({ network, owner: of, claims: [claim({ pool: 'web' })], confirmed: true, ...fields }),
      ),
    /** Looks of one source, an interval apart. */
    watch: async (
      network: string,
      source: string,
      lists: readonly (readonly GivenEntry[])[],
      { epoch = 'e1', endedAgo = SECOND, complete = true }: Watching = {},
    ): Promise<Reported> => {
      let reported: Reported | undefined
      for (const [index, entries] of lists.entries()) {
        const begun = settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
        const { node } = begun.source
        const ago = endedAgo + (lists.length - 1 - index) * INTERVAL
        const at = { ...begun.begun, begunAt: begun.begun.begunAt - ago }
        const set = readEntries(entries, { network, node, epoch })
        reported = taken(settled(await takeSnapshot(intake, { begun: at, epoch, complete, set })))
      }
      return reported!
    },
    answer: async (
      network: string,
      source: string,
      asks: readonly Ask[],
      reply: LookUpReply,
      epoch = 'e1',
    ): Promise<number> => {
      const verdicts = asks.map(({ id }) => ({ id, answer: reply }))
      return settled(await reportVerdicts(intake, { network, source, epoch, verdicts, quoted: NOTHING_SEEN }))
        .accepted
    },
    state: async (network: string, address: string): Promise<string> => {
      const { rows } = await connections.query<{ state: string; quarantine_reason: string | null }>(
        'select state, quarantine_reason from ipledger.lease where network_id = $1 and address = $2',
        [network, address],
      )
      return rows[0] === undefined ? 'FREE' : (rows[0].quarantine_reason ?? rows[0].state)
    },
    /** It is held by the lease it was held by, and nothing of the network was taken back. */
    expectKept: async (network: string, { address, fencingToken }: LeaseView): Promise<void> => {
      const { rows } = await connections.query<{ fencing_token: number }>(
        'select fencing_token from ipledger.lease where network_id = $1 and address = $2',
        [network, address],
      )
      expect(rows).toEqual([{ fencing_token: fencingToken }])
      expect(await eventsOf(connections, network, 'lease.reaped')).toEqual([])
    },
    /** Events of a kind, the earliest first. */
    events: (network: string, type: string) => eventsOf(connections, network, type),
  }
}

async function eventsOf(connections: pg.Pool, network: string, type: string): Promise<readonly EventFound[]> {
  const { rows } = await connections.query<EventFound>(
    `select seq, host(address) as address, actor, cause, evidence from ipledger.event
      where network_id = $1 and type = $2 order by seq`,
    [network, type],
  )
  return rows
}

export type EventFound = {
  readonly seq: number
  readonly address: string | null
  readonly actor: string
  readonly cause: string
  readonly evidence: Readonly<Record<string, unknown>> | null
}

/** What other tests of the file have left is none of this one's business. */
function onlyNetwork(connections: pg.Pool, network: () => string): pg.Pool {
  const query = async (text: string, values?: unknown[]) => {
    const result = await connections.query<{ network_id?: string }>(text, values)
    if (!text.startsWith('select network_id from ipledger.network ')) return result
    return { ...result, rows: result.rows.filter(({ network_id }) => network_id === network()) }
  }
  return { query, connect: () => connections.connect() } as unknown as pg.Pool
}

/** Cooling for so long that looks of some minutes ago are in time. */
async function networkWithPool(ledger: TestLedger, pool: Partial<PoolInput>): Promise<string> {
  const network = await freshNetwork(ledger)
  await ledger.accept(
    createPool({ name: 'web', cidr: '10.0.0.0/24', cooldownMs: HOUR, ...pool }, { network }),
  )
  return network
}

/** Two looks that warm it up, one that counts and shows them, and so many that do not. */
export function seenThenMissed(
  entries: readonly GivenEntry[],
  misses: number,
  left: readonly GivenEntry[] = [],
): readonly (readonly GivenEntry[])[] {
  return [entries, entries, entries, ...Array.from({ length: misses }, () => left)]
}

export const GONE: LookUpReply = { answer: 'gone', detail: 'no such workload' }

const nobodyIsAsked: AskedSources = {
  get: ({ id }) => {
    throw new Error(`${id} is asked, and should not be`)
  },
  close: async () => {},
}

/** Sources that are asked answer like this. */
export function answering(lookUp: AskedSource['lookUp']): AskedSources {
  return {
    get: () => ({ list: () => Promise.reject(new Error('not listed here')), lookUp, close: async () => {} }),
    close: async () => {},
  }
}
