/**
 * Gauges that come from the database: how full pools are, what is held, who is silent, what waits. Read when somebody
 * collects, at most every ten seconds, network after network, over the connections for reads and never under a lock.
 *
 * - A database that is away or silent holds up nobody: a collection waits `WAIT_MS` for what is being read and goes on
 *   with what is known; what is older than a minute is left out, and `ipledger_database_up` says so.
 * - A reading has `BUDGET_MS`; the next one begins with the network where it stopped.
 * - At most `MOST` networks, pools and sources; `ipledger_series_left_out` says how many are not there.
 * - Every process that serves reads them: in a query over several processes take the maximum, not the sum.
 */
import type pg from 'pg'
import { eraOf, firstSeqOfEra } from './core/policy.ts'
import { poolSize } from './core/pool.ts'
import { POOL_COLUMNS, type PoolRow, readPool } from './ledger/rows.ts'
import { listSources } from './liveness/register.ts'
import type { Source } from './liveness/source-rows.ts'
import { ofSource } from './liveness/stuck.ts'
import { ask } from './postgres/on-connection.ts'
import { expectNetwork, type Logger, MOST_SERIES as MOST, noLongerThan, type Reading } from './telemetry.ts'

const READ_EVERY_MS = 10_000
/** Forecasts change slowly, and are made of an hour of samples. */
const FORECAST_EVERY_MS = 60_000
const WAIT_MS = 1_500
const BUDGET_MS = 5_000
const KNOWN_FOR_MS = 60_000
/** Rows counted of one kind in one network; more are said to be this many. An index scan of some 30 ms, not measured. */
const MOST_COUNTED = 50_000

const NETWORKS = 'select network_id from ipledger.network where network_id > $1 order by network_id limit $2'
const COUNT_NETWORKS = 'select count(*) as networks from ipledger.network'
const OLDEST_TRANSACTION =
  'select extract(epoch from clock_timestamp() - o.begun_at)::float8 as seconds from ipledger.oldest_transaction() o'

// All of them is gone but what was found.
const DIFFERENCES_OF_GONE = `
  select f.network_id, count(*) as differences from ipledger.verify_finding f
   where not exists (select from ipledger.network n where n.network_id = f.network_id)
   group by f.network_id order by f.network_id limit $1`

const NETWORK = `
  select n.state, n.era, clock_timestamp() as now,
         case when n.era > 0 then (
           select b.at from ipledger.event b
            where b.network_id = $1 and b.seq >= n.era * ${firstSeqOfEra(1)} order by b.seq limit 1) end as era_begun_at,
         (select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1) as head,
         (select count(*) from ipledger.hold h where h.network_id = $1) as holds,
         (select count(*) from ipledger.pool p where p.network_id = $1) as pools,
         (select count(*) from ipledger.source s where s.network_id = $1) as sources,
         coalesce((select v.at from ipledger.verify_checkpoint v where v.network_id = $1), n.created_at) as verified_at,
         (select count(*) from ipledger.verify_finding f where f.network_id = $1) as differences
    from ipledger.network n where n.network_id = $1`

// What is cooling beyond the bound is as many as the last sample says (observe-pools).
const POOLS = `
  select ${POOL_COLUMNS.map((column) => `p.${column}`).join(', ')},
         coalesce(x.reserved, 0) as reserved, coalesce(x.active, 0) as active, coalesce(x.quarantined, 0) as quarantined,
         (select count(*) from (
            select r.address from ipledger.released_address r
             where r.network_id = $1 and r.pool_id = p.pool_id and r.available_at > now()
             order by r.available_at offset 0 limit ${MOST_COUNTED}) c) as cooling,
         coalesce((select s.cooling from ipledger.pool_sample s
            where s.network_id = $1 and s.pool_id >= p.pool_id and s.pool_id <= p.pool_id
            order by s.pool_id desc, s.at desc limit 1), 0) as sampled_cooling
    from (
      select o.* from ipledger.pool o where o.network_id = $1 order by o.pool_id limit $2) p
    left join lateral (
      select q.reserved, q.active, q.quarantined from ipledger.pool_position q
       where q.network_id = $1 and q.pool_id = p.pool_id order by q.seq desc limit 1) x on true
   order by p.pool_id`

