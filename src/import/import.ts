/**
 * Brings rows into the ledger, as ordinary leases: ACTIVE at once, made by whoever imports. Nothing is overwritten: what
 * somebody else holds is a conflict for people. A second run finds its leases and changes nothing.
 */
import { allLeases } from '../client/all-leases.ts'
import type { IpledgerClient } from '../client/client.ts'
import { formatAddress, parseLenientAddress } from '../core/address.ts'
import { sameAttachment } from '../core/owner.ts'
import { type Lease, LeaseStateSchema } from '../gen/ipledger/v1/types_pb.ts'
import type { LeftOut, Row } from './rows.ts'

export type Finding = {
  readonly where: string
  readonly address: string
  /** `new`: it would be, or was, imported. */
  readonly outcome: 'new' | 'held' | 'conflict' | 'refused' | LeftOut['outcome']
  readonly why: string
}

/** A request has at most 512 KiB, and a character of JSON at most three bytes. */
const MOST_ROWS = 500
const MOST_CHARACTERS = 128 * 1024
const MOST_CHARACTERS_OF_A_ROW = 64 * 1024
/** On one machine 2 do what 4 do, and 1 takes a quarter longer; more of them hide the delay of a network. */
const IN_FLIGHT = 4

export async function importRows(
  client: IpledgerClient,
  network: string,
  rows: readonly (Row | LeftOut)[],
  { apply, progress }: { readonly apply: boolean; readonly progress?: (done: number, all: number) => void },
): Promise<readonly Finding[]> {
  const held = new Map<string, Lease>()
  for await (const lease of allLeases(client, { network })) held.set(lease.address, lease)
  const findings: Finding[] = []
  const wanted: Row[] = []
  const first = new Map<string, string>()
  for (const row of rows) {
    const found = (outcome: Finding['outcome'], why: string, address = '') =>
      void findings.push({ where: row.where, address, outcome, why })
    if ('outcome' in row) {
      findings.push(row)
      continue
    }
    const parsed = parseLenientAddress(row.address)
    if (parsed === null) {
      found('unreadable', `"${row.address}" is no address`)
      continue
    }
    const address = formatAddress(parsed)
    const before = first.get(address)
    const lease = held.get(address)
    first.set(address, row.where)
    if (before !== undefined) found('conflict', `also in ${before}`, address)
    else if (sizeOf(row) > MOST_CHARACTERS_OF_A_ROW)
      found('unreadable', `it has more than ${MOST_CHARACTERS_OF_A_ROW} characters`, address)
    // Names that differ only in bytes that cannot be read would be one owner.
    else if (JSON.stringify(row.owner).includes('\ufffd')) found('unreadable', 'it is not UTF-8', address)
    else if (lease === undefined) wanted.push({ ...row, address })
    else if (lease.owner !== undefined && sameAttachment(lease.owner, filled(row)))
      found('held', lease.leaseId, address)
    else found('conflict', `${lease.leaseId} is held by ${nameOf(lease)}`, address)
  }
  let done = 0
  const batches = batchesOf(wanted)
  const lanes = Array.from({ length: IN_FLIGHT }, async () => {
    for (const batch of batches) {
      const requests = batch.map((row) => requestOf(network, row))
      const { results } = await client.leases.batchReserve({ network, requests, validateOnly: !apply })
      for (const [at, { where, address }] of batch.entries()) {
        const { result } = results[at]!
        const why = result.case === 'error' ? `${result.value.reason}: ${result.value.message}` : ''
        findings.push({ where, address, outcome: why === '' ? 'new' : 'refused', why })
      }
      done += batch.length
      progress?.(done, wanted.length)
    }
  })
  // The first failure ends the generator, and with it the other lanes.
  for (const end of await Promise.allSettled(lanes)) if (end.status === 'rejected') throw end.reason
  return findings
}

/** Rows of one name share a batch, as far as it holds them, so that each is decided after the earlier ones. */
function* batchesOf(rows: readonly Row[]): Generator<readonly Row[]> {
  let batch: Row[] = []
  let size = 0
  const groups = Map.groupBy(rows, ({ owner }) => JSON.stringify([owner.kind, owner.name]))
  for (const group of groups.values()) {
    const sizes = group.map(sizeOf)
    const isLong = (more: number, by: number) =>
      batch.length + more > MOST_ROWS || size + by > MOST_CHARACTERS
    const whole = sizes.reduce((sum, one) => sum + one, 0)
    for (const [at, row] of group.entries()) {
      const isCut = at === 0 ? isLong(group.length, whole) : isLong(1, sizes[at]!)
      if (isCut && batch.length > 0) {
        yield batch
        batch = []
        size = 0
      }
      batch.push(row)
      size += sizes[at]!
    }
  }
  if (batch.length > 0) yield batch
}

/** Without the names of the fields, 150 characters. */
const sizeOf = (row: Row) => JSON.stringify(row).length + 150

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
