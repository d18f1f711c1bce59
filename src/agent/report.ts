/**
 * The agent as a source: it lists every address that is in use on its node, with its owner where that is known, and answers look-ups
 * from a scan of the node. In doubt an owner is alive.
 */
import { randomUUID } from 'node:crypto'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { durationMs } from '@bufbuild/protobuf/wkt'
import { allLeases } from '../client/all-leases.ts'
import type { IpledgerClient } from '../client/client.ts'
import type { Attachments } from '../cni/attachments.ts'
import { attachmentsIn } from '../cni/cache.ts'
import type { CniOwner } from '../cni/call.ts'
import { isAway } from '../cni/commands.ts'
import { containerOf, namespaceAt, type Scan, type scanNode, UNREAD } from '../cni/namespaces.ts'
import { attachmentKey, RESERVE_KIND } from '../core/owner.ts'
import {
  type BeginSnapshotResponse,
  LookUpAnswer,
  type ReportSnapshotRequestSchema,
  type Verification,
} from '../gen/ipledger/v1/liveness_pb.ts'
import type { Lease } from '../gen/ipledger/v1/types_pb.ts'
import { LastNumber } from './last-number.ts'
import type { Spares } from './spares.ts'

type Entry = NonNullable<MessageInitShape<typeof ReportSnapshotRequestSchema>['entries']>[number]
type Holders = ReadonlyMap<string, Lease['owner'] | CniOwner>

export type SourceOptions = {
  readonly network: string
  readonly node: string
  readonly source: string
  readonly bridge: string
  readonly state: string
  /** The cache of the container runtime's library, which knows the owner of a namespace. */
  readonly cniCache: string
}
type Options = SourceOptions & {
  readonly client: IpledgerClient
  readonly scanNode: typeof scanNode
  readonly spares: Spares
  readonly attachments: Attachments
}

/** Reasons of the service why it took nothing of a report. */
const NOTHING_TAKEN = ['BEYOND_HEAD', 'UNPROVEN_HEAD', 'CLOSED_EPOCH', 'OTHER_ERA', 'OUT_OF_SEQUENCE']
/** Of a Reserve's `liveAddresses`. */
const MOST_LIVE = 4_096

export class Reporter {
  readonly #options: Options
  readonly #lastNumber: LastNumber
  /** Of this process: its reports are numbered anew. */
  readonly #epoch = randomUUID()
  #last = { key: '', digest: '' }
  /** Addresses without a lease, at the last scan and at the one before. */
  #unknown: readonly ReadonlySet<string>[] = [new Set(), new Set()]
  /** Reserved since the last list of leases, which may lack them. */
  #reserved = new Map<string, Lease['owner']>()

  constructor(options: Options) {
    this.#options = options
    this.#lastNumber = new LastNumber(options.state, options.network, options.source)
  }

  /** Addresses that two scans found in use here without a lease of this node. As many as Reserve takes. */
  get foreign(): string[] {
    return [...this.#unknown[0]!.intersection(this.#unknown[1]!)].slice(0, MOST_LIVE)
  }

  reserved(leases: readonly Lease[]): void {
    for (const { address, owner } of leases) this.#reserved.set(address, owner)
  }

  /** Answers the milliseconds until the next. @throws CallFailed; Error if nothing of it was taken */
  async report(): Promise<number> {
    const { client, network, source, spares } = this.#options
    const { stops } = spares
    const refused = (error: unknown) => {
      if (!isAway(error)) spares.reported(null)
      throw error
    }
    const begin = client.liveness.beginSnapshot({ network, source }).catch(refused)
    // Foreign addresses are found even if no report can be begun.
    await begin.catch(() => {})
    const [scan, holders] = await this.#survey()
    const begun = await begin
    const verifications = await this.#send(begun, scan, this.#entries(scan, holders)).catch(refused)
    const intervalMs = durationMs(begun.interval!)
    spares.reported(stops, intervalMs)
    if (verifications.length > 0) await this.#answer(verifications, scan)
    return intervalMs
  }

  /**
   * Lists leases before it scans: an address that is released between the two is not foreign. Nor is one that is reserved between
   * them, by this agent or by a plugin without one: the next list has its lease. @throws CallFailed
   */
  async #survey(): Promise<readonly [Scan, Holders]> {
    const { client, network, node, bridge, spares, attachments, scanNode } = this.#options
    this.#reserved = new Map()
    const leases = await Array.fromAsync(allLeases(client, { network, node }))
    // The file of an attachment that got a spare address names the spare's owner.
    const takers = new Map<string, CniOwner>()
    for (const { leases, owner: taker } of attachments.files('inUse', network))
      for (const { owner } of leases) takers.set(attachmentKey(owner), taker)
    const scan = await scanNode(bridge)
    const holderOf = ({ owner }: Lease) => takers.get(attachmentKey(owner!)) ?? owner
    const holders = new Map([
      ...leases.map((one) => [one.address, holderOf(one)] as const),
      ...this.#reserved,
    ])
    spares.compare(leases, scan)
    const unknown = scan.seen.filter(({ address, isConnected }) => isConnected && !holders.has(address))
    this.#unknown = [new Set(unknown.map(({ address }) => address)), this.#unknown[0]!]
    return [scan, holders]
  }

