/** Randomness that can be had again: a test prints its seed, and IPLEDGER_TEST_SEED repeats it. */
export type Random = {
  readonly seed: number
  /** Whole, from 0 up to and without `below`. */
  below(below: number): number
  chance(probability: number): boolean
  pick<T>(items: readonly T[]): T
}

export function seededRandom(seed = chosenSeed()): Random {
  let state = seed >>> 0
  const next = () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  return {
    seed,
    below: (below) => Math.floor(next() * below),
    chance: (probability) => next() < probability,
    pick: (items) => items[Math.floor(next() * items.length)]!,
  }
}

function chosenSeed(): number {
  const given = process.env.IPLEDGER_TEST_SEED
  return given === undefined || given === '' ? Math.floor(Math.random() * 4_294_967_296) : Number(given)
}
