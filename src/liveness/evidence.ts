/**
 * What the tables say about held leases, for the judge (core/judge.ts): who has seen each, who missed it since and how
 * often, what they answered when they were asked, and who has vouched for the end of its node.
 *
 * A slice of leases is read in three trips of one read-only snapshot of the database, so that a source's standing and
 * its sightings belong together: with the one read before the other, a list that shows a workload could be taken for a
 * list that misses it. Nothing is locked and nothing is written; whatever changes afterwards is met again under the
 * network's lock (core/decide-proven.ts).
 *
 * What is not here is not evidence. Rows that are older than the lease are of its predecessors: they say when the
 * address was last seen, and nothing else. One that is still listed keeps the lease, and is of another life until a report
 * that knew of the lease has it.
 */
import type pg from 'pg'
import { blockSize, type Family, formatValue, isMalformed, parseAddress } from '../core/address.ts'
import { TERMINAL } from '../core/command.ts'
import { mayBeOn, seenFor } from '../core/decide-sighting.ts'
import {
  isSameWorkload,
  type LeaseEvidence,
  type LookupAnswer,
  RULES,
  type SeenPlace,
  type WitnessEvidence,
} from '../core/judge.ts'
import { KEEPS_CLOSED, type Lease } from '../core/lease.ts'
import { provesEnd } from '../core/listed.ts'
import { attachmentKey, type Owner } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'
import { LAST_RECOVERY, REPORTED_FROM } from '../ledger/load-seen.ts'
import { MOST_OF_ONE, type OwnerRow, readOwner, reasonsOf } from '../ledger/rows.ts'
import { onConnection } from '../postgres/on-connection.ts'
import { COMMIT, type Statement, trip } from '../postgres/trip.ts'
import { SMALLEST_COOLDOWN, tokenLifeMs } from './snapshot-token.ts'
import { readSource, SOURCE_COLUMNS, type Source, type SourceRow } from './source-rows.ts'
import type { CountedSnapshot } from './standing.ts'

/** Leases of one reading: some 20 ms of the database (not measured). */
export const MOST_LEASES = 500
/** Workloads seen at one lease's addresses. Beyond it the evidence would have a hole, and there is none. */
const MOST_SEEN = 1_000
/** Intervals of one workload that are looked at one by one; only restoring asks for them, and for the latest. */
const MOST_INTERVALS = 16
const NO_SEQUENCE = Number.MAX_SAFE_INTEGER

export type EvidenceOptions = {
  /** For a plan: what would follow if this source were enabled. */
  readonly asIfEnabled?: string | null
}

export type EvidenceGround = {
  readonly state: string
  readonly era: number
  readonly head: number
  /** By the database's clock, when the evidence was read. */
  readonly now: number
  /** When the last era with a recovery began. */
  readonly recovered_at: number | null
  readonly smallest_cooldown_ms: number | null
}

/** A question as it stands: what was asked about a lease, and when to ask again. */
export type Asked = {
  readonly version: number
  readonly wantedAt: number
  readonly askedAt: number | null
  readonly answeredAt: number | null
  readonly answer: LookupAnswer['answer'] | null
  /** Of the source, when it answered. */
  readonly epoch: string
  readonly detail: string
  readonly attempts: number
  readonly nextAt: number | null
}

export type EvidenceRead = {
  readonly ground: EvidenceGround
  /** Of the leases, in their order; without those whose addresses are seen for more workloads than are read. */
  readonly evidence: readonly LeaseEvidence[]
  readonly unread: readonly Lease[]
  readonly sources: ReadonlyMap<string, Source>
  asked(source: string, token: number, owner: Owner): Asked | undefined
}

const BEGIN_READING: Statement = {
  name: 'evidence_begin',
  text: 'begin isolation level repeatable read read only',
  values: [],
}

const GROUND = `
  select n.state, n.era, clock_timestamp() as now, ${LAST_RECOVERY('at')} as recovered_at,
         ${SMALLEST_COOLDOWN} as smallest_cooldown_ms,
         coalesce((select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1), 0) as head
    from ipledger.network n where n.network_id = $1`

