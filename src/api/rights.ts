/**
 * Rights of callers. A token has one role, may be limited to networks, and may be bound to a node. Each method declares its
 * roles. The network is checked for every call, for lease ids too (`scoped`). The node is checked where a request names one, where a
 * lease is placed (by the core, which gets it as `Actor.node`), and of the source that reports (`mayReport`).
 */
import type { SourceDeclaration } from '../core/event.ts'
import { type Refusal, refusal } from '../core/refusal.ts'
import { type Refused, refused } from './codec/errors.ts'

export type Role = 'admin' | 'orchestrator' | 'agent' | 'auditor'
export const ROLES: readonly Role[] = ['admin', 'orchestrator', 'agent', 'auditor']

/** A token of the file, or every caller on the loopback interface when there is no file. */
export type Caller = {
  /** Goes into the log as the actor. */
  readonly name: string
  readonly role: Role
  /** Null: every network. */
  readonly networks: ReadonlySet<string> | null
  readonly node: string | null
}

export const ADMINS: ReadonlySet<Role> = new Set<Role>(['admin'])
export const READERS: ReadonlySet<Role> = new Set<Role>(['admin', 'orchestrator', 'auditor'])
export const LEASE_READERS: ReadonlySet<Role> = new Set<Role>(['admin', 'orchestrator', 'agent', 'auditor'])
export const HOLDERS: ReadonlySet<Role> = new Set<Role>(['admin', 'orchestrator', 'agent'])
export const ORCHESTRATORS: ReadonlySet<Role> = new Set<Role>(['admin', 'orchestrator'])

export function checkRole(caller: Caller, allowed: ReadonlySet<Role>, method: string): void {
  if (allowed.has(caller.role)) return
  throw denied(`${method} is not a right of role ${caller.role}; it takes ${[...allowed].join(' or ')}`, {
    method,
    role: caller.role,
  })
}

export function checkNetwork(caller: Caller, network: string): void {
  if (caller.networks === null || caller.networks.has(network)) return
  throw denied(`token ${caller.name} is limited to other networks than ${network}`, { network })
}

/** For what is not of one network. */
export function checkAllNetworks(caller: Caller, why: string): void {
  if (caller.networks === null) return
  throw denied(`token ${caller.name} is limited to some networks, and ${why}`, {})
}

export function checkNode(caller: Caller, node: string): void {
  if (caller.node === null || node === '' || node === caller.node) return
  throw denied(`token ${caller.name} is bound to node ${caller.node}, not ${node}`, { node: caller.node })
}

export function checkReadableNode(caller: Caller, node: string): void {
  if (caller.role !== 'agent' || node === caller.node) return
  throw denied(`token ${caller.name} reads only leases of node ${caller.node}`, { node: caller.node! })
}

/** The node whose leases are listed or watched; empty: all. Of an agent that names none, its own. */
export function readableNode(caller: Caller, node: string): string {
  const named = node || (caller.role === 'agent' ? caller.node! : '')
  checkReadableNode(caller, named)
  return named
}

/**
 * Only a node's own agent, or an admin, reports for a source of that node; an orchestrator for sources that see the whole
 * network. Another could close its epoch, or make the node look empty.
 */
export function mayReport({ name, role, node }: Caller) {
  return (source: Pick<SourceDeclaration, 'id' | 'node'>): Refusal | null => {
    const isOwn = node === null ? role === 'admin' || source.node === '' : source.node === node
    if (isOwn && !(role === 'orchestrator' && source.node !== '')) return null
    const sees = source.node === '' ? 'the whole network' : `node ${source.node}`
    return refusal(
      'SOURCE_MISMATCH',
      `source ${source.id} sees ${sees}; token ${name}, of ${node === null ? `role ${role}` : `node ${node}`}, may not report for it`,
      { source: source.id, ...(node !== null && { node }) },
    )
  }
}

function denied(message: string, metadata: Readonly<Record<string, string>>): Refused {
  return refused('PERMISSION_DENIED', message, metadata)
}
