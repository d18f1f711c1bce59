/** One lease, from its first event to its end. */

import { html } from 'htm/preact'
import { Act, reap } from '../act.ts'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { sh, useAnswer, View } from '../view.ts'
import { Holders, Story } from './address.ts'

export function Lease({ network, rest: [leaseId = ''], server }: ScreenProps) {
  const request = { leaseId, descending: true, pageSize: 1000 }
  const asked = useAnswer((signal) => call('AuditService', 'getLeaseHistory', request, signal), [leaseId])
  const { holders = [], entries = [] } = asked.answer ?? {}
  const address = holders[0]?.address ?? ''
  return html`<${View} title="Lease ${leaseId}" asked=${asked} call=${['AuditService/GetLeaseHistory', request]} command=${sh`ipledger lease history ${leaseId}`}>
    <p>At <a href=${linkTo(['address', network, address])}>${address}</a>.</p>
    ${asked.answer?.nextPageToken && html`<p class="quiet">From the newest 1,000 events only; there are more.</p>`}
    <${Holders} network=${network} holders=${holders} />
    ${holders.some(({ untilTime }) => !untilTime) && html`<p><${Act} deed=${reap(leaseId)} server=${server} onDone=${asked.again} /></p>`}
    <h2>Story</h2>
    <${Story} network=${network} address=${address} entries=${entries} />
  <//>`
}