  /** Answers which look-ups the service asks for. */
  async #send(begun: BeginSnapshotResponse, { complete }: Scan, entries: Entry[]) {
    const { client, network, source } = this.#options
    const { sequence, begunAt } = begun
    const { head, proof } = this.#lastNumber.latest(begun)
    const key = JSON.stringify(entries)
    const report = { network, source, epoch: this.#epoch, sequence, head, proof, begunAt: begunAt!, complete }
    const unchanged = complete && this.#last.key === key ? this.#last.digest : ''
    const { reportSnapshot } = client.liveness
    let answer = await reportSnapshot({ ...report, ...(unchanged === '' ? { entries } : { unchanged }) })
    if (answer.resend) answer = await reportSnapshot({ ...report, entries })
    const because = answer.because.find((one) => NOTHING_TAKEN.includes(one))
    // The service knows now that it was set back, or it is another one.
    if (because?.endsWith('_HEAD')) this.#lastNumber.forget()
    if (because !== undefined)
      throw new Error(`nothing of the report, at number ${head}, was taken: ${because}`)
    this.#last = { key, digest: answer.digest }
    return answer.verifications
  }

  async #answer(verifications: readonly Verification[], scan: Scan): Promise<void> {
    const { client, network, source } = this.#options
    const running = [...scan.namespaces.values()].flatMap(({ pid }) => (pid && containerOf(pid)) || [])
    const cached = this.#cached()
    const here = cached.filter(({ namespace }) => scan.namespaces.has(namespace!))
    const owners = new Set([...here.map(({ owner }) => owner), ...running].map(identityOf))
    const unread = cached.filter(({ namespace }) => namespace === UNREAD)
    const hidden = new Set(unread.map(({ owner }) => identityOf(owner)))
    const verdicts = verifications.map((one) => this.#verdictOn(one, scan, owners, hidden))
    await client.liveness.reportVerdicts({ network, source, epoch: this.#epoch, verdicts })
  }

  /** An address that is not connected to the bridge is listed only if this node leases it: others are of other networks. */
  #entries(scan: Scan, holders: Holders): Entry[] {
    const { node, bridge, spares } = this.#options
    const seen = scan.seen.filter(({ address, isConnected }) => isConnected || holders.has(address))
    const cached = new Map(
      this.#cached().map(({ owner, namespace }) => [`${namespace} ${owner.interface}`, owner]),
    )
    const times = Map.groupBy(seen, ({ address }) => address)
    const entries = seen.map(({ address, interface: on, namespace }): Entry => {
      const inside = scan.namespaces.get(namespace)
      if (inside === undefined) return { address, kind: 'infrastructure', name: `${node}/${bridge}` }
      const holder = times.get(address)!.length === 1 ? holders.get(address) : undefined
      const owner =
        cached.get(`${namespace} ${on}`) ??
        (holder?.kind === RESERVE_KIND ? null : holder) ??
        (inside.pid === null ? null : containerOf(inside.pid)) ??
        holder
      if (!owner) return { address }
      const { kind, uid } = owner
      if (!('name' in owner)) return { address, kind, uid }
      return { address, kind, uid, name: owner.name, incarnation: owner.incarnation, interface: on }
    })
    return [...spares.listed(), ...entries]
  }

  /** Owners and their namespaces, from the container runtime's cache. */
  #cached() {
    const all = attachmentsIn(this.#options.cniCache)
    return all.map(({ owner, netns }) => ({ owner, namespace: namespaceAt(netns) }))
  }

  /** A workload is gone if no namespace of this node has its address or belongs to it. */
  #verdictOn(
    { id, owner, address }: Verification,
    scan: Scan,
    owners: ReadonlySet<string>,
    hidden: ReadonlySet<string>,
  ) {
    const { node, spares } = this.#options
    const verdict = (answer: LookUpAnswer, detail: string) => ({ id, answer, detail })
    if (owner!.kind === RESERVE_KIND && spares.isAlive(owner!.uid))
      return verdict(LookUpAnswer.LIVE, 'a spare address of this agent')
    if (scan.seen.some((one) => one.address === address))
      return verdict(LookUpAnswer.LIVE, `${address} is configured on this node`)
    if (owners.has(identityOf(owner!)))
      return verdict(LookUpAnswer.LIVE, 'its namespace is there, without the address')
    if (!scan.complete || hidden.has(identityOf(owner!)))
      return verdict(LookUpAnswer.ERROR, 'not every namespace could be read')
    return verdict(LookUpAnswer.GONE, `no namespace of ${node} has it`)
  }
}

const identityOf = ({ kind, uid }: { readonly kind: string; readonly uid: string }) => `${kind} ${uid}`
