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
} as const

/** Numbers of era `e` begin here; the first era begins at 1, because 0 means "nothing yet". */
export function firstSeqOfEra(era: number): number {
  return era === 0 ? 1 : era * 2 ** 40
}

export function eraOf(seq: number): number {
  return Math.floor(seq / 2 ** 40)
}
