/** Where one is: each view has an address of its own, behind the `#`, that can be sent to a colleague. */

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
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?')
  const words = path.split('/').filter((word) => word !== '')
  return { path: words.map(decodeURIComponent), query: Object.fromEntries(new URLSearchParams(query)) }
}

export function linkTo(
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>> = {},
): string {
  const given = Object.entries(query).filter((one): one is [string, string] => Boolean(one[1]))
  const text = new URLSearchParams(given).toString()
  return `#/${path.map(encodeURIComponent).join('/')}${text && `?${text}`}`
}
