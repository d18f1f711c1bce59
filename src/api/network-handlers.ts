/** NetworkService. */
import type { NetworkService } from '../gen/ipledger/v1/network_pb.ts'
import { networkMessage } from './answers.ts'
import { type Backend, type Handlers, networkNotFound, readingBack, submit } from './call.ts'
import { labels, networkName, pageSize } from './fields.ts'
import { decodePage, encodePage } from './page-token.ts'
import { readCreateNetwork, readEndRecovery, readUpdateNetwork } from './requests.ts'
import { checkNetwork } from './rights.ts'

export function networkHandlers(backend: Backend): Handlers<typeof NetworkService> {
  const { reads } = backend
  return {
    createNetwork: async (message, call) => {
      const command = readCreateNetwork(message, call)
      await submit(backend, command, call)
      const made = await readingBack(reads.network(command.network), `network ${command.network} was created`)
      return { $typeName: 'ipledger.v1.CreateNetworkResponse', network: networkMessage(made) }
    },

    updateNetwork: async (message, call) => {
      const command = readUpdateNetwork(message, call)
      await submit(backend, command, call)
      const after = await readingBack(
        reads.network(command.network),
        `network ${command.network} was updated`,
      )
      return { $typeName: 'ipledger.v1.UpdateNetworkResponse', network: networkMessage(after) }
    },

    getNetwork: async (message, call) => {
      const name = networkName(message.name, 'name')
      checkNetwork(call.caller, name)
      const found = await reads.network(name)
      if (found === null) throw networkNotFound(name)
      return { $typeName: 'ipledger.v1.GetNetworkResponse', network: networkMessage(found) }
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
        $typeName: 'ipledger.v1.ListNetworksResponse',
        networks: networks.map(networkMessage),
        nextPageToken: found.length > size ? encodePage(networks.at(-1)!.network.network, asked) : '',
      }
    },

    endRecovery: async (message, call) => {
      const command = readEndRecovery(message, call)
      await submit(backend, command, call)
      const after = await readingBack(
        reads.network(command.network),
        `recovery of ${command.network} was ended`,
      )
      return { $typeName: 'ipledger.v1.EndRecoveryResponse', network: networkMessage(after) }
    },
  }
}
