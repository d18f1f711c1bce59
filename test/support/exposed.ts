/** What `/metrics` has, by the names of its series: which labels each has. A test of telemetry reads all of them from a page. */
import { METRICS } from '../../src/telemetry.ts'

export const EXPOSED: ReadonlyMap<string, readonly string[]> = new Map(
  [...METRICS].flatMap(([name, { kind, labels }]): [string, readonly string[]][] => {
    const total = kind.endsWith('Counter') ? '_total' : ''
    const exposed = `${name.replaceAll('.', '_')}${total}`
    const written = labels.map((label) => label.replaceAll('.', '_'))
    if (kind !== 'Histogram') return [[exposed, written]]
    return [
      [`${exposed}_bucket`, [...written, 'le']],
      [`${exposed}_sum`, written],
      [`${exposed}_count`, written],
    ]
  }),
)
