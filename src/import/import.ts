/**
 * Brings rows into the ledger as ordinary leases, ACTIVE at once. Nothing is overwritten: an address that another owner holds is
 * a conflict for people. A second run finds its leases and changes nothing. `exportLines` is the way back: leases as CSV.
 */
import { allLeases } from '../client/all-leases.ts'
import type { IpledgerClient } from '../client/client.ts'
import { formatAddress, parseLenientAddress } from '../core/address.ts'
import { sameAttachment } from '../core/owner.ts'
import { type Lease, LeaseStateSchema } from '../gen/ipledger/v1/types_pb.ts'
import { type LeftOut, leftOut, type Row } from './rows.ts'

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
  const firsts = new Map<string, string>()
  const checked = rows.map((row) => ('outcome' in row ? row : check(row, held, firsts)))
  const findings: Finding[] = checked.filter((one) => 'outcome' in one)
  const wanted = checked.filter((one) => 'owner' in one)
  let done = 0
  const batches = batchesOf(wanted)
  const lanes = Array.from({ length: IN_FLIGHT }, async () => {
    for (const batch of batches) {
      const requests = batch.map((row) => {
        const owner = { ...filled(row), labels: { ...row.owner.labels } }
        return { network, owner, claims: [{ address: row.address }], confirmed: true }
      })
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

type Sized = Row & { readonly size: number }

/** A row that is to be sent, or the finding that needs no server. `firsts`: where each address was seen first. */
function check(row: Row, held: ReadonlyMap<string, Lease>, firsts: Map<string, string>): Finding | Sized {
  const { where } = row
  const parsed = parseLenientAddress(row.address)
  if (parsed === null) return leftOut(where, 'unreadable', `"${row.address}" is no address`)
  const address = formatAddress(parsed)
  const found = (outcome: Finding['outcome'], why: string) => ({ where, address, outcome, why })
  const before = firsts.get(address)
  firsts.set(address, where)
  if (before !== undefined) return found('conflict', `also in ${before}`)
  // Without the names of the fields, 150 characters.
  const size = JSON.stringify(row).length + 150
  if (size > MOST_CHARACTERS_OF_A_ROW)
    return found('unreadable', `it has more than ${MOST_CHARACTERS_OF_A_ROW} characters`)
  // Names that differ only in bytes that cannot be read would be one owner.
  if (JSON.stringify(row.owner).includes('\ufffd')) return found('unreadable', 'it is not UTF-8')
  const lease = held.get(address)
  if (lease === undefined) return { ...row, address, size }
  const { owner, leaseId } = lease
  if (owner === undefined) return found('conflict', `${leaseId} is held by nobody: it is quarantined`)
  return sameAttachment(owner, filled(row))
    ? found('held', leaseId)
    : found('conflict', `${leaseId} is held by ${owner.kind} ${owner.name}`)
}

const fit = (rows: readonly Sized[]) =>
  rows.length <= MOST_ROWS && rows.reduce((sum, { size }) => sum + size, 0) <= MOST_CHARACTERS

/** Rows of one name share a batch, as far as it holds them, so that each is decided after the earlier ones. */
function* batchesOf(rows: readonly Sized[]): Generator<readonly Sized[]> {
  let batch: Sized[] = []
  for (const group of Map.groupBy(rows, ({ owner }) => JSON.stringify([owner.kind, owner.name])).values())
    for (const [at, row] of group.entries()) {
      if (batch.length > 0 && !fit([...batch, ...(at === 0 ? group : [row])])) {
        yield batch
        batch = []
      }
      batch.push(row)
    }
  if (batch.length > 0) yield batch
}

export const filled = ({ owner }: Row) => ({
  ...owner,
  incarnation: owner.incarnation ?? '',
  interface: owner.interface || 'eth0',
  node: owner.node ?? '',
})

const COLUMNS = 'address,kind,name,uid,incarnation,interface,node,labels,pool,state,lease'

/** Held leases as CSV, with a head. `import csv` reads it. */
export async function* exportLines(client: IpledgerClient, network: string): AsyncGenerator<string> {
  yield COLUMNS
  for await (const { leaseId: lease, address, pool, state, owner } of allLeases(client, { network })) {
    const labels = Object.keys(owner?.labels ?? {}).length > 0 ? JSON.stringify(owner!.labels) : ''
    const about = { ...owner, address, labels, pool, state: LeaseStateSchema.value[state]!.name, lease }
    const cells = COLUMNS.split(',').map((column) => String(about[column as keyof typeof about] ?? ''))
    yield cells.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(',')
  }
}
