/** What `/metrics` has, by the names of its series: which labels each has. A test of telemetry reads all of them from a page. */
import { METRICS } from '../../src/telemetry.ts'

const UNITS = { s: '_seconds', By: '_bytes' }

export const EXPOSED: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries(METRICS).flatMap(([name, { kind, unit, labels }]): [string, readonly string[]][] => {
    const total = kind === 'counter' || kind === 'readCounter' ? '_total' : ''
    const exposed = `${name.replaceAll('.', '_')}${unit === undefined ? '' : UNITS[unit]}${total}`
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
