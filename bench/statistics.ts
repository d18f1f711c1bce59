/** Figures of repeated runs. Medians throughout: one run in which the machine did something else must not count. */

export function median(values: readonly number[]): number {
  return percentile(
    values.toSorted((a, b) => a - b),
    0.5,
  )
}

/** Nearest rank, of values in ascending order; NaN of none. */
export function percentile(sorted: ArrayLike<number>, share: number): number {
  if (sorted.length === 0) return Number.NaN
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!
}

type Samples = {
  add(value: number): void
  /** Median and 99th percentile of what was added since the last take. */
  take(): { readonly count: number; readonly p50: number; readonly p99: number }
}

/** Kept whole until they are taken: percentiles are exact, not of buckets. */
export function createSamples(): Samples {
  let values = new Float64Array(65_536)
  let count = 0
  return {
    add(value) {
      if (count === values.length) {
        const grown = new Float64Array(values.length * 2)
        grown.set(values)
        values = grown
      }
      values[count++] = value
    },
    take() {
      const sorted = values.subarray(0, count).sort()
      const taken = { count, p50: percentile(sorted, 0.5), p99: percentile(sorted, 0.99) }
      count = 0
      return taken
    },
  }
}
