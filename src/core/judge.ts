/**
 * What the evidence about a held lease amounts to (DESIGN §3, §4): keep it, ask after its owner, take it back, or
 * give it back to its owner. Nothing here reads a clock or a table, so a stored proof can be judged again.
 *
 * A lease is taken back on one of three grounds: a statement that its node was fenced, a new boot of its node, or
 * its absence from everything that could see it. A ground is a list of rules, and each rule says what stands in
 * the way. Nothing in the way is the only proof there is: a rule can keep a lease and none can free one, so more
 * evidence of life never turns `keep` into `reap`.
 *
 * What sightings change at once is decided in `decide-sighting.ts`, which snapshots count in the liveness room;
 * caps, and whatever changed since the evidence was read, are looked at under the network's lock.
 */
import type { Json } from './event.ts'
import type { Lease, QuarantineReason } from './lease.ts'
import { describeOwner, type Owner } from './owner.ts'
import { eraOf, type JudgePolicy } from './policy.ts'

export type LookupAnswer =
  | {
      readonly answer: 'live' | 'gone' | 'unknown' | 'error' | 'unanswered'
      readonly at: number
      readonly detail: string
    }
  | { readonly answer: 'terminal'; readonly since: number; readonly at: number; readonly detail: string }

/** Empty: not known. */
export type SeenPlace = { readonly node: string; readonly boot: string }

/** A counted snapshot of a source. */
export type SnapshotRef = { readonly sequence: number; readonly head: number; readonly begunAt: number }

/**
 * What one source testifies about one workload at the lease's address. Retired sources testify about nothing: what only
 * they have seen is in `retired`.
 */
export type WitnessEvidence = {
  readonly source: string
  /** The node a source is bound to: its *gone* means *not here*. Empty for one that sees the whole network. */
  readonly scopeNode: string
  readonly enabled: boolean
  readonly epoch: string
  readonly warm: boolean
  /** In which it last reported completely. */
  readonly era: number
  /** By a hold of its own or of its network. */
  readonly held: boolean
  /** Its declared kinds and families cover the lease. */
  readonly canSee: boolean
  /** Stopped workloads that keep their address are in its lists, too. */
  readonly seesStopped: boolean
  /** One that reports answers with its reports: so long its answer stands. 0: it is asked when it is wanted. */
  readonly answersForMs: number
  /** Head of the ledger when it was enabled; null if it never was. */
  readonly enabledHead: number | null
  /**
   * SIGHTED wins over NAMED. COVERS only where nothing has sighted the owner in this life and Reserve named nobody, and
   * beside those that sighted what a caller had seen.
   */
  readonly why: 'SIGHTED' | 'NAMED' | 'COVERS'
  /**
   * Whose life it testifies about: the lease's owner, or another who was seen at the address (of a block: from
   * another node than its holder's). Null where the source can't tell who it was; nobody can be asked after then.
   */
  readonly about: Owner | null
  /**
   * It has seen the owner in another life alone, or only in reports that knew nothing of this lease: must miss it, and
   * knows nothing of this one. Older proofs lack it.
   */
  readonly anotherLife?: boolean
  /** Where it has seen them alive in this lease, now or before. Of an engine whose epoch is no boot, its node alone. Older proofs lack it. */
  readonly seenOn?: readonly SeenPlace[]
  /** It lists them at the address now. */
  readonly live: {
    readonly state: string
    readonly node: string
    readonly since: number
    readonly incarnation: string
  } | null
  /** It lists them as ended, in this life, and its last report proves that (core/listed.ts). */
  readonly listedTerminal: { readonly since: number } | null
  readonly vanishedAt: number | null
  /** Counted snapshots of its streak that list them at the address, and those after that don't. The judge picks. */
  readonly seen: readonly SnapshotRef[]
  readonly misses: readonly SnapshotRef[]
  readonly lookup: LookupAnswer | null
  /** It declares that a boot ends all workloads, and the lease was placed on an older boot of it. */
  readonly bootEnded: { readonly boot: string; readonly newBoot: string; readonly at: number } | null
}

export type LeaseEvidence = {
  readonly lease: Lease
  readonly now: number
  readonly era: number
  /** The network's state is RECOVERING. */
  readonly recovering: boolean
  /**
   * When the last era with a recovery began: what was promised or confirmed until then may be lost with the books of before.
   * Null: none did. Proofs stored before it was asked lack it.
   */
  readonly recoveredAt?: number | null
  /** Begin of the last snapshot that listed the address, for anybody and for anybody but the lease's owner. */
  readonly lastSightedAt: number | null
  readonly othersSightedAt: number | null
  /**
   * Until when a list that showed it, and that was followed by one that did not, may have looked: it was begun by
   * `lastSightedAt`. Null: none was. Proofs stored before it was asked lack it.
   */
  readonly seenUpTo?: number | null
  readonly imported: boolean
  /** The boot it was placed on, if it was asked for from outside of it since (16.5); null: it was not. Older proofs lack it. */
  readonly leftBoot?: string | null
  /** The lease's attachment is closed. */
  readonly ownerClosed: boolean
  /** The last statement that the boot the lease was placed on is gone for good. */
  readonly fencedBy: {
    readonly node: string
    readonly boot: string
    readonly head: number
    readonly by: string
    readonly why: string
    readonly at: number
    /**
     * From when on life contradicts it: of a statement as of an earlier head, when the ledger went beyond that; `at` otherwise.
     * Proofs stored before it was asked lack it.
     */
    readonly since?: number
    /** Begin of the last report from that boot; null: none is known. Proofs stored before it was asked lack it. */
    readonly reportedAt?: number | null
  } | null
  readonly witnesses: readonly WitnessEvidence[]
  /**
   * Who was retired having seen somebody there whom no other source that looks where it looked has seen since: a witness
   * that can testify no more. Null: it listed somebody there to the end, and can't tell whom. `scopeNode`: where it looked,
   * empty for the whole network. Proofs stored before they were asked lack the list, the node, or where it saw them.
   */
  readonly retired?: readonly {
    readonly source: string
    readonly about: Owner | null
    readonly scopeNode?: string
    readonly seenOn?: readonly SeenPlace[]
  }[]
  /** Where the address is seen live. */
  readonly placements: readonly (SeenPlace & { readonly source: string })[]
  /** `RULES` when it was read. Proofs stored before the rules had a number lack it. */
  readonly rules?: number
}

