/** How full the pools are, what waits, and whether anything is handed out. */

import { html } from 'htm/preact'
import type { NetworkJson } from '../../gen/ipledger/v1/network_pb.ts'
import { Act, endRecovery, resume } from '../act.ts'
import { call } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { Failure, sh, Time, useAnswer, View } from '../view.ts'
import { TrendSaid } from './pool.ts'

/** An older sample is not shown. */
const SAMPLED_MS = 300_000
const PARTS = ['active', 'reserved', 'quarantined', 'cooling', 'excluded', 'free'] as const

export function Overview({ network, server }: ScreenProps) {
  const asked = useAnswer(
    async (signal) => {
      const from = new Date(Date.now() - SAMPLED_MS).toISOString()
      const [{ trends = [], countedFrom }, { network: found }] = await Promise.all([
        call('PoolService', 'listPoolTrends', { network, from, samples: 1, pageSize: 1000 }, signal),
        call('NetworkService', 'getNetwork', { name: network }, signal),
      ])
      return { trends, countedFrom, found }
    },
    [network],
  )
  // Both are slow in a large network: they are asked for one after the other, and the last samples are shown until then.
  const waits = useAnswer(
    (signal) =>
      asked.at
        ? call('LivenessService', 'listAttention', { network, pageSize: 1000 }, signal)
        : Promise.resolve(undefined),
    [network, asked.at],
  )
  const counted = useAnswer(
    (signal) =>
      waits.answer || waits.failure
        ? call('PoolService', 'listPools', { network, pageSize: 1000 }, signal)
        : Promise.resolve(undefined),
    [network, waits.answer, waits.failure],
  )
  const { trends = [], countedFrom, found } = asked.answer ?? {}
  const { items } = waits.answer ?? {}
  return html`<${View} title="Overview" asked=${asked}
      call=${['PoolService/ListPools', { network }]} command=${sh`ipledger pool list --network ${network}`}>
    <${Banner} network=${found} server=${server} onDone=${asked.again} />
    <h2>Pools</h2>
    ${counted.failure && html`<${Failure} failure=${counted.failure} again=${counted.again} />`}
    ${trends.length === 0 && html`<p class="quiet">No pools. <code>ipledger pool create web --cidr 10.0.0.0/24</code> makes one.</p>`}
    <ul class="pools">${trends.map((trend) => {
      const { pool: name, cidr, samples: [sample] = [] } = trend
      const { usage = sample?.usage ?? {}, draining } =
        counted.answer?.pools?.find((one) => one.name === name) ?? {}
      const size = Number(usage.size)
      // More than a number holds.
      const shares = PARTS.map((part) => [part, BigInt(usage[part] ?? 0)] as const).filter(
        ([, count]) => count > 0n,
      )
      const said = shares.map(([part, count]) => `${count.toLocaleString()} ${part}`).join(', ')
      return html`<li>
        <span class="pool"><a href=${linkTo(['pool', network, name!])}>${name}</a> ${cidr} ${draining && html`<em>draining</em>`}</span>
        <span class="bar" role="img" aria-label="${name}: ${said}">${shares.map(
          ([part, count]) =>
            html`<span data-part=${part} style=${{ flexGrow: Number(count) / size }} title="${count.toLocaleString()} ${part}"></span>`,
        )}</span>
        <span class="counts">${said ? `${said}.` : 'Counting…'} <${TrendSaid} trend=${trend} since=${countedFrom} /> <a href=${linkTo(['leases', network], { pool: name })}>leases</a>${Number(usage.quarantined) > 0 && html` <a href=${linkTo(['leases', network], { pool: name, state: 'QUARANTINED' })}>quarantined</a>`}</span>
      </li>`
    })}</ul>
    <p class="legend" aria-hidden="true">${PARTS.map((part) => html`<span><i data-part=${part}></i>${part}</span>`)}</p>
    <h2>Attention</h2>
    ${waits.failure && html`<${Failure} failure=${waits.failure} again=${waits.again} />`}
    ${
      items === undefined || items.length === 0
        ? html`<p class="quiet">${waits.answer ? 'Nothing waits for a person.' : 'Looking…'}</p>`
        : html`<ul class="waits">${items.map(
            ({ severity, code, count, text, since }) =>
              html`<li data-severity=${severity}><strong>${code}</strong>${Number(count) > 1 && html` × ${count}`} ${text} <span class="quiet">since <${Time} at=${since} /></span></li>`,
          )}</ul><p><a href=${linkTo(['attention', network])}>All that waits</a></p>`
    }
  <//>`
}

type BannerProps = {
  readonly network: NetworkJson | undefined
  readonly server: ScreenProps['server']
  readonly onDone: () => void
}

/** Why nothing is handed out or taken back, and what ends that. */
function Banner({ network, server, onDone }: BannerProps) {
  if (network === undefined) return null
  const { name, recovery, holds = [], closed } = network
  return html`
    ${closed && html`<div class="banner">Nothing new is handed out: the network is closed. <code>ipledger network update ${name} --no-closed</code> opens it.</div>`}
    ${
      recovery &&
      html`<div class="banner" role="status">Nothing is handed out: the network recovers since <${Time} at=${recovery.since} />, because ${recovery.why}.
      ${
        recovery.needsOperator
          ? html` It waits for an operator.`
          : html` It waits for two reports of each source${recovery.unreported?.length ? `, still of: ${recovery.unreported.join(', ')}` : ''}.`
      }${recovery.unknown?.length ? ` To be registered: ${recovery.unknown.join(', ')}.` : ''} <${Act} deed=${endRecovery(name!)} server=${server} onDone=${onDone} /></div>`
    }
    ${holds.map(({ cause, why, since }) => html`<div class="banner" role="status">The network is held (${cause}) since <${Time} at=${since} />: ${why}. What that stops is said below. <${Act} deed=${resume(name!, cause)} server=${server} onDone=${onDone} /></div>`)}
  `
}
