/** What happened in a network, the newest first: its log, by what one looks for. */

import { html } from 'htm/preact'
import type { EventJson } from '../../gen/ipledger/v1/audit_pb.ts'
import { call } from '../api.ts'
import { addressLink, leaseLink, ownerLink } from '../links.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { type Column, quoted, State, Table, Time, useAnswer, View } from '../view.ts'
import { Filter } from './leases.ts'

const TYPES =
  'lease.reserved lease.confirmed lease.updated lease.released lease.quarantined lease.reaped lease.adopted attachment.closed pool.created pool.updated pool.deleted network.created network.updated era.begun recovery.extended recovery.ended reconcile.held reconcile.resumed source.registered source.enabled source.retired source.reported'.split(
    ' ',
  )
const FIELDS = ['address', 'kind', 'name', 'from', 'to'] as const

export const ownerOf = ({ lease, closed }: EventJson) => lease?.owner ?? closed?.owner

export const eventColumns = (network: string): readonly Column<EventJson>[] => [
  [
    'Time',
    ({ time, seq, lease }) =>
      lease
        ? html`<a href=${linkTo(['address', network, lease.address!], { at: seq })}><${Time} at=${time} /></a>`
        : html`<${Time} at=${time} />`,
  ],
  [
    'What',
    ({ type, closed, pool }) =>
      html`${type} ${pool?.name} ${closed && html`until <${Time} at=${closed.until} />`}`,
  ],
  ['State', ({ lease }) => lease && html`<${State} of=${lease.state} /> ${lease.quarantine?.reason}`],
  ['Address', ({ lease }) => lease && addressLink(network, lease.address)],
  ['Lease', ({ lease }) => lease && leaseLink(network, lease.leaseId)],
  [
    'Owner',
    (event) => {
      const owner = ownerOf(event)
      return owner?.name && html`${ownerLink(network, owner)} ${owner.incarnation}`
    },
  ],
  ['Node', (event) => ownerOf(event)?.node],
  ['By', ({ actor, cause }) => `${actor} (${cause})`],
  ['Why', ({ evidence }) => [evidence?.id, evidence?.source, evidence?.why].filter(Boolean).join(' ')],
]

export function Events({ network, query }: ScreenProps) {
  const { type, address, kind, name, from, to, page } = query
  const request = {
    network,
    ...(type ? { types: [type] } : { includeSources: true }),
    ...(address && { address }),
    ...(kind && { ownerKind: kind }),
    ...(name && { ownerName: name }),
    ...(from && { from }),
    ...(to && { to }),
    ...(page && { pageToken: page }),
    descending: true,
    pageSize: 200,
  }
  const asked = useAnswer(
    (signal) => call('AuditService', 'listEvents', request, signal),
    [JSON.stringify(request)],
  )
  const { events = [], nextPageToken: next } = asked.answer ?? {}
  const flags = ['type', ...FIELDS].flatMap((one) => (query[one] ? `--${one} ${quoted(query[one])}` : []))
  const command = ['ipledger events --descending --network', quoted(network), ...flags]
    .concat(type ? [] : '--include-sources', page ? `--page-token ${quoted(page)}` : [])
    .join(' ')
  return html`<${View} title="Events" asked=${asked} call=${['AuditService/ListEvents', request]} command=${command}
      filter=${html`<${Filter} path=${['events', network]} query=${query} fields=${FIELDS} choice=${['type', TYPES]} />`}>
    <${Table} caption="Events, the newest first" none="Nothing of this kind has happened." isCut=${Boolean(next)} rows=${events} columns=${eventColumns(network)} />
    ${next && html`<p><a href=${linkTo(['events', network], { ...query, page: next })}>Further back</a></p>`}
  <//>`
}
