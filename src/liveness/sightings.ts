/**
 * A snapshot compared with what its source listed before, and the difference written as intervals. Nothing is written
 * for an entry that stays. All of it in the transaction of the report, which holds the lock of the source's row and of
 * nothing else: Reserve never waits for it.
 *
 * The comparison is by key and in pages, so that a list of 100,000 occupies the process for milliseconds at a time.
 */
import type pg from 'pg'
import { TERMINAL } from '../core/command.ts'
import { type Column, insertText, OF_NETWORK, OWNER, ownerCells, values } from '../ledger/append.ts'
import { type Statement, trip } from '../postgres/trip.ts'
import { type Entry, type Listed, splitKeys } from './entries.ts'

const PAGE = 5_000
/** Rows of one statement: some 30 ms of the database (not measured). */
const SLICE = 2_000

/** Where the intervals begin and end. */
export type At = {
  readonly network: string
  readonly source: string
  readonly epoch: string
  readonly sequence: number
  /** 0: not proven. */
  readonly head: number
  readonly begunAt: number
  /** When the report before was begun: nothing that vanishes now was seen later. */
  readonly lastSeenAt: number
  /**
   * Of a source of a node: when the node's present boot first reported. What is of an older boot was not listed since,
   * it was only not ended before the source was warm again. Null: the source's epochs are no boots.
   */
  readonly bootBegunAt: number | null
}

/** Keys. */
export type Difference = {
  readonly appeared: ReadonlySet<string>
  readonly vanished: readonly string[]
}

const LISTED = `
  select entry_key from ipledger.sighting
   where network_id = $1 and source_id = $2 and vanished_sequence is null and entry_key > $3
   order by entry_key limit $4`

// As one text: of a page of rows the process spends longer on reading than on comparing.
const LISTED_KEYS = `select string_agg(k.entry_key, '' order by k.entry_key) as keys from (${LISTED}) k`

const KNOWN = `
  select s.entry_key from unnest($3::text[]) as k (key)
    cross join lateral (
      select entry_key from ipledger.sighting
       where network_id = $1 and source_id = $2 and vanished_sequence is null and entry_key >= k.key and entry_key <= k.key
       order by entry_key limit 1) s`

const SIGHTING: readonly Column[] = [
  { name: 'address', type: 'inet' },
  { name: 'source_id', type: 'text' },
  { name: 'entry_key', type: 'text' },
  { name: 'appeared_sequence', type: 'bigint' },
  ...OWNER,
  { name: 'node', type: 'text' },
  { name: 'boot', type: 'text' },
  { name: 'state', type: 'text' },
  { name: 'live', type: 'boolean' },
  { name: 'epoch', type: 'text' },
  { name: 'appeared_head', type: 'bigint' },
  { name: 'appeared_at', type: 'time' },
]

const APPEAR = insertText('ipledger.sighting', SIGHTING)

const VANISH = `
  update ipledger.sighting
     set live = false, vanished_sequence = $4::bigint, vanished_head = $5::bigint,
         vanished_at = to_timestamp($6::float8 / 1000),
         last_seen_at = greatest(appeared_at, least(
           to_timestamp($7::float8 / 1000), case when boot <> $9::text then to_timestamp($8::float8 / 1000) end))
   where ${OF_NETWORK} and ctid = any(array(
     select s.row_id from unnest($3::text[]) as k (key)
     cross join lateral (
       select ctid as row_id from ipledger.sighting
        where network_id = $1 and source_id = $2 and vanished_sequence is null and entry_key >= k.key and entry_key <= k.key
        order by entry_key limit 1) s))`

export const SIGHTING_STATEMENTS = {
  listed: LISTED,
  listedKeys: LISTED_KEYS,
  known: KNOWN,
  appear: APPEAR,
  vanish: VANISH,
} as const

/** Against everything the source lists: what is new, and what is gone from the list. */
export async function compareAll(
  client: pg.Client,
  at: Pick<At, 'network' | 'source'>,
  listed: Listed['keys'],
): Promise<Difference> {
  const appeared = new Set(listed)
  const vanished: string[] = []
  for (let after = ''; ; ) {
    const one = statement('listed_keys', LISTED_KEYS, [at.network, at.source, after, PAGE])
    const [answered] = await trip(client, [one])
    const page = [...splitKeys((answered!.rows[0]!.keys as string | null) ?? '')]
    for (const key of page) {
      // Each is listed once.
      if (!appeared.delete(key)) vanished.push(key)
    }
    if (page.length < PAGE) break
    after = page.at(-1)!
  }
  return { appeared, vanished }
}

/** What is new alone: a list with holes ends nothing (INV-6). */
export async function compareNew(
  client: pg.Client,
  at: Pick<At, 'network' | 'source'>,
  listed: Listed['keys'],
): Promise<Difference> {
  const appeared = new Set(listed)
  for (const slice of slices([...listed])) {
    const known = await keys(client, statement('known', KNOWN, [at.network, at.source, slice]))
    for (const key of known) appeared.delete(key)
  }
  return { appeared, vanished: [] }
}

/** Answers the first of what appeared, at most `most`. */
export async function writeDifference(
  client: pg.Client,
  { appeared, vanished }: Difference,
  { at, listed, most }: { readonly at: At; readonly listed: Listed | null; readonly most: number },
): Promise<readonly Entry[]> {
  for (const slice of slices(vanished)) {
    const { network, source, epoch, sequence, head, begunAt, lastSeenAt, bootBegunAt } = at
    const ended = [network, source, slice, sequence, head, begunAt, lastSeenAt, bootBegunAt, epoch]
    await trip(client, [statement('vanish', VANISH, ended)])
  }
  const first: Entry[] = []
  if (listed === null || appeared.size === 0) return first
  for await (const page of listed.pages(appeared)) {
    for (const slice of slices(page)) {
      const cells = values(at.network, SIGHTING, slice, (entry) => cellsOf(entry, at))
      await trip(client, [statement('appear', APPEAR, cells)])
      if (first.length < most) first.push(...slice.slice(0, most - first.length))
    }
  }
  return first
}

function cellsOf({ key, address, owner, node, boot, state }: Entry, at: At): readonly unknown[] {
  return [
    address,
    at.source,
    key,
    at.sequence,
    ...ownerCells(owner),
    node,
    boot,
    state,
    state !== TERMINAL,
    at.epoch,
    at.head,
    at.begunAt,
  ]
}

function statement(name: string, text: string, cells: readonly unknown[]): Statement {
  return { name: `sighting_${name}`, text, values: cells }
}

async function keys(client: pg.Client, one: Statement): Promise<readonly string[]> {
  const [answered] = await trip(client, [one])
  return answered!.rows.map((row) => row.entry_key as string)
}

function* slices<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let from = 0; from < all.length; from += SLICE) yield all.slice(from, from + SLICE)
}
