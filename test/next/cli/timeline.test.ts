/** The drawing of holders over time, and the times people type: given input, exact lines. */
import { create } from '@bufbuild/protobuf'
import { durationMs, timestampFromMs } from '@bufbuild/protobuf/wkt'
import { describe, expect, test } from 'vitest'
import { drawnOf } from '../../../src/next/cli/history.ts'
import { duration, when } from '../../../src/next/cli/readers.ts'
import { type Drawn, drawTimeline, MOST_DRAWN, type Timeline } from '../../../src/next/cli/timeline.ts'
import { HolderSchema } from '../../../src/next/gen/ipledger/v1/audit_pb.ts'

const NOON = Date.parse('2026-11-20T03:00:00Z')
const at = (minutes: number): number => NOON + Math.round(minutes * 60_000)

const span = (fields: Partial<Drawn> & Pick<Drawn, 'from'>): Drawn => ({
  cells: ['', 'default/3', 'pod default/web-0'],
  until: null,
  coolsUntil: null,
  states: [{ mark: 'active', at: fields.from }],
  ...fields,
})

const draw = (fields: Partial<Timeline> & Pick<Timeline, 'spans'>): string =>
  drawTimeline({
    titles: ['ADDRESS', 'LEASE', 'OWNER'],
    from: at(0),
    to: at(30),
    width: 100,
    ...fields,
  })

const STORY: readonly Drawn[] = [
  span({
    from: at(-5),
    until: at(4),
    coolsUntil: at(6),
    states: [{ mark: 'active', at: at(-5) }],
  }),
  span({
    cells: ['', 'default/41', 'pod default/web-1'],
    from: at(7),
    until: at(18),
    coolsUntil: at(20),
    states: [
      { mark: 'reserved', at: at(7) },
      { mark: 'active', at: at(9) },
      { mark: 'quarantined', at: at(14) },
    ],
  }),
  span({ cells: ['', 'default/97', 'container short'], from: at(22), until: at(22), coolsUntil: at(24) }),
  span({
    cells: ['', 'default/99', 'nobody known'],
    from: at(26),
    states: [{ mark: 'quarantined', at: at(26) }],
  }),
]

