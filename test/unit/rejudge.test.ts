/** Reaps of the past, judged again from what their events store (INV-20, 15.2, 16.8). */
import { describe, expect, test } from 'vitest'
import type { Evidence, Json } from '../../src/core/event.ts'
import { judgeHeld, type LeaseEvidence } from '../../src/core/judge.ts'
import { judgePolicy } from '../../src/core/policy.ts'
import {
  groundOf,
  isAsStored,
  judgeAgain,
  type StoredVerdict,
  storedVerdict,
} from '../../src/core/rejudge.ts'
import {
  ago,
  evidence,
  FENCE,
  held,
  inQuarantine,
  NEW_BOOT,
  NOW,
  OTHER,
  sees,
  TOKEN,
  witness,
} from '../support/evidence.ts'
import { HOUR, MINUTE, SECOND } from '../support/given.ts'

/** As the log has it: what the judge proved, as JSON. */
function reaped(fields: Partial<LeaseEvidence> = {}, policy = judgePolicy()): StoredVerdict {
  const verdict = judgeHeld(evidence(fields), policy)
  if (!('proof' in verdict)) throw new Error(`${verdict.verdict}`)
  const { proof, because } = verdict
  const sources = because.flatMap(({ source }) => source ?? [])
  return stored(proof.cause, JSON.parse(JSON.stringify({ reason: proof.cause, sources, proof })))
}

function stored(cause: string, of: Evidence | null, at = NOW + SECOND): StoredVerdict {
  return { network: 'default', address: '10.0.0.5', token: TOKEN, at, cause, evidence: of }
}

function again(of: StoredVerdict, policy = null as ReturnType<typeof judgePolicy> | null) {
  const ground = groundOf(of)
  if (ground.kind === 'word' || ground.kind === 'unreadable') throw new Error(JSON.stringify(ground))
  return { ground, ...judgeAgain(ground, of.at, policy) }
}

/** The proof in it, changed. */
function changed(of: StoredVerdict, change: (proof: Record<string, Json>) => void): StoredVerdict {
  const copy = structuredClone(of) as unknown as { evidence: { proof: Record<string, Json> } }
  change(copy.evidence.proof)
  return copy as unknown as StoredVerdict
}

describe('each ground comes to what was done', () => {
  test.each([
    ['PROVEN_ABSENT', reaped()],
    ['PREVIOUS_BOOT', reaped({ witnesses: [witness({ bootEnded: NEW_BOOT, misses: [] })] })],
    ['FENCED', reaped({ fencedBy: FENCE, witnesses: [] })],
    [
      'SEEN_ALONE',
      reaped({ lease: inQuarantine('SECOND_ADDRESS'), othersSightedAt: null, witnesses: [sees()] }),
    ],
  ])('%s', (cause, of) => {
    const { ground, ...judged } = again(of)
    expect(judged.cause).toBe(cause)
    expect(isAsStored(judged, ground)).toBe(true)
    expect(storedVerdict(ground)).toBe(cause === 'SEEN_ALONE' ? 'restore' : 'reap')
  })
})

test('by a stricter policy it is kept, and the judge says why', () => {
  const of = reaped()
  expect(again(of, judgePolicy({ misses: 5 }))).toMatchObject({
    verdict: 'keep',
    cause: null,
    because: [{ code: 'TOO_FEW_MISSES' }],
  })
  expect(again(of, judgePolicy({ minimumAgeMs: 3 * HOUR }))).toMatchObject({
    because: [{ code: 'TOO_YOUNG' }],
  })
  expect(again(of, judgePolicy({ misses: 2 }))).toMatchObject({ verdict: 'reap' })
})

test('by the policy of its day what is no proof any more comes to something else', () => {
  const loose = reaped({}, judgePolicy({ misses: 2 }))
  expect(again(loose)).toMatchObject({ verdict: 'reap' })
  const forged = changed(loose, (proof) => {
    proof.policy = { ...(proof.policy as object), misses: 4 } as Json
  })
  const { ground, ...judged } = again(forged)
  expect(judged.verdict).toBe('keep')
  expect(isAsStored(judged, ground)).toBe(false)
})

