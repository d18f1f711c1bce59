/**
 * The vocabulary of the core's tests: `given(facts).when(command).then(events)`. Facts are events of the past,
 * numbered here; what a command leaves is written as one line an event, as `describeEvent` says it:
 *
 *   given(pool('a', '10.0.0.0/29'), reserved('10.0.0.1', web(1)))
 *     .when(reserve({ owner: web(2) }))
 *     .then('lease.quarantined 10.0.0.1 SUPERSEDED', 'attachment.closed web#1 everywhere', 'lease.reserved 10.0.0.2')
 */
import { expect } from 'vitest'
import { parseAddress } from '../../src/core/address.ts'
import type {
  Actor,
  AllOrNothing,
  Command,
  Confirm,
  DeletePool,
  Expire,
  LeaseView,
  PoolChange,
  QuarantineAddress,
  Reap,
  Release,
  Sight,
  SightedEntry,
  Supersedes,
  UpdateLabels,
  UpdatePool,
} from '../../src/core/command.ts'
import type { EventHeader, LedgerEvent } from '../../src/core/event.ts'
import type { Lease, QuarantineReason } from '../../src/core/lease.ts'
import type { Labels, Owner, Placement } from '../../src/core/owner.ts'
import { firstSeqOfEra } from '../../src/core/policy.ts'
import { type PoolInput, parsePoolSettings } from '../../src/core/pool.ts'
import type { Reason, Refusal } from '../../src/core/refusal.ts'
import {
  ADMIN,
  beginEra,
  claim,
  createNetwork,
  createPool,
  entry,
  fenceNode,
  owner,
  reapProven,
  reserve,
  restore,
  resumeHold,
  sight,
} from './commands.ts'
import { type MemoryLedger, type MemoryOptions, memoryLedger, type Result } from './memory-ledger.ts'
import type { WorldSource } from './world.ts'

export {
  ADMIN,
  beginEra,
  claim,
  createNetwork,
  createPool,
  entry,
  fenceNode,
  owner,
  reapProven,
  reserve,
  restore,
  resumeHold,
}

export const SECOND = 1_000
export const MINUTE = 60_000
export const HOUR = 3_600_000
export const DAY = 24 * HOUR

// The past.

/** Something that happened; it may leave events, or only let time pass. */
export type Fact = (ledger: MemoryLedger) => void

export function elapsed(ms: number): Fact {
  return (ledger) => ledger.wait(ms)
}

export function pool(name: string, cidr: string, fields: Partial<PoolInput> = {}): Fact {
  return (ledger) => {
    const settings = parsePoolSettings({ name, cidr, ...fields })
    if ('reason' in settings) throw new Error(settings.message)
    record(ledger, (header) => ({
      ...header,
      type: 'pool.created',
      poolId: header.seq,
      pool: settings,
    }))
  }
}

type LeaseFields = Partial<Pick<Lease, 'placement' | 'witness' | 'confirmBy' | 'state'>>

/** RESERVED for this owner, or ACTIVE if the fields say so. */
export function reserved(address: string, holder: Owner, fields: LeaseFields = {}): Fact {
  return (ledger) =>
    record(ledger, (header) => newLease(ledger, header, 'lease.reserved', address, holder, fields))
}

export function active(address: string, holder: Owner, fields: LeaseFields = {}): Fact {
  return reserved(address, holder, { ...fields, state: 'ACTIVE' })
}

/** Quarantines the lease that is there, or else the address without an owner. */
export function quarantined(address: string, reason: QuarantineReason, by = 'somebody'): Fact {
  return (ledger) =>
    record(ledger, (header) => {
      const quarantine = { reason, at: header.at, by, why: 'given' }
      const before = leaseAt(ledger, address)
      if (before === null) {
        const made = newLease(ledger, header, 'lease.quarantined', address, null, {})
        return { ...made, lease: { ...made.lease, state: 'QUARANTINED', quarantine } }
      }
      return {
        ...header,
        type: 'lease.quarantined',
        lease: { ...before, version: header.seq, state: 'QUARANTINED', quarantine, confirmBy: null },
      }
    })
}