describe('a timeline', () => {
  test('of holders of one address, wide', () => {
    expect(draw({ spans: STORY })).toMatchInlineSnapshot(`
      "LEASE       OWNER              FOR  |03:00    |03:05     |03:10     |03:15    |03:20     |03:25
      default/3   pod default/web-0  9m   <=======]....
      default/41  pod default/web-1  11m                [----==========#########]....
      default/97  container short    0ms                                                |.....
      default/99  nobody known       4m+                                                         [#######>

      - reserved  = active  # quarantined  . cooling  < began before  > goes on"
    `)
  })

  test('of a year, and of an instant', () => {
    const year = draw({
      spans: [span({ from: NOON, until: NOON + 300 * 86_400_000 })],
      to: NOON + 365 * 86_400_000,
    })
    expect(year).toMatchInlineSnapshot(`
      "LEASE      OWNER              FOR     |2026-12-03     |2027-03-03    |2027-06-01     |2027-08-30
      default/3  pod default/web-0  300d  [===================================================]

      - reserved  = active  # quarantined  . cooling  < began before  > goes on"
    `)
    expect(draw({ spans: [span({ from: NOON, until: NOON })], to: NOON })).toMatchInlineSnapshot(`
      "LEASE      OWNER              FOR  |03:00:00.000       |03:00:00.020       |03:00:00.040
      default/3  pod default/web-0  0ms  |

      - reserved  = active  # quarantined  . cooling  < began before  > goes on"
    `)
  })

  test('of an address that was handed on before it had cooled: the dots end where the next lease begins', () => {
    const holder = (address: string, seq: bigint, from: number, until: number | null) =>
      create(HolderSchema, {
        leaseId: `default/${seq}`,
        address,
        prefixLength: 32,
        fromSeq: seq,
        fromTime: timestampFromMs(at(from)),
        ...(until === null
          ? {}
          : { untilTime: timestampFromMs(at(until)), availableAt: timestampFromMs(at(until + 20)) }),
      })
    const holders = [
      holder('10.0.0.4', 4n, 0, 5),
      holder('10.0.0.9', 5n, 2, 6),
      holder('10.0.0.4', 6n, 10, null),
    ]
    const spans = drawnOf(holders, true)
    expect(spans.map(({ coolsUntil }) => coolsUntil)).toEqual([at(10), at(26), null])
    const [, first, other, second] = draw({ spans }).split('\n')
    expect(first!.length - 1).toBe(second!.indexOf('['))
    expect(other!.length).toBeGreaterThan(first!.length)
  })

  test('of several addresses, and of more holders than are drawn', () => {
    const many = Array.from({ length: MOST_DRAWN + 3 }, (_, index) =>
      span({ cells: [`10.8.64.${index}`, `default/${index}`, 'pod p'], from: at(index / 2) }),
    )
    const lines = draw({ spans: many }).split('\n')
    expect(lines[0]).toMatch(/^ADDRESS +LEASE +OWNER +FOR {2} *\|03:00/)
    expect(lines[MOST_DRAWN + 1]).toBe('and 3 more')
    expect(lines[1]).toMatch(/^10\.8\.64\.0 +default\/0 +pod p +30m\+ +\[=+>$/)
  })

  test('a name as long as names may be is clipped', () => {
    const name = 'x'.repeat(253)
    const [, line] = draw({ spans: [span({ cells: ['', 'default/3', name], from: at(1) })] }).split('\n')
    expect(line).toMatch(/^default\/3 {2}x{39}… {2}29m\+ {3,}\[=+>$/)
    expect(line!.length).toBeLessThanOrEqual(100)
  })

  test('a quarantine of a second is seen in a day', () => {
    const drawn = draw({
      to: NOON + 86_400_000,
      spans: [
        span({
          from: at(60),
          states: [
            { mark: 'active', at: at(60) },
            { mark: 'quarantined', at: at(600) },
            { mark: 'active', at: at(600) + 1_000 },
          ],
        }),
      ],
    })
    expect(drawn.split('\n')[1]!.match(/#/g)).toHaveLength(1)
  })

  test('on a narrow terminal there is a short bar all the same', () => {
    const lines = draw({ spans: STORY, width: 40 }).split('\n')
    expect(lines[1]).toMatch(/^default\/3 {3}pod default\/web-0 {2}9m {3}<=+\]\.+$/)
    expect(Math.max(...lines.slice(0, 5).map((line) => line.length))).toBe(56)
  })
})

describe('when', () => {
  const now = Date.parse('2026-11-20T04:00:00Z')
  test.each([
    ['2026-11-20T03:12:00Z', '2026-11-20T03:12:00.000Z'],
    ['2026-11-20T03:12:00.250Z', '2026-11-20T03:12:00.250Z'],
    ['2026-11-20T03:12:00+02:00', '2026-11-20T01:12:00.000Z'],
    ['2026-11-20 03:12', '2026-11-20T03:12:00.000Z'],
    ['2026-11-20 03:12:07', '2026-11-20T03:12:07.000Z'],
    ['2026-11-20 03:12 UTC', '2026-11-20T03:12:00.000Z'],
    ['2026-11-20 03:12:07.5Z', '2026-11-20T03:12:07.500Z'],
    ['2026-11-20', '2026-11-20T00:00:00.000Z'],
    ['-15m', '2026-11-20T03:45:00.000Z'],
    ['-1h30m', '2026-11-20T02:30:00.000Z'],
    ['now', '2026-11-20T04:00:00.000Z'],
  ])('%s', (text, expected) => {
    const found = when(text, now)
    expect('ms' in found && new Date(found.ms).toISOString()).toBe(expected)
  })

  test('a plain number is one of the log', () => {
    expect(when('4711', now)).toEqual({ seq: 4711n })
    expect(when('0', now)).toEqual({ seq: 0n })
  })

  test.each([
    '',
    'yesterday',
    '2026-02-30',
    '2026-13-01',
    '2026-11-20 25:00',
    '03:12',
    '-15',
    '--json',
    '1.5',
    '-m',
  ])('%j is refused', (text) => {
    expect(() => when(text, now)).toThrow(/It must be a time|A duration is/)
  })
})

test.each([
  ['30s', 30_000],
  ['1h30m', 5_400_000],
  ['500ms', 500],
  ['1.5s', 1_500],
])('a duration of %s', (text, ms) => {
  expect(durationMs(duration(text))).toBe(ms)
})
test.each(['', '30', 's', '1h 30m', '-1s'])('%j is no duration', (text) => {
  expect(() => duration(text)).toThrow('A duration is a number with')
})
