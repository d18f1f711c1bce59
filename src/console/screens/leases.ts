/** Leases that are held now: of a pool, an owner, a node, a label, a state. */

import { html } from 'htm/preact'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { State, Table, Time, useAnswer, View } from '../view.ts'

export function Leases({ network, query }: ScreenProps) {
  const { pool, kind, name, uid, node, label = '', state, page } = query
  const [key = '', value] = label.split('=')
  const request = {
    network,
    ...(pool && { pools: [pool] }),
    ...(kind && { ownerKind: kind }),
    ...(name && { ownerName: name }),
    ...(uid && { ownerUid: uid }),
    ...(node && { node }),
    ...(value && { labels: { [key]: value } }),
    ...(state && { states: [state as 'ACTIVE'] }),
    ...(page && { pageToken: page }),
    pageSize: 200,
  }
  const asked = useAnswer(
    (signal) => call('LeaseService', 'listLeases', request, signal),
    [JSON.stringify(request)],
  )
  const { leases = [], nextPageToken: next } = asked.answer ?? {}
  const flags = Object.entries({ pool, kind, name, uid, node, label, state }).flatMap(([flag, value]) =>
    value ? [`--${flag} ${value}`] : [],
  )
  const filter = (event: Event) => {
    event.preventDefault()
    const form = new FormData((event.target as HTMLElement).closest('form')!)
    location.hash = linkTo(
      ['leases', network],
      Object.fromEntries([...form].map(([key, value]) => [key, String(value)])),
    )
  }
  return html`<${View} title="Leases" asked=${asked} call=${['LeaseService/ListLeases', request]} command=${['ipledger lease list', `--network ${network}`, ...flags].join(' ')}>
    <form class="filter" onSubmit=${filter} key=${JSON.stringify(query)}>
      ${(['pool', 'kind', 'name', 'uid', 'node', 'label'] as const).map((field) => html`<label>${field} <input name=${field} value=${query[field] ?? ''} /></label>`)}
      <label>state <select name="state" value=${state ?? ''} onChange=${filter}>
        <option value="">any</option>${['RESERVED', 'ACTIVE', 'QUARANTINED'].map((one) => html`<option>${one}</option>`)}
      </select></label>
      <button>Filter</button>
    </form>
    <${Table} caption="Leases, by address" none="No leases." rows=${leases} columns=${[
      [
        'Address',
        ({ address }: Lease) => html`<a href=${linkTo(['address', network, address!])}>${address}</a>`,
      ],
      ['State', ({ state: of, quarantine }: Lease) => html`<${State} of=${of} /> ${quarantine?.reason}`],
      [
        'Owner',
        ({ owner }: Lease) =>
          owner &&
          html`<a href=${linkTo(['owner', network, owner.name!], { kind: owner.kind })}>${owner.kind} ${owner.name}</a>`,
      ],
      [
        'Node',
        ({ owner }: Lease) =>
          owner?.node && html`<a href=${linkTo(['leases', network], { node: owner.node })}>${owner.node}</a>`,
      ],
      ['Pool', ({ pool: of }: Lease) => html`<a href=${linkTo(['pool', network, of!])}>${of}</a>`],
      ['Lease', ({ leaseId }: Lease) => html`<a href=${linkTo(['lease', network, leaseId!])}>${leaseId}</a>`],
      ['Since', ({ reservedAt }: Lease) => html`<${Time} at=${reservedAt} />`],
    ]} />
    ${next && html`<p><a href=${linkTo(['leases', network], { ...query, page: next })}>Next page</a></p>`}
  <//>`
}

type Lease = {
  readonly address?: string
  readonly state?: string
  readonly leaseId?: string
  readonly pool?: string
  readonly reservedAt?: string
  readonly quarantine?: { readonly reason?: string }
  readonly owner?: { readonly kind?: string; readonly name?: string; readonly node?: string }
}
