/** Who says what is alive, how it stands by its reports, and what follows from them. */

import { html } from 'htm/preact'
import type { FindingJson, SightingJson, SourceJson } from '../../gen/ipledger/v1/liveness_pb.ts'
import { Act, enable, retire } from '../act.ts'
import { call } from '../api.ts'
import { addressLink, nodeLink } from '../links.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { State, sh, Table, Time, useAnswer, View } from '../view.ts'

export function Sources(props: ScreenProps) {
  const { network, rest } = props
  if (rest[0] !== undefined) return html`<${OneSource} ...${props} />`
  const request = { network, pageSize: 1000 }
  const asked = useAnswer((signal) => call('LivenessService', 'listSources', request, signal), [network])
  return html`<${View} title="Sources" asked=${asked} call=${['LivenessService/ListSources', request]} command=${sh`ipledger source list --network ${network}`}>
    <${List} network=${network} sources=${asked.answer?.sources ?? []} />
  <//>`
}

/** Status and lateness of each. */
function List({ network, sources }: { readonly network: string; readonly sources: readonly SourceJson[] }) {
  return html`<${Table} caption="Sources of live addresses" none="No sources: nothing is known of what is alive." rows=${sources} columns=${[
    ['Source', ({ id }: SourceJson) => html`<a href=${linkTo(['sources', network, id!])}>${id}</a>`],
    ['Kind', ({ kind }: SourceJson) => kind],
    ['Node', ({ sight }: SourceJson) => (sight?.node ? nodeLink(network, sight.node) : 'all')],
    ['Sees', ({ sight }: SourceJson) => sight?.ownerKinds?.join(', ')],
    ['State', ({ state }: SourceJson) => html`<${State} of=${state} />`],
    [
      'Status',
      ({ state, status, failure, partialBecause = [] }: SourceJson) =>
        state !== 'RETIRED' &&
        html`<${State} of=${status} /> ${[failure, ...partialBecause].filter(Boolean).join(', ')}`,
    ],
    ['Lists', ({ size }: SourceJson) => size],
    ['Every', ({ sight }: SourceJson) => sight?.interval],
    ['Reported', ({ reportedAt }: SourceJson) => html`<${Time} at=${reportedAt} />`],
    ['Complete', ({ completeAt }: SourceJson) => html`<${Time} at=${completeAt} />`],
  ]} />`
}

function OneSource({ network, rest: [id = ''], server }: ScreenProps) {
  const page = { network, source: id, pageSize: 200 }
  const asked = useAnswer(
    async (signal) => {
      const [found, listed, plan] = await Promise.all([
        call('LivenessService', 'getSource', { network, id }, signal),
        call('LivenessService', 'listSightings', { ...page, vanished: true }, signal),
        call('LivenessService', 'reconcile', { ...page, kept: true }, signal),
      ])
      return { source: found.source!, listed, plan }
    },
    [network, id],
  )
  const { source, listed, plan } = asked.answer ?? {}
  const deeds = [
    ...(source?.state === 'REGISTERED' ? [enable(network, id)] : []),
    ...(source?.state === 'RETIRED' ? [] : [retire(network, id)]),
  ]
  return html`<${View} title="Source ${id}" asked=${asked} call=${['LivenessService/Reconcile', { network, source: id, kept: true }]}
      command=${sh`ipledger reconcile --dry-run --kept --source ${id} --network ${network}`}>
    ${source && html`<${List} network=${network} sources=${[source]} />`}
    <p class="acts">${deeds.map((deed) => html`<${Act} key=${deed.label} deed=${deed} server=${server} onDone=${asked.again} />`)}</p>
    <${Table} caption="What would follow now, by lease" none="It lists no lease and is a witness of none." isCut=${Boolean(plan?.nextPageToken)} rows=${plan?.findings ?? []} columns=${[
      ['Address', ({ address: at }: FindingJson) => addressLink(network, at)],
      ['Verdict', ({ verdict }: FindingJson) => verdict],
      ['Owner', ({ lease }: FindingJson) => lease?.owner && `${lease.owner.kind} ${lease.owner.name}`],
      ['Why', ({ because = [] }: FindingJson) => because.map(({ text }) => text).join('; ')],
    ]} />
    <${Table} caption="What it lists" none="It lists nothing." isCut=${Boolean(listed?.nextPageToken)} rows=${listed?.sightings ?? []} columns=${[
      ['Address', ({ address: at }: SightingJson) => addressLink(network, at)],
      ['Owner', ({ owner }: SightingJson) => (owner ? `${owner.kind} ${owner.name}` : 'unknown')],
      ['State', ({ state }: SightingJson) => html`<${State} of=${state} />`],
      ['Since', ({ appearedAt }: SightingJson) => html`<${Time} at=${appearedAt} />`],
      ['Until', ({ vanishedAt }: SightingJson) => (vanishedAt ? html`<${Time} at=${vanishedAt} />` : 'now')],
    ]} />
  <//>`
}
