/** Scenarios of the incident corpus on the judge alone: what is known at each moment, and what may follow from it. */
import { expect, test } from 'vitest'
import type { LeaseEvidence, WitnessEvidence } from '../../src/core/judge.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { Owner } from '../../src/core/owner.ts'
import { owner } from '../support/commands.ts'
import {
  ago,
  answered,
  FENCE,
  held,
  inQuarantine,
  judged,
  listed,
  NEW_BOOT,
  NOW,
  OTHER,
  said,
  sees,
  snapshots,
  THREE,
  TOKEN,
  VERSION,
  WEB,
  witness,
} from '../support/evidence.ts'
import { HOUR, MINUTE, SECOND } from '../support/given.ts'

test('1.1 stale-index-orphan-verdict: omitted by five lists and found by the look-up, it stays', () => {
  for (let cycle = 1; cycle <= 5; cycle++) {
    const misses = snapshots(Array.from({ length: cycle }, (_, index) => (150 - index * 30) * SECOND))
    const suspect = (lookup: WitnessEvidence['lookup']) =>
      judged({ witnesses: [witness({ source: 'docker', misses, lookup })] })
    if (cycle < 3) {
      expect(said(suspect(null))).toBe('keep TOO_FEW_MISSES(docker)')
      continue
    }
    expect(said(suspect(null))).toBe('lookUp LOOKUP_NEEDED(docker)')
    const verdict = suspect(answered('live'))
    expect(said(verdict)).toBe('keep LOOKUP_LIVE(docker)')
    expect(verdict.because[0]!.text).toBe('docker was asked and says live: given')
  }
})

test('1.2 async-status-as-live-set: reasons to keep are joined, and both must miss it', () => {
  const confirmedAt = ago(10 * MINUTE)
  const lease = held({ confirmedAt })
  // The list of A was begun before the Confirm; B sees it on the spot.
  const early = snapshots([13 * MINUTE, 12 * MINUTE, 11 * MINUTE], VERSION - 1)
  const a = (fields: Partial<WitnessEvidence> = {}) =>
    witness({ source: 'status', scopeNode: '', why: 'NAMED', vanishedAt: null, ...fields })
  const b = witness({ source: 'local' })
  expect(judged({ lease, witnesses: [a({ misses: early }), sees({ source: 'local' })] }).verdict).toBe('keep')
  // Also where B has gone silent, and nothing but A's old list is there.
  expect(said(judged({ lease, witnesses: [a({ misses: early }), b] }))).toBe('keep TOO_FEW_MISSES(status)')
  expect(said(judged({ lease, witnesses: [a(), b] }))).toBe('reap ABSENT(status) ABSENT(local)')
})

test('2.1 pending-workload-reaped: a hundred passes before the deadline take nothing', () => {
  const lease = held({ state: 'RESERVED', confirmedAt: null, reservedAt: ago(2 * HOUR), confirmBy: NOW })
  const missed = witness({
    why: 'NAMED',
    misses: snapshots(Array.from({ length: 8 }, (_, at) => (8 - at) * MINUTE)),
  })
  for (let pass = 0; pass < 100; pass++) {
    const now = NOW - 5 * MINUTE + pass * 3 * SECOND
    const lookup = { ...answered('gone'), at: now }
    expect(said(judged({ lease, now, witnesses: [{ ...missed, lookup }], lastSightedAt: null }))).toBe(
      'keep CONFIRM_PENDING',
    )
  }
  const now = NOW + 2 * MINUTE
  const lookup = { ...answered('gone'), at: now }
  expect(judged({ lease, now, witnesses: [{ ...missed, lookup }], lastSightedAt: null }).verdict).toBe('reap')
})

test('2.2 list-order: a snapshot begun before the lease contributes no miss, whenever it ended', () => {
  const begunBefore = snapshots([6 * MINUTE, 5 * MINUTE, 4 * MINUTE], TOKEN - 1)
  const lease = held({ version: TOKEN })
  for (const misses of [begunBefore, [...begunBefore].reverse()]) {
    expect(said(judged({ lease, witnesses: [witness({ misses })] }))).toBe('keep TOO_FEW_MISSES(agent-n1)')
  }
  const begunAt = snapshots([6 * MINUTE, 5 * MINUTE, 4 * MINUTE], TOKEN)
  expect(judged({ lease, witnesses: [witness({ misses: begunAt })] }).verdict).toBe('reap')
})

test('3.1 crash-loop-drains-pool: only lives that are over are freed', () => {
  const life = (incarnation: string) => ({ ...WEB, incarnation })
  const old = (address: string, incarnation: string) =>
    inQuarantine('SUPERSEDED', { address, owner: life(incarnation) })
  // Snapshots show the newest life only; its own look-up says that the older one is gone.
  const over = witness({ about: life('one') })
  const stillThere = sees({ about: life('two'), live: listed({ incarnation: 'two' }) })
  const current = sees({ about: life('three'), live: listed({ incarnation: 'three' }) })
  expect(judged({ lease: old('10.0.0.1', 'one'), witnesses: [over] }).verdict).toBe('reap')
  expect(judged({ lease: old('10.0.0.2', 'two'), witnesses: [stillThere] }).verdict).toBe('keep')
  expect(judged({ lease: held({ owner: life('three') }), witnesses: [current] }).verdict).toBe('keep')
  // An old life whose pod lives on elsewhere is gone only when its source says so of that life.
  const found = { ...over, lookup: answered('live') }
  expect(judged({ lease: old('10.0.0.1', 'one'), witnesses: [found] }).verdict).toBe('keep')
})

