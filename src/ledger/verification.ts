/**
 * Verification without anybody asking, for the job `verify-log`: the same looks as `ipledger verify` takes, a piece at a
 * time, and where it stands in a row of `verification`, so that whoever comes next goes on there.
 *
 * - New events are walked as they come, with the addresses they are about. Whatever is found, the walk goes on; the checkpoint
 *   of `ipledger verify` follows only while nothing is.
 * - All of it is looked at again and again: a row that was altered long after its event is found by nothing else. Each look
 *   rests as many times as long as it worked, so that a log of any length costs the same share of a core; it begins anew
 *   at once while there are findings, because only what a whole look misses is over.
 * - A piece is claimed by its row for as long as it may take. A worker that is killed loses one piece; two never do the same.
 *
 * With all of it go the seals: an event that was altered and is legal still is found by nothing else. Not looked at here:
 * checkpoints that were found in order once, which cost as many look-ups as there are leases, each of them. What takes longer
 * than `MOST_WHOLE_MS` and cannot be divided (a checkpoint, closed attachments, the sums of a pool) is left to
 * `ipledger verify --full`, and said.
 */
import type pg from 'pg'
import { formatValue } from '../core/address.ts'
import { addressValue } from '../core/books.ts'
import { forgetFindings, hasFindings, keepFindings, leaveFindings } from './findings.ts'
import { familyOf } from './fold.ts'
import { walkNumbers } from './numbers.ts'
import { advanceShape } from './shape.ts'
import { checkNextCheckpoint, checkTenurePiece, tenureIsInOrder } from './tenure-check.ts'
import { inSnapshot } from './transaction.ts'
import {
  checkClosings,
  checkPool,
  checkRequests,
  checkShape,
  type Finding,
  newRun,
  ofSeals,
  ofTenure,
  type Run,
  readCheckpoint,
  walkAddresses,
  walkEvents,
  writeCheckpoint,
} from './verify.ts'
import { walkSealsPiece } from './verify-seals.ts'

export type LookOptions = {
  /** Of one run of the job. */
  readonly by: string
  /** No new slice is begun after so long. */
  readonly workMs: number
  readonly signal?: AbortSignal | undefined
  /** For tests: rows per transaction. */
  readonly slice?: number | undefined
}

/** What a piece of work did. */
export type Looked = {
  readonly events: number
  /** Those that were not known before. */
  readonly found: readonly Finding[]
  /** What took too long, in words. */
  readonly leftOut: readonly string[]
  /** Whether there is more to do now. */
  readonly more: boolean
}

/** Events of a stretch: 0.35 s beside other work, 0.26 of it CPU. */
const STRETCH = 20_000
/** What cannot be done by halves. */
const MOST_WHOLE_MS = 20_000
/** Far longer than a piece; then whoever claimed it is taken for dead. */
const CLAIMED_S = 90
/** A look at all of it rests so many times as long as it worked, and this long at least. */
const REST_TIMES = 20
const LEAST_REST_MS = 5 * 60_000

const BEGIN = `
  insert into ipledger.verification
    (network_id, seq, part, after_seq, begins_at, events, worked_ms, claimed_by, claimed_until)
  select $1, coalesce((select c.seq from ipledger.verify_checkpoint c where c.network_id = $1),
                      (select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1), 0),
         'numbers', 0, statement_timestamp(), 0, 0, '', '-infinity'
  on conflict do nothing`
const CLAIM = `
  update ipledger.verification
     set claimed_by = $2, claimed_until = clock_timestamp() + interval '${CLAIMED_S} seconds'
   where network_id = $1 and claimed_until < clock_timestamp() and ($3 or begins_at <= clock_timestamp())
  returning seq, part, after_seq, host(from_address) as from_address, begins_at, events, worked_ms, finished_at`
const LEAVE = `
  update ipledger.verification set claimed_until = '-infinity' where network_id = $1 and claimed_by = $2`
const SAVE_RECENT = `
  update ipledger.verification
     set seq = $3, looked_at = clock_timestamp(), claimed_until = '-infinity',
         begins_at = case when $4 then least(begins_at, clock_timestamp()) else begins_at end
   where network_id = $1 and claimed_by = $2`
const SAVE_WHOLE = `
  update ipledger.verification
     set part = $3, after_seq = $4, from_address = $5, events = $6, worked_ms = $7, worked_at = clock_timestamp(), claimed_until = '-infinity'
   where network_id = $1 and claimed_by = $2`
const FINISH = `
  update ipledger.verification
     set part = 'numbers', after_seq = 0, from_address = null, events = 0, worked_ms = 0,
         begins_at = clock_timestamp() + $5::float8 * interval '1 millisecond',
         finished_at = clock_timestamp(), finished_events = $3, finished_ms = $4, worked_at = clock_timestamp(), claimed_until = '-infinity'
   where network_id = $1 and claimed_by = $2`
