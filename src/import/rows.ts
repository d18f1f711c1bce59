/** What other allocators wrote down, as rows: an address, and whose it is. What can't be read is a row, too, that says why. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parse } from 'csv-parse/sync'
import { parse as parseYaml } from 'yaml'
import { z } from 'zod'
import { attachmentsIn } from '../cni/cache.ts'
import { addressMeant, formatAddress } from '../core/address.ts'

export type Row = {
  /** File and line, or the name of the entry. */
  readonly where: string
  readonly address: string
  readonly owner: {
    readonly kind: string
    readonly name: string
    readonly uid: string
    readonly incarnation?: string
    readonly interface?: string
    readonly node?: string
    readonly labels?: Readonly<Record<string, string>>
  }
}
export type Unreadable = { readonly where: string; readonly unreadable: string }
type Read = readonly (Row | Unreadable)[]

/** Files of a directory that hold no lease. */
const OTHERS = /^(lock|last_reserved_ip\..*)$/

export type HostLocalFile = {
  readonly path: string
  /** Inode and time of the last change, nanoseconds: of this file as it was read. */
  readonly identity: string
  readonly modifiedMs: number
}

/**
 * host-local's directory of one network, on its node: a file for each address with the container's id and, since 0.7.0 of the
 * plugins, the interface in a second line. Pods are known by the runtime's cache, as the plugin knows them.
 */
export function hostLocalRows(
  dir: string,
  { node, cniCache }: { readonly node: string; readonly cniCache: string },
): readonly ((Row & { readonly file: HostLocalFile }) | Unreadable)[] {
  const known = new Map(
    attachmentsIn(cniCache).map(({ container, owner }) => [`${container} ${owner.interface}`, owner]),
  )
  return readdirSync(dir)
    .filter((name) => !OTHERS.test(name))
    .map((name) => {
      const path = join(dir, name)
      if (addressMeant(name) === null)
        return { where: path, unreadable: 'the name of the file is no address' }
      try {
        const { ino, mtimeNs } = statSync(path, { bigint: true })
        const [container = '', on = 'eth0'] = readFileSync(path, 'utf8').trim().split(/\r?\n/)
        if (container === '') return { where: path, unreadable: 'the file is empty' }
        const unknown = { kind: 'container', name: container, uid: container, interface: on }
        const owner = known.get(`${container} ${on}`) ?? unknown
        const labels = { 'cni.network': basename(dir) }
        const file = { path, identity: `${ino} ${mtimeNs}`, modifiedMs: Number(mtimeNs / 1_000_000n) }
        return { where: path, address: name, owner: { ...owner, node, labels }, file }
      } catch (error) {
        return { where: path, unreadable: (error as Error).message }
      }
    })
}

/** `kubectl get ippools.whereabouts.cni.cncf.io -A -o yaml` (or json). */
export function whereaboutsRows(path: string): Read {
  const list = parseYaml(readFileSync(path, 'utf8')) as {
    readonly items?: readonly WhereaboutsPool[]
  } & WhereaboutsPool
  return (list.items ?? [list]).flatMap(({ metadata, spec }) => {
    const from = addressMeant(String(spec?.range ?? '').split('/')[0]!)
    if (from === null)
      return [{ where: `${path}: pool ${metadata?.name}`, unreadable: 'spec.range is no network' }]
    return Object.entries(spec?.allocations ?? {}).map(([offset, { podref, id, ifname }]) => {
      const where = `${path}: pool ${metadata?.name}, allocation ${offset}`
      if (!podref || !id || !/^\d+$/.test(offset)) return { where, unreadable: 'it has no podref or no id' }
      const address = formatAddress({ ...from, value: from.value + BigInt(offset) })
      const owner = { kind: 'pod', name: podref, uid: podref, incarnation: id, interface: ifname || 'eth0' }
      return { where, address, owner }
    })
  })
}

type WhereaboutsPool = {
  readonly metadata?: { readonly name?: string }
  readonly spec?: {
    readonly range?: string
    readonly allocations?: Readonly<
      Record<string, { readonly podref?: string; readonly id?: string; readonly ifname?: string }>
    >
  }
}

