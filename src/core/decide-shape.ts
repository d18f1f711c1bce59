/**
 * Commands that change the shape of a network: its settings, eras, holds, pools. A pool edit is accepted only if no held or
 * cooling address would leave; otherwise the answer lists what is in the way.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Batch, emit } from './batch.ts'
import type { Answer, Command } from './command.ts'
import { expiresAt, idOf } from './decide-lease.ts'
import type { HoldCause } from './event.ts'
import { addressValue, type Image, isHeld, poolNamed, recordsIn, restedBy } from './image.ts'
import { eraOf, firstSeqOfEra, LAST_ERA, POLICY } from './policy.ts'
import { buildPool, type Pool, type PoolInput, parsePoolSettings } from './pool.ts'
import { contains } from './ranges.ts'
import { atVersion, invalid, type Refusal, refusal } from './refusal.ts'

export function decideCreateNetwork(batch: Batch, command: Command<'createNetwork'>): Answer | Refusal {
  const { image, known } = batch
  if (image.network !== null) {
    const { description, labels } = image.network
    return exists(`network ${image.name}`, { description, labels }, command.settings) ?? networkAnswer(image)
  }
  const details = { ...command.settings, identity: known.identity }
  emit(batch, command, { type: 'network.created', details })
  return networkAnswer(image)
}

export function decideUpdateNetwork(batch: Batch, command: Command<'updateNetwork'>): Answer | Refusal {
  const { image } = batch
  const { version, description, labels, identity } = image.network!
  const bad = atVersion(`network ${image.name}`, version, command.version, { network: image.name })
  if (bad !== null) return bad
  const before = { description, labels, identity }
  const details = {
    description: command.description ?? description,
    labels: command.labels ?? labels,
    identity: command.identity ?? identity,
  }
  if (!isDeepStrictEqual(details, before)) emit(batch, command, { type: 'network.updated', details })
  return networkAnswer(image)
}

export function decideEndRecovery(batch: Batch, command: Command<'endRecovery'>): Answer {
  if (batch.image.network!.recovering !== null)
    emit(batch, command, { type: 'recovery.ended', details: { why: command.why } })
  return networkAnswer(batch.image)
}

/**
 * The log is an older copy of itself, or lost its end: all later numbers are above any that was known or lost.
 * Several processes may find out at the same time: the era that has begun is begun.
 */
export function decideBeginEra(batch: Batch, command: Command<'beginEra'>): Answer | Refusal {
  const { image, known } = batch
  const { above, recovering, why } = command
  const era = Math.max(image.network!.era, eraOf(above)) + 1
  if (era > LAST_ERA) {
    const message = `era ${era} would be beyond ${LAST_ERA}, the last one that numbers can hold`
    return refusal('ILLEGAL_STATE', message)
  }
  const details = { era, recovering, identity: known.identity, after: image.head, why }
  emit(batch, command, { type: 'era.begun', details }, firstSeqOfEra(era))
  return decideResumeHold(batch, { ...command, type: 'resumeHold', hold: 'SOURCE_AHEAD' })
}

export function decideHold(batch: Batch, command: Command<'hold'>): Answer {
  const { image, now } = batch
  const { hold, why, stepMs } = command
  const before = image.network!.holds[hold]?.details.before ?? now - (stepMs ?? 0)
  const details =
    stepMs === undefined
      ? { hold, why }
      : { hold, why, before, until: now + Math.max(stepMs, longestWait(batch, before)) }
  emit(batch, command, { type: 'reconcile.held', details })
  return networkAnswer(image)
}

/** A wait that is longer than the step was cut short by the step: the hold lasts until the longest is over by the true time. */
function longestWait(batch: Batch, since: number): number {
  let end = since
  for (const record of batch.image.records.values())
    end = Math.max(end, record.availableAt ?? expiresAt(batch, record) ?? since)
  return end - since
}

export function decideResumeHold(batch: Batch, command: Command<'resumeHold'>): Answer {
  const { image } = batch
  const holds = (Object.keys(image.network!.holds) as HoldCause[]).filter(
    (hold) => command.hold === null || command.hold === hold,
  )
  if (holds.length > 0)
    emit(batch, command, { type: 'reconcile.resumed', details: { holds, why: command.why } })
  return networkAnswer(image)
}

export function decideCreatePool(batch: Batch, command: Command<'createPool'>): Answer | Refusal {
  const { image, now } = batch
  const poolId = image.head + 1
  const settings = parsePoolSettings(command.pool)
  if ('reason' in settings) return settings
  const before = poolNamed(image, settings.name)?.pool
  if (before !== undefined)
    return exists(`pool ${settings.name}`, before.settings, settings) ?? poolAnswer(before)
  const pool = buildPool(settings, { poolId, version: poolId, createdAt: now, updatedAt: now })
  const bad = taken(image, pool, 'name')
  if (bad !== null) return bad
  emit(batch, command, { type: 'pool.created', poolId, details: settings })
  return poolAnswer(pool)
}

