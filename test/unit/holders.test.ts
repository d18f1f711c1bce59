/** The events of one lease, folded to who held it over which span. */
import { expect, test } from 'vitest'
import type { LedgerEvent } from '../../src/core/event.ts'
import type { Lease } from '../../src/core/lease.ts'
import { holdersOf } from '../../src/ledger/holders.ts'
import { owner } from '../support/commands.ts'

const OWNER = owner({ name: 'default/web-0', uid: 'u-0', incarnation: '1' })

const lease = (fields: Partial<Lease> = {}): Lease => ({
  network: 'default',
  poolId: 2,
  address: '10.8.64.2',
  prefixLength: 32,
  fencingToken: 3,
  version: 3,
  state: 'RESERVED',
  quarantine: null,
  owner: OWNER,
  placement: { node: 'n1', boot: 'b1', labels: {} },
  witness: '',
  reservedAt: 0,
  confirmedAt: null,
  confirmBy: null,
  ...fields,
})

const header = (seq: number) => ({
  network: 'default',
  seq,
  at: seq * 1_000,
  actor: 'test',
  cause: 'Call',
  requestId: null,
  traceId: null,
  evidence: null,
})

type HeldType = 'lease.reserved' | 'lease.confirmed' | 'lease.quarantined' | 'lease.updated'

const held = (seq: number, type: HeldType, fields: Partial<Lease> = {}): LedgerEvent => ({
  ...header(seq),
  type,
  lease: lease(fields),
})

const reaped = (seq: number): LedgerEvent => ({
  ...header(seq),
  type: 'lease.reaped',
  ended: {
    lease: lease(),
    how: 'lease.reaped',
    seq,
    endedAt: seq * 1_000,
    availableAt: seq * 1_000 + 5_000,
    removalConfirmed: false,
  },
})

const conflict: Partial<Lease> = {
  state: 'QUARANTINED',
  quarantine: { reason: 'CONFLICT', at: 0, by: 'agent', why: '' },
}

test('one owner is one span, through all its states', () => {
  const [span, ...others] = holdersOf([
    held(3, 'lease.reserved'),
    held(4, 'lease.confirmed', { state: 'ACTIVE' }),
    held(5, 'lease.updated', { state: 'ACTIVE' }),
    held(6, 'lease.quarantined', conflict),
    held(7, 'lease.confirmed', { state: 'ACTIVE' }),
    reaped(9),
  ])
  expect(others).toEqual([])
  expect(span).toMatchObject({
    leaseId: 'default/3',
    owner: OWNER,
    from: { seq: 3, at: 3_000, as: 'lease.reserved/Call' },
    until: { seq: 9, at: 9_000, as: 'lease.reaped/Call' },
    availableAt: 14_000,
    states: [
      { state: 'RESERVED', reason: null, seq: 3 },
      { state: 'ACTIVE', reason: null, seq: 4 },
      { state: 'QUARANTINED', reason: 'CONFLICT', seq: 6 },
      { state: 'ACTIVE', reason: null, seq: 7 },
    ],
  })
})

test('a holder that gave it back ends its span, and the quarantine goes on for nobody', () => {
  const spans = holdersOf([
    held(3, 'lease.reserved'),
    held(6, 'lease.quarantined', conflict),
    held(8, 'lease.quarantined', { ...conflict, owner: null }),
  ])
  expect(spans.map((one) => [one.owner?.name ?? null, one.from.seq, one.until?.seq ?? null])).toEqual([
    ['default/web-0', 3, 8],
    [null, 8, null],
  ])
  expect(spans[0]!.availableAt).toBeNull()
  expect(spans[1]!.states).toEqual([{ state: 'QUARANTINED', reason: 'CONFLICT', seq: 8, at: 8_000 }])
})

test('nothing held it: no spans', () => {
  expect(holdersOf([])).toEqual([])
})