/**
 * Kea's lease file, where a later line replaces an earlier one of its address; or its table, as psql and mysql write it with a
 * head. Only leases that are in use (state 0): expired and declined ones are not brought over.
 */
export function keaRows(path: string, now = Date.now()): Read {
  const latest = new Map<string, Row | Unreadable | null>()
  for (const { line, cells } of csvOf(path)) {
    const where = `${path}:${line}`
    const {
      address: said = '',
      state = '0',
      hwaddr,
      duid,
      iaid,
      hostname,
      client_id: client,
      expire = '',
    } = cells
    // The table of IPv4 leases has numbers.
    const address = /^\d+$/.test(said) ? formatAddress({ family: 4, value: BigInt(said) }) : said
    // The tables have times as text; one that can't be read has not come.
    const ends = /^\d+$/.test(expire) ? Number(expire) * 1_000 : Date.parse(expire)
    const isOver = state !== '0' || cells.valid_lifetime === '0' || ends < now
    const uid = duid ? `${duid}/${iaid ?? ''}` : hwaddr || client
    if (isOver) latest.set(address, null)
    else if (!uid) latest.set(address, { where, unreadable: 'it has neither hwaddr, client_id nor duid' })
    else if (cells.lease_type === '2') latest.set(address, { where, unreadable: 'it is a delegated prefix' })
    else {
      const name = hostname ? `${hostname.replace(/\.$/, '')}/${uid}` : uid
      latest.set(address, { where, address, owner: { kind: 'host', name, uid } })
    }
  }
  return [...latest.values()].filter((row) => row !== null)
}

/** The answer of NetBox's API: `/api/ipam/ip-addresses/?limit=0`. */
export function netboxRows(path: string): Read {
  const parsed = JSON.parse(readFileSync(path, 'utf8'))
  const found: readonly NetboxAddress[] = Array.isArray(parsed) ? parsed : parsed.results
  return found.map(({ id, address: cidr, dns_name, assigned_object: to }) => {
    const where = `${path}: ip-address ${id}`
    const address = cidr.split('/')[0]!
    const device = (to?.device ?? to?.virtual_machine)?.name
    // An interface may have several addresses there, so each is an owner of its own.
    const name = `${device || dns_name || 'unassigned'}/${address}`
    return { where, address, owner: { kind: 'device', name, uid: name, interface: to?.name || 'eth0' } }
  })
}

type NetboxAddress = {
  readonly id: number
  readonly address: string
  readonly dns_name?: string
  readonly assigned_object?: {
    readonly name?: string
    readonly device?: { readonly name: string }
    readonly virtual_machine?: { readonly name: string }
  } | null
}

/** What `ipledger export` writes. Only `address`, `kind` and one of `name` and `uid` are needed. */
export function csvRows(path: string): Read {
  return csvOf(path).map(({ line, cells }) => {
    const where = `${path}:${line}`
    const { address = '', kind = '', name = '', uid = '', incarnation, interface: on, node, labels } = cells
    if (address === '' || kind === '' || (name === '' && uid === ''))
      return { where, unreadable: 'it needs address, kind, and name or uid' }
    const read = labels ? labelsOf(labels) : {}
    if (read === null) return { where, unreadable: 'labels: must be a JSON object of texts, or empty' }
    const owner = {
      kind,
      name: name || uid,
      uid: uid || name,
      ...(incarnation && { incarnation }),
      ...(on && { interface: on }),
      ...(node && { node }),
      labels: read,
    }
    return { where, address, owner }
  })
}

function labelsOf(cell: string): Readonly<Record<string, string>> | null {
  try {
    return z.record(z.string(), z.string()).parse(JSON.parse(cell))
  } catch {
    return null
  }
}

type Line = { readonly line: number; readonly cells: Readonly<Record<string, string | undefined>> }

function csvOf(path: string): readonly Line[] {
  const rows: readonly { readonly record: Line['cells']; readonly info: { readonly lines: number } }[] =
    parse(readFileSync(path, 'utf8'), {
      columns: true,
      info: true,
      bom: true,
      skip_empty_lines: true,
      relax_column_count: true,
      trim: true,
    })
  return rows.map(({ record, info }) => ({ line: info.lines, cells: record }))
}
