/**
 * Spare addresses: leased while the service answers, for ADDs while it is away. They are only in the memory of this process, so no
 * file, copy or second agent can hand one out again. Each is leased under a holder of its own, whose name is never used twice. The
 * spares of an earlier process, or of a Reserve whose answer was lost, are given to no container: they end by proof.
 */
import { randomUUID } from 'node:crypto'
import type { IpledgerClient } from '../client/client.ts'
import type { Call, CniOwner } from '../cni/call.ts'
import { CniError } from '../cni/cni-error.ts'
import type { Scan } from '../cni/namespaces.ts'
import { RESERVE_KIND, sameAttachment } from '../core/owner.ts'
import { type Lease, LeaseState, type Owner } from '../gen/ipledger/v1/types_pb.ts'

type Spare = {
  /** Its name in the ledger. */
  readonly holder: string
  /** One of each pool. */
  readonly leases: readonly Lease[]
  /** The attachment that is getting it, or got it. */
  taker: CniOwner | null
  /** When it was given, by the first clock; null: it is free. */
  givenAt: number | null
}

type Used = Pick<Scan, 'complete' | 'all'>

type Options = {
  readonly client: IpledgerClient
  readonly network: string
  readonly node: string
  readonly source: string
  /** How many are kept free while the service answers; with those of earlier processes at most twice as many are held. */
  readonly size: number
  /** One address of each pool. None: of the network's default pools. */
  readonly pools: readonly string[]
  readonly scan: () => Promise<Used>
  /** Whether another host on the link answers for it. */
  readonly isAnsweredFor: (address: string) => Promise<boolean>
  /** Milliseconds: the first stops with the machine, the second does not. */
  readonly clocks?: () => readonly number[]
}

/** Within this time a container has configured its address: until then it counts as alive. */
const CONFIGURED_WITHIN_MS = 300_000
/** A shorter one may be a busy machine. */
const SHORTEST_STOP_MS = 10_000
const TICK_MS = 1_000
const UNREPORTED = 'the agent has not reported since it started or stood still: it hands out no spare address'

export class Spares {
  readonly #options: Options
  readonly #spares = new Set<Spare>()
  /** Spares that the ledger holds for this source and that are not free: of earlier processes, or given. */
  #strays = 0
  #nextScan: Promise<Used> | null = null
  #lastScan: Promise<unknown> = Promise.resolve()
  #clocks: readonly number[]
  #stops = 0
  #reportedAt: number | null = null
  #longestMs = SHORTEST_STOP_MS

  constructor(options: Options) {
    this.#options = options
    this.#clocks = this.#readClocks()
    setInterval(() => this.stops, TICK_MS).unref()
  }

