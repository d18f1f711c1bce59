/**
 * The plugin's commands, run by the node's agent, or by the plugin itself where there is no agent. The ledger knows the leases; this
 * node's namespaces show what is configured. An address is released only when it is no longer configured.
 */
import { randomUUID } from 'node:crypto'
import { allLeases } from '../client/all-leases.ts'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { sameAttachment } from '../core/owner.ts'
import { type Lease, LeaseState } from '../gen/ipledger/v1/types_pb.ts'
import { type Answer, addresses } from './answer.ts'
import type { AttachmentFile, Attachments } from './attachments.ts'
import { type Call, type CniOwner, ownerOf } from './call.ts'
import { CniError } from './cni-error.ts'
import type { Scan } from './namespaces.ts'

/** Where a command runs. */
export type Context = {
  readonly client: IpledgerClient
  /** Empty: not known; then only what ADD wrote down can be released. */
  readonly node: string
  readonly attachments: Attachments
  readonly namespaces: Pick<typeof import('./namespaces.ts'), 'addressesOf' | 'scanNode'>
  /** How long the ledger may take to answer. */
  readonly patienceMs: number
  readonly agent: AgentContext | null
}

export type AgentContext = {
  /** Addresses that this node uses without a lease: as many as Reserve takes. */
  seenLive(): string[]
  /** Probes the link if that is configured, and confirms the leases once they are configured. @throws CniError inUse */
  reserved(call: Call, leases: readonly Lease[]): Promise<void>
  /** Addresses for use while the service is away: the agent's `Spares`. */
  readonly spares: {
    of(owner: CniOwner): readonly Lease[] | null
    take(call: Call): Promise<readonly Lease[] | null>
    forget(attachment: Pick<AttachmentFile, 'network' | 'owner'>): void
    readonly free: number
  }
}

const CNI_NETWORK = 'cni.network'

/** @throws CniError */
export async function runCommand(call: Call, context: Context): Promise<Answer> {
  const { command, config } = call
  try {
    const answer = await COMMANDS[command](call, context)
    // A plugin has no loop: each call delivers what earlier ones left.
    if (context.agent === null && ['ADD', 'DEL', 'GC'].includes(command))
      await deliver(config.ipam.network, context).catch((error: unknown) => {
        if (!(error instanceof CallFailed)) throw error
      })
    return answer
  } catch (error) {
    throw error instanceof CallFailed ? toCniError(error) : error
  }
}

const COMMANDS = { ADD: add, DEL: del, CHECK: check, GC: gc, STATUS: status }

async function add(call: Call, context: Context): Promise<Answer> {
  const { attachments, agent } = context
  const called = { ...calledOf(call), node: nodeOf(context) }
  await attachments.withdraw(called)
  let leases = agent?.spares.of(called.owner)
  if (!leases)
    try {
      leases = await reserve(call, context)
      await agent?.reserved(call, leases)
    } catch (error) {
      leases = isAway(error) ? await agent?.spares.take(call) : null
      if (!leases) throw error
    }
  attachments.added(called, leases)
  return addresses(call.config, leases)
}

/** Without an agent no Confirm follows, so the leases are ACTIVE at once. */
async function reserve({ config, owner, claims }: Call, context: Context, validateOnly = false) {
  const { client, agent, patienceMs } = context
  const request = {
    network: config.ipam.network,
    owner: { ...owner!, node: nodeOf(context), labels: { [CNI_NETWORK]: config.name } },
    claims: claims.map(({ pools = [], address = '' }) => ({ pools: [...pools], address })),
    confirmed: agent === null,
    validateOnly,
    requestId: randomUUID(),
    liveAddresses: agent?.seenLive() ?? [],
  }
  return (await client.leases.reserve(request, { timeoutMs: patienceMs })).leases
}

/** The address is released later: once the main plugin has removed the interface. */
async function del(call: Call, { attachments, node }: Context): Promise<Answer> {
  attachments.removed({ ...calledOf(call), node })
  return NOTHING
}

const NOTHING: Answer = { exitCode: 0, stdout: '' }

const calledOf = ({ config, owner, netns }: Call) => ({
  network: config.ipam.network,
  configuration: config.name,
  owner: owner!,
  netns,
})

/** From the agent or the configuration, never the host's name, which may be another. @throws CniError */
function nodeOf({ node }: Pick<Context, 'node'>, file?: AttachmentFile | null): string {
  const known = node || file?.node
  if (known) return known
  throw new CniError('configuration', 'ipam.node: must name this node as the token does: no agent listens')
}

/**
 * Releases the attachments that DEL was called for, of this network or of all (null), once nothing on the node has their addresses.
 * The interface is checked first, then every namespace: the attachment's own may have another path by now, and its path may be of
 * another. One whose namespace cannot be read may be configured, and remains. One that the service refuses is set aside. Answers how
 * many remain.
 *
 * @throws CallFailed the service gave no final answer: at once if it would give none to another either, else after the others
 */
