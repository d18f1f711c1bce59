/**
 * Page tokens: where the next page goes on, and a digest of what was asked, so that a token used with other filters is
 * refused instead of skipping half of the list. Opaque to callers; a forged one reads nothing that its caller could
 * not ask for.
 */
import { hash } from 'node:crypto'
import { invalidField } from './errors.ts'

const FORM = /^1\.([A-Za-z0-9_-]{12})\.(.{1,2500})$/s
const LONGEST = 4_096

/** `filters` is what was asked, in canonical form, without the size of the page. */
export function encodePage(position: string, filters: unknown): string {
  return Buffer.from(`1.${digest(filters)}.${position}`).toString('base64url')
}

/** Null for the first page. */
export function decodePage(token: string, filters: unknown, path = 'pageToken'): string | null {
  if (token === '') return null
  const found = token.length <= LONGEST ? FORM.exec(Buffer.from(token, 'base64url').toString()) : null
  if (found === null) throw invalidField(path, 'is not a page token of this server')
  if (found[1] !== digest(filters)) {
    throw invalidField(path, 'belongs to a list with other filters; begin again without it')
  }
  return found[2]!
}

function digest(filters: unknown): string {
  return hash('sha256', JSON.stringify(filters), 'base64url').slice(0, 12)
}
