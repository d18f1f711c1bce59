/**
 * What ADD answered, and which releases are not delivered yet: one file an attachment, below the state directory. DEL marks the file
 * as removed; it stays while the service is away or the address is still configured. A file that cannot be read, or whose release is
 * refused, is set aside: its time of last change is then an hour ahead, and it is tried again at that time. A file is written whole and
 * then renamed, so no crash loses one. Files are not synced: after a loss of power there are no containers, and sources prove that.
 *
 * A lock is held while releases are delivered, or an attachment is taken back into use: a release never overtakes the ADD after it.
 */
import { hash, randomUUID } from 'node:crypto'
import {
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
  isRemoved: z.boolean(),
})
export type AttachmentFile = Readonly<z.infer<typeof shape>>
type Key = { readonly network: string; readonly owner: CniOwner }
type Called = Omit<AttachmentFile, 'leases' | 'isRemoved'>

const LOCK_PATIENCE_MS = 30_000
const ASIDE_MS = 3_600_000

export class Attachments {
  readonly #dir: string
  readonly #warn: (message: string) => void
  readonly #waiting = new Set<string>()

  constructor(stateDir: string, warn: (message: string) => void) {
    this.#dir = join(stateDir, 'attachments')
    this.#warn = warn
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 })
  }

  /** Before ADD answers. What it answered earlier is still to be released. */
  added(called: Called, leases: readonly Lease[]): void {
    const now = leases.map(({ leaseId, address, owner: holder }) => ({ leaseId, address, owner: holder! }))
    const before = this.of(called)?.leases ?? []
    const other = before.filter(({ leaseId }) => now.every((one) => one.leaseId !== leaseId))
    this.#put({ ...called, leases: [...other, ...now], isRemoved: false })
  }

  /** From here on the addresses go back, even if this process ends. */
  removed(called: Called): void {
    const { leases = [], node = '', netns = '' } = this.of(called) ?? {}
    const known = { node: node || called.node, netns: called.netns || netns }
    this.#put({ ...called, ...known, leases, isRemoved: true })
  }

  /** The attachment is in use again. Waits for a delivery that is under way. */
  async withdraw(key: Key): Promise<void> {
    if (!this.of(key)?.isRemoved) return
    await this.locked(async () => {
      const file = this.of(key)
      if (file !== null) this.#put({ ...file, isRemoved: false })
    })
  }

  of(key: Key): AttachmentFile | null {
    return this.#read(this.#path(key))
  }

  /** Those in use, or those to deliver now. Null: of all networks. */
  files(which: 'inUse' | 'removed', network: string | null): readonly AttachmentFile[] {
    const files = this.#paths(false).flatMap((path) => this.#read(path) ?? [])
    const isRemoved = which === 'removed'
    return files.filter((file) => file.isRemoved === isRemoved && file.network === (network ?? file.network))
  }

  delivered(key: Key): void {
    const path = this.#path(key)
    rmSync(path, { force: true })
    this.#waiting.delete(path)
  }

  /** It can't be delivered yet. Said once. */
  waits(file: AttachmentFile, because: string): void {
    const path = this.#path(file)
    if (!this.#waiting.has(path)) this.#warn(`${path} waits: ${because}`)
    this.#waiting.add(path)
  }

  /** It can't be delivered as it is. */
  setAside(file: AttachmentFile, because: string): void {
    const leases = file.leases.map(({ leaseId, address }) => `${leaseId} (${address})`).join(', ')
    const remedy = leases === '' ? '' : `; if nothing uses it, end it by "ipledger reap": ${leases}`
    this.#setAside(this.#path(file), `${because}${remedy}`)
  }

  get countAside(): number {
    return this.#paths(true).length
  }

  /** Alone among all processes of this node. */
  async locked<T>(work: () => Promise<T>): Promise<T> {
    for (const until = performance.now() + LOCK_PATIENCE_MS; ; await delay(10)) {
      await using lock = await tryLock(this.#dir, 'deliver')
      if (lock !== null) return await work()
      if (performance.now() > until) throw new Error(`the lock of ${this.#dir} is held by another process`)
    }
  }

  #path({ network, owner: { kind, uid, incarnation, interface: on } }: Key): string {
    const name = hash('sha256', JSON.stringify([network, kind, uid, incarnation, on]))
    return join(this.#dir, `${name}.json`)
  }

  /** One that is further ahead was set aside before the clock was set back. Drafts have no extension. */
  #paths(isAside: boolean): readonly string[] {
    const names = readdirSync(this.#dir).filter((name) => name.endsWith('.json'))
    const paths = names.map((name) => join(this.#dir, name))
    const ahead = (path: string) => (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) - Date.now()
    return paths.filter((path) => (ahead(path) > 0 && ahead(path) <= ASIDE_MS) === isAside)
  }

  #read(path: string): AttachmentFile | null {
    try {
      // To read a FIFO would be to wait for its writer.
      if (!statSync(path).isFile()) throw new Error('it is no file')
      return shape.parse(JSON.parse(readFileSync(path, 'utf8')))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#setAside(path, (error as Error).message)
      return null
    }
  }

  #put(file: AttachmentFile): void {
    const draft = join(this.#dir, randomUUID())
    writeFileSync(draft, JSON.stringify(file))
    // Due, also after the clock was set back.
    utimesSync(draft, 0, 0)
    renameSync(draft, this.#path(file))
  }

  #setAside(path: string, because: string): void {
    const next = new Date(Date.now() + ASIDE_MS)
    utimesSync(path, next, next)
    const count = `${this.countAside} are set aside on this node`
    this.#warn(`${path} is set aside, and tried again each hour: ${because} (${count})`)
  }
}