const QUARANTINED = `
  select q.quarantine_reason as label, count(*) as items from (
      select l.quarantine_reason from ipledger.lease l
       where l.network_id = $1 and l.state = 'QUARANTINED' and l.quarantined_by >= ''
       order by l.quarantined_by, l.quarantine_reason limit ${MOST_COUNTED}) q
   group by q.quarantine_reason`

const SUSPECTS = `
  select coalesce(k.answer, 'waiting') as label, count(*) as items from (
      select u.answer from ipledger.lookup u where u.network_id = $1
       order by u.source_id, u.fencing_token, u.attachment_key limit ${MOST_COUNTED}) k
   group by coalesce(k.answer, 'waiting')`

const STUCK = `
  select k.code as label, count(*) as items from (
      select i.code from ipledger.stuck_item i where i.network_id = $1 limit ${MOST_COUNTED}) k
   group by k.code`

// Of a network that no job has come to yet, all of the log is missing.
const TENURE = `
  select t.seq,
         (select extract(epoch from clock_timestamp() - e.at)::float8 from ipledger.event e
           where e.network_id = $1 and e.seq > t.seq order by e.seq limit 1) as behind_seconds,
         greatest(
           (select count(*) from (
              select o.network_id from ipledger.tenure_overlap o where o.network_id = $1 limit ${MOST_COUNTED}) c),
           (select count(*) from ipledger.verify_finding f where f.network_id = $1 and f.what = 'TENURE_OVERLAPS')) as overlaps
    from (select coalesce((select p.seq from ipledger.tenure_position p where p.network_id = $1), 0) as seq) t`

const SEALED = `select (select s.last_seq from ipledger.seal s where s.network_id = $1
  order by s.first_seq desc limit 1) as seq`

const FORECAST = `
  select f.pool, extract(epoch from f.exhausted_in)::float8 as seconds from ipledger_audit.pool_forecast f
   where f.network = $1 and f.exhausted_in is not null limit $2`

/** For the test of their plans. */
export const OBSERVED_STATEMENTS = {
  observedNetwork: NETWORK,
  observedPools: POOLS,
  observedQuarantined: QUARANTINED,
  observedSuspects: SUSPECTS,
  observedStuck: STUCK,
  observedTenure: TENURE,
  observedSealed: SEALED,
} as const

export type Observed = {
  /** What is known; waits a moment for what is being read. */
  readings(): Promise<readonly Reading[]>
}

type Known = { readonly at: number; readonly readings: readonly Reading[] }
type Forecast = { readonly at: number; readonly readings: readonly Reading[] }

/** What a reading may still take: series, and time. */
type Room = { pools: number; sources: number; until: number; leftOut: { pools: number; sources: number } }

