/**
 * What must hold whatever happens: each event is compared with the world as it is committed, each answer as it is given; now
 * and then all images are compared with the fold of the log. `shadow` is that fold: the state before the event at hand.
 */
import type { Command } from '../../../src/next/core/command.ts'
import type { Outcome } from '../../../src/next/core/decide.ts'
import type { AddressRecord, LeaseEvent, LedgerEvent } from '../../../src/next/core/event.ts'
import { evolve } from '../../../src/next/core/evolve.ts'
import {
  addressValue,
  type Image,
  isClosed,
  isHeld,
  leasesOfAttachment,
  leasesOfHolder,
  newImage,
  unitAt,
} from '../../../src/next/core/image.ts'
import { judgeProof, type Proof } from '../../../src/next/core/judge.ts'
import { attachmentKey, describeOwner, holderKey, sameAttachment } from '../../../src/next/core/owner.ts'
import { POLICY, reapPolicy } from '../../../src/next/core/policy.ts'
import { contains } from '../../../src/next/core/ranges.ts'
import type { Write } from '../../../src/next/ledger/log.ts'
import { lineOf } from '../core/given.ts'
import { canonical, expectedCandidates, nextCandidates, partitionFault } from '../support/canonical.ts'
import type { Database } from './memory-log.ts'
import { type Life, NETWORK, type World } from './world.ts'

export class Violation extends Error {}

export type Checks = {
  readonly shadow: Image
  committed(write: Write): void
  answered(call: Call, outcome: Outcome): void
  begin(command: Command): Call
  /** The end of the log is lost: what is known of it counts no more. */
  lost(): void
  /** An operator may begin an era by himself. */
  mayBeginEra(): void
  /** The shadow alone: partition and order of free space. */
  space(): void
  same(image: Image, whose: string, clock: number): void
  fail(why: string): never
  /** Runs what is called from within a promise, so that what is thrown is not lost in it. */
  guarded(work: () => void): void
  /** What was thrown first. */
  readonly violation: unknown
  /** The log's part of the story. */
  log(last: number): readonly string[]
  /** Commands that were called, events of the log, and its commits when the present era began. */
  readonly count: { calls: number; events: number; begun: number }
}

export type Call = { readonly command: Command; readonly head: number; readonly losses: number }

/** A promise is kept to within this much: answers travel, clocks are compared every second. */
const SLACK_MS = 5_000

