/** Where one is: each view has an address of its own, behind the `#`, that can be sent to a colleague. */
import type { GetServerResponseJson } from '../gen/ipledger/v1/server_pb.ts'

export type Route = {
  /** Words of the path: `['address', 'default', '10.0.0.5']`. */
  readonly path: readonly string[]
  readonly query: Readonly<Record<string, string>>
}

export type ScreenProps = {
  readonly network: string
  /** Words of the path after the network. */
  readonly rest: readonly string[]
  readonly query: Route['query']
  /** The server, and what its caller may do. */
  readonly server: GetServerResponseJson
}

/** A moment as the API takes it: a number of the log, or a time. */
export function momentOf(at: string | undefined) {
  if (at === undefined) return {}
  return /^\d+$/.test(at) ? { seq: at } : { time: at }
}

/** A word that cannot be decoded stays as it is. */
function decoded(word: string): string {
  try {
    return decodeURIComponent(word)
  } catch {
    return word
  }
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?')
  const words = path.split('/').filter((word) => word !== '')
  return { path: words.map(decoded), query: Object.fromEntries(new URLSearchParams(query)) }
}

export function linkTo(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const given = Object.entries(query).filter((one): one is [string, string] => Boolean(one[1]))
  const text = new URLSearchParams(given).toString()
  return `#/${path.map(encodeURIComponent).join('/')}${text && `?${text}`}`
}
