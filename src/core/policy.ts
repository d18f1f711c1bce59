/**
 * Every default and limit of DESIGN §4 "Defaults" in one place. Pools override some of them; nothing else
 * repeats a number of this file. Times are milliseconds.
 */
export const POLICY = {
  /** How long an address rests between two holders, unless its pool says otherwise. */
  cooldownMs: 120_000,
  /** Leases one (kind, name, interface) may hold in a pool, quarantined ones included (azure#4350). */
  ownerLimit: 4,
  /** Candidates a single Reserve may skip because its caller sees them live (M-12). */
  skips: 32,
  /** Durable quarantines one caller may cause at a time (opnsense#10285: one client drained a /24). */
  quarantinesPerCaller: 64,
  /** Share of a pool that may be quarantined on sightings; at least one address. */
  quarantineShareOfPool: 0.1,
  /** Between a missed `confirmBy` and the reap: covers a Confirm in flight and clock drift of the caller. */
  confirmGraceMs: 60_000,
  /** How long a closed attachment refuses late Reserves and Confirms. */
  retryHorizonMs: 120_000,
  /** How long a request id is remembered. */
  requestMemoryMs: 24 * 3_600_000,
  /** Rows named in a refusal that lists what is in the way. */
  listedBlockers: 20,
  /** Used addresses that a pool may let go of at once and keep others: 0.12 s for the whole call on 2 cores. */
  forgottenAtOnce: 100_000,

  // Truth. What a source's silence about a lease must amount to before anything follows from it.

  /** Between two reports, unless the source declares its own: agents, and sources that are asked. */
  agentIntervalMs: 30_000,
  pulledIntervalMs: 60_000,
  /** A snapshot counts if it was begun at least this share of an interval after the last counted one (DESIGN §4). */
  countedAfterIntervals: 0.5,
  /** A complete snapshot begun later than this after the last complete one starts the count again. */
  gapIntervals: 3,
  /** Counted snapshots kept in the row of their source, for proofs. */
  recentSnapshots: 8,
  /** Complete snapshots of a new epoch whose size has stopped growing, before anything is a miss (cilium#9888). */
  warmUpSnapshots: 2,
  /** Counted snapshots in a row without the workload, of each witness (M-17, kubernetes#37488). */
  misses: 3,
  /** Since the last change of the lease: count and age, not either (INV-3, kubernetes#115075). */
  minimumAgeMs: 300_000,
  /** The same for a lease that no source has seen where it may be, and none of the whole network was named for (W-01). */
  unwitnessedAgeMs: 3_600_000,
  /** A lease that is promised again is written down again once it is older than this share of the minimum age (2.4). */
  renewedAfterShare: 0.5,
  /** Nodes that asked for a lease elsewhere, as many as are written down: of two nobody knows which has it. */
  askingNodes: 4,
  /** How long an ended workload still counts as there (M-07). */
  terminalGraceMs: 300_000,
  /** A proof, and an answer within it, older than this proves nothing any more (DESIGN §4, the look under the lock). */
  proofAgeMs: 60_000,
  /** A look-up that takes longer is an error, and an error means alive (M-08). */
  lookUpTimeoutMs: 5_000,
  /** Until a question whose answer was not clear, or was `live`, is asked again: doubled each time, for ever (M-18). */
  lookUpRetryMs: 30_000,
  longestLookUpRetryMs: 3_600_000,
  /** What is counted of the attempts. */
  lookUpAttempts: 10,
  /** Look-ups of one source at a time. */
  lookUpsAtOnce: 8,
  /** Durable quarantines one source may cause at a time (opnsense#10285). */
  quarantinesPerSource: 64,
  /** Reaps that rest on absence, per source and per network: beyond both within the window, hold (INV-21, aws#3876, calico#5044). */
  heldAboveReaps: 3,
  heldAboveShare: 0.2,
  holdWindowMs: 3_600_000,
  /** A snapshot token expires within this share of the cooldown, and a cooldown covers this many intervals (DESIGN §3, §4). */
  snapshotTokenCooldowns: 0.5,
  cooldownIntervals: 2,
} as const

/** What the judge goes by; stored with each proof, so that an old reap is judged again by its own rules. */
export type JudgePolicy = {
  readonly misses: number
  readonly minimumAgeMs: number
  readonly unwitnessedAgeMs: number
  readonly terminalGraceMs: number
  readonly proofAgeMs: number
  readonly confirmGraceMs: number
}

/** What a pool may set of it: all but the age of a proof, which the look under the lock rests on. */
export type ReapPolicy = Omit<JudgePolicy, 'proofAgeMs'>

/**
 * Within these a pool sets it. None can be switched off, and more misses than snapshots are kept could never be
 * proven. Not measured.
 */
export const REAP_POLICY_BOUNDS: Readonly<
  Record<keyof ReapPolicy, { readonly least: number; readonly most: number }>
> = {
  misses: { least: 1, most: POLICY.recentSnapshots },
  minimumAgeMs: { least: 1_000, most: 30 * 24 * 3_600_000 },
  unwitnessedAgeMs: { least: 1_000, most: 30 * 24 * 3_600_000 },
  terminalGraceMs: { least: 1_000, most: 30 * 24 * 3_600_000 },
  confirmGraceMs: { least: 1_000, most: 30 * 24 * 3_600_000 },
}

/** The defaults above, and what a pool sets otherwise (its `reapPolicy`). */
export function judgePolicy(pool: Partial<JudgePolicy> = {}): JudgePolicy {
  return {
    misses: POLICY.misses,
    minimumAgeMs: POLICY.minimumAgeMs,
    unwitnessedAgeMs: POLICY.unwitnessedAgeMs,
    terminalGraceMs: POLICY.terminalGraceMs,
    proofAgeMs: POLICY.proofAgeMs,
    confirmGraceMs: POLICY.confirmGraceMs,
    ...pool,
  }
}

/** Of a number: below these bits it counts, above is its era (DESIGN §1). */
export const ERA_BITS = 40

/** Numbers of era `e` begin here; the first era begins at 1, because 0 means "nothing yet". */
export function firstSeqOfEra(era: number): number {
  return era === 0 ? 1 : era * 2 ** ERA_BITS
}

export function eraOf(seq: number): number {
  return Math.floor(seq / 2 ** ERA_BITS)
}
