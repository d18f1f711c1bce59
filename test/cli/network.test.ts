/** What `network get` prints of a network that recovers. */
import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { expect, test } from 'vitest'
import { sheetText } from '../../src/cli/views.ts'
import { NetworkSchema } from '../../src/gen/ipledger/v1/network_pb.ts'

const TWICE = 'two reports of each of 2 sources, the second after 2026-01-01T00:00:00Z'

test.each([
  [{ needsOperator: true }, 'an operator: ipledger recover --end n'],
  [{ sources: 2, unreported: ['a'] }, `${TWICE}; still to report: a`],
  [{ sources: 2, unknown: ['b', 'c'] }, `${TWICE}; to register: b, c`],
  [{ needsOperator: true, unknown: ['b'] }, /--end n; to register: b/],
])('what it waits for: %j', (recovery, expected) => {
  const notBefore = timestampFromMs(Date.UTC(2026, 0, 1))
  const sheet = sheetText(
    NetworkSchema,
    create(NetworkSchema, { name: 'n', recovery: { ...recovery, notBefore } }),
  )
  expect(/waits for +(.*)/.exec(sheet)![1]).toMatch(expected)
})
