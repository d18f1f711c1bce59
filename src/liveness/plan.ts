/**
 * What would be done about a network's leases now, and why: the jobs' own evidence, judge and dry run of the ledger,
 * and no command that leaves a trace. So what an operator looks at before enabling a source is what will happen.
 *
 * A page follows the addresses, leases and free ones alike, and is read in windows; it may come out short, or empty,
 * and still not be the last.
 */
import type pg from 'pg'
import { blockBase, formatValue, isMalformed, parseAddress } from '../core/address.ts'
import type { Finding } from '../core/command.ts'
import type { Evidence, Json } from '../core/event.ts'
import { judgeHeld, type LeaseEvidence, type Verdict } from '../core/judge.ts'
import type { Lease } from '../core/lease.ts'
import { describeOwner } from '../core/owner.ts'
import { type JudgePolicy, judgePolicy } from '../core/policy.ts'
import type { Pool } from '../core/pool.ts'
import { invalid, type Refusal, refusal } from '../core/refusal.ts'
import type { Ledger } from '../ledger/ledger.ts'
import { POOL_COLUMNS, type PoolRow, readPool } from '../ledger/rows.ts'
import { ask } from '../postgres/on-connection.ts'
import { lastAddressOf, takeEvidence } from './evidence.ts'
import { findSource } from './register.ts'
import {
  boundOf,
  bySnapshot,
  HIGHEST,
  isBusy,
  LOWEST,
  pagesOf,
  readUnbooked,
  sightOf,
  type Unbooked,
} from './sighted.ts'
import { readPoolsOf, readSuspects, type Suspects } from './suspects.ts'

export type PlannedFinding = {
  readonly address: string
  readonly lease: Lease | null
  readonly pool: Pool | null
  readonly verdict:
    | 'keep'
    | 'look_up'
    | 'blocked'
    | 'reap'
    | 'restore'
    | 'confirm'
    | 'adopt'
    | 'quarantine'
    | 'hold'
  readonly because: readonly { readonly code: string; readonly source?: string; readonly text: string }[]
  readonly evidence: Json | null
}

export type PlanWanted = {
  readonly network: string
  readonly pool: string | null
  readonly address: string | null
  readonly source: string | null
  readonly kept: boolean
  readonly asIfEnabled: string | null
  readonly after: string | null
  readonly limit: number
}

export type Plan = {
  readonly findings: readonly PlannedFinding[]
  readonly next: string | null
  readonly head: number
}

const PLAN_ACTOR = 'reconcile'
/** Windows of one page: a network where nothing is to be done is walked in several pages. */
const MOST_WINDOWS = 4
/** Sightings walked in one window. */
const MOST_SIGHTINGS = 5_000

const NETWORK = `
  select n.state, coalesce((select e.seq from ipledger.event e where e.network_id = $1 order by e.seq desc limit 1), 0) as head
    from ipledger.network n where n.network_id = $1`

const POOL_NAMED = `select ${POOL_COLUMNS.join(', ')} from ipledger.pool where network_id = $1 and name = $2`

const POOL_AT = `
  select ${POOL_COLUMNS.join(', ')} from ipledger.pool where network_id = $1 and cidr >>= $2::inet limit 1`

/** For the test of their plans. */
export const PLAN_STATEMENTS = {
  planNetwork: NETWORK,
  planPoolNamed: POOL_NAMED,
  planPoolAt: POOL_AT,
} as const

export async function planNetwork(
  at: { readonly database: pg.Pool; readonly ledger: Ledger },
  wanted: PlanWanted,
): Promise<Plan | Refusal> {
  const { database } = at
  const { network, limit } = wanted
  const [ground] = await ask<{ head: number }>(database, NETWORK, [network])
  if (ground === undefined) return noNetwork(network)
  const { head } = ground
  for (const id of [wanted.source, wanted.asIfEnabled]) {
    if (id === null) continue
    const source = await findSource(database, network, id)
    if (source === undefined) {
      return refusal('SOURCE_NOT_FOUND', `network ${network} has no source ${id}`, { network, source: id })
    }
    // That nothing would follow from it is true, and not what was asked.
    if (id === wanted.asIfEnabled && source.state === 'RETIRED') {
      return refusal('ILLEGAL_STATE', `source ${id} is retired for good; register another`, {
        source: id,
        state: source.state,
      })
    }
  }
  const range = await rangeOf(database, wanted)
  if ('reason' in range) return range
  const findings: Placed[] = []
  let after = wanted.after ?? range.after
  for (let windows = 0; windows < MOST_WINDOWS; windows += 1) {
    const window = await readWindow(database, network, 'all', { after, upTo: range.upTo })
    const planned = await planWindow(at, wanted, window)
    if ('reason' in planned) return planned
    findings.push(...planned)
    if (findings.length >= limit) {
      const { end } = findings[limit - 1]!
      // The next page begins behind an address: all that is said of the last one stays on this.
      const page = findings.filter((one, index) => index < limit || one.end === end)
      const isLast = page.length === findings.length && window.next === null
      return { findings: page.map(({ finding }) => finding), next: isLast ? null : end, head }
    }
    if (window.next === null) return { findings: findings.map(({ finding }) => finding), next: null, head }
    after = window.next
  }
  return { findings: findings.map(({ finding }) => finding), next: after, head }
}

