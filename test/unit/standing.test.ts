/**
 * How far a source is believed (DESIGN §4 "Reporting", "Guards"): a report after the other, and what counts. Interval
 * 30 s; `at` is in intervals, so that 0.5 and 3 can be read off.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import {
  type Assessment,
  advance,
  assess,
  NEW_STANDING,
  type PartialReason,
  type ReportFacts,
  type Standing,
  startStreak,
} from '../../src/liveness/standing.ts'

const INTERVAL = 30_000

type Report = {
  readonly at: number
  readonly size?: number
  readonly digest?: string
  readonly epoch?: string
  readonly closed?: boolean
  readonly era?: number
  readonly head?: number
  /** Default: the next one. */
  readonly sequence?: number
  readonly problems?: readonly PartialReason[]
  readonly noToken?: boolean
  readonly added?: number
  readonly kept?: number
}

type Heard = { readonly standing: Standing; readonly assessment: Assessment }

function facts(standing: Standing, report: Report): ReportFacts {
  const begunAt = report.at * INTERVAL
  const size = report.size ?? 5
  return {
    begun: report.noToken
      ? null
      : { sequence: report.sequence ?? standing.lastSequence + 1, head: report.head ?? 100, begunAt },
    reportedAt: begunAt + 1_000,
    era: report.era ?? 0,
    epoch: report.epoch ?? 'boot-1',
    epochClosed: report.closed ?? false,
    intervalMs: INTERVAL,
    size,
    digest: report.digest ?? `set-${size}`,
    problems: report.noToken ? ['NO_TOKEN'] : (report.problems ?? []),
  }
}

function hear(standing: Standing, report: Report): Heard {
  const heard = facts(standing, report)
  const assessment = assess(standing, heard)
  return {
    assessment,
    standing: advance(standing, heard, assessment, { added: report.added ?? 0, kept: report.kept ?? 0 }),
  }
}

function after(standing: Standing, ...reports: readonly Report[]): Standing {
  return reports.reduce((so, report) => hear(so, report).standing, standing)
}

/** Warm at 1 and counted at 2: the next one in time is due at 3. */
const WARM = after(NEW_STANDING, { at: 0 }, { at: 1 }, { at: 2 })

test('the first snapshot begins an epoch, and closes none', () => {
  const { standing, assessment } = hear(NEW_STANDING, { at: 0, epoch: 'boot-1', head: 7 })
  expect(assessment).toMatchObject({ complete: true, opensEpoch: true, counted: false, unchanged: false })
  expect(standing).toMatchObject({
    epoch: 'boot-1',
    warm: false,
    lastSequence: 1,
    complete: { sequence: 1, head: 7, begunAt: 0, era: 0 },
    counted: 0,
  })
})

describe('warm-up: two complete snapshots whose size has stopped growing (cilium#9888)', () => {
  test('two of the same size end it, and neither counts', () => {
    const one = hear(NEW_STANDING, { at: 0 })
    const two = hear(one.standing, { at: 1 })
    expect([one.standing.warm, two.standing.warm]).toEqual([false, true])
    expect([one.assessment.counted, two.assessment.counted]).toEqual([false, false])
    expect([one.assessment.uncounted, two.assessment.uncounted]).toEqual(['WARM_UP', 'WARM_UP'])
    expect(hear(two.standing, { at: 2 }).assessment).toMatchObject({ counted: true, uncounted: null })
  })

  test('a set that is still being put together does not end it: 0, 10, 200, then 200', () => {
    const growing = after(NEW_STANDING, { at: 0, size: 0 }, { at: 1, size: 10 }, { at: 2, size: 200 })
    expect(growing.warm).toBe(false)
    expect(after(growing, { at: 3, size: 200 }).warm).toBe(true)
  })

  test('one that shrinks has stopped growing', () => {
    expect(after(NEW_STANDING, { at: 0, size: 9 }, { at: 1, size: 8 }).warm).toBe(true)
  })

  test('until it is over nothing is ended: the first list after a start may be empty (INV-6)', () => {
    const reports = [
      { at: 0, size: 5 },
      { at: 1, size: 9 },
      { at: 2, size: 9 },
      { at: 3, size: 0 },
      { at: 4, size: 0, epoch: 'boot-2' },
      { at: 5, size: 9, epoch: 'boot-2' },
      { at: 6, size: 8, epoch: 'boot-2' },
    ]
    let standing = NEW_STANDING
    const ends = reports.map((report) => {
      const heard = hear(standing, report)
      standing = heard.standing
      return heard.assessment.ends
    })
    expect(ends).toEqual([false, false, true, true, false, false, true])
  })

  test('what it kept makes the digest another: the next complete one is compared entry by entry', () => {
    expect(after(NEW_STANDING, { at: 0, kept: 1 }).digest).toBe('')
    expect(after(NEW_STANDING, { at: 0, kept: 0 }).digest).toBe('set-5')
  })

  test('the same look reported twice is one look', () => {
    const twice = after(NEW_STANDING, { at: 0 }, { at: 0.4 })
    expect(twice.warm).toBe(false)
    expect(after(twice, { at: 0.5 }).warm).toBe(true)
  })

  test('partial ones neither end it nor begin it anew', () => {
    const partial = after(NEW_STANDING, { at: 0 }, { at: 1, problems: ['DECLARED'] })
    expect(partial.warm).toBe(false)
    expect(after(partial, { at: 2 }).warm).toBe(true)
  })
})

