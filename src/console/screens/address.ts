/** One address: why it is as it is, who had it, as a story with its evidence. */

import { html } from 'htm/preact'
import type { HistoryEntryJson as Entry, HolderJson as Holder } from '../../gen/ipledger/v1/audit_pb.ts'
import type { SightingJson as Sighting } from '../../gen/ipledger/v1/liveness_pb.ts'
import { Act, quarantine, reap } from '../act.ts'
import { call } from '../api.ts'
import { leaseLink, ownerLink } from '../links.ts'
import { linkTo, momentOf, type ScreenProps } from '../route.ts'
import { State, sh, Table, Time, useAnswer, View } from '../view.ts'

export function Address({ network, rest: [address = ''], query, server }: ScreenProps) {
  const { at } = query
  const when = momentOf(at)
  const past = { network, address, descending: true, pageSize: 200 }
  const seen = { network, address, vanished: true, pageSize: 1000 }
  const asked = useAnswer(
    async (signal) => {
      const [explained, history, sightings] = await Promise.all([
        call('AuditService', 'explainAddress', { network, address, ...when }, signal),
        call('AuditService', 'getAddressHistory', past, signal),
        call('LivenessService', 'listSightings', seen, signal),
      ])
      return { explained, history, sightings: sightings.sightings ?? [] }
    },
    [network, address, at],
  )
  const { explained, history, sightings = [] } = asked.answer ?? {}
  const holders = history?.holders ?? []
  const entries = history?.entries ?? []
  const held = holders.find(({ untilTime }) => !untilTime)
  const deeds = [
    ...(explained?.state === 'QUARANTINED' ? [] : [quarantine(network, address)]),
    ...(held ? [reap(held.leaseId!)] : []),
  ]
  const command = sh`ipledger explain ${address} --network ${network}` + (at ? sh` --at ${at}` : '')
  return html`<${View} title=${address} asked=${asked} call=${['AuditService/ExplainAddress', { network, address, ...when }]} command=${command}>
    <p class="answer"><${State} of=${explained?.state} /> ${explained?.answer}</p>
    ${at && html`<p class="banner">The sentence above describes ${/^\d+$/.test(at) ? `number ${at}` : html`<${Time} at=${at} />`}; all below is of all times. <a href=${linkTo(['address', network, address])}>Now</a></p>`}
    ${!at && html`<p class="acts">${deeds.map((deed) => html`<${Act} key=${deed.label} deed=${deed} server=${server} onDone=${asked.again} />`)}</p>`}
    <h2>Holders</h2>
    ${history?.nextPageToken && html`<p class="quiet">From the newest 200 events only; there are more.</p>`}
    <${Bars} holders=${holders} entries=${entries} />
    <${Holders} network=${network} holders=${holders} />
    <h2>Story</h2>
    <${Story} network=${network} address=${address} entries=${entries} />
    <h2>Seen</h2>
    <${Table} caption="Sightings at ${address}" none="No source lists it." rows=${sightings} columns=${[
      ['Source', ({ source }: Sighting) => source],
      ['Sees', ({ owner }: Sighting) => `${owner?.kind ?? ''} ${owner?.name ?? ''}`],
      ['State', ({ state }: Sighting) => html`<${State} of=${state} />`],
      ['Since', ({ appearedAt }: Sighting) => html`<${Time} at=${appearedAt} />`],
      ['Until', ({ vanishedAt }: Sighting) => (vanishedAt ? html`<${Time} at=${vanishedAt} />` : 'now')],
    ]} />
  <//>`
}

type HoldersProps = { readonly network: string; readonly holders: readonly Holder[] }

export function Holders({ network, holders }: HoldersProps) {
  return html`<${Table} caption="Holders" none="Nobody held it." rows=${holders} columns=${[
    ['Owner', ({ owner }: Holder) => (owner ? ownerLink(network, owner) : 'unknown')],
    ['Lease', ({ leaseId }: Holder) => leaseLink(network, leaseId)],
    ['From', ({ fromTime }: Holder) => html`<${Time} at=${fromTime} />`],
    ['Until', ({ untilTime }: Holder) => (untilTime ? html`<${Time} at=${untilTime} />` : 'now')],
    ['Cools until', ({ availableAt }: Holder) => availableAt && html`<${Time} at=${availableAt} />`],
  ]} />`
}

type StoryProps = { readonly network: string; readonly address: string; readonly entries: readonly Entry[] }

export function Story({ network, address, entries }: StoryProps) {
  return html`<ul class="story">${entries.map(
    ({ event, what }) => html`<li>
      <a href=${linkTo(['address', network, address], { at: event?.seq })} title="As it was then"><${Time} at=${event?.time} /></a>
      <p>${what}</p>
      <details><summary>Evidence</summary><pre>${JSON.stringify(event, null, 2)}</pre></details>
    </li>`,
  )}</ul>`
}

type BarsProps = { readonly holders: readonly Holder[]; readonly entries: readonly Entry[] }

/** Over time, exact: a bar a holder, coloured by the states of its lease, and its rest behind it. */
function Bars({ holders, entries }: BarsProps) {
  if (holders.length === 0) return null
  const now = Date.now()
  const first = Math.min(...holders.map(({ fromTime }) => Date.parse(fromTime!)))
  const whole = Math.max(1, now - first)
  const bar = (title: string, part: string, from: number, until: number) =>
    html`<span data-part=${part} title="${title}: ${part}" style=${{ left: `${((from - first) / whole) * 100}%`, width: `max(2px, ${((until - from) / whole) * 100}%)` }}></span>`
  return html`<div class="bars" aria-hidden="true">${holders.map(
    ({ owner, leaseId, fromTime, untilTime, availableAt }) => {
      const name = `${owner?.kind ?? ''} ${owner?.name ?? 'unknown'}`
      const until = untilTime ? Date.parse(untilTime) : now
      const rests = Math.min(availableAt ? Date.parse(availableAt) : until, now)
      const changes = entries
        .flatMap(({ event }) =>
          event?.lease?.leaseId === leaseId
            ? [[event!.lease!.state!, Date.parse(event!.time!)] as const]
            : [],
        )
        .filter(([state]) => state !== 'ENDED')
        .sort(([, a], [, b]) => a - b)
      const states = changes.length > 0 ? changes : [['ACTIVE', Date.parse(fromTime!)] as const]
      return html`<div>${states.map(([state, from], index) => bar(name, state.toLowerCase(), from, states[index + 1]?.[1] ?? until))}${rests > until && bar(name, 'cooling', until, rests)}</div>`
    },
  )}</div>`
}