test('5.1 empty-map-after-restart: an empty list of a new boot only protects', () => {
  const leases = Array.from({ length: 200 }, (_, index) => held({ address: `10.0.1.${index}` }))
  const verdicts = (fields: Partial<WitnessEvidence>) =>
    leases.map(
      (lease) => judged({ lease, witnesses: [witness({ epoch: 'b2', warm: false, ...fields })] }).verdict,
    )
  // 0 entries, 10 entries, then all of them back; no epoch before warm-up makes a miss of anything.
  expect(new Set(verdicts({}))).toEqual(new Set(['keep']))
  expect(new Set(verdicts({ bootEnded: NEW_BOOT }))).toEqual(new Set(['keep']))
  expect(new Set(verdicts({ ...sees(), epoch: 'b2' }))).toEqual(new Set(['keep']))
})

test('5.4 only-one-family-visible: a source of v4 misses no v6', () => {
  const hundred = snapshots(Array.from({ length: 100 }, (_, index) => (101 - index) * 10 * SECOND))
  const source = { source: 'agent-v4', misses: hundred, vanishedAt: null }
  const v6 = held({ address: 'fd00::5', prefixLength: 128 })
  const blind = { ...source, canSee: false }
  expect(said(judged({ lease: v6, witnesses: [witness({ ...blind, why: 'COVERS' })] }))).toBe(
    'keep NOBODY_CAN_TELL',
  )
  expect(said(judged({ lease: v6, witnesses: [witness({ ...blind, why: 'NAMED' })] }))).toBe(
    'blocked CANNOT_SEE(agent-v4)',
  )
  // One that claims v6 and came after the lease: nobody misses what it never knew.
  const late = witness({ ...source, why: 'COVERS', enabledHead: VERSION })
  expect(said(judged({ lease: v6, witnesses: [late] }))).toBe('blocked PREDATES_SOURCE(agent-v4)')
  // The v4 half of the pair is judged by itself.
  expect(judged({ witnesses: [witness({ source: 'agent-v4' })] }).verdict).toBe('reap')
})

test('6.3 terminating-on-unreachable-node: silence keeps, a fence frees, a later report contradicts it', () => {
  const leases = Array.from({ length: 20 }, (_, index) =>
    inQuarantine('REMOVAL_UNCONFIRMED', { address: `10.0.2.${index}` }),
  )
  // Silent for an hour: what its agent last listed is still listed.
  const silent: Partial<LeaseEvidence> = {
    lastSightedAt: ago(HOUR),
    witnesses: [sees({ seen: [] })],
    placements: [{ node: 'n1', boot: 'b1', source: 'agent-n1' }],
  }
  for (const lease of leases) {
    expect(said(judged({ ...silent, lease }))).toBe('keep SEEN_LIVE(agent-n1)')
    const fenced = judged({ ...silent, lease, fencedBy: FENCE })
    expect(fenced).toMatchObject({ verdict: 'reap', proof: { cause: 'FENCED', token: TOKEN } })
    expect(fenced.because[0]!.text).toBe('ops fenced boot b1 of n1: powered off')
    expect(said(judged({ ...silent, lease, fencedBy: FENCE, lastSightedAt: ago(SECOND) }))).toBe(
      'keep FENCE_CONTRADICTED SEEN_LIVE(agent-n1)',
    )
  }
})

test('9.1 name-reused-by-successor: the verdict is about one lease, in every order of rows', () => {
  const life = (uid: string): Owner => owner({ name: 'default/db-0', uid })
  const orphan: Lease = held({ address: '10.0.0.1', fencingToken: 90, owner: life('uid-1') })
  const successor: Lease = held({ address: '10.0.0.2', fencingToken: 95, owner: life('uid-2') })
  const of = (lease: Lease) =>
    lease === orphan
      ? [witness({ about: life('uid-1') }), witness({ source: 'k8s', scopeNode: '', about: life('uid-1') })]
      : [sees({ about: life('uid-2') }), sees({ source: 'k8s', scopeNode: '', about: life('uid-2') })]
  for (const order of [
    [orphan, successor],
    [successor, orphan],
  ]) {
    for (const lease of order) {
      for (const witnesses of [of(lease), of(lease).toReversed()]) {
        const verdict = judged({ lease, witnesses })
        if (lease === successor) expect(verdict.verdict).toBe('keep')
        else expect(verdict).toMatchObject({ verdict: 'reap', proof: { token: 90, lease: orphan } })
      }
    }
  }
  // A successor of that name at the orphan's own address is another workload, and alive.
  const there = sees({ source: 'k8s', about: life('uid-2') })
  expect(judged({ lease: orphan, witnesses: [witness({ about: life('uid-1') }), there] }).verdict).toBe(
    'keep',
  )
})

