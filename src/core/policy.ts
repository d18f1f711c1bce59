/** The defaults and limits of the rules, and the eras of numbers. */

/** The judge's policy. A pool may set its own. */
const REAP_POLICY = {
  /** Counted reports of each witness without the workload (kubernetes#37488). */
  misses: 3,
  /** Since the last change of the lease (kubernetes#115075). */
  minimumAgeMs: 300_000,
  /** The same for a RESERVED or ACTIVE lease that no source has ever listed (whereabouts#162). */
  unwitnessedAgeMs: 3_600_000,
  /** How long an ended workload still counts as there. */
  terminalGraceMs: 300_000,
  /** Between a missed `confirmBy` and the reap: a Confirm in flight, the drift of the caller's clock. */
  confirmGraceMs: 60_000,
} as const

/** Pools override some of them. Times are milliseconds; none is measured unless it says so. */
export const POLICY = {
  /** How long an address rests between two holders, unless its pool says otherwise. */
  cooldownMs: 120_000,
  /** Leases one (kind, name, interface) may hold in a pool, quarantined ones included (azure#4350). */
  ownerLimit: 4,
  /** Candidates one Reserve may skip because its caller sees them live. */
  skips: 32,
  /** Addresses that one caller may quarantine; beyond that they are only skipped (opnsense#10285). */
  quarantinesPerCaller: 64,
  /** How long a closed attachment refuses late Reserves and Confirms. */
  retryHorizonMs: 120_000,
  /** A lease promised again is written down again once its last change is this old: promises are life (2.4). */
  renewAfterMs: 60_000,
  requestMemoryMs: 24 * 3_600_000,
  /** Rows named in a refusal that lists what is in the way. */
  listedBlockers: 20,
  /** Touched addresses of a pool before rested ones are handed out again. */
  touchFirst: 65_536,

  /** Between two reports of agents, and of sources that are polled, unless a source declares its own. */
  agentIntervalMs: 30_000,
  pulledIntervalMs: 60_000,
  /** A report counts if it was begun at least this share of an interval after the last counted one. */
  countedAfterIntervals: 0.5,
  recentReports: 8,
  /** A cooldown covers this many intervals of the slowest enabled source. */
  cooldownIntervals: 2,
  /** A source is fresh if its last complete report is at most this many intervals old. */
  freshIntervals: 2,
  /** After a new era, the second counted report of a source is begun at least this long after its begin. */
  recoveryMs: 120_000,
  /** Sources that a recovery waits for though they are not registered; when there are so many, only an operator ends it. */
  unknownSources: 64,

  ...REAP_POLICY,
  /** The confirm grace is at least this share of `confirmWithin`. */
  confirmGraceShare: 0.02,
  /** A look-up that takes longer is an error, and an error means alive. */
  lookUpTimeoutMs: 5_000,
  /** Until a question is asked again: doubled each time up to the longest, for ever. */
  lookUpRetryMs: 30_000,
  longestLookUpRetryMs: 3_600_000,
  /** Reaps that rest on absence: beyond both within the window the network is held (aws#3876). */
  heldAboveReaps: 3,
  heldAboveShare: 0.2,
  holdWindowMs: 3_600_000,
  /** The database's clock was set if it advanced by this much more or less than the process's own. */
  clockStepMs: 2_000,
  reportSlice: 500,
  sources: 20_000,
} as const

export type ReapPolicy = { readonly [K in keyof typeof REAP_POLICY]: number }

/** The defaults, and what a pool sets otherwise. */
export function reapPolicy(set: Partial<ReapPolicy> = {}): ReapPolicy {
  return { ...REAP_POLICY, ...set }
}

/** Of a number: below these bits it counts, above is its era. */
export const ERA_BITS = 40
/** Numbers stay below 2^53. */
export const LAST_ERA = 8_190

/** Numbers of era `e` begin here; the first era begins at 1, because 0 means "nothing yet". */
export function firstSeqOfEra(era: number): number {
  return era === 0 ? 1 : era * 2 ** ERA_BITS
}

export function eraOf(seq: number): number {
  return Math.floor(seq / 2 ** ERA_BITS)
}
