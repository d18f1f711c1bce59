/** Who says what is alive, and how it stands by its reports. */

import { html } from 'htm/preact'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { State, Table, Time, useAnswer, View } from '../view.ts'

type Source = {
  readonly id?: string
  readonly kind?: string
  readonly state?: string
  readonly status?: string
  readonly size?: number
  readonly reportedAt?: string
  readonly failure?: string
  readonly partialBecause?: readonly string[]
  readonly sight?: { readonly node?: string; readonly ownerKinds?: readonly string[] }
}

export function Sources({ network }: ScreenProps) {
  const request = { network, pageSize: 1000 }
  const asked = useAnswer((signal) => call('LivenessService', 'listSources', request, signal), [network])
  return html`<${View} title="Sources" asked=${asked} call=${['LivenessService/ListSources', request]} command="ipledger source list --network ${network}">
    <${Table} caption="Sources of live addresses" none="No sources: nothing is known of what is alive." rows=${asked.answer?.sources ?? []} columns=${[
      ['Source', ({ id }: Source) => id],
      ['Kind', ({ kind }: Source) => kind],
      [
        'Node',
        ({ sight }: Source) =>
          sight?.node
            ? html`<a href=${linkTo(['leases', network], { node: sight.node })}>${sight.node}</a>`
            : 'all',
      ],
      ['Sees', ({ sight }: Source) => sight?.ownerKinds?.join(', ')],
      ['State', ({ state }: Source) => html`<${State} of=${state} />`],
      [
        'Status',
        ({ status, failure, partialBecause = [] }: Source) =>
          html`<${State} of=${status} /> ${[failure, ...partialBecause].filter(Boolean).join(', ')}`,
      ],
      ['Lists', ({ size }: Source) => size],
      ['Reported', ({ reportedAt }: Source) => html`<${Time} at=${reportedAt} />`],
    ]} />
  <//>`
}
