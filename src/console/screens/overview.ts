/** How full the pools are, what waits, and whether anything is handed out. */

import { html } from 'htm/preact'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { Time, useAnswer, View } from '../view.ts'

const PARTS = ['active', 'reserved', 'quarantined', 'cooling', 'excluded', 'free'] as const

export function Overview({ network }: ScreenProps) {
  const asked = useAnswer(
    async (signal) => {
      const [{ pools = [] }, { network: found }, { items = [] }] = await Promise.all([
        call('PoolService', 'listPools', { network, pageSize: 1000 }, signal),
        call('NetworkService', 'getNetwork', { name: network }, signal),
        call('LivenessService', 'listAttention', { network, pageSize: 1000 }, signal),
      ])
      return { pools, found, items }
    },
    [network],
  )
  const { pools = [], found, items = [] } = asked.answer ?? {}
  return html`<${View} title="Overview" asked=${asked}
      call=${['PoolService/ListPools', { network }]} command="ipledger pool list --network ${network}">
    <${Banner} network=${found} />
    <h2>Pools</h2>
    ${pools.length === 0 && html`<p class="quiet">No pools. <code>ipledger pool create web --cidr 10.0.0.0/24</code> makes one.</p>`}
    <ul class="pools">${pools.map(({ name, cidr, usage = {}, draining }) => {
      const size = Number(usage.size)
      const shares = PARTS.map((part) => [part, Number(usage[part])] as const).filter(
        ([, count]) => count > 0,
      )
      const said = shares.map(([part, count]) => `${count.toLocaleString()} ${part}`).join(', ')
      return html`<li>
        <span class="pool"><a href=${linkTo(['leases', network], { pool: name })}>${name}</a> ${cidr} ${draining && html`<em>draining</em>`}</span>
        <span class="bar" role="img" aria-label="${name}: ${said}">${shares.map(
          ([part, count]) =>
            html`<span data-part=${part} style=${{ flexGrow: count / size }} title="${count.toLocaleString()} ${part}"></span>`,
        )}</span>
        <span class="counts">${said}</span>
      </li>`
    })}</ul>
    <p class="legend" aria-hidden="true">${PARTS.map((part) => html`<span><i data-part=${part}></i>${part}</span>`)}</p>
    <h2>Attention</h2>
    ${
      items.length === 0
        ? html`<p class="quiet">Nothing waits for a person.</p>`
        : html`<ul class="waits">${items.map(
            ({ severity, code, count, text, since }) =>
              html`<li data-severity=${severity}><strong>${code}</strong>${Number(count) > 1 && html` × ${count}`} ${text} <span class="quiet">since <${Time} at=${since} /></span></li>`,
          )}</ul><p><a href=${linkTo(['attention', network])}>All that waits</a></p>`
    }
  <//>`
}

type Found = {
  readonly name?: string
  readonly state?: string
  readonly closed?: boolean
  readonly holds?: readonly { readonly cause?: string; readonly why?: string; readonly since?: string }[]
  readonly recovery?: {
    readonly why?: string
    readonly since?: string
    readonly needsOperator?: boolean
    readonly unreported?: readonly string[]
  }
}

/** Why nothing is handed out or taken back, and what ends that. */
function Banner({ network }: { readonly network: Found | undefined }) {
  if (network === undefined) return null
  const { name, recovery, holds = [], closed } = network
  return html`
    ${closed && html`<div class="banner">Nothing new is handed out: the network is closed. <code>ipledger network update ${name} --no-closed</code> opens it.</div>`}
    ${
      recovery &&
      html`<div class="banner" role="status">Nothing is handed out: the network recovers since <${Time} at=${recovery.since} />, because ${recovery.why}.
      ${
        recovery.needsOperator
          ? html` It waits for an operator: <code>ipledger recover --end ${name} --why …</code>`
          : html` It waits for two reports of each source${recovery.unreported?.length ? `, still of: ${recovery.unreported.join(', ')}` : ''}.`
      }</div>`
    }
    ${holds.map(({ cause, why, since }) => html`<div class="banner" role="status">Nothing is taken back: ${cause} since <${Time} at=${since} />: ${why}. <code>ipledger network resume ${name} --why …</code> ends it.</div>`)}
  `
}
