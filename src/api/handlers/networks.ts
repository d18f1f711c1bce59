import { recoveryOf } from '../../core/attention.ts'
import type { Answer } from '../../core/command.ts'
import { type NetworkService, UpdateNetworkRequestSchema } from '../../gen/ipledger/v1/network_pb.ts'
import { networkName, reason, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { networkView } from '../codec/views.ts'
import { changedFields, type Declarations, ofNetwork } from '../method.ts'
import { ADMINS, READERS } from '../rights.ts'

const view = ({ network }: Answer) => ({ network: networkView(network!) })

/** Commands on a network have no default for it. */
export const networkMethods: Declarations<typeof NetworkService> = {
  createNetwork: {
    roles: ADMINS,
    decode({ name, description, labels }) {
      required(name, 'name')
      return { type: 'createNetwork', settings: { description, labels } }
    },
    view,
  },
  updateNetwork: {
    roles: ADMINS,
    decode(request) {
      const { version = null, description = null, labels: given, closed } = request
      required(request.name, 'name')
      const changes = changedFields(UpdateNetworkRequestSchema, request)
      const labels = changes.has('labels') ? given : null
      return { type: 'updateNetwork', version, description, labels, closed }
    },
    view,
  },
  beginRecovery: {
    roles: ADMINS,
    decode({ network, why, above }) {
      required(network, 'network')
      return { type: 'beginEra', above, recovering: true, why: required(why, 'why') }
    },
    view,
  },
  endRecovery: {
    roles: ADMINS,
    decode({ network, ...given }) {
      required(network, 'network')
      return { type: 'endRecovery', why: reason(given) }
    },
    view,
  },
  getNetwork: {
    roles: READERS,
    async answer(_request, { network: name, deadline }, { ledger, reads }) {
      const found = ofNetwork(await reads.network(name), name)
      if (found.network.recovering === null) return { network: networkView(found) }
      const freshness = await reads.freshness(name)
      const image = ofNetwork(await ledger.image(name, { deadline }), name)
      const present = { image, now: ledger.now(), freshness: (id: string) => freshness?.get(id) }
      const { network, head, digest } = image
      return { network: networkView({ name, network: network!, head, digest }, recoveryOf(present)) }
    },
  },
  listNetworks: {
    roles: READERS,
    async answer(request, { caller }, { reads }) {
      const page = pageOf(request, networkName)
      const found = await reads.networks({
        labels: request.labels,
        only: caller.networks === null ? null : [...caller.networks],
        after: page.after,
        limit: page.size + 1,
      })
      const { items, nextPageToken } = page.cut(found, ({ name }) => name)
      return { networks: items.map((one) => networkView(one)), nextPageToken }
    },
  },
}