export function released(address: string): Fact {
  return ended(address, 'lease.released', true)
}

export function reaped(address: string): Fact {
  return ended(address, 'lease.reaped', false)
}

export function closed(of: Owner, poolName: string | null = null): Fact {
  return (ledger) => {
    const poolId = poolName === null ? null : ledger.pool(poolName).pool.poolId
    record(ledger, (header) => ({ ...header, type: 'attachment.closed', owner: of, poolId }))
  }
}

/** The database was restored: the network knows that its books may be older than the world. */
export function recovering(): Fact {
  return (ledger) =>
    record(ledger, (header) => ({
      ...header,
      seq: firstSeqOfEra(1),
      type: 'era.begun',
      era: 1,
      recovering: true,
    }))
}

/** An enabled source that has reported in no epoch but b1. */
export function source(id: string, fields: Partial<WorldSource> = {}): Fact {
  return (ledger) => ledger.world.register(id, fields)
}

/** A complete snapshot, begun now. */
export function lists(id: string, ...entries: readonly SightedEntry[]): Fact {
  return (ledger) =>
    ledger.world.report(id, entries, {
      head: ledger.fold().head,
      begunAt: ledger.now(),
      era: ledger.fold().network!.era,
      complete: true,
    })
}

/** One with holes; without a head, one of which nothing proves when it was begun. */
export function listsPartly(id: string, entries: readonly SightedEntry[], head: number | null): Fact {
  return (ledger) => {
    const { era } = ledger.fold().network!
    ledger.world.report(id, entries, { head, begunAt: ledger.now(), era, complete: false })
  }
}

/** Everything the source lists, as its last complete snapshot has it. */
export function sightOf(
  ledger: MemoryLedger,
  id: string,
  fields: Partial<Omit<Sight, 'type' | 'source'>> = {},
): Sight {
  const { complete, epoch, sequence } = ledger.world.sources.get(id)!
  return sight(id, {
    epoch,
    sequence,
    begunAt: complete?.begunAt ?? 0,
    entries: ledger.world.listed(id),
    ...fields,
  })
}

/** Somebody answers for it that this boot is over. */
export function fenced(node: string, boot: string, head?: number): Fact {
  return (ledger) =>
    record(ledger, (header) => ({
      ...header,
      type: 'node.fenced',
      evidence: { node, boot, why: 'powered off', ...(head !== undefined && { head }) },
    }))
}

function ended(address: string, how: 'lease.released' | 'lease.reaped', removalConfirmed: boolean): Fact {
  return (ledger) =>
    record(ledger, (header) => {
      const lease = leaseAt(ledger, address)!
      const { cooldownMs } = ledger.fold().pools.get(lease.poolId)!
      return {
        ...header,
        type: how,
        ended: {
          lease: { ...lease, version: header.seq },
          how,
          seq: header.seq,
          endedAt: header.at,
          availableAt: header.at + cooldownMs,
          removalConfirmed,
        },
      }
    })
}

function record(ledger: MemoryLedger, event: (header: EventHeader) => LedgerEvent): void {
  ledger.append([
    event({
      network: ledger.networkName,
      seq: ledger.fold().head + 1,
      at: ledger.now(),
      actor: 'somebody',
      cause: 'given',
      requestId: null,
      traceId: null,
      evidence: null,
    }),
  ])
}

function newLease<T extends 'lease.reserved' | 'lease.quarantined'>(
  ledger: MemoryLedger,
  header: EventHeader,
  type: T,
  address: string,
  holder: Owner | null,
  fields: LeaseFields,
): EventHeader & { readonly type: T; readonly lease: Lease } {
  const parsed = parseAddress(address)
  if ('malformed' in parsed) throw new Error(parsed.malformed)
  const place = [...ledger.fold().pools.values()].find(
    ({ family, range }) =>
      family === parsed.family && range.first <= parsed.value && parsed.value <= range.last,
  )!
  return {
    ...header,
    type,
    lease: {
      network: header.network,
      poolId: place.poolId,
      address,
      prefixLength: place.prefixLength,
      fencingToken: header.seq,
      version: header.seq,
      state: 'RESERVED',
      quarantine: null,
      owner: holder,
      placement: NOWHERE,
      witness: '',
      reservedAt: header.at,
      confirmedAt: fields.state === 'ACTIVE' ? header.at : null,
      confirmBy: null,
      ...fields,
    },
  }
}