/**
 * Raised with a rule that would come to something else for evidence of before: a stored proof is judged again by the
 * rules of its day (INV-20).
 *
 * 2: A source of a node that Reserve named and that has never seen the lease is held to what it would cover. Who else was
 *    seen at an address is asked after before it is given back to its owner, and stands in the way of a fence though his
 *    source was retired; and so does a deadline that was promised after it.
 * 3: That another source has seen a lease makes a new boot no proof by a node's source that never has.
 */
export const RULES = 3

/** What a reason does to the verdict: life keeps, a doubt blocks until somebody acts, time passes, a question is asked. */
export const EFFECT = {
  SEEN_LIVE: 'life',
  SEEN_ELSEWHERE: 'life',
  LOOKUP_LIVE: 'life',
  FENCE_CONTRADICTED: 'life',
  OPERATOR_ONLY: 'time',
  INFRASTRUCTURE: 'time',
  RECOVERING: 'time',
  OTHER_ERA: 'time',
  NOBODY_CAN_TELL: 'time',
  CONFIRM_PENDING: 'time',
  TOO_YOUNG: 'time',
  ERA_NOT_REPORTED: 'time',
  NOT_WARM: 'time',
  TOO_FEW_MISSES: 'time',
  TERMINAL_IN_GRACE: 'time',
  NOT_FENCED: 'time',
  SEEN_ON_ANOTHER_NODE: 'time',
  OTHERS_WERE_SEEN: 'time',
  NOT_ENDED_BY_BOOT: 'time',
  NO_EXIT: 'doubt',
  NAMED_WITNESS_MISSING: 'doubt',
  WITNESS_RETIRED: 'doubt',
  NOT_ENABLED: 'doubt',
  CANNOT_SEE: 'doubt',
  HELD: 'doubt',
  IMPORTED: 'doubt',
  STOPPED_UNSEEN: 'doubt',
  PREDATES_SOURCE: 'doubt',
  LOOKUP_ERROR: 'doubt',
  LOOKUP_UNKNOWN: 'doubt',
  LOOKUP_UNANSWERED: 'doubt',
  LOOKUP_NEEDED: 'question',
  FENCED: 'proof',
  PREVIOUS_BOOT: 'proof',
  ABSENT: 'proof',
  SEEN_ALONE: 'proof',
  NOBODY_ELSE: 'proof',
} as const

export type ReasonCode = keyof typeof EFFECT
/** A code for programs, and a sentence for people. */
export type VerdictReason = { readonly code: ReasonCode; readonly source?: string; readonly text: string }

/** A point look-up wanted: does this owner still exist, in the life the lease is about? */
export type Question = { readonly source: string; readonly owner: Owner }

export type Cause = 'FENCED' | 'PREVIOUS_BOOT' | 'PROVEN_ABSENT' | 'SEEN_ALONE'

/** Plain JSON, stored as the event's evidence: the whole of what was judged and the policy then in force. */
export type Proof = Omit<LeaseEvidence, 'now' | 'witnesses'> & {
  readonly cause: Cause
  /** When the evidence was read. */
  readonly at: number
  readonly token: number
  readonly version: number
  readonly policy: JudgePolicy
  readonly sources: readonly WitnessEvidence[]
}

/** `blocked` waits for a person or for an answer, and its reasons name the source; what it may still ask is in `ask`. */
export type Verdict =
  | { readonly verdict: 'keep'; readonly because: readonly VerdictReason[] }
  | {
      readonly verdict: 'lookUp' | 'blocked'
      readonly because: readonly VerdictReason[]
      readonly ask: readonly Question[]
    }
  | {
      readonly verdict: 'reap' | 'restore'
      readonly because: readonly VerdictReason[]
      readonly proof: Proof
    }

type Obstacle = VerdictReason & { readonly ask?: Question }
type Rule = (evidence: LeaseEvidence, policy: JudgePolicy) => readonly Obstacle[]
type WitnessRule = (
  witness: WitnessEvidence,
  evidence: LeaseEvidence,
  policy: JudgePolicy,
) => Obstacle | undefined
/** A rule about a witness that knows no threshold. */
type StandingRule = (witness: WitnessEvidence, evidence: LeaseEvidence) => Obstacle | undefined
/** Nothing in the way: the lease may be taken back on this ground. */
type Finding = {
  readonly cause: Cause
  readonly inTheWay: readonly Obstacle[]
  readonly because: readonly VerdictReason[]
}
type Ground = (evidence: LeaseEvidence, policy: JudgePolicy) => Finding | undefined

/** RESERVED, ACTIVE and QUARANTINED leases, whatever their reason. */
export function judgeHeld(evidence: LeaseEvidence, policy: JudgePolicy): Verdict {
  const kept = NEVER_JUDGED.flatMap((rule) => rule(evidence, policy))
  if (kept.length > 0) return { verdict: 'keep', because: kept }
  const findings = GROUNDS.flatMap((ground) => ground(evidence, policy) ?? [])
  const proven = findings.find((finding) => finding.inTheWay.length === 0)
  if (proven !== undefined) {
    return { verdict: 'reap', because: proven.because, proof: proofOf(proven.cause, evidence, policy) }
  }
  const alone = seenAlone(evidence, policy)
  if (alone?.inTheWay.length === 0) {
    return { verdict: 'restore', because: alone.because, proof: proofOf(alone.cause, evidence, policy) }
  }
  return waiting(alone === undefined ? findings : [...findings, alone])
}

/** The stored proof judged again (INV-20, 15.2), by the policy of its day or by another. */
export function rejudge(proof: Proof, policy: JudgePolicy = proof.policy): Verdict {
  const { cause: _cause, token: _token, version: _version, policy: _policy, at, sources, ...evidence } = proof
  return judgeHeld({ ...evidence, now: at, witnesses: sources }, policy)
}

