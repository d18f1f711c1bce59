/**
 * Checks of texts in requests: lengths in UTF-8 bytes, characters, forms. Each answers with the value in canonical form or
 * throws INVALID_FIELD with the field's path in JSON spelling. The core checks what depends on the state of a network.
 */
import {
  type Cidr,
  formatAddress,
  formatCidr,
  type IpAddress,
  isMalformed,
  type Malformed,
  parseAddress,
  parseCidr,
  parseLenientAddress,
} from '../../core/address.ts'
import type { Labels } from '../../core/owner.ts'
import { invalidField } from './errors.ts'

const DEFAULT_NETWORK = 'default'
export const DEFAULT_INTERFACE = 'eth0'

export const LIMITS = { requestId: 128, nameBytes: 253, whyBytes: 1_024, labels: 64, labelKey: 63 } as const

export const NETWORK_NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/
const POOL = /^[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?$/
const KIND = /^[a-z][a-z0-9-]{0,62}$/
const LABEL_KEY = /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$/

export function text(value: string, path: string, limit: number = LIMITS.nameBytes): string {
  // Most are short: three bytes a character at most.
  if (3 * value.length > limit && Buffer.byteLength(value) > limit)
    throw invalidField(path, `has ${Buffer.byteLength(value)} bytes; at most ${limit} are allowed`)
  if (/\p{Cc}/u.test(value))
    throw invalidField(path, 'must not contain control characters such as line breaks')
  if (!value.isWellFormed())
    throw invalidField(path, 'must be well-formed Unicode; it has half of a surrogate pair')
  return value
}

function matching(form: RegExp, rule: string) {
  return (value: string, path: string): string => {
    if (form.test(value)) return value
    throw invalidField(path, value === '' ? `required; it ${rule}` : rule)
  }
}

const ALPHABET = 'of a-z, 0-9, dot, dash and underscore, with a letter or digit at both ends'
const givenNetwork = matching(NETWORK_NAME, `must be 1 to 63 ${ALPHABET}`)
export const poolName = matching(POOL, `must be 1 to 253 ${ALPHABET}`)
export const ownerKind = matching(KIND, 'must be 1 to 63 of a-z, 0-9 and dash, beginning with a letter')

export function networkName(value: string, path: string): string {
  return value === '' ? DEFAULT_NETWORK : givenNetwork(value, path)
}

const INTERFACE_BYTES = 63

/** Keys of attachments have `|` between their parts. */
export function interfaceName(value: string, path: string): string {
  text(value, path, INTERFACE_BYTES)
  if (value.includes('|')) throw invalidField(path, 'must not contain |, which separates the parts of a key')
  return value
}

/** Keys ascending, so that equal labels are equal text. */
export function labels(given: Readonly<Record<string, string>>, path: string): Labels {
  const keys = Object.keys(given)
  checkCount(keys.length, LIMITS.labels, path)
  const sorted: Record<string, string> = {}
  for (const key of keys.sort()) {
    if (!LABEL_KEY.test(key)) {
      throw invalidField(
        `${path}[${JSON.stringify(key.slice(0, LIMITS.labelKey))}]`,
        `a key must be 1 to ${LIMITS.labelKey} of A-Z, a-z, 0-9, dot, dash, underscore and slash, with a letter or digit at both ends`,
      )
    }
    sorted[key] = text(given[key]!, `${path}[${JSON.stringify(key)}]`)
  }
  return sorted
}

function sound<T extends object>(parsed: T | Malformed, path: string): T {
  if (isMalformed(parsed)) throw invalidField(path, parsed.malformed)
  return parsed
}

export const ipAddress = (value: string, path: string): IpAddress => sound(parseAddress(value), path)
export const address = (value: string, path: string): string => formatAddress(ipAddress(value, path))
export const cidr = (value: string, path: string): string => formatCidr(sound(parseCidr(value), path))

/** An address in use: any spelling of just one address is taken, so that it spoils no list. */
export function addressInUse(value: string, path: string): string {
  return formatAddress(parseLenientAddress(value) ?? ipAddress(value, path))
}

export function cidrOrAddress(value: string, path: string): Cidr {
  if (value.includes('/')) return sound(parseCidr(value), path)
  const one = ipAddress(value, path)
  return sound(parseCidr(`${formatAddress(one)}/${one.family === 4 ? 32 : 128}`), path)
}

export function optionalCidr(value: string, path: string): Cidr | null {
  return value === '' ? null : cidrOrAddress(value, path)
}

/** Each text must be a known one: a filter with a misspelt one would find nothing. */
export function knownTexts<T extends string>(
  given: readonly string[],
  all: readonly T[],
  path: string,
): readonly T[] {
  checkCount(given.length, all.length, path)
  const read = given.map((one, index) => {
    const found = all.find((known) => known === one)
    if (found !== undefined) return found
    throw invalidField(`${path}[${index}]`, `must be one of ${all.join(', ')}`)
  })
  return [...new Set(read)]
}

export function checkCount(count: number, most: number, path: string): void {
  if (count > most) throw invalidField(path, `has ${count} entries; at most ${most} are allowed`)
}

/** Sentences about required fields, by the last part of the path. */
const REQUIRED: Readonly<Record<string, string>> = {
  address: 'one address, as in 10.0.0.5',
  answer: 'LIVE, TERMINAL, GONE, UNKNOWN or ERROR',
  begunAt: 'from the answer of BeginSnapshot or of the last report',
  cidr: 'the addresses of the pool, as in 10.0.0.0/24',
  epoch: 'a name for this life of the reporting process, new at each start',
  head: 'the head of the log when the node was found to be gone',
  id: 'the name of the source',
  kind: 'what the workload is, as in pod, container or vm',
  leaseId: 'the id that Reserve answered, as in default/42',
  name: 'its name, as in web',
  owner: 'the workload, with its kind and its name or uid',
  requestId: 'the id that the request was sent with',
  sequence: 'from the answer of BeginSnapshot or of the last report',
  sight: 'what the source can see, with its ownerKinds',
  source: 'the id of the source that looked',
  terminalSince: 'with TERMINAL, since when',
  version: 'the version of the lease that was looked at',
  why: 'the reason, which goes into the log',
}

export function required<T>(value: T | '' | null | undefined, path: string, what?: string): T {
  if (value !== '' && value !== undefined && value !== null) return value
  const field = path.slice(path.lastIndexOf('.') + 1)
  throw invalidField(path, `required: ${what ?? REQUIRED[field] ?? 'it has no default'}`)
}

type Reasoned = { readonly why: string; readonly validateOnly?: boolean }

/** Why an operator acts. Who only looks need not know yet. */
export function reason({ why, validateOnly = false }: Reasoned): string {
  return validateOnly ? why : required(why, 'why')
}

export function excluding(path: string, one: string, other: string): never {
  throw invalidField(path, `give ${one} or ${other}, not both`)
}

/** Exactly one of the fields is given. */
export function oneOf(...fields: readonly [path: string, value: string][]): void {
  const given = fields.filter(([, value]) => value !== '')
  const paths = fields.map(([path]) => path)
  if (given.length > 1) excluding(paths[0]!, paths[0]!, paths[1]!)
  if (given.length === 0) throw invalidField(paths[0]!, `required: give ${paths.join(' or ')}`)
}