export const NOWHERE: Placement = { node: '', boot: '', labels: {} }

export function on(node: string, labels: Labels = {}): Placement {
  return { node, boot: '', labels }
}

/** A token bound to a node. */
export function agentOf(node: string): Actor {
  return { name: `agent-${node}`, node }
}

/** A pod called web in one of its lives; without a number, one that tells no lives apart. */
export function web(life?: number): Owner {
  return life === undefined
    ? owner({ name: 'web' })
    : owner({ name: 'web', uid: 'web', incarnation: String(life) })
}

// Commands that the other tests' builders have no need of.

const envelope = {
  network: 'default',
  actor: ADMIN,
  cause: 'test',
  requestId: null,
  fingerprint: null,
  traceId: null,
}

type Fields<T> = Partial<Omit<T, 'type'>>

export function confirm(token: number, fields: Fields<Confirm> = {}): Confirm {
  return { ...envelope, type: 'confirm', lease: { token, owner: null }, ...fields }
}

export function confirmOf(of: Owner, fields: Fields<Confirm> = {}): Confirm {
  return { ...envelope, type: 'confirm', lease: { token: null, owner: of }, ...fields }
}

export function release(token: number, fields: Fields<Release> = {}): Release {
  return {
    ...envelope,
    type: 'release',
    lease: { token, owner: null },
    removalConfirmed: true,
    ...fields,
  }
}

export function releaseOf(of: Owner, fields: Fields<Release> = {}): Release {
  return {
    ...envelope,
    type: 'release',
    lease: { token: null, owner: of },
    removalConfirmed: true,
    ...fields,
  }
}

export function quarantine(
  target: QuarantineAddress['target'],
  fields: Fields<QuarantineAddress> = {},
): QuarantineAddress {
  return { ...envelope, type: 'quarantine', target, why: 'test', ...fields }
}

export function reap(token: number, version: number, fields: Fields<Reap> = {}): Reap {
  return { ...envelope, type: 'reap', token, version, why: 'test', ...fields }
}

export function expire(token: number, version: number): Expire {
  return { ...envelope, type: 'expire', token, version }
}

export function updateLabels(token: number, labels: Labels, fields: Fields<UpdateLabels> = {}): UpdateLabels {
  return { ...envelope, type: 'updateLabels', token, version: null, labels, ...fields }
}

export function updatePool(name: string, change: PoolChange, fields: Fields<UpdatePool> = {}): UpdatePool {
  return { ...envelope, type: 'updatePool', name, version: null, change, ...fields }
}

export function deletePool(name: string, fields: Fields<DeletePool> = {}): DeletePool {
  return { ...envelope, type: 'deletePool', name, version: null, ...fields }
}

export function allOrNothing(items: AllOrNothing['items'], fields: Fields<AllOrNothing> = {}): AllOrNothing {
  return { ...envelope, type: 'allOrNothing', items, ...fields }
}

/** `supersedes` of a Reserve whose caller saw the predecessor removed. */
export function removed(of: { readonly uid?: string; readonly incarnation?: string }): Supersedes {
  return { uid: of.uid ?? null, incarnation: of.incarnation ?? null, removalConfirmed: true }
}

// What comes of it.

export type Given = {
  readonly ledger: MemoryLedger
  /** Decides and keeps what comes of it. */
  when(command: Command): When
  /** The leases answered by a command that must succeed. */
  accept(command: Command): readonly LeaseView[]
  /** The only lease of that answer. */
  take(command: Command): LeaseView
  /** The refusal of a command that must be refused, and for this reason. */
  refuse(command: Command, reason: Reason): Refusal
  wait(ms: number): Given
  leaseAt(address: string): Lease | null
  /** Lines of every event after the facts. */
  since(): readonly string[]
}

