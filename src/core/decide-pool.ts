/**
 * Commands that change a pool. An edit is accepted only if no held or cooling address would leave; otherwise the refusal lists
 * what is in the way.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Batch, type By, emit } from './batch.ts'
import type { Answer, Command } from './command.ts'
import { idOf } from './guards.ts'
import { addressValue, type Image, isHeld, poolNamed, recordsIn, restedBy } from './image.ts'
import { POLICY } from './policy.ts'
import { buildPool, type Pool, type PoolInput, parsePoolSettings } from './pool.ts'
import { contains } from './ranges.ts'
import { atVersion, existsOtherwise, invalid, type Refusal, refusal } from './refusal.ts'

export function decideCreatePool(batch: Batch, command: Command<'createPool'>): Answer | Refusal {
  const { image, now } = batch
  const poolId = image.head + 1
  const settings = parsePoolSettings(command.pool)
  if ('reason' in settings) return settings
  const before = poolNamed(image, settings.name)?.pool
  if (before !== undefined)
    return existsOtherwise(`pool ${settings.name}`, before.settings, settings) ?? poolAnswer(before)
  const pool = buildPool(settings, { poolId, version: poolId, createdAt: now, updatedAt: now })
  const bad = taken(image, pool, 'name')
  if (bad !== null) return bad
  emit(batch, command, { type: 'pool.created', poolId, details: settings })
  moveDefault(batch, command, pool)
  return poolAnswer(pool)
}

/** A family has one default: the pool that asked for it last. */
function moveDefault(batch: Batch, by: By, { poolId, family, isDefault }: Pool): void {
  if (!isDefault) return
  for (const { pool } of batch.image.poolsInOrder) {
    if (pool.poolId === poolId || pool.family !== family || !pool.isDefault) continue
    const details = { ...pool.settings, isDefault: false }
    emit(batch, by, { type: 'pool.updated', poolId: pool.poolId, details })
  }
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
  moveDefault(batch, command, after)
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
  const { image, now, guards } = batch
  if (!guards.POOL_KEEPS_WHAT_IS_HELD) return null
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

function poolAnswer({ poolId, version, createdAt, updatedAt, settings }: Pool): Answer {
  return { leases: [], pool: { poolId, version, createdAt, updatedAt, settings } }
}
