/** Builds an image from the projections at one head; the events of the last hour say what was closed and reaped. */
import { remember } from '../core/evolve.ts'
import {
  type Image,
  newImage,
  put,
  putNetwork,
  putPool,
  putSightings,
  putSource,
  type Sighting,
} from '../core/image.ts'
import { buildPool } from '../core/pool.ts'
import type { Loaded } from './log.ts'

export async function buildImage(name: string, loaded: Loaded, mostTouched: number): Promise<Image> {
  const image = newImage(name, mostTouched)
  putNetwork(image, loaded.network)
  for (const source of loaded.sources) putSource(image, source.declaration.id, source)
  for (const { poolId, settings, ...at } of loaded.pools)
    if (settings !== null) putPool(image, poolId, buildPool(settings, { poolId, ...at }))
  for (const [address, sightings] of byAddress(loaded.sightings)) putSightings(image, address, sightings)
  for await (const page of loaded.records) for (const record of page) put(image, record.address, record)
  for await (const page of loaded.recent) for (const { event } of page) remember(image, event)
  image.head = loaded.head
  image.at = loaded.at
  image.digest = loaded.digest
  image.dirtySightings.clear()
  return image
}

function byAddress(sightings: readonly Sighting[]): Map<string, Sighting[]> {
  const found = new Map<string, Sighting[]>()
  for (const sighting of sightings) {
    const there = found.get(sighting.address)
    if (there === undefined) found.set(sighting.address, [sighting])
    else there.push(sighting)
  }
  return found
}