// Each workload that a source has seen at a lease's addresses, with the latest of its intervals.
const SIGHTED = `
  select k.place, g.*
    from unnest($2::int[], $3::inet[], $4::inet[]) as k (place, first, last)
    cross join lateral (
      select s.source_id, s.owner_kind, s.owner_name, s.owner_uid, s.owner_uid_named, s.owner_incarnation, s.owner_interface,
             s.node, s.boot, s.state = '${TERMINAL}' as ended,
             count(*) filter (where s.vanished_sequence is null) as listed,
             max(s.state) filter (where s.vanished_sequence is null) as listed_state,
             min(s.appeared_at) filter (where s.vanished_sequence is null) as listed_since,
             max(s.appeared_at) filter (where s.vanished_sequence is null) as listed_at,
             max(s.appeared_sequence) filter (where s.vanished_sequence is null) as listed_sequence,
             min(s.appeared_head) filter (where s.vanished_sequence is null) as listed_head,
             max(s.appeared_head) as appeared_head,
             max(s.vanished_sequence) as vanished_sequence,
             max(s.vanished_head) as vanished_head,
             max(s.vanished_at) as vanished_at,
             max(s.last_seen_at) as last_seen_at,
             (array_agg(s.appeared_sequence + case s.appeared_head when 0 then 1 else 0 end
                order by s.appeared_sequence desc))[1:${MOST_INTERVALS}] as from_sequences,
             (array_agg(coalesce(s.vanished_sequence, ${NO_SEQUENCE})
                order by s.appeared_sequence desc))[1:${MOST_INTERVALS}] as to_sequences
        from (
          select x.* from ipledger.sighting x
           where x.network_id = $1 and x.address between k.first and k.last order by x.address offset 0) s
       group by s.source_id, s.owner_kind, s.owner_name, s.owner_uid, s.owner_uid_named, s.owner_incarnation, s.owner_interface,
             s.node, s.boot, s.state = '${TERMINAL}'
       order by listed desc limit ${MOST_SEEN}) g`

// With the last report from that boot, of a source that is in it or was, retired or not; and with when the ledger went
// beyond what the statement is about.
const FENCES = `
  select f.node, f.boot, coalesce(f.fenced_head, f.fenced_seq) as fenced_head, f.fenced_at, f.fenced_by, f.why,
         coalesce((
           select e.at from ipledger.event e
            where e.network_id = $1 and e.seq > coalesce(f.fenced_head, f.fenced_seq - 1) order by e.seq limit 1),
           f.fenced_at) as since_at,
         ${REPORTED_FROM('f')} as reported_at
    from unnest($2::text[], $3::text[]) as k (node, boot)
    cross join lateral (
      select * from ipledger.fence x
       where x.network_id = $1 and x.node = k.node and x.boot = k.boot order by x.node, x.boot limit 1) f`

// As decide-lease.ts has it: within the retry horizon, or as long as a lease of it waits for its removal.
const CLOSED = `
  select k.key, c.pool_id
    from unnest($2::text[]) as k (key)
    cross join lateral (
      select x.pool_id, x.closed_at from ipledger.closed_attachment x
       where x.network_id = $1 and x.attachment_key >= k.key and x.attachment_key <= k.key
       order by x.attachment_key limit ${MOST_OF_ONE}) c
   where c.closed_at > clock_timestamp() - interval '${POLICY.retryHorizonMs} milliseconds'
      or exists (
        select from (
          select l.quarantine_reason from ipledger.lease l
           where l.network_id = $1 and l.attachment_key >= k.key and l.attachment_key <= k.key
           order by l.attachment_key limit ${MOST_OF_ONE}) q
         where q.quarantine_reason in (${reasonsOf(KEEPS_CLOSED)}))`

const SOURCES = `
  select ${SOURCE_COLUMNS.join(', ')} from ipledger.source where network_id = $1 and source_id = any($2::text[])`

const COVERING = `
  select ${SOURCE_COLUMNS.map((column) => `s.${column}`).join(', ')}
    from unnest($2::text[]) as k (node)
    cross join lateral (
      select * from ipledger.source x
       where x.network_id = $1 and x.node >= k.node and x.node <= k.node order by x.node, x.source_id limit ${MOST_OF_ONE}) s
   where s.state <> 'RETIRED'`

const ENDED_BOOTS = `
  select k.node, k.boot, s.source_id
    from unnest($2::text[], $3::text[]) as k (node, boot)
    cross join lateral (
      select x.source_id, x.epoch from ipledger.source x
       where x.network_id = $1 and x.node >= k.node and x.node <= k.node order by x.node, x.source_id limit ${MOST_OF_ONE}) s
    cross join lateral (
      select e.closed_at from ipledger.source_epoch e
       where e.network_id = $1 and e.source_id = s.source_id and e.epoch = k.boot order by e.epoch limit 1) e
   where s.epoch <> k.boot and e.closed_at is not null`

// How they began. Who was placed on a boot and is on none was asked for from elsewhere since (core/decide-reserve.ts).
const BEGINNINGS = `
  select k.token, e.type, e.at, e.boot from unnest($2::bigint[]) as k (token)
    cross join lateral (
      select x.type, x.at, x.boot from ipledger.event x
       where x.network_id = $1 and x.seq >= k.token and x.seq <= k.token order by x.seq limit 1) e`

const HOLDS = `
  select h.source_id from unnest($2::text[]) as k (source)
    cross join lateral (
      select x.source_id from ipledger.hold x
       where x.network_id = $1 and x.source_id >= k.source and x.source_id <= k.source order by x.source_id limit 1) h`

