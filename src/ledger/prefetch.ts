/** What commands need and the image lacks: the loop reads it in its first round trip, for the whole batch at once. */
import { coverageOf } from '../core/attention.ts'
import { type Command, type Known, type RequestName, requestName } from '../core/command.ts'
import { blockAt, type Image, isHeld, leasesOfAttachment, sightingsOf } from '../core/image.ts'
import { attachmentKey, type Owner } from '../core/owner.ts'

export type Prefetch = {
  readonly requests: readonly RequestName[]
  readonly tokens: readonly number[]
  /** Owners whose last endings a repeated Release asks for. */
  readonly owners: readonly Owner[]
  /** Sources whose freshness is needed. */
  readonly sources: readonly string[]
  /** Addresses whose look-ups are needed. */
  readonly lookUps: readonly string[]
}

/** After catching up it may be more: then the loop reads once more. */
export function prefetchOf(image: Image, commands: readonly Command[]): Prefetch {
  const collected = new Collected(image)
  for (const command of commands) collected.add(command)
  const { requests, tokens, owners, sources, lookUps } = collected
  return {
    requests: [...requests.values()],
    tokens: [...tokens],
    owners: [...owners.values()],
    sources: [...sources],
    lookUps: [...lookUps],
  }
}

export function isEmpty(prefetch: Prefetch): boolean {
  return Object.values(prefetch).every(({ length }) => length === 0)
}

/** What is needed and not known; requests are never: each was asked for with its command. */
export function missing({ tokens, owners, sources, lookUps }: Prefetch, known: Known): Prefetch {
  return {
    requests: [],
    tokens: tokens.filter((token) => !known.endedByToken.has(token)),
    owners: owners.filter((owner) => !known.endedByOwner.has(attachmentKey(owner))),
    sources: sources.filter((source) => !known.freshness.has(source)),
    lookUps: lookUps.filter((address) => !known.lookUps.has(address)),
  }
}

export function merge(known: Known, more: Known): Known {
  return {
    ...known,
    endedByToken: new Map([...known.endedByToken, ...more.endedByToken]),
    endedByOwner: new Map([...known.endedByOwner, ...more.endedByOwner]),
    freshness: new Map([...known.freshness, ...more.freshness]),
    lookUps: new Map([...known.lookUps, ...more.lookUps]),
  }
}

class Collected {
  readonly requests = new Map<string, RequestName>()
  readonly tokens = new Set<number>()
  readonly owners = new Map<string, Owner>()
  readonly sources = new Set<string>()
  readonly lookUps = new Set<string>()
  readonly #image: Image
  readonly #isStrict: boolean

  constructor(image: Image) {
    this.#image = image
    this.#isStrict = image.poolsInOrder.some(({ pool }) => pool.liveness === 'STRICT')
  }

  add(command: Command): void {
    const image = this.#image
    if (command.requestId !== null) {
      const name = requestName(command.actor.node ?? '', command.requestId)
      this.requests.set(name.key, name)
    }
    switch (command.type) {
      case 'reserve':
        if (this.#isStrict) this.#addEnabled()
        break
      case 'confirm':
      case 'release': {
        const { token, owner } = command.lease
        if (token !== null) this.#addEnded(token)
        else if (leasesOfAttachment(image, owner).length === 0) this.owners.set(attachmentKey(owner), owner)
        break
      }
      case 'allOrNothing':
      case 'dryRun':
        for (const item of command.items) this.add(item)
        break
      case 'reap':
      case 'updateLabels':
      case 'expire':
        this.#addEnded(command.token)
        break
      case 'quarantine':
        if ('token' in command.target) this.#addEnded(command.target.token)
        break
      case 'reapNode':
        for (const [id, { declaration }] of image.sources)
          if (declaration.node === command.node) this.sources.add(id)
        break
      case 'reapProven': {
        this.#addEnded(command.token)
        const record = image.byToken.get(command.token)
        if (!isHeld(record)) break
        for (const { declaration } of coverageOf(image)(record)) this.sources.add(declaration.id)
        this.#addSeeing(record.address)
        this.lookUps.add(record.address)
        break
      }
      case 'report':
        this.sources.add(command.source)
        if (image.network?.recovering) {
          this.#addEnabled()
          for (const one of image.network.unknownSources) this.sources.add(one.source)
        }
        break
      case 'recheck':
        for (const address of command.addresses) this.#addSeeing(blockAt(image, address)?.address ?? address)
        break
    }
  }

  #addEnded(token: number): void {
    if (!this.#image.byToken.has(token)) this.tokens.add(token)
  }

  #addEnabled(): void {
    for (const [id, { state }] of this.#image.sources) if (state === 'ENABLED') this.sources.add(id)
  }

  #addSeeing(block: string): void {
    for (const { source } of sightingsOf(this.#image, block)) this.sources.add(source)
  }
}
