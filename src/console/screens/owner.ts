/** All lives of an owner: its leases and its closings, the newest first. */

import { html } from 'htm/preact'
import type { EventJson } from '../../gen/ipledger/v1/audit_pb.ts'
import { call } from '../api.ts'
import { addressLink } from '../links.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { sh, Table, Time, useAnswer, View } from '../view.ts'
import { eventColumns, ownerOf } from './events.ts'

const lifeOf = (event: EventJson) => {
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
  const events: readonly EventJson[] = asked.answer?.events ?? []
  const lives = [...Map.groupBy(events, lifeOf).values()]
  return html`<${View} title=${name} asked=${asked} call=${['AuditService/ListEvents', request]}
      command=${sh`ipledger events --network ${network} --name ${name} --descending` + (kind ? sh` --kind ${kind}` : '')}>
    ${asked.answer?.nextPageToken && html`<p class="quiet">The newest ${events.length} events; there are more.</p>`}
    <p><a href=${linkTo(['leases', network], { name, kind })}>What it holds now</a></p>
    <${Table} caption="Lives, the newest first" none="Nobody of this name ever held anything." rows=${lives} columns=${[
      ['Kind', ([newest]: readonly EventJson[]) => ownerOf(newest!)?.kind],
      ['Uid', ([newest]: readonly EventJson[]) => ownerOf(newest!)?.uid],
      ['Incarnation', ([newest]: readonly EventJson[]) => ownerOf(newest!)?.incarnation],
      ['First', (life: readonly EventJson[]) => html`<${Time} at=${life.at(-1)?.time} />`],
      ['Last', ([newest]: readonly EventJson[]) => html`<${Time} at=${newest?.time} />`],
      [
        'Addresses',
        (life: readonly EventJson[]) =>
          [...new Set(life.flatMap(({ lease }) => lease?.address ?? []))].map(
            (at) => html`${addressLink(network, at)} `,
          ),
      ],
    ]} />
    <${Table} caption="Events, the newest first" none="" rows=${events} columns=${eventColumns(network)} />
  <//>`
}
