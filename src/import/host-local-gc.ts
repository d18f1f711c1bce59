/**
 * Removes host-local's leaked files (antrea#5660), by the evidence of ipledger's sources and never by a list of its own
 * (antrea#8239: that removed addresses that pods still used). A directory's files are leases like all others; when such a lease
 * has ended, by Release or by proof, its file is a leak. It is removed under host-local's lock, and only if it has not changed.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { IpledgerClient } from '../client/client.ts'
import { scanNode } from '../cni/namespaces.ts'
import { sameAttachment } from '../core/owner.ts'
import { type Finding, filled, importRows } from './import.ts'
import { type HostLocalFile, hostLocalRows, type Row } from './rows.ts'

const run = promisify(execFile)

export type Swept = Readonly<{ path: string; outcome: 'removed' | 'kept' | 'failed'; why: string }>
export type SweepOptions = Readonly<{ network: string; node: string; cniCache: string; apply: boolean }>

const LOCKED = 4
const CHANGED = 3
const REMOVE = `[ "$(stat -c %i -- "$1") $(date -r "$1" +%s%N)" = "$2" ] || exit ${CHANGED}; rm -- "$1"`

const SEEN = 'a namespace of this node has the address'

/** The outcome of each file, with the reason. A file that fails does not stop the sweep. @throws CallFailed */
export async function sweepHostLocal(
  client: IpledgerClient,
  dir: string,
  { network, node, cniCache, apply }: SweepOptions,
): Promise<{ readonly swept: readonly Swept[]; readonly imported: readonly Finding[] }> {
  const rows = hostLocalRows(dir, { node, cniCache })
  const files = rows.filter((row) => 'file' in row)
  const ends = new Map<object, string>()
  for (const row of files) {
    const end = await endOf(client, network, row)
    if (end !== null) ends.set(row, end)
  }
  const imported = await importRows(
    client,
    network,
    rows.filter((row) => !ends.has(row)),
    { apply },
  )
  const findings = new Map(imported.map((finding) => [finding.where, finding]))
  const { seen, complete } = await scanNode(null)
  const live = new Set(seen.map(({ address }) => address))
  const swept: Swept[] = []
  for (const row of files) {
    const { path } = row.file
    const end = ends.get(row)
    if (live.has(row.address)) swept.push({ path, outcome: 'kept', why: SEEN })
    else if (end === undefined)
      swept.push({ path, outcome: 'kept', why: await whyHeld(client, network, findings.get(row.where)!) })
    else if (!complete)
      swept.push({ path, outcome: 'kept', why: 'not every namespace of this node can be read' })
    else swept.push(apply ? await removed(dir, row.file, end) : { path, outcome: 'removed', why: end })
  }
  return { swept, imported }
}

/** Why the lease at a file's address is not taken back. */
async function whyHeld(client: IpledgerClient, network: string, found: Finding): Promise<string> {
  if (found.outcome !== 'held' && found.outcome !== 'new') return found.why
  const { findings } = await client.liveness.reconcile({ network, address: found.address, kept: true })
  const [finding] = findings
  if (finding === undefined) return 'it has no lease yet'
  const reasons = finding.because.map(({ text }) => text).join('; ')
  return `${finding.lease!.leaseId} is held: ${reasons || 'its absence is proven, so it is taken back soon'}`
}

/** How the lease of this file ended; null: it is held, never was, or ended before the file was written. */
async function endOf(
  client: IpledgerClient,
  network: string,
  row: Row & { readonly file: HostLocalFile },
): Promise<string | null> {
  const types = ['lease.reserved', 'lease.adopted', 'lease.released', 'lease.reaped', 'lease.quarantined']
  const filter = { network, address: row.address, types, descending: true, pageSize: 100 }
  const { events } = await client.audit.listEvents(filter)
  const last = events.find(({ lease }) => lease?.owner && sameAttachment(lease.owner, filled(row)))
  if (last === undefined || !['lease.released', 'lease.reaped'].includes(last.type)) return null
  return timestampMs(last.time!) < row.file.modifiedMs
    ? null
    : `${last.lease!.leaseId} was ${last.type.slice(6)}, event ${last.seq}`
}

async function removed(dir: string, file: HostLocalFile, why: string): Promise<Swept> {
  const { path, identity } = file
  const options = ['--timeout', '10', '--conflict-exit-code', String(LOCKED), join(dir, 'lock')]
  try {
    await run('flock', [...options, 'sh', '-c', REMOVE, 'sh', path, identity])
    return { path, outcome: 'removed', why }
  } catch (error) {
    const { code, stderr } = error as Error & { readonly code?: number; readonly stderr?: string }
    if (code === CHANGED) return { path, outcome: 'kept', why: 'it was changed meanwhile' }
    if (code === LOCKED) return { path, outcome: 'failed', why: "host-local's lock is held" }
    return { path, outcome: 'failed', why: stderr?.trim() || String(error) }
  }
}
