/** What was meant: what can be only one thing at once, else whatever has this name. */

import { html } from 'htm/preact'
import type { MatchJson as Match } from '../../gen/ipledger/v1/audit_pb.ts'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { sh, useAnswer, View } from '../view.ts'

/** Kinds that are shown in a view of another name. */
const OTHERWISE: Readonly<Record<string, string>> = { cidr: 'pool', source: 'sources' }

function placeOf(network: string, { kind = '', name = '' }: Match): string {
  const view = kind.toLowerCase()
  if (view === 'node' || view === 'label') return linkTo(['leases', network], { [view]: name })
  return linkTo([OTHERWISE[view] ?? view, network, name])
}

export function Search({ network, rest: [text = ''] }: ScreenProps) {
  const asked = useAnswer(
    async (signal) => {
      const { matches = [] } = await call('AuditService', 'find', { network, text }, signal)
      const exact = matches.filter(({ name }) => name === text)
      const meant = exact.length > 0 ? exact : matches
      if (meant.length === 1) location.replace(placeOf(network, meant[0]!))
      return matches
    },
    [network, text],
  )
  const matches: readonly Match[] = asked.answer ?? []
  return html`<${View} title="Search: ${text}" asked=${asked} call=${['AuditService/Find', { network, text }]} command=${sh`ipledger find ${text} --network ${network}`}>
    ${
      matches.length === 0
        ? html`<p>Nothing in network ${network} has this name: no address, CIDR, lease id, owner (past ones too), node, label (<code>key=value</code>), pool or source.</p>`
        : html`<p class="quiet">Names that begin with this, at most 20 of each kind. A longer text finds fewer.</p><ul>${matches.map((one) => html`<li>${one.kind?.toLowerCase()} <a href=${placeOf(network, one)}>${one.name}</a> ${one.address}</li>`)}</ul>`
    }
  <//>`
}