/** The last of the next events, however their numbers lie. */
const STRETCH_END = `
  select max(s.seq) as seq, count(*) as events
    from (select e.seq from ipledger.event e where e.network_id = $1 and e.seq > $2 order by e.seq limit $3) s`
const HEAD = 'select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1'

/** For the test of their plans. */
export const VERIFICATION_STATEMENTS = {
  verificationBegin: BEGIN,
  verificationClaim: CLAIM,
  verificationLeave: LEAVE,
  verificationSaveRecent: SAVE_RECENT,
  verificationSaveWhole: SAVE_WHOLE,
  verificationFinish: FINISH,
  verificationStretchEnd: STRETCH_END,
  verificationHead: HEAD,
} as const

type Standing = {
  readonly seq: number
  readonly part: Part
  readonly after_seq: number
  readonly from_address: string | null
  readonly begins_at: number
  readonly events: number
  readonly worked_ms: number
  readonly finished_at: number | null
}
type Part = 'numbers' | 'addresses' | 'requests' | 'pools' | 'tenures' | 'checkpoints' | 'seals' | 'closings'

/** New events, one stretch of them. Null: another is at it. */
export function lookAtRecent(
  client: pg.Client,
  network: string,
  options: LookOptions,
): Promise<Looked | null> {
  return claimed(client, network, { ...options, always: true }, async (standing) => {
    const { run, kept } = newRun(client, network, options)
    const head = await lastOf(client, network)
    if (head < standing.seq)
      run.report(
        'LOG_SHORTER_THAN_BEFORE',
        `the log of network ${network} ends at ${head}; it was looked at up to ${standing.seq} before`,
        { seq: head, expected: String(standing.seq), found: String(head) },
      )
    const stretch = await endOfStretch(client, network, standing.seq, options.slice ?? STRETCH)
    const end = stretch.seq ?? standing.seq
    if (stretch.events > 0) {
      const walk = { from: standing.seq, head: end }
      await inSnapshot(client, () => advanceShape(client, run.shape))
      await walkNumbers(client, network, walk, numbersOf(run))
      await checkShape(run)
      await walkEvents(run, walk.from, end)
    }
    const found = await keepFindings(client, network, kept())
    const isInOrder = !(await hasFindings(client, network))
    await client.query(SAVE_RECENT, [network, options.by, end, !isInOrder])
    // Of a log that nobody has looked at as a whole nothing is known.
    const checkpoint = await readCheckpoint(client, network)
    if (isInOrder && (checkpoint.seq > 0 || standing.finished_at !== null))
      await writeCheckpoint(client, network, end, checkpoint.events + stretch.events, end >= head)
    return { events: stretch.events, found, leftOut: [], more: end < head }
  })
}

/** All of it, a piece. Null: another is at it, or it rests. */
export function lookAtAll(client: pg.Client, network: string, options: LookOptions): Promise<Looked | null> {
  return claimed(client, network, { ...options, always: false }, async (standing) => {
    const began = performance.now()
    const { run, findings, kept } = newRun(client, network, options)
    await inSnapshot(client, () => advanceShape(client, run.shape))
    const piece: Piece = {
      run,
      leftOut: [],
      at: { part: standing.part, after: standing.after_seq, address: standing.from_address },
      events: standing.events,
      isInOrder: async () => findings.length === 0 && !(await hasFindings(client, network)),
      enough: () => performance.now() - began >= options.workMs,
    }
    let done = false
    do done = await takeStep(piece)
    while (!done && !piece.enough())
    const found = await keepFindings(client, network, kept())
    const workedMs = Math.round(standing.worked_ms + performance.now() - began)
    const { at, events, leftOut } = piece
    if (done) {
      // Not to be seen again: it is where the log ends now that is looked at.
      await leaveFindings(client, network, { codes: ['LOG_SHORTER_THAN_BEFORE'] })
      await forgetFindings(client, network, standing.begins_at)
      const isInOrder = !(await hasFindings(client, network))
      const rest = isInOrder ? Math.max(LEAST_REST_MS, REST_TIMES * workedMs) : 0
      const { seq } = standing
      if (isInOrder)
        await writeCheckpoint(client, network, seq, events, seq >= (await lastOf(client, network)))
      await client.query(FINISH, [network, options.by, events, workedMs, rest])
    } else {
      await client.query(SAVE_WHOLE, [network, options.by, at.part, at.after, at.address, events, workedMs])
    }
    return { events: events - standing.events, found, leftOut, more: !done }
  })
}

type Piece = {
  readonly run: Run
  readonly leftOut: string[]
  at: { readonly part: Part; readonly after: number; readonly address: string | null }
  events: number
  /** Nothing is known to be wrong, and nothing was found so far. */
  readonly isInOrder: () => Promise<boolean>
  readonly enough: () => boolean
}

const at = (part: Part, after = 0, address: string | null = null): Piece['at'] => ({ part, after, address })