type AddressRange = { readonly after: string; readonly upTo: string }

async function rangeOf(database: pg.Pool, wanted: PlanWanted): Promise<AddressRange | Refusal> {
  const { network, pool: name, address } = wanted
  let range: AddressRange = { after: LOWEST, upTo: HIGHEST }
  if (name !== null) {
    const [row] = await ask<PoolRow>(database, POOL_NAMED, [network, name])
    if (row === undefined) {
      return refusal('POOL_NOT_FOUND', `network ${network} has no pool ${name}`, { network, pool: name })
    }
    const { family, range: cidr } = readPool(row)
    range = { after: before(family, cidr.first), upTo: formatValue(family, cidr.last) }
  }
  if (address === null) return range
  const parsed = parseAddress(address)
  if (isMalformed(parsed)) return invalid('address', parsed.malformed)
  const { family, value } = parsed
  if (name !== null && !(isAfter(address, range.after) && !isAfter(address, range.upTo))) {
    return invalid('address', `is not in pool ${name}`)
  }
  const [row] = await ask<PoolRow>(database, POOL_AT, [network, address])
  const prefixLength = row === undefined ? null : readPool(row).prefixLength
  const first = prefixLength === null ? value : blockBase(family, value, prefixLength)
  const upTo =
    prefixLength === null ? address : lastAddressOf({ address: formatValue(family, first), prefixLength })
  return { after: before(family, first), upTo }
}

/** What follows it begins with the address. */
function before(family: 4 | 6, value: bigint): string {
  if (value > 0n) return formatValue(family, value - 1n)
  return family === 4 ? LOWEST : '::/0'
}

export function isAfter(a: string, b: string): boolean {
  const [one, other] = [placeOf(a), placeOf(b)]
  return one.family === other.family ? one.value > other.value : one.family > other.family
}

function placeOf(text: string): { readonly family: number; readonly value: bigint } {
  const slash = text.indexOf('/')
  const parsed = parseAddress(slash < 0 ? text : text.slice(0, slash))
  if (isMalformed(parsed)) throw new Error(parsed.malformed)
  return slash < 0 ? parsed : { family: parsed.family, value: parsed.value - 1n }
}

// A window of addresses.

export type Window = {
  readonly leases: readonly Lease[]
  readonly unbooked: readonly Unbooked[]
  /** Where the next one begins; null: there is none. */
  readonly next: string | null
}

/** Leases after an address, and what is listed live among them that the books do not say. */
export async function readWindow(
  database: pg.Pool,
  network: string,
  suspects: Suspects,
  { after, upTo }: AddressRange,
): Promise<Window> {
  const page = await readSuspects(database, network, suspects, { after, upTo })
  const last = page.leases.at(-1)
  const leaseEnd =
    page.next === null
      ? upTo
      : last !== undefined && page.next === last.address
        ? lastAddressOf(last)
        : page.next
  const end = await boundOf(database, network, { after, upTo: leaseEnd, size: MOST_SIGHTINGS })
  return {
    leases: page.leases.filter(({ address }) => !isAfter(address, end)),
    unbooked: await readUnbooked(database, network, { after, upTo: end }),
    next: end === upTo ? null : end,
  }
}

/** With the last address it speaks for: the next page begins behind it. */
type Placed = { readonly finding: PlannedFinding; readonly end: string }

