/**
 * Commands that change the shape of a network: its settings, eras, holds, pools. A pool edit is accepted only if no held or
 * cooling address would leave (INV-19); otherwise the answer lists what is in the way.
 */
import { isMalformed, parseCidr } from './address.ts'
import { type Batch, emit } from './batch.ts'
import type { Answer, Command, PoolView } from './command.ts'
import { expiresAt, idOf } from './decide-lease.ts'
import type { HoldCause } from './event.ts'
import { addressValue, type Image, isHeld, type PoolState, poolNamed, recordsIn, restedBy } from './image.ts'
import { nowhereIn } from './nowhere.ts'
import { eraOf, firstSeqOfEra, LAST_ERA, POLICY } from './policy.ts'
import { buildPool, type Pool, type PoolInput, type PoolSettings, parsePoolSettings } from './pool.ts'
import { contains } from './ranges.ts'
import { invalid, type Refusal, refusal } from './refusal.ts'
import { isSameJson } from './same.ts'

export function decideCreateNetwork(batch: Batch, command: Command<'createNetwork'>): Answer | Refusal {
  const { image, known } = batch
  if (image.network !== null)
    return invalid('name', `network ${image.name} exists already; pick another name or update it`)
  emit(batch, command, {
    type: 'network.created',
    details: { ...command.settings, identity: known.identity },
  })
  return networkAnswer(image)
}

export function decideUpdateNetwork(batch: Batch, command: Command<'updateNetwork'>): Answer | Refusal {
  const { image } = batch
  const { version, description, labels, identity } = image.network!
  if (command.version !== null && command.version !== version) {
    return refusal(
      'VERSION_MISMATCH',
      `network ${image.name} is at version ${version}, not ${command.version}; read it again and decide anew`,
      { network: image.name, version: String(version), expected: String(command.version) },
    )
  }
  const details = { description: command.description ?? description, labels: command.labels ?? labels }
  if (command.identity !== undefined && command.identity !== identity)
    emit(batch, command, { type: 'network.updated', details: { ...details, identity: command.identity } })
  else if (!isSameJson(details, { description, labels }))
    emit(batch, command, { type: 'network.updated', details })
  return networkAnswer(image)
}

export function decideEndRecovery(batch: Batch, command: Command<'endRecovery'>): Answer {
  if (batch.image.network!.recovering !== null)
    emit(batch, command, { type: 'recovery.ended', details: { why: command.why } })
  return networkAnswer(batch.image)
}

/**
 * The log is an older copy of itself, or lost its end: all later numbers are above any that was known or lost (INV-24).
 * Several processes may find out at the same time: the era that has begun is begun.
 */
export function decideBeginEra(batch: Batch, command: Command<'beginEra'>): Answer | Refusal {
  const { image, known } = batch
  const era = Math.max(image.network!.era, eraOf(command.above)) + 1
  if (era > LAST_ERA)
    return refusal(
      'ILLEGAL_STATE',
      `era ${era} would be beyond ${LAST_ERA}, the last one that numbers can hold`,
      {},
    )
  const details = {
    era,
    recovering: command.recovering,
    identity: known.identity,
    after: image.head,
    why: command.why,
  }
  emit(batch, command, { type: 'era.begun', details }, firstSeqOfEra(era))
  if (image.network!.holds.SOURCE_AHEAD !== undefined)
    emit(batch, command, {
      type: 'reconcile.resumed',
      details: { holds: ['SOURCE_AHEAD'], why: command.why },
    })
  return networkAnswer(image)
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
  const { image } = batch
  const settings = parsePoolSettings(command.pool)
  if ('reason' in settings) return settings
  if (poolNamed(image, settings.name) !== undefined)
    return invalid('name', `pool ${settings.name} exists already in network ${image.name}`)
  const bad = overlapping(image, settings, null) ?? nowhere(settings)
  if (bad !== null) return bad
  const poolId = image.head + 1
  emit(batch, command, { type: 'pool.created', poolId, details: settings })
  return poolAnswer(image.pools.get(poolId)!.pool)
}

