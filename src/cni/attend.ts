/**
 * The plugin's commands, whoever runs them: the node's agent, or the plugin itself where there is no agent. The ledger
 * knows who holds what; this node's namespaces say what is configured. An address goes back only when it is configured no
 * longer.
 */
import { randomUUID } from 'node:crypto'
import { allLeases } from '../client/all-leases.ts'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { type Lease, LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { type Answer, addresses } from './answer.ts'
import type { Call, CniOwner } from './call.ts'
import { CniError } from './cni-error.ts'
import { addressesOf, lookAround, namespaceAt } from './look.ts'
import type { Outbox, Parting } from './outbox.ts'

/** Where a command runs. */
export type Desk = {
  readonly client: IpledgerClient
  readonly node: string
  readonly outbox: Outbox
  /** How long the ledger may take to answer. */
  readonly patienceMs: number
  readonly agent: AgentDesk | null
}

/** What an agent does besides. */
export type AgentDesk = {
  /** Addresses that this node uses, and the ledger knows nothing of. */
  seenLive(): string[]
  /** Asks the link whether an address is in use. @throws CniError inUse */
  probe(leases: readonly Lease[]): Promise<void>
  /** Will be confirmed when it is configured. */
  added(call: Call, leases: readonly Lease[]): void
  readonly reserve: {
    /** Leases that the attachment got in an outage; null: none. */
    of(owner: CniOwner): readonly Lease[] | null
    /** For use while the service is away; null: it has none that fit. */
    take(call: Call): readonly Lease[] | null
    /** The container is gone: they may be released. */
    giveBack(owner: CniOwner): Promise<void>
    /** Those that containers got. */
    taken(): readonly { readonly owner: CniOwner; readonly addresses: readonly string[] }[]
    readonly free: number
  }
}

const CNI_NETWORK = 'cni.network'

/** @throws CniError */
export async function attend(call: Call, desk: Desk): Promise<Answer> {
  const { command, config } = call
  try {
    const answer = await COMMANDS[command](call, desk)
    // A plugin has no loop: each call delivers what earlier ones left.
    if (desk.agent === null && ['ADD', 'DEL', 'GC'].includes(command))
      await deliver(config.ipam.network, desk).catch(ofTheLedger)
    return answer
  } catch (error) {
    throw error instanceof CallFailed ? spoken(error) : error
  }
}

const COMMANDS: Readonly<Record<Call['command'], (call: Call, desk: Desk) => Promise<Answer>>> = {
  ADD: add,
  DEL: del,
  CHECK: check,
  GC: gc,
  STATUS: status,
}

async function add(call: Call, desk: Desk): Promise<Answer> {
  const owner = call.owner!
  await desk.outbox.withdraw({ network: call.config.ipam.network, owner })
  const { agent } = desk
  const again = agent?.reserve.of(owner) ?? null
  if (again !== null) return addresses(call.config, again)
  let leases: readonly Lease[]
  try {
    leases = await reserve(call, desk, { liveAddresses: agent?.seenLive() ?? [] })
  } catch (error) {
    const taken = isAway(error) ? (agent?.reserve.take(call) ?? null) : null
    if (taken === null) throw error
    return addresses(call.config, taken)
  }
  await agent?.probe(leases)
  agent?.added(call, leases)
  return addresses(call.config, leases)
}

/** Without an agent nobody confirms, so the leases are ACTIVE at once. */
async function reserve(
  { config, owner, claims }: Call,
  { client, node, agent, patienceMs }: Desk,
  more: { readonly liveAddresses?: string[]; readonly validateOnly?: boolean },
): Promise<readonly Lease[]> {
  const request = {
    network: config.ipam.network,
    owner: { ...owner!, node, labels: { [CNI_NETWORK]: config.name } },
    claims: claims.map(({ pools = [], address = '' }) => ({ pools: [...pools], address })),
    confirmed: agent === null,
    ...(more.validateOnly !== true && { requestId: randomUUID() }),
    ...more,
  }
  return (await client.leases.reserve(request, { timeoutMs: patienceMs })).leases
}

/** From here on the address goes back, whatever happens to us: when the main plugin has removed the interface. */
async function del({ config, owner, netns }: Call, desk: Desk): Promise<Answer> {
  desk.outbox.put({ network: config.ipam.network, owner: owner!, netns })
  return NOTHING
}

const NOTHING: Answer = { exitCode: 0, stdout: '' }

function ofTheLedger(error: unknown): void {
  if (!(error instanceof CallFailed)) throw error
}

/**
 * Releases what was parted from and whose interface has no address. A namespace that has no path, or whose path is not known, may
 * be there all the same: then the addresses are looked for in all. One that is refused does not stop the others. Answers how
 * many remain.
 *
 * @throws CallFailed the first failure
 */
export async function deliver(network: string, desk: Desk): Promise<number> {
  if (desk.outbox.all(network).length === 0) return 0
  // Some may be withdrawn while we wait for the lock.
  return await desk.outbox.locked(() => deliverAll(desk.outbox.all(network), desk))
}

async function deliverAll(partings: readonly Parting[], desk: Desk): Promise<number> {
  const places = partings.map(({ netns, owner }) => ({ netns, interface: owner.interface }))
  const configured = await addressesOf(places)
  const gone = partings.filter((_, at) => (configured[at] ?? []).length === 0)
  const hidden = new Set(gone.filter(({ netns }) => netns === '' || namespaceAt(netns) === null))
  const look = hidden.size > 0 ? await lookAround(null) : null
  const isSeen = (address: string) => !look!.complete || look!.seen.some((one) => one.address === address)
  let remaining = partings.length - gone.length
  let failed: unknown
  for (const parting of gone) {
    try {
      if (await release(parting, desk, hidden.has(parting) ? isSeen : null)) desk.outbox.remove(parting)
      else remaining += 1
    } catch (error) {
      ofTheLedger(error)
      failed ??= error
      if (isAway(error)) break
    }
  }
  if (failed !== undefined) throw failed
  return remaining
}

/** Answers false if an address is still seen: then nothing is released. */
async function release(
  { network, owner }: Parting,
  desk: Desk,
  isSeen: ((address: string) => boolean) | null,
): Promise<boolean> {
  const { client, node, patienceMs, agent } = desk
  const options = { timeoutMs: patienceMs }
  const isPod = owner.incarnation !== ''
  const held = isPod && isSeen === null ? [] : await heldBy(owner, network, desk)
  if (
    isSeen !== null &&
    [...held, ...(agent?.reserve.of(owner) ?? [])].some(({ address }) => isSeen(address))
  )
    return false
  await agent?.reserve.giveBack(owner)
  if (isPod) await client.leases.release({ network, owner: { ...owner, node } }, options)
  else for (const { leaseId } of held) await client.leases.release({ leaseId }, options)
  return true
}

/** QUARANTINED ones, too: Release ends what is quarantined for this owner's sake. */
async function heldBy(owner: CniOwner, network: string, desk: Desk): Promise<readonly Lease[]> {
  const filter = { network, ownerKind: owner.kind, ownerUid: owner.uid, node: desk.node }
  const { leases } = await desk.client.leases.listLeases(filter, { timeoutMs: desk.patienceMs })
  return leases.filter(
    ({ owner: one }) => one!.interface === owner.interface && one!.incarnation === owner.incarnation,
  )
}

async function check({ config, owner, netns }: Call, desk: Desk): Promise<Answer> {
  const expected = config.prevResult?.ips?.map(({ address }) => address.split('/')[0]!)
  if (expected === undefined) throw new CniError('configuration', 'prevResult: CHECK needs that of ADD')
  const leases = desk.agent?.reserve.of(owner!) ?? (await heldBy(owner!, config.ipam.network, desk))
  const held = leases.filter(({ state }) => state !== LeaseState.QUARANTINED).map(({ address }) => address)
  const astray = expected.find((address) => !held.includes(address))
  if (astray !== undefined || held.length !== expected.length)
    throw new CniError('notHeld', `prevResult has ${list(expected)}; the attachment holds ${list(held)}`)
  const [configured] = await addressesOf([{ netns, interface: owner!.interface }])
  const missing = expected.filter((address) => !configured?.includes(address))
  if (missing.length > 0)
    throw new CniError(
      'notConfigured',
      `${owner!.interface} in ${netns} has ${list(configured ?? [])}, and not ${list(missing)}`,
    )
  return NOTHING
}

const list = (addresses: readonly string[]) => addresses.join(', ') || 'none'

/**
 * The runtime's list alone frees nothing (antrea#8239): what an interface of this node still has is kept, and so is what was
 * handed out and never confirmed, which ends by its deadline or by proof.
 */
async function gc({ config }: Call, desk: Desk): Promise<Answer> {
  const { client, node, agent } = desk
  const { network } = config.ipam
  const valid = config['cni.dev/valid-attachments']
  if (valid === undefined)
    throw new CniError('configuration', 'cni.dev/valid-attachments: GC needs the list of attachments')
  const names = new Set(valid.map(({ containerID, ifname }) => `${containerID} ${ifname}`))
  const isValid = (owner: CniOwner) => names.has(`${owner.incarnation || owner.uid} ${owner.interface}`)

  const filter = { network, node, labels: { [CNI_NETWORK]: config.name }, states: [LeaseState.ACTIVE] }
  const leases = await Array.fromAsync(allLeases(client, filter))
  const look = await lookAround(null)
  if (!look.complete)
    throw new CniError('tryAgain', 'not every namespace of this node can be read: nothing was released')
  const live = new Set(look.seen.map(({ address }) => address))
  const gone = leases.filter(({ owner, address }) => !isValid(owner as CniOwner) && !live.has(address))
  for (const { leaseId } of gone) await client.leases.release({ leaseId })
  for (const { owner, addresses } of agent?.reserve.taken() ?? [])
    if (!isValid(owner) && !addresses.some((address) => live.has(address)))
      await agent!.reserve.giveBack(owner)
  return NOTHING
}

/** Whether an ADD would succeed now. */
async function status(call: Call, desk: Desk): Promise<Answer> {
  const owner = {
    kind: 'container',
    name: 'status',
    uid: 'status',
    incarnation: '',
    interface: 'eth0',
  } as const
  try {
    await reserve({ ...call, owner }, desk, { validateOnly: true })
    return NOTHING
  } catch (error) {
    if (!(error instanceof CallFailed)) throw error
    const free = desk.agent?.reserve.free ?? 0
    if (!isAway(error) || free === 0) throw new CniError('notAvailable', sentence(error))
    return { ...NOTHING, note: `${sentence(error)}; ${free} addresses are left in this node's reserve` }
  }
}

/** The service gave no final answer: it is down, overloaded or too slow. A refusal is a final answer. */
export function isAway(error: unknown): boolean {
  if (!(error instanceof CallFailed)) return false
  const { reason, code } = error
  if (reason === undefined) return code !== 'invalid_argument' && code !== 'unimplemented'
  return ['DATABASE_UNAVAILABLE', 'OVERLOADED', 'OUTCOME_UNKNOWN', 'DEADLINE_EXCEEDED'].includes(reason)
}

const sentence = ({ reason, message }: CallFailed) =>
  reason === undefined ? `the service cannot be reached: ${message}` : `${reason}: ${message}`

function spoken(error: CallFailed): CniError {
  const again = isAway(error) || error.retryAfterMs !== undefined
  const code = again ? 'tryAgain' : error.reason === 'INVALID_FIELD' ? 'configuration' : 'refused'
  return new CniError(code, sentence(error))
}
