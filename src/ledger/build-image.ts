/** Builds an image from the tables at one head; the events of the last hour say what was closed and reaped. */
import { remember } from '../core/evolve.ts'
import { assign, type Image, newImage, put, putPool, putSightings, putSource } from '../core/image.ts'
import { buildPool } from '../core/pool.ts'
import type { Loaded } from './log.ts'

export async function buildImage(name: string, loaded: Loaded, mostTouched: number): Promise<Image> {
  const image = newImage(name, mostTouched)
  const { network, head, at, digest } = loaded
  assign(image, { network, head, at, digest })
  for (const source of loaded.sources) putSource(image, source.declaration.id, source)
  for (const { poolId, settings, ...at } of loaded.pools)
    if (settings !== null) putPool(image, poolId, buildPool(settings, { poolId, ...at }))
  for (const [address, sightings] of Map.groupBy(loaded.sightings, (one) => one.address))
    putSightings(image, address, sightings)
  for await (const page of loaded.records) for (const record of page) put(image, record.address, record)
  for await (const page of loaded.recent) for (const { event } of page) remember(image, event)
  image.dirtySightings.clear()
  return image
}
