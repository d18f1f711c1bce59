/** What makes the head in a report a proof (DESIGN §4 "Reporting"): a source cannot date its own evidence. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { POLICY } from '../../src/core/policy.ts'
import {
  type Begun,
  newSigningKey,
  readToken,
  signToken,
  tokenLifeMs,
} from '../../src/liveness/snapshot-token.ts'

const KEY = newSigningKey()
const BEGUN: Begun = {
  network: 'default',
  source: 'agent/n1',
  era: 0,
  head: 4711,
  begunAt: 1_790_000_000_123,
  sequence: 9,
}

const anyBegun: fc.Arbitrary<Begun> = fc.record({
  network: fc.stringMatching(/^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/),
  source: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 80 }),
  era: fc.nat(8_000),
  head: fc.maxSafeNat(),
  begunAt: fc.integer({ min: 0, max: 4_000_000_000_000 }),
  sequence: fc.maxSafeNat(),
})

test('what was signed is what is read', () => {
  fc.assert(
    fc.property(anyBegun, (begun) => {
      expect(readToken(signToken(begun, KEY), KEY)).toEqual(begun)
    }),
  )
})

test('the longest names fit', () => {
  const begun = { ...BEGUN, network: 'n'.repeat(63), source: '"'.repeat(253), head: Number.MAX_SAFE_INTEGER }
  expect(readToken(signToken(begun, KEY), KEY)).toEqual(begun)
})

test('another key reads nothing', () => {
  expect(readToken(signToken(BEGUN, KEY), newSigningKey())).toBeNull()
})

test('no character can be changed', () => {
  const token = signToken(BEGUN, KEY)
  // The last one carries four bits of the signature and two that no text needs.
  for (let i = 0; i < token.length - 1; i += 1) {
    const other = token[i] === 'A' ? 'B' : 'A'
    expect(readToken(token.slice(0, i) + other + token.slice(i + 1), KEY), `character ${i}`).toBeNull()
  }
})

test('content cannot be moved to another signature', () => {
  const later = signToken({ ...BEGUN, head: BEGUN.head + 1 }, KEY).split('.')
  const signed = signToken(BEGUN, KEY).split('.')
  expect(readToken(`1.${later[1]}.${signed[2]}`, KEY)).toBeNull()
})

test.each(['', '1', '1..', `1.${'A'.repeat(40)}.${'A'.repeat(43)}`, 'x'.repeat(100_000)])(
  'what is no token is null: %s',
  (text) => {
    expect(readToken(text, KEY)).toBeNull()
  },
)

test('keys have 256 bits and are never the same', () => {
  expect(Buffer.from(KEY, 'base64url')).toHaveLength(32)
  expect(newSigningKey()).not.toBe(KEY)
})

test('a token lasts for half of the smallest cooldown, within what a look needs and may take', () => {
  expect(tokenLifeMs(POLICY.cooldownMs)).toBe(60_000)
  expect(tokenLifeMs(30_001)).toBe(15_000)
  expect(tokenLifeMs(0)).toBe(5_000)
  expect(tokenLifeMs(30 * 24 * 3_600_000)).toBe(600_000)
  expect(tokenLifeMs(Number.POSITIVE_INFINITY)).toBe(600_000)
})