function proofOf(cause: Cause, { now, witnesses, ...evidence }: LeaseEvidence, policy: JudgePolicy): Proof {
  const { fencingToken: token, version } = evidence.lease
  return { cause, at: now, token, version, policy, sources: witnesses, ...evidence } satisfies Json
}

/** The ground that is nearest to a proof speaks for the lease; of what is alive only its life is told. */
function waiting(findings: readonly Finding[]): Verdict {
  const of = (verdict: Verdict['verdict']) =>
    findings.filter((finding) => verdictOf(finding) === verdict).flatMap((finding) => finding.inTheWay)
  for (const verdict of ['lookUp', 'blocked'] as const) {
    const obstacles = of(verdict)
    if (obstacles.length > 0) return { verdict, because: sentences(obstacles), ask: questions(obstacles) }
  }
  const obstacles = of('keep')
  const life = obstacles.filter(({ code }) => EFFECT[code] === 'life')
  return { verdict: 'keep', because: sentences(life.length > 0 ? life : obstacles) }
}

function verdictOf({ inTheWay }: Finding): 'keep' | 'blocked' | 'lookUp' {
  const has = (effect: (typeof EFFECT)[ReasonCode]) => inTheWay.some(({ code }) => EFFECT[code] === effect)
  if (has('life')) return 'keep'
  if (has('doubt')) return 'blocked'
  return has('time') ? 'keep' : 'lookUp'
}

function sentences(obstacles: readonly Obstacle[]): VerdictReason[] {
  return different(obstacles.map(({ ask: _, ...reason }) => reason))
}

function questions(obstacles: readonly Obstacle[]): Question[] {
  return different(obstacles.flatMap(({ ask }) => ask ?? []))
}

/** Several grounds may meet the same obstacle. */
function different<T>(items: readonly T[]): T[] {
  return [...new Map(items.map((item) => [JSON.stringify(item), item])).values()]
}

// Leases that no evidence takes back.

/** What an operator quarantined, an operator frees (DESIGN §3). */
const operatorDecides: Rule = ({ lease }) =>
  lease.quarantine?.reason === 'OPERATOR'
    ? [{ code: 'OPERATOR_ONLY', text: `quarantined by ${lease.quarantine.by}, and ends by an operator` }]
    : []

/** Infrastructure lists itself nowhere: it is judged by nobody unless Reserve named who can (DESIGN §4, cilium#3870). */
const infrastructureIsJudgedByWhomItNamed: Rule = ({ lease, witnesses }) =>
  lease.owner?.kind === 'infrastructure' && !witnesses.some(({ source }) => source === lease.witness)
    ? [{ code: 'INFRASTRUCTURE', text: 'held for infrastructure, and no source was named as its witness' }]
    : []

/** Restored books are suspect: nothing is taken back before the world was seen again (INV-24, 12.1). */
const recoveryTakesNothing: Rule = ({ recovering }) =>
  recovering ? [{ code: 'RECOVERING', text: 'the network is recovering' }] : []

/** Evidence read in one era says nothing about a lease of the next (INV-24, 12.4). */
const evidenceIsOfTheBooksEra: Rule = ({ lease, era }) =>
  eraOf(lease.version) > era
    ? [
        {
          code: 'OTHER_ERA',
          text: `the lease changed in era ${eraOf(lease.version)}, the evidence is of era ${era}`,
        },
      ]
    : []

const NEVER_JUDGED: readonly Rule[] = [
  operatorDecides,
  infrastructureIsJudgedByWhomItNamed,
  recoveryTakesNothing,
  evidenceIsOfTheBooksEra,
]

// Life: positive evidence keeps, from whomever and for whomever (INV-4, INV-12).

/**
 * Listed at the address by any source, in any state, for anybody: a source in dry run protects too, a paused or
 * pending workload is alive (W-05, 7.5), and a lease seen on two nodes lives as long as either sees it (16.5).
 */
const seenLive: Rule = (evidence) => {
  const { lease, witnesses, placements } = evidence
  const listed = witnesses.flatMap(({ source, live, about }) =>
    live === null ? [] : [{ source, node: live.node, state: live.state, about }],
  )
  const unlisted = placements
    .filter(({ source }) => !listed.some((seen) => seen.source === source))
    .map(({ source, node }) => ({ source, node, state: 'live', about: null }))
  const reasons: Obstacle[] = [...listed, ...unlisted].map(({ source, node, state, about }) => ({
    code: 'SEEN_LIVE',
    source,
    text: `${source} lists ${about === null ? 'the address' : describeOwner(about)} as ${state}${on(node)}`,
  }))
  return [...reasons, ...seenElsewhere(lease, listed)]
}

/** Where it is seen is what counts; that the books say otherwise is listed and not punished (9.2, calico#12257). */
function seenElsewhere(
  lease: Lease,
  listed: readonly { readonly source: string; readonly node: string }[],
): Obstacle[] {
  const booked = lease.placement.node
  return listed
    .filter(({ node }) => booked !== '' && node !== '' && node !== booked)
    .map(({ source, node }) => ({
      code: 'SEEN_ELSEWHERE',
      source,
      text: `booked on ${booked}, and seen on ${node} by ${source}`,
    }))
}

/** Missing from a list and found at the authority is alive (1.1, M-02), whatever a list said about its end (9.2). */
const lookedUpLive: Rule = (evidence, policy) =>
  evidence.witnesses.flatMap((witness) => {
    const { source, lookup } = witness
    return lookup?.answer === 'live' && isRecent(witness, lookup, evidence, policy)
      ? [{ code: 'LOOKUP_LIVE', source, text: `${source} was asked and says live: ${lookup.detail}` }]
      : []
  })

// Time: before this nothing follows from absence.

/** Handed out and not yet confirmed is normal: a reservation with a deadline is left alone until then (2.1, W-01). */
const confirmationIsPending: Rule = ({ lease, now }, policy) =>
  lease.state === 'RESERVED' && lease.confirmBy !== null && now <= lease.confirmBy + policy.confirmGraceMs
    ? [{ code: 'CONFIRM_PENDING', text: 'reserved, and may still be confirmed' }]
    : []

