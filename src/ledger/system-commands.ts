/** What the ledger itself has to write before anything else is decided: a new era, a hold for its clock, the end of one. */
import type { Command } from '../core/command.ts'
import type { Image, NetworkState } from '../core/image.ts'
import { eraOf } from '../core/policy.ts'
import type { Step } from './clock.ts'
import type { LoopChecks } from './loop-options.ts'

export type Found = {
  readonly now: number
  /** Life of the database. */
  readonly identity: string
  /** Steps of its clock that have not elapsed; none if the network is held for the last of them. */
  readonly stepsToHold: readonly Step[]
  /** The log is not the one that was written: the greatest number that this process knew. */
  readonly setBack: SetBack | null
  /** This process has committed, and the log has its last commit. */
  readonly hasCommitted: boolean
  /** The deployment declares that a failover loses nothing. */
  readonly losesNothing: boolean
}
export type SetBack = { readonly above: number; readonly why: string }

const LEDGER = { name: 'ledger', node: null }
const ENVELOPE = { actor: LEDGER, requestId: null, fingerprint: null, traceId: null } as const

export function systemCommands(image: Image, found: Found, checks: LoopChecks): readonly Command[] {
  const { network, name } = image
  if (network === null) return []
  const commands: Command[] = []
  // Another process that found out first has begun the era already.
  if (found.setBack !== null && eraOf(found.setBack.above) >= network.era)
    commands.push(beginEra(image, found.setBack))
  else if (checks.ANOTHER_DATABASE_IS_ANOTHER_ERA && network.identity !== found.identity)
    commands.push(anotherLife(image, network, found))
  if (checks.CLOCK_STEP_HOLDS && found.stepsToHold.length > 0)
    commands.push(clockHold(image, found.stepsToHold))
  const until = network.holds.CLOCK?.details.until
  if (until !== undefined && found.now >= until && commands.length === 0) {
    const why = 'the clock has advanced by the step once more'
    commands.push({ ...ENVELOPE, type: 'resumeHold', network: name, cause: 'CLOCK', hold: 'CLOCK', why })
  }
  return commands
}

function beginEra({ name }: Image, { above, why }: SetBack): Command {
  return { ...ENVELOPE, type: 'beginEra', network: name, cause: 'ERA', above, recovering: true, why }
}

/** The database is another than the one that wrote the log: restored, or failed over. */
function anotherLife(image: Image, { identity: stored }: NetworkState, found: Found): Command {
  const { identity, hasCommitted, losesNothing } = found
  const isFailover = withoutTimeline(stored) === withoutTimeline(identity)
  // A network that Citus moves to another of its groups brings all of its log.
  const [before, now] = [placeOf(stored), placeOf(identity)]
  const isMoved = now !== null && before?.coordinator === now.coordinator && before?.group !== now.group
  if (hasCommitted && (isMoved || (isFailover && losesNothing))) {
    const change = { version: null, description: null, labels: null, identity }
    const cause = isMoved ? 'MOVED' : 'FAILED_OVER'
    return { ...ENVELOPE, type: 'updateNetwork', network: image.name, cause, ...change }
  }
  const isOther = isMoved ? 'another worker of Citus' : 'a restored copy'
  const how = isFailover ? 'a failover, or a recovery to a point in time' : isOther
  const why = `the log was written in ${stored}, this is ${identity}: ${how}`
  return beginEra(image, { above: image.head, why })
}

/** Of several steps all have to elapse: a small one must not end the hold of a great one. */
function clockHold({ name }: Image, steps: readonly Step[]): Command {
  const stepMs = Math.ceil(steps.reduce((sum, { byMs }) => sum + byMs, 0))
  const why = `the clock of the database was set forward by ${stepMs} ms`
  return { ...ENVELOPE, type: 'hold', network: name, cause: 'CLOCK', hold: 'CLOCK', why, stepMs }
}

function withoutTimeline(identity: string): string {
  return identity.slice(0, identity.lastIndexOf('/'))
}

/** With Citus an identity is: place of the coordinator, group and place of the worker, timeline. */
function placeOf(identity: string) {
  const [, coordinator, group] = /^(.+)\/(\d+):[^/]+\/[^/]+$/.exec(identity) ?? []
  return coordinator === undefined ? null : { coordinator, group }
}
