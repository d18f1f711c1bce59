/** Which report an entry that stays listed is evidence of (DESIGN §4: partial evidence only protects). */
import { describe, expect, test } from 'vitest'
import { type Appeared, lastListing, provesEnd, type Reports } from '../../src/core/listed.ts'

const at = (sequence: number, head = 10 * sequence) => ({ sequence, head, begunAt: 1_000 * sequence })
const APPEARED: Appeared = at(3)

/** Warm, and its last report, of this number, was complete. */
const source = (sequence: number, fields: Partial<Reports> = {}): Reports => ({
  warm: true,
  lastSequence: sequence,
  lastBegunAt: 1_000 * sequence,
  complete: at(sequence),
  ...fields,
})

describe('an entry', () => {
  test('that appeared in the last report is evidence of that', () => {
    expect(lastListing(APPEARED, source(3))).toEqual(APPEARED)
  })

  test.each<[string, Partial<Reports>]>([
    ['with holes', { complete: at(2) }],
    ['the first one of its source', { complete: null }],
    ['of a source that warms up', { warm: false }],
  ])('and be it one %s', (_what, fields) => {
    expect(lastListing(APPEARED, source(3, fields))).toEqual(APPEARED)
  })

  test('that stays in the complete list of a warm source is evidence of the last one', () => {
    expect(lastListing(APPEARED, source(7))).toEqual(at(7))
  })

  test('of which its first report proves no head is evidence of none, until a later one does', () => {
    const unproven = at(3, 0)
    expect(lastListing(unproven, source(3))).toBeNull()
    expect(lastListing(unproven, source(4))).toEqual(at(4))
  })

  test.each<[string, Reports]>([
    ['only reports with holes since', source(5, { complete: at(2) })],
    ['one with holes since the last complete one', source(5, { complete: at(4) })],
    ['one without a token since the last complete one', source(5, { lastBegunAt: 5_001 })],
    ['complete reports of a source that warms up', source(5, { warm: false })],
    ['one without a token since it appeared', source(3, { lastBegunAt: 3_001 })],
  ])('with %s may have been listed by them: nobody can tell', (_what, reports) => {
    expect(lastListing(APPEARED, reports)).toBeNull()
  })

  test('is not made doubtful by a report that was begun before the last one', () => {
    expect(lastListing(APPEARED, source(5, { lastBegunAt: 4_999 }))).toEqual(at(5))
  })
})

describe('an entry that is listed as ended', () => {
  test.each<[string, Appeared, Reports]>([
    ['appeared in the last complete report', APPEARED, source(3)],
    ['stays in it', APPEARED, source(7)],
    ['appeared without proof, and stays in it', at(3, 0), source(4)],
  ])('is believed where it %s', (_what, appeared, reports) => {
    expect(provesEnd(appeared, reports)).toBe(true)
  })

  test.each<[string, Appeared, Reports]>([
    ['with holes', APPEARED, source(3, { complete: at(2) })],
    ['that is the first of its source', APPEARED, source(3, { complete: null })],
    ['of a source that warms up', APPEARED, source(3, { warm: false })],
    ['that proves no beginning', at(3, 0), source(3)],
    ['after which one with holes came', APPEARED, source(5, { complete: at(4) })],
    ['after which one without a token came', APPEARED, source(5, { lastBegunAt: 5_001 })],
  ])('is not in a report %s', (_what, appeared, reports) => {
    expect(provesEnd(appeared, reports)).toBe(false)
  })
})