/** Count and age, not either (INV-3, 2.3); longer where the lease was never seen and may still be on its way (W-01). */
const tooYoung: Rule = (evidence, policy) => {
  const age = evidence.now - promisedAt(evidence)
  const unseen = evidence.lease.owner !== null && isUnseen(evidence)
  const minimum = unseen ? policy.unwitnessedAgeMs : policy.minimumAgeMs
  return age < minimum
    ? [{ code: 'TOO_YOUNG', text: `changed ${seconds(age)} ago, judged after ${seconds(minimum)}` }]
    : []
}

/** The last promise that is known, or that may be lost (INV-24, 12.4). */
function promisedAt({ lease, recoveredAt }: LeaseEvidence): number {
  return Math.max(changedAt(lease), recoveredAt ?? 0)
}

/** Nobody has seen it, or only another life of its owner (W-03), or only where it was before it was asked for (16.5). */
function isUnseen(evidence: LeaseEvidence): boolean {
  const holders = testifying(evidence).filter((witness) => isAboutHolder(witness, evidence.lease))
  if (holders.some(({ why }) => why === 'COVERS')) return true
  const sighted = holders.filter(({ why }) => why === 'SIGHTED')
  if (sighted.length === 0) return knowsRule(2, evidence) && holders.some(({ scopeNode }) => scopeNode !== '')
  const known = sighted.filter(({ anotherLife }) => anotherLife !== true)
  return known.length === 0 || isOnItsWay(known, evidence)
}

/** By sources of nodes it was not seen yet on each node that asked for it, or nowhere but in the boot that it left. */
function isOnItsWay(known: readonly WitnessEvidence[], evidence: LeaseEvidence): boolean {
  if (known.some(({ scopeNode }) => scopeNode === '')) return false
  const { lease, leftBoot = null } = evidence
  const { placement, askedFrom = [] } = lease
  const places = known.flatMap(({ seenOn = [] }) => seenOn)
  const isLeft = ({ node, boot }: SeenPlace) =>
    node === placement.node && (leftBoot === null || boot === '' || boot === leftBoot)
  if (askedFrom.length === 0) return leftBoot !== null && places.every(isLeft)
  return askedFrom.some((asked) => !places.some((place) => place.node === asked && !isLeft(place)))
}

function wasAskedFromElsewhere({ lease, leftBoot = null }: LeaseEvidence): boolean {
  return leftBoot !== null || (lease.askedFrom ?? []).length > 0
}

// Who can tell.

/** Without a witness, and without a source that covers kind, family and node, nobody misses it (DESIGN §4, A-04). */
const somebodyCanTell: Rule = (evidence) => {
  const { lease } = evidence
  const able = testifying(evidence).filter(
    (witness) => isAboutHolder(witness, lease) && seesWhereItMayBe(witness, evidence),
  )
  if (able.some(({ anotherLife }) => anotherLife !== true)) return []
  const strangers = evidence.witnesses
    .filter((witness) => covers(witness, lease))
    .flatMap((witness) => neverKnew(witness, evidence) ?? [])
  if (strangers.length > 0) return strangers
  // Who has seen another life alone speaks of this one where it would see it, as those that cover it do (W-03).
  if (able.some(({ scopeNode }) => scopeNode === '' || scopeNode === lease.placement.node)) return []
  return lease.state === 'QUARANTINED'
    ? [{ code: 'NO_EXIT', text: `no source can tell whether the address is in use: ${whoElseEnds(lease)}` }]
    : [{ code: 'NOBODY_CAN_TELL', text: 'no source has seen the lease or covers its kind, family and node' }]
}

function whoElseEnds({ quarantine }: Lease): string {
  const isTheHolders = quarantine?.reason === 'SUPERSEDED' || quarantine?.reason === 'REMOVAL_UNCONFIRMED'
  return isTheHolders
    ? "its holder's Release with confirmed removal ends it, or an operator's Reap"
    : "an operator's Reap ends it"
}

/**
 * What a caller saw may be on any node, so only a source of the whole network can say that it is not there (M-10). One of
 * a node that was named, and has never seen the lease, says nothing of one that was placed on another node, or that was
 * asked for from elsewhere (16.5).
 */
function seesWhereItMayBe({ why, scopeNode }: WitnessEvidence, evidence: LeaseEvidence): boolean {
  const { lease } = evidence
  if (scopeNode === '') return true
  if (lease.quarantine?.reason === 'SEEN_BY_CALLER') return false
  if (why !== 'NAMED' || !knowsRule(2, evidence)) return true
  return !wasAskedFromElsewhere(evidence) && ['', scopeNode].includes(lease.placement.node)
}

/** A witness that Reserve named and that doesn't speak blocks like any silent one (DESIGN §4). */
const namedWitnessSpeaks: Rule = ({ lease, witnesses }) =>
  lease.witness === '' || witnesses.some(({ source }) => source === lease.witness)
    ? []
    : [
        {
          code: 'NAMED_WITNESS_MISSING',
          source: lease.witness,
          text: `${lease.witness} was named as witness and is no source of the network`,
        },
      ]

/**
 * Whoever saw it and was retired can neither miss it nor say that it is gone, and that the others never saw it says
 * nothing: blocked, until its successor has seen it as well (16.8).
 */
const noWitnessWasRetired: Rule = ({ retired = [] }) =>
  retired.map(({ source, about }) => ({
    code: 'WITNESS_RETIRED',
    source,
    text: `${source} has seen ${about === null ? 'somebody' : describeOwner(about)} there and was retired, and no other source that looks there has since`,
  }))

// Standing of each witness.

/** Dry run: until an admin enables it a source's absences prove nothing (5.4, 16.8). */
const notEnabled: StandingRule = ({ source, enabled }) =>
  enabled ? undefined : { code: 'NOT_ENABLED', source, text: `${source} is not enabled, and proves nothing` }

/** A source can't miss what it can't see (5.4, calico#5044). */
const cannotSee: StandingRule = ({ source, canSee }) =>
  canSee
    ? undefined
    : { code: 'CANNOT_SEE', source, text: `${source} does not declare the lease's kind and family` }

