/**
 * Checkpoints: the whole table of leases at a number of the log, as the numbers of the last events about them in order of
 * address. Whoever asks for the leases at a number reads the checkpoint before it and the events in between, so that it
 * costs the leases and no more events than a distance, however long the log is.
 *
 * - Each checkpoint is made from the one before and the events since; the first is at 0, where nothing is held. What is
 *   in it follows from the log alone, so that two who make one at once write the same rows.
 * - A part is written in a transaction of its own, under the lock of the checkpoint it rests on: if that is gone, a
 *   rebuild has begun, and if there is a later one, somebody else has made what follows: nothing goes on, least of all the
 *   removal of what looks left over. Only the row that comes with the last part makes the others count.
 * - The log is not scanned: the events of one distance are read once, by number.
 */
import type pg from 'pg'
import { addressValue } from '../core/books.ts'
import { OF_NETWORK } from './append.ts'
import { familyOf } from './fold.ts'
import { readAddress } from './rows.ts'
import { inTransaction } from './transaction.ts'

/**
 * Events between two checkpoints: half as many as leases are held, within bounds, so that a small network has few of them and
 * a large one is read soon. Of 100,000 leases in a log of a million events a checkpoint took 3.5 bytes a lease, 7 an event
 * (of the log itself: 410), half a second to make, and the leases at any number 0.3 to 0.4 s to read (2 cores).
 */
const EVENTS_PER_LEASE = 0.5
const LEAST_DISTANCE = 20_000
const MOST_DISTANCE = 250_000

const LEASES_PER_PART = 1_000
/** Parts of the one before that are read at once, and written at once. */
const PARTS_AT_ONCE = 10

/** For the test of their plans. */
export const CHECKPOINT_STATEMENTS = {
  base: `insert into ipledger.lease_checkpoint (network_id, seq, leases, parts, made_at)
    values ($1, 0, 0, 0, clock_timestamp()) on conflict do nothing`,
  last: `select c.seq, c.leases, c.parts, c.made_at::text as made from ipledger.lease_checkpoint c where c.network_id = $1 order by c.seq desc limit 1`,
  due: `select e.seq from ipledger.event e where e.network_id = $1 and e.seq > $2 order by e.seq offset $3 - 1 limit 1`,
  changed: `select s.address, s.seq, s.type not in ('lease.released', 'lease.reaped') as held from (
      select distinct on (e.address) e.address, e.seq, e.type from (
        select c.address, c.seq, c.type from ipledger.event c
         where c.network_id = $1 and c.seq > $2 and c.seq <= $3 and c.type like 'lease.%' order by c.seq) e
       order by e.address, e.seq desc) s
     order by s.address`,
  kept: `select e.seq, e.address
      from ipledger.lease_checkpoint_part p
      cross join lateral unnest(p.events) with ordinality as k (seq, place)
      cross join lateral (
        select event.seq, event.address from ipledger.event
         where event.network_id = $1 and event.seq >= k.seq and event.seq <= k.seq order by event.seq limit 1) e
     where p.network_id = $1 and p.seq = $2 and p.part >= $3 and p.part < $4
     order by p.part, k.place`,
  lockCheckpoint: `select c.seq from ipledger.lease_checkpoint c where c.network_id = $1 and c.seq = $2 and c.made_at = $3::timestamptz
    for update skip locked`,
  later: `select c.seq from ipledger.lease_checkpoint c where c.network_id = $1 and c.seq > $2 order by c.seq limit 1`,
  part: `insert into ipledger.lease_checkpoint_part (network_id, seq, part, first_address, last_address, leases, events)
    values ($1, $2, $3, $4, $5, cardinality($6::bigint[]), $6) on conflict do nothing`,
  leftOver: `delete from ipledger.lease_checkpoint_part where ${OF_NETWORK} and ctid = any(array(
      select p.ctid from ipledger.lease_checkpoint_part p where p.network_id = $1 and p.seq > $2 order by p.seq limit $3))`,
  // Nothing may be missing of what it says is there.
  whole: `insert into ipledger.lease_checkpoint (network_id, seq, leases, parts, made_at)
    select $1, $2::bigint, $3::bigint, $4::integer, clock_timestamp()
      from (select count(*) as parts, coalesce(sum(p.leases), 0) as leases
              from ipledger.lease_checkpoint_part p where p.network_id = $1 and p.seq = $2) found
     where found.parts = $4 and found.leases = $3
    on conflict do nothing`,
  forget: `delete from ipledger.lease_checkpoint c where c.network_id = $1`,
} as const

type Checkpoint = {
  readonly seq: number
  readonly leases: number
  readonly parts: number
  /** To the microsecond: another that was made at the same number since is another. */
  readonly made: string
}

/** The last event about a held address. */
type Kept = { readonly seq: number; readonly address: string }
/** What an address came to since the checkpoint before. */
type Changed = Kept & { readonly held: boolean }

export type CheckpointOptions = {
  readonly signal?: AbortSignal | undefined
  /** For tests: events between two. */
  readonly distance?: number | undefined
  /** For tests: leases of a part. */
  readonly part?: number | undefined
}

/**
 * The next checkpoint of a network. False: none is due, or somebody else is at it.
 *
 * Everything it reads was written once and never changes; it may be left off anywhere.
 */