async function planWindow(
  at: { readonly database: pg.Pool; readonly ledger: Ledger },
  wanted: PlanWanted,
  { leases, unbooked }: Window,
): Promise<readonly Placed[] | Refusal> {
  const { network, source, kept } = wanted
  const sights = await planSights(at, wanted, unbooked)
  if ('reason' in sights) return sights
  const pools = await readPoolsOf(at.database, network, [...leases, ...sights])
  const read = leases.length === 0 ? null : await takeEvidence(at.database, network, leases, wanted)
  const placed: Placed[] = []
  const told = new Set<Sighted>()
  for (const evidence of read?.evidence ?? []) {
    const { lease } = evidence
    const pool = pools.get(lease.poolId) ?? null
    const end = lastAddressOf(lease)
    const here = sights.filter(({ address }) => !isAfter(lease.address, address) && !isAfter(address, end))
    for (const one of here) told.add(one)
    const change = here.find(({ verdict }) => verdict !== 'keep')
    const policy = judgePolicy(pool?.reapPolicy)
    const verdict = judgeHeld(evidence, policy)
    const finding =
      change === undefined
        ? judged(evidence, pool, verdict, policy)
        : { ...sighted(change, pool), address: lease.address, lease }
    const hasPart =
      source === null ||
      finding.because.some((reason) => reason.source === source) ||
      evidence.witnesses.some((witness) => witness.source === source)
    if (hasPart && (kept || finding.verdict !== 'keep')) placed.push({ finding, end })
  }
  for (const one of sights) {
    if (told.has(one)) continue
    const finding = sighted(one, pools.get(one.poolId) ?? null)
    const hasPart = source === null || one.source === source
    if (hasPart && (kept || finding.verdict !== 'keep')) placed.push({ finding, end: one.address })
  }
  return placed.sort((a, b) => (isAfter(a.finding.address, b.finding.address) ? 1 : -1))
}

function judged(
  evidence: LeaseEvidence,
  pool: Pool | null,
  verdict: Verdict,
  policy: JudgePolicy,
): PlannedFinding {
  const { lease, ...rest } = evidence
  return {
    address: lease.address,
    lease,
    pool,
    verdict: wordOf(verdict),
    because: verdict.because,
    evidence: 'proof' in verdict ? verdict.proof : { ...rest, policy },
  }
}

function wordOf({ verdict, because }: Verdict): PlannedFinding['verdict'] {
  if (verdict === 'lookUp') return 'look_up'
  return verdict === 'blocked' && because.some(({ code }) => code === 'HELD') ? 'hold' : verdict
}

// What is seen.

type Sighted = {
  readonly address: string
  readonly poolId: number
  readonly source: string
  readonly verdict: PlannedFinding['verdict']
  readonly because: Finding['because']
  readonly text: string
  readonly evidence: Evidence
}

const COMES_TO: Readonly<Partial<Record<Finding['because'], PlannedFinding['verdict']>>> = {
  CONFIRMED: 'confirm',
  ADOPTED: 'adopt',
  CONFLICT: 'quarantine',
  RELEASED_BUT_LIVE: 'quarantine',
  FOREIGN: 'quarantine',
  SECOND_ADDRESS: 'quarantine',
  // Not handed out, and not recorded: a person should look.
  CAPPED: 'blocked',
  EXCLUDED: 'blocked',
  SET_ASIDE: 'blocked',
}

async function planSights(
  { ledger }: { readonly ledger: Ledger },
  { network, asIfEnabled }: PlanWanted,
  unbooked: readonly Unbooked[],
): Promise<readonly Sighted[] | Refusal> {
  const believed = unbooked.filter(
    ({ source }) =>
      source.state === 'ENABLED' || (source.id === asIfEnabled && source.state === 'REGISTERED'),
  )
  const poolIds = new Map(believed.map(({ entry, poolId }) => [entry.address, poolId]))
  const sighted: Sighted[] = []
  for (const { at, entries } of bySnapshot(believed)) {
    for (const page of pagesOf(entries)) {
      const outcome = await ledger.submit(sightOf(network, PLAN_ACTOR, at, page, true), {
        lane: 'reconciler',
      })
      if (!outcome.ok) {
        if (isBusy(outcome.refusal)) return outcome.refusal
        // Its source has begun anew meanwhile: the next snapshot is waited for.
        continue
      }
      for (const [index, { because }] of (outcome.answer.findings ?? []).entries()) {
        const { address, owner, node, boot, state } = page[index]!
        const whom = owner === null ? 'somebody' : describeOwner(owner)
        const { source, epoch, sequence } = at
        sighted.push({
          address,
          poolId: poolIds.get(address)!,
          source,
          verdict: COMES_TO[because] ?? 'keep',
          because,
          text: `${source} lists ${whom} there${node === '' ? '' : ` on ${node}`}`,
          evidence: { source, epoch, sequence, seen: { address, owner, node, boot, state } },
        })
      }
    }
  }
  return sighted
}

function sighted(
  { address, source, verdict, because, text, evidence }: Sighted,
  pool: Pool | null,
): PlannedFinding {
  return { address, lease: null, pool, verdict, because: [{ code: because, source, text }], evidence }
}

export function noNetwork(network: string): Refusal {
  return refusal('NETWORK_NOT_FOUND', `network ${network} does not exist`, { network })
}