const LOOKUPS = `
  select l.source_id, l.fencing_token, l.attachment_key, l.version, l.wanted_at, l.asked_at, l.answered_at, l.answer,
         l.terminal_since, l.epoch, l.detail, l.attempts, l.next_at
    from unnest($2::text[], $3::bigint[]) as k (source, token)
    cross join lateral (
      select * from ipledger.lookup x
       where x.network_id = $1 and x.source_id = k.source and x.fencing_token >= k.token and x.fencing_token <= k.token
       order by x.fencing_token limit ${MOST_OF_ONE}) l`

/** For the test of their plans. */
export const EVIDENCE_STATEMENTS = {
  evidenceGround: GROUND,
  evidenceSighted: SIGHTED,
  evidenceFences: FENCES,
  evidenceClosed: CLOSED,
  evidenceSources: SOURCES,
  evidenceCovering: COVERING,
  evidenceEndedBoots: ENDED_BOOTS,
  evidenceBeginnings: BEGINNINGS,
  evidenceHolds: HOLDS,
  evidenceLookups: LOOKUPS,
} as const

function read(name: keyof typeof EVIDENCE_STATEMENTS, ...values: readonly unknown[]): Statement {
  return { name, text: EVIDENCE_STATEMENTS[name], values }
}

type SightedRow = Readonly<OwnerRow> & {
  readonly place: number
  readonly source_id: string
  readonly node: string
  readonly boot: string
  /** Its source says that it has ended. */
  readonly ended: boolean
  readonly listed: number
  readonly listed_state: string | null
  readonly listed_since: number | null
  readonly listed_at: number | null
  readonly listed_sequence: number | null
  /** The oldest of what is listed; 0: one of it proves no beginning. */
  readonly listed_head: number | null
  /** The newest, listed or not. */
  readonly appeared_head: number
  readonly vanished_sequence: number | null
  readonly vanished_head: number | null
  readonly vanished_at: number | null
  readonly last_seen_at: number | null
  /** The first snapshot of each interval that listed it, and the first after it that did not. */
  readonly from_sequences: readonly number[]
  readonly to_sequences: readonly number[]
}

type FenceRow = {
  readonly node: string
  readonly boot: string
  /** Up to which number it is about leases. */
  readonly fenced_head: number
  readonly fenced_at: number
  readonly fenced_by: string
  readonly why: string
  readonly since_at: number
  readonly reported_at: number | null
}

/** The first event of a lease. */
type Beginning = {
  readonly token: number
  readonly type: string
  readonly at: number
  readonly boot: string
}

type LookupRow = {
  readonly source_id: string
  readonly fencing_token: number
  readonly attachment_key: string
  readonly version: number
  readonly wanted_at: number
  readonly asked_at: number | null
  readonly answered_at: number | null
  readonly answer: LookupAnswer['answer'] | null
  readonly terminal_since: number | null
  readonly epoch: string
  readonly detail: string
  readonly attempts: number
  readonly next_at: number | null
}

