/**
 * `given(steps).when(command).then(lines)` for the core: each command is decided in a batch of its own, whose freshness and
 * requests are kept as the loop would keep them. After each the fold of all events must be the image, and the batch undone
 * must be the image before.
 *
 * Events are said in one line each: `lease.reserved 10.0.0.1 RESERVED #3`. An owner is said as `name/incarnation`, or
 * `kind:name/incarnation`.
 */

import assert from 'node:assert/strict'
import type { Batch } from '../../src/core/batch.ts'
import type { Claim, Command, Freshness, Known, LookUp, Remembered } from '../../src/core/command.ts'
import { decide, type Outcome } from '../../src/core/decide.ts'
import type { Entry, LeaseSettings, LedgerEvent, SourceDeclaration } from '../../src/core/event.ts'
import { evolve, isSame, ownerOf } from '../../src/core/evolve.ts'
import { type Guards, guardsWithout, type RuleName } from '../../src/core/guards.ts'
import { type Image, newImage, rollback, type Sighting } from '../../src/core/image.ts'
import { entryOf } from '../../src/core/judge.ts'
import type { Owner } from '../../src/core/owner.ts'
import type { PoolInput } from '../../src/core/pool.ts'
import type { Reason } from '../../src/core/refusal.ts'
import { canonical, expectedCandidates, nextCandidates, partitionFault } from '../support/canonical.ts'

export const SECOND = 1_000
export const MINUTE = 60_000
export const HOUR = 3_600_000
export const START = Date.UTC(2026, 0, 1)

export type Scene = {
  readonly image: Image
  now: number
  readonly events: LedgerEvent[]
  readonly freshness: Map<string, Freshness>
  readonly lookUps: Map<string, LookUp[]>
  readonly requests: Map<string, Remembered>
  readonly guards: Guards
  /** The number that its sources begin their next report at; null: the head. */
  begunAt: number | null
}

export type Step = ((scene: Scene) => Command | undefined) | readonly Step[]

export function newScene(without: readonly RuleName[] = []): Scene {
  return {
    image: newImage('net'),
    now: START,
    events: [],
    freshness: new Map(),
    lookUps: new Map(),
    requests: new Map(),
    guards: guardsWithout(without),
    begunAt: null,
  }
}

/** Decides one command, and checks what must hold after any. */
export function perform(
  scene: Scene,
  command: Command,
): { outcome: Outcome; events: readonly LedgerEvent[] } {
  const { image, now } = scene
  const remembered = { closings: new Map(image.closings), reaps: image.reaps }
  const before = { ...canonical(image, now), ...remembered }
  const rehearsed = decideOnce(scene, command)
  rollback(image, 0)
  image.journal = null
  const { closings, reaps } = image
  assert.deepEqual({ ...canonical(image, now), closings, reaps }, before, 'undo restores the image')
  const { outcome, batch } = decideOnce(scene, command)
  image.journal = null
  assert.deepEqual(batch.events, rehearsed.batch.events, 'decided again, the same events')
  const answered = outcome.ok ? outcome.answer.leases : []
  assert.ok(
    answered.every((lease) => lease.network === image.name),
    'what is answered is a lease of the network',
  )
  for (const [id, fresh] of batch.freshness) scene.freshness.set(id, fresh)
  for (const [id, remembered] of batch.remembered) scene.requests.set(id, remembered)
  scene.events.push(...batch.events)
  return { outcome, events: batch.events }
}

/** Decides one command and leaves the journal open. */
export function decideOnce(scene: Scene, command: Command): { outcome: Outcome; batch: Batch } {
  const { image, freshness, lookUps, requests, guards } = scene
  const known: Known = {
    identity: 'one',
    requests,
    endedByToken: new Map(endedOf(scene)),
    endedByOwner: new Map(),
    freshness,
    lookUps,
  }
  image.journal = []
  const batch: Batch = {
    image,
    now: Math.max(scene.now, image.at),
    known,
    events: [],
    freshness: new Map(),
    remembered: new Map(),
    guards,
  }
  return { outcome: decide(batch, command), batch }
}

