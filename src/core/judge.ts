/**
 * Whether nothing uses a held lease any more. Pure: the image, how its sources stand, what they answered, the time.
 *
 * Everything that is in doubt is alive: silence, an error, a source that is not enabled or not warm, no witness at all.
 * Each rule is a value in a list and says why the lease is kept; a lease that no rule keeps is reaped. Where only answers
 * are lacking, the witnesses are to be asked.
 */
import type { Counted, Freshness, LookUp } from './command.ts'
import { type AddressRecord, type Entry, type SourceDeclaration, TERMINAL } from './event.ts'
import {
  type HeldRecord,
  type Image,
  isListed,
  isLive,
  type Sighting,
  type SourceState,
  sightingsOf,
} from './image.ts'
import { describeOwner, isListedAs, type Owner } from './owner.ts'
import { POLICY, type ReapPolicy, reapPolicy } from './policy.ts'
import type { RuleName } from './rules.ts'

export type ReasonCode =
  | 'OPERATOR'
  | 'INFRASTRUCTURE'
  | 'LISTED_LIVE'
  | 'NO_WITNESS'
  | 'WITNESS_NOT_ENABLED'
  | 'WITNESS_NOT_WARM'
  | 'TOO_FEW_REPORTS'
  | 'LOOK_UP_WANTED'
  | 'LOOK_UP_ALIVE'
  | 'LOOK_UP_FAILED'
  | 'TERMINAL_GRACE'
  | 'TOO_YOUNG'

export type Reason = { readonly code: ReasonCode; readonly source: string; readonly text: string }

/** A question to a source: does this workload still exist? */
export type Question = {
  readonly source: string
  readonly address: string
  readonly owner: Owner
  readonly node: string
}

export type Judgement = {
  /** `ask`: only answers are lacking. */
  readonly verdict: 'keep' | 'ask' | 'reap'
  readonly because: readonly Reason[]
  readonly questions: readonly Question[]
  readonly proof: Proof
}

export type Evidence = {
  readonly image: Image
  readonly now: number
  readonly freshness: (source: string) => Freshness | undefined
  /** Of the lease's address. */
  readonly lookUps: readonly LookUp[]
  readonly without: ReadonlySet<RuleName>
  /** Overrides what the lease's pool sets: to judge again under another policy. */
  readonly policy?: Partial<ReapPolicy>
}

type Witness = {
  readonly id: string
  readonly isEnabled: boolean
  /** It has reported in this epoch and era, with its warm-up behind it. */
  readonly isWarm: boolean
  /** It covers the lease, or has listed its owner where it is placed: of whom it never saw it proves nothing. */
  readonly couldSee: boolean
  /** Number of the log after which it must miss the lease. */
  readonly since: number
  /** Counted reports without anyone there, oldest first. */
  readonly missed: readonly Counted[]
  /** Whom it can be asked for: of kinds that it sees, or listed there by itself. */
  readonly parties: readonly Owner[]
}

/** All that a verdict rests on. Plain JSON: it is the proof in the event, and is judged again from there. */
export type Proof = {
  readonly record: HeldRecord
  readonly judgedAt: number
  readonly recoveredAt: number | null
  readonly policy: ReapPolicy
  readonly sightings: readonly Sighting[]
  readonly witnesses: readonly Witness[]
  readonly lookUps: readonly LookUp[]
}

type Rule = { readonly name: RuleName; readonly keeps: (proof: Proof) => readonly Reason[] }

const because = (code: ReasonCode, source: string, text: string): Reason => ({ code, source, text })

/** The rules, in the order in which their reasons are told. */
export const JUDGE_RULES: readonly Rule[] = [
  {
    name: 'OPERATOR_AND_INFRASTRUCTURE_STAY',
    keeps: ({ record }) => {
      if (record.quarantine?.reason === 'OPERATOR' && record.state === 'QUARANTINED')
        return [because('OPERATOR', '', 'an operator quarantined it, and only an operator ends it')]
      return record.owner?.kind === 'infrastructure'
        ? [because('INFRASTRUCTURE', '', 'infrastructure is never taken back on proof')]
        : []
    },
  },
  {
    name: 'DOUBT_IS_LIFE',
    keeps: ({ sightings, witnesses }) => [
      ...sightings
        .filter(isLive)
        .map(({ source, owner }) =>
          because(
            'LISTED_LIVE',
            source,
            `${source} lists ${owner === null ? 'somebody' : describeOwner(owner)} there`,
          ),
        ),
      ...(!witnesses.some(({ couldSee }) => couldSee)
        ? [because('NO_WITNESS', '', 'no enabled source could have seen it')]
        : []),
      ...witnesses.flatMap(({ id, isEnabled, isWarm }) => {
        if (!isEnabled) return [because('WITNESS_NOT_ENABLED', id, `${id} is not enabled`)]
        return isWarm
          ? []
          : [because('WITNESS_NOT_WARM', id, `${id} is warming up, or has not reported in this era`)]
      }),
    ],
  },
  {
    name: 'AGE_OF_THE_LAST_CHANGE',
    keeps: ({ record, sightings, policy, judgedAt, recoveredAt }) => {
      const isUnseen = record.state !== 'QUARANTINED' && sightings.length === 0
      const age = isUnseen ? policy.unwitnessedAgeMs : policy.minimumAgeMs
      const since = Math.max(record.at, recoveredAt ?? 0)
      const until = confirmableUntil(record, policy.confirmGraceMs)
      // A promise in force is life, whatever the pool's ages: its caller may use the address and confirm.
      if (until !== null && judgedAt <= until)
        return [because('TOO_YOUNG', '', `it may be confirmed for another ${seconds(until - judgedAt)}`)]
      return judgedAt - since > age
        ? []
        : [
            because(
              'TOO_YOUNG',
              '',
              `its last change is ${seconds(judgedAt - since)} old, ${seconds(age)} are wanted`,
            ),
          ]
    },
  },
  {
    name: 'EVERY_WITNESS_MISSES',
    keeps: ({ witnesses, policy: { misses } }) =>
      witnesses
        .filter(({ missed }) => missed.length < misses)
        .map(({ id, missed }) =>
          because(
            'TOO_FEW_REPORTS',
            id,
            `${id} has missed it in ${missed.length} of ${misses} counted reports`,
          ),
        ),
  },
  {
    name: 'LOOK_UP_SAYS_GONE',
    keeps: (proof) =>
      proof.witnesses.flatMap((witness) =>
        witness.parties.flatMap((party) => answered(proof, witness, party)),
      ),
  },
]