/** True: that was the last. */
async function takeStep(piece: Piece): Promise<boolean> {
  const { run } = piece
  const { client, network } = run
  const { after, address } = piece.at
  switch (piece.at.part) {
    case 'numbers': {
      const { seq, events } = await endOfStretch(client, network, after, run.slice ?? STRETCH)
      if (seq !== null) await walkNumbers(client, network, { from: after, head: seq }, numbersOf(run))
      piece.events += events
      piece.at = seq === null ? at('addresses') : at('numbers', seq)
      return false
    }
    case 'addresses': {
      if (address === null && after === 0) await checkShape(run)
      const family = address === null ? 4 : familyOf(address)
      const from = address === null ? { first: 0n, seq: 0 } : { first: addressValue(address), seq: after }
      const to = await walkAddresses(run, family, { total: null, from, enough: piece.enough })
      if (to !== null) piece.at = at('addresses', to.seq, formatValue(family, to.first))
      else piece.at = family === 4 ? at('addresses', 0, '::') : at('requests')
      return false
    }
    case 'requests':
      await checkRequests(run, null)
      piece.at = at('pools')
      return false
    case 'pools': {
      const poolId = [...run.shape.pools.keys()].sort((one, other) => one - other).find((id) => id > after)
      if (poolId === undefined) piece.at = at('tenures')
      else {
        const { name } = run.shape.pools.get(poolId)!
        if (!(await inTime(run, (signal) => checkPool(run, poolId, signal)))) {
          piece.leftOut.push(`the sums of pool ${name}`)
          const codes = ['COUNT_%', 'PARTITION_%', 'POSITION_%']
          await leaveFindings(client, network, { codes, pool: name })
        }
        piece.at = at('pools', poolId)
      }
      return false
    }
    case 'tenures': {
      const { enough } = piece
      const { signal, slice } = run
      const to = await checkTenurePiece(client, network, { after, enough, use: ofTenure(run), signal, slice })
      // Nothing was looked at: what was found before may be there still.
      if ('nothing' in to) await leaveFindings(client, network, { codes: ['TENURE_%'] })
      if ('upto' in to && (await piece.isInOrder())) await tenureIsInOrder(client, network, to.upto)
      piece.at = 'after' in to ? at('tenures', to.after) : at('checkpoints')
      return false
    }
    case 'checkpoints': {
      let next: number | null = null
      const use = ofTenure(run)
      const isInTime = await inTime(run, async (signal) => {
        next = await checkNextCheckpoint(client, network, after, { full: false, use, signal })
      })
      if (!isInTime) {
        piece.leftOut.push('checkpoints')
        await leaveFindings(client, network, { codes: ['CHECKPOINT_%'] })
      }
      piece.at = next === null ? at('seals') : at('checkpoints', next)
      return false
    }
    case 'seals': {
      const { enough } = piece
      const { signal, slice } = run
      const next = await walkSealsPiece(client, network, { after, enough, use: ofSeals(run), signal, slice })
      piece.at = next === null ? at('closings') : at('seals', next)
      return false
    }
    case 'closings':
      if (!(await inTime(run, (signal) => checkClosings(run, true, signal)))) {
        piece.leftOut.push('closed attachments')
        await leaveFindings(client, network, { codes: ['CLOSING_%'] })
      }
      return true
  }
}

/** False: it takes too long. */
async function inTime({ signal }: Run, work: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
  const late = AbortSignal.timeout(MOST_WHOLE_MS)
  try {
    await work(signal === undefined ? late : AbortSignal.any([signal, late]))
    return true
  } catch (error) {
    if (!late.aborted || signal?.aborted === true) throw error
    return false
  }
}

async function claimed(
  client: pg.Client,
  network: string,
  { by, always }: Pick<LookOptions, 'by'> & { readonly always: boolean },
  work: (standing: Standing) => Promise<Looked>,
): Promise<Looked | null> {
  const claim = () => client.query<Standing>(CLAIM, [network, by, always])
  let { rows } = await claim()
  if (rows.length === 0) {
    const { rowCount } = await client.query(BEGIN, [network])
    if (rowCount === 0) return null
    rows = (await claim()).rows
  }
  const standing = rows[0]
  if (standing === undefined) return null
  try {
    return await work(standing)
  } catch (error) {
    // What it did is lost; that it is over need not be.
    await client.query(LEAVE, [network, by]).catch(() => undefined)
    throw error
  }
}

function numbersOf(run: Run) {
  const { report, signal, slice } = run
  const use: Parameters<typeof walkNumbers>[3]['use'] = ({ what, message, seq, expected, found }) =>
    report(what, message, { seq, expected, found })
  return { use, times: true, signal, slice }
}

async function endOfStretch(client: pg.Client, network: string, after: number, most: number) {
  const { rows } = await client.query<{ seq: number | null; events: number }>(STRETCH_END, [
    network,
    after,
    most,
  ])
  return rows[0]!
}

async function lastOf(client: pg.Client, network: string): Promise<number> {
  const { rows } = await client.query<{ seq: number }>(HEAD, [network])
  return rows[0]?.seq ?? 0
}