describe('a proof stored before a rule is judged by the rules of its day', () => {
  const unnumbered = (of: StoredVerdict) =>
    changed(of, (proof) => {
      delete proof.rules
    })
  const absent = reaped({ lease: held({ reservedAt: ago(2 * HOUR) }) })
  const other = witness({ source: 'docker', scopeNode: '', about: OTHER })
  const alone = reaped({
    lease: inQuarantine('CONFLICT'),
    lastSightedAt: ago(20 * SECOND),
    othersSightedAt: ago(3 * MINUTE),
    witnesses: [sees(), other],
  })
  const fenced = reaped({ fencedBy: FENCE, witnesses: [] })
  const withSources = (of: StoredVerdict, fields: Record<string, Json>) =>
    changed(of, (proof) => {
      proof.sources = (proof.sources as unknown as readonly Record<string, Json>[]).map((source) => ({
        ...source,
        ...fields,
      })) as Json
    })

  test.each([
    ['named, and of another node', 'reap', withSources(absent, { why: 'NAMED', scopeNode: 'n2' })],
    [
      'nobody was asked after',
      'restore',
      changed(alone, (proof) => {
        const sources = proof.sources as unknown as readonly Record<string, Json>[]
        proof.sources = sources.map((source) => ({ ...source, lookup: null })) as Json
      }),
    ],
    [
      'another had been seen by one that was retired',
      'reap',
      changed(fenced, (proof) => {
        proof.retired = [{ source: 'old', about: OTHER, scopeNode: '' }] as unknown as Json
      }),
    ],
  ] as const)('%s', (_, verdict, of) => {
    expect(again(unnumbered(of)).verdict).toBe(verdict)
    expect(again(of).verdict).not.toBe(verdict)
  })

  test('a node that had not seen what another had', () => {
    const rebooted = reaped({
      lease: held({ confirmedAt: ago(HOUR) + 1 }),
      witnesses: [
        witness({ bootEnded: NEW_BOOT }),
        witness({ source: 'k8s', scopeNode: '', misses: [], lookup: null }),
      ],
    })
    const unseenByItsNode = (rules: number) =>
      changed(rebooted, (proof) => {
        const [node, ...others] = proof.sources as unknown as readonly Record<string, Json>[]
        proof.sources = [{ ...node, why: 'NAMED' }, ...others] as Json
        proof.rules = rules
      })
    expect(again(unseenByItsNode(2)).verdict).toBe('reap')
    expect(again(unseenByItsNode(3)).verdict).toBe('keep')
  })
})

