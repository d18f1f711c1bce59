/**
 * Sources become known, are enabled, and end. Registering changes nothing by itself: a source is in dry run until an
 * admin enables it, and one whose declaration changes is in dry run again, since what it newly claims to see it would
 * newly miss (calico#5044: a collector rolled out on existing data).
 *
 * What it looks at, its kind, node and settings, is what it is: with another it would be a witness of all that the
 * former one has seen, and miss it where it never was (16.8).
 */
import type pg from 'pg'
import { type Refusal, refusal } from '../core/refusal.ts'
import { ask } from '../postgres/on-connection.ts'
import { SIGHTING_STATEMENTS } from './sightings.ts'
import type { SourceDeclaration, SourceState } from './source.ts'
import { readSource, SOURCE_COLUMNS, type Source, type SourceRow } from './source-rows.ts'

/** Sources of one network: each is asked for with every Reserve of a STRICT pool. */
export const MOST_SOURCES = 20_000
/** Sightings ended by one statement. */
const SLICE = 5_000

export type Registration = SourceDeclaration & { readonly network: string; readonly by: string }

const COLUMNS = SOURCE_COLUMNS.join(', ')

const NETWORK = `
  select (select count(*) from ipledger.source s where s.network_id = $1) as sources
    from ipledger.network n where n.network_id = $1`

const INSERT = `
  insert into ipledger.source
    (network_id, source_id, kind, node, owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms, settings,
     state, registered_at, registered_by, epoch, warm, last_sequence, size, digest, counted, streak_from, recent, partial_because)
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'REGISTERED', clock_timestamp(), $11,
     '', false, 0, 0, '', 0, 0, '[]', '{}')
  on conflict (network_id, source_id) do nothing
  returning ${COLUMNS}`

// The row of the same declaration is left as it is. What it has seen so far is kept: it protects.
const REDECLARE = `
  update ipledger.source
     set owner_kinds = $5::text[], families = $6::smallint[], sees_stopped = $7, boot_ends_all = $8,
         report_interval_ms = $9, state = 'REGISTERED', registered_at = clock_timestamp(), registered_by = $11,
         enabled_at = null, enabled_by = null, enabled_head = null, streak_from = counted
   where network_id = $1 and source_id = $2 and state <> 'RETIRED'
     and (kind, node, settings::jsonb) is not distinct from ($3, $4, $10::text::jsonb)
     and (owner_kinds, families, sees_stopped, boot_ends_all, report_interval_ms)
         is distinct from ($5::text[], $6::smallint[], $7, $8, $9)
  returning ${COLUMNS}`

const LOOKS_AT_THE_SAME = `
  select s.source_id from ipledger.source s
   where s.network_id = $1 and s.source_id = $2
     and (s.kind, s.node, s.settings::jsonb) is not distinct from ($3, $4, $5::text::jsonb)`

const FIND = `select ${COLUMNS} from ipledger.source where network_id = $1 and source_id = $2`

// What it did not list before it was enabled proves nothing: the streak begins here.
const ENABLE = `
  update ipledger.source
     set state = 'ENABLED', enabled_at = clock_timestamp(), enabled_by = $3, streak_from = counted,
         enabled_head = coalesce((select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1), 0)
   where network_id = $1 and source_id = $2 and state = 'REGISTERED'
  returning ${COLUMNS}`

const RETIRE = `
  update ipledger.source
     set state = 'RETIRED', retired_at = clock_timestamp(), retired_by = $3
   where network_id = $1 and source_id = $2 and state <> 'RETIRED'
  returning ${COLUMNS}`

// As far as the ledger had come: whatever was leased by then, it may have listed (16.8).
const HEAD_THEN = `
  select e.seq from ipledger.event e
   where e.network_id = $1 and e.at <= to_timestamp($2::float8 / 1000) order by e.at desc, e.seq desc limit 1`

// A network has thousands of sources at most, and of those that are over hardly one lists anything.
const RETIRED_LISTING = `
  select s.source_id from ipledger.source s
   where s.network_id = $1 and s.state = 'RETIRED' and s.source_id > $2
     and (select x.entry_key from ipledger.sighting x
           where x.network_id = $1 and x.source_id >= s.source_id and x.source_id <= s.source_id
             and x.vanished_sequence is null
           order by x.source_id, x.entry_key limit 1) is not null
   order by s.source_id limit 1`

const LIST = `
  select ${COLUMNS} from ipledger.source
   where network_id = $1 and source_id > $2 order by source_id limit $3`

/** For the test of their plans. */
export const REGISTER_STATEMENTS = {
  insert: INSERT,
  redeclare: REDECLARE,
  looksAtTheSame: LOOKS_AT_THE_SAME,
  find: FIND,
  enable: ENABLE,
  retire: RETIRE,
  headThen: HEAD_THEN,
  retiredListing: RETIRED_LISTING,
  list: LIST,
} as const