export const deliver = (network: string | null, context: Context): Promise<number> =>
  context.attachments.locked(() => deliverAll(network, context))

async function deliverAll(network: string | null, context: Context): Promise<number> {
  const { attachments, namespaces } = context
  const pending = attachments.files('removed', network)
  if (pending.length === 0) return 0
  const interfaces = pending.map(({ netns, owner }) => ({ netns, interface: owner.interface }))
  const configured = await namespaces.addressesOf(interfaces)
  let scanned: Promise<Scan> | undefined
  const scan = () => (scanned ??= namespaces.scanNode(null))
  let remaining = 0
  let undecided: CallFailed | undefined
  for (const [at, file] of pending.entries()) {
    try {
      const found = configured[at]!
      if (found === null) attachments.waits(file, `${file.netns} cannot be read`)
      const isThere = found === null || file.leases.some(({ address }) => found.includes(address))
      const held = isThere ? [] : await heldBy(file, context)
      if (isThere || isSeen([...file.leases, ...held], await scan())) remaining += 1
      else await release(file, held, context)
    } catch (error) {
      if (isForLater(error)) throw error
      if (!(error instanceof CallFailed)) attachments.setAside(file, (error as Error).message)
      else if (error.reason !== undefined) attachments.setAside(file, sentence(error))
      // No refusal: the service has a defect, or something else answered. In a moment it may work.
      else undecided = error
    }
  }
  if (undecided !== undefined) throw undecided
  return remaining
}

/** A namespace has one of them, or may have one. */
const isSeen = (held: readonly { readonly address: string }[], { complete, all: used }: Scan) =>
  !complete || held.some(({ address }) => used.has(address))

/** The leases that ADD answered, on any node; then all that the attachment holds on this node. @throws CallFailed */
async function release(file: AttachmentFile, held: readonly Lease[], context: Context): Promise<void> {
  const { client, patienceMs, agent, attachments } = context
  const { network, owner } = file
  const attachment = { network, owner: { ...owner, node: nodeOf(context, file) } }
  const byId = held.map(({ leaseId }) => ({ leaseId }))
  const calls = [
    ...file.leases.map(({ leaseId, owner: holder }) => ({ leaseId, owner: holder })),
    ...(owner.incarnation === '' ? byId : [attachment]),
  ]
  const end = (call: (typeof calls)[number]) => client.leases.release(call, { timeoutMs: patienceMs })
  await all(calls.map((call) => () => end(call).catch(unlessEnded)))
  agent?.spares.forget(file)
  attachments.delivered(file)
}

/** Each, though another is refused. @throws CallFailed the first refusal; at once if the service gave no final answer */
async function all(calls: readonly (() => Promise<unknown>)[]): Promise<void> {
  const refused: unknown[] = []
  for (const call of calls)
    await call().catch((error: unknown) => {
      if (isForLater(error)) throw error
      refused.push(error)
    })
  if (refused.length > 0) throw refused[0]
}

/** QUARANTINED ones, too: Release ends some quarantines. */
async function heldBy(file: AttachmentFile, context: Context): Promise<readonly Lease[]> {
  const { network, owner } = file
  const filter = { network, ownerKind: owner.kind, ownerUid: owner.uid, node: nodeOf(context, file) }
  const { leases } = await context.client.leases.listLeases(filter, { timeoutMs: context.patienceMs })
  return leases.filter((one) => sameAttachment(one.owner!, owner))
}

async function check(call: Call, { client, attachments, namespaces, patienceMs }: Context): Promise<Answer> {
  const { network, owner, netns } = calledOf(call)
  const expected = call.config.prevResult?.ips?.map(({ address }) => address.split('/')[0]!)
  if (expected === undefined) throw new CniError('configuration', 'prevResult: CHECK needs that of ADD')
  // The owner of a spare address that is not adopted yet is known to ADD only.
  const answered = new Set(attachments.of({ network, owner })?.leases.map(({ leaseId }) => leaseId))
  for (const address of expected) {
    const found = client.leases.getLease({ network, address }, { timeoutMs: patienceMs })
    const { lease } = (await found.catch(unlessEnded)) ?? {}
    const isOwn = answered.has(lease?.leaseId ?? '') || (lease?.owner && sameAttachment(lease.owner, owner))
    if (!isOwn || lease?.state === LeaseState.QUARANTINED)
      throw new CniError('notHeld', `prevResult has ${address}, which the attachment does not hold`)
  }
  const [configured] = await namespaces.addressesOf([{ netns, interface: owner.interface }])
  const missing = expected.filter((address) => !configured?.includes(address))
  if (missing.length > 0)
    throw new CniError(
      'notConfigured',
      `${owner.interface} in ${netns} has ${list(configured ?? [])}, and not ${list(missing)}`,
    )
  return NOTHING
}

