/**
 * Pages of lists. A token says where the next page goes on, with a digest of what was asked, so that a token used with other
 * filters is refused instead of skipping half of the list. Opaque to callers; a forged one reads nothing that its caller
 * could not ask for.
 */
import { hash } from 'node:crypto'
import { invalidField, type Refused } from './errors.ts'
import { text } from './fields.ts'

const FORM = /^1\.([A-Za-z0-9_-]{12})\.(.{1,2500})$/s
const LONGEST = 4_096
const DEFAULT_SIZE = 100

type Asked = { readonly pageSize: number; readonly pageToken: string }

export type Page<P = string> = {
  readonly size: number
  /** Where the page before ended; null: the first page. */
  readonly after: P | null
  /** The token of the next page; of null, the empty one. */
  next(position: string | number | null): string
  /** Of one more than asked for: the page, and the token of the next. */
  cut<T>(
    found: readonly T[],
    positionOf: (last: T) => string,
  ): { readonly items: readonly T[]; readonly nextPageToken: string }
}

/** `read` checks the position: a forged one must not reach the database as anything else. */
export function pageOf<P = string>(
  message: Asked,
  read: (position: string, path: string) => P = (position, path) => text(position, path, LONGEST) as P,
): Page<P> {
  const size = message.pageSize || DEFAULT_SIZE
  const position = decodePage(message)
  const next = (position: string | number | null) =>
    position === null ? '' : encodePage(String(position), message)
  return {
    size,
    after: position === null ? null : read(position, 'pageToken'),
    next,
    cut(found, positionOf) {
      const items = found.slice(0, size)
      return { items, nextPageToken: next(found.length > size ? positionOf(items.at(-1)!) : null) }
    },
  }
}

export function encodePage(position: string, asked: object): string {
  return Buffer.from(`1.${digest(asked)}.${position}`).toString('base64url')
}

function decodePage(message: Asked): string | null {
  const { pageToken } = message
  if (pageToken === '') return null
  const found = pageToken.length <= LONGEST ? FORM.exec(Buffer.from(pageToken, 'base64url').toString()) : null
  if (found === null) throw notOurs()
  if (found[1] !== digest(message)) {
    throw invalidField('pageToken', 'belongs to a list with other filters; begin again without it')
  }
  return found[2]!
}

export function notOurs(): Refused {
  return invalidField('pageToken', 'is not a page token of this server; begin again without it')
}

/** Of the request but for its page. */
function digest(message: object): string {
  const filters = { ...message, pageSize: 0, pageToken: '' }
  return hash('sha256', JSON.stringify(filters, canonical), 'base64url').slice(0, 12)
}

function canonical(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}