export type When = {
  readonly result: Result
  /** Accepted, and left these events: none is an answer without an event. */
  then(...events: readonly string[]): LeaseView
  /** Refused for this reason, and left these events: none, but for quarantines of what its caller sees. */
  refused(reason: Reason, ...events: readonly string[]): Refusal
}

export function given(...facts: readonly Fact[]): Given {
  return givenIn({}, ...facts)
}

export function givenIn(options: MemoryOptions, ...facts: readonly Fact[]): Given {
  const ledger = memoryLedger(options)
  record(ledger, (header) => ({
    ...header,
    type: 'network.created',
    settings: { description: '', labels: {} },
    recoveryEnded: false,
  }))
  for (const fact of facts) fact(ledger)
  const from = ledger.events.length
  const accept = (command: Command) => {
    const { answer, refusal } = ledger.submit(command)
    if (answer === null)
      throw new Error(`${command.type} was refused: ${refusal!.reason}: ${refusal!.message}`)
    return answer.leases
  }
  const here: Given = {
    ledger,
    when: (command) => outcome(ledger, ledger.submit(command)),
    accept,
    take(command) {
      const leases = accept(command)
      expect(leases, 'one lease').toHaveLength(1)
      return leases[0]!
    },
    refuse: (command, reason) => outcome(ledger, ledger.submit(command)).refused(reason),
    wait(ms) {
      ledger.wait(ms)
      return here
    },
    leaseAt: (address) => leaseAt(ledger, address),
    since: () => ledger.events.slice(from).map((event) => describeEvent(ledger, event)),
  }
  return here
}

function outcome(ledger: MemoryLedger, result: Result): When {
  const lines = result.events.map((event) => describeEvent(ledger, event))
  return {
    result,
    // biome-ignore lint/suspicious/noThenProperty: the word of the vocabulary; nothing here is awaited
    then(...events) {
      expect(result.refusal?.message ?? null).toBeNull()
      expect(lines).toEqual(events)
      return result.answer!.leases[0]!
    },
    refused(reason, ...events) {
      expect(result.refusal?.reason ?? 'accepted', result.refusal?.message ?? '').toBe(reason)
      expect(lines).toEqual(events)
      return result.refusal!
    },
  }
}

function leaseAt(ledger: MemoryLedger, address: string): Lease | null {
  return ledger.fold().addresses.get(address)?.lease ?? null
}

/** `lease.reserved 10.0.0.1`, `lease.quarantined 10.0.0.1 CONFLICT`, `attachment.closed web#1 in a`, `pool.updated a`. */
export function describeEvent(ledger: MemoryLedger, event: LedgerEvent): string {
  switch (event.type) {
    case 'lease.reserved':
    case 'lease.adopted':
    case 'lease.updated':
    case 'lease.confirmed':
      return `${event.type} ${event.lease.address}`
    case 'lease.quarantined': {
      const { address, quarantine: why, owner: holder } = event.lease
      return `${event.type} ${address} ${why!.reason}${holder === null ? ' (nobody)' : ''}`
    }
    case 'lease.released':
    case 'lease.reaped':
      return `${event.type} ${event.ended.lease.address}`
    case 'attachment.closed': {
      const { uid, incarnation } = event.owner
      const where =
        event.poolId === null
          ? 'everywhere'
          : `in ${ledger.fold().pools.get(event.poolId)?.name ?? event.poolId}`
      return `${event.type} ${uid}#${incarnation} ${where}`
    }
    case 'pool.created':
    case 'pool.updated':
    case 'pool.deleted':
      return `${event.type} ${event.pool.name}`
    case 'node.fenced':
      return `${event.type} ${event.evidence.node} ${event.evidence.boot}`
    case 'reconcile.held':
    case 'reconcile.resumed':
      return `${event.type} ${event.evidence.source === '' ? 'everything' : event.evidence.source}`
    default:
      return event.type
  }
}
