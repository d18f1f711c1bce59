/**
 * After a recovery, what was promised until its era began may be lost with the books of before: ages begin anew with it,
 * and a fence or a boot that is older than it ends nothing (INV-24, 12.4).
 */
import { describe, expect, test } from 'vitest'
import type { LeaseEvidence } from '../../src/core/judge.ts'
import {
  ago,
  codes,
  evidence,
  FENCE,
  held,
  judged,
  NEW_BOOT,
  NOW,
  POLICY,
  witness,
} from '../support/evidence.ts'
import { HOUR, MINUTE, SECOND } from '../support/given.ts'

const verdictAfter = (recoveredAt: number | null, fields: Partial<LeaseEvidence> = {}) =>
  judged({ ...fields, recoveredAt })

describe('proof of absence', () => {
  test.each([
    ['its minimum age after the recovery began', ago(5 * MINUTE), 'reap'],
    ['a moment before that', ago(5 * MINUTE - 1), 'keep'],
    ['as it began', NOW, 'keep'],
    ['where none ever began', null, 'reap'],
  ])('%s', (_when, recoveredAt, verdict) => {
    expect(verdictAfter(recoveredAt).verdict).toBe(verdict)
  })

  test('keeps for being young', () => {
    expect(codes(verdictAfter(ago(MINUTE)))).toContain('TOO_YOUNG')
  })

  test('of what nobody has seen needs the long age', () => {
    const unseen = { lease: held(), witnesses: [witness({ why: 'COVERS' })] }
    expect(verdictAfter(ago(HOUR - 1), unseen).verdict).toBe('keep')
    expect(verdictAfter(ago(HOUR), unseen).verdict).toBe('reap')
  })

  test('a change since counts as ever', () => {
    const changed = { lease: held({ confirmedAt: ago(MINUTE) }) }
    expect(verdictAfter(ago(HOUR), changed).verdict).toBe('keep')
  })
})

describe('a fence', () => {
  const fenced = (at: number) => ({ witnesses: [], lastSightedAt: null, fencedBy: { ...FENCE, at } })

  test.each([
    ['of the era, long enough after it began', ago(5 * MINUTE), ago(SECOND), 'reap'],
    ['of the era, too soon after it began', ago(5 * MINUTE - 1), ago(SECOND), 'keep'],
    ['of books that were lost', ago(HOUR), ago(2 * HOUR), 'keep'],
    ['of the moment at which they were', ago(HOUR), ago(HOUR), 'keep'],
    ['where none ever were', null, ago(2 * HOUR - 1), 'reap'],
  ])('%s', (_when, recoveredAt, at, verdict) => {
    expect(verdictAfter(recoveredAt, fenced(at)).verdict).toBe(verdict)
  })
})

test('a fence as of a head in books that were lost', () => {
  const fencedBy = { ...FENCE, at: ago(SECOND), since: ago(HOUR) }
  const of = { witnesses: [], lastSightedAt: null, fencedBy }
  expect(verdictAfter(ago(HOUR), of).verdict).toBe('keep')
  expect(verdictAfter(ago(HOUR + 1), of).verdict).toBe('reap')
})

test('a deadline that was promised after a fence keeps until it is over; of one from before the fence frees it', () => {
  const promised = (version: number, confirmBy: number, fields: Partial<LeaseEvidence> = {}) => {
    const lease = held({ state: 'RESERVED', confirmedAt: null, confirmBy, version })
    return verdictAfter(null, { lease, witnesses: [], lastSightedAt: null, fencedBy: FENCE, ...fields })
  }
  const since = FENCE.head + 1
  expect(codes(promised(since, NOW))).toContain('CONFIRM_PENDING')
  expect(promised(since, NOW - POLICY.confirmGraceMs).verdict).toBe('keep')
  expect(promised(since, NOW - POLICY.confirmGraceMs - 1).verdict).toBe('reap')
  expect(promised(FENCE.head, NOW).verdict).toBe('reap')
  // Proofs that were stored before there was the rule are judged as they were.
  expect(promised(since, NOW, { rules: 1 }).verdict).toBe('reap')
})

describe('a new boot', () => {
  const rebooted = (at: number) => ({
    lastSightedAt: null,
    witnesses: [witness({ misses: [], bootEnded: { ...NEW_BOOT, at } })],
  })

  test.each([
    ['that began in this era', ago(HOUR), ago(HOUR - 1), 'reap'],
    ['that began in books that were lost', ago(HOUR), ago(HOUR + 1), 'keep'],
    ['where none ever were', null, ago(HOUR + 1), 'reap'],
  ])('%s', (_when, recoveredAt, at, verdict) => {
    expect(verdictAfter(recoveredAt, rebooted(at)).verdict).toBe(verdict)
  })
})

test('proofs stored before it was asked are judged as they were', () => {
  const { recoveredAt: _, ...older } = evidence({ recoveredAt: null })
  expect(judged(older).verdict).toBe('reap')
  expect(POLICY.minimumAgeMs).toBe(5 * MINUTE)
})
