/** What was meant: an address at once, else whatever has this name. */

import { html } from 'htm/preact'
import { call, unlessRefused } from '../api.ts'
import { linkTo, type ScreenProps } from '../route.ts'
import { useAnswer, View } from '../view.ts'

type Found = { readonly what: string; readonly text: string; readonly link: string }

const ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|[\da-f:]*:[\da-f:.]*)$/i

async function find(network: string, text: string, signal: AbortSignal): Promise<readonly Found[]> {
  const lease = /^(.+)\/(\d+)$/.exec(text)
  const found = (ask: Promise<readonly Found[]>) => unlessRefused(ask, [])
  const leases = (what: string, request: object, query: Readonly<Record<string, string>>) =>
    found(
      call('LeaseService', 'listLeases', { network, pageSize: 1, ...request }, signal).then(
        ({ leases: held = [] }) =>
          held.length === 0 ? [] : [{ what, text, link: linkTo(['leases', network], query) }],
      ),
    )
  const [key, value] = text.split('=')
  const all = await Promise.all([
    lease
      ? found(
          call('LeaseService', 'getLease', { leaseId: text }, signal).then(({ lease: one }) => [
            { what: 'lease', text, link: linkTo(['address', one!.network!, one!.address!]) },
          ]),
        )
      : [],
    leases('owner', { ownerName: text }, { name: text }),
    leases('owner by its uid', { ownerUid: text }, { uid: text }),
    leases('node', { node: text }, { node: text }),
    value ? leases('label', { labels: { [key!]: value } }, { label: text }) : [],
    found(
      call('PoolService', 'listPools', { network, pageSize: 1000 }, signal).then(({ pools = [] }) =>
        pools
          .filter(({ name, cidr }) => name === text || cidr === text)
          .map(({ name }) => ({
            what: 'pool',
            text: name!,
            link: linkTo(['leases', network], { pool: name }),
          })),
      ),
    ),
    found(
      call('LivenessService', 'listSources', { network, pageSize: 1000 }, signal).then(({ sources = [] }) =>
        sources
          .filter(({ id }) => id === text)
          .map(({ id }) => ({ what: 'source', text: id!, link: linkTo(['sources', network]) })),
      ),
    ),
  ])
  const hits = all.flat()
  // A uid defaults to the name.
  const isNamed = hits.some(({ what }) => what === 'owner')
  return hits.filter(({ what }) => !(isNamed && what === 'owner by its uid'))
}

export function Search({ network, rest: [text = ''] }: ScreenProps) {
  const isAddress = ADDRESS.test(text)
  const asked = useAnswer(
    async (signal) => {
      const found = isAddress
        ? [{ what: 'address', text, link: linkTo(['address', network, text]) }]
        : await find(network, text, signal)
      if (found.length === 1) location.replace(found[0]!.link)
      return found
    },
    [network, text],
  )
  const found = asked.answer ?? []
  return html`<${View} title="Search: ${text}" asked=${asked} call=${['LeaseService/ListLeases', { network, ownerName: text }]} command="ipledger lease list --network ${network} --name ${text}">
    ${
      found.length === 0
        ? html`<p>Nothing in network ${network} has this name, as an owner, uid, node, label (<code>key=value</code>), pool, source or lease id. A past owner is in <code>ipledger events --name ${text}</code>.</p>`
        : html`<ul>${found.map(({ what, text: name, link }) => html`<li>${what} <a href=${link}>${name}</a></li>`)}</ul>`
    }
  <//>`
}
