/** Evidence about the leases of a memory ledger, and what the judge proves by it: a test changes what it is about. */
import { judgeHeld, type LeaseEvidence, type Proof, type WitnessEvidence } from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import { judgePolicy } from '../../src/core/policy.ts'
import { SECOND } from './given.ts'
import type { MemoryLedger } from './memory-ledger.ts'

/** It saw the lease, missed it three times since, and says that it is gone. */
export function missing(
  ledger: MemoryLedger,
  lease: Lease,
  fields: Partial<WitnessEvidence> = {},
): WitnessEvidence {
  const now = ledger.now()
  const { era, ...source } = ledger.world.sources.get(fields.source ?? 'agent')!
  return {
    source: source.source,
    scopeNode: source.node,
    enabled: true,
    epoch: source.epoch,
    warm: true,
    era: era ?? 0,
    held: false,
    canSee: true,
    seesStopped: true,
    answersForMs: 60_000,
    enabledHead: 0,
    why: 'SIGHTED',
    about: lease.owner,
    live: null,
    listedTerminal: null,
    vanishedAt: now - 80 * SECOND,
    seen: [],
    misses: [80, 50, 20].map((age, index) => ({
      sequence: 41 + index,
      head: lease.version,
      begunAt: now - age * SECOND,
    })),
    lookup: lease.owner === null ? null : { answer: 'gone', at: now - SECOND, detail: 'given' },
    bootEnded: null,
    ...fields,
  }
}

/** It lists the lease's owner and nobody else, and has so three times. */
export function showing(
  ledger: MemoryLedger,
  lease: Lease,
  fields: Partial<WitnessEvidence> = {},
): WitnessEvidence {
  const { misses, ...seen } = missing(ledger, lease, fields)
  return {
    ...seen,
    live: { state: 'running', node: 'n1', since: ledger.now() - 80 * SECOND, incarnation: '' },
    vanishedAt: null,
    seen: misses,
    misses: [],
    lookup: null,
    ...fields,
  }
}

export function evidenceOf(
  ledger: MemoryLedger,
  address: string,
  fields: Partial<LeaseEvidence> = {},
): LeaseEvidence {
  const lease = ledger.fold().addresses.get(address)!.lease!
  return {
    lease,
    now: ledger.now(),
    era: ledger.fold().network!.era,
    recovering: false,
    lastSightedAt: null,
    othersSightedAt: null,
    imported: false,
    ownerClosed: false,
    fencedBy: null,
    witnesses: [missing(ledger, lease)],
    placements: [],
    ...fields,
  }
}

/** The judge must come to a proof. */
export function proofOf(evidence: LeaseEvidence): Proof {
  const verdict = judgeHeld(evidence, judgePolicy())
  if (verdict.verdict === 'reap' || verdict.verdict === 'restore') return verdict.proof
  throw new Error(`${verdict.verdict}: ${verdict.because.map(({ code }) => code).join(', ')}`)
}

/** That nothing uses the address any more. */
export function absence(ledger: MemoryLedger, address: string, fields: Partial<LeaseEvidence> = {}): Proof {
  return proofOf(evidenceOf(ledger, address, fields))
}