/** When a promise is broken: after its deadline, a Confirm in flight and the drift of its caller's clock; null: none is in force. */
export function confirmableUntil(
  { state, confirmBy, reservedAt }: AddressRecord,
  confirmGraceMs: number,
): number | null {
  if (state !== 'RESERVED' || confirmBy === null) return null
  return confirmBy + Math.max(confirmGraceMs, (confirmBy - reservedAt) * POLICY.confirmGraceShare)
}

/** Everybody known who may be there: the owner, and whom sources saw since the lease was made. */
function partiesOf(record: HeldRecord, sightings: readonly Sighting[]): readonly Owner[] {
  const parties = new Map<string, Owner>()
  for (const owner of [record.owner, ...sightings.map((sighting) => sighting.owner)])
    if (owner !== null) parties.set(`${owner.kind}\u001f${owner.uid}`, owner)
  return [...parties.values()]
}

/** Whether a witness has said of a party, after the last of its reports without it, that it is gone or has ended. */
function answered(proof: Proof, { id, missed }: Witness, party: Owner): readonly Reason[] {
  const { record, policy, judgedAt } = proof
  const reason = (code: ReasonCode, text: string) => [
    because(code, id, `${id}: ${describeOwner(party)} ${text}`),
  ]
  const isParty = ({ kind, uid }: { readonly kind: string; readonly uid: string }) =>
    kind === party.kind && uid === party.uid
  const listed = proof.sightings.find(
    ({ source, owner, state, vanishedSeq }) =>
      source === id && state === TERMINAL && vanishedSeq === null && owner !== null && isParty(owner),
  )
  const last = proof.lookUps.find(
    ({ source, address, owner }) => source === id && address === record.address && isParty(owner),
  )
  if (listed === undefined) {
    const asked = missed.filter(
      ({ head, at }) => last !== undefined && head <= last.head && at <= last.askedAt,
    )
    if (last === undefined || asked.length < policy.misses)
      return reason('LOOK_UP_WANTED', 'is to be asked for')
    if (last.answer === 'gone') return []
    if (last.answer === 'wanted') return reason('LOOK_UP_WANTED', 'was asked for, and there is no answer yet')
    if (last.answer === 'error') return reason('LOOK_UP_FAILED', `could not be asked for: ${last.detail}`)
    if (last.answer !== 'terminal') return reason('LOOK_UP_ALIVE', `is ${last.answer}`)
  }
  const ago = judgedAt - (listed?.terminalAt ?? last!.terminalSince ?? judgedAt)
  const { terminalGraceMs } = policy
  if (ago > terminalGraceMs) return []
  return reason('TERMINAL_GRACE', `ended ${seconds(ago)} ago, ${seconds(terminalGraceMs)} are waited`)
}

export function judge(
  evidence: Evidence,
  record: HeldRecord,
  coverage = coverageOf(evidence.image),
): Judgement {
  return judgeProof(proofOf(evidence, record, coverage), evidence.without)
}

/** Judges by a proof alone, also one out of an event of years ago, also under another policy. */
export function judgeProof(proof: Proof, without: ReadonlySet<RuleName> = new Set()): Judgement {
  const reasons = JUDGE_RULES.filter(({ name }) => !without.has(name)).flatMap(({ keeps }) => keeps(proof))
  const wanted = reasons.filter(({ code }) => code === 'LOOK_UP_WANTED')
  const { address, node } = proof.record
  return {
    verdict: reasons.length === 0 ? 'reap' : wanted.length === reasons.length ? 'ask' : 'keep',
    because: reasons,
    questions: proof.witnesses
      .filter(({ id }) => wanted.some(({ source }) => source === id))
      .flatMap(({ id, parties }) => parties.map((owner) => ({ source: id, address, owner, node }))),
    proof,
  }
}