describe('what counts', () => {
  test('complete snapshots of a warm epoch, each remembered with its number, head and beginning', () => {
    const counting = after(WARM, { at: 3, head: 300 }, { at: 4, head: 400 })
    expect(counting.counted).toBe(3)
    expect(counting.recent).toEqual([
      { counted: 1, sequence: 3, head: 100, begunAt: 2 * INTERVAL },
      { counted: 2, sequence: 4, head: 300, begunAt: 3 * INTERVAL },
      { counted: 3, sequence: 5, head: 400, begunAt: 4 * INTERVAL },
    ])
  })

  test('not one begun sooner than half an interval after the last counted one', () => {
    const soon = hear(WARM, { at: 2.49 })
    expect(soon.assessment).toMatchObject({ complete: true, counted: false, uncounted: 'TOO_SOON' })
    expect(soon.standing.complete?.sequence).toBe(4)
    expect(hear(soon.standing, { at: 2.5 }).assessment.counted).toBe(true)
  })

  test('the last eight are remembered', () => {
    const many = after(WARM, ...Array.from({ length: 12 }, (_, i) => ({ at: 3 + i })))
    expect(many.counted).toBe(13)
    expect(many.recent.map(({ counted }) => counted)).toEqual([6, 7, 8, 9, 10, 11, 12, 13])
  })
})

describe('partial evidence only protects (INV-6)', () => {
  const PARTIAL: readonly (readonly [string, Report])[] = [
    ['declared so', { at: 3, problems: ['DECLARED'] }],
    ['an entry that cannot be read', { at: 3, problems: ['UNREADABLE_ENTRY'] }],
    ['no token', { at: 3, noToken: true }],
    ['the same number again', { at: 3, sequence: 3 }],
    ['an older number', { at: 3, sequence: 2 }],
    ['a closed epoch', { at: 3, epoch: 'boot-0', closed: true }],
  ]

  test.each(PARTIAL)('%s: nothing is counted, nothing begins anew', (_what, report) => {
    const { standing, assessment } = hear(WARM, report)
    expect(assessment).toMatchObject({ complete: false, counted: false, opensEpoch: false, ends: false })
    expect(assessment.because).toHaveLength(1)
    expect(assessment.uncounted).toBeNull()
    expect(standing).toMatchObject({
      epoch: 'boot-1',
      warm: true,
      counted: 1,
      streakFrom: WARM.streakFrom,
      recent: WARM.recent,
      complete: WARM.complete,
      size: WARM.size,
      digest: WARM.digest,
      partialSince: 3 * INTERVAL + 1_000,
      partialBecause: assessment.because,
    })
    expect(hear(standing, { at: 4 }).assessment.counted).toBe(true)
  })

  test('out of order is what was accepted before, by number and not by time', () => {
    expect(hear(WARM, { at: 3, sequence: 3 }).assessment.because).toEqual(['OUT_OF_SEQUENCE'])
    expect(hear(WARM, { at: 3, sequence: 9 }).assessment.complete).toBe(true)
    expect(after(WARM, { at: 3, sequence: 9 }).lastSequence).toBe(9)
  })

  test('a partial one takes its number; one without a token takes none', () => {
    expect(after(WARM, { at: 3, problems: ['DECLARED'] }).lastSequence).toBe(4)
    expect(after(WARM, { at: 3, noToken: true }).lastSequence).toBe(3)
  })

  test('since when is the first of a row of partial ones, until one is complete', () => {
    const two = after(WARM, { at: 3, problems: ['DECLARED'] }, { at: 4, noToken: true })
    expect(two).toMatchObject({ partialSince: 3 * INTERVAL + 1_000, partialBecause: ['NO_TOKEN'] })
    expect(after(two, { at: 5 })).toMatchObject({ partialSince: null, partialBecause: [] })
  })

  test('what it adds to the set makes the digest another: the next complete one is compared entry by entry', () => {
    const added = after(WARM, { at: 3, problems: ['DECLARED'], added: 1 })
    expect(added.digest).toBe('')
    expect(hear(added, { at: 4 }).assessment.unchanged).toBe(false)
    expect(after(WARM, { at: 3, problems: ['DECLARED'], added: 0 }).digest).toBe(WARM.digest)
  })

  test('nothing it lists was seen later than it was begun, or arrived', () => {
    expect(after(WARM, { at: 3, problems: ['DECLARED'] }).lastBegunAt).toBe(3 * INTERVAL)
    expect(after(WARM, { at: 3, noToken: true }).lastBegunAt).toBe(3 * INTERVAL + 1_000)
    expect(after(WARM, { at: 0.1, sequence: 2 }).lastBegunAt).toBe(2 * INTERVAL)
  })
})

