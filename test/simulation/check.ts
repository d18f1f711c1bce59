/**
 * What must hold whatever happens: each event is compared with the world as it is committed, each answer as it is given; now
 * and then all images are compared with the fold of the log. `shadow` is that fold: the state before the event at hand.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Claim, type Command, type LeaseView, requestName } from '../../src/core/command.ts'
import type { Outcome } from '../../src/core/decide.ts'
import {
  type AddressRecord,
  type Entry,
  type EventOf,
  type LeaseEvent,
  type LedgerEvent,
  TERMINAL,
} from '../../src/core/event.ts'
import { evolve, isSame, ownerOf } from '../../src/core/evolve.ts'
import {
  addressValue,
  blockAt,
  type Image,
  isClosed,
  isHeld,
  isLive,
  leasesOfAttachment,
  leasesOfHolder,
  newImage,
  sightingsOf,
} from '../../src/core/image.ts'
import { judgeProof, type Proof } from '../../src/core/judge.ts'
import {
  attachmentKey,
  describeOwner,
  holderKey,
  isListedAs,
  type Owner,
  RESERVE_KIND,
  sameAttachment,
} from '../../src/core/owner.ts'
import { eraOf, POLICY, reapPolicy } from '../../src/core/policy.ts'
import { contains } from '../../src/core/ranges.ts'
import type { Chained, Write } from '../../src/ledger/log.ts'
import { lineOf } from '../core/given.ts'
import { canonical, expectedCandidates, nextCandidates, partitionFault } from '../support/canonical.ts'
import { HOSTILE_NODE, type Life, NETWORK, nodeOfWord, uses, type World } from './world.ts'

export class Violation extends Error {}

export type Call = {
  readonly command: Command
  readonly head: number
  readonly losses: number
  /** Its request was answered before it was called: it is a repetition. */
  readonly isRepeated: boolean
}

/** How a request that was answered may be refused when it is repeated: its lease has ended, or nobody could look. */
const REPEATED: readonly string[] = [
  'LEASE_LOST',
  'OUTCOME_UNKNOWN',
  'DATABASE_UNAVAILABLE',
  'DEADLINE_EXCEEDED',
  'NETWORK_RECOVERING',
]

/** Where a pool gives nothing for these, the next one of the claim is tried. */
const NEXT_POOL: readonly string[] = ['POOL_EXHAUSTED', 'POOL_DRAINING']

/** A life that was listed, by whom, at an address that somebody else held. */
type Seen = { readonly life: Life; readonly source: string }

/** Reports by which a source that is believed has surely counted twice. */
const SURELY_COUNTED = 12

/** Waits are kept to within this: answers travel, clocks are compared every second. */
const SLACK_MS = 5_000

export class Checks {
  shadow: Image = newImage(NETWORK)
  /** What was thrown first. */
  violation: unknown = null
  /** Commands that were called, and events of the log. */
  calls = 0
  logged = 0
  readonly #world: World
  #greatest = 0
  losses = 0
  /** An era must begin before anything else is written; null: it may, since some process knows what was lost. */
  #isLost: boolean | null = false
  /** By the true clock: when addresses ended, and until when a Confirm is waited for. */
  readonly #ended = new Map<string, { readonly at: number; readonly seq: number }>()
  readonly #promised = new Map<string, { readonly until: number; readonly token: number }>()
  /** Of calls that left events, of calls that were refused, and of requests that reserved. */
  readonly #traces = new Set<string>()
  readonly #refused = new Set<string>()
  readonly #requests = new Map<string, string | null>()
  readonly #answered = new Set<string>()
  /** Who called in this recovery and was not registered. */
  readonly #unknown = new Set<string>()
  /** By the true clock. */
  #recoveringSince = Number.NEGATIVE_INFINITY
  /** Of reports whose number is not proven. */
  readonly #unproven = new Set<string>()
  /** What lists left out while nobody held it, by address: since when, for how long and for whom not it rests. */
  readonly #unlisted = new Map<string, { at: number; rests: number; attachment: string }[]>()
  /** Who was listed beside the holder: by the token of the lease, and by address once it has ended. */
  readonly #beside = new Map<number, Seen[]>()
  readonly #contested = new Map<string, readonly Seen[]>()
  /** A spare that has ended for whom it is listed for, and is his by the next event. */
  #taken: AddressRecord | null = null
  #reaps: number[] = []
  /** Where the lists of a write were begun, by source. */
  readonly #begunAt = new Map<string, number>()