function proofOf(evidence: Evidence, record: HeldRecord, coverage: Coverage): Proof {
  const { image, now, policy, lookUps } = evidence
  const { pool } = image.pools.get(record.poolId)!
  const sightings = sightingsOf(image, record.address)
  const covering = new Set(coverage(record, pool.family).map(({ declaration }) => declaration.id))
  const ids = new Set([...sightings.map(({ source }) => source), ...covering])
  return {
    record,
    judgedAt: now,
    recoveredAt: image.network!.recoveredAt,
    policy: { ...reapPolicy(pool.reapPolicy), ...policy },
    sightings,
    witnesses: [...ids].sort().map((id) => witnessOf(evidence, record, id, sightings, covering)),
    lookUps,
  }
}

function witnessOf(
  { image, freshness }: Evidence,
  record: HeldRecord,
  id: string,
  all: readonly Sighting[],
  covering: ReadonlySet<string>,
): Witness {
  const source = image.sources.get(id)!
  const fresh = freshness(id)
  const isPresent = fresh?.epoch === source.epoch?.name && fresh?.era === image.network!.era
  const own = all.filter((one) => one.source === id)
  const since = own.reduce((seq, one) => Math.max(seq, one.vanishedSeq ?? one.terminalSeq ?? 0), record.seq)
  return {
    id,
    isEnabled: source.state === 'ENABLED',
    couldSee: covering.has(id) || own.some((one) => couldSee(source, record, one)),
    parties: partiesOf(record, all).filter(
      ({ kind, uid }) =>
        source.declaration.ownerKinds.includes(kind) ||
        own.some(({ owner }) => owner?.kind === kind && owner.uid === uid),
    ),
    isWarm: isPresent && fresh!.warm,
    since,
    missed: isPresent ? fresh!.counted.filter(({ head }) => head >= since) : [],
  }
}

// Who could see what.

/** Enabled sources that cover a lease and were enabled before it was made. */
export type Coverage = (record: HeldRecord, family: 4 | 6) => readonly SourceState[]

/** Worked out once for many leases. */
export function coverageOf(image: Image): Coverage {
  const wide: SourceState[] = []
  const byNode = new Map<string, SourceState[]>()
  for (const source of image.sources.values()) {
    if (source.state !== 'ENABLED') continue
    const { node } = source.declaration
    if (node === '') wide.push(source)
    else byNode.set(node, [...(byNode.get(node) ?? []), source])
  }
  return (record, family) => {
    const near = record.node === '' ? [] : (byNode.get(record.node) ?? [])
    return [...wide, ...near].filter(
      ({ declaration, enabledSeq }) =>
        enabledSeq! < record.token &&
        declaration.families.includes(family) &&
        (record.owner === null || declaration.ownerKinds.includes(record.owner.kind)),
    )
  }
}

export function coversNode({ node: seen }: SourceDeclaration, node: string): boolean {
  return seen === '' || seen === node
}

/** It has reported completely within two intervals, in this era and epoch, with its warm-up behind it. */
export function isFresh(
  source: SourceState,
  fresh: Freshness | undefined,
  era: number,
  now: number,
): boolean {
  return (
    fresh?.warm === true &&
    fresh.era === era &&
    fresh.epoch === source.epoch?.name &&
    fresh.completeAt !== null &&
    now - fresh.completeAt <= POLICY.freshIntervals * source.declaration.intervalMs
  )
}

/** Whether a source could say that a lease's owner is gone: it covers the lease, or has listed its owner there. */
export function hasWitness(image: Image, record: HeldRecord, coverage: Coverage, except = ''): boolean {
  const { family } = image.pools.get(record.poolId)!.pool
  return (
    coverage(record, family).some(({ declaration }) => declaration.id !== except) ||
    sightingsOf(image, record.address).some(
      (one) => one.source !== except && couldSee(image.sources.get(one.source)!, record, one),
    )
  )
}

/** Whether who listed somebody there listed the lease's owner, and where the lease is placed now. */
function couldSee({ declaration }: SourceState, { node, owner }: HeldRecord, listed: Sighting): boolean {
  if (node !== '' && !coversNode(declaration, node)) return false
  return owner === null || (listed.owner !== null && isListedAs(owner, listed.owner))
}

/** A held lease that no source lists live is to be judged. */
export function isSuspect(image: Image, record: HeldRecord): boolean {
  return !isListed(image, record.address)
}

// What is written down.

export function entryOf({ address, owner, node, state }: Sighting): Entry {
  return {
    address,
    ...(owner !== null && {
      kind: owner.kind,
      name: owner.name,
      uid: owner.uid,
      ...(owner.incarnation !== '' && { incarnation: owner.incarnation }),
      ...(owner.interface !== '' && { interface: owner.interface }),
    }),
    ...(node !== '' && { node }),
    ...(state !== '' && { state }),
  }
}

function seconds(ms: number): string {
  return `${Math.floor(ms / 1_000)} s`
}
