/**
 * Evidence for the judge, by named fields. The defaults prove that nothing uses the lease: one source saw it, missed
 * it three times, and says that it is gone. A test changes one thing and says what follows.
 */
import type {
  LeaseEvidence,
  LookupAnswer,
  ReasonCode,
  SnapshotRef,
  Verdict,
  WitnessEvidence,
} from '../../src/core/judge.ts'
import { judgeHeld, RULES } from '../../src/core/judge.ts'
import type { Lease, QuarantineReason } from '../../src/core/lease.ts'
import { judgePolicy } from '../../src/core/policy.ts'
import { owner } from './commands.ts'
import { HOUR, MINUTE, SECOND } from './given.ts'

export const NOW = 1_000_000_000_000
export const POLICY = judgePolicy()
/** The lease's event numbers: reserved at 100, last changed by 110; sources were enabled before. */
export const TOKEN = 100
export const VERSION = 110
export const ENABLED_HEAD = 50

export const WEB = owner({ name: 'default/web-0', uid: 'uid-1' })
export const OTHER = owner({ name: 'default/other-0', uid: 'uid-2' })

export function ago(ms: number): number {
  return NOW - ms
}

/** Reserved two hours ago, confirmed at once. */
export function held(fields: Partial<Lease> = {}): Lease {
  return {
    network: 'default',
    poolId: 7,
    address: '10.0.0.5',
    prefixLength: 32,
    fencingToken: TOKEN,
    version: VERSION,
    state: 'ACTIVE',
    quarantine: null,
    owner: WEB,
    placement: { node: 'n1', boot: 'b1', labels: {} },
    witness: '',
    reservedAt: ago(2 * HOUR),
    confirmedAt: ago(2 * HOUR),
    confirmBy: null,
    ...fields,
  }
}

export function inQuarantine(reason: QuarantineReason, fields: Partial<Lease> = {}): Lease {
  const nobodys = reason === 'FOREIGN' || reason === 'SEEN_BY_CALLER'
  return held({
    state: 'QUARANTINED',
    quarantine: { reason, at: ago(HOUR), by: 'somebody', why: 'given' },
    ...(nobodys && { owner: null, placement: { node: '', boot: '', labels: {} } }),
    ...fields,
  })
}

/** Snapshots begun so long ago, newest last, at this head. */
export function snapshots(agesMs: readonly number[], head = VERSION): SnapshotRef[] {
  return agesMs.map((age, index) => ({ sequence: 41 + index, head, begunAt: ago(age) }))
}

export const THREE = snapshots([80 * SECOND, 50 * SECOND, 20 * SECOND])

type Answered = Exclude<LookupAnswer['answer'], 'terminal'>

export function answered(answer: Answered, ageMs = 5 * SECOND): LookupAnswer {
  return { answer, at: ago(ageMs), detail: 'given' }
}

export function ended(sinceMs: number, ageMs = 5 * SECOND): LookupAnswer {
  return { answer: 'terminal', since: ago(sinceMs), at: ago(ageMs), detail: 'given' }
}

export function listed(fields: Partial<NonNullable<WitnessEvidence['live']>> = {}) {
  return { state: 'running', node: 'n1', since: ago(HOUR), incarnation: '', ...fields }
}

/** An agent of n1 that saw the lease, missed it three times since and says that it is gone. */
export function witness(fields: Partial<WitnessEvidence> = {}): WitnessEvidence {
  return {
    source: 'agent-n1',
    scopeNode: 'n1',
    enabled: true,
    epoch: 'b1',
    warm: true,
    era: 0,
    held: false,
    canSee: true,
    seesStopped: true,
    answersForMs: 60_000,
    enabledHead: ENABLED_HEAD,
    why: 'SIGHTED',
    about: WEB,
    live: null,
    listedTerminal: null,
    vanishedAt: ago(80 * SECOND),
    seen: [],
    misses: THREE,
    lookup: answered('gone'),
    bootEnded: null,
    ...fields,
  }
}

export function sees(fields: Partial<WitnessEvidence> = {}): WitnessEvidence {
  return witness({
    live: listed(),
    vanishedAt: null,
    seen: THREE,
    misses: [],
    lookup: null,
    ...fields,
  })
}

export function evidence(fields: Partial<LeaseEvidence> = {}): LeaseEvidence {
  return {
    lease: held(),
    now: NOW,
    era: 0,
    recovering: false,
    lastSightedAt: ago(10 * MINUTE),
    othersSightedAt: null,
    imported: false,
    ownerClosed: false,
    fencedBy: null,
    witnesses: [witness()],
    placements: [],
    rules: RULES,
    ...fields,
  }
}

export const FENCE: NonNullable<LeaseEvidence['fencedBy']> = {
  node: 'n1',
  boot: 'b1',
  head: TOKEN,
  by: 'ops',
  why: 'powered off',
  at: ago(MINUTE),
}

export const NEW_BOOT: NonNullable<WitnessEvidence['bootEnded']> = {
  boot: 'b1',
  newBoot: 'b2',
  at: ago(3 * MINUTE),
}

export function judged(fields: Partial<LeaseEvidence> = {}, policy = POLICY): Verdict {
  return judgeHeld(evidence(fields), policy)
}

/** `keep SEEN_LIVE(agent-n1)`: the verdict with its reasons, as tests compare it. */
export function said(verdict: Verdict): string {
  const because = verdict.because.map(({ code, source }) =>
    source === undefined ? code : `${code}(${source})`,
  )
  return [verdict.verdict, ...because].join(' ')
}

export function codes(verdict: Verdict): ReasonCode[] {
  return verdict.because.map(({ code }) => code)
}
