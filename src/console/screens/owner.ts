/** All lives of an owner: its leases and its closings, the newest first. */

import { html } from 'htm/preact'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { State, sh, Table, Time, useAnswer, View } from '../view.ts'

type Owner = {
  readonly kind?: string
  readonly name?: string
  readonly uid?: string
  readonly incarnation?: string
  readonly interface?: string
  readonly node?: string
}
type Lease = {
  readonly leaseId?: string
  readonly address?: string
  readonly state?: string
  readonly owner?: Owner
}
type Event = {
  readonly seq?: string
  readonly time?: string
  readonly type?: string
  readonly actor?: string
  readonly cause?: string
  readonly lease?: Lease
  readonly closed?: { readonly owner?: Owner; readonly until?: string }
}

const ownerOf = ({ lease, closed }: Event) => lease?.owner ?? closed?.owner
const lifeOf = (event: Event) => {
  const { kind, uid, incarnation } = ownerOf(event) ?? {}
  return `${kind} ${uid} ${incarnation}`
}

export function Owners({ network, rest: [name = ''], query: { kind } }: ScreenProps) {
  const request = {
    network,
    ownerName: name,
    ...(kind && { ownerKind: kind }),
    descending: true,
    pageSize: 1000,
  }
  const asked = useAnswer(
    (signal) => call('AuditService', 'listEvents', request, signal),
    [network, name, kind],
  )
  const events: readonly Event[] = asked.answer?.events ?? []
  const lives = [...Map.groupBy(events, lifeOf).values()]
  const address = (at: string | undefined) => html`<a href=${linkTo(['address', network, at!])}>${at}</a>`
  return html`<${View} title=${name} asked=${asked} call=${['AuditService/ListEvents', request]}
      command=${sh`ipledger events --network ${network} --name ${name} --descending`}>
    ${asked.answer?.nextPageToken && html`<p class="quiet">The newest ${events.length} events; there are more.</p>`}
    <p><a href=${linkTo(['leases', network], { name })}>What it holds now</a></p>
    <${Table} caption="Lives, the newest first" none="Nobody of this name ever held anything." rows=${lives} columns=${[
      ['Kind', ([newest]: readonly Event[]) => ownerOf(newest!)?.kind],
      ['Uid', ([newest]: readonly Event[]) => ownerOf(newest!)?.uid],
      ['Incarnation', ([newest]: readonly Event[]) => ownerOf(newest!)?.incarnation],
      ['First', (life: readonly Event[]) => html`<${Time} at=${life.at(-1)?.time} />`],
      ['Last', ([newest]: readonly Event[]) => html`<${Time} at=${newest?.time} />`],
      [
        'Addresses',
        (life: readonly Event[]) =>
          [...new Set(life.flatMap(({ lease }) => lease?.address ?? []))].map((at) => html`${address(at)} `),
      ],
    ]} />
    <${Table} caption="Events, the newest first" none="" rows=${events} columns=${[
      ['Time', ({ time }: Event) => html`<${Time} at=${time} />`],
      [
        'What',
        ({ type, closed }: Event) => html`${type}${closed && html` until <${Time} at=${closed.until} />`}`,
      ],
      ['State', ({ lease }: Event) => lease && html`<${State} of=${lease.state} />`],
      ['Address', ({ lease }: Event) => lease && address(lease.address)],
      [
        'Lease',
        ({ lease }: Event) =>
          lease && html`<a href=${linkTo(['lease', network, lease.leaseId!])}>${lease.leaseId}</a>`,
      ],
      ['Incarnation', (event: Event) => ownerOf(event)?.incarnation],
      ['By', ({ actor, cause }: Event) => `${actor} (${cause})`],
    ]} />
  <//>`
}
