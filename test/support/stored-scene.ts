/** A scene of the core written to a database as the loop writes it: its events with their digests, and its image as rows. */
import type pg from 'pg'
import type { Command } from '../../src/core/command.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import { cellsOf, digestOf, textOf } from '../../src/ledger/event-text.ts'
import type { Write } from '../../src/ledger/log.ts'
import { writeStatements } from '../../src/ledger/tables.ts'
import { decideOnce, newScene, type Scene, type Step } from '../core/given.ts'

export const NETWORK = 'net'
const FIRST = '0'.repeat(64)

export function chain(network: string, events: readonly LedgerEvent[]): Write['events'] {
  let digest = FIRST
  return events.map((event) => {
    const text = textOf(cellsOf(network, event))
    digest = digestOf(digest, text)
    return { event, digest, text }
  })
}

function perform(scene: Scene, command: Command): void {
  const { batch } = decideOnce(scene, command)
  scene.image.journal = null
  for (const [id, fresh] of batch.freshness) scene.freshness.set(id, fresh)
  scene.events.push(...batch.events)
}

/** Plays the steps; refusals are ignored. */
export function playAll(scene: Scene, steps: readonly Step[]): Scene {
  for (const step of steps) {
    if (typeof step !== 'function') playAll(scene, step)
    else {
      const command = step(scene)
      if (command !== undefined) perform(scene, command)
    }
  }
  return scene
}

export function played(...steps: readonly Step[]): Scene {
  return playAll(newScene(), steps)
}

/** With a superuser's connection, into an empty database. Answers the digest of the last event. */
export async function storeScene(client: pg.Client, { image, events, freshness }: Scene): Promise<string> {
  const chained = chain(NETWORK, events)
  await client.query('insert into ipledger.network_lock (network_id) values ($1)', [NETWORK])
  const statements = writeStatements(NETWORK, {
    events: chained,
    records: [...image.records.values()],
    pools: [...image.pools.values()].map(({ pool }) => pool),
    network: image.network,
    sources: [...image.sources.values()],
    freshness: [...freshness.values()],
    sightings: Map.groupBy([...image.sightings.values()].flat(), ({ address }) => address),
    requests: [],
  })
  for (const { text, values } of statements) await client.query(text, [...values])
  return chained.at(-1)?.digest ?? FIRST
}