/** Held by the caps until an operator resumes it (INV-21, 5.2). */
const isHeld: StandingRule = ({ source, held }) =>
  held
    ? { code: 'HELD', source, text: `what ${source} no longer lists is held until an operator resumes` }
    : undefined

/**
 * Nobody misses what it never knew: imports, and leases older than the source's enabling (16.8, 5.4, 12.1). Of what a
 * caller saw there is nothing to know but whether anybody is there now (DESIGN §3).
 */
const neverKnew: StandingRule = (witness, { lease, imported }) => {
  const { source, why, enabledHead } = witness
  if (why === 'SIGHTED') return undefined
  if (imported) return { code: 'IMPORTED', source, text: `imported, and never seen by ${source}` }
  if (lease.quarantine?.reason === 'SEEN_BY_CALLER') return undefined
  return enabledHead === null || lease.fencingToken <= enabledHead
    ? {
        code: 'PREDATES_SOURCE',
        source,
        text: `older than the enabling of ${source}, which has never seen it`,
      }
    : undefined
}

/** What a source said in an earlier era may be about books that are lost (12.4). */
const otherEra: StandingRule = ({ source, era }, evidence) =>
  era === evidence.era
    ? undefined
    : { code: 'ERA_NOT_REPORTED', source, text: `${source} has not reported in era ${evidence.era}` }

/** The first snapshots of an epoch only protect (5.1, cilium#9888). */
const notWarm: StandingRule = ({ source, warm }) =>
  warm ? undefined : { code: 'NOT_WARM', source, text: `${source} is warming up` }

const STANDING: readonly StandingRule[] = [notEnabled, cannotSee, isHeld, neverKnew, otherEra, notWarm]

// Misses: which snapshots count against this lease.

type MissRule = (snapshot: SnapshotRef, evidence: LeaseEvidence) => boolean

/** A snapshot begun at a head testifies only about what the ledger said at that head (2.2, W-02, whereabouts#208). */
const knewTheLease: MissRule = ({ head }, { lease }) => head >= lease.version

/** One sighting by anyone starts the count again (M-17, 16.5, 1.2). */
const begunAfterLastSighting: MissRule = ({ begunAt }, { lastSightedAt }) =>
  lastSightedAt === null || begunAt > lastSightedAt

/** Heads of an earlier era are of books that may be lost (12.4). */
const ofThisEra: MissRule = ({ head }, { era }) => eraOf(head) === era

const COUNTS_AS_MISS: readonly MissRule[] = [knewTheLease, begunAfterLastSighting, ofThisEra]

/** Absence is a hint, k times in a row is a suspicion (M-17, kubernetes#37488). */
const tooFewMisses: WitnessRule = (witness, evidence, policy) => {
  const { source } = witness
  const misses = missesOf(witness, evidence)
  return misses < policy.misses
    ? {
        code: 'TOO_FEW_MISSES',
        source,
        text: `missed by ${source} in ${misses} of ${policy.misses} counted snapshots`,
      }
    : undefined
}

function missesOf(witness: WitnessEvidence, evidence: LeaseEvidence): number {
  return numberOf(witness.misses.filter((ref) => COUNTS_AS_MISS.every((counts) => counts(ref, evidence))))
}

/** A snapshot reported twice is one snapshot. */
function numberOf(snapshots: readonly SnapshotRef[]): number {
  return new Set(snapshots.map(({ sequence }) => sequence)).size
}

// Answers: what the authority says of a workload that is listed nowhere.

const FAILED = { error: 'LOOKUP_ERROR', unknown: 'LOOKUP_UNKNOWN', unanswered: 'LOOKUP_UNANSWERED' } as const

/** Unknown means alive: errors, time-outs, unknown phases (M-08, M-09, W-05). */
const askingFailed: StandingRule = ({ source, about, lookup }) => {
  if (lookup === null || !(lookup.answer in FAILED)) return undefined
  const code = FAILED[lookup.answer as keyof typeof FAILED]
  const text = `${source} was asked and said ${lookup.answer}: ${lookup.detail}`
  return { code, source, text, ...(about !== null && { ask: { source, owner: about } }) }
}

/**
 * Every witness says gone, or ended and past its grace. Who can't be named can't be asked after; there the clean
 * snapshots are all there is (DESIGN §3, FOREIGN).
 */
const notSaidGone: WitnessRule = (witness, evidence, policy) => {
  const { source, about, lookup, listedTerminal } = witness
  const failed = askingFailed(witness, evidence)
  if (failed !== undefined) return failed
  // Listed as ended: that verdict stands and costs no call (M-06).
  if (listedTerminal !== null) return inGrace(source, listedTerminal.since, evidence, policy)
  if (lookup !== null && isFresh(witness, lookup, evidence, policy)) {
    if (lookup.answer === 'gone') return undefined
    if (lookup.answer === 'terminal') return inGrace(source, lookup.since, evidence, policy)
  }
  if (about === null) return stoppedUnseen(witness)
  const text = `${source} lists ${describeOwner(about)} no more, and must say that it is gone`
  return { code: 'LOOKUP_NEEDED', source, text, ask: { source, owner: about } }
}

/** A clean list of one that leaves out the stopped says nothing of them, and there is nobody to ask after (M-19). */
function stoppedUnseen({ source, seesStopped }: WitnessEvidence): Obstacle | undefined {
  return seesStopped
    ? undefined
    : { code: 'STOPPED_UNSEEN', source, text: `${source} lists no stopped workloads, and one may be there` }
}

/** Dead gets a grace window before it counts as gone (M-07). */
function inGrace(
  source: string,
  since: number,
  { now }: LeaseEvidence,
  policy: JudgePolicy,
): Obstacle | undefined {
  return now - since < policy.terminalGraceMs
    ? { code: 'TERMINAL_IN_GRACE', source, text: `${source} says it ended ${seconds(now - since)} ago` }
    : undefined
}

