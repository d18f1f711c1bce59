/** A scene of the core written to a database as the loop writes it: its events with their digests, and its image as rows. */
import type pg from 'pg'
import { AttentionList, attentionOf } from '../../src/core/attention.ts'
import type { Command } from '../../src/core/command.ts'
import type { LedgerEvent } from '../../src/core/event.ts'
import type { Image } from '../../src/core/image.ts'
import { digestOf, textOf } from '../../src/ledger/event-text.ts'
import type { Write } from '../../src/ledger/log.ts'
import { attentionToLeases, readFindings, writeAttention } from '../../src/ledger/read-attention.ts'
import type { Ask } from '../../src/ledger/read-db.ts'
import { writeStatements } from '../../src/ledger/tables.ts'
import { decideOnce, newScene, type Scene, type Step } from '../core/given.ts'

export const NETWORK = 'net'
const FIRST = '0'.repeat(64)

export function chain(network: string, events: readonly LedgerEvent[]): Write['events'] {
  let digest = FIRST
  return events.map((event) => {
    const text = textOf(network, event)
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

/** What waits for a person, as the job writes it now. */
export async function judgeScene(client: pg.Client, image: Image, network = NETWORK): Promise<void> {
  const ask: Ask = async (text, values) => (await client.query(text, [...values])).rows
  const list = new AttentionList()
  const now = Date.now()
  const found = await readFindings(ask, network)
  for (const one of attentionOf({ image, now, ...found })) list.add(one)
  for await (const items of attentionToLeases(image)) for (const one of items) list.add(one)
  await writeAttention(ask, network, list.items(), now)
}

/** With a superuser's connection, into an empty database. Answers the digest of the last event. */
export async function storeScene(
  client: pg.Client,
  { image, events, freshness }: Scene,
  network = NETWORK,
): Promise<string> {
  const chained = chain(network, events)
  await client.query('insert into ipledger.network_lock (network_id) values ($1)', [network])
  const statements = writeStatements(network, {
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
  if (image.network !== null) await judgeScene(client, image, network)
  return chained.at(-1)?.digest ?? FIRST
}