export function decideUpdatePool(batch: Batch, command: Command<'updatePool'>): Answer | Refusal {
  const { image } = batch
  const place = poolOf(image, command)
  if ('reason' in place) return place
  const { pool } = place
  const settings = parsePoolSettings(changed(pool, command), 'exclude.entries')
  if ('reason' in settings) return settings
  if (isSameJson(settings, pool.settings)) return poolAnswer(pool)
  if (settings.name !== pool.name && poolNamed(image, settings.name) !== undefined)
    return invalid('newName', `pool ${settings.name} exists already in network ${image.name}`)
  const after = buildPool(settings, pool)
  if (after.family !== pool.family)
    return invalid('cidr', `pool ${pool.name} is IPv${pool.family} and stays so`)
  const bad =
    settings.cidr === pool.cidr ? null : (overlapping(image, settings, pool.poolId) ?? nowhere(settings))
  const blocked = bad ?? inTheWay(batch, place, after)
  if (blocked !== null) return blocked
  emit(batch, command, { type: 'pool.updated', poolId: pool.poolId, details: settings })
  return poolAnswer(image.pools.get(pool.poolId)!.pool)
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
  const { image } = batch
  const place = poolOf(image, command)
  if ('reason' in place) return place
  const { pool } = place
  const blocked = inTheWay(batch, place, null)
  if (blocked !== null) return blocked
  emit(batch, command, { type: 'pool.deleted', poolId: pool.poolId, details: pool.settings })
  return poolAnswer(pool)
}

/** Held or cooling addresses that the pool would let go of. */
function inTheWay(batch: Batch, { pool }: PoolState, after: Pool | null): Refusal | null {
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

function overlapping(image: Image, { cidr }: PoolSettings, except: number | null): Refusal | null {
  const range = parseCidr(cidr)
  if (isMalformed(range)) throw new Error(`canonical settings: ${range.malformed}`)
  const others = image.poolsInOrder.filter(
    ({ pool }) =>
      pool.poolId !== except &&
      pool.family === range.family &&
      pool.range.first <= range.last &&
      pool.range.last >= range.first,
  )
  if (others.length === 0) return null
  const names = others.map(({ pool }) => `${pool.name} (${pool.cidr})`).join(', ')
  return invalid('cidr', `${cidr} overlaps ${names}; pools of a network never overlap`)
}

/** Addresses that stand on every host: no sighting of them counts, so nothing would keep them. */
function nowhere({ cidr }: PoolSettings): Refusal | null {
  const range = parseCidr(cidr)
  if (isMalformed(range)) throw new Error(`canonical settings: ${range.malformed}`)
  const found = nowhereIn(range)
  if (found.length === 0) return null
  return invalid(
    'cidr',
    `${cidr} overlaps ${found.join(', ')}, which no workload has to itself; give the pool a range beside it`,
  )
}

function poolOf(image: Image, command: Command<'updatePool' | 'deletePool'>): PoolState | Refusal {
  const { name, version } = command
  const place = poolNamed(image, name)
  if (place === undefined)
    return refusal('POOL_NOT_FOUND', `there is no pool ${name} in network ${image.name}`, { pool: name })
  if (version === null || place.pool.version === version) return place
  return refusal(
    'VERSION_MISMATCH',
    `pool ${name} is at version ${place.pool.version}, not ${version}; read it again and decide anew`,
    { pool: name, version: String(place.pool.version), expected: String(version) },
  )
}

function networkAnswer({ name, network, head }: Image): Answer {
  return { leases: [], network: { name, network: network!, head } }
}

function poolAnswer({ poolId, version, createdAt, updatedAt, settings }: Pool): Answer {
  const pool: PoolView = { poolId, version, createdAt, updatedAt, settings }
  return { leases: [], pool }
}
