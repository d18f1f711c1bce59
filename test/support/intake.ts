/**
 * Sources on a test's database: registered, and looking. A look is begun and reported as a source that is asked does
 * it, so that the test says when it was begun; `INTERVAL` apart is in time and counts.
 */
import type pg from 'pg'
import { afterAll } from 'vitest'
import type { Refusal } from '../../src/core/refusal.ts'
import { readEntries } from '../../src/liveness/entries.ts'
import { type Registration, registerSource } from '../../src/liveness/register.ts'
import {
  type Awaiting,
  beginSnapshot,
  type Intake,
  isRefusal,
  type Reported,
  reportSnapshot,
  type SnapshotReport,
  takeSnapshot,
} from '../../src/liveness/report.ts'
import type { Begun } from '../../src/liveness/snapshot-token.ts'
import type { GivenEntry } from '../../src/liveness/source.ts'
import type { Source } from '../../src/liveness/source-rows.ts'
import { createPool } from '../../src/postgres/connect.ts'

export const INTERVAL = 30_000
export const NOTHING_SEEN = { era: 0, head: 0 }

export type TestIntake = Intake & {
  readonly database: pg.Pool
  /** What was logged: `[fields]`. */
  readonly logged: readonly object[]
}

export function useIntake(serviceUrl: string): TestIntake {
  const database = createPool({ url: serviceUrl, applicationName: 'test intake', max: 4 })
  afterAll(() => database.end())
  const logged: object[] = []
  return { database, logged, log: { warn: (fields) => logged.push(fields) } }
}

export async function register(
  { database }: Pick<Intake, 'database'>,
  network: string,
  id: string,
  fields: Partial<Registration> = {},
): Promise<Source> {
  return settled(
    await registerSource(database, {
      network,
      id,
      kind: 'push',
      node: '',
      ownerKinds: ['pod'],
      families: [4, 6],
      seesStopped: true,
      bootEndsAll: false,
      intervalMs: INTERVAL,
      settings: {},
      by: 'test',
      ...fields,
    }),
  )
}

export function settled<T extends object>(result: T | Refusal): T {
  if (isRefusal(result)) throw new Error(`refused: ${result.reason}: ${result.message}`)
  return result
}

export type Look = {
  readonly network: string
  readonly source: string
  readonly entries: readonly GivenEntry[]
  readonly epoch?: string
  readonly complete?: boolean
}

/** Looks of one source, the first of them long enough ago for all of them to be in the past. */
export function createEye(intake: Intake, network: string, source: string) {
  let at: number | undefined
  const begin = async (): Promise<Begun> => {
    const { begun } = settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN }))
    at = at === undefined ? begun.begunAt - 9 * INTERVAL : at + INTERVAL
    return { ...begun, begunAt: at }
  }
  return {
    begin,
    async look(
      entries: readonly GivenEntry[],
      fields: {
        readonly epoch?: string
        readonly complete?: boolean
        readonly begun?: Begun
        readonly node?: string
      } = {},
    ): Promise<Reported> {
      const { epoch = 'e1', complete = true, node = '' } = fields
      const begun = fields.begun ?? (await begin())
      const set = readEntries(entries, { network, node, epoch })
      return taken(settled(await takeSnapshot(intake, { begun, epoch, complete, set })))
    },
  }
}

export function taken(result: Reported | Awaiting): Reported {
  if (result.is !== 'taken') throw new Error(`not taken but ${result.is}`)
  return result
}

/** As an agent reports: by token. */
export async function report(
  intake: Intake,
  fields: Partial<SnapshotReport> & Pick<SnapshotReport, 'network' | 'source'>,
): Promise<Reported | Awaiting> {
  return settled(
    await reportSnapshot(intake, {
      token: '',
      epoch: 'e1',
      complete: true,
      content: { entries: [] },
      chunk: null,
      quoted: NOTHING_SEEN,
      ...fields,
    }),
  )
}

export async function tokenFor(intake: Intake, network: string, source: string): Promise<string> {
  return settled(await beginSnapshot(intake, { network, source, quoted: NOTHING_SEEN })).token
}

/** A pod of its own at an address. */
export function pod(address: string, fields: Partial<GivenEntry> = {}): GivenEntry {
  return { address, kind: 'pod', name: `pod-${address}`, uid: `uid-${address}`, ...fields }
}

export type SightingRow = {
  readonly address: string
  readonly uid: string | null
  readonly state: string
  readonly live: boolean
  readonly appeared_sequence: number
  readonly appeared_head: number
  readonly appeared_at: number
  readonly last_seen_at: number | null
  readonly vanished_sequence: number | null
  readonly vanished_head: number | null
  readonly vanished_at: number | null
}

export async function sightings(
  { database }: Pick<Intake, 'database'>,
  network: string,
  source: string,
): Promise<readonly SightingRow[]> {
  const { rows } = await database.query<SightingRow>(
    `select host(address) as address, owner_uid as uid, state, live, appeared_sequence, appeared_head, appeared_at, last_seen_at,
            vanished_sequence, vanished_head, vanished_at
       from ipledger.sighting where network_id = $1 and source_id = $2 order by address, appeared_sequence, entry_key`,
    [network, source],
  )
  return rows
}

/** Addresses that this source sees live. */
export async function live(intake: Intake, network: string, source: string): Promise<readonly string[]> {
  return (await sightings(intake, network, source)).filter((row) => row.live).map((row) => row.address)
}
