/** What commands need and the image lacks: the loop reads it in its first round trip, for the whole batch at once. */
import type { Command } from '../core/command.ts'
import { type Image, isHeld, leasesOfAttachment, sightingsOf, unitAt } from '../core/image.ts'
import { coverageOf } from '../core/judge.ts'
import { attachmentKey, type Owner } from '../core/owner.ts'

export type Needs = {
  readonly requests: readonly string[]
  readonly tokens: readonly number[]
  /** Owners whose last endings a repeated Release asks for. */
  readonly owners: readonly Owner[]
  /** Sources whose freshness is needed. */
  readonly sources: readonly string[]
  /** Addresses whose look-ups are needed. */
  readonly lookUps: readonly string[]
}

/** After catching up it may be more: then the loop reads once more. */
export function needsOf(image: Image, commands: readonly Command[]): Needs {
  const requests = new Set<string>()
  const tokens = new Set<number>()
  const owners = new Map<string, Owner>()
  const sources = new Set<string>()
  const lookUps = new Set<string>()
  const isStrict = image.poolsInOrder.some(({ pool }) => pool.liveness === 'STRICT')

  function addEnded(token: number): void {
    if (!image.byToken.has(token)) tokens.add(token)
  }
  function addEnabled(): void {
    for (const [id, { state }] of image.sources) if (state === 'ENABLED') sources.add(id)
  }
  function addSeeing(unit: string): void {
    for (const { source } of sightingsOf(image, unit)) sources.add(source)
  }
  function add(command: Command): void {
    if (command.requestId !== null) requests.add(command.requestId)
    switch (command.type) {
      case 'reserve':
        if (isStrict) addEnabled()
        break
      case 'confirm':
      case 'release': {
        const { token, owner } = command.lease
        if (token !== null) addEnded(token)
        else if (leasesOfAttachment(image, owner).length === 0) owners.set(attachmentKey(owner), owner)
        break
      }
      case 'allOrNothing':
        command.items.forEach(add)
        break
      case 'reap':
      case 'updateLabels':
      case 'expire':
        addEnded(command.token)
        break
      case 'quarantine':
        if ('token' in command.target) addEnded(command.target.token)
        break
      case 'reapProven': {
        addEnded(command.token)
        const record = image.byToken.get(command.token)
        if (!isHeld(record)) break
        for (const { declaration } of coverageOf(image)(record)) sources.add(declaration.id)
        addSeeing(record.address)
        lookUps.add(record.address)
        break
      }
      case 'report':
        sources.add(command.source)
        if (image.network?.recovering) addEnabled()
        break
      case 'recheck':
        for (const address of command.addresses) addSeeing(unitAt(image, address)?.address ?? address)
        break
    }
  }
  commands.forEach(add)
  return {
    requests: [...requests],
    tokens: [...tokens],
    owners: [...owners.values()],
    sources: [...sources],
    lookUps: [...lookUps],
  }
}