  constructor(world: World) {
    this.#world = world
  }

  fail(why: string): never {
    const error = new Violation(why)
    this.violation ??= error
    throw error
  }

  /** Runs what is called from within a promise, so that what is thrown is not lost in it. */
  guarded(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.violation ??= error
    }
  }

  // Events.

  committed({ events }: Write): void {
    this.#begunAt.clear()
    for (const { event, digest } of events) {
      this.#checkEvent(event)
      this.#greatest = Math.max(this.#greatest, event.seq)
      this.#fold({ event, digest })
      this.logged += 1
      if (this.#taken !== null && isHeld(this.shadow.records.get(this.#taken.address))) this.#taken = null
      if (!('record' in event) || event.record.state !== 'QUARANTINED') continue
      const { by } = event.record.quarantine!
      const words = this.shadow.quarantinedBy.get(by) ?? 0
      if (words > POLICY.quarantinesPerCaller)
        this.fail(`${words} addresses are in quarantine on the word of ${by}`)
    }
    if (this.#taken !== null) this.fail(`${this.#taken.address} was taken, and is free`)
  }

  #fold({ event, digest }: Chained): void {
    evolve(this.shadow, event)
    Object.assign(this.shadow, { head: event.seq, at: event.at, digest })
  }

  #checkEvent(event: LedgerEvent): void {
    const { seq, at, traceId } = event
    const { head, at: last } = this.shadow
    const what = lineOf(event)
    const never = (is: boolean, why: string) => {
      if (is) this.fail(`${what}: ${why}`)
    }
    // What the ledger writes on its own before an operator's recover is done is of no lease.
    const isLedgers = event.actor === 'ledger'
    never(
      seq <= this.#greatest && !isLedgers,
      `number ${seq} is not above ${this.#greatest}, which was given before`,
    )
    never(event.type !== 'era.begun' && seq !== head + 1, `number ${seq} follows ${head}`)
    never(at < last, `it is of ${at}, before ${last}`)
    const isAnotherLife = event.type === 'era.begun' || event.cause === 'FAILED_OVER'
    never(this.#isLost === true && !isAnotherLife && !isLedgers, 'the log has lost its end and goes on')
    never(this.#isLost === false && isAnotherLife && isLedgers, 'nothing was lost')
    if (isAnotherLife) this.#isLost &&= event.cause === 'FAILED_OVER' ? null : false
    never(traceId !== null && this.#refused.has(traceId), 'its caller was told that nothing was done')
    if ('record' in event) this.#checkLease(event, what)
    if (traceId !== null && !('record' in event && event.record.quarantine?.reason === 'FOREIGN'))
      this.#traces.add(traceId)
    const isAhead = event.type === 'reconcile.held' && event.details.hold === 'SOURCE_AHEAD'
    never(isAhead && this.#unproven.has(traceId!), 'the number that it is held for is not proven')
    if (event.type === 'recovery.ended') {
      const { holds } = this.shadow.network!
      const isOperators = event.actor === 'operator'
      const isWaitedFor = (id: string) => !this.shadow.sources.has(id)
      const unknown = [...this.#unknown].find(isWaitedFor)
      never(!isOperators && unknown !== undefined, `${unknown} has called, and is not registered`)
      never(!isOperators && holds.CLOCK !== undefined, 'the clock was set')
      const lasted = this.#world.now - this.#recoveringSince
      never(!isOperators && lasted < POLICY.recoveryMs - SLACK_MS, `the recovery lasted ${lasted} ms`)
      this.#unknown.clear()
    }
    if (event.type === 'reconcile.resumed') {
      if (event.details.holds.includes('TOO_MANY_REAPS')) this.#reaps = []
      // By an operator's word the time that was stepped over has passed.
      if (event.actor === 'operator' && event.details.holds.includes('CLOCK')) this.#forgetWaits()
    }
    if (event.type === 'source.reported') {
      this.#begunAt.set(event.details.source, event.details.head)
      this.#noteLists(event)
    }
    if (event.type === 'era.begun')
      for (const source of this.#world.sources.values()) Object.assign(source, { completeAt: 0, taken: 0 })
    if (event.type === 'era.begun') this.#recoveringSince = this.#world.now
    if (isAnotherLife) for (const source of this.#world.sources.values()) source.takenAt = 0
    if (event.type === 'source.retired') {
      const source = this.#world.sources.get(event.details.id)!
      source.isRetired = true
      for (const { spares } of source.processes)
        for (const spare of spares) spare.excuse ??= 'its agent was retired'
    }
    if (event.type === 'source.reported' && event.details.closed)
      for (const { address } of event.details.vanished)
        this.#world.sources.get(event.details.source)!.told.delete(address)
  }

  /** What its list has no more while nobody holds it, and whom it has where another holds it. */
  #noteLists({ details: { source, head, appeared, vanished } }: EventOf<'source.reported'>): void {
    const { shadow } = this
    const { now, lives } = this.#world
    const enabled = [...shadow.sources.values()].filter(({ state }) => state === 'ENABLED')
    const slowest = Math.max(0, ...enabled.map(({ declaration }) => declaration.intervalMs))
    const wasLive = (entry: Entry, block: string) =>
      sightingsOf(shadow, block).some(
        (one) => one.address === entry.address && isLive(one) && isSame(one, source, ownerOf(entry)),
      )
    for (const entry of [...vanished, ...appeared]) {
      const block = blockAt(shadow, entry.address)
      if (block === null) continue
      const record = shadow.records.get(block.address)
      const owner = ownerOf(entry)
      const isOver = vanished.includes(entry) || entry.state === TERMINAL
      if (isOver && !isHeld(record) && wasLive(entry, block.address)) {
        const rests = Math.max(block.poolState.pool.cooldownMs, 2 * slowest)
        const attachment = owner === null ? '' : attachmentKey(owner)
        this.#unlisted.getOrInsert(block.address, []).push({ at: now, rests, attachment })
      }
      if (isOver || owner === null || !isHeld(record) || record.owner === null || head < record.token)
        continue
      if (shadow.sources.get(source)!.state !== 'ENABLED' || isListedAs(record.owner, owner)) continue
      for (const life of lives)
        if (uses(life, record.address) && life.owner.uid === owner.uid && life.owner.kind === owner.kind)
          this.#beside.getOrInsert(record.token, []).push({ life, source })
    }
  }

  /** A caller or source of a node changes nothing that is placed on another, and holds no more than it may. */
  #checkWord(
    { record, type, actor, cause, details }: LeaseEvent,
    before: AddressRecord | undefined,
    never: Never,
  ): void {
    const { shadow } = this
    const { records, pools } = shadow
    // A job that looks again goes by a source's word.
    const by = cause === 'RECHECK' ? (details!.source as string) : actor
    const node = nodeOfWord(this.#world, by)
    const { era, recovering } = shadow.network!
    const source = this.#world.sources.get(by)
    if (node !== '' && isHeld(before) && before.node !== node) {
      const mayLack = recovering !== null || (eraOf(before.token) < era && source!.taken < SURELY_COUNTED)
      const isConflict = type === 'lease.quarantined' && record.quarantine!.reason === 'CONFLICT'
      never(
        !isConflict || (before.state !== 'RESERVED' && !mayLack),
        `it is placed on ${before.node || 'no node'}, and changed on the word of ${by}`,
      )
    }
    if (type === 'lease.adopted' && node !== '') {
      never(record.node !== node, `it is adopted on the word of ${by}`)
      const { kind } = record.owner!
      never(
        kind === 'infrastructure' || !source!.declaration.ownerKinds.includes(kind),
        `${by} is no witness of it`,
      )
    }
    const { nodeLimit } = pools.get(record.poolId)!.pool
    const where = record.node
    const isThere = record.state === 'FREE' || (isHeld(before) && before.node === where)
    if (isThere || where === '' || nodeLimit === undefined || this.#taken !== null) return
    let held = 0
    for (const one of records.values())
      if (one.poolId === record.poolId && isHeld(one))
        held += one.node === where || (one.state === 'QUARANTINED' && one.quarantine!.node === where) ? 1 : 0
    never(held >= nodeLimit, `${where} holds ${held} of the pool, and may hold ${nodeLimit}`)
  }

  #checkLease(event: LeaseEvent, what: string): void {
    const { record, previous, type } = event
    const { address, owner } = record
    const before = this.shadow.records.get(address)
    const never = (is: boolean | undefined, why: string) => {
      if (is) this.fail(`${what} for ${owner === null ? 'nobody' : describeOwner(owner)}: ${why}`)
    }
    const isOperators = event.details?.reason === 'OPERATOR'
    never(previous !== (before?.seq ?? 0), `it follows ${previous}, the last was ${before?.seq}`)
    const mayEnd = isOperators || type === 'lease.updated'
    const kept = before?.state === 'QUARANTINED' ? before.quarantine!.reason : null
    never(kept === 'OPERATOR' && !mayEnd, 'an operator quarantined it')
    never(kept === 'IN_USE' && !mayEnd && event.actor !== 'operator', 'another host answers for it')
    this.#checkWord(event, before, never)
    if (type === 'lease.adopted') {
      never(isHeld(before), 'it is held')
      never(isClosed(this.shadow, owner!, record.node, event.at), 'its attachment is closed')
    }
    never(type === 'lease.confirmed' && before?.state !== 'RESERVED', `it was ${before?.state}`)
    const isOther = before?.token !== record.token || before.state !== record.state
    never(type === 'lease.updated' && isOther, `it was ${before?.state} #${before?.token}`)
    const begunAt = event.cause === 'REPORT' ? this.#begunAt.get(event.actor) : undefined
    const isConflict = type === 'lease.quarantined' && record.quarantine!.reason === 'CONFLICT'
    never(isConflict && begunAt! < before!.token, 'the list that says so is older than the lease')
    never(
      type === 'lease.adopted' && begunAt! < (this.#taken?.token ?? before?.seq ?? 0),
      'the list that says so is older than its end',
    )
    const isTaker = ({ block, spare }: Life) => block === address && spare?.token === before?.token
    const isMadeUp = this.#world.sources.get(record.quarantine?.by ?? '')?.isHostile
    const users = [...this.#world.lives].filter((life) => uses(life, address) && life.state === 'running')
    const taker = isMadeUp || !users.every(isTaker) ? undefined : users[0]
    never(isConflict && taker !== undefined, `${describe(taker)} got it as a spare of its node`)
    if (type === 'lease.released') {
      const life = this.#userOf(address, (one) => !sameAttachment(one.owner, owner!))
      never(life !== undefined, `${describe(life)} uses it, and did not say that it is removed`)
    }
    if (type === 'lease.reserved') this.#checkReserved(event, before, never)
    if (type === 'lease.reaped' && event.details?.reason === 'TAKEN') {
      never(owner?.kind !== RESERVE_KIND, 'it is no spare')
      this.#taken = record
    } else if (type === 'lease.reaped') this.#checkReaped(event, before!, never)
    const { now } = this.#world
    if (record.confirmBy !== null)
      this.#promised.set(address, { until: now + record.confirmBy - event.at, token: record.token })
    this.#unlisted.delete(address)
    if (record.state !== 'FREE') return
    this.#ended.set(address, { at: now, seq: record.seq })
    const { pool, heldOn } = this.shadow.pools.get(record.poolId)!
    const isKept = ({ source }: Seen) =>
      (this.shadow.quarantinedBy.get(source) ?? 0) < POLICY.quarantinesPerCaller &&
      (heldOn.get(nodeOfWord(this.#world, source)) ?? 0) < (pool.nodeLimit ?? Infinity)
    const seen = (this.#beside.get(record.token) ?? []).filter(isKept)
    this.#beside.delete(record.token)
    const isProven = event.cause === 'PROVEN_ABSENT' || isOperators || this.#taken !== null
    if (isProven && (owner !== null || isOperators)) this.#contested.delete(address)
    else if (seen.length > 0) this.#contested.set(address, seen)
  }

  #checkReserved(
    { record, at, requestId, actor, traceId }: LeaseEvent,
    before: AddressRecord | undefined,
    never: Never,
  ): void {
    const { shadow } = this
    const { address, poolId } = record
    const owner = record.owner!
    const other = this.#userOf(address, (one) => sameAttachment(one.owner, owner))
    never(other !== undefined, `${describe(other)} uses it`)
    const teller = this.#tellerOf(address, attachmentKey(owner))
    never(teller !== undefined, `${teller} has told that another lives there`)
    never(isHeld(before), 'it is held')
    const { recovering, holds, closed } = shadow.network!
    never(closed, 'the network is closed')
    never(recovering !== null || holds.SOURCE_AHEAD !== undefined, 'the network is not trusted')
    never(isClosed(shadow, owner, record.node, at), 'its attachment is closed')
    const node = nodeOfWord(this.#world, actor)
    const isPlaced = (one: AddressRecord) => node === '' || one.node === node
    for (const { at, rests, attachment } of this.#unlisted.get(address) ?? []) {
      const rested = this.#world.now - at
      never(
        attachment !== attachmentKey(owner) && rested < rests - SLACK_MS,
        `it was listed, and has rested ${rested} ms of ${rests} since`,
      )
    }
    for (const { life, source } of this.#contested.get(address) ?? [])
      never(
        uses(life, address) && life.state === 'running' && !this.#world.sources.get(source)!.isRetired,
        `${describe(life)} uses it, whom ${source} listed beside the holder before`,
      )
    this.#contested.delete(address)
    const end = this.#ended.get(address)
    const isBack = before !== undefined && isGivenBack(before, owner) && isPlaced(before)
    if (before !== undefined && end?.seq === before.seq && !isBack) {
      const [rests, rested] = [before.availableAt! - before.at, this.#world.now - end.at]
      never(rested < rests - SLACK_MS, `it has rested ${rested} ms of ${rests}`)
    }
    const { pool } = shadow.pools.get(poolId)!
    if (pool.liveness === 'STRICT') {
      const covering = [...this.#world.sources.values()].filter(
        ({ declaration: { id }, node }) =>
          shadow.sources.get(id)?.state === 'ENABLED' && (node === null || node.name === record.node),
      )
      never(covering.length === 0, 'the pool is STRICT, and nobody looks')
      for (const { declaration, completeAt } of covering)
        never(
          at - completeAt > 2 * declaration.intervalMs,
          `the pool is STRICT, and ${declaration.id} is silent`,
        )
    }
    const own = leasesOfHolder(shadow, owner).filter(isPlaced)
    never(own.filter((one) => one.poolId === poolId).length >= pool.ownerLimit, 'its owner is at the limit')
    const has = leasesOfAttachment(shadow, owner).find(
      (one) => one.state !== 'QUARANTINED' && one.poolId === poolId && isPlaced(one),
    )
    never(has !== undefined, `it has ${has?.address}`)
    const older = own.find((one) => one.state !== 'QUARANTINED' && !sameAttachment(one.owner!, owner))
    never(older !== undefined, `another life of it holds ${older?.address}`)
    never(!contains(pool.allocatable, addressValue(address).value), 'the pool does not lease it')
    if (requestId === null) return
    const { key } = requestName(node, requestId)
    const first = this.#requests.getOrInsert(key, traceId)
    never(first !== traceId, `it is the second by request ${requestId}`)
  }

  #checkReaped(
    { record: { address, owner }, cause, details, at }: LeaseEvent,
    before: AddressRecord,
    never: Never,
  ): void {
    const { network, pools } = this.shadow
    const { holds, recovering } = network!
    const { now, lives, sources, checks } = this.#world
    never(!isHeld(before), 'it was not held')
    never(
      recovering !== null || holds.SOURCE_AHEAD !== undefined || holds.CLOCK !== undefined,
      'the network is not trusted',
    )
    const judged = details?.version ?? before.seq
    never(judged !== before.seq, `version ${judged} was judged, it is at ${before.seq}`)
    if (details?.reason === 'OPERATOR') {
      for (const [id, { told, node, isRetired, takenAt, declaration }] of sources) {
        never(
          !isRetired &&
            node !== null &&
            node.name === details.node &&
            at - takenAt <= 2 * declaration.intervalMs,
          `${id} of ${details.node} has reported`,
        )
        const there = isRetired || details.node === undefined ? undefined : told.get(address)
        never(
          there !== undefined && (node?.name ?? there.node) !== details.node,
          `${id} lists it on another node than ${details.node}`,
        )
      }
      for (const life of lives) if (uses(life, address)) life.excuse ??= 'reaped by an operator'
      for (const { processes } of sources.values())
        for (const spare of processes.flatMap(({ spares }) => [...spares]))
          if (spare.address === address) spare.excuse ??= 'reaped by an operator'
      return
    }
    const life = this.#userOf(address)
    never(life !== undefined, `${cause}, but ${describe(life)} uses it`)
    const teller = this.#tellerOf(address, 'nobody')
    never(teller !== undefined, `${cause}, but ${teller} has told that somebody lives there`)
    if (cause === 'NEVER_CONFIRMED') {
      const promise = this.#promised.get(address)
      const until =
        (promise?.until ?? 0) +
        reapPolicy(pools.get(before.poolId)?.pool.reapPolicy).confirmGraceMs -
        SLACK_MS
      never(
        promise?.token === before.token && now < until,
        `its Confirm was to be waited for ${until - now} ms more`,
      )
      return
    }
    never(owner?.kind === 'infrastructure', 'infrastructure')
    never(holds.TOO_MANY_REAPS !== undefined, 'too many reaps hold the network')
    const proof = JSON.parse(JSON.stringify(details!.proof)) as Proof
    const { verdict } = judgeProof(proof, checks.guards.reap)
    never(verdict !== 'reap', `judged again by its proof it is ${verdict}`)
    never(proof.record.seq !== before.seq, `version ${proof.record.seq} was judged, it is at ${before.seq}`)
    this.#reaps = [...this.#reaps.filter((one) => one > at - POLICY.holdWindowMs), at]
    let held = 0
    for (const poolState of pools.values())
      held += poolState.counts.RESERVED + poolState.counts.ACTIVE + poolState.counts.QUARANTINED
    const isMany = this.#reaps.length > Math.max(POLICY.heldAboveReaps, POLICY.heldAboveShare * held)
    never(isMany, `${this.#reaps.length} of ${held} leases are reaped within an hour`)
  }

  /** A life that keeps to the contract, and uses an address. */
  #userOf(block: string, except: (life: Life) => boolean = () => false): Life | undefined {
    for (const life of this.#world.lives)
      if (uses(life, block) && life.excuse === null && !except(life)) return life
    return undefined
  }

  /** Who has told that another than this attachment lives there. */
  #tellerOf(block: string, attachment: string): string | undefined {
    const isInside = (address: string) =>
      address === block ||
      (block.includes(':') && address.includes(':') && blockAt(this.shadow, address)?.address === block)
    for (const [id, { told, isRetired }] of this.#world.sources)
      if (!isRetired)
        for (const [address, one] of told) if (one.attachment !== attachment && isInside(address)) return id
    return undefined
  }

  // Answers.

  begin(command: Command): Call {
    this.calls += 1
    if (command.type === 'report' && !command.proven) this.#unproven.add(command.traceId!)
    const isRepeated = this.#answered.has(keyOf(command))
    return { command, head: this.shadow.head, losses: this.losses, isRepeated }
  }

  answered({ command, head, losses, isRepeated }: Call, outcome: Outcome): void {
    const { type, traceId, requestId } = command
    if (!outcome.ok) {
      const { reason } = outcome.refusal
      // Where somebody forges calls, the ids of his own node are his.
      const isForged = this.#world.faults.has('callersForge') && command.actor.node === HOSTILE_NODE
      if (isRepeated && !isForged && losses === this.losses && !REPEATED.includes(reason))
        this.fail(`${type} was answered, and is refused as ${reason} when it is repeated as ${requestId}`)
      if (reason === 'REQUEST_ID_REUSED' && !isForged)
        this.fail(`${type} is refused, because another caller used its id ${requestId}`)
      const { pool } = outcome.refusal.metadata
      const isOneOf = ({ pools, address }: Claim) => address === null && pools.slice(0, -1).includes(pool!)
      if (type === 'reserve' && NEXT_POOL.includes(reason) && command.claims.some(isOneOf))
        this.fail(`${type} was refused as ${reason} of pool ${pool}, and another was named after it`)
      if (reason === 'OUTCOME_UNKNOWN' || traceId === null) return
      if (this.#traces.has(traceId))
        this.fail(`${type} was refused as ${reason}: nothing was done, but the log has it`)
      this.#refused.add(traceId)
      return
    }
    const { answer, replayed } = outcome
    const items = type === 'allOrNothing' ? command.items : [command]
    const given = items.flatMap((item, at) =>
      item.type === 'reserve' || item.type === 'confirm'
        ? (answer.items?.[at] ?? answer).leases.map((lease) => ({ item, lease }))
        : [],
    )
    if (losses !== this.losses) return
    if (requestId !== null && given.some(({ lease }) => lease.version > 0)) this.#answered.add(keyOf(command))
    for (const { item, lease } of given) {
      const { fencingToken, version, address, leaseId, reused } = lease
      if (version === 0) continue
      const { owner } = item.type === 'reserve' ? item : item.lease
      if (owner !== null && !sameAttachment(lease.owner!, owner) && command.fingerprint !== 'forged')
        this.fail(`${leaseId} of ${describeOwner(lease.owner!)} was answered to ${describeOwner(owner)}`)
      if (item.type === 'reserve' && !reused && !replayed && item.liveAddresses.includes(address))
        this.fail(`${address} was handed out, though its caller has said that somebody lives there`)
      if (version > this.shadow.head)
        this.fail(`${leaseId} was answered at version ${version}, which is not in the log`)
      const record = this.shadow.records.get(address)
      const isOver = record?.token !== fencingToken || !isHeld(record)
      if (isOver && (record?.seq ?? 0) <= head && !replayed)
        this.fail(`${leaseId} was answered, but it had ended before ${type} was called`)
    }
    if (!replayed)
      for (const [at, item] of items.entries()) this.#checkDone(item, (answer.items?.[at] ?? answer).leases)
  }

  /** What an accepted command asked for is so, where nothing has happened to its leases since. */
  #checkDone(item: Command, leases: readonly LeaseView[]): void {
    const never: Never = (is, why) => {
      if (is) this.fail(`${item.type} by ${item.traceId} was accepted, and ${why}`)
    }
    for (const [at, lease] of leases.entries()) {
      const record = this.shadow.records.get(lease.address)
      if (record === undefined || record.seq !== lease.version) continue
      if (item.type === 'reserve') this.#checkGiven(item, item.claims[at]!, record, lease.reused, never)
      const { address, state, confirmBy, owner } = record
      if (item.type === 'confirm') never(state !== 'ACTIVE' || confirmBy !== null, `${address} is ${state}`)
      if (item.type === 'release') never(state === 'RESERVED' || state === 'ACTIVE', `${address} is ${state}`)
      if (item.type === 'confirm' || item.type === 'release')
        never(
          item.lease.owner !== null && !sameAttachment(owner!, item.lease.owner),
          `${address} is ${describeOwner(owner!)}'s`,
        )
      if (item.type === 'updateLabels')
        never(!isDeepStrictEqual(record.labels, item.labels), `${address} has other labels`)
    }
    if (item.type === 'reserve')
      never(leases.length !== item.claims.length, `${leases.length} leases were given`)
    if (item.type === 'confirm') never(leases.length === 0, 'no lease was named')
    if (item.type !== 'release' || item.lease.token !== null || item.actor.node !== null) return
    const left = leasesOfAttachment(this.shadow, item.lease.owner!).find((one) => one.state !== 'QUARANTINED')
    never(left !== undefined, `${left?.address} is ${left?.state}`)
  }

  #checkGiven(
    { owner, settings: { node, ...settings }, confirmed, confirmWithinMs }: Command<'reserve'>,
    { pools, address }: Claim,
    record: AddressRecord,
    isReused: boolean,
    never: Never,
  ): void {
    const { pool } = this.shadow.pools.get(record.poolId)!
    const { state, confirmBy, at } = record
    const what = record.address
    never(!pools.includes(pool.name), `${what} is of pool ${pool.name}`)
    never(address !== null && address !== what, `${what} was given`)
    never(!isDeepStrictEqual(record.owner, owner), `${what} is ${describeOwner(record.owner!)}'s`)
    never(node !== '' && record.node !== node, `${what} is on ${record.node}`)
    for (const [name, value] of Object.entries(settings))
      never(
        !isReused && !isDeepStrictEqual(record[name as keyof AddressRecord], value),
        `${what} has other ${name}`,
      )
    never(confirmed ? state !== 'ACTIVE' : !isReused && state !== 'RESERVED', `${what} is ${state}`)
    const within = confirmed || state === 'ACTIVE' ? null : (confirmWithinMs ?? pool.confirmWithinMs)
    const least = within === null ? null : at + within
    const isKept =
      isReused && least !== null && (confirmBy === null ? pool.confirmWithinMs === null : confirmBy >= least)
    never(confirmBy !== least && !isKept, `${what} waits until ${confirmBy} for its Confirm`)
  }

  /** The end of the log is lost: what is known of it counts no more. */
  lost(left: readonly Chained[], isAcknowledged: boolean): void {
    const wasWhole = this.#isLost !== true
    this.losses += 1
    this.#isLost = true
    this.shadow = newImage(NETWORK)
    for (const chained of left) this.#fold(chained)
    this.#forgetWaits()
    for (const one of [this.#traces, this.#refused, this.#requests, this.#unknown]) one.clear()
    if (isAcknowledged) {
      for (const source of this.#world.sources.values()) source.told.clear()
      this.#answered.clear()
      this.#beside.clear()
      this.#contested.clear()
    } else {
      const { head } = this.shadow
      const life = [...this.#world.lives].find(({ token }) => token > head)
      if (life !== undefined && wasWhole)
        this.fail(`${describe(life)} was given #${life.token}, the log ends at ${head}`)
      this.#greatest = head
    }
    this.#reaps = [...this.shadow.reaps]
  }

  /** It was answered that nobody knows it. */
  calledInVain(source: string): void {
    if (this.shadow.network!.recovering !== null) this.#unknown.add(source)
  }

  #forgetWaits(): void {
    this.#recoveringSince = Number.NEGATIVE_INFINITY
    this.#ended.clear()
    this.#promised.clear()
    this.#unlisted.clear()
  }

  // Images.

  /** Partition and order of free space. */
  space(): void {
    for (const poolState of this.shadow.pools.values()) {
      const wrong = partitionFault(this.shadow, poolState)
      if (wrong !== null) this.fail(wrong)
      const [next, expected] = [nextCandidates, expectedCandidates].map((of) =>
        of(this.shadow, poolState, this.shadow.at, 4).join(),
      )
      if (next !== expected)
        this.fail(`pool ${poolState.pool.name} hands out ${next}, it should be ${expected}`)
    }
  }

  same(image: Image, whose: string, clock: number): void {
    if (image.digest !== this.shadow.digest)
      this.fail(`the image of ${whose} is at ${image.head}, the log at ${this.shadow.head}`)
    const now = Math.max(this.shadow.at, clock)
    const [log, other] = [canonical(this.shadow, now), canonical(image, now)]
    for (const name of Object.keys(log) as (keyof typeof log)[]) {
      const [here, there] = [JSON.stringify(log[name]), JSON.stringify(other[name])]
      const at = [...here].findIndex((character, index) => character !== there[index])
      if (here !== there)
        this.fail(
          `the image of ${whose} has other ${name} than the log: ${here.slice(at - 80, at + 80)} and ${there.slice(at - 80, at + 80)}`,
        )
    }
  }
}

type Never = (is: boolean | undefined, why: string) => void

/** A released address goes back to its last holder at once. */
function keyOf({ actor, requestId }: Command): string {
  return requestId === null ? '' : requestName(actor.node ?? '', requestId).key
}

function isGivenBack(before: AddressRecord, owner: Owner): boolean {
  return before.ended === 'RELEASED' && before.owner !== null && holderKey(before.owner) === holderKey(owner)
}

function describe(life: Life | undefined): string {
  return life === undefined
    ? ''
    : `life ${life.id} of ${describeOwner(life.owner)} on ${life.node.name} (${life.state})`
}

/** The log's part of the story. */
export function logLine({ event }: Chained): string {
  const at = new Date(event.at).toISOString().slice(11, 23)
  const whose =
    'record' in event && event.record.owner !== null
      ? ` of ${describeOwner(event.record.owner)} on ${event.record.node}`
      : ''
  return `${event.seq} ${at} ${lineOf(event)}${whose} by ${event.actor} for ${event.cause}`
}