/** Two that report seldom, and out of step, must be able to agree. */
function isRecent(
  { answersForMs }: WitnessEvidence,
  { at }: LookupAnswer,
  { now }: LeaseEvidence,
  policy: JudgePolicy,
): boolean {
  return now - at <= Math.max(policy.proofAgeMs, answersForMs)
}

/** Of use in a proof: young enough, and given after whatever was last seen or done (1.6, DESIGN §4). */
function isFresh(
  witness: WitnessEvidence,
  lookup: LookupAnswer,
  evidence: LeaseEvidence,
  policy: JudgePolicy,
): boolean {
  const { lastSightedAt, lease } = evidence
  return (
    isRecent(witness, lookup, evidence, policy) &&
    lookup.at > (lastSightedAt ?? Number.NEGATIVE_INFINITY) &&
    lookup.at >= changedAt(lease)
  )
}

// Grounds.

/** Reap on proof: every witness misses it k times, and then says that it is gone (DESIGN §4). */
const absence: Ground = (evidence, policy) => {
  const witnesses = testifying(evidence)
  const cause = 'PROVEN_ABSENT'
  const first = [
    ...ABSENCE.flatMap((rule) => rule(evidence, policy)),
    ...judgeEach(witnesses, [...STANDING, tooFewMisses], evidence, policy),
  ]
  // Questions cost the authority: only about what is a suspect already (M-06).
  if (first.length > 0) return { cause, inTheWay: first, because: [] }
  return {
    cause,
    inTheWay: judgeEach(witnesses, [notSaidGone], evidence, policy),
    because: witnesses.map((witness) => absent(witness, evidence)),
  }
}

const ABSENCE: readonly Rule[] = [
  seenLive,
  lookedUpLive,
  noWitnessWasRetired,
  confirmationIsPending,
  tooYoung,
  somebodyCanTell,
  namedWitnessSpeaks,
]

function absent(witness: WitnessEvidence, evidence: LeaseEvidence): VerdictReason {
  const { source, about, lookup, listedTerminal } = witness
  const misses = `missed by ${source} in ${missesOf(witness, evidence)} counted snapshots`
  if (about === null) return { code: 'ABSENT', source, text: `${misses}; nobody to ask after` }
  const said = listedTerminal !== null ? 'listed as ended' : `asked, and ${lookup?.answer}`
  return { code: 'ABSENT', source, text: `${misses}; ${describeOwner(about)} ${said}` }
}

/**
 * A new boot of the node ended the lease's workload (12.2): the node's source declares that boots do, is warm, and
 * agrees when asked. It needs no three misses, and its reaps don't count for the caps.
 */
const newBoot: Ground = (evidence, policy) => {
  const ended = evidence.witnesses.filter(({ bootEnded }) => bootEnded !== null)
  if (ended.length === 0) return undefined
  const first = [
    ...NEW_BOOT.flatMap((rule) => rule(evidence, policy)),
    ...judgeEach(ended, [...STANDING, placedOnAnotherBoot, aliveSinceTheBoot], evidence, policy),
    ...judgeEach(evidence.witnesses, [askingFailed], evidence, policy),
  ]
  return {
    cause: 'PREVIOUS_BOOT',
    inTheWay: first.length > 0 ? first : judgeEach(ended, [notSaidGone], evidence, policy),
    because: ended.map(({ source, bootEnded }) => ({
      code: 'PREVIOUS_BOOT',
      source,
      text: `placed on boot ${bootEnded!.boot} of ${evidence.lease.placement.node}, which runs ${bootEnded!.newBoot}; ${source} says gone`,
    })),
  }
}

/** The boot that ended is the one the lease was placed on. A network-wide source's new epoch is no boot of a node. */
const placedOnAnotherBoot: StandingRule = ({ source, scopeNode, bootEnded }, { lease }) =>
  scopeNode === '' || scopeNode !== lease.placement.node || bootEnded!.boot !== lease.placement.boot
    ? { code: 'NOT_ENDED_BY_BOOT', source, text: `was not placed on boot ${bootEnded!.boot} of ${scopeNode}` }
    : undefined

/** Whoever saw it since, or confirmed it since, contradicts that it ended with the boot (12.2, 9.2). */
const aliveSinceTheBoot: StandingRule = ({ source, bootEnded }, evidence) =>
  Math.max(aliveAt(evidence), evidence.recoveredAt ?? 0) > bootEnded!.at
    ? {
        code: 'NOT_ENDED_BY_BOOT',
        source,
        text: `seen or confirmed after boot ${bootEnded!.newBoot} began, or that may be lost`,
      }
    : undefined

/** FenceNode: somebody answers for it that the node's boot is gone for good (6.1, 6.3). Absence plays no part. */
const fencing: Ground = (evidence, policy) => {
  const { fencedBy } = evidence
  if (fencedBy === null) return undefined
  return {
    cause: 'FENCED',
    inTheWay: FENCING.flatMap((rule) => rule(evidence, policy)),
    because: [
      {
        code: 'FENCED',
        text: `${fencedBy.by} fenced boot ${fencedBy.boot} of ${fencedBy.node}: ${fencedBy.why}`,
      },
    ],
  }
}

/** The statement was made about the leases of its day (6.3). */
const youngerThanTheFence: Rule = ({ lease, fencedBy }) =>
  lease.fencingToken > fencedBy!.head
    ? [{ code: 'NOT_FENCED', text: `reserved after ${fencedBy!.node} was fenced` }]
    : []

/** Promised since the statement with a deadline, it may be used until then (6.3, DESIGN §2). */
const promisedSinceTheFence: Rule = (evidence, policy) =>
  knowsRule(2, evidence) && evidence.lease.version > evidence.fencedBy!.head
    ? confirmationIsPending(evidence, policy)
    : []

/**
 * Whoever was asked for it from another node, or confirmed it after the statement, may be among what a recovery has lost:
 * the statement has to be of this era, and who runs elsewhere has as long to be seen as after any change (INV-24, 12.4).
 */
