/** What `/metrics` has, by the names of its series: which labels each has. A test of telemetry reads all of them from a page. */
import { METRICS } from '../../../src/next/telemetry.ts'
import { pageName } from '../../../src/next/telemetry-page.ts'

export const EXPOSED: ReadonlyMap<string, readonly string[]> = new Map(
  METRICS.flatMap(({ name, unit, kind, labels }): [string, readonly string[]][] => {
    const exposed = pageName(name, unit, kind === 'counter')
    const written = labels.map((label) => label.replaceAll('.', '_'))
    if (kind !== 'histogram') return [[exposed, written]]
    return [
      [`${exposed}_bucket`, [...written, 'le']],
      [`${exposed}_sum`, written],
      [`${exposed}_count`, written],
    ]
  }),
)

/** Prometheus's own: where it came from. */
export const OF_THE_SCRAPE = ['instance', 'job']