export function createObserved(database: pg.Pool, log: Pick<Logger, 'warn'>): Observed {
  const known = new Map<string, Known>()
  const forecasts = new Map<string, Forecast>()
  let ofDatabase: Known | undefined
  let stoppedAt = ''
  let isUp = false
  let begunAt = Number.NEGATIVE_INFINITY
  let reading: Promise<void> | undefined
  /** Parts that could not be read, and were told of. */
  const told = new Set<string>()

  /** Of a table or view that is not there, or is not ours to read: told once, and left out. */
  async function part<T>(name: string, read: Promise<T>, without: T): Promise<T> {
    try {
      return await read
    } catch (error) {
      if (!isMissing(error)) throw error
      if (!told.has(name)) log.warn({ part: name, err: error }, 'a metric cannot be read from this database')
      told.add(name)
      return without
    }
  }

  async function readNetwork(network: string, room: Room): Promise<readonly Reading[]> {
    const [ground] = await ask<NetworkRow>(database, NETWORK, [network])
    if (ground === undefined) return []
    expectNetwork(network)
    const now = ground.now
    const pools = await ask<UsedRow>(database, POOLS, [network, room.pools])
    const sources = await readSources(network, room.sources)
    room.pools -= pools.length
    room.sources -= sources.length
    room.leftOut.pools += ground.pools - pools.length
    room.leftOut.sources += ground.sources - sources.length
    const grouped = (text: string) => ask<GroupRow>(database, text, [network])
    const quarantined = await grouped(QUARANTINED)
    const suspects = await grouped(SUSPECTS)
    const stuck = await part('stuck', grouped(STUCK), [])
    const [tenure] = await part('tenure', ask<TenureRow>(database, TENURE, [network]), [])
    const [sealed] = await part('seals', ask<SealedRow>(database, SEALED, [network]), [])
    const head = ground.head ?? 0
    return [
      ...STATES.map((state): Reading => ['networkState', [network, state], state === ground.state ? 1 : 0]),
      ['head', [network], head],
      ['era', [network], ground.era],
      ...(ground.era_begun_at === null
        ? []
        : [['eraBegun', [network], ground.era_begun_at / 1_000] as const]),
      ['holds', [network], ground.holds],
      ['verifyAge', [network], Math.max(0, now - ground.verified_at) / 1_000],
      ['verifyDifferences', [network], ground.differences],
      ['conflicts', [network], quarantined.find(({ label }) => label === 'CONFLICT')?.items ?? 0],
      ...quarantined.map(({ label, items }): Reading => ['quarantined', [network, label], items]),
      ...suspects.map(({ label, items }): Reading => ['suspects', [network, label], items]),
      ...stuck.map(({ label, items }): Reading => ['stuck', [network, label], items]),
      ...pools.flatMap((row) => readingsOfPool(network, row)),
      ...readingsOfSources(network, sources, now),
      ...(tenure === undefined ? [] : readingsOfTenure(network, head, tenure)),
      ...(sealed === undefined
        ? []
        : [['sealLagEvents', [network], eventsBetween(sealed.seq ?? 0, head)] as const]),
    ]
  }

  async function readSources(network: string, limit: number): Promise<readonly Source[]> {
    return limit === 0 ? [] : listSources(database, { network, after: '', limit })
  }

  async function readForecast(network: string): Promise<readonly Reading[]> {
    const before = forecasts.get(network)
    if (before !== undefined && performance.now() - before.at < FORECAST_EVERY_MS) return before.readings
    const rows = await part('forecast', ask<ForecastRow>(database, FORECAST, [network, MOST]), [])
    const readings = rows.map(({ pool, seconds }): Reading => ['poolExhausted', [network, pool], seconds])
    forecasts.set(network, { at: performance.now(), readings })
    return readings
  }

  async function readAll(): Promise<void> {
    const room: Room = {
      pools: MOST,
      sources: MOST,
      until: performance.now() + BUDGET_MS,
      leftOut: { pools: 0, sources: 0 },
    }
    const [oldest] = await ask<{ seconds: number }>(database, OLDEST_TRANSACTION)
    const [all] = await ask<{ networks: number }>(database, COUNT_NETWORKS)
    const networks = await listNetworks(database, stoppedAt)
    for (const network of networks) {
      if (performance.now() > room.until) {
        stoppedAt = network
        break
      }
      const readings = [...(await readNetwork(network, room)), ...(await readForecast(network))]
      known.set(network, { at: performance.now(), readings })
      stoppedAt = ''
    }
    const gone = await ask<{ network_id: string; differences: number }>(database, DIFFERENCES_OF_GONE, [MOST])
    for (const { network_id } of gone) expectNetwork(network_id)
    const readings: Reading[] = [
      ...gone.map(({ network_id, differences }): Reading => ['verifyDifferences', [network_id], differences]),
      ['oldestTransaction', [], Math.max(0, oldest?.seconds ?? 0)],
      ['leftOut', ['networks'], Math.max(0, all!.networks - MOST)],
      ['leftOut', ['pools'], room.leftOut.pools],
      ['leftOut', ['sources'], room.leftOut.sources],
    ]
    ofDatabase = { at: performance.now(), readings }
  }

  async function readOnce(): Promise<void> {
    try {
      await readAll()
      isUp = true
    } catch (error) {
      if (isUp) log.warn({ err: error }, 'metrics of the database cannot be read')
      isUp = false
    } finally {
      reading = undefined
    }
  }

  return {
    async readings() {
      if (reading === undefined && performance.now() - begunAt >= READ_EVERY_MS) {
        begunAt = performance.now()
        reading = readOnce()
      }
      if (reading !== undefined) await noLongerThan(begunAt + WAIT_MS - performance.now(), reading)
      const since = performance.now() - KNOWN_FOR_MS
      for (const [network, { at }] of known) {
        if (at >= since) continue
        known.delete(network)
        forecasts.delete(network)
      }
      const fresh = ofDatabase !== undefined && ofDatabase.at >= since
      return [
        ['databaseUp', [], isUp && fresh ? 1 : 0],
        ...(fresh ? ofDatabase!.readings : []),
        ...[...known.values()].flatMap(({ readings }) => readings),
      ]
    },
  }
}

