/** Files of other allocators, as rows of address and owner. An entry that can't be read is a row, too, with the reason. */
import { readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parse as parseYaml } from 'yaml'
import { z } from 'zod'
import { attachmentsIn } from '../cni/cache.ts'
import { formatValue, isMalformed, parseCidr, parseLenientAddress } from '../core/address.ts'
import { csvLines, textOf } from './file.ts'

export type Row = {
  /** File and line, or the name of the entry. */
  readonly where: string
  readonly address: string
  readonly owner: {
    readonly kind: string
    readonly name: string
    readonly uid: string
    readonly incarnation?: string | undefined
    readonly interface?: string | undefined
    readonly node?: string | undefined
    readonly labels?: Readonly<Record<string, string>>
  }
}
/** An entry that is not imported: it has ended or been declined there, or can't be read. */
export type LeftOut = {
  readonly where: string
  readonly address: string
  readonly outcome: 'ended' | 'declined' | 'unreadable'
  readonly why: string
}
export type Read = readonly (Row | LeftOut)[]

export function leftOut(where: string, outcome: LeftOut['outcome'], why: string, address = ''): LeftOut {
  return { where, address, outcome, why }
}
const unreadable = (where: string, why: string) => leftOut(where, 'unreadable', why)

/** The faults of an entry, in one line. */
export const faultOf = ({ issues }: z.ZodError): string =>
  issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ')

const MOST_BYTES_OF_A_LEASE = 4_096
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
): readonly ((Row & { readonly file: HostLocalFile }) | LeftOut)[] {
  const known = new Map(
    attachmentsIn(cniCache).map(({ container, owner }) => [`${container} ${owner.interface}`, owner]),
  )
  const labels = { 'cni.network': basename(dir) }
  return readdirSync(dir)
    .filter((name) => !OTHERS.test(name))
    .map((address) => {
      const path = join(dir, address)
      if (parseLenientAddress(address) === null) return unreadable(path, 'the name of the file is no address')
      try {
        const { ino, mtimeNs } = statSync(path, { bigint: true })
        const [name = '', on = 'eth0'] = textOf(path, MOST_BYTES_OF_A_LEASE).trim().split(/\r?\n/)
        if (name === '') return unreadable(path, 'the file is empty')
        const owner = known.get(`${name} ${on}`) ?? { kind: 'container', name, uid: name, interface: on }
        const file = { path, identity: `${ino} ${mtimeNs}`, modifiedMs: Number(mtimeNs / 1_000_000n) }
        return { where: path, address, owner: { ...owner, node, labels }, file }
      } catch (error) {
        return unreadable(path, (error as Error).message)
      }
    })
}

const ALLOCATION = z.object({
  podref: z.string().min(1),
  id: z.string().min(1),
  ifname: z.string().optional(),
})
const IP_POOL = z.object({
  metadata: z.object({ name: z.string().default('') }).default({ name: '' }),
  spec: z.object({ range: z.string(), allocations: z.record(z.string(), z.unknown()).nullish() }),
})
/** `continue`: it is a page of the API; kubectl's output is whole. */
const IP_POOLS = z.object({
  metadata: z.object({ continue: z.string().nullish() }).nullish(),
  items: z.array(z.unknown()),
})

/** YAML takes much memory. */
const MOST_OF_YAML = 16 * 1024 ** 2

/** `kubectl get ippools.whereabouts.cni.cncf.io -A -o json` (or yaml). */
export function whereaboutsRows(path: string): Read {
  const text = textOf(path)
  const isJson = text.trimStart().startsWith('{')
  if (!isJson && text.length > MOST_OF_YAML)
    throw new Error(`YAML of more than ${MOST_OF_YAML} bytes is not read; get it with -o json`)
  const read: unknown = isJson ? JSON.parse(text) : parseYaml(text)
  const list = IP_POOLS.safeParse(read).data ?? { metadata: null, items: [read] }
  if (list.metadata?.continue)
    throw new Error('metadata.continue says that it is one page of several; get all of them with kubectl')
  return list.items.flatMap((item, index) => {
    const { data: pool, error } = IP_POOL.safeParse(item)
    if (pool === undefined) return unreadable(`${path}: item ${index}`, faultOf(error))
    const { metadata, spec } = pool
    const range = parseCidr(spec.range)
    if (isMalformed(range))
      return unreadable(`${path}: pool ${metadata.name}`, `spec.range: ${range.malformed}`)
    return Object.entries(spec.allocations ?? {}).map(([offset, allocation]) => {
      const where = `${path}: pool ${metadata.name}, allocation ${offset}`
      const { data } = ALLOCATION.safeParse(allocation)
      if (data === undefined) return unreadable(where, 'it has no podref or no id')
      const value = /^\d{1,39}$/.test(offset) ? range.first + BigInt(offset) : null
      if (value === null || value > range.last)
        return unreadable(where, `it is not in the range ${spec.range}`)
      const { podref, id, ifname } = data
      const owner = { kind: 'pod', name: podref, uid: podref, incarnation: id, interface: ifname || 'eth0' }
      return { where, address: formatValue(range.family, value), owner }
    })
  })
}

const NAMED = z.object({ name: z.string() }).nullish()
const IP_ADDRESS = z.object({
  id: z.number(),
  address: z.string(),
  dns_name: z.string().nullish(),
  assigned_object: z.object({ name: z.string().nullish(), device: NAMED, virtual_machine: NAMED }).nullish(),
})
const IP_ADDRESSES = z.object({
  count: z.number().optional(),
  next: z.string().nullish(),
  previous: z.string().nullish(),
  results: z.array(z.unknown()),
})

/** The answer of NetBox's API, `/api/ipam/ip-addresses/?limit=0`, or an array of the `results` of several pages. */
export function netboxRows(path: string): Read {
  const read: unknown = JSON.parse(textOf(path))
  const { data: page } = IP_ADDRESSES.safeParse(Array.isArray(read) ? { results: read } : read)
  if (page === undefined) throw new Error('it is not an answer of NetBox: it has no results')
  const { count = 0, next, previous, results } = page
  if (next || previous || count > results.length)
    throw new Error("it is one page of several; join them: jq -s 'map(.results[])' page-*.json > all.json")
  return results.map((result, index) => {
    const { data, error } = IP_ADDRESS.safeParse(result)
    if (data === undefined) return unreadable(`${path}: result ${index}`, faultOf(error))
    const { id, dns_name, assigned_object: to } = data
    const address = data.address.split('/')[0]!
    const device = (to?.device ?? to?.virtual_machine)?.name
    // An interface may have several addresses there, so each is an owner of its own.
    const name = `${device || dns_name || 'unassigned'}/${address}`
    const owner = { kind: 'device', name, uid: name, interface: to?.name || 'eth0' }
    return { where: `${path}: ip-address ${id}`, address, owner }
  })
}

/** The output of `ipledger export`. Only `address`, `kind` and one of `name` and `uid` are needed. */
export function csvRows(path: string): Read {
  return csvLines(path, ['address', 'kind']).map((one) => {
    const where = `${path}:${one.line}`
    if ('fault' in one) return unreadable(where, one.fault)
    const { address, kind, name, uid, incarnation, interface: on, node, labels: cell } = one.cells
    const known = name || uid
    if (!address || !kind || !known) return unreadable(where, 'it needs address, kind, and name or uid')
    const labels = cell ? labelsOf(cell) : {}
    if (labels === null) return unreadable(where, 'labels: must be a JSON object of texts, or empty')
    const owner = { kind, name: known, uid: uid || known, incarnation, interface: on, node, labels }
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