describe('the streak that misses are counted in', () => {
  const COUNTING = after(WARM, { at: 3 }, { at: 4 })

  test('goes on while complete snapshots come', () => {
    expect(after(COUNTING, { at: 5 }, { at: 6 }).streakFrom).toBe(WARM.streakFrom)
  })

  test('goes on up to three intervals after the last complete one, and begins anew beyond', () => {
    expect(after(COUNTING, { at: 7 })).toMatchObject({ counted: 4, streakFrom: WARM.streakFrom })
    expect(after(COUNTING, { at: 7.001 })).toMatchObject({ counted: 4, streakFrom: 3 })
  })

  test('is not kept up by partial ones', () => {
    const silent = after(COUNTING, ...[5, 6, 7].map((at) => ({ at, problems: ['DECLARED' as const] })))
    expect(after(silent, { at: 8 }).streakFrom).toBe(3)
  })

  test('is kept up by complete ones that come too soon to count', () => {
    expect(after(COUNTING, { at: 4.4 }, { at: 7.3 }).streakFrom).toBe(WARM.streakFrom)
  })

  test('begins anew in a new era (INV-24)', () => {
    const { standing } = hear(COUNTING, { at: 5, era: 1 })
    expect(standing).toMatchObject({ counted: 3, streakFrom: 3, complete: { era: 1 } })
    expect(after(standing, { at: 6, era: 1 }).streakFrom).toBe(3)
  })

  test('in which the source warms up again: that it was warm is said by older books (12.1)', () => {
    const { standing, assessment } = hear(COUNTING, { at: 5, era: 1 })
    expect(standing.warm).toBe(false)
    expect(assessment).toMatchObject({ complete: true, counted: false, ends: false })
    const second = hear(standing, { at: 6, era: 1 })
    expect(second.standing.warm).toBe(true)
    expect(second.assessment).toMatchObject({ counted: false, ends: true })
    expect(hear(second.standing, { at: 7, era: 1 }).assessment.counted).toBe(true)
    // Nor does one with holes between them keep what was.
    expect(after(COUNTING, { at: 5, era: 1, problems: ['DECLARED'] }, { at: 6, era: 1 }).warm).toBe(false)
  })

  test('begins when the source is enabled: what it did not list in dry run proves nothing', () => {
    expect(startStreak(COUNTING)).toMatchObject({ counted: 3, streakFrom: 3 })
  })
})

