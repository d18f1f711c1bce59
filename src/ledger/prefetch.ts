/** What commands need and the image lacks: the loop reads it in its first round trip, for the whole batch at once. */
import { coverageOf } from '../core/attention.ts'
import { type Command, type Known, type RequestName, requestName } from '../core/command.ts'
import { blockAt, type Image, isHeld, leasesOfAttachment, sightingsOf } from '../core/image.ts'
import { attachmentKey, type Owner } from '../core/owner.ts'

export type Prefetch = {
  /** By key. */
  readonly requests: Map<string, RequestName>
  readonly tokens: Set<number>
  /** Owners whose last endings a repeated Release asks for, by attachment. */
  readonly owners: Map<string, Owner>
  /** Sources whose freshness is needed. */
  readonly sources: Set<string>
  /** Addresses whose look-ups are needed. */
  readonly lookUps: Set<string>
}

/** After catching up it may be more: then the loop reads once more. */
export function prefetchOf(image: Image, commands: readonly Command[]): Prefetch {
  let isStrict = false
  for (const { pool } of image.poolsInOrder) if (pool.liveness === 'STRICT') isStrict = true
  const prefetch: Prefetch = {
    requests: new Map(),
    tokens: new Set(),
    owners: new Map(),
    sources: new Set(),
    lookUps: new Set(),
  }
  for (const command of commands) collect(prefetch, image, command, isStrict)
  return prefetch
}

export function isEmpty({ requests, tokens, owners, sources, lookUps }: Prefetch): boolean {
  return requests.size + tokens.size + owners.size + sources.size + lookUps.size === 0
}

/** Requests always are: each was read with its command. */
export function isKnown({ tokens, owners, sources, lookUps }: Prefetch, known: Known): boolean {
  return (
    tokens.isSubsetOf(known.endedByToken) &&
    new Set(owners.keys()).isSubsetOf(known.endedByOwner) &&
    sources.isSubsetOf(known.freshness) &&
    lookUps.isSubsetOf(known.lookUps)
  )
}

function collect(into: Prefetch, image: Image, command: Command, isStrict: boolean): void {
  if (command.requestId !== null) {
    const name = requestName(command.actor.node ?? '', command.requestId)
    into.requests.set(name.key, name)
  }
  switch (command.type) {
    case 'reserve':
      if (isStrict) addEnabled(into, image)
      break
    case 'confirm':
    case 'release': {
      const { token, owner } = command.lease
      if (token !== null) addEnded(into, image, token)
      else if (leasesOfAttachment(image, owner).length === 0) into.owners.set(attachmentKey(owner), owner)
      break
    }
    case 'allOrNothing':
    case 'dryRun':
      for (const item of command.items) collect(into, image, item, isStrict)
      break
    case 'reap':
    case 'updateLabels':
    case 'expire':
      addEnded(into, image, command.token)
      break
    case 'quarantine':
      if ('token' in command.target) addEnded(into, image, command.target.token)
      break
    case 'reapNode':
      for (const [id, { declaration }] of image.sources)
        if (declaration.node === command.node) into.sources.add(id)
      break
    case 'reapProven': {
      addEnded(into, image, command.token)
      const record = image.byToken.get(command.token)
      if (!isHeld(record)) break
      for (const { declaration } of coverageOf(image)(record)) into.sources.add(declaration.id)
      for (const { source } of sightingsOf(image, record.address)) into.sources.add(source)
      into.lookUps.add(record.address)
      break
    }
    case 'enableSource':
      into.sources.add(command.id)
      break
    case 'report':
      into.sources.add(command.source)
      if (image.network?.recovering) {
        addEnabled(into, image)
        for (const { source } of image.network.unknownSources) into.sources.add(source)
      }
      break
    case 'recheck':
      for (const address of command.addresses)
        for (const { source } of sightingsOf(image, blockAt(image, address)?.address ?? address))
          into.sources.add(source)
      break
  }
}

function addEnded({ tokens }: Prefetch, { byToken }: Image, token: number): void {
  if (!byToken.has(token)) tokens.add(token)
}

function addEnabled({ sources }: Prefetch, image: Image): void {
  for (const [id, { state }] of image.sources) if (state === 'ENABLED') sources.add(id)
}