describe('a proof stored by an earlier version', () => {
  // As the first version that stored proofs wrote them, before stopped workloads, standing answers and reports of a
  // fenced boot were asked for.
  const OLD = {
    reason: 'PROVEN_ABSENT',
    sources: ['agent-n1'],
    proof: {
      cause: 'PROVEN_ABSENT',
      at: NOW,
      token: 100,
      version: 110,
      policy: {
        misses: 3,
        minimumAgeMs: 300_000,
        unwitnessedAgeMs: 3_600_000,
        terminalGraceMs: 300_000,
        proofAgeMs: 60_000,
        confirmGraceMs: 60_000,
      },
      lease: {
        network: 'default',
        poolId: 7,
        address: '10.0.0.5',
        prefixLength: 32,
        fencingToken: 100,
        version: 110,
        state: 'ACTIVE',
        quarantine: null,
        owner: { kind: 'pod', name: 'a', uid: 'u', uidNamed: true, incarnation: '', interface: 'eth0' },
        placement: { node: 'n1', boot: 'b1', labels: {} },
        witness: '',
        reservedAt: ago(2 * HOUR),
        confirmedAt: ago(2 * HOUR),
        confirmBy: null,
      },
      era: 0,
      recovering: false,
      lastSightedAt: ago(10 * MINUTE),
      othersSightedAt: null,
      imported: false,
      ownerClosed: false,
      fencedBy: null,
      placements: [],
      sources: [
        {
          source: 'agent-n1',
          scopeNode: 'n1',
          enabled: true,
          epoch: 'b1',
          warm: true,
          era: 0,
          held: false,
          canSee: true,
          enabledHead: 50,
          why: 'SIGHTED',
          about: { kind: 'pod', name: 'a', uid: 'u', uidNamed: true, incarnation: '', interface: 'eth0' },
          live: null,
          listedTerminal: null,
          vanishedAt: ago(80_000),
          seen: [],
          misses: [80_000, 50_000, 20_000].map((age, at) => ({
            sequence: 41 + at,
            head: 110,
            begunAt: ago(age),
          })),
          lookup: { answer: 'gone', at: ago(5_000), detail: 'not found' },
          bootEnded: null,
        },
      ],
    },
  }
  const old = stored('PROVEN_ABSENT', OLD)

  test('is judged as it was then', () => {
    const { ground, ...judged } = again(old)
    expect(isAsStored(judged, ground)).toBe(true)
    expect(again(old, judgePolicy({ misses: 4 }))).toMatchObject({ verdict: 'keep' })
  })

  test('of an address whose owner nobody knew, too: nobody asked then about the stopped', () => {
    const foreign = changed(old, (proof) => {
      const lease = proof.lease as Record<string, Json>
      lease.owner = null
      lease.state = 'QUARANTINED'
      lease.quarantine = { reason: 'FOREIGN', at: ago(2 * HOUR), by: 'agent-n1', why: '' }
      const [source] = proof.sources as [Record<string, Json>]
      source.about = null
      source.lookup = null
    })
    const { ground, ...judged } = again(foreign)
    expect(isAsStored(judged, ground)).toBe(true)
  })

  test('that lacks what was always asked cannot be judged, and says what it lacks', () => {
    for (const [name, of] of [
      [
        'its proof lacks lastSightedAt, sources',
        changed(old, (proof) => {
          delete proof.lastSightedAt
          delete proof.sources
        }),
      ],
      [
        'source "agent-n1" of its proof lacks misses',
        changed(old, (proof) => {
          delete (proof.sources as [Record<string, Json>])[0].misses
        }),
      ],
      [
        'its proof is not of the form of a proof',
        changed(old, (proof) => {
          proof.lease = 'gone'
        }),
      ],
      ['its proof is no object', stored('PROVEN_ABSENT', { ...OLD, proof: 1 })],
      [
        'nothing is known of the ground "TIRED"',
        changed(old, (proof) => {
          proof.cause = 'TIRED'
        }),
      ],
      ['it has no evidence', stored('PROVEN_ABSENT', null)],
      ['nothing is known of the reason "TIRED"', stored('TIRED', { reason: 'TIRED' })],
    ] as const) {
      expect(groundOf(of)).toEqual({ kind: 'unreadable', why: name })
    }
  })

  test('speaks for no other lease', () => {
    for (const other of [
      { ...old, token: 7 },
      { ...old, address: '10.0.0.9' },
      { ...old, cause: 'FENCED' },
    ]) {
      expect(groundOf(other)).toMatchObject({
        kind: 'unreadable',
        why: 'its proof is about default/100 at 10.0.0.5, and says PROVEN_ABSENT',
      })
    }
  })
})

describe('without a proof', () => {
  test('an operator’s word is no judgement', () => {
    expect(groundOf(stored('Reap', { reason: 'OPERATOR', why: 'gone', version: 3 }))).toEqual({
      kind: 'word',
    })
  })

  test('what was never confirmed was reaped after its deadline and grace, and by a longer grace would not have been', () => {
    const confirmBy = new Date(ago(2 * MINUTE)).toISOString()
    const of = stored(
      'NEVER_CONFIRMED',
      { reason: 'NEVER_CONFIRMED', confirmBy, graceMs: MINUTE, version: 3 },
      NOW,
    )
    const { ground, ...judged } = again(of)
    expect(isAsStored(judged, ground)).toBe(true)
    expect(again(of, judgePolicy({ confirmGraceMs: 3 * MINUTE }))).toMatchObject({
      verdict: 'keep',
      because: [{ code: 'CONFIRM_PENDING', text: 'may still have been confirmed for 60 s' }],
    })
    expect(again({ ...of, at: ago(MINUTE) })).toMatchObject({ verdict: 'keep' })
    expect(groundOf(stored('NEVER_CONFIRMED', { reason: 'NEVER_CONFIRMED' }))).toMatchObject({
      kind: 'unreadable',
    })
  })
})

test('the lease of the evidence is the one the tests speak of', () => {
  expect(held()).toMatchObject({ address: '10.0.0.5', fencingToken: TOKEN })
})