export function createChecks(world: World, database: Database): Checks {
  let shadow = newImage(NETWORK)
  let greatest = 0
  let losses = 0
  /** An era must begin before anything else is written. */
  let isLost = false
  let mayBegin = false
  const { without } = world
  const count = { calls: 0, events: 0, begun: 0 }
  /** When the address ended by the true clock, and with which event. */
  let ended = new Map<string, { readonly at: number; readonly seq: number }>()
  /** By the true clock: until when a confirm was promised to be waited for. */
  let promised = new Map<string, { readonly until: number; readonly token: number }>()
  let traces = new Set<string>()
  let refused = new Set<string>()
  let reservedBy = new Set<string>()
  let reaps: number[] = []

  let violation: unknown = null

  function fail(why: string): never {
    const error = new Violation(why)
    violation ??= error
    throw error
  }

  const usersOf = (unit: string, except: (life: Life) => boolean = () => false): Life | undefined => {
    for (const life of world.users.get(unit) ?? []) if (life.excuse === null && !except(life)) return life
    return undefined
  }
  const describe = (life: Life) =>
    `life ${life.id} of ${describeOwner(life.owner)} on ${life.node.name} (${life.state})`

  /** Who has told that somebody else lives there. */
  function toldElsewhere(unit: string, attachment: string): string | null {
    for (const [id, { told, isRetired }] of world.sources) {
      if (isRetired) continue
      const there = told.get(unit)
      if (there !== undefined && there.attachment !== attachment) return id
      if (!unit.includes(':')) continue
      for (const [address, { attachment: other }] of told)
        if (other !== attachment && address.includes(':') && unitAt(shadow, address)?.address === unit)
          return id
    }
    return null
  }

  function checkEvent(event: LedgerEvent): void {
    const { seq, at } = event
    if (seq <= greatest) fail(`number ${seq} is not above ${greatest}, which was given before`)
    if (event.type !== 'era.begun' && seq !== shadow.head + 1) fail(`number ${seq} follows ${shadow.head}`)
    if (at < shadow.at) fail(`event ${seq} is of ${at}, before ${shadow.at}`)
    if (event.type === 'era.begun') {
      if (!isLost && !mayBegin)
        fail(`era ${event.details.era} begins, and nothing was lost: ${event.details.why}`)
      isLost = false
      mayBegin = false
      count.begun = database.commits
    } else if (isLost && event.cause !== 'FAILED_OVER')
      fail(`${event.type} ${seq} goes on with a log that has lost its end`)
    else if (event.cause === 'FAILED_OVER') isLost = false
    if (event.traceId !== null && refused.has(event.traceId))
      fail(`${lineOf(event)} was refused: nothing was done, its caller was told`)
    if (event.type === 'reconcile.resumed' && event.details.holds.includes('TOO_MANY_REAPS')) reaps = []
    if (
      event.type === 'reconcile.resumed' &&
      event.actor === 'operator' &&
      event.details.holds.includes('CLOCK')
    ) {
      // By his word the time that was stepped over has passed.
      ended.clear()
      promised.clear()
    }
    if ('record' in event) checkLease(event)
    if (event.type === 'source.retired')
      Object.assign(world.sources.get(event.details.id) ?? {}, { isRetired: true })
    if (event.type === 'source.reported' && event.details.closed)
      for (const { address } of event.details.vanished)
        world.sources.get(event.details.source)?.told.delete(address)
    if (event.traceId !== null && !('record' in event && event.record.quarantine?.reason === 'FOREIGN'))
      traces.add(event.traceId)
  }

  function checkLease(event: LeaseEvent): void {
    const { record, previous } = event
    const before = shadow.records.get(record.address)
    if (previous !== (before?.seq ?? 0))
      fail(`${lineOf(event)} follows ${previous}, the last was ${before?.seq}`)
    const isOperators = event.details?.reason === 'OPERATOR'
    if (before?.state === 'QUARANTINED' && before.quarantine!.reason === 'OPERATOR' && !isOperators)
      fail(`${lineOf(event)} ends what an operator quarantined`)
    switch (event.type) {
      case 'lease.reserved':
        checkReserved(event, before)
        break
      case 'lease.adopted':
        if (isHeld(before)) fail(`${lineOf(event)} adopts what is held`)
        if (isClosed(shadow, record.owner!, event.at))
          fail(`${lineOf(event)} adopts for an attachment that is closed`)
        break
      case 'lease.confirmed':
        if (before?.state !== 'RESERVED') fail(`${lineOf(event)} was ${before?.state}`)
        break
      case 'lease.released': {
        const life = usersOf(record.address, ({ owner }) => !sameAttachment(owner, record.owner!))
        if (life !== undefined)
          fail(`${lineOf(event)}: ${describe(life)} still uses it, and did not say that it is removed`)
        break
      }
      case 'lease.reaped':
        checkReaped(event, before!)
        break
      default:
    }
    if (record.confirmBy !== null)
      promised.set(record.address, { until: world.now + record.confirmBy - event.at, token: record.token })
    if (record.state === 'FREE') ended.set(record.address, { at: world.now, seq: record.seq })
  }

  function checkReserved(event: LeaseEvent, before: AddressRecord | undefined): void {
    const { record } = event
    const owner = record.owner!
    const what = lineOf(event)
    if (isHeld(before)) fail(`${what} is held`)
    const other = usersOf(record.address, (life) => sameAttachment(life.owner, owner))
    if (other !== undefined) fail(`${what} for ${describeOwner(owner)}, but ${describe(other)} uses it`)
    const source = toldElsewhere(record.address, attachmentKey(owner))
    if (source !== null)
      fail(`${what} for ${describeOwner(owner)}, but ${source} has told that somebody lives there`)
    const { recovering, holds } = shadow.network!
    if (recovering !== null || holds.SOURCE_AHEAD !== undefined)
      fail(`${what} while the network is not trusted`)
    if (isClosed(shadow, owner, event.at)) fail(`${what} for ${describeOwner(owner)}, which is closed`)
    const end = ended.get(record.address)
    if (before !== undefined && end?.seq === before.seq) {
      const rests = before.availableAt! - before.at
      const isGivenBack =
        before.ended === 'RELEASED' && before.owner !== null && holderKey(before.owner) === holderKey(owner)
      if (world.now - end.at < rests - SLACK_MS && !isGivenBack)
        fail(`${what} has rested ${world.now - end.at} ms of ${rests}`)
    }
    const holder = leasesOfHolder(shadow, owner)
    const { pool } = shadow.pools.get(record.poolId) ?? fail(`${what} is in no pool`)
    if (holder.filter(({ poolId }) => poolId === pool.poolId).length >= pool.ownerLimit)
      fail(`${what} for ${describeOwner(owner)}, which is at its limit`)
    if (
      leasesOfAttachment(shadow, owner).some(
        (one) => one.state !== 'QUARANTINED' && one.poolId === pool.poolId,
      )
    )
      fail(`${what} for ${describeOwner(owner)}, which has one`)
    const older = holder.find((one) => one.state !== 'QUARANTINED' && !sameAttachment(one.owner!, owner))
    if (older !== undefined)
      fail(`${what} for ${describeOwner(owner)}, while ${describeOwner(older.owner!)} holds ${older.address}`)
    if (!contains(pool.allocatable, addressValue(record.address).value)) fail(`${what} is excluded`)
    if (event.requestId === null) return
    if (reservedBy.has(event.requestId)) fail(`${what} is the second by request ${event.requestId}`)
    reservedBy.add(event.requestId)
  }

  function checkReaped(event: LeaseEvent, before: AddressRecord): void {
    const { address, owner } = event.record
    const what = lineOf(event)
    if (!isHeld(before)) fail(`${what} was not held`)
    const { holds, recovering } = shadow.network!
    if (recovering !== null || holds.SOURCE_AHEAD !== undefined || holds.CLOCK !== undefined)
      fail(`${what} while the network is not trusted`)
    const { details } = event
    if (details?.version !== undefined && details.version !== before.seq)
      fail(`${what}: version ${details.version} was judged, it is at ${before.seq}`)
    if (details?.reason === 'OPERATOR') {
      for (const [id, { told, node, isRetired }] of world.sources) {
        const there = told.get(address)
        if (details.node === undefined || there === undefined || isRetired) continue
        if ((node?.name ?? there.node) !== details.node)
          fail(`${what} with node ${details.node}, but ${id} lists it on another`)
      }
      for (const life of world.users.get(address) ?? []) life.excuse ??= 'reaped by an operator'
      return
    }
    const life = usersOf(address)
    if (life !== undefined) fail(`${what} (${event.cause}), but ${describe(life)} uses it`)
    const source = toldElsewhere(address, 'nobody')
    if (source !== null) fail(`${what} (${event.cause}), but ${source} has told that somebody lives there`)
    if (event.cause === 'NEVER_CONFIRMED') {
      const promise = promised.get(address)
      const { confirmGraceMs } = reapPolicy(shadow.pools.get(before.poolId)?.pool.reapPolicy)
      if (promise?.token === before.token && world.now < promise.until + confirmGraceMs - SLACK_MS)
        fail(`${what}: a Confirm was promised to be waited for until ${promise.until}, it is ${world.now}`)
      return
    }
    if (owner?.kind === 'infrastructure') fail(`${what} is infrastructure`)
    if (holds.TOO_MANY_REAPS !== undefined) fail(`${what} while too many reaps hold the network`)
    const proof = JSON.parse(JSON.stringify(details!.proof)) as Proof
    const { verdict } = judgeProof(proof, without)
    if (verdict !== 'reap') fail(`${what}: judged again by its proof it is ${verdict}`)
    if (proof.record.seq !== before.seq)
      fail(`${what}: version ${proof.record.seq} was judged, it is at ${before.seq}`)
    reaps = [...reaps.filter((one) => one > event.at - POLICY.holdWindowMs), event.at]
    let held = 0
    for (const place of shadow.pools.values()) held += place.reserved + place.active + place.quarantined
    if (reaps.length > POLICY.heldAboveReaps && reaps.length > POLICY.heldAboveShare * held)
      fail(`${what} is reap ${reaps.length} of ${held} leases within an hour`)
  }

  const checks: Checks = {
    get shadow() {
      return shadow
    },
    count,
    committed({ events }) {
      for (const { event, digest } of events) {
        checkEvent(event)
        greatest = event.seq
        evolve(shadow, event)
        shadow.head = event.seq
        shadow.at = event.at
        shadow.digest = digest
        count.events += 1
        if ('record' in event && event.record.state === 'QUARANTINED') {
          const { by } = event.record.quarantine!
          const words = shadow.quarantinedBy.get(by) ?? 0
          if (words > POLICY.quarantinesPerCaller)
            fail(`${words} addresses are in quarantine on the word of ${by}`)
        }
      }
    },
    begin(command) {
      count.calls += 1
      return { command, head: shadow.head, losses }
    },
    answered({ command, head, losses: before }, outcome) {
      if (!outcome.ok) {
        const { reason } = outcome.refusal
        if (reason === 'OUTCOME_UNKNOWN' || command.traceId === null) return
        if (traces.has(command.traceId))
          fail(`${command.type} was refused as ${reason}: nothing was done, but the log has it`)
        refused.add(command.traceId)
        return
      }
      if (losses !== before || (command.type !== 'reserve' && command.type !== 'confirm')) return
      for (const { fencingToken, version, address, leaseId } of outcome.answer.leases) {
        if (version === 0) continue
        if (version > shadow.head)
          fail(`${leaseId} was answered at version ${version}, which is not in the log`)
        const record = shadow.records.get(address)
        const isOver = record === undefined || record.token !== fencingToken || !isHeld(record)
        if (isOver && (record?.seq ?? 0) <= head && !outcome.replayed)
          fail(`${leaseId} was answered, but it had ended before ${command.type} was called`)
      }
    },
    lost() {
      losses += 1
      isLost = true
      shadow = newImage(NETWORK)
      for (const { event, digest } of database.tables.get(NETWORK)!.events) {
        evolve(shadow, event)
        Object.assign(shadow, { head: event.seq, at: event.at, digest })
      }
      for (const source of world.sources.values()) source.told.clear()
      const { head } = shadow
      ended = new Map([...ended].filter(([, { seq }]) => seq <= head))
      promised = new Map()
      traces = new Set()
      refused = new Set()
      reservedBy = new Set()
      reaps = [...shadow.reaps]
    },
    mayBeginEra() {
      mayBegin = true
    },
    space() {
      const now = Math.max(shadow.at, 0)
      for (const place of shadow.pools.values()) {
        const wrong = partitionFault(shadow, place)
        if (wrong !== null) fail(wrong)
        const next = nextCandidates(shadow, place, now, 4).join()
        const expected = expectedCandidates(shadow, place, now, 4).join()
        if (next !== expected) fail(`pool ${place.pool.name} hands out ${next}, it should be ${expected}`)
      }
    },
    same(image, whose, clock) {
      const now = Math.max(shadow.at, clock)
      if (image.digest !== shadow.digest)
        fail(
          `the image of ${whose} is at ${image.head} ${image.digest}, the log at ${shadow.head} ${shadow.digest}`,
        )
      const [mine, theirs] = [canonical(shadow, now), canonical(image, now)].map((one) => Object.entries(one))
      for (const [index, [name, value]] of mine!.entries()) {
        const [here, there] = [JSON.stringify(value), JSON.stringify(theirs![index]![1])]
        if (here !== there)
          fail(`the image of ${whose} has other ${name} than the log: ${firstDifference(here, there)}`)
      }
    },
    fail,
    guarded(work) {
      try {
        work()
      } catch (error) {
        violation ??= error
      }
    },
    get violation() {
      return violation
    },
    log: (last) =>
      (database.tables.get(NETWORK)?.events ?? [])
        .slice(-last)
        .map(
          ({ event }) =>
            `${event.seq} ${new Date(event.at).toISOString().slice(11, 23)} ${lineOf(event)} by ${event.actor} for ${event.cause}${whose(event)}`,
        ),
  }
  return checks
}

function whose(event: LedgerEvent): string {
  return 'record' in event && event.record.owner !== null
    ? ` (${describeOwner(event.record.owner)} on ${event.record.node || 'no node'})`
    : ''
}

function firstDifference(a: string, b: string): string {
  let at = 0
  while (at < a.length && a[at] === b[at]) at += 1
  return `…${a.slice(Math.max(0, at - 80), at + 160)}… and …${b.slice(Math.max(0, at - 80), at + 160)}…`
}
