/**
 * What a command will most likely ask the books, so that one trip reads it all. A guess only: whatever is missing
 * is read by another trip before the command is decided.
 */
import { formatAddress, isMalformed, parseAddress } from '../core/address.ts'
import type { Need } from '../core/books.ts'
import type { Command, Reserve } from '../core/command.ts'
import { attachmentKey, holderKey } from '../core/owner.ts'
import { POLICY } from '../core/policy.ts'

/** What earlier batches of this process saw; trusted for nothing but guesses. */
export type Hints = {
  defaultPools: readonly string[]
  /** Pools with so much untouched space that released addresses will not be needed. */
  readonly roomy: Set<string>
}

export function anticipate(command: Command, hints: Hints): readonly Need[] {
  const needs: Need[] = []
  if (command.requestId !== null) needs.push({ what: 'request', id: command.requestId })
  switch (command.type) {
    case 'reserve':
      anticipateReserve(command, hints, needs)
      break
    case 'allOrNothing':
      for (const item of command.items) needs.push(...anticipate(item, hints))
      break
    case 'confirm':
    case 'release':
      if (command.lease.token !== null) needs.push({ what: 'token', token: command.lease.token })
      else {
        const key = attachmentKey(command.lease.owner)
        needs.push({ what: 'attachment', key }, { what: 'closings', key })
      }
      break
    case 'quarantine':
      if ('token' in command.target) needs.push({ what: 'token', token: command.target.token })
      else needs.push({ what: 'poolAt', address: command.target.address })
      break
    case 'reap':
    case 'expire':
    case 'updateLabels':
      needs.push({ what: 'token', token: command.token })
      break
    case 'createPool':
      needs.push({ what: 'pool', name: command.pool.name })
      break
    case 'updatePool':
    case 'deletePool':
      needs.push({ what: 'pool', name: command.name })
      break
    case 'createNetwork':
    case 'updateNetwork':
    case 'endRecovery':
      break
  }
  return needs
}

function anticipateReserve(command: Reserve, hints: Hints, needs: Need[]): void {
  const key = attachmentKey(command.owner)
  needs.push({ what: 'holder', key: holderKey(command.owner) }, { what: 'attachment', key })
  if (command.owner.incarnation !== '') needs.push({ what: 'closings', key })
  if (command.liveAddresses.length > 0) needs.push({ what: 'quarantinesBy', actor: command.actor.name })
  if (command.claims.length === 0) {
    needs.push({ what: 'defaultPools' })
    for (const pool of hints.defaultPools) needs.push(candidatesOf(pool, 1, hints))
  }
  for (const claim of command.claims) {
    for (const name of claim.pools) needs.push({ what: 'pool', name })
    if (claim.address !== null) {
      const parsed = parseAddress(claim.address)
      if (isMalformed(parsed)) continue
      const address = formatAddress(parsed)
      if (claim.pools.length === 0) needs.push({ what: 'poolAt', address })
      needs.push({ what: 'address', address })
      continue
    }
    const first = claim.pools[0]
    if (first === undefined) needs.push({ what: 'defaultPools' })
    else needs.push(candidatesOf(first, 1 + Math.min(POLICY.skips, command.liveAddresses.length), hints))
    if (claim.preferPrevious)
      needs.push({ what: 'previous', key: holderKey(command.owner), owner: command.owner })
  }
}

function candidatesOf(pool: string, count: number, hints: Hints): Need {
  return { what: 'candidates', pool, ranges: count, released: hints.roomy.has(pool) ? 0 : count }
}

/** Leases a command touches at most: what a batch is limited by. */
export function weightOf(command: Command): number {
  switch (command.type) {
    case 'reserve':
      return Math.max(1, command.claims.length)
    case 'allOrNothing':
      return command.items.reduce((sum, item) => sum + weightOf(item), 0)
    default:
      return 1
  }
}
