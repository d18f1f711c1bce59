/**
 * Whether nothing uses a held lease any more. Pure: the image, the reports and answers of sources, the time.
 *
 * Everything that is in doubt is alive: silence, an error, a source that is not enabled or not warm, no witness at all.
 * Each rule is a value in a list and says why the lease is kept; a lease that no rule keeps is reaped. Where only answers
 * are missing, the witnesses are to be asked.
 */
import {
  type Coverage,
  coverageOf,
  currentReports,
  type Present,
  seesKind,
  witnessesOf,
} from './attention.ts'
import type { Counted, LookUp } from './command.ts'
import { type AddressRecord, type Entry, TERMINAL } from './event.ts'
import { evidenceAt, type HeldRecord, isLive, type Sighting } from './image.ts'
import { mayFollow } from './lifecycle.ts'
import { describeOwner, type Owner } from './owner.ts'
import { POLICY, type ReapPolicy, reapPolicy } from './policy.ts'

/** Why a lease is kept; the code is stable. */
export type Reason = { readonly code: string; readonly source: string; readonly text: string }

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

export type Evidence = Present & {
  readonly lookUps: readonly LookUp[]
  readonly guards: { readonly reap: readonly JudgeRule[] }
}

type Witness = {
  readonly id: string
  readonly isEnabled: boolean
  readonly enabledAt: number | null
  /** It has reported in this epoch and era, with its warm-up behind it. */
  readonly isWarm: boolean
  /** It covers the lease, or has listed its owner where it is placed. */
  readonly couldSee: boolean
  /** Number of the log after which it must miss the lease. */
  readonly since: number
  /** Counted reports without anyone there, oldest first. */
  readonly missed: readonly Counted[]
  /** Owners that it can be asked for: of kinds that it sees, or listed there by itself. */
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

export type JudgeRule = {
  readonly name: Uppercase<string>
  /** It goes by reports and answers, which the image has not. */
  readonly reads?: true
  readonly keeps: (proof: Proof) => Iterable<Reason>
}

const because = (code: string, source: string, text: string): Reason => ({ code, source, text })

export const JUDGE_RULES = [
  {
    name: 'OPERATOR_AND_INFRASTRUCTURE_STAY',
    *keeps({ record }) {
      const { quarantine, owner } = record
      if (!mayFollow('proveAbsent', record))
        yield because(quarantine!.reason, '', `${quarantine!.why}: only an operator ends it`)
      else if (owner?.kind === 'infrastructure')
        yield because('INFRASTRUCTURE', '', 'infrastructure is never taken back on proof')
    },
  },
  {
    name: 'DOUBT_IS_LIFE',
    *keeps({ sightings, witnesses }) {
      for (const { source, owner } of sightings.filter(isLive)) {
        const listed = owner === null ? 'somebody' : describeOwner(owner)
        yield because('LISTED_LIVE', source, `${source} lists ${listed} there`)
      }
      if (!witnesses.some(({ couldSee }) => couldSee))
        yield because('NO_WITNESS', '', 'no enabled source could have seen it')
      for (const { id, isEnabled, isWarm } of witnesses) {
        if (!isEnabled) yield because('WITNESS_NOT_ENABLED', id, `${id} is not enabled`)
        else if (!isWarm)
          yield because('WITNESS_NOT_WARM', id, `${id} is warming up, or has not reported in this era`)
      }
    },
  },
  {
    name: 'AGE_OF_THE_LAST_CHANGE',
    *keeps({ record, sightings, policy, judgedAt, recoveredAt, witnesses, lookUps }) {
      const isUnseen = record.state !== 'QUARANTINED' && sightings.length === 0
      const age = isUnseen ? policy.unwitnessedAgeMs : policy.minimumAgeMs
      const enabled = isUnseen ? witnesses.map(({ enabledAt }) => enabledAt ?? 0) : []
      // A promise in force is life, whatever the pool's ages: its caller may use the address and confirm.
      const young = Math.max(
        Math.max(record.at, recoveredAt ?? 0, ...enabled) + age,
        confirmableUntil(record, policy.confirmGraceMs) ?? 0,
      )
      if (judgedAt <= young)
        yield because('TOO_YOUNG', '', `it counts as alive for at least another ${seconds(young - judgedAt)}`)
      // What was missed or asked before then says nothing of what may have started since.
      else
        for (const { id, missed, parties } of witnesses) {
          if (missed.length > 0 && missed.at(-1)!.at <= young)
            yield because('TOO_YOUNG', id, `${id} has not reported since its last change was old enough`)
          const isEarly = ({ source, owner, askedAt }: LookUp) =>
            source === id && askedAt <= young && parties.some((party) => isParty(party, owner))
          if (lookUps.some(isEarly))
            yield because('LOOK_UP_WANTED', id, `${id} was asked too early, and is to be asked again`)
        }
    },
  },
  {
    name: 'EVERY_WITNESS_MISSES',
    reads: true,
    *keeps({ witnesses, policy: { misses } }) {
      for (const { id, missed } of witnesses.filter((one) => one.missed.length < misses)) {
        const text = `${id} has sent ${missed.length} of the ${misses} counted reports in which it must be missing`
        yield because('TOO_FEW_REPORTS', id, text)
      }
    },
  },
  {
    name: 'LOOK_UP_SAYS_GONE',
    reads: true,
    *keeps(proof) {
      for (const witness of proof.witnesses)
        for (const party of witness.parties) {
          const doubt = doubtOf(proof, witness, party)
          if (doubt !== null)
            yield because(doubt.code, witness.id, `${witness.id}: ${describeOwner(party)} ${doubt.text}`)
        }
    },
  },
] as const satisfies readonly JudgeRule[]

/** When a promise is broken: after its deadline, a Confirm in flight and the drift of its caller's clock; null: none is in force. */
export function confirmableUntil(
  { state, confirmBy, reservedAt }: AddressRecord,
  confirmGraceMs: number,
): number | null {
  if (state !== 'RESERVED' || confirmBy === null) return null
  return confirmBy + Math.max(confirmGraceMs, (confirmBy - reservedAt) * POLICY.confirmGraceShare)
}

function isParty(party: Owner, seen: Pick<Owner, 'kind' | 'uid'> | null): boolean {
  return seen?.kind === party.kind && seen.uid === party.uid
}

/** All that may be there: the owner, and owners that sources saw since the lease was made. */
function partiesOf(record: HeldRecord, sightings: readonly Sighting[]): readonly Owner[] {
  const parties = new Map<string, Owner>()
  for (const owner of [record.owner, ...sightings.map((sighting) => sighting.owner)])
    if (owner !== null) parties.set(`${owner.kind}\u001f${owner.uid}`, owner)
  return [...parties.values()]
}

/** Null: a witness has said of a party, after the last of its reports without it, that it is gone or has ended. */
function doubtOf(proof: Proof, { id, missed }: Witness, party: Owner): Omit<Reason, 'source'> | null {
  const { record, policy, judgedAt, sightings, lookUps } = proof
  const listed = sightings.find(
    ({ source, owner, state, vanishedSeq }) =>
      source === id && state === TERMINAL && vanishedSeq === null && isParty(party, owner),
  )
  const last = lookUps.find(
    ({ source, address, owner }) => source === id && address === record.address && isParty(party, owner),
  )
  if (listed === undefined) {
    const proving = missed.slice(0, policy.misses)
    if (last === undefined || proving.some(({ head, at }) => head > last.head || at > last.askedAt))
      return { code: 'LOOK_UP_WANTED', text: 'is to be asked for' }
    if (last.answer === 'gone') return null
    if (last.answer === 'wanted')
      return { code: 'LOOK_UP_WANTED', text: 'was asked for, and there is no answer yet' }
    if (last.answer === 'error')
      return { code: 'LOOK_UP_FAILED', text: `could not be asked for: ${last.detail}` }
    if (last.answer !== 'terminal') return { code: 'LOOK_UP_ALIVE', text: `is ${last.answer}` }
  }
  const ago = judgedAt - (listed?.terminalAt ?? last!.terminalSince ?? judgedAt)
  if (ago > policy.terminalGraceMs) return null
  const text = `ended ${seconds(ago)} ago, ${seconds(policy.terminalGraceMs)} are waited`
  return { code: 'TERMINAL_GRACE', text }
}

export function judge(
  evidence: Evidence,
  record: HeldRecord,
  coverage = coverageOf(evidence.image),
): Judgement {
  return judgeProof(proofOf(evidence, record, coverage), evidence.guards.reap)
}

/** Judges by a proof alone, also one out of an event of years ago, also under another policy. */
export function judgeProof(proof: Proof, rules: readonly JudgeRule[] = JUDGE_RULES): Judgement {
  const reasons = rules.flatMap(({ keeps }) => [...keeps(proof)])
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
  const { image, now, lookUps } = evidence
  const { pool } = image.pools.get(record.poolId)!
  const sightings = evidenceAt(image, record.address)
  const seeing = witnessesOf(image, record, coverage)
  const ids = new Set([...sightings.map(({ source }) => source), ...seeing])
  return {
    record,
    judgedAt: now,
    recoveredAt: image.network!.recoveredAt,
    policy: reapPolicy(pool.reapPolicy),
    sightings,
    witnesses: [...ids].sort().map((id) => witnessOf(evidence, record, id, sightings, seeing.has(id))),
    lookUps,
  }
}

function witnessOf(
  { image, freshness }: Evidence,
  record: HeldRecord,
  id: string,
  all: readonly Sighting[],
  couldSee: boolean,
): Witness {
  const source = image.sources.get(id)!
  const fresh = currentReports(image.network!.era, source, freshness(id))
  const own = all.filter((one) => one.source === id)
  const since = own.reduce((seq, one) => Math.max(seq, one.vanishedSeq ?? one.terminalSeq ?? 0), record.seq)
  return {
    id,
    isEnabled: source.state === 'ENABLED',
    enabledAt: source.enabledAt,
    couldSee,
    parties: partiesOf(record, all).filter(
      (party) => seesKind(source.declaration, party.kind) || own.some(({ owner }) => isParty(party, owner)),
    ),
    isWarm: fresh?.warm === true,
    since,
    missed: fresh?.counted.filter(({ head }) => head >= since) ?? [],
  }
}

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
