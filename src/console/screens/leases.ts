/** Leases that are held now: of a pool, an owner, a node, a label, a state. */

import { html } from 'htm/preact'
import type { LeaseJson } from '../../gen/ipledger/v1/types_pb.ts'
import { call } from '../api.ts'
import { addressLink, leaseLink, nodeLink, ownerLink } from '../links.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { type Column, localOf, quoted, State, Table, Time, useAnswer, View } from '../view.ts'

type Query = ScreenProps['query']

export const FIELDS: readonly string[] = ['pool', 'kind', 'name', 'uid', 'node']

/** Which leases the view's address means: for ListLeases and WatchLeases. */
export const filterOf = (network: string, { pool, kind, name, uid, node, state }: Query) => ({
  network,
  ...(pool && { pools: [pool] }),
  ...(kind && { ownerKind: kind }),
  ...(name && { ownerName: name }),
  ...(uid && { ownerUid: uid }),
  ...(node && { node }),
  ...(state && { states: [state as 'ACTIVE'] }),
})

/** The same for the command line. */
export const flagsOf = (network: string, query: Query, fields: readonly string[]): string =>
  [`--network ${quoted(network)}`]
    .concat([...fields, 'state'].flatMap((one) => (query[one] ? `--${one} ${quoted(query[one])}` : [])))
    .concat(query.page ? `--page-token ${quoted(query.page)}` : [])
    .join(' ')

type FilterProps = {
  readonly path: readonly string[]
  readonly query: Query
  readonly fields: readonly string[]
  /** What is chosen from a list. */
  readonly choice: readonly [name: string, options: readonly string[]]
}

const TIMES = ['from', 'to']
const timeOf = (value: FormDataEntryValue) => (value === '' ? '' : new Date(String(value)).toISOString())

export function Filter({ path, query, fields, choice: [choice, options] }: FilterProps) {
  const filter = (event: Event) => {
    event.preventDefault()
    const form = new FormData((event.target as HTMLElement).closest('form')!)
    const given = [...form].map(([key, value]) => [key, TIMES.includes(key) ? timeOf(value) : String(value)])
    location.hash = linkTo(path, Object.fromEntries(given))
  }
  return html`<form class="filter" onSubmit=${filter} key=${JSON.stringify(query)}>
    ${fields.map((field) =>
      TIMES.includes(field)
        ? html`<label>${field} <input type="datetime-local" step="1" name=${field} value=${query[field] && localOf(query[field])} /></label>`
        : html`<label>${field} <input name=${field} value=${query[field] ?? ''} /></label>`,
    )}
    <label>${choice} <select name=${choice} value=${query[choice] ?? ''} onChange=${filter}>
      <option value="">any</option>${options.map((one) => html`<option>${one}</option>`)}
    </select></label>
    <button>Filter</button>
  </form>`
}

/** What a lease is, with links to its address and to other leases of its owner and node. */
export const leaseColumns = (network: string): readonly Column<LeaseJson>[] => [
  ['Address', ({ address }) => addressLink(network, address)],
  ['State', ({ state, quarantine }) => html`<${State} of=${state} /> ${quarantine?.reason}`],
  ['Owner', ({ owner }) => owner && ownerLink(network, owner)],
  ['Node', ({ owner }) => owner?.node && nodeLink(network, owner.node)],
]

export function Leases({ network, query }: ScreenProps) {
  const { label = '', page } = query
  const [key = '', ...value] = label.split('=')
  const request = {
    ...filterOf(network, query),
    ...(label && { labels: { [key]: value.join('=') } }),
    ...(page && { pageToken: page }),
    pageSize: 200,
  }
  const asked = useAnswer(
    (signal) => call('LeaseService', 'listLeases', request, signal),
    [JSON.stringify(request)],
  )
  const { leases = [], nextPageToken: next } = asked.answer ?? {}
  const fields = [...FIELDS, 'label']
  return html`<${View} title="Leases" asked=${asked} call=${['LeaseService/ListLeases', request]} command="ipledger lease list ${flagsOf(network, query, fields)}"
      filter=${html`<${Filter} path=${['leases', network]} query=${query} fields=${fields} choice=${['state', ['RESERVED', 'ACTIVE', 'QUARANTINED']]} />`}>
    <${Table} caption="Leases, by address" none="No leases." isCut=${Boolean(next)} rows=${leases} columns=${[
      ...leaseColumns(network),
      ['Pool', ({ pool }: LeaseJson) => html`<a href=${linkTo(['pool', network, pool!])}>${pool}</a>`],
      ['Lease', ({ leaseId }: LeaseJson) => leaseLink(network, leaseId)],
      ['Reserved', ({ reservedAt }: LeaseJson) => html`<${Time} at=${reservedAt} />`],
    ]} />
    ${next && html`<p><a href=${linkTo(['leases', network], { ...query, page: next })}>Next page</a></p>`}
  <//>`
}
