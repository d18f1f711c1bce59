/**
 * Pages of lists. A token has the position of the next page and a digest of the request, so that a token used with other
 * filters is refused instead of skipping half of the list. It is opaque to callers; a forged one reads nothing that its caller
 * could not ask for.
 */
import { hash } from 'node:crypto'
import { invalidField, type Refused } from './errors.ts'
import { text } from './fields.ts'

const FORM = /^1\.([A-Za-z0-9_-]{12})\.(.{1,2500})$/s
const LONGEST = 4_096
const DEFAULT_SIZE = 100

type PagedRequest = { readonly pageSize: number; readonly pageToken: string }

/** `read` checks the position: a forged one must not reach the database as anything else. */
export function pageOf<P = string>(
  request: PagedRequest,
  read: (position: string, path: string) => P = (position, path) => text(position, path, LONGEST) as P,
) {
  const { pageSize, pageToken } = request
  const size = pageSize || DEFAULT_SIZE
  /** The token of the next page; of null, the empty one. */
  const next = (position: string | number | null): string =>
    position === null ? '' : encodePage(String(position), request)
  return {
    size,
    /** Where the page before ended; null: the first page. */
    after: pageToken === '' ? null : read(positionIn(pageToken, request), 'pageToken'),
    next,
    /** Of one more than asked for: the page, and the token of the next. */
    cut<T>(found: readonly T[], positionOf: (last: T) => string) {
      const items = found.slice(0, size)
      return { items, nextPageToken: next(found.length > size ? positionOf(items.at(-1)!) : null) }
    },
  }
}

export function encodePage(position: string, request: object): string {
  return Buffer.from(`1.${digest(request)}.${position}`).toString('base64url')
}

function positionIn(pageToken: string, request: object): string {
  const found = pageToken.length <= LONGEST ? FORM.exec(Buffer.from(pageToken, 'base64url').toString()) : null
  if (found === null) throw notOurs()
  if (found[1] === digest(request)) return found[2]!
  throw invalidField('pageToken', 'belongs to a list with other filters; begin again without it')
}

export function notOurs(): Refused {
  return invalidField('pageToken', 'is not a page token of this server; begin again without it')
}

/** Of a decoded request but for its page: equal requests are equal text. */
function digest(request: object): string {
  return hash('sha256', JSON.stringify({ ...request, pageSize: 0, pageToken: '' }), 'base64url').slice(0, 12)
}