/** At most `MOST_LEASES` of one network, as they were read a moment ago. Null: there is no such network. */
export async function readEvidence(
  client: pg.Client,
  network: string,
  leases: readonly Lease[],
  options: EvidenceOptions = {},
): Promise<EvidenceRead | null> {
  const placed = leases.filter(({ placement }) => placement.node !== '' && placement.boot !== '')
  const nodes = placed.map(({ placement }) => placement.node)
  const boots = placed.map(({ placement }) => placement.boot)
  const [, ground, sighted, fences, closed] = await trip(client, [
    BEGIN_READING,
    read('evidenceGround', network),
    read(
      'evidenceSighted',
      network,
      leases.map((_lease, place) => place),
      leases.map(({ address }) => address),
      leases.map(lastAddressOf),
    ),
    read('evidenceFences', network, nodes, boots),
    read(
      'evidenceClosed',
      network,
      leases.flatMap(({ owner }) => (owner === null ? [] : [attachmentKey(owner)])),
    ),
  ])
  const seenAt = groupBy(sighted!.rows as unknown as readonly SightedRow[], ({ place }) => place)
  const places = leases.map((lease, place): Place => ({ lease, rows: seenAt.get(place) ?? [] }))
  const named = leases.flatMap(({ witness }) => (witness === '' ? [] : [witness]))
  const [byId, covering, endedBoots, beginningRows] = await trip(client, [
    read('evidenceSources', network, [
      ...new Set([...named, ...places.flatMap(({ rows }) => rows.map(({ source_id }) => source_id))]),
    ]),
    // All of them: one that is not read is one that is not asked.
    read('evidenceCovering', network, [...new Set(['', ...leases.map(({ placement }) => placement.node)])]),
    read('evidenceEndedBoots', network, nodes, boots),
    read(
      'evidenceBeginnings',
      network,
      places.filter(dependsOnItsBeginning).map(({ lease }) => lease.fencingToken),
    ),
  ])
  const beginnings = new Map(
    (beginningRows!.rows as unknown as readonly Beginning[]).map((row) => [row.token, row]),
  )
  const sources = new Map<string, Source>()
  for (const { rows } of [byId!, covering!]) {
    for (const row of rows as unknown as readonly SourceRow[]) sources.set(row.source_id, readSource(row))
  }
  const asIfEnabled = options.asIfEnabled ?? null
  const drafts = places.map((place) =>
    draftOf(place, sources, beginnings.get(place.lease.fencingToken) ?? null),
  )
  const seers = drafts.map((draft) => seersOf(draft, sources, asIfEnabled))
  const pairs = drafts.flatMap(({ lease }, index) =>
    seers[index]!.map(({ source }) => ({ source, token: lease.fencingToken })),
  )
  const [holds, lookups] = await trip(client, [
    read('evidenceHolds', network, ['', ...sources.keys()]),
    read(
      'evidenceLookups',
      network,
      pairs.map(({ source }) => source),
      pairs.map(({ token }) => token),
    ),
    COMMIT,
  ])
  const groundRow = ground!.rows[0] as EvidenceGround | undefined
  if (groundRow === undefined) return null
  const known: Known = {
    ground: groundRow,
    sources,
    asIfEnabled,
    held: new Set(holds!.rows.map((row) => row.source_id as string)),
    fences: new Map(
      (fences!.rows as unknown as readonly FenceRow[]).map((row) => [bootKey(row.node, row.boot), row]),
    ),
    closed: groupBy(
      closed!.rows as unknown as readonly { readonly key: string; readonly pool_id: number }[],
      ({ key }) => key,
    ),
    endedBoots: new Set(
      endedBoots!.rows.map((row) => `${row.source_id} ${bootKey(row.node as string, row.boot as string)}`),
    ),
    lookups: new Map(
      (lookups!.rows as unknown as readonly LookupRow[]).map((row) => [
        lookupKey(row.source_id, row.fencing_token, row.attachment_key),
        row,
      ]),
    ),
  }
  return {
    ground: groundRow,
    evidence: drafts.flatMap((draft, index) =>
      isCutOff(draft) ? [] : [evidenceOf(draft, seers[index]!, known)],
    ),
    unread: drafts.filter(isCutOff).map(({ lease }) => lease),
    sources,
    asked: (source, token, owner) => {
      const row = known.lookups.get(lookupKey(source, token, attachmentKey(owner)))
      return row === undefined ? undefined : askedOf(row)
    },
  }
}

/** The same on a connection of the pool's; what fails in the middle of it ends with the connection. */
export async function takeEvidence(
  database: pg.Pool,
  network: string,
  leases: readonly Lease[],
  options: EvidenceOptions = {},
): Promise<EvidenceRead | null> {
  return onConnection(database, (client) => readEvidence(client, network, leases, options))
}

/** The address itself, or the last of the block. */
export function lastAddressOf({ address, prefixLength }: Pick<Lease, 'address' | 'prefixLength'>): string {
  const parsed = parseAddress(address)
  if (isMalformed(parsed)) throw new Error(`stored address ${address}: ${parsed.malformed}`)
  return formatValue(parsed.family, parsed.value + blockSize(parsed.family, prefixLength) - 1n)
}

// A lease and the rows at its addresses.

type Place = {
  readonly lease: Lease
  readonly rows: readonly SightedRow[]
}

type Draft = Place & {
  /** The boot it was placed on, where it was asked for from elsewhere since. */
  readonly leftBoot: string | null
  /** Of rows in the lease's life, by source and by whom they are about. */
  readonly groups: readonly Group[]
}

type Group = {
  readonly source: string
  /** The same for all who saw the same workload. */
  readonly key: string
  readonly about: Owner | null
  readonly isHolder: boolean
  /** Only another life of the holder was seen, or one that was listed before the lease and not since. */
  readonly anotherLife: boolean
  readonly rows: readonly SightedRow[]
}

/** Whose first event is asked for: those that may have been asked for from elsewhere, and those with rows of before. */
function dependsOnItsBeginning({ lease, rows }: Place): boolean {
  const { placement, witness, owner } = lease
  if (placement.boot === '' && (placement.node !== '' || witness !== '')) return true
  return owner !== null && rows.some((row) => isOlderThan(lease, row) && isOfThisLease(lease, row))
}

