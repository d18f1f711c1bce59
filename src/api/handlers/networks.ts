/** NetworkService. */
import { recoveryOf } from '../../core/attention.ts'
import type { Answer } from '../../core/command.ts'
import {
  type GetNetworkRequest,
  type ListNetworksRequest,
  type NetworkService,
  UpdateNetworkRequestSchema,
} from '../../gen/ipledger/v1/network_pb.ts'
import type { Decoded } from '../codec/decode-request.ts'
import { networkName, required } from '../codec/fields.ts'
import { pageOf } from '../codec/page-token.ts'
import { networkView } from '../codec/views.ts'
import {
  allowedNetwork,
  type Backend,
  type Call,
  changedFields,
  type Declarations,
  ofNetwork,
} from '../method.ts'
import { ADMINS, READERS } from '../rights.ts'

const view = ({ network }: Answer) => ({ network: networkView(network!) })

/** A command on a network has no default for it. */
const named = (call: Call, name: string, path = 'name') => allowedNetwork(call, required(name, path), path)

export const networkMethods: Declarations<typeof NetworkService> = {
  createNetwork: {
    roles: ADMINS,
    decode: ({ name, description, labels }, call) => ({
      type: 'createNetwork',
      network: named(call, name),
      settings: { description, labels },
    }),
    view,
  },
  updateNetwork: {
    roles: ADMINS,
    decode(request, call) {
      const { version = null, description = null, labels } = request
      const network = named(call, request.name)
      const changes = changedFields(UpdateNetworkRequestSchema, request)
      return {
        type: 'updateNetwork',
        network,
        version,
        description,
        labels: changes.has('labels') ? labels : null,
      }
    },
    view,
  },
  beginRecovery: {
    roles: ADMINS,
    decode: ({ network, why, above }, call) => ({
      type: 'beginEra',
      network: named(call, network, 'network'),
      above,
      recovering: true,
      why: required(why, 'why'),
    }),
    view,
  },
  endRecovery: {
    roles: ADMINS,
    decode: ({ network, why }, call) => ({
      type: 'endRecovery',
      network: named(call, network, 'network'),
      why: required(why, 'why'),
    }),
    view,
  },
  getNetwork: { roles: READERS, answer: getNetwork },
  listNetworks: { roles: READERS, answer: listNetworks },
}

async function getNetwork(request: Decoded<GetNetworkRequest>, call: Call, { ledger, reads }: Backend) {
  const name = allowedNetwork(call, request.name, 'name')
  const found = ofNetwork(await reads.network(name), name)
  if (found.network.recovering === null) return { network: networkView(found) }
  const freshness = await reads.freshness(name)
  const image = ofNetwork(await ledger.image(name, { deadline: call.deadline }), name)
  const present = { image, now: ledger.now(), freshness: (id: string) => freshness?.get(id) }
  const { network, head, digest } = image
  return { network: networkView({ name, network: network!, head, digest }, recoveryOf(present)) }
}

async function listNetworks(request: Decoded<ListNetworksRequest>, call: Call, { reads }: Backend) {
  const page = pageOf(request, networkName)
  const found = await reads.networks({
    labels: request.labels,
    only: call.caller.networks === null ? null : [...call.caller.networks],
    after: page.after,
    limit: page.size + 1,
  })
  const { items, nextPageToken } = page.cut(found, ({ name }) => name)
  return { networks: items.map((one) => networkView(one)), nextPageToken }
}