test('9.2 wrong-location-recorded: booked on one node and seen on another, it is kept and the difference said', () => {
  const lease = held({ placement: { node: 'n1', boot: 'b1', labels: {} } })
  for (let minutes = 0; minutes <= 60; minutes++) {
    const now = NOW + minutes * MINUTE
    const verdict = judged({
      lease,
      now,
      lastSightedAt: now - SECOND,
      witnesses: [
        witness({ why: 'NAMED', lookup: { ...answered('gone'), at: now } }),
        sees({ source: 'agent-n2', scopeNode: 'n2', live: listed({ node: 'n2' }) }),
      ],
      placements: [{ node: 'n2', boot: 'b9', source: 'agent-n2' }],
    })
    expect(said(verdict)).toBe('keep SEEN_LIVE(agent-n2) SEEN_ELSEWHERE(agent-n2)')
    expect(verdict.because[1]!.text).toBe('booked on n1, and seen on n2 by agent-n2')
  }
})

test('12.2 reboot-wipes-half: a warm new boot takes back what the old one held, and nothing else', () => {
  const rebooted = witness({
    epoch: 'b2',
    misses: snapshots([50 * SECOND, 20 * SECOND]),
    bootEnded: NEW_BOOT,
  })
  const thirty = Array.from({ length: 30 }, (_, index) => held({ address: `10.0.3.${index}` }))
  for (const lease of thirty) {
    expect(said(judged({ lease, witnesses: [{ ...rebooted, lookup: null }] }))).toBe(
      'lookUp LOOKUP_NEEDED(agent-n1)',
    )
    expect(judged({ lease, witnesses: [rebooted] })).toMatchObject({
      verdict: 'reap',
      because: [{ code: 'PREVIOUS_BOOT' }],
      proof: { cause: 'PREVIOUS_BOOT', lease: { address: lease.address } },
    })
  }
  const reservedSince = held({ placement: { node: 'n1', boot: 'b2', labels: {} } })
  const afresh = { ...rebooted, bootEnded: null }
  expect(judged({ lease: reservedSince, witnesses: [afresh] }).verdict).toBe('keep')
  expect(judged({ witnesses: [{ ...rebooted, live: listed() }] }).verdict).toBe('keep')
})

test('16.5 legitimate-double-presence: it lives as long as either node sees it', () => {
  const vm = owner({ kind: 'vm', name: 'vm-1', uid: 'uid-1' })
  const lease = held({ owner: vm })
  const leftN1 = witness({ about: vm })
  const onN2 = sees({ source: 'agent-n2', scopeNode: 'n2', about: vm, live: listed({ node: 'n2' }) })
  const both = [sees({ about: vm }), onN2]
  expect(judged({ lease, witnesses: both }).verdict).toBe('keep')
  expect(said(judged({ lease, witnesses: [leftN1, onN2] }))).toBe(
    'keep SEEN_LIVE(agent-n2) SEEN_ELSEWHERE(agent-n2)',
  )
  // What n1 missed while n2 still saw it is no miss.
  const leftN2 = witness({ source: 'agent-n2', scopeNode: 'n2', about: vm, misses: THREE.slice(2) })
  const ended = { lease, witnesses: [leftN1, leftN2], lastSightedAt: ago(30 * SECOND) }
  expect(said(judged(ended))).toBe('keep TOO_FEW_MISSES(agent-n1) TOO_FEW_MISSES(agent-n2)')
  const both3 = [leftN1, { ...leftN2, misses: THREE }]
  expect(judged({ lease, witnesses: both3 }).verdict).toBe('reap')
})

test('16.8 collector-roll-out-on-old-data: what was imported is not judged, and is listed', () => {
  const nameOnly = owner({ name: 'default/old-0' })
  const lease = held({ owner: nameOnly, placement: { node: 'n1', boot: '', labels: {} } })
  for (const why of ['COVERS', 'NAMED'] as const) {
    expect(
      said(judged({ lease, imported: true, witnesses: [witness({ about: nameOnly, why, enabledHead: 1 })] })),
    ).toBe('blocked IMPORTED(agent-n1)')
  }
  // A rule in dry run changes nothing.
  expect(said(judged({ witnesses: [witness({ enabled: false })] }))).toBe('blocked NOT_ENABLED(agent-n1)')
  // Once it has been seen it is a lease like any other.
  expect(judged({ lease, imported: true, witnesses: [witness({ about: nameOnly })] }).verdict).toBe('reap')
})

test('1.3 equal-counts-assumed-equal-sets: as many addresses as the books have is no sighting of this one', () => {
  const stranger = sees({ source: 'docker', scopeNode: '', about: OTHER })
  expect(judged({ witnesses: [witness({ lookup: null })] }).verdict).toBe('lookUp')
  expect(judged({ witnesses: [witness(), stranger] }).verdict).toBe('keep')
})