function draftOf(
  { lease, rows }: Place,
  sources: ReadonlyMap<string, Source>,
  beginning: Beginning | null,
): Draft {
  const isOfAnother = (row: SightedRow) =>
    isOfAnotherLife(lease, row) || isOfBefore(lease, row, sources.get(row.source_id), beginning)
  const ofThisLease = rows.filter(
    (row) => isOfThisLease(lease, row) && !(row.ended && (isOfAnother(row) || isGuest(lease, row))),
  )
  const groups = [...groupBy(ofThisLease, (row) => `${row.source_id} ${aboutKey(lease, row)}`).values()].map(
    (of): Group => {
      const isHolder = isAboutHolder(lease, of[0]!)
      return {
        source: of[0]!.source_id,
        key: aboutKey(lease, of[0]!),
        about: isHolder ? lease.owner : readOwner(of[0]!),
        isHolder,
        anotherLife: isHolder && of.every(isOfAnother),
        rows: of,
      }
    },
  )
  const hasLeft = lease.placement.boot === '' && beginning !== null && beginning.boot !== ''
  return { lease, rows, leftBoot: hasLeft ? beginning.boot : null, groups }
}

function isOfThisLease(
  { fencingToken }: Lease,
  { listed, appeared_head, vanished_head }: SightedRow,
): boolean {
  return listed > 0 || appeared_head >= fencingToken || (vanished_head ?? 0) >= fencingToken
}

function isOlderThan({ fencingToken }: Lease, { appeared_head }: SightedRow): boolean {
  return appeared_head < fencingToken
}

/**
 * Of the holder as far as its name or uid tells, and listed before the lease was reserved: whoever had the address then
 * under that name may be on his way out. Only a report that knew of the lease says that he is of this one (W-03). What was
 * adopted or set aside began with the row.
 */
function isOfBefore(
  lease: Lease,
  row: SightedRow,
  source: Source | undefined,
  beginning: Beginning | null,
): boolean {
  if (beginning?.type !== 'lease.reserved' || !isOlderThan(lease, row) || !isAboutHolder(lease, row))
    return false
  // An end that is told again is no other end.
  if (row.ended) return true
  if (row.listed > 0 && source !== undefined) {
    const { warm, complete } = source.standing
    // Of a warm source it was in the last complete report, or would have been ended by it.
    const isIn = warm && complete !== null && complete.sequence > row.listed_sequence!
    if (isIn && complete.head >= lease.fencingToken) return false
  }
  return (row.last_seen_at ?? 0) < beginning.at
}

/**
 * That an earlier life of the owner has ended is no news of this one, which may be starting (W-03). Whoever saw it there
 * is a witness all the same: two sources may have two words for one life.
 */
function isOfAnotherLife({ owner }: Lease, row: SightedRow): boolean {
  const seen = readOwner(row)
  if (owner === null || seen === null || !isSameWorkload(owner, seen)) return false
  return owner.incarnation !== '' && seen.incarnation !== '' && seen.incarnation !== owner.incarnation
}

function isCutOff({ rows }: Draft): boolean {
  return rows.length >= MOST_SEEN
}

/**
 * As a sighting of it would be taken: inside a block whatever is on its holder's node is the holder's. Somebody on another
 * node may be his or not: it keeps the block, and makes that node's source no witness of him (16.5).
 */
function isAboutHolder(lease: Lease, row: SightedRow): boolean {
  if (lease.owner === null) return false
  const pool = { prefixLength: lease.prefixLength, family: familyOf(lease) }
  if (seenFor(pool, lease, { owner: readOwner(row), node: row.node }) !== 'SIGHTED') return false
  return namesHolder(lease, row) || row.node === '' || mayBeOn(lease, row.node)
}

function namesHolder({ owner }: Lease, row: SightedRow): boolean {
  const seen = readOwner(row)
  return owner !== null && seen !== null && isSameWorkload(owner, seen)
}

/** Somebody else inside a block, whose sighting is one of its holder: his end is not the holder's (DESIGN §6). */
function isGuest(lease: Lease, row: SightedRow): boolean {
  return isAboutHolder(lease, row) && !namesHolder(lease, row)
}

function aboutKey(lease: Lease, row: SightedRow): string {
  if (isAboutHolder(lease, row)) return 'holder'
  return JSON.stringify([row.owner_kind, row.owner_uid_named, row.owner_uid, row.owner_name])
}

function familyOf({ address }: Lease): Family {
  return address.includes(':') ? 6 : 4
}

// Who testifies about a lease.

type Seer = Group & { readonly why: WitnessEvidence['why'] }

