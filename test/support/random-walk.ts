/** Random histories of a network, for what must hold of any log: those of the simulator. */
import { evolve } from '../../src/core/evolve.ts'
import { newScene, type Scene } from '../core/given.ts'
import { simulate } from '../simulation/simulate.ts'

/** mulberry32 */
export function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

/** So many events of what came of a seed, and the image that they make. The same seed makes the same. */
export async function walk(seed: number, count: number): Promise<Scene> {
  const { log } = await simulate(seed, 10 * count, { tells: true })
  const scene = newScene()
  for (const event of log.slice(0, count)) {
    evolve(scene.image, event)
    Object.assign(scene.image, { head: event.seq, at: event.at })
    scene.events.push(event)
  }
  return scene
}
