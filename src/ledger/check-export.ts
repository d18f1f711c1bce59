/**
 * A file of `ipledger audit`, checked with nothing but itself: every line of an event is hashed, and compared with the
 * leaf and the digest of its seal; every seal names the one before. Of a file that was forged as a whole only digests
 * that were kept elsewhere tell: given those, its seals are held against them, too.
 *
 * Lines are hashed as the bytes they are and not read anew, so the form is the one the database hashed. Only a line
 * feed ends a line; Node's readline takes U+2028 for one, and a label may hold it.
 */
import {
  alteredFinding,
  compareSeal,
  createChain,
  createDeleted,
  events as eventsOf,
  leafOf,
  type SealFinding,
  sealAlteredFinding,
} from './seal-chain.ts'
import { LEAF_BYTES } from './seals.ts'
import type { Exported } from './verify-seals.ts'

/** The file is not what `ipledger audit` writes; the message says which line. */
export class UnreadableExport extends Error {
  override readonly name = 'UnreadableExport'
}

export type ExportChecked = {
  readonly network: string
  readonly seals: number
  /** Lines that a seal covers. */
  readonly events: number
  /** Lines that none covers: nothing is known of them. */
  readonly unsealed: number
  /** Seals that were held against digests kept elsewhere. */
  readonly against: number
  readonly findings: readonly SealFinding[]
  /** Findings beyond the first thousand. */
  readonly omitted: number
}

const MOST_FINDINGS = 1_000
/** Of a line: evidence and labels are bounded far below. */
const LONGEST_LINE = 64 * 1024 * 1024

type Line =
  | { readonly kind: 'export'; readonly network: string }
  | { readonly kind: 'seal'; readonly seal: Exported; readonly sealedAt: number | null }
  | { readonly kind: 'event'; readonly network: string; readonly seq: number; readonly bytes: Buffer }

type Open = {
  readonly seal: Exported
  readonly sealedAt: number | null
  readonly leaves: (readonly [number, string])[]
  /** Of each event, to show how it reads now. */
  readonly bytes: Map<number, Buffer>
}

/** Digests of a file, of every network in it, in order; lines of events are passed over. */
export async function readExported(chunks: AsyncIterable<Buffer>): Promise<readonly Exported[]> {
  const seals: Exported[] = []
  for await (const line of read(chunks)) if (line.kind === 'seal') seals.push(line.seal)
  return seals.sort((a, b) => (a.network === b.network ? a.first - b.first : a.network < b.network ? -1 : 1))
}

/** @throws UnreadableExport */
export async function checkExport(
  chunks: AsyncIterable<Buffer>,
  against: readonly Exported[] = [],
): Promise<ExportChecked> {
  const findings: SealFinding[] = []
  const done = { seals: 0, events: 0, unsealed: 0, against: 0, omitted: 0 }
  const use = (finding: SealFinding | null) => {
    if (finding === null) return
    if (findings.length < MOST_FINDINGS) findings.push(finding)
    else done.omitted += 1
  }
  const kept = new Map<number, Exported>()
  const chain = createChain({ whole: false })
  let network: string | undefined
  let deleted = createDeleted('')
  let open: Open | null = null
  let covered: { readonly first: number; readonly last: number } | null = null
  let before = 0
  // The seal that follows is needed to say whether a seal or its events were altered.
  const close = (followedBy: string | null) => {
    if (open === null) return
    const { seal, sealedAt, leaves, bytes } = open
    open = null
    const compared = compareSeal(seal, { leaves: seal.leaves, followedBy, events: leaves })
    use(chain.add(seal, compared.digest))
    const { altered, sealAltered } = compared
    if (sealAltered !== null) use(sealAlteredFinding(seal, sealAltered))
    for (const run of compared.deleted) use(deleted.add({ ...run, sealedAt }))
    if (altered === 'unknown') use(oneOf(seal))
    else if (altered.length > 0)
      use(alteredFinding(seal, { altered, line: bytes.get(altered[0]!)?.toString() ?? null, sealedAt }))
    covered = { first: covered?.first ?? seal.first, last: seal.last }
    const other = kept.get(seal.first)
    if (other === undefined) return
    kept.delete(seal.first)
    done.against += 1
    if (other.last !== seal.last || other.digest !== seal.digest) use(differs(seal, other))
  }
  for await (const line of read(chunks)) {
    if (network === undefined) {
      network = line.kind === 'seal' ? line.seal.network : line.network
      deleted = createDeleted(network)
      for (const one of against) if (one.network === network) kept.set(one.first, one)
    }
    const of = line.kind === 'seal' ? line.seal.network : line.network
    if (of !== network)
      throw new UnreadableExport(`The file is of network ${network}, and a line of it of ${of}.`)
    if (line.kind === 'seal') {
      close(line.seal.previousDigest)
      done.seals += 1
      open = { seal: line.seal, sealedAt: line.sealedAt, leaves: [], bytes: new Map() }
    } else if (line.kind === 'event') {
      const { seq, bytes } = line
      if (seq <= before) {
        use(misplaced(line, before))
        continue
      }
      before = seq
      if (open !== null && seq >= open.seal.first && seq <= open.seal.last) {
        done.events += 1
        open.leaves.push([seq, leafOf(bytes)])
        open.bytes.set(seq, bytes)
      } else done.unsealed += 1
    }
  }
  close(null)
  use(deleted.end())
  if (network === undefined) throw new UnreadableExport('The file is empty.')
  const { first, last } = covered ?? { first: 0, last: 0 }
  for (const other of kept.values()) if (other.first >= first && other.last <= last) use(differs(null, other))
  const { omitted, ...counted } = done
  return { network, ...counted, findings, omitted }
}