function seersOf(
  { lease, leftBoot, groups }: Draft,
  sources: ReadonlyMap<string, Source>,
  asIfEnabled: string | null,
): readonly Seer[] {
  const seers = groups
    .filter(({ source }) => isThere(sources.get(source)))
    .map((group): Seer => ({ ...group, why: 'SIGHTED' }))
  const sightedBy = seers.filter(({ isHolder }) => isHolder || lease.owner === null)
  const hasSighted = (id: string) => sightedBy.some(({ source }) => source === id)
  const unseen = (source: string, why: 'NAMED' | 'COVERS'): Seer => ({
    source,
    key: 'holder',
    about: lease.owner,
    isHolder: true,
    anotherLife: false,
    rows: [],
    why,
  })
  const { witness, askedFrom = [] } = lease
  const isMoved = leftBoot !== null || askedFrom.length > 0
  if (witness !== '') {
    const speaks = isThere(sources.get(witness)) && !hasSighted(witness)
    return speaks ? [...seers, unseen(witness, 'NAMED')] : seers
  }
  // What a caller saw, each source that covers the network must miss, whoever saw it (DESIGN §3); and of this life of the
  // owner those that saw another know as little as the rest (W-03).
  const seenWell = sightedBy.some(({ anotherLife }) => !anotherLife)
  if (seenWell && lease.quarantine?.reason !== 'SEEN_BY_CALLER') return seers
  const covering = [...sources.values()].filter(
    ({ id, state, node }) =>
      (state === 'ENABLED' || (id === asIfEnabled && state === 'REGISTERED')) &&
      // Who was told of the lease elsewhere may run there: no node's source misses it by its declaration alone (16.5).
      (node === '' || (node === lease.placement.node && !isMoved)) &&
      !hasSighted(id),
  )
  return [...seers, ...covering.map(({ id }) => unseen(id, 'COVERS'))]
}

/**
 * Who was retired having seen a workload there that nobody who looks there has seen since: that the others miss what they
 * never knew, or knew before it went where the retired one saw it, says nothing (16.5, 16.8). An entry without an owner
 * counts if it was listed to the end: nobody can be asked after it.
 */
function retiredOf(
  { groups }: Draft,
  sources: ReadonlyMap<string, Source>,
): NonNullable<LeaseEvidence['retired']> {
  return groups.flatMap((group) => {
    const { source: id, about, key, anotherLife, rows } = group
    const source = sources.get(id)
    if (source?.state !== 'RETIRED') return []
    const listedToTheEnd = rows.some((row) => row.listed > 0 || (row.vanished_at ?? 0) >= source.retiredAt!)
    if (about === null && !listedToTheEnd) return []
    const seenAt = lastLiveAt(group, source)
    const hasHeir = groups.some((other) => {
      const heir = sources.get(other.source)
      return (
        isThere(heir) &&
        (heir.node === '' || heir.node === source.node) &&
        other.key === key &&
        (anotherLife || !other.anotherLife) &&
        lastLiveAt(other, heir) > seenAt
      )
    })
    return hasHeir ? [] : [{ source: id, about, scopeNode: source.node, seenOn: seenOn(rows, source) }]
  })
}

/** Where it was seen alive. The epoch of a Docker engine is its own id, and no boot of its node. */
function seenOn(rows: readonly SightedRow[], { kind }: Source): readonly SeenPlace[] {
  const places = rows
    .filter(({ ended, node }) => !ended && node !== '')
    .map(({ node, boot }): SeenPlace => ({ node, boot: kind === 'docker' ? '' : boot }))
  return [...new Map(places.map((place) => [bootKey(place.node, place.boot), place])).values()]
}

/** When it last saw them live. Of a source that was retired nothing was seen after its last report came. */
function lastLiveAt({ source: id, rows }: Group, source: Source): number {
  const seen = lastSeenAt(rows, new Map([[id, source]])) ?? Number.NEGATIVE_INFINITY
  if (source.state !== 'RETIRED') return seen
  const last = source.standing.reportedAt ?? source.retiredAt!
  return rows.some(isLive) ? last : Math.min(seen, last)
}

function isThere(source: Source | undefined): source is Source {
  return source !== undefined && source.state !== 'RETIRED'
}

// Evidence.

type Known = {
  readonly ground: EvidenceGround
  readonly sources: ReadonlyMap<string, Source>
  readonly asIfEnabled: string | null
  readonly held: ReadonlySet<string>
  readonly fences: ReadonlyMap<string, FenceRow>
  readonly closed: ReadonlyMap<string, readonly { readonly pool_id: number }[]>
  readonly endedBoots: ReadonlySet<string>
  readonly lookups: ReadonlyMap<string, LookupRow>
}

