/**
 * The image of a network in this process: loaded at first use, kept at the head of the log, and changed by a batch that is
 * undone if it fails. An image that is not a prefix of the log is dropped.
 */
import { evolve } from '../core/evolve.ts'
import { type Image, rollback } from '../core/image.ts'
import { buildImage } from './build-image.ts'
import { digestOf, textOf } from './event-text.ts'
import type { Caught, Chained, Log } from './log.ts'
import type { LoopChecks, LoopLimits, Observer } from './loop-options.ts'

type Options = {
  readonly log: Log
  readonly limits: LoopLimits
  readonly checks: LoopChecks
  readonly observer: Observer
}

export class ImageCache {
  readonly #network: string
  readonly #options: Options
  /** Null: it is not loaded. */
  image: Image | null = null
  #isBehind = false

  constructor(network: string, options: Options) {
    this.#network = network
    this.#options = options
  }

  /** Loads it, and reads what it is far behind. */
  async open(): Promise<Image> {
    if (this.image !== null && this.#isBehind && !(await this.#follow(this.image))) this.image = null
    this.image ??= await this.#load()
    this.#isBehind = false
    return this.image
  }

  /** Folds what others have written, under the lock. */
  catchUp(image: Image, caught: Caught): 'caughtUp' | 'behind' | 'anotherLog' {
    const { checks } = this.#options
    if (checks.DIGEST_AT_THE_HEAD && caught.digest !== image.digest) return 'anotherLog'
    if (!checks.CATCHES_UP_UNDER_THE_LOCK) return 'caughtUp'
    for (const one of caught.tail) fold(image, one)
    image.dirtySightings.clear()
    this.#isBehind = caught.isCut
    return caught.isCut ? 'behind' : 'caughtUp'
  }

  keep(image: Image): void {
    image.journal = null
  }

  undo(image: Image): void {
    if (this.#options.checks.UNDOES_WHAT_FAILED) rollback(image, 0)
    this.keep(image)
  }

  async #load(): Promise<Image> {
    const begun = performance.now()
    const { log, limits, observer } = this.#options
    const image = await log.load(this.#network, (found) => buildImage(this.#network, found, limits.touched))
    await this.#follow(image)
    observer.loaded?.(this.#network, { records: image.records.size, ms: performance.now() - begun })
    return image
  }

  /** Without the lock: a process that is far behind must not keep the others. False: it is quicker to load anew. */
  async #follow(image: Image): Promise<boolean> {
    const { log, limits } = this.#options
    for (let behind = 0, isCut = true; isCut; ) {
      const page = await log.tail(this.#network, image.head)
      const [first] = page.tail
      // The tail of another log, after a failover: the digest at the head will tell, under the lock.
      if (first !== undefined && digestOf(image.digest, textOf(this.#network, first.event)) !== first.digest)
        break
      for (const one of page.tail) fold(image, one)
      behind += page.tail.length
      ;({ isCut } = page)
      if (isCut && behind > limits.behind) return false
    }
    return true
  }
}

function fold(image: Image, { event, digest }: Chained): void {
  evolve(image, event)
  image.head = event.seq
  image.at = event.at
  image.digest = digest
}