  /** How often this process stood still for longer than an interval: stopped, or its machine suspended, paused or set back. */
  get stops(): number {
    const clocks = this.#readClocks()
    if (clocks.some((ms, at) => Math.abs(ms - this.#clocks[at]!) > this.#longestMs)) this.#stops += 1
    this.#clocks = clocks
    return this.#stops
  }

  #readClocks(): readonly number[] {
    return this.#options.clocks?.() ?? [performance.now(), Date.now()]
  }

  /**
   * A report that was begun at this many stops was taken: from then on this process knows what it holds. Null: it was refused, as of
   * a retired source: the ledger may have ended the spares.
   */
  reported(stops: number | null, intervalMs = 0): void {
    this.#reportedAt = stops
    this.#longestMs = Math.max(SHORTEST_STOP_MS, intervalMs)
  }

  /** None before a report. */
  get free(): number {
    return this.stops === this.#reportedAt
      ? this.#all('kept').filter(({ taker }) => taker === null).length
      : 0
  }

  /** The spare that the attachment got from this process; null: none. */
  of(owner: CniOwner): readonly Lease[] | null {
    return this.#all('given').find(({ taker }) => sameAttachment(taker!, owner))?.leases ?? null
  }

  /** For an attachment that has none, while the service is away. Null: none fits. @throws CniError tryAgain */
  async take(call: Call): Promise<readonly Lease[] | null> {
    let spare = this.#pick(call)
    if (spare === null) return null
    try {
      const { complete, all } = await this.#scan()
      if (!complete)
        throw new CniError('tryAgain', 'not every namespace can be read: no spare address is handed out')
      for (; spare !== null; spare = this.#pick(call)) {
        const used = spare.leases.map(
          async ({ address }) => all.has(address) || (await this.#options.isAnsweredFor(address)),
        )
        const isInUse = (await Promise.all(used)).includes(true)
        if (this.stops !== this.#reportedAt) throw new CniError('tryAgain', UNREPORTED)
        if (!isInUse && this.#spares.has(spare)) {
          spare.givenAt = this.#readClocks()[0]!
          return spare.leases
        }
        this.#spares.delete(spare)
      }
      return null
    } finally {
      if (spare?.givenAt === null) spare.taker = null
    }
  }

  /** No spare fits a requested address; named pools must be those of its leases. */
  #pick({ owner, claims }: Call): Spare | null {
    const fits = ({ taker, leases }: Spare) =>
      taker === null &&
      (claims.length === 0 ||
        (claims.length === leases.length &&
          claims.every(({ pools: named }, at) => named?.includes(leases[at]!.pool) === true)))
    const spare = [...this.#spares].find(fits) ?? null
    if (spare !== null) spare.taker = owner
    return spare
  }

  /** A scan that begins after this call; all callers that wait when it begins share it. */
  #scan(): Promise<Used> {
    this.#nextScan ??= this.#lastScan.then(() => {
      this.#nextScan = null
      return this.#options.scan()
    })
    this.#lastScan = this.#nextScan.catch(() => {})
    return this.#nextScan
  }

  /** The attachment is gone, and its leases are released. */
  forget({ network, owner }: { readonly network: string; readonly owner: CniOwner }): void {
    const isIts = ({ taker }: Spare) => network === this.#options.network && sameAttachment(taker!, owner)
    for (const spare of this.#all('given')) if (isIts(spare)) this.#spares.delete(spare)
  }

  /** Compares with the leases of this node and a scan: free ones that have ended or are in use are dropped. */
  compare(leases: readonly Lease[], { complete, all: used }: Used): void {
    const { source } = this.#options
    const held = leases.filter(({ state }) => state !== LeaseState.QUARANTINED)
    const holders = new Map(held.map(({ leaseId, owner }) => [leaseId, owner!.name]))
    for (const spare of this.#spares) {
      const isHeld = spare.leases.every(({ leaseId }) => holders.get(leaseId) === spare.holder)
      const isSeen = spare.leases.some(({ address }) => used.has(address))
      const isOver = spare.givenAt === null ? !isHeld || isSeen : !isHeld && !isSeen && complete
      if (isOver) this.#spares.delete(spare)
      // From now on scans show whether it is alive.
      else if (isSeen) spare.givenAt = -Infinity
    }
    const kept = new Set(this.#all('kept').map(({ holder }) => holder))
    const isStray = ({ kind, name }: Owner) =>
      kind === RESERVE_KIND && name.slice(0, name.lastIndexOf('/')) === source && !kept.has(name)
    this.#strays = new Set(held.flatMap(({ owner }) => (isStray(owner!) ? [owner!.name] : []))).size
  }

  /** `liveAddresses`: in use on this node, and not leased. @throws CallFailed */
  async fill(liveAddresses: string[]): Promise<void> {
    const { client, network, node, source, size, pools } = this.#options
    const claims = pools.map((pool) => ({ pool }))
    const isShort = (kept: number) => kept < size && kept + this.#strays < 2 * size
    while (isShort(this.#all('kept').length)) {
      const holder = `${source}/${randomUUID()}`
      const request = { network, owner: ownerOf(holder, node), claims, confirmed: true, liveAddresses }
      const { leases } = await client.leases.reserve(request)
      this.#spares.add({ holder, leases, taker: null, givenAt: null })
    }
  }

  #all(how: 'given' | 'kept'): readonly Spare[] {
    return [...this.#spares].filter(({ givenAt }) => (givenAt === null) === (how === 'kept'))
  }

  /** The free ones as entries of a report: they are listed so that they are protected. */
  listed() {
    return this.#all('kept').flatMap(({ leases, holder }) =>
      leases.map(({ address }) => ({ address, ...ownerOf(holder, this.#options.node), uid: holder })),
    )
  }

  /** Free, or so young that its container may be about to configure it. */
  isAlive(holder: string): boolean {
    const spare = [...this.#spares].find((one) => one.holder === holder)
    return spare !== undefined && this.#readClocks()[0]! - (spare.givenAt ?? Infinity) < CONFIGURED_WITHIN_MS
  }
}

const ownerOf = (name: string, node: string) => ({ kind: RESERVE_KIND, name, interface: 'eth0', node })