function evidenceOf(draft: Draft, seers: readonly Seer[], known: Known): LeaseEvidence {
  const { lease, rows, leftBoot } = draft
  const { ground, sources } = known
  const { owner, placement } = lease
  const fence = known.fences.get(bootKey(placement.node, placement.boot))
  const closings = owner === null ? [] : (known.closed.get(attachmentKey(owner)) ?? [])
  return {
    lease,
    now: ground.now,
    era: ground.era,
    recovering: ground.state === 'RECOVERING',
    recoveredAt: ground.recovered_at,
    lastSightedAt: lastSeenAt(rows, sources),
    othersSightedAt: lastSeenAt(
      rows.filter((row) => !isAboutHolder(lease, row)),
      sources,
    ),
    seenUpTo: seenUpTo(rows, sources, ground),
    // Nothing imports yet.
    imported: false,
    leftBoot,
    // One without lives is never closed (decide-lease.ts).
    ownerClosed:
      owner !== null &&
      owner.incarnation !== '' &&
      closings.some(({ pool_id }) => pool_id === 0 || pool_id === lease.poolId),
    fencedBy:
      fence === undefined
        ? null
        : {
            node: fence.node,
            boot: fence.boot,
            head: fence.fenced_head,
            by: fence.fenced_by,
            why: fence.why,
            at: fence.fenced_at,
            since: fence.since_at,
            reportedAt: fence.reported_at,
          },
    witnesses: seers.map((seer) => witnessOf(lease, seer, known)),
    retired: retiredOf(draft, sources),
    placements: seers.flatMap(({ source, rows: seen }) =>
      seen.filter(isLive).map(({ node, boot }) => ({ node, boot, source })),
    ),
    rules: RULES,
  }
}

function isLive(row: SightedRow): boolean {
  return row.listed > 0 && !row.ended
}

/** Of the latest list that had the address, from anybody, now or before: when it was begun. */
function lastSeenAt(rows: readonly SightedRow[], sources: ReadonlyMap<string, Source>): number | null {
  const times = rows.flatMap((row) => {
    if (row.ended) return []
    const source = sources.get(row.source_id)
    return [...(isLive(row) && isThere(source) ? [listedAt(row, source)] : []), ...nonNull(row.last_seen_at)]
  })
  return times.length === 0 ? null : Math.max(...times)
}

/**
 * A list is dated by its beginning, and looks later: until its token expires, and before the next one is begun. Until then
 * it may have seen what contradicts a statement, or a boot, of meanwhile (6.3, 12.2). Of a node's older boot it was not listed since.
 */
function seenUpTo(
  rows: readonly SightedRow[],
  sources: ReadonlyMap<string, Source>,
  { smallest_cooldown_ms: cooldownMs }: EvidenceGround,
): number | null {
  const lifeMs = tokenLifeMs(cooldownMs)
  const times = rows.flatMap(({ ended, source_id, boot, last_seen_at, vanished_at }) => {
    const source = sources.get(source_id)
    if (ended || !isThere(source) || last_seen_at === null || vanished_at === null) return []
    if (source.node !== '' && boot !== source.standing.epoch) return []
    return [Math.min(vanished_at, last_seen_at + lifeMs)]
  })
  return times.length === 0 ? null : Math.max(...times)
}

/**
 * Any report since may have listed it: complete or not, warm or not, of a boot that was fenced it is life (6.3). A node's
 * older boot lists nothing any more.
 */
function listedAt(row: SightedRow, { node, standing }: Source): number {
  const mayBeListed = node === '' || row.boot === standing.epoch
  return mayBeListed ? Math.max(row.listed_at!, standing.lastBegunAt ?? 0) : row.listed_at!
}

function nonNull<T>(value: T | null): readonly T[] {
  return value === null ? [] : [value]
}

function witnessOf(lease: Lease, seer: Seer, known: Known): WitnessEvidence {
  const { source: id, about, isHolder, anotherLife, rows, why } = seer
  const source = known.sources.get(id)!
  const { standing } = source
  const asIf = known.asIfEnabled === id && source.state === 'REGISTERED'
  const alive = rows.filter((row) => !row.ended)
  const live = liveOf(alive, lease)
  const ended = rows.filter((row) => row.ended && row.listed > 0)
  const isItsEnd = (row: SightedRow) => !isHolder || isEndOf(lease, row)
  const isOver = ended.length > 0 && ended.every((row) => isItsEnd(row) && isBelieved(row, source, known))
  const vanished = alive.flatMap(({ vanished_sequence }) => nonNull(vanished_sequence))
  const vanishedAt = alive.flatMap(({ vanished_at }) => nonNull(vanished_at))
  const streak = standing.recent.filter(({ counted }) => counted > standing.streakFrom)
  const missing = live !== null ? [] : vanished.length === 0 ? streak : since(streak, Math.max(...vanished))
  return {
    source: id,
    scopeNode: source.node,
    enabled: source.state === 'ENABLED' || asIf,
    epoch: standing.epoch,
    warm: standing.warm,
    // Before its first complete report it has said nothing in any era.
    era: standing.complete?.era ?? -1,
    held: known.held.has('') || known.held.has(id),
    canSee:
      source.families.includes(familyOf(lease)) && (about === null || source.ownerKinds.includes(about.kind)),
    seesStopped: source.seesStopped,
    answersForMs: source.kind === 'push' ? 2 * source.intervalMs : 0,
    enabledHead: asIf ? known.ground.head : source.enabledHead,
    why,
    about,
    anotherLife,
    seenOn: seenOn(rows, source),
    live,
    listedTerminal:
      live !== null || !isOver
        ? null
        : { since: Math.max(...ended.map(({ listed_since }) => listed_since!)) },
    vanishedAt: live !== null || vanishedAt.length === 0 ? null : Math.max(...vanishedAt),
    seen: streak.filter((snapshot) => alive.some((row) => isListedIn(row, snapshot))).map(refOf),
    misses: missing.map(refOf),
    lookup: about === null ? null : lookupOf(lease, about, source, known),
    bootEnded: isHolder ? bootEndedOf(lease, source, known) : null,
  }
}