function oneOf(seal: Exported): SealFinding {
  return {
    what: 'EVENT_ALTERED',
    message: `one of ${eventsOf(seal.network, seal)} is not what was sealed; the file has no leaves that say which`,
    seq: seal.first,
    expected: seal.digest,
    found: null,
  }
}

function differs(seal: Exported | null, other: Exported): SealFinding {
  const which =
    seal === null ? 'no seal of the file is' : `the seal of ${eventsOf(seal.network, seal)} is not`
  return {
    what: 'EXPORT_DIFFERS',
    message:
      `${which} the one that was kept of ${eventsOf(other.network, other)}: ` +
      'what it covers, or what was before, was altered and sealed anew',
    seq: other.first,
    expected: other.digest,
    found: seal?.digest ?? null,
  }
}

/** Twice, or out of order: a reader would take it for the event that was hashed. */
function misplaced(
  { network, seq, bytes }: Extract<Line, { readonly kind: 'event' }>,
  before: number,
): SealFinding {
  return {
    what: 'EVENT_ALTERED',
    message: `event ${network}/${seq} stands after event ${before} in the file, where nothing was sealed; it reads: ${bytes.toString()}`,
    seq,
    expected: null,
    found: bytes.toString(),
  }
}

// The file.

async function* read(chunks: AsyncIterable<Buffer>): AsyncGenerator<Line> {
  let number = 0
  for await (const bytes of linesOf(chunks)) {
    number += 1
    if (bytes.length === 0) continue
    yield parsed(bytes, number)
  }
}

function parsed(bytes: Buffer, number: number): Line {
  let json: unknown
  try {
    json = JSON.parse(bytes.toString())
  } catch (error) {
    throw new UnreadableExport(`Line ${number} of the file is no JSON.`, { cause: error })
  }
  if (Array.isArray(json)) {
    const [network, seq] = json as readonly unknown[]
    if (typeof network === 'string' && typeof seq === 'string' && /^[0-9]{1,16}$/.test(seq))
      return { kind: 'event', network, seq: Number(seq), bytes }
  } else if (typeof json === 'object' && json !== null) {
    if ('seal' in json) return sealOf(json.seal, number)
    if ('export' in json && isObject(json.export) && typeof json.export.network === 'string')
      return { kind: 'export', network: json.export.network }
  }
  throw new UnreadableExport(`Line ${number} of the file is neither an event nor a seal.`)
}

/** More events than any seal has: what is read for it stays bounded. */
const LONGEST_SEAL = 16_384

function sealOf(json: unknown, number: number): Line {
  if (isObject(json)) {
    const { network, first, last, digest, previousDigest, sealedAt, leaves } = json
    if (
      typeof network === 'string' &&
      isNumber(first) &&
      isNumber(last) &&
      last >= first &&
      last - first < LONGEST_SEAL &&
      isHex(digest, 32) &&
      isHex(previousDigest, 32) &&
      (leaves === undefined || isHex(leaves, LEAF_BYTES * (last - first + 1)))
    ) {
      const at = typeof sealedAt === 'string' ? Date.parse(sealedAt) : Number.NaN
      return {
        kind: 'seal',
        seal: { network, first, last, digest, previousDigest, leaves: leaves ?? null },
        sealedAt: Number.isNaN(at) ? null : at,
      }
    }
  }
  throw new UnreadableExport(`Line ${number} of the file is no whole seal.`)
}

function isObject(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === 'object' && json !== null
}

function isNumber(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0
}

function isHex(value: unknown, bytes: number): value is string {
  return typeof value === 'string' && value.length === 2 * bytes && /^[0-9a-f]*$/.test(value)
}

async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest: Buffer[] = []
  let length = 0
  for await (const chunk of chunks) {
    let from = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      yield Buffer.concat([...rest, chunk.subarray(from, end)])
      rest = []
      length = 0
      from = end + 1
    }
    if (from < chunk.length) {
      rest.push(chunk.subarray(from))
      length += chunk.length - from
      if (length > LONGEST_LINE)
        throw new UnreadableExport(`A line of the file is longer than ${LONGEST_LINE} bytes.`)
    }
  }
  if (rest.length > 0) yield Buffer.concat(rest)
}