/** The same declaration again answers the same; one that looks at the same and says other things of it is in dry run again. */
export async function registerSource(database: pg.Pool, wanted: Registration): Promise<Source | Refusal> {
  const { network, id } = wanted
  const [found] = await ask<{ sources: number }>(database, NETWORK, [network])
  if (found === undefined) return noNetwork(network)
  const cells = [
    network,
    id,
    wanted.kind,
    wanted.node,
    [...wanted.ownerKinds].sort(),
    [...wanted.families].sort(),
    wanted.seesStopped,
    wanted.bootEndsAll,
    wanted.intervalMs,
    JSON.stringify(wanted.settings),
    wanted.by,
  ]
  const known = await one(database, FIND, [network, id])
  if (known === undefined && found.sources >= MOST_SOURCES) {
    return refusal('ILLEGAL_STATE', `network ${network} has ${MOST_SOURCES} sources, the most it can have`, {
      network,
    })
  }
  const changed = (await one(database, INSERT, cells)) ?? (await one(database, REDECLARE, cells))
  const source = changed ?? (await one(database, FIND, [network, id]))
  if (source === undefined) return noSource(network, id)
  if (source.state === 'RETIRED') return over(source)
  return changed !== undefined || (await looksAtTheSame(database, wanted)) ? source : isAnother(source)
}

/** Its absence proves something from here on, about leases reserved from here on and about those it has sighted. */
export async function enableSource(
  database: pg.Pool,
  { network, id, by }: { readonly network: string; readonly id: string; readonly by: string },
): Promise<Source | Refusal> {
  const source =
    (await one(database, ENABLE, [network, id, by])) ?? (await one(database, FIND, [network, id]))
  if (source === undefined) return noSource(network, id)
  return source.state === 'RETIRED' ? over(source) : source
}

/**
 * Ends a source for good, and its sightings: nobody asks it, nobody waits for it, nobody believes it. The state is what
 * counts; sightings that are left when this is interrupted end when it is called again, as a job does (`endRetired`).
 */
export async function retireSource(
  database: pg.Pool,
  { network, id, by }: { readonly network: string; readonly id: string; readonly by: string },
): Promise<Source | Refusal> {
  const source =
    (await one(database, RETIRE, [network, id, by])) ?? (await one(database, FIND, [network, id]))
  if (source === undefined) return noSource(network, id)
  const { standing, retiredAt } = source
  // Its time is cut to the millisecond.
  const [then] = await ask<{ seq: number }>(database, HEAD_THEN, [network, retiredAt! + 1])
  const head = then?.seq ?? 0
  for (;;) {
    const listed = await ask<{ entry_key: string }>(database, SIGHTING_STATEMENTS.listed, [
      network,
      id,
      '',
      SLICE,
    ])
    if (listed.length === 0) return source
    const keys = listed.map((row) => row.entry_key)
    // After its last report came it has seen nothing: that it was retired contradicts no fence of before (6.3).
    const seenAt = standing.reportedAt ?? retiredAt
    const ended = [network, id, keys, standing.lastSequence + 1, head, retiredAt, seenAt, null, '']
    await ask(database, SIGHTING_STATEMENTS.vanish, ended)
  }
}

/**
 * Ends what sources that are retired still list: one retired by a process that died, or a report that was under way. Listed,
 * a lease would be nobody's to judge, and no list would say why. How many sources it was.
 */
export async function endRetired(database: pg.Pool, network: string, signal: AbortSignal): Promise<number> {
  let ended = 0
  for (let after = ''; !signal.aborted; ended += 1) {
    const [left] = await ask<{ source_id: string }>(database, RETIRED_LISTING, [network, after])
    if (left === undefined) break
    after = left.source_id
    await retireSource(database, { network, id: after, by: '' })
  }
  return ended
}

/** In order of id, after `after`. */
export async function listSources(
  database: pg.Pool,
  { network, after, limit }: { readonly network: string; readonly after: string; readonly limit: number },
): Promise<readonly Source[]> {
  return (await ask<SourceRow>(database, LIST, [network, after, limit])).map(readSource)
}

export async function findSource(
  database: pg.Pool,
  network: string,
  id: string,
): Promise<Source | undefined> {
  return one(database, FIND, [network, id])
}

async function one(database: pg.Pool, text: string, cells: readonly unknown[]): Promise<Source | undefined> {
  const [row] = await ask<SourceRow>(database, text, cells)
  return row === undefined ? undefined : readSource(row)
}

async function looksAtTheSame(database: pg.Pool, wanted: Registration): Promise<boolean> {
  const { network, id, kind, node, settings } = wanted
  const cells = [network, id, kind, node, JSON.stringify(settings)]
  return (await ask(database, LOOKS_AT_THE_SAME, cells)).length > 0
}

function noNetwork(network: string): Refusal {
  return refusal('NETWORK_NOT_FOUND', `network ${network} does not exist`, { network })
}

function noSource(network: string, id: string): Refusal {
  return refusal('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id })
}

function over({ id, state }: { readonly id: string; readonly state: SourceState }): Refusal {
  return refusal('ILLEGAL_STATE', `source ${id} is retired for good; register another`, { source: id, state })
}

function isAnother({ id, state, kind, node }: Source): Refusal {
  const where = node === '' ? 'the whole network' : `node ${node}`
  return refusal(
    'ILLEGAL_STATE',
    `source ${id} is of kind ${kind} and sees ${where}; one of another kind, node or settings is another source: register and enable another id, let it report, then retire this one`,
    { source: id, state },
  )
}
