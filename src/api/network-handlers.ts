/** NetworkService. */
import type { Answer } from '../core/command.ts'
import { type NetworkService, UpdateNetworkRequestSchema } from '../gen/ipledger/v1/network_pb.ts'
import { shownNetwork } from './answers.ts'
import { allowedNetwork, type Backend, changedFields, commandsBy, type Handlers, ofNetwork } from './call.ts'
import { networkName, required } from './fields.ts'
import { pageOf } from './page-token.ts'

/** Nobody creates or changes a network by default. */
const named = commandsBy(({ name }: { readonly name: string }, call) =>
  allowedNetwork(call, required(name, 'name'), 'name'),
)
const inNamed = commandsBy(({ network }: { readonly network: string }, call) =>
  allowedNetwork(call, required(network, 'network')),
)

export function networkHandlers(backend: Backend): Handlers<typeof NetworkService> {
  const { reads } = backend
  const show = ({ network }: Answer) => ({ network: shownNetwork(network!) })
  return {
    createNetwork: named(
      backend,
      ({ description, labels }) => ({ type: 'createNetwork', settings: { description, labels } }),
      show,
    ),

    updateNetwork: named(
      backend,
      (message) => {
        const { version = null, description = null, labels } = message
        const changes = changedFields(UpdateNetworkRequestSchema, message)
        return { type: 'updateNetwork', version, description, labels: changes.has('labels') ? labels : null }
      },
      show,
    ),

    beginRecovery: inNamed(
      backend,
      ({ why, above }) => ({ type: 'beginEra', above, recovering: true, why: required(why, 'why') }),
      show,
    ),

    endRecovery: inNamed(backend, ({ why }) => ({ type: 'endRecovery', why: required(why, 'why') }), show),

    getNetwork: async (message, call) => {
      const name = allowedNetwork(call, message.name, 'name')
      const found = ofNetwork(await reads.network(name), name)
      const recovery = found.network.recovering === null ? null : await reads.recovery(name)
      return { network: shownNetwork(found, recovery) }
    },

    listNetworks: async (message, call) => {
      const page = pageOf(message, networkName)
      const found = await reads.networks({
        labels: message.labels,
        only: call.caller.networks === null ? null : [...call.caller.networks],
        after: page.after,
        limit: page.size + 1,
      })
      const { items, nextPageToken } = page.cut(found, ({ name }) => name)
      return { networks: items.map((one) => shownNetwork(one)), nextPageToken }
    },
  }
}