export async function makeCheckpoint(
  client: pg.Client,
  network: string,
  { signal, distance, part = LEASES_PER_PART }: CheckpointOptions = {},
): Promise<boolean> {
  const last = await lastCheckpoint(client, network)
  if (last === null) return false
  const due = await client.query<{ seq: number }>(CHECKPOINT_STATEMENTS.due, [
    network,
    last.seq,
    distance ?? Math.ceil(Math.min(Math.max(last.leases * EVENTS_PER_LEASE, LEAST_DISTANCE), MOST_DISTANCE)),
  ])
  const seq = due.rows[0]?.seq
  if (seq === undefined || !(await removeLeftOver(client, network, last, signal))) return false

  const changed = await readChanged(client, network, last.seq, seq)
  const written = { leases: 0, parts: 0 }
  let waiting: Kept[] = []
  const write = async (least: number): Promise<boolean> => {
    while (waiting.length >= least && waiting.length > 0) {
      const some = waiting.slice(0, part * PARTS_AT_ONCE)
      waiting = waiting.slice(some.length)
      if (signal?.aborted || !(await writeParts(client, network, last, seq, written, some, part)))
        return false
    }
    return true
  }
  const read = { leases: 0 }
  for await (const kept of merged(client, network, last, changed, read)) {
    waiting.push(kept)
    if (waiting.length >= part * PARTS_AT_ONCE && !(await write(part * PARTS_AT_ONCE))) return false
  }
  if (!(await write(1))) return false
  return underLock(client, network, last, async () => {
    // What is gone of it is gone for good: nobody else may remove it while it is the last.
    if (read.leases !== last.leases) {
      const what = `the checkpoint of network ${network} at number ${last.seq}`
      throw new Error(`${what} has not all of its leases; run ipledger rebuild --tenure`)
    }
    const cells = [network, seq, written.leases, written.parts]
    const { rowCount } = await client.query(CHECKPOINT_STATEMENTS.whole, cells)
    return rowCount === 1
  })
}

/** All checkpoints of a network are forgotten; whoever makes the next ones removes what is left of them. */
export async function forgetCheckpoints(client: pg.Client, network: string): Promise<void> {
  await client.query(CHECKPOINT_STATEMENTS.forget, [network])
}

async function lastCheckpoint(client: pg.Client, network: string): Promise<Checkpoint | null> {
  const last = async () =>
    (await client.query<Checkpoint>(CHECKPOINT_STATEMENTS.last, [network])).rows[0] ?? null
  const found = await last()
  if (found !== null) return found
  await client.query(CHECKPOINT_STATEMENTS.base, [network])
  return last()
}

/** False: the checkpoint is gone or is not the last, or another works on what follows it. */
function underLock(
  client: pg.Client,
  network: string,
  { seq, made }: Checkpoint,
  work: () => Promise<boolean>,
): Promise<boolean> {
  return inTransaction(client, async () => {
    const { rowCount } = await client.query(CHECKPOINT_STATEMENTS.lockCheckpoint, [network, seq, made])
    if (rowCount !== 1) return false
    // Asked once it is locked: who makes what follows does so under this lock.
    const later = await client.query(CHECKPOINT_STATEMENTS.later, [network, seq])
    return later.rowCount === 0 && work()
  })
}

/** Parts of one that was not finished, or of all that were forgotten. */
async function removeLeftOver(
  client: pg.Client,
  network: string,
  last: Checkpoint,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  for (let left = true; left; ) {
    if (signal?.aborted) return false
    const locked = await underLock(client, network, last, async () => {
      const most = LEFT_OVER_AT_ONCE
      const { rowCount } = await client.query(CHECKPOINT_STATEMENTS.leftOver, [network, last.seq, most])
      left = rowCount === most
      return true
    })
    if (!locked) return false
  }
  return true
}

const LEFT_OVER_AT_ONCE = 500

/** In order of address. */
async function readChanged(
  client: pg.Client,
  network: string,
  after: number,
  upto: number,
): Promise<readonly Changed[]> {
  const { rows } = await client.query<[address: string, seq: number, held: boolean]>({
    rowMode: 'array',
    text: CHECKPOINT_STATEMENTS.changed,
    values: [network, after, upto],
  })
  return rows.map(([address, seq, held]) => ({ address: readAddress(address), seq, held }))
}

/** What was held and is as it was, and what is held since, in order of address. */
async function* merged(
  client: pg.Client,
  network: string,
  last: Checkpoint,
  changed: readonly Changed[],
  read: { leases: number },
): AsyncGenerator<Kept> {
  let next = 0
  for (let from = 0; from < last.parts; from += PARTS_AT_ONCE) {
    const { rows } = await client.query<[seq: number, address: string]>({
      rowMode: 'array',
      text: CHECKPOINT_STATEMENTS.kept,
      values: [network, last.seq, from, from + PARTS_AT_ONCE],
    })
    read.leases += rows.length
    for (const [seq, text] of rows) {
      const address = readAddress(text)
      let same = false
      for (; next < changed.length; next += 1) {
        const order = compareAddresses(changed[next]!.address, address)
        if (order > 0) break
        if (order === 0) same = true
        if (changed[next]!.held) yield changed[next]!
      }
      if (!same) yield { seq, address }
    }
  }
  for (; next < changed.length; next += 1) if (changed[next]!.held) yield changed[next]!
}

/** As the database has them in order: v4 first. */
function compareAddresses(a: string, b: string): number {
  if (a === b) return 0
  const families = familyOf(a) - familyOf(b)
  if (families !== 0) return families
  return addressValue(a) < addressValue(b) ? -1 : 1
}

async function writeParts(
  client: pg.Client,
  network: string,
  last: Checkpoint,
  seq: number,
  written: { leases: number; parts: number },
  some: readonly Kept[],
  part: number,
): Promise<boolean> {
  return underLock(client, network, last, async () => {
    for (let from = 0; from < some.length; from += part) {
      const kept = some.slice(from, from + part)
      await client.query(CHECKPOINT_STATEMENTS.part, [
        network,
        seq,
        written.parts,
        kept[0]!.address,
        kept.at(-1)!.address,
        kept.map((one) => one.seq),
      ])
      written.parts += 1
      written.leases += kept.length
    }
    return true
  })
}
