/**
 * The agent as a source: it lists every address that is in use on its node, under the owner that it belongs to as far as anybody
 * can say, and answers look-ups by looking. In doubt an owner is alive.
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
import { containerOf, type Look, type lookAround, namespaceAt } from '../cni/namespaces.ts'
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
  /** Of the container runtime's library: whose a namespace is. */
  readonly cniCache: string
}
type Options = SourceOptions & {
  readonly client: IpledgerClient
  readonly lookAround: typeof lookAround
  readonly spares: Spares
  readonly attachments: Attachments
}

/** Reasons of the service. */
const NOTHING_TAKEN = ['BEYOND_HEAD', 'UNPROVEN_HEAD', 'CLOSED_EPOCH', 'OTHER_ERA', 'OUT_OF_SEQUENCE']
/** Of a Reserve's `liveAddresses`. */
const MOST_LIVE = 4_096

export class Reporter {
  readonly #options: Options
  readonly #lastNumber: LastNumber
  /** Of this process: its reports are numbered anew. */
  readonly #epoch = randomUUID()
  #last = { key: '', digest: '' }
  /** At the last look, and at the one before. */
  #strangers: readonly ReadonlySet<string>[] = [new Set(), new Set()]
  /** Since the last list of leases, which may lack them. */
  #handed = new Map<string, Lease['owner']>()

  constructor(options: Options) {
    this.#options = options
    this.#lastNumber = new LastNumber(options.state, options.network, options.source)
  }

  /** In use here, and no lease of this node: twice. As many as Reserve takes. */
  get foreign(): string[] {
    return [...this.#strangers[0]!.intersection(this.#strangers[1]!)].slice(0, MOST_LIVE)
  }

  handed(leases: readonly Lease[]): void {
    for (const { address, owner } of leases) this.#handed.set(address, owner)
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
    // What is foreign is found out even if no report can be begun.
    await begin.catch(() => {})
    const [look, holders] = await this.#survey()
    const begun = await begin
    const asked = await this.#send(begun, look, this.#named(look, holders)).catch(refused)
    const intervalMs = durationMs(begun.interval!)
    spares.reported(stops, intervalMs)
    if (asked.length > 0) await this.#answer(asked, look)
    return intervalMs
  }

  /**
   * Leases before the look, so that what is released between the two is not foreign; nor is what was reserved between them, by this
   * agent or by a plugin without one: that is a lease the next time. @throws CallFailed
   */
  async #survey(): Promise<readonly [Look, Holders]> {
    const { client, network, node, bridge, spares, attachments, lookAround } = this.#options
    this.#handed = new Map()
    const leases = await Array.fromAsync(allLeases(client, { network, node }))
    const written = attachments.files('inUse', network)
    // Who got a spare address says what ADD wrote down.
    const takers = new Map(
      written.flatMap((file) => file.leases.map(({ owner }) => [attachmentKey(owner), file.owner] as const)),
    )
    const look = await lookAround(bridge)
    const holderOf = ({ owner }: Lease) => takers.get(attachmentKey(owner!)) ?? owner
    const holders = new Map([...leases.map((one) => [one.address, holderOf(one)] as const), ...this.#handed])
    spares.compare(leases, look)
    const unknown = look.seen.filter(({ address, isConnected }) => isConnected && !holders.has(address))
    this.#strangers = [new Set(unknown.map(({ address }) => address)), this.#strangers[0]!]
    return [look, holders]
  }

  /** Answers who is to be looked up. */
  async #send(begun: BeginSnapshotResponse, { complete }: Look, entries: Entry[]) {
    const { client, network, source } = this.#options
    const { sequence, begunAt } = begun
    const { head, proof } = this.#lastNumber.heard(begun)
    const key = JSON.stringify(entries)
    const report = { network, source, epoch: this.#epoch, sequence, head, proof, begunAt: begunAt!, complete }
    const unchanged = complete && this.#last.key === key ? this.#last.digest : ''
    const { reportSnapshot } = client.liveness
    let answer = await reportSnapshot({ ...report, ...(unchanged === '' ? { entries } : { unchanged }) })
    if (answer.resend) answer = await reportSnapshot({ ...report, entries })
    const because = answer.because.find((one) => NOTHING_TAKEN.includes(one))
    // It knows now that it was set back, or is another service.
    if (because?.endsWith('_HEAD')) this.#lastNumber.forget()
    if (because !== undefined)
      throw new Error(`nothing of the report, at number ${head}, was taken: ${because}`)
    this.#last = { key, digest: answer.digest }
    return answer.verifications
  }

  async #answer(asked: readonly Verification[], look: Look): Promise<void> {
    const { client, network, source } = this.#options
    const running = [...look.namespaces.values()].flatMap(({ pid }) => (pid && containerOf(pid)) || [])
    const owners = new Set([...this.#ownersOf(look).values(), ...running].map(identityOf))
    const verdicts = asked.map((one) => this.#verdictOn(one, look, owners))
    await client.liveness.reportVerdicts({ network, source, epoch: this.#epoch, verdicts })
  }

  /** Of what is not connected to the bridge only what this node has leased: the rest is of other networks. */
  #named(look: Look, holders: Holders): Entry[] {
    const { node, bridge, spares } = this.#options
    const seen = look.seen.filter(({ address, isConnected }) => isConnected || holders.has(address))
    const cached = this.#ownersOf(look)
    const times = Map.groupBy(seen, ({ address }) => address)
    const entries = seen.map(({ address, interface: on, namespace }): Entry => {
      const inside = look.namespaces.get(namespace)
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

  /** Whose a namespace and interface is, as the container runtime's library wrote it down when it called us. */
  #ownersOf({ namespaces }: Look): ReadonlyMap<string, CniOwner> {
    const all = attachmentsIn(this.#options.cniCache)
    const placed = all.map(({ owner, netns }) => ({ owner, namespace: namespaceAt(netns) }))
    const here = placed.filter(({ namespace }) => namespaces.has(namespace!))
    return new Map(here.map(({ owner, namespace }) => [`${namespace} ${owner.interface}`, owner]))
  }

  /** Gone is what no namespace of this node has, neither by its address nor by its name. */
  #verdictOn({ id, owner, address }: Verification, look: Look, owners: ReadonlySet<string>) {
    const { node, spares } = this.#options
    const verdict = (answer: LookUpAnswer, detail: string) => ({ id, answer, detail })
    if (owner!.kind === RESERVE_KIND && spares.isAlive(owner!.uid))
      return verdict(LookUpAnswer.LIVE, 'a spare address of this agent')
    if (look.seen.some((one) => one.address === address))
      return verdict(LookUpAnswer.LIVE, `${address} is configured on this node`)
    if (owners.has(identityOf(owner!)))
      return verdict(LookUpAnswer.LIVE, 'its namespace is there, without the address')
    if (!look.complete) return verdict(LookUpAnswer.ERROR, 'not every namespace could be read')
    return verdict(LookUpAnswer.GONE, `no namespace of ${node} has it`)
  }
}

const identityOf = ({ kind, uid }: { readonly kind: string; readonly uid: string }) => `${kind} ${uid}`
