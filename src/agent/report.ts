/**
 * The agent as a source: it lists every address that is in use on its node, under the owner that it belongs to as far as anybody
 * can say, and answers look-ups by looking. In doubt an owner is alive.
 */
import type { MessageInitShape } from '@bufbuild/protobuf'
import { allLeases } from '../client/all-leases.ts'
import type { IpledgerClient } from '../client/client.ts'
import { attachmentsIn } from '../cni/cache.ts'
import type { CniOwner } from '../cni/call.ts'
import { containerOf, type Look, lookAround, namespaceAt } from '../cni/look.ts'
import {
  type BeginSnapshotResponse,
  LookUpAnswer,
  type ReportSnapshotRequestSchema,
  type Verification,
} from '../gen/ipledger/v1/liveness_pb.ts'
import { type Lease, LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { RESERVE_KIND, type Reserve } from './reserve.ts'

type Report = MessageInitShape<typeof ReportSnapshotRequestSchema>
type Entry = NonNullable<Report['entries']>[number]

type Options = {
  readonly client: IpledgerClient
  readonly network: string
  readonly node: string
  readonly source: string
  readonly epoch: string
  readonly bridge: string
  /** Of the container runtime's library: whose a namespace is. */
  readonly cniCache: string
  readonly reserve: Reserve
}

/** What the node and the ledger say of each other. */
export type Survey = {
  readonly look: Look
  readonly holders: ReadonlyMap<string, Lease['owner']>
  /** Ids of the leases that are not quarantined. */
  readonly held: ReadonlySet<string>
  /** In use here, and no lease of this node: now, and the time before. */
  readonly foreign: readonly string[]
}

export function createReporter(options: Options) {
  const { client, network, node, source, epoch, bridge, cniCache, reserve } = options
  let last: { readonly key: string; readonly digest: string } | undefined
  let strangers: ReadonlySet<string> = new Set()

  return {
    begin: () => client.liveness.beginSnapshot({ network, source }),
    /**
     * Leases before the look, so that what is released between the two is not foreign; nor is what was reserved between them, by
     * this agent (`handed`) or by a plugin without one: that is a lease the next time. @throws CallFailed
     */
    async survey(handed: Survey['holders']): Promise<Survey> {
      const leases = await Array.fromAsync(allLeases(client, { network, node }))
      const good = leases.filter(({ state }) => state !== LeaseState.QUARANTINED)
      const held = new Set(good.map(({ leaseId }) => leaseId))
      const look = await lookAround(bridge)
      const holders = new Map([...leases.map(({ address, owner }) => [address, owner] as const), ...handed])
      const unknown = look.seen.filter(({ address, isConnected }) => isConnected && !holders.has(address))
      const before = strangers
      strangers = new Set(unknown.map(({ address }) => address))
      return { look, holders, held, foreign: [...strangers.intersection(before)] }
    },
    /** Of a survey that was made after the begin. @throws CallFailed */
    async report(
      { sequence, head, begunAt }: BeginSnapshotResponse,
      { look, holders }: Survey,
    ): Promise<void> {
      const entries = named(look, holders)
      const key = JSON.stringify(entries)
      const report = { network, source, epoch, sequence, head, begunAt: begunAt!, complete: look.complete }
      const isSame = last?.key === key && last.digest !== '' && look.complete
      let answer = await client.liveness.reportSnapshot({
        ...report,
        ...(isSame ? { unchanged: last!.digest } : { entries }),
      })
      if (answer.resend) answer = await client.liveness.reportSnapshot({ ...report, entries })
      last = { key, digest: answer.digest }
      if (answer.verifications.length === 0) return
      const running = [...look.namespaces.values()].flatMap(({ pid }) => (pid && containerOf(pid)) || [])
      const owners = new Set([...ownersOf(look).values(), ...running].map(identityOf))
      const verdicts = answer.verifications.map((asked) => verdictOn(asked, look, owners))
      await client.liveness.reportVerdicts({ network, source, epoch, verdicts })
    },
  }

  /** Of what is not connected to the bridge only what this node has leased: the rest is of other networks. */
  function named({ seen: all, namespaces }: Look, holders: Survey['holders']): Entry[] {
    const seen = all.filter(({ address, isConnected }) => isConnected || holders.has(address))
    const spares = new Map(reserve.listed().map((entry) => [entry.address, entry]))
    const cached = ownersOf({ namespaces })
    const times = Map.groupBy(seen, ({ address }) => address)
    const entries = seen
      .filter(({ address }) => !spares.has(address))
      .map(({ address, interface: on, namespace }): Entry => {
        if (!namespaces.has(namespace)) return { address, kind: 'infrastructure', name: `${node}/${bridge}` }
        const pid = namespaces.get(namespace)!.pid
        const isSole = times.get(address)!.length === 1
        const owner =
          cached.get(`${namespace} ${on}`) ??
          (isSole ? holders.get(address) : undefined) ??
          (pid === null ? null : containerOf(pid))
        if (!owner) return { address }
        const { kind, uid } = owner
        if (!('name' in owner)) return { address, kind, uid }
        return { address, kind, uid, name: owner.name, incarnation: owner.incarnation, interface: on }
      })
    return [...spares.values(), ...entries]
  }

  /** Whose a namespace and interface is, as the container runtime's library wrote it down when it called us. */
  function ownersOf({ namespaces }: Pick<Look, 'namespaces'>): ReadonlyMap<string, CniOwner> {
    const owners = new Map<string, CniOwner>()
    for (const { owner, netns } of attachmentsIn(cniCache)) {
      const namespace = netns === null ? null : namespaceAt(netns)
      if (namespace !== null && namespaces.has(namespace))
        owners.set(`${namespace} ${owner.interface}`, owner)
    }
    return owners
  }

  /** Gone is what no namespace of this node has, neither by its address nor by its name. */
  function verdictOn({ id, owner, address }: Verification, look: Look, owners: ReadonlySet<string>) {
    const told = (answer: LookUpAnswer, detail: string) => ({ id, answer, detail })
    if (owner!.kind === RESERVE_KIND && reserve.isHolder(owner!.uid))
      return told(LookUpAnswer.LIVE, 'in the reserve of this node')
    if (look.seen.some((one) => one.address === address))
      return told(LookUpAnswer.LIVE, `${address} is configured on this node`)
    if (owners.has(identityOf(owner!)))
      return told(LookUpAnswer.LIVE, 'its namespace is there, without the address')
    if (!look.complete) return told(LookUpAnswer.ERROR, 'not every namespace could be read')
    return told(LookUpAnswer.GONE, `no namespace of ${node} has it`)
  }
}

const identityOf = ({ kind, uid }: { readonly kind: string; readonly uid: string }) => `${kind} ${uid}`