const lostSinceTheFence: Rule = ({ now, recoveredAt, fencedBy }, policy) => {
  if (recoveredAt == null) return []
  const { at, since = at } = fencedBy!
  if (since <= recoveredAt)
    return [
      { code: 'NOT_FENCED', text: `${fencedBy!.node} was fenced in books that were lost; fence it again` },
    ]
  const age = now - recoveredAt
  return age < policy.minimumAgeMs
    ? [
        {
          code: 'TOO_YOUNG',
          text: `the last recovery began ${seconds(age)} ago, judged after ${seconds(policy.minimumAgeMs)}`,
        },
      ]
    : []
}

/** Its sole placement is the fenced boot (6.3, 16.5). */
const placedOutsideTheFence: Rule = ({ lease, fencedBy }) =>
  lease.placement.node !== fencedBy!.node || lease.placement.boot !== fencedBy!.boot || fencedBy!.boot === ''
    ? [{ code: 'NOT_FENCED', text: `not placed on the fenced boot of ${fencedBy!.node}` }]
    : []

/** What the fenced boot last listed is not life: it can't take it back any more. Everybody else's sightings are. */
const seenOutsideTheFence: Rule = (evidence, policy) => {
  const fenced = evidence.placements.filter((placement) => isFenced(placement, evidence))
  const outside = <T extends { readonly source: string }>(seen: readonly T[]) =>
    seen.filter(({ source }) => !fenced.some((placement) => placement.source === source))
  const placements = evidence.placements.filter((placement) => !isFenced(placement, evidence))
  return seenLive({ ...evidence, placements, witnesses: outside(evidence.witnesses) }, policy)
}

function isFenced(placement: { node: string; boot: string }, { fencedBy }: LeaseEvidence): boolean {
  return placement.node === fencedBy!.node && placement.boot === fencedBy!.boot
}

/** It reports again, or was confirmed since: the statement was false, and says so (6.3). */
const fenceContradicted: Rule = (evidence) => {
  const { by, node, at, since = at } = evidence.fencedBy!
  return aliveAt(evidence) > since
    ? [{ code: 'FENCE_CONTRADICTED', text: `seen or confirmed after ${by} fenced ${node}` }]
    : []
}

/** A boot that reports is not over, whatever it lists: the statement is false for all of its leases (6.3). */
const fencedBootReports: Rule = ({ fencedBy }) => {
  const { by, node, boot, at, since = at, reportedAt } = fencedBy!
  if ((reportedAt ?? since) <= since) return []
  const after = since < at ? `what ${by} had seen when it fenced it` : `${by} fenced it`
  return [{ code: 'FENCE_CONTRADICTED', text: `boot ${boot} of ${node} has reported after ${after}` }]
}

/**
 * A node's end says nothing about a workload that was seen on another, nor that of a boot about one that was seen in
 * another boot (16.5, 12.2): by whoever could see it there, whether he lists it now or was retired.
 */
const seenOnAnotherNode: Rule = ({ lease, witnesses, retired = [] }) => {
  const still = witnesses
    .filter(({ why }) => why === 'SIGHTED')
    .map((one) => ({ ...one, which: 'must miss it' }))
  const once = retired.map((one) => ({ ...one, which: 'was retired' }))
  return [...still, ...once].flatMap(({ source, scopeNode = '', seenOn = [], which }) => {
    const elsewhere = [{ node: scopeNode, boot: '' }, ...seenOn].find((place) => isElsewhere(place, lease))
    if (elsewhere === undefined) return []
    const { node, boot } = elsewhere
    const where = node === lease.placement.node ? `in boot ${boot} of ${node}` : `on ${node}`
    return [
      { code: 'SEEN_ON_ANOTHER_NODE', source, text: `was also seen ${where} by ${source}, which ${which}` },
    ]
  })
}

/** What is not known is no other place. */
function isElsewhere({ node, boot }: SeenPlace, { placement }: Lease): boolean {
  if (node === '') return false
  return node !== placement.node || (boot !== '' && boot !== placement.boot)
}

/** Nor about the other party of a conflict, though his source was retired, nor where nobody is known to hold the address. */
const othersWereThere: Rule = (evidence) => {
  const { lease, witnesses, retired = [] } = evidence
  const seen = knowsRule(2, evidence) ? [...witnesses, ...retired] : witnesses
  return lease.owner === null ||
    lease.quarantine?.reason === 'CONFLICT' ||
    seen.some((one) => !isAboutHolder(one, lease))
    ? [{ code: 'OTHERS_WERE_SEEN', text: 'others than its owner were seen at the address' }]
    : []
}

/**
 * Who says that it is gone with its boot has to have seen it there, or to have waited long enough for it: that another has
 * seen it says nothing about this boot, and is asked nothing here (W-01).
 */
const tooYoungForItsNode: Rule = (evidence, policy) => {
  if (!knowsRule(3, evidence)) return []
  const ended = evidence.witnesses.filter(({ bootEnded }) => bootEnded !== null)
  return tooYoung({ ...evidence, witnesses: ended }, policy)
}

const NEW_BOOT: readonly Rule[] = [
  seenLive,
  lookedUpLive,
  noWitnessWasRetired,
  confirmationIsPending,
  tooYoungForItsNode,
  tooYoung,
  seenOnAnotherNode,
  othersWereThere,
]

const FENCING: readonly Rule[] = [
  youngerThanTheFence,
  placedOutsideTheFence,
  seenOutsideTheFence,
  lookedUpLive,
  fenceContradicted,
  fencedBootReports,
  seenOnAnotherNode,
  othersWereThere,
  promisedSinceTheFence,
  lostSinceTheFence,
]

const GROUNDS: readonly Ground[] = [fencing, newBoot, absence]

// The way back: quarantines that end when only their owner is left.

const RESTORED: readonly QuarantineReason[] = ['CONFLICT', 'SECOND_ADDRESS', 'RELEASED_BUT_LIVE']

/**
 * k counted snapshots of every source that saw the address, with only the named, unclosed owner (DESIGN §3). Whoever else
 * was seen there is asked after as for a reap: a list that leaves him out is a hint (M-02).
 */