function* endedOf({ events }: Scene) {
  for (const event of events)
    if ('record' in event && event.record.state === 'FREE') yield [event.record.token, event.record] as const
}

/** The fold of the events is the image, its free space is in order, its partition exact. */
function checkFold({ image, events, now }: Scene): void {
  const folded = newImage(image.name)
  for (const event of events) {
    evolve(folded, event)
    Object.assign(folded, { head: event.seq, at: event.at })
  }
  assert.deepEqual(canonical(folded, now), canonical(image, now), 'the fold of the events is the image')
  for (const poolState of image.pools.values()) {
    assert.equal(partitionFault(image, poolState), null)
    assert.deepEqual(
      nextCandidates(image, poolState, now, 8),
      expectedCandidates(image, poolState, now, 8),
      'lowest untouched, longest rested',
    )
  }
}

export function play(scene: Scene, steps: readonly Step[]): void {
  for (const step of steps) {
    if (typeof step !== 'function') {
      play(scene, step)
      continue
    }
    const command = step(scene)
    if (command === undefined) continue
    const { outcome } = perform(scene, command)
    assert.ok(outcome.ok, `${command.type}: ${outcome.ok ? '' : outcome.refusal.message}`)
  }
}

/** What came of a command: its events, a line each, or the refusal's reason. */
export type Said = {
  readonly events: readonly string[]
  readonly refused: Reason | null
  readonly leases: readonly string[]
}

export function given(...steps: readonly Step[]) {
  return {
    /** Given what happened before, this command; under these rules. */
    when(step: Exclude<Step, readonly Step[]>, without: readonly RuleName[] = []) {
      const scene = newScene(without)
      play(scene, steps)
      const { outcome, events } = perform(scene, step(scene)!)
      const said: Said = {
        events: events.map(lineOf),
        refused: outcome.ok ? null : outcome.refusal.reason,
        leases: outcome.ok
          ? outcome.answer.leases.map(
              ({ address, state, fencingToken, reused }) =>
                `${address} ${state} #${fencingToken}${reused ? ' reused' : ''}`,
            )
          : [],
      }
      checkFold(scene)
      return {
        scene,
        said,
        outcome,
        // biome-ignore lint/suspicious/noThenProperty: nobody awaits it, and it is the word
        then(...lines: readonly string[]) {
          assert.deepEqual(
            [...said.events, ...(said.refused === null ? [] : [`refused ${said.refused}`])],
            lines,
          )
          return this
        },
        answers(...leases: readonly string[]) {
          assert.deepEqual(said.leases, leases)
          return this
        },
      }
    },
  }
}

export function lineOf(event: LedgerEvent): string {
  if ('record' in event) {
    const { address, state, quarantine, token, ended } = event.record
    const what =
      state === 'FREE' ? ended : state === 'QUARANTINED' ? `QUARANTINED ${quarantine!.reason}` : state
    return `${event.type} ${address} ${what} #${token}`
  }
  switch (event.type) {
    case 'attachment.closed':
      return `${event.type} ${event.owner.name}/${event.owner.incarnation}`
    case 'source.reported': {
      const { source, appeared, vanished } = event.details
      return [
        event.type,
        source,
        ...appeared.map(({ address }) => `+${address}`),
        ...vanished.map(({ address }) => `-${address}`),
      ].join(' ')
    }
    case 'recovery.extended':
      return `${event.type} ${event.details.source}`
    case 'reconcile.held':
      return `${event.type} ${event.details.hold}`
    default:
      return event.type
  }
}

// Words for steps.

export function owner(text: string): Owner {
  const [, kind = 'container', name = '', incarnation = ''] =
    /^(?:([a-z]+):)?([^/]+)(?:\/(.*))?$/.exec(text) ?? []
  return { kind, name, uid: name, incarnation, interface: 'eth0' }
}

