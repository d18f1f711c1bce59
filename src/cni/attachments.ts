/**
 * What ADD answered, and which releases are not delivered yet: one file an attachment, below the state directory. It is in `added`;
 * in `removed` since DEL was called, while the service is away or the address is still configured. One that cannot be delivered, or
 * read, is set aside: it is tried again at the time of its last change, which is an hour ahead. A file is written whole and then
 * renamed, so that neither a crash of the plugin nor of the agent loses one. Files are not synced: after a loss of power there are
 * no containers, and sources prove that.
 *
 * Whoever delivers, or takes an attachment back into use, holds a lock, so that a release never overtakes the ADD after it.
 */
import { hash, randomUUID } from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import type { CniOwner } from './call.ts'
import { tryLock } from './lock.ts'

const text = z.string()
const owner = z.object({ kind: text, name: text, uid: text, incarnation: text, interface: text })
const shape = z.object({
  network: text,
  owner: owner.extend({ kind: z.enum(['pod', 'container']) }),
  /** Name of the configuration. */
  configuration: text,
  /** Empty: not known. */
  node: text,
  /** Where it is, or was. Empty: not known. */
  netns: text,
  /** That ADD answered; of a spare address with the spare's owner. */
  leases: z.array(z.object({ leaseId: text, address: text, owner })),
})
export type AttachmentFile = Readonly<z.infer<typeof shape>>
type Key = { readonly network: string; readonly owner: CniOwner }
type Called = Omit<AttachmentFile, 'leases'>

/** In the order in which they count, where a crash left a file in two. */
const PLACES = ['removed', 'added'] as const
type Place = (typeof PLACES)[number]

const LOCK_PATIENCE_MS = 30_000
const ASIDE_MS = 3_600_000

export class Attachments {
  readonly #dir: string
  readonly #warn: (message: string) => void

  constructor(stateDir: string, warn: (message: string) => void) {
    this.#dir = join(stateDir, 'attachments')
    this.#warn = warn
    for (const place of PLACES) mkdirSync(join(this.#dir, place), { recursive: true, mode: 0o700 })
  }

  /** Before ADD answers. What it answered earlier is still to be released. */
  added(called: Called, leases: readonly Lease[]): void {
    const now = leases.map(({ leaseId, address, owner: holder }) => ({ leaseId, address, owner: holder! }))
    const before = this.of(called)?.leases ?? []
    const other = before.filter(({ leaseId }) => now.every((one) => one.leaseId !== leaseId))
    this.#put('added', { ...called, leases: [...other, ...now] })
  }

  /** From here on the addresses go back, whatever happens to us. */
  removed(called: Called): void {
    const { leases = [], node = '', netns = '' } = this.of(called) ?? {}
    this.#put('removed', { ...called, leases, node: node || called.node, netns: called.netns || netns })
  }

  /** The attachment is in use again. Waits for a delivery that is under way. */
  async withdraw(key: Key): Promise<void> {
    if (!existsSync(this.#path('removed', key))) return
    await this.locked(async () => {
      const file = this.of(key)
      if (file !== null) this.#put('added', file)
    })
  }

  of(key: Key): AttachmentFile | null {
    return PLACES.map((place) => this.#read(this.#path(place, key))).find((file) => file !== null) ?? null
  }

  /** Those of one network in use. */
  inUse(network: string): readonly AttachmentFile[] {
    return this.#due('added', network)
  }

  /** Those of one network to deliver now. */
  pending(network: string): readonly AttachmentFile[] {
    return this.#due('removed', network)
  }

  delivered(key: Key): void {
    for (const place of PLACES) rmSync(this.#path(place, key), { force: true })
  }

  /** It can't be delivered as it is. */
  setAside(file: AttachmentFile, because: string): void {
    const leases = file.leases.map(({ leaseId, address }) => `${leaseId} (${address})`).join(', ')
    const remedy = leases === '' ? '' : `; if nothing uses it, end it by "ipledger reap": ${leases}`
    this.#setAside(this.#path('removed', file), `${because}${remedy}`)
  }

  get countAside(): number {
    return PLACES.flatMap((place) => this.#paths(place, true)).length
  }

  /** Alone among all processes of this node. */
  async locked<T>(work: () => Promise<T>): Promise<T> {
    for (const until = performance.now() + LOCK_PATIENCE_MS; ; await delay(10)) {
      await using lock = await tryLock(this.#dir, 'deliver')
      if (lock !== null) return await work()
      if (performance.now() > until) throw new Error(`the lock of ${this.#dir} is held by another process`)
    }
  }

  #path(place: Place, { network, owner: { kind, uid, incarnation, interface: on } }: Key): string {
    const name = hash('sha256', JSON.stringify([network, kind, uid, incarnation, on]))
    return join(this.#dir, place, `${name}.json`)
  }

  #paths(place: Place, isAside: boolean): readonly string[] {
    const paths = readdirSync(join(this.#dir, place)).map((name) => join(this.#dir, place, name))
    const nextOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
    return paths.filter((path) => nextOf(path) > Date.now() === isAside)
  }

  #due(place: Place, network: string): readonly AttachmentFile[] {
    const files = this.#paths(place, false).flatMap((path) => this.#read(path) ?? [])
    return files.filter((file) => file.network === network)
  }

  #read(path: string): AttachmentFile | null {
    try {
      return shape.parse(JSON.parse(readFileSync(path, 'utf8')))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#setAside(path, (error as Error).message)
      return null
    }
  }

  #put(place: Place, file: AttachmentFile): void {
    const draft = join(this.#dir, randomUUID())
    writeFileSync(draft, JSON.stringify(file))
    // Due, wherever the clock is set to.
    utimesSync(draft, 0, 0)
    renameSync(draft, this.#path(place, file))
    for (const other of PLACES) if (other !== place) rmSync(this.#path(other, file), { force: true })
  }

  #setAside(path: string, because: string): void {
    const next = new Date(Date.now() + ASIDE_MS)
    utimesSync(path, next, next)
    this.#warn(`${path} is set aside, and tried again each hour: ${because}`)
  }
}
