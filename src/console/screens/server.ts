/** What runs, who one is, and what one may do. */

import { html } from 'htm/preact'
import type { NetworkJson as Network } from '../../gen/ipledger/v1/network_pb.ts'
import { call, unlessRefused } from '../api.ts'
import type { ScreenProps } from '../route.ts'
import { State, Table, Time, useAnswer, View } from '../view.ts'

export function Server(_: ScreenProps) {
  const asked = useAnswer(
    async (signal) => ({
      server: await call('ServerService', 'getServer', {}, signal),
      networks: await unlessRefused(call('NetworkService', 'listNetworks', { pageSize: 1000 }, signal), {}),
    }),
    [],
  )
  const { server, networks } = asked.answer ?? {}
  const { caller } = server ?? {}
  const lines = [
    ['Server', server?.version],
    ['Schema', server?.schema],
    ['Database', `${server?.database?.place} (${server?.database?.version})`],
    ['Its time', html`<${Time} at=${server?.time} />`],
    ['You', `${caller?.name}, ${caller?.role}`],
    ['Node', caller?.node || 'not bound to one'],
    ['Networks', caller?.networks?.join(', ') || 'all'],
    ['May change', caller?.changes?.map((one) => one.split('/')[1]).join(', ') || 'nothing'],
  ]
  return html`<${View} title="Server" asked=${asked} call=${['ServerService/GetServer', {}]} command="ipledger version">
    <dl>${lines.map(([title, text]) => html`<dt>${title}</dt><dd>${text}</dd>`)}</dl>
    <${Table} caption="Networks" none="You may list none." rows=${networks?.networks ?? []} columns=${[
      ['Network', ({ name }: Network) => name],
      ['State', ({ state }: Network) => html`<${State} of=${state} />`],
      ['Era', ({ era }: Network) => era],
      ['Anchor', ({ head, digest }: Network) => html`<code>${head}:${digest}</code>`],
      ['Made', ({ createdAt }: Network) => html`<${Time} at=${createdAt} />`],
    ]} />
  <//>`
}