/**
 * Listed as ended by a report that proves it, and lately: of a source that fell silent since nobody knows what runs there
 * now, and one that lists it in part, or in a life that is closed, has to be asked (INV-6, M-06).
 */
function isBelieved(row: SightedRow, { intervalMs, standing }: Source, { ground }: Known): boolean {
  const { complete } = standing
  const appeared = { sequence: row.listed_sequence!, head: row.listed_head!, begunAt: row.listed_at! }
  return (
    provesEnd(appeared, standing) &&
    complete !== null &&
    ground.now - complete.begunAt <= POLICY.gapIntervals * intervalMs
  )
}

/**
 * Of an owner that is known by its name there may be another by now, and one that was promised the address since may be
 * starting: an end that does not tell of that has to be asked about (W-03, 2.4).
 */
function isEndOf({ owner, reservedAt, confirmedAt }: Lease, row: SightedRow): boolean {
  if (owner?.uidNamed === false && row.owner_uid_named) return false
  return row.listed_since! >= Math.max(reservedAt, confirmedAt ?? 0)
}

/** Another life of the owner, if there is one beside its own: that is what speaks against it (W-03). */
function liveOf(alive: readonly SightedRow[], lease: Lease): WitnessEvidence['live'] {
  const listed = alive.filter(isLive)
  const row = listed.find((one) => isOfAnotherLife(lease, one)) ?? listed[0]
  if (row === undefined) return null
  return {
    state: row.listed_state!,
    node: row.node,
    since: row.listed_since!,
    // A guest's life is not his host's.
    incarnation: isGuest(lease, row) ? '' : (row.owner_incarnation ?? ''),
  }
}

function since(streak: readonly CountedSnapshot[], first: number): readonly CountedSnapshot[] {
  return streak.filter(({ sequence }) => sequence >= first)
}

function isListedIn(row: SightedRow, { sequence }: CountedSnapshot): boolean {
  return row.from_sequences.some((first, index) => first <= sequence && sequence < row.to_sequences[index]!)
}

function refOf({ sequence, head, begunAt }: CountedSnapshot): WitnessEvidence['seen'][number] {
  return { sequence, head, begunAt }
}

/** An answer about another state of the lease, or from another life of the source, proves nothing. */
function lookupOf(lease: Lease, about: Owner, source: Source, known: Known): LookupAnswer | null {
  const row = known.lookups.get(lookupKey(source.id, lease.fencingToken, attachmentKey(about)))
  if (row === undefined || row.version !== lease.version || row.asked_at === null) return null
  const { detail, answer, asked_at: at } = row
  if (answer === null) {
    return known.ground.now - at > unansweredAfterMs(source) ? { answer: 'unanswered', at, detail } : null
  }
  if (row.epoch !== source.standing.epoch) return null
  return answer === 'terminal' ? { answer, since: row.terminal_since!, at, detail } : { answer, at, detail }
}

/** One that reports answers with its next report but one at the latest. */
export function unansweredAfterMs({ intervalMs }: Source): number {
  return Math.max(2 * intervalMs, POLICY.lookUpTimeoutMs)
}

function bootEndedOf(lease: Lease, source: Source, known: Known): WitnessEvidence['bootEnded'] {
  const { node, boot } = lease.placement
  const { warm, epoch, epochBegunAt } = source.standing
  if (!source.bootEndsAll || !warm || source.node === '' || source.node !== node || boot === '') return null
  if (epochBegunAt === null || !known.endedBoots.has(`${source.id} ${bootKey(node, boot)}`)) return null
  return { boot, newBoot: epoch, at: epochBegunAt }
}

function askedOf(row: LookupRow): Asked {
  return {
    version: row.version,
    wantedAt: row.wanted_at,
    askedAt: row.asked_at,
    answeredAt: row.answered_at,
    answer: row.answer,
    epoch: row.epoch,
    detail: row.detail,
    attempts: row.attempts,
    nextAt: row.next_at,
  }
}

function bootKey(node: string, boot: string): string {
  return JSON.stringify([node, boot])
}

function lookupKey(source: string, token: number, key: string): string {
  return `${source} ${token} ${key}`
}

function groupBy<T, K>(items: readonly T[], key: (item: T) => K): Map<K, T[]> {
  return Map.groupBy(items, key)
}