const envelope = (cause: string) => ({
  network: 'net',
  actor: { name: 'caller', node: null },
  cause,
  requestId: null,
  fingerprint: null,
  traceId: null,
})

export const after =
  (ms: number): Step =>
  (scene) => {
    scene.now += ms
    return undefined
  }

export const network: Step = () => ({
  ...envelope('CreateNetwork'),
  type: 'createNetwork',
  settings: { description: '', labels: {} },
})

export const pool =
  (cidr: string, input: Partial<PoolInput> = {}) =>
  (): Command => ({ ...envelope('CreatePool'), type: 'createPool', pool: { name: 'pool', cidr, ...input } })

type ReserveOptions = Partial<LeaseSettings & Omit<Command<'reserve'>, 'claims' | 'owner' | 'settings'>> & {
  readonly claims?: readonly Partial<Claim>[]
  readonly by?: string
}

export const reserve =
  (who: string | Owner, { claims, by, node = '', labels = {}, ...options }: ReserveOptions = {}) =>
  (): Command => ({
    ...envelope('Reserve'),
    type: 'reserve',
    owner: typeof who === 'string' ? owner(who) : who,
    settings: { node, labels },
    claims: (claims ?? []).map((claim) => ({ pools: [], address: null, preferPrevious: false, ...claim })),
    liveAddresses: [],
    confirmWithinMs: null,
    confirmed: false,
    ...(by !== undefined && { actor: { name: by, node: null } }),
    ...options,
  })

/** The same of a caller whose token is bound to a node, and placed there. */
export const boundTo =
  (node: string, step: Exclude<Step, readonly Step[]>) =>
  (scene: Scene): Command => {
    const said = step(scene)!
    const placed = said.type === 'reserve' ? { settings: { ...said.settings, node } } : {}
    return { ...said, ...placed, actor: { name: `agent-${node}`, node } } as Command
  }

export const confirm = (who: string) => (): Command => ({
  ...envelope('Confirm'),
  type: 'confirm',
  lease: { token: null, owner: owner(who) },
})

/** By attachment, or by the token of what is or was at an address. */
export const release =
  (what: string | number, removal: Command<'release'>['removal'] = 'CONFIRMED') =>
  (): Command => ({
    ...envelope('Release'),
    type: 'release',
    removal,
    lease: typeof what === 'number' ? { token: what, owner: null } : { token: null, owner: owner(what) },
  })

export const quarantine = (address: string) => (): Command => ({
  ...envelope('Quarantine'),
  type: 'quarantine',
  target: { address },
  why: 'looks odd',
})

const held = ({ image }: Scene, address: string) => {
  const { token, seq } = image.records.get(address)!
  return { token, version: seq }
}
export const reap =
  (address: string, version?: number) =>
  (scene: Scene): Command => ({
    ...envelope('Reap'),
    type: 'reap',
    why: 'gone',
    ...held(scene, address),
    ...(version !== undefined && { version }),
  })
export const reapNode =
  (node: string) =>
  ({ image }: Scene): Command => ({
    ...envelope('Reap'),
    type: 'reapNode',
    node,
    head: image.head,
    why: 'burnt down',
  })
export const expire =
  (address: string) =>
  (scene: Scene): Command => ({ ...envelope('expire'), type: 'expire', ...held(scene, address) })
export const reapProven =
  (address: string, version?: number) =>
  (scene: Scene): Command => ({
    ...envelope('judge'),
    type: 'reapProven',
    ...held(scene, address),
    ...(version !== undefined && { version }),
  })
export const recheck =
  (...addresses: readonly string[]) =>
  (): Command => ({ ...envelope('recheck'), type: 'recheck', addresses })

export const command = (body: Record<string, unknown>) => (): Command =>
  ({ ...envelope('test'), ...body }) as unknown as Command

// Sources.

