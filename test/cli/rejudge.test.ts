/** Reaps of the past, judged again from what their events store (incidents 15.2, 16.8). */
import { create, type JsonObject } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { rejudge } from '../../src/cli/rejudge.ts'
import { BLANK } from '../../src/core/event.ts'
import type { Proof } from '../../src/core/judge.ts'
import { reapPolicy } from '../../src/core/policy.ts'
import { EventSchema } from '../../src/gen/ipledger/v1/audit_pb.ts'

const MINUTE = 60_000
const NOW = Date.UTC(2026, 0, 1)
const OWNER = { kind: 'pod', name: 'a/b', uid: 'u', incarnation: '', interface: 'eth0' }
const counted = [1, 2, 3].map((sequence) => ({ sequence, head: 5, at: NOW - (4 - sequence) * MINUTE }))

const PROOF: Proof = {
  record: {
    ...BLANK,
    address: '10.0.0.5',
    prefixLength: 32,
    poolId: 2,
    state: 'ACTIVE',
    seq: 4,
    at: NOW - 90 * MINUTE,
    token: 3,
    owner: OWNER,
    node: 'n1',
    reservedAt: NOW - 90 * MINUTE,
    confirmedAt: NOW - 90 * MINUTE,
  },
  judgedAt: NOW,
  recoveredAt: null,
  policy: reapPolicy(),
  sightings: [],
  witnesses: [
    {
      id: 'agent-1',
      isEnabled: true,
      enabledAt: NOW - 120 * MINUTE,
      isWarm: true,
      couldSee: true,
      since: 4,
      missed: counted,
      parties: [OWNER],
    },
  ],
  lookUps: [
    {
      source: 'agent-1',
      address: '10.0.0.5',
      owner: OWNER,
      answer: 'gone',
      terminalSince: null,
      detail: '',
      head: 5,
      askedAt: NOW,
      attempts: 1,
    },
  ],
}

function reaped(cause: string, proof: object | null) {
  const lease = { leaseId: 'default/3', address: '10.0.0.5' }
  const evidence = proof === null ? {} : { evidence: JSON.parse(JSON.stringify({ proof })) as JsonObject }
  return create(EventSchema, { seq: 9n, type: 'lease.reaped', cause, lease, ...evidence })
}

const AS_THEN = (proof: Proof) => proof.policy

test('a reap on proof comes to a reap; of others there is nothing to judge', () => {
  const events = [reaped('PROVEN_ABSENT', PROOF), reaped('Reap', null), reaped('NEVER_CONFIRMED', null)]
  expect(rejudge(events, AS_THEN)).toEqual({
    byCause: { PROVEN_ABSENT: 1, Reap: 1, NEVER_CONFIRMED: 1 },
    differing: [],
  })
})

test('another policy would not have done it, which says nothing of the log', () => {
  const { differing } = rejudge([reaped('PROVEN_ABSENT', PROOF)], (proof) => ({ ...proof.policy, misses: 5 }))
  expect(differing).toEqual([
    expect.objectContaining({ policy: 'today', seq: 9, leaseId: 'default/3', verdict: 'keep' }),
  ])
  expect(differing[0]!.because).toContain('3 of the 5 counted reports')
})

test.each([
  ['a look-up said live', { lookUps: [{ ...PROOF.lookUps[0]!, answer: 'live' }] }, 'keep', 'is live'],
  ['nobody could have seen it', { witnesses: [] }, 'keep', 'no enabled source'],
  ['nothing can be read', { witnesses: null }, 'unreadable', 'TypeError'],
])('where %s, the log or the judge is wrong', (_, change, verdict, because) => {
  const { differing } = rejudge([reaped('PROVEN_ABSENT', { ...PROOF, ...change })], AS_THEN)
  expect(differing.find(({ policy }) => policy === 'then')).toMatchObject({
    verdict,
    because: expect.stringContaining(because),
  })
})

test('a reap on proof without its proof is not passed over', () => {
  expect(rejudge([reaped('PROVEN_ABSENT', null)], AS_THEN).differing[0]).toMatchObject({
    verdict: 'unreadable',
  })
})
