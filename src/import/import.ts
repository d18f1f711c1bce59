/**
 * Brings rows into the ledger, as ordinary leases: ACTIVE at once, made by whoever imports. Nothing is overwritten: what
 * somebody else holds is a conflict for people. A second run finds its leases and changes nothing.
 */
import { allLeases } from '../client/all-leases.ts'
import { CallFailed } from '../client/call-failed.ts'
import type { IpledgerClient } from '../client/client.ts'
import { addressMeant, formatAddress } from '../core/address.ts'
import { sameAttachment } from '../core/owner.ts'
import { type Lease, LeaseStateSchema } from '../gen/ipledger/v1/types_pb.ts'
import type { Row, Unreadable } from './rows.ts'

export type Finding = {
  readonly where: string
  readonly address: string
  /** `new`: it would be, or was, imported. */
  readonly outcome: 'new' | 'held' | 'conflict' | 'refused' | 'unreadable'
  readonly why: string
}

const AT_ONCE = 500

/** Looks at every row; imports those that are new, if told to. @throws CallFailed */
export async function importRows(
  client: IpledgerClient,
  network: string,
  rows: readonly (Row | Unreadable)[],
  { apply }: { readonly apply: boolean },
): Promise<readonly Finding[]> {
  const held = new Map<string, Lease>()
  for await (const lease of allLeases(client, { network })) held.set(lease.address, lease)
  const findings: Finding[] = []
  const wanted: Row[] = []
  const first = new Map<string, string>()
  for (const row of rows) {
    const told = (outcome: Finding['outcome'], why: string, address = '') =>
      void findings.push({ where: row.where, address, outcome, why })
    if ('unreadable' in row) {
      told('unreadable', row.unreadable)
      continue
    }
    const meant = addressMeant(row.address)
    if (meant === null) {
      told('unreadable', `"${row.address}" is no address`)
      continue
    }
    const address = formatAddress(meant)
    const before = first.get(address)
    const lease = held.get(address)
    first.set(address, row.where)
    if (before !== undefined) told('conflict', `also in ${before}`, address)
    else if (lease === undefined) wanted.push({ ...row, address })
    else if (lease.owner !== undefined && sameAttachment(lease.owner, filled(row)))
      told('held', lease.leaseId, address)
    else told('conflict', `${lease.leaseId} is held by ${nameOf(lease)}`, address)
  }
  for (let from = 0; from < wanted.length; from += AT_ONCE) {
    const some = wanted.slice(from, from + AT_ONCE)
    const results = await (apply ? reserved(client, network, some) : tried(client, network, some))
    for (const [at, { where, address }] of some.entries()) {
      const why = results[at]!
      findings.push({ where, address, outcome: why === '' ? 'new' : 'refused', why })
    }
  }
  return findings
}

export const filled = ({ owner }: Row) => ({
  ...owner,
  incarnation: owner.incarnation ?? '',
  interface: owner.interface ?? 'eth0',
})

const nameOf = ({ owner }: Lease) =>
  owner === undefined ? 'nobody: it is quarantined' : `${owner.kind} ${owner.name}`

const requestOf = (network: string, row: Row) => ({
  network,
  owner: { ...filled(row), labels: { ...row.owner.labels } },
  claims: [{ address: row.address }],
  confirmed: true,
})

/** Why each was refused; empty: it was not. */
async function reserved(client: IpledgerClient, network: string, rows: readonly Row[]): Promise<string[]> {
  const requests = rows.map((row) => requestOf(network, row))
  const { results } = await client.leases.batchReserve({ network, requests })
  return results.map(({ result }) =>
    result.case === 'error' ? `${result.value.reason}: ${result.value.message}` : '',
  )
}

async function tried(client: IpledgerClient, network: string, rows: readonly Row[]): Promise<string[]> {
  const one = async (row: Row) => {
    try {
      await client.leases.reserve({ ...requestOf(network, row), validateOnly: true })
      return ''
    } catch (error) {
      if (!(error instanceof CallFailed) || error.reason === undefined) throw error
      return `${error.reason}: ${error.message}`
    }
  }
  const results: string[] = []
  for (let from = 0; from < rows.length; from += 16)
    results.push(...(await Promise.all(rows.slice(from, from + 16).map(one))))
  return results
}

/** Held leases as CSV, with a head. Reads again by `import csv`. */
export async function* exportLines(client: IpledgerClient, network: string): AsyncGenerator<string> {
  yield 'address,kind,name,uid,incarnation,interface,node,labels,pool,state,lease'
  for await (const { address, owner, pool, state, leaseId } of allLeases(client, { network })) {
    const labels = Object.keys(owner?.labels ?? {}).length > 0 ? JSON.stringify(owner!.labels) : ''
    const { kind = '', name = '', uid = '', incarnation = '', interface: on = '', node = '' } = owner ?? {}
    const is = LeaseStateSchema.value[state]!.name
    const cells = [address, kind, name, uid, incarnation, on, node, labels, pool, is, leaseId]
    yield cells.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(',')
  }
}
