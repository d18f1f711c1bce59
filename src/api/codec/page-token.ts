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

type PagedRequest = { readonly pageSize: number; readonly pageToken: string }

export type Page<P> = ReturnType<typeof pageOf<P>>

/** `read` checks the position: a forged one must not reach the database as anything else. */
export function pageOf<P = string>(
  message: PagedRequest,
  read: (position: string, path: string) => P = (position, path) => text(position, path, LONGEST) as P,
) {
  const { pageSize, pageToken } = message
  const size = pageSize || DEFAULT_SIZE
  /** The token of the next page; of null, the empty one. */
  const next = (position: string | number | null): string =>
    position === null ? '' : encodePage(String(position), message)
  return {
    size,
    /** Where the page before ended; null: the first page. */
    after: pageToken === '' ? null : read(positionIn(pageToken, message), 'pageToken'),
    next,
    /** Of one more than asked for: the page, and the token of the next. */
    cut<T>(found: readonly T[], positionOf: (last: T) => string) {
      const items = found.slice(0, size)
      return { items, nextPageToken: next(found.length > size ? positionOf(items.at(-1)!) : null) }
    },
  }
}

export function encodePage(position: string, asked: object): string {
  return Buffer.from(`1.${digest(asked)}.${position}`).toString('base64url')
}

function positionIn(pageToken: string, asked: object): string {
  const found = pageToken.length <= LONGEST ? FORM.exec(Buffer.from(pageToken, 'base64url').toString()) : null
  if (found === null) throw notOurs()
  if (found[1] === digest(asked)) return found[2]!
  throw invalidField('pageToken', 'belongs to a list with other filters; begin again without it')
}

export function notOurs(): Refused {
  return invalidField('pageToken', 'is not a page token of this server; begin again without it')
}

/** Of the request but for its page. As it was read, equal requests are equal text. */
function digest(asked: object): string {
  return hash('sha256', JSON.stringify({ ...asked, pageSize: 0, pageToken: '' }), 'base64url').slice(0, 12)
}