const seenAlone: Ground = (evidence, policy) => {
  const { lease, witnesses, placements, ownerClosed } = evidence
  if (lease.quarantine === null || !RESTORED.includes(lease.quarantine.reason)) return undefined
  if (lease.owner === null || ownerClosed) return undefined
  const sighted = witnesses.filter(({ why, live }) => why === 'SIGHTED' || live !== null)
  const others = sighted.filter((witness) => !isAboutHolder(witness, lease))
  // The findings of a source in dry run change nothing; that it sees another there still does.
  const own = sighted.filter((witness) => isAboutHolder(witness, lease) && witness.enabled)
  const showing = own.filter(({ live }) => live !== null)
  const agreed =
    showing.length > 0 &&
    showing.every((witness) => isThisLife(witness, lease)) &&
    placements.every((place) =>
      sighted.some(({ source, live }) => source === place.source && live !== null),
    ) &&
    others.every((witness) => isGoneFromHere(witness, evidence, policy)) &&
    [...own, ...others].every((witness) => showsNobodyElse(witness, evidence, policy))
  if (!agreed) return undefined
  return {
    cause: 'SEEN_ALONE',
    inTheWay: knowsRule(2, evidence) ? othersMayBeThere(others, evidence, policy) : [],
    because: [...own, ...others].map((witness) => {
      const { source } = witness
      return showing.includes(witness)
        ? {
            code: 'SEEN_ALONE',
            source,
            text: `${source} lists ${describeOwner(lease.owner!)} and nobody else`,
          }
        : { code: 'NOBODY_ELSE', source, text: `${source} has seen the address, and lists nobody else there` }
    }),
  }
}

/** Not said to be gone since they were last seen, or seen by a source that can tell no more. */
function othersMayBeThere(
  others: readonly WitnessEvidence[],
  evidence: LeaseEvidence,
  policy: JudgePolicy,
): readonly Obstacle[] {
  const { lease, othersSightedAt, retired = [] } = evidence
  const retiredOthers = retired.filter((one) => !isAboutHolder(one, lease))
  return [
    ...noWitnessWasRetired({ ...evidence, retired: retiredOthers }, policy),
    ...judgeEach(others, [notSaidGone], { ...evidence, lastSightedAt: othersSightedAt }, policy),
  ]
}

/** Another life of the owner at its address is not the owner that was named (3.1, W-03). */
function isThisLife({ live }: WitnessEvidence, lease: Lease): boolean {
  const named = lease.owner!.incarnation
  return named === '' || live!.incarnation === '' || live!.incarnation === named
}

function isGoneFromHere(witness: WitnessEvidence, evidence: LeaseEvidence, policy: JudgePolicy): boolean {
  const { live, lookup } = witness
  return live === null && !(lookup?.answer === 'live' && isRecent(witness, lookup, evidence, policy))
}

function showsNobodyElse(witness: WitnessEvidence, evidence: LeaseEvidence, policy: JudgePolicy): boolean {
  const { lease, othersSightedAt } = evidence
  const shown = isAboutHolder(witness, lease) ? [...witness.seen, ...witness.misses] : witness.misses
  // The miss rules, with the last sighting of anybody else in the place of the last of all.
  const withoutOthers = { ...evidence, lastSightedAt: othersSightedAt }
  return (
    judgeEach([witness], STANDING, evidence, policy).length === 0 &&
    numberOf(shown.filter((ref) => COUNTS_AS_MISS.every((counts) => counts(ref, withoutOthers)))) >=
      policy.misses
  )
}

// Words of the rules.

/** Sources match on (kind, uid), or on (kind, name) where the owner named no uid (DESIGN §1). */
export function isSameWorkload(owner: Owner, seen: Owner): boolean {
  return owner.kind === seen.kind && (owner.uidNamed ? owner.uid === seen.uid : owner.name === seen.name)
}

/** Where nobody is known to hold the address, everybody who saw it testifies about it. */
function isAboutHolder({ about }: Pick<WitnessEvidence, 'about'>, { owner }: Lease): boolean {
  return owner === null || (about !== null && isSameWorkload(owner, about))
}

/** A source of another node says *not here*, which is no news of a lease it has never seen (DESIGN §4). */
function covers({ why, enabled, canSee, scopeNode }: WitnessEvidence, lease: Lease): boolean {
  if (why !== 'COVERS' || !enabled || !canSee) return false
  if (lease.owner === null) return lease.quarantine?.reason === 'SEEN_BY_CALLER'
  return scopeNode === '' || scopeNode === lease.placement.node
}

/** Whose silence has to be proven: every witness, and where there is none every source that covers the lease. */
function testifying(evidence: LeaseEvidence): readonly WitnessEvidence[] {
  return evidence.witnesses.filter(
    (witness) =>
      witness.why !== 'COVERS' ||
      (covers(witness, evidence.lease) && neverKnew(witness, evidence) === undefined),
  )
}

function judgeEach(
  witnesses: readonly WitnessEvidence[],
  rules: readonly WitnessRule[],
  evidence: LeaseEvidence,
  policy: JudgePolicy,
): Obstacle[] {
  return witnesses.flatMap((witness) => rules.flatMap((rule) => rule(witness, evidence, policy) ?? []))
}

/** A stored proof is judged again by the rules of its day (INV-20). */
function knowsRule(number: number, { rules = 1 }: LeaseEvidence): boolean {
  return rules >= number
}

/** When it was last promised, confirmed or set aside. */
export function changedAt({ reservedAt, confirmedAt, quarantine }: Lease): number {
  return Math.max(reservedAt, confirmedAt ?? 0, quarantine?.at ?? 0)
}

/** When anybody last said that the lease is in use: its caller, a list, or a look-up. */
function aliveAt({ lease, lastSightedAt, seenUpTo, witnesses }: LeaseEvidence): number {
  const found = witnesses.map(({ lookup }) => (lookup?.answer === 'live' ? lookup.at : 0))
  return Math.max(lease.reservedAt, lease.confirmedAt ?? 0, lastSightedAt ?? 0, seenUpTo ?? 0, ...found)
}

function on(node: string): string {
  return node === '' ? '' : ` on ${node}`
}

function seconds(ms: number): string {
  return `${Math.floor(ms / 1_000)} s`
}