const list = (addresses: readonly string[]) => addresses.join(', ') || 'none'

/**
 * The runtime's list alone frees nothing (antrea#8239): addresses that an interface of this node still has are kept. So are leases
 * without a file that were never confirmed: they end by their deadline or by proof.
 *
 * @throws CallFailed the first refusal, after all others were released
 */
async function gc({ config }: Call, context: Context): Promise<Answer> {
  const { client, attachments, namespaces } = context
  const { network } = config.ipam
  const valid = config['cni.dev/valid-attachments']
  if (valid === undefined)
    throw new CniError('configuration', 'cni.dev/valid-attachments: GC needs the list of attachments')
  const names = new Set(valid.map(({ containerID, ifname }) => `${containerID} ${ifname}`))

  const files = attachments
    .files('inUse', network)
    .filter(({ configuration }) => configuration === config.name)
  const labels = { [CNI_NETWORK]: config.name }
  const filter = { network, node: nodeOf(context), labels, states: [LeaseState.ACTIVE] }
  const leases = await Array.fromAsync(allLeases(client, filter))
  const scan = await namespaces.scanNode(null)
  if (!scan.complete)
    throw new CniError('tryAgain', 'not every namespace of this node can be read: nothing was released')
  const isGone = (owner: CniOwner, held: readonly { readonly address: string }[]) =>
    !names.has(`${owner.incarnation || owner.uid} ${owner.interface}`) && !isSeen(held, scan)
  const released = files.filter((one) => isGone(one.owner, one.leases))
  for (const one of released) attachments.removed(one)
  const gone = leases.filter((one) => isGone(one.owner as CniOwner, [one]))
  const end = async ({ leaseId }: Lease) => void (await client.leases.release({ leaseId }))
  await attachments.locked(() =>
    all([
      ...released.map((one) => async () => release(one, await heldBy(one, context), context)),
      ...gone.map((one) => () => end(one)),
    ]),
  )
  return NOTHING
}

/** Whether an ADD would succeed now. */
async function status(call: Call, context: Context): Promise<Answer> {
  const owner = ownerOf({ CNI_CONTAINERID: 'status', CNI_IFNAME: 'eth0' }, new Map())
  const { attachments, agent } = context
  const aside = attachments.countAside
  const note = aside === 0 ? '' : `${aside} releases are set aside on this node; its log says why`
  try {
    await reserve({ ...call, owner }, context, true)
    return { ...NOTHING, note }
  } catch (error) {
    if (!(error instanceof CallFailed)) throw error
    const free = agent?.spares.free ?? 0
    if (!isAway(error) || free === 0) throw new CniError('notAvailable', sentence(error))
    const left = `${free} addresses are left of this node's spares. ${note}`
    return { ...NOTHING, note: `${sentence(error)}; ${left}` }
  }
}

/** ADD has no final answer: the service is down, overloaded, too slow or broken. A refusal is a final answer. */
export function isAway(error: unknown): boolean {
  if (!(error instanceof CallFailed)) return false
  const { reason, code } = error
  if (reason === undefined) return code !== 'invalid_argument' && code !== 'unimplemented'
  return ['DATABASE_UNAVAILABLE', 'OVERLOADED', 'OUTCOME_UNKNOWN', 'DEADLINE_EXCEEDED'].includes(reason)
}

const LATER = /^(unavailable|deadline_exceeded|canceled|resource_exhausted|aborted|unauthenticated)$/

/** No other call would be taken now either. A cause with a code is an error of the connection: the service did not answer. */
export const isForLater = (error: unknown) =>
  error instanceof CallFailed && (LATER.test(error.code) || 'code' in Object((error.cause as Error).cause))

/**
 * This owner has no such lease, so nothing is left to release. Not so for one beyond the log's head: the database may be an older
 * copy. @throws any other error
 */
function unlessEnded(error: unknown): undefined {
  const { reason = '', metadata = {} } = error as Partial<CallFailed>
  const isEnded = ['LEASE_LOST', 'LEASE_NOT_FOUND', 'ILLEGAL_STATE'].includes(reason)
  if (!isEnded || metadata.beyondHead !== undefined) throw error
}

const sentence = ({ reason, message }: CallFailed) =>
  reason === undefined ? `the service cannot be reached: ${message}` : `${reason}: ${message}`

function toCniError(error: CallFailed): CniError {
  const again = isAway(error) || error.retryAfterMs !== undefined
  const code = again ? 'tryAgain' : error.reason === 'INVALID_FIELD' ? 'configuration' : 'refused'
  return new CniError(code, sentence(error))
}
