/** NetworkService. */
import type { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { shownNetwork } from './answers.ts'
import { type Backend, type Handlers, ofNetwork, submit } from './call.ts'
import { labels, networkName, pageSize } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { readCreateNetwork, readEndRecovery, readUpdateNetwork } from './requests.ts'
import { checkNetwork } from './rights.ts'

export function networkHandlers(backend: Backend): Handlers<typeof NetworkService> {
  const { reads } = backend
  return {
    createNetwork: async (message, call) => {
      const { network } = await submit(backend, readCreateNetwork(message, call), call)
      return { network: shownNetwork(network!) }
    },

    updateNetwork: async (message, call) => {
      const { network } = await submit(backend, readUpdateNetwork(message, call), call)
      return { network: shownNetwork(network!) }
    },

    getNetwork: async (message, call) => {
      const name = networkName(message.name, 'name')
      checkNetwork(call.caller, name)
      const found = ofNetwork(await reads.network(name), name)
      const recovery = found.network.recovering === null ? null : await reads.recovery(name)
      return { network: shownNetwork(found, recovery) }
    },

    listNetworks: async (message, call) => {
      const wanted = labels(message.labels, 'labels')
      const size = pageSize(message.pageSize)
      const asked = ['ListNetworks', wanted]
      const after = decodePage(message.pageToken, asked)
      const { networks: allowed } = call.caller
      const found = await reads.networks({
        labels: wanted,
        only: allowed === null ? null : [...allowed],
        after: after === null ? null : networkName(after, 'pageToken'),
        limit: size + 1,
      })
      const networks = found.slice(0, size)
      return {
        networks: networks.map((one) => shownNetwork(one)),
        nextPageToken: found.length > size ? encodePage(networks.at(-1)!.name, asked) : '',
      }
    },

    endRecovery: async (message, call) => {
      const { network } = await submit(backend, readEndRecovery(message, call), call)
      return { network: shownNetwork(network!) }
    },
  }
}
