/**
 * A ledger on a database beside what its log tells: the history folded by nothing but its events, and proofs about the
 * leases that are there now.
 */
import type pg from 'pg'
import type { LedgerEvent } from '../../src/core/event.ts'
import type { LeaseEvidence, Proof, WitnessEvidence } from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import {
  EVENT_COLUMNS,
  type EventRow,
  LEASE_COLUMNS,
  type LeaseRow,
  readEvent,
  readLease,
} from '../../src/ledger/rows.ts'
import { type Fold, foldAll } from './memory-ledger.ts'
import { proofOf } from './proof.ts'

export async function eventsOf(client: pg.ClientBase, network: string): Promise<readonly LedgerEvent[]> {
  const { rows } = await client.query<EventRow>(
    `select ${EVENT_COLUMNS.join(', ')} from ipledger.event where network_id = $1 order by seq`,
    [network],
  )
  return rows.map(readEvent)
}

export async function foldOf(client: pg.ClientBase, network: string): Promise<Fold> {
  return foldAll(await eventsOf(client, network))
}

/** The lease that stands there now. */
export async function leaseAt(
  client: pg.ClientBase,
  network: string,
  address: string,
): Promise<Lease | null> {
  const { rows } = await client.query<LeaseRow>(
    `select ${LEASE_COLUMNS.join(', ')} from ipledger.lease where network_id = $1 and address = $2`,
    [network, address],
  )
  return rows[0] === undefined ? null : readLease(rows[0])
}

export type Witnessing = Pick<WitnessEvidence, 'source' | 'epoch'> & Partial<WitnessEvidence>

/** It saw the lease, missed it three times since, and says that it is gone. */
export function missing(lease: Lease, now: number, fields: Witnessing): WitnessEvidence {
  return {
    scopeNode: '',
    enabled: true,
    warm: true,
    era: 0,
    held: false,
    canSee: true,
    seesStopped: true,
    answersForMs: 60_000,
    enabledHead: 0,
    why: 'SIGHTED',
    about: lease.owner,
    live: null,
    listedTerminal: null,
    vanishedAt: now - 80_000,
    seen: [],
    misses: [80, 50, 20].map((age, index) => ({
      sequence: 41 + index,
      head: lease.version,
      begunAt: now - age * 1_000,
    })),
    lookup: lease.owner === null ? null : { answer: 'gone', at: now - 1_000, detail: 'given' },
    bootEnded: null,
    ...fields,
  }
}

/** It lists the lease's owner and nobody else, and has so three times. */
export function showing(lease: Lease, now: number, fields: Witnessing): WitnessEvidence {
  const { misses, ...seen } = missing(lease, now, fields)
  return {
    ...seen,
    live: { state: 'running', node: '', since: now - 80_000, incarnation: '' },
    vanishedAt: null,
    seen: misses,
    misses: [],
    lookup: null,
    ...fields,
  }
}

/** What the judge proves of it; the evidence was read now, and its last sighting is as old as said. */
export function proofAbout(
  lease: Lease,
  witnesses: readonly WitnessEvidence[],
  fields: Partial<LeaseEvidence> = {},
): Proof {
  return proofOf({
    lease,
    now: Date.now(),
    era: 0,
    recovering: false,
    lastSightedAt: null,
    othersSightedAt: null,
    imported: false,
    ownerClosed: false,
    fencedBy: null,
    witnesses,
    placements: [],
    ...fields,
  })
}