export function decideUpdatePool(batch: Batch, command: Command<'updatePool'>): Answer | Refusal {
  const { image } = batch
  const pool = poolOf(image, command)
  if ('reason' in pool) return pool
  const { poolId, family } = pool
  const settings = parsePoolSettings(changed(pool, command))
  if ('reason' in settings) return settings
  if (isDeepStrictEqual(settings, pool.settings)) return poolAnswer(pool)
  const after = buildPool(settings, pool)
  if (after.family !== family) return invalid('cidr', `pool ${pool.name} is IPv${family} and stays so`)
  const bad = taken(image, after, 'newName') ?? inTheWay(batch, pool, after)
  if (bad !== null) return bad
  emit(batch, command, { type: 'pool.updated', poolId, details: settings })
  return poolAnswer(image.pools.get(poolId)!.pool)
}

function changed(pool: Pool, { change }: Command<'updatePool'>): PoolInput {
  const { reapPolicy, ...rest } = change
  const cidr = change.cidr ?? pool.cidr
  return {
    ...pool.settings,
    // A subnet that was simply the pool's range stays that when the range changes.
    subnet: pool.subnet === pool.cidr ? cidr : pool.subnet,
    ...rest,
    reapPolicy: { ...pool.reapPolicy, ...reapPolicy },
  }
}

export function decideDeletePool(batch: Batch, command: Command<'deletePool'>): Answer | Refusal {
  const pool = poolOf(batch.image, command)
  if ('reason' in pool) return pool
  const blocked = inTheWay(batch, pool, null)
  if (blocked !== null) return blocked
  emit(batch, command, { type: 'pool.deleted', poolId: pool.poolId, details: pool.settings })
  return poolAnswer(pool)
}

/** Held or cooling addresses that the pool would let go of. */
function inTheWay(batch: Batch, pool: Pool, after: Pool | null): Refusal | null {
  const { image, now, without } = batch
  if (without.has('POOL_KEEPS_WHAT_IS_HELD')) return null
  const held: string[] = []
  const cooling: string[] = []
  let last = 0
  for (const record of recordsIn(image, pool)) {
    if (after !== null && contains(after.allocatable, addressValue(record.address).value)) continue
    if (isHeld(record)) held.push(`${record.address} ${record.state} ${idOf(image, record)}`)
    else if (record.availableAt! > restedBy(image, now)) {
      cooling.push(`${record.address} COOLING until ${new Date(record.availableAt!).toISOString()}`)
      last = Math.max(last, record.availableAt!)
    }
  }
  if (held.length === 0 && cooling.length === 0) return null
  const blockers = [...held, ...cooling].slice(0, POLICY.listedBlockers).join('; ')
  const where = after === null ? 'are in it' : 'would leave it'
  return refusal(
    'POOL_IN_USE',
    `pool ${pool.name}: ${held.length} held and ${cooling.length} cooling addresses ${where}: ${blockers}; set draining to let it run empty`,
    { pool: pool.name, held: String(held.length), cooling: String(cooling.length), blockers },
    held.length === 0 ? last - now : undefined,
  )
}

/** To create what exists is answered with it, if it is what was asked for. */
function exists<T extends object>(what: string, is: T, asked: T): Refusal | null {
  const [before, wanted] = [asJson(is), asJson(asked)]
  const fields = [...new Set([...Object.keys(before), ...Object.keys(wanted)])]
  const differing = fields.filter((field) => !isDeepStrictEqual(before[field], wanted[field]))
  if (differing.length === 0) return null
  const told = (field: string) =>
    `${field} is ${JSON.stringify(before[field] ?? null)}, not ${JSON.stringify(wanted[field] ?? null)}`
  const message = `${what} exists with other settings: ${differing.map(told).join('; ')}; update it, or use another name`
  return refusal('ALREADY_EXISTS', message, { differs: differing.join(',') })
}

/** As callers know it: durations are seconds with an s. */
function asJson(settings: object): Readonly<Record<string, unknown>> {
  const entries = Object.entries(settings).map(([key, value]): [string, unknown] => {
    if (!key.endsWith('Ms')) return [key, isObject(value) ? asJson(value) : value]
    return [key.slice(0, -'Ms'.length), value === null ? null : `${value / 1_000}s`]
  })
  return Object.fromEntries(entries)
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Another pool has its name, or part of its range. */
function taken(image: Image, { poolId, name, family, cidr, range }: Pool, field: string): Refusal | null {
  const others = image.poolsInOrder.map(({ pool }) => pool).filter((other) => other.poolId !== poolId)
  if (others.some((other) => other.name === name))
    return invalid(field, `pool ${name} exists already in network ${image.name}`)
  const names = others
    .filter(
      (other) =>
        other.family === family && other.range.first <= range.last && other.range.last >= range.first,
    )
    .map((other) => `${other.name} (${other.cidr})`)
  if (names.length === 0) return null
  return invalid('cidr', `${cidr} overlaps ${names.join(', ')}; pools of a network never overlap`)
}

function poolOf(image: Image, { name, version }: Command<'updatePool' | 'deletePool'>): Pool | Refusal {
  const pool = poolNamed(image, name)?.pool
  const message = `there is no pool ${name} in network ${image.name}`
  if (pool === undefined) return refusal('POOL_NOT_FOUND', message, { pool: name })
  return atVersion(`pool ${name}`, pool.version, version, { pool: name }) ?? pool
}

function networkAnswer({ name, network, head }: Image): Answer {
  return { leases: [], network: { name, network: network!, head } }
}

function poolAnswer({ poolId, version, createdAt, updatedAt, settings }: Pool): Answer {
  return { leases: [], pool: { poolId, version, createdAt, updatedAt, settings } }
}