/** The first ones by name, beginning with the one where the last reading stopped. */
async function listNetworks(database: pg.Pool, from: string): Promise<readonly string[]> {
  const rows = await ask<{ network_id: string }>(database, NETWORKS, ['', MOST])
  const names = rows.map(({ network_id }) => network_id)
  const at = names.findIndex((name) => name >= from)
  return at <= 0 ? names : [...names.slice(at), ...names.slice(0, at)]
}

const STATES = ['READY', 'REBUILDING', 'RECOVERING'] as const

type NetworkRow = {
  readonly state: string
  readonly era: number
  readonly now: number
  readonly era_begun_at: number | null
  readonly head: number | null
  readonly holds: number
  readonly pools: number
  readonly sources: number
  readonly verified_at: number
  readonly differences: number
}
type UsedRow = PoolRow & {
  readonly reserved: number
  readonly active: number
  readonly quarantined: number
  readonly cooling: number
  readonly sampled_cooling: number
}
type GroupRow = { readonly label: string; readonly items: number }
type TenureRow = {
  readonly seq: number
  readonly behind_seconds: number | null
  readonly overlaps: number
}
type SealedRow = { readonly seq: number | null }
type ForecastRow = { readonly pool: string; readonly seconds: number }

function readingsOfPool(network: string, row: UsedRow): readonly Reading[] {
  const pool = readPool(row)
  const { size, allocatable } = poolSize(pool)
  const { reserved, active, quarantined } = row
  const cooling = row.cooling < MOST_COUNTED ? row.cooling : Math.max(row.cooling, row.sampled_cooling)
  const states = {
    // Floats: beyond 2^53 leases the parts no longer add up to the last one.
    free: Math.max(0, Number(allocatable - BigInt(cooling + reserved + active + quarantined))),
    cooling,
    reserved,
    active,
    quarantined,
    excluded: Number(size - allocatable),
  }
  return [
    ['poolSize', [network, pool.name], Number(size)],
    ['poolDraining', [network, pool.name], pool.draining ? 1 : 0],
    ...Object.entries(states).map(
      ([state, leases]): Reading => ['poolAddresses', [network, pool.name, state], leases],
    ),
  ]
}

function readingsOfSources(network: string, sources: readonly Source[], now: number): readonly Reading[] {
  const groups = Map.groupBy(sources, (source) => `${source.state} ${standingOf(source, now)}`)
  return [
    ...sources.flatMap((source): readonly Reading[] => {
      const { id, state, standing, registeredAt, intervalMs } = source
      if (state === 'RETIRED') return []
      const heardAt = standing.reportedAt ?? registeredAt
      return [
        ['sourceLag', [network, id], Math.max(0, now - heardAt) / 1_000],
        ['sourceInterval', [network, id], intervalMs / 1_000],
      ]
    }),
    ...[...groups].map(([key, group]): Reading => {
      const [state = '', standing = ''] = key.split(' ')
      return ['sources', [network, state, standing], group.length]
    }),
  ]
}

/** The worst that `ipledger stuck` says of it. */
function standingOf(source: Source, now: number): string {
  if (source.state === 'RETIRED') return 'retired'
  const codes = ofSource(source, now).map(({ code }) => code)
  if (codes.includes('SOURCE_SILENT')) return 'silent'
  if (codes.includes('SOURCE_PARTIAL')) return 'partial'
  return source.standing.warm ? 'good' : 'cold'
}

function readingsOfTenure(network: string, head: number, row: TenureRow): readonly Reading[] {
  return [
    ['tenureLagEvents', [network], eventsBetween(row.seq, head)],
    ['tenureLag', [network], Math.max(0, row.behind_seconds ?? 0)],
    ['tenureOverlaps', [network], row.overlaps],
  ]
}

/** Of what lies before the era of the head, only that it is behind can be said. */
function eventsBetween(position: number, head: number): number {
  return Math.max(0, head - Math.max(position, firstSeqOfEra(eraOf(head)) - 1))
}

/** Relations, schemas and columns that are not there, or not ours to read. */
const MISSING: ReadonlySet<string> = new Set(['42P01', '3F000', '42703', '42501'])

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && MISSING.has(String(error.code))
}
