/** Everything that waits for a person, the worst first. */

import { html } from 'htm/preact'
import type { AttentionJson as Item } from '../../gen/ipledger/v1/liveness_pb.ts'
import { Act, type Deed, endRecovery, reap, resume, retire } from '../act.ts'
import { call } from '../api.ts'
import { addressLink } from '../links.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { sh, Table, Time, useAnswer, View } from '../view.ts'

/** What a person could do about it. */
function deedsOf(network: string, { code, leaseId, source }: Item): readonly Deed[] {
  if (code === 'NETWORK_RECOVERING') return [endRecovery(network)]
  if (code === 'HELD') return [resume(network)]
  if (leaseId) return [reap(leaseId)]
  return code === 'SOURCE_SILENT' && source ? [retire(network, source)] : []
}

export function Attention({ network, query, server }: ScreenProps) {
  const { code } = query
  const request = { network, pageSize: 1000, ...(code && { codes: [code], each: true }) }
  const asked = useAnswer(
    (signal) => call('LivenessService', 'listAttention', request, signal),
    [network, code],
  )
  const items: readonly Item[] = asked.answer?.items ?? []
  const command = sh`ipledger attention --network ${network}` + (code ? sh` --code ${code} --each` : '')
  return html`<${View} title="Attention" asked=${asked} call=${['LivenessService/ListAttention', request]} command=${command}>
    ${code && html`<p>Only ${code}. <a href=${linkTo(['attention', network])}>All</a></p>`}
    <${Table} caption="What waits for a person or an answer" none="Nothing waits." isCut=${Boolean(asked.answer?.nextPageToken)} rows=${items} columns=${[
      ['Severity', ({ severity }: Item) => html`<span data-severity=${severity}>${severity}</span>`],
      [
        'Code',
        ({ code: of, count }: Item) =>
          html`<a href=${linkTo(['attention', network], { code: of })}>${of}</a>${Number(count) > 1 ? ` × ${count}` : ''}`,
      ],
      ['Since', ({ since }: Item) => html`<${Time} at=${since} />`],
      [
        'About',
        ({ address, source, code: of }: Item) =>
          address
            ? addressLink(network, address)
            : source && of !== 'SOURCE_UNKNOWN'
              ? html`<a href=${linkTo(['sources', network, source])}>${source}</a>`
              : source,
      ],
      [
        'Waits for',
        ({ code: of, text }: Item) =>
          html`${text} ${of === 'HELD' && html`<a href=${linkTo(['events', network], { type: 'lease.reaped' })}>What was taken back</a>`}`,
      ],
      [
        'Act',
        (item: Item) =>
          Number(item.count) > 1 && !code
            ? html`<a href=${linkTo(['attention', network], { code: item.code })}>each of them</a>`
            : deedsOf(network, item).map(
                (deed) =>
                  html`<${Act} key=${deed.label} deed=${deed} server=${server} onDone=${asked.again} />`,
              ),
      ],
    ]} />
  <//>`
}