export const declaration = (id: string, declared: Partial<SourceDeclaration> = {}): SourceDeclaration => ({
  id,
  kind: 'push',
  node: '',
  ownerKinds: ['container', 'pod', 'infrastructure'],
  families: [4, 6],
  intervalMs: 30 * SECOND,
  settings: {},
  ...declared,
})

export const register =
  (id: string, declared: Partial<SourceDeclaration> = {}) =>
  (): Command => ({
    ...envelope('RegisterSource'),
    type: 'registerSource',
    declaration: declaration(id, declared),
  })
export const enable =
  (id: string, acceptUnlisted = false) =>
  (): Command => ({
    ...envelope('EnableSource'),
    type: 'enableSource',
    id,
    acceptUnlisted,
  })

/** `name/incarnation@address`, `?@address` for an owner not known, with `!` behind it for terminal. */
export function entry(text: string): Entry {
  const [, who = '', address = '', ended] = /^(.*)@([^!]+)(!)?$/.exec(text) ?? []
  const state = ended === undefined ? 'running' : 'terminal'
  if (who === '?') return { address, state }
  const { kind, name, uid, incarnation, interface: on } = owner(who)
  return { address, kind, name, uid, ...(incarnation !== '' && { incarnation }), interface: on, state }
}

/** A whole list; 30 s after the one before. */
export const lists =
  (id: string, entries: readonly string[], options: Partial<Command<'report'>> = {}) =>
  (scene: Scene): Command => {
    scene.now += 30 * SECOND
    const { image, now, freshness } = scene
    const node = image.sources.get(id)?.declaration.node ?? ''
    const list = entries.map((text) => ({ ...entry(text), ...(node !== '' && { node }) }))
    const sequence = freshness.get(id)?.sequence ?? 0
    const isStill = (one: Sighting) =>
      list.some((entry) => entry.address === one.address && isSame(one, id, ownerOf(entry)))
    const complete = options.complete ?? true
    return {
      ...envelope('ReportSnapshot'),
      type: 'report',
      source: id,
      epoch: 'e1',
      sequence: sequence + 1,
      head: scene.begunAt ?? image.head,
      begunAt: now,
      proven: false,
      because: [],
      entries: list,
      vanished: [...(image.listedBy.get(id) ?? [])]
        .filter((one) => !isStill(one))
        .map(entryOf)
        .sort((a, b) => (a.address < b.address ? -1 : 1)),
      last: { entries: list.length, digest: list.map(({ address }) => address).join(), after: sequence },
      ...options,
      complete,
    }
  }

/** What a source of the whole network lists is there. */
export const on = (node: string, list: (scene: Scene) => Command) => (scene: Scene) => {
  const command = list(scene) as Command<'report'>
  return { ...command, entries: command.entries.map((entry) => ({ ...entry, node })) }
}

/** A report that its list is as it was. */
export const unchanged = (id: string) => (scene: Scene) => ({
  ...(lists(id, [])(scene) as Command<'report'>),
  vanished: [],
})

/** Registered, enabled, and warm after two lists of nothing. */
export const source = (id: string, declared: Partial<SourceDeclaration> = {}): Step => [
  register(id, declared),
  enable(id),
  lists(id, []),
  lists(id, []),
]

/** From here on reports are begun at this head: what happens after it, they do not know. */
export const begun: Step = (scene) => {
  scene.begunAt = scene.image.head
  return undefined
}

export const answers =
  (
    id: string,
    who: string,
    address: string,
    answer: LookUp['answer'],
    terminalSince: number | null = null,
  ): Step =>
  (scene) => {
    const { kind, name, uid } = owner(who)
    const all = scene.lookUps.get(address) ?? []
    scene.lookUps.set(address, [
      ...all.filter((one) => one.source !== id || one.owner.uid !== uid),
      {
        source: id,
        address,
        owner: { kind, name, uid },
        answer,
        terminalSince,
        detail: '',
        head: scene.image.head,
        askedAt: scene.now,
        attempts: 1,
      },
    ])
    return undefined
  }