describe('a new epoch', () => {
  const COUNTING = after(WARM, { at: 3 }, { at: 4 })

  test('closes the one before, starts warm-up and the streak', () => {
    const { standing, assessment } = hear(COUNTING, { at: 5, epoch: 'boot-2' })
    expect(assessment).toMatchObject({ complete: true, opensEpoch: true, counted: false })
    expect(standing).toMatchObject({ epoch: 'boot-2', warm: false, counted: 3, streakFrom: 3 })
    expect(standing.epochBegunAt).toBe(5 * INTERVAL + 1_000)
    const warm = after(standing, { at: 6, epoch: 'boot-2' })
    expect(warm.warm).toBe(true)
    expect(hear(warm, { at: 7, epoch: 'boot-2' }).assessment.counted).toBe(true)
  })

  test('is begun by an incomplete one too: that the node has rebooted is true all the same', () => {
    const { standing, assessment } = hear(COUNTING, { at: 5, epoch: 'boot-2', problems: ['DECLARED'] })
    expect(assessment.opensEpoch).toBe(true)
    expect(standing).toMatchObject({ epoch: 'boot-2', warm: false, complete: COUNTING.complete })
  })

  test.each([
    ['without a token', { noToken: true }],
    ['out of order', { sequence: 4 }],
    ['of an epoch that was closed', { closed: true }],
  ] as const)('is not begun by a report %s: it would close the true one for good', (_what, fields) => {
    const { standing, assessment } = hear(COUNTING, { at: 5, epoch: 'boot-2', ...fields })
    expect(assessment.opensEpoch).toBe(false)
    expect(standing).toMatchObject({ epoch: 'boot-1', warm: true })
  })
})

test('a set that is listed already is unchanged; nothing known is not', () => {
  expect(hear(WARM, { at: 3, digest: 'set-5' }).assessment.unchanged).toBe(true)
  expect(hear(WARM, { at: 3, digest: 'set-6' }).assessment.unchanged).toBe(false)
  expect(hear({ ...WARM, digest: '' }, { at: 3, digest: '' }).assessment.unchanged).toBe(false)
})

describe('whatever comes', () => {
  const anyReport: fc.Arbitrary<Report> = fc.record(
    {
      at: fc.constant(0),
      size: fc.nat(3),
      epoch: fc.constantFrom('a', 'b', 'c'),
      era: fc.nat(1),
      sequence: fc.nat(30),
      problems: fc.constantFrom<readonly PartialReason[]>([], [], [], ['DECLARED']),
      noToken: fc.boolean(),
      added: fc.nat(2),
    },
    { requiredKeys: ['at'] },
  )
  const anyReports = fc.array(fc.tuple(anyReport, fc.integer({ min: 0, max: 8 })), { maxLength: 40 })

  /** As the shell does it: epochs that were closed are known. */
  function replay(
    reports: readonly (readonly [Report, number])[],
    each: (before: Standing, now: Heard) => void,
  ) {
    const closed = new Set<string>()
    let standing = NEW_STANDING
    let at = 0
    for (const [report, later] of reports) {
      at += later / 4
      const epoch = report.epoch ?? 'a'
      const now = hear(standing, { ...report, at, epoch, closed: closed.has(epoch) })
      if (now.assessment.opensEpoch && standing.epoch !== '') closed.add(standing.epoch)
      each(standing, now)
      standing = now.standing
    }
  }

  test('numbers only grow, counted ones are complete, warm, apart, and eight at most', () => {
    fc.assert(
      fc.property(anyReports, (reports) => {
        replay(reports, (before, { standing, assessment }) => {
          expect(standing.lastSequence).toBeGreaterThanOrEqual(before.lastSequence)
          expect(standing.counted - before.counted).toBe(assessment.counted ? 1 : 0)
          if (assessment.counted) {
            expect(assessment.complete && before.warm).toBe(true)
            const [last, newest] = standing.recent.slice(-2)
            if (newest !== undefined) {
              expect(newest.begunAt - last!.begunAt).toBeGreaterThanOrEqual(INTERVAL / 2)
              expect(newest.sequence).toBeGreaterThan(last!.sequence)
            }
          }
          expect(standing.recent.length).toBeLessThanOrEqual(POLICY.recentSnapshots)
          expect(standing.streakFrom).toBeGreaterThanOrEqual(before.streakFrom)
          expect(standing.streakFrom).toBeLessThanOrEqual(standing.counted)
          expect(standing.partialSince === null).toBe(assessment.complete)
          expect(standing.partialBecause).toEqual(assessment.because)
        })
      }),
    )
  })

  test('no epoch comes back', () => {
    fc.assert(
      fc.property(anyReports, (reports) => {
        const past: string[] = []
        replay(reports, (before, { standing }) => {
          if (standing.epoch !== before.epoch) past.push(before.epoch)
          expect(past).not.toContain(standing.epoch)
        })
      }),
    )
  })
})
